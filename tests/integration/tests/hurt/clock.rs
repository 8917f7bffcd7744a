//! A clock that is a year or ten ahead or back at a start: refused, unless a clock outside or the owner confirms it.

use forebay_driver::step::configure;
use forebay_engine::engine::Engine;
use forebay_integration::{Server, root, run};
use forebay_kernel::event::Tick;
use forebay_kernel::units::Timestamp;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, SystemTime};

const DAY: u64 = 86_400_000;

fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    u64::try_from(since.as_millis()).expect("before the year 584,000,000")
}

/// A journal whose last record is of another time.
fn journal_of(folder: &Path, at: u64) {
    let data = folder.join("data");
    let mut journal = forebay::journal::SqliteJournal::create(&data, at).expect("a journal");
    let catalogue = forebay_catalog::Catalogue::builtin();
    let text = std::fs::read_to_string(root().join("policies/teams.yaml")).expect("a policy");
    let compiled = forebay_policy::compile("teams.yaml", &text, &catalogue).expect("it compiles");
    let mut engine = Engine::new();
    let tick = Tick { now: Timestamp(at), resumed: false, delivered: 0 };
    let planned = configure(&mut engine, tick, compiled.policy);
    planned.append(&mut journal).map(drop).expect("appended");
    drop(journal);
    std::fs::write(data.join("world.json"), "{\"seed\":1,\"market\":null}\n").expect("a seed");
}

#[test]
fn a_year_and_ten_years_ahead_and_back_are_refused_and_taken_once_by_their_owner() {
    let policy = root().join("policies/teams.yaml").display().to_string();
    for (at, what) in [
        (now() - 365 * DAY, "365 days later"),
        (now() - 3_650 * DAY, "3650 days later"),
        (now() + 365 * DAY, "days earlier"),
        (now() + 3_650 * DAY, "days earlier"),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        journal_of(folder.path(), at);
        let before = forebay_integration::folders::contents(&folder.path().join("data"));
        let args = ["run", "--data", "data", "--policy", &policy, "--listen", "127.0.0.1:0"];
        let refused = run(folder.path(), &args);
        assert_eq!(refused.code, 2, "{what}: {refused:?}");
        assert!(refused.err.contains(what) && refused.err.contains("--accept-time"), "{what}: {}", refused.err);
        assert!(
            forebay_integration::folders::contents(&folder.path().join("data")) == before,
            "{what}: a refused start changed a file"
        );
        let server = Server::start(folder.path(), &["--data", "data", "--policy", &policy, "--accept-time"]);
        // Nothing loops over the years between: a job is taken at once.
        let begun = std::time::Instant::now();
        super::folder::submit(&server, "job", 10);
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}: {:?}", begun.elapsed());
        drop(server);
        let verified = run(folder.path(), &["journal", "verify", "data"]);
        assert!(verified.out.contains("time accepted") && verified.out.contains(what), "{what}: {verified:?}");
    }
}

#[test]
fn a_time_and_a_loss_that_are_accepted_at_once_are_both_written_down() {
    let folder = tempfile::tempdir().expect("a folder");
    journal_of(folder.path(), now() - 365 * DAY);
    std::fs::remove_file(folder.path().join("data/journal.mark")).expect("removed");
    let policy = root().join("policies/teams.yaml").display().to_string();
    let accepted = ["--data", "data", "--policy", &policy, "--accept-time", "--accept-loss", "0"];
    drop(Server::start(folder.path(), &accepted));
    let verified = run(folder.path(), &["journal", "verify", "data"]);
    for act in ["time accepted", "loss accepted"] {
        assert!(verified.out.contains(act), "{act}: {verified:?}");
    }
}

/// A server that answers everything with one `Date`.
fn says(date: String) -> (String, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let answers = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let _ = stream.read(&mut [0; 4096]);
        let _ =
            write!(stream, "HTTP/1.1 404 Not Found\r\nDate: {date}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    });
    (url, answers)
}

#[test]
fn a_clock_outside_confirms_a_time_or_does_not() {
    use forebay::clock::{OutsideClock, ask, judge};
    use forebay::driver::TimeConsent;
    let date = |ms: u64| {
        let out = std::process::Command::new("date")
            .args(["-u", "-d", &format!("@{}", ms / 1_000), "+%a, %d %b %Y %H:%M:%S GMT"])
            .env("LC_ALL", "C")
            .output();
        String::from_utf8(out.expect("date").stdout).expect("text").trim().to_owned()
    };
    for (says_ms, confirms) in [(now(), true), (now() - 300 * DAY, false)] {
        let (url, answers) = says(date(says_ms));
        let clock = OutsideClock::over_http("ec2:test".to_owned(), url);
        let judged = judge(now() - 365 * DAY, now(), || ask(&clock).into_iter().collect(), TimeConsent::Ask);
        answers.join().expect("it answered");
        assert_eq!(judged.is_ok(), confirms, "{judged:?}");
        if let Err(error) = judged {
            assert!(error.to_string().contains("ec2:test says"), "{error}");
        }
    }
    let silent = OutsideClock::over_http("ec2:test".to_owned(), "http://127.0.0.1:9".to_owned());
    assert!(judge(now() - 365 * DAY, now(), || ask(&silent).into_iter().collect(), TimeConsent::Ask).is_err());
}

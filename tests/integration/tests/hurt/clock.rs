//! A clock that is a year or ten ahead or back.
//!
//! ```text
//! at a start     refused, unless a clock outside or the owner confirms it
//! inside a run   time goes on as if nothing had been; the step is told, and the next start judges it
//! ```
//!
//! Never: the clock of this machine, which is everybody's. stepped.rs has one for the program alone.

use super::folder::{event, post, submit};
use super::started::{Refusal, Started};
use super::stepped::SteppedClock;
use crate::wire::PATIENCE;
use forebay_driver::step::configure;
use forebay_engine::engine::Engine;
use forebay_integration::folders::contents;
use forebay_integration::{Server, root, run, until};
use forebay_kernel::event::Tick;
use forebay_kernel::units::Timestamp;
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

const DAY: u64 = 86_400_000;

/// How far a clock is off, in days.
const JUMPS: [i64; 4] = [365, -365, 3_650, -3_650];

/// The seconds of a day.
const DAY_S: i64 = 86_400;

/// A job is taken, and everything is answered, within this time. Whatever went through the years between would take far longer.
const AT_ONCE: Duration = Duration::from_secs(20);

/// Jobs that are sent at each time.
const JOBS: usize = 5;

fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    u64::try_from(since.as_millis()).expect("before the year 584,000,000")
}

/// So many days after now.
fn days_from_now(days: i64) -> u64 {
    now().saturating_add_signed(days * DAY_S * 1_000)
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
        let begun = Instant::now();
        submit(&server, "job", 10);
        assert!(begun.elapsed() < AT_ONCE, "{what}: {:?}", begun.elapsed());
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

/// A time as HTTP writes it.
fn date(ms: u64) -> String {
    let out = std::process::Command::new("date")
        .args(["-u", "-d", &format!("@{}", ms / 1_000), "+%a, %d %b %Y %H:%M:%S GMT"])
        .env("LC_ALL", "C")
        .output();
    String::from_utf8(out.expect("date").stdout).expect("text").trim().to_owned()
}

/// A server that answers everything with a `Date`, until this process ends: its address.
fn says(date: impl Fn() -> String + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let date = date();
            let _ = write!(
                stream,
                "HTTP/1.1 404 Not Found\r\nDate: {date}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            );
        }
    });
    url
}

/// A configuration in a folder whose SQS, of which nothing is read and to which nothing is sent, is at this address: a clock outside.
fn with_clock_outside(folder: &Path, url: &str) -> [&'static str; 2] {
    let config = format!("apiVersion: forebay/v1\nkind: Config\nsqs:\n  - region: us-east-1\n    endpoint: {url}\n");
    std::fs::write(folder.join("outside.yaml"), config).expect("writes");
    ["--config", "outside.yaml"]
}

#[test]
fn a_clock_outside_confirms_a_time_or_does_not() {
    use forebay::clock::{OutsideClock, ask, judge};
    use forebay::driver::TimeConsent;
    for days in JUMPS {
        // What it says is the host's time, that of the last record, or something between them.
        for (says_days, confirms) in [(0, true), (-days, false), (-days * 8 / 10, false)] {
            let last = days_from_now(-days);
            let clock = OutsideClock::over_http("ec2:test".to_owned(), says(move || date(days_from_now(says_days))));
            let judged = judge(last, now(), || ask(&clock).into_iter().collect(), TimeConsent::Ask);
            assert_eq!(judged.is_ok(), confirms, "{days}: {judged:?}");
            if let Err(error) = judged {
                assert!(error.to_string().contains("ec2:test says"), "{error}");
            }
        }
        let silent = OutsideClock::over_http("ec2:test".to_owned(), "http://127.0.0.1:9".to_owned());
        let judged = judge(days_from_now(-days), now(), || ask(&silent).into_iter().collect(), TimeConsent::Ask);
        assert!(judged.is_err_and(|error| error.to_string().contains("no clock outside answered")), "{days}");
    }
}

#[test]
fn a_start_a_year_or_ten_off_goes_on_where_a_clock_outside_agrees_and_is_refused_where_none_does() {
    let policy = root().join("policies/teams.yaml").display().to_string();
    for days in JUMPS {
        let last = days_from_now(-days);
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path().join("data");
        journal_of(folder.path(), last);
        let before = contents(&data);
        let start = |url: &str| {
            let [config, file] = with_clock_outside(folder.path(), url);
            Started::with(&data, &[config, file, "--policy", policy.as_str()], &[])
        };
        // One that goes with the journal's last record, and one that does not answer.
        for (url, words) in
            [(says(move || date(last)), "sqs says"), ("http://127.0.0.1:9".to_owned(), "no clock outside answered")]
        {
            is_refused(start(&url), words, &format!("{days} days"));
            assert!(contents(&data) == before, "{days} days: a refused start changed a file");
        }
        let started = start(&says(|| date(now()))).unwrap_or_else(|refusal| panic!("{days} days: {}", refusal.said));
        let begun = Instant::now();
        assert_eq!(post(&started.url, &[event("job")]).len(), 1);
        assert!(begun.elapsed() < AT_ONCE, "{days} days: {:?}", begun.elapsed());
        started.stop();
        nobody_accepted_a_time(folder.path());
    }
}

/// A start ended with 2, named what it knows of the time, and the way out.
fn is_refused(start: Result<Started, Refusal>, words: &str, case: &str) {
    let Err(Refusal { code, said }) = start else { panic!("{case}: it took a time that nothing confirms") };
    assert_eq!(code, 2, "{case}: {said}");
    assert!(said.contains(words) && said.contains("--accept-time"), "{case}: {said}");
}

fn nobody_accepted_a_time(folder: &Path) {
    let verified = run(folder, &["journal", "verify", "data"]);
    assert!(verified.code == 0 && !verified.out.contains("time accepted"), "{verified:?}");
}

#[test]
fn a_step_of_a_year_or_ten_inside_a_run_moves_no_time_and_is_told() {
    let clock = SteppedClock::build();
    for outside in [None, Some(says(|| date(now())))] {
        clock.step(0);
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path().join("data");
        let config = outside.as_deref().map(|url| with_clock_outside(folder.path(), url));
        let config: Vec<&str> = config.into_iter().flatten().collect();
        let server =
            Server::start_with(folder.path(), &[&["--data", "data"], &config[..]].concat(), &clock.variables());
        submit(&server, "before", JOBS);
        for (nth, days) in JUMPS.into_iter().enumerate() {
            clock.step(days * DAY_S);
            goes_on_at_once(&server, &format!("after-{nth}"));
            until("the step is told", PATIENCE, || is_told(&server, nth, days));
        }
        time_was_not_moved(&server, JOBS * (JUMPS.len() + 1));
        server.kill();
        // A start takes the host's clock, which is to be confirmed: only the true one is.
        let words = if outside.is_some() { "sqs says" } else { "no clock outside answered" };
        let before = contents(&data);
        for days in JUMPS {
            clock.step(days * DAY_S);
            is_refused(Started::with(&data, &config, &clock.variables()), words, &format!("{days} days"));
            assert!(contents(&data) == before, "{days} days: a refused start changed a file");
        }
        clock.step(0);
        let again = Started::with(&data, &config, &clock.variables());
        let again = again.unwrap_or_else(|refusal| panic!("the clock is set right again: {}", refusal.said));
        assert_eq!(post(&again.url, &[event("again")]).len(), 1);
        again.stop();
        nobody_accepted_a_time(folder.path());
    }
}

/// Jobs are taken, and what goes by time is answered.
fn goes_on_at_once(server: &Server, name: &str) {
    let begun = Instant::now();
    assert_eq!(submit(server, name, JOBS).len(), JOBS);
    for path in ["/v1/jobs", "/v1/summary", "/v1/queues", "/v1/nodes", "/v1/state", "/metrics", "/", "/money"] {
        let (status, text) = server.send("GET", path, &[], b"");
        assert_eq!(status, 200, "{name}: {path}: {text}");
    }
    assert!(begun.elapsed() < AT_ONCE, "{name}: {:?}", begun.elapsed());
}

/// The log warns of each step with what helps, and the figure says how far the host's clock is ahead now.
fn is_told(server: &Server, steps_before: usize, days: i64) -> Result<(), String> {
    let log = server.log();
    let told: Vec<&str> = log.lines().filter(|line| line.contains("the wall clock was stepped")).collect();
    let helps = match days > 0 {
        true => "restart the controller to take the host's time",
        false => "the host's clock is behind it: set that clock",
    };
    if told.len() <= steps_before || !told.last().is_some_and(|line| line.contains(helps)) {
        return Err(format!("{days} days: no warning with `{helps}` in: {log}"));
    }
    let (_, metrics) = server.send("GET", "/metrics", &[], b"");
    let offset = metrics.lines().find_map(|line| line.strip_prefix("forebay_clock_offset_seconds "));
    let offset: f64 = offset.and_then(|text| text.trim().parse().ok()).ok_or("no offset")?;
    let is_near = (offset - (days * DAY_S) as f64).abs() < 300.0;
    if is_near { Ok(()) } else { Err(format!("{days} days: an offset of {offset} s")) }
}

/// Each job has a status, all of them are of within an hour of now and in order, and no job came to an end by the time that was skipped.
fn time_was_not_moved(server: &Server, jobs: usize) {
    let mut statuses: Vec<Value> = Vec::new();
    until("each job has a status", PATIENCE, || {
        let (status, text) = server.send("GET", "/v1/status?after=0&follow=false", &[], b"");
        assert_eq!(status, 200, "{text}");
        let lines = text.lines().filter(|line| !line.is_empty());
        statuses = lines.map(|line| serde_json::from_str(line).expect("an event")).collect();
        if statuses.len() >= jobs { Ok(()) } else { Err(format!("{} of {jobs}", statuses.len())) }
    });
    let times = statuses.iter().map(|status| {
        let time: jiff::Timestamp = status["time"].as_str().and_then(|text| text.parse().ok()).expect("a time");
        u64::try_from(time.as_millisecond()).expect("after 1970")
    });
    let times: Vec<u64> = times.collect();
    assert!(times.is_sorted(), "{times:?}");
    assert!(times.iter().all(|at| at.abs_diff(now()) < 3_600_000), "{times:?}");
    let (_, summary) = server.get("/v1/summary");
    let over = ["completed", "failed", "cancelled", "rejected"].map(|key| summary[key].as_u64());
    assert_eq!((summary["jobs"].as_u64(), over), (Some(jobs as u64), [Some(0); 4]), "{summary}");
}

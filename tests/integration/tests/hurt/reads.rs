//! Reads that ask for much: none holds the driver, fills the memory, or ends in silence; and none comes from another site's page.
//!
//! ```text
//! few jobs wait: CPU of each page -> all wait: the same pages, rows that lists look at -> submissions at a pace, alone and beside each read
//! ```

use crate::wire::{LONGEST_HOLD_S, cpu_ticks, forget_peak, longest_hold, p99, peak_mib, resident_mib, timed};
use crate::{full, many};
use forebay_integration::teams::{ask, ask_json, prepared, start, submission, submit, write};
use forebay_integration::{Server, until};
use serde_json::Value;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A policy under which nothing starts: there is no quota.
const NOTHING_STARTS: &str = "apiVersion: forebay/v1
kind: Policy
metadata: {name: hurt}
limits: {nodes: 1, spend: 1 USD/h}
tiers:
  normal: {priority: 500, buys: on-demand}
queues:
  a: {tier: normal, quota: {default: {gpus: 1}}, submitters: [team-a]}
  b: {tier: normal, quota: {default: {gpus: 1}}, submitters: [team-b, team-b2]}
  open: {tier: normal, quota: {default: {gpus: 1}}}
pools:
  default: {instanceTypes: any, drain: auto}
";

/// Every read, each in somebody's name.
const READS: [(&str, &str); 15] = [
    ("ops", "/v1/jobs?phase=failed"),
    ("ops", "/v1/jobs?phase=queued&limit=10000"),
    ("ops", "/v1/jobs?queue=b"),
    ("team-b", "/v1/jobs"),
    ("ops", "/v1/jobs?open=false"),
    ("team-a", "/v1/summary"),
    ("ops", "/v1/summary"),
    ("ops", "/v1/queues"),
    ("ops", "/v1/nodes"),
    ("ops", "/v1/jobs/nobody-has-this"),
    ("ops", "/"),
    ("ops", "/money"),
    ("team-a", "/money"),
    ("scraper", "/metrics"),
    ("ops", "/v1/state"),
];

/// Reads whose answers are as long whether few jobs wait or many.
const PAGES: [(&str, &str); 11] = [
    ("ops", "/v1/jobs?limit=100"),
    ("ops", "/v1/jobs?phase=queued&limit=100"),
    ("ops", "/v1/jobs?phase=failed"),
    ("team-a", "/v1/jobs?limit=100"),
    ("ops", "/v1/jobs/waits-7"),
    ("ops", "/v1/jobs/nobody-has-this"),
    ("ops", "/v1/summary"),
    ("ops", "/v1/queues"),
    ("ops", "/"),
    ("ops", "/money"),
    ("scraper", "/metrics"),
];

/// Rows that a list looks at for one answer at most, whatever it looks for (docs/API.md, "Budgets").
const MOST_ROWS: usize = 65_536;

/// Jobs of the crowd that run at most: whoever asks for those that wait has them passed over.
const RUNNING: usize = 1;

/// Lists, and how many rows each may look at for one answer: its page where every row fits, else the budget.
const LISTS: [(&str, &str, usize); 7] = [
    ("ops", "/v1/jobs?limit=100", 100),
    ("team-a", "/v1/jobs?limit=100", 100),
    ("ops", "/v1/jobs?phase=queued&limit=100", 100),
    ("ops", "/v1/jobs?phase=queued&limit=10000", 10_000),
    ("ops", "/v1/jobs?queue=b", MOST_ROWS),
    ("team-b", "/v1/jobs", MOST_ROWS),
    ("ops", "/v1/jobs?open=false", MOST_ROWS),
];

/// How many times the CPU of a page among few jobs it may take among a hundred times as many. Going through all of them would be far more.
const MOST_DEARER: u64 = 4;

/// CPU below this, in ticks over all rounds of a page, is too little to be compared.
const FEWEST_TICKS: u64 = 10;

/// Somebody who submits at a pace sends what is due this often, or as soon as the last was answered.
const TICK: Duration = Duration::from_millis(100);

/// Submissions of one request at most, where many are due.
const MOST_AT_ONCE: usize = 1_000;

/// A server on which so many jobs of team-a wait.
fn crowded(folder: &Path, jobs: usize) -> Server {
    write(folder, "policy.yaml", NOTHING_STARTS);
    let server = start(folder, &[]);
    crowd(&server, 0..jobs);
    server
}

/// These jobs of team-a wait too.
fn crowd(server: &Server, jobs: Range<usize>) {
    for first in jobs.clone().step_by(5_000) {
        let some = (first..jobs.end.min(first + 5_000)).map(|n| submission(&format!("waits-{n}"), "a", 36_000));
        let body = Value::Array(some.collect());
        let (status, text) = ask(server, "team-a", "POST", "/v1/events", Some(&body));
        assert_eq!(status, 202, "{}", text.chars().take(300).collect::<String>());
    }
}

fn metrics(server: &Server) -> String {
    ask(server, "scraper", "GET", "/metrics", None).1
}

/// A read that is answered: the length of its answer.
fn read(server: &Server, name: &str, path: &str) -> usize {
    let (status, text) = ask(server, name, "GET", path, None);
    // The export before may still be on its way, and one is written at a time.
    let known = status == 404 && path.ends_with("this") || status == 429 && path == "/v1/state";
    assert!(status == 200 || known, "{name} {path}: {status} {}", text.len());
    text.len()
}

/// The number in a job's name.
fn number(name: &Value) -> Option<u64> {
    name.as_str()?.strip_prefix("job-")?.parse().ok()
}

#[test]
fn no_read_holds_the_driver_however_many_jobs_wait() {
    let folder = prepared();
    let (few, jobs) = (many(1_000, 2_000), many(6_000, 200_000));
    let server = crowded(folder.path(), few);
    let among_few = cpu_of_pages(&server);
    crowd(&server, few..jobs);
    pages_cost_what_they_hold(&among_few, &cpu_of_pages(&server), jobs);
    lists_look_at_their_page_or_their_budget(&server, jobs);
    reads_leave_a_submitter_its_pace(&server, jobs);
    let held = longest_hold(&metrics(&server), "query");
    println!("{jobs} wait: the longest question computed {held:.3} s");
    assert!(held <= LONGEST_HOLD_S, "a question held the driver for {held} s");
}

/// The CPU time of the server for some rounds of each page, in ticks: the least of three times, for it does other things as well.
fn cpu_of_pages(server: &Server) -> Vec<u64> {
    let once = |name: &str, path: &str| {
        let before = cpu_ticks(server);
        for _ in 0..many(5, 50) {
            read(server, name, path);
        }
        cpu_ticks(server) - before
    };
    let least = |(name, path): (&str, &str)| (0..3).map(|_| once(name, path)).min().unwrap_or_default();
    PAGES.into_iter().map(least).collect()
}

/// A page costs what it holds, and not what waits: printed, and in the full form, where that is a hundred times as much, bounded.
fn pages_cost_what_they_hold(among_few: &[u64], among_all: &[u64], jobs: usize) {
    for (((name, path), few), all) in PAGES.into_iter().zip(among_few).zip(among_all) {
        println!("{name} {path}: {few} ticks of CPU among few jobs, {all} among {jobs}");
        let most = MOST_DEARER * FEWEST_TICKS.max(*few);
        assert!(!full() || *all <= most, "{name} {path}: {few} ticks among few jobs, {all} among {jobs}");
    }
}

/// How far a list looked is where it says to go on: jobs are numbered in their order, without a gap. What a budget ended says so.
fn lists_look_at_their_page_or_their_budget(server: &Server, jobs: usize) {
    let (_, one) = ask_json(server, "ops", "GET", "/v1/jobs?limit=1", None);
    let first = number(&one["next"]).expect("there are more");
    for (name, path, most) in LISTS {
        let (status, page) = ask_json(server, name, "GET", path, None);
        assert_eq!(status, 200, "{name} {path}: {page}");
        let rows = |next: u64| usize::try_from(next + 1 - first).expect("as many as there are jobs");
        let looked = number(&page["next"]).map_or(jobs, rows);
        println!("{name} {path}: {looked} rows of {jobs}, {most} at most, cut: {}", page["cut"]);
        assert!(looked <= most + RUNNING, "{name} {path}: {looked} rows, and {most} at most");
        let is_told = matches!(page["cut"].as_str(), Some("rows" | "time"));
        assert!(is_told == (most == MOST_ROWS && jobs > MOST_ROWS), "{name} {path}: cut: {}", page["cut"]);
    }
    let (_, own) = ask_json(server, "team-a", "GET", "/v1/summary", None);
    assert_eq!(own["cut"].is_string(), jobs > MOST_ROWS, "{own}");
}

/// Somebody submits at a pace. Beside each read, asked again and again, at least half of it is left, by the time that the last submission was
/// accepted which was due when the reads ended.
fn reads_leave_a_submitter_its_pace(server: &Server, jobs: usize) {
    let window = Duration::from_millis(if full() { 3_000 } else { 500 });
    let wait = || {
        let end = Instant::now() + window;
        while Instant::now() < end {
            std::thread::park_timeout(end.saturating_duration_since(Instant::now()));
        }
    };
    let Pace { accepted, within, posts } = paced(server, "alone", wait);
    let alone = a_second(accepted, within);
    println!("{jobs} wait: {alone:.0} submissions a second without reads, a post takes {:?} (p99)", p99(posts));
    let mut all = Vec::new();
    for (nth, (name, path)) in READS.into_iter().enumerate() {
        let (mut reads, mut bytes, begun) = (0_u32, 0, Instant::now());
        let asked = || {
            while reads == 0 || begun.elapsed() < window {
                bytes = bytes.max(read(server, name, path));
                reads += 1;
            }
        };
        let Pace { accepted, within, posts } = paced(server, &format!("beside-{nth}"), asked);
        let beside = a_second(accepted, within);
        println!("{name} {path}: {reads} reads of {bytes} bytes, {beside:.0} submissions a second beside them");
        assert!(
            2.0 * beside >= alone,
            "{name} {path}: {accepted} submissions in {within:?} beside it, and {alone:.0} a second without"
        );
        all.extend(posts);
    }
    println!("{jobs} wait: a post takes {:?} (p99) beside reads", p99(all));
}

/// What became of submissions at a pace. All that were due were accepted.
struct Pace {
    accepted: usize,
    /// Until the last of them was accepted.
    within: Duration,
    /// How long each request took.
    posts: Vec<Duration>,
}

fn a_second(accepted: usize, within: Duration) -> f64 {
    accepted as f64 / within.as_secs_f64()
}

/// Says that something is over, also where it failed.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Submits at a pace for as long as something else takes, and then what is still due.
fn paced(server: &Server, what: &str, meanwhile: impl FnOnce()) -> Pace {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let submitter = scope.spawn(|| submit_at_pace(server, what, &over));
        let ends = Ends(&over);
        meanwhile();
        drop(ends);
        submitter.join().expect("every submission is accepted")
    })
}

/// So many submissions are due after so long: a hundred a second in the small form, a thousand in the full one.
fn due(after: Duration) -> usize {
    usize::try_from(after.as_millis()).expect("some minutes") * many(100, 1_000) / 1_000
}

fn submit_at_pace(server: &Server, what: &str, over: &AtomicBool) -> Pace {
    let (begun, mut last) = (Instant::now(), None);
    let (mut accepted, mut posts) = (0, Vec::new());
    loop {
        if last.is_none() && over.load(Ordering::Acquire) {
            last = Some(due(begun.elapsed()));
        }
        let wanted = last.unwrap_or_else(|| due(begun.elapsed()));
        if accepted < wanted {
            let some = accepted..wanted.min(accepted + MOST_AT_ONCE);
            accepted = some.end;
            posts.push(posted(server, some.map(|n| format!("{what}-{n}"))));
        } else if last.is_some() {
            return Pace { accepted, within: begun.elapsed(), posts };
        } else {
            std::thread::park_timeout(TICK);
        }
    }
}

/// One request with these submissions, all of which are accepted: how long it took.
fn posted(server: &Server, subjects: impl Iterator<Item = String>) -> Duration {
    let events: Vec<Value> = subjects.map(|subject| submission(&subject, "b", 36_000)).collect();
    let (count, body) = (events.len(), Value::Array(events));
    let (took, (status, taken)) = timed(|| ask_json(server, "team-b", "POST", "/v1/events", Some(&body)));
    assert!(status == 202 && taken["accepted"].as_array().map(Vec::len) == Some(count), "{count}: {status} {taken}");
    took
}

#[test]
fn every_page_of_a_list_is_there_once_and_in_order() {
    let folder = prepared();
    let jobs = many(3_000, 100_000);
    let server = crowded(folder.path(), jobs);
    submit(&server, "team-b", &submission("of-b", "b", 36_000));
    for (name, filter, expected) in
        [("team-a", "", jobs), ("team-b", "", 1), ("ops", "&queue=b", 1), ("ops", "&phase=failed", 0)]
    {
        let (mut after, mut seen, mut pages) = (String::new(), Vec::new(), 0);
        loop {
            let path = format!("/v1/jobs?limit=700{filter}{after}");
            let (status, page) = ask_json(&server, name, "GET", &path, None);
            assert_eq!(status, 200, "{page}");
            pages += 1;
            let listed = page["jobs"].as_array().expect("jobs").iter();
            let numbers = listed.map(|job| number(&job["job"]).expect("a number"));
            seen.extend(numbers);
            match page["next"].as_str() {
                Some(next) => after = format!("&after={next}"),
                None => break,
            }
            assert!(pages < 10_000, "it never ends: {path}");
        }
        assert_eq!(seen.len(), expected, "{name} {filter}");
        assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "{name} {filter}");
    }
}

#[test]
fn exports_are_written_one_at_a_time_in_little_memory() {
    let folder = prepared();
    let server = crowded(folder.path(), many(4_000, 200_000));
    let before = resident_mib(&server);
    forget_peak(&server);
    let answers: Vec<(u16, String)> = std::thread::scope(|scope| {
        let asked: Vec<_> = (0..12).map(|_| scope.spawn(|| ask(&server, "ops", "GET", "/v1/state", None))).collect();
        asked.into_iter().map(|asked| asked.join().expect("an answer")).collect()
    });
    let peak = peak_mib(&server);
    let whole = answers.iter().filter(|(status, _)| *status == 200);
    for (_, text) in whole.clone() {
        let document: Value = serde_json::from_str(text).expect("the whole document");
        assert!(document["snapshot"]["bytes"].is_string());
    }
    assert!(whole.count() >= 1, "one is written");
    assert!(answers.iter().all(|(status, _)| matches!(status, 200 | 429)));
    println!("12 exports at once: {before} MiB before, {peak} MiB at their peak");
    assert!(peak <= before + 512, "{before} MiB before, {peak} MiB at their peak");
    until("an export after the others", Duration::from_secs(60), || {
        let (status, _) = ask(&server, "ops", "GET", "/v1/state", None);
        if status == 200 { Ok(()) } else { Err(format!("{status}")) }
    });
}

#[test]
fn an_exported_state_is_planned_on() {
    let folder = prepared();
    let server = crowded(folder.path(), 50);
    let (status, text) = ask(&server, "ops", "GET", "/v1/state", None);
    assert_eq!(status, 200);
    write(folder.path(), "state.json", &text);
    let planned = forebay_integration::run(
        folder.path(),
        &["plan", "--policy", "policy.yaml", "--state", "state.json", "--json"],
    );
    assert_eq!(planned.code, 0, "{planned:?}");
}

#[test]
fn pages_of_other_sites_get_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(folder.path(), &["--data", "d"]);
    for (site, mode, dest) in
        [("cross-site", "no-cors", "script"), ("cross-site", "cors", "empty"), ("same-site", "no-cors", "image")]
    {
        for path in ["/v1/jobs", "/v1/state", "/v1/nodes", "/metrics", "/v1/status?follow=false", "/", "/money"] {
            let headers = [("sec-fetch-site", site), ("sec-fetch-mode", mode), ("sec-fetch-dest", dest)];
            let (status, text) = server.send("GET", path, &headers, b"");
            assert!(status == 403 && text.contains("ForeignOrigin"), "{site} {path}: {status} {text}");
        }
    }
    let link = [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
    for page in ["/", "/money"] {
        assert_eq!(server.send("GET", page, &link, b"").0, 200, "a link to a page may stand anywhere");
    }
    assert_eq!(server.send("GET", "/v1/jobs", &link, b"").0, 403, "and a link to data may not");
}

#[test]
fn statuses_go_on_from_the_segments_after_a_restart() {
    let folder = prepared();
    let first = start(folder.path(), &[]);
    for n in 0..40 {
        submit(&first, "team-a", &submission(&format!("a-{n}"), "a", 36_000));
        submit(&first, "team-b", &submission(&format!("b-{n}"), "b", 36_000));
    }
    let all = |server: &Server, name: &str, after: u64| -> Vec<Value> {
        let (status, text) = ask(server, name, "GET", &format!("/v1/status?after={after}&follow=false"), None);
        assert_eq!(status, 200, "{text}");
        text.lines().filter(|line| !line.is_empty()).map(|line| serde_json::from_str(line).expect("an event")).collect()
    };
    let before = all(&first, "ops", 0);
    let own = all(&first, "team-a", 0);
    first.kill();
    let second = start(folder.path(), &[]);
    let number = |event: &Value| event["data"]["number"].as_u64().expect("a number");
    let again = all(&second, "ops", 0);
    assert_eq!(again[..before.len()], before[..], "nothing is missing and nothing has changed");
    assert!(again.iter().map(number).eq(1..=again.len() as u64), "without a gap");
    let later = all(&second, "ops", 57);
    assert_eq!(number(&later[0]), 58);
    let own_again = all(&second, "team-a", 0);
    assert_eq!(own_again[..own.len()], own[..]);
    assert!(
        own_again.iter().all(|event| event["subject"].as_str().is_some_and(|s| s.starts_with("a-"))),
        "and no other's"
    );
}

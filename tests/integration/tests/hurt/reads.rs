//! Reads that ask for much: none holds the driver, fills the memory, or ends in silence; and none comes from another site's page.

use crate::many;
use crate::wire::{LONGEST_HOLD_S, forget_peak, longest_hold, p99, peak_mib, resident_mib, timed};
use forebay_integration::teams::{ask, ask_json, prepared, start, submission, submit, write};
use forebay_integration::{Server, until};
use serde_json::Value;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

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

/// A server on which so many jobs of team-a wait.
fn crowded(folder: &Path, jobs: usize) -> Server {
    write(folder, "policy.yaml", NOTHING_STARTS);
    let server = start(folder, &[]);
    for first in (0..jobs).step_by(5_000) {
        let some = (first..jobs.min(first + 5_000)).map(|n| submission(&format!("waits-{n}"), "a", 36_000));
        let body = Value::Array(some.collect());
        let (status, text) = ask(&server, "team-a", "POST", "/v1/events", Some(&body));
        assert_eq!(status, 202, "{}", text.chars().take(300).collect::<String>());
    }
    server
}

fn metrics(server: &Server) -> String {
    ask(server, "scraper", "GET", "/metrics", None).1
}

#[test]
fn no_read_holds_the_driver_however_many_jobs_wait() {
    let folder = prepared();
    let jobs = many(6_000, 200_000);
    let server = crowded(folder.path(), jobs);
    let reads = [
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
    let idle: Vec<Duration> = (0..many(50, 500)).map(|n| posted(&server, &format!("idle-{n}"))).collect();
    let over = AtomicBool::new(false);
    let beside = std::thread::scope(|scope| {
        let (over, server) = (&over, &server);
        let asking = scope.spawn(move || {
            for round in 0..many(2, 5) {
                for (name, path) in reads {
                    let (took, (status, text)) = timed(|| ask(server, name, "GET", path, None));
                    let known = status == 404 && path.ends_with("this");
                    assert!(status == 200 || known, "{name} {path}: {status} {}", text.len());
                    if round == 0 {
                        println!("{name} {path}: {took:?}, {} bytes", text.len());
                    }
                }
            }
            over.store(true, Ordering::Release);
        });
        let mut beside = Vec::new();
        while !over.load(Ordering::Acquire) {
            beside.push(posted(server, &format!("beside-{}", beside.len())));
        }
        asking.join().expect("every read is answered");
        beside
    });
    let held = longest_hold(&metrics(&server), "query");
    println!(
        "{jobs} wait: a post takes {:?} (p99, idle), {:?} beside reads; the longest question computed {held:.3} s",
        p99(idle),
        p99(beside)
    );
    assert!(held <= LONGEST_HOLD_S, "a question held the driver for {held} s");
}

fn posted(server: &Server, subject: &str) -> Duration {
    let (took, (status, text)) =
        timed(|| ask(server, "team-b", "POST", "/v1/events", Some(&submission(subject, "b", 36_000))));
    assert_eq!(status, 202, "{text}");
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
            let numbers = page["jobs"].as_array().expect("jobs").iter().map(|job| {
                job["job"].as_str().and_then(|job| job.strip_prefix("job-")?.parse::<u64>().ok()).expect("a number")
            });
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

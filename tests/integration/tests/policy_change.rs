//! A controller that is started again with another policy: what that makes impossible is held and told, in lists, reasons, statuses and
//! figures, and goes on when the first policy is back.

use forebay_integration::Server;
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

const WIDE: &str = "apiVersion: forebay/v1
kind: Policy
metadata: {name: wide}
limits: {nodes: 1, spend: 1000 USD/h}
tiers:
  normal: {priority: 500, buys: on-demand}
queues:
  vision: {tier: normal, quota: {big: {gpus: 16}}}
  search: {tier: normal}
pools:
  big: {instanceTypes: [g5.48xlarge]}
";

/// Until when a controller has made its first pass.
const LIMIT: Duration = Duration::from_secs(90);

fn job(subject: &str, queue: &str) -> Value {
    json!({ "type": "job.submitted", "subject": subject, "data": {
        "queue": queue,
        "run": { "template": "train" },
        "gang": { "workers": 1, "each": { "gpus": 8 } },
        "simulation": { "durationS": 3_600 },
    }})
}

/// The phases of the three jobs, with their reasons, when `wanted` is so.
fn when(server: &Server, wanted: impl Fn(&[(String, String)]) -> bool) -> Vec<(String, String)> {
    let end = Instant::now() + LIMIT;
    loop {
        let (_, seen) = server.get("/v1/jobs");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let of = |job: &Value| (text(&job["phase"]), text(&job["reason"]["code"]));
        let jobs: Vec<_> = seen["jobs"].as_array().expect("jobs").iter().map(of).collect();
        if wanted(&jobs) {
            return jobs;
        }
        assert!(Instant::now() < end, "{jobs:?}: {}", server.log());
        std::thread::park_timeout(Duration::from_millis(50));
    }
}

fn start(folder: &Path, policy: &str) -> Server {
    std::fs::write(folder.join("policy.yaml"), policy).expect("a policy");
    Server::start(folder, &["--policy", "policy.yaml", "--data", "data"])
}

#[test]
fn what_a_changed_policy_makes_impossible_is_held_and_told_and_goes_on_when_it_is_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = start(folder.path(), WIDE);
    for (subject, queue) in [("one", "vision"), ("two", "vision"), ("three", "search")] {
        let (status, answer) = server.post(&job(subject, queue));
        assert_eq!(status, 202, "{answer}");
    }
    server.kill();

    let narrow = WIDE.replace("gpus: 16", "gpus: 4").replace("  search: {tier: normal}\n", "");
    let server = start(folder.path(), &narrow);
    let jobs = when(&server, |jobs| jobs.iter().all(|(phase, _)| phase == "held"));
    let codes: Vec<&str> = jobs.iter().map(|(_, code)| code.as_str()).collect();
    assert_eq!(codes, ["ExceedsMaxQuota", "ExceedsMaxQuota", "UnknownQueue"]);
    let why = server.ask(folder.path(), &["why", "two"]);
    assert!(why.out.contains("asks 8 GPUs") && why.out.contains("is 4"), "{}", why.out);
    let last_of = |job: &str| {
        let (_, statuses) = server.send("GET", &format!("/v1/jobs/{job}/events?follow=false"), &[], &[]);
        let kinds: Vec<Value> = statuses.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        kinds.last().cloned().expect("a status")
    };
    let last = last_of("two");
    assert_eq!(last["data"]["reason"]["figures"], json!({"asked_gpus": 8, "most_gpus": 4}), "{last}");
    let last = last_of("three");
    assert_eq!((&last["type"], &last["data"]["reason"]["code"]), (&json!("status.held"), &json!("UnknownQueue")));
    let (_, figures) = server.send("GET", "/metrics", &[], &[]);
    assert!(figures.contains("forebay_jobs{state=\"held\"} 3"), "{figures}");
    // A job that comes under this policy is rejected at once.
    let (_, answer) = server.post(&job("four", "search"));
    assert!(answer.to_string().contains("UnknownQueue"), "{answer}");
    assert_eq!(answer["rejected"][0]["figures"]["queue"], "search", "{answer}");
    let (_, answer) = server.post(&job("five", "vision"));
    let figures = &answer["rejected"][0]["figures"];
    assert_eq!((&figures["asked_gpus"], &figures["limit_gpus"]), (&json!(8), &json!(4)), "{answer}");
    assert_eq!(figures["bound"], "quota of vision", "{answer}");
    server.kill();

    let server = start(folder.path(), WIDE);
    let jobs = when(&server, |jobs| jobs.iter().take(3).all(|(phase, _)| phase != "held"));
    assert_eq!(jobs.iter().filter(|(phase, _)| phase == "queued").count(), 2, "one node, one job: {jobs:?}");
}

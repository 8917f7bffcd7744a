//! `GET /metrics` from outside: a preempted job with its exemplar, hostile names, what a team sees, and that every line is OpenMetrics.

use forebay_integration::openmetrics::{Exposition, LabelSet, PART};
use forebay_integration::teams::{ask, fast, prepared, secret, start, submission, submit, write};
use forebay_integration::{Server, root, until};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// So long a job may take until it is stopped: many times what it takes at this speed.
const SOON: Duration = Duration::from_secs(60);

/// One node with one GPU, so that a critical job finds no room beside another one.
const POLICY: &str = "apiVersion: forebay/v1
kind: Policy
metadata: {name: one-node}
limits: {nodes: 1, spend: 100 USD/h}
billing: {labels: [team]}
tiers:
  critical: {priority: 1000, buys: on-demand}
  low: {priority: 0, buys: on-demand, stoppableBy: [critical]}
queues:
  urgent: {tier: critical, quota: {default: {gpus: 100}}}
  rest: {tier: low, quota: {default: {gpus: 100}}}
undeclaredQueues: {under: rest, quotaTogether: {default: {gpus: 100}}}
pools:
  default: {instanceTypes: [g6.xlarge], drain: auto}
";

/// A queue that nobody declared, whose name would end its label, its line and the whole answer.
const HOSTILE: &str = "wild\"} 1 # {job=\"job-0\"} 1 \\n# EOF \\ \u{1f980}";

fn metrics(server: &Server) -> Exposition {
    Exposition::scrape(server, None)
}

fn metrics_of(server: &Server, name: &str) -> Exposition {
    Exposition::scrape(server, Some(&secret(name)))
}

/// A server whose time goes 600 times as fast, under the policy with one node.
fn one_node(folder: &std::path::Path) -> Server {
    let first = json!({ "type": "job.submitted", "subject": "first", "time": "2026-11-02T00:00:00Z",
        "data": { "queue": "rest", "gang": { "each": { "gpus": 1 } }, "simulation": { "durationS": 1 } } });
    write(folder, "first.jsonl", &format!("{first}\n"));
    write(folder, "policy.yaml", POLICY);
    Server::start(folder, &["--replay", "first.jsonl", "--speed", "600", "--data", "d", "--policy", "policy.yaml"])
}

fn posted(server: &Server, event: &Value) -> String {
    let (status, taken) = server.post(event);
    assert_eq!(status, 202, "{taken}");
    taken["accepted"][0]["job"].as_str().expect("a job").to_owned()
}

#[test]
fn a_preempted_job_is_counted_under_its_queue_and_is_the_exemplar() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = one_node(folder.path());
    // It is of a queue that is looked at below.
    let first_is_over = || match metrics(&server).value("forebay_jobs_over", &[("outcome", "completed")]) {
        Some(1.0) => Ok(()),
        over => Err(format!("{over:?}")),
    };
    until("the first job is over", SOON, first_is_over);
    let job = posted(&server, &submission("victim", HOSTILE, 360_000));
    let runs = || match server.get("/v1/jobs/victim").1["phase"].as_str() {
        Some("running") => Ok(()),
        phase => Err(format!("{phase:?}")),
    };
    until("the victim runs", SOON, runs);
    let running = metrics(&server);
    let place = [("pool", "default"), ("capacity_type", "on-demand")];
    assert_eq!(running.value("forebay_jobs", &[("state", "running")]), Some(1.0));
    assert_eq!(running.value("forebay_gpus_running", &place), Some(1.0));
    assert_eq!(running.value("forebay_nodes", &[place[0], place[1], ("state", "ready")]), Some(1.0));
    assert_eq!(running.value("forebay_nodes", &[place[0], place[1], ("state", "draining")]), Some(0.0));
    assert!(running.value("forebay_spend_rate_usd_per_hour", &place).is_some_and(|rate| rate > 0.1), "{running:?}");
    assert!(running.value("forebay_spend_usd", &[place[1]]).is_some_and(|spend| spend > 0.0), "{running:?}");
    assert_eq!(running.families["forebay_preemptions"].points.len(), 0, "{running:?}");
    assert_eq!(running.value("forebay_queue_jobs", &[("queue", HOSTILE), ("state", "running")]), Some(1.0));
    assert_eq!(running.value("forebay_queue_jobs", &[("queue", "urgent"), ("state", "waiting")]), Some(0.0));
    queues_add_up(&running);
    let started = || match metrics(&server).value("forebay_start_wait_seconds", &[("tier", "low"), (PART, "count")]) {
        Some(2.0) => Ok(()),
        starts => Err(format!("{starts:?}")),
    };
    until("both first starts are counted", SOON, started);

    // Whoever waits is counted with the reason.
    posted(&server, &submission("waits", "rest", 60));
    let waits = || {
        let read = metrics(&server);
        let waiting = read.value("forebay_queue_jobs", &[("queue", "rest"), ("state", "waiting")]);
        let why = read.value("forebay_jobs_waiting", &[("reason", "Ceiling")]);
        let gpus = read.value("forebay_queue_gpus_waiting", &[("queue", "rest")]);
        let head =
            read.value("forebay_queue_head_wait_seconds", &[("queue", "rest")]).is_some_and(|waited| waited > 0.0);
        let all = (waiting, why, gpus, head);
        if all == (Some(1.0), Some(1.0), Some(1.0), true) { Ok(()) } else { Err(format!("{all:?}")) }
    };
    until("one waits for the ceiling", SOON, waits);

    posted(&server, &submission("query", "urgent", 60));
    let of = [("queue", HOSTILE), ("cause", "preempted")];
    let counted = || metrics(&server).point("forebay_preemptions", &of).map(drop).ok_or("not yet".to_owned());
    until("the preemption is counted", SOON, counted);
    let after = metrics(&server);
    let point = after.point("forebay_preemptions", &of).expect("it was there");
    let exemplar = LabelSet::from([("attempt".to_owned(), "1".to_owned()), ("job".to_owned(), job.clone())]);
    // A replay's times are the file's: the exemplar has none.
    assert_eq!((point.value, point.exemplar.as_ref()), (1.0, Some(&(exemplar, 1.0, None))));
    queues_add_up(&after);
    for family in ["forebay_waste_usd", "forebay_waste_gpu_seconds"] {
        for kind in ["boot", "lost"] {
            let wasted = after.value(family, &[("kind", kind), ("pool", "default")]);
            assert!(wasted.is_some_and(|wasted| wasted > 0.0), "{family} {kind}: {wasted:?}");
        }
    }
    assert_eq!(after.families["forebay_preemptions"].points.len(), 1, "{after:?}");
    // Who does not ask for OpenMetrics gets Prometheus' older text.
    let (_, older) = server.send("GET", "/metrics", &[], &[]);
    assert!(older.contains("\n# TYPE forebay_preemptions_total counter\nforebay_preemptions_total{queue="), "{older}");
    assert!(
        older.lines().any(|line| line.starts_with("forebay_preemptions_total{") && line.ends_with("} 1")),
        "{older}"
    );
    assert!(older.contains("# TYPE forebay_build_info gauge\n") && !older.contains("# EOF\n"), "{older}");
    let (_, statuses) = server.send("GET", "/v1/status?after=0&follow=false", &[], &[]);
    let events = statuses.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let said: Vec<Value> = events.filter(|event| event["type"] == "status.preempted").collect();
    assert_eq!((said.len(), &said[0]["data"]["job"], &said[0]["data"]["attempt"]), (1, &json!(job), &json!(1)));
}

/// What queues, tiers and values of labels have cost is what all nodes have, each point rounded by itself.
fn queues_add_up(read: &Exposition) {
    let all = |family: &str| read.families[family].points.iter().map(|point| (point.value * 1e6).round() as i64);
    let (spend, count) = (all("forebay_spend_usd").sum::<i64>(), all("forebay_spend_usd").count());
    for family in ["forebay_queue_spend_usd", "forebay_tier_spend_usd", "forebay_label_spend_usd"] {
        let (sum, lines) = (all(family).sum::<i64>(), all(family).count());
        assert!(sum > 0 && (sum - spend).unsigned_abs() as usize <= lines + count, "{family}: {sum} of {spend}");
    }
}

#[test]
fn before_anything_happens_every_figure_is_there_or_left_out() {
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path(), "policy.yaml", POLICY);
    let server = Server::start(folder.path(), &["--data", "d", "--policy", "policy.yaml"]);
    let bad = server.post(&json!({ "type": "job.danced", "subject": "x" }));
    assert_eq!(bad.0, 400, "{}", bad.1);
    let read = metrics(&server);
    assert_eq!(read.value("forebay_build", &[("version", env!("CARGO_PKG_VERSION"))]), Some(1.0));
    assert_eq!(read.value("forebay_receiving", &[]), Some(1.0));
    for state in ["waiting", "held", "booked", "starting", "running", "stopping", "serving"] {
        assert_eq!(read.value("forebay_jobs", &[("state", state)]), Some(0.0), "{state}");
    }
    for error in ["capacity", "throttled", "quota", "auth", "config", "server", "contested"] {
        assert_eq!(read.value("forebay_offerings_blocked", &[("error", error)]), Some(0.0), "{error}");
    }
    assert!(read.value("forebay_offerings", &[]).is_some_and(|count| count > 0.0));
    let rejected = [("source", "http"), ("code", "UnknownType")];
    assert_eq!(read.value("forebay_events_rejected", &rejected), Some(1.0));
    assert_eq!(read.value("forebay_purchases_open", &[("pool", "default"), ("capacity_type", "on-demand")]), Some(0.0));
    assert_eq!(
        read.families["forebay_source_backlog_messages"].points.len(),
        0,
        "nothing is read, so no backlog is known"
    );
}

#[test]
fn every_metric_is_in_the_docs_and_the_docs_have_no_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(folder.path(), &["--data", "d"]);
    let docs = std::fs::read_to_string(root().join("docs/METRICS.md")).expect("reads");
    let written: BTreeSet<&str> =
        docs.lines().filter_map(|line| line.strip_prefix("| `forebay_")?.split(['`', '{']).next()).collect();
    let read = metrics(&server);
    let suffix = |kind: &str| match kind {
        "counter" => "_total",
        "info" => "_info",
        _ => "",
    };
    let there: Vec<String> =
        read.families.iter().map(|(name, family)| format!("{name}{}", suffix(&family.kind))).collect();
    let there: BTreeSet<&str> = there.iter().filter_map(|name| name.strip_prefix("forebay_")).collect();
    assert_eq!(written, there);
}

#[test]
fn a_reader_sees_its_own_queues_and_no_sources_and_monitoring_everything() {
    let folder = prepared();
    let server = start(folder.path(), &[]);
    submit(&server, "team-a", &submission("x", "a", 36_000));
    let all = metrics_of(&server, "scraper");
    for family in [
        "forebay_jobs",
        "forebay_statuses",
        "forebay_source_up",
        "forebay_events",
        "forebay_nodes",
        "forebay_start_wait_seconds",
        "forebay_statuses_by_kind",
        "forebay_journal_commit_seconds",
    ] {
        let own = metrics_of(&server, "team-a");
        assert!(all.families.contains_key(family), "{family}");
        assert_eq!(own.families.contains_key(family), family == "forebay_nodes", "{family}");
        assert!(own.families.contains_key("forebay_start_target_jobs"), "{own:?}");
        assert!(
            !own.families.contains_key("forebay_queue_spend_usd") && !own.families.contains_key("forebay_jobs_waiting")
        );
        assert!(own.point("forebay_queue_jobs", &[("queue", "b"), ("state", "waiting")]).is_none(), "{own:?}");
    }
    assert_eq!(ask(&server, "pusher", "GET", "/metrics", None).0, 403);
}

/// The teams' queues on one node with four GPUs, and one queue before which all others make way.
const SHARED: &str = "apiVersion: forebay/v1
kind: Policy
metadata: {name: shared}
limits: {nodes: 1, spend: 100 USD/h}
tiers:
  critical: {priority: 1000, buys: on-demand}
  low: {priority: 0, buys: on-demand, stoppableBy: [critical]}
queues:
  a: {tier: low, quota: {default: {gpus: 100}}, submitters: [team-a]}
  open: {tier: low, quota: {default: {gpus: 100}}}
  boss: {tier: critical, quota: {default: {gpus: 100}}, submitters: [ops]}
pools:
  default: {instanceTypes: [g6.12xlarge], drain: auto}
";

#[test]
fn of_preemptions_each_sees_its_queues_and_the_jobs_that_it_may_see() {
    let folder = prepared();
    write(folder.path(), "policy.yaml", SHARED);
    let server = fast(folder.path());
    let jobs = ["a", "open"].map(|queue| submit(&server, "team-a", &submission(queue, queue, 360_000)));
    let run = || {
        let running = metrics_of(&server, "ops").value("forebay_jobs", &[("state", "running")]);
        if running == Some(2.0) { Ok(()) } else { Err(format!("{running:?}")) }
    };
    until("both run", SOON, run);
    let boss = json!({ "type": "job.submitted", "subject": "boss",
        "data": { "queue": "boss", "gang": { "each": { "gpus": 4 } }, "simulation": { "durationS": 360_000 } } });
    submit(&server, "ops", &boss);
    let shown = |name: &str| {
        let read = metrics_of(&server, name);
        let point = |queue: &str| {
            let point = read.point("forebay_preemptions", &[("queue", queue), ("cause", "preempted")])?;
            Some((point.value, point.exemplar.as_ref().map(|(labels, ..)| labels["job"].clone())))
        };
        ["a", "open"].map(point)
    };
    let [a, open] = jobs.map(|job| Some((1.0, Some(job))));
    let both = || if shown("ops") == [a.clone(), open.clone()] { Ok(()) } else { Err(format!("{:?}", shown("ops"))) };
    until("both are counted", SOON, both);
    assert_eq!(shown("scraper"), [a.clone(), open.clone()]);
    assert_eq!(shown("team-a"), [a, open.clone()]);
    assert_eq!(shown("team-b"), [None, open]);
    assert_eq!(shown("stranger"), [None, Some((1.0, None))], "the job is of another tenant");
}

//! What Prometheus makes of a controller: promtool reads the rules, their tests and a live scrape, and a Prometheus that scrapes at two instants
//! has between them what the bill has, by the queries of docs/BILLING.md.
//!
//! Never: a Prometheus beyond loopback, or a query that the page does not give.

use forebay_integration::teams::write;
use forebay_integration::{Server, root, until};
use forebay_parts::{Prometheus, Promtool};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

/// Many times what anything here takes on a busy machine.
const SOON: Duration = Duration::from_secs(120);

/// What a query may differ from the bill by, as a part of it.
const WITHIN: f64 = 0.001;

/// Counters and rows are rounded to a millionth of a dollar, each at both instants.
const ROUNDED: f64 = 4e-6;

/// Two queues that buy spot, and one that never does.
const POLICY: &str = "apiVersion: forebay/v1
kind: Policy
metadata: {name: prometheus}
limits: {nodes: 100, spend: 1000 USD/h}
billing: {labels: [team]}
tiers:
  urgent: {priority: 1000, buys: on-demand}
  normal: {priority: 500, buys: spot-then-on-demand}
queues:
  first: {tier: normal, quota: {default: {gpus: 1000}}}
  later: {tier: normal, quota: {default: {gpus: 1000}}}
  dear: {tier: urgent, quota: {default: {gpus: 1000}}}
pools:
  default: {instanceTypes: any, drain: auto}
";

/// A server whose time goes 600 times as fast.
fn served(folder: &Path) -> Server {
    write(folder, "first.jsonl", &format!("{}\n", job("begin", "dear", None, 1)));
    write(folder, "policy.yaml", POLICY);
    Server::start(folder, &["--replay", "first.jsonl", "--speed", "600", "--data", "d", "--policy", "policy.yaml"])
}

fn job(subject: &str, queue: &str, team: Option<&str>, duration_s: u32) -> Value {
    let mut event = json!({ "type": "job.submitted", "subject": subject, "time": "2026-11-02T00:00:00Z",
        "data": { "queue": queue, "gang": { "each": { "gpus": 1 } }, "simulation": { "durationS": duration_s } } });
    if let Some(team) = team {
        event["data"]["labels"] = json!({ "team": team });
    }
    event
}

/// Runs jobs, an hour each, until all is over and no node is left: nothing costs anything then.
fn run_all(server: &Server, jobs: &[(&str, &str, Option<&str>)]) {
    for (subject, queue, team) in jobs {
        let mut event = job(subject, queue, *team, 3_600);
        // It comes now, whatever the time of the replay is.
        event.as_object_mut().expect("an object").remove("time");
        let (status, taken) = server.post(&event);
        assert_eq!(status, 202, "{taken}");
    }
    until("all is over", SOON, || {
        let (_, summary) = server.get("/v1/summary");
        let (_, nodes) = server.get("/v1/nodes");
        let open = [&summary["queued"], &summary["running"]].map(|count| count.as_u64().unwrap_or(u64::MAX));
        if open == [0, 0] && nodes["nodes"] == json!([]) { Ok(()) } else { Err(format!("{summary} {nodes}")) }
    });
}

/// Dollars by name: the bill of what was bought on spot. What is nobody's is together, as metrics have it.
fn on_spot(server: &Server, by: &str) -> BTreeMap<String, f64> {
    let (status, bill) = server.get(&format!("/v1/cost?by={by}&of=capacity%3Dspot"));
    assert_eq!(status, 200, "{bill}");
    let mut rows = BTreeMap::new();
    for row in bill["rows"].as_array().expect("rows") {
        let name = match row["key"].as_str().expect("a key") {
            key if key.starts_with("(no ") => "(none)",
            key if key.starts_with('(') => "(nobody)",
            key => key,
        };
        *rows.entry(name.to_owned()).or_default() += row["cost_usd"].as_f64().expect("money");
    }
    rows
}

fn now_s() -> f64 {
    UNIX_EPOCH.elapsed().expect("after 1970").as_secs_f64()
}

/// The points of an answer by the value of a label, or all of them under an empty name.
fn asked(prometheus: &Prometheus, promql: &str, at_s: f64, label: &str) -> BTreeMap<String, f64> {
    let answer = prometheus.query(promql, at_s).unwrap_or_else(|e| panic!("{e}: {promql}: {}", prometheus.log_tail()));
    let answer: Value = serde_json::from_str(&answer).unwrap_or_else(|e| panic!("{e} in {answer}"));
    let point = |point: &Value| {
        let name = point["metric"][label].as_str().unwrap_or_default().to_owned();
        let value: Option<f64> = point["value"][1].as_str().and_then(|value| value.parse().ok());
        (name, value.unwrap_or_else(|| panic!("no value in {point}")))
    };
    answer["data"]["result"].as_array().expect("a vector").iter().map(point).collect()
}

/// Waits until what was scraped last is what the server has now. The instant.
fn scraped(prometheus: &Prometheus, server: &Server) -> f64 {
    let mut at_s = 0.0;
    until("it is scraped", SOON, || {
        at_s = now_s();
        let (_, summary) = server.get("/v1/summary");
        let cost = summary["cost_usd"].as_f64().expect("money");
        let seen = asked(prometheus, "sum(forebay_queue_spend_usd_total)", at_s, "").remove("");
        let is_same = seen.is_some_and(|seen| (seen - cost).abs() < 1e-4);
        if is_same { Ok(()) } else { Err(format!("{seen:?}, and it is {cost}: {}", prometheus.log_tail())) }
    });
    at_s
}

/// The queries that docs/BILLING.md gives, for what was spent since so many milliseconds before.
fn queries(since_ms: u64) -> Vec<String> {
    let page = std::fs::read_to_string(root().join("docs/BILLING.md")).expect("reads");
    let blocks = page.split("```promql\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default());
    let of_range = |block: &str| {
        assert!(block.contains("offset 7d"), "{block}");
        block.replace("offset 7d", &format!("offset {since_ms}ms"))
    };
    blocks.map(of_range).collect()
}

#[test]
fn what_was_spent_on_spot_between_two_instants_is_the_bill() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = served(folder.path());
    let port = server.url.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    let prometheus = Prometheus::start(&[port]).unwrap_or_else(|e| panic!("{e}"));
    run_all(&server, &[("a", "first", Some("vision")), ("b", "first", None), ("c", "dear", Some("vision"))]);
    let from_s = scraped(&prometheus, &server);
    let by = [("queue", "queue"), ("label:team", "value")];
    let before = by.map(|(by, _)| on_spot(&server, by));
    // A queue and a team that had spent nothing by then, and whose series were not there.
    run_all(
        &server,
        &[
            ("d", "first", Some("vision")),
            ("e", "later", Some("language")),
            ("f", "later", None),
            ("g", "dear", Some("language")),
        ],
    );
    let to_s = scraped(&prometheus, &server);
    let queries = queries(((to_s - from_s) * 1000.0).round() as u64);
    assert_eq!(queries.len(), by.len(), "the page has a query of queues and one of teams");
    for (((by, label), before), promql) in by.into_iter().zip(before).zip(&queries) {
        let after = on_spot(&server, by);
        let found = asked(&prometheus, promql, to_s, label);
        let mut spent = 0.0;
        for (name, usd) in &after {
            let more = usd - before.get(name).copied().unwrap_or_default();
            let queried = found.get(name).copied().unwrap_or_default();
            assert!(
                (queried - more).abs() <= more * WITHIN + ROUNDED,
                "by {by}: {name} spent {more} USD, and Prometheus has {queried}: {found:?}"
            );
            spent += more;
        }
        assert!(found.keys().all(|name| after.contains_key(name) || found[name] == 0.0), "by {by}: {found:?}");
        assert!(spent > 0.01, "by {by}: something was bought on spot: {after:?}");
        println!("by {by}: {found:?} of {spent} USD");
    }
    let [queues, teams] = by.map(|(by, _)| on_spot(&server, by));
    assert!(queues.contains_key("later") && !queues.contains_key("dear"), "{queues:?}");
    assert!(["vision", "language", "(none)"].iter().all(|team| teams.contains_key(*team)), "{teams:?}");
}

#[test]
fn promtool_finds_nothing_wrong_with_the_rules_their_tests_and_a_live_scrape() {
    let promtool = Promtool::install().unwrap_or_else(|e| panic!("{e}"));
    let rules = root().join("deploy/prometheus");
    let folder = tempfile::tempdir().expect("a folder");
    let server = served(folder.path());
    run_all(&server, &[("a", "first", Some("vision"))]);
    // As who does not ask for OpenMetrics gets it: promtool reads Prometheus' own text.
    let (status, text) = server.send("GET", "/metrics", &[], &[]);
    assert_eq!(status, 200, "{text}");
    assert!(text.contains("\nforebay_queue_spend_usd_total{queue=\"first\""), "{text}");
    for (args, input, prints) in [
        (&["check", "rules", "forebay.rules.yaml"][..], "", "SUCCESS"),
        (&["test", "rules", "forebay.test.yaml"], "", "SUCCESS"),
        (&["check", "metrics"], text.as_str(), ""),
    ] {
        let output = promtool.run(&rules, args, input).unwrap_or_else(|e| panic!("{e}"));
        let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        assert!(output.status.success() && out.contains(prints), "promtool {args:?}: {}\n{out}\n{err}", output.status);
        // What it finds in metrics it prints here, with success where it is no more than unusual.
        assert_eq!(err, "", "promtool {args:?}");
    }
    // It would find what is wrong.
    let wrong = promtool.run(&rules, &["check", "metrics"], "# TYPE forebay_x counter\nforebay_x 1\n");
    let wrong = wrong.unwrap_or_else(|e| panic!("{e}"));
    assert!(!wrong.status.success(), "{wrong:?}");
}

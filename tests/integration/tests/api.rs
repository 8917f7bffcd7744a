//! The HTTP API from outside: events in, jobs out, waiting, cancelling, why, the state, statuses, and what is refused.

use forebay_integration::teams::{ask, prepared, start, write};
use forebay_integration::{Server, root, run, segments, until};
use serde_json::{Value, json};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

type Headers = Vec<(&'static str, &'static str)>;

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

fn submission(subject: &str, gpus: u32, duration_s: u32) -> Value {
    json!({ "type": "job.submitted", "subject": subject,
        "data": { "queue": "vision/batch", "gang": { "each": { "gpus": gpus } }, "simulation": { "durationS": duration_s } } })
}

/// A server whose time goes 600 times as fast, so that a boot of two minutes takes a fifth of a second.
fn fast(folder: &Path) -> Server {
    let first = json!({ "type": "job.submitted", "subject": "first", "time": "2026-11-02T00:00:00Z",
        "data": { "queue": "vision/batch", "gang": { "each": { "gpus": 1 } }, "simulation": { "durationS": 1 } } });
    std::fs::write(folder.join("first.jsonl"), format!("{first}\n")).expect("writes");
    Server::start(folder, &["--replay", "first.jsonl", "--speed", "600", "--data", "d"])
}

#[test]
fn a_job_goes_the_whole_way_round() {
    let folder = folder();
    let server = fast(folder.path());
    let (status, taken) = server.post(&submission("train-1", 4, 60));
    assert_eq!(status, 202, "{taken}");
    let job = taken["accepted"][0]["job"].as_str().expect("a job").to_owned();
    assert!(
        job.starts_with("job-") && taken["accepted"][0]["subject"] == "train-1" && taken["accepted"][0]["new"] == true
    );
    let (_, again) = server.post(&submission("train-1", 4, 60));
    assert_eq!(
        (&again["accepted"][0]["job"], &again["accepted"][0]["new"]),
        (&json!(job), &json!(false)),
        "the same again is the same job"
    );
    let (status, conflict) = server.post(&submission("train-1", 8, 60));
    assert_eq!((status, &conflict["error"]["code"]), (400, &json!("Conflict")), "{conflict}");
    let (status, over) = server.get(&format!("/v1/jobs/{job}?waitFor=terminal&timeout=30s"));
    assert_eq!((status, &over["terminal"], &over["phase"]), (200, &json!(true), &json!("completed")), "{over}");
    let waited = server.ask(folder.path(), &["wait", "train-1", "--timeout", "30s"]);
    assert_eq!(waited.code, 0, "{waited:?}");
    let (_, statuses) = server.send("GET", "/v1/status?after=0&follow=false", &[], &[]);
    let events: Vec<Value> = statuses.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
    let numbers: Vec<u64> = events.iter().filter_map(|e| e["data"]["number"].as_u64()).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>(), "no gap, no double");
    let kinds: Vec<&str> =
        events.iter().filter(|e| e["subject"] == "train-1").filter_map(|e| e["type"].as_str()).collect();
    assert_eq!((kinds.first(), kinds.last()), (Some(&"status.queued"), Some(&"status.completed")), "{kinds:?}");
    let (_, stream) = server.send("GET", "/v1/status?after=1&follow=false", &[("accept", "text/event-stream")], &[]);
    assert!(stream.starts_with("id: 2\nevent: status."), "{stream}");
}

#[test]
fn jobs_are_explained_cancelled_and_planned_on() {
    let folder = folder();
    let server = Server::start(folder.path(), &["--data", "d"]);
    let (status, taken) = server.post(&json!([submission("long", 8, 36_000), submission("<b>&\"x\"</b>", 1, 36_000)]));
    assert_eq!((status, taken["accepted"].as_array().map(Vec::len)), (202, Some(2)), "{taken}");
    let (status, why) = server.get("/v1/jobs/long/why");
    assert_eq!((status, &why["reason"]["code"]), (200, &json!("AwaitingNodes")), "{why}");
    assert!(why["reason"]["eta_s"].is_number(), "{why}");
    // It is booked, so it has no place in its queue any more; that it starts after a boot is what playing on finds.
    let start = &why["start"];
    assert!(why["position"].is_null() && start["expected_in_s"].as_f64().is_some_and(|s| s > 1.0), "{why}");
    assert!(start["latest_in_s"].is_null() && start["unknown"].is_null(), "no start has come yet: {why}");
    let told = server.ask(folder.path(), &["why", "long"]);
    assert!(told.code == 0 && told.out.contains("expected to start in "), "{told:?}");
    let (status, page) = server.send("GET", "/", &[], &[]);
    assert!(status == 200 && page.contains("&lt;b&gt;&amp;&quot;x&quot;&lt;/b&gt;") && !page.contains("<b>"), "{page}");
    let early = server.ask(folder.path(), &["wait", "long", "--timeout", "1s"]);
    assert_eq!(early.code, 5, "{early:?}");
    let exported = server.ask(folder.path(), &["state", "export", "--out", "s.json"]);
    assert_eq!(exported.code, 0, "{exported:?}");
    let plan = run(folder.path(), &["plan", "--state", "s.json", "--json"]);
    assert_eq!(plan.code, 0, "{plan:?}");
    let pending = plan.json()["pending"].as_array().cloned().expect("pending");
    assert_eq!(pending.len(), 2, "{pending:?}");
    assert!(
        pending.iter().all(|p| p["reason"].as_str().is_some_and(|r| !r.is_empty()) && p["subject"].is_string()),
        "{pending:?}"
    );
    let (status, cancelled) = server.send("POST", "/v1/jobs/long/cancel", &[], &[]);
    assert_eq!(status, 202, "{cancelled}");
    let waited = server.ask(folder.path(), &["wait", "long", "--timeout", "30s"]);
    assert_eq!(waited.code, 4, "{waited:?}");
    let jobs = server.ask(folder.path(), &["jobs", "--all"]);
    assert!(jobs.code == 0 && jobs.out.contains("cancelled") && jobs.out.contains("AwaitingNodes"), "{jobs:?}");
    for list in ["queues", "nodes"] {
        let said = server.ask(folder.path(), &[list]);
        assert!(said.code == 0 && said.out.lines().count() > 1, "{said:?}");
    }
}

#[test]
fn what_was_answered_is_there_after_a_kill() {
    let folder = folder();
    let server = Server::start(folder.path(), &["--data", "d"]);
    let (status, _) = server.post(&submission("kept", 1, 36_000));
    assert_eq!(status, 202);
    drop(server);
    let server = Server::start(folder.path(), &["--data", "d"]);
    assert!(server.said.iter().any(|l| l.contains("recovered")), "{:?}", server.said);
    let (status, job) = server.get("/v1/jobs/kept");
    assert_eq!((status, &job["subject"]), (200, &json!("kept")), "{job}");
    let second = run(folder.path(), &["run", "--listen", "127.0.0.1:0", "--data", "d"]);
    assert_eq!((second.code, second.err.contains("in use by process")), (2, true), "{second:?}");
}

/// A policy that bills by one label.
fn billed_by(label: &str) -> String {
    format!(
        "apiVersion: forebay/v1\nkind: Policy\nmetadata: {{name: billed}}\nlimits: {{nodes: 20, spend: 1000 USD/h}}\n\
         billing: {{labels: [{label}]}}\ntiers:\n  normal: {{priority: 500, buys: on-demand}}\n\
         queues:\n  vision/batch: {{tier: normal, quota: {{big: {{gpus: 64}}}}}}\n\
         pools:\n  big: {{instanceTypes: [g5.xlarge]}}\n"
    )
}

/// The statuses that there are by now, as they are sent.
fn status_lines(server: &Server, path: &str) -> Vec<String> {
    let (status, text) = server.send("GET", path, &[], &[]);
    assert_eq!(status, 200, "{path}: {text}");
    text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// The last status is of that kind.
fn until_last(server: &Server, path: &str, kind: &str) {
    until(&format!("{kind} in {path}"), Duration::from_secs(60), || {
        let lines = status_lines(server, path);
        if lines.last().is_some_and(|line| line.contains(kind)) { Ok(()) } else { Err(format!("{lines:?}")) }
    });
}

#[test]
fn statuses_have_the_labels_that_their_job_is_billed_by_under_later_policies_and_after_kills() {
    let folder = folder();
    let start_billing_by = |label: &str| {
        write(folder.path(), "policy.yaml", &billed_by(label));
        Server::start(folder.path(), &["--policy", "policy.yaml", "--data", "d"])
    };
    let labelled = |labels: Value| {
        let mut event = submission("labelled", 1, 36_000);
        event["data"]["labels"] = labels;
        event
    };
    let (job, bare) = ("/v1/jobs/labelled/events?follow=false", "/v1/jobs/bare/events?follow=false");
    let all = "/v1/status?after=0&follow=false";
    let server = start_billing_by("team");
    let both = json!([labelled(json!({ "team": "vision", "x": "y" })), submission("bare", 1, 36_000)]);
    let (status, taken) = server.post(&both);
    assert_eq!((status, taken["accepted"].as_array().map(Vec::len)), (202, Some(2)), "{taken}");
    for path in [job, bare] {
        until_last(&server, path, "\"status.");
    }
    // What is refused of a subject has the labels that it came with itself.
    let (status, conflict) = server.post(&labelled(json!({ "team": "search" })));
    assert_eq!((status, &conflict["error"]["code"]), (400, &json!("Conflict")), "{conflict}");
    until("the refusal is there", Duration::from_secs(60), || {
        let lines = status_lines(&server, all);
        if lines.iter().any(|line| line.contains("\"status.rejected\"")) { Ok(()) } else { Err(format!("{lines:?}")) }
    });
    let before = status_lines(&server, job);
    server.kill();

    let server = start_billing_by("costCenter");
    let (status, cancelled) = server.send("POST", "/v1/jobs/labelled/cancel", &[], &[]);
    assert_eq!(status, 202, "{cancelled}");
    until_last(&server, job, "\"status.cancelled\"");
    let after = status_lines(&server, job);
    assert!(after.len() > before.len() && after.starts_with(&before), "{before:?} {after:?}");
    let unlabelled = status_lines(&server, bare);
    let sent = status_lines(&server, all);
    let mut refusals = 0;
    for line in &sent {
        let event: Value = serde_json::from_str(line).expect("JSON");
        let refused = event["type"] == "status.rejected";
        let expected = match event["subject"].as_str() {
            Some("labelled") if refused => Some(json!({ "team": "search" })),
            Some("labelled") => Some(json!({ "team": "vision" })),
            _ => None,
        };
        assert_eq!(event["data"].get("labels"), expected.as_ref(), "{line}");
        refusals += u32::from(refused);
    }
    assert_eq!(refusals, 1, "{sent:?}");
    assert!(after.iter().chain(&unlabelled).all(|line| sent.contains(line)), "{sent:?}");
    server.kill();

    // The log has the same bytes, and keeps them.
    let log = folder.path().join("d/status");
    let written = segments::lines(&log);
    assert!(written.starts_with(&sent), "{written:?} {sent:?}");
    let server = start_billing_by("costCenter");
    assert_eq!(status_lines(&server, job), after);
    let kept = segments::lines(&log);
    assert!(kept.starts_with(&written), "{kept:?} {written:?}");
}

#[test]
fn three_ways_to_write_an_event() {
    let folder = folder();
    let server = Server::start(folder.path(), &["--data", "d"]);
    let structured = json!({ "specversion": "1.0", "type": "job.submitted", "source": "//t", "id": "1", "subject": "structured",
        "data": { "gang": { "each": { "gpus": 1 } } } });
    let data = structured["data"].to_string();
    let one = structured.to_string();
    let batch =
        json!([structured, submission("bare", 1, 60), { "type": "job.submitted", "subject": "bad", "data": {} }])
            .to_string();
    let binary = [
        ("content-type", "application/json"),
        ("ce-specversion", "1.0"),
        ("ce-type", "job.submitted"),
        ("ce-source", "//t"),
        ("ce-id", "2"),
        ("ce-subject", "binary"),
    ];
    type Case<'a> = (&'a [(&'a str, &'a str)], &'a str, usize, usize);
    let cases: [Case; 3] = [
        (&[("content-type", "application/cloudevents+json; charset=utf-8")], &one, 1, 0),
        (&[("content-type", "application/cloudevents-batch+json")], &batch, 2, 1),
        (&binary, &data, 1, 0),
    ];
    for (headers, body, accepted, rejected) in cases {
        let (status, text) = server.send("POST", "/v1/events", headers, body.as_bytes());
        let taken: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(status, 202, "{text}");
        let count = |of: &str| taken[of].as_array().map_or(0, Vec::len);
        assert_eq!((count("accepted"), count("rejected")), (accepted, rejected), "{text}");
    }
    let (_, bad) = server.post(&json!({ "type": "job.submitted", "subject": "x", "data": { "gang": { "workers": 0, "each": { "gpus": 1 } } } }));
    assert!(bad["rejected"][0]["path"] == "data.gang.workers" && bad["error"]["remedy"].is_string(), "{bad}");
}

#[test]
fn what_cannot_be_taken_is_refused_in_one_shape() {
    let folder = folder();
    let server = Server::start(folder.path(), &["--data", "d"]);
    let json_type = ("content-type", "application/json");
    let large = vec![b' '; 5 * 1024 * 1024];
    let many = Value::from(vec![json!({}); 20_000]).to_string();
    let cases: [(&str, &str, Headers, &[u8], u16); 10] = [
        ("POST", "/v1/events", vec![json_type], b"{\"type\":", 400),
        ("POST", "/v1/events", vec![json_type], b"[]", 400),
        ("POST", "/v1/events", vec![json_type], &large, 413),
        ("POST", "/v1/events", vec![json_type], many.as_bytes(), 413),
        ("POST", "/v1/events", vec![("content-type", "text/plain")], b"{}", 415),
        ("POST", "/v1/events", vec![json_type, ("origin", "https://evil.example")], b"{}", 403),
        ("GET", "/v1/jobs/nobody", vec![], b"", 404),
        ("GET", "/v1/jobs?phase=sleeping", vec![], b"", 400),
        ("GET", "/v1/jobs/x?waitFor=terminal&timeout=soon", vec![], b"", 400),
        ("DELETE", "/v1/jobs", vec![], b"", 405),
    ];
    for (method, path, headers, body, wanted) in cases {
        let (status, text) = server.send(method, path, &headers, body);
        assert_eq!(status, wanted, "{method} {path}: {text}");
        let error: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{method} {path}: {e} in {text}"));
        for field in ["code", "message", "remedy"] {
            assert!(error["error"][field].as_str().is_some_and(|t| !t.is_empty()), "{method} {path}: {text}");
        }
    }
    assert_eq!(server.send("GET", "/healthz", &[], &[]).0, 200);
    assert_eq!(server.send("GET", "/readyz", &[], &[]).0, 200);
    let refused = server.ask(folder.path(), &["cancel", "nobody"]);
    assert_eq!(refused.code, 2, "{refused:?}");
}

/// The statuses and codes of errors that are written in a source file, such as `ApiError::new(409, "Over", ..)`.
fn errors_of(source: &str) -> Vec<(String, String)> {
    let dense: String = source.chars().filter(|c| !c.is_whitespace()).collect();
    let made = |mark: &str, status: Option<&str>| -> Vec<(String, String)> {
        let found = dense.split(mark).skip(1).filter_map(|rest| {
            let (status, rest) = status.map_or_else(|| rest.split_once(','), |status| Some((status, rest)))?;
            let code = rest.strip_prefix('"')?.split('"').next()?;
            Some((status.to_owned(), code.to_owned()))
        });
        found.collect()
    };
    let marks = [("ApiError::new(", None), ("ApiError::bad(", Some("400")), ("ApiError::not_found(", Some("404"))];
    marks.into_iter().flat_map(|(mark, status)| made(mark, status)).collect()
}

#[test]
fn every_code_of_an_error_is_documented_with_its_status() {
    let documented = std::fs::read_to_string(root().join("docs/API.md")).expect("reads");
    // Those that are written in another way.
    let others = [("401", "NoToken"), ("401", "UnknownToken"), ("400", "Empty"), ("400", "Unreadable")];
    let connections = [("414", "AddressTooLong"), ("431", "HeadTooLong"), ("429", "TooManyConnections")];
    let named = others.into_iter().chain(connections).map(|(status, code)| (status.to_owned(), code.to_owned()));
    let mut errors: Vec<(String, String)> = named.collect();
    let api = root().join("controller/src/api");
    for folder in [api.clone(), api.join("pages")] {
        for entry in std::fs::read_dir(folder).expect("lists") {
            let path = entry.expect("an entry").path();
            if path.extension().is_some_and(|extension| extension == "rs") {
                errors.extend(errors_of(&std::fs::read_to_string(&path).expect("reads")));
            }
        }
    }
    assert!(errors.len() > 80, "the sources are read: {errors:?}");
    for (status, code) in errors {
        let row = format!("| `{code}` | {status} |");
        assert!(documented.contains(&row), "docs/API.md, \"Codes of errors\", has no row `{row}`");
    }
}

/// More connections than a server has for all.
const MORE_CONNECTIONS: usize = 12_000;

/// Connections on which nothing is asked, until the server has none left for whoever comes from here, and some more.
fn all_connections(server: &Server) -> Vec<TcpStream> {
    let address = server.url.trim_start_matches("http://");
    let mut held = Vec::new();
    while held.len() < MORE_CONNECTIONS {
        held.extend((0..100).map(|_| TcpStream::connect(address).expect("connects")));
        let (status, text) = ask(server, "team-a", "GET", "/v1/queues", None);
        if status == 429 {
            assert!(text.contains("\"TooManyConnections\""), "{text}");
            held.extend((0..200).map(|_| TcpStream::connect(address).expect("connects")));
            return held;
        }
    }
    panic!("the server has still room beside {} connections", held.len())
}

#[test]
fn health_and_metrics_are_answered_where_somebody_else_has_all_connections_of_the_address_or_the_proxy() {
    for proxies in ["", "trustedProxies: [127.0.0.1]\n"] {
        let folder = prepared();
        let config = std::fs::read_to_string(folder.path().join("forebay.yaml")).expect("reads");
        write(folder.path(), "forebay.yaml", &(config + proxies));
        let server = start(folder.path(), &[]);
        let held = all_connections(&server);
        for (name, path) in [("nobody", "/healthz"), ("nobody", "/readyz"), ("scraper", "/metrics")] {
            let (status, text) = ask(&server, name, "GET", path, None);
            assert_eq!(status, 200, "{path} beside {} connections: {text}", held.len());
        }
        let (status, _) = ask(&server, "team-a", "GET", "/metrics", None);
        assert_eq!(status, 200, "a reader may see its part");
        assert_eq!(ask(&server, "pusher", "GET", "/metrics", None).0, 403, "roles are what they are");
        let (status, text) = ask(&server, "team-a", "GET", "/v1/jobs", None);
        assert!(status == 429 && text.contains("\"TooManyConnections\""), "{status} {text}");
        drop(held);
        until("others are served again", Duration::from_secs(60), || {
            let (status, text) = ask(&server, "team-a", "GET", "/v1/jobs", None);
            if status == 200 { Ok(()) } else { Err(text) }
        });
    }
}

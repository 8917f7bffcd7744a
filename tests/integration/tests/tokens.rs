//! Tokens, roles and tenants from outside: what a team may do, and that another team's jobs are not there for it on any path; what
//! is refused, with its code; and that no secret leaves the files that hold it.

use forebay_integration::{Server, root, run};
use serde_json::{Value, json};
use std::path::Path;
use tempfile::TempDir;

/// Queues of two teams, and one of everybody's.
const POLICY: &str = "apiVersion: forebay/v1
kind: Policy
metadata: {name: tokens}
limits: {nodes: 100, spend: 1000 USD/h}
tiers:
  normal: {priority: 500, buys: on-demand}
queues:
  a: {tier: normal, quota: {default: {gpus: 10000}}, submitters: [team-a]}
  b: {tier: normal, quota: {default: {gpus: 10000}}, submitters: [team-b, team-b2]}
  open: {tier: normal, quota: {default: {gpus: 10000}}}
pools:
  default: {instanceTypes: any, drain: auto}
";

/// Name, tenant, roles, whether from the environment.
const TOKENS: [(&str, &str, &str); 7] = [
    ("team-a", "default", "[submit, read]"),
    ("team-b", "default", "[submit, read]"),
    ("team-b2", "default", "[submit, read]"),
    ("stranger", "elsewhere", "[submit, read]"),
    ("pusher", "default", "[submit]"),
    ("watcher", "default", "[read]"),
    ("ops", "default", "[operate]"),
];

/// The token of a name. Nothing that Forebay would ever write by itself.
fn secret(name: &str) -> String {
    format!("{name}-0123456789-xyzzy")
}

fn write(folder: &Path, name: &str, text: &str) {
    std::fs::write(folder.join(name), text).expect("writes");
}

/// A folder with policy, tokens and configuration.
fn prepared() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path(), "policy.yaml", POLICY);
    let mut config = "apiVersion: forebay/v1\nkind: Config\npolicy: policy.yaml\ndata: d\ntokens:\n".to_owned();
    for (name, tenant, roles) in TOKENS {
        write(folder.path(), &format!("{name}.token"), &format!("{}\n", secret(name)));
        let from = if name == "ops" { "{env: OPS_TOKEN}".to_owned() } else { format!("{{file: {name}.token}}") };
        config.push_str(&format!("  - {{name: {name}, tenant: {tenant}, roles: {roles}, secret: {from}}}\n"));
    }
    write(folder.path(), "forebay.yaml", &config);
    folder
}

fn start(folder: &Path, more: &[&str]) -> Server {
    let args = [&["--config", "forebay.yaml"], more].concat();
    Server::start_with(folder, &args, &[("OPS_TOKEN", &secret("ops")), ("FOREBAY_LOG", "debug")])
}

/// A server whose time goes 600 times as fast.
fn fast(folder: &Path) -> Server {
    let first = json!({ "type": "job.submitted", "subject": "first", "time": "2026-11-02T00:00:00Z",
        "data": { "queue": "open", "gang": { "each": { "gpus": 1 } }, "simulation": { "durationS": 1 } } });
    write(folder, "first.jsonl", &format!("{first}\n"));
    start(folder, &["--replay", "first.jsonl", "--speed", "600"])
}

/// A request with somebody's token.
fn ask(server: &Server, name: &str, method: &str, path: &str, body: Option<&Value>) -> (u16, String) {
    let bearer = format!("Bearer {}", secret(name));
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let body = body.map(Value::to_string).unwrap_or_default();
    server.send(method, path, &headers, body.as_bytes())
}

fn ask_json(server: &Server, name: &str, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
    let (status, text) = ask(server, name, method, path, body);
    (status, serde_json::from_str(&text).unwrap_or_else(|e| panic!("{method} {path}: {e} in {text}")))
}

fn submission(subject: &str, queue: &str, duration_s: u32) -> Value {
    json!({ "type": "job.submitted", "subject": subject,
        "data": { "queue": queue, "gang": { "each": { "gpus": 1 } }, "simulation": { "durationS": duration_s } } })
}

/// Submits as somebody: the job's number.
fn submit(server: &Server, name: &str, event: &Value) -> String {
    let (status, taken) = ask_json(server, name, "POST", "/v1/events", Some(event));
    assert_eq!(status, 202, "{taken}");
    taken["accepted"][0]["job"].as_str().expect("a job").to_owned()
}

/// Every path of the API, and what it takes.
const PATHS: [(&str, &str); 14] = [
    ("GET", "/"),
    ("POST", "/v1/events"),
    ("GET", "/v1/jobs"),
    ("GET", "/v1/jobs/{id}"),
    ("POST", "/v1/jobs/{id}/cancel"),
    ("GET", "/v1/jobs/{id}/why"),
    ("GET", "/v1/jobs/{id}/events"),
    ("GET", "/v1/queues"),
    ("GET", "/v1/nodes"),
    ("GET", "/v1/state"),
    ("GET", "/v1/summary"),
    ("GET", "/v1/status"),
    ("GET", "/healthz"),
    ("GET", "/readyz"),
];

#[test]
fn the_paths_tried_here_are_all_there_are() {
    let source = std::fs::read_to_string(root().join("controller/src/api/mod.rs")).expect("reads");
    let routed: Vec<&str> = source.split(".route(\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert_eq!(routed, PATHS.map(|(_, path)| path), "a new path belongs into this file's list, and into its tests");
}

#[test]
fn every_path_asks_for_a_token_and_its_role() {
    let folder = prepared();
    let server = start(folder.path(), &[]);
    submit(&server, "team-a", &submission("x", "open", 36_000));
    for (method, path) in PATHS {
        let path = path.replace("{id}", "x")
            + if path.contains("status") || path.contains("/events") { "?follow=false" } else { "" };
        let open = path == "/healthz" || path == "/readyz";
        for sent in [None, Some("Bearer wrong-0123456789"), Some("Bearer"), Some("Basic eDp5")] {
            let headers: Vec<(&str, &str)> = sent.map(|s| ("authorization", s)).into_iter().collect();
            let (status, text) = server.send(method, &path, &headers, b"");
            assert_eq!(status, if open { 200 } else { 401 }, "{method} {path} {sent:?}: {text}");
            assert!(open || text.contains("--token-file"), "{text}");
        }
        let needs = match (method, path.as_str()) {
            (_, "/healthz" | "/readyz") => continue,
            ("POST", _) => "submit",
            (_, "/v1/state") => "operate",
            _ => "read",
        };
        for (name, roles) in [("pusher", "submit"), ("watcher", "read"), ("ops", needs)] {
            let body = (path.starts_with("/v1/events")).then(|| submission("y", "open", 36_000));
            let (status, text) = ask(&server, name, method, &path, body.as_ref());
            if roles == needs {
                assert!((200..300).contains(&status), "{name}: {method} {path}: {status} {text}");
            } else {
                assert_eq!(status, 403, "{name}: {method} {path}: {text}");
                assert!(text.contains("RoleMissing") && text.contains(&format!("`{needs}`")), "{text}");
            }
        }
    }
    let basic = [("authorization", "Basic dGVhbS1hOnRlYW0tYS0wMTIzNDU2Nzg5LXh5enp5")];
    assert_eq!(server.send("GET", "/", &basic, b"").0, 200, "the page takes the token as a password");
    assert_eq!(server.send("GET", "/v1/jobs", &basic, b"").0, 401);
}

#[test]
fn another_teams_jobs_are_not_there() {
    let folder = prepared();
    let server = start(folder.path(), &[]);
    let hidden = submit(&server, "team-b", &submission("b-model", "b", 36_000));
    let own = submit(&server, "team-a", &submission("a-model", "a", 36_000));
    let there = |text: &str| text.contains("b-model") || text.contains(&format!("\"{hidden}\""));
    // Without what differs by itself: the name that was asked for, the time.
    let same = |text: &str, name: &str| text.replace(name, "NAME");
    for caller in ["team-a", "stranger", "watcher", "pusher"] {
        for (method, path) in PATHS {
            if !path.contains("{id}") {
                let path = path.to_owned() + if path == "/v1/status" { "?follow=false" } else { "" };
                let (status, text) = ask(&server, caller, method, &path, None);
                assert!(!there(&text), "{caller}: {method} {path}: {status} {text}");
                continue;
            }
            for name in ["b-model", hidden.as_str()] {
                let seen = ask(&server, caller, method, &path.replace("{id}", name), None);
                let nobody = ask(&server, caller, method, &path.replace("{id}", "nobody"), None);
                assert_eq!(
                    (seen.0, same(&seen.1, name)),
                    (nobody.0, same(&nobody.1, "nobody")),
                    "{caller}: {method} {path} {name}"
                );
                assert!(matches!(seen.0, 404 | 403), "{seen:?}");
            }
        }
    }
    for event in [
        json!({ "type": "job.cancelled", "subject": "b-model" }),
        json!({ "type": "service.demand", "subject": "b-model", "data": { "concurrency": 9 } }),
    ] {
        for caller in ["team-a", "stranger", "pusher"] {
            let mut unknown = event.clone();
            unknown["subject"] = json!("nobody");
            let seen = ask(&server, caller, "POST", "/v1/events", Some(&event));
            let nobody = ask(&server, caller, "POST", "/v1/events", Some(&unknown));
            assert_eq!((seen.0, same(&seen.1, "b-model")), (nobody.0, same(&nobody.1, "nobody")), "{caller}: {event}");
        }
    }
    for (caller, subject, queue, code) in [
        ("team-a", "intruder", "b", "ForbiddenQueue"),
        ("team-a", "b-model", "b", "ForbiddenQueue"),
        ("team-a", "b-model", "a", "Conflict"),
        ("stranger", "b-model", "b", "ForbiddenQueue"),
    ] {
        let mut event = submission(subject, queue, 36_000);
        event["data"]["rerun"] = json!(true);
        let (status, answer) = ask_json(&server, caller, "POST", "/v1/events", Some(&event));
        assert_eq!((status, &answer["error"]["code"]), (400, &json!(code)), "{answer}");
        assert!(!there(&answer.to_string().replace("\"subject\":\"b-model\"", "")), "{answer}");
    }
    let (_, job) = ask_json(&server, "team-b", "GET", "/v1/jobs/b-model", None);
    assert_eq!((&job["job"], &job["terminal"]), (&json!(hidden), &json!(false)), "untouched: {job}");
    // The same subject in another tenant is another job, and its own.
    let elsewhere = submit(&server, "stranger", &submission("b-model", "open", 36_000));
    assert_ne!(elsewhere, hidden);
    let (_, found) = ask_json(&server, "stranger", "GET", "/v1/jobs/b-model", None);
    assert_eq!((&found["job"], &found["tenant"]), (&json!(elsewhere), &json!("elsewhere")));
    let (_, figures) = ask_json(&server, "team-a", "GET", "/v1/summary", None);
    assert_eq!(figures["jobs"], 1, "{figures}");
    let (_, queues) = ask_json(&server, "team-a", "GET", "/v1/queues", None);
    let names: Vec<_> = queues["queues"].as_array().expect("queues").iter().map(|q| q["queue"].clone()).collect();
    assert_eq!(names, ["a", "open"], "{queues}");
    // A queue's other submitter, and an operator, see it all.
    for caller in ["team-b2", "ops"] {
        assert_eq!(ask(&server, caller, "GET", &format!("/v1/jobs/{hidden}"), None).0, 200, "{caller}");
        let (_, stream) = ask(&server, caller, "GET", "/v1/status?follow=false", None);
        assert!(stream.contains("\"b-model\""), "{caller}: {stream}");
    }
    let (_, all) = ask_json(&server, "ops", "GET", "/v1/jobs", None);
    assert_eq!(all["jobs"].as_array().map(Vec::len), Some(3), "{all}");
    let (status, text) = ask(&server, "team-b2", "POST", "/v1/jobs/b-model/cancel", None);
    assert_eq!(status, 202, "{text}");
    let (status, text) = ask(&server, "ops", "POST", &format!("/v1/jobs/{own}/cancel"), None);
    assert_eq!(status, 202, "{text}");
}

#[test]
fn a_jobs_own_stream_begins_at_its_first_status_and_ends_with_its_last() {
    let folder = prepared();
    let server = fast(folder.path());
    submit(&server, "team-a", &submission("train", "a", 60));
    let path = "/v1/jobs/train/events";
    // Followed while it runs: the answer ends when the job does.
    let (status, followed) = ask(&server, "team-a", "GET", path, None);
    assert_eq!(status, 200, "{followed}");
    let statuses = |text: &str| -> Vec<Value> {
        let lines = text.lines().filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e} in {line}"))).collect()
    };
    let all = statuses(&followed);
    let kinds: Vec<&str> = all.iter().filter_map(|s| s["type"].as_str()).collect();
    assert_eq!((kinds.first(), kinds.last()), (Some(&"status.queued"), Some(&"status.completed")), "{kinds:?}");
    let seqs: Vec<u64> = all.iter().filter_map(|s| s["data"]["seq"].as_u64()).collect();
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>(), "no gap, no double");
    assert!(all.iter().all(|s| s["subject"] == "train"), "{followed}");
    assert_eq!(statuses(&ask(&server, "team-a", "GET", &format!("{path}?after=2"), None).1), all[2..]);
    let bearer = format!("Bearer {}", secret("team-a"));
    let resumed = [("authorization", bearer.as_str()), ("accept", "text/event-stream"), ("last-event-id", "1")];
    let (_, events) = server.send("GET", path, &resumed, b"");
    assert!(events.starts_with("id: 2\nevent: status.") && events.contains("\n\nid: 3\n"), "{events}");
    assert_eq!(events.matches("\ndata: ").count(), all.len() - 1, "{events}");
    // After a restart nothing is in memory: the same comes from the file.
    drop(server);
    let server = start(folder.path(), &[]);
    assert_eq!(statuses(&ask(&server, "team-a", "GET", path, None).1), all);
    assert_eq!(statuses(&ask(&server, "team-a", "GET", &format!("{path}?after=2"), None).1), all[2..]);
    let last = seqs.len();
    assert_eq!(ask(&server, "team-a", "GET", &format!("{path}?after={last}"), None), (200, String::new()));
    submit(&server, "team-a", &submission("open", "a", 36_000));
    let (_, so_far) = ask(&server, "team-a", "GET", "/v1/jobs/open/events?follow=false", None);
    assert_eq!(statuses(&so_far)[0]["type"], "status.queued", "{so_far}");
}

#[test]
fn reports_of_runs_need_the_token_of_their_attempt() {
    let folder = prepared();
    let server = fast(folder.path());
    let job = submit(&server, "team-a", &submission("train", "a", 3_000_000));
    // Until it runs: the stream is read as it comes.
    let config =
        ureq::Agent::config_builder().timeout_global(Some(std::time::Duration::from_secs(30))).proxy(None).build();
    let stream = ureq::Agent::from(config)
        .get(format!("{}/v1/jobs/{job}/events", server.url))
        .header("authorization", format!("Bearer {}", secret("team-a")))
        .call()
        .expect("a stream");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(stream.into_body().into_reader()));
    let started = lines.find_map(|line| Some(line.expect("a line")).filter(|line| line.contains("status.started")));
    let attempt = serde_json::from_str::<Value>(&started.expect("it starts")).expect("JSON")["data"]["attempt"].clone();
    let report = |token: &str| {
        let data = json!({ "job": job, "attempt": attempt, "token": token });
        ask_json(&server, "team-a", "POST", "/v1/events", Some(&json!({ "type": "run.completed", "data": data })))
    };
    for forged in ["", "0123456789abcdef0123456789abcdef", &secret("team-a")] {
        let (status, answer) = report(forged);
        assert_eq!((status, &answer["error"]["code"]), (400, &json!("Token")), "{answer}");
        assert!(forged.is_empty() || !answer.to_string().contains(forged), "{answer}");
    }
    let text =
        std::fs::read_to_string(folder.path().join("d/attempt.key")).expect("the key is in the journal's folder");
    let key: Vec<u8> = (0..32).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).expect("hex")).collect();
    let key: [u8; 32] = key.try_into().expect("32 bytes");
    let hash = blake3::keyed_hash(&key, format!("{job}/attempt-{attempt}").as_bytes());
    let (status, answer) = report(&hash.to_hex()[..32]);
    assert_eq!((status, &answer["accepted"][0]["new"]), (202, &json!(true)), "{answer}");
    let (_, over) = ask_json(&server, "team-a", "GET", &format!("/v1/jobs/{job}?waitFor=terminal&timeout=30s"), None);
    assert_eq!(over["phase"], "completed", "{over}");
}

#[test]
fn ten_thousand_submissions_again_under_new_ids_are_no_second_job() {
    let folder = prepared();
    let server = start(folder.path(), &[]);
    let post = |round: u32, from: u32| -> Vec<Value> {
        let events: Vec<Value> = (from..from + 1_000)
            .map(|n| {
                let mut event = submission(&format!("j{n}"), "a", 36_000);
                for (name, value) in [("specversion", "1.0"), ("source", "//team-a"), ("id", &format!("{round}-{n}"))] {
                    event[name] = json!(value);
                }
                event
            })
            .collect();
        let (status, taken) = ask_json(&server, "team-a", "POST", "/v1/events", Some(&Value::from(events)));
        assert_eq!((status, &taken["rejected"]), (202, &json!([])), "{status}");
        let taken = taken["accepted"].as_array().cloned().expect("accepted");
        assert!(taken.iter().all(|one| one["new"] == (round == 0)), "round {round}");
        taken.iter().map(|one| one["job"].clone()).collect()
    };
    let first: Vec<Vec<Value>> = (0..10).map(|part| post(0, part * 1_000)).collect();
    let again: Vec<Vec<Value>> = (0..10).map(|part| post(1, part * 1_000)).collect();
    assert_eq!(first, again, "the same jobs");
    let (_, figures) = ask_json(&server, "team-a", "GET", "/v1/summary", None);
    assert_eq!(figures["jobs"], 10_000, "{figures}");
    println!("10000 submissions, 10000 again under new ids, {} jobs", figures["jobs"]);
}

/// An event that is not taken: its name, its JSON, the code and a part of what is said.
type Bad = (&'static str, String, &'static str, &'static str);

fn bad_events() -> Vec<Bad> {
    let with = |edit: &dyn Fn(&mut Value)| {
        let mut event = submission("bad", "a", 60);
        edit(&mut event);
        event.to_string()
    };
    let run = |run: Value| with(&|e| e["data"]["run"] = run.clone());
    let queue = |name: &str| with(&|e| e["data"]["queue"] = json!(name));
    vec![
        ("wrong type", with(&|e| e["type"] = json!("job.exploded")), "UnknownType", "job.submitted"),
        ("a number as type", with(&|e| e["type"] = json!(7)), "BadValue", "not text"),
        ("an array as event", "[]".into(), "Malformed", "object"),
        ("a future version", with(&|e| e["specversion"] = json!("2.0")), "BadValue", "specversion 1.0"),
        ("a gang of zero", with(&|e| e["data"]["gang"]["workers"] = json!(0)), "BadValue", "from 1"),
        ("a forbidden queue", queue("b"), "ForbiddenQueue", "submitters"),
        (
            "no checkpoint URI",
            with(&|e| e["data"]["checkpoint"] = json!({"uri": "not a uri", "every": "10m"})),
            "BadValue",
            "uri",
        ),
        (
            "an inline secret",
            run(json!({"template": "t", "env": {"AWS_SECRET_ACCESS_KEY": "x"}, "secrets": [{"value": "x"}]})),
            "Inline",
            "secret",
        ),
        (
            "a forged report",
            json!({"type": "run.completed", "data": {"job": "job-0", "attempt": 1, "token": "forged"}}).to_string(),
            "Token",
            "token",
        ),
        ("a queue with a newline", queue("a\nb"), "BadValue", "control"),
        ("a queue with a NUL", queue("a\u{0}"), "BadValue", "control"),
        ("a queue of 10 kB", queue(&"q".repeat(10_000)), "BadValue", "bytes"),
        ("a queue with quotes", queue("a\"'`b"), "UnknownQueue", ""),
        ("1.5 MiB", with(&|e| e["data"]["labels"] = json!({"x": "y".repeat(3 << 19)})), "TooLarge", "1048576"),
        (
            "a deep one",
            format!("{{\"type\":\"job.submitted\",\"x\":{}1{}}}", "[".repeat(500), "]".repeat(500)),
            "Malformed",
            "recursion",
        ),
    ]
}

#[test]
fn a_bad_event_has_its_code_and_the_next_one_goes_on() {
    let folder = prepared();
    let server = start(folder.path(), &[]);
    for (n, (what, event, code, part)) in bad_events().into_iter().enumerate() {
        let good = submission(&format!("good-{n}"), "a", 60);
        let bearer = format!("Bearer {}", secret("team-a"));
        for (kind, body) in
            [("application/json", format!("[{event},{good}]")), ("application/x-ndjson", format!("{event}\n{good}\n"))]
        {
            let headers = [("authorization", bearer.as_str()), ("content-type", kind)];
            // Another job each time: a job that was rejected is known the second time.
            let body = body.replace("\"bad\"", &format!("\"bad {n} {kind}\""));
            let (status, text) = server.send("POST", "/v1/events", &headers, body.as_bytes());
            assert_eq!(status, 202, "{what} as {kind}: {text}");
            let answer: Value = serde_json::from_str(&text).expect("JSON");
            let refused = &answer["rejected"][0];
            assert_eq!((&refused["index"], &refused["code"]), (&json!(0), &json!(code)), "{what} as {kind}: {text}");
            assert!(refused["message"].as_str().is_some_and(|m| m.contains(part)), "{what}: {text}");
            assert_eq!(answer["accepted"][0]["subject"], format!("good-{n}"), "{what}: {text}");
            assert!(text.len() < 8_192, "{what}: an answer of {} bytes", text.len());
        }
    }
    let bearer = format!("Bearer {}", secret("team-a"));
    let send = |kind: &str, body: &[u8]| {
        server.send("POST", "/v1/events", &[("authorization", &bearer), ("content-type", kind)], body)
    };
    let (status, text) = send("application/json", &vec![b' '; 10 << 20]);
    assert_eq!((status, text.contains("TooLarge")), (413, true), "{text}");
    for body in [&b"{\"type\":"[..], b"hello", b"{\"type\":\"job.submitted\",\"subject\":\"\xff\xfe\"}"] {
        let (status, text) = send("application/json", body);
        assert_eq!((status, text.contains("Malformed")), (400, true), "{text}");
        let lines = [body, b"\n", submission("after", "a", 60).to_string().as_bytes()].concat();
        let (status, text) = send("application/x-ndjson", &lines);
        assert_eq!((status, text.contains("Malformed"), text.contains("\"after\"")), (202, true, true), "{text}");
    }
    // What is not known is kept, and told; not without end.
    let mut many = submission("odd", "a", 60);
    (0..5_000).for_each(|n| many["data"][format!("field{n}")] = json!(n));
    let (status, answer) = ask_json(&server, "team-a", "POST", "/v1/events", Some(&many));
    let warnings = answer["accepted"][0]["warnings"].as_array().cloned().expect("warnings");
    assert_eq!((status, warnings.len()), (202, 100), "{warnings:?}");
    assert!(warnings[0].as_str().is_some_and(|w| w.contains("carried along")), "{warnings:?}");
    assert!(warnings[99].as_str().is_some_and(|w| w.contains("4901 warnings more")), "{:?}", warnings[99]);
}

#[test]
fn no_secret_leaves_its_file() {
    let folder = prepared();
    let server = start(folder.path(), &[]);
    submit(&server, "team-a", &submission("x", "a", 36_000));
    for path in [
        "/v1/jobs",
        "/v1/jobs/x",
        "/v1/state",
        "/v1/summary",
        "/v1/status?follow=false",
        "/",
        "/v1/nodes",
        "/v1/queues",
    ] {
        let (status, text) = ask(&server, "ops", "GET", path, None);
        assert!(status == 200 && !text.contains("xyzzy"), "{path}: {text}");
    }
    let wrong = [("authorization", "Bearer wrong-token-xyzzy")];
    assert!(!server.send("GET", "/v1/jobs", &wrong, b"").1.contains("xyzzy"));
    let said = format!("{}{}", server.said.join("\n"), server.log());
    assert!(said.contains("listening") && !said.contains("xyzzy"), "{said}");
    drop(server);
    let mut read = 0;
    for entry in std::fs::read_dir(folder.path().join("d")).expect("the journal's folder") {
        let path = entry.expect("an entry").path();
        let bytes = std::fs::read(&path).expect("reads");
        assert!(!bytes.windows(5).any(|w| w == b"xyzzy"), "{}", path.display());
        read += 1;
    }
    assert!(read >= 4, "{read} files");
    use std::os::unix::fs::PermissionsExt as _;
    let key = std::fs::metadata(folder.path().join("d/attempt.key")).expect("there is a key");
    assert_eq!(key.permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_configuration_that_would_open_the_door_is_refused() {
    let folder = prepared();
    let open = run(folder.path(), &["run", "--listen", "0.0.0.0:0", "--data", "d"]);
    assert_eq!((open.code, open.err.contains("tokens")), (2, true), "{open:?}");
    let unset = run(folder.path(), &["run", "--config", "forebay.yaml", "--listen", "127.0.0.1:0"]);
    assert_eq!((unset.code, unset.err.contains("OPS_TOKEN")), (2, true), "{unset:?}");
    let config = "apiVersion: forebay/v1\nkind: Config\ntokens:\n  - {name: t, roles: [read], secret: ";
    for (secret, part) in [
        ("hunter2-hunter2-hunter2}", "{file: PATH}"),
        ("{file: none.token}}", "none.token"),
        ("{file: team-a.token}, extra: 1}", "extra"),
        (
            "{file: team-a.token}}\n  - {name: u, roles: [read], secret: {file: team-a.token}}",
            "same secret as token `t`",
        ),
    ] {
        write(folder.path(), "bad.yaml", &format!("{config}{secret}\n"));
        let said = run(folder.path(), &["run", "--config", "bad.yaml", "--listen", "127.0.0.1:0"]);
        assert_eq!((said.code, said.err.contains(part)), (2, true), "{said:?}");
        assert!(!said.err.contains("hunter2") && !said.err.contains("xyzzy"), "{said:?}");
    }
    assert!(!folder.path().join("d").exists() && !folder.path().join("forebay-data").exists(), "nothing was begun");
}

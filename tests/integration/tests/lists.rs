//! Lists from outside: columns that are asked for, lists that are watched, what happened to jobs, and instance types.

use forebay_integration::{Server, forebay, root, run, until};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Lines, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// Whatever is waited for comes before that.
const SOON: Duration = Duration::from_secs(90);

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

fn submission(subject: &str) -> Value {
    json!({ "type": "job.submitted", "subject": subject, "data": { "queue": "vision/batch",
        "gang": { "each": { "gpus": 1 } }, "labels": { "team": "vision" }, "simulation": { "durationS": 36_000 } } })
}

/// What a server says to the requests that come, one after the other, by a part of their first lines. `None`: it closes the connection.
type Script = Vec<(&'static str, Option<(u16, Value)>)>;

/// The address of a server that answers as a script says. Whatever else is asked gets a final no, so that nobody asks again.
fn scripted(script: Script) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("its address"));
    let mut script = script.into_iter();
    std::thread::spawn(move || {
        while let Ok((asked, _)) = listener.accept() {
            let request = BufReader::new(&asked).lines().map_while(Result::ok).take_while(|line| !line.is_empty());
            let first = request.collect::<Vec<_>>().into_iter().next().unwrap_or_default();
            let (status, body) = match script.next() {
                Some((part, Some(answer))) if first.contains(part) => answer,
                Some((part, None)) if first.contains(part) => continue,
                other => (404, no(&format!("not in the script: {first}, but {other:?}"))),
            };
            let body = body.to_string();
            let head = format!("HTTP/1.1 {status} Said\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
            // Who asked may be gone.
            let _ = (&asked).write_all(format!("{head}{body}").as_bytes());
        }
    });
    url
}

/// An error as a Forebay answers it.
fn no(message: &str) -> Value {
    json!({ "error": { "code": "No", "message": message, "remedy": "mend it" } })
}

/// A command that goes on until it is ended, and is ended when dropped.
struct Going {
    child: Child,
    out: Option<Lines<BufReader<ChildStdout>>>,
}

impl Going {
    fn start(server: &Server, folder: &Path, args: &[&str]) -> Going {
        let mut command = forebay(folder, args);
        command.env("FOREBAY_SERVER", &server.url).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("it starts");
        let out = child.stdout.take().map(|out| BufReader::new(out).lines());
        Going { child, out }
    }

    /// The next lines of its output, up to one that holds.
    fn lines_until(&mut self, holds: impl Fn(&str) -> bool) -> Vec<String> {
        let mut found = Vec::new();
        for line in self.out.as_mut().expect("its output") {
            found.push(line.expect("a line"));
            if found.last().is_some_and(|line| holds(line)) {
                return found;
            }
        }
        panic!("it ended after {found:?}");
    }

    /// Ends of itself, once nobody reads what it writes.
    fn ends_unread(mut self) {
        drop(self.out.take());
        until("it ends, as nobody reads", SOON, || match self.child.try_wait().expect("its state") {
            Some(_) => Ok(()),
            None => Err("it goes on".to_owned()),
        });
    }
}

impl Drop for Going {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn columns_are_those_that_are_asked_for() {
    let folder = folder();
    let server = Server::start(folder.path(), &["--data", "d"]);
    assert_eq!(server.post(&submission("a")).0, 202);
    let said = server.ask(folder.path(), &["jobs", "-o", "subject,GPUS,labels"]);
    let lines: Vec<&str> = said.out.lines().collect();
    assert_eq!((said.code, lines.first()), (0, Some(&"SUBJECT  GPUS  LABELS")), "{said:?}");
    assert!(lines.get(1).is_some_and(|line| line.starts_with("a           1  ")), "{said:?}");
    let wrong = server.ask(folder.path(), &["nodes", "-o", "node,prize"]);
    assert_eq!(wrong.code, 2, "{wrong:?}");
    assert!(wrong.err.contains("-o: no such column: `prize`; there are node, pool, type,"), "{wrong:?}");
    let both = server.ask(folder.path(), &["queues", "-o", "queue", "--json"]);
    assert_eq!((both.code, both.err.contains("cannot be used with")), (2, true), "{both:?}");
}

#[test]
fn a_list_is_watched_until_nobody_reads_it() {
    let folder = folder();
    let server = Server::start(folder.path(), &["--data", "d"]);
    let mut watch = Going::start(&server, folder.path(), &["jobs", "--watch=1s"]);
    watch.lines_until(|line| line.starts_with("no open jobs"));
    assert_eq!(server.post(&submission("seen")).0, 202);
    let seen = watch.lines_until(|line| line.contains("seen"));
    assert!(seen.iter().any(|line| line.starts_with("every 1 s; Ctrl-C ends it; ")), "{seen:?}");
    watch.ends_unread();
    let busy = server.ask(folder.path(), &["jobs", "--watch=10ms"]);
    assert_eq!((busy.code, busy.err.contains("at least 1s")), (2, true), "{busy:?}");
}

#[test]
fn a_list_is_watched_through_a_lost_connection_until_an_answer_is_final() {
    let folder = folder();
    let queues = || Some((200, json!({ "now_s": 1, "queues": [] })));
    let asked = "GET /v1/queues ";
    let url =
        scripted(vec![(asked, queues()), (asked, None), (asked, queues()), (asked, Some((401, no("who is it"))))]);
    let said = run(folder.path(), &["queues", "--watch=1s", "--server", &url]);
    assert_eq!((said.code, said.out.matches("no queues yet").count()), (2, 2), "{said:?}");
    for part in ["is lost (", "trying again", "connected again", "who is it: mend it"] {
        assert_eq!(said.err.matches(part).count(), 1, "`{part}` is said once: {said:?}");
    }
    let nobody = run(folder.path(), &["queues", "--watch", "--server", "http://127.0.0.1:9"]);
    assert_eq!(nobody.code, 6, "who was never answered has a wrong address: {nobody:?}");
}

#[test]
fn logs_are_followed_through_lost_connections_and_attempts_without_a_lost_or_doubled_line() {
    let folder = folder();
    let job = |attempt: u32, terminal: bool| {
        let phase = if terminal { "completed" } else { "running" };
        let job = json!({ "now_s": 1, "terminal": terminal, "job": "job-1", "queue": "q", "phase": phase, "gpus": 1, "attempt": attempt });
        ("GET /v1/jobs/train ", Some((200, job)))
    };
    let (first, second) = ("/v1/jobs/train/logs?tail=10000&attempt=1 ", "/v1/jobs/train/logs?tail=10000&attempt=2 ");
    let printed = |attempt: u32, text: &str| {
        let log = json!({ "worker": 0, "source": "live", "text": text, "truncated": false });
        Some((200, json!({ "job": "job-1", "attempt": attempt, "workers": [log] })))
    };
    let url = scripted(vec![
        job(1, false),
        (first, printed(1, "a\nb\nhal")),
        ("GET /v1/jobs/train ", None),
        // Meanwhile it was stopped and started again.
        job(2, false),
        (first, printed(1, "a\nb\nhalf\nc")),
        (second, printed(2, "x\n")),
        job(2, true),
        (second, None),
        job(2, true),
        (second, printed(2, "x\ny")),
    ]);
    let said = run(folder.path(), &["logs", "train", "--follow", "--server", &url]);
    assert_eq!((said.code, said.out.as_str()), (0, "a\nb\nhalf\nc\nx\ny\n"), "{said:?}");
    assert_eq!(said.err.matches("trying again").count(), 2, "{said:?}");
    assert!(said.err.contains("attempt 2"), "{said:?}");
}

#[test]
fn what_happened_to_jobs_is_told_once_and_followed() {
    let folder = folder();
    let server = Server::start(folder.path(), &["--data", "d"]);
    assert_eq!(server.post(&submission("first")).0, 202);
    let all = server.ask(folder.path(), &["events"]);
    assert!(all.code == 0 && all.out.contains("  queued "), "{all:?}");
    let events = server.ask(folder.path(), &["events", "--json"]);
    let events: Vec<Value> = events.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(events.first().map(|event| &event["data"]["number"]), Some(&json!(1)), "{events:?}");
    let mut follow = Going::start(&server, folder.path(), &["events", "--follow", "--json"]);
    assert_eq!(server.post(&submission("second")).0, 202);
    let lines = follow.lines_until(|line| line.contains("\"second\""));
    let number = |line: &String| serde_json::from_str::<Value>(line).expect("JSON")["data"]["number"].as_u64();
    let numbers: Vec<u64> = lines.iter().filter_map(number).collect();
    assert_eq!(numbers, (1..=lines.len() as u64).collect::<Vec<_>>(), "no gap, no double: {lines:?}");
    let last = numbers.last().copied().expect("a number");
    let after = server.ask(folder.path(), &["events", "--after", &(last - 1).to_string()]);
    assert!(after.out.starts_with(&format!("{last:>6}  ")), "{after:?}");
    for after in ["0", "3"] {
        let nobody = ["events", "--follow", "--after", after, "--server", "http://127.0.0.1:9"];
        let refused = run(folder.path(), &nobody);
        assert_eq!(refused.code, 6, "{refused:?}");
    }
}

#[test]
fn events_are_followed_through_a_lost_connection_though_there_was_none_yet() {
    let folder = folder();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("its address"));
    let mut follow = forebay(folder.path(), &["events", "--follow", "--server", &url]);
    let mut follow = follow.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    let (asked, _) = listener.accept().expect("a request");
    let request = BufReader::new(&asked).lines().map_while(Result::ok).take_while(|line| !line.is_empty());
    assert!(request.count() > 0, "it asks");
    (&asked).write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").expect("an answer");
    drop((asked, listener));
    let mut said = BufReader::new(follow.stderr.take().expect("its messages")).lines().map_while(Result::ok);
    let goes_on = said.any(|line| line.contains("trying again"));
    let _ = follow.kill();
    let ended = follow.wait().expect("it ends");
    assert!(goes_on, "{ended}");
}

#[test]
fn types_are_those_of_the_catalogue_and_a_simulation_pays_their_prices() {
    let folder = folder();
    let found = run(folder.path(), &["types", "--model", "H100", "--gpus", "8", "--json"]).json();
    let types = found["types"].as_array().cloned().expect("types");
    assert!(types.iter().any(|one| one["instanceType"] == "p5.48xlarge" && one["gpus"] == 8.0), "{types:?}");
    assert!(types.iter().all(|one| one["model"] == "h100" && one["on_demand_usd_per_hour"].is_f64()), "{types:?}");
    let found = run(folder.path(), &["types", "--gpus", "1", "--json"]).json();
    let types = found["types"].as_array().cloned().expect("types");
    assert!(!types.is_empty() && types.iter().all(|one| one["gpus"] == 1.0), "a part of a GPU is not one: {types:?}");
    let none = run(folder.path(), &["types", "--model", "h1000"]);
    assert!(
        none.code == 2 && none.err.contains("--model h1000: no type has it; there are ") && none.err.contains("h100,"),
        "{none:?}"
    );
    let header = "instance_type,provider,gpu_model,aliases,gpus,gpu_mem_mib,vcpu,mem_mib,on_demand_usd_per_hour,\
                  spot_permille_of_on_demand,boot_s,sharing,nvlink,gpu_milli";
    let row = |price: u32| format!("{header}\nbig.1x,aws,h100,,1,81920,16,131072,{price},300,60,yes,no,\n");
    let trace = "job_id,submit_s,duration_s,gpus\na,0,7200,1\n";
    let policy = "apiVersion: forebay/v1\nkind: Policy\nmetadata: {name: one}\ntiers:\n  only: {priority: 1, buys: on-demand}\n\
                  undeclaredQueues: {under: shared}\nqueues:\n  shared: {tier: only, pools: [p]}\n\
                  pools:\n  p: {instanceTypes: [big.1x], ceiling: {nodes: 2}}\nlimits: {nodes: 2}\n";
    for (name, text) in [("t.csv", trace), ("p.yaml", policy), ("1.csv", &row(1)), ("3.csv", &row(3))] {
        std::fs::write(folder.path().join(name), text).expect("writes");
    }
    let cost = |catalogue: &str| {
        let args = [
            "simulate",
            "--policy",
            "p.yaml",
            "--trace",
            "t.csv",
            "--market",
            "calm",
            "--catalog",
            catalogue,
            "--json",
        ];
        let said = run(folder.path(), &args);
        assert_eq!(said.code, 0, "{said:?}");
        said.json()["cost_usd"].as_f64().expect("a cost")
    };
    let (one, three) = (cost("1.csv"), cost("3.csv"));
    assert!(one > 2.0 && (three / one - 3.0).abs() < 1e-6, "{one} {three}");
    let unknown = run(folder.path(), &["simulate", "--policy", "p.yaml", "--trace", "t.csv"]);
    assert!(unknown.code == 2 && unknown.err.contains("big.1x"), "{unknown:?}");
    let shipped = root().join("crates/catalog/data/catalog.csv");
    let listed = run(folder.path(), &["types", "--catalog", shipped.to_str().expect("text"), "--json"]);
    assert_eq!(listed.json(), run(folder.path(), &["types", "--json"]).json());
}

#[test]
fn a_policy_of_types_of_ones_own_is_checked_planned_and_compared() {
    let folder = folder();
    let catalogue = "instance_type,gpu_model,gpus,gpu_mem_mib,vcpu,mem_mib,on_demand_usd_per_hour,spot_permille_of_on_demand,boot_s\n\
                     big.1x,h100,1,81920,16,131072,3,300,60\n";
    let policy = "apiVersion: forebay/v1\nkind: Policy\nmetadata: {name: one}\ntiers:\n  only: {priority: 1, buys: on-demand}\n\
                  undeclaredQueues: {under: shared}\nqueues:\n  shared: {tier: only, pools: [p]}\n\
                  pools:\n  p: {instanceTypes: [big.1x], ceiling: {nodes: 2}}\nlimits: {nodes: 2}\n";
    let state = json!({ "apiVersion": "forebay/v1", "kind": "State", "now_s": 600,
        "jobs": [{ "job": "a", "queue": "shared", "gpus": 1, "phase": "queued" }] });
    for (name, text) in [("ours.csv", catalogue), ("p.yaml", policy), ("s.json", &state.to_string())] {
        std::fs::write(folder.path().join(name), text).expect("writes");
    }
    let commands = [
        &["check", "p.yaml"][..],
        &["check", "p.yaml", "--explain"],
        &["plan", "--policy", "p.yaml", "--state", "s.json"],
        &["policy", "diff", "p.yaml", "p.yaml"],
    ];
    for command in commands {
        let without = run(folder.path(), command);
        assert!(without.code == 2 && without.err.contains("big.1x"), "{command:?}: {without:?}");
        let with = run(folder.path(), &[command, &["--catalog", "ours.csv"]].concat());
        assert_eq!(with.code, 0, "{command:?}: {with:?}");
        let nowhere = run(folder.path(), &[command, &["--catalog", "nowhere.csv"]].concat());
        assert!(nowhere.code == 2 && nowhere.err.contains("nowhere.csv"), "{command:?}: {nowhere:?}");
    }
    let planned = run(folder.path(), &[commands[2], &["--catalog", "ours.csv"]].concat());
    assert!(planned.out.contains("big.1x"), "{planned:?}");
    let server = Server::start(folder.path(), &["--data", "d"]);
    assert_eq!(server.ask(folder.path(), &["state", "export", "--out", "export.json"]).code, 0);
    let unused = run(folder.path(), &["plan", "--state", "export.json", "--catalog", "ours.csv"]);
    assert!(
        unused.code == 2 && unused.err.contains("--catalog ours.csv: ") && unused.err.contains("leave it out"),
        "{unused:?}"
    );
}

#[test]
fn a_simulation_sends_jobs_where_the_routes_of_the_policy_would() {
    let folder = folder();
    let policy = "apiVersion: forebay/v1\nkind: Policy\nmetadata: {name: routed}\ntiers:\n  only: {priority: 1, buys: on-demand}\n\
                  undeclaredQueues: reject\nqueues:\n  large: {tier: only, pools: [p]}\n  small: {tier: only, pools: [p]}\n  notebooks: {tier: only, pools: [p]}\n\
                  routes:\n  - {when: 'job.labels.kind == \"notebook\"', queue: notebooks}\n  - {when: 'job.gang.gpus >= 8', queue: large}\n\
                  pools:\n  p: {instanceTypes: [g5.48xlarge], ceiling: {nodes: 9}}\nlimits: {nodes: 9}\n";
    let csv = "job_id,submit_s,duration_s,gpus,queue\na,0,60,16,small\nb,0,60,1,small\nc,0,60,8,\n";
    let event = |subject: &str, labels: Value| {
        json!({ "type": "job.submitted", "subject": subject, "time": "2026-11-02T00:00:00Z", "data": { "queue": "small",
            "labels": labels, "gang": { "each": { "gpus": 1 } }, "simulation": { "durationS": 60 } } })
    };
    let events = format!("{}\n{}\n", event("n", json!({ "kind": "notebook" })), event("o", json!({})));
    for (name, text) in [("p.yaml", policy), ("t.csv", csv), ("e.jsonl", &events)] {
        std::fs::write(folder.path().join(name), text).expect("writes");
    }
    let jobs = |trace: &str| {
        let said =
            run(folder.path(), &["simulate", "--policy", "p.yaml", "--trace", trace, "--market", "calm", "--json"]);
        assert_eq!(said.code, 0, "{said:?}");
        let card = said.json();
        let of = |queue: &str| card["jobs_by_queue"][queue]["completed"].as_u64();
        ([of("large"), of("small"), of("notebooks")], card["assumptions"].to_string())
    };
    let (completed, said) = jobs("t.csv");
    assert_eq!(completed, [Some(2), Some(1), None], "{said}");
    assert!(said.contains("2 jobs were sent to another queue by the policy's routes"), "{said}");
    assert_eq!(jobs("e.jsonl").0, [None, Some(1), Some(1)]);
}

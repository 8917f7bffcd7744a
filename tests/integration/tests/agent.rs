//! What the agents on nodes say, against the real binary: over HTTP as hostile as may be, and by `forebay agent` itself between a metadata
//! of the test's own and a controller that is ended and started again.
//!
//! Never: an address beyond loopback.

use forebay_integration::teams::{ask, ask_json, prepared, secret, start, submission, submit};
use forebay_integration::{Server, Starting, forebay, run, until};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SOON: Duration = Duration::from_secs(60);

/// The nodes as an operator sees them.
fn nodes(server: &Server) -> Vec<Value> {
    let (status, found) = ask_json(server, "ops", "GET", "/v1/nodes", None);
    assert_eq!(status, 200, "{found}");
    found["nodes"].as_array().cloned().expect("nodes")
}

/// A job that needs a node, and the instance that was bought for it.
fn bought(server: &Server, subject: &str) -> String {
    submit(server, "team-a", &submission(subject, "open", 36_000));
    let mut instance = None;
    until("an instance is there", SOON, || {
        instance = nodes(server).iter().find_map(|node| node["instance"].as_str().map(str::to_owned));
        instance.as_ref().map(|_| ()).ok_or_else(|| format!("{:?}", nodes(server)))
    });
    instance.expect("one")
}

/// When the cloud takes an instance back, as the engine knows it.
fn reclaimed_at(server: &Server, instance: &str) -> Option<f64> {
    let node = nodes(server).into_iter().find(|node| node["instance"] == *instance)?;
    node["reclaim_s"].as_f64()
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}

/// A time of day as AWS writes it, so many seconds from now: the civil date by counting days.
fn from_now(seconds: u64) -> (u64, String) {
    let at = now_s() + seconds;
    let (days, rest) = (at / 86_400, at % 86_400);
    let (mut year, mut day) = (1970, days);
    let leap = |year: u64| (year.is_multiple_of(4) && !year.is_multiple_of(100)) || year.is_multiple_of(400);
    while day >= 365 + u64::from(leap(year)) {
        day -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while day >= lengths[month] {
        day -= lengths[month];
        month += 1;
    }
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    (at, format!("{year}-{:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", month + 1, day + 1))
}

#[test]
fn a_warning_reaches_the_engine_once_and_only_with_the_agents_token() {
    let folder = prepared();
    let server = start(folder.path(), &[]);
    let instance = bought(&server, "x");
    let (at, text) = from_now(600);
    let notice =
        json!({ "instance": instance, "kind": "interruption", "at": text, "later": "a field that nobody knows yet" });
    for name in ["team-a", "pusher", "watcher"] {
        assert_eq!(ask(&server, name, "POST", "/v1/agent/notices", Some(&notice)).0, 403, "{name}");
    }
    let kind = [("content-type", "application/json"), ("authorization", "Bearer wrong-0123456789-xyzzy")];
    let (status, text) = server.send("POST", "/v1/agent/notices", &kind, notice.to_string().as_bytes());
    assert_eq!(status, 401, "{text}");
    let risk = json!({ "instance": instance, "kind": "rebalance" });
    let heard = ask_json(&server, "node", "POST", "/v1/agent/notices", Some(&risk));
    assert_eq!(heard, (202, json!({ "new": false })));
    assert_eq!(reclaimed_at(&server, &instance), None, "nothing of that reached the engine");
    let heard = ask_json(&server, "node", "POST", "/v1/agent/notices", Some(&notice));
    assert_eq!(heard, (202, json!({ "new": true })));
    assert_eq!(reclaimed_at(&server, &instance), Some(at as f64));
    let again = ask_json(&server, "node", "POST", "/v1/agent/notices", Some(&notice));
    assert_eq!(again, (202, json!({ "new": false })), "said twice, it says nothing new");
    // It was durable before the answer: it is there after a crash.
    server.kill();
    let server = start(folder.path(), &[]);
    assert_eq!(reclaimed_at(&server, &instance), Some(at as f64));
}

#[test]
fn hello_makes_a_node_ready_and_an_unknown_one_is_told_so() {
    let folder = prepared();
    let server = start(folder.path(), &[]);
    let instance = bought(&server, "x");
    let phase = || nodes(&server)[0]["phase"].clone();
    assert_eq!(phase(), "booting");
    let hello = json!({ "instance": instance });
    assert_eq!(ask_json(&server, "node", "POST", "/v1/agent/hello", Some(&hello)), (202, json!({ "new": true })));
    assert_eq!(phase(), "ready");
    assert_eq!(ask_json(&server, "node", "POST", "/v1/agent/hello", Some(&hello)), (202, json!({ "new": false })));
    for path in ["/v1/agent/hello", "/v1/agent/notices"] {
        let strange = json!({ "instance": "i-0000000000000bad0", "kind": "interruption" });
        let (status, answer) = ask_json(&server, "node", "POST", path, Some(&strange));
        assert_eq!((status, &answer["error"]["code"]), (404, &json!("UnknownInstance")), "{answer}");
        assert!(answer["error"]["message"].as_str().is_some_and(|m| m.contains("`i-0000000000000bad0`")), "{answer}");
    }
}

#[test]
fn what_is_no_report_is_refused_in_few_words() {
    let folder = prepared();
    let server = start(folder.path(), &[]);
    let instance = bought(&server, "x");
    let (_, far) = from_now(2 * 3600);
    let bearer = format!("Bearer {}", secret("node"));
    let of = |at: Value| json!({ "instance": instance, "kind": "interruption", "at": at }).to_string();
    for (kind, body, status, code) in [
        ("application/json", String::new(), 400, "Malformed"),
        ("application/json", "[]".to_owned(), 400, "Malformed"),
        ("application/json", format!("{}1", "[".repeat(4000)), 400, "Malformed"),
        ("application/json", json!({ "kind": "interruption" }).to_string(), 400, "Malformed"),
        ("application/json", json!({ "instance": instance, "kind": "x".repeat(3000) }).to_string(), 400, "Malformed"),
        ("application/json", json!({ "instance": ["a"], "kind": "interruption" }).to_string(), 400, "Malformed"),
        ("application/json", of(json!("soon \u{1b}[2J")), 400, "BadValue"),
        ("application/json", of(json!(far)), 400, "BadValue"),
        (
            "application/json",
            json!({ "instance": "i".repeat(4000), "kind": "interruption" }).to_string(),
            404,
            "UnknownInstance",
        ),
        ("application/json", " ".repeat(4097), 413, "TooLarge"),
        ("application/json", " ".repeat(5 * 1024 * 1024), 413, "TooLarge"),
        ("text/plain", of(json!(null)), 415, "ContentType"),
    ] {
        let headers = [("content-type", kind), ("authorization", bearer.as_str())];
        let (got, text) = server.send("POST", "/v1/agent/notices", &headers, body.as_bytes());
        let answer: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e} in {text}"));
        assert_eq!((got, &answer["error"]["code"]), (status, &json!(code)), "{text}");
        assert!(text.len() < 800 && !text.contains('\u{1b}'), "{text}");
    }
    assert_eq!(reclaimed_at(&server, &instance), None, "none of it reached the engine");
}

/// An instance's metadata: the id, and a warning as soon as there is one.
fn metadata(instance: &str, warning: &Arc<Mutex<Option<String>>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let (instance, warning) = (instance.to_owned(), Arc::clone(warning));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            answer(stream, &instance, &warning);
        }
    });
    url
}

fn answer(mut stream: TcpStream, instance: &str, warning: &Mutex<Option<String>>) {
    let mut lines = BufReader::new(stream.try_clone().expect("a handle")).lines().map_while(Result::ok);
    let Some(first) = lines.next() else { return };
    let token =
        lines.take_while(|line| !line.is_empty()).any(|line| line.eq_ignore_ascii_case("x-aws-ec2-metadata-token: t"));
    let path = first.split(' ').nth(1).unwrap_or_default();
    let (status, text) = match path {
        "/latest/api/token" => (200, "t".to_owned()),
        _ if !token => (401, String::new()),
        "/latest/meta-data/instance-id" => (200, instance.to_owned()),
        "/latest/meta-data/spot/instance-action" => {
            let warning = warning.lock().expect("unpoisoned").clone();
            warning.map_or((404, String::new()), |at| (200, json!({ "action": "terminate", "time": at }).to_string()))
        }
        _ => (404, String::new()),
    };
    let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", text.len());
    // Whoever asked may have gone.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(text.as_bytes()));
}

/// `forebay agent`, ended when dropped; what it says.
struct Running(Child, Arc<Mutex<String>>);

impl Running {
    fn start(folder: &Path, args: &[&str]) -> Running {
        let mut command = forebay(folder, args);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
        let stderr = BufReader::new(child.stderr.take().expect("a pipe"));
        let said = Arc::new(Mutex::new(String::new()));
        let kept = Arc::clone(&said);
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                kept.lock().expect("unpoisoned").push_str(&(line + "\n"));
            }
        });
        Running(child, said)
    }

    fn says(&self, part: &str) {
        until(&format!("the agent says `{part}`"), SOON, || {
            let said = self.1.lock().expect("unpoisoned").clone();
            if said.contains(part) { Ok(()) } else { Err(said) }
        });
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_agent_tells_what_the_metadata_says_and_waits_for_a_controller_that_is_away() {
    let folder = prepared();
    // Below the ports that connections are given, so that it is free when the controller comes back.
    let address = format!("127.0.0.1:{}", forebay_parts::free_port().expect("a port"));
    let serve = || {
        let args = ["--config", "forebay.yaml", "--listen", &address];
        Starting::new(folder.path(), &args, &[("OPS_TOKEN", &secret("ops"))]).listens()
    };
    let server = serve();
    let instance = bought(&server, "x");
    let warning = Arc::new(Mutex::new(None));
    let imds = metadata(&instance, &warning);
    let url = server.url.clone();
    let args = ["agent", "--controller", &url, "--metadata", &imds, "--token-file", "node.token"];
    let agent = Running::start(folder.path(), &args);
    agent.says(&format!("agent: watching {instance}"));
    agent.says("delivered: hello");
    assert_eq!(nodes(&server)[0]["phase"], "ready");
    server.kill();
    let (at, text) = from_now(600);
    *warning.lock().unwrap() = Some(text.clone());
    agent.says(&format!("the instance is reclaimed at {text}"));
    agent.says("not delivered yet");
    let server = serve();
    agent.says(&format!("delivered: the instance is reclaimed at {text}"));
    assert_eq!(reclaimed_at(&server, &instance), Some(at as f64));
    let said = agent.1.lock().unwrap().clone();
    assert!(!said.contains(&secret("node")) && said.contains("GPU"), "{said}");
}

#[test]
fn an_agent_that_cannot_start_says_why() {
    let folder = prepared();
    for (args, part) in [
        (&["--controller", "https://forebay"][..], "--controller https://forebay: this is not an address"),
        (&["--controller", "http://127.0.0.1:1", "--metadata", "here"], "--metadata here: this is not an address"),
        (&["--controller", "http://127.0.0.1:1", "--token-file", "no.token"], "no.token: no such file"),
        (&[], "--controller"),
    ] {
        let said = run(folder.path(), &[&["agent"], args].concat());
        assert!(said.code == 2 && said.err.contains(part), "{said:?}");
    }
}

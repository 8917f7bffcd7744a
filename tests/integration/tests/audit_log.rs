//! The audit log: what is done by hand is a line with its author and address, and who is refused is counted.

use forebay_integration::teams::{ask, ask_json, prepared, secret, start, submission, submit};
use forebay_integration::until;
use serde_json::{Value, json};
use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

/// The lines of a log, as soon as there are so many.
fn lines(path: &Path, count: usize) -> Vec<Value> {
    let mut found = Vec::new();
    until("the lines of the log", Duration::from_secs(30), || {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        found = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        if found.len() >= count { Ok(()) } else { Err(text) }
    });
    found
}

#[test]
fn what_is_done_by_hand_is_written_down_with_its_author_and_address() {
    let folder = prepared();
    let server = start(folder.path(), &[]);
    submit(&server, "team-a", &submission("x", "open", 36_000));
    for status in [202, 200] {
        assert_eq!(ask(&server, "ops", "POST", "/v1/jobs/x/cancel", None).0, status, "asked for again it is no act");
    }
    let brake = json!({"brake": "buying", "why": "review\u{1b}[31m", "until": "2h"});
    assert_eq!(ask(&server, "ops", "POST", "/v1/brakes/set", Some(&brake)).0, 202);
    assert_eq!(ask(&server, "ops", "POST", "/v1/brakes/release", Some(&json!({"brake": "buying"}))).0, 202);
    for _ in 0..5 {
        assert_eq!(ask(&server, "watcher", "POST", "/v1/brakes/set", Some(&brake)).0, 403);
        let unknown = [("authorization", "Bearer not-a-token-of-anybody")];
        assert_eq!(server.send("GET", "/v1/jobs", &unknown, b"").0, 401);
    }
    let data = folder.path().join("d");
    let acts = lines(&data.join("audit.jsonl"), 4);
    let names: Vec<&str> = acts.iter().filter_map(|act| act["act"].as_str()).collect();
    assert_eq!(names, ["start", "cancel", "brake", "release brake"]);
    assert!(acts[0]["by"].as_str().is_some_and(|by| by.starts_with("uid ")), "{}", acts[0]);
    assert_eq!((&acts[0]["what"]["policyIsNew"], &acts[0]["what"]["acceptLoss"]), (&json!(true), &Value::Null));
    assert_eq!((&acts[1]["from"], &acts[1]["what"]["subject"]), (&json!("127.0.0.1"), &json!("x")));
    assert_eq!((&acts[1]["by"], &acts[2]["by"]), (&json!("default/ops"), &json!("default/ops")));
    assert_eq!(acts[2]["what"]["brakes"], "buying");

    // The first of its kind at once, the others with their count, at the latest when it ends.
    let refused = lines(&data.join("audit-refused.jsonl"), 2);
    let told: Vec<_> = refused.iter().map(|line| (line["code"].as_str(), line["count"].as_u64())).collect();
    assert_eq!(told, [(Some("RoleMissing"), Some(1)), (Some("UnknownToken"), Some(1))]);
    assert_eq!((&refused[0]["path"], &refused[1]["by"]), (&json!("/v1/brakes/set"), &Value::Null));
    drop(server);
    let text = ["audit.jsonl", "audit-refused.jsonl"]
        .map(|name| std::fs::read_to_string(data.join(name)).expect("reads"))
        .concat();
    for hidden in [secret("ops").as_str(), secret("watcher").as_str(), "not-a-token-of-anybody", "\u{1b}"] {
        assert!(!text.contains(hidden), "{hidden:?} is in the audit log");
    }
}

#[test]
fn what_is_done_for_somebody_who_hangs_up_is_written_down_too() {
    const JOBS: usize = 40;
    let folder = prepared();
    let server = start(folder.path(), &[]);
    for number in 0..=JOBS {
        submit(&server, "team-a", &submission(&format!("x{number}"), "open", 36_000));
    }
    let address = server.url.strip_prefix("http://").expect("an address");
    for number in 0..JOBS {
        let mut stream = TcpStream::connect(address).expect("connects");
        let line = format!("POST /v1/jobs/x{number}/cancel HTTP/1.1\r\nhost: 127.0.0.1");
        let more = format!("authorization: Bearer {}\r\ncontent-length: 0", secret("ops"));
        stream.write_all(format!("{line}\r\n{more}\r\n\r\n").as_bytes()).expect("writes");
        // It is gone before there is an answer.
    }
    assert_eq!(ask(&server, "ops", "POST", &format!("/v1/jobs/x{JOBS}/cancel"), None).0, 202);
    let path = folder.path().join("d/audit.jsonl");
    until("each job that was cancelled has its line", Duration::from_secs(30), || {
        let (_, listed) = ask_json(&server, "ops", "GET", "/v1/jobs?limit=100", None);
        let jobs = listed["jobs"].as_array().expect("jobs");
        let cancelled = jobs.iter().filter(|job| job["phase"] == "cancelled").count();
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let acts = text.lines().filter(|line| line.contains("\"act\":\"cancel\"")).count();
        if cancelled > 0 && acts == cancelled { Ok(()) } else { Err(format!("{acts} of {cancelled}")) }
    });
}

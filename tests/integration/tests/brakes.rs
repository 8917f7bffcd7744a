//! What operators stop for a time, from outside: commands and API, reasons with who and why, figures, the page, and that a restart changes nothing.

use forebay_integration::teams::{ask_json, fast, prepared, secret, start, submission, submit};
use forebay_integration::{Said, Server, until};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);

/// A command with an operator's token.
fn operate(server: &Server, folder: &Path, args: &[&str]) -> Said {
    std::fs::write(folder.join("ops.token"), secret("ops")).expect("writes");
    server.ask(folder, &[args, &["--token-file", "ops.token"]].concat())
}

fn get(server: &Server, path: &str) -> Value {
    let (status, found) = ask_json(server, "ops", "GET", path, None);
    assert_eq!(status, 200, "{found}");
    found
}

fn waits_for(server: &Server, job: &str, code: &str) -> Value {
    let mut reason = Value::Null;
    until(code, SOON, || {
        reason = get(server, &format!("/v1/jobs/{job}/why"))["reason"].clone();
        if reason["code"] == code { Ok(()) } else { Err(format!("{job}: {reason}")) }
    });
    reason
}

fn metric(server: &Server, line: &str) -> bool {
    let bearer = format!("Bearer {}", secret("ops"));
    let (_, text) = server.send("GET", "/metrics", &[("authorization", &bearer)], b"");
    text.lines().any(|one| one == line)
}

#[test]
fn what_is_stopped_is_told_with_who_and_why_and_survives_a_restart() {
    let folder = prepared();
    let server = start(folder.path(), &[]);
    let said = operate(&server, folder.path(), &["pause", "buying", "--why", "the bill <doubled>", "--until", "2h"]);
    assert!(said.code == 0 && said.out.contains("buying") && said.out.contains("ops"), "{} {}", said.out, said.err);
    submit(&server, "team-a", &submission("waits", "open", 36_000));
    let reason = waits_for(&server, "waits", "BuyingPaused");
    assert_eq!((&reason["figures"]["by"], &reason["figures"]["why"]), (&json!("ops"), &json!("the bill <doubled>")));
    assert!(reason["eta_s"].as_f64().is_some_and(|eta| (7_000.0..=7_200.0).contains(&eta)), "{reason}");
    assert_eq!(get(&server, "/v1/nodes")["nodes"], json!([]));
    server.kill();

    let server = start(folder.path(), &[]);
    waits_for(&server, "waits", "BuyingPaused");
    let brakes = get(&server, "/v1/brakes")["brakes"].clone();
    assert_eq!(
        (&brakes[0]["brake"], &brakes[0]["by"], brakes.as_array().map(Vec::len)),
        (&json!("buying"), &json!("ops"), Some(1))
    );
    assert_eq!(get(&server, "/v1/summary")["brakes"], brakes);
    assert!(metric(&server, "forebay_brakes{kind=\"buying\"} 1"));
    let bearer = format!("Bearer {}", secret("ops"));
    let (_, page) = server.send("GET", "/", &[("authorization", &bearer)], b"");
    assert!(page.contains("Stopped by operators") && page.contains("the bill &lt;doubled&gt;"), "{page}");
    let said = operate(&server, folder.path(), &["resume", "buying"]);
    assert!(said.out.contains("nothing is stopped"), "{} {}", said.out, said.err);
    until("it has a node", SOON, || match get(&server, "/v1/nodes")["nodes"].as_array().map_or(0, Vec::len) {
        0 => Err("none".to_owned()),
        _ => Ok(()),
    });
    let said = operate(&server, folder.path(), &["resume", "buying"]);
    assert!(said.code != 0 && said.err.contains("is not stopped"), "{} {}", said.out, said.err);
}

#[test]
fn a_thousand_submissions_buy_nothing_while_buying_is_paused_and_running_work_goes_on() {
    let folder = prepared();
    // Boots take seconds there.
    let server = fast(folder.path());
    submit(&server, "team-a", &submission("runs", "open", 200_000));
    let phase = |job: &str| get(&server, &format!("/v1/jobs/{job}"))["phase"].clone();
    until("it runs", SOON, || {
        let now = phase("runs");
        if now == "running" { Ok(()) } else { Err(now.to_string()) }
    });
    let before = get(&server, "/v1/nodes")["nodes"].clone();
    assert_eq!(operate(&server, folder.path(), &["pause", "buying"]).code, 0);
    for at in 0..10 {
        let events: Vec<Value> = (0..100).map(|n| submission(&format!("j{at}-{n}"), "open", 200_000)).collect();
        let (status, taken) = ask_json(&server, "team-a", "POST", "/v1/events", Some(&json!(events)));
        assert_eq!(status, 202, "{taken}");
    }
    waits_for(&server, "j9-0", "BehindInQueue");
    let instances = |nodes: &Value| -> Vec<Value> {
        nodes.as_array().into_iter().flatten().map(|node| node["instance"].clone()).collect()
    };
    assert_eq!(instances(&get(&server, "/v1/nodes")["nodes"]), instances(&before));
    assert_eq!(phase("runs"), "running");
    assert!(metric(&server, "forebay_jobs_held_back 0"));
    assert_eq!(operate(&server, folder.path(), &["pause", "admission"]).code, 0);
    waits_for(&server, "j9-0", "AdmissionPaused");
    // What was free has been used before.
    let waiting = get(&server, "/v1/jobs?phase=queued&limit=5000")["jobs"].as_array().map_or(0, Vec::len);
    assert!(waiting >= 900, "{waiting} wait");
    assert!(metric(&server, &format!("forebay_jobs_held_back {waiting}")), "{waiting} wait");
    assert_eq!(phase("runs"), "running");
}

#[test]
fn queues_are_held_nodes_and_pools_drained_and_names_that_are_nearly_right_are_helped() {
    let folder = prepared();
    let server = start(folder.path(), &[]);
    let said = operate(&server, folder.path(), &["hold", "open", "--why", "audit"]);
    assert_eq!(said.code, 0, "{}", said.err);
    submit(&server, "team-a", &submission("held", "open", 36_000));
    let reason = waits_for(&server, "held", "QueueHeld");
    assert_eq!(reason["figures"]["why"], "audit");
    let queues = get(&server, "/v1/queues")["queues"].clone();
    let held = queues.as_array().into_iter().flatten().find(|queue| queue["queue"] == "open").expect("it is there");
    assert_eq!(held["held"]["by"], "ops");
    assert!(operate(&server, folder.path(), &["queues"]).out.contains("HELD BY"));
    // Who may not submit there does not see that it is held.
    let (_, own) = ask_json(&server, "watcher", "GET", "/v1/brakes", None);
    assert!(own["brakes"].is_array(), "{own}");
    assert_eq!(operate(&server, folder.path(), &["release", "open"]).code, 0);
    let mut node = Value::Null;
    until("a node", SOON, || {
        node = get(&server, "/v1/nodes")["nodes"][0].clone();
        if node["instance"].is_string() { Ok(()) } else { Err(node.to_string()) }
    });
    let name = node["node"].as_str().expect("a name");
    let said = operate(&server, folder.path(), &["drain", node["instance"].as_str().expect("an id"), "--until", "1h"]);
    assert!(said.out.contains(name), "{} {}", said.out, said.err);
    until("another node", SOON, || {
        let nodes = get(&server, "/v1/nodes")["nodes"].clone();
        let others = nodes.as_array().into_iter().flatten().filter(|one| one["node"] != name).count();
        if others > 0 { Ok(()) } else { Err(nodes.to_string()) }
    });
    for (args, told) in [
        (vec!["hold", "opne"], "did you mean `open`?"),
        (vec!["drain", "nothing-of-this-name"], "there is no pool or node"),
        (vec!["pause", "all", "--until", "yesterday"], "is no time"),
        (vec!["pause", "all", "--until", "2020-01-01T00:00:00Z"], "is over"),
    ] {
        let said = operate(&server, folder.path(), &args);
        assert!(said.code != 0 && said.err.contains(told), "{args:?}: {} {}", said.out, said.err);
    }
}

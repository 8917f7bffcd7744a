//! Every role and none, on every path and with every verb: what docs/API.md says, exactly.

use crate::many;
use crate::wire::{head, send, status};
use forebay_integration::teams::{ask, prepared, secret, start, submission, submit, write};
use forebay_integration::{Server, root};
use serde_json::json;
use std::collections::BTreeMap;

/// A token of each role, by its name in `teams`.
const ROLES: [(&str, &str); 5] =
    [("submit", "pusher"), ("read", "watcher"), ("operate", "ops"), ("metrics", "scraper"), ("agent", "node")];

const VERBS: [&str; 8] = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "HEAD"];

/// Who may ask for what, by the table in docs/API.md: path -> (verb, roles; none: everybody).
fn documented() -> BTreeMap<String, (String, Vec<String>)> {
    let page = std::fs::read_to_string(root().join("docs/API.md")).expect("reads");
    let (_, table) = page.split_once("| path | verb | roles |\n| --- | --- | --- |\n").expect("the table of roles");
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    let cells =
        rows.map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().replace('`', "")).collect::<Vec<_>>());
    let row = |cells: Vec<String>| {
        let [path, verb, roles] = <[String; 3]>::try_from(cells).expect("three cells");
        let roles = roles.split(", ").filter(|role| *role != "everybody").map(str::to_owned).collect();
        (path, (verb, roles))
    };
    cells.map(row).collect()
}

#[test]
fn the_table_names_every_path() {
    let source = std::fs::read_to_string(root().join("controller/src/api/mod.rs")).expect("reads");
    let mut routed: Vec<&str> = source.split(".route(\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    routed.sort_unstable();
    assert_eq!(routed, documented().keys().map(String::as_str).collect::<Vec<_>>());
}

/// A documented path as it is asked for: of the job `x`, and without what would go on for ever.
fn address(path: &str) -> String {
    path.replace("{id}", "x").replace("{name}", "page.js")
        + if path.contains("status") || path.contains("/events") { "?follow=false" } else { "" }
}

/// The status of a request, by a token or none.
fn tried(server: &Server, name: Option<&str>, verb: &str, path: &str) -> u16 {
    let path = address(path);
    let body = if path.starts_with("/v1/agent") {
        json!({ "instance": "i-0", "kind": "interruption", "sequence": 1, "start": 1, "since": 0, "source": "nvml", "workers": [] })
    } else if path.ends_with("/confirm-dead") {
        json!({ "attempt": 7, "workers": [0] })
    } else if path == "/v1/policy/set" {
        // For an operator: the file that the server was started with owns the policy.
        json!({})
    } else if path.starts_with("/v1/brakes") {
        json!({ "brake": "preemption" })
    } else {
        submission("y", "open", 36_000)
    };
    let bearer = name.map(|name| format!("Bearer {}", secret(name)));
    let mut headers = vec![("content-type", "application/json")];
    headers.extend(bearer.as_deref().map(|bearer| ("authorization", bearer)));
    let body = if verb == "POST" { body.to_string() } else { String::new() };
    server.send(verb, &path, &headers, body.as_bytes()).0
}

#[test]
fn each_role_may_do_what_the_table_says_and_nothing_else() {
    let folder = prepared();
    let server = start(folder.path(), &[]);
    submit(&server, "team-a", &submission("x", "open", 36_000));
    let mut tries = 0;
    for _ in 0..many(1, 3) {
        for (path, (verb, roles)) in documented() {
            for asked in VERBS {
                for (role, name) in ROLES.map(|(role, name)| (Some(role), Some(name))).into_iter().chain([(None, None)])
                {
                    let status = tried(&server, name, asked, &path);
                    tries += 1;
                    let open = roles.is_empty();
                    let may = role.is_some_and(|role| role == "operate" || roles.iter().any(|may| may == role));
                    let what = format!("{asked} {path} as {role:?}: {status}");
                    match () {
                        () if asked != verb && (asked, verb.as_str()) != ("HEAD", "GET") => {
                            assert_eq!(status, 405, "{what}");
                        }
                        () if open => assert_eq!(status, 200, "{what}"),
                        () if role.is_none() => assert_eq!(status, 401, "{what}"),
                        // What may be asked may still not be there: an instance, a cluster with logs, an order for a job twice.
                        () if may => assert!(matches!(status, 200..300 | 404 | 409), "{what}"),
                        () => assert_eq!(status, 403, "{what}"),
                    }
                }
            }
        }
    }
    println!("{tries} tries of every role and none on every path and verb");
    assert!(tries >= 500);
}

#[test]
fn a_head_is_answered_as_a_get_without_its_body() {
    let folder = prepared();
    let server = start(folder.path(), &[]);
    submit(&server, "team-a", &submission("x", "open", 36_000));
    for (path, (verb, _)) in documented() {
        let asked = |with: &str| {
            let line = format!("{with} {}", address(&path));
            let text = send(&server, head("ops", &line, "connection: close\r\n").as_bytes());
            let (top, body) = text.split_once("\r\n\r\n").unwrap_or((text.as_str(), ""));
            let kind = top.lines().find(|line| line.starts_with("content-type: ")).map(str::to_owned);
            (status(&text), kind, body.to_owned())
        };
        let ((got, kind, _), (told, same, body)) = (asked("GET"), asked("HEAD"));
        assert_eq!((got, kind, ""), (told, same, body.as_str()), "{path}");
        assert_eq!(got == 405, verb == "POST", "{path}: {got}");
    }
}

#[test]
fn an_agents_token_speaks_of_its_own_nodes_alone() {
    let folder = prepared();
    let config = std::fs::read_to_string(folder.path().join("forebay.yaml")).expect("reads");
    let config = config.replace(
        "name: node, tenant: default, roles: [agent],",
        "name: node, tenant: default, roles: [agent], instances: [i-1],",
    );
    write(folder.path(), "forebay.yaml", &config);
    let server = start(folder.path(), &[]);
    for (path, kind) in [("hello", json!({})), ("notices", json!({ "kind": "interruption" }))] {
        for (instance, expected, code) in [("i-1", 404, "UnknownInstance"), ("i-2", 403, "OtherNode")] {
            let mut body = kind.clone();
            body["instance"] = json!(instance);
            let (status, text) = ask(&server, "node", "POST", &format!("/v1/agent/{path}"), Some(&body));
            assert!(status == expected && text.contains(code), "{path} {instance}: {status} {text}");
        }
    }
}

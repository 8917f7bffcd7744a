//! Tokens, roles and tenants from outside: what a team may do, and that another team's jobs are not there for it on any path; and that
//! no secret leaves the file that holds it.

use forebay_integration::teams::{ask, ask_json, prepared, start, submission, submit, write};
use forebay_integration::{Server, root, run};
use serde_json::json;

/// Every path of the API, and what it takes.
const PATHS: [(&str, &str); 32] = [
    ("GET", "/"),
    ("GET", "/money"),
    ("GET", "/assets/{name}"),
    ("POST", "/v1/events"),
    ("GET", "/v1/jobs"),
    ("GET", "/v1/jobs/{id}"),
    ("POST", "/v1/jobs/{id}/cancel"),
    ("POST", "/v1/jobs/{id}/confirm-dead"),
    ("GET", "/v1/jobs/{id}/why"),
    ("GET", "/v1/jobs/{id}/cost"),
    ("GET", "/v1/jobs/{id}/logs"),
    ("GET", "/v1/jobs/{id}/events"),
    ("GET", "/v1/queues"),
    ("GET", "/v1/nodes"),
    ("GET", "/v1/sources"),
    ("GET", "/v1/cost"),
    ("GET", "/v1/cost/focus"),
    ("GET", "/v1/policy"),
    ("GET", "/v1/policy/history"),
    ("POST", "/v1/policy/set"),
    ("GET", "/v1/brakes"),
    ("POST", "/v1/brakes/set"),
    ("POST", "/v1/brakes/release"),
    ("GET", "/v1/state"),
    ("GET", "/v1/summary"),
    ("GET", "/v1/status"),
    ("POST", "/v1/agent/hello"),
    ("POST", "/v1/agent/notices"),
    ("POST", "/v1/agent/activity"),
    ("GET", "/metrics"),
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
        let path = path.replace("{id}", "x").replace("{name}", "page.js")
            + if path.contains("status") || path.contains("/events") { "?follow=false" } else { "" };
        let open = path == "/healthz" || path == "/readyz" || path.starts_with("/assets/");
        for sent in [None, Some("Bearer wrong-0123456789"), Some("Bearer"), Some("Basic eDp5")] {
            let headers: Vec<(&str, &str)> = sent.map(|s| ("authorization", s)).into_iter().collect();
            let (status, text) = server.send(method, &path, &headers, b"");
            assert_eq!(status, if open { 200 } else { 401 }, "{method} {path} {sent:?}: {text}");
            assert!(open || text.contains("--token-file"), "{text}");
        }
        let needs = match (method, path.as_str()) {
            (_, "/healthz" | "/readyz" | "/assets/page.js") => continue,
            (_, "/v1/agent/hello" | "/v1/agent/notices" | "/v1/agent/activity") => "agent",
            (_, "/v1/state" | "/v1/sources" | "/v1/jobs/x/confirm-dead") => "operate",
            (_, path) if path.starts_with("/v1/policy") => "operate",
            ("POST", path) if path.starts_with("/v1/brakes/") => "operate",
            ("POST", _) => "submit",
            _ => "read",
        };
        for (name, roles) in
            [("pusher", "submit"), ("watcher", "read"), ("node", "agent"), ("scraper", "metrics"), ("ops", needs)]
        {
            let body = match needs {
                "agent" => {
                    Some(json!({ "instance": "i-0", "kind": "interruption", "start": 1, "sequence": 1, "since": 0,
                    "source": "nvml", "workers": [] }))
                }
                "operate" if path.starts_with("/v1/brakes/") => Some(json!({ "brake": "preemption" })),
                "operate" if method == "POST" => Some(json!({ "attempt": 7, "workers": [0] })),
                _ => (path.starts_with("/v1/events")).then(|| submission("y", "open", 36_000)),
            };
            let (status, text) = ask(&server, name, method, &path, body.as_ref());
            if roles == needs && needs == "agent" {
                assert!(status == 404 && text.contains("UnknownInstance"), "{name}: {method} {path}: {status} {text}");
            } else if roles == needs && path.ends_with("/confirm-dead") {
                assert!(status == 409 && text.contains("NotAlive"), "{name}: {method} {path}: {status} {text}");
            } else if roles == needs && path == "/v1/policy/set" {
                assert!(status == 409 && text.contains("FileOwned"), "{name}: {method} {path}: {status} {text}");
            } else if roles == needs && path.ends_with("/logs") {
                assert!(status == 404 && text.contains("NoCluster"), "{name}: {method} {path}: {status} {text}");
            } else if roles == needs || roles == "metrics" && path == "/metrics" {
                assert!((200..300).contains(&status), "{name}: {method} {path}: {status} {text}");
            } else {
                assert_eq!(status, 403, "{name}: {method} {path}: {text}");
                assert!(text.contains("RoleMissing") && text.contains(&format!("`{needs}`")), "{text}");
            }
        }
    }
    for (path, scheme) in [("/", "Basic"), ("/money", "Basic"), ("/v1/jobs", "Bearer")] {
        assert!(challenge(&server, path).starts_with(scheme), "{path} says how to come");
    }
    let basic = [("authorization", "Basic dGVhbS1hOnRlYW0tYS0wMTIzNDU2Nzg5LXh5enp5")];
    assert_eq!(server.send("GET", "/", &basic, b"").0, 200, "the page takes the token as a password");
    assert_eq!(server.send("GET", "/v1/jobs", &basic, b"").0, 401);
}

/// How a path wants to be asked, by its `WWW-Authenticate`.
fn challenge(server: &Server, path: &str) -> String {
    let config = ureq::Agent::config_builder().http_status_as_error(false).proxy(None).build();
    let answer = ureq::Agent::from(config).get(format!("{}{path}", server.url)).call().expect("an answer");
    answer.headers()["www-authenticate"].to_str().expect("text").to_owned()
}

/// An answer without the name that was asked for.
fn same(text: &str, name: &str) -> String {
    text.replace(name, "NAME")
}

#[test]
fn another_teams_jobs_are_not_there_on_any_path() {
    let folder = prepared();
    let server = start(folder.path(), &[]);
    let hidden = submit(&server, "team-b", &submission("b-model", "b", 36_000));
    let _ = submit(&server, "team-a", &submission("a-model", "a", 36_000));
    let there = |text: &str| text.contains("b-model") || text.contains(&format!("\"{hidden}\""));
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
}

#[test]
fn another_teams_jobs_can_be_neither_cancelled_nor_taken_over() {
    let folder = prepared();
    let server = start(folder.path(), &[]);
    let hidden = submit(&server, "team-b", &submission("b-model", "b", 36_000));
    let there = |text: &str| text.contains("b-model") || text.contains(&format!("\"{hidden}\""));
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
}

#[test]
fn a_tenant_a_queues_submitters_and_operators_see_what_is_theirs() {
    let folder = prepared();
    let server = start(folder.path(), &[]);
    let hidden = submit(&server, "team-b", &submission("b-model", "b", 36_000));
    let own = submit(&server, "team-a", &submission("a-model", "a", 36_000));
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
fn an_operator_names_no_job_by_a_subject_that_several_tenants_have() {
    let folder = prepared();
    let server = start(folder.path(), &[]);
    let own = submit(&server, "team-a", &submission("train", "open", 36_000));
    let (_, found) = ask_json(&server, "night-ops", "GET", "/v1/jobs/train", None);
    assert_eq!(found["job"], json!(own), "it is the only one of that name");
    let other = submit(&server, "stranger", &submission("train", "open", 36_000));
    for (method, path) in [("POST", "/v1/jobs/train/cancel"), ("GET", "/v1/jobs/train"), ("GET", "/v1/jobs/train/why")]
    {
        let (status, text) = ask(&server, "night-ops", method, path, None);
        let both = [&own, &other].iter().all(|id| text.contains(&format!("#{}", id.trim_start_matches("job-"))));
        assert!(status == 409 && text.contains("SeveralJobs") && both, "{path}: {status} {text}");
    }
    let (status, _) = ask(&server, "night-ops", "POST", &format!("/v1/jobs/{other}/cancel"), None);
    assert_eq!(status, 202);
    let (_, kept) = ask_json(&server, "team-a", "GET", "/v1/jobs/train", None);
    assert_ne!(kept["phase"], "cancelled", "{kept}");
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
        "/money",
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
    let (mut read, mut folders) = (0, vec![folder.path().join("d")]);
    let mut paths = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("the journal's folder and those in it") {
            let path = entry.expect("an entry").path();
            if path.is_dir() { folders.push(path) } else { paths.push(path) }
        }
    }
    for path in paths {
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

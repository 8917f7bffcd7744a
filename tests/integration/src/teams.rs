//! Two teams, a stranger, an operator of theirs, one of no team, a node's agent and monitoring, each with a token: a folder with their configuration, and requests in their names.
//!
//! Never: a token that Forebay might write by itself; tests look for it where it must not be.

use crate::Server;
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

/// Name, tenant, roles. The secret of `ops` comes from the environment.
const TOKENS: [(&str, &str, &str); 10] = [
    ("team-a", "default", "[submit, read]"),
    ("team-b", "default", "[submit, read]"),
    ("team-b2", "default", "[submit, read]"),
    ("stranger", "elsewhere", "[submit, read]"),
    ("pusher", "default", "[submit]"),
    ("watcher", "default", "[read]"),
    ("ops", "default", "[operate]"),
    ("night-ops", "nobody", "[operate]"),
    ("node", "default", "[agent]"),
    ("scraper", "default", "[metrics]"),
];

/// The token of a name. Nothing that Forebay would ever write by itself.
#[must_use]
pub fn secret(name: &str) -> String {
    format!("{name}-0123456789-xyzzy")
}

/// Writes a file.
///
/// # Panics
/// When it cannot.
pub fn write(folder: &Path, name: &str, text: &str) {
    std::fs::write(folder.join(name), text).expect("writes");
}

/// A folder with policy, tokens and configuration.
///
/// # Panics
/// When it cannot be written.
#[must_use]
pub fn prepared() -> TempDir {
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

/// A server with this configuration, under the real clock.
#[must_use]
pub fn start(folder: &Path, more: &[&str]) -> Server {
    // A folder may have been replayed into, whose time is its file's.
    let args = [&["--config", "forebay.yaml", "--accept-time"], more].concat();
    Server::start_with(folder, &args, &[("OPS_TOKEN", &secret("ops")), ("FOREBAY_LOG", "debug")])
}

/// A server whose time goes 600 times as fast.
#[must_use]
pub fn fast(folder: &Path) -> Server {
    let first = json!({ "type": "job.submitted", "subject": "first", "time": "2026-11-02T00:00:00Z",
        "data": { "queue": "open", "gang": { "each": { "gpus": 1 } }, "simulation": { "durationS": 1 } } });
    write(folder, "first.jsonl", &format!("{first}\n"));
    start(folder, &["--replay", "first.jsonl", "--speed", "600"])
}

/// A request with somebody's token.
#[must_use]
pub fn ask(server: &Server, name: &str, method: &str, path: &str, body: Option<&Value>) -> (u16, String) {
    ask_at(&server.url, name, method, path, body)
}

/// The same of whatever serves at this address.
#[must_use]
pub fn ask_at(url: &str, name: &str, method: &str, path: &str, body: Option<&Value>) -> (u16, String) {
    let bearer = format!("Bearer {}", secret(name));
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let body = body.map(Value::to_string).unwrap_or_default();
    crate::send(url, method, path, &headers, body.as_bytes())
}

/// The same, as JSON.
///
/// # Panics
/// When the answer is none.
#[must_use]
pub fn ask_json(server: &Server, name: &str, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
    let (status, text) = ask(server, name, method, path, body);
    (status, serde_json::from_str(&text).unwrap_or_else(|e| panic!("{method} {path}: {e} in {text}")))
}

/// A job of one GPU.
#[must_use]
pub fn submission(subject: &str, queue: &str, duration_s: u32) -> Value {
    json!({ "type": "job.submitted", "subject": subject,
        "data": { "queue": queue, "gang": { "each": { "gpus": 1 } }, "simulation": { "durationS": duration_s } } })
}

/// Submits as somebody: the job's number.
///
/// # Panics
/// When it is not taken.
pub fn submit(server: &Server, name: &str, event: &Value) -> String {
    let (status, taken) = ask_json(server, name, "POST", "/v1/events", Some(event));
    assert_eq!(status, 202, "{taken}");
    taken["accepted"][0]["job"].as_str().expect("a job").to_owned()
}

//! What is sent that must not be taken, and the code that it is rejected with.
//!
//! Never: two cases with the same bytes.

use crate::broker::Sent;
use crate::support::job;
use serde_json::{Value, json};

/// The largest message that SQS takes.
pub const MOST_SQS: usize = 1 << 20;

/// What must be nowhere but in the original bytes.
pub const SECRETS: [&str; 3] = ["hunter2-the-password", "AKIAIOSFODNN7EXAMPLE", "MIIEvQIBADANBgkqhkiG"];

/// One sort of bad event.
pub struct Case {
    pub code: &'static str,
    pub event: Sent,
}

fn case(code: &'static str, body: impl Into<Vec<u8>>) -> Case {
    Case { code, event: Sent::body(body) }
}

/// A job with something else in one place.
fn with(tag: &str, name: &str, code: &'static str, at: &str, value: Value) -> Case {
    let mut event = job(&format!("{name}, {tag}"), "a");
    let (parent, field) = at.rsplit_once('/').expect("a pointer");
    let parent = event.pointer_mut(parent).expect("a parent");
    parent[field] = value;
    case(code, event.to_string())
}

fn headers(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// A good one whose attributes are beside its body.
pub fn good_in_binary_mode(subject: &str) -> Sent {
    let data = job(subject, "a")["data"].to_string();
    let headers = headers(&[
        ("ce_specversion", "1.0"),
        ("ce_type", "job.submitted"),
        ("ce_source", "//tests"),
        ("ce_id", subject),
        ("ce_subject", subject),
        ("content-type", "application/json"),
    ]);
    Sent { headers, ..Sent::body(data) }
}

/// All of them; jobs among them are told apart by the tag.
pub fn cases(tag: &str) -> Vec<Case> {
    let mut all = no_json();
    all.extend(no_job(tag));
    all.extend(forbidden(tag));
    all.extend(hostile_queues(tag));
    all.extend(binary());
    all
}

fn no_json() -> Vec<Case> {
    let large = format!("{{\"type\":\"job.submitted\",\"subject\":\"{}\"}}", "x".repeat(10 << 20));
    let beyond = format!("{{\"type\":\"job.submitted\",\"subject\":\"{}\"}}", "x".repeat(900 << 10));
    let deep = format!("{{\"type\":\"job.submitted\",\"data\":{}{}}}", "[".repeat(5_000), "]".repeat(5_000));
    vec![
        Case { code: "Malformed", event: Sent { key: Some("job".to_owned()), ..Sent::default() } },
        case("Malformed", "  "),
        case("Malformed", "hello"),
        case("Malformed", "{\"type\":\"job.submitted\",\"data\":{"),
        case("Malformed", "{\"type\":\"job.cancelled\",\"subject\":\"x\"} {}"),
        case("Malformed", "[{\"type\":\"job.cancelled\",\"subject\":\"x\"}]"),
        case("Malformed", b"{\"type\":\"job.submitted\",\"subject\":\"\xff\xfe\xc3\x28\"}".to_vec()),
        case("Malformed", "{\"type\":\"job.cancelled\",\"subject\":\"x\",\"subject\":\"y\"}"),
        case("Malformed", deep),
        case("TooLarge", large),
        // Large, and its text is too long for a subject; as JSON in JSON it may be too long for a sink.
        case("BadValue", beyond),
    ]
}

fn no_job(tag: &str) -> Vec<Case> {
    vec![
        with(tag, "no type", "Missing", "/type", Value::Null),
        with(tag, "a number for a type", "BadValue", "/type", json!(7)),
        with(tag, "unknown type", "UnknownType", "/type", json!("job.exploded")),
        with(tag, "no subject", "Missing", "/subject", Value::Null),
        with(tag, "control characters in the subject", "BadValue", "/subject", json!("a\u{0}b\nc\u{7f}")),
        with(tag, "a text for a gang", "BadValue", "/data/gang", json!("two GPUs")),
        with(tag, "a gang of zero", "BadValue", "/data/gang/workers", json!(0)),
        with(tag, "workers that ask for nothing", "BadValue", "/data/gang/each", json!({ "gpus": 0 })),
        with(tag, "a fraction of a worker", "BadValue", "/data/gang/workers", json!(1.5)),
        with(tag, "a checkpoint that is no address", "BadValue", "/data/checkpoint", json!({ "uri": "/tmp/here" })),
        with(tag, "a checkpoint without a bucket", "BadValue", "/data/checkpoint", json!({ "uri": "s3://" })),
        with(tag, "a time without a unit", "BadValue", "/data/maxRun", json!(7)),
        with(tag, "later CloudEvents", "FutureVersion", "/specversion", json!("2.0")),
        with(tag, "later schema", "FutureVersion", "/dataschema", json!("urn:forebay:job.submitted:2")),
        with(tag, "another type's schema", "BadValue", "/dataschema", json!("urn:forebay:job.cancelled:1")),
    ]
}

fn forbidden(tag: &str) -> Vec<Case> {
    let report = |job: &str, token: &str| {
        json!({ "type": "run.completed", "data": { "job": job, "attempt": 1, "token": token } }).to_string()
    };
    let [password, key, pem] = SECRETS;
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{pem}\n-----END PRIVATE KEY-----");
    vec![
        with(tag, "another team's queue", "ForbiddenQueue", "/data/queue", json!("b")),
        with(tag, "no such queue", "UnknownQueue", "/data/queue", json!("nowhere")),
        with(tag, "a password", "Inline", "/data/run", json!({ "env": { "DB_PASSWORD": password } })),
        with(tag, "a key of AWS", "Inline", "/data/run", json!({ "args": ["--key", key] })),
        with(tag, "a key in a label", "Inline", "/data/labels", json!({ key: "x" })),
        with(tag, "a private key", "Inline", "/data/run", json!({ "env": { "TLS": pem } })),
        with(
            tag,
            "a secret's value for its name",
            "Inline",
            "/data/run",
            json!({ "secrets": [format!("{password}=1")] }),
        ),
        with(tag, "a pod", "Inline", "/data/run", json!({ "containers": [{ "image": "x" }] })),
        case("Token", report("job-1", "0123456789abcdef0123456789abcdef")),
        case("Token", report("job-1", "")),
        case("BadValue", report("17", "0123456789abcdef0123456789abcdef")),
    ]
}

fn hostile_queues(tag: &str) -> Vec<Case> {
    let queue = |name, code, text: &str| with(tag, name, code, "/data/queue", json!(text));
    vec![
        queue("a newline in the queue", "BadValue", "a\nlevel=ERROR forged log line"),
        queue("control characters in the queue", "BadValue", "a\u{1b}[31m\u{0}\u{8}"),
        queue("marks of direction in the queue", "BadValue", "a\u{202e}b"),
        queue("quotes in the queue", "UnknownQueue", "a'\"; DROP TABLE batches; --"),
        queue("a queue of 10 kB", "BadValue", &"q".repeat(10_000)),
        queue("a path out of the queues", "UnknownQueue", "../../etc/passwd"),
        queue("an empty queue", "BadValue", ""),
    ]
}

fn binary() -> Vec<Case> {
    let with = |name, code, change: &[(&str, &str)], body: &str| {
        let mut event = Sent { body: Some(body.into()), ..good_in_binary_mode(name) };
        for (header, value) in change {
            event.headers.retain(|(known, _)| known != header);
            event.headers.push(((*header).to_owned(), (*value).to_owned()));
        }
        Case { code, event }
    };
    let good = job("x", "a")["data"].to_string();
    vec![
        with("binary without data that is JSON", "Malformed", &[], "{\"gang\":"),
        with("binary of a later version", "FutureVersion", &[("ce_specversion", "1.1")], &good),
        with("binary of an unknown type", "UnknownType", &[("ce_type", "job.exploded")], &good.replace("0.05", "0.06")),
        with("binary with a gang of zero", "BadValue", &[], "{\"gang\":{\"workers\":0,\"each\":{\"cpu\":1}}}"),
    ]
}

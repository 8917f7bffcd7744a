//! Two teams, three ways in: team A can neither submit to team B's queue, nor stop, take over, speed up or read what is B's, whichever
//! way A comes and whichever way B came. And two tenants may use one name.
//!
//! Never: a job of B's that ends other than as B wants.

use crate::broker::{self, Sent};
use crate::queue;
use crate::support::{In, Stage, Wire, ended, job, original, run_token, unique, wait_until};
use forebay_integration::Server;
use forebay_integration::teams::{ask, ask_json};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// How events come in.
const WAYS: [&str; 3] = ["kafka", "sqs", "http"];

/// What B has of each way it came by: one that waits, one that runs for ever, one that is over, and a service without demand.
const KINDS: [&str; 4] = ["waits", "runs", "done", "service"];

/// Both teams' topics and queues, and the controller between.
struct Teams {
    stage: Stage,
    server: Server,
    topics: [String; 2],
    queues: [(String, String); 2],
    /// Statuses that there were before it started.
    before: usize,
}

/// A's attempts that must be among the rejected: the source's name, the code, and the bytes.
type Attempts = Vec<(String, &'static str, Vec<u8>)>;

impl Teams {
    fn start() -> (Teams, String) {
        let topics = ["jobs-a", "jobs-b", "jobs-c"].map(unique);
        topics.iter().for_each(|topic| broker::create(topic, 2));
        let queues = ["jobs-a", "jobs-b"].map(unique).map(|name| (queue::create(&name), name));
        let elsewhere = In { name: topics[2].clone(), principal: "team-c", tenant: "elsewhere" };
        let kafka = Wire {
            read: vec![In::of(&topics[0], "team-a"), In::of(&topics[1], "team-b"), elsewhere],
            ..Wire::default()
        };
        let read = vec![In::of(&queues[0].1, "team-a"), In::of(&queues[1].1, "team-b")];
        let stage = Stage::new(&kafka, &Wire { read, ..Wire::default() });
        let (before, server) = (stage.statuses().len(), stage.start());
        let [a, b, c] = topics;
        (Teams { stage, server, topics: [a, b], queues, before }, c)
    }

    /// Sends as a team; over HTTP the answer.
    fn send(&self, team: usize, way: &str, event: &Value) -> Option<(u16, Value)> {
        match way {
            "kafka" => broker::send(&self.topics[team], &[Sent::body(event.to_string())]),
            "sqs" => queue::send(&self.queues[team].0, &event.to_string(), &[]).expect("sent"),
            _ => return Some(ask_json(&self.server, ["team-a", "team-b"][team], "POST", "/v1/events", Some(event))),
        }
        None
    }

    /// B sends, and is not refused.
    fn as_b(&self, way: &str, event: &Value) {
        let answer = self.send(1, way, event);
        assert!(answer.as_ref().is_none_or(|(status, _)| *status == 202), "{answer:?} to {event}");
    }

    /// A sends what is told to be refused with `code`. Over HTTP `told` says whether that is told: what is hidden is as if not there.
    fn as_a(&self, way: &str, event: &Value, code: &'static str, told: bool, attempts: &mut Attempts) {
        let source = match way {
            "kafka" => format!("kafka:{}/", self.topics[0]),
            "sqs" => format!("sqs:{}", self.queues[0].1),
            _ => String::new(),
        };
        match self.send(0, way, event) {
            None => attempts.push((source, code, event.to_string().into_bytes())),
            Some((status, answer)) if told => {
                assert_eq!((status, &answer["error"]["code"]), (400, &json!(code)), "{event}");
            }
            Some((status, answer)) => {
                assert_eq!((status, &answer["accepted"][0]["job"]), (202, &Value::Null), "{event}: {answer}");
            }
        }
    }

    /// What B sees of a job of its own.
    fn look(&self, subject: &str) -> Value {
        let (status, found) = ask_json(&self.server, "team-b", "GET", &format!("/v1/jobs/{subject}"), None);
        if status == 200 { found } else { Value::Null }
    }

    /// Waits until a job has said so.
    fn wait_for(&self, subject: &str, kind: &str) {
        wait_until(&format!("{kind} of {subject}"), || {
            let said = self.stage.statuses();
            let is = |s: &Value| s["subject"] == subject && s["type"] == format!("status.{kind}");
            said.iter().any(is).then_some(()).ok_or_else(|| format!("{} statuses", said.len()))
        });
    }
}

fn lasting(subject: &str, queue: &str) -> Value {
    let mut event = job(subject, queue);
    event["data"]["simulation"]["durationS"] = json!(36_000);
    event
}

fn one_gpu(mut event: Value) -> Value {
    event["data"]["gang"]["each"] = json!({ "gpus": 1 });
    event
}

fn service(subject: &str) -> Value {
    let mut event = job(subject, "b");
    event["data"]["service"] = json!({ "min": 0, "max": 8, "target": 1 });
    event
}

/// B's jobs, by every way.
fn b_submits(teams: &Teams) {
    teams.as_b("kafka", &one_gpu(lasting("b-holder", "b-one")));
    teams.wait_for("b-holder", "started");
    for way in WAYS {
        teams.as_b(way, &one_gpu(job(&format!("b-{way}-waits"), "b-one")));
        teams.as_b(way, &lasting(&format!("b-{way}-runs"), "b"));
        teams.as_b(way, &job(&format!("b-{way}-done"), "b"));
        teams.as_b(way, &service(&format!("b-{way}-service")));
    }
    for way in WAYS {
        teams.wait_for(&format!("b-{way}-waits"), "queued");
        teams.wait_for(&format!("b-{way}-service"), "queued");
        teams.wait_for(&format!("b-{way}-runs"), "started");
        teams.wait_for(&format!("b-{way}-done"), "completed");
    }
}

/// A tries everything, by every way, against what came by every way.
fn a_tries(teams: &Teams) -> Attempts {
    let mut attempts = Attempts::new();
    for (way, of) in WAYS.iter().flat_map(|way| WAYS.map(|of| (*way, of))) {
        let mut tries = |event: Value, code, told| teams.as_a(way, &event, code, told, &mut attempts);
        tries(job(&format!("intruder-{way}-{of}"), "b"), "ForbiddenQueue", true);
        for kind in KINDS {
            let subject = format!("b-{of}-{kind}");
            tries(json!({ "type": "job.cancelled", "subject": subject }), "ForbiddenQueue", false);
            let mut rerun = job(&subject, "a");
            rerun["data"]["rerun"] = json!(true);
            rerun["data"]["labels"] = json!({ "way": way });
            tries(rerun, "Conflict", true);
        }
        let demand =
            json!({ "type": "service.demand", "subject": format!("b-{of}-service"), "data": { "concurrency": 50 } });
        tries(demand, "ForbiddenQueue", false);
        let number = teams.look(&format!("b-{of}-runs"))["job"].clone();
        let report = json!({ "type": "run.completed",
            "data": { "job": number, "attempt": 1, "token": "0123456789abcdef0123456789abcdef" } });
        tries(report, "Token", true);
        // Nobody knows this one yet, so nobody can refuse it: what it must not do is stop the job that comes later.
        teams.send(0, way, &json!({ "type": "job.cancelled", "subject": format!("b-{way}-{of}-early") }));
    }
    attempts
}

/// Each attempt is among the rejected once, with its bytes, and nothing else is.
fn check_rejected(teams: &Teams, attempts: &Attempts) {
    let lines = wait_until("the rejected", || {
        let lines = teams.stage.rejected();
        if lines.len() >= attempts.len() { Ok(lines) } else { Err(format!("{} of {}", lines.len(), attempts.len())) }
    });
    let mut expected: BTreeMap<(String, &str, Vec<u8>), i64> = BTreeMap::new();
    attempts.iter().for_each(|attempt| *expected.entry(attempt.clone()).or_default() += 1);
    for line in &lines {
        let (source, code, bytes) = (line["source"].as_str().unwrap_or_default(), &line["code"], original(line));
        let key = expected.keys().find(|key| source.starts_with(&key.0) && *code == key.1 && bytes == key.2).cloned();
        let key = key.unwrap_or_else(|| panic!("nobody sent {line}"));
        *expected.entry(key).or_default() -= 1;
    }
    let left: Vec<_> = expected.iter().filter(|(_, n)| **n != 0).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Nothing of B's is there for A on any path.
fn check_reads(teams: &Teams) {
    for (way, kind) in WAYS.iter().flat_map(|way| KINDS.map(|kind| (way, kind))) {
        let subject = format!("b-{way}-{kind}");
        let number = teams.look(&subject)["job"].as_str().expect("B sees it").to_owned();
        for name in [&subject, &number] {
            for (method, path) in [("GET", ""), ("GET", "/why"), ("GET", "/events?follow=false"), ("POST", "/cancel")] {
                let (status, text) = ask(&teams.server, "team-a", method, &format!("/v1/jobs/{name}{path}"), None);
                assert_eq!(status, 404, "{method} {name}{path}: {text}");
            }
        }
    }
    let status = format!("/v1/status?follow=false&after={}", teams.before);
    for path in ["/v1/jobs", &status, "/v1/queues", "/v1/nodes", "/"] {
        let (status, text) = ask(&teams.server, "team-a", "GET", path, None);
        assert!(status == 200 && !WAYS.iter().any(|way| text.contains(&format!("b-{way}-"))), "{path}: {text}");
    }
}

/// B ends what is its own, by the way it came.
fn b_ends(teams: &Teams) {
    let report = |subject: &str| {
        let number = teams.look(subject)["job"].as_str().expect("a job").to_owned();
        let token = run_token(&teams.stage.data, &number, 1);
        json!({ "type": "run.completed", "data": { "job": number, "attempt": 1, "token": token } })
    };
    for way in WAYS {
        for of in WAYS {
            teams.as_b(way, &job(&format!("b-{way}-{of}-early"), "b"));
        }
        teams.as_b(way, &report(&format!("b-{way}-runs")));
        teams.as_b(way, &json!({ "type": "job.cancelled", "subject": format!("b-{way}-service") }));
    }
    teams.as_b("kafka", &report("b-holder"));
}

#[test]
fn a_team_can_neither_touch_nor_see_what_is_anothers_by_any_way() {
    let (teams, elsewhere) = Teams::start();
    b_submits(&teams);
    let attempts = a_tries(&teams);
    check_rejected(&teams, &attempts);
    let (_, jobs) = ask_json(&teams.server, "ops", "GET", "/v1/jobs", None);
    let replicas = jobs["jobs"].as_array().into_iter().flatten().filter(|job| !job["of"].is_null()).count();
    assert_eq!(replicas, 0, "A's demand started a replica");
    check_reads(&teams);
    // Another tenant's job of the same name is another job.
    broker::send(&elsewhere, &[Sent::body(job("b-kafka-done", "open").to_string())]);
    b_ends(&teams);
    let mut expected = BTreeMap::from([
        ("b-holder".to_owned(), "completed"),
        ("elsewhere/b-kafka-done".to_owned(), "completed"),
        ("first".to_owned(), "completed"),
    ]);
    for way in WAYS {
        expected.extend(WAYS.map(|of| (format!("b-{way}-{of}-early"), "completed")));
        expected.extend(["waits", "runs", "done"].map(|kind| (format!("b-{way}-{kind}"), "completed")));
        expected.insert(format!("b-{way}-service"), "cancelled");
    }
    teams.stage.wait_over(&expected.keys().cloned().collect::<BTreeSet<_>>());
    let mut ends = ended(&teams.stage.statuses());
    // Those that A submitted to B's queue ended at once, and nothing else is A's.
    ends.retain(|subject, end| !(subject.starts_with("intruder-") && end == "rejected"));
    assert!(
        ends.iter().map(|(s, end)| (s.as_str(), end.as_str())).eq(expected.iter().map(|(s, e)| (s.as_str(), *e))),
        "{ends:?}"
    );
    assert_eq!(teams.stage.rejected().len(), attempts.len());
    println!(
        "isolation: {} attempts of team A by Kafka and SQS in the rejected events with code and bytes, {} over HTTP answered; \
         {} jobs of team B ended as B wanted",
        attempts.len(),
        attempts.len() / 2,
        ends.len() - 2
    );
}

//! Everything that is no event, or none that may be taken, between good ones, by Kafka and by SQS: each bad one is rejected once with its
//! code and its bytes, on the topic and the queue for them as in the file, and every good one completes. Twice; the second time the
//! controller is killed while it reads.
//!
//! Never: a secret in a log, in a message or in a figure. Where the bytes of a rejected event are kept, they are kept whole.

mod cases;

use crate::broker::{self, Sent};
use crate::queue;
use crate::support::{In, Stage, Wire, ended, job, original, run_token, source, unique, wait_until};
use cases::{Case, MOST_SQS, SECRETS, cases, good_in_binary_mode};
use forebay_integration::Server;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// How many good events of each round are warned of.
const WARNED: u64 = 1;

struct Places {
    stage: Stage,
    topic: String,
    queue: (String, String),
    out: [String; 2],
    out_queues: [String; 2],
}

/// What a round sent: bad ones as the file must have them, and the subjects of good ones.
#[derive(Default)]
struct Round {
    kafka: Vec<(&'static str, Vec<u8>)>,
    sqs: Vec<(&'static str, Vec<u8>)>,
    good: BTreeSet<String>,
    refused_by_sqs: usize,
}

impl Places {
    fn new() -> Places {
        let topic = unique("mixed");
        let out = ["statuses", "rejected"].map(unique);
        broker::create(&topic, 1);
        broker::create(&out[0], 1);
        // As topics are by default, smaller than what is tried here.
        broker::create_with(&out[1], 1, &[("max.message.bytes", "1048588")]);
        let name = unique("mixed");
        let queue = (queue::create_with(&name, &[("VisibilityTimeout", "5")]), name);
        let out_names = ["statuses", "rejected"].map(unique);
        let out_queues = [0, 1].map(|n| queue::create(&out_names[n]));
        let [status, rejected] = out.clone();
        let kafka = Wire { read: vec![In::of(&topic, "team-a")], status: Some(status), rejected: Some(rejected) };
        let [status, rejected] = out_names;
        let sqs = Wire { read: vec![In::of(&queue.1, "team-a")], status: Some(status), rejected: Some(rejected) };
        Places { stage: Stage::new(&kafka, &sqs), topic, queue, out, out_queues }
    }

    /// Sends every bad event after a good one, by both ways.
    fn send(&self, round: usize) -> Round {
        let mut sent = Round::default();
        let mut records = Vec::new();
        let tags = ["kafka", "sqs"].map(|way| format!("{way}-{round}"));
        // The same job twice is one job, rejected once: each way and round has its own.
        let both = cases(&tags[0]).into_iter().zip(cases(&tags[1]));
        for (n, (by_kafka, by_sqs)) in both.enumerate() {
            let Case { code, event, .. } = by_sqs;
            let subject = |way: &str| format!("good-{way}-{round}-{n}");
            records.push(Sent::body(good(&subject("kafka"), n).to_string()));
            queue::send(&self.queue.0, &good(&subject("sqs"), n).to_string(), &[]).expect("sent");
            sent.good.extend([subject("kafka"), subject("sqs")]);
            let bytes = event.body.clone().unwrap_or_default();
            let pairs: Vec<_> = event.headers.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
            let text = String::from_utf8(bytes.clone()).ok().filter(|text| !text.is_empty() && text.len() <= MOST_SQS);
            match text.map(|text| queue::send(&self.queue.0, &text, &pairs)) {
                Some(Ok(())) => sent.sqs.push((code, bytes)),
                // SQS itself takes neither what is no text nor what is too large.
                Some(Err(_)) | None => sent.refused_by_sqs += 1,
            }
            sent.kafka.push((code, by_kafka.event.body.clone().unwrap_or_default()));
            records.push(by_kafka.event);
        }
        let binary = good_in_binary_mode(&format!("binary-kafka-{round}"));
        records.push(binary);
        sent.good.insert(format!("binary-kafka-{round}"));
        let binary = good_in_binary_mode(&format!("binary-sqs-{round}"));
        let pairs: Vec<_> = binary.headers.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        let body = String::from_utf8(binary.body.clone().unwrap_or_default()).expect("text");
        queue::send(&self.queue.0, &body, &pairs).expect("sent");
        sent.good.insert(format!("binary-sqs-{round}"));
        broker::send(&self.topic, &records);
        sent
    }

    /// Waits until so many are in the file and every good one is over.
    fn wait(&self, rejected: usize, good: &BTreeSet<String>) {
        wait_until(&format!("{rejected} rejected"), || {
            let found = self.stage.rejected().len();
            if found >= rejected { Ok(()) } else { Err(format!("{found}")) }
        });
        self.stage.wait_over(good);
    }
}

/// The first of a round has a field that nobody knows.
fn good(subject: &str, n: usize) -> Value {
    let mut event = job(subject, "a");
    if n == 0 {
        event["data"]["colour"] = json!("blue");
    }
    event
}

/// The lines of a way are what was sent by it: in order where it has one, with codes and bytes.
fn check_way(lines: &[Value], way: &str, sent: &[&Round]) {
    let of: Vec<&Value> = lines.iter().filter(|l| l["source"].as_str().is_some_and(|s| s.starts_with(way))).collect();
    let all = |round: &&Round| if way == "kafka" { round.kafka.clone() } else { round.sqs.clone() };
    let mut expected: Vec<_> = sent.iter().flat_map(all).collect();
    let mut found: Vec<(&str, Vec<u8>)> =
        of.iter().map(|line| (line["code"].as_str().unwrap_or_default(), original(line))).collect();
    if way == "sqs" {
        expected.sort();
        found.sort();
    }
    for (n, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let shown = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
        assert!(
            found == expected,
            "{way} {n}: {} {} is not {} {}",
            found.0,
            shown(&found.1),
            expected.0,
            shown(&expected.1)
        );
    }
    assert_eq!(found.len(), expected.len(), "{way}");
    // Where it came from says which it was: nothing is there twice.
    let place =
        |line: &&Value| (line["source"].clone().to_string(), line["position"].as_u64(), line["messageId"].to_string());
    let places: BTreeSet<_> = of.iter().map(place).collect();
    assert_eq!(places.len(), of.len(), "{way}: one of them twice");
}

/// What was published of the rejected is what the file has, whole or with its digest. By id; how often each was published.
fn check_published(lines: &[Value], bodies: &[Vec<u8>]) -> BTreeMap<String, usize> {
    let (mut times, mut cut) = (BTreeMap::new(), 0);
    for body in bodies {
        let event: Value = serde_json::from_slice(body).expect("JSON");
        assert_eq!(event["type"], "event.rejected");
        let (id, data) = (event["id"].as_str().expect("an id").to_owned(), &event["data"]);
        let number = id.rsplit('-').next().and_then(|n| n.parse::<usize>().ok()).expect("a number");
        let line = &lines[number - 1];
        assert_eq!((&data["code"], &data["message"], &data["path"]), (&line["code"], &line["message"], &line["path"]));
        if data["eventCut"] == true {
            cut += 1;
            let text = line["event"].as_str().expect("text");
            assert_eq!(data["eventBlake3"], blake3::hash(text.as_bytes()).to_hex().to_string());
            assert_eq!(data["eventBytes"].as_u64(), Some(text.len() as u64));
            assert_eq!(data["eventKeptIn"], format!("rejected, number {number}"));
            assert!(text.len() > MOST_SQS / 8, "{} bytes need not be cut", text.len());
        } else {
            assert_eq!(original(data), original(line), "{id}");
        }
        *times.entry(id).or_default() += 1;
    }
    assert!(cut > 0, "the largest is too large to be published whole");
    let numbers: BTreeSet<usize> = times.keys().filter_map(|id: &String| id.rsplit('-').next()?.parse().ok()).collect();
    assert!(numbers.iter().copied().eq(1..=lines.len()), "all of them were published: {numbers:?} of {}", lines.len());
    times
}

/// Waits until a sink has acknowledged as many as there are.
fn wait_sinks(server: &Server, statuses: usize, rejected: usize) {
    for (kind, most) in [("status", statuses), ("rejected", rejected)] {
        for name in ["kafka:", "sqs:"] {
            wait_until(&format!("{most} {kind} to {name}"), || {
                let seen = source(server, kind, name)["acknowledged"].as_u64().unwrap_or(0);
                if seen >= most as u64 { Ok(()) } else { Err(seen.to_string()) }
            });
        }
    }
}

/// Counters add up.
fn check_figures(server: &Server, round: &Round) {
    for (way, sent) in [("kafka:", &round.kafka), ("sqs:", &round.sqs)] {
        let letters = &source(server, "in", way)["letters"];
        let mut expected: BTreeMap<&str, u64> = BTreeMap::new();
        sent.iter().for_each(|(code, _)| *expected.entry(code).or_default() += 1);
        assert_eq!(letters["rejected"], json!(expected), "{way}");
        assert_eq!(letters["taken"].as_u64(), Some(round.good.len() as u64 / 2), "{letters}");
        assert_eq!((letters["seen"].as_u64(), letters["warnings"].as_u64()), (Some(0), Some(WARNED)), "{letters}");
    }
}

/// No secret but in the bytes that are kept.
fn check_secrets(lines: &[Value], said: &str) {
    for secret in SECRETS {
        assert!(!said.contains(secret), "a secret in the log");
        let kept = lines.iter().filter(|line| line["event"].as_str().is_some_and(|e| e.contains(secret))).count();
        assert!(kept > 0, "{secret} was sent");
        for line in lines {
            let rest = [&line["message"], &line["path"], &line["code"], &line["source"]];
            assert!(!rest.iter().any(|text| text.to_string().contains(secret)), "{}", line["message"]);
        }
    }
    assert!(said.lines().all(|line| line.len() < 4_000), "a log line grew with what was sent");
}

#[test]
fn what_is_bad_is_kept_once_and_what_is_good_goes_on() {
    let places = Places::new();
    let server = places.stage.start();
    let first = places.send(1);
    let bad = first.kafka.len() + first.sqs.len();
    places.wait(bad, &first.good);
    let lines = places.stage.rejected();
    ["kafka", "sqs"].iter().for_each(|way| check_way(&lines, way, &[&first]));
    check_figures(&server, &first);
    let statuses = places.stage.statuses();
    wait_sinks(&server, statuses.len(), lines.len());
    let bodies = |topic: &str| broker::read(topic, 1).into_iter().filter_map(|sent| sent.body).collect::<Vec<_>>();
    let by_queue = queue::drain(&places.out_queues[1]).into_iter().map(String::into_bytes).collect::<Vec<_>>();
    for published in [bodies(&places.out[1]), by_queue] {
        assert!(check_published(&lines, &published).values().all(|times| *times == 1));
    }
    let mut said = server.log();
    let second = places.send(2);
    wait_until("the second round's first", || {
        if places.stage.rejected().len() > bad { Ok(()) } else { Err(String::new()) }
    });
    said += &server.log();
    drop(server);
    let server = places.stage.start();
    places.wait(2 * bad, &second.good);
    let lines = places.stage.rejected();
    ["kafka", "sqs"].iter().for_each(|way| check_way(&lines, way, &[&first, &second]));
    check_secrets(&lines, &(said + &server.log()));
    let statuses = places.stage.statuses();
    let ends = ended(&statuses);
    let good = first.good.len() + second.good.len();
    let completed: BTreeSet<&String> = ends.iter().filter(|(_, end)| *end == "completed").map(|(s, _)| s).collect();
    assert_eq!(completed.len(), good + 1, "the good ones and the journal's first: {ends:?}");
    assert!(first.good.iter().chain(&second.good).all(|subject| completed.contains(subject)), "{ends:?}");
    // Of the bad ones those whose queue would not take them were jobs for a moment, and nothing else was.
    let refused = lines.iter().filter(|line| line["path"] == "data.queue" && line["code"] != "BadValue").count();
    assert_eq!(ends.values().filter(|end| *end == "rejected").count(), refused);
    assert_eq!(ends.len(), good + 1 + refused, "{ends:?}");
    wait_sinks(&server, statuses.len(), lines.len());
    check_published(&lines, &bodies(&places.out[1]));
    let doubles = check_statuses(&statuses, &bodies(&places.out[0]));
    wait_until("an empty queue", || match queue::left(&places.queue.0) {
        0 => Ok(()),
        left => Err(left.to_string()),
    });
    println!(
        "bad input: {} sorts by Kafka and SQS ({} of them SQS keeps out itself), each rejected once: {bad} with code and bytes; with \
         kill -9 amid a second round: {}, none twice; {good} good ones between them completed; {doubles} of {} statuses published \
         again under the ids that they had",
        cases("").len(),
        first.refused_by_sqs,
        lines.len(),
        statuses.len()
    );
}

/// Every status was published under the id that it has in the file, with the same bytes. How many more than once.
fn check_statuses(statuses: &[Value], bodies: &[Vec<u8>]) -> usize {
    let known: BTreeMap<&str, &Value> = statuses.iter().map(|s| (s["id"].as_str().unwrap_or_default(), s)).collect();
    let mut ids = BTreeSet::new();
    for body in bodies {
        let event: Value = serde_json::from_slice(body).expect("JSON");
        let id = event["id"].as_str().expect("an id").to_owned();
        assert_eq!(known.get(id.as_str()), Some(&&event));
        ids.insert(id);
    }
    assert_eq!(ids.len(), statuses.len(), "all of them");
    bodies.len() - ids.len()
}

#[test]
fn a_report_counts_with_its_own_attempts_token_only() {
    let topic = unique("reports");
    broker::create(&topic, 1);
    let kafka = Wire { read: vec![In::of(&topic, "team-a")], ..Wire::default() };
    let stage = Stage::new(&kafka, &Wire::default());
    let server = stage.start();
    let mut event = job("twice", "a");
    event["data"]["simulation"] = json!({ "durationS": 3_600, "failures": 0 });
    event["data"]["retry"] = json!({ "attempts": 3, "backoff": "1s" });
    broker::send(&topic, &[Sent::body(event.to_string())]);
    let started = |attempt: u64| {
        wait_until(&format!("attempt {attempt}"), || {
            let said = stage.statuses();
            let is = |s: &&Value| {
                s["subject"] == "twice"
                    && s["type"] == "status.started"
                    && s["data"]["attempt"].as_u64() == Some(attempt)
            };
            said.iter()
                .find(is)
                .map(|s| s["data"]["job"].as_str().unwrap_or_default().to_owned())
                .ok_or_else(|| format!("{said:?} {:?}", stage.rejected()))
        })
    };
    let number = started(1);
    let report = |kind: &str, attempt: u64, of: u64| {
        let token = run_token(&stage.data, &number, of);
        let event =
            json!({ "type": kind, "data": { "job": number, "attempt": attempt, "exitCode": 1, "token": token } });
        broker::send(&topic, &[Sent::body(event.to_string())]);
    };
    report("run.failed", 1, 1);
    started(2);
    // The first attempt's, late: its token is right, and it is over. The second's by the first's token: forged.
    report("run.completed", 1, 1);
    report("run.completed", 2, 1);
    wait_until("the forged one", || (stage.rejected().len() == 1).then_some(()).ok_or_else(String::new));
    assert_eq!(stage.rejected()[0]["code"], "Token");
    assert!(!ended(&stage.statuses()).contains_key("twice"), "it still runs");
    report("run.completed", 2, 2);
    stage.wait_over(&BTreeSet::from(["twice".to_owned()]));
    assert_eq!(ended(&stage.statuses())["twice"], "completed");
    let letters = &source(&server, "in", "kafka:")["letters"];
    assert_eq!((&letters["taken"], &letters["rejected"]), (&json!(4), &json!({ "Token": 1 })), "{letters}");
    println!(
        "bad input: the first attempt's report after its end changed nothing, a forged one was rejected, the true one ended the job"
    );
}

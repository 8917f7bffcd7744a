//! 200,000 events through Kafka and 20,000 through SQS, while the controller is killed (-9) at 20 random moments (`FOREBAY_KILLS`) and the broker 3
//! times: each job once, none lost, none doubled, its statuses complete, in the file and on the topic. Then 10,000 submissions again
//! under new event ids: no second job.
//!
//! `FOREBAY_SEED=n cargo xtask test integration sources -- killed` meets the same moments again, as far as the machine is as fast.

use forebay_integration::dice::Dice;
use forebay_integration::kafka::{Pipeline, read_all};
use forebay_integration::sqs::SqsClient;
use forebay_integration::{Server, segments, until};
use forebay_parts::{Kafka, KafkaOptions, LocalStack, LocalStackOptions};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

const BY_KAFKA: u64 = 200_000;
const BY_SQS: u64 = 20_000;
const AGAIN: u64 = 10_000;
const KILLS: u64 = 20;

/// After each quarter of the kills but the last the broker is killed too.
const BROKER_KILLS: [u64; 3] = [1, 2, 3];

/// What a life lasts at least, so that most get as far as new batches, and how much longer it may be, in ms.
const LIFE: (u64, u64) = (300, 2_400);

/// From the last kill to the last job: a node boots in two minutes, and a busy machine is slow.
const DONE_WITHIN: Duration = Duration::from_secs(600);

const POLICY: &str = "
apiVersion: forebay/v1
kind: Policy
metadata: {name: bulk}
limits: {nodes: 3000, spend: 1000000 USD/h}
tiers:
  normal: {priority: 500, buys: on-demand}
queues:
  bulk: {tier: normal, quota: {big: {gpus: 24000}}, submitters: [by-kafka, by-sqs]}
pools:
  big: {instanceTypes: [g5.48xlarge]}
";

fn event(id: &str, subject: &str) -> String {
    let data = json!({"queue": "bulk", "gang": {"workers": 1, "each": {"gpus": 1}}, "simulation": {"durationS": 1}});
    json!({"specversion": "1.0", "type": "job.submitted", "source": "//test/killed", "id": id, "subject": subject, "data": data})
        .to_string()
}

fn configuration(folder: &Path, brokers: &str, endpoint: &str) {
    std::fs::write(folder.join("policy.yaml"), POLICY).expect("a policy");
    let text = format!(
        "apiVersion: forebay/v1\nkind: Config\npolicy: policy.yaml\ndata: data\n\
         kafka:\n  - brokers: ['{brokers}']\n    topics: [{{name: jobs, principal: by-kafka}}]\n    status: status\n    rejected: rejected\n\
         sqs:\n  - region: us-east-1\n    endpoint: {endpoint}\n    receivers: 4\n    queues: [{{name: jobs, principal: by-sqs}}]\n    \
         keys: {{id: {{env: TEST_KEY}}, secret: {{env: TEST_KEY}}}}\n"
    );
    std::fs::write(folder.join("forebay.yaml"), text).expect("a configuration");
}

fn start(folder: &Path) -> Server {
    Server::start_with(folder, &["--config", "forebay.yaml"], &[("TEST_KEY", "test")])
}

/// What was sent and not yet seen as a job, and who sends it.
struct Senders<'a> {
    pipeline: Pipeline,
    queues: SqsClient,
    url: &'a str,
    sent: [u64; 2],
}

impl Senders<'_> {
    /// The next share, so that something is on its way in each life.
    fn share(&mut self, of: u64) {
        let upto = self.sent[0] + BY_KAFKA.div_ceil(of).min(BY_KAFKA - self.sent[0]);
        for n in self.sent[0]..upto {
            let subject = format!("k-{n}");
            self.pipeline.send("jobs", &subject, event(&format!("k-{n}"), &subject).as_bytes());
        }
        let last = self.sent[1] + BY_SQS.div_ceil(of).min(BY_SQS - self.sent[1]);
        let bodies: Vec<String> = (self.sent[1]..last).map(|n| event(&format!("s-{n}"), &format!("s-{n}"))).collect();
        self.queues.send(self.url, &bodies);
        self.sent = [upto, last];
    }
}

#[test]
fn killed_at_random_moments_each_event_is_a_job_once() {
    let kills = std::env::var("FOREBAY_KILLS").map_or(KILLS, |n| n.parse().expect("FOREBAY_KILLS is a number"));
    let seed = std::env::var("FOREBAY_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(20_261_121);
    let (mut dice, begun) = (Dice(seed), Instant::now());
    let folder = tempfile::tempdir().expect("a folder");
    let mut broker = Kafka::start(KafkaOptions::default()).expect("a broker");
    let cloud = LocalStack::start(LocalStackOptions::default()).expect("an SQS");
    for (topic, partitions) in [("jobs", 6), ("status", 3), ("rejected", 1)] {
        broker.create_topic(topic, partitions).expect("a topic");
    }
    let queues = SqsClient::at(cloud.endpoint());
    // Short enough that what a killed controller held comes again within the test.
    let url = queues.create("jobs", &json!({"VisibilityTimeout": "20"}));
    configuration(folder.path(), broker.bootstrap(), cloud.endpoint());
    let mut senders = Senders { pipeline: Pipeline::to(broker.bootstrap()), queues, url: &url, sent: [0, 0] };
    let mut seen = 0;
    for kill in 1..=kills {
        let mut server = start(folder.path());
        let life = Duration::from_millis(LIFE.0 + dice.below(LIFE.1));
        let dies = Instant::now() + life;
        senders.share(kills);
        // What is left of its life passes while it works; it must not end by itself.
        server.lives_until(dies);
        seen += taken(&server).map_or(0, |[_, seen]| seen);
        server.kill();
        if BROKER_KILLS.iter().any(|quarters| kill == kills * quarters / 4) {
            broker.kill().and_then(|()| broker.restart()).expect("the broker starts again");
        }
    }
    senders.pipeline.flush();
    assert_eq!(senders.sent, [BY_KAFKA, BY_SQS]);
    let killed = begun.elapsed();
    let server = start(folder.path());
    for n in 0..AGAIN {
        let subject = format!("k-{n}");
        senders.pipeline.send("jobs", &subject, event(&format!("again-{n}"), &subject).as_bytes());
    }
    senders.pipeline.flush();
    let all = BY_KAFKA + BY_SQS;
    until("every job is completed", DONE_WITHIN, || {
        let (_, summary) = server.get("/v1/summary");
        let over = [&summary["completed"], &summary["failed"], &summary["rejected"]].map(|n| n.as_u64().unwrap_or(0));
        assert_eq!(over[1..], [0, 0], "seed {seed}: {summary}");
        if over[0] == all { Ok(()) } else { Err(summary.to_string()) }
    });
    until("sources and sinks have caught up", Duration::from_secs(120), || caught_up(&server, &senders));
    let [_, last_seen] = taken(&server).unwrap_or_default();
    let (_, summary) = server.get("/v1/summary");
    let jobs: u64 = ["completed", "failed", "rejected", "cancelled", "queued", "running"]
        .iter()
        .filter_map(|w| summary[*w].as_u64())
        .sum();
    assert_eq!(jobs, all, "seed {seed}: no second job: {summary}");
    drop(server);
    let statuses = check_log(&folder.path().join("data/status"), all, seed);
    let sent = check_topic(broker.bootstrap(), statuses, seed);
    let rejected = segments::lines(&folder.path().join("data/rejected"));
    assert_eq!(rejected, [""; 0], "seed {seed}");
    println!(
        "killed: {kills} kills of the controller, {} of the broker in {:.0} s; {BY_KAFKA} events by Kafka and {BY_SQS} by SQS are {all} jobs, \
         all completed once; {} letters came twice and were dropped; {AGAIN} submissions under new ids made no job; {statuses} statuses in \
         the log, {sent} messages on the topic with the same ids; {:.0} s in all, seed {seed}",
        BROKER_KILLS.len(),
        killed.as_secs_f64(),
        seen + last_seen,
        begun.elapsed().as_secs_f64()
    );
}

/// Letters taken and seen before, over all sources.
fn taken(server: &Server) -> Option<[u64; 2]> {
    let (status, view) = server.try_get("/v1/sources")?;
    let sources = view["sources"].as_array().filter(|_| status == 200)?;
    let sum = |what: &str| sources.iter().filter_map(|s| s["letters"][what].as_u64()).sum();
    Some([sum("taken"), sum("seen")])
}

/// Nothing waits: in the topics, in the queue, for the sinks.
fn caught_up(server: &Server, senders: &Senders<'_>) -> Result<(), String> {
    let (_, view) = server.get("/v1/sources");
    let behind =
        view["sources"].as_array().into_iter().flatten().any(|s| s["backlog"] != 0 || s["condition"] != "working");
    let waiting = senders.queues.messages(senders.url);
    if behind || waiting != [0, 0] { Err(format!("{waiting:?} in the queue; {view}")) } else { Ok(()) }
}

/// No number missing or twice; each job completed once and silent after it, its own numbers without a gap. How many there are.
fn check_log(folder: &Path, jobs: u64, seed: u64) -> u64 {
    let lines = segments::lines(folder);
    let mut of_job: BTreeMap<&str, (u64, bool)> = BTreeMap::new();
    let mut last = 0;
    #[derive(serde::Deserialize)]
    struct Line<'a> {
        #[serde(rename = "type")]
        kind: &'a str,
        subject: &'a str,
        data: Data,
    }
    #[derive(serde::Deserialize)]
    struct Data {
        number: u64,
        seq: u64,
        terminal: bool,
    }
    for line in &lines {
        let status: Line<'_> = serde_json::from_str(line).unwrap_or_else(|e| panic!("seed {seed}: {e} in {line}"));
        assert_eq!(status.data.number, last + 1, "seed {seed}: {line}");
        last = status.data.number;
        let (seq, over) = of_job.entry(status.subject).or_default();
        assert!(!*over && status.data.seq == *seq + 1, "seed {seed}: after {seq}: {line}");
        (*seq, *over) = (status.data.seq, status.data.terminal);
        assert!(!status.data.terminal || status.kind == "status.completed", "seed {seed}: {line}");
    }
    assert_eq!(of_job.len() as u64, jobs, "seed {seed}: jobs with statuses");
    assert!(of_job.values().all(|(_, over)| *over), "seed {seed}: a job's statuses do not end");
    last
}

/// Every status is on the topic, again only under the same id, and each job's in order. How many messages there are.
fn check_topic(brokers: &str, statuses: u64, seed: u64) -> u64 {
    let (mut messages, mut ids) = (0, BTreeSet::new());
    let mut of_job: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    read_all(brokers, "status", Duration::from_secs(120), |key, body| {
        let status: Value = serde_json::from_slice(body).expect("a status is JSON");
        messages += 1;
        let number = status["data"]["number"].as_u64().expect("a number");
        let new = ids.insert(number);
        assert!(status["id"].as_str().is_some_and(|id| id.ends_with(&format!("-{number}"))), "seed {seed}: {status}");
        if new {
            let seq = of_job.entry(key.to_vec()).or_default();
            let said = status["data"]["seq"].as_u64().expect("a seq");
            assert_eq!(said, *seq + 1, "seed {seed}: out of order: {status}");
            *seq = said;
        }
    });
    assert_eq!(ids.len() as u64, statuses, "seed {seed}: statuses on the topic");
    assert_eq!(ids.last().copied(), Some(statuses), "seed {seed}");
    messages
}

//! Durable intake from a real Kafka into one `forebay run`: how many submissions a second, and how long one takes from the broker to
//! the durable decision at 1,000 a second.
//!
//! `cargo xtask bench intake [-- EVENTS]`: 20,000 submissions of some 500 bytes in 4 partitions at 1,000 a second, then by default
//! 1,000,000 at once into a new controller. The broker stamps each message when it takes it; the controller counts from there to the journal.
//! Never: a simulated broker, or a journal that is not synced.

use forebay_integration::Server;
use forebay_integration::kafka::Pipeline;
use forebay_parts::{Kafka, KafkaOptions};
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

/// At 1,000 events a second.
const PACED: u64 = 20_000;

/// What must be reached: events a second, and ms for 99 of 100.
const LEAST: f64 = 50_000.0;
const MOST_MS: u64 = 20;

const POLICY: &str = "
apiVersion: forebay/v1
kind: Policy
metadata: {name: intake}
limits: {nodes: 3000, spend: 1000000 USD/h}
tiers:
  normal: {priority: 500, buys: on-demand}
queues:
  vision: {tier: normal, quota: {big: {gpus: 8000}}, submitters: [pipelines]}
  language: {tier: normal, quota: {big: {gpus: 8000}}, submitters: [pipelines]}
  search: {tier: normal, quota: {big: {gpus: 8000}}, submitters: [pipelines]}
pools:
  big: {instanceTypes: [g5.48xlarge]}
";

fn main() {
    let events = std::env::args().filter_map(|word| word.parse().ok()).next_back().unwrap_or(1_000_000);
    let stamped = ("log.message.timestamp.type".to_owned(), "LogAppendTime".to_owned());
    let broker = Kafka::start(KafkaOptions { properties: vec![stamped], ..KafkaOptions::default() }).expect("a broker");
    let pipeline = Pipeline::to(broker.bootstrap());
    // First, while the disk has nothing else to write: a gigabyte of the other's log and journal is still on its way there afterwards.
    let p99 = paced(&broker, &pipeline);
    let rate = sustained(&broker, &pipeline, events);
    let reached = rate >= LEAST && p99 <= MOST_MS;
    println!("{}", if reached { "reached" } else { "NOT REACHED: 50,000 events/s and p99 of 20 ms are asked for" });
    std::process::exit(i32::from(!reached));
}

fn event(n: u64) -> String {
    let queue = ["vision", "language", "search"][(n % 3) as usize];
    format!(
        r#"{{"specversion":"1.0","type":"job.submitted","dataschema":"urn:forebay:job.submitted:1","source":"//airflow/prod","id":"{n:08x}","time":"2026-11-21T09:00:00Z","subject":"train-{n}","data":{{"queue":"{queue}","labels":{{"team":"{queue}","costCenter":"4711"}},"run":{{"template":"train","image":"reg/r@sha256:ab","args":["--epochs","90"]}},"gang":{{"workers":1,"each":{{"gpus":1}}}},"checkpoint":{{"uri":"s3://ckpt/train-{n}/","every":"10m"}},"expectedRun":"9h"}}}}"#
    )
}

/// Everything is there already when the controller starts: its own pace is the measure.
fn sustained(broker: &Kafka, pipeline: &Pipeline, events: u64) -> f64 {
    broker.create_topic("bulk", 4).expect("a topic");
    for n in 0..events {
        pipeline.send("bulk", &format!("train-{n}"), event(n).as_bytes());
    }
    pipeline.flush();
    let folder = tempfile::tempdir().expect("a folder");
    let server = controller(folder.path(), broker, "bulk");
    let mut samples: Vec<(Instant, u64)> = Vec::new();
    while samples.last().is_none_or(|(_, taken)| *taken < events) {
        let letters = letters(&server);
        samples.push((Instant::now(), letters["taken"].as_u64().unwrap_or(0)));
        std::thread::park_timeout(Duration::from_millis(100));
    }
    // From the first that was taken to the last: starting and joining the group is not intake.
    let first = samples.iter().rposition(|(_, taken)| *taken == 0).unwrap_or(0);
    let seconds = samples.last().map_or(0.0, |(end, _)| end.duration_since(samples[first].0).as_secs_f64());
    let rate = events as f64 / seconds;
    let cpu = cpu_seconds(server.pid());
    println!(
        "sustained: {events} submissions of {} bytes durable in {seconds:.1} s: {rate:.0} a second; {:.1} us of processor time each",
        event(events).len(),
        cpu * 1e6 / events as f64
    );
    rate
}

fn paced(broker: &Kafka, pipeline: &Pipeline) -> u64 {
    broker.create_topic("paced", 4).expect("a topic");
    let folder = tempfile::tempdir().expect("a folder");
    let server = controller(folder.path(), broker, "paced");
    // One ahead, so that joining the group is over before the rest comes.
    pipeline.send("paced", "first", event(PACED).as_bytes());
    while letters(&server)["taken"].as_u64() != Some(1) {
        std::thread::park_timeout(Duration::from_millis(50));
    }
    let (begun, mut sent) = (Instant::now(), 0);
    while sent < PACED {
        let due = (begun.elapsed().as_millis() as u64).min(PACED);
        for n in sent..due {
            pipeline.send("paced", &format!("train-{n}"), event(n).as_bytes());
        }
        sent = sent.max(due);
        std::thread::park_timeout(Duration::from_millis(1));
    }
    pipeline.flush();
    loop {
        let letters = letters(&server);
        if letters["taken"].as_u64() == Some(PACED + 1) {
            let [p50, p95, p99] = ["p50", "p95", "p99"].map(|q| letters["latency_ms"][q].as_u64().unwrap_or(u64::MAX));
            println!(
                "paced: {PACED} submissions at 1,000 a second, from the broker to the journal: p50 {p50} ms, p95 {p95} ms, p99 {p99} ms"
            );
            return p99;
        }
        std::thread::park_timeout(Duration::from_millis(100));
    }
}

fn controller(folder: &Path, broker: &Kafka, topic: &str) -> Server {
    std::fs::write(folder.join("policy.yaml"), POLICY).expect("a policy");
    let config = format!(
        "apiVersion: forebay/v1\nkind: Config\npolicy: policy.yaml\ndata: data\n\
         kafka:\n  - brokers: ['{}']\n    topics: [{{name: {topic}, principal: pipelines}}]\n",
        broker.bootstrap()
    );
    std::fs::write(folder.join("forebay.yaml"), config).expect("a configuration");
    Server::start(folder, &["--config", "forebay.yaml"])
}

fn letters(server: &Server) -> Value {
    let (_, view) = server.get("/v1/sources");
    view["sources"][0]["letters"].clone()
}

/// Processor time of a process so far, in s. NaN where the system does not tell.
fn cpu_seconds(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
    let ticks: Vec<f64> = after.split_whitespace().skip(11).take(2).filter_map(|n| n.parse().ok()).collect();
    // Linux counts in hundredths.
    if ticks.len() == 2 { (ticks[0] + ticks[1]) / 100.0 } else { f64::NAN }
}

//! A live run with everything at once: jobs by way of Kafka, nodes of the loopback EC2, and EC2 takes nodes back with and without notice. The
//! bill of the folder that it leaves is the one that is made again from its journal alone.
//!
//! Never: a node that is left over.

use crate::again::Recount;
use crate::again::recomputed::HOUR;
use forebay_integration::kafka::Pipeline;
use forebay_integration::{Server, until};
use forebay_kernel::units::{Span, Timestamp};
use forebay_loopback_ec2::{InstanceState, Loopback, LoopbackClock, Region, RegionOptions};
use forebay_parts::{Kafka, KafkaOptions};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

/// By what the bill can be asked of a policy that names no labels.
pub const BY: [&str; 9] = ["queue", "tenant", "tier", "pool", "capacity", "type", "kind", "day", "job"];

const BY_TEAM: [&str; 10] = ["queue", "tenant", "tier", "label:team", "pool", "capacity", "type", "kind", "day", "job"];

/// How many jobs there are, and how many nodes are taken back.
const JOBS: usize = 24;
const RECLAIMS: usize = 5;

/// With each of them in turn. Without notice what ran since it last saved is lost.
const NOTICES: [Option<Span>; 2] = [None, Some(Span::secs(10))];

/// Many times what it takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(300);

const POLICY: &str = "
apiVersion: forebay/v1
kind: Policy
metadata: {name: billed}
limits: {nodes: 6}
billing: {labels: [team]}
queues:
  train: {tier: normal, pools: [small], submitters: [by-kafka]}
  urgent: {tier: normal, pools: [small], submitters: [by-kafka]}
pools:
  small: {instanceTypes: [g5.xlarge, g4dn.xlarge], drain: {after: 1s}}
";

/// The bill of a folder is the one that is made again from its journal, by each of these.
pub fn is_made_again(folder: &Path, by: &[&str]) {
    let expected = Recount { folder, by, samples: 20, slot_ms: HOUR }.made();
    let kinds = expected.rows("kind");
    assert!(kinds.values().map(|row| row[0]).sum::<i64>() > 0, "{kinds:?}");
    println!("in micro-dollars, millionths of GPU-hours and of spot: {kinds:?}");
}

fn configuration(folder: &Path, loopback: &Loopback, brokers: &str) {
    std::fs::write(folder.join("policy.yaml"), POLICY).unwrap();
    let text = format!(
        "apiVersion: forebay/v1\nkind: Config\npolicy: policy.yaml\ndata: data\ncluster: simulated\nkafka:\n  - brokers: ['{brokers}']\n    \
         topics: [{{name: jobs, principal: by-kafka}}]\nec2:\n  name: billed\n  endpoint: {}\n  region: us-east-1\n  \
         keys: {{id: {{env: TEST_KEY}}, secret: {{env: TEST_KEY}}}}\n  zones: [us-east-1a, us-east-1b]\n  launch: {{template: {}}}\n  \
         interruptions: ['{}']\n",
        loopback.url(),
        forebay_loopback_ec2::DEFAULT_TEMPLATE,
        loopback.queue_url(),
    );
    std::fs::write(folder.join("forebay.yaml"), text).unwrap();
}

fn wall() -> Timestamp {
    Timestamp(UNIX_EPOCH.elapsed().unwrap().as_millis() as u64)
}

/// Submits all jobs by way of Kafka. One team has no label.
fn submit(brokers: &str) {
    let pipeline = Pipeline::to(brokers);
    for n in 0..JOBS {
        let queue = if n % 4 == 0 { "urgent" } else { "train" };
        let mut event = json!({"specversion": "1.0", "type": "job.submitted", "source": "//test/billed", "id": format!("{n}"),
            "subject": format!("job-{n}"), "data": {"queue": queue, "gang": {"workers": 1 + n % 2, "each": {"gpus": 1}},
            "simulation": {"durationS": 4 + n % 5}}});
        if n % 3 > 0 {
            let team = if n % 2 == 0 { "vision" } else { "language" };
            event["data"]["labels"] = json!({ "team": team });
        }
        pipeline.send("jobs", &format!("job-{n}"), event.to_string().as_bytes());
    }
    pipeline.flush();
}

/// A node on which something runs, that has not been taken back before.
fn with_a_run(server: &Server, taken: &BTreeSet<String>) -> Option<String> {
    let (_, jobs) = server.get("/v1/jobs");
    let runs: BTreeSet<&str> = jobs["jobs"]
        .as_array()?
        .iter()
        .filter(|job| job["phase"] == "running")
        .filter_map(|job| job["job"].as_str())
        .collect();
    let (_, nodes) = server.get("/v1/nodes");
    let of_run = |node: &&Value| {
        let on = node["jobs"].as_array();
        on.is_some_and(|on| on.iter().filter_map(Value::as_str).any(|job| runs.contains(job)))
    };
    let instances = nodes["nodes"].as_array()?.iter().filter(of_run).filter_map(|node| node["instance"].as_str());
    instances.map(str::to_owned).find(|instance| !taken.contains(instance))
}

#[test]
fn a_live_run_with_kafka_ec2_and_reclaims_is_billed_as_it_is_made_again() {
    let broker = Kafka::start(KafkaOptions::default()).unwrap();
    broker.create_topic("jobs", 2).unwrap();
    let options = RegionOptions { boot_time: Span::secs(2), shutdown_time: Span::secs(1), ..RegionOptions::default() };
    let loopback = Loopback::start(Region::new(options), LoopbackClock::Wall).unwrap();
    let folder = tempfile::tempdir().unwrap();
    configuration(folder.path(), &loopback, broker.bootstrap());
    let server = Server::start_with(folder.path(), &["--config", "forebay.yaml"], &[("TEST_KEY", "test")]);
    submit(broker.bootstrap());
    let mut taken = BTreeSet::new();
    while taken.len() < RECLAIMS {
        let mut found = None;
        until("something runs", LIMIT, || {
            found = with_a_run(&server, &taken);
            found.as_ref().map(drop).ok_or_else(|| server.get("/v1/nodes").1.to_string())
        });
        let instance = found.unwrap();
        let notice = NOTICES[taken.len() % NOTICES.len()];
        // It may have been given back meanwhile.
        let _ = loopback.region().reclaim(wall(), &instance, notice);
        taken.insert(instance);
    }
    until("everything is over", LIMIT, || {
        let (_, summary) = server.get("/v1/summary");
        let (_, nodes) = server.get("/v1/nodes");
        let existing = loopback.region().instances().filter(|i| i.state != InstanceState::Terminated).count();
        let is_over = existing == 0 && nodes["nodes"] == json!([]) && summary["completed"] == json!(JOBS);
        if is_over { Ok(()) } else { Err(format!("{existing} instances; {nodes}; {summary}")) }
    });
    let (_, bill) = server.get("/v1/cost?by=kind");
    drop(server);
    let data = folder.path().join("data");
    is_made_again(&data, &BY_TEAM);
    let kinds = bill["rows"].as_array().unwrap();
    for kind in ["worked", "lost", "boot"] {
        let cost = kinds.iter().find(|row| row["key"] == kind).and_then(|row| row["cost_usd"].as_f64());
        assert!(cost.is_some_and(|cost| cost > 0.0), "nothing was {kind}: {bill}");
    }
}

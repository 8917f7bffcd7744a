//! The real binary against the loopback EC2, killed (-9) at random moments while it buys: nothing is bought twice, nothing is forgotten, no
//! ceiling is passed, and zero nodes are left. Answers are lost, and EC2 fails, all the while.
//!
//! `FOREBAY_SEED=n cargo xtask test integration ec2 -- killed` meets the same moments again, as far as the machine is as fast; `FOREBAY_KILLS=n`
//! kills so often.

use forebay_integration::dice::Dice;
use forebay_integration::{Server, run, until};
use forebay_kernel::units::Span;
use forebay_loopback_ec2::{InstanceState, Loopback, LoopbackClock, Region, RegionOptions};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

const KILLS: u32 = 12;
/// Jobs that are sent in each life.
const JOBS: u64 = 5;
const LIMIT: u32 = 9;
/// What a life lasts at least, and how much longer it may be, in ms.
const LIFE: (u64, u64) = (200, 2_500);
/// What the jobs of twelve lives take at most: they come faster than nine nodes work.
const DONE_WITHIN: Duration = Duration::from_secs(300);

const POLICY: &str = "
apiVersion: forebay/v1
kind: Policy
metadata: {name: killed}
limits: {nodes: 9}
queues:
  train: {tier: normal, pools: [small], submitters: [local]}
pools:
  small: {instanceTypes: [g5.xlarge, g4dn.xlarge], drain: {after: 1s}, network: {placement: cluster}}
";

pub fn configuration(folder: &Path, loopback: &Loopback) {
    std::fs::write(folder.join("policy.yaml"), POLICY).unwrap();
    let text = format!(
        "apiVersion: forebay/v1\nkind: Config\npolicy: policy.yaml\ndata: data\ncluster: simulated\nec2:\n  name: killed\n  endpoint: {}\n  \
         region: us-east-1\n  keys: {{id: {{env: TEST_KEY}}, secret: {{env: TEST_KEY}}}}\n  zones: [us-east-1a, us-east-1b]\n  launch: {{template: \
         {}}}\n  interruptions: ['{}']\n",
        loopback.url(),
        forebay_loopback_ec2::DEFAULT_TEMPLATE,
        loopback.queue_url(),
    );
    std::fs::write(folder.join("forebay.yaml"), text).unwrap();
}

pub fn start(folder: &Path) -> Server {
    Server::start_with(folder, &["--config", "forebay.yaml"], &[("TEST_KEY", "test")])
}

/// Instances ever launched, by purchase, each with its call's token, and the most that existed at once.
#[derive(Default)]
struct Seen {
    purchases: BTreeMap<String, BTreeMap<String, String>>,
    most: u32,
}

impl Seen {
    fn look(&mut self, loopback: &Loopback) -> usize {
        let region = loopback.region();
        let mut existing = 0;
        for instance in region.instances() {
            let purchase = instance.tags.get("forebay:purchase").cloned().unwrap_or_default();
            self.purchases.entry(purchase).or_default().insert(instance.id.clone(), instance.client_token.clone());
            existing += u32::from(instance.state != InstanceState::Terminated);
        }
        self.most = self.most.max(existing);
        existing as usize
    }
}

#[test]
fn a_controller_killed_while_it_buys_buys_nothing_twice() {
    let kills = std::env::var("FOREBAY_KILLS").map_or(KILLS, |n| n.parse::<u32>().expect("FOREBAY_KILLS is a number"));
    let seed = std::env::var("FOREBAY_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(20_261_121);
    let mut dice = Dice::new(seed);
    let options = RegionOptions {
        rate_limits: true,
        boot_time: Span::secs(2),
        shutdown_time: Span::secs(1),
        lost_before_permille: 50,
        lost_after_permille: 150,
        server_error_permille: 50,
        max_staleness: Span::secs(3),
        ..RegionOptions::default()
    };
    let loopback = Loopback::start(Region::new(options), LoopbackClock::Wall).unwrap();
    let folder = tempfile::tempdir().unwrap();
    configuration(folder.path(), &loopback);
    let (begun, mut seen, mut sent) = (Instant::now(), Seen::default(), 0);
    for life in 0..kills {
        // Each life wants another kind of node, so that nodes are bought and given back in all of them.
        let model = ["A10G", "T4"][(life % 2) as usize];
        let mut server = start(folder.path());
        for _ in 0..JOBS {
            let workers = [1, 1, 2, 3][dice.below(4) as usize];
            let event = json!({"type": "job.submitted", "source": "//test", "id": format!("{sent}"), "subject": format!("job-{sent}"), "data": {
                "queue": "train", "gang": {"workers": workers, "each": {"gpus": 1, "models": [model]}}, "simulation": {"durationS": 1 + dice.below(4)}}});
            assert_eq!(server.post(&event).0, 202);
            sent += 1;
        }
        let end = Instant::now() + Duration::from_millis(LIFE.0 + dice.below(LIFE.1));
        while Instant::now() < end {
            server.lives_until(Instant::now() + Duration::from_millis(50));
            seen.look(&loopback);
            assert!(seen.most <= LIMIT, "{} nodes exist, {LIMIT} are allowed", seen.most);
        }
        server.kill();
    }
    let killed = begun.elapsed().as_secs_f64();
    let server = start(folder.path());
    until("everything is over", DONE_WITHIN * kills.div_ceil(KILLS), || {
        let existing = seen.look(&loopback);
        assert!(seen.most <= LIMIT, "{} nodes exist, {LIMIT} are allowed", seen.most);
        let (_, summary) = server.get("/v1/summary");
        let (_, nodes) = server.get("/v1/nodes");
        let claims = nodes["nodes"].as_array().map_or(usize::MAX, Vec::len);
        let completed = summary["completed"].as_u64();
        if existing == 0 && claims == 0 && completed == Some(sent) {
            return Ok(());
        }
        Err(format!(
            "{existing} instances, {claims} claims, {completed:?} of {sent} completed; {}",
            tail(&server.log())
        ))
    });
    drop(server);
    for (purchase, instances) in &seen.purchases {
        // EC2 carries a token out once: bought twice would be by two.
        let tokens: BTreeSet<&String> = instances.values().collect();
        assert!(tokens.len() == 1 && !purchase.is_empty(), "purchase {purchase} has {instances:?}");
    }
    let verified = run(folder.path(), &["journal", "verify", "data"]);
    assert_eq!(verified.code, 0, "{verified:?}");
    crate::billed::is_made_again(&folder.path().join("data"), &crate::billed::BY);
    let calls = loopback.region().calls().get("CreateFleet").map_or(0, |c| c.total);
    let launched: usize = seen.purchases.values().map(BTreeMap::len).sum();
    println!(
        "{kills} kills (-9) in {killed:.0} s: {sent} jobs completed; {launched} instances of {} purchases by {calls} CreateFleet calls; at most {} \
         of {LIMIT} nodes at once; 0 left",
        seen.purchases.len(),
        seen.most
    );
}

fn tail(log: &str) -> String {
    log.lines().rev().take(5).collect::<Vec<_>>().join(" | ")
}

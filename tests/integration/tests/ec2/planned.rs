//! A retirement that AWS announced while nobody listened: the real binary asks what is planned when it starts again, and leaves the instance
//! before it is stopped.

use forebay_integration::{Server, until};
use forebay_kernel::units::Span;
use forebay_loopback_ec2::{InstanceState, Loopback, LoopbackClock, Region, RegionOptions};
use serde_json::json;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

const POLICY: &str = "apiVersion: forebay/v1\nkind: Policy\nmetadata: {name: p}\nlimits: {nodes: 2}\nqueues: {a: {pools: [p], submitters: [local]}}\n\
                      pools: {p: {instanceTypes: [g5.xlarge]}}\n";

#[test]
fn an_instance_is_left_before_its_retirement_which_was_announced_while_nobody_listened() {
    let options = RegionOptions { boot_time: Span::secs(1), shutdown_time: Span::secs(1), ..RegionOptions::default() };
    let loopback = Loopback::start(Region::new(options), LoopbackClock::Wall).unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("policy.yaml"), POLICY).unwrap();
    let text = format!(
        "apiVersion: forebay/v1\nkind: Config\npolicy: policy.yaml\ndata: data\ncluster: simulated\nec2:\n  name: planned\n  endpoint: {}\n  \
         region: us-east-1\n  keys: {{id: {{env: TEST_KEY}}, secret: {{env: TEST_KEY}}}}\n  zones: [us-east-1a]\n  launch: {{template: {}}}\n",
        loopback.url(),
        forebay_loopback_ec2::DEFAULT_TEMPLATE,
    );
    std::fs::write(folder.path().join("forebay.yaml"), text).unwrap();
    let start = || Server::start_with(folder.path(), &["--config", "forebay.yaml"], &[("TEST_KEY", "test")]);
    let server = start();
    let event = json!({"type": "job.submitted", "source": "//test", "id": "1", "subject": "long", "data": {
        "queue": "a", "gang": {"workers": 1, "each": {"gpus": 1}}, "simulation": {"durationS": 86_400}}});
    assert_eq!(server.post(&event).0, 202);
    let runs_on = |server: &Server, not: &str| {
        let (_, summary) = server.get("/v1/summary");
        let (_, nodes) = server.get("/v1/nodes");
        let ready =
            |n: &&serde_json::Value| n["phase"] == "ready" && n["jobs"].as_array().is_some_and(|jobs| !jobs.is_empty());
        let node = nodes["nodes"].as_array().and_then(|all| all.iter().find(ready)).cloned();
        let instance = node.and_then(|n| Some(n["instance"].as_str()?.to_owned()));
        instance.filter(|i| i != not).ok_or_else(|| format!("{nodes} {summary}"))
    };
    let mut first = String::new();
    until("it runs", LIMIT, || runs_on(&server, "").map(|instance| first = instance));
    server.kill();

    let half_an_hour = loopback.region().now() + Span::mins(30);
    let now = loopback.region().now();
    assert!(loopback.region().schedule_retirement(now, &first, half_an_hour));
    let server = start();
    until("it runs elsewhere", LIMIT, || runs_on(&server, &first).map(drop));
    until("the first is gone", LIMIT, || match loopback.region().instance(&first).map(|i| i.state) {
        None | Some(InstanceState::Terminated) => Ok(()),
        Some(other) => Err(format!("{other:?}")),
    });
    assert!(server.log().lines().all(|line| !line.contains("scheduled changes are unknown")), "{}", server.log());
}

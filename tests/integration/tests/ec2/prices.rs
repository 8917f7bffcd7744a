//! Spot prices and shapes are EC2's own, from the real binary's start on.

use forebay_integration::{Server, until};
use forebay_loopback_ec2::{Loopback, LoopbackClock, Region, RegionOptions};
use forebay_sim::market::Market;
use serde_json::Value;
use std::time::Duration;

const ZONES: [&str; 2] = ["us-east-1a", "us-east-1b"];

const POLICY: &str = "apiVersion: forebay/v1\nkind: Policy\nmetadata: {name: p}\nlimits: {nodes: 3}\nqueues: {a: {pools: [p]}}\n\
                      pools: {p: {instanceTypes: [g5.xlarge, g6.xlarge]}}\n";

#[test]
fn spot_prices_of_the_day_enter_the_state() {
    let pairs: Vec<(String, String)> =
        ["g5.xlarge", "g6.xlarge"].iter().flat_map(|t| ZONES.map(|z| ((*t).to_owned(), z.to_owned()))).collect();
    let options =
        RegionOptions { market: Market::seeded(5, &pairs, 86_400_000), rate_limits: true, ..RegionOptions::default() };
    let loopback = Loopback::start(Region::new(options), LoopbackClock::Wall).unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("policy.yaml"), POLICY).unwrap();
    let text = format!(
        "apiVersion: forebay/v1\nkind: Config\npolicy: policy.yaml\ndata: data\ncluster: simulated\nec2:\n  name: prices\n  endpoint: {}\n  \
         region: us-east-1\n  keys: {{id: {{env: TEST_KEY}}, secret: {{env: TEST_KEY}}}}\n  zones: [us-east-1a, us-east-1b]\n  launch: {{template: \
         {}}}\n",
        loopback.url(),
        forebay_loopback_ec2::DEFAULT_TEMPLATE,
    );
    std::fs::write(folder.path().join("forebay.yaml"), text).unwrap();
    let server = Server::start_with(folder.path(), &["--config", "forebay.yaml"], &[("TEST_KEY", "test")]);
    let known = |state: &Value, (name, zone): &(String, String)| {
        let all = state["offerings"].as_array().cloned().unwrap_or_default();
        let same = |o: &&Value| {
            o["instanceType"] == name.as_str() && o["zone"] == zone.as_str() && o["capacityType"] == "spot"
        };
        all.iter().find(same).and_then(|o| o["price_usd_per_hour"].as_f64())
    };
    // A market's price may move while it is asked: both are looked at again until they agree. Prices are asked for every five minutes.
    until("each price is EC2's", Duration::from_secs(420), || {
        let (_, state) = server.get("/v1/state");
        for pair in &pairs {
            let is = known(&state, pair);
            let expected = loopback.region().spot_price(&pair.0, &pair.1) as f64 / 1e6;
            if is.is_none_or(|is| (is - expected).abs() > 1e-9) {
                return Err(format!("{pair:?}: {is:?}, not {expected}; {}", state["offerings"]));
            }
        }
        Ok(())
    });
    assert!(folder.path().join("data/offerings.json").exists(), "what EC2 said of its types is kept");
    assert_eq!(
        server.try_get("/v1/sources").map(|(_, v)| v["sources"][0]["condition"].clone()),
        Some("working".into())
    );
}

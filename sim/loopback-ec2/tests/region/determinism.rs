//! The same seed and calls give the same bytes, another seed gives others, and memory stays bounded.

use forebay_kernel::units::Span;
use forebay_loopback_ec2::{Params, RegionOptions};
use forebay_sim::market::Market;

use super::{A, B, C, Stage, describe, fleet, leaves, run, spot};

/// The replies and messages of a day of calls in a region with all faults.
fn day(seed: u64) -> String {
    let pairs: Vec<(String, String)> =
        [("g5.xlarge", A), ("g5.xlarge", B), ("g6.xlarge", C)].map(|(t, z)| (t.to_owned(), z.to_owned())).into();
    let mut stage = Stage::new(RegionOptions {
        seed,
        market: Market::seeded(seed, &pairs, 7 * 86_400_000),
        depth: Some(6),
        rate_limits: true,
        server_error_permille: 20,
        lost_before_permille: 20,
        lost_after_permille: 20,
        max_staleness: Span::secs(30),
        hanging_boot_permille: 20,
        warning_permille: 700,
        rebalance_permille: 300,
        ..RegionOptions::default()
    });
    let mut log = String::new();
    for step in 0..300_u32 {
        let requested = match step % 5 {
            0 => fleet(4, &[[("g5.xlarge", A), ("g5.xlarge", B), ("g6.xlarge", C)][step as usize / 5 % 3]])
                .with("ClientToken", format!("t-{step}")),
            1 => spot(run("g5.xlarge", B, 1, 2)),
            2 => Params::new("DescribeSpotPriceHistory").with("InstanceType.1", "g5.xlarge"),
            3 => stage
                .region
                .instances()
                .find(|i| !i.state.is_ending())
                .map_or_else(describe, |one| Params::new("TerminateInstances").with("InstanceId.1", &one.id)),
            _ => describe(),
        };
        log.push_str(&format!("{:?}\n", stage.region.call(stage.now, &requested)));
        for message in stage.pass(Span::mins(5)) {
            log.push_str(&format!("{message}\n"));
        }
    }
    log
}

#[test]
fn the_same_seed_and_calls_give_the_same_bytes() {
    for seed in 1..=20 {
        let one = day(seed);
        assert!(one == day(seed), "seed {seed}: cargo test -p forebay-loopback-ec2 --test region same");
        assert!(one != day(seed + 1), "seed {seed} and the next are the same");
    }
}

#[test]
fn terminated_instances_are_removed_after_an_hour() {
    let mut stage = Stage::calm();
    for _ in 0..500 {
        let ids = stage.launch(&run("g5.xlarge", A, 2, 2));
        for id in ids {
            assert!(stage.region.terminate_as_user(stage.now, &id));
        }
        stage.pass(Span::mins(5));
    }
    // Two every five minutes, each shown for an hour after its end.
    let known = stage.region.instances().count();
    assert!((24..=26).contains(&known), "{known}");
    assert_eq!(leaves(&stage.call(&describe()).unwrap(), "instanceId").len(), known);
}

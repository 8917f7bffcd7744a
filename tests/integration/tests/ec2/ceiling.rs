//! The case of Karpenter's issue 2915: a limit of 608, demand far above it. There it was overshot (627); here it is reached and never passed.

use crate::stand::{Faults, Stand};
use forebay_kernel::event::Event;
use forebay_kernel::policy::{Ceiling, Policy};
use forebay_kernel::units::{Rate, Span};
use forebay_loopback_ec2::{InstanceState, RegionOptions};

const LIMIT: u32 = 608;

fn stand(limits: Ceiling, crash_one_in: u64) -> Stand {
    let mut policy = Policy { limits, ..forebay_sim::policies::spot_first() };
    if policy.limits.nodes.is_some() {
        // Nodes of one GPU alone: where nodes are what is short, the larger ones carry everything on fewer than 608.
        let small = |offering: &u32| policy.offerings[*offering as usize].instance_type == "g4dn.xlarge";
        policy.pools[0].offerings.retain(small);
    }
    let options = RegionOptions {
        rate_limits: true,
        lost_after_permille: 100,
        lost_before_permille: 50,
        server_error_permille: 50,
        max_staleness: Span::secs(30),
        ..RegionOptions::default()
    };
    let faults = Faults { crash_one_in, until: options.origin + Span::mins(40) };
    let mut stand = Stand::new(policy, options, faults, 2915);
    let begin = stand.now;
    for number in 0..3000u64 {
        let spec = crate::stand::job(&format!("job-{number}"));
        stand.input(begin + Span(1 + number * 20), Event::JobSubmitted(Box::new(spec)));
    }
    stand
}

/// Most that existed at once, counted by `count`, over forty minutes. The stand checks the truth against the limits at every step.
fn most(mut stand: Stand, count: impl Fn(&str, &str) -> u64) -> u64 {
    let end = stand.now + Span::mins(40);
    let mut most = 0;
    while stand.now < end {
        stand.step(end);
        assert_eq!(stand.found(), Vec::<String>::new());
        let existing = stand.region.with(|r| {
            let existing = r.instances().filter(|i| i.state != InstanceState::Terminated);
            existing.map(|i| count(&i.instance_type, &i.zone)).sum::<u64>()
        });
        most = most.max(existing);
    }
    most
}

#[test]
fn a_limit_of_608_is_reached_and_never_passed() {
    let nodes = Ceiling { nodes: Some(LIMIT), ..Ceiling::default() };
    for crashes in [0, 200] {
        let most = most(stand(nodes, crashes), |_, _| 1);
        println!("608 nodes, one crash in {crashes} steps: at most {most}");
        assert_eq!(most, u64::from(LIMIT));
    }
    let gpus = Ceiling { gpus: Some(LIMIT), ..Ceiling::default() };
    let of = |name: &str, _: &str| match name {
        "g4dn.xlarge" => 1,
        "g4dn.12xlarge" => 4,
        "g4dn.metal" => 8,
        _ => 0,
    };
    let most_gpus = most(stand(gpus, 200), of);
    println!("608 GPUs: at most {most_gpus}");
    assert!(most_gpus <= u64::from(LIMIT) && most_gpus + 8 > u64::from(LIMIT), "{most_gpus}");
    // At its maximum price, which is what the ceiling books, a g4dn.xlarge costs 0.526 USD an hour.
    let spend = Ceiling { spend: Some(Rate(60_800_000)), ..Ceiling::default() };
    let most_nodes = most(stand(spend, 200), |_, _| 1);
    println!("60.80 USD an hour: at most {most_nodes} nodes");
    assert!(most_nodes > 50, "{most_nodes}");
}

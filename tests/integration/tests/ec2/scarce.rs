//! Six hundred GPU nodes wanted in a market that has thirty: Karpenter's users report hours of churn (issues 3198 and 3275). Here the calls are
//! few, nothing grows, and stock that arrives is found by the next probe.

use crate::stand::{Faults, Stand};
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::event::Event;
use forebay_kernel::job::{Gang, JobSpec, WorkerAsk};
use forebay_kernel::policy::Policy;
use forebay_kernel::units::{Span, Timestamp};
use forebay_loopback_ec2::{RegionOptions, StockArrival};
use forebay_sim::policies;
use forebay_sim::world::Stock;

const WANTED: u64 = 600;
/// Of the six offerings of one type in three zones: five each, 30 in all.
const STOCK: u32 = 5;
/// The longest pause between two probes of an offering, and a call's time.
const ONE_PROBE: Span = Span::secs(610);
const HOURS: u64 = 5;

fn arrivals(begin: Timestamp) -> Vec<StockArrival> {
    let at = |minutes: u64, zone: &str, capacity, count| StockArrival {
        at: begin + Span::mins(minutes),
        instance_type: "g4dn.metal".to_owned(),
        zone: zone.to_owned(),
        capacity,
        count,
    };
    vec![
        at(61, "us-east-1a", CapacityType::Spot, 1),
        at(83, "us-east-1c", CapacityType::OnDemand, 3),
        at(127, "us-east-1b", CapacityType::Spot, 12),
        at(170, "us-east-1a", CapacityType::OnDemand, 1),
        at(222, "us-east-1c", CapacityType::Spot, 2),
    ]
}

fn stand() -> Stand {
    let zones = ["us-east-1a", "us-east-1b", "us-east-1c"];
    let offerings = policies::offerings(&["g4dn.metal"], &zones);
    let mut policy: Policy = policies::spot_first();
    policy.pools[0].offerings = (0..offerings.len() as u32).collect();
    policy.pools[0].sharing = None;
    let stock = offerings.iter().map(|o| Stock {
        instance_type: o.instance_type.clone(),
        zone: o.zone.clone(),
        capacity: o.capacity,
        count: STOCK,
    });
    let begin = RegionOptions::default().origin;
    let options = RegionOptions {
        rate_limits: true,
        stock: stock.collect(),
        arrivals: arrivals(begin),
        ..RegionOptions::default()
    };
    policy.offerings = offerings;
    let mut stand = Stand::new(policy, options, Faults::default(), 5);
    let each = WorkerAsk { gpus: 8, share: 1000, ..WorkerAsk::default() };
    for number in 0..WANTED {
        let spec =
            JobSpec { gang: Gang::Workers { min: 1, max: 1, each }, ..crate::stand::job(&format!("job-{number}")) };
        let at = stand.now + Span(1000);
        stand.input(at, Event::JobSubmitted(Box::new(spec)));
    }
    stand.works_for(Span::mins(60 * 24));
    stand
}

#[test]
fn six_hundred_nodes_in_a_market_of_thirty_are_asked_for_quietly() {
    let mut stand = stand();
    let begin = RegionOptions::default().origin;
    let mut sizes = Vec::new();
    for hour in 1..=HOURS {
        stand.run_until(begin + Span::mins(60 * hour));
        assert_eq!(stand.found(), Vec::<String>::new());
        sizes.push((stand.engine.snapshot().unwrap().len(), format!("{:?}", stand.machine).len()));
    }
    let calls = stand.region.with(|r| r.calls().clone());
    let most = |action: &str| calls.get(action).map_or(0, |c| c.most_in_a_minute);
    println!("at most a minute: {} CreateFleet, {} DescribeInstances", most("CreateFleet"), most("DescribeInstances"));
    let steady = stand.launches_between(begin + Span::mins(30), begin + Span::mins(60 * HOURS));
    println!("from the first half hour on: {:.2} CreateFleet a minute", steady as f64 / (60.0 * HOURS as f64 - 30.0));
    // Six offerings: a burst of windows at first, then a probe of each in ten minutes.
    assert!(most("CreateFleet") <= 60, "{}", most("CreateFleet"));
    assert!(steady <= (60 * HOURS as usize - 30) * 2, "{steady} launches");
    assert!(most("DescribeInstances") <= 20, "{}", most("DescribeInstances"));
    println!("engine's snapshot and machine in bytes, by the hour: {sizes:?}");
    let (first, last) = (sizes[0], sizes[sizes.len() - 1]);
    assert!(last.0 <= first.0 * 11 / 10 && last.1 <= first.1 * 11 / 10, "{sizes:?}");
    for arrival in arrivals(begin) {
        let taken = stand.region.with(|r| {
            let same = r
                .instances()
                .filter(|i| i.zone == arrival.zone && i.capacity == arrival.capacity && i.launched >= arrival.at);
            same.map(|i| i.launched).min()
        });
        let after = taken.map(|at| at.since(arrival.at).0 / 1000);
        println!(
            "{} {} in {} at {} min: taken after {after:?} s",
            arrival.count,
            arrival.capacity,
            arrival.zone,
            arrival.at.since(begin).0 / 60_000
        );
        assert!(taken.is_some_and(|at| at.since(arrival.at) <= ONE_PROBE), "{arrival:?}: {taken:?}");
    }
}

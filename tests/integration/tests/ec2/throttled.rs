//! Ten minutes in which EC2 refuses every call as one too many. Peers take it for a stock-out and buy dearer, or nothing.

use crate::stand::{Faults, Stand};
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::event::{Event, LaunchError};
use forebay_kernel::units::Span;
use forebay_loopback_ec2::RegionOptions;

#[test]
fn ten_minutes_of_throttling_mark_nothing_as_out_of_stock() {
    let begin = RegionOptions::default().origin;
    let (from, to) = (begin + Span::mins(2), begin + Span::mins(12));
    let options = RegionOptions { throttled: vec![(from, to)], rate_limits: true, ..RegionOptions::default() };
    let mut stand = Stand::new(forebay_sim::policies::spot_first(), options, Faults::default(), 1);
    for number in 0..50u64 {
        let spec = crate::stand::job(&format!("job-{number}"));
        stand.input(begin + Span::secs(90 + number * 10), Event::JobSubmitted(Box::new(spec)));
    }
    let end = begin + Span::mins(60);
    while stand.now < end {
        stand.step(end);
        assert_eq!(stand.found(), Vec::<String>::new());
        for row in stand.state().offerings() {
            assert_ne!(row.blocked_by, Some(LaunchError::Capacity), "{} at {}", row.offer, stand.now.since(begin));
        }
    }
    let dear = stand.region.with(|r| r.instances().filter(|i| i.capacity != CapacityType::Spot).count());
    let calls = stand.region.with(|r| r.calls().clone());
    let refused: u64 = calls.values().map(|c| c.throttled).sum();
    let most: Vec<_> = calls.iter().map(|(action, c)| (action.as_str(), c.most_in_a_minute)).collect();
    println!(
        "refused as throttled: {refused} calls in ten minutes; launches {:?}; most a minute {most:?}",
        stand.errors
    );
    assert!(stand.errors.contains_key(&LaunchError::Throttled) && !stand.errors.contains_key(&LaunchError::Capacity));
    assert_eq!(dear, 0, "on-demand was bought because calls were throttled");
    assert!(refused < 200, "{refused} calls into a wall");
    assert_eq!(stand.state().open_jobs(), 0, "what was wanted has run");
}

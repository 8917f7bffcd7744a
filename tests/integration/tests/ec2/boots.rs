//! Hours in which no instance gets through its boot, as with a disk key that nobody may use. Peers launch them again as fast as they end.

use crate::stand::{Faults, Stand};
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::event::{Event, LaunchError};
use forebay_kernel::state::nodes::OfferingRow;
use forebay_kernel::units::Span;
use forebay_loopback_ec2::RegionOptions;

#[test]
fn boots_that_fail_are_launched_again_with_growing_pauses() {
    let begin = RegionOptions::default().origin;
    let mended = begin + Span::mins(240);
    let options = RegionOptions { failed_boots: vec![(begin, mended)], ..RegionOptions::default() };
    let mut stand = Stand::new(forebay_sim::policies::on_demand_only(), options, Faults::default(), 3);
    for number in 0..40u64 {
        let spec = crate::stand::job(&format!("job-{number}"));
        stand.input(begin + Span::secs(30), Event::JobSubmitted(Box::new(spec)));
    }
    stand.run_until(begin + Span::mins(120));
    assert_eq!(stand.found(), Vec::<String>::new());
    let row = |stand: &Stand| {
        let blocked = |o: &&OfferingRow| o.blocked_by == Some(LaunchError::Boot) && o.blocked_until > stand.now;
        stand.state().offerings().iter().filter(blocked).count()
    };
    assert!(row(&stand) > 0, "what is wrong is said");
    let first = stand.launches_between(begin, begin + Span::mins(60));
    let on_demand = |o: &&OfferingRow| o.offer.capacity == CapacityType::OnDemand;
    let offerings = stand.state().offerings().iter().filter(on_demand).count();
    // Each offering by itself: its first ones, then one at a time after 1, 2, 4, 8, 16 and 30 minutes.
    let later = stand.launches_between(begin + Span::mins(60), begin + Span::mins(120));
    assert!(later <= 3 * offerings, "{later} launches in an hour over {offerings} offerings");
    stand.run_until(mended + Span::mins(60));
    assert_eq!((row(&stand), stand.found()), (0, Vec::new()));
    assert_eq!(stand.state().open_jobs(), 0, "what was wanted has run");
    println!(
        "no boot for four hours: {first} launches in the first hour, {later} in the second, over {offerings} offerings"
    );
}

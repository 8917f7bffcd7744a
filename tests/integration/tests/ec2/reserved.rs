//! Capacity that is paid for already goes first, and a Capacity Block is left before EC2 clears it.

use crate::stand::{Faults, Stand, settings};
use forebay_capacity_ec2::{Ec2Settings, ReservedCapacity};
use forebay_kernel::catalog::{CapacityType, Offering};
use forebay_kernel::event::Event;
use forebay_kernel::job::{Gang, JobSpec, WorkerAsk};
use forebay_kernel::policy::Policy;
use forebay_kernel::units::{Span, Timestamp};
use forebay_loopback_ec2::{RegionOptions, ReservationKind, ReservationOptions};
use forebay_sim::policies;

const ODCR: &str = "cr-00000000000000001";
const BLOCK: &str = "cr-00000000000000002";

fn policy() -> Policy {
    let mut offerings = policies::offerings(&["g4dn.metal"], &["us-east-1a"]);
    let reserved = Offering { capacity: CapacityType::Reserved, ..offerings[1].clone() };
    offerings.push(reserved);
    let mut policy = policies::spot_first();
    policy.pools[0].offerings = (0..offerings.len() as u32).collect();
    policy.pools[0].sharing = None;
    Policy { offerings, ..policy }
}

fn stand(id: &str, kind: ReservationKind, count: u32) -> Stand {
    stand_with(&[(id, kind, count, None)])
}

fn stand_with(reservations: &[(&str, ReservationKind, u32, Option<Timestamp>)]) -> Stand {
    let (mut held, mut own) = (Vec::new(), Vec::new());
    for &(id, kind, count, starts) in reservations {
        let (instance_type, zone) = ("g4dn.metal".to_owned(), "us-east-1a".to_owned());
        let ends = match kind {
            ReservationKind::Block { ends } => Some(ends),
            ReservationKind::OnDemand => None,
        };
        held.push(ReservationOptions {
            id: id.into(),
            instance_type: instance_type.clone(),
            zone: zone.clone(),
            count,
            kind,
        });
        own.push(ReservedCapacity { id: id.into(), instance_type, zone, block: ends.is_some(), starts, ends });
    }
    let options = RegionOptions { reservations: held, rate_limits: true, ..RegionOptions::default() };
    let settings = Ec2Settings { reservations: own, ..settings() };
    let mut stand = Stand::new(policy(), options, Faults::default(), 3);
    stand.configure(settings);
    stand
}

fn job(stand: &mut Stand, at: Timestamp, name: &str) {
    let each = WorkerAsk { gpus: 8, share: 1000, ..WorkerAsk::default() };
    let spec = JobSpec { gang: Gang::Workers { min: 1, max: 1, each }, ..crate::stand::job(name) };
    stand.input(at, Event::JobSubmitted(Box::new(spec)));
}

#[test]
fn a_reservation_is_used_up_before_spot_is_bought() {
    let mut stand = stand(ODCR, ReservationKind::OnDemand, 2);
    stand.works_for(Span::mins(120));
    let begin = stand.now;
    for (nth, name) in ["a", "b", "c", "d"].into_iter().enumerate() {
        job(&mut stand, begin + Span::mins(1 + 10 * nth as u64), name);
    }
    stand.run_until(begin + Span::mins(60));
    let bought: Vec<(CapacityType, bool)> = stand.region.with(|r| {
        let mut all: Vec<_> = r.instances().collect();
        all.sort_by_key(|i| i.launched);
        all.iter().map(|i| (i.capacity, i.reservation.as_deref() == Some(ODCR))).collect()
    });
    println!("bought in this order: {bought:?}");
    let (reserved, spot) = ((CapacityType::Reserved, true), (CapacityType::Spot, false));
    assert_eq!(bought, [reserved, reserved, spot, spot]);
    assert_eq!(stand.found(), Vec::<String>::new());
    assert_eq!(stand.state().open_jobs(), 4);
}

#[test]
fn a_capacity_block_is_left_before_it_is_cleared() {
    let begin = RegionOptions::default().origin;
    let ends = begin + Span::mins(180);
    let mut stand = stand(BLOCK, ReservationKind::Block { ends }, 1);
    stand.works_for(Span::mins(400));
    let at = stand.now + Span::mins(1);
    job(&mut stand, at, "a");
    let clears = begin + Span::mins(150);
    stand.run_until(begin + Span::mins(120));
    let in_block = stand.region.with(|r| r.instances().filter(|i| i.reservation.is_some()).count());
    assert_eq!(in_block, 1);
    // Its end is known without a message, and the run is stopped in order before EC2 ends the node.
    stand.run_until(Timestamp(clears.0 - 60_000));
    let left: Vec<_> = stand.state().nodes().filter(|n| n.reclaim_at.is_none()).map(|n| n.offering).collect();
    let running = stand.state().jobs().filter(|(j, _)| j.alive()).count();
    println!("a minute before the block is cleared: {} nodes are there to stay, {running} runs", left.len());
    assert_eq!((left.len(), running), (1, 1), "it goes on elsewhere");
    stand.run_until(begin + Span::mins(200));
    let late =
        stand.region.with(|r| r.instances().filter(|i| i.reservation.is_some() && i.terminated_at.is_none()).count());
    assert_eq!((late, stand.found()), (0, Vec::new()));
}

/// Where each instance ran, in the order of launches.
fn launched_into(stand: &Stand) -> Vec<Option<String>> {
    stand.region.with(|r| {
        let mut all: Vec<_> = r.instances().map(|i| (i.launched, i.id.clone(), i.reservation.clone())).collect();
        all.sort();
        all.into_iter().map(|(_, _, reservation)| reservation).collect()
    })
}

#[test]
fn the_next_block_is_used_when_it_starts_and_none_that_is_about_to_end() {
    let begin = RegionOptions::default().origin;
    let (first, second) = (begin + Span::mins(120), begin + Span::mins(300));
    let block = |ends| ReservationKind::Block { ends };
    let next = "cr-00000000000000003";
    let mut stand =
        stand_with(&[(BLOCK, block(first), 4, None), (next, block(second), 4, Some(begin + Span::mins(100)))]);
    stand.works_for(Span::mins(5));
    // Into the first; when the first is about to be cleared and the next has not begun; into the next; after both.
    let into: Vec<_> = [(1, "a"), (85, "b"), (105, "c"), (262, "d")]
        .into_iter()
        .map(|(minute, name)| {
            let at = begin + Span::mins(minute);
            job(&mut stand, at, name);
            stand.run_until(at + Span::mins(18));
            stand
                .region
                .with(|r| r.instances().filter(|i| i.launched >= at).map(|i| i.reservation.clone()).collect::<Vec<_>>())
        })
        .collect();
    stand.run_until(begin + Span::mins(360));
    println!("launched into {into:?}");
    assert_eq!(into, [[Some(BLOCK.to_owned())], [None], [Some(next.to_owned())], [None]]);
    let refused = stand.errors.get(&forebay_kernel::event::LaunchError::Config).copied();
    assert_eq!((refused, stand.found(), stand.state().open_jobs()), (None, Vec::new(), 0));
}

#[test]
fn a_full_reservation_sends_no_purchase_elsewhere_while_another_has_room() {
    let mut stand =
        stand_with(&[(ODCR, ReservationKind::OnDemand, 1, None), (BLOCK, ReservationKind::OnDemand, 2, None)]);
    stand.works_for(Span::mins(300));
    let begin = stand.now;
    for (nth, name) in ["a", "b", "c"].into_iter().enumerate() {
        job(&mut stand, begin + Span::mins(1 + 10 * nth as u64), name);
    }
    stand.run_until(begin + Span::mins(60));
    let of = |id: &str| Some(id.to_owned());
    assert_eq!(launched_into(&stand), [of(ODCR), of(BLOCK), of(BLOCK)]);
    assert_eq!(stand.found(), Vec::<String>::new());
}

#[test]
fn a_controller_that_dies_between_two_reservations_buys_no_node_twice() {
    let (mut crashes, mut reserved) = (0, 0);
    for seed in 0..40 {
        let ways = [(ODCR, 1), (BLOCK, 2), ("cr-00000000000000003", 2)];
        let mut stand = stand_with(&ways.map(|(id, count)| (id, ReservationKind::OnDemand, count, None)));
        let begin = stand.now;
        stand.works_for(Span::mins(20));
        stand.faults(Faults { crash_one_in: 4, until: begin + Span::mins(50) }, seed);
        for nth in 0..8u64 {
            let name = format!("job-{nth}");
            job(&mut stand, begin + Span::mins(1 + 5 * nth), &name);
            // The stand's cluster says an end once, and a crash may swallow it.
            let cancel = Event::JobCancelled { tenant: "t".into(), subject: name, by: None, sent: None };
            stand.input(begin + Span::mins(120), cancel);
        }
        while stand.now < begin + Span::mins(180) {
            stand.step(begin + Span::mins(180));
            assert_eq!(stand.found(), Vec::<String>::new(), "seed {seed}");
            let now = stand
                .region
                .with(|r| r.instances().filter(|i| i.reservation.is_some() && i.terminated_at.is_none()).count());
            reserved = reserved.max(now);
        }
        assert_eq!((stand.state().open_jobs(), stand.state().nodes().count()), (0, 0), "seed {seed}");
        crashes += stand.crashes.values().sum::<u64>();
    }
    println!("{crashes} crashes while reservations were turned to, at most {reserved} of 5 places taken");
    assert!(crashes > 400 && reserved > 1);
}

//! A second controller by mistake: another journal under the same name. Neither buys what the other has, and nothing is ended that works.

use crate::stand::{Faults, Stand, settings};
use forebay_kernel::event::{Event, LaunchError};
use forebay_kernel::units::{Span, Timestamp};
use forebay_loopback_ec2::{InstanceState, RegionOptions};
use std::collections::BTreeSet;

const OTHER: &str = "00000000-0000-4000-8000-000000000000";

fn stand() -> Stand {
    let options = RegionOptions { rate_limits: true, max_staleness: Span::secs(20), ..RegionOptions::default() };
    Stand::new(forebay_sim::policies::spot_first(), options, Faults::default(), 9)
}

fn job(stand: &mut Stand, at: Timestamp, name: &str) {
    let spec = crate::stand::job(name);
    stand.input(at, Event::JobSubmitted(Box::new(spec)));
}

/// Gives what exists to another journal, as if a second controller had bought it, and forgets it here.
fn theirs(stand: &mut Stand) -> Vec<String> {
    let now = stand.now;
    let ids: Vec<String> = stand.region.with(|r| {
        let up = r.instances().filter(|i| i.state == InstanceState::Running);
        up.map(|i| i.id.clone()).collect()
    });
    for id in &ids {
        stand.region.with(|r| r.retag(now, id, "forebay:journal", Some(OTHER)));
    }
    ids
}

fn launches(stand: &Stand) -> u64 {
    stand.region.with(|r| r.calls().get("CreateFleet").map_or(0, |c| c.total))
}

fn up(stand: &Stand, ids: &[String]) -> usize {
    stand
        .region
        .with(|r| ids.iter().filter(|id| r.instance(id).is_some_and(|i| i.state == InstanceState::Running)).count())
}

#[test]
fn two_journals_under_one_name_stop_each_others_buying_and_end_nothing() {
    // The first controller has a node at work.
    let mut first = stand();
    first.works_for(Span::mins(600));
    let at = first.now + Span::secs(1);
    job(&mut first, at, "a");
    first.run_until(at + Span::mins(10));
    let ids = theirs(&mut first);
    assert_eq!(ids.len(), 1);
    // A second one starts with a journal of its own, in the same account and under the same name.
    let mut second = Stand::beside(&first, forebay_sim::policies::spot_first());
    let (before, begin) = (launches(&second), second.now);
    job(&mut second, begin + Span::secs(1), "b");
    second.run_until(begin + Span::mins(30));
    assert_eq!(launches(&second), before, "it buys though another uses its name");
    assert!(second.errors.get(&LaunchError::Contested).is_some_and(|n| *n > 0), "{:?}", second.errors);
    assert_eq!(up(&second, &ids), 1, "it ended what is not its own");
    assert_eq!(second.machine.contested().get(OTHER), Some(&1));
    println!("contested: refused {:?}, other's nodes still up", second.errors);
    // Somebody says that the other is no more: its instance is ended as an orphan, and buying goes on.
    let named = forebay_capacity_ec2::Ec2Settings { predecessors: BTreeSet::from([OTHER.to_owned()]), ..settings() };
    second.configure(named);
    second.run_until(begin + Span::mins(75));
    assert_eq!(up(&second, &ids), 0);
    assert!(launches(&second) > before);
    assert_eq!(second.state().open_jobs(), 0, "its job has run");
    assert_eq!(second.found(), Vec::<String>::new());
}

#[test]
fn a_node_whose_tags_were_edited_is_still_ours() {
    let mut stand = stand();
    stand.works_for(Span::mins(30));
    let at = stand.now + Span::secs(1);
    job(&mut stand, at, "a");
    stand.run_until(at + Span::mins(10));
    let now = stand.now;
    let id = stand.region.with(|r| r.instances().next().map(|i| i.id.clone())).unwrap();
    for key in ["forebay:cluster", "forebay:journal", "forebay:purchase"] {
        stand.region.with(|r| r.retag(now, &id, key, Some("nonsense")));
    }
    stand.run_until(now + Span::mins(15));
    assert_eq!(up(&stand, std::slice::from_ref(&id)), 1, "its work is not done");
    assert_eq!(stand.state().nodes().count(), 1);
    assert!(stand.machine.contested().is_empty());
    stand.run_until(now + Span::mins(120));
    assert_eq!((stand.existing(), stand.state().open_jobs()), (0, 0), "it is given back all the same");
}

//! Pools that a new policy has under another name, or has no longer.

use crate::audit;
use crate::decision::Decision;
use crate::effect::{Terms, WorkerPlace};
use crate::event::{Event, EventOutcome, GoneWhy, Tick};
use crate::ids::{Attempt, JobId, PoolId, PurchaseId, QuotaId};
use crate::job::{Gang, JobSpec, WorkerAsk};
use crate::journal::APPLY_VERSION;
use crate::machine::StateMachine;
use crate::making::offering;
use crate::policy::{Ceiling, Drain, Policy, Pool, QueueRule, QuotaLimit, QuotaNode, Tier};
use crate::state::brakes::Brake;
use crate::state::owned::{OwnedNode, OwnedPool, OwnedShape};
use crate::state::reservations::Reservation;
use crate::units::{MilliGpu, Rate, Span};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// The queue of all jobs: it owns one GPU of the first pool, and borrows the others.
const TEAM: QuotaId = QuotaId(1);

/// `first=small second=large,small`: pools with what they offer. Each has a ceiling and a floor, and the queue uses all of them.
fn policy(pools: &str) -> Policy {
    let mut policy = Policy { tiers: vec![Tier::default()], ..Policy::default() };
    for (name, types) in pools.split(' ').filter_map(|pool| pool.split_once('=')) {
        let ceiling = Ceiling { nodes: Some(3), ..Ceiling::default() };
        let drain = Drain::After(Span::mins(7));
        let mut pool = Pool { name: name.into(), ceiling, drain, keep_ready: 1, ..Pool::default() };
        for instance_type in types.split(',') {
            let known = policy.offerings.iter().position(|offer| offer.instance_type == instance_type);
            if known.is_none() {
                policy.offerings.push(offering(instance_type));
            }
            pool.offerings.push(known.unwrap_or(policy.offerings.len() - 1) as u32);
        }
        policy.pools.push(pool);
    }
    let node = |name: &str, parent: Option<QuotaId>, gpus: u64| {
        let limit = QuotaLimit { nominal: MilliGpu::whole(gpus), borrow: None, lend: None };
        QuotaNode { name: name.into(), parent, limits: [(PoolId(0), limit)].into(), ..QuotaNode::default() }
    };
    policy.quotas = vec![node("all", None, 7), node("team", Some(QuotaId(0)), 1)];
    let pools = (0..policy.pools.len() as u16).map(PoolId).collect();
    policy.queues = [(String::from("q"), QueueRule { quota: TEAM, pools, ..QueueRule::default() })].into();
    policy
}

fn happens(machine: &mut StateMachine, version: u32, event: &Event) -> EventOutcome {
    let now = machine.now() + Span::mins(1);
    machine.apply_tick(Tick { now, resumed: false, delivered: 0 }, version);
    machine.apply_event(event)
}

fn configure(machine: &mut StateMachine, version: u32, policy: &Policy) {
    let _ = happens(machine, version, &Event::Configured(Box::new(policy.clone())));
    assert_eq!(audit::full(machine), Vec::<String>::new());
}

/// Under a policy, a job on one GPU of a node in each of these pools.
fn running_in(pools: &[u16], version: u32, policy: &Policy) -> StateMachine {
    let mut machine = StateMachine::default();
    configure(&mut machine, version, policy);
    for (at, pool) in (0..).zip(pools) {
        run_in(&mut machine, version, at, PoolId(*pool));
    }
    machine
}

fn run_in(machine: &mut StateMachine, version: u32, at: u64, pool: PoolId) {
    let (job, purchase, instance) = (JobId(at), PurchaseId(at), format!("i-{at}"));
    let gang = Gang::Workers { min: 1, max: 1, each: WorkerAsk { gpus: 1, share: 1000, ..WorkerAsk::default() } };
    let spec = JobSpec { subject: format!("job-{at}"), queue: "q".into(), gang, ..JobSpec::default() };
    let _ = happens(machine, version, &Event::JobSubmitted(Box::new(spec)));
    let _ = machine.apply_decision(&Decision::Resume { job });
    let offered = machine.policy().unwrap().pools[pool.index()].offerings[0];
    let offering = machine.listed[offered as usize];
    let buy = Decision::Buy { purchase, pool, offering, count: 1, at_least: 1, terms: Terms::default() };
    let _ = machine.apply_decision(&buy);
    let node = machine.purchases[&purchase].nodes[0];
    let places = vec![WorkerPlace { node, gpus: 1, share: 1000, slice: None }];
    let _ = machine.apply_decision(&Decision::Book { job, pool, places });
    let _ = machine.apply_event(&Event::LaunchOutcome { purchase, instances: vec![instance.clone()], error: None });
    let _ = machine.apply_event(&Event::NodeReady { instance });
    let _ = machine.apply_decision(&Decision::Start { job });
    assert_eq!(happens(machine, version, &Event::RunStarted { job, attempt: Attempt(1) }), EventOutcome::Applied);
}

fn names(machine: &StateMachine) -> Vec<&str> {
    machine.policy().unwrap().pools.iter().map(|pool| pool.name.as_str()).collect()
}

/// The name of the pool of a job and of the node that it is on.
fn home(machine: &StateMachine, job: u64) -> String {
    let row = &machine.jobs[JobId(job)];
    let node = &machine.nodes[&row.places[0].node];
    assert_eq!(row.pool, Some(node.pool), "a job and its node");
    names(machine)[node.pool.index()].into()
}

/// A job is done, and its node is given back.
fn leaves(machine: &mut StateMachine, job: u64) {
    let done = Event::RunCompleted { job: JobId(job), attempt: Attempt(1), worker: None };
    assert_eq!(happens(machine, APPLY_VERSION, &done), EventOutcome::Applied);
    let gone = Event::NodeGone { instance: format!("i-{job}"), why: GoneWhy::Lost };
    assert_eq!(happens(machine, APPLY_VERSION, &gone), EventOutcome::Applied);
}

#[test]
fn a_pool_is_known_under_another_name_by_what_it_offers() {
    for (next, expected) in [
        ("first=small new=large,medium", "new"),
        ("new=medium,large first=small", "new"),
        // More, less, or something else.
        ("first=small new=large,medium,small", "old"),
        ("first=small new=large", "old"),
        ("first=small new=huge", "old"),
        // One of two: nobody knows which.
        ("first=small new=large,medium other=large,medium", "old"),
        // A pool that was there already is another one.
        ("first=large,medium", "old"),
        // Its own name comes first.
        ("first=small new=large,medium old=huge", "old"),
    ] {
        let mut machine = running_in(&[1], APPLY_VERSION, &policy("first=small old=large,medium"));
        configure(&mut machine, APPLY_VERSION, &policy(next));
        assert_eq!(home(&machine, 0), expected, "{next}");
        let declared = next.split(' ').any(|pool| pool.starts_with(&format!("{expected}=")));
        assert_eq!(machine.is_kept_pool(machine.jobs[JobId(0)].pool.unwrap()), !declared, "{next}");
        assert!(machine.is_in_force(&policy(next)), "{next}");
    }
}

#[test]
fn two_pools_are_not_taken_together() {
    let mut machine = running_in(&[0, 1], APPLY_VERSION, &policy("one=large two=large"));
    configure(&mut machine, APPLY_VERSION, &policy("both=large"));
    assert_eq!(names(&machine), ["both", "one", "two"]);
    assert_eq!((home(&machine, 0).as_str(), home(&machine, 1).as_str()), ("one", "two"));
}

#[test]
fn what_runs_in_a_pool_that_is_gone_counts_in_no_other() {
    for (version, first, behind) in [(4, 2, None), (APPLY_VERSION, 1, Some(1))] {
        let mut machine = running_in(&[0, 1], version, &policy("first=small old=large"));
        let next = policy("first=small");
        configure(&mut machine, version, &next);
        let held: Vec<u32> = machine.totals().pools.iter().map(|held| held.nodes).collect();
        assert_eq!(held, [Some(first), behind].into_iter().flatten().collect::<Vec<u32>>(), "{version}");
        assert_eq!(machine.totals().all.nodes, 2, "limits count all of them");
        assert_eq!(machine.quota().usage(TEAM, PoolId(0)), MilliGpu::whole(u64::from(first)));
        // Whoever owns no more than it uses in the first pool borrows nothing there for what runs elsewhere.
        assert_eq!(machine.quota().borrows(TEAM, PoolId(0)), version < 5);
        assert_eq!(home(&machine, 0), "first");
        assert_eq!(home(&machine, 1), if version < 5 { "first" } else { "old" });
        assert!(machine.is_in_force(&next) && !machine.is_in_force(&policy("first=small old=large")));
    }
}

#[test]
fn nothing_new_comes_to_a_pool_that_is_only_kept() {
    let mut machine = running_in(&[1], APPLY_VERSION, &policy("first=small old=large"));
    let nodes = vec![machine.jobs[JobId(0)].places[0].node];
    let at = machine.now();
    let kept = Reservation { job: JobId(0), from: at, known: true, delayed: false, nodes, room: Vec::new() };
    machine.state_mut().set_reservation(PoolId(1), Some(kept));
    let _ = happens(&mut machine, APPLY_VERSION, &Event::Configured(Box::new(policy("first=small"))));
    assert!(machine.reservations().is_empty());
    assert_eq!(machine.declared_pools(), 1);
    assert!(!machine.is_kept_pool(PoolId(0)) && machine.is_kept_pool(PoolId(1)));
    let drain = Drain::After(Span::mins(7));
    assert_eq!(machine.policy().unwrap().pools[1], Pool { name: "old".into(), drain, ..Pool::default() });
    assert!(machine.classes().rows().all(|class| class.fits.iter().all(|(pool, _)| *pool == PoolId(0))));
    assert!(!machine.has_quotas(PoolId(1)));
    let bytes = machine.encode().unwrap();
    let again = StateMachine::restore(&bytes).unwrap();
    assert_eq!((again.encode().unwrap(), again.declared_pools()), (bytes, 1));
}

#[test]
fn a_pool_that_is_only_kept_goes_when_nothing_is_left_there() {
    let mut machine = running_in(&[1], APPLY_VERSION, &policy("first=small old=large"));
    configure(&mut machine, APPLY_VERSION, &policy("first=small"));
    // It still has a node: another policy keeps it, behind its own pools.
    configure(&mut machine, APPLY_VERSION, &policy("first=small other=medium"));
    assert_eq!(names(&machine), ["first", "other", "old"]);
    assert_eq!(home(&machine, 0), "old");
    // What once offered the same is no new name for it.
    configure(&mut machine, APPLY_VERSION, &policy("first=small new=large"));
    assert_eq!(names(&machine), ["first", "new", "old"]);
    leaves(&mut machine, 0);
    assert_eq!(names(&machine), ["first", "new", "old"], "nothing changes between two policies");
    configure(&mut machine, APPLY_VERSION, &policy("first=small"));
    assert_eq!((names(&machine), machine.declared_pools()), (vec!["first"], 1));
    // In which nothing is left goes at once.
    configure(&mut machine, APPLY_VERSION, &policy("second=large"));
    assert_eq!(names(&machine), ["second"]);
}

#[test]
fn a_purchase_on_its_way_keeps_its_pool() {
    let mut machine = StateMachine::default();
    configure(&mut machine, APPLY_VERSION, &policy("first=small old=large"));
    let (purchase, pool, offering) = (PurchaseId(0), PoolId(1), machine.listed[1]);
    let buy = Decision::Buy { purchase, pool, offering, count: 1, at_least: 1, terms: Terms::default() };
    let _ = machine.apply_decision(&buy);
    configure(&mut machine, APPLY_VERSION, &policy("first=small"));
    assert_eq!((names(&machine), machine.purchases[&purchase].pool), (vec!["first", "old"], PoolId(1)));
    let outcome = Event::LaunchOutcome { purchase, instances: vec!["i-0".into()], error: None };
    assert_eq!(happens(&mut machine, APPLY_VERSION, &outcome), EventOutcome::Applied);
    assert_eq!(machine.nodes.values().next().unwrap().pool, PoolId(1));
}

#[test]
fn a_name_that_comes_back_has_its_nodes_again() {
    let before = policy("first=small old=large");
    let mut machine = running_in(&[1], APPLY_VERSION, &before);
    configure(&mut machine, APPLY_VERSION, &policy("first=small"));
    assert_eq!((home(&machine, 0).as_str(), machine.declared_pools()), ("old", 1));
    let next = policy("old=large first=small");
    configure(&mut machine, APPLY_VERSION, &next);
    assert_eq!((home(&machine, 0).as_str(), machine.declared_pools()), ("old", 2));
    assert_eq!(machine.jobs[JobId(0)].pool, Some(PoolId(0)));
    assert_eq!(*machine.policy().unwrap(), next);
    assert_eq!(machine.quota().usage(TEAM, PoolId(0)), MilliGpu::whole(1));
}

#[test]
fn a_pool_that_is_drained_stays_so_under_another_name() {
    let mut machine = running_in(&[1], APPLY_VERSION, &policy("first=small old=large"));
    let brake = Brake::Pool("old".into());
    let set = Event::BrakeSet { brake, by: "ops".into(), why: String::new(), until: None };
    assert_eq!(happens(&mut machine, APPLY_VERSION, &set), EventOutcome::Applied);
    configure(&mut machine, APPLY_VERSION, &policy("first=small new=large"));
    assert!(machine.brakes.keys().eq([&Brake::Pool("new".into())]));
    assert!(machine.pool_brake(PoolId(1)).is_some());
    assert!(machine.nodes.values().all(|node| node.cordoned));
}

#[test]
fn owned_nodes_follow_their_labels_and_leave_with_their_pool() {
    let with_owned = |name: &str, price: u64| {
        let labels = [("team".into(), vec!["lab".into()])].into();
        let owned = Some(OwnedPool { labels, price: Rate(price) });
        let mut policy = policy("first=small");
        policy.pools.push(Pool { name: name.into(), owned, ..Pool::default() });
        policy
    };
    let mut machine = StateMachine::default();
    configure(&mut machine, APPLY_VERSION, &with_owned("lab", 5));
    let shape = OwnedShape { gpus: 4, ..OwnedShape::default() };
    let seen = OwnedNode { name: "n".into(), pool: "lab".into(), shape, open: true, ..OwnedNode::default() };
    assert_eq!(happens(&mut machine, APPLY_VERSION, &Event::OwnedNodeSeen(Box::new(seen))), EventOutcome::Applied);
    configure(&mut machine, APPLY_VERSION, &with_owned("den", 6));
    let known = |machine: &StateMachine| {
        let node = machine.nodes.values().next()?;
        Some((machine.owned_node(node)?.pool, node.price))
    };
    assert_eq!(known(&machine), Some(("den".into(), Rate(6))));
    configure(&mut machine, APPLY_VERSION, &policy("first=small"));
    assert!(machine.nodes.is_empty());
    configure(&mut machine, APPLY_VERSION, &policy("first=medium"));
    assert_eq!(names(&machine), ["first"]);
}

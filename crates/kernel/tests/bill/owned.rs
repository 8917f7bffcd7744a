//! Owned nodes without GPUs that pods of others use too: what those hold is `foreign` on the bill, and `idle` or free is what nobody holds.
//!
//! Never: a share that the other program has not made as well.

use super::recomputed::{HOUR, Recomputed};
use super::{adds_up, used};
use forebay_kernel::decision::Decision;
use forebay_kernel::effect::WorkerPlace;
use forebay_kernel::event::{Event, EventOutcome, Tick};
use forebay_kernel::ids::{JobId, PoolId};
use forebay_kernel::job::{Gang, JobSpec, WorkerAsk};
use forebay_kernel::journal::APPLY_VERSION;
use forebay_kernel::machine::StateMachine;
use forebay_kernel::policy::{BillingRule, Policy, Pool, QueueRule, QuotaNode, Tier};
use forebay_kernel::state::billing::{Charge, ChargeKey};
use forebay_kernel::state::owned::{ForeignUse, OwnedNode, OwnedPool, OwnedShape};
use forebay_kernel::units::{Mib, MilliCpu, Rate, Timestamp};
use std::collections::BTreeMap;

const JOB: JobId = JobId(0);

/// A pool of owned nodes that cost three dollars an hour, and a queue for it.
fn policy() -> Policy {
    let owned = OwnedPool { labels: [("team".into(), vec!["lab".into()])].into(), price: Rate(3_000_000) };
    let rule = QueueRule { pools: vec![PoolId(0)], ..QueueRule::default() };
    Policy {
        tiers: vec![Tier::default()],
        quotas: vec![QuotaNode::default()],
        queues: [("q".into(), rule)].into(),
        pools: vec![Pool { name: "lab".into(), owned: Some(owned), ..Pool::default() }],
        billing: Some(BillingRule::default()),
        ..Policy::default()
    }
}

/// The node, of which pods of others hold so many thousandths of its 16 cores and so many of its 64,000 MiB.
fn node(cpu: u64, mem: u64) -> Event {
    let (cores, memory) = (MilliCpu(16_000), Mib(64_000));
    let shape = OwnedShape { instance_type: "cpu".into(), cpu: cores, mem: memory, ..OwnedShape::default() };
    let foreign = ForeignUse { cpu: MilliCpu(cpu), mem: Mib(mem), by: "ml/etl".into(), ..ForeignUse::default() };
    Event::OwnedNodeSeen(Box::new(OwnedNode { name: "n".into(), pool: "lab".into(), shape, open: true, foreign }))
}

/// A job of so many workers, each of a quarter of the node.
fn job(workers: u32) -> Event {
    let each = WorkerAsk { cpu: MilliCpu(4_000), mem: Mib(8_000), ..WorkerAsk::default() };
    let gang = Gang::Workers { min: workers, max: workers, each };
    Event::JobSubmitted(Box::new(JobSpec { subject: "a".into(), queue: "q".into(), gang, ..JobSpec::default() }))
}

/// A state machine, what it has charged, and the other program.
struct Billed {
    machine: StateMachine,
    charges: BTreeMap<ChargeKey, i128>,
    expected: Recomputed,
}

impl Billed {
    /// With the policy in force from the first hour on.
    fn new() -> Billed {
        let (machine, charges) = (StateMachine::default(), BTreeMap::new());
        let mut billed = Billed { machine, charges, expected: Recomputed::in_slots_of(HOUR) };
        billed.at(0, &[Event::Configured(Box::new(policy()))], &[]);
        billed
    }

    /// A batch at the beginning of an hour.
    fn at(&mut self, hour: u64, events: &[Event], decisions: &[Decision]) {
        let now = Timestamp(hour * HOUR);
        self.expected.pass_time(&self.machine, now);
        self.machine.apply_tick(Tick { now, resumed: false, delivered: 0 }, APPLY_VERSION);
        self.expected.look(&self.machine);
        for event in events {
            let outcome = self.machine.apply_event(event);
            assert!(matches!(outcome, EventOutcome::Applied | EventOutcome::Submitted(_)), "{event:?}: {outcome:?}");
            self.expected.look(&self.machine);
        }
        for decision in decisions {
            let _ = self.machine.apply_decision(decision);
            self.expected.look(&self.machine);
        }
        for Charge { key, amount } in self.machine.charged().charges {
            *self.charges.entry(key).or_default() += amount;
        }
    }

    /// The job of so many workers starts on the node.
    fn starts(&mut self, hour: u64, workers: u32) {
        self.at(hour, &[job(workers)], &[Decision::Resume { job: JOB }]);
        let node = self.machine.node_of("n").unwrap().id;
        let places = (0..workers).map(|_| WorkerPlace { node, gpus: 0, share: 0, slice: None }).collect();
        self.at(hour, &[], &[Decision::Book { job: JOB, pool: PoolId(0), places }, Decision::Start { job: JOB }]);
    }

    /// What the node was in each hour so far, in millionths of it by kind. It is what the other program makes of it, and all that it cost.
    fn hours(&self) -> BTreeMap<u64, Vec<(&'static str, u128)>> {
        let used = used(&self.machine, &self.charges);
        let made = self.expected.used.iter().filter(|(_, amount)| **amount > 0);
        assert_eq!(used, made.map(|(used, amount)| (used.clone(), *amount)).collect());
        adds_up(&self.machine, &used);
        let mut hours: BTreeMap<u64, Vec<(&'static str, u128)>> = BTreeMap::new();
        for (used, amount) in &used {
            assert_eq!(amount % u128::from(HOUR), 0, "{used:?} is {amount}");
            hours.entry(used.stretch.slot / HOUR).or_default().push((used.kind, amount / u128::from(HOUR)));
        }
        for (hour, parts) in &hours {
            assert_eq!(parts.iter().map(|(_, share)| share).sum::<u128>(), 1_000_000, "hour {hour}: {parts:?}");
        }
        hours
    }
}

#[test]
fn a_node_without_gpus_whose_cpu_others_hold_is_foreign_and_not_idle() {
    let mut billed = Billed::new();
    billed.at(0, &[node(16_000, 0)], &[]);
    billed.at(1, &[node(8_000, 16_000)], &[]);
    billed.at(2, &[node(1_000, 48_000)], &[]);
    billed.at(3, &[node(0, 0)], &[]);
    billed.at(4, &[], &[]);
    let expected: BTreeMap<u64, Vec<(&'static str, u128)>> = BTreeMap::from([
        (0, vec![("foreign", 1_000_000)]),
        (1, vec![("foreign", 500_000), ("idle", 500_000)]),
        // Of memory they hold more than of CPU.
        (2, vec![("foreign", 750_000), ("idle", 250_000)]),
        (3, vec![("idle", 1_000_000)]),
    ]);
    assert_eq!(billed.hours(), expected);
}

#[test]
fn beside_work_others_hold_what_it_leaves_at_most_and_all_adds_up() {
    let mut billed = Billed::new();
    billed.at(0, &[node(8_000, 0)], &[]);
    billed.starts(0, 1);
    // They hold more than the worker leaves: what counts as theirs is the rest.
    billed.at(1, &[node(16_000, 64_000)], &[]);
    billed.at(2, &[node(5_333, 1)], &[]);
    billed.at(3, &[], &[]);
    let restarted = StateMachine::restore(&billed.machine.encode().unwrap()).unwrap();
    assert_eq!(restarted.open_charges(), billed.machine.open_charges());
    billed.at(4, &[], &[]);
    let expected: BTreeMap<u64, Vec<(&'static str, u128)>> = BTreeMap::from([
        (0, vec![("foreign", 500_000), ("fragmentation", 250_000), ("worked", 250_000)]),
        (1, vec![("foreign", 750_000), ("worked", 250_000)]),
        // 5,333 / 16,000, rounded down: what that leaves out is free.
        (2, vec![("foreign", 333_312), ("fragmentation", 416_688), ("worked", 250_000)]),
        (3, vec![("foreign", 333_312), ("fragmentation", 416_688), ("worked", 250_000)]),
    ]);
    assert_eq!(billed.hours(), expected);
}

#[test]
fn workers_that_were_promised_more_than_all_of_a_node_leave_nothing_of_it_to_others() {
    let mut billed = Billed::new();
    billed.at(0, &[node(0, 0)], &[]);
    billed.starts(0, 5);
    billed.at(0, &[node(8_000, 8_000)], &[]);
    billed.at(1, &[], &[]);
    assert_eq!(billed.hours(), BTreeMap::from([(0, vec![("worked", 1_000_000)])]));
}

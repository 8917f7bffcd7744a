//! The engine is total: what says nothing true changes nothing, and no order of events, however wild, makes it panic or lose count.
//!
//! Never: the world of `cluster`, which only says what can be.

use super::holds;
use crate::making::{self, ask, workers};
use forebay_engine::engine::Engine;
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::event::{Event, GoneWhy, LaunchError, Tick};
use forebay_kernel::ids::{Attempt, JobId, NodeId, OfferingId, PurchaseId};
use forebay_kernel::job::Gang;
use forebay_kernel::journal::Batch;
use forebay_kernel::state::brakes::Brake;
use forebay_kernel::units::{Rate, Span, Timestamp};
use proptest::prelude::*;

/// Kind, two small numbers that often name something that exists, and one large.
type Wild = (u8, u8, u8, u32);

const KINDS: u8 = 17;

fn instance(a: u8) -> String {
    format!("i-{}", a % 8)
}

/// An event out of nothing. `base` 0: ids that may exist; large: ids that cannot.
fn event((kind, a, b, c): Wild, base: u64, fresh: usize) -> Event {
    let job = JobId(base + u64::from(a % 6));
    let attempt = Attempt(u32::from(b % 4));
    let name = |a: u8| if base == 0 { instance(a) } else { format!("never-{a}") };
    match kind {
        0 => Event::LaunchOutcome {
            purchase: PurchaseId(base + u64::from(a % 8)),
            // Instances are named once, by the cloud.
            instances: (0..b % 4).map(|at| format!("i-{}", fresh * 4 + usize::from(at))).collect(),
            error: [None, Some(LaunchError::Capacity), Some(LaunchError::Server)][usize::from(b % 3)],
        },
        1 => Event::NodeReady { instance: name(a) },
        2 => Event::ReclaimNotice { instance: name(a), at: Timestamp(u64::from(c)) },
        3 => Event::NodeGone {
            instance: name(a),
            why: [GoneWhy::Lost, GoneWhy::Reclaimed, GoneWhy::Terminated][usize::from(b % 3)],
        },
        4 => Event::RunStarted { job, attempt },
        5 => Event::RunCheckpointed { job, attempt, progress: Span(u64::from(c) << (b % 32)) },
        6 => Event::RunCompleted { job, attempt, worker: (b & 64 != 0).then_some(u32::from(b % 3)) },
        7 => Event::RunFailed {
            job,
            attempt,
            exit_code: i32::from(b),
            node_fault: (b & 64 != 0).then(|| NodeId(base + u64::from(a % 8))),
        },
        8 => Event::RunStopped { job, attempt, progress: (b & 64 != 0).then_some(Span(u64::from(c))) },
        9 => Event::RunIdle { job, attempt, idle: Span(u64::from(c)) },
        10 => Event::PriceChanged {
            offering: OfferingId((base as u32).saturating_add(u32::from(a % 3))),
            price: Rate(u64::from(c) << (b % 32)),
        },
        11 if base == 0 => {
            Event::OrphanSeen { instance: format!("stray-{}", a % 4), offering: OfferingId(u32::from(b % 3)) }
        }
        12 if base == 0 => {
            let brake = brake(a, b);
            let until = (b & 64 != 0).then_some(Timestamp(u64::from(c % 1_000_000)));
            Event::BrakeSet { brake, by: "ops".into(), why: String::new(), until }
        }
        13 if base == 0 => Event::BrakeReleased { brake: brake(a, b), by: "ops".into() },
        // A cancel of nobody is kept for who may still come: that is not nothing.
        _ if base > 0 => {
            Event::ServiceDemand { tenant: "t".into(), subject: "nobody".into(), by: None, concurrency: c }
        }
        _ => Event::JobCancelled {
            tenant: "t".into(),
            subject: format!("j{}", a % 6),
            by: [None, Some("p".into()), Some("mallory".into())][usize::from(b % 3)].clone(),
            sent: (b & 64 != 0).then_some(Timestamp(u64::from(c % 1000))),
        },
    }
}

fn brake(a: u8, b: u8) -> Brake {
    match a % 6 {
        0 => Brake::Buying,
        1 => Brake::Admission,
        2 => Brake::Preemption,
        3 => Brake::Queue(["normal", "critical", "scavenger", "none"][usize::from(b % 4)].into()),
        4 => Brake::Pool(["main", "nowhere"][usize::from(b % 2)].into()),
        _ => Brake::Node(NodeId(u64::from(b % 8))),
    }
}

fn submit((_, a, b, c): Wild) -> Event {
    let gang = match a % 4 {
        0 => Gang::Spanning { gpus: u32::from(b % 20), per_gpu: ask(1) },
        1 => Gang::Workers { min: u32::from(b % 3), max: u32::from(a / 4 % 5), each: ask(u16::from(b % 5)) },
        _ => workers(u32::from(a / 64) + 1, ask(u16::from(b % 4))),
    };
    let mut spec = making::job(&format!("j{}", b % 6), gang);
    spec.queue = ["normal", "critical", "scavenger", "none"][usize::from(c as u8 % 4)].into();
    spec.rerun = c & 256 != 0;
    spec.digest = u128::from(c & 512);
    spec.sent = (a & 32 != 0).then_some(Timestamp(u64::from(c % 1000)));
    spec.retry.attempts = c % 3;
    Event::JobSubmitted(Box::new(spec))
}

/// An engine under test and one that only replays its journal.
struct Pair {
    engine: Engine,
    shadow: Engine,
    now: u64,
}

impl Pair {
    fn new() -> Pair {
        let mut policy = making::policy(vec![
            making::offering("spot", CapacityType::Spot, 4, 1),
            making::offering("dear", CapacityType::OnDemand, 2, 3),
        ]);
        policy.limits.nodes = Some(6);
        let mut pair = Pair { engine: Engine::new(), shadow: Engine::new(), now: 0 };
        pair.step(vec![Event::Configured(Box::new(policy))], true);
        pair
    }

    fn step(&mut self, events: Vec<Event>, plans: bool) {
        self.engine.open(Tick { now: Timestamp(self.now), resumed: false, delivered: 0 });
        events.into_iter().for_each(|event| _ = self.engine.handle_event(event));
        if plans {
            let _ = self.engine.plan();
        }
        let unsaved = self.engine.close();
        let batch = Batch::decode(&unsaved.batch().encode().expect("can be encoded")).expect("can be read back");
        let _ = unsaved.saved();
        self.shadow.replay(&batch);
        assert!(self.engine.snapshot() == self.shadow.snapshot(), "replay differs");
        assert_eq!(self.engine.state().index(), &self.engine.rebuilt_index());
        assert_eq!(self.engine.audit(), Vec::<String>::new());
    }
}

fn wild(longest: usize) -> impl Strategy<Value = Vec<Wild>> {
    let any_wild = (0..KINDS + 6, any::<u8>(), any::<u8>(), any::<u32>());
    prop::collection::vec(any_wild, 1..longest)
}

fn run(pair: &mut Pair, all: &[Wild]) {
    for (n, one) in all.iter().enumerate() {
        let event = if one.0 >= KINDS { submit(*one) } else { event(*one, 0, n) };
        pair.now += u64::from(one.3 % 50_000);
        pair.step(vec![event], true);
    }
}

#[test]
fn wild_events_never_break_it() {
    holds("wild_events_never", 1500, &wild(60), |all| {
        run(&mut Pair::new(), &all);
        Ok(())
    });
}

#[test]
fn what_says_nothing_changes_nothing() {
    let inputs = (wild(40), prop::collection::vec((0..KINDS, any::<u8>(), any::<u8>(), any::<u32>()), 1..9));
    holds("what_says_nothing", 750, &inputs, |(before, garbage)| {
        let mut pair = Pair::new();
        run(&mut pair, &before);
        let facts = |engine: &Engine| {
            let state = engine.state();
            let rows = (
                state.jobs().map(|(job, spec)| (job.clone(), spec.clone())).collect::<Vec<_>>(),
                state.nodes().cloned().collect::<Vec<_>>(),
                state.purchases().cloned().collect::<Vec<_>>(),
                state.offerings().to_vec(),
            );
            (rows, state.totals().clone(), *state.ledger(), state.counters().statuses)
        };
        let was = facts(&pair.engine);
        let ignored = pair.engine.state().counters().ignored_events;
        let count = garbage.len() as u64;
        let events = garbage.into_iter().map(|one| event(one, 1_000_000, 0)).collect();
        pair.step(events, false);
        prop_assert_eq!(was, facts(&pair.engine));
        prop_assert_eq!(pair.engine.state().counters().ignored_events, ignored + count);
        Ok(())
    });
}

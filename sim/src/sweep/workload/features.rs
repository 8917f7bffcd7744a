//! What a random job names beyond its gang: batches, closeness, services, deadlines that can be met. Each with a chance of its own.
//!
//! Never: a service that nobody cancels; it would serve for ever.

use forebay_kernel::event::Event;
use forebay_kernel::job::{Gang, JobSpec, Level, Service, TopologyConstraint, WorkerAsk};
use forebay_kernel::units::{Span, Timestamp};

use super::{Dice, Input, TENANT};
use crate::world::JobTruth;

/// Longer than any sweep: a service ends when it is cancelled.
const FOR_EVER: Span = Span::mins(60 * 24 * 365);

/// Adds features to a job that is submitted at `at`.
pub(super) fn add(dice: &Dice, at: Timestamp, spec: &mut JobSpec, truth: &mut JobTruth) {
    match dice.roll(100, 8) {
        0 => service(dice, spec, truth),
        1 => batch(dice, spec),
        _ => {}
    }
    within(dice, spec);
    if spec.service.is_none() && dice.one_in(130, 6) {
        // From less than it takes to a boot and three runs.
        let run = Span::secs(60 + dice.roll(131, 1800));
        let slack = Span(run.0 * dice.roll(132, 4) / 2 + dice.roll(133, 300_000));
        spec.expected = Some(run);
        spec.deadline = Some(at + Span(run.0 / 2) + slack);
    }
}

/// One shape for all jobs of a key, so that they can follow each other.
fn batch(dice: &Dice, spec: &mut JobSpec) {
    let key = dice.roll(101, 3);
    let shared = Dice { seed: dice.seed, job: 10_000 + key };
    let made = super::spec(&shared);
    let own = spec.clone();
    *spec = JobSpec {
        subject: own.subject,
        priority: own.priority,
        digest: own.digest,
        deadline: None,
        expected: own.expected,
        batch: Some(format!("key-{key}")),
        ..made
    };
}

fn service(dice: &Dice, spec: &mut JobSpec, truth: &mut JobTruth) {
    let small = |nth, bound| u32::try_from(dice.roll(nth, bound)).unwrap_or(0);
    let share = [200, 500, 1000][small(110, 3) as usize];
    let each = WorkerAsk { gpus: 1, share, ..WorkerAsk::default() };
    let min = small(111, 3);
    spec.gang = Gang::Workers { min: 1, max: 1, each };
    spec.shares = share < 1000;
    spec.service = Some(Service {
        min,
        max: (min + small(112, 4)).max(1),
        target: 1 + small(113, 8),
        spread: [None, Some(Level::Node), Some(Level::Zone)][small(114, 3) as usize],
    });
    spec.completion = forebay_kernel::job::Completion::All;
    (spec.deadline, spec.expected, spec.max_run) = (None, None, None);
    *truth = JobTruth { gpu_util_permille: None, linger: None, ..JobTruth::lasting(FOR_EVER) };
}

/// How demand moves, and the end of it.
pub(super) fn demand(dice: &Dice, at: Timestamp, spec: &JobSpec, send: &mut dyn FnMut(Input)) {
    if spec.service.is_none() {
        return;
    }
    for nth in 0..2 + dice.roll(120, 6) {
        let (tenant, subject) = (TENANT.to_owned(), spec.subject.clone());
        let concurrency =
            u32::try_from(dice.roll(200 + 2 * nth, 40)).unwrap_or(0) * u32::from(dice.roll(300 + nth, 4) > 0);
        let event = Event::ServiceDemand { tenant, subject, by: None, concurrency };
        send(Input { at: at + Span(dice.roll(201 + 2 * nth, 3_600_000)), event });
    }
    let event = Event::JobCancelled { tenant: TENANT.to_owned(), subject: spec.subject.clone(), by: None, sent: None };
    send(Input { at: at + Span(600_000 + dice.roll(121, 5_400_000)), event });
}

fn within(dice: &Dice, spec: &mut JobSpec) {
    let several = match &spec.gang {
        Gang::Workers { max, each, .. } => u64::from(*max) * u64::from(each.gpus) > 1,
        Gang::Spanning { gpus, .. } => *gpus > 1,
    };
    if several && dice.one_in(140, 3) {
        let level = [Level::Numa, Level::Nvlink, Level::Node, Level::Rack, Level::Zone][dice.roll(141, 5) as usize];
        spec.within = Some(TopologyConstraint { level, required: dice.one_in(142, 2) });
    }
}

/// A feature, and whether a job names it.
pub(in crate::sweep) type Named = (&'static str, fn(&JobSpec) -> bool);

/// Every feature that a job can name.
pub(in crate::sweep) const NAMED: [Named; 19] = [
    ("shared GPUs", |s| s.shares),
    ("elastic gangs", |s| matches!(s.gang, Gang::Workers { min, max, .. } if max > min)),
    ("spanning gangs", |s| matches!(s.gang, Gang::Spanning { gpus: 2.., .. })),
    ("work without GPUs", |s| matches!(s.gang, Gang::Workers { each: WorkerAsk { gpus: 0, .. }, .. })),
    ("batches", |s| s.batch.is_some()),
    ("services", |s| s.service.is_some()),
    ("services from nothing", |s| s.service.is_some_and(|s| s.min == 0)),
    ("services spread", |s| s.service.is_some_and(|s| s.spread.is_some())),
    ("deadlines", |s| s.deadline.is_some()),
    ("deadlines with a run expected", |s| s.deadline.is_some() && s.expected.is_some()),
    ("close together, required", |s| s.within.is_some_and(|w| w.required)),
    ("close together, preferred", |s| s.within.is_some_and(|w| !w.required)),
    ("within a numa node", |s| at(s, Level::Numa)),
    ("within nvlink", |s| at(s, Level::Nvlink)),
    ("within a node", |s| at(s, Level::Node)),
    ("within a rack", |s| at(s, Level::Rack)),
    ("within a zone", |s| at(s, Level::Zone)),
    ("never on spot", |s| !s.spot),
    ("no checkpoints", |s| s.checkpoint.is_none()),
];

fn at(spec: &JobSpec, level: Level) -> bool {
    spec.within.is_some_and(|w| w.level == level)
}

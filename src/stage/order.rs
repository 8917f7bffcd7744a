//! order: who goes first. Tier, then priority, then arrival.
//!
//! Jobs of one class stand in one line; only the heads of the lines are compared. A class that was told "no" leaves the pass, and
//! with it everyone behind its head: they ask the same.
//!
//! Never: keeps a job from going because another class was told no.

use crate::engine::{Engine, Parked};
use crate::ids::ClassId;
use crate::state::State;
use crate::state::index::OrderKey;
use crate::units::Millis;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// The line a head stands in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Line {
    /// Holds places that are not all ready: looks for ready ones.
    Booked,
    /// Waits for quota and places.
    Queued,
}

/// A head among the heads. The least goes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Head {
    /// Negated tier priority.
    tier: i64,
    pub key: OrderKey,
    pub line: Line,
    pub class: ClassId,
}

/// The heads of all lines.
pub(crate) fn heads(engine: &Engine) -> BTreeSet<Head> {
    let lines = [(Line::Booked, &engine.state.ix.booked), (Line::Queued, &engine.state.ix.queued)];
    let first = |(line, classes): (Line, &_)| heads_of(engine, line, classes);
    lines.into_iter().flat_map(first).collect()
}

fn heads_of(engine: &Engine, line: Line, classes: &BTreeMap<ClassId, BTreeSet<OrderKey>>) -> Vec<Head> {
    let first = |(class, jobs): (&ClassId, &BTreeSet<OrderKey>)| Some(head(engine, *class, *jobs.first()?, line));
    classes.iter().filter_map(first).collect()
}

/// The head of the same line behind `after`.
pub(crate) fn next(engine: &Engine, after: &Head) -> Option<Head> {
    let lines = match after.line {
        Line::Booked => &engine.state.ix.booked,
        Line::Queued => &engine.state.ix.queued,
    };
    let behind = (core::ops::Bound::Excluded(after.key), core::ops::Bound::Unbounded);
    let key = lines.get(&after.class)?.range(behind).next()?;
    Some(head(engine, after.class, *key, after.line))
}

fn head(engine: &Engine, class: ClassId, key: OrderKey, line: Line) -> Head {
    let tier = engine.state.classes[class.ix()].shape.tier;
    let priority = engine.state.policy.as_deref().and_then(|p| p.tiers.get(tier.ix())).map_or(0, |t| t.priority);
    Head { tier: -i64::from(priority), key, line, class }
}

impl crate::engine::Memo {
    /// Whether this head was told no and nothing has happened since that could help. Its line rests with it.
    pub(crate) fn resting(&self, state: &State, head: &Head, woke_at: Millis) -> Option<&Parked> {
        let parked = match head.line {
            Line::Booked => self.rebooked.get(&head.class),
            Line::Queued => self.parked.get(&head.class),
        };
        let rests = |p: &&Parked| {
            let in_time = p.reason.ask_again_at().is_none_or(|at| at > state.now);
            p.head == head.key.job && p.freed == state.freed && p.at >= woke_at && in_time
        };
        parked.filter(|_| !self.off).filter(rests)
    }

    /// When a class that waits by the clock is asked again.
    pub(crate) fn due(&self, state: &State) -> Option<Millis> {
        let of = |(class, parked): (&ClassId, &Parked)| {
            state.ix.queued.contains_key(class).then(|| parked.reason.ask_again_at()).flatten()
        };
        self.parked.iter().filter_map(of).filter(|at| *at > state.now).min()
    }
}

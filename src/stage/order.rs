//! order: who goes first. Tier, then priority, then arrival.
//!
//! Jobs of one class stand in one line; only the heads of the lines are compared. A class that was told "no" leaves the pass, and
//! with it everyone behind its head: they ask the same.
//!
//! Never: keeps a job from going because another class was told no.

use crate::engine::Engine;
use crate::ids::ClassId;
use crate::state::index::OrderKey;
use crate::units::Millis;
use alloc::collections::BTreeSet;

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

/// The heads of all lines that are worth looking at now.
pub(crate) fn heads(engine: &Engine) -> BTreeSet<Head> {
    let mut heads = BTreeSet::new();
    for (class, line) in &engine.state.ix.booked {
        if !engine.memo.resting(&engine.state, *class, Line::Booked) {
            heads.extend(
                line.first()
                    .map(|key| head(engine, *class, *key, Line::Booked)),
            );
        }
    }
    for (class, line) in &engine.state.ix.queued {
        if !engine.memo.resting(&engine.state, *class, Line::Queued) {
            heads.extend(
                line.first()
                    .map(|key| head(engine, *class, *key, Line::Queued)),
            );
        }
    }
    heads
}

/// The head of the same line behind `after`.
pub(crate) fn next(engine: &Engine, after: &Head) -> Option<Head> {
    let lines = match after.line {
        Line::Booked => &engine.state.ix.booked,
        Line::Queued => &engine.state.ix.queued,
    };
    let behind = (
        core::ops::Bound::Excluded(after.key),
        core::ops::Bound::Unbounded,
    );
    let key = lines.get(&after.class)?.range(behind).next()?;
    Some(head(engine, after.class, *key, after.line))
}

fn head(engine: &Engine, class: ClassId, key: OrderKey, line: Line) -> Head {
    let tier = engine.state.classes[class.ix()].shape.tier;
    let priority = engine
        .state
        .policy
        .as_deref()
        .and_then(|p| p.tiers.get(tier.ix()))
        .map_or(0, |t| t.priority);
    Head {
        tier: -i64::from(priority),
        key,
        line,
        class,
    }
}

impl crate::engine::Memo {
    /// Whether a class was told no and nothing has happened since that could help.
    fn resting(&self, state: &crate::state::State, class: ClassId, line: Line) -> bool {
        let parked = match line {
            Line::Booked => self.rebooked.get(&class),
            Line::Queued => self.parked.get(&class),
        };
        !self.off && parked.is_some_and(|p| p.freed == state.freed && p.until > state.now)
    }
}

/// No time at which a parked class must be looked at again.
pub(crate) const UNTIL_FREED: Millis = Millis::NEVER;

//! The runs on the nodes of a pool that fit a job, in the order in which they are expected to end: as far as anybody asks, and the rest is not looked at.
//!
//! ```text
//! sources   of each family: its runs of like age, by when they would have begun    none ends before its next + what that age is told
//!           runs that state how long they take                                     none ends before what its next states
//!           limits                                                                 none has to be over before its next
//! next      of the source that could end soonest: its end is estimated
//! in order  what ends before anything that no source has given yet
//! ```
//!
//! The audit looks at all of them instead.
//!
//! Never: estimates an end by itself.

use super::{demand, forecast, supply};
use crate::engine::Engine;
use crate::ids::{ClassId, JobId, NodeId, PoolId};
use crate::state::State;
use crate::state::observed_stats::{FamilyOfWork, same_bucket_from};
use crate::state::run_ends::{RunKey, RunsOfPool};
use crate::units::{Span, Timestamp};
use alloc::collections::{BTreeSet, BinaryHeap};
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Runs by their expected ends.
pub(crate) struct Ending {
    pool: PoolId,
    class: ClassId,
    /// Where runs are that were not looked at, by an instant before which none of them ends.
    sources: BinaryHeap<Reverse<(Timestamp, Source)>>,
    seen: BTreeSet<JobId>,
    /// Looked at, and not known to be next.
    found: BTreeSet<(Timestamp, JobId)>,
    in_order: Vec<(Timestamp, JobId)>,
}

/// Runs of which the next one is known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Source {
    Learned { next: RunKey, of: LikeAged },
    Stated { next: RunKey },
    Limit { next: RunKey },
}

/// Runs whose length is learned by the same, and which are so old that they are expected to end at the same age.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct LikeAged {
    by: FamilyOfWork,
    /// The last of them began by then.
    to: Timestamp,
    /// That age. `None`: nothing that was seen lasted so long.
    lasts: Option<Span>,
}

impl Ending {
    pub(crate) fn of(engine: &Engine, class: ClassId, pool: PoolId) -> Ending {
        let state = &engine.state;
        let mut ending = Ending {
            pool,
            class,
            sources: BinaryHeap::new(),
            seen: BTreeSet::new(),
            found: BTreeSet::new(),
            in_order: Vec::new(),
        };
        if engine.memo.off {
            let nodes = state.nodes.values();
            nodes.flat_map(|node| node.holds.iter().copied()).for_each(|id| ending.estimate(state, id));
            return ending;
        }
        let Some(runs) = state.index.run_ends.of(pool) else { return ending };
        runs.unordered(state.now).for_each(|id| ending.estimate(state, id));
        let from_now = (state.now, JobId(u64::MAX));
        let stated = runs.stated_after(from_now).map(|next| Source::Stated { next });
        let limit = runs.limit_after(from_now).map(|next| Source::Limit { next });
        let learned = runs.families().flat_map(|(by, first)| by_age(state, runs, by, first));
        let sources = learned.chain(stated).chain(limit);
        ending.sources = sources.map(|source| Reverse((source.earliest_end(state.now), source))).collect();
        ending
    }

    /// Those of so many that end first, in order: as many as there are.
    pub(crate) fn first(&mut self, state: &State, count: usize) -> &[(Timestamp, JobId)] {
        while self.in_order.len() < count {
            let bound = self.sources.peek().map(|Reverse((bound, _))| *bound);
            let next = self.found.first().copied().filter(|(at, _)| bound.is_none_or(|bound| *at < bound));
            if let Some(next) = next {
                self.found.remove(&next);
                self.in_order.push(next);
            } else if !self.estimate_next(state) {
                break;
            }
        }
        &self.in_order[..count.min(self.in_order.len())]
    }

    /// Estimates the next run of the source that could end soonest. `false`: there is none.
    fn estimate_next(&mut self, state: &State) -> bool {
        let Some(Reverse((_, source))) = self.sources.pop() else { return false };
        self.estimate(state, source.next().1);
        let runs = state.index.run_ends.of(self.pool);
        let behind = runs.and_then(|runs| source.behind(runs));
        self.sources.extend(behind.map(|source| Reverse((source.earliest_end(state.now), source))));
        true
    }

    fn estimate(&mut self, state: &State, id: JobId) {
        if self.seen.insert(id) && self.is_on_a_node(state, id) {
            self.found.insert((forecast::ends(state, id).0, id));
        }
    }

    /// Whether a run has a place on a node that fits the job.
    fn is_on_a_node(&self, state: &State, id: JobId) -> bool {
        let fits = supply::fits(state, self.class, self.pool);
        let fits = |node: NodeId| {
            let node = state.nodes.get(&node).filter(|node| node.pool == self.pool && node.open());
            node.is_some_and(|node| fits.binary_search(&node.offering).is_ok() && node.holds.contains(&id))
        };
        state.jobs[id].places.iter().any(|place| fits(place.node))
    }
}

impl Source {
    fn next(&self) -> RunKey {
        let (Source::Learned { next, .. } | Source::Stated { next } | Source::Limit { next }) = self;
        *next
    }

    /// The same without its next.
    fn behind(self, runs: &RunsOfPool) -> Option<Source> {
        match self {
            Source::Learned { next, of } => {
                let next = runs.begun_after(of.by, next).filter(|key| key.0 <= of.to)?;
                Some(Source::Learned { next, of })
            }
            Source::Stated { next } => runs.stated_after(next).map(|next| Source::Stated { next }),
            Source::Limit { next } => runs.limit_after(next).map(|next| Source::Limit { next }),
        }
    }

    /// No run of it is expected to end before.
    fn earliest_end(&self, now: Timestamp) -> Timestamp {
        match self {
            Source::Learned { next, of: LikeAged { lasts: Some(lasts), .. } } => next.0 + *lasts,
            // A run of which nothing is known has begun its last attempt then or later.
            Source::Learned { next, .. } => Some(next.0 + forecast::UNKNOWN).filter(|at| *at > now).unwrap_or(now),
            Source::Stated { next } | Source::Limit { next } => next.0,
        }
    }
}

/// The runs whose length is learned by the same, by what is told of their age.
fn by_age(state: &State, runs: &RunsOfPool, by: FamilyOfWork, first: RunKey) -> Vec<Source> {
    let mut sources = Vec::new();
    let mut next = Some(first);
    while let Some(first) = next {
        let age = state.now.since(first.0);
        let to = state.now - same_bucket_from(age);
        let lasts = demand::seen_p90(state, by, age).map(|left| age + left);
        sources.push(Source::Learned { next: first, of: LikeAged { by, to, lasts } });
        next = runs.begun_after(by, (to, JobId(u64::MAX)));
    }
    sources
}

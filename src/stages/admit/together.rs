//! Purchases of one pass, revised together: what heads are bought one after the other is a try. Where another set of nodes serves the same jobs
//! for less, or more of them under a ceiling, the try is taken back, that set is bought, and the heads are served again on it.
//!
//! ```text
//! a head is bought for  ->  a try is opened          the rest of the heads are served in it
//! no head is left       ->  rules::purchases::larger, cheaper: none: the try is kept
//!                           a set: taken back, bought, served again: the better of both is kept
//! ```
//!
//! Never: keeps a set that leaves out a job which the heads one by one had served, unless one before it in order is served for it.

use crate::effect::WorkerPlace;
use crate::engine::{Engine, Try};
use crate::ids::{JobId, NodeId, PoolId};
use crate::moves::{self, Purchase};
use crate::plan::PlanReport;
use crate::reason::Reason;
use crate::rules::launch::{self, LaunchOption};
use crate::rules::order::{ClassQueue, Head};
use crate::rules::placement;
use crate::rules::purchases::{self, Aim, Bought, KindKey, Lot};
use crate::rules::{reservations, supply};
use crate::state::State;
use crate::units::MilliGpu;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// What is bought in this run of the stage.
#[derive(Debug, Default)]
pub(super) struct Together {
    phase: Phase,
    tried: Option<Tried>,
    /// A ceiling left a head without a purchase.
    full: bool,
    served: BTreeSet<JobId>,
    /// What goes on the nodes of a set: so many more of a kind on each.
    assigned: BTreeMap<KindKey, Vec<(NodeId, u32)>>,
}

#[derive(Debug)]
struct Tried {
    tried: Try,
    report: PlanReport,
    first: NodeId,
}

/// Where a run of the stage stands.
#[derive(Debug, Default)]
enum Phase {
    /// Each head is bought for alone.
    #[default]
    Alone,
    /// A set was bought: is it better than this?
    Set {
        cost: u128,
        served: BTreeSet<JobId>,
        /// A gang is smaller in it: it has to carry more.
        smaller: bool,
    },
    /// Settled.
    Over,
}

impl Together {
    /// Something is about to be bought: from here on it can be taken back.
    pub(super) fn open(&mut self, engine: &mut Engine, report: &PlanReport) {
        if self.tried.is_none() && matches!(self.phase, Phase::Alone) {
            let first = NodeId(engine.state.counters.next_node);
            self.tried = Some(Tried { tried: engine.open_try(), report: report.clone(), first });
        }
    }

    pub(super) fn note_served(&mut self, head: &Head) {
        if self.tried.is_some() && head.class_queue == ClassQueue::Queued {
            self.served.insert(head.key.job);
        }
    }

    pub(super) fn note_refused(&mut self, head: &Head, reason: Reason) {
        self.full |= head.class_queue == ClassQueue::Queued && matches!(reason, Reason::Ceiling { .. });
    }

    /// The place that the set has for a job.
    pub(super) fn places(
        &mut self,
        engine: &Engine,
        job: JobId,
        pool: PoolId,
        most: MilliGpu,
    ) -> Option<Vec<WorkerPlace>> {
        if self.assigned.is_empty() {
            return None;
        }
        let nodes = self.assigned.get_mut(&purchases::kind_of(&engine.state, job))?;
        while let Some((node, more)) = nodes.last_mut() {
            let places = placement::on_node(engine, job, pool, most, *node);
            *more -= 1;
            if *more == 0 || places.is_none() {
                nodes.pop();
            }
            if places.is_some() {
                return places;
            }
        }
        None
    }

    /// Buys a set and says what goes where.
    fn buy(&mut self, engine: &mut Engine, pool: PoolId, lots: Vec<Lot>, report: &mut PlanReport) {
        for Lot { offering, count, content } in lots {
            let mut left = count;
            while left > 0 {
                let count = left.min(supply::MOST_AT_ONCE);
                let first = engine.state.counters.next_node;
                moves::buy(engine, Purchase { pool, offering, count, at_least: 1, close: false, layout: None }, report);
                for node in (first..first + u64::from(count)).map(NodeId) {
                    for (kind, n) in &content {
                        self.assigned.entry(*kind).or_default().push((node, *n));
                    }
                }
                left -= count;
            }
        }
        // The first node goes to the first of a kind.
        self.assigned.values_mut().for_each(|nodes| nodes.sort_unstable_by(|a, b| b.cmp(a)));
    }
}

/// All heads were served: whether they are to be served again, on a better set or as they were before.
pub(super) fn revise(together: &mut Together, engine: &mut Engine, report: &mut PlanReport) -> bool {
    let Some(Tried { tried, report: before, first }) = together.tried.take() else { return false };
    let served = core::mem::take(&mut together.served);
    let cost = purchases::cost_of(&engine.state, engine.state.nodes.range(first..).map(|(id, _)| *id));
    match core::mem::replace(&mut together.phase, Phase::Over) {
        Phase::Alone => {
            let full = core::mem::take(&mut together.full);
            let bought = BoughtFor::since(&engine.state, first, full);
            // What budgets leave is known only without what was bought.
            let gone = !engine.state.budgets.none();
            if !gone {
                let sets = sets(engine, &bought, gone);
                if sets.is_empty() {
                    engine.keep(tried);
                    return false;
                }
                engine.take_back(tried);
                let was = Phase::Set { cost, served, smaller: bought.any_larger() };
                return anew(together, engine, (before, first), sets, was, report);
            }
            engine.take_back(tried);
            let sets = sets(engine, &bought, gone);
            let was = Phase::Set { cost, served, smaller: bought.any_larger() };
            anew(together, engine, (before, first), sets, was, report)
        }
        Phase::Set { cost: was, served: had, smaller } => {
            let better = purchases::is_before(&engine.state, &served, &had).unwrap_or(cost < was && !smaller);
            if better {
                engine.keep(tried);
                return false;
            }
            engine.take_back(tried);
            *report = before;
            together.assigned.clear();
            true
        }
        Phase::Over => {
            engine.keep(tried);
            false
        }
    }
}

/// What was bought in a try, by what could be bought instead.
struct BoughtFor {
    /// More work, where a ceiling left some out.
    more: BTreeMap<PoolId, Bought>,
    /// The same for less.
    less: BTreeMap<PoolId, Bought>,
    full: bool,
}

impl BoughtFor {
    fn since(state: &State, first: NodeId, full: bool) -> BoughtFor {
        let of = |aim| purchases::bought_since(state, first, aim);
        let more = if full { of(Aim::Carries) } else { BTreeMap::new() };
        BoughtFor { more, less: of(Aim::Cheaper), full }
    }

    fn any_larger(&self) -> bool {
        self.more.values().any(|bought| !bought.larger.is_empty())
    }
}

fn sets(engine: &Engine, bought: &BoughtFor, gone: bool) -> Vec<(PoolId, Vec<Lot>)> {
    let state = &engine.state;
    let pools: BTreeSet<PoolId> = bought.more.keys().chain(bought.less.keys()).copied().collect();
    let better = |pool: PoolId| {
        let larger = bought.more.get(&pool).and_then(|bought| purchases::larger(state, pool, bought, gone));
        let less = || bought.less.get(&pool).and_then(|of| purchases::cheaper(state, pool, of, bought.full, gone));
        Some((pool, larger.or_else(less)?))
    };
    pools.into_iter().filter_map(better).collect()
}

/// Buys these sets, in a try of its own, for the heads to be served again.
fn anew(
    together: &mut Together,
    engine: &mut Engine,
    (before, first): (PlanReport, NodeId),
    sets: Vec<(PoolId, Vec<Lot>)>,
    was: Phase,
    report: &mut PlanReport,
) -> bool {
    *report = before.clone();
    if sets.is_empty() {
        return true;
    }
    together.tried = Some(Tried { tried: engine.open_try(), report: before, first });
    together.phase = was;
    for (pool, lots) in sets {
        // Each was found for its pool alone: together they may be too many.
        let set = LaunchOption {
            counts: lots.iter().map(|lot| (lot.offering, lot.count)).collect(),
            ..LaunchOption::default()
        };
        let (all, own) = reservations::held(&engine.state, pool, None);
        if launch::bound_hit(&engine.state, pool, &set, all, own).is_none() {
            together.buy(engine, pool, lots, report);
        }
    }
    true
}

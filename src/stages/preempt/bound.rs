//! Upper bounds, before anything is tried: whether anything could be taken at all; whether a gang would have room, or any node stand empty, with all
//! gone that its job may take; and whether quota and money would let it start.
//!
//! What nodes let in, and what has to be left beside it, is not asked here: with more gone it may be less.
//! Never: whether all of it may be taken together, or need be. That is search.rs.

use super::losses::Candidates;
use super::search::{Way, roll_back};
use super::{Trial, ceiling, refused};
use crate::ids::{JobId, NodeId, OfferingId, PoolId, QuotaId, TierId};
use crate::job::Gang;
use crate::moves;
use crate::rules::quota::quota_of;
use crate::rules::rank::Taker;
use crate::rules::relocation::holders;
use crate::rules::{placement, settings, supply};
use crate::state::State;
use crate::state::jobs::Phase;
use crate::units::{MilliGpu, Span};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

impl Trial<'_> {
    /// Whether nothing that runs, is booked or stands empty could be a taker's. Many heads ask that of the same state.
    pub(super) fn is_hopeless(&mut self, taker: &Taker) -> bool {
        let profile = (taker.pool, taker.quota, taker.tier, taker.reclaim, taker.within, taker.number);
        let edits = self.state().edits();
        if self.hopeless.0 != edits {
            self.hopeless = (edits, BTreeSet::new());
        }
        if self.hopeless.1.contains(&profile) {
            return true;
        }
        let hopeless = !self.any_open_to(taker) && !ceiling::any_emptiable(self, taker);
        if hopeless {
            self.hopeless.1.insert(profile);
        } else {
            self.find_candidates(taker.pool);
        }
        hopeless
    }

    /// Whether anything that runs or is booked could be a taker's. Runs are looked at where the use of their queues does not rule it out.
    fn any_open_to(&mut self, taker: &Taker) -> bool {
        if !self.candidates.contains_key(&taker.pool) && rules_out(self, taker, may_be_open) {
            return false;
        }
        self.find_candidates(taker.pool);
        let runs = self.candidates.get(&taker.pool);
        runs.is_some_and(|runs| runs.any_open_to(self.state(), &self.ranks, taker))
    }

    /// Finds what may be stopped in a pool, once.
    pub(super) fn find_candidates(&mut self, pool: PoolId) {
        if !self.candidates.contains_key(&pool) {
            let found = Candidates::of(self.state(), pool);
            self.candidates.insert(pool, found);
        }
    }
}

/// Whether one of these says that a search is in vain. The audit searches all the same.
pub(super) fn rules_out(trial: &Trial<'_>, taker: &Taker, may: fn(&Trial<'_>, &Taker) -> bool) -> bool {
    !trial.engine.memo.off && !may(trial, taker)
}

/// Whether anything in its pool could be a taker's as far as queue and tier go, before any run is looked at: by the queues that hold quota there, or if
/// anybody runs there without, by all.
fn may_be_open(trial: &Trial<'_>, taker: &Taker) -> bool {
    let state = &trial.engine.state;
    if !state.index.booked.is_empty() {
        return true;
    }
    let used = state.quota.in_use().filter(|((_, pool), used)| *pool == taker.pool && *used > MilliGpu(0));
    let mut queues: BTreeSet<QuotaId> = used.map(|((quota, _), _)| quota).collect();
    if state.index.without_share.contains_key(&taker.pool) {
        queues.extend(state.queues.rows().filter_map(|queue| Some(queue.rule.as_ref()?.quota)));
    }
    let may_yield = |quota, tier| trial.ranks.may_yield(state, taker, quota, tier);
    queues.into_iter().any(|quota| state.index.running.keys().any(|tier| may_yield(quota, *tier)))
}

/// Whether there may be room for a taker's gang: as far as whole GPUs of nodes go, or because something might be bought. It is not asked for
/// single GPUs: the first run that is taken tells.
pub(super) fn may_have_room(trial: &Trial<'_>, taker: &Taker) -> bool {
    let state = &trial.engine.state;
    let Some((each, least)) = whole_gpus(state, taker).filter(|(each, least)| each * least > 1) else { return true };
    if !supply::is_closed(state, taker.job, taker.pool) {
        return true;
    }
    let mut more: BTreeMap<NodeId, u64> = BTreeMap::new();
    let runs = trial.candidates.get(&taker.pool).into_iter();
    let runs = runs.flat_map(|all| all.open_to(state, &trial.ranks, taker, usize::MAX)).flatten();
    for place in runs.flat_map(|(_, runs)| runs).flat_map(|one| &state.jobs[one.job].places) {
        *more.entry(place.node).or_default() += u64::from(place.gpus.count_ones());
    }
    let of_pool = (taker.pool, OfferingId(0))..=(taker.pool, OfferingId(u32::MAX));
    let fits = supply::fits(state, taker.class, taker.pool);
    let open = state.index.free.range(of_pool).filter(|((_, id), _)| fits.binary_search(id).is_ok());
    let mut room = 0;
    for (_, free, node) in open.flat_map(|(_, free)| &free.whole) {
        room += (u64::from(*free) + more.get(node).copied().unwrap_or(0)) / each;
        if room >= least {
            return true;
        }
    }
    false
}

/// Whether any node that may be given back could stand empty: all that is on it is in the taker's pool, and its own as far as queue and tier go.
pub(super) fn may_stand_empty(trial: &Trial<'_>, taker: &Taker) -> bool {
    let state = &trial.engine.state;
    let mine = settings::priority(state, taker.tier);
    let mut open: BTreeMap<(TierId, QuotaId), bool> = BTreeMap::new();
    let mut may_go = |job: JobId| {
        let row = &state.jobs[job];
        let Some(quota) = quota_of(state, row).filter(|_| row.pool == Some(taker.pool)) else { return false };
        let yields = || trial.ranks.may_yield(state, taker, quota, row.tier);
        let lower = row.phase == Phase::Booked && settings::priority(state, row.tier) < mine;
        lower || *open.entry((row.tier, quota)).or_insert_with(yields)
    };
    let nodes = trial.emptiable.iter().flatten().filter_map(|id| state.nodes.get(id));
    nodes.into_iter().any(|node| holders(node).into_iter().all(&mut may_go))
}

/// Whether quota and money would let a taker's gang start with all gone that it may have.
pub(super) fn may_have_share(trial: &mut Trial<'_>, taker: &Taker) -> bool {
    if !refused(&trial.engine.state, taker) {
        return true;
    }
    let mark = trial.engine.state.checkpoint();
    let mut way = Way::default();
    let Trial { engine, ranks, taken, candidates, .. } = &mut *trial;
    let open = candidates.get(&taker.pool).into_iter();
    let open = open.flat_map(|all| all.open_to(&engine.state, ranks, taker, usize::MAX)).flatten();
    let open: Vec<JobId> = open.flat_map(|(_, runs)| runs).map(|one| one.job).collect();
    for job in open {
        if !taken.any(job) {
            let numbers = engine.state.jobs[job].numbers.clone();
            taken.take(&mut engine.state, ranks, job, &numbers);
            // What it costs until it has stopped is left out: near the end of a period that may be more than if it went on.
            let (rate, still) = (engine.state.jobs[job].rate, moves::ends_within(&engine.state, job));
            engine.state.charge(job, rate, still);
            engine.state.discharge(job, rate, Span::ZERO);
            way.take(job, numbers);
        }
    }
    let may = !refused(&trial.engine.state, taker);
    roll_back(trial, mark, &way);
    may
}

/// GPUs of a worker, and the fewest workers, where whole GPUs are asked for and nothing else is handed out.
fn whole_gpus(state: &State, taker: &Taker) -> Option<(u64, u64)> {
    let shape = &state.classes[taker.class].shape;
    settings::pool(state, taker.pool).filter(|pool| pool.layouts.is_empty())?;
    match &shape.gang {
        Gang::Workers { min, each, .. } => {
            let whole = each.gpus > 0 && placement::effective_share(state, shape, taker.pool, each) == 1000;
            whole.then(|| (u64::from(each.gpus), u64::from(*min)))
        }
        Gang::Spanning { gpus, .. } => Some((1, u64::from(*gpus))),
    }
}

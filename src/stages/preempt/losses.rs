//! What runs can lose, and what of it has been taken in a trial.
//!
//! Never: whether it may be taken. That is rules/rank.rs.

use crate::effect::WorkerPlace;
use crate::ids::{JobId, PoolId, QuotaId, TierId};
use crate::job::Gang;
use crate::machine::StateMachine;
use crate::moves;
use crate::rules::quota::{self, quota_of};
use crate::rules::rank::{Borrows, Ranks, Taker};
use crate::rules::{protection, rank, settings};
use crate::state::State;
use crate::state::jobs::{Job, Phase};
use crate::state::places::{Hold, share_of};
use crate::units::{MilliGpu, Spend};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// What can be taken from a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Loss {
    pub job: JobId,
    /// One of its workers. `None`: all of it.
    pub worker: Option<u32>,
}

/// What it would cost to take a run, the cheapest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Candidate {
    /// The priority of its tier.
    pub tier: i32,
    /// Its own, where its queue has the lower one stopped first.
    pub number: i32,
    /// What it holds, for the time since its last verified checkpoint and for its restart.
    pub cost: Spend,
    pub job: JobId,
}

/// Those of one tier and queue.
#[derive(Debug, Default)]
struct Runs {
    all: BTreeSet<Candidate>,
    /// Those of them that are only booked.
    booked: BTreeSet<Candidate>,
}

/// Runs and booked jobs in a pool that may be taken as far as their own protection goes.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    /// By the priority of their tier, then by that tier and their queue's node of the quota tree.
    by_tier: BTreeMap<i32, BTreeMap<(TierId, QuotaId), Runs>>,
    /// All of them in orders that time does not change, each made when it is asked for, with those that are taken since.
    steady: BTreeMap<Steady, Vec<Candidate>>,
    taken: BTreeSet<JobId>,
    /// How many of them can do without some of their workers.
    elastic: usize,
}

/// An order that time does not change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Steady {
    Tier,
    SmallestFirst,
    LargestFirst,
    /// Node by node.
    Node,
}

impl Steady {
    fn key(self, state: &State, one: &Candidate) -> (i64, i64, JobId) {
        let (job, tier) = (&state.jobs[one.job], i64::from(one.tier));
        match self {
            Steady::Tier => (tier, 0, one.job),
            Steady::SmallestFirst => (job.share.0 as i64, tier, one.job),
            Steady::LargestFirst => (-(job.share.0 as i64), tier, one.job),
            Steady::Node => (job.places.first().map_or(0, |place| place.node.0) as i64, tier, one.job),
        }
    }
}

impl Candidates {
    pub(super) fn of(state: &State, pool: PoolId) -> Candidates {
        let mut found = Candidates::default();
        let running = state.index.running.values().flatten().copied();
        let running = running.filter(|id| protection::may_be_stopped(state, *id));
        let booked = state.index.booked.values().flatten().map(|key| key.job);
        for (id, is_booked) in running.map(|id| (id, false)).chain(booked.map(|id| (id, true))) {
            let job = &state.jobs[id];
            let Some(quota) = quota_of(state, job).filter(|_| job.pool == Some(pool)) else { continue };
            let one = candidate(state, job);
            let runs = found.by_tier.entry(one.tier).or_default().entry((job.tier, quota)).or_default();
            runs.all.insert(one);
            found.elastic += usize::from(spare(state, id) > 0);
            if is_booked {
                runs.booked.insert(one);
            }
        }
        found
    }

    /// Those that a taker may have as far as their queue, tier and number go: the priority of the tier, and by queue. Without leave for the runs of a
    /// queue, only what is booked there and of a lower tier.
    pub(super) fn open_to<'a>(
        &'a self,
        state: &'a State,
        ranks: &'a Ranks,
        taker: &'a Taker,
        most: usize,
    ) -> impl Iterator<Item = Vec<(QuotaId, Vec<Candidate>)>> + 'a {
        let mine = settings::priority(state, taker.tier);
        self.by_tier.iter().map(move |(priority, queues)| {
            let open = queues.iter().filter_map(|((tier, quota), runs)| {
                if ranks.may_yield(state, taker, *quota, *tier) {
                    let yield_to = |one: &&Candidate| yields(taker, one, (*tier, *quota));
                    return Some((*quota, runs.all.iter().take_while(yield_to).copied().take(most).collect()));
                }
                let booked = runs.booked.iter().filter(|one| state.jobs[one.job].phase == Phase::Booked);
                (*priority < mine).then(|| (*quota, booked.copied().take(most).collect()))
            });
            open.filter(|(_, runs): &(QuotaId, Vec<Candidate>)| !runs.is_empty()).collect()
        })
    }

    /// Whether a taker may have any of them as far as their queue and tier go.
    pub(super) fn any_open_to(&self, state: &State, ranks: &Ranks, taker: &Taker) -> bool {
        self.open_to(state, ranks, taker, 1).any(|queues| !queues.is_empty())
    }

    /// Whether any of them can do without some of its workers.
    pub(super) fn any_elastic(&self) -> bool {
        self.elastic > 0
    }

    /// Whether they are of one queue and tier, hold as much and cost as much: then any so many of them are as good as any others.
    pub(super) fn are_alike(&self, state: &State) -> bool {
        let mut queues = self.by_tier.values().flat_map(BTreeMap::values);
        let (Some(runs), None) = (queues.next(), queues.next()) else { return false };
        let of = |one: &Candidate| (one.number, one.cost, state.jobs[one.job].share, state.jobs[one.job].phase);
        let first = runs.all.first().map(of);
        self.elastic == 0 && runs.booked.is_empty() && runs.all.iter().all(|one| Some(of(one)) == first)
    }

    /// So many of those that a taker may have, the first in an order that time does not change.
    pub(super) fn steady(
        &mut self,
        state: &State,
        ranks: &Ranks,
        taker: &Taker,
        order: Steady,
        most: usize,
    ) -> Vec<Candidate> {
        let Candidates { by_tier, steady, taken, .. } = self;
        let all = steady.entry(order).or_insert_with(|| {
            let runs = by_tier.values().flat_map(BTreeMap::values).flat_map(|runs| &runs.all);
            let mut all: Vec<Candidate> = runs.copied().collect();
            all.sort_unstable_by_key(|one| order.key(state, one));
            all
        });
        let mine = settings::priority(state, taker.tier);
        let mut open: BTreeMap<(TierId, QuotaId), bool> = BTreeMap::new();
        let may = |one: &&Candidate| {
            let job = &state.jobs[one.job];
            let Some(quota) = quota_of(state, job).filter(|_| !taken.contains(&one.job)) else { return false };
            let may_yield = || ranks.may_yield(state, taker, quota, job.tier);
            let open = *open.entry((job.tier, quota)).or_insert_with(may_yield);
            (open && yields(taker, one, (job.tier, quota))) || (one.tier < mine && job.phase == Phase::Booked)
        };
        all.iter().filter(may).take(most).copied().collect()
    }

    /// A run is taken: nobody else can have it.
    pub(super) fn remove(&mut self, state: &State, id: JobId) {
        let job = &state.jobs[id];
        let one = candidate(state, job);
        let Some(quota) = quota_of(state, job) else { return };
        self.taken.insert(id);
        let Some(queues) = self.by_tier.get_mut(&one.tier) else { return };
        if let Some(runs) = queues.get_mut(&(job.tier, quota)) {
            let was_there = runs.all.remove(&one);
            self.elastic -= usize::from(was_there && spare(state, id) > 0);
            runs.booked.remove(&one);
            if runs.all.is_empty() {
                queues.remove(&(job.tier, quota));
            }
        }
        if queues.is_empty() {
            self.by_tier.remove(&one.tier);
        }
    }
}

/// Whether a run could be a taker's as far as its number goes, which counts in one queue and tier. Of those in order the first that cannot is followed
/// by none that can.
fn yields(taker: &Taker, one: &Candidate, of: (TierId, QuotaId)) -> bool {
    of != (taker.tier, taker.quota) || rank::highest_that_yields(taker).is_none_or(|highest| one.number <= highest)
}

pub(super) fn candidate(state: &State, job: &Job) -> Candidate {
    let lost = match job.phase {
        Phase::Booked => crate::units::Span::ZERO,
        _ => job.unsaved(state.now) + state.specs[job.id].restart,
    };
    let (tier, number) = (settings::priority(state, job.tier), rank::number(state, job));
    Candidate { tier, number, cost: job.rate.over(lost), job: job.id }
}

/// What has been taken in a trial, by run: the numbers of its workers. A booked job has none: all of it is taken, or nothing.
#[derive(Debug, Default)]
pub(super) struct Taken {
    from: BTreeMap<JobId, Gone>,
    /// In all, by tier.
    by_tier: BTreeMap<TierId, MilliGpu>,
}

/// What has been taken of a run.
#[derive(Debug, Default)]
struct Gone {
    numbers: Vec<u32>,
    share: MilliGpu,
}

impl Taken {
    pub(super) fn of(&self, job: JobId) -> &[u32] {
        self.from.get(&job).map_or(&[], |gone| &gone.numbers)
    }

    pub(super) fn any(&self, job: JobId) -> bool {
        self.from.contains_key(&job)
    }

    /// What has been taken of the runs of a tier other than this one.
    pub(super) fn of_tier(&self, state: &State, tier: TierId, but: JobId) -> MilliGpu {
        let all = self.by_tier.get(&tier).copied().unwrap_or_default();
        let own = self.from.get(&but).filter(|_| state.jobs[but].tier == tier);
        all - own.map_or(MilliGpu(0), |own| own.share)
    }

    /// Takes workers, or a booked job. Returns the share that it frees.
    pub(super) fn take(&mut self, state: &mut StateMachine, ranks: &mut Ranks, id: JobId, numbers: &[u32]) -> MilliGpu {
        let share = self.take_share(state, ranks, id, numbers);
        self.take_places(state, id, numbers);
        share
    }

    /// The rest of it: the places of workers whose share is taken, and the money.
    pub(super) fn take_places(&self, state: &mut StateMachine, id: JobId, numbers: &[u32]) {
        let job = &state.jobs[id];
        let (class, rate, hold) = (job.class, job.rate, hold(job));
        let places = places(job, numbers);
        state.release_places(id, class, &places, hold);
        if self.is_whole(state, id) {
            // What stops goes on costing until it has.
            state.discharge(id, rate, moves::ends_within(state, id));
        }
    }

    /// The same as far as quota goes: who stands where then.
    pub(super) fn take_share(
        &mut self,
        state: &mut StateMachine,
        ranks: &mut Ranks,
        id: JobId,
        numbers: &[u32],
    ) -> MilliGpu {
        let job = &state.jobs[id];
        let (queue, pool, share) = (job.queue, job.pool, share_of(&places(job, numbers)));
        let gone = self.from.entry(id).or_default();
        gone.numbers.extend(numbers);
        gone.numbers.sort_unstable();
        gone.share = gone.share + share;
        let of_tier = self.by_tier.entry(job.tier).or_default();
        *of_tier = *of_tier + share;
        if let Some(pool) = pool {
            state.give_quota_back(queue, pool, share);
            self.tell(state, ranks, id, pool);
        }
        share
    }

    /// Gives workers back where they were. They always fit: nothing else took their places.
    pub(super) fn put_back(&mut self, state: &mut StateMachine, ranks: &mut Ranks, id: JobId, numbers: &[u32]) {
        let job = &state.jobs[id];
        let (class, rate, hold) = (job.class, job.rate, hold(job));
        let places = places(job, numbers);
        if self.is_whole(state, id) {
            state.charge(id, rate, moves::ends_within(state, id));
        }
        state.hold_places(id, class, &places, hold);
        self.put_share_back(state, ranks, id, numbers);
    }

    /// The same as far as quota goes.
    pub(super) fn put_share_back(&mut self, state: &mut StateMachine, ranks: &mut Ranks, id: JobId, numbers: &[u32]) {
        let job = &state.jobs[id];
        if let Some(pool) = job.pool {
            state.take_quota(job.queue, pool, share_of(&places(job, numbers)));
        }
        self.forget(state, ranks, id, numbers);
    }

    /// Workers are nobody's again: the rows have been rolled back.
    pub(super) fn forget(&mut self, state: &State, ranks: &mut Ranks, id: JobId, numbers: &[u32]) {
        if let Some(gone) = self.from.get_mut(&id) {
            let share = share_of(&places(&state.jobs[id], numbers));
            gone.numbers.retain(|n| !numbers.contains(n));
            gone.share = gone.share - share;
            if let Some(of_tier) = self.by_tier.get_mut(&state.jobs[id].tier) {
                *of_tier = *of_tier - share;
            }
            if gone.numbers.is_empty() {
                self.from.remove(&id);
            }
        }
        if let Some(pool) = state.jobs[id].pool {
            self.tell(state, ranks, id, pool);
        }
    }

    fn is_whole(&self, state: &State, id: JobId) -> bool {
        let job = &state.jobs[id];
        hold(job) == Hold::Booked || self.of(id).len() == job.numbers.len()
    }

    fn tell(&self, state: &State, ranks: &mut Ranks, id: JobId, pool: PoolId) {
        let job = &state.jobs[id];
        let gone = self.from.get(&id).map_or(MilliGpu(0), |gone| gone.share);
        ranks.set(state, id, pool, job.share - gone);
    }
}

fn hold(job: &Job) -> Hold {
    if job.phase == Phase::Booked { Hold::Booked } else { Hold::Running }
}

/// Where a run stands. A gang that is only booked is judged as the smallest that it could be: as such it would come back.
pub(super) fn stands(state: &mut StateMachine, ranks: &mut Ranks, id: JobId) -> Borrows {
    let job = &state.jobs[id];
    let (Some(pool), Phase::Booked) = (job.pool, job.phase) else { return ranks.of_run(state, id) };
    let (queue, all) = (job.queue, job.share);
    let least = quota::share(state, job.class, pool).min(all);
    state.give_quota_back(queue, pool, all - least);
    ranks.set(state, id, pool, least);
    let stands = ranks.of_run(state, id);
    state.take_quota(queue, pool, all - least);
    ranks.set(state, id, pool, all);
    stands
}

/// How many workers a run can do without.
pub(super) fn spare(state: &State, id: JobId) -> usize {
    match state.specs[id].gang {
        Gang::Workers { min, .. } => state.jobs[id].numbers.len().saturating_sub(min as usize),
        Gang::Spanning { .. } => 0,
    }
}

/// Where these workers are. Of a job that is booked only: all of its places.
pub(super) fn places(job: &Job, numbers: &[u32]) -> Vec<WorkerPlace> {
    if job.phase == Phase::Booked {
        return job.places.clone();
    }
    let workers = job.places.iter().zip(&job.numbers).filter(|(_, n)| numbers.contains(n));
    workers.map(|(place, _)| place.clone()).collect()
}

//! Allowances: what is kept of quotas and budgets for one job, as others have to see it.
//!
//! ```text
//! let in    who goes before the holder
//!           who fits beside it, as things will stand when the runs that it waits for are gone
//!           who has ended by then (p90): backfill
//! not       all others: they wait for the holder
//! ```
//!
//! Who goes before: in one queue by tier, one below its `minShare` first, priority with ageing and arrival; elsewhere who owns, below where the queues
//! meet, what the holder would borrow, then by tier in the same way. Shares never say so: what is kept stays with its holder.
//!
//! Never: keeps anything, or gives it up.

use super::reservations::{is_large, may_be_passed, reserved_from};
use super::{budget, demand, forecast, order, quota, settings};
use crate::ids::{ClassId, JobId, NodeId, PoolId, QuotaId};
use crate::job::Gang;
use crate::reason::Reason;
use crate::state::State;
use crate::state::allowances::{Allowance, AllowanceReservation};
use crate::state::index::OrderKey;
use crate::state::jobs::Job;
use crate::units::{MilliGpu, Rate, Timestamp};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::{Ordering, Reverse};

/// A waiting job in a pool.
#[derive(Clone, Copy)]
struct Asker {
    job: JobId,
    class: ClassId,
    pool: PoolId,
    quota: QuotaId,
}

impl Asker {
    /// `None`: the policy does not know its queue.
    fn of(state: &State, job: JobId, pool: PoolId) -> Option<Asker> {
        let row = &state.jobs[job];
        Some(Asker { job, class: row.class, pool, quota: quota::quota_of(state, row)? })
    }
}

/// A job that is let in because it will have ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backfill {
    /// Ahead of which.
    pub of: JobId,
    /// It has to start by then.
    pub by: Timestamp,
    /// What is kept begins then.
    pub from: Timestamp,
}

/// Whether those who end in time count as let in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    LetIn,
    Counts,
}

/// Why a job that has quota and money is to leave them to another. `None`: it may have them.
pub(crate) fn refusal(state: &State, job: JobId, pool: PoolId) -> Option<Reason> {
    let kept = kept_from(state, &Asker::of(state, job, pool)?, Ending::LetIn)?;
    Some(Reason::KeptForAnother { job: kept.job, from: until(state, kept) })
}

/// Why a job may not start in a pool, whatever room there is: quota, a budget, or what is kept of them for another.
pub(crate) fn no_share(state: &State, job: JobId, pool: PoolId) -> Option<Reason> {
    let class = state.jobs[job].class;
    quota::refusal(state, class, pool, quota::share(state, class, pool))
        .or_else(|| budget::refusal(state, class, pool))
        .or_else(|| refusal(state, job, pool))
}

/// In how many pools a job may start, as far as quotas, budgets and what is kept of them go.
pub(crate) fn open_pools(state: &State, job: JobId) -> usize {
    settings::pools(state, state.jobs[job].class).filter(|pool| no_share(state, job, *pool).is_none()).count()
}

/// For which job, and how soon, one has to start that is let in only because it ends in time.
pub(crate) fn backfill(state: &State, job: JobId, pool: PoolId) -> Option<Backfill> {
    let asker = Asker::of(state, job, pool)?;
    let of = kept_from(state, &asker, Ending::Counts)?.job;
    let lasts = demand::remaining_p90(state, job)?;
    let from = binding(state, &asker).map(|(_, kept)| until(state, kept)).min()?;
    Some(Backfill { of, by: Timestamp(from.0.saturating_sub(lasts.0)), from })
}

/// What quota leaves to a job beside all that is kept for others.
pub(crate) fn available(state: &State, job: JobId, pool: PoolId) -> MilliGpu {
    let left = quota::available(state, state.jobs[job].class, pool);
    most(state, job, pool).map_or(left, |most| most.min(left))
}

/// What is left to an elastic gang beside what is kept. `None`: all that there is.
pub(crate) fn most(state: &State, job: JobId, pool: PoolId) -> Option<MilliGpu> {
    Beside::of(state, job, pool)?.quota_left(state).map(|(left, _)| left)
}

/// The dearest gang of a class that may start beside what is kept. `None`: nothing is kept from it.
pub(crate) fn room(state: &State, class: ClassId) -> Option<Rate> {
    if state.allowances().is_empty() {
        return None;
    }
    let (job, pool) = (state.index.first_queued(class)?.job, settings::pools(state, class).next()?);
    Beside::of(state, job, pool)?.money_left(state).map(|(left, _)| left)
}

/// What has to be left to its holder and is not if this one starts.
fn kept_from<'a>(state: &'a State, asker: &Asker, ending: Ending) -> Option<&'a AllowanceReservation> {
    let of = Beside::of_asker(state, asker, ending)?.refused(state)?;
    state.allowances().get(&of)
}

/// What is kept for jobs before which an asker does not go, with who is gone by then: as it is before anything is taken for the asker.
pub(crate) struct Beside {
    asker: Asker,
    kept: Vec<KeptBeside>,
}

struct KeptBeside {
    of: Allowance,
    holder: Asker,
    /// Until then others may use it.
    until: Timestamp,
    /// Runs for which the holder waits, by this or by anything else that is kept for it.
    gone: Vec<JobId>,
    /// Those for which it waits by this.
    own: Vec<JobId>,
    /// The asker has ended by then.
    ended: bool,
}

impl Beside {
    /// `None`: nothing is kept from it. What it takes from others is for it, once it is taken.
    pub(crate) fn of(state: &State, job: JobId, pool: PoolId) -> Option<Beside> {
        Beside::of_asker(state, &Asker::of(state, job, pool)?, Ending::LetIn)
    }

    fn of_asker(state: &State, asker: &Asker, ending: Ending) -> Option<Beside> {
        if state.allowances().is_empty() {
            return None;
        }
        let all = binding(state, asker).filter_map(|(of, kept)| {
            let holder = Asker::of(state, kept.job, kept.pool)?;
            let short = matches!(of, Allowance::Budget(_)) && is_short(state, of, kept.job, kept.pool);
            let own = if short { kept.runs.clone() } else { Vec::new() };
            let ended = ending == Ending::LetIn && ends_before(state, asker, kept);
            Some(KeptBeside { of, holder, until: until(state, kept), gone: gone_then(state, kept), own, ended })
        });
        let kept: Vec<KeptBeside> = all.collect();
        (!kept.is_empty()).then_some(Beside { asker: *asker, kept })
    }

    /// What has to be left to its holder and is not if the asker starts as things stand now.
    pub(crate) fn refused(&self, state: &State) -> Option<Allowance> {
        let Asker { class, pool, .. } = self.asker;
        let asked = quota::share(state, class, pool);
        let by_quota = self.quota_left(state).filter(|(left, _)| asked > *left).map(|(_, of)| of);
        let by_money = || {
            let (left, of) = self.money_left(state)?;
            (budget::least(state, class, pool) > left).then_some(of)
        };
        by_quota.or_else(by_money)
    }

    /// What quotas leave beside what is kept, and what of it that is.
    fn quota_left(&self, state: &State) -> Option<(MilliGpu, Allowance)> {
        let Asker { quota, pool, .. } = self.asker;
        let kept = self.kept.iter().filter(|kept| !kept.ended && matches!(kept.of, Allowance::Quota(..)));
        let kept: Vec<(&KeptBeside, UsedWithout<'_>)> =
            kept.map(|kept| (kept, UsedWithout::of(state, pool, &kept.gone))).collect();
        let (first, without) = kept.first()?;
        let lowest = first.of.node();
        // Below what is kept as well, the runs for which its holder waits are gone then: what they borrow may be the asker's own.
        let mut used = without.used.clone();
        used.retain(|at, _| *at != lowest && state.quota.is_below(*at, lowest));
        used.extend(kept.iter().map(|(kept, without)| (kept.of.node(), without.with(&kept.holder, kept.of.node()))));
        let used = |at| used.get(&at).copied().unwrap_or_else(|| state.quota.usage(at, pool));
        let left = state.quota.available_given(quota, pool, &used);
        let beside = kept.iter().filter_map(|(kept, without)| Some((self.left_beside(kept, without, &used)?, kept.of)));
        [(left, first.of)].into_iter().chain(beside).min_by_key(|(left, _)| *left)
    }

    /// What may be taken beside a holder, so that it stays within every bound on its way up, and within what is owned up to where its quota is
    /// short, wherever it is so with the runs gone. `None`: all that there is.
    ///
    /// A bound that is not short yet is kept by this alone. Who would make the holder borrow would keep it waiting for owners beside it.
    fn left_beside(
        &self,
        kept: &KeptBeside,
        without: &UsedWithout<'_>,
        used: &dyn Fn(QuotaId) -> MilliGpu,
    ) -> Option<MilliGpu> {
        let (tree, holder, Asker { quota, pool, .. }) = (&without.state.quota, &kept.holder, self.asker);
        let way: Vec<QuotaId> = without.state.lineage(quota).collect();
        let mut left: Option<MilliGpu> = None;
        for at in way.into_iter().rev() {
            let shared = tree.is_below(holder.quota, at);
            let with = if shared { without.with(holder, at) } else { used(at) };
            // What a node keeps to itself does not rise.
            left = left.map(|left| left + (tree.kept(at, pool) - with));
            let own = tree.subtree(at, pool).filter(|_| tree.is_below(at, kept.of.node()));
            let most = own.into_iter().chain(tree.bound(at, pool)).filter(|most| shared && with <= *most);
            left = most.map(|most| most - with).chain(left).min();
        }
        // Beside it among the jobs of a cohort itself, it stays within what that names too.
        let own_jobs = Some(holder.quota).filter(|at| *at == quota);
        let asked = quota::share(without.state, holder.class, pool);
        let with = own_jobs.and_then(|at| without.own_jobs_with(at, asked));
        let named = with.map(|with| (tree.named(quota, pool), with)).filter(|(named, with)| with <= named);
        named.map(|(named, with)| named - with).into_iter().chain(left).min()
    }

    /// What budgets leave beside what is kept, and what of it that is.
    fn money_left(&self, state: &State) -> Option<(Rate, Allowance)> {
        let of = |kept: &KeptBeside| {
            let Allowance::Budget(node) = kept.of else { return None };
            let lasts = demand::remaining_p90(state, self.asker.job).filter(|_| kept.ended);
            let gang = budget::least(state, kept.holder.class, kept.holder.pool);
            let less = given_up(state, &kept.own);
            let left = state.budgets.holding(node)?.beside(state.now, kept.until, gang, less, lasts);
            Some((left, kept.of))
        };
        self.kept.iter().filter_map(of).min_by_key(|(left, _)| *left)
    }
}

/// What is kept on the way up from a queue for jobs before which this one does not go, the lowest first.
fn binding<'a>(
    state: &'a State,
    asker: &Asker,
) -> impl Iterator<Item = (Allowance, &'a AllowanceReservation)> + use<'a> {
    let asker = *asker;
    // What was taken from others for it is its own.
    let any = !state.allowances().is_empty() && state.jobs[asker.job].kept.is_none();
    let any = any.then_some(asker.quota);
    let nodes = any.into_iter().flat_map(|quota| state.lineage(quota));
    let held = nodes.flat_map(move |at| allowances_at(at, asker.pool));
    let held = held.filter_map(|of| Some((of, state.allowances().get(&of)?)));
    held.filter(move |(of, kept)| {
        // Jobs of a class ask the same: what is kept for one is for all of them.
        let own = kept.job == asker.job || state.jobs[kept.job].class == asker.class;
        let passes = || goes_before(state, asker.job, kept, asker.pool) || may_be_passed(state, kept.job, asker.job);
        !own && !passes() && !holds_above(state, &asker, *of)
    })
}

/// What can be kept at a node of the quota tree for jobs in a pool.
fn allowances_at(node: QuotaId, pool: PoolId) -> [Allowance; 2] {
    [Allowance::Quota(node, pool), Allowance::Budget(node)]
}

/// Who holds what is short further up goes before who holds something below it: neither waits for the other.
fn holds_above(state: &State, asker: &Asker, of: Allowance) -> bool {
    let mut above = state.lineage(of.node()).skip(1).flat_map(|at| allowances_at(at, asker.pool));
    above.any(|of| state.allowances().get(&of).is_some_and(|kept| kept.job == asker.job))
}

/// Whether a job goes before the holder of an allowance.
pub(crate) fn goes_before(state: &State, job: JobId, kept: &AllowanceReservation, pool: PoolId) -> bool {
    let (mine, theirs) = (&state.jobs[job], &state.jobs[kept.job]);
    let (Some(at), Some(other)) = (quota::quota_of(state, mine), quota::quota_of(state, theirs)) else { return false };
    let tier = |row: &Job| order::turn_of_tier(state, row.tier);
    if at == other {
        let key = |row: &Job| (Reverse(tier(row)), in_queue(state, row.id));
        return key(mine) < key(theirs);
    }
    let Some(meet) = state.lineage(at).find(|node| state.quota.is_below(other, *node)) else { return false };
    let ours = owns_below(state, (at, mine.class), pool, meet, &[]);
    (ours, tier(mine)) > (owns_below(state, (other, theirs.class), kept.pool, meet, &kept.runs), tier(theirs))
}

/// Who of two goes first by quota: `Less`, one that asks in a pool, if it would be within what its queue owns, and the holder of the reservation of a pool
/// would borrow once the runs have ended that it waits for; `Greater`, the holder, if it is the other way round. Both are compared below the node of the
/// quota tree where their queues meet, and as a whole where they meet nowhere. In one queue, and without quotas, neither goes first.
pub(crate) fn by_ownership(state: &State, job: JobId, asks: PoolId, holder: JobId, pool: PoolId) -> Ordering {
    let (mine, theirs) = (&state.jobs[job], &state.jobs[holder]);
    let (Some(at), Some(other)) = (quota::quota_of(state, mine), quota::quota_of(state, theirs)) else {
        return Ordering::Equal;
    };
    if at == other || !(state.has_quotas(asks) || state.has_quotas(pool)) {
        return Ordering::Equal;
    }
    let meet = state.lineage(at).find(|node| asks == pool && state.quota.is_below(other, *node));
    // What is promised to others of its queue is as good as in use.
    let asked = quota::share(state, mine.class, asks);
    let with = |node: QuotaId| {
        state.quota.usage_with(at, asks, asked, node) + quota::kept_under(state, node, asks, mine.class)
    };
    let mut way = state.lineage(at).take_while(|node| Some(*node) != meet);
    let owns = way.all(|node| state.within_own(node, asks, with(node)))
        && quota::is_within_named(state, at, asks, mine.class, asked)
        && owns_up_to(state, (at, mine.class), asks, meet, &[]);
    owns_up_to(state, (other, theirs.class), pool, meet, &waited_for(state, holder, pool)).cmp(&owns)
}

/// The runs that the holder of a reservation waits for.
fn waited_for(state: &State, holder: JobId, pool: PoolId) -> Vec<JobId> {
    let kept = state.reservations().get(&pool).filter(|kept| kept.job == holder);
    kept.map_or_else(Vec::new, |kept| forecast::holders(state, &kept.nodes).into_iter().collect())
}

/// At which nodes above it the holder of a reservation would borrow, the lowest first, and whether it would anywhere: with these who goes before it changes.
pub(crate) fn holder_borrows(state: &State, holder: JobId, pool: PoolId) -> Vec<bool> {
    let row = &state.jobs[holder];
    let Some(quota) = quota::quota_of(state, row) else { return Vec::new() };
    let gone = waited_for(state, holder, pool);
    let below = |meet: Option<QuotaId>| !owns_up_to(state, (quota, row.class), pool, meet, &gone);
    state.lineage(quota).map(Some).chain([None]).map(below).collect()
}

/// A job that an allowance may be kept for.
#[derive(Clone, Copy)]
struct Contender<'a> {
    job: JobId,
    quota: QuotaId,
    pool: PoolId,
    /// Runs that would be gone then.
    gone: &'a [JobId],
    /// Its turn.
    turn: usize,
}

/// For which of some jobs, in their order, an allowance is to be kept. Its holder stays where none goes before it.
///
/// Jobs of a queue are compared first, then what is first of each queue, where queues meet. Two by two there are circles: what a large job of a
/// queue would borrow, a small one behind it owns.
pub(crate) fn first_of(state: &State, of: Allowance, jobs: &[(JobId, PoolId)]) -> Option<JobId> {
    let kept = state.allowances().get(&of);
    let others = jobs.iter().filter(|(job, _)| kept.is_none_or(|kept| kept.job != *job));
    let all = kept.map(|kept| (kept.job, kept.pool, &kept.runs[..]));
    let all = all.into_iter().chain(others.map(|(job, pool)| (*job, *pool, &[][..]))).enumerate();
    let contenders = all.filter_map(|(turn, (job, pool, gone))| {
        Some(Contender { job, quota: quota::quota_of(state, &state.jobs[job])?, pool, gone, turn })
    });
    first_below(state, of.node(), contenders.collect()).map(|first| first.job)
}

fn first_below<'a>(state: &State, node: QuotaId, contenders: Vec<Contender<'a>>) -> Option<Contender<'a>> {
    let tier = |one: &Contender<'_>| Reverse(order::turn_of_tier(state, state.jobs[one.job].tier));
    let mut sides: BTreeMap<Option<QuotaId>, Vec<Contender<'a>>> = BTreeMap::new();
    for one in contenders {
        let side = state.lineage(one.quota).find(|at| state.quota.parent(*at) == Some(node));
        sides.entry(side).or_default().push(one);
    }
    let firsts = sides.into_iter().filter_map(|(side, these)| match side {
        Some(child) => first_below(state, child, these),
        None => these.into_iter().min_by_key(|one| (tier(one), in_queue(state, one.job))),
    });
    let borrows =
        |one: &Contender<'_>| !owns_below(state, (one.quota, state.jobs[one.job].class), one.pool, node, one.gone);
    firsts.min_by_key(|one| (borrows(one), tier(one), one.turn))
}

/// Where a job is in its queue. A deadline that comes to count later must not move what is kept.
fn in_queue(state: &State, job: JobId) -> OrderKey {
    OrderKey { start_by: Timestamp::NEVER, ..order::place(state, job) }
}

/// Whether a gang of a class would be within what its queue and all above it own, up to a node, with some runs gone.
fn owns_below(state: &State, of: (QuotaId, ClassId), pool: PoolId, meet: QuotaId, gone: &[JobId]) -> bool {
    owns_up_to(state, of, pool, Some(meet), gone)
}

/// The same up to a node, or with all above it: then it is not within what it owns either where no quota is named for its queue.
fn owns_up_to(state: &State, of: (QuotaId, ClassId), pool: PoolId, meet: Option<QuotaId>, gone: &[JobId]) -> bool {
    let (quota, class) = of;
    let (asked, without) = (quota::share(state, class, pool), UsedWithout::of(state, pool, gone));
    // The jobs of a cohort itself stand beside its children: theirs is what it names.
    let own = without.own_jobs_with(quota, asked).is_none_or(|with| with <= state.quota.named(quota, pool));
    let mut way = state.lineage(quota).take_while(|at| Some(*at) != meet);
    (own || (meet.is_some() && !state.has_quotas(pool)))
        && way.all(|at| state.within_own(at, pool, without.with_more(quota, asked, at)))
        && (meet.is_some() || !quota::is_unowned(state, quota, pool))
}

/// What is in use of the quotas of a pool with some runs gone.
struct UsedWithout<'a> {
    state: &'a State,
    pool: PoolId,
    /// At each node where it is less.
    used: BTreeMap<QuotaId, MilliGpu>,
}

impl<'a> UsedWithout<'a> {
    fn of(state: &'a State, pool: PoolId, runs: &[JobId]) -> UsedWithout<'a> {
        let there = runs.iter().filter_map(|id| state.jobs.get(*id)).filter(|row| row.pool == Some(pool));
        let gone = there.filter_map(|row| Some((quota::quota_of(state, row)?, held(state, row.id))));
        UsedWithout { state, pool, used: state.quota.used_without(pool, gone) }
    }

    fn at(&self, node: QuotaId) -> MilliGpu {
        self.used.get(&node).copied().unwrap_or_else(|| self.state.quota.usage(node, self.pool))
    }

    /// What would be in use at a node if a holder had its share.
    fn with(&self, holder: &Asker, node: QuotaId) -> MilliGpu {
        self.with_more(holder.quota, quota::share(self.state, holder.class, self.pool), node)
    }

    /// What the jobs of a cohort itself would use with so much more. `None`: nothing is below that node.
    fn own_jobs_with(&self, quota: QuotaId, asked: MilliGpu) -> Option<MilliGpu> {
        let tree = &self.state.quota;
        tree.inner(quota).then(|| tree.own_usage_given(quota, self.pool, &|at| self.at(at)) + asked)
    }

    /// What would be in use at a node if a queue took so much. No node below it goes above its own bound: what is too much there is to be
    /// given back there.
    fn with_more(&self, quota: QuotaId, asked: MilliGpu, node: QuotaId) -> MilliGpu {
        let UsedWithout { state, pool, .. } = *self;
        let tree = &state.quota;
        let mut with = self.at(quota) + asked;
        for at in state.lineage(quota).take_while(|at| *at != node) {
            let Some(above) = tree.parent(at) else { break };
            let most = tree.bound(at, pool).map_or(with, |bound| with.min(bound));
            let stays = tree.kept(at, pool);
            with = self.at(above) - (self.at(at) - stays) + (most - stays);
        }
        with
    }
}

/// What the runs cost that are to be gone.
fn given_up(state: &State, runs: &[JobId]) -> Rate {
    let there = runs.iter().filter(|id| still_holds(state, **id)).map(|id| state.jobs[*id].rate);
    there.fold(Rate(0), |sum, rate| sum + rate)
}

/// Whether a job has its places, in a trial too.
pub(crate) fn still_holds(state: &State, job: JobId) -> bool {
    // One that is over may be forgotten.
    let place = state.jobs.get(job).and_then(|row| row.places.first());
    let node = place.and_then(|place| state.nodes.get(&place.node));
    node.is_some_and(|node| node.holds.contains(&job))
}

/// What a run has in use, in a trial too, where an elastic gang may have lost some of its workers.
fn held(state: &State, job: JobId) -> MilliGpu {
    let Some(row) = state.jobs.get(job) else { return MilliGpu(0) };
    let elastic = matches!(state.specs[job].gang, Gang::Workers { min, max, .. } if min < max);
    if !elastic {
        return if still_holds(state, job) { row.share } else { MilliGpu(0) };
    }
    let mut left: BTreeMap<NodeId, usize> = BTreeMap::new();
    let stays = row.places.iter().filter(|place| {
        let count =
            || state.nodes.get(&place.node).map_or(0, |node| node.holds.iter().filter(|id| **id == job).count());
        let left = left.entry(place.node).or_insert_with(count);
        let stays = *left > 0;
        *left -= usize::from(stays);
        stays
    });
    stays.fold(MilliGpu(0), |sum, place| sum + place.gpu_share())
}

/// What will be in use of a quota when its holder has it and the runs that it waits for are gone.
fn used_then(state: &State, of: Allowance, kept: &AllowanceReservation) -> Option<MilliGpu> {
    let holder = Asker::of(state, kept.job, kept.pool)?;
    Some(UsedWithout::of(state, kept.pool, &gone_then(state, kept)).with(&holder, of.node()))
}

/// Runs that are gone when the holder of an allowance starts: those for which it waits by anything that is kept for it and too little now. What is
/// enough now is left to it now where it waits for nothing else.
fn gone_then(state: &State, kept: &AllowanceReservation) -> Vec<JobId> {
    let mut gone: Vec<JobId> = still_short(state, kept).flat_map(|other| other.runs.iter().copied()).collect();
    gone.sort_unstable();
    gone.dedup();
    gone
}

/// What is kept of quotas and budgets for a holder in its pool, and is too little for it now.
fn still_short<'a>(
    state: &'a State,
    kept: &AllowanceReservation,
) -> impl Iterator<Item = &'a AllowanceReservation> + use<'a> {
    let (job, pool) = (kept.job, kept.pool);
    let quota = quota::quota_of(state, &state.jobs[job]).into_iter();
    let all = quota.flat_map(|quota| state.lineage(quota)).flat_map(move |at| allowances_at(at, pool));
    let own = all.filter_map(move |of| Some((of, state.allowances().get(&of).filter(|other| other.job == job)?)));
    own.filter(move |(of, _)| is_short(state, *of, job, pool)).map(|(_, other)| other)
}

/// When the last is there of what is kept of quotas and budgets for a holder: until then it needs none of it.
pub(crate) fn begins(state: &State, kept: &AllowanceReservation) -> Timestamp {
    still_short(state, kept).map(|other| other.from).fold(kept.from, Timestamp::max)
}

/// Until when others may use what is kept: the holder may wait for room for longer than for this.
fn until(state: &State, kept: &AllowanceReservation) -> Timestamp {
    reserved_from(state, kept.job).into_iter().fold(begins(state, kept), Timestamp::max)
}

/// Whether a job is certain to have ended when what is kept begins.
fn ends_before(state: &State, asker: &Asker, kept: &AllowanceReservation) -> bool {
    let lasts = demand::remaining_p90(state, asker.job).filter(|lasts| lasts.0 > 0);
    lasts.is_some_and(|lasts| state.now + lasts <= until(state, kept))
}

/// What of quotas and budgets is too little for a job in a pool, and may be kept for it. One GPU has to be kept no quota for: the first that frees is its
/// own.
pub(crate) fn lacks(state: &State, job: JobId, pool: PoolId) -> Vec<Allowance> {
    lacking(state, job, pool, is_large(state, state.jobs[job].class, pool))
}

/// What of quotas and budgets is too little for a job in a pool, however little that is.
pub(crate) fn all_lacks(state: &State, job: JobId, pool: PoolId) -> Vec<Allowance> {
    lacking(state, job, pool, true)
}

/// What of budgets, and if need be of quotas, is too little for a job in a pool.
fn lacking(state: &State, job: JobId, pool: PoolId, quotas: bool) -> Vec<Allowance> {
    let Some(asker) = Asker::of(state, job, pool) else { return Vec::new() };
    let asked = quota::share(state, asker.class, pool);
    let of_quota = quotas
        .then(|| quota::refusal(state, asker.class, pool, asked))
        .flatten()
        .map(|_| state.lineage(asker.quota).map(|at| Allowance::Quota(at, pool)));
    let least = if state.budgets.none() { Rate(0) } else { budget::least(state, asker.class, pool) };
    let of_money = state.budgets_closed(asker.quota, least).map(Allowance::Budget);
    of_quota.into_iter().flatten().filter(|of| is_short(state, *of, job, pool)).chain(of_money).collect()
}

/// Whether an allowance is too little for a job now.
pub(crate) fn is_short(state: &State, of: Allowance, job: JobId, pool: PoolId) -> bool {
    let Some(asker) = Asker::of(state, job, pool) else { return false };
    match of {
        Allowance::Quota(..) => missing(state, of, job, pool) > MilliGpu(0),
        Allowance::Budget(node) => {
            let least = budget::least(state, asker.class, pool);
            state.budgets_closed(asker.quota, least).any(|at| at == node)
        }
    }
}

/// How much of a quota is missing for a job.
pub(crate) fn missing(state: &State, of: Allowance, job: JobId, pool: PoolId) -> MilliGpu {
    let Some(asker) = Asker::of(state, job, pool) else { return MilliGpu(0) };
    let kept = quota::kept_under(state, of.node(), pool, asker.class);
    let used = state.quota.usage_with(asker.quota, pool, asked(state, job, pool), of.node()) + kept;
    state.quota.bound(of.node(), pool).map_or(MilliGpu(0), |most| used - most)
}

/// What a job asks of the quotas of a pool.
pub(crate) fn asked(state: &State, job: JobId, pool: PoolId) -> MilliGpu {
    quota::share(state, state.jobs[job].class, pool)
}

/// Whether it will be enough when the runs are gone for which it waits.
pub(crate) fn suffices(state: &State, of: Allowance, kept: &AllowanceReservation) -> bool {
    match of {
        Allowance::Quota(node, pool) => {
            let used = used_then(state, of, kept).unwrap_or_default();
            state.quota.bound(node, pool).is_none_or(|most| used <= most)
        }
        Allowance::Budget(node) => {
            let gang = budget::least(state, state.jobs[kept.job].class, kept.pool);
            let gone = given_up(state, &kept.runs);
            let account = state.budgets.holding(node);
            account.is_none_or(|account| (account.started + account.booked - gone + gang).0 <= account.budget.amount)
        }
    }
}

/// Whether an allowance may be kept for a job: nobody has it, or who has it comes behind.
pub(crate) fn is_open(state: &State, of: Allowance, job: JobId, pool: PoolId) -> bool {
    let kept = state.allowances().get(&of);
    kept.is_none_or(|kept| kept.job != job && goes_before(state, job, kept, pool))
}

/// Why a job for which quota or money is kept waits. `None`: nothing is, or nothing is known of its time.
pub(crate) fn reason(state: &State, job: JobId) -> Option<Reason> {
    let held = || state.allowances().iter().filter(|(_, kept)| kept.job == job && kept.from > state.now);
    // What a budget lets start, and when, is said by the budget.
    if held().any(|(of, _)| matches!(of, Allowance::Budget(_))) {
        return None;
    }
    let from = held().map(|(_, kept)| kept.from).max()?;
    match (held().any(|(_, kept)| kept.delayed), held().all(|(_, kept)| kept.known)) {
        (true, _) => Some(Reason::ReservationDelayed { until: from }),
        (false, true) => Some(Reason::Reserved { from }),
        (false, false) => None,
    }
}

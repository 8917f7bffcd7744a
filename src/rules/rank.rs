//! Rank: who may take from whom, whatever is short: room, quota, money, a ceiling.
//!
//! ```text
//! by quota    depth by depth, from below where their queues meet: wholly within what the node owns comes before borrowing. A node's
//!             quota is filled with what is within its children's own, then by tier, then start. The taker is judged as it would stand with
//!             the run gone, the run as it stands
//! by tier     where both stand alike: from a lower tier that names the taker's in `stoppableBy`, is overdue, or has not started
//! by share    between equals that both borrow: from the greater share, as long as the taker's stays at or below it
//! in a queue  by tier, and by number within it where the queue says so, where the taker borrows no more than the run
//! ```
//!
//! A queue's `reclaim` and `preemptWithin` take grounds away, or add one that rises strictly as well: a number of each job, compared in one queue
//! and tier only. It is the job's priority, or how little GPU time it is expected to take still. The first never changes; where the second does, a run
//! has had its turn, and has twice as long a one after each stop.
//!
//! A run that borrows in part counts whole, and leaves what it does not fill to those behind it. A queue without a quota borrows where its
//! pool has quotas. The jobs of a queue that is also a cohort stand as one more child of it, which owns what the cohort names.
//!
//! Why no circle exists: the taker's rank, judged with the run gone, is above the run's, judged without the taker; for the run to take back it would
//! have to be the other way round on the same two states. Over three: what is within a child's own is filled first above it, so whoever is above another
//! within a cohort is never below it outside.
//!
//! Never: what a stop costs, or whether it helps.

mod holders;
mod owner;

use super::quota::{kept_under_for_others, quota_of};
use super::{demand, protection, settings};
use crate::ids::{ClassId, JobId, PoolId, QueueId, QuotaId, TierId};
use crate::policy::{PreemptWithin, Reclaim};
use crate::state::State;
use crate::state::jobs::{Job, Phase};
use crate::state::shares::Meeting;
use crate::units::MilliGpu;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::Reverse;
use holders::{Entry, Holders, LAST, Place, Turn};
use owner::QuotaOwner;

/// Doublings of GPU time by which a run has to be longer than a job of its queue that may stop it: four times. Else what is learned of the two while
/// one waits for the other would turn them round.
const MUCH_LONGER: i32 = 2;

/// A job that may take: what it asks, where.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taker {
    pub job: JobId,
    pub class: ClassId,
    pub pool: PoolId,
    pub asked: MilliGpu,
    pub tier: TierId,
    /// Within its tier, where its queue goes by one.
    pub number: i32,
    /// The node of the quota tree that its queue is at.
    pub quota: QuotaId,
    /// What its queue may take from others that borrow.
    pub reclaim: Reclaim,
    /// What its queue may take from itself.
    pub within: PreemptWithin,
}

impl Taker {
    /// `None`: the policy does not know its queue.
    pub(crate) fn of(state: &State, job: JobId, pool: PoolId) -> Option<Taker> {
        let row = &state.jobs[job];
        let asked = super::quota::share(state, row.class, pool);
        let rule = state.queues[row.queue].rule.as_ref()?;
        Some(Taker {
            job,
            class: row.class,
            pool,
            asked,
            tier: row.tier,
            number: number(state, row),
            quota: rule.quota,
            reclaim: rule.reclaim,
            within: rule.preempt_within,
        })
    }
}

/// At which depths somebody borrows, the root first. Less goes before more.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Borrows(u64);

impl Borrows {
    fn mark(&mut self, depth: usize) {
        self.0 |= (1 << 63) >> depth.min(63);
    }

    /// From a depth on.
    fn below(self, depth: usize) -> Borrows {
        Borrows(self.0.checked_shl(depth as u32).unwrap_or(0))
    }
}

/// On what ground something may be taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ground {
    /// The taker's rank by quota is higher.
    Quota,
    /// Its share is smaller. What is promised and has not started does not change hands by share.
    Share,
    /// Its tier may stop the run's.
    Tier,
}

/// Who holds what in one pass, with what is tried. All of it is walked when somebody would borrow, and not before; sums by node are made when they are
/// asked for.
#[derive(Debug, Default)]
pub(crate) struct Ranks {
    holders: BTreeMap<(PoolId, QuotaId), Holders>,
    /// What was set before all was walked. `None`: it has been.
    early: Option<Vec<((PoolId, QuotaId), Entry)>>,
    filled: BTreeMap<(PoolId, QuotaOwner), Vec<Entry>>,
    with_quotas: BTreeSet<PoolId>,
}

impl Ranks {
    pub(crate) fn new(state: &State) -> Ranks {
        let nodes = state.policy.as_deref().map_or(&[][..], |p| &p.quotas);
        let with_quotas = nodes.iter().flat_map(|node| node.limits.keys().copied()).collect();
        Ranks { early: Some(Vec::new()), with_quotas, ..Ranks::default() }
    }

    /// Walks all that hold places, once. A trial changes neither which they are nor their shares.
    fn walk(&mut self, state: &State) {
        let Some(early) = self.early.take() else { return };
        let mut all: BTreeMap<(PoolId, QuotaId), Vec<Entry>> = BTreeMap::new();
        for id in state.index.holding.values().flatten() {
            let job = &state.jobs[*id];
            if let (Some(pool), Some(quota)) = (job.pool, quota_of(state, job)) {
                all.entry((pool, quota)).or_default().push(entry(state, job, job.share));
            }
        }
        self.holders = all.into_iter().map(|(key, entries)| (key, Holders::of(entries))).collect();
        early.into_iter().for_each(|(key, entry)| self.holders.entry(key).or_default().set(entry));
    }

    /// A job holds so much in a pool from now on.
    pub(crate) fn set(&mut self, state: &State, job: JobId, pool: PoolId, share: MilliGpu) {
        let Some(quota) = quota_of(state, &state.jobs[job]) else { return };
        let entry = entry(state, &state.jobs[job], share);
        if let Some(early) = &mut self.early {
            return early.push(((pool, quota), entry));
        }
        self.holders.entry((pool, quota)).or_default().set(entry);
        self.filled.remove(&(pool, QuotaOwner::OwnJobs(quota)));
        for node in state.lineage(quota) {
            self.filled.remove(&(pool, QuotaOwner::Subtree(node)));
        }
    }

    /// Where a run stands.
    pub(crate) fn of_run(&mut self, state: &State, run: JobId) -> Borrows {
        state.jobs[run].pool.map_or_else(Borrows::default, |pool| self.of_holder(state, run, pool))
    }

    /// Where a job stands that holds quota of a pool, if only in a trial.
    pub(crate) fn of_holder(&mut self, state: &State, run: JobId, pool: PoolId) -> Borrows {
        let mut borrows = Borrows::default();
        let Some(quota) = quota_of(state, &state.jobs[run]) else { return borrows };
        for (depth, owner) in QuotaOwner::lineage(state, quota).into_iter().enumerate() {
            if self.exceeds(state, owner, pool, run) {
                borrows.mark(depth);
            }
        }
        borrows
    }

    fn exceeds(&mut self, state: &State, owner: QuotaOwner, pool: PoolId, run: JobId) -> bool {
        let Some(own) = owner.owns(state, pool) else { return self.with_quotas.contains(&pool) };
        if owner.usage(state, pool) <= own {
            return false;
        }
        self.walk(state);
        if let Some(holders) = self.all_of(state, owner, pool) {
            return holders.exceeds(run, own);
        }
        let entries = self.fill(state, owner, pool);
        entries.iter().find(|entry| entry.job == run).is_some_and(|entry| !entry.within)
    }

    /// Where a taker would stand if it had what it asks.
    pub(crate) fn of_taker(&mut self, state: &State, taker: &Taker) -> Borrows {
        self.of_taker_for(state, taker, None)
    }

    /// The same if it takes the place of a run, that of its own queue perhaps.
    fn of_taker_for(&mut self, state: &State, taker: &Taker, run: Option<JobId>) -> Borrows {
        let mut borrows = Borrows::default();
        let first = Reverse(settings::priority(state, taker.tier));
        let mut beyond = false;
        let mut turn = None;
        for (depth, owner) in QuotaOwner::lineage(state, taker.quota).into_iter().enumerate().rev() {
            let Some(own) = owner.owns(state, taker.pool) else {
                if self.with_quotas.contains(&taker.pool) {
                    borrows.mark(depth);
                }
                continue;
            };
            let with = owner.usage_with(state, taker.pool, taker.quota, taker.asked);
            if with <= own {
                continue;
            }
            self.walk(state);
            let rises = with - owner.usage(state, taker.pool);
            let turn = *turn.get_or_insert_with(|| self.turn(state, taker, run));
            if self.filled_before(state, owner, taker.pool, (beyond, (first, turn))) + rises > own {
                borrows.mark(depth);
                beyond = true;
            }
        }
        borrows
    }

    /// When a taker would count as started: last of all, or before those of its queue and tier that it may stop by priority, or when a longer run
    /// did whose place it takes. That one is longer than another comes and goes: it counts between the two alone.
    fn turn(&self, state: &State, taker: &Taker, run: Option<JobId>) -> Turn {
        match (taker.within, run) {
            (PreemptWithin::LowerPriority, _) => {}
            (PreemptWithin::LongerExpected, Some(run)) if is_longer(state, taker, &state.jobs[run]) => {
                return (state.jobs[run].running_since.unwrap_or(state.now), run);
            }
            _ => return LAST,
        }
        let tier = Reverse(settings::priority(state, taker.tier));
        let holders = self.holders.get(&(taker.pool, taker.quota));
        let mut own: Vec<Entry> = holders.map_or_else(Vec::new, Holders::to_vec);
        by_priority(&mut own);
        let below = own.iter().filter(|entry| entry.tier == tier && entry.priority > Reverse(taker.number));
        below.map(|entry| entry.turn).min().unwrap_or(LAST)
    }

    /// Whether anything that runs of a queue and tier hold could be a taker's at all. It is not asked of each run then.
    pub(crate) fn may_yield(&self, state: &State, taker: &Taker, quota: QuotaId, tier: TierId) -> bool {
        if quota == taker.quota {
            return may_ever_stop_within(state, taker, tier);
        }
        let by_tier = may_ever_stop(state, taker.tier, tier);
        let meet = depth_of_meeting(state, taker.quota, quota);
        let above = QuotaOwner::lineage(state, quota).into_iter().skip(meet);
        let borrows = |owner: QuotaOwner| match owner.owns(state, taker.pool) {
            Some(own) => owner.usage(state, taker.pool) > own,
            None => self.with_quotas.contains(&taker.pool),
        };
        by_tier || (may_reclaim(state, taker, tier) && above.into_iter().any(borrows))
    }

    /// What holds anything of an owner's, where that is one queue in the order in which its quota is filled.
    fn all_of(&self, state: &State, owner: QuotaOwner, pool: PoolId) -> Option<&Holders> {
        let goes_by_start = |own: &&Holders| own.numbered == 0;
        self.held_by(state, owner, pool).filter(goes_by_start)
    }

    /// What holds anything of an owner's, where that is one queue.
    fn held_by(&self, state: &State, owner: QuotaOwner, pool: PoolId) -> Option<&Holders> {
        self.holders.get(&(pool, owner.queue(state)?))
    }

    /// What is filled in of an owner's before a place in its order.
    fn filled_before(&mut self, state: &State, owner: QuotaOwner, pool: PoolId, place: (bool, Place)) -> MilliGpu {
        let own = owner.owns(state, pool);
        if let Some(holders) = self.all_of(state, owner, pool) {
            return holders.before(Some(place.1), own).within;
        }
        // What goes before is filled in first: where all of it fits, its order says nothing.
        let all = self.before(state, owner, pool, place.0, Some(place.1));
        if let Some(all) = all.filter(|all| own.is_none_or(|own| *all <= own)) {
            return all;
        }
        let entries = self.fill(state, owner, pool).iter();
        let before = entries.filter(|entry| entry.within && (entry.beyond, (entry.tier, entry.turn)) < place);
        before.fold(MilliGpu(0), |sum, entry| sum + entry.share)
    }

    /// What goes before a place among what is held of an owner's below it, whether it fits or not. `None`: it has to be filled in to know.
    fn before(
        &self,
        state: &State,
        owner: QuotaOwner,
        pool: PoolId,
        beyond: bool,
        place: Option<Place>,
    ) -> Option<MilliGpu> {
        if self.held_by(state, owner, pool).is_some() {
            return None;
        }
        let mut sum = MilliGpu(0);
        for child in owner.children(state) {
            let fits = child.owns(state, pool);
            let rises = if child.queue(state).is_none() {
                // Nothing of it is beyond what the child or anything below it owns.
                let all = self.before(state, child, pool, false, None)?;
                if fits.is_some_and(|fits| all > fits) || (beyond && all < self.held(state, child, pool)) {
                    return None;
                }
                let is_all = beyond || place.is_none();
                if is_all { all } else { self.before(state, child, pool, false, place)? }
            } else if let Some(holders) = self.held_by(state, child, pool) {
                if holders.numbered > 0 {
                    return None;
                }
                if beyond {
                    holders.before(None, fits).within + holders.before(place, fits).beyond
                } else {
                    holders.before(place, fits).within
                }
            } else {
                MilliGpu(0)
            };
            // What stays with the child is what fills its quota first.
            sum = sum + (rises - child.kept(state, pool));
        }
        Some(sum)
    }

    /// What is held of an owner's and rises there from below.
    fn held(&self, state: &State, owner: QuotaOwner, pool: PoolId) -> MilliGpu {
        let own = self.held_by(state, owner, pool).map_or(MilliGpu(0), |own| own.before(None, None).within);
        let rises = |child: QuotaOwner| self.held(state, child, pool) - child.kept(state, pool);
        owner.children(state).fold(own, |sum, child| sum + rises(child))
    }

    /// What runs hold of an owner's, as it rises there, in the order in which its quota is filled.
    fn fill(&mut self, state: &State, owner: QuotaOwner, pool: PoolId) -> &[Entry] {
        if !self.filled.contains_key(&(pool, owner)) {
            let own = self.held_by(state, owner, pool);
            let mut entries: Vec<Entry> = own.map_or_else(Vec::new, Holders::to_vec);
            by_priority(&mut entries);
            for child in owner.children(state) {
                let stays = child.kept(state, pool);
                // What stays with the child is what fills its quota first.
                let mut filled = MilliGpu(0);
                let inside = self.fill(state, child, pool).to_vec();
                let (within, beyond): (Vec<Entry>, Vec<Entry>) = inside.into_iter().partition(|entry| entry.within);
                for entry in within.into_iter().chain(beyond) {
                    let before = filled;
                    filled = filled + entry.share;
                    let share = (filled - stays) - (before - stays);
                    if share > MilliGpu(0) {
                        entries.push(Entry { beyond: entry.beyond || !entry.within, share, ..entry });
                    }
                }
            }
            entries.sort_unstable_by_key(|entry| (entry.beyond, entry.tier, entry.turn));
            holders::fill(&mut entries, owner.owns(state, pool));
            self.filled.insert((pool, owner), entries);
        }
        self.filled.get(&(pool, owner)).map_or(&[], Vec::as_slice)
    }

    /// Whether a taker stands no lower than a run stood, from the root down, with all gone that it takes: one that makes their cohort borrow does
    /// not take from one that does not.
    pub(crate) fn stands_by(&mut self, state: &State, taker: &Taker, run: JobId, stood: Borrows) -> bool {
        self.of_taker_for(state, taker, Some(run)) <= stood
    }

    /// Whether a run would take back by quota what it loses to a taker: it stood above where that one would, from where the ways to their queues part.
    pub(crate) fn takes_back(&mut self, state: &State, taker: &Taker, run: JobId, stood: Borrows) -> bool {
        let Some(run) = Taker::of(state, run, taker.pool) else { return false };
        let meet = depth_of_meeting(state, taker.quota, run.quota);
        run.quota != taker.quota
            && stood.below(meet) < self.of_taker(state, taker).below(meet)
            && may_reclaim(state, &run, taker.tier)
    }

    /// On what ground a taker may have what a run holds. `stood`: where the run stood; the run is gone from the state and from here.
    pub(crate) fn ground(&mut self, state: &State, taker: &Taker, run: JobId, stood: Borrows) -> Option<Ground> {
        let job = &state.jobs[run];
        let quota = quota_of(state, job)?;
        let meet = depth_of_meeting(state, taker.quota, quota);
        // In one queue it is the queue's own standing that is compared.
        let in_own = quota == taker.quota;
        let meet = if in_own { meet - 1 } else { meet };
        let (stands, stood) = (self.of_taker_for(state, taker, Some(run)).below(meet), stood.below(meet));
        if stands > stood {
            return None;
        }
        if in_own {
            return may_stop_within(state, taker, job).then_some(Ground::Tier);
        }
        let may_reclaim = may_reclaim(state, taker, job.tier);
        if stands < stood && may_reclaim {
            return Some(Ground::Quota);
        }
        may_stop(state, taker, job).then_some(Ground::Tier).or_else(|| {
            if !may_reclaim {
                return None;
            }
            let meeting = state.meeting(taker.quota, quota)?;
            let both = !state.within_own(meeting.mine, taker.pool, mine(state, taker, &meeting));
            // A lower tier never takes it back by share, and its own by quota only from what stands below.
            let above = settings::priority(state, job.tier) > settings::priority(state, taker.tier);
            (both && !above && is_poorer(state, taker, &meeting)).then_some(Ground::Share)
        })
    }
}

/// Pools in which anybody borrows. Where nobody does, nothing is anybody's by quota or share. Who has no GPUs and no quota borrows as well, of
/// nothing: it makes way on a node for who has a quota.
pub(crate) fn borrowed_pools(state: &State) -> BTreeSet<PoolId> {
    let borrows = |((node, pool), used): ((QuotaId, PoolId), MilliGpu)| {
        let above = state.quota.subtree(node, pool).is_none_or(|own| used > own);
        (used > MilliGpu(0) && above && state.has_quotas(pool)).then_some(pool)
    };
    let without = state.index.without_share.keys().copied().filter(|pool| state.has_quotas(*pool));
    let own_jobs = state.quota.own_in_use().into_iter().filter_map(|((node, pool), used)| {
        let above = used > MilliGpu(0) && used > state.quota.named(node, pool);
        (above && state.has_quotas(pool)).then_some(pool)
    });
    state.quota.in_use().filter_map(borrows).chain(own_jobs).chain(without).collect()
}

/// Whether jobs of a queue stop those of its own with a lower number.
pub(crate) fn stops_its_own(state: &State, queue: QueueId) -> bool {
    state.queues[queue].rule.as_ref().is_some_and(|rule| goes_by_number(rule.preempt_within))
}

/// Whether what jobs of a queue stop in it goes by a number of each.
pub(crate) fn goes_by_number(within: PreemptWithin) -> bool {
    matches!(within, PreemptWithin::LowerPriority | PreemptWithin::LongerExpected)
}

/// The number of a job where its queue goes by one, else none. The higher stop the lower.
pub(crate) fn number(state: &State, job: &Job) -> i32 {
    state.rule_for(job.id).map_or(0, |rule| number_by(state, job, rule.preempt_within))
}

/// The number of a job by a queue's rule. Queues at one node of the quota tree may have different ones: it is the taker's that counts.
fn number_by(state: &State, job: &Job, within: PreemptWithin) -> i32 {
    match within {
        PreemptWithin::LowerPriority => job.priority,
        PreemptWithin::LongerExpected => -i32::from(demand::doublings_left(state, job.id)),
        PreemptWithin::LowerTiers | PreemptWithin::Never => 0,
    }
}

fn entry(state: &State, job: &Job, share: MilliGpu) -> Entry {
    let tier = Reverse(settings::priority(state, job.tier));
    let by_priority = state.rule_for(job.id).is_some_and(|rule| rule.preempt_within == PreemptWithin::LowerPriority);
    let priority = Reverse(if by_priority { job.priority } else { 0 });
    // Who has no places yet starts after all that have, as it did when it was judged as a taker: however long it has waited.
    let turn = (job.holds_since().unwrap_or(LAST.0), job.id);
    Entry { beyond: false, tier, priority, turn, job: job.id, share, within: true }
}

/// In one queue the starts of the runs of a tier count for those of the highest priority first, where these may stop the others. So whoever
/// may stop another never stands below it, and between queues the numbers do not count.
fn by_priority(entries: &mut [Entry]) {
    if entries.iter().all(|entry| entry.priority == Reverse(0)) {
        return;
    }
    let mut turns: Vec<(Reverse<i32>, Turn)> = entries.iter().map(|entry| (entry.tier, entry.turn)).collect();
    turns.sort_unstable();
    entries.sort_unstable_by_key(|entry| (entry.tier, entry.priority, entry.turn));
    for (entry, (_, turn)) in entries.iter_mut().zip(turns) {
        entry.turn = turn;
    }
}

/// The depth from which on the ways down to two queues differ.
fn depth_of_meeting(state: &State, one: QuotaId, other: QuotaId) -> usize {
    let (one, other) = (QuotaOwner::lineage(state, one), QuotaOwner::lineage(state, other));
    one.iter().zip(&other).take_while(|(a, b)| a == b).count()
}

/// Whether a taker's tier may stop a run: it is higher, and named, or the run has lasted as long as it may while others wait, or it has not
/// started.
fn may_stop(state: &State, taker: &Taker, run: &Job) -> bool {
    let Some(policy) = state.policy.as_deref() else { return false };
    let Some(tier) = policy.tiers.get(run.tier.index()) else { return false };
    let higher = settings::priority(state, taker.tier) > tier.priority;
    // What has not started loses nothing but its turn.
    let booked = !has_started(run);
    let overdue = run.overdue_at <= state.now && protection::stoppable_when_overdue(policy, tier, taker.tier);
    higher && (booked || tier.stoppable_by.contains(&taker.tier) || overdue)
}

/// Whether a job runs or starts: what is booked, or promised what others give up, does not yet.
fn has_started(job: &Job) -> bool {
    !matches!(job.phase, Phase::Booked | Phase::Queued)
}

/// Whether a taker may stop a run by tier, whose queue is at a node of the quota tree.
pub(crate) fn may_stop_from(state: &State, taker: &Taker, run: &Job, quota: QuotaId) -> bool {
    if quota == taker.quota { may_stop_within(state, taker, run) } else { may_stop(state, taker, run) }
}

/// Whether a taker may stop a run of its own queue, by tier, or by number within it, if the run's deadline does not press more. What only
/// is booked loses its turn whatever the queue says.
fn may_stop_within(state: &State, taker: &Taker, run: &Job) -> bool {
    let by_tier = || may_stop(state, taker, run);
    let asks = &state.jobs[taker.job];
    let alike = run.tier == taker.tier && run.start_by >= asks.start_by;
    match taker.within {
        PreemptWithin::LowerTiers => by_tier(),
        PreemptWithin::LowerPriority => {
            // Once in a job's life: so that no two of them undo each other for ever.
            let first = run.attempt.0 <= u32::from(has_started(run));
            (alike && first && number_by(state, run, taker.within) < taker.number) || by_tier()
        }
        PreemptWithin::LongerExpected => is_longer(state, taker, run) || by_tier(),
        PreemptWithin::Never => !has_started(run) && by_tier(),
    }
}

/// Whether a run of a taker's queue and tier has had its turn, and is expected to take much longer still than the taker. Its next turn is twice as
/// long: so that no two of them undo each other for ever.
fn is_longer(state: &State, taker: &Taker, run: &Job) -> bool {
    let asks = &state.jobs[taker.job];
    let alike = quota_of(state, run) == Some(taker.quota) && run.tier == taker.tier && run.start_by >= asks.start_by;
    let below = run.priority <= asks.priority && run.service.is_none() && asks.service.is_none();
    let had_its_turn = run.phase == Phase::Running && run.turn_over_at <= state.now;
    alike && below && had_its_turn && number_by(state, run, taker.within) <= taker.number - MUCH_LONGER
}

/// The highest number that a run of a taker's own queue and tier may have to be the taker's. `None`: it does not go by number.
pub(crate) fn highest_that_yields(taker: &Taker) -> Option<i32> {
    match taker.within {
        PreemptWithin::LowerPriority => taker.number.checked_sub(1),
        PreemptWithin::LongerExpected => Some(taker.number - MUCH_LONGER),
        PreemptWithin::LowerTiers | PreemptWithin::Never => None,
    }
}

/// Whether a taker may ever stop runs of a tier in its own queue.
fn may_ever_stop_within(state: &State, taker: &Taker, tier: TierId) -> bool {
    match taker.within {
        PreemptWithin::LowerTiers => may_ever_stop(state, taker.tier, tier),
        PreemptWithin::LowerPriority | PreemptWithin::LongerExpected => {
            tier == taker.tier || may_ever_stop(state, taker.tier, tier)
        }
        PreemptWithin::Never => false,
    }
}

/// Whether a taker may have what a run of a tier in another queue has borrowed.
pub(crate) fn may_reclaim(state: &State, taker: &Taker, tier: TierId) -> bool {
    match taker.reclaim {
        Reclaim::Any => true,
        Reclaim::LowerTiers => settings::priority(state, tier) < settings::priority(state, taker.tier),
        Reclaim::Never => false,
    }
}

/// Whether a tier may ever stop another: it is higher, and named or runs of that tier may be overdue.
pub(crate) fn may_ever_stop(state: &State, by: TierId, tier: TierId) -> bool {
    let Some(policy) = state.policy.as_deref() else { return false };
    let Some(rule) = policy.tiers.get(tier.index()) else { return false };
    let named = rule.stoppable_by.contains(&by) && settings::priority(state, by) > rule.priority;
    named || protection::stoppable_when_overdue(policy, rule, by)
}

/// What a taker's side of a meeting would use with it.
fn mine(state: &State, taker: &Taker, meeting: &Meeting) -> MilliGpu {
    let kept = kept_under_for_others(state, meeting.mine, taker.pool, &state.jobs[taker.job]);
    state.quota.usage_with(taker.quota, taker.pool, taker.asked, meeting.mine) + kept
}

/// Whether a taker's side, with it, has no greater share than the other has now: over all pools, and in this one.
fn is_poorer(state: &State, taker: &Taker, m: &Meeting) -> bool {
    let (mine, theirs) = (mine(state, taker, m), state.quota.usage(m.theirs, taker.pool));
    let in_all = |child, used| state.borrowed_share(child, m.at, taker.pool, used);
    let in_one = |child, used| state.share_in(child, m.at, taker.pool, used);
    in_all(m.mine, mine).at_most(in_all(m.theirs, theirs)) && in_one(m.mine, mine).at_most(in_one(m.theirs, theirs))
}

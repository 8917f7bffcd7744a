//! Which runs may be stopped, for whom, and how soon, checked from outside of the engine: by the start of each run, the tiers and the queues.
//!
//! | cause | what is held | promised by |
//! | --- | --- | --- |
//! | for another job: `Preempted`, `QuotaReclaimed`, `Overran`, shrunk for one | not before `minRun`, nor before a restart has caught up, unless `maxRunWhileOthersWait` is over; not while it starts | POLICY.md `tiers.*.minRun`, `lifecycle.protect`; preempt.md "Rank", "What it never does" |
//! | `Preempted` | by tier: named in `stoppableBy`, or as old as `maxRunWhileOthersWait` and the taker's tier higher; within a queue what `preemptWithin` says, by number in the first attempt only, by length after its turn | preempt.md "Rank", "Longer runs" |
//! | `QuotaReclaimed` | another queue's, as far as `reclaim` lets it, and that borrows | preempt.md "Rank" |
//! | `Overran` | it was let in ahead of a reservation, and its tier is not above the taker's unless named | backfill.md "The rule", "Never" |
//! | `Moved` | it saves, is past its protection, and moves are on | consolidate.md "Never" |
//! | `Hurried` | it has a deadline, saves, and is on spot | deadline.md "Never" |
//! | `Grows` | elastic, not whole, saves, no replica, no job of a batch, and has run for ten restarts | grow.md "Never" |
//!
//! A protection is what it was when the run started (POLICY-CHANGES.md), so it is kept from then.
//!
//! Never: `Job::protected_until`, `Job::overdue_at` and `Job::turn_over_at`. They are what is checked.

use std::collections::BTreeMap;

use forebay_kernel::catalog::CapacityType;
use forebay_kernel::decision::{Decision, StopCause};
use forebay_kernel::event::Event;
use forebay_kernel::ids::{Attempt, JobId, PoolId, QueueId, QuotaId, TierId};
use forebay_kernel::job::{Gang, JobSpec};
use forebay_kernel::journal::Batch;
use forebay_kernel::policy::{Policy, PreemptWithin, QueueRule, Reclaim, Tier};
use forebay_kernel::state::State;
use forebay_kernel::state::jobs::{Job, Phase};
use forebay_kernel::units::{MilliGpu, Span, Timestamp};

use super::budgets::lineage;
use super::checks::open_jobs;
use super::promises::rule;

/// A restarted run is left alone until it could have saved, and for so long at most: preempt.md.
const LONGEST_SAVE: Span = Span::mins(30);

/// A first turn: preempt.md, "Longer runs".
const TURN: Span = Span::mins(30);

/// A run, and how long it is left alone.
#[derive(Clone, Copy, Debug)]
struct Run {
    attempt: Attempt,
    since: Timestamp,
    /// Not stopped for others before it has lasted so long.
    protect: Span,
    /// After this time a higher tier may stop it, named or not. `None`: its tier names no such time.
    longest: Option<Span>,
    /// Not stopped for shorter jobs of its queue before then.
    turn_over: Timestamp,
}

/// Runs, as far as this bears on what may be stopped.
#[derive(Debug, Default)]
pub(super) struct Protection {
    runs: BTreeMap<JobId, Run>,
    /// Let in ahead of a reservation.
    backfill: BTreeMap<JobId, JobId>,
    /// How often each job has made way for shorter ones of its queue.
    made_way: BTreeMap<JobId, u32>,
    /// What was booked after the last batch.
    booked: BTreeMap<JobId, BookedShare>,
    /// What of that this batch has unbooked. When in the batch is not known, so in favour of the engine it counts as if its queues still had it.
    unbooked: Vec<BookedShare>,
    pub found: Vec<String>,
}

/// What a booked job holds of its queue's quota.
#[derive(Clone, Copy, Debug)]
struct BookedShare {
    queue: QueueId,
    pool: PoolId,
    share: MilliGpu,
}

/// One that takes and one that is taken from, with what the policy says of them.
struct Pair<'a> {
    victim: &'a Job,
    taker: &'a Job,
    low: &'a Tier,
    high: &'a Tier,
    theirs: &'a QueueRule,
    own: &'a QueueRule,
}

impl Protection {
    /// What an event starts, judged before it is applied: all workers of a run that was being started.
    pub fn starts(event: &Event, state: &State) -> Option<JobId> {
        let Event::RunStarted { job, attempt } = event else { return None };
        let (row, _) = state.job(*job)?;
        let starting = matches!(row.phase, Phase::Starting);
        (starting && row.attempt == *attempt).then_some(*job)
    }

    /// A batch is durable and applied; these runs started with it.
    pub fn batch(&mut self, batch: &Batch, started: &[JobId], state: &State) {
        // Where another policy comes with the batch it is not known here which of the two a run started under.
        let changed = batch.events.iter().any(|event| matches!(event, Event::Configured(_)));
        for job in started {
            if let Some(run) = Run::of(*job, changed, state) {
                let turn = if changed { Span::ZERO } else { self.turn(*job) };
                self.runs.insert(*job, Run { turn_over: run.since + turn, ..run });
            }
        }
        let unbooked = batch.decisions.iter().filter_map(|made| match made {
            Decision::Unbook { job } if state.job(*job).is_some_and(|(row, _)| row.pool.is_none()) => {
                self.booked.get(job).copied()
            }
            _ => None,
        });
        self.unbooked = unbooked.collect();
        for decision in &batch.decisions {
            self.decision(decision, state);
        }
        let booked = open_jobs(state).filter(|job| job.phase == Phase::Booked);
        let share = |job: &Job| Some((job.id, BookedShare { queue: job.queue, pool: job.pool?, share: job.share }));
        self.booked = booked.filter_map(share).collect();
    }

    /// One decision, against the state after its batch.
    fn decision(&mut self, decision: &Decision, state: &State) {
        match decision {
            Decision::Book { job, .. } | Decision::Requeue { job, .. } => _ = self.backfill.remove(job),
            Decision::Backfill { job, ahead_of } => _ = self.backfill.insert(*job, *ahead_of),
            Decision::Stop { job, cause, .. } => self.stop(*job, *cause, state),
            Decision::Shrink { job, cause, .. } if cause.is_for_another() => {
                let made_way = self.made_way.get(job).copied();
                self.stop(*job, *cause, state);
                // For a shorter job of its queue: it has a turn again, as if it had been stopped.
                if self.made_way.get(job).copied() != made_way {
                    let turn_over = state.now() + self.turn(*job);
                    self.runs.entry(*job).and_modify(|run| run.turn_over = turn_over);
                }
            }
            Decision::Finish { job, .. } => {
                self.runs.remove(job);
                self.backfill.remove(job);
                self.made_way.remove(job);
            }
            _ => {}
        }
    }

    fn stop(&mut self, id: JobId, cause: StopCause, state: &State) {
        let (Some((job, spec)), Some(policy)) = (state.job(id), state.policy()) else { return };
        let wrong = match cause {
            StopCause::Preempted { by } => {
                self.left_alone(job, state.now()).or_else(|| self.by_rank(&Pair::of(job, by, policy, state)?, state))
            }
            StopCause::QuotaReclaimed { by } => {
                self.left_alone(job, state.now()).or_else(|| self.by_quota(&Pair::of(job, by, policy, state)?, state))
            }
            StopCause::Overran { by } => {
                self.left_alone(job, state.now()).or_else(|| self.backfilled(&Pair::of(job, by, policy, state)?))
            }
            StopCause::Moved => self.left_alone(job, state.now()).or_else(|| {
                let never = spec.checkpoint.is_none() || policy.consolidation.worth_it == 0;
                never.then(|| format!("saves {:?}, moves {:?}", spec.checkpoint, policy.consolidation))
            }),
            StopCause::Hurried => hurried(job, spec, state),
            StopCause::Grows => self.grows(job, spec, state.now()),
            _ => None,
        };
        if let Some(wrong) = wrong {
            self.found.push(format!("{id} is stopped with {cause:?}: {wrong}"));
        }
    }

    fn run(&self, job: &Job) -> Option<Run> {
        self.runs.get(&job.id).copied().filter(|run| run.attempt == job.attempt)
    }

    /// Whether a run is stopped too soon: while it starts, or within the time that it is left alone for.
    fn left_alone(&self, job: &Job, now: Timestamp) -> Option<String> {
        let Some(run) = self.run(job) else { return Some(format!("{} has not started", job.attempt)) };
        let lasted = now.since(run.since);
        (lasted < run.protect).then(|| format!("it has lasted {lasted}, and is left alone for {}", run.protect))
    }

    /// What a tier lets itself be stopped by, and a queue its own jobs.
    fn by_rank(&mut self, pair: &Pair<'_>, state: &State) -> Option<String> {
        let Pair { victim, taker, low, high, .. } = pair;
        let run = self.run(victim)?;
        let higher = high.priority > low.priority;
        let lasted = state.now().since(run.since);
        let overdue = higher && run.longest.is_some_and(|longest| lasted >= longest);
        let named = higher && low.stoppable_by.contains(&taker.tier);
        let within = pair.own.preempt_within;
        if pair.in_one() && within == PreemptWithin::Never {
            return Some(format!("its own queue stops nothing: {}", pair.describe(state)));
        }
        let alike = pair.in_one() && victim.tier == taker.tier;
        let first = victim.attempt.0 <= 1;
        let by_number = alike && first && victim.priority < taker.priority && within == PreemptWithin::LowerPriority;
        let longer = alike && victim.priority <= taker.priority && within == PreemptWithin::LongerExpected;
        if longer {
            *self.made_way.entry(victim.id).or_default() += 1;
            let early = run.turn_over > state.now();
            return early.then(|| format!("it has its turn until {}", run.turn_over.0));
        }
        let permitted = named || overdue || by_number;
        (!permitted).then(|| {
            let (attempt, longest) = (victim.attempt, run.longest);
            format!("{attempt} has lasted {lasted} of {longest:?}: {}", pair.describe(state))
        })
    }

    /// Half an hour, and twice as long after each time that the job made way so.
    fn turn(&self, job: JobId) -> Span {
        TURN.doubled(self.made_way.get(&job).copied().unwrap_or(0), Span(u64::MAX))
    }

    /// Whether a run was let in ahead of a reservation.
    fn backfilled(&self, pair: &Pair<'_>) -> Option<String> {
        let Pair { victim, taker, low, high, .. } = pair;
        if !self.backfill.contains_key(&victim.id) {
            return Some("it was there before the reservation".to_owned());
        }
        let above = low.priority > high.priority && !low.stoppable_by.contains(&taker.tier);
        above.then(|| format!("its tier `{}` is above `{}`", low.name, high.name))
    }

    /// By quota and by share: from another queue, as far as the taker's `reclaim` lets it, and only what is borrowed.
    fn by_quota(&self, pair: &Pair<'_>, state: &State) -> Option<String> {
        let lower = pair.low.priority < pair.high.priority;
        let may = match pair.own.reclaim {
            Reclaim::Any => true,
            Reclaim::LowerTiers => lower,
            Reclaim::Never => false,
        };
        if pair.in_one() || !may {
            return Some(format!("`reclaim` is {:?}: {}", pair.own.reclaim, pair.describe(state)));
        }
        let (policy, pool) = (state.policy()?, pair.victim.pool?);
        let first = goes_before(pair, state);
        let borrows = lineage(pair.victim.queue, policy, state).any(|quota| {
            let below =
                |held: &&BookedShare| held.pool == pool && lineage(held.queue, policy, state).any(|at| at == quota);
            let with = self.unbooked.iter().filter(below).fold(first, |sum, held| sum + held.share);
            borrows(quota, pool, with, policy, state)
        });
        let borrows = borrows || self.own_jobs_borrow(pair, pool, first, policy, state);
        (!borrows).then(|| format!("its queue borrows nothing in {pool}: {}", pair.describe(state)))
    }

    /// Whether the jobs of a run's queue use more than it names with what goes before as well, where others are below it: they stand beside these. What is kept
    /// for those that wait is in use.
    fn own_jobs_borrow(&self, pair: &Pair<'_>, pool: PoolId, first: MilliGpu, policy: &Policy, state: &State) -> bool {
        let quota = pair.theirs.quota;
        let is_there = |queue: QueueId| lineage(queue, policy, state).next() == Some(quota);
        let held = |job: &Job| if job.pool == Some(pool) { job.share } else { MilliGpu(0) };
        let kept = |job: &Job| job.kept.filter(|kept| kept.pool == pool).map_or(MilliGpu(0), |kept| kept.share);
        let jobs = open_jobs(state).filter(|job| is_there(job.queue)).map(|job| held(job) + kept(job));
        let unbooked = self.unbooked.iter().filter(|held| held.pool == pool && is_there(held.queue));
        let used = jobs.chain(unbooked.map(|held| held.share)).fold(first, |sum, share| sum + share);
        let named = policy.quotas.get(quota.index()).and_then(|node| node.limits.get(&pool));
        let inner = policy.quotas.iter().any(|node| node.parent == Some(quota));
        inner && used > named.map_or(MilliGpu(0), |limit| limit.nominal)
    }

    fn grows(&self, job: &Job, spec: &JobSpec, now: Timestamp) -> Option<String> {
        let Gang::Workers { max, .. } = spec.gang else { return Some("it is not elastic".to_owned()) };
        let run = self.run(job)?;
        let Some(save) = spec.checkpoint else { return Some("it cannot save".to_owned()) };
        let pause = Span((spec.restart + save.grace).0.max(60_000)).times(10);
        let lasted = now.since(run.since);
        let never = job.service.is_some() || spec.batch.is_some() || job.places.len() >= max as usize;
        (never || lasted < pause).then(|| format!("{} of {max} workers, {lasted} of {pause}", job.places.len()))
    }
}

impl Run {
    /// A run that has just started, left alone for as long as the policy in force says. `unknown`: for no time at all.
    fn of(id: JobId, unknown: bool, state: &State) -> Option<Run> {
        let ((job, spec), policy) = (state.job(id)?, state.policy()?);
        let tier = policy.tiers.get(job.tier.index())?;
        let longest = tier.max_run_while_others_wait;
        let every = spec.checkpoint.map_or(Span::ZERO, |save| save.every).min(LONGEST_SAVE);
        let again = spec.restart + every.max(policy.lifecycle.protect);
        let protect = if job.attempt.0 > 1 { tier.min_run.max(again) } else { tier.min_run };
        let protect = longest.map_or(protect, |longest| protect.min(longest));
        let (protect, longest) = if unknown { (Span::ZERO, longest.map(|_| Span::ZERO)) } else { (protect, longest) };
        Some(Run { attempt: job.attempt, since: state.now(), protect, longest, turn_over: Timestamp(0) })
    }
}

impl<'a> Pair<'a> {
    fn of(victim: &'a Job, by: JobId, policy: &'a Policy, state: &'a State) -> Option<Pair<'a>> {
        let (taker, _) = state.job(by)?;
        let tier = |id: TierId| policy.tiers.get(id.index());
        let (low, high) = (tier(victim.tier)?, tier(taker.tier)?);
        Some(Pair { victim, taker, low, high, theirs: rule(state, victim)?, own: rule(state, taker)? })
    }

    /// Queues that share one quota are one here.
    fn in_one(&self) -> bool {
        self.theirs.quota == self.own.quota
    }

    fn describe(&self, state: &State) -> String {
        let of = |job: &Job, tier: &Tier| {
            let queue = state.queues().get(job.queue).map_or("none", |queue| queue.path.as_str());
            format!("`{}` in queue `{queue}` with priority {}", tier.name, job.priority)
        };
        let (its, theirs) = (of(self.victim, self.low), of(self.taker, self.high));
        format!("{its} for {theirs}, `preemptWithin` is {:?}", self.own.preempt_within)
    }
}

/// What jobs ask for that wait at a run's node of the quota tree and go before it there: those of higher tiers, and of its own by their number where its
/// queue stops runs by one. The quota is theirs first, and they are served in the same pass or the next.
fn goes_before(pair: &Pair<'_>, state: &State) -> MilliGpu {
    let victim = pair.victim;
    let by_number = |waits: &Job| match pair.theirs.preempt_within {
        PreemptWithin::LowerPriority => waits.priority > victim.priority,
        // How long each is expected to take still is not known here.
        PreemptWithin::LongerExpected => true,
        PreemptWithin::LowerTiers | PreemptWithin::Never => false,
    };
    let priority = |job: &Job| state.policy().and_then(|p| p.tiers.get(job.tier.index())).map(|tier| tier.priority);
    let before = |job: &&Job| {
        let there = |rule: &QueueRule| victim.pool.is_some_and(|pool| rule.pools.contains(&pool));
        let one = rule(state, job).is_some_and(|rule| rule.quota == pair.theirs.quota && there(rule));
        let first = priority(job) > priority(victim) || job.tier == victim.tier && by_number(job);
        matches!(job.phase, Phase::Queued) && one && first
    };
    let first = open_jobs(state).filter(before).filter_map(|job| state.job(job.id));
    let asked = first.map(|(_, spec)| match &spec.gang {
        // A part of a GPU may take a larger slice of it.
        Gang::Workers { min, each, .. } if each.share < 1000 => MilliGpu::whole(u64::from(*min)),
        Gang::Workers { min, each, .. } => MilliGpu::whole(u64::from(*min) * u64::from(each.gpus)),
        Gang::Spanning { gpus, .. } => MilliGpu::whole(u64::from(*gpus)),
    });
    asked.fold(MilliGpu(0), |sum, share| sum + share)
}

/// Whether a node of the tree uses more than it owns with what goes before as well, or has no quota of its own. What is kept for a job that waits is in
/// use for all others.
fn borrows(quota: QuotaId, pool: PoolId, first: MilliGpu, policy: &Policy, state: &State) -> bool {
    let Some(own) = state.quota().subtree(quota, pool) else { return true };
    let kept = open_jobs(state).filter_map(|job| {
        let kept = job.kept.filter(|kept| kept.pool == pool)?;
        lineage(job.queue, policy, state).any(|at| at == quota).then_some(kept.share)
    });
    let used = kept.fold(state.quota().usage(quota, pool) + first, |sum, share| sum + share);
    used > own && policy.quotas.get(quota.index()).is_some_and(|node| node.parent.is_some())
}

/// A run is stopped for its own deadline where it can save and could be taken back.
fn hurried(job: &Job, spec: &JobSpec, state: &State) -> Option<String> {
    let spot = |node| state.node(node).is_some_and(|node| state.capacity_of(node) == CapacityType::Spot);
    let on_spot = job.places.iter().any(|place| spot(place.node));
    let right = on_spot && spec.checkpoint.is_some() && spec.deadline.is_some() && spec.expected.is_some();
    (!right).then(|| format!("deadline {:?}, saves {:?}, on spot: {on_spot}", spec.deadline, spec.checkpoint))
}

#[cfg(test)]
mod tests {
    use super::super::broken::{Life, job, policy};
    use super::*;
    use forebay_kernel::policy::{QuotaLimit, QuotaNode};
    use forebay_kernel::state::SharedSpec;

    const LOW: JobId = JobId(0);
    const HIGH: JobId = JobId(1);

    /// A run of the lower tier, which has lasted for an hour, and one of the higher.
    fn both() -> (Protection, State) {
        let high = JobSpec { tier: Some("high".to_owned()), ..job("b") };
        let mut policy = policy();
        if let forebay_kernel::policy::Undeclared::Under { rule, .. } = &mut policy.undeclared {
            rule.tiers = Some(vec![TierId(0), TierId(1)]);
        }
        let mut state = Life::running(policy, vec![job("a"), high]).state();
        let mut protection = Protection::default();
        for job in [LOW, HIGH] {
            protection.runs.insert(job, Run::of(job, false, &state).expect("it runs"));
        }
        state.now = state.now + Span::mins(60);
        (protection, state)
    }

    fn stop(job: JobId, cause: StopCause, protection: &mut Protection, state: &State) -> String {
        let decision = Decision::Stop { job, cause, checkpoint: true, deadline: Timestamp::NEVER };
        protection.decision(&decision, state);
        std::mem::take(&mut protection.found).join("; ")
    }

    #[test]
    fn a_named_tier_stops_a_run_and_nobody_else_does() {
        let (mut protection, mut state) = both();
        let (by, back) = (StopCause::Preempted { by: HIGH }, StopCause::Preempted { by: LOW });
        assert_eq!(stop(LOW, by, &mut protection, &state), "");
        assert!(stop(HIGH, back, &mut protection, &state).contains("`preemptWithin` is"));
        state.policy.as_mut().unwrap().tiers[0].stoppable_by.clear();
        assert!(stop(LOW, by, &mut protection, &state).contains("has lasted"));
        for (longest, found) in [(Span::mins(61), true), (Span::mins(60), false)] {
            protection.runs.get_mut(&LOW).unwrap().longest = Some(longest);
            assert_eq!(!stop(LOW, by, &mut protection, &state).is_empty(), found, "maxRunWhileOthersWait {longest}");
        }
    }

    #[test]
    fn a_run_that_is_left_alone_or_starts_is_not_stopped_for_others() {
        let (mut protection, state) = both();
        let by = HIGH;
        for cause in [StopCause::Preempted { by }, StopCause::Overran { by }, StopCause::Moved] {
            protection.backfill.insert(LOW, HIGH);
            assert_eq!(stop(LOW, cause, &mut protection, &state), "", "{cause:?}");
            protection.runs.get_mut(&LOW).unwrap().protect = Span::mins(61);
            assert!(stop(LOW, cause, &mut protection, &state).contains("is left alone for"), "{cause:?}");
            protection.runs.get_mut(&LOW).unwrap().protect = Span::ZERO;
        }
        protection.runs.remove(&LOW);
        assert!(stop(LOW, StopCause::Preempted { by }, &mut protection, &state).contains("has not started"));
    }

    #[test]
    fn a_restart_is_left_alone_until_it_has_caught_up() {
        let (_, mut state) = both();
        let first = Run::of(LOW, false, &state).unwrap();
        assert_eq!(first.protect, Span::mins(2), "minRun");
        state.jobs[LOW].attempt = Attempt(2);
        state.policy.as_mut().unwrap().lifecycle.protect = Span::mins(5);
        assert_eq!(Run::of(LOW, false, &state).unwrap().protect, Span::mins(10), "one checkpoint interval");
        state.policy.as_mut().unwrap().lifecycle.protect = Span::mins(15);
        assert_eq!(Run::of(LOW, false, &state).unwrap().protect, Span::mins(15), "lifecycle.protect");
        state.policy.as_mut().unwrap().tiers[0].max_run_while_others_wait = Some(Span::mins(3));
        assert_eq!(Run::of(LOW, false, &state).unwrap().protect, Span::mins(3), "maxRunWhileOthersWait");
    }

    #[test]
    fn a_turn_is_twice_as_long_each_time() {
        let (mut protection, mut state) = both();
        let rule = |state: &mut State| {
            let queue = state.jobs[LOW].queue;
            state.queues[queue].rule.as_mut().unwrap().preempt_within = PreemptWithin::LongerExpected;
        };
        rule(&mut state);
        state.jobs[HIGH].tier = state.jobs[LOW].tier;
        let by = StopCause::Preempted { by: HIGH };
        let over = state.now;
        protection.runs.get_mut(&LOW).unwrap().turn_over = over + Span(1);
        assert!(stop(LOW, by, &mut protection, &state).contains("it has its turn"));
        protection.runs.get_mut(&LOW).unwrap().turn_over = over;
        assert_eq!(stop(LOW, by, &mut protection, &state), "");
        assert_eq!(protection.turn(LOW), Span::mins(120), "it has made way twice");
        assert_eq!(protection.turn(HIGH), Span::mins(30));
    }

    #[test]
    fn quota_is_taken_back_from_another_queue_that_borrows_alone() {
        let (mut protection, state) = both();
        let cause = StopCause::QuotaReclaimed { by: HIGH };
        assert!(stop(LOW, cause, &mut protection, &state).contains("`reclaim` is"), "both are of one quota");
    }

    #[test]
    fn jobs_of_a_cohort_itself_borrow_what_it_does_not_name() {
        let (protection, state) = both();
        let mut policy = state.policy().unwrap().clone();
        let pool = state.jobs[LOW].pool.unwrap();
        let borrow = |policy: &Policy| {
            let pair = Pair::of(&state.jobs[LOW], HIGH, policy, &state).unwrap();
            protection.own_jobs_borrow(&pair, pool, MilliGpu(0), policy, &state)
        };
        assert!(!borrow(&policy), "nothing is below their queue");
        policy.quotas.push(QuotaNode { parent: Some(QuotaId(0)), ..QuotaNode::default() });
        assert!(borrow(&policy), "the cohort names nothing");
        let limit = QuotaLimit { nominal: MilliGpu::whole(2), borrow: None, lend: None };
        policy.quotas[0].limits.insert(pool, limit);
        assert!(!borrow(&policy), "they are two of one GPU");
    }

    #[test]
    fn backfill_moves_urgency_and_growth_have_their_conditions() {
        let (mut protection, mut state) = both();
        assert!(stop(LOW, StopCause::Overran { by: HIGH }, &mut protection, &state).contains("before the reservation"));
        assert!(stop(LOW, StopCause::Hurried, &mut protection, &state).contains("deadline None"));
        assert!(stop(LOW, StopCause::Grows, &mut protection, &state).contains("1 of 1 workers"));
        state.policy.as_mut().unwrap().consolidation.worth_it = 0;
        assert!(stop(LOW, StopCause::Moved, &mut protection, &state).contains("moves"));
        let (mut protection, mut state) = both();
        state.specs[LOW] = SharedSpec::new(JobSpec { checkpoint: None, ..job("a") });
        assert!(stop(LOW, StopCause::Moved, &mut protection, &state).contains("saves None"));
    }
}

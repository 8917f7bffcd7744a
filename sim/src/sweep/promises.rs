//! What policies and jobs are promised, checked from outside: from journaled batches, reports, effects and the rows after them.
//!
//! ```text
//! Reject StartTooLate    only by a queue that rejects, past its target, before the first start
//! Requeue not_before     no start before then
//! Reserve                kept for a job for hours on end without a start: starved; kept when the batch ends, unless it or one alike has it
//! waits until            lies ahead, and a wait by design ends by the target
//! Start                  not on spot where job or tier will not have it
//! Shrink                 leaves a gang that can do the work
//! ```
//!
//! Never: asks the engine why. A promise is what a batch, a report or a status states.

use std::collections::{BTreeMap, BTreeSet};

use forebay_driver::step::PlannedBatch;
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::decision::Decision;
use forebay_kernel::effect::{Action, Effect, WorkerPlace};
use forebay_kernel::ids::{JobId, NodeId};
use forebay_kernel::job::{Gang, JobSpec};
use forebay_kernel::policy::{Buys, QueueRule, WhenLate};
use forebay_kernel::reason::Reason;
use forebay_kernel::state::jobs::Job;
use forebay_kernel::state::{Shape, State};
use forebay_kernel::units::{Span, Timestamp};

/// The longest run of a workload takes 40 minutes and may be begun again a few times. Whatever a reservation waits for is over by then.
const LONGEST_RESERVED: Span = Span::mins(12 * 60);

/// What was promised.
#[derive(Debug, Default)]
pub(super) struct Promises {
    /// Not to be started before then.
    not_before: BTreeMap<JobId, Timestamp>,
    /// Places are kept for it from then, and at the longest until then.
    reserved: BTreeMap<JobId, (Timestamp, Timestamp)>,
    pub found: Vec<String>,
}

impl Promises {
    /// A batch is durable and applied.
    pub fn batch(&mut self, planned: &PlannedBatch, state: &State) {
        for decision in &planned.batch().decisions {
            let rejected = match decision {
                Decision::Reject { job, .. } => planned.job(state, *job),
                _ => None,
            };
            self.decision(decision, rejected, state);
        }
        self.kept(&planned.batch().decisions, state);
        for (_, reason) in &planned.report().waiting {
            self.waits(*reason, state);
        }
    }

    /// One decision, with the row of a job that it rejects.
    fn decision(&mut self, decision: &Decision, rejected: Option<(&Job, &JobSpec)>, state: &State) {
        let now = state.now();
        match decision {
            Decision::Reject { reason: Reason::StartTooLate { within }, .. } => self.too_late(rejected, *within, state),
            Decision::Requeue { job, not_before, .. } => _ = self.not_before.insert(*job, *not_before),
            Decision::Reserve { job, until, .. } => self.reserved(*job, now, *until),
            // What it waited for is over. Whether the nodes that it is booked on come is up to the cloud.
            Decision::Book { job, .. } => _ = self.reserved.remove(job),
            Decision::Start { job } => self.starts(*job, now),
            _ => {}
        }
    }

    /// An effect leaves for the first time.
    pub fn effect(&mut self, effect: &Effect, state: &State) {
        match &effect.action {
            Action::Start { job, workers, .. } => self.capacity(*job, workers, state),
            Action::Shrink { job, leave, .. } => self.shrinks(*job, leave.len(), state),
            _ => {}
        }
    }

    fn too_late(&mut self, row: Option<(&Job, &JobSpec)>, within: Span, state: &State) {
        let Some((job, _)) = row else { return };
        let target = rule(state, job).and_then(|rule| rule.start);
        let rejects = target.is_some_and(|t| t.when_late == WhenLate::Reject && t.within == within);
        let late = state.now() >= job.arrival + within;
        if !rejects || !late || job.first_start.is_some() {
            self.found.push(format!("{} is rejected as late at {}: {target:?}, {job:?}", job.id, state.now().0));
        }
    }

    fn reserved(&mut self, job: JobId, now: Timestamp, until: Timestamp) {
        let kept = self.reserved.entry(job).or_insert((now, until));
        // After a pause it is another reservation.
        *kept = if kept.1 < now { (now, until) } else { (kept.0, until.max(kept.1)) };
        if now.since(kept.0) > LONGEST_RESERVED {
            let from = kept.0.0;
            self.found.push(format!("{job} has had places kept for it since {from} and has not started"));
        }
    }

    /// What a batch keeps for a job is kept when it ends, unless it ends it itself: the job has places, or one that asks the same has these.
    fn kept(&mut self, decisions: &[Decision], state: &State) {
        let shape = |job: JobId| Some(&state.classes()[state.job(job)?.0.class].shape);
        // Who is late, or presses more or less, since, asks the same all the same.
        let changed = decisions.iter().filter_map(|decision| match decision {
            Decision::Late { job } | Decision::Reassess { job, .. } => Some(*job),
            _ => None,
        });
        let changed: BTreeSet<JobId> = changed.collect();
        let alike = |of: JobId, job: JobId| {
            let Some((one, other)) = shape(of).zip(shape(job)) else { return false };
            let by_time = || Shape { urgency: one.urgency, loses: one.loses, late: one.late, ..other.clone() };
            one == other || ((changed.contains(&of) || changed.contains(&job)) && *one == by_time())
        };
        let mut kept: BTreeMap<JobId, &[NodeId]> = BTreeMap::new();
        for decision in decisions {
            match decision {
                Decision::Reserve { job, nodes, .. } => _ = kept.insert(*job, nodes),
                Decision::Unreserve { job } | Decision::Finish { job, .. } | Decision::Reject { job, .. } => {
                    kept.remove(job);
                }
                Decision::Release { node } | Decision::Terminate { node, .. } => {
                    kept.retain(|_, nodes| !nodes.contains(node));
                }
                Decision::Book { job, places, .. } => {
                    let has = |nodes: &[NodeId]| places.iter().any(|place| nodes.contains(&place.node));
                    kept.retain(|of, nodes| of != job && !(alike(*of, *job) && has(nodes)));
                }
                _ => {}
            }
        }
        for (job, nodes) in kept {
            let lacks = |id: &&NodeId| state.node(**id).is_some_and(|n| n.reserved.iter().all(|kept| kept.0 != job));
            if let Some(node) = nodes.iter().find(lacks) {
                self.found
                    .push(format!("at {}: {node} is kept for {job} no more in the batch that kept it", state.now().0));
            }
        }
    }

    fn starts(&mut self, job: JobId, now: Timestamp) {
        self.reserved.remove(&job);
        if let Some(not_before) = self.not_before.remove(&job).filter(|at| *at > now) {
            self.found.push(format!("{job} starts at {}, not before {} was promised", now.0, not_before.0));
        }
    }

    fn waits(&mut self, reason: Reason, state: &State) {
        if reason.ask_again_at().is_some_and(|at| at <= state.now()) {
            self.found.push(format!("at {}: a class waits for what is past: {reason:?}", state.now().0));
        }
    }

    /// Spot takes the will of both.
    fn capacity(&mut self, id: JobId, workers: &[WorkerPlace], state: &State) {
        let (Some((job, spec)), Some(policy)) = (state.job(id), state.policy()) else { return };
        let never = !spec.spot || policy.tiers.get(job.tier.index()).is_some_and(|t| t.buys == Buys::OnDemand);
        let spot = |place: &&WorkerPlace| {
            state.node(place.node).is_some_and(|node| state.capacity_of(node) == CapacityType::Spot)
        };
        if let Some(place) = workers.iter().find(spot).filter(|_| never) {
            self.found.push(format!("{id} starts on spot, on {}", place.node));
        }
    }

    fn shrinks(&mut self, id: JobId, leave: usize, state: &State) {
        let Some((job, spec)) = state.job(id) else { return };
        let least = match &spec.gang {
            Gang::Workers { min, .. } => *min,
            Gang::Spanning { .. } => u32::MAX,
        };
        let leave = u32::try_from(leave).unwrap_or(u32::MAX);
        if leave == 0 || job.workers.saturating_sub(leave) < least {
            self.found.push(format!("{leave} of {} workers of {id} are to leave, {least} at least stay", job.workers));
        }
    }
}

/// The rule of a job's queue.
pub(super) fn rule<'a>(state: &'a State, job: &Job) -> Option<&'a QueueRule> {
    state.queues().get(job.queue)?.rule.as_ref()
}

#[cfg(test)]
mod tests {
    use super::super::broken::{Life, job, policy};
    use super::*;
    use forebay_kernel::ids::{Attempt, Seq};
    use forebay_kernel::state::SharedSpec;

    const JOB: JobId = JobId(0);

    fn start(state: &State) -> Effect {
        let workers = state.job(JOB).map(|(job, _)| job.places.clone()).unwrap_or_default();
        let action = Action::Start { job: JOB, attempt: Attempt(1), workers, resume_from: Span::ZERO };
        Effect { id: Seq(1), action }
    }

    #[test]
    fn a_rejection_as_late_without_a_target_is_found() {
        let state = Life::running(policy(), vec![job("a")]).state();
        let mut promises = Promises::default();
        let reject = Decision::Reject { job: JOB, reason: Reason::StartTooLate { within: Span::mins(1) } };
        promises.decision(&reject, state.job(JOB), &state);
        assert!(promises.found[0].contains("is rejected as late"), "{:?}", promises.found);
    }

    #[test]
    fn a_start_before_its_time_is_found() {
        let mut state = Life::running(policy(), vec![job("a")]).state();
        let not_before = state.now + Span::secs(10);
        for (later, count) in [(Span::secs(9), 1), (Span::secs(10), 0)] {
            let mut promises = Promises::default();
            promises.decision(&Decision::Requeue { job: JOB, reason: Reason::Reclaimed, not_before }, None, &state);
            let now = state.now;
            state.now = now + later;
            promises.decision(&Decision::Start { job: JOB }, None, &state);
            state.now = now;
            assert_eq!(promises.found.len(), count, "{:?}", promises.found);
        }
    }

    #[test]
    fn places_that_are_kept_on_and_on_are_found() {
        let mut state = Life::running(policy(), vec![job("a")]).state();
        let mut promises = Promises::default();
        for _ in 0..14 {
            let until = state.now + Span::mins(61);
            promises.decision(&Decision::Reserve { job: JOB, nodes: Vec::new(), until }, None, &state);
            state.now = state.now + Span::mins(60);
        }
        assert!(promises.found[0].contains("has had places kept"), "{:?}", promises.found);
    }

    #[test]
    fn a_wait_for_what_is_past_is_found() {
        let state = Life::running(policy(), vec![job("a")]).state();
        let mut promises = Promises::default();
        promises.waits(Reason::WaitingByDesign { until: state.now + Span(1) }, &state);
        assert_eq!(promises.found, [""; 0]);
        promises.waits(Reason::WaitingByDesign { until: state.now }, &state);
        assert!(promises.found[0].contains("waits for what is past"), "{:?}", promises.found);
    }

    #[test]
    fn a_start_on_spot_of_what_never_goes_there_is_found() {
        let mut state = Life::running(policy(), vec![job("a")]).state();
        let node = state.job(JOB).and_then(|(job, _)| state.node(job.places[0].node)).unwrap();
        assert_eq!(state.capacity_of(node), CapacityType::Spot, "spot comes first");
        let mut promises = Promises::default();
        promises.effect(&start(&state), &state);
        assert_eq!(promises.found, [""; 0]);
        state.specs[JOB] = SharedSpec::new(JobSpec { spot: false, ..job("a") });
        promises.effect(&start(&state), &state);
        assert!(promises.found[0].contains("starts on spot"), "{:?}", promises.found);
    }

    #[test]
    fn a_gang_that_is_shrunk_to_nothing_is_found() {
        let state = Life::running(policy(), vec![job("a")]).state();
        let mut promises = Promises::default();
        let action = Action::Shrink { job: JOB, attempt: Attempt(1), leave: vec![0], deadline: Timestamp::NEVER };
        promises.effect(&Effect { id: Seq(1), action }, &state);
        assert!(promises.found[0].contains("are to leave"), "{:?}", promises.found);
    }
}

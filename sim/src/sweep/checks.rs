//! What must always hold, checked from outside of the engine: the status stream, frozen effects, progress, and that nobody is forgotten. What
//! may be stopped and what a tier is left with, what is billed and what is lost, what budgets and quotas let start, what another policy leaves as it
//! is, and what becomes of cancels and of confirmed deaths have files of their own.
//!
//! ```text
//! events, before each is applied -> Notes
//! batch, notes, the state after  -> Observer, Promises, Protection, MinShares, Bill, LostWork, Budgets, Quotas, PolicyChanges, Cancels, Deaths
//!                                -> what does not hold
//! ```
//!
//! Never: trusts the engine's audit to find what it checks itself.

use std::collections::{BTreeMap, BTreeSet};

use forebay_driver::step::PlannedBatch;
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::decision::Decision;
use forebay_kernel::effect::{Action, Effect, Status, StatusKind, WorkerPlace};
use forebay_kernel::event::{Event, Tick};
use forebay_kernel::ids::{JobId, QueueId, Seq};
use forebay_kernel::job::Level;
use forebay_kernel::journal::Batch;
use forebay_kernel::policy::WhenSpent;
use forebay_kernel::reason::Reason;
use forebay_kernel::state::State;
use forebay_kernel::state::jobs::{Job, Phase};
use forebay_kernel::units::{Span, Timestamp};

use super::bill::Bill;
use super::budgets::{Budgets, booked};
use super::cancels::{CancelNote, Cancels};
use super::changes::PolicyChanges;
use super::deaths::{DeathNote, Deaths};
use super::lost::{LostWork, WorkNote};
use super::min_shares::MinShares;
use super::promises::Promises;
use super::protection::Protection;
use super::quotas::Quotas;
use super::reasons::may_wait_for_ever;
use crate::score::observer::Observer;

/// Of a batch that was never made.
const NO_TICK: Tick = Tick { now: Timestamp(0), resumed: false, delivered: 0 };

/// All checks and what they remember.
#[derive(Debug, Default)]
pub(super) struct Checks {
    pub observer: Observer,
    promises: Promises,
    protection: Protection,
    bill: Bill,
    budgets: Budgets,
    quotas: Quotas,
    cancels: Cancels,
    changes: PolicyChanges,
    deaths: Deaths,
    lost: LostWork,
    min_shares: MinShares,
    /// Another policy than the first was in force.
    reconfigured: bool,
    stream: Vec<Status>,
    seqs: BTreeMap<JobId, u32>,
    ends: BTreeMap<JobId, StatusKind>,
    /// The request of each effect that ever left.
    requests: BTreeMap<Seq, Action>,
    /// Progress that durable batches took in.
    progress: BTreeMap<JobId, Span>,
    /// Jobs that have a message and no last one.
    open: BTreeSet<JobId>,
    /// Identities whose submission was acknowledged, and of which no job has ended.
    acknowledged: BTreeSet<(String, String)>,
    /// Identities of which a job has ended.
    ended_subjects: BTreeSet<(String, String)>,
    now: Timestamp,
    found: Vec<String>,
}

/// What the events of a batch mean, each judged before it is applied.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// What becomes durable of a job's progress.
    saved: Vec<(JobId, Span)>,
    started: Vec<JobId>,
    cancels: Vec<CancelNote>,
    deaths: Vec<DeathNote>,
    work: Vec<WorkNote>,
}

impl Notes {
    /// An event is about to be applied.
    pub fn event(&mut self, event: &Event, state: &State) {
        self.saved.extend(Checks::promised(event, state));
        self.started.extend(Protection::starts(event, state));
        self.cancels.extend(CancelNote::of(event, state));
        self.deaths.extend(DeathNote::of(event, state));
        self.work.extend(WorkNote::of(event, state));
    }
}

impl Checks {
    /// Takes what was found.
    pub fn found(&mut self) -> Vec<String> {
        let parts = [
            &mut self.observer.messages,
            &mut self.promises.found,
            &mut self.protection.found,
            &mut self.bill.found,
            &mut self.budgets.found,
            &mut self.quotas.found,
            &mut self.cancels.found,
            &mut self.changes.found,
            &mut self.deaths.found,
            &mut self.lost.found,
            &mut self.min_shares.found,
        ];
        parts.into_iter().for_each(|found| self.found.append(found));
        std::mem::take(&mut self.found)
    }

    /// The run is over: what has to add up by then does.
    pub fn end(&mut self, state: &State) {
        self.bill.end(state);
        self.changes.end(state);
    }

    /// Status messages up to this number have arrived.
    pub fn delivered(&self) -> u64 {
        self.stream.len() as u64
    }

    /// How a job ended, by its last message.
    pub fn ended(&self, job: JobId) -> Option<StatusKind> {
        self.ends.get(&job).copied()
    }

    /// Every job that ever had a message, and how it ended by its last one.
    pub fn jobs(&self) -> impl Iterator<Item = (JobId, Option<StatusKind>)> + '_ {
        self.seqs.keys().map(|job| (*job, self.ended(*job)))
    }

    /// A submission was acknowledged to its source.
    pub fn acknowledged(&mut self, tenant: &str, subject: &str) {
        let identity = (tenant.to_owned(), subject.to_owned());
        if !self.ended_subjects.contains(&identity) {
            self.acknowledged.insert(identity);
        }
    }

    /// A message arrives at the sink.
    pub fn status(&mut self, status: &Status) {
        let at = usize::try_from(status.number).unwrap_or(usize::MAX);
        if let Some(before) = self.stream.get(at.wrapping_sub(1)) {
            if before != status {
                self.found.push(format!("status {at} came again as another: {before:?}, {status:?}"));
            }
            return;
        }
        if at != self.stream.len() + 1 {
            self.found.push(format!("status {at} follows {}", self.stream.len()));
            return;
        }
        self.stream.push(status.clone());
        let Some(job) = status.job else { return };
        let seq = self.seqs.entry(job).or_default();
        if status.seq != *seq + 1 {
            self.found.push(format!("{job}: message {} follows {seq}", status.seq));
        }
        *seq = status.seq;
        if let Some(end) = self.ends.get(&job) {
            self.found.push(format!("{job}: {:?} after {end:?}", status.kind));
        }
        if status.kind.terminal() {
            self.ends.insert(job, status.kind);
            self.open.remove(&job);
            self.cancels.over(job);
            let identity = (status.tenant.clone(), status.subject.clone());
            // What has ended was not lost, whether the engine still knows it or not.
            self.acknowledged.remove(&identity);
            self.ended_subjects.insert(identity);
        } else {
            self.open.insert(job);
        }
    }

    /// What an event would add to a job's durable progress, judged before it is applied.
    fn promised(event: &Event, state: &State) -> Option<(JobId, Span)> {
        let (job, attempt, progress) = match event {
            Event::RunCheckpointed { job, attempt, progress } => (*job, *attempt, *progress),
            Event::RunStopped { job, attempt, progress: Some(progress) } => (*job, *attempt, *progress),
            _ => return None,
        };
        let (row, _) = state.job(job)?;
        (row.attempt == attempt && row.alive()).then_some((job, progress))
    }

    /// A batch is durable and applied. Nothing goes wrong any more from `calm` on.
    pub fn batch(&mut self, planned: &PlannedBatch, state: &State, notes: Notes, calm: Timestamp) {
        let batch = planned.batch();
        if batch.events.iter().any(|event| matches!(event, Event::Configured(_))) {
            self.reconfigured = true;
            self.observe_anew(state);
        }
        self.observer.batch(batch, state);
        if self.reconfigured {
            // A smaller quota leaves what runs above it: then it counts whether a booking takes more.
            self.observer.messages.retain(|message| !message.contains(" uses "));
            self.quotas.batch(batch, state);
        }
        self.promises.batch(planned, state);
        self.protection.batch(batch, &notes.started, state);
        self.min_shares.batch(batch, state);
        self.bill.batch(&planned.charges().charges, state);
        self.lost.batch(&planned.charges().charges, &notes.work, state);
        self.changes.batch(batch, &planned.charges().charges, state);
        self.deaths.batch(batch, &notes.deaths, calm, state);
        self.budgets.batch(batch, &planned.report().waiting, state);
        self.cancels.batch(notes.cancels, calm, state);
        for (job, progress) in notes.saved {
            let known = self.progress.entry(job).or_default();
            *known = progress.max(*known);
        }
        if state.counters().next_seq != batch.next_seq().0 {
            let (next, ends) = (state.counters().next_seq, batch.next_seq());
            self.found.push(format!("the state is at #{next}, its batch ends at {ends}"));
        }
        if state.now() < self.now {
            self.found.push(format!("time went back from {} to {}", self.now.0, state.now().0));
        }
        self.now = state.now();
        for job in booked(batch) {
            self.money(job, state);
            if !self.reconfigured {
                // Under a policy before it may have had a start target, or another queue's rule.
                self.one_of_a_batch(job, state);
            }
        }
        for decision in &batch.decisions {
            if let Decision::Replicate { service } = decision {
                self.bounded(*service, state);
            }
        }
        self.ledger(state);
    }

    /// An effect leaves. Under one id it always asks the same.
    pub fn effect(&mut self, effect: &Effect, state: &State) {
        if effect.id.0 >= state.counters().next_seq {
            self.found.push(format!("effect {} has no record", effect.id));
        }
        if let Some(before) = self.requests.get(&effect.id) {
            if *before != effect.action {
                self.found.push(format!("effect {} asked {before:?}, now {:?}", effect.id, effect.action));
            }
            return;
        }
        self.requests.insert(effect.id, effect.action.clone());
        self.promises.effect(effect, state);
        // Asked for the first time: a repeated start keeps its frozen request whatever its run has reported since.
        if let Action::Start { job, resume_from, workers, .. } = &effect.action {
            if !close_enough(state, *job, workers) {
                self.found.push(format!("{job} is not as close together as it requires: {workers:?}"));
            }
            let known = self.progress.get(job).copied().unwrap_or_default();
            if *resume_from < known {
                self.found.push(format!("{job} resumes from {resume_from}, {known} was reported as saved"));
            }
        }
    }

    /// A job still waits long after the last submission, run and fault.
    pub fn starved(&mut self, job: JobId, reason: Option<Reason>, now: Timestamp) {
        if !reason.is_some_and(|reason| may_wait_for_ever(reason, now)) {
            self.found.push(format!("{job} still waits, with {reason:?}: nothing is left that it could wait for"));
        }
    }

    /// Nobody is forgotten.
    pub fn nobody_lost(&mut self, state: &State) {
        for (tenant, subject) in &self.acknowledged {
            if state.job_of(tenant, subject).is_none() {
                self.found.push(format!("{tenant}/{subject} was acknowledged and is not known"));
            }
        }
        // Replicas have no statuses: their service has.
        let is_job = |id: &JobId| state.job(*id).is_some_and(|(job, _)| job.service.is_none());
        let open: BTreeSet<JobId> = state.open_job_ids().filter(is_job).collect();
        for job in open.symmetric_difference(&self.open) {
            let phase = state.job(*job).map(|(job, _)| job.phase);
            self.found.push(format!("{job} is {phase:?}, its status stream disagrees"));
        }
    }

    /// Another policy may count what jobs hold elsewhere: an observer that takes all of them in anew.
    fn observe_anew(&mut self, state: &State) {
        self.found.append(&mut self.observer.messages);
        let holding = open_jobs(state).filter(|job| !job.places.is_empty());
        let decisions = holding.map(|job| Decision::Resume { job: job.id }).collect();
        self.observer = Observer::default();
        self.observer
            .batch(&Batch { version: 0, first_seq: Seq(0), tick: NO_TICK, events: Vec::new(), decisions }, state);
    }

    /// Nothing is booked that takes what runs and is booked above a budget that holds, were it to go on for an hour of its own, whenever the
    /// period ends: stages/settle.md, "what the budget pays for". What was spent before is in [`Budgets`].
    fn money(&mut self, id: JobId, state: &State) {
        let (Some(policy), Some((job, _))) = (state.policy(), state.job(id)) else { return };
        let lineage = |queue: QueueId| {
            let rule = state.queues()[queue].rule.as_ref();
            std::iter::successors(rule.map(|r| r.quota), |at| policy.quotas[at.index()].parent).collect::<Vec<_>>()
        };
        if gpu_cost(job, state) == 0 {
            return;
        }
        for quota in lineage(job.queue) {
            let Some(budget) = policy.quotas[quota.index()].budget.filter(|b| b.when_spent == WhenSpent::Hold) else {
                continue;
            };
            let own = open_jobs(state).filter(|j| !j.places.is_empty() && lineage(j.queue).contains(&quota));
            let rate: u128 = own.map(|j| gpu_cost(j, state)).sum();
            if rate > u128::from(budget.amount) {
                self.found.push(format!("{id} takes {} to {rate} an hour, its budget is {budget:?}", quota));
            }
        }
    }

    /// Without a start target, a batch has one job with places, or several on one GPU.
    fn one_of_a_batch(&mut self, id: JobId, state: &State) {
        let Some((job, spec)) = state.job(id) else { return };
        let rule = state.queues()[job.queue].rule.as_ref();
        if spec.batch.is_none() || rule.is_none_or(|r| r.start.is_some()) {
            return;
        }
        // Jobs of two classes may have become of one since they were booked, each where its own class was.
        let others = open_jobs(state).filter(|j| j.id != id && j.class == job.class && !j.places.is_empty());
        let on = |j: &Job| j.places.iter().map(|p| (p.node, p.gpus)).collect::<Vec<_>>();
        let (places, others): (Vec<_>, BTreeSet<Vec<_>>) = (on(job), others.map(on).collect());
        let beside = places.len() == 1 && spec.shares && others.contains(&places);
        if !others.is_empty() && !beside {
            self.found.push(format!("{id} is booked on {places:?} while others of its batch are on {others:?}"));
        }
    }

    /// A service has no more replicas that are to stay than it may.
    fn bounded(&mut self, id: JobId, state: &State) {
        let Some(rule) = state.job(id).and_then(|(_, spec)| spec.service) else { return };
        let stays = |job: &Job| !matches!(job.phase, Phase::Done { .. } | Phase::Stopping { .. } | Phase::Ended { .. });
        let count = open_jobs(state).filter(|job| job.service == Some(id) && stays(job)).count();
        if count > rule.max as usize {
            self.found.push(format!("{id} has {count} replicas, at most {} were asked for", rule.max));
        }
    }

    fn ledger(&mut self, state: &State) {
        let ledger = state.ledger_now();
        for capacity in [CapacityType::Reserved, CapacityType::Spot, CapacityType::OnDemand] {
            let account = ledger.account(capacity);
            if account.sum_of_kinds() != account.bought {
                let (sum, bought) = (account.sum_of_kinds().0, account.bought.0);
                self.found.push(format!("{capacity}: kinds add up to {sum}, bought {bought}"));
            }
        }
    }
}

/// The rows of everything that is not over: jobs, services and replicas.
pub(super) fn open_jobs(state: &State) -> impl Iterator<Item = &Job> + '_ {
    state.open_job_ids().filter_map(|id| state.job(id)).map(|(job, _)| job)
}

/// What the GPUs of a job cost in an hour, rounded down.
fn gpu_cost(job: &Job, state: &State) -> u128 {
    let of = |place: &WorkerPlace| {
        let node = state.node(place.node)?;
        let gpus = u128::from(state.offerings()[node.offering.index()].offer.gpus);
        (u128::from(node.price.0) * u128::from(place.gpu_share().0)).checked_div(1000 * gpus)
    };
    job.places.iter().filter_map(of).sum()
}

/// Whether the places of a gang are within one domain of the level that it requires.
fn close_enough(state: &State, job: JobId, places: &[WorkerPlace]) -> bool {
    let within = state.job(job).and_then(|(_, spec)| spec.within).filter(|w| w.required);
    let nodes: Vec<_> = places.iter().filter_map(|p| state.node(p.node)).collect();
    let (Some(within), Some(first)) = (within, nodes.first()) else { return true };
    let one_node = nodes.iter().all(|n| n.id == first.id);
    let offer = &state.offerings()[first.offering.index()].offer;
    let gpus = places.iter().fold(0, |all, p| all | p.gpus);
    let grouped = |size: u16| {
        let of = |gpu: u32| gpu.checked_div(u32::from(size));
        let own = gpus == 0 || of(gpus.trailing_zeros()) == of(63 - gpus.leading_zeros());
        one_node && (gpus.count_ones() <= 1 || (size > 0 && own))
    };
    match within.level {
        Level::Numa => grouped(offer.numa),
        Level::Nvlink => grouped(offer.nvlink),
        Level::Node => one_node,
        Level::Rack => {
            let named = first.rack.is_some() && nodes.iter().all(|n| n.rack == first.rack);
            one_node || named || (first.cluster && nodes.iter().all(|n| n.purchase == first.purchase))
        }
        Level::Zone => nodes.iter().all(|n| state.offerings()[n.offering.index()].offer.zone == offer.zone),
    }
}

#[cfg(test)]
mod tests {
    use super::super::broken::{Life, job, policy};
    use super::*;
    use forebay_kernel::ids::{Attempt, NodeId};
    use forebay_kernel::job::{JobSpec, Service, TopologyConstraint};
    use forebay_kernel::state::SharedSpec;

    const JOB: JobId = JobId(0);

    fn start(state: &State, workers: Vec<WorkerPlace>) -> Effect {
        let id = Seq(state.counters().next_seq - 1);
        Effect { id, action: Action::Start { job: JOB, attempt: Attempt(1), workers, resume_from: Span::ZERO } }
    }

    #[test]
    fn a_start_behind_what_was_saved_is_found() {
        let state = Life::running(policy(), vec![job("a")]).state();
        let mut checks = Checks::default();
        checks.progress.insert(JOB, Span(1));
        checks.effect(&start(&state, Vec::new()), &state);
        assert!(checks.found()[0].contains("was reported as saved"));
    }

    #[test]
    fn a_gang_apart_that_has_to_be_close_is_found() {
        let mut state = Life::running(policy(), vec![job("a")]).state();
        let place = state.job(JOB).map(|(job, _)| job.places[0].clone()).unwrap();
        let mut other = state.node(place.node).unwrap().clone();
        (other.id, other.purchase) = (NodeId(99), forebay_kernel::ids::PurchaseId(99));
        state.nodes.insert(other.id, other);
        let apart = vec![place.clone(), WorkerPlace { node: NodeId(99), ..place.clone() }];
        for level in [Level::Numa, Level::Nvlink, Level::Node, Level::Rack] {
            let within = Some(TopologyConstraint { level, required: true });
            state.specs[JOB] = SharedSpec::new(JobSpec { within, ..job("a") });
            let mut checks = Checks::default();
            checks.effect(&start(&state, vec![place.clone()]), &state);
            assert_eq!(checks.found(), [""; 0], "{level:?}");
            let mut checks = Checks::default();
            checks.effect(&start(&state, apart.clone()), &state);
            assert!(checks.found().iter().any(|found| found.contains("as close together")), "{level:?}");
        }
    }

    #[test]
    fn a_service_with_more_replicas_than_it_may_have_is_found() {
        let service = Service { min: 2, max: 2, target: 1, spread: None };
        let serves = JobSpec { service: Some(service), ..job("a") };
        let mut state = Life::running(policy(), vec![job("b")]).state();
        let mut replica = state.job(JOB).map(|(row, _)| row.clone()).unwrap();
        replica.service = Some(JOB);
        state.jobs[JOB] = replica;
        for (max, count) in [(1, 0), (0, 1)] {
            let mut checks = Checks::default();
            state.specs[JOB] = SharedSpec::new(JobSpec { service: Some(Service { max, ..service }), ..serves.clone() });
            checks.bounded(JOB, &state);
            assert_eq!(checks.found().len(), count, "at most {max}");
        }
    }

    #[test]
    fn a_ledger_whose_kinds_do_not_add_up_is_found() {
        let mut state = Life::running(policy(), vec![job("a")]).state();
        let mut checks = Checks::default();
        checks.ledger(&state);
        assert_eq!(checks.found(), [""; 0]);
        state.ledger.by_capacity[0].idle.0 += 1;
        checks.ledger(&state);
        assert!(checks.found()[0].contains("kinds add up to"));
    }

    #[test]
    fn a_job_that_waits_for_nothing_is_found() {
        let mut checks = Checks::default();
        let (now, kept) = (Timestamp(5), |from| Reason::KeptForAnother { job: JOB, from: Timestamp(from) });
        for reason in [Reason::NothingIdle, kept(3_600_006)] {
            checks.starved(JOB, Some(reason), now);
        }
        assert_eq!(checks.found(), [""; 0]);
        for reason in [Some(Reason::WaitingForPreemption { victims: 0 }), Some(kept(3_600_005)), None] {
            checks.starved(JOB, reason, now);
        }
        assert_eq!(checks.found().len(), 3);
    }
}

//! What must always hold, checked from outside of the engine: the status stream, frozen effects, progress, preemption, the ledger,
//! and that nobody is forgotten.
//!
//! Never: trusts the engine's audit to find what it checks itself.

use std::collections::{BTreeMap, BTreeSet};

use forebay_driver::step::PlannedBatch;
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::decision::{Decision, StopCause};
use forebay_kernel::effect::{Action, Effect, Status, StatusKind, WorkerPlace};
use forebay_kernel::event::Event;
use forebay_kernel::ids::{JobId, QueueId, Seq};
use forebay_kernel::job::Level;
use forebay_kernel::policy::{PreemptWithin, WhenSpent};
use forebay_kernel::state::State;
use forebay_kernel::state::jobs::{Job, Phase};
use forebay_kernel::units::{Span, Timestamp};

use super::promises::Promises;
use crate::score::observer::Observer;

/// All checks and what they remember.
#[derive(Debug, Default)]
pub(super) struct Checks {
    pub observer: Observer,
    promises: Promises,
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

impl Checks {
    /// Takes what was found.
    pub fn found(&mut self) -> Vec<String> {
        self.found.append(&mut self.observer.messages);
        self.found.append(&mut self.promises.found);
        std::mem::take(&mut self.found)
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
            let identity = (status.tenant.clone(), status.subject.clone());
            // What has ended was not lost, whether the engine still knows it or not.
            self.acknowledged.remove(&identity);
            self.ended_subjects.insert(identity);
        } else {
            self.open.insert(job);
        }
    }

    /// What an event would add to a job's durable progress, judged before it is applied.
    pub fn promised(event: &Event, state: &State) -> Option<(JobId, Span)> {
        let (job, attempt, progress) = match event {
            Event::RunCheckpointed { job, attempt, progress } => (*job, *attempt, *progress),
            Event::RunStopped { job, attempt, progress: Some(progress) } => (*job, *attempt, *progress),
            _ => return None,
        };
        let (row, _) = state.job(job)?;
        (row.attempt == attempt && row.alive()).then_some((job, progress))
    }

    /// A batch is durable and applied.
    pub fn batch(&mut self, planned: &PlannedBatch, state: &State, promised: Vec<(JobId, Span)>) {
        let batch = planned.batch();
        self.observer.batch(batch, state);
        self.promises.batch(planned, state);
        for (job, progress) in promised {
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
        for decision in &batch.decisions {
            self.preemption(decision, state);
            if let Decision::Book { job, .. } = decision {
                let again = batch.decisions.iter().any(|d| matches!(d, Decision::Unbook { job: id } if id == job));
                if !again {
                    self.money(*job, state);
                    self.one_of_a_batch(*job, state);
                }
            }
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

    /// A run is stopped only for a job that its tier lets stop it.
    fn preemption(&mut self, decision: &Decision, state: &State) {
        let Decision::Stop { job, cause: StopCause::Preempted { by }, .. } = decision else { return };
        let (Some((victim, _)), Some((winner, _)), Some(policy)) = (state.job(*job), state.job(*by), state.policy())
        else {
            return;
        };
        let tier = |id: forebay_kernel::ids::TierId| policy.tiers.get(id.index());
        let (Some(low), Some(high)) = (tier(victim.tier), tier(winner.tier)) else { return };
        let named = low.stoppable_by.contains(&winner.tier);
        let overdue = low.max_run_while_others_wait.is_some() && high.priority > low.priority;
        let rule = |queue: QueueId| state.queues().get(queue).and_then(|queue| queue.rule.as_ref());
        let (rule, theirs) = (rule(winner.queue), rule(victim.queue));
        // Queues that share one quota are one here.
        let in_one = rule.map(|rule| rule.quota) == theirs.map(|rule| rule.quota);
        let below = victim.tier == winner.tier && victim.priority < winner.priority;
        let within = rule.map(|rule| rule.preempt_within).unwrap_or_default();
        let by_priority = in_one && below && within == PreemptWithin::LowerPriority;
        let alike = victim.tier == winner.tier && victim.priority <= winner.priority;
        let by_length = in_one && alike && within == PreemptWithin::LongerExpected;
        if by_length && !named && !overdue && victim.turn_over_at > state.now() {
            self.found.push(format!("{job} is stopped for {by} before it has had its turn"));
        }
        if in_one && within == PreemptWithin::Never {
            self.found.push(format!("{job} is stopped for {by} of its own queue, which stops nothing"));
        }
        if !named && !overdue && !by_priority && !by_length {
            let of = |job: &Job, tier: &str| {
                let queue = state.queues().get(job.queue).map_or("none", |queue| queue.path.as_str());
                format!("`{tier}` in queue `{queue}` with priority {}", job.priority)
            };
            let (its, theirs) = (of(victim, &low.name), of(winner, &high.name));
            self.found
                .push(format!("{job} of {its} is stopped for {by} of {theirs}, where `preemptWithin` is {within:?}"));
        }
    }

    /// Nothing is booked that takes what runs and is booked above a budget that holds, were it to go on for an hour.
    fn money(&mut self, id: JobId, state: &State) {
        let (Some(policy), Some((job, _))) = (state.policy(), state.job(id)) else { return };
        let lineage = |queue: QueueId| {
            let rule = state.queues()[queue].rule.as_ref();
            std::iter::successors(rule.map(|r| r.quota), |at| policy.quotas[at.index()].parent).collect::<Vec<_>>()
        };
        if job.places.is_empty() {
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
fn open_jobs(state: &State) -> impl Iterator<Item = &Job> + '_ {
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

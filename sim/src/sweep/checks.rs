//! What must always hold, checked from outside of the engine: the status stream, frozen effects, progress, preemption, the ledger,
//! and that nobody is forgotten.
//!
//! Never: trusts the engine's audit to find what it checks itself.

use std::collections::{BTreeMap, BTreeSet};

use forebay_engine::catalog::CapacityType;
use forebay_engine::decision::{Decision, StopCause};
use forebay_engine::effect::{Action, Effect, Status, StatusKind};
use forebay_engine::event::Event;
use forebay_engine::ids::{JobId, Seq};
use forebay_engine::journal::Batch;
use forebay_engine::plan::PlanReport;
use forebay_engine::state::State;
use forebay_engine::units::{Millis, Span};

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
    /// Subjects whose submission was acknowledged.
    acknowledged: BTreeSet<(String, String)>,
    now: Millis,
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

    /// A submission was acknowledged to its source.
    pub fn acknowledged(&mut self, tenant: &str, subject: &str) {
        self.acknowledged.insert((tenant.to_owned(), subject.to_owned()));
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
    pub fn batch(&mut self, batch: &Batch, report: &PlanReport, state: &State, promised: Vec<(JobId, Span)>) {
        self.observer.batch(batch, state);
        self.promises.batch(batch, report, state);
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
        if let Action::Start { job, resume_from, .. } = &effect.action {
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
        for (job, _) in state.jobs() {
            if job.done() != self.ends.contains_key(&job.id) {
                self.found.push(format!("{} is {:?}, its stream says otherwise", job.id, job.phase));
            }
        }
    }

    /// A run is stopped only for a job that its tier lets stop it.
    fn preemption(&mut self, decision: &Decision, state: &State) {
        let Decision::Stop { job, cause: StopCause::Preempted { by }, .. } = decision else { return };
        let (Some((victim, _)), Some((winner, _)), Some(policy)) = (state.job(*job), state.job(*by), state.policy())
        else {
            return;
        };
        let tier = |id: forebay_engine::ids::TierId| policy.tiers.get(id.ix());
        let (Some(low), Some(high)) = (tier(victim.tier), tier(winner.tier)) else { return };
        let named = low.stoppable_by.contains(&winner.tier);
        let overdue = low.max_run_while_others_wait.is_some() && high.priority > low.priority;
        if !named && !overdue {
            self.found.push(format!("{job} of `{}` is stopped for {by} of `{}`", low.name, high.name));
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

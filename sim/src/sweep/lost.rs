//! Lost work by job, counted apart from the engine: what a run has done since its last checkpoint is lost when it ends before its job is done.
//!
//! ```text
//! rows after a batch     -> the share that each run holds, for the time until the next one
//! saved, reported idle   -> nothing of that can be lost any more
//! a run is over          -> the rest, or nothing of it where the job is done     == what the batch charges its job as `Lost`
//! ```
//!
//! billing.rs of the kernel: "a run ends -> its work since the last checkpoint moves from `Worked` to `Lost`". Replicas have no work to lose.
//!
//! Never: `BillingLedger::unsaved`. That is what is checked. Where more is held of a node than it has, the part of each run is the engine's to
//! say: such a run is not compared.

use std::collections::BTreeMap;

use forebay_kernel::decision::Outcome;
use forebay_kernel::effect::WorkerPlace;
use forebay_kernel::event::Event;
use forebay_kernel::ids::{Attempt, JobId, NodeId};
use forebay_kernel::job::WorkerAsk;
use forebay_kernel::state::State;
use forebay_kernel::state::billing::{CPU_NODE_SHARES, Charge, ChargeKind, all_shares};
use forebay_kernel::state::jobs::{Job, Phase};
use forebay_kernel::units::Timestamp;

use super::budgets::each;
use super::checks::open_jobs;
use super::deaths::alive;

/// What an event means for work that may be lost, judged before it is applied.
#[derive(Clone, Copy, Debug)]
pub(super) enum WorkNote {
    /// A run begins to work.
    Begins(JobId, Attempt),
    /// What it has done so far is durable.
    Saved(JobId),
    /// So much of what it has done last, in thousandths of a GPU x ms, was nothing.
    Idle(JobId, u128),
}

/// A run that works.
#[derive(Clone, Copy, Debug)]
struct Work {
    attempt: Attempt,
    /// Shares x ms since its last checkpoint.
    unsaved: u128,
    /// What it holds until the next batch.
    share: u64,
    /// It was on a node of which more was held than there is.
    unclear: bool,
}

/// Runs that work, and what each would lose.
#[derive(Debug, Default)]
pub(super) struct LostWork {
    runs: BTreeMap<JobId, Work>,
    since: Timestamp,
    pub found: Vec<String>,
}

impl WorkNote {
    /// What an event means, as the state is before it.
    pub fn of(event: &Event, state: &State) -> Option<WorkNote> {
        match event {
            Event::RunStarted { job, attempt } => {
                let row = alive(state, *job, *attempt)?;
                let begins = row.phase == Phase::Starting && row.service.is_none();
                begins.then_some(WorkNote::Begins(*job, *attempt))
            }
            Event::RunCheckpointed { job, attempt, progress }
            | Event::RunStopped { job, attempt, progress: Some(progress) } => {
                (*progress > alive(state, *job, *attempt)?.progress).then_some(WorkNote::Saved(*job))
            }
            Event::RunIdle { job, attempt, idle } => {
                let row = alive(state, *job, *attempt)?;
                let more = row.share.over(*idle - row.idle_seen).0;
                (row.phase == Phase::Running).then_some(WorkNote::Idle(*job, more))
            }
            _ => None,
        }
    }
}

impl LostWork {
    /// A batch is durable and applied, charges this, and these of its events were about work.
    pub fn batch(&mut self, charges: &[Charge], notes: &[WorkNote], state: &State) {
        let ms = u128::from(state.now().since(self.since).0);
        self.since = self.since.max(state.now());
        for work in self.runs.values_mut() {
            work.unsaved += u128::from(work.share) * ms;
        }
        for note in notes {
            self.note(*note);
        }
        // A ledger that began later does not know what was before.
        if state.billing().is_some_and(|billing| billing.began().at == Timestamp(0)) {
            self.compare(charges, state);
        }
        self.runs.retain(|id, work| alive(state, *id, work.attempt).is_some());
        self.shares(state);
    }

    fn note(&mut self, note: WorkNote) {
        match note {
            WorkNote::Begins(job, attempt) => {
                self.runs.insert(job, Work { attempt, unsaved: 0, share: 0, unclear: false });
            }
            WorkNote::Saved(job) => {
                self.runs.entry(job).and_modify(|work| (work.unsaved, work.unclear) = (0, false));
            }
            WorkNote::Idle(job, idle) => {
                self.runs.entry(job).and_modify(|work| work.unsaved = work.unsaved.saturating_sub(idle));
            }
        }
    }

    /// What each job is charged as lost is what its run, which is over, has not saved.
    fn compare(&mut self, charges: &[Charge], state: &State) {
        let mut charged: BTreeMap<JobId, i128> = BTreeMap::new();
        for charge in charges.iter().filter(|charge| charge.key.kind == ChargeKind::Lost) {
            if let Some(job) = charge.key.job {
                *charged.entry(job).or_default() += charge.amount;
            }
        }
        let at = state.now().0;
        for (job, work) in &self.runs {
            if alive(state, *job, work.attempt).is_some() {
                continue;
            }
            let lost = if is_done(state, *job) { 0 } else { work.unsaved };
            let says = charged.remove(job).unwrap_or(0);
            if !work.unclear && u128::try_from(says) != Ok(lost) {
                let attempt = work.attempt;
                self.found.push(format!("at {at}: {attempt} of {job} has lost {lost}, it is charged {says} as lost"));
            }
        }
        for (job, says) in charged {
            self.found.push(format!("at {at}: no run of {job} is over, and it is charged {says} as lost"));
        }
    }

    /// What each run holds until the next batch.
    fn shares(&mut self, state: &State) {
        let mut held: BTreeMap<NodeId, u64> = BTreeMap::new();
        let mut running: Vec<(JobId, NodeId, u64)> = Vec::new();
        for job in open_jobs(state) {
            for place in &job.places {
                let Some(share) = share_of(place, job, state) else { continue };
                *held.entry(place.node).or_default() += share;
                if job.phase != Phase::Booked {
                    running.push((job.id, place.node, share));
                }
            }
        }
        self.runs.values_mut().for_each(|work| work.share = 0);
        for (job, node, share) in running {
            let Some(work) = self.runs.get_mut(&job) else { continue };
            let all = state.node(node).map_or(0, |row| all_shares(&state.offerings()[row.offering.index()].offer));
            work.share += share;
            work.unclear |= held.get(&node).is_some_and(|held| *held > all);
        }
    }
}

/// Whether the job of a run that is over needs no other. One whose row is gone is over as well.
fn is_done(state: &State, job: JobId) -> bool {
    state.job(job).is_none_or(|(row, _)| match row.phase {
        Phase::Done { outcome } => outcome == Outcome::Completed,
        Phase::Ended { how } => how.is_done(),
        _ => false,
    })
}

/// The share of its node that a worker holds: thousandths of a GPU, or millionths of a node without any. `None`: the node is gone.
pub(super) fn share_of(place: &WorkerPlace, job: &Job, state: &State) -> Option<u64> {
    let offer = &state.offerings()[state.node(place.node)?.offering.index()].offer;
    if offer.gpus > 0 {
        return Some(place.gpu_share().0);
    }
    let (_, spec) = state.job(job.id)?;
    let WorkerAsk { cpu, mem, .. } = each(spec);
    let part = |of: u64, all: u64| u128::from(of) * u128::from(CPU_NODE_SHARES) / u128::from(all.max(1));
    let more = part(cpu.0, offer.cpu.0).max(part(mem.0, offer.mem.0));
    Some(u64::try_from(more).unwrap_or(CPU_NODE_SHARES).min(CPU_NODE_SHARES))
}

#[cfg(test)]
mod tests {
    use super::super::broken::{Life, job, policy};
    use super::*;
    use forebay_kernel::state::billing::ChargeKey;
    use forebay_kernel::units::Span;

    const JOB: JobId = JobId(0);

    /// The work of a life until all run, each event judged against the state after the batch before.
    fn followed(life: &Life) -> LostWork {
        let mut lost = LostWork::default();
        for (before, step) in life.steps.iter().zip(life.steps.iter().skip(1)) {
            let notes: Vec<WorkNote> =
                step.batch.events.iter().filter_map(|event| WorkNote::of(event, &before.state)).collect();
            lost.batch(&step.charges, &notes, &step.state);
        }
        assert_eq!(lost.found, [""; 0]);
        assert!(lost.runs.contains_key(&JOB), "it works");
        lost
    }

    /// A charge of lost work, like one that was made.
    fn charge(life: &Life, amount: i128) -> Charge {
        let made = life.steps.iter().flat_map(|step| &step.charges).next().expect("something is charged");
        Charge { key: ChargeKey { job: Some(JOB), kind: ChargeKind::Lost, ..made.key }, amount }
    }

    #[test]
    fn work_that_is_charged_as_lost_while_its_run_goes_on_is_found() {
        let life = Life::running(policy(), vec![job("a")]);
        let mut lost = followed(&life);
        lost.batch(&[], &[], &life.state());
        assert_eq!(lost.found, [""; 0]);
        lost.batch(&[charge(&life, 5)], &[], &life.state());
        assert!(lost.found[0].contains("is charged 5 as lost"), "{:?}", lost.found);
    }

    #[test]
    fn a_run_that_ends_loses_what_it_has_not_saved_and_nothing_else() {
        let life = Life::running(policy(), vec![job("a")]);
        // One GPU for a minute.
        let minute = 1000 * 60_000;
        let found = |note: Option<WorkNote>, phase: Phase, charged: i128| {
            let (mut lost, mut state) = (followed(&life), life.state());
            state.now = state.now + Span::mins(1);
            state.jobs[JOB].phase = phase;
            let notes: Vec<WorkNote> = note.into_iter().collect();
            lost.batch(&[charge(&life, charged)], &notes, &state);
            lost.found.len()
        };
        assert_eq!(found(None, Phase::Queued, minute), 0);
        assert_eq!(found(None, Phase::Queued, minute - 1), 1, "not all of it is charged");
        assert_eq!(found(Some(WorkNote::Saved(JOB)), Phase::Queued, 0), 0);
        assert_eq!(found(Some(WorkNote::Saved(JOB)), Phase::Queued, minute), 1, "it was saved");
        assert_eq!(found(Some(WorkNote::Idle(JOB, 1000)), Phase::Queued, minute - 1000), 0);
        let done = Phase::Done { outcome: Outcome::Completed };
        assert_eq!((found(None, done, 0), found(None, done, minute)), (0, 1), "its work is done");
    }
}

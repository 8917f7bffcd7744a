//! Deaths that an operator confirms, of workers on nodes that nobody bought and that do not answer any more. Nothing else proves them: the end of
//! such a node is not the end of what hung on it.
//!
//! ```text
//! DeathConfirmed of a run that is alive -> it is remembered, and the run holds what it held: what that means, its cluster says
//! all of its workers are confirmed      -> the cluster says that nobody is alive, and the run is over in time
//! ```
//!
//! KUBERNETES.md, "How a gang starts and ends": the operator's word counts "for nodes whose instance nobody can prove to be gone".
//!
//! Never: a run that is over because an operator said so. That is what is checked.

use std::collections::BTreeMap;

use forebay_kernel::event::Event;
use forebay_kernel::ids::{Attempt, JobId};
use forebay_kernel::journal::Batch;
use forebay_kernel::state::State;
use forebay_kernel::state::jobs::Job;
use forebay_kernel::units::Timestamp;

use super::cancels::OVER_WITHIN;

/// A confirmation about a run that is alive, judged before it is applied.
#[derive(Clone, Debug)]
pub(super) struct DeathNote {
    job: JobId,
    attempt: Attempt,
    /// Those of the named workers that hold a place.
    workers: Vec<u32>,
    /// Places that the run holds.
    places: usize,
}

/// Runs of which an operator has confirmed workers dead.
#[derive(Debug, Default)]
pub(super) struct Deaths {
    /// Runs all of whose workers are dead, and since when that is confirmed.
    dead: BTreeMap<(JobId, Attempt), Timestamp>,
    pub found: Vec<String>,
}

impl DeathNote {
    /// What an event confirms, as the state is before it.
    pub fn of(event: &Event, state: &State) -> Option<DeathNote> {
        let Event::DeathConfirmed { job, attempt, workers, .. } = event else { return None };
        let row = alive(state, *job, *attempt)?;
        let workers = workers.iter().copied().filter(|worker| row.numbers.contains(worker)).collect();
        Some(DeathNote { job: *job, attempt: *attempt, workers, places: row.places.len() })
    }
}

/// A run that is not over.
pub(super) fn alive(state: &State, job: JobId, attempt: Attempt) -> Option<&Job> {
    state.job(job).map(|(row, _)| row).filter(|row| row.attempt == attempt && row.alive())
}

impl Deaths {
    /// A batch is durable and applied, and these of its events confirmed deaths. Nothing goes wrong any more from `calm` on.
    pub fn batch(&mut self, batch: &Batch, notes: &[DeathNote], calm: Timestamp, state: &State) {
        let now = state.now();
        for note in notes {
            let DeathNote { job, attempt, workers, places } = note;
            if batch.events.iter().any(|event| may_end(event, *job)) {
                continue;
            }
            let Some(row) = alive(state, *job, *attempt).filter(|row| row.places.len() == *places) else {
                self.found.push(format!("at {}: an operator's word alone changed {attempt} of {job}: {note:?}", now.0));
                continue;
            };
            if let Some(worker) = workers.iter().find(|worker| !row.confirmed_dead.contains(worker)) {
                self.found.push(format!("at {}: worker {worker} of {job} was confirmed dead, it is forgotten", now.0));
            }
            if row.numbers.iter().all(|number| row.confirmed_dead.contains(number)) {
                self.dead.entry((*job, *attempt)).or_insert(now);
            }
        }
        self.dead.retain(|(job, attempt), _| alive(state, *job, *attempt).is_some());
        for ((job, attempt), since) in &self.dead {
            if now > calm.max(*since) + OVER_WITHIN {
                let (since, now) = (since.0, now.0);
                self.found.push(format!("{attempt} of {job} is confirmed dead since {since}, and alive at {now}"));
            }
        }
    }
}

/// Whether an event may end a run, or take workers from it.
pub(super) fn may_end(event: &Event, id: JobId) -> bool {
    match event {
        Event::RunStopped { job, .. }
        | Event::RunDenied { job, .. }
        | Event::RunCompleted { job, .. }
        | Event::RunFailed { job, .. }
        | Event::RunShrunk { job, .. } => *job == id,
        Event::NodeGone { .. } => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::broken::{Life, job, policy};
    use super::*;
    use forebay_kernel::state::jobs::Phase;
    use forebay_kernel::units::Span;

    const JOB: JobId = JobId(0);

    /// A run, and what is confirmed of it: its worker is dead.
    fn confirmed() -> (Batch, Vec<DeathNote>, State) {
        let life = Life::running(policy(), vec![job("a")]);
        let mut state = life.state();
        let attempt = state.job(JOB).unwrap().0.attempt;
        let event = Event::DeathConfirmed { job: JOB, attempt, workers: vec![0, 7], by: "operator".to_owned() };
        let notes: Vec<DeathNote> = DeathNote::of(&event, &state).into_iter().collect();
        assert_eq!(notes[0].workers, [0], "a worker that it does not have is none of it");
        state.jobs[JOB].confirmed_dead.insert(0);
        let batch = Batch { events: vec![event], decisions: Vec::new(), ..life.steps.last().unwrap().batch.clone() };
        (batch, notes, state)
    }

    #[test]
    fn a_run_that_ends_by_an_operators_word_alone_is_found() {
        let (mut batch, notes, mut state) = confirmed();
        let found = |batch: &Batch, state: &State| {
            let mut deaths = Deaths::default();
            deaths.batch(batch, &notes, Timestamp(0), state);
            deaths.found.join("; ")
        };
        assert_eq!(found(&batch, &state), "");
        state.jobs[JOB].phase = Phase::Queued;
        assert!(found(&batch, &state).contains("an operator's word alone"));
        let attempt = notes[0].attempt;
        batch.events.push(Event::RunStopped { job: JOB, attempt, progress: None });
        assert_eq!(found(&batch, &state), "", "its cluster says that nobody is alive");
    }

    #[test]
    fn a_confirmation_that_is_forgotten_or_without_effect_is_found() {
        let (batch, notes, mut state) = confirmed();
        let mut deaths = Deaths::default();
        deaths.batch(&batch, &notes, Timestamp(0), &state);
        state.now = state.now + OVER_WITHIN;
        deaths.batch(&batch, &[], Timestamp(0), &state);
        assert_eq!(deaths.found, [""; 0]);
        state.now = state.now + Span(1);
        deaths.batch(&batch, &[], Timestamp(0), &state);
        assert!(deaths.found[0].contains("is confirmed dead since"), "{:?}", deaths.found);
        state.jobs[JOB].confirmed_dead.clear();
        let mut deaths = Deaths::default();
        deaths.batch(&batch, &notes, Timestamp(0), &state);
        assert!(deaths.found[0].contains("it is forgotten"), "{:?}", deaths.found);
    }
}

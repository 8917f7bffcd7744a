//! How far the workers of a gang are, in counts, so that what happens to one worker is answered without a look at all others.
//!
//! ```text
//! a worker has changed -> its life anew -> counts --nothing turns--> what that worker needs
//!                                            '--a count has come to zero, or a worker broke--.
//! the gang has changed -----------------------------------------------------------------------+-> every life anew -> what each worker needs
//! ```
//!
//! So the start of n workers looks at all of them a few times, and for each event at the worker that it is about.
//!
//! Never: a decision. The stages decide, by these counts.

use super::KubeMachine;
use super::agenda::Task;
use super::gang::{Gang, Worker};
use super::life::{Death, Life, is_preparing};
use crate::names::{RunId, WorkerId};
use crate::view::RunStage;
use std::collections::{BTreeMap, BTreeSet};

/// What of a gang is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum GangScope {
    /// All workers: what has changed may concern each of them.
    Whole,
    /// These workers: nothing else has changed.
    Workers(BTreeSet<u32>),
}

impl GangScope {
    /// Those of these workers that are in it.
    pub fn of<T>(&self, workers: &BTreeMap<u32, T>) -> Vec<u32> {
        match self {
            GangScope::Whole => workers.keys().copied().collect(),
            GangScope::Workers(some) => some.iter().copied().filter(|number| workers.contains_key(number)).collect(),
        }
    }
}

/// Gangs about which something has changed, and what of each.
#[derive(Debug, Default)]
pub(super) struct GangChanges(BTreeMap<RunId, GangScope>);

impl GangChanges {
    /// Something has changed that may concern each worker of a gang.
    pub fn insert(&mut self, run: RunId) {
        self.0.insert(run, GangScope::Whole);
    }

    /// The same of several gangs.
    pub fn extend(&mut self, runs: impl IntoIterator<Item = RunId>) {
        runs.into_iter().for_each(|run| self.insert(run));
    }

    /// Something has changed that concerns one worker.
    pub fn insert_worker(&mut self, id: WorkerId) {
        let scope = self.0.entry(id.run).or_insert_with(|| GangScope::Workers(BTreeSet::new()));
        if let GangScope::Workers(workers) = scope {
            workers.insert(id.worker);
        }
    }

    /// Whether nothing has changed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All changes, which are none then.
    pub fn take(&mut self) -> BTreeMap<RunId, GangScope> {
        std::mem::take(&mut self.0)
    }
}

/// Where in its life a gang is. A change of one worker means something else in each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum GangPhase {
    /// It was not counted yet.
    #[default]
    Uncounted,
    /// Its barrier is closed.
    Starts,
    /// Its barrier is open.
    Runs,
    /// It is to end.
    Ends,
    /// It is over, by the engine's word.
    Over,
}

/// How far a worker is, as far as it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WorkerStage {
    /// It has left, and holds no place.
    Left,
    /// There is no pod of it.
    Absent,
    /// Its pod is not bound.
    Unbound,
    /// Its pod is bound, and its work has not started.
    Bound,
    /// Its work has started, or is completed.
    Started,
    /// Something else became of it.
    Ended,
}

/// What is counted of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WorkerTally {
    stage: WorkerStage,
    /// Its node cannot take its pod now.
    blocked: bool,
    /// Its images are pulled, or its node prepares its pod.
    preparing: bool,
    /// Something of it may run, or may come to be.
    open: bool,
}

/// The counts of a gang's workers. They hold as long as its phase does.
#[derive(Debug, Default)]
pub(super) struct Census {
    phase: GangPhase,
    tallies: BTreeMap<u32, WorkerTally>,
    places: usize,
    absent: usize,
    unbound: usize,
    blocked: usize,
    started: usize,
    preparing: usize,
    open: usize,
    bound: BTreeSet<u32>,
}

impl Census {
    /// Nothing is counted yet in this phase.
    pub fn new(phase: GangPhase) -> Census {
        Census { phase, ..Census::default() }
    }

    /// In which phase it was counted.
    pub fn phase(&self) -> GangPhase {
        self.phase
    }

    /// Whether a worker has no pod yet.
    pub fn any_absent(&self) -> bool {
        self.absent > 0
    }

    /// Whether a pod is not bound yet.
    pub fn any_unbound(&self) -> bool {
        self.unbound > 0
    }

    /// Whether the node of an unbound pod cannot take it now.
    pub fn any_blocked(&self) -> bool {
        self.blocked > 0
    }

    /// Whether images are pulled, or a node prepares a pod.
    pub fn any_preparing(&self) -> bool {
        self.preparing > 0
    }

    /// Whether something of a worker may run, or may come to be.
    pub fn any_open(&self) -> bool {
        self.open > 0
    }

    /// Whether the work of all that hold places has started or is completed.
    pub fn all_started(&self) -> bool {
        self.started == self.places
    }

    /// The first workers that are bound and whose work has not started.
    pub fn first_bound(&self, most: usize) -> Vec<u32> {
        self.bound.iter().take(most).copied().collect()
    }

    /// What a gang that starts waits for: where one of these turns, all its workers go on, or stop.
    fn waits(&self) -> [bool; 3] {
        [self.any_absent(), self.any_unbound(), self.any_blocked()]
    }

    /// Counts a worker anew. `None`: there is none of that number any more.
    fn set(&mut self, number: u32, tally: Option<WorkerTally>) {
        let before = match tally {
            Some(tally) => self.tallies.insert(number, tally),
            None => self.tallies.remove(&number),
        };
        if let Some(before) = before {
            for (count, counts) in self.counts(before) {
                *count -= usize::from(counts);
            }
        }
        if let Some(tally) = tally {
            for (count, counts) in self.counts(tally) {
                *count += usize::from(counts);
            }
        }
        if tally.is_some_and(|tally| tally.stage == WorkerStage::Bound) {
            self.bound.insert(number);
        } else {
            self.bound.remove(&number);
        }
    }

    /// All counts, and whether a worker is in each.
    fn counts(&mut self, tally: WorkerTally) -> [(&mut usize, bool); 7] {
        let WorkerTally { stage, blocked, preparing, open } = tally;
        [
            (&mut self.places, stage != WorkerStage::Left),
            (&mut self.absent, stage == WorkerStage::Absent),
            (&mut self.unbound, stage == WorkerStage::Unbound),
            (&mut self.started, stage == WorkerStage::Started),
            (&mut self.blocked, blocked),
            (&mut self.preparing, preparing),
            (&mut self.open, open),
        ]
    }
}

/// The workers that are looked at, and how far each of them is that holds a place.
pub(super) struct Examined {
    pub scope: GangScope,
    pub lives: BTreeMap<u32, Life>,
}

impl KubeMachine {
    /// Counts anew what has changed of a gang. Its scope is the whole gang where the change of a worker concerns the others too.
    pub(super) fn examine(&mut self, run: RunId, gang: &mut Gang, scope: GangScope) -> Examined {
        let phase = self.phase_of(run, gang);
        // A lost pod may be in the way of all, and is rare.
        if let GangScope::Workers(numbers) = &scope
            && gang.census.phase() == phase
            && self.lost.is_empty()
        {
            let before = gang.census.waits();
            let lives = self.count(run, gang, numbers.iter().copied());
            if !self.concerns_all(run, gang, before, &lives) {
                return Examined { scope, lives };
            }
        }
        gang.census = Census::new(phase);
        let numbers: Vec<u32> = gang.workers.keys().copied().collect();
        let lives = self.count(run, gang, numbers);
        Examined { scope: GangScope::Whole, lives }
    }

    fn phase_of(&self, run: RunId, gang: &Gang) -> GangPhase {
        match self.run_view(run) {
            None => GangPhase::Over,
            Some(_) if gang.verdict.is_some() => GangPhase::Ends,
            Some(view) if gang.released || view.stage.has_started() => GangPhase::Runs,
            Some(_) => GangPhase::Starts,
        }
    }

    fn count(&mut self, run: RunId, gang: &mut Gang, numbers: impl IntoIterator<Item = u32>) -> BTreeMap<u32, Life> {
        let mut lives = BTreeMap::new();
        for number in numbers {
            #[cfg(test)]
            {
                self.examined += 1;
            }
            let Some(worker) = gang.workers.get(&number) else {
                gang.census.set(number, None);
                continue;
            };
            let id = WorkerId { run, worker: number };
            let life = self.life_of_place(id, gang, worker);
            let tally = self.tally(id, worker, life.as_ref());
            gang.census.set(number, Some(tally));
            lives.extend(life.map(|life| (number, life)));
        }
        lives
    }

    /// How far a worker is. `None`: it has left, and holds no place.
    fn life_of_place(&self, id: WorkerId, gang: &Gang, worker: &Worker) -> Option<Life> {
        let view = self.run_view(id.run);
        if view.is_some_and(|view| view.left.contains(&id.worker)) {
            return None;
        }
        // Its completion is journaled: whatever became of its pod since, it has ended.
        if view.is_some_and(|view| view.done.contains(&id.worker)) {
            return Some(Life::Dead(Death::Completed));
        }
        Some(self.life(id.run, gang, worker))
    }

    fn tally(&self, id: WorkerId, worker: &Worker, life: Option<&Life>) -> WorkerTally {
        let stage = match life {
            None => WorkerStage::Left,
            Some(Life::Absent) => WorkerStage::Absent,
            Some(Life::Unbound) => WorkerStage::Unbound,
            Some(Life::Bound) => WorkerStage::Bound,
            Some(Life::Working | Life::Dead(Death::Completed)) => WorkerStage::Started,
            Some(Life::Dead(_) | Life::Unproven) => WorkerStage::Ended,
        };
        let open = match life {
            None | Some(Life::Dead(_)) => false,
            Some(Life::Absent) => worker.create_unknown || self.agenda.is_running(&Task::Create(id)),
            Some(Life::Unbound | Life::Bound | Life::Working | Life::Unproven) => true,
        };
        WorkerTally {
            stage,
            blocked: stage == WorkerStage::Unbound && self.node_to_bind(worker.instance.as_deref()).is_none(),
            preparing: worker.pod.as_ref().and_then(|key| self.pods.get(key)).is_some_and(is_preparing),
            open,
        }
    }

    /// Whether what has become of some workers concerns the others. `before`: what the gang waited for before it.
    fn concerns_all(&self, run: RunId, gang: &Gang, before: [bool; 3], lives: &BTreeMap<u32, Life>) -> bool {
        let census = &gang.census;
        let mut workers = lives.iter().filter_map(|(number, life)| Some((number, gang.workers.get(number)?, life)));
        match census.phase() {
            GangPhase::Uncounted | GangPhase::Over => true,
            GangPhase::Starts => {
                before != census.waits() || workers.any(|(_, worker, life)| self.why_broken(worker, life).is_some())
            }
            GangPhase::Runs => {
                let starting = self.run_view(run).is_some_and(|view| view.stage == RunStage::Starting);
                let starts = !gang.reported.started && (!starting || census.all_started());
                let goes_on = |life: &Life| {
                    let by_itself = matches!(life, Life::Dead(Death::Completed | Death::InstanceGone));
                    by_itself || matches!(life, Life::Bound | Life::Working)
                };
                starts
                    || workers.any(|(number, worker, life)| {
                        gang.leaving.contains_key(number) || !goes_on(life) || self.is_cut_short(worker)
                    })
            }
            GangPhase::Ends => gang.reported.outcome.is_none() && !census.any_open(),
        }
    }
}

#[cfg(test)]
mod tests;

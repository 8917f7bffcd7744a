//! Victims: what may be taken from runs, tried out on the undo log until it is enough and nothing is taken in vain.
//!
//! ```text
//! losses      workers that elastic gangs can do without, then whole runs; the cheapest first
//! take        one after the other, as far as the rule of the case allows, until the gang has what it lacks
//! try back    runs, the dearest first; a run whose spare workers are enough keeps the rest; then single workers
//! ```
//!
//! No part of what is taken could be left out. Whether enough can be taken does not depend on the time: where a rule bounds what may
//! be taken, the orders that decide it come from rows that only change with what is held.
//!
//! Never: a loss that the rule of its case does not allow.

use crate::decision::StopCause;
use crate::effect::WorkerPlace;
use crate::engine::Engine;
use crate::ids::{JobId, NodeId, PoolId};
use crate::job::Gang;
use crate::machine::StateMachine;
use crate::moves;
use crate::plan::PlanReport;
use crate::state::State;
use crate::state::jobs::{Job, Phase};
use crate::state::places::{Hold, share_of};
use crate::units::{MilliGpu, Timestamp};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// What can be taken from a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Loss {
    pub job: JobId,
    /// One of its workers. `None`: all of it.
    pub worker: Option<u32>,
}

/// What was found: what is taken, and where the gang would go if that is known.
pub(super) struct Found {
    pub losses: Vec<Loss>,
    pub nodes: Vec<NodeId>,
}

/// One case of taking something for a job.
pub(super) trait Case {
    /// What is counted as given before anything is taken.
    fn prepare(&self, state: &mut StateMachine);
    /// Whether a loss that was just tried may stand beside those before it.
    fn allows(&self, state: &State, taken: &Taken, job: JobId) -> bool;
    /// Whether the gang has what it lacks now, and the nodes where it would go.
    fn enough(&self, engine: &mut Engine, taken: &Taken) -> Option<Vec<NodeId>>;
    /// Whether `allows` may forbid anything at all.
    fn bounded(&self) -> bool;
    /// Whether the quota of what is taken counts too.
    fn quota(&self) -> bool;
}

/// What has been taken in a try.
#[derive(Default)]
pub(super) struct Taken {
    from: BTreeMap<JobId, Vec<u32>>,
    /// All of it together.
    pub share: MilliGpu,
}

impl Taken {
    /// What has been taken of the runs that a condition holds for.
    pub(super) fn of(&self, state: &State, meant: impl Fn(&Job) -> bool) -> MilliGpu {
        let rows = self.from.iter().map(|(id, gone)| (&state.jobs[*id], gone)).filter(|(job, _)| meant(job));
        rows.fold(MilliGpu(0), |sum, (job, gone)| sum + share_of(&places(job, gone)))
    }
}

/// Takes the cheapest that is enough, if anything is. `runs`: in the order of their cost.
pub(super) fn find(engine: &mut Engine, runs: &[JobId], case: &dyn Case) -> Option<Found> {
    let losses = losses(&engine.state, runs);
    if !case.bounded() {
        return attempt(engine, &losses, &losses, case);
    }
    let steady = orders(&engine.state, &losses);
    let sure = steady.iter().find_map(|order| attempt(engine, order, &losses, case))?;
    attempt(engine, &losses, &losses, case).or(Some(sure))
}

/// Takes it for good. Returns when all of it is gone at the latest.
pub(super) fn take(engine: &mut Engine, losses: &[Loss], cause: StopCause, report: &mut PlanReport) -> Timestamp {
    let mut until = engine.state.now;
    let mut leave: BTreeMap<JobId, Vec<u32>> = BTreeMap::new();
    for loss in losses {
        match loss.worker {
            Some(number) => leave.entry(loss.job).or_default().push(number),
            None => {
                report.stopped += 1;
                moves::stop(engine, loss.job, cause);
                if let Phase::Stopping { deadline, .. } = engine.state.jobs[loss.job].phase {
                    until = until.max(deadline);
                }
            }
        }
    }
    for (job, mut workers) in leave {
        workers.sort_unstable();
        until = until.max(moves::shrink(engine, job, cause, workers));
    }
    until
}

/// Spare workers, then whole runs.
fn losses(state: &State, runs: &[JobId]) -> Vec<Loss> {
    let spare = |id: &JobId| {
        let numbers = if spare(state, *id) > 0 { state.jobs[*id].numbers.clone() } else { Vec::new() };
        let job = *id;
        numbers.into_iter().rev().map(move |number| Loss { job, worker: Some(number) })
    };
    let whole = |id: &JobId| Loss { job: *id, worker: None };
    runs.iter().flat_map(spare).chain(runs.iter().map(whole)).collect()
}

/// How many workers a run can do without.
fn spare(state: &State, id: JobId) -> usize {
    match state.specs[id].gang {
        Gang::Workers { min, .. } => state.jobs[id].numbers.len().saturating_sub(min as usize),
        Gang::Spanning { .. } => 0,
    }
}

/// Orders that time does not change: node by node, and by size up and down.
fn orders(state: &State, losses: &[Loss]) -> [Vec<Loss>; 3] {
    let key = |loss: &Loss| {
        let job = &state.jobs[loss.job];
        let all = places(job, &loss.worker.map_or_else(|| job.numbers.clone(), |n| alloc::vec![n]));
        (all.first().map(|p| p.node), share_of(&all), loss.worker.is_none(), loss.job, loss.worker)
    };
    let mut keyed: Vec<_> = losses.iter().map(|loss| (key(loss), *loss)).collect();
    let plain = |keyed: &[(_, Loss)]| keyed.iter().map(|(_, loss)| *loss).collect();
    keyed.sort_unstable_by_key(|(k, _)| (k.0, k.2, k.3, k.4));
    let by_node = plain(&keyed);
    keyed.sort_unstable_by_key(|(k, _)| (k.1, k.3, k.4));
    let small_first: Vec<Loss> = plain(&keyed);
    let large_first = small_first.iter().rev().copied().collect();
    [by_node, small_first, large_first]
}

/// Takes in one order until it is enough, and tries back in the order of cost.
fn attempt(engine: &mut Engine, order: &[Loss], by_cost: &[Loss], case: &dyn Case) -> Option<Found> {
    let mark = engine.state.checkpoint();
    case.prepare(&mut engine.state);
    let mut taken = Taken::default();
    let mut nodes = None;
    for loss in order {
        let numbers = lift(&mut engine.state, *loss, &mut taken, case.quota());
        if numbers.is_empty() {
            continue;
        }
        if !case.allows(&engine.state, &taken, loss.job) {
            put_down(&mut engine.state, loss.job, &numbers, &mut taken, case.quota());
            continue;
        }
        nodes = case.enough(engine, &taken);
        if nodes.is_some() {
            break;
        }
    }
    if nodes.is_some() {
        try_back(engine, by_cost, &mut taken, &mut nodes, case);
    }
    let losses = left_over(&engine.state, by_cost, &taken);
    engine.state.rollback(mark);
    Some(Found { losses, nodes: nodes? })
}

/// Gives back what is not needed: whole runs first, the dearest first, then single workers.
fn try_back(
    engine: &mut Engine,
    by_cost: &[Loss],
    taken: &mut Taken,
    nodes: &mut Option<Vec<NodeId>>,
    case: &dyn Case,
) {
    for loss in by_cost.iter().rev() {
        let job = loss.job;
        let gone = taken.from.get(&job).cloned().unwrap_or_default();
        let whole = gone.len() == engine.state.jobs[job].numbers.len();
        match loss.worker {
            None if whole && !back(engine, job, &gone, taken, nodes, case) => {
                // All of it is too much to give back; the workers that it cannot do without may be enough.
                let keep = gone.len() - spare(&engine.state, job).min(gone.len());
                let needed = if keep < gone.len() { gone[..keep].to_vec() } else { Vec::new() };
                let _ = needed.is_empty() || back(engine, job, &needed, taken, nodes, case);
            }
            Some(number) if !whole && gone.contains(&number) => {
                let _ = back(engine, job, &[number], taken, nodes, case);
            }
            _ => {}
        }
    }
}

/// Gives workers back if it is enough without them.
fn back(
    engine: &mut Engine,
    job: JobId,
    numbers: &[u32],
    taken: &mut Taken,
    nodes: &mut Option<Vec<NodeId>>,
    case: &dyn Case,
) -> bool {
    put_down(&mut engine.state, job, numbers, taken, case.quota());
    let found = case.enough(engine, taken);
    if found.is_some() {
        *nodes = found;
        return true;
    }
    raise(&mut engine.state, job, numbers, taken, case.quota());
    false
}

/// What is still taken, in the order of cost.
fn left_over(state: &State, by_cost: &[Loss], taken: &Taken) -> Vec<Loss> {
    let is_taken = |loss: &&Loss| {
        let Some(gone) = taken.from.get(&loss.job) else { return false };
        let whole = gone.len() == state.jobs[loss.job].numbers.len();
        loss.worker.map_or(whole, |number| !whole && gone.contains(&number))
    };
    by_cost.iter().filter(is_taken).copied().collect()
}

/// Takes a loss in a try: the workers that it adds to those taken before. None if the run has no worker to spare for it.
fn lift(state: &mut StateMachine, loss: Loss, taken: &mut Taken, quota: bool) -> Vec<u32> {
    let gone = taken.from.get(&loss.job).map_or(&[][..], |gone| gone);
    let job = &state.jobs[loss.job];
    let more: Vec<u32> = match loss.worker {
        Some(number) => {
            let free = job.goes_on_without(&state.specs[loss.job], &[gone, &[number]].concat());
            if free && !gone.contains(&number) { alloc::vec![number] } else { Vec::new() }
        }
        None => job.numbers.iter().copied().filter(|n| !gone.contains(n)).collect(),
    };
    raise(state, loss.job, &more, taken, quota);
    more
}

fn raise(state: &mut StateMachine, id: JobId, numbers: &[u32], taken: &mut Taken, quota: bool) {
    let job = &state.jobs[id];
    let (class, queue, pool) = (job.class, job.queue, job.pool);
    let places = places(job, numbers);
    let share = share_of(&places);
    state.release_places(id, class, &places, Hold::Running);
    if let Some(pool) = pool.filter(|_| quota) {
        state.give_quota_back(queue, pool, share);
    }
    taken.share = taken.share + share;
    let gone = taken.from.entry(id).or_default();
    gone.extend(numbers);
    gone.sort_unstable();
}

/// Puts workers back where they were, in a try. They always fit: nothing else took their places.
fn put_down(state: &mut StateMachine, id: JobId, numbers: &[u32], taken: &mut Taken, quota: bool) {
    let job = &state.jobs[id];
    let (class, queue, pool) = (job.class, job.queue, job.pool);
    let places = places(job, numbers);
    let share = share_of(&places);
    state.hold_places(id, class, &places, Hold::Running);
    if let Some(pool) = pool.filter(|_| quota) {
        state.take_quota(queue, pool, share);
    }
    taken.share = taken.share - share;
    if let Some(gone) = taken.from.get_mut(&id) {
        gone.retain(|n| !numbers.contains(n));
    }
}

/// Counts as given what is being stopped or is leaving in a pool already, with its quota.
pub(super) fn lift_ending(state: &mut StateMachine, pool: PoolId) {
    let ending: Vec<JobId> = state.ending_jobs();
    for id in ending {
        let job = &state.jobs[id];
        if job.pool == Some(pool) {
            // A run that has lost workers gives the whole of its quota back when it has stopped.
            let whole = job.leaving.is_none();
            let (class, queue, all) = (job.class, job.queue, job.share);
            let numbers = if whole { job.numbers.clone() } else { job.leaving().to_vec() };
            let places = places(job, &numbers);
            let share = if whole { all } else { share_of(&places) };
            state.release_places(id, class, &places, Hold::Running);
            state.give_quota_back(queue, pool, share);
        }
    }
}

fn places(job: &Job, numbers: &[u32]) -> Vec<WorkerPlace> {
    let workers = job.places.iter().zip(&job.numbers).filter(|(_, n)| numbers.contains(n));
    workers.map(|(place, _)| place.clone()).collect()
}

//! Batches: how many jobs with one batch key may hold places at once.
//!
//! Never: counts what waits. Width comes from time alone.

use crate::ids::{ClassId, JobId};
use crate::policy::WhenLate;
use crate::reason::Reason;
use crate::state::{Shape, State};
use crate::units::{Span, Timestamp};

/// Why the batch of a job lets it wait: as many jobs of it hold places as its width allows. `None`: it may start.
pub(crate) fn refusal(state: &State, id: JobId) -> Option<Reason> {
    let width = Width::of(state, id)?;
    let running = runs(state, state.jobs[id].class);
    (running >= width.now).then(|| Reason::Batched { running, until: width.exceeds(running) })
}

/// How many more jobs of a batch may have places now, this one counted. Without a batch: all.
pub(crate) fn room(state: &State, id: JobId) -> u64 {
    let running = runs(state, state.jobs[id].class);
    Width::of(state, id).map_or(u64::MAX, |width| u64::from(width.now.saturating_sub(running)))
}

/// Whether a booked job waits for its node beside others of its batch: elsewhere it would take a GPU more.
pub(crate) fn stays_beside(state: &State, id: JobId) -> bool {
    let class = state.jobs[id].class;
    let shape = &state.classes[class].shape;
    shape.shares && runs(state, class) > 1
}

/// Jobs of a batch that hold places. None without a batch.
pub(crate) fn runs(state: &State, class: ClassId) -> u32 {
    if state.classes[class].shape.batch.is_none() {
        return 0;
    }
    let own = state.index.holding.get(&class).map_or(0, |jobs| jobs.len());
    let shape = &state.classes[class].shape;
    let rule = state.queues[shape.queue].rule.as_ref().and_then(|rule| rule.start);
    if rule.is_none_or(|start| start.when_late != WhenLate::BuyOnDemand) {
        return own as u32;
    }
    // Who is bought on-demand for, because it is late, is of the batch still.
    let alike = |other: &ClassId| {
        let other = &state.classes[*other].shape;
        other.batch == shape.batch && other.late != shape.late && Shape { late: shape.late, ..other.clone() } == *shape
    };
    let others = state.index.holding.iter().filter(|(other, _)| alike(other)).map(|(_, jobs)| jobs.len());
    (own + others.sum::<usize>()) as u32
}

/// How many jobs of a batch may hold places at once: one, and one more for each start target that has passed while its head waited.
struct Width {
    now: u32,
    /// Since when the head waits.
    from: Timestamp,
    /// The start target of the queue in milliseconds. `None`: without one the width stays as it is.
    within: Option<u64>,
}

impl Width {
    /// `None`: the job belongs to no batch.
    fn of(state: &State, id: JobId) -> Option<Width> {
        let job = &state.jobs[id];
        let shape = &state.classes[job.class].shape;
        shape.batch?;
        let rule = state.queues[shape.queue].rule.as_ref();
        let within = rule.and_then(|r| r.start).map(|s| s.within.0).filter(|within| *within > 0);
        // A job that has run before waits since it came back.
        let from = if job.first_start.is_none() { job.arrival } else { job.since };
        let passed = within.map_or(0, |within| state.now.since(from).0 / within);
        let now = u32::try_from(passed).unwrap_or(u32::MAX).saturating_add(1);
        Some(Width { now, from, within })
    }

    /// When the width is above this many jobs.
    fn exceeds(&self, running: u32) -> Option<Timestamp> {
        self.within.map(|within| self.from + Span(within.saturating_mul(u64::from(running))))
    }
}

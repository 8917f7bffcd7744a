//! The demand model: what is expected of durations, from what jobs say of themselves and from what was seen.
//!
//! Never: floats, and never a number without a source: unknown is `None`, not zero.

use crate::ids::JobId;
use crate::state::State;
use crate::units::Span;

/// How long a job's work is expected to go on at most, in nine cases of ten, given how long it has run. `None`: not known.
#[must_use]
pub(crate) fn remaining_p90(state: &State, job: JobId) -> Option<Span> {
    let (row, spec) = (&state.jobs[job.ix()], &state.specs[job.ix()]);
    let ran = row.running_since.map_or(Span::ZERO, |since| state.now.since(since));
    spec.expected.map(|expected| expected + spec.restart - row.resume_from - ran)
}

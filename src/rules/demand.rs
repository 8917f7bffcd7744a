//! The demand model: what is to be expected of durations, boots, reclaims and needs, from what jobs say of themselves and from what
//! was seen.
//!
//! ```text
//! remaining_p90     the job's own estimate, until it is used up; else what work of its family, or of its queue and
//!                   size, was seen to last
//! remaining_mean    the same on average, for who waits; where nothing is known, an hour
//! doublings_left    that times its GPUs, of runs too, in doublings
//! boot_p90          the last 16 boots of an offering, from the decision to buy on; else what the catalogue states. Where costs are
//!                   compared it is their median that counts (`State::usual_boot`)
//! reclaims          of an offering, per node and hour in millionths
//! needs             how often work takes an empty node of a pool
//! ```
//!
//! Never: floats, and never a number without a source: unknown is `None`, not zero.

use crate::ids::{JobId, OfferingId, PoolId};
use crate::state::State;
use crate::state::observed_stats::{FamilyOfWork, NeedStats};
use crate::units::{HOUR_MS, Span};

/// How long work takes of which that is not known.
pub(crate) const UNKNOWN: Span = Span::mins(60);

/// Fewer completions than this say nothing of what is usual.
const ENOUGH: u32 = 8;
/// What is assumed of spot before anything was seen: one reclaim in 20 node hours, 5 % an hour. Between what AWS's Spot Advisor states
/// (up to and above 20 % a month) and what Bamboo (NSDI 2023) replays for GPU nodes on EC2 (10 to 33 % an hour).
const PRIOR_RECLAIMS: u64 = 1;
const PRIOR_TIME: Span = Span::mins(20 * 60);
/// Once an hour. Nodes that die within minutes are seen first, those that live long are counted when they are gone: more than this is
/// a drought, and that is what the memory of stock is for.
const MOST_RECLAIMS: u64 = 1_000_000;

/// How long a job's work is expected to go on at most, in nine cases of ten, given how long it has run. Zero: it stated how long, that is
/// over, and nothing else is known. `None`: nothing is known.
#[must_use]
pub(crate) fn remaining_p90(state: &State, job: JobId) -> Option<Span> {
    remaining(state, job, 900)
}

/// The same in so many cases of a thousand.
#[must_use]
pub(crate) fn remaining(state: &State, job: JobId, permille: u64) -> Option<Span> {
    let (row, spec) = (&state.jobs[job], &state.specs[job]);
    let (before, ran) = match row.running_since {
        Some(since) => (row.resume_from, state.now.since(since)),
        None => (row.progress, Span::ZERO),
    };
    let done = before + ran;
    let stated = spec.expected.map(|expected| expected + spec.restart);
    if let Some(stated) = stated.filter(|stated| *stated > done) {
        return Some(stated - done);
    }
    let seen = state.observed.residual(FamilyOfWork::of(row.queue, spec), done, ENOUGH, permille);
    seen.or(stated.map(|_| Span::ZERO))
}

/// How much longer work that lasted `age` goes on in nine cases of ten, by what was seen of work like it.
pub(crate) fn seen_p90(state: &State, of: FamilyOfWork, age: Span) -> Option<Span> {
    state.observed.residual(of, age, ENOUGH, 900)
}

/// How long a job's work is expected to go on on average, given what of it is done: what it states, until that is used up; else what work of its queue
/// was seen to last; else an hour, and at least as long as it has lasted. Never zero: who knows nothing is not the shortest.
#[must_use]
pub(crate) fn remaining_mean(state: &State, job: JobId) -> Span {
    remaining_after(state, job, state.jobs[job].progress)
}

/// The GPU time that a job is expected to take still, on average, in doublings of a millisecond of a thousandth of a GPU. Of a run what it has had of its
/// turn counts as done, to the last of its marks; so it changes at those and as other work ends, and else not.
#[must_use]
pub(crate) fn doublings_left(state: &State, job: JobId) -> u8 {
    let row = &state.jobs[job];
    let done = if row.running_since.is_some() { row.resume_from + row.had(state.now) } else { row.progress };
    // Who asks less than a GPU holds up as much.
    let share = state.specs[job].gang.gpu_share().0.max(1000);
    remaining_after(state, job, done).0.saturating_mul(share).max(1).ilog2() as u8
}

/// How long a job's work is expected to go on on average once so much of it is done.
fn remaining_after(state: &State, job: JobId, done: Span) -> Span {
    let (row, spec) = (&state.jobs[job], &state.specs[job]);
    let stated = spec.expected.map(|expected| expected + spec.restart).filter(|stated| *stated > done);
    if let Some(stated) = stated {
        return stated - done;
    }
    match state.observed.mean_residual(row.queue, spec, done, ENOUGH) {
        Some(seen) => seen.max(Span(1)),
        None => UNKNOWN.max(done),
    }
}

/// How long an offering takes from the decision to buy until it is ready, in nine cases of ten.
#[must_use]
pub(crate) fn boot_p90(state: &State, offering: OfferingId) -> Span {
    state.observed.boot(offering, 900).unwrap_or(state.offerings[offering.index()].offer.boot)
}

/// Whether what [`boot_p90`] says was seen: what the catalogue states leaves out the time that the cloud takes to answer.
#[must_use]
pub(crate) fn boot_is_seen(state: &State, offering: OfferingId) -> bool {
    state.observed.boot(offering, 900).is_some()
}

/// How often the cloud takes back a node of an offering, per node and hour, in millionths.
#[must_use]
pub(crate) fn reclaims_per_hour(state: &State, offering: OfferingId) -> u64 {
    let lives = state.observed.lives(offering);
    let count = u128::from(lives.reclaims + PRIOR_RECLAIMS) * 1_000_000 * u128::from(HOUR_MS);
    let rate = count / u128::from((lives.time + PRIOR_TIME).0);
    u64::try_from(rate).unwrap_or(u64::MAX).min(MOST_RECLAIMS)
}

/// How often work takes an empty node of a pool. `None`: too seldom so far to say.
#[must_use]
pub(crate) fn needs(state: &State, pool: PoolId) -> Option<NeedStats> {
    let needs = state.observed.needs(pool);
    (needs.count >= u64::from(ENOUGH)).then_some(needs)
}

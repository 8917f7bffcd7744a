//! deadline: what a job may run on, by how urgent its deadline is. Spot while there is time to lose, on-demand when there is not.
//!
//! ```text
//! relaxed    ahead of the uniform line        spot only; waits where there is none
//! dated      behind it, or no choice          what its tier buys, ahead of those in its queue and tier that have more time
//! urgent     no time for another reclaim      on-demand and reserved only; a run on spot moves there from its checkpoint
//! ```
//!
//! The line: progress in proportion to the time gone, with a quarter of the slack in hand that moves leave. Source: Can't Be Late (NSDI 2024).
//! A job is judged when it arrives, starts, saves, stops, and at the exact instants when its urgency changes with time.
//!
//! Never: more than the tier buys; never extra money for a deadline that is out of reach; never a step back from urgent.

use crate::catalog::CapacityType;
use crate::decision::{Decision, StopCause};
use crate::effect::WorkerPlace;
use crate::engine::Engine;
use crate::ids::{ClassId, JobId, OfferingId, PoolId};
use crate::moves;
use crate::plan::PlanReport;
use crate::policy::Buys;
use crate::rules::placement::{self, NodeScope};
use crate::rules::{demand, quota, settings, supply};
use crate::state::jobs::Phase;
use crate::state::{State, Urgency};
use crate::units::{Span, Timestamp};
use alloc::vec::Vec;

/// The slack is first for moves between spot and what stays: one in so much work, as recorded spot comes and goes about every three and a half
/// hours (eight series of two weeks and more), and each time that is two moves.
const MOVE_EVERY: Span = Span::mins(105);

/// How urgent a deadline is.
struct Verdict {
    urgency: Urgency,
    /// It changes by the clock then.
    again: Timestamp,
    /// It cannot be met: the job would end then.
    late: Option<Timestamp>,
}

/// Runs the stage.
pub(crate) fn run(engine: &mut Engine, report: &mut PlanReport) {
    let now = engine.state.now;
    let state = &engine.state;
    // A run may have saved or ended while nobody watched.
    let known = |job: &JobId| !(state.is_unseen() && state.jobs[*job].phase == Phase::Running);
    let due = state.index.reassess.iter().take_while(|h| h.0 <= now).map(|h| h.1).filter(known);
    let due: Vec<JobId> = due.collect();
    for job in due {
        let Verdict { urgency, again, late } = judge(&engine.state, job);
        let was = engine.state.classes[engine.state.jobs[job].class].shape.urgency;
        // What it has gained since sets it free.
        let avoids = matches!(was, Urgency::Avoids(_) | Urgency::AvoidsSpot)
            && urgency != Urgency::Urgent
            && engine.state.streak(job).is_some();
        let urgency = if avoids { was } else { urgency };
        engine.decide(Decision::Reassess { job, urgency, again, late });
        if urgency == Urgency::Urgent {
            leave_spot(engine, job, report);
        }
    }
}

fn judge(state: &State, job: JobId) -> Verdict {
    let (row, spec) = (&state.jobs[job], &state.specs[job]);
    let never = Verdict { urgency: Urgency::Ordinary, again: Timestamp::NEVER, late: None };
    let (Some(deadline), Some(expected), false) = (spec.deadline, spec.expected, row.hopeless) else {
        return never;
    };
    let now = state.now;
    let left = expected - row.progress;
    let runs = row.phase == Phase::Running;
    let ends = now + if runs { left_of_run(state, job) } else { left + spec.restart };
    if ends > deadline {
        return Verdict { late: Some(ends), ..never };
    }
    let urgent_at = deadline - left - overhead(state, job).times(2);
    // Progress in proportion to the time gone, and a quarter of the slack that moves leave.
    let all = deadline.since(row.arrival);
    let share = u128::from(all.0) * u128::from(row.progress.0) / u128::from(expected.0.max(1));
    let moves = overhead(state, job).times(expected.0.div_ceil(MOVE_EVERY.0));
    let line_at = row.arrival + Span(u64::try_from(share).unwrap_or(u64::MAX)) + Span((all - expected - moves).0 / 4);
    let was = state.classes[row.class].shape.urgency;
    // From then on one more run that goes first could be the one too many.
    let counts_at = deadline - left - spec.restart - state.lifecycle().max_run;
    let urgency = match choice(state, row.class, was) {
        true if was == Urgency::Urgent || now >= urgent_at => Urgency::Urgent,
        true if now < line_at => Urgency::Relaxed,
        _ if now < counts_at => Urgency::Ordinary,
        _ => Urgency::Dated,
    };
    // From then on it could not be met by starting again.
    let late_at = if runs { Timestamp::NEVER } else { deadline - left - spec.restart + Span(1) };
    let times = [line_at, urgent_at, late_at, counts_at];
    let again = times.into_iter().filter(|at| *at > now).min().unwrap_or(Timestamp::NEVER);
    Verdict { urgency, again, late: None }
}

/// Whether its tier and the policy leave a choice between spot and what stays.
fn choice(state: &State, class: ClassId, was: Urgency) -> bool {
    let row = &state.classes[class];
    let buys = settings::tier(state, row.shape.tier).map(|t| t.buys);
    let has = |spot: bool| row.fits.iter().flat_map(|f| &f.1).any(|id| is_bought_as(state, *id, spot));
    // What is urgent fits no spot any more.
    let gone = matches!(was, Urgency::Urgent | Urgency::AvoidsSpot);
    buys == Some(Buys::SpotThenOnDemand) && row.shape.spot && has(false) && (gone || has(true))
}

fn is_spot(state: &State, id: OfferingId) -> bool {
    state.offerings[id.index()].offer.capacity == CapacityType::Spot
}

/// Whether an offering is bought, as spot or as what stays. Owned nodes are not: others may hold them when they are needed.
fn is_bought_as(state: &State, id: OfferingId, spot: bool) -> bool {
    state.offerings[id.index()].offer.capacity != CapacityType::Owned && is_spot(state, id) == spot
}

/// What a move to capacity that stays costs in time: saving, a boot of the cheapest that fits, and the restart.
fn overhead(state: &State, job: JobId) -> Span {
    let (row, spec) = (&state.jobs[job], &state.specs[job]);
    let fits = state.classes[row.class].fits.iter().flat_map(|f| &f.1);
    let price = |id: &OfferingId| state.offerings[id.index()].offer.price;
    let stays = fits.filter(|id| is_bought_as(state, **id, false)).map(|id| (price(id), demand::boot_p90(state, *id)));
    let boot = stays.min().map_or(Span::ZERO, |stays| stays.1);
    boot + spec.restart + spec.checkpoint.map_or(Span::ZERO, |c| c.grace)
}

/// What is left of a run if nothing comes in between.
fn left_of_run(state: &State, job: JobId) -> Span {
    demand::remaining_p90(state, job).unwrap_or_default()
}

/// Takes an urgent job off spot, where that helps it: what is only booked is booked anew; a run that can save is moved, if there is
/// something to move to and more is left of it than the move costs. A run that cannot save would lose all: it stays.
fn leave_spot(engine: &mut Engine, job: JobId, report: &mut PlanReport) {
    let state = &engine.state;
    let (row, spec) = (&state.jobs[job], &state.specs[job]);
    let on_spot = |p: &WorkerPlace| state.nodes.get(&p.node).is_some_and(|n| is_spot(state, n.offering));
    if !row.places.iter().any(on_spot) {
        return;
    }
    let saves = row.broken.is_none() && spec.checkpoint.is_some();
    let worth = saves && left_of_run(state, job) > overhead(state, job);
    let phase = row.phase;
    match phase {
        Phase::Booked => engine.decide(Decision::Unbook { job }),
        // Who could not be admitted again stays where it runs.
        Phase::Running if engine.state.queue_brake(engine.state.jobs[job].queue).is_some() => {}
        Phase::Running if worth && can_move(engine, job) => {
            report.stopped += 1;
            moves::stop(engine, job, StopCause::Hurried);
        }
        _ => {}
    }
}

/// Whether capacity that stays is free or can be bought. The job's class is urgent: it asks for nothing else.
fn can_move(engine: &mut Engine, job: JobId) -> bool {
    let class = engine.state.jobs[job].class;
    let pools: Vec<PoolId> = engine.state.classes[class].fits.iter().map(|f| f.0).collect();
    pools.into_iter().any(|pool| {
        let asked = quota::share(&engine.state, class, pool);
        supply::refusal(&engine.state, job, pool).is_none()
            || placement::find(engine, job, pool, NodeScope::Ready, asked).is_some()
    })
}

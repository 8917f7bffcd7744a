//! deadline: what a job may run on, by how urgent its deadline is. Spot while there is time to lose, on-demand when there is not.
//!
//! ```text
//! relaxed    more slack than moves take       spot only; waits where there is none
//! dated      as much or less, or no choice    what its tier buys, ahead of those in its queue and tier that have more time
//! urgent     no time for another reclaim      on-demand and reserved only; a run on spot moves there from its checkpoint
//! ```
//!
//! The line: it has as much slack left as one move for each hour of the work that is left takes. The problem and the traces: Can't Be Late
//! (NSDI 2024). A job is judged when it arrives, starts, saves, stops, and at the exact instants when its urgency changes with time.
//!
//! Never: more than the tier buys; never extra money for a deadline that is out of reach; never a step back from urgent.

use crate::decision::{Decision, StopCause};
use crate::effect::WorkerPlace;
use crate::engine::Engine;
use crate::event::LaunchError;
use crate::ids::{ClassId, JobId, OfferingId, PoolId};
use crate::moves;
use crate::plan::PlanReport;
use crate::policy::Buys;
use crate::rules::forecast::once_given_back;
use crate::rules::launch::{self, LaunchOption};
use crate::rules::placement::{self, NodeScope};
use crate::rules::slack::MoveTime;
use crate::rules::{
    allowances, budget, capacity, demand, feasibility, fruitless, quota, reservations, settings, slack, supply,
};
use crate::state::jobs::Phase;
use crate::state::{State, Urgency};
use crate::units::{Span, Timestamp};
use alloc::vec::Vec;

/// What waits for spot asks for it that long after it was refused, however long its stock is left alone: what is gone for ten minutes is worth seeing soon.
/// Who has waited for long without asking looks less often.
const LOOKS_EVERY: Span = Span::mins(4);

/// An urgent job that waits, or could leave spot, is looked at so often.
const URGENT_LOOKS_EVERY: Span = Span::mins(1);

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
        // Where nothing of what stays comes, who avoids spot goes back to what it would run on otherwise.
        let avoids = avoids && !fruitless::avoids_in_vain(engine, job);
        let urgency = if avoids { was } else { urgency };
        let again = again.min(look_at(&engine.state, job, urgency)).min(tried_again_at(&engine.state, job, urgency));
        let again = again.min(fruitless::look_at(&engine.state, job, urgency));
        engine.decide(Decision::Reassess { job, urgency, again, late });
        match urgency {
            // It takes whatever is there, or comes, and costs no extra money, until it is looked at again.
            Urgency::Urgent if engine.state.jobs[job].phase == Phase::Queued && !stays_in_time(engine, job) => {
                engine.decide(Decision::Reassess { job, urgency: Urgency::Dated, again, late });
            }
            Urgency::Urgent => leave_spot(engine, job, report),
            Urgency::Relaxed => ask_for_spot(engine, job, report),
            _ => {}
        }
        // An urgent class is never called impossible, for others of its shape may have what it lacks. This one is among those now.
        let waits = matches!(engine.state.jobs[job].phase, Phase::Queued | Phase::Booked | Phase::BackingOff { .. });
        if let Some(reason) = feasibility::held_by_class(&engine.state, job).filter(|_| waits) {
            moves::hold_back(engine, job, reason);
            report.settled += 1;
        }
    }
}

fn judge(state: &State, job: JobId) -> Verdict {
    let (row, spec) = (&state.jobs[job], &state.specs[job]);
    let never = Verdict { urgency: Urgency::Ordinary, again: Timestamp::NEVER, late: None };
    let Some((deadline, expected)) = slack::to_meet(state, job) else { return never };
    let now = state.now;
    let left = expected - row.progress;
    let runs = row.phase == Phase::Running;
    let ends = now + if runs { left_of_run(state, job) } else { left + spec.restart };
    if ends > deadline {
        return Verdict { late: Some(ends), ..never };
    }
    let takes = MoveTime::of(state, job);
    let line_at = takes.line_at(deadline, left);
    let urgent_at = match slack::runs_where_it_stays(state, job) {
        true => Timestamp::NEVER,
        false => takes.urgent_at(deadline, left),
    };
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

/// When an urgent job is looked at again that waits, or runs on spot and could save: what it would go to may have been refused for a moment, or its queue
/// been held. One that pauses after a failure is when it waits again. `NEVER`: it is none of these.
fn tried_again_at(state: &State, job: JobId, urgency: Urgency) -> Timestamp {
    let row = &state.jobs[job];
    let saves = || row.broken.is_none() && state.specs[job].checkpoint.is_some();
    match row.phase {
        _ if urgency != Urgency::Urgent => Timestamp::NEVER,
        Phase::Queued | Phase::Booked => state.now + URGENT_LOOKS_EVERY,
        Phase::BackingOff { until } => until.max(state.now + Span(1)),
        Phase::Running if saves() && !slack::runs_where_it_stays(state, job) => state.now + URGENT_LOOKS_EVERY,
        _ => Timestamp::NEVER,
    }
}

/// When a job that waits for spot looks again whether it is there. `NEVER`: it does not wait for it.
fn look_at(state: &State, job: JobId, urgency: Urgency) -> Timestamp {
    let row = &state.jobs[job];
    if urgency != Urgency::Relaxed || !matches!(row.phase, Phase::Queued | Phase::Booked) {
        return Timestamp::NEVER;
    }
    let waited = state.now.since(row.since);
    match waited < LOOKS_EVERY {
        true => row.since + LOOKS_EVERY,
        false => state.now + LOOKS_EVERY.max(Span(waited.0 / 4)),
    }
}

/// Asks for one node of spot that was out, for the first of those that wait for it and for nothing else and that one node holds. Whoever is first in line
/// takes it.
fn ask_for_spot(engine: &mut Engine, job: JobId, report: &mut PlanReport) {
    let state = &engine.state;
    let (row, now) = (&state.jobs[job], state.now);
    let class = row.class;
    let held = state.queue_brake(row.queue).is_some();
    // One of all that wait for the same: many jobs ask no more often than one.
    let is_first = state.index.first_queued(class).is_some_and(|first| first.job == job);
    if held || !is_first || row.phase != Phase::Queued || now.since(row.since) < LOOKS_EVERY {
        return;
    }
    let asked = |pool: PoolId, id: OfferingId| {
        let stock = &state.offerings[id.index()];
        let out = stock.blocked_by == Some(LaunchError::Capacity) && stock.blocked_until > now && stock.in_flight == 0;
        let holds = |option: &LaunchOption| option.nodes() == 1 && !option.part;
        let has_room = || {
            let (all, own) = reservations::held(state, pool, Some(job));
            launch::bound_hit(state, pool, &LaunchOption::of(id, 1), all, own).is_none()
        };
        out && stock.listed
            && capacity::is_spot(state, id)
            && budget::affordable_anew(state, class, pool, id)
            && launch::options(state, class, pool, &[id], &[]).iter().any(holds)
            && has_room()
    };
    let open = |pool: &PoolId| {
        let share = quota::share(state, class, *pool);
        supply::no_purchase(state, *pool).is_none()
            && quota::refusal(state, class, *pool, share).is_none()
            && budget::refusal(state, class, *pool).is_none()
    };
    let pools = state.classes[class].fits.iter().filter(|of| open(&of.0));
    let out = pools.flat_map(|(pool, fits)| fits.iter().map(|id| (*pool, *id))).filter(|of| asked(of.0, of.1));
    let cheapest = out.min_by_key(|of| (state.offerings[of.1.index()].offer.price, *of));
    if let Some((pool, offering)) = cheapest {
        moves::buy_spare(engine, pool, offering, report);
    }
}

/// Whether its tier and the policy leave a choice between spot and what stays.
fn choice(state: &State, class: ClassId, was: Urgency) -> bool {
    let row = &state.classes[class];
    let buys = settings::tier(state, row.shape.tier).map(|t| t.buys);
    let has = |spot: bool| {
        let mut open = row.fits.iter().filter(|(pool, _)| quota::ever_holds(state, class, *pool));
        open.any(|(pool, fits)| {
            let these = fits.iter().copied().filter(|id| capacity::is_bought_as(state, *id, spot));
            !launch::possible(state, class, *pool, &these.collect::<Vec<_>>()).is_empty()
        })
    };
    // What is urgent fits no spot any more.
    let gone = matches!(was, Urgency::Urgent | Urgency::AvoidsSpot);
    buys == Some(Buys::SpotThenOnDemand) && row.shape.spot && has(false) && (gone || has(true))
}

/// What is left of a run if nothing comes in between.
fn left_of_run(state: &State, job: JobId) -> Span {
    demand::remaining_p90(state, job).unwrap_or_default()
}

/// Takes an urgent job off spot, where that helps it: what is only booked is booked anew; a run that can save is moved, if there is
/// something to move to, unless it ends so soon that it could be taken back even then. A run that cannot save would lose all: it stays.
fn leave_spot(engine: &mut Engine, job: JobId, report: &mut PlanReport) {
    let state = &engine.state;
    let (row, spec) = (&state.jobs[job], &state.specs[job]);
    let on_spot = |p: &WorkerPlace| state.nodes.get(&p.node).is_some_and(|n| capacity::is_spot(state, n.offering));
    if !row.places.iter().any(on_spot) {
        return;
    }
    let left = spec.expected.unwrap_or_default() - row.progress;
    let taken_at_its_end = state.now + left_of_run(state, job) + MoveTime::of(state, job).whole() + left;
    let ends_in_time = spec.deadline.is_some_and(|deadline| taken_at_its_end <= deadline);
    let saves = row.broken.is_none() && spec.checkpoint.is_some();
    let phase = row.phase;
    match phase {
        // Who could not be admitted again stays where it is.
        _ if engine.state.queue_brake(engine.state.jobs[job].queue).is_some() => {}
        Phase::Booked => engine.decide(Decision::Unbook { job }),
        Phase::Running if saves && !ends_in_time && can_move(engine, job) => {
            report.stopped += 1;
            moves::stop(engine, job, StopCause::Hurried);
        }
        _ => {}
    }
}

/// Whether an urgent job that waits would be in time on capacity that stays: it is free or on its way, or can be bought and boots in time. An urgent class
/// asks for nothing else.
fn stays_in_time(engine: &Engine, job: JobId) -> bool {
    let state = &engine.state;
    let (row, spec) = (&state.jobs[job], &state.specs[job]);
    let Some((deadline, expected)) = slack::to_meet(state, job) else { return true };
    let boots = MoveTime::of(state, job).whole() - spec.checkpoint.map_or(Span::ZERO, |saves| saves.grace);
    let in_time = state.now + boots + (expected - row.progress) <= deadline;
    settings::pools(state, row.class).any(|pool| is_there(engine, job, pool, NodeScope::InFlight, in_time))
}

/// Whether a job has places in a pool, or may be bought for there.
fn is_there(engine: &Engine, job: JobId, pool: PoolId, scope: NodeScope, buys: bool) -> bool {
    let asked = quota::share(&engine.state, engine.state.jobs[job].class, pool);
    (buys && supply::refusal(&engine.state, job, pool).is_none())
        || placement::find(engine, job, pool, scope, asked).is_some()
}

/// Whether capacity that stays is free or can be bought. The job's class is urgent: it asks for nothing else.
fn can_move(engine: &mut Engine, job: JobId) -> bool {
    let class = engine.state.jobs[job].class;
    let pools: Vec<PoolId> = settings::pools(&engine.state, class).collect();
    pools.into_iter().any(|pool| {
        is_there(engine, job, pool, NodeScope::Ready, true)
            && once_given_back(engine, &[job], |state| allowances::no_share(state, job, pool).is_none())
    })
}

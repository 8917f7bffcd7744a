//! Where a job goes that the cloud took back time after time, without anything gained in between.
//!
//! ```text
//! twice in a row from one offering                 another offering, if its tier buys one
//! four times in a row, or there is no other spot   what the cloud does not take back, if its tier buys that
//! neither can be bought                            it goes on as it is, and says so
//! what stays does not come as it waits             back to what its tier buys, and the same when it is taken back again
//! its deadline is far, and it has lost little      it goes on with spot
//! ```
//!
//! Progress that is verified ends the row, and the job is free again when its next run is over; with a deadline that it can make, at once. Where it goes
//! is asked of the policy, for what is out of stock comes back; whether it goes on waiting there, of what can be had.
//!
//! Never: counts on others to give up what it waits for. Spot is there, or comes sooner.

use super::launch::{self, LaunchOption};
use super::placement::{self, NodeScope};
use super::{allowances, budget, capacity, demand, quota, settings, supply};
use crate::catalog::CapacityType;
use crate::engine::Engine;
use crate::ids::{JobId, OfferingId, PoolId};
use crate::policy::Buys;
use crate::state::jobs::Phase;
use crate::state::{Held, State, Urgency};
use crate::units::{Span, Timestamp};
use alloc::vec::Vec;

/// Reclaims in a row from one offering after which it is left. One may be chance: at one reclaim in 20 hours, two runs of an hour in a row
/// are taken once in 400 times.
const LEAVES_OFFERING: u32 = 2;
/// Reclaims in a row after which everything that can be taken back is left: twice the same, on another offering.
const LEAVES_SPOT: u32 = 4;

/// Who avoids spot and waits is looked at so often, and after a quarter of the time that it has waited where that is longer.
const LOOKS_EVERY: Span = Span::mins(1);

/// What a job that waits again may run on from now on.
pub(crate) fn urgency(state: &State, id: JobId) -> Urgency {
    let was = state.classes[state.jobs[id].class].shape.urgency;
    let free = if matches!(was, Urgency::Avoids(_) | Urgency::AvoidsSpot) { Urgency::Ordinary } else { was };
    let Some((streak, (last, times))) = state.streak(id).and_then(|s| Some((s, s.reclaimed_from?))) else {
        return free;
    };
    if was == Urgency::Urgent || was == Urgency::AvoidsSpot {
        return was;
    }
    if times < LEAVES_OFFERING && streak.reclaims < LEAVES_SPOT {
        return was;
    }
    let spot = |offering: OfferingId| capacity::is_spot(state, offering);
    let another = |is_spot: bool| can_be_bought(state, id, &|other| other != last && spot(other) == is_spot);
    match spot(last) {
        true if streak.reclaims < LEAVES_SPOT && another(true) => Urgency::Avoids(last),
        true if waits_out(state, id, was) => was,
        true if another(false) => Urgency::AvoidsSpot,
        is_spot if another(is_spot) => Urgency::Avoids(last),
        _ => was,
    }
}

/// Whether a job was taken back in a row and has nowhere else to go.
pub(crate) fn is_stuck(state: &State, id: JobId, urgency: Urgency) -> bool {
    let Some((last, times)) = state.streak(id).and_then(|streak| streak.reclaimed_from) else { return false };
    times >= LEAVES_OFFERING
        && !waits_out(state, id, urgency)
        && !matches!(urgency, Urgency::Urgent | Urgency::AvoidsSpot)
        && urgency != Urgency::Avoids(last)
}

/// Whether a job that avoids spot waits, or is about to, and nothing comes of what stays: nothing is free or on its way, none can be bought, and none is
/// being taken from others for it. Its class asks for nothing else. Where quota leaves it nothing in any pool it waits for that, and spot would be no help.
pub(crate) fn avoids_in_vain(engine: &Engine, id: JobId) -> bool {
    let state: &State = &engine.state;
    let row = &state.jobs[id];
    let class = &state.classes[row.class];
    let waits = matches!(row.phase, Phase::Queued | Phase::Ended { .. }) && state.queue_brake(row.queue).is_none();
    let taken_for = row.kept.is_some() || row.reserved_until.is_some();
    if class.shape.urgency != Urgency::AvoidsSpot || !waits || taken_for {
        return false;
    }
    let share = |pool: PoolId| quota::share(state, row.class, pool);
    let has_quota = |pool: PoolId| quota::refusal(state, row.class, pool, share(pool)).is_none();
    let is_there = |pool: PoolId| placement::find(engine, id, pool, NodeScope::InFlight, share(pool)).is_some();
    let comes = |pool: PoolId| {
        let has_share = allowances::no_share(state, id, pool).is_none();
        has_share && (supply::comes_soon(engine, id, pool) || is_there(pool))
    };
    class.fits.iter().any(|(pool, _)| has_quota(*pool)) && !settings::pools(state, row.class).any(comes)
}

/// When a job that avoids spot and waits is looked at again. `NEVER`: it is none of these.
pub(crate) fn look_at(state: &State, id: JobId, urgency: Urgency) -> Timestamp {
    let row = &state.jobs[id];
    match row.phase {
        _ if urgency != Urgency::AvoidsSpot => Timestamp::NEVER,
        Phase::Queued | Phase::Booked => state.now + LOOKS_EVERY.max(Span(state.now.since(row.since).0 / 4)),
        Phase::BackingOff { until } => until.max(state.now + Span(1)),
        _ => Timestamp::NEVER,
    }
}

/// Whether a job that has time until its deadline goes on with spot for all that: until what its runs in a row have cost is what all that is left of it
/// costs more where it stays. Its slack ends before that or after it.
fn waits_out(state: &State, id: JobId, urgency: Urgency) -> bool {
    let (row, spec) = (&state.jobs[id], &state.specs[id]);
    let (Urgency::Relaxed, Some(expected), Some(streak)) = (urgency, spec.expected, state.streak(id)) else {
        return false;
    };
    let Some((last, _)) = streak.reclaimed_from else { return false };
    let class = &state.classes[row.class];
    let offer = |id: OfferingId| &state.offerings[id.index()].offer;
    let stays = class.fits.iter().flat_map(|f| &f.1).filter(|id| offer(**id).capacity == CapacityType::OnDemand);
    let dearer = stays.map(|id| offer(*id).price - offer(last).price).min().unwrap_or_default();
    // What gained nothing was over before it would have saved.
    let saves = spec.checkpoint.map_or(expected, |c| c.every);
    let each = demand::boot_p90(state, last) + spec.restart + saves;
    let lost = offer(last).price.over(each).0.saturating_mul(u128::from(streak.reclaims));
    lost < dearer.over(expected - row.progress).0
}

/// Whether some of these offerings could be bought for a job, with nothing else running.
fn can_be_bought(state: &State, id: JobId, these: &dyn Fn(OfferingId) -> bool) -> bool {
    let class = state.jobs[id].class;
    let shape = &state.classes[class].shape;
    let buys = settings::buys(state, shape);
    if buys == Buys::Nothing {
        return false;
    }
    // A deadline that is far off keeps a job to spot. One that gets nowhere there is not kept to it.
    let bought = |capacity: CapacityType| match capacity {
        CapacityType::Reserved => true,
        // Whether there is room on owned nodes is not ours to say.
        CapacityType::Owned => false,
        CapacityType::Spot => shape.spot && buys != Buys::OnDemand,
        CapacityType::OnDemand => buys != Buys::Spot || capacity::late(state, shape),
    };
    let held = Held::default();
    let mut open = state.classes[class].fits.iter().filter(|(pool, _)| quota::ever_holds(state, class, *pool));
    open.any(|(pool, fits)| {
        let wanted = |id: &OfferingId| these(*id) && bought(state.offerings[id.index()].offer.capacity);
        let wanted: Vec<OfferingId> = fits.iter().copied().filter(wanted).collect();
        let options = launch::options(state, class, *pool, &wanted, &[]);
        let paid = |option: &LaunchOption| {
            budget::ever_pays(state, class, option.bill(state).max(budget::rate_on(state, class, *pool, option)))
        };
        options.iter().any(|option| launch::bound_hit(state, *pool, option, held, held).is_none() && paid(option))
    })
}

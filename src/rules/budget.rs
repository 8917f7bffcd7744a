//! Budgets: what they leave to a gang, by what it would cost on each offering.
//!
//! ```text
//! room        the dearest gang that all budgets above its queue still let start
//! affordable  an offering on which the whole gang costs no more than that: the only ones that placement and supply look at
//! opens       when the next dearer offering becomes affordable, if nothing else changes
//! ```
//!
//! An offering is affordable or not whatever is free on it, so that what others take never changes what a class may have.
//!
//! Never: counts. That is `state::budget`.

use super::launch::{self, LaunchOption};
use super::{allowances, placement, quota, settings, supply};
use crate::catalog::{CapacityType, Offering};
use crate::ids::{ClassId, JobId, OfferingId, PoolId, QuotaId};
use crate::job::Gang;
use crate::reason::Reason;
use crate::state::budget::part_of;
use crate::state::jobs::{Job, Phase};
use crate::state::places::WorkerNeeds;
use crate::state::{Held, State};
use crate::units::{MilliGpu, Rate, Timestamp};

/// Why no offering of a pool is affordable, if none is.
pub(crate) fn refusal(state: &State, class: ClassId, pool: PoolId) -> Option<Reason> {
    let room = room(state, class)?;
    let cheapest = least(state, class, pool);
    if cheapest <= room {
        return None;
    }
    let until = state.budget_opens(quota_node(state, class)?, cheapest)?;
    Some(Reason::Budget { until })
}

/// Whether the gang of a job may be on this offering. One that is booked may go elsewhere at no higher cost.
pub(crate) fn affordable(state: &State, job: JobId, class: ClassId, pool: PoolId, offering: OfferingId) -> bool {
    let row = &state.jobs[job];
    if row.phase != Phase::Booked {
        return affordable_anew(state, class, pool, offering);
    }
    let held: u64 = match &state.classes[class].shape.gang {
        Gang::Workers { .. } => row.places.len() as u64,
        Gang::Spanning { gpus, .. } => u64::from(*gpus),
    };
    room(state, class).is_none() || unit_rate(state, class, pool, offering).times(held) <= row.rate
}

/// Whether one more gang of a class may be on this offering.
pub(crate) fn affordable_anew(state: &State, class: ClassId, pool: PoolId, offering: OfferingId) -> bool {
    room(state, class).is_none_or(|room| gang_rate(state, class, pool, offering) <= room)
}

/// What quota and budgets leave to an elastic gang in a pool.
pub(crate) fn most(state: &State, class: ClassId, pool: PoolId) -> MilliGpu {
    let by_quota = quota::available(state, class, pool);
    let (Some(room), Gang::Workers { min, max, each }) = (room(state, class), &state.classes[class].shape.gang) else {
        return by_quota;
    };
    let fits = supply::fits(state, class, pool).iter();
    let good = fits.filter(|id| affordable_anew(state, class, pool, **id));
    let dearest = good.map(|id| unit_rate(state, class, pool, *id)).max().unwrap_or_default();
    let count = room.0.checked_div(dearest.0).unwrap_or(u64::MAX).clamp(u64::from(*min), u64::from(*max));
    let share = placement::effective_share(state, &state.classes[class].shape, pool, each);
    by_quota.min(MilliGpu(u64::from(each.gpus).saturating_mul(u64::from(share)).saturating_mul(count)))
}

/// Whether budgets leave so much for a purchase. What it adds to the bill is charged to the class for which it is bought: others that come to
/// its nodes later pay their part from then on.
pub(crate) fn pays(state: &State, class: ClassId, bill: Rate) -> bool {
    room(state, class).is_none_or(|room| bill <= room)
}

/// Whether the whole budget above its queue would pay for a purchase.
pub(crate) fn ever_pays(state: &State, class: ClassId, bill: Rate) -> bool {
    let budget = quota_node(state, class).and_then(|quota| state.budget_amount(quota));
    budget.is_none_or(|budget| bill <= budget)
}

/// What budgets have to leave for a purchase of one offering at the least: the bill of one node, and all that the gang costs.
pub(crate) fn asked(state: &State, class: ClassId, pool: PoolId, offering: OfferingId) -> Rate {
    LaunchOption::of(offering, 1).bill(state).max(gang_rate(state, class, pool, offering))
}

/// Nodes of an offering that budgets leave enough for.
pub(crate) fn nodes_paid(state: &State, class: ClassId, offering: OfferingId) -> u64 {
    let price = state.offerings[offering.index()].offer.price;
    room(state, class).map_or(u64::MAX, |room| room.0.checked_div(price.0).unwrap_or(u64::MAX))
}

/// Why nothing is bought for a class though it could pay its part of nodes that others have bought: all purchases would add more to the bill
/// than its budgets leave.
pub(crate) fn no_purchase(state: &State, class: ClassId, bills: &[Rate]) -> Reason {
    let least = bills.iter().copied().min().unwrap_or_default();
    let quota = quota_node(state, class);
    if let Some(budget) = quota.and_then(|quota| state.budget_amount(quota)).filter(|budget| *budget < least) {
        return Reason::NodeBeyondBudget { least, budget };
    }
    // Or what is left is promised to others.
    let until = quota.and_then(|quota| state.budget_opens(quota, least).or_else(|| state.budget_period_ends(quota)));
    Reason::Budget { until: until.unwrap_or(Timestamp::NEVER) }
}

/// Whether more becomes affordable by time alone: so is what is left beside a job that is to have a budget later.
pub(crate) fn grows(state: &State, class: ClassId) -> bool {
    let grows = |quota| state.budget_grows(quota) || allowances::room(state, class).is_some();
    !state.budgets.none() && quota_node(state, class).is_some_and(grows)
}

/// What the nodes for the smallest gang add to the bill where it is bought for alone on one offering.
fn purchase_rate(state: &State, class: ClassId, pool: PoolId, offering: OfferingId) -> Rate {
    let shape = &state.classes[class].shape;
    let offer = &state.offerings[offering.index()].offer;
    let per_node = launch::units_a_node(state, shape, pool, offering, offer.gpus).max(1);
    offer.price.times(u64::from(shape.gang.fewest().div_ceil(per_node)))
}

/// What the smallest gang of a class costs at the least in a pool, of what the ceilings would allow and is as close together as it requires. Where
/// nothing is: of all that fits.
pub(crate) fn least(state: &State, class: ClassId, pool: PoolId) -> Rate {
    let fits = supply::fits(state, class, pool);
    let Some((least, cheapest)) = fits.iter().map(|id| (gang_rate(state, class, pool, *id), *id)).min() else {
        return Rate(0);
    };
    // Which nodes such a pool has no ceiling says.
    let owned = settings::pool(state, pool).is_some_and(|rules| rules.owned.is_some());
    // Most often the cheapest will do by itself.
    if owned || !launch::possible(state, class, pool, &[cheapest]).is_empty() {
        return least;
    }
    let options = launch::possible(state, class, pool, fits);
    options.iter().map(|option| rate_on(state, class, pool, option)).min().unwrap_or(least)
}

/// What the smallest gang costs on the dearest of an option's offerings: all of them have to be within what budgets leave.
pub(crate) fn rate_on(state: &State, class: ClassId, pool: PoolId, option: &LaunchOption) -> Rate {
    option.counts.iter().map(|(id, _)| gang_rate(state, class, pool, *id)).max().unwrap_or_default()
}

/// How many more gangs of a class budgets let start on an offering.
pub(crate) fn how_many(state: &State, class: ClassId, pool: PoolId, offering: OfferingId) -> u64 {
    let each = gang_rate(state, class, pool, offering);
    room(state, class).map_or(u64::MAX, |room| room.0.checked_div(each.0).unwrap_or(u64::MAX))
}

/// Why the whole budget above its queue never pays for an hour of the smallest gang of a class in a pool.
pub(crate) struct Beyond {
    pub reason: Reason,
    pub lasts: Lasts,
}

/// How long a budget is too small.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lasts {
    /// Spot may become cheap enough.
    AsPricesAre,
    /// Whatever spot costs.
    Always,
}

/// The price of spot is not expected to fall below this part of the on-demand price: AWS states savings of up to 90 %.
const LOWEST_SPOT: u64 = 10;

/// Whether an hour of the smallest gang costs more than a whole budget above its queue, on everything that the ceilings allow in a pool.
/// Budget and ceilings may each be met by something, and nothing meets both.
pub(crate) fn beyond(state: &State, class: ClassId, pool: PoolId) -> Option<Beyond> {
    let budget = quota_node(state, class).and_then(|quota| state.budget_amount(quota))?;
    let options = launch::options(state, class, pool, supply::fits(state, class, pool), &[]);
    let dearest = |option: &LaunchOption, price: fn(&Offering) -> Rate| {
        let offers = option.counts.iter().map(|(id, _)| &state.offerings[id.index()].offer);
        let rates = offers.map(|offer| unit_rate_at(state, class, pool, offer, price(offer)));
        rates.max().unwrap_or_default().times(fewest_units(state, class))
    };
    let (mut least, mut at_best, mut cheapest) = (None, None, None);
    for option in &options {
        let rate = dearest(option, |offer| offer.price);
        match launch::bound_hit(state, pool, option, Held::default(), Held::default()) {
            None if rate <= budget => return None,
            None => {
                let low = dearest(option, lowest_price);
                least = least.into_iter().chain([rate]).min();
                at_best = at_best.into_iter().chain([low]).min();
            }
            Some(bound) if rate <= budget => cheapest = cheapest.into_iter().chain([(rate, bound)]).min(),
            Some(_) => {}
        }
    }
    let (least, at_best) = (least?, at_best?);
    let lasts = if at_best <= budget { Lasts::AsPricesAre } else { Lasts::Always };
    let bound = cheapest.map(|(_, bound)| bound);
    Some(Beyond { reason: Reason::BeyondBudget { least, budget, bound }, lasts })
}

fn lowest_price(offer: &Offering) -> Rate {
    match offer.capacity {
        CapacityType::Spot => offer.price.min(Rate(offer.on_demand.0 / LOWEST_SPOT)),
        CapacityType::OnDemand | CapacityType::Reserved | CapacityType::Owned => offer.price,
    }
}

/// When a class that cannot be served may find one more offering affordable, though nothing has been given back. What is promised to others
/// stays promised; a new period changes it all.
pub(crate) fn opens(state: &State, class: ClassId) -> Option<Timestamp> {
    let room = room(state, class)?;
    let quota = quota_node(state, class)?;
    let offers = state.classes[class].fits.iter().flat_map(|(pool, fits)| fits.iter().map(|id| (*pool, *id)));
    let both = |(pool, id)| [gang_rate(state, class, pool, id), purchase_rate(state, class, pool, id)];
    let next = offers.flat_map(both).filter(|rate| *rate > room).min();
    let beside = |node| promised(state, class, node);
    let opens = next.and_then(|next| state.budget_opens_beside(quota, next, beside));
    opens.into_iter().chain(state.budget_period_ends(quota)).min()
}

fn room(state: &State, class: ClassId) -> Option<Rate> {
    if state.budgets.none() {
        return None;
    }
    let quota = quota_node(state, class)?;
    let room = state.budget_rooms(quota).map(|(node, room)| room - promised(state, class, node)).min()?;
    Some(allowances::room(state, class).map_or(room, |left| left.min(room)))
}

/// What the jobs below a node cost for which others give up quota or money: of its budget as good as spent for all others.
fn promised(state: &State, class: ClassId, node: QuotaId) -> Rate {
    let of = |id: &JobId| {
        let job = &state.jobs[*id];
        let (kept, theirs) = (job.kept?, quota_node(state, job.class)?);
        let shares = job.class != class && state.quota.is_below(theirs, node);
        shares.then(|| promise(state, job, kept.pool))
    };
    state.index.kept.iter().filter_map(of).fold(Rate(0), |sum, rate| sum + rate)
}

/// What a job costs where it was promised places, or what is bought for it there. Where nothing is known of that: the least.
fn promise(state: &State, job: &Job, pool: PoolId) -> Rate {
    let nodes = state.index.reserved_for(job.id).into_iter().filter_map(|id| state.nodes.get(&id));
    let there = nodes.map(|node| gang_rate(state, job.class, pool, node.offering));
    let rooms = state.reservations.values().filter(|room| room.job == job.id && !room.room.is_empty());
    let bought = rooms.map(|room| LaunchOption { counts: room.room.clone(), ..LaunchOption::default() }.bill(state));
    there.chain(bought).fold(least(state, job.class, pool), Rate::max)
}

fn quota_node(state: &State, class: ClassId) -> Option<QuotaId> {
    quota::node_of(state, state.classes[class].shape.queue)
}

/// What the smallest gang costs on an offering.
fn gang_rate(state: &State, class: ClassId, pool: PoolId, offering: OfferingId) -> Rate {
    unit_rate(state, class, pool, offering).times(fewest_units(state, class))
}

/// Workers, or GPUs of a spanning gang, in the smallest gang. Without GPUs, quota does not bound how far it grows: then in the largest one.
fn fewest_units(state: &State, class: ClassId) -> u64 {
    u64::from(match &state.classes[class].shape.gang {
        Gang::Workers { max, each, .. } if each.gpus == 0 => *max,
        gang => gang.fewest(),
    })
}

/// What one worker, or one GPU of a spanning gang, costs on an offering.
fn unit_rate(state: &State, class: ClassId, pool: PoolId, offering: OfferingId) -> Rate {
    let offer = &state.offerings[offering.index()].offer;
    unit_rate_at(state, class, pool, offer, offer.price)
}

/// The same, if the offering had this price.
fn unit_rate_at(state: &State, class: ClassId, pool: PoolId, offer: &Offering, price: Rate) -> Rate {
    let shape = &state.classes[class].shape;
    let (each, gpus, share) = match &shape.gang {
        Gang::Workers { each, .. } => {
            (each, u64::from(each.gpus), placement::effective_share(state, shape, pool, each))
        }
        Gang::Spanning { per_gpu, .. } => (per_gpu, 1, 1000),
    };
    let needs = WorkerNeeds { gpu_mem: each.gpu_mem, cpu: each.cpu, mem: each.mem };
    part_of(price, offer, gpus, share, needs)
}

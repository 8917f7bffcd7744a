//! Supply: what can be bought for a job now, when nodes come, and which stand ready with no work.
//!
//! ```text
//! candidates = offerings of the pool that the class fits, that its tier may buy, that are not known to be out of stock
//! options    = how many of each for the whole gang, or for the part that free places do not carry (launch.rs)
//! the option that costs least in the end, reclaims counted, under every ceiling is chosen
//! ```
//!
//! Never: above a ceiling, in flight included, spot at its maximum price. Never on unknown stock twice: what failed is left alone for
//! a while, and tried again with one node, then two, then four; the answer is waited for before anything dearer is bought. Throttling is not
//! stock: the same is asked again, not something dearer.

use super::launch::{self, LaunchOption};
use super::placement::{self, Carried};
use super::settings::buys;
use super::{allowances, batch, budget, capacity, demand, forecast, quota, reservations, settings};
use crate::catalog::CapacityType;
use crate::effect::WorkerPlace;
use crate::engine::Engine;
use crate::event::LaunchError;
use crate::ids::{ClassId, JobId, OfferingId, PoolId};
use crate::job::{Gang, Level};
use crate::policy::Buys;
use crate::reason::Reason;
use crate::state::brakes::Brake;
use crate::state::jobs::Phase;
use crate::state::nodes::{Node, NodePhase, OfferingRow, Purchase};
use crate::state::{Held, Shape, State};
use crate::units::{MilliGpu, Rate, Span, Timestamp};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Nodes that one purchase asks for at most on behalf of several jobs.
pub(crate) const MOST_AT_ONCE: u32 = 100;

/// Whether a gang of a class could be had with nothing else running.
pub(crate) fn possible_on_empty(state: &State, class: ClassId, pool: PoolId) -> bool {
    let any_of = |offerings: &[OfferingId]| !launch::possible(state, class, pool, offerings).is_empty();
    let fits = fits(state, class, pool);
    // Most often the first will do by itself.
    fits.chunks(1).any(any_of) || any_of(fits)
}

/// The level at which a gang of a class would have to be split, if that alone keeps it from ever running.
pub(crate) fn only_apart(state: &State, class: ClassId, pool: PoolId) -> Option<Level> {
    launch::only_apart(state, class, pool, fits(state, class, pool))
}

/// The cheapest capacity for one more gang of a class now, as far as is known.
pub(crate) fn cheapest(state: &State, class: ClassId, pool: PoolId) -> Result<LaunchOption, Reason> {
    choose(state, None, class, pool, &[], ANY)
}

/// Since when the stock of all of an option has been found good: since the last pause after it was found wanting. `None`: it was wanting last.
pub(crate) fn good_since(state: &State, option: &LaunchOption) -> Option<Timestamp> {
    let rows = || option.counts.iter().map(|(id, _)| &state.offerings[id.index()]);
    rows().all(|row| row.failures == 0).then(|| rows().map(|row| row.blocked_until).max().unwrap_or_default())
}

/// Whether what a gang has no free places for could be bought now.
pub(crate) fn can_be_had(engine: &mut Engine, job: JobId, pool: PoolId) -> bool {
    let class = engine.state.jobs[job].class;
    let carried = placement::carried(engine, job, class, pool);
    // Who only waits until buying is resumed stops nobody meanwhile.
    choose_if_bought(&engine.state, Some(job), class, pool, &carried, ANY).is_ok()
}

/// Offerings of a pool that can hold a worker of a class, sorted.
pub(crate) fn fits(state: &State, class: ClassId, pool: PoolId) -> &[OfferingId] {
    state.classes[class].fits.iter().find(|(p, _)| *p == pool).map_or(&[], |(_, f)| f)
}

/// Why nothing can be bought for the whole gang of a job now. `None`: it can.
pub(crate) fn refusal(state: &State, job: JobId, pool: PoolId) -> Option<Reason> {
    choose(state, Some(job), state.jobs[job].class, pool, &[], ANY).err()
}

/// Whether what a job lacks of places can be bought, or will be when what passes by itself has passed. What the ceilings never allow does not come.
pub(crate) fn comes(state: &State, job: JobId, pool: PoolId) -> bool {
    let class = state.jobs[job].class;
    match choose_if_bought(state, Some(job), class, pool, &[], ANY) {
        Ok(_) | Err(Reason::AwaitingNodes { .. } | Reason::LaunchRefused { .. }) => true,
        Err(Reason::Ceiling { .. }) => possible_on_empty(state, class, pool),
        Err(_) => false,
    }
}

/// Whether what a job has no free places for can be bought now, whether buying is paused or not, or once an answer that is awaited has come or a throttling
/// has passed. Others are not counted on to give anything up.
pub(crate) fn comes_soon(engine: &Engine, job: JobId, pool: PoolId) -> bool {
    let class = engine.state.jobs[job].class;
    let carried = placement::carried(engine, job, class, pool);
    match choose_if_bought(&engine.state, Some(job), class, pool, &carried, ANY) {
        Ok(_) | Err(Reason::AwaitingNodes { .. } | Reason::AwaitingProbe { .. }) => true,
        Err(Reason::LaunchRefused { offering, .. }) => passing(&engine.state, offering),
        Err(_) => false,
    }
}

/// Whether a gang of a class could ever have places in a pool, as the ceilings and the owned nodes there are.
pub(crate) fn could_have_places(state: &State, class: ClassId, pool: PoolId) -> bool {
    let Some(owned) = settings::pool(state, pool).map(|rules| rules.owned.is_some()) else { return false };
    if !owned {
        return possible_on_empty(state, class, pool);
    }
    let fits = fits(state, class, pool);
    let nodes = state.nodes.values().filter(|node| node.pool == pool && fits.binary_search(&node.offering).is_ok());
    let gpus = |node: &Node| u64::from(state.offerings[node.offering.index()].offer.gpus);
    let (count, gpus) = nodes.fold((0_u64, 0), |(count, all), node| (count + 1, all + gpus(node)));
    count > 0 && quota::share(state, class, pool) <= MilliGpu::whole(gpus)
}

/// Launch options for a whole gang that stock has nothing against, as they are tried.
pub(crate) fn options_in_stock(state: &State, class: ClassId, pool: PoolId) -> Vec<LaunchOption> {
    options_beside(state, class, pool, &[])
}

/// The same, and options for what free places do not carry of it.
pub(crate) fn options_beside(state: &State, class: ClassId, pool: PoolId, carried: &[Carried]) -> Vec<LaunchOption> {
    if no_purchase(state, pool).is_some() {
        return Vec::new();
    }
    let shape = &state.classes[class].shape;
    let mut open = bought(state, class, pool);
    open.retain(|id| budget::affordable_anew(state, class, pool, *id) && in_stock(state, *id));
    let mut options = launch::options(state, class, pool, &open, carried);
    options.retain(|c| may_be_had(state, c));
    launch::put_in_order(state, shape, &mut options, |c| c.counts.first().copied());
    options
}

/// Whether stock has nothing against an option.
pub(crate) fn may_be_had(state: &State, option: &LaunchOption) -> bool {
    option.counts.iter().all(|(id, _)| in_stock(state, *id)) && within_window(state, option)
}

/// Which offerings may be bought.
pub(crate) type These<'a> = &'a dyn Fn(&State, &OfferingId) -> bool;

/// All of them.
pub(crate) const ANY: These<'static> = &|_, _| true;

/// Why an operator's brake keeps anything from being bought into a pool.
pub(crate) fn no_purchase(state: &State, pool: PoolId) -> Option<Reason> {
    draining(state, pool).or_else(|| paused(state))
}

/// The same, where the pool is drained.
fn draining(state: &State, pool: PoolId) -> Option<Reason> {
    state.pool_brake(pool).map(|(_, order)| Reason::PoolDraining { pool, until: order.until })
}

/// The same, where buying is paused.
fn paused(state: &State) -> Option<Reason> {
    state.brake(&Brake::Buying).map(|order| Reason::BuyingPaused { until: order.until })
}

/// The cheapest option that can be had now by a job, or by anyone.
pub(crate) fn choose(
    state: &State,
    asker: Option<JobId>,
    class: ClassId,
    pool: PoolId,
    carried: &[Carried],
    these: These<'_>,
) -> Result<LaunchOption, Reason> {
    let option = choose_if_bought(state, asker, class, pool, carried, these)?;
    paused(state).map_or(Ok(option), Err)
}

/// The same, whether buying is paused or not.
fn choose_if_bought(
    state: &State,
    asker: Option<JobId>,
    class: ClassId,
    pool: PoolId,
    carried: &[Carried],
    these: These<'_>,
) -> Result<LaunchOption, Reason> {
    let (all, own) = held(state, asker, class, pool)?;
    let mut wanted = bought(state, class, pool);
    wanted.retain(|id| these(state, id));
    let option = choose_of(state, asker, class, pool, carried, &wanted, (all, own));
    option.map_err(|no| of_what_is_possible(state, class, pool, &wanted, no))
}

/// The same, of these offerings, with so much in use of the ceilings over all and in the pool.
fn choose_of(
    state: &State,
    asker: Option<JobId>,
    class: ClassId,
    pool: PoolId,
    carried: &[Carried],
    offerings: &[OfferingId],
    (all, own): (Held, Held),
) -> Result<LaunchOption, Reason> {
    let shape = &state.classes[class].shape;
    let mut wanted = offerings.to_vec();
    if !state.budgets.none() {
        let asked = |id: &OfferingId| budget::asked(state, class, pool, *id);
        let bills: Vec<Rate> = wanted.iter().map(asked).collect();
        wanted.retain(|id| budget::pays(state, class, asked(id)));
        if !bills.is_empty() && wanted.is_empty() {
            return Err(budget::no_purchase(state, class, &bills));
        }
    }
    let open: Vec<OfferingId> = wanted.iter().copied().filter(|id| may_have(state, *id)).collect();
    let mut options = elastic(state, asker, class, pool, &open, carried);
    if options.is_empty() {
        options = launch::options(state, class, pool, &open, carried);
    }
    let waits = |c: &LaunchOption| waits(state, c) || is_beyond_window(state, c);
    options.retain(|c| is_small_enough(state, c) && !(c.part && waits(c)));
    let bills: Vec<Rate> = options.iter().map(|c| c.bill(state)).collect();
    options.retain(|c| budget::pays(state, class, c.bill(state)));
    if !bills.is_empty() && options.is_empty() {
        return Err(budget::no_purchase(state, class, &bills));
    }
    // Of equally dear ones, where the fewest replicas are.
    let around = shape.service.map(|service| placement::spread::ReplicaSpread::of(state, pool, service));
    let near = |c: &LaunchOption| {
        let zone = |(id, _): &(OfferingId, u32)| state.offerings[id.index()].offer.zone.as_str();
        around.as_ref().map_or(0, |a| c.counts.iter().map(|l| a.in_zone(zone(l))).sum::<u32>())
    };
    let beyond = |c: &LaunchOption| is_beyond_window(state, c);
    launch::put_in_order(state, shape, &mut options, |c| (beyond(c), near(c), c.counts.first().copied()));
    let (mut hit, mut cheaper) = (None, None);
    let mut options = options.into_iter();
    while let Some(option) = options.next() {
        // How large a gang may be changes with what others take; why it waits does not.
        let smallest = option.size.is_none_or(|size| size.workers == shape.gang.fewest());
        match launch::bound_hit(state, pool, &option, all, own) {
            None if beyond(&option) => cheaper = cheaper.or(Some(option).filter(|_| smallest)),
            None => {
                if let Some(reason) = cheaper.and_then(|cheaper| awaited(state, asker, &cheaper, Some(&option))) {
                    return Err(reason);
                }
                let fits = |c: &LaunchOption| !beyond(c) && launch::bound_hit(state, pool, c, all, own).is_none();
                return unless_refused(state, largest_of_as_cheap(state, shape, option, options.filter(fits)));
            }
            Some(bound) => hit = hit.or(Some(bound).filter(|_| smallest)),
        }
    }
    let Some(bound) = hit else { return Err(out_of_stock(state, &wanted)) };
    let waits = cheaper.and_then(|cheaper| awaited(state, asker, &cheaper, None));
    Err(waits.unwrap_or(Reason::Ceiling { bound }))
}

/// Why nothing can be bought now of what could ever be: for what the ceilings never allow, or is not as close together as the gang requires, nobody
/// waits, however well budget and stock would do.
fn of_what_is_possible(state: &State, class: ClassId, pool: PoolId, wanted: &[OfferingId], no: Reason) -> Reason {
    if !matches!(no, Reason::Ceiling { .. } | Reason::AwaitingNodes { .. }) {
        return no;
    }
    let mut options = launch::possible(state, class, pool, wanted);
    if options.is_empty() {
        let apart = launch::only_apart(state, class, pool, wanted);
        return apart.map_or(no, |level| Reason::TopologyUnsatisfied { level });
    }
    let asked = |c: &LaunchOption| c.bill(state).max(budget::rate_on(state, class, pool, c));
    let bills: Vec<Rate> = options.iter().map(asked).collect();
    options.retain(|c| budget::pays(state, class, asked(c)));
    if options.is_empty() {
        return budget::no_purchase(state, class, &bills);
    }
    let in_stock = |c: &LaunchOption| c.counts.iter().all(|(id, _)| may_have(state, *id)) && is_small_enough(state, c);
    let blocked = options.iter().flat_map(|c| &c.counts).map(|(id, _)| *id);
    let blocked: Vec<OfferingId> = blocked.filter(|id| state.offerings[id.index()].blocked_until > state.now).collect();
    if blocked.is_empty() || options.iter().any(in_stock) { no } else { out_of_stock(state, &blocked) }
}

/// Whether nothing at all can be bought for a job, whatever it asks for and whoever makes way on the nodes that are there. Room that is kept for another
/// may yet be its own: with others stopped it may be within what its queue owns.
pub(crate) fn is_closed(state: &State, job: JobId, pool: PoolId) -> bool {
    let (all, own) = reservations::held_by_nodes(state, pool);
    never_bought(state, state.jobs[job].class, pool).is_some() || launch::no_room(state, pool, all, own).is_some()
}

/// Why nothing is bought for a class, whatever room there is.
fn never_bought(state: &State, class: ClassId, pool: PoolId) -> Option<Reason> {
    let shape = &state.classes[class].shape;
    let idle_only = || buys(state, shape) == Buys::Nothing && !capacity::late(state, shape);
    let closed = draining(state, pool).or_else(|| owned_full(state, pool));
    closed.or_else(|| idle_only().then_some(Reason::NothingIdle))
}

/// What of the ceilings is in use, and what of it is kept from the asker.
fn held(state: &State, asker: Option<JobId>, class: ClassId, pool: PoolId) -> Result<(Held, Held), Reason> {
    if let Some(no) = never_bought(state, class, pool) {
        return Err(no);
    }
    let (all, own) = reservations::held(state, pool, asker);
    match launch::no_room(state, pool, all, own) {
        Some(bound) => Err(Reason::Ceiling { bound }),
        None => Ok((all, own)),
    }
}

/// What is said of a pool of owned nodes to whom it has no room for. `None`: its nodes are bought.
pub(crate) fn owned_full(state: &State, pool: PoolId) -> Option<Reason> {
    settings::pool(state, pool)?.owned.as_ref()?;
    let offerings = state.index.free.range((pool, OfferingId(0))..=(pool, OfferingId(u32::MAX)));
    let (nodes, gpus, foreign) = offerings.fold((0, 0, 0), |(nodes, gpus, foreign), (_, free)| {
        (nodes + free.whole.len() as u32, gpus + free.gpus, foreign + free.foreign)
    });
    Some(Reason::OwnedNodesFull { pool, nodes, gpus, foreign })
}

/// Options for the gang of a job that is elastic, at its sizes.
fn elastic(
    state: &State,
    asker: Option<JobId>,
    class: ClassId,
    pool: PoolId,
    open: &[OfferingId],
    carried: &[Carried],
) -> Vec<LaunchOption> {
    let Some(job) = asker else { return Vec::new() };
    let known = demand::remaining_p90(state, job).filter(|left| *left > Span::ZERO);
    let most = most_workers(state, job, class, pool);
    launch::sized(state, class, pool, open, carried, (most, known.unwrap_or(demand::UNKNOWN)))
}

/// How many workers quota and budgets let a gang have. What is kept for others beside it is left to them.
fn most_workers(state: &State, job: JobId, class: ClassId, pool: PoolId) -> u32 {
    if reservations::kept_beside(state, job).next().is_some() {
        return 0;
    }
    let most = budget::most(state, class, pool);
    let most = allowances::most(state, job, pool).map_or(most, |left| left.min(most));
    u32::try_from(most.0.checked_div(quota::share_of_one(state, class, pool).0).unwrap_or(u64::MAX)).unwrap_or(u32::MAX)
}

/// The largest gang of those whose work costs hardly more than with the cheapest, which are after it in order.
fn largest_of_as_cheap(
    state: &State,
    shape: &Shape,
    cheapest: LaunchOption,
    others: impl Iterator<Item = LaunchOption>,
) -> LaunchOption {
    let workers = |c: &LaunchOption| c.size.map_or(0, |size| size.workers);
    if cheapest.size.is_none() {
        return cheapest;
    }
    let (apart, least) = (cheapest.apart, cheapest.expected_for_work(state, shape));
    let most = Rate(least.0.saturating_add(least.0 / launch::AS_CHEAP));
    let as_cheap = |c: &LaunchOption| c.apart == apart && c.expected_for_work(state, shape) <= most;
    let none_larger = |best: LaunchOption, c: LaunchOption| if workers(&c) > workers(&best) { c } else { best };
    others.filter(as_cheap).fold(cheapest, none_larger)
}

/// Why a job waits for the answer to a launch that tries whether there is stock, instead of what costs more: it comes within seconds. Not past
/// the time at which the other has to be bought for its start target, and not where the call should have been answered long ago.
fn awaited(
    state: &State,
    asker: Option<JobId>,
    cheaper: &LaunchOption,
    other: Option<&LaunchOption>,
) -> Option<Reason> {
    let probed = |(id, _): &&(OfferingId, u32)| state.offerings[id.index()].is_probed();
    let tried = |(id, _): &(OfferingId, u32)| answered_by(state, *id).map(|until| (until, *id));
    let (until, offering) = cheaper.counts.iter().filter(probed).filter_map(tried).max()?;
    let target = asker.map(|job| &state.jobs[job]).filter(|row| row.first_start.is_none());
    let by = target.and_then(|row| row.start_target).map(|target| target.by);
    let boot = other.map_or(Span::ZERO, |other| other.boot(state));
    let until = by.map_or(until, |by| until.min(by - boot));
    (until > state.now).then_some(Reason::AwaitingProbe { offering, until })
}

/// By when the last launch of an offering that is out should be answered.
fn answered_by(state: &State, id: OfferingId) -> Option<Timestamp> {
    let of = |purchase: &&Purchase| purchase.offering == id;
    let last = state.purchases.values().filter(of).map(|purchase| purchase.decided_at).max()?;
    Some(last + state.lifecycle().launch_retry)
}

/// Since when all that may be bought for a class in a pool has been refused: something else was had before. `None`: of something the last launch went well, or
/// nothing of it may be bought.
pub(crate) fn refused_since(state: &State, class: ClassId, pool: PoolId) -> Option<Timestamp> {
    let since = |id: OfferingId| state.offerings[id.index()].refused_since();
    let all: Option<Vec<Timestamp>> = bought(state, class, pool).into_iter().map(since).collect();
    all?.into_iter().max()
}

/// What speaks against it that something can be had: of what is asked for, something was refused, or so much of it has not been had since it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Doubt {
    /// Since when the last of it to be refused is. `None`: some of it has been had since.
    pub refused: Option<Timestamp>,
}

/// The doubt whether what a job has no free places for can be had. `None`: with nothing that there is doubt about it could be bought.
pub(crate) fn doubt(engine: &mut Engine, job: JobId, pool: PoolId) -> Option<Doubt> {
    let class = engine.state.jobs[job].class;
    let all = bought(&engine.state, class, pool);
    // Nothing has been refused lately, so that however many are asked for there is no doubt.
    if all.iter().all(|id| is_certain(&engine.state, *id, u32::MAX)) {
        return None;
    }
    let carried = placement::carried(engine, job, class, pool);
    let others = |state: &State, id: &OfferingId| state.offerings[id.index()].refused_since().is_none();
    let option = choose_if_bought(&engine.state, Some(job), class, pool, &carried, &others);
    match option {
        Ok(option) => doubt_of(&engine.state, &option.counts),
        Err(_) => Some(Doubt { refused: last_refused(&engine.state, all.into_iter()) }),
    }
}

/// The same for so many nodes of some offerings.
pub(crate) fn doubt_of(state: &State, counts: &[(OfferingId, u32)]) -> Option<Doubt> {
    let certain = counts.iter().all(|(id, count)| is_certain(state, *id, *count));
    (!certain).then(|| Doubt { refused: last_refused(state, counts.iter().map(|(id, _)| *id)) })
}

/// Whether so many nodes of an offering have been had since it was last refused, or it never was.
fn is_certain(state: &State, id: OfferingId, count: u32) -> bool {
    let row = &state.offerings[id.index()];
    row.refused_since().is_none() && (!row.is_probed() || count <= row.window)
}

fn last_refused(state: &State, offerings: impl Iterator<Item = OfferingId>) -> Option<Timestamp> {
    offerings.filter_map(|id| state.offerings[id.index()].refused_since()).max()
}

/// Offerings of a pool that may be bought for a class, whatever is known of their stock.
pub(crate) fn bought(state: &State, class: ClassId, pool: PoolId) -> Vec<OfferingId> {
    let shape = &state.classes[class].shape;
    let nothing = buys(state, shape) == Buys::Nothing;
    let may = |id: &OfferingId| {
        let capacity = state.offerings[id.index()].offer.capacity;
        let for_late = capacity == CapacityType::OnDemand && capacity::late(state, shape);
        let wanted = if nothing { for_late } else { capacity::wanted(state, class, capacity) };
        wanted && capacity != CapacityType::Owned
    };
    fits(state, class, pool).iter().copied().filter(may).collect()
}

/// Offerings of a pool that a class may be bought now, sorted. `new`: nodes in flight that do not count.
pub(crate) fn open(state: &State, class: ClassId, pool: PoolId, new: &BTreeMap<OfferingId, u32>) -> Vec<OfferingId> {
    let good = |id: &OfferingId| {
        let row = &state.offerings[id.index()];
        row.listed
            && row.blocked_until <= state.now
            && room(state, *id, new) > 0
            && budget::affordable_anew(state, class, pool, *id)
    };
    let mut open = if no_purchase(state, pool).is_some() { Vec::new() } else { bought(state, class, pool) };
    open.retain(good);
    open
}

/// How many more nodes of an offering may be asked for.
pub(crate) fn room(state: &State, id: OfferingId, new: &BTreeMap<OfferingId, u32>) -> u32 {
    let row = &state.offerings[id.index()];
    let in_flight = row.in_flight.saturating_sub(new.get(&id).copied().unwrap_or(0));
    row.window.max(1).saturating_sub(in_flight)
}

/// Whether a booked job waits for the answer to a launch, which comes within seconds. Where that is a refusal, it waits again for what was kept for it.
pub(crate) fn is_unanswered(state: &State, job: JobId) -> bool {
    let soon = |purchase: &Purchase| purchase.decided_at + state.lifecycle().launch_retry > state.now;
    let asked = |place: &WorkerPlace| {
        let node = state.nodes.get(&place.node).filter(|node| node.phase == NodePhase::Requested);
        node.and_then(|node| state.purchases.get(&node.purchase)).is_some_and(soon)
    };
    let row = &state.jobs[job];
    row.phase == Phase::Booked && row.places.iter().any(asked)
}

/// Throttling that has lasted for so long, and for a boot, does not pass by itself.
const PASSES_WITHIN: Span = Span::mins(30);

/// Too many calls, or the cloud's own fault: the same is asked again in a moment, for a while.
fn passing(state: &State, id: OfferingId) -> bool {
    let row = &state.offerings[id.index()];
    let lasts = |since: Timestamp| since + demand::boot_p90(state, id).max(PASSES_WITHIN) <= state.now;
    matches!(row.blocked_by, Some(LaunchError::Throttled | LaunchError::Server))
        && !row.refused_since().is_some_and(lasts)
}

/// Whether an option has to wait out a throttling. One that counts on free places does not: they may be gone by then, and what a class
/// waits for must not change with what others take.
fn waits(state: &State, option: &LaunchOption) -> bool {
    let blocked = |id: OfferingId| state.offerings[id.index()].blocked_until > state.now;
    option.counts.iter().any(|(id, _)| blocked(*id) && passing(state, *id))
}

fn unless_refused(state: &State, option: LaunchOption) -> Result<LaunchOption, Reason> {
    for &(offering, _) in &option.counts {
        let row = &state.offerings[offering.index()];
        if row.blocked_until > state.now
            && passing(state, offering)
            && let Some(error) = row.blocked_by
        {
            return Err(Reason::LaunchRefused { offering, error, until: row.blocked_until });
        }
    }
    Ok(option)
}

/// Nothing is known against its stock, or not against a smaller request, and its window is open.
fn in_stock(state: &State, id: OfferingId) -> bool {
    let row = &state.offerings[id.index()];
    may_have(state, id) && row.in_flight < row.window.max(1)
}

/// Nothing is known against its stock, or not against a smaller request.
fn may_have(state: &State, id: OfferingId) -> bool {
    let row = &state.offerings[id.index()];
    row.listed && (row.blocked_until <= state.now || passing(state, id) || may_have_fewer(row))
}

/// A large request was refused for want of stock: a smaller one may still be met. One has been since, where nothing is said of the refusal any more.
fn may_have_fewer(row: &OfferingRow) -> bool {
    row.blocked_by.is_none_or(|by| by == LaunchError::Capacity && row.refused_size > 1)
}

fn within_window(state: &State, option: &LaunchOption) -> bool {
    is_small_enough(state, option) && !is_beyond_window(state, option)
}

/// Smaller than what was refused for want of stock.
fn is_small_enough(state: &State, option: &LaunchOption) -> bool {
    option.counts.iter().all(|(id, n)| {
        let row = &state.offerings[id.index()];
        let refused = row.blocked_until > state.now && row.blocked_by.is_none_or(|by| by == LaunchError::Capacity);
        // One more may be asked for where the last launch went well.
        let least = if row.blocked_by.is_none() { 2 } else { 0 };
        !refused || *n < row.refused_size.max(least)
    })
}

/// The answers to what is in flight decide whether it may be asked for. A gang may be larger than the window of a probe: it is one request, and
/// goes whole or not at all.
fn is_beyond_window(state: &State, option: &LaunchOption) -> bool {
    option.counts.iter().any(|(id, n)| {
        let row = &state.offerings[id.index()];
        row.in_flight > 0 && row.in_flight.saturating_add(*n) > row.window.max(1)
    })
}

/// Which of the offerings is tried again first, and why it is not tried now.
fn out_of_stock(state: &State, wanted: &[OfferingId]) -> Reason {
    let first = wanted.iter().min_by_key(|id| (state.offerings[id.index()].blocked_until, **id));
    let Some(&offering) = first else { return Reason::NoMatchingPool };
    let row = &state.offerings[offering.index()];
    match row.blocked_by {
        // The window is used up: the answers to what is in flight decide.
        _ if row.blocked_until <= state.now => {
            Reason::AwaitingNodes { eta: state.now + demand::boot_p90(state, offering) }
        }
        Some(LaunchError::Capacity) | None => Reason::Stockout { offering, until: row.blocked_until },
        Some(error) => Reason::LaunchRefused { offering, error, until: row.blocked_until },
    }
}

/// How many more nodes of this offering the jobs behind the head of a class queue would fill at once.
pub(crate) fn worth_adding(state: &State, job: JobId, pool: PoolId, offering: OfferingId) -> u32 {
    let class = state.jobs[job].class;
    let shape = &state.classes[class].shape;
    let offer = &state.offerings[offering.index()].offer;
    let per_node = match &shape.gang {
        Gang::Workers { min: 1, .. } => launch::units_a_node(state, shape, pool, offering, offer.gpus),
        Gang::Spanning { gpus, .. } => launch::units_a_node(state, shape, pool, offering, offer.gpus) / (*gpus).max(1),
        Gang::Workers { .. } => return 0,
    };
    let waiting = state.index.bought_for(class) as u64;
    let asked = quota::share(state, class, pool);
    let available = allowances::available(state, job, pool);
    let by_quota = available.0.checked_div(asked.0).unwrap_or(u64::MAX);
    let by_budget = budget::how_many(state, class, pool, offering);
    let waiting = waiting.min(batch::room(state, job));
    let nodes = waiting.min(by_quota).min(by_budget).div_ceil(u64::from(per_node.max(1)));
    let nodes = nodes.min(budget::nodes_paid(state, class, offering));
    let row = &state.offerings[offering.index()];
    let window = row.window.saturating_sub(row.in_flight);
    let mut count = u32::try_from(nodes).unwrap_or(u32::MAX).min(window).clamp(1, MOST_AT_ONCE);
    let (all, own) = reservations::held(state, pool, None);
    while count > 1 && launch::bound_hit(state, pool, &LaunchOption::of(offering, count), all, own).is_some() {
        count /= 2;
    }
    count - 1
}

/// Whether anybody waits who may be on a node of an offering, and for nothing but a node.
pub(crate) fn is_needed(state: &State, pool: PoolId, offering: OfferingId) -> bool {
    let capacity = state.offerings[offering.index()].offer.capacity;
    let needs = |class: &ClassId| {
        let fits = fits(state, *class, pool).binary_search(&offering).is_ok();
        fits && buys(state, &state.classes[*class].shape) != Buys::Nothing
            && capacity::wanted(state, *class, capacity)
            && quota::refusal(state, *class, pool, quota::share(state, *class, pool)).is_none()
            && budget::refusal(state, *class, pool).is_none()
    };
    state.index.queued.keys().any(needs)
}

/// Claims of a pool with nothing on them that can still take work.
pub(crate) fn spare_nodes(state: &State, pool: PoolId) -> impl Iterator<Item = &Node> {
    let both = state.index.idle.iter().chain(&state.index.unbooked);
    both.filter_map(|id| state.nodes.get(id)).filter(move |node| node.pool == pool)
}

/// Whether one more node of an offering could be had now, or will be known to within seconds.
pub(crate) fn is_to_be_had(state: &State, id: OfferingId) -> bool {
    let open = state.offerings[id.index()].blocked_until <= state.now;
    let answered = || answered_by(state, id).is_some_and(|until| until > state.now);
    open && may_have(state, id) && (!is_tried(state, id) || answered())
}

/// Whether the answer to what is in flight of an offering decides whether one more may be asked for.
pub(crate) fn is_tried(state: &State, id: OfferingId) -> bool {
    is_beyond_window(state, &LaunchOption::of(id, 1))
}

/// When a node is expected to be ready.
pub(crate) fn ready_at(state: &State, node: &Node) -> Timestamp {
    if node.phase == NodePhase::Ready {
        return state.now;
    }
    // What was seen counts from the decision, what the catalogue states from the launch.
    let seen = state.observed.boot(node.offering, 900).map(|boot| node.decided_at + boot);
    seen.unwrap_or(node.since + state.offerings[node.offering.index()].offer.boot)
}

/// When the nodes that a booked job waits for are expected.
pub(crate) fn eta(state: &State, job: JobId) -> Timestamp {
    let of = |node: &Node| ready_at(state, node);
    let nodes = state.jobs[job].places.iter().filter_map(|p| state.nodes.get(&p.node));
    nodes.filter(|n| n.phase != NodePhase::Ready).map(of).max().unwrap_or(state.now)
}

/// The same as it is told, which is never in the past: a boot that has outlasted what was expected goes on for half as long again as it has lasted. What is
/// decided goes by what was expected, so that nobody is stopped because a boot takes a moment longer.
pub(crate) fn eta_as_told(state: &State, job: JobId) -> Timestamp {
    let of = |node: &Node| {
        let at = ready_at(state, node);
        if at < state.now && node.phase.is_coming() {
            forecast::once_outlasted(state.now, state.now.since(node.decided_at))
        } else {
            at.max(state.now)
        }
    };
    let nodes = state.jobs[job].places.iter().filter_map(|p| state.nodes.get(&p.node));
    nodes.map(of).max().unwrap_or(state.now)
}

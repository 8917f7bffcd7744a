//! What reservations mean for all other jobs: which are let in, which nodes stay, what counts as taken.
//!
//! Never: makes one, or gives one up.

use super::launch::LaunchOption;
use super::rank::{self, Taker};
use super::{allowances, batch, demand, launch, order, quota, settings, start_targets, supply};
use crate::catalog::CapacityType;
use crate::effect::WorkerPlace;
use crate::ids::{ClassId, JobId, NodeId, OfferingId, PoolId};
use crate::policy::{Buys, Ceiling};
use crate::reason::Reason;
use crate::state::index::OrderKey;
use crate::state::nodes::{Node, NodePhase};
use crate::state::reservations::Reservation;
use crate::state::{Held, State, Urgency};
use crate::units::{MilliGpu, Span, Timestamp};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::cmp::{Ordering, Reverse};

/// Whether a node takes a job as far as reservations ahead go: it is not kept, or not from this job, or what frees there was promised to the
/// job, or it will be gone in time.
pub(crate) fn lets_in(state: &State, node: &Node, job: JobId) -> bool {
    lets_in_one(state, node, job, || may_have_kept(state, job, node.pool))
}

/// The same for one of whom that is known: whether it may have what is kept in the pool of the node, which takes long to find out.
pub(crate) fn lets_in_one(state: &State, node: &Node, job: JobId, may_have_kept: impl Fn() -> bool) -> bool {
    if state.reservations.is_empty() || node.reserved.iter().any(|(owner, _)| *owner == job) {
        return true;
    }
    // A node of one pool may be given back for a purchase in another.
    let here = state.reservations.iter().filter(|(_, a)| a.nodes.binary_search(&node.id).is_ok());
    let is_for = |pool: PoolId, holder| {
        if pool == node.pool { may_have_kept() } else { is_for(state, holder, pool, job, node.pool) }
    };
    let from_it = here.filter(|(pool, a)| !is_for(**pool, a.job));
    let mut from_it = from_it.map(|(_, a)| a).peekable();
    if from_it.peek().is_none() {
        return true;
    }
    // Unknown, or its estimate is used up already: no promise that it ends in time.
    let lasts = demand::remaining_p90(state, job).filter(|span| *span > Span::ZERO);
    let ends = lasts.filter(|_| node.phase == NodePhase::Ready).map(|span| state.now + span);
    from_it.all(|a| ends.is_some_and(|at| at <= a.from))
}

/// The other jobs for which nodes are kept that are kept for a job.
pub(crate) fn kept_beside(state: &State, job: JobId) -> impl Iterator<Item = JobId> + '_ {
    let nodes = state.index.reserved_for(job).into_iter().filter_map(|id| state.nodes.get(&id));
    nodes.flat_map(|node| &node.reserved).map(|kept| kept.0).filter(move |kept| *kept != job)
}

/// Whether who has the reservation of a pool gives way to another that asks in a pool. What others are stopped for changes hands in preempt, by rank.
pub(crate) fn gives_way(state: &State, holder: JobId, pool: PoolId, to: JobId, asks: PoolId) -> bool {
    state.jobs[holder].kept.is_none() && passes(state, to, asks, holder, pool)
}

/// Whether a job that asks in a pool goes before the holder of the reservation of a pool, as in the order of service: who is within what its queue owns
/// before who would borrow, whatever their tiers, then as [`before`] says. An owner that is behind by tier goes before a borrower only where it may take
/// from that one what it is given, and so does not wait for it.
///
/// Of two jobs never each goes before the other: who owns as the one that asks does so as the holder too, with the runs gone that it waits for.
pub(crate) fn passes(state: &State, by: JobId, asks: PoolId, holder: JobId, pool: PoolId) -> bool {
    let first = before(state, by, holder);
    let theirs = &state.jobs[holder];
    let reclaims = || {
        asks == pool
            && state.has_quotas(pool)
            && theirs.kept.is_none()
            && Taker::of(state, by, pool).is_some_and(|taker| rank::may_reclaim(state, &taker, theirs.tier))
    };
    (first || reclaims())
        && match allowances::by_ownership(state, by, asks, holder, pool) {
            Ordering::Less => true,
            Ordering::Equal => first,
            Ordering::Greater => false,
        }
}

/// Whether what is kept in a pool for a job is there for another as well, that asks in a pool. Jobs of a class ask the same, and take what is kept for one
/// of them in their order: who goes first in it would else wait for what nobody uses. In a queue whose shortest goes first its like may pass the holder,
/// until that has waited as many times as long as it is expected to take as the order asks of it: who comes until then and takes no time goes before it too.
fn is_for(state: &State, holder: JobId, pool: PoolId, by: JobId, asks: PoolId) -> bool {
    state.jobs[holder].class == state.jobs[by].class
        || gives_way(state, holder, pool, by, asks)
        || may_be_passed(state, holder, by)
}

/// Whether a job that asks in a pool may have what is kept there. `false`: nothing is.
pub(crate) fn may_have_kept(state: &State, by: JobId, pool: PoolId) -> bool {
    state.reservations.get(&pool).is_some_and(|kept| is_for(state, kept.job, pool, by, pool))
}

/// Whether a job of the same queue, tier and priority may still pass one by for which something is kept, and was not taken from others.
pub(crate) fn may_be_passed(state: &State, holder: JobId, by: JobId) -> bool {
    let (kept, one) = (&state.jobs[holder], &state.jobs[by]);
    let alike = (kept.queue, kept.tier, kept.priority) == (one.queue, one.tier, one.priority);
    let waits = || order::place_with(state, holder, None).arrival > state.now;
    alike && kept.kept.is_none() && kept.start_by == Timestamp::NEVER && waits()
}

/// Room under the ceilings for who asks in a pool, when nodes are given back.
pub(crate) struct Room {
    pool: PoolId,
    all: Held,
    own: Held,
    /// Kept as places for others, or given back for them: their room is not this one's.
    others: BTreeSet<NodeId>,
}

impl Room {
    /// What kept room leaves to a job.
    pub(crate) fn of(state: &State, pool: PoolId, asker: JobId) -> Room {
        let (all, own) = held(state, pool, Some(asker));
        let others = all_kept_from(state, Some((asker, pool))).flat_map(|(_, kept)| &kept.nodes).copied().collect();
        Room { pool, all, own, others }
    }

    /// Whether an option may be bought without these nodes, of which some may be in other pools.
    pub(crate) fn holds(&self, state: &State, option: &LaunchOption, gone: &[NodeId]) -> bool {
        self.holds_without(
            state,
            option,
            gone.iter().map(|id| self.held_by(state, *id)).fold(Gone::default(), Gone::plus),
        )
    }

    fn holds_without(&self, state: &State, option: &LaunchOption, gone: Gone) -> bool {
        launch::bound_hit(state, self.pool, option, self.all.less(gone.all), self.own.less(gone.own)).is_none()
    }

    fn held_by(&self, state: &State, node: NodeId) -> Gone {
        if self.others.contains(&node) {
            return Gone::default();
        }
        let all = state.held_on(&[node]);
        let here = state.nodes.get(&node).is_some_and(|node| node.pool == self.pool);
        Gone { all, own: if here { all } else { Held::default() } }
    }

    /// What there is room for when nodes are given back in an order.
    pub(crate) fn without(&self, state: &State, nodes: &[NodeId]) -> Without<'_> {
        let each: Vec<Gone> = nodes.iter().map(|id| self.held_by(state, *id)).collect();
        let mut gone = Gone::default();
        let first = each.iter().map(|one| {
            gone = gone.plus(*one);
            gone
        });
        Without { room: self, nodes: nodes.to_vec(), first: first.collect(), each }
    }
}

/// What nodes hold against the ceilings: over all pools, and in one.
#[derive(Clone, Copy, Default)]
struct Gone {
    all: Held,
    own: Held,
}

impl Gone {
    fn plus(self, other: Gone) -> Gone {
        Gone { all: self.all.plus(other.all), own: self.own.plus(other.own) }
    }

    fn less(self, other: Gone) -> Gone {
        Gone { all: self.all.less(other.all), own: self.own.less(other.own) }
    }
}

/// Nodes that are given back in an order.
pub(crate) struct Without<'a> {
    room: &'a Room,
    nodes: Vec<NodeId>,
    each: Vec<Gone>,
    /// What the first of them hold together.
    first: Vec<Gone>,
}

impl Without<'_> {
    /// How many have to be given back at the least, in their order, so that an option may be bought. `None`: all are not enough.
    pub(crate) fn count(&self, state: &State, option: &LaunchOption) -> Option<usize> {
        let less = self.first.partition_point(|gone| !self.room.holds_without(state, option, *gone));
        (less < self.nodes.len()).then_some(less + 1)
    }

    /// The first that are enough for an option, without those that are not needed. `None`: all of them are not enough.
    pub(crate) fn fewest(&self, state: &State, option: &LaunchOption) -> Option<Vec<NodeId>> {
        let count = self.count(state, option)?;
        let mut gone = self.first[count - 1];
        let mut taken = Vec::new();
        // Tried back, the last first: what is not needed stays.
        for at in (0..count).rev() {
            let less = gone.less(self.each[at]);
            if self.room.holds_without(state, option, less) {
                gone = less;
            } else {
                taken.push(self.nodes[at]);
            }
        }
        taken.reverse();
        Some(taken)
    }
}

/// Whether all of these places are on nodes that are kept for a job.
pub(crate) fn own(state: &State, job: JobId, places: &[WorkerPlace]) -> bool {
    places.iter().all(|place| state.index.reserved.contains(&(job, place.node)))
}

/// What is held against the ceilings as one who asks has to see it: room kept for a gang before it counts as taken.
pub(crate) fn held(state: &State, pool: PoolId, asker: Option<JobId>) -> (Held, Held) {
    let (mut all, mut own) = held_by_nodes(state, pool);
    for room in kept_from(state, asker.map(|asker| (asker, pool))) {
        all = all.plus(room.held);
        if room.pool == pool {
            own = own.plus(room.own);
        }
    }
    (all, own)
}

/// What nodes hold against the ceilings, over all pools and in one.
pub(crate) fn held_by_nodes(state: &State, pool: PoolId) -> (Held, Held) {
    (state.totals.all, state.totals.pools.get(pool.index()).copied().unwrap_or_default())
}

/// Room under the ceilings that is kept for a gang.
pub struct KeptRoom {
    /// In which pool.
    pub pool: PoolId,
    /// For which job.
    pub job: JobId,
    /// What of it no node holds yet, over all pools.
    pub held: Held,
    /// What of it no node of its pool holds yet.
    pub own: Held,
}

/// Whether a gang has places for all of it where nodes are given back for it: in the room that is kept, and on the nodes that are reserved for it beside.
pub(crate) fn holds_gang(state: &State, pool: PoolId, reservation: &Reservation) -> bool {
    let job = reservation.job;
    let shape = &state.classes[state.jobs[job].class].shape;
    let units = |id: OfferingId, count: u32| {
        let gpus = state.offerings[id.index()].offer.gpus;
        launch::units_a_node(state, shape, pool, id, gpus).saturating_mul(count)
    };
    let bought = reservation.room.iter().map(|(id, count)| units(*id, *count));
    let own = state.index.reserved_for(job).into_iter().filter(|id| reservation.nodes.binary_search(id).is_err());
    let beside = own.filter_map(|id| state.nodes.get(&id)).map(|node| units(node.offering, 1));
    bought.chain(beside).fold(0, u32::saturating_add) >= shape.gang.fewest()
}

/// What room is kept from one who asks in a pool, by pool. The asker is a job of the state.
pub fn kept_from(state: &State, asker: Option<(JobId, PoolId)>) -> impl Iterator<Item = KeptRoom> {
    let rooms = all_kept_from(state, asker).filter(|(_, a)| !a.room.is_empty());
    rooms.map(|(pool, reservation)| {
        // What still has to leave holds a part of the room until it does.
        let (room, leave) = (state.held_by(&reservation.room), &reservation.nodes);
        let here = |id: &NodeId| state.nodes.get(id).is_some_and(|node| node.pool == *pool);
        let of_pool: Vec<NodeId> = leave.iter().copied().filter(here).collect();
        let (held, own) = (room.less(state.held_on(leave)), room.less(state.held_on(&of_pool)));
        KeptRoom { pool: *pool, job: reservation.job, held, own }
    })
}

/// The reservations that are kept from one who asks in a pool, by pool.
fn all_kept_from(state: &State, asker: Option<(JobId, PoolId)>) -> impl Iterator<Item = (&PoolId, &Reservation)> {
    let is_for = move |pool: PoolId, holder| asker.is_some_and(|(by, asks)| is_for(state, holder, pool, by, asks));
    state.reservations.iter().filter(move |(pool, a)| !is_for(**pool, a.job))
}

/// Whether an idle node stays because a gang will go on it. A tier that buys nothing keeps no node either, and none is kept for a gang that it does not let
/// in, because it is given back for another.
pub(crate) fn keeps(state: &State, node: &Node) -> bool {
    let keeps = |a: &Reservation| {
        let tier = state.jobs[a.job].tier;
        let buys = settings::tier(state, tier).map_or(Buys::Nothing, |t| t.buys);
        buys != Buys::Nothing
            && a.room.is_empty()
            && a.nodes.binary_search(&node.id).is_ok()
            && (!vacates(state, node) || lets_in(state, node, a.job))
    };
    state.reservations.get(&node.pool).is_some_and(keeps)
}

/// Whether an idle node is given back at once, because its room is kept for a gang.
pub(crate) fn vacates(state: &State, node: &Node) -> bool {
    let of = |a: &Reservation| !a.room.is_empty() && a.nodes.binary_search(&node.id).is_ok();
    state.reservations.values().any(of)
}

/// Whether nodes of a pool are given back so that a gang finds room, or that room is kept in it.
pub(crate) fn makes_room(state: &State, pool: PoolId) -> bool {
    let here = |id: &NodeId| state.nodes.get(id).is_some_and(|node| node.pool == pool);
    let mut rooms = state.reservations.iter().filter(|(_, a)| !a.room.is_empty());
    rooms.any(|(of, a)| *of == pool || a.nodes.iter().any(here))
}

/// Why a job that has a reservation waits. `None`: it has none, or nothing is known of its time.
pub(crate) fn reason(state: &State, job: JobId) -> Option<Reason> {
    // When that time has come the job is about to start, or its time is estimated anew.
    let reservation = state.reservations.values().find(|a| a.job == job && a.from > state.now)?;
    let (from, until) = (reservation.from, reservation.from);
    match (reservation.delayed, reservation.known) {
        (true, _) => Some(Reason::ReservationDelayed { until }),
        (false, true) => Some(Reason::Reserved { from }),
        (false, false) => None,
    }
}

/// Whether a job comes before another whatever the shares of their queues, and whatever they own: by tier, one below its `minShare` first, priority,
/// arrival and, where the queue goes by it, what is expected of it. This changes only as work is given places or ends.
pub(crate) fn before(state: &State, one: JobId, other: JobId) -> bool {
    calmly(state, one) < calmly(state, other)
}

/// The key of the order in which jobs are tried, whatever their queues own: the least goes first.
pub(crate) fn strictly(state: &State, job: JobId) -> (Reverse<(bool, i32)>, OrderKey) {
    (Reverse(order::turn_of_tier(state, state.jobs[job].tier)), order::place_with(state, job, None))
}

/// The same without deadlines: one that comes to count later must not move what is kept.
fn calmly(state: &State, job: JobId) -> (Reverse<(bool, i32)>, OrderKey) {
    let (turn, key) = strictly(state, job);
    (turn, OrderKey { start_by: Timestamp::NEVER, ..key })
}

/// Whether nothing is left of what the queue of a job owns in the first of its pools. It is the same for all jobs of a queue there, so that a large one,
/// which would borrow, is kept for before the small ones behind it, which would not.
pub(crate) fn has_spent_its_own(state: &State, job: JobId) -> bool {
    let row = &state.jobs[job];
    let (pool, quota) = (settings::pools(state, row.class).next(), quota::quota_of(state, row));
    pool.zip(quota).is_some_and(|(pool, quota)| !quota::has_own_left(state, quota, pool))
}

/// Whether a reservation is one job's before it is another's. One key for each job, so that no circle exists, of two jobs or of more: [`passes`] compares
/// two by two, and has them. A large job of a queue goes before a small one behind it, that as an owner before a borrower of a higher tier, and this one
/// before the large one, which would borrow too.
pub(crate) fn comes_first(state: &State, one: JobId, other: JobId) -> bool {
    let key = |job| (has_spent_its_own(state, job), calmly(state, job));
    key(one) < key(other)
}

/// Whether a job may have the reservation of a pool, which another may have now.
pub(crate) fn may_claim(state: &State, job: JobId, pool: PoolId, holder: Option<JobId>) -> bool {
    let class = state.jobs[job].class;
    let large = is_large(state, class, pool);
    let gives_way = |holder| gives_way(state, holder, pool, job, pool) && comes_first(state, job, holder);
    (large || is_beside_others(state, class, pool))
        && holder.is_none_or(gives_way)
        && may_reserve(state, job, pool)
        && if large { lacks_capacity(state, job, pool) } else { lacks_room(state, job, pool) }
}

/// Whether nodes that a class does not fit stand under the ceilings that bound it: of what frees there nothing is its own.
fn is_beside_others(state: &State, class: ClassId, pool: PoolId) -> bool {
    let fits = supply::fits(state, class, pool);
    let bounded = bounds_all_pools(state);
    let other = |(of, id): (PoolId, OfferingId)| if of == pool { fits.binary_search(&id).is_err() } else { bounded };
    !fits.is_empty() && bought(state).any(other)
}

/// Whether some class may stand beside nodes that it does not fit: there is more than one offering, and nodes under a ceiling.
pub(crate) fn nodes_differ(state: &State) -> bool {
    let policy = state.policy.as_deref();
    let in_pool = || policy.is_some_and(|policy| policy.pools.iter().any(|pool| pool.ceiling != Ceiling::default()));
    state.offerings.len() > 1 && (bounds_all_pools(state) || in_pool()) && bought(state).next().is_some()
}

/// The offerings, by pool, of which there are nodes that hold something of the ceilings.
fn bought(state: &State) -> impl Iterator<Item = (PoolId, OfferingId)> + '_ {
    let there = state.index.free.iter().filter(|(_, free)| !free.whole.is_empty()).map(|(of, _)| *of);
    there.filter(|(_, id)| state.offerings[id.index()].offer.capacity != CapacityType::Owned)
}

/// Whether nodes of one pool may leave no room for those of another.
pub(crate) fn bounds_all_pools(state: &State) -> bool {
    state.policy.as_deref().is_some_and(|policy| policy.limits != Ceiling::default())
}

/// Whether a gang of a class has to be kept places for. One GPU does not, or the least part of one that is shared: the first that frees is its own.
pub(crate) fn is_large(state: &State, class: ClassId, pool: PoolId) -> bool {
    let least = MilliGpu(1000 / u64::from(launch::sharing_slices(state, pool).max(1)));
    quota::share(state, class, pool) > least
}

/// Whether a job has quota and money, or others give them up for it, and waits for nothing but capacity.
pub(crate) fn may_reserve(state: &State, job: JobId, pool: PoolId) -> bool {
    let has_share = || allowances::no_share(state, job, pool).is_none();
    waits_for_others(state, job) && (state.jobs[job].kept.is_some() || has_share())
}

/// Whether a job waits for what others have. One that is ahead of its deadline waits because it wants to.
pub(crate) fn waits_for_others(state: &State, job: JobId) -> bool {
    let row = &state.jobs[job];
    !state.is_held_back(job)
        && row.reserved_until.is_none_or(|until| until <= state.now)
        && state.classes[row.class].shape.urgency != Urgency::Relaxed
        && start_targets::reason_to_wait(state, job).is_none()
        && batch::refusal(state, job).is_none()
}

/// From when on places or room are kept for a job.
pub(crate) fn reserved_from(state: &State, job: JobId) -> Option<Timestamp> {
    state.reservations.values().find(|a| a.job == job).map(|a| a.from)
}

/// Whether a ceiling keeps a job from what could be bought for it.
fn lacks_room(state: &State, job: JobId, pool: PoolId) -> bool {
    matches!(supply::refusal(state, job, pool), Some(Reason::Ceiling { .. }))
}

/// Whether nothing but more capacity, ceiling or stock would help.
fn lacks_capacity(state: &State, job: JobId, pool: PoolId) -> bool {
    let reason = supply::refusal(state, job, pool);
    matches!(
        reason,
        Some(Reason::Ceiling { .. } | Reason::Stockout { .. } | Reason::NothingIdle | Reason::OwnedNodesFull { .. })
    )
}

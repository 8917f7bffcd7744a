//! Packing: bought nodes of a pool whose work fits on what is free of other nodes, of it or of pools that the work would be asked for before, so that they can go.
//!
//! ```text
//! the node with the least on it first: each of its jobs, the largest first, goes whole to the fullest node that takes it, in the first of its pools that has one
//! the node's price over the time that its use is expected to go on  >=  worthIt x twice that price x (boot + restart)
//! ```
//!
//! The time is what it is for a purchase (relocation.rs), no longer than the median of what is left of the work on it, as far as that is known, nor than
//! the usual time between needs for an empty node, and less the time for which the policy keeps idle nodes. Where the places are taken by others before
//! the work has saved, it waits or is bought for, as any other does; it may find others as good. Source: consolidation by deletion in Karpenter.
//!
//! Never: onto a bought node with nothing on it, which goes by itself, or onto a dearer one; behind a pool where the work would be bought for; a gang over
//! several nodes; work that may not be stopped at once; work with a deadline onto spot; where a queue has a start target of less than two boots: free places
//! are what it starts on in time.

use super::relocation::{Elsewhere, LONGEST_HORIZON, goes_to, holders, movable, move_share, pools_before};
use super::{capacity, demand, floors, placement, protection, quota, reservations, settings, slack, supply};
use crate::catalog::CapacityType;
use crate::effect::WorkerPlace;
use crate::engine::Engine;
use crate::ids::{JobId, NodeId, PoolId};
use crate::job::Level;
use crate::policy::{Consolidation, Drain};
use crate::state::State;
use crate::state::jobs::Phase;
use crate::state::nodes::{Node, NodePhase};
use crate::state::places::Hold;
use crate::units::{MilliGpu, Rate, Span};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Nodes that are tried at one look in a pool at most, and nodes that are asked for the places of one job.
const MOST_TRIED: usize = 64;

/// Nodes that go, and those that take their work.
#[derive(Debug, Default)]
pub(crate) struct Packed {
    pub leaves: Vec<NodeId>,
    pub takes: BTreeSet<NodeId>,
}

/// Finds at most so many nodes of a pool that can go, beside those that were found before in others. Returns how many. What takes their work holds it from
/// then on, in the caller's trial.
pub(crate) fn find(
    engine: &mut Engine,
    pool: PoolId,
    rules: Consolidation,
    most: u64,
    packed: &mut Packed,
    elsewhere: &mut Elsewhere,
) -> u64 {
    let state = &engine.state;
    let before = packed.leaves.len();
    let kept = settings::pool(state, pool).map_or(0, |rules| rules.emptied_above(state.now));
    // A job whose place is taken meanwhile could not be bought for; and where more empty nodes are kept than there are, another would be bought.
    if supply::no_purchase(state, pool).is_some() || kept > floors::filled(state, pool) {
        return 0;
    }
    let in_use =
        |node: &&Node| node.pool == pool && node.phase == NodePhase::Ready && node.open() && !node.holds.is_empty();
    let mut nodes: Vec<&Node> = state.bought_nodes().filter(in_use).collect();
    nodes.sort_unstable_by_key(|node| (Reverse(free(node)), node.holds.len(), Reverse(node.price), node.id));
    let soonest = shortest_target(state, pool);
    let may_go = |node: &Node| {
        let in_time = soonest.is_none_or(|within| within >= demand::boot_p90(state, node.offering).times(2));
        in_time && node.reserved.is_empty() && !reservations::keeps(state, node) && pays(state, node, rules)
    };
    let go: Vec<NodeId> = nodes.iter().filter(|node| may_go(node)).take(MOST_TRIED).map(|node| node.id).collect();
    let mut targets = Targets { from: pool, fullest: BTreeMap::new() };
    for node in go {
        if (packed.leaves.len() - before) as u64 >= most {
            break;
        }
        if packed.takes.contains(&node) {
            continue;
        }
        packed.leaves.push(node);
        match others(engine, node, &mut targets, &packed.leaves, elsewhere) {
            Some(takes) => packed.takes.extend(takes),
            None => _ = packed.leaves.pop(),
        }
    }
    (packed.leaves.len() - before) as u64
}

/// Nodes that may take the work of a pool, by their pools, the fullest first. Found when a pool is asked first.
struct Targets {
    from: PoolId,
    fullest: BTreeMap<PoolId, Vec<NodeId>>,
}

impl Targets {
    fn of(&mut self, state: &State, pool: PoolId) -> &[NodeId] {
        let own = self.from == pool;
        self.fullest.entry(pool).or_insert_with(|| {
            if !own && !is_spare(state, pool) {
                return Vec::new();
            }
            let keeps = settings::pool(state, pool).is_some_and(|rules| rules.emptied_above(state.now) > 0);
            // Nobody pays less for an owned node with nothing on it, unless it stands ready for others.
            let in_use = |node: &Node| !node.holds.is_empty() || (node.owned.is_some() && !keeps);
            let may = |node: &&Node| node.pool == pool && node.phase == NodePhase::Ready && node.open() && in_use(node);
            let mut nodes: Vec<&Node> = state.nodes.values().filter(may).collect();
            nodes.sort_unstable_by_key(|node| (free(node), Reverse(node.holds.len()), node.price, Reverse(node.id)));
            nodes.into_iter().map(|node| node.id).collect()
        })
    }
}

/// Whether who has to start by a target in a pool does so after a boot, where what is free there is taken.
fn is_spare(state: &State, pool: PoolId) -> bool {
    let Some(within) = shortest_target(state, pool) else { return true };
    let offerings = settings::pool(state, pool).map_or(&[][..], |rules| &rules.offerings);
    let listed = offerings.iter().filter_map(|at| state.listed.get(*at as usize));
    listed.map(|id| demand::boot_p90(state, *id)).max().is_some_and(|boot| within >= boot.times(2))
}

/// The shortest start target of a queue that a pool serves.
fn shortest_target(state: &State, pool: PoolId) -> Option<Span> {
    let rules = state.policy.as_deref().into_iter().flat_map(|policy| policy.rules());
    rules.filter(|rule| rule.pools.contains(&pool)).filter_map(|rule| rule.start).map(|start| start.within).min()
}

/// GPUs with nothing on them.
fn free(node: &Node) -> u32 {
    node.whole_mask().count_ones()
}

/// Whether all on a node may go now, and the node's price is worth it.
fn pays(state: &State, node: &Node, rules: Consolidation) -> bool {
    let Some(jobs) = movable(state, &[node.id]) else { return false };
    if !jobs.iter().all(|(id, _)| goes_now(state, *id)) || state.capacity_of(node) == CapacityType::Reserved {
        return false;
    }
    // Who has outlasted what was known of it may go on for long.
    let left = |id: JobId| demand::remaining(state, id, 500).filter(|left| *left > Span::ZERO);
    let left = jobs.iter().map(|(id, _)| left(*id).unwrap_or(LONGEST_HORIZON)).max().unwrap_or_default();
    let kept = match settings::pool(state, node.pool).map_or(Drain::Auto, |pool| pool.drain) {
        Drain::After(after) => after,
        Drain::Auto => Span::ZERO,
    };
    // Where work takes empty nodes all the time, what is given back is bought again.
    let quiet = demand::needs(state, node.pool).map(|needs| needs.gap.max(state.now.since(needs.last)));
    let horizon = state.now.since(node.decided_at).min(LONGEST_HORIZON).min(left).min(quiet.unwrap_or(left)) - kept;
    let restart = jobs.iter().map(|(id, _)| state.specs[*id].restart).max().unwrap_or_default();
    let cost = node.price.times(2).over(state.usual_boot(node.offering) + restart);
    node.price > Rate(0)
        && node.price.over(horizon).0.saturating_mul(1000) >= cost.0.saturating_mul(u128::from(rules.worth_it))
}

/// Whether a run may be stopped now, and is one that a single node takes whole.
fn goes_now(state: &State, id: JobId) -> bool {
    let (row, spec) = (&state.jobs[id], &state.specs[id]);
    let shape = &state.classes[row.class].shape;
    let close = shape.within.is_some_and(|within| within.level <= Level::Nvlink);
    row.phase == Phase::Running && protection::may_be_stopped(state, id) && spec.batch.is_none() && !close
}

/// The nodes that take all that is on a node, which hold it in the trial from now on. `None`: they do not, and nothing is held.
fn others(
    engine: &mut Engine,
    node: NodeId,
    targets: &mut Targets,
    leaves: &[NodeId],
    elsewhere: &mut Elsewhere,
) -> Option<Vec<NodeId>> {
    let mark = engine.state.checkpoint();
    let mut jobs = engine.state.nodes.get(&node).map(holders).unwrap_or_default();
    jobs.sort_by_key(|id| (Reverse(engine.state.jobs[*id].share), *id));
    let mut takes = Vec::new();
    for job in jobs {
        let Some((pool, places)) = other(engine, job, node, targets, leaves, elsewhere) else {
            engine.state.rollback(mark);
            return None;
        };
        takes.extend(places.iter().map(|place| place.node));
        let class = engine.state.jobs[job].class;
        move_share(engine, job, pool, held(&places));
        engine.state.hold_places(job, class, &places, Hold::Booked);
    }
    engine.state.commit(mark);
    Some(takes)
}

fn held(places: &[WorkerPlace]) -> MilliGpu {
    places.iter().map(WorkerPlace::gpu_share).fold(MilliGpu(0), |sum, share| sum + share)
}

/// Places for all that a run has, in the first of its pools that has them, up to its own. None in one behind a pool where it would be served.
fn other(
    engine: &mut Engine,
    job: JobId,
    from: NodeId,
    targets: &mut Targets,
    leaves: &[NodeId],
    elsewhere: &mut Elsewhere,
) -> Option<(PoolId, Vec<WorkerPlace>)> {
    let own = targets.from;
    let pools: Vec<PoolId> = pools_before(&engine.state, job, own).chain([own]).collect();
    pools.into_iter().find_map(|pool| {
        let places = places_in(engine, job, from, pool, targets.of(&engine.state, pool), leaves)?;
        goes_to(engine, job, pool, elsewhere).then_some((pool, places))
    })
}

/// Places for all that a run has, on the fullest node of a pool that has them.
fn places_in(
    engine: &Engine,
    job: JobId,
    from: NodeId,
    pool: PoolId,
    fullest: &[NodeId],
    leaves: &[NodeId],
) -> Option<Vec<WorkerPlace>> {
    let state = &engine.state;
    let (row, here) = (&state.jobs[job], state.nodes.get(&from)?);
    let stays = slack::to_meet(state, job).is_some() && !capacity::is_spot(state, here.offering);
    let asked = share_in(state, job, here.pool, pool);
    let whole = u32::try_from(asked.0 / 1000).unwrap_or(u32::MAX);
    let fits = supply::fits(state, row.class, pool);
    let may_take = |node: &&Node| {
        free(node) >= whole
            // An owned node is paid for whether it is used or not.
            && (node.owned.is_some() || node.price <= here.price)
            && fits.binary_search(&node.offering).is_ok()
            && !(stays && capacity::is_spot(state, node.offering))
    };
    let nodes = fullest.iter().filter(|id| !leaves.contains(id)).filter_map(|id| state.nodes.get(id));
    let places = |node: &Node| {
        let places = placement::on_node(engine, job, pool, asked, node.id)?;
        (held(&places) >= asked && places.len() >= row.places.len()).then_some(places)
    };
    nodes.filter(may_take).take(MOST_TRIED).find_map(places)
}

/// The share that a run would have in a pool with as many workers as it has in its own.
fn share_in(state: &State, job: JobId, own: PoolId, pool: PoolId) -> MilliGpu {
    let row = &state.jobs[job];
    if pool == own {
        return row.share;
    }
    let one = |pool| quota::share_of_one(state, row.class, pool).0;
    match one(own) {
        0 => row.share,
        here => MilliGpu(row.share.0 / here * one(pool)),
    }
}

//! What leaving nodes would save: their price against what their work would cost elsewhere.
//!
//! ```text
//! what the move saves over the time that the work is expected to go on  >=  worthIt x what the move costs
//! ```
//!
//! A node that has been of use for some time is expected to be for as long again (run times are heavy-tailed), counted up to an
//! hour. So is capacity whose stock was wanting and has been found good since: it is tried at each review until it is found good, and
//! taken when it has been good for so long that the move pays. A move costs both nodes for a boot and a restart. Source of the rule: balanced consolidation in Karpenter,
//! savings over disruption.
//!
//! Who is moved waits as any other does, and is bought for in the first of its pools that has quota for it and capacity to buy: that is what a move is judged
//! by. Where a pool before that one has free places, it would go there instead, so that it stays; and so it does while its own keeps a dearer node ready.
//!
//! Never: moves to capacity whose stock was last found wanting.

use super::launch::{self, LaunchOption};
use super::placement::{self, NodeScope};
use super::{allowances, demand, forecast, quota, settings, slack, supply};
use crate::catalog::CapacityType;
use crate::decision::DrainWhy;
use crate::engine::Engine;
use crate::ids::{ClassId, JobId, NodeId, OfferingId, PoolId};
use crate::policy::Consolidation;
use crate::reason::Reason;
use crate::state::State;
use crate::state::jobs::Phase;
use crate::state::nodes::{Node, NodePhase};
use crate::state::places::nodes_of;
use crate::units::{HOUR_MS, MilliGpu, Rate, Span, Spend, Timestamp};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// A node's use is not expected to go on for longer than this, whatever its age.
pub(crate) const LONGEST_HORIZON: Span = Span::mins(60);

/// What is to be done about nodes in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// Their work would cost as much, or may not move.
    Stays,
    /// It would cost less elsewhere, if that can be had for long enough: so whether it can is tried.
    Tries(Vec<(PoolId, OfferingId)>),
    /// They are left.
    Leaves {
        /// What that saves an hour.
        saves: Rate,
        /// Where each job on them goes.
        to: Vec<Destination>,
    },
}

/// What is bought for a run that is moved, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Destination {
    pub job: JobId,
    pub pool: PoolId,
    pub option: LaunchOption,
}

/// What work of a class would cost elsewhere, found once in each review.
pub(crate) type Elsewhere = BTreeMap<(ClassId, PoolId), Result<LaunchOption, Reason>>;

/// The nodes that are left together with this one: those of its gang, where a gang over several nodes has it. In order.
pub(crate) fn together(state: &State, node: &Node) -> Vec<NodeId> {
    let spread = holders(node).into_iter().map(|id| nodes_of(&state.jobs[id].places)).find(|nodes| nodes.len() > 1);
    spread.unwrap_or_else(|| alloc::vec![node.id])
}

/// Whether it is worth it to leave nodes, where all that is on them is on nothing else.
pub(crate) fn worth_leaving(
    state: &State,
    nodes: &[NodeId],
    rules: Consolidation,
    elsewhere: &mut Elsewhere,
) -> Leaving {
    judged(state, nodes, rules, elsewhere).unwrap_or(Leaving::Stays)
}

/// The jobs on some nodes with their pools, where all that is on them is on nothing else and could go on elsewhere.
pub(crate) fn movable(state: &State, nodes: &[NodeId]) -> Option<Vec<(JobId, PoolId)>> {
    let rows = || nodes.iter().filter_map(|id| state.nodes.get(id));
    let mut jobs: Vec<(JobId, PoolId)> = rows().flat_map(|n| holders(n).into_iter().map(|job| (job, n.pool))).collect();
    jobs.sort_unstable();
    jobs.dedup();
    // On several nodes there is one gang, whole, and nothing beside it.
    if jobs.is_empty() || (nodes.len() > 1 && jobs.len() > 1) || rows().any(|n| n.holds.is_empty() || !may_leave(n)) {
        return None;
    }
    let goes = |id: JobId| {
        let (job, spec) = (&state.jobs[id], &state.specs[id]);
        let here = job.places.iter().all(|p| nodes.contains(&p.node));
        // Who could not be admitted again, or would have to move on at once, stays where it runs.
        let held = state.queue_brake(job.queue).is_some() || !slack::has_time_to_move(state, id);
        !held && here && spec.checkpoint.is_some() && job.phase != Phase::Booked
    };
    jobs.iter().all(|(id, _)| goes(*id)).then_some(jobs)
}

/// Whether a run that is moved has quota and money in a pool, and would be served in none before it. What is kept of them may be another's once it has given them
/// back.
pub(crate) fn goes_to(engine: &mut Engine, id: JobId, pool: PoolId, elsewhere: &mut Elsewhere) -> bool {
    let state = &engine.state;
    let class = state.jobs[id].class;
    let serves = |before: &PoolId| {
        let bought = cheapest(state, class, *before, elsewhere);
        let bought = bought.as_ref().map_or_else(|no| no.is_tried(), |_| true);
        let least = quota::share(state, class, *before);
        bought || placement::find(engine, id, *before, NodeScope::InFlight, least).is_some()
    };
    let before: Vec<PoolId> = pools_before(state, id, pool).filter(serves).collect();
    forecast::once_given_back(engine, &[id], |state| {
        let has_share = |pool| allowances::no_share(state, id, pool).is_none();
        has_share(pool) && !before.into_iter().any(has_share)
    })
}

/// Whether a run that is moved may go onto a node that is kept ready and dearer than what is to be bought for it: what is free is taken first, and another is
/// bought in its place. Nothing would be saved, at one review after the other.
pub(crate) fn may_go_onto_dearer(state: &State, to: &Destination) -> bool {
    if settings::pool(state, to.pool).is_none_or(|rules| rules.kept(state.now) == 0) {
        return false;
    }
    let class = state.jobs[to.job].class;
    let shape = &state.classes[class].shape;
    let fewest = u64::from(shape.gang.fewest());
    let fits = supply::fits(state, class, to.pool);
    let cost = to.option.cost(state);
    let dearer = |node: &Node| {
        let gpus = state.offerings[node.offering.index()].offer.gpus;
        let units = u64::from(launch::units_a_node(state, shape, to.pool, node.offering, gpus)).min(fewest);
        units > 0 && node.price.times(fewest) > cost.times(units)
    };
    supply::spare_nodes(state, to.pool).any(|node| fits.binary_search(&node.offering).is_ok() && dearer(node))
}

/// What a run has of quotas is taken in another pool instead, in a trial.
pub(crate) fn move_share(engine: &mut Engine, id: JobId, to: PoolId, share: MilliGpu) {
    let row = &engine.state.jobs[id];
    let (queue, own, was) = (row.queue, row.pool, row.share);
    if let Some(own) = own.filter(|own| *own != to) {
        engine.state.give_quota_back(queue, own, was);
        engine.state.take_quota(queue, to, share);
    }
}

fn cheapest<'a>(
    state: &State,
    class: ClassId,
    pool: PoolId,
    elsewhere: &'a mut Elsewhere,
) -> &'a Result<LaunchOption, Reason> {
    elsewhere.entry((class, pool)).or_insert_with(|| supply::cheapest(state, class, pool))
}

/// The pools of a job that are asked for it before one of them, in order.
pub(crate) fn pools_before(state: &State, id: JobId, pool: PoolId) -> impl Iterator<Item = PoolId> + '_ {
    let pools = state.classes[state.jobs[id].class].fits.iter().map(|fits| fits.0);
    pools.take_while(move |before| *before != pool)
}

/// What is bought for a run that is moved, in its pool or in one before it.
fn bought_for(state: &State, id: JobId, own: PoolId, elsewhere: &mut Elsewhere) -> Option<(PoolId, LaunchOption)> {
    let class = state.jobs[id].class;
    let before = pools_before(state, id, own).filter(|pool| allowances::no_share(state, id, *pool).is_none());
    for pool in before.chain([own]) {
        match cheapest(state, class, pool, elsewhere) {
            Ok(option) => return Some((pool, option.clone())),
            // Whoever waits would be bought for there once the answer comes.
            Err(no) if no.is_tried() => return None,
            Err(_) => {}
        }
    }
    None
}

fn judged(state: &State, nodes: &[NodeId], rules: Consolidation, elsewhere: &mut Elsewhere) -> Option<Leaving> {
    let rows = || nodes.iter().filter_map(|id| state.nodes.get(id));
    let jobs = movable(state, nodes)?;
    let mut there = Rate(0);
    let mut restart = Span::ZERO;
    let mut risk = 0u128;
    let mut good_since = Some(Timestamp::default());
    let (mut bought, mut to) = (Vec::new(), Vec::new());
    // What it loses by a move in vain is more than money: it is known to be there when it goes.
    let mut dated = true;
    for (id, pool) in jobs {
        let spec = &state.specs[id];
        dated &= slack::to_meet(state, id).is_some();
        let (pool, option) = bought_for(state, id, pool, elsewhere)?;
        good_since = good_since.and_then(|since| Some(since.max(supply::good_since(state, &option)?)));
        bought.extend(option.counts.iter().map(|(offering, _)| (pool, *offering)));
        there = there + option.cost(state);
        risk += option.counts.iter().map(|(id, n)| at_risk(state, *id, spec.restart) * u128::from(*n)).sum::<u128>();
        restart = restart.max(spec.restart);
        to.push(Destination { job: id, pool, option });
    }
    let here = rows().map(|n| n.price).fold(Rate(0), |a, b| a + b);
    let risk_here = rows().map(|n| at_risk(state, n.offering, restart)).sum::<u128>();
    let hourly = |price: Rate, risk: u128| Rate(price.0.saturating_add(u64::try_from(risk).unwrap_or(u64::MAX)));
    let saves = hourly(here, risk_here) - hourly(there, risk);
    // Nodes that have been of use for some time, the youngest of them, are expected to be for as long again.
    let horizon = rows().map(|n| state.now.since(n.decided_at)).min()?.min(LONGEST_HORIZON);
    let boot = rows().map(|n| state.usual_boot(n.offering)).max()?;
    let cost = (here + there).over(boot + restart);
    let pays = |horizon: Span, more: Spend| {
        let cost = cost.0.saturating_add(more.0).saturating_mul(u128::from(rules.worth_it));
        saves > Rate(0) && saves.over(horizon).0.saturating_mul(1000) >= cost
    };
    let good = good_since.map_or(Span::ZERO, |since| state.now.since(since));
    if pays(horizon.min(good), Spend(0)) {
        return Some(Leaving::Leaves { saves, to });
    }
    // What trying costs: a boot of each, that nobody needs.
    let tried = bought.iter().map(|(_, id)| state.offerings[id.index()].offer.price.over(state.usual_boot(*id)).0);
    let unsure = dated || good_since.is_none();
    let tries = unsure && pays(LONGEST_HORIZON, Spend(tried.sum()));
    Some(if tries { Leaving::Tries(bought) } else { Leaving::Stays })
}

/// Up, or being left already; neither condemned nor taken back by the cloud.
fn may_leave(node: &Node) -> bool {
    let being_left = matches!(node.phase, NodePhase::Draining { why: DrainWhy::Moved, .. });
    (being_left || node.phase == NodePhase::Ready) && !node.condemned && node.reclaim_at.is_none()
}

/// What reclaims of one node of an offering are expected to cost an hour, in micro-dollars: a boot and a restart each, at its price.
fn at_risk(state: &State, id: OfferingId, restart: Span) -> u128 {
    let offer = &state.offerings[id.index()].offer;
    if offer.capacity != CapacityType::Spot {
        return 0;
    }
    let lost = offer.price.over(state.usual_boot(id) + restart).0 / u128::from(HOUR_MS);
    lost.saturating_mul(u128::from(demand::reclaims_per_hour(state, id))) / 1_000_000
}

/// The jobs with workers on a node, each once.
pub(crate) fn holders(node: &Node) -> Vec<JobId> {
    let mut jobs = node.holds.clone();
    jobs.sort_unstable();
    jobs.dedup();
    jobs
}

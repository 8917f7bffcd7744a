//! The search: what is taken for one head, tried in the trial until it is enough and nothing is taken in vain.
//!
//! ```text
//! bound        would all that may be taken be room enough? (bound.rs)
//! orders       by tier, then from the greatest share, then the cheapest; and node by node, the node first that is cheapest to free
//! take         one after the other, as far as its rank permits, until the head has what it lacks
//! try back     the last in the order first; a run whose spare workers are enough keeps the rest
//! compare      GPUs by tier from the highest, then money: the better of the orders is taken
//! ceiling      else nodes are given back (ceiling.rs)
//! ```
//!
//! Never: more than can be spared; a tier below its `minShare`, but for what its queues have borrowed.

use super::losses::{self, Candidate, Loss, Steady};
use super::spared::stopped_for_nothing;
use super::{Lack, Trial, bound, ceiling};
use crate::effect::WorkerPlace;
use crate::ids::{JobId, NodeId, OfferingId, QuotaId};
use crate::job::Gang;
use crate::rules::placement::{self, NodeScope};
use crate::rules::rank::{Ground, Taker};
use crate::rules::supply::{self, Doubt};
use crate::rules::{quota, reservations, settings};
use crate::state::State;
use crate::state::jobs::Phase;
use crate::state::shares::Share;
use crate::state::undo::Mark;
use crate::units::{MilliGpu, Spend};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::{Ordering, Reverse};

/// Times that candidates are gone through: what is taken may let others be taken that were not permitted before.
const MOST_TURNS: u32 = 3;

/// What was found: what is taken, and where the head goes or what is bought for it.
#[derive(Default)]
pub(super) struct Found {
    pub losses: Vec<(Loss, Ground)>,
    /// Where it goes, or beside what is bought for it a part of it.
    pub places: Vec<WorkerPlace>,
    /// These are given back, or a part of the gang goes there.
    pub nodes: Vec<NodeId>,
    /// This is bought then.
    pub room: Vec<(OfferingId, u32)>,
}

/// One way that was tried: what it takes, on which ground each.
#[derive(Clone, Default)]
pub(super) struct Way {
    taken: BTreeMap<JobId, (Ground, Vec<u32>)>,
    pub(super) places: Vec<WorkerPlace>,
    /// With any one run less of it quota would refuse the head.
    tight: bool,
    /// The doubt whether what it leaves to be bought can be had.
    pub(super) doubt: Option<Doubt>,
}

impl Way {
    /// Takes all of a run, on whatever ground: for a bound.
    pub(super) fn take(&mut self, job: JobId, numbers: Vec<u32>) {
        self.taken.insert(job, (Ground::Tier, numbers));
    }

    /// Takes less.
    fn spare(&mut self, job: JobId, numbers: &[u32]) {
        let Some((_, gone)) = self.taken.get_mut(&job) else { return };
        gone.retain(|n| !numbers.contains(n));
        if gone.is_empty() {
            self.taken.remove(&job);
        }
    }

    /// The runs of which it takes something.
    pub(super) fn runs(&self) -> impl Iterator<Item = JobId> + '_ {
        self.taken.keys().copied()
    }

    fn without(&self, job: JobId, numbers: &[u32]) -> Way {
        let mut less = self.clone();
        less.spare(job, numbers);
        less
    }
}

/// What a way costs: GPUs by tier from the highest, then money.
pub(super) type Price = (Vec<(Reverse<i32>, MilliGpu)>, Spend);

/// Times that a search is made again: without what would come back, or led by what could not be taken any more.
const MOST_TRIES: u32 = 8;

/// The least that is enough. It stays taken in the trial; without a find nothing does.
pub(super) fn find(trial: &mut Trial<'_>, taker: &Taker, lack: Lack) -> Option<Found> {
    // Who lacks quota or money may lack room under a ceiling too.
    let may_lack_room = matches!(lack, Lack::Ceiling | Lack::Share);
    if bound::rules_out(trial, taker, bound::may_have_room) {
        return if may_lack_room { ceiling::make_room(trial, taker) } else { None };
    }
    let mut known = Known::of(trial, taker);
    let sure = if is_bounded(&trial.engine.state, taker) {
        let orders = || STEADY.into_iter().map(Order::Steady);
        let found = orders().find_map(|order| tried(trial, taker, lack, (order, Back::IfEnough), &mut known));
        let in_vain = found.is_none() && known.in_vain;
        let care = |order| tried(trial, taker, lack, (order, Back::IfPermitted), &mut known);
        let found = if in_vain { orders().find_map(care) } else { found };
        let Some(way) = found else {
            return if may_lack_room { ceiling::make_room(trial, taker) } else { None };
        };
        if is_best(trial, taker, &way) && !trial.engine.memo.off {
            return Some(found_by(trial, taker, lack, way));
        }
        Some(way)
    } else {
        None
    };
    let cheapest = tried(trial, taker, lack, (Order::ByCost, Back::IfEnough), &mut known);
    let single = matches!(&trial.engine.state.classes[taker.class].shape.gang, Gang::Workers { max: 1, each, .. } if each.gpus <= 1);
    let by_node = if single { None } else { tried(trial, taker, lack, (Order::ByNode, Back::IfEnough), &mut known) };
    let price = |way: &Way| price(&trial.engine.state, way);
    let best = match (cheapest, by_node) {
        (Some(a), Some(b)) => Some(if price(&b) < price(&a) { b } else { a }),
        (a, b) => a.or(b),
    };
    match best.or(sure) {
        Some(way) => Some(found_by(trial, taker, lack, way)),
        None if may_lack_room => ceiling::make_room(trial, taker),
        None => None,
    }
}

fn found_by(trial: &mut Trial<'_>, taker: &Taker, lack: Lack, way: Way) -> Found {
    let bought = way.places.is_empty() && lack != Lack::Share;
    let jobs = if bought { way.taken.keys().copied().collect() } else { Vec::new() };
    let nodes = jobs.iter().flat_map(|job: &JobId| trial.engine.state.jobs[*job].places.iter().map(|p| p.node));
    let nodes: BTreeSet<NodeId> = nodes.collect();
    Found { nodes: nodes.into_iter().collect(), ..keep(trial, taker, way) }
}

/// Whether no other order comes to less: so many are needed for quota, and all that may be taken are alike. It is asked where many are taken.
fn is_best(trial: &Trial<'_>, taker: &Taker, way: &Way) -> bool {
    let candidates = trial.candidates.get(&taker.pool);
    way.tight && way.taken.len() > FEW && candidates.is_some_and(|all| all.are_alike(&trial.engine.state))
}

/// Whether it depends on the order what may be taken. Where it does, orders that time does not change say whether anything is found, so that
/// what was in vain is so until something happens.
fn is_bounded(state: &State, taker: &Taker) -> bool {
    let shares = settings::has_min_shares(state);
    shares || state.has_quotas(taker.pool)
}

/// In which order candidates are taken.
#[derive(Clone, Copy)]
enum Order {
    Steady(Steady),
    ByCost,
    ByNode,
}

/// Orders that time does not change.
const STEADY: [Steady; 3] = [Steady::Tier, Steady::SmallestFirst, Steady::LargestFirst];

/// Candidates that are looked at before all of them are. Most heads need few.
const FEW: usize = 32;

/// The first way, in orders that time does not change, to bring all that a head lacks: quota, money, and nodes that stand empty then.
pub(super) fn to_empty(trial: &mut Trial<'_>, taker: &Taker) -> Option<Way> {
    let keys = [Steady::Node].into_iter().chain(STEADY);
    let mut known = Known::of(trial, taker);
    keys.into_iter().find_map(|key| tried(trial, taker, Lack::All, (Order::Steady(key), Back::IfEnough), &mut known))
}

/// So many of the candidates in an order, the first of them.
fn first_of(trial: &mut Trial<'_>, taker: &Taker, order: Order, most: usize) -> Vec<Candidate> {
    match order {
        Order::Steady(key) => {
            let Trial { engine, ranks, candidates, .. } = trial;
            let candidates = candidates.get_mut(&taker.pool);
            candidates.map_or_else(Vec::new, |all| all.steady(&engine.state, ranks, taker, key, most))
        }
        Order::ByCost => by_cost(trial, taker, most),
        Order::ByNode => by_node(trial, taker),
    }
}

/// Takes a way in the trial for good.
pub(super) fn keep(trial: &mut Trial<'_>, taker: &Taker, way: Way) -> Found {
    let mut losses = Vec::new();
    for (job, (ground, numbers)) in way.taken {
        let Trial { engine, ranks, taken, candidates, .. } = trial;
        let before = taken.of(job).len();
        taken.take(&mut engine.state, ranks, job, &numbers);
        let row = &engine.state.jobs[job];
        let whole = row.phase == Phase::Booked || taken.of(job).len() == row.numbers.len();
        if let Some(pool) = candidates.get_mut(&taker.pool) {
            pool.remove(&engine.state, job);
        }
        if whole {
            debug_assert!(before == 0, "a run is taken from once");
            losses.push((Loss { job, worker: None }, ground));
        } else {
            losses.extend(numbers.iter().map(|n| (Loss { job, worker: Some(*n) }, ground)));
        }
    }
    Found { losses, places: way.places, ..Found::default() }
}

/// A run and what is taken of it: one spare worker after the other first, then all.
type Step = (Candidate, Part);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    Spare,
    Whole,
}

/// When a part of what is taken is given back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Back {
    /// The rest is enough.
    IfEnough,
    /// It is enough, and may still be taken without it.
    IfPermitted,
}

/// Ways of more runs are not tried back with care for what permits what.
const MOST_CARED_FOR: usize = 16;

/// What the tries of one search have shown.
struct Known {
    /// Something was enough, and not all of it could be taken.
    in_vain: bool,
    /// Whether quota and money would let the head start with all gone that it may have, once that was asked.
    may_have_share: Option<bool>,
}

impl Known {
    /// Where a try would cost no less, quota and money are asked for before it.
    fn of(trial: &mut Trial<'_>, taker: &Taker) -> Known {
        let mut known = Known { in_vain: false, may_have_share: None };
        if are_few(trial, taker) {
            is_refused_with_all(trial, taker, &mut known);
        }
        known
    }
}

/// Goes through candidates in one order until what is taken is enough, then tries back. Nothing stays taken.
fn tried(
    trial: &mut Trial<'_>,
    taker: &Taker,
    lack: Lack,
    (order, gives): (Order, Back),
    known: &mut Known,
) -> Option<Way> {
    if known.may_have_share == Some(false) {
        return None;
    }
    if gives == Back::IfEnough
        && let Some(way) = with_few(trial, taker, lack, order)
    {
        return Some(way);
    }
    let mut candidates = first_of(trial, taker, order, usize::MAX);
    if !matches!(lack, Lack::Share | Lack::All) {
        candidates.sort_by_cached_key(|one| !makes_way(&trial.engine.state, taker, one.job));
    }
    let mut led: BTreeSet<JobId> = BTreeSet::new();
    for _ in 0..MOST_TRIES {
        let mut refused = None;
        let Some(way) = once(trial, taker, (lack, gives), &candidates, &led, &mut refused, MOST_TURNS) else {
            // What was taken before it was in vain, and kept it from being taken: now it goes first.
            let first = refused?;
            if is_refused_with_all(trial, taker, known) {
                return None;
            }
            let at = candidates.iter().position(|candidate| candidate.job == first)?;
            candidates[..=at].rotate_right(1);
            led.insert(first);
            continue;
        };
        let mut back = comes_back(trial, taker, &way);
        back.extend(stopped_for_nothing(&trial.engine.state, taker, lack, &way));
        if back.is_empty() {
            return Some(way);
        }
        known.in_vain = true;
        candidates.retain(|candidate| !back.contains(&candidate.job));
    }
    None
}

/// Whether a try costs no more than to ask [`is_refused_with_all`].
fn are_few(trial: &Trial<'_>, taker: &Taker) -> bool {
    let candidates = trial.candidates.get(&taker.pool);
    let open = candidates.into_iter().flat_map(|all| all.open_to(&trial.engine.state, &trial.ranks, taker, FEW + 1));
    open.flatten().flat_map(|(_, runs)| runs).nth(FEW).is_none()
}

/// Whether a search is in vain, because quota or money would refuse the head with all gone that it may have, whether it may be taken together or
/// not. It is asked once.
fn is_refused_with_all(trial: &mut Trial<'_>, taker: &Taker, known: &mut Known) -> bool {
    !trial.engine.memo.off && !*known.may_have_share.get_or_insert_with(|| bound::may_have_share(trial, taker))
}

/// The same with the first of the candidates, if with them alone it comes to the same: where none is elastic, and they are enough in one turn.
fn with_few(trial: &mut Trial<'_>, taker: &Taker, lack: Lack, order: Order) -> Option<Way> {
    let rigid = trial.candidates.get(&taker.pool).is_some_and(|all| !all.any_elastic());
    if !rigid || !matches!(lack, Lack::Share | Lack::All) || matches!(order, Order::ByNode) {
        return None;
    }
    let few = first_of(trial, taker, order, FEW);
    let way = once(trial, taker, (lack, Back::IfEnough), &few, &BTreeSet::new(), &mut None, 1)?;
    let goes = comes_back(trial, taker, &way).is_empty();
    (goes && stopped_for_nothing(&trial.engine.state, taker, lack, &way).is_empty()).then_some(way)
}

/// Whether anything of a run is on a node that a taker may go to. What is elsewhere helps by its money at most.
fn makes_way(state: &State, taker: &Taker, job: JobId) -> bool {
    let fits = supply::fits(state, taker.class, taker.pool);
    let nodes = state.jobs[job].places.iter().filter_map(|place| state.nodes.get(&place.node));
    let own = |owner: JobId| state.jobs[owner].class == taker.class;
    let mut open = nodes.filter(|node| node.open() && fits.binary_search(&node.offering).is_ok());
    open.any(|node| node.reserved.iter().all(|kept| own(kept.0)) && reservations::lets_in(state, node, taker.job))
}

/// Runs that may not be taken when all the others are gone: they would take back what they lose.
pub(super) fn comes_back(trial: &mut Trial<'_>, taker: &Taker, way: &Way) -> BTreeSet<JobId> {
    let mark = trial.engine.state.checkpoint();
    let Trial { engine, ranks, taken, .. } = &mut *trial;
    // Where somebody stands is a matter of quota: places and money stay as they are.
    for (job, (_, numbers)) in &way.taken {
        taken.take_share(&mut engine.state, ranks, *job, numbers);
    }
    let back = would_come_back(trial, taker, way);
    roll_back(trial, mark, way);
    back
}

/// The same where all of it is taken in the trial.
fn would_come_back(trial: &mut Trial<'_>, taker: &Taker, way: &Way) -> BTreeSet<JobId> {
    let mut back = BTreeSet::new();
    let Trial { engine, ranks, taken, .. } = trial;
    for (job, (_, numbers)) in &way.taken {
        let row = &engine.state.jobs[*job];
        let keep = if row.phase == Phase::Booked { 0 } else { row.numbers.len() - losses::spare(&engine.state, *job) };
        // An elastic gang is judged as it would be without the workers that it can do without.
        let judged = if numbers.len() == row.numbers.len() { &numbers[..keep.min(numbers.len())] } else { numbers };
        taken.put_share_back(&mut engine.state, ranks, *job, judged);
        let stood = losses::stands(&mut engine.state, ranks, *job);
        taken.take_share(&mut engine.state, ranks, *job, judged);
        let above = ranks.stands_by(&engine.state, taker, *job, stood);
        if !above || ranks.ground(&engine.state, taker, *job, stood).is_none() {
            back.insert(*job);
        }
    }
    back
}

/// One try in one order. The first goes before the spare workers of others, if it leads. Without a find: the first that could not be taken,
/// or not all of it, and that has not led yet.
fn once(
    trial: &mut Trial<'_>,
    taker: &Taker,
    (lack, gives): (Lack, Back),
    candidates: &[Candidate],
    led: &BTreeSet<JobId>,
    refused: &mut Option<JobId>,
    turns: u32,
) -> Option<Way> {
    if candidates.is_empty() {
        return None;
    }
    let mark = trial.engine.state.checkpoint();
    let mut way = Way::default();
    let places_only = lack == Lack::Room && is_placed_whole(&trial.engine.state, taker);
    let room = if places_only { free_room(&trial.engine.state, taker) } else { MilliGpu(0) };
    let mut freed = MilliGpu(0);
    let state = &trial.engine.state;
    let spare = |c: &Candidate| core::iter::repeat_n((*c, Part::Spare), losses::spare(state, c.job));
    let parts = |of: &[Candidate]| -> Vec<Step> {
        of.iter().flat_map(spare).chain(of.iter().map(|c| (*c, Part::Whole))).collect()
    };
    let (first, behind) = candidates.split_at(usize::from(!led.is_empty()));
    let steps = [parts(first), parts(behind)].concat();
    let mut found = None;
    'search: for _ in 0..turns {
        let before = freed;
        for (candidate, part) in &steps {
            let more = lift(trial, taker, candidate.job, *part, &mut way);
            if more == MilliGpu(0) {
                continue;
            }
            freed = freed + more;
            if places_only && taker.asked > room + freed {
                continue;
            }
            found = enough(trial, taker, lack);
            if found.is_some() {
                break 'search;
            }
        }
        if freed == before {
            break;
        }
    }
    if found.is_some() {
        let gives = if way.taken.len() > MOST_CARED_FOR { Back::IfEnough } else { gives };
        try_back(trial, taker, (lack, gives), candidates, &mut way, &mut found);
    } else {
        let all = |(_, gone): &(Ground, Vec<u32>), job| gone.len() == trial.engine.state.jobs[job].numbers.len();
        let left = |job: &JobId| !led.contains(job) && way.taken.get(job).is_none_or(|part| !all(part, *job));
        let mut jobs = candidates.iter().map(|candidate| candidate.job);
        *refused = jobs.find(left).filter(|_| !way.taken.is_empty());
    }
    if found.as_ref().is_some_and(Vec::is_empty) {
        way.doubt = if lack == Lack::All {
            ceiling::room_of_empty(trial, taker).and_then(|room| room.doubt(&trial.engine.state))
        } else {
            supply::doubt(trial.engine, taker.job, taker.pool)
        };
    }
    roll_back(trial, mark, &way);
    way.places = found?;
    Some(way)
}

/// What was taken since is nobody's again, and the rows are as they were.
pub(super) fn roll_back(trial: &mut Trial<'_>, mark: Mark, way: &Way) {
    let Trial { engine, ranks, taken, .. } = trial;
    engine.state.rollback(mark);
    for (job, (_, numbers)) in &way.taken {
        taken.forget(&engine.state, ranks, *job, numbers);
    }
}

/// What was taken on the way is nobody's again, and the way goes on.
pub(super) fn undo(trial: &mut Trial<'_>, way: &Way) {
    for (job, (_, numbers)) in &way.taken {
        let Trial { engine, ranks, taken, .. } = trial;
        taken.put_back(&mut engine.state, ranks, *job, numbers);
    }
}

/// Takes a part of a run, if it may be taken. Returns what that frees.
pub(super) fn lift(trial: &mut Trial<'_>, taker: &Taker, job: JobId, part: Part, way: &mut Way) -> MilliGpu {
    let Trial { engine, ranks, taken, .. } = trial;
    let row = &engine.state.jobs[job];
    let gone = taken.of(job);
    let booked = row.phase == Phase::Booked;
    let more: Vec<u32> = match part {
        _ if booked && (part == Part::Spare || taken.any(job)) => return MilliGpu(0),
        _ if booked => Vec::new(),
        Part::Whole => row.numbers.iter().copied().filter(|n| !gone.contains(n)).collect(),
        Part::Spare => spare_worker(&engine.state, job, gone).into_iter().collect(),
    };
    if more.is_empty() && !booked {
        return MilliGpu(0);
    }
    // An elastic gang is judged as it would be without the workers that it can do without.
    let first = if part == Part::Whole && !booked { spare_workers(&engine.state, job, gone) } else { Vec::new() };
    let rest: Vec<u32> = more.iter().copied().filter(|number| !first.contains(number)).collect();
    // Whether it may be taken is a matter of quota: its places and its money are touched when it is known.
    let mut freed = MilliGpu(0);
    if !first.is_empty() {
        freed = taken.take_share(&mut engine.state, ranks, job, &first);
    }
    let stood = losses::stands(&mut engine.state, ranks, job);
    freed = freed + taken.take_share(&mut engine.state, ranks, job, &rest);
    let row = &engine.state.jobs[job];
    let ground = ranks.ground(&engine.state, taker, job, stood);
    let ground = ground.filter(|ground| {
        let keeps = || keeps_min_share(&engine.state, taker, taken, row.tier);
        *ground == Ground::Quota || (*ground == Ground::Share && row.tier == taker.tier) || keeps()
    });
    let Some(ground) = ground else {
        taken.put_share_back(&mut engine.state, ranks, job, &more);
        return MilliGpu(0);
    };
    taken.take_places(&mut engine.state, job, &more);
    way.taken.entry(job).or_insert((ground, Vec::new())).1.extend(more);
    freed.max(MilliGpu(1))
}

/// One more worker that a run can do without: the last that may leave.
fn spare_worker(state: &State, job: JobId, gone: &[u32]) -> Option<u32> {
    let row = &state.jobs[job];
    let mut others = row.numbers.iter().rev().filter(|number| !gone.contains(number));
    others.find(|number| row.goes_on_without(&state.specs[job], &[gone, &[**number]].concat())).copied()
}

/// All workers that a run can do without besides those that are gone.
fn spare_workers(state: &State, job: JobId, gone: &[u32]) -> Vec<u32> {
    let mut more: Vec<u32> = Vec::new();
    while let Some(number) = spare_worker(state, job, &[gone, &more].concat()) {
        more.push(number);
    }
    more
}

/// Whether a tier keeps its share of all that is in use, with what has been taken.
fn keeps_min_share(state: &State, taker: &Taker, taken: &losses::Taken, tier: crate::ids::TierId) -> bool {
    let Some(least) = settings::tier(state, tier).map(|t| t.min_share).filter(|share| *share > 0) else { return true };
    // One that is booked and looks for other places holds nothing.
    let all = (state.index.used_by_all() - state.jobs[taker.job].share).0;
    let own = state.index.in_use.get(&tier).map_or(MilliGpu(0), |held| held.staying);
    let left = own - taken.of_tier(state, tier, taker.job);
    u128::from(left.0) * 1000 >= u128::from(all) * u128::from(least)
}

/// Whether the head has what it lacks now, and the places where it would go. None: it can be bought for.
fn enough(trial: &mut Trial<'_>, taker: &Taker, lack: Lack) -> Option<Vec<WorkerPlace>> {
    if !trial.has_share(taker) {
        return None;
    }
    if lack == Lack::All {
        return ceiling::room_of_empty(trial, taker).map(|_| Vec::new());
    }
    let engine = &mut *trial.engine;
    let scope = if lack == Lack::Time { NodeScope::Ready } else { NodeScope::InFlight };
    let places = placement::find(engine, taker.job, taker.pool, NodeScope::Ready, taker.asked);
    let places = places.or_else(|| placement::find(engine, taker.job, taker.pool, scope, taker.asked));
    let gang = !matches!(&engine.state.classes[taker.class].shape.gang, Gang::Workers { min: 1, .. });
    let helps = lack == Lack::Share || (gang && lack != Lack::Time);
    let bought = places.is_none() && helps && supply::can_be_had(engine, taker.job, taker.pool);
    if bought { Some(Vec::new()) } else { places }
}

/// Gives back what a way to empty nodes does not need: of what it takes for quota or money not all that is on a node. Whether there is any.
pub(super) fn spares_any(trial: &mut Trial<'_>, taker: &Taker, way: &mut Way) -> bool {
    let state = &trial.engine.state;
    let mut candidates: Vec<Candidate> =
        way.taken.keys().map(|job| losses::candidate(state, &state.jobs[*job])).collect();
    candidates.sort_unstable();
    let workers = |way: &Way| way.taken.values().map(|(_, numbers)| numbers.len().max(1)).sum::<usize>();
    let all = workers(way);
    try_back(trial, taker, (Lack::All, Back::IfEnough), &candidates, way, &mut None);
    workers(way) < all
}

/// Gives back what is not needed: whole runs, the last in the order first, then single workers.
fn try_back(
    trial: &mut Trial<'_>,
    taker: &Taker,
    lack: (Lack, Back),
    candidates: &[Candidate],
    way: &mut Way,
    found: &mut Option<Vec<WorkerPlace>>,
) {
    let last_first: Vec<JobId> =
        candidates.iter().rev().map(|c| c.job).filter(|job| way.taken.contains_key(job)).collect();
    way.tight = true;
    for job in last_first {
        let Some((_, numbers)) = way.taken.get(&job).cloned() else { continue };
        if back(trial, taker, lack, job, &numbers, way, found) || trial.engine.state.jobs[job].phase == Phase::Booked {
            continue;
        }
        // All of it is too much to give back; the workers that it cannot do without may be enough.
        let all = trial.engine.state.jobs[job].numbers.len();
        let keep = all - losses::spare(&trial.engine.state, job).min(all);
        if numbers.len() == all && keep < all {
            let needed = apart_first(&trial.engine.state, job, found.as_deref().unwrap_or_default());
            let _ = back(trial, taker, lack, job, &needed[..keep], way, found);
        }
        let left = way.taken.get(&job).map_or(Vec::new(), |(_, numbers)| numbers.clone());
        if left.len() < all {
            for number in left {
                let _ = back(trial, taker, lack, job, &[number], way, found);
            }
        }
    }
}

/// The workers of a run, those first that are not where the head goes.
fn apart_first(state: &State, job: JobId, places: &[WorkerPlace]) -> Vec<u32> {
    let row = &state.jobs[job];
    let there = |place: &WorkerPlace| places.iter().any(|taken| taken.node == place.node);
    let mut workers: Vec<(bool, u32)> =
        row.places.iter().zip(&row.numbers).map(|(place, number)| (there(place), *number)).collect();
    workers.sort_by_key(|(there, _)| *there);
    workers.into_iter().map(|(_, number)| number).collect()
}

/// Gives workers back if it is enough without them.
fn back(
    trial: &mut Trial<'_>,
    taker: &Taker,
    (lack, gives): (Lack, Back),
    job: JobId,
    numbers: &[u32],
    way: &mut Way,
    found: &mut Option<Vec<WorkerPlace>>,
) -> bool {
    if is_owed(trial, taker, job, numbers) {
        return false;
    }
    way.tight = false;
    let Trial { engine, ranks, taken, .. } = &mut *trial;
    taken.put_back(&mut engine.state, ranks, job, numbers);
    let without = enough(trial, taker, lack);
    let permitted = |trial: &mut Trial<'_>| {
        gives == Back::IfEnough || would_come_back(trial, taker, &way.without(job, numbers)).is_empty()
    };
    if without.is_none() || !permitted(trial) {
        let Trial { engine, ranks, taken, .. } = trial;
        taken.take(&mut engine.state, ranks, job, numbers);
        return false;
    }
    *found = without;
    way.spare(job, numbers);
    true
}

/// Whether quota would refuse the head if these workers had theirs back.
fn is_owed(trial: &mut Trial<'_>, taker: &Taker, job: JobId, numbers: &[u32]) -> bool {
    let state = &mut trial.engine.state;
    let row = &state.jobs[job];
    let (queue, Some(pool)) = (row.queue, row.pool) else { return false };
    let share = crate::state::places::share_of(&losses::places(row, numbers));
    state.take_quota(queue, pool, share);
    let refused = quota::refusal(state, taker.class, taker.pool, taker.asked).is_some();
    state.give_quota_back(queue, pool, share);
    refused
}

pub(super) fn price(state: &State, way: &Way) -> Price {
    let mut tiers: BTreeMap<Reverse<i32>, MilliGpu> = BTreeMap::new();
    let mut money = Spend::default();
    for (job, (_, numbers)) in &way.taken {
        let row = &state.jobs[*job];
        let share = crate::state::places::share_of(&losses::places(row, numbers));
        let tier = tiers.entry(Reverse(settings::priority(state, row.tier))).or_default();
        *tier = *tier + share;
        if row.phase != Phase::Booked && numbers.len() == row.numbers.len() {
            money += row.rate.over(row.unsaved(state.now) + state.specs[*job].restart);
        }
    }
    (tiers.into_iter().collect(), money)
}

/// Whether all of a taker has to go on nodes that are there: nothing can be bought for a part of it.
fn is_placed_whole(state: &State, taker: &Taker) -> bool {
    state.classes[taker.class].shape.gang.fewest() <= 1 || supply::is_closed(state, taker.job, taker.pool)
}

/// GPU share that is free on the ready nodes that a taker fits. While it and what was taken are less than what is asked, no place needs to
/// be searched for.
fn free_room(state: &State, taker: &Taker) -> MilliGpu {
    let fits = supply::fits(state, taker.class, taker.pool);
    let of_pool = (taker.pool, OfferingId(0))..=(taker.pool, OfferingId(u32::MAX));
    let open = state.index.free.range(of_pool).filter(|((_, id), _)| fits.binary_search(id).is_ok());
    let nodes = open.flat_map(|(_, free)| &free.whole).filter_map(|(_, _, id)| state.nodes.get(id));
    MilliGpu(nodes.map(|node| node.free_share() - u64::from(node.foreign_gpus()) * 1000).sum())
}

/// The lowest tier first; within it from the queue with the greatest share, as it would be when what comes before is gone; the cheapest.
fn by_cost(trial: &mut Trial<'_>, taker: &Taker, most: usize) -> Vec<Candidate> {
    let state = &trial.engine.state;
    let Some(candidates) = trial.candidates.get(&taker.pool) else { return Vec::new() };
    let mut order = Vec::new();
    for queues in candidates.open_to(state, &trial.ranks, taker, most) {
        if order.len() >= most {
            break;
        }
        if let [(_, runs)] = queues.as_slice() {
            order.extend(runs);
            continue;
        }
        let mut sides: Vec<Side<'_>> =
            queues.iter().map(|(quota, runs)| Side::of(state, taker, *quota, runs)).collect();
        loop {
            let next = sides.iter_mut().filter(|side| side.next.is_some()).min_by(|a, b| a.compare(b));
            let Some(side) = next.filter(|_| order.len() < most) else { break };
            order.extend(side.take(state, taker));
        }
    }
    order.truncate(most);
    order
}

/// The runs of one queue among the candidates.
struct Side<'a> {
    quota: QuotaId,
    runs: core::slice::Iter<'a, Candidate>,
    next: Option<Candidate>,
    gone: MilliGpu,
    share: Option<Share>,
}

impl Side<'_> {
    fn of<'a>(state: &State, taker: &Taker, quota: QuotaId, runs: &'a [Candidate]) -> Side<'a> {
        let mut runs = runs.iter();
        let next = runs.next().copied();
        let mut side = Side { quota, runs, next, gone: MilliGpu(0), share: None };
        side.share = side.share(state, taker);
        side
    }

    fn share(&self, state: &State, taker: &Taker) -> Option<Share> {
        let m = state.meeting(taker.quota, self.quota)?;
        let used = state.quota.usage(m.theirs, taker.pool) - self.gone;
        Some(state.borrowed_share(m.theirs, m.at, taker.pool, used))
    }

    fn compare(&self, other: &Side<'_>) -> Ordering {
        let share = match (self.share, other.share) {
            (Some(a), Some(b)) => b.compare(a),
            _ => Ordering::Equal,
        };
        share.then(self.next.cmp(&other.next))
    }

    fn take(&mut self, state: &State, taker: &Taker) -> Option<Candidate> {
        let next = self.next?;
        self.gone = self.gone + state.jobs[next.job].share;
        self.next = self.runs.next().copied();
        self.share = self.share(state, taker);
        Some(next)
    }
}

/// Node by node: first where what has to go for one node's part of the gang is of the lowest tier and costs least.
fn by_node(trial: &mut Trial<'_>, taker: &Taker) -> Vec<Candidate> {
    let state = &trial.engine.state;
    let Some(candidates) = trial.candidates.get(&taker.pool) else { return Vec::new() };
    let fits = supply::fits(state, taker.class, taker.pool);
    let mut on: BTreeMap<NodeId, Vec<Candidate>> = BTreeMap::new();
    let open = candidates.open_to(state, &trial.ranks, taker, usize::MAX);
    for one in open.flatten().flat_map(|(_, runs)| runs) {
        let nodes: BTreeSet<NodeId> = state.jobs[one.job].places.iter().map(|p| p.node).collect();
        for node in nodes {
            if state.nodes.get(&node).is_some_and(|n| n.open() && fits.binary_search(&n.offering).is_ok()) {
                on.entry(node).or_default().push(one);
            }
        }
    }
    let asked = match &state.classes[taker.class].shape.gang {
        Gang::Workers { each, min, .. } => u64::from(each.gpus) * u64::from(*min),
        Gang::Spanning { gpus, .. } => u64::from(*gpus),
    };
    let mut nodes: Vec<(i32, Spend, NodeId, Vec<Candidate>)> = Vec::new();
    for (id, mut runs) in on {
        runs.sort_unstable();
        let Some(node) = state.nodes.get(&id) else { continue };
        let most = asked.min(node.slots.len() as u64) * 1000;
        let mut free = node.whole_mask().count_ones() as u64 * 1000;
        let (mut tier, mut cost) = (i32::MIN, Spend::default());
        for one in &runs {
            if free >= most {
                break;
            }
            let here = state.jobs[one.job].places.iter().filter(|p| p.node == id);
            free += here.map(|p| p.gpu_share().0).sum::<u64>();
            (tier, cost) = (tier.max(one.tier), Spend(cost.0 + one.cost.0));
        }
        nodes.push((tier, cost, id, runs));
    }
    nodes.sort_unstable();
    let mut seen = BTreeSet::new();
    nodes.into_iter().flat_map(|n| n.3).filter(|one| seen.insert(one.job)).collect()
}

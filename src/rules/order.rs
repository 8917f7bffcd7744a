//! The order: who goes first. Tier, then fair share among queues, then deadline, priority with ageing and arrival within a queue.
//!
//! The jobs of one class form a queue of their own, and only the heads of these queues are compared. A class that gets a "no" leaves
//! the pass, and everyone behind its head with it: they ask for the same. So does every class behind it in its line, where nothing but as much or
//! more of the same would do for it. Use changes with every booking, so the next head is chosen anew each time, by a tournament down the quota
//! tree. Only the path of the last one served is played again:
//!
//! ```text
//! own quota                  what a queue owns before what it would borrow: its owner would take it back
//!  tier                      highest first; one below its `minShare` of all GPUs in use goes before
//!   roots                    least use / weight
//!     cohort                 least (borrowed / lendable / weight), the head's ask included
//!       queue                where nothing is borrowed: least use / weight; then least past use / weight
//!         heads              latest start that meets the deadline, rank (priority, ageing), arrival; in a queue in the order of what is expected
//!                            to be done soonest, arrival + 20 x what is expected
//! ```
//!
//! Source: Kueue's fair sharing (dominant share of what is borrowed, at the lowest common ancestor).
//!
//! Never: keeps a job from being served because another class got a "no". Which runs are stopped is not decided by this order.

use super::{demand, quota, reservations, settings};
use crate::engine::Engine;
use crate::ids::{ClassId, JobId, PoolId, QueueId, QuotaId, TierId};
use crate::policy::QueueOrder;
use crate::state::State;
use crate::state::index::OrderKey;
use crate::state::lines::Line;
use crate::units::{MilliGpu, Span, Timestamp};
use alloc::collections::{BTreeMap, BTreeSet, BinaryHeap};
use alloc::vec::Vec;
use core::cmp::{Ordering, Reverse};
use core::ops::Bound::{Excluded, Unbounded};

/// In a queue whose shortest job goes first, a job stands where one that takes no time would stand that came so many times later as it is expected to take: no
/// job that comes after that goes before it. The less it is, the sooner a gang keeps places from shorter jobs: in a model of three recorded
/// weeks 10 cost 1.5 % of the mean, with the same longest wait, and 30 changed nothing more.
const PER_EXPECTED: u64 = 20;

/// Which queue of its class a head is the first of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum ClassQueue {
    /// Holds places that are not all ready: looks for ready ones.
    Booked,
    /// Waits for quota and places.
    Queued,
}

/// The first job of a class queue. Within a queue the least goes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Head {
    /// Where it stands among those of other classes.
    pub place: OrderKey,
    /// Where it is in its class queue.
    pub key: OrderKey,
    pub class_queue: ClassQueue,
    pub class: ClassId,
}

/// The heads of all class queues in one round, in the order in which they are served.
#[derive(Default)]
pub(crate) struct FairShareOrder {
    groups: BTreeMap<Group, Tournament>,
    /// Lines that are not done, by the class of theirs that is among the heads.
    lines: BTreeMap<ClassId, Left>,
}

/// Those of a line that have not been asked. `None`: all that wait in it.
type Left = Option<BTreeSet<(OrderKey, ClassId)>>;

/// Tiers of one priority, or one tier that has a `minShare`. The least is served first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Group {
    /// What it asks is above what its queue owns: whoever owns quota would take it back.
    borrows: bool,
    /// Negated priority.
    tier: i64,
    min_share: Option<TierId>,
}

/// A contender: a subtree of the quota tree, or the jobs whose queue is an inner node itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Contender {
    Own(QuotaId),
    Subtree(QuotaId),
}

/// A contender's standing among its siblings. The least goes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Standing {
    share: Part,
    /// Only where nothing is borrowed.
    used: Part,
    past: Part,
    head: Head,
    contender: Contender,
}

/// A fraction, compared without rounding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Part {
    of: u128,
    all: u128,
}

/// GPUs and what can be lent are capped here, in thousandths, so that products stay within 128 bits: 2^46 x (2^46 x 2^32) = 2^124.
const MOST: u64 = 1 << 46;

impl Part {
    const NOTHING: Part = Part { of: 0, all: 1 };
}

impl Ord for Part {
    fn cmp(&self, other: &Part) -> Ordering {
        (self.of.saturating_mul(other.all)).cmp(&other.of.saturating_mul(self.all))
    }
}

impl PartialOrd for Part {
    fn partial_cmp(&self, other: &Part) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(Default)]
struct Tournament {
    heads: BTreeMap<QuotaId, BTreeSet<Head>>,
    /// By the node above; `None`: the roots among each other.
    standings: BTreeMap<Option<QuotaId>, BTreeSet<Standing>>,
    contenders: BTreeMap<Contender, Standing>,
}

impl FairShareOrder {
    /// The order of the heads of all classes.
    pub(crate) fn new(engine: &Engine) -> FairShareOrder {
        let state = &engine.state;
        let mut order = FairShareOrder::default();
        for head in booked(state).chain(state.index.lines.all().filter_map(|line| first(state, line))) {
            let tournament = order.groups.entry(group(state, &head)).or_default();
            tournament.heads.entry(leaf(state, head.class)).or_default().insert(head);
            if head.class_queue == ClassQueue::Queued {
                order.lines.insert(head.class, None);
            }
        }
        for tournament in order.groups.values_mut() {
            let leaves: Vec<QuotaId> = tournament.heads.keys().copied().collect();
            leaves.into_iter().for_each(|leaf| tournament.play(state, leaf));
        }
        order
    }

    /// Takes out the head that goes first.
    pub(crate) fn next_head(&mut self, engine: &Engine) -> Option<Head> {
        let state = &engine.state;
        // What a queue owns comes before what it would borrow, for a tier that lags too: its owner would take it back.
        let first = *self.groups.keys().next()?;
        let mut alike = self.groups.iter().take_while(|(group, _)| group.borrows == first.borrows);
        let lagging = alike.find(|(group, tournament)| lags(state, **group, tournament));
        let key = lagging.map_or(first, |(key, _)| *key);
        let tournament = self.groups.get_mut(&key)?;
        let head = tournament.first()?;
        let leaf = leaf(state, head.class);
        tournament.heads.entry(leaf).or_default().remove(&head);
        tournament.play(state, leaf);
        if tournament.first().is_none() {
            self.groups.remove(&key);
        }
        Some(head)
    }

    /// A head was served: the next of its class queue takes its place, and its queue's use is compared anew in all tiers.
    pub(crate) fn served(&mut self, engine: &Engine, head: &Head) {
        let state = &engine.state;
        let leaf = leaf(state, head.class);
        self.regroup(state, leaf);
        match self.line(head) {
            Some(mut left) => {
                let next = state.index.first_queued(head.class).map(|key| (key, head.class));
                left.iter_mut().for_each(|left| left.extend(next));
                self.go_on(state, head.class, left);
            }
            None => behind(state, head).into_iter().for_each(|next| self.enter(state, next)),
        }
        for tournament in self.groups.values_mut() {
            tournament.play(state, leaf);
        }
    }

    /// A head was told no. `of_more`: so would be whoever is behind it in its line and asks no less. The audit asks them all the same.
    pub(crate) fn refused(&mut self, engine: &Engine, head: &Head, of_more: bool) {
        if let Some(left) = self.line(head) {
            let left = without(&engine.state, left, head.class, of_more && !engine.memo.off);
            self.go_on(&engine.state, head.class, Some(left));
        }
    }

    /// The rest of the line of a head that has been asked. `None`: it was not the line's turn.
    fn line(&mut self, head: &Head) -> Option<Left> {
        let queued = head.class_queue == ClassQueue::Queued;
        queued.then(|| self.lines.remove(&head.class)).flatten()
    }

    /// The next of a line takes its place among the heads.
    fn go_on(&mut self, state: &State, last: ClassId, mut left: Left) {
        let next = match &mut left {
            Some(left) => left.pop_first().map(|next| head_of(state, next)),
            None => state.index.lines.of(last).and_then(|line| first(state, line)),
        };
        if let Some(next) = next {
            self.lines.insert(next.class, left);
            self.enter(state, next);
        }
    }

    /// What a queue was given may have used up what it and its cohorts own: heads that would borrow now go behind those that would not.
    fn regroup(&mut self, state: &State, leaf: QuotaId) {
        let way = core::iter::successors(Some(leaf), |at| state.quota.parent(*at));
        let top = way.take_while(|at| state.quota.parent(*at).is_some()).last();
        if top.is_none() && !state.quota.inner(leaf) {
            return;
        }
        // Of what is below a root nothing owns less when its own jobs use more: only they do.
        let is_near = |at: &QuotaId| top.map_or(*at == leaf, |top| state.quota.is_below(*at, top));
        let mut moved = Vec::new();
        for (key, tournament) in self.groups.iter_mut().filter(|(key, _)| !key.borrows) {
            let near: Vec<QuotaId> = tournament.heads.keys().copied().filter(is_near).collect();
            for at in near {
                let Some(heads) = tournament.heads.get_mut(&at) else { continue };
                let now: Vec<Head> = heads.iter().filter(|head| group(state, head) != *key).copied().collect();
                now.iter().for_each(|head| _ = heads.remove(head));
                if !now.is_empty() {
                    tournament.play(state, at);
                }
                moved.extend(now);
            }
        }
        self.groups.retain(|_, tournament| tournament.first().is_some());
        moved.into_iter().for_each(|head| self.enter(state, head));
    }

    /// A head may wait by design: the first behind it that may not wait takes its place.
    pub(crate) fn pass_by(&mut self, engine: &Engine, head: &Head) {
        if let Some(key) = engine.state.index.first_bought_for(head.class).filter(|key| *key > head.key) {
            self.enter(&engine.state, Head { place: place(&engine.state, key.job), key, ..*head });
        }
    }

    fn enter(&mut self, state: &State, head: Head) {
        let leaf = leaf(state, head.class);
        let tournament = self.groups.entry(group(state, &head)).or_default();
        tournament.heads.entry(leaf).or_default().insert(head);
        tournament.play(state, leaf);
    }
}

/// Whether jobs of any other class wait.
pub(crate) fn others_wait(state: &State, class: ClassId) -> bool {
    state.index.queued.keys().any(|other| *other != class)
}

/// Whether no head can be served and nothing has happened since that could help one of them. Then their order does not matter.
pub(crate) fn all_rest(engine: &Engine, woke_at: Timestamp) -> bool {
    let state = &engine.state;
    let parked = |head: &Head| engine.memo.resting(state, head, woke_at);
    let rests = |line: &Line| {
        let (mut next, mut left) = (first(state, line), None);
        while let Some(head) = next {
            let Some(parked) = parked(&head) else { return false };
            let mut rest = without(state, left, head.class, parked.of_more);
            next = rest.pop_first().map(|next| head_of(state, next));
            left = Some(rest);
        }
        true
    };
    booked(state).all(|head| parked(&head).is_some()) && state.index.lines.all().all(rests)
}

/// Who of a line has not been asked when one of its classes was told no. `of_more`: without those for whom that holds as well.
fn without(state: &State, left: Left, class: ClassId, of_more: bool) -> BTreeSet<(OrderKey, ClassId)> {
    let lines = &state.index.lines;
    let Some(line) = lines.of(class) else { return left.unwrap_or_default() };
    if !of_more {
        return left.unwrap_or_else(|| line.heads().filter(|(_, other)| *other != class).collect());
    }
    let asks = lines.asks(class);
    let promised = promised(state).filter(|other| *other != class && lines.are_together(class, *other));
    let promised: BTreeSet<ClassId> = promised.collect();
    if let Some(mut left) = left {
        left.retain(|(_, other)| !asks.covers(lines.asks(*other)) || promised.contains(other));
        return left;
    }
    let first = |other: ClassId| Some((state.index.first_queued(other)?, other));
    line.asking_less(asks).chain(promised).filter_map(first).collect()
}

/// Classes with a job for which something is kept.
fn promised(state: &State) -> impl Iterator<Item = ClassId> + '_ {
    let index = &state.index;
    let shares = index.kept.iter().copied().chain(state.allowances().values().map(|kept| kept.job));
    let places = index.reserved.iter().map(|kept| kept.0).chain(state.reservations().values().map(|kept| kept.job));
    shares.chain(places).map(|job| state.jobs[job].class)
}

fn first(state: &State, line: &Line) -> Option<Head> {
    line.heads().next().map(|next| head_of(state, next))
}

fn head_of(state: &State, (key, class): (OrderKey, ClassId)) -> Head {
    Head { place: place(state, key.job), key, class_queue: ClassQueue::Queued, class }
}

/// Where a job stands among those of other classes.
pub(crate) fn place(state: &State, job: JobId) -> OrderKey {
    place_with(state, job, state.index.ageing)
}

/// The same with priority that ages in another way.
pub(crate) fn place_with(state: &State, job: JobId, ageing: Option<Span>) -> OrderKey {
    let row = &state.jobs[job];
    let key = OrderKey::of(row, ageing);
    if order_of(state, row.queue) == QueueOrder::Arrival {
        return key;
    }
    let later = demand::remaining_mean(state, job).times(PER_EXPECTED);
    // With ageing the rank is an arrival.
    let rank = key.rank + ageing.map_or(0, |_| i128::from(later.0));
    OrderKey { rank, arrival: key.arrival + later, ..key }
}

fn order_of(state: &State, queue: QueueId) -> QueueOrder {
    state.queues[queue].rule.as_ref().map_or(QueueOrder::Arrival, |rule| rule.order)
}

/// The heads of booked jobs.
fn booked(state: &State) -> impl Iterator<Item = Head> + '_ {
    let of = |(class, jobs): (&ClassId, &BTreeSet<OrderKey>)| {
        let key = *jobs.first()?;
        Some(Head { place: place(state, key.job), key, class_queue: ClassQueue::Booked, class: *class })
    };
    state.index.booked.iter().filter_map(of)
}

/// The next job of the same class queue.
fn behind(state: &State, head: &Head) -> Option<Head> {
    let classes = match head.class_queue {
        ClassQueue::Booked => &state.index.booked,
        ClassQueue::Queued => &state.index.queued,
    };
    let key = classes.get(&head.class)?.range((Excluded(head.key), Unbounded)).next()?;
    Some(Head { place: place(state, key.job), key: *key, ..*head })
}

/// The heads of all queues of waiting jobs: those of queues that have anything left of what they own, then by tier, priority and arrival. Of a line
/// only the next one is compared.
pub(crate) struct StrictHeads {
    next: BinaryHeap<Reverse<(Rank, Head)>>,
    /// Elsewhere nobody borrows.
    with_quotas: BTreeSet<PoolId>,
}

/// Whether its queue has nothing left of its own, where its tier stands, the greatest first, and the place in it.
type Rank = (bool, Reverse<(bool, i32)>, OrderKey);

impl StrictHeads {
    /// `of`: whether anything may be for a line at all, given a class of it.
    pub(crate) fn new(state: &State, of: impl Fn(ClassId) -> bool) -> StrictHeads {
        let firsts = state.index.lines.all().filter_map(|line| Some((line, line.heads().next()?.1)));
        let lines = firsts.filter(|(_, first)| of(*first));
        let most = |first| if ranks_otherwise(state, first) { usize::MAX } else { 1 };
        let heads = lines.flat_map(|(line, first)| line.heads().take(most(first)));
        let pools = (0..state.declared_pools()).map(|at| PoolId(at as u16));
        let with_quotas = pools.filter(|pool| state.has_quotas(*pool)).collect();
        let mut strict = StrictHeads { next: BinaryHeap::new(), with_quotas };
        let ranked: Vec<_> = heads.map(|head| strict.ranked(state, head_of(state, head))).collect();
        strict.next.extend(ranked);
        strict
    }

    /// The next one. Nobody has joined or left a queue in between.
    pub(crate) fn next(&mut self, state: &State) -> Option<Head> {
        let Reverse((_, head)) = self.next.pop()?;
        if !ranks_otherwise(state, head.class) {
            let line = state.index.lines.of(head.class);
            let behind = line.and_then(|line| line.behind(head.key, head.class));
            let behind = behind.map(|behind| self.ranked(state, head_of(state, behind)));
            self.next.extend(behind);
        }
        Some(head)
    }

    /// Whether the next of these goes before the next of others.
    pub(crate) fn goes_before(&self, others: &StrictHeads) -> bool {
        let (next, other) = (self.next.peek(), others.next.peek());
        next.is_some_and(|Reverse(next)| other.is_none_or(|Reverse(other)| next < other))
    }

    fn ranked(&self, state: &State, head: Head) -> Reverse<(Rank, Head)> {
        let first = settings::pools(state, head.class).next();
        let quotas = first.is_some_and(|pool| self.with_quotas.contains(&pool));
        let spent = quotas && reservations::has_spent_its_own(state, head.key.job);
        let (turn, place) = reservations::strictly(state, head.key.job);
        Reverse(((spent, turn, place), head))
    }
}

/// Whether heads go in another order than that in which they stand in their line: with ageing, or where the shortest goes first. Then all of the
/// line is compared.
fn ranks_otherwise(state: &State, class: ClassId) -> bool {
    state.index.ageing.is_some() || order_of(state, state.classes[class].shape.queue) != QueueOrder::Arrival
}

fn group(state: &State, head: &Head) -> Group {
    let class = head.class;
    let id = state.classes[class].shape.tier;
    let tier = settings::tier(state, id);
    let min_share = tier.is_some_and(|t| t.min_share > 0).then_some(id);
    let first = settings::pools(state, class).next();
    let borrows = first.is_some_and(|pool| !quota::asks_own(state, &state.jobs[head.key.job], pool));
    Group { borrows, tier: -i64::from(tier.map_or(0, |t| t.priority)), min_share }
}

/// Whether a tier with a `minShare` has less than that of all GPUs in use, those counted that its head asks.
fn lags(state: &State, group: Group, tournament: &Tournament) -> bool {
    let (Some(tier), Some(head)) = (group.min_share, tournament.first()) else {
        return false;
    };
    is_below_share(state, tier, ask(state, &head).1)
}

/// Whether a tier has less than its `minShare` of all GPUs in use, those counted that are asked.
fn is_below_share(state: &State, tier: TierId, asked: MilliGpu) -> bool {
    let part = settings::tier(state, tier).map(|t| t.min_share).filter(|part| *part > 0);
    part.is_some_and(|part| {
        let all = u128::from((state.index.used_by_all() + asked).0);
        u128::from(state.index.used_by_tier(tier).0) * 1000 < all * u128::from(part)
    })
}

/// Where a tier stands among others when it is told for whom something is kept: one below its `minShare` above all that are not, then by priority. The
/// greatest goes first.
///
/// What its next job asks is not counted, only that a tier which has nothing is below. Where each job's ask counted, a large one could stand above another
/// tier, and a small one before it in its own tier below that: a circle. Whoever is below so goes before in the order of service too.
pub(crate) fn turn_of_tier(state: &State, tier: TierId) -> (bool, i32) {
    let has_nothing = state.index.used_by_tier(tier) == MilliGpu(0);
    (is_below_share(state, tier, MilliGpu(u64::from(has_nothing))), settings::priority(state, tier))
}

/// The tiers that are below their `minShare`.
pub(crate) fn lagging(state: &State) -> Vec<TierId> {
    let tiers = state.policy.as_deref().map_or(0, |policy| policy.tiers.len());
    let tiers = (0..tiers).map(|at| TierId(at as u16));
    tiers.filter(|tier| turn_of_tier(state, *tier).0).collect()
}

/// The node of the quota tree that the queue of a class is at. Classes whose queue the policy does not know share a node of their own.
fn leaf(state: &State, class: ClassId) -> QuotaId {
    quota::node_of(state, state.classes[class].shape.queue).unwrap_or(QuotaId(u16::MAX))
}

/// What a head would take, and in which pool first. One that is booked holds it already.
fn ask(state: &State, head: &Head) -> (Option<PoolId>, MilliGpu) {
    let pool = settings::pools(state, head.class).next();
    match (head.class_queue, pool) {
        (ClassQueue::Queued, Some(pool)) => (Some(pool), quota::share(state, head.class, pool)),
        _ => (None, MilliGpu(0)),
    }
}

impl Tournament {
    fn first(&self) -> Option<Head> {
        self.standings.get(&None)?.first().map(|s| s.head)
    }

    /// Plays the path from a queue to the roots again.
    fn play(&mut self, state: &State, leaf: QuotaId) {
        let mut contender = Contender::Own(leaf);
        loop {
            let above = contender.above(state);
            let standings = self.standings.entry(above).or_default();
            if let Some(old) = self.contenders.remove(&contender) {
                standings.remove(&old);
            }
            let head = match contender {
                Contender::Own(quota) => self.heads.get(&quota).and_then(|heads| heads.first().copied()),
                Contender::Subtree(quota) => {
                    self.standings.get(&Some(quota)).and_then(|standings| standings.first()).map(|s| s.head)
                }
            };
            if let Some(head) = head {
                let standing = standing(state, contender, head);
                self.standings.entry(above).or_default().insert(standing);
                self.contenders.insert(contender, standing);
            }
            match above {
                None => return,
                Some(quota) => contender = Contender::Subtree(quota),
            }
        }
    }
}

impl Contender {
    fn above(self, state: &State) -> Option<QuotaId> {
        match self {
            Contender::Own(quota) => Some(quota),
            Contender::Subtree(quota) => state.quota.parent(quota),
        }
    }
}

fn standing(state: &State, contender: Contender, head: Head) -> Standing {
    let nothing = Standing { share: Part::NOTHING, used: Part::NOTHING, past: Part::NOTHING, head, contender };
    let (quota, own) = match contender {
        Contender::Own(quota) => (quota, true),
        Contender::Subtree(quota) => (quota, false),
    };
    let node = state.policy.as_deref().and_then(|p| p.quotas.get(quota.index()));
    // A contender without siblings needs no comparison.
    if node.is_none() || (own && !state.quota.inner(quota)) {
        return nothing;
    }
    let weight = if own { 1000 } else { u128::from(node.map_or(1000, |n| n.weight.max(1))) };
    let share = share(state, contender, &head, weight);
    let (held, past) = use_of(state, quota, own);
    let used = Part { of: u128::from(held.0.min(MOST)), all: weight };
    let used = if share == Part::NOTHING { used } else { Part::NOTHING };
    Standing { share, used, past: Part { of: past, all: weight }, ..nothing }
}

/// The dominant share: over all pools the most of what is borrowed, by what could be lent at the node above, by weight.
fn share(state: &State, contender: Contender, head: &Head, weight: u128) -> Part {
    let Some(above) = contender.above(state) else { return Part::NOTHING };
    let mut most = Part::NOTHING;
    for pool in (0..state.declared_pools()).map(|at| PoolId(at as u16)) {
        let borrowed = match contender {
            Contender::Own(quota) => {
                let used = state.quota.own_usage(quota, pool) + asked_at(state, contender, head, pool);
                used - state.quota.named(quota, pool)
            }
            Contender::Subtree(quota) => state.quota.borrowed_with(quota, pool, asked_at(state, contender, head, pool)),
        };
        let lendable = state.quota.potential(above, pool).0.clamp(1, MOST);
        let part = Part { of: u128::from(borrowed.0.min(MOST)), all: u128::from(lendable) * weight };
        if borrowed > MilliGpu(0) && part > most {
            most = part;
        }
    }
    most
}

/// How much of what a head asks of a pool would count at this contender: what a queue keeps for itself does not count above it.
fn asked_at(state: &State, contender: Contender, head: &Head, pool: PoolId) -> MilliGpu {
    let (asked, amount) = ask(state, head);
    if asked != Some(pool) {
        return MilliGpu(0);
    }
    let (Contender::Own(at) | Contender::Subtree(at)) = contender;
    state.quota.usage_with(leaf(state, head.class), pool, amount, at) - state.quota.usage(at, pool)
}

/// Held now and held before, by a subtree or by the jobs whose queue is its root.
fn use_of(state: &State, quota: QuotaId, own: bool) -> (MilliGpu, u128) {
    let of = |quota| (state.fair.counted(quota).held, state.past_use(quota).0);
    let all = of(quota);
    if !own {
        return all;
    }
    let take = |(held, past): (MilliGpu, u128), child| {
        let of = of(child);
        (held - of.0, past.saturating_sub(of.1))
    };
    state.quota.children(quota).fold(all, take)
}

//! order: who goes first. Tier, then fair share among queues, then priority with ageing and arrival within a queue.
//!
//! Jobs of one class stand in one line; only the heads of the lines are compared. A class that was told "no" leaves the pass, and
//! with it everyone behind its head: they ask the same. Use changes with every booking, so the next head is chosen anew each time,
//! by a tournament down the quota tree in which only the path of the last one served is played again:
//!
//! ```text
//! tier                       highest first; one below its `minShare` of all GPUs in use goes before
//!   roots                    least use / weight
//!     cohort                 least (borrowed / lendable / weight), the head's ask included
//!       queue                where nothing is borrowed: least use / weight; then least past use / weight
//!         lines              rank (priority, ageing), arrival
//! ```
//!
//! Source: Kueue's fair sharing (dominant share of what is borrowed, at the lowest common ancestor).
//!
//! Never: keeps a job from going because another class was told no, and never says who is stopped for whom.

use super::admit;
use crate::engine::{Engine, Parked};
use crate::ids::{ClassId, PoolId, QuotaId, TierId};
use crate::state::State;
use crate::state::index::OrderKey;
use crate::units::{MilliGpu, Millis};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::ops::Bound::{Excluded, Unbounded};

/// The line a head stands in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Line {
    /// Holds places that are not all ready: looks for ready ones.
    Booked,
    /// Waits for quota and places.
    Queued,
}

/// The head of a line. Within a queue the least goes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Head {
    pub key: OrderKey,
    pub line: Line,
    pub class: ClassId,
}

/// All lines of a round.
pub(crate) struct LineUp {
    groups: BTreeMap<Group, Tournament>,
}

/// Tiers of one priority, or one tier that has a `minShare`. The least goes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Group {
    /// Negated priority.
    tier: i64,
    min_share: Option<TierId>,
}

/// A contender: a subtree, or the jobs that stand at an inner node itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Seat {
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
    seat: Seat,
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
    lines: BTreeMap<QuotaId, BTreeSet<Head>>,
    /// By the node above; `None`: the roots among each other.
    standings: BTreeMap<Option<QuotaId>, BTreeSet<Standing>>,
    seats: BTreeMap<Seat, Standing>,
}

impl LineUp {
    /// Lines up the heads of all classes.
    pub(crate) fn new(engine: &Engine) -> LineUp {
        let state = &engine.state;
        let mut lineup = LineUp { groups: BTreeMap::new() };
        for head in heads(state) {
            let tournament = lineup.groups.entry(group(state, head.class)).or_default();
            tournament.lines.entry(leaf(state, head.class)).or_default().insert(head);
        }
        for tournament in lineup.groups.values_mut() {
            let leaves: Vec<QuotaId> = tournament.lines.keys().copied().collect();
            leaves.into_iter().for_each(|leaf| tournament.play(state, leaf));
        }
        lineup
    }

    /// Takes out the head that goes first.
    pub(crate) fn next_head(&mut self, engine: &Engine) -> Option<Head> {
        let state = &engine.state;
        let lagging = self.groups.iter().find(|(group, tournament)| lags(state, **group, tournament));
        let key = lagging.map(|(key, _)| *key).or_else(|| self.groups.keys().next().copied())?;
        let tournament = self.groups.get_mut(&key)?;
        let head = tournament.first()?;
        let leaf = leaf(state, head.class);
        tournament.lines.entry(leaf).or_default().remove(&head);
        tournament.play(state, leaf);
        if tournament.first().is_none() {
            self.groups.remove(&key);
        }
        Some(head)
    }

    /// A head was served: who stands behind it comes forward, and its queue's use is compared anew in all tiers.
    pub(crate) fn served(&mut self, engine: &Engine, head: &Head) {
        let state = &engine.state;
        let leaf = leaf(state, head.class);
        if let Some(next) = behind(state, head) {
            self.step_in(state, next);
        }
        for tournament in self.groups.values_mut() {
            tournament.play(state, leaf);
        }
    }

    /// A head may wait by design: the first behind it that may not steps forward.
    pub(crate) fn pass_by(&mut self, engine: &Engine, head: &Head) {
        if let Some(key) = engine.state.ix.first_bought_for(head.class).filter(|key| *key > head.key) {
            self.step_in(&engine.state, Head { key, ..*head });
        }
    }

    fn step_in(&mut self, state: &State, head: Head) {
        let leaf = leaf(state, head.class);
        let tournament = self.groups.entry(group(state, head.class)).or_default();
        tournament.lines.entry(leaf).or_default().insert(head);
        tournament.play(state, leaf);
    }
}

/// Whether all heads were told no and nothing has happened that could help one of them: then their order is nobody's business.
pub(crate) fn all_rest(engine: &Engine, woke_at: Millis) -> bool {
    heads(&engine.state).all(|head| engine.memo.resting(&engine.state, &head, woke_at).is_some())
}

fn heads(state: &State) -> impl Iterator<Item = Head> + '_ {
    let lines = [(Line::Booked, &state.ix.booked), (Line::Queued, &state.ix.queued)];
    lines.into_iter().flat_map(|(line, classes)| {
        classes.iter().filter_map(move |(class, jobs)| Some(Head { key: *jobs.first()?, line, class: *class }))
    })
}

/// The head of the same line behind this one.
fn behind(state: &State, head: &Head) -> Option<Head> {
    let lines = match head.line {
        Line::Booked => &state.ix.booked,
        Line::Queued => &state.ix.queued,
    };
    let key = lines.get(&head.class)?.range((Excluded(head.key), Unbounded)).next()?;
    Some(Head { key: *key, ..*head })
}

/// The heads of all waiting lines as those come first for whom others are stopped.
pub(crate) fn strict_heads(state: &State) -> Vec<Head> {
    let first = |(class, jobs): (&ClassId, &BTreeSet<OrderKey>)| {
        Some(Head { key: *jobs.first()?, line: Line::Queued, class: *class })
    };
    let mut heads: Vec<Head> = state.ix.queued.iter().filter_map(first).collect();
    heads.sort_by_cached_key(|head| strictly(state, head));
    heads
}

/// For whom others are stopped: by tier, priority and arrival alone. Neither use nor waiting counts here.
pub(crate) fn strictly(state: &State, head: &Head) -> (i64, i64, Millis, crate::ids::JobId, Line) {
    let job = &state.jobs[head.key.job.ix()];
    (group(state, head.class).tier, -i64::from(job.priority), job.arrival, job.id, head.line)
}

fn group(state: &State, class: ClassId) -> Group {
    let id = state.classes[class.ix()].shape.tier;
    let tier = state.policy.as_deref().and_then(|p| p.tiers.get(id.ix()));
    let min_share = tier.is_some_and(|t| t.min_share > 0).then_some(id);
    Group { tier: -i64::from(tier.map_or(0, |t| t.priority)), min_share }
}

/// Whether a tier with a `minShare` has less than that of all GPUs in use, those counted that its head asks.
fn lags(state: &State, group: Group, tournament: &Tournament) -> bool {
    let (Some(tier), Some(head)) = (group.min_share, tournament.first()) else {
        return false;
    };
    let part = state.policy.as_deref().and_then(|p| p.tiers.get(tier.ix())).map_or(0, |t| t.min_share);
    let all = u128::from((state.ix.used_by_all() + ask(state, &head).1).0);
    u128::from(state.ix.used_by_tier(tier).0) * 1000 < all * u128::from(part)
}

/// Where a class stands in the quota tree. A class whose queue the policy does not know stands apart.
fn leaf(state: &State, class: ClassId) -> QuotaId {
    let queue = state.classes[class.ix()].shape.queue;
    state.queues[queue.ix()].rule.as_ref().map_or(QuotaId(u16::MAX), |rule| rule.quota)
}

/// What a head would take, and in which pool first. One that is booked holds it already.
fn ask(state: &State, head: &Head) -> (Option<PoolId>, MilliGpu) {
    let pool = state.classes[head.class.ix()].fits.first().map(|f| f.0);
    match (head.line, pool) {
        (Line::Queued, Some(pool)) => (Some(pool), admit::share(state, head.class, pool)),
        _ => (None, MilliGpu(0)),
    }
}

impl Tournament {
    fn first(&self) -> Option<Head> {
        self.standings.get(&None)?.first().map(|s| s.head)
    }

    /// Plays the path from a queue to the roots again.
    fn play(&mut self, state: &State, leaf: QuotaId) {
        let mut seat = Seat::Own(leaf);
        loop {
            let above = seat.above(state);
            let standings = self.standings.entry(above).or_default();
            if let Some(old) = self.seats.remove(&seat) {
                standings.remove(&old);
            }
            let head = match seat {
                Seat::Own(quota) => self.lines.get(&quota).and_then(|lines| lines.first().copied()),
                Seat::Subtree(quota) => {
                    self.standings.get(&Some(quota)).and_then(|standings| standings.first()).map(|s| s.head)
                }
            };
            if let Some(head) = head {
                let standing = standing(state, seat, head);
                self.standings.entry(above).or_default().insert(standing);
                self.seats.insert(seat, standing);
            }
            match above {
                None => return,
                Some(quota) => seat = Seat::Subtree(quota),
            }
        }
    }
}

impl Seat {
    fn above(self, state: &State) -> Option<QuotaId> {
        match self {
            Seat::Own(quota) => Some(quota),
            Seat::Subtree(quota) => state.quota.parent(quota),
        }
    }
}

fn standing(state: &State, seat: Seat, head: Head) -> Standing {
    let nothing = Standing { share: Part::NOTHING, used: Part::NOTHING, past: Part::NOTHING, head, seat };
    let (quota, own) = match seat {
        Seat::Own(quota) => (quota, true),
        Seat::Subtree(quota) => (quota, false),
    };
    let node = state.policy.as_deref().and_then(|p| p.quotas.get(quota.ix()));
    // Whoever stands alone needs no comparison.
    if node.is_none() || (own && !state.quota.inner(quota)) {
        return nothing;
    }
    let weight = if own { 1000 } else { u128::from(node.map_or(1000, |n| n.weight.max(1))) };
    let share = share(state, seat, &head, weight);
    let (held, past) = use_of(state, quota, own);
    let used = Part { of: u128::from(held.0.min(MOST)), all: weight };
    let used = if share == Part::NOTHING { used } else { Part::NOTHING };
    Standing { share, used, past: Part { of: past, all: weight }, ..nothing }
}

/// The dominant share: over all pools the most of what is borrowed, by what could be lent at the node above, by weight.
fn share(state: &State, seat: Seat, head: &Head, weight: u128) -> Part {
    let (Some(above), Some(policy)) = (seat.above(state), state.policy.as_deref()) else {
        return Part::NOTHING;
    };
    let mut most = Part::NOTHING;
    for pool in (0..policy.pools.len()).map(|at| PoolId(at as u16)) {
        let borrowed = match seat {
            Seat::Own(quota) => {
                let own = policy.quotas[quota.ix()].limits.get(&pool).map_or(MilliGpu(0), |l| l.nominal);
                own_use(state, quota, pool) + asked_at(state, seat, head, pool) - own
            }
            Seat::Subtree(quota) => state.quota.borrowed_with(quota, pool, asked_at(state, seat, head, pool)),
        };
        let lendable = state.quota.potential(above, pool).0.clamp(1, MOST);
        let part = Part { of: u128::from(borrowed.0.min(MOST)), all: u128::from(lendable) * weight };
        if borrowed > MilliGpu(0) && part > most {
            most = part;
        }
    }
    most
}

/// How much of what a head asks of a pool would reach this seat: what a queue keeps for itself does not rise.
fn asked_at(state: &State, seat: Seat, head: &Head, pool: PoolId) -> MilliGpu {
    let (asked, amount) = ask(state, head);
    if asked != Some(pool) {
        return MilliGpu(0);
    }
    let (Seat::Own(at) | Seat::Subtree(at)) = seat;
    state.quota.usage_with(leaf(state, head.class), pool, amount, at) - state.quota.usage(at, pool)
}

/// What the jobs that stand at an inner node itself use.
fn own_use(state: &State, quota: QuotaId, pool: PoolId) -> MilliGpu {
    let below = state.quota.children(quota).map(|child| {
        let usage = state.quota.usage(child, pool);
        usage - state.quota.kept(child, pool)
    });
    state.quota.usage(quota, pool) - below.fold(MilliGpu(0), |all, one| all + one)
}

/// Held now and held before, of a subtree or of the jobs that stand at its top.
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

impl crate::engine::Memo {
    /// Whether this head was told no and nothing has happened since that could help. Its line rests with it.
    pub(crate) fn resting(&self, state: &State, head: &Head, woke_at: Millis) -> Option<&Parked> {
        let parked = match head.line {
            Line::Booked => self.rebooked.get(&head.class),
            Line::Queued => self.parked.get(&head.class),
        };
        let rests = |p: &&Parked| {
            let in_time = p.until.is_none_or(|at| at > state.now);
            p.head == head.key.job && p.freed == state.freed && p.at >= woke_at && in_time
        };
        parked.filter(|_| !self.off).filter(rests)
    }

    /// When a class that waits by the clock is asked again.
    pub(crate) fn due(&self, state: &State) -> Option<Millis> {
        let of = |(class, parked): (&ClassId, &Parked)| {
            state.ix.queued.contains_key(class).then_some(parked.until).flatten()
        };
        self.parked.iter().filter_map(of).filter(|at| *at > state.now).min()
    }
}

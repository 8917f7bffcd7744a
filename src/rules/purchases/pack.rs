//! Packing: a cheap set of nodes for work of a few kinds, each block of it whole on one node.
//!
//! ```text
//! first-fit-decreasing  on each type alone, each node then replaced by the cheapest that holds what is on it
//! greedy                again and again the node that carries most for its money: filled by size, by length, in proportion, or with one kind
//! all of them           where few nodes are needed or allowed: every choice of so many types
//! merged                nodes of a set whose work goes on one larger node for less
//! ceilings              the same with a price on what is short, raised until the set is within them
//! ```
//!
//! It counts by kind: ten thousand equal jobs cost no more than ten. Never: splits a block, knows a job, or asks what is in stock.

use crate::units::{HOUR_MS, Rate, Span};
use alloc::vec::Vec;
use core::cmp::Reverse;

/// A whole GPU in a [`Room`].
pub(crate) const WHOLE: u64 = 1_000_000;

/// GPUs in millionths, CPU and memory.
pub(crate) type Room = [u64; 3];

/// What is on a node: so many blocks of each kind.
pub(crate) type Content = Vec<(usize, u32)>;

/// What can be bought.
#[derive(Clone, Debug)]
pub(crate) struct NodeType {
    pub room: Room,
    /// What it adds to the bill, and what the policy counts for each node beside that.
    pub paid: Rate,
    pub overhead: Rate,
    /// What the ceilings book it at.
    pub booked: Rate,
    /// Reclaims of a node an hour, in millionths.
    pub reclaims: u64,
    pub boot: Span,
    pub on_demand: bool,
    /// So many at most.
    pub most: u32,
}

/// Equal blocks of work: each goes to one node whole.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub need: Room,
    pub count: u32,
    pub lasts: Span,
    /// What a reclaim of its node loses.
    pub loses: Span,
    /// By type: whether it may go there.
    pub fits: Vec<bool>,
    /// What it costs as it would be bought alone, where that takes several nodes.
    pub alone: Option<Alone>,
}

/// A block that is bought for alone, over several nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Alone {
    pub cost: u128,
    pub held: Counts,
}

/// What a set holds of the ceilings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Counts {
    pub nodes: u64,
    pub on_demand: u64,
    pub gpus: u64,
    pub spend: u64,
}

/// Equal nodes: of one type, with so many blocks of each kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Nodes {
    pub of: usize,
    pub count: u32,
    pub content: Content,
}

/// A set of nodes that carries all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Set {
    pub nodes: Vec<Nodes>,
    /// Blocks that are bought for alone, by kind.
    pub alone: Vec<(usize, u32)>,
    /// In micro-dollars an hour x milliseconds.
    pub cost: u128,
    pub held: Counts,
}

/// What is to be carried, by what, within which ceilings.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub types: Vec<NodeType>,
    pub kinds: Vec<Kind>,
    /// What the ceilings leave.
    pub left: Counts,
}

/// A price on what is short, beside the cost: for a node, an on-demand node, a GPU, and the booked price in thousandths of a milli-hour.
#[derive(Clone, Copy, Default)]
struct Toll {
    node: u128,
    on_demand: u128,
    gpu: u128,
    spend: u128,
}

/// Steps of a search at most: bounds a pass. About 50 ns each.
const MOST_WORK: u64 = 4_000_000;
/// Choices of types that are tried one by one at most.
const MOST_CHOICES: u32 = 3_000;
/// The same where no ceiling is in the way.
const FEW_CHOICES: u32 = 100;
/// Nodes of a choice at most.
const MOST_CHOSEN: u64 = 6;
/// Nodes of a set that is merged at most.
const MOST_MERGED: u64 = 256;
/// Times that a toll is doubled at most.
const MOST_RAISED: u32 = 40;

/// What a node with such work on it costs until that is done.
pub(crate) fn node_cost(of: &NodeType, lasts: Span, loses: Span) -> u128 {
    let lost = if loses == Span::ZERO {
        0
    } else {
        u128::from(of.reclaims) * u128::from((loses + of.boot).0) / u128::from(HOUR_MS)
    };
    let paid = u128::from(of.paid.0) * (1_000_000 + lost) / 1_000_000;
    (paid + u128::from(of.overhead.0)) * u128::from((of.boot + lasts).0.max(1))
}

/// The cheapest sets so far.
struct Best {
    left: Counts,
    /// Within the ceilings.
    within: Option<Set>,
    /// Whatever they say.
    any: Option<Set>,
}

impl Best {
    fn offer(&mut self, set: Option<Set>) {
        let Some(set) = set else { return };
        let cheaper = |than: &Option<Set>| than.as_ref().is_none_or(|than| set.cost < than.cost);
        if set.held.within(self.left) && cheaper(&self.within) {
            self.within = Some(set.clone());
        }
        if cheaper(&self.any) {
            self.any = Some(set);
        }
    }
}

impl Counts {
    fn plus(self, other: Counts, times: u64) -> Counts {
        let sum = |a: u64, b: u64| a.saturating_add(b.saturating_mul(times));
        Counts {
            nodes: sum(self.nodes, other.nodes),
            on_demand: sum(self.on_demand, other.on_demand),
            gpus: sum(self.gpus, other.gpus),
            spend: sum(self.spend, other.spend),
        }
    }

    fn within(self, most: Counts) -> bool {
        self.nodes <= most.nodes
            && self.on_demand <= most.on_demand
            && self.gpus <= most.gpus
            && self.spend <= most.spend
    }
}

impl Toll {
    fn on(&self, held: Counts) -> u128 {
        self.node * u128::from(held.nodes)
            + self.on_demand * u128::from(held.on_demand)
            + self.gpu * u128::from(held.gpus)
            + self.spend * u128::from(held.spend)
    }
}

impl Problem {
    /// No set costs less: each block pays at least its part of the cheapest node, by what it takes of one dimension. `None`: nothing is known.
    pub(crate) fn at_least(&self) -> Option<u128> {
        let by = |dim: usize| {
            let of = |kind: &Kind| {
                let each = |(of, one): (usize, &NodeType)| {
                    let cost = node_cost(one, kind.lasts, Span::ZERO);
                    let part = cost.saturating_mul(u128::from(kind.need[dim])).checked_div(u128::from(one.room[dim]));
                    (kind.fits[of] && one.most > 0).then_some(part).flatten()
                };
                let alone = kind.alone.map(|alone| alone.cost);
                let least = self.types.iter().enumerate().filter_map(each).chain(alone).min()?;
                Some(least.saturating_mul(u128::from(kind.count)))
            };
            self.kinds.iter().map(of).try_fold(0u128, |sum, cost| Some(sum.saturating_add(cost?)))
        };
        (0..3).filter_map(by).max()
    }

    /// The cheapest set found that carries all within the ceilings. `None`: none was.
    pub(crate) fn solve(&self) -> Option<Set> {
        let kinds = self.kinds.len() as u64;
        let rounds = kinds.saturating_mul(kinds + 8);
        if rounds.saturating_mul(4) > MOST_WORK {
            return None;
        }
        let types = self.worth_trying(usize::try_from(MOST_WORK / rounds.max(1)).unwrap_or(usize::MAX));
        let mut best = Best { left: self.left, within: None, any: None };
        for of in &types {
            best.offer(self.decreasing(*of, &types));
        }
        let greedy = self.greedy(&types, Toll::default());
        best.offer(greedy.as_ref().and_then(|set| self.merged(set, &types)));
        best.offer(greedy);
        let short = best.any.clone().filter(|set| !set.held.within(self.left));
        self.choices(&types, if short.is_some() { MOST_CHOICES } else { FEW_CHOICES }, &mut best);
        if let Some(set) = short {
            let few = self.worth_trying(usize::try_from(MOST_WORK / rounds.max(1) / 8).unwrap_or(usize::MAX));
            for toll in self.tolls(&set) {
                best.offer(self.greedy(&few, toll));
            }
        }
        best.within
    }

    /// Prices on what a set takes too much of, from a little to all.
    fn tolls(&self, set: &Set) -> Vec<Toll> {
        let each = |n: u64| (set.cost / u128::from(n.max(1)) / 256).max(1);
        let mut all = Vec::new();
        for raised in 0..MOST_RAISED / 2 {
            let times = 1u128 << raised;
            let of = |over: bool, n: u64| if over { each(n).saturating_mul(times) } else { 0 };
            let (held, left) = (set.held, self.left);
            all.push(Toll {
                node: of(held.nodes > left.nodes, held.nodes),
                on_demand: of(held.on_demand > left.on_demand, held.on_demand),
                gpu: of(held.gpus > left.gpus, held.gpus),
                spend: of(held.spend > left.spend, held.spend),
            });
        }
        all
    }

    /// The types that carry something most cheaply, and the largest, so many in all.
    fn worth_trying(&self, most: usize) -> Vec<usize> {
        let all: Vec<usize> = (0..self.types.len()).filter(|of| self.types[*of].most > 0).collect();
        if all.len() <= most {
            return all;
        }
        let mut ranked: Vec<(u128, Reverse<Room>, usize)> = Vec::new();
        for of in all {
            let rate = |kind: &Kind| {
                let n = self.holds(of, kind, &self.types[of].room);
                (n > 0).then(|| node_cost(&self.types[of], kind.lasts, kind.loses) / u128::from(n))
            };
            let rates = self.kinds.iter().filter_map(rate);
            if let Some(least) = rates.min() {
                ranked.push((least, Reverse(self.types[of].room), of));
            }
        }
        ranked.sort_unstable();
        ranked.truncate(most.max(1));
        let mut chosen: Vec<usize> = ranked.into_iter().map(|r| r.2).collect();
        chosen.sort_unstable();
        chosen
    }

    /// How many blocks of a kind a type has room for.
    fn holds(&self, of: usize, kind: &Kind, room: &Room) -> u32 {
        if !kind.fits[of] {
            return 0;
        }
        let dims = kind.need.iter().zip(room).filter_map(|(need, room)| room.checked_div(*need));
        u32::try_from(dims.min().unwrap_or(u64::MAX)).unwrap_or(u32::MAX)
    }

    fn held_by(&self, of: usize) -> Counts {
        let one = &self.types[of];
        Counts { nodes: 1, on_demand: u64::from(one.on_demand), gpus: one.room[0] / WHOLE, spend: one.booked.0 }
    }

    fn cost_with(&self, of: usize, content: &[(usize, u32)]) -> u128 {
        let lasts = content.iter().map(|(kind, _)| self.kinds[*kind].lasts).max().unwrap_or_default();
        let loses = content.iter().map(|(kind, _)| self.kinds[*kind].loses).max().unwrap_or_default();
        node_cost(&self.types[of], lasts, loses)
    }

    /// The part of a type that a block is charged: of its GPUs, or without GPUs the most of the rest, in millionths.
    pub(crate) fn part_of(&self, of: usize, kind: usize) -> u64 {
        let (room, need) = (&self.types[of].room, &self.kinds[kind].need);
        if need[0] > 0 {
            return need[0].saturating_mul(1_000_000) / room[0].max(1);
        }
        self.part(of, kind)
    }

    /// The largest part of a type that a block takes, in millionths.
    fn part(&self, of: usize, kind: usize) -> u64 {
        let room = &self.types[of].room;
        let dims = self.kinds[kind].need.iter().zip(room);
        dims.map(|(need, room)| need.saturating_mul(1_000_000) / (*room).max(1)).max().unwrap_or(0)
    }

    /// Kinds by their size on a type, the largest first.
    fn by_size(&self, of: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.kinds.len()).filter(|k| self.kinds[*k].fits[of]).collect();
        order.sort_by_cached_key(|kind| (Reverse(self.part(of, *kind)), *kind));
        order
    }

    /// Kinds by how long they last, the longest first, then by size.
    fn by_length(&self, of: usize) -> Vec<usize> {
        let mut order = self.by_size(of);
        order.sort_by_key(|kind| Reverse(self.kinds[*kind].lasts));
        order
    }

    /// Fills what is left of a node in this order.
    fn fill(&self, of: usize, order: &[usize], rest: &[u32], room: &mut Room, content: &mut Content) {
        for &kind in order {
            let there = content.iter().position(|c| c.0 == kind);
            let taken = there.map_or(0, |at| content[at].1);
            let count = self.holds(of, &self.kinds[kind], room).min(rest[kind] - taken);
            if count == 0 {
                continue;
            }
            take(room, &self.kinds[kind].need, count);
            match there {
                Some(at) => content[at].1 += count,
                None => content.push((kind, count)),
            }
        }
    }

    /// A node with the same mix as all that is left, and then what still fits.
    fn in_proportion(&self, of: usize, order: &[usize], rest: &[u32]) -> Content {
        let mut all = [0u128; 3];
        for &kind in order {
            for (sum, need) in all.iter_mut().zip(self.kinds[kind].need) {
                *sum += u128::from(need) * u128::from(rest[kind]);
            }
        }
        let room = self.types[of].room;
        // The part of all that is left that one node holds, in millionths.
        let parts = all.iter().zip(room).filter_map(|(all, room)| (u128::from(room) * 1_000_000).checked_div(*all));
        let part = parts.min().unwrap_or(0).min(1_000_000);
        let (mut left, mut content) = (room, Vec::new());
        for &kind in order {
            let count = u32::try_from(u128::from(rest[kind]) * part / 1_000_000).unwrap_or(0);
            if count > 0 {
                take(&mut left, &self.kinds[kind].need, count);
                content.push((kind, count));
            }
        }
        self.fill(of, order, rest, &mut left, &mut content);
        content
    }

    /// First-fit-decreasing on one type. What does not go there is bought for alone.
    fn decreasing(&self, of: usize, types: &[usize]) -> Option<Set> {
        let order = self.by_size(of);
        let mut rest: Vec<u32> = self.kinds.iter().map(|k| k.count).collect();
        let mut set = Set::default();
        loop {
            let (mut room, mut content) = (self.types[of].room, Vec::new());
            self.fill(of, &order, &rest, &mut room, &mut content);
            if content.is_empty() {
                break;
            }
            let count = times(&content, &rest);
            self.add(&mut set, of, count, content, &mut rest, types);
        }
        self.rest_alone(&mut set, &mut rest, types)?;
        self.within_stock(&set).then_some(set)
    }

    /// What is left, each kind on its own cheapest nodes.
    fn rest_alone(&self, set: &mut Set, rest: &mut [u32], types: &[usize]) -> Option<()> {
        for kind in 0..rest.len() {
            while rest[kind] > 0 {
                let nodes = types.iter().filter_map(|of| {
                    let n = self.holds(*of, &self.kinds[kind], &self.types[*of].room).min(rest[kind]);
                    let cost = self.cost_with(*of, &[(kind, n)]);
                    (n > 0).then(|| (cost / u128::from(n), *of, n))
                });
                let cheapest = nodes.min();
                let whole = self.kinds[kind].alone;
                match (cheapest, whole) {
                    (Some((each, of, n)), alone) if alone.is_none_or(|alone| each <= alone.cost) => {
                        let content = alloc::vec![(kind, n)];
                        let count = times(&content, rest);
                        self.add(set, of, count, content, rest, types);
                    }
                    (_, Some(alone)) => self.add_alone(set, kind, alone, rest),
                    _ => return None,
                }
            }
        }
        Some(())
    }

    fn add_alone(&self, set: &mut Set, kind: usize, alone: Alone, rest: &mut [u32]) {
        let n = core::mem::take(&mut rest[kind]);
        set.alone.push((kind, n));
        set.cost = set.cost.saturating_add(alone.cost.saturating_mul(u128::from(n)));
        set.held = set.held.plus(alone.held, u64::from(n));
    }

    /// Adds equal nodes to a set, of the cheapest type that holds what is on them.
    fn add(&self, set: &mut Set, of: usize, count: u32, content: Content, rest: &mut [u32], types: &[usize]) {
        let mut need = [0u64; 3];
        for &(kind, n) in &content {
            rest[kind] -= n * count;
            for (sum, each) in need.iter_mut().zip(self.kinds[kind].need) {
                *sum = sum.saturating_add(each.saturating_mul(u64::from(n)));
            }
        }
        let holds = |of: &usize| {
            let one = &self.types[*of];
            one.most >= count
                && need.iter().zip(one.room).all(|(need, room)| *need <= room)
                && content.iter().all(|(kind, _)| self.kinds[*kind].fits[*of])
        };
        // A node that is nearly full in some way has no smaller one that would do.
        let full =
            need.iter().zip(self.types[of].room).any(|(need, room)| need.saturating_mul(10) > room.saturating_mul(9));
        let cost = |of: usize| (self.cost_with(of, &content), self.types[of].booked, of);
        let smaller = if full { None } else { types.iter().copied().filter(holds).map(cost).min() };
        let of = smaller.map_or(of, |c| c.2);
        self.push(set, of, count, content);
    }

    fn push(&self, set: &mut Set, of: usize, count: u32, content: Content) {
        set.cost = set.cost.saturating_add(self.cost_with(of, &content).saturating_mul(u128::from(count)));
        set.held = set.held.plus(self.held_by(of), u64::from(count));
        set.nodes.push(Nodes { of, count, content });
    }

    fn within_stock(&self, set: &Set) -> bool {
        let mut used = alloc::vec![0u32; self.types.len()];
        for nodes in &set.nodes {
            used[nodes.of] = used[nodes.of].saturating_add(nodes.count);
        }
        used.iter().zip(&self.types).all(|(used, of)| *used <= of.most)
    }

    /// What a block of each kind costs where it is cheapest among its like, with a toll.
    fn worth(&self, types: &[usize], toll: Toll) -> Vec<u128> {
        let of_kind = |kind: &Kind| {
            let each = |of: &usize| {
                let n = self.holds(*of, kind, &self.types[*of].room);
                let cost =
                    node_cost(&self.types[*of], kind.lasts, kind.loses).saturating_add(toll.on(self.held_by(*of)));
                (n > 0).then(|| cost / u128::from(n))
            };
            let alone = kind.alone.map(|a| a.cost.saturating_add(toll.on(a.held)));
            types.iter().filter_map(each).chain(alone).min().unwrap_or(1).max(1)
        };
        self.kinds.iter().map(of_kind).collect()
    }

    /// Again and again the node that carries most for its money.
    fn greedy(&self, types: &[usize], toll: Toll) -> Option<Set> {
        let worth = self.worth(types, toll);
        let orders: Vec<[Vec<usize>; 2]> = types.iter().map(|of| [self.by_size(*of), self.by_length(*of)]).collect();
        let mut rest: Vec<u32> = self.kinds.iter().map(|k| k.count).collect();
        let mut used = alloc::vec![0u32; self.types.len()];
        let mut set = Set::default();
        while rest.iter().any(|n| *n > 0) {
            let mut best: Option<(Ratio, usize, Content)> = None;
            for (at, of) in types.iter().copied().enumerate() {
                if used[of] >= self.types[of].most {
                    continue;
                }
                for content in self.fillings(of, &orders[at], &rest) {
                    let value = content.iter().map(|(kind, n)| worth[*kind] * u128::from(*n)).sum();
                    let cost = self.cost_with(of, &content).saturating_add(toll.on(self.held_by(of)));
                    let ratio = Ratio { cost, value };
                    if best.as_ref().is_none_or(|b| ratio.is_less(b.0)) {
                        best = Some((ratio, of, content));
                    }
                }
            }
            let alone = |(kind, n): (usize, &u32)| {
                let cost = self.kinds[kind].alone.filter(|_| *n > 0)?;
                Some((Ratio { cost: cost.cost.saturating_add(toll.on(cost.held)), value: worth[kind] }, kind, cost))
            };
            let single = rest.iter().enumerate().filter_map(alone).reduce(|a, b| if b.0.is_less(a.0) { b } else { a });
            match (best, single) {
                (Some((ratio, ..)), Some((own, kind, cost))) if own.is_less(ratio) => {
                    self.add_alone(&mut set, kind, cost, &mut rest);
                }
                (Some((_, of, content)), _) => {
                    let count = times(&content, &rest).min(self.types[of].most - used[of]);
                    content.iter().for_each(|(kind, n)| rest[*kind] -= n * count);
                    used[of] += count;
                    self.push(&mut set, of, count, content);
                }
                (None, Some((_, kind, cost))) => self.add_alone(&mut set, kind, cost, &mut rest),
                (None, None) => return None,
            }
        }
        Some(set)
    }

    /// The same work on fewer nodes: the smallest joins another on a larger one, as long as some two cost less so.
    fn merged(&self, set: &Set, types: &[usize]) -> Option<Set> {
        if set.held.nodes > MOST_MERGED {
            return None;
        }
        let each = |nodes: &Nodes| core::iter::repeat_n((nodes.of, nodes.content.clone()), nodes.count as usize);
        let mut nodes: Vec<(usize, Content)> = set.nodes.iter().flat_map(each).collect();
        loop {
            nodes.sort_by_cached_key(|(of, content)| Reverse(self.cost_with(*of, content)));
            let Some((least, smallest)) = nodes.pop() else { break };
            let gone = self.cost_with(least, &smallest);
            let joins = |(at, (of, content)): (usize, &(usize, Content))| {
                let all = together(content, &smallest);
                let (cost, of) = self.cheapest_for(&all, types, self.cost_with(*of, content) + gone)?;
                Some(((self.cost_with(nodes[at].0, content) + gone).saturating_sub(cost), Reverse(at), of, all))
            };
            let Some((_, Reverse(at), of, all)) = nodes.iter().enumerate().filter_map(joins).max() else {
                nodes.push((least, smallest));
                break;
            };
            nodes[at] = (of, all);
        }
        let mut merged = Set::default();
        for &(kind, n) in &set.alone {
            let mut rest = alloc::vec![0; self.kinds.len()];
            rest[kind] = n;
            self.add_alone(&mut merged, kind, self.kinds[kind].alone?, &mut rest);
        }
        nodes.into_iter().for_each(|(of, content)| self.push(&mut merged, of, 1, content));
        self.within_stock(&merged).then_some(merged)
    }

    /// The cheapest type that holds such a content, if it costs less than that.
    fn cheapest_for(&self, content: &[(usize, u32)], types: &[usize], below: u128) -> Option<(u128, usize)> {
        let mut need = [0u64; 3];
        for &(kind, n) in content {
            for (sum, each) in need.iter_mut().zip(self.kinds[kind].need) {
                *sum = sum.saturating_add(each.saturating_mul(u64::from(n)));
            }
        }
        let lasts = content.iter().map(|(kind, _)| self.kinds[*kind].lasts).max().unwrap_or_default();
        let loses = content.iter().map(|(kind, _)| self.kinds[*kind].loses).max().unwrap_or_default();
        let holds = |of: &usize| {
            need.iter().zip(self.types[*of].room).all(|(need, room)| *need <= room)
                && content.iter().all(|(kind, _)| self.kinds[*kind].fits[*of])
        };
        let cost = |of: usize| (node_cost(&self.types[of], lasts, loses), of);
        types.iter().copied().filter(holds).map(cost).min().filter(|(cost, _)| *cost < below)
    }

    /// Ways to fill one node of a type with what is left.
    fn fillings(&self, of: usize, orders: &[Vec<usize>; 2], rest: &[u32]) -> Vec<Content> {
        let left = |order: &[usize]| -> Vec<usize> { order.iter().copied().filter(|kind| rest[*kind] > 0).collect() };
        let by_size = left(&orders[0]);
        let mut all = Vec::new();
        let (mut room, mut content) = (self.types[of].room, Vec::new());
        self.fill(of, &by_size, rest, &mut room, &mut content);
        if content.is_empty() {
            return all;
        }
        all.push(content);
        if by_size.len() > 1 {
            let (mut room, mut content) = (self.types[of].room, Vec::new());
            self.fill(of, &left(&orders[1]), rest, &mut room, &mut content);
            all.push(content);
            all.push(self.in_proportion(of, &by_size, rest));
            for kind in by_size {
                let n = self.holds(of, &self.kinds[kind], &self.types[of].room).min(rest[kind]);
                if n > 0 {
                    all.push(alloc::vec![(kind, n)]);
                }
            }
        }
        all
    }

    /// Every choice of so few types, where few nodes are enough.
    fn choices(&self, types: &[usize], most_tried: u32, best: &mut Best) {
        let blocks: u64 = self.kinds.iter().map(|k| u64::from(k.count)).sum();
        let most = blocks.min(self.left.nodes).min(MOST_CHOSEN) as usize;
        let mut good: Vec<usize> = Vec::new();
        for &of in types {
            let useful = self.kinds.iter().any(|kind| self.holds(of, kind, &self.types[of].room) > 0);
            if useful && !types.iter().any(|by| self.dominates(*by, of)) {
                good.push(of);
            }
        }
        good.sort_by_key(|of| (self.types[*of].room, *of));
        let mut tried = 0;
        let mut chosen = Vec::new();
        for nodes in 1..=most {
            if number_of_choices(good.len() as u64, nodes as u64) + u64::from(tried) > u64::from(most_tried) {
                return;
            }
            self.choose(&good, 0, nodes, &mut chosen, &mut tried, best);
        }
    }

    fn choose(
        &self,
        good: &[usize],
        from: usize,
        more: usize,
        chosen: &mut Vec<usize>,
        tried: &mut u32,
        best: &mut Best,
    ) {
        if more == 0 {
            *tried += 1;
            best.offer(self.on_these(chosen.iter().copied()));
            best.offer(self.on_these(chosen.iter().rev().copied()));
            return;
        }
        for at in from..good.len() {
            chosen.push(good[at]);
            self.choose(good, at, more - 1, chosen, tried, best);
            chosen.pop();
        }
    }

    /// All on these nodes, filled in their order. `None`: it does not go there.
    fn on_these(&self, nodes: impl Iterator<Item = usize>) -> Option<Set> {
        let mut rest: Vec<u32> = self.kinds.iter().map(|k| k.count).collect();
        let mut set = Set::default();
        for of in nodes {
            let (mut room, mut content) = (self.types[of].room, Vec::new());
            self.fill(of, &self.by_size(of), &rest, &mut room, &mut content);
            if content.is_empty() {
                return None;
            }
            content.iter().for_each(|(kind, n)| rest[*kind] -= n);
            self.push(&mut set, of, 1, content);
        }
        (rest.iter().all(|n| *n == 0) && self.within_stock(&set)).then_some(set)
    }

    /// Whether one type is at least as good as another in all that counts.
    fn dominates(&self, by: usize, of: usize) -> bool {
        let (a, b) = (&self.types[by], &self.types[of]);
        let room = a.room.iter().zip(b.room).all(|(a, b)| *a >= b);
        let gpus = a.room[0] <= b.room[0] || self.left.gpus == u64::MAX;
        let cost = a.paid + a.overhead <= b.paid + b.overhead && a.boot <= b.boot && a.reclaims <= b.reclaims;
        let held = a.booked <= b.booked && (!a.on_demand || b.on_demand || self.left.on_demand == u64::MAX);
        let fits = self.kinds.iter().all(|kind| kind.fits[by] || !kind.fits[of]);
        let same = a.room == b.room && a.paid == b.paid && a.boot == b.boot && a.booked == b.booked;
        room && gpus && cost && held && fits && a.most >= b.most && (!same || by < of)
    }
}

/// A cost for a value: less is better.
#[derive(Clone, Copy)]
struct Ratio {
    cost: u128,
    value: u128,
}

impl Ratio {
    fn is_less(self, other: Ratio) -> bool {
        self.cost.saturating_mul(other.value.max(1)) < other.cost.saturating_mul(self.value.max(1))
    }
}

fn take(room: &mut Room, need: &Room, count: u32) {
    for (room, need) in room.iter_mut().zip(need) {
        *room = room.saturating_sub(need.saturating_mul(u64::from(count)));
    }
}

/// What is on two nodes.
fn together(one: &[(usize, u32)], other: &[(usize, u32)]) -> Content {
    let mut all = one.to_vec();
    for &(kind, n) in other {
        match all.iter_mut().find(|there| there.0 == kind) {
            Some(there) => there.1 += n,
            None => all.push((kind, n)),
        }
    }
    all
}

/// How often a node with this content can be had from what is left.
fn times(content: &[(usize, u32)], rest: &[u32]) -> u32 {
    content.iter().map(|(kind, n)| rest[*kind] / n).min().unwrap_or(0)
}

/// Multisets of so many out of so many.
fn number_of_choices(types: u64, nodes: u64) -> u64 {
    (0..nodes).fold(1, |all: u64, at| all.saturating_mul(types + at) / (at + 1))
}

//! Rank by brute force: who may take what from whom, and every permitted set of changes, each step looked at by itself.
//!
//! ```text
//! fills      what a node of the tree owns, filled from nothing: within the children's own first, then by tier, then start
//! may_take   by quota from where the ways part, else by tier, else by share
//! permitted  every set that can be reached step by step, each step permitted as things stand then, and each part of it once all else is gone
//! ```
//!
//! Never: an order, a shortcut, or anything remembered.

use super::super::quota::{MOST, may_take, owns, uses};
use super::model::{Gone, Head, Model, Rule, Run};
use core::cmp::Reverse;
use forebay_kernel::ids::JobId;

/// On what ground something is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ground {
    Quota,
    Tier,
    Share,
}

/// What is filled in at a node of the tree.
#[derive(Clone, Debug)]
struct Filled {
    beyond: bool,
    tier: i32,
    began: u64,
    id: JobId,
    share: u64,
    within: bool,
}

/// What each cost is compared by: GPUs by priority from the highest, then money.
pub(super) type Cost = (Vec<(Reverse<i32>, u64)>, u128);

/// A set that is permitted and starts the head.
#[derive(Clone, Debug)]
pub(super) struct Set {
    pub gone: Gone,
    pub cost: Cost,
    /// What each queue has left.
    pub shares: Vec<u64>,
}

/// More sets than this are not tried: the state is too large for the oracle.
const MOST_SETS: usize = 600;

pub(super) struct Ranking<'a> {
    pub model: &'a Model,
    pub head: &'a Head,
    pub without: Option<Rule>,
}

impl Ranking<'_> {
    fn keeps(&self, at: usize) -> u64 {
        let lends = self.model.tree[at].limit.and_then(|limit| limit.2);
        lends.map_or(0, |lends| owns(&self.model.tree, at).unwrap_or(0).saturating_sub(lends))
    }

    fn priority(&self, tier: usize) -> i32 {
        self.model.tiers[tier].priority
    }

    fn fill(&self, at: usize, gone: &Gone) -> Vec<Filled> {
        let model = self.model;
        let here = model.runs.iter().zip(gone).filter(|(run, gone)| run.quota == at && run.held(**gone) > 0);
        let mut all: Vec<Filled> = here
            .map(|(run, gone)| Filled {
                beyond: false,
                tier: self.priority(run.tier),
                began: run.began,
                id: run.id,
                share: run.held(*gone),
                within: true,
            })
            .collect();
        for child in (0..model.tree.len()).filter(|child| model.tree[*child].parent == Some(at)) {
            let mut stays = self.keeps(child);
            let inside = self.fill(child, gone);
            let (within, beyond): (Vec<_>, Vec<_>) = inside.into_iter().partition(|one| one.within);
            for mut one in within.into_iter().chain(beyond) {
                let kept = stays.min(one.share);
                stays -= kept;
                one.share -= kept;
                one.beyond |= !one.within;
                if one.share > 0 {
                    all.push(one);
                }
            }
        }
        all.sort_by_key(|one| (one.beyond, Reverse(one.tier), one.began, one.id));
        let mut left = owns(&model.tree, at);
        for one in &mut all {
            one.within = left.is_none_or(|left| one.share <= left);
            if one.within {
                left = left.map(|left| left - one.share);
            }
        }
        all
    }

    fn has_quotas(&self) -> bool {
        self.model.tree.iter().any(|node| node.limit.is_some())
    }

    /// Where a run borrows, from the root down.
    fn stood(&self, run: &Run, gone: &Gone) -> Vec<bool> {
        let borrows = |at: &usize| match owns(&self.model.tree, *at) {
            None => self.has_quotas(),
            Some(_) => self.fill(*at, gone).iter().any(|one| one.id == run.id && !one.within),
        };
        self.model.lineage(run.quota).iter().map(borrows).collect()
    }

    /// Where the head would borrow with what it asks, from the root down.
    pub(super) fn stands(&self, gone: &Gone) -> Vec<bool> {
        let (model, head) = (self.model, self.head);
        let used = model.used(gone);
        let mut with = used.clone();
        with[head.quota] += head.asked();
        let mut beyond = false;
        let way = model.lineage(head.quota);
        let mut borrows = vec![false; way.len()];
        for (depth, at) in way.iter().enumerate().rev() {
            let Some(own) = owns(&model.tree, *at) else {
                borrows[depth] = self.has_quotas();
                continue;
            };
            let rises = uses(&model.tree, &with, *at) - uses(&model.tree, &used, *at);
            let mine = (beyond, Reverse(self.priority(head.tier)));
            let all = self.fill(*at, gone);
            let before = all.iter().filter(|one| one.within && (one.beyond, Reverse(one.tier)) <= mine);
            let before: u64 = before.map(|one| one.share).sum();
            if uses(&model.tree, &with, *at) > own && before + rises > own {
                borrows[depth] = true;
                beyond = true;
            }
        }
        borrows
    }

    fn is_stoppable(&self, run: &Run) -> bool {
        let tier = &self.model.tiers[run.tier];
        let overdue = run.overdue && tier.has_longest;
        self.priority(self.head.tier) > tier.priority && (tier.stoppable_by.contains(&self.head.tier) || overdue)
    }

    /// Whether both borrow and the run's side has the greater share, the run gone.
    fn is_poorer(&self, run: &Run, gone: &Gone) -> bool {
        let (model, head) = (self.model, self.head);
        let (mine, theirs) = (model.lineage(head.quota), model.lineage(run.quota));
        let meet = mine.iter().zip(&theirs).take_while(|(a, b)| a == b).count();
        let (Some(mine), Some(theirs), true) = (mine.get(meet), theirs.get(meet), meet > 0) else { return false };
        // Of a cohort's own jobs and its children nobody takes from the other by share (docs/stages/preempt.md).
        if model.is_own_leaf(*mine) || model.is_own_leaf(*theirs) {
            return false;
        }
        let mut used = model.used(gone);
        let other = uses(&model.tree, &used, *theirs);
        used[head.quota] += head.asked();
        let kept = model.kept.iter().filter(|(_, at, _)| model.is_below(*at, *mine)).map(|kept| kept.2).sum::<u64>();
        let with = uses(&model.tree, &used, *mine) + kept;
        let borrowed = |at: usize, used: u64| used.saturating_sub(owns(&model.tree, at).unwrap_or(used));
        let (a, b) = (borrowed(*mine, with), borrowed(*theirs, other));
        let lendable = may_take(&model.tree, &vec![0; model.tree.len()], model.lineage(head.quota)[meet - 1], MOST);
        a > 0 && lendable > 0 && a * model.weights[*theirs] <= b * model.weights[*mine]
    }

    /// On what ground the head may have what is gone of a run, where it stood so.
    fn ground(&self, run: &Run, stood: &[bool], gone: &Gone) -> Option<Ground> {
        let model = self.model;
        let by_tier = self.is_stoppable(run).then_some(Ground::Tier);
        let (mine, theirs) = (model.lineage(self.head.quota), model.lineage(run.quota));
        let meet = mine.iter().zip(&theirs).take_while(|(a, b)| a == b).count();
        let same = run.quota == self.head.quota;
        let meet = if same { meet - 1 } else { meet };
        let mut stands = self.stands(gone)[meet..].to_vec();
        let mut stood = stood[meet..].to_vec();
        let deepest = stands.len().max(stood.len());
        stands.resize(deepest, false);
        stood.resize(deepest, false);
        if self.without == Some(Rule::Quota) {
            stood.clone_from(&stands);
        }
        if stands > stood {
            return None;
        }
        if same {
            return by_tier;
        }
        if stands < stood {
            return Some(Ground::Quota);
        }
        let share = self.without != Some(Rule::Share) && self.priority(run.tier) <= self.priority(self.head.tier);
        by_tier.or_else(|| (share && self.is_poorer(run, gone)).then_some(Ground::Share))
    }

    /// Whether the tier of a run keeps its part of all that was held.
    fn keeps_min_share(&self, run: &Run, gone: &Gone) -> bool {
        let of = |tier: Option<usize>, gone: &Gone| {
            let runs = self.model.runs.iter().zip(gone).filter(|(run, _)| tier.is_none_or(|tier| run.tier == tier));
            runs.map(|(run, gone)| run.held(*gone)).sum::<u64>()
        };
        let least = self.model.tiers[run.tier].min_share;
        of(Some(run.tier), gone) * 1000 >= of(None, &self.model.nothing_gone()) * least
    }

    /// Whether one more part of a run may be taken as things stand.
    fn step(&self, at: usize, before: &Gone, after: u32) -> bool {
        let run = &self.model.runs[at];
        if !run.open || run.shielded || run.workers.iter().any(|(node, _)| !self.may_empty(*node)) {
            return false;
        }
        let mut then = before.clone();
        then[at] = after;
        let mut stood = before.clone();
        if after == run.whole() {
            // An elastic gang is judged as it would be without the workers that it can do without.
            stood[at] = run.whole() >> run.min;
        }
        let stood = self.stood(run, &stood);
        match self.ground(run, &stood, &then) {
            None => false,
            Some(Ground::Quota) => true,
            Some(Ground::Share) if run.tier == self.head.tier => true,
            Some(_) => self.keeps_min_share(run, &then),
        }
    }

    /// What runs on a node that is kept for somebody before the head is not the head's.
    fn may_empty(&self, node: usize) -> bool {
        self.model.nodes.get(node).is_some_and(|node| node.kept_for.is_empty())
            && !self.model.reserved.iter().any(|reserved| reserved.nodes.contains(&node))
    }

    /// Whether each part of a set may be taken once all the rest is gone.
    fn stays_taken(&self, gone: &Gone) -> bool {
        let parts = gone.iter().enumerate().filter(|(_, gone)| **gone != 0);
        parts.into_iter().all(|(at, taken)| {
            let run = &self.model.runs[at];
            let mut back = gone.clone();
            back[at] = if *taken == run.whole() { run.whole() >> run.min } else { 0 };
            let mut stood = self.stood(run, &back);
            let mut stands = self.stands(gone);
            let deepest = stands.len().max(stood.len());
            stands.resize(deepest, false);
            let ground = self.ground(run, &stood, gone);
            stood.resize(deepest, false);
            // From the root down it stands no lower either.
            ground.is_some() && (stands <= stood || self.without == Some(Rule::Quota))
        })
    }

    /// Whether this very set is permitted.
    pub(super) fn permits(&self, gone: &Gone) -> Option<bool> {
        Some(self.permitted()?.contains(gone))
    }

    /// Every permitted set, the empty one first. `None`: there are too many to try.
    pub(super) fn permitted(&self) -> Option<Vec<Gone>> {
        let parts: Vec<Vec<u32>> =
            (self.model.runs.iter()).map(|run| if run.open && !run.shielded { run.parts() } else { vec![0] }).collect();
        if parts.iter().map(Vec::len).try_fold(1usize, usize::checked_mul).is_none_or(|all| all > MOST_SETS) {
            return None;
        }
        let mut reached = vec![self.model.nothing_gone()];
        let mut known: alloc::collections::BTreeSet<Gone> = reached.iter().cloned().collect();
        let mut next = 0;
        while next < reached.len() {
            let from = reached[next].clone();
            next += 1;
            for (at, parts) in parts.iter().enumerate() {
                for more in parts.iter().filter(|more| **more != from[at] && **more & from[at] == from[at]) {
                    let whole = *more == self.model.runs[at].whole();
                    let mut to = from.clone();
                    to[at] = *more;
                    let one = (more ^ from[at]).count_ones() == 1;
                    if (one || whole) && !known.contains(&to) && self.step(at, &from, *more) {
                        known.insert(to.clone());
                        reached.push(to);
                    }
                }
            }
        }
        reached.retain(|gone| self.stays_taken(gone));
        Some(reached)
    }

    /// Every permitted set that starts the head. `None`: there are too many to try.
    pub(super) fn sets(&self) -> Option<Vec<Set>> {
        let starts = |gone: &Gone| self.model.starts(self.head, gone, self.without).is_some();
        let all = self.permitted()?.into_iter().filter(starts);
        Some(all.map(|gone| Set { cost: self.cost(&gone), shares: self.model.used(&gone), gone }).collect())
    }

    pub(super) fn cost(&self, gone: &Gone) -> Cost {
        let mut tiers: alloc::collections::BTreeMap<Reverse<i32>, u64> = alloc::collections::BTreeMap::new();
        let mut money = 0;
        for (run, gone) in self.model.runs.iter().zip(gone).filter(|(_, gone)| **gone != 0) {
            *tiers.entry(Reverse(self.priority(run.tier))).or_default() += run.held(0) - run.held(*gone);
            if *gone == run.whole() {
                money += u128::from(run.rate) * u128::from(run.loses);
            }
        }
        (tiers.into_iter().collect(), money)
    }
}

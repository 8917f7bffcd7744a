//! Who is asked in a pass, and whether there is anything that it could be given.
//!
//! Never: what that would be. That is search.rs.

use crate::engine::Engine;
use crate::ids::{ClassId, JobId, PoolId};
use crate::memo::Searched;
use crate::rules::rank;
use crate::rules::{allowances, batch, settings, start_targets};
use crate::state::index::OrderKey;
use crate::state::{State, Urgency};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// The heads of a pass.
pub(super) struct Heads {
    pub asked: Vec<(ClassId, OrderKey)>,
    /// Classes for which nothing was found, and nothing has happened since.
    pub left_out: Vec<ClassId>,
}

/// What a search for the first of a class depends on.
pub(super) fn for_first(state: &State, class: ClassId, searched: Searched) -> Searched {
    // What is kept gives way to who comes before its holder.
    let kept = !state.reservations().is_empty() || !state.allowances().is_empty();
    let counts = kept || rank::stops_its_own(state, state.classes[class].shape.queue);
    let first = if counts { state.index.first_queued(class) } else { None };
    Searched { first: first.map(|key| key.job), ..searched }
}

/// Whether anything that the policy permits could be taken from anybody.
pub(super) fn may_ever_take(state: &State) -> bool {
    let Some(policy) = state.policy() else { return false };
    let by_tier =
        policy.tiers.iter().any(|tier| !tier.stoppable_by.is_empty() || tier.max_run_while_others_wait.is_some());
    let by_number = policy.rules().any(|rule| rank::goes_by_number(rule.preempt_within));
    let by_quota = policy.quotas.iter().any(|quota| !quota.limits.is_empty());
    let index = &state.index;
    let by_rule = by_tier || by_number || by_quota;
    by_rule || may_empty(state) || !index.booked.is_empty() || index.keeps_anything()
}

/// Whether a node stands empty, or does when what is being stopped has ended: it may make room for another.
fn may_empty(state: &State) -> bool {
    let index = &state.index;
    !index.idle.is_empty() || !index.unbooked.is_empty() || !index.ending.is_empty()
}

/// The first of each class that waits and not by choice, and the first that waits for nodes that come after its start target.
/// Classes for which nothing was found and nothing has happened since are left out.
pub(super) fn heads(engine: &Engine, searched: Searched) -> Heads {
    let state = &engine.state;
    let in_vain = |class| engine.memo.nothing_to_take(state, class, for_first(state, class, searched));
    let (left_out, queued): (Vec<ClassId>, Vec<ClassId>) =
        state.index.queued.keys().copied().partition(|class| in_vain(*class));
    let booked = state.index.booked.iter().filter_map(|(class, jobs)| {
        let key = jobs.iter().find(|key| start_targets::comes_late(state, key.job))?;
        Some((*class, *key))
    });
    Heads { asked: firsts(state, &queued).chain(booked).collect(), left_out }
}

/// Pools that heads are kept out of, by quota, money, or what is kept of these, until what is being stopped has ended. Where all is as if it had, there are none.
pub(super) fn closed(state: &State, heads: &[(ClassId, OrderKey)]) -> BTreeSet<(JobId, PoolId)> {
    if state.index.ending.is_empty() {
        return BTreeSet::new();
    }
    let pools = |class: ClassId| settings::pools(state, class);
    let several = heads.iter().filter(|(class, _)| pools(*class).nth(1).is_some());
    let all = several.flat_map(|(class, key)| pools(*class).map(|pool| (key.job, pool)));
    all.filter(|(job, pool)| allowances::no_share(state, *job, *pool).is_some()).collect()
}

/// The first that waits of each of these classes, and not by choice.
pub(super) fn firsts<'a>(state: &'a State, classes: &'a [ClassId]) -> impl Iterator<Item = (ClassId, OrderKey)> + 'a {
    classes.iter().filter_map(|class| {
        let jobs = state.index.queued.get(class)?;
        Some((*class, first_that_may(state, *class, jobs.iter())?))
    })
}

/// The first of some jobs of a class, in their order, or if that waits by choice, the first behind it that may wait no longer.
pub(super) fn first_that_may<'a>(
    state: &State,
    class: ClassId,
    mut jobs: impl Iterator<Item = &'a OrderKey>,
) -> Option<OrderKey> {
    let next = *jobs.next()?;
    let may = |key: &OrderKey| !waits_by_choice(state, key.job);
    Some(next).filter(may).or_else(|| state.index.first_bought_for(class).filter(|key| *key > next && may(key)))
}

/// Whether it waits because it wants to: ahead of its deadline, up to its start target, for its batch.
pub(super) fn waits_by_choice(state: &State, job: JobId) -> bool {
    let relaxed = state.classes[state.jobs[job].class].shape.urgency == Urgency::Relaxed;
    relaxed || start_targets::reason_to_wait(state, job).is_some() || batch::refusal(state, job).is_some()
}

/// Whether anything is there that anybody who waits could be given at all: quota that is borrowed, a lower tier that runs or is booked, a node.
pub(super) fn anything_to_take(state: &State) -> bool {
    let borrowed = rank::borrowed_pools(state);
    // Those of a line differ in nothing that counts here but their pools.
    let most = if borrowed.is_empty() { 1 } else { usize::MAX };
    let mut heads = state.index.lines.all().flat_map(|line| line.heads().take(most));
    let late = |jobs: &BTreeSet<OrderKey>| jobs.iter().any(|key| start_targets::comes_late(state, key.job));
    may_empty(state)
        || heads.any(|(_, class)| may_take(state, class, &borrowed))
        || state.index.booked.iter().any(|(class, jobs)| may_take(state, *class, &borrowed) && late(jobs))
}

/// The same but for nodes, for the jobs of a class.
fn may_take(state: &State, class: ClassId, borrowed: &BTreeSet<PoolId>) -> bool {
    let row = &state.classes[class];
    let quotas = settings::pools(state, class).any(|pool| borrowed.contains(&pool));
    let runs = state.index.running.keys().any(|tier| rank::may_ever_stop(state, row.shape.tier, *tier));
    let by_number = rank::stops_its_own(state, row.shape.queue);
    let alike = by_number && state.index.running.contains_key(&row.shape.tier);
    let booked = state.index.booked.keys().map(|other| state.classes[*other].shape.tier);
    let priority = |tier| settings::priority(state, tier);
    let below = |tier| priority(tier) < priority(row.shape.tier) || (by_number && tier == row.shape.tier);
    quotas || runs || alike || booked.into_iter().any(below)
}

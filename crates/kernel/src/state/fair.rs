//! Past use: GPU time of each node of the quota tree, of its whole subtree, with a half-life. It breaks ties in the order.
//!
//! ```text
//! tick = half-life / 64, counted from time zero, whoever looks and whenever
//! between ticks   past += held x time
//! at each tick    past  = past x 2^(-1/64)
//! first booking of a job    past += its share x `fairness.entry`: a burst of submissions gains nothing
//! ```
//!
//! Decay is made up lazily, when a node's use changes or is asked for: nothing is to do for queues that rest, and after long
//! down time the work is bounded.
//!
//! Past use of a queue or cohort that a policy removes decays on, by its path, until nothing is left of it. What its runs hold meanwhile is
//! not added.
//!
//! Never: stops a run. It orders free capacity only.

use super::State;
use super::undo::Was;
use crate::ids::{QueueId, QuotaId};
use crate::policy::Policy;
use crate::units::{GpuTime, MilliGpu, Span, Timestamp};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Steps in a half-life. One step takes away about 1.1 %.
const STEPS: u64 = 64;
/// 2^32 x 2^(-1/64), rounded down: 64 steps leave 0.499_999_993 of what there was.
const FACTOR: u128 = 4_248_701_964;
/// After 40 half-lives 1 part in 10^12 is left: what is older counts nothing.
const LONGEST: u64 = 40 * STEPS;
/// Past use is capped here, so that x 2^32 stays within 128 bits: a million GPUs for 500,000 years.
const MOST: u128 = 1 << 94;
/// Removed queues and cohorts whose past use is kept at most: more than any policy has. Those with the least go.
const MOST_REMOVED: usize = 10_000;

/// By node of the quota tree.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Fair {
    past: Vec<DecayedUsage>,
    /// Of those that the policy in force does not have, by path. They hold nothing.
    #[serde(skip)]
    removed: BTreeMap<String, DecayedUsage>,
}

/// The use of one subtree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DecayedUsage {
    /// GPU share that its jobs hold now, over all pools.
    pub held: MilliGpu,
    /// What they held before, decayed up to `counted_to`.
    pub time: GpuTime,
    /// Counted up to then.
    pub counted_to: Timestamp,
}

impl DecayedUsage {
    /// The same, counted up to `now`.
    #[must_use]
    fn at(self, now: Timestamp, step: Span) -> DecayedUsage {
        let step = step.0.max(1);
        let ticks = (now.0 / step).saturating_sub(self.counted_to.0 / step);
        let held = self.held;
        let mut time = self.time.0;
        let mut from = self.counted_to;
        if ticks > 0 {
            let first = Timestamp((from.0 / step + 1) * step);
            time = decayed(time.saturating_add(held.over(first.since(from)).0));
            time = steps(time, held.over(Span(step)).0, ticks - 1);
            from = Timestamp(now.0 / step * step);
        }
        time = time.saturating_add(held.over(now.since(from)).0);
        DecayedUsage { held, time: GpuTime(time.min(MOST)), counted_to: self.counted_to.max(now) }
    }
}

/// One tick.
fn decayed(time: u128) -> u128 {
    (time.min(MOST) * FACTOR) >> 32
}

/// So many whole steps, each with the same use in it.
fn steps(mut time: u128, each: u128, mut ticks: u64) -> u128 {
    if each == 0 {
        // Nothing new comes in: whole half-lives are shifts.
        time = u32::try_from(ticks / STEPS).ok().and_then(|n| time.checked_shr(n)).unwrap_or(0);
        ticks %= STEPS;
    } else if ticks > LONGEST {
        (time, ticks) = (0, LONGEST);
    }
    for _ in 0..ticks {
        time = decayed(time.saturating_add(each));
    }
    time
}

/// Those with the most past use, so many of them; of equals the first by path.
fn most_used(used: BTreeMap<&str, GpuTime>, most: usize) -> Vec<(&str, GpuTime)> {
    let mut all: Vec<(&str, GpuTime)> = used.into_iter().collect();
    all.sort_by_key(|(_, time)| core::cmp::Reverse(*time));
    all.truncate(most);
    all
}

impl Fair {
    /// Nothing used yet, under this policy.
    fn new(policy: &Policy) -> Fair {
        Fair { past: alloc::vec![DecayedUsage::default(); policy.quotas.len()], removed: BTreeMap::new() }
    }

    /// Takes in the past use of a removed queue or cohort, as [`State::removed_use`] has it.
    pub(crate) fn recall_removed(&mut self, path: String, past: DecayedUsage) {
        self.removed.insert(path, past);
    }

    /// What a subtree holds and held, as it was last counted.
    #[must_use]
    pub fn counted(&self, quota: QuotaId) -> DecayedUsage {
        self.past.get(quota.index()).copied().unwrap_or_default()
    }
}

impl State {
    /// Past use of a subtree, decayed up to now.
    #[must_use]
    pub fn past_use(&self, quota: QuotaId) -> GpuTime {
        self.fair.counted(quota).at(self.now, self.decay_step()).time
    }

    /// Past use of queues and cohorts that the policy in force does not have, by path, as it was last counted. Left out where nothing
    /// remains of it.
    pub(crate) fn removed_use(&self) -> impl Iterator<Item = (&String, DecayedUsage)> + '_ {
        let (now, step) = (self.now, self.decay_step());
        let removed = self.fair.removed.iter().map(|(path, past)| (path, *past));
        removed.filter(move |(_, past)| past.at(now, step).time > GpuTime(0))
    }

    fn decay_step(&self) -> Span {
        Span(self.policy.as_deref().map_or(0, |p| p.fairness.half_life.0) / STEPS)
    }

    /// A node of the quota tree and all above it, the lowest first.
    pub fn lineage(&self, quota: QuotaId) -> impl Iterator<Item = QuotaId> + '_ {
        core::iter::successors(Some(quota), |at| self.quota.parent(*at))
    }

    /// A job of this queue takes GPU share. Called wherever quota is taken.
    pub(super) fn use_more(&mut self, quota: QuotaId, amount: MilliGpu) {
        self.edit_past(quota, |past| past.held = past.held + amount);
    }

    /// A job of this queue gives GPU share back.
    pub(super) fn use_less(&mut self, quota: QuotaId, amount: MilliGpu) {
        self.edit_past(quota, |past| past.held = past.held - amount);
    }

    /// A job has places for the first time: it counts at once as if it had run for a while.
    pub(crate) fn count_entry(&mut self, queue: QueueId, share: MilliGpu) {
        let entry = self.policy.as_deref().map_or(Span::ZERO, |p| p.fairness.entry);
        let Some(quota) = self.queues[queue].rule.as_ref().map(|rule| rule.quota) else {
            return;
        };
        self.edit_past(quota, |past| past.time += share.over(entry));
    }

    fn edit_past(&mut self, quota: QuotaId, edit: impl Fn(&mut DecayedUsage)) {
        let (now, step) = (self.now, self.decay_step());
        let mut at = Some(quota);
        while let Some(quota) = at {
            if let Some(past) = self.fair.past.get_mut(quota.index()) {
                let was = *past;
                self.undo.note(|| Was::DecayedUsage(quota, was));
                *past = was.at(now, step);
                edit(past);
            }
            at = self.quota.parent(quota);
        }
    }

    pub(crate) fn put_past_back(&mut self, quota: QuotaId, was: DecayedUsage) {
        if let Some(past) = self.fair.past.get_mut(quota.index()) {
            *past = was;
        }
    }

    /// Past use under a new policy: it follows the paths of queues and cohorts. What is held now is counted anew by the caller.
    /// In records before version 5 past use of what a policy does not have is forgotten at once.
    pub(super) fn carried_use(&self, policy: &Policy) -> Fair {
        let (now, step) = (self.now, self.decay_step());
        let old = self.policy.as_deref().map_or(&[][..], |p| &p.quotas);
        let removed = self.fair.removed.iter().map(|(path, past)| (path.as_str(), past.at(now, step).time));
        let named = old.iter().enumerate().map(|(at, q)| (q.name.as_str(), self.past_use(QuotaId(at as u16))));
        let mut known: BTreeMap<&str, GpuTime> = removed.chain(named).collect();
        let counted = |time| DecayedUsage { held: MilliGpu(0), time, counted_to: now };
        let mut fair = Fair::new(policy);
        for (quota, past) in policy.quotas.iter().zip(&mut fair.past) {
            *past = counted(known.get(quota.name.as_str()).copied().unwrap_or_default());
        }
        if self.apply_version >= 5 {
            for quota in &policy.quotas {
                known.remove(quota.name.as_str());
            }
            known.retain(|_, time| *time > GpuTime(0));
            let removed = most_used(known, MOST_REMOVED).into_iter();
            fair.removed = removed.map(|(path, time)| (path.into(), counted(time))).collect();
        }
        fair
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Event, Tick};
    use crate::journal::APPLY_VERSION;
    use crate::machine::StateMachine;
    use crate::policy::QuotaNode;
    use alloc::boxed::Box;

    const HALF: u64 = 64 * 1000;

    fn later(past: DecayedUsage, ms: u64) -> DecayedUsage {
        past.at(Timestamp(past.counted_to.0 + ms), Span(HALF / STEPS))
    }

    fn policy(queues: &[&str]) -> Policy {
        let node = |path: &&str| QuotaNode { name: (*path).into(), ..QuotaNode::default() };
        let mut policy = Policy { quotas: queues.iter().map(node).collect(), ..Policy::default() };
        policy.fairness.half_life = Span(HALF);
        policy
    }

    fn configure(machine: &mut StateMachine, now: u64, version: u32, queues: &[&str]) {
        machine.apply_tick(Tick { now: Timestamp(now), resumed: false, delivered: 0 }, version);
        let _ = machine.apply_event(&Event::Configured(Box::new(policy(queues))));
    }

    /// Past use of the queue `a`, which is the second one here.
    fn used(version: u32) -> StateMachine {
        let mut machine = StateMachine::default();
        configure(&mut machine, 0, version, &["b", "a"]);
        machine.recall_use("a", GpuTime(1 << 40));
        machine
    }

    #[test]
    fn past_use_of_a_queue_that_comes_back_has_decayed_and_is_not_forgotten() {
        let mut stays = used(APPLY_VERSION);
        configure(&mut stays, 3 * HALF, APPLY_VERSION, &["a"]);
        let mut machine = used(APPLY_VERSION);
        configure(&mut machine, HALF, APPLY_VERSION, &["b"]);
        configure(&mut machine, 2 * HALF, APPLY_VERSION, &["c"]);
        let mut machine = StateMachine::restore(&machine.encode().unwrap()).unwrap();
        assert_eq!(machine.removed_use().map(|(path, _)| path.as_str()).collect::<Vec<_>>(), ["a"]);
        configure(&mut machine, 3 * HALF, APPLY_VERSION, &["a"]);
        let (is, would_be) = (machine.past_use(QuotaId(0)).0, stays.past_use(QuotaId(0)).0);
        // Half-lives in a row halve it exactly; 64 steps leave a little less.
        assert!(is > 1 << 36 && is.abs_diff(would_be) < 1 << 20, "{is} {would_be}");
        assert_eq!(machine.removed_use().count(), 0);
    }

    #[test]
    fn past_use_of_a_removed_queue_goes_when_nothing_is_left_of_it() {
        let mut machine = used(APPLY_VERSION);
        configure(&mut machine, HALF, APPLY_VERSION, &["b"]);
        assert_eq!(machine.removed_use().count(), 1);
        let later = Tick { now: Timestamp(50 * HALF), resumed: false, delivered: 0 };
        machine.apply_tick(later, APPLY_VERSION);
        assert_eq!(machine.removed_use().count(), 0);
        configure(&mut machine, 51 * HALF, APPLY_VERSION, &["b"]);
        assert!(machine.fair.removed.is_empty());
    }

    #[test]
    fn records_before_version_five_forget_the_use_of_a_removed_queue() {
        let mut machine = used(4);
        configure(&mut machine, 1, 4, &["b"]);
        configure(&mut machine, 2, 4, &["a"]);
        assert_eq!(machine.past_use(QuotaId(0)), GpuTime(0));
    }

    #[test]
    fn of_too_many_removed_queues_those_with_the_least_past_use_are_forgotten() {
        let used = [("a", 1), ("b", 3), ("c", 3), ("d", 2)].map(|(path, time)| (path, GpuTime(time)));
        let left = |most| most_used(used.into(), most).into_iter().map(|(path, _)| path).collect::<String>();
        assert_eq!([left(9), left(3), left(1)], ["bcda", "bcd", "b"]);
    }

    #[test]
    fn half_is_left_after_a_half_life() {
        let past = DecayedUsage { time: GpuTime(1 << 60), ..DecayedUsage::default() };
        let left = later(past, HALF).time.0;
        assert!(((left * 1_000_000_000) >> 60).abs_diff(499_999_992) <= 2, "{left}");
        assert_eq!(later(past, 10 * HALF).time.0 >> 40, 1023, "ten half-lives: 1 part in 1,024");
        assert_eq!(later(past, u64::MAX / 4).time, GpuTime(0));
    }

    #[test]
    fn looking_more_often_changes_nothing_while_use_is_steady() {
        let start = DecayedUsage { held: MilliGpu(3000), ..DecayedUsage::default() };
        let once = later(start, 7_654_321);
        let mut often = start;
        for ms in (0..7_654_321).step_by(977) {
            often = often.at(Timestamp(ms), Span(HALF / STEPS));
        }
        assert_eq!(later(often, 7_654_321 - often.counted_to.0), once);
    }

    #[test]
    fn steady_use_comes_to_rest_and_long_gaps_are_bounded() {
        let held = DecayedUsage { held: MilliGpu(1000), ..DecayedUsage::default() };
        let (a, b) = (later(held, 41 * HALF).time.0, later(held, 10_000_000 * HALF).time.0);
        assert!(a.abs_diff(b) <= a / 1_000_000, "{a} {b}");
        // 1 GPU x half-life / ln 2 = 92.3 s x 1000, within a step.
        assert!(a.abs_diff(92_300_000) < 1_000_000, "{a}");
    }
}

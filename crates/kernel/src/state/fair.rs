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
//! Never: stops a run. It orders free capacity only.

use super::State;
use super::undo::Was;
use crate::ids::{QueueId, QuotaId};
use crate::policy::Policy;
use crate::units::{GpuTime, MilliGpu, Span, Timestamp};
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

/// By node of the quota tree.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Fair {
    past: Vec<DecayedUsage>,
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

impl Fair {
    /// Nothing used yet, under this policy.
    fn new(policy: &Policy) -> Fair {
        Fair { past: alloc::vec![DecayedUsage::default(); policy.quotas.len()] }
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
    pub(super) fn carried_use(&self, policy: &Policy) -> Fair {
        let mut fair = Fair::new(policy);
        let old = self.policy.as_deref().map_or(&[][..], |p| &p.quotas);
        let known: alloc::collections::BTreeMap<&str, usize> =
            old.iter().enumerate().map(|(at, q)| (q.name.as_str(), at)).collect();
        for (quota, past) in policy.quotas.iter().zip(&mut fair.past) {
            let time = known.get(quota.name.as_str()).map(|at| self.past_use(QuotaId(*at as u16)));
            *past = DecayedUsage { held: MilliGpu(0), time: time.unwrap_or_default(), counted_to: self.now };
        }
        fair
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: u64 = 64 * 1000;

    fn later(past: DecayedUsage, ms: u64) -> DecayedUsage {
        past.at(Timestamp(past.counted_to.0 + ms), Span(HALF / STEPS))
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

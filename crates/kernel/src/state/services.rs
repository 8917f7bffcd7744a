//! The service table: what is asked of each service, how many replicas that takes, and how long they are loaded against how long
//! they compute.
//!
//! ```text
//! needed = ceil(demand / target), within min and max          goes up at once
//! kept   = the most that was needed within `scaleDownAfter`   comes down when that is over
//! zero   when loaded time > maxResidencyOverCompute x computing time, and nothing was asked for `scaleDownAfter`
//! ```
//!
//! Times are counted in replicas x target x milliseconds, so that no division is made: all figures are exact.
//! Never: decides. The planner does.

use super::State;
use crate::ids::JobId;
use crate::job::{JobSpec, Service};
use crate::policy::Lifecycle;
use crate::units::{Span, Timestamp};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// What is known of a service that is not over.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ServiceState {
    /// What its submitter asked.
    pub rule: Service,
    /// Requests at once, as last told.
    pub demand: u32,
    /// Replicas needed, most first, each with the last time that so many were. The last one is needed now.
    pub needs: Vec<Need>,
    /// Replicas made so far.
    pub made: u32,
    /// Replicas whose run has started and not ended.
    pub loaded: u32,
    /// Since when nothing has been asked of it. `None`: something is.
    pub unasked_since: Option<Timestamp>,
    /// Loaded time since the first replica was loaded while none was, times target.
    pub resident: u128,
    /// Of this, what demand took up.
    pub busy: u128,
    /// Both are counted up to here.
    pub counted_to: Timestamp,
}

/// So many replicas were needed until then.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Need {
    /// How many.
    pub replicas: u32,
    /// The last time. `NEVER` for what is needed now.
    pub last: Timestamp,
}

/// Replicas that so much demand takes.
fn needed(rule: &Service, demand: u32) -> u32 {
    demand.div_ceil(rule.target.max(1)).min(rule.max).max(rule.min)
}

impl ServiceState {
    /// A service of which nothing has been asked yet.
    pub(crate) fn new(rule: Service, now: Timestamp) -> ServiceState {
        let now_needed = Need { replicas: needed(&rule, 0), last: Timestamp::NEVER };
        ServiceState {
            rule,
            demand: 0,
            needs: alloc::vec![now_needed],
            made: 0,
            loaded: 0,
            unasked_since: Some(now),
            resident: 0,
            busy: 0,
            counted_to: now,
        }
    }

    /// So much is asked of it from now on.
    pub(crate) fn asked(&mut self, demand: u32, keep: Span, now: Timestamp) {
        self.count(now);
        self.forget(keep, now);
        if let Some(current) = self.needs.last_mut() {
            current.last = now;
        }
        let replicas = needed(&self.rule, demand);
        while self.needs.last().is_some_and(|n| n.replicas <= replicas) {
            self.needs.pop();
        }
        self.needs.push(Need { replicas, last: Timestamp::NEVER });
        self.unasked_since = (demand == 0).then(|| self.unasked_since.unwrap_or(now));
        self.demand = demand;
    }

    /// A replica is loaded. The first one begins the count anew.
    pub(crate) fn load(&mut self, now: Timestamp) {
        self.count(now);
        if self.loaded == 0 {
            (self.resident, self.busy) = (0, 0);
            self.unasked_since = self.unasked_since.map(|_| now);
        }
        self.loaded += 1;
    }

    /// A loaded replica is no more.
    pub(crate) fn unload(&mut self, now: Timestamp) {
        self.count(now);
        self.loaded = self.loaded.saturating_sub(1);
    }

    /// Nobody watched from `before` to `now`: that time says nothing about demand or idleness.
    pub(crate) fn unobserved(&mut self, rules: &Lifecycle, before: Timestamp, now: Timestamp) {
        let unloaded = self.unloads_at(rules).is_some_and(|at| at <= before);
        self.count(before);
        self.counted_to = now;
        self.forget(rules.scale_down_after, before);
        for need in self.needs.iter_mut().filter(|n| n.last != Timestamp::NEVER) {
            need.last = now;
        }
        if !unloaded {
            self.unasked_since = self.unasked_since.map(|_| now);
        }
    }

    /// Drops what was needed too long ago to count.
    pub(crate) fn forget(&mut self, keep: Span, now: Timestamp) {
        self.needs.retain(|n| n.last + keep > now);
    }

    /// Replicas that it is to have at a time from now on, if nothing else is asked of it.
    #[must_use]
    pub fn wanted(&self, rules: &Lifecycle, at: Timestamp) -> u32 {
        if self.unloads_at(rules).is_some_and(|unloads| unloads <= at) {
            return 0;
        }
        let counts = |n: &&Need| n.last + rules.scale_down_after > at;
        self.needs.iter().find(counts).map_or(0, |n| n.replicas)
    }

    /// When that changes by the clock alone.
    #[must_use]
    pub fn changes_at(&self, rules: &Lifecycle, now: Timestamp) -> Option<Timestamp> {
        let over = self.needs.iter().map(|n| n.last + rules.scale_down_after).find(|at| *at > now);
        over.into_iter().chain(self.unloads_at(rules)).filter(|at| *at > now && *at < Timestamp::NEVER).min()
    }

    /// From when on it is loaded for too long against what it computes, if nothing is asked of it until then.
    fn unloads_at(&self, rules: &Lifecycle) -> Option<Timestamp> {
        let most = u128::from(rules.max_residency_over_compute?);
        let quiet = self.unasked_since? + rules.scale_down_after;
        let (used, allowed) = (self.resident.saturating_mul(1000), self.busy.saturating_mul(most));
        if used > allowed {
            return Some(quiet.max(self.counted_to));
        }
        let a_millisecond = self.capacity().checked_mul(1000)?;
        let left = (allowed - used).checked_div(a_millisecond)?.saturating_add(1);
        let over = self.counted_to + Span(u64::try_from(left).unwrap_or(u64::MAX));
        Some(quiet.max(over))
    }

    /// Requests at once that what is loaded is meant for.
    fn capacity(&self) -> u128 {
        u128::from(self.loaded) * u128::from(self.rule.target)
    }

    fn count(&mut self, now: Timestamp) {
        let time = u128::from(now.since(self.counted_to).0);
        let (loaded, demand) = (self.capacity(), u128::from(self.demand));
        self.resident = self.resident.saturating_add(loaded.saturating_mul(time));
        self.busy = self.busy.saturating_add(loaded.min(demand).saturating_mul(time));
        self.counted_to = now;
    }
}

/// The specification of a service's next replica: the service's, but that it has no end of its own.
pub(crate) fn replica(of: &JobSpec, number: u32) -> JobSpec {
    let mut spec = JobSpec { service: None, batch: None, deadline: None, rerun: false, ..of.clone() };
    spec.subject = alloc::format!("{}/{number}", of.subject);
    spec.retry.attempts = u32::MAX;
    spec.retry.start_failures = Some(u32::MAX);
    spec.retry.never.clear();
    // A policy's bound is for jobs that do not end; a service is not meant to. One that it states itself recycles its replicas.
    spec.max_run = Some(of.max_run.unwrap_or(Span(u64::MAX)));
    spec
}

impl State {
    /// Services that are not over.
    pub fn services(&self) -> impl Iterator<Item = (JobId, &ServiceState)> + '_ {
        self.services.iter().map(|(id, row)| (*id, row))
    }

    /// The service table's row of a service that is not over.
    #[must_use]
    pub fn service(&self, id: JobId) -> Option<&ServiceState> {
        self.services.get(&id)
    }

    /// Replicas of a service that are not over, by id.
    pub fn replicas(&self, service: JobId) -> impl Iterator<Item = JobId> + '_ {
        self.index.replicas.get(&service).into_iter().flatten().copied()
    }

    /// When the replicas of some service are to change by the clock alone.
    pub fn scales_at(&self) -> Option<Timestamp> {
        if self.services.is_empty() {
            return None;
        }
        let rules = self.lifecycle();
        self.services.values().filter_map(|row| row.changes_at(&rules, self.now)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: Service = Service { min: 1, max: 10, target: 4, spread: None };
    const MINUTE: u64 = 60_000;

    fn rules(most: Option<u32>) -> Lifecycle {
        Lifecycle { max_residency_over_compute: most, scale_down_after: Span::mins(5), ..Lifecycle::default() }
    }

    #[test]
    fn replicas_follow_the_most_that_was_needed_lately() {
        let (mut row, rules) = (ServiceState::new(RULE, Timestamp(0)), rules(None));
        let at = |m: u64| Timestamp(m * MINUTE);
        for (minute, demand) in [(1, 40), (2, 8), (4, 16), (5, 0)] {
            row.asked(demand, rules.scale_down_after, at(minute));
        }
        let wanted: Vec<u32> = [5, 6, 7, 9, 10, 60].into_iter().map(|m| row.wanted(&rules, at(m))).collect();
        assert_eq!(wanted, [10, 10, 4, 4, 1, 1]);
        assert_eq!(row.changes_at(&rules, at(5)), Some(at(7)));
        assert_eq!(row.changes_at(&rules, at(7)), Some(at(10)));
        assert_eq!(row.changes_at(&rules, at(10)), None);
    }

    #[test]
    fn residency_is_measured_to_the_millisecond() {
        let (mut row, rules) = (ServiceState::new(RULE, Timestamp(0)), rules(Some(3000)));
        row.load(Timestamp(0));
        row.asked(2, rules.scale_down_after, Timestamp(0));
        row.asked(0, rules.scale_down_after, Timestamp(20 * MINUTE));
        // Busy 2 of 4 for 20 min: 10 min of compute carry 30 min of residency, 10 more than there were.
        assert_eq!(row.changes_at(&rules, Timestamp(25 * MINUTE)), Some(Timestamp(30 * MINUTE + 1)));
        assert_eq!(row.wanted(&rules, Timestamp(30 * MINUTE)), 1);
        assert_eq!(row.wanted(&rules, Timestamp(30 * MINUTE + 1)), 0);
    }

    #[test]
    fn time_that_nobody_watched_does_not_count() {
        let (mut row, rules) = (ServiceState::new(RULE, Timestamp(0)), rules(Some(1000)));
        row.load(Timestamp(0));
        row.asked(40, rules.scale_down_after, Timestamp(0));
        row.asked(0, rules.scale_down_after, Timestamp(MINUTE));
        row.unobserved(&rules, Timestamp(2 * MINUTE), Timestamp(60 * MINUTE));
        assert_eq!(row.wanted(&rules, Timestamp(64 * MINUTE)), 10);
        assert_eq!(row.wanted(&rules, Timestamp(65 * MINUTE)), 0, "nothing was asked for five watched minutes");
        assert_eq!(row.resident, 2 * 4 * u128::from(MINUTE));
    }
}

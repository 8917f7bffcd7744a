//! The reports that are not delivered yet: the newest of each kind, so three at most.
//!
//! A report that the metadata repeats is delivered once. Stopping wakes every thread that waits here.

use crate::report::{AgentReport, ReportKind};
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

#[derive(Debug, Default)]
pub(crate) struct Outbox {
    state: Mutex<OutboxState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct OutboxState {
    stopping: bool,
    /// The id of the instance that the reports are about.
    instance: String,
    /// Reports that are not delivered, with when each was first seen.
    waiting: BTreeMap<ReportKind, (AgentReport, Instant)>,
    /// The last report of each kind.
    last: BTreeMap<ReportKind, AgentReport>,
    /// Counts the reports that were put in.
    revision: u64,
}

/// The report that is delivered next.
#[derive(Clone, Debug)]
pub(crate) struct Due {
    pub instance: String,
    pub report: AgentReport,
    pub since: Instant,
    /// For [`Outbox::wait_for_new`].
    pub revision: u64,
}

/// The agent is stopping.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stopping;

impl Outbox {
    fn lock(&self) -> MutexGuard<'_, OutboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_instance(&self, instance: &str) {
        self.lock().instance = instance.to_owned();
    }

    /// The id of the instance, once it is known.
    pub fn instance(&self) -> Option<String> {
        Some(self.lock().instance.clone()).filter(|instance| !instance.is_empty())
    }

    /// Adds a report, unless it equals the last one of its kind. Returns whether it was added.
    pub fn put(&self, report: AgentReport) -> bool {
        let mut state = self.lock();
        if state.last.get(&report.kind) == Some(&report) {
            return false;
        }
        state.last.insert(report.kind, report.clone());
        state.waiting.insert(report.kind, (report, Instant::now()));
        state.revision += 1;
        drop(state);
        self.changed.notify_all();
        true
    }

    /// Removes a report that was delivered or abandoned. Another report of its kind that was added meanwhile stays.
    pub fn remove(&self, report: &AgentReport) {
        let mut state = self.lock();
        if state.waiting.get(&report.kind).is_some_and(|(waiting, _)| waiting == report) {
            state.waiting.remove(&report.kind);
        }
    }

    /// Waits for a report, and returns the most urgent one.
    pub fn next(&self) -> Result<Due, Stopping> {
        let mut state = self.lock();
        loop {
            if state.stopping {
                return Err(Stopping);
            }
            if let Some((report, since)) = state.waiting.values().next() {
                let (report, since) = (report.clone(), *since);
                return Ok(Due { instance: state.instance.clone(), report, since, revision: state.revision });
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Sleeps until a report is added after revision `known`, but not longer than `limit`.
    pub fn wait_for_new(&self, known: u64, limit: Duration) -> Result<(), Stopping> {
        self.wait(limit, |state| state.revision == known)
    }

    /// Sleeps, but not longer than until the agent stops.
    pub fn sleep(&self, duration: Duration) -> Result<(), Stopping> {
        self.wait(duration, |_| true)
    }

    fn wait(&self, limit: Duration, goes_on: impl Fn(&OutboxState) -> bool) -> Result<(), Stopping> {
        let waits = |state: &mut OutboxState| !state.stopping && goes_on(state);
        let waited = self.changed.wait_timeout_while(self.lock(), limit, waits);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if state.stopping { Err(Stopping) } else { Ok(()) }
    }

    /// Stops all threads of the agent.
    pub fn stop(&self) {
        self.lock().stopping = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_urgent_report_comes_first_and_none_comes_twice() {
        let outbox = Outbox::default();
        outbox.set_instance("i-1");
        let warning = |time: &str| AgentReport::interruption(&format!("{{\"time\":\"{time}\"}}"));
        let (first, second) = (warning("2026-11-21T20:30:00Z"), warning("2026-11-21T20:31:00Z"));
        assert!(outbox.put(AgentReport::hello()) && outbox.put(first.clone()));
        assert!(!outbox.put(first.clone()), "the metadata repeats it");
        let due = outbox.next().expect("one");
        assert_eq!((due.instance.as_str(), &due.report), ("i-1", &first));
        assert!(outbox.put(second.clone()));
        outbox.remove(&first);
        assert_eq!(outbox.next().expect("one").report, second, "a report that was added meanwhile stays");
        assert_eq!(outbox.wait_for_new(due.revision, Duration::from_secs(3600)), Ok(()), "a report was added already");
        outbox.remove(&second);
        assert_eq!(outbox.next().expect("one").report, AgentReport::hello());
        outbox.remove(&AgentReport::hello());
        assert!(!outbox.put(second), "it was delivered before");
        outbox.stop();
        assert!(outbox.next().is_err() && outbox.sleep(Duration::from_secs(3600)).is_err());
    }
}

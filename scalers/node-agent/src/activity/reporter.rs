//! Sends the newest report at a steady interval: soon while a worker is idle or new, seldom while all compute or none is there.
//!
//! A report that is not accepted is not repeated: the next one contains it. Never: delays a warning of the cloud, which has its own thread.

use super::monitor::GpuMonitor;
use super::report::ActivityReport;
use crate::controller_client::{ControllerClient, Delivery};
use crate::outbox::{Outbox, Stopping};
use crate::{AgentTimings, LogLine};
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// Reports by what became of them.
#[derive(Debug, Default)]
pub(crate) struct ReportCounts {
    pub accepted: AtomicU64,
    pub later: AtomicU64,
    pub refused: AtomicU64,
}

/// Sends reports until the agent stops.
pub(crate) struct ActivityReporter<'a> {
    pub controller: &'a ControllerClient,
    pub monitor: &'a GpuMonitor,
    pub outbox: &'a Outbox,
    pub counts: &'a ReportCounts,
    pub source: &'static str,
    pub timings: AgentTimings,
    pub log: &'a LogLine,
}

impl ActivityReporter<'_> {
    pub fn run(&self) {
        // Stopping is no failure.
        let _ = self.report();
    }

    fn report(&self) -> Result<Infallible, Stopping> {
        let start = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis();
        let start = u64::try_from(start).unwrap_or(u64::MAX);
        let (mut accepted, mut last_failure) = (None::<Instant>, None);
        loop {
            self.outbox.sleep(self.timings.report_interval)?;
            let Some(instance) = self.outbox.instance() else { continue };
            if accepted.is_some_and(|at| at.elapsed() < self.pause()) {
                continue;
            }
            let report = self.next(instance, start);
            let (count, failure, wait) = match self.controller.deliver_activity(&report) {
                Delivery::Accepted => {
                    self.monitor.lock().tracker.acknowledge(report.sequence);
                    accepted = Some(Instant::now());
                    (&self.counts.accepted, None, None)
                }
                Delivery::Later(why, wait) => (&self.counts.later, Some(why), wait),
                Delivery::Refused(why) => (&self.counts.refused, Some(why), None),
            };
            count.fetch_add(1, Ordering::Relaxed);
            // The same failure is logged once.
            if failure.is_some() && failure != last_failure {
                (self.log)(&format!("activity not reported yet: {}", failure.as_deref().unwrap_or_default()));
            } else if failure.is_none() && last_failure.is_some() {
                (self.log)("activity is reported again");
            }
            last_failure = failure;
            self.outbox.sleep(wait.unwrap_or(Duration::ZERO))?;
        }
    }

    /// How long after an accepted report the next one is due.
    fn pause(&self) -> Duration {
        let state = self.monitor.lock();
        match (state.tracker.is_empty(), state.tracker.is_urgent()) {
            (true, _) => self.timings.quiet_report_interval * 2,
            (false, true) => Duration::ZERO,
            (false, false) => self.timings.quiet_report_interval,
        }
    }

    fn next(&self, instance: String, start: u64) -> ActivityReport {
        let mut state = self.monitor.lock();
        let gpus = state.sample.as_ref().map(|sample| u32::try_from(sample.gpus.len()).unwrap_or(u32::MAX));
        let about = ActivityReport {
            instance,
            start,
            sequence: 0,
            since: 0,
            source: self.source.to_owned(),
            gpus,
            problem: state.problem.clone(),
            dropped: 0,
            workers: Vec::new(),
        };
        let now = self.monitor.started.elapsed();
        state.tracker.report(now, about)
    }
}

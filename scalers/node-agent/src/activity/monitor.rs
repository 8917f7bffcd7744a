//! Takes each new sample of the GPUs, finds out whose processes are on them, and keeps the books.
//!
//! Never: waits for the GPUs. A source that has no figures or does not respond is logged when that begins and when it ends.

use super::judge::{Owners, WorkerReading, judge};
use super::tracker::ActivityTracker;
use crate::gpus::GpuSample;
use crate::gpus::sampler::{LatestSample, Sampled};
use crate::outbox::{Outbox, Stopping};
use crate::owners::{NodeRoots, PresentWorkers};
use crate::worker::WorkerName;
use crate::{AgentTimings, LogLine};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often a new sample is looked for.
const POLL: Duration = Duration::from_millis(100);
/// How often all pods and processes are looked at. Between these, only the processes on GPUs are.
const PRESENT_EVERY: Duration = Duration::from_secs(5);

/// What is known at a time. The observing thread writes it; reports and metrics are made of it.
#[derive(Debug)]
pub(crate) struct GpuMonitor {
    pub started: Instant,
    state: Mutex<MonitorState>,
}

#[derive(Debug)]
pub(crate) struct MonitorState {
    pub tracker: ActivityTracker,
    /// The newest sample, if there are figures now.
    pub sample: Option<Arc<GpuSample>>,
    /// Why there are none.
    pub problem: Option<String>,
}

impl GpuMonitor {
    pub fn new(interval: Duration) -> GpuMonitor {
        let state = MonitorState { tracker: ActivityTracker::new(interval), sample: None, problem: None };
        GpuMonitor { started: Instant::now(), state: Mutex::new(state) }
    }

    pub fn lock(&self) -> MutexGuard<'_, MonitorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Observes until the agent stops.
    pub fn run(&self, latest: &LatestSample, roots: &NodeRoots, timings: AgentTimings, outbox: &Outbox, log: &LogLine) {
        // Stopping is no failure.
        let _ = self.observe(latest, roots, timings, outbox, log);
    }

    fn observe(
        &self,
        latest: &LatestSample,
        roots: &NodeRoots,
        timings: AgentTimings,
        outbox: &Outbox,
        log: &LogLine,
    ) -> Result<Infallible, Stopping> {
        let (mut known, mut present) = (0, None);
        loop {
            match latest.since(&mut known, timings.gpu_patience) {
                Sampled::New(sample) if sample.gpus.is_empty() => {
                    self.fail("no GPU: the driver lists none".to_owned(), log)
                }
                Sampled::New(sample) => self.take(sample, roots, &mut present, log),
                Sampled::Failed(why) => self.fail(why, log),
                Sampled::Hangs(_) => self.fail("the GPU source does not respond".to_owned(), log),
                Sampled::Unchanged => {}
            }
            outbox.sleep(POLL)?;
        }
    }

    fn take(
        &self,
        sample: Arc<GpuSample>,
        roots: &NodeRoots,
        present: &mut Option<(Instant, PresentWorkers)>,
        log: &LogLine,
    ) {
        let (at, workers) = present
            .take()
            .filter(|(at, _)| at.elapsed() < PRESENT_EVERY)
            .unwrap_or_else(|| (Instant::now(), roots.present()));
        let readings = readings(&sample, roots, &workers);
        *present = Some((at, workers));
        let mut state = self.lock();
        state.tracker.observe(self.started.elapsed(), &readings);
        if state.sample.is_none() || state.problem.is_some() {
            log(&format!("GPUs are read: {}", sample.gpus.len()));
        }
        (state.sample, state.problem) = (Some(sample), None);
    }

    fn fail(&self, why: String, log: &LogLine) {
        let mut state = self.lock();
        state.tracker.observe_nothing();
        if state.problem.as_ref() != Some(&why) {
            log(&format!("no figures of GPUs; all else goes on: {why}"));
        }
        (state.sample, state.problem) = (None, Some(why));
    }
}

/// What each worker does by a sample.
pub(crate) fn readings(
    sample: &GpuSample,
    roots: &NodeRoots,
    present: &PresentWorkers,
) -> BTreeMap<WorkerName, WorkerReading> {
    judge(sample, &owners(sample, roots), present)
}

/// The owners of all processes in a sample.
pub(crate) fn owners(sample: &GpuSample, roots: &NodeRoots) -> Owners {
    let processes = sample.gpus.iter().flat_map(|gpu| gpu.processes.iter().flatten());
    let mut owners = Owners::new();
    for process in processes {
        owners.entry(process.pid).or_insert_with(|| roots.owner(process.pid));
    }
    owners
}

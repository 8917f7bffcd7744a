//! The memory of what agents have reported: of each agent its last report, of each of its current workers the sums and the idleness.
//!
//! ```text
//! same start:  sequence above the last one     taken; at most it: a repeated or late report, changes nothing
//! other start: later, or the last was silent   taken, as a new agent; else a late report of an earlier start
//! since:       as in the last report           its sums contain the last ones
//!              the number of the last report   its sums begin there
//! ```
//!
//! Bounded by the nodes that the cluster has within a day and the workers of one report. Never: a clock of its own; the caller says how long the book has been open.

use super::rules::SentEvents;
use super::view::ReportView;
use forebay_kernel::event::Event;
use forebay_node_agent::{ActivityReport, WorkerActivity, WorkerName};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// An agent that was silent for so long may have been started again with a clock that was set back.
const SILENT: Duration = Duration::from_secs(60);
/// What was sent of a run that was silent for so long is forgotten: it is over, or its node has no agent any more.
pub(super) const FORGOTTEN: Duration = Duration::from_secs(600);
/// An agent that was silent for so long is forgotten. Until then it is known what of its sums was counted, though the answer was lost.
const AGENT_FORGOTTEN: Duration = Duration::from_secs(24 * 3600);
/// What was reported longer ago says nothing of now: three reports of a worker that is idle.
pub(super) const FRESH: Duration = Duration::from_secs(30);
/// The most time that one report can add, in milliseconds: a month without a controller.
const MOST_ADDED: u64 = 30 * 24 * 3600 * 1000;

/// Whether a worker in a report is one of the node's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum WorkerStanding {
    /// It is a worker of a current run on that node.
    Current,
    /// Its run is not the current one, or does not run.
    NotCurrent,
    /// It is on another node, or no worker of its run.
    Elsewhere,
    /// There is no such job.
    UnknownJob,
}

/// What agents have reported since this process started.
#[derive(Debug)]
pub struct ActivityBook {
    opened: Instant,
    inside: Mutex<Entries>,
}

/// What became of a report.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TakenReport {
    /// Whether it was not known before.
    pub new: bool,
    /// What follows from it for the engine.
    pub events: Vec<Event>,
    /// Workers that were ignored.
    pub ignored: u64,
}

#[derive(Debug, Default)]
pub(super) struct Entries {
    pub agents: BTreeMap<Arc<str>, AgentRecord>,
    pub sent: SentEvents,
    pub sums: BTreeMap<String, QueueSums>,
    /// Reports and workers that were ignored, by cause.
    pub ignored: BTreeMap<&'static str, u64>,
    pub dropped: u64,
    swept: Duration,
}

/// Worker time by queue, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct QueueSums {
    pub observed: u64,
    pub busy: u64,
    pub resident: u64,
}

/// What an agent has of its node's GPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AgentFigures {
    /// It reads them.
    Read,
    /// There are GPUs, and it cannot read them.
    Missing,
    /// The node has no GPUs, so it need not read any.
    NoGpus,
}

/// The last report of an agent.
#[derive(Clone, Debug)]
pub(super) struct AgentRecord {
    start: u64,
    sequence: u64,
    since: u64,
    pub seen: Duration,
    pub source: &'static str,
    pub figures: AgentFigures,
    dropped: u64,
    pub workers: BTreeMap<WorkerName, WorkerActivity>,
    /// Sums of workers in the last report, current or not, for the ones that follow.
    counted: BTreeMap<WorkerName, QueueSums>,
}

impl Default for ActivityBook {
    fn default() -> ActivityBook {
        ActivityBook { opened: Instant::now(), inside: Mutex::default() }
    }
}

impl ActivityBook {
    pub(super) fn lock(&self) -> MutexGuard<'_, Entries> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long the book has been open.
    pub(super) fn now(&self) -> Duration {
        self.opened.elapsed()
    }

    /// Takes a report, and returns what follows from it.
    #[must_use]
    pub fn take(&self, report: &ActivityReport, view: &ReportView) -> TakenReport {
        self.lock().take(self.now(), report, view)
    }

    /// The events of a report are durable: they are not sent again for the same idleness.
    pub fn events_sent(&self, events: &[Event]) {
        let now = self.now();
        self.lock().sent.record(now, events);
    }

    /// Counts a report from an instance that is none of this cluster.
    pub fn count_unknown_node(&self) {
        self.lock().ignore("unknown-node");
    }
}

impl Entries {
    pub fn ignore(&mut self, cause: &'static str) {
        *self.ignored.entry(cause).or_default() += 1;
    }

    pub fn take(&mut self, now: Duration, report: &ActivityReport, view: &ReportView) -> TakenReport {
        self.sweep(now);
        let last = self.agents.remove(report.instance.as_str());
        if let Some(last) = last.as_ref().filter(|last| last.is_after(now, report)) {
            let last = last.clone();
            self.agents.insert(Arc::from(report.instance.as_str()), last);
            self.ignore("repeated");
            return TakenReport::default();
        }
        let last = last.filter(|last| last.start == report.start);
        self.dropped += report.dropped.saturating_sub(last.as_ref().map_or(0, |last| last.dropped));
        let mut record = AgentRecord {
            start: report.start,
            sequence: report.sequence,
            since: report.since,
            seen: now,
            source: if report.source == "dcgm" { "dcgm" } else { "nvml" },
            figures: AgentFigures::of(report, view),
            dropped: report.dropped,
            workers: BTreeMap::new(),
            counted: BTreeMap::new(),
        };
        let mut ignored = 0;
        for (worker, standing) in report.workers.iter().zip(&view.standings) {
            let sums = QueueSums::of(worker);
            record.counted.insert(worker.worker, sums);
            match standing {
                WorkerStanding::Current => {
                    let before = last.as_ref().map_or(QueueSums::default(), |last| last.before(report, worker.worker));
                    let queue = view.queues.get(&worker.worker).cloned().unwrap_or_default();
                    self.sums.entry(queue).or_default().add(sums, before);
                    record.workers.insert(worker.worker, worker.clone());
                    continue;
                }
                WorkerStanding::NotCurrent => self.ignore("not-current"),
                WorkerStanding::Elsewhere => self.ignore("elsewhere"),
                WorkerStanding::UnknownJob => self.ignore("unknown-job"),
            }
            ignored += 1;
        }
        self.agents.insert(Arc::from(report.instance.as_str()), record);
        TakenReport { new: true, events: self.follow(now, view), ignored }
    }

    /// Forgets agents that were silent for long, and what was sent of runs that are over. Once a minute is enough.
    fn sweep(&mut self, now: Duration) {
        if now.saturating_sub(self.swept) < SILENT {
            return;
        }
        self.swept = now;
        self.agents.retain(|_, record| now.saturating_sub(record.seen) < AGENT_FORGOTTEN);
        self.sent.forget(now);
    }

    /// The last report of a worker, with when it came, if that was not long ago.
    pub fn worker(&self, now: Duration, name: WorkerName, instance: &str) -> Option<(Duration, &WorkerActivity)> {
        let record = self.agents.get(instance).filter(|record| now.saturating_sub(record.seen) <= FRESH)?;
        Some((record.seen, record.workers.get(&name)?))
    }
}

impl AgentFigures {
    fn of(report: &ActivityReport, view: &ReportView) -> AgentFigures {
        match (report.problem.is_none() && report.gpus.is_some(), view.has_gpus) {
            (true, _) => AgentFigures::Read,
            (false, true) => AgentFigures::Missing,
            (false, false) => AgentFigures::NoGpus,
        }
    }
}

impl AgentRecord {
    /// Whether a report was sent before this one, or is this one.
    fn is_after(&self, now: Duration, report: &ActivityReport) -> bool {
        if self.start == report.start {
            return self.sequence >= report.sequence;
        }
        self.start > report.start && now.saturating_sub(self.seen) < SILENT
    }

    /// What of a report's sums was counted already.
    fn before(&self, report: &ActivityReport, worker: WorkerName) -> QueueSums {
        if report.since == self.sequence {
            return QueueSums::default();
        }
        let counted = self.counted.get(&worker).copied().unwrap_or_default();
        if report.since == self.since { counted } else { QueueSums::all() }
    }
}

impl QueueSums {
    fn of(worker: &WorkerActivity) -> QueueSums {
        QueueSums { observed: worker.observed_ms, busy: worker.busy_ms, resident: worker.resident_ms }
    }

    /// More than any sum: nothing is added where it is not known what was.
    fn all() -> QueueSums {
        QueueSums { observed: u64::MAX, busy: u64::MAX, resident: u64::MAX }
    }

    fn add(&mut self, sums: QueueSums, before: QueueSums) {
        let more = |sum: u64, before: u64| sum.saturating_sub(before).min(MOST_ADDED);
        self.observed = self.observed.saturating_add(more(sums.observed, before.observed));
        self.busy = self.busy.saturating_add(more(sums.busy, before.busy));
        self.resident = self.resident.saturating_add(more(sums.resident, before.resident));
    }
}

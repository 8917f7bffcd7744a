//! The sources and sinks with their conditions, for `GET /v1/sources` and the metrics. An unknown number is null, never 0.

use super::lines::LogKind;
use super::metrics::SourceMetrics;
use crate::driver::DriverHandle;
use forebay_kernel::units::Timestamp;
use forebay_source::{Backlog, Condition, Health, HealthSnapshot};
use forebay_wire::document::seconds::Seconds;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A source, a sink, a cloud or a cluster.
#[derive(Clone, Debug)]
pub struct RegisteredSource {
    name: String,
    channels: Vec<String>,
    health: Health,
    role: Role,
}

#[derive(Clone, Debug)]
enum Role {
    Source(Arc<SourceMetrics>),
    Sink(LogKind, SinkProgress),
    Cloud,
    Cluster,
}

impl RegisteredSource {
    /// A source of job events.
    #[must_use]
    pub fn source(
        name: String,
        channels: Vec<String>,
        health: Health,
        metrics: Arc<SourceMetrics>,
    ) -> RegisteredSource {
        RegisteredSource { name, channels, health, role: Role::Source(metrics) }
    }

    /// The cloud that nodes are bought from.
    #[must_use]
    pub fn cloud(name: String, health: Health) -> RegisteredSource {
        RegisteredSource { channels: Vec::new(), name, health, role: Role::Cloud }
    }

    /// The cluster that gangs run in.
    #[must_use]
    pub fn cluster(name: String, health: Health) -> RegisteredSource {
        RegisteredSource { channels: Vec::new(), name, health, role: Role::Cluster }
    }

    /// A sink, and how far it has come.
    #[must_use]
    pub fn sink(name: String, kind: LogKind, health: Health, progress: SinkProgress) -> RegisteredSource {
        RegisteredSource { channels: vec![name.clone()], name, health, role: Role::Sink(kind, progress) }
    }
}

/// How far a sink has come.
#[derive(Clone, Debug)]
pub struct SinkProgress {
    /// The key of its cursor in the journal.
    pub cursor: String,
    /// The last number that it has acknowledged since this process started; the journal knows it a little later.
    pub acknowledged: Arc<AtomicU64>,
}

impl SinkProgress {
    /// The last number that it has acknowledged.
    fn number(&self, handle: &DriverHandle) -> u64 {
        self.acknowledged.load(Ordering::Relaxed).max(handle.durable().get(&self.cursor).unwrap_or(0))
    }
}

/// All sources and sinks. It is cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct SourceRegistry {
    listed: Arc<Vec<RegisteredSource>>,
    http: Arc<SourceMetrics>,
}

/// The sources and sinks at one time.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct SourcesView {
    /// In the order of the configuration: sinks, then sources.
    pub sources: Vec<SourceView>,
    /// The events by HTTP. Rejected ones are in the responses only.
    #[serde(default)]
    pub http: MessageCountsView,
}

/// The condition of a source or sink.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SourceView {
    /// Its name, such as `kafka:127.0.0.1:9092`.
    pub name: String,
    /// `in` for a source, `status` or `rejected` for a sink, `cloud` for a cloud, `cluster` for a cluster.
    pub direction: String,
    /// Its topics or queues.
    pub channels: Vec<String>,
    /// `starting`, `working`, `heldBack`, `failing` or `stopped`.
    pub condition: String,
    /// Why it fails, with a remedy.
    pub why: Option<String>,
    /// The messages that wait, in total. Null: unknown.
    pub backlog: Option<u64>,
    /// The same by partition or queue.
    pub backlogs: BTreeMap<String, Option<u64>>,
    /// The number of restarts.
    pub restarts: u64,
    /// The messages that the broker deleted before they were read.
    pub missed: u64,
    /// The messages of a source since this process started.
    #[serde(rename = "letters", default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<MessageCountsView>,
    /// The number of the last message that a sink has acknowledged, by the journal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledged: Option<u64>,
    /// Remarks for the operator, oldest first.
    pub remarks: Vec<RemarkView>,
}

/// The messages of a source since this process started.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct MessageCountsView {
    /// Messages with a new event.
    pub taken: u64,
    /// Messages with a known event.
    pub seen: u64,
    /// Rejected messages by code.
    pub rejected: BTreeMap<String, u64>,
    /// Warnings about unknown fields.
    pub warnings: u64,
    /// The time from the broker to the durable decision, in ms. Null: there was no message yet, or the broker sends no times.
    pub latency_ms: Option<LatencyView>,
}

/// Quantiles of a latency.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LatencyView {
    /// The median.
    pub p50: u64,
    /// The 95th percentile.
    pub p95: u64,
    /// The 99th percentile.
    pub p99: u64,
}

/// A remark for the operator.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RemarkView {
    /// The time, in s since 1970.
    pub at_s: Seconds,
    /// The text.
    pub text: String,
}

impl SourceRegistry {
    /// A registry of these sources and sinks.
    #[must_use]
    pub fn new(listed: Vec<RegisteredSource>) -> SourceRegistry {
        SourceRegistry { listed: Arc::new(listed), http: Arc::default() }
    }

    /// Their present conditions.
    #[must_use]
    pub fn view(&self, handle: &DriverHandle) -> SourcesView {
        SourcesView { sources: self.listed.iter().map(|one| view(one, handle)).collect(), http: self.http.counts() }
    }

    /// The metrics of the events by HTTP.
    #[must_use]
    pub fn http(&self) -> &SourceMetrics {
        &self.http
    }
}

fn view(one: &RegisteredSource, handle: &DriverHandle) -> SourceView {
    let HealthSnapshot { condition, mut backlog, restarts, missed, remarks } = one.health.snapshot();
    if let Role::Sink(kind, progress) = &one.role {
        // Counted now, whatever the sink is busy with: what it has not acknowledged waits.
        let waits = kind.last(handle).saturating_sub(progress.number(handle));
        backlog.insert(kind.as_str().to_owned(), Backlog::Known(waits));
    }
    let known = |backlog: &Backlog| match backlog {
        Backlog::Known(n) => Some(*n),
        Backlog::Unknown { .. } => None,
    };
    let backlogs: BTreeMap<_, _> = backlog.iter().map(|(of, backlog)| (of.clone(), known(backlog))).collect();
    let unknown = backlog.values().find_map(|b| match b {
        Backlog::Unknown { why } => Some(why.clone()),
        Backlog::Known(_) => None,
    });
    let (condition, why) = match condition {
        Condition::Starting => ("starting", unknown),
        Condition::Working => ("working", unknown),
        Condition::HeldBack => ("heldBack", unknown),
        Condition::Failing { why } => ("failing", Some(why)),
        Condition::Stopped => ("stopped", unknown),
    };
    let all: Option<u64> = backlogs.values().copied().sum();
    let (direction, messages, acknowledged) = match &one.role {
        Role::Source(metrics) => ("in", Some(metrics.counts()), None),
        Role::Sink(kind, progress) => (kind.as_str(), None, Some(handle.durable().get(&progress.cursor).unwrap_or(0))),
        Role::Cloud => ("cloud", None, None),
        Role::Cluster => ("cluster", None, None),
    };
    SourceView {
        name: one.name.clone(),
        direction: direction.to_owned(),
        channels: one.channels.clone(),
        condition: condition.to_owned(),
        why,
        backlog: all.filter(|_| !backlogs.is_empty()),
        backlogs,
        restarts,
        missed,
        messages,
        acknowledged,
        remarks: remarks.into_iter().map(|r| RemarkView { at_s: Timestamp(r.at_ms).into(), text: r.text }).collect(),
    }
}

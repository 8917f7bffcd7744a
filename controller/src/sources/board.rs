//! What sources and sinks there are and how they are: for `GET /v1/sources`, and for whoever asks in this process.
//!
//! Never: a figure that nobody knows as zero; it is null.

use super::figures::SourceFigures;
use super::lines::Kind;
use crate::document::seconds::Seconds;
use forebay_engine::units::Millis;
use forebay_source::{Backlog, Condition, Durable, Health, Seen};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A source or a sink.
#[derive(Clone, Debug)]
pub struct Listed {
    name: String,
    channels: Vec<String>,
    health: Health,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Source(Arc<SourceFigures>),
    Sink(Kind, String),
    Cloud,
}

impl Listed {
    /// Something that is read.
    #[must_use]
    pub fn source(name: String, channels: Vec<String>, health: Health, figures: Arc<SourceFigures>) -> Listed {
        Listed { name, channels, health, what: What::Source(figures) }
    }

    /// Where nodes are bought.
    #[must_use]
    pub fn cloud(name: String, health: Health) -> Listed {
        Listed { channels: Vec::new(), name, health, what: What::Cloud }
    }

    /// Something that is written to.
    #[must_use]
    pub fn sink(name: String, kind: Kind, health: Health, cursor: String) -> Listed {
        Listed { channels: vec![name.clone()], name, health, what: What::Sink(kind, cursor) }
    }
}

/// All of them. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Board {
    listed: Arc<Vec<Listed>>,
    http: Arc<SourceFigures>,
}

/// The sources and sinks at one moment.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct SourcesView {
    /// In the order of the configuration: sinks, then sources.
    pub sources: Vec<SourceView>,
    /// What came by HTTP. Its rejected are in the answers, and nowhere else.
    #[serde(default)]
    pub http: LettersView,
}

/// One source or sink.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SourceView {
    /// Its name, such as `kafka:127.0.0.1:9092`.
    pub name: String,
    /// `in`: job events. `status`, `rejected`: what goes out. `cloud`: where nodes are bought.
    pub direction: String,
    /// Its topics or queues.
    pub channels: Vec<String>,
    /// `starting`, `working`, `heldBack`, `failing` or `stopped`.
    pub condition: String,
    /// Why it fails, and what to do.
    pub why: Option<String>,
    /// Messages that wait, in all. Null: not known.
    pub backlog: Option<u64>,
    /// The same by partition or queue.
    pub backlogs: BTreeMap<String, Option<u64>>,
    /// How often it was started again.
    pub restarts: u64,
    /// Messages that the broker dropped before they were read.
    pub missed: u64,
    /// A source's letters since this process started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub letters: Option<LettersView>,
    /// The number of the last that a sink has acknowledged, as the journal has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledged: Option<u64>,
    /// What an operator should know, oldest first.
    pub remarks: Vec<RemarkView>,
}

/// A source's letters since this process started.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct LettersView {
    /// They said something new.
    pub taken: u64,
    /// They had been seen before.
    pub seen: u64,
    /// They were not taken, by code.
    pub rejected: BTreeMap<String, u64>,
    /// Warnings about fields that are not known.
    pub warnings: u64,
    /// From the broker to the durable decision, in ms. Null: no letter yet, or the broker does not tell.
    pub latency_ms: Option<LatencyView>,
}

/// Quantiles.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LatencyView {
    /// Half took at most so long.
    pub p50: u64,
    /// 95 of 100.
    pub p95: u64,
    /// 99 of 100.
    pub p99: u64,
}

/// A remark.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RemarkView {
    /// When, in s since 1970.
    pub at_s: Seconds,
    /// What.
    pub text: String,
}

impl Board {
    /// Of these.
    #[must_use]
    pub fn new(listed: Vec<Listed>) -> Board {
        Board { listed: Arc::new(listed), http: Arc::default() }
    }

    /// As they are now.
    #[must_use]
    pub fn view(&self, durable: &Durable) -> SourcesView {
        SourcesView { sources: self.listed.iter().map(|one| view(one, durable)).collect(), http: letters(&self.http) }
    }

    /// Where events that come by HTTP are counted.
    #[must_use]
    pub fn http(&self) -> &SourceFigures {
        &self.http
    }
}

fn view(one: &Listed, durable: &Durable) -> SourceView {
    let Seen { condition, backlog, restarts, missed, remarks } = one.health.seen();
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
    let (direction, letters, acknowledged) = match &one.what {
        What::Source(figures) => ("in", Some(letters(figures)), None),
        What::Sink(kind, cursor) => (kind.as_str(), None, Some(durable.of(cursor).unwrap_or(0))),
        What::Cloud => ("cloud", None, None),
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
        letters,
        acknowledged,
        remarks: remarks.into_iter().map(|(at, text)| RemarkView { at_s: Millis(at).into(), text }).collect(),
    }
}

fn letters(figures: &SourceFigures) -> LettersView {
    let counted = figures.counted();
    LettersView {
        taken: counted.taken,
        seen: counted.seen,
        rejected: counted.rejected,
        warnings: counted.warnings,
        latency_ms: counted.latency_ms.map(|[p50, p95, p99]| LatencyView { p50, p95, p99 }),
    }
}

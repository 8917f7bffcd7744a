//! What the seeds of a sweep exercised: which features their policies and jobs named, and what of it was seen to happen.
//!
//! ```text
//! named     a seed's policy or one of its jobs names the feature                  counted in seeds
//! waits     a class waits for this reason             (the reasons' codes)         counted in passes
//! statuses  a status carries the reason               (the reasons' codes)         counted in statuses
//! stops     runs were stopped, by cause                                           counted in decisions
//! decides   other decisions                                                       counted in decisions
//! ```
//!
//! Never: reads the engine. Batches, reports and statuses are public.

use std::collections::BTreeMap;
use std::fmt;

use forebay_engine::plan::PlanReport;
use forebay_kernel::decision::{Decision, StopCause};
use forebay_kernel::effect::{Status, WorkerPlace};
use forebay_kernel::event::Event;
use forebay_kernel::journal::Batch;
use forebay_kernel::policy::Policy;

use super::workload::{self, Workload};
use crate::policies::features;

/// Counts by name.
type Counts = BTreeMap<&'static str, u64>;

/// What was named, and what was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeatureTally {
    named: Counts,
    waits: Counts,
    statuses: Counts,
    stops: Counts,
    decides: Counts,
}

/// Reasons that a sweep of a few thousand seeds should meet, as what a class waits for or in a status.
const REASONS: [&str; 29] = [
    "AwaitingNodes",
    "BackOff",
    "Batched",
    "Budget",
    "BurstIsNoise",
    "Ceiling",
    "DeadlineUnreachable",
    "ExceedsCeiling",
    "ExceedsMaxQuota",
    "ExitCode",
    "Hurried",
    "LaunchRefused",
    "Lingering",
    "MaxRun",
    "Moved",
    "NodeHung",
    "NodeLost",
    "NothingIdle",
    "Overran",
    "PreemptedBy",
    "QuotaReclaimed",
    "Reclaimed",
    "ReservationDelayed",
    "Reserved",
    "StartTooLate",
    "Stockout",
    "TopologyUnsatisfied",
    "WaitingByDesign",
    "WaitingForQuota",
];

impl FeatureTally {
    /// What a seed's policy and workload name.
    pub(super) fn named(&mut self, policy: &Policy, work: &Workload) {
        for (name, named) in features::NAMED {
            *self.named.entry(name).or_default() += u64::from(named(policy));
        }
        for (name, named) in workload::features::NAMED {
            *self.named.entry(name).or_default() += u64::from(work.specs().any(named));
        }
    }

    /// A batch that was planned and written.
    pub(super) fn batch(&mut self, batch: &Batch, report: &PlanReport) {
        for (_, reason) in &report.waiting {
            *self.waits.entry(reason.code()).or_default() += 1;
        }
        for decision in &batch.decisions {
            if let Decision::Stop { cause, .. } = decision {
                *self.stops.entry(stop(*cause)).or_default() += 1;
            } else {
                for name in decides(decision).into_iter().flatten() {
                    *self.decides.entry(name).or_default() += 1;
                }
            }
        }
        let demands = batch.events.iter().filter(|e| matches!(e, Event::ServiceDemand { .. })).count();
        *self.decides.entry("demand heard").or_default() += demands as u64;
    }

    /// A status to whoever submitted a job.
    pub(super) fn status(&mut self, status: &Status) {
        if let Some(reason) = status.reason {
            *self.statuses.entry(reason.code()).or_default() += 1;
        }
    }

    /// Adds another tally to this one.
    pub(super) fn add(&mut self, other: &FeatureTally) {
        let sums = [
            (&mut self.named, &other.named),
            (&mut self.waits, &other.waits),
            (&mut self.statuses, &other.statuses),
            (&mut self.stops, &other.stops),
            (&mut self.decides, &other.decides),
        ];
        for (sum, more) in sums {
            for (name, count) in more {
                *sum.entry(name).or_default() += count;
            }
        }
    }
}

fn stop(cause: StopCause) -> &'static str {
    match cause {
        StopCause::Preempted { .. } => "preempted",
        StopCause::Reclaimed => "reclaimed",
        StopCause::Moved => "moved",
        StopCause::QuotaReclaimed { .. } => "quota reclaimed",
        StopCause::Overran { .. } => "overran",
        StopCause::Hurried => "hurried",
        StopCause::NodeHung => "node hung",
        StopCause::Scaled => "scaled",
        StopCause::NodeLost => "node lost",
        StopCause::StartTimeout => "start timed out",
        StopCause::Failed { .. } => "failed",
        StopCause::Completed => "completed",
        StopCause::Cancelled => "cancelled",
        StopCause::MaxRun => "ran too long",
        StopCause::Lingering { .. } => "lingered",
    }
}

/// What a decision shows, as far as it shows a feature.
fn decides(decision: &Decision) -> [Option<&'static str>; 3] {
    let some = |yes: bool, name: &'static str| yes.then_some(name);
    match decision {
        Decision::Book { places, .. } => {
            let part = |p: &WorkerPlace| p.gpus != 0 && p.share < 1000 && p.slice.is_none();
            [
                Some("books"),
                some(places.iter().any(part), "parts of GPUs"),
                some(places.iter().any(|p| p.slice.is_some()), "slices"),
            ]
        }
        Decision::Buy { terms, .. } => [
            some(terms.layout.is_some(), "buys with a layout"),
            some(terms.cluster, "buys into a placement group"),
            some(terms.efa, "buys with efa"),
        ],
        Decision::Unbook { .. } => [Some("better places"), None, None],
        Decision::Reserve { .. } => [Some("reservations"), None, None],
        Decision::Release { .. } => [Some("reservations over"), None, None],
        Decision::Undrain { .. } => [Some("nodes kept after all"), None, None],
        Decision::WarnLingering { .. } => [Some("lingering warned"), None, None],
        Decision::Repeat { .. } => [Some("effects repeated"), None, None],
        _ => [None, None, None],
    }
}

impl fmt::Display for FeatureTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lists = [
            ("named", &self.named),
            ("waits", &self.waits),
            ("statuses", &self.statuses),
            ("stops", &self.stops),
            ("decides", &self.decides),
        ];
        for (title, counts) in lists {
            wrapped(f, title, counts.iter().map(|(name, count)| format!("{name} {count}")))?;
        }
        let unseen = REASONS.iter().filter(|r| !self.waits.contains_key(*r) && !self.statuses.contains_key(*r));
        wrapped(f, "not met", unseen.map(|r| (*r).to_owned()))
    }
}

/// A list under its title, broken where a line is full.
fn wrapped(f: &mut fmt::Formatter<'_>, title: &str, items: impl Iterator<Item = String>) -> fmt::Result {
    let mut line = format!("{title:<8} ");
    let mut first = true;
    for item in items {
        if !first {
            line.push_str(", ");
        }
        if line.len() + item.len() > 118 {
            writeln!(f, "{}", line.trim_end())?;
            line = " ".repeat(9);
        }
        line.push_str(&item);
        first = false;
    }
    if first {
        line.push_str("nothing");
    }
    writeln!(f, "{}", line.trim_end())
}

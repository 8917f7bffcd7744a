//! What the seeds of a sweep exercised: which features their policies and jobs named, and what of it was seen to happen.
//!
//! ```text
//! named     a seed's policy or one of its jobs names the feature                  counted in seeds
//! waits     a class waits for this reason             (the reasons' codes)         counted in passes
//! why       a job was asked why it is where it is     (the reasons' codes)         counted in questions, one every five minutes
//! starved   what still waited after three days        (the reasons' codes)         counted in jobs
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
use forebay_kernel::reason::Reason;

use super::reasons::{SAMPLES, met_within};
use super::workload::{self, Workload};
use crate::policies::features;

/// What was named, and what was seen: counts by list and name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeatureTally(BTreeMap<(List, &'static str), u64>);

/// The lists, in the order in which they are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum List {
    Named,
    Waits,
    Why,
    Starved,
    Statuses,
    Stops,
    Decides,
}

impl List {
    const ALL: [List; 7] =
        [List::Named, List::Waits, List::Why, List::Starved, List::Statuses, List::Stops, List::Decides];
}

impl FeatureTally {
    /// What a seed's policy and workload name.
    pub(super) fn named(&mut self, policy: &Policy, work: &Workload) {
        for (name, named) in features::NAMED {
            self.count(List::Named, name, u64::from(named(policy)));
        }
        for (name, named) in workload::features::NAMED {
            self.count(List::Named, name, u64::from(work.specs().any(named)));
        }
    }

    /// What operators and the world around do beside it.
    pub(super) fn operators(&mut self, named: impl Iterator<Item = &'static str>) {
        for name in named {
            self.count(List::Named, name, 1);
        }
    }

    /// Why a job is where it is.
    pub(super) fn why(&mut self, reason: Reason) {
        self.count(List::Why, reason.code(), 1);
    }

    /// A job still waits after three days.
    pub(super) fn starved(&mut self, reason: Option<Reason>) {
        self.count(List::Starved, reason.map_or("no reason", Reason::code), 1);
    }

    /// Codes that so many seeds should have met, and have not: as what a class waits for, as the answer to why, or in a status.
    pub(super) fn not_met(&self, seeds: u64) -> Vec<&'static str> {
        let due = SAMPLES.iter().filter(|reason| met_within(reason).is_some_and(|needed| needed <= seeds));
        let lists = [List::Waits, List::Why, List::Statuses];
        let met = |code: &&str| lists.iter().any(|list| self.0.contains_key(&(*list, *code)));
        due.map(|reason| reason.code()).filter(|code| !met(code)).collect()
    }

    /// A batch that was planned and written.
    pub(super) fn batch(&mut self, batch: &Batch, report: &PlanReport) {
        for (_, reason) in &report.waiting {
            self.count(List::Waits, reason.code(), 1);
        }
        for decision in &batch.decisions {
            if let Decision::Stop { cause, .. } = decision {
                self.count(List::Stops, stop(*cause), 1);
            } else {
                for name in decides(decision).into_iter().flatten() {
                    self.count(List::Decides, name, 1);
                }
            }
        }
        let demands = batch.events.iter().filter(|e| matches!(e, Event::ServiceDemand { .. })).count();
        self.count(List::Decides, "demand heard", demands as u64);
        let deaths = batch.events.iter().filter(|e| matches!(e, Event::DeathConfirmed { .. })).count();
        self.count(List::Decides, "deaths confirmed", deaths as u64);
    }

    /// A status to whoever submitted a job.
    pub(super) fn status(&mut self, status: &Status) {
        if let Some(reason) = status.reason {
            self.count(List::Statuses, reason.code(), 1);
        }
    }

    /// Adds another tally to this one.
    pub(super) fn add(&mut self, other: &FeatureTally) {
        for ((list, name), count) in &other.0 {
            self.count(*list, name, *count);
        }
    }

    fn count(&mut self, list: List, name: &'static str, more: u64) {
        *self.0.entry((list, name)).or_default() += more;
    }
}

fn stop(cause: StopCause) -> &'static str {
    match cause {
        StopCause::Preempted { .. } => "preempted",
        StopCause::Reclaimed => "reclaimed",
        StopCause::Moved => "moved",
        StopCause::Grows => "grows",
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
        for list in List::ALL {
            let counts = self.0.iter().filter(|((of, _), _)| *of == list);
            let title = format!("{list:?}").to_lowercase();
            wrapped(f, &title, counts.map(|((_, name), count)| format!("{name} {count}")))?;
        }
        wrapped(f, "not met", self.not_met(u64::MAX).into_iter().map(str::to_owned))
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

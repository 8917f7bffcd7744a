//! The scorecard of a run: the same keys as a simulation's, from the engine's ledger and rows, which survive any crash, and from the archive.
//!
//! Never: what only a simulation knows (true durations, a lower bound, time inside the engine): those are null.

use super::closing::Closing;
use crate::document::reason::reason_view;
use crate::journal::{ArchiveReader, JournalError};
use forebay_engine::engine::Engine;
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::decision::Outcome;
use forebay_kernel::job::JobSpec;
use forebay_kernel::state::State;
use forebay_kernel::state::jobs::{Job, Phase};
use forebay_kernel::units::{Span, Timestamp};
use forebay_sim::score::figures::{Distribution, dollars, gpu_hours, hours, seconds, share_of};
use forebay_sim::score::{QueueScore, RejectedJobs, Scorecard, Wasted, kept_ready};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

/// What a run cannot know of itself.
const UNKNOWN: [&str; 12] = [
    "gpu_hours_requested",
    "gpu_hours_busy",
    "busy_over_allocated",
    "utilization",
    "gpu_memory_violations",
    "cost_lower_bound_usd",
    "reclaims_without_warning",
    "work_lost_to_reclaims_gpu_hours",
    "engine_s",
    // Records are counted by ticks, events and decisions together, and of these the decisions alone are counted by themselves.
    "events",
    "passes",
    "nodes_launched",
];

/// The scorecard of an engine whose journal lies in `folder`, for jobs that have left the state. `refused` events never reached it.
///
/// # Errors
/// Jobs have left the state, and the journal cannot be read.
pub fn of(engine: &Engine, refused: u64, folder: &Path) -> Result<Scorecard, JournalError> {
    let jobs = JobScores::of(engine, folder)?;
    Ok(of_jobs(engine, refused, jobs))
}

fn of_jobs(engine: &Engine, refused: u64, scores: JobScores) -> Scorecard {
    let state = engine.state();
    let counters = state.counters();
    let ledger = state.ledger_now();
    let all = ledger.total();
    let rows = state.jobs().filter(|(job, _)| job.service.is_none()).count() as u64 + counters.retired;
    let over: u64 = counters.outcomes.iter().sum();
    Scorecard {
        policy: state.policy().map(|p| p.name.clone()).unwrap_or_default(),
        jobs: rows + counters.refused + refused,
        completed: counters.outcomes[Outcome::Completed as usize],
        failed: counters.outcomes[Outcome::Failed as usize],
        rejected: counters.outcomes[Outcome::Rejected as usize] + counters.refused + refused,
        cancelled: counters.outcomes[Outcome::Cancelled as usize],
        lost: rows.abs_diff(over + state.open_jobs() as u64),
        preemptions: counters.preemptions,
        reclaims: counters.reclaims,
        spot_reclaimed_runs: counters.reclaimed_runs,
        work_lost_gpu_hours: gpu_hours(ledger.lost),
        gpu_hours_bought: gpu_hours(all.bought),
        gpu_hours_owned: gpu_hours(ledger.account(CapacityType::Owned).bought),
        gpu_hours_allocated: gpu_hours(all.allocated),
        gpu_hours_wasted: Wasted {
            boot: gpu_hours(all.boot),
            idle: gpu_hours(all.idle),
            lingering: gpu_hours(ledger.lingering),
            lost: gpu_hours(ledger.lost),
            fragmentation: gpu_hours(all.fragmentation),
            booked: gpu_hours(all.booked),
        },
        idle_node_hours: hours(all.idle_nodes),
        spot_ratio: share_of(ledger.by_capacity[1].bought.0, ledger.bought().bought.0),
        cost_usd: dollars(all.cost),
        cost_on_demand_only_usd: dollars(all.cost_on_demand),
        deadline_misses: counters.deadline_misses,
        rejected_by_code: scores.rejected_with(counters.refused + refused),
        times_at_zero: counters.times_at_zero,
        nodes_peak: counters.nodes_peak,
        nodes_at_end: state.bought_nodes().count() as u64,
        nodes_kept_ready: kept_ready(state),
        decisions: counters.decisions,
        ..scores.times()
    }
}

/// What became of jobs, one after the other.
#[derive(Default)]
struct JobScores {
    waits: Vec<Span>,
    ends: Vec<Span>,
    by_queue: BTreeMap<String, Vec<Span>>,
    queues: BTreeMap<String, QueueScore>,
    rejected: BTreeMap<String, RejectedJobs>,
    first: Option<Timestamp>,
    last: Timestamp,
}

impl JobScores {
    fn of(engine: &Engine, folder: &Path) -> Result<JobScores, JournalError> {
        let (mut scores, state) = (JobScores::default(), engine.state());
        let gone = state.counters().retired > 0;
        for (job, spec) in state.jobs().filter(|(job, _)| job.service.is_none() && !(gone && job.done())) {
            scores.add(state, job, spec);
        }
        if gone {
            ArchiveReader::open(folder)?.each_in_order(&mut |archived| {
                scores.add(state, &archived.finished.job, &archived.finished.spec);
                ControlFlow::Continue(())
            })?;
        }
        Ok(scores)
    }

    fn add(&mut self, state: &State, job: &Job, spec: &JobSpec) {
        self.first = Some(self.first.map_or(job.arrival, |first| first.min(job.arrival)));
        let score = self.queues.entry(spec.queue.clone()).or_default();
        score.jobs += 1;
        let done = (job.phase == Phase::Done { outcome: Outcome::Completed }).then_some(job.ended).flatten();
        score.completed += u64::from(done.is_some());
        score.deadline_misses += u64::from(spec.deadline.is_some_and(|by| done.is_none_or(|at| at > by)));
        if let Some(start) = job.first_start {
            self.waits.push(start.since(job.arrival));
            self.by_queue.entry(spec.queue.clone()).or_default().push(start.since(job.arrival));
        }
        if let Some(end) = done {
            self.ends.push(end.since(job.arrival));
            self.last = self.last.max(end);
        }
        if let (Phase::Done { outcome: Outcome::Rejected }, Some(reason)) = (job.phase, job.reason) {
            let first = || {
                let message = reason_view(reason, state, Some(job.id)).message;
                RejectedJobs { jobs: 0, first: spec.subject.clone(), message }
            };
            self.rejected.entry(reason.code().to_owned()).or_insert_with(first).jobs += 1;
        }
    }

    /// Jobs that were rejected, by the code of the reason, and `refused` events, which are in no state.
    fn rejected_with(&self, refused: u64) -> BTreeMap<String, RejectedJobs> {
        let mut by_code = self.rejected.clone();
        if refused > 0 {
            let message = "they became no jobs: `rejected` in the journal's folder has each with its reason".to_owned();
            by_code.insert("(events)".to_owned(), RejectedJobs { jobs: refused, first: String::new(), message });
        }
        by_code
    }

    fn times(self) -> Scorecard {
        let makespan = self.last.since(self.first.unwrap_or(Timestamp::NEVER));
        let by_queue = self.by_queue.into_iter().map(|(queue, waits)| (queue, Distribution::of(waits)));
        Scorecard {
            wait_s: Distribution::of(self.waits),
            jct_s: Distribution::of(self.ends),
            wait_s_by_queue: by_queue.collect(),
            makespan_s: seconds(makespan),
            jobs_by_queue: self.queues,
            ..Scorecard::default()
        }
    }
}

/// A run's scorecard as JSON: null for what it cannot know.
///
/// # Errors
/// It cannot be written as JSON: a fault of this program.
pub fn json(closing: &Closing<'_>, audit: &[String]) -> Result<Value, serde_json::Error> {
    let mut value = serde_json::to_value(closing.card)?;
    for key in UNKNOWN {
        value[key] = Value::Null;
    }
    value["open"] = json!(closing.open);
    value["audit"] = json!(audit);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_run_cannot_know_of_itself_is_null_and_the_rest_is_not() {
        let card = Scorecard { events: 391, nodes_at_end: 1, nodes_kept_ready: 1, ..Scorecard::default() };
        let value = json(&Closing { card: &card, open: 0, violations: 0 }, &[]).unwrap();
        assert!(UNKNOWN.iter().all(|key| value[*key].is_null()), "{value}");
        assert!(UNKNOWN.contains(&"events"), "ticks are counted with them");
        assert_eq!((&value["nodes_at_end"], &value["nodes_kept_ready"]), (&json!(1), &json!(1)));
    }
}

//! When observations become events of the engine.
//!
//! ```text
//! RunIdle         all workers of a run that are meant to be alive are idle, for as long as they have been so together:
//!                 when that reaches `lingerAfter`, and every minute
//! ServiceDemand   no replica of a service computes for `lingerAfter`, but demand is known for it:   demand 0
//!                 a replica computes, but no demand is known:   the least that keeps the replicas that compute
//! ```
//!
//! Demand that was taken from a computing GPU ends with it, after half a minute. Whoever reports demand next is believed again.
//! Never: an event for a run of which one worker is not observed.

use super::book::{Entries, FORGOTTEN};
use super::view::{ObservedRun, ObservedService, ReportView};
use forebay_kernel::event::Event;
use forebay_kernel::ids::{Attempt, JobId};
use forebay_kernel::units::Span;
use forebay_node_agent::WorkerName;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A run reports its idleness this often. Each report is a record in the journal.
const IDLE_BEAT: Span = Span::mins(1);
/// Measured demand ends when no replica has computed for so long: longer than the pause between two requests that are served.
const DEMAND_ENDS: Span = Span::secs(30);
/// The least time between two measured demands of one service.
const DEMAND_EVERY: Duration = Duration::from_secs(10);

/// What the engine was sent.
#[derive(Debug, Default)]
pub(super) struct SentEvents {
    idle: BTreeMap<JobId, (Attempt, Span, Duration)>,
    /// By tenant and subject.
    demand: BTreeMap<(String, String), (u32, Duration)>,
}

/// What the replicas of a service do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ServiceActivity {
    /// So many compute.
    Busy(u32),
    /// None has computed for so long.
    Idle(Span),
    Unknown,
}

impl SentEvents {
    pub fn record(&mut self, now: Duration, events: &[Event]) {
        for event in events {
            match event {
                Event::RunIdle { job, attempt, idle } => {
                    self.idle.insert(*job, (*attempt, *idle, now));
                }
                Event::ServiceDemand { tenant, subject, concurrency, .. } => {
                    self.demand.insert((tenant.clone(), subject.clone()), (*concurrency, now));
                }
                _ => {}
            }
        }
    }

    /// Forgets what was sent long ago. A run that is idle sends every minute. Demand is kept longer than any agent that may measure it.
    pub fn forget(&mut self, now: Duration) {
        self.idle.retain(|_, (_, _, at)| now.saturating_sub(*at) < FORGOTTEN);
        self.demand.retain(|_, (_, at)| now.saturating_sub(*at) < FORGOTTEN * 6);
    }

    /// The idleness that was sent last of this attempt.
    fn idle_of(&self, job: JobId, attempt: Attempt) -> Span {
        self.idle.get(&job).filter(|sent| sent.0 == attempt).map_or(Span::ZERO, |sent| sent.1)
    }
}

impl Entries {
    /// What follows from the newest reports.
    pub(super) fn follow(&self, now: Duration, view: &ReportView) -> Vec<Event> {
        let idle = view.runs.iter().filter_map(|run| self.run_idle(now, view.rules.linger_after, run));
        let demand = view.services.iter().filter_map(|service| self.demand(now, view.rules.linger_after, service));
        idle.chain(demand).collect()
    }

    fn run_idle(&self, now: Duration, linger_after: Span, run: &ObservedRun) -> Option<Event> {
        let idle = self.idle_together(now, run)?;
        let sent = self.sent.idle_of(run.job, run.attempt);
        // Less than before: it has computed since, and this is another pause.
        let sent = if idle < sent { Span::ZERO } else { sent };
        let crosses = idle >= linger_after && sent < linger_after;
        let due = crosses || idle >= sent + IDLE_BEAT;
        due.then_some(Event::RunIdle { job: run.job, attempt: run.attempt, idle })
    }

    /// For how long all workers of a run have been idle at once. `None`: one of them is not observed, or there is none.
    fn idle_together(&self, now: Duration, run: &ObservedRun) -> Option<Span> {
        // An idleness may be older than the book, so its two ends are counted back from now.
        let (mut begun, mut ended) = (Duration::MAX, Duration::ZERO);
        for (name, instance) in &run.workers {
            let (seen, worker) = self.worker(now, *name, instance)?;
            let age = now.saturating_sub(seen);
            begun = begun.min(age.saturating_add(Duration::from_millis(worker.idle_ms?)));
            ended = ended.max(age);
        }
        let together = (!run.workers.is_empty()).then(|| begun.saturating_sub(ended))?;
        Some(Span(u64::try_from(together.as_millis()).unwrap_or(u64::MAX)).min(run.runs_for))
    }

    fn demand(&self, now: Duration, linger_after: Span, service: &ObservedService) -> Option<Event> {
        let own = self.sent.demand.get(&(service.tenant.clone(), service.subject.clone()));
        if own.is_some_and(|(_, at)| now.saturating_sub(*at) < DEMAND_EVERY) {
            return None;
        }
        // What was measured is taken back sooner than what somebody reported.
        let measured = own.is_some_and(|(demand, _)| *demand == service.demand);
        let patience = if measured { DEMAND_ENDS.min(linger_after) } else { linger_after };
        let concurrency = match self.service_activity(now, service) {
            ServiceActivity::Busy(replicas) if service.demand == 0 => (replicas - 1).saturating_mul(service.target) + 1,
            ServiceActivity::Idle(idle) if service.demand > 0 && idle >= patience => 0,
            _ => return None,
        };
        let (tenant, subject) = (service.tenant.clone(), service.subject.clone());
        Some(Event::ServiceDemand { tenant, subject, by: None, concurrency })
    }

    fn service_activity(&self, now: Duration, service: &ObservedService) -> ServiceActivity {
        let computes = |run: &&ObservedRun| {
            let busy = |(name, at): &(WorkerName, Arc<str>)| {
                self.worker(now, *name, at).is_some_and(|(_, worker)| worker.computes == Some(true))
            };
            run.workers.iter().any(busy)
        };
        let busy = service.replicas.iter().filter(computes).count();
        if busy > 0 {
            return ServiceActivity::Busy(u32::try_from(busy).unwrap_or(u32::MAX));
        }
        let idle = service.replicas.iter().map(|run| self.idle_together(now, run));
        // As long as the one that has been idle for the shortest time. One that has just started has been so since then.
        idle.reduce(|one, other| Some(one?.min(other?)))
            .flatten()
            .map_or(ServiceActivity::Unknown, ServiceActivity::Idle)
    }
}

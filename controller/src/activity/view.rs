//! What the engine knows of the workers in a report: whether they are on that node in a current run, and who else must be idle for the run, or
//! its service, to be idle.
//!
//! Never: more than the report asks about. The workers of a run are listed only where the one that is reported is idle.

use super::book::WorkerStanding;
use crate::metrics::family::OTHER;
use forebay_kernel::ids::{Attempt, JobId};
use forebay_kernel::policy::Lifecycle;
use forebay_kernel::state::State;
use forebay_kernel::state::jobs::{Job, Phase};
use forebay_kernel::units::Span;
use forebay_node_agent::{ActivityReport, WorkerActivity, WorkerName};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a report is about, as the engine knows it.
#[derive(Clone, Debug)]
pub struct ReportView {
    /// Limits of the policy in force.
    pub rules: Lifecycle,
    /// Whether the node has GPUs that its agent should read.
    pub has_gpus: bool,
    /// Of each worker in the report, in its order.
    pub standings: Vec<WorkerStanding>,
    /// The label of the queue of each worker that is current.
    pub queues: BTreeMap<WorkerName, String>,
    /// Current runs that have an idle worker in the report.
    pub runs: Vec<ObservedRun>,
    /// Services that have a replica in the report.
    pub services: Vec<ObservedService>,
}

/// A current run and its workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedRun {
    /// The job.
    pub job: JobId,
    /// The attempt.
    pub attempt: Attempt,
    /// For how long it has run.
    pub runs_for: Span,
    /// The workers that are meant to be alive, and the instances of their nodes.
    pub workers: Vec<(WorkerName, Arc<str>)>,
}

/// A service and its replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedService {
    /// The service.
    pub service: JobId,
    /// Its tenant.
    pub tenant: String,
    /// Its subject.
    pub subject: String,
    /// Requests at once, as last reported.
    pub demand: u32,
    /// Requests at once that one replica is meant for.
    pub target: u32,
    /// Replicas that are loaded, each a run.
    pub replicas: Vec<ObservedRun>,
}

/// Looks up what a report is about. `None`: no node of this cluster is that instance.
#[must_use]
pub fn view(state: &State, report: &ActivityReport) -> Option<ReportView> {
    let node = state.node_of(&report.instance)?;
    let mut seen = ReportView {
        rules: state.lifecycle(),
        has_gpus: !node.slots.is_empty(),
        standings: Vec::with_capacity(report.workers.len()),
        queues: BTreeMap::new(),
        runs: Vec::new(),
        services: Vec::new(),
    };
    for worker in &report.workers {
        let standing = standing(state, &report.instance, worker.worker);
        seen.standings.push(standing);
        if standing == WorkerStanding::Current {
            seen.add(state, worker);
        }
    }
    Some(seen)
}

impl ReportView {
    fn add(&mut self, state: &State, worker: &WorkerActivity) {
        let Some((job, spec)) = state.job(JobId(worker.worker.job)) else { return };
        let declared = state.policy().is_some_and(|policy| policy.queues.contains_key(&spec.queue));
        self.queues.insert(worker.worker, if declared { spec.queue.clone() } else { OTHER.to_owned() });
        let known = |runs: &[ObservedRun]| runs.iter().any(|run| run.job == job.id);
        if worker.computes == Some(false) && !known(&self.runs) {
            self.runs.push(run(state, job));
        }
        if let Some(service) = job.service.filter(|id| self.services.iter().all(|known| known.service != *id)) {
            self.services.extend(service_view(state, service));
        }
    }
}

fn standing(state: &State, instance: &str, name: WorkerName) -> WorkerStanding {
    let Some((job, _)) = state.job(JobId(name.job)) else { return WorkerStanding::UnknownJob };
    if job.attempt != Attempt(name.attempt) || job.phase != Phase::Running {
        return WorkerStanding::NotCurrent;
    }
    let here = places(state, job).any(|(number, at)| number == name.worker && &*at == instance);
    if here { WorkerStanding::Current } else { WorkerStanding::Elsewhere }
}

fn places<'a>(state: &'a State, job: &'a Job) -> impl Iterator<Item = (u32, Arc<str>)> + 'a {
    let workers = job.places.iter().zip(&job.numbers);
    workers.filter_map(|(place, number)| Some((*number, Arc::from(state.node(place.node)?.instance.as_deref()?))))
}

/// Workers that have finished or were asked to leave need not be idle.
fn run(state: &State, job: &Job) -> ObservedRun {
    let alive = |number: &u32| !job.workers_done.contains(number) && !job.leaving().contains(number);
    let name = |worker: u32| WorkerName { job: job.id.0, attempt: job.attempt.0, worker };
    let workers = places(state, job).filter(|(number, _)| alive(number)).map(|(number, at)| (name(number), at));
    let runs_for = job.running_since.map_or(Span::ZERO, |since| state.now().since(since));
    // Without a GPU there is none that could be idle.
    let workers = if job.share.0 > 0 { workers.collect() } else { Vec::new() };
    ObservedRun { job: job.id, attempt: job.attempt, runs_for, workers }
}

fn service_view(state: &State, service: JobId) -> Option<ObservedService> {
    let (row, (_, spec)) = (state.service(service)?, state.job(service)?);
    let replicas = state.replicas(service).filter_map(|id| state.job(id)).map(|(job, _)| job);
    let loaded = replicas.filter(|job| job.phase == Phase::Running);
    Some(ObservedService {
        service,
        tenant: spec.tenant.clone(),
        subject: spec.subject.clone(),
        demand: row.demand,
        target: row.rule.target.max(1),
        replicas: loaded.map(|job| run(state, job)).collect(),
    })
}

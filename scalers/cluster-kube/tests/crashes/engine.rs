//! What the engine would know and ask for: jobs with attempts, claims with places. It is the journal: it survives every crash.

use forebay_cluster_kube::view::{ClaimPhase, ClaimView, RunStage, RunView, StoppedFrom};
use forebay_cluster_kube::{EngineView, GangStart, RunId};
use forebay_kernel::event::Event;
use forebay_kernel::ids::{Attempt, JobId, NodeId};
use std::collections::{BTreeMap, BTreeSet};

pub struct Job {
    pub namespace: String,
    pub workers: u32,
    pub attempt: u32,
    pub run: Option<Run>,
    pub completed: bool,
    pub cancelled: bool,
    pub failures: u32,
}

pub struct Run {
    pub start: GangStart,
    pub stage: RunStage,
    pub places: BTreeMap<u32, String>,
    pub done: BTreeSet<u32>,
    pub left: BTreeSet<u32>,
    pub confirmed_dead: BTreeSet<u32>,
    pub leaving: BTreeSet<u32>,
    pub deadline: u64,
}

pub struct Claim {
    pub node: NodeId,
    pub phase: ClaimPhase,
    pub gpus: u32,
}

#[derive(Default)]
pub struct Engine {
    pub jobs: BTreeMap<JobId, Job>,
    pub claims: BTreeMap<String, Claim>,
}

impl Engine {
    pub fn view(&self) -> EngineView {
        let runs = self.jobs.iter().filter_map(|(id, job)| {
            let run = job.run.as_ref()?;
            let view = RunView {
                tenant: "t".into(),
                subject: format!("{id}"),
                namespace: job.namespace.clone(),
                stage: run.stage,
                workers: run.places.iter().map(|(n, instance)| (*n, Some(instance.clone()))).collect(),
                done: run.done.clone(),
                left: run.left.clone(),
                confirmed_dead: run.confirmed_dead.clone(),
            };
            Some((RunId { job: *id, attempt: Attempt(job.attempt) }, view))
        });
        let claims = self.claims.iter().map(|(instance, claim)| {
            let offers = BTreeMap::from([("nvidia.com/gpu".to_owned(), u64::from(claim.gpus))]);
            (instance.clone(), ClaimView { node: claim.node, phase: claim.phase, offers, owned: None })
        });
        EngineView { runs: runs.collect(), claims: claims.collect(), ..EngineView::default() }
    }

    /// GPUs of a claim that no run holds.
    pub fn free(&self, instance: &str) -> u32 {
        let places = self.jobs.values().filter_map(|job| job.run.as_ref()).flat_map(|run| run.places.values());
        let held = places.filter(|place| *place == instance).count() as u32;
        self.claims.get(instance).map_or(0, |claim| claim.gpus.saturating_sub(held))
    }

    fn current(&mut self, job: JobId, attempt: Attempt) -> Option<&mut Job> {
        self.jobs.get_mut(&job).filter(|job| job.attempt == attempt.0 && job.run.is_some())
    }

    /// Journals an event, as `apply` does.
    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::NodeReady { instance } => {
                if let Some(claim) = self.claims.get_mut(instance).filter(|claim| claim.phase == ClaimPhase::Booting) {
                    claim.phase = ClaimPhase::Ready;
                }
            }
            Event::JobCancelled { subject, .. } => {
                if let Some((_, job)) = self.jobs.iter_mut().find(|(id, _)| id.to_string() == *subject) {
                    job.cancelled = true;
                }
            }
            Event::RunStarted { job, attempt } => {
                if let Some(run) = self.current(*job, *attempt).and_then(|job| job.run.as_mut())
                    && run.stage == RunStage::Starting
                {
                    run.stage = RunStage::Running;
                }
            }
            Event::RunCompleted { job, attempt, worker: Some(worker) } => {
                let Some(job) = self.current(*job, *attempt) else { return };
                let Some(run) = job.run.as_mut() else { return };
                assert_ne!(run.stage, RunStage::Starting, "completed before it was reported to have started");
                run.done.insert(*worker);
                end_if_all_done(job);
            }
            Event::RunShrunk { job, attempt, left, .. } => {
                let Some(job) = self.current(*job, *attempt) else { return };
                let Some(run) = job.run.as_mut().filter(|run| run.stage == RunStage::Running) else { return };
                for worker in left {
                    run.left.insert(*worker);
                    run.leaving.remove(worker);
                    run.places.remove(worker);
                    run.done.remove(worker);
                }
                end_if_all_done(job);
            }
            Event::RunFailed { job, attempt, node_fault, .. } => {
                if let Some(job) = self.current(*job, *attempt) {
                    job.failures += u32::from(node_fault.is_none());
                    job.run = None;
                }
            }
            Event::RunStopped { job, attempt, .. } | Event::RunDenied { job, attempt } => {
                if let Some(job) = self.current(*job, *attempt) {
                    job.run = None;
                }
            }
            _ => panic!("unexpected: {event:?}"),
        }
    }

    /// The cloud's word that an instance is gone: its workers are dead, and the rest of their runs is stopped.
    pub fn instance_gone(&mut self, instance: &str, now: u64) {
        self.claims.remove(instance);
        for job in self.jobs.values_mut() {
            let Some(run) = job.run.as_mut() else { continue };
            let before = run.places.len();
            run.places.retain(|_, place| place != instance);
            if run.places.is_empty() {
                job.run = None;
            } else if run.places.len() < before {
                stop(run, now + 20_000);
            }
        }
    }
}

/// Decides to stop a run.
pub fn stop(run: &mut Run, deadline: u64) {
    let from = if run.stage.has_started() { StoppedFrom::Running } else { StoppedFrom::Starting };
    run.stage = RunStage::Stopping { from };
    run.deadline = deadline;
    run.leaving.clear();
}

fn end_if_all_done(job: &mut Job) {
    let all = job.run.as_ref().is_some_and(|run| run.done.len() + run.left.len() >= job.workers as usize);
    if all {
        job.run = None;
        job.completed = true;
    }
}

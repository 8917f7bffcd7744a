//! Adopted objects: unsuspended where the engine starts them, suspended where it stops them, and watched in between.
//!
//! ```text
//! suspended object -> Submit -> engine -> Start -> nodes labelled -> unsuspended -> kube-scheduler binds -> RunStarted
//!                                         Stop  -> labels removed -> suspended   -> its controller says so, and no container runs -> RunStopped
//! ```
//!
//! What there is to do is decided anew from the object, its pods and the engine's view whenever one of them changes, so a crash between any two
//! calls loses nothing.
//! Never: an object unsuspended without an open start of it; a pod of theirs created, bound or deleted.

mod calls;
mod lost;
mod news;
mod pods;
mod step;

use super::agenda::{PodKey, Task};
use super::listing::ADOPTED;
use super::{KubeMachine, KubeReport};
use crate::adoption::{Workload, WorkloadId};
use crate::api_call::{KubeObject, Resource};
use crate::names::RunId;
use crate::request::AdoptedStart;
use crate::view::{AdoptedRunView, AdoptedView, RunStage};
use forebay_kernel::event::Event;
use forebay_kernel::ids::{Attempt, JobId};
use forebay_kernel::units::Timestamp;
use news::{News, NewsBook};
use pods::{AdoptedPod, Ghost};
use std::collections::{BTreeMap, BTreeSet};

/// What is known of adopted objects. Bounded by the objects with our label and the pods of those that were admitted.
#[derive(Debug, Default)]
pub(super) struct Adoptions {
    /// By uid.
    workloads: BTreeMap<String, Workload>,
    pods: BTreeMap<JobId, BTreeMap<PodKey, AdoptedPod>>,
    /// Pods that are gone and that nothing proves to have ended.
    ghosts: BTreeMap<JobId, Vec<Ghost>>,
    runs: BTreeMap<RunId, AdoptedRun>,
    /// Objects whose submission, or what is in its way, was reported, with what was said.
    told: BTreeMap<String, String>,
    /// Objects that are gone, whose jobs were cancelled for that and are open in the engine's view.
    cancelled: BTreeSet<String>,
    /// Attempts whose object is proven not to be there, or to be suspended without our label.
    missing: BTreeSet<RunId>,
    listed: BTreeSet<Resource>,
    news: NewsBook,
    /// Objects whose submission the intake or the engine has refused, with its words, to be told.
    refused: BTreeMap<String, (WorkloadId, String)>,
    /// When these are submitted again: the policy may list them then.
    again: BTreeMap<String, Timestamp>,
    /// Something has changed since all was looked at.
    pub changed: bool,
    wake: Option<Timestamp>,
}

/// An attempt that is alive.
#[derive(Debug)]
struct AdoptedRun {
    object: WorkloadId,
    /// `None`: it was started by an earlier process, and runs.
    request: Option<AdoptedStart>,
    /// It is to end. `None`: it is not.
    verdict: Option<Verdict>,
    reported_started: bool,
    /// It was said that it waits for an object of its job whose start is lost.
    waits_for_lost: bool,
    /// Its controller was seen to act on the start: what it says of a suspension since then is about this one.
    resumed: bool,
    /// Since when it is unsuspended, pulls no images, and has not started.
    waits_since: Option<Timestamp>,
    /// Since when it is suspended for its end.
    stopped_since: Option<Timestamp>,
    /// Its pods were listed after nothing could bind one any more.
    pods_listed: bool,
    /// The token of the page of that list.
    continue_token: Option<String>,
    outcome: Option<Vec<Event>>,
}

/// Why an attempt ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// The engine asked for it.
    Asked,
    /// The cluster would not start or keep it. No attempt is used.
    Refused,
    /// The object is gone, or goes.
    Gone,
}

impl AdoptedRun {
    fn new(object: WorkloadId) -> AdoptedRun {
        AdoptedRun {
            object,
            request: None,
            verdict: None,
            reported_started: false,
            waits_for_lost: false,
            resumed: false,
            waits_since: None,
            stopped_since: None,
            pods_listed: false,
            continue_token: None,
            outcome: None,
        }
    }
}

impl Adoptions {
    pub(super) fn wake_at(&self) -> Timestamp {
        self.wake.unwrap_or(Timestamp::NEVER)
    }
}

impl KubeMachine {
    /// Whether everything that is adopted was listed. Nothing of it is decided before.
    pub(super) fn adoptions_are_listed(&self) -> bool {
        let all = ADOPTED.iter().all(|resource| self.adoptions.listed.contains(resource));
        !self.settings.adopt.is_empty() && all && self.listings.complete()
    }

    /// Starts an attempt of an adopted object.
    pub(super) fn start_adopted(&mut self, request: AdoptedStart) {
        let run = RunId { job: JobId(request.job), attempt: Attempt(request.attempt) };
        let namespace = request.object.split('/').next().unwrap_or_default();
        let principal = format!("{}{namespace}", crate::adoption::PRINCIPAL_PREFIX);
        let Some(object) = WorkloadId::of_job(&principal, &request.object) else { return };
        // A view that is as old as the start does not know the attempt yet.
        if let Some(view) = &mut self.view {
            let known = view.adopted.entry(object.uid.clone()).or_insert_with(|| AdoptedView {
                object: object.clone(),
                job: run.job,
                tenant: request.tenant.clone(),
                open: true,
                attempt: run.attempt,
                waits: None,
                run: None,
            });
            if known.run.as_ref().is_none_or(|known| known.attempt < run.attempt) {
                let workers = (0..).zip(&request.instances).filter_map(|(number, on)| Some((number, on.clone()?)));
                known.run = Some(AdoptedRunView {
                    attempt: run.attempt,
                    stage: RunStage::Starting,
                    workers: workers.collect(),
                    confirmed_dead: BTreeSet::new(),
                });
            }
        }
        let kept = self.adoptions.runs.entry(run).or_insert_with(|| AdoptedRun::new(object));
        kept.request = Some(request);
        self.adoptions.changed = true;
    }

    /// The submission of an object was refused, in these words.
    pub fn refuse_adoption(&mut self, object: WorkloadId, words: String) {
        self.adoptions.refused.insert(object.uid.clone(), (object, words));
        self.adoptions.changed = true;
    }

    /// Stops an attempt of an adopted object. Returns whether it is one.
    pub(super) fn stop_adopted(&mut self, run: RunId) -> bool {
        self.know_adopted();
        if self.report_adopted_again(run) {
            return true;
        }
        let Some(known) = self.adoptions.runs.get_mut(&run) else { return false };
        known.verdict.get_or_insert(Verdict::Asked);
        self.adoptions.changed = true;
        true
    }

    /// Reports the outcome of an attempt of an adopted object again. Returns whether there was one.
    pub(super) fn report_adopted_again(&mut self, run: RunId) -> bool {
        let Some(known) = self.adoptions.runs.get_mut(&run) else { return false };
        self.adoptions.changed = true;
        if let Some(events) = &known.outcome {
            self.reports.extend(events.iter().cloned().map(KubeReport::Event));
            return true;
        }
        // Looked at again, what has started is reported again.
        known.reported_started = false;
        false
    }

    /// The attempts that the view knows, and no others.
    pub(super) fn know_adopted(&mut self) {
        let Some(view) = &self.view else { return };
        self.adoptions.changed = true;
        let mut alive = BTreeSet::new();
        for known in view.adopted.values() {
            let Some(run) = &known.run else { continue };
            let id = RunId { job: known.job, attempt: run.attempt };
            alive.insert(id);
            let entry = self.adoptions.runs.entry(id);
            let kept = entry.or_insert_with(|| AdoptedRun::new(known.object.clone()));
            if let RunStage::Stopping { .. } = run.stage {
                kept.verdict.get_or_insert(Verdict::Asked);
            }
        }
        self.adoptions.runs.retain(|run, _| alive.contains(run));
        self.adoptions.missing.retain(|run| alive.contains(run));
        let is_open = |uid: &String| view.adopted.get(uid).is_some_and(|known| known.open);
        self.adoptions.cancelled.retain(is_open);
        let over = |job: &JobId| !view.adopted.values().any(|known| known.job == *job && known.open);
        self.adoptions.ghosts.retain(|job, _| !over(job));
        let confirmed = view.adopted.values().filter_map(|known| Some((known.job, known.run.as_ref()?)));
        for (job, run) in confirmed.filter(|(_, run)| !run.confirmed_dead.is_empty()) {
            for pod in self.adoptions.pods.get_mut(&job).into_iter().flat_map(BTreeMap::values_mut) {
                pod.confirmed_dead |= pod.at.as_ref().is_some_and(|at| run.is_confirmed_dead_on(&at.instance));
            }
            if let Some(ghosts) = self.adoptions.ghosts.get_mut(&job) {
                ghosts.retain(|ghost| !run.is_confirmed_dead_on(&ghost.instance));
            }
        }
    }

    /// Takes an object as it is now. An older state than the known one changes nothing.
    pub(super) fn see_workload(&mut self, workload: Workload) {
        let uid = workload.metadata.uid.clone();
        if let Some(known) = self.adoptions.workloads.get(&uid)
            && known.metadata.version() >= workload.metadata.version()
        {
            return;
        }
        let lost = self.start_is_lost(&workload);
        for (run, known) in &mut self.adoptions.runs {
            let resumed = !workload.is_suspended() && workload.condition("Suspended") == Some(false);
            known.resumed |= known.object.uid == uid && resumed && workload.was_admitted(*run) && !lost;
        }
        self.adoptions.workloads.insert(uid, workload);
        self.adoptions.changed = true;
    }

    /// An object does not exist any more, or has lost its label.
    pub(super) fn forget_workload(&mut self, workload: &Workload) {
        self.adoptions.told.remove(&workload.metadata.uid);
        self.adoptions.news.forget(&workload.metadata.uid);
        self.adoptions.again.remove(&workload.metadata.uid);
        self.adoptions.changed |= self.adoptions.workloads.remove(&workload.metadata.uid).is_some();
    }

    /// All objects of a kind, as of a version.
    pub(super) fn listed_workloads(&mut self, resource: Resource, objects: Vec<KubeObject>, version: u64) {
        let listed: BTreeSet<&str> = objects.iter().map(|object| object.metadata().uid.as_str()).collect();
        let gone = |uid: &str, known: &Workload| {
            let of_kind = known.kind.resource() == resource;
            of_kind && !listed.contains(uid) && known.metadata.version() <= version
        };
        let gone = self.adoptions.workloads.iter().filter(|(uid, known)| gone(uid, known));
        let gone: Vec<Workload> = gone.map(|(_, known)| known.clone()).collect();
        gone.iter().for_each(|workload| self.forget_workload(workload));
        for object in objects {
            if let KubeObject::Workload(workload) = object {
                self.see_workload(*workload);
            }
        }
        self.adoptions.listed.insert(resource);
        self.adoptions.changed = true;
    }

    /// Looks at everything that is adopted, if something has changed.
    pub(super) fn advance_adoptions(&mut self, now: Timestamp) {
        let due = self.adoptions.wake.is_some_and(|at| at <= now);
        if !(self.adoptions.changed || due) || !self.adoptions_are_listed() {
            return;
        }
        self.adoptions.changed = false;
        self.adoptions.wake = None;
        for (uid, (object, words)) in std::mem::take(&mut self.adoptions.refused) {
            if self.adoptions.workloads.contains_key(&uid) {
                self.tell(&object, News::NotAdopted, &words, &words, now);
                self.adoptions.again.insert(uid, now + self.settings.list_every);
            }
        }
        let due: Vec<String> =
            self.adoptions.again.iter().filter(|(_, at)| **at <= now).map(|(uid, _)| uid.clone()).collect();
        for uid in due {
            self.adoptions.again.remove(&uid);
            self.adoptions.told.remove(&uid);
        }
        if let Some(next) = self.adoptions.again.values().min().copied() {
            self.wake_adoptions(next);
        }
        for name in self.nodes_to_label() {
            self.agenda.plan(Task::LabelNode(name), now);
        }
        let known = self.view.iter().flat_map(|view| view.adopted.keys());
        let uids: BTreeSet<String> = known.chain(self.adoptions.workloads.keys()).cloned().collect();
        for uid in uids {
            self.advance_workload(&uid, now);
        }
        self.forget_said();
    }

    /// What was said of an object that is gone is kept while its job is open: an answer to a call that was made before may come yet.
    fn forget_said(&mut self) {
        let (workloads, view) = (&self.adoptions.workloads, self.view.as_ref());
        let is_open = |uid: &str| view.and_then(|view| view.adopted.get(uid)).is_some_and(|known| known.open);
        self.adoptions.news.retain(|uid| workloads.contains_key(uid) || is_open(uid));
    }

    fn wake_adoptions(&mut self, at: Timestamp) {
        self.adoptions.wake = Some(self.adoptions.wake.map_or(at, |known| known.min(at)));
    }
}

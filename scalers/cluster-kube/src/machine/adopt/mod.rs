//! Adopted objects: unsuspended where the engine starts them, suspended where it stops them, and watched in between.
//!
//! ```text
//! suspended object -> Submit -> engine -> Start -> nodes labelled -> unsuspended -> kube-scheduler binds -> RunStarted
//!                                         Stop  -> labels removed -> suspended   -> its controller says so, and no container runs -> RunStopped
//! ```
//!
//! What there is to do is decided anew from the object, its pods and the engine's view whenever one of them changes, so a crash between any two
//! calls loses nothing. A change is looked at where it may concern an object, and nowhere else.
//! Never: an object unsuspended without an open start of it; a pod of theirs created, bound or deleted.

mod calls;
mod index;
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
use index::{AdoptedChanges, AdoptedIndex, attempts_of, label_of_job};
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
    /// What has changed since it was looked at.
    changes: AdoptedChanges,
    /// When objects are looked at though nothing has changed.
    wakes: BTreeSet<(Timestamp, String)>,
    index: AdoptedIndex,
    /// How often an object was looked at, and how often the labels of a node.
    #[cfg(test)]
    examined: (u64, u64),
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
        self.wakes.first().map_or(Timestamp::NEVER, |(at, _)| *at)
    }

    pub(super) fn is_changed(&self) -> bool {
        !self.changes.is_empty()
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
        self.adoptions.index.know_job(run.job, &object.uid);
        self.object_changed(&object.uid);
        let kept = self.adoptions.runs.entry(run).or_insert_with(|| AdoptedRun::new(object));
        kept.request = Some(request);
    }

    /// The submission of an object was refused, in these words.
    pub fn refuse_adoption(&mut self, object: WorkloadId, words: String) {
        self.object_changed(&object.uid);
        self.adoptions.refused.insert(object.uid.clone(), (object, words));
    }

    /// Stops an attempt of an adopted object. Returns whether it is one.
    pub(super) fn stop_adopted(&mut self, run: RunId) -> bool {
        if self.report_adopted_again(run) {
            return true;
        }
        let Some(known) = self.adoptions.runs.get_mut(&run) else { return false };
        known.verdict.get_or_insert(Verdict::Asked);
        self.job_changed(run.job);
        true
    }

    /// Reports the outcome of an attempt of an adopted object again. Returns whether there was one.
    pub(super) fn report_adopted_again(&mut self, run: RunId) -> bool {
        let Some(known) = self.adoptions.runs.get_mut(&run) else { return false };
        if let Some(events) = &known.outcome {
            self.reports.extend(events.iter().cloned().map(KubeReport::Event));
            return true;
        }
        // Looked at again, what has started is reported again.
        known.reported_started = false;
        self.job_changed(run.job);
        false
    }

    /// The engine knows something else of adopted objects than before.
    pub(super) fn know_adopted(&mut self, before: &BTreeMap<String, AdoptedView>) {
        let Some(view) = &self.view else { return };
        let differs = |uid: &&String| before.get(*uid) != view.adopted.get(*uid);
        let uids: BTreeSet<String> = before.keys().chain(view.adopted.keys()).filter(differs).cloned().collect();
        for uid in uids {
            self.know_object(&uid, before.get(&uid).map(|known| known.job));
        }
    }

    /// The attempt of an object that the view knows, and no other. `before`: the job that it had.
    fn know_object(&mut self, uid: &str, before: Option<JobId>) {
        self.object_changed(uid);
        let known = self.view.as_ref().and_then(|view| view.adopted.get(uid)).cloned();
        if let Some(job) = before.filter(|job| known.as_ref().is_none_or(|known| known.job != *job)) {
            self.forget_job(job);
        }
        if known.as_ref().is_none_or(|known| !known.open) {
            self.adoptions.cancelled.remove(uid);
        }
        let Some(known) = known else { return };
        self.adoptions.index.know_job(known.job, uid);
        if !known.open {
            self.adoptions.ghosts.remove(&known.job);
        }
        let alive = known.run.as_ref().map(|run| RunId { job: known.job, attempt: run.attempt });
        self.retain_attempt(known.job, alive);
        let (Some(id), Some(run)) = (alive, &known.run) else { return };
        let kept = self.adoptions.runs.entry(id).or_insert_with(|| AdoptedRun::new(known.object.clone()));
        if let RunStage::Stopping { .. } = run.stage {
            kept.verdict.get_or_insert(Verdict::Asked);
        }
        if run.confirmed_dead.is_empty() {
            return;
        }
        for pod in self.adoptions.pods.get_mut(&known.job).into_iter().flat_map(BTreeMap::values_mut) {
            pod.confirmed_dead |= pod.at.as_ref().is_some_and(|at| run.is_confirmed_dead_on(&at.instance));
        }
        if let Some(ghosts) = self.adoptions.ghosts.get_mut(&known.job) {
            ghosts.retain(|ghost| !run.is_confirmed_dead_on(&ghost.instance));
        }
    }

    /// The engine does not know a job any more.
    fn forget_job(&mut self, job: JobId) {
        self.retain_attempt(job, None);
        self.adoptions.ghosts.remove(&job);
        self.adoptions.index.forget_job(job);
        let labelled: Vec<String> = self.adoptions.index.nodes_with(&label_of_job(job)).cloned().collect();
        self.adoptions.changes.nodes.extend(labelled);
    }

    /// Of a job's attempts only this one is alive.
    fn retain_attempt(&mut self, job: JobId, alive: Option<RunId>) {
        let all = || attempts_of(job);
        let (runs, missing) = (&self.adoptions.runs, &self.adoptions.missing);
        let known = runs.range(all()).map(|(run, _)| *run).chain(missing.range(all()).copied());
        let over: Vec<RunId> = known.filter(|run| Some(*run) != alive).collect();
        for run in over {
            self.adoptions.runs.remove(&run);
            self.adoptions.missing.remove(&run);
        }
    }

    /// The attempts of an object that are known.
    fn attempts_of_object(&self, uid: &str) -> Vec<RunId> {
        let Some(known) = self.view.as_ref().and_then(|view| view.adopted.get(uid)) else { return Vec::new() };
        let runs = self.adoptions.runs.range(attempts_of(known.job));
        runs.filter(|(_, run)| run.object.uid == uid).map(|(run, _)| *run).collect()
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
        let resumed = !lost && !workload.is_suspended() && workload.condition("Suspended") == Some(false);
        for run in self.attempts_of_object(&uid) {
            if let Some(known) = self.adoptions.runs.get_mut(&run) {
                known.resumed |= resumed && workload.was_admitted(run);
            }
        }
        self.object_changed(&uid);
        self.adoptions.workloads.insert(uid, workload);
    }

    /// An object does not exist any more, or has lost its label.
    pub(super) fn forget_workload(&mut self, workload: &Workload) {
        self.adoptions.told.remove(&workload.metadata.uid);
        self.adoptions.news.forget(&workload.metadata.uid);
        self.adoptions.again.remove(&workload.metadata.uid);
        if self.adoptions.workloads.remove(&workload.metadata.uid).is_some() {
            self.object_changed(&workload.metadata.uid);
        }
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
    }

    /// Looks at what is adopted, where something has changed or it is time.
    pub(super) fn advance_adoptions(&mut self, now: Timestamp) {
        if !self.adoptions_are_listed() {
            return;
        }
        while let Some((at, uid)) = self.adoptions.wakes.first().cloned().filter(|(at, _)| *at <= now) {
            self.adoptions.wakes.remove(&(at, uid.clone()));
            if self.adoptions.again.get(&uid).is_some_and(|at| *at <= now) {
                self.adoptions.again.remove(&uid);
                self.adoptions.told.remove(&uid);
            }
            self.adoptions.changes.objects.insert(uid);
        }
        for (uid, (object, words)) in std::mem::take(&mut self.adoptions.refused) {
            if self.adoptions.workloads.contains_key(&uid) {
                self.tell(&object, News::NotAdopted, &words, &words, now);
                let again = now + self.settings.list_every;
                self.wake_object(&uid, again);
                self.adoptions.again.insert(uid, again);
            }
        }
        for uid in std::mem::take(&mut self.adoptions.changes.objects) {
            #[cfg(test)]
            {
                self.adoptions.examined.0 += 1;
            }
            self.index_object(&uid);
            self.advance_workload(&uid, now);
            self.forget_said(&uid);
        }
        for name in std::mem::take(&mut self.adoptions.changes.nodes) {
            #[cfg(test)]
            {
                self.adoptions.examined.1 += 1;
            }
            if self.labels_differ(&name) {
                self.agenda.plan(Task::LabelNode(name), now);
            }
        }
    }

    /// What was said of an object that is gone is kept while its job is open: an answer to a call that was made before may come yet.
    fn forget_said(&mut self, uid: &str) {
        let known = self.view.as_ref().and_then(|view| view.adopted.get(uid));
        if !self.adoptions.workloads.contains_key(uid) && !known.is_some_and(|known| known.open) {
            self.adoptions.news.forget(uid);
        }
    }
}

//! The state machine between the engine and the API server: which calls are made, when, and what their responses and the events of watches
//! mean. It makes no calls and reads no clock; its driver does both.
//!
//! ```text
//! GangStart --start-->            +-------------+ --poll-------------> calls to make now --> API server
//! stop, shrink, drain ----------> | KubeMachine | <--handle_response-- their responses
//! EngineView --handle_state-->    +-------------+ <--handle_watch----- events of watches
//!                                        '--------take_reports-------> outcomes, nodes, what an operator should know
//! ```
//!
//! The order of calls: [`KubeMachine::begin`] once, then anything. [`KubeMachine::handle_state`] takes a view at least as new as every
//! effect that was given before it. After each, [`KubeMachine::poll`] and [`KubeMachine::take_reports`].
//!
//! 1. Nothing is decided before all our pods, nodes and Services were listed. A list that fails is unknown, never empty.
//! 2. A gang's pods are created, then bound all or none, then told to go. One that cannot be is rolled back whole.
//! 3. The outcome of an attempt is reported when nothing of it runs any more, and a pod goes only when the outcome is journaled.
//! 4. Pods, nodes and Services without our label and our journal's id are never changed, but for a node's cordon and taints, and for a pod that our own
//!    creation has returned without them, which is deleted. A copy that somebody has made of one of our pods is no pod of ours.
//!
//! Memory is bounded by the gangs, the nodes, and our pods in the cluster; where nodes are owned, by the bound pods of others too.

mod adopt;
mod advance;
mod agenda;
mod calls;
mod census;
mod cleanup;
mod copies;
mod discard;
mod drains;
mod ending;
mod eviction;
mod gang;
mod life;
mod listing;
mod lost;
mod nodes;
mod owned;
mod partition;
mod pods;
mod reserves;
mod responses;
mod warnings;

use crate::adoption::WorkloadId;
use crate::api_call::{KubeCall, KubeCallId, KubeRateClass, Resource, WatchEvent};
use crate::kube_error::KubeError;
use crate::names::{RunId, WorkerId, journal_label};
use crate::objects::{KubeNode, KubePod, ObjectMeta};
use crate::rates::KubeRates;
use crate::request::{GangStart, RunToken};
use crate::settings::KubeSettings;
use crate::view::{EngineView, RunStage, RunView};
use adopt::Adoptions;
use agenda::{Agenda, PodKey, Task};
use census::GangChanges;
use copies::CopiedPods;
use drains::NodeDrain;
use forebay_kernel::event::Event;
use forebay_kernel::ids::Seq;
use forebay_kernel::storage::JournalIdentity;
use forebay_kernel::units::{Span, Timestamp};
use gang::{Gang, Verdict, Worker};
use listing::Listings;
use lost::LostPods;
use owned::{ForeignPods, OwnedNodes};
use reserves::Reserves;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What the machine reports to its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KubeReport {
    /// All that is ours, and every node, is listed: the cluster answers. Once, after the start.
    Listed,
    /// For the engine. Repeated until a view shows that it is journaled, if its effect is.
    Event(Event),
    /// Why a gang did not start or had to end, in Kubernetes' own words.
    Refused {
        /// Which attempt.
        run: RunId,
        /// The words.
        words: String,
    },
    /// What a pod waits for, in Kubernetes' words: `ImagePullBackOff`, with its message. `None`: it waits no longer.
    Waiting {
        /// Which worker.
        worker: WorkerId,
        /// The words.
        words: Option<String>,
    },
    /// The pods of a gang request something else than was asked for, in these words.
    ChangedRequests {
        /// Which attempt.
        run: RunId,
        /// The words.
        words: String,
    },
    /// A worker may be alive or not: its pod is gone or called over, and nothing proves that its containers ended. Its attempt is held until its
    /// node proves it, or an operator confirms it.
    Unproven {
        /// Which worker.
        worker: WorkerId,
        /// Its instance, if it is known.
        instance: Option<String>,
    },
    /// A pod was started after the backup, or the older copy, that the journal goes on from, and may run: its node is kept, and its job does not start, until it has
    /// ended. Once a pod.
    Lost {
        /// The worker that it was.
        worker: WorkerId,
        /// The pod, as `NAMESPACE/NAME`.
        pod: String,
    },
    /// An adopted object was unsuspended after the backup that the journal goes on from, and runs: it is not suspended, its nodes are kept, and its job
    /// does not start, until it has ended. Once an object and start.
    LostObject {
        /// Which object.
        object: WorkloadId,
        /// What it was unsuspended for, and what an operator may do.
        words: String,
    },
    /// A suspended object that asks to be adopted: this event is its submission, in the name of its namespace. Once a process; who submits it again
    /// has no second job of it.
    Submit {
        /// Which object.
        object: WorkloadId,
        /// The event.
        event: Box<Value>,
    },
    /// An object that asks to be adopted and cannot be, or not as it is: what, where, and how to mend it. Nothing is done to it.
    NotAdopted {
        /// Which object.
        object: WorkloadId,
        /// The words.
        words: String,
    },
    /// A node is cordoned and empty: its instance may be terminated.
    Drained {
        /// The cloud's id.
        instance: String,
    },
    /// What is still bound to a node that is drained, as `NAMESPACE/NAME`, at most 10, and why it may not be evicted.
    DrainBlocked {
        /// The cloud's id.
        instance: String,
        /// The pods.
        pods: Vec<String>,
    },
    /// Something fails that an operator may have to fix. Reported once for each reason, until it works again.
    Failing {
        /// What fails, such as `bind pods`.
        operation: &'static str,
        /// Kubernetes' error.
        error: KubeError,
    },
    /// Something that failed works again.
    Recovered {
        /// What failed.
        operation: &'static str,
    },
}

/// The state machine of one cluster.
#[derive(Debug)]
pub struct KubeMachine {
    settings: KubeSettings,
    /// Whatever its incarnation.
    journal: String,
    lineage: Option<JournalIdentity>,
    rates: KubeRates,
    calls: u64,
    running: BTreeMap<KubeCallId, Task>,
    agenda: Agenda,
    /// `None`: it has not begun.
    view: Option<EngineView>,
    listings: Listings,
    pods: BTreeMap<PodKey, KubePod>,
    /// Pods that were created and do not say that they are ours, to be deleted.
    discards: BTreeMap<PodKey, ObjectMeta>,
    nodes: BTreeMap<String, KubeNode>,
    /// Nodes by the cloud's id of their instance.
    node_of: BTreeMap<String, String>,
    gangs: BTreeMap<RunId, Gang>,
    /// The workers of gangs on an instance.
    workers_on: BTreeMap<String, BTreeSet<WorkerId>>,
    /// What has changed of gangs, and those that are due: looked at again with the next poll.
    changed: GangChanges,
    /// How often a worker was looked at.
    #[cfg(test)]
    examined: u64,
    wakes: BTreeSet<(Timestamp, RunId)>,
    drains: BTreeMap<String, NodeDrain>,
    ready_reported: BTreeSet<String>,
    /// Pods of others that are bound and not over, where any node is owned.
    foreign: ForeignPods,
    owned: OwnedNodes,
    lost: LostPods,
    copies: CopiedPods,
    reserves: Reserves,
    failures: BTreeMap<&'static str, String>,
    /// Since when no role allows an operation.
    no_role_since: BTreeMap<&'static str, Timestamp>,
    reports: Vec<KubeReport>,
    adoptions: Adoptions,
}

impl KubeMachine {
    /// A machine for a process that has just started. `journal` is the id of the journal whose engine decides.
    #[must_use]
    pub fn new(settings: KubeSettings, journal: &str) -> KubeMachine {
        let hash = blake3::hash(journal.as_bytes());
        let seed = u64::from_le_bytes(hash.as_bytes().first_chunk().copied().unwrap_or_default());
        KubeMachine {
            rates: KubeRates::new(&settings.rates, seed),
            listings: Listings::new(&settings),
            settings,
            journal: journal_label(journal),
            lineage: None,
            calls: 0,
            running: BTreeMap::new(),
            agenda: Agenda::default(),
            view: None,
            pods: BTreeMap::new(),
            discards: BTreeMap::new(),
            nodes: BTreeMap::new(),
            node_of: BTreeMap::new(),
            gangs: BTreeMap::new(),
            workers_on: BTreeMap::new(),
            changed: GangChanges::default(),
            #[cfg(test)]
            examined: 0,
            wakes: BTreeSet::new(),
            drains: BTreeMap::new(),
            ready_reported: BTreeSet::new(),
            foreign: ForeignPods::default(),
            owned: OwnedNodes::default(),
            lost: LostPods::default(),
            copies: CopiedPods::default(),
            reserves: Reserves::default(),
            failures: BTreeMap::new(),
            no_role_since: BTreeMap::new(),
            reports: Vec::new(),
            adoptions: Adoptions::default(),
        }
    }

    /// Knows the incarnations of the journal: pods of an effect that it does not know any more are lost, and are left alone.
    #[must_use]
    pub fn with_lineage(self, lineage: JournalIdentity) -> KubeMachine {
        KubeMachine { lineage: Some(lineage), ..self }
    }

    /// Knows the first effect that the journal had not decided when the process started: pods of later ones that are there already are lost as well.
    #[must_use]
    pub fn before_effect(mut self, first: Seq) -> KubeMachine {
        self.lost.first_effect = Some(first);
        self
    }

    /// The settings that it was created with.
    #[must_use]
    pub fn settings(&self) -> &KubeSettings {
        &self.settings
    }

    /// The engine begins with this: everything in the cluster is listed. Effects without an outcome follow.
    pub fn begin(&mut self, view: EngineView) {
        for resource in listing::LISTED.into_iter().chain([Resource::DaemonSets]) {
            self.agenda.plan(Task::List(resource), Timestamp(0));
        }
        if !self.settings.adopt.is_empty() {
            for resource in listing::ADOPTED {
                self.agenda.plan(Task::List(resource), Timestamp(0));
            }
        }
        self.view = Some(EngineView::default());
        self.handle_state(view);
    }

    /// Starts a gang. The same request again has no second effect: what is known of it is reported again.
    pub fn start(&mut self, start: GangStart, token: RunToken) {
        let run = start.run();
        if self.report_adopted_again(run) || self.report_again(run) {
            return;
        }
        let request = match start {
            GangStart::Run(request) => request,
            GangStart::Adopted(request) => return self.start_adopted(*request),
            GangStart::Refused { why, .. } => {
                self.reports.push(KubeReport::Refused { run, words: why });
                let event = Event::RunStopped { job: run.job, attempt: run.attempt, progress: None };
                self.reports.push(KubeReport::Event(event));
                return;
            }
        };
        // A view that is as old as the start does not know the attempt yet.
        if let Some(view) = &mut self.view {
            view.runs.entry(run).or_insert_with(|| starting(&request));
        }
        let gang = self.gangs.entry(run).or_default();
        let moves = gang.namespace != request.namespace;
        gang.namespace.clone_from(&request.namespace);
        gang.subject = Some(request.subject.clone());
        gang.service = Some(request.service.clone());
        let mut strangers = Vec::new();
        for (number, asked) in request.workers.iter().enumerate() {
            let worker = gang.workers.entry(number as u32).or_default();
            let given = |key: &PodKey| !moves && key.name == request.pod_name(number as u32);
            let stranger = worker.pod.take_if(|key| !given(key));
            if moves || stranger.is_some() {
                worker.uid = None;
            }
            strangers.extend(stranger);
            worker.instance.clone_from(&asked.instance);
            if let Some(instance) = &asked.instance {
                let id = WorkerId { run, worker: number as u32 };
                self.workers_on.entry(instance.clone()).or_default().insert(id);
            }
        }
        gang.request = Some(request);
        gang.token = Some(token);
        self.changed.insert(run);
        self.disown(strangers);
    }

    /// Stops a gang: its containers are asked to end, and killed at the deadline.
    pub fn stop(&mut self, run: RunId, deadline: Timestamp) {
        if self.stop_adopted(run) || self.report_again(run) {
            return;
        }
        let gang = self.gangs.entry(run).or_default();
        gang.stop_by = Some(deadline);
        gang.end(Verdict::Asked);
        self.changed.insert(run);
    }

    /// Takes workers out of a gang; the others go on.
    pub fn shrink(&mut self, run: RunId, leave: &[u32], deadline: Timestamp) {
        let gang = self.gangs.entry(run).or_default();
        for worker in leave {
            gang.leaving.insert(*worker, deadline);
            // Asked for again, the answer is given again.
            gang.reported.left.remove(worker);
        }
        self.changed.insert(run);
    }

    /// Takes what the engine knows now.
    pub fn handle_state(&mut self, view: EngineView) {
        let Some(old) = self.view.replace(view) else { return };
        let Some(new) = &self.view else { return };
        let differs = |run: &&RunId| old.runs.get(*run) != new.runs.get(*run);
        let runs: Vec<RunId> = old.runs.keys().chain(new.runs.keys()).filter(differs).copied().collect();
        let gone: Vec<String> = old.claims.keys().filter(|i| !new.claims.contains_key(*i)).cloned().collect();
        let nodes: Vec<String> =
            new.claims.iter().filter(|(i, claim)| old.claims.get(*i) != Some(claim)).map(|(i, _)| i.clone()).collect();
        let pools = old.owned_pools != new.owned_pools;
        let types = old.node_types != new.node_types;
        // What is starting has as long as the policy in force says.
        let timeout = old.start_timeout != new.start_timeout;
        let starting: Vec<RunId> = if timeout { new.starting() } else { Vec::new() };
        let adopted: Vec<String> = if timeout { new.starting_adopted() } else { Vec::new() };
        let owned: Vec<String> = gone.iter().chain(&nodes).cloned().collect();
        self.owned_known(&owned, pools);
        if types {
            self.types_known();
        }
        for run in runs {
            self.know_run(run);
        }
        for instance in gone {
            self.instance_gone(&instance);
        }
        for instance in nodes {
            self.instance_changed(&instance);
        }
        self.know_adopted(&old.adopted);
        self.changed.extend(starting);
        adopted.iter().for_each(|uid| self.object_changed(uid));
    }

    /// A gang whose images are there has so long to start.
    fn start_timeout(&self) -> Span {
        let policy = self.view.as_ref().and_then(|view| view.start_timeout);
        policy.unwrap_or(self.settings.start_timeout)
    }

    /// The workers of an attempt that the engine knows, whether their pods were seen or not.
    fn know_run(&mut self, run: RunId) {
        self.changed.insert(run);
        let Some(known) = self.view.as_ref().and_then(|view| view.runs.get(&run)) else { return };
        let gang = self.gangs.entry(run).or_default();
        if gang.namespace.is_empty() {
            gang.namespace.clone_from(&known.namespace);
        }
        if gang.subject.is_none() {
            gang.subject = Some(known.subject.clone());
        }
        for (number, instance) in &known.workers {
            let worker = gang.workers.entry(*number).or_default();
            worker.confirmed |= known.confirmed_dead.contains(number);
            if worker.instance.is_none() {
                worker.instance.clone_from(instance);
            }
            if let Some(instance) = &worker.instance {
                let id = WorkerId { run, worker: *number };
                self.workers_on.entry(instance.clone()).or_default().insert(id);
            }
        }
    }

    /// The calls to make now. Each needs one [`KubeMachine::handle_response`] with its number, except watches.
    pub fn poll(&mut self, now: Timestamp) -> Vec<(KubeCallId, KubeCall)> {
        let mut calls = Vec::new();
        if self.view.is_none() {
            return calls;
        }
        while let Some((at, run)) = self.wakes.first().copied().filter(|(at, _)| *at <= now) {
            self.wakes.remove(&(at, run));
            self.changed.insert(run);
        }
        for (run, scope) in self.changed.take() {
            self.advance(run, scope, now);
        }
        self.advance_adoptions(now);
        self.report_owned(now);
        self.report_reserves(now);
        for class in [KubeRateClass::Read, KubeRateClass::Write] {
            self.poll_class(class, now, &mut calls);
        }
        calls
    }

    fn poll_class(&mut self, class: KubeRateClass, now: Timestamp, calls: &mut Vec<(KubeCallId, KubeCall)>) {
        while self.running.len() < self.settings.rates.in_flight {
            if self.agenda.first(class).is_none_or(|at| at > now) {
                return;
            }
            if self.rates.next_free(class, now) > now {
                return;
            }
            let Some(task) = self.agenda.take_due(class, now) else { return };
            let Some(call) = self.call_of(&task, now) else {
                self.agenda.finish(&task);
                continue;
            };
            self.rates.take(class, now);
            self.calls += 1;
            let id = KubeCallId(self.calls);
            if let Task::Watch(resource) = task {
                // It ends by itself and holds no place among the running calls.
                self.listings.watching(resource, id);
                self.agenda.finish(&task);
            } else {
                self.running.insert(id, task);
            }
            calls.push((id, call));
        }
    }

    /// When [`KubeMachine::poll`] may return calls next, unless something happens first.
    pub fn next_timeout(&mut self, now: Timestamp) -> Timestamp {
        if !self.changed.is_empty() || (self.adoptions.is_changed() && self.adoptions_are_listed()) {
            return now;
        }
        let wake = self
            .wakes
            .first()
            .map_or(Timestamp::NEVER, |(at, _)| *at)
            .min(self.adoptions.wake_at())
            .min(self.owned_due())
            .min(self.reserves_due());
        if self.running.len() >= self.settings.rates.in_flight {
            return wake;
        }
        let due = [KubeRateClass::Read, KubeRateClass::Write].map(|class| match self.agenda.first(class) {
            Some(at) => at.max(self.rates.next_free(class, now)),
            None => Timestamp::NEVER,
        });
        wake.min(due[0]).min(due[1])
    }

    /// Takes the reports since the last call, in their order.
    pub fn take_reports(&mut self) -> Vec<KubeReport> {
        std::mem::take(&mut self.reports)
    }

    /// Takes an event of a watch. Those of a watch that was replaced are ignored.
    pub fn handle_watch(&mut self, event: WatchEvent, now: Timestamp) {
        self.watch_event(event, now);
    }

    /// Whether all that is ours has been listed since the start.
    #[must_use]
    pub fn has_listed(&self) -> bool {
        self.listings.complete()
    }

    /// Whether nothing of ours is left in the cluster, no gang is open and no node is drained.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.gangs.is_empty() && self.pods.is_empty() && self.drains.is_empty()
    }

    /// Reports an outcome again. Returns whether there was one.
    fn report_again(&mut self, run: RunId) -> bool {
        let Some(gang) = self.gangs.get_mut(&run) else { return false };
        if let Some(events) = &gang.reported.outcome {
            self.reports.extend(events.iter().cloned().map(KubeReport::Event));
            return true;
        }
        // Looked at again, what has started is reported again.
        gang.reported.started = false;
        gang.reported.completed.clear();
        self.changed.insert(run);
        false
    }

    fn worker(&mut self, id: WorkerId) -> Option<&mut Worker> {
        self.gangs.get_mut(&id.run)?.workers.get_mut(&id.worker)
    }

    fn run_view(&self, run: RunId) -> Option<&RunView> {
        self.view.as_ref()?.runs.get(&run)
    }

    /// Whether the engine holds a claim for an instance.
    fn has_claim(&self, instance: &str) -> bool {
        self.view.as_ref().is_some_and(|view| view.claims.contains_key(instance))
    }
}

/// What the engine knows of an attempt whose start it has just decided. The next view replaces it.
fn starting(request: &crate::request::GangRequest) -> RunView {
    let workers = request.workers.iter().enumerate().map(|(number, worker)| (number as u32, worker.instance.clone()));
    RunView {
        tenant: String::new(),
        subject: request.subject.clone(),
        namespace: request.namespace.clone(),
        stage: RunStage::Starting,
        workers: workers.collect(),
        done: BTreeSet::new(),
        left: BTreeSet::new(),
        confirmed_dead: BTreeSet::new(),
    }
}

/// The kinds of a gang's objects beside its pods, but for the Secret, which goes with the Service.
const OBJECTS: [Resource; 2] = [Resource::Services, Resource::ConfigMaps];

//! One run of a seed: the machine, the API server, the nodes and the engine, with faults and crashes between any two calls.

mod faults;

use crate::api::{ApiServer, ObjectKey, deleting, text};
use crate::dice::Dice;
use crate::engine::{Claim, Engine, Job, Run, stop};
use crate::kubelets::{self, Machine};
use forebay_cluster_kube::request::WorkerRequest;
use forebay_cluster_kube::view::{ClaimPhase, RunStage};
use forebay_cluster_kube::{
    GangRequest, GangStart, KubeCall, KubeCallId, KubeError, KubeMachine, KubeReport, KubeResponse, KubeSettings,
    ObjectSelector, Resource, RunId, RunToken, WatchChange, WatchEvent,
};
use forebay_kernel::ids::{Attempt, JobId, NodeId};
use forebay_kernel::units::{Span, Timestamp};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

const JOURNAL: &str = "j-1";
/// Turns with faults. Between two crashes is time for a start and an end, and often for neither.
const FAULTY_TURNS: u32 = 5000;
/// Calls while the API server is away for up to five minutes: each thing that is asked for, tried a few times a minute.
const MOST_CALLS_AWAY: u64 = 600;
const BEGIN: u64 = 1_800_000_000_000;

struct Watch {
    id: KubeCallId,
    selector: ObjectSelector,
    at: u64,
}

/// How often each thing happened, so that a sweep that exercises nothing is seen.
pub type Counts = BTreeMap<&'static str, u64>;

pub struct World {
    now: u64,
    dice: Dice,
    api: ApiServer,
    machines: BTreeMap<String, Machine>,
    engine: Engine,
    kube: KubeMachine,
    /// Calls on their way: those of a process that crashed are carried out too, and nobody hears the response.
    calls: Vec<(Option<KubeCallId>, KubeCall)>,
    responses: Vec<(KubeCallId, KubeResponse)>,
    watches: BTreeMap<Resource, Watch>,
    effects: u64,
    instances: u64,
    ever_bound: BTreeSet<String>,
    /// Attempts that had completed when somebody deleted their pod.
    completed: BTreeMap<JobId, u32>,
    faults: bool,
    /// Nobody reaches the API server until then.
    away_until: u64,
    /// An API server that has just started knows no roles until then.
    roles_known_at: u64,
    /// Calls of the machine that found it away.
    calls_away: u64,
    pub violations: Vec<String>,
    pub counts: Counts,
    /// What happened, line by line.
    pub story: Vec<String>,
}

fn settings(waits_for_logs: bool) -> KubeSettings {
    let mut settings = KubeSettings::new("jobs", "forebay:1");
    settings.namespaces.insert("ops".to_owned(), "other".to_owned());
    settings.keep_terminal = Span::mins(5);
    // Where logs are waited for, nobody takes them.
    settings.log_wait = Span::secs(if waits_for_logs { 4 } else { 0 });
    settings.list_every = Span::mins(1);
    settings
}

/// A call in a line of the story.
fn told(call: &KubeCall) -> String {
    match call {
        KubeCall::Create { resource, body, .. } => format!("create {resource:?} {}", text(body, "/metadata/name")),
        KubeCall::Bind { pod, node, .. } => format!("bind {pod} to {node}"),
        KubeCall::CreateSecret { .. } => "create a secret".into(),
        KubeCall::Evict { pod, .. } => format!("evict {pod}"),
        KubeCall::Apply { name, body, .. }
        | KubeCall::Merge { name, body, .. }
        | KubeCall::MergeStatus { name, body, .. } => format!("change {name} {body}"),
        KubeCall::Delete { resource, name, grace_seconds, .. } => {
            format!("delete {resource:?} {name} {grace_seconds:?}")
        }
        KubeCall::Get { resource, name, .. } => format!("get {resource:?} {name}"),
        KubeCall::List { resource, .. } | KubeCall::Watch { resource, .. } => format!("list {resource:?}"),
    }
}

fn answer(response: &KubeResponse) -> String {
    match response {
        KubeResponse::Refused(error) => error.to_string(),
        KubeResponse::Page { .. } => "a page".into(),
        KubeResponse::Object(_) | KubeResponse::Done => "done".into(),
    }
}

impl World {
    pub fn new(seed: u64) -> World {
        let mut world = World {
            now: BEGIN,
            dice: Dice(seed),
            api: ApiServer::default(),
            machines: BTreeMap::new(),
            engine: Engine::default(),
            kube: KubeMachine::new(settings(seed % 8 == 1), JOURNAL),
            calls: Vec::new(),
            responses: Vec::new(),
            watches: BTreeMap::new(),
            effects: 0,
            instances: 0,
            ever_bound: BTreeSet::new(),
            completed: BTreeMap::new(),
            faults: true,
            away_until: 0,
            roles_known_at: 0,
            calls_away: 0,
            violations: Vec::new(),
            counts: Counts::new(),
            story: Vec::new(),
        };
        for namespace in ["jobs", "other"] {
            world.api.create(Resource::Namespaces, "", json!({"metadata": {"name": namespace}}));
        }
        for _ in 0..4 {
            world.boot();
        }
        world.foreign_pods();
        for job in 0..6 {
            let namespace = if job % 3 == 2 { "other" } else { "jobs" };
            let workers = 1 + world.dice.below(4) as u32;
            let job_row = Job {
                namespace: namespace.into(),
                workers,
                attempt: 0,
                run: None,
                completed: false,
                cancelled: false,
                failures: 0,
            };
            world.engine.jobs.insert(JobId(job), job_row);
        }
        world.kube.begin(world.engine.view());
        world
    }

    fn tell(&mut self, what: String) {
        self.story.push(format!("{:>7} {what}", self.now - BEGIN));
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_insert(0) += 1;
    }

    fn boot(&mut self) {
        self.instances += 1;
        let (instance, name) = (format!("i-{}", self.instances), format!("node-{}", self.instances));
        let node = json!({"metadata": {"name": name}, "spec": {"providerID": format!("aws:///z/{instance}"),
            "taints": [{"key": "forebay.dev/starting", "effect": "NoSchedule"}, {"key": "team", "effect": "NoSchedule"}]},
            "status": {"allocatable": {"nvidia.com/gpu": "4"}, "nodeInfo": {"bootID": "boot-0"},
            "conditions": [{"type": "Ready", "status": "True"}]}});
        self.api.create(Resource::Nodes, "", node);
        self.machines.insert(instance.clone(), Machine { name, gpus: 4, ..Machine::default() });
        let claim = Claim { node: NodeId(self.instances), phase: ClaimPhase::Booting, gpus: 4 };
        self.engine.claims.insert(instance, claim);
    }

    /// Pods of others: one without labels, one with our label and another journal, one that only looks like ours.
    fn foreign_pods(&mut self) {
        for (name, journal) in [("plain", ""), ("other-journal", "j-2"), ("looks-like-ours", JOURNAL)] {
            let pod = json!({"metadata": {"name": name, "labels": {"forebay.dev/journal": journal},
                "annotations": {"forebay.dev/worker": "job-0/1/0"}}, "foreign": true, "spec": {"nodeName": "node-1", "containers": []}});
            self.api.create(Resource::Pods, "jobs", pod);
        }
    }

    fn foreign(&self) -> Vec<Value> {
        let foreign = self.api.objects.values().filter(|object| object["foreign"] == true);
        foreign.cloned().collect()
    }

    /// Plays a seed to its end and checks what has to hold then.
    pub fn play(mut self) -> World {
        let foreign = self.foreign();
        for _ in 0..FAULTY_TURNS {
            self.turn();
        }
        self.faults = false;
        self.heal();
        let mut quiet = 0;
        for turn in 0..60_000 {
            self.turn();
            if turn % 50 == 0 {
                self.end_unproven();
                self.collect_garbage();
            }
            quiet = if self.is_over() { quiet + 1 } else { 0 };
            if quiet > 20 || !self.violations.is_empty() {
                break;
            }
        }
        if self.violations.is_empty() {
            self.check_end(&foreign);
        }
        self
    }

    fn is_over(&self) -> bool {
        self.engine.jobs.values().all(|job| job.run.is_none() && (job.completed || job.cancelled))
            && self.ours().next().is_none()
    }

    fn ours(&self) -> impl Iterator<Item = &ObjectKey> {
        let ours = |key: &ObjectKey, object: &Value| {
            key.0 != Resource::Nodes && key.0 != Resource::Namespaces && object["foreign"] != true
        };
        self.api.objects.iter().filter(move |(key, object)| ours(key, object)).map(|(key, _)| key)
    }

    fn check_end(&mut self, foreign: &[Value]) {
        let open: Vec<String> = self
            .engine
            .jobs
            .iter()
            .filter(|(_, job)| !(job.completed || job.cancelled) || job.run.is_some())
            .map(|(id, job)| format!("{id} attempt {} {:?}", job.attempt, job.run.as_ref().map(|run| run.stage)))
            .collect();
        if !open.is_empty() {
            self.violations.push(format!("lost: {open:?}"));
        }
        let left: Vec<String> = self.ours().map(|key| format!("{key:?} {}", self.api.objects[key])).collect();
        if !left.is_empty() {
            self.violations.push(format!("left behind: {left:?}"));
        }
        if self.foreign() != foreign {
            self.violations.push(format!("foreign pods were touched: {:?}", self.foreign()));
        }
    }

    fn turn(&mut self) {
        let quick = self.dice.below(100);
        self.now += if quick < 60 { 1 } else { self.dice.below(900) };
        self.back();
        self.poll();
        match self.dice.below(10) {
            0..=2 => (0..=self.dice.below(3)).for_each(|_| self.carry_out()),
            3..=4 => (0..=self.dice.below(3)).for_each(|_| self.respond()),
            5..=6 => self.watch(),
            7 => self.kubelets(),
            8 => self.decide(),
            _ if self.faults => self.fault(),
            _ => {}
        }
        self.reports();
    }

    fn poll(&mut self) {
        let calls = self.kube.poll(Timestamp(self.now));
        for (id, call) in calls {
            if let KubeCall::Watch { resource, selector, resource_version } = call {
                let at = resource_version.parse().expect("a version");
                self.watches.insert(resource, Watch { id, selector, at });
            } else {
                self.calls.push((Some(id), call));
            }
        }
    }

    /// Carries out one call, whichever.
    fn carry_out(&mut self) {
        if self.calls.is_empty() {
            return;
        }
        let at = self.dice.below(self.calls.len() as u64) as usize;
        let (id, call) = self.calls.remove(at);
        if self.is_away() {
            self.calls_away += 1;
            self.count("calls without an API server");
            let refused = KubeResponse::Refused(KubeError::no_response("connection refused"));
            self.responses.extend(id.map(|id| (id, refused)));
            return;
        }
        if self.now < self.roles_known_at {
            self.count("calls without roles");
            let message =
                "pods is forbidden: User \"system:serviceaccount:f:f\" cannot do this in the namespace \"jobs\"";
            let refused = KubeResponse::Refused(KubeError::of_status(403, "Forbidden", message));
            self.responses.extend(id.map(|id| (id, refused)));
            return;
        }
        let told = told(&call);
        let before = self.faults.then(|| self.dice.below(60));
        let fault = match before {
            Some(0) => Some(KubeError::of_status(429, "TooManyRequests", "").with_retry_after(Some(Span::secs(1)))),
            Some(1) => Some(KubeError::of_status(500, "InternalError", "failed calling webhook")),
            Some(2) => Some(KubeError::no_response("timeout")),
            Some(3) if matches!(call, KubeCall::Create { .. }) => {
                Some(KubeError::of_status(403, "Forbidden", "admission webhook \"policy\" denied the request"))
            }
            _ => None,
        };
        let response = match fault {
            Some(error) => KubeResponse::Refused(error),
            None => {
                let response = self.api.call(&call, self.now);
                if let (KubeCall::Bind { pod, .. }, KubeResponse::Done) = (&call, &response) {
                    let key = self.api.objects.keys().find(|key| key.2 == *pod).cloned();
                    let worker = key.map(|key| {
                        text(&self.api.objects[&key], "/metadata/annotations/forebay.dev~1worker").to_owned()
                    });
                    self.ever_bound.extend(worker);
                }
                if self.faults && self.dice.one_in(25) {
                    KubeResponse::Refused(KubeError::no_response("reset"))
                } else {
                    response
                }
            }
        };
        self.tell(format!("{told} -> {}", answer(&response)));
        if let KubeResponse::Refused(error) = &response {
            let what = match error.code {
                409 => "conflicts",
                0 => "lost responses",
                _ => "refusals",
            };
            self.count(what);
        }
        if let Some(id) = id {
            self.responses.push((id, response));
        }
    }

    fn respond(&mut self) {
        if self.responses.is_empty() {
            return;
        }
        let at = self.dice.below(self.responses.len() as u64) as usize;
        let (id, response) = self.responses.remove(at);
        self.kube.handle_response(id, response, Timestamp(self.now));
    }

    fn watch(&mut self) {
        if self.is_away() {
            for (_, watch) in std::mem::take(&mut self.watches) {
                let change = WatchChange::Failed(KubeError::no_response("connection refused"));
                self.kube.handle_watch(WatchEvent { watch: watch.id, change }, Timestamp(self.now));
                self.calls_away += 1;
            }
            return;
        }
        for resource in [Resource::Pods, Resource::Nodes] {
            for _ in 0..self.dice.below(6) {
                let Some(watch) = self.watches.get_mut(&resource) else { break };
                let ends = self.faults && self.dice.one_in(80);
                let next = if ends {
                    Some((watch.at, WatchChange::Ended))
                } else {
                    self.api.next_change(resource, &watch.selector, watch.at)
                };
                let Some((at, change)) = next else { break };
                watch.at = at;
                let event = WatchEvent { watch: watch.id, change: change.clone() };
                if matches!(change, WatchChange::Ended | WatchChange::Expired) {
                    self.watches.remove(&resource);
                    self.count("watches ended");
                }
                self.kube.handle_watch(event, Timestamp(self.now));
            }
        }
    }

    fn kubelets(&mut self) {
        if self.is_away() {
            // Their containers run on.
            return;
        }
        let instances: Vec<String> = self.machines.keys().cloned().collect();
        for instance in instances {
            let name = self.machines[&instance].name.clone();
            let bound = |(key, pod): &(&ObjectKey, &Value)| {
                key.0 == Resource::Pods && text(pod, "/spec/nodeName") == name && pod["foreign"] != true
            };
            let keys: Vec<ObjectKey> = self.api.objects.iter().filter(bound).map(|(key, _)| key.clone()).collect();
            let Some(machine) = self.machines.get_mut(&instance) else { continue };
            // Containers whose pod is gone are killed, as soon as the kubelet sees it; and what has ended has ended.
            let cut_off = machine.cut_off_until > self.now;
            machine.alive.retain(|uid, c| {
                let exists = self.api.objects.get(&c.key).is_some_and(|pod| text(pod, "/metadata/uid") == uid);
                exists || cut_off
            });
            for key in keys {
                let started = self
                    .machines
                    .get_mut(&instance)
                    .and_then(|m| kubelets::step(m, &mut self.api, &key, self.now, &mut self.dice));
                if let Some(container) = started {
                    self.check_started(&container);
                }
            }
        }
    }

    /// A worker has passed the barrier: its gang is bound, and nothing else of its job's number runs.
    fn check_started(&mut self, container: &kubelets::Container) {
        self.count("workers started");
        self.tell(format!("{} works", container.worker));
        let parts: Vec<&str> = container.worker.split('/').collect();
        let job: u64 = parts[0].trim_start_matches("job-").parse().expect("a job");
        let workers = self.engine.jobs[&JobId(job)].workers;
        if self.completed.contains_key(&JobId(job)) {
            self.violations.push(format!("{} works, and the attempt before had completed", container.worker));
        }
        for number in 0..workers {
            let worker = format!("{}/{}/{number}", parts[0], parts[1]);
            if !self.ever_bound.contains(&worker) {
                self.violations.push(format!("{} works, and {worker} was never bound", container.worker));
            }
        }
        let mut alive = BTreeMap::new();
        for other in self.machines.values().flat_map(|m| m.alive.values()).filter(|c| c.ends_at > self.now) {
            let (attempt, of) =
                (other.worker.split('/').nth(1).unwrap_or(""), other.worker.split('/').next().unwrap_or(""));
            if of == parts[0] {
                *alive.entry(other.worker.clone()).or_insert(0) += 1;
                if attempt != parts[1] {
                    self.violations.push(format!("{} works beside {}", container.worker, other.worker));
                }
            }
        }
        if let Some((worker, _)) = alive.iter().find(|(_, count)| **count > 1) {
            self.violations.push(format!("{worker} works twice"));
        }
    }

    /// The engine decides something: starts, stops, shrinks, or releases an effect again.
    fn decide(&mut self) {
        let jobs: Vec<JobId> = self.engine.jobs.keys().copied().collect();
        let id = jobs[self.dice.below(jobs.len() as u64) as usize];
        let (faults, stops) = (self.faults, self.dice.one_in(12));
        let Some(job) = self.engine.jobs.get_mut(&id) else { return };
        let run_id = RunId { job: id, attempt: Attempt(job.attempt) };
        match job.run.as_mut() {
            None if !job.completed && !job.cancelled => self.start(id),
            None => {}
            Some(run) if faults && stops && !matches!(run.stage, RunStage::Stopping { .. }) => {
                stop(run, self.now + 1000 + self.dice.below(30_000));
                // It runs again, whatever became of it meanwhile.
                self.completed.remove(&id);
                self.count("stops");
                self.release(run_id);
            }
            Some(run)
                if faults
                    && self.dice.one_in(10)
                    && run.stage == RunStage::Running
                    && run.places.len() > 1
                    && run.leaving.is_empty() =>
            {
                let leaver = run.places.keys().copied().last().unwrap_or(0);
                run.leaving.insert(leaver);
                run.deadline = self.now + 10_000;
                self.count("shrinks");
                self.release(run_id);
            }
            Some(_) if self.dice.one_in(20) => self.release(run_id),
            Some(_) => {}
        }
        self.kube.handle_state(self.engine.view());
    }

    fn start(&mut self, id: JobId) {
        let namespace = self.engine.jobs[&id].namespace.clone();
        let home = (Resource::Namespaces, String::new(), namespace.clone());
        if self.api.objects.get(&home).is_none_or(deleting) {
            return;
        }
        let mut ready: Vec<String> =
            self.engine.claims.iter().filter(|(_, c)| c.phase == ClaimPhase::Ready).map(|(i, _)| i.clone()).collect();
        let first = self.dice.below(ready.len() as u64) as usize;
        ready.rotate_left(first);
        let mut places = BTreeMap::new();
        let workers = self.engine.jobs[&id].workers;
        for instance in ready {
            // Some nodes are full of others' pods in truth: their kubelets refuse.
            for _ in 0..self.engine.free(&instance) {
                if (places.len() as u32) < workers {
                    places.insert(places.len() as u32, instance.clone());
                }
            }
        }
        if (places.len() as u32) < workers {
            return;
        }
        self.effects += 1;
        let effect = format!("{JOURNAL}-{}", self.effects);
        let Some(job) = self.engine.jobs.get_mut(&id) else { return };
        job.attempt += 1;
        let worker = |instance: &String| WorkerRequest {
            instance: Some(instance.clone()),
            gpus: 1,
            requests: BTreeMap::new(),
            limits: BTreeMap::new(),
        };
        let run = RunId { job: id, attempt: Attempt(job.attempt) };
        let request = GangRequest {
            journal: JOURNAL.into(),
            job: id.0,
            attempt: job.attempt,
            subject: format!("{id}"),
            namespace,
            service: forebay_cluster_kube::names::service_name(run, &effect),
            effect,
            pod: json!({"spec": {"containers": [{"name": "worker"}]}}),
            container: "worker".into(),
            workers: places.values().map(worker).collect(),
            min_workers: 1,
            master_port: 29_500,
            env: Vec::new(),
        };
        let start = GangStart::decode(&GangStart::Run(Box::new(request)).encode().expect("JSON")).expect("the same");
        job.run = Some(Run {
            start,
            stage: RunStage::Starting,
            places,
            done: BTreeSet::new(),
            left: BTreeSet::new(),
            confirmed_dead: BTreeSet::new(),
            leaving: BTreeSet::new(),
            deadline: 0,
        });
        self.count("starts");
        self.release(run);
    }

    /// Releases the open effect of a run, as after a recovery.
    fn release(&mut self, id: RunId) {
        let Some(run) = self.engine.jobs.get(&id.job).and_then(|job| job.run.as_ref()) else { return };
        match run.stage {
            RunStage::Starting => self.kube.start(run.start.clone(), RunToken::new("token".to_owned())),
            RunStage::Stopping { .. } => self.kube.stop(id, Timestamp(run.deadline)),
            RunStage::Running if !run.leaving.is_empty() => {
                let leave: Vec<u32> = run.leaving.iter().copied().collect();
                self.kube.shrink(id, &leave, Timestamp(run.deadline));
            }
            RunStage::Running => {}
        }
    }

    fn reports(&mut self) {
        for report in self.kube.take_reports() {
            self.tell(format!("report {report:?}"));
            match report {
                KubeReport::Event(event) => {
                    // A crash between the report and the journal.
                    if self.faults && self.dice.one_in(40) {
                        self.crash();
                        return;
                    }
                    self.engine.apply(&event);
                }
                KubeReport::Refused { run, words } => {
                    if words.contains("cannot do this") {
                        self.violations.push(format!("{run:?} is refused for roles that are not read yet"));
                    }
                    self.count("gangs refused");
                }
                KubeReport::Unproven { .. } => self.count("workers unproven"),
                _ => {}
            }
        }
        self.kube.handle_state(self.engine.view());
        if self.faults && self.dice.one_in(200) {
            self.crash();
        }
    }

    fn crash(&mut self) {
        self.count("crashes");
        self.tell("crash".into());
        // Some calls of the old process still arrive.
        let old = std::mem::take(&mut self.calls);
        for (_, call) in old {
            if self.dice.one_in(2) {
                self.calls.push((None, call));
            }
        }
        self.responses.clear();
        self.watches.clear();
        self.kube = KubeMachine::new(self.kube.settings().clone(), JOURNAL);
        self.kube.begin(self.engine.view());
        let runs: Vec<RunId> = self.engine.view().runs.keys().copied().collect();
        for run in runs {
            self.release(run);
        }
    }

    /// Attempts whose pods were deleted by force are held until their nodes are gone, or an operator says that they are dead: an operator does one
    /// of both.
    fn end_unproven(&mut self) {
        let stuck: Vec<(JobId, u32, String)> = self
            .engine
            .jobs
            .iter()
            .filter_map(|(id, job)| {
                let run = job.run.as_ref()?;
                let exists = |number: &u32| {
                    let worker = format!("{id}/{}/{number}", job.attempt);
                    self.api.objects.iter().any(|(key, o)| {
                        key.0 == Resource::Pods
                            && text(o, "/metadata/annotations/forebay.dev~1worker") == worker
                            && o["foreign"] != true
                    })
                };
                let missing = run.places.iter().find(|(number, _)| !exists(number) && !run.done.contains(number));
                missing
                    .filter(|_| run.stage != RunStage::Starting || self.dice_free(id))
                    .map(|(number, instance)| (*id, *number, instance.clone()))
            })
            .collect();
        for (id, number, instance) in stuck {
            if self.dice.one_in(2) && self.confirm_death(id, number) {
                continue;
            }
            self.end_instance(&instance);
            self.boot();
        }
    }

    /// An operator who has looked confirms that a worker is dead, where it is.
    fn confirm_death(&mut self, id: JobId, number: u32) -> bool {
        let worker = format!("{id}/{}/{number}", self.engine.jobs[&id].attempt);
        let mut containers = self.machines.values().flat_map(|machine| machine.alive.values());
        if containers.any(|container| container.worker == worker && container.ends_at > self.now) {
            return false;
        }
        let Some(run) = self.engine.jobs.get_mut(&id).and_then(|job| job.run.as_mut()) else { return false };
        run.confirmed_dead.insert(number);
        self.tell(format!("an operator confirms that {worker} is dead"));
        self.count("deaths confirmed");
        self.kube.handle_state(self.engine.view());
        true
    }

    /// Whether a gang that starts is past its barrier, so that a missing pod is not one that is still to come.
    fn dice_free(&self, job: &JobId) -> bool {
        let attempt = self.engine.jobs[job].attempt.to_string();
        self.api.objects.iter().any(|(key, o)| {
            key.0 == Resource::Services
                && o["metadata"]["labels"]["forebay.dev/job"] == job.to_string()
                && o["metadata"]["labels"]["forebay.dev/attempt"] == attempt
                && o["metadata"]["annotations"]["forebay.dev/barrier"] == "open"
        })
    }
}

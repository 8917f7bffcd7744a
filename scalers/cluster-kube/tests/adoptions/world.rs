//! The world around the machine: the engine as a journal of jobs and open effects, calls that are in flight, faults, users, and what has to hold.

use super::api::{ApiServer, ObjectKey, deleting, text};
use super::cluster::{Cluster, NAMESPACE, is_over, workers};
use super::dice::Dice;
use forebay_cluster_kube::adoption::WorkloadId;
use forebay_cluster_kube::request::AdoptedStart;
use forebay_cluster_kube::view::{AdoptedRunView, AdoptedView, ClaimPhase, ClaimView, RunStage, StoppedFrom};
use forebay_cluster_kube::{
    EngineView, GangStart, KubeCall, KubeCallId, KubeError, KubeMachine, KubeReport, KubeResponse, KubeSettings,
    ObjectSelector, Resource, RunId, RunToken, WatchChange, WatchEvent,
};
use forebay_kernel::event::Event;
use forebay_kernel::ids::{Attempt, JobId, NodeId};
use forebay_kernel::units::{Span, Timestamp};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

const STEPS: u32 = 500;
const MOST_STEPS: u32 = 20_000;
const BEGIN: u64 = 1_800_000_000_000;

struct Job {
    object: WorkloadId,
    attempt: u32,
    run: Option<Run>,
    done: Option<&'static str>,
    cancelled: bool,
    /// The instances of each attempt.
    places: BTreeMap<u32, BTreeSet<String>>,
    /// The containers of each attempt that have started.
    started: BTreeMap<u32, u64>,
}

struct Run {
    start: GangStart,
    stage: RunStage,
    /// Its stop is out.
    stop: bool,
    /// The instances where nothing proves that its pods have ended.
    unproven: BTreeSet<String>,
    confirmed_dead: BTreeSet<u32>,
}

pub struct World {
    seed: u64,
    now: u64,
    dice: Dice,
    cluster: Cluster,
    kube: KubeMachine,
    jobs: BTreeMap<JobId, Job>,
    claims: BTreeSet<String>,
    flying: Vec<(KubeCallId, KubeCall)>,
    watches: BTreeMap<Resource, (KubeCallId, ObjectSelector, u64)>,
    calm: bool,
    /// Whether its story is told.
    told: bool,
    pub counts: BTreeMap<&'static str, u64>,
}

fn settings() -> KubeSettings {
    let mut settings = KubeSettings::new("jobs", "forebay:1");
    settings.adopt = [NAMESPACE.to_owned()].into();
    settings.start_timeout = Span::mins(3);
    settings.settle = Span::secs(5);
    settings.list_every = Span::mins(1);
    settings
}

fn object(name: &str, jobset: bool, namespace: &str) -> Value {
    let template = json!({"spec": {"containers": [{"name": "w", "resources": {"requests": {"cpu": "1"}}}]}});
    let job = json!({"parallelism": 2, "completions": 2, "podReplacementPolicy": "Failed", "template": template});
    let spec = if jobset {
        let of = |name: &str, replicas: u64| json!({"name": name, "replicas": replicas, "template": {"spec": job}});
        json!({"suspend": true, "replicatedJobs": [of("driver", 1), of("work", 1)]})
    } else {
        let mut spec = job;
        spec["suspend"] = json!(true);
        spec
    };
    let metadata = json!({"name": name, "namespace": namespace, "labels": {"forebay.dev/queue": "q"}});
    json!({"metadata": metadata, "spec": spec, "status": {}})
}

impl World {
    pub fn new(seed: u64) -> World {
        let mut api = ApiServer::default();
        for name in [NAMESPACE, "other"] {
            api.create(Resource::Namespaces, "", json!({"metadata": {"name": name}}));
        }
        let kinds = [("a", false), ("b", true), ("c", false), ("d", true)];
        for (name, jobset) in kinds {
            let resource = if jobset { Resource::JobSets } else { Resource::Jobs };
            api.create(resource, NAMESPACE, object(name, jobset, NAMESPACE));
        }
        api.create(Resource::Jobs, "other", object("not-ours", false, "other"));
        let mut world = World {
            seed,
            now: BEGIN,
            dice: Dice(seed),
            cluster: Cluster { api, ..Cluster::default() },
            kube: KubeMachine::new(settings(), "j"),
            jobs: BTreeMap::new(),
            claims: BTreeSet::new(),
            flying: Vec::new(),
            watches: BTreeMap::new(),
            calm: false,
            told: std::env::var_os("SEED").is_some(),
            counts: BTreeMap::new(),
        };
        (1..=4).for_each(|n| world.boot(n));
        world.kube.begin(world.view());
        world
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_insert(0) += 1;
    }

    fn fail(&self, why: &str) -> ! {
        panic!("seed {}: {why}; `SEED={} cargo test` tells the story", self.seed, self.seed)
    }

    /// A line of the story, where one seed is run.
    fn tell(&self, line: &dyn Fn() -> String) {
        if self.told {
            println!("{:>8} {}", self.now - BEGIN, line());
        }
    }

    fn boot(&mut self, n: u64) {
        let node = json!({"metadata": {"name": format!("n-{n}"), "labels": {"forebay.dev/node": "true"}},
            "spec": {"providerID": format!("aws:///z/i-{n}")},
            "status": {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"bootID": format!("b-{n}")}}});
        self.cluster.api.create(Resource::Nodes, "", node);
        self.claims.insert(format!("i-{n}"));
    }

    fn view(&self) -> EngineView {
        let claim = |instance: &String| {
            let claim = ClaimView { node: NodeId(1), phase: ClaimPhase::Ready, offers: BTreeMap::new(), owned: None };
            (instance.clone(), claim)
        };
        let adopted = self.jobs.iter().map(|(id, job)| {
            let run = job.run.as_ref().map(|run| AdoptedRunView {
                attempt: Attempt(job.attempt),
                stage: run.stage,
                workers: (0..).zip(job.places[&job.attempt].iter().cloned()).collect(),
                confirmed_dead: run.confirmed_dead.clone(),
            });
            let (object, open) = (job.object.clone(), job.done.is_none());
            (
                object.uid.clone(),
                AdoptedView {
                    object,
                    job: *id,
                    tenant: "t".to_owned(),
                    open,
                    attempt: Attempt(job.attempt),
                    waits: None,
                    run,
                },
            )
        });
        EngineView {
            claims: self.claims.iter().map(claim).collect(),
            adopted: adopted.collect(),
            ..EngineView::default()
        }
    }

    fn journaled(&mut self) {
        let view = self.view();
        self.kube.handle_state(view);
    }

    pub fn run(&mut self) {
        for _ in 0..STEPS {
            self.fault();
            self.step();
        }
        self.calm = true;
        let mut steps = 0;
        while !self.finished() {
            self.step();
            steps += 1;
            if steps > MOST_STEPS {
                let open: Vec<_> = self.jobs.values().filter(|job| job.done.is_none()).collect();
                let told: Vec<String> = open
                    .iter()
                    .map(|job| {
                        let stage = job.run.as_ref().map(|run| (run.stage, run.stop));
                        let key = (job.object.kind.resource(), NAMESPACE.to_owned(), job.object.name.clone());
                        format!(
                            "{} {} {stage:?} {:?} {:?}",
                            job.object,
                            job.attempt,
                            self.cluster.api.objects.get(&key),
                            self.cluster.pods_of(&job.object.uid)
                        )
                    })
                    .collect();
                self.fail(&format!("not finished: {told:#?} flying {:?}", self.flying));
            }
        }
        let foreign = &self.cluster.api.objects[&(Resource::Jobs, "other".to_owned(), "not-ours".to_owned())];
        assert_eq!(foreign["spec"]["suspend"], true, "seed {}: not ours to touch", self.seed);
    }

    fn finished(&self) -> bool {
        let labelled = |(key, node): (&ObjectKey, &Value)| {
            let labels = node["metadata"]["labels"].as_object();
            key.0 == Resource::Nodes && labels.is_some_and(|all| all.keys().any(|name| name.starts_with("gang.")))
        };
        let objects = self.cluster.api.objects.iter();
        let open = |(key, object): (&ObjectKey, &Value)| {
            key.1 == NAMESPACE
                && matches!(key.0, Resource::Jobs | Resource::JobSets)
                && !text(object, "/metadata/uid").is_empty()
                && !self.jobs.values().any(|job| job.object.uid == text(object, "/metadata/uid") && job.done.is_some())
        };
        self.jobs.values().all(|job| job.done.is_some()) && !objects.clone().any(open) && !objects.clone().any(labelled)
    }

    fn step(&mut self) {
        self.now += 50 + self.dice.below(900);
        for (id, call) in self.kube.poll(Timestamp(self.now)) {
            self.check_sent(&call);
            self.flying.push((id, call));
        }
        if !self.flying.is_empty() && !self.dice.one_in(4) {
            let at = self.dice.below(self.flying.len() as u64) as usize;
            let (id, call) = self.flying.swap_remove(at);
            self.make(id, &call);
        }
        self.watch();
        let keys: Vec<ObjectKey> = self.workloads();
        if !keys.is_empty() {
            let key = keys[self.dice.below(keys.len() as u64) as usize].clone();
            self.cluster.look(&key);
            let key = keys[self.dice.below(keys.len() as u64) as usize].clone();
            self.cluster.control(&key);
        }
        if self.dice.one_in(2) {
            self.cluster.schedule(&mut self.dice);
        }
        let claims = self.claims.clone();
        for (job, attempt, instance) in self.cluster.kubelets(&mut self.dice, &claims) {
            self.container_started(&job, &attempt, &instance);
        }
        self.engine();
        self.reports();
        // Before, the next crash forgets what nothing proves.
        if self.calm {
            self.confirm_deaths();
        }
    }

    fn workloads(&self) -> Vec<ObjectKey> {
        let of = |key: &&ObjectKey| key.1 == NAMESPACE && matches!(key.0, Resource::Jobs | Resource::JobSets);
        self.cluster.api.objects.keys().filter(of).cloned().collect()
    }

    fn container_started(&mut self, job: &str, attempt: &str, instance: &str) {
        let id = JobId(job.trim_start_matches("job-").parse().unwrap_or(0));
        let attempt: u32 = attempt.parse().unwrap_or(0);
        let Some(job) = self.jobs.get_mut(&id) else {
            self.fail(&format!("a container of `{job}` runs, and nobody started it"));
        };
        *job.started.entry(attempt).or_insert(0) += 1;
        if self.told {
            println!("{:>8} {id}/{attempt} runs on {instance}", self.now - BEGIN);
        }
        let there = job.places.get(&attempt).is_some_and(|places| places.contains(instance));
        let current = job.attempt == attempt && job.run.is_some();
        if !there || !current {
            self.fail(&format!("{id}/{attempt} runs on {instance}: its place {there}, the attempt is alive {current}"));
        }
    }

    /// Makes a call, or loses it on its way, or its response.
    fn make(&mut self, id: KubeCallId, call: &KubeCall) {
        if let KubeCall::Watch { resource, selector, resource_version } = call {
            let version = resource_version.parse().expect("a version");
            self.watches.insert(*resource, (id, selector.clone(), version));
            return;
        }
        let (lost, made) = if self.calm { (false, true) } else { (self.dice.one_in(10), !self.dice.one_in(10)) };
        let mut response = KubeResponse::Refused(KubeError::no_response("lost"));
        if made {
            self.check(call);
            response = self.cluster.api.call(call, self.now);
            self.tell(&|| match call {
                KubeCall::List { .. } => format!("{call:?}"),
                _ => format!("{call:?} -> {response:?}"),
            });
            let ok = !matches!(response, KubeResponse::Refused(_));
            if matches!(call, KubeCall::MergeStatus { .. }) && ok {
                self.count("start times cleared");
            }
        }
        if lost || !made {
            self.count("lost responses");
            response = KubeResponse::Refused(KubeError::no_response("lost"));
        }
        self.kube.handle_response(id, response, Timestamp(self.now));
    }

    /// What holds of a call when it is sent: only an open start unsuspends.
    fn check_sent(&self, call: &KubeCall) {
        let KubeCall::Merge { body, .. } = call else { return };
        if body["spec"]["suspend"] != false {
            return;
        }
        let admitted = text(body, "/metadata/annotations/forebay.dev~1admitted");
        let open = |(id, job): (&JobId, &Job)| {
            let starting = job.run.as_ref().is_some_and(|run| run.stage == RunStage::Starting && !run.stop);
            starting && admitted == format!("{id}/{}", job.attempt)
        };
        if !self.jobs.iter().any(open) {
            self.fail(&format!("unsuspended without an open start: {body}"));
        }
    }

    /// What holds of a call that reaches the API server.
    fn check(&self, call: &KubeCall) {
        let KubeCall::Merge { resource, namespace, name, body } = call else { return };
        if !matches!(resource, Resource::Jobs | Resource::JobSets) {
            return;
        }
        if namespace.as_deref() != Some(NAMESPACE) {
            self.fail(&format!("{namespace:?}/{name} is not ours to change"));
        }
        let key = (*resource, NAMESPACE.to_owned(), name.clone());
        let Some(object) = self.cluster.api.objects.get(&key) else { return };
        let sees = |field: &str| body.pointer(field).is_none_or(|asked| object.pointer(field) == Some(asked));
        if body["spec"]["suspend"] != false || !sees("/metadata/uid") || !sees("/metadata/resourceVersion") {
            return;
        }
        let Some((id, _)) = self.jobs.iter().find(|(_, job)| job.object.uid == text(object, "/metadata/uid")) else {
            self.fail(&format!("{name} is unsuspended and was never submitted"));
        };
        if let Some(process) = self.cluster.processes.values().find(|process| process.job == id.to_string()) {
            self.fail(&format!("{name} is unsuspended while attempt {} runs on {}", process.attempt, process.instance));
        }
    }

    fn watch(&mut self) {
        let resources: Vec<Resource> = self.watches.keys().copied().collect();
        for resource in resources {
            if self.dice.one_in(2) {
                continue;
            }
            let (id, selector, version) = self.watches[&resource].clone();
            let Some((at, change)) = self.cluster.api.next_change(resource, &selector, version) else { continue };
            self.watches.get_mut(&resource).expect("a watch").2 = at;
            if change == WatchChange::Expired {
                self.watches.remove(&resource);
            }
            self.kube.handle_watch(WatchEvent { watch: id, change }, Timestamp(self.now));
        }
    }

    /// What the engine decides: starts, and stops as it likes.
    fn engine(&mut self) {
        let ids: Vec<JobId> = self.jobs.keys().copied().collect();
        for id in ids {
            let (alive, stopping, done) = {
                let job = &self.jobs[&id];
                (job.run.is_some(), job.run.as_ref().is_some_and(|run| run.stop), job.done.is_some())
            };
            if done {
                continue;
            }
            if !alive && self.dice.one_in(6) {
                self.start(id);
            } else if alive && !stopping {
                let job = &self.jobs[&id];
                let lost = !job.places[&job.attempt].is_subset(&self.claims);
                let cancelled = job.cancelled;
                if lost || cancelled || (!self.calm && self.dice.one_in(40)) {
                    self.stop(id);
                }
            }
        }
    }

    fn start(&mut self, id: JobId) {
        let all: Vec<String> = self.claims.iter().cloned().collect();
        let places: BTreeSet<String> =
            (0..2).map(|_| all[self.dice.below(all.len() as u64) as usize].clone()).collect();
        let job = self.jobs.get_mut(&id).expect("a job");
        job.attempt += 1;
        job.places.insert(job.attempt, places.clone());
        let start = GangStart::Adopted(Box::new(AdoptedStart {
            effect: format!("j-{}{}", id.0, job.attempt),
            journal: "j".to_owned(),
            job: id.0,
            attempt: job.attempt,
            object: job.object.to_string(),
            tenant: "t".to_owned(),
            instances: places.into_iter().map(Some).collect(),
        }));
        let start = GangStart::decode(&start.encode().expect("JSON")).expect("the same");
        let (unproven, confirmed_dead) = (BTreeSet::new(), BTreeSet::new());
        let stage = RunStage::Starting;
        job.run = Some(Run { start: start.clone(), stage, stop: false, unproven, confirmed_dead });
        self.count("starts");
        self.tell(&|| format!("start {id}"));
        self.kube.start(start, RunToken::new("t".to_owned()));
        if self.dice.one_in(2) {
            self.journaled();
        }
    }

    fn stop(&mut self, id: JobId) {
        let job = self.jobs.get_mut(&id).expect("a job");
        let run = job.run.as_mut().expect("alive");
        let running = run.stage == RunStage::Running;
        run.stop = true;
        run.stage = RunStage::Stopping { from: if running { StoppedFrom::Running } else { StoppedFrom::Starting } };
        let attempt = Attempt(job.attempt);
        self.count("stops");
        self.tell(&|| format!("stop {id}"));
        if running {
            self.count("preempted while running");
        }
        self.kube.stop(RunId { job: id, attempt }, Timestamp(self.now + 10_000));
        if self.dice.one_in(2) {
            self.journaled();
        }
    }

    fn reports(&mut self) {
        for report in self.kube.take_reports() {
            match report {
                KubeReport::Submit { object, event } => self.submitted(object, &event),
                KubeReport::Event(event) => self.event(&event),
                KubeReport::Unproven { worker, instance: Some(instance) } => {
                    let job = self.jobs.get_mut(&worker.run.job).filter(|job| job.attempt == worker.run.attempt.0);
                    if let Some(run) = job.and_then(|job| job.run.as_mut()) {
                        run.unproven.insert(instance);
                    }
                    self.count("workers unproven");
                }
                KubeReport::NotAdopted { object, words } if !words.contains("not suspended") => {
                    self.fail(&format!("{object}: {words}"));
                }
                _ => {}
            }
        }
        self.journaled();
    }

    /// An operator who has looked confirms that the workers are dead of which nothing proves it.
    fn confirm_deaths(&mut self) {
        let at_rest = self.jobs.iter().filter(|(id, job)| self.is_at_rest(**id, job)).map(|(id, _)| *id);
        let at_rest: Vec<JobId> = at_rest.collect();
        let mut confirmed = 0;
        for id in at_rest {
            let Some(job) = self.jobs.get_mut(&id) else { continue };
            let Some(run) = job.run.as_mut() else { continue };
            let workers = (0..).zip(&job.places[&job.attempt]);
            let dead: BTreeSet<u32> =
                workers.filter(|(_, on)| run.unproven.contains(*on)).map(|(number, _)| number).collect();
            confirmed += dead.difference(&run.confirmed_dead).count() as u64;
            run.confirmed_dead.extend(dead);
        }
        if confirmed > 0 {
            *self.counts.entry("deaths confirmed").or_insert(0) += confirmed;
            self.tell(&|| "an operator confirms what is dead".to_owned());
            self.journaled();
        }
    }

    /// Whether nothing of a job's attempt runs, and nothing of it can start any more.
    fn is_at_rest(&self, id: JobId, job: &Job) -> bool {
        if self.cluster.processes.values().any(|process| process.job == id.to_string())
            || self.cluster.pods_of(&job.object.uid).iter().any(|(_, pod)| !is_over(pod))
        {
            return false;
        }
        let key = (job.object.kind.resource(), NAMESPACE.to_owned(), job.object.name.clone());
        let there = self.cluster.api.objects.get(&key);
        let Some(object) = there.filter(|object| text(object, "/metadata/uid") == job.object.uid) else { return true };
        let over = |condition: &Value| matches!(text(condition, "/type"), "Complete" | "Completed");
        let complete = object["status"]["conditions"].as_array().is_some_and(|all| all.iter().any(over));
        // Its controller acts on what it saw.
        let suspended = |object: &Value| object["spec"]["suspend"] == true;
        let stopped = suspended(object) && self.cluster.seen.get(&key).is_some_and(suspended);
        let admitted = text(object, "/metadata/annotations/forebay.dev~1admitted") == format!("{id}/{}", job.attempt);
        admitted && (complete || stopped)
    }

    fn submitted(&mut self, object: WorkloadId, event: &Value) {
        assert_eq!((event["id"].as_str(), event["data"]["queue"].as_str()), (Some(object.uid.as_str()), Some("q")));
        if object.namespace != NAMESPACE {
            self.fail(&format!("{object} is of a namespace that is not adopted"));
        }
        if self.jobs.values().any(|job| job.object == object) {
            return self.count("submitted again");
        }
        let id = JobId(self.jobs.len() as u64 + 1);
        let (places, started) = (BTreeMap::new(), BTreeMap::new());
        let job = Job { object, attempt: 0, run: None, done: None, cancelled: false, places, started };
        self.jobs.insert(id, job);
    }

    fn event(&mut self, event: &Event) {
        self.tell(&|| format!("{event:?}"));
        let (id, attempt) = match event {
            Event::JobCancelled { subject, .. } => {
                let found = self.jobs.iter_mut().find(|(_, job)| job.object.to_string() == *subject);
                let Some((_, job)) = found else { self.fail(&format!("{subject} is not known")) };
                job.cancelled = true;
                if job.run.is_none() && job.done.is_none() {
                    job.done = Some("cancelled");
                }
                return;
            }
            Event::RunStarted { job, attempt }
            | Event::RunCompleted { job, attempt, .. }
            | Event::RunFailed { job, attempt, .. }
            | Event::RunStopped { job, attempt, .. } => (*job, attempt.0),
            other => self.fail(&format!("{other:?}")),
        };
        let Some(job) = self.jobs.get_mut(&id).filter(|job| job.attempt == attempt && job.run.is_some()) else {
            return self.count("said again");
        };
        let run = job.run.as_mut().expect("alive");
        if let Event::RunStarted { .. } = event {
            if run.stage == RunStage::Starting {
                run.stage = RunStage::Running;
            }
            let key = (job.object.kind.resource(), NAMESPACE.to_owned(), job.object.name.clone());
            let started: u64 = job.started.values().sum();
            if let Some(object) = self.cluster.api.objects.get(&key)
                && started < workers(object)
            {
                self.fail(&format!("{id}/{attempt} is called started after {started} containers"));
            }
            return;
        }
        if let Some(process) = self.cluster.processes.values().find(|process| process.job == id.to_string()) {
            self.fail(&format!("{event:?} while attempt {} runs on {}", process.attempt, process.instance));
        }
        match event {
            Event::RunCompleted { .. } => {
                job.done = Some("completed");
                job.run = None;
                self.count("completed");
            }
            Event::RunFailed { .. } => self.fail(&format!("{id} failed, and no container did")),
            _ => {
                job.run = None;
                if job.cancelled {
                    job.done = Some("cancelled");
                }
            }
        }
    }

    fn fault(&mut self) {
        match self.dice.below(150) {
            0..6 => self.crash(),
            6..9 => {
                self.cluster.api.compact();
                self.count("watches expired");
            }
            9..11 => self.user(),
            11 => self.lose_node(),
            _ => {}
        }
    }

    /// The process ends; the next one begins with the journal. What was sent may still arrive.
    fn crash(&mut self) {
        self.count("crashes");
        self.tell(&|| "crash".to_owned());
        for (_, call) in std::mem::take(&mut self.flying) {
            if self.dice.one_in(2) && !matches!(call, KubeCall::Watch { .. }) {
                self.check(&call);
                self.cluster.api.call(&call, self.now);
            }
        }
        self.watches.clear();
        self.kube = KubeMachine::new(settings(), "j");
        self.kube.begin(self.view());
        for (id, job) in &self.jobs {
            let Some(run) = &job.run else { continue };
            if run.stop {
                self.kube.stop(RunId { job: *id, attempt: Attempt(job.attempt) }, Timestamp(self.now + 10_000));
            } else if run.stage == RunStage::Starting {
                self.kube.start(run.start.clone(), RunToken::new("t".to_owned()));
            }
        }
    }

    fn user(&mut self) {
        let keys = self.workloads();
        if keys.is_empty() {
            return;
        }
        let key = keys[self.dice.below(keys.len() as u64) as usize].clone();
        let uid = text(&self.cluster.api.objects[&key], "/metadata/uid").to_owned();
        let known = self.jobs.values().any(|job| job.object.uid == uid);
        let suspended = self.cluster.api.objects[&key]["spec"]["suspend"] == true;
        match self.dice.below(5) {
            0 => {
                self.count("objects deleted");
                self.cluster.api.delete(&key, 0, self.now, true);
                for (pod, object) in self.cluster.pods_of(&uid) {
                    if !deleting(&object) {
                        self.cluster.api.delete(&pod, 1000, self.now, false);
                    }
                }
            }
            1 | 2 if suspended && known => {
                // Its pods find no node: none has the label of an attempt that is not there.
                let never = self.cluster.api.objects[&key]["metadata"]["annotations"]["forebay.dev/admitted"].is_null();
                if never {
                    return;
                }
                self.count("unsuspended by a user");
                self.cluster.api.edit(&key, |object| object["spec"]["suspend"] = json!(false));
            }
            _ if !suspended => {
                self.count("suspended by a user");
                self.cluster.api.edit(&key, |object| object["spec"]["suspend"] = json!(true));
            }
            _ => {}
        }
    }

    /// A node is lost with all that runs there; the engine learns it, and the garbage collector of pods acts.
    fn lose_node(&mut self) {
        let all: Vec<String> = self.claims.iter().cloned().collect();
        if all.len() < 3 {
            return;
        }
        self.count("nodes lost");
        let instance = all[self.dice.below(all.len() as u64) as usize].clone();
        let node = instance.replace('i', "n");
        self.claims.remove(&instance);
        self.cluster.processes.retain(|_, process| process.instance != instance);
        self.cluster.api.delete(&(Resource::Nodes, String::new(), node.clone()), 0, self.now, true);
        // Those that have completed are counted by their controller before they go; here they stay.
        let on_it = |(key, pod): &(&ObjectKey, &Value)| {
            key.0 == Resource::Pods && text(pod, "/spec/nodeName") == node && !is_over(pod)
        };
        let pods: Vec<ObjectKey> = self.cluster.api.objects.iter().filter(on_it).map(|(key, _)| key.clone()).collect();
        for pod in pods {
            self.cluster.api.delete(&pod, 0, self.now, true);
        }
        let next = 5 + self.counts["nodes lost"];
        self.boot(next);
        self.journaled();
    }
}

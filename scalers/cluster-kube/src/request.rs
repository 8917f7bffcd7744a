//! The start of a gang as it is requested: everything that its pods are made of, frozen when it is decided. The same request always makes
//! the same pods.
//!
//! ```text
//! decision + job + template + settings -> GangStart -> journal, with the decision -> Service, ConfigMap, pods, Bindings
//! ```
//!
//! A journaled request does not change when the template or the configuration does.

use crate::adoption::WorkloadId;
use crate::names::{RunId, WorkerId, effect_id, journal_label, pod_name, service_name};
use crate::settings::KubeSettings;
use crate::template::{RunFields, TemplateSet, escaped};
use crate::view::profiles;
use forebay_kernel::effect::{Action, Effect, WorkerPlace};
use forebay_kernel::ids::{Attempt, JobId};
use forebay_kernel::job::{Gang, JobSpec, WorkerAsk};
use forebay_kernel::state::State;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The most workers of a gang: each has a line of at most 60 bytes in the hostfile, and a ConfigMap takes 1 MiB.
pub const MOST_GANG_WORKERS: usize = 16_384;

/// The request for a start. Its JSON is part of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GangStart {
    /// Run it.
    Run(Box<GangRequest>),
    /// Unsuspend the object of others that it is.
    Adopted(Box<AdoptedStart>),
    /// It cannot be run as the template and the job are: what, where, and how to mend it.
    Refused {
        /// The number of the job.
        job: u64,
        /// The number of the attempt.
        attempt: u32,
        /// What the job's submitter is told.
        why: String,
    },
}

/// A gang as it is requested.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GangRequest {
    /// The whole id of the effect, see [`effect_id`].
    pub effect: String,
    /// The journal that decided it, whatever its incarnation.
    pub journal: String,
    /// The number of the job.
    pub job: u64,
    /// The number of the attempt.
    pub attempt: u32,
    /// The job's name.
    pub subject: String,
    /// Where it runs.
    pub namespace: String,
    /// The name of its Service and ConfigMap.
    pub service: String,
    /// The pod of every worker, without what differs between them.
    pub pod: Value,
    /// The name of the container that works.
    pub container: String,
    /// The workers, by their numbers.
    pub workers: Vec<WorkerRequest>,
    /// The fewest workers that the gang goes on with; below the number of workers for elastic ones.
    pub min_workers: u32,
    /// The port of worker 0 at which they meet.
    pub master_port: u16,
    /// Environment of every worker.
    pub env: Vec<(String, String)>,
}

/// An adopted object as its start is requested.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdoptedStart {
    /// The whole id of the effect, see [`effect_id`].
    pub effect: String,
    /// The journal that decided it, whatever its incarnation.
    pub journal: String,
    /// The number of the job.
    pub job: u64,
    /// The number of the attempt.
    pub attempt: u32,
    /// The object, as [`WorkloadId`] is written.
    pub object: String,
    /// Whose job it is.
    pub tenant: String,
    /// The cloud's ids of the instances that it is for. `None`: the engine does not know one.
    pub instances: Vec<Option<String>>,
}

/// One worker as it is requested.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerRequest {
    /// The cloud's id of its instance. `None`: the engine does not know it.
    pub instance: Option<String>,
    /// Its GPUs, for the hostfile and for torchrun. 0: none.
    pub gpus: u32,
    /// What is requested of each resource, as Kubernetes writes quantities.
    pub requests: BTreeMap<String, String>,
    /// What it may use of each resource.
    pub limits: BTreeMap<String, String>,
}

/// The token with which the workers of an attempt may report for it. It is beside the request, which is journaled, and never in it.
#[derive(Clone, PartialEq, Eq)]
pub struct RunToken(String);

impl RunToken {
    /// From its text.
    #[must_use]
    pub fn new(text: String) -> RunToken {
        RunToken(text)
    }

    /// Its text, for the Secret.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for RunToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RunToken")
    }
}

impl GangStart {
    /// The request for a start effect. `None`: the effect is no start, or its job is over.
    #[must_use]
    pub fn from_effect(
        settings: &KubeSettings,
        templates: &TemplateSet,
        journal: &str,
        effect: &Effect,
        state: &State,
    ) -> Option<GangStart> {
        let Action::Start { job, attempt, workers, resume_from } = &effect.action else { return None };
        let (_, spec) = state.job(*job)?;
        let run = RunId { job: *job, attempt: *attempt };
        let refused = |why: String| GangStart::Refused { job: job.0, attempt: attempt.0, why };
        if let Some(object) = WorkloadId::of_job(&spec.principal, &spec.subject) {
            if !settings.adopt.contains(&object.namespace) {
                return Some(refused(format!(
                    "nothing of namespace {} is adopted: write it under `kubernetes.adopt`, or cancel the job",
                    object.namespace
                )));
            }
            let places = workers.iter().map(|place| state.node(place.node).and_then(|node| node.instance.clone()));
            let instances: BTreeSet<Option<String>> = places.collect();
            return Some(GangStart::Adopted(Box::new(AdoptedStart {
                effect: effect_id(journal, effect.id),
                journal: journal_label(journal),
                job: job.0,
                attempt: attempt.0,
                object: object.to_string(),
                tenant: spec.tenant.clone(),
                instances: instances.into_iter().collect(),
            })));
        }
        if workers.len() > MOST_GANG_WORKERS {
            return Some(refused(format!(
                "{} workers are more than the {MOST_GANG_WORKERS} that one gang may have here; ask for fewer, larger workers",
                workers.len()
            )));
        }
        let fields = match RunFields::of(&spec.run) {
            Ok(fields) => fields,
            Err(why) => return Some(refused(why.to_string())),
        };
        let rendered = match templates.render(&spec.queue, &fields) {
            Ok(rendered) => rendered,
            Err(why) => return Some(refused(why.to_string())),
        };
        let id = effect_id(journal, effect.id);
        let places = workers.iter().map(|place| worker(settings, state, spec, place));
        let workers: Vec<WorkerRequest> = places.collect();
        let min_workers = if let Gang::Workers { min, .. } = spec.gang { min } else { workers.len() as u32 };
        Some(GangStart::Run(Box::new(GangRequest {
            journal: journal_label(journal),
            job: job.0,
            attempt: attempt.0,
            subject: spec.subject.clone(),
            namespace: settings.namespace_of(&spec.queue).to_owned(),
            service: service_name(run, &id),
            effect: id,
            pod: rendered.pod(settings, spec.checkpoint.map(|saves| saves.grace)),
            container: rendered.container,
            min_workers: min_workers.min(workers.len() as u32),
            workers,
            master_port: settings.master_port,
            env: environment(settings, spec, resume_from.0 / 1000, rendered.env, &fields),
        })))
    }

    /// The bytes for the journal, in JSON.
    ///
    /// # Errors
    /// The request cannot be written as JSON: a fault of this program.
    pub fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }

    /// The inverse of [`GangStart::encode`].
    ///
    /// # Errors
    /// The bytes are not a request.
    pub fn decode(bytes: &[u8]) -> Result<GangStart, serde_json::Error> {
        serde_json::from_slice(bytes)
    }

    /// Which attempt it starts.
    #[must_use]
    pub fn run(&self) -> RunId {
        let (job, attempt) = match self {
            GangStart::Run(request) => (request.job, request.attempt),
            GangStart::Adopted(request) => (request.job, request.attempt),
            GangStart::Refused { job, attempt, .. } => (*job, *attempt),
        };
        RunId { job: JobId(job), attempt: Attempt(attempt) }
    }
}

impl GangRequest {
    /// Which attempt it starts.
    #[must_use]
    pub fn run(&self) -> RunId {
        RunId { job: JobId(self.job), attempt: Attempt(self.attempt) }
    }

    /// The name of a worker's pod.
    #[must_use]
    pub fn pod_name(&self, worker: u32) -> String {
        pod_name(&self.subject, WorkerId { run: self.run(), worker }, &self.effect)
    }
}

/// The environment of all workers: what the job sets comes first, so that nothing of ours is replaced.
fn environment(
    settings: &KubeSettings,
    spec: &JobSpec,
    resume_s: u64,
    mut env: Vec<(String, String)>,
    fields: &RunFields,
) -> Vec<(String, String)> {
    env.push(("FOREBAY_RESUME_S".to_owned(), resume_s.to_string()));
    env.extend(settings.report_url.iter().map(|url| ("FOREBAY_URL".to_owned(), url.clone())));
    if let Some(uri) = &fields.checkpoint_uri {
        env.push(("FOREBAY_CHECKPOINT_URI".to_owned(), escaped(uri)));
    }
    if let Some(saves) = spec.checkpoint {
        env.push(("FOREBAY_GRACE_S".to_owned(), (saves.grace.0 / 1000).to_string()));
    }
    env
}

fn worker(settings: &KubeSettings, state: &State, spec: &JobSpec, place: &WorkerPlace) -> WorkerRequest {
    let gpus = place.gpus.count_ones();
    let (ask, times) = match spec.gang {
        Gang::Workers { each, .. } => (each, 1),
        Gang::Spanning { per_gpu, .. } => (per_gpu, u64::from(gpus)),
    };
    let node = state.node(place.node);
    let mut limits = BTreeMap::new();
    if gpus > 0 {
        let (resource, count) = gpu_resource(settings, state, place, &ask);
        limits.insert(resource, count.to_string());
    }
    let mut requests = limits.clone();
    if ask.cpu.0 > 0 {
        requests.insert("cpu".to_owned(), format!("{}m", ask.cpu.0 * times));
    }
    if ask.mem.0 > 0 {
        requests.insert("memory".to_owned(), format!("{}Mi", ask.mem.0 * times));
        limits.insert("memory".to_owned(), format!("{}Mi", ask.mem.0 * times));
    }
    WorkerRequest { instance: node.and_then(|node| node.instance.clone()), gpus, requests, limits }
}

/// The resource of a worker's GPUs, and how many of it.
fn gpu_resource(settings: &KubeSettings, state: &State, place: &WorkerPlace, ask: &WorkerAsk) -> (String, u64) {
    let gpus = u64::from(place.gpus.count_ones());
    let Some(node) = state.node(place.node) else { return (settings.gpu_resource.clone(), gpus) };
    if let (Some(slice), Some(partition)) = (place.slice, &node.partition) {
        let profile = profiles(state, node.pool, partition.layout).into_iter().nth(usize::from(slice));
        if let Some(profile) = profile {
            return (format!("{}{profile}", settings.mig_resource_prefix), 1);
        }
    }
    let pool = state.policy().and_then(|policy| policy.pools.get(node.pool.index()));
    match pool.and_then(|pool| pool.sharing) {
        Some(sharing) => {
            let slices = u64::from(sharing.time_slices.max(1));
            // Rounded up: a worker has at least what it holds.
            let each = (slices * u64::from(place.share.max(ask.share.min(1000)))).div_ceil(1000).max(1);
            (settings.shared_gpu_resource.clone(), gpus * each)
        }
        None => (settings.gpu_resource.clone(), gpus),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::PodTemplate;
    use forebay_kernel::effect::WorkerPlace;
    use forebay_kernel::event::{Event, EventOutcome, Tick};
    use forebay_kernel::ids::{NodeId, Seq};
    use forebay_kernel::job::Checkpointing;
    use forebay_kernel::journal::APPLY_VERSION;
    use forebay_kernel::machine::StateMachine;
    use forebay_kernel::policy::{Policy, Tier};
    use forebay_kernel::units::{Span, Timestamp};
    use serde_json::json;

    /// A text of an event that Kubernetes would change in every way that it knows.
    const HOSTILE: &str = "$(X) $$ $$(X) $$$(X) $x $( $";
    /// What every variable is, in [`expanded`].
    const EXPANDED: &str = "EXPANDED";

    /// A text as Kubernetes expands it, by its package `expansion`, where every variable is set.
    fn expanded(text: &str) -> String {
        let (mut all, mut rest) = (String::new(), text);
        while let Some((before, after)) = rest.split_once('$') {
            all.push_str(before);
            rest = if let Some(after) = after.strip_prefix('$') {
                all.push('$');
                after
            } else if let Some((_, after)) = after.strip_prefix('(').and_then(|name| name.split_once(')')) {
                all.push_str(EXPANDED);
                after
            } else {
                all.push('$');
                after
            };
        }
        all + rest
    }

    /// The pod of a worker of a job with these fields, whose own names are hostile too.
    fn pod_of(fields: &Value) -> Value {
        let template = "name: train\nqueues: [research]\nimages: [reg/team/]\nenv: [EPOCHS, NAME]\npod: {spec: {containers: [{name: worker}]}}";
        let templates = TemplateSet::new([PodTemplate::parse(template).unwrap()]).unwrap();
        let settings =
            KubeSettings { report_url: Some("http://f:1".to_owned()), ..KubeSettings::new("jobs", "forebay:1") };
        let spec = JobSpec {
            tenant: HOSTILE.to_owned(),
            subject: HOSTILE.to_owned(),
            principal: HOSTILE.to_owned(),
            queue: "research".to_owned(),
            batch: Some(HOSTILE.to_owned()),
            checkpoint: Some(Checkpointing { every: Span::mins(10), grace: Span::secs(60) }),
            labels: BTreeMap::from([("team".to_owned(), HOSTILE.to_owned())]),
            run: fields.to_string().into_bytes(),
            ..JobSpec::default()
        };
        let mut machine = StateMachine::default();
        machine.apply_tick(Tick { now: Timestamp(1), resumed: false, delivered: 0 }, APPLY_VERSION);
        let policy = Policy { tiers: vec![Tier::default()], ..Policy::default() };
        let _ = machine.apply_event(&Event::Configured(Box::new(policy)));
        let EventOutcome::Submitted(job) = machine.apply_event(&Event::JobSubmitted(Box::new(spec))) else {
            panic!("a job")
        };
        let place = WorkerPlace { node: NodeId(1), gpus: 1, share: 1000, slice: None };
        let action = Action::Start { job, attempt: Attempt(1), workers: vec![place], resume_from: Span::ZERO };
        let effect = Effect { id: Seq(7), action };
        let start = GangStart::from_effect(&settings, &templates, "j", &effect, &machine).unwrap();
        let GangStart::Run(request) = start else { panic!("a gang") };
        request.pod_body(0).unwrap()
    }

    /// Every text that Kubernetes expands in a pod: of each container the variables, by their names, the command and the arguments.
    fn texts(pod: &Value) -> Vec<(String, String)> {
        let list = |of: &Value, name: &str| of[name].as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut texts = Vec::new();
        for container in ["initContainers", "containers"].into_iter().flat_map(|kind| list(&pod["spec"], kind)) {
            texts.extend(list(&container, "env").iter().map(|one| (text(&one["name"]), text(&one["value"]))));
            for kind in ["command", "args"] {
                texts.extend(list(&container, kind).iter().map(|one| (kind.to_owned(), text(one))));
            }
        }
        texts
    }

    #[test]
    fn kubernetes_expands_nothing_that_comes_of_an_event() {
        assert_eq!(expanded(HOSTILE), "EXPANDED $ $(X) $EXPANDED $x $( $");
        let uri = format!("s3://bucket/{HOSTILE}");
        let fields = json!({"checkpoint.uri": uri, "run": {"template": "train", "image": "reg/team/a", "args": [HOSTILE],
            "env": {"EPOCHS": HOSTILE, "NAME": HOSTILE}, "secrets": [], "volumes": []}});
        // A field that is new belongs into this test.
        let RunFields { template: _, image: _, args: _, env: _, secrets: _, volumes: _, checkpoint_uri } =
            RunFields::of(fields.to_string().as_bytes()).unwrap();
        assert_eq!(checkpoint_uri.as_deref(), Some(uri.as_str()));
        let mut kept = Vec::new();
        for (name, text) in texts(&pod_of(&fields)) {
            let now = expanded(&text);
            assert!(!now.contains(EXPANDED), "{name}: {text}");
            if text.contains("(X)") {
                assert!(now.ends_with(HOSTILE), "{name}: {now}");
                kept.push(name);
            }
        }
        kept.sort();
        assert_eq!(kept, ["EPOCHS", "FOREBAY_CHECKPOINT_URI", "NAME", "args"]);
    }
}

//! Kubernetes by the configuration: settings and templates, the executors of the driver's effects, and the task that runs the adapter's machine.

mod adopted;
mod agent_tokens;
mod claims;
mod logs;
mod probe;
mod task;
mod uninstall;

pub(super) use probe::probe;
pub(super) use uninstall::remove_finalizers;

use super::log_archive::LogArchive;
use super::{AgentTokens, Cluster, ClusterError, ClusterLogs, ClusterNotes, OpenedCluster, Terminate};
use crate::clock::OutsideClock;
use crate::config::kubernetes::KubernetesConfig;
use crate::driver::{EffectExecutor, EffectRequest};
use forebay_cluster_kube::client::{CredentialSource, KubeClient, MachineCommand};
use forebay_cluster_kube::template::{PodTemplate, TemplateSet};
use forebay_cluster_kube::{EngineView, GangStart, KubeRateSettings, KubeSettings, RunId, RunToken};
use forebay_driver::journal::JournalIdentity;
use forebay_kernel::effect::{Action, Effect};
use forebay_kernel::ids::Seq;
use forebay_kernel::state::State;
use forebay_kernel::units::{Span, Timestamp};
use forebay_quantity::Time;
use forebay_source::Health;
use forebay_wire::intake::AttemptKeys;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// The most bytes of one template: a Pod in etcd has 1.5 MiB at most.
const MOST_TEMPLATE: u64 = 1 << 20;

/// A command of the driver to the task. The engine's bounds on runs and claims bound how many wait.
enum TaskCommand {
    /// The driver starts.
    Begin { journal: Box<JournalIdentity>, first_effect: Seq, view: Box<EngineView>, now: Timestamp },
    /// Something to do.
    Machine(MachineCommand),
}

/// Sends the effects of the cluster to the task.
struct KubeExecutor {
    settings: KubeSettings,
    templates: TemplateSet,
    journal: JournalIdentity,
    /// The journal's folder, where the key of attempt tokens is.
    folder: PathBuf,
    /// `None`: it has not begun.
    key: Option<AttemptKeys>,
    commands: UnboundedSender<TaskCommand>,
}

/// The cloud's executor with terminations that wait until nothing is bound to the node.
struct DrainFirst {
    cloud: Box<dyn EffectExecutor>,
    commands: UnboundedSender<TaskCommand>,
}

/// Checks settings and templates.
pub(super) fn check(config: &KubernetesConfig) -> Result<(), ClusterError> {
    templates(&config.templates).map(drop)
}

/// Opens the cluster.
pub(super) fn open(
    config: &KubernetesConfig,
    folder: &Path,
    cloud: Box<dyn EffectExecutor>,
    terminate: Terminate,
) -> Result<OpenedCluster, ClusterError> {
    let (settings, templates) = (settings(config), templates(&config.templates)?);
    let (health, notes) = (Health::default(), ClusterNotes::default());
    let (commands, receiver) = unbounded_channel();
    let archive = LogArchive::new(folder);
    let (logs, requests) = ClusterLogs::new(archive.clone());
    let (agents, reviews) = AgentTokens::new(&config.agents);
    let asked = task::Asked { logs: requests, reviews };
    let outside = task::Outside {
        source: source(config),
        settings: settings.clone(),
        terminate,
        notes: notes.clone(),
        health: health.clone(),
        archive,
    };
    let task = Box::new(move |handle, checkpoints| {
        let work = move || task::run(outside, receiver, asked, handle, checkpoints);
        std::thread::Builder::new().name("kubernetes".to_owned()).spawn(work)
    });
    let name = format!("kubernetes:{}", config.namespace);
    let drains = DrainFirst { cloud, commands: commands.clone() };
    let journal = JournalIdentity::default();
    let executor = KubeExecutor { settings, templates, journal, folder: folder.to_owned(), key: None, commands };
    Ok(OpenedCluster {
        cluster: Cluster { health, name, notes, logs, agents: (!config.agents.is_empty()).then_some(agents), task },
        executor: Box::new(executor),
        cloud: Box::new(drains),
    })
}

/// The API server's clock: the `Date` of an answer.
pub(super) fn outside_clock(config: &KubernetesConfig) -> OutsideClock {
    let source = source(config);
    let ask = move |patience| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
        let date = async { KubeClient::connect(&source).await.ok()?.date().await };
        runtime.block_on(async { tokio::time::timeout(patience, date).await.ok().flatten() })
    };
    OutsideClock { name: format!("kubernetes:{}", config.namespace), ask: Arc::new(ask) }
}

/// Where the credentials are.
fn source(config: &KubernetesConfig) -> CredentialSource {
    source_of(config.kubeconfig.clone(), config.context.clone())
}

/// The same, where a configuration may not name it.
fn source_of(kubeconfig: Option<PathBuf>, context: Option<String>) -> CredentialSource {
    let named = kubeconfig.or_else(|| std::env::var_os("KUBECONFIG").map(PathBuf::from));
    match named {
        Some(path) => CredentialSource::Kubeconfig { path, context },
        None if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() => CredentialSource::InCluster,
        None => {
            let home = std::env::home_dir().unwrap_or_default();
            CredentialSource::Kubeconfig { path: home.join(".kube/config"), context }
        }
    }
}

/// The longest time for which a deleted pod stays until its log is kept: longer than a log is tried to be read.
const LOG_WAIT: Span = Span::secs(30);

fn settings(config: &KubernetesConfig) -> KubeSettings {
    KubeSettings {
        namespaces: config.namespaces.clone(),
        report_url: config.report_url.clone(),
        adopt: config.adopt.iter().cloned().collect(),
        evict_deadline: config.evict_deadline.map(|Time(span)| span),
        rates: rates(config),
        log_wait: LOG_WAIT,
        ..KubeSettings::new(&config.namespace, &config.gate_image)
    }
}

fn rates(config: &KubernetesConfig) -> KubeRateSettings {
    let usual = KubeRateSettings::default();
    let Some(rates) = config.rates else { return usual };
    let writes_per_second = rates.writes_per_second.unwrap_or(usual.writes_per_second);
    let reads_per_second = rates.reads_per_second.unwrap_or(usual.reads_per_second);
    KubeRateSettings {
        writes_per_second,
        write_burst: writes_per_second.saturating_mul(2),
        reads_per_second,
        read_burst: reads_per_second.saturating_mul(2),
        in_flight: rates.in_flight.map_or(usual.in_flight, |calls| calls as usize),
    }
}

/// All templates of a folder.
fn templates(folder: &Path) -> Result<TemplateSet, ClusterError> {
    let told = |path: &Path, what: &dyn std::fmt::Display| ClusterError::Setting(format!("{}: {what}", path.display()));
    let unread = |path: &Path, error: std::io::Error| {
        told(path, &format_args!("{error}: name a folder with templates that can be read under `templates`"))
    };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|e| unread(folder, e))? {
        let path = entry.map_err(|e| unread(folder, e))?.path();
        let kind = path.extension().and_then(std::ffi::OsStr::to_str);
        if matches!(kind, Some("yaml" | "yml" | "json")) {
            paths.push(path);
        }
    }
    paths.sort();
    if paths.is_empty() {
        return Err(told(
            folder,
            &"no template is in there, so no job could run: write one, as docs/KUBERNETES.md shows",
        ));
    }
    let mut all = Vec::new();
    for path in &paths {
        let size = std::fs::metadata(path).map_err(|e| unread(path, e))?.len();
        if size > MOST_TEMPLATE {
            return Err(told(path, &format_args!("{size} bytes are too many for a template: at most {MOST_TEMPLATE}")));
        }
        let text = std::fs::read_to_string(path).map_err(|e| unread(path, e))?;
        all.push(PodTemplate::parse(&text).map_err(|e| told(path, &e))?);
    }
    TemplateSet::new(all).map_err(|e| told(folder, &e))
}

impl KubeExecutor {
    fn send(&self, command: MachineCommand) {
        // The task ends only with the process, and the journal has the effect.
        let _ = self.commands.send(TaskCommand::Machine(command));
    }

    fn start_of(&self, effect: &Effect, state: &State) -> Option<GangStart> {
        let journal = self.journal.of_effect(effect.id).to_string();
        GangStart::from_effect(&self.settings, &self.templates, &journal, effect, state)
    }
}

impl EffectExecutor for KubeExecutor {
    fn begin(&mut self, journal: &JournalIdentity, state: &State) {
        self.journal = journal.clone();
        // What cannot be read stops the controller elsewhere, with the remedy.
        self.key = crate::key::load_or_create(&self.folder).ok().map(|key| AttemptKeys::of(key, journal));
        let view = Box::new(EngineView::of(state, &self.settings));
        let (journal, first_effect) = (Box::new(self.journal.clone()), Seq(state.counters().next_seq));
        let _ = self.commands.send(TaskCommand::Begin { journal, first_effect, view, now: state.now() });
    }

    fn freeze(&mut self, effect: &Effect, state: &State) -> Option<Vec<u8>> {
        match self.start_of(effect, state)?.encode() {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                tracing::error!(%error, effect = %effect.id, "the pods of a gang cannot be written to the journal; report it");
                None
            }
        }
    }

    fn execute(&mut self, asked: EffectRequest<'_>) {
        match &asked.effect.action {
            Action::Start { .. } => {
                let frozen = asked.frozen.and_then(|bytes| GangStart::decode(bytes).ok());
                let start = frozen.or_else(|| self.start_of(asked.effect, asked.state));
                if let (Some(start), Some(key)) = (start, &self.key) {
                    let run = start.run();
                    let token = RunToken::new(key.token(run.job, run.attempt));
                    self.send(MachineCommand::Start(Box::new(start), token));
                }
            }
            Action::Stop { job, attempt, deadline, .. } => {
                let run = RunId { job: *job, attempt: *attempt };
                self.send(MachineCommand::Stop { run, deadline: *deadline });
            }
            Action::Shrink { job, attempt, leave, deadline } => {
                let run = RunId { job: *job, attempt: *attempt };
                self.send(MachineCommand::Shrink { run, leave: leave.clone(), deadline: *deadline });
            }
            Action::Launch { .. } | Action::Terminate { .. } => {}
        }
    }

    /// Its task asks for what the engine knows by itself.
    fn observe(&mut self, _: &State) {}
}

impl EffectExecutor for DrainFirst {
    fn begin(&mut self, journal: &JournalIdentity, state: &State) {
        self.cloud.begin(journal, state);
    }

    fn observe(&mut self, state: &State) {
        self.cloud.observe(state);
    }

    fn freeze(&mut self, effect: &Effect, state: &State) -> Option<Vec<u8>> {
        self.cloud.freeze(effect, state)
    }

    fn execute(&mut self, asked: EffectRequest<'_>) {
        match &asked.effect.action {
            Action::Terminate { instance, .. } => {
                let command = MachineCommand::Drain { instance: instance.clone() };
                let _ = self.commands.send(TaskCommand::Machine(command));
            }
            _ => self.cloud.execute(asked),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_templates_is_read_and_its_faults_name_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let none = templates(folder.path()).expect_err("empty").to_string();
        assert!(none.contains("no template is in there"), "{none}");
        std::fs::write(folder.path().join("README.md"), "not one").expect("written");
        let train = "name: train\nqueues: [research]\nimages: [registry.example.com/]\npod: {spec: {containers: [{name: worker}]}}\n";
        std::fs::write(folder.path().join("train.yaml"), train).expect("written");
        assert!(templates(folder.path()).expect("read").named("train").is_some());
        std::fs::write(folder.path().join("twin.yaml"), train).expect("written");
        let twins = templates(folder.path()).expect_err("twins").to_string();
        assert!(twins.contains("two templates have this name"), "{twins}");
        std::fs::write(folder.path().join("twin.yaml"), "name: [").expect("written");
        let broken = templates(folder.path()).expect_err("broken").to_string();
        assert!(broken.contains("twin.yaml"), "{broken}");
        let gone = templates(&folder.path().join("none")).expect_err("gone").to_string();
        assert!(gone.contains("none") && gone.contains("`templates`"), "{gone}");
    }

    #[test]
    fn the_agent_finds_in_a_workers_volume_what_it_reads() {
        use forebay_node_agent::{NAMESPACE_FILE, POD_FILE, WORKER_FILE, WORKER_VOLUME};
        let train = "name: train\nqueues: [research]\nimages: [registry.example.com/]\npod: {spec: {containers: [{name: worker}]}}\n";
        let templates = TemplateSet::new([PodTemplate::parse(train).expect("a template")]).expect("one");
        let settings = KubeSettings::new("jobs", "forebay:1");
        let template = templates.named("train").expect("it is there");
        let pod = forebay_cluster_kube::TrialPod::of(&settings, &templates, template).expect("a pod").body;
        let volumes = pod["spec"]["volumes"].as_array().expect("volumes");
        let volume = volumes.iter().find(|volume| volume["name"] == WORKER_VOLUME).expect("the agent's volume");
        let items = volume["downwardAPI"]["items"].as_array().expect("items");
        for (file, field) in [
            (WORKER_FILE, "metadata.annotations['forebay.dev/worker']"),
            (NAMESPACE_FILE, "metadata.namespace"),
            (POD_FILE, "metadata.name"),
        ] {
            let item = items.iter().find(|item| item["path"] == file);
            let item = item.unwrap_or_else(|| panic!("no file `{file}` in {volume}"));
            assert_eq!(item["fieldRef"]["fieldPath"], field, "{file}");
        }
    }
}

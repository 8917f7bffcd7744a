//! A real Kubernetes control plane: etcd, kube-apiserver, and as asked for kube-controller-manager, kube-scheduler, JobSet's controller, and
//! kwok for kubelets.
//!
//! ```text
//! start: build once -> free ports -> certificates, token, kubeconfig -> etcd -> kube-apiserver -> /readyz -> the others -> /healthz
//! kill_api_server, restart_api_server: the same address, the same certificates, and what etcd holds
//! ```
//!
//! RBAC is on. The kubeconfig is an administrator's; a test that wants fewer rights makes a service account.
//! Never: a kubelet, a container, a network between pods, an address beyond loopback, a token on a command line or in `Debug`.

mod kubectl;
mod kwok;
mod nodes;
mod programs;
mod server;
mod settings;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tempfile::TempDir;

use crate::guarded::guarded;
use crate::install;
use crate::ports::STARTS;
use crate::secure::Secure;
use crate::wait::{tail, until};
use crate::{PartError, RepeatingThread, http, ports};

pub use nodes::{NodeBridge, NodeBridgeOptions};

use kubectl::Kubectl;
use programs::Programs;
use server::Server;
use settings::Ports;

const PART: &str = "Kubernetes";

/// Five seconds for the API server on two idle cores, many times that where others build.
const READY_LIMIT: Duration = Duration::from_secs(300);

/// How a Kubernetes is to be started. The default: etcd and the API server alone, on a free port.
#[derive(Clone, Debug, Default)]
pub struct KubernetesOptions {
    /// Where clients connect; a free port where it is not given.
    pub port: Option<u16>,
    /// Whether kube-controller-manager runs: node lifecycle, garbage collection, namespaces, quotas, service accounts, Jobs. Without it, no
    /// namespace has a service account, so the admission plugin that asks for one is off.
    pub controller_manager: bool,
    /// Whether kube-scheduler runs.
    pub scheduler: bool,
    /// Further flags of kube-scheduler, such as `--kube-api-qps=1000`.
    pub scheduler_flags: Vec<String>,
    /// What stands in for kubelets.
    pub kwok: Option<KwokOptions>,
    /// Whether JobSet's CustomResourceDefinition is there.
    pub jobset: bool,
    /// Whether JobSet's controller runs, too, without its webhooks.
    pub jobset_controller: bool,
    /// Whether the API server writes down each request of a service account, for [`Kubernetes::audited`].
    pub audit: bool,
    /// Further flags of kube-apiserver, such as `--watch-cache=false`; they win over what is set here.
    pub api_server_flags: Vec<String>,
}

/// What kwok does in the place of kubelets.
#[derive(Clone, Debug, Default)]
pub struct KwokOptions {
    /// The label of the nodes that it plays, such as `kwok=true`; all nodes where none is given.
    pub node_selector: Option<String>,
    /// Its stages as YAML; [`KWOK_STAGES`] where none are given.
    pub stages: Option<String>,
}

/// The stages that kwok plays by default: a node that comes is ready; a pod that is bound runs, after its start barrier; an annotation ends it.
pub const KWOK_STAGES: &str = include_str!("../kube/stages.yaml");

/// A Kubernetes that was started; ended when dropped, and when the process that holds it ends in whatever way.
pub struct Kubernetes {
    kubectl: Kubectl,
    ports: Ports,
    url: String,
    secure: Secure,
    /// Where there is a kwok. Dropped before the servers: fields go in the order in which they stand.
    kwok_patience: Option<RepeatingThread>,
    etcd: Server,
    /// Behind a lock, so that one who shares a Kubernetes may restart it.
    api_server: Mutex<Server>,
    /// kube-controller-manager, kube-scheduler, kwok: those that were asked for.
    others: Vec<Server>,
    /// Dropped after the servers.
    folder: TempDir,
}

impl Kubernetes {
    /// Builds its programs into the cache where they are not there yet, and prints that it does.
    ///
    /// # Errors
    /// When there is no Go, its modules cannot be fetched, or a build fails.
    pub fn install() -> Result<(), PartError> {
        Programs::install()?;
        programs::jobset_crd()?;
        programs::jobset_manager()?;
        Ok(())
    }

    /// Installs it if need be, starts it, and waits until each of its servers says that it is ready.
    ///
    /// # Errors
    /// When something that it needs is missing, when the port that is asked for is taken, or when a server is not ready within two minutes;
    /// the error then has the end of its log.
    pub fn start(options: KubernetesOptions) -> Result<Self, PartError> {
        let programs = Programs::install()?;
        let jobset = (options.jobset || options.jobset_controller).then(programs::jobset_crd).transpose()?;
        let manager = options.jobset_controller.then(programs::jobset_manager).transpose()?;
        let mut starts = 0;
        loop {
            starts += 1;
            let mut kubernetes = Self::prepare(&options, &programs)?;
            match kubernetes.run() {
                Ok(()) => {
                    if let Some(crd) = &jobset {
                        kubernetes.kubectl(&["apply", "--server-side", "-f", &crd.to_string_lossy()], "")?;
                        // The API server serves a resource a moment after it has its definition.
                        kubernetes.wait_until(&["get", "jobsets"], |text| text.starts_with("No resources found"))?;
                        // And describes it another moment later.
                        kubernetes.wait_until(&["explain", "jobset.spec"], |text| text.contains("replicatedJobs"))?;
                    }
                    if let Some(manager) = &manager {
                        kubernetes.run_jobset_manager(manager)?;
                    }
                    return Ok(kubernetes);
                }
                Err(PartError::NotReady { tail, .. }) if tail.contains("address already in use") && starts < STARTS => {
                    eprintln!("somebody took one of Kubernetes' ports before it did; it is started on others");
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes its certificates, keys and settings, all that is done once.
    fn prepare(options: &KubernetesOptions, programs: &Programs) -> Result<Self, PartError> {
        let folder = install::temporary("forebay-kube-")?;
        let at = folder.path();
        let ports = Ports::free(options.port)?;
        let secure = Secure::make(at)?;
        settings::write(at, &secure, ports, options)?;
        let server = |name, program, flags| Server::new(name, program, flags, at);
        let etcd = server("etcd", programs.etcd(), settings::etcd(at, ports));
        let program = programs.kubernetes("kube-apiserver");
        let api_server = Mutex::new(server("kube-apiserver", program, settings::api_server(at, ports, options)));
        let mut others = Vec::new();
        if options.controller_manager {
            let program = programs.kubernetes("kube-controller-manager");
            others.push(server("kube-controller-manager", program, settings::controller_manager(at, ports)));
        }
        if options.scheduler {
            let program = programs.kubernetes("kube-scheduler");
            others.push(server("kube-scheduler", program, settings::scheduler(at, ports, options)));
        }
        if let Some(kwok) = &options.kwok {
            others.push(server("kwok", programs.kwok(), settings::kwok(at, ports, kwok)));
        }
        let url = format!("https://127.0.0.1:{}", ports.api_server);
        let kubectl = Kubectl::new(programs.kubernetes("kubectl"), at);
        Ok(Self { kubectl, ports, url, secure, kwok_patience: None, etcd, api_server, others, folder })
    }

    /// Starts all of it in order.
    fn run(&mut self) -> Result<(), PartError> {
        let ports = self.ports;
        self.etcd.start()?;
        self.etcd.ready(READY_LIMIT, || http::get(ports.etcd, "/health").is_ok_and(|text| text.contains("true")))?;
        self.run_api_server()?;
        for other in &mut self.others {
            other.start()?;
        }
        for at in 0..self.others.len() {
            let question = self.question_of(self.others[at].name());
            self.others[at].ready(READY_LIMIT, || question.says_ok())?;
        }
        let kwok = self.others.iter().find(|server| server.name() == "kwok");
        self.kwok_patience = kwok.map(|server| kwok::be_patient(self.kubectl.clone(), server.log()));
        Ok(())
    }

    /// Starts JobSet's controller, which wants the definition of what it controls.
    fn run_jobset_manager(&mut self, program: &Path) -> Result<(), PartError> {
        let free = ports::free(2, None)?;
        let [probe, webhook] = free[..] else { return Err(PartError::NoPort { tried: free.len() }) };
        let flags = settings::jobset_manager(self.folder.path(), probe, webhook)?;
        let mut server = Server::new("jobset-manager", program.to_owned(), flags, self.folder.path());
        server.start()?;
        server.ready(READY_LIMIT, || http::get(probe, "/readyz").is_ok_and(|text| text.trim() == "ok"))?;
        self.others.push(server);
        Ok(())
    }

    fn api_server(&self) -> MutexGuard<'_, Server> {
        self.api_server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run_api_server(&self) -> Result<(), PartError> {
        let mut api_server = self.api_server();
        api_server.start()?;
        let question = self.question_of(api_server.name());
        api_server.ready(READY_LIMIT, || question.says_ok())
    }

    /// Whether a server is well: what there is to ask it.
    fn question_of(&self, name: &str) -> Question {
        let (port, path) = match name {
            "kube-apiserver" => (self.ports.api_server, "/readyz"),
            "kube-controller-manager" => (self.ports.controller_manager, "/healthz"),
            "kube-scheduler" => (self.ports.scheduler, "/healthz"),
            _ => return Question::Plain { port: self.ports.kwok },
        };
        Question::Tls {
            kubectl: self.kubectl_path().to_owned(),
            folder: self.folder.path().to_owned(),
            server: format!("https://127.0.0.1:{port}"),
            path,
        }
    }

    /// Where clients connect, `https://127.0.0.1:PORT`; the same after a restart.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// An administrator's settings for kubectl and every other client. There is a token in it: only its owner may read it.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        settings::kubeconfig_path(self.folder.path())
    }

    /// The authority that signed its certificates, as PEM.
    #[must_use]
    pub fn ca_path(&self) -> &Path {
        &self.secure.ca
    }

    /// The administrator's bearer token, new for each Kubernetes.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.secure.secret
    }

    /// kubectl of the same version.
    #[must_use]
    pub fn kubectl_path(&self) -> &Path {
        self.kubectl.program()
    }

    /// Runs kubectl as the administrator, with `input` for a `-f -`. What it printed, both outputs.
    ///
    /// # Errors
    /// When it ends with something else than 0, with what it printed, or not within two minutes.
    pub fn kubectl(&self, arguments: &[&str], input: &str) -> Result<String, PartError> {
        if !self.api_server().is_started() {
            return Err(PartError::NotRunning { part: PART });
        }
        self.kubectl.run(arguments, input)
    }

    /// Creates or changes objects: `kubectl apply -f -`.
    ///
    /// # Errors
    /// As [`Kubernetes::kubectl`].
    pub fn apply(&self, yaml: &str) -> Result<String, PartError> {
        self.kubectl(&["apply", "-f", "-"], yaml)
    }

    /// Asks kubectl until what it prints is what the test waits for, for at most two minutes. That text.
    ///
    /// # Errors
    /// When it does not come to be, with what was printed last.
    pub fn wait_until(&self, arguments: &[&str], is_there: impl Fn(&str) -> bool) -> Result<String, PartError> {
        let mut last = String::new();
        let found = until(READY_LIMIT, || {
            // An object that is not there yet is an error of kubectl's.
            last = self.kubectl(arguments, "").unwrap_or_else(|error| error.to_string());
            Ok(is_there(&last).then_some(()))
        })?;
        match found {
            Some(()) => Ok(last),
            None => Err(PartError::Command {
                command: format!("kubectl {}", arguments.join(" ")),
                ended: format!("did not print what was waited for within {READY_LIMIT:?}"),
                tail: last,
            }),
        }
    }

    /// Removes etcd's history up to now: a watch from before it gets 410 where the API server no longer remembers.
    ///
    /// # Errors
    /// When etcd does not answer.
    pub fn compact(&self) -> Result<(), PartError> {
        let ask = |path: &str, json: &str| {
            http::post(self.ports.etcd, path, json).map_err(PartError::process(format!("etcd {path}")))
        };
        // Any key will do: the header of the answer has the revision, as a string of digits.
        let answer = ask("/v3/kv/range", r#"{"key":"AA=="}"#)?;
        let revision = answer.split_once(r#""revision":""#).and_then(|(_, rest)| rest.split('"').next());
        let revision = revision.filter(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()));
        let Some(revision) = revision else {
            let source = std::io::Error::other(format!("no revision in `{answer}`"));
            return Err(PartError::process("etcd /v3/kv/range")(source));
        };
        ask("/v3/kv/compaction", &format!(r#"{{"revision":"{revision}","physical":true}}"#)).map(drop)
    }

    /// What the API server wrote down of the requests of service accounts up to now: one JSON document a line, of the kind `Event` of
    /// `audit.k8s.io/v1`, without bodies. A request is in it before its answer is sent.
    ///
    /// # Errors
    /// When it was started without [`KubernetesOptions::audit`].
    pub fn audited(&self) -> Result<String, PartError> {
        let log = settings::audit_log_path(self.folder.path());
        fs::read_to_string(&log).map_err(PartError::file(&log))
    }

    /// The folder of its logs, `etcd.log`, `kube-apiserver.log` and so on.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The last lines of the log of each server, at most forty each.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let api_server = self.api_server();
        let all = [&self.etcd, &*api_server].into_iter().chain(&self.others);
        all.map(|server| format!("{}:\n{}", server.name(), tail(server.log()))).collect::<Vec<_>>().join("\n")
    }

    /// Whether each of its processes is there.
    pub fn is_running(&mut self) -> bool {
        let api_server = self.api_server.get_mut().unwrap_or_else(PoisonError::into_inner);
        [&mut self.etcd, api_server].into_iter().chain(&mut self.others).all(Server::is_running)
    }

    /// Ends the API server at once, as a crash would; the others go on without it.
    ///
    /// # Errors
    /// When its process cannot be ended.
    pub fn kill_api_server(&self) -> Result<(), PartError> {
        self.api_server().kill()
    }

    /// Starts the API server again at the same address; stops it first where it runs.
    ///
    /// # Errors
    /// When it is not ready within two minutes.
    pub fn restart_api_server(&self) -> Result<(), PartError> {
        self.api_server().stop()?;
        self.run_api_server()
    }

    /// Ends it in order. All that it held is lost.
    ///
    /// # Errors
    /// When a process cannot be ended.
    pub fn stop(&mut self) -> Result<(), PartError> {
        self.kwok_patience = None;
        for other in &mut self.others {
            other.stop()?;
        }
        self.api_server().stop()?;
        self.etcd.stop()
    }
}

impl fmt::Debug for Kubernetes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kubernetes").field("url", &self.url).finish_non_exhaustive()
    }
}

/// Whether a server is well, to be asked again and again.
enum Question {
    /// kwok, over plain HTTP.
    Plain { port: u16 },
    /// The others, by kubectl.
    Tls { kubectl: PathBuf, folder: PathBuf, server: String, path: &'static str },
}

impl Question {
    /// A question has an answer within milliseconds, or is asked again.
    const LIMIT: Duration = Duration::from_secs(10);

    /// Whether it says `ok`.
    fn says_ok(&self) -> bool {
        let answer = match self {
            Self::Plain { port } => http::get(*port, "/healthz").unwrap_or_default(),
            Self::Tls { kubectl, folder, server, path } => {
                let log = folder.join("ready.log");
                let mut command = guarded(kubectl);
                command.env("HOME", folder).arg("--kubeconfig").arg(settings::kubeconfig_path(folder));
                command.args(["--server", server, "--request-timeout", "5s", "get", "--raw", path]);
                let asked = install::run("kubectl get --raw", &mut command, &log, Self::LIMIT);
                asked.and_then(|()| fs::read_to_string(&log).map_err(PartError::file(&log))).unwrap_or_default()
            }
        };
        answer.trim() == "ok"
    }
}

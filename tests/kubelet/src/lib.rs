//! A stand-in for the kubelet of one node, for tests: each container of a pod that is bound to the node is a real process on this machine.
//!
//! ```text
//! watch: pods with spec.nodeName -> a task a pod: volumes -> init containers -> containers -> status; deletion: SIGTERM, SIGKILL, final delete
//! node: Ready, bootID, GPUs, every 10 s        HTTPS /containerLogs/...: the processes' output, for `kubectl logs`
//! ```
//!
//! Its pods are real where kwok's are not: an exit code is the program's own, SIGTERM arrives, a log has what was printed. What is not there:
//! images (the pod needs a command; `forebay` is the given binary, everything else comes from `PATH`), namespaces of mounts, networks and
//! processes (a mount path in commands, arguments and variables is replaced by a folder: see `volumes.rs`; names in DNS do not resolve),
//! limits of resources, probes, hooks, sidecars, and any restart: a pod with another `restartPolicy` than `Never` is refused.
//! A process ends with the stand-in, in whatever way that ends.
//! Never: a container engine, root's rights, an address beyond loopback, more than [`MOST_PODS`] pods at a time.
//!
//! ```no_run
//! use forebay_kubelet::{Kubelet, KubeletOptions};
//!
//! let kubelet = Kubelet::start(KubeletOptions::new("/tmp/kubeconfig", "gpu-1"))?;
//! // A pod with `nodeName: gpu-1` runs now.
//! drop(kubelet); // as if the machine's power was cut: its processes die, and nobody says so
//! # Ok::<(), forebay_kubelet::KubeletError>(())
//! ```

mod expand;
mod fields;
mod logs;
mod node;
mod pod;
mod pods;
mod program;
mod report;
mod set;
mod sources;
mod status;
mod volumes;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_parts::PartError;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use logs::LogFolders;

pub use set::KubeletSet;

/// As many pods as a node has by default.
pub const MOST_PODS: usize = 110;

/// The longest time that one request may take.
const REQUEST_LIMIT: Duration = Duration::from_secs(20);

/// The longest time to wait for threads that serve a log when it ends.
const END_LIMIT: Duration = Duration::from_secs(5);

/// Which node, and what is there.
#[derive(Clone, Debug)]
pub struct KubeletOptions {
    /// Who it is to the API server.
    pub kubeconfig: PathBuf,
    /// The node's name. It is created where it does not exist.
    pub node: String,
    /// GPUs that it offers, where the node says nothing of its own.
    pub gpus: u32,
    /// What stands for the program `forebay`. `None`: the one of `PATH`.
    pub forebay: Option<PathBuf>,
    /// The folder of persistent volume claims. `None`: one of its own, which goes with it.
    pub claims: Option<PathBuf>,
}

impl KubeletOptions {
    /// A node with eight GPUs.
    #[must_use]
    pub fn new(kubeconfig: impl Into<PathBuf>, node: impl Into<String>) -> Self {
        Self { kubeconfig: kubeconfig.into(), node: node.into(), gpus: 8, forebay: None, claims: None }
    }
}

/// Why it does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KubeletError {
    /// The kubeconfig cannot be used.
    #[error("kubeconfig {path}: {why}; name one that kubectl can use")]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The API server refuses it, or does not answer.
    #[error("node {node}: {why}; see the API server's log")]
    Node {
        /// The node.
        node: String,
        /// In its words.
        why: String,
    },
    /// Something of this machine is missing.
    #[error(transparent)]
    Part(#[from] PartError),
    /// The operating system refuses something.
    #[error("{what}: {source}; look at the machine's limits")]
    System {
        /// What was asked.
        what: &'static str,
        /// Its error.
        source: std::io::Error,
    },
}

impl KubeletError {
    fn system(what: &'static str) -> impl FnOnce(std::io::Error) -> KubeletError {
        move |source| KubeletError::System { what, source }
    }
}

/// What every part of it needs.
pub(crate) struct Context {
    pub(crate) options: KubeletOptions,
    pub(crate) client: Client,
    /// The folders of pods.
    pub(crate) root: PathBuf,
    pub(crate) claims: PathBuf,
    pub(crate) logs: LogFolders,
}

/// A running stand-in. Dropped, all processes of its pods are killed, and nothing is reported: a machine that lost its power.
#[derive(Debug)]
pub struct Kubelet {
    end: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Kubelet {
    /// Registers the node and follows its pods. Returns when the node is Ready.
    ///
    /// # Errors
    /// The API server cannot be reached or refuses it, or a thread, a folder or a port cannot be had.
    pub fn start(options: KubeletOptions) -> Result<Self, KubeletError> {
        let (end, ended) = watch::channel(false);
        let (started, starts) = channel();
        // A thread of its own from the first: whoever starts it may be within a runtime.
        let work = move || match Running::start(options) {
            Ok(running) => {
                // Whoever waits for it is there.
                let _ = started.send(Ok(()));
                running.until(ended);
            }
            Err(error) => drop(started.send(Err(error))),
        };
        let thread = std::thread::Builder::new().name("kubelet".to_owned()).spawn(work);
        let kubelet = Self { end, thread: Some(thread.map_err(KubeletError::system("a thread"))?) };
        let ended_early = |_| KubeletError::system("its thread")(std::io::Error::other("it ended by a bug"));
        starts.recv().map_err(ended_early)?.map(|()| kubelet)
    }
}

/// What runs in the thread.
struct Running {
    runtime: Runtime,
    context: Arc<Context>,
    status: Value,
    /// Removed when all else has ended.
    folder: TempDir,
}

impl Running {
    fn start(options: KubeletOptions) -> Result<Self, KubeletError> {
        let folder = tempfile::Builder::new().prefix("forebay-kubelet-").tempdir();
        let folder = folder.map_err(KubeletError::system("a temporary folder"))?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.map_err(KubeletError::system("a runtime"))?;
        let context = Arc::new(runtime.block_on(context(options, &folder))?);
        let port = runtime.block_on(logs::serve(&context, folder.path()))?;
        let status = runtime.block_on(node::register(&context, port))?;
        Ok(Self { runtime, context, status, folder })
    }

    fn until(self, mut ended: watch::Receiver<bool>) {
        let Self { runtime, context, status, folder } = self;
        runtime.block_on(async {
            tokio::select! {
                () = pods::follow(&context) => {}
                () = node::stay_ready(&context, &status) => {}
                // A sender that is gone says the same.
                _ = ended.wait_for(|end| *end) => {}
            }
        });
        runtime.shutdown_timeout(END_LIMIT);
        drop(folder);
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        let _ = self.end.send(true);
        if let Some(thread) = self.thread.take() {
            // A panic of it has been printed.
            let _ = thread.join();
        }
    }
}

async fn context(options: KubeletOptions, folder: &TempDir) -> Result<Context, KubeletError> {
    let client = connect(&options.kubeconfig).await?;
    let claims = options.claims.clone().unwrap_or_else(|| folder.path().join("claims"));
    Ok(Context { root: folder.path().join("pods"), claims, client, logs: LogFolders::default(), options })
}

/// A client, as this kubeconfig says.
async fn connect(path: &Path) -> Result<Client, KubeletError> {
    let wrong = |why: String| KubeletError::Kubeconfig { path: path.to_owned(), why };
    let file = Kubeconfig::read_from(path).map_err(|e| wrong(e.to_string()))?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
    let mut config = config.map_err(|e| wrong(e.to_string()))?;
    // A watch is silent for a while; each other request has a limit of its own.
    config.read_timeout = None;
    config.write_timeout = None;
    config.default_retry = false;
    Client::try_from(config).map_err(|e| wrong(e.to_string()))
}

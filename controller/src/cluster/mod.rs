//! The real cluster: its configuration, the executor of the driver's effects, and the task that talks to its API server.
//!
//! ```text
//! driver --EffectExecutor--> commands --> task: machine, calls, watches --DriverHandle--> driver: starts, ends, nodes
//! logs <-- task: pods, while they are there; the archive in the journal's folder afterwards
//! terminations --DrainFirst--> task: cordon, wait, look again --> the cloud
//! ```
//!
//! Never: an instance ended while something is bound to its node.

pub mod agent_tokens;
#[cfg(feature = "kubernetes")]
mod kube;
pub mod log_archive;
pub mod logs;
mod notes;
pub mod questions;

pub use agent_tokens::AgentTokens;
pub use logs::ClusterLogs;
pub use notes::ClusterNotes;

use crate::checkpoints::Checkpoints;
use crate::clock::OutsideClock;
use crate::config::Config;
use crate::driver::{DriverHandle, EffectExecutor};
use forebay_source::{Diagnostic, Health};
use std::collections::BTreeSet;
use std::path::Path;
use std::thread::JoinHandle;

/// Why the configured cluster cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// This binary was built without the adapter.
    #[error(
        "`kubernetes` is configured and this build has no Kubernetes: build it with the feature `kubernetes`, or leave it out"
    )]
    NotBuilt,
    /// A setting or a template is invalid.
    #[error("kubernetes: {0}")]
    Setting(String),
    /// The thread could not be started.
    #[error("kubernetes: no thread: {0}")]
    Thread(std::io::Error),
    /// The task ended before the driver did.
    #[error(
        "kubernetes: the task that runs gangs ended by a bug of this program, so the controller stopped too: start it again, and report the log"
    )]
    Ended,
}

/// The thread of the cluster's task. It runs as long as the driver.
pub type ClusterThread = JoinHandle<Result<(), ClusterError>>;

/// Ends an instance at the cloud.
pub type Terminate = Box<dyn Fn(String) + Send>;

/// A cluster with its executors, for the driver.
pub struct OpenedCluster {
    /// The cluster, whose task is not started yet.
    pub cluster: Cluster,
    /// Executes starts, stops and shrinkings.
    pub executor: Box<dyn EffectExecutor>,
    /// The cloud's executor, whose terminations wait until nothing is bound to the node.
    pub cloud: Box<dyn EffectExecutor>,
}

/// A cluster whose task is not started yet.
pub struct Cluster {
    /// The condition of its task.
    pub health: Health,
    /// The name, such as `kubernetes:jobs`.
    pub name: String,
    /// What Kubernetes says of jobs.
    pub notes: ClusterNotes,
    /// Where logs of workers are asked for.
    pub logs: ClusterLogs,
    /// Where agents on nodes are known by their service account. `None`: none is listed.
    pub agents: Option<AgentTokens>,
    task: Box<dyn FnOnce(DriverHandle, Checkpoints) -> std::io::Result<ClusterThread> + Send>,
}

impl Cluster {
    /// Starts the task, which ends with the driver. What runs saved last is searched by `checkpoints` when they end.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn start(self, handle: DriverHandle, checkpoints: Checkpoints) -> Result<ClusterThread, ClusterError> {
        (self.task)(handle, checkpoints).map_err(ClusterError::Thread)
    }
}

/// Checks the settings and the templates, without using the network.
///
/// # Errors
/// A setting or a template is invalid.
pub fn check(config: &Config) -> Result<(), ClusterError> {
    match &config.kubernetes {
        None => Ok(()),
        #[cfg(feature = "kubernetes")]
        Some(kubernetes) => kube::check(kubernetes),
        #[cfg(not(feature = "kubernetes"))]
        Some(_) => Err(ClusterError::NotBuilt),
    }
}

/// The checks of `forebay doctor`, without changes.
#[must_use]
pub fn probe(config: &Config, runtime: &tokio::runtime::Handle) -> Vec<Diagnostic> {
    match &config.kubernetes {
        None => Vec::new(),
        #[cfg(feature = "kubernetes")]
        Some(kubernetes) => kube::probe(kubernetes, runtime),
        #[cfg(not(feature = "kubernetes"))]
        Some(_) => {
            let _ = runtime;
            vec![Diagnostic::error("kubernetes", ClusterError::NotBuilt.to_string())]
        }
    }
}

/// The API server's clock, which can confirm a time.
#[must_use]
pub fn outside_clock(config: &Config) -> Option<OutsideClock> {
    match &config.kubernetes {
        #[cfg(feature = "kubernetes")]
        Some(kubernetes) => Some(kube::outside_clock(kubernetes)),
        _ => None,
    }
}

/// From which pods our finalizers are removed.
pub struct FinalizerRemoval<'c> {
    /// The configuration, if one is named.
    pub config: Option<&'c Config>,
    /// The namespaces. Empty: those of the configuration.
    pub namespaces: BTreeSet<String>,
    /// Only of this journal.
    pub journal: Option<String>,
    /// Nothing is changed.
    pub dry: bool,
}

/// The pods that have, or had, a finalizer of ours.
#[derive(Debug, Default)]
pub struct FoundFinalizers {
    /// As `NAMESPACE/NAME`.
    pub pods: Vec<String>,
    /// Where they could not be listed or changed, and why.
    pub failures: Vec<String>,
}

/// Removes our finalizers from pods. No journal is needed.
///
/// # Errors
/// No cluster or namespace is named, or there are no credentials.
pub fn remove_finalizers(removal: &FinalizerRemoval<'_>) -> Result<FoundFinalizers, ClusterError> {
    #[cfg(feature = "kubernetes")]
    return kube::remove_finalizers(removal);
    #[cfg(not(feature = "kubernetes"))]
    {
        let _ = removal;
        Err(ClusterError::NotBuilt)
    }
}

/// How nodes end.
pub enum NodeEnding {
    /// A real cluster empties them first.
    Emptied(Box<OpenedCluster>),
    /// The cluster is simulated: the cloud ends them as it is told.
    Ended(Box<dyn EffectExecutor>),
}

/// Opens the configured cluster, beside the cloud that its nodes come from, for the journal in `folder`.
///
/// # Errors
/// A setting or a template is invalid.
pub fn open(
    config: &Config,
    folder: &Path,
    cloud: Box<dyn EffectExecutor>,
    terminate: Terminate,
) -> Result<NodeEnding, ClusterError> {
    match &config.kubernetes {
        None => {
            drop((terminate, folder));
            Ok(NodeEnding::Ended(cloud))
        }
        #[cfg(feature = "kubernetes")]
        Some(kubernetes) => {
            kube::open(kubernetes, folder, cloud, terminate).map(|opened| NodeEnding::Emptied(Box::new(opened)))
        }
        #[cfg(not(feature = "kubernetes"))]
        Some(_) => {
            drop((cloud, terminate, folder));
            Err(ClusterError::NotBuilt)
        }
    }
}

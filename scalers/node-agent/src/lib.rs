//! The agent on a node. It reads from the instance metadata what the cloud announces for this instance, reads what the node's GPUs do and for
//! which workers, and reports both to the controller.
//!
//! ```text
//! metadata (IMDSv2), every 2 s --watch--> Outbox: the newest of each kind --delivery--> POST /v1/agent/hello, /v1/agent/notices
//!                                                                                '-- retried until it is acknowledged
//! NVML or DCGM, every second ---gpus--> activity: busy, idle, resident, a worker -----> POST /v1/agent/activity
//! /proc, the kubelet's folder ---owners--'                                       '-- sums, until they are acknowledged
//! ```
//!
//! EventBridge announces the same as the metadata through a queue, within seconds and at best effort. Whichever report comes first counts, and
//! the second changes nothing. The agent needs no GPU, no permissions in the cloud, and no address of its own. It stops no jobs and decides
//! nothing; what a worker does is not known where the driver does not say it, and then it is reported as unknown, never as idle.
//!
//! ```no_run
//! use forebay_node_agent::{AgentSettings, AgentTimings, AgentToken, GpuSource, LogLine, NodeAgent, NodeRoots};
//! use std::sync::Arc;
//!
//! # fn main() -> Result<(), forebay_node_agent::AgentError> {
//! let settings = AgentSettings {
//!     controller: "http://forebay:8080".to_owned(),
//!     metadata: "http://169.254.169.254".to_owned(),
//!     token: AgentToken::None,
//!     gpus: GpuSource::Nvml { library: None },
//!     roots: NodeRoots::default(),
//!     listen: None,
//!     timings: AgentTimings::default(),
//! };
//! let log: LogLine = Arc::new(|line| eprintln!("agent: {line}"));
//! NodeAgent::start(&settings, &log)?.join();
//! # Ok(())
//! # }
//! ```

mod activity;
mod controller_client;
mod delivery;
mod exposition;
mod gpus;
mod inspect;
mod metadata;
mod outbox;
mod owners;
mod report;
mod token;
mod watch;
mod worker;

pub use activity::report::{ActivityReport, MOST_WORKERS_REPORTED, WorkerActivity};
pub use gpus::{GpuSource, GpuSourceError};
pub use inspect::inspect;
pub use metadata::{InstanceMetadata, MetadataError};
pub use owners::{NAMESPACE_FILE, NodeRoots, POD_FILE, WORKER_FILE, WORKER_VOLUME};
pub use report::{AgentReport, ReportKind};
pub use token::{AgentToken, AgentTokenError};
pub use worker::{WorkerName, WorkerNameError};

use activity::monitor::GpuMonitor;
use activity::reporter::{ActivityReporter, ReportCounts};
use controller_client::ControllerClient;
use gpus::sampler::{self, LatestSample};
use outbox::Outbox;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Writes one line of the agent's log.
pub type LogLine = Arc<dyn Fn(&str) + Send + Sync>;

/// Where the agent reads metadata and GPUs, and which controller it reports to.
#[derive(Clone, Debug)]
pub struct AgentSettings {
    /// The controller, such as `http://forebay:8080`.
    pub controller: String,
    /// The instance metadata, such as `http://169.254.169.254`.
    pub metadata: String,
    /// A token with the role `agent`, or of the agent's service account.
    pub token: AgentToken,
    /// Where it reads what GPUs do.
    pub gpus: GpuSource,
    /// Where the node's processes and pods are found.
    pub roots: NodeRoots,
    /// Where its own metrics are served. `None`: nowhere.
    pub listen: Option<SocketAddr>,
    /// Intervals, time limits and delays.
    pub timings: AgentTimings,
}

/// Intervals, time limits and delays. The defaults are for production; tests shorten them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentTimings {
    /// The interval at which the metadata is read. AWS recommends at most 5 s; a read takes a millisecond.
    pub poll_interval: Duration,
    /// The time limit of one response of the metadata. It responds within milliseconds or not at all.
    pub metadata_timeout: Duration,
    /// The time limit of one response of the controller, which may wait for its disk.
    pub controller_timeout: Duration,
    /// The delay after the first report that was not accepted. It doubles with each further one.
    pub first_delay: Duration,
    /// The longest delay: a warning comes only two minutes before the end of the instance.
    pub longest_delay: Duration,
    /// A notice that was not accepted for this long is abandoned, because the instance should be gone.
    pub notice_lifetime: Duration,
    /// The interval of reports of activity while a worker is idle: what is idle for too long is to be known within half a minute.
    pub report_interval: Duration,
    /// The same while all workers compute. Twice as long without workers.
    pub quiet_report_interval: Duration,
    /// A source of GPU figures that has not responded for so long hangs: nothing is known of any worker.
    pub gpu_patience: Duration,
}

impl Default for AgentTimings {
    fn default() -> AgentTimings {
        AgentTimings {
            poll_interval: Duration::from_secs(2),
            metadata_timeout: Duration::from_secs(2),
            controller_timeout: Duration::from_secs(10),
            first_delay: Duration::from_millis(500),
            longest_delay: Duration::from_secs(10),
            notice_lifetime: Duration::from_secs(15 * 60),
            report_interval: Duration::from_secs(10),
            quiet_report_interval: Duration::from_secs(30),
            gpu_patience: Duration::from_secs(10),
        }
    }
}

/// A running agent. Dropping it stops it.
#[derive(Debug)]
pub struct NodeAgent {
    outbox: Arc<Outbox>,
    threads: Vec<JoinHandle<()>>,
}

/// Why an agent did not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AgentError {
    /// An address is not of the form `http://host`.
    #[error(
        "--{what} {given}: this is not an address; write http://HOST:PORT (for TLS, put a proxy on the node: the agent speaks plain HTTP)"
    )]
    Address {
        /// The option: `controller` or `metadata`.
        what: &'static str,
        /// The address as given, shortened and escaped.
        given: String,
    },
    /// The address for metrics is not to be had.
    #[error("--listen {address}: {why}; choose an address of this node and a free port")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        why: String,
    },
    /// The system could not create a thread.
    #[error("no thread for the agent: {0}; raise the limit of processes")]
    Thread(String),
}

impl NodeAgent {
    /// Starts to read the metadata and to report.
    ///
    /// # Errors
    /// An address is not valid, or the system has no thread left.
    pub fn start(settings: &AgentSettings, log: &LogLine) -> Result<NodeAgent, AgentError> {
        let metadata_at = address("metadata", &settings.metadata)?;
        let controller_at = address("controller", &settings.controller)?;
        let timings = settings.timings;
        let metadata = InstanceMetadata::new(metadata_at, timings.metadata_timeout);
        let controller = ControllerClient::new(controller_at, &settings.token, timings.controller_timeout);
        let outbox = Arc::new(Outbox::default());
        let mut agent = NodeAgent { outbox: Arc::clone(&outbox), threads: Vec::new() };
        let (reports, watch_log) = (Arc::clone(&outbox), Arc::clone(log));
        agent.spawn("watch", move || watch::run(metadata, &reports, timings, &watch_log))?;
        agent.watch_gpus(
            settings,
            ControllerClient::new(controller_at, &settings.token, timings.controller_timeout),
            log,
        )?;
        let log = Arc::clone(log);
        agent.spawn("delivery", move || delivery::run(&controller, &outbox, timings, &log))?;
        Ok(agent)
    }

    /// Starts what reads GPUs, keeps the books, reports, and serves metrics.
    fn watch_gpus(
        &mut self,
        settings: &AgentSettings,
        controller: ControllerClient,
        log: &LogLine,
    ) -> Result<(), AgentError> {
        let (timings, source, interval) = (settings.timings, settings.gpus.name(), settings.gpus.interval());
        let (monitor, counts) = (Arc::new(GpuMonitor::new(interval)), Arc::new(ReportCounts::default()));
        if let Some(address) = settings.listen {
            let failed = |error: std::io::Error| AgentError::Listen { address, why: error.to_string() };
            let listener = TcpListener::bind(address).map_err(failed)?;
            log(&format!("metrics at http://{}/metrics", listener.local_addr().map_err(failed)?));
            let (monitor, counts) = (Arc::clone(&monitor), Arc::clone(&counts));
            let text = move || exposition::text(&monitor, &counts, source);
            detach("metrics", move || exposition::serve(&listener, text))?;
        }
        let Some(reader) = settings.gpus.reader()? else { return Ok(()) };
        let latest = Arc::new(LatestSample::default());
        let (samples, outbox) = (Arc::clone(&latest), Arc::clone(&self.outbox));
        // A call into the driver may never return, so nobody waits for this thread.
        detach("gpus", move || sampler::run(reader, &samples, interval, &outbox))?;
        let (observed, outbox, observe_log) = (Arc::clone(&monitor), Arc::clone(&self.outbox), Arc::clone(log));
        let roots = settings.roots.clone();
        self.spawn("activity", move || observed.run(&latest, &roots, timings, &outbox, &observe_log))?;
        let (outbox, log) = (Arc::clone(&self.outbox), Arc::clone(log));
        self.spawn("activity-report", move || {
            let (controller, monitor, outbox, counts, log) = (&controller, &*monitor, &*outbox, &*counts, &log);
            ActivityReporter { controller, monitor, outbox, counts, source, timings, log }.run();
        })
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), AgentError> {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
        self.threads.push(thread.map_err(|error| AgentError::Thread(error.to_string()))?);
        Ok(())
    }

    /// Runs until the process ends.
    pub fn join(mut self) {
        for thread in self.threads.drain(..) {
            // A panic was printed when it happened; the other thread continues.
            let _ = thread.join();
        }
    }
}

impl Drop for NodeAgent {
    fn drop(&mut self) {
        self.outbox.stop();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn address<'a>(what: &'static str, given: &'a str) -> Result<&'a str, AgentError> {
    let host = given.strip_prefix("http://").map(|rest| rest.trim_end_matches('/'));
    let plain = |host: &str| !host.is_empty() && host.bytes().all(|b| b.is_ascii_graphic());
    match host.filter(|host| plain(host)) {
        Some(_) => Ok(given.trim_end_matches('/')),
        None => Err(AgentError::Address { what, given: report::printable(given) }),
    }
}

/// Runs in a thread that ends with the process.
fn detach(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), AgentError> {
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    thread.map(drop).map_err(|error| AgentError::Thread(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_plain_http_with_a_host() {
        assert_eq!(address("metadata", "http://169.254.169.254/"), Ok("http://169.254.169.254"));
        assert_eq!(address("metadata", "http://127.0.0.1:1/i-0/"), Ok("http://127.0.0.1:1/i-0"));
        for given in ["", "http://", "https://forebay", "forebay:8080", "http://a b", "http://\u{e9}\u{7}"] {
            let error = address("controller", given).expect_err(given).to_string();
            assert!(error.starts_with("--controller ") && error.contains("http://HOST:PORT"), "{error}");
            assert!(!error.contains('\u{7}'));
        }
    }
}

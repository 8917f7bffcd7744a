//! On a node: asks the cloud's instance metadata what it is about to do to this instance, and tells the controller.
//!
//! ```text
//! metadata (IMDSv2), every 2 s --watch--> Outbox: the newest of each kind --tell--> POST /v1/agent/hello, /v1/agent/notices
//!                                                                            '-- kept and tried again until it is acknowledged
//! ```
//!
//! EventBridge says the same by a queue, in seconds and best effort; whichever comes first counts, and the second changes nothing. The agent
//! needs no GPU, no rights in the cloud, and no address of its own.
//! Never: stops a job, decides anything, or holds more than one report of each kind.

mod controller;
mod metadata;
mod outbox;
mod report;
mod tell;
mod watch;

pub use metadata::{Metadata, MetadataError};
pub use report::{Kind, Report};

use controller::Controller;
use outbox::Outbox;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Says something to whoever watches the agent: a line for stderr.
pub type Say = Arc<dyn Fn(&str) + Send + Sync>;

/// Where the agent looks and whom it tells.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The controller, such as `http://forebay:8080`.
    pub controller: String,
    /// The instance metadata, such as `http://169.254.169.254`.
    pub metadata: String,
    /// The token with the role `agent`. `None`: the controller asks for none.
    pub token: Option<String>,
    /// Waits.
    pub pace: Pace,
}

/// Waits. The defaults are for production; tests shorten them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Between two looks at the metadata. AWS recommends 5 s or less; a look costs a millisecond.
    pub look: Duration,
    /// For one answer of the metadata, which answers within milliseconds or is not there.
    pub metadata: Duration,
    /// For one answer of the controller, which may wait for its disk.
    pub controller: Duration,
    /// The first pause after a report that was not taken; it doubles.
    pub first_pause: Duration,
    /// The longest pause: a warning gives two minutes.
    pub longest_pause: Duration,
    /// A notice that nobody has taken for so long is given up: the instance should be gone.
    pub notice: Duration,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace {
            look: Duration::from_secs(2),
            metadata: Duration::from_secs(2),
            controller: Duration::from_secs(10),
            first_pause: Duration::from_millis(500),
            longest_pause: Duration::from_secs(10),
            notice: Duration::from_secs(15 * 60),
        }
    }
}

/// An agent that runs; it ends when it is dropped.
#[derive(Debug)]
pub struct Agent {
    outbox: Arc<Outbox>,
    threads: Vec<JoinHandle<()>>,
}

/// An address that cannot be one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AgentError {
    /// No `http://host`.
    #[error(
        "--{what} {given}: this is no address; write http://HOST:PORT (for TLS, put a proxy on the node: the agent speaks plain HTTP)"
    )]
    Address {
        /// Whose it is: `controller` or `metadata`.
        what: &'static str,
        /// As it was given, cut and escaped.
        given: String,
    },
    /// The system gives no thread.
    #[error("no thread for the agent: {0}; raise the limit of processes")]
    Thread(String),
}

impl Agent {
    /// Starts to watch and to tell.
    ///
    /// # Errors
    /// An address is none, or there is no thread to be had.
    pub fn start(settings: &Settings, say: &Say) -> Result<Agent, AgentError> {
        let metadata_at = address("metadata", &settings.metadata)?;
        let controller_at = address("controller", &settings.controller)?;
        let pace = settings.pace;
        let metadata = Metadata::new(metadata_at, pace.metadata);
        let controller = Controller::new(controller_at, settings.token.as_deref(), pace.controller);
        let outbox = Arc::new(Outbox::default());
        let mut agent = Agent { outbox: Arc::clone(&outbox), threads: Vec::new() };
        let (inside, says) = (Arc::clone(&outbox), Arc::clone(say));
        agent.spawn("watch", move || watch::run(metadata, &inside, pace, &says))?;
        let says = Arc::clone(say);
        agent.spawn("tell", move || tell::run(&controller, &outbox, pace, &says))?;
        Ok(agent)
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), AgentError> {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
        self.threads.push(thread.map_err(|error| AgentError::Thread(error.to_string()))?);
        Ok(())
    }

    /// Runs until the process ends.
    pub fn join(mut self) {
        for thread in self.threads.drain(..) {
            // One that panicked has said so; the other one goes on.
            let _ = thread.join();
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.outbox.end();
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
        None => Err(AgentError::Address { what, given: report::shown(given) }),
    }
}

/// NVIDIA's devices in a folder such as `/dev`: what the agent says of GPUs.
#[must_use]
pub fn gpus(devices: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(devices) else {
        return 0;
    };
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.ok()?.file_name().into_string().ok();
    let is_gpu = |name: &String| name.strip_prefix("nvidia").is_some_and(|n| n.parse::<u32>().is_ok());
    entries.filter_map(name).filter(is_gpu).count()
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

    #[test]
    fn only_devices_with_a_number_are_gpus() {
        let folder = std::env::temp_dir().join(format!("forebay-agent-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        assert_eq!(gpus(&folder), 0);
        for name in ["nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "null"] {
            std::fs::write(folder.join(name), "").unwrap();
        }
        assert_eq!(gpus(&folder), 2);
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(gpus(&folder), 0, "no such folder");
    }
}

//! A driver that runs in this process: its policy, its listener, the signals that stop it.
//!
//! Never: ends without stopping the driver; what was answered is in the journal either way.

use super::Output;
use super::check::{BUILT_IN, BUILT_IN_NAME, compile_file};
use super::outcome::{Exit, Failure};
use crate::api::{self, ApiOptions};
use crate::audit_log::AuditLog;
use crate::checkpoints::Checkpoints;
use crate::cloud::{Cloud, CloudError};
use crate::cluster::{AgentTokens, Cluster, ClusterError, ClusterLogs, ClusterNotes};
use crate::config::Config;
use crate::config::tokens::Tokens;
use crate::cost::DailyFocus;
use crate::driver::{DriverError, DriverHandle, Finished, LiveProgress, Running};
use crate::intake::PolicyRoutes;
use crate::journal::{FILE, policy_in_force};
use crate::policy::watch::watch as watch_policy;
use crate::policy::{PolicyBasis, PolicyControl, in_words};
use crate::sources::registry::RegisteredSource;
use crate::sources::{Sources, SourcesStart};
use forebay_catalog::Catalogue;
use forebay_policy::{Compiled, compile};
use forebay_wire::intake::AttemptKeys;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// So long open answers may take to end when the driver has: streams end at once, the rest is on its way to who reads it.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// A driver and what goes with it.
pub(super) struct Live {
    /// The driver.
    pub running: Running,
    /// The policy's routes, for the API.
    pub routes: Arc<PolicyRoutes>,
    /// Where the API listens. `None`: nowhere.
    pub listener: Option<TcpListener>,
    /// Who may call it.
    pub tokens: Tokens,
    /// What job events come from and statuses go to, beside the API.
    pub config: Config,
    /// The real cloud, where there is one.
    pub cloud: Option<Cloud>,
    /// The real cluster, where there is one.
    pub cluster: Option<Cluster>,
    /// What is done by hand, and its thread. `None`: it is not written down.
    pub audit: Option<(AuditLog, JoinHandle<()>)>,
    /// What another policy is checked against. `None`: the policy stays as it is.
    pub policy: Option<PolicyBasis>,
}

impl From<DriverError> for Failure {
    fn from(error: DriverError) -> Failure {
        let exit = match &error {
            DriverError::Storage(failure) => Exit::of_storage(&**failure),
            DriverError::Thread(_) => Exit::Outside,
            error if error.is_for_the_caller() => Exit::BadInput,
            _ => Exit::Violations,
        };
        Failure { exit, text: error.to_string() }
    }
}

/// Whether a folder holds a journal.
pub(super) fn has_journal(folder: &Path) -> bool {
    folder.join(FILE).exists()
}

/// The policy to run under: the one that is named, else the journal's own, else the built-in one.
pub(super) fn policy(
    path: Option<&Path>,
    journal: Option<&Path>,
    catalogue: &Catalogue,
) -> Result<(String, Compiled), Failure> {
    if let Some(path) = path {
        return compile_file(path, catalogue);
    }
    let journaled = match journal {
        Some(folder) => {
            let text = policy_in_force(folder).map_err(DriverError::from)?;
            text.map(|text| (text, folder.join(FILE).display().to_string()))
        }
        None => None,
    };
    let (text, name) = journaled.unwrap_or_else(|| (BUILT_IN.to_owned(), BUILT_IN_NAME.to_owned()));
    let compiled = compile(&name, &text, catalogue).map_err(Failure::input)?;
    Ok((text, compiled))
}

/// What is different from the policy of before, in words. `None`: that one does not compile with what can be bought now.
pub(super) fn policy_changes(before: &str, text: &str, compiled: &Compiled, catalogue: &Catalogue) -> Option<String> {
    if before == text {
        return Some("the same text means something else, for what can be bought has changed".to_owned());
    }
    let before = compile("the journal's", before, catalogue).ok()?;
    Some(in_words(&forebay_policy::difference(&before, compiled)))
}

/// Takes an address before anything is begun.
fn listen(address: SocketAddr) -> Result<TcpListener, Failure> {
    let taken = TcpListener::bind(address).and_then(|l| l.set_nonblocking(true).map(|()| l));
    taken.map_err(|e| {
        Failure::outside(format_args!("cannot listen on {address}: {e}: choose another with --listen, port 0 is any"))
    })
}

/// The tokens of a configuration, with their secrets. What is unwise is said.
pub(super) fn tokens(config: &Config, out: Output) -> Result<Tokens, Failure> {
    let mut warnings = Vec::new();
    let tokens = Tokens::read(&config.tokens, &mut warnings).map_err(Failure::input)?;
    for warning in warnings {
        eprintln!("{} {warning}", out.err.warn("warning:"));
    }
    Ok(tokens)
}

/// Takes an address for the API. Without tokens everybody who reaches it may do everything: on loopback only.
pub(super) fn listen_for(address: SocketAddr, tokens: &Tokens) -> Result<TcpListener, Failure> {
    if tokens.is_empty() && !address.ip().is_loopback() {
        return Err(Failure::input(format_args!(
            "{address} can be reached from other machines, and there are no tokens: everybody there could submit and cancel. \
             List `tokens` in forebay.yaml (see docs/API.md), or listen on 127.0.0.1"
        )));
    }
    listen(address)
}

/// Says what a journal's recovery found, where that matters.
pub(super) fn say_recovery(running: &Running, out: Output) {
    if let Some(recovery) = &running.recovery {
        eprintln!("recovered {} batches from the journal", recovery.batches);
    }
    let warning = out.err.warn("warning:");
    if let Some(cut) = running.cut() {
        eprintln!(
            "{warning} the journal had a torn tail from {} on ({}); it was cut, nothing that was answered is lost",
            cut.from, cut.what
        );
    }
    if running.statuses_cut > 0 {
        eprintln!("{warning} {} statuses of lost batches were cut; they come again", running.statuses_cut);
    }
}

/// Warns where others may read what the folder holds.
pub(super) fn warn_of_mode(folder: &Path, out: Output) {
    if let Some(mode) = crate::files::open_to_others(folder) {
        eprintln!(
            "{} {}: others than its owner may enter it (mode {mode:04o}), and it holds what all tenants sent: `chmod 700` it, or mount it so",
            out.err.warn("warning:"),
            folder.display()
        );
    }
}

impl Live {
    /// Serves and shows until the driver ends or a signal asks for it.
    ///
    /// # Errors
    /// When the runtime cannot start, a source or a sink ends for good, or the driver ends with an error.
    pub fn until_stopped(mut self, mut signals: Signals, show: impl FnMut(&LiveProgress)) -> Result<Finished, Failure> {
        let runtime = Arc::clone(&signals.runtime);
        let (cloud, cluster) = (self.cloud.take(), self.cluster.take());
        let (audit, auditing) = self.audit.take().unzip();
        let listed = cloud.as_ref().map(|cloud| RegisteredSource::cloud(cloud.name.clone(), cloud.health.clone()));
        let runs =
            cluster.as_ref().map(|cluster| RegisteredSource::cluster(cluster.name.clone(), cluster.health.clone()));
        let listed: Vec<RegisteredSource> = listed.into_iter().chain(runs).collect();
        let notes = cluster.as_ref().map(|cluster| cluster.notes.clone()).unwrap_or_default();
        let logs = cluster.as_ref().map(|cluster| cluster.logs.clone());
        let agents = cluster.as_ref().and_then(|cluster| cluster.agents.clone());
        let buying = cloud.map(|cloud| cloud.start(self.running.handle.clone())).transpose();
        let checkpoints = Checkpoints::start(&self.config, &self.running.handle, runtime.handle());
        let running = match (cluster, &checkpoints) {
            (Some(cluster), Ok(checkpoints)) => {
                cluster.start(self.running.handle.clone(), checkpoints.clone()).map(Some)
            }
            _ => Ok(None),
        };
        let served = match (&buying, &running, checkpoints) {
            (Ok(_), Ok(_), Ok(checkpoints)) => {
                self.serve((&runtime, &mut signals), listed, checkpoints, (notes, logs, agents, audit), show)
            }
            (_, _, Err(e)) => Err(Failure::input(e)),
            (Err(e), ..) => Err(Failure::outside(e)),
            (_, Err(e), _) => Err(Failure::outside(e)),
        };
        // Whatever it was, the driver ends, and what it has said is sent.
        self.running.handle.stop();
        let finished = self.running.join();
        // It sees that the driver has ended. What it did not hand on it finds again at the next start.
        let bought = match buying {
            Ok(Some(thread)) => thread.join().unwrap_or(Err(CloudError::Ended)),
            Ok(None) | Err(_) => Ok(()),
        };
        let ran = match running {
            Ok(Some(thread)) => thread.join().unwrap_or(Err(ClusterError::Ended)),
            Ok(None) | Err(_) => Ok(()),
        };
        served?.finish();
        // Nobody tells it anything any more. A log that was not written to its end is no reason to fail.
        let _ = auditing.map(JoinHandle::join);
        let finished = finished?;
        bought.map_err(Failure::outside)?;
        ran.map_err(Failure::outside)?;
        Ok(finished)
    }

    /// Starts sources, sinks and the API, and serves. The sources that it returns receive nothing any more; their sinks may still send.
    fn serve(
        &mut self,
        (runtime, signals): (&Runtime, &mut Signals),
        adapters: Vec<RegisteredSource>,
        checkpoints: Checkpoints,
        (notes, logs, agents, audit): (ClusterNotes, Option<ClusterLogs>, Option<AgentTokens>, Option<AuditLog>),
        show: impl FnMut(&LiveProgress),
    ) -> Result<Sources, Failure> {
        let handle = &self.running.handle;
        let key = crate::key::load_or_create(handle.folder()).map_err(|e| Failure::storage(&e))?;
        let key = AttemptKeys::of(key, handle.identity());
        let start = SourcesStart {
            config: &self.config,
            handle: handle.clone(),
            routes: Arc::clone(&self.routes) as _,
            key: Some(key.clone()),
            checkpoints: checkpoints.clone(),
            runtime: runtime.handle().clone(),
        };
        let mut sources = Sources::start(&start, adapters).map_err(Failure::input)?;
        let basis = self.policy.take();
        let policy =
            basis.map(|basis| PolicyControl::new(handle.clone(), Arc::clone(&self.routes), basis, audit.clone()));
        let watched = policy.clone().map(|policy| runtime.spawn(watch_policy(policy)));
        let exported = self.config.focus_folder().map(|folder| {
            let daily = DailyFocus::new(folder.to_owned(), handle.clone(), Arc::clone(&self.running.archive));
            runtime.spawn(daily.run())
        });
        let serving = ApiOptions {
            handle: handle.clone(),
            routes: Arc::clone(&self.routes) as _,
            key: Some(key),
            tokens: std::mem::take(&mut self.tokens),
            proxies: self.config.trusted_proxies.iter().map(IpAddr::to_canonical).collect(),
            sources: sources.registry().clone(),
            checkpoints,
            archive: Arc::clone(&self.running.archive),
            commits: Arc::clone(&self.running.commits),
            notes,
            logs,
            agents,
            audit,
            policy,
        };
        let beside = (&mut sources, signals);
        let followed = runtime.block_on(follow(handle, serving, self.listener.take(), beside, show));
        sources.stop_receiving();
        // The first holds the audit log, which is written to its end when nobody holds it any more.
        for task in [watched, exported].into_iter().flatten() {
            task.abort();
            let _ = runtime.block_on(task);
        }
        followed.map(|()| sources)
    }
}

async fn follow(
    handle: &DriverHandle,
    serving: ApiOptions,
    listener: Option<TcpListener>,
    (sources, signals): (&mut Sources, &mut Signals),
    mut show: impl FnMut(&LiveProgress),
) -> Result<(), Failure> {
    let (end, ending) = watch::channel(false);
    let server = match listener {
        Some(listener) => {
            let listener = tokio::net::TcpListener::from_std(listener).map_err(Failure::outside)?;
            Some(tokio::spawn(api::serve(listener, serving, ending)))
        }
        None => None,
    };
    let mut progress = handle.watch();
    loop {
        let moment = progress.borrow_and_update().clone();
        show(&moment);
        if moment.stopped {
            break;
        }
        tokio::select! {
            changed = progress.changed() => if changed.is_err() { break },
            () = signals.next() => {
                // What was received becomes durable, or goes back to where it was, before the driver ends.
                tokio::task::block_in_place(|| sources.stop_receiving());
                handle.stop();
            }
        }
    }
    // Whoever still listens is let go; the driver has stopped.
    let _ = end.send(true);
    let Some(server) = server else { return Ok(()) };
    match tokio::time::timeout(LAST_WORDS, server).await {
        Ok(served) => served.map_err(Failure::outside)?.map_err(Failure::outside),
        // Somebody does not read their answer. They are cut off when this process ends.
        Err(_) => Ok(()),
    }
}

/// Ctrl-C, and what service managers send.
pub(super) struct Signals {
    runtime: Arc<Runtime>,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
}

impl Signals {
    /// From here on a signal ends nothing by itself: it is kept until [`Signals::next`] is asked. To be called before anything is said, so
    /// that whoever reads that we have begun can end us in order.
    pub fn kept() -> Result<Signals, Failure> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failure::outside)?;
        #[cfg(unix)]
        let (interrupt, terminate) = {
            use tokio::signal::unix::{SignalKind, signal};
            let _inside = runtime.enter();
            let of = |kind| signal(kind).map_err(Failure::outside);
            (of(SignalKind::interrupt())?, of(SignalKind::terminate())?)
        };
        Ok(Signals {
            runtime: Arc::new(runtime),
            #[cfg(unix)]
            interrupt,
            #[cfg(unix)]
            terminate,
        })
    }

    /// Waits for something, or for a signal: `None`.
    pub fn or<T>(&mut self, done: impl Future<Output = T>) -> Option<T> {
        let runtime = Arc::clone(&self.runtime);
        runtime.block_on(async {
            tokio::select! {
                done = done => Some(done),
                () = self.next() => None,
            }
        })
    }

    async fn next(&mut self) {
        #[cfg(unix)]
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
        #[cfg(not(unix))]
        let _ = tokio::signal::ctrl_c().await;
    }
}

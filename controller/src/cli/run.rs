//! `forebay run`: the controller with an embedded journal and the simulated cloud, its API and page, until it is told to stop.
//!
//! Never: listens beyond loopback without tokens.

use super::Output;
use super::args::RunArgs;
use super::live::{self, Live, Signals};
use super::outcome::{Exit, Failure};
use super::world::WorldFile;
use crate::audit_log::{AuditLog, Author};
use crate::cloud::{Cloud, OpenedCloud};
use crate::cluster::{Cluster, NodeEnding};
use crate::config::{Config, DEFAULT_DATA, DEFAULT_LISTEN};
use crate::driver::{DriverError, RealAdapters, Settings, TimeConsent, refuse_what_is_left, start};
use crate::files::create_private_folder;
use crate::intake::PolicyRoutes;
use crate::journal::DataFolder;
use crate::policy::PolicyBasis;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Flags before configuration.
pub(super) fn configured(args: &RunArgs) -> Result<Config, Failure> {
    let mut config = super::doctor::configuration(args.config.as_deref())?;
    config.listen = args.listen.or(config.listen);
    config.data = args.data.clone().or(config.data);
    config.policy = args.policy.clone().or(config.policy);
    Ok(config)
}

/// Why waiting is over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StandbyEnd {
    /// Nobody holds the folder.
    Free,
    /// It was asked to end.
    Stopped,
}

/// Waits until no other process holds the journal's folder.
fn stand_by(folder: &Path, signals: &mut Signals) -> Result<StandbyEnd, Failure> {
    create_private_folder(folder).map_err(|e| Failure::folder(folder, &e))?;
    while let Some(holder) = DataFolder::holder(folder) {
        eprintln!("standby   {} is led by {holder}; waiting to take over", folder.display());
        let (waits, at) = (tokio::sync::oneshot::channel(), folder.to_owned());
        // It ends with the process: nothing but the lock wakes it.
        std::thread::spawn(move || waits.0.send(DataFolder::wait_for(&at)));
        match signals.or(waits.1) {
            Some(Ok(free)) => free.map_err(DriverError::from)?,
            Some(Err(_)) | None => return Ok(StandbyEnd::Stopped),
        }
        eprintln!("standby   taking over");
    }
    Ok(StandbyEnd::Free)
}

pub(super) fn run(args: &RunArgs, out: Output) -> Result<Exit, Failure> {
    let config = configured(args)?;
    let folder = config.data.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_DATA));
    let standby = config.standby || args.standby;
    let mut signals = Signals::kept()?;
    let (live, world) = loop {
        if standby && stand_by(&folder, &mut signals)? == StandbyEnd::Stopped {
            return Ok(Exit::Done);
        }
        match begin(args, &config, &folder, out) {
            // Another one that stood by was first.
            Err(_) if standby && DataFolder::holder(&folder).is_some() => {}
            begun => break begun?,
        }
    };
    eprintln!("journal   {}", live.running.handle.folder().display());
    match &live.cloud {
        Some(cloud) => {
            eprintln!("cloud     {}", cloud.name);
            match &live.cluster {
                Some(cluster) => eprintln!("cluster   {}", cluster.name),
                None => {
                    eprintln!("cluster   simulated");
                    eprintln!(
                        "{} nothing runs on the nodes that are bought: jobs are played through",
                        out.err.warn("warning:")
                    );
                }
            }
        }
        None => eprintln!("cloud     simulated; {}", world.words()),
    }
    if let Some(folder) = config.focus_folder() {
        eprintln!("focus     {}  (a file for each closed day)", folder.display());
    }
    if let Some(listener) = &live.listener {
        let address = listener.local_addr().map_err(Failure::outside)?;
        eprintln!("listening http://{address}  (API and page; Ctrl-C stops)");
    }
    let finished = live.until_stopped(signals, |_| {})?;
    for finding in &finished.audit {
        eprintln!("{} {finding}", out.err.bad("violation:"));
    }
    eprintln!("stopped; {} goes on from here", out.err.strong("forebay run"));
    Ok(if finished.audit.is_empty() { Exit::Done } else { Exit::Violations })
}

/// Takes the address and the journal, and starts the driver.
fn begin(args: &RunArgs, config: &Config, folder: &Path, out: Output) -> Result<(Live, WorldFile), Failure> {
    let tokens = live::tokens(config, out)?;
    let resume = live::has_journal(folder);
    crate::cloud::check(config).map_err(Failure::input)?;
    crate::cluster::check(config).map_err(Failure::input)?;
    let catalogue = crate::cloud::catalogue(config).map_err(Failure::input)?;
    let corrected = crate::cloud::corrected(config, folder, catalogue);
    let catalogue = corrected.catalogue.clone();
    for line in &corrected.remarks {
        eprintln!("{} {line}", out.err.warn("warning:"));
    }
    let (text, compiled) = live::policy(config.policy.as_deref(), resume.then_some(folder), &catalogue)?;
    crate::cloud::check_policy(config, &compiled.policy, &catalogue).map_err(Failure::input)?;
    if let Some(said) = crate::cloud::unknown_efa(config, &compiled.policy, &catalogue) {
        eprintln!("{} {said}", out.err.warn("warning:"));
    }
    let opened = crate::cloud::open(config, &catalogue).map_err(Failure::input)?;
    let Outside { cloud, cluster, real } = outside(config, folder, opened)?;
    let is_real = cloud.is_some();
    let world = WorldFile::settle(folder, resume, args.seed, None)?;
    let listener = live::listen_for(config.listen.unwrap_or(DEFAULT_LISTEN), &tokens)?;
    if !resume {
        refuse_what_is_left(folder)?;
        world.save(folder)?;
    }
    let policy = crate::policy::hash(&text);
    let routes = Arc::new(PolicyRoutes::new(compiled.routes.clone()));
    let running = start(Settings {
        resume,
        consent: args.consent(),
        outside: crate::cloud::outside_clocks(config)
            .into_iter()
            .chain(crate::cluster::outside_clock(config))
            .collect(),
        witnesses: crate::cloud::witness(config).into_iter().collect(),
        policy: Some((text.clone(), compiled.policy.clone())),
        routes: Arc::clone(&routes) as _,
        real,
        retention: config.retention(),
        tenants: config.tenant_limits(),
        ..Settings::new(folder.to_owned(), if is_real { WorldFile::calm() } else { world.maker() })
    })?;
    world.save(folder)?;
    if let Some(line) = corrected.save(folder) {
        eprintln!("{} {line}", out.err.warn("warning:"));
    }
    live::say_recovery(&running, out);
    live::warn_of_mode(folder, out);
    let audit = AuditLog::open(folder).map_err(|e| Failure::folder(folder, &e))?;
    let before = running.policy_before();
    let changes = before.and_then(|before| live::policy_changes(before, &text, &compiled, &catalogue));
    if let Some(changes) = &changes {
        eprintln!("policy    {changes}");
    }
    let started = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "policy": policy,
        "policyFrom": config.policy.as_ref().map(|path| path.display().to_string()),
        "policyIsNew": running.policy_is_new(),
        "changes": changes,
        "acceptLoss": args.consent().loss,
        "acceptTime": args.consent().time == TimeConsent::Given,
    });
    audit.0.act("start", Author::of_process(), started);
    let audit = Some(audit);
    let (policy, listener) = (Some(PolicyBasis { config: config.clone(), catalogue }), Some(listener));
    Ok((Live { running, routes, listener, tokens, config: config.clone(), cloud, cluster, audit, policy }, world))
}

/// What is not simulated.
#[derive(Default)]
struct Outside {
    cloud: Option<Cloud>,
    cluster: Option<Cluster>,
    real: RealAdapters,
}

/// Opens the configured cluster beside the cloud that was opened.
fn outside(config: &Config, folder: &Path, opened: Option<OpenedCloud>) -> Result<Outside, Failure> {
    let Some(OpenedCloud { cloud, executor, terminate }) = opened else { return Ok(Outside::default()) };
    match crate::cluster::open(config, folder, executor, terminate).map_err(Failure::input)? {
        NodeEnding::Emptied(opened) => {
            let real = RealAdapters { cloud: Some(opened.cloud), cluster: Some(opened.executor) };
            Ok(Outside { cloud: Some(cloud), cluster: Some(opened.cluster), real })
        }
        NodeEnding::Ended(executor) => {
            let real = RealAdapters { cloud: Some(executor), ..RealAdapters::default() };
            Ok(Outside { cloud: Some(cloud), cluster: None, real })
        }
    }
}

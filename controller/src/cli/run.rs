//! `forebay run`: the controller with an embedded journal and the simulated cloud, its API and page, until it is told to stop.
//!
//! Never: listens beyond loopback without tokens.

use super::Output;
use super::args::RunArgs;
use super::live::{self, Live};
use super::outcome::{Exit, Failure, read};
use super::world::{Choice, WorldFile};
use crate::config::Config;
use crate::driver::{Settings, start};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// Where it listens when nothing is said.
const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8080);

/// Where the journal is when nothing is said.
const DATA: &str = "forebay-data";

/// Flags before configuration.
pub(super) fn configured(args: &RunArgs) -> Result<Config, Failure> {
    let mut config = match &args.config {
        Some(path) => Config::parse(path, &read(path)?).map_err(Failure::input)?,
        None => Config::default(),
    };
    config.listen = args.listen.or(config.listen);
    config.data = args.data.clone().or(config.data);
    config.policy = args.policy.clone().or(config.policy);
    Ok(config)
}

pub(super) fn run(args: &RunArgs, out: Output) -> Result<Exit, Failure> {
    let config = configured(args)?;
    let tokens = live::tokens(&config, out)?;
    let folder = config.data.clone().unwrap_or_else(|| PathBuf::from(DATA));
    let resume = live::has_journal(&folder);
    let (text, compiled) = live::policy(config.policy.as_deref(), resume.then_some(folder.as_path()))?;
    let world = WorldFile::settle(&folder, resume, &Choice { seed: args.seed, market: None })?;
    let listener = live::listen_for(config.listen.unwrap_or(LISTEN), &tokens)?;
    let routes = Arc::new(compiled.routes);
    world.save(&folder)?;
    let running = start(Settings {
        resume,
        policy: Some((text, compiled.policy)),
        routes: Arc::clone(&routes) as _,
        ..Settings::new(folder, world.maker())
    })?;
    live::say_recovery(&running, out);
    let address = listener.local_addr().map_err(Failure::outside)?;
    eprintln!("journal   {}", running.handle.folder().display());
    eprintln!("cloud     simulated; {}", world.words());
    eprintln!("listening http://{address}  (API and page; Ctrl-C stops)");
    let live = Live { running, routes, listener: Some(listener), tokens };
    let finished = live.until_stopped(|_| {})?;
    for finding in &finished.audit {
        eprintln!("{} {finding}", out.err.bad("violation:"));
    }
    eprintln!("stopped; {} goes on from here", out.err.strong("forebay run"));
    Ok(if finished.audit.is_empty() { Exit::Done } else { Exit::Violations })
}

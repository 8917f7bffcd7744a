//! `forebay agent`: the node agent, until the process is ended.
//!
//! Never: a controller's part; it runs where no journal is.

use super::args::AgentArgs;
use super::outcome::{Exit, Failure};
use super::server::token;
use forebay_node_agent::{AgentError, AgentSettings, AgentTimings, LogLine, NodeAgent, count_gpus};
use std::path::Path;
use std::sync::Arc;

pub(super) fn run(args: &AgentArgs) -> Result<Exit, Failure> {
    let settings = AgentSettings {
        controller: args.controller.clone(),
        metadata: args.metadata.clone(),
        token: token(args.token_file.as_deref())?,
        timings: AgentTimings::default(),
    };
    let log: LogLine = Arc::new(|line| eprintln!("agent: {line}"));
    match count_gpus(Path::new("/dev")) {
        0 => log("no NVIDIA GPU is seen on this node; what the cloud says is watched all the same"),
        n => log(&format!("NVIDIA GPUs on this node: {n}")),
    }
    let agent = NodeAgent::start(&settings, &log).map_err(|error| match error {
        AgentError::Address { .. } => Failure::input(error),
        AgentError::Thread(_) => Failure::outside(error),
    })?;
    agent.join();
    Err(Failure::outside(
        "the agent has ended by itself, which it never should: start it again, and report what it said",
    ))
}

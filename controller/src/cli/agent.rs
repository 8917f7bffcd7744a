//! `forebay agent`: the node agent, until the process is ended.
//!
//! Never: a controller's part; it runs where no journal is.

use super::args::AgentArgs;
use super::outcome::{Exit, Failure};
use super::server::token;
use forebay_node_agent::{Agent, AgentError, Pace, Say, Settings, gpus};
use std::path::Path;
use std::sync::Arc;

pub(super) fn run(args: &AgentArgs) -> Result<Exit, Failure> {
    let settings = Settings {
        controller: args.controller.clone(),
        metadata: args.metadata.clone(),
        token: token(args.token_file.as_deref())?,
        pace: Pace::default(),
    };
    let say: Say = Arc::new(|line| eprintln!("agent: {line}"));
    match gpus(Path::new("/dev")) {
        0 => say("no NVIDIA GPU is seen on this node; what the cloud says is watched all the same"),
        n => say(&format!("NVIDIA GPUs on this node: {n}")),
    }
    let agent = Agent::start(&settings, &say).map_err(|error| match error {
        AgentError::Address { .. } => Failure::input(error),
        AgentError::Thread(_) => Failure::outside(error),
    })?;
    agent.join();
    Err(Failure::outside(
        "the agent has ended by itself, which it never should: start it again, and report what it said",
    ))
}

//! `forebay agent`: the node agent, until the process is ended; with `--once`, what it sees.
//!
//! Never: a controller's part; it runs where no journal is.

use super::args::AgentArgs;
use super::outcome::{Exit, Failure, print};
use super::server::token;
use forebay_node_agent::{AgentError, AgentSettings, AgentTimings, AgentToken, LogLine, NodeAgent, NodeRoots, inspect};
use std::sync::Arc;

pub(super) fn run(args: &AgentArgs) -> Result<Exit, Failure> {
    let roots = NodeRoots { proc: args.proc.clone(), kubelet: args.kubelet.clone() };
    let timings = AgentTimings::default();
    if args.once {
        print(&inspect(&args.gpus, &roots, timings.gpu_patience).map_err(failure)?)?;
        return Ok(Exit::Done);
    }
    let settings = AgentSettings {
        controller: args.controller.clone().unwrap_or_default(),
        metadata: args.metadata.clone(),
        token: agent_token(args)?,
        gpus: args.gpus.clone(),
        roots,
        listen: args.listen,
        timings,
    };
    let log: LogLine = Arc::new(|line| eprintln!("agent: {line}"));
    NodeAgent::start(&settings, &log).map_err(failure)?.join();
    Err(Failure::outside(
        "the agent has ended by itself, which it never should: start it again, and report what it said",
    ))
}

/// What it shows the controller. What is wrong with a file now is said now; later what is in it then counts.
fn agent_token(args: &AgentArgs) -> Result<AgentToken, Failure> {
    let now = token(args.token_file.as_deref())?.map_or(AgentToken::None, AgentToken::Fixed);
    Ok(args.token_file.clone().map_or(now, AgentToken::File))
}

fn failure(error: AgentError) -> Failure {
    match error {
        AgentError::Address { .. } => Failure::input(error),
        AgentError::Listen { .. } | AgentError::Thread(_) => Failure::outside(error),
    }
}

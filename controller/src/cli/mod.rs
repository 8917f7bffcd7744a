//! The command line: one file a command. Here are its words, its exit codes and who does what.
//!
//! Never: a figure of its own. Commands call the driver, the simulator, the policy compiler or a server, and show what they say.

mod agent;
pub mod args;
mod backup;
mod brakes;
mod check;
mod check_config;
mod clients;
mod connection;
mod cost;
mod demand;
mod doctor;
mod event_files;
mod events;
mod folder;
mod gate;
mod job;
mod journal;
mod lists;
mod live;
mod logs;
mod manual;
pub mod outcome;
mod plan;
mod policy;
mod replay;
mod run;
mod schema;
mod server;
mod simulate;
mod state;
mod submit;
mod types;
mod uninstall;
mod wait;
mod world;

use args::{Cli, Command, StateCommand};
use clap::Parser;
use outcome::Failure;
use std::process::ExitCode;

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let out = Output { paint: cli.color.stdout(), err: cli.color.stderr() };
    match command(cli.command, out) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            failure.print(out.err);
            failure.exit.into()
        }
    }
}

/// How to write.
#[derive(Clone, Copy)]
struct Output {
    /// Colours of stdout.
    paint: crate::show::Paint,
    /// Colours of stderr.
    err: crate::show::Paint,
}

fn command(command: Command, out: Output) -> Result<outcome::Exit, Failure> {
    match command {
        Command::Run(args) => {
            log(out);
            match &args.replay {
                Some(file) => replay::run(&args, file, out),
                None => run::run(&args, out),
            }
        }
        Command::Simulate(args) => simulate::run(&args, out),
        Command::Demand(args) => demand::run(&args, out),
        Command::Plan(args) => plan::run(&args, out),
        Command::Check(args) => check::run(&args, out),
        Command::Doctor(args) => doctor::run(&args, out),
        Command::Schema(args) => schema::run(args.of),
        Command::Completions(args) => manual::completions(&args),
        Command::Man(args) => manual::man(&args),
        Command::Journal(args) => journal::run(&args.what),
        Command::Agent(args) => agent::run(&args),
        Command::Gate(args) => gate::run(&args),
        Command::Jobs(args) => lists::jobs(&args, out),
        Command::Nodes(args) => lists::nodes(&args, out),
        Command::Queues(args) => lists::queues(&args, out),
        Command::Sources(args) => lists::sources(&args, out),
        Command::Cost(args) => cost::run(&args, out),
        Command::Logs(args) => logs::run(&args, out),
        Command::Job(args) => job::run(&args, out),
        Command::Why(args) => clients::why(&args, out),
        Command::Cancel(args) => clients::cancel(&args, out),
        Command::ConfirmDead(args) => clients::confirm_dead(&args, out),
        Command::Pause(args) => brakes::pause(&args, out),
        Command::Resume(args) => brakes::resume(&args, out),
        Command::Hold(args) => brakes::set("queue", &args, out),
        Command::Release(args) => brakes::release("queue", &args, out),
        Command::Drain(args) => brakes::set("drain", &args, out),
        Command::Undrain(args) => brakes::release("drain", &args, out),
        Command::Brakes(args) => lists::brakes(&args, out),
        Command::Policy(args) => policy::run(&args, out),
        Command::Uninstall(args) => uninstall::run(&args),
        Command::Wait(args) => wait::run(&args, out),
        Command::Submit(args) => submit::run(&args, out),
        Command::Events(args) => events::run(&args, out),
        Command::Types(args) => types::run(&args, out),
        Command::State { command: StateCommand::Export(args) } => state::export(&args),
    }
}

/// Warnings of the controller go to stderr; `FOREBAY_LOG=debug` says more.
fn log(out: Output) {
    let filter = tracing_subscriber::EnvFilter::try_from_env("FOREBAY_LOG").unwrap_or_else(|_| "warn".into());
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    let logs = logs.with_ansi(out.err.is_on());
    // A second start in one process (tests) keeps the first one's log.
    let _ = logs.try_init();
}

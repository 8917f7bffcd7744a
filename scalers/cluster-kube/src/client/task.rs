//! The task that runs the machine of one cluster: it makes its calls, gives it what comes of them, and hands its reports on.
//!
//! ```text
//! MachineCommand, responses, events of watches, time -> machine -> calls (concurrently)
//!                                                          '-----> reports, in order
//! ```
//!
//! What has come while something else was handled is handled with it: the machine is asked for calls once for all of it.
//! No report is dropped: while whoever takes them is slow, commands, responses and watches wait.
//! Never: a clock of its own, a decision.

use super::{CallRunner, KubeClient, RunnerEvent};
use crate::adoption::WorkloadId;
use crate::machine::{KubeMachine, KubeReport};
use crate::names::RunId;
use crate::request::{GangStart, RunToken};
use crate::view::EngineView;
use forebay_kernel::units::Timestamp;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, Sender};

/// The longest time between two polls of the machine, so that a clock that was set is noticed.
const MAX_SLEEP: Duration = Duration::from_secs(60);

/// Responses and events that are handled before the machine is asked for calls again: a few times those that run at a time, so that none of their
/// places stays empty for longer than this many take, some milliseconds.
const MOST_AT_ONCE: usize = 256;

/// What the engine's side wants of the cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum MachineCommand {
    /// Everything in the cluster is listed; the effects without an outcome follow. Comes first, and once.
    Begin(EngineView),
    /// What the engine knows now.
    State(EngineView),
    /// Start a gang, with the token of its attempt.
    Start(Box<GangStart>, RunToken),
    /// Stop a gang.
    Stop {
        /// Which attempt.
        run: RunId,
        /// Its containers are killed then.
        deadline: Timestamp,
    },
    /// Take workers out of a gang.
    Shrink {
        /// Which attempt.
        run: RunId,
        /// The workers.
        leave: Vec<u32>,
        /// Their containers are killed then.
        deadline: Timestamp,
    },
    /// Cordon the node of an instance, and report when it is empty.
    Drain {
        /// The cloud's id.
        instance: String,
    },
    /// The logs of workers that have ended were taken, or nobody will: their pods may go. `None`: those of all workers.
    LogsTaken(RunId, Option<BTreeSet<u32>>),
    /// The submission of an object that asks to be adopted was refused, in these words.
    RefuseAdoption(WorkloadId, String),
}

/// Runs the machine until there are no commands any more, or nobody takes its reports. `now` is the engine's clock.
pub async fn run(
    mut machine: KubeMachine,
    client: KubeClient,
    now: impl Fn() -> Timestamp,
    mut commands: Receiver<MachineCommand>,
    reports: Sender<KubeReport>,
) {
    let mut runner = CallRunner::new(client);
    loop {
        for (id, call) in machine.poll(now()) {
            runner.start(id, call);
        }
        for report in machine.take_reports() {
            if reports.send(report).await.is_err() {
                return;
            }
        }
        let at = now();
        let wait = Duration::from_millis(machine.next_timeout(at).since(at).0).min(MAX_SLEEP);
        tokio::select! {
            command = commands.recv() => match command {
                Some(command) => handle(&mut machine, command),
                None => return,
            },
            event = runner.next() => {
                take(&mut machine, event, now());
                let more = std::iter::from_fn(|| runner.next_ready()).take(MOST_AT_ONCE);
                more.for_each(|event| take(&mut machine, event, now()));
            }
            () = tokio::time::sleep(wait) => {}
        }
    }
}

fn take(machine: &mut KubeMachine, event: RunnerEvent, now: Timestamp) {
    match event {
        RunnerEvent::Response(id, response) => machine.handle_response(id, response, now),
        RunnerEvent::Watch(event) => machine.handle_watch(event, now),
        RunnerEvent::Lost => machine.lose_running_calls(now),
    }
}

fn handle(machine: &mut KubeMachine, command: MachineCommand) {
    match command {
        MachineCommand::Begin(view) => machine.begin(view),
        MachineCommand::State(view) => machine.handle_state(view),
        MachineCommand::Start(start, token) => machine.start(*start, token),
        MachineCommand::Stop { run, deadline } => machine.stop(run, deadline),
        MachineCommand::Shrink { run, leave, deadline } => machine.shrink(run, &leave, deadline),
        MachineCommand::Drain { instance } => machine.drain(&instance),
        MachineCommand::LogsTaken(run, workers) => machine.logs_taken(run, workers.as_ref()),
        MachineCommand::RefuseAdoption(object, words) => machine.refuse_adoption(object, words),
    }
}

//! The task that runs the machine: it makes the machine's calls and watches, submits its events to the driver, and reports its condition.
//!
//! ```text
//! driver's effects, the engine's state -> commands -> machine and its calls -> reports -> driver, durable, in order, behind what ends saved last
//!                                                                             '-> notes, condition, terminations
//! ```
//!
//! No event is dropped: while the driver's mailbox is full, reports wait, and so does the machine.

use super::TaskCommand;
use super::adopted::{self, SubmittedObject};
use super::logs::LogReader;
use crate::checkpoints::Checkpoints;
use crate::cluster::agent_tokens::ReviewRequest;
use crate::cluster::log_archive::LogArchive;
use crate::cluster::logs::LogRequest;
use crate::cluster::{ClusterError, ClusterNotes, Terminate};
use crate::driver::{DriverHandle, MailboxError, SubmittedItem, wall_ms};
use backon::{ConstantBuilder, Retryable};
use forebay_cluster_kube::adoption::WorkloadId;
use forebay_cluster_kube::client::{CredentialSource, KubeClient, MachineCommand, task};
use forebay_cluster_kube::machine::{KubeMachine, KubeReport};
use forebay_cluster_kube::view::AdoptedView;
use forebay_cluster_kube::{AdoptedJobs, AdoptedWait, EngineView, KubeSettings, RunId, WaitingScope};
use forebay_engine::engine::Engine;
use forebay_kernel::event::Event;
use forebay_kernel::ids::JobId;
use forebay_kernel::reason::Reason;
use forebay_kernel::units::Timestamp;
use forebay_source::{Condition, Health};
use forebay_wire::document::reason::Words;
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{Receiver, Sender, UnboundedReceiver, WeakSender, channel};

/// The delay before the next attempt to find credentials.
const CONNECT_RETRY: Duration = Duration::from_secs(10);
/// The delay before events are submitted again to a full mailbox.
const MAILBOX_RETRY: Duration = Duration::from_millis(200);
/// The engine's state is looked at so often at most. What is decided comes by itself; this is for what has been journaled.
const VIEW_EVERY: Duration = Duration::from_millis(200);
/// Why adopted objects wait is asked no more often: it is asked of each.
const WAITS_EVERY: Duration = Duration::from_secs(2);
/// Commands and reports that wait. Past them, whoever sends one waits.
const WAITING: usize = 1024;

/// What the task talks to.
pub(super) struct Outside {
    pub source: CredentialSource,
    pub settings: KubeSettings,
    pub terminate: Terminate,
    pub notes: ClusterNotes,
    pub health: Health,
    pub archive: LogArchive,
}

/// What others ask of the cluster, beside the machine.
pub(super) struct Asked {
    pub logs: Receiver<LogRequest>,
    pub reviews: Receiver<ReviewRequest>,
}

/// Runs until the driver stops.
///
/// # Errors
/// The runtime could not be created.
pub(super) fn run(
    outside: Outside,
    commands: UnboundedReceiver<TaskCommand>,
    asked: Asked,
    handle: DriverHandle,
    checkpoints: Checkpoints,
) -> Result<(), ClusterError> {
    let guard = TaskGuard { handle: handle.clone(), health: outside.health.clone(), finished: false };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ClusterError::Thread)?;
    runtime.block_on(work(outside, commands, asked, handle, checkpoints));
    guard.finish();
    Ok(())
}

/// Stops the controller if the task does not start or ends by a bug, because nobody else would run or end gangs.
struct TaskGuard {
    handle: DriverHandle,
    health: Health,
    finished: bool,
}

impl TaskGuard {
    fn finish(mut self) {
        self.finished = true;
        self.health.set_condition(Condition::Stopped);
    }
}

impl Drop for TaskGuard {
    fn drop(&mut self) {
        if !self.finished {
            let why = "the task for Kubernetes has ended: the controller stops, start it again";
            tracing::error!("kubernetes: {why}");
            self.health.set_condition(Condition::Failing { why: why.to_owned() });
            self.handle.stop();
        }
    }
}

async fn work(
    outside: Outside,
    mut commands: UnboundedReceiver<TaskCommand>,
    asked: Asked,
    handle: DriverHandle,
    checkpoints: Checkpoints,
) {
    let Some(TaskCommand::Begin { journal, first_effect, view, now }) = commands.recv().await else { return };
    let Some(client) = connect(&outside, &handle).await else { return };
    let label = forebay_cluster_kube::journal_label(&journal.id.to_string());
    let machine = KubeMachine::new(outside.settings.clone(), &label).with_lineage(*journal).before_effect(first_effect);
    let clock = DriverClock { base: now.max(wall_ms()), since: Instant::now() };
    let (to_machine, for_machine) = channel(WAITING);
    let (to_engine, for_engine) = channel(WAITING);
    let settings = outside.settings.clone();
    let reader = LogReader { client: client.clone(), journal: label, archive: outside.archive.clone() };
    let (ended, for_archive) = channel(WAITING);
    let commander = to_machine.downgrade();
    let reports = Reports {
        outside,
        handle: handle.clone(),
        checkpoints,
        clock,
        ended,
        machine: commander.clone(),
        listed: false,
        failures: BTreeMap::new(),
    };
    let reviewing = client.clone();
    // In one task, so that a panic of one ends all. Each waits for itself: who hands reports on never waits for who takes commands.
    let run = async {
        tokio::join!(
            task::run(machine, client, move || clock.now(), for_machine, to_engine),
            tell(*view, settings, commands, handle, to_machine),
            reports.run(for_engine),
        )
    };
    // Questions are answered as long as the others run.
    let Asked { logs, reviews } = asked;
    let answers = async {
        tokio::join!(
            reader.clone().serve(logs),
            reader.keep(for_archive, commander),
            super::agent_tokens::serve(reviewing, reviews),
        )
    };
    let (mut run, mut answers) = (pin!(run), pin!(answers));
    tokio::select! {
        _ = &mut run => {}
        // Nobody asks any more.
        _ = &mut answers => {
            run.await;
        }
    }
}

/// The client, as soon as there are credentials. `None`: the driver has stopped.
async fn connect(outside: &Outside, handle: &DriverHandle) -> Option<KubeClient> {
    let retries = ConstantBuilder::new().with_delay(CONNECT_RETRY).without_max_times();
    let connect = || KubeClient::connect(&outside.source);
    let connect = connect.retry(retries).notify(|error, _| {
        if outside.health.set_condition(Condition::Failing { why: format!("kubernetes: {error}") }) {
            tracing::error!("kubernetes: {error}; nothing runs");
        }
    });
    let mut progress = handle.watch();
    tokio::select! {
        client = connect => client.ok(),
        _ = progress.wait_for(|p| p.stopped) => None,
    }
}

/// The driver's time at the start, monotonic from there.
#[derive(Clone, Copy)]
struct DriverClock {
    base: Timestamp,
    since: Instant,
}

impl DriverClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.base.0 + u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX))
    }
}

/// Tells the machine what the engine decides and what it knows, until the driver stops.
async fn tell(
    view: EngineView,
    settings: KubeSettings,
    mut commands: UnboundedReceiver<TaskCommand>,
    handle: DriverHandle,
    machine: Sender<MachineCommand>,
) {
    let mut progress = handle.watch();
    let (mut looked, mut stale) = (Instant::now(), true);
    let mut adopted = KnownAdopted::default();
    if machine.send(MachineCommand::Begin(view)).await.is_err() {
        return;
    }
    while !progress.borrow_and_update().stopped {
        let look = VIEW_EVERY.saturating_sub(looked.elapsed());
        let command = tokio::select! {
            // What was decided comes first: the state that is looked at then is at least as new.
            biased;
            command = commands.recv() => match command {
                Some(TaskCommand::Machine(command)) => command,
                Some(TaskCommand::Begin { .. }) => continue,
                // The driver has stopped.
                None => return,
            },
            () = tokio::time::sleep(look), if stale => {
                (looked, stale) = (Instant::now(), false);
                let (settings, jobs, scope) = (settings.clone(), Arc::clone(&adopted.jobs), adopted.scope());
                match handle.query_async(move |engine, _| engine_view(engine, &settings, &jobs, scope)).await {
                    Ok(seen) => MachineCommand::State(adopted.view(seen, scope)),
                    Err(MailboxError::Stopped(_)) => return,
                    Err(MailboxError::Full { .. } | MailboxError::TooMany { .. }) => {
                        stale = true;
                        continue;
                    }
                }
            }
            told = progress.changed() => {
                if told.is_err() {
                    return;
                }
                stale = true;
                continue;
            }
        };
        if machine.send(command).await.is_err() {
            return;
        }
    }
}

/// What is known of adopted objects.
#[derive(Default)]
struct KnownAdopted {
    /// Which jobs they are, for the next look.
    jobs: Arc<Mutex<AdoptedJobs>>,
    views: BTreeMap<String, AdoptedView>,
    /// When it was asked last why they wait.
    asked: Option<Instant>,
}

/// What the engine knows, and what has changed of adopted objects, by their uids.
struct SeenState {
    view: EngineView,
    adopted: BTreeMap<String, Option<AdoptedView>>,
}

impl KnownAdopted {
    /// Those that wait are looked at where something ended, and all of them where it is asked why they wait.
    fn scope(&self) -> WaitingScope {
        let asks = self.asked.is_none_or(|asked| asked.elapsed() >= WAITS_EVERY);
        if asks { WaitingScope::All } else { WaitingScope::IfEnded }
    }

    /// What the machine has to know.
    fn view(&mut self, seen: SeenState, scope: WaitingScope) -> EngineView {
        if scope == WaitingScope::All {
            self.asked = Some(Instant::now());
        }
        for (uid, known) in seen.adopted {
            match known {
                Some(known) => self.know(uid, known, scope),
                None => _ = self.views.remove(&uid),
            }
        }
        EngineView { adopted: self.views.clone(), ..seen.view }
    }

    fn know(&mut self, uid: String, mut known: AdoptedView, scope: WaitingScope) {
        let before = self.views.get(&uid).filter(|before| before.job == known.job && waits(before));
        // Why it waits was asked a moment ago.
        if let Some(before) = before.filter(|_| waits(&known) && scope == WaitingScope::IfEnded) {
            known.waits = before.waits.clone().or(known.waits);
        }
        self.views.insert(uid, known);
    }
}

fn waits(adopted: &AdoptedView) -> bool {
    adopted.open && adopted.run.is_none()
}

/// What the machine has to know of the engine. Where all that wait are looked at, with why each does: a job's row says that of its past alone.
fn engine_view(engine: &Engine, settings: &KubeSettings, jobs: &Mutex<AdoptedJobs>, scope: WaitingScope) -> SeenState {
    let view = EngineView::without_adopted(engine.state(), settings);
    if settings.adopt.is_empty() {
        return SeenState { view, adopted: BTreeMap::new() };
    }
    let mut adopted = jobs.lock().unwrap_or_else(PoisonError::into_inner).changes(engine.state(), scope);
    if scope == WaitingScope::All {
        for known in adopted.values_mut().flatten().filter(|known| waits(known)) {
            let asked = engine.why(known.job).map(|reason| wait(engine, reason));
            known.waits = asked.or_else(|| known.waits.take());
        }
    }
    SeenState { view, adopted }
}

fn wait(engine: &Engine, reason: Reason) -> AdoptedWait {
    let named = engine.state().named_by(reason);
    AdoptedWait { code: reason.code(), words: Words { reason, named: named.as_deref() }.to_string() }
}

/// What the driver has to know.
enum Message {
    Event(Event),
    Submission(SubmittedObject),
}

impl Message {
    fn event(&self) -> Option<&Event> {
        match self {
            Message::Event(event) => Some(event),
            Message::Submission(_) => None,
        }
    }

    fn item(&self) -> SubmittedItem {
        match self {
            Message::Event(event) => SubmittedItem::from(event.clone()),
            Message::Submission(submitted) => submitted.item(),
        }
    }
}

/// What becomes of the machine's reports.
struct Reports {
    outside: Outside,
    handle: DriverHandle,
    checkpoints: Checkpoints,
    clock: DriverClock,
    /// Attempts of which a worker has ended: its log is kept.
    ended: Sender<RunId>,
    machine: WeakSender<MachineCommand>,
    /// All is listed: the cluster answers.
    listed: bool,
    /// What fails, by what was tried.
    failures: BTreeMap<String, String>,
}

impl Reports {
    /// Until the machine ends, or the driver does.
    async fn run(mut self, mut reports: Receiver<KubeReport>) {
        let mut some = Vec::new();
        while reports.recv_many(&mut some, WAITING).await > 0 {
            let mut messages = Vec::new();
            for report in some.drain(..) {
                messages.extend(self.take(report));
            }
            self.report_condition();
            let saved = self.checkpoints.last_saved(messages.iter().filter_map(Message::event)).await;
            messages.splice(..0, saved.into_iter().map(Message::Event));
            if !self.submit(&messages).await {
                return;
            }
        }
    }

    /// Says something in the log and in the remarks of health.
    fn warn(&self, text: String) {
        tracing::warn!("kubernetes: {text}");
        self.outside.health.add_remark(self.clock.now().0, text);
    }

    /// Takes a report. Returns what the driver has to know of it.
    fn take(&mut self, report: KubeReport) -> Option<Message> {
        let notes = &self.outside.notes;
        match report {
            KubeReport::Listed => self.listed = true,
            KubeReport::Event(event) => {
                self.keep_logs(&event);
                match &event {
                    Event::RunStarted { job, .. } | Event::RunCompleted { job, .. } => forget(notes, *job),
                    _ => {}
                }
                return Some(Message::Event(event));
            }
            KubeReport::Submit { object, event } => match adopted::submitted(object, &event) {
                Ok(submitted) => return Some(Message::Submission(submitted)),
                Err((object, words)) => self.refused(object, &words),
            },
            KubeReport::NotAdopted { object, words } => self.not_adopted(&format!("{object}: {words}")),
            KubeReport::Refused { run, words } => notes.set(run.job, &format!("attempt {}", run.attempt.0), words),
            KubeReport::ChangedRequests { run, words } => notes.set(run.job, "requests", words),
            KubeReport::Waiting { worker, words } => {
                let subject = format!("worker {}", worker.worker);
                match words {
                    Some(words) => notes.set(worker.run.job, &subject, words),
                    None => notes.clear(worker.run.job, &subject),
                }
            }
            KubeReport::Unproven { worker, instance } => {
                let on = instance.unwrap_or_else(|| "a node that is not known".to_owned());
                let text = format!(
                    "nothing proves that {worker} on {on} has ended: its attempt is held until its node says so, boots anew or is gone"
                );
                notes.set(worker.run.job, &format!("worker {}", worker.worker), text.clone());
                self.warn(text);
            }
            KubeReport::Lost { worker, pod } => self.warn(format!(
                "pod {pod} was started for {worker} after the backup, or the older copy of its folder, that the journal goes on from: its node is \
                 kept and its job does not start until it has ended; wait for it, or delete it"
            )),
            KubeReport::LostObject { object, words } => self.warn(format!("{object}: {words}")),
            KubeReport::Drained { instance } => {
                self.failures.remove(&format!("drain {instance}"));
                (self.outside.terminate)(instance);
            }
            KubeReport::DrainBlocked { instance, pods } => {
                let why = format!("{} still on its node: end them, or wait for them", pods.join(", "));
                self.failures.insert(format!("drain {instance}"), why);
            }
            KubeReport::Failing { operation, error } => {
                tracing::error!("kubernetes: cannot {operation}: {error}");
                self.failures.insert(operation.to_owned(), error.to_string());
            }
            KubeReport::Recovered { operation } => {
                tracing::info!("kubernetes: no longer: cannot {operation}");
                self.failures.remove(operation);
            }
        }
        None
    }

    /// The logs of a run that has ended are kept, or of those of its workers that have. Where too many have ended at once, some are not.
    fn keep_logs(&self, event: &Event) {
        let (Event::RunCompleted { job, attempt, .. }
        | Event::RunFailed { job, attempt, .. }
        | Event::RunStopped { job, attempt, .. }
        | Event::RunDenied { job, attempt }
        | Event::RunShrunk { job, attempt, .. }) = event
        else {
            return;
        };
        let run = RunId { job: *job, attempt: *attempt };
        if self.ended.try_send(run).is_err() {
            tracing::warn!("kubernetes: the logs of {run} are not kept: too many runs have ended at once");
            // Not awaited: the machine may be waiting for us. It waits for logs for a little only.
            if let Some(machine) = self.machine.upgrade() {
                let _ = machine.try_send(MachineCommand::LogsTaken(run, None));
            }
        }
    }

    /// The submission of an object was refused; the object says so, too, where the machine has room to be told.
    fn refused(&self, object: WorkloadId, words: &str) {
        self.not_adopted(&format!("{object}: {words}"));
        // Not awaited: the machine may be waiting for us.
        if let Some(machine) = self.machine.upgrade() {
            let _ = machine.try_send(MachineCommand::RefuseAdoption(object, words.to_owned()));
        }
    }

    /// An object that asks to be adopted stays as it is.
    fn not_adopted(&self, words: &str) {
        tracing::warn!("kubernetes: not adopted: {words}");
        self.outside.health.add_remark(self.clock.now().0, format!("not adopted: {words}"));
    }

    /// Submits events; they are durable then. Returns false if the driver has stopped.
    async fn submit(&self, messages: &[Message]) -> bool {
        if messages.is_empty() {
            return true;
        }
        let retries = ConstantBuilder::new().with_delay(MAILBOX_RETRY).without_max_times();
        let submit = || self.handle.submit_items(messages.iter().map(Message::item).collect());
        let accepted = submit.retry(retries).when(|error| !matches!(error, MailboxError::Stopped(_))).await;
        let Ok(accepted) = accepted else { return false };
        for (message, outcome) in messages.iter().zip(accepted.outcomes) {
            if let Message::Submission(submitted) = message
                && let Some(words) = submitted.refused(outcome)
            {
                self.refused(submitted.object().clone(), &words);
            }
        }
        true
    }

    fn report_condition(&self) {
        let condition = match self.failures.iter().next() {
            Some((what, why)) => {
                let more = self.failures.len() - 1;
                let more = if more > 0 { format!(" (and {more} more, in the log)") } else { String::new() };
                Condition::Failing { why: format!("cannot {what}: {why}{more}") }
            }
            None if self.listed => Condition::Working,
            None => Condition::Starting,
        };
        self.outside.health.set_condition(condition);
    }
}

/// What was in the way of a job is not any more.
fn forget(notes: &ClusterNotes, job: JobId) {
    notes.forget(job);
}

#[cfg(test)]
mod tests;

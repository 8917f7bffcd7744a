//! The task that runs the machine: it makes the machine's calls, submits its outcomes to the driver, and reports its condition.
//!
//! ```text
//! commands, responses, time -> machine -> calls (concurrently)
//!                                '------> reports -> outbox -> driver, durable, in order
//! ```
//!
//! No event is dropped: while the driver's mailbox is full, events and the next listing wait.

use super::clock::DriverClock;
use super::notices::Notices;
use super::refresh::Refresh;
use super::{Connection, TaskCommand, claimed, submit};
use crate::cloud::CloudError;
use crate::cloud::check::{unused_reservation, uses_reserved};
use crate::driver::{DriverHandle, MailboxError};
use backon::{ConstantBuilder, Retryable};
use forebay_aws::AwsSettings;
use forebay_capacity_ec2::machine::CallId;
use forebay_capacity_ec2::sdk::{Client, Ec2Clients};
use forebay_capacity_ec2::{
    Ec2Call, Ec2Machine, Ec2Response, Ec2Settings, InstanceListing, MachineReport, reconcile, sdk,
};
use forebay_kernel::event::Event;
use forebay_kernel::state::State;
use forebay_source::{Condition, Health};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;

/// The delay before the next attempt to find a region and credentials.
const CONNECT_RETRY: Duration = Duration::from_secs(10);
/// The most events of one submission, far below the size of the mailbox.
const MAX_BATCH: usize = 1024;
/// The longest time between two polls of the machine.
const MAX_SLEEP: Duration = Duration::from_secs(60);

/// Runs until the driver stops.
///
/// # Errors
/// The runtime could not be created.
pub(super) fn run(
    connection: Connection,
    commands: UnboundedReceiver<TaskCommand>,
    handle: DriverHandle,
    health: Health,
) -> Result<(), CloudError> {
    let guard = TaskGuard { handle: handle.clone(), health: health.clone(), finished: false };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CloudError::Thread)?;
    runtime.block_on(work(connection, commands, handle, &health));
    guard.finish();
    Ok(())
}

/// Stops the controller if the task does not start or ends by a bug, because nobody else would terminate the nodes.
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
            let why = "the task for EC2 has ended: the controller stops, start it again";
            tracing::error!("ec2: {why}");
            self.health.set_condition(Condition::Failing { why: why.to_owned() });
            self.handle.stop();
        }
    }
}

async fn work(
    Connection { aws, queues }: Connection,
    mut commands: UnboundedReceiver<TaskCommand>,
    handle: DriverHandle,
    health: &Health,
) {
    let Some(TaskCommand::Begin { settings, claims, clock }) = commands.recv().await else { return };
    let Some(clients) = connect(&aws, &handle, health).await else { return };
    let notices = Notices::start(&clients.sqs, &queues, health);
    // It only determines jitter, so that controllers that start together do not retry together.
    let seed = seed_of(&settings.journal);
    let refresh = Refresh::new(clients.ec2.clone(), handle.clone(), health.clone(), clock, seed).run();
    let machine = Ec2Machine::new((*settings).clone(), claims, seed);
    let task = Task {
        machine,
        client: clients.ec2,
        notices,
        reservations: BTreeMap::new(),
        clock,
        handle,
        health,
        calls: JoinSet::new(),
        outbox: Vec::new(),
        failures: BTreeMap::new(),
        unaccounted: BTreeSet::new(),
        unused: BTreeSet::new(),
    };
    // In the same task, so that a panic of one ends both.
    tokio::join!(task.run(commands), refresh);
}

/// A number that differs between journals.
fn seed_of(journal: &str) -> u64 {
    let hash = blake3::hash(journal.as_bytes());
    u64::from_le_bytes(hash.as_bytes().first_chunk().copied().unwrap_or_default())
}

/// The clients, as soon as they can be created. `None`: the driver has stopped.
async fn connect(aws: &AwsSettings, handle: &DriverHandle, health: &Health) -> Option<Ec2Clients> {
    let retries = ConstantBuilder::new().with_delay(CONNECT_RETRY).without_max_times();
    let connect = || sdk::connect(aws);
    let connect = connect.retry(retries).notify(|error, _| {
        if health.set_condition(Condition::Failing { why: format!("ec2: {error}") }) {
            tracing::error!("ec2: {error}; nothing is bought");
        }
    });
    let mut progress = handle.watch();
    tokio::select! {
        clients = connect => clients.ok(),
        _ = progress.wait_for(|p| p.stopped) => None,
    }
}

struct Task<'a> {
    machine: Ec2Machine,
    client: Client,
    clock: DriverClock,
    handle: DriverHandle,
    health: &'a Health,
    calls: JoinSet<(CallId, Ec2Response)>,
    /// The events that are not submitted yet, in their order.
    outbox: Vec<Event>,
    /// The errors that persist, by operation and subject.
    failures: BTreeMap<(&'static str, String), String>,
    notices: Notices,
    /// The instances of each reservation, by the last listing.
    reservations: BTreeMap<String, BTreeSet<String>>,
    /// The unaccounted instances that were reported.
    unaccounted: BTreeSet<String>,
    /// The warnings about unused reservations that were reported.
    unused: BTreeSet<String>,
}

impl Task<'_> {
    async fn run(mut self, mut commands: UnboundedReceiver<TaskCommand>) {
        let mut progress = self.handle.watch();
        loop {
            for (id, call) in self.machine.poll(self.clock.now()) {
                self.start_call(id, call);
            }
            if !self.deliver().await || progress.borrow_and_update().stopped {
                return;
            }
            let now = self.clock.now();
            let wait = Duration::from_millis(self.machine.next_poll_at(now).since(now).0).min(MAX_SLEEP);
            tokio::select! {
                command = commands.recv() => match command {
                    Some(command) => self.handle_command(command),
                    // The driver has stopped.
                    None => return,
                },
                Some(done) = self.calls.join_next() => {
                    match done {
                        Ok((id, response)) => self.machine.handle_response(self.clock.now(), id, response),
                        Err(e) => {
                            tracing::error!("ec2: a call ended by a bug of this program: {e}");
                            self.calls.abort_all();
                            self.machine.lose_running_calls(self.clock.now());
                        }
                    }
                }
                batch = self.notices.next() => {
                    if !self.notices.submit(batch, &self.handle, &self.reservations, self.clock).await {
                        return;
                    }
                }
                () = tokio::time::sleep(wait) => {}
                changed = progress.changed() => if changed.is_err() { return },
            }
        }
    }

    fn handle_command(&mut self, command: TaskCommand) {
        match command {
            TaskCommand::Begin { .. } => {}
            TaskCommand::Launch { request, origin } => self.machine.launch(*request, origin),
            TaskCommand::Buying(buying) => self.machine.set_buying(buying),
            TaskCommand::LeaveToEc2 { instance, until } => {
                self.machine.leave_to_ec2(self.clock.now(), instance, until);
            }
            TaskCommand::Terminate { instance } => self.machine.terminate(self.clock.now(), instance),
        }
    }

    fn start_call(&mut self, id: CallId, call: Ec2Call) {
        let client = self.client.clone();
        self.calls.spawn(async move { (id, sdk::execute(&client, &call).await) });
    }

    /// Handles the machine's reports. Returns false if the driver has stopped.
    async fn deliver(&mut self) -> bool {
        for report in self.machine.take_reports() {
            match report {
                MachineReport::Outcome(event) => self.outbox.push(event),
                MachineReport::Listing(listing) => {
                    if !self.send().await || !self.compare(listing).await {
                        return false;
                    }
                }
                MachineReport::Failing { operation, subject, error } => {
                    let text = if subject.is_empty() { error.to_string() } else { format!("{subject}: {error}") };
                    tracing::error!("ec2: cannot {operation}: {text}");
                    self.failures.insert((operation, subject), text);
                }
                MachineReport::Recovered { operation, subject } => {
                    tracing::info!("ec2: no longer: cannot {operation} {subject}");
                    self.failures.remove(&(operation, subject));
                }
                MachineReport::Contested(others) => self.contested(&others),
            }
        }
        self.report_condition();
        self.send().await
    }

    /// Compares the state with a listing, on the driver's thread. Returns false if the driver has stopped.
    async fn compare(&mut self, listing: InstanceListing) -> bool {
        self.reservations = BTreeMap::new();
        for row in listing.instances.iter().filter(|row| row.exists()) {
            if let Some(reservation) = &row.reservation {
                self.reservations.entry(reservation.clone()).or_default().insert(row.instance.clone());
            }
        }
        let clock = self.clock.reading();
        let (settings, listing) = (self.machine.settings().on_clock(clock), listing.on_clock(clock));
        let compared = self.handle.query_async(move |engine, _| {
            let state = engine.state();
            let unused = unused_reservations(state, &settings);
            let unaccounted = reconcile::unaccounted(state, &settings, &listing);
            let unaccounted = unaccounted.iter().map(|row| row.instance.clone()).collect();
            let events = reconcile::listing_events(state, &settings, &listing);
            (events, claimed(state), unaccounted, unused, reconcile::failed_boots(state, &listing))
        });
        match compared.await {
            Ok((events, claims, unaccounted, unused, failed)) => {
                self.machine.set_claims(&claims);
                self.outbox.extend(events);
                self.report_unaccounted(unaccounted);
                self.report_unused(unused);
                for reconcile::FailedBoot { instance, reason } in failed {
                    tracing::error!("ec2: {instance} ended before it was ready: {reason}");
                    self.health
                        .add_remark(self.clock.now().0, format!("{instance} ended before it was ready: {reason}"));
                }
                true
            }
            // The next listing shows the same.
            Err(MailboxError::Full { .. } | MailboxError::TooMany { .. }) => true,
            Err(MailboxError::Stopped(_)) => false,
        }
    }

    fn report_unaccounted(&mut self, unaccounted: BTreeSet<String>) {
        for instance in unaccounted.difference(&self.unaccounted) {
            let text = format!(
                "{instance} has our tag, and this journal never bought it as it is tagged: check it, and terminate it manually"
            );
            tracing::warn!("ec2: {text}");
            self.health.add_remark(self.clock.now().0, text);
        }
        self.unaccounted = unaccounted;
    }

    /// Reports, once, the reservations that no pool of the policy in force can use. Another policy may use others.
    fn report_unused(&mut self, unused: BTreeSet<String>) {
        for text in unused.difference(&self.unused) {
            tracing::warn!("ec2: {text}");
            self.health.add_remark(self.clock.now().0, text.clone());
        }
        self.unused = unused;
    }

    /// Submits the outbox. Returns false if the driver has stopped.
    async fn send(&mut self) -> bool {
        while !self.outbox.is_empty() {
            let share = self.outbox.len().min(MAX_BATCH);
            if submit(&self.handle, &self.outbox[..share]).await.is_err() {
                return false;
            }
            self.outbox.drain(..share);
        }
        true
    }

    fn contested(&mut self, others: &BTreeMap<String, usize>) {
        const OPERATION: &str = "buy";
        const MOST_NAMED: usize = 5;
        if others.is_empty() {
            tracing::info!("ec2: no other controller buys under this name");
            self.failures.remove(&(OPERATION, String::new()));
            return;
        }
        let why = if others.contains_key(&self.machine.settings().journal) {
            let unrecorded = &self.machine.settings().unrecorded;
            let named: Vec<&str> = unrecorded.iter().map(String::as_str).take(MOST_NAMED).collect();
            format!(
                "{} instances were bought by this journal after its last record ({}{}): its folder is an older copy of itself. Stop the controller; \
                 its next start says how to go on",
                unrecorded.len(),
                named.join(", "),
                if unrecorded.len() > named.len() { ", .." } else { "" },
            )
        } else {
            let named: Vec<String> = others.iter().map(|(journal, n)| format!("{n} of journal {journal}")).collect();
            format!(
                "other instances have this name ({}): stop that controller, or give each a name of its own; if it no longer exists, list \
                 its journal under `predecessors`, and its instances are terminated",
                named.join(", ")
            )
        };
        tracing::error!("ec2: nothing is bought: {why}");
        self.failures.insert((OPERATION, String::new()), why);
    }

    fn report_condition(&self) {
        let condition = match (self.failures.iter().next(), self.notices.failing()) {
            (Some(((operation, _), why)), _) => {
                let more = self.failures.len() - 1;
                let more = if more > 0 { format!(" (and {more} more, in the log)") } else { String::new() };
                Condition::Failing { why: format!("cannot {operation}: {why}{more}") }
            }
            (None, Some(why)) => Condition::Failing { why },
            _ if self.machine.has_listed() => Condition::Working,
            _ => Condition::Starting,
        };
        self.health.set_condition(condition);
    }
}

/// The warnings about reservations that no pool of the policy in force can use.
fn unused_reservations(state: &State, settings: &Ec2Settings) -> BTreeSet<String> {
    let Some(policy) = state.policy() else { return BTreeSet::new() };
    let unused = settings.reservations.iter().filter(|r| !uses_reserved(policy, &r.instance_type, &r.zone));
    unused.map(|r| unused_reservation(policy, &r.id, &r.instance_type, &r.zone)).collect()
}

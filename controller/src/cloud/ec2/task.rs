//! The task that drives the desk: makes its calls, hands its reports to the driver, and keeps how it is.
//!
//! ```text
//! orders, answers, time -> desk -> calls (side by side)
//!                           '----> reports -> outbox -> driver, durable, in order
//! ```
//!
//! Never: drops an event. What the driver has no room for waits, and with it whatever the next look would say.

use super::notices::Notices;
use super::refresh::Refresh;
use super::{Ordered, held};
use crate::cloud::CloudError;
use crate::driver::{Busy, Handle, wall_ms};
use forebay_aws::Place;
use forebay_capacity_ec2::wire::{Client, Ways};
use forebay_capacity_ec2::{Answer, Call, Desk, Look, Report, look, wire};
use forebay_engine::event::Event;
use forebay_engine::units::Millis;
use forebay_source::{Condition, Health};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;

/// The pause before a full mailbox is tried again.
const FULL: Duration = Duration::from_millis(200);
/// The pause before credentials or a region are looked for again.
const NO_WAY: Duration = Duration::from_secs(10);
/// Events in one submission: well below what the mailbox holds.
const MOST_AT_ONCE: usize = 1024;
/// The longest wait in one go.
const LONGEST: Duration = Duration::from_secs(60);

/// Works until the driver ends.
///
/// # Errors
/// It could not begin.
pub(super) fn run(
    place: (Place, Vec<String>),
    ordered: UnboundedReceiver<Ordered>,
    handle: Handle,
    health: Health,
) -> Result<(), CloudError> {
    let watched = Watched { handle: handle.clone(), health: health.clone(), ended: false };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CloudError::Thread)?;
    runtime.block_on(work(place, ordered, handle, &health));
    watched.ends();
    Ok(())
}

/// Ends the controller with the task, should that not begin or end by a fault: without it nodes cost on, and nobody ends them.
struct Watched {
    handle: Handle,
    health: Health,
    ended: bool,
}

impl Watched {
    fn ends(mut self) {
        self.ended = true;
        self.health.is(Condition::Stopped);
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if !self.ended {
            let why = "the task for EC2 is no more: the controller ends, start it again";
            tracing::error!("ec2: {why}");
            self.health.is(Condition::Failing { why: why.to_owned() });
            self.handle.stop();
        }
    }
}

async fn work(
    (place, queues): (Place, Vec<String>),
    mut ordered: UnboundedReceiver<Ordered>,
    handle: Handle,
    health: &Health,
) {
    let Some(Ordered::Begin { settings, claims, now }) = ordered.recv().await else { return };
    let Some(ways) = ways(&place, &handle, health).await else { return };
    let notices = Notices::start(&ways.sqs, &queues, health);
    let clock = Clock { base: now.max(wall_ms()), since: Instant::now() };
    // Jitter alone comes from it: controllers that start together must not come back together.
    let seed = seed_of(&settings.journal);
    let refresh = Refresh::new(ways.ec2.clone(), handle.clone(), health.clone(), seed).run();
    let desk = Desk::new((*settings).clone(), claims, seed);
    let task = Task {
        desk,
        client: ways.ec2,
        notices,
        reservations: BTreeMap::new(),
        clock,
        handle,
        health,
        calls: JoinSet::new(),
        outbox: Vec::new(),
        troubles: BTreeMap::new(),
        strangers: BTreeSet::new(),
    };
    // On the same task: a fault of either is one of both.
    tokio::join!(task.run(ordered), refresh);
}

/// A number of its own for each journal.
fn seed_of(journal: &str) -> u64 {
    let hash = blake3::hash(journal.as_bytes());
    u64::from_le_bytes(hash.as_bytes().first_chunk().copied().unwrap_or_default())
}

/// The way to EC2, as soon as there is one.
async fn ways(place: &Place, handle: &Handle, health: &Health) -> Option<Ways> {
    let mut stopped = handle.watch();
    loop {
        match wire::connect(place).await {
            Ok(ways) => return Some(ways),
            Err(e) => {
                if health.is(Condition::Failing { why: format!("ec2: {e}") }) {
                    tracing::error!("ec2: {e}; nothing is bought");
                }
            }
        }
        tokio::select! {
            () = tokio::time::sleep(NO_WAY) => {}
            ended = stopped.wait_for(|p| p.stopped) => { let _ = ended; return None }
        }
    }
}

/// The driver's time: its own at the start, monotonic from there.
#[derive(Clone, Copy)]
struct Clock {
    base: Millis,
    since: Instant,
}

impl Clock {
    fn now(&self) -> Millis {
        Millis(self.base.0 + u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX))
    }
}

struct Task<'a> {
    desk: Desk,
    client: Client,
    clock: Clock,
    handle: Handle,
    health: &'a Health,
    calls: JoinSet<(u64, Answer)>,
    /// What the driver has not taken yet, in order.
    outbox: Vec<Event>,
    /// What does not work, and why.
    troubles: BTreeMap<(&'static str, String), String>,
    notices: Notices,
    /// Which instances ran in a reservation at the last look.
    reservations: BTreeMap<String, BTreeSet<String>>,
    /// Instances that were told of as nobody can place them.
    strangers: BTreeSet<String>,
}

impl Task<'_> {
    async fn run(mut self, mut ordered: UnboundedReceiver<Ordered>) {
        let mut progress = self.handle.watch();
        loop {
            for (number, call) in self.desk.poll(self.clock.now()) {
                self.make(number, call);
            }
            if !self.deliver().await || progress.borrow_and_update().stopped {
                return;
            }
            let now = self.clock.now();
            let wait = Duration::from_millis(self.desk.next(now).since(now).0).min(LONGEST);
            tokio::select! {
                order = ordered.recv() => match order {
                    Some(order) => self.take(order),
                    // The driver's hands are gone, and so is the driver.
                    None => return,
                },
                Some(done) = self.calls.join_next() => {
                    match done {
                        Ok((number, answer)) => self.desk.answer(self.clock.now(), number, answer),
                        Err(e) => {
                            tracing::error!("ec2: a call ended by a fault of this program: {e}");
                            self.calls.abort_all();
                            self.desk.lost_all(self.clock.now());
                        }
                    }
                }
                batch = self.notices.next() => {
                    if !self.notices.take(batch, &self.handle, &self.reservations, self.clock.now()).await {
                        return;
                    }
                }
                () = tokio::time::sleep(wait) => {}
                changed = progress.changed() => if changed.is_err() { return },
            }
        }
    }

    fn take(&mut self, order: Ordered) {
        match order {
            Ordered::Begin { .. } => {}
            Ordered::Launch { request, recovered } => self.desk.launch(*request, recovered),
            Ordered::Terminate { instance } => self.desk.terminate(self.clock.now(), instance),
        }
    }

    fn make(&mut self, number: u64, call: Call) {
        let client = self.client.clone();
        self.calls.spawn(async move { (number, wire::make(&client, &call).await) });
    }

    /// Hands on what the desk has to say. False: the driver has ended.
    async fn deliver(&mut self) -> bool {
        for report in self.desk.reports() {
            match report {
                Report::Outcome(event) => self.outbox.push(event),
                Report::Look(look) => {
                    if !self.send().await || !self.compare(look).await {
                        return false;
                    }
                }
                Report::Trouble { what, about, why } => {
                    let said = if about.is_empty() { why.to_string() } else { format!("{about}: {why}") };
                    tracing::error!("ec2: cannot {what}: {said}");
                    self.troubles.insert((what, about), said);
                }
                Report::Over { what, about } => {
                    tracing::info!("ec2: no longer: cannot {what} {about}");
                    self.troubles.remove(&(what, about));
                }
                Report::Contested(others) => self.contested(&others),
            }
        }
        self.tell();
        self.send().await
    }

    /// The state and what there is, compared on the driver's thread.
    async fn compare(&mut self, look: Look) -> bool {
        self.reservations = BTreeMap::new();
        for seen in look.instances.iter().filter(|s| s.exists()) {
            if let Some(reservation) = &seen.reservation {
                self.reservations.entry(reservation.clone()).or_default().insert(seen.instance.clone());
            }
        }
        let settings = self.desk.settings().clone();
        let compared = self.handle.query_async(move |engine, _| {
            let state = engine.state();
            let strange = look::strangers(state, &settings, &look).iter().map(|s| s.instance.clone()).collect();
            (look::events(state, &settings, &look), held(state), strange, look::failed_boots(state, &look))
        });
        match compared.await {
            Ok((events, held, strange, failed)) => {
                self.desk.claims(&held);
                self.outbox.extend(events);
                self.strange(strange);
                for (instance, why) in failed {
                    tracing::error!("ec2: {instance} ended before it was ready: {why}");
                    self.health.remark(self.clock.now().0, format!("{instance} ended before it was ready: {why}"));
                }
                true
            }
            // The next look says the same.
            Err(Busy::Full { .. } | Busy::TooMany { .. }) => true,
            Err(Busy::Stopped(_)) => false,
        }
    }

    fn strange(&mut self, strange: BTreeSet<String>) {
        for instance in strange.difference(&self.strangers) {
            let said = format!(
                "{instance} carries our name, and this journal never bought it as it is tagged: look at it, and end it by hand"
            );
            tracing::warn!("ec2: {said}");
            self.health.remark(self.clock.now().0, said);
        }
        self.strangers = strange;
    }

    /// Events to the driver, durable when this returns.
    async fn send(&mut self) -> bool {
        while !self.outbox.is_empty() {
            let share = self.outbox.len().min(MOST_AT_ONCE);
            match self.handle.submit_async(self.outbox[..share].to_vec()).await {
                Ok(_) => drop(self.outbox.drain(..share)),
                Err(Busy::Full { .. } | Busy::TooMany { .. }) => tokio::time::sleep(FULL).await,
                Err(Busy::Stopped(_)) => return false,
            }
        }
        true
    }

    fn contested(&mut self, others: &BTreeMap<String, usize>) {
        const WHAT: &str = "buy";
        if others.is_empty() {
            tracing::info!("ec2: no other controller buys under this name any more");
            self.troubles.remove(&(WHAT, String::new()));
            return;
        }
        let named: Vec<String> = others.iter().map(|(journal, n)| format!("{n} of journal {journal}")).collect();
        let why = format!(
            "other instances carry this name ({}): stop that controller, or give each a name of its own; if it is no more, list its journal \
             under `predecessors` and its instances are ended",
            named.join(", ")
        );
        tracing::error!("ec2: nothing is bought: {why}");
        self.troubles.insert((WHAT, String::new()), why);
    }

    fn tell(&self) {
        let condition = match (self.troubles.iter().next(), self.notices.failing()) {
            (Some(((what, _), why)), _) => {
                let more = self.troubles.len() - 1;
                let more = if more > 0 { format!(" (and {more} more, in the log)") } else { String::new() };
                Condition::Failing { why: format!("cannot {what}: {why}{more}") }
            }
            (None, Some(why)) => Condition::Failing { why },
            _ if self.desk.has_looked() => Condition::Working,
            _ => Condition::Starting,
        };
        self.health.is(condition);
    }
}

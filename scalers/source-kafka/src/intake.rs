//! The reader's side towards the controller: partitions' letters into parcels, parcels onto the desk, answers back.
//!
//! Never: talks to a broker.

use crate::partition::{Partition, State, Took};
use crate::place::Kept;
use crate::shared::{Shared, Which};
use crate::wait;
use forebay_source::{Closed, Condition, Desk, Health, Slot};
use rdkafka::Message;
use rdkafka::message::BorrowedMessage;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Being held back for less is nothing to tell.
const TELL_AFTER: Duration = Duration::from_millis(100);
/// Answers come without a wake-up: so often they are looked for when nothing else can be done.
const ANSWERS_EVERY: Duration = Duration::from_millis(5);

type Waiting = Pin<Box<dyn Future<Output = Result<Slot, Closed>> + Send>>;

/// Letters wait for room, or for answers.
pub(crate) struct Held {
    pub(crate) since: Instant,
    /// The partitions are paused.
    pub(crate) paused: bool,
    /// For one letter, in the queue of all who wait. `None`: not room is missing, but answers.
    room: Option<Waiting>,
}

/// What a reader has in hand.
pub(crate) struct Intake {
    pub(crate) partitions: BTreeMap<Which, Partition>,
    pub(crate) held: Option<Held>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) health: Health,
    desk: Desk,
    topics: Vec<String>,
    /// The partition of the last message: the next one is mostly of the same.
    last: Which,
    /// A slot that waiting has brought.
    slot: Option<Slot>,
    assigned: bool,
    told: Option<Condition>,
}

impl Intake {
    pub(crate) fn new(desk: Desk, health: Health, shared: Arc<Shared>, topics: Vec<String>) -> Intake {
        Intake {
            partitions: BTreeMap::new(),
            held: None,
            shared,
            health,
            desk,
            topics,
            last: (0, 0),
            slot: None,
            assigned: false,
            told: None,
        }
    }

    /// These are ours, and no others. Where each begins is the journal's word.
    pub(crate) fn assign(&mut self, list: &[(String, i32)]) {
        self.revoke();
        for (topic, number) in list {
            let Some(channel) = self.topics.iter().position(|one| one == topic) else { continue };
            let kept = Kept::of(self.desk.durable(), topic, *number);
            self.partitions.insert((channel, *number), Partition::new(channel, topic, *number, kept));
        }
        tracing::info!(partitions = self.partitions.len(), "the group has given us partitions");
        self.assigned = true;
        self.shared.works();
        self.shared.excuse();
    }

    /// None are ours. What was handed in may still become durable; what was not is read again by whoever gets them.
    pub(crate) fn revoke(&mut self) {
        self.partitions.clear();
        self.shared.views().clear();
        self.held = None;
        self.slot = None;
    }

    /// The places of some are in doubt.
    pub(crate) fn doubt(&mut self, anew: bool, which: impl Fn(&Partition) -> bool) {
        self.partitions.values_mut().filter(|one| which(one)).for_each(|one| one.doubt(anew));
    }

    /// Takes a message.
    pub(crate) fn take(&mut self, message: &BorrowedMessage<'_>) -> Took {
        if self.topics.get(self.last.0).is_none_or(|topic| topic != message.topic()) {
            let Some(channel) = self.topics.iter().position(|one| one == message.topic()) else { return Took::Fine };
            self.last.0 = channel;
        }
        self.last.1 = message.partition();
        let Some(one) = self.partitions.get_mut(&self.last) else { return Took::Fine };
        let took = one.take(message);
        if took == Took::Anew {
            one.doubt(true);
        }
        took
    }

    /// Hands in what was gathered, as far as there is room; the rest is held back.
    pub(crate) fn hand_in(&mut self) -> Result<(), Closed> {
        let mut lacking = None;
        for (which, one) in &mut self.partitions {
            while lacking.is_none() && one.gathered() > 0 {
                if !one.may_hand_in() {
                    lacking = Some(None);
                    break;
                }
                let Some(slot) = most_room(&self.desk, one.gathered()).or_else(|| self.slot.take()) else {
                    let desk = self.desk.clone();
                    let room: Waiting = Box::pin(async move { desk.room(1).await });
                    lacking = Some(Some(room));
                    break;
                };
                one.hand_in(slot, &self.desk)?;
                self.shared.views().insert(*which, one.view());
            }
        }
        self.slot = None;
        self.held = lacking.map(|room| {
            let (since, paused) = self.held.take().map_or((Instant::now(), false), |old| (old.since, old.paused));
            Held { since, paused, room }
        });
        if self.desk.is_closed() { Err(Closed) } else { Ok(()) }
    }

    /// Waits for what is lacking.
    pub(crate) fn wait(&mut self, limit: Duration) -> Result<(), Closed> {
        let Some(held) = self.held.as_mut() else { return Ok(()) };
        self.shared.excuse();
        let Some(room) = held.room.as_mut() else {
            std::thread::park_timeout(ANSWERS_EVERY);
            return Ok(());
        };
        if let Some(slot) = wait::until(room.as_mut(), Instant::now() + limit) {
            held.room = None;
            self.slot = Some(slot?);
        }
        Ok(())
    }

    /// Takes answers; what became durable is to be committed.
    pub(crate) fn settle(&mut self) -> Result<(), Closed> {
        for one in self.partitions.values_mut() {
            if let Some(next) = one.answered()? {
                let offset = i64::try_from(next).unwrap_or(i64::MAX);
                self.shared.commits().insert((one.topic.to_string(), one.number), offset);
            }
        }
        Ok(())
    }

    /// Tells how it is, if that changed.
    pub(crate) fn tell(&mut self) {
        let trouble = self.shared.trouble();
        let condition = if self.held.as_ref().is_some_and(|held| held.since.elapsed() >= TELL_AFTER) {
            Condition::HeldBack
        } else if let Some(why) = trouble {
            Condition::Failing { why }
        } else if self.assigned && self.partitions.values().all(|one| !matches!(one.state, State::Unplaced { .. })) {
            Condition::Working
        } else {
            Condition::Starting
        };
        if self.told.as_ref() != Some(&condition) {
            match &condition {
                Condition::Failing { why } => tracing::warn!("kafka: {why}"),
                other => tracing::info!("kafka: {other:?}"),
            }
            self.health.is(condition.clone());
            self.told = Some(condition);
        }
    }
}

/// Room for so many letters, or for as many as halving finds.
fn most_room(desk: &Desk, letters: usize) -> Option<Slot> {
    let mut wanted = u32::try_from(letters).unwrap_or(u32::MAX);
    while wanted > 0 {
        if let Some(slot) = desk.room_now(wanted) {
            return Some(slot);
        }
        wanted /= 2;
    }
    None
}

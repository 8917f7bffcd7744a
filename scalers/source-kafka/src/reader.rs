//! The thread that reads: polls the consumer, gathers letters into parcels, hands them in, commits what became durable.
//!
//! ```text
//! changes (assigned, revoked, made again) -> place -> poll: gather -> hand in (or be held back) -> answers -> commit once a second
//! ```
//! The list of partitions is always given to librdkafka whole, each with the offset that we keep of it, so that whatever it had fetched or
//! queued is replaced by what we ask for.
//!
//! Never: hands in without room, skips a message that it has not handed in, or takes an offset from anywhere but the journal and the log.

use crate::context::Context;
use crate::error::{KafkaError, code_of, explain, is_unreachable};
use crate::intake::Intake;
use crate::partition::{FULL_BYTES, FULL_LETTERS, State, Took};
use crate::settings::Settings;
use crate::shared::{Change, Shared};
use forebay_source::{Closed, Desk, Health};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaErrorCode as Code;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a poll waits for the first message: also how fast a stop is noticed.
const POLL: Duration = Duration::from_millis(50);
/// Parcels' worth of letters and bytes in one round over all partitions: 4 MiB are copied at most before something is handed in.
const ROUND: usize = 4;
/// Commits are for those who look from outside; more often would only load the broker.
const COMMIT_EVERY: Duration = Duration::from_secs(1);
/// Being held back for less is not worth throwing away what was fetched ahead, which a pause does.
const PAUSE_AFTER: Duration = Duration::from_secs(1);
/// Between two tries to learn a log's ends.
const PLACE_EVERY: Duration = Duration::from_millis(500);
/// A broker has that long to name a log's ends.
const ENDS_WITHIN: Duration = Duration::from_secs(2);

/// Why a reader ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It was told to.
    Stopped,
    /// The controller takes nothing more.
    Closed,
    /// The broker says that another member has our instance's name; in its words.
    Fenced(String),
    /// It is to be started again.
    Failed(String),
}

/// The reader: its consumer, and everything else, apart so that a message may be borrowed from the one while the other takes it.
pub(crate) struct Reader {
    consumer: BaseConsumer<Context>,
    inside: Intake,
    settings: Arc<Settings>,
    stop: Arc<AtomicBool>,
    /// The list is to be given to librdkafka.
    reassign: bool,
    place_at: Instant,
    commit_at: Instant,
}

impl Reader {
    pub(crate) fn new(
        settings: Arc<Settings>,
        desk: Desk,
        health: Health,
        shared: Arc<Shared>,
        stop: Arc<AtomicBool>,
    ) -> Result<Reader, KafkaError> {
        let mut config = settings.reading()?;
        // `debug` needs it; lines of that level leave as trace events.
        config.set_log_level(rdkafka::config::RDKafkaLogLevel::Debug);
        let context = Context { shared: Arc::clone(&shared), brokers: settings.brokers.clone() };
        let consumer: BaseConsumer<Context> =
            config.create_with_context(context).map_err(|e| KafkaError::client(&e))?;
        let topics: Vec<&str> = settings.topics.iter().map(String::as_str).collect();
        consumer.subscribe(&topics).map_err(|e| KafkaError::client(&e))?;
        let now = Instant::now();
        let inside = Intake::new(desk, health, shared, settings.topics.clone());
        Ok(Reader { consumer, inside, settings, stop, reassign: false, place_at: now, commit_at: now })
    }

    /// Reads until something ends it. What is durable by then is committed.
    pub(crate) fn run(mut self) -> End {
        let end = loop {
            if let Err(end) = self.round() {
                break end;
            }
        };
        if !matches!(end, End::Fenced(_)) && !self.inside.shared.abandoned.load(Ordering::Acquire) {
            self.last_commit();
        }
        end
    }

    fn round(&mut self) -> Result<(), End> {
        if self.stop.load(Ordering::Acquire) || self.inside.shared.abandoned.load(Ordering::Acquire) {
            return Err(End::Stopped);
        }
        if let Some((code, said)) = self.consumer.client().fatal_error() {
            return Err(fatal(code, &said));
        }
        #[cfg(test)]
        assert!(!self.inside.shared.panics.load(Ordering::Relaxed), "a test's panic");
        self.take_changes();
        self.place();
        if std::mem::take(&mut self.reassign) {
            self.reassign()?;
        }
        self.inside.settle().map_err(|Closed| End::Closed)?;
        if Instant::now() >= self.commit_at {
            self.consumer.context().commit(&self.consumer);
            self.commit_at = Instant::now() + COMMIT_EVERY;
        }
        if self.inside.held.is_some() {
            self.wait_for_room()?;
        } else {
            self.gather();
        }
        let was_paused = self.inside.held.as_ref().is_some_and(|held| held.paused);
        self.inside.hand_in().map_err(|Closed| End::Closed)?;
        if was_paused && self.inside.held.is_none() {
            self.reassign = true;
        }
        self.inside.tell();
        Ok(())
    }

    /// What the group and the broker told since the last round.
    fn take_changes(&mut self) {
        for change in self.inside.shared.told() {
            self.place_at = Instant::now();
            match change {
                Change::Assigned(list) => {
                    self.inside.assign(&list);
                    // The group waits for it, even where no log's end is known yet.
                    self.reassign = true;
                }
                Change::Revoked => {
                    self.inside.revoke();
                    self.reassign = false;
                }
                Change::Recreated(topic) => {
                    self.inside.doubt(true, |one| *one.topic == *topic);
                    // Whatever was polled since is asked for again.
                    self.reassign = true;
                }
            }
        }
    }

    /// Decides where the unplaced are read, if their brokers answer.
    fn place(&mut self) {
        if Instant::now() < self.place_at {
            return;
        }
        let inside = &mut self.inside;
        for one in inside.partitions.values_mut().filter(|one| matches!(one.state, State::Unplaced { .. })) {
            let ends = self.consumer.fetch_watermarks(&one.topic, one.number, ENDS_WITHIN);
            match ends.map(|(low, high)| (u64::try_from(low), u64::try_from(high))) {
                Ok((Ok(low), Ok(high))) => {
                    one.place(low, high, &inside.health);
                    self.reassign = true;
                    inside.shared.views().insert((one.channel, one.number), one.view());
                    tracing::debug!(topic = &*one.topic, partition = one.number, at = one.at, state = ?one.state, "placed");
                }
                // Below zero is no answer; the next try may bring one.
                Ok(_) => self.place_at = Instant::now() + PLACE_EVERY,
                Err(error) => {
                    self.place_at = Instant::now() + PLACE_EVERY;
                    let code = code_of(&error);
                    let said = format!("asked for the ends of {}/{}: {code}", one.topic, one.number);
                    inside.shared.fails(explain(code, &said, &self.settings.brokers), true);
                    if is_unreachable(code) {
                        break;
                    }
                }
            }
        }
    }

    /// Gives librdkafka the whole list, each partition at our offset.
    fn reassign(&mut self) -> Result<(), End> {
        let failed =
            |error| End::Failed(format!("partitions could not be assigned ({error}); the consumer is made anew"));
        let mut list = TopicPartitionList::new();
        for one in self.inside.partitions.values().filter(|one| !matches!(one.state, State::Unplaced { .. })) {
            let offset = Offset::Offset(i64::try_from(one.at).unwrap_or(i64::MAX));
            list.add_partition_offset(&one.topic, one.number, offset).map_err(failed)?;
        }
        self.consumer.assign(&list).map_err(failed)?;
        self.inside.shared.excuse();
        // A pause outlives an assignment.
        if self.inside.held.as_ref().is_some_and(|held| held.paused) {
            self.consumer.pause(&list).map_err(failed)
        } else {
            self.consumer.resume(&list).map_err(failed)
        }
    }

    /// Polls until there is nothing now, or a parcel is full.
    fn gather(&mut self) {
        #[cfg(test)]
        if self.inside.shared.frozen.load(Ordering::Relaxed) {
            std::thread::park_timeout(POLL);
            return;
        }
        let (mut wait, mut letters, mut bytes) = (POLL, 0, 0);
        while letters < ROUND * FULL_LETTERS && bytes < ROUND * FULL_BYTES {
            match self.consumer.poll(wait) {
                None => return,
                Some(Err(error)) => return self.trouble(&error),
                #[cfg(test)]
                Some(Ok(_)) if self.inside.shared.frozen.load(Ordering::Relaxed) => return,
                // Of before the change, maybe: all is asked for again with the new list.
                Some(Ok(_)) if self.inside.shared.is_dirty() => {
                    self.reassign = true;
                    return;
                }
                Some(Ok(message)) => {
                    wait = Duration::ZERO;
                    letters += 1;
                    bytes += message.payload_len();
                    match self.inside.take(&message) {
                        Took::Fine => {}
                        Took::Full => return,
                        Took::Anew => {
                            self.place_at = Instant::now();
                            return;
                        }
                    }
                }
            }
        }
    }

    /// An error in place of a message.
    fn trouble(&mut self, error: &rdkafka::error::KafkaError) {
        match code_of(error) {
            // It does not say whose offset it was: all are placed again, and those that are right stay where they are.
            Code::AutoOffsetReset | Code::OffsetOutOfRange => {
                self.inside.doubt(false, |_| true);
                self.place_at = Instant::now();
            }
            // Told to the context as well, which has the words; a fatal one ends the next round.
            code => tracing::debug!(%error, ?code, "polled an error"),
        }
    }

    /// Waits for room, with the group kept: after a while paused and polled.
    fn wait_for_room(&mut self) -> Result<(), End> {
        self.inside.wait(POLL).map_err(|Closed| End::Closed)?;
        let Some(held) = self.inside.held.as_mut().filter(|held| held.since.elapsed() >= PAUSE_AFTER) else {
            return Ok(());
        };
        if !held.paused {
            held.paused = true;
            self.reassign = true;
        }
        // Serves the group, errors and log lines. A message that still comes is asked for again when it goes on.
        for _ in 0..FULL_LETTERS {
            match self.consumer.poll(Duration::ZERO) {
                None => break,
                Some(Ok(_)) => {}
                Some(Err(error)) => self.trouble(&error),
            }
        }
        Ok(())
    }

    /// Commits what has become durable. The consumer's end waits for it, where the broker answers.
    fn last_commit(&mut self) {
        // Where the controller has stopped there are no more answers; what became durable before counts.
        let _ = self.inside.settle();
        self.consumer.context().commit(&self.consumer);
    }
}

/// What librdkafka will not get over.
fn fatal(code: Code, said: &str) -> End {
    match code {
        Code::FencedInstanceId => End::Fenced(said.to_owned()),
        _ => End::Failed(format!("the consumer cannot go on ({code}: {said}); it is made anew")),
    }
}

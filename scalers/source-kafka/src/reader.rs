//! The thread that reads. It polls the consumer, buffers messages, submits them in batches, and commits what became durable.
//!
//! ```text
//! changes (assigned, revoked, recreated) -> find start offsets -> poll -> submit, or be held back -> receipts -> commit once a second
//! ```
//!
//! librdkafka always gets the whole list of partitions, each with our own offset, so that everything it had fetched or queued before is
//! replaced. Offsets come from the journal and the log alone.

use crate::context::ReaderContext;
use crate::error::{KafkaError, code_of, explain, is_unreachable};
use crate::partition::{BATCH_BYTES, BATCH_MESSAGES, LogIdentity, PartitionState, TakeResult};
use crate::settings::KafkaSettings;
use crate::shared::{ClearedBy, GroupChange, PartitionKey, ReaderState};
use crate::submission::Submitter;
use forebay_source::{ControllerStopped, Health, SourceHandle};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaErrorCode as Code;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a poll waits for the first message. A stop is noticed after at most this time.
const POLL_WAIT: Duration = Duration::from_millis(50);
/// The most batches that one round buffers over all partitions: at most 4 MiB are copied before something is submitted.
const BATCHES_PER_ROUND: usize = 4;
/// Commits only serve monitoring from outside, so a shorter interval would only load the broker.
const COMMIT_INTERVAL: Duration = Duration::from_secs(1);
/// Partitions are paused only after this time, because a pause discards the messages that were fetched ahead.
const PAUSE_AFTER: Duration = Duration::from_secs(1);
/// The interval at which the first and last offset of a log are fetched until a broker responds.
const POSITION_INTERVAL: Duration = Duration::from_millis(500);
/// The same once all other partitions are read, and only those of brokers that do not respond are left: nothing is read while they are asked.
const AWAY_INTERVAL: Duration = Duration::from_secs(10);
/// The time limit for fetching the offsets of a log.
const OFFSETS_WITHIN: Duration = Duration::from_secs(2);

/// Why a reader ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReaderEnd {
    /// The source is stopping, or the reader was abandoned.
    Stopped,
    /// The controller has stopped.
    ControllerStopped,
    /// Another member of the group has the name of this instance. The text is the broker's.
    Fenced(String),
    /// The reader has to be restarted, for this reason.
    Failed(String),
}

/// A reader. The consumer is a field of its own, so that a message can be borrowed from it while the submitter takes the message.
pub(crate) struct Reader {
    consumer: BaseConsumer<ReaderContext>,
    submitter: Submitter,
    settings: Arc<KafkaSettings>,
    stop: Arc<AtomicBool>,
    /// Whether the list of partitions has to be given to librdkafka again.
    reassign: bool,
    position_at: Instant,
    /// The partition whose broker did not respond last. The search goes on after it, so that one broker that is away keeps no partition of others
    /// from being read.
    unreachable: Option<PartitionKey>,
    /// How many in a row have not responded.
    without_response: usize,
    commit_at: Instant,
}

impl Reader {
    pub(crate) fn new(
        settings: Arc<KafkaSettings>,
        handle: SourceHandle,
        health: Health,
        shared: Arc<ReaderState>,
        stop: Arc<AtomicBool>,
    ) -> Result<Reader, KafkaError> {
        let mut config = settings.reader_config()?;
        // The `debug` property needs this level; its lines become trace events.
        config.set_log_level(rdkafka::config::RDKafkaLogLevel::Debug);
        let context = ReaderContext { shared: Arc::clone(&shared), brokers: settings.brokers.clone() };
        let consumer: BaseConsumer<ReaderContext> =
            config.create_with_context(context).map_err(|e| KafkaError::client(&e))?;
        let topics: Vec<&str> = settings.topics.iter().map(String::as_str).collect();
        consumer.subscribe(&topics).map_err(|e| KafkaError::client(&e))?;
        let now = Instant::now();
        let submitter = Submitter::new(handle, health, shared, settings.topics.clone());
        Ok(Reader {
            consumer,
            submitter,
            settings,
            stop,
            reassign: false,
            position_at: now,
            unreachable: None,
            without_response: 0,
            commit_at: now,
        })
    }

    /// Reads until something ends it, and commits what is durable by then.
    pub(crate) fn run(mut self) -> ReaderEnd {
        let end = loop {
            if let Err(end) = self.round() {
                break end;
            }
        };
        if !matches!(end, ReaderEnd::Fenced(_)) && !self.submitter.shared.abandoned.load(Ordering::Acquire) {
            self.last_commit();
        }
        end
    }

    fn round(&mut self) -> Result<(), ReaderEnd> {
        if self.stop.load(Ordering::Acquire) || self.submitter.shared.abandoned.load(Ordering::Acquire) {
            return Err(ReaderEnd::Stopped);
        }
        if let Some((code, reason)) = self.consumer.client().fatal_error() {
            return Err(fatal(code, &reason));
        }
        #[cfg(test)]
        assert!(!self.submitter.shared.panics.load(Ordering::Relaxed), "a test's panic");
        self.take_changes();
        self.position_partitions();
        if std::mem::take(&mut self.reassign) {
            self.reassign()?;
        }
        self.submitter.take_receipts().map_err(|ControllerStopped| ReaderEnd::ControllerStopped)?;
        if Instant::now() >= self.commit_at {
            self.consumer.context().commit(&self.consumer);
            self.commit_at = Instant::now() + COMMIT_INTERVAL;
        }
        if self.submitter.blocked.is_some() {
            self.wait_for_capacity()?;
        } else {
            self.buffer_messages();
        }
        let was_paused = self.submitter.blocked.as_ref().is_some_and(|blocked| blocked.paused);
        self.submitter.submit().map_err(|ControllerStopped| ReaderEnd::ControllerStopped)?;
        if was_paused && self.submitter.blocked.is_none() {
            self.reassign = true;
        }
        self.submitter.report_condition();
        Ok(())
    }

    /// Handles the changes since the last round.
    fn take_changes(&mut self) {
        for change in self.submitter.shared.take_changes() {
            self.position_at = Instant::now();
            self.without_response = 0;
            match change {
                GroupChange::Assigned(list) => {
                    self.submitter.assign(&list);
                    // The group waits for the assignment, even if no offset is known yet.
                    self.reassign = true;
                }
                GroupChange::Revoked => {
                    self.submitter.revoke();
                    self.reassign = false;
                }
                GroupChange::Recreated(topic) => {
                    self.submitter.reposition(LogIdentity::Recreated, |one| *one.topic == *topic);
                    // Messages that were polled since are fetched again.
                    self.reassign = true;
                }
            }
        }
    }

    /// Finds the start offsets of partitions that have none, if their brokers respond.
    fn position_partitions(&mut self) {
        if Instant::now() < self.position_at {
            return;
        }
        let keys = self.unpositioned();
        let (asked, read) = (keys.len(), self.submitter.partitions.len() - keys.len());
        let submitter = &mut self.submitter;
        for key in keys {
            let Some(one) = submitter.partitions.get_mut(&key) else { continue };
            let offsets = self.consumer.fetch_watermarks(&one.topic, one.number, OFFSETS_WITHIN);
            match offsets.map(|(low, high)| (u64::try_from(low), u64::try_from(high))) {
                Ok((Ok(low), Ok(high))) => {
                    one.set_start(low, high, &submitter.health);
                    self.reassign = true;
                    self.without_response = 0;
                    submitter.shared.progress().insert((one.channel, one.number), one.progress());
                    tracing::debug!(topic = &*one.topic, partition = one.number, at = one.at, state = ?one.state, "positioned");
                }
                // An offset below zero is not valid; the next attempt may bring one.
                Ok(_) => self.position_at = Instant::now() + POSITION_INTERVAL,
                Err(error) => {
                    self.position_at = Instant::now() + POSITION_INTERVAL;
                    let code = code_of(&error);
                    let reason = format!("fetching the offsets of {}/{}: {code}", one.topic, one.number);
                    submitter.shared.set_failure(explain(code, &reason, &self.settings.brokers), ClearedBy::Response);
                    // Each of them costs a time limit, in which nothing is read: one a round.
                    if is_unreachable(code) {
                        self.unreachable = Some(key);
                        self.without_response += 1;
                        self.position_at = Instant::now() + position_interval(self.without_response, asked, read);
                        break;
                    }
                }
            }
        }
    }

    /// The partitions without a start offset: those after the one whose broker did not respond last, then the others.
    fn unpositioned(&self) -> Vec<PartitionKey> {
        let all = self.submitter.partitions.iter();
        let unpositioned = all.filter(|(_, one)| matches!(one.state, PartitionState::Unpositioned { .. }));
        let mut keys: Vec<PartitionKey> = unpositioned.map(|(key, _)| *key).collect();
        let first = self.unreachable.map_or(0, |last| keys.partition_point(|key| *key <= last));
        keys.rotate_left(first);
        keys
    }

    /// Gives librdkafka the whole list, with our offset for each partition.
    fn reassign(&mut self) -> Result<(), ReaderEnd> {
        let failed =
            |error| ReaderEnd::Failed(format!("partitions could not be assigned ({error}); the consumer is recreated"));
        let mut list = TopicPartitionList::new();
        for one in
            self.submitter.partitions.values().filter(|one| !matches!(one.state, PartitionState::Unpositioned { .. }))
        {
            let offset = Offset::Offset(i64::try_from(one.at).unwrap_or(i64::MAX));
            list.add_partition_offset(&one.topic, one.number, offset).map_err(failed)?;
        }
        self.consumer.assign(&list).map_err(failed)?;
        self.submitter.shared.restart_stall_clock();
        // A pause survives an assignment.
        if self.submitter.blocked.as_ref().is_some_and(|blocked| blocked.paused) {
            self.consumer.pause(&list).map_err(failed)
        } else {
            self.consumer.resume(&list).map_err(failed)
        }
    }

    /// Polls until no message is there now, or a batch is full.
    fn buffer_messages(&mut self) {
        #[cfg(test)]
        if self.submitter.shared.frozen.load(Ordering::Relaxed) {
            std::thread::park_timeout(POLL_WAIT);
            return;
        }
        let (mut wait, mut messages, mut bytes) = (POLL_WAIT, 0, 0);
        while messages < BATCHES_PER_ROUND * BATCH_MESSAGES && bytes < BATCHES_PER_ROUND * BATCH_BYTES {
            match self.consumer.poll(wait) {
                None => return,
                Some(Err(error)) => return self.poll_error(&error),
                #[cfg(test)]
                Some(Ok(_)) if self.submitter.shared.frozen.load(Ordering::Relaxed) => return,
                // The message may be from before the change: everything is fetched again with the new list.
                Some(Ok(_)) if self.submitter.shared.has_changes() => {
                    self.reassign = true;
                    return;
                }
                Some(Ok(message)) => {
                    wait = Duration::ZERO;
                    messages += 1;
                    bytes += message.payload_len();
                    match self.submitter.take(&message) {
                        TakeResult::Buffered => {}
                        TakeResult::Full => return,
                        TakeResult::LogRecreated => {
                            self.position_at = Instant::now();
                            return;
                        }
                    }
                }
            }
        }
    }

    /// Handles an error that came in place of a message.
    fn poll_error(&mut self, error: &rdkafka::error::KafkaError) {
        match code_of(error) {
            // The error does not name the partition, so all are positioned again. Valid positions stay the same.
            Code::AutoOffsetReset | Code::OffsetOutOfRange => {
                self.submitter.reposition(LogIdentity::Unchecked, |_| true);
                self.position_at = Instant::now();
            }
            // The context gets it with its reason; a fatal error ends the next round.
            code => tracing::debug!(%error, ?code, "polled an error"),
        }
    }

    /// Waits for permits or receipts. After a while the partitions are paused and polled, which keeps the membership in the group.
    fn wait_for_capacity(&mut self) -> Result<(), ReaderEnd> {
        self.submitter.wait(POLL_WAIT).map_err(|ControllerStopped| ReaderEnd::ControllerStopped)?;
        let Some(blocked) = self.submitter.blocked.as_mut().filter(|blocked| blocked.since.elapsed() >= PAUSE_AFTER)
        else {
            return Ok(());
        };
        if !blocked.paused {
            blocked.paused = true;
            self.reassign = true;
        }
        // Serves the group, errors and log lines. Messages that still come are fetched again later.
        for _ in 0..BATCH_MESSAGES {
            match self.consumer.poll(Duration::ZERO) {
                None => break,
                Some(Ok(_)) => {}
                Some(Err(error)) => self.poll_error(&error),
            }
        }
        Ok(())
    }

    /// Commits what has become durable. Closing the consumer waits for it if the broker responds.
    fn last_commit(&mut self) {
        // A controller that has stopped sends no more receipts; those from before count.
        let _ = self.submitter.take_receipts();
        self.consumer.context().commit(&self.consumer);
    }
}

/// An error after which librdkafka cannot continue.
fn fatal(code: Code, reason: &str) -> ReaderEnd {
    match code {
        Code::FencedInstanceId => ReaderEnd::Fenced(reason.to_owned()),
        _ => ReaderEnd::Failed(format!("the consumer cannot continue ({code}: {reason}); it is recreated")),
    }
}

/// When the offsets of partitions are asked for again, after so many in a row of those without an offset had no response.
fn position_interval(without_response: usize, asked: usize, read: usize) -> Duration {
    if without_response >= asked && read > 0 { AWAY_INTERVAL } else { POSITION_INTERVAL }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_of_brokers_that_are_away_are_seldom_asked_for_once_all_others_are_read() {
        for (case, without_response, asked, read, interval) in [
            ("one of two was asked", 1, 2, 5, POSITION_INTERVAL),
            ("both were asked", 2, 2, 5, AWAY_INTERVAL),
            ("again and again", 9, 2, 5, AWAY_INTERVAL),
            ("nothing is read that could wait", 2, 2, 0, POSITION_INTERVAL),
        ] {
            assert_eq!(position_interval(without_response, asked, read), interval, "{case}");
        }
    }
}

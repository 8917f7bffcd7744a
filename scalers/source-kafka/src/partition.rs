//! One assigned partition: where it is read, which messages are buffered, and which batches wait for their receipts.
//!
//! ```text
//! Unpositioned --offsets of the log--> Checking --fingerprint of the last message--> Reading --> buffered --> submitted --> receipt
//! ```
//!
//! It does not talk to a broker.

use crate::blocking::now_ms;
use crate::shared::PartitionProgress;
use crate::start_offset::{StartOffset, StoredPosition, fingerprint_of, key, start_offset};
use forebay_source::{
    ControllerStopped, Health, Message, MessageBatch, MessagePermit, Receipt, SourceHandle, StreamPosition,
};
use rdkafka::Message as _;
use rdkafka::message::{BorrowedMessage, Headers};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::oneshot::{Receiver, error::TryRecvError};

/// The most messages of a batch: so many that the journal's cost per batch does not matter.
pub(crate) const BATCH_MESSAGES: usize = 1_024;
/// A batch is full from this many bytes on.
pub(crate) const BATCH_BYTES: usize = 1024 * 1024;
/// The most batches that wait for their receipts. Permits bound the messages; this bounds the queue of batches.
pub(crate) const MAX_AWAITING: usize = 4_096;
/// The most bytes of a partition that wait for receipts: about 0.3 s at 50,000 messages of 500 bytes per second. A larger message is
/// submitted alone.
pub(crate) const MAX_AWAITING_BYTES: usize = 8 * 1024 * 1024;

/// Whether a partition's log is known to be another one than was read before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogIdentity {
    /// It may be the same log.
    Unchecked,
    /// It was deleted and created again.
    Recreated,
}

/// How far the search for the start offset is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartitionState {
    /// The log's first and last offset have to be fetched.
    Unpositioned { log: LogIdentity },
    /// The last message that was read is read again, to compare its fingerprint.
    Checking { offset: u64, fingerprint: u64 },
    /// Messages are read.
    Reading,
}

/// What became of a polled message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TakeResult {
    /// It was buffered, or dropped because it was read before.
    Buffered,
    /// It was buffered, and the batch is full.
    Full,
    /// The log is another one, so its start offset has to be found again.
    LogRecreated,
}

/// A batch that is not durable yet.
#[derive(Debug)]
struct AwaitingReceipt {
    next: u64,
    bytes: usize,
    receipt: Receiver<Receipt>,
}

/// One assigned partition.
#[derive(Debug)]
pub(crate) struct Partition {
    pub(crate) channel: usize,
    pub(crate) topic: Arc<str>,
    pub(crate) number: i32,
    pub(crate) state: PartitionState,
    /// The position after the last submitted message.
    pub(crate) stored: StoredPosition,
    pub(crate) key: Arc<str>,
    /// The offset to fetch next.
    pub(crate) at: u64,
    messages: Vec<Message>,
    /// The fingerprint of each message.
    fingerprints: Vec<u64>,
    bytes: usize,
    awaiting_receipt: VecDeque<AwaitingReceipt>,
    awaiting_bytes: usize,
}

impl Partition {
    pub(crate) fn new(channel: usize, topic: &str, number: i32, stored: StoredPosition) -> Partition {
        Partition {
            channel,
            topic: topic.into(),
            number,
            state: PartitionState::Unpositioned { log: LogIdentity::Unchecked },
            stored,
            key: key(topic, number, stored.incarnation).into(),
            at: 0,
            messages: Vec::new(),
            fingerprints: Vec::new(),
            bytes: 0,
            awaiting_receipt: VecDeque::new(),
            awaiting_bytes: 0,
        }
    }

    /// Starts the search for the start offset again. Buffered messages will be read again.
    pub(crate) fn reposition(&mut self, log: LogIdentity) {
        let known = PartitionState::Unpositioned { log: LogIdentity::Recreated };
        if self.state != known {
            self.state = PartitionState::Unpositioned { log };
        }
        self.messages.clear();
        self.fingerprints.clear();
        self.bytes = 0;
    }

    /// Decides where to read in a log with the offsets `low..high`.
    pub(crate) fn set_start(&mut self, low: u64, high: u64, health: &Health) {
        let recreated = self.state == PartitionState::Unpositioned { log: LogIdentity::Recreated };
        let start = if recreated { StartOffset::RecreatedLog } else { start_offset(&self.stored, low, high) };
        (self.state, self.at) = match start {
            StartOffset::From { offset, missed } => {
                if missed > 0 {
                    let text = format!(
                        "{}/{}: the log begins at {low}, and was read up to {}: retention deleted {missed} messages before they \
                         were read; give the topic a longer retention",
                        self.topic,
                        self.number,
                        offset - missed
                    );
                    tracing::warn!("{text}");
                    health.add_missed(missed);
                    health.add_remark(now_ms(), text);
                }
                (PartitionState::Reading, offset)
            }
            StartOffset::Check { offset, fingerprint } => (PartitionState::Checking { offset, fingerprint }, offset),
            StartOffset::RecreatedLog => {
                self.start_new_incarnation(low, health);
                (PartitionState::Reading, low)
            }
        };
    }

    fn start_new_incarnation(&mut self, low: u64, health: &Health) {
        let old = self.stored;
        self.stored = old.next_incarnation();
        self.key = key(&self.topic, self.number, self.stored.incarnation).into();
        self.awaiting_receipt.clear();
        self.awaiting_bytes = 0;
        let Some(position) = old.position else { return };
        let text = format!(
            "{}/{}: this is another log than the one that was read up to {position} (the topic was deleted and created again, or \
             the broker lost its end); it is read from its start at {low} under {}",
            self.topic, self.number, self.key
        );
        tracing::warn!("{text}");
        health.add_remark(now_ms(), text);
    }

    /// How far the partition is read, for the watchdog.
    pub(crate) fn progress(&self) -> PartitionProgress {
        let next = match (self.state, self.messages.first()) {
            (PartitionState::Checking { offset, .. }, _) => offset + 1,
            (_, Some(first)) => first.offset,
            (_, None) => self.at,
        };
        PartitionProgress { key: Arc::clone(&self.key), next, moved: Instant::now() }
    }

    /// Takes a message that was polled.
    pub(crate) fn take(&mut self, message: &BorrowedMessage<'_>) -> TakeResult {
        let Ok(offset) = u64::try_from(message.offset()) else { return TakeResult::Buffered };
        let fingerprint =
            fingerprint_of(offset, message.timestamp().to_millis().unwrap_or(-1), message.key(), message.payload());
        match self.state {
            PartitionState::Unpositioned { .. } => return TakeResult::Buffered,
            PartitionState::Checking { offset: last, fingerprint: was } => {
                if offset == last && fingerprint != was {
                    return TakeResult::LogRecreated;
                }
                // If the message was compacted away or is a marker of a transaction, the logs cannot be told apart, and reading
                // continues at the position.
                self.state = PartitionState::Reading;
                self.at = last + 1;
            }
            PartitionState::Reading => {}
        }
        if offset < self.at {
            return TakeResult::Buffered;
        }
        self.at = offset + 1;
        let message = to_message(message, offset);
        self.bytes += message.bytes.len();
        self.messages.push(message);
        self.fingerprints.push(fingerprint);
        if self.messages.len() >= BATCH_MESSAGES || self.bytes >= BATCH_BYTES {
            TakeResult::Full
        } else {
            TakeResult::Buffered
        }
    }

    /// The number of messages that are not submitted yet.
    pub(crate) fn buffered(&self) -> usize {
        self.messages.len()
    }

    /// Whether another batch may wait for its receipt.
    pub(crate) fn may_submit(&self) -> bool {
        self.awaiting_receipt.len() < MAX_AWAITING && self.awaiting_bytes < MAX_AWAITING_BYTES
    }

    /// Submits as many messages as the permit is for.
    pub(crate) fn submit(&mut self, mut permit: MessagePermit, handle: &SourceHandle) -> Result<(), ControllerStopped> {
        let count = permit.messages().min(self.messages.len());
        let (Some(last), Some(fingerprint)) =
            (self.messages.get(count.wrapping_sub(1)), self.fingerprints.get(count.wrapping_sub(1)))
        else {
            return Ok(());
        };
        let (next, fingerprint) = (last.offset + 1, *fingerprint);
        permit.shrink_to(count);
        let rest = self.messages.split_off(count);
        let messages = std::mem::replace(&mut self.messages, rest);
        self.fingerprints.drain(..count);
        let bytes: usize = messages.iter().map(|message| message.bytes.len()).sum();
        self.bytes -= bytes.min(self.bytes);
        let stream = Some(StreamPosition { key: Arc::clone(&self.key), next, fingerprint });
        let receipt = handle.submit(MessageBatch { channel: self.channel, stream, messages }, permit)?;
        self.stored.position = Some(next);
        self.stored.fingerprint = Some(fingerprint);
        self.awaiting_receipt.push_back(AwaitingReceipt { next, bytes, receipt });
        self.awaiting_bytes += bytes;
        Ok(())
    }

    /// The last offset that has become durable since the last call.
    pub(crate) fn take_receipts(&mut self) -> Result<Option<u64>, ControllerStopped> {
        let mut newest = None;
        while let Some(first) = self.awaiting_receipt.front_mut() {
            match first.receipt.try_recv() {
                Ok(_) => {
                    newest = Some(first.next);
                    self.awaiting_bytes -= first.bytes;
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Closed) => return Err(ControllerStopped),
            }
            self.awaiting_receipt.pop_front();
        }
        Ok(newest)
    }
}

fn to_message(message: &BorrowedMessage<'_>, offset: u64) -> Message {
    let mut attributes = Vec::new();
    for header in message.headers().into_iter().flat_map(Headers::iter) {
        if header.key.starts_with("ce_") || header.key == "content-type" {
            let value = String::from_utf8_lossy(header.value.unwrap_or_default()).into_owned();
            attributes.push((header.key.to_owned(), value));
        }
    }
    Message {
        bytes: message.payload().unwrap_or_default().to_vec(),
        attributes,
        offset,
        id: None,
        sent_ms: message.timestamp().to_millis().and_then(|ms| u64::try_from(ms).ok()),
    }
}

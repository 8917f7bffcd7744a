//! One assigned partition: where it is read, what was gathered of it, and which parcels are not yet answered.
//!
//! ```text
//! Unplaced --the log's ends--> Checking --the last message's print--> Reading --> gathered --> handed in --> answered
//! ```
//!
//! Never: asks a broker.

use crate::place::{Kept, Place, key, place, print};
use crate::shared::View;
use crate::wait::now_ms;
use forebay_source::{Closed, Desk, Health, Letter, Parcel, Receipt, Slot, Stream};
use rdkafka::Message;
use rdkafka::message::{BorrowedMessage, Headers};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::oneshot::{Receiver, error::TryRecvError};

/// Letters that make a parcel full: large enough that the journal's cost a parcel does not count.
pub(crate) const FULL_LETTERS: usize = 1_024;
/// Bytes that make a parcel full.
pub(crate) const FULL_BYTES: usize = 1024 * 1024;
/// Parcels that may wait for their answer. The room bounds letters; this bounds the queue.
pub(crate) const MOST_UNANSWERED: usize = 4_096;
/// Bytes of letters that may wait for their answer, a partition: some 0.3 s at 50,000 letters of 500 bytes a second. One that is larger
/// goes alone.
pub(crate) const MOST_UNANSWERED_BYTES: usize = 8 * 1024 * 1024;

/// How far placing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The log's ends are to be asked. `anew`: it is known to be another log.
    Unplaced { anew: bool },
    /// The last message is read again.
    Checking { offset: u64, mark: u64 },
    /// Letters come.
    Reading,
}

/// What a message did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Took {
    /// It was gathered, or was seen before.
    Fine,
    /// The parcel is full.
    Full,
    /// The log is another one: place it again.
    Anew,
}

/// A parcel on the desk.
#[derive(Debug)]
struct Unanswered {
    next: u64,
    bytes: usize,
    answer: Receiver<Receipt>,
}

/// One assigned partition.
#[derive(Debug)]
pub(crate) struct Partition {
    pub(crate) channel: usize,
    pub(crate) topic: Arc<str>,
    pub(crate) number: i32,
    pub(crate) state: State,
    /// Up to what was handed in.
    pub(crate) kept: Kept,
    pub(crate) key: Arc<str>,
    /// The offset to fetch next.
    pub(crate) at: u64,
    letters: Vec<Letter>,
    /// The letters' prints.
    marks: Vec<u64>,
    bytes: usize,
    unanswered: VecDeque<Unanswered>,
    unanswered_bytes: usize,
}

impl Partition {
    pub(crate) fn new(channel: usize, topic: &str, number: i32, kept: Kept) -> Partition {
        Partition {
            channel,
            topic: topic.into(),
            number,
            state: State::Unplaced { anew: false },
            kept,
            key: key(topic, number, kept.incarnation).into(),
            at: 0,
            letters: Vec::new(),
            marks: Vec::new(),
            bytes: 0,
            unanswered: VecDeque::new(),
            unanswered_bytes: 0,
        }
    }

    /// Its place is in doubt. What was gathered and not handed in is read again.
    pub(crate) fn doubt(&mut self, anew: bool) {
        let was = matches!(self.state, State::Unplaced { anew: true });
        self.state = State::Unplaced { anew: anew || was };
        self.letters.clear();
        self.marks.clear();
        self.bytes = 0;
    }

    /// Decides where to read in a log that has `low..high`.
    pub(crate) fn place(&mut self, low: u64, high: u64, health: &Health) {
        let known = self.state == State::Unplaced { anew: true };
        let place = if known { Place::Anew } else { place(&self.kept, low, high) };
        (self.state, self.at) = match place {
            Place::From { offset, missed } => {
                if missed > 0 {
                    let text = format!(
                        "{}/{}: the log begins at {low}, and was read up to {}: retention took {missed} messages before they \
                         were read; give the topic a longer retention",
                        self.topic,
                        self.number,
                        offset - missed
                    );
                    tracing::warn!("{text}");
                    health.missed(missed);
                    health.remark(now_ms(), text);
                }
                (State::Reading, offset)
            }
            Place::Check { offset, mark } => (State::Checking { offset, mark }, offset),
            Place::Anew => {
                self.begin_anew(low, health);
                (State::Reading, low)
            }
        };
    }

    fn begin_anew(&mut self, low: u64, health: &Health) {
        let old = self.kept;
        self.kept = old.anew();
        self.key = key(&self.topic, self.number, self.kept.incarnation).into();
        self.unanswered.clear();
        self.unanswered_bytes = 0;
        let Some(position) = old.position else { return };
        let text = format!(
            "{}/{}: another log than the one that was read up to {position} (the topic was deleted and made again, or the broker \
             lost its end): read from its start at {low} under {}",
            self.topic, self.number, self.key
        );
        tracing::warn!("{text}");
        health.remark(now_ms(), text);
    }

    /// How far it is, for the watch.
    pub(crate) fn view(&self) -> View {
        let next = match (self.state, self.letters.first()) {
            (State::Checking { offset, .. }, _) => offset + 1,
            (_, Some(first)) => first.offset,
            (_, None) => self.at,
        };
        View { key: Arc::clone(&self.key), next, moved: Instant::now() }
    }

    /// Takes a message.
    pub(crate) fn take(&mut self, message: &BorrowedMessage<'_>) -> Took {
        let Ok(offset) = u64::try_from(message.offset()) else { return Took::Fine };
        let mark = print(offset, message.timestamp().to_millis().unwrap_or(-1), message.key(), message.payload());
        match self.state {
            State::Unplaced { .. } => return Took::Fine,
            State::Checking { offset: last, mark: was } => {
                if offset == last && mark != was {
                    return Took::Anew;
                }
                // Compacted away, or a transaction's marker: it cannot be told, and goes on from the position.
                self.state = State::Reading;
                self.at = last + 1;
            }
            State::Reading => {}
        }
        if offset < self.at {
            return Took::Fine;
        }
        self.at = offset + 1;
        let letter = letter(message, offset);
        self.bytes += letter.bytes.len();
        self.letters.push(letter);
        self.marks.push(mark);
        if self.letters.len() >= FULL_LETTERS || self.bytes >= FULL_BYTES { Took::Full } else { Took::Fine }
    }

    /// Letters that wait to be handed in.
    pub(crate) fn gathered(&self) -> usize {
        self.letters.len()
    }

    /// Whether there is room for one more answer.
    pub(crate) fn may_hand_in(&self) -> bool {
        self.unanswered.len() < MOST_UNANSWERED && self.unanswered_bytes < MOST_UNANSWERED_BYTES
    }

    /// Hands in as many letters as the slot has room for.
    pub(crate) fn hand_in(&mut self, mut slot: Slot, desk: &Desk) -> Result<(), Closed> {
        let count = slot.letters().min(self.letters.len());
        let (Some(last), Some(mark)) = (self.letters.get(count.wrapping_sub(1)), self.marks.get(count.wrapping_sub(1)))
        else {
            return Ok(());
        };
        let (next, mark) = (last.offset + 1, *mark);
        slot.shrink_to(count);
        let rest = self.letters.split_off(count);
        let letters = std::mem::replace(&mut self.letters, rest);
        self.marks.drain(..count);
        let bytes: usize = letters.iter().map(|letter| letter.bytes.len()).sum();
        self.bytes -= bytes.min(self.bytes);
        let stream = Some(Stream { key: Arc::clone(&self.key), next, mark });
        let answer = desk.hand_in(Parcel { channel: self.channel, stream, letters }, slot)?;
        self.kept.position = Some(next);
        self.kept.mark = Some(mark);
        self.unanswered.push_back(Unanswered { next, bytes, answer });
        self.unanswered_bytes += bytes;
        Ok(())
    }

    /// The newest offset that has become durable since the last call.
    pub(crate) fn answered(&mut self) -> Result<Option<u64>, Closed> {
        let mut newest = None;
        while let Some(first) = self.unanswered.front_mut() {
            match first.answer.try_recv() {
                Ok(_) => {
                    newest = Some(first.next);
                    self.unanswered_bytes -= first.bytes;
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Closed) => return Err(Closed),
            }
            self.unanswered.pop_front();
        }
        Ok(newest)
    }
}

fn letter(message: &BorrowedMessage<'_>, offset: u64) -> Letter {
    let mut attributes = Vec::new();
    for header in message.headers().into_iter().flat_map(Headers::iter) {
        if header.key.starts_with("ce_") || header.key == "content-type" {
            let value = String::from_utf8_lossy(header.value.unwrap_or_default()).into_owned();
            attributes.push((header.key.to_owned(), value));
        }
    }
    Letter {
        bytes: message.payload().unwrap_or_default().to_vec(),
        attributes,
        offset,
        id: None,
        sent_ms: message.timestamp().to_millis().and_then(|ms| u64::try_from(ms).ok()),
    }
}

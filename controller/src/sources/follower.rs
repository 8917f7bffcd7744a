//! A follower of statuses or rejected events: sends them to one sink, in order, however long that takes, and notes how far it has come.
//!
//! ```text
//! file -> notes -> sink (acknowledged) -> cursor, journaled with the next batch
//! a crash between the last two sends some again, under the ids that they had
//! ```
//!
//! Never: holds the controller back, or goes past what was not acknowledged.

use super::lines::{Lines, LogKind};
use super::registry::SinkProgress;
use crate::driver::{DriverHandle, wall_ms};
use crate::segments::SegmentError;
use forebay_source::{Condition, Health, OutgoingMessage, Sink, SinkError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Notes that are sent together at most, and their bytes: a second's statuses at 1,000 jobs a second.
const AT_ONCE: (usize, usize) = (2_000, 4 << 20);

/// A cursor is journaled so often at most: what was sent since comes twice after a crash.
const NOTE_EVERY: Duration = Duration::from_millis(200);

/// The first pause after a failure, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// After the controller's end what is left is sent for so long. The folder's lock is held until then, and a standby waits for it.
const LAST: Duration = Duration::from_secs(10);

/// One sink and what is sent there.
pub struct Follower {
    kind: LogKind,
    sink: Box<dyn Sink>,
    handle: DriverHandle,
    health: Health,
    lines: Lines,
    cursor: String,
    sent: u64,
    /// The same, for whoever shows it.
    acknowledged: Arc<AtomicU64>,
    noted: (u64, Instant),
    /// Notes that are sent together: fewer after a failure, so that a slow sink can send some of them in its time.
    at_once: usize,
    /// For how long it sends after the controller's end.
    last: Duration,
}

/// The key in the journal's positions of a sink's cursor.
#[must_use]
pub fn cursor(kind: LogKind, sink: &str) -> String {
    format!("out:{}:{sink}", kind.as_str())
}

impl Follower {
    /// From where the journal has the sink's cursor.
    #[must_use]
    pub fn new(kind: LogKind, sink: Box<dyn Sink>, handle: DriverHandle, health: Health) -> Follower {
        let cursor = cursor(kind, sink.name());
        let sent = handle.durable().get(&cursor).unwrap_or(0);
        let lines = Lines::new(kind, handle.folder(), handle.journal(), sent);
        let acknowledged = Arc::new(AtomicU64::new(sent));
        let noted = (sent, Instant::now());
        let (at_once, last) = (AT_ONCE.0, LAST);
        Follower { kind, sink, handle, health, lines, cursor, sent, acknowledged, noted, at_once, last }
    }

    /// For tests: how long it sends after the controller's end.
    #[cfg(test)]
    pub(super) fn with_last(self, last: Duration) -> Follower {
        Follower { last, ..self }
    }

    /// How far it has come, for whoever shows it.
    #[must_use]
    pub fn progress(&self) -> SinkProgress {
        SinkProgress { cursor: self.cursor.clone(), acknowledged: Arc::clone(&self.acknowledged) }
    }

    /// Sends until the controller has stopped and nothing is left, or cannot be sent in time.
    pub fn follow(mut self, runtime: &tokio::runtime::Handle) {
        let mut progress = self.handle.watch();
        let mut end: Option<Instant> = None;
        let mut pause = PAUSES.0;
        loop {
            let ended = progress.borrow_and_update().stopped;
            // A driver that is gone without a word has ended too.
            let stopped = ended || progress.has_changed().is_err();
            if stopped && end.is_none() {
                (end, pause) = (Some(Instant::now() + self.last), PAUSES.0);
            }
            if end.is_some_and(|end| Instant::now() >= end) {
                break;
            }
            match self.send_next(end) {
                Ok(true) => pause = PAUSES.0,
                Ok(false) if stopped => break,
                Ok(false) => {
                    self.note();
                    // Woken by the next batch, or for the cursor's sake.
                    let changed = async { tokio::time::timeout(NOTE_EVERY, progress.changed()).await };
                    if matches!(runtime.block_on(changed), Ok(Err(_))) {
                        break;
                    }
                }
                Err(why) => {
                    self.failing(&why);
                    let until = end.map_or(pause, |end| pause.min(end.saturating_duration_since(Instant::now())));
                    let paused = async {
                        if stopped {
                            // No change comes any more: whoever waited for one would not pause at all.
                            tokio::time::sleep(until).await;
                        } else {
                            drop(tokio::time::timeout(until, progress.wait_for(|p| p.stopped)).await);
                        }
                    };
                    runtime.block_on(paused);
                    pause = (pause * 2).min(PAUSES.1);
                }
            }
        }
        self.health.set_condition(Condition::Stopped);
    }

    /// The last number that may be sent: what the journal has.
    fn upto(&self) -> u64 {
        match self.kind {
            LogKind::Statuses => u64::MAX,
            LogKind::Rejected => self.kind.last(&self.handle),
        }
    }

    /// Sends what is there next. False: there is nothing. `end`: one by one, nothing more is sent from then on.
    fn send_next(&mut self, end: Option<Instant>) -> Result<bool, String> {
        let read = self.lines.next(self.upto(), self.at_once, AT_ONCE.1);
        let notes = match read {
            Ok(notes) => notes,
            Err(SegmentError::Forgotten { first, asked, .. }) => {
                self.forgotten(asked, first);
                return Ok(true);
            }
            Err(e) => {
                return self.again(format!("{}: {e}; check the folder and the disk under it", self.kind.as_str()));
            }
        };
        let Some(last) = notes.last().map(|note| note.number) else {
            self.health.set_condition(Condition::Working);
            return Ok(false);
        };
        let most = self.sink.max_bytes();
        let notes: Vec<OutgoingMessage> = notes.into_iter().filter_map(|note| self.fitting(note, most)).collect();
        match self.sink.send(&notes) {
            Ok(()) => {}
            Err(SinkError::Transient { why }) => {
                self.at_once = (notes.len() / 2).max(1);
                return self.again(why);
            }
            Err(SinkError::Refused { .. }) => self.one_by_one(&notes, end)?,
        }
        self.at_once = (self.at_once * 2).min(AT_ONCE.0);
        self.health.set_condition(Condition::Working);
        self.acknowledge(last);
        self.note();
        Ok(true)
    }

    fn again<T>(&mut self, why: String) -> Result<T, String> {
        self.read_again();
        Err(why)
    }

    /// Reads from the last one that was acknowledged again.
    fn read_again(&mut self) {
        self.lines = Lines::new(self.kind, self.handle.folder(), self.handle.journal(), self.sent);
    }

    /// A note that the sink has room for. `None`: there is none; it stays in its file.
    fn fitting(&self, note: OutgoingMessage, most: usize) -> Option<OutgoingMessage> {
        if note.bytes.len() <= most {
            return Some(note);
        }
        let smaller = self.lines.smaller(&note, most);
        if smaller.is_none() {
            self.left_out(note.number, &format!("{} bytes; {most} may be sent", note.bytes.len()));
        }
        smaller
    }

    /// What was kept no longer is left out: this sink was not configured for so long, and nobody waited for it.
    fn forgotten(&mut self, asked: u64, first: u64) {
        let text = format!(
            "{} numbers {asked} to {} are not sent: they are kept no longer. What a sink has not sent is kept while it is configured",
            self.kind.as_str(),
            first - 1
        );
        self.remark(text);
        self.acknowledge(first - 1);
        self.read_again();
    }

    fn left_out(&self, number: u64, why: &str) {
        let text = format!("{} number {number} is not sent: {why}; it is in its file", self.kind.as_str());
        self.remark(text);
    }

    fn remark(&self, text: String) {
        tracing::error!(sink = self.sink.name(), "{text}");
        self.health.add_remark(wall_ms().0, text);
    }

    /// Each by itself, since one is refused. Those that are refused are sent smaller, or left out.
    fn one_by_one(&mut self, notes: &[OutgoingMessage], end: Option<Instant>) -> Result<(), String> {
        for note in notes {
            if end.is_some_and(|end| Instant::now() >= end) {
                return self.again("the time for what is left after the controller's end is over".to_owned());
            }
            match self.one(note) {
                Ok(()) => {}
                Err(SinkError::Refused { number, why }) => self.left_out(number, &why),
                Err(SinkError::Transient { why }) => return self.again(why),
            }
            self.acknowledge(note.number);
        }
        Ok(())
    }

    /// One note, and where it is refused, what it is without the bytes of its event.
    fn one(&mut self, note: &OutgoingMessage) -> Result<(), SinkError> {
        match self.sink.send(std::slice::from_ref(note)) {
            Err(SinkError::Refused { number, why }) => match self.lines.smaller(note, note.bytes.len() / 2) {
                Some(smaller) => self.sink.send(std::slice::from_ref(&smaller)),
                None => Err(SinkError::Refused { number, why }),
            },
            sent => sent,
        }
    }

    /// The sink has this one, and all before it.
    fn acknowledge(&mut self, number: u64) {
        self.sent = number;
        self.acknowledged.store(number, Ordering::Relaxed);
    }

    fn note(&mut self) {
        if self.sent > self.noted.0 && self.noted.1.elapsed() >= NOTE_EVERY {
            self.handle.record_cursor(&self.cursor, self.sent);
            self.noted = (self.sent, Instant::now());
        }
    }

    fn failing(&self, why: &str) {
        if self.health.set_condition(Condition::Failing { why: why.to_owned() }) {
            tracing::warn!(sink = self.sink.name(), "{} is not sent: {why}; it is tried again", self.kind.as_str());
        }
    }
}

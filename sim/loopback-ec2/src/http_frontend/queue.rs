//! The message queue: each message is received at least once, hidden for a while, and removed when it is deleted.

use std::collections::{BTreeMap, BTreeSet};

use forebay_kernel::units::{Span, Timestamp};

/// The most messages. Beyond it the oldest are removed.
const MAX_QUEUED: usize = 100_000;

#[derive(Debug, Default)]
pub(super) struct MessageQueue {
    rows: BTreeMap<u64, QueuedMessage>,
    /// The time from which each message can be received, with its number.
    visible: BTreeSet<(Timestamp, u64)>,
    last: u64,
}

/// A message in the queue.
#[derive(Clone, Debug)]
pub(super) struct QueuedMessage {
    pub id: String,
    pub body: String,
    pub sent: Timestamp,
    pub first_received: Timestamp,
    pub receives: u32,
    visible_at: Timestamp,
}

impl MessageQueue {
    pub(super) fn push(&mut self, at: Timestamp, id: String, body: String) {
        self.last += 1;
        let row = QueuedMessage { id, body, sent: at, first_received: at, receives: 0, visible_at: at };
        self.rows.insert(self.last, row);
        self.visible.insert((at, self.last));
        if self.rows.len() > MAX_QUEUED
            && let Some((number, oldest)) = self.rows.pop_first()
        {
            self.visible.remove(&(oldest.visible_at, number));
        }
    }

    pub(super) fn push_text(&mut self, at: Timestamp, body: &str) -> String {
        let id = format!("00000000-0000-4000-8000-{:012x}", self.last + 1);
        self.push(at, id.clone(), body.to_owned());
        id
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The number of messages that can be received now.
    pub(super) fn visible(&self, now: Timestamp) -> usize {
        self.visible.range(..=(now, u64::MAX)).count()
    }

    /// Receives up to `most` messages with their receipt handles, and hides them for a while.
    pub(super) fn receive(&mut self, now: Timestamp, most: usize, hidden: Span) -> Vec<(String, QueuedMessage)> {
        let due: Vec<u64> = self.visible.range(..=(now, u64::MAX)).take(most).map(|(_, number)| *number).collect();
        let mut received = Vec::new();
        for number in due {
            self.hide(number, now + hidden);
            let Some(row) = self.rows.get_mut(&number) else { continue };
            row.receives += 1;
            row.first_received = if row.receives == 1 { now } else { row.first_received };
            received.push((format!("receipt-{number}-{}", row.receives), row.clone()));
        }
        received
    }

    /// Deletes the message of a receipt handle, if it still exists. Returns whether the handle is well-formed.
    pub(super) fn delete(&mut self, handle: &str) -> bool {
        let Some(number) = number(handle) else { return false };
        if let Some(row) = self.rows.remove(&number) {
            self.visible.remove(&(row.visible_at, number));
        }
        true
    }

    /// Hides a message until a time. Returns whether the message exists.
    pub(super) fn set_visible_at(&mut self, handle: &str, until: Timestamp) -> bool {
        let found = number(handle).filter(|number| self.rows.contains_key(number));
        found.inspect(|number| self.hide(*number, until)).is_some()
    }

    fn hide(&mut self, number: u64, until: Timestamp) {
        if let Some(row) = self.rows.get_mut(&number) {
            self.visible.remove(&(row.visible_at, number));
            row.visible_at = until;
            self.visible.insert((until, number));
        }
    }
}

fn number(handle: &str) -> Option<u64> {
    let (number, receives) = handle.strip_prefix("receipt-")?.split_once('-')?;
    receives.parse::<u32>().ok()?;
    number.parse().ok()
}

//! The queue that messages wait in: at least once, taken for a while, gone when deleted.
//!
//! Never: more than a bound; the oldest go first, as they do at the end of a queue's retention.

use std::collections::{BTreeMap, BTreeSet};

use forebay_engine::units::{Millis, Span};

/// The most messages that are kept.
const MOST: usize = 100_000;

#[derive(Debug, Default)]
pub(super) struct Queue {
    rows: BTreeMap<u64, Row>,
    /// When each can be received, with its number.
    visible: BTreeSet<(Millis, u64)>,
    last: u64,
}

/// A message in the queue.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub id: String,
    pub body: String,
    pub sent: Millis,
    pub first_received: Millis,
    pub receives: u32,
    visible_at: Millis,
}

impl Queue {
    pub(super) fn push(&mut self, at: Millis, id: String, body: String) {
        self.last += 1;
        let row = Row { id, body, sent: at, first_received: at, receives: 0, visible_at: at };
        self.rows.insert(self.last, row);
        self.visible.insert((at, self.last));
        if self.rows.len() > MOST
            && let Some((number, oldest)) = self.rows.pop_first()
        {
            self.visible.remove(&(oldest.visible_at, number));
        }
    }

    pub(super) fn push_text(&mut self, at: Millis, body: &str) -> String {
        let id = format!("00000000-0000-4000-8000-{:012x}", self.last + 1);
        self.push(at, id.clone(), body.to_owned());
        id
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// How many can be received now.
    pub(super) fn waiting(&self, now: Millis) -> usize {
        self.visible.range(..=(now, u64::MAX)).count()
    }

    /// Takes up to `most` messages away for so long. Each has its receipt handle beside it.
    pub(super) fn receive(&mut self, now: Millis, most: usize, hidden: Span) -> Vec<(String, Row)> {
        let due: Vec<u64> = self.visible.range(..=(now, u64::MAX)).take(most).map(|(_, number)| *number).collect();
        let mut taken = Vec::new();
        for number in due {
            self.hide(number, now + hidden);
            let Some(row) = self.rows.get_mut(&number) else { continue };
            row.receives += 1;
            row.first_received = if row.receives == 1 { now } else { row.first_received };
            taken.push((format!("receipt-{number}-{}", row.receives), row.clone()));
        }
        taken
    }

    /// Deletes by a receipt handle; one of a message that is gone is fine. False where it is no handle.
    pub(super) fn delete(&mut self, handle: &str) -> bool {
        let Some(number) = number(handle) else { return false };
        if let Some(row) = self.rows.remove(&number) {
            self.visible.remove(&(row.visible_at, number));
        }
        true
    }

    /// Hides a message for so long from now. False where there is none.
    pub(super) fn change(&mut self, handle: &str, until: Millis) -> bool {
        let found = number(handle).filter(|number| self.rows.contains_key(number));
        found.inspect(|number| self.hide(*number, until)).is_some()
    }

    fn hide(&mut self, number: u64, until: Millis) {
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

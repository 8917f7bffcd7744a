//! The desk where sources hand in what they received, and the other side of it.
//!
//! ```text
//! Desk (adapter) --Posted{parcel, slot, answer}--> Incoming (controller)        Durable: positions as the journal has them
//! ```
//!
//! Never: takes a letter without a slot, so that no more is in memory than there are slots.

use crate::letter::{Parcel, Receipt};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

/// The controller has stopped taking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the controller has stopped: what is not durable stays with the transport")]
pub struct Closed;

/// Room for so many letters, reserved. Given back when it is dropped.
#[derive(Debug)]
pub struct Slot {
    permit: OwnedSemaphorePermit,
}

impl From<OwnedSemaphorePermit> for Slot {
    fn from(permit: OwnedSemaphorePermit) -> Slot {
        Slot { permit }
    }
}

impl Slot {
    /// Letters that fit.
    #[must_use]
    pub fn letters(&self) -> usize {
        self.permit.num_permits()
    }

    /// Gives back what is more than `letters`.
    pub fn shrink_to(&mut self, letters: usize) {
        let beyond = self.letters().saturating_sub(letters);
        drop(self.permit.split(beyond));
    }
}

/// A parcel on the desk.
#[derive(Debug)]
pub struct Posted {
    /// What was handed in.
    pub parcel: Parcel,
    /// Its room, held until it is durable.
    pub slot: Slot,
    /// Told when it is durable. Dropped without a word: it never will be.
    pub answer: oneshot::Sender<Receipt>,
}

/// How far streams have been read, as the journal has it. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Durable {
    positions: Arc<RwLock<BTreeMap<String, u64>>>,
}

impl Durable {
    /// The position under a key.
    #[must_use]
    pub fn of(&self, key: &str) -> Option<u64> {
        self.positions.read().unwrap_or_else(PoisonError::into_inner).get(key).copied()
    }

    /// Every position whose key begins so.
    #[must_use]
    pub fn under(&self, prefix: &str) -> Vec<(String, u64)> {
        let all = self.positions.read().unwrap_or_else(PoisonError::into_inner);
        let from = all.range(prefix.to_owned()..);
        from.take_while(|(key, _)| key.starts_with(prefix)).map(|(key, at)| (key.clone(), *at)).collect()
    }

    /// Takes over what has become durable.
    pub fn put<'a>(&self, moved: impl IntoIterator<Item = (&'a String, &'a u64)>) {
        let mut all = self.positions.write().unwrap_or_else(PoisonError::into_inner);
        for (key, at) in moved {
            match all.get_mut(key) {
                Some(old) => *old = *at,
                None => drop(all.insert(key.clone(), *at)),
            }
        }
    }
}

/// Where a source hands in. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Desk {
    room: Arc<Semaphore>,
    to: mpsc::UnboundedSender<Posted>,
    durable: Durable,
}

/// The other side of a [`Desk`].
#[derive(Debug)]
pub struct Incoming {
    /// Parcels in the order in which they were handed in. Without a bound of its own: each holds a slot of a bounded room.
    pub from: mpsc::UnboundedReceiver<Posted>,
}

/// A desk over a room (one permit a letter) and the journal's positions, with its other side.
#[must_use]
pub fn desk(room: Arc<Semaphore>, durable: Durable) -> (Desk, Incoming) {
    let (to, from) = mpsc::unbounded_channel();
    (Desk { room, to, durable }, Incoming { from })
}

impl Desk {
    /// Waits for room for so many letters.
    ///
    /// # Errors
    /// The controller has stopped.
    pub async fn room(&self, letters: u32) -> Result<Slot, Closed> {
        let permit = Arc::clone(&self.room).acquire_many_owned(letters).await;
        permit.map(|permit| Slot { permit }).map_err(|_| Closed)
    }

    /// Room for so many letters, if there is some now.
    #[must_use]
    pub fn room_now(&self, letters: u32) -> Option<Slot> {
        let permit = Arc::clone(&self.room).try_acquire_many_owned(letters);
        permit.ok().map(|permit| Slot { permit })
    }

    /// Hands a parcel in. Resolves when it is durable; an error there means that it never will be.
    ///
    /// # Errors
    /// The controller has stopped.
    pub fn hand_in(&self, parcel: Parcel, slot: Slot) -> Result<oneshot::Receiver<Receipt>, Closed> {
        debug_assert!(parcel.letters.len() <= slot.letters().max(1), "more letters than the slot has room for");
        let (answer, answered) = oneshot::channel();
        self.to.send(Posted { parcel, slot, answer }).map_err(|_| Closed)?;
        Ok(answered)
    }

    /// Positions as the journal has them.
    #[must_use]
    pub fn durable(&self) -> &Durable {
        &self.durable
    }

    /// Whether the controller has stopped taking.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.to.is_closed() || self.room.is_closed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::letter::Letter;

    #[test]
    fn nothing_is_handed_in_beyond_the_room() {
        let (desk, mut other) = desk(Arc::new(Semaphore::new(3)), Durable::default());
        let mut slot = desk.room_now(3).expect("room");
        assert!(desk.room_now(1).is_none());
        slot.shrink_to(2);
        assert_eq!(slot.letters(), 2);
        let letters = vec![Letter::default(); 2];
        let mut answered = desk.hand_in(Parcel { letters, ..Parcel::default() }, slot).expect("open");
        let second = desk.room_now(1).expect("what was given back");
        let posted = other.from.try_recv().expect("a parcel");
        assert!(desk.room_now(1).is_none(), "its room is held until it is durable");
        drop(posted.slot);
        posted.answer.send(Receipt { taken: 2, ..Receipt::default() }).expect("somebody waits");
        assert_eq!(answered.try_recv().map(|r| r.taken), Ok(2));
        assert!(desk.room_now(2).is_some());
        drop((second, other));
        assert!(desk.is_closed());
    }

    #[test]
    fn positions_are_found_by_key_and_by_prefix() {
        let durable = Durable::default();
        let moved = BTreeMap::from([
            ("kafka:a/0".to_owned(), 3),
            ("kafka:a/0#mark".to_owned(), 9),
            ("kafka:b/0".to_owned(), 1),
        ]);
        durable.put(&moved);
        assert_eq!((durable.of("kafka:a/0"), durable.of("kafka:c/0")), (Some(3), None));
        assert_eq!(durable.under("kafka:a/0"), [("kafka:a/0".to_owned(), 3), ("kafka:a/0#mark".to_owned(), 9)]);
    }
}

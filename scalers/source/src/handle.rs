//! The handle through which an adapter submits messages, and the controller's end of it.
//!
//! ```text
//! SourceHandle (adapter) --SubmittedBatch--> IncomingBatches (controller)
//! ```
//!
//! Every batch holds a permit, so that no more messages are in memory than there are permits.

use crate::message::{MessageBatch, Receipt};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

/// The controller accepts no more messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the controller has stopped: what is not durable stays with the transport")]
pub struct ControllerStopped;

/// Reserved memory for a number of messages. Dropping it releases the reservation.
#[derive(Debug)]
pub struct MessagePermit {
    permit: OwnedSemaphorePermit,
}

impl From<OwnedSemaphorePermit> for MessagePermit {
    fn from(permit: OwnedSemaphorePermit) -> MessagePermit {
        MessagePermit { permit }
    }
}

impl MessagePermit {
    /// The number of messages that are reserved.
    #[must_use]
    pub fn messages(&self) -> usize {
        self.permit.num_permits()
    }

    /// Releases everything above `messages`.
    pub fn shrink_to(&mut self, messages: usize) {
        let beyond = self.messages().saturating_sub(messages);
        drop(self.permit.split(beyond));
    }
}

/// A batch that was submitted and is not durable yet.
#[derive(Debug)]
pub struct SubmittedBatch {
    /// The messages.
    pub batch: MessageBatch,
    /// Their memory, held until they are durable.
    pub permit: MessagePermit,
    /// Sent when the batch is durable. If it is dropped instead, the batch will never become durable.
    pub receipt: oneshot::Sender<Receipt>,
}

/// How far each stream was read, as the journal has it. Clones share one table.
#[derive(Clone, Debug, Default)]
pub struct DurablePositions {
    positions: Arc<RwLock<BTreeMap<String, u64>>>,
}

impl DurablePositions {
    /// The position under a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<u64> {
        self.positions.read().unwrap_or_else(PoisonError::into_inner).get(key).copied()
    }

    /// All positions whose keys start with the prefix, in order of their keys.
    #[must_use]
    pub fn with_prefix(&self, prefix: &str) -> Vec<(String, u64)> {
        let all = self.positions.read().unwrap_or_else(PoisonError::into_inner);
        let from = all.range(prefix.to_owned()..);
        from.take_while(|(key, _)| key.starts_with(prefix)).map(|(key, at)| (key.clone(), *at)).collect()
    }

    /// Overwrites positions with those that have become durable.
    pub fn update<'a>(&self, moved: impl IntoIterator<Item = (&'a String, &'a u64)>) {
        let mut all = self.positions.write().unwrap_or_else(PoisonError::into_inner);
        for (key, at) in moved {
            match all.get_mut(key) {
                Some(old) => *old = *at,
                None => drop(all.insert(key.clone(), *at)),
            }
        }
    }
}

/// An adapter's connection to the controller. Clones share one queue.
#[derive(Clone, Debug)]
pub struct SourceHandle {
    permits: Arc<Semaphore>,
    submitted: mpsc::UnboundedSender<SubmittedBatch>,
    positions: DurablePositions,
}

/// The controller's end of a [`SourceHandle`].
#[derive(Debug)]
pub struct IncomingBatches {
    /// Batches in the order in which they were submitted. The channel needs no bound of its own, because each batch holds a permit.
    pub batches: mpsc::UnboundedReceiver<SubmittedBatch>,
}

impl SourceHandle {
    /// Connects an adapter and the controller. `permits` has one permit for each message that may be in memory.
    #[must_use]
    pub fn new(permits: Arc<Semaphore>, positions: DurablePositions) -> (SourceHandle, IncomingBatches) {
        let (submitted, batches) = mpsc::unbounded_channel();
        (SourceHandle { permits, submitted, positions }, IncomingBatches { batches })
    }

    /// Waits until memory for this many messages is free, and reserves it.
    ///
    /// # Errors
    /// The controller has stopped.
    pub async fn reserve(&self, messages: u32) -> Result<MessagePermit, ControllerStopped> {
        let permit = Arc::clone(&self.permits).acquire_many_owned(messages).await;
        permit.map(|permit| MessagePermit { permit }).map_err(|_| ControllerStopped)
    }

    /// Reserves memory for this many messages if it is free now.
    #[must_use]
    pub fn try_reserve(&self, messages: u32) -> Option<MessagePermit> {
        let permit = Arc::clone(&self.permits).try_acquire_many_owned(messages);
        permit.ok().map(|permit| MessagePermit { permit })
    }

    /// Submits a batch. The returned receiver resolves when the batch is durable; it fails if the batch will never be.
    ///
    /// # Errors
    /// The controller has stopped.
    pub fn submit(
        &self,
        batch: MessageBatch,
        permit: MessagePermit,
    ) -> Result<oneshot::Receiver<Receipt>, ControllerStopped> {
        debug_assert!(batch.messages.len() <= permit.messages().max(1), "more messages than the permit is for");
        let (receipt, awaited) = oneshot::channel();
        self.submitted.send(SubmittedBatch { batch, permit, receipt }).map_err(|_| ControllerStopped)?;
        Ok(awaited)
    }

    /// The positions that are durable.
    #[must_use]
    pub fn positions(&self) -> &DurablePositions {
        &self.positions
    }

    /// Whether the controller has stopped.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.submitted.is_closed() || self.permits.is_closed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Message;

    #[test]
    fn nothing_is_submitted_without_a_permit() {
        let (handle, mut incoming) = SourceHandle::new(Arc::new(Semaphore::new(3)), DurablePositions::default());
        let mut permit = handle.try_reserve(3).expect("three are free");
        assert!(handle.try_reserve(1).is_none());
        permit.shrink_to(2);
        assert_eq!(permit.messages(), 2);
        let messages = vec![Message::default(); 2];
        let mut receipt = handle.submit(MessageBatch { messages, ..MessageBatch::default() }, permit).expect("open");
        let second = handle.try_reserve(1).expect("one was released");
        let submitted = incoming.batches.try_recv().expect("a batch");
        assert!(handle.try_reserve(1).is_none(), "the batch holds its permit until it is durable");
        drop(submitted.permit);
        submitted.receipt.send(Receipt { taken: 2, ..Receipt::default() }).expect("the receiver is there");
        assert_eq!(receipt.try_recv().map(|r| r.taken), Ok(2));
        assert!(handle.try_reserve(2).is_some());
        drop((second, incoming));
        assert!(handle.is_closed());
    }

    #[test]
    fn positions_are_found_by_key_and_by_prefix() {
        let positions = DurablePositions::default();
        let moved = BTreeMap::from([
            ("kafka:a/0".to_owned(), 3),
            ("kafka:a/0#mark".to_owned(), 9),
            ("kafka:b/0".to_owned(), 1),
        ]);
        positions.update(&moved);
        assert_eq!((positions.get("kafka:a/0"), positions.get("kafka:c/0")), (Some(3), None));
        let expected = [("kafka:a/0".to_owned(), 3), ("kafka:a/0#mark".to_owned(), 9)];
        assert_eq!(positions.with_prefix("kafka:a/0"), expected);
    }
}

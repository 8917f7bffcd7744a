//! The statuses of a running driver, for whoever follows them: a bounded tail in memory, and streams that read from it.
//!
//! Never: a status that is not durable yet; never a gap without saying so.

use forebay_kernel::effect::Status;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Statuses kept in memory: some 10 MiB, and several times that where they have labels and nodes. Older ones are in the status log.
pub const KEPT: usize = 65_536;

/// The last statuses.
pub(super) struct StatusTail {
    kept: Mutex<VecDeque<Arc<Status>>>,
    last: watch::Sender<Mark>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mark {
    number: u64,
    ended: bool,
}

impl StatusTail {
    /// Empty; the last number given out before this start was `last`.
    pub fn new(last: u64) -> StatusTail {
        StatusTail { kept: Mutex::default(), last: watch::Sender::new(Mark { number: last, ended: false }) }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<Status>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds statuses that are durable, in order.
    pub fn push(&self, statuses: Vec<Status>) {
        let Some(number) = statuses.last().map(|s| s.number) else { return };
        let mut kept = self.lock();
        kept.extend(statuses.into_iter().map(Arc::new));
        let beyond = kept.len().saturating_sub(KEPT);
        kept.drain(..beyond);
        drop(kept);
        self.last.send_modify(|m| m.number = number);
    }

    /// No more will come.
    pub fn end(&self) {
        self.last.send_modify(|m| m.ended = true);
    }
}

/// Statuses in the order of their numbers, without a gap.
pub struct StatusStream {
    tail: Arc<StatusTail>,
    last: watch::Receiver<Mark>,
    after: u64,
}

/// Why a stream of statuses has no next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamEnd {
    /// Older ones than are kept in memory were asked for.
    #[error(
        "statuses before number {before} are not in memory any more: read the folder `status` beside the journal, then follow from there"
    )]
    Missed {
        /// The oldest one in memory.
        before: u64,
    },
    /// The controller has stopped and everything has been read.
    #[error("the controller has stopped")]
    Stopped,
}

impl StatusStream {
    pub(super) fn new(tail: Arc<StatusTail>, after: u64) -> StatusStream {
        let last = tail.last.subscribe();
        StatusStream { tail, last, after }
    }

    /// The next status, if it is there already.
    ///
    /// # Errors
    /// The stream has no next one: see [`StreamEnd`].
    pub fn try_next(&mut self) -> Result<Option<Arc<Status>>, StreamEnd> {
        let mark = *self.last.borrow_and_update();
        if mark.number <= self.after {
            return if mark.ended { Err(StreamEnd::Stopped) } else { Ok(None) };
        }
        let kept = self.tail.lock();
        let oldest = kept.front().map_or(mark.number + 1, |s| s.number);
        let Some(at) = (self.after + 1).checked_sub(oldest) else {
            return Err(StreamEnd::Missed { before: oldest });
        };
        let next = usize::try_from(at).ok().and_then(|at| kept.get(at)).cloned();
        self.after += u64::from(next.is_some());
        Ok(next)
    }

    /// The next status, when it is there.
    ///
    /// # Errors
    /// The stream has no next one: see [`StreamEnd`].
    pub async fn next(&mut self) -> Result<Arc<Status>, StreamEnd> {
        loop {
            if let Some(status) = self.try_next()? {
                return Ok(status);
            }
            if self.last.changed().await.is_err() {
                return Err(StreamEnd::Stopped);
            }
        }
    }
}

//! Where the live loop writes what must not be lost beside the journal: statuses for whoever submitted jobs, and messages that were not
//! taken.
//!
//! ```text
//! batch durable -> StatusWriter::write -> sync -> Tick.delivered: the engine forgets them
//! rejected      -> RejectionWriter::write -> sync -> the batch that counts them becomes durable
//! ```
//!
//! Never: a status before its batch is durable; a batch that counts a rejection before the rejection is written.

use super::error::DriverError;
use super::submission::Rejection;
use crate::journal::StorageFailure;
use forebay_kernel::effect::Status;
use forebay_kernel::units::Timestamp;

/// The durable log of statuses, in the order of their numbers and without a gap.
pub trait StatusWriter: Send {
    /// Writes those of `statuses` that are not in the log yet, in order.
    ///
    /// # Errors
    /// Nothing of them was written; they stay with the engine.
    fn write(&mut self, statuses: &mut dyn Iterator<Item = &Status>) -> Result<(), Box<dyn StorageFailure>>;

    /// Makes what was written durable.
    ///
    /// # Errors
    /// It may not be durable; it is tried again.
    fn sync(&mut self) -> Result<(), Box<dyn StorageFailure>>;

    /// The number of the last status that was written.
    fn last(&self) -> u64;

    /// The number of the last status that is durable.
    fn delivered(&self) -> u64;

    /// How many statuses were cut when the log was opened, because their batches are not in the journal.
    fn cut(&self) -> u64;

    /// Takes away what is beyond its retention. See [`RejectionWriter::retain`].
    ///
    /// # Errors
    /// It stays; it is tried again later.
    fn retain(&mut self, now: Timestamp, read: Option<u64>) -> Result<Option<u64>, Box<dyn StorageFailure>>;
}

/// The durable log of messages that were not taken, numbered from 1 without a gap.
pub trait RejectionWriter: Send {
    /// Writes rejections under the next numbers. `at`: the engine's time.
    ///
    /// # Errors
    /// Nothing of them was written; it is tried again.
    fn write(&mut self, at: Timestamp, rejections: &[Rejection]) -> Result<(), Box<dyn StorageFailure>>;

    /// Makes what was written durable.
    ///
    /// # Errors
    /// It may not be durable; it is tried again.
    fn sync(&mut self) -> Result<(), Box<dyn StorageFailure>>;

    /// The number of the last rejection that was written.
    fn last(&self) -> u64;

    /// Takes away what is beyond its retention. `now`: the engine's time. `read`: the number up to which all who read the log have read
    /// it; `None`: nobody reads it. Returns the number up to which something is kept beyond its time because it is not read yet.
    ///
    /// # Errors
    /// It stays; it is tried again later.
    fn retain(&mut self, now: Timestamp, read: Option<u64>) -> Result<Option<u64>, Box<dyn StorageFailure>>;
}

/// Passes what became of statuses on, but that a full disk holds them back: they stay in the engine until there is room.
pub(super) fn or_held_back(outcome: Result<(), Box<dyn StorageFailure>>) -> Result<(), DriverError> {
    match outcome {
        Err(e) if e.is_full() => {
            tracing::error!("statuses are held back: {e}");
            Ok(())
        }
        other => other.map_err(DriverError::Storage),
    }
}

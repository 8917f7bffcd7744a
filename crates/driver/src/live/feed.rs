//! What a replay feeds: recorded events in order of time, each with its position, so that a resumed replay knows where it was.
//!
//! ```text
//! file -> EventFeed (time, position) -> Event, or a Rejection      position -> journaled with the batch
//! ```
//!
//! Never: skips an event, or lets a bad one stop the stream.

use super::submission::Rejection;
use forebay_kernel::event::Event;
use forebay_kernel::policy::Policy;
use forebay_kernel::units::Timestamp;

/// The key of a replay's position in the journal.
pub const REPLAY: &str = "replay";

/// One record of a feed, decoded.
#[derive(Debug)]
pub enum FedItem {
    /// An event for the engine.
    Event(Event),
    /// A record that means nothing to the engine.
    Nothing,
    /// A record that is no event.
    Rejected(Box<Rejection>),
}

/// Recorded events.
pub trait EventFeed: Send {
    /// What the feed is read from: a file's name.
    fn name(&self) -> &str;

    /// How many records there are, those taken included.
    fn records(&self) -> u64;

    /// How many of the records submit a job.
    fn jobs(&self) -> u64;

    /// How many records have been taken: the feed's position.
    fn position(&self) -> u64;

    /// Leaves out what an earlier run took.
    fn skip_to(&mut self, position: u64);

    /// When the next record is due. `None`: there are no more.
    fn next(&self) -> Option<Timestamp>;

    /// Takes the next record, if it is due. `policy`: the one in force.
    fn take(&mut self, now: Timestamp, policy: Option<&Policy>) -> Option<FedItem>;
}

//! What a source hands over: letters as they were received, in parcels that become durable whole.
//!
//! Never: decoded here.

use std::sync::Arc;

/// One message as it was received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Letter {
    /// Its body, as it was sent.
    pub bytes: Vec<u8>,
    /// Attributes of a binary-mode CloudEvent, by their transport names (`ce_type`, `ce-id`, `content-type`). Empty: the body is the event.
    pub attributes: Vec<(String, String)>,
    /// Its number in its stream; 0 where there is no stream.
    pub offset: u64,
    /// How the transport tells it from others when it hands it out again. `None`: by its offset.
    pub id: Option<String>,
    /// When the broker took it, in ms since 1970. `None`: not told.
    pub sent_ms: Option<u64>,
}

/// Letters of one channel that become durable together, or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parcel {
    /// Which of the source's channels (topics, queues) they came through, in the order of its settings: says whose they are.
    pub channel: usize,
    /// For logs: the sequence of numbers that they come from. `None`: the transport has none.
    pub stream: Option<Stream>,
    /// In order.
    pub letters: Vec<Letter>,
}

/// A log that is read from front to back, and how far this parcel comes in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    /// The key of its position in the journal. Positions only grow: a log that began anew gets another key.
    pub key: Arc<str>,
    /// The offset after the last letter. Letters below the journal's position are dropped as seen.
    pub next: u64,
    /// A print of the last letter, journaled under the key and `#mark`: by it a log that began anew is told from the one that was read.
    pub mark: u64,
}

/// What became of a parcel. It is durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    /// Letters that said something new.
    pub taken: u32,
    /// Letters that were seen before.
    pub seen: u32,
    /// Letters that could not be taken; they are among the rejected with their bytes.
    pub rejected: u32,
}

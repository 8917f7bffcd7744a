//! Messages as an adapter received them, in batches that become durable as a whole. Nothing is decoded here.

use std::sync::Arc;

/// One message as it was received from a broker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// The body, unchanged.
    pub bytes: Vec<u8>,
    /// Attributes of a CloudEvent in binary mode under their transport names (`ce_type`, `ce-id`, `content-type`). Empty if the body is
    /// the whole event.
    pub attributes: Vec<(String, String)>,
    /// The offset in its stream; 0 if the transport has no streams.
    pub offset: u64,
    /// The id by which the transport marks a redelivery. `None` if the offset identifies the message.
    pub id: Option<String>,
    /// When the broker accepted the message, in ms since 1970. `None` if the broker does not report it.
    pub sent_ms: Option<u64>,
}

/// Messages of one channel that become durable together or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MessageBatch {
    /// Index of the topic or queue in the source's settings. It decides in whose name the messages are accepted.
    pub channel: usize,
    /// The stream that the messages were read from. `None` if the transport has no streams.
    pub stream: Option<StreamPosition>,
    /// In the order of the stream.
    pub messages: Vec<Message>,
}

/// How far a batch reaches in a stream that is read from front to back, such as a Kafka partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamPosition {
    /// The key of the position in the journal. Positions under one key only grow; a recreated log gets another key.
    pub key: Arc<str>,
    /// The offset after the last message of the batch. Messages below the journaled position are dropped as duplicates.
    pub next: u64,
    /// A fingerprint of the last message, journaled under the key with `#mark` appended. It distinguishes a recreated log from the
    /// one that was read before.
    pub fingerprint: u64,
}

/// What became of a batch that is now durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    /// Messages with something new in them.
    pub taken: u32,
    /// Messages that had been received before.
    pub seen: u32,
    /// Messages that were refused. They are kept in `rejected.jsonl` with their bytes.
    pub rejected: u32,
}

//! Decodes the messages of a source on a thread of its own, and posts them to the driver. A checkpoint report waits separately until it is
//! verified, so that no other message waits for it. A message that cannot be decoded is posted too, and the driver writes it to the log of
//! rejected events.

use super::metrics::SourceMetrics;
use crate::checkpoints::{CheckpointReport, Checkpoints, PendingMessage};
use crate::driver::{DriverHandle, ItemContent, Original, ReplyTo, Submission, SubmissionSender, SubmittedItem};
use forebay_kernel::event::Event;
use forebay_source::{IncomingBatches, Message, MessageBatch, SubmittedBatch};
use forebay_wire::intake::AttemptKeys;
use forebay_wire::intake::{Caller, Decoded, EventId, Intake, MOST_BYTES, Rejected, Router, from_headers};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The most different warnings of a source that are logged, so that no sender can fill the log. Further ones are only counted.
const MAX_LOGGED_WARNINGS: usize = 64;

/// A topic or queue with its caller.
#[derive(Clone, Debug)]
pub struct SourceChannel {
    /// Its name, such as `kafka:jobs`.
    pub name: Arc<str>,
    /// The caller of all its messages.
    pub caller: Caller,
}

/// The worker of one source.
pub struct DecodeWorker {
    /// The driver.
    pub handle: DriverHandle,
    /// The source's topics or queues, in the order of its settings.
    pub channels: Vec<SourceChannel>,
    /// The policy's routes.
    pub routes: Arc<dyn Router>,
    /// The key of attempt tokens.
    pub key: Option<AttemptKeys>,
    /// Verifies reported checkpoints.
    pub checkpoints: Checkpoints,
    /// The metrics of the source.
    pub metrics: Arc<SourceMetrics>,
}

impl DecodeWorker {
    /// Decodes until the source is dropped or the driver has stopped.
    pub fn run(self, mut incoming: IncomingBatches) {
        let mut warned = BTreeSet::new();
        while let Some(SubmittedBatch { batch, permit, receipt }) = incoming.batches.blocking_recv() {
            let MessageBatch { channel, stream, messages } = batch;
            let Some(channel) = self.channels.get(channel) else {
                tracing::error!("a batch of an unconfigured channel: it stays with its transport");
                continue;
            };
            let position_key = stream.as_ref().map_or(&channel.name, |stream| &stream.key);
            let items = messages
                .into_iter()
                .filter_map(|message| self.item(channel, position_key, message, &mut warned))
                .collect();
            let reply_to = ReplyTo::Source(receipt, Arc::clone(&self.metrics) as _);
            let sender = SubmissionSender::source(Arc::clone(&channel.name));
            if self.handle.put(Submission { items, stream, slot: permit, reply_to, sender }).is_err() {
                return;
            }
        }
    }

    fn item(
        &self,
        channel: &SourceChannel,
        position_key: &Arc<str>,
        message: Message,
        warned: &mut BTreeSet<String>,
    ) -> Option<SubmittedItem> {
        let intake = Intake { caller: &channel.caller, routes: self.routes.as_ref(), key: self.key.as_ref() };
        let transport_id = message.id.as_deref().map(|id| EventId::of_message(&channel.name, id));
        let (content, id, manifest) = match decode(&intake, &message) {
            Ok(Decoded { event, id, warnings, manifest, .. }) => {
                self.warn(channel, warnings, warned);
                (ItemContent::Event(event), id, manifest)
            }
            Err(why) => {
                tracing::debug!(source = %position_key, position = message.offset, code = why.code.as_str(), "rejected: {why}");
                (ItemContent::Unreadable(why), None, None)
            }
        };
        let original = Box::new(Original {
            source: Arc::clone(position_key),
            position: message.offset,
            message: message.id,
            attributes: message.attributes,
            bytes: message.bytes,
            sent_ms: message.sent_ms,
        });
        if let ItemContent::Event(Event::RunCheckpointed { job, attempt, .. }) = content
            && self.checkpoints.verifies()
        {
            let message = PendingMessage { id, transport_id, original, metrics: Arc::clone(&self.metrics) };
            self.checkpoints.enqueue(CheckpointReport { job, attempt, manifest }, message);
            return None;
        }
        Some(SubmittedItem { content, id, transport_id, original: Some(original) })
    }

    fn warn(&self, channel: &SourceChannel, warnings: Vec<String>, warned: &mut BTreeSet<String>) {
        self.metrics.record_warnings(warnings.len());
        for warning in warnings {
            if warned.len() < MAX_LOGGED_WARNINGS && !warned.contains(&warning) {
                tracing::warn!(source = %channel.name, "{warning} (logged once)");
                warned.insert(warning);
            }
        }
    }
}

/// Decodes a message in structured mode, as a bare body, or in binary mode with the attributes outside the body.
///
/// # Errors
/// The message is not a valid event.
pub fn decode(intake: &Intake<'_>, message: &Message) -> Result<Decoded, Rejected> {
    let binary = message.attributes.iter().any(|(name, _)| matches!(name.as_str(), "ce_type" | "ce-type"));
    if !binary || message.bytes.len() > MOST_BYTES {
        return intake.decode(&message.bytes);
    }
    let attributes = message.attributes.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    intake.decode_value(&from_headers(attributes, &message.bytes)?)
}

//! Decodes the messages of a source on a thread of its own, and posts them to the driver. A checkpoint report waits separately until it is
//! verified, so that no other message waits for it. A message that cannot be decoded is posted too, and the driver writes it to the log of
//! rejected events.

use super::metrics::SourceMetrics;
use crate::checkpoints::{CheckpointReport, Checkpoints, PendingMessage};
use crate::driver::{DriverHandle, ItemContent, Original, ReplyTo, Submission, SubmissionSender, SubmittedItem};
use forebay_kernel::event::Event;
use forebay_source::{IncomingBatches, Message, MessageBatch, SubmittedBatch};
use forebay_wire::intake::AttemptKeys;
use forebay_wire::intake::{Caller, Decoded, EventId, Intake, MOST_BYTES, RejectCode, Rejected, Router, from_headers};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The most different warnings of a source that are logged, so that no sender can fill the log. Further ones are only counted.
const MAX_LOGGED_WARNINGS: usize = 64;

/// How the content type of a whole event begins.
const STRUCTURED: &str = "application/cloudevents";

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
        let (content, id, manifest) = match decode_or_reject(&intake, &message) {
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

/// Decodes a message. One on which the decoder panics is rejected: the others of its source go on, and it is kept for whoever looks for the fault.
fn decode_or_reject(intake: &Intake<'_>, message: &Message) -> Result<Decoded, Rejected> {
    // Nothing is changed by the decoder that could be left half done.
    catch_unwind(AssertUnwindSafe(|| decode(intake, message))).unwrap_or_else(|_| {
        let words = "this program failed on the event, by a fault of its own that is on its standard error: please report it with the event";
        Err(Rejected::new(RejectCode::BadValue, "$", words))
    })
}

/// Decodes a message in structured mode, as a bare body, or in binary mode with the attributes outside the body.
///
/// # Errors
/// The message is not a valid event.
pub fn decode(intake: &Intake<'_>, message: &Message) -> Result<Decoded, Rejected> {
    if !is_binary(&message.attributes) || message.bytes.len() > MOST_BYTES {
        return intake.decode(&message.bytes);
    }
    let attributes = message.attributes.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    intake.decode_value(&from_headers(attributes, &message.bytes)?)
}

/// Whether the event's attributes are outside the body. By CloudEvents' bindings the content type decides: with that of an event the body is the
/// whole event, and attributes beside it, which brokers filter by, only repeat what it has.
fn is_binary(attributes: &[(String, String)]) -> bool {
    let named = |wanted: &str| attributes.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
    let has_type = named("ce_type").is_some() || named("ce-type").is_some();
    has_type && named("content-type").is_none_or(|(_, content_type)| !is_structured(content_type))
}

/// Whether a content type is that of an event: `application/cloudevents` and its formats, such as `application/cloudevents+json; charset=utf-8`.
fn is_structured(content_type: &str) -> bool {
    let start = content_type.trim_start().get(..STRUCTURED.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(STRUCTURED))
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_wire::intake::NoRoutes;
    use serde_json::Value;

    /// Routes that cannot be evaluated without a fault.
    struct FaultyRoutes;

    impl Router for FaultyRoutes {
        fn route(&self, _: &Value, _: &Caller) -> Result<Option<String>, String> {
            panic!("a fault of the test's own")
        }
    }

    #[test]
    fn an_event_on_which_the_decoder_fails_is_rejected_with_a_code() {
        let caller = Caller::local();
        let intake = Intake { caller: &caller, routes: &FaultyRoutes, key: None };
        let body = r#"{"specversion":"1.0","type":"job.submitted","source":"//t","id":"1","subject":"x",
            "data":{"queue":"vision/batch","gang":{"each":{"gpus":1}},"simulation":{"durationS":1}}}"#;
        let message = Message { bytes: body.as_bytes().to_vec(), ..Message::default() };
        let Err(rejected) = decode_or_reject(&intake, &message) else { panic!("it is rejected") };
        assert_eq!(rejected.code, RejectCode::BadValue);
        assert!(rejected.message.contains("a fault of its own"), "{rejected}");
    }

    fn subject(attributes: &[(&str, &str)], body: &str) -> Result<Option<String>, Rejected> {
        let caller = Caller::local();
        let intake = Intake { caller: &caller, routes: &NoRoutes, key: None };
        let attributes = attributes.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let message = Message { bytes: body.as_bytes().to_vec(), attributes, ..Message::default() };
        decode(&intake, &message).map(|decoded| decoded.envelope.subject)
    }

    #[test]
    fn the_content_type_says_whether_the_body_is_the_whole_event() {
        let whole =
            r#"{"specversion":"1.0","type":"job.cancelled","source":"//t","id":"1","subject":"body","data":{}}"#;
        let beside = [("ce_type", "job.cancelled"), ("ce_subject", "beside"), ("ce_id", "1"), ("ce_source", "//t")];
        let with = |name: &'static str, content_type: &'static str| {
            let mut all = beside.to_vec();
            all.push((name, content_type));
            all
        };
        for (attributes, body, expected) in [
            (Vec::new(), whole, "body"),
            (beside.to_vec(), "{}", "beside"),
            (with("content-type", "application/json"), "{}", "beside"),
            (with("content-type", "application/cloudevents+json"), whole, "body"),
            (with("Content-Type", "Application/CloudEvents+JSON; charset=UTF-8"), whole, "body"),
            (vec![("Ce-Type", "job.cancelled"), ("Ce-Subject", "beside")], "", "beside"),
        ] {
            assert_eq!(subject(&attributes, body), Ok(Some(expected.to_owned())), "{attributes:?}");
        }
        let batch = subject(&with("content-type", "application/cloudevents-batch+json"), "[]");
        assert!(batch.is_err_and(|why| why.message.contains("send one CloudEvent")));
    }
}

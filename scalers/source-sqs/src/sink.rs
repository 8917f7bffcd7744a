//! Sends statuses and rejected events to a queue.
//!
//! ```text
//! messages -> batch (10, size; FIFO: one per key) -> SendMessageBatch -> what failed is sent again, before what follows it
//! ```
//!
//! A batch for a FIFO queue never has two messages of one key, because the second could arrive while the first fails. A standard queue
//! may deliver a message twice and out of order; consumers recognize it by its id and its `seq`.
//!
//! What the queue accepted in a call that then failed is not sent again by the next one, so that a slow queue gets all of many messages.

use crate::call_failure::{CallFailure, FailureKind, classify_code, with_timeout};
use crate::client::{self, SqsConnection};
use crate::encoding::{deduplication_id, escaped, message_group};
use crate::queue::Queue;
use crate::settings::{SqsError, SqsSettings};
use aws_sdk_sqs::types::{MessageAttributeValue, QueueAttributeName, SendMessageBatchRequestEntry};
use forebay_source::{OutgoingMessage, Sink, SinkError};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::Instant;

/// The most messages of one batch.
const BATCH_SIZE: usize = 10;
/// The size limit that is assumed of a queue that does not say its own. Queues allow at least this unless it was lowered; newer ones allow 1 MiB.
const ASSUMED_LIMIT: usize = 256 * 1024;
/// The most that a queue can allow: messages are prepared for that until the queue's own limit is known.
const LARGEST_LIMIT: usize = 1024 * 1024;
/// Kept free for the names, types and values of the attributes, which count as well (about 100 bytes).
const ATTRIBUTE_BYTES: usize = 512;
/// The part of a call's time limit that is kept for the response to its last batch.
const LAST_RESPONSE: u32 = 4;
const CONTENT_TYPE: &str = "application/cloudevents+json";

/// A sink that sends to one queue.
#[derive(Debug)]
pub struct SqsSink {
    settings: SqsSettings,
    queue: Queue,
    name: String,
    runtime: Handle,
    connection: Option<SqsConnection>,
    /// The URL, and the size limit in bytes of a message and of a batch, once they are known.
    target: Option<(Arc<str>, usize)>,
    max_bytes: usize,
    /// Numbers of messages that the queue accepted in calls that then failed: at most as many as such a call had.
    accepted: BTreeSet<u64>,
}

/// A message in the form in which it is sent.
struct PreparedMessage<'a> {
    outgoing: &'a OutgoingMessage,
    body: String,
    size: usize,
}

impl SqsSink {
    /// Validates the settings. The queue is connected to when the first message is sent.
    ///
    /// # Errors
    /// The settings are not valid.
    pub fn new(mut settings: SqsSettings, queue_name: &str, runtime: Handle) -> Result<SqsSink, SqsError> {
        settings.check_common()?;
        let queue = Queue::one(queue_name)?;
        let name = format!("sqs:{}", queue.name);
        // The URL may contain the region.
        settings.queues = vec![queue_name.to_owned()];
        let max_bytes = LARGEST_LIMIT - ATTRIBUTE_BYTES;
        let accepted = BTreeSet::new();
        Ok(SqsSink { settings, queue, name, runtime, connection: None, target: None, max_bytes, accepted })
    }

    async fn send_all(&mut self, messages: &[OutgoingMessage]) -> Result<(), SinkError> {
        let send_within = self.settings.timings.send_within;
        let deadline = Instant::now() + send_within;
        let last_batch = deadline - send_within / LAST_RESPONSE;
        let prepared_for = self.max_bytes;
        let (connection, url, limit) = self.connect(deadline).await.map_err(transient)?;
        let fits = |message: &OutgoingMessage| message.bytes.len() <= self.max_bytes;
        if self.max_bytes < prepared_for && !messages.iter().all(fits) {
            let queue = &self.queue.name;
            let why = format!("sqs queue `{queue}` accepts {limit} bytes, which was not known before");
            return Err(SinkError::Transient { why });
        }
        let prepared = messages.iter().map(|message| prepare(message, limit)).collect::<Result<Vec<_>, _>>()?;
        let mut left: Vec<&PreparedMessage<'_>> =
            prepared.iter().filter(|message| !self.accepted.contains(&message.outgoing.number)).collect();
        let (mut delays, mut batch_size) = (self.settings.timings.delays(), BATCH_SIZE);
        while !left.is_empty() {
            if Instant::now() >= last_batch {
                return Err(self.out_of_time(messages.len() - left.len(), messages.len()));
            }
            let (batch, rest) = next_batch(&left, batch_size, limit, self.queue.is_fifo());
            let (failed, failure) = match self.send_batch(&connection, &url, &batch, deadline).await {
                // A batch that is refused as a whole does not name the message: sent one by one it shows.
                Err(failure) if failure.kind == FailureKind::InvalidRequest && batch.len() > 1 => {
                    batch_size = 1;
                    continue;
                }
                Ok((failed, failure)) => (failed, failure),
                Err(failure) => (batch.clone(), Some(failure)),
            };
            if let (Some(failure), Some(stuck)) = (&failure, failed.first())
                && failure.kind == FailureKind::InvalidRequest
            {
                return Err(SinkError::Refused { number: stuck.outgoing.number, why: failure.why.clone() });
            }
            let sent = batch.iter().map(|message| message.outgoing.number);
            self.accepted.extend(sent.filter(|number| failed.iter().all(|one| one.outgoing.number != *number)));
            // What failed is sent first, so that nothing with the same key overtakes it.
            left = failed;
            left.extend(rest);
            let Some(failure) = failure else {
                delays.reset();
                continue;
            };
            if failure.kind == FailureKind::NotFound {
                self.target = None;
            }
            let delay = delays.next_delay();
            if failure.kind.needs_operator() || Instant::now() + delay >= last_batch {
                return Err(transient(failure));
            }
            tokio::time::sleep(delay).await;
        }
        let last = messages.last().map_or(0, |message| message.number);
        self.accepted = self.accepted.split_off(&last.saturating_add(1));
        Ok(())
    }

    fn out_of_time(&self, accepted: usize, all: usize) -> SinkError {
        let (queue, within) = (&self.queue.name, self.settings.timings.send_within);
        let why = format!(
            "sqs queue `{queue}`: {accepted} of {all} messages were accepted within {within:?}; the others are sent next: if that \
             lasts, look at the way to the queue and at its quotas"
        );
        SinkError::Transient { why }
    }

    /// The connection, the queue's URL and its size limit in bytes.
    async fn connect(&mut self, deadline: Instant) -> Result<(SqsConnection, Arc<str>, usize), CallFailure> {
        let connection = match &self.connection {
            Some(connection) => connection.clone(),
            None => self.connection.insert(client::connect(&self.settings).await?).clone(),
        };
        if let Some((url, limit)) = &self.target {
            return Ok((connection, Arc::clone(url), *limit));
        }
        let response_timeout = self.response_timeout(deadline);
        self.queue.forget_url().await;
        let url = self.queue.url(&connection, response_timeout).await?;
        let attributes =
            self.queue.attributes(&connection, &url, response_timeout, &[QueueAttributeName::MaximumMessageSize]).await;
        let limit = match attributes {
            Ok(found) => found.get("MaximumMessageSize").and_then(|text| text.parse().ok()).unwrap_or(ASSUMED_LIMIT),
            // Sending may be allowed where reading attributes is not.
            Err(failure) if failure.kind == FailureKind::PermissionDenied => ASSUMED_LIMIT,
            Err(failure) => return Err(failure),
        };
        self.max_bytes = limit.saturating_sub(ATTRIBUTE_BYTES);
        self.target = Some((Arc::clone(&url), limit));
        Ok((connection, url, limit))
    }

    fn response_timeout(&self, deadline: Instant) -> Duration {
        self.settings.timings.response_timeout.min(deadline.saturating_duration_since(Instant::now()))
    }

    /// Sends a batch. Returns the messages that failed and why; the failure is that of the first of them.
    async fn send_batch<'a, 'n>(
        &self,
        connection: &SqsConnection,
        url: &str,
        batch: &[&'a PreparedMessage<'n>],
        deadline: Instant,
    ) -> Result<(Vec<&'a PreparedMessage<'n>>, Option<CallFailure>), CallFailure> {
        let entries = batch.iter().enumerate().map(|(at, message)| entry(at, message, self.queue.is_fifo()));
        let entries = entries
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| CallFailure::new(FailureKind::InvalidRequest, e.to_string()))?;
        let call = connection.client.send_message_batch().queue_url(url).set_entries(Some(entries)).send();
        let answer = with_timeout(self.response_timeout(deadline), "SendMessageBatch", &self.queue.name, call).await?;
        let mut failed: Vec<(usize, CallFailure)> = Vec::new();
        for one in &answer.failed {
            let kind = if one.sender_fault { classify_code(&one.code, 400) } else { FailureKind::Transient };
            let text = one.message.as_deref().unwrap_or("without a message");
            let why = format!("sqs queue `{}`: SendMessage: {}: {text}", self.queue.name, one.code);
            if let Ok(at) = one.id.parse() {
                failed.push((at, CallFailure::new(kind, why)));
            }
        }
        failed.sort_by_key(|(at, _)| *at);
        // A message that will never be accepted is reported before others, else the first that failed.
        let worst = failed.iter().position(|(_, t)| t.kind == FailureKind::InvalidRequest).unwrap_or(0);
        let refused_at = failed.get(worst).filter(|(_, t)| t.kind == FailureKind::InvalidRequest).map(|(at, _)| *at);
        let failure = failed.get(worst).map(|(_, failure)| failure.clone());
        let mut left: Vec<_> = failed.iter().filter_map(|(at, _)| batch.get(*at).copied()).collect();
        if let Some(refused) = refused_at.and_then(|at| batch.get(at).copied()) {
            left = vec![refused];
        }
        Ok((left, failure))
    }
}

impl Sink for SqsSink {
    fn name(&self) -> &str {
        &self.name
    }

    /// 1 MiB minus the attributes, until the queue's own limit is known: the first send finds that out, and fails where a message is larger.
    fn max_bytes(&self) -> usize {
        self.max_bytes
    }

    /// It must not be called from a task of the runtime.
    fn send(&mut self, messages: &[OutgoingMessage]) -> Result<(), SinkError> {
        if messages.is_empty() {
            return Ok(());
        }
        let runtime = self.runtime.clone();
        runtime.block_on(self.send_all(messages))
    }
}

fn transient(failure: CallFailure) -> SinkError {
    SinkError::Transient { why: failure.why }
}

fn prepare(message: &OutgoingMessage, limit: usize) -> Result<PreparedMessage<'_>, SinkError> {
    let refused = |why: String| SinkError::Refused { number: message.number, why };
    let text = std::str::from_utf8(&message.bytes).map_err(|error| refused(format!("it is not UTF-8: {error}")))?;
    let body = escaped(text).into_owned();
    let attributes = [("content-type", CONTENT_TYPE), ("ce_type", message.kind.as_str())];
    let size =
        body.len() + attributes.iter().map(|(name, value)| name.len() + "String".len() + value.len()).sum::<usize>();
    if size > limit {
        return Err(refused(format!("{size} bytes with its attributes; the queue accepts {limit}")));
    }
    if body.is_empty() || message.kind.is_empty() {
        return Err(refused("it has no body or no type; SQS accepts neither".to_owned()));
    }
    Ok(PreparedMessage { outgoing: message, body, size })
}

/// The next batch, and the messages after it, both in order. In a batch for a FIFO queue each key occurs once.
fn next_batch<'a, 'n>(
    left: &[&'a PreparedMessage<'n>],
    batch_size: usize,
    limit: usize,
    fifo: bool,
) -> (Vec<&'a PreparedMessage<'n>>, Vec<&'a PreparedMessage<'n>>) {
    let (mut batch, mut rest, mut keys, mut bytes, mut full) = (Vec::new(), Vec::new(), BTreeSet::new(), 0, false);
    for message in left {
        full = full || batch.len() == batch_size || bytes + message.size > limit;
        let again = fifo && !full && !keys.insert(message.outgoing.key.as_str());
        if full || again {
            rest.push(*message);
        } else {
            bytes += message.size;
            batch.push(*message);
        }
    }
    (batch, rest)
}

fn entry(
    at: usize,
    message: &PreparedMessage<'_>,
    fifo: bool,
) -> Result<SendMessageBatchRequestEntry, aws_sdk_sqs::error::BuildError> {
    let text = |value: &str| MessageAttributeValue::builder().data_type("String").string_value(value).build();
    let entry = SendMessageBatchRequestEntry::builder()
        .id(at.to_string())
        .message_body(message.body.as_str())
        .message_attributes("content-type", text(CONTENT_TYPE)?)
        .message_attributes("ce_type", text(&message.outgoing.kind)?);
    if !fifo {
        return entry.build();
    }
    let OutgoingMessage { key, id, .. } = message.outgoing;
    entry.message_group_id(message_group(key)).message_deduplication_id(deduplication_id(id)).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(number: u64, key: &str, bytes: usize) -> OutgoingMessage {
        let kind = "status.queued".to_owned();
        OutgoingMessage { number, id: format!("id-{number}"), key: key.to_owned(), kind, bytes: vec![b'1'; bytes] }
    }

    fn numbers(messages: &[&PreparedMessage<'_>]) -> Vec<u64> {
        messages.iter().map(|message| message.outgoing.number).collect()
    }

    #[test]
    fn a_batch_holds_ten_and_no_more_than_the_limit() {
        let outgoing: Vec<OutgoingMessage> = (1..=12).map(|n| message(n, "a", 10)).collect();
        let messages: Vec<PreparedMessage<'_>> = outgoing.iter().map(|n| prepare(n, 1024).expect("small")).collect();
        let all: Vec<_> = messages.iter().collect();
        let (batch, rest) = next_batch(&all, BATCH_SIZE, 100_000, false);
        assert_eq!((numbers(&batch), numbers(&rest)), ((1..=10).collect(), vec![11, 12]));
        let (batch, _) = next_batch(&all, BATCH_SIZE, messages[0].size * 3, false);
        assert_eq!(numbers(&batch), [1, 2, 3]);
    }

    #[test]
    fn in_a_fifo_batch_each_key_occurs_once_and_keeps_its_order() {
        let outgoing =
            [message(1, "a", 1), message(2, "a", 1), message(3, "b", 1), message(4, "a", 1), message(5, "c", 1)];
        let messages: Vec<PreparedMessage<'_>> = outgoing.iter().map(|n| prepare(n, 1024).expect("small")).collect();
        let (batch, rest) = next_batch(&messages.iter().collect::<Vec<_>>(), BATCH_SIZE, 100_000, true);
        assert_eq!((numbers(&batch), numbers(&rest)), (vec![1, 3, 5], vec![2, 4]));
        // A full batch ends here: a message that does not fit stays before those that follow it.
        let (batch, rest) = next_batch(&messages.iter().collect::<Vec<_>>(), BATCH_SIZE, messages[0].size, true);
        assert_eq!((numbers(&batch), numbers(&rest)), (vec![1], vec![2, 3, 4, 5]));
    }

    #[test]
    fn a_message_that_is_too_large_is_named_by_its_number() {
        let most = 256 * 1024 - ATTRIBUTE_BYTES;
        assert!(prepare(&message(7, "a", most), 256 * 1024).is_ok());
        assert!(matches!(prepare(&message(7, "a", 256 * 1024), 256 * 1024), Err(SinkError::Refused { number: 7, .. })));
        let odd = OutgoingMessage { bytes: vec![0xff], ..message(8, "a", 1) };
        assert!(matches!(prepare(&odd, 1024), Err(SinkError::Refused { number: 8, .. })));
    }
}

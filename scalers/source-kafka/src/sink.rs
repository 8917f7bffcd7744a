//! Sends statuses and rejected events to a topic. Each message is acknowledged by all in-sync replicas before the next batch is sent.
//!
//! ```text
//! messages --too large for the topic?--> refused, nothing is sent
//!          --> idempotent producer, key = the message's key --> all delivery reports, or 10 s --> Ok, or all of them again
//! ```

use crate::blocking;
use crate::context::{LastError, forward_log};
use crate::error::{KafkaError, code_of, explain, is_unreachable};
use crate::settings::{KafkaSettings, check_topic};
use forebay_source::{OutgoingMessage, Sink, SinkError};
use rdkafka::Message;
use rdkafka::admin::{AdminClient, AdminOptions, ResourceSpecifier};
use rdkafka::client::{ClientContext, DefaultClientContext};
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::message::{DeliveryResult, Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, NoCustomPartitioner, Producer, ProducerContext, PurgeConfig};
use rdkafka::types::RDKafkaErrorCode as Code;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Kafka's default for `max.message.bytes`.
const DEFAULT_LIMIT: usize = 1_048_588;
/// What a record adds to its body and key: headers, offsets and the batch, about 150 bytes. 1 KiB leaves a margin for what brokers add.
const OVERHEAD: usize = 1_024;
/// The time limit of one send.
const SEND_WITHIN: Duration = Duration::from_secs(10);
/// The time limit for reading the topic's limit at the start.
const LIMIT_WITHIN: Duration = Duration::from_secs(5);
/// The same before each send while no broker has responded: the rest of the send's time is for the send.
const LIMIT_AGAIN_WITHIN: Duration = Duration::from_secs(2);

/// Delivery reports of the batch that is being sent.
#[derive(Debug, Default)]
struct DeliveryReports {
    /// The call of `send` that they belong to. Late reports of earlier calls are not counted.
    call: u64,
    delivered: usize,
    /// The first message that failed, by its index in the batch.
    failed: Option<(usize, Code)>,
    ended: usize,
    /// The client's last error.
    last_error: LastError,
}

#[derive(Debug, Default)]
struct SinkContext {
    reports: Mutex<DeliveryReports>,
}

impl SinkContext {
    fn with<T>(&self, act: impl FnOnce(&mut DeliveryReports) -> T) -> T {
        act(&mut self.reports.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ClientContext for SinkContext {
    fn log(&self, level: RDKafkaLogLevel, fac: &str, message: &str) {
        forward_log(level, fac, message);
    }

    fn error(&self, error: rdkafka::error::KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "the producer reports an error");
        self.with(|reports| reports.last_error.note(&error, reason));
    }
}

impl ProducerContext<NoCustomPartitioner> for SinkContext {
    type DeliveryOpaque = Box<(u64, usize)>;

    fn delivery(&self, result: &DeliveryResult<'_>, of: Box<(u64, usize)>) {
        let (call, index) = *of;
        self.with(|reports| {
            if reports.call != call {
                return;
            }
            reports.ended += 1;
            match result {
                Ok(_) => reports.delivered += 1,
                Err((error, message)) => {
                    tracing::debug!(%error, partition = message.partition(), "a message was not delivered");
                    if reports.failed.is_none_or(|(first, _)| index < first) {
                        reports.failed = Some((index, code_of(error)));
                    }
                }
            }
        });
    }
}

/// What a broker says of a topic's `max.message.bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LimitAnswer {
    Known(usize),
    /// A broker responds, and does not say it.
    Refused,
    NoResponse,
}

/// A sink that sends to one topic.
pub struct KafkaSink {
    settings: KafkaSettings,
    topic: String,
    name: String,
    limit: usize,
    /// No broker has responded yet when it was asked for the limit: it is asked again.
    limit_is_open: bool,
    /// `None` after a fatal error: the next send creates another producer.
    producer: Option<BaseProducer<SinkContext>>,
    call: u64,
}

impl std::fmt::Debug for KafkaSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KafkaSink").field("name", &self.name).field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl KafkaSink {
    /// Creates a sink for a topic. It reads the topic's size limit from the broker, for at most 5 s; without a response Kafka's default is
    /// used, until a send finds out.
    ///
    /// # Errors
    /// A setting is not valid. A broker that does not respond is no error here.
    pub fn new(settings: KafkaSettings, topic: &str) -> Result<KafkaSink, KafkaError> {
        check_topic(topic)?;
        let answer = topic_limit(&settings, topic, LIMIT_WITHIN)?;
        let limit = if let LimitAnswer::Known(limit) = answer { limit } else { DEFAULT_LIMIT };
        let limit_is_open = answer == LimitAnswer::NoResponse;
        let (topic, name) = (topic.to_owned(), format!("kafka:{topic}"));
        let mut sink = KafkaSink { settings, topic, name, limit, limit_is_open, producer: None, call: 0 };
        sink.producer = Some(sink.make()?);
        Ok(sink)
    }

    fn make(&self) -> Result<BaseProducer<SinkContext>, KafkaError> {
        let config = self.settings.producer_config(self.limit)?;
        config.create_with_context(SinkContext::default()).map_err(|e| KafkaError::client(&e))
    }

    /// Takes the answer to another question for the limit. Messages that were prepared for another limit are to be prepared again.
    fn learn_limit(&mut self, answer: LimitAnswer) -> Result<(), SinkError> {
        self.limit_is_open = answer == LimitAnswer::NoResponse;
        match answer {
            LimitAnswer::Known(limit) if limit != self.limit => {
                self.limit = limit;
                // It was created with the other limit.
                self.producer = None;
                let why = format!("topic {} accepts {limit} bytes, which no broker had said before", self.topic);
                Err(SinkError::Transient { why })
            }
            LimitAnswer::Known(_) | LimitAnswer::Refused | LimitAnswer::NoResponse => Ok(()),
        }
    }

    fn refused(&self, message: &OutgoingMessage) -> SinkError {
        let why = format!(
            "it has {} bytes and topic {} accepts at most {}: raise its max.message.bytes",
            message.bytes.len() + message.key.len(),
            self.topic,
            self.max_bytes()
        );
        SinkError::Refused { number: message.number, why }
    }

    fn transient(&self, code: Code, last_error: &str) -> SinkError {
        let why = explain(code, last_error, &self.settings.brokers);
        SinkError::Transient { why: format!("topic {}: {why}", self.topic) }
    }

    /// Queues all messages in order, and waits when the producer's queue is full.
    fn queue(
        &self,
        producer: &BaseProducer<SinkContext>,
        messages: &[OutgoingMessage],
        end: Instant,
    ) -> Result<(), SinkError> {
        for (index, message) in messages.iter().enumerate() {
            let header = Header { key: "content-type", value: Some("application/cloudevents+json") };
            let mut record = BaseRecord::with_opaque_to(&self.topic, Box::new((self.call, index)))
                .key(&message.key)
                .payload(&message.bytes)
                .headers(OwnedHeaders::new_with_capacity(1).insert(header));
            loop {
                let Err((error, back)) = producer.send(record) else { break };
                match code_of(&error) {
                    Code::QueueFull if Instant::now() < end => {
                        producer.poll(Duration::from_millis(10));
                        record = back;
                    }
                    Code::MessageSizeTooLarge => return Err(self.refused(message)),
                    code => return Err(self.transient(code, "")),
                }
            }
        }
        Ok(())
    }

    fn result(&self, producer: &BaseProducer<SinkContext>, messages: &[OutgoingMessage]) -> Result<(), SinkError> {
        producer.context().with(|reports| match (reports.failed, reports.last_error.0.take()) {
            (None, _) if reports.delivered == messages.len() => Ok(()),
            // If a batch is refused, its largest message is too large: batches are never larger than what the topic accepts.
            (Some((_, Code::MessageSizeTooLarge)), _) => {
                let largest = messages.iter().max_by_key(|message| message.bytes.len());
                Err(largest
                    .map_or_else(|| self.transient(Code::MessageSizeTooLarge, ""), |message| self.refused(message)))
            }
            // The client's error is more useful than a time-out.
            (
                None | Some((_, Code::MessageTimedOut | Code::PurgeQueue | Code::PurgeInflight)),
                Some((code, last_error)),
            ) => Err(self.transient(code, &last_error)),
            (Some((_, Code::MessageTimedOut)) | None, None) => Err(self.transient(Code::RequestTimedOut, "")),
            (Some((_, code)), _) => Err(self.transient(code, "")),
        })
    }
}

impl Sink for KafkaSink {
    fn name(&self) -> &str {
        &self.name
    }

    fn max_bytes(&self) -> usize {
        self.limit.saturating_sub(OVERHEAD)
    }

    fn send(&mut self, messages: &[OutgoingMessage]) -> Result<(), SinkError> {
        let end = Instant::now() + SEND_WITHIN;
        if self.limit_is_open && !messages.is_empty() {
            let answer = topic_limit(&self.settings, &self.topic, LIMIT_AGAIN_WITHIN)
                .map_err(|e| SinkError::Transient { why: e.to_string() })?;
            self.learn_limit(answer)?;
        }
        if let Some(large) = messages.iter().find(|message| message.bytes.len() + message.key.len() > self.max_bytes())
        {
            return Err(self.refused(large));
        }
        self.call += 1;
        let producer = match self.producer.take() {
            Some(producer) => producer,
            None => self.make().map_err(|e| SinkError::Transient { why: e.to_string() })?,
        };
        producer.context().with(|reports| *reports = DeliveryReports { call: self.call, ..DeliveryReports::default() });
        let queued = self.queue(&producer, messages, end);
        if queued.is_err() {
            producer.purge(PurgeConfig::default().queue().inflight());
        }
        // A poll always takes its whole time, so polls are short and a single message does not wait long.
        while queued.is_ok()
            && producer.context().with(|reports| reports.ended) < messages.len()
            && Instant::now() < end
        {
            producer.poll(Duration::from_millis(1));
        }
        let sent = queued.and_then(|()| self.result(&producer, messages));
        match producer.client().fatal_error() {
            Some((code, last_error)) => {
                tracing::warn!(?code, last_error, sink = self.name, "the producer cannot continue; it is recreated")
            }
            None => self.producer = Some(producer),
        }
        sent
    }
}

/// The topic's `max.message.bytes`, if a broker returns it in time.
fn topic_limit(settings: &KafkaSettings, topic: &str, within: Duration) -> Result<LimitAnswer, KafkaError> {
    let admin: AdminClient<DefaultClientContext> =
        settings.common()?.create().map_err(|error| KafkaError::client(&error))?;
    let options = AdminOptions::new().request_timeout(Some(within));
    let of = ResourceSpecifier::Topic(topic);
    let mut request = Box::pin(admin.describe_configs([&of], &options));
    let response = blocking::until(request.as_mut(), Instant::now() + within);
    let answer = match response {
        Some(Ok(found)) => {
            let mut found = found.into_iter().flatten();
            let limit = found.find_map(|one| one.get("max.message.bytes")?.value.clone()?.parse().ok());
            limit.map_or(LimitAnswer::Refused, LimitAnswer::Known)
        }
        Some(Err(error)) if !is_unreachable(code_of(&error)) => {
            tracing::debug!(topic, %error, "the topic's limit is unknown");
            LimitAnswer::Refused
        }
        Some(Err(_)) | None => LimitAnswer::NoResponse,
    };
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdkafka::mocking::MockCluster;
    use rdkafka::producer::DefaultProducerContext;

    #[test]
    fn a_limit_that_no_broker_has_said_is_learnt_later_and_messages_are_prepared_for_it() {
        let cluster: MockCluster<'static, DefaultProducerContext> =
            MockCluster::new(1).expect("a broker in this process");
        cluster.create_topic("status", 1, 1).expect("a topic");
        let settings = KafkaSettings { brokers: cluster.bootstrap_servers(), ..KafkaSettings::default() };
        let mut sink = KafkaSink::new(settings, "status").expect("a sink");
        assert_eq!(sink.max_bytes(), DEFAULT_LIMIT - OVERHEAD);
        assert!(sink.learn_limit(LimitAnswer::NoResponse).is_ok() && sink.limit_is_open, "it is asked for again");
        let learnt = sink.learn_limit(LimitAnswer::Known(4_000_000));
        assert!(matches!(&learnt, Err(SinkError::Transient { why }) if why.contains("4000000 bytes")), "{learnt:?}");
        assert_eq!(sink.max_bytes(), 4_000_000 - OVERHEAD);
        assert!(!sink.limit_is_open && sink.producer.is_none(), "the next send makes another producer");
        assert!(sink.learn_limit(LimitAnswer::Known(4_000_000)).is_ok(), "nothing to prepare again");
        assert!(sink.learn_limit(LimitAnswer::Refused).is_ok() && !sink.limit_is_open, "nor to ask again");
    }
}

//! Statuses and rejected events to a topic, each acknowledged by all replicas in sync before the next batch.
//!
//! ```text
//! notes --too large for the topic?--> refused, nothing sent
//!       --> idempotent producer, key = the note's key --> every delivery report, or 10 s --> Ok, or: all of them again
//! ```
//!
//! Never: says that a note was sent whose acknowledgement it has not seen.

use crate::context::pass_on;
use crate::error::{KafkaError, code_of, explain};
use crate::settings::{Settings, check_topic};
use crate::wait;
use forebay_source::{Note, Sink, SinkError};
use rdkafka::Message;
use rdkafka::admin::{AdminClient, AdminOptions, ResourceSpecifier};
use rdkafka::client::{ClientContext, DefaultClientContext};
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::message::{DeliveryResult, Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, NoCustomPartitioner, Producer, ProducerContext, PurgeConfig};
use rdkafka::types::RDKafkaErrorCode as Code;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What a topic takes by default, in bytes: Kafka's own `max.message.bytes`.
const USUAL_MOST: usize = 1_048_588;
/// What a record has beside its body and key: header, offsets, the batch around it. About 150 bytes; 1 KiB leaves room for brokers' own.
const OVERHEAD: usize = 1_024;
/// A send takes no longer.
const SENT_WITHIN: Duration = Duration::from_secs(10);
/// Asking the broker for the topic's limit.
const ASKED_WITHIN: Duration = Duration::from_secs(5);

/// Delivery reports of the batch that is being sent.
#[derive(Debug, Default)]
struct Reports {
    /// Which call of `send` they belong to: a late report of an earlier one is not counted.
    call: u64,
    delivered: usize,
    /// The first note that failed, by its place in the batch.
    failed: Option<(usize, Code)>,
    ended: usize,
    /// What the client said last.
    said: Option<(Code, String)>,
}

#[derive(Debug, Default)]
struct Context {
    reports: Mutex<Reports>,
}

impl Context {
    fn with<T>(&self, act: impl FnOnce(&mut Reports) -> T) -> T {
        act(&mut self.reports.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, fac: &str, message: &str) {
        pass_on(level, fac, message);
    }

    fn error(&self, error: rdkafka::error::KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "the producer reports an error");
        let code = code_of(&error);
        self.with(|reports| {
            // That all brokers are down says less than why.
            if code != Code::AllBrokersDown || reports.said.is_none() {
                reports.said = Some((code, reason.to_owned()));
            }
        });
    }
}

impl ProducerContext<NoCustomPartitioner> for Context {
    type DeliveryOpaque = Box<(u64, usize)>;

    fn delivery(&self, result: &DeliveryResult<'_>, of: Box<(u64, usize)>) {
        let (call, place) = *of;
        self.with(|reports| {
            if reports.call != call {
                return;
            }
            reports.ended += 1;
            match result {
                Ok(_) => reports.delivered += 1,
                Err((error, message)) => {
                    tracing::debug!(%error, partition = message.partition(), "a note was not delivered");
                    if reports.failed.is_none_or(|(first, _)| place < first) {
                        reports.failed = Some((place, code_of(error)));
                    }
                }
            }
        });
    }
}

/// Notes to one topic.
pub struct KafkaSink {
    settings: Settings,
    topic: String,
    name: String,
    most: usize,
    /// `None`: the last one met an error that it does not get over; the next send makes another.
    producer: Option<BaseProducer<Context>>,
    call: u64,
}

impl std::fmt::Debug for KafkaSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KafkaSink").field("name", &self.name).field("most", &self.most).finish_non_exhaustive()
    }
}

impl KafkaSink {
    /// A sink for the topic. Asks the broker how large a message may be, for 5 s at most; where it does not say, Kafka's default counts.
    ///
    /// # Errors
    /// A setting is not usable. A broker that does not answer is no error here.
    pub fn new(settings: Settings, topic: &str) -> Result<KafkaSink, KafkaError> {
        check_topic(topic)?;
        let most = topic_limit(&settings, topic)?.unwrap_or(USUAL_MOST);
        let name = format!("kafka:{topic}");
        let mut sink = KafkaSink { settings, topic: topic.to_owned(), name, most, producer: None, call: 0 };
        sink.producer = Some(sink.make()?);
        Ok(sink)
    }

    fn make(&self) -> Result<BaseProducer<Context>, KafkaError> {
        let config = self.settings.writing(self.most)?;
        config.create_with_context(Context::default()).map_err(|e| KafkaError::client(&e))
    }

    fn refused(&self, note: &Note) -> SinkError {
        let why = format!(
            "it has {} bytes and topic {} takes {} at most: raise its max.message.bytes",
            note.bytes.len() + note.key.len(),
            self.topic,
            self.most_bytes()
        );
        SinkError::Refused { number: note.number, why }
    }

    fn passing(&self, code: Code, said: &str) -> SinkError {
        let why = explain(code, said, &self.settings.brokers);
        SinkError::Passing { why: format!("topic {}: {why}", self.topic) }
    }

    /// Queues every note; in order, and waiting where the producer's queue is full.
    fn queue(&self, producer: &BaseProducer<Context>, notes: &[Note], end: Instant) -> Result<(), SinkError> {
        for (place, note) in notes.iter().enumerate() {
            let header = Header { key: "content-type", value: Some("application/cloudevents+json") };
            let mut record = BaseRecord::with_opaque_to(&self.topic, Box::new((self.call, place)))
                .key(&note.key)
                .payload(&note.bytes)
                .headers(OwnedHeaders::new_with_capacity(1).insert(header));
            loop {
                let Err((error, back)) = producer.send(record) else { break };
                match code_of(&error) {
                    Code::QueueFull if Instant::now() < end => {
                        producer.poll(Duration::from_millis(10));
                        record = back;
                    }
                    Code::MessageSizeTooLarge => return Err(self.refused(note)),
                    code => return Err(self.passing(code, "")),
                }
            }
        }
        Ok(())
    }

    fn outcome(&self, producer: &BaseProducer<Context>, notes: &[Note]) -> Result<(), SinkError> {
        producer.context().with(|reports| match (reports.failed, reports.said.take()) {
            (None, _) if reports.delivered == notes.len() => Ok(()),
            // Of a batch that is refused, the largest note is the one: batches are never larger than what the topic takes.
            (Some((_, Code::MessageSizeTooLarge)), _) => {
                let largest = notes.iter().max_by_key(|note| note.bytes.len());
                Err(largest.map_or_else(|| self.passing(Code::MessageSizeTooLarge, ""), |note| self.refused(note)))
            }
            // A time-out says less than why.
            (None | Some((_, Code::MessageTimedOut | Code::PurgeQueue | Code::PurgeInflight)), Some((code, said))) => {
                Err(self.passing(code, &said))
            }
            (Some((_, Code::MessageTimedOut)) | None, None) => Err(self.passing(Code::RequestTimedOut, "")),
            (Some((_, code)), _) => Err(self.passing(code, "")),
        })
    }
}

impl Sink for KafkaSink {
    fn name(&self) -> &str {
        &self.name
    }

    fn most_bytes(&self) -> usize {
        self.most.saturating_sub(OVERHEAD)
    }

    fn send(&mut self, notes: &[Note]) -> Result<(), SinkError> {
        if let Some(large) = notes.iter().find(|note| note.bytes.len() + note.key.len() > self.most_bytes()) {
            return Err(self.refused(large));
        }
        let end = Instant::now() + SENT_WITHIN;
        self.call += 1;
        let producer = match self.producer.take() {
            Some(producer) => producer,
            None => self.make().map_err(|e| SinkError::Passing { why: e.to_string() })?,
        };
        producer.context().with(|reports| *reports = Reports { call: self.call, ..Reports::default() });
        let queued = self.queue(&producer, notes, end);
        if queued.is_err() {
            producer.purge(PurgeConfig::default().queue().inflight());
        }
        // A poll goes on to its end even when all is in: short ones, so that a note alone is not kept waiting.
        while queued.is_ok() && producer.context().with(|reports| reports.ended) < notes.len() && Instant::now() < end {
            producer.poll(Duration::from_millis(1));
        }
        let sent = queued.and_then(|()| self.outcome(&producer, notes));
        match producer.client().fatal_error() {
            Some((code, said)) => {
                tracing::warn!(?code, said, sink = self.name, "the producer cannot go on; it is made anew")
            }
            None => self.producer = Some(producer),
        }
        sent
    }
}

/// The topic's `max.message.bytes`, if the broker says.
fn topic_limit(settings: &Settings, topic: &str) -> Result<Option<usize>, KafkaError> {
    let admin: AdminClient<DefaultClientContext> =
        settings.common()?.create().map_err(|error| KafkaError::client(&error))?;
    let options = AdminOptions::new().request_timeout(Some(ASKED_WITHIN));
    let of = ResourceSpecifier::Topic(topic);
    let mut asked = Box::pin(admin.describe_configs([&of], &options));
    let answer = wait::until(asked.as_mut(), Instant::now() + ASKED_WITHIN);
    let limit = match answer {
        Some(Ok(found)) => {
            found.into_iter().flatten().find_map(|one| one.get("max.message.bytes")?.value.clone()?.parse().ok())
        }
        other => {
            tracing::debug!(topic, error = ?other.map(|answer| answer.err()), "the topic's limit is not known");
            None
        }
    };
    Ok(limit)
}

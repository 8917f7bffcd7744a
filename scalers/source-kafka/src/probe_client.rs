//! A client that reads metadata, watermarks and single messages. It does not join the group and does not commit, and each call has a time
//! limit.

use crate::context::{LastError, ProbeContext};
use crate::error::{KafkaError, code_of, explain, is_unreachable};
use crate::settings::KafkaSettings;
use rdkafka::Message;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::{RDKafkaErrorCode as Code, RDKafkaRespErr};
use std::time::{Duration, Instant};

/// The reason of a refused connection is known after this time.
const ERROR_DETAIL_WITHIN: Duration = Duration::from_millis(500);

/// Whether a topic exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TopicState {
    /// It exists, with these partitions in the order of their numbers.
    Exists(Vec<LedPartition>),
    Missing,
}

/// A partition, and the broker that leads it. -1: none does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LedPartition {
    pub(crate) number: i32,
    pub(crate) leader: i32,
}

/// Why something is not known, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProbeFailure {
    /// Whoever should say it did not respond in time.
    Unreachable(String),
    /// A broker responds, and does not say it.
    Refused(String),
}

impl ProbeFailure {
    pub(crate) fn into_words(self) -> String {
        match self {
            ProbeFailure::Unreachable(why) | ProbeFailure::Refused(why) => why,
        }
    }
}

pub(crate) struct ProbeClient {
    consumer: BaseConsumer<ProbeContext>,
    brokers: String,
}

impl ProbeClient {
    pub(crate) fn new(settings: &KafkaSettings) -> Result<ProbeClient, KafkaError> {
        let mut config = settings.probe_config()?;
        config.set("enable.partition.eof", "true");
        let consumer = config.create_with_context(ProbeContext::default()).map_err(|e| KafkaError::client(&e))?;
        Ok(ProbeClient { consumer, brokers: settings.brokers.clone() })
    }

    /// Handles log lines and errors that have arrived.
    pub(crate) fn serve(&self) {
        // Nothing is assigned to this client, so no message is lost. The loop ends in any case.
        for _ in 0..1_000 {
            if self.consumer.poll(Duration::ZERO).is_none() {
                return;
            }
        }
    }

    /// Describes an error. What the client reported is preferred to a mere time-out.
    pub(crate) fn describe(&self, error: &rdkafka::error::KafkaError) -> String {
        let code = code_of(error);
        if !matches!(code, Code::OperationTimedOut | Code::BrokerTransportFailure) {
            return explain(code, "", &self.brokers);
        }
        // The reason of a refused connection arrives shortly after the refusal.
        let end = Instant::now() + ERROR_DETAIL_WITHIN;
        loop {
            drop(self.consumer.poll(Duration::from_millis(10)));
            let last_error = self.consumer.context().last_error().clone();
            match last_error.0 {
                Some((code, reason)) if code != Code::AllBrokersDown || Instant::now() >= end => {
                    return explain(code, &reason, &self.brokers);
                }
                None if Instant::now() >= end => return explain(code, "", &self.brokers),
                _ => {}
            }
        }
    }

    fn failure(&self, error: &rdkafka::error::KafkaError) -> ProbeFailure {
        let why = self.describe(error);
        if is_unreachable(code_of(error)) { ProbeFailure::Unreachable(why) } else { ProbeFailure::Refused(why) }
    }

    /// The brokers of the cluster: their number, and host with port.
    pub(crate) fn brokers(&self, limit: Duration) -> Result<Vec<(i32, String)>, String> {
        // Any topic will do: the response lists the brokers too, and a list of all topics may be long.
        let response =
            self.consumer.fetch_metadata(Some("__consumer_offsets"), limit).map_err(|e| self.describe(&e))?;
        Ok(response.brokers().iter().map(|one| (one.id(), format!("{}:{}", one.host(), one.port()))).collect())
    }

    /// Whether a topic exists, and with which partitions.
    pub(crate) fn topic(&self, topic: &str, limit: Duration) -> Result<TopicState, ProbeFailure> {
        let response = self.consumer.fetch_metadata(Some(topic), limit).map_err(|e| self.failure(&e))?;
        // Earlier errors are over.
        *self.consumer.context().last_error() = LastError::default();
        let Some(found) = response.topics().iter().find(|one| one.name() == topic) else {
            return Ok(TopicState::Missing);
        };
        match found.error() {
            None => {
                let led = |one: &rdkafka::metadata::MetadataPartition| LedPartition {
                    number: one.id(),
                    leader: one.leader(),
                };
                let mut partitions: Vec<LedPartition> = found.partitions().iter().map(led).collect();
                partitions.sort_unstable();
                Ok(TopicState::Exists(partitions))
            }
            Some(
                RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART
                | RDKafkaRespErr::RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC
                | RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_ID,
            ) => Ok(TopicState::Missing),
            Some(other) => Err(ProbeFailure::Refused(explain(other.into(), "", &self.brokers))),
        }
    }

    /// The first offset of the log, and the offset of the next message.
    pub(crate) fn offsets(&self, topic: &str, partition: i32, limit: Duration) -> Result<(u64, u64), ProbeFailure> {
        let (low, high) = self.consumer.fetch_watermarks(topic, partition, limit).map_err(|e| self.failure(&e))?;
        match (u64::try_from(low), u64::try_from(high)) {
            (Ok(low), Ok(high)) => Ok((low, high)),
            _ => Err(ProbeFailure::Refused(format!(
                "the broker returns no offsets of {topic}/{partition}; its log may say why"
            ))),
        }
    }

    /// Whether there is a message at the offset or after it. `None` if the broker did not respond in time.
    pub(crate) fn has_message(&self, topic: &str, partition: i32, from: u64, limit: Duration) -> Option<bool> {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(topic, partition, Offset::Offset(i64::try_from(from).ok()?)).ok()?;
        self.consumer.assign(&list).ok()?;
        let end = Instant::now() + limit;
        let mut found = None;
        while found.is_none() && Instant::now() < end {
            found = match self.consumer.poll(end.saturating_duration_since(Instant::now())) {
                Some(Ok(message)) => Some(message.topic() == topic && message.partition() == partition),
                Some(Err(rdkafka::error::KafkaError::PartitionEOF(_))) => Some(false),
                Some(Err(error)) => {
                    tracing::debug!(%error, topic, partition, "reading one message");
                    None
                }
                None => None,
            };
        }
        if let Err(error) = self.consumer.unassign() {
            tracing::debug!(%error, "a partition could not be unassigned");
        }
        found
    }

    /// The state of the group, and its members by client and host.
    pub(crate) fn members(&self, group: &str, limit: Duration) -> Result<(String, Vec<String>), String> {
        let response = self.consumer.fetch_group_list(Some(group), limit).map_err(|e| self.describe(&e))?;
        let Some(found) = response.groups().iter().find(|one| one.name() == group) else {
            return Ok(("does not exist".to_owned(), Vec::new()));
        };
        let members = found.members().iter().map(|one| format!("{} at {}", one.client_id(), one.client_host()));
        Ok((found.state().to_owned(), members.collect()))
    }
}

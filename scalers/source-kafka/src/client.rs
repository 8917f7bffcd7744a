//! A client for looking: metadata, watermarks and single messages, outside the group's assignments.
//!
//! Never: joins the group, commits, or waits without an end.

use crate::context::Looking;
use crate::error::{KafkaError, code_of, explain};
use crate::settings::Settings;
use rdkafka::Message;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::{RDKafkaErrorCode as Code, RDKafkaRespErr};
use std::time::{Duration, Instant};

/// Why a connection was refused is known by then.
const REASON_WITHIN: Duration = Duration::from_millis(500);

/// A topic's answer to a look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Topic {
    /// Its partitions' numbers.
    There(Vec<i32>),
    /// No such topic.
    Missing,
}

/// A client that looks.
pub(crate) struct Client {
    consumer: BaseConsumer<Looking>,
    brokers: String,
}

impl Client {
    pub(crate) fn new(settings: &Settings) -> Result<Client, KafkaError> {
        let mut config = settings.looking()?;
        config.set("enable.partition.eof", "true");
        let consumer = config.create_with_context(Looking::default()).map_err(|e| KafkaError::client(&e))?;
        Ok(Client { consumer, brokers: settings.brokers.clone() })
    }

    /// Serves log lines and errors that came since.
    pub(crate) fn serve(&self) {
        // Nothing is assigned here, so that no message is lost; at most what a moment brings.
        for _ in 0..1_000 {
            if self.consumer.poll(Duration::ZERO).is_none() {
                return;
            }
        }
    }

    /// What is wrong, in words. Prefers what the client says to a bare time-out.
    pub(crate) fn why(&self, error: &rdkafka::error::KafkaError) -> String {
        let code = code_of(error);
        if !matches!(code, Code::OperationTimedOut | Code::BrokerTransportFailure) {
            return explain(code, "", &self.brokers);
        }
        // The reason of a refused connection comes a moment after the refusal.
        let end = Instant::now() + REASON_WITHIN;
        loop {
            drop(self.consumer.poll(Duration::from_millis(10)));
            let said = self.consumer.context().said.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
            match said {
                Some((why, words)) if why != Code::AllBrokersDown || Instant::now() >= end => {
                    return explain(why, &words, &self.brokers);
                }
                None if Instant::now() >= end => return explain(code, "", &self.brokers),
                _ => {}
            }
        }
    }

    /// The brokers of the cluster: number, host and port.
    pub(crate) fn brokers(&self, limit: Duration) -> Result<Vec<(i32, String)>, String> {
        // Any topic will do: the answer lists the brokers too, and a list of all topics may be long.
        let answer = self.consumer.fetch_metadata(Some("__consumer_offsets"), limit).map_err(|e| self.why(&e))?;
        Ok(answer.brokers().iter().map(|one| (one.id(), format!("{}:{}", one.host(), one.port()))).collect())
    }

    /// Whether a topic is there, and with which partitions.
    pub(crate) fn topic(&self, topic: &str, limit: Duration) -> Result<Topic, String> {
        let answer = self.consumer.fetch_metadata(Some(topic), limit).map_err(|e| self.why(&e))?;
        // What was wrong before no longer is.
        *self.consumer.context().said.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = None;
        let Some(found) = answer.topics().iter().find(|one| one.name() == topic) else {
            return Ok(Topic::Missing);
        };
        match found.error() {
            None => {
                let mut numbers: Vec<i32> = found.partitions().iter().map(|one| one.id()).collect();
                numbers.sort_unstable();
                Ok(Topic::There(numbers))
            }
            Some(
                RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART
                | RDKafkaRespErr::RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC
                | RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_ID,
            ) => Ok(Topic::Missing),
            Some(other) => Err(explain(other.into(), "", &self.brokers)),
        }
    }

    /// The first offset that the log has, and the one that the next message will get.
    pub(crate) fn ends(&self, topic: &str, partition: i32, limit: Duration) -> Result<(u64, u64), String> {
        let (low, high) = self.consumer.fetch_watermarks(topic, partition, limit).map_err(|e| self.why(&e))?;
        match (u64::try_from(low), u64::try_from(high)) {
            (Ok(low), Ok(high)) => Ok((low, high)),
            _ => Err(format!("the broker names no ends of {topic}/{partition}; its log may say why")),
        }
    }

    /// Whether there is a message at the offset or after it. `None`: the broker did not say in time.
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
                    tracing::debug!(%error, topic, partition, "looking for a message");
                    None
                }
                None => None,
            };
        }
        if let Err(error) = self.consumer.unassign() {
            tracing::debug!(%error, "the looking client keeps a partition");
        }
        found
    }

    /// Members of the group, by client and host. Empty: nobody has joined.
    pub(crate) fn members(&self, group: &str, limit: Duration) -> Result<(String, Vec<String>), String> {
        let answer = self.consumer.fetch_group_list(Some(group), limit).map_err(|e| self.why(&e))?;
        let Some(found) = answer.groups().iter().find(|one| one.name() == group) else {
            return Ok(("not there".to_owned(), Vec::new()));
        };
        let members = found.members().iter().map(|one| format!("{} at {}", one.client_id(), one.client_host()));
        Ok((found.state().to_owned(), members.collect()))
    }
}

//! What the reader's consumer calls back with: rebalances, answers to commits, errors, log lines.
//!
//! Never: decides where to read, or waits: it tells the reader, which acts between two polls.

use crate::error::{explain, is_unreachable};
use crate::shared::{Change, Shared};
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::{RDKafkaErrorCode as Code, RDKafkaRespErr};
use std::sync::Arc;

/// Of a reader.
pub(crate) struct Context {
    pub(crate) shared: Arc<Shared>,
    pub(crate) brokers: String,
}

impl Context {
    /// Durable offsets to the broker, for whoever looks from outside. Not waited for: they are sent before anything that follows on the
    /// coordinator's connection, and nothing of ours is read back from them.
    pub(crate) fn commit(&self, consumer: &BaseConsumer<Self>) {
        // One that cannot be sent would keep the consumer from ending.
        if self.shared.is_out_of_reach() {
            return;
        }
        let mut list = TopicPartitionList::new();
        for ((topic, partition), offset) in std::mem::take(&mut *self.shared.commits()) {
            if let Err(error) = list.add_partition_offset(&topic, partition, Offset::Offset(offset)) {
                tracing::warn!(topic, partition, offset, %error, "an offset that cannot be committed");
            }
        }
        if list.count() == 0 {
            return;
        }
        if let Err(error) = consumer.commit(&list, CommitMode::Async) {
            tracing::debug!(%error, "offsets were not committed; the next time will");
        }
    }
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, fac: &str, message: &str) {
        if let Some(topic) = recreated(message) {
            tracing::info!(topic, "the topic has another id: it was deleted and made again");
            self.shared.tell(Change::Recreated(topic.to_owned()));
            return;
        }
        pass_on(level, fac, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let code = crate::error::code_of(&error);
        match code {
            // Told of one connection; others may do. All brokers down is told as such.
            Code::BrokerTransportFailure | Code::OperationTimedOut => {
                tracing::debug!(%error, reason, "a connection broke")
            }
            // The reader and the watch find these themselves.
            Code::FencedInstanceId
            | Code::Fatal
            | Code::PartitionEOF
            | Code::AutoOffsetReset
            | Code::UnknownTopicOrPartition
            | Code::UnknownTopic => {
                tracing::debug!(%error, reason, "a partition's error");
            }
            _ => {
                // Many a second while a broker is away: what it means is told once, as a condition.
                tracing::debug!(%error, reason, "the client reports an error");
                self.shared.fails(explain(code, reason, &self.brokers), is_unreachable(code));
            }
        }
    }
}

impl ConsumerContext for Context {
    fn rebalance(&self, consumer: &BaseConsumer<Self>, err: RDKafkaRespErr, list: &mut TopicPartitionList) {
        if err == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS {
            let ours = list.elements().iter().map(|one| (one.topic().to_owned(), one.partition())).collect();
            self.shared.tell(Change::Assigned(ours));
            return;
        }
        if !consumer.assignment_lost() {
            self.commit(consumer);
        }
        // Here and not in the reader: a consumer that closes waits for it.
        if let Err(error) = consumer.unassign() {
            tracing::warn!(%error, "partitions could not be given back");
        }
        self.shared.tell(Change::Revoked);
    }

    fn commit_callback(&self, result: KafkaResult<()>, _: &TopicPartitionList) {
        if let Err(error) = result {
            tracing::debug!(%error, "offsets were not committed; the next time will");
        }
    }
}

/// Of the watch, the probe and the sink's helper: log lines only.
#[derive(Clone, Debug, Default)]
pub(crate) struct Looking {
    /// The last thing that went wrong.
    pub(crate) said: Arc<std::sync::Mutex<Option<(Code, String)>>>,
}

impl ClientContext for Looking {
    fn log(&self, level: RDKafkaLogLevel, fac: &str, message: &str) {
        pass_on(level, fac, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let code = crate::error::code_of(&error);
        let mut said = self.said.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // That all brokers are down says less than why.
        if code != Code::AllBrokersDown || said.is_none() {
            *said = Some((code, reason.to_owned()));
        }
        tracing::debug!(%error, reason, "the client reports an error");
    }
}

impl ConsumerContext for Looking {}

/// librdkafka's log lines as events. They hold no secrets: it never logs a property's value that is one.
pub(crate) fn pass_on(level: RDKafkaLogLevel, fac: &str, message: &str) {
    match level {
        // A line for each try of each connection, while a broker is away: that it is away is told once, as a condition.
        _ if fac == "FAIL" => tracing::debug!(fac, "librdkafka: {message}"),
        RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical | RDKafkaLogLevel::Error => {
            tracing::error!(fac, "librdkafka: {message}");
        }
        RDKafkaLogLevel::Warning => tracing::warn!(fac, "librdkafka: {message}"),
        RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info => tracing::info!(fac, "librdkafka: {message}"),
        RDKafkaLogLevel::Debug => tracing::trace!(fac, "librdkafka: {message}"),
    }
}

/// The topic of the line in which librdkafka says that a topic's id has changed. It goes on at its old offset in the new log then, and tells
/// nobody but its log; the line comes through the same queue as messages, before the first one of the new log.
fn recreated(message: &str) -> Option<&str> {
    let (before, ids) = message.split_once(" changed id from ")?;
    let (old, _) = ids.split_once(" to ")?;
    // From nothing to the first id: it was only now learnt.
    if old.chars().all(|c| matches!(c, 'A' | '=')) {
        return None;
    }
    before.rsplit_once("Topic ").map(|(_, topic)| topic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_id_is_told_from_the_first_one() {
        let line = |from: &str| format!("[thrd:main]: Topic jobs.in changed id from {from} to 9Vq0hJmTQ0mVYkV4mJz0gA");
        assert_eq!(recreated(&line("x5Vq0hJmTQ0mVYkV4mJz0A")), Some("jobs.in"));
        assert_eq!(recreated(&line("AAAAAAAAAAAAAAAAAAAAAA")), None);
        assert_eq!(recreated("[thrd:main]: Topic jobs.in [0] Leader 1 Epoch 0"), None);
    }
}

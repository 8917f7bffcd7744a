//! The callbacks of the clients: rebalances, results of commits, errors and log lines. They do not decide or wait; the reader acts on what
//! they report between two polls.

use crate::error::{code_of, explain, is_unreachable};
use crate::shared::{ClearedBy, GroupChange, ReaderState};
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::{RDKafkaErrorCode as Code, RDKafkaRespErr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The callbacks of a reader's consumer.
pub(crate) struct ReaderContext {
    pub(crate) shared: Arc<ReaderState>,
    pub(crate) brokers: String,
}

impl ReaderContext {
    /// Commits durable offsets, for monitoring from outside. The result is not waited for, because Forebay never reads them back.
    pub(crate) fn commit(&self, consumer: &BaseConsumer<Self>) {
        // A commit that cannot be sent would keep the consumer from closing.
        if self.shared.brokers_are_unreachable() {
            return;
        }
        let mut list = TopicPartitionList::new();
        let taken = std::mem::take(&mut *self.shared.commits());
        for ((topic, partition), offset) in taken {
            if let Err(error) = list.add_partition_offset(&topic, partition, Offset::Offset(offset)) {
                tracing::warn!(topic, partition, offset, %error, "an offset is not valid for a commit");
            }
        }
        if list.count() == 0 {
            return;
        }
        if let Err(error) = consumer.commit(&list, CommitMode::Async) {
            tracing::debug!(%error, "offsets were not committed; the next commit contains them");
            self.keep(&list);
        }
    }

    /// Keeps offsets that were not committed for the next commit, but for partitions of which there are newer ones.
    fn keep(&self, list: &TopicPartitionList) {
        let mut commits = self.shared.commits();
        for one in list.elements() {
            if let Offset::Offset(offset) = one.offset() {
                commits.entry((one.topic().to_owned(), one.partition())).or_insert(offset);
            }
        }
    }
}

impl ClientContext for ReaderContext {
    fn log(&self, level: RDKafkaLogLevel, fac: &str, message: &str) {
        if let Some(topic) = recreated_topic(message) {
            tracing::info!(topic, "the topic has another id: it was deleted and created again");
            self.shared.push_change(GroupChange::Recreated(topic.to_owned()));
            return;
        }
        forward_log(level, fac, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let code = code_of(&error);
        match code {
            // One connection failed; others may work. If all brokers are down, another error says so.
            Code::BrokerTransportFailure | Code::OperationTimedOut => {
                tracing::debug!(%error, reason, "a connection broke")
            }
            // The reader and the watchdog find these by themselves.
            Code::FencedInstanceId
            | Code::Fatal
            | Code::PartitionEOF
            | Code::AutoOffsetReset
            | Code::UnknownTopicOrPartition
            | Code::UnknownTopic => {
                tracing::debug!(%error, reason, "a partition's error");
            }
            _ => {
                // There are many per second while a broker is away; the condition reports it once.
                tracing::debug!(%error, reason, "the client reports an error");
                let cleared_by = if is_unreachable(code) { ClearedBy::Response } else { ClearedBy::Assignment };
                self.shared.set_failure(explain(code, reason, &self.brokers), cleared_by);
            }
        }
    }
}

impl ConsumerContext for ReaderContext {
    fn rebalance(&self, consumer: &BaseConsumer<Self>, err: RDKafkaRespErr, list: &mut TopicPartitionList) {
        if err == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS {
            let assigned: Vec<(String, i32)> =
                list.elements().iter().map(|one| (one.topic().to_owned(), one.partition())).collect();
            // What could not be committed of others is for their next owner.
            self.shared.commits().retain(|partition, _| assigned.contains(partition));
            self.shared.push_change(GroupChange::Assigned(assigned));
            return;
        }
        if !consumer.assignment_lost() {
            self.commit(consumer);
        }
        // This is done here and not in the reader, because a consumer that closes waits for it.
        if let Err(error) = consumer.unassign() {
            tracing::warn!(%error, "partitions could not be unassigned");
        }
        self.shared.push_change(GroupChange::Revoked);
    }

    fn commit_callback(&self, result: KafkaResult<()>, list: &TopicPartitionList) {
        if let Err(error) = result {
            tracing::debug!(%error, "offsets were not committed; the next commit contains them");
            self.keep(list);
        }
    }
}

/// The last error of a client, with its reason.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastError(pub(crate) Option<(Code, String)>);

impl LastError {
    /// Takes note of an error. The reason of a connection is more useful than that all brokers are down.
    pub(crate) fn note(&mut self, error: &KafkaError, reason: &str) {
        let code = code_of(error);
        if code != Code::AllBrokersDown || self.0.is_none() {
            self.0 = Some((code, reason.to_owned()));
        }
    }
}

/// The callbacks of the watchdog's and the probe's client: errors and log lines.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProbeContext {
    /// The last error, with its reason.
    last_error: Arc<Mutex<LastError>>,
}

impl ProbeContext {
    pub(crate) fn last_error(&self) -> MutexGuard<'_, LastError> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientContext for ProbeContext {
    fn log(&self, level: RDKafkaLogLevel, fac: &str, message: &str) {
        forward_log(level, fac, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.last_error().note(&error, reason);
        tracing::debug!(%error, reason, "the client reports an error");
    }
}

impl ConsumerContext for ProbeContext {}

/// Forwards librdkafka's log lines as trace events. It never logs the values of secret properties.
pub(crate) fn forward_log(level: RDKafkaLogLevel, fac: &str, message: &str) {
    match level {
        // There is one line for each attempt of each connection while a broker is away; the condition reports it once.
        _ if fac == "FAIL" => tracing::debug!(fac, "librdkafka: {message}"),
        RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical | RDKafkaLogLevel::Error => {
            tracing::error!(fac, "librdkafka: {message}");
        }
        RDKafkaLogLevel::Warning => tracing::warn!(fac, "librdkafka: {message}"),
        RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info => tracing::info!(fac, "librdkafka: {message}"),
        RDKafkaLogLevel::Debug => tracing::trace!(fac, "librdkafka: {message}"),
    }
}

/// The topic in librdkafka's log line about a topic whose id has changed. librdkafka continues at the old offset in the new log and reports
/// that nowhere but in its log. The line comes through the same queue as messages, before the first message of the new log.
fn recreated_topic(message: &str) -> Option<&str> {
    let (before, ids) = message.split_once(" changed id from ")?;
    let (old, _) = ids.split_once(" to ")?;
    // The first id of a topic is not a change.
    if old.chars().all(|c| matches!(c, 'A' | '=')) {
        return None;
    }
    before.rsplit_once("Topic ").map(|(_, topic)| topic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_committed_is_committed_next_unless_there_is_something_newer() {
        let context = ReaderContext { shared: Arc::default(), brokers: "b:9092".to_owned() };
        let key = |partition: i32| ("jobs".to_owned(), partition);
        context.shared.commits().insert(key(1), 20);
        let mut sent = TopicPartitionList::new();
        for partition in [0, 1] {
            sent.add_partition_offset("jobs", partition, Offset::Offset(10)).expect("an offset");
        }
        context.commit_callback(Ok(()), &sent);
        assert_eq!(context.shared.commits().len(), 1, "these were committed");
        context.commit_callback(Err(KafkaError::ConsumerCommit(Code::NotCoordinator)), &sent);
        let kept: Vec<_> = context.shared.commits().clone().into_iter().collect();
        assert_eq!(kept, [(key(0), 10), (key(1), 20)]);
    }

    #[test]
    fn a_changed_id_differs_from_the_first_one() {
        let line = |from: &str| format!("[thrd:main]: Topic jobs.in changed id from {from} to 9Vq0hJmTQ0mVYkV4mJz0gA");
        assert_eq!(recreated_topic(&line("x5Vq0hJmTQ0mVYkV4mJz0A")), Some("jobs.in"));
        assert_eq!(recreated_topic(&line("AAAAAAAAAAAAAAAAAAAAAA")), None);
        assert_eq!(recreated_topic("[thrd:main]: Topic jobs.in [0] Leader 1 Epoch 0"), None);
    }
}

//! A pipeline's side of Kafka for tests: sends what it is given until the broker has acknowledged it, and reads topics to their ends.
//!
//! Never: gives up before its deadline; brokers are restarted under it.

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{ClientConfig, Message, Offset, TopicPartitionList};
use std::time::{Duration, Instant};

/// A producer that keeps order and doubles nothing.
pub struct Pipeline {
    producer: BaseProducer,
}

impl Pipeline {
    /// To these brokers.
    ///
    /// # Panics
    /// When there can be none.
    #[must_use]
    pub fn to(brokers: &str) -> Pipeline {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", brokers)
            .set("enable.idempotence", "true")
            .set("linger.ms", "2")
            .set("message.timeout.ms", "120000")
            .set("reconnect.backoff.max.ms", "1000")
            .set("message.max.bytes", "20000000");
        Pipeline { producer: config.create().expect("a producer") }
    }

    /// Sends one, and waits for room where the producer is full.
    ///
    /// # Panics
    /// When it is refused.
    pub fn send(&self, topic: &str, key: &str, body: &[u8]) {
        let mut record = BaseRecord::to(topic).key(key).payload(body);
        loop {
            match self.producer.send(record) {
                Ok(()) => break,
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => {
                    self.producer.poll(Duration::from_millis(10));
                    record = back;
                }
                Err((error, _)) => panic!("{topic}: {error}"),
            }
        }
        self.producer.poll(Duration::ZERO);
    }

    /// Waits until everything is acknowledged.
    ///
    /// # Panics
    /// When it is not, in two minutes.
    pub fn flush(&self) {
        self.producer.flush(Duration::from_secs(120)).expect("the broker acknowledges within two minutes");
    }
}

/// Hands every message that is in a topic now to `take`: its key and body, in the order of each partition.
///
/// # Panics
/// When the topic cannot be read to its end within the time given.
pub fn read_all(brokers: &str, topic: &str, within: Duration, mut take: impl FnMut(&[u8], &[u8])) {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("group.id", "forebay-test-reader")
        .set("enable.auto.commit", "false")
        .set("enable.partition.eof", "true")
        .create()
        .expect("a consumer");
    let deadline = Instant::now() + within;
    let metadata = consumer.fetch_metadata(Some(topic), within).expect("the topic is there");
    let mut assigned = TopicPartitionList::new();
    let mut open = metadata.topics().iter().flat_map(|t| t.partitions()).count();
    for partition in metadata.topics().iter().flat_map(|t| t.partitions()) {
        assigned.add_partition_offset(topic, partition.id(), Offset::Beginning).expect("an offset");
    }
    consumer.assign(&assigned).expect("assigned");
    while open > 0 {
        assert!(Instant::now() < deadline, "{topic} is not read to its end within {within:?}");
        match consumer.poll(Duration::from_millis(500)) {
            Some(Ok(message)) => {
                take(message.key().unwrap_or_default(), message.payload().unwrap_or_default());
            }
            Some(Err(KafkaError::PartitionEOF(_))) => open -= 1,
            Some(Err(error)) => panic!("{topic}: {error}"),
            None => {}
        }
    }
}

//! The Kafka that the tests share, and what they send to it and read from it.
//!
//! Never: code of Forebay's, which would test itself.

use crate::support::wait_until;
use forebay_parts::{Kafka, KafkaOptions};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::{ClientConfig, error::KafkaError, types::RDKafkaErrorCode};
use std::sync::LazyLock;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// Twice the largest event that is tried here.
pub const MOST_BYTES: &str = "20971520";

/// Ends with this process.
static SHARED: LazyLock<Kafka> = LazyLock::new(|| {
    let properties = vec![("message.max.bytes".to_owned(), MOST_BYTES.to_owned())];
    Kafka::start(KafkaOptions { properties, ..KafkaOptions::default() }).expect("a broker")
});

/// Its address.
pub fn shared() -> &'static str {
    SHARED.bootstrap()
}

/// A record as it is sent, or as it was found.
#[derive(Clone, Debug, Default)]
pub struct Sent {
    /// `None`: a tombstone.
    pub body: Option<Vec<u8>>,
    pub headers: Vec<(String, String)>,
    pub key: Option<String>,
}

impl Sent {
    pub fn body(bytes: impl Into<Vec<u8>>) -> Sent {
        Sent { body: Some(bytes.into()), ..Sent::default() }
    }
}

/// Creates a topic.
pub fn create(topic: &str, partitions: i32) {
    create_with(topic, partitions, &[]);
}

/// The same, with settings.
pub fn create_with(topic: &str, partitions: i32, settings: &[(&str, &str)]) {
    let client: AdminClient<DefaultClientContext> =
        ClientConfig::new().set("bootstrap.servers", shared()).create().expect("an admin client");
    let options = AdminOptions::new().operation_timeout(Some(LIMIT)).request_timeout(Some(LIMIT));
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let new = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
    let new = settings.iter().fold(new, |new, (name, value)| new.set(name, value));
    let made = runtime.block_on(client.create_topics([&new], &options)).expect("the broker takes it");
    made[0].clone().unwrap_or_else(|(name, code)| panic!("topic {name}: {code}"));
}

/// Deletes what is before an offset of a partition, as retention does.
pub fn trim(topic: &str, partition: i32, before: i64) {
    let client: AdminClient<DefaultClientContext> =
        ClientConfig::new().set("bootstrap.servers", shared()).create().expect("an admin client");
    let options = AdminOptions::new().operation_timeout(Some(LIMIT)).request_timeout(Some(LIMIT));
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, partition, Offset::Offset(before)).expect("an offset");
    runtime.block_on(client.delete_records(&list, &options)).expect("the broker deletes");
}

/// A producer that loses nothing and repeats nothing.
pub fn producer() -> BaseProducer {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", shared()).set("enable.idempotence", "true").set("linger.ms", "2");
    config.set("message.max.bytes", MOST_BYTES).create().expect("a producer")
}

/// Puts a record into the producer's queue; waits where that is full.
pub fn put(producer: &BaseProducer, topic: &str, sent: &Sent) {
    let mut record: BaseRecord<'_, String, Vec<u8>> = BaseRecord::to(topic);
    if let Some(body) = &sent.body {
        record = record.payload(body);
    }
    if let Some(key) = &sent.key {
        record = record.key(key);
    }
    if !sent.headers.is_empty() {
        let with =
            |all: OwnedHeaders, (name, value): &(String, String)| all.insert(Header { key: name, value: Some(value) });
        record = record.headers(sent.headers.iter().fold(OwnedHeaders::new(), with));
    }
    loop {
        match producer.send(record) {
            Ok(()) => break,
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => {
                producer.poll(Duration::from_millis(5));
                record = back;
            }
            Err((error, _)) => panic!("{topic}: {error}"),
        }
    }
}

/// Sends records in order, and waits until the broker has them.
pub fn send(topic: &str, records: &[Sent]) {
    let producer = producer();
    records.iter().for_each(|sent| put(&producer, topic, sent));
    producer.flush(LIMIT).expect("sent");
}

fn consumer(group: &str) -> BaseConsumer {
    ClientConfig::new()
        .set("bootstrap.servers", shared())
        .set("group.id", group)
        .set("enable.auto.commit", "false")
        .set("fetch.wait.max.ms", "20")
        .set("fetch.message.max.bytes", MOST_BYTES)
        .create()
        .expect("a consumer")
}

/// Everything that is in a topic of so many partitions now, each partition in order.
pub fn read(topic: &str, partitions: i32) -> Vec<Sent> {
    let consumer = consumer("look");
    let (mut list, mut left) = (TopicPartitionList::new(), 0);
    for partition in 0..partitions {
        let (from, to) = consumer.fetch_watermarks(topic, partition, LIMIT).expect("offsets");
        left += to - from;
        list.add_partition_offset(topic, partition, Offset::Beginning).expect("an offset");
    }
    consumer.assign(&list).expect("assigned");
    let mut found = Vec::new();
    wait_until(&format!("{left} records of {topic}"), || {
        while (found.len() as i64) < left {
            let Some(message) = consumer.poll(Duration::from_millis(100)) else {
                return Err(format!("{} records", found.len()));
            };
            let message = message.map_err(|e| e.to_string())?;
            let headers = message.headers().into_iter().flat_map(|h| h.iter());
            let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
            found.push(Sent {
                body: message.payload().map(<[u8]>::to_vec),
                headers: headers.map(|h| (h.key.to_owned(), text(h.value))).collect(),
                key: message.key().map(|key| text(Some(key))),
            });
        }
        Ok(())
    });
    found
}

/// What a group has committed of each partition; `None` where it has nothing yet.
pub fn committed(group: &str, topic: &str, partitions: i32) -> Vec<Option<i64>> {
    let mut list = TopicPartitionList::new();
    for partition in 0..partitions {
        list.add_partition(topic, partition);
    }
    let found = consumer(group).committed_offsets(list, LIMIT).expect("an answer");
    let offset = |offset: Offset| if let Offset::Offset(at) = offset { Some(at) } else { None };
    found.elements().iter().map(|one| offset(one.offset())).collect()
}

/// The members of a group, by their client's host and id.
pub fn members(group: &str) -> usize {
    let found = consumer("look").fetch_group_list(Some(group), LIMIT).expect("an answer");
    found.groups().iter().map(|group| group.members().len()).sum()
}

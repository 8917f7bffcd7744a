//! The broker that most tests share, and what they ask of it.
//!
//! Never: the code under test, which would test itself.

use forebay_parts::{Kafka, KafkaOptions};
use forebay_source_kafka::KafkaSettings;
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaErrorCode;
use std::ops::Range;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(90);

/// Ends with this process.
static SHARED: LazyLock<Kafka> = LazyLock::new(|| start(KafkaOptions::default()));

/// One of one's own.
pub fn start(mut options: KafkaOptions) -> Kafka {
    options.properties.push(("message.max.bytes".to_owned(), (16 * 1024 * 1024).to_string()));
    // A deleted topic's files go at once.
    options.properties.push(("log.segment.delete.delay.ms".to_owned(), "0".to_owned()));
    Kafka::start(options).expect("a broker")
}

pub fn shared() -> &'static str {
    SHARED.bootstrap()
}

/// A name that no other test has.
pub fn unique(name: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{name}-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Settings of a source of the shared broker, with a group of its own.
pub fn settings(topic: &str) -> KafkaSettings {
    KafkaSettings {
        brokers: shared().to_owned(),
        group: format!("{topic}-group"),
        instance: Some(format!("{topic}-instance")),
        topics: vec![topic.to_owned()],
        watch_interval: Duration::from_millis(500),
        ..KafkaSettings::default()
    }
}

pub fn numbers(range: Range<usize>) -> Vec<String> {
    range.map(|n| format!("{n:06}")).collect()
}

/// Sends numbers as bodies, to partition `n % partitions`, and waits until the broker has them.
pub fn send(brokers: &str, topic: &str, partitions: i32, range: Range<usize>) {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("enable.idempotence", "true")
        .set("linger.ms", "2")
        .create()
        .expect("a producer");
    for n in range {
        let body = format!("{n:06}");
        let partition = i32::try_from(n).expect("small") % partitions;
        let mut record = BaseRecord::<str, str>::to(topic).payload(&body).partition(partition);
        while let Err((error, back)) = producer.send(record) {
            assert_eq!(error.rdkafka_error_code(), Some(RDKafkaErrorCode::QueueFull), "{error}");
            producer.poll(Duration::from_millis(5));
            record = back;
        }
    }
    producer.flush(LIMIT).expect("sent");
}

fn admin<T>(
    brokers: &str,
    act: impl AsyncFnOnce(&AdminClient<DefaultClientContext>, &AdminOptions) -> rdkafka::error::KafkaResult<T>,
) -> T {
    let client: AdminClient<DefaultClientContext> =
        ClientConfig::new().set("bootstrap.servers", brokers).create().expect("an admin client");
    let options = AdminOptions::new().operation_timeout(Some(LIMIT)).request_timeout(Some(LIMIT));
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(act(&client, &options)).expect("the broker takes it")
}

/// Creates a topic; waits where one of that name is still being deleted.
pub fn create(brokers: &str, topic: &str, partitions: i32) {
    create_with(brokers, topic, partitions, &[]);
}

pub fn create_with(brokers: &str, topic: &str, partitions: i32, options: &[(&str, &str)]) {
    crate::controller::wait_until(&format!("topic {topic}"), || {
        let mut new = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
        for (name, value) in options {
            new = new.set(name, value);
        }
        let answer = admin(brokers, async |client, options| client.create_topics([&new], options).await);
        answer[0].clone().map(drop).map_err(|(_, code)| code.to_string())
    });
}

pub fn delete(brokers: &str, topic: &str) {
    let answer = admin(brokers, async |client, options| client.delete_topics(&[topic], options).await);
    answer[0].clone().expect("deleted");
}

/// Waits until the broker has an empty log there. Until it has deleted an earlier one, messages go into that and are lost with it.
pub fn wait_for_empty(brokers: &str, topic: &str, partition: i32) {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("group.id", unique("look"))
        .create()
        .expect("a consumer");
    crate::controller::wait_until(&format!("an empty log of {topic}"), || {
        let ends = consumer.fetch_watermarks(topic, partition, LIMIT).map_err(|error| error.to_string())?;
        (ends == (0, 0)).then_some(()).ok_or_else(|| format!("it has the offsets {ends:?}"))
    });
}

/// Makes it so many partitions.
pub fn widen(brokers: &str, topic: &str, partitions: usize) {
    let wanted = NewPartitions::new(topic, partitions);
    let answer = admin(brokers, async |client, options| client.create_partitions([&wanted], options).await);
    answer[0].clone().expect("widened");
}

/// Deletes what is before the offset.
pub fn trim(brokers: &str, topic: &str, partition: i32, before: i64) {
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, partition, Offset::Offset(before)).expect("an offset");
    admin(brokers, async |client, options| client.delete_records(&list, options).await);
}

/// What the group has committed of a partition.
pub fn committed(settings: &KafkaSettings, topic: &str, partition: i32) -> Option<i64> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", &settings.brokers)
        .set("group.id", &settings.group)
        .create()
        .expect("a consumer");
    let mut list = TopicPartitionList::new();
    list.add_partition(topic, partition);
    let found = consumer.committed_offsets(list, LIMIT).expect("an answer");
    match found.elements()[0].offset() {
        Offset::Offset(at) => Some(at),
        _ => None,
    }
}

/// Everything in a topic that has so many messages, by partition and in order: key and body.
pub fn read_all(brokers: &str, topic: &str, partitions: i32, messages: usize) -> Vec<(i32, String, Vec<u8>)> {
    use rdkafka::Message;
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("group.id", unique("look"))
        .set("enable.auto.commit", "false")
        .set("fetch.wait.max.ms", "50")
        .create()
        .expect("a consumer");
    let mut list = TopicPartitionList::new();
    for partition in 0..partitions {
        list.add_partition_offset(topic, partition, Offset::Beginning).expect("an offset");
    }
    consumer.assign(&list).expect("assigned");
    let mut found = Vec::new();
    crate::controller::wait_until(&format!("{messages} messages in {topic}"), || {
        // What comes after the last one counts as well.
        while let Some(Ok(message)) = consumer.poll(Duration::from_millis(200)) {
            let key = String::from_utf8_lossy(message.key().unwrap_or_default()).into_owned();
            found.push((message.partition(), key, message.payload().unwrap_or_default().to_vec()));
        }
        (found.len() >= messages).then_some(()).ok_or_else(|| format!("{} messages", found.len()))
    });
    found.sort_by_key(|(partition, _, _)| *partition);
    found
}

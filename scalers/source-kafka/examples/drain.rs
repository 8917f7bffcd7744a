//! Measures the throughput of the source alone, with a broker on this machine, messages of 500 bytes, and a controller that only counts.
//!
//! `cargo run --release -p forebay-source-kafka --example drain -- [MESSAGES] [PARTITIONS]`, by default 2,000,000 and 4. It starts a real
//! broker for itself; prints messages and MiB per second, and the size of the batches.
//!
//! The journal is not involved; its cost is measured with the controller.

use forebay_parts::{Kafka as Broker, KafkaOptions};
use forebay_source::{DurablePositions, Health, Receipt, Source, SourceHandle};
use forebay_source_kafka::{KafkaSettings, KafkaSource};
use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::types::RDKafkaErrorCode;
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

const BODY: usize = 500;
const TOPIC: &str = "drain";

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let messages: usize = args.next().map_or(Ok(2_000_000), |text| text.parse())?;
    let partitions: u32 = args.next().map_or(Ok(4), |text| text.parse())?;
    let broker = Broker::start(KafkaOptions::default())?;
    broker.create_topic(TOPIC, partitions)?;
    fill(broker.bootstrap(), messages)?;
    println!("{messages} messages of {BODY} bytes are in {partitions} partitions");

    let positions = DurablePositions::default();
    let (handle, mut incoming) = SourceHandle::new(Arc::new(Semaphore::new(65_536)), positions.clone());
    let settings = KafkaSettings {
        brokers: broker.bootstrap().to_owned(),
        topics: vec![TOPIC.to_owned()],
        ..KafkaSettings::default()
    };
    let source = KafkaSource::start(settings, handle, Health::default())?;
    let (mut received, mut batches, mut first) = (0, 0, None);
    while received < messages {
        let submitted = incoming.batches.blocking_recv().ok_or("the source has ended")?;
        // The first batch comes after the group was joined, which is not measured.
        first.get_or_insert_with(Instant::now);
        received += submitted.batch.messages.len();
        batches += 1;
        if let Some(stream) = submitted.batch.stream {
            positions.update(&BTreeMap::from([(stream.key.to_string(), stream.next)]));
        }
        drop(submitted.permit);
        let _ = submitted.receipt.send(Receipt::default());
    }
    let took = first.map_or(Duration::ZERO, |at| at.elapsed()).as_secs_f64();
    let a_second = received as f64 / took;
    println!(
        "{received} messages in {took:.2} s: {a_second:.0}/s, {:.0} MiB/s, {:.0} messages per batch",
        a_second * BODY as f64 / f64::from(1 << 20),
        received as f64 / f64::from(batches)
    );
    Box::new(source).stop();
    Ok(())
}

fn fill(brokers: &str, messages: usize) -> Result<(), Box<dyn Error>> {
    let producer: BaseProducer =
        ClientConfig::new().set("bootstrap.servers", brokers).set("linger.ms", "20").create()?;
    // Text like a job's event, with a number that keeps it from being the same each time.
    for n in 0..messages {
        let mut body = format!("{{\"type\":\"job.submitted\",\"subject\":\"job-{n}\",\"data\":\"");
        body.extend(std::iter::repeat_n('x', BODY.saturating_sub(body.len() + 2)));
        body.push_str("\"}");
        let key = n.to_string();
        let mut record = BaseRecord::to(TOPIC).key(&key).payload(&body);
        while let Err((error, back)) = producer.send(record) {
            if error != KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull) {
                return Err(error.into());
            }
            producer.poll(Duration::from_millis(10));
            record = back;
        }
        producer.poll(Duration::ZERO);
    }
    producer.flush(Duration::from_secs(60))?;
    Ok(())
}

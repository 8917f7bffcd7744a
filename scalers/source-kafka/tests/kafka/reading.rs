//! What is read: every message once, whole, from the journal's positions on.
//!
//! Never: trouble with brokers or topics; those have their own files.

use crate::broker::{committed, create, numbers, send, settings, shared, unique};
use crate::controller::{TestController, wait_until};
use forebay_source::{Condition, DurablePositions, Health, Message, Source};
use forebay_source_kafka::KafkaSource;
use rdkafka::ClientConfig;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn every_letter_is_journaled_once_over_restarts_of_the_consumer_and_the_controller() {
    const ALL: usize = 30_000;
    let topic = unique("once");
    create(shared(), &topic, 3);
    let (positions, journal) = (DurablePositions::default(), Arc::default());
    std::thread::scope(|threads| {
        let writer =
            threads.spawn(|| (0..10).for_each(|n| send(shared(), &topic, 3, n * ALL / 10..(n + 1) * ALL / 10)));
        for round in 0..6 {
            // Few permits, so that there are many batches; what is in memory at the end is lost with the controller.
            let controller = TestController::start(700, &positions, &journal);
            let health = Health::default();
            let source =
                KafkaSource::start(settings(&topic), controller.handle.clone(), health.clone()).expect("started");
            let messages = controller.journal.lock().unwrap().count();
            controller.wait_for((messages + 1).min(ALL));
            match round % 3 {
                0 => Box::new(source).stop(),
                1 => drop(source),
                _ => {
                    drop(controller);
                    drop(source);
                }
            }
        }
        writer.join().expect("written");
    });
    let controller = TestController::start(700, &positions, &journal);
    let source = KafkaSource::start(settings(&topic), controller.handle.clone(), Health::default()).expect("started");
    controller.wait_for(ALL);
    Box::new(source).stop();
    let journal = journal.lock().unwrap();
    assert_eq!(journal.all(), numbers(0..ALL));
    assert!(journal.largest > 100, "batches are large when many messages wait: {}", journal.largest);
}

#[test]
fn reading_begins_at_the_journals_positions_and_not_at_the_committed_ones() {
    let topic = unique("seek");
    create(shared(), &topic, 1);
    send(shared(), &topic, 1, 0..100);
    let controller = TestController::new();
    let source = KafkaSource::start(settings(&topic), controller.handle.clone(), Health::default()).expect("started");
    controller.wait_for(100);
    Box::new(source).stop();
    assert_eq!(committed(&settings(&topic), &topic, 0), Some(100), "committed when it was stopped");

    let key = format!("kafka:{topic}/0/0");
    let earlier = DurablePositions::default();
    earlier.update(&BTreeMap::from([(key.clone(), 40)]));
    let controller = TestController::start(1_000, &earlier, &Arc::default());
    let source = KafkaSource::start(settings(&topic), controller.handle.clone(), Health::default()).expect("started");
    controller.wait_for(60);
    assert_eq!(controller.journal.lock().unwrap().bodies(&key), numbers(40..100));
    Box::new(source).stop();

    // A journal that knows nothing reads all of it.
    let controller = TestController::new();
    let source = KafkaSource::start(settings(&topic), controller.handle.clone(), Health::default()).expect("started");
    controller.wait_for(100);
    assert_eq!(controller.journal.lock().unwrap().bodies(&key), numbers(0..100));
    Box::new(source).stop();
}

#[test]
fn nothing_is_committed_before_it_is_durable() {
    let topic = unique("commit");
    create(shared(), &topic, 1);
    send(shared(), &topic, 1, 0..100);
    let controller = TestController::new();
    let source = KafkaSource::start(settings(&topic), controller.handle.clone(), Health::default()).expect("started");
    controller.wait_for(100);
    let at = |expected| {
        wait_until(&format!("a commit of {expected}"), || {
            let at = committed(&settings(&topic), &topic, 0);
            (at == Some(expected)).then_some(()).ok_or_else(|| format!("{at:?}"))
        });
    };
    at(100);
    controller.stick(true);
    send(shared(), &topic, 1, 100..200);
    // It has them: the room shrinks.
    wait_until("messages in memory", || {
        controller.handle.try_reserve(9_901).is_none().then_some(()).ok_or("none".to_owned())
    });
    for _ in 0..15 {
        assert_eq!(committed(&settings(&topic), &topic, 0), Some(100));
        std::thread::park_timeout(Duration::from_millis(100));
    }
    controller.stick(false);
    at(200);
    Box::new(source).stop();
}

#[test]
fn a_letter_is_whole_however_large_and_has_its_events_attributes() {
    let topic = unique("whole");
    create(shared(), &topic, 1);
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", shared())
        .set("message.max.bytes", "16000000")
        .create()
        .expect("a producer");
    let headers = OwnedHeaders::new()
        .insert(Header { key: "ce_type", value: Some("job.submitted") })
        .insert(Header { key: "content-type", value: Some("application/json") })
        .insert(Header { key: "ce_bad", value: Some(&[0xff, b'x'][..]) })
        .insert(Header { key: "traceparent", value: Some("not ours") });
    let large = vec![b'x'; 10 * 1024 * 1024];
    producer
        .send(BaseRecord::<str, [u8]>::to(&topic).payload(b"{}").headers(headers).timestamp(1_700))
        .expect("queued");
    producer.send(BaseRecord::<str, [u8]>::to(&topic).payload(&large)).expect("queued");
    producer.send(BaseRecord::<str, [u8]>::to(&topic).key("tombstone")).expect("queued");
    producer.flush(Duration::from_secs(20)).expect("sent");
    let (controller, health) = (TestController::new(), Health::default());
    let source = KafkaSource::start(settings(&topic), controller.handle.clone(), health.clone()).expect("started");
    controller.wait_for(3);
    let journal = controller.journal.lock().unwrap();
    let messages = &journal.messages[&format!("kafka:{topic}/0/0")];
    let attribute = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let expected = Message {
        bytes: b"{}".to_vec(),
        attributes: vec![
            attribute("ce_type", "job.submitted"),
            attribute("content-type", "application/json"),
            attribute("ce_bad", "\u{fffd}x"),
        ],
        offset: 0,
        id: None,
        sent_ms: Some(1_700),
    };
    assert_eq!(messages[0], expected);
    assert_eq!(messages[1].bytes.len(), 10 * 1024 * 1024);
    assert!(messages[2].bytes.is_empty() && messages[2].offset == 2);
    drop(journal);
    wait_until("working", || {
        let seen = health.snapshot();
        (seen.condition == Condition::Working).then_some(()).ok_or_else(|| format!("{seen:?}"))
    });
    Box::new(source).stop();
}

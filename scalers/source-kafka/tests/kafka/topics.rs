//! Topics that change under the reader: trimmed, deleted and made again, widened, not there.
//!
//! Never: a guess at what was lost: each test counts.

use crate::broker::{create, delete, numbers, send, settings, shared, trim, unique, wait_for_empty, widen};
use crate::controller::{TestController, wait_until};
use forebay_source::{Backlog, DurablePositions, Health, Source};
use forebay_source_kafka::KafkaSource;
use std::sync::Arc;

#[test]
fn a_trimmed_log_is_read_from_its_start_and_what_was_missed_is_said() {
    let topic = unique("trimmed");
    create(shared(), &topic, 1);
    send(shared(), &topic, 1, 0..100);
    let (positions, journal, health) = (DurablePositions::default(), Arc::default(), Health::default());
    let controller = TestController::start(1_000, &positions, &journal);
    let source = KafkaSource::start(settings(&topic), controller.handle.clone(), health.clone()).expect("started");
    controller.wait_for(100);
    Box::new(source).stop();
    send(shared(), &topic, 1, 100..200);
    trim(shared(), &topic, 0, 150);
    let source = KafkaSource::start(settings(&topic), controller.handle.clone(), health.clone()).expect("started");
    controller.wait_for(150);
    let expected = [numbers(0..100), numbers(150..200)].concat();
    assert_eq!(controller.journal.lock().unwrap().bodies(&format!("kafka:{topic}/0/0")), expected);
    let seen = health.snapshot();
    assert_eq!(seen.missed, 50, "{seen:?}");
    assert!(seen.remarks.iter().any(|remark| remark.text.contains("retention deleted 50 messages")), "{seen:?}");
    Box::new(source).stop();
}

/// A topic with 100 messages that were read, then deleted and made again with others.
fn made_again(name: &str, running: bool, others: usize) {
    let topic = unique(name);
    create(shared(), &topic, 1);
    send(shared(), &topic, 1, 0..100);
    let (controller, health) = (TestController::new(), Health::default());
    let start = || KafkaSource::start(settings(&topic), controller.handle.clone(), health.clone()).expect("started");
    let mut source = Some(start());
    controller.wait_for(100);
    if !running {
        Box::new(source.take().expect("it runs")).stop();
    }
    delete(shared(), &topic);
    create(shared(), &topic, 1);
    wait_for_empty(shared(), &topic, 0);
    send(shared(), &topic, 1, 1_000..1_000 + others);
    let source = source.unwrap_or_else(start);
    controller.wait_for(100 + others);
    let journal = controller.journal.lock().unwrap();
    assert_eq!(journal.bodies(&format!("kafka:{topic}/0/0")), numbers(0..100));
    assert_eq!(journal.bodies(&format!("kafka:{topic}/0/1")), numbers(1_000..1_000 + others));
    drop(journal);
    let seen = health.snapshot();
    assert!(seen.remarks.iter().any(|remark| remark.text.contains("another log")), "{seen:?}");
    assert_eq!(seen.missed, 0, "{seen:?}");
    Box::new(source).stop();
    // And from there it goes on as one that was never another.
    send(shared(), &topic, 1, 2_000..2_010);
    let source = start();
    controller.wait_for(110 + others);
    let expected = [numbers(1_000..1_000 + others), numbers(2_000..2_010)].concat();
    assert_eq!(controller.journal.lock().unwrap().bodies(&format!("kafka:{topic}/0/1")), expected);
    Box::new(source).stop();
}

#[test]
fn a_topic_made_again_shorter_is_another_log() {
    made_again("shorter", false, 30);
}

#[test]
fn a_topic_made_again_longer_is_another_log() {
    made_again("longer", false, 250);
}

#[test]
fn a_topic_made_again_as_long_is_another_log() {
    made_again("same", false, 100);
}

#[test]
fn a_topic_made_again_shorter_while_it_is_read_is_another_log() {
    made_again("live-shorter", true, 30);
}

#[test]
fn a_topic_made_again_longer_while_it_is_read_is_another_log() {
    made_again("live-longer", true, 250);
}

#[test]
fn new_partitions_are_read_from_their_start_even_by_one_that_came_back() {
    let topic = unique("wider");
    create(shared(), &topic, 1);
    send(shared(), &topic, 1, 0..100);
    let (controller, health) = (TestController::new(), Health::default());
    let start = || KafkaSource::start(settings(&topic), controller.handle.clone(), health.clone()).expect("started");
    let source = start();
    controller.wait_for(100);
    Box::new(source).stop();
    // Back within the session: the group takes it for the member that it was.
    let source = start();
    send(shared(), &topic, 1, 100..110);
    controller.wait_for(110);
    widen(shared(), &topic, 3);
    send(shared(), &topic, 3, 200..500);
    controller.wait_for(410);
    assert_eq!(controller.journal.lock().unwrap().all(), [numbers(0..110), numbers(200..500)].concat());
    Box::new(source).stop();
}

#[test]
fn a_topic_that_is_not_there_is_said_and_read_when_it_comes() {
    let (there, late) = (unique("there"), unique("late"));
    create(shared(), &there, 1);
    let (controller, health) = (TestController::new(), Health::default());
    let mut settings = settings(&there);
    settings.topics.push(late.clone());
    let source = KafkaSource::start(settings, controller.handle.clone(), health.clone()).expect("started");
    wait_until("a remark", || {
        let seen = health.snapshot();
        let unknown = matches!(seen.backlog.get(&late), Some(Backlog::Unknown { why }) if why.contains("create it"));
        unknown.then_some(()).ok_or_else(|| format!("{seen:?}"))
    });
    send(shared(), &there, 1, 0..10);
    controller.wait_for(10);
    create(shared(), &late, 2);
    send(shared(), &late, 2, 10..30);
    controller.wait_for(30);
    assert_eq!(controller.journal.lock().unwrap().all(), numbers(0..30));
    Box::new(source).stop();
}

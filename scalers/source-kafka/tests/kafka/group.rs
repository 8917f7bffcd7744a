//! The group: back-pressure keeps the membership, a second start takes over, another member is reported.
//!
//! Never: more than one controller to a group without a word about it.

use crate::broker::{create, numbers, send, settings, shared, unique};
use crate::controller::{TestController, wait_until};
use forebay_source::{Condition, DurablePositions, Health, Source};
use forebay_source_kafka::KafkaSource;
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[test]
fn without_room_it_waits_within_the_group_and_loses_nothing() {
    let topic = unique("pressure");
    create(shared(), &topic, 2);
    let (positions, journal, health) = (DurablePositions::default(), Arc::default(), Health::default());
    let controller = TestController::start(500, &positions, &journal);
    let mut settings = settings(&topic);
    // One that does not poll is thrown out after this.
    settings.extra.insert("max.poll.interval.ms".to_owned(), "9000".to_owned());
    // Less than the 23 s without room, in which it counts for nothing, and more than a busy machine takes to go on.
    settings.stall_timeout = Duration::from_secs(20);
    let source = KafkaSource::start(settings, controller.handle.clone(), health.clone()).expect("started");
    send(shared(), &topic, 2, 0..100);
    controller.wait_for(100);
    controller.stick(true);
    send(shared(), &topic, 2, 100..20_000);
    wait_until("held back", || {
        let seen = health.snapshot();
        (seen.condition == Condition::HeldBack).then_some(()).ok_or_else(|| format!("{seen:?}"))
    });
    let end = Instant::now() + Duration::from_secs(23);
    while Instant::now() < end {
        assert_eq!(health.snapshot().condition, Condition::HeldBack);
        std::thread::park_timeout(Duration::from_millis(100));
    }
    controller.stick(false);
    controller.wait_for(20_000);
    assert_eq!(controller.journal.lock().unwrap().all(), numbers(0..20_000));
    let seen = health.snapshot();
    assert_eq!(seen.restarts, 0, "{seen:?}");
    Box::new(source).stop();
}

#[test]
fn a_second_start_with_the_same_journal_takes_over_at_once_and_the_first_says_that_it_was_shut_out() {
    let topic = unique("fenced");
    create(shared(), &topic, 2);
    send(shared(), &topic, 2, 0..100);
    let (positions, journal) = (DurablePositions::default(), Arc::default());
    let (first, one) = (TestController::start(1_000, &positions, &journal), Health::default());
    let zombie = KafkaSource::start(settings(&topic), first.handle.clone(), one.clone()).expect("started");
    first.wait_for(100);
    let (second, two) = (TestController::start(1_000, &positions, &journal), Health::default());
    let began = Instant::now();
    let leader = KafkaSource::start(settings(&topic), second.handle.clone(), two.clone()).expect("started");
    wait_until("working", || {
        let seen = two.snapshot();
        (seen.condition == Condition::Working).then_some(()).ok_or_else(|| format!("{seen:?}"))
    });
    assert!(began.elapsed() < Duration::from_millis(8_500), "less than a session of 9 s: {:?}", began.elapsed());
    wait_until("the first to stop", || {
        let seen = one.snapshot();
        let said = seen.remarks.iter().any(|remark| remark.text.contains("another controller with this journal"));
        (said && seen.condition == Condition::Stopped).then_some(()).ok_or_else(|| format!("{seen:?}"))
    });
    send(shared(), &topic, 2, 100..200);
    second.wait_for(200);
    assert_eq!(second.journal.lock().unwrap().all(), numbers(0..200));
    assert_eq!(two.snapshot().restarts, 0);
    Box::new(leader).stop();
    Box::new(zombie).stop();
}

#[test]
fn one_that_was_shut_out_joins_anew_when_nobody_else_is_there() {
    let topic = unique("unfenced");
    create(shared(), &topic, 1);
    let (positions, journal) = (DurablePositions::default(), Arc::default());
    let (controller, health) = (TestController::start(1_000, &positions, &journal), Health::default());
    let source = KafkaSource::start(settings(&topic), controller.handle.clone(), health.clone()).expect("started");
    send(shared(), &topic, 1, 0..10);
    controller.wait_for(10);
    // A member of the same name that goes again: what a broker that lost track leaves behind looks the same.
    let (other, its) = (TestController::start(1_000, &positions, &journal), Health::default());
    let ghost = KafkaSource::start(settings(&topic), other.handle.clone(), its.clone()).expect("started");
    wait_until("shut out", || {
        let seen = health.snapshot();
        let said = matches!(&seen.condition, Condition::Failing { why } if why.contains("fenced by group"));
        said.then_some(()).ok_or_else(|| format!("{seen:?}"))
    });
    Box::new(ghost).stop();
    send(shared(), &topic, 1, 10..20);
    controller.wait_for(20);
    assert_eq!(controller.journal.lock().unwrap().all(), numbers(0..20));
    let seen = health.snapshot();
    assert_eq!(seen.restarts, 1, "{seen:?}");
    assert!(seen.remarks.iter().any(|remark| remark.text.contains("nobody else is in it")), "{seen:?}");
    Box::new(source).stop();
}

#[test]
fn another_member_of_the_group_is_reported() {
    let topic = unique("shared");
    create(shared(), &topic, 4);
    let (controller, health) = (TestController::new(), Health::default());
    let settings = settings(&topic);
    let stranger: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", shared())
        .set("group.id", &settings.group)
        .set("client.id", "stranger")
        .create()
        .expect("a consumer");
    stranger.subscribe(&[&topic]).expect("subscribed");
    let source = KafkaSource::start(settings, controller.handle.clone(), health.clone()).expect("started");
    wait_until("a report", || {
        drop(stranger.poll(Duration::from_millis(50)));
        let seen = health.snapshot();
        let said = matches!(&seen.condition, Condition::Failing { why }
            if why.contains("holds 2 of 4 partitions") && why.contains("stranger") && why.contains("its own group"));
        said.then_some(()).ok_or_else(|| format!("{seen:?}"))
    });
    drop(stranger);
    send(shared(), &topic, 4, 0..40);
    controller.wait_for(40);
    wait_until("working", || {
        let seen = health.snapshot();
        (seen.condition == Condition::Working).then_some(()).ok_or_else(|| format!("{seen:?}"))
    });
    Box::new(source).stop();
}

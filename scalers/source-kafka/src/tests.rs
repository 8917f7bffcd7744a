//! The source against brokers in this process: what needs a hook into the reader, or an error that a real broker will not give.
//!
//! Never: what a real broker can show; that is in tests/kafka.

#[path = "../tests/kafka/controller.rs"]
mod controller;

use crate::{KafkaSettings, KafkaSource};
use controller::{TestController, wait_until};
use forebay_source::{Backlog, Condition, Health, Source};
use rdkafka::ClientConfig;
use rdkafka::mocking::{MockCluster, MockCoordinator};
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer};
use rdkafka::types::RDKafkaRespErr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

type Cluster = MockCluster<'static, DefaultProducerContext>;

fn cluster() -> Cluster {
    let cluster = MockCluster::new(1).expect("brokers in this process");
    cluster.create_topic("jobs", 2, 1).expect("a topic");
    cluster
}

fn settings(cluster: &Cluster) -> KafkaSettings {
    KafkaSettings {
        brokers: cluster.bootstrap_servers(),
        topics: vec!["jobs".to_owned()],
        stall_timeout: Duration::from_secs(30),
        watch_interval: Duration::from_millis(200),
        ..KafkaSettings::default()
    }
}

/// For what is about stalls alone: on a busy machine any reader may stand still so long.
fn soon_stalled(cluster: &Cluster) -> KafkaSettings {
    KafkaSettings { stall_timeout: Duration::from_millis(600), ..settings(cluster) }
}

fn send(cluster: &Cluster, bodies: std::ops::Range<usize>) {
    let producer: BaseProducer =
        ClientConfig::new().set("bootstrap.servers", cluster.bootstrap_servers()).create().expect("a producer");
    for n in bodies {
        let body = format!("{n:06}");
        let record = BaseRecord::<str, str>::to("jobs").payload(&body).partition(i32::from(n % 2 == 1));
        producer.send(record).expect("queued");
    }
    producer.flush(Duration::from_secs(10)).expect("sent");
}

fn numbers(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|n| format!("{n:06}")).collect()
}

fn wait_for(health: &Health, condition: &Condition) {
    wait_until(&format!("{condition:?}"), || {
        let seen = health.snapshot();
        (seen.condition == *condition).then_some(()).ok_or_else(|| format!("{seen:?}"))
    });
}

#[test]
fn messages_come_with_their_offsets_and_the_backlog_goes_to_zero() {
    let (cluster, controller, health) = (cluster(), TestController::new(), Health::default());
    let source = KafkaSource::start(settings(&cluster), controller.handle.clone(), health.clone()).expect("started");
    send(&cluster, 0..1_000);
    controller.wait_for(1_000);
    let journal = controller.journal.lock().unwrap();
    assert_eq!(journal.all(), numbers(0..1_000));
    let offsets: Vec<u64> = journal.messages["kafka:jobs/1/0"].iter().map(|message| message.offset).collect();
    assert_eq!(offsets, (0..500).collect::<Vec<_>>());
    drop(journal);
    wait_until("no backlog", || {
        let seen = health.snapshot();
        let none = ["jobs/0", "jobs/1"].map(|one| seen.backlog.get(one) == Some(&Backlog::Known(0)));
        (none == [true, true]).then_some(()).ok_or_else(|| format!("{seen:?}"))
    });
    wait_for(&health, &Condition::Working);
    Box::new(source).stop();
    assert_eq!(health.snapshot().condition, Condition::Stopped);
    assert_eq!(health.snapshot().restarts, 0);
}

#[test]
fn a_consumer_that_hangs_is_recreated() {
    let (cluster, controller, health) = (cluster(), TestController::new(), Health::default());
    let source =
        KafkaSource::start(soon_stalled(&cluster), controller.handle.clone(), health.clone()).expect("started");
    send(&cluster, 0..100);
    controller.wait_for(100);
    source.shared().frozen.store(true, Ordering::Relaxed);
    send(&cluster, 100..300);
    controller.wait_for(300);
    assert_eq!(controller.journal.lock().unwrap().all(), numbers(0..300));
    let seen = health.snapshot();
    assert!(seen.restarts >= 1, "{seen:?}");
    assert!(seen.remarks.iter().any(|remark| remark.text.contains("it is recreated")), "{seen:?}");
    Box::new(source).stop();
}

#[test]
fn a_reader_that_panics_is_restarted() {
    let (cluster, controller, health) = (cluster(), TestController::new(), Health::default());
    let source = KafkaSource::start(settings(&cluster), controller.handle.clone(), health.clone()).expect("started");
    send(&cluster, 0..100);
    controller.wait_for(100);
    source.shared().panics.store(true, Ordering::Relaxed);
    wait_until("a restart", || {
        let seen = health.snapshot();
        let said = seen.remarks.iter().any(|remark| remark.text.contains("panicked"));
        (said && seen.restarts == 1).then_some(()).ok_or_else(|| format!("{seen:?}"))
    });
    send(&cluster, 100..200);
    controller.wait_for(200);
    assert_eq!(controller.journal.lock().unwrap().all(), numbers(0..200));
    assert_eq!(health.snapshot().restarts, 1);
    Box::new(source).stop();
}

#[test]
fn a_reader_that_is_idle_is_left_alone() {
    let (cluster, controller, health) = (cluster(), TestController::new(), Health::default());
    let source =
        KafkaSource::start(soon_stalled(&cluster), controller.handle.clone(), health.clone()).expect("started");
    send(&cluster, 0..10);
    controller.wait_for(10);
    // Ten rounds of the watch and three times the stall.
    let end = Instant::now() + Duration::from_secs(2);
    while Instant::now() < end {
        std::thread::park_timeout(Duration::from_millis(100));
        assert_eq!(health.snapshot().restarts, 0, "{:?}", health.snapshot());
    }
    send(&cluster, 10..20);
    controller.wait_for(20);
    Box::new(source).stop();
}

#[test]
fn without_responses_the_backlog_is_unknown_and_a_stop_does_not_wait() {
    let (cluster, controller, health) = (cluster(), TestController::new(), Health::default());
    let source = KafkaSource::start(settings(&cluster), controller.handle.clone(), health.clone()).expect("started");
    send(&cluster, 0..10);
    controller.wait_for(10);
    cluster.broker_down(-1).expect("down");
    wait_until("an unknown backlog", || {
        let seen = health.snapshot();
        let unknown = matches!(seen.backlog.get("jobs/0"), Some(Backlog::Unknown { .. }));
        let failing =
            matches!(&seen.condition, Condition::Failing { why } if why.contains("check that the brokers run"));
        (unknown && failing).then_some(()).ok_or_else(|| format!("{seen:?}"))
    });
    cluster.broker_up(-1).expect("up");
    wait_for(&health, &Condition::Working);
    send(&cluster, 10..20);
    controller.wait_for(20);
    cluster.broker_down(-1).expect("down");
    let began = Instant::now();
    Box::new(source).stop();
    assert!(began.elapsed() < Duration::from_secs(10), "stopping took {:?}", began.elapsed());
}

#[test]
fn a_broker_that_is_away_keeps_no_partition_of_another_from_being_read() {
    let cluster = MockCluster::new(2).expect("brokers in this process");
    cluster.create_topic("jobs", 2, 1).expect("a topic");
    cluster.coordinator(MockCoordinator::Group("forebay".to_owned()), 2).expect("a coordinator");
    for (partition, broker) in [(0, 1), (1, 2)] {
        cluster.partition_leader("jobs", partition, Some(broker)).expect("a leader");
    }
    send(&cluster, 0..20);
    cluster.broker_down(1).expect("down");
    let (controller, health) = (TestController::new(), Health::default());
    let source = KafkaSource::start(settings(&cluster), controller.handle.clone(), health.clone()).expect("started");
    controller.wait_for(10);
    let read = controller.journal.lock().unwrap().all();
    assert_eq!(read, (0..20).filter(|n| n % 2 == 1).map(|n| format!("{n:06}")).collect::<Vec<_>>());
    wait_until("the backlog of what is read", || {
        let seen = health.snapshot();
        let unknown = matches!(seen.backlog.get("jobs/0"), Some(Backlog::Unknown { .. }));
        let known = seen.backlog.get("jobs/1") == Some(&Backlog::Known(0));
        (unknown && known).then_some(()).ok_or_else(|| format!("{seen:?}"))
    });
    cluster.broker_up(1).expect("up");
    controller.wait_for(20);
    assert_eq!(controller.journal.lock().unwrap().all(), numbers(0..20));
    Box::new(source).stop();
}

#[test]
fn a_topic_without_permission_hides_neither_the_backlog_nor_a_stall_of_another() {
    let cluster = cluster();
    cluster.create_topic("denied", 1, 1).expect("a topic");
    cluster.topic_error("denied", RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED).expect("denied");
    let (controller, health) = (TestController::new(), Health::default());
    let topics = vec!["denied".to_owned(), "jobs".to_owned()];
    let settings = KafkaSettings { topics, ..soon_stalled(&cluster) };
    let source = KafkaSource::start(settings, controller.handle.clone(), health.clone()).expect("started");
    send(&cluster, 0..100);
    controller.wait_for(100);
    wait_until("the backlog of the other one", || {
        let seen = health.snapshot();
        let unknown = matches!(seen.backlog.get("denied"), Some(Backlog::Unknown { why }) if why.contains("Describe"));
        let known = seen.backlog.get("jobs/0") == Some(&Backlog::Known(0));
        (unknown && known).then_some(()).ok_or_else(|| format!("{seen:?}"))
    });
    source.shared().frozen.store(true, Ordering::Relaxed);
    send(&cluster, 100..300);
    controller.wait_for(300);
    assert!(health.snapshot().restarts >= 1, "{:?}", health.snapshot());
    Box::new(source).stop();
}

#[test]
fn a_controller_that_stops_ends_the_source() {
    let (cluster, controller, health) = (cluster(), TestController::new(), Health::default());
    let source = KafkaSource::start(settings(&cluster), controller.handle.clone(), health.clone()).expect("started");
    send(&cluster, 0..10);
    controller.wait_for(10);
    drop(controller);
    wait_for(&health, &Condition::Stopped);
    Box::new(source).stop();
}

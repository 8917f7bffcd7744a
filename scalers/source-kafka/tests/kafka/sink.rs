//! The sink: each note once and in order, and what is too large refused by its number.
//!
//! Never: a broker that ends; that is in restarts.

use crate::broker::{create, create_with, read_all, shared, unique};
use forebay_source::{OutgoingMessage, Sink, SinkError};
use forebay_source_kafka::{KafkaSettings, KafkaSink};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

pub fn message(number: u64, key: &str) -> OutgoingMessage {
    OutgoingMessage {
        number,
        id: format!("id-{number}"),
        key: key.to_owned(),
        kind: "status.queued".to_owned(),
        bytes: format!("{number}").into_bytes(),
    }
}

fn settings() -> KafkaSettings {
    KafkaSettings { brokers: shared().to_owned(), ..KafkaSettings::default() }
}

#[test]
fn notes_come_once_and_in_the_order_of_their_keys() {
    let topic = unique("status");
    create(shared(), &topic, 3);
    let mut sink = KafkaSink::new(settings(), &topic).expect("a sink");
    assert_eq!(sink.name(), format!("kafka:{topic}"));
    for batch in 0..20_u64 {
        let notes: Vec<OutgoingMessage> =
            (batch * 100..(batch + 1) * 100).map(|n| message(n, &format!("job-{}", n % 7))).collect();
        sink.send(&notes).expect("sent");
    }
    sink.send(&[]).expect("nothing to send is no error");
    let read = read_all(shared(), &topic, 3, 2_000);
    assert_eq!(read.len(), 2_000);
    let mut by_key: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for (_, key, body) in read {
        by_key.entry(key).or_default().push(String::from_utf8(body).expect("text").parse().expect("a number"));
    }
    for (key, numbers) in by_key {
        let first: u64 = key.strip_prefix("job-").expect("a key").parse().expect("a number");
        assert_eq!(numbers, (first..2_000).step_by(7).collect::<Vec<_>>(), "{key}");
    }
}

#[test]
fn a_note_alone_is_acknowledged_soon() {
    let topic = unique("soon");
    create(shared(), &topic, 1);
    let mut sink = KafkaSink::new(settings(), &topic).expect("a sink");
    sink.send(&[message(0, "job")]).expect("sent");
    let mut took: Vec<Duration> = (1..11)
        .map(|n| {
            let began = Instant::now();
            sink.send(&[message(n, "job")]).expect("sent");
            began.elapsed()
        })
        .collect();
    took.sort();
    // One that the machine held up says nothing of the sink.
    assert!(took[5] < Duration::from_secs(1), "ten took {took:?}");
}

#[test]
fn a_note_that_the_topic_never_takes_is_refused_by_its_number_and_the_others_may_go() {
    let topic = unique("small");
    create_with(shared(), &topic, 1, &[("max.message.bytes", "20000")]);
    let mut sink = KafkaSink::new(settings(), &topic).expect("a sink");
    assert_eq!(sink.max_bytes(), 20_000 - 1_024);
    // Random, so that it does not become small on the way.
    let mut state = 1_u32;
    let noise = |len: usize| -> Vec<u8> {
        (0..len)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                state.to_be_bytes()[0]
            })
            .collect()
    };
    let mut noise = noise;
    let large = |number, bytes| OutgoingMessage { bytes, ..message(number, "job") };
    let batch = [message(1, "job"), large(2, noise(19_500)), message(3, "job")];
    match sink.send(&batch) {
        Err(SinkError::Refused { number: 2, why }) => assert!(why.contains("max.message.bytes"), "{why}"),
        other => panic!("{other:?}"),
    }
    // As large as it may be, and many that are larger than the limit together.
    let most = sink.max_bytes() - "job".len();
    let fits: Vec<OutgoingMessage> = (0..10).map(|n| large(n, noise(most))).collect();
    sink.send(&fits).expect("sent");
    assert_eq!(read_all(shared(), &topic, 1, 10).len(), 10, "nothing of the refused batch was sent");
}

#[test]
fn a_topic_that_is_not_there_passes() {
    let mut sink = KafkaSink::new(settings(), "nowhere-yet").expect("a sink");
    match sink.send(&[message(1, "job")]) {
        Err(SinkError::Transient { why }) => assert!(why.contains("nowhere-yet") && why.contains("create it"), "{why}"),
        other => panic!("{other:?}"),
    }
    create(shared(), "nowhere-yet", 1);
    crate::controller::wait_until("the topic to be found", || {
        sink.send(&[message(1, "job")]).map_err(|e| e.to_string())
    });
}

#[test]
fn a_broker_that_does_not_answer_passes() {
    let away = KafkaSettings { brokers: "127.0.0.1:1".to_owned(), ..KafkaSettings::default() };
    let mut sink = KafkaSink::new(away, "status").expect("a sink");
    let began = Instant::now();
    match sink.send(&[message(1, "job")]) {
        Err(SinkError::Transient { why }) => assert!(why.contains("check that the brokers run"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert!(began.elapsed() < Duration::from_secs(12), "{:?}", began.elapsed());
}

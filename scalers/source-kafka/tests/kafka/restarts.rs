//! A broker that is killed and comes back, under a source and a sink at work.
//!
//! Never: the broker that other tests share.

use crate::broker::{create, numbers, read_all, send, start};
use crate::controller::{TestController, wait_until};
use crate::sink::message;
use forebay_parts::KafkaOptions;
use forebay_source::{Condition, Health, Sink, Source};
use forebay_source_kafka::{KafkaSettings, KafkaSink, KafkaSource};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[test]
fn a_broker_that_is_killed_and_comes_back_costs_neither_letters_nor_notes() {
    let mut kafka = start(KafkaOptions::default());
    let brokers = kafka.bootstrap().to_owned();
    create(&brokers, "jobs", 2);
    create(&brokers, "status", 1);
    send(&brokers, "jobs", 2, 0..5_000);
    let settings = KafkaSettings {
        brokers: brokers.clone(),
        instance: Some("journal".to_owned()),
        topics: vec!["jobs".to_owned()],
        watch_interval: Duration::from_millis(500),
        ..KafkaSettings::default()
    };
    let (controller, health) = (TestController::new(), Health::default());
    let source = KafkaSource::start(settings.clone(), controller.handle.clone(), health.clone()).expect("started");
    controller.wait_for(5_000);
    let (done, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let writer = {
        let (done, sent) = (Arc::clone(&done), Arc::clone(&sent));
        std::thread::spawn(move || write(settings, &done, &sent))
    };
    let notes_after = |before: u64| {
        wait_until("notes", || {
            let now = sent.load(Ordering::Acquire);
            (now > before).then_some(()).ok_or_else(|| format!("{now} notes"))
        });
    };
    notes_after(200);
    kafka.kill().expect("killed");
    wait_until("failing", || {
        let seen = health.snapshot();
        matches!(seen.condition, Condition::Failing { .. }).then_some(()).ok_or_else(|| format!("{seen:?}"))
    });
    kafka.restart().expect("restarted");
    send(&brokers, "jobs", 2, 5_000..10_000);
    controller.wait_for(10_000);
    notes_after(sent.load(Ordering::Acquire) + 200);
    done.store(true, Ordering::Release);
    let failures = writer.join().expect("the writer");
    let sent = sent.load(Ordering::Acquire);
    assert_eq!(controller.journal.lock().unwrap().all(), numbers(0..10_000));
    wait_until("working", || {
        let seen = health.snapshot();
        (seen.condition == Condition::Working).then_some(()).ok_or_else(|| format!("{seen:?}"))
    });
    Box::new(source).stop();
    let read = read_all(&brokers, "status", 1, usize::try_from(sent).expect("small"));
    // Each in order; a batch that failed may be there twice, in whole or in part, since all of it was sent again.
    let mut next = 0;
    let mut again = 0;
    for (_, _, body) in &read {
        let n: u64 = String::from_utf8_lossy(body).parse().expect("a number");
        assert!(n <= next, "{n} came before {next}");
        again += u64::from(n < next);
        next = next.max(n + 1);
    }
    assert_eq!(next, sent);
    assert!(again <= failures * 50, "{again} again after {failures} failures");
}

/// Sends notes of 50 until it is done. How many batches failed.
fn write(settings: KafkaSettings, done: &AtomicBool, sent: &AtomicU64) -> u64 {
    let mut sink = KafkaSink::new(settings, "status").expect("a sink");
    let mut failures = 0;
    while !done.load(Ordering::Acquire) {
        let from = sent.load(Ordering::Acquire);
        let notes: Vec<_> = (from..from + 50).map(|n| message(n, "job")).collect();
        let began = Instant::now();
        match sink.send(&notes) {
            Ok(()) => sent.store(from + 50, Ordering::Release),
            Err(error) => {
                failures += 1;
                assert!(error.to_string().contains("topic status"), "{error}");
            }
        }
        assert!(began.elapsed() < Duration::from_secs(12), "{:?}", began.elapsed());
    }
    failures
}

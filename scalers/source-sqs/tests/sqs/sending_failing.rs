//! Sending while the service fails.

use crate::sending::message;
use crate::support::{runtime, settings};
use forebay_parts::sqs_stub::{Stub, StubResponse, batch};
use forebay_source::{OutgoingMessage, Sink, SinkError};
use forebay_source_sqs::SqsSink;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

fn number(entry: &Value) -> u64 {
    let body: Value = serde_json::from_str(entry["MessageBody"].as_str().expect("a body")).expect("JSON");
    body["id"].as_u64().expect("a number")
}

fn batches(stub: &Stub) -> Vec<Vec<u64>> {
    let calls = stub.calls("SendMessageBatch");
    calls.iter().map(|call| call["Entries"].as_array().expect("entries").iter().map(number).collect()).collect()
}

#[test]
fn what_failed_is_sent_again_before_what_follows_it_in_its_key() {
    let tries = AtomicU32::new(0);
    let stub = Stub::start(move |action, body| {
        let first = action == "SendMessageBatch" && tries.fetch_add(1, Ordering::Relaxed) == 0;
        first.then(|| StubResponse::Good(batch(body, |entry| (number(entry) == 1).then_some((false, "InternalError")))))
    });
    let runtime = runtime();
    let mut sink = SqsSink::new(settings(&stub.endpoint, &[]), "out.fifo", runtime.handle().clone()).expect("a sink");
    let messages: Vec<OutgoingMessage> =
        [(1, "a"), (2, "b"), (3, "a"), (4, "a")].map(|(n, key)| message(n, key, "x")).to_vec();
    sink.send(&messages).expect("sent");
    assert_eq!(batches(&stub), [vec![1, 2], vec![1], vec![3], vec![4]]);
    let ids: Vec<Value> = stub.calls("SendMessageBatch")[..2].iter().map(|call| call["Entries"][0].clone()).collect();
    assert_eq!(ids[0]["MessageDeduplicationId"], ids[1]["MessageDeduplicationId"], "the same id when it is sent again");
    assert_eq!(ids[0]["MessageGroupId"].as_str().map(str::len), Some(64));
}

#[test]
fn on_a_standard_queue_only_the_failed_ones_are_sent_again() {
    let tries = AtomicU32::new(0);
    let stub = Stub::start(move |action, body| {
        let first = action == "SendMessageBatch" && tries.fetch_add(1, Ordering::Relaxed) == 0;
        first.then(|| {
            StubResponse::Good(batch(body, |entry| number(entry).is_multiple_of(4).then_some((false, "InternalError"))))
        })
    });
    let runtime = runtime();
    let mut sink = SqsSink::new(settings(&stub.endpoint, &[]), "out", runtime.handle().clone()).expect("a sink");
    let messages: Vec<OutgoingMessage> = (1..=12).map(|n| message(n, "a", "x")).collect();
    sink.send(&messages).expect("sent");
    assert_eq!(batches(&stub), [(1..=10).collect::<Vec<_>>(), vec![4, 8, 11, 12]]);
}

#[test]
fn a_message_that_is_never_accepted_is_named() {
    let stub = Stub::start(|action, body| {
        let fails = |entry: &Value| (number(entry) == 3).then_some((true, "InvalidMessageContents"));
        (action == "SendMessageBatch").then(|| StubResponse::Good(batch(body, fails)))
    });
    let runtime = runtime();
    let mut sink = SqsSink::new(settings(&stub.endpoint, &[]), "out", runtime.handle().clone()).expect("a sink");
    let messages: Vec<OutgoingMessage> = (1..=5).map(|n| message(n, "a", "x")).collect();
    assert!(matches!(sink.send(&messages), Err(SinkError::Refused { number: 3, .. })));
}

#[test]
fn a_first_message_may_be_as_large_as_the_queue_allows() {
    for (limit, fits) in [("1048576", true), ("262144", false)] {
        let stub = Stub::start(move |action, _| {
            let attributes = json!({ "Attributes": { "MaximumMessageSize": limit } });
            (action == "GetQueueAttributes").then_some(StubResponse::Good(attributes))
        });
        let runtime = runtime();
        let mut sink = SqsSink::new(settings(&stub.endpoint, &[]), "out", runtime.handle().clone()).expect("a sink");
        let messages = [message(1, "a", &"x".repeat(500_000))];
        assert!(messages[0].bytes.len() <= sink.max_bytes(), "it is not cut before the limit is known");
        let sent = sink.send(&messages);
        if fits {
            sent.expect("sent");
        } else {
            assert!(matches!(&sent, Err(SinkError::Transient { why }) if why.contains(limit)), "{sent:?}");
        }
        assert_eq!(messages[0].bytes.len() <= sink.max_bytes(), fits, "what is sent next is prepared for it");
        assert_eq!(batches(&stub), if fits { vec![vec![1]] } else { Vec::new() });
    }
}

#[test]
fn a_batch_that_is_refused_whole_is_sent_one_by_one() {
    let stub = Stub::start(|action, body| {
        let entries = body["Entries"].as_array().map_or(0, Vec::len);
        (action == "SendMessageBatch" && entries > 1).then_some(StubResponse::Bad(
            400,
            "BatchRequestTooLong",
            "too long",
        ))
    });
    let runtime = runtime();
    let mut sink = SqsSink::new(settings(&stub.endpoint, &[]), "out", runtime.handle().clone()).expect("a sink");
    sink.send(&[message(1, "a", "x"), message(2, "a", "x")]).expect("sent");
    assert_eq!(batches(&stub), [vec![1, 2], vec![1], vec![2]]);
}

#[test]
fn a_transient_failure_is_retried_within_bounds_and_one_for_an_operator_is_reported_at_once() {
    for (code, remedy, longest) in
        [("RequestThrottled", "retried after", 10), ("AccessDenied", "allow sqs:SendMessage on", 3)]
    {
        let stub =
            Stub::start(move |action, _| (action == "SendMessageBatch").then_some(StubResponse::Bad(400, code, "no")));
        let runtime = runtime();
        let mut slow = settings(&stub.endpoint, &[]);
        slow.timings.longest_delay = Duration::from_secs(20);
        let mut sink = SqsSink::new(slow, "out", runtime.handle().clone()).expect("a sink");
        let began = Instant::now();
        let error = sink.send(&[message(1, "a", "x")]).expect_err("not sent");
        assert!(matches!(&error, SinkError::Transient { why } if why.contains(remedy)), "{error}");
        assert!(began.elapsed() < Duration::from_secs(longest), "{:?}", began.elapsed());
    }
}

#[test]
fn what_was_accepted_before_a_failure_is_not_sent_again() {
    let tries = AtomicU32::new(0);
    let stub = Stub::start(move |action, _| {
        let second = action == "SendMessageBatch" && tries.fetch_add(1, Ordering::Relaxed) == 1;
        second.then_some(StubResponse::Bad(403, "AccessDenied", "no"))
    });
    let runtime = runtime();
    let mut sink = SqsSink::new(settings(&stub.endpoint, &[]), "out", runtime.handle().clone()).expect("a sink");
    let messages: Vec<OutgoingMessage> = (1..=12).map(|n| message(n, "a", "x")).collect();
    assert!(matches!(sink.send(&messages), Err(SinkError::Transient { .. })));
    sink.send(&messages[..4]).expect("they are there already");
    sink.send(&messages[4..]).expect("sent");
    sink.send(&messages[10..]).expect("sent again, as after a crash");
    assert_eq!(batches(&stub), [(1..=10).collect::<Vec<_>>(), vec![11, 12], vec![11, 12], vec![11, 12]]);
}

#[test]
fn a_slow_queue_gets_all_of_many_messages() {
    let stub = Stub::start(|action, _| {
        if action == "SendMessageBatch" {
            std::thread::park_timeout(Duration::from_millis(100));
        }
        None
    });
    let runtime = runtime();
    let mut short = settings(&stub.endpoint, &[]);
    short.timings.send_within = Duration::from_secs(2);
    let mut sink = SqsSink::new(short, "out.fifo", runtime.handle().clone()).expect("a sink");
    // All of one key: one a batch.
    let messages: Vec<OutgoingMessage> = (1..=40).map(|n| message(n, "a", "x")).collect();
    let first = sink.send(&messages).expect_err("there is no time for all of them");
    assert!(matches!(&first, SinkError::Transient { why } if why.contains("of 40 messages were accepted")), "{first}");
    assert!((0..40).any(|_| sink.send(&messages).is_ok()), "each call sends some more");
    let mut sent: Vec<u64> = batches(&stub).concat();
    // One whose answer came too late is sent again.
    sent.dedup();
    assert_eq!(sent, (1..=40).collect::<Vec<_>>());
}

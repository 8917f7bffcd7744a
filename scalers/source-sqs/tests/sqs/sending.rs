//! Sending to a real LocalStack.

use crate::support::{Admin, settings};
use aws_sdk_sqs::types::{MessageSystemAttributeName, QueueAttributeName};
use forebay_source::{OutgoingMessage, Sink, SinkError};
use forebay_source_sqs::SqsSink;

pub fn message(number: u64, key: &str, text: &str) -> OutgoingMessage {
    let bytes = serde_json::json!({ "specversion": "1.0", "id": number, "data": text }).to_string().into_bytes();
    OutgoingMessage {
        number,
        id: format!("message {number}"),
        key: key.to_owned(),
        kind: "status.queued".into(),
        bytes,
    }
}

fn sink(admin: &Admin, queue: &str) -> SqsSink {
    SqsSink::new(settings(admin.endpoint(), &[]), queue, admin.runtime.handle().clone()).expect("settings that can be")
}

fn number_of(body: &str) -> u64 {
    let value: serde_json::Value = serde_json::from_str(body).expect("JSON");
    value["id"].as_u64().expect("a number")
}

#[test]
fn a_fifo_queue_has_each_message_once_and_in_the_order_of_its_key() {
    let admin = Admin::new();
    let url = admin.create("status.fifo", &[]);
    let messages: Vec<OutgoingMessage> = (1..=30).map(|n| message(n, &format!("tenant/job {}", n % 3), "x")).collect();
    let mut sink = sink(&admin, "status.fifo");
    assert_eq!(sink.name(), "sqs:status.fifo");
    sink.send(&messages).expect("sent");
    // As after a crash before the cursor was written.
    sink.send(&messages).expect("sent again");
    let messages = admin.drain(&url, 30);
    assert_eq!(admin.count(&url), (0, 0), "the second copies were dropped");
    let group = |message: &aws_sdk_sqs::types::Message| {
        message.attributes.as_ref().expect("some")[&MessageSystemAttributeName::MessageGroupId].clone()
    };
    for key in 0..3 {
        let of_key: Vec<&_> = messages.iter().filter(|m| number_of(m.body().unwrap_or_default()) % 3 == key).collect();
        let numbers: Vec<u64> = of_key.iter().map(|m| number_of(m.body().unwrap_or_default())).collect();
        assert_eq!(numbers, (1..=30).filter(|n| n % 3 == key).collect::<Vec<_>>());
        assert!(of_key.iter().all(|message| group(message) == group(of_key[0])));
    }
}

#[test]
fn batches_of_mixed_sizes_arrive_and_say_what_they_are() {
    let admin = Admin::new();
    let url = admin.create("status", &[]);
    let sizes = [1, 100_000, 200_000, 5, 250_000, 1, 1, 1, 120_000, 120_000, 120_000, 7, 9, 11];
    let messages: Vec<OutgoingMessage> = (1..).zip(sizes).map(|(n, size)| message(n, "a", &"x".repeat(size))).collect();
    let mut sink = sink(&admin, "status");
    sink.send(&messages).expect("sent");
    let messages = admin.drain(&url, messages.len());
    for message in &messages {
        let attributes = message.message_attributes.as_ref().expect("attributes");
        assert_eq!(attributes["content-type"].string_value(), Some("application/cloudevents+json"));
        assert_eq!(attributes["ce_type"].string_value(), Some("status.queued"));
    }
    let mut numbers: Vec<u64> = messages.iter().map(|m| number_of(m.body().unwrap_or_default())).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=14).collect::<Vec<_>>());
}

#[test]
fn a_text_with_odd_characters_arrives_as_it_was() {
    let admin = Admin::new();
    let url = admin.create("odd", &[]);
    let text = "\u{0}\u{1}\u{8}\t\u{b}\u{1f}\u{7f}\u{e9}\u{fffe}\u{ffff}\u{1f600}\u{10ffff}";
    sink(&admin, "odd").send(&[message(1, "a", text)]).expect("sent");
    let message = admin.drain(&url, 1).remove(0);
    let value: serde_json::Value = serde_json::from_str(message.body().unwrap_or_default()).expect("JSON");
    assert_eq!(value["data"], text);
}

#[test]
fn a_message_that_the_queue_does_not_accept_is_named_by_its_number() {
    let admin = Admin::new();
    let url = admin.create("small", &[(QueueAttributeName::MaximumMessageSize, "2048")]);
    let mut sink = sink(&admin, "small");
    let messages = [message(4, "a", "x"), message(5, "a", &"x".repeat(2048)), message(6, "a", "x")];
    let first = sink.send(&messages).expect_err("the queue's limit was not known");
    assert!(matches!(&first, SinkError::Transient { why } if why.contains("2048")), "{first}");
    let refused = sink.send(&messages).expect_err("one is too large");
    assert!(matches!(&refused, SinkError::Refused { number: 5, why } if why.contains("2048")), "{refused}");
    assert_eq!(sink.max_bytes(), 2048 - 512);
    assert_eq!(admin.count(&url), (0, 0));
    let largest = message(5, "a", &"x".repeat(sink.max_bytes() - 60));
    assert!(largest.bytes.len() <= sink.max_bytes());
    sink.send(&[largest]).expect("what fits is sent");
    admin.drain(&url, 1);
}

#[test]
fn a_queue_that_is_not_there_is_waited_for() {
    let admin = Admin::new();
    let mut sink = sink(&admin, "later");
    let error = sink.send(&[message(1, "a", "x")]).expect_err("not there");
    assert!(matches!(&error, SinkError::Transient { why } if why.contains("create the queue")), "{error}");
    let url = admin.create("later", &[]);
    sink.send(&[message(1, "a", "x")]).expect("sent");
    admin.drain(&url, 1);
}

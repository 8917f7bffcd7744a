//! Receiving while the service fails: what LocalStack cannot do.

use crate::support::{bodies, durable, settings, start, until};
use forebay_parts::sqs_stub::{Stub, StubResponse, batch};
use forebay_source::{Backlog, Condition};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

fn handles(call: &Value) -> Vec<&str> {
    call["Entries"].as_array().into_iter().flatten().filter_map(|entry| entry["ReceiptHandle"].as_str()).collect()
}

fn one_receiver(stub: &Stub) -> forebay_source_sqs::SqsSettings {
    let mut settings = settings(&stub.endpoint, &["jobs"]);
    settings.receivers = 1;
    settings.timings.poll_wait = Duration::ZERO;
    settings
}

#[test]
fn only_what_was_not_deleted_is_deleted_again() {
    let tries = AtomicU32::new(0);
    let stub = Stub::start(move |action, body| {
        let first = action == "DeleteMessageBatch" && tries.fetch_add(1, Ordering::Relaxed) == 0;
        let fails = |entry: &Value| (entry["ReceiptHandle"] == "handle-b").then_some((false, "InternalError"));
        first.then(|| StubResponse::Good(batch(body, fails)))
    });
    stub.put(&["a", "b", "c"]);
    let mut running = start(one_receiver(&stub), 50);
    running.take(3);
    until("a second try", || stub.calls("DeleteMessageBatch").len() == 2);
    let calls = stub.calls("DeleteMessageBatch");
    assert_eq!(handles(&calls[0]), ["handle-a", "handle-b", "handle-c"]);
    assert_eq!(handles(&calls[1]), ["handle-b"]);
    running.stop();
    assert!(running.health.snapshot().remarks.is_empty());
}

#[test]
fn what_cannot_be_deleted_is_reported_after_a_few_attempts() {
    let stub = Stub::start(|action, body| {
        (action == "DeleteMessageBatch").then(|| StubResponse::Good(batch(body, |_| Some((false, "InternalError")))))
    });
    stub.put(&["a"]);
    let mut running = start(one_receiver(&stub), 50);
    running.take(1);
    until("a remark", || {
        let remarks = running.health.snapshot().remarks;
        remarks.iter().any(|remark| {
            let text = &remark.text;
            text.contains("1 messages are durable and could not be deleted") && text.contains("InternalError")
        })
    });
    assert_eq!(stub.calls("DeleteMessageBatch").len(), 6);
    stub.put(&["b"]);
    assert_eq!(running.take(1)[0].0, "b", "the next is received");
}

#[test]
fn a_handle_that_is_no_good_is_not_tried_again() {
    let stub = Stub::start(|action, body| {
        (action == "DeleteMessageBatch")
            .then(|| StubResponse::Good(batch(body, |_| Some((true, "ReceiptHandleIsInvalid")))))
    });
    stub.put(&["a"]);
    let mut running = start(one_receiver(&stub), 50);
    running.take(1);
    until("a remark", || {
        running.health.snapshot().remarks.iter().any(|remark| remark.text.contains("cannot be deleted"))
    });
    running.stop();
    assert_eq!(stub.calls("DeleteMessageBatch").len(), 1);
}

#[test]
fn without_permission_to_delete_messages_stay_hidden_until_it_is_given() {
    let allowed = Arc::new(AtomicBool::new(false));
    let shared = Arc::clone(&allowed);
    let stub = Stub::start(move |action, _| {
        let denied = action == "DeleteMessageBatch" && !shared.load(Ordering::Relaxed);
        denied.then_some(StubResponse::Bad(403, "AccessDenied", "not authorized to perform: sqs:deletemessage"))
    });
    stub.put(&["a", "b"]);
    let mut running = start(one_receiver(&stub), 50);
    running.take(2);
    running.wait_for_condition("a permission is missing", |condition| {
        matches!(condition, Condition::Failing { why } if why.contains("allow sqs:DeleteMessage on the queue"))
    });
    until("they are kept hidden", || stub.calls("ChangeMessageVisibilityBatch").len() >= 2);
    assert_eq!(handles(&stub.calls("ChangeMessageVisibilityBatch")[1]), ["handle-a", "handle-b"]);
    allowed.store(true, Ordering::Relaxed);
    running.wait_for_condition("it works", |condition| *condition == Condition::Working);
}

#[test]
fn throttled_and_broken_answers_pass() {
    let tries = AtomicU32::new(0);
    let stub = Stub::start(move |action, _| match (action, tries.load(Ordering::Relaxed)) {
        ("ReceiveMessage", 0..4) => Some(match tries.fetch_add(1, Ordering::Relaxed) {
            0 => StubResponse::Bad(400, "RequestThrottled", "too many"),
            1 => StubResponse::Bad(503, "ServiceUnavailable", "later"),
            2 => StubResponse::Bad(403, "ExpiredToken", "expired"),
            _ => StubResponse::Bad(500, "InternalError", "oops"),
        }),
        _ => None,
    });
    stub.put(&["a"]);
    let mut slow = one_receiver(&stub);
    // Each state is looked for while it lasts.
    slow.timings.first_delay = Duration::from_secs(2);
    slow.timings.longest_delay = Duration::from_secs(2);
    let mut running = start(slow, 50);
    running.wait_for_condition(
        "it says so",
        |c| matches!(c, Condition::Failing { why } if why.contains("RequestThrottled: too many")),
    );
    running.wait_for_condition(
        "what helps",
        |c| matches!(c, Condition::Failing { why } if why.contains("fresh credentials")),
    );
    assert_eq!(running.take(1)[0].0, "a");
    running.wait_for_condition("it works", |condition| *condition == Condition::Working);
}

#[test]
fn a_missing_permission_or_a_wrong_key_names_the_remedy_and_is_retried_slowly() {
    for (code, remedy) in [
        ("AccessDenied", "allow sqs:ReceiveMessage on the queue"),
        ("KmsAccessDenied", "kms:Decrypt"),
        ("InvalidClientTokenId", "correct the access key"),
        ("QueueDeletedRecently", "create the queue"),
    ] {
        let stub =
            Stub::start(move |action, _| (action == "ReceiveMessage").then_some(StubResponse::Bad(403, code, "no")));
        let mut slow = one_receiver(&stub);
        slow.timings.operator_delay = Duration::from_secs(600);
        let running = start(slow, 50);
        running.wait_for_condition(
            remedy,
            |c| matches!(c, Condition::Failing { why } if why.contains(remedy) && why.contains(code)),
        );
        assert_eq!(stub.calls("ReceiveMessage").len(), 1, "{code} is not tried again soon");
        assert_eq!(running.permits.available_permits(), 50, "{code} holds no permits meanwhile");
    }
}

#[test]
fn a_backlog_that_may_not_be_read_is_unknown_and_messages_are_received_all_the_same() {
    let stub = Stub::start(|action, _| {
        (action == "GetQueueAttributes").then_some(StubResponse::Bad(403, "AccessDenied", "no"))
    });
    stub.put(&["a"]);
    let mut running = start(one_receiver(&stub), 50);
    assert_eq!(running.take(1)[0].0, "a");
    assert_eq!(stub.calls("ReceiveMessage")[0]["VisibilityTimeout"], 30);
    until("it says why", || {
        let unknown = running.health.snapshot().backlog.get("jobs").cloned();
        matches!(unknown, Some(Backlog::Unknown { why }) if why.contains("allow sqs:GetQueueAttributes"))
    });
}

#[test]
fn a_response_that_never_comes_is_abandoned() {
    let tries = AtomicU32::new(0);
    let stub = Stub::start(move |action, _| {
        (action == "ReceiveMessage" && tries.fetch_add(1, Ordering::Relaxed) == 0).then_some(StubResponse::Hang)
    });
    stub.put(&["a"]);
    let mut hasty = one_receiver(&stub);
    // Long enough for the second answer: its message is lost with an answer that nobody waits for.
    hasty.timings.response_timeout = Duration::from_secs(2);
    hasty.timings.first_delay = Duration::from_secs(2);
    hasty.timings.longest_delay = Duration::from_secs(2);
    let mut running = start(hasty, 50);
    running.wait_for_condition(
        "no answer",
        |c| matches!(c, Condition::Failing { why } if why.contains("no response to ReceiveMessage")),
    );
    assert_eq!(running.take(1)[0].0, "a");
}

#[test]
fn an_endpoint_without_a_server_is_reported_and_the_source_still_stops() {
    let free = forebay_parts::free_port().expect("a free port");
    let mut running = start(settings(&format!("http://127.0.0.1:{free}"), &["jobs"]), 50);
    running.wait_for_condition(
        "nobody there",
        |c| matches!(c, Condition::Failing { why } if why.contains("check the endpoint")),
    );
    assert!(running.stop() < Duration::from_secs(8));
}

#[test]
fn a_hidden_message_whose_extension_fails_is_extended_again_in_time() {
    // When the message was asked for, and each try.
    let times = Arc::new(Mutex::new(Vec::new()));
    let shared = Arc::clone(&times);
    let stub = Stub::start(move |action, body| match action {
        "GetQueueAttributes" => Some(StubResponse::Good(json!({ "Attributes": { "VisibilityTimeout": "12",
            "ApproximateNumberOfMessages": "0", "ApproximateNumberOfMessagesNotVisible": "0" } }))),
        "ReceiveMessage" => {
            shared.lock().expect("whole").push(Instant::now());
            None
        }
        "ChangeMessageVisibilityBatch" => {
            let mut times = shared.lock().expect("whole");
            times.push(Instant::now());
            match times.len() {
                2 => Some(StubResponse::Bad(503, "ServiceUnavailable", "later")),
                3 => Some(StubResponse::Good(batch(body, |_| Some((false, "InternalError"))))),
                _ => None,
            }
        }
        _ => None,
    });
    stub.put(&["a"]);
    // Permits for one batch: nothing more is received meanwhile.
    let mut running = start(one_receiver(&stub), 10);
    let submitted = running.next();
    until("three tries", || times.lock().expect("whole").len() >= 4);
    let took = times.lock().map(|times| times[3] - times[0]).expect("whole");
    assert!(took < Duration::from_secs(12), "before the timeout of 12 s, not {took:?}");
    let remarks = running.health.snapshot().remarks;
    assert_eq!(remarks.len(), 1, "once for the outage: {remarks:?}");
    assert_eq!(stub.calls("ChangeMessageVisibilityBatch")[0]["Entries"][0]["VisibilityTimeout"], 12);
    durable(submitted);
    until("deleted", || stub.calls("DeleteMessageBatch").len() == 1);
}

#[test]
fn no_more_batches_than_four_wait_for_their_receipts() {
    let stub = Stub::start(|_, _| None);
    let all: Vec<String> = (0..60).map(|n| n.to_string()).collect();
    stub.put(&all.iter().map(String::as_str).collect::<Vec<_>>());
    let mut running = start(one_receiver(&stub), 1000);
    let mut held: Vec<_> = (0..4).map(|_| running.next()).collect();
    running.wait_for_condition("it is held back", |condition| *condition == Condition::HeldBack);
    assert_eq!(stub.calls("ReceiveMessage").len(), 4);
    durable(held.remove(0));
    assert_eq!(bodies(&running.next())[0].0, "40", "one receipt, one more batch");
    running.stop();
    let released: Vec<Value> = stub.calls("ChangeMessageVisibilityBatch");
    let at_once = released.iter().filter(|call| call["Entries"][0]["VisibilityTimeout"] == 0).count();
    assert_eq!(at_once, 4, "the four that are not durable are given back");
}

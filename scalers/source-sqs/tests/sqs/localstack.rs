//! Receiving from a real LocalStack.

use crate::support::{Admin, bodies, durable, settings, start, texts, until};
use aws_sdk_sqs::types::{MessageAttributeValue, QueueAttributeName};
use forebay_parts::{LocalStack, LocalStackOptions};
use forebay_source::{Backlog, Condition, Severity};
use forebay_source_sqs::SqsTimings;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

#[test]
fn every_message_is_submitted_once_and_deleted_after_its_receipt() {
    let admin = Admin::new();
    let url = admin.create("once", &[]);
    admin.send(&url, &texts("m", 40));
    let mut running = start(settings(admin.endpoint(), &["once"]), 100);
    let mut waiting = Vec::new();
    let mut seen = BTreeMap::new();
    while seen.len() < 40 {
        let submitted = running.next();
        assert_eq!((submitted.batch.channel, submitted.batch.stream.is_none()), (0, true));
        for (body, id) in bodies(&submitted) {
            assert!(id.starts_with("once/"), "{id}");
            assert_eq!(seen.insert(body, id), None, "submitted once");
        }
        assert!(
            submitted.batch.messages.iter().all(|message| message.sent_ms.is_some_and(|ms| ms > 1_600_000_000_000))
        );
        waiting.push(submitted);
    }
    let (visible, hidden) = admin.count(&url);
    assert_eq!(visible + hidden, 40, "nothing is deleted before its receipt");
    until("the backlog is without what is here", || {
        running.health.snapshot().backlog.get("once") == Some(&Backlog::Known(0))
    });
    waiting.into_iter().for_each(durable);
    until("all are deleted", || admin.count(&url) == (0, 0));
    assert_eq!(running.health.snapshot().condition, Condition::Working);
    running.stop();
    assert_eq!(running.health.snapshot().condition, Condition::Stopped);
    assert_eq!(running.permits.available_permits(), 100, "all permits are released");
}

#[test]
fn after_a_crash_before_the_delete_the_same_id_comes_again() {
    let admin = Admin::new();
    let url = admin.create("crash", &[(QueueAttributeName::VisibilityTimeout, "2")]);
    admin.send(&url, &texts("m", 3));
    let mut first = start(settings(admin.endpoint(), &["crash"]), 100);
    let mut before = BTreeSet::new();
    let mut held = Vec::new();
    while before.len() < 3 {
        let submitted = first.next();
        before.extend(bodies(&submitted));
        held.push(submitted);
    }
    first.crash();
    let mut second = start(settings(admin.endpoint(), &["crash"]), 100);
    let again: BTreeSet<_> = second.take(3).into_iter().collect();
    assert_eq!(again, before, "by their ids they are known");
    until("deleted now", || admin.count(&url) == (0, 0));
}

#[test]
fn what_waits_longer_than_the_visibility_timeout_is_not_received_twice() {
    let admin = Admin::new();
    let (url, dead) = admin.create_with_dead_letters("patient", 1, 6);
    admin.send(&url, &texts("m", 5));
    let mut running = start(settings(admin.endpoint(), &["patient"]), 40);
    let mut held = Vec::new();
    while held.iter().map(|submitted: &forebay_source::SubmittedBatch| submitted.batch.messages.len()).sum::<usize>()
        < 5
    {
        held.push(running.next());
    }
    // More than three timeouts; whatever became visible would be received again, or end among the dead letters.
    assert!(running.next_within(Duration::from_secs(20)).is_none(), "received twice");
    assert_eq!((admin.count(&url), admin.count(&dead)), ((0, 5), (0, 0)));
    held.into_iter().for_each(durable);
    until("deleted", || admin.count(&url) == (0, 0));
    assert_eq!(admin.count(&dead), (0, 0));
    assert!(running.health.snapshot().remarks.is_empty(), "{:?}", running.health.snapshot());
}

#[test]
fn a_stopping_source_releases_what_is_not_durable() {
    let admin = Admin::new();
    let (url, dead) = admin.create_with_dead_letters("back", 9, 600);
    admin.send(&url, &texts("m", 10));
    let mut patient = settings(admin.endpoint(), &["back"]);
    // An idle receiver polls as long as it does in production: it must not take what the others give back.
    patient.timings.poll_wait = SqsTimings::default().poll_wait;
    let mut running = start(patient, 100);
    let mut held = Vec::new();
    while held.iter().map(|submitted: &forebay_source::SubmittedBatch| submitted.batch.messages.len()).sum::<usize>()
        < 10
    {
        held.push(running.next());
    }
    let took = running.stop();
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert_eq!(admin.count(&url), (10, 0), "visible at once, long before the timeout of ten minutes");
    let counts = admin.receive(&url).into_iter().map(|message| {
        message.attributes.expect("some")[&aws_sdk_sqs::types::MessageSystemAttributeName::ApproximateReceiveCount]
            .clone()
    });
    assert!(counts.into_iter().all(|count| count == "2"), "received once by the source, once here");
    assert_eq!(admin.count(&dead), (0, 0));
}

#[test]
fn a_fifo_queue_keeps_the_order_of_each_group() {
    let admin = Admin::new();
    let url = admin.create("order.fifo", &[]);
    let messages: Vec<_> =
        (0..60).map(|n| (format!("{}-{:02}", n % 3, n / 3), Some(format!("group-{}", n % 3)))).collect();
    admin.send(&url, &messages);
    let mut running = start(settings(admin.endpoint(), &["order.fifo"]), 100);
    let taken: Vec<String> = running.take(60).into_iter().map(|(body, _)| body).collect();
    for group in 0..3 {
        let prefix = format!("{group}-");
        let of_group: Vec<_> = taken.iter().filter(|body| body.starts_with(&prefix)).cloned().collect();
        let wanted: Vec<_> = (0..20).map(|n| format!("{group}-{n:02}")).collect();
        assert_eq!(of_group, wanted);
    }
    until("deleted", || admin.count(&url) == (0, 0));
}

#[test]
fn a_queue_that_is_deleted_and_made_again_is_found_again() {
    let admin = Admin::new();
    let url = admin.create("reborn", &[]);
    let mut running = start(settings(admin.endpoint(), &["reborn"]), 100);
    admin.send(&url, &texts("old", 1));
    assert_eq!(running.take(1)[0].0, "old-0");
    admin.runtime.block_on(admin.client.delete_queue().queue_url(&url).send()).expect("deleted");
    running.wait_for_condition("the queue is gone", |condition| {
        matches!(condition, Condition::Failing { why } if why.contains("`reborn`") && why.contains("create the queue"))
    });
    until(
        "the backlog is not known",
        || matches!(running.health.snapshot().backlog.get("reborn"), Some(Backlog::Unknown { why }) if why.contains("reborn")),
    );
    let url = admin.create("reborn", &[]);
    admin.send(&url, &texts("new", 1));
    assert_eq!(running.take(1)[0].0, "new-0");
    running.wait_for_condition("it works", |condition| *condition == Condition::Working);
}

#[test]
fn events_in_binary_mode_come_with_their_attributes() {
    let admin = Admin::new();
    let url = admin.create("binary", &[]);
    let mut call = admin.client.send_message().queue_url(&url).message_body("{\"queue\":\"a\"}");
    for (name, value) in
        [("ce_type", "job.submitted"), ("ce_id", "7"), ("content-type", "application/json"), ("x", "y")]
    {
        let value = MessageAttributeValue::builder().data_type("String").string_value(value).build().expect("a value");
        call = call.message_attributes(name, value);
    }
    admin.runtime.block_on(call.send()).expect("sent");
    let mut running = start(settings(admin.endpoint(), &["binary"]), 100);
    let submitted = running.next();
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let wanted = [pair("ce_id", "7"), pair("ce_type", "job.submitted"), pair("content-type", "application/json")];
    assert_eq!(submitted.batch.messages[0].attributes, wanted);
    durable(submitted);
}

#[test]
fn each_queue_is_a_channel_and_permits_are_never_exceeded() {
    let admin = Admin::new();
    let urls = [admin.create("one", &[]), admin.create("two", &[])];
    for (url, name) in urls.iter().zip(["one", "two"]) {
        admin.send(url, &texts(name, 30));
    }
    // Two receivers per queue need 40 permits to poll at once; here only one of them has enough at a time.
    let mut running = start(settings(admin.endpoint(), &["one", &urls[1]]), 15);
    let mut taken = [0, 0];
    while taken != [30, 30] {
        let submitted = running.next();
        assert!(submitted.permit.messages() <= 15 && submitted.permit.messages() >= submitted.batch.messages.len());
        for (body, _) in bodies(&submitted) {
            assert!(body.starts_with(["one", "two"][submitted.batch.channel]), "{body}");
            taken[submitted.batch.channel] += 1;
        }
        durable(submitted);
    }
    until("deleted", || urls.iter().all(|url| admin.count(url) == (0, 0)));
}

#[test]
fn without_permits_nothing_is_received() {
    let admin = Admin::new();
    let url = admin.create("full", &[]);
    admin.send(&url, &texts("m", 5));
    let mut running = start(settings(admin.endpoint(), &["full"]), 9);
    running.wait_for_condition("it is held back", |condition| *condition == Condition::HeldBack);
    assert_eq!(admin.count(&url), (5, 0), "still where they were");
    until("the backlog says so", || running.health.snapshot().backlog.get("full") == Some(&Backlog::Known(5)));
    running.permits.add_permits(20);
    assert_eq!(running.take(5).len(), 5);
    running.wait_for_condition("it works", |condition| *condition == Condition::Working);
}

#[test]
fn the_probe_reports_queues_as_they_are() {
    let admin = Admin::new();
    admin.create_with_dead_letters("frail", 2, 5);
    admin.create("sound.fifo", &[(QueueAttributeName::VisibilityTimeout, "60")]);
    let settings = settings(admin.endpoint(), &["frail", "sound.fifo", "nowhere"]);
    let began = Instant::now();
    let diagnostics = forebay_source_sqs::probe(&settings, Some("absent-status"), None, admin.runtime.handle());
    assert!(began.elapsed() < Duration::from_secs(20));
    let of = |queue: &str| {
        let all = diagnostics.iter().filter(|diagnostic| diagnostic.subject.ends_with(queue));
        all.map(|diagnostic| (diagnostic.severity, diagnostic.message.as_str())).collect::<Vec<_>>()
    };
    assert!(
        matches!(of("credentials")[..], [(Severity::Ok, said)] if said.contains("configuration")),
        "{diagnostics:?}"
    );
    let frail = of("queue frail");
    assert!(
        frail.iter().any(|(o, said)| *o == Severity::Warning && said.contains("maxReceiveCount to 5")),
        "{frail:?}"
    );
    assert!(
        frail.iter().any(|(o, said)| *o == Severity::Warning && said.contains("visibility timeout is 5 s")),
        "{frail:?}"
    );
    let sound = of("queue sound.fifo");
    assert!(sound.iter().all(|(outcome, _)| *outcome == Severity::Ok), "{sound:?}");
    assert!(sound[0].1.starts_with("FIFO, 0 messages wait"), "{sound:?}");
    for absent in ["queue nowhere", "queue absent-status"] {
        assert!(
            matches!(of(absent)[..], [(Severity::Error, said)] if said.contains("create the queue")),
            "{diagnostics:?}"
        );
    }
}

#[test]
fn a_controller_that_stops_ends_the_source() {
    let admin = Admin::new();
    let url = admin.create("let-go", &[(QueueAttributeName::VisibilityTimeout, "600")]);
    admin.send(&url, &texts("m", 2));
    let mut running = start(settings(admin.endpoint(), &["let-go"]), 100);
    let submitted = running.next();
    drop(submitted);
    running.wait_for_condition("it has ended", |condition| *condition == Condition::Stopped);
    until("all are given back", || admin.count(&url) == (2, 0));
}

#[test]
fn a_service_that_dies_is_reported_and_retried() {
    let mut own = LocalStack::start(LocalStackOptions::default()).expect("a LocalStack");
    let admin = Admin::at(own.endpoint());
    let url = admin.create("mortal", &[]);
    admin.send(&url, &texts("before", 1));
    let mut running = start(settings(admin.endpoint(), &["mortal"]), 100);
    let submitted = running.next();
    own.kill().expect("killed");
    running.wait_for_condition(
        "nobody is there",
        |c| matches!(c, Condition::Failing { why } if why.contains("check the endpoint")),
    );
    // Its receipt comes while nobody can be told to delete.
    durable(submitted);
    until("it says what became of it", || {
        running
            .health
            .snapshot()
            .remarks
            .iter()
            .any(|remark| remark.text.contains("are durable and could not be deleted"))
    });
    own.restart().expect("again");
    let url = admin.create("mortal", &[]);
    admin.send(&url, &texts("after", 1));
    assert_eq!(running.take(1)[0].0, "after-0");
    running.wait_for_condition("it works", |condition| *condition == Condition::Working);
    running.stop();
}

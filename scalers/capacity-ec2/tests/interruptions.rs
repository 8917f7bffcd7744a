//! The interruption reader with a real LocalStack: messages are handed out, and deleted only after their acknowledgement.

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::QueueAttributeName;
use forebay_aws::{AccessKey, AwsSettings};
use forebay_capacity_ec2::ClockReading;
use forebay_capacity_ec2::notice::{ClaimStatus, KnownInstances, NoticeKind, QueueMessage, SpotAction, notice_events};
use forebay_capacity_ec2::queue::{InterruptionReader, NoticeBatch, QueueStats, QueueTimings, ReceivedMessage};
use forebay_kernel::event::Event;
use forebay_kernel::units::Timestamp;
use forebay_parts::LocalStack;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::mpsc;

/// The timeout of all waits, for busy machines.
const SOON: Duration = Duration::from_secs(90);
const SENT_MS: u64 = 1_795_293_000_000;
const OURS: &str = "i-1234567890abcdef0";

fn client(runtime: &Runtime, endpoint: &str) -> Client {
    let keys = AccessKey { access_key_id: "test".into(), secret_access_key: "test".into(), session_token: None };
    let settings =
        AwsSettings { region: Some("us-east-1".into()), endpoint: Some(endpoint.into()), access_key: Some(keys) };
    let config = runtime.block_on(forebay_aws::load_client_config(&settings)).expect("a region");
    let config = aws_sdk_sqs::config::Builder::from(&config.sdk).endpoint_url(endpoint);
    Client::from_conf(config.build())
}

fn timings() -> QueueTimings {
    QueueTimings {
        poll_wait: Duration::from_secs(1),
        response_timeout: Duration::from_secs(10),
        hidden: Duration::from_secs(2),
        first_delay: Duration::from_millis(20),
        longest_delay: Duration::from_millis(200),
        operator_delay: Duration::from_millis(200),
    }
}

/// A queue of one test, and a client with all permissions.
struct World {
    runtime: Runtime,
    client: Client,
    name: String,
    _localstack: Arc<LocalStack>,
}

impl World {
    fn new(name: &str) -> World {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let (runtime, localstack) = (runtime.expect("a runtime"), LocalStack::shared());
        let client = client(&runtime, localstack.endpoint());
        World { runtime, client, name: name.to_owned(), _localstack: localstack }
    }

    fn create(&self) -> String {
        let call = self.client.create_queue().queue_name(&self.name).send();
        self.runtime.block_on(call).expect("a queue").queue_url.expect("its URL")
    }

    fn start(&self) -> (InterruptionReader, mpsc::Receiver<NoticeBatch>) {
        InterruptionReader::start(&self.client, std::slice::from_ref(&self.name), timings(), self.handle())
            .expect("a valid queue")
    }

    fn handle(&self) -> &Handle {
        self.runtime.handle()
    }

    fn send(&self, url: &str, body: &str) {
        let call = self.client.send_message().queue_url(url).message_body(body).send();
        self.runtime.block_on(call).expect("sent");
    }

    /// The number of messages in the queue, visible or not.
    fn count(&self, url: &str) -> u64 {
        let call = self.client.get_queue_attributes().queue_url(url).attribute_names(QueueAttributeName::All).send();
        let found = self.runtime.block_on(call).expect("attributes").attributes.expect("some");
        let number = |name: QueueAttributeName| found[&name].parse::<u64>().expect("a number");
        number(QueueAttributeName::ApproximateNumberOfMessages)
            + number(QueueAttributeName::ApproximateNumberOfMessagesNotVisible)
    }

    fn next(&self, from: &mut mpsc::Receiver<NoticeBatch>) -> NoticeBatch {
        let next = self.runtime.block_on(async { tokio::time::timeout(SOON, from.recv()).await });
        next.expect("a batch in time").expect("the reader lives")
    }

    /// Unacknowledged batches with at least this many messages.
    fn take(&self, from: &mut mpsc::Receiver<NoticeBatch>, messages: usize) -> Vec<NoticeBatch> {
        let mut batches = Vec::new();
        while batches.iter().map(|batch: &NoticeBatch| batch.messages.len()).sum::<usize>() < messages {
            batches.push(self.next(from));
        }
        batches
    }

    /// Waits until a condition holds.
    fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let deadline = std::time::Instant::now() + SOON;
        while !holds() {
            assert!(std::time::Instant::now() < deadline, "not within {SOON:?}: {what}");
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }
}

fn stats(reader: &InterruptionReader) -> QueueStats {
    reader.stats().remove(0).1
}

fn event(source: &str, detail_type: &str, detail: &serde_json::Value) -> String {
    json!({ "version": "0", "id": format!("{detail_type} {detail}"), "detail-type": detail_type, "source": source,
        "time": "2026-11-21T20:30:00Z", "region": "us-east-1", "resources": [], "detail": detail })
    .to_string()
}

fn warning(instance: &str) -> String {
    let detail = json!({ "instance-id": instance, "instance-action": "terminate" });
    event("aws.ec2", "EC2 Spot Instance Interruption Warning", &detail)
}

/// One instance is ours.
struct OneInstance;

impl KnownInstances for OneInstance {
    fn claim_status(&self, instance: &str) -> Option<ClaimStatus> {
        (instance == OURS).then_some(ClaimStatus::Ready)
    }

    fn in_reservation(&self, _: &str) -> Vec<String> {
        vec![OURS.to_owned()]
    }
}

fn messages(batches: &[NoticeBatch]) -> Vec<&ReceivedMessage> {
    batches.iter().flat_map(|batch| &batch.messages).collect()
}

/// The kind, the events and the number of foreign instances of a notice.
fn effects(message: &ReceivedMessage) -> Option<(NoticeKind, Vec<Event>, usize)> {
    match &message.content {
        Ok(QueueMessage::Notice(notice)) => {
            let outcome = notice_events(notice, ClockReading::same(Timestamp(SENT_MS)), &OneInstance);
            Some((notice.kind, outcome.events, outcome.foreign))
        }
        _ => None,
    }
}

#[test]
fn every_kind_is_handed_out_and_deleted_after_its_acknowledgement() {
    let world = World::new("kinds");
    let url = world.create();
    let health = json!({ "service": "EC2", "eventTypeCategory": "scheduledChange", "startTime": "Sat, 21 Nov 2026 20:40:00 GMT",
        "affectedEntities": [{ "entityValue": OURS }] });
    let bodies = [
        warning(OURS),
        warning("i-00000000000000001"),
        event("aws.ec2", "EC2 Instance Rebalance Recommendation", &json!({ "instance-id": OURS })),
        event(
            "aws.ec2",
            "EC2 Instance State-change Notification",
            &json!({ "instance-id": OURS, "state": "terminated" }),
        ),
        event(
            "aws.ec2",
            "EC2 Capacity Reservation Instance Interruption Warning",
            &json!({ "instance-id": OURS, "instance-termination-time": "2026-11-21T20:31:00Z" }),
        ),
        event(
            "aws.ec2",
            "Capacity Block Expiration Warning",
            &json!({ "capacity-reservation-id": "cr-0123456789abcdef0", "end-date": "2026-11-21T21:10:00Z" }),
        ),
        event("aws.health", "AWS Health Event", &health),
        json!({ "Type": "Notification", "MessageId": "1", "Message": warning(OURS) }).to_string(),
        event("aws.ec2", "EBS Volume Notification", &json!({})),
        "garbage \u{e9}".to_owned(),
        "{\"detail-type\":\"EC2 Instance State-change Notification\"".to_owned(),
    ];
    for body in &bodies {
        world.send(&url, body);
    }
    let (reader, mut from) = world.start();
    let batches = world.take(&mut from, bodies.len());
    let reclaim = |minutes: u64| {
        vec![Event::ReclaimNotice { instance: OURS.to_owned(), at: Timestamp(SENT_MS + minutes * 60_000) }]
    };
    let gone = Event::NodeGone { instance: OURS.to_owned(), why: forebay_kernel::event::GoneWhy::Lost };
    let by_body: BTreeMap<&str, &ReceivedMessage> =
        messages(&batches).into_iter().map(|l| (l.body.as_str(), l)).collect();
    let expected = [
        Some((NoticeKind::Spot(SpotAction::Terminate), reclaim(2), 0)),
        Some((NoticeKind::Spot(SpotAction::Terminate), vec![], 1)),
        Some((NoticeKind::Rebalance, vec![], 0)),
        Some((NoticeKind::State(forebay_capacity_ec2::Ec2InstanceState::Terminated), vec![gone], 0)),
        Some((NoticeKind::Reservation, reclaim(1), 0)),
        Some((NoticeKind::BlockEnd, reclaim(10), 0)),
        Some((NoticeKind::ScheduledChange, reclaim(10), 0)),
        Some((NoticeKind::Spot(SpotAction::Terminate), reclaim(2), 0)),
        None,
        None,
        None,
    ];
    for (body, expected) in bodies.iter().zip(expected) {
        let message = by_body.get(body.as_str()).unwrap_or_else(|| panic!("not handed out: {body}"));
        assert_eq!(effects(message), expected, "{body}");
        assert!(message.sent.is_some_and(|at| at.0 > 1_600_000_000_000) && !message.id.is_empty());
    }
    let stats_now = stats(&reader);
    assert_eq!((stats_now.notices, stats_now.foreign, stats_now.rejected, stats_now.deleted), (8, 1, 2, 0));
    assert_eq!(world.count(&url), bodies.len() as u64, "nothing is deleted before its acknowledgement");
    batches.into_iter().for_each(NoticeBatch::acknowledge);
    world.until("all are deleted", || world.count(&url) == 0 && stats(&reader).deleted == bodies.len() as u64);
    world.runtime.block_on(reader.stop());
}

#[test]
fn a_repeated_message_has_the_same_events() {
    let world = World::new("twice");
    let url = world.create();
    (0..2).for_each(|_| world.send(&url, &warning(OURS)));
    let (reader, mut from) = world.start();
    let batches = world.take(&mut from, 2);
    let content: Vec<_> = messages(&batches).into_iter().map(effects).collect();
    assert!(content.len() == 2 && content[0].is_some() && content[0] == content[1], "{content:?}");
    let ids: BTreeSet<_> = messages(&batches).iter().map(|message| message.id.clone()).collect();
    assert_eq!(ids.len(), 2, "they are two messages of SQS");
    batches.into_iter().for_each(NoticeBatch::acknowledge);
    world.until("both are deleted", || world.count(&url) == 0);
    world.runtime.block_on(reader.stop());
}

#[test]
fn an_unacknowledged_message_is_received_again() {
    let world = World::new("dies");
    let url = world.create();
    world.send(&url, &warning(OURS));
    let (reader, mut from) = world.start();
    let batch = world.next(&mut from);
    let id = batch.messages[0].id.clone();
    // As in a killed process, there is no acknowledgement and no stop.
    drop((reader, from, batch));
    assert_eq!(world.count(&url), 1);
    let (reader, mut from) = world.start();
    let again = world.next(&mut from);
    assert_eq!((again.messages.len(), &again.messages[0].id), (1, &id));
    assert_eq!(effects(&again.messages[0]).map(|content| content.1.len()), Some(1));
    // A dropped batch is received again by the same reader too.
    drop(again);
    let third = world.next(&mut from);
    assert_eq!(third.messages[0].id, id);
    third.acknowledge();
    world.until("deleted", || world.count(&url) == 0);
    world.runtime.block_on(reader.stop());
}

#[test]
fn without_a_free_slot_nothing_is_received() {
    let world = World::new("room");
    let url = world.create();
    for at in 0..100 {
        world.send(&url, &warning(&format!("i-{at:017x}")));
    }
    let (reader, mut from) = world.start();
    // Four batches are unacknowledged, and a fifth is not received.
    let held = world.take(&mut from, 1);
    world.until("four batches are out", || held.len() + from.len() == 4);
    let received = stats(&reader).notices;
    let more = world
        .runtime
        .block_on(async { tokio::time::timeout(Duration::from_millis(1_500), reader_grows(&reader, received)).await });
    assert!(more.is_err() && received <= 40, "{received} received, and then more");
    let mut batches = held;
    while world.count(&url) > 0 {
        batches.into_iter().for_each(NoticeBatch::acknowledge);
        let next =
            world.runtime.block_on(async { tokio::time::timeout(Duration::from_millis(200), from.recv()).await });
        batches = next.ok().flatten().into_iter().collect();
    }
    world.runtime.block_on(reader.stop());
}

/// Resolves when more has been received.
async fn reader_grows(reader: &InterruptionReader, received: u64) {
    while stats(reader).notices == received {
        tokio::task::yield_now().await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[test]
fn an_outage_is_counted_once_and_ends_when_the_queue_exists() {
    let world = World::new("late");
    let (reader, mut from) = world.start();
    world.until("it fails", || stats(&reader).failing.is_some_and(|why| why.contains("create the queue")));
    let url = world.create();
    world.send(&url, &warning(OURS));
    world.next(&mut from).acknowledge();
    world.until("it works", || stats(&reader).failing.is_none() && world.count(&url) == 0);
    assert_eq!(stats(&reader).outages, 1);
    // Without a receiver the reader ends at once.
    drop(from);
    let began = std::time::Instant::now();
    world.runtime.block_on(reader.stop());
    assert!(began.elapsed() < Duration::from_secs(5));
}

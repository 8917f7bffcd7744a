//! The interruption queue on a real LocalStack: what is handed out, and that nothing is deleted before its receipt.
//!
//! Never: a wait without a limit.

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::QueueAttributeName;
use forebay_aws::{Keys, Place};
use forebay_capacity_ec2::notice::{Action, Instances, Kind, Message, Standing, events};
use forebay_capacity_ec2::queue::{Batch, Letter, Pace, Reader, Seen};
use forebay_engine::event::Event;
use forebay_engine::units::Millis;
use forebay_parts::LocalStack;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::mpsc;

/// For anything that should come: two busy cores are slow.
const SOON: Duration = Duration::from_secs(30);
const SENT_MS: u64 = 1_795_293_000_000;
const OURS: &str = "i-1234567890abcdef0";

fn client(runtime: &Runtime, endpoint: &str) -> Client {
    let keys = Keys { access_key_id: "test".into(), secret_access_key: "test".into(), session_token: None };
    let place = Place { region: Some("us-east-1".into()), endpoint: Some(endpoint.into()), keys: Some(keys) };
    let way = runtime.block_on(forebay_aws::find(&place)).expect("a region");
    let config = aws_sdk_sqs::config::Builder::from(&way.shared).endpoint_url(endpoint);
    Client::from_conf(config.build())
}

fn pace() -> Pace {
    Pace {
        wait: Duration::from_secs(1),
        patience: Duration::from_secs(10),
        hidden: Duration::from_secs(2),
        first_pause: Duration::from_millis(20),
        longest_pause: Duration::from_millis(200),
        slow_pause: Duration::from_millis(200),
    }
}

/// A queue of a test's own, whoever reads it, and somebody who may do everything with it.
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

    fn start(&self) -> (Reader, mpsc::Receiver<Batch>) {
        Reader::start(&self.client, std::slice::from_ref(&self.name), pace(), self.handle())
            .expect("a queue that can be")
    }

    fn handle(&self) -> &Handle {
        self.runtime.handle()
    }

    fn send(&self, url: &str, body: &str) {
        let call = self.client.send_message().queue_url(url).message_body(body).send();
        self.runtime.block_on(call).expect("sent");
    }

    /// Messages in the queue, visible or not.
    fn count(&self, url: &str) -> u64 {
        let call = self.client.get_queue_attributes().queue_url(url).attribute_names(QueueAttributeName::All).send();
        let found = self.runtime.block_on(call).expect("attributes").attributes.expect("some");
        let number = |name: QueueAttributeName| found[&name].parse::<u64>().expect("a number");
        number(QueueAttributeName::ApproximateNumberOfMessages)
            + number(QueueAttributeName::ApproximateNumberOfMessagesNotVisible)
    }

    fn next(&self, from: &mut mpsc::Receiver<Batch>) -> Batch {
        let next = self.runtime.block_on(async { tokio::time::timeout(SOON, from.recv()).await });
        next.expect("a batch in time").expect("the reader lives")
    }

    /// Batches until there are so many letters. They wait for their receipts.
    fn take(&self, from: &mut mpsc::Receiver<Batch>, letters: usize) -> Vec<Batch> {
        let mut batches = Vec::new();
        while batches.iter().map(|batch: &Batch| batch.letters.len()).sum::<usize>() < letters {
            batches.push(self.next(from));
        }
        batches
    }

    /// Looks until it holds.
    fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let deadline = std::time::Instant::now() + SOON;
        while !holds() {
            assert!(std::time::Instant::now() < deadline, "not within {SOON:?}: {what}");
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }
}

fn seen(reader: &Reader) -> Seen {
    reader.seen().remove(0).1
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
struct One;

impl Instances for One {
    fn standing(&self, instance: &str) -> Option<Standing> {
        (instance == OURS).then_some(Standing::Wanted)
    }

    fn in_reservation(&self, _: &str) -> Vec<String> {
        vec![OURS.to_owned()]
    }
}

fn letters(batches: &[Batch]) -> Vec<&Letter> {
    batches.iter().flat_map(|batch| &batch.letters).collect()
}

/// What a message means, where it is a notice.
fn means(letter: &Letter) -> Option<(Kind, Vec<Event>, usize)> {
    match &letter.said {
        Ok(Message::Notice(notice)) => {
            let outcome = events(notice, Millis(SENT_MS), &One);
            Some((notice.kind, outcome.events, outcome.foreign))
        }
        _ => None,
    }
}

#[test]
fn every_kind_is_handed_out_and_deleted_only_after_the_receipt() {
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
    let reclaim =
        |minutes: u64| vec![Event::ReclaimNotice { instance: OURS.to_owned(), at: Millis(SENT_MS + minutes * 60_000) }];
    let gone = Event::NodeGone { instance: OURS.to_owned(), why: forebay_engine::event::GoneWhy::Lost };
    let by_body: BTreeMap<&str, &Letter> = letters(&batches).into_iter().map(|l| (l.body.as_str(), l)).collect();
    let wanted = [
        Some((Kind::Spot(Action::Terminate), reclaim(2), 0)),
        Some((Kind::Spot(Action::Terminate), vec![], 1)),
        Some((Kind::Rebalance, vec![], 0)),
        Some((Kind::State(forebay_capacity_ec2::notice::InstanceState::Terminated), vec![gone], 0)),
        Some((Kind::Reservation, reclaim(1), 0)),
        Some((Kind::BlockEnd, reclaim(10), 0)),
        Some((Kind::ScheduledChange, reclaim(10), 0)),
        Some((Kind::Spot(Action::Terminate), reclaim(2), 0)),
        None,
        None,
        None,
    ];
    for (body, wanted) in bodies.iter().zip(wanted) {
        let letter = by_body.get(body.as_str()).unwrap_or_else(|| panic!("not handed out: {body}"));
        assert_eq!(means(letter), wanted, "{body}");
        assert!(letter.sent.is_some_and(|at| at.0 > 1_600_000_000_000) && !letter.id.is_empty());
    }
    let figures = seen(&reader);
    assert_eq!((figures.notices, figures.foreign, figures.rejected, figures.deleted), (8, 1, 2, 0));
    assert_eq!(world.count(&url), bodies.len() as u64, "nothing is deleted before its receipt");
    batches.into_iter().for_each(Batch::durable);
    world.until("all are deleted", || world.count(&url) == 0 && seen(&reader).deleted == bodies.len() as u64);
    world.runtime.block_on(reader.stop());
}

#[test]
fn the_same_message_twice_says_the_same_twice() {
    let world = World::new("twice");
    let url = world.create();
    (0..2).for_each(|_| world.send(&url, &warning(OURS)));
    let (reader, mut from) = world.start();
    let batches = world.take(&mut from, 2);
    let said: Vec<_> = letters(&batches).into_iter().map(means).collect();
    assert!(said.len() == 2 && said[0].is_some() && said[0] == said[1], "{said:?}");
    let ids: BTreeSet<_> = letters(&batches).iter().map(|letter| letter.id.clone()).collect();
    assert_eq!(ids.len(), 2, "they are two messages of SQS");
    batches.into_iter().for_each(Batch::durable);
    world.until("both are deleted", || world.count(&url) == 0);
    world.runtime.block_on(reader.stop());
}

#[test]
fn a_reader_that_dies_before_the_receipt_gets_the_message_again() {
    let world = World::new("dies");
    let url = world.create();
    world.send(&url, &warning(OURS));
    let (reader, mut from) = world.start();
    let batch = world.next(&mut from);
    let id = batch.letters[0].id.clone();
    // As a process that is killed: neither a receipt nor an end.
    drop((reader, from, batch));
    assert_eq!(world.count(&url), 1);
    let (reader, mut from) = world.start();
    let again = world.next(&mut from);
    assert_eq!((again.letters.len(), &again.letters[0].id), (1, &id));
    assert_eq!(means(&again.letters[0]).map(|said| said.1.len()), Some(1));
    // One that is not taken comes again as well, while the reader lives.
    drop(again);
    let third = world.next(&mut from);
    assert_eq!(third.letters[0].id, id);
    third.durable();
    world.until("deleted", || world.count(&url) == 0);
    world.runtime.block_on(reader.stop());
}

#[test]
fn without_room_nothing_is_received() {
    let world = World::new("room");
    let url = world.create();
    for at in 0..100 {
        world.send(&url, &warning(&format!("i-{at:017x}")));
    }
    let (reader, mut from) = world.start();
    // Four wait for their receipts; a fifth is not asked for.
    let held = world.take(&mut from, 1);
    world.until("four batches are out", || held.len() + from.len() == 4);
    let received = seen(&reader).notices;
    let more = world
        .runtime
        .block_on(async { tokio::time::timeout(Duration::from_millis(1_500), reader_grows(&reader, received)).await });
    assert!(more.is_err() && received <= 40, "{received} received, and then more");
    let mut batches = held;
    while world.count(&url) > 0 {
        batches.into_iter().for_each(Batch::durable);
        let next =
            world.runtime.block_on(async { tokio::time::timeout(Duration::from_millis(200), from.recv()).await });
        batches = next.ok().flatten().into_iter().collect();
    }
    world.runtime.block_on(reader.stop());
}

/// Resolves when more has been received.
async fn reader_grows(reader: &Reader, received: u64) {
    while seen(reader).notices == received {
        tokio::task::yield_now().await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[test]
fn an_outage_is_told_once_and_over_when_the_queue_is_there() {
    let world = World::new("late");
    let (reader, mut from) = world.start();
    world.until("it fails", || seen(&reader).failing.is_some_and(|why| why.contains("make the queue")));
    let url = world.create();
    world.send(&url, &warning(OURS));
    world.next(&mut from).durable();
    world.until("it works", || seen(&reader).failing.is_none() && world.count(&url) == 0);
    assert_eq!(seen(&reader).outages, 1);
    // Whoever takes the batches has gone: nobody reads on, and the end comes at once.
    drop(from);
    let began = std::time::Instant::now();
    world.runtime.block_on(reader.stop());
    assert!(began.elapsed() < Duration::from_secs(5));
}

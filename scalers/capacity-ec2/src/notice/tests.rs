//! Each kind of message in the format of AWS's documentation, with its events.

use super::*;
use crate::clock::ClockReading;
use forebay_kernel::event::{Event, GoneWhy};
use forebay_kernel::units::Span;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const SENT: Timestamp = Timestamp(1_795_293_000_000);
const MINUTE: u64 = 60_000;
const OURS: &str = "i-1234567890abcdef0";

fn envelope(source: &str, detail_type: &str, detail: &Value) -> Value {
    json!({
        "version": "0", "id": "7bf73129-1428-4cd3-a780-95db273d1602", "detail-type": detail_type, "source": source,
        "account": "123456789012", "time": "2026-11-21T20:30:00Z", "region": "us-east-2",
        "resources": ["arn:aws:ec2:us-east-2a:instance/i-0000000000000bad0"], "detail": detail
    })
}

fn ec2(detail_type: &str, detail: &Value) -> Value {
    envelope("aws.ec2", detail_type, detail)
}

fn health(detail: &Value) -> Value {
    envelope("aws.health", "AWS Health Event", detail)
}

fn notice(event: &Value) -> InterruptionNotice {
    match decode_message(&event.to_string(), Timestamp(1)) {
        Ok(QueueMessage::Notice(notice)) => notice,
        other => panic!("{other:?} from {event}"),
    }
}

/// The statuses of instances, and the instances of a reservation.
#[derive(Default)]
struct Known {
    claim_status: BTreeMap<&'static str, ClaimStatus>,
    block: Vec<String>,
}

impl KnownInstances for Known {
    fn claim_status(&self, instance: &str) -> Option<ClaimStatus> {
        self.claim_status.get(instance).copied()
    }

    fn in_reservation(&self, reservation: &str) -> Vec<String> {
        assert_eq!(reservation, "cr-0123456789abcdef0");
        self.block.clone()
    }
}

fn known(claim_status: ClaimStatus) -> Known {
    Known { claim_status: BTreeMap::from([(OURS, claim_status)]), ..Known::default() }
}

fn reclaim(at: u64) -> Event {
    Event::ReclaimNotice { instance: OURS.to_owned(), at: Timestamp(at) }
}

fn gone(why: GoneWhy) -> Event {
    Event::NodeGone { instance: OURS.to_owned(), why }
}

#[test]
fn every_kind_is_decoded_and_converted() {
    let sent = SENT.0;
    let state =
        |state: &str| ec2("EC2 Instance State-change Notification", &json!({ "instance-id": OURS, "state": state }));
    let spot = |action: &str| {
        let detail = json!({ "instance-id": OURS, "instance-action": action });
        ec2("EC2 Spot Instance Interruption Warning", &detail)
    };
    let interrupted = |name: &str| {
        let detail = json!({ "instance-id": OURS, "instance-action": "terminate",
            "instance-termination-time": "2026-11-21T20:31:30Z", "azId": "use2-az1" });
        let mut event = ec2(name, &detail);
        // A text, while all other events have a list.
        event["resources"] = json!("arn:aws:ec2:us-east-2:123456789012:instance/i-1234567890abcdef0");
        event
    };
    let at_once = || vec![reclaim(sent)];
    for (event, kind, expected) in [
        (spot("terminate"), NoticeKind::Spot(SpotAction::Terminate), vec![reclaim(sent + 2 * MINUTE)]),
        (spot("stop"), NoticeKind::Spot(SpotAction::Stop), vec![reclaim(sent + 2 * MINUTE)]),
        (spot("hibernate"), NoticeKind::Spot(SpotAction::Hibernate), at_once()),
        (spot("newly-invented"), NoticeKind::Spot(SpotAction::Terminate), vec![reclaim(sent + 2 * MINUTE)]),
        (ec2("EC2 Instance Rebalance Recommendation", &json!({ "instance-id": OURS })), NoticeKind::Rebalance, vec![]),
        (state("pending"), NoticeKind::State(Ec2InstanceState::Pending), vec![]),
        (state("running"), NoticeKind::State(Ec2InstanceState::Running), vec![]),
        (state("stopping"), NoticeKind::State(Ec2InstanceState::Stopping), at_once()),
        (state("stopped"), NoticeKind::State(Ec2InstanceState::Stopped), at_once()),
        (state("shutting-down"), NoticeKind::State(Ec2InstanceState::ShuttingDown), at_once()),
        (state("terminated"), NoticeKind::State(Ec2InstanceState::Terminated), vec![gone(GoneWhy::Lost)]),
        (
            interrupted("EC2 Capacity Reservation Instance Interruption Warning"),
            NoticeKind::Reservation,
            vec![reclaim(sent + MINUTE * 3 / 2)],
        ),
        (
            interrupted("EC2 Interruptible Capacity Reservation Instance Interruption Warning"),
            NoticeKind::Reservation,
            vec![reclaim(sent + MINUTE * 3 / 2)],
        ),
    ] {
        let notice = notice(&event);
        assert_eq!((notice.kind, notice.sent), (kind, Some(SENT)), "{event}");
        assert_eq!((notice.instances.as_slice(), notice.id.len()), (&[OURS.to_owned()][..], 36), "{event}");
        let outcome = notice_events(&notice, ClockReading::same(SENT), &known(ClaimStatus::Ready));
        assert_eq!(outcome, NoticeOutcome { events: expected, ..NoticeOutcome::default() }, "{event}");
        let unknown = notice_events(&notice, ClockReading::same(SENT), &Known::default());
        assert_eq!(unknown, NoticeOutcome { foreign: 1, ..NoticeOutcome::default() }, "not ours: {event}");
    }
}

#[test]
fn a_warning_has_one_event_and_an_end_has_its_reason() {
    let state =
        |state: &str| ec2("EC2 Instance State-change Notification", &json!({ "instance-id": OURS, "state": state }));
    let warning =
        ec2("EC2 Spot Instance Interruption Warning", &json!({ "instance-id": OURS, "instance-action": "stop" }));
    for (claim_status, event, expected) in [
        (ClaimStatus::Warned, &warning, vec![reclaim(SENT.0 + 2 * MINUTE)]),
        (ClaimStatus::Ending, &warning, vec![]),
        (ClaimStatus::Warned, &state("shutting-down"), vec![]),
        (ClaimStatus::Ending, &state("shutting-down"), vec![]),
        (ClaimStatus::Ready, &state("terminated"), vec![gone(GoneWhy::Lost)]),
        // A listing has the reason.
        (ClaimStatus::Booting, &state("terminated"), vec![]),
        (ClaimStatus::Booting, &state("shutting-down"), vec![]),
        (ClaimStatus::Booting, &state("stopping"), vec![]),
        (ClaimStatus::Booting, &warning, vec![reclaim(SENT.0 + 2 * MINUTE)]),
        (ClaimStatus::Warned, &state("terminated"), vec![gone(GoneWhy::Reclaimed)]),
        (ClaimStatus::Ending, &state("terminated"), vec![gone(GoneWhy::Terminated)]),
    ] {
        assert_eq!(
            notice_events(&notice(event), ClockReading::same(SENT), &known(claim_status)).events,
            expected,
            "{claim_status:?}: {event}"
        );
    }
}

#[test]
fn a_capacity_block_ends_for_each_of_its_instances_half_an_hour_before_its_end() {
    let block = |end: Value| {
        let detail = json!({ "capacity-reservation-id": "cr-0123456789abcdef0", "end-date": end });
        let mut event = ec2("Capacity Block Expiration Warning", &detail);
        let name = event.as_object_mut().unwrap().remove("detail-type").unwrap();
        event["detail_type"] = name;
        event
    };
    let mut instances = known(ClaimStatus::Ready);
    instances.block = vec![OURS.to_owned(), "i-00000000000000001".to_owned()];
    for (event, at) in [
        (block(json!("2026-11-21T21:10:00Z")), SENT.0 + 10 * MINUTE),
        (block(json!("")), SENT.0 + 10 * MINUTE),
        (block(json!("2026-11-21T21:30:00Z")), SENT.0 + 30 * MINUTE),
    ] {
        let notice = notice(&event);
        assert_eq!((notice.kind, notice.instances.len()), (NoticeKind::BlockEnd, 0));
        let outcome = notice_events(&notice, ClockReading::same(SENT), &instances);
        assert_eq!(outcome, NoticeOutcome { events: vec![reclaim(at)], foreign: 1, later: vec![] }, "{event}");
    }
}

#[test]
fn a_scheduled_change_has_an_event_within_the_hour() {
    let change = |start: &str, entities: Value| {
        health(&json!({
            "eventArn": "arn:aws:health:us-east-2::event/EC2/AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED/1", "service": "EC2",
            "eventTypeCode": "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED", "eventTypeCategory": "scheduledChange",
            "statusCode": "upcoming", "startTime": start, "affectedEntities": entities
        }))
    };
    let ours = json!([
        { "entityValue": OURS, "status": "PENDING", "tags": { "stage": "prod" } },
        { "entityValue": format!("arn:aws:ec2:us-east-2:123456789012:instance/{OURS}") },
        { "entityValue": "i-00000000000000001" },
        { "entityValue": "i-00000000000000002", "status": "RESOLVED" },
        { "entityValue": "vol-049df61146c4d7901" }
    ]);
    let soon = notice(&change("Sat, 21 Nov 2026 21:30:00 GMT", ours.clone()));
    assert_eq!(soon.instances, [OURS, "i-00000000000000001"], "each once, and only what is open");
    let instances = known(ClaimStatus::Ready);
    let at = SENT.0 + 60 * MINUTE;
    assert_eq!(
        notice_events(&soon, ClockReading::same(SENT), &instances),
        NoticeOutcome { events: vec![reclaim(at)], foreign: 1, later: vec![] }
    );
    let earlier = Timestamp(SENT.0 - 1);
    let later = vec![FutureChange { instance: OURS.to_owned(), at: Timestamp(at) }];
    assert_eq!(
        notice_events(&soon, ClockReading::same(earlier), &instances),
        NoticeOutcome { events: vec![], foreign: 1, later }
    );
    let started = notice(&change("", ours));
    assert_eq!(notice_events(&started, ClockReading::same(SENT), &instances).events, [reclaim(SENT.0)]);
    let mut over = change("Sat, 21 Nov 2026 21:30:00 GMT", json!([{ "entityValue": OURS }]));
    over["detail"]["statusCode"] = json!("closed");
    let volumes = change("Sat, 21 Nov 2026 21:30:00 GMT", json!([{ "entityValue": "vol-049df61146c4d7901" }]));
    let mut issue = change("", json!([{ "entityValue": OURS }]));
    issue["detail"]["eventTypeCategory"] = json!("issue");
    for event in [over, volumes, issue] {
        let message = decode_message(&event.to_string(), Timestamp(1));
        assert_eq!(message, Ok(QueueMessage::Foreign { about: "aws.health: AWS Health Event".to_owned() }), "{event}");
    }
}

#[test]
fn times_of_aws_are_put_on_the_engines_clock() {
    let minutes = Span::mins;
    let warning =
        ec2("EC2 Spot Instance Interruption Warning", &json!({ "instance-id": OURS, "instance-action": "terminate" }));
    let change = health(&json!({
        "service": "EC2", "eventTypeCategory": "scheduledChange", "startTime": "Sat, 21 Nov 2026 21:20:00 GMT",
        "affectedEntities": [{ "entityValue": OURS }]
    }));
    let instances = known(ClaimStatus::Ready);
    for (aws, engine) in [
        (SENT, SENT + minutes(50)),
        (SENT, SENT - minutes(50)),
        (SENT, SENT + minutes(60 * 24 * 365)),
        (SENT + Span::secs(30), SENT + minutes(50)),
    ] {
        let clock = ClockReading { aws, engine };
        let at = |at: Timestamp| vec![reclaim((engine + at.since(aws)).0)];
        let spot = notice_events(&notice(&warning), clock, &instances);
        assert_eq!(spot.events, at(SENT + minutes(2)), "{clock:?}: what is left of the two minutes is left");
        let soon = notice_events(&notice(&change), clock, &instances);
        assert_eq!((soon.events, soon.later), (at(SENT + minutes(50)), vec![]), "{clock:?}: within the hour");
    }
    let early = ClockReading { aws: SENT - minutes(30), engine: SENT + minutes(30) };
    let outcome = notice_events(&notice(&change), early, &instances);
    let later = FutureChange { instance: OURS.to_owned(), at: SENT + minutes(110) };
    assert_eq!(outcome, NoticeOutcome { later: vec![later], ..NoticeOutcome::default() });
}

#[test]
fn an_sns_notification_is_unwrapped() {
    let event =
        ec2("EC2 Spot Instance Interruption Warning", &json!({ "instance-id": OURS, "instance-action": "stop" }));
    let wrapped = json!({
        "Type": "Notification", "MessageId": "1", "TopicArn": "arn:aws:sns:us-east-2:123456789012:t",
        "Message": event.to_string(), "Timestamp": "2026-11-21T20:30:01.000Z", "SignatureVersion": "1"
    });
    assert_eq!(notice(&wrapped), notice(&event));
    let confirm =
        json!({ "Type": "SubscriptionConfirmation", "Message": "You have chosen to subscribe", "Token": "x" });
    let message = decode_message(&confirm.to_string(), Timestamp(1));
    assert_eq!(message, Ok(QueueMessage::Foreign { about: "SNS: SubscriptionConfirmation".to_owned() }));
}

#[test]
fn an_event_without_a_time_has_the_time_of_reception() {
    let mut event =
        ec2("EC2 Spot Instance Interruption Warning", &json!({ "instance-id": OURS, "instance-action": "stop" }));
    for time in [json!(""), json!("yesterday")] {
        event["time"] = time;
        let Ok(QueueMessage::Notice(notice)) = decode_message(&event.to_string(), SENT) else { panic!("{event}") };
        assert_eq!((notice.sent, notice.at), (None, Timestamp(SENT.0 + 2 * MINUTE)));
    }
}

#[test]
fn other_events_are_foreign_and_invalid_ones_are_errors() {
    for (source, detail_type) in [
        ("aws.ec2", "EBS Volume Notification"),
        ("aws.ec2", "Capacity Block Delivered"),
        ("aws.autoscaling", "EC2 Instance Launch Successful"),
        // Only AWS can send events with a source that begins with `aws.`.
        ("my.own", "EC2 Spot Instance Interruption Warning"),
    ] {
        let event = envelope(source, detail_type, &json!({ "instance-id": OURS }));
        let about = format!("{source}: {detail_type}");
        assert_eq!(decode_message(&event.to_string(), Timestamp(1)), Ok(QueueMessage::Foreign { about }));
    }
    let spot = |detail: Value| ec2("EC2 Spot Instance Interruption Warning", &detail).to_string();
    let state = |state: &str| {
        ec2("EC2 Instance State-change Notification", &json!({ "instance-id": OURS, "state": state })).to_string()
    };
    let start = health(&json!({ "service": "EC2", "eventTypeCategory": "scheduledChange", "startTime": "\u{7}soon",
        "affectedEntities": [{ "entityValue": OURS }] }));
    let block = ec2("Capacity Block Expiration Warning", &json!({ "capacity-reservation-id": "cr-1; rm" }));
    for (body, part) in [
        (String::new(), "the message: EOF"),
        ("garbage".to_owned(), "the message: expected value"),
        ("[1]".to_owned(), "the message: invalid type"),
        ("{}".to_owned(), "`detail-type` is ``"),
        (json!({ "Type": "Notification", "Message": "no JSON" }).to_string(), "the envelope: expected"),
        (
            json!({ "source": "aws.ec2", "detail-type": "EC2 Instance Rebalance Recommendation" }).to_string(),
            "no `detail`",
        ),
        (spot(json!({})), "Interruption Warning: missing field `instance-id`"),
        (spot(json!([])), "Interruption Warning: invalid"),
        (spot(json!({ "instance-id": 7 })), "Interruption Warning: invalid type"),
        (
            spot(json!({ "instance-id": "i-\u{1b}[2J" })),
            r"`detail.instance-id` is `i-\u{1b}[2J`, which is not an instance id",
        ),
        (spot(json!({ "instance-id": "I-1234567890ABCDEF0" })), "not an instance id"),
        (spot(json!({ "instance-id": format!("i-{}", "a".repeat(100_000)) })), "not an instance id"),
        (state("sleeping"), "`detail.state` is `sleeping`"),
        (start.to_string(), r"`detail.startTime` is `\u{7}soon`"),
        (block.to_string(), "`detail.capacity-reservation-id` is `cr-1; rm`"),
        (" ".repeat(MAX_MESSAGE_BYTES + 1), "1048577 bytes"),
        ("[".repeat(MAX_MESSAGE_BYTES), "the message:"),
        (format!("{{\"detail-type\":{}", "{\"a\":".repeat(100_000)), "the message:"),
    ] {
        let error = decode_message(&body, Timestamp(1)).expect_err(part).to_string();
        assert!(error.contains(part) && error.len() < 700, "expected {part}: {error}");
    }
    let many: Vec<Value> = (0..10_001).map(|n| json!({ "entityValue": format!("i-{n:017x}") })).collect();
    let many = health(&json!({ "service": "EC2", "eventTypeCategory": "scheduledChange", "affectedEntities": many }));
    let error = decode_message(&many.to_string(), Timestamp(1)).unwrap_err();
    assert_eq!(error, NoticeError::TooMany { found: 10_001, most: 10_000 });
}

#[test]
fn damaged_messages_never_panic_or_have_an_invalid_id() {
    let bodies = [
        ec2("EC2 Spot Instance Interruption Warning", &json!({ "instance-id": OURS, "instance-action": "stop" })).to_string(),
        health(&json!({ "service": "EC2", "eventTypeCategory": "scheduledChange", "startTime": "Sat, 21 Nov 2026 21:30:00 GMT",
            "affectedEntities": [{ "entityValue": OURS }] }))
        .to_string(),
    ];
    for body in bodies {
        for at in (0..body.len()).filter(|at| body.is_char_boundary(*at)) {
            assert!(decode_message(&body[..at], SENT).is_err(), "cut at {at}");
            for with in ["", "\"", "{", "}", "\\", "\u{0}", "\u{fffd}", "9"] {
                let damaged = format!("{}{with}{}", &body[..at], body.get(at + 1..).unwrap_or_default());
                if let Ok(QueueMessage::Notice(notice)) = decode_message(&damaged, SENT) {
                    let ids = notice.instances.iter().all(|id| id.starts_with("i-") && id.len() <= 42);
                    assert!(ids && notice.at <= Timestamp(1_000 * SENT.0), "{notice:?}");
                }
            }
        }
    }
}

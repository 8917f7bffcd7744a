//! Every kind in the shape that AWS's pages give it, around it whatever may be, and what it means to the engine.

use super::*;
use forebay_engine::event::{Event, GoneWhy};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const SENT: Millis = Millis(1_795_293_000_000);
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

fn notice(event: &Value) -> Notice {
    match read(&event.to_string(), Millis(1)) {
        Ok(Message::Notice(notice)) => notice,
        other => panic!("{other:?} from {event}"),
    }
}

/// Instances as they stand, and who is in a reservation.
#[derive(Default)]
struct Known {
    standing: BTreeMap<&'static str, Standing>,
    block: Vec<String>,
}

impl Instances for Known {
    fn standing(&self, instance: &str) -> Option<Standing> {
        self.standing.get(instance).copied()
    }

    fn in_reservation(&self, reservation: &str) -> Vec<String> {
        assert_eq!(reservation, "cr-0123456789abcdef0");
        self.block.clone()
    }
}

fn stands(standing: Standing) -> Known {
    Known { standing: BTreeMap::from([(OURS, standing)]), ..Known::default() }
}

fn reclaim(at: u64) -> Event {
    Event::ReclaimNotice { instance: OURS.to_owned(), at: Millis(at) }
}

fn gone(why: GoneWhy) -> Event {
    Event::NodeGone { instance: OURS.to_owned(), why }
}

#[test]
fn every_kind_is_read_and_means_what_it_should() {
    let sent = SENT.0;
    let state =
        |state: &str| ec2("EC2 Instance State-change Notification", &json!({ "instance-id": OURS, "state": state }));
    let spot = |action: &str| {
        let detail = json!({ "instance-id": OURS, "instance-action": action });
        ec2("EC2 Spot Instance Interruption Warning", &detail)
    };
    let taken = |name: &str| {
        let detail = json!({ "instance-id": OURS, "instance-action": "terminate",
            "instance-termination-time": "2026-11-21T20:31:30Z", "azId": "use2-az1" });
        let mut event = ec2(name, &detail);
        // A text here, where every other event has a list.
        event["resources"] = json!("arn:aws:ec2:us-east-2:123456789012:instance/i-1234567890abcdef0");
        event
    };
    let at_once = || vec![reclaim(sent)];
    for (event, kind, means) in [
        (spot("terminate"), Kind::Spot(Action::Terminate), vec![reclaim(sent + 2 * MINUTE)]),
        (spot("stop"), Kind::Spot(Action::Stop), vec![reclaim(sent + 2 * MINUTE)]),
        (spot("hibernate"), Kind::Spot(Action::Hibernate), at_once()),
        (spot("newly-invented"), Kind::Spot(Action::Terminate), vec![reclaim(sent + 2 * MINUTE)]),
        (ec2("EC2 Instance Rebalance Recommendation", &json!({ "instance-id": OURS })), Kind::Rebalance, vec![]),
        (state("pending"), Kind::State(InstanceState::Pending), vec![]),
        (state("running"), Kind::State(InstanceState::Running), vec![]),
        (state("stopping"), Kind::State(InstanceState::Stopping), at_once()),
        (state("stopped"), Kind::State(InstanceState::Stopped), at_once()),
        (state("shutting-down"), Kind::State(InstanceState::ShuttingDown), at_once()),
        (state("terminated"), Kind::State(InstanceState::Terminated), vec![gone(GoneWhy::Lost)]),
        (
            taken("EC2 Capacity Reservation Instance Interruption Warning"),
            Kind::Reservation,
            vec![reclaim(sent + MINUTE * 3 / 2)],
        ),
        (
            taken("EC2 Interruptible Capacity Reservation Instance Interruption Warning"),
            Kind::Reservation,
            vec![reclaim(sent + MINUTE * 3 / 2)],
        ),
    ] {
        let read = notice(&event);
        assert_eq!((read.kind, read.sent), (kind, Some(SENT)), "{event}");
        assert_eq!((read.instances.as_slice(), read.id.len()), (&[OURS.to_owned()][..], 36), "{event}");
        let outcome = events(&read, SENT, &stands(Standing::Wanted));
        assert_eq!(outcome, Outcome { events: means, ..Outcome::default() }, "{event}");
        let strange = events(&read, SENT, &Known::default());
        assert_eq!(strange, Outcome { foreign: 1, ..Outcome::default() }, "not ours: {event}");
    }
}

#[test]
fn a_warning_is_said_once_and_an_end_says_whose_doing_it_was() {
    let state =
        |state: &str| ec2("EC2 Instance State-change Notification", &json!({ "instance-id": OURS, "state": state }));
    let warning =
        ec2("EC2 Spot Instance Interruption Warning", &json!({ "instance-id": OURS, "instance-action": "stop" }));
    for (standing, event, means) in [
        (Standing::Warned, &warning, vec![]),
        (Standing::Ending, &warning, vec![]),
        (Standing::Warned, &state("shutting-down"), vec![]),
        (Standing::Ending, &state("shutting-down"), vec![]),
        (Standing::Wanted, &state("terminated"), vec![gone(GoneWhy::Lost)]),
        // A look says why.
        (Standing::Booting, &state("terminated"), vec![]),
        (Standing::Booting, &state("shutting-down"), vec![]),
        (Standing::Booting, &state("stopping"), vec![]),
        (Standing::Booting, &warning, vec![reclaim(SENT.0 + 2 * MINUTE)]),
        (Standing::Warned, &state("terminated"), vec![gone(GoneWhy::Reclaimed)]),
        (Standing::Ending, &state("terminated"), vec![gone(GoneWhy::Terminated)]),
    ] {
        assert_eq!(events(&notice(event), SENT, &stands(standing)).events, means, "{standing:?}: {event}");
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
    let mut known = stands(Standing::Wanted);
    known.block = vec![OURS.to_owned(), "i-00000000000000001".to_owned()];
    for (event, at) in [
        (block(json!("2026-11-21T21:10:00Z")), SENT.0 + 10 * MINUTE),
        (block(json!("")), SENT.0 + 10 * MINUTE),
        (block(json!("2026-11-21T21:30:00Z")), SENT.0 + 30 * MINUTE),
    ] {
        let read = notice(&event);
        assert_eq!((read.kind, read.instances.len()), (Kind::BlockEnd, 0));
        let outcome = events(&read, SENT, &known);
        assert_eq!(outcome, Outcome { events: vec![reclaim(at)], foreign: 1, later: vec![] }, "{event}");
    }
}

#[test]
fn a_scheduled_change_is_acted_on_within_the_hour_and_told_before() {
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
    assert_eq!(soon.instances, [OURS, "i-00000000000000001"], "each once, and what is open only");
    let known = stands(Standing::Wanted);
    let at = SENT.0 + 60 * MINUTE;
    assert_eq!(events(&soon, SENT, &known), Outcome { events: vec![reclaim(at)], foreign: 1, later: vec![] });
    let earlier = Millis(SENT.0 - 1);
    let later = vec![Later { instance: OURS.to_owned(), at: Millis(at) }];
    assert_eq!(events(&soon, earlier, &known), Outcome { events: vec![], foreign: 1, later });
    let started = notice(&change("", ours));
    assert_eq!(events(&started, SENT, &known).events, [reclaim(SENT.0)]);
    let mut over = change("Sat, 21 Nov 2026 21:30:00 GMT", json!([{ "entityValue": OURS }]));
    over["detail"]["statusCode"] = json!("closed");
    let volumes = change("Sat, 21 Nov 2026 21:30:00 GMT", json!([{ "entityValue": "vol-049df61146c4d7901" }]));
    let mut issue = change("", json!([{ "entityValue": OURS }]));
    issue["detail"]["eventTypeCategory"] = json!("issue");
    for event in [over, volumes, issue] {
        let read = read(&event.to_string(), Millis(1));
        assert_eq!(read, Ok(Message::Foreign { about: "aws.health: AWS Health Event".to_owned() }), "{event}");
    }
}

#[test]
fn a_notification_of_sns_may_be_around_it() {
    let event =
        ec2("EC2 Spot Instance Interruption Warning", &json!({ "instance-id": OURS, "instance-action": "stop" }));
    let around = json!({
        "Type": "Notification", "MessageId": "1", "TopicArn": "arn:aws:sns:us-east-2:123456789012:t",
        "Message": event.to_string(), "Timestamp": "2026-11-21T20:30:01.000Z", "SignatureVersion": "1"
    });
    assert_eq!(notice(&around), notice(&event));
    let confirm =
        json!({ "Type": "SubscriptionConfirmation", "Message": "You have chosen to subscribe", "Token": "x" });
    let read = read(&confirm.to_string(), Millis(1));
    assert_eq!(read, Ok(Message::Foreign { about: "SNS: SubscriptionConfirmation".to_owned() }));
}

#[test]
fn what_has_no_time_counts_from_when_it_was_received() {
    let mut event =
        ec2("EC2 Spot Instance Interruption Warning", &json!({ "instance-id": OURS, "instance-action": "stop" }));
    for time in [json!(""), json!("yesterday")] {
        event["time"] = time;
        let Ok(Message::Notice(notice)) = read(&event.to_string(), SENT) else { panic!("{event}") };
        assert_eq!((notice.sent, notice.at), (None, Millis(SENT.0 + 2 * MINUTE)));
    }
}

#[test]
fn what_is_about_something_else_is_foreign_and_what_is_none_is_an_error_that_says_where() {
    for (source, detail_type) in [
        ("aws.ec2", "EBS Volume Notification"),
        ("aws.ec2", "Capacity Block Delivered"),
        ("aws.autoscaling", "EC2 Instance Launch Successful"),
        // Whoever may put events into the bus cannot choose a source that begins with `aws.`.
        ("my.own", "EC2 Spot Instance Interruption Warning"),
    ] {
        let event = envelope(source, detail_type, &json!({ "instance-id": OURS }));
        let about = format!("{source}: {detail_type}");
        assert_eq!(read(&event.to_string(), Millis(1)), Ok(Message::Foreign { about }));
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
            r"`detail.instance-id` is `i-\u{1b}[2J`, which is no instance's id",
        ),
        (spot(json!({ "instance-id": "I-1234567890ABCDEF0" })), "no instance's id"),
        (spot(json!({ "instance-id": format!("i-{}", "a".repeat(100_000)) })), "no instance's id"),
        (state("sleeping"), "`detail.state` is `sleeping`"),
        (start.to_string(), r"`detail.startTime` is `\u{7}soon`"),
        (block.to_string(), "`detail.capacity-reservation-id` is `cr-1; rm`"),
        (" ".repeat(MOST_BYTES + 1), "1048577 bytes"),
        ("[".repeat(MOST_BYTES), "the message:"),
        (format!("{{\"detail-type\":{}", "{\"a\":".repeat(100_000)), "the message:"),
    ] {
        let error = read(&body, Millis(1)).expect_err(part).to_string();
        assert!(error.contains(part) && error.len() < 700, "wanted {part}: {error}");
    }
    let many: Vec<Value> = (0..10_001).map(|n| json!({ "entityValue": format!("i-{n:017x}") })).collect();
    let many = health(&json!({ "service": "EC2", "eventTypeCategory": "scheduledChange", "affectedEntities": many }));
    let error = read(&many.to_string(), Millis(1)).unwrap_err();
    assert_eq!(error, NoticeError::TooMany { found: 10_001, most: 10_000 });
}

#[test]
fn no_damage_to_a_message_makes_it_panic_or_name_another_instance() {
    let bodies = [
        ec2("EC2 Spot Instance Interruption Warning", &json!({ "instance-id": OURS, "instance-action": "stop" })).to_string(),
        health(&json!({ "service": "EC2", "eventTypeCategory": "scheduledChange", "startTime": "Sat, 21 Nov 2026 21:30:00 GMT",
            "affectedEntities": [{ "entityValue": OURS }] }))
        .to_string(),
    ];
    for body in bodies {
        for at in (0..body.len()).filter(|at| body.is_char_boundary(*at)) {
            assert!(read(&body[..at], SENT).is_err(), "cut at {at}");
            for with in ["", "\"", "{", "}", "\\", "\u{0}", "\u{fffd}", "9"] {
                let damaged = format!("{}{with}{}", &body[..at], body.get(at + 1..).unwrap_or_default());
                if let Ok(Message::Notice(notice)) = read(&damaged, SENT) {
                    let ids = notice.instances.iter().all(|id| id.starts_with("i-") && id.len() <= 42);
                    assert!(ids && notice.at <= Millis(1_000 * SENT.0), "{notice:?}");
                }
            }
        }
    }
}

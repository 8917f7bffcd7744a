//! What EventBridge would put into a queue of the account's: warnings, recommendations, changes of state, blocks' ends, retirements.
//!
//! Never: a promise. What is not announced has no message, as with EC2.

use forebay_engine::catalog::CapacityType;
use forebay_engine::units::Millis;
use forebay_sim::world::hash::{Draw, draw};
use serde_json::{Value, json};

use super::instance::Instance;
use super::{MOST_MESSAGES, Region, uuid};
use crate::options::ReservationKind;

/// One message, as a queue carries it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// When it was made.
    pub at: Millis,
    /// The event's own id, the same in `body`.
    pub id: String,
    /// The event as JSON.
    pub body: String,
}

impl Region {
    pub(super) fn say_state(&mut self, instance: &Instance) {
        if self.options.state_messages {
            let detail = json!({"instance-id": instance.id, "state": instance.state.as_str()});
            self.say("aws.ec2", "EC2 Instance State-change Notification", self.arn(&instance.id), detail);
        }
    }

    pub(super) fn say_reclaim(&mut self, instance: &Instance, goes: Millis) {
        let mut detail = json!({"instance-id": instance.id, "instance-action": "terminate"});
        if instance.capacity == CapacityType::Reserved {
            detail["instance-termination-time"] = seconds(goes).into();
            detail["azId"] = self.zone_id(&instance.zone).into();
            self.say(
                "aws.ec2",
                "EC2 Capacity Reservation Instance Interruption Warning",
                self.arn(&instance.id),
                detail,
            );
        } else {
            // Its ARN has the zone where others have the region, and no account: EC2's own way.
            let arn = format!("arn:aws:ec2:{}:instance/{}", instance.zone, instance.id);
            self.say("aws.ec2", "EC2 Spot Instance Interruption Warning", arn, detail);
        }
    }

    pub(super) fn say_rebalance(&mut self, instance: &Instance) {
        let detail = json!({"instance-id": instance.id});
        self.say("aws.ec2", "EC2 Instance Rebalance Recommendation", self.arn(&instance.id), detail);
    }

    pub(super) fn say_block_ends(&mut self, reservation: &str) {
        let found = self.options.reservations.iter().find(|r| r.id == reservation);
        let Some(ReservationKind::Block { ends }) = found.map(|r| r.kind) else { return };
        let arn =
            format!("arn:aws:ec2:{}:{}:capacity-reservation/{reservation}", self.options.name, self.options.account);
        let detail = json!({"capacity-reservation-id": reservation, "end-date": seconds(ends)});
        self.say("aws.ec2", "Capacity Block Reservation Expiration Warning", arn, detail);
    }

    pub(super) fn say_retirement(&mut self, instance: &Instance, starts: Millis) {
        let code = "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED";
        let detail = json!({
            "eventArn": format!("arn:aws:health:{}::event/EC2/{code}/{code}_{}", self.options.name, instance.id),
            "service": "EC2",
            "eventTypeCode": code,
            "eventTypeCategory": "scheduledChange",
            "startTime": http_date(starts),
            "eventDescription": [{"language": "en_US", "latestDescription": "An instance of yours is scheduled for retirement."}],
            "affectedEntities": [{"entityValue": instance.id, "status": "PENDING"}],
        });
        self.say("aws.health", "AWS Health Event", instance.id.clone(), detail);
    }

    fn arn(&self, instance: &str) -> String {
        format!("arn:aws:ec2:{}:{}:instance/{instance}", self.options.name, self.options.account)
    }

    /// A zone's id, the same in every account: `use1-az1` for the first.
    pub(crate) fn zone_id(&self, zone: &str) -> String {
        let nth = self.options.zones.iter().position(|z| z == zone).map_or(0, |at| at + 1);
        let mut parts = self.options.name.split('-');
        let (area, side) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let number = parts.next().unwrap_or_default();
        format!("{area}{}{number}-az{nth}", side.chars().next().unwrap_or('x'))
    }

    fn say(&mut self, source: &str, kind: &str, resource: String, detail: Value) {
        self.ids += 1;
        let seed = self.options.seed;
        let id = uuid(draw(seed, Draw::Id, self.ids, 2), draw(seed, Draw::Id, self.ids, 3));
        let body = json!({
            "version": "0",
            "id": id,
            "detail-type": kind,
            "source": source,
            "account": self.options.account,
            "time": seconds(self.now),
            "region": self.options.name,
            "resources": [resource],
            "detail": detail,
        });
        if self.outbox.len() == MOST_MESSAGES {
            self.outbox.pop_front();
        }
        self.outbox.push_back(Message { at: self.now, id, body: body.to_string() });
    }
}

/// `2026-01-01T00:00:00Z`
pub(crate) fn seconds(at: Millis) -> String {
    written(at, "%Y-%m-%dT%H:%M:%SZ")
}

/// `2026-01-01T00:00:00.000Z`
pub(crate) fn millis(at: Millis) -> String {
    written(at, "%Y-%m-%dT%H:%M:%S.%3fZ")
}

/// `2026-01-01 00:00:00 GMT`
pub(crate) fn spaced(at: Millis) -> String {
    written(at, "%Y-%m-%d %H:%M:%S GMT")
}

/// `Thu, 1 Jan 2026 00:00:00 GMT`
fn http_date(at: Millis) -> String {
    written(at, "%a, %-d %b %Y %H:%M:%S GMT")
}

/// A time beyond what a calendar has is written as its beginning.
fn written(at: Millis, format: &str) -> String {
    let ms = i64::try_from(at.0).unwrap_or(0);
    jiff::Timestamp::from_millisecond(ms).unwrap_or_default().strftime(format).to_string()
}

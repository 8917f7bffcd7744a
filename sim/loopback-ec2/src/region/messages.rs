//! The messages that EventBridge sends to a queue of the account: warnings, recommendations, state changes, ends of Capacity Blocks, and
//! retirements.

use forebay_kernel::catalog::CapacityType;
use forebay_kernel::units::Timestamp;
use forebay_sim::world::hash::{Draw, draw};
use serde_json::{Value, json};

use super::instance::LoopbackInstance;
use super::{MAX_MESSAGES, Region, uuid};
use crate::options::ReservationKind;

/// A message of the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventMessage {
    /// When it was sent.
    pub at: Timestamp,
    /// The id of the event, which is also in `body`.
    pub id: String,
    /// The event in JSON.
    pub body: String,
}

impl Region {
    pub(super) fn emit_state_change(&mut self, instance: &LoopbackInstance) {
        if self.options.state_messages {
            let detail = json!({"instance-id": instance.id, "state": instance.state.as_str()});
            self.emit("aws.ec2", "EC2 Instance State-change Notification", self.arn(&instance.id), detail);
        }
    }

    pub(super) fn emit_reclaim_warning(&mut self, instance: &LoopbackInstance, goes: Timestamp) {
        let mut detail = json!({"instance-id": instance.id, "instance-action": "terminate"});
        if instance.capacity == CapacityType::Reserved {
            detail["instance-termination-time"] = seconds(goes).into();
            detail["azId"] = self.zone_id(&instance.zone).into();
            self.emit(
                "aws.ec2",
                "EC2 Capacity Reservation Instance Interruption Warning",
                self.arn(&instance.id),
                detail,
            );
        } else {
            // As in EC2, its ARN has the zone in place of the region, and no account.
            let arn = format!("arn:aws:ec2:{}:instance/{}", instance.zone, instance.id);
            self.emit("aws.ec2", "EC2 Spot Instance Interruption Warning", arn, detail);
        }
    }

    pub(super) fn emit_rebalance_recommendation(&mut self, instance: &LoopbackInstance) {
        let detail = json!({"instance-id": instance.id});
        self.emit("aws.ec2", "EC2 Instance Rebalance Recommendation", self.arn(&instance.id), detail);
    }

    pub(super) fn emit_block_expiration(&mut self, reservation: &str) {
        let found = self.options.reservations.iter().find(|r| r.id == reservation);
        let Some(ReservationKind::Block { ends }) = found.map(|r| r.kind) else { return };
        let arn =
            format!("arn:aws:ec2:{}:{}:capacity-reservation/{reservation}", self.options.name, self.options.account);
        let detail = json!({"capacity-reservation-id": reservation, "end-date": seconds(ends)});
        self.emit("aws.ec2", "Capacity Block Reservation Expiration Warning", arn, detail);
    }

    pub(super) fn emit_retirement(&mut self, instance: &LoopbackInstance, starts: Timestamp) {
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
        self.emit("aws.health", "AWS Health Event", instance.id.clone(), detail);
    }

    fn arn(&self, instance: &str) -> String {
        format!("arn:aws:ec2:{}:{}:instance/{instance}", self.options.name, self.options.account)
    }

    /// The id of a zone, such as `use1-az1` for the first one.
    pub(crate) fn zone_id(&self, zone: &str) -> String {
        let nth = self.options.zones.iter().position(|z| z == zone).map_or(0, |at| at + 1);
        let mut parts = self.options.name.split('-');
        let (area, side) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let number = parts.next().unwrap_or_default();
        format!("{area}{}{number}-az{nth}", side.chars().next().unwrap_or('x'))
    }

    fn emit(&mut self, source: &str, kind: &str, resource: String, detail: Value) {
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
        if self.outbox.len() == MAX_MESSAGES {
            self.outbox.pop_front();
        }
        self.outbox.push_back(EventMessage { at: self.now, id, body: body.to_string() });
    }
}

/// `2026-01-01T00:00:00Z`
pub(crate) fn seconds(at: Timestamp) -> String {
    to_response(at, "%Y-%m-%dT%H:%M:%SZ")
}

/// `2026-01-01T00:00:00.000Z`
pub(crate) fn millis(at: Timestamp) -> String {
    to_response(at, "%Y-%m-%dT%H:%M:%S.%3fZ")
}

/// `2026-01-01 00:00:00 GMT`
pub(crate) fn spaced(at: Timestamp) -> String {
    to_response(at, "%Y-%m-%d %H:%M:%S GMT")
}

/// `Thu, 1 Jan 2026 00:00:00 GMT`
fn http_date(at: Timestamp) -> String {
    to_response(at, "%a, %-d %b %Y %H:%M:%S GMT")
}

/// Formats a time. A time beyond the calendar is formatted as 1970.
fn to_response(at: Timestamp, format: &str) -> String {
    let ms = i64::try_from(at.0).unwrap_or(0);
    jiff::Timestamp::from_millisecond(ms).unwrap_or_default().strftime(format).to_string()
}

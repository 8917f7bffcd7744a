//! Decodes the details of events, with one function for each detail type. Ids are checked here, because the journal and the logs contain them.

use super::envelope::DecodedDetail;
use super::error::NoticeError;
use super::timestamp::parse_timestamp;
use super::{NoticeKind, SpotAction};
use crate::api_call::Ec2InstanceState;
use crate::settings::{BLOCK_RECLAIM_LEAD, BLOCK_WARNING_LEAD};
use forebay_kernel::units::{Span, Timestamp};
use serde::Deserialize;
use std::borrow::Cow;

/// The time from a warning to the end of the instance.
const WARNING_LEAD: Span = Span::mins(2);

/// The detail of an event, with its type.
#[derive(Clone, Copy)]
pub(super) struct RawDetail<'a> {
    pub detail_type: &'a str,
    pub json: &'a str,
}

impl<'a> RawDetail<'a> {
    fn parse<T: Deserialize<'a>>(self) -> Result<T, NoticeError> {
        serde_json::from_str(self.json).map_err(|error| NoticeError::json(self.detail_type, &error))
    }
}

/// What a detail says. `None`: it needs no action.
type Decoded = Result<Option<DecodedDetail>, NoticeError>;

/// Decodes a detail of an event that was sent at the given time.
pub(super) type Decode = fn(RawDetail<'_>, Timestamp) -> Decoded;

/// The function for a detail type. `None`: such events are not decoded.
pub(super) fn decoder(source: &str, detail_type: &str) -> Option<Decode> {
    match (source, detail_type) {
        ("aws.ec2", "EC2 Spot Instance Interruption Warning") => Some(spot),
        ("aws.ec2", "EC2 Instance Rebalance Recommendation") => Some(rebalance),
        ("aws.ec2", "EC2 Instance State-change Notification") => Some(state),
        // AWS's documentation has had both names, and so for the next.
        (
            "aws.ec2",
            "EC2 Capacity Reservation Instance Interruption Warning"
            | "EC2 Interruptible Capacity Reservation Instance Interruption Warning",
        ) => Some(reservation),
        ("aws.ec2", "Capacity Block Expiration Warning" | "Capacity Block Reservation Expiration Warning") => {
            Some(block)
        }
        ("aws.health", "AWS Health Event") => Some(health),
        _ => None,
    }
}

#[derive(Deserialize)]
struct OneInstance<'a> {
    #[serde(borrow, rename = "instance-id")]
    instance: Cow<'a, str>,
    #[serde(borrow, rename = "instance-action", default)]
    action: Cow<'a, str>,
    #[serde(borrow, rename = "instance-termination-time", default)]
    ends: Cow<'a, str>,
    #[serde(borrow, default)]
    state: Cow<'a, str>,
}

fn single(kind: NoticeKind, instance: &str, at: Timestamp) -> Decoded {
    if !is_id(instance, "i-") {
        return Err(NoticeError::bad_value("detail.instance-id", instance, "an instance id"));
    }
    Ok(Some(DecodedDetail { kind, instances: vec![instance.to_owned()], reservation: None, at }))
}

fn spot(detail: RawDetail<'_>, sent: Timestamp) -> Decoded {
    let detail: OneInstance = detail.parse()?;
    let action = match &*detail.action {
        "stop" => SpotAction::Stop,
        "hibernate" => SpotAction::Hibernate,
        _ => SpotAction::Terminate,
    };
    let at = if action == SpotAction::Hibernate { sent } else { sent + WARNING_LEAD };
    single(NoticeKind::Spot(action), &detail.instance, at)
}

fn rebalance(detail: RawDetail<'_>, sent: Timestamp) -> Decoded {
    single(NoticeKind::Rebalance, &detail.parse::<OneInstance>()?.instance, sent)
}

fn state(detail: RawDetail<'_>, sent: Timestamp) -> Decoded {
    let detail: OneInstance = detail.parse()?;
    let state = match &*detail.state {
        "pending" => Ec2InstanceState::Pending,
        "running" => Ec2InstanceState::Running,
        "stopping" => Ec2InstanceState::Stopping,
        "stopped" => Ec2InstanceState::Stopped,
        "shutting-down" => Ec2InstanceState::ShuttingDown,
        "terminated" => Ec2InstanceState::Terminated,
        other => return Err(NoticeError::bad_value("detail.state", other, "an instance state")),
    };
    single(NoticeKind::State(state), &detail.instance, sent)
}

fn reservation(detail: RawDetail<'_>, sent: Timestamp) -> Decoded {
    let detail: OneInstance = detail.parse()?;
    single(NoticeKind::Reservation, &detail.instance, parse_timestamp(&detail.ends).unwrap_or(sent + WARNING_LEAD))
}

#[derive(Deserialize)]
struct Block<'a> {
    #[serde(borrow, rename = "capacity-reservation-id")]
    reservation: Cow<'a, str>,
    #[serde(borrow, rename = "end-date", default)]
    end: Cow<'a, str>,
}

fn block(detail: RawDetail<'_>, sent: Timestamp) -> Decoded {
    let detail: Block = detail.parse()?;
    if !is_id(&detail.reservation, "cr-") {
        let path = "detail.capacity-reservation-id";
        return Err(NoticeError::bad_value(path, &detail.reservation, "a reservation id"));
    }
    let at = match parse_timestamp(&detail.end) {
        Some(end) => Timestamp(end.0.saturating_sub(BLOCK_RECLAIM_LEAD.0)),
        // The warning is sent 40 min before the end of the block.
        None => sent + BLOCK_WARNING_LEAD,
    };
    let reservation = Some(detail.reservation.into_owned());
    Ok(Some(DecodedDetail { kind: NoticeKind::BlockEnd, instances: Vec::new(), reservation, at }))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Health<'a> {
    #[serde(borrow, default)]
    service: Cow<'a, str>,
    #[serde(borrow, default)]
    event_type_category: Cow<'a, str>,
    #[serde(borrow, default)]
    status_code: Cow<'a, str>,
    #[serde(borrow, default)]
    start_time: Cow<'a, str>,
    #[serde(borrow, default)]
    affected_entities: Vec<Entity<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entity<'a> {
    #[serde(borrow, default)]
    entity_value: Cow<'a, str>,
    #[serde(borrow, default)]
    status: Cow<'a, str>,
}

/// Events that are over, and those without an instance (of a volume, a host, a region), need no action.
fn health(detail: RawDetail<'_>, sent: Timestamp) -> Decoded {
    let detail: Health = detail.parse()?;
    if detail.service != "EC2" || detail.event_type_category != "scheduledChange" || detail.status_code == "closed" {
        return Ok(None);
    }
    let open = detail.affected_entities.iter().filter(|entity| entity.status != "RESOLVED");
    // The value is the id, or an ARN that ends with it.
    let ids = open.filter_map(|entity| entity.entity_value.rsplit('/').next().filter(|id| is_id(id, "i-")));
    let instances: Vec<String> = ids.map(str::to_owned).collect();
    if instances.is_empty() {
        return Ok(None);
    }
    let at = if detail.start_time.is_empty() { Some(sent) } else { parse_timestamp(&detail.start_time) };
    let Some(at) = at else {
        return Err(NoticeError::bad_value("detail.startTime", &detail.start_time, "a time"));
    };
    Ok(Some(DecodedDetail { kind: NoticeKind::ScheduledChange, instances, reservation: None, at }))
}

/// Whether a text is an id of EC2: the prefix and 8 or 17 hexadecimal digits. Other lengths are accepted up to a bound.
fn is_id(text: &str, prefix: &str) -> bool {
    text.strip_prefix(prefix).is_some_and(|rest| (8..=40).contains(&rest.len()) && rest.bytes().all(is_hex))
}

fn is_hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

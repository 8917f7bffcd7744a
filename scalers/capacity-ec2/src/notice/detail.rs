//! The details of the events that are read, one function for each type.
//!
//! Never: an instance's id that is none; the journal and the logs would carry it.

use super::envelope::Said;
use super::error::NoticeError;
use super::time::time;
use super::{Action, InstanceState, Kind};
use forebay_engine::units::{Millis, Span};
use serde::Deserialize;
use std::borrow::Cow;

/// From a warning to the instance's end.
const WARNING: Span = Span::mins(2);
/// Instances of a Capacity Block are ended from this long before its own end.
const BLOCK_EARLIER_MS: u64 = 30 * 60 * 1000;
/// From the warning, which comes 40 min before a Capacity Block's end, to when its instances are ended.
const BLOCK_WARNING: Span = Span::mins(10);

/// Reads a detail; the time is when the event was sent. `None`: it is about nothing that is acted on.
pub(super) type Decode = fn(&str, Millis) -> Result<Option<Said>, DetailError>;

/// What is wrong with a detail, before it is said of which type.
pub(super) enum DetailError {
    Json(serde_json::Error),
    Value(NoticeError),
}

impl DetailError {
    pub fn at(self, detail_type: &str) -> NoticeError {
        match self {
            DetailError::Json(error) => NoticeError::json(detail_type, &error),
            DetailError::Value(error) => error,
        }
    }
}

/// Who reads events of this type. `None`: nobody, they are about something else.
pub(super) fn decoder(source: &str, detail_type: &str) -> Option<Decode> {
    match (source, detail_type) {
        ("aws.ec2", "EC2 Spot Instance Interruption Warning") => Some(spot),
        ("aws.ec2", "EC2 Instance Rebalance Recommendation") => Some(rebalance),
        ("aws.ec2", "EC2 Instance State-change Notification") => Some(state),
        // AWS's pages have had both names; the same for the next.
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

fn one(json: &str) -> Result<OneInstance<'_>, DetailError> {
    serde_json::from_str(json).map_err(DetailError::Json)
}

fn about(kind: Kind, instance: &str, at: Millis) -> Result<Option<Said>, DetailError> {
    if !is_id(instance, "i-") {
        return Err(DetailError::Value(NoticeError::bad("detail.instance-id", instance, "instance's id")));
    }
    Ok(Some(Said { kind, instances: vec![instance.to_owned()], reservation: None, at }))
}

fn spot(json: &str, sent: Millis) -> Result<Option<Said>, DetailError> {
    let said = one(json)?;
    let action = match &*said.action {
        "stop" => Action::Stop,
        "hibernate" => Action::Hibernate,
        _ => Action::Terminate,
    };
    let at = if action == Action::Hibernate { sent } else { sent + WARNING };
    about(Kind::Spot(action), &said.instance, at)
}

fn rebalance(json: &str, sent: Millis) -> Result<Option<Said>, DetailError> {
    about(Kind::Rebalance, &one(json)?.instance, sent)
}

fn state(json: &str, sent: Millis) -> Result<Option<Said>, DetailError> {
    let said = one(json)?;
    let state = match &*said.state {
        "pending" => InstanceState::Pending,
        "running" => InstanceState::Running,
        "stopping" => InstanceState::Stopping,
        "stopped" => InstanceState::Stopped,
        "shutting-down" => InstanceState::ShuttingDown,
        "terminated" => InstanceState::Terminated,
        other => return Err(DetailError::Value(NoticeError::bad("detail.state", other, "state of an instance"))),
    };
    about(Kind::State(state), &said.instance, sent)
}

fn reservation(json: &str, sent: Millis) -> Result<Option<Said>, DetailError> {
    let said = one(json)?;
    about(Kind::Reservation, &said.instance, time(&said.ends).unwrap_or(sent + WARNING))
}

#[derive(Deserialize)]
struct Block<'a> {
    #[serde(borrow, rename = "capacity-reservation-id")]
    reservation: Cow<'a, str>,
    #[serde(borrow, rename = "end-date", default)]
    end: Cow<'a, str>,
}

fn block(json: &str, sent: Millis) -> Result<Option<Said>, DetailError> {
    let said: Block = serde_json::from_str(json).map_err(DetailError::Json)?;
    if !is_id(&said.reservation, "cr-") {
        let path = "detail.capacity-reservation-id";
        return Err(DetailError::Value(NoticeError::bad(path, &said.reservation, "reservation's id")));
    }
    let at = match time(&said.end) {
        Some(end) => Millis(end.0.saturating_sub(BLOCK_EARLIER_MS)),
        None => sent + BLOCK_WARNING,
    };
    let reservation = Some(said.reservation.into_owned());
    Ok(Some(Said { kind: Kind::BlockEnd, instances: Vec::new(), reservation, at }))
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

/// What is over, or about no instance (a volume, a host, a whole region), is not acted on.
fn health(json: &str, sent: Millis) -> Result<Option<Said>, DetailError> {
    let said: Health = serde_json::from_str(json).map_err(DetailError::Json)?;
    if said.service != "EC2" || said.event_type_category != "scheduledChange" || said.status_code == "closed" {
        return Ok(None);
    }
    let open = said.affected_entities.iter().filter(|entity| entity.status != "RESOLVED");
    // By its id, or by an ARN that ends with it.
    let ids = open.filter_map(|entity| entity.entity_value.rsplit('/').next().filter(|id| is_id(id, "i-")));
    let instances: Vec<String> = ids.map(str::to_owned).collect();
    if instances.is_empty() {
        return Ok(None);
    }
    let at = if said.start_time.is_empty() { Some(sent) } else { time(&said.start_time) };
    let Some(at) = at else {
        return Err(DetailError::Value(NoticeError::bad("detail.startTime", &said.start_time, "time")));
    };
    Ok(Some(Said { kind: Kind::ScheduledChange, instances, reservation: None, at }))
}

/// An id of EC2: the prefix, then 8 or 17 hexadecimal digits. Other numbers of them are let pass, within reason.
fn is_id(text: &str, prefix: &str) -> bool {
    text.strip_prefix(prefix).is_some_and(|rest| (8..=40).contains(&rest.len()) && rest.bytes().all(is_hex))
}

fn is_hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

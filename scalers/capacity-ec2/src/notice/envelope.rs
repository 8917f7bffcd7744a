//! Decodes the envelope of an EventBridge event, and the SNS notification that may contain it.
//!
//! `resources` is not read: it is a list in some events and a text in others, and some of its ARNs are wrong.

use super::detail::{self, RawDetail};
use super::error::{NoticeError, printable};
use super::timestamp::parse_timestamp;
use super::{InterruptionNotice, NoticeKind, QueueMessage};
use forebay_kernel::units::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeSet;

/// The largest message of SQS, 1 MiB. Those of EventBridge have at most a quarter of it.
pub const MAX_MESSAGE_BYTES: usize = 1024 * 1024;
/// The most instances of one message. The pages of AWS Health are far smaller.
const MAX_INSTANCES: usize = 10_000;
/// The most characters of an event id, which is a UUID. Longer ones are cut.
const MAX_ID_CHARS: usize = 64;

/// The fields that are read. AWS's documentation of Capacity Blocks has `detail_type`, so both names are accepted.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default)]
    id: Cow<'a, str>,
    #[serde(borrow, default)]
    source: Cow<'a, str>,
    #[serde(borrow, rename = "detail-type", alias = "detail_type", default)]
    detail_type: Cow<'a, str>,
    #[serde(borrow, default)]
    time: Cow<'a, str>,
    #[serde(borrow)]
    detail: Option<&'a RawValue>,
}

/// The notification that SNS wraps around a message, unless raw delivery is on.
#[derive(Deserialize)]
struct SnsNotification<'a> {
    #[serde(borrow, rename = "Type")]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "Message")]
    message: Option<Cow<'a, str>>,
}

/// The content of a detail.
pub(super) struct DecodedDetail {
    pub kind: NoticeKind,
    pub instances: Vec<String>,
    pub reservation: Option<String>,
    pub at: Timestamp,
}

/// Decodes the body of a message. `received` replaces the time of an event that has none.
///
/// # Errors
/// The body is not an EventBridge event, or the detail of an event that is decoded here is invalid.
pub fn decode_message(body: &str, received: Timestamp) -> Result<QueueMessage, NoticeError> {
    if body.len() > MAX_MESSAGE_BYTES {
        return Err(NoticeError::TooLarge { bytes: body.len() });
    }
    let outer: SnsNotification =
        serde_json::from_str(body).map_err(|error| NoticeError::json("the message", &error))?;
    match (outer.kind.as_deref(), outer.message) {
        (Some("Notification"), Some(message)) => event(&message, received),
        // Such as a subscription that is to be confirmed.
        (Some(kind), _) => Ok(foreign("SNS", kind)),
        (None, _) => event(body, received),
    }
}

fn event(text: &str, received: Timestamp) -> Result<QueueMessage, NoticeError> {
    let envelope: Envelope = serde_json::from_str(text).map_err(|error| NoticeError::json("the envelope", &error))?;
    let (source, detail_type) = (&*envelope.source, &*envelope.detail_type);
    if detail_type.is_empty() {
        return Err(NoticeError::bad_value("detail-type", detail_type, "a detail type"));
    }
    let Some(decode) = detail::decoder(source, detail_type) else {
        return Ok(foreign(source, detail_type));
    };
    let Some(raw) = envelope.detail else {
        return Err(NoticeError::Malformed { part: printable(detail_type), why: "it has no `detail`".to_owned() });
    };
    let sent = parse_timestamp(&envelope.time);
    let raw = RawDetail { detail_type, json: raw.get() };
    let Some(mut detail) = decode(raw, sent.unwrap_or(received))? else {
        return Ok(foreign(source, detail_type));
    };
    if detail.instances.len() > MAX_INSTANCES {
        return Err(NoticeError::TooMany { found: detail.instances.len(), most: MAX_INSTANCES });
    }
    let mut seen = BTreeSet::new();
    detail.instances.retain(|instance| seen.insert(instance.clone()));
    let id = envelope.id.chars().take(MAX_ID_CHARS).collect();
    let DecodedDetail { kind, instances, reservation, at } = detail;
    Ok(QueueMessage::Notice(InterruptionNotice { kind, instances, reservation, at, sent, id }))
}

fn foreign(source: &str, kind: &str) -> QueueMessage {
    QueueMessage::Foreign { about: printable(&format!("{source}: {kind}")) }
}

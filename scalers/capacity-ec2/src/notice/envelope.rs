//! The envelope of an EventBridge event, and the SNS notification that may be around it.
//!
//! Never: reads `resources`: it is a list in some events and a text in others, and its ARNs are wrong in some.

use super::detail;
use super::error::{NoticeError, shown};
use super::time::time;
use super::{Kind, Message, Notice};
use forebay_engine::units::Millis;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeSet;

/// The largest message of SQS: 1 MiB. EventBridge's own have at most a quarter of it.
pub const MOST_BYTES: usize = 1024 * 1024;
/// Instances of one message. AWS Health cuts its lists into pages far below this.
const MOST_INSTANCES: usize = 10_000;
/// Ids of events are UUIDs; a longer one is cut.
const LONGEST_ID: usize = 64;

/// What Forebay reads of an envelope. AWS's pages on Capacity Blocks write `detail_type`; both are taken.
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

/// What SNS puts around a message, unless its subscription is a raw one.
#[derive(Deserialize)]
struct Around<'a> {
    #[serde(borrow, rename = "Type")]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "Message")]
    message: Option<Cow<'a, str>>,
}

/// What a detail says.
pub(super) struct Said {
    pub kind: Kind,
    pub instances: Vec<String>,
    pub reservation: Option<String>,
    pub at: Millis,
}

/// Reads the body of a message. `received`: when, for one that does not say when it was sent.
///
/// # Errors
/// It is no event of EventBridge, or one of a kind that is read here with other contents than that kind has.
pub fn read(body: &str, received: Millis) -> Result<Message, NoticeError> {
    if body.len() > MOST_BYTES {
        return Err(NoticeError::TooLarge { bytes: body.len() });
    }
    let around: Around = serde_json::from_str(body).map_err(|error| NoticeError::json("the message", &error))?;
    match (around.kind.as_deref(), around.message) {
        (Some("Notification"), Some(message)) => event(&message, received),
        // A subscription that waits to be confirmed, and the like.
        (Some(kind), _) => Ok(foreign("SNS", kind)),
        (None, _) => event(body, received),
    }
}

fn event(text: &str, received: Millis) -> Result<Message, NoticeError> {
    let envelope: Envelope = serde_json::from_str(text).map_err(|error| NoticeError::json("the envelope", &error))?;
    let (source, detail_type) = (&*envelope.source, &*envelope.detail_type);
    if detail_type.is_empty() {
        return Err(NoticeError::bad("detail-type", detail_type, "type of an event"));
    }
    let Some(decode) = detail::decoder(source, detail_type) else {
        return Ok(foreign(source, detail_type));
    };
    let Some(raw) = envelope.detail else {
        return Err(NoticeError::Malformed { place: shown(detail_type), why: "it has no `detail`".to_owned() });
    };
    let sent = time(&envelope.time);
    let said = decode(raw.get(), sent.unwrap_or(received)).map_err(|error| error.at(detail_type))?;
    let Some(mut said) = said else {
        return Ok(foreign(source, detail_type));
    };
    if said.instances.len() > MOST_INSTANCES {
        return Err(NoticeError::TooMany { found: said.instances.len(), most: MOST_INSTANCES });
    }
    let mut seen = BTreeSet::new();
    said.instances.retain(|instance| seen.insert(instance.clone()));
    let id = envelope.id.chars().take(LONGEST_ID).collect();
    let Said { kind, instances, reservation, at } = said;
    Ok(Message::Notice(Notice { kind, instances, reservation, at, sent, id }))
}

fn foreign(source: &str, what: &str) -> Message {
    Message::Foreign { about: shown(&format!("{source}: {what}")) }
}

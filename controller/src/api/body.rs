//! The body of a request, whole and within its bounds, taken apart into events as they were sent.
//!
//! Never: judges an event. One that is no JSON, or too large, is the intake's to refuse, for itself.

use super::error::ApiError;
use super::{Api, MOST_BYTES};
use crate::config::tokens::Who;
use crate::driver::HeldShare;
use crate::show::figures::short;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, header};
use forebay_wire::intake::{RejectCode, Rejected, from_headers};
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::time::Duration;
use tokio_stream::StreamExt;

/// So much of a body that is too large is read before it is refused.
const READ_AWAY: usize = 16 * MOST_BYTES;

/// A body that says nothing for so long is given up: it holds room that others wait for.
const SILENCE: Duration = Duration::from_secs(30);

/// A body that is not whole by then is given up, however steadily it comes: 4 MiB in a minute is 70 KiB a second.
const WHOLE: Duration = Duration::from_secs(60);

/// What to send instead of what is not JSON.
const AS_JSON: &str = "send one CloudEvent as a JSON object, or an array of them as application/cloudevents-batch+json";

/// One event of a request.
pub(super) enum Sent<'a> {
    /// As it stands in the body.
    Bytes(&'a [u8]),
    /// Put together from headers and body.
    Binary(Result<Value, Rejected>),
}

/// Refuses what is to be written while the journal's disk is full.
pub(super) fn writable(api: &Api) -> Result<(), ApiError> {
    api.handle.watch().borrow().paused.as_deref().map_or(Ok(()), |why| Err(ApiError::disk_full(why)))
}

/// Room for the body of a request, while events are received.
pub(super) fn admit(api: &Api, who: &Who, headers: &HeaderMap) -> Result<HeldShare, ApiError> {
    writable(api)?;
    api.room.body(&who.name, headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse().ok()))
}

/// The content type without its parameters, in lower case.
pub(super) fn content_type(headers: &HeaderMap) -> String {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// The whole body. One that is too large is read away first, to a point: a client that still writes would not see the answer.
pub(super) async fn gather(body: Body) -> Result<Vec<u8>, ApiError> {
    let (mut kept, mut read) = (Vec::new(), 0);
    let mut parts = body.into_data_stream();
    let late =
        |_| ApiError::new(408, "Slow", "the body did not come in time", "send it again, faster or in smaller pieces");
    let end = tokio::time::Instant::now() + WHOLE;
    let next = |now: tokio::time::Instant| (now + SILENCE).min(end);
    while let Some(part) =
        tokio::time::timeout_at(next(tokio::time::Instant::now()), parts.next()).await.map_err(late)?
    {
        let part = part.map_err(|_| ApiError::bad("Unreadable", "the body could not be read", "send it again"))?;
        read += part.len();
        if read <= MOST_BYTES {
            kept.extend_from_slice(&part);
        } else if read > READ_AWAY {
            break;
        }
    }
    if read > MOST_BYTES {
        let remedy = "send less at once, and refer to large things by their address";
        return Err(ApiError::new(413, "TooLarge", format!("a request may have {MOST_BYTES} bytes"), remedy));
    }
    Ok(kept)
}

/// A body that is one JSON object. `what`: as it is called in a refusal.
pub(super) async fn json<T: DeserializeOwned>(
    headers: &HeaderMap,
    body: Body,
    what: &str,
    remedy: &str,
) -> Result<T, ApiError> {
    if content_type(headers) != "application/json" {
        return Err(ApiError::new(415, "ContentType", format!("a {what} is JSON"), "send application/json"));
    }
    let body = gather(body).await?;
    serde_json::from_slice(&body)
        .map_err(|error| ApiError::bad("Malformed", format!("no {what}: {}", short(&error.to_string(), 200)), remedy))
}

/// The events of a request by its content type.
pub(super) fn split<'a>(headers: &HeaderMap, body: &'a [u8]) -> Result<Vec<Sent<'a>>, ApiError> {
    let kind = content_type(headers);
    let is_list = body.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'[');
    match kind.as_str() {
        "application/cloudevents+json" => Ok(vec![one(body)?]),
        "application/cloudevents-batch+json" if !is_list => {
            Err(ApiError::bad("Malformed", "a batch is a JSON array", "send an array of CloudEvents"))
        }
        "application/cloudevents-batch+json" => list(body),
        // One event a line: a line that is no JSON at all does not stop the others.
        "application/x-ndjson" => {
            let lines = body.split(|b| *b == b'\n').filter(|line| !line.iter().all(u8::is_ascii_whitespace));
            Ok(lines.map(Sent::Bytes).collect())
        }
        // Forms and plain text are what a foreign page can make a browser send without asking.
        "application/json" if headers.contains_key("ce-type") => Ok(vec![Sent::Binary(binary(headers, body))]),
        "application/json" if is_list => list(body),
        "application/json" => Ok(vec![one(body)?]),
        _ => {
            let remedy = "send application/cloudevents+json, application/cloudevents-batch+json, application/x-ndjson or \
                          application/json";
            Err(ApiError::new(415, "ContentType", "events are not taken as this content type", remedy))
        }
    }
}

fn malformed(error: &serde_json::Error) -> ApiError {
    ApiError::bad("Malformed", format!("not JSON: {error}"), AS_JSON)
}

fn one(body: &[u8]) -> Result<Sent<'_>, ApiError> {
    serde_json::from_slice::<&RawValue>(body).map(|raw| Sent::Bytes(raw.get().as_bytes())).map_err(|e| malformed(&e))
}

fn list(body: &[u8]) -> Result<Vec<Sent<'_>>, ApiError> {
    let raw: Vec<&RawValue> = serde_json::from_slice(body).map_err(|e| malformed(&e))?;
    Ok(raw.into_iter().map(|raw| Sent::Bytes(raw.get().as_bytes())).collect())
}

fn binary(headers: &HeaderMap, body: &[u8]) -> Result<Value, Rejected> {
    if body.len() > forebay_wire::intake::MOST_BYTES {
        let message = format!(
            "{} bytes; an event may have {}: refer to large things by their address",
            body.len(),
            forebay_wire::intake::MOST_BYTES
        );
        return Err(Rejected { code: RejectCode::TooLarge, path: "$".to_owned(), message });
    }
    let attributes =
        headers.iter().filter(|(name, _)| ["ce-", "ce_"].iter().any(|prefix| name.as_str().starts_with(prefix)));
    let attributes: Vec<(&str, String)> = attributes
        .map(|(name, value)| Ok((name.as_str(), decoded(name.as_str(), value)?)))
        .collect::<Result<_, _>>()?;
    from_headers(attributes.iter().map(|(name, value)| (*name, value.as_str())), body)
}

/// An attribute of an event as a header has it: by the HTTP binding of CloudEvents, blanks, quotes, `%` and all but ASCII are percent-encoded there.
fn decoded(name: &str, value: &HeaderValue) -> Result<String, Rejected> {
    let text = percent_encoding::percent_decode(value.as_bytes()).decode_utf8();
    text.map(Cow::into_owned).map_err(|_| {
        let message = format!("the header `{name}` is no UTF-8 once it is decoded; send its UTF-8, percent-encoded");
        Rejected { code: RejectCode::Malformed, path: "$".to_owned(), message }
    })
}

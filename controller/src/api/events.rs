//! `POST /v1/events`: CloudEvents over HTTP, structured, batch and binary, and bare JSON objects with a `type`.
//!
//! ```text
//! body -> events -> intake, each for itself -> one submission -> durable -> 202 {"accepted", "rejected"}
//! ```
//!
//! Never: answers 202 before the write is durable; lets one bad event stop the others.

use super::error::ApiError;
use super::{Api, MOST_BYTES};
use crate::driver::{MOST_EVENTS, Outcome};
use crate::intake::rejected::refused_path;
use crate::intake::{Decoded, Intake, Rejected, from_headers};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use forebay_engine::event::Event;
use forebay_engine::ids::JobId;
use forebay_engine::reason::Reason;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_stream::StreamExt;

/// So much of a body that is too large is read before it is refused.
const READ_AWAY: usize = 16 * MOST_BYTES;

/// What became of the events of one request.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Taken {
    /// Durable.
    pub accepted: Vec<TakenEvent>,
    /// Not taken, and why.
    pub rejected: Vec<RefusedEvent>,
}

/// An event that is durable.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TakenEvent {
    /// Its job, such as `job-17`. Null for events that are about none.
    pub job: Option<String>,
    /// The job's subject.
    pub subject: Option<String>,
    /// Whether it said anything new: the same submission again, or the cancellation of what is over, does not.
    pub new: bool,
    /// What was not understood and is carried along.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// An event that was not taken.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RefusedEvent {
    /// Its position in the request, from 0.
    pub index: usize,
    /// Its subject, where it has one.
    pub subject: Option<String>,
    /// Its job, where it became one that can never run. A status `rejected` says so too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// A stable code.
    pub code: String,
    /// The JSON path of what is wrong.
    pub path: String,
    /// What is wrong and what to do about it.
    pub message: String,
}

pub(super) async fn post(State(api): State<Api>, headers: HeaderMap, body: Body) -> Result<Response, ApiError> {
    let body = gather(body).await?;
    let events = split(&headers, &body)?;
    if events.len() > MOST_EVENTS {
        let message = format!("{} events at once are too many", events.len());
        return Err(ApiError::new(413, "TooMany", message, format!("send at most {MOST_EVENTS} events at once")));
    }
    let (taken, all_bad) = submit(&api, &events).await?;
    let status = if all_bad { StatusCode::BAD_REQUEST } else { StatusCode::ACCEPTED };
    if !all_bad {
        return Ok((status, Json(taken)).into_response());
    }
    // All bad: the usual error, with every rejection beside it.
    let first = taken.rejected.first().map(|r| (r.code.clone(), format!("{}: {}", r.path, r.message)));
    let (code, message) = first.unwrap_or_else(|| ("Empty".to_owned(), "there is no event in the request".to_owned()));
    let remedy = "mend the event; `forebay schema event` says what it may hold";
    let error = serde_json::json!({ "code": code, "message": message, "remedy": remedy });
    let body = serde_json::json!({ "error": error, "accepted": [], "rejected": taken.rejected });
    Ok((status, Json(body)).into_response())
}

/// The whole body. One that is too large is read away first, to a point: a client that still writes would not see the answer.
async fn gather(body: Body) -> Result<Vec<u8>, ApiError> {
    let (mut kept, mut read) = (Vec::new(), 0);
    let mut parts = body.into_data_stream();
    while let Some(part) = parts.next().await {
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

/// The events of a request by its content type.
fn split(headers: &HeaderMap, body: &[u8]) -> Result<Vec<Result<Value, Rejected>>, ApiError> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let json = |body| -> Result<Value, ApiError> {
        let remedy = "send one CloudEvent as a JSON object, or an array of them as application/cloudevents-batch+json";
        serde_json::from_slice(body).map_err(|e| ApiError::bad("Malformed", format!("not JSON: {e}"), remedy))
    };
    match kind.as_str() {
        "application/cloudevents+json" => Ok(vec![Ok(json(body)?)]),
        "application/cloudevents-batch+json" => match json(body)? {
            Value::Array(events) => Ok(events.into_iter().map(Ok).collect()),
            _ => Err(ApiError::bad("Malformed", "a batch is a JSON array", "send an array of CloudEvents")),
        },
        // Forms and plain text are what a foreign page can make a browser send without asking.
        "application/json" if headers.contains_key("ce-type") => {
            let attributes = headers.iter().filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
            Ok(vec![from_headers(attributes, body)])
        }
        "application/json" => match json(body)? {
            Value::Array(events) => Ok(events.into_iter().map(Ok).collect()),
            event => Ok(vec![Ok(event)]),
        },
        _ => {
            let remedy = "send application/cloudevents+json, application/cloudevents-batch+json or application/json";
            Err(ApiError::new(415, "ContentType", "events are not taken as this content type", remedy))
        }
    }
}

async fn submit(api: &Api, events: &[Result<Value, Rejected>]) -> Result<(Taken, bool), ApiError> {
    let intake = Intake { caller: &api.caller, routes: api.routes.as_ref(), key: api.key.as_deref() };
    let mut taken = Taken::default();
    let mut decoded: Vec<(usize, Decoded)> = Vec::new();
    for (index, event) in events.iter().enumerate() {
        let subject = event.as_ref().ok().and_then(|e| e.get("subject")).and_then(Value::as_str).map(str::to_owned);
        match event.as_ref().map_err(Clone::clone).and_then(|e| intake.decode_value(e)) {
            Ok(one) => decoded.push((index, one)),
            Err(why) => taken.rejected.push(RefusedEvent {
                index,
                subject,
                job: None,
                code: why.code.as_str().to_owned(),
                path: why.path,
                message: why.message,
            }),
        }
    }
    if decoded.is_empty() {
        return Ok((taken, true));
    }
    let batch = decoded.iter().map(|(_, one)| (one.event.clone(), one.id)).collect();
    let durable = api.handle.submit_known(batch).await?;
    for ((index, one), outcome) in decoded.into_iter().zip(durable.outcomes) {
        answer(&mut taken, index, one, outcome);
    }
    taken.rejected.sort_by_key(|r| r.index);
    let all_bad = taken.accepted.is_empty();
    Ok((taken, all_bad))
}

/// What became of one event that was decoded.
fn answer(taken: &mut Taken, index: usize, one: Decoded, outcome: Outcome) {
    let subject = match &one.event {
        Event::JobSubmitted(spec) => Some(spec.subject.clone()),
        Event::JobCancelled { subject, .. } => Some(subject.clone()),
        _ => one.envelope.subject.clone(),
    };
    let (job, new) = match outcome {
        Outcome::Job(id) => (Some(id.to_string()), true),
        Outcome::Known(id) => (Some(id.to_string()), false),
        Outcome::Seen(id) => (id.map(|id| id.to_string()), false),
        Outcome::Taken => (None, true),
        Outcome::Ignored | Outcome::Unreadable => (None, false),
        Outcome::Rejected(id, reason) => return taken.rejected.push(refused(index, subject, Some(id), reason)),
        Outcome::Refused(reason) => return taken.rejected.push(refused(index, subject, None, reason)),
    };
    taken.accepted.push(TakenEvent { job, subject, new, warnings: one.warnings });
}

fn refused(index: usize, subject: Option<String>, job: Option<JobId>, reason: Reason) -> RefusedEvent {
    let path = refused_path(reason);
    let (code, message) = (reason.code().to_owned(), reason.to_string());
    RefusedEvent { index, subject, job: job.map(|id| id.to_string()), code, path: path.to_owned(), message }
}

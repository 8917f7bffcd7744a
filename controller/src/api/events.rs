//! `POST /v1/events`: CloudEvents over HTTP, structured, batch and binary, bare JSON objects with a `type`, and one of them a line.
//!
//! ```text
//! body -> events -> intake, each for itself -> one submission: may this caller? -> durable -> 202 {"accepted", "rejected"}
//! ```
//!
//! Never: answers 202 before the write is durable; lets one bad event stop the others; repeats what a stranger sent without bound.

use super::Api;
use super::auth::Submitter;
use super::body::{Sent, admit, gather, split};
use super::checked::checked;
use super::error::ApiError;
use super::visible::{queue_takes, refusal};
use crate::config::tokens::Who;
use crate::document::reason::reason_view;
use crate::document::write::{self, job_number};
use crate::driver::{Accepted, ItemOutcome, LiveProgress, MOST_EVENTS, SubmittedItem};
use crate::intake::rejected::refused_path;
use crate::show::figures::{length, short};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use forebay_driver::live::{SenderRule, SourceObserver as _};
use forebay_engine::engine::Engine;
use forebay_kernel::event::Event;
use forebay_kernel::ids::JobId;
use forebay_kernel::job::JobSpec;
use forebay_kernel::reason::Reason;
use forebay_kernel::state::State as EngineState;
use forebay_kernel::units::Timestamp;
use forebay_quantity::slip::did_you_mean;
use forebay_source::Receipt;
use forebay_wire::document::reason::{ReasonView, figures};
use forebay_wire::intake::{Decoded, EventId, Intake, MOST_SUBJECT, Rejected};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::watch;

/// Warnings in an answer, over all of its events: somebody reads them.
pub(crate) const MOST_WARNINGS: usize = 100;

/// Characters of each.
const MOST_WARNING: usize = 300;

/// Refusals of an answer that say all that the state knows. Further ones have their code and its own words.
const MOST_HELPED: usize = 32;

/// A body of so many bytes is decoded where it came in, if no route is evaluated: that takes less than handing it over.
const DECODED_AT_ONCE: usize = 16 * 1024;

/// What became of the events of one request.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Taken {
    /// Durable, in the order of the request.
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
    /// The code's figures; units are in their names.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub figures: Map<String, Value>,
}

pub(super) async fn post(
    State(api): State<Api>,
    Submitter(who): Submitter,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    // Until its events are in the journal, for so long they wait in memory.
    let _room = admit(&api, &who, &headers)?;
    let counted = |error: &ApiError| api.sources.http().rejected(error.code());
    let body = gather(body).await.inspect_err(counted)?;
    let (asked, taken) = decoded(&api, &who, headers, body).await.inspect_err(counted)?;
    let taken = submit(&api, &who, asked, taken).await?;
    if !taken.accepted.is_empty() {
        return Ok((StatusCode::ACCEPTED, Json(taken)).into_response());
    }
    // All bad: the usual error, with every rejection beside it.
    let first = taken.rejected.first().map(|r| (r.code.clone(), format!("{}: {}", r.path, r.message)));
    let (code, message) = first.unwrap_or_else(|| ("Empty".to_owned(), "there is no event in the request".to_owned()));
    let remedy = match code.as_str() {
        "TenantFull" | "TooManyQueues" => "send it again when there is room again; the message says of what",
        _ => "mend the event; `forebay schema event` says what it may hold",
    };
    let error = serde_json::json!({ "code": code, "message": message, "remedy": remedy });
    let body = serde_json::json!({ "error": error, "accepted": [], "rejected": taken.rejected });
    Ok((StatusCode::BAD_REQUEST, Json(body)).into_response())
}

/// No more events than a batch takes.
fn few(events: Vec<Sent<'_>>) -> Result<Vec<Sent<'_>>, ApiError> {
    if events.len() <= MOST_EVENTS {
        return Ok(events);
    }
    let message = format!("{} events at once are too many", events.len());
    Err(ApiError::new(413, "TooMany", message, format!("send at most {MOST_EVENTS} events at once")))
}

/// An event that was decoded.
pub(super) struct Asked {
    pub event: Event,
    /// By what it is known when it comes again.
    pub id: Option<EventId>,
    /// The manifest that a report of a checkpoint names.
    pub manifest: Option<String>,
    pub sender: Unanswered,
}

/// What the answer to an event needs.
pub(super) struct Unanswered {
    pub index: usize,
    pub subject: Option<String>,
    pub warnings: Vec<String>,
}

/// The events of a request, on a thread that may take its time: one request's expressions keep no other's answer waiting.
async fn decoded(
    api: &Api,
    who: &Arc<Who>,
    headers: HeaderMap,
    body: Vec<u8>,
) -> Result<(Vec<Asked>, Taken), ApiError> {
    if body.len() <= DECODED_AT_ONCE && api.options.routes.is_trivial() {
        return decode(api, who, &headers, &body);
    }
    // It is never closed.
    let turn = Arc::clone(&who.decodes).acquire_owned().await.ok();
    let (api, who) = (api.clone(), Arc::clone(who));
    let decoding = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        decode(&api, &who, &headers, &body)
    });
    decoding
        .await
        .map_err(|e| ApiError::new(500, "Undecoded", e.to_string(), "report this with the controller's log"))?
}

fn decode(api: &Api, who: &Who, headers: &HeaderMap, body: &[u8]) -> Result<(Vec<Asked>, Taken), ApiError> {
    let sent = split(headers, body).and_then(few)?;
    let intake = Intake { caller: &who.caller, routes: api.routes.as_ref(), key: api.key.as_ref() };
    let mut taken = Taken::default();
    let mut asked = Vec::new();
    for (index, one) in sent.into_iter().enumerate() {
        let (decoded, bytes) = match one {
            Sent::Bytes(bytes) => (intake.decode(bytes), bytes),
            Sent::Binary(event) => (event.and_then(|e| intake.decode_value(&e)), &b""[..]),
        };
        match decoded {
            Ok(Decoded { event, envelope, warnings, id, manifest }) => {
                let sender = Unanswered { index, subject: subject_of(&event).or(envelope.subject), warnings };
                asked.push(Asked { event, id, manifest, sender });
            }
            Err(why) => taken.rejected.push(rejected(index, bytes, &why)),
        }
    }
    Ok((asked, taken))
}

async fn submit(api: &Api, who: &Arc<Who>, mut asked: Vec<Asked>, mut taken: Taken) -> Result<Taken, ApiError> {
    let now = api.handle.watch().borrow().now;
    asked.iter_mut().for_each(|one| one.sender.warnings.extend(past_deadline(&one.event, now)));
    let asked = checked(api, asked, &mut taken).await?;
    if !asked.is_empty() {
        let (senders, events): (Vec<_>, _) = asked.into_iter().map(|one| (one.sender, (one.event, one.id))).unzip();
        for (sender, outcome) in senders.into_iter().zip(durable_as(api, &who.name, rule(who), events).await?.outcomes)
        {
            answer(&mut taken, sender, outcome);
        }
    }
    taken.rejected.sort_by_key(|r| r.index);
    help(api, who, &mut taken).await?;
    count(api, &taken);
    Ok(taken)
}

/// A deadline that is over before its job has come.
fn past_deadline(event: &Event, now: Timestamp) -> Option<String> {
    let (Event::JobSubmitted(spec) | Event::JobSubmittedAgain { spec, .. }) = event else { return None };
    let over = spec.deadline.filter(|deadline| *deadline <= now)?;
    let ago = length(now.since(over).0);
    Some(format!("`data.deadline` was over {ago} ago: the job runs as one without a deadline and is counted as missed"))
}

/// Says of jobs that can never run all that the state knows of why, with what was meant by names that nobody has. Of the first ones:
/// the question keeps others waiting.
async fn help(api: &Api, who: &Arc<Who>, taken: &mut Taken) -> Result<(), ApiError> {
    let number = |event: &RefusedEvent| job_number(event.job.as_deref()?);
    let jobs: Vec<(usize, JobId)> =
        (0..).zip(&taken.rejected).filter_map(|(at, event)| Some((at, number(event)?))).take(MOST_HELPED).collect();
    if jobs.is_empty() {
        return Ok(());
    }
    let judge = Arc::clone(who);
    let ask = move |engine: &Engine, _: &_| {
        let state = engine.state();
        let told = |(at, job): (usize, JobId)| {
            let (row, spec) = state.job(job)?;
            Some((at, reason_view(row.reason?, state, Some(job)), meant(state, &judge, spec)))
        };
        jobs.into_iter().filter_map(told).collect::<Vec<_>>()
    };
    for (at, ReasonView { message, figures, .. }, meant) in api.ask(who, ask).await? {
        let event = &mut taken.rejected[at];
        (event.message, event.figures) = (message, figures);
        event.message.extend(meant.map(|meant| format!(": {meant}")));
    }
    Ok(())
}

/// What a submission may have meant by names that nobody has.
fn meant(state: &EngineState, who: &Who, spec: &JobSpec) -> Option<String> {
    let policy = state.policy()?;
    let near = |what: &str, given: &str, known: Vec<&str>| {
        let nearest = did_you_mean(given, known).map_or_else(String::new, |asked| format!(": {asked}"));
        format!("there is no {what} `{}`{nearest}", short(given, 60))
    };
    if write::rule_of(policy, &spec.queue).is_none() {
        let own = policy.queues.keys().map(String::as_str).filter(|queue| queue_takes(state, who, queue));
        return Some(near("queue", &spec.queue, own.collect()));
    }
    if let Some(tier) = spec.tier.as_deref().filter(|tier| state.declared_tier(tier).is_none()) {
        return Some(near("tier", tier, policy.tiers.iter().map(|tier| tier.name.as_str()).collect()));
    }
    let models: BTreeSet<&str> = policy.offerings.iter().flat_map(|offer| &offer.models).map(String::as_str).collect();
    let model = spec.models.iter().find(|model| !models.contains(model.as_str()))?;
    Some(near("model", model, models.into_iter().collect()))
}

/// The figures of HTTP, beside those of the sources.
fn count(api: &Api, taken: &Taken) {
    let figures = api.sources.http();
    let new = taken.accepted.iter().filter(|event| event.new).count();
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    figures.durable(Receipt { taken: number(new), seen: number(taken.accepted.len() - new), ..Receipt::default() });
    figures.record_warnings(taken.accepted.iter().map(|event| event.warnings.len()).sum());
    taken.rejected.iter().for_each(|event| figures.rejected(&event.code));
}

/// What this caller may ask for.
fn rule(who: &Arc<Who>) -> Option<SenderRule> {
    if who.operates() {
        return None;
    }
    let who = Arc::clone(who);
    Some(Arc::new(move |state, event| refusal(state, &who, event)))
}

/// Waits until events are durable, or until it is known that they cannot be for now.
pub(super) async fn durable(
    api: &Api,
    sender: &Arc<str>,
    events: Vec<(Event, Option<EventId>)>,
) -> Result<Accepted, ApiError> {
    durable_as(api, sender, None, events).await
}

async fn durable_as(
    api: &Api,
    sender: &Arc<str>,
    rule: Option<SenderRule>,
    events: Vec<(Event, Option<EventId>)>,
) -> Result<Accepted, ApiError> {
    let mut progress = api.handle.watch();
    let items = events.into_iter().map(|(event, id)| SubmittedItem { id, ..event.into() }).collect();
    tokio::select! {
        taken = api.handle.submit_as(sender, rule, items) => Ok(taken?),
        why = paused(&mut progress) => Err(ApiError::disk_full(&why)),
    }
}

/// Resolves when nothing is received any more, with why.
async fn paused(progress: &mut watch::Receiver<LiveProgress>) -> String {
    let paused = progress.wait_for(|p| p.paused.is_some()).await.ok().and_then(|p| p.paused.clone());
    match paused {
        Some(why) => why,
        // The driver has gone: whoever waits for it is told by its mailbox.
        None => std::future::pending().await,
    }
}

fn subject_of(event: &Event) -> Option<String> {
    match event {
        Event::JobSubmitted(spec) => Some(spec.subject.clone()),
        Event::JobCancelled { subject, .. } => Some(subject.clone()),
        _ => None,
    }
}

/// What became of one event that was decoded.
fn answer(taken: &mut Taken, sender: Unanswered, outcome: ItemOutcome) {
    let Unanswered { index, subject, warnings } = sender;
    let (job, new) = match outcome {
        ItemOutcome::Job(id) => (Some(id.to_string()), true),
        ItemOutcome::Known(id) => (Some(id.to_string()), false),
        ItemOutcome::Seen(id) => (id.map(|id| id.to_string()), false),
        ItemOutcome::Taken => (None, true),
        ItemOutcome::Ignored | ItemOutcome::Unreadable => (None, false),
        ItemOutcome::Rejected(id, reason) => return taken.rejected.push(refused(index, subject, Some(id), reason)),
        ItemOutcome::Refused(reason) => return taken.rejected.push(refused(index, subject, None, reason)),
    };
    if warnings.is_empty() {
        return taken.accepted.push(TakenEvent { job, subject, new, warnings });
    }
    let room = MOST_WARNINGS - taken.accepted.iter().map(|t| t.warnings.len()).sum::<usize>().min(MOST_WARNINGS);
    let more = warnings.len().saturating_sub(room);
    let mut told: Vec<String> = warnings.iter().take(room).map(|w| short(w, MOST_WARNING)).collect();
    if let Some(last) = told.last_mut().filter(|_| more > 0) {
        *last = format!("{} warnings more are left out", more + 1);
    }
    taken.accepted.push(TakenEvent { job, subject, new, warnings: told });
}

/// An event that intake did not take. Its own words are cut: it may be anything.
fn rejected(index: usize, bytes: &[u8], why: &Rejected) -> RefusedEvent {
    #[derive(Deserialize)]
    struct Named<'a> {
        #[serde(borrow)]
        subject: Option<Cow<'a, str>>,
    }
    let bytes = if bytes.len() > forebay_wire::intake::MOST_BYTES { b"" } else { bytes };
    let subject = serde_json::from_slice::<Named<'_>>(bytes).ok().and_then(|named| named.subject);
    RefusedEvent {
        index,
        subject: subject.map(|s| short(&s, MOST_SUBJECT)),
        job: None,
        code: why.code.as_str().to_owned(),
        path: short(&why.path, MOST_WARNING),
        message: why.message.clone(),
        figures: Map::new(),
    }
}

fn refused(index: usize, subject: Option<String>, job: Option<JobId>, reason: Reason) -> RefusedEvent {
    let path = refused_path(reason);
    let (code, message) = (reason.code().to_owned(), reason.to_string());
    let (job, path, figures) = (job.map(|id| id.to_string()), path.to_owned(), figures(reason, None));
    RefusedEvent { index, subject, job, code, path, message, figures }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whoever_waits_hears_that_the_disk_is_full() {
        let (to, mut progress) = watch::channel(LiveProgress::default());
        let why = Some("the disk is full".to_owned());
        let tell = async { to.send_modify(|p| p.paused.clone_from(&why)) };
        let (heard, ()) = tokio::join!(paused(&mut progress), tell);
        assert_eq!(Some(heard), why);
    }

    #[test]
    fn warnings_are_told_up_to_a_number_over_all_events() {
        let mut taken = Taken::default();
        for index in 0..3 {
            let warnings = (0..60).map(|n| format!("{n} {}", "w".repeat(1_000))).collect();
            answer(&mut taken, Unanswered { index, subject: None, warnings }, ItemOutcome::Taken);
        }
        let counts: Vec<usize> = taken.accepted.iter().map(|t| t.warnings.len()).collect();
        assert_eq!(counts, [60, 40, 0]);
        assert_eq!(taken.accepted[1].warnings[39], "21 warnings more are left out");
        assert!(taken.accepted.iter().flat_map(|t| &t.warnings).all(|w| w.chars().count() <= MOST_WARNING));
    }
}

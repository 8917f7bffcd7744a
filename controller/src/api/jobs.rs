//! One job: now or when it is over, why it waits, and its cancellation.
//!
//! Never: a job that the caller may not see.

use super::Api;
use super::archive::FoundInArchive;
use super::audit::Act;
use super::auth::{Reader, Submitter};
use super::body::writable;
use super::cost::{ChargedJob, of_jobs};
use super::error::ApiError;
use super::events::durable;
use super::find::{Name, Place, find_anywhere};
use super::starts::{Outlook, StartView};
use crate::config::tokens::Who;
use crate::document::write;
use crate::driver::ItemOutcome;
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use forebay_engine::engine::Engine;
use forebay_kernel::event::Event;
use forebay_kernel::ids::JobId;
use forebay_kernel::units::Timestamp;
use forebay_wire::document::reason::ReasonView;
use forebay_wire::document::seconds::Seconds;
use forebay_wire::document::views::{JobPhase, JobView};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// The longest wait of one request. Clients ask again.
pub const LONGEST_WAIT: Duration = Duration::from_secs(600);

/// One job.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct OneJob {
    /// The engine's time.
    pub now_s: Seconds,
    /// Whether nothing follows.
    pub terminal: bool,
    /// What Kubernetes says of its pods, in its own words, such as `worker 0: ImagePullBackOff: ...`. Absent where it says nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kubernetes: Vec<String>,
    /// The job.
    #[serde(flatten)]
    pub job: JobView,
}

/// The same, with what it has cost.
#[derive(Serialize)]
pub(super) struct CostedJob {
    /// The job.
    #[serde(flatten)]
    one: OneJob,
    /// US dollars with at most six decimals. Absent: it was not asked for, or is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    cost_usd: Option<f64>,
}

/// A job whose end is asked for, and whose it is.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CancelledJob {
    /// Who submitted it, in its tenant. Absent: the server is of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// Whether that is who asks for its end.
    #[serde(default)]
    pub own: bool,
    /// The job.
    #[serde(flatten)]
    pub one: OneJob,
}

/// Why a job is where it is.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Why {
    /// The engine's time.
    pub now_s: Seconds,
    /// Which job.
    pub job: String,
    /// Its subject.
    pub subject: Option<String>,
    /// Where in its life it is.
    pub phase: JobPhase,
    /// Null where there is nothing to say: it runs, or it is completed.
    pub reason: Option<ReasonView>,
    /// Where it stands among those of its queue that wait, by tier, deadline, priority and arrival: 1 is the next. Null where it does not wait there,
    /// where the queue goes by expected durations, or where more than 20,000 kinds of jobs wait.
    #[serde(default)]
    pub position: Option<u64>,
    /// When it is expected to start. Null where it does not wait.
    #[serde(default)]
    pub start: Option<StartView>,
    /// What Kubernetes says of its pods, in its own words, such as `worker 0: ImagePullBackOff: ...`. Absent where it says nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kubernetes: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OneQuery {
    #[serde(rename = "waitFor")]
    wait_for: Option<String>,
    timeout: Option<String>,
    /// Whether what it has cost is asked for.
    #[serde(default)]
    cost: bool,
}

pub(super) fn query<T>(found: Result<Query<T>, QueryRejection>) -> Result<T, ApiError> {
    let refused =
        |e: QueryRejection| ApiError::bad("BadQuery", e.body_text(), "see docs/API.md for the parameters of this path");
    found.map(|Query(q)| q).map_err(refused)
}

pub(super) async fn one(
    State(api): State<Api>,
    Reader(who): Reader,
    Name(name): Name,
    asked: Result<Query<OneQuery>, QueryRejection>,
) -> Result<Json<CostedJob>, ApiError> {
    let asked = query(asked)?;
    let wait = match asked.wait_for.as_deref() {
        None => Duration::ZERO,
        Some("terminal") => asked.timeout.as_deref().map_or(Ok(Duration::from_secs(30)), span)?.min(LONGEST_WAIT),
        Some(_) => return Err(ApiError::bad("BadQuery", "`waitFor` knows `terminal` only", "write waitFor=terminal")),
    };
    let (id, one) = match find_anywhere(&api, &who, &name).await? {
        Place::State(id) => (id, waited(&api, &who, id, wait).await?),
        Place::Archive(found) => (found.id, OneJob::over(found)),
    };
    let cost_usd = if asked.cost { cost_of(&api, &who, id, &one.job).await? } else { None };
    Ok(Json(CostedJob { one, cost_usd }))
}

/// What a job has cost, in US dollars. `None`: that is not known, or it is a replica, which is charged to its service.
async fn cost_of(api: &Api, who: &Arc<Who>, id: JobId, job: &JobView) -> Result<Option<f64>, ApiError> {
    if job.of.is_some() {
        return Ok(None);
    }
    let accepted = job.submit_s.map(Timestamp::from).unwrap_or_default();
    let charged = ChargedJob { id, accepted, ended: job.ended_s.map(Timestamp::from) };
    Ok(of_jobs(api, who, vec![charged]).await?.remove(&id))
}

/// A job of the state as it is when it is over, or after so long.
async fn waited(api: &Api, who: &Arc<Who>, id: JobId, wait: Duration) -> Result<OneJob, ApiError> {
    let _place = if wait.is_zero() { None } else { Some(api.room.waiter(&who.name)?) };
    let end = tokio::time::Instant::now() + wait;
    loop {
        let over = if wait.is_zero() { None } else { Some(register(api, id)?) };
        let found = look(api, who, id).await?;
        let Some(over) = over else { return Ok(found) };
        let mut ending = api.ending.clone();
        if found.terminal || *ending.borrow() || tokio::time::Instant::now() >= end {
            return Ok(found);
        }
        tokio::select! {
            _ = over => {}
            _ = tokio::time::sleep_until(end) => {}
            _ = ending.wait_for(|e| *e) => {}
        }
    }
}

fn register(api: &Api, id: JobId) -> Result<tokio::sync::oneshot::Receiver<()>, ApiError> {
    let full = || {
        ApiError::new(429, "Busy", "too many requests wait for jobs", "ask again after the time in Retry-After")
            .retry_after(5)
    };
    api.waiters.register(id).ok_or_else(full)
}

fn span(text: &str) -> Result<Duration, ApiError> {
    let parsed = text.parse::<jiff::SignedDuration>().ok().and_then(|d| Duration::try_from(d).ok());
    parsed.ok_or_else(|| ApiError::bad("BadQuery", "`timeout` is not a length of time", "write it as 30s or 10m"))
}

impl OneJob {
    /// A job of the archive.
    fn over(found: Box<FoundInArchive>) -> OneJob {
        OneJob { now_s: found.now.into(), terminal: true, kubernetes: Vec::new(), job: found.view }
    }
}

pub(super) async fn look(api: &Api, who: &Who, id: JobId) -> Result<OneJob, ApiError> {
    looked(api, who, id, write::job).await
}

async fn looked(
    api: &Api,
    who: &Who,
    id: JobId,
    view: fn(&Engine, JobId) -> Option<JobView>,
) -> Result<OneJob, ApiError> {
    let ask = move |engine: &Engine, _: &_| Some((engine.state().now(), view(engine, id)?));
    let (now, job) = api.ask(who, ask).await?.ok_or_else(gone)?;
    Ok(OneJob { now_s: now.into(), terminal: job.phase.terminal(), kubernetes: api.notes.of(id), job })
}

fn gone() -> ApiError {
    ApiError::not_found("NoSuchJob", "it is gone", "ask for another")
}

pub(super) async fn why(State(api): State<Api>, Reader(who): Reader, Name(name): Name) -> Result<Json<Why>, ApiError> {
    let (found, Outlook { position, start }) = match find_anywhere(&api, &who, &name).await? {
        Place::State(id) => {
            // What others' queues hold is told to operators alone.
            let view = if who.operates() { write::job_with_holders } else { write::job };
            let found = looked(&api, &who, id, view).await?;
            (found, api.starts.outlook(&api.handle, &who.name, id).await?)
        }
        Place::Archive(found) => (OneJob::over(found), Outlook::default()),
    };
    let OneJob { now_s, job, kubernetes, .. } = found;
    let JobView { job, subject, phase, reason, .. } = job;
    Ok(Json(Why { now_s, job, subject, phase, reason, position, start, kubernetes }))
}

pub(super) async fn cancel(
    State(api): State<Api>,
    Submitter(who): Submitter,
    Name(name): Name,
) -> Result<(StatusCode, Option<Act>, Json<CancelledJob>), ApiError> {
    let id = match find_anywhere(&api, &who, &name).await? {
        Place::State(id) => id,
        Place::Archive(found) => return Err(over(&found.view)),
    };
    writable(&api)?;
    let before = look(&api, &who, id).await?;
    let (Some(tenant), Some(subject)) = (before.job.tenant.clone(), before.job.subject.clone()) else {
        return Err(ApiError::new(500, "NoIdentity", "the job has no identity", "report this with the journal"));
    };
    if let Some(service) = &before.job.of {
        let message = format!("{} is a replica of {service}", before.job.job);
        return Err(ApiError::new(
            409,
            "Replica",
            message,
            "cancel the service; its demand says how many replicas it has",
        ));
    }
    let asked = move |engine: &Engine, _: &_| {
        engine.state().job(id).map(|(row, spec)| (spec.principal.clone(), row.cancel_asked))
    };
    let (principal, again) = api.ask(&who, asked).await?.ok_or_else(gone)?;
    let own = who.caller.tenant == tenant && who.caller.principal == principal;
    let answer = |one| Json(CancelledJob { principal: Some(principal), own, one });
    if !before.terminal {
        // Without a time: it is for the job that was just looked at.
        let what = json!({ "job": id.to_string(), "tenant": tenant, "subject": subject, "queue": before.job.queue });
        let cancel = Event::JobCancelled { tenant, subject, by: who.caller.asks_as(), sent: None };
        let taken = durable(&api, &who.name, vec![(cancel, None)]).await?;
        let after = look(&api, &who, id).await?;
        let cancels = taken.outcomes.first() != Some(&ItemOutcome::Ignored) || after.job.phase == JobPhase::Cancelled;
        // Where it was asked for before, this one has done nothing.
        if cancels && !again {
            return Ok((StatusCode::ACCEPTED, Some(Act { name: "cancel", what }), answer(after)));
        }
    }
    let now = look(&api, &who, id).await?;
    match now.job.phase {
        // Asked for twice, or on its way: the same answer.
        phase if phase == JobPhase::Cancelled || !phase.terminal() => Ok((StatusCode::OK, None, answer(now))),
        _ => Err(over(&now.job)),
    }
}

fn over(job: &JobView) -> ApiError {
    let message = format!("{} is {} already", job.job, job.phase);
    ApiError::new(409, "Over", message, "nothing is left to cancel")
}

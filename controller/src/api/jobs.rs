//! Jobs: the list, one of them (now or when it is over), why it waits, and its cancellation.
//!
//! Never: the whole list at once (it comes in pages), nor a job that the caller may not see.

use super::Api;
use super::archive::{self, FoundInArchive};
use super::auth::{Reader, Submitter};
use super::body::writable;
use super::error::ApiError;
use super::events::durable;
use super::visible;
use crate::config::tokens::Who;
use crate::document::write;
use crate::driver::ItemOutcome;
use crate::journal::{ArchivedJob, MOST_LISTED};
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use forebay_engine::engine::Engine;
use forebay_kernel::event::Event;
use forebay_kernel::ids::JobId;
use forebay_wire::document::reason::ReasonView;
use forebay_wire::document::seconds::Seconds;
use forebay_wire::document::views::{JobPhase, JobView};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// Jobs a page unless asked for another number.
const PAGE: usize = 1_000;
/// Jobs a page at most.
pub const MOST_PAGE: usize = 10_000;
/// The longest wait of one request. Clients ask again.
pub const LONGEST_WAIT: Duration = Duration::from_secs(600);

/// A page of jobs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Jobs {
    /// The engine's time.
    pub now_s: Seconds,
    /// In order of acceptance.
    pub jobs: Vec<JobView>,
    /// Where the next page begins: `?after=`. Null: this was the last.
    pub next: Option<String>,
}

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
    /// What Kubernetes says of its pods, in its own words, such as `worker 0: ImagePullBackOff: ...`. Absent where it says nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kubernetes: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    phase: Option<JobPhase>,
    queue: Option<String>,
    open: Option<bool>,
    limit: Option<usize>,
    after: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OneQuery {
    #[serde(rename = "waitFor")]
    wait_for: Option<String>,
    timeout: Option<String>,
}

pub(super) fn query<T>(found: Result<Query<T>, QueryRejection>) -> Result<T, ApiError> {
    let refused =
        |e: QueryRejection| ApiError::bad("BadQuery", e.body_text(), "see docs/API.md for the parameters of this path");
    found.map(|Query(q)| q).map_err(refused)
}

pub(super) async fn list(
    State(api): State<Api>,
    Reader(who): Reader,
    asked: Result<Query<ListQuery>, QueryRejection>,
) -> Result<Json<Jobs>, ApiError> {
    let asked = query(asked)?;
    let limit = asked.limit.unwrap_or(PAGE).clamp(1, MOST_PAGE);
    let after = asked.after.as_deref().map(number).transpose()?;
    let past = asked.open != Some(true) && asked.phase.is_none_or(JobPhase::terminal);
    let (queue, listed) = (asked.queue.clone(), limit.min(MOST_LISTED));
    let finished = if past {
        archive::read(&api, move |archive| archive.in_order(after, queue.as_deref(), listed)).await?
    } else {
        Vec::new()
    };
    let ask = move |engine: &Engine, _: &_| page(engine, &who, &asked, after, limit, &finished);
    Ok(Json(api.handle.query_async(ask).await?))
}

/// Jobs of the state and finished ones that have left it, by id. Where the archive has more, the page ends with the last that it gave.
fn page(
    engine: &Engine,
    who: &Who,
    asked: &ListQuery,
    after: Option<JobId>,
    limit: usize,
    finished: &[ArchivedJob],
) -> Jobs {
    let state = engine.state();
    let fits = |view: &JobView| asked.phase.is_none_or(|p| p == view.phase);
    let end = finished.last().filter(|_| finished.len() == limit.min(MOST_LISTED)).map(|job| job.finished.job.id);
    let here = state
        .jobs()
        .skip_while(|(job, _)| after.is_some_and(|after| job.id <= after))
        .take_while(|(job, _)| end.is_none_or(|end| job.id <= end))
        .filter(|(job, spec)| {
            asked.queue.as_ref().is_none_or(|q| *q == spec.queue)
                && asked.open.is_none_or(|o| o != job.done())
                && visible::sees(state, who, job.id)
        });
    let here = here.map(|(job, spec)| (job.id, write::job_view(engine, job, spec)));
    // The state keeps some of the jobs that the archive has: those are shown as the state has them.
    let gone = finished
        .iter()
        .map(|job| &job.finished)
        .filter(|finished| state.job(finished.job.id).is_none() && visible::sees_finished(state, who, &finished.spec));
    let gone = gone.map(|finished| (finished.job.id, write::finished_view(engine, finished)));
    let wanted = by_id(here, gone);
    let mut jobs: Vec<JobView> = wanted.filter(fits).take(limit + 1).collect();
    let cut = jobs.len() > limit;
    jobs.truncate(limit);
    let last = jobs.last().filter(|_| cut).map(|job| job.job.clone());
    Jobs { now_s: state.now().into(), jobs, next: last.or_else(|| end.map(|id| id.to_string())) }
}

/// Both lists by their jobs' numbers; each is in order.
fn by_id(
    one: impl Iterator<Item = (JobId, JobView)>,
    two: impl Iterator<Item = (JobId, JobView)>,
) -> impl Iterator<Item = JobView> {
    let (mut one, mut two) = (one.peekable(), two.peekable());
    std::iter::from_fn(move || {
        let first = one.peek().is_some_and(|(first, _)| two.peek().is_none_or(|(second, _)| first <= second));
        if first { one.next() } else { two.next() }.map(|(_, view)| view)
    })
}

fn number(name: &str) -> Result<JobId, ApiError> {
    write::job_number(name).ok_or_else(|| {
        ApiError::bad("BadQuery", "`after` is not a job's name", "write it as in `next`, such as job-17")
    })
}

pub(super) async fn one(
    State(api): State<Api>,
    Reader(who): Reader,
    Path(name): Path<String>,
    asked: Result<Query<OneQuery>, QueryRejection>,
) -> Result<Json<OneJob>, ApiError> {
    let asked = query(asked)?;
    let wait = match asked.wait_for.as_deref() {
        None => Duration::ZERO,
        Some("terminal") => asked.timeout.as_deref().map_or(Ok(Duration::from_secs(30)), span)?.min(LONGEST_WAIT),
        Some(_) => return Err(ApiError::bad("BadQuery", "`waitFor` knows `terminal` only", "write waitFor=terminal")),
    };
    let id = match find_anywhere(&api, &who, &name).await? {
        Place::State(id) => id,
        Place::Archive(found) => return Ok(Json(OneJob::over(found))),
    };
    let end = tokio::time::Instant::now() + wait;
    loop {
        let over = if wait.is_zero() { None } else { Some(register(&api, id)?) };
        let found = look(&api, id).await?;
        let Some(over) = over else { return Ok(Json(found)) };
        let mut ending = api.ending.clone();
        if found.terminal || *ending.borrow() || tokio::time::Instant::now() >= end {
            return Ok(Json(found));
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

/// A job by its number or subject, where this caller may see it.
pub(super) async fn find(api: &Api, who: &Arc<Who>, name: &str) -> Result<JobId, ApiError> {
    let (asked, who) = (name.to_owned(), Arc::clone(who));
    let id = api.handle.query_async(move |engine, _| visible::find(engine.state(), &who, &asked)).await?;
    id.ok_or_else(|| {
        let shown = crate::show::figures::short(name, 80);
        ApiError::not_found(
            "NoSuchJob",
            format!("there is no job `{shown}`"),
            "use its subject or its number, as in `forebay jobs`",
        )
    })
}

/// Where a job is.
pub(super) enum Place {
    /// In the state: open, or over of late.
    State(JobId),
    /// In the archive.
    Archive(Box<FoundInArchive>),
}

/// A job by its number or subject, open or over, where this caller may see it.
pub(super) async fn find_anywhere(api: &Api, who: &Arc<Who>, name: &str) -> Result<Place, ApiError> {
    match find(api, who, name).await {
        Ok(id) => Ok(Place::State(id)),
        Err(none) => match archive::find(api, who, name).await? {
            Some(found) => Ok(Place::Archive(Box::new(found))),
            None => Err(none),
        },
    }
}

impl OneJob {
    /// A job of the archive.
    fn over(found: Box<FoundInArchive>) -> OneJob {
        OneJob { now_s: found.now.into(), terminal: true, kubernetes: Vec::new(), job: found.view }
    }
}

pub(super) async fn look(api: &Api, id: JobId) -> Result<OneJob, ApiError> {
    let ask = move |engine: &Engine, _: &_| Some((engine.state().now(), write::job(engine, id)?));
    let (now, job) = api
        .handle
        .query_async(ask)
        .await?
        .ok_or_else(|| ApiError::not_found("NoSuchJob", "it is gone", "ask for another"))?;
    Ok(OneJob { now_s: now.into(), terminal: job.phase.terminal(), kubernetes: api.notes.of(id), job })
}

pub(super) async fn why(
    State(api): State<Api>,
    Reader(who): Reader,
    Path(name): Path<String>,
) -> Result<Json<Why>, ApiError> {
    let OneJob { now_s, job, kubernetes, .. } = match find_anywhere(&api, &who, &name).await? {
        Place::State(id) => look(&api, id).await?,
        Place::Archive(found) => OneJob::over(found),
    };
    Ok(Json(Why { now_s, job: job.job, subject: job.subject, phase: job.phase, reason: job.reason, kubernetes }))
}

pub(super) async fn cancel(
    State(api): State<Api>,
    Submitter(who): Submitter,
    Path(name): Path<String>,
) -> Result<(StatusCode, Json<OneJob>), ApiError> {
    let id = match find_anywhere(&api, &who, &name).await? {
        Place::State(id) => id,
        Place::Archive(found) => return Err(over(&found.view)),
    };
    writable(&api)?;
    let before = look(&api, id).await?;
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
    if !before.terminal {
        // Without a time: it is for the job that was just looked at.
        let cancel = Event::JobCancelled { tenant, subject, by: who.caller.asks_as(), sent: None };
        let taken = durable(&api, vec![(cancel, None)]).await?;
        let after = look(&api, id).await?;
        if taken.outcomes.first() != Some(&ItemOutcome::Ignored) || after.job.phase == JobPhase::Cancelled {
            return Ok((StatusCode::ACCEPTED, Json(after)));
        }
    }
    let now = look(&api, id).await?;
    match now.job.phase {
        // Asked for twice, or on its way: the same answer.
        phase if phase == JobPhase::Cancelled || !phase.terminal() => Ok((StatusCode::OK, Json(now))),
        _ => Err(over(&now.job)),
    }
}

fn over(job: &JobView) -> ApiError {
    let message = format!("{} is {} already", job.job, job.phase);
    ApiError::new(409, "Over", message, "nothing is left to cancel")
}

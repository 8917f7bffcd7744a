//! `POST /v1/agent/hello`, `/v1/agent/notices` and `/v1/agent/activity`: what the agents on the nodes say, as engine events.
//!
//! ```text
//! hello        -> NodeReady                      a node that is ready already stays so (`new` is false); with Kubernetes nothing: its node says it
//! interruption -> ReclaimNotice, at its time     the second warning of a node says nothing new, unless its time is earlier
//! rebalance    -> nothing: it is only a risk, and most are followed by no interruption
//! activity     -> RunIdle, ServiceDemand, where `activity` finds that they follow
//! ```
//!
//! Never: answers 202 before the event is durable; adds a node that no purchase brought; takes a time that is far away.

use super::Api;
use super::auth::NodeAgent;
use super::body::{admit, content_type, gather, writable};
use super::error::ApiError;
use super::events::durable;
use crate::activity::{TakenReport, view as activity_view};
use crate::config::tokens::Who;
use crate::driver::{ItemOutcome, wall_ms};
use crate::show::figures::short;
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use forebay_kernel::event::Event;
use forebay_kernel::units::{Span, Timestamp};
use forebay_node_agent::{ActivityReport, MOST_WORKERS_REPORTED};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The largest body: an agent's have 120 bytes.
const MOST_BYTES: usize = 4096;
/// The largest report of activity: 512 workers of 210 bytes, and as much again.
const MOST_ACTIVITY: usize = 256 * 1024;
/// The longest id of an instance.
const MOST_INSTANCE: usize = 64;
/// A warning is for something that is near: spot's is two minutes, a Capacity Block's is forty.
const FARTHEST: Span = Span::mins(60);
/// For an interruption that does not say when: the most that a spot instance has.
const USUAL: Span = Span::mins(2);
/// Clocks that are no further apart agree: AWS's times have whole seconds, and a warning that is sent again is to have the same time.
const AGREES: Span = Span::secs(1);

/// A node's agent has started.
#[derive(Deserialize)]
pub(super) struct Hello {
    instance: String,
}

/// What the cloud has told a node.
#[derive(Deserialize)]
pub(super) struct Notice {
    instance: String,
    kind: Kind,
    at: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Interruption,
    Rebalance,
}

/// When a report arrived, by both clocks. The engine's begins at the wall clock or at the journal's last record, whichever is later, and does not
/// follow when the wall clock is stepped.
#[derive(Clone, Copy, Debug)]
struct ReportTime {
    /// By the wall clock, which is AWS's as far as this machine knows it.
    wall: Timestamp,
    /// By the engine's.
    engine: Timestamp,
}

impl ReportTime {
    /// A time of AWS on the engine's clock: as far from now as it is on the wall clock.
    fn to_engine(self, at: Timestamp) -> Timestamp {
        if self.wall.0.abs_diff(self.engine.0) <= AGREES.0 {
            return at;
        }
        if at >= self.wall { self.engine + at.since(self.wall) } else { self.engine - self.wall.since(at) }
    }
}

/// What became of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Heard {
    /// Whether it said anything new.
    pub new: bool,
}

/// What became of a report of activity.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ActivityTaken {
    /// Whether it was not known before.
    pub new: bool,
    /// Workers in it that are not current, or not on that node.
    pub ignored: u64,
}

type Answer = Result<(StatusCode, Json<Heard>), ApiError>;

pub(super) async fn hello(State(api): State<Api>, agent: NodeAgent, headers: HeaderMap, body: Body) -> Answer {
    let hello: Hello = read(&api, &agent.0, &headers, body, MOST_BYTES).await?;
    known(&api, &agent.0, &hello.instance).await?;
    if api.logs.is_some() {
        // In Kubernetes an agent is there before the device plugin is: the node takes work when it is ready and offers its GPUs.
        return Ok((StatusCode::ACCEPTED, Json(Heard { new: false })));
    }
    take(&api, &agent.0, Event::NodeReady { instance: hello.instance }).await
}

pub(super) async fn notice(State(api): State<Api>, agent: NodeAgent, headers: HeaderMap, body: Body) -> Answer {
    let notice: Notice = read(&api, &agent.0, &headers, body, MOST_BYTES).await?;
    let now = known(&api, &agent.0, &notice.instance).await?;
    let at = when(notice.at.as_deref(), now)?;
    match notice.kind {
        Kind::Interruption => take(&api, &agent.0, Event::ReclaimNotice { instance: notice.instance, at }).await,
        Kind::Rebalance => Ok((StatusCode::ACCEPTED, Json(Heard { new: false }))),
    }
}

/// What the workers on a node do with its GPUs.
pub(super) async fn activity(
    State(api): State<Api>,
    agent: NodeAgent,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<ActivityTaken>), ApiError> {
    let who = &agent.0;
    let report: Arc<ActivityReport> = Arc::new(read(&api, who, &headers, body, MOST_ACTIVITY).await?);
    if report.workers.len() > MOST_WORKERS_REPORTED {
        let message = format!("{} workers are too many for one report", report.workers.len());
        let remedy = format!("send at most {MOST_WORKERS_REPORTED}, as `forebay agent` does");
        return Err(ApiError::new(413, "TooMany", message, remedy));
    }
    permitted(who, &report.instance)?;
    let asked = Arc::clone(&report);
    let found = api.ask(who, move |engine, _| activity_view::view(engine.state(), &asked)).await?;
    let Some(view) = found.filter(|_| report.instance.len() <= MOST_INSTANCE) else {
        api.activity.count_unknown_node();
        return Err(unknown(&report.instance));
    };
    let TakenReport { new, events, ignored } = api.activity.take(&report, &view);
    if !events.is_empty() {
        // Where it does not get this far, the next report has the same idleness and more.
        durable(&api, &who.name, events.iter().map(|event| (event.clone(), None)).collect()).await?;
        api.activity.events_sent(&events);
    }
    Ok((StatusCode::ACCEPTED, Json(ActivityTaken { new, ignored })))
}

/// When the cloud acts, on the engine's clock.
fn when(at: Option<&str>, now: ReportTime) -> Result<Timestamp, ApiError> {
    let Some(text) = at else {
        return Ok(now.engine + USUAL);
    };
    let Ok(at) = text.parse::<jiff::Timestamp>() else {
        let message = format!("`at` is no time: `{}`", short(text, 40));
        return Err(ApiError::bad("BadValue", message, "write it as 2026-11-21T20:30:00Z, or leave it out"));
    };
    let at = now.to_engine(Timestamp(u64::try_from(at.as_millisecond()).unwrap_or_default()));
    if at > now.engine + FARTHEST {
        let message = format!("`at` is more than an hour ahead: `{}`", short(text, 40));
        return Err(ApiError::bad("BadValue", message, "set the clocks of the node and of the controller by NTP"));
    }
    Ok(at)
}

/// A body of JSON within its bounds.
async fn read<T: DeserializeOwned>(
    api: &Api,
    who: &Who,
    headers: &HeaderMap,
    body: Body,
    most: usize,
) -> Result<T, ApiError> {
    writable(api)?;
    if content_type(headers) != "application/json" {
        return Err(ApiError::new(415, "ContentType", "reports of agents are JSON", "send application/json"));
    }
    let _room = admit(api, who, headers)?;
    let body = gather(body).await?;
    if body.len() > most {
        let message = format!("a report has at most {most} bytes");
        return Err(ApiError::new(413, "TooLarge", message, "use the agent of this version: `forebay agent`"));
    }
    serde_json::from_slice(&body).map_err(|error| {
        let message = format!("no report of an agent: {}", short(&error.to_string(), 200));
        ApiError::bad("Malformed", message, "use the agent of this version: `forebay agent`")
    })
}

/// Whether a token may speak of an instance: one that names its nodes speaks of those alone.
fn permitted(who: &Who, instance: &str) -> Result<(), ApiError> {
    if who.speaks_of(instance) {
        return Ok(());
    }
    let message = format!("this token does not speak of the instance `{}`", short(instance, MOST_INSTANCE));
    Err(ApiError::new(
        403,
        "OtherNode",
        message,
        "use the token of that node, or list the instance under `instances` of this one",
    ))
}

/// What time it is, where an instance is known.
async fn known(api: &Api, who: &Who, instance: &str) -> Result<ReportTime, ApiError> {
    permitted(who, instance)?;
    let fits = instance.len() <= MOST_INSTANCE;
    let asked = instance.to_owned();
    let found = api.ask(who, move |engine, context| {
        let known = fits && engine.state().node_of(&asked).is_some();
        known.then(|| ReportTime { wall: wall_ms(), engine: context.now })
    });
    found.await?.ok_or_else(|| unknown(instance))
}

fn unknown(instance: &str) -> ApiError {
    let message = format!("no node of this cluster is the instance `{}`", short(instance, MOST_INSTANCE));
    let remedy = "a node that was bought a moment ago is known as soon as its purchase is settled: send it again; an instance that \
                  this controller did not buy needs no agent";
    ApiError::not_found("UnknownInstance", message, remedy)
}

/// Takes an event, and answers when it is durable.
async fn take(api: &Api, who: &Who, event: Event) -> Answer {
    let taken = durable(api, &who.name, vec![(event, None)]).await?;
    let new = taken.outcomes.first() == Some(&ItemOutcome::Taken);
    Ok((StatusCode::ACCEPTED, Json(Heard { new })))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-21T20:30:00Z.
    const WALL: Timestamp = Timestamp(1_795_293_000_000);

    #[test]
    fn a_time_of_aws_is_as_far_from_now_on_an_engines_clock_that_is_not_the_wall_clock() {
        let at = |text: &str, engine: Timestamp| when(Some(text), ReportTime { wall: WALL, engine }).ok();
        let hour = Span::mins(60);
        for engine in [WALL, WALL + Span::mins(50), WALL - Span::mins(50), WALL + Span::mins(60 * 24)] {
            assert_eq!(at("2026-11-21T20:32:00Z", engine), Some(engine + Span::mins(2)));
            assert_eq!(at("2026-11-21T20:29:00Z", engine), Some(engine - Span::mins(1)));
            assert_eq!(at("2026-11-21T21:30:00Z", engine), Some(engine + hour));
            assert_eq!(at("2026-11-21T21:30:01Z", engine), None, "more than an hour ahead");
            assert_eq!(when(None, ReportTime { wall: WALL, engine }).ok(), Some(engine + USUAL));
        }
        // What is sent again has the same time, though the clocks are not read in one instant.
        for apart in [0, 3, 999] {
            assert_eq!(at("2026-11-21T20:32:00Z", WALL + Span(apart)), Some(WALL + Span::mins(2)));
        }
    }
}

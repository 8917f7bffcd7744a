//! `GET /v1/brakes`, `POST /v1/brakes/set`, `POST /v1/brakes/release`: what operators have stopped for a time. Who did, and why, is in the journal for ever.
//!
//! ```text
//! operator -> BrakeSet, durable -> no decision of that kind is made -> BrakeReleased, or its end
//! ```
//!
//! Never: stops what runs.

use super::Api;
use super::audit::Act;
use super::auth::{Operator, Reader};
use super::body::{self, writable};
use super::error::ApiError;
use super::events::durable;
use super::visible;
use crate::clock;
use crate::config::tokens::Who;
use crate::document::write;
use crate::driver::QueryContext;
use crate::show::figures::short;
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use forebay_engine::engine::Engine;
use forebay_kernel::event::Event;
use forebay_kernel::ids::NodeId;
use forebay_kernel::state::State as EngineState;
use forebay_kernel::state::brakes::{Brake, MOST_BRAKES};
use forebay_kernel::units::{HOUR_MS, Span, Timestamp};
use forebay_wire::document::seconds::Seconds;
use forebay_wire::document::views::BrakeView;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Characters of a reason.
const MOST_WHY: usize = 500;

/// What to send instead of what is no brake.
const REMEDY: &str = "send {\"brake\": \"buying\", \"why\": \"...\", \"until\": \"2h\"}, or use `forebay pause`";

const KINDS: &str = "write buying, admission, preemption or all; or queue, pool, node or drain with a target";

/// What is to be stopped.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BrakeRequest {
    /// `buying`, `admission`, `preemption`, `all` three; or `queue`, `pool`, `node`; or `drain` for what a target is, a pool or a node.
    pub brake: String,
    /// Which queue, pool or node: by its name, a node also by the cloud's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// It ends by itself then: an instant such as `2026-11-25T18:00:00Z`, or so long from now, such as `2h`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
}

/// What is let go on.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BrakeReleaseRequest {
    /// As in [`BrakeRequest`].
    pub brake: String,
    /// As in [`BrakeRequest`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

/// All brakes in force.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Brakes {
    /// The engine's time.
    pub now_s: Seconds,
    /// They.
    pub brakes: Vec<BrakeView>,
}

/// What is stopped: for operators all of it, for others what may keep their jobs waiting.
pub(super) async fn list(State(api): State<Api>, Reader(who): Reader) -> Result<Json<Brakes>, ApiError> {
    Ok(Json(brakes(&api, &who).await?))
}

async fn brakes(api: &Api, who: &Arc<Who>) -> Result<Brakes, ApiError> {
    let judge = Arc::clone(who);
    let ask = move |engine: &Engine, _: &_| {
        let state = engine.state();
        let mut brakes = write::brakes(state);
        brakes.retain(|view| visible::sees_brake(state, &judge, view));
        Brakes { now_s: state.now().into(), brakes }
    };
    api.ask(who, ask).await
}

pub(super) async fn set(
    State(api): State<Api>,
    Operator(who): Operator,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Act, Json<Brakes>), ApiError> {
    writable(&api)?;
    let BrakeRequest { brake, target, why, until } = body::json(&headers, body, "brake", REMEDY).await?;
    let why = why.unwrap_or_default();
    if why.chars().count() > MOST_WHY {
        let message = format!("`why` has {} characters", why.chars().count());
        return Err(ApiError::bad("BadValue", message, format!("say it in at most {MOST_WHY}")));
    }
    let asked = move |engine: &Engine, context: &QueryContext| {
        let state = engine.state();
        let brakes = meant(state, &brake, target.as_deref())?;
        let until = until.as_deref().map(|text| instant(text, context.now)).transpose()?;
        let new = brakes.iter().filter(|brake| state.brake(brake).is_none()).count();
        if state.brakes().count() + new > MOST_BRAKES {
            let message = format!("{MOST_BRAKES} brakes are in force");
            return Err(ApiError::new(409, "TooManyBrakes", message, "release some: `forebay brakes` lists them"));
        }
        Ok((brakes, until))
    };
    let (brakes, until) = api.ask(&who, asked).await??;
    let by = who.caller.principal.clone();
    let said = if why.is_empty() { "without a reason".to_owned() } else { format!("because: {}", short(&why, 200)) };
    tracing::warn!("{by} stops {} {said}", words(&brakes));
    let act = Act {
        name: "brake",
        what: json!({ "brakes": words(&brakes), "why": why, "until_s": until.map(Seconds::from) }),
    };
    let event = |brake| (Event::BrakeSet { brake, by: by.clone(), why: why.clone(), until }, None);
    durable(&api, &who.name, brakes.into_iter().map(event).collect()).await?;
    Ok((StatusCode::ACCEPTED, act, Json(self::brakes(&api, &who).await?)))
}

pub(super) async fn release(
    State(api): State<Api>,
    Operator(who): Operator,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Act, Json<Brakes>), ApiError> {
    writable(&api)?;
    let BrakeReleaseRequest { brake, target } = body::json(&headers, body, "brake", REMEDY).await?;
    let asked = move |engine: &Engine, _: &_| {
        let state = engine.state();
        let mut brakes = meant_by_release(state, &brake, target.as_deref())?;
        brakes.retain(|brake| state.brake(brake).is_some());
        if brakes.is_empty() {
            let of = target.map(|target| format!(" {}", short(&target, 60))).unwrap_or_default();
            let message = format!("{}{of} is not stopped", short(&brake, 20));
            return Err(ApiError::new(409, "NotStopped", message, "`forebay brakes` lists what is"));
        }
        Ok(brakes)
    };
    let brakes = api.ask(&who, asked).await??;
    let by = who.caller.principal.clone();
    tracing::warn!("{by} lets {} go on", words(&brakes));
    let act = Act { name: "release brake", what: json!({ "brakes": words(&brakes) }) };
    let event = |brake| (Event::BrakeReleased { brake, by: by.clone() }, None);
    durable(&api, &who.name, brakes.into_iter().map(event).collect()).await?;
    Ok((StatusCode::ACCEPTED, act, Json(self::brakes(&api, &who).await?)))
}

fn words(brakes: &[Brake]) -> String {
    let word = |brake: &Brake| match brake.target() {
        Some(target) => format!("{} {}", brake.kind(), short(&target, 60)),
        None => brake.kind().to_owned(),
    };
    brakes.iter().map(word).collect::<Vec<_>>().join(", ")
}

/// The brakes that a request means.
fn meant(state: &EngineState, kind: &str, target: Option<&str>) -> Result<Vec<Brake>, ApiError> {
    let one = |brake| Ok(vec![brake]);
    match (kind, target) {
        ("buying", None) => one(Brake::Buying),
        ("admission", None) => one(Brake::Admission),
        ("preemption", None) => one(Brake::Preemption),
        ("all", None) => Ok(vec![Brake::Buying, Brake::Admission, Brake::Preemption]),
        ("queue", Some(path)) => queue(state, path).map(|brake| vec![brake]),
        ("pool", Some(name)) => pool(state, name).map(|brake| vec![brake]).ok_or_else(|| no_pool(state, name)),
        ("node", Some(name)) => node(state, name).map(|brake| vec![brake]).ok_or_else(|| no_node(name)),
        ("drain", Some(name)) => {
            let found = pool(state, name).or_else(|| node(state, name));
            found.map(|brake| vec![brake]).ok_or_else(|| no_pool(state, name))
        }
        ("buying" | "admission" | "preemption" | "all", Some(_)) => {
            let message = format!("`{kind}` is for everything and has no target");
            Err(ApiError::bad("BadValue", message, "leave the target out"))
        }
        ("queue" | "pool" | "node" | "drain", None) => {
            Err(ApiError::bad("BadValue", format!("`{kind}` needs a target"), "name the queue, pool or node"))
        }
        _ => Err(ApiError::bad("BadValue", format!("`{}` is nothing that can be stopped", short(kind, 40)), KINDS)),
    }
}

/// The same. What is not there any more can be let go on all the same.
fn meant_by_release(state: &EngineState, kind: &str, target: Option<&str>) -> Result<Vec<Brake>, ApiError> {
    match (kind, target) {
        ("queue", Some(path)) => Ok(vec![Brake::Queue(path.to_owned())]),
        ("pool", Some(name)) => Ok(vec![Brake::Pool(name.to_owned())]),
        ("drain", Some(name)) => Ok(std::iter::once(Brake::Pool(name.to_owned())).chain(node(state, name)).collect()),
        _ => meant(state, kind, target),
    }
}

fn queue(state: &EngineState, path: &str) -> Result<Brake, ApiError> {
    // A name without a rule is one of which jobs were refused.
    let known =
        state.queues().iter().filter(|(_, queue)| queue.rule.is_some() || state.queue_brake_of(&queue.path).is_some());
    let known = known.map(|(_, queue)| queue.path.as_str());
    let declared = state.policy().into_iter().flat_map(|policy| policy.queues.keys().map(String::as_str));
    let all: BTreeSet<&str> = known.chain(declared).collect();
    let below = |of: &&str| *of == path || of.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'));
    if all.iter().any(below) {
        return Ok(Brake::Queue(path.to_owned()));
    }
    let message = format!("there is no queue `{}`", short(path, 60));
    Err(ApiError::not_found("NoSuchQueue", message, forebay_policy::meant(path, all)))
}

fn pool(state: &EngineState, name: &str) -> Option<Brake> {
    let pools = state.policy().map_or(&[][..], |policy| &policy.pools);
    pools.iter().any(|pool| pool.name == name).then(|| Brake::Pool(name.to_owned()))
}

fn node(state: &EngineState, name: &str) -> Option<Brake> {
    let number = name.strip_prefix("node-").and_then(|n| n.parse().ok()).map(NodeId);
    let by_number = number.filter(|id| state.nodes.contains_key(id));
    by_number.or_else(|| state.node_of(name).map(|node| node.id)).map(Brake::Node)
}

fn no_pool(state: &EngineState, name: &str) -> ApiError {
    let pools = state.policy().map_or(&[][..], |policy| &policy.pools);
    let declared = pools.iter().take(state.declared_pools());
    let remedy = forebay_policy::meant(name, declared.map(|pool| pool.name.as_str()));
    let remedy = format!("{remedy}; `forebay nodes` lists nodes");
    ApiError::not_found("NoSuchPool", format!("there is no pool or node `{}`", short(name, 60)), remedy)
}

fn no_node(name: &str) -> ApiError {
    ApiError::not_found("NoSuchNode", format!("there is no node `{}`", short(name, 60)), "`forebay nodes` lists them")
}

/// An instant, or so long from now. It is in the future.
fn instant(text: &str, now: Timestamp) -> Result<Timestamp, ApiError> {
    let bad = |message: String| {
        let later = clock::instant(now.0 / 1000 * 1000 + 2 * HOUR_MS).map_or_else(String::new, |at| at.to_string());
        ApiError::bad("BadValue", message, format!("write 2h, 90m or a time such as {later}"))
    };
    if let Ok(at) = text.parse::<jiff::Timestamp>() {
        let at = Timestamp(u64::try_from(at.as_millisecond()).unwrap_or(0));
        return if at > now { Ok(at) } else { Err(bad(format!("`until` {} is over", short(text, 40)))) };
    }
    let span = text.parse::<jiff::SignedDuration>().ok().and_then(|span| u64::try_from(span.as_millis()).ok());
    let span = span.filter(|span| *span > 0).ok_or_else(|| bad(format!("`until` {} is no time", short(text, 40))))?;
    Ok(now + Span(span))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_an_instant_or_so_long_from_now() {
        let now = Timestamp(1_800_000_000_000);
        assert_eq!(instant("90m", now).ok(), Some(now + Span::mins(90)));
        assert_eq!(instant("2027-01-15T09:00:00Z", now).ok(), Some(Timestamp(1_800_003_600_000)));
        for bad in ["", "soon", "0s", "-2h", "2020-01-01T00:00:00Z"] {
            assert!(instant(bad, now).is_err(), "{bad}");
        }
    }
}

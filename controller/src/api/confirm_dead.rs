//! `POST /v1/jobs/{id}/confirm-dead`: an operator confirms that workers are dead which nothing else proves. Who did is in the journal for ever.
//!
//! ```text
//! operator -> DeathConfirmed, durable -> the cluster's view -> the worker counts as dead where its node does not say otherwise
//! ```
//!
//! Never: ends a worker; counts against a kubelet that reports that it runs.

use super::Api;
use super::audit::Act;
use super::auth::Operator;
use super::body::{self, writable};
use super::error::ApiError;
use super::events::durable;
use super::find::{Name, Place, find_anywhere};
use super::jobs::{OneJob, look};
use crate::show::figures::short;
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use forebay_engine::engine::Engine;
use forebay_kernel::event::Event;
use forebay_kernel::ids::Attempt;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The most workers of one request: those of the largest gang.
const MOST_WORKERS: usize = 16_384;

/// Which workers are dead.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeathConfirmation {
    /// Of which attempt: a later one is not meant.
    pub attempt: u32,
    /// The workers, by their numbers.
    pub workers: Vec<u32>,
}

pub(super) async fn confirm(
    State(api): State<Api>,
    Operator(who): Operator,
    Name(name): Name,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Act, Json<OneJob>), ApiError> {
    writable(&api)?;
    let remedy = "send {\"attempt\": 2, \"workers\": [0, 3]}, or use `forebay confirm-dead`";
    let asked: DeathConfirmation = body::json(&headers, body, "confirmation", remedy).await?;
    if asked.workers.is_empty() || asked.workers.len() > MOST_WORKERS {
        let message = format!("{} workers are named", asked.workers.len());
        return Err(ApiError::bad("BadValue", message, format!("name 1 to {MOST_WORKERS} workers by their numbers")));
    }
    let Place::State(id) = find_anywhere(&api, &who, &name).await? else {
        return Err(not_alive(&name, asked.attempt));
    };
    let attempt = Attempt(asked.attempt);
    let workers = asked.workers.clone();
    let find = move |engine: &Engine, _: &_| {
        let (job, _) = engine.state().job(id)?;
        let alive = job.alive() && job.attempt == attempt;
        alive.then(|| workers.iter().find(|worker| !job.numbers.contains(worker)).copied())
    };
    match api.ask(&who, find).await? {
        None => return Err(not_alive(&name, asked.attempt)),
        Some(Some(worker)) => {
            let of = short(&name, 60);
            let message = format!("attempt {} of {of} has no worker {worker} that holds a place", asked.attempt);
            let remedy = "`forebay why` names the workers that nothing proves dead";
            return Err(ApiError::bad("NoSuchWorker", message, remedy));
        }
        Some(None) => {}
    }
    let by = who.caller.principal.clone();
    let (of, workers) = (short(&name, 60), &asked.workers);
    tracing::warn!("{by} confirms that workers {workers:?} of attempt {} of {of} are dead", asked.attempt);
    let what =
        json!({ "job": id.to_string(), "attempt": asked.attempt, "workers": workers.len(), "first": workers.first() });
    durable(&api, &who.name, vec![(Event::DeathConfirmed { job: id, attempt, workers: asked.workers, by }, None)])
        .await?;
    let act = Act { name: "confirm dead", what };
    Ok((StatusCode::ACCEPTED, act, Json(look(&api, &who, id).await?)))
}

fn not_alive(name: &str, attempt: u32) -> ApiError {
    let message = format!("attempt {attempt} of {} is not alive", short(name, 60));
    ApiError::new(409, "NotAlive", message, "look at `forebay why` for the attempt that is held, if any")
}

//! Queues, nodes, the summary, the state, and whether the controller is well.
//!
//! Never: long work on the driver's thread. The state is taken as bytes and written out elsewhere.

use super::Api;
use super::error::ApiError;
use crate::document::seconds::Seconds;
use crate::document::state::StateDocument;
use crate::document::views::{NodeView, QueueView, Summary};
use crate::document::write;
use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use forebay_engine::engine::Engine;
use serde::{Deserialize, Serialize};

/// All queues.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Queues {
    /// The engine's time.
    pub now_s: Seconds,
    /// By path.
    pub queues: Vec<QueueView>,
}

/// All nodes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Nodes {
    /// The engine's time.
    pub now_s: Seconds,
    /// In the order in which they were bought.
    pub nodes: Vec<NodeView>,
}

pub(super) async fn queues(State(api): State<Api>) -> Result<Json<Queues>, ApiError> {
    let ask =
        |engine: &Engine, _: &_| Queues { now_s: engine.state().now().into(), queues: write::queues(engine.state()) };
    Ok(Json(api.handle.query_async(ask).await?))
}

pub(super) async fn nodes(State(api): State<Api>) -> Result<Json<Nodes>, ApiError> {
    let ask =
        |engine: &Engine, _: &_| Nodes { now_s: engine.state().now().into(), nodes: write::nodes(engine.state()) };
    Ok(Json(api.handle.query_async(ask).await?))
}

pub(super) async fn summary(State(api): State<Api>) -> Result<Json<Summary>, ApiError> {
    Ok(Json(api.handle.query_async(|engine, _| write::summary(engine.state())).await?))
}

pub(super) async fn state(State(api): State<Api>) -> Result<Response, ApiError> {
    let bytes = api.handle.query_async(|engine, _| engine.snapshot()).await?;
    let written = tokio::task::spawn_blocking(move || {
        let engine = Engine::restore(&bytes).map_err(|e| e.to_string())?;
        serde_json::to_vec(&StateDocument::of(&engine)).map_err(|e| e.to_string())
    });
    let failed = |e: String| ApiError::new(500, "StateUnreadable", e, "report this with the journal");
    let body = written.await.map_err(|e| failed(e.to_string()))?.map_err(failed)?;
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

/// The process is there.
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// It takes events: the driver runs and its journal can be written.
pub(super) async fn readyz(State(api): State<Api>) -> Result<&'static str, ApiError> {
    let progress = api.handle.watch().borrow().clone();
    if progress.stopped {
        return Err(ApiError::new(503, "Stopped", "the controller has stopped", "start it again"));
    }
    match progress.paused {
        Some(why) => Err(ApiError::new(503, "Paused", why, "make room on the journal's disk").retry_after(10)),
        None => Ok("ok\n"),
    }
}

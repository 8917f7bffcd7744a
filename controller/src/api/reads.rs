//! Queues, nodes, the summary, the state, and whether the controller is well.
//!
//! Never: long work on the driver's thread (the state is taken as bytes and written out elsewhere), nor another's job to who is no
//! operator.

use super::Api;
use super::auth::{Operator, Reader};
use super::error::ApiError;
use super::visible;
use crate::config::tokens::Who;
use crate::document::state::state_document;
use crate::document::write;
use crate::sources::registry::SourcesView;
use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use forebay_engine::engine::Engine;
use forebay_kernel::state::State as EngineState;
use forebay_wire::document::seconds::Seconds;
use forebay_wire::document::views::{JobPhase, NodeView, QueueView, Summary};
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

/// The queues that a caller may submit to.
pub(super) async fn queues(State(api): State<Api>, Reader(who): Reader) -> Result<Json<Queues>, ApiError> {
    let ask = move |engine: &Engine, _: &_| {
        let state = engine.state();
        let mut queues = write::queues(state);
        queues.retain(|view| visible::queue_takes(state, &who, &view.queue));
        Queues { now_s: state.now().into(), queues }
    };
    Ok(Json(api.handle.query_async(ask).await?))
}

/// All nodes. Of the jobs on them, those that a caller may see.
pub(super) async fn nodes(State(api): State<Api>, Reader(who): Reader) -> Result<Json<Nodes>, ApiError> {
    let ask = move |engine: &Engine, _: &_| {
        let state = engine.state();
        let sees = |name: &String| write::job_number(name).is_some_and(|id| visible::sees(state, &who, id));
        let mut nodes = write::nodes(state);
        for node in nodes.iter_mut().filter(|_| !who.operates()) {
            node.jobs.iter_mut().for_each(|jobs| jobs.retain(sees));
            node.reserved_for.take_if(|job| !sees(job));
        }
        Nodes { now_s: state.now().into(), nodes }
    };
    Ok(Json(api.handle.query_async(ask).await?))
}

/// Sources and sinks: names of topics and queues and their backlogs, for operators.
pub(super) async fn sources(State(api): State<Api>, _: Operator) -> Json<SourcesView> {
    Json(api.sources.view(api.handle.durable()))
}

pub(super) async fn summary(State(api): State<Api>, Reader(who): Reader) -> Result<Json<Summary>, ApiError> {
    Ok(Json(api.handle.query_async(move |engine, _| summary_for(engine.state(), &who)).await?))
}

/// The figures that matter: nodes and money of the whole cluster, and of the jobs those that a caller may see.
pub(super) fn summary_for(state: &EngineState, who: &Who) -> Summary {
    let all = write::summary(state);
    if who.operates() {
        return all;
    }
    let mut own = Summary { jobs: 0, queued: 0, running: 0, completed: 0, failed: 0, cancelled: 0, rejected: 0, ..all };
    for (job, _) in state.jobs().filter(|(job, _)| job.service.is_none() && visible::sees(state, who, job.id)) {
        own.jobs += 1;
        let count = match JobPhase::from(&job.phase) {
            JobPhase::Completed => &mut own.completed,
            JobPhase::Failed => &mut own.failed,
            JobPhase::Cancelled => &mut own.cancelled,
            JobPhase::Rejected => &mut own.rejected,
            JobPhase::Starting | JobPhase::Running | JobPhase::Stopping | JobPhase::Serving => &mut own.running,
            _ => &mut own.queued,
        };
        *count += 1;
    }
    own
}

pub(super) async fn state(State(api): State<Api>, _: Operator) -> Result<Response, ApiError> {
    let bytes = api.handle.query_async(|engine, _| engine.snapshot()).await?;
    let written = tokio::task::spawn_blocking(move || {
        let engine = bytes.and_then(|bytes| Engine::restore(&bytes)).map_err(|e| e.to_string())?;
        let document = state_document(&engine).map_err(|e| e.to_string())?;
        serde_json::to_vec(&document).map_err(|e| e.to_string())
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

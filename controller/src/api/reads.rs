//! Queues, nodes, the summary, and whether the controller is well.
//!
//! Never: long work on the driver's thread, nor another's job to who is no operator.

use super::Api;
use super::auth::{Operator, Reader};
use super::error::ApiError;
use super::jobs::query;
use super::rows::{JobRows, ReadBudget, ReadCut, beside_as};
use super::visible;
use crate::config::tokens::Who;
use crate::document::write;
use crate::sources::registry::SourcesView;
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use forebay_engine::engine::Engine;
use forebay_kernel::ids::NodeId;
use forebay_kernel::state::State as EngineState;
use forebay_kernel::units::Timestamp;
use forebay_wire::document::seconds::Seconds;
use forebay_wire::document::views::{JobPhase, NodeView, QueueView, Summary};
use serde::{Deserialize, Serialize};
use std::ops::Bound;
use std::sync::Arc;

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
    /// Where the next page begins: `?after=`. Absent: there are no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Nodes that are shown between two batches.
const NODES_AT_ONCE: usize = 256;

/// Nodes of one answer at most.
const MOST_NODES: usize = 10_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NodesQuery {
    limit: Option<usize>,
    after: Option<String>,
}

/// The queues that a caller may submit to.
pub(super) async fn queues(State(api): State<Api>, Reader(who): Reader) -> Result<Json<Queues>, ApiError> {
    let judge = Arc::clone(&who);
    let ask = move |engine: &Engine, _: &_| {
        let state = engine.state();
        let mut queues = write::queues(state);
        queues.retain(|view| visible::queue_takes(state, &judge, &view.queue));
        Queues { now_s: state.now().into(), queues }
    };
    Ok(Json(api.ask(&who, ask).await?))
}

/// Nodes, in the order in which they were bought. Of the jobs on them, those that a caller may see.
pub(super) async fn nodes(
    State(api): State<Api>,
    Reader(who): Reader,
    asked: Result<Query<NodesQuery>, QueryRejection>,
) -> Result<Json<Nodes>, ApiError> {
    let asked = query(asked)?;
    let limit = asked.limit.unwrap_or(MOST_NODES).clamp(1, MOST_NODES);
    let mut after = asked.after.as_deref().map(node_number).transpose()?;
    let mut all = Nodes { now_s: Timestamp(0).into(), nodes: Vec::new(), next: None };
    loop {
        let most = NODES_AT_ONCE.min(limit - all.nodes.len());
        let judge = Arc::clone(&who);
        let (now, nodes, last, more) =
            api.ask(&who, move |engine, _| some_nodes(engine.state(), &judge, after, most)).await?;
        all.now_s = now.into();
        all.nodes.extend(nodes);
        after = last.or(after);
        if !more {
            return Ok(Json(all));
        }
        if all.nodes.len() >= limit {
            all.next = after.map(|id| id.to_string());
            return Ok(Json(all));
        }
    }
}

/// So many nodes after one, the last of them, and whether there are more.
fn some_nodes(
    state: &EngineState,
    who: &Who,
    after: Option<NodeId>,
    most: usize,
) -> (Timestamp, Vec<NodeView>, Option<NodeId>, bool) {
    let sees = |name: &String| write::job_number(name).is_some_and(|id| visible::sees(state, who, id));
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    let mut rows = state.nodes.range((from, Bound::Unbounded)).map(|(_, row)| row);
    let (mut nodes, mut last) = (Vec::new(), None);
    for row in rows.by_ref().take(most) {
        let mut node = write::node_view(state, row);
        if !who.operates() {
            node.jobs.iter_mut().for_each(|jobs| jobs.retain(sees));
            node.reserved_for.take_if(|job| !sees(job));
        }
        nodes.push(node);
        last = Some(row.id);
    }
    (state.now(), nodes, last, rows.next().is_some())
}

fn node_number(name: &str) -> Result<NodeId, ApiError> {
    name.strip_prefix("node-").and_then(|n| n.parse().ok()).map(NodeId).ok_or_else(|| {
        ApiError::bad("BadQuery", "`after` is not a node's name", "write it as in `next`, such as node-17")
    })
}

/// Sources and sinks: names of topics and queues and their backlogs, for operators.
pub(super) async fn sources(State(api): State<Api>, _: Operator) -> Json<SourcesView> {
    Json(api.sources.view(&api.handle))
}

/// The figures that matter.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct OwnSummary {
    /// They.
    #[serde(flatten)]
    pub summary: Summary,
    /// Why the jobs are not all counted: there are at least as many. Absent: they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<ReadCut>,
}

pub(super) async fn summary(State(api): State<Api>, Reader(who): Reader) -> Result<Json<OwnSummary>, ApiError> {
    Ok(Json(summary_for(&api, &who).await?))
}

/// Nodes and money of the whole cluster, and of the jobs those that a caller may see, counted beside the driver's loop.
pub(super) async fn summary_for(api: &Api, who: &Arc<Who>) -> Result<OwnSummary, ApiError> {
    let judge = Arc::clone(who);
    let ask = move |engine: &Engine, _: &_| {
        let mut summary = write::summary(engine.state());
        summary.brakes.retain(|brake| visible::sees_brake(engine.state(), &judge, brake));
        summary
    };
    let all = api.ask(who, ask).await?;
    if who.operates() {
        return Ok(OwnSummary { summary: all, cut: None });
    }
    let rows = JobRows::now(api, who).await?;
    beside_as(api, who, move || own_jobs(&rows, all)).await
}

fn own_jobs(rows: &JobRows, all: Summary) -> OwnSummary {
    let mut own = Summary { jobs: 0, queued: 0, running: 0, completed: 0, failed: 0, cancelled: 0, rejected: 0, ..all };
    let (mut budget, mut cut) = (ReadBudget::default(), None);
    for id in rows.after(None) {
        cut = budget.spend();
        if cut.is_some() {
            break;
        }
        let Some((job, _)) = rows.seen(id).filter(|(job, _)| job.service.is_none()) else { continue };
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
    OwnSummary { summary: own, cut }
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

//! Logs of a job's workers: the last lines, from the cluster or from the archive.
//!
//! Never: a log of a job that the caller may not see; more than 64 KiB of one worker, or 64 workers.

use super::Api;
use super::auth::Reader;
use super::error::ApiError;
use super::find::{Name, Place, find_anywhere};
use super::jobs::query;
use crate::cluster::logs::{LogsWanted, WorkerLog};
use crate::config::tokens::Who;
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use forebay_kernel::ids::{Attempt, JobId};
use serde::{Deserialize, Serialize};

/// The last lines unless asked for another number.
const LINES: u32 = 1_000;
/// The most lines of one worker.
const MOST_LINES: u32 = 10_000;

/// The ends of the logs of a job's workers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct JobLogs {
    /// Which job.
    pub job: String,
    /// Which attempt.
    pub attempt: u32,
    /// By the numbers of the workers.
    pub workers: Vec<WorkerLog>,
    /// Workers that are left out. Absent where none is.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted: usize,
}

fn is_zero(n: &usize) -> bool {
    *n == 0
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LogsQuery {
    worker: Option<u32>,
    attempt: Option<u32>,
    tail: Option<u32>,
}

pub(super) async fn logs(
    State(api): State<Api>,
    Reader(who): Reader,
    Name(name): Name,
    asked: Result<Query<LogsQuery>, QueryRejection>,
) -> Result<Json<JobLogs>, ApiError> {
    let asked = query(asked)?;
    let (job, last) = match find_anywhere(&api, &who, &name).await? {
        Place::State(id) => (id, last_attempt(&api, &who, id).await?),
        Place::Archive(found) => (found.id, found.view.attempt),
    };
    let Some(cluster) = &api.logs else {
        let remedy = "configure `kubernetes` in forebay.yaml (see docs/KUBERNETES.md)";
        return Err(ApiError::not_found("NoCluster", "work is simulated here: nothing runs that could print", remedy));
    };
    let attempt = asked.attempt.or(last).filter(|attempt| *attempt > 0).ok_or_else(|| {
        ApiError::not_found("NoLogs", format!("{job} has not run yet"), "ask `forebay why` what it waits for")
    })?;
    let lines = asked.tail.unwrap_or(LINES).clamp(1, MOST_LINES);
    let found = cluster.read(LogsWanted { job, attempt: Attempt(attempt), worker: asked.worker, lines }).await;
    if found.workers.is_empty() {
        let of = asked.worker.map_or_else(String::new, |worker| format!("worker {worker} of "));
        let message = format!("there is no log of {of}attempt {attempt} of {job}");
        return Err(match found.why {
            Some(why) => {
                ApiError::new(503, "LogsUnknown", format!("{message}: {why}"), "ask again later").retry_after(5)
            }
            None => ApiError::not_found(
                "NoLogs",
                message,
                "name an attempt and a worker that have run; old logs are removed",
            ),
        });
    }
    Ok(Json(JobLogs { job: job.to_string(), attempt, workers: found.workers, omitted: found.omitted }))
}

async fn last_attempt(api: &Api, who: &Who, id: JobId) -> Result<Option<u32>, ApiError> {
    api.ask(who, move |engine, _| engine.state().job(id).map(|(job, _)| job.attempt.0)).await
}

//! Reports of runs from outside: `run.progress`, `run.checkpointed`, `run.completed`, `run.failed`, each with its attempt's token.
//!
//! Never: takes a report without the token that the attempt was started with.

use super::look::At;
use super::{RejectCode, Rejected};
use forebay_engine::event::Event;
use forebay_engine::ids::{Attempt, JobId};
use serde_json::Value;

/// The token of an attempt: what its workers report with. Nobody else can make it without the key.
#[must_use]
pub fn token(key: &[u8; 32], job: JobId, attempt: Attempt) -> String {
    let hash = blake3::keyed_hash(key, format!("{job}/{attempt}").as_bytes());
    hash.to_hex().chars().take(32).collect()
}

/// The longest key of a manifest: `manifests/` and two numbers of ten digits have 36 bytes.
const MOST_MANIFEST: usize = 64;

/// The manifest that a report of a checkpoint names. Whether it is one is for whoever looks at it.
pub(super) fn manifest(kind: &str, data: &Value) -> Result<Option<String>, Rejected> {
    if kind != "run.checkpointed" {
        return Ok(None);
    }
    let named = At::under(data, "data").get("manifest").map(|at| at.word(MOST_MANIFEST).map(str::to_owned));
    named.transpose()
}

/// Decodes a report.
pub(super) fn decode(kind: &str, data: &Value, key: Option<&[u8; 32]>) -> Result<Event, Rejected> {
    let Some(key) = key else {
        return Err(Rejected::new(
            RejectCode::UnknownType,
            "type",
            "reports of runs are not taken here; send them to the controller",
        ));
    };
    let data = At::under(data, "data");
    let job = data.need("job", "give the job's id, such as job-12")?;
    let number = job.text()?.strip_prefix("job-").and_then(|n| n.parse().ok());
    let job = JobId(number.ok_or_else(|| job.bad("is not a job's id", "write it as job-12"))?);
    let attempt = Attempt(data.need("attempt", "give the number of the run")?.count(1, u32::MAX)?);
    let sent = data.need("token", "send the token that the run was started with")?;
    // Both are hashes under a key, so that comparing them byte by byte tells nothing of use.
    if blake3::hash(sent.text()?.as_bytes()) != blake3::hash(token(key, job, attempt).as_bytes()) {
        return Err(Rejected::new(
            RejectCode::Token,
            "data.token",
            "is not the token of this attempt; send the one that it was started with",
        ));
    }
    match kind {
        "run.progress" => {
            let idle = data.need("idle", "say for how long its GPUs have been idle, such as 0s")?.span()?;
            Ok(Event::RunIdle { job, attempt, idle })
        }
        "run.checkpointed" => {
            let progress = data.need("progress", "say how much work is saved, as run time such as 1h30m")?.span()?;
            Ok(Event::RunCheckpointed { job, attempt, progress })
        }
        "run.completed" => {
            let worker = data.get("worker").map(|at| at.count(0, u32::MAX)).transpose()?;
            Ok(Event::RunCompleted { job, attempt, worker })
        }
        "run.failed" => {
            let code = data.need("exitCode", "give the exit code")?;
            let exit_code = i32::try_from(code.whole(i64::from(i32::MIN), i64::from(i32::MAX))?)
                .map_err(|_| code.bad("is too large", "give an exit code"))?;
            Ok(Event::RunFailed { job, attempt, exit_code, node_fault: None })
        }
        _ => Err(Rejected::new(
            RejectCode::UnknownType,
            "type",
            "is not known; a run sends run.progress, run.checkpointed, run.completed or run.failed",
        )),
    }
}

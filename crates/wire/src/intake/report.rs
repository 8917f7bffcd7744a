//! Reports of runs from outside: `run.progress`, `run.checkpointed`, `run.completed`, `run.failed`, each with its attempt's token.
//!
//! Never: takes a report without the token that the attempt was started with.

use super::json_cursor::JsonCursor;
use super::scalar::{ExitCode, JobName, MOST_U32, SpanText, TokenText, Whole, Word};
use super::shape::{WireType, object};
use super::{RejectCode, Rejected};
use forebay_kernel::event::Event;
use forebay_kernel::ids::{Attempt, JobId};
use forebay_kernel::storage::{JournalIdentity, KeptRun};
use serde_json::Value;
use std::sync::Arc;

/// What the tokens of attempts are made with. A restored journal makes others, so that no token means two runs: one that was started after
/// the backup is not taken for the run that has its number now.
#[derive(Clone, Debug)]
pub struct AttemptKeys {
    key: [u8; 32],
    incarnation: u32,
    /// Runs that were alive at the restore.
    kept: Option<Arc<[KeptRun]>>,
}

impl AttemptKeys {
    /// Those of a journal that was never restored.
    #[must_use]
    pub const fn first(key: [u8; 32]) -> AttemptKeys {
        AttemptKeys { key, incarnation: 0, kept: None }
    }

    /// Those of a journal, by the key that lies beside it.
    #[must_use]
    pub fn of(key: [u8; 32], journal: &JournalIdentity) -> AttemptKeys {
        let kept = journal.eras.last().map(|era| era.runs.as_slice().into());
        AttemptKeys { key, incarnation: journal.id.incarnation, kept }
    }

    /// The token of an attempt.
    #[must_use]
    pub fn token(&self, job: JobId, attempt: Attempt) -> String {
        let kept = self.kept.iter().flat_map(|runs| runs.iter()).find(|run| run.job == job && run.attempt == attempt);
        match kept.map_or(self.incarnation, |run| run.incarnation) {
            0 => token(&self.key, job, attempt),
            n => token(blake3::keyed_hash(&self.key, format!("incarnation {n}").as_bytes()).as_bytes(), job, attempt),
        }
    }
}

/// The token of an attempt: what its workers report with. Nobody else can make it without the key.
#[must_use]
pub fn token(key: &[u8; 32], job: JobId, attempt: Attempt) -> String {
    let hash = blake3::keyed_hash(key, format!("{job}/{attempt}").as_bytes());
    hash.to_hex().chars().take(32).collect()
}

object! {
    /// Whose report it is: what every report of a run has in its data.
    RunReport, unknown: missing;
    /// The job, such as `job-12`.
    job: JobName = "job", needed "give the job's id, such as job-12";
    /// The number of the run.
    attempt: Whole<1, MOST_U32> = "attempt", needed "give the number of the run";
    /// The token that the run was started with.
    token: TokenText = "token", needed "send the token that the run was started with";
}

object! {
    /// `run.progress`: how busy a run's GPUs are.
    ProgressReport, unknown: missing;
    /// For how long its GPUs have been idle, such as `0s`.
    idle: SpanText = "idle", needed "say for how long its GPUs have been idle, such as 0s";
}

object! {
    /// `run.checkpointed`: a run saved its progress.
    CheckpointReport, unknown: missing;
    /// How much work is saved, as run time such as `1h30m`.
    progress: SpanText = "progress", needed "say how much work is saved, as run time such as 1h30m";
    /// The key of the checkpoint's manifest, from the job's `checkpoint.uri` on.
    manifest: Option<Word<MOST_MANIFEST>> = "manifest";
}

object! {
    /// `run.completed`: a worker, or the whole run, is done.
    CompletionReport, unknown: missing;
    /// Which worker, from 0. Absent: the whole run.
    worker: Option<Whole<0, MOST_U32>> = "worker";
}

object! {
    /// `run.failed`: a run has ended with an error.
    FailureReport, unknown: missing;
    /// The exit code of the worker that failed.
    exit_code: ExitCode = "exitCode", needed "give the exit code";
}

/// The longest key of a manifest: `manifests/` and two numbers of ten digits have 36 bytes.
const MOST_MANIFEST: usize = 64;

/// The manifest that a report of a checkpoint names. It is verified elsewhere.
pub(super) fn manifest(kind: &str, data: &Value) -> Result<Option<String>, Rejected> {
    if kind != "run.checkpointed" {
        return Ok(None);
    }
    let named = JsonCursor::under(data, "data").get("manifest").map(|at| at.word(MOST_MANIFEST).map(str::to_owned));
    named.transpose()
}

/// Decodes a report.
pub(super) fn decode(kind: &str, data: &Value, keys: Option<&AttemptKeys>) -> Result<Event, Rejected> {
    let Some(keys) = keys else {
        return Err(Rejected::new(
            RejectCode::UnknownType,
            "type",
            "reports of runs are not taken here; send them to the controller",
        ));
    };
    let data = JsonCursor::under(data, "data");
    let unread = &mut Vec::new();
    let run = RunReport::read(&data, unread)?;
    let (job, attempt) = (run.job.0, Attempt(run.attempt.as_u32()));
    // Both are hashes under a key, so that the time that comparing takes reveals nothing of use.
    if blake3::hash(run.token.0.as_bytes()) != blake3::hash(keys.token(job, attempt).as_bytes()) {
        return Err(Rejected::new(
            RejectCode::Token,
            "data.token",
            "is not the token of this attempt; send the one that it was started with",
        ));
    }
    match kind {
        "run.progress" => {
            let idle = ProgressReport::read(&data, unread)?.idle.0;
            Ok(Event::RunIdle { job, attempt, idle })
        }
        "run.checkpointed" => {
            let progress = CheckpointReport::read(&data, unread)?.progress.0;
            Ok(Event::RunCheckpointed { job, attempt, progress })
        }
        "run.completed" => {
            let worker = CompletionReport::read(&data, unread)?.worker.map(|n| n.as_u32());
            Ok(Event::RunCompleted { job, attempt, worker })
        }
        "run.failed" => {
            let exit_code = FailureReport::read(&data, unread)?.exit_code.as_i32();
            Ok(Event::RunFailed { job, attempt, exit_code, node_fault: None })
        }
        _ => Err(Rejected::new(
            RejectCode::UnknownType,
            "type",
            "is not known; a run sends run.progress, run.checkpointed, run.completed or run.failed",
        )),
    }
}

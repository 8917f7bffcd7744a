//! A job of a journal as a row of a trace: what it asked for, and how long its work took.
//!
//! Never: a duration that nobody has seen or stated.

use forebay_kernel::decision::Outcome;
use forebay_kernel::job::{Completion, Gang, JobSpec, Retry, WorkerAsk};
use forebay_kernel::state::jobs::{Job, Phase};
use forebay_kernel::units::Span;
use forebay_sim::trace::TraceJob;

/// A simulated job starts so often at most after failures of its own, less one.
const MOST_FAILURES: u32 = 2;

/// How long the work of a job took, restarts not counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lasted {
    /// It was done after so long.
    Done(Span),
    /// It failed or was cancelled after so long.
    CutShort(Span),
    /// Its end was not seen; its submitter expected so much.
    Expected(Span),
    /// Its end was not seen, and nobody said what to expect.
    Unknown,
}

impl Lasted {
    fn span(self) -> Option<Span> {
        match self {
            Lasted::Done(span) | Lasted::CutShort(span) | Lasted::Expected(span) => Some(span),
            Lasted::Unknown => None,
        }
    }
}

/// A row, its times since 1970.
#[derive(Debug)]
pub struct TraceRow {
    /// The row. Its name is still to be given.
    pub row: TraceJob,
    /// Whether it asked for what a trace has no column for.
    pub unsaid: bool,
}

/// How long a job lasted.
pub fn lasted(job: &Job, spec: &JobSpec) -> Lasted {
    let expected = || spec.expected.map_or(Lasted::Unknown, |span| Lasted::Expected(span.max(job.progress)));
    match job.phase {
        Phase::Done { outcome: Outcome::Completed } => Lasted::Done(worked(job, spec)),
        Phase::Done { outcome: Outcome::Failed | Outcome::Cancelled } if worked(job, spec) > Span::ZERO => {
            Lasted::CutShort(worked(job, spec))
        }
        _ => expected(),
    }
}

/// Work done: what was saved before the last run or in it, and what came after that if the run went on until the end.
fn worked(job: &Job, spec: &JobSpec) -> Span {
    let ran_to_the_end = job.first_start.is_some() && job.attempt.0 > job.failures + job.interruptions;
    let Some(ended) = job.ended.filter(|_| ran_to_the_end) else { return job.progress };
    // A run that saved nothing has its restart behind its start.
    let restart = if job.progress == job.resume_from { spec.restart } else { Span::ZERO };
    job.progress + Span(ended.since(job.saved_at).0.saturating_sub(restart.0))
}

/// A job as a row. `None`: its duration is not known, or no row can say what it asks for.
pub fn row(job: &Job, spec: &JobSpec, lasted: Lasted) -> Option<TraceRow> {
    let duration = lasted.span().filter(|_| spec.service.is_none())?;
    let shape = shape(&spec.gang)?;
    let row = TraceJob {
        submit_ms: job.arrival.0,
        duration_ms: duration.0,
        user: Some(spec.principal.clone()).filter(|name| !name.is_empty()),
        queue: Some(spec.queue.clone()),
        tier: spec.tier.clone(),
        priority: Some(spec.priority.to_string()).filter(|_| spec.priority != 0),
        gpu_models: spec.models.clone(),
        deadline_ms: spec.deadline.map(|at| at.0),
        estimate_ms: spec.expected.map(|span| span.0),
        checkpoint_every_ms: spec.checkpoint.map(|c| c.every.0),
        grace_ms: spec.checkpoint.map(|c| c.grace.0),
        saves: Some(spec.checkpoint.is_some()),
        spot: Some(spec.spot),
        // What failed for good ends after its last run: that it failed before is not played again.
        failures: if matches!(lasted, Lasted::Done(_)) { job.failures.min(MOST_FAILURES) } else { 0 },
        restart_ms: Some(spec.restart.0),
        ..shape
    };
    let unsaid = spec.within.is_some()
        || spec.batch.is_some()
        || spec.max_run.is_some()
        || spec.completion != Completion::All
        || spec.retry.attempts != Retry::default().attempts;
    Some(TraceRow { row, unsaid })
}

/// What a gang asks for. `None`: shares of GPUs for several workers, which a row cannot say.
fn shape(gang: &Gang) -> Option<TraceJob> {
    let (gpus, count, WorkerAsk { share, gpu_mem, cpu, mem, .. }) = match gang {
        Gang::Workers { min, each, .. } => (u32::from(each.gpus).checked_mul(*min)?, u64::from(*min), *each),
        Gang::Spanning { gpus, per_gpu } => (*gpus, u64::from(*gpus), *per_gpu),
    };
    let (workers, workers_max) = match gang {
        Gang::Workers { min, max, .. } => (Some(*min), Some(*max).filter(|max| max > min)),
        Gang::Spanning { .. } => (None, None),
    };
    let shared = gpus > 0 && share < 1000;
    if shared && gpus > 1 {
        return None;
    }
    Some(TraceJob {
        gpus,
        workers,
        workers_max,
        gpu_milli: if shared { u32::from(share) } else { 1000 },
        gpu_mem_mib: u32::try_from(gpu_mem.0).ok()?,
        cpu_milli: cpu.0.checked_mul(count)?,
        mem_mib: mem.0.checked_mul(count)?,
        ..TraceJob::default()
    })
}

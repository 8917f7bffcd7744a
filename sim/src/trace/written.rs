//! Jobs as the project's own CSV, so that they can be kept, examined and given to a command.
//! It never leaves out what a job states, nor writes what it does not state.

use super::TraceJob;
use super::normalized::COLUMNS;

/// The first line of a normalized CSV.
pub const HEADER: &str = COLUMNS;

/// Jobs as a normalized CSV.
#[must_use]
pub fn as_csv(jobs: &[TraceJob]) -> String {
    let rows: String = jobs.iter().map(csv_row).collect();
    format!("{HEADER}\n{rows}")
}

/// One job as a line of a normalized CSV, with its line break.
#[must_use]
pub fn csv_row(j: &TraceJob) -> String {
    let word = |word: &Option<String>| csv_field(word.as_deref().unwrap_or_default());
    let s = |ms: Option<u64>| ms.map(csv_seconds).unwrap_or_default();
    let n = |count: Option<u32>| count.map(|n| n.to_string()).unwrap_or_default();
    let is = |truth: Option<bool>| truth.map(|t| t.to_string()).unwrap_or_default();
    let util = j.gpu_util_permille.map(|p| format!("{}.{:03}", p / 1000, p % 1000)).unwrap_or_default();
    let fields = [
        csv_field(&j.id),
        csv_seconds(j.submit_ms),
        csv_seconds(j.duration_ms),
        j.gpus.to_string(),
        n(j.workers),
        n(j.workers_max),
        j.gpu_milli.to_string(),
        j.gpu_mem_mib.to_string(),
        j.cpu_milli.to_string(),
        j.mem_mib.to_string(),
        word(&j.user),
        word(&j.queue),
        word(&j.tier),
        word(&j.priority),
        csv_field(&j.gpu_models.join("|")),
        s(j.deadline_ms),
        s(j.estimate_ms),
        s(j.checkpoint_every_ms),
        s(j.grace_ms),
        s(j.restart_ms),
        is(j.saves),
        is(j.spot),
        is(j.preemptible),
        n(Some(j.failures).filter(|n| *n > 0)),
        s(j.max_wait_ms),
        util,
    ];
    fields.join(",") + "\n"
}

/// A field of CSV (RFC 4180), quoted where it has to be.
#[must_use]
pub fn csv_field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

/// Milliseconds as the seconds of a CSV, exactly.
#[must_use]
pub fn csv_seconds(ms: u64) -> String {
    match ms % 1000 {
        0 => (ms / 1000).to_string(),
        rest => format!("{}.{rest:03}", ms / 1000),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{TraceFormat, generate_sharing, read};
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let mut jobs = generate_sharing(4, 1);
        jobs[3].deadline_ms = Some(77_123);
        jobs[3].gpu_models = vec!["l4".into(), "a10g".into()];
        jobs[4].workers = None;
        jobs[5].queue = Some("a, \"b\"".into());
        let workers = jobs[5].workers;
        jobs[5] = TraceJob {
            workers_max: workers.map(|n| n + 3),
            grace_ms: Some(1500),
            saves: Some(false),
            spot: Some(true),
            failures: 2,
            ..jobs[5].clone()
        };
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("made.csv");
        std::fs::write(&path, as_csv(&jobs)).expect("a temporary file");
        let trace = read(&path, None).expect("it is a trace");
        assert_eq!((trace.format, trace.notes.len()), (TraceFormat::Normalized, 0));
        assert_eq!(trace.jobs, jobs);
    }
}

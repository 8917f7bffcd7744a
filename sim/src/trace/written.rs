//! A made-up trace as the project's own CSV, so that it can be kept, examined and given to a command.
//! It never leaves out what a job states, nor writes what it does not state.

use std::fmt::Write as _;

use super::TraceJob;
use super::normalized::COLUMNS;

/// Jobs as a normalized CSV. Names must not hold commas, quotes or line breaks: what is generated here has none.
#[must_use]
pub fn as_csv(jobs: &[TraceJob]) -> String {
    let mut out = format!("{COLUMNS}\n");
    for j in jobs {
        let word = |word: &Option<String>| word.clone().unwrap_or_default();
        let s = |ms: Option<u64>| ms.map(seconds).unwrap_or_default();
        let workers = j.workers.map(|n| n.to_string()).unwrap_or_default();
        let preemptible = j.preemptible.map(|p| p.to_string()).unwrap_or_default();
        let util = j.gpu_util_permille.map(|p| format!("{}.{:03}", p / 1000, p % 1000)).unwrap_or_default();
        let (submit, duration) = (seconds(j.submit_ms), seconds(j.duration_ms));
        let (user, queue, tier, priority) = (word(&j.user), word(&j.queue), word(&j.tier), word(&j.priority));
        let (models, deadline, estimate) = (j.gpu_models.join("|"), s(j.deadline_ms), s(j.estimate_ms));
        let (saves, restart, max_wait) = (s(j.checkpoint_every_ms), s(j.restart_ms), s(j.max_wait_ms));
        // Writing to a string does not fail.
        let _ = writeln!(
            out,
            "{},{submit},{duration},{},{workers},{},{},{},{},{user},{queue},{tier},{priority},{models},{deadline},{estimate},\
             {saves},{restart},{preemptible},{max_wait},{util}",
            j.id, j.gpus, j.gpu_milli, j.gpu_mem_mib, j.cpu_milli, j.mem_mib,
        );
    }
    out
}

fn seconds(ms: u64) -> String {
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
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("made.csv");
        std::fs::write(&path, as_csv(&jobs)).expect("a temporary file");
        let trace = read(&path, None).expect("it is a trace");
        assert_eq!((trace.format, trace.notes.len()), (TraceFormat::Normalized, 0));
        assert_eq!(trace.jobs, jobs);
    }
}

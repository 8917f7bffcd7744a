//! Alibaba's `cluster-trace-gpu-v2023` pods (`openb_pod_list_*.csv`), in the published layout.
//! It never reads the `multigpu` lists as a trace: they carry no times, and the error names the missing column.
//!
//! Source: <https://github.com/alibaba/clusterdata/tree/master/cluster-trace-gpu-v2023>. Times are seconds.

use forebay_catalog::input::{CsvTable, InputError, Opened};

use super::normalized::share;
use super::{TraceJob, bounded, models, note, note_cut};

pub(super) fn read(opened: Opened) -> Result<(Vec<TraceJob>, Vec<String>), InputError> {
    let mut table = CsvTable::new(opened)?;
    table.require(&["name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"])?;
    table.require(&["creation_time", "deletion_time", "scheduled_time"])?;
    let (mut jobs, mut notes) = (Vec::new(), Vec::new());
    let (mut pending, mut unended) = (0, 0);
    while let Some(row) = table.next_row()? {
        bounded(table.path(), row.line, jobs.len())?;
        let submit_ms = row.ms("creation_time")?;
        if row.text("scheduled_time").is_empty() {
            pending += 1;
            continue;
        }
        if row.text("deletion_time").is_empty() {
            unended += 1;
            continue;
        }
        let (start_ms, end_ms) = (row.ms("scheduled_time")?, row.ms("deletion_time")?);
        let Some(duration_ms) = end_ms.checked_sub(start_ms) else {
            return Err(row.fault("deletion_time", "before the scheduled_time of its row", "correct one of the two"));
        };
        let count = row.small("num_gpu", 1024)?;
        jobs.push(TraceJob {
            id: row.id("name")?,
            submit_ms,
            duration_ms,
            gpus: count,
            // A pod is one worker on one node.
            workers: Some(1),
            gpu_milli: share(&row, count)?,
            cpu_milli: row.whole("cpu_milli", 1_000_000_000)?,
            mem_mib: row.whole("memory_mib", 1 << 30)?,
            priority: row.word("qos"),
            gpu_models: models(row.text("gpu_spec")),
            line: row.line,
            ..TraceJob::default()
        });
    }
    table.not_empty("the file has a header but no pods")?;
    note(&mut notes, pending, "pods were skipped: never scheduled (no scheduled_time)");
    note(&mut notes, unended, "pods were skipped: still there at the end (no deletion_time)");
    note_cut(&mut notes, &table);
    Ok((jobs, notes))
}

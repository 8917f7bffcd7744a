//! Alibaba's `cluster-trace-gpu-v2023` pods (`openb_pod_list_*.csv`), in the published layout.
//! It never reads the `multigpu` lists as a trace: they carry no times, and the error names the missing column.
//!
//! Source: <https://github.com/alibaba/clusterdata/tree/master/cluster-trace-gpu-v2023>. Times are seconds.

use super::file::Opened;
use super::normalized::share;
use super::rows::Table;
use super::{TraceError, TraceJob, bounded, models, note, note_cut};

pub(super) fn read(opened: Opened) -> Result<(Vec<TraceJob>, Vec<String>), TraceError> {
    let mut table = Table::new(opened)?;
    let [name, cpu, mem, gpus, milli] = [
        table.column("name")?,
        table.column("cpu_milli")?,
        table.column("memory_mib")?,
        table.column("num_gpu")?,
        table.column("gpu_milli")?,
    ];
    let [created, deleted, scheduled] =
        [table.column("creation_time")?, table.column("deletion_time")?, table.column("scheduled_time")?];
    let (spec, qos) = (table.optional("gpu_spec"), table.optional("qos"));
    let (mut jobs, mut notes) = (Vec::new(), Vec::new());
    let (mut pending, mut unended) = (0, 0);
    while let Some(row) = table.next_row()? {
        bounded(table.path(), row.line, jobs.len())?;
        let submit_ms = row.ms(created)?;
        if row.text(scheduled).is_empty() {
            pending += 1;
            continue;
        }
        if row.text(deleted).is_empty() {
            unended += 1;
            continue;
        }
        let (start_ms, end_ms) = (row.ms(scheduled)?, row.ms(deleted)?);
        let Some(duration_ms) = end_ms.checked_sub(start_ms) else {
            return Err(row.fault(deleted, "before the scheduled_time of its row", "correct one of the two"));
        };
        let count = row.small(gpus, 1024)?;
        jobs.push(TraceJob {
            id: row.id(name)?,
            submit_ms,
            duration_ms,
            gpus: count,
            // A pod is one worker on one node.
            workers: Some(1),
            gpu_milli: share(&row, milli, count)?,
            cpu_milli: row.whole(cpu, 1_000_000_000)?,
            mem_mib: row.whole(mem, 1 << 30)?,
            priority: row.maybe(qos).map(|(_, text)| text.to_owned()),
            gpu_models: row.maybe(spec).map(|(_, text)| models(text)).unwrap_or_default(),
            line: row.line,
            ..TraceJob::default()
        });
    }
    if jobs.is_empty() && pending + unended == 0 {
        return Err(TraceError::Empty { path: table.path().to_owned(), what: "the file has a header but no pods" });
    }
    note(&mut notes, pending, "pods were skipped: never scheduled (no scheduled_time)");
    note(&mut notes, unended, "pods were skipped: still there at the end (no deletion_time)");
    note_cut(&mut notes, &table);
    Ok((jobs, notes))
}

//! SenseTime's Helios `cluster_log.csv`, in the published layout.
//! It never uses the queueing time that the log reports: queues are what a simulation finds out.
//!
//! Source: <https://github.com/S-Lab-System-Group/HeliosData>. Times are wall-clock text without a zone, read as UTC.

use jiff::civil::DateTime;

use forebay_catalog::input::{CsvRow, CsvTable, InputError, Opened};

use super::{TraceJob, bounded, note, note_cut};

/// GPUs of the largest Helios node: a job that claims more on one node is free to span.
const NODE_GPUS: u32 = 8;

pub(super) fn read(opened: Opened) -> Result<(Vec<TraceJob>, Vec<String>), InputError> {
    let mut table = CsvTable::new(opened)?;
    table.require(&["job_id", "gpu_num", "cpu_num", "node_num", "submit_time", "start_time", "end_time"])?;
    let (mut jobs, mut notes) = (Vec::new(), Vec::new());
    let (mut submits, mut unstarted, mut unended, mut uneven) = (Vec::new(), 0, 0, 0);
    while let Some(row) = table.next_row()? {
        bounded(table.path(), row.line, jobs.len())?;
        let submit_ms = clock(&row, "submit_time")?;
        if unknown(row.text("start_time")) {
            unstarted += 1;
            continue;
        }
        if unknown(row.text("end_time")) {
            unended += 1;
            continue;
        }
        let duration_ms = match row.maybe("duration") {
            Some(text) if !unknown(text) => row.ms("duration")?,
            _ => {
                let ms = clock(&row, "end_time")?
                    .checked_sub(clock(&row, "start_time")?)
                    .and_then(|ms| u64::try_from(ms).ok());
                ms.ok_or_else(|| row.fault("end_time", "before the start_time of its row", "correct one of the two"))?
            }
        };
        let count = row.small("gpu_num", 1_000_000)?;
        let span = row.small("node_num", 1_000_000)?;
        let even = span > 0 && count.is_multiple_of(span) && count / span <= NODE_GPUS;
        uneven += u64::from(!even);
        submits.push(submit_ms);
        jobs.push(TraceJob {
            id: row.id("job_id")?,
            duration_ms,
            gpus: count,
            workers: even.then_some(span),
            gpu_milli: 1000,
            cpu_milli: row.whole("cpu_num", 1_000_000)? * 1000,
            user: row.word("user"),
            queue: row.word("vc"),
            line: row.line,
            ..TraceJob::default()
        });
    }
    table.not_empty("the file has a header but no jobs")?;
    from_first(&mut jobs, &submits);
    note(&mut notes, unstarted, "jobs were skipped: never started (no start_time)");
    note(&mut notes, unended, "jobs were skipped: still running at the end (no end_time)");
    note(&mut notes, uneven, "jobs may span nodes freely: their GPUs do not fit their node_num evenly");
    note_cut(&mut notes, &table);
    Ok((jobs, notes))
}

/// Sets the trace's zero at the earliest submission. `submits` are Unix milliseconds, one a job.
pub(super) fn from_first(jobs: &mut [TraceJob], submits: &[i64]) {
    let zero = submits.iter().min().copied().unwrap_or(0);
    for (job, at) in jobs.iter_mut().zip(submits) {
        job.submit_ms = at.saturating_sub(zero).unsigned_abs();
    }
}

/// What the public logs write where a time is not known.
pub(super) fn unknown(text: &str) -> bool {
    text.is_empty() || ["none", "null", "nan", "nat", "unknown", "n/a"].iter().any(|u| text.eq_ignore_ascii_case(u))
}

/// `2017-10-07 01:12:09` as Unix milliseconds, its zone taken to be UTC.
pub(super) fn wall_clock(text: &str) -> Option<i64> {
    let at: DateTime = text.parse().ok()?;
    let at = at.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_millisecond();
    // Years 1970 to 2200: outside them the column is something else, and differences could overflow.
    (0..7_258_118_400_000).contains(&at).then_some(at)
}

fn clock(row: &CsvRow, at: &str) -> Result<i64, InputError> {
    wall_clock(row.text(at)).ok_or_else(|| row.fault(at, "not a time", "write it as 2020-06-09 18:41:01"))
}

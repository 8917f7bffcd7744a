//! The project's own trace: CSV with a header, columns by name in any order.
//! It never fills in what the file does not state, beyond what "unknown" means for each column.

use super::file::Opened;
use super::rows::{Column, Row, Table};
use super::{TraceError, TraceJob, bounded, models, note_cut};

/// More GPUs than any cluster has: the bound catches a column that is something else.
const MAX_GPUS: u32 = 1_000_000;
/// 1,000 TiB in MiB: likewise.
const MAX_MIB: u64 = 1 << 30;
/// A million cores in millicores: likewise.
const MAX_CPU: u64 = 1_000_000_000;

const KNOWN: [&str; 21] = [
    "job_id",
    "submit_s",
    "duration_s",
    "gpus",
    "workers",
    "gpu_milli",
    "gpu_mem_mib",
    "cpu",
    "mem_mib",
    "user",
    "queue",
    "tier",
    "priority",
    "gpu_model",
    "deadline_s",
    "estimate_s",
    "checkpoint_every_s",
    "restart_s",
    "preemptible",
    "max_wait_s",
    "gpu_util",
];

struct Columns {
    job_id: Column,
    submit_s: Column,
    duration_s: Column,
    gpus: Column,
    optional: [Option<Column>; 17],
}

pub(super) fn read(opened: Opened) -> Result<(Vec<TraceJob>, Vec<String>), TraceError> {
    let mut table = Table::new(opened)?;
    let mut optional = [None; 17];
    for (slot, name) in optional.iter_mut().zip(KNOWN.iter().skip(4)) {
        *slot = table.optional(name);
    }
    let columns = Columns {
        job_id: table.column("job_id")?,
        submit_s: table.column("submit_s")?,
        duration_s: table.column("duration_s")?,
        gpus: table.column("gpus")?,
        optional,
    };
    let mut notes = Vec::new();
    let unused = table.unused(&KNOWN);
    if !unused.is_empty() {
        notes.push(format!("columns without a meaning here were not used: {}", unused.join(", ")));
    }
    let mut jobs = Vec::new();
    while let Some(row) = table.next_row()? {
        bounded(table.path(), row.line, jobs.len())?;
        jobs.push(job(&row, &columns)?);
    }
    if jobs.is_empty() {
        return Err(TraceError::Empty { path: table.path().to_owned(), what: "the file has a header but no jobs" });
    }
    note_cut(&mut notes, &table);
    Ok((jobs, notes))
}

fn job(row: &Row, c: &Columns) -> Result<TraceJob, TraceError> {
    let [
        workers,
        gpu_milli,
        gpu_mem,
        cpu,
        mem,
        user,
        queue,
        tier,
        priority,
        model,
        deadline,
        estimate,
        checkpoint,
        restart,
        preemptible,
        max_wait,
        util,
    ] = c.optional;
    let word = |column| row.maybe(column).map(|(_, text)| text.to_owned());
    let ms = |column| row.maybe(column).map(|(at, _)| row.ms(at)).transpose();
    let gpus = row.small(c.gpus, MAX_GPUS)?;
    Ok(TraceJob {
        id: row.id(c.job_id)?,
        submit_ms: row.ms(c.submit_s)?,
        duration_ms: row.ms(c.duration_s)?,
        gpus,
        workers: row.maybe(workers).map(|(at, _)| workers_of(row, at, gpus)).transpose()?,
        gpu_milli: row.maybe(gpu_milli).map_or(Ok(1000), |(at, _)| share(row, at, gpus))?,
        gpu_mem_mib: row.maybe(gpu_mem).map_or(Ok(0), |(at, _)| row.small(at, 1 << 24))?,
        cpu_milli: row.maybe(cpu).map_or(Ok(0), |(at, _)| row.whole(at, MAX_CPU))?,
        mem_mib: row.maybe(mem).map_or(Ok(0), |(at, _)| row.whole(at, MAX_MIB))?,
        user: word(user),
        queue: word(queue),
        tier: word(tier),
        priority: word(priority),
        gpu_models: row.maybe(model).map(|(_, text)| models(text)).unwrap_or_default(),
        deadline_ms: ms(deadline)?,
        estimate_ms: ms(estimate)?,
        checkpoint_every_ms: ms(checkpoint)?,
        restart_ms: ms(restart)?,
        preemptible: row.maybe(preemptible).map(|(at, text)| truth(row, at, text)).transpose()?,
        max_wait_ms: ms(max_wait)?,
        gpu_util_permille: row.maybe(util).map(|(at, _)| fraction(row, at)).transpose()?,
        line: row.line,
    })
}

fn workers_of(row: &Row, at: Column, gpus: u32) -> Result<u32, TraceError> {
    let workers = row.small(at, MAX_GPUS)?;
    if workers == 0 {
        return Err(row.fault(at, "a gang without workers", "write 1 or more, or leave the field empty"));
    }
    if !gpus.is_multiple_of(workers) {
        let problem = format!("{gpus} GPUs cannot be spread evenly over the workers");
        return Err(row.fault(at, problem, "write a divisor of gpus, or leave the field empty"));
    }
    Ok(workers)
}

/// The share of each GPU; shared by the layouts that have one.
pub(super) fn share(row: &Row, at: Column, gpus: u32) -> Result<u32, TraceError> {
    let milli = row.small(at, u32::MAX)?;
    match (gpus, milli) {
        (0, 0..=1000) | (_, 1000) => Ok(1000),
        (1, 1..=999) => Ok(milli),
        (2.., 1..=999) => {
            Err(row.fault(at, format!("a share of each of {gpus} GPUs"), "write 1000, as only single GPUs are shared"))
        }
        _ => Err(row.fault(at, "out of range", "write 1 to 1000 (thousandths of one GPU)")),
    }
}

fn truth(row: &Row, at: Column, text: &str) -> Result<bool, TraceError> {
    match text.to_lowercase().as_str() {
        "true" | "yes" | "1" => Ok(true),
        "false" | "no" | "0" => Ok(false),
        _ => Err(row.fault(at, "neither true nor false", "write true or false")),
    }
}

fn fraction(row: &Row, at: Column) -> Result<u32, TraceError> {
    let permille = row.decimal(at, 3, 1000, "a fraction from 0 to 1, such as 0.7 for 70 %")?;
    Ok(u32::try_from(permille).unwrap_or(1000))
}

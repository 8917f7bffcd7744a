//! The project's own trace: CSV with a header, columns by name in any order.
//! It never fills in what the file does not state, beyond what "unknown" means for each column.

use std::collections::BTreeMap;

use forebay_catalog::input::{CsvRow, CsvTable, InputError, Opened};
use forebay_quantity::slip::did_you_mean;

use super::{TraceJob, bounded, models, note_cut};

/// More GPUs than any cluster has: the bound catches a column that is something else.
const MAX_GPUS: u32 = 1_000_000;
/// 1,000 TiB in MiB: likewise.
const MAX_MIB: u64 = 1 << 30;
/// A million cores in millicores: likewise.
const MAX_CPU: u64 = 1_000_000_000;

/// More failures than any job is allowed: likewise.
const MAX_FAILURES: u32 = 1000;

/// Every column that has a meaning here, in the order that they are written in.
pub(super) const COLUMNS: &str = "job_id,submit_s,duration_s,gpus,workers,workers_max,gpu_milli,gpu_mem_mib,cpu,mem_mib,user,queue,tier,\
                                  priority,gpu_model,deadline_s,estimate_s,checkpoint_every_s,grace_s,restart_s,saves,spot,preemptible,\
                                  failures,max_wait_s,gpu_util";

pub(super) fn read(opened: Opened) -> Result<(Vec<TraceJob>, Vec<String>), InputError> {
    let mut table = CsvTable::new(opened)?;
    table.require(&["job_id", "submit_s", "duration_s", "gpus"])?;
    let mut notes = Vec::new();
    let known: Vec<&str> = COLUMNS.split(',').collect();
    let unused = table.unused(&known);
    if !unused.is_empty() {
        let free = |name: &&str| !table.has(name);
        let named = unused.iter().map(|name| match did_you_mean(name, known.iter().copied().filter(free)) {
            Some(question) => format!("{name} ({question})"),
            None => name.clone(),
        });
        let (path, line, named) = (table.path().display(), table.header_line(), named.collect::<Vec<_>>().join(", "));
        notes.push(format!("{path}, line {line}: columns without a meaning here were not used: {named}"));
    }
    let mut jobs = Vec::new();
    while let Some(row) = table.next_row()? {
        bounded(table.path(), row.line, jobs.len())?;
        jobs.push(job(&row)?);
    }
    table.not_empty("the file has a header but no jobs")?;
    note_cut(&mut notes, &table);
    Ok((jobs, notes))
}

fn job(row: &CsvRow) -> Result<TraceJob, InputError> {
    let ms = |column| row.maybe(column).map(|_| row.ms(column)).transpose();
    let gpus = row.small("gpus", MAX_GPUS)?;
    Ok(TraceJob {
        id: row.id("job_id")?,
        submit_ms: row.ms("submit_s")?,
        duration_ms: row.ms("duration_s")?,
        gpus,
        workers: row.maybe("workers").map(|_| workers(row, gpus)).transpose()?,
        workers_max: row.maybe("workers_max").map(|_| workers_max(row)).transpose()?,
        gpu_milli: row.maybe("gpu_milli").map_or(Ok(1000), |_| share(row, gpus))?,
        gpu_mem_mib: row.maybe("gpu_mem_mib").map_or(Ok(0), |_| row.small("gpu_mem_mib", 1 << 24))?,
        cpu_milli: row.maybe("cpu").map_or(Ok(0), |_| row.whole("cpu", MAX_CPU))?,
        mem_mib: row.maybe("mem_mib").map_or(Ok(0), |_| row.whole("mem_mib", MAX_MIB))?,
        user: row.word("user"),
        queue: row.word("queue"),
        tier: row.word("tier"),
        priority: row.word("priority"),
        gpu_models: models(row.text("gpu_model")),
        deadline_ms: ms("deadline_s")?,
        estimate_ms: ms("estimate_s")?,
        checkpoint_every_ms: ms("checkpoint_every_s")?,
        grace_ms: ms("grace_s")?,
        saves: truth(row, "saves")?,
        spot: truth(row, "spot")?,
        failures: row.maybe("failures").map_or(Ok(0), |_| row.small("failures", MAX_FAILURES))?,
        restart_ms: ms("restart_s")?,
        preemptible: truth(row, "preemptible")?,
        max_wait_ms: ms("max_wait_s")?,
        labels: BTreeMap::new(),
        gpu_util_permille: row.maybe("gpu_util").map(|_| fraction(row)).transpose()?,
        line: row.line,
    })
}

fn workers(row: &CsvRow, gpus: u32) -> Result<u32, InputError> {
    let workers = row.small("workers", MAX_GPUS)?;
    if workers == 0 {
        return Err(row.fault("workers", "a gang without workers", "write 1 or more, or leave the field empty"));
    }
    if !gpus.is_multiple_of(workers) {
        let problem = format!("{gpus} GPUs cannot be spread evenly over the workers");
        return Err(row.fault("workers", problem, "write a divisor of gpus, or leave the field empty"));
    }
    Ok(workers)
}

/// The share of each GPU; shared by the layouts that have one.
pub(super) fn share(row: &CsvRow, gpus: u32) -> Result<u32, InputError> {
    let milli = row.small("gpu_milli", u32::MAX)?;
    match (gpus, milli) {
        (0, 0..=1000) | (_, 1000) => Ok(1000),
        (1, 1..=999) => Ok(milli),
        (2.., 1..=999) => Err(row.fault(
            "gpu_milli",
            format!("a share of each of {gpus} GPUs"),
            "write 1000, as only single GPUs are shared",
        )),
        _ => Err(row.fault("gpu_milli", "out of range", "write 1 to 1000 (thousandths of one GPU)")),
    }
}

fn workers_max(row: &CsvRow) -> Result<u32, InputError> {
    let most = row.small("workers_max", MAX_GPUS)?;
    match row.maybe("workers").map(|_| row.small("workers", MAX_GPUS)).transpose()? {
        Some(fewest) if most >= fewest => Ok(most),
        Some(_) => {
            Err(row.fault("workers_max", "fewer than workers", "write workers or more, or leave the field empty"))
        }
        None => Err(row.fault("workers_max", "without workers", "write the fewest workers in the column workers")),
    }
}

fn truth(row: &CsvRow, column: &str) -> Result<Option<bool>, InputError> {
    let Some(text) = row.maybe(column) else { return Ok(None) };
    match text.to_lowercase().as_str() {
        "true" | "yes" | "1" => Ok(Some(true)),
        "false" | "no" | "0" => Ok(Some(false)),
        _ => Err(row.fault(column, "neither true nor false", "write true or false")),
    }
}

fn fraction(row: &CsvRow) -> Result<u32, InputError> {
    let permille = row.decimal("gpu_util", 3, 1000, "a fraction from 0 to 1, such as 0.7 for 70 %")?;
    Ok(u32::try_from(permille).unwrap_or(1000))
}

//! What a trace tells of demand.
//!
//! Never: a start. A trace has none, so nobody knows from it what waited.

use super::{DemandFault, DemandGathered, DemandOrigin, boot_of};
use crate::past::BOOTS_FILE;
use forebay_kernel::units::{MilliGpu, Span, Timestamp};
use forebay_sim::demand::{DemandJob, DemandRecords, Tolerance, ToleranceSource, WaitSeen, WorkClass};
use forebay_sim::trace::{self, Trace, TraceFormat, TraceJob};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Reads a trace, and `boot_times.csv` where it lies beside it.
///
/// # Errors
/// One of the two cannot be used: with its line, its column and the remedy.
pub fn of_trace(path: &Path, format: Option<TraceFormat>) -> Result<DemandGathered, DemandFault> {
    let trace = trace::read(path, format)?;
    let beside = path.with_file_name(BOOTS_FILE);
    let boots: Vec<Span> = match beside.is_file() {
        true => trace::read_boots(beside)?.into_values().flatten().collect(),
        false => Vec::new(),
    };
    let (boot, boot_from) = boot_of(boots, &format!("in {BOOTS_FILE}"));
    let services = services(path, &trace)?;
    let (mut records, mut known) = (DemandRecords { boot, ..DemandRecords::default() }, BTreeMap::new());
    for row in &trace.jobs {
        let queue = row.queue.as_deref().map(|name| records.queue(&mut known, name));
        let class = match &services {
            Some(services) if services.contains(&row.id) => Some(WorkClass::Inference),
            Some(_) => Some(WorkClass::Batch),
            None => class(row),
        };
        records.jobs.push(job(row, queue, class));
    }
    let name = path.display().to_string();
    Ok(DemandGathered { name, origin: DemandOrigin::Trace, records, boot_from, notes: trace.notes })
}

/// The subjects of what serves in a file of events: it says so, or its `kind` does. `None`: it is no file of events.
fn services(path: &Path, trace: &Trace) -> Result<Option<BTreeSet<String>>, DemandFault> {
    if trace.format != TraceFormat::Events {
        return Ok(None);
    }
    let serves = |event: &Value| {
        let kind = event.pointer("/data/kind").and_then(Value::as_str).and_then(WorkClass::told_by);
        event.pointer("/data/service").is_some() || kind == Some(WorkClass::Inference)
    };
    let lines = trace::read_events(path)?.lines;
    let subjects =
        lines.iter().filter(|line| serves(&line.event)).filter_map(|line| line.event.get("subject")?.as_str());
    Ok(Some(subjects.map(str::to_owned).collect()))
}

fn class(row: &TraceJob) -> Option<WorkClass> {
    [&row.priority, &row.tier, &row.queue].into_iter().flatten().find_map(|name| WorkClass::told_by(name))
}

fn job(row: &TraceJob, queue: Option<u32>, class: Option<WorkClass>) -> DemandJob {
    let lasts = Span(row.duration_ms);
    let by_job = row.max_wait_ms.map(|ms| Tolerance { wait: Span(ms), source: ToleranceSource::MaxWait });
    let until = |ms: u64| Tolerance::until_deadline(Span(ms.saturating_sub(row.submit_ms)), lasts);
    let tolerances = [by_job, row.deadline_ms.map(until)];
    DemandJob {
        queue,
        submitted: Timestamp(row.submit_ms),
        share: MilliGpu(u64::from(row.gpus) * u64::from(row.gpu_milli)),
        asks_for: Some(lasts),
        lasted: Some(lasts),
        wait: WaitSeen::Unknown,
        tolerance: tolerances.into_iter().flatten().min_by_key(|tolerance| tolerance.wait),
        class,
        busy_permille: row.gpu_util_permille,
    }
}

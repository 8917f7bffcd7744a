//! Microsoft's Philly `cluster_job_log`, JSON in the published layout.
//! It never counts the time between attempts as work, and never guesses an end that was not logged.
//!
//! Source: <https://github.com/msr-fiddle/philly-traces>. Times are wall-clock text without a zone, read as UTC; the log
//! spans the end of daylight saving, so an attempt may seem to end before it began: such attempts count as 0.

use forebay_catalog::input::{InputError, Opened};
use serde_json::Value;

use super::helios::{from_first, unknown, wall_clock};
use super::objects::Objects;
use super::{TraceJob, bounded, note};

#[derive(Default)]
struct Counts {
    no_attempt: u64,
    no_end: u64,
    gaps: u64,
    backwards: u64,
    resized: u64,
    retried: u64,
}

pub(super) fn read(opened: Opened) -> Result<(Vec<TraceJob>, Vec<String>), InputError> {
    let mut objects = Objects::new(opened);
    let (mut jobs, mut submits, mut counts, mut seen) = (Vec::new(), Vec::new(), Counts::default(), 0u64);
    while let Some((line, object)) = objects.next_object()? {
        seen += 1;
        bounded(&objects.path, line, jobs.len())?;
        let id = text(&objects, line, &object, "jobid")?;
        let submitted = time(&objects, line, &object, "submitted_time")?;
        let Some((duration_ms, gpus)) = attempts(&objects, line, &object, &mut counts)? else {
            continue;
        };
        let Some(submitted) = submitted else {
            let remedy = "write it as 2017-10-07 01:11:39";
            return Err(objects.missing(line, "submitted_time", &object, remedy));
        };
        let word = |key| object.get(key).and_then(Value::as_str).filter(|s| !s.is_empty()).map(str::to_owned);
        submits.push(submitted);
        jobs.push(TraceJob {
            id,
            duration_ms,
            gpus,
            gpu_milli: 1000,
            user: word("user"),
            queue: word("vc"),
            line,
            ..TraceJob::default()
        });
    }
    if seen == 0 {
        return Err(InputError::empty(&objects.path, "the file has no jobs"));
    }
    from_first(&mut jobs, &submits);
    let mut notes = Vec::new();
    note(&mut notes, counts.no_attempt, "jobs were skipped: they never ran (no attempts)");
    note(&mut notes, counts.no_end, "jobs were skipped: still running at the end (no end_time), or no time logged");
    note(&mut notes, counts.gaps, "earlier attempts without a start or end were left out of their job's duration");
    note(&mut notes, counts.backwards, "attempts end before they start (daylight saving) and count as 0 s");
    note(&mut notes, counts.resized, "jobs had attempts of different sizes: the largest is used");
    note(&mut notes, counts.retried, "jobs had several attempts: the duration is the sum of their run times");
    Ok((jobs, notes))
}

/// Total run time in ms and GPUs, or nothing for a job that never ran to an end.
fn attempts(o: &Objects, line: u64, job: &Value, counts: &mut Counts) -> Result<Option<(u64, u32)>, InputError> {
    let list = match job.get("attempts") {
        None => {
            return Err(o.missing(line, "attempts", job, "give the cluster_job_log as published"));
        }
        Some(Value::Null) => &[][..],
        Some(Value::Array(list)) => list.as_slice(),
        Some(other) => {
            return Err(o.bad(line, "attempts", other, "not a list", "write a list of attempts"));
        }
    };
    if list.is_empty() {
        counts.no_attempt += 1;
        return Ok(None);
    }
    let (mut total, mut sizes, mut ended) = (0u64, Vec::new(), false);
    for (n, attempt) in list.iter().enumerate() {
        let start = time(o, line, attempt, "start_time")?;
        let end = time(o, line, attempt, "end_time")?;
        sizes.push(gpus(o, line, attempt)?);
        let last = n + 1 == list.len();
        match (start, end) {
            (Some(start), Some(end)) => {
                ended |= last;
                counts.backwards += u64::from(end < start);
                total = total.saturating_add(u64::try_from(end - start).unwrap_or(0));
            }
            _ if last => {}
            _ => counts.gaps += 1,
        }
    }
    if !ended {
        counts.no_end += 1;
        return Ok(None);
    }
    counts.retried += u64::from(list.len() > 1);
    counts.resized += u64::from(sizes.iter().min() != sizes.iter().max());
    Ok(Some((total, sizes.into_iter().max().unwrap_or(0))))
}

fn gpus(o: &Objects, line: u64, attempt: &Value) -> Result<u32, InputError> {
    let remedy = "write [{\"ip\": \"m47\", \"gpus\": [\"gpu0\"]}]";
    let detail = match attempt.get("detail") {
        None | Some(Value::Null) => return Ok(0),
        Some(Value::Array(detail)) => detail,
        Some(other) => return Err(o.bad(line, "attempts.detail", other, "not a list", remedy)),
    };
    let mut count = 0usize;
    for machine in detail {
        match machine.get("gpus") {
            Some(Value::Array(gpus)) => count = count.saturating_add(gpus.len()),
            None => return Err(o.missing(line, "attempts.detail.gpus", machine, remedy)),
            Some(other) => {
                return Err(o.bad(line, "attempts.detail.gpus", other, "not a list", remedy));
            }
        }
    }
    Ok(u32::try_from(count).unwrap_or(u32::MAX))
}

fn text(o: &Objects, line: u64, job: &Value, key: &str) -> Result<String, InputError> {
    match job.get(key) {
        None => Err(o.missing(line, key, job, "give the cluster_job_log as published")),
        Some(Value::String(s)) if !s.is_empty() && s.len() <= 256 && !s.chars().any(char::is_control) => Ok(s.clone()),
        Some(other) => Err(o.bad(line, key, other, "not an id", "write 1 to 256 bytes without control characters")),
    }
}

fn time(o: &Objects, line: u64, object: &Value, key: &str) -> Result<Option<i64>, InputError> {
    let fault = |value| o.bad(line, key, value, "not a time", "write it as 2017-10-07 01:12:09, or null");
    match object.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(s)) if unknown(s) => Ok(None),
        Some(value) => value.as_str().and_then(wall_clock).map(Some).ok_or_else(|| fault(value)),
    }
}

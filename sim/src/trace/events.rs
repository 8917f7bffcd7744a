//! Event files: one CloudEvent a line, for replays; and the jobs in them, for simulations.
//! It never judges an event's content: the intake that rejects a bad job in a running system does so in a replay too.

use std::path::Path;

use forebay_catalog::input::{InputError, MAX_MS, Opened, open};
use forebay_quantity::number::scaled;
use jiff::Timestamp;
use serde_json::Value;

use super::objects::Objects;
use super::{TraceJob, bounded, note};

/// The types that a replay understands; others are kept and counted.
const KNOWN: [&str; 4] = ["job.submitted", "job.cancelled", "service.demand", "simulation.market"];
const TIME_REMEDY: &str = "write it as RFC 3339, such as 2026-11-02T09:00:00Z";

/// One event of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayLine {
    /// When it happens, in ms after the file's earliest event.
    pub at_ms: u64,
    /// The line that it begins on.
    pub line: u64,
    /// The event as written.
    pub event: Value,
}

/// An event file, in order of time; events of one time keep the file's order.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The earliest event's time, in ms since 1970 (UTC).
    pub start_unix_ms: i64,
    /// The events.
    pub lines: Vec<ReplayLine>,
    /// When the simulated cloud has no spot at all, from its `simulation.market` events: (from, to) in ms after the start.
    pub droughts: Vec<(u64, u64)>,
    /// What a reader should know, counted, a sentence each.
    pub notes: Vec<String>,
}

/// Reads a file of CloudEvents, one JSON object a line (a bare object with a `type` and a `time` will do).
///
/// # Errors
/// A line that is no JSON object, or has no `type` or no `time`: see [`InputError`].
pub fn read_events(path: impl AsRef<Path>) -> Result<Replay, InputError> {
    read_opened(open(path.as_ref())?).map(|(replay, _)| replay)
}

fn read_opened(opened: Opened) -> Result<(Replay, Objects), InputError> {
    let mut objects = Objects::new(opened);
    let (mut stamped, mut dry, mut demand, mut other) = (Vec::new(), Vec::new(), 0, 0);
    while let Some((line, event)) = objects.next_object()? {
        bounded(&objects.path, line, stamped.len())?;
        let remedy = "give each event a type, such as job.submitted";
        let kind = event.get("type").ok_or_else(|| objects.missing(line, "type", &event, remedy))?;
        match kind.as_str() {
            None => return Err(objects.bad(line, "type", kind, "not text", remedy)),
            Some("service.demand") => demand += 1,
            Some("simulation.market") => dry.extend(drought(&objects, line, &event)?),
            Some(kind) => other += u64::from(!KNOWN.contains(&kind)),
        }
        let time = event.get("time").ok_or_else(|| objects.missing(line, "time", &event, TIME_REMEDY))?;
        let at = unix_ms(&objects, line, "time", time)?;
        stamped.push((at, line, event));
    }
    let Some(start_unix_ms) = stamped.iter().map(|(at, ..)| *at).min() else {
        return Err(InputError::empty(&objects.path, "the file has no events"));
    };
    stamped.sort_by_key(|(at, ..)| *at);
    let lines =
        stamped.into_iter().map(|(at, line, event)| ReplayLine { at_ms: at.abs_diff(start_unix_ms), line, event });
    let after = |at: i64| u64::try_from(at.saturating_sub(start_unix_ms)).unwrap_or(0);
    let droughts = dry.into_iter().map(|(from, to)| (after(from), after(to))).collect();
    let mut notes = Vec::new();
    note(&mut notes, demand, "service.demand events are in the file");
    note(&mut notes, other, "events are of a type that a replay does not know; the intake will reject them");
    Ok((Replay { start_unix_ms, lines: lines.collect(), droughts, notes }, objects))
}

/// `data.drought.from` and `.to` of a `simulation.market` event, in ms since 1970.
fn drought(objects: &Objects, line: u64, event: &Value) -> Result<Option<(i64, i64)>, InputError> {
    let Some(drought) = event.pointer("/data/drought") else {
        return Ok(None);
    };
    let time = |key: &str, name: &str| {
        let value = drought.get(key).ok_or_else(|| objects.missing(line, name, drought, TIME_REMEDY))?;
        unix_ms(objects, line, name, value)
    };
    let (from, to) = (time("from", "data.drought.from")?, time("to", "data.drought.to")?);
    if from < to {
        return Ok(Some((from, to)));
    }
    let value = drought.get("to").unwrap_or(&Value::Null);
    Err(objects.bad(line, "data.drought.to", value, "not after data.drought.from", "write a later time"))
}

/// The jobs of an event file, for `--trace-format events`: each accepted submission with `data.simulation.durationS`.
pub(super) fn read_jobs(opened: Opened) -> Result<(Vec<TraceJob>, Vec<String>), InputError> {
    let (replay, objects) = read_opened(opened)?;
    let (mut jobs, mut specs, mut notes) = (Vec::new(), std::collections::BTreeMap::new(), replay.notes);
    let (mut cancelled, mut twice, mut no_duration) = (0, 0, 0);
    for ReplayLine { at_ms, line, event } in &replay.lines {
        match event.get("type").and_then(Value::as_str) {
            Some("job.submitted") => {}
            Some("job.cancelled") => {
                cancelled += 1;
                continue;
            }
            _ => continue,
        }
        let subject = event.get("subject").and_then(Value::as_str).filter(|s| !s.is_empty());
        let remedy = "give each job.submitted the job's id as its subject";
        let subject = subject.ok_or_else(|| objects.missing(*line, "subject", event, remedy))?;
        let data = event.get("data").unwrap_or(&Value::Null);
        if let Some(first) = specs.insert(subject.to_owned(), data) {
            // The same submission again is the same job; another one is a conflict, which the id check reports.
            if first == data {
                twice += 1;
                continue;
            }
        }
        let job = Data { objects: &objects, line: *line, data };
        let Some(duration_ms) = job.number("/simulation/durationS", 3, MAX_MS)? else {
            no_duration += 1;
            continue;
        };
        let deadline = data.get("deadline").map(|time| unix_ms(&objects, *line, "data.deadline", time)).transpose()?;
        let deadline_ms = deadline.map(|at| u64::try_from(at - replay.start_unix_ms).unwrap_or(0));
        jobs.push(TraceJob { id: subject.to_owned(), submit_ms: *at_ms, duration_ms, deadline_ms, ..job.shape()? });
    }
    note(
        &mut notes,
        u64::try_from(replay.droughts.len()).unwrap_or(0),
        "spot droughts were left out: they belong to a replay",
    );
    note(&mut notes, cancelled, "cancellations were left out: a trace has none");
    note(&mut notes, twice, "submissions were left out: the same job again");
    note(&mut notes, no_duration, "jobs were skipped: no data.simulation.durationS says how long they run");
    Ok((jobs, notes))
}

struct Data<'a> {
    objects: &'a Objects,
    line: u64,
    data: &'a Value,
}

impl Data<'_> {
    /// What the job asks for, for the whole gang at its smallest size.
    fn shape(&self) -> Result<TraceJob, InputError> {
        let workers = match self.data.pointer("/gang/workers/min").or_else(|| self.data.pointer("/gang/workers")) {
            None => 1,
            Some(value) => self.scaled("data.gang.workers", value, 0, 100_000)?.max(1),
        };
        let milli = self.number("/gang/each/gpus", 3, 1_000_000)?.unwrap_or(0);
        if milli > 1000 && milli % 1000 != 0 || (1..1000).contains(&milli) && workers > 1 {
            let value = self.data.pointer("/gang/each/gpus").unwrap_or(&Value::Null);
            let remedy = "write a whole number, or a share below 1 for a gang of one worker";
            let problem = "not a share of a single GPU";
            return Err(self.objects.bad(self.line, "data.gang.each.gpus", value, problem, remedy));
        }
        let cpu_milli = self.number("/gang/each/cpu", 3, 1_000_000_000)?.unwrap_or(0);
        let memory = self.data.pointer("/gang/each/memory").map_or(Ok(0), |v| self.mib("data.gang.each.memory", v))?;
        let small = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let word = |key: &str| self.data.get(key).and_then(Value::as_str).map(str::to_owned);
        let list = self.data.pointer("/gang/each/models").and_then(Value::as_array);
        let labels = self.data.get("labels").and_then(Value::as_object).into_iter().flatten();
        let labels = labels.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
        let util = self.number("/simulation/gpuUtil", 3, 1000);
        Ok(TraceJob {
            gpus: small(milli.div_ceil(1000).saturating_mul(workers)),
            workers: Some(small(workers)),
            gpu_milli: if (1..1000).contains(&milli) { small(milli) } else { 1000 },
            cpu_milli: cpu_milli.saturating_mul(workers),
            mem_mib: memory.saturating_mul(workers),
            user: word("user"),
            queue: word("queue"),
            tier: word("tier"),
            priority: word("priority"),
            gpu_models: list.into_iter().flatten().filter_map(Value::as_str).map(str::to_lowercase).collect(),
            gpu_util_permille: util?.map(small),
            labels: labels.collect(),
            line: self.line,
            ..TraceJob::default()
        })
    }

    /// The number at a pointer into the data, times ten to the power `scale`.
    fn number(&self, pointer: &str, scale: i32, max: u64) -> Result<Option<u64>, InputError> {
        let key = format!("data{}", pointer.replace('/', "."));
        self.data.pointer(pointer).map(|value| self.scaled(&key, value, scale, max)).transpose()
    }

    fn scaled(&self, key: &str, value: &Value, scale: i32, max: u64) -> Result<u64, InputError> {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        match scaled(&text, scale) {
            Ok((n, _)) if n <= max => Ok(n),
            Ok(_) => Err(self.objects.bad(self.line, key, value, "too large", "write a smaller number")),
            Err(fault) => {
                Err(self.objects.bad(self.line, key, value, fault.problem(), "write a plain number, 0 or more"))
            }
        }
    }

    /// `900GiB`, `512MiB` or `2TiB` in MiB.
    fn mib(&self, key: &str, value: &Value) -> Result<u64, InputError> {
        let text = value.as_str().unwrap_or_default();
        let units = [("MiB", 1u64), ("GiB", 1 << 10), ("TiB", 1 << 20)];
        let found =
            units.iter().find_map(|(unit, mib)| Some((text.strip_suffix(unit)?.trim().parse::<u64>().ok()?, mib)));
        let mib = found.and_then(|(n, mib)| n.checked_mul(*mib)).filter(|n| *n <= 1 << 30);
        mib.ok_or_else(|| {
            self.objects.bad(self.line, key, value, "not an amount of memory", "write it as 900GiB or 512MiB")
        })
    }
}

/// RFC 3339 as Unix milliseconds, within the years that differences can be taken of.
fn unix_ms(objects: &Objects, line: u64, key: &str, value: &Value) -> Result<i64, InputError> {
    let at: Option<Timestamp> = value.as_str().and_then(|text| text.parse().ok());
    let at = at.ok_or_else(|| objects.bad(line, key, value, "not a time", TIME_REMEDY))?;
    Ok(at.as_millisecond())
}

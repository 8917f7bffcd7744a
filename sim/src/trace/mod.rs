//! Recorded work: reads traces in the project's own CSV, in three published layouts and as event files.
//! It never decides anything, never invents a value in silence (each assumption is a note), and never panics on any bytes.
//!
//! ```text
//! file -> rows / objects (one at a time, with line numbers) -> TraceJob -> Trace, sorted by submission
//! ```

mod boots;
mod events;
mod generate;
mod helios;
mod nodes;
mod normalized;
mod objects;
mod openb;
mod philly;
mod rng;
mod written;

use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr;

use forebay_catalog::input::{self, CsvTable, InputError, no_repeats};
use forebay_quantity::excerpt::escaped;

pub use boots::{BootTimes, read_boots};
pub use events::{Replay, ReplayLine, read_events};
pub use generate::{generate_sharing, generate_trace};
pub use nodes::{TraceNode, read_nodes};
pub use rng::SplitMix64;
pub use written::{HEADER, as_csv, csv_field, csv_row, csv_seconds};

/// The most jobs that one trace may hold; the largest public one has three million.
pub const MAX_JOBS: usize = 10_000_000;

/// One job of a trace, in plain units. Times count from the trace's own zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceJob {
    /// The id, unique in its trace.
    pub id: String,
    /// When it was submitted, in ms.
    pub submit_ms: u64,
    /// How long it truly runs on the GPUs it asks for, in ms. Only the simulated world may know this.
    pub duration_ms: u64,
    /// GPUs of the whole gang; 0 is CPU-only work.
    pub gpus: u32,
    /// Workers of the gang; without it the gang may span nodes in whole GPUs.
    pub workers: Option<u32>,
    /// Workers that it can make use of at most, where that is more.
    pub workers_max: Option<u32>,
    /// The share of each GPU in 1/1000; 1000 is a whole one, and below that only where `gpus` is 1. CPU-only: 1000.
    pub gpu_milli: u32,
    /// Memory needed on each GPU, in MiB; 0 is unknown.
    pub gpu_mem_mib: u32,
    /// CPU of the whole gang in millicores; 0 is unknown.
    pub cpu_milli: u64,
    /// Main memory of the whole gang in MiB; 0 is unknown.
    pub mem_mib: u64,
    /// Who submitted it.
    pub user: Option<String>,
    /// Its queue; a virtual cluster in the public logs.
    pub queue: Option<String>,
    /// Its tier.
    pub tier: Option<String>,
    /// Its priority as written: a number, or a word such as `LS`, `BE`, `slo`.
    pub priority: Option<String>,
    /// GPU models that will do, in lower case; empty is any.
    pub gpu_models: Vec<String>,
    /// When it must be done, on the trace's clock, in ms. May lie before the submission.
    pub deadline_ms: Option<u64>,
    /// What the engine may know of the duration, in ms.
    pub estimate_ms: Option<u64>,
    /// Time between checkpoints, in ms.
    pub checkpoint_every_ms: Option<u64>,
    /// How long it takes to save on request, in ms.
    pub grace_ms: Option<u64>,
    /// Whether it can save its progress. Without a value: unless it may not be stopped for others.
    pub saves: Option<bool>,
    /// Whether it may run on spot. Without a value: unless it may not be stopped for others.
    pub spot: Option<bool>,
    /// How often it fails by its own doing before it gets to its end.
    pub failures: u32,
    /// What a restart costs, in ms.
    pub restart_ms: Option<u64>,
    /// Whether it may be stopped for others.
    pub preemptible: Option<bool>,
    /// How long it waits for its first start before its submitter takes it back, in ms.
    pub max_wait_ms: Option<u64>,
    /// Labels of its event; a CSV has none.
    pub labels: BTreeMap<String, String>,
    /// How busy it keeps what it asks for of its GPUs, in 1/1000: a job of `gpu_milli` 100 that never pauses has 1000.
    pub gpu_util_permille: Option<u32>,
    /// The line that it begins on.
    pub line: u64,
}

/// A trace that was read in full.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The file's name without its folder and ending.
    pub name: String,
    /// The layout it had.
    pub format: TraceFormat,
    /// The jobs by submission; equal times keep the file's order.
    pub jobs: Vec<TraceJob>,
    /// What was skipped or assumed, counted, a sentence each.
    pub notes: Vec<String>,
}

/// The layouts that [`read`] understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TraceFormat {
    /// The project's own CSV: `job_id,submit_s,duration_s,gpus` and optional columns, by name.
    Normalized,
    /// Alibaba `cluster-trace-gpu-v2023`: `openb_pod_list_*.csv`.
    Openb,
    /// Microsoft Philly: `cluster_job_log`, JSON.
    Philly,
    /// SenseTime Helios: `cluster_log.csv`.
    Helios,
    /// One CloudEvent a line, as `forebay run --replay` takes it.
    Events,
}

impl TraceFormat {
    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Normalized => "normalized",
            Self::Openb => "openb",
            Self::Philly => "philly",
            Self::Helios => "helios",
            Self::Events => "events",
        }
    }
}

impl std::fmt::Display for TraceFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for TraceFormat {
    type Err = InputError;

    fn from_str(name: &str) -> Result<Self, InputError> {
        let all = [Self::Normalized, Self::Openb, Self::Philly, Self::Helios, Self::Events];
        let found = all.into_iter().find(|f| f.name().eq_ignore_ascii_case(name.trim()));
        let problem = || format!("\"{}\" is not a trace format", escaped(name));
        let remedy = "use one of normalized, openb, philly, helios, events, or leave it out";
        found.ok_or_else(|| InputError::new(String::new(), problem(), remedy))
    }
}

/// Reads a trace; without a format, it is recognised by its first line.
///
/// # Errors
/// Whatever is wrong with the file, with its line, column and value: see [`InputError`]. A file is used in full or not at all.
pub fn read(path: impl AsRef<Path>, format: Option<TraceFormat>) -> Result<Trace, InputError> {
    let opened = input::open(path.as_ref())?;
    let format = match format {
        Some(format) => format,
        None => recognise(&opened)?,
    };
    let path = opened.path.clone();
    let (jobs, notes) = match format {
        TraceFormat::Normalized => normalized::read(opened)?,
        TraceFormat::Openb => openb::read(opened)?,
        TraceFormat::Philly => philly::read(opened)?,
        TraceFormat::Helios => helios::read(opened)?,
        TraceFormat::Events => events::read_jobs(opened)?,
    };
    let jobs = ordered(&path, format, jobs)?;
    let name = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(Trace { name, format, jobs, notes })
}

/// The columns or keys that give a layout away; two of them are enough, so that a missing one is named.
const SIGNS: [(TraceFormat, &[&str]); 3] = [
    (TraceFormat::Normalized, &["job_id", "submit_s", "duration_s", "gpus"]),
    (TraceFormat::Openb, &["name", "num_gpu", "memory_mib", "creation_time", "deletion_time", "scheduled_time", "qos"]),
    (TraceFormat::Helios, &["job_id", "gpu_num", "node_num", "submit_time", "start_time", "end_time", "vc"]),
];

fn recognise(opened: &input::Opened) -> Result<TraceFormat, InputError> {
    let text = String::from_utf8_lossy(&opened.head);
    let text = text.trim_start();
    let known = if text.starts_with(['{', '[']) {
        let has = |key: &str| text.contains(key);
        // In this order: an event may well carry a key that Philly has too, such as the attempts of a retry.
        if has("\"specversion\"") || has("\"type\"") && !has("\"jobid\"") {
            Some(TraceFormat::Events)
        } else {
            (has("\"jobid\"") || has("\"attempts\"")).then_some(TraceFormat::Philly)
        }
    } else {
        let header = text.lines().next().unwrap_or_default().to_lowercase();
        let columns: Vec<&str> = header.split(',').map(|c| c.trim().trim_matches('"')).collect();
        let score = |signs: &[&str]| signs.iter().filter(|s| columns.contains(s)).count();
        let best = SIGNS.iter().rev().max_by_key(|(_, signs)| score(signs));
        best.filter(|(_, signs)| score(signs) >= 2).map(|(format, _)| *format)
    };
    known.ok_or_else(|| {
        let begin = escaped(text.lines().next().unwrap_or_default());
        let problem = format!("not a trace format known here, begins with \"{begin}\"");
        let remedy = "give a CSV with the columns job_id,submit_s,duration_s,gpus, or one of the formats openb, philly, helios, events";
        InputError::line(&opened.path, 1, problem, remedy)
    })
}

/// Refuses a repeated id, naming both lines, then sorts by submission.
fn ordered(path: &Path, format: TraceFormat, mut jobs: Vec<TraceJob>) -> Result<Vec<TraceJob>, InputError> {
    let column = match format {
        TraceFormat::Normalized | TraceFormat::Helios => "job_id",
        TraceFormat::Openb => "name",
        TraceFormat::Philly => "jobid",
        TraceFormat::Events => "subject",
    };
    no_repeats(path, column, jobs.iter().map(|j| (j.id.as_str(), j.line)))?;
    jobs.sort_by_key(|j| j.submit_ms);
    Ok(jobs)
}

/// `G2|V100` as a list in lower case, without repeats; `nan` and nothing are any model.
fn models(text: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for name in text.split('|').map(|m| m.trim().to_lowercase()) {
        if !name.is_empty() && name != "nan" && !out.contains(&name) {
            out.push(name);
        }
    }
    out
}

/// Adds a note with a count; none where nothing was counted.
fn note(notes: &mut Vec<String>, count: u64, what: &str) {
    if count > 0 {
        notes.push(format!("{count} {what}"));
    }
}

/// The note that a file may have been cut in its last field.
fn note_cut(notes: &mut Vec<String>, table: &CsvTable) {
    if table.ends_without_line_break() {
        notes.push("the last row has no line break: if the file was cut there, its last field is short".to_owned());
    }
}

/// Refuses a trace beyond [`MAX_JOBS`].
fn bounded(path: &Path, line: u64, jobs: usize) -> Result<(), InputError> {
    if jobs < MAX_JOBS {
        return Ok(());
    }
    Err(InputError::line(path, line, format!("more than {MAX_JOBS} jobs"), "split the trace"))
}

//! Replay: a file of events or a trace, fed to a driver whose journal is a new one, or one to go on with.
//!
//! ```text
//! file -> Feed (what, when)        --resume: the journal says how many of them are consumed
//! ```
//!
//! Never: judges an event (the intake does), or runs a trace under a policy of its own.

use super::feed::{Feed, FeedContent, FeedItem, after};
use forebay_catalog::input::InputError;
use forebay_kernel::job::JobSpec;
use forebay_kernel::policy::Policy;
use forebay_kernel::units::Timestamp;
use forebay_sim::convert::{Assumptions, Converter};
use forebay_sim::trace::{ReplayLine, TraceFormat, read, read_events};
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// A file that can be replayed, and what a reader of its results should know.
#[derive(Debug)]
pub struct LoadedFeed {
    /// What to feed.
    pub feed: Feed,
    /// What was skipped or assumed, a sentence each.
    pub notes: Vec<String>,
}

/// Reads a file to replay. Without a format its content tells. Of a trace, jobs are made under `policy`.
///
/// # Errors
/// The file cannot be read, or is not what its format says: with the line, the column and the remedy.
pub fn load(path: &Path, format: Option<TraceFormat>, policy: &Policy) -> Result<LoadedFeed, InputError> {
    let name = path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned());
    if matches!(format, Some(TraceFormat::Events)) || (format.is_none() && holds_events(path)) {
        return events(path, &name);
    }
    let trace = read(path, format)?;
    let mut converter = Converter::new(policy, Assumptions::default());
    let items = trace.jobs.iter().map(|row| {
        let (spec, truth) = converter.job(row);
        let spec = JobSpec { run: truth.to_run(), ..spec };
        FeedItem { at: Timestamp(row.submit_ms), content: FeedContent::Job(Box::new(spec)) }
    });
    let items: Vec<FeedItem> = items.collect();
    let mut notes = trace.notes;
    notes.extend(converter.assumptions());
    Ok(LoadedFeed { feed: Feed::new(&name, Timestamp(0), items, Vec::new()), notes })
}

fn events(path: &Path, name: &str) -> Result<LoadedFeed, InputError> {
    let replay = read_events(path)?;
    // Times before 1970 are nobody's: they become the epoch.
    let start = Timestamp(u64::try_from(replay.start_unix_ms).unwrap_or(0));
    let item = |ReplayLine { at_ms, line, event }| {
        let content = FeedContent::Event { line, event };
        FeedItem { at: after(start, at_ms), content }
    };
    let items = replay.lines.into_iter().map(item).collect();
    Ok(LoadedFeed { feed: Feed::new(name, start, items, replay.droughts), notes: replay.notes })
}

/// Whether a file begins as one with an event a line does: an object with a `type`.
fn holds_events(path: &Path) -> bool {
    use std::io::{BufRead, BufReader, Read};
    let Ok(file) = std::fs::File::open(path) else { return false };
    let mut first = String::new();
    let mut head = BufReader::new(file.take(1 << 16));
    while first.trim().is_empty() {
        first.clear();
        if !head.read_line(&mut first).is_ok_and(|n| n > 0) {
            return false;
        }
    }
    let object = serde_json::from_str::<serde_json::Value>(first.trim()).ok();
    object.is_some_and(|o| o.get("type").is_some())
}

/// A new folder for a journal: `forebay-data/<uuid>` under `base`.
#[must_use]
pub fn new_folder(base: &Path) -> PathBuf {
    base.join("forebay-data").join(Uuid::new_v4().to_string())
}

//! The decoders that are fuzzed. A new one is a function and a row.
//!
//! Never: an outcome that nobody looked at. What is accepted and what is rejected both have rules in `holds`.

use crate::input::KEY;
use crate::logs::{FIRST_SEGMENT, JOURNAL};
use crate::memory::decoding;
use crate::{documents, holds, reports};
use forebay::intake::rejected::{RejectedLog, RejectionWriter as _};
use forebay::segments::LogPosition;
use forebay::status::{StatusLog, StatusWriter as _};
use forebay_kernel::journal::Batch;
use forebay_wire::intake::{Caller, Decoded, Intake, NoRoutes, Rejected, from_headers};
use std::path::Path;

/// How inputs for a target are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputFormat {
    /// The JSON of one event.
    Event,
    /// Headers, an empty line, the data.
    Headers,
    /// A journaled batch.
    Batch,
    /// Lines of a log, each with its checksum.
    Lines,
    /// Text whose lines and words are changed: YAML, CSV.
    Text,
    /// A JSON document whose values are changed.
    Json,
}

/// What a decoder made of an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodeOutcome {
    /// It was taken.
    Accepted,
    /// It was not, for this code and at this path.
    Rejected(&'static str, String),
}

/// A rule that an input broke: a sentence.
pub type Broken = String;

/// One decoder.
#[derive(Debug)]
pub struct FuzzTarget {
    /// For `--target`.
    pub name: &'static str,
    /// Of 1,000 inputs, so many are for it.
    pub share: u64,
    /// How its inputs look.
    pub shape: InputFormat,
    /// The codes of inputs that it refuses before it has read what they are: they did not get past its first stage.
    pub first_stage: &'static [&'static str],
    /// Decodes one input, in a folder that is the caller's own.
    pub check: fn(&[u8], &Path) -> Result<DecodeOutcome, Broken>,
}

/// All of them, so that a million inputs take about two minutes of one core in a build for tests: a policy is a hundred times the work of an
/// event, and a log that is opened is synced.
pub static TARGETS: [FuzzTarget; 13] = [
    FuzzTarget { name: "structured", share: 405, shape: InputFormat::Event, first_stage: EVENT, check: structured },
    FuzzTarget { name: "reports", share: 120, shape: InputFormat::Event, first_stage: EVENT, check: with_key },
    FuzzTarget { name: "binary", share: 120, shape: InputFormat::Headers, first_stage: EVENT, check: binary },
    FuzzTarget { name: "batch", share: 80, shape: InputFormat::Batch, first_stage: FIRST, check: batch },
    FuzzTarget { name: "files", share: 5, shape: InputFormat::Lines, first_stage: FIRST, check: files },
    FuzzTarget { name: "policy", share: 10, shape: InputFormat::Text, first_stage: FIRST, check: documents::policy },
    FuzzTarget { name: "config", share: 30, shape: InputFormat::Text, first_stage: FIRST, check: documents::config },
    FuzzTarget { name: "state", share: 30, shape: InputFormat::Json, first_stage: FIRST, check: documents::state },
    FuzzTarget { name: "trace", share: 30, shape: InputFormat::Text, first_stage: FIRST, check: documents::trace },
    FuzzTarget { name: "manifest", share: 10, shape: InputFormat::Json, first_stage: FIRST, check: reports::manifest },
    FuzzTarget { name: "metadata", share: 50, shape: InputFormat::Json, first_stage: FIRST, check: reports::metadata },
    FuzzTarget { name: "notices", share: 60, shape: InputFormat::Json, first_stage: FIRST, check: reports::notices },
    FuzzTarget { name: "agents", share: 50, shape: InputFormat::Json, first_stage: FIRST, check: reports::agents },
];

/// Of an event that is no JSON object, or too large to be read as one.
const EVENT: &[&str] = &["Malformed", "TooLarge"];

/// Of all else: no text, no JSON, no YAML, no known layout, no line with a checksum that agrees, no records.
const FIRST: &[&str] = &[UNREADABLE];

const UNREADABLE: &str = "Unreadable";

/// What did not get past the first stage.
#[must_use]
pub fn unreadable() -> DecodeOutcome {
    rejected(UNREADABLE, "-")
}

/// What was refused, and where.
pub fn rejected(code: &'static str, path: impl Into<String>) -> DecodeOutcome {
    DecodeOutcome::Rejected(code, path.into())
}

/// Whether it is JSON at all.
#[must_use]
pub fn is_json(bytes: &[u8]) -> bool {
    serde_json::from_slice::<serde_json::Value>(bytes).is_ok()
}

/// A target by its name.
#[must_use]
pub fn named(name: &str) -> Option<&'static FuzzTarget> {
    TARGETS.iter().find(|t| t.name == name)
}

/// Whether a decoder has the key by which reports of runs are proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportKey {
    /// It has: reports are taken.
    Known,
    /// It has not: reports are refused.
    Unknown,
}

/// Decodes one event.
///
/// # Errors
/// When the decoder refuses it.
pub fn decode(bytes: &[u8], key: ReportKey) -> Result<Decoded, Rejected> {
    let caller = Caller::local();
    let key = (key == ReportKey::Known).then_some(&KEY);
    Intake { caller: &caller, routes: &NoRoutes, key }.decode(bytes)
}

fn structured(bytes: &[u8], _: &Path) -> Result<DecodeOutcome, Broken> {
    judged(bytes, &|bytes| decode(bytes, ReportKey::Unknown))
}

/// The same decoder with a key: reports of runs with forged and true tokens.
fn with_key(bytes: &[u8], _: &Path) -> Result<DecodeOutcome, Broken> {
    judged(bytes, &|bytes| decode(bytes, ReportKey::Known))
}

fn binary(bytes: &[u8], _: &Path) -> Result<DecodeOutcome, Broken> {
    let gap = bytes.windows(2).position(|w| w == b"\n\n").unwrap_or(bytes.len());
    let (head, body) = (bytes.get(..gap).unwrap_or_default(), bytes.get(gap + 2..).unwrap_or_default());
    // Headers are bytes on the wire; an adapter leaves out what is not text.
    let lines: Vec<_> = head.split(|b| *b == b'\n').filter_map(|line| std::str::from_utf8(line).ok()).collect();
    let decode = || {
        let headers = lines.iter().filter_map(|line| line.split_once(": "));
        let caller = Caller::local();
        let event = from_headers(headers, body)?;
        Intake { caller: &caller, routes: &NoRoutes, key: Some(&KEY) }.decode_value(&event)
    };
    let outcome = judge(&decoding(decode), bytes)?;
    // Structured and binary mode are one event, written in two ways.
    let headers = lines.iter().filter_map(|line| line.split_once(": "));
    if let (DecodeOutcome::Accepted, Ok(event)) = (&outcome, from_headers(headers, body))
        && holds::reads_back(&event)
    {
        holds::same(&decode(), &self::decode(event.to_string().as_bytes(), ReportKey::Known), "in structured mode")?;
    }
    Ok(outcome)
}

fn judged(bytes: &[u8], decode: holds::Decode<'_>) -> Result<DecodeOutcome, Broken> {
    let decoded = decoding(|| decode(bytes));
    let outcome = judge(&decoded, bytes)?;
    if let Ok(taken) = &decoded {
        holds::of_text(taken, bytes, decode)?;
    }
    Ok(outcome)
}

fn judge(decoded: &Result<Decoded, Rejected>, bytes: &[u8]) -> Result<DecodeOutcome, Broken> {
    match decoded {
        Ok(taken) => holds::of_taken(taken, bytes).map(|()| DecodeOutcome::Accepted),
        Err(why) => {
            holds::of_rejected(why, bytes).map(|()| DecodeOutcome::Rejected(why.code.as_str(), why.path.clone()))
        }
    }
}

/// A record of the journal. Its checksum is not in the way here.
fn batch(bytes: &[u8], _: &Path) -> Result<DecodeOutcome, Broken> {
    match decoding(|| Batch::decode(bytes)) {
        Ok(batch) => holds::of_batch(&batch, bytes).map(|()| DecodeOutcome::Accepted),
        // Its bytes say nothing of how far they go: each that is refused counts as one of the first stage.
        Err(_) => Ok(unreadable()),
    }
}

/// Segments that are opened again after a crash: what is whole stays, what is torn is cut, and opening twice changes nothing more.
fn files(bytes: &[u8], folder: &Path) -> Result<DecodeOutcome, Broken> {
    let position = LogPosition { known: 2, kept: 0 };
    let rejected_log = || RejectedLog::open(folder, 2).map(|log| log.last()).map_err(|e| e.to_string());
    let statuses = || StatusLog::open(folder, JOURNAL, position).map(|log| log.last()).map_err(|e| e.to_string());
    let one = opened_twice(bytes, &folder.join(forebay::intake::rejected::FOLDER), &rejected_log)?;
    let other = opened_twice(bytes, &folder.join(forebay::status::FOLDER), &statuses)?;
    Ok(match (one, other) {
        (Ok(_), _) | (_, Ok(1..)) => DecodeOutcome::Accepted,
        // Nothing in it had to be kept: it may be empty.
        (Err(why), _) if why.contains("checksum") || why.contains("ends at number 0") => unreadable(),
        _ => rejected("Damaged", "-"),
    })
}

/// The last number of the log in a folder whose one segment has these bytes, or why it is refused.
fn opened_twice(
    bytes: &[u8],
    folder: &Path,
    open: &dyn Fn() -> Result<u64, String>,
) -> Result<Result<u64, String>, Broken> {
    let io = |e: std::io::Error| format!("{}: {e}", folder.display());
    let path = folder.join(FIRST_SEGMENT);
    std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, bytes)).map_err(io)?;
    let read = || std::fs::read(&path).map_err(io);
    let once = match decoding(open) {
        Ok(last) => last,
        Err(_) if read()? != bytes => return Err("a log that is refused was changed".to_owned()),
        Err(why) => return Ok(Err(why)),
    };
    let cut = read()?;
    if !bytes.starts_with(&cut) || cut.last().is_some_and(|b| *b != b'\n') {
        return Err("a log does not hold the whole lines that it held".to_owned());
    }
    if open() != Ok(once) || read()? != cut {
        return Err("opening a log again changed it".to_owned());
    }
    Ok(Ok(once))
}

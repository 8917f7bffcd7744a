//! The decoders that are fuzzed. A new one is a function and a row.
//!
//! Never: an outcome that nobody looked at. What is accepted and what is rejected both have rules in `holds`.

use crate::holds;
use crate::input::KEY;
use forebay::intake::rejected::{RejectedLog, RejectionWriter as _};
use forebay::journal::JournalId;
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
    /// Lines of JSON.
    Lines,
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
    /// Decodes one input, in a folder that is the caller's own.
    pub check: fn(&[u8], &Path) -> Result<DecodeOutcome, Broken>,
}

/// All of them.
pub static TARGETS: [FuzzTarget; 5] = [
    FuzzTarget { name: "structured", share: 595, shape: InputFormat::Event, check: structured },
    FuzzTarget { name: "reports", share: 150, shape: InputFormat::Event, check: reports },
    FuzzTarget { name: "binary", share: 150, shape: InputFormat::Headers, check: binary },
    FuzzTarget { name: "batch", share: 100, shape: InputFormat::Batch, check: batch },
    FuzzTarget { name: "files", share: 5, shape: InputFormat::Lines, check: files },
];

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
fn reports(bytes: &[u8], _: &Path) -> Result<DecodeOutcome, Broken> {
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
    let outcome = judge(&decode(), bytes)?;
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
    let decoded = decode(bytes);
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
    match Batch::decode(bytes) {
        Ok(batch) => holds::of_batch(&batch, bytes).map(|()| DecodeOutcome::Accepted),
        Err(_) => Ok(DecodeOutcome::Rejected("Damaged", String::new())),
    }
}

/// Segments that are opened again after a crash: what is whole stays, what is torn is cut, and opening twice changes nothing more.
fn files(bytes: &[u8], folder: &Path) -> Result<DecodeOutcome, Broken> {
    let journal = JournalId { uuid: 7, incarnation: 0 };
    let position = LogPosition { known: 2, kept: 0 };
    let rejected = || RejectedLog::open(folder, 2).map(|log| log.last()).map_err(|e| e.to_string());
    let statuses = || StatusLog::open(folder, journal, position).map(|log| log.last()).map_err(|e| e.to_string());
    let one = opened_twice(bytes, &folder.join(forebay::intake::rejected::FOLDER), &rejected)?;
    let two = opened_twice(bytes, &folder.join(forebay::status::FOLDER), &statuses)?;
    Ok(match one.and(two) {
        None => DecodeOutcome::Accepted,
        Some(why) => DecodeOutcome::Rejected("Damaged", why.chars().take(80).collect()),
    })
}

/// Why the log in a folder whose one segment has these bytes is refused.
fn opened_twice(bytes: &[u8], folder: &Path, open: &dyn Fn() -> Result<u64, String>) -> Result<Option<String>, Broken> {
    let io = |e: std::io::Error| format!("{}: {e}", folder.display());
    let path = folder.join("00000000000000000001.jsonl");
    std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, bytes)).map_err(io)?;
    let read = || std::fs::read(&path).map_err(io);
    let once = match open() {
        Ok(last) => last,
        Err(_) if read()? != bytes => return Err("a log that is refused was changed".to_owned()),
        Err(why) => return Ok(Some(why)),
    };
    let cut = read()?;
    if !bytes.starts_with(&cut) || cut.last().is_some_and(|b| *b != b'\n') {
        return Err("a log does not hold the whole lines that it held".to_owned());
    }
    if open() != Ok(once) || read()? != cut {
        return Err("opening a log again changed it".to_owned());
    }
    Ok(None)
}

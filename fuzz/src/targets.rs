//! The decoders that are fuzzed. A new one is a function and a row.
//!
//! Never: an outcome that nobody looked at. What is accepted and what is rejected both have rules in `holds`.

use crate::holds;
use crate::input::KEY;
use forebay::intake::{Caller, Decoded, Intake, NoRoutes, Rejected, RejectedFile, from_headers};
use forebay::status::StatusFile;
use forebay_engine::journal::Batch;
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// How inputs for a target are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
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
pub enum Outcome {
    /// It was taken.
    Accepted,
    /// It was not, for this code and at this path.
    Rejected(&'static str, String),
}

/// A rule that an input broke: a sentence.
pub type Broken = String;

/// One decoder.
#[derive(Debug)]
pub struct Target {
    /// For `--target`.
    pub name: &'static str,
    /// Of 1,000 inputs, so many are for it.
    pub share: u64,
    /// How its inputs look.
    pub shape: Shape,
    /// Decodes one input, in a folder that is the caller's own.
    pub check: fn(&[u8], &Path) -> Result<Outcome, Broken>,
}

/// All of them.
pub static TARGETS: [Target; 5] = [
    Target { name: "structured", share: 595, shape: Shape::Event, check: structured },
    Target { name: "reports", share: 150, shape: Shape::Event, check: reports },
    Target { name: "binary", share: 150, shape: Shape::Headers, check: binary },
    Target { name: "batch", share: 100, shape: Shape::Batch, check: batch },
    Target { name: "files", share: 5, shape: Shape::Lines, check: files },
];

/// A target by its name.
#[must_use]
pub fn named(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|t| t.name == name)
}

/// Decodes one event, where reports of runs are taken or where they are not.
pub fn decode(bytes: &[u8], keyed: bool) -> Result<Decoded, Rejected> {
    let caller = Caller::local();
    Intake { caller: &caller, routes: &NoRoutes, key: keyed.then_some(&KEY) }.decode(bytes)
}

fn structured(bytes: &[u8], _: &Path) -> Result<Outcome, Broken> {
    judged(bytes, &|bytes| decode(bytes, false))
}

/// The same decoder with a key: reports of runs with forged and true tokens.
fn reports(bytes: &[u8], _: &Path) -> Result<Outcome, Broken> {
    judged(bytes, &|bytes| decode(bytes, true))
}

fn binary(bytes: &[u8], _: &Path) -> Result<Outcome, Broken> {
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
    if let (Outcome::Accepted, Ok(event)) = (&outcome, from_headers(headers, body))
        && holds::reads_back(&event)
    {
        holds::same(&decode(), &self::decode(event.to_string().as_bytes(), true), "in structured mode")?;
    }
    Ok(outcome)
}

fn judged(bytes: &[u8], decode: holds::Decode<'_>) -> Result<Outcome, Broken> {
    let decoded = decode(bytes);
    let outcome = judge(&decoded, bytes)?;
    if let Ok(taken) = &decoded {
        holds::of_text(taken, bytes, decode)?;
    }
    Ok(outcome)
}

fn judge(decoded: &Result<Decoded, Rejected>, bytes: &[u8]) -> Result<Outcome, Broken> {
    match decoded {
        Ok(taken) => holds::of_taken(taken, bytes).map(|()| Outcome::Accepted),
        Err(why) => holds::of_rejected(why, bytes).map(|()| Outcome::Rejected(why.code.as_str(), why.path.clone())),
    }
}

/// A record of the journal. Its checksum is not in the way here.
fn batch(bytes: &[u8], _: &Path) -> Result<Outcome, Broken> {
    match Batch::decode(bytes) {
        Ok(batch) => holds::of_batch(&batch, bytes).map(|()| Outcome::Accepted),
        Err(_) => Ok(Outcome::Rejected("Damaged", String::new())),
    }
}

/// The files that are opened again after a crash: what is whole stays, what is torn is cut, and opening twice changes nothing more.
fn files(bytes: &[u8], folder: &Path) -> Result<Outcome, Broken> {
    let open = |path: PathBuf| -> Result<(u64, Vec<u8>), Broken> {
        let io = |e: std::io::Error| format!("{}: {e}", path.display());
        let file = RejectedFile::open(folder, 2).map_err(io)?;
        Ok((file.last(), std::fs::read(&path).map_err(io)?))
    };
    let path = folder.join(forebay::intake::REJECTED_FILE);
    std::fs::write(&path, bytes).map_err(|e| e.to_string())?;
    let once = open(path.clone())?;
    if once.1.len() > bytes.len() || !bytes.starts_with(&once.1) || once.1.last().is_some_and(|b| *b != b'\n') {
        return Err("rejected.jsonl does not hold the whole lines that it held".to_owned());
    }
    if open(path)? != once {
        return Err("opening rejected.jsonl again changed it".to_owned());
    }
    let path = folder.join(forebay::status::FILE);
    std::fs::write(&path, bytes).map_err(|e| e.to_string())?;
    let journal = Uuid::from_u128(7);
    if let Err(error) = StatusFile::open(folder, journal, 2) {
        return Ok(Outcome::Rejected("Stranger", error.to_string().chars().take(80).collect()));
    }
    let cut = std::fs::read(&path).map_err(|e| e.to_string())?;
    StatusFile::open(folder, journal, 2).map_err(|e| format!("status.jsonl cannot be opened again: {e}"))?;
    let again = std::fs::read(&path).map_err(|e| e.to_string())?;
    if !bytes.starts_with(&cut) || again != cut {
        return Err("status.jsonl does not hold the whole lines that it held".to_owned());
    }
    Ok(Outcome::Accepted)
}

//! `rejected.jsonl`: every event of a source that was not taken, with its original bytes and why, one JSON object a line.
//!
//! ```text
//! numbers 1, 2, 3 ... without a gap    written and synced before the batch that counts them is journaled
//! after a crash: the torn last line, and lines that no batch counts, are cut; those events come again
//! ```
//!
//! Never: loses the bytes (what is not UTF-8 is base64), nor grows a line beyond what was sent.

use super::Rejected;
use crate::driver::Original;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use forebay_engine::reason::Reason;
use forebay_engine::units::Millis;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// The file's name in the journal's folder.
pub const FILE: &str = "rejected.jsonl";

/// An event that was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// As it was received.
    pub original: Original,
    /// A stable code.
    pub code: &'static str,
    /// The JSON path of what is wrong.
    pub path: String,
    /// What is wrong and what to do.
    pub message: String,
}

impl Rejection {
    /// Intake could not take it.
    #[must_use]
    pub fn unreadable(original: Original, why: Rejected) -> Rejection {
        Rejection { original, code: why.code.as_str(), path: why.path, message: why.message }
    }

    /// The engine refused it.
    #[must_use]
    pub fn refused(original: Original, reason: Reason) -> Rejection {
        let path = refused_path(reason).to_owned();
        Rejection { original, code: reason.code(), path, message: reason.to_string() }
    }
}

/// The place in an event that a refusal of the engine is about.
#[must_use]
pub fn refused_path(reason: Reason) -> &'static str {
    match reason {
        Reason::UnknownQueue | Reason::ForbiddenQueue => "data.queue",
        Reason::Conflict => "subject",
        _ => "data",
    }
}

/// A line of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RejectedLine {
    /// From 1 without a gap.
    pub number: u64,
    /// When, in ms since 1970.
    pub at_ms: u64,
    /// Where it came from: `kafka:jobs/3`, `sqs:jobs`, a file's name.
    pub source: String,
    /// Where in it: an offset, a line. 0: not known.
    pub position: u64,
    /// The transport's own id of the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// The stable code.
    pub code: String,
    /// The JSON path.
    pub path: String,
    /// What is wrong and what to do.
    pub message: String,
    /// Attributes beside the body.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attributes: Vec<(String, String)>,
    /// The event as sent, where it is text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
    /// The event as sent, where it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_base64: Option<String>,
}

impl RejectedLine {
    fn new(number: u64, at: Millis, rejection: &Rejection) -> RejectedLine {
        let Original { source, position, message, attributes, bytes, .. } = &rejection.original;
        let text = std::str::from_utf8(bytes).ok();
        RejectedLine {
            number,
            at_ms: at.0,
            source: source.as_ref().to_owned(),
            position: *position,
            message_id: message.clone(),
            code: rejection.code.to_owned(),
            path: rejection.path.clone(),
            message: rejection.message.clone(),
            attributes: attributes.clone(),
            event: text.map(str::to_owned),
            event_base64: text.is_none().then(|| STANDARD.encode(bytes)),
        }
    }
}

/// The open file.
#[derive(Debug)]
pub struct RejectedFile {
    file: File,
    path: PathBuf,
    last: u64,
    end: u64,
    synced: bool,
}

#[derive(Deserialize)]
struct Number {
    number: u64,
}

impl RejectedFile {
    /// Opens it in a folder, or makes it. `known` is the last number that the journal counts: what lies beyond is cut.
    ///
    /// # Errors
    /// What the file system says.
    pub fn open(folder: &Path, known: u64) -> std::io::Result<RejectedFile> {
        let path = folder.join(FILE);
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
        let (mut sound, mut broken) = (0, false);
        crate::status::whole_lines(&mut file, |line| {
            let number = serde_json::from_slice(line).map_or(0, |Number { number }| number);
            broken |= number > known;
            sound += u64::from(!broken);
            Ok(())
        })?;
        let end = crate::status::line_end(&mut file, sound)?;
        file.set_len(end)?;
        file.seek(SeekFrom::Start(end))?;
        Ok(RejectedFile { file, path, last: known, end, synced: true })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The last number.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Writes rejections, all or none.
    ///
    /// # Errors
    /// What the file system says; nothing was written then.
    pub fn write(&mut self, at: Millis, rejections: &[Rejection]) -> std::io::Result<()> {
        let mut out = Vec::new();
        for (number, rejection) in (self.last + 1..).zip(rejections) {
            serde_json::to_writer(&mut out, &RejectedLine::new(number, at, rejection))?;
            out.push(b'\n');
        }
        if let Err(error) = self.file.write_all(&out) {
            // Half a line must not stay: the next one would be glued to it.
            let _ = self.file.set_len(self.end).and_then(|()| self.file.seek(SeekFrom::Start(self.end)));
            return Err(error);
        }
        self.end += out.len() as u64;
        self.last += rejections.len() as u64;
        self.synced &= rejections.is_empty();
        Ok(())
    }

    /// Makes what was written durable.
    ///
    /// # Errors
    /// What the file system says.
    pub fn sync(&mut self) -> std::io::Result<()> {
        if !self.synced {
            self.file.sync_data()?;
            self.synced = true;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intake::RejectCode;
    use serde_json::Value;

    fn rejection(bytes: &[u8]) -> Rejection {
        let why = Rejected { code: RejectCode::Malformed, path: "$".into(), message: "not JSON".into() };
        let original = Original { source: "f.jsonl".into(), position: 3, bytes: bytes.to_vec(), ..Original::default() };
        Rejection::unreadable(original, why)
    }

    #[test]
    fn bytes_come_back_and_what_the_journal_does_not_count_is_cut() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = RejectedFile::open(folder.path(), 0).unwrap();
        file.write(Millis(7), &[rejection(b"{\"a"), rejection(&[0xff, 0xfe])]).unwrap();
        file.sync().unwrap();
        let text = std::fs::read_to_string(file.path()).unwrap();
        let lines: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!(
            (&lines[0]["event"], &lines[0]["position"], &lines[0]["number"]),
            (&"{\"a".into(), &3.into(), &1.into())
        );
        assert_eq!((&lines[1]["eventBase64"], &lines[1]["code"]), (&"//4=".into(), &"Malformed".into()));
        for (torn, known, left) in [("", 2, 2), ("{\"torn", 2, 2), ("", 1, 1), ("", 0, 0)] {
            std::fs::write(file.path(), format!("{text}{torn}")).unwrap();
            let again = RejectedFile::open(folder.path(), known).unwrap();
            assert_eq!(again.last(), known);
            assert_eq!(std::fs::read_to_string(again.path()).unwrap().lines().count(), left, "{torn} {known}");
        }
    }
}

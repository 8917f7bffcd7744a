//! Rejected events: every event of a source that was not taken, with its original bytes and why, one JSON object a line in numbered
//! segments.
//!
//! ```text
//! numbers 1, 2, 3 ... without a gap    written and synced before the batch that counts them is journaled
//! after a crash: the torn last line, and lines that no batch counts, are cut; those events come again
//! ```
//!
//! Never: loses the bytes (what is not UTF-8 is base64), nor grows a line beyond what was sent.

use crate::journal::Shortfall;
use crate::segments::{
    LineHead, LogPosition, NumberedLine, SegmentError, SegmentLog, SegmentRetention, boxed, look_at,
};
use crate::status::not_there;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use forebay_driver::journal::StorageFailure;
use forebay_driver::live::{Original, Rejection};
pub use forebay_driver::live::{RejectionWriter, refused_path};
use forebay_kernel::units::Timestamp;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::path::Path;

/// The folder's name in the journal's folder.
pub const FOLDER: &str = "rejected";

/// How long rejected events are kept unless the configuration says otherwise: 30 days, and at most 1 GiB.
pub const RETENTION: SegmentRetention = SegmentRetention { age_ms: 30 * 86_400_000, bytes: 1 << 30 };

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
    fn new(number: u64, at: Timestamp, rejection: &Rejection) -> RejectedLine {
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

    /// The event's bytes as they were sent. Empty where the line has none.
    #[must_use]
    pub fn sent(&self) -> Cow<'_, [u8]> {
        match (&self.event, &self.event_base64) {
            (Some(text), _) => Cow::Borrowed(text.as_bytes()),
            (None, Some(encoded)) => Cow::Owned(STANDARD.decode(encoded).unwrap_or_default()),
            (None, None) => Cow::Borrowed(&[]),
        }
    }
}

/// The log as its one writer has it.
#[derive(Debug)]
pub struct RejectedLog {
    log: SegmentLog,
    /// How long rejected events are kept.
    pub keep: SegmentRetention,
}

/// What a line of rejected events says of itself.
#[must_use]
pub fn line_head(line: &[u8]) -> Option<LineHead> {
    serde_json::from_slice(line).ok()
}

impl RejectedLog {
    /// Opens the log in the journal's folder, or begins it. `known` is the last number that the journal counts: what lies beyond is cut.
    ///
    /// # Errors
    /// What the file system says, or that a line is damaged or missing.
    pub fn open(folder: &Path, known: u64) -> Result<RejectedLog, SegmentError> {
        let log = SegmentLog::open(&folder.join(FOLDER), LogPosition { known, kept: known }, line_head)?;
        Ok(RejectedLog { log, keep: RETENTION })
    }
}

/// What shows in a journal's folder that rejected events are not there any more which the journal counts. Nothing is changed.
///
/// # Errors
/// What the file system says, or that a line is damaged.
pub fn shortfalls(data: &Path, known: u64) -> Result<Vec<Shortfall>, SegmentError> {
    let position = LogPosition { known, kept: known };
    // Lines that no batch counts come again.
    let looked = look_at(&data.join(FOLDER), position, line_head)?;
    Ok(not_there(&looked, position).into_iter().collect())
}

impl RejectionWriter for RejectedLog {
    fn write(&mut self, at: Timestamp, rejections: &[Rejection]) -> Result<(), Box<dyn StorageFailure>> {
        let io =
            |e: serde_json::Error| boxed(SegmentError::Io { path: self.log.folder().to_owned(), source: e.into() });
        let mut lines = Vec::new();
        for (number, rejection) in (self.last() + 1..).zip(rejections) {
            let json = serde_json::to_vec(&RejectedLine::new(number, at, rejection)).map_err(io)?;
            lines.push(NumberedLine { head: LineHead { number, at_ms: at.0 }, json });
        }
        self.log.append(lines).map_err(boxed)
    }

    fn sync(&mut self) -> Result<(), Box<dyn StorageFailure>> {
        self.log.sync().map_err(boxed)
    }

    fn last(&self) -> u64 {
        self.log.last()
    }

    fn retain(&mut self, now: Timestamp, read: Option<u64>) -> Result<Option<u64>, Box<dyn StorageFailure>> {
        Ok(self.log.retain(now.0, self.keep, read).map_err(boxed)?.held_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_wire::intake::{RejectCode, Rejected};
    use serde_json::Value;

    fn rejection(bytes: &[u8]) -> Rejection {
        let why = Rejected { code: RejectCode::Malformed, path: "$".into(), message: "not JSON".into() };
        let original = Original { source: "f.jsonl".into(), position: 3, bytes: bytes.to_vec(), ..Original::default() };
        Rejection::unreadable(original, why)
    }

    #[test]
    fn bytes_come_back_and_what_the_journal_does_not_count_is_cut() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = RejectedLog::open(folder.path(), 0).unwrap();
        log.write(Timestamp(7), &[rejection(b"{\"a"), rejection(&[0xff, 0xfe])]).unwrap();
        log.sync().unwrap();
        let path = folder.path().join(FOLDER).join("00000000000000000001.jsonl");
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!(
            (&lines[0]["event"], &lines[0]["position"], &lines[0]["number"]),
            (&"{\"a".into(), &3.into(), &1.into())
        );
        assert_eq!((&lines[1]["eventBase64"], &lines[1]["code"]), (&"//4=".into(), &"Malformed".into()));
        for (torn, known, left) in [("", 2, 2), ("{\"torn", 2, 2), ("", 1, 1), ("", 0, 0)] {
            std::fs::write(&path, format!("{text}{torn}")).unwrap();
            let again = RejectedLog::open(folder.path(), known).unwrap();
            assert_eq!(again.last(), known);
            assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), left, "{torn} {known}");
        }
        let first = text.lines().next().unwrap();
        std::fs::write(&path, format!("{first}\n")).unwrap();
        let missing = RejectedLog::open(folder.path(), 2).unwrap_err();
        assert!(missing.to_string().contains("line 2: it ends at number 1, and number 2 was there"), "{missing}");
    }
}

//! Statuses and rejected events as notes for a sink: read line by line from where the sink's cursor is.
//!
//! Never: half a line, a line that the journal does not count, or more in memory than is asked for.

use crate::driver::{DriverHandle, REJECTED};
use crate::intake::rejected::RejectedLine;
use crate::journal::JournalId;
use crate::segments::{SegmentError, SegmentLine, SegmentReader};
use forebay_source::OutgoingMessage;
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogKind {
    /// What became of each job.
    Statuses,
    /// Events that were not taken, with their bytes.
    Rejected,
}

impl LogKind {
    /// As it is in names.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            LogKind::Statuses => "status",
            LogKind::Rejected => "rejected",
        }
    }

    /// The last number that there is.
    #[must_use]
    pub fn last(self, handle: &DriverHandle) -> u64 {
        match self {
            LogKind::Statuses => handle.watch().borrow().statuses,
            LogKind::Rejected => handle.durable().get(REJECTED).unwrap_or(0),
        }
    }

    fn folder(self) -> &'static str {
        match self {
            LogKind::Statuses => crate::status::FOLDER,
            LogKind::Rejected => crate::intake::rejected::FOLDER,
        }
    }
}

/// A reader of one of the two.
#[derive(Debug)]
pub struct Lines {
    kind: LogKind,
    journal: JournalId,
    folder: PathBuf,
    reader: SegmentReader,
}

#[derive(Deserialize)]
struct StatusLine<'a> {
    id: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    subject: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    data: StatusData<'a>,
}

#[derive(Deserialize)]
struct StatusData<'a> {
    number: u64,
    #[serde(borrow)]
    tenant: std::borrow::Cow<'a, str>,
}

impl Lines {
    /// Of a journal's folder, from the line after number `after` on.
    #[must_use]
    pub fn new(kind: LogKind, folder: &Path, journal: JournalId, after: u64) -> Lines {
        let folder = folder.join(kind.folder());
        let reader = SegmentReader::new(&folder, after);
        Lines { kind, journal, folder, reader }
    }

    /// The next notes up to number `upto`: at most so many, and of about so many bytes. None: there are no more now.
    ///
    /// # Errors
    /// What the file system says, a damaged line, or lines that are not kept any more.
    pub fn next(&mut self, upto: u64, most: usize, max_bytes: usize) -> Result<Vec<OutgoingMessage>, SegmentError> {
        let (mut notes, mut bytes) = (Vec::new(), 0);
        while notes.len() < most && bytes < max_bytes {
            let Some(line) = self.reader.next_up_to(upto)? else { break };
            let note = self.note(&line).ok_or_else(|| self.unreadable(line.number))?;
            bytes += note.bytes.len();
            notes.push(note);
        }
        Ok(notes)
    }

    fn unreadable(&self, number: u64) -> SegmentError {
        let what = format!("number {number} is no line of this log");
        SegmentError::Damaged { path: self.folder.clone(), line: 0, what }
    }

    fn note(&self, line: &SegmentLine) -> Option<OutgoingMessage> {
        match self.kind {
            LogKind::Statuses => {
                let said: StatusLine<'_> = serde_json::from_slice(&line.bytes).ok()?;
                Some(OutgoingMessage {
                    number: said.data.number,
                    id: said.id.to_owned(),
                    key: format!("{}/{}", said.data.tenant, said.subject),
                    kind: said.kind.to_owned(),
                    bytes: line.bytes.clone(),
                })
            }
            LogKind::Rejected => rejected(self.journal, &serde_json::from_slice(&line.bytes).ok()?, None),
        }
    }

    /// The same note in at most so many bytes: without what was sent, but with its digest and where it is kept.
    #[must_use]
    pub fn smaller(&self, note: &OutgoingMessage, most: usize) -> Option<OutgoingMessage> {
        let whole: Value = serde_json::from_slice(&note.bytes).ok()?;
        let said: RejectedLine = serde_json::from_value(whole.get("data")?.clone()).ok()?;
        let note = rejected(self.journal, &said, Some(()))?;
        (self.kind == LogKind::Rejected && note.bytes.len() <= most).then_some(note)
    }
}

/// An event that was not taken, as an event. Cut: without its bytes and attributes.
fn rejected(journal: JournalId, said: &RejectedLine, cut: Option<()>) -> Option<OutgoingMessage> {
    let id = format!("{journal}-rejected-{}", said.number);
    let mut data = serde_json::to_value(said).ok()?;
    if let (Some(()), Some(fields)) = (cut, data.as_object_mut()) {
        for cut in ["event", "eventBase64", "attributes"] {
            fields.remove(cut);
        }
        let sent = said.sent();
        fields.insert("eventCut".to_owned(), json!(true));
        fields.insert("eventBytes".to_owned(), json!(sent.len()));
        fields.insert("eventBlake3".to_owned(), json!(blake3::hash(&sent).to_hex().to_string()));
        fields.insert("eventKeptIn".to_owned(), json!(format!("rejected, number {}", said.number)));
    }
    let at = crate::clock::instant(said.at_ms);
    let event = json!({
        "specversion": "1.0",
        "type": "event.rejected",
        "source": "//forebay",
        "id": id,
        "time": at.map(|t| t.to_string()),
        "subject": said.source,
        "dataschema": "urn:forebay:event.rejected:1",
        "datacontenttype": "application/json",
        "data": data,
    });
    let bytes = event.to_string().into_bytes();
    Some(OutgoingMessage {
        number: said.number,
        id,
        key: said.source.clone(),
        kind: "event.rejected".to_owned(),
        bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Original;
    use crate::intake::rejected::RejectedLog;
    use forebay_driver::live::{Rejection, RejectionWriter as _};
    use forebay_kernel::units::Timestamp;
    use forebay_wire::intake::{RejectCode, Rejected};
    use std::io::Write;

    const JOURNAL: JournalId = JournalId { uuid: 0, incarnation: 0 };

    fn some(folder: &Path, count: usize, bytes: &[u8]) -> PathBuf {
        let why = Rejected { code: RejectCode::Malformed, path: "$".into(), message: "not JSON".into() };
        let original = Original { source: "kafka:jobs/0/0".into(), bytes: bytes.to_vec(), ..Original::default() };
        let mut log = RejectedLog::open(folder, 0).unwrap();
        log.write(Timestamp(1_793_000_000_000), &vec![Rejection::unreadable(original, why); count]).unwrap();
        folder.join("rejected/00000000000000000001.jsonl")
    }

    fn numbers(notes: &[OutgoingMessage]) -> Vec<u64> {
        notes.iter().map(|note| note.number).collect()
    }

    #[test]
    fn they_come_in_order_up_to_what_is_counted_and_go_on_from_the_cursor() {
        let folder = tempfile::tempdir().unwrap();
        let path = some(folder.path(), 5, b"{\"a\xff");
        let mut lines = Lines::new(LogKind::Rejected, folder.path(), JOURNAL, 1);
        assert_eq!(numbers(&lines.next(3, 10, 1 << 20).unwrap()), [2, 3]);
        assert!(lines.next(3, 10, 1 << 20).unwrap().is_empty());
        assert_eq!(numbers(&lines.next(9, 1, 1 << 20).unwrap()), [4]);
        let text = std::fs::read(&path).unwrap();
        std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(&text[..40]).unwrap();
        assert_eq!(numbers(&lines.next(9, 10, 1 << 20).unwrap()), [5], "and not the half line after it");
        let note = &Lines::new(LogKind::Rejected, folder.path(), JOURNAL, 4).next(9, 10, 1 << 20).unwrap()[0];
        let event: Value = serde_json::from_slice(&note.bytes).unwrap();
        assert_eq!(event["id"], format!("{JOURNAL}-rejected-5"));
        assert_eq!((&event["data"]["code"], &event["data"]["eventBase64"]), (&"Malformed".into(), &"eyJh/w==".into()));
        assert_eq!(event["data"].get("crc32c"), None, "the checksum stays in the log");
    }

    #[test]
    fn what_is_too_large_for_a_sink_names_where_it_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        some(folder.path(), 1, &vec![b'x'; 100_000]);
        let mut lines = Lines::new(LogKind::Rejected, folder.path(), JOURNAL, 0);
        let note = lines.next(1, 1, 1 << 20).unwrap().remove(0);
        assert!(note.bytes.len() > 100_000);
        let smaller = lines.smaller(&note, 2_000).expect("fits");
        let event: Value = serde_json::from_slice(&smaller.bytes).unwrap();
        assert_eq!((&event["data"]["eventBytes"], &event["data"]["event"]), (&100_000.into(), &Value::Null));
        assert_eq!((smaller.id, smaller.number), (note.id, 1));
    }

    #[test]
    fn what_is_said_of_an_event_that_is_cut_is_of_its_bytes_as_sent() {
        for sent in [vec![b'x'; 30_000], vec![0xff; 30_000]] {
            let folder = tempfile::tempdir().unwrap();
            some(folder.path(), 1, &sent);
            let mut lines = Lines::new(LogKind::Rejected, folder.path(), JOURNAL, 0);
            let note = lines.next(1, 1, 1 << 20).unwrap().remove(0);
            let smaller = lines.smaller(&note, 2_000).expect("fits");
            let event: Value = serde_json::from_slice(&smaller.bytes).unwrap();
            assert_eq!(event["data"]["eventBytes"], 30_000);
            assert_eq!(event["data"]["eventBlake3"], blake3::hash(&sent).to_hex().as_str());
            assert_eq!(event["data"].get("eventBase64"), None);
        }
    }
}

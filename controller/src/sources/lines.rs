//! `status.jsonl` and `rejected.jsonl` as notes for a sink: read line by line from where the sink's cursor is.
//!
//! Never: half a line, a line that the journal does not count, or more in memory than is asked for.

use crate::intake::RejectedLine;
use forebay_source::Note;
use serde::Deserialize;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// What became of each job.
    Statuses,
    /// Events that were not taken, with their bytes.
    Rejected,
}

impl Kind {
    /// As it is in names.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Statuses => "status",
            Kind::Rejected => "rejected",
        }
    }

    fn file(self) -> &'static str {
        match self {
            Kind::Statuses => crate::status::FILE,
            Kind::Rejected => crate::intake::rejected::FILE,
        }
    }
}

/// A reader of one of the two files.
#[derive(Debug)]
pub struct Lines {
    kind: Kind,
    journal: Uuid,
    path: PathBuf,
    reader: Option<BufReader<File>>,
    /// Where the next line begins.
    at: u64,
    after: u64,
    line: Vec<u8>,
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
    pub fn new(kind: Kind, folder: &Path, journal: Uuid, after: u64) -> Lines {
        Lines { kind, journal, path: folder.join(kind.file()), reader: None, at: 0, after, line: Vec::new() }
    }

    /// The next notes up to number `upto`: at most so many, and of about so many bytes. None: there are no more now.
    ///
    /// # Errors
    /// What the file system says.
    pub fn next(&mut self, upto: u64, most: usize, most_bytes: usize) -> std::io::Result<Vec<Note>> {
        let (mut notes, mut bytes) = (Vec::new(), 0);
        while notes.len() < most && bytes < most_bytes && self.after < upto {
            if !self.read_line()? {
                break;
            }
            let Some(note) = self.note() else {
                self.at += self.line.len() as u64;
                continue;
            };
            if note.number > upto {
                self.back()?;
                break;
            }
            self.at += self.line.len() as u64;
            if note.number > self.after {
                self.after = note.number;
                bytes += note.bytes.len();
                notes.push(note);
            }
        }
        Ok(notes)
    }

    /// Reads a whole line into `line`, or stays where it is.
    fn read_line(&mut self) -> std::io::Result<bool> {
        if self.reader.is_none() {
            let mut file = match File::open(&self.path) {
                Ok(file) => file,
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(false),
                Err(e) => return Err(e),
            };
            file.seek(SeekFrom::Start(self.at))?;
            self.reader = Some(BufReader::with_capacity(1 << 17, file));
        }
        let Some(reader) = &mut self.reader else { return Ok(false) };
        self.line.clear();
        reader.read_until(b'\n', &mut self.line)?;
        let whole = self.line.ends_with(b"\n");
        if !whole && !self.line.is_empty() {
            self.back()?;
        }
        Ok(whole)
    }

    /// The line is read again the next time.
    fn back(&mut self) -> std::io::Result<()> {
        if let Some(reader) = &mut self.reader {
            reader.seek(SeekFrom::Start(self.at))?;
        }
        Ok(())
    }

    /// The note in the line. `None`: a hole that a crash of the machine left.
    fn note(&self) -> Option<Note> {
        let line = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
        match self.kind {
            Kind::Statuses => {
                let said: StatusLine<'_> = serde_json::from_slice(line).ok()?;
                Some(Note {
                    number: said.data.number,
                    id: said.id.to_owned(),
                    key: format!("{}/{}", said.data.tenant, said.subject),
                    kind: said.kind.to_owned(),
                    bytes: line.to_vec(),
                })
            }
            Kind::Rejected => Some(rejected(self.journal, &serde_json::from_slice(line).ok()?, None)),
        }
    }

    /// The same note in at most so many bytes: without what was sent, but with its digest and where it is kept.
    #[must_use]
    pub fn smaller(&self, note: &Note, most: usize) -> Option<Note> {
        let whole: Value = serde_json::from_slice(&note.bytes).ok()?;
        let said: RejectedLine = serde_json::from_value(whole.get("data")?.clone()).ok()?;
        let note = rejected(self.journal, &said, Some(()));
        (self.kind == Kind::Rejected && note.bytes.len() <= most).then_some(note)
    }
}

/// An event that was not taken, as an event. Cut: without its bytes and attributes.
fn rejected(journal: Uuid, said: &RejectedLine, cut: Option<()>) -> Note {
    let id = format!("{journal}-rejected-{}", said.number);
    let mut data = serde_json::to_value(said).unwrap_or_default();
    if let (Some(()), Some(fields)) = (cut, data.as_object_mut()) {
        let text = fields.remove("event").or_else(|| fields.remove("eventBase64"));
        fields.remove("attributes");
        let text = text.as_ref().and_then(Value::as_str).unwrap_or_default();
        fields.insert("eventCut".to_owned(), json!(true));
        fields.insert("eventBytes".to_owned(), json!(text.len()));
        fields.insert("eventBlake3".to_owned(), json!(blake3::hash(text.as_bytes()).to_hex().to_string()));
        fields.insert("eventKeptIn".to_owned(), json!(format!("rejected.jsonl, number {}", said.number)));
    }
    let at = i64::try_from(said.at_ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
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
    Note { number: said.number, id, key: said.source.clone(), kind: "event.rejected".to_owned(), bytes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Original;
    use crate::intake::{RejectCode, Rejected, RejectedFile, Rejection};
    use forebay_engine::units::Millis;
    use std::io::Write;

    fn some(folder: &Path, count: usize, bytes: &[u8]) -> RejectedFile {
        let why = Rejected { code: RejectCode::Malformed, path: "$".into(), message: "not JSON".into() };
        let original = Original { source: "kafka:jobs/0/0".into(), bytes: bytes.to_vec(), ..Original::default() };
        let mut file = RejectedFile::open(folder, 0).unwrap();
        file.write(Millis(1_793_000_000_000), &vec![Rejection::unreadable(original, why); count]).unwrap();
        file
    }

    fn numbers(notes: &[Note]) -> Vec<u64> {
        notes.iter().map(|note| note.number).collect()
    }

    #[test]
    fn they_come_in_order_up_to_what_is_counted_and_go_on_from_the_cursor() {
        let folder = tempfile::tempdir().unwrap();
        let file = some(folder.path(), 5, b"{\"a\xff");
        let mut lines = Lines::new(Kind::Rejected, folder.path(), Uuid::nil(), 1);
        assert_eq!(numbers(&lines.next(3, 10, 1 << 20).unwrap()), [2, 3]);
        assert!(lines.next(3, 10, 1 << 20).unwrap().is_empty());
        assert_eq!(numbers(&lines.next(9, 1, 1 << 20).unwrap()), [4]);
        let text = std::fs::read(file.path()).unwrap();
        std::fs::OpenOptions::new().append(true).open(file.path()).unwrap().write_all(&text[..40]).unwrap();
        assert_eq!(numbers(&lines.next(9, 10, 1 << 20).unwrap()), [5], "and not the half line after it");
        let note = &Lines::new(Kind::Rejected, folder.path(), Uuid::nil(), 4).next(9, 10, 1 << 20).unwrap()[0];
        let event: Value = serde_json::from_slice(&note.bytes).unwrap();
        assert_eq!(event["id"], format!("{}-rejected-5", Uuid::nil()));
        assert_eq!((&event["data"]["code"], &event["data"]["eventBase64"]), (&"Malformed".into(), &"eyJh/w==".into()));
    }

    #[test]
    fn what_is_too_large_for_a_sink_names_where_it_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        some(folder.path(), 1, &vec![b'x'; 100_000]);
        let mut lines = Lines::new(Kind::Rejected, folder.path(), Uuid::nil(), 0);
        let note = lines.next(1, 1, 1 << 20).unwrap().remove(0);
        assert!(note.bytes.len() > 100_000);
        let smaller = lines.smaller(&note, 2_000).expect("fits");
        let event: Value = serde_json::from_slice(&smaller.bytes).unwrap();
        assert_eq!((&event["data"]["eventBytes"], &event["data"]["event"]), (&100_000.into(), &Value::Null));
        assert_eq!((smaller.id, smaller.number), (note.id, 1));
    }
}

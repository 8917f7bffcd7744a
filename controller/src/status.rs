//! `status.jsonl`: what became of each job, one CloudEvent a line, each number once and none left out, whatever crashes.
//!
//! ```text
//! engine's stream (kept until delivered) -> numbers above the file's last whole line -> written -> synced -> Tick.delivered
//! after a crash: the torn last line is cut, and what the journal still holds is written from there on
//! ```
//!
//! Never: writes a status that is not durable in the journal. Its ids are `<journal uuid>-<number>`, so that a consumer can tell
//! one journal's stream from another's.

use forebay_engine::effect::Status;
use forebay_engine::ids::JobId;
use forebay_engine::reason::Reason;
use jiff::Timestamp;
use serde::{Deserialize, Serialize, Serializer};
use std::fmt::{Arguments, Display};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// The file's name in the journal's folder.
pub const FILE: &str = "status.jsonl";

/// Why statuses cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    /// The file system said no.
    #[error("{}: {source}; check the folder, its permissions and the disk under it", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is another journal's.
    #[error("{}: holds the statuses of journal {found}, this is journal {journal}; move the file away or give another folder", .path.display())]
    Stranger {
        /// The file.
        path: PathBuf,
        /// Whose it is.
        found: String,
        /// Whose it should be.
        journal: Uuid,
    },
    /// Statuses that were delivered are not in it any more.
    #[error(
        "{}: ends at number {last}, and the journal holds statuses from {first} on: the ones between were delivered and cannot be \
         made again; restore the file from a backup, or move it away to begin a new one at {first}",
        .path.display()
    )]
    Gap {
        /// The file.
        path: PathBuf,
        /// Its last number.
        last: u64,
        /// The first that the journal still holds.
        first: u64,
    },
}

impl StatusError {
    /// Whether it goes away when there is room on the disk.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self, StatusError::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull)
    }
}

/// The open file.
#[derive(Debug)]
pub struct StatusFile {
    file: File,
    path: PathBuf,
    journal: Uuid,
    /// The last number written, and where its line ends.
    last: u64,
    end: u64,
    /// The last number that a crash of the machine keeps.
    synced: u64,
    /// Numbers that were in the file and not in the journal: cut when it was opened.
    ahead: u64,
}

#[derive(Deserialize)]
struct Known {
    id: String,
}

impl StatusFile {
    /// Opens it, or begins it. `known` is the number of the journal's last status: what lies beyond came from batches that are no
    /// more, and is cut like a torn line.
    pub fn open(folder: &Path, journal: Uuid, known: u64) -> Result<StatusFile, StatusError> {
        let path = folder.join(FILE);
        let io = |source| StatusError::Io { path: path.clone(), source };
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = opened.map_err(io)?;
        let (mut last, mut sound, mut ahead, mut stranger, mut broken) = (0, 0, 0, None, false);
        let prefix = format!("{journal}-");
        whole_lines(&mut file, |line| {
            // A machine's crash may leave a hole: from there on everything is written again.
            let id = serde_json::from_slice(line).map(|Known { id }| id).unwrap_or_default();
            let number = id.strip_prefix(&prefix).and_then(|n| n.parse::<u64>().ok());
            if number.is_none() && !id.is_empty() {
                stranger.get_or_insert(id);
            }
            match number {
                Some(number) if number > known => ahead += 1,
                Some(number) if !broken && (last == 0 || number == last + 1) => {
                    last = number;
                    sound += 1;
                    return Ok(());
                }
                _ => {}
            }
            broken = true;
            Ok(())
        })
        .map_err(io)?;
        if let (Some(found), 0) = (stranger, sound) {
            return Err(StatusError::Stranger { path, found, journal });
        }
        let end = line_end(&mut file, sound).map_err(io)?;
        file.set_len(end).map_err(io)?;
        file.seek(SeekFrom::Start(end)).map_err(io)?;
        Ok(StatusFile { file, path, journal, last, end, synced: last, ahead })
    }

    /// Writes those of `statuses` that are not in the file yet, in order.
    pub fn write<'a>(&mut self, statuses: impl Iterator<Item = &'a Status>) -> Result<(), StatusError> {
        let mut out = Vec::new();
        let mut last = self.last;
        for status in statuses.filter(|s| s.number > self.last) {
            // A new file may begin where an old one was moved away.
            if status.number != last + 1 && last != 0 {
                return Err(StatusError::Gap { path: self.path.clone(), last, first: status.number });
            }
            write_event(&mut out, status, self.journal);
            out.push(b'\n');
            last = status.number;
        }
        if out.is_empty() {
            return Ok(());
        }
        if let Err(source) = self.file.write_all(&out) {
            // Half a line must not stay: the next one would be glued to it.
            let _ = self.file.set_len(self.end).and_then(|()| self.file.seek(SeekFrom::Start(self.end)));
            return Err(StatusError::Io { path: self.path.clone(), source });
        }
        self.end += out.len() as u64;
        self.last = last;
        Ok(())
    }

    /// Makes what was written durable.
    pub fn sync(&mut self) -> Result<(), StatusError> {
        if self.synced < self.last {
            self.file.sync_data().map_err(|source| StatusError::Io { path: self.path.clone(), source })?;
            self.synced = self.last;
        }
        Ok(())
    }

    /// The last number written.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.last
    }

    /// The last number that is durable: it may be forgotten by the engine.
    #[must_use]
    pub fn delivered(&self) -> u64 {
        self.synced
    }

    /// Lines that were cut because the journal does not know them.
    #[must_use]
    pub fn ahead(&self) -> u64 {
        self.ahead
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// A status as it is sent: a CloudEvent.
#[derive(Serialize)]
struct Line<'a> {
    specversion: &'a str,
    #[serde(rename = "type")]
    kind: Text<Arguments<'a>>,
    source: &'a str,
    id: Text<Arguments<'a>>,
    time: Option<Text<Timestamp>>,
    subject: &'a str,
    dataschema: Text<Arguments<'a>>,
    datacontenttype: &'a str,
    data: Data<'a>,
}

#[derive(Serialize)]
struct Data<'a> {
    number: u64,
    tenant: &'a str,
    job: Option<Text<JobId>>,
    attempt: u32,
    seq: u32,
    terminal: bool,
    reason: Option<Why>,
}

#[derive(Serialize)]
struct Why {
    code: &'static str,
    text: Text<Reason>,
}

/// Text that is put together as it is written.
struct Text<T>(T);

impl<T: Display> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&self.0)
    }
}

/// A status as it is sent, as JSON text.
#[must_use]
pub fn cloud_event(status: &Status, journal: Uuid) -> String {
    let mut out = Vec::new();
    write_event(&mut out, status, journal);
    String::from_utf8(out).unwrap_or_default()
}

fn write_event(out: &mut Vec<u8>, status: &Status, journal: Uuid) {
    let kind = format_args!("status.{}", status.kind.as_str());
    let id = format_args!("{journal}-{}", status.number);
    let dataschema = format_args!("urn:forebay:status.{}:1", status.kind.as_str());
    let time = i64::try_from(status.at.0).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    let line = Line {
        specversion: "1.0",
        kind: Text(kind),
        source: "//forebay",
        id: Text(id),
        time: time.map(Text),
        subject: &status.subject,
        dataschema: Text(dataschema),
        datacontenttype: "application/json",
        data: Data {
            number: status.number,
            tenant: &status.tenant,
            job: status.job.map(Text),
            attempt: status.attempt.0,
            seq: status.seq,
            terminal: status.kind.terminal(),
            reason: status.reason.map(|reason| Why { code: reason.code(), text: Text(reason) }),
        },
    };
    // Into memory, from texts and numbers: nothing there can fail.
    let _ = serde_json::to_writer(out, &line);
}

/// Hands each whole line to `take`, without its line break. Returns where the last one ends, and how many there are.
pub(crate) fn whole_lines(
    file: &mut File,
    mut take: impl FnMut(&[u8]) -> std::io::Result<()>,
) -> std::io::Result<(u64, u64)> {
    file.rewind()?;
    let mut reader = BufReader::with_capacity(1 << 18, file);
    let (mut line, mut end, mut lines) = (Vec::new(), 0, 0);
    loop {
        line.clear();
        let read = reader.read_until(b'\n', &mut line)?;
        if line.pop() != Some(b'\n') {
            return Ok((end, lines));
        }
        take(&line)?;
        end += read as u64;
        lines += 1;
    }
}

/// Where the `lines`-th line ends.
pub(crate) fn line_end(file: &mut File, lines: u64) -> std::io::Result<u64> {
    file.rewind()?;
    let mut reader = BufReader::with_capacity(1 << 18, file);
    let (mut line, mut end) = (Vec::new(), 0);
    for _ in 0..lines {
        line.clear();
        end += reader.read_until(b'\n', &mut line)? as u64;
    }
    Ok(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_engine::effect::StatusKind;
    use forebay_engine::ids::Attempt;
    use forebay_engine::units::Millis;
    use serde_json::{Value, json};

    fn status(number: u64) -> Status {
        Status {
            number,
            at: Millis(1_793_000_000_000 + number),
            tenant: "t".into(),
            subject: format!("job \"{number}\"\n"),
            job: Some(JobId(number)),
            attempt: Attempt(1),
            seq: 3,
            kind: StatusKind::Failed,
            reason: Some(Reason::ExitCode { code: 2 }),
        }
    }

    fn numbers(folder: &Path) -> Vec<u64> {
        let text = std::fs::read_to_string(folder.join(FILE)).unwrap();
        text.lines().map(|l| serde_json::from_str::<Value>(l).unwrap()["data"]["number"].as_u64().unwrap()).collect()
    }

    #[test]
    fn a_line_says_everything_and_stays_one_line() {
        let text = cloud_event(&status(7), Uuid::nil());
        let event: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(event["id"], "00000000-0000-0000-0000-000000000000-7");
        assert_eq!(event["type"], "status.failed");
        assert_eq!(event["time"], "2026-10-26T07:33:20.007Z");
        assert_eq!(event["data"]["reason"], json!({"code": "ExitCode", "text": "exit code 2, no retries left"}));
        assert_eq!((&event["data"]["terminal"], &event["data"]["seq"]), (&json!(true), &json!(3)));
        assert!(!text.contains('\n'));
    }

    #[test]
    fn wherever_it_is_torn_every_number_is_there_once_afterwards() {
        let all: Vec<Status> = (1..=5).map(status).collect();
        let folder = tempfile::tempdir().unwrap();
        let mut file = StatusFile::open(folder.path(), Uuid::nil(), 0).unwrap();
        file.write(all.iter()).unwrap();
        assert_eq!((file.last(), file.delivered()), (5, 0));
        file.sync().unwrap();
        assert_eq!(file.delivered(), 5);
        let whole = std::fs::read(folder.path().join(FILE)).unwrap();
        for length in 0..=whole.len() {
            std::fs::write(folder.path().join(FILE), &whole[..length]).unwrap();
            let mut file = StatusFile::open(folder.path(), Uuid::nil(), 5).unwrap();
            file.write(all.iter()).unwrap();
            assert_eq!(numbers(folder.path()), [1, 2, 3, 4, 5], "torn at {length}");
        }
    }

    #[test]
    fn numbers_that_the_journal_lost_are_cut_and_a_gap_or_a_stranger_is_refused() {
        let all: Vec<Status> = (1..=5).map(status).collect();
        let folder = tempfile::tempdir().unwrap();
        StatusFile::open(folder.path(), Uuid::nil(), 0).unwrap().write(all.iter()).unwrap();
        let mut file = StatusFile::open(folder.path(), Uuid::nil(), 3).unwrap();
        assert_eq!((file.last(), file.ahead()), (3, 2));
        assert_eq!(numbers(folder.path()), [1, 2, 3]);
        let gap = file.write(all[4..].iter()).unwrap_err();
        assert!(matches!(gap, StatusError::Gap { last: 3, first: 5, .. }), "{gap}");
        let stranger = StatusFile::open(folder.path(), Uuid::max(), 3).unwrap_err();
        assert!(stranger.to_string().contains("statuses of journal 00000000"), "{stranger}");
    }

    #[test]
    fn a_hole_in_the_file_is_written_again() {
        for hole in 0..5 {
            holed_at(hole);
        }
    }

    fn holed_at(hole: usize) {
        let all: Vec<Status> = (1..=5).map(status).collect();
        let folder = tempfile::tempdir().unwrap();
        StatusFile::open(folder.path(), Uuid::nil(), 0).unwrap().write(all.iter()).unwrap();
        let text = std::fs::read_to_string(folder.path().join(FILE)).unwrap();
        let holed: Vec<&str> = text.lines().enumerate().map(|(n, l)| if n == hole { "\0\0\0" } else { l }).collect();
        std::fs::write(folder.path().join(FILE), holed.join("\n") + "\n").unwrap();
        let mut file = StatusFile::open(folder.path(), Uuid::nil(), 5).unwrap();
        assert_eq!(file.last(), hole as u64);
        file.write(all.iter()).unwrap();
        assert_eq!(numbers(folder.path()), [1, 2, 3, 4, 5]);
    }
}

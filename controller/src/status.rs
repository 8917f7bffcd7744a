//! The statuses of a journal: what became of each job, one CloudEvent a line in numbered segments, each number once and none left out,
//! whatever crashes.
//!
//! ```text
//! engine's stream (kept until delivered) -> numbers above the last whole line -> written -> synced -> Tick.delivered
//! after a crash: the torn last line is cut, and what the journal still holds is written from there on
//! ```
//!
//! Never: writes a status that is not durable in the journal. Its ids are `<journal>-<number>`, so that a consumer can tell one
//! journal's stream from another's.

use crate::journal::{JournalId, Shortfall};
use crate::segments::{
    LineHead, LogPosition, LookedLog, NumberedLine, SegmentError, SegmentLog, SegmentReader, SegmentRetention, boxed,
    look_at,
};
use forebay_driver::journal::StorageFailure;
pub use forebay_driver::live::StatusWriter;
use forebay_kernel::effect::Status;
use forebay_kernel::units::Timestamp;
use forebay_wire::status::write_event;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// The folder's name in the journal's folder.
pub const FOLDER: &str = "status";

/// How long statuses are kept unless the configuration says otherwise: 7 days, and at most 4 GiB, some 8 million of them.
pub const RETENTION: SegmentRetention = SegmentRetention { age_ms: 7 * 86_400_000, bytes: 4 << 30 };

/// Why statuses cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    /// They cannot be written or read, or are damaged.
    #[error(transparent)]
    Segments(#[from] SegmentError),
    /// They are another journal's.
    #[error("{}: holds the statuses of journal {found}, this is journal {journal}; move the folder away or give another one", .folder.display())]
    Stranger {
        /// The folder of statuses.
        folder: PathBuf,
        /// Whose they are.
        found: String,
        /// Whose they should be.
        journal: JournalId,
    },
    /// Statuses that were delivered are not in it any more.
    #[error(
        "{}: ends at number {last}, and the journal holds statuses from {first} on: the ones between were delivered and cannot be \
         made again; restore the folder from a backup, or move it away: the next start says what that loses and how to go on",
        .folder.display()
    )]
    Gap {
        /// The folder of statuses.
        folder: PathBuf,
        /// Its last number.
        last: u64,
        /// The first that the journal still holds.
        first: u64,
    },
}

impl StorageFailure for StatusError {
    fn is_full(&self) -> bool {
        matches!(self, StatusError::Segments(e) if e.is_full())
    }
}

/// The log as its one writer has it.
#[derive(Debug)]
pub struct StatusLog {
    log: SegmentLog,
    journal: JournalId,
    /// How long statuses are kept.
    pub keep: SegmentRetention,
}

#[derive(Deserialize)]
struct WrittenLine<'a> {
    id: &'a str,
    time: Option<jiff::Timestamp>,
    data: WrittenNumber,
}

#[derive(Deserialize)]
struct WrittenNumber {
    number: u64,
}

/// What a line of statuses says of itself.
#[must_use]
pub fn line_head(line: &[u8]) -> Option<LineHead> {
    let WrittenLine { time, data, .. } = serde_json::from_slice(line).ok()?;
    let at_ms = time.map_or(0, |time| time.as_millisecond().unsigned_abs());
    Some(LineHead { number: data.number, at_ms })
}

impl StatusLog {
    /// Opens the log in the journal's folder, or begins it. What lies beyond what the journal knows came from batches that are no more,
    /// and is cut like a torn line.
    ///
    /// # Errors
    /// The log is another journal's, damaged, or cannot be written.
    pub fn open(folder: &Path, journal: JournalId, position: LogPosition) -> Result<StatusLog, StatusError> {
        let folder = folder.join(FOLDER);
        check_owner(&folder, journal)?;
        Ok(StatusLog { log: SegmentLog::open(&folder, position, line_head)?, journal, keep: RETENTION })
    }
}

impl StatusWriter for StatusLog {
    fn write(&mut self, statuses: &mut dyn Iterator<Item = &Status>) -> Result<(), Box<dyn StorageFailure>> {
        let mut lines = Vec::new();
        let mut last = self.log.last();
        for status in statuses.filter(|s| s.number > self.log.last()) {
            // A new log may begin where an old one was moved away.
            if status.number != last + 1 && self.log.is_begun() {
                let folder = self.log.folder().to_owned();
                return Err(boxed(StatusError::Gap { folder, last, first: status.number }));
            }
            let mut json = Vec::new();
            write_event(&mut json, status, self.journal);
            lines.push(NumberedLine { head: LineHead { number: status.number, at_ms: status.at.0 }, json });
            last = status.number;
        }
        self.log.append(lines).map_err(boxed)
    }

    fn sync(&mut self) -> Result<(), Box<dyn StorageFailure>> {
        self.log.sync().map_err(boxed)
    }

    fn last(&self) -> u64 {
        self.log.last()
    }

    fn delivered(&self) -> u64 {
        self.log.synced()
    }

    fn cut(&self) -> u64 {
        self.log.ahead()
    }

    fn retain(&mut self, now: Timestamp, read: Option<u64>) -> Result<Option<u64>, Box<dyn StorageFailure>> {
        Ok(self.log.retain(now.0, self.keep, read).map_err(boxed)?.held_at)
    }
}

/// What shows in a journal's folder that statuses were given out that the journal does not know, or that are not there any more. Nothing
/// is changed.
///
/// # Errors
/// The log is another journal's, or a line is damaged that cannot be made again.
pub fn shortfalls(data: &Path, journal: JournalId, position: LogPosition) -> Result<Vec<Shortfall>, StatusError> {
    let folder = data.join(FOLDER);
    check_owner(&folder, journal)?;
    let looked = look_at(&folder, position, line_head)?;
    let mut found: Vec<Shortfall> = not_there(&looked, position).into_iter().collect();
    let incarnation = looked.last_ahead.as_deref().and_then(line_journal).map_or(0, |owner| owner.incarnation);
    // Those of an earlier incarnation were given up when this one began, and are cut.
    if looked.ahead > 0 && incarnation >= journal.incarnation {
        let LogPosition { known, .. } = position;
        let (file, missing) = (looked.newest, looked.ahead);
        let what =
            format!("has statuses that were given out up to number {}, and the journal knows {known}", known + missing);
        found.push(Shortfall { file, what, missing });
    }
    Ok(found)
}

/// Lines that were durable and are not there.
pub(crate) fn not_there(looked: &LookedLog, position: LogPosition) -> Option<Shortfall> {
    let last = if looked.begun { looked.last } else { 0 };
    let missing = position.kept.checked_sub(last).filter(|missing| *missing > 0)?;
    let what = match looked.begun {
        true => format!("ends at number {last}, and number {} was written", position.kept),
        false => format!("has nothing, and numbers up to {} were written", position.kept),
    };
    Some(Shortfall { file: looked.newest.clone(), what, missing })
}

/// The journal in a line's id.
fn line_journal(line: &[u8]) -> Option<JournalId> {
    let WrittenLine { id, .. } = serde_json::from_slice(line).ok()?;
    id.rsplit_once('-')?.0.parse().ok()
}

/// A log that is begun says in each line whose it is; the first one that can be read is asked.
fn check_owner(folder: &Path, journal: JournalId) -> Result<(), StatusError> {
    let Ok(Some(first)) = SegmentReader::new(folder, 0).next_line() else { return Ok(()) };
    let Ok(WrittenLine { id, .. }) = serde_json::from_slice(&first.bytes) else { return Ok(()) };
    let owner = id.rsplit_once('-').map_or(id, |(owner, _)| owner);
    // What was written before a restore keeps its ids.
    let earlier = |owner: JournalId| owner.uuid == journal.uuid && owner.incarnation <= journal.incarnation;
    if owner.parse::<JournalId>().is_ok_and(earlier) {
        return Ok(());
    }
    Err(StatusError::Stranger { folder: folder.to_owned(), found: owner.to_owned(), journal })
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_kernel::effect::StatusKind;
    use forebay_kernel::ids::{Attempt, JobId};
    use forebay_kernel::reason::Reason;
    use forebay_wire::status::cloud_event;
    use serde_json::{Value, json};
    use std::collections::BTreeMap;

    const JOURNAL: JournalId = JournalId { uuid: 0, incarnation: 0 };

    fn status(number: u64) -> Status {
        Status {
            number,
            at: Timestamp(1_793_000_000_000 + number),
            tenant: "t".into(),
            subject: format!("job \"{number}\"\n"),
            job: Some(JobId(number)),
            attempt: Attempt(1),
            seq: 3,
            kind: StatusKind::Failed,
            reason: Some(Reason::ExitCode { code: 2 }),
            named: None,
            run: None,
            labels: BTreeMap::new(),
        }
    }

    fn numbers(folder: &Path) -> Vec<u64> {
        let lines = crate::segments::read_all(&folder.join(FOLDER)).unwrap();
        lines.iter().map(|line| line_head(line).unwrap().number).collect()
    }

    fn open(folder: &Path, journal: JournalId, known: u64) -> Result<StatusLog, StatusError> {
        StatusLog::open(folder, journal, LogPosition { known, kept: 0 })
    }

    #[test]
    fn a_line_says_everything_and_stays_one_line() {
        let text = cloud_event(&status(7), JOURNAL);
        let event: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(event["id"], "00000000-0000-0000-0000-000000000000-7");
        assert_eq!(event["type"], "status.failed");
        assert_eq!(event["time"], "2026-10-26T07:33:20.007Z");
        assert_eq!(
            event["data"]["reason"],
            json!({"code": "ExitCode", "text": "exit code 2, which is not tried again: see its logs; `retry.attempts` says how often it is, and `retry.never` after which codes not", "figures": {"exit_code": 2}})
        );
        assert_eq!((&event["data"]["terminal"], &event["data"]["seq"]), (&json!(true), &json!(3)));
        assert!(!text.contains('\n'));
        assert_eq!(line_head(text.as_bytes()), Some(LineHead { number: 7, at_ms: 1_793_000_000_007 }));
        let restored = cloud_event(&status(7), JournalId { incarnation: 2, ..JOURNAL });
        assert!(restored.contains("\"00000000-0000-0000-0000-000000000000.2-7\""), "{restored}");
    }

    #[test]
    fn wherever_it_is_torn_every_number_is_there_once_afterwards() {
        let all: Vec<Status> = (1..=5).map(status).collect();
        let folder = tempfile::tempdir().unwrap();
        let mut log = open(folder.path(), JOURNAL, 0).unwrap();
        log.write(&mut all.iter()).unwrap();
        assert_eq!((log.last(), log.delivered()), (5, 0));
        log.sync().unwrap();
        assert_eq!(log.delivered(), 5);
        let path = folder.path().join(FOLDER).join("00000000000000000001.jsonl");
        let whole = std::fs::read(&path).unwrap();
        for length in 0..=whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            let mut log = open(folder.path(), JOURNAL, 5).unwrap();
            log.write(&mut all.iter()).unwrap();
            assert_eq!(numbers(folder.path()), [1, 2, 3, 4, 5], "torn at {length}");
        }
    }

    #[test]
    fn numbers_that_the_journal_lost_are_cut_and_a_gap_or_a_stranger_is_refused() {
        let all: Vec<Status> = (1..=5).map(status).collect();
        let folder = tempfile::tempdir().unwrap();
        open(folder.path(), JOURNAL, 0).unwrap().write(&mut all.iter()).unwrap();
        let mut log = open(folder.path(), JOURNAL, 3).unwrap();
        assert_eq!((log.last(), log.cut()), (3, 2));
        assert_eq!(numbers(folder.path()), [1, 2, 3]);
        let gap = log.write(&mut all[4..].iter()).unwrap_err();
        assert!(gap.to_string().contains("ends at number 3, and the journal holds statuses from 5 on"), "{gap}");
        let other = JournalId { uuid: u128::MAX, incarnation: 0 };
        let stranger = open(folder.path(), other, 3).unwrap_err();
        assert!(stranger.to_string().contains("statuses of journal 00000000"), "{stranger}");
    }

    #[test]
    fn a_hole_in_what_was_not_durable_is_written_again() {
        for hole in 0..5 {
            let all: Vec<Status> = (1..=5).map(status).collect();
            let folder = tempfile::tempdir().unwrap();
            open(folder.path(), JOURNAL, 0).unwrap().write(&mut all.iter()).unwrap();
            let path = folder.path().join(FOLDER).join("00000000000000000001.jsonl");
            let text = std::fs::read_to_string(&path).unwrap();
            let holed: Vec<&str> =
                text.lines().enumerate().map(|(n, line)| if n == hole { "\0\0\0" } else { line }).collect();
            std::fs::write(&path, holed.join("\n") + "\n").unwrap();
            let mut log = open(folder.path(), JOURNAL, 5).unwrap();
            assert_eq!(log.last(), hole as u64);
            log.write(&mut all.iter()).unwrap();
            assert_eq!(numbers(folder.path()), [1, 2, 3, 4, 5]);
        }
    }
}

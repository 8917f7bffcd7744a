//! Writing numbered lines: at the end of the last segment, all or none, and durable when synced. Old segments go.
//!
//! ```text
//! open: the last segment is verified; a torn last line is cut, and lines that the journal does not know
//! a line that was durable and is damaged, or is not there, stops the start
//! ```
//!
//! Never: a line that is cut and cannot be made again.

use crate::files::{create_private_folder, private};

use super::{LineHead, ReadHead, SegmentError, file_name, line, segments};
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// A segment that is as large is not written any more: an hour of 10 statuses a second, verified at a start in 0.1 s.
const SEGMENT_BYTES: u64 = 16 << 20;

/// Nor is one whose first line is a day older than the next, so that what is old can go.
const SEGMENT_MS: u64 = 86_400_000;

/// How far the journal has what is in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LogPosition {
    /// The last number that the journal knows. Lines beyond came from batches that are no more.
    pub known: u64,
    /// Lines up to this number were durable and cannot be made again.
    pub kept: u64,
}

/// How long lines are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentRetention {
    /// In ms, by the engine's time, and for as long as their segment has younger ones.
    pub age_ms: u64,
    /// In bytes over all segments but the last.
    pub bytes: u64,
}

/// What retention came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Retained {
    /// Segments that went.
    pub removed: usize,
    /// The last number of a segment that would have gone, but somebody has not read it.
    pub held_at: Option<u64>,
}

/// A line to be written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NumberedLine {
    /// What it says of itself. Its number follows the last one.
    pub head: LineHead,
    /// A JSON object on one line, without a line break and without a checksum.
    pub json: Vec<u8>,
}

/// The log as its one writer has it.
#[derive(Debug)]
pub struct SegmentLog {
    folder: PathBuf,
    /// Those before the one that is written, oldest first.
    older: VecDeque<Segment>,
    current: Option<Current>,
    last: u64,
    synced: u64,
    ahead: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    first: u64,
    /// When its first line was written.
    pub(super) at_ms: u64,
    bytes: u64,
}

#[derive(Debug)]
struct Current {
    file: File,
    path: PathBuf,
    segment: Segment,
}

impl SegmentLog {
    /// Opens the log in a folder, which is made if it is not there.
    ///
    /// # Errors
    /// What the file system says, or that a line is damaged or missing that cannot be made again.
    pub fn open(folder: &Path, position: LogPosition, head: ReadHead) -> Result<SegmentLog, SegmentError> {
        create_private_folder(folder).map_err(SegmentError::io(folder))?;
        let mut all = segments(folder)?;
        let mut log = SegmentLog {
            folder: folder.to_owned(),
            older: VecDeque::new(),
            current: None,
            last: position.kept,
            synced: position.kept,
            ahead: 0,
        };
        let kept_any = all.first().is_some_and(|first| *first <= position.known);
        // Everything is looked at before anything is changed: a log that is refused stays as it is.
        let (mut unknown, mut newest) = (Vec::new(), None);
        while let Some(first) = all.pop() {
            let path = folder.join(file_name(first));
            let found = Found::scan(&path, first, position, head)?;
            log.ahead += found.ahead;
            // Nothing in it is known: the one before is the last. The first of all is kept for its number.
            if found.lines == 0 && !all.is_empty() {
                unknown.push(path);
                continue;
            }
            log.last = first + found.lines - 1;
            log.synced = log.last;
            newest = Some((path, first, found));
            break;
        }
        if kept_any && log.last < position.kept {
            let path = newest.as_ref().map_or(folder.to_owned(), |(path, ..)| path.clone());
            let line = newest.as_ref().map_or(1, |(_, first, _)| log.last + 2 - first);
            let what = format!("it ends at number {}, and number {} was there", log.last, position.kept);
            return Err(SegmentError::Damaged { path, line, what });
        }
        for first in all {
            log.older.push_back(Segment::read(folder, first, head)?);
        }
        for path in unknown {
            std::fs::remove_file(&path).map_err(SegmentError::io(&path))?;
        }
        if let Some((path, first, found)) = newest {
            log.current = Some(Current::open(path, first, &found)?);
        }
        Ok(log)
    }

    /// Writes lines at the end, all or none.
    ///
    /// # Errors
    /// What the file system says; nothing was written then.
    pub fn append(&mut self, lines: Vec<NumberedLine>) -> Result<(), SegmentError> {
        let (Some(first), Some(last)) = (lines.first().map(|l| l.head), lines.last().map(|l| l.head.number)) else {
            return Ok(());
        };
        let mut out = Vec::new();
        for mut line in lines {
            line::seal(&mut line.json);
            out.append(&mut line.json);
            out.push(b'\n');
        }
        let current = self.current_for(first)?;
        let end = current.segment.bytes;
        if let Err(source) = current.file.write_all(&out) {
            // Half a line must not stay: the next one would be glued to it.
            let _ = current.file.set_len(end).and_then(|()| current.file.seek(SeekFrom::Start(end)));
            return Err(SegmentError::Io { path: current.path.clone(), source });
        }
        current.segment.bytes += out.len() as u64;
        self.last = last;
        Ok(())
    }

    /// Makes what was written durable.
    ///
    /// # Errors
    /// What the file system says.
    pub fn sync(&mut self) -> Result<(), SegmentError> {
        if let Some(current) = self.current.as_ref().filter(|_| self.synced < self.last) {
            current.file.sync_data().map_err(SegmentError::io(&current.path))?;
        }
        self.synced = self.last;
        Ok(())
    }

    /// Takes away segments that are beyond retention. `read`: the last number that everybody has read who has to; `None`: nobody has to.
    ///
    /// # Errors
    /// What the file system says.
    pub fn retain(&mut self, now_ms: u64, keep: SegmentRetention, read: Option<u64>) -> Result<Retained, SegmentError> {
        let mut retained = Retained::default();
        let mut bytes: u64 = self.older.iter().map(|segment| segment.bytes).sum();
        while let Some(oldest) = self.older.front().copied() {
            let Some(next) = self.older.get(1).or(self.current.as_ref().map(|c| &c.segment)) else { break };
            if next.at_ms.saturating_add(keep.age_ms) >= now_ms && bytes <= keep.bytes {
                break;
            }
            let last = next.first - 1;
            if read.is_some_and(|read| read < last) {
                retained.held_at = Some(last);
                break;
            }
            let path = self.folder.join(file_name(oldest.first));
            std::fs::remove_file(&path).map_err(SegmentError::io(&path))?;
            bytes -= oldest.bytes;
            self.older.pop_front();
            retained.removed += 1;
        }
        Ok(retained)
    }

    /// The last number that was written. Of an empty log: the last that cannot be made again.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Whether a line has been written, in this process or before.
    #[must_use]
    pub fn is_begun(&self) -> bool {
        self.current.is_some()
    }

    /// The last number that a crash of the machine keeps.
    #[must_use]
    pub fn synced(&self) -> u64 {
        self.synced
    }

    /// Lines that were cut when it was opened because the journal does not know them.
    #[must_use]
    pub fn ahead(&self) -> u64 {
        self.ahead
    }

    /// Where it is.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The segment that a line goes to: the last one, or a new one where that is full or of another day.
    fn current_for(&mut self, line: LineHead) -> Result<&mut Current, SegmentError> {
        let full = |segment: &Segment| {
            let old = segment.at_ms.saturating_add(SEGMENT_MS) <= line.at_ms;
            segment.bytes >= SEGMENT_BYTES || (old && segment.bytes > 0)
        };
        if self.current.as_ref().is_some_and(|current| full(&current.segment)) {
            // What follows in another file must not be durable before this.
            self.sync()?;
            self.older.extend(self.current.take().map(|current| current.segment));
        }
        let current = match self.current.take() {
            Some(mut current) => {
                if current.segment.bytes == 0 {
                    current.segment.at_ms = line.at_ms;
                }
                current
            }
            None => {
                let path = self.folder.join(file_name(line.number));
                let current = Current::open(path, line.number, &Found { at_ms: line.at_ms, ..Found::default() })?;
                let synced = File::open(&self.folder).and_then(|folder| folder.sync_all());
                synced.map_err(SegmentError::io(&self.folder))?;
                current
            }
        };
        Ok(self.current.insert(current))
    }
}

impl Current {
    /// Opens a segment, or makes it, and cuts what was not found to be sound.
    fn open(path: PathBuf, first: u64, found: &Found) -> Result<Current, SegmentError> {
        let opened = private(OpenOptions::new().write(true).create(true).truncate(false)).open(&path);
        let cut = opened.and_then(|mut file| {
            file.set_len(found.bytes)?;
            // A process that was killed leaves lines that a crash of the machine would still lose.
            file.sync_data()?;
            file.seek(SeekFrom::Start(found.bytes))?;
            Ok(file)
        });
        let file = cut.map_err(SegmentError::io(&path))?;
        Ok(Current { file, path, segment: Segment { first, at_ms: found.at_ms, bytes: found.bytes } })
    }
}

impl Segment {
    /// A segment that is not written any more.
    pub(super) fn read(folder: &Path, first: u64, head: ReadHead) -> Result<Segment, SegmentError> {
        let path = folder.join(file_name(first));
        let mut line = Vec::new();
        let read = File::open(&path).and_then(|file| {
            let bytes = file.metadata()?.len();
            BufReader::new(file).read_until(b'\n', &mut line).map(|_| bytes)
        });
        let bytes = read.map_err(SegmentError::io(&path))?;
        let head = checked(line.strip_suffix(b"\n").unwrap_or(&line), first, head);
        let at_ms = head.map_err(|what| SegmentError::Damaged { path, line: 1, what })?.at_ms;
        Ok(Segment { first, at_ms, bytes })
    }
}

/// What a line says of itself, if it is sound and has its number.
fn checked(line: &[u8], number: u64, head: ReadHead) -> Result<LineHead, String> {
    let json = line::unseal(line)?;
    let found = head(&json).ok_or("it is no line of this log")?;
    if found.number != number {
        return Err(format!("its number is {}, and it should be {number}", found.number));
    }
    Ok(found)
}

/// What is sound in a segment, from its beginning on.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    pub lines: u64,
    bytes: u64,
    at_ms: u64,
    /// Sound lines after those, which the journal does not know.
    pub ahead: u64,
    /// The last of them.
    pub last_ahead: Option<Vec<u8>>,
}

impl Found {
    pub fn scan(path: &Path, first: u64, position: LogPosition, head: ReadHead) -> Result<Found, SegmentError> {
        let file = File::open(path).map_err(SegmentError::io(path))?;
        let mut file = BufReader::with_capacity(1 << 18, file);
        let (mut found, mut line, mut over) = (Found::default(), Vec::new(), false);
        loop {
            line.clear();
            let read = file.read_until(b'\n', &mut line).map_err(SegmentError::io(path))?;
            if line.pop() != Some(b'\n') {
                return Ok(found);
            }
            let number = first + found.lines;
            if number > position.known {
                if let Ok(json) = line::unseal(&line) {
                    found.ahead += 1;
                    found.last_ahead = Some(json);
                }
                continue;
            }
            match checked(&line, number, head) {
                Ok(head) if !over => {
                    if found.lines == 0 {
                        found.at_ms = head.at_ms;
                    }
                    found.lines += 1;
                    found.bytes += read as u64;
                }
                // What was not durable may have reached the disk in any order: from the first hole on it is written again.
                _ if number > position.kept => over = true,
                Ok(_) => {}
                Err(what) => {
                    return Err(SegmentError::Damaged { path: path.to_owned(), line: found.lines + 1, what });
                }
            }
        }
    }
}

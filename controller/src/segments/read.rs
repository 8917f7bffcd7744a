//! Reading numbered lines across segments, while they are written and while old ones are forgotten.
//!
//! A line's number is its segment's first number and its place there: lines before the one that is asked for are not looked into.
//!
//! Never: half a line; a line twice; a gap without an error.

use super::write::Segment;
use super::{ReadHead, SegmentError, file_name, line, segments};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// A reader of the lines after a number.
#[derive(Debug)]
pub struct SegmentReader {
    folder: PathBuf,
    /// The number of the last line that was handed on.
    after: u64,
    open: Option<OpenSegment>,
    /// A line that was read, and is beyond what was asked for.
    ahead: Option<SegmentLine>,
}

#[derive(Debug)]
struct OpenSegment {
    path: PathBuf,
    first: u64,
    file: BufReader<File>,
    /// Where the next line begins, and which line it is.
    at: u64,
    lines: u64,
    buffer: Vec<u8>,
}

/// A line that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentLine {
    /// Its number.
    pub number: u64,
    /// The line without its checksum and its line break.
    pub bytes: Vec<u8>,
}

impl SegmentReader {
    /// Of the lines of a folder with numbers above `after`.
    #[must_use]
    pub fn new(folder: &Path, after: u64) -> SegmentReader {
        SegmentReader { folder: folder.to_owned(), after, open: None, ahead: None }
    }

    /// Of the lines that were written from a time on, in ms since 1970, and of some before it: what is in older segments is not read.
    ///
    /// # Errors
    /// What the file system says.
    pub fn since(folder: &Path, at_ms: u64, head: ReadHead) -> Result<SegmentReader, SegmentError> {
        let all = segments(folder)?;
        // The last of them that begins before it may have lines of that time too. One that cannot be read is told when it is its turn.
        let earlier = |first: &u64| Segment::read(folder, *first, head).is_ok_and(|segment| segment.at_ms < at_ms);
        let begins = all.partition_point(earlier).checked_sub(1).and_then(|at| all.get(at));
        Ok(SegmentReader::new(folder, begins.map_or(0, |first| first.saturating_sub(1))))
    }

    /// The next line with a number up to `upto`. `None`: there is none yet. Not to be mixed with [`SegmentReader::next_line`].
    ///
    /// # Errors
    /// As [`SegmentReader::next_line`].
    pub fn next_up_to(&mut self, upto: u64) -> Result<Option<SegmentLine>, SegmentError> {
        if self.ahead.is_none() && self.after < upto {
            self.ahead = self.next_line()?;
        }
        Ok(self.ahead.take_if(|line| line.number <= upto))
    }

    /// The next line. `None`: there is none yet.
    ///
    /// # Errors
    /// What the file system says, a damaged line, or lines that are not kept any more.
    pub fn next_line(&mut self) -> Result<Option<SegmentLine>, SegmentError> {
        loop {
            if self.open.is_none() && !self.open_at(self.after + 1)? {
                return Ok(None);
            }
            let Some(open) = &mut self.open else { return Ok(None) };
            if open.has_line()? {
                if let Some(found) = open.take(self.after)? {
                    self.after = found.number;
                    return Ok(Some(found));
                }
                continue;
            }
            if !self.next_segment()? {
                return Ok(None);
            }
        }
    }

    /// Opens the segment that has a number, or would have it. False: there is none.
    fn open_at(&mut self, number: u64) -> Result<bool, SegmentError> {
        let all = segments(&self.folder)?;
        let Some(oldest) = all.first().copied() else { return Ok(false) };
        // 1 is asked for by whoever wants all that there is.
        if oldest > number && number > 1 {
            return Err(SegmentError::Forgotten { folder: self.folder.clone(), first: oldest, asked: number });
        }
        let first = all.iter().rev().find(|first| **first <= number).copied().unwrap_or(oldest);
        self.open = OpenSegment::open(&self.folder, first)?;
        Ok(self.open.is_some())
    }

    /// At the end of a segment: whether there is more to read by now.
    fn next_segment(&mut self) -> Result<bool, SegmentError> {
        let Some(open) = &mut self.open else { return Ok(false) };
        let Some(next) = segments(&self.folder)?.into_iter().find(|other| *other > open.first) else {
            return Ok(false);
        };
        // What was written to this one after the last read and before there was another. It is never written again now.
        let length = std::fs::metadata(&open.path).map_or(open.at, |file| file.len());
        if length > open.at {
            return open.go_on_to(length).map(|()| true);
        }
        if next > self.after + 1 && self.after >= open.first {
            let (folder, asked) = (self.folder.clone(), self.after + 1);
            return Err(SegmentError::Forgotten { folder, first: next, asked });
        }
        self.open = OpenSegment::open(&self.folder, next)?;
        Ok(self.open.is_some())
    }
}

impl OpenSegment {
    fn open(folder: &Path, first: u64) -> Result<Option<OpenSegment>, SegmentError> {
        let path = folder.join(file_name(first));
        let file = match File::open(&path) {
            Ok(file) => BufReader::with_capacity(1 << 17, file),
            // It was forgotten just now.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(SegmentError::io(&path)(e)),
        };
        Ok(Some(OpenSegment { path, first, file, at: 0, lines: 0, buffer: Vec::new() }))
    }

    /// Takes the line in `buffer`. `None`: its number is not above `after`.
    fn take(&mut self, after: u64) -> Result<Option<SegmentLine>, SegmentError> {
        let number = self.first + self.lines;
        self.at += self.buffer.len() as u64;
        self.lines += 1;
        if number <= after {
            return Ok(None);
        }
        let whole = self.buffer.strip_suffix(b"\n").unwrap_or(&self.buffer);
        let damaged =
            |what: &str| SegmentError::Damaged { path: self.path.clone(), line: self.lines, what: what.to_owned() };
        let bytes = line::unseal(whole).map_err(damaged)?;
        Ok(Some(SegmentLine { number, bytes }))
    }

    /// Whether a whole line follows; it is in `buffer` then. Half a line is read again the next time.
    fn has_line(&mut self) -> Result<bool, SegmentError> {
        self.buffer.clear();
        let read = self.file.read_until(b'\n', &mut self.buffer).map_err(SegmentError::io(&self.path))?;
        let whole = self.buffer.ends_with(b"\n");
        if !whole {
            let back = i64::try_from(read).unwrap_or_default();
            self.file.seek_relative(-back).map_err(SegmentError::io(&self.path))?;
        }
        Ok(whole)
    }

    /// Before the rest of a segment that is not written any more is read: it ends with a line break.
    fn go_on_to(&mut self, length: u64) -> Result<(), SegmentError> {
        let io = SegmentError::io(&self.path);
        let mut last = [0];
        let mut file = File::open(&self.path).map_err(SegmentError::io(&self.path))?;
        let read = file.seek(SeekFrom::Start(length - 1)).and_then(|_| file.read_exact(&mut last));
        read.map_err(io)?;
        if last == *b"\n" {
            return Ok(());
        }
        let what = "it is cut off, and another segment follows".to_owned();
        Err(SegmentError::Damaged { path: self.path.clone(), line: self.lines + 1, what })
    }
}

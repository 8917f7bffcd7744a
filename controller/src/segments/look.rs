//! Looking at numbered lines before a start goes on with them: what is missing, whether the journal knows of them, and nothing is changed.
//!
//! ```text
//! older segments: the first line, the last one        the newest: every line
//! between two segments: a hole, where the next one does not follow the last line
//! lines that the journal does not know                counted, and the last one kept
//! ```
//!
//! Never: a file that is made, cut or removed, but for segments before a hole, once that was given up.

use super::write::{Found, Segment};
use super::{LogPosition, ReadHead, SegmentError, file_name, line, segments};
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

/// The least that is read of a segment's end to find its last line.
const TAIL: u64 = 64 << 10;

/// What was found in a folder of segments.
#[derive(Clone, Debug, Default)]
pub struct LookedLog {
    /// The newest segment that has something the journal knows, or where it would be.
    pub newest: PathBuf,
    /// The last line that is there and the journal knows.
    pub last: u64,
    /// Whether there is any.
    pub begun: bool,
    /// Sound lines that the journal does not know.
    pub ahead: u64,
    /// The last of them.
    pub last_ahead: Option<Vec<u8>>,
}

/// A hole between two segments: lines that were written and are not there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentHole {
    /// The segment before it.
    pub before: PathBuf,
    /// The last number before it.
    pub last: u64,
    /// The first number behind it.
    pub next: u64,
}

/// Looks at the log in a folder, which need not be there. Holes between its segments are for [`holes`].
///
/// # Errors
/// What the file system says, or a line that is damaged and cannot be made again.
pub fn look_at(folder: &Path, position: LogPosition, head: ReadHead) -> Result<LookedLog, SegmentError> {
    let mut all = segments(folder)?;
    let mut looked = LookedLog { newest: folder.to_owned(), ..LookedLog::default() };
    let mut followed_by = None;
    while let Some(first) = all.pop() {
        let path = folder.join(file_name(first));
        let found = Found::scan(&path, first, position, head)?;
        looked.ahead += found.ahead;
        looked.last_ahead = looked.last_ahead.or(found.last_ahead);
        if found.lines == 0 && !all.is_empty() {
            continue;
        }
        looked.last = first + found.lines - 1;
        // One that is empty keeps its number.
        looked.begun = found.lines > 0 || first > 1;
        looked.newest = path;
        followed_by = Some(first);
        break;
    }
    for first in all.into_iter().rev() {
        let path = folder.join(file_name(first));
        let next = followed_by.replace(first).unwrap_or(first + 1);
        older(folder, &path, first, next, head)?;
    }
    Ok(looked)
}

/// The holes between the segments of a folder, in order, as far as the journal knows numbers. What is missing before the oldest segment is
/// beyond retention for all that anybody can tell.
///
/// # Errors
/// As [`look_at`].
pub fn holes(folder: &Path, known: u64, head: ReadHead) -> Result<Vec<SegmentHole>, SegmentError> {
    let mut all = segments(folder)?;
    // The last one may be torn down to nothing, and is written again then.
    while all.pop_if(|first| *first > known || Segment::read(folder, *first, head).is_err()).is_some() {}
    let mut found = Vec::new();
    for (first, next) in all.iter().zip(all.iter().skip(1)) {
        found.extend(older(folder, &folder.join(file_name(*first)), *first, *next, head)?);
    }
    Ok(found)
}

/// Takes away the segments before the last hole: the log begins behind it, as if they were beyond retention.
///
/// # Errors
/// As [`look_at`], or a segment cannot be removed.
pub fn forget_before_holes(folder: &Path, known: u64, head: ReadHead) -> Result<(), SegmentError> {
    let Some(SegmentHole { next, .. }) = holes(folder, known, head)?.pop() else { return Ok(()) };
    for first in segments(folder)?.into_iter().filter(|first| *first < next) {
        let path = folder.join(file_name(first));
        std::fs::remove_file(&path).map_err(SegmentError::io(&path))?;
    }
    Ok(())
}

/// A segment that is not written any more: it begins with its number and ends before the next one's. `Some`: it ends earlier.
fn older(
    folder: &Path,
    path: &Path,
    first: u64,
    next: u64,
    head: ReadHead,
) -> Result<Option<SegmentHole>, SegmentError> {
    Segment::read(folder, first, head)?;
    let damaged = |line: u64, what: String| SegmentError::Damaged { path: path.to_owned(), line, what };
    let last = last_line(path)?.ok_or_else(|| damaged(1, "it is cut off, and another segment follows".to_owned()))?;
    let lines = next - first;
    let json = line::unseal(&last).map_err(|what| damaged(lines, what.to_owned()))?;
    let number = head(&json).ok_or_else(|| damaged(lines, "it is no line of this log".to_owned()))?.number;
    if number + 1 == next {
        return Ok(None);
    }
    if number < next && first <= number {
        return Ok(Some(SegmentHole { before: path.to_owned(), last: number, next }));
    }
    Err(damaged(lines, format!("its number is {number}, and it should be {}", next - 1)))
}

/// The last line of a file, without its line break. `None`: it does not end with one.
fn last_line(path: &Path) -> Result<Option<Vec<u8>>, SegmentError> {
    let read = || -> std::io::Result<Option<Vec<u8>>> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        let mut tail = TAIL;
        loop {
            let from = length.saturating_sub(tail);
            file.seek(SeekFrom::Start(from))?;
            let mut bytes = Vec::new();
            file.by_ref().take(tail).read_to_end(&mut bytes)?;
            if bytes.pop() != Some(b'\n') {
                return Ok(None);
            }
            match bytes.iter().rposition(|byte| *byte == b'\n') {
                Some(at) => return Ok(Some(bytes.split_off(at + 1))),
                None if from == 0 => return Ok(Some(bytes)),
                None => tail *= 4,
            }
        }
    };
    read().map_err(SegmentError::io(path))
}

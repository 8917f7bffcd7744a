//! A look at SQLite's write-ahead log before SQLite opens it. SQLite ends its recovery at the first frame that is not sound and
//! drops all that follows without a word; that is right for a torn tail and wrong for damage in the middle.
//!
//! ```text
//! header (32 bytes) | frame: header (24: page, size after commit, salts, checksum) + page | frame | ...
//! each checksum goes on from the one before: a sound frame after an unsound one shows that the middle was damaged
//! ```
//!
//! Format: <https://www.sqlite.org/fileformat2.html#the_write_ahead_log>. Never: changes the file.

use crate::error::{DamagedAt, JournalError};
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::path::Path;

const HEADER: usize = 32;
const FRAME: usize = 24;

type Sum = (u32, u32);

/// Refuses a log that is damaged in its middle. A torn tail, an empty or a missing log are SQLite's business.
///
/// # Errors
/// It is damaged there, or cannot be read.
pub fn check(path: &Path) -> Result<(), JournalError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(JournalError::io(path, e)),
    };
    let mut log = BufReader::with_capacity(1 << 18, file);
    let mut header = [0; HEADER];
    if !fill(&mut log, &mut header).map_err(|e| JournalError::io(path, e))? {
        return Ok(());
    }
    let sum = checksum(&header[..24], big_endian(&header), (0, 0));
    let header_sound = sum == (word(&header, 24), word(&header, 28)) && word(&header, 0) & !1 == 0x377f_0682;
    let page = word(&header, 8);
    let page = if header_sound && (512..=65_536).contains(&page) { page as usize } else { 4096 };
    let walk =
        Walk { big_endian: big_endian(&header), header_sound, sum, salts: (word(&header, 16), word(&header, 20)) };
    match walk.damaged_frame(&mut log, page).map_err(|e| JournalError::io(path, e))? {
        None => Ok(()),
        Some(frame) => Err(JournalError::damaged(
            path,
            DamagedAt::Frame(frame),
            "its checksum does not agree, and sound frames follow it",
        )),
    }
}

struct Walk {
    big_endian: bool,
    header_sound: bool,
    sum: Sum,
    salts: (u32, u32),
}

impl Walk {
    /// The first frame that is not sound though a later transaction is; 0 means the header.
    ///
    /// The frames of the last transaction may have reached the disk in any order, so a hole in it is a torn tail. What was
    /// committed before another transaction began was on the disk: a hole there is damage.
    fn damaged_frame(mut self, log: &mut impl Read, page: usize) -> std::io::Result<Option<u64>> {
        let mut frame = vec![0; FRAME + page];
        let (mut number, mut bad) = (0, (!self.header_sound).then_some(0));
        let mut transaction_over = !self.header_sound;
        while fill(log, &mut frame)? {
            number += 1;
            let stored = (word(&frame, 16), word(&frame, 20));
            let mut sum = checksum(&frame[..8], self.big_endian, self.sum);
            sum = checksum(&frame[FRAME..], self.big_endian, sum);
            // Frames of an older generation lie behind those of this one; they say nothing.
            let ours = (word(&frame, 8), word(&frame, 12)) == self.salts || !self.header_sound;
            let sound = sum == stored && ours;
            match bad {
                Some(first) if sound && transaction_over => return Ok(Some(first)),
                None if !sound => bad = Some(number),
                _ => {}
            }
            transaction_over |= bad.is_some() && ours && word(&frame, 4) != 0;
            self.sum = stored;
        }
        Ok(None)
    }
}

fn fill(from: &mut impl Read, into: &mut [u8]) -> std::io::Result<bool> {
    match from.read_exact(into) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(e) => Err(e),
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().fold(0, |n, b| n << 8 | u32::from(*b))
}

fn big_endian(header: &[u8]) -> bool {
    header[3] & 1 == 1
}

/// SQLite's checksum over a whole number of 8-byte pieces.
fn checksum(bytes: &[u8], big_endian: bool, from: Sum) -> Sum {
    let read = |four: &[u8]| if big_endian { word(four, 0) } else { word(four, 0).swap_bytes() };
    bytes.chunks_exact(8).fold(from, |(a, b), eight| {
        let a = a.wrapping_add(read(&eight[..4])).wrapping_add(b);
        (a, b.wrapping_add(read(&eight[4..])).wrapping_add(a))
    })
}

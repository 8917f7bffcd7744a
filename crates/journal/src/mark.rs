//! The mark: how far the journal is, in a file of its own. It is written after each transaction and before anything leaves, so that a
//! journal that is shorter than what it acknowledged is found at the next start, whatever made it shorter.
//!
//! ```text
//! append: rows -> commit, synced -> mark, synced -> effects, statuses and answers leave
//! journal.mark: slot 0 at byte 0, slot 1 at byte 4096; written in turn, so that a torn one leaves the one before
//! slot: magic 16 | uuid 16 | incarnation 4 | state 4 | turn 8 | seq 8 | archived 8 | tick 8 | chain 32 | crc32c 4
//! ```
//!
//! Never: ahead of what is durable; written by a start that is refused.

use crate::End;
use crate::chain::Chain;
use crate::error::JournalError;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// The mark's name in the journal's folder.
pub const MARK_FILE: &str = "journal.mark";

const MAGIC: &[u8; 16] = b"forebay mark 1\n\0";

/// A slot has its own block of the disk, so that a write that is torn leaves the other one alone.
const SLOT: usize = 4096;

const LENGTH: usize = 108;

/// What the journal's files are to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkState {
    /// It is written, or its process was killed: what was committed last is in the write-ahead log.
    Open,
    /// It was closed: the write-ahead log may be gone, with everything moved to the database.
    Closed,
    /// It is a backup, which no controller may go on with: ids that were given out after it would be given out again.
    Backup,
}

/// How far a journal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalMark {
    /// Which journal.
    pub uuid: Uuid,
    /// Its incarnation.
    pub incarnation: u32,
    /// What its files are to each other.
    pub state: MarkState,
    /// The position after the last record that was acknowledged.
    pub seq: u64,
    /// Finished jobs up to there.
    pub archived: u64,
    /// The tick of the last batch.
    pub tick_ms: u64,
    /// The head of the hash chain there.
    pub chain: Chain,
    /// How often it was written.
    turn: u64,
}

/// What was found where the mark should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundMark {
    /// No file.
    Missing,
    /// Neither of its slots is sound.
    Damaged(String),
    /// The newer sound slot.
    Sound(JournalMark),
}

impl JournalMark {
    pub(crate) fn of(uuid: Uuid, incarnation: u32, end: &End, state: MarkState) -> JournalMark {
        let End { seq, tick_ms, archived, chain, .. } = *end;
        JournalMark { uuid, incarnation, state, seq, archived, tick_ms, chain, turn: 0 }
    }

    /// The same of a journal that was closed.
    pub(crate) fn closed(self) -> JournalMark {
        JournalMark { state: MarkState::Closed, ..self }
    }

    fn encode(&self) -> [u8; LENGTH] {
        let state: u32 = match self.state {
            MarkState::Open => 1,
            MarkState::Closed => 2,
            MarkState::Backup => 3,
        };
        let mut bytes = Vec::with_capacity(LENGTH);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(self.uuid.as_bytes());
        bytes.extend_from_slice(&self.incarnation.to_le_bytes());
        bytes.extend_from_slice(&state.to_le_bytes());
        for number in [self.turn, self.seq, self.archived, self.tick_ms] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&self.chain);
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        let mut slot = [0; LENGTH];
        slot.copy_from_slice(&bytes);
        slot
    }

    fn decode(slot: &[u8]) -> Option<JournalMark> {
        let (body, crc) = slot.get(..LENGTH)?.split_last_chunk::<4>()?;
        if body.get(..16)? != MAGIC || crc32c::crc32c(body) != u32::from_le_bytes(*crc) {
            return None;
        }
        let four = |at: usize| body.get(at..at + 4)?.first_chunk().copied().map(u32::from_le_bytes);
        let eight = |at: usize| body.get(at..at + 8)?.first_chunk().copied().map(u64::from_le_bytes);
        let state = match four(36)? {
            1 => MarkState::Open,
            2 => MarkState::Closed,
            3 => MarkState::Backup,
            _ => return None,
        };
        Some(JournalMark {
            uuid: Uuid::from_slice(body.get(16..32)?).ok()?,
            incarnation: four(32)?,
            state,
            turn: eight(40)?,
            seq: eight(48)?,
            archived: eight(56)?,
            tick_ms: eight(64)?,
            chain: body.get(72..104)?.first_chunk().copied()?,
        })
    }
}

/// Reads a folder's mark, and changes nothing.
///
/// # Errors
/// What the file system says.
pub fn read(folder: &Path) -> Result<FoundMark, JournalError> {
    let path = folder.join(MARK_FILE);
    let mut file = match File::open(&path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(FoundMark::Missing),
        Err(e) => return Err(JournalError::io(&path, e)),
    };
    let mut bytes = Vec::with_capacity(2 * SLOT);
    let read = Read::by_ref(&mut file).take(2 * SLOT as u64).read_to_end(&mut bytes);
    read.map_err(|e| JournalError::io(&path, e))?;
    let slots = [bytes.get(..), bytes.get(SLOT..)];
    let newest = slots.into_iter().flatten().filter_map(JournalMark::decode).max_by_key(|mark| mark.turn);
    Ok(newest.map_or_else(
        || FoundMark::Damaged(format!("neither of its two slots is sound ({} bytes)", bytes.len())),
        FoundMark::Sound,
    ))
}

/// Writes a new mark in the place of whatever is there: whole or not at all.
///
/// # Errors
/// What the file system says.
pub fn replace(folder: &Path, mark: JournalMark) -> Result<MarkWriter, JournalError> {
    let (path, draft) = (folder.join(MARK_FILE), folder.join("journal.mark.new"));
    let mut bytes = vec![0; 2 * SLOT];
    let slot = JournalMark { turn: 1, ..mark }.encode();
    bytes[..LENGTH].copy_from_slice(&slot);
    bytes[SLOT..SLOT + LENGTH].copy_from_slice(&slot);
    let written = crate::folder::create_private(&draft).and_then(|mut file| {
        file.write_all(&bytes)?;
        file.sync_all()?;
        std::fs::rename(&draft, &path)?;
        File::open(folder)?.sync_all()
    });
    written.map_err(|e| JournalError::io(&path, e))?;
    let file = OpenOptions::new().write(true).open(&path).map_err(|e| JournalError::io(&path, e))?;
    Ok(MarkWriter { file, path, last: JournalMark { turn: 1, ..mark } })
}

/// The mark as the journal's one writer has it.
#[derive(Debug)]
pub struct MarkWriter {
    file: File,
    path: PathBuf,
    last: JournalMark,
}

impl MarkWriter {
    /// Writes how far the journal is now, and returns when that is durable. The file keeps its length, so that it needs no room.
    ///
    /// # Errors
    /// What the file system says. The mark is then the one before, or this one.
    pub(crate) fn move_to(&mut self, end: &End, state: MarkState) -> Result<(), JournalError> {
        let JournalMark { uuid, incarnation, turn, .. } = self.last;
        let next = JournalMark { turn: turn + 1, ..JournalMark::of(uuid, incarnation, end, state) };
        let at = if next.turn.is_multiple_of(2) { 0 } else { SLOT as u64 };
        let written = self.file.seek(SeekFrom::Start(at)).and_then(|_| {
            self.file.write_all(&next.encode())?;
            self.file.sync_data()
        });
        written.map_err(|e| JournalError::io(&self.path, e))?;
        self.last = next;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain;

    fn mark(seq: u64) -> JournalMark {
        let end =
            End { seq, tick_ms: 2 * seq, archived: 3, chain: chain::first(Uuid::max()), positions: Default::default() };
        JournalMark::of(Uuid::max(), 7, &end, MarkState::Open)
    }

    fn end(seq: u64) -> End {
        End { seq, tick_ms: 2 * seq, archived: 3, chain: chain::first(Uuid::max()), positions: Default::default() }
    }

    #[test]
    fn no_changed_bit_and_no_torn_write_gives_a_mark_that_was_never_written() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = replace(folder.path(), mark(10)).unwrap();
        writer.move_to(&end(20), MarkState::Open).unwrap();
        writer.move_to(&end(30), MarkState::Closed).unwrap();
        let path = folder.path().join(MARK_FILE);
        let whole = std::fs::read(&path).unwrap();
        assert_eq!(whole.len(), 2 * SLOT);
        let FoundMark::Sound(found) = read(folder.path()).unwrap() else { panic!() };
        assert_eq!((found.seq, found.state, found.incarnation), (30, MarkState::Closed, 7));
        for bit in (0..LENGTH * 8).chain(SLOT * 8..(SLOT + LENGTH) * 8) {
            let mut changed = whole.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, &changed).unwrap();
            let FoundMark::Sound(found) = read(folder.path()).unwrap() else { panic!("bit {bit}") };
            assert!([20, 30].contains(&found.seq), "bit {bit}");
        }
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            match read(folder.path()).unwrap() {
                FoundMark::Sound(found) => assert!([20, 30].contains(&found.seq), "{length}"),
                FoundMark::Damaged(_) => assert!(length < LENGTH, "{length}"),
                FoundMark::Missing => panic!("{length}"),
            }
        }
        std::fs::write(&path, vec![0; 2 * SLOT]).unwrap();
        assert!(matches!(read(folder.path()).unwrap(), FoundMark::Damaged(_)));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read(folder.path()).unwrap(), FoundMark::Missing);
    }
}

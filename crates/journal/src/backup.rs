//! `forebay journal backup` and `restore`: the database's part. Both write a new folder, which appears whole or not at all.
//!
//! ```text
//! backup:   mark, then journal.sqlite, beside whoever writes it -> one read transaction -> a copy, verified and applied
//!           -> as long as the mark said? -> mark: a backup
//! restore:  a backup or a copy of a folder, verified -> a copy with the next incarnation and what was done -> mark -> its name
//! ```
//!
//! Never: changes what it copies from, or takes for whole what is shorter than it acknowledged; an id that means two things: what is
//! decided after a restore has the ids of its incarnation.

use crate::acts::{self, ActKind, JournalAct};
use crate::checked::{Comparison, GivenUp, created};
use crate::database::Database;
use crate::error::JournalError;
use crate::folder::{DataFolder, create_private, create_private_folder};
use crate::machine::{self, giving_up};
use crate::mark::{self, FoundMark, JournalMark, MarkState};
use crate::recover::{self, ReadJournal};
use crate::store::{self, JournalMeta};
use crate::{DamagedAt, End, FILE, beside, identity_of, remove_if_there};
use forebay_kernel::ids::Seq;
use forebay_kernel::machine::StateMachine;
use forebay_kernel::state::State;
use forebay_kernel::storage::{JournalEra, JournalId, Positions};
use rusqlite::params;
use std::fs::File;
use std::path::Path;

/// The database that a restore writes, until it gets its name.
pub const RESTORE_FILE: &str = "journal.restore";

/// What lies beside the database that a restore writes, until it gets its names.
pub const RESTORE_BESIDE: &str = "restore.partial";

/// How the names of folders begin to which a restore moves what is left of a journal.
pub const REPLACED: &str = "replaced-";

/// What a backup has.
#[derive(Debug)]
pub struct BackedUp {
    /// The position after its last record.
    pub end: Seq,
    /// The state there.
    pub machine: StateMachine,
    /// How far each source has been read and each sink has come.
    pub positions: Positions,
}

/// What a restore came to.
#[derive(Debug)]
pub struct Restored {
    /// Which journal it is from now on.
    pub id: JournalId,
    /// The position after its last record.
    pub end: Seq,
    /// The state there.
    pub machine: StateMachine,
    /// How far each source has been read and each sink has come.
    pub positions: Positions,
}

/// Makes what lies beside a journal whose state and positions these are.
pub type Beside<'a> = dyn FnMut(&State, &Positions) -> Result<(), String> + 'a;

/// Copies the database of a folder, which may be in use, to another one, which has none, and reads the whole copy.
///
/// # Errors
/// There is no journal, it is damaged, of another format or shorter than what it acknowledged, or the copy cannot be written.
pub fn back_up(folder: &Path, to: &Path) -> Result<BackedUp, JournalError> {
    let path = folder.join(FILE);
    if !path.exists() {
        return Err(JournalError::Missing { path });
    }
    create_private_folder(to).map_err(|e| JournalError::io(to, e))?;
    let source = Database::open_to_read(&path)?;
    store::meta(&source)?;
    // Before the copy: whoever writes the journal goes on, and the copy has at least what the mark says now.
    let acknowledged = mark::read(folder)?;
    copy(&source, &to.join(FILE))?;
    let read = read_whole(to)?;
    let WholeJournal { meta, acts, end, .. } = &read;
    let findings = Comparison { folder, db: &source, meta, acts, end }.shorter_copy(&acknowledged)?;
    if !findings.is_empty() {
        return Err(JournalError::Shorter { folder: folder.to_owned(), findings });
    }
    drop(source);
    let mark = JournalMark::of(read.meta.uuid, read.meta.incarnation, &read.end, MarkState::Backup);
    mark::replace(to, mark)?;
    Ok(BackedUp { end: Seq(read.end.seq), machine: read.machine, positions: read.end.positions })
}

/// Makes a journal from a backup, or from a copy of the folder of a controller that had stopped. `now_ms`: by the clock of the machine.
/// `beside_it` makes what lies beside the database, before that has its name.
///
/// # Errors
/// The backup is damaged, in use, or shorter than its mark, or the folder has a journal or cannot be written.
pub fn restore(
    backup: &Path,
    folder: &Path,
    now_ms: u64,
    beside_it: &mut Beside<'_>,
) -> Result<Restored, JournalError> {
    let _source = DataFolder::take_to_read(backup)?;
    let read = read_whole(backup)?;
    create_private_folder(folder).map_err(|e| JournalError::io(folder, e))?;
    let folder = DataFolder::take(folder)?;
    let path = folder.database();
    if path.exists() {
        return Err(JournalError::Exists { path });
    }
    let draft = folder.path().join(RESTORE_FILE);
    copy(&recover::look_into(backup)?, &draft)?;
    let text = format!("from {}, which ends at position #{}", backup.display(), read.end.seq);
    let identity = identity_of(&read.meta, &read.acts);
    let given_up = GivenUp { kind: ActKind::Restored, at_ms: now_ms, text, ..GivenUp::none() };
    let given_up = giving_up(&read.machine, &identity, given_up);
    // What this journal gave out here since the backup has the incarnation of the mark that is replaced.
    let known = match mark::read(folder.path())? {
        FoundMark::Sound(mark) if mark.uuid == read.meta.uuid => read.meta.incarnation.max(mark.incarnation),
        _ => read.meta.incarnation,
    };
    let incarnation = acts::next_incarnation(known, now_ms);
    let meta = JournalMeta { incarnation, ..read.meta };
    let GivenUp { kind, at_ms, text, next_purchase, runs, .. } = given_up;
    let era = JournalEra { incarnation, begins: Seq(read.end.seq), next_purchase, runs };
    let db = Database::open(&draft)?;
    let first = read.acts.is_empty().then(|| created(&read.meta));
    for act in first.into_iter().chain([JournalAct { kind, at_ms, text, era }]) {
        let act = act.prepare(&db)?;
        db.write(|all| act(all).and_then(|()| store::write_meta(all, meta)))?;
    }
    db.close()?;
    sync(&draft)?;
    beside_it(&read.machine, &read.end.positions)
        .map_err(|what| JournalError::damaged(folder.path(), DamagedAt::File, what))?;
    // A log that is left from another journal would be taken for this one's.
    for left_over in [beside(&path, "-wal"), beside(&path, "-shm")] {
        remove_if_there(&left_over)?;
    }
    mark::replace(folder.path(), JournalMark::of(meta.uuid, incarnation, &read.end, MarkState::Closed))?;
    std::fs::rename(&draft, &path).map_err(|e| JournalError::io(&path, e))?;
    folder.sync()?;
    let End { seq, positions, .. } = read.end;
    Ok(Restored { id: meta.id(), end: Seq(seq), machine: read.machine, positions })
}

/// A journal that was read whole.
struct WholeJournal {
    meta: JournalMeta,
    acts: Vec<JournalAct>,
    end: End,
    machine: StateMachine,
}

/// Reads and verifies everything in a folder, and compares it with its mark, if it has one.
fn read_whole(folder: &Path) -> Result<WholeJournal, JournalError> {
    crate::verify::verify_rows(folder)?;
    let db = recover::look_into(folder)?;
    let meta = store::meta(&db)?;
    let acts = acts::load(&db)?;
    let mut machine = StateMachine::default();
    let ReadJournal { end, .. } = recover::read(&db, &meta, &mut |part| machine::apply(&mut machine, part))?;
    let compared = Comparison { folder, db: &db, meta: &meta, acts: &acts, end: &end };
    let shortfalls = match mark::read(folder)? {
        FoundMark::Sound(mark) => compared.behind(&mark)?.into_iter().collect(),
        // A copy of the database alone is the best that somebody has.
        FoundMark::Missing => Vec::new(),
        damaged @ FoundMark::Damaged(_) => compared.with(&damaged)?,
    };
    JournalError::lost(folder, shortfalls).map_or(Ok(WholeJournal { meta, acts, end, machine }), Err)
}

/// Copies a database as it is now into one file without a log.
fn copy(from: &Database, to: &Path) -> Result<(), JournalError> {
    for left_over in [to, &beside(to, "-wal"), &beside(to, "-shm")] {
        remove_if_there(left_over)?;
    }
    create_private(to).map_err(|e| JournalError::io(to, e))?;
    from.execute("PRAGMA query_only = OFF")?;
    let copied = from.connection.execute("VACUUM INTO ?1", params![to.display().to_string()]);
    copied.map_err(|e| JournalError::sqlite(to, e))?;
    sync(to)
}

fn sync(path: &Path) -> Result<(), JournalError> {
    File::open(path).and_then(|file| file.sync_all()).map_err(|e| JournalError::io(path, e))
}

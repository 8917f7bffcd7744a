//! `forebay journal backup` and `forebay journal restore`: the database (see `forebay_journal`), and all that lies beside it.
//!
//! ```text
//! backup:   database -> its state -> statuses and rejected events up to what it knows, key, world -> the folder gets its name
//! restore:  database read whole, what lies beside it copied to a draft -> what is left here is set aside -> the draft's files, the database
//!           last, get their names; it is another incarnation
//! ```
//!
//! Never: changes what it copies from, leaves half a folder under the name that was asked for, or moves anything for a backup that cannot
//! be read.

use super::outcome::{Exit, Failure, print};
use crate::driver::LogPositions;
use crate::files::{create_private_folder, private};
use crate::intake::rejected;
use crate::journal::{
    BackedUp, DataFolder, FILE, JournalError, MARK_FILE, Positions, REPLACED, RESTORE_BESIDE, Restored, back_up,
    restore,
};
use crate::pasted::shell_path;
use crate::segments::{LogPosition, NumberedLine, ReadHead, SegmentError, SegmentLog, SegmentReader};
use crate::status;
use forebay_kernel::state::State;
use std::fs::{File, OpenOptions};
use std::path::Path;

/// Lines that are written together.
const AT_ONCE: usize = 1_000;

/// Small files that are copied whole, where they are there.
const SMALL: [&str; 2] = [crate::key::FILE, "world.json"];

pub(super) fn backup_one(folder: &Path, to: &Path) -> Result<Exit, Failure> {
    if to.exists() {
        return Err(Failure::input(format_args!("{}: is there already; give a folder that can be made", to.display())));
    }
    let mut name = to.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    let draft = to.with_file_name(name);
    if draft.exists() {
        std::fs::remove_dir_all(&draft).map_err(|e| Failure::outside(format_args!("{}: {e}", draft.display())))?;
    }
    let BackedUp { end, machine, positions } =
        back_up(folder, &draft).map_err(|e| no_journal(e, "name the folder that a Forebay writes to"))?;
    copy_beside(folder, &draft, &machine, &positions).map_err(Failure::outside)?;
    let named = std::fs::rename(&draft, to).and_then(|()| sync_parent(to));
    named.map_err(|e| Failure::outside(format_args!("{}: {e}", to.display())))?;
    print(&format!("{}: backed up to position {end}, verified\n", to.display()))?;
    Ok(Exit::Done)
}

pub(super) fn restore_one(backup: &Path, folder: &Path) -> Result<Exit, Failure> {
    if folder.join(FILE).exists() {
        return Err(failure(JournalError::Exists { path: folder.join(FILE) }));
    }
    if let Some(holder) = DataFolder::holder(folder) {
        return Err(failure(JournalError::InUse { folder: folder.to_owned(), holder }));
    }
    let mut beside = |state: &State, positions: &Positions| {
        let draft = folder.join(RESTORE_BESIDE);
        begin_draft(&draft).map_err(|e| format!("{}: {e}", draft.display()))?;
        copy_beside(backup, &draft, state, positions)?;
        put_in_place(&draft, folder).map_err(|e| format!("{}: {e}", folder.display()))
    };
    let Restored { id, end, .. } = restore(backup, folder, crate::clock::now_ms(), &mut beside)
        .map_err(|e| no_journal(e, "name the folder that `forebay journal backup` wrote; nothing was changed"))?;
    print(&format!(
        "{}: restored to position {end} as {id}\n`forebay run --data {}` goes on from it\nwhat was bought or started after the backup is left alone: look at `forebay nodes`, the log, \
         and what carries another incarnation of this journal\n",
        folder.display(),
        shell_path(folder)
    ))?;
    Ok(Exit::Done)
}

/// An empty folder, in the place of what an interrupted restore left.
fn begin_draft(draft: &Path) -> std::io::Result<()> {
    if draft.exists() {
        std::fs::remove_dir_all(draft)?;
    }
    create_private_folder(draft)
}

/// What is left of a journal makes room for what was copied.
fn put_in_place(draft: &Path, folder: &Path) -> std::io::Result<()> {
    set_aside(folder)?;
    for entry in std::fs::read_dir(draft)? {
        let entry = entry?;
        std::fs::rename(entry.path(), folder.join(entry.file_name()))?;
    }
    std::fs::remove_dir(draft)
}

/// What is left of a journal in a folder goes to a folder in it.
fn set_aside(folder: &Path) -> std::io::Result<()> {
    let left = [MARK_FILE, "journal.sqlite-wal", "journal.sqlite-shm", status::FOLDER, rejected::FOLDER];
    let left: Vec<_> = left.into_iter().chain(SMALL).filter(|name| folder.join(name).exists()).collect();
    if left.is_empty() {
        return Ok(());
    }
    let unused = |n: &u32| !folder.join(format!("{REPLACED}{n}")).exists();
    let to = folder.join(format!("{REPLACED}{}", (1..).find(unused).unwrap_or_default()));
    create_private_folder(&to)?;
    left.into_iter().try_for_each(|name| std::fs::rename(folder.join(name), to.join(name)))
}

/// Copies what lies beside a database whose state and positions these are.
fn copy_beside(from: &Path, to: &Path, state: &State, positions: &Positions) -> Result<(), String> {
    let LogPositions { statuses, rejected: counted } = LogPositions::of(state, positions);
    for (log, upto, head) in [
        (status::FOLDER, statuses.known, status::line_head as ReadHead),
        (rejected::FOLDER, counted, rejected::line_head),
    ] {
        copy_lines(&from.join(log), &to.join(log), upto, head).map_err(|e| e.to_string())?;
    }
    for name in SMALL {
        let (from, to) = (from.join(name), to.join(name));
        if from.exists() {
            copy_file(&from, &to).map_err(|e| format!("{}: {e}", from.display()))?;
        }
    }
    Ok(())
}

/// Copies the lines of a log up to a number, each verified. Where there are none, there is no folder.
fn copy_lines(from: &Path, to: &Path, upto: u64, head: ReadHead) -> Result<(), SegmentError> {
    let mut reader = SegmentReader::new(from, 0);
    let mut next = || -> Result<Option<NumberedLine>, SegmentError> {
        let line = reader.next_line()?.filter(|line| line.number <= upto);
        Ok(line.and_then(|line| Some(NumberedLine { head: head(&line.bytes)?, json: line.bytes })))
    };
    let Some(first) = next()? else { return Ok(()) };
    let mut log = SegmentLog::open(to, LogPosition::default(), head)?;
    let mut lines = vec![first];
    while let Some(line) = next()? {
        lines.push(line);
        if lines.len() >= AT_ONCE {
            log.append(std::mem::take(&mut lines))?;
        }
    }
    log.append(lines)?;
    log.sync()
}

fn copy_file(from: &Path, to: &Path) -> std::io::Result<()> {
    let mut written = private(OpenOptions::new().write(true).create(true).truncate(true)).open(to)?;
    std::io::copy(&mut File::open(from)?, &mut written)?;
    written.sync_all()
}

fn sync_parent(path: &Path) -> std::io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent)?.sync_all()
}

/// Why a journal is not copied. That there is none has another remedy here than at a start.
fn no_journal(error: JournalError, remedy: &str) -> Failure {
    match error {
        JournalError::Missing { path } => {
            Failure::input(format_args!("{}: there is no journal here: {remedy}", path.display()))
        }
        other => failure(other),
    }
}

pub(super) fn failure(error: JournalError) -> Failure {
    Failure::storage(&error)
}

//! Going on with a journal that is there: everything is looked at before anything is changed.
//!
//! ```text
//! journal read and applied -> statuses, rejected events, cursors, clock compared with it -> nothing is missing: opened
//!                                                       something is missing: refused, or given up by its owner:
//!                                                       what shows it is copied -> it is written down -> logs begin behind holes
//! ```
//!
//! Never: a file that is changed by a start that is refused, or a loss without its owner's word.

use super::witness::{self, Witness};
use super::{DriverError, REJECTED};
use crate::clock::{self, OutsideClock};
use crate::files::create_private_folder;
use crate::intake::rejected;
use crate::journal::{
    ActKind, CheckedMachine, FILE, JournalError, MARK_FILE, REPLACED, RESTORE_BESIDE, RESTORE_FILE, RecoveredJournal,
    Shortfall, check,
};
use crate::segments::{LogPosition, ReadHead, SegmentHole, file_name, forget_before_holes, holes};
use crate::status;
use forebay_kernel::state::State;
use forebay_kernel::storage::Positions;
use std::fs::File;
use std::path::{Path, PathBuf};

/// The logs beside a journal.
const LOGS: [(&str, ReadHead); 2] =
    [(status::FOLDER, status::line_head as ReadHead), (rejected::FOLDER, rejected::line_head as ReadHead)];

/// What the owner of a journal allows a start, once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Consent {
    /// To go on without so much of what was acknowledged.
    pub loss: Option<u64>,
    /// To take the time of this machine although nothing confirms it.
    pub time: TimeConsent,
}

/// Whether a start may take a time that nothing confirms.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TimeConsent {
    /// No.
    #[default]
    Ask,
    /// Yes, this time.
    Given,
}

/// The clock that a journal is to go on with.
#[derive(Clone, Debug, Default)]
pub struct StartClock {
    /// The time of this machine, in ms since 1970. `None`: time is not that of a clock, as in a replay.
    pub now_ms: Option<u64>,
    /// Whom to ask where it is far from the journal's.
    pub outside: Vec<OutsideClock>,
}

/// What a start asks of what is outside.
#[derive(Clone, Debug, Default)]
pub struct AskedOutside {
    /// The clock, and whom to ask about it.
    pub clock: StartClock,
    /// Whom to ask how far the journal had gone.
    pub witnesses: Vec<Witness>,
}

/// Where the logs beside a journal should be, by its state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogPositions {
    /// Statuses.
    pub statuses: LogPosition,
    /// Rejected events.
    pub rejected: u64,
}

impl LogPositions {
    /// The last number of a log that the journal knows.
    fn known(&self, log: &str) -> u64 {
        if log == status::FOLDER { self.statuses.known } else { self.rejected }
    }

    /// The number that is written to a log next.
    fn next(&self, log: &str) -> u64 {
        1 + if log == status::FOLDER { self.statuses.kept } else { self.rejected }
    }

    pub(crate) fn of(machine: &State, positions: &Positions) -> LogPositions {
        let known = machine.counters().statuses;
        let kept = machine.undelivered().next().map_or(known, |first| first.number - 1);
        let statuses = LogPosition { known, kept };
        LogPositions { statuses, rejected: positions.get(REJECTED).copied().unwrap_or(0) }
    }
}

/// Opens a journal that is there.
///
/// # Errors
/// It is damaged, something that was acknowledged is missing, or the time is one that nothing confirms. Nothing was changed then.
pub(super) fn resume(folder: &Path, consent: Consent, outside: &AskedOutside) -> Result<RecoveredJournal, DriverError> {
    let mut checked = check(folder)?;
    let mut findings = shortfalls(folder, &checked)?;
    findings.extend(seen_outside(folder, &checked, &outside.witnesses));
    let time = &outside.clock;
    let (last, now) = (checked.journal.last_tick_ms(), time.now_ms);
    let accepted = now
        .map(|now| clock::judge(last, now, || time.outside.iter().filter_map(clock::ask).collect(), consent.time))
        .transpose()?
        .flatten();
    let at_ms = forebay_driver::live::wall_ms().0;
    if let Some(text) = accepted {
        checked.journal.note(ActKind::TimeAccepted, at_ms, text);
    }
    let lost = JournalError::lost(folder, findings.clone());
    let (journal, recovery) = match (&lost, consent.loss) {
        (None, None) => checked.journal.open()?,
        (None, Some(_)) => return Err(DriverError::NothingLost { folder: folder.to_owned() }),
        (Some(JournalError::Lost { missing, .. }), Some(given)) if *missing == given => {
            let text = findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            let given_up = checked.giving_up(ActKind::LossAccepted, at_ms, text);
            let positions = LogPositions::of(&checked.machine, checked.journal.positions());
            // First: once the loss is written down, no start looks for what showed it.
            keep_evidence(folder, checked.journal.next_incarnation(&given_up)?, &findings)?;
            let opened = checked.journal.go_on(given_up)?;
            begin_behind_holes(folder, &positions, &findings)?;
            opened
        }
        (Some(_), _) => return lost.map_or(Err(DriverError::NoPolicy), |lost| Err(lost.into())),
    };
    Ok(RecoveredJournal { journal, machine: checked.machine, recovery })
}

/// What shows that the journal is shorter than what it acknowledged: its mark, statuses, rejected events, and the cursors of sinks.
fn shortfalls(folder: &Path, checked: &CheckedMachine) -> Result<Vec<Shortfall>, DriverError> {
    let CheckedMachine { journal, machine } = checked;
    let positions = LogPositions::of(machine, journal.positions());
    let mut found = journal.shortfalls().to_vec();
    found.extend(status::shortfalls(folder, journal.identity().id, positions.statuses)?);
    found.extend(rejected::shortfalls(folder, positions.rejected)?);
    for (log, head) in LOGS {
        found.extend(holes(&folder.join(log), positions.known(log), head)?.into_iter().map(between_segments));
    }
    // A start of this release makes it before anything can run.
    let has_key = crate::key::is_there(folder)?;
    if !has_key && journal.is_marked() && machine.alive_jobs().next().is_some() {
        let what = "is not there: runs that were started before cannot report any more".to_owned();
        found.push(Shortfall { file: folder.join(crate::key::FILE), what, missing: 0 });
    }
    let known = positions.statuses.known;
    let ahead = journal.positions().iter().filter(|(name, at)| name.starts_with("out:status") && **at > known);
    found.extend(ahead.map(|(name, at)| Shortfall {
        file: folder.join(FILE),
        what: format!("sink {name} was sent statuses up to number {at}, and the journal knows {known}"),
        missing: at - known,
    }));
    Ok(found)
}

/// What is missing as others show it.
fn seen_outside(folder: &Path, checked: &CheckedMachine, witnesses: &[Witness]) -> Vec<Shortfall> {
    let (next, journal) = (checked.machine.counters().next_purchase, checked.journal.identity().id);
    witnesses.iter().filter_map(|witness| witness::shortfall(witness, folder, journal, next)).collect()
}

/// Lines that are missing between two segments.
fn between_segments(SegmentHole { before, last, next }: SegmentHole) -> Shortfall {
    let what = format!("the segment after it begins at number {next}, and it ends at number {last}");
    Shortfall { file: before, what, missing: next - last - 1 }
}

/// Copies the segments that show a loss: they are the only trace of what is given up. A start that is interrupted copies them again.
fn keep_evidence(folder: &Path, incarnation: u32, findings: &[Shortfall]) -> Result<(), DriverError> {
    let kept = folder.join(format!("given-up-{incarnation}"));
    let fail = |source| JournalError::Io { path: kept.clone(), source };
    for (log, _) in LOGS {
        let from = folder.join(log);
        let touched = findings.iter().any(|one| one.file.starts_with(&from));
        if !touched || !from.exists() {
            continue;
        }
        let to: PathBuf = kept.join(log);
        create_private_folder(&to).map_err(fail)?;
        for entry in std::fs::read_dir(&from).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let copy = to.join(entry.file_name());
            std::fs::copy(entry.path(), &copy).map_err(fail)?;
            File::open(&copy).and_then(|file| file.sync_all()).map_err(fail)?;
        }
    }
    Ok(())
}

/// A log that has a hole begins again behind it. What was before the hole has been copied.
fn begin_behind_holes(folder: &Path, positions: &LogPositions, findings: &[Shortfall]) -> Result<(), DriverError> {
    for (log, head) in LOGS {
        let from = folder.join(log);
        let ends_early = |one: &Shortfall| one.what.starts_with("ends at") || one.what.starts_with("has nothing");
        if findings.iter().any(|one| one.file.starts_with(&from) && ends_early(one)) && from.exists() {
            let fail = |source| JournalError::Io { path: from.clone(), source };
            std::fs::remove_dir_all(&from).map_err(fail)?;
            // Its number says where the log begins now, until something is written there.
            create_private_folder(&from).map_err(fail)?;
            let first = from.join(file_name(positions.next(log)));
            File::create(first).and_then(|file| file.sync_all()).map_err(fail)?;
        }
        forget_before_holes(&from, positions.known(log), head)?;
    }
    Ok(())
}

/// Refuses to begin a new journal over what is left of one.
///
/// # Errors
/// What is there is named.
pub fn refuse_what_is_left(folder: &Path) -> Result<(), DriverError> {
    let any = |left: &Path| std::fs::read_dir(left).map_or(left.exists(), |mut entries| entries.next().is_some());
    let names = [MARK_FILE, "journal.sqlite-wal", status::FOLDER, rejected::FOLDER, RESTORE_FILE, RESTORE_BESIDE];
    let left = names.into_iter().find(|name| any(&folder.join(name))).map(PathBuf::from);
    match left.or_else(|| set_aside(folder)) {
        Some(left) => Err(JournalError::LeftOver { folder: folder.to_owned(), left }.into()),
        None => Ok(()),
    }
}

/// What a restore that did not come to its end has set aside.
fn set_aside(folder: &Path) -> Option<PathBuf> {
    let mut names = std::fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.file_name()));
    names.find(|name| name.to_str().is_some_and(|name| name.starts_with(REPLACED))).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{Journal, SqliteJournal};
    use crate::segments::{LineHead, NumberedLine, SegmentLog};

    #[test]
    fn what_shows_a_loss_is_kept_before_the_loss_is_written_down() {
        let folder = tempfile::tempdir().unwrap();
        let journal = SqliteJournal::create(folder.path(), 0).unwrap();
        let id = Journal::identity(&journal).id;
        drop(journal);
        // A status that was given out, and that the journal does not know.
        let position = LogPosition { known: 1, kept: 0 };
        let mut log = SegmentLog::open(&folder.path().join(status::FOLDER), position, status::line_head).unwrap();
        let json = format!("{{\"id\":\"{id}-1\",\"data\":{{\"number\":1}}}}").into_bytes();
        log.append(vec![NumberedLine { head: LineHead { number: 1, at_ms: 0 }, json }]).unwrap();
        drop(log);
        // The start ends after the loss was written down: the mark cannot be written.
        let in_the_way = folder.path().join("journal.mark.new");
        std::fs::create_dir(&in_the_way).unwrap();
        let consent = Consent { loss: Some(1), ..Consent::default() };
        assert!(resume(folder.path(), consent, &AskedOutside::default()).is_err());
        std::fs::remove_dir(&in_the_way).unwrap();
        let resumed = resume(folder.path(), Consent::default(), &AskedOutside::default()).unwrap();
        let kept = folder.path().join(format!("given-up-{}", resumed.journal.meta().incarnation)).join(status::FOLDER);
        assert_eq!(crate::segments::read_all(&kept).unwrap().len(), 1);
    }

    #[test]
    fn no_journal_is_begun_beside_what_a_restore_left() {
        for left in [RESTORE_FILE, "restore.partial/status", "replaced-3/status"] {
            let folder = tempfile::tempdir().unwrap();
            refuse_what_is_left(folder.path()).unwrap();
            std::fs::create_dir_all(folder.path().join(left).parent().unwrap()).unwrap();
            std::fs::write(folder.path().join(left), "x").unwrap();
            let said = refuse_what_is_left(folder.path()).unwrap_err().to_string();
            assert!(said.contains("forebay journal restore"), "{left}: {said}");
        }
    }
}

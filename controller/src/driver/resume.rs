//! Going on with a journal that is there: everything is looked at before anything is changed.
//!
//! ```text
//! journal read and applied -> statuses, rejected events, cursors, clock compared with it -> nothing is missing: opened
//!                                                       something is missing: refused, or given up by its owner and written down
//! ```
//!
//! Never: a file that is changed by a start that is refused, or a loss without its owner's word.

use super::{DriverError, REJECTED};
use crate::clock::{self, OutsideClock};
use crate::files::create_private_folder;
use crate::intake::rejected;
use crate::journal::{ActKind, CheckedMachine, FILE, JournalError, MARK_FILE, RecoveredJournal, Shortfall, check};
use crate::segments::LogPosition;
use crate::status;
use forebay_kernel::state::State;
use forebay_kernel::storage::Positions;
use std::path::{Path, PathBuf};

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

/// Where the logs beside a journal should be, by its state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogPositions {
    /// Statuses.
    pub statuses: LogPosition,
    /// Rejected events.
    pub rejected: u64,
}

impl LogPositions {
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
pub(super) fn resume(folder: &Path, consent: Consent, time: &StartClock) -> Result<RecoveredJournal, DriverError> {
    let checked = check(folder)?;
    let findings = shortfalls(folder, &checked)?;
    let (last, now) = (checked.journal.last_tick_ms(), time.now_ms);
    let accepted = now
        .map(|now| clock::judge(last, now, || time.outside.iter().filter_map(clock::ask).collect(), consent.time))
        .transpose()?
        .flatten();
    let at_ms = forebay_driver::live::wall_ms().0;
    let lost = JournalError::lost(folder, findings.clone());
    let (journal, recovery) = match (&lost, consent.loss) {
        (None, None) => match accepted {
            Some(text) => checked.journal.open_noting(ActKind::TimeAccepted, at_ms, text)?,
            None => checked.journal.open()?,
        },
        (None, Some(_)) => return Err(DriverError::NothingLost { folder: folder.to_owned() }),
        (Some(JournalError::Lost { missing, .. }), Some(given)) if *missing == given => {
            let text = findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            let given_up = checked.giving_up(ActKind::LossAccepted, at_ms, text);
            let (journal, recovery) = checked.journal.go_on(given_up)?;
            let at = journal.meta().incarnation;
            keep_evidence(folder, at, &findings)?;
            (journal, recovery)
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

/// Keeps the segments that showed a loss: they are the only trace of what was given up. A log that has a hole begins again behind it.
fn keep_evidence(folder: &Path, incarnation: u32, findings: &[Shortfall]) -> Result<(), DriverError> {
    let kept = folder.join(format!("given-up-{incarnation}"));
    let fail = |source| JournalError::Io { path: kept.clone(), source };
    for log in [status::FOLDER, rejected::FOLDER] {
        let from = folder.join(log);
        let touched = findings.iter().any(|one| one.file.starts_with(&from));
        if !touched || !from.exists() {
            continue;
        }
        let to: PathBuf = kept.join(log);
        create_private_folder(&to).map_err(fail)?;
        for entry in std::fs::read_dir(&from).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            std::fs::copy(entry.path(), to.join(entry.file_name())).map_err(fail)?;
        }
        let ends_early = findings.iter().any(|one| one.file.starts_with(&from) && one.what.starts_with("ends at"));
        if ends_early {
            std::fs::remove_dir_all(&from).map_err(fail)?;
        }
    }
    Ok(())
}

/// Refuses to begin a new journal over what is left of one.
///
/// # Errors
/// What is there is named.
pub fn refuse_what_is_left(folder: &Path) -> Result<(), DriverError> {
    let any = |left: &Path| std::fs::read_dir(left).map_or(left.exists(), |mut entries| entries.next().is_some());
    let names = [MARK_FILE, "journal.sqlite-wal", status::FOLDER, rejected::FOLDER];
    match names.into_iter().find(|name| any(&folder.join(name))) {
        Some(left) => Err(JournalError::LeftOver { folder: folder.to_owned(), left: left.into() }.into()),
        None => Ok(()),
    }
}

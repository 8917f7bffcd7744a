//! A journal that was read whole and not touched yet: what it says, whether it is as long as what it acknowledged, and then its opening.
//!
//! ```text
//! check: lock -> log, file, rows, chain, archive, ids, requests: read only -> compared with the mark -> CheckedJournal
//! open:  nothing is missing -> a torn tail is cut -> mark -> SqliteJournal
//! go_on: something is missing and its owner gives it up -> a new incarnation, with what was given up, in one transaction -> as open
//! ```
//!
//! Never: a byte that is changed before everything is known, or a loss that is not said.

use crate::acts::{self, ActKind, JournalAct};
use crate::archive::QueueNumbers;
use crate::database::{Database, signed};
use crate::error::{JournalError, Shortfall};
use crate::folder::DataFolder;
use crate::identity::{ArchiveEnd, IdentityIndex};
use crate::mark::{self, FoundMark, JournalMark, MARK_FILE, MarkState};
use crate::recover::{self, ReadJournal, Recovery, Take};
use crate::snapshot;
use crate::store::{self, JournalMeta};
use crate::{End, Incarnations, MOST_SEEN, Opened, SqliteJournal, beside, cloud, spend};
use forebay_kernel::ids::Seq;
use forebay_kernel::storage::{JournalEra, JournalIdentity, KeptRun, Positions};
use std::path::{Path, PathBuf};

/// A journal that can be opened, and has not been changed.
#[derive(Debug)]
pub struct CheckedJournal {
    meta: JournalMeta,
    acts: Vec<JournalAct>,
    read: ReadJournal,
    identities: IdentityIndex,
    shortfalls: Vec<Shortfall>,
    marked: bool,
    /// What is written down when it is opened, besides what is given up.
    noted: Vec<JournalAct>,
    folder: DataFolder,
}

/// What a start does by hand before it goes on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GivenUp {
    /// What.
    pub kind: ActKind,
    /// When, by the clock of the machine, in ms since 1970.
    pub at_ms: u64,
    /// For people.
    pub text: String,
    /// The number of the next purchase.
    pub next_purchase: u64,
    /// The runs that are alive, with the incarnations that started them.
    pub runs: Vec<KeptRun>,
    /// The greatest incarnation that was seen anywhere.
    pub seen_incarnation: u32,
}

impl GivenUp {
    pub(crate) fn none() -> GivenUp {
        let (kind, text, runs) = (ActKind::LossAccepted, String::new(), Vec::new());
        GivenUp { kind, at_ms: 0, text, next_purchase: 0, runs, seen_incarnation: 0 }
    }
}

/// Reads a journal from its newest sound snapshot on, hands it to `take`, and compares it with its mark.
///
/// # Errors
/// There is no journal, it is in use, of another version, damaged, or a backup, or `take` could not apply a batch.
pub(crate) fn check(folder: &Path, take: &mut Take<'_>) -> Result<CheckedJournal, JournalError> {
    refuse_what_is_left(folder)?;
    let folder = DataFolder::take(folder)?;
    let db = recover::look_into(folder.path())?;
    let meta = store::writable_meta(&db)?;
    let read = recover::read(&db, &meta, take)?;
    let archive_end = if read.recovery.cut.is_some() { ArchiveEnd::Cut } else { ArchiveEnd::At };
    let identities = IdentityIndex::load(&db, archive_end(read.end.archived))?;
    // What a start reads later, so that nothing is found damaged when something has been changed.
    store::seen(&db, MOST_SEEN)?;
    store::requests(&db)?;
    recover::last_policy(&db)?;
    QueueNumbers::load(&db)?;
    let acts = acts::load(&db)?;
    let compared = Comparison { folder: folder.path(), db: &db, meta: &meta, acts: &acts, end: &read.end };
    let found = mark::read(folder.path())?;
    let (shortfalls, marked) = (compared.with(&found)?, found != FoundMark::Missing);
    Ok(CheckedJournal { meta, acts, read, identities, shortfalls, marked, noted: Vec::new(), folder })
}

/// What remains of a journal without its database is no place for a new one.
pub(crate) fn refuse_what_is_left(folder: &Path) -> Result<(), JournalError> {
    if folder.join(crate::FILE).exists() {
        return Ok(());
    }
    for left in [beside(Path::new(crate::FILE), "-wal"), PathBuf::from(MARK_FILE)] {
        if folder.join(&left).exists() {
            return Err(JournalError::LeftOver { folder: folder.to_owned(), left });
        }
    }
    Ok(())
}

impl CheckedJournal {
    /// What is missing, by the mark. Empty is what it should be.
    #[must_use]
    pub fn shortfalls(&self) -> &[Shortfall] {
        &self.shortfalls
    }

    /// Whether a release that keeps a mark has worked on it.
    #[must_use]
    pub fn is_marked(&self) -> bool {
        self.marked
    }

    /// Which journal it is, and was.
    #[must_use]
    pub fn identity(&self) -> JournalIdentity {
        crate::identity_of(&self.meta, &self.acts)
    }

    /// How far each source has been read and each sink has come.
    #[must_use]
    pub fn positions(&self) -> &Positions {
        &self.read.end.positions
    }

    /// The position after the last record.
    #[must_use]
    pub fn end(&self) -> Seq {
        Seq(self.read.end.seq)
    }

    /// The tick of the last batch, in ms since 1970.
    #[must_use]
    pub fn last_tick_ms(&self) -> u64 {
        self.read.end.tick_ms
    }

    /// What was found.
    #[must_use]
    pub fn recovery(&self) -> &Recovery {
        &self.read.recovery
    }

    /// Opens it.
    ///
    /// # Errors
    /// Something that was acknowledged is missing, or the journal cannot be written.
    pub fn open(mut self) -> Result<(SqliteJournal, Recovery), JournalError> {
        let missing = JournalError::lost(self.folder.path(), std::mem::take(&mut self.shortfalls));
        missing.map_or_else(|| self.open_with(None), Err)
    }

    /// Opens it although something is missing, or makes it another one's continuation: with a new incarnation, and what was given up.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub fn go_on(self, given_up: GivenUp) -> Result<(SqliteJournal, Recovery), JournalError> {
        let incarnation = self.next_incarnation(&given_up)?;
        let GivenUp { kind, at_ms, text, next_purchase, runs, .. } = given_up;
        let era = JournalEra { incarnation, begins: Seq(self.read.end.seq), next_purchase, runs };
        self.open_with(Some(JournalAct { kind, at_ms, text, era }))
    }

    /// The number of the incarnation that [`CheckedJournal::go_on`] begins with this.
    ///
    /// # Errors
    /// The mark cannot be read.
    pub fn next_incarnation(&self, given_up: &GivenUp) -> Result<u32, JournalError> {
        let marked = match mark::read(self.folder.path())? {
            FoundMark::Sound(mark) => mark.incarnation,
            FoundMark::Missing | FoundMark::Damaged(_) => 0,
        };
        let known = self.meta.incarnation.max(marked).max(given_up.seen_incarnation);
        Ok(acts::next_incarnation(known, given_up.at_ms))
    }

    /// Notes what was done by hand that loses nothing. It is written when the journal is opened, in whatever way.
    pub fn note(&mut self, kind: ActKind, at_ms: u64, text: String) {
        let era = acts::eras(&self.acts).pop().unwrap_or_default();
        self.noted.push(JournalAct { kind, at_ms, text, era });
    }

    fn open_with(self, act: Option<JournalAct>) -> Result<(SqliteJournal, Recovery), JournalError> {
        let CheckedJournal { mut meta, mut acts, read, identities, noted, folder, .. } = self;
        let ReadJournal { end, chunks, since_snapshot, recovery } = read;
        let db = Database::open(&folder.database())?;
        db.execute(spend::TABLES)?;
        db.execute(cloud::TABLE)?;
        if recovery.cut.is_some() {
            db.write(|all| store::cut(all, end.seq, end.archived))?;
        }
        if recovery.bad_snapshots > 0 {
            snapshot::forget_unusable(&db, recovery.snapshot)?;
        }
        let first = acts.is_empty().then(|| created(&meta));
        for act in first.into_iter().chain(noted).chain(act) {
            let write = act.prepare(&db)?;
            meta.incarnation = meta.incarnation.max(act.era.incarnation);
            let mark = JournalMark::of(meta.uuid, meta.incarnation, &end, state(&db.path));
            // The journal says that it keeps a mark only when there is one.
            if act.kind == ActKind::Created {
                mark::replace(folder.path(), mark)?;
            }
            db.write(|all| write(all).and_then(|()| store::write_meta(all, meta)))?;
            acts.push(act);
        }
        let mark = JournalMark::of(meta.uuid, meta.incarnation, &end, state(&db.path));
        let mark = mark::replace(folder.path(), mark)?;
        let incarnations = Incarnations { eras: acts::eras(&acts) };
        let opened = Opened { db, meta, end, since_snapshot, chunks, identities, mark, incarnations, folder };
        Ok((SqliteJournal::start(opened)?, recovery))
    }
}

/// The first act of a journal.
pub(crate) fn created(meta: &JournalMeta) -> JournalAct {
    let era = JournalEra { incarnation: meta.incarnation, begins: Seq(0), ..JournalEra::default() };
    JournalAct { kind: ActKind::Created, at_ms: meta.created_ms, text: String::new(), era }
}

/// Whether what was committed last is in the log.
fn state(database: &Path) -> MarkState {
    if has_log(database) { MarkState::Open } else { MarkState::Closed }
}

fn has_log(database: &Path) -> bool {
    std::fs::metadata(beside(database, "-wal")).is_ok_and(|log| log.len() > 0)
}

/// A journal that is compared with its mark.
pub(crate) struct Comparison<'a> {
    pub folder: &'a Path,
    pub db: &'a Database,
    pub meta: &'a JournalMeta,
    pub acts: &'a [JournalAct],
    pub end: &'a End,
}

impl Comparison<'_> {
    /// What shows that the journal is shorter than what it acknowledged.
    pub fn with(&self, found: &FoundMark) -> Result<Vec<Shortfall>, JournalError> {
        let path = self.folder.join(MARK_FILE);
        let unknown = |what: String| vec![Shortfall { file: path.clone(), what, missing: 0 }];
        let end = self.end.seq;
        let mark = match found {
            // A journal that holds nothing yet was being made, and one of an earlier release never had one.
            FoundMark::Missing if self.acts.is_empty() || end == self.meta.begins_at => return Ok(Vec::new()),
            FoundMark::Missing => {
                return Ok(unknown(format!(
                    "is not there, and the journal keeps one: nobody can tell whether records after position #{end} were acknowledged"
                )));
            }
            FoundMark::Damaged(what) => {
                return Ok(unknown(format!(
                    "{what}: nobody can tell whether records after position #{end} were acknowledged"
                )));
            }
            FoundMark::Sound(mark) => mark,
        };
        if mark.uuid != self.meta.uuid {
            return Ok(unknown(format!(
                "is the mark of journal {}, and this is journal {}",
                mark.uuid, self.meta.uuid
            )));
        }
        if mark.incarnation < self.meta.incarnation {
            // A start that gave something up was interrupted before it wrote its mark, and nothing has left since.
            return Ok(Vec::new());
        }
        if mark.state == MarkState::Backup {
            return Err(JournalError::Backup { folder: self.folder.to_owned() });
        }
        Ok(self.behind(mark)?.into_iter().collect())
    }

    /// What shows that a copy of the journal is shorter than the mark that was found before it was made. The journal may have been closed
    /// since then: its log, which goes then, is missed only where records are missing too.
    pub fn shorter_copy(&self, found: &FoundMark) -> Result<Vec<Shortfall>, JournalError> {
        let FoundMark::Sound(mark) = found else {
            // A copy of the database alone is the best that somebody has.
            return if *found == FoundMark::Missing { Ok(Vec::new()) } else { self.with(found) };
        };
        // A start that gave something up was interrupted, or is at work.
        if mark.incarnation < self.meta.incarnation || self.behind(&mark.closed())?.is_none() {
            return Ok(Vec::new());
        }
        Ok(self.behind(mark)?.into_iter().collect())
    }

    /// What shows that the journal is shorter than its mark.
    pub fn behind(&self, mark: &JournalMark) -> Result<Option<Shortfall>, JournalError> {
        let (database, log) = (self.db.path.clone(), beside(&self.db.path, "-wal"));
        let end = self.end.seq;
        let no_log = mark.state == MarkState::Open && !has_log(&database);
        let missing = mark.seq.saturating_sub(end);
        let short = |file: PathBuf, what: String| Some(Shortfall { file, what, missing });
        if mark.incarnation > self.meta.incarnation {
            let (ours, theirs) = (self.meta.incarnation, mark.incarnation);
            let what =
                format!("is of incarnation {ours}, and incarnation {theirs} was written here: it is an older copy");
            return Ok(short(database, what));
        }
        if missing > 0 {
            let acknowledged = format!("{missing} records from position #{end} on were acknowledged and are not there");
            return Ok(match (mark.state, no_log) {
                (_, true) => short(log, format!("is not there: {acknowledged}")),
                (MarkState::Open, _) => {
                    short(log, format!("was cut, or is not the one of this database: {acknowledged}"))
                }
                _ => short(database, format!("was cut, or is an older copy: {acknowledged}")),
            });
        }
        if no_log {
            let what =
                "is not there, and the journal was not closed: what was written last may be missing from its tables";
            return Ok(short(log, what.to_owned()));
        }
        let sql = "SELECT chain FROM batches WHERE next_seq = ?1 AND seq < ?1 ORDER BY seq DESC LIMIT 1";
        let chain = match mark.seq == end {
            true => Some(self.end.chain.to_vec()),
            // Beyond what is kept, nobody knows.
            false => self.db.row(sql, [signed(mark.seq)], |row| Ok(row.get::<_, Vec<u8>>(0)?))?,
        };
        let at = mark.seq;
        let other =
            format!("its records before position #{at} are not those that were acknowledged: it is another copy");
        Ok(chain.filter(|chain| *chain != mark.chain).map(|_| Shortfall { file: database, what: other, missing: 1 }))
    }
}

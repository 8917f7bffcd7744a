//! Reading the ledger by whom: of a journal that is being written, up to a position, and of a folder that nobody serves.
//!
//! ```text
//! a server:  the engine's open charges and its position -> ArchiveReader::spend up to there
//! a folder:  snapshot and batches -> the state, its open charges and its position -> the same
//!
//! in sums (spend, in the order of slots and jobs) + not yet in sums (charges, in the order of batches) = all of it
//!   each row of a server's read: may it go on? -- no: up to which slot it came, and nothing that could be taken for all of it
//! ```
//!
//! Never: writes, takes the folder's lock, or gives a part as if it were whole.

use super::{NOBODY, batch_charges, billed_job, is_there, rolled_upto, slot_charges};
use crate::archive::ArchiveReader;
use crate::database::{Database, RowFault, signed};
use crate::error::JournalError;
use crate::{machine, recover, store};
use forebay_kernel::ids::{JobId, Seq};
use forebay_kernel::machine::StateMachine;
use forebay_kernel::state::billing::{BilledJob, Charge, ChargeKey, LedgerSlot};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::Path;

/// Which charges are asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpendQuery {
    /// From this slot on.
    pub from: LedgerSlot,
    /// Before this slot.
    pub to: LedgerSlot,
    /// Those of batches before this position.
    pub upto: Seq,
}

impl SpendQuery {
    /// All of it, up to a position.
    #[must_use]
    pub fn all(upto: Seq) -> SpendQuery {
        SpendQuery { from: LedgerSlot(0), to: LedgerSlot(u32::MAX), upto }
    }

    fn takes(&self, key: &ChargeKey) -> bool {
        key.slot >= self.from && key.slot < self.to
    }
}

/// What was charged: amounts by what they are for.
pub type SpendTotals = BTreeMap<ChargeKey, i128>;

/// Whether a read goes on: asked before each row, with how many charges and jobs are held by then.
pub type MayGoOn<'a> = &'a mut dyn FnMut(usize) -> ControlFlow<()>;

/// A read that nothing ends.
fn to_the_end(_: usize) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// What was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SpendRead {
    /// All that was asked for.
    Found {
        /// What was charged.
        charges: SpendTotals,
        /// Who the jobs are that were charged.
        jobs: BTreeMap<JobId, BilledJob>,
    },
    /// Sums contain more than what was asked for by now: ask again for a later position.
    Passed,
    /// It was broken off. What was charged before this slot is no more than what a read may hold; with what was charged in it, it is.
    Cut {
        /// That slot.
        before: LedgerSlot,
    },
}

/// A job whose charges are asked for, and when it may have been charged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JobSlots {
    /// Which.
    pub job: JobId,
    /// From this slot on.
    pub from: LedgerSlot,
    /// Before this slot.
    pub to: LedgerSlot,
}

/// What some jobs were charged.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SpendOfJobs {
    /// Their charges, and maybe some of those of further jobs that were asked for.
    pub charges: SpendTotals,
    /// Of how many of the jobs that were asked for, from the first on, these are all charges.
    pub whole: usize,
}

/// A place in the sums of the ledger, which are in the order of their slots and in each of these of their jobs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SpendPlace {
    slot: i64,
    job: i64,
}

impl SpendPlace {
    /// Before all others.
    const FIRST: SpendPlace = SpendPlace { slot: i64::MIN, job: i64::MIN };

    fn of(key: &ChargeKey) -> SpendPlace {
        SpendPlace { slot: i64::from(key.slot.0), job: key.job.map_or(NOBODY, |job| signed(job.0)) }
    }

    /// Whether what is charged for this lies there, or before it.
    #[must_use]
    pub fn reaches(&self, key: &ChargeKey) -> bool {
        SpendPlace::of(key) <= *self
    }
}

/// A part of the ledger: all that was charged at its places.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SpendPart {
    /// What was charged.
    pub charges: SpendTotals,
    /// Who the jobs are that were charged.
    pub jobs: BTreeMap<JobId, BilledJob>,
    /// Its last place. `None`: it goes to the end.
    pub last: Option<SpendPlace>,
}

/// What some batches have charged, in their order, and who the jobs are.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ChargedBetween {
    /// What was charged.
    pub charges: Vec<Charge>,
    /// Who the jobs are that were charged.
    pub jobs: BTreeMap<JobId, BilledJob>,
}

impl ArchiveReader {
    /// What the batches from one position on and before another have charged. `None`: some of it is in sums by now, with what was charged
    /// before it or after it; [`ArchiveReader::spend`] tells all of it.
    ///
    /// # Errors
    /// The journal cannot be read, or a row is damaged.
    pub fn charged_between(&self, from: Seq, to: Seq) -> Result<Option<ChargedBetween>, JournalError> {
        let db = self.db();
        in_one_view(&db, || between(&db, from, to))
    }

    /// What was charged by the batches before a position, however much that is.
    ///
    /// # Errors
    /// The journal cannot be read, or a row is damaged.
    pub fn spend(&self, query: &SpendQuery) -> Result<SpendRead, JournalError> {
        self.spend_within(query, &mut to_the_end)
    }

    /// The same, for as long as it may go on.
    ///
    /// # Errors
    /// The same.
    pub fn spend_within(&self, query: &SpendQuery, go_on: MayGoOn<'_>) -> Result<SpendRead, JournalError> {
        let db = self.ledger();
        in_one_view(&db, || read(&db, query, go_on))
    }

    /// What some jobs, each named once, were charged by the batches before a position, for as long as it may go on. `None`: sums contain more by
    /// now.
    ///
    /// # Errors
    /// The journal cannot be read, or a row is damaged.
    pub fn spend_of_jobs(
        &self,
        upto: Seq,
        jobs: &[JobSlots],
        go_on: MayGoOn<'_>,
    ) -> Result<Option<SpendOfJobs>, JournalError> {
        let db = self.ledger();
        in_one_view(&db, || of_jobs(&db, upto, jobs, go_on))
    }

    /// What the batches before a position have charged at the places after this one, or at all: for as long as it may go on, and in one row of
    /// the sums at least. Parts that are read at one position add up to all of it. `None`: sums contain more by now.
    ///
    /// # Errors
    /// The journal cannot be read, or a row is damaged.
    pub fn spend_part(
        &self,
        upto: Seq,
        after: Option<SpendPlace>,
        go_on: MayGoOn<'_>,
    ) -> Result<Option<SpendPart>, JournalError> {
        let db = self.ledger();
        in_one_view(&db, || part(&db, upto, after, go_on))
    }

    /// Who a job is on a bill: also when it has left the archive. `None`: it never had places.
    ///
    /// # Errors
    /// The journal cannot be read, or the row is damaged.
    pub fn billed_job(&self, job: JobId) -> Result<Option<BilledJob>, JournalError> {
        let db = self.db();
        if is_there(&db)? { job_of(&db, job) } else { Ok(None) }
    }
}

/// A folder as nobody writes it at this instant, or as it is durable by now.
#[derive(Debug)]
pub struct FolderSpend {
    /// The state after the last batch.
    pub machine: StateMachine,
    /// What its batches have charged.
    pub charges: SpendTotals,
    /// Who the jobs are.
    pub jobs: BTreeMap<JobId, BilledJob>,
}

/// Reads a folder's state and everything that it was charged. Nothing is changed; a torn tail is left out.
///
/// # Errors
/// There is no journal, it has another format, or it is damaged.
pub fn read_folder_spend(folder: &Path) -> Result<FolderSpend, JournalError> {
    read_folder(folder, |db, machine| {
        let upto = Seq(machine.counters().next_seq);
        match read(db, &SpendQuery::all(upto), &mut to_the_end)? {
            SpendRead::Found { charges, jobs } => Ok(FolderSpend { machine, charges, jobs }),
            // Sums are made of batches before the last but one snapshot, and these are all before the end; and nothing breaks it off.
            SpendRead::Passed | SpendRead::Cut { .. } => {
                Err(db.damaged(crate::DamagedAt::File, "its bill goes on where its batches end"))
            }
        }
    })
}

/// Reads the state of a folder after its last batch, and what else is in its database, as they are at one instant.
pub(crate) fn read_folder<T>(
    folder: &Path,
    look: impl FnOnce(&Database, StateMachine) -> Result<T, JournalError>,
) -> Result<T, JournalError> {
    let (db, meta) = store::open_folder(folder)?;
    in_one_view(&db, || {
        let mut machine = StateMachine::default();
        recover::read(&db, &meta, &mut |part| machine::apply(&mut machine, part))?;
        look(&db, machine)
    })
}

/// Reads in one transaction: whatever is written meanwhile is not seen.
fn in_one_view<T>(db: &Database, read: impl FnOnce() -> Result<T, JournalError>) -> Result<T, JournalError> {
    let view = db.connection.unchecked_transaction().map_err(|e| db.sqlite(e))?;
    let found = read()?;
    view.finish().map_err(|e| db.sqlite(e))?;
    Ok(found)
}

fn between(db: &Database, from: Seq, to: Seq) -> Result<Option<ChargedBetween>, JournalError> {
    if !is_there(db)? {
        return Ok(Some(ChargedBetween::default()));
    }
    if rolled_upto(db)? > from.0 {
        return Ok(None);
    }
    let sql = "SELECT seq, body, crc32c FROM charges WHERE seq >= ?1 AND seq < ?2 ORDER BY seq";
    let rows = db.rows(sql, [signed(from.0), signed(to.0)], batch_charges)?;
    let charges: Vec<Charge> = rows.into_iter().flatten().collect();
    let ids: BTreeSet<JobId> = charges.iter().filter_map(|charge| charge.key.job).collect();
    let mut jobs = BTreeMap::new();
    for id in ids {
        jobs.extend(job_of(db, id)?.map(|job| (id, job)));
    }
    Ok(Some(ChargedBetween { charges, jobs }))
}

/// Charges of batches that are in no sum yet.
const BATCHES: &str = "SELECT seq, body, crc32c FROM charges WHERE seq < ?1";

/// What a read holds.
#[derive(Default)]
struct HeldSpend {
    charges: SpendTotals,
    jobs: BTreeMap<JobId, BilledJob>,
    /// What names and labels of the jobs take more than is usual, in charges of the same size.
    names: usize,
}

/// Bytes that a charge or a job takes as a rule, names included.
const USUAL: usize = 300;

impl HeldSpend {
    /// Charges and jobs; who has long names counts for several.
    fn len(&self) -> usize {
        self.charges.len() + self.jobs.len() + self.names
    }

    fn add_job(&mut self, job: BilledJob) {
        let names = [&job.tenant, &job.subject, &job.principal, &job.queue, &job.tier];
        let labels = job.labels.iter().flat_map(|(name, value)| [name, value]);
        let bytes: usize = names.into_iter().chain(labels).map(String::len).sum();
        self.names += bytes / USUAL;
        self.jobs.insert(job.job, job);
    }

    fn add(&mut self, charge: Charge) {
        *self.charges.entry(charge.key).or_default() += charge.amount;
    }

    /// Who a job is, if that is not held yet.
    fn name(&mut self, db: &Database, id: JobId) -> Result<(), RowFault> {
        if !self.jobs.contains_key(&id) {
            job_row(db, id)?.into_iter().for_each(|job| self.add_job(job));
        }
        Ok(())
    }

    /// Charges of a slot, and who they are of.
    fn add_named(&mut self, db: &Database, charges: Vec<Charge>) -> Result<(), RowFault> {
        for charge in charges {
            if let Some(id) = charge.key.job {
                self.name(db, id)?;
            }
            self.add(charge);
        }
        Ok(())
    }

    /// Jobs that were charged and of which it is not held yet who they are.
    fn unnamed(&self) -> BTreeSet<JobId> {
        self.charges.keys().filter_map(|key| key.job).filter(|id| !self.jobs.contains_key(id)).collect()
    }

    /// Without what has come to nothing, and the jobs of that.
    fn told(mut self) -> HeldSpend {
        let all = self.charges.len();
        self.charges.retain(|_, amount| *amount != 0);
        if self.charges.len() < all {
            let charged: BTreeSet<JobId> = self.charges.keys().filter_map(|key| key.job).collect();
            self.jobs.retain(|id, _| charged.contains(id));
        }
        self
    }
}

/// Charges that are in no sum yet go first, wherever they belong: so what comes before a slot is held whole when a row of that slot is reached.
fn read(db: &Database, query: &SpendQuery, go_on: MayGoOn<'_>) -> Result<SpendRead, JournalError> {
    let (mut held, mut cut) = (HeldSpend::default(), None);
    if is_there(db)? {
        if rolled_upto(db)? > query.upto.0 {
            return Ok(SpendRead::Passed);
        }
        db.each(BATCHES, [signed(query.upto.0)], |row| {
            if go_on(held.len()).is_break() {
                cut = Some(query.from);
                return Ok(ControlFlow::Break(()));
            }
            let found = batch_charges(row)?.into_iter().filter(|charge| query.takes(&charge.key));
            found.for_each(|charge| held.add(charge));
            Ok(ControlFlow::Continue(()))
        })?;
        if let Some(before) = cut {
            return Ok(SpendRead::Cut { before });
        }
        for id in held.unnamed() {
            if go_on(held.len()).is_break() {
                return Ok(SpendRead::Cut { before: query.from });
            }
            job_of(db, id)?.into_iter().for_each(|job| held.add_job(job));
        }
        let sums = "SELECT slot, job, body, crc32c FROM spend WHERE slot >= ?1 AND slot < ?2 ORDER BY slot, job";
        db.each(sums, [i64::from(query.from.0), i64::from(query.to.0)], |row| {
            let found = slot_charges(row)?;
            if go_on(held.len()).is_break() {
                cut = Some(found.first().map_or(query.from, |charge| charge.key.slot));
                return Ok(ControlFlow::Break(()));
            }
            held.add_named(db, found)?;
            Ok(ControlFlow::Continue(()))
        })?;
    }
    let HeldSpend { charges, jobs, .. } = held.told();
    Ok(cut.map_or(SpendRead::Found { charges, jobs }, |before| SpendRead::Cut { before }))
}

/// Looks for each job in the slots that there are, so that what others were charged is not gone through.
fn of_jobs(
    db: &Database,
    upto: Seq,
    jobs: &[JobSlots],
    go_on: MayGoOn<'_>,
) -> Result<Option<SpendOfJobs>, JournalError> {
    if !is_there(db)? {
        return Ok(Some(SpendOfJobs { charges: SpendTotals::new(), whole: jobs.len() }));
    }
    if rolled_upto(db)? > upto.0 {
        return Ok(None);
    }
    let wanted: BTreeMap<JobId, &JobSlots> = jobs.iter().map(|asked| (asked.job, asked)).collect();
    let takes = |key: &ChargeKey| {
        let asked = key.job.and_then(|id| wanted.get(&id));
        asked.is_some_and(|asked| key.slot >= asked.from && key.slot < asked.to)
    };
    let (mut held, mut cut) = (HeldSpend::default(), false);
    db.each(BATCHES, [signed(upto.0)], |row| {
        cut = go_on(held.len()).is_break();
        if cut {
            return Ok(ControlFlow::Break(()));
        }
        let found = batch_charges(row)?.into_iter().filter(|charge| takes(&charge.key));
        found.for_each(|charge| held.add(charge));
        Ok(ControlFlow::Continue(()))
    })?;
    let mut whole = 0;
    for asked in jobs {
        if cut || sums_of_job(db, asked, &mut held, &mut *go_on)?.is_break() {
            break;
        }
        whole += 1;
    }
    Ok(Some(SpendOfJobs { charges: held.told().charges, whole }))
}

/// Adds what a job was charged in its slots, as far as that is in sums.
fn sums_of_job(
    db: &Database,
    asked: &JobSlots,
    held: &mut HeldSpend,
    go_on: MayGoOn<'_>,
) -> Result<ControlFlow<()>, JournalError> {
    let next = "SELECT slot FROM spend WHERE slot >= ?1 AND slot < ?2 ORDER BY slot LIMIT 1";
    let own = "SELECT slot, job, body, crc32c FROM spend WHERE slot = ?1 AND job = ?2";
    let (mut from, to) = (i64::from(asked.from.0), i64::from(asked.to.0));
    while let Some(slot) = db.row(next, [from, to], |row| Ok(row.get::<_, i64>(0)?))? {
        if go_on(held.len()).is_break() {
            return Ok(ControlFlow::Break(()));
        }
        let found = db.row(own, [slot, signed(asked.job.0)], slot_charges)?;
        found.into_iter().flatten().for_each(|charge| held.add(charge));
        from = slot + 1;
    }
    Ok(ControlFlow::Continue(()))
}

fn part(
    db: &Database,
    upto: Seq,
    after: Option<SpendPlace>,
    go_on: MayGoOn<'_>,
) -> Result<Option<SpendPart>, JournalError> {
    if !is_there(db)? {
        return Ok(Some(SpendPart::default()));
    }
    if rolled_upto(db)? > upto.0 {
        return Ok(None);
    }
    let begin = after.unwrap_or(SpendPlace::FIRST);
    let (mut held, mut place, mut more) = (HeldSpend::default(), None, false);
    let sums = "SELECT slot, job, body, crc32c FROM spend WHERE (slot, job) > (?1, ?2) ORDER BY slot, job";
    db.each(sums, [begin.slot, begin.job], |row| {
        more = place.is_some() && go_on(held.len()).is_break();
        if more {
            return Ok(ControlFlow::Break(()));
        }
        let found = slot_charges(row)?;
        place = Some(SpendPlace { slot: row.get(0)?, job: row.get(1)? });
        held.add_named(db, found)?;
        Ok(ControlFlow::Continue(()))
    })?;
    let last = place.filter(|_| more);
    // What is in no sum yet is bounded by what a start may have to apply, and is all looked at.
    db.each(BATCHES, [signed(upto.0)], |row| {
        for charge in batch_charges(row)? {
            let place = SpendPlace::of(&charge.key);
            if place > begin && last.is_none_or(|last| place <= last) {
                held.add(charge);
            }
        }
        Ok(ControlFlow::Continue(()))
    })?;
    for id in held.unnamed() {
        job_of(db, id)?.into_iter().for_each(|job| held.add_job(job));
    }
    let HeldSpend { charges, jobs, .. } = held.told();
    Ok(Some(SpendPart { charges, jobs, last }))
}

const JOB: &str = "SELECT id, seq, body, crc32c FROM spend_jobs WHERE id = ?1";

fn job_of(db: &Database, id: JobId) -> Result<Option<BilledJob>, JournalError> {
    db.row(JOB, [signed(id.0)], billed_job)
}

/// The same, while another row is looked at.
fn job_row(db: &Database, id: JobId) -> Result<Option<BilledJob>, RowFault> {
    let mut select = db.connection.prepare_cached(JOB)?;
    let mut rows = select.query([signed(id.0)])?;
    rows.next()?.map(billed_job).transpose()
}

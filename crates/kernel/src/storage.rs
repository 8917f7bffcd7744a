//! What a journal is to whoever drives the engine: a log of batches, and for the live loop what is kept beside them.
//!
//! ```text
//! BatchLog   append_many                                             a step needs no more
//! Journal    BatchLog + positions, seen ids, requests, archive ...   what the live loop reads back
//! ```
//!
//! Never: IO of its own. Where the bytes go is the business of the implementation.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::event::EarlierJob;
use crate::ids::{Attempt, JobId, Seq};
use crate::journal::Batch;
use crate::state::State;
use crate::state::billing::BatchCharges;
use crate::state::retire::FinishedJob;

/// How far each source has been read, and each sink has come: by its name, in the unit that it counts in.
pub type Positions = BTreeMap<String, u64>;

/// Encoded requests of effects, by the positions of the decisions that they belong to.
pub type FrozenRequests = BTreeMap<u64, Vec<u8>>;

/// So many events' ids are kept: the horizon of de-duplication. At 50,000 events a second it is 20 s, at a million a day a day; an id
/// takes 16 bytes on disk and some 40 in memory. A submission is recognized by the identity of its job for ever, whatever its id.
pub const MOST_SEEN: usize = 1 << 20;

/// One batch and what becomes durable with it.
#[derive(Clone, Copy, Debug)]
pub struct JournalEntry<'a> {
    /// The batch.
    pub batch: &'a Batch,
    /// How far each source has been read with this batch; those that did not move may be left out.
    pub positions: &'a Positions,
    /// The text of the policy that a `Configured` in this batch was compiled from.
    pub policy: Option<&'a str>,
    /// The ids of the events in this batch that have one, so that they are known when they come again.
    pub seen: &'a [u128],
    /// Requests that this batch decided on, frozen, by the positions of their decisions.
    pub requests: &'a [(Seq, Vec<u8>)],
    /// Jobs that are over with this batch: the archive takes them in the same transaction.
    pub finished: &'a [FinishedJob],
    /// What this batch charges: the ledger takes it in the same transaction.
    pub charges: &'a BatchCharges,
}

impl<'a> JournalEntry<'a> {
    /// A batch with nothing beside it.
    #[must_use]
    pub fn of(batch: &'a Batch) -> JournalEntry<'a> {
        JournalEntry {
            batch,
            positions: &NO_POSITIONS,
            policy: None,
            seen: &[],
            requests: &[],
            finished: &[],
            charges: &NO_CHARGES,
        }
    }
}

static NO_POSITIONS: Positions = Positions::new();
static NO_CHARGES: BatchCharges = BatchCharges { charges: Vec::new(), jobs: Vec::new() };

/// A durable log of batches.
pub trait BatchLog {
    /// Why it could not be written.
    type Error;

    /// Makes batches durable in one transaction: all of them or none.
    ///
    /// When this returns `Ok`, a crash keeps them.
    ///
    /// # Errors
    /// Nothing was written. Either it is tried again with the same entries, or the process ends and recovers.
    fn append_many(&mut self, entries: &[JournalEntry<'_>]) -> Result<(), Self::Error>;

    /// Makes one batch durable with nothing beside it.
    ///
    /// # Errors
    /// As [`BatchLog::append_many`].
    fn append(&mut self, batch: &Batch) -> Result<(), Self::Error> {
        self.append_many(&[JournalEntry::of(batch)])
    }
}

/// Why something durable could not be written or read.
pub trait StorageFailure: core::error::Error + Send + Sync + 'static {
    /// Whether it goes away when there is room on the disk: then it is tried again, and nothing is received meanwhile.
    fn is_full(&self) -> bool;

    /// Whether whoever started the program can mend it: another folder, other permissions, a backup.
    fn is_for_the_caller(&self) -> bool {
        true
    }
}

/// Which journal this is: the first half of every effect's and every status event's id.
///
/// As text the UUID alone, and from the first restore on `UUID.INCARNATION`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct JournalId {
    /// Drawn when the journal was created.
    pub uuid: u128,
    /// 0, and 1 more with each restore, so that no id ever means two things.
    pub incarnation: u32,
}

impl fmt::Display for JournalId {
    /// The UUID hyphenated and in lower case, as in RFC 9562.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |from: u32, bits: u32| (self.uuid >> from) & ((1u128 << bits) - 1);
        let [a, b, c, d, e] = [part(96, 32), part(80, 16), part(64, 16), part(48, 16), part(0, 48)];
        write!(f, "{a:08x}-{b:04x}-{c:04x}-{d:04x}-{e:012x}")?;
        match self.incarnation {
            0 => Ok(()),
            incarnation => write!(f, ".{incarnation}"),
        }
    }
}

/// A text that is no journal's id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JournalIdFault;

impl fmt::Display for JournalIdFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a journal's id; it is a UUID, with `.` and a number after a restore")
    }
}

impl core::error::Error for JournalIdFault {}

/// The greatest incarnation whose client tokens have at most 64 characters: 36 for the UUID, 19 for the greatest position, two marks.
pub const MOST_INCARNATION: u32 = 9_999_999;

impl core::str::FromStr for JournalId {
    type Err = JournalIdFault;

    fn from_str(text: &str) -> Result<JournalId, JournalIdFault> {
        let (uuid, incarnation) = text.split_once('.').map_or((text, None), |(uuid, n)| (uuid, Some(n)));
        let digits: String = uuid.split('-').collect();
        let parts = uuid.split('-').map(str::len);
        if !parts.eq([8, 4, 4, 4, 12]) || digits.bytes().any(|b| !b.is_ascii_hexdigit()) {
            return Err(JournalIdFault);
        }
        let uuid = u128::from_str_radix(&digits, 16).map_err(|_| JournalIdFault)?;
        let incarnation = match incarnation.map(str::parse) {
            None => 0,
            Some(Ok(n)) if (1..=MOST_INCARNATION).contains(&n) => n,
            Some(_) => return Err(JournalIdFault),
        };
        Ok(JournalId { uuid, incarnation })
    }
}

/// What a journal is, from the moment it is created.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct JournalIdentity {
    /// Its id now.
    pub id: JournalId,
    /// When it was created, in ms since 1970.
    pub created_ms: u64,
    /// Its incarnations in order, the one of now last. None: it has the first one only.
    pub eras: Vec<JournalEra>,
}

/// An incarnation of a journal: from which record on it gives out ids.
///
/// ```text
/// positions   0 ........ 700 | 700 ..... 900     incarnation 0 went on to 950 and is lost from 700 on
/// ids         UUID-12        | UUID.3-712        `UUID-712` means what the lost part meant, and nothing else
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct JournalEra {
    /// Its number.
    pub incarnation: u32,
    /// The position of its first record. What was decided before keeps the id that it was given.
    pub begins: Seq,
    /// The number of its first purchase. Purchases of an earlier incarnation from this number on are not in the journal.
    pub next_purchase: u64,
    /// The runs that were alive when it began, which keep the tokens that they were started with.
    pub runs: Vec<KeptRun>,
}

/// A run that keeps its token over a restore.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct KeptRun {
    /// The job.
    pub job: JobId,
    /// Which run of it.
    pub attempt: Attempt,
    /// The incarnation that started it.
    pub incarnation: u32,
}

/// What an id of another incarnation means to a journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ForeignId {
    /// Of another journal, or of a later incarnation of this one.
    Stranger,
    /// This journal knows what it was decided for.
    Known,
    /// It was decided after the backup that this journal goes on from: nobody knows any more what for, and nothing may end it.
    Lost,
}

impl JournalIdentity {
    /// The id under which a record's effect leaves, and has left.
    #[must_use]
    pub fn of_effect(&self, effect: Seq) -> JournalId {
        let era = self.eras.iter().rev().find(|era| era.begins <= effect).or(self.eras.first());
        JournalId { incarnation: era.map_or(self.id.incarnation, |era| era.incarnation), ..self.id }
    }

    /// The incarnation whose key the token of a run was made with.
    #[must_use]
    pub fn of_run(&self, job: JobId, attempt: Attempt) -> u32 {
        let kept =
            self.eras.last().and_then(|era| era.runs.iter().find(|run| run.job == job && run.attempt == attempt));
        kept.map_or(self.id.incarnation, |run| run.incarnation)
    }

    /// What an effect's id means whose journal and position are known.
    #[must_use]
    pub fn effect_of(&self, journal: JournalId, effect: Seq) -> ForeignId {
        self.judge(journal, |next| effect >= next.begins)
    }

    /// What a purchase means whose journal and number are known.
    #[must_use]
    pub fn purchase_of(&self, journal: JournalId, purchase: u64) -> ForeignId {
        self.judge(journal, |next| purchase >= next.next_purchase)
    }

    fn judge(&self, journal: JournalId, is_after: impl Fn(&JournalEra) -> bool) -> ForeignId {
        if journal == self.id {
            return ForeignId::Known;
        }
        // A later incarnation of this journal is what somebody else went on with.
        if journal.uuid != self.id.uuid || journal.incarnation > self.id.incarnation {
            return ForeignId::Stranger;
        }
        // One that this journal does not have was begun after its backup, too.
        let at = self.eras.iter().position(|era| era.incarnation == journal.incarnation);
        match at.is_none_or(|at| self.eras.iter().skip(at + 1).any(is_after)) {
            true => ForeignId::Lost,
            false => ForeignId::Known,
        }
    }
}

/// What the archive knows of an identity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArchivedIdentity {
    /// Its last job: kept for ever.
    pub earlier: EarlierJob,
    /// Who may act on that job, while the archive has its specification.
    pub owner: Option<JobOwner>,
}

/// Who may act on a job: whoever submitted it, and whom the policy lets act on its queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobOwner {
    /// Who submitted it.
    pub principal: String,
    /// Its queue, by path.
    pub queue: String,
}

/// The journal of a live controller: batches, and all that it must know of the outside when it starts again.
pub trait Journal: BatchLog<Error: StorageFailure> + Send {
    /// Which journal this is.
    fn identity(&self) -> JournalIdentity;

    /// The position after its last record.
    fn end(&self) -> Seq;

    /// Whether enough has been written since the last snapshot that another one pays, and none is being written.
    fn wants_snapshot(&self) -> bool;

    /// Begins to keep a snapshot of the state as it is after the last batch that was appended, so that a recovery begins there. It
    /// returns before the snapshot is durable; until then the one before counts.
    ///
    /// # Errors
    /// The snapshot was not begun; the batches are not concerned.
    fn begin_snapshot(&mut self, state: &State) -> Result<(), Self::Error>;

    /// Knows jobs that are over with a batch that is not appended yet, so that [`Journal::archived`] finds them.
    fn note_finished(&mut self, finished: &[FinishedJob]);

    /// What is known of an identity whose last job has left the state. `None`: there never was one.
    ///
    /// # Errors
    /// It cannot be read, or is damaged.
    fn archived(&self, tenant: &str, subject: &str) -> Result<Option<ArchivedIdentity>, Self::Error>;

    /// How far each source has been read and each sink has come.
    fn positions(&self) -> &Positions;

    /// The ids of the last events that have one, oldest first.
    ///
    /// # Errors
    /// They cannot be read, or are damaged.
    fn seen(&self) -> Result<Vec<u128>, Self::Error>;

    /// The frozen requests of effects without an outcome; some that have one may be among them.
    ///
    /// # Errors
    /// They cannot be read, or are damaged.
    fn requests(&self) -> Result<FrozenRequests, Self::Error>;

    /// Forgets the frozen requests of all effects but these.
    ///
    /// # Errors
    /// They stay; it is tried again later.
    fn forget_requests(&mut self, open: &BTreeSet<u64>) -> Result<(), Self::Error>;

    /// The text of the policy in force, as it was written.
    ///
    /// # Errors
    /// It cannot be read, or is damaged.
    fn policy_source(&self) -> Result<Option<String>, Self::Error>;
}

/// A log that keeps nothing: for an engine that is never recovered.
#[derive(Clone, Copy, Debug, Default)]
pub struct NullJournal;

impl BatchLog for NullJournal {
    type Error = core::convert::Infallible;

    fn append_many(&mut self, _: &[JournalEntry<'_>]) -> Result<(), Self::Error> {
        Ok(())
    }
}

/// `None` keeps nothing.
impl<L: BatchLog> BatchLog for Option<L> {
    type Error = L::Error;

    fn append_many(&mut self, entries: &[JournalEntry<'_>]) -> Result<(), Self::Error> {
        self.as_mut().map_or(Ok(()), |log| log.append_many(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use alloc::format;
    use alloc::string::ToString;

    #[test]
    fn the_longest_client_token_fits() {
        let id = JournalId { uuid: u128::MAX, incarnation: MOST_INCARNATION };
        assert_eq!(format!("{id}-{}", i64::MAX).len(), 64);
        assert_eq!(id.to_string().parse(), Ok(id));
        let first = JournalId { incarnation: 0, ..id };
        assert_eq!(first.to_string().parse(), Ok(first));
        assert!("x".parse::<JournalId>().is_err() && format!("{first}.0").parse::<JournalId>().is_err());
    }

    #[test]
    fn an_id_of_an_earlier_incarnation_is_known_up_to_where_the_next_one_begins() {
        let at = |incarnation| JournalId { uuid: 7, incarnation };
        let era = |incarnation, begins, next_purchase| JournalEra {
            incarnation,
            begins: Seq(begins),
            next_purchase,
            runs: Vec::new(),
        };
        let first = JournalIdentity { id: at(0), ..JournalIdentity::default() };
        assert_eq!(first.of_effect(Seq(9)), at(0));
        assert_eq!(first.effect_of(at(0), Seq(9)), ForeignId::Known);
        assert_eq!(first.effect_of(at(1), Seq(9)), ForeignId::Stranger, "somebody went on with a later one");
        // Restored at 700, which came from a backup at 500 of what had been restored before.
        let run = KeptRun { job: JobId(4), attempt: Attempt(2), incarnation: 0 };
        let last = JournalEra { runs: Vec::from([run]), ..era(5, 700, 20) };
        let eras = Vec::from([era(0, 0, 0), era(3, 500, 10), last]);
        let restored = JournalIdentity { id: at(5), created_ms: 0, eras };
        for (effect, incarnation) in [(0, 0), (499, 0), (500, 3), (699, 3), (700, 5), (9_000, 5)] {
            assert_eq!(restored.of_effect(Seq(effect)), at(incarnation), "{effect}");
        }
        for (incarnation, effect, what) in [
            (0, 499, ForeignId::Known),
            (0, 500, ForeignId::Lost),
            (3, 699, ForeignId::Known),
            (3, 700, ForeignId::Lost),
            (5, 700, ForeignId::Known),
            (4, 1, ForeignId::Lost),
            (6, 1, ForeignId::Stranger),
        ] {
            assert_eq!(restored.effect_of(at(incarnation), Seq(effect)), what, "{incarnation} {effect}");
        }
        assert_eq!(restored.effect_of(JournalId { uuid: 8, incarnation: 0 }, Seq(1)), ForeignId::Stranger);
        assert_eq!(restored.purchase_of(at(0), 9), ForeignId::Known);
        assert_eq!(restored.purchase_of(at(0), 10), ForeignId::Lost);
        assert_eq!(restored.purchase_of(at(3), 19), ForeignId::Known);
        assert_eq!((restored.of_run(JobId(4), Attempt(2)), restored.of_run(JobId(4), Attempt(3))), (0, 5));
    }

    #[test]
    fn a_journal_id_is_shown_as_a_uuid() {
        let id = JournalId { uuid: 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef, incarnation: 0 };
        assert_eq!(id.to_string(), "01234567-89ab-cdef-0123-456789abcdef");
        let restored = JournalId { uuid: 1, incarnation: 2 };
        assert_eq!(restored.to_string(), "00000000-0000-0000-0000-000000000001.2");
    }
}

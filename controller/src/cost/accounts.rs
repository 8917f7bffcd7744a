//! What was spent until now, by queue, tier and billed label, and what was wasted: sums that are kept up with the journal.
//!
//! ```text
//! a question, at a position
//!   what batches have charged since the last one (journal)  ->  added to the sums, as far as these go
//!   the ledger from there on, as much as one read may take  ->  the same, until they go to its end
//!   what is open at the position (state)                    ->  added for this answer alone
//! ```
//!
//! They are what a bill of everything says at the same position, where a name has a line of its own. Never: more names than are allowed lines of
//! their own; the others share one. Never less than was told before, or sums of a part of the ledger.

use super::basis::CostBasis;
use super::group::{Sum, apart, label};
use crate::journal::{ArchiveReader, JournalError, MayGoOn, SpendPart, SpendPlace};
use crate::metrics::family::{MOST_POOLS, MOST_TIERS, MOST_VALUES, OTHER};
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::ids::{JobId, Seq};
use forebay_kernel::state::billing::{BilledJob, Charge, ChargeKey, ChargeKind};
use std::collections::{BTreeMap, BTreeSet};

/// The line of what is no job's.
const NOBODY: &str = "(nobody)";

/// The line of what was spent before the ledger knew by whom.
const BEFORE: &str = "(before)";

/// The value of a label that a job does not have.
const WITHOUT: &str = "(none)";

/// A line of an account.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum AccountLine {
    /// A queue's, by how capacity was paid for.
    Queue(String, CapacityType),
    /// A tier's.
    Tier(String, CapacityType),
    /// The value of a label that the policy bills by.
    Label(String, String, CapacityType),
    /// What it was, if it was not work, in a pool.
    Waste(ChargeKind, String),
}

/// What a line has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AccountSum {
    /// Micro-dollars.
    pub micro_dollars: i128,
    /// Thousandths of a GPU x milliseconds.
    pub gpu_time: i128,
}

/// What a question for all lines has come to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AccountsRead {
    /// All lines, of all of the ledger.
    Whole(BTreeMap<AccountLine, AccountSum>),
    /// The ledger is not read to its end yet: the next question goes on.
    Partial,
    /// The sums, or those of the journal, have passed the position: ask for a later one.
    Passed,
}

/// How much of the ledger is in the sums.
#[derive(Clone, Copy, Debug, Default)]
enum LedgerReach {
    #[default]
    Nothing,
    /// What was charged at the places up to this one.
    Upto(SpendPlace),
    All,
}

impl LedgerReach {
    fn has(self, key: &ChargeKey) -> bool {
        match self {
            LedgerReach::Nothing => false,
            LedgerReach::Upto(place) => place.reaches(key),
            LedgerReach::All => true,
        }
    }
}

/// All lines, up to a position.
#[derive(Debug, Default)]
pub struct SpendAccounts {
    upto: Option<Seq>,
    reach: LedgerReach,
    sums: BTreeMap<AccountLine, Sum>,
    names: Names,
    /// The labels that they know.
    labels: Vec<String>,
    /// What was told last.
    told: BTreeMap<AccountLine, AccountSum>,
}

/// Names that have lines of their own: queues, tiers, values of all labels together, and pools of what was no work. One that has a line keeps it, so
/// no line goes back.
#[derive(Debug, Default)]
struct Names {
    queues: BTreeSet<String>,
    tiers: BTreeSet<String>,
    labels: BTreeSet<(String, String)>,
    pools: BTreeSet<String>,
}

/// Who the jobs are that are charged.
type Jobs = BTreeMap<JobId, BilledJob>;

/// Whether a name has a line of its own: it has one already, or fewer than `most` have.
fn own<T: Ord + Clone>(names: &mut BTreeSet<T>, name: &T, most: usize) -> bool {
    names.contains(name) || (names.len() < most && names.insert(name.clone()))
}

impl Names {
    /// The lines of a charge.
    fn lines(&mut self, basis: &CostBasis, key: &ChargeKey, jobs: &Jobs) -> Vec<AccountLine> {
        let capacity = basis.offering(key.offering).map_or(CapacityType::OnDemand, |offer| offer.capacity);
        let nobody = (NOBODY.to_owned(), NOBODY.to_owned());
        let job = key.job.and_then(|id| jobs.get(&id));
        let (queue, tier) = match (key.job, job) {
            (None, _) => nobody,
            (Some(_), None) => (OTHER.to_owned(), OTHER.to_owned()),
            (Some(_), Some(job)) => (
                if own(&mut self.queues, &job.queue, MOST_VALUES) { apart(&job.queue) } else { OTHER.to_owned() },
                if own(&mut self.tiers, &job.tier, MOST_TIERS) { apart(&job.tier) } else { OTHER.to_owned() },
            ),
        };
        let mut lines = vec![AccountLine::Queue(queue, capacity), AccountLine::Tier(tier, capacity)];
        for name in &basis.labels {
            let value = match (key.job, job.and_then(|job| label(job, name))) {
                (None, _) => NOBODY.to_owned(),
                (Some(_), None) => WITHOUT.to_owned(),
                (Some(_), Some(value)) => {
                    let labelled = (name.clone(), value.clone());
                    if own(&mut self.labels, &labelled, MOST_VALUES) { apart(value) } else { OTHER.to_owned() }
                }
            };
            lines.push(AccountLine::Label(name.clone(), value, capacity));
        }
        if key.kind != ChargeKind::Worked {
            let pool = basis.pool(key.pool).to_owned();
            let line = if own(&mut self.pools, &pool, MOST_POOLS) { pool } else { OTHER.to_owned() };
            lines.push(AccountLine::Waste(key.kind, line));
        }
        lines
    }

    fn add(
        &mut self,
        sums: &mut BTreeMap<AccountLine, Sum>,
        basis: &CostBasis,
        charge: (&ChargeKey, i128),
        jobs: &Jobs,
    ) {
        let (key, amount) = charge;
        for line in self.lines(basis, key, jobs) {
            sums.entry(line).or_default().add_charge(basis, key, amount);
        }
    }
}

/// The lines of what was spent before the ledger knew by whom: by each thing one, so that each adds up to what all nodes cost.
fn lines_of_before(labels: &[String], capacity: CapacityType) -> Vec<AccountLine> {
    let before = || BEFORE.to_owned();
    let mut lines = vec![AccountLine::Queue(before(), capacity), AccountLine::Tier(before(), capacity)];
    lines.extend(labels.iter().map(|name| AccountLine::Label(name.clone(), before(), capacity)));
    lines
}

impl SpendAccounts {
    /// All lines at a position, after the journal's charges up to there have been added. Of a ledger that is not read yet, as much is read as may
    /// go on.
    ///
    /// # Errors
    /// The journal cannot be read, or a row is damaged.
    pub fn at(
        &mut self,
        basis: &CostBasis,
        archive: &ArchiveReader,
        go_on: MayGoOn<'_>,
    ) -> Result<AccountsRead, JournalError> {
        if self.upto.is_some_and(|upto| upto > basis.upto) || !self.catch_up(basis, archive, go_on)? {
            return Ok(AccountsRead::Passed);
        }
        if !matches!(self.reach, LedgerReach::All) {
            // What was told stays so while the ledger is read anew: counters wait.
            return Ok(if self.told.is_empty() {
                AccountsRead::Partial
            } else {
                AccountsRead::Whole(self.told.clone())
            });
        }
        let mut all = self.sums.clone();
        for Charge { key, amount } in &basis.open {
            self.names.add(&mut all, basis, (key, *amount), &basis.jobs);
        }
        for (capacity, spent) in basis.earlier() {
            for line in lines_of_before(&basis.labels, capacity) {
                all.entry(line).or_default().add_earlier(spent, capacity);
            }
        }
        for (line, sum) in all {
            let now = AccountSum { micro_dollars: sum.cost.rounded(), gpu_time: sum.gpu_time };
            let told = self.told.entry(line).or_default();
            // Lost work may turn out to have been saved. A counter waits until it is overtaken.
            told.micro_dollars = told.micro_dollars.max(now.micro_dollars);
            told.gpu_time = told.gpu_time.max(now.gpu_time);
        }
        Ok(AccountsRead::Whole(self.told.clone()))
    }

    /// Adds what has been charged since, and goes on with the ledger where it was not read to its end. Whether the journal has not passed the
    /// position.
    fn catch_up(
        &mut self,
        basis: &CostBasis,
        archive: &ArchiveReader,
        go_on: MayGoOn<'_>,
    ) -> Result<bool, JournalError> {
        if self.labels != basis.labels {
            self.labels.clone_from(&basis.labels);
            self.upto = None;
        }
        let between = match self.upto {
            Some(from) => archive.charged_between(from, basis.upto)?,
            None => None,
        };
        match between {
            Some(between) => {
                let reach = self.reach;
                for Charge { key, amount } in between.charges.iter().filter(|charge| reach.has(&charge.key)) {
                    self.names.add(&mut self.sums, basis, (key, *amount), &between.jobs);
                }
            }
            // It begins, or the journal has added up what was charged since.
            None => {
                self.sums.clear();
                self.reach = LedgerReach::Nothing;
            }
        }
        self.upto = Some(basis.upto);
        let after = match self.reach {
            LedgerReach::Nothing => None,
            LedgerReach::Upto(place) => Some(place),
            LedgerReach::All => return Ok(true),
        };
        let Some(SpendPart { charges, jobs, last }) = archive.spend_part(basis.upto, after, go_on)? else {
            return Ok(false);
        };
        for (key, amount) in &charges {
            self.names.add(&mut self.sums, basis, (key, *amount), &jobs);
        }
        self.reach = last.map_or(LedgerReach::All, LedgerReach::Upto);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{BatchLog as _, JournalEntry, SqliteJournal, chunks_of};
    use crate::metrics::family::text;
    use crate::metrics::spend::families;
    use forebay_kernel::event::Tick;
    use forebay_kernel::ids::{Attempt, OfferingId};
    use forebay_kernel::journal::{APPLY_VERSION, Batch};
    use forebay_kernel::state::billing::{BatchCharges, BilledPool, LedgerSlot};
    use forebay_kernel::units::{HOUR_MS, Rate, Timestamp};
    use std::ops::ControlFlow;

    /// What a metric has come to by the values of a label, in dollars: all amounts here are whole ones.
    fn by_label(sums: &BTreeMap<AccountLine, Sum>, metric: &str, label: &str) -> BTreeMap<String, i64> {
        let of = |sum: &Sum| AccountSum { micro_dollars: sum.cost.rounded(), gpu_time: sum.gpu_time };
        let written = text(families(&sums.iter().map(|(line, sum)| (line.clone(), of(sum))).collect())).unwrap();
        let (begins, before) = (format!("{metric}{{"), format!("{label}=\""));
        let mut dollars: BTreeMap<String, i64> = BTreeMap::new();
        for point in written.lines().filter(|line| line.starts_with(&begins)) {
            let value = point.split(&before).nth(1).and_then(|rest| rest.split('"').next()).unwrap();
            let amount: f64 = point.rsplit(' ').next().unwrap().parse().unwrap();
            *dollars.entry(value.to_owned()).or_default() += amount.round() as i64;
        }
        dollars
    }

    #[test]
    fn pools_and_tiers_beyond_their_bounds_share_a_line_and_all_of_it_is_there() {
        let basis = CostBasis::with_pools(60);
        let who = |id| BilledJob { job: JobId(id), tier: format!("tier-{id}"), ..BilledJob::default() };
        let jobs: Jobs = (0..30).map(|id| (JobId(id), who(id))).collect();
        let (mut names, mut sums) = (Names::default(), BTreeMap::new());
        // An hour of the node for a dollar: idle, and of a job.
        let mut charge = |sums: &mut BTreeMap<AccountLine, Sum>, pool: u16| {
            for (job, kind) in [(None, ChargeKind::Idle), (Some(JobId(u64::from(pool % 30))), ChargeKind::Lost)] {
                let (attempt, pool, offering) = (Attempt(0), BilledPool(pool), OfferingId(0));
                let key = ChargeKey { slot: LedgerSlot(0), job, attempt, kind, pool, offering, price: Rate(1_000_000) };
                names.add(sums, &basis, (&key, 1000 * 3_600_000), &jobs);
            }
        };
        (0..60).for_each(|pool| charge(&mut sums, pool));
        let first = by_label(&sums, "forebay_waste_usd_total", "pool");
        // Those that share a line come first now: they go on sharing it, and no line goes back.
        (0..60).rev().for_each(|pool| charge(&mut sums, pool));
        let pools = by_label(&sums, "forebay_waste_usd_total", "pool");
        assert_eq!((pools.len(), pools["pool-0"], pools["pool-49"], pools[OTHER]), (51, 4, 4, 40), "{pools:?}");
        assert_eq!(pools.values().sum::<i64>(), 240);
        assert!(first.iter().all(|(pool, dollars)| pools[pool] == 2 * dollars), "{first:?} and then {pools:?}");
        let tiers = by_label(&sums, "forebay_tier_spend_usd_total", "tier");
        assert_eq!((tiers.len(), tiers["tier-0"], tiers[OTHER], tiers[NOBODY]), (22, 4, 40, 120), "{tiers:?}");
        assert_eq!(tiers.values().sum::<i64>(), 240);
    }

    #[test]
    fn what_was_spent_before_is_in_each_sum_once() {
        let labels = ["costCenter".to_owned(), "team".to_owned()];
        let label = |name: &str| AccountLine::Label(name.to_owned(), BEFORE.to_owned(), CapacityType::Spot);
        assert_eq!(
            lines_of_before(&labels, CapacityType::Spot),
            [
                AccountLine::Queue(BEFORE.to_owned(), CapacityType::Spot),
                AccountLine::Tier(BEFORE.to_owned(), CapacityType::Spot),
                label("costCenter"),
                label("team")
            ]
        );
    }

    fn to_the_end(_: usize) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn up_to_four(held: usize) -> ControlFlow<()> {
        if held > 4 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Appends a batch that charges an hour of the node to nobody and one to a job, both in this hour.
    fn charge_hour(journal: &mut SqliteJournal, first_seq: Seq, hour: u32) -> Seq {
        let tick = Tick { now: Timestamp(first_seq.0 * HOUR_MS), resumed: false, delivered: 0 };
        let batch = Batch { version: APPLY_VERSION, first_seq, tick, events: Vec::new(), decisions: Vec::new() };
        let (job, attempt, offering) = (JobId(u64::from(hour % 3)), Attempt(0), OfferingId(0));
        let (slot, pool, price) = (LedgerSlot(4 * hour), BilledPool(0), Rate(1_000_000));
        let idle = ChargeKey { slot, job: None, attempt, kind: ChargeKind::Idle, pool, offering, price };
        let lost = ChargeKey { job: Some(job), kind: ChargeKind::Lost, ..idle };
        let charges = [idle, lost].map(|key| Charge { key, amount: 1000 * 3_600_000 }).to_vec();
        let queue = format!("queue-{}", job.0);
        let jobs = vec![BilledJob { job, queue, tier: "normal".to_owned(), ..BilledJob::default() }];
        let charges = BatchCharges { charges, jobs };
        journal.append_many(&[JournalEntry { charges: &charges, ..JournalEntry::of(&batch) }]).unwrap();
        batch.next_seq()
    }

    #[test]
    fn a_ledger_that_takes_several_reads_is_told_when_all_of_it_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = SqliteJournal::create(folder.path(), 7).unwrap();
        let mut basis = CostBasis::with_pools(1);
        for hour in 0..40 {
            basis.upto = charge_hour(&mut journal, basis.upto, hour);
            if hour % 10 == 9 {
                journal.begin_snapshot_of(chunks_of(&hour.to_le_bytes()));
                journal.settle();
            }
        }
        let archive = journal.archive_reader().unwrap();
        let whole = |basis: &CostBasis| {
            let read = SpendAccounts::default().at(basis, &archive, &mut to_the_end).unwrap();
            let AccountsRead::Whole(lines) = read else { panic!("{read:?}") };
            lines
        };
        let mut accounts = SpendAccounts::default();
        let mut reads = 0;
        // Batches come between two reads, some of hours that were read already.
        let told = loop {
            match accounts.at(&basis, &archive, &mut up_to_four).unwrap() {
                AccountsRead::Whole(lines) => break lines,
                AccountsRead::Partial => reads += 1,
                AccountsRead::Passed => panic!("nothing is added up meanwhile"),
            }
            basis.upto = charge_hour(&mut journal, basis.upto, reads * 17 % 60);
        };
        assert!(reads > 5, "{reads} reads");
        assert_eq!(told, whole(&basis));
        let dollars: i128 = told
            .iter()
            .filter_map(|(line, sum)| matches!(line, AccountLine::Queue(..)).then_some(sum.micro_dollars))
            .sum();
        assert_eq!(dollars, 2_000_000 * i128::from(40 + reads), "each hour of the node is a dollar");
        // What was added up by the journal meanwhile is read again, and told when that is done. Until then counters stay what they were.
        for hour in 60..90 {
            basis.upto = charge_hour(&mut journal, basis.upto, hour);
            if hour % 10 == 9 {
                journal.begin_snapshot_of(chunks_of(&hour.to_le_bytes()));
                journal.settle();
            }
        }
        assert_eq!(accounts.at(&basis, &archive, &mut up_to_four).unwrap(), AccountsRead::Whole(told));
        assert!(!matches!(accounts.reach, LedgerReach::All), "it is not read to its end");
        let read = accounts.at(&basis, &archive, &mut to_the_end).unwrap();
        assert_eq!(read, AccountsRead::Whole(whole(&basis)));
    }
}

//! What was spent until now, by queue, tier and billed label, and what was wasted: sums that are kept up with the journal.
//!
//! ```text
//! a question, at a position
//!   what batches have charged since the last one (journal)  ->  added to the sums
//!   what is open at the position (state)                    ->  added for this answer alone
//! ```
//!
//! They are what a bill of everything says at the same position, where a name has a line of its own. Never: more names than are allowed lines of
//! their own; the others share one. Never less than was told before.

use super::basis::CostBasis;
use super::group::{Sum, apart, label};
use crate::journal::{ArchiveReader, JournalError, SpendQuery, SpendRead};
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

/// All lines, up to a position.
#[derive(Debug, Default)]
pub struct SpendAccounts {
    upto: Option<Seq>,
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
    /// All lines at a position, after the journal's charges up to there have been added. `None`: it has passed that position, so ask for a later
    /// one.
    ///
    /// # Errors
    /// The journal cannot be read, or a row is damaged.
    pub fn at(
        &mut self,
        basis: &CostBasis,
        archive: &ArchiveReader,
    ) -> Result<Option<BTreeMap<AccountLine, AccountSum>>, JournalError> {
        if self.upto.is_some_and(|upto| upto > basis.upto) || !self.catch_up(basis, archive)? {
            return Ok(None);
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
        Ok(Some(self.told.clone()))
    }

    /// Adds what has been charged since, or all of it.
    fn catch_up(&mut self, basis: &CostBasis, archive: &ArchiveReader) -> Result<bool, JournalError> {
        if self.labels != basis.labels {
            self.labels.clone_from(&basis.labels);
            self.upto = None;
        }
        if let Some(from) = self.upto
            && let Some(between) = archive.charged_between(from, basis.upto)?
        {
            for Charge { key, amount } in &between.charges {
                self.names.add(&mut self.sums, basis, (key, *amount), &between.jobs);
            }
            self.upto = Some(basis.upto);
            return Ok(true);
        }
        let SpendRead::Found { charges, jobs } = archive.spend(&SpendQuery::all(basis.upto))? else { return Ok(false) };
        self.sums.clear();
        for (key, amount) in &charges {
            self.names.add(&mut self.sums, basis, (key, *amount), &jobs);
        }
        self.upto = Some(basis.upto);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::family::text;
    use crate::metrics::spend::families;
    use forebay_kernel::ids::{Attempt, OfferingId};
    use forebay_kernel::state::billing::{BilledPool, LedgerSlot};
    use forebay_kernel::units::Rate;

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
}

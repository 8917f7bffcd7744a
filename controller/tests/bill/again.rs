//! A bill made again from the batches of a journal alone, and compared with all that states one: the engine's rows, the summary, metrics, the
//! accounts, the figures of the page, and the bill of the folder. Tests of live runs include this file by its path.
//!
//! Never: the ledger's own arithmetic on the side that is made again.

#[path = "../../../crates/kernel/tests/bill/recomputed.rs"]
pub mod recomputed;
#[path = "rows.rs"]
pub mod rows;

use forebay::cost::{
    AccountLine, AccountSum, AccountsRead, BillScope, CostBasis, CostBy, CostRange, SpendAccounts, Timeline,
    TimelinePeriod, bill, cents_of_rows, of_folder, ranged,
};
use forebay::document::write::summary;
use forebay::journal::{ArchiveReader, RecoveredPart, SpendTotals, SqliteJournal};
use forebay::metrics::engine::cluster;
use forebay::metrics::family::text;
use forebay_kernel::ids::JobId;
use forebay_kernel::journal::Batch;
use forebay_kernel::machine::StateMachine;
use forebay_kernel::state::State;
use forebay_kernel::state::billing::{BilledJob, Charge};
use forebay_wire::document::cost::CostDocument;
use rows::Named;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

/// Kinds of which the counter of metrics may be ahead of the bill: what was lost and turns out to have been saved is not taken back there.
const MAY_BE_AHEAD: [&str; 2] = ["lost", "lingering"];

/// Where a journal was when something was asked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Position {
    /// Of the next record.
    pub seq: u64,
    /// The engine's time, in ms since 1970.
    pub now_ms: u64,
}

impl Position {
    /// Of a state between two batches.
    pub fn of(state: &State) -> Position {
        Position { seq: state.counters().next_seq, now_ms: state.now().0 }
    }
}

/// Lines of accounts by what they are by and under which name: micro-dollars, and of how many rounded points.
pub type NamedSums = BTreeMap<(String, String), (i64, i64)>;

/// How the bill of a folder is made again.
#[derive(Clone, Copy, Debug)]
pub struct Recount<'a> {
    /// The folder of the journal.
    pub folder: &'a Path,
    /// By what it is compared.
    pub by: &'a [&'a str],
    /// How often it is compared on the way; at the end it is in any case.
    pub samples: usize,
    /// How long a slot of the ledger is.
    pub slot_ms: u64,
}

impl Recount<'_> {
    /// Makes it again record by record, and compares it with everything else on the way and at the end.
    pub fn made(&self) -> Named {
        self.made_with(|_, _| {})
    }

    /// The same, with something done after each batch.
    pub fn made_with(&self, mut after: impl FnMut(Position, &Named)) -> Named {
        let all = batches(self.folder);
        let (mut machine, mut expected) = (StateMachine::default(), Named::in_slots_of(self.slot_ms));
        let mut sums = Sums::of(self.folder);
        let every = (all.len() / self.samples.max(1)).max(1);
        let mut compared = 0;
        for (at, batch) in (1..).zip(&all) {
            expected.bill.pass_time(&machine, batch.tick.now);
            machine.apply_tick(batch.tick, batch.version);
            expected.look(&machine);
            for event in &batch.events {
                let _ = machine.apply_event(event);
                expected.look(&machine);
            }
            for decision in &batch.decisions {
                let _ = machine.apply_decision(decision);
                expected.look(&machine);
            }
            let charged = machine.charged();
            sums.add(charged.charges, charged.jobs);
            if at % every == 0 || at == all.len() {
                sums.agree(&machine, self.by, &expected);
                compared += 1;
            }
            after(Position::of(&machine), &expected);
        }
        for by in self.by {
            let stated = of_folder(self.folder, &by.parse().unwrap(), &CostRange::default(), &BillScope::All).unwrap();
            agrees(by, &stated, &expected, "the folder");
        }
        assert!(compared >= self.samples.min(all.len()), "{compared} of {} positions", self.samples);
        println!("made again from {} batches, compared at {compared} positions", all.len());
        expected
    }
}

/// What is added up from the charges of batches.
struct Sums {
    charges: SpendTotals,
    jobs: BTreeMap<JobId, BilledJob>,
    accounts: SpendAccounts,
    archive: ArchiveReader,
}

impl Sums {
    fn of(folder: &Path) -> Sums {
        let archive = ArchiveReader::open(folder).unwrap();
        Sums { charges: SpendTotals::new(), jobs: BTreeMap::new(), accounts: SpendAccounts::default(), archive }
    }

    fn add(&mut self, charges: Vec<Charge>, jobs: Vec<BilledJob>) {
        for Charge { key, amount } in charges {
            *self.charges.entry(key).or_default() += amount;
        }
        for job in jobs {
            self.jobs.entry(job.job).or_insert(job);
        }
    }

    /// All that states a bill states the same at the position of this state.
    fn agree(&mut self, machine: &StateMachine, by: &[&str], expected: &Named) {
        let basis = CostBasis::of(machine);
        let (charges, jobs) = ranged(&basis, self.charges.clone(), self.jobs.clone(), &CostRange::default()).unwrap();
        let position = format!("{:?}", Position::of(machine));
        let read = self.accounts.at(&basis, &self.archive, &mut |_| ControlFlow::Continue(())).unwrap();
        let AccountsRead::Whole(accounts) = read else { panic!("nothing was added up yet: {read:?}") };
        accounts_agree(&named_sums(&accounts), by, expected, &position);
        for by in by {
            let rows = bill(&by.parse().unwrap(), &basis, &charges, &jobs);
            agrees(by, &rows, expected, &position);
            cents_agree(by, &rows, &position);
        }
        let total = bill(&CostBy::Queue, &basis, &charges, &jobs);
        assert_eq!(summary(machine).cost_usd.to_string(), total.total_usd.to_string(), "summary at {position}");
        let (spend, lines) = scraped(&text(cluster(machine)).unwrap());
        spend_agrees(spend, lines, micro(total.total_usd), &position);
        let timeline = Timeline::of(&CostBy::Kind, &basis, &charges, &jobs, &CostRange::default());
        let cents: i128 = timeline.periods.iter().map(TimelinePeriod::total_cents).sum();
        assert_eq!(cents, cents_of_rows(&total).1, "what the page draws at {position}");
    }
}

/// All batches of a journal that is short enough to have them all.
pub fn batches(folder: &Path) -> Vec<Batch> {
    let mut all = Vec::new();
    let mut take = |part: RecoveredPart<'_, '_>| {
        match part {
            RecoveredPart::Start => {}
            RecoveredPart::Snapshot(_) => panic!("it begins with a snapshot"),
            RecoveredPart::Batch(batch) => all.push(batch.clone()),
        }
        Ok(())
    };
    let _ = SqliteJournal::open(folder, &mut take).unwrap();
    all
}

/// Dollars in micro-dollars.
pub fn micro(usd: f64) -> i64 {
    (usd * 1e6).round() as i64
}

/// The rows of a bill are those that were made again.
pub fn agrees(by: &str, found: &CostDocument, expected: &Named, at: &str) {
    let rows = expected.rows(by);
    let found_rows: BTreeMap<String, [i64; 3]> = found
        .rows
        .iter()
        .map(|row| {
            // Where nothing was bought there is no ratio; the other program has 0 there.
            let ratio = row.spot_ratio.unwrap_or(0.0);
            (row.key.clone(), [row.cost_usd, row.gpu_hours, ratio].map(micro))
        })
        .collect();
    assert_eq!(found_rows, rows, "by {by} at {at}");
    let (sum, total) = (rows.values().map(|row| row[0]).sum::<i64>(), micro(found.total_usd));
    assert_eq!(sum, total, "by {by} at {at}: the rows are not the total");
}

/// The cents that the page shows of a bill are its rows, each to less than a cent, and add up to its total.
fn cents_agree(by: &str, found: &CostDocument, at: &str) {
    let (rows, total) = cents_of_rows(found);
    assert_eq!(total, i128::from(cents_of(micro(found.total_usd))), "by {by} at {at}");
    assert_eq!(rows.iter().sum::<i128>(), total, "by {by} at {at}: the cents of the rows are not the total's");
    for (row, cents) in found.rows.iter().zip(rows) {
        assert!((cents * 10_000 - i128::from(micro(row.cost_usd))).abs() < 10_000, "by {by} at {at}: {row:?}, {cents}");
    }
}

/// Micro-dollars in cents, half a cent up.
pub fn cents_of(micro: i64) -> i64 {
    (micro + 5_000).div_euclid(10_000)
}

/// What all nodes cost by a scrape, in micro-dollars, and of how many points.
pub fn scraped(text: &str) -> (i64, i64) {
    let values: Vec<f64> = text
        .lines()
        .filter(|line| line.starts_with("forebay_spend_usd_total{"))
        .map(|line| line.rsplit(' ').next().unwrap().parse().unwrap())
        .collect();
    assert!(!values.is_empty(), "{text}");
    (values.iter().map(|usd| micro(*usd)).sum(), values.len() as i64)
}

/// Each point of a scrape is rounded by itself: a counter never goes back.
pub fn spend_agrees(spend: i64, lines: i64, total: i64, at: &str) {
    assert!((spend - total).abs() * 2 <= lines, "metrics at {at}: {spend}, {total}");
}

/// The lines of accounts by name, those of one name together.
fn named_sums(accounts: &BTreeMap<AccountLine, AccountSum>) -> NamedSums {
    let mut found = NamedSums::new();
    for (line, sum) in accounts {
        let key = match line {
            AccountLine::Queue(name, _) => ("queue".to_owned(), name.clone()),
            AccountLine::Tier(name, _) => ("tier".to_owned(), name.clone()),
            AccountLine::Label(name, value, _) => (format!("label:{name}"), value.clone()),
            AccountLine::Waste(kind, _) => ("kind".to_owned(), kind.as_str().to_owned()),
        };
        let row = found.entry(key).or_default();
        *row = (row.0 + sum.micro_dollars as i64, row.1 + 1);
    }
    found
}

/// The accounts that metrics have are the bill's rows: each line rounded by itself, what is nobody's together.
pub fn accounts_agree(found: &NamedSums, by: &[&str], expected: &Named, at: &str) {
    let mut rows: BTreeMap<(String, String), i64> = BTreeMap::new();
    let of_accounts = |by: &&&str| matches!(**by, "queue" | "tier" | "kind") || by.starts_with("label:");
    for by in by.iter().filter(of_accounts) {
        for (key, [micro, ..]) in expected.rows(by) {
            let name = match *by {
                "kind" if key == "worked" => continue,
                "kind" => key,
                _ if key.starts_with("(no ") => "(none)".to_owned(),
                _ if key.starts_with('(') => "(nobody)".to_owned(),
                _ => key,
            };
            *rows.entry(((*by).to_owned(), name)).or_default() += micro;
        }
    }
    for (by, name) in found.keys() {
        let is_ahead = by == "kind" && MAY_BE_AHEAD.contains(&name.as_str());
        assert!(is_ahead || rows.contains_key(&(by.clone(), name.clone())), "{by} {name} at {at} is no row");
    }
    for ((by, name), micro) in rows {
        let (counted, lines) = found.get(&(by.clone(), name.clone())).copied().unwrap_or_default();
        let is_ahead = by == "kind" && MAY_BE_AHEAD.contains(&name.as_str()) && counted > micro;
        assert!(
            is_ahead || (counted - micro).abs() <= lines,
            "{by} {name} at {at}: {counted} on {lines} lines, and it is {micro}"
        );
    }
}

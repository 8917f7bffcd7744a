//! The bill against one that is made again from the journal's batches alone, by a program that shares no code with the ledger: by queue,
//! label, day, kind and all the rest, to the micro-dollar, in the middle of a run and at its end, undisturbed and killed again and again; of the
//! example day, of a replay that is served, and of the traces in a folder `shared/traces` beside a parent of this crate.
//!
//! `FOREBAY_BILL_SAMPLES` is at how many positions all is compared, `FOREBAY_BILL_ROWS` how many rows of each trace are replayed.

mod again;
mod focus;
mod served;
mod traces;

use again::recomputed::HOUR;
use again::rows::Named;
use again::{Recount, micro};
use forebay::cost::{
    BillScope, CostBasis, CostBy, CostRange, PriceComparison, Timeline, TimelinePeriod, bill, cents_of_rows,
    folder_job_cost, of_folder, ranged, scoped_bill,
};
use forebay::driver::{ClockMode, Feed, Finished, LoopEnd, Settings, WorldMaker, load, start};
use forebay::intake::PolicyRoutes;
use forebay::journal::{FILE, read_folder_spend};
use forebay_catalog::Catalogue;
use forebay_kernel::ids::JobId;
use forebay_kernel::policy::Policy;
use forebay_policy::compile;
use forebay_sim::market::Market;
use forebay_sim::world::{WorldOptions, spot_pairs};
use forebay_wire::document::cost::CostDocument;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const BY: [&str; 11] =
    ["queue", "tenant", "tier", "label:team", "label:costCenter", "pool", "capacity", "type", "kind", "day", "job"];

/// The zone of the policy, where a test is not about another one.
const ZONE: &str = "Europe/Berlin";

/// A number of how much is compared: from the environment, else what is quick.
fn number(variable: &str, quick: usize) -> usize {
    let given = std::env::var(variable).ok();
    given.map_or(quick, |text| text.parse().unwrap_or_else(|e| panic!("{variable}={text}: {e}")))
}

/// Positions at which all that states a bill is compared.
fn samples() -> usize {
    number("FOREBAY_BILL_SAMPLES", 100)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A market that takes nodes back, so that work is lost.
fn world() -> WorldMaker {
    Box::new(|policy, origin| {
        let market = Market::seeded(7, &spot_pairs(policy), 30 * 86_400_000);
        WorldOptions { origin, ..WorldOptions::new(7, market) }
    })
}

/// The example day, billed by two labels in the days of a zone that is not UTC.
fn day(folder: &Path, zone: &str) -> Settings {
    day_of(&root().join("examples/day.jsonl"), folder, zone)
}

/// The same of the events in a file.
fn day_of(events: &Path, folder: &Path, zone: &str) -> Settings {
    replay(folder, zone, |policy| load(events, None, policy).unwrap().feed)
}

/// A replay of a feed that is made under the policy.
fn replay(folder: &Path, zone: &str, feed: impl FnOnce(&Policy) -> Feed) -> Settings {
    let mut text = std::fs::read_to_string(root().join("policies/spot-first.yaml")).unwrap();
    text.push_str(&format!("\nbilling: {{labels: [team, costCenter], zone: {zone}}}\n"));
    let compiled = compile("spot-first.yaml", &text, &Catalogue::builtin()).unwrap();
    let feed = feed(&compiled.policy);
    Settings {
        policy: Some((text, compiled.policy)),
        routes: Arc::new(PolicyRoutes::new(compiled.routes)),
        clock: ClockMode::Max,
        feed: Some(feed),
        exit_when_drained: true,
        ..Settings::new(folder.to_owned(), world())
    }
}

/// The bill of a folder made again, compared so often on the way.
fn made_again(folder: &Path, samples: usize, slot_ms: u64) -> Named {
    Recount { folder, by: &BY, samples, slot_ms }.made()
}

fn finished(settings: Settings) -> Finished {
    let finished = start(settings).unwrap().join().unwrap();
    assert_eq!(finished.audit, [""; 0]);
    finished
}

#[test]
fn a_day_is_billed_as_it_is_made_again_from_its_batches() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(finished(day(folder.path(), ZONE)).end, LoopEnd::Drained);
    let expected = made_again(folder.path(), samples(), HOUR);
    let kinds = expected.rows("kind");
    for kind in ["worked", "lost", "boot", "idle", "booked", "fragmentation"] {
        assert!(kinds.get(kind).is_some_and(|row| row[0] > 0), "nothing was {kind}: {kinds:?}");
    }
    assert!(expected.rows("day").len() >= 2 && expected.rows("label:team").len() >= 4, "{:?}", expected.rows("day"));
    days_are_the_ranges_of_days(folder.path(), &expected);
    rows_are_made_of_their_parts(folder.path());
    time_adds_up(folder.path());
    nobodys_time_is_spread_by_use(folder.path(), &expected);
    let invoices = focus::the_dataset_obeys_its_columns_and_is_the_bill(folder.path(), &expected);
    assert_eq!(invoices.len(), 1, "{invoices:?}");
    let mistyped = "label:taem".parse().unwrap();
    let refused = of_folder(folder.path(), &mistyped, &CostRange::default(), &BillScope::All).unwrap_err();
    assert!(refused.to_string().contains("`team`"), "{refused}");
}

/// Each row has its part of what its pools cost with nothing of anybody's on them, and the total is the same.
fn nobodys_time_is_spread_by_use(folder: &Path, expected: &Named) {
    for by in ["queue", "tenant", "tier", "label:team", "job"] {
        let of = |scope| of_folder(folder, &by.parse().unwrap(), &CostRange::default(), scope).unwrap();
        let (plain, spread) = (of(&BillScope::All), of(&BillScope::Spread));
        assert_eq!(micro(spread.total_usd), micro(plain.total_usd), "by {by}");
        assert_eq!(spread.rows.iter().map(|row| micro(row.cost_usd)).sum::<i64>(), micro(plain.total_usd), "by {by}");
        let hours = |bill: &CostDocument| bill.rows.iter().map(|row| row.gpu_hours).sum::<f64>();
        assert!((hours(&spread) - hours(&plain)).abs() < 1e-3, "by {by}");
        let rows = expected.spread(by);
        assert_eq!(spread.rows.iter().map(|row| &row.key).collect::<Vec<_>>(), rows.keys().collect::<Vec<_>>());
        for row in &spread.rows {
            assert!((row.cost_usd - rows[&row.key]).abs() < 1e-4, "by {by}: {row:?}, {}", rows[&row.key]);
        }
    }
    let refused = of_folder(folder, &CostBy::Pool, &CostRange::default(), &BillScope::Spread).unwrap_err();
    assert!(refused.to_string().contains("ask by queue"), "{refused}");
}

/// What is in a row of one bill, by anything else, adds up to that row; and over all rows each part adds up to its own row.
fn rows_are_made_of_their_parts(folder: &Path) {
    let found = read_folder_spend(folder).unwrap();
    let basis = CostBasis::of(&found.machine);
    let (charges, jobs) = ranged(&basis, found.charges, found.jobs, &CostRange::default()).unwrap();
    let of = |by: &str, scope: &BillScope| {
        scoped_bill(&by.parse().unwrap(), scope, basis.clone(), charges.clone(), &jobs).unwrap()
    };
    for outer in ["capacity", "queue", "label:team", "kind", "day"] {
        for inner in ["tenant", "capacity", "kind", "pool"] {
            let mut parts: BTreeMap<String, i64> = BTreeMap::new();
            let rows = of(outer, &BillScope::All).rows;
            for row in &rows {
                let subset = format!("{outer}={}", row.key).parse().unwrap();
                let part = of(inner, &BillScope::Of(vec![subset]));
                assert!(
                    (micro(part.total_usd) - micro(row.cost_usd)).abs() <= 1,
                    "{outer} {row:?}: {}",
                    part.total_usd
                );
                for row in part.rows {
                    *parts.entry(row.key).or_default() += micro(row.cost_usd);
                }
            }
            for row in of(inner, &BillScope::All).rows {
                let sum = parts.remove(&row.key).unwrap_or_default();
                // Each part is rounded by less than a micro-dollar.
                assert!((sum - micro(row.cost_usd)).abs() <= rows.len() as i64, "{inner} {row:?} of {outer}: {sum}");
            }
            assert!(parts.is_empty(), "{inner} of {outer}: {parts:?}");
        }
    }
}

/// Hours of a day, however they are split, add up to the bill in cents.
fn time_adds_up(folder: &Path) {
    let found = read_folder_spend(folder).unwrap();
    let basis = CostBasis::of(&found.machine);
    let (charges, jobs) = ranged(&basis, found.charges, found.jobs, &CostRange::default()).unwrap();
    let whole = bill(&CostBy::Queue, &basis, &charges, &jobs);
    let (_, cents) = cents_of_rows(&whole);
    for by in BY {
        let timeline = Timeline::of(&by.parse().unwrap(), &basis, &charges, &jobs, &CostRange::default());
        assert_eq!(timeline.periods.iter().map(TimelinePeriod::total_cents).sum::<i128>(), cents, "by {by}");
        let rows = bill(&by.parse().unwrap(), &basis, &charges, &jobs).rows;
        let named = |column: &&String| rows.iter().any(|row| row.key == **column) || column.ends_with(" others)");
        assert_eq!(
            timeline.columns.iter().find(|column| !named(column)),
            None,
            "by {by}: a column is a row of the bill"
        );
        assert!(timeline.periods.len() > 20, "a day has hours: {}", timeline.periods.len());
        let begins: Vec<i64> = timeline.periods.iter().filter_map(|period| period.begins_local_s).collect();
        assert!(begins.windows(2).all(|two| two[1] - two[0] == 3_600), "no hour is left out: {begins:?}");
    }
    let compared = PriceComparison::of(&basis, &charges);
    let total = i128::from(micro(whole.total_usd));
    assert!((compared.paid - total).abs() <= 1, "all of it was bought: {compared:?}, {total}");
    assert!(compared.paid < compared.on_demand && compared.on_demand <= compared.static_peak, "{compared:?}");
}

/// A bill of one day has what the bill by day says of it.
fn days_are_the_ranges_of_days(folder: &Path, expected: &Named) {
    let days: Vec<String> = expected.rows("day").into_keys().collect();
    for (at, day) in days.iter().enumerate() {
        let range = CostRange { from: Some(day.clone()), to: days.get(at + 1).cloned() };
        let found = of_folder(folder, &CostBy::Kind, &range, &BillScope::All).unwrap();
        let of_day = expected.rows("day")[day][0];
        assert!((micro(found.total_usd) - of_day).abs() <= 1, "{day}: {found:?}, {of_day}");
    }
    let within = CostRange { from: Some("2026-11-02T10:20:00Z".to_owned()), to: None };
    let refused = of_folder(folder, &CostBy::Kind, &within, &BillScope::All).unwrap_err().to_string();
    assert!(refused.contains("within an hour") && refused.contains("full hour"), "{refused}");
}

#[test]
fn slots_end_at_the_midnights_of_a_zone_that_is_half_an_hour_off() {
    let (folder, events) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // The last day of a month: the next one begins at half past six in the evening, UTC.
    let day = std::fs::read_to_string(root().join("examples/day.jsonl")).unwrap();
    let day = day.replace("2026-11-03", "2026-11-01").replace("2026-11-02", "2026-10-31");
    let file = events.path().join("day.jsonl");
    std::fs::write(&file, day).unwrap();
    assert_eq!(finished(day_of(&file, folder.path(), "Asia/Kolkata")).end, LoopEnd::Drained);
    let expected = made_again(folder.path(), samples() / 10, HOUR / 2);
    days_are_the_ranges_of_days(folder.path(), &expected);
    let invoices = focus::the_dataset_obeys_its_columns_and_is_the_bill(folder.path(), &expected);
    assert_eq!(invoices.into_iter().collect::<Vec<_>>(), ["forebay-2026-10", "forebay-2026-11"]);
}

/// What jobs that hold nodes cost, each by itself, is their row of the bill: what they use now is in both. Returns how many were compared.
fn open_jobs_cost_their_rows(folder: &Path) -> usize {
    let bill = of_folder(folder, &CostBy::Job, &CostRange::default(), &BillScope::All).unwrap();
    let machine = read_folder_spend(folder).unwrap().machine;
    let open: BTreeSet<JobId> = machine.open_charges().iter().filter_map(|charge| charge.key.job).collect();
    let some = open.iter().take(3);
    for id in some.clone() {
        let cost = folder_job_cost(folder, *id).unwrap();
        let row = bill.rows.iter().find(|row| row.key == id.to_string()).expect("a row of the bill");
        // Each of the two is rounded by itself.
        assert!((cost.cost_usd - row.cost_usd).abs() < 2e-6, "{cost:?}, {row:?}");
    }
    some.count()
}

#[test]
fn a_day_that_is_killed_again_and_again_is_billed_once() {
    let folder = tempfile::tempdir().unwrap();
    let (mut seed, mut kills, mut open_jobs) = (0x5eed_u64, 0, 0);
    loop {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let resume = folder.path().join(FILE).exists();
        let dies_after = (kills < 20).then_some(60 + (seed >> 33) % 150);
        let finished = finished(Settings { resume, dies_after, ..day(folder.path(), ZONE) });
        // It adds up after each of them: `of_folder` compares the rows with what all nodes cost.
        let bill = of_folder(folder.path(), &CostBy::Kind, &CostRange::default(), &BillScope::All).unwrap();
        assert!(bill.total_usd >= 0.0);
        if finished.end == LoopEnd::Drained {
            break;
        }
        open_jobs += open_jobs_cost_their_rows(folder.path());
        kills += 1;
    }
    assert!(kills >= 5, "{kills} kills");
    assert!(open_jobs > 0, "some job ran when it was killed");
    let _ = made_again(folder.path(), samples() / 10, HOUR);
}

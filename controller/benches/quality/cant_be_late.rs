//! One task of 48 hours on recorded spot availability, never late: Can't Be Late (NSDI 2024).
//!
//! ```text
//! series of availability, windows -> one simulation for each window and deadline -> mean cost
//! ```
//!
//! What is approximated: progress is saved every ten minutes and at each announced reclaim, and one reclaim of ten is not announced; a
//! reclaimed node goes on for the two minutes of its notice. The published simulations save everything and decide every ten minutes.
//!
//! Never: tells the engine what will be available. It learns that from what it asks for.

use crate::arguments::Arguments;
use crate::figures::ComparedFigure;
use crate::{inputs, made};
use forebay_catalog::input::{CsvTable, open};
use forebay_kernel::policy::Policy;
use forebay_sim::drive::{AuditSchedule, SimOptions, simulate};
use forebay_sim::market::{Market, MarketState};
use forebay_sim::trace::{Trace, TraceFormat, TraceJob};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const HOUR_MS: u64 = 3_600_000;
const TICK_MS: u64 = 600_000;
const TASK_MS: u64 = 48 * HOUR_MS;
const RESTART_MS: u64 = 720_000;
const DEADLINES_H: [u64; 3] = [52, 70, 92];

/// Who published what, by deadline: mean cost over all 2,400 windows.
const PUBLISHED: [[(&str, f64); 3]; 3] = [
    [("greedy", 129.20), ("uniform progress", 122.82), ("on-demand", 147.90)],
    [("greedy", 106.45), ("uniform progress", 97.98), ("on-demand", 147.90)],
    [("greedy", 87.72), ("uniform progress", 87.79), ("on-demand", 147.90)],
];

/// From when on a series is looked at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Window {
    series: String,
    start_ms: u64,
}

/// When availability changes, and to what.
type Changes = Vec<(u64, bool)>;

pub fn run(arguments: &Arguments) -> Result<Vec<ComparedFigure>, String> {
    let (trace, own_trace) = inputs::given_or(arguments.trace.as_ref(), "spot_availability_dev.csv");
    let series = match trace {
        Some(path) => read_series(&path)?,
        None => made::availability(1).into_iter().collect(),
    };
    let published = (!own_trace).then(|| inputs::published("expected/cbl_windows.csv")).flatten();
    let own = own_trace || arguments.windows.is_some();
    let windows = match arguments.windows.clone().or(published) {
        Some(path) => read_windows(&path)?,
        None => spread_windows(&series),
    };
    let windows: Vec<Window> = windows.into_iter().step_by(arguments.every).collect();
    if windows.is_empty() {
        return Err("the file of windows has none".to_owned());
    }
    let policy = inputs::policy("cant-be-late")?;
    let mut rows = Vec::new();
    let mut late = 0;
    for (deadline, published) in DEADLINES_H.into_iter().zip(PUBLISHED) {
        let mut sum = 0.0;
        for window in &windows {
            let changes = series.get(&window.series).ok_or_else(|| format!("no series `{}`", window.series))?;
            let (cost, missed) = one(&policy, changes, window.start_ms, deadline * HOUR_MS)?;
            if std::env::var_os("FOREBAY_SHOW").is_some() {
                println!("{} {} {deadline} {cost:.3} {missed}", window.series, window.start_ms / TICK_MS);
            }
            sum += cost;
            late += missed;
        }
        let published = if own || arguments.every > 1 { Vec::new() } else { published.to_vec() };
        let metric = format!("mean_cost_usd_{deadline}h");
        rows.push(ComparedFigure { metric, figure: sum / windows.len() as f64, unit: "USD", published });
    }
    let none = if own { Vec::new() } else { vec![("all", 0.0)] };
    rows.push(ComparedFigure { metric: "late".to_owned(), figure: late as f64, unit: "tasks", published: none });
    Ok(rows)
}

/// Cost of one task, and whether it was late.
fn one(policy: &Policy, changes: &Changes, start_ms: u64, deadline_ms: u64) -> Result<(f64, u64), String> {
    let pairs = forebay_sim::world::spot_pairs(policy);
    let state = |had: bool| if had { MarketState::CALM } else { MarketState::NOTHING };
    let before = changes.iter().take_while(|(at, _)| *at <= start_ms).last().is_some_and(|(_, had)| *had);
    let after = changes.iter().filter(|(at, _)| *at > start_ms).map(|(at, had)| (at - start_ms, state(*had)));
    let market = Market::following(&pairs, std::iter::once((0, state(before))).chain(after).collect());
    let job = TraceJob {
        id: "task".to_owned(),
        duration_ms: TASK_MS,
        estimate_ms: Some(TASK_MS),
        gpus: 1,
        gpu_milli: 1000,
        deadline_ms: Some(deadline_ms),
        restart_ms: Some(RESTART_MS),
        checkpoint_every_ms: Some(TICK_MS),
        ..TraceJob::default()
    };
    let name = "task".to_owned();
    let trace = Trace { name, format: TraceFormat::Normalized, jobs: vec![job], notes: Vec::new() };
    let options = SimOptions { audit: AuditSchedule::AtEnd, ..SimOptions::new(1, market) };
    let outcome = simulate(policy.clone(), &trace, options).map_err(|e| e.to_string())?;
    if !outcome.violations.is_empty() || outcome.scorecard.completed != 1 {
        return Err(format!("the task did not end well: {:?}", outcome.violations));
    }
    Ok((outcome.scorecard.cost_usd, outcome.scorecard.deadline_misses))
}

/// The series of a file of recorded availability, by zone and kind of instance as the windows call them.
fn read_series(path: &Path) -> Result<BTreeMap<String, Changes>, String> {
    let fault = |e: forebay_catalog::input::InputError| e.to_string();
    let mut table = CsvTable::new(open(path).map_err(fault)?).map_err(fault)?;
    table.require(&["dataset", "t_s", "zone", "instance_type", "available"]).map_err(fault)?;
    let mut series: BTreeMap<String, Changes> = BTreeMap::new();
    while let Some(row) = table.next_row().map_err(fault)? {
        let kind = row.text("instance_type").to_owned();
        let gpu = if kind.starts_with("p2") { "k80" } else { "v100" };
        let count = if kind.ends_with(".16xlarge") { 8 } else { 1 };
        if !row.text("dataset").contains("1-node") {
            continue;
        }
        let name = format!("{}_{gpu}_{count}", row.text("zone"));
        let had = row.whole("available", 1_000_000).map_err(fault)? > 0;
        series.entry(name).or_default().push((row.ms("t_s").map_err(fault)?, had));
    }
    Ok(series)
}

/// Windows over series that none are given for: thirty in each, as far as the longest deadline fits.
fn spread_windows(series: &BTreeMap<String, Changes>) -> Vec<Window> {
    let of = |(name, changes): (&String, &Changes)| {
        let end = changes.last().map_or(0, |(at, _)| *at).saturating_sub(DEADLINES_H[2] * HOUR_MS);
        let start = |nth: u64| Window { series: name.clone(), start_ms: end / TICK_MS * nth / 30 * TICK_MS };
        (0..30).map(start).collect::<BTreeSet<Window>>()
    };
    series.iter().flat_map(of).collect()
}

/// Windows, each once.
fn read_windows(path: &Path) -> Result<Vec<Window>, String> {
    let fault = |e: forebay_catalog::input::InputError| e.to_string();
    let mut table = CsvTable::new(open(path).map_err(fault)?).map_err(fault)?;
    table.require(&["env", "start_tick"]).map_err(fault)?;
    let mut windows = BTreeSet::new();
    while let Some(row) = table.next_row().map_err(fault)? {
        let start_ms = row.whole("start_tick", 10_000_000).map_err(fault)? * TICK_MS;
        windows.insert(Window { series: row.text("env").to_owned(), start_ms });
    }
    Ok(windows.into_iter().collect())
}

//! Three months of fractional work, one job a GPU and shared: the figures of a published report, and what they have to be here.
//!
//! ```text
//! workload (sim's example) -> a trace in the target folder -> forebay simulate, under each policy in benches/sharing
//!                                                          -> a table beside the report's figures, and a list as JSON
//! ```
//!
//! The report: three months on a cluster with shares of 0.1 to 1 GPU and three queues, before and after GPUs were shared, spot was
//! used and queues had priorities. Its trace is not public: the one here is generated in its shape (`sim/src/trace/generate/sharing.rs`).
//!
//! Never: a figure of the machine. The same seed gives the same table everywhere.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::ChoreFailure;
use crate::command::{capture, cargo, run as run_command, shown};
use crate::workspace::Workspace;

/// The length of the trace: three months.
const DAYS: u64 = 91;

/// What a figure has to be.
enum Bound {
    From(f64, f64),
    AtLeast(f64),
    AtMost(f64),
    Below(f64),
    Shown,
}

/// One line of the table.
struct Line {
    metric: &'static str,
    what: &'static str,
    unit: &'static str,
    figure: f64,
    bound: Bound,
    /// As the report has it.
    published: f64,
}

/// Generates, simulates twice, compares. Fails where a bound is missed.
pub fn run(workspace: &Workspace, seed: u64, json: Option<&Path>) -> Result<(), ChoreFailure> {
    let folder = workspace.target().join("bench").join("sharing");
    fs::create_dir_all(&folder).map_err(|e| ChoreFailure::new(format!("{}: {e}", folder.display())))?;
    let trace = folder.join(format!("three-months-{seed}.csv"));
    let mut make = cargo(workspace.root());
    make.args(["run", "--release", "-p", "forebay-sim", "--example", "workload", "--", "sharing"]);
    make.args(["--seed", &seed.to_string(), "--days", &DAYS.to_string(), "--out"]).arg(&trace);
    run_command(&mut make)?;
    run_command(cargo(workspace.root()).args(["build", "--release", "-p", "forebay"]))?;
    let before = simulate(workspace, "one-job-a-gpu", &trace, seed)?;
    let after = simulate(workspace, "forebay", &trace, seed)?;
    let lines = lines(&before, &after)?;
    print!("{}", table(&lines));
    if let Some(path) = json {
        let text = serde_json::to_string_pretty(&list(&lines)).map_err(|e| ChoreFailure::new(e.to_string()))?;
        fs::write(path, text + "\n").map_err(|e| ChoreFailure::new(format!("{}: {e}", path.display())))?;
    }
    let missed: Vec<&str> = lines.iter().filter(|line| !line.holds()).map(|line| line.what).collect();
    if missed.is_empty() { Ok(()) } else { Err(ChoreFailure::new(format!("missed: {}", missed.join(", ")))) }
}

/// The scorecard of the trace under a policy of `benches/sharing`; a copy stays beside the trace.
fn simulate(workspace: &Workspace, policy: &str, trace: &Path, seed: u64) -> Result<Value, ChoreFailure> {
    let out = trace.with_file_name(format!("{policy}-{seed}.json"));
    let mut command = Command::new(workspace.forebay_binary());
    command.current_dir(workspace.root()).arg("simulate");
    command.arg("--policy").arg(format!("benches/sharing/{policy}.yaml")).arg("--trace").arg(trace);
    command.args(["--market", "seeded", "--seed", &seed.to_string(), "--json", "-"]);
    eprintln!("$ {}", shown(&command));
    let text = capture(&mut command)?;
    fs::write(&out, &text).map_err(|e| ChoreFailure::new(format!("{}: {e}", out.display())))?;
    serde_json::from_str(&text).map_err(|e| ChoreFailure::new(format!("the scorecard of {policy}: {e}")))
}

#[rustfmt::skip]
fn lines(before: &Value, after: &Value) -> Result<Vec<Line>, ChoreFailure> {
    let of = |card: &Value, at: &str| {
        card.pointer(at).and_then(Value::as_f64).ok_or_else(|| ChoreFailure::new(format!("the scorecard has no {at}")))
    };
    let utilization = |card: &Value| Ok::<f64, ChoreFailure>(100.0 * of(card, "/gpu_hours_busy")? / of(card, "/gpu_hours_bought")?);
    let (spent, spends) = (of(before, "/cost_usd")?, of(after, "/cost_usd")?);
    let broken = of(before, "/gpu_memory_violations")? + of(after, "/gpu_memory_violations")?;
    // A month's spend is the report's own unit.
    let month = DAYS as f64 / 30.4;
    Ok(vec![
        Line { metric: "utilization_before_pct", what: "GPU utilization before", unit: "%", figure: utilization(before)?, bound: Bound::From(28.0, 34.0), published: 31.0 },
        Line { metric: "utilization_pct", what: "GPU utilization", unit: "%", figure: utilization(after)?, bound: Bound::AtLeast(64.0), published: 64.0 },
        Line { metric: "spot_ratio_pct", what: "spot of all GPU-hours", unit: "%", figure: 100.0 * of(after, "/spot_ratio")?, bound: Bound::AtLeast(72.0), published: 72.0 },
        Line { metric: "month_usd_before", what: "spend a month before", unit: "USD", figure: spent / month, bound: Bound::Shown, published: 84_200.0 },
        Line { metric: "month_usd", what: "spend a month", unit: "USD", figure: spends / month, bound: Bound::Shown, published: 52_100.0 },
        Line { metric: "spend_lower_pct", what: "spend lower by", unit: "%", figure: 100.0 * (1.0 - spends / spent), bound: Bound::AtLeast(38.0), published: 38.1 },
        Line { metric: "wait_p95_s_before", what: "p95 wait before", unit: "s", figure: of(before, "/wait_s/p95")?, bound: Bound::Shown, published: 840.0 },
        Line { metric: "wait_p95_s", what: "p95 wait", unit: "s", figure: of(after, "/wait_s/p95")?, bound: Bound::Below(240.0), published: 240.0 },
        Line { metric: "gpu_memory_violations", what: "GPUs out of memory", unit: "", figure: broken, bound: Bound::AtMost(0.0), published: 0.0 },
    ])
}

impl Line {
    fn holds(&self) -> bool {
        match self.bound {
            Bound::From(low, high) => (low..=high).contains(&self.figure),
            Bound::AtLeast(least) => self.figure >= least,
            Bound::AtMost(most) => self.figure <= most,
            Bound::Below(most) => self.figure < most,
            Bound::Shown => true,
        }
    }

    fn bound(&self) -> String {
        match self.bound {
            Bound::From(low, high) => format!("{low} to {high}"),
            Bound::AtLeast(least) => format!("at least {least}"),
            Bound::AtMost(most) => format!("at most {most}"),
            Bound::Below(most) => format!("below {most}"),
            Bound::Shown => String::new(),
        }
    }
}

fn table(lines: &[Line]) -> String {
    // The report's money is euros; only the ratio is compared.
    let mut out = format!("{:<24} {:>10} {:<4} {:>14} {:>10}\n", "", "here", "", "has to be", "report");
    for line in lines {
        let mark = if line.holds() { "" } else { "  MISSED" };
        let (figure, bound) = (format!("{:.1}", line.figure), line.bound());
        out += &format!("{:<24} {figure:>10} {:<4} {bound:>14} {:>10}{mark}\n", line.what, line.unit, line.published);
    }
    out
}

fn list(lines: &[Line]) -> Value {
    let of = |line: &Line| {
        let figure = (line.figure * 1000.0).round() / 1000.0;
        let (metric, unit) = (line.metric, line.unit);
        json!({"name": "sharing", "metric": metric, "figure": figure, "unit": unit, "published": {"report": line.published}})
    };
    lines.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(busy: f64, cost: f64) -> Value {
        json!({"gpu_hours_busy": busy, "gpu_hours_bought": 100.0, "cost_usd": cost, "spot_ratio": 0.8,
               "gpu_memory_violations": 0, "wait_s": {"p95": 200.0}})
    }

    #[test]
    fn each_bound_can_be_missed_and_is_marked() {
        let lines_of = |before, after| lines(&card(before, 100.0), &card(after, 50.0)).expect("it has all keys");
        assert!(lines_of(31.0, 70.0).iter().all(Line::holds));
        let missed = lines_of(40.0, 60.0);
        assert_eq!(missed.iter().filter(|l| !l.holds()).count(), 2);
        assert_eq!(table(&missed).matches("MISSED").count(), 2);
        assert!(lines(&json!({}), &json!({})).is_err());
    }

    #[test]
    fn the_list_has_the_keys_that_benches_share() {
        let list = list(&lines(&card(31.0, 100.0), &card(70.0, 50.0)).expect("it has all keys"));
        assert_eq!(
            list[1],
            json!({"name": "sharing", "metric": "utilization_pct", "figure": 70.0, "unit": "%", "published": {"report": 64.0}})
        );
    }
}

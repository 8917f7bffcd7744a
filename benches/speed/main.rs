//! How long the engine takes for work that others have published figures for: `cargo xtask bench speed [NAME] [--json FILE]`.
//!
//! ```text
//! NAME       a workload; without it all
//! --size P   so many thousandths of its jobs and nodes (1000)
//! ```
//!
//! Timed is the CPU time of this thread in the engine's public loop: `submit_ms` is open and every event, `ms` is plan, close and saved, and `*_us`
//! both, of one batch. A journal and the answers of the world are not in it. `recovery_s` is a snapshot and batches, read, decoded and applied.
//!
//! Exit code 0: all have run. 2: there is no such workload, or the list cannot be written.
// A bench is a program of its own: it has arguments and std, reports figures of the machine, and fails where a workload
// is not what it says.
#![allow(
    clippy::disallowed_methods,
    clippy::float_arithmetic,
    clippy::expect_used,
    clippy::std_instead_of_core,
    clippy::std_instead_of_alloc
)]

mod cases;
mod cohorts;
mod fleet;
mod memory;
mod million;
mod passes;
mod records;
pub(crate) mod report;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use report::Report;

#[derive(clap::Parser)]
struct Args {
    /// Which workload
    name: Option<String>,
    /// Where the figures are written as a list
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// So many thousandths of each workload
    #[arg(long, value_name = "P", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(10..))]
    size: u64,
    /// What cargo adds to every bench
    #[arg(long, hide = true)]
    bench: bool,
}

/// A workload, with what `--size 1000` stands for.
pub(crate) struct Workload {
    pub name: &'static str,
    full: u64,
    run: fn(&mut Report, u64),
}

impl Workload {
    /// Measures so many thousandths of it.
    pub fn measure(&self, report: &mut Report, size: u64) {
        (self.run)(report, (self.full * size / 1000).max(1));
    }
}

pub(crate) const WORKLOADS: [Workload; 14] = [
    Workload { name: "armada-32k", full: 1000, run: passes::armada },
    Workload { name: "karpenter-10k", full: 10_000, run: passes::karpenter },
    Workload { name: "karpenter-10k-generic", full: 10_000, run: passes::karpenter_generic },
    Workload { name: "cas-51k", full: 50_000, run: passes::cas },
    Workload { name: "kai-cycle", full: 500, run: passes::kai_cycle },
    Workload { name: "kai-reclaim", full: 1000, run: passes::kai_reclaim },
    Workload { name: "kai-negative", full: 500, run: passes::kai_negative },
    Workload { name: "kai-fill", full: 500, run: passes::kai_fill },
    Workload { name: "yunikorn-10k", full: 5000, run: passes::yunikorn },
    Workload { name: "kueue-15k", full: 30, run: cohorts::kueue_15k },
    Workload { name: "kueue-50k", full: 1000, run: cohorts::kueue_50k },
    Workload { name: "million", full: 1000, run: million::million },
    Workload { name: "shapes-3k", full: 3000, run: cases::shapes },
    Workload { name: "sharing-10k", full: 10_000, run: cases::sharing },
];

fn main() -> ExitCode {
    let args = Args::parse();
    let chosen = |of: &&Workload| args.name.as_ref().is_none_or(|asked| of.name == asked);
    if !WORKLOADS.iter().any(|of| chosen(&of)) {
        let names: Vec<&str> = WORKLOADS.iter().map(|of| of.name).collect();
        eprintln!("no such workload; there are: {}", names.join(", "));
        return ExitCode::from(2);
    }
    println!(
        "CPU time of one thread; submit_ms: open + events, ms: plan + close + saved, _us: both, of one batch; recovery_s: a snapshot and \
         batches, read, decoded and applied"
    );
    let mut report = Report::default();
    WORKLOADS.iter().filter(chosen).for_each(|of| of.measure(&mut report, args.size));
    match args.json.as_ref().map(|path| (path, report.write(path))) {
        Some((path, Err(error))) => {
            eprintln!("{}: {error}", path.display());
            ExitCode::from(2)
        }
        _ => ExitCode::SUCCESS,
    }
}

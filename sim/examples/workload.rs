//! Writes work of our own making as a normalized trace: `cargo run --release -p forebay-sim --example workload -- sharing --out FILE`.
//!
//! Exit code 0: written. 2: the arguments are wrong, or the file cannot be written.
#![allow(clippy::disallowed_methods)] // A command line has arguments and writes a file.

use std::process::ExitCode;

use forebay_sim::trace::{TraceJob, as_csv, generate_sharing, generate_trace};

const USAGE: &str = "usage: workload sharing [--seed N] [--days D] --out FILE\n       \
    workload philly [--seed N] [--jobs J] --out FILE\n  \
    sharing  months of fractional GPU work (seed 1, 91 days)\n  philly   jobs shaped like Philly (seed 1, 10000 jobs)";

fn main() -> ExitCode {
    let made = made(std::env::args().skip(1)).and_then(|(jobs, out)| {
        std::fs::write(&out, as_csv(&jobs)).map_err(|e| format!("{out}: {e}"))?;
        Ok(format!("{} jobs in {out}", jobs.len()))
    });
    match made {
        Ok(done) => {
            println!("{done}");
            ExitCode::SUCCESS
        }
        Err(wrong) => {
            eprintln!("{wrong}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn made(mut words: impl Iterator<Item = String>) -> Result<(Vec<TraceJob>, String), String> {
    let what = words.next().ok_or("name what to make")?;
    let (mut seed, mut days, mut jobs, mut out) = (1, 91, 10_000, None);
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{word} {value}: not a number"));
        match word.as_str() {
            "--seed" => seed = number()?,
            "--days" => days = number()?.min(3660),
            "--jobs" => jobs = number()?.min(10_000_000),
            "--out" => out = Some(value),
            _ => return Err(format!("{word}: no such option")),
        }
    }
    let out = out.ok_or("name the file: --out FILE")?;
    match what.as_str() {
        "sharing" => Ok((generate_sharing(seed, days), out)),
        "philly" => Ok((generate_trace(seed, usize::try_from(jobs).unwrap_or(0)), out)),
        _ => Err(format!("{what}: no such work")),
    }
}

//! The seeded fault sweep from the command line: `cargo xtask sweep --seeds 2000`.
//!
//! Exit code 0: every seed held. 1: one did not; the last line is the command that replays it. 2: the arguments are wrong.
#![allow(clippy::disallowed_methods)] // A command line has arguments, and seeds are independent: they run side by side.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

use forebay_sim::sweep::{self, SweepFailure, SweepReport};

const USAGE: &str = "usage: forebay-sweep [--seeds N] [--from S] [--seed S] [--jobs J] [--all]\n  \
    --seeds N  how many seeds (1000)\n  --from S   the first one (0)\n  \
    --seed S   this one only\n  --jobs J   how many at once (2)\n  --all      go on after a failure";

struct Args {
    from: u64,
    seeds: u64,
    jobs: u64,
    all: bool,
}

fn main() -> ExitCode {
    let args = match parse(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(wrong) => {
            eprintln!("{wrong}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let (report, failures) = run(&args);
    println!("{report}");
    let shown = if args.all { failures.len() } else { 1 };
    for failure in failures.iter().take(shown) {
        println!("{failure}");
    }
    if failures.is_empty() {
        println!("every seed from {} to {} held", args.from, args.from.saturating_add(args.seeds).saturating_sub(1));
        return ExitCode::SUCCESS;
    }
    ExitCode::FAILURE
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Args, String> {
    let mut args = Args { from: 0, seeds: 1000, jobs: 2, all: false };
    while let Some(word) = words.next() {
        if word == "--all" {
            args.all = true;
            continue;
        }
        let value = words.next().ok_or_else(|| format!("{word} needs a number"))?;
        let number: u64 = value.parse().map_err(|_| format!("{word} {value}: not a number"))?;
        match word.as_str() {
            "--seeds" => args.seeds = number,
            "--from" => args.from = number,
            "--seed" => (args.from, args.seeds) = (number, 1),
            "--jobs" => args.jobs = number.max(1),
            _ => return Err(format!("{word}: no such option")),
        }
    }
    Ok(args)
}

/// Runs the seeds on some threads; stops at a failure and reports the one of the lowest seed that was run.
fn run(args: &Args) -> (SweepReport, Vec<SweepFailure>) {
    let (next, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let (send, receive) = mpsc::channel();
    let mut report = SweepReport::default();
    let mut failures: Vec<SweepFailure> = Vec::new();
    thread::scope(|scope| {
        for _ in 0..args.jobs {
            let (send, next, stop) = (send.clone(), &next, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let nth = next.fetch_add(1, Ordering::Relaxed);
                    if nth >= args.seeds || send.send(sweep::run(args.from.saturating_add(nth))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(send);
        for outcome in receive {
            match outcome {
                Ok(one) => report.add(&one),
                Err(failure) => {
                    stop.store(!args.all, Ordering::Relaxed);
                    failures.push(failure);
                }
            }
            if report.seeds.is_multiple_of(250) && failures.is_empty() {
                eprintln!("{} of {} seeds", report.seeds, args.seeds);
            }
        }
    });
    failures.sort_by_key(|f| f.seed);
    (report, failures)
}

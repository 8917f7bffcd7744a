//! The seeded fault sweep from the command line: `cargo xtask sweep --seeds 2000`.
//!
//! Exit code 0: every seed held. 1: one did not, or a digest could not be made; the last line is the command that replays it. 2: the arguments
//! are wrong, or the digests could not be written. A seed that panics is one that did not hold.
#![allow(clippy::disallowed_methods)] // A command line has arguments, and seeds are independent: they run side by side.

use std::any::Any;
use std::cell::RefCell;
use std::fmt::Write as _;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

use clap::Parser;
use forebay_engine::engine::Engine;
use forebay_kernel::journal::Batch;
use forebay_sim::sweep::{self, BatchWatch, SweepFailure, SweepReport};

/// The seeded fault sweep: crashes, lost and late effects, stock-outs, one run a seed.
#[derive(clap::Parser)]
struct Args {
    /// The first seed
    #[arg(long, value_name = "S", default_value_t = 0)]
    from: u64,
    /// How many seeds
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// How many at once
    #[arg(long, value_name = "J", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..))]
    jobs: u64,
    /// Go on after a failure
    #[arg(long)]
    all: bool,
    /// Hundreds of jobs of many shapes instead of a few
    #[arg(long)]
    crowd: bool,
    /// Write a digest of all decisions of each seed: two builds that decide the same write the same file
    #[arg(long, value_name = "FILE")]
    digests: Option<PathBuf>,
}

impl Args {
    fn range(&self) -> Range<u64> {
        self.from..self.from.saturating_add(self.seeds)
    }

    /// Says which seeds did not hold: all of them, or the lowest that was run.
    fn close(&self, failures: &[SweepFailure]) -> ExitCode {
        let shown = if self.all { failures.len() } else { 1 };
        for failure in failures.iter().take(shown) {
            println!("{failure}");
        }
        if !failures.is_empty() {
            return ExitCode::FAILURE;
        }
        let Range { start, end } = self.range();
        println!("every seed from {start} to {} held", end.saturating_sub(1));
        ExitCode::SUCCESS
    }
}

type Run = fn(u64) -> Result<SweepReport, SweepFailure>;
type WatchedRun = fn(u64, Box<dyn BatchWatch>) -> Result<SweepReport, SweepFailure>;

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(path) = &args.digests {
        return write_digests(&args, path);
    }
    let (report, failures) = run(&args);
    println!("{report}");
    let not_met = report.not_met();
    if !not_met.is_empty() && !args.crowd {
        println!("never met: {}", not_met.join(", "));
        return ExitCode::FAILURE;
    }
    args.close(&failures)
}

/// Runs one seed. A panic is a failure of that seed: its place is printed above, where it happened.
fn caught(
    seed: u64,
    crowd: bool,
    run: impl FnOnce() -> Result<SweepReport, SweepFailure>,
) -> Result<SweepReport, SweepFailure> {
    // What the run has built is gone with it, so that nobody sees it half done.
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|payload| {
        let what = format!("it panicked, in a batch that is not known: {}", message(payload.as_ref()));
        Err(SweepFailure { seed, crowd, batch: 0, now: 0, what })
    })
}

fn message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}

/// Runs the seeds on some threads; stops at a failure and reports the one of the lowest seed that was run.
fn run(args: &Args) -> (SweepReport, Vec<SweepFailure>) {
    let (next, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let (send, receive) = mpsc::channel();
    let run: Run = if args.crowd { sweep::run_crowd } else { sweep::run };
    let one = |seed: u64| caught(seed, args.crowd, || run(seed));
    let mut report = SweepReport::default();
    let mut failures: Vec<SweepFailure> = Vec::new();
    thread::scope(|scope| {
        for _ in 0..args.jobs {
            let (send, next, stop, one) = (send.clone(), &next, &stop, &one);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let nth = next.fetch_add(1, Ordering::Relaxed);
                    if nth >= args.seeds || send.send(one(args.from.saturating_add(nth))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(send);
        for (outcome, over) in receive.into_iter().zip(1_u64..) {
            match outcome {
                Ok(one) => report.add(&one),
                Err(failure) => {
                    stop.store(!args.all, Ordering::Relaxed);
                    if args.all {
                        // It may be long until the end, where they are told in order.
                        eprintln!("{failure}");
                    }
                    failures.push(failure);
                }
            }
            if over.is_multiple_of(250) {
                eprintln!("{over} of {} seeds, {} failed", args.seeds, failures.len());
            }
        }
    });
    failures.sort_by_key(|f| f.seed);
    (report, failures)
}

/// What a seed has decided so far.
#[derive(Default)]
struct Decided {
    batches: u64,
    hash: blake3::Hasher,
    /// Batches that could not be encoded: a fault of the program, for every batch is journaled.
    unreadable: u64,
}

struct Digest(Rc<RefCell<Decided>>);

impl BatchWatch for Digest {
    fn before(&mut self, _engine: &Engine) {}

    fn after(&mut self, batch: &Batch) {
        let mut decided = self.0.borrow_mut();
        decided.batches += 1;
        match postcard::to_allocvec(batch) {
            Ok(bytes) => _ = decided.hash.update(&bytes),
            Err(_) => decided.unreadable += 1,
        }
    }
}

/// Writes the digests. Every seed has its line; those that did not hold fail it all the same.
fn write_digests(args: &Args, path: &Path) -> ExitCode {
    let run: WatchedRun = if args.crowd { sweep::run_crowd_watched } else { sweep::run_watched };
    let (lines, failures) = digests(args, run);
    match std::fs::write(path, lines) {
        Ok(()) => args.close(&failures),
        Err(error) => {
            eprintln!("{}: {error}", path.display());
            ExitCode::from(2)
        }
    }
}

/// A line a seed: its number, its batches, the digest of their decisions, and how it ended. And the seeds that did not hold.
fn digests(args: &Args, run: WatchedRun) -> (String, Vec<SweepFailure>) {
    let (mut lines, mut failures) = (String::new(), Vec::new());
    for seed in args.range() {
        let decided = Rc::new(RefCell::new(Decided::default()));
        let watch = Digest(Rc::clone(&decided));
        let mut end = caught(seed, args.crowd, || run(seed, Box::new(watch))).map(|_| ());
        let decided = decided.borrow();
        if decided.unreadable > 0 {
            let before = end.map_or_else(|failure| failure.what, |()| "held".to_owned());
            let what = format!("{} batches could not be encoded; {before}", decided.unreadable);
            end = Err(SweepFailure { seed, crowd: args.crowd, batch: decided.batches, now: 0, what });
        }
        let digest = decided.hash.finalize().to_hex();
        let said = end.as_ref().map_or_else(|failure| failure.what.as_str(), |()| "held").replace('\n', " ");
        let _ = writeln!(lines, "{seed} {} {} {said}", decided.batches, &digest[..16]);
        failures.extend(end.err());
    }
    (lines, failures)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(words: &[&str]) -> Args {
        Args::try_parse_from([&["forebay-sweep"], words].concat()).unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn no_seed_at_all_is_refused() {
        assert!(Args::try_parse_from(["forebay-sweep", "--seeds", "0"]).is_err(), "nothing would hold");
        assert_eq!(args(&["--from", "7", "--seeds", "1"]).range(), 7..8);
    }

    #[test]
    fn a_panic_is_a_failure_of_its_seed_with_the_command_that_replays_it() {
        let overflow = caught(7, true, || panic!("attempt to add with overflow")).unwrap_err();
        assert!(overflow.what.ends_with("attempt to add with overflow"), "{overflow}");
        let last = overflow.to_string().lines().last().map(str::to_owned);
        assert_eq!(last.as_deref(), Some("replay: cargo xtask sweep --from 7 --seeds 1 --crowd"));
        let formatted = caught(8, false, || panic!("{} jobs", 3)).unwrap_err();
        assert!(formatted.what.ends_with("3 jobs"), "{formatted}");
        assert_eq!(caught(9, false, || Ok(SweepReport::default())), Ok(SweepReport::default()));
    }

    #[test]
    fn digests_of_seeds_that_did_not_hold_are_written_and_fail() {
        let odd: WatchedRun = |seed, _| match seed % 2 {
            0 => Ok(SweepReport::default()),
            _ => panic!("it is\nodd"),
        };
        let (lines, failures) = digests(&args(&["--seeds", "4"]), odd);
        assert_eq!(lines.lines().count(), 4, "a line a seed, whatever a panic says: {lines}");
        let ends: Vec<&str> = lines.lines().filter_map(|line| line.rsplit(' ').next()).collect();
        assert_eq!(ends, ["held", "odd", "held", "odd"]);
        assert_eq!(failures.iter().map(|failure| failure.seed).collect::<Vec<_>>(), [1, 3]);
    }
}

//! The seeded fault sweep from the command line: `cargo xtask sweep --seeds 2000`.
//!
//! Exit code 0: every seed held. 1: one did not; the last line is the command that replays it. 2: the arguments are wrong.
#![allow(clippy::disallowed_methods)] // A command line has arguments, and seeds are independent: they run side by side.

use std::cell::RefCell;
use std::fmt::Write as _;
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
    #[arg(long, value_name = "N", default_value_t = 1000)]
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

type Run = fn(u64) -> Result<SweepReport, SweepFailure>;

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(path) = &args.digests {
        return digests(&args, path);
    }
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

/// Runs the seeds on some threads; stops at a failure and reports the one of the lowest seed that was run.
fn run(args: &Args) -> (SweepReport, Vec<SweepFailure>) {
    let (next, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let (send, receive) = mpsc::channel();
    let one: Run = if args.crowd { sweep::run_crowd } else { sweep::run };
    let mut report = SweepReport::default();
    let mut failures: Vec<SweepFailure> = Vec::new();
    thread::scope(|scope| {
        for _ in 0..args.jobs {
            let (send, next, stop) = (send.clone(), &next, &stop);
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

/// Writes a line a seed: its number, its batches, the digest of their decisions, and how it ended.
fn digests(args: &Args, path: &Path) -> ExitCode {
    let run = if args.crowd { sweep::run_crowd_watched } else { sweep::run_watched };
    let mut lines = String::new();
    for seed in args.from..args.from.saturating_add(args.seeds) {
        let decided = Rc::new(RefCell::new(Decided::default()));
        let end = run(seed, Box::new(Digest(Rc::clone(&decided))));
        let end = end.map_or_else(|failure| failure.what, |_| "held".to_owned());
        let decided = decided.borrow();
        let end = match decided.unreadable {
            0 => end,
            unreadable => format!("{unreadable} batches could not be encoded; {end}"),
        };
        let digest = decided.hash.finalize().to_hex();
        let _ = writeln!(lines, "{seed} {} {} {end}", decided.batches, &digest[..16]);
    }
    match std::fs::write(path, lines) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {error}", path.display());
            ExitCode::from(2)
        }
    }
}

//! A run: inputs over threads, each caught where it panics and watched where it hangs, and what came of all of them.
//!
//! ```text
//! threads: take the next thousand -> make, check, count        watch: one input for over 30 s? say which, end the process
//! ```
//!
//! Never: goes on after a finding. The first one is mended first.

use crate::input::Maker;
use crate::memory::{self, MOST_DECODING};
use crate::sizes::{MOST_GROWTH, peak_kib};
use crate::targets::{Broken, DecodeOutcome, FuzzTarget};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// An input that takes longer hangs: the largest takes some 20 ms in a build with checks. Wall-clock time: a busy machine holds
/// up any input for a second now and then.
const HANGS: Duration = Duration::from_secs(30);

/// Inputs that a thread takes at once.
const AT_ONCE: u64 = 1000;

/// After so many inputs the process has what it keeps: the catalogue, threads, buffers at the size of the largest inputs.
const WARM: u64 = 50_000;

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The first input.
    pub from: u64,
    /// How many.
    pub inputs: u64,
    /// On how many threads.
    pub threads: usize,
}

/// An input that broke something.
#[derive(Clone, Debug)]
pub struct BrokenInput {
    /// Which input.
    pub n: u64,
    /// Of which target.
    pub target: &'static str,
    /// What it broke.
    pub what: String,
    /// The input.
    pub bytes: Vec<u8>,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FuzzProgress {
    /// Inputs that are done.
    pub done: u64,
    /// All inputs before this one are done: a run that is broken off goes on from here.
    pub resume: u64,
}

/// What came of the inputs.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Inputs that were decoded.
    pub inputs: u64,
    /// Their bytes.
    pub bytes: u64,
    /// By target and outcome: `accepted`, or the code of the rejection.
    pub outcomes: BTreeMap<(&'static str, &'static str), u64>,
    /// How long it took.
    pub took: Duration,
    /// By target: the most bytes that its decoder had at once for one input.
    pub most_bytes: BTreeMap<&'static str, u64>,
    /// The most memory that the process has had, in KiB.
    pub peak_kib: Option<u64>,
    /// How many bytes were allocated at the end beyond what was once the process was warm.
    pub growth: u64,
    /// The first input that broke something.
    pub finding: Option<BrokenInput>,
}

/// What the threads share.
struct Shared<'a> {
    maker: &'a Maker,
    plan: Plan,
    next: AtomicU64,
    done: AtomicU64,
    stop: AtomicBool,
    /// The bytes that were allocated once the process was warm: at the start, until then.
    warm: AtomicI64,
    figures: Mutex<Figures>,
    /// What each thread is at: the input's number and 1, or 0 at its end. All inputs before the lowest are done.
    at: Vec<AtomicU64>,
}

/// Runs it. `progress` gets how far it is, about ten times a second; `hangs` gets the number of an input that does not end, and must not
/// return: a thread cannot be stopped.
///
/// # Errors
/// When a folder for a thread cannot be made.
pub fn run(
    maker: &Maker,
    plan: Plan,
    progress: &mut dyn FnMut(FuzzProgress),
    hangs: fn(u64) -> !,
) -> std::io::Result<Figures> {
    let start = Instant::now();
    let shared = Shared {
        maker,
        plan,
        next: AtomicU64::new(plan.from),
        done: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        warm: AtomicI64::new(memory::live_bytes()),
        figures: Mutex::default(),
        at: (0..plan.threads.max(1)).map(|_| AtomicU64::new(plan.from.saturating_add(1))).collect(),
    };
    let folders: Vec<_> = shared.at.iter().map(|_| own_folder()).collect::<Result<_, _>>()?;
    let quiet = Quiet::begin();
    std::thread::scope(|scope| {
        let (ended, watch) = channel::<()>();
        for (folder, at) in folders.iter().zip(&shared.at) {
            let (shared, ended) = (&shared, ended.clone());
            scope.spawn(move || {
                work(shared, at, folder.path());
                drop(ended);
            });
        }
        drop(ended);
        watch_over(&shared, &watch, progress, hangs);
    });
    drop(quiet);
    let warm = shared.warm.into_inner();
    let mut figures = shared.figures.into_inner().unwrap_or_default();
    figures.took = start.elapsed();
    figures.peak_kib = peak_kib();
    figures.growth = u64::try_from(memory::live_bytes().saturating_sub(warm)).unwrap_or(0);
    Ok(figures)
}

/// A folder of a thread's own, in memory where the system has such a place: the logs sync what they open, and a disk would be all that is
/// waited for.
fn own_folder() -> std::io::Result<tempfile::TempDir> {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())
}

impl Figures {
    /// Inputs that were accepted.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.outcomes.iter().filter(|((_, outcome), _)| *outcome == ACCEPTED).map(|(_, n)| n).sum()
    }

    /// Of a target: its inputs, those that got past its first stage, and those that were accepted.
    #[must_use]
    pub fn of(&self, target: &FuzzTarget) -> TargetFigures {
        let sum = |counts: &dyn Fn(&'static str) -> bool| -> u64 {
            let own = self.outcomes.iter().filter(|((name, code), _)| *name == target.name && counts(code));
            own.map(|(_, n)| n).sum()
        };
        let (inputs, accepted) = (sum(&|_| true), sum(&|code| code == ACCEPTED));
        let stopped = sum(&|code| target.first_stage.contains(&code));
        let most_bytes = self.most_bytes.get(target.name).copied().unwrap_or(0);
        TargetFigures { inputs, past: inputs - stopped, accepted, most_bytes }
    }

    /// What is wrong with the run as a whole.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        if let Some(found) = &self.finding {
            return Some(format!("input {} of target {}: {}", found.n, found.target, found.what));
        }
        let allowed = MOST_GROWTH >> 20;
        (self.growth > MOST_GROWTH).then(|| {
            format!("{} MiB more are allocated than after the first {WARM} inputs; {allowed} may be", self.growth >> 20)
        })
    }
}

/// What came of the inputs of one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetFigures {
    /// Inputs that it was given.
    pub inputs: u64,
    /// Those that got past its first stage.
    pub past: u64,
    /// Those that it accepted; it refused the others.
    pub accepted: u64,
    /// The most bytes that it had at once for one of them.
    pub most_bytes: u64,
}

/// How an accepted input is counted.
pub const ACCEPTED: &str = "accepted";

fn work(shared: &Shared<'_>, at: &AtomicU64, folder: &Path) {
    let end = shared.plan.from.saturating_add(shared.plan.inputs);
    let (mut own, mut bytes) = (Figures::default(), Vec::new());
    while !shared.stop.load(Ordering::Relaxed) {
        // A lower bound of what is taken next, so that nothing is taken for done that is not.
        at.store(shared.next.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
        let first = shared.next.fetch_add(AT_ONCE, Ordering::Relaxed);
        if first >= end {
            break;
        }
        for n in first..end.min(first.saturating_add(AT_ONCE)) {
            at.store(n + 1, Ordering::Relaxed);
            let target = shared.maker.make(n, &mut bytes);
            let outcome = caught(target, &bytes, folder);
            let taken = memory::take_peak();
            let outcome = outcome.and_then(|outcome| within(taken).map(|()| outcome));
            let most = own.most_bytes.entry(target.name).or_default();
            *most = taken.max(*most);
            own.inputs += 1;
            own.bytes += bytes.len() as u64;
            let outcome = match outcome {
                Ok(DecodeOutcome::Accepted) => ACCEPTED,
                Ok(DecodeOutcome::Rejected(code, _)) => code,
                Err(what) => {
                    own.finding = Some(BrokenInput { n, target: target.name, what, bytes: bytes.clone() });
                    shared.stop.store(true, Ordering::Relaxed);
                    break;
                }
            };
            *own.outcomes.entry((target.name, outcome)).or_default() += 1;
        }
        let done = shared.done.fetch_add(AT_ONCE, Ordering::Relaxed);
        if (WARM..WARM + AT_ONCE).contains(&done) {
            shared.warm.store(memory::live_bytes(), Ordering::Relaxed);
        }
    }
    at.store(0, Ordering::Relaxed);
    if let Ok(mut all) = shared.figures.lock() {
        all.inputs += own.inputs;
        all.bytes += own.bytes;
        for (outcome, n) in own.outcomes {
            *all.outcomes.entry(outcome).or_default() += n;
        }
        for (target, bytes) in own.most_bytes {
            let most = all.most_bytes.entry(target).or_default();
            *most = bytes.max(*most);
        }
        let first = all.finding.as_ref().is_none_or(|found| own.finding.as_ref().is_some_and(|own| own.n < found.n));
        if first {
            all.finding = own.finding;
        }
    }
}

/// Whether what a decoder took is within what it may take.
fn within(taken: u64) -> Result<(), Broken> {
    if taken <= MOST_DECODING {
        return Ok(());
    }
    Err(format!("its decoder had {} MiB at once; {} are allowed", taken >> 20, MOST_DECODING >> 20))
}

fn caught(target: &FuzzTarget, bytes: &[u8], folder: &Path) -> Result<DecodeOutcome, Broken> {
    catch_unwind(AssertUnwindSafe(|| (target.check)(bytes, folder)))
        .unwrap_or_else(|_| Err(SAID.take().unwrap_or_else(|| "it panicked".to_owned())))
}

/// Until all threads have ended: tells how far they are, and looks whether one stays with its input.
fn watch_over(shared: &Shared<'_>, ended: &Receiver<()>, progress: &mut dyn FnMut(FuzzProgress), hangs: fn(u64) -> !) {
    let mut seen: Vec<_> = shared.at.iter().map(|_| (0, Instant::now())).collect();
    while ended.recv_timeout(Duration::from_millis(100)) == Err(RecvTimeoutError::Timeout) {
        for (at, (last, since)) in shared.at.iter().zip(&mut seen) {
            let now = at.load(Ordering::Relaxed);
            if now != *last {
                (*last, *since) = (now, Instant::now());
            } else if now > 0 && since.elapsed() > HANGS {
                hangs(now - 1);
            }
        }
        let end = shared.plan.from.saturating_add(shared.plan.inputs);
        let lowest = shared.at.iter().map(|at| at.load(Ordering::Relaxed)).filter(|at| *at > 0).min();
        let resume = lowest.map_or(end, |at| (at - 1).min(end));
        progress(FuzzProgress { done: shared.done.load(Ordering::Relaxed).min(shared.plan.inputs), resume });
    }
}

thread_local! {
    /// What the last panic of this thread said, and where.
    static SAID: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// While it lives, a panic is remembered and not printed.
struct Quiet;

impl Quiet {
    fn begin() -> Quiet {
        std::panic::set_hook(Box::new(|panic| SAID.set(Some(panic.to_string()))));
        Quiet
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        drop(std::panic::take_hook());
    }
}

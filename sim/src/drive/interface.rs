//! What a simulation takes and gives: options, progress, outcome, errors.
//!
//! Never: runs anything.

use forebay_engine::engine::Engine;
use forebay_kernel::units::Timestamp;

use crate::convert::{Assumptions, OwnedFault};
use crate::market::Market;
use crate::memory::MemoryError;
use crate::score::Scorecard;
use crate::trace::{BootTimes, TraceNode};

/// When the engine's own audit is run in full. It is run at crashes and at the end in any case; the rows that a batch touched are
/// audited after every batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditSchedule {
    /// At crashes and at the end only.
    AtEnd,
    /// And after every so many batches; where there are more than eight times as many jobs, after an eighth as many batches as jobs.
    Every(u64),
}

/// Batches from one full audit to the next.
const FULL_AUDIT_EVERY: u64 = 1024;

/// How far a simulation has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimProgress {
    /// Virtual time since the trace's zero.
    pub now: Timestamp,
    /// Jobs of the trace.
    pub jobs: u64,
    /// Jobs submitted so far.
    pub submitted: u64,
    /// Jobs that are over.
    pub ended: u64,
    /// Runs with a live worker.
    pub running: u64,
    /// Claims by capacity type: reserved, spot, on-demand.
    pub nodes: [u64; 3],
    /// Spent so far, in micro-dollars.
    pub spent: u64,
}

/// What to simulate, besides a policy and a trace.
pub struct SimOptions<'a> {
    /// The seed of everything that the world draws.
    pub seed: u64,
    /// What spot can be had; see [`crate::world::spot_pairs`] for its pairs.
    pub market: Market,
    /// The engine is dropped and recovered every so many decisions.
    pub crash_every: Option<u64>,
    /// The owned nodes of a policy that has a pool of them, beside what is bought; else a fixed fleet in place of the policy's offerings.
    pub nodes: Option<&'a [TraceNode]>,
    /// Boots that were measured.
    pub boots: BootTimes,
    /// What is assumed where the trace gives no value.
    pub assumptions: Assumptions,
    /// When the engine's audit is run.
    pub audit: AuditSchedule,
    /// Called with every 1,024th batch.
    pub progress: Option<&'a mut dyn FnMut(&SimProgress)>,
    /// Called with the engine after every batch.
    pub watch: Option<&'a mut dyn FnMut(&Engine)>,
    /// A counter of nanoseconds, for `engine_s`. The simulator has no clock of its own.
    pub clock: fn() -> u64,
}

impl SimOptions<'_> {
    /// A simulation in this market, with nothing else switched on.
    #[must_use]
    pub fn new(seed: u64, market: Market) -> Self {
        SimOptions {
            seed,
            market,
            crash_every: None,
            nodes: None,
            boots: BootTimes::new(),
            assumptions: Assumptions::default(),
            audit: AuditSchedule::Every(FULL_AUDIT_EVERY),
            progress: None,
            watch: None,
            clock: || 0,
        }
    }
}

/// The result of a simulation.
#[derive(Clone, Debug, PartialEq)]
pub struct SimOutcome {
    /// The figures.
    pub scorecard: Scorecard,
    /// Every broken rule, as a sentence: the scorecard's counts, gaps in the status stream, accounts that disagree. Empty: all is well.
    pub violations: Vec<String>,
    /// Times that the engine was dropped and recovered.
    pub crashes: u64,
}

/// Why a simulation could not be brought to its end.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// Nothing ends any more.
    #[error(
        "stuck at {now} ms: {what}; {open} jobs open, {nodes} nodes, {purchases} purchases; waiting for: {reasons}"
    )]
    Stuck {
        /// Virtual time in ms.
        now: u64,
        /// Which bound was reached.
        what: &'static str,
        /// Jobs that are not over.
        open: usize,
        /// Claims.
        nodes: usize,
        /// Purchases without an answer.
        purchases: usize,
        /// The open jobs' reasons, counted, with the first job of each.
        reasons: String,
    },
    /// A node that is listed has no pool of owned nodes.
    #[error(transparent)]
    Owned(#[from] OwnedFault),
    /// A recovered engine differs from the live one.
    #[error("the state recovered after batch {batch} (at {now} ms) differs from the live one: {what}")]
    Diverged {
        /// Which batch, from 1.
        batch: u64,
        /// Virtual time in ms.
        now: u64,
        /// How they differ.
        what: String,
    },
    /// The memory journal could not be read back.
    #[error("the journal could not be read after batch {batch}")]
    Journal {
        /// Which batch, from 1.
        batch: u64,
        /// Why.
        source: MemoryError,
    },
    /// The engine's own audit found something.
    #[error("the audit after batch {batch} (at {now} ms) found: {findings}")]
    Audit {
        /// Which batch, from 1.
        batch: u64,
        /// Virtual time in ms.
        now: u64,
        /// What.
        findings: String,
    },
}

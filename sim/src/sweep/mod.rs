//! The seeded fault sweep: a random small policy, a random small workload, and everything that can go wrong between engine, journal
//! and world. After each batch everything that must always hold is checked, and at each crash the replayed state must equal the live one.
//!
//! ```text
//! seed -> policy x workload x faults -> run to the end -> SweepReport | SweepFailure (with the command that replays it)
//! ```
//!
//! Never: two outcomes for one seed.

mod bill;
#[cfg(test)]
mod broken;
mod budgets;
mod cancels;
mod changes;
mod checks;
mod deaths;
mod harness;
mod lost;
mod min_shares;
mod operators;
mod promises;
mod protection;
mod quotas;
mod reasons;
mod tally;
mod workload;

use std::fmt;

use forebay_engine::engine::Engine;
use forebay_kernel::journal::Batch;

use crate::faults::LinkTally;
pub use tally::FeatureTally;

/// What one seed, or many, went through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// Seeds.
    pub seeds: u64,
    /// Batches.
    pub batches: u64,
    /// Jobs submitted.
    pub jobs: u64,
    /// Jobs that were done.
    pub completed: u64,
    /// Jobs that were given up.
    pub failed: u64,
    /// Jobs that were stopped on request.
    pub cancelled: u64,
    /// Jobs that could never be run.
    pub rejected: u64,
    /// Jobs whose work was done a second time, because the message of its end was lost with its node.
    pub redone: u64,
    /// Jobs that still waited after three days, and were cancelled then: some policies and stocks never have the capacity for them.
    pub starved: u64,
    /// Runs stopped for others.
    pub preemptions: u64,
    /// Replicas that services had.
    pub replicas: u64,
    /// Runs that hung, and ended with their nodes.
    pub hung: u64,
    /// Times that a gang was asked to go on with fewer workers.
    pub shrinks: u64,
    /// Runs that were stopped or shrunk for queues that wanted quota back, or more of what their cohort lends.
    pub taken_back: u64,
    /// Nodes that the cloud took back.
    pub reclaims: u64,
    /// Of these, without a warning.
    pub unwarned: u64,
    /// Times that the process died.
    pub crashes: u64,
    /// Of these, with the batch never written.
    pub unwritten: u64,
    /// Of these, with the batch torn.
    pub torn: u64,
    /// Of these, between the journal and the release of its effects.
    pub unreleased: u64,
    /// Of these, with the simulated world dying too.
    pub worlds_lost: u64,
    /// Times that the process was down for a while.
    pub downtimes: u64,
    /// Steps of the wall clock.
    pub clock_steps: u64,
    /// Lists that were stale.
    pub stale_lists: u64,
    /// Events that a list brought.
    pub found_by_list: u64,
    /// What went wrong with effects.
    pub effects: LinkTally,
    /// What went wrong with messages.
    pub messages: LinkTally,
    /// Which features were named, and what of them was seen.
    pub tally: FeatureTally,
}

impl SweepReport {
    /// Codes of reasons that a sweep of as many seeds should have met, and this one has not. Below a thousand seeds none is due. Something that
    /// is never met is never checked.
    #[must_use]
    pub fn not_met(&self) -> Vec<&'static str> {
        self.tally.not_met(self.seeds)
    }

    /// Adds another report to this one.
    pub fn add(&mut self, other: &SweepReport) {
        let fields = [
            (&mut self.seeds, other.seeds),
            (&mut self.batches, other.batches),
            (&mut self.jobs, other.jobs),
            (&mut self.completed, other.completed),
            (&mut self.failed, other.failed),
            (&mut self.cancelled, other.cancelled),
            (&mut self.rejected, other.rejected),
            (&mut self.redone, other.redone),
            (&mut self.starved, other.starved),
            (&mut self.preemptions, other.preemptions),
            (&mut self.replicas, other.replicas),
            (&mut self.hung, other.hung),
            (&mut self.shrinks, other.shrinks),
            (&mut self.taken_back, other.taken_back),
            (&mut self.reclaims, other.reclaims),
            (&mut self.unwarned, other.unwarned),
            (&mut self.crashes, other.crashes),
            (&mut self.unwritten, other.unwritten),
            (&mut self.torn, other.torn),
            (&mut self.unreleased, other.unreleased),
            (&mut self.worlds_lost, other.worlds_lost),
            (&mut self.downtimes, other.downtimes),
            (&mut self.clock_steps, other.clock_steps),
            (&mut self.stale_lists, other.stale_lists),
            (&mut self.found_by_list, other.found_by_list),
            (&mut self.effects.lost, other.effects.lost),
            (&mut self.effects.doubled, other.effects.doubled),
            (&mut self.effects.late, other.effects.late),
            (&mut self.messages.lost, other.messages.lost),
            (&mut self.messages.doubled, other.messages.doubled),
            (&mut self.messages.late, other.messages.late),
        ];
        for (sum, more) in fields {
            *sum += more;
        }
        self.tally.add(&other.tally);
    }
}

impl fmt::Display for SweepReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} seeds, {} batches, {} jobs", self.seeds, self.batches, self.jobs)?;
        let (done, given_up) = (self.completed, self.failed);
        let (asked, never, redone) = (self.cancelled, self.rejected, self.redone);
        write!(f, "jobs     {done} completed ({redone} redone), {given_up} failed, {asked} cancelled ")?;
        writeln!(f, "({} never had capacity), {never} rejected", self.starved)?;
        let (written, torn, held) = (self.unwritten, self.torn, self.unreleased);
        write!(f, "crashes  {} ({written} unwritten, {torn} torn, {held} unreleased), ", self.crashes)?;
        let (worlds, down, steps) = (self.worlds_lost, self.downtimes, self.clock_steps);
        writeln!(f, "{worlds} with the world, {down} down times, {steps} clock steps")?;
        let LinkTally { lost, doubled, late } = self.effects;
        writeln!(f, "effects  {lost} lost, {doubled} doubled, {late} late")?;
        let LinkTally { lost, doubled, late } = self.messages;
        write!(f, "messages {lost} lost, {doubled} doubled, {late} late, ")?;
        writeln!(f, "{} stale lists, {} found by a list", self.stale_lists, self.found_by_list)?;
        let (taken, unwarned) = (self.reclaims, self.unwarned);
        let (stops, shrinks) = (self.preemptions, self.shrinks);
        write!(f, "taken    {stops} preemptions, {shrinks} shrinks ({} of both for quota), ", self.taken_back)?;
        write!(f, "{taken} reclaims ({unwarned} without warning), ")?;
        writeln!(f, "{} hung; services had {} replicas", self.hung, self.replicas)?;
        write!(f, "{}", self.tally)
    }
}

/// A seed under which something did not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("seed {seed}, batch {batch}, at {now} ms: {what}\nreplay: cargo xtask sweep --from {seed} --seeds 1{}", if *crowd { " --crowd" } else { "" })]
pub struct SweepFailure {
    /// The seed.
    pub seed: u64,
    /// It was one with hundreds of jobs of many shapes.
    pub crowd: bool,
    /// The batch after which it was found.
    pub batch: u64,
    /// Virtual time in ms.
    pub now: u64,
    /// What did not hold.
    pub what: String,
}

/// A rule broken on purpose in a whole run, to show that the checks find it. What takes one decision or one row is broken in the tests beside each
/// check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// Workers survive their stop, so that two attempts are alive at once.
    Zombies,
    /// A batch is not written though its effects leave.
    DroppedBatch,
    /// The live state learns of a node that the journal does not know.
    PhantomNode,
    /// A submission is acknowledged and not taken in.
    LostSubmission,
    /// A status message is left out.
    SkippedStatus,
    /// A gang starts without its last worker.
    HalfGang,
    /// An effect asks for something else when it is released again.
    ChangedRequest,
}

impl Sabotage {
    /// Every kind.
    pub const ALL: [Sabotage; 7] = [
        Sabotage::Zombies,
        Sabotage::DroppedBatch,
        Sabotage::PhantomNode,
        Sabotage::LostSubmission,
        Sabotage::SkippedStatus,
        Sabotage::HalfGang,
        Sabotage::ChangedRequest,
    ];
}

/// Runs a seed.
///
/// # Errors
/// The first thing that did not hold.
pub fn run(seed: u64) -> Result<SweepReport, SweepFailure> {
    run_with(seed, None)
}

/// Who looks at each batch of a run, and changes nothing.
pub trait BatchWatch {
    /// The engine as it is before a batch.
    fn before(&mut self, engine: &Engine);

    /// The batch that it has made.
    fn after(&mut self, batch: &Batch);
}

/// Runs one seed while somebody looks at it.
///
/// # Errors
/// A check failed, or the run does not end.
pub fn run_watched(seed: u64, watch: Box<dyn BatchWatch>) -> Result<SweepReport, SweepFailure> {
    harness::Harness::new(seed, None).watched(watch).run()
}

/// Runs a seed with hundreds of jobs of which hardly two are alike, instead of a few that often are.
///
/// # Errors
/// The first thing that did not hold.
pub fn run_crowd(seed: u64) -> Result<SweepReport, SweepFailure> {
    harness::Harness::of_crowd(seed).run()
}

/// Runs one seed of [`run_crowd`] while somebody looks at it.
///
/// # Errors
/// A check failed, or the run does not end.
pub fn run_crowd_watched(seed: u64, watch: Box<dyn BatchWatch>) -> Result<SweepReport, SweepFailure> {
    harness::Harness::of_crowd(seed).watched(watch).run()
}

/// Runs a seed with a rule broken on purpose.
///
/// # Errors
/// The first thing that did not hold.
pub fn run_with(seed: u64, sabotage: Option<Sabotage>) -> Result<SweepReport, SweepFailure> {
    harness::Harness::new(seed, sabotage).run()
}

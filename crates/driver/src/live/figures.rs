//! The driver's progress, counted from the engine's state as often as watching it is worth.
//!
//! Never: part of a decision, or of anything that is journaled.

use super::feed::EventFeed;
use super::handle::LiveProgress;
use forebay_engine::engine::Engine;
use forebay_kernel::ids::Seq;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The shortest time between two counts. People see no more.
const PAUSE: Duration = Duration::from_millis(50);

/// Counts, and publishes to whoever watches.
#[derive(Debug)]
pub(super) struct ProgressReporter {
    to: watch::Sender<LiveProgress>,
    next: Instant,
    paused: Option<String>,
    /// Whether a replay is at its end and nothing is left to do.
    pub drained: bool,
}

impl ProgressReporter {
    pub fn new(to: watch::Sender<LiveProgress>) -> ProgressReporter {
        ProgressReporter { to, next: Instant::now(), paused: None, drained: false }
    }

    /// Publishes why nothing is received, or that it is received again.
    pub fn pause(&mut self, why: Option<String>) {
        self.paused.clone_from(&why);
        self.to.send_modify(|p| p.paused = why);
    }

    /// Publishes, unless that has just been done.
    pub fn publish_if_due(&mut self, engine: &Engine, feed: Option<&dyn EventFeed>) {
        if Instant::now() >= self.next {
            self.publish(engine, feed);
        }
    }

    /// Publishes now.
    pub fn publish(&mut self, engine: &Engine, feed: Option<&dyn EventFeed>) {
        let begun = Instant::now();
        let progress = self.count(engine, feed);
        self.to.send_if_modified(|old| {
            let changed = *old != progress;
            *old = progress;
            changed
        });
        // A million open jobs take some 20 ms to count: never more than a twentieth of the time.
        self.next = begun + PAUSE.max(begun.elapsed() * 20);
    }

    /// Publishes for the last time.
    pub fn stopped(&mut self, engine: &Engine, feed: Option<&dyn EventFeed>) -> LiveProgress {
        let progress = LiveProgress { stopped: true, ..self.count(engine, feed) };
        self.to.send_replace(progress.clone());
        progress
    }

    fn count(&self, engine: &Engine, feed: Option<&dyn EventFeed>) -> LiveProgress {
        let state = engine.state();
        let counters = state.counters();
        let running = state.running_jobs();
        let mut nodes = [0; 3];
        for node in state.bought_nodes() {
            nodes[state.capacity_of(node) as usize] += 1;
        }
        let ledger = state.ledger_now();
        let done = counters.outcomes.iter().sum::<u64>();
        let known = done + state.open_jobs() as u64;
        LiveProgress {
            now: state.now(),
            seq: Seq(counters.next_seq),
            queued: state.open_jobs().saturating_sub(running),
            running,
            nodes,
            gpus: state.totals().all.gpus,
            spend_micro: ledger.total().cost.micro_dollars(),
            done,
            outcomes: counters.outcomes,
            total: feed.map_or(known, |f| f.jobs().max(known)),
            preemptions: counters.preemptions,
            reclaims: counters.reclaims,
            statuses: counters.statuses,
            fed: feed.map_or(0, EventFeed::position),
            drained: self.drained,
            paused: self.paused.clone(),
            stopped: false,
        }
    }
}

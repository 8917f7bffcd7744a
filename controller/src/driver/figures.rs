//! The figures that matter, counted from the engine's state as often as watching them is worth.
//!
//! Never: part of a decision, or of anything that is journaled.

use super::feed::Feed;
use super::handle::Progress;
use forebay_engine::engine::Engine;
use forebay_engine::ids::Seq;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The shortest time between two counts. People see no more.
const PAUSE: Duration = Duration::from_millis(50);

/// Counts, and tells who watches.
#[derive(Debug)]
pub(super) struct Figures {
    to: watch::Sender<Progress>,
    next: Instant,
    paused: Option<String>,
    /// The last batch that is durable: what watchers may hear of.
    drained: bool,
}

impl Figures {
    pub fn new(to: watch::Sender<Progress>) -> Figures {
        Figures { to, next: Instant::now(), paused: None, drained: false }
    }

    /// Says why nothing is received, or that it is again.
    pub fn pause(&mut self, why: Option<String>) {
        self.paused.clone_from(&why);
        self.to.send_modify(|p| p.paused = why);
    }

    pub fn drained(&mut self, drained: bool) {
        self.drained = drained;
    }

    /// Counts, unless it has just been done. `now`: in any case.
    pub fn tell(&mut self, engine: &Engine, feed: Option<&Feed>, now: bool) {
        let begun = Instant::now();
        if !now && begun < self.next {
            return;
        }
        let progress = self.count(engine, feed);
        self.to.send_if_modified(|old| {
            let changed = *old != progress;
            *old = progress;
            changed
        });
        // A million open jobs take some 20 ms to count: never more than a twentieth of the time.
        self.next = begun + PAUSE.max(begun.elapsed() * 20);
    }

    /// The last word.
    pub fn stopped(&mut self, engine: &Engine, feed: Option<&Feed>) -> Progress {
        let progress = Progress { stopped: true, ..self.count(engine, feed) };
        self.to.send_replace(progress.clone());
        progress
    }

    fn count(&self, engine: &Engine, feed: Option<&Feed>) -> Progress {
        let state = engine.state();
        let counters = state.counters();
        let running = state.running_jobs();
        let mut nodes = [0; 3];
        for node in state.nodes() {
            nodes[state.capacity_of(node) as usize] += 1;
        }
        let ledger = state.ledger_now();
        let done = counters.outcomes.iter().sum::<u64>();
        let known = done + state.open_jobs() as u64;
        Progress {
            now: state.now(),
            seq: Seq(counters.next_seq),
            queued: state.open_jobs().saturating_sub(running),
            running,
            nodes,
            gpus: state.totals().all.gpus,
            spend_micro: ledger.by_capacity.iter().map(|a| a.cost.micro_dollars()).sum(),
            done,
            outcomes: counters.outcomes,
            total: feed.map_or(known, |f| f.jobs().max(known)),
            preemptions: counters.preemptions,
            reclaims: counters.reclaims,
            statuses: counters.statuses,
            fed: feed.map_or(0, Feed::position),
            drained: self.drained,
            paused: self.paused.clone(),
            stopped: false,
        }
    }
}

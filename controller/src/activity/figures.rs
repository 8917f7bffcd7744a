//! What agents have reported, as metrics: worker time by queue, agents, workers by what they do, and what was ignored.
//!
//! Never: a worker, job or node as a label. Queues that the policy does not name share one label.

use super::book::{ActivityBook, AgentFigures, FRESH};
use crate::metrics::catalogue;
use crate::metrics::family::{Family, Number};
use std::time::Duration;

/// Agents that have reported within this time count. Without workers they report once a minute.
const THERE: Duration = Duration::from_secs(150);
const CAUSES: [&str; 5] = ["repeated", "unknown-node", "unknown-job", "not-current", "elsewhere"];

impl ActivityBook {
    /// Worker time by queue, of the queues that `shows`.
    #[must_use]
    pub fn queue_families(&self, shows: impl Fn(&str) -> bool) -> Vec<Family> {
        let inside = self.lock();
        let mut observed = Family::of(&catalogue::WORKER_OBSERVED);
        let mut busy = Family::of(&catalogue::WORKER_BUSY);
        let mut resident = Family::of(&catalogue::WORKER_RESIDENT);
        for (queue, sums) in inside.sums.iter().filter(|(queue, _)| shows(queue)) {
            for (family, ms) in [(&mut observed, sums.observed), (&mut busy, sums.busy), (&mut resident, sums.resident)]
            {
                // Exact up to 285,000 years.
                family.set(&[("queue", queue)], Number::Part(ms as f64 / 1000.0));
            }
        }
        vec![observed, busy, resident]
    }

    /// Agents, the workers that they observe, and what of their reports was ignored.
    #[must_use]
    pub fn agent_families(&self) -> Vec<Family> {
        let (now, inside) = (self.now(), self.lock());
        let mut agents = Family::of(&catalogue::AGENTS);
        let mut workers = Family::of(&catalogue::WORKERS_OBSERVED);
        let there = inside.agents.values().filter(|record| now.saturating_sub(record.seen) < THERE);
        // Agents of nodes without GPUs are neither.
        for (state, figures) in [("reading", AgentFigures::Read), ("failing", AgentFigures::Missing)] {
            for source in ["nvml", "dcgm"] {
                let count = there.clone().filter(|record| record.figures == figures && record.source == source).count();
                agents.set(&[("source", source), ("state", state)], count as u64);
            }
        }
        let fresh = there.filter(|record| now.saturating_sub(record.seen) <= FRESH * 2);
        let fresh = fresh.flat_map(|record| record.workers.values().map(|worker| worker.computes));
        for (state, computes) in [("busy", Some(true)), ("idle", Some(false)), ("unknown", None)] {
            workers.set(&[("state", state)], fresh.clone().filter(|known| *known == computes).count() as u64);
        }
        let mut ignored = Family::of(&catalogue::ACTIVITY_IGNORED);
        for cause in CAUSES {
            ignored.set(&[("cause", cause)], inside.ignored.get(cause).copied().unwrap_or_default());
        }
        let dropped = Family::of(&catalogue::ACTIVITY_DROPPED);
        vec![agents, workers, ignored, dropped.with(&[], inside.dropped)]
    }
}

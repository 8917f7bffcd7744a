//! The world compared with the state: what a complete list of instances and runs says that no event has said.
//!
//! ```text
//! Listing (seen at T) + State  ->  events that are missing; none where there is no difference
//! ```
//!
//! Never: concludes anything from a list that failed (there is none to give), nor about rows that changed less than
//! [`SETTLED`] before the list was taken: lists are stale.

use crate::event::{Event, GoneWhy};
use crate::ids::{Attempt, JobId, OfferingId, PurchaseId};
use crate::state::State;
use crate::state::jobs::Phase;
use crate::state::nodes::NodePhase;
use crate::units::{Span, Timestamp};
use alloc::string::String;
use alloc::vec::Vec;

/// A row must have been as it is for this long before a list may contradict it: longer than any list is stale.
pub const SETTLED: Span = Span::mins(3);

/// Everything with our tag, as the world lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// When the list was taken, by the engine's clock, at the earliest.
    pub seen_at: Timestamp,
    /// Instances that exist.
    pub instances: Vec<SeenInstance>,
    /// Runs that exist or ended.
    pub runs: Vec<SeenRun>,
}

/// An instance as listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenInstance {
    /// The cloud's id.
    pub instance: String,
    /// From its tag.
    pub purchase: PurchaseId,
    /// What it is.
    pub offering: OfferingId,
    /// Whether it can take work.
    pub ready: bool,
}

/// A run as listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenRun {
    /// Which job.
    pub job: JobId,
    /// Which run of it.
    pub attempt: Attempt,
    /// What is known of it.
    pub status: RunStatus,
}

/// What is known of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunStatus {
    /// Its workers are alive.
    Alive,
    /// All its workers finished.
    Completed,
    /// It failed with this exit code.
    Failed(i32),
    /// It is dead without having finished.
    Dead,
}

/// Events that bring the state to what the list says.
#[must_use]
pub fn differences(state: &State, list: &Listing) -> Vec<Event> {
    let mut events = Vec::new();
    let settled = |since: Timestamp| since + SETTLED <= list.seen_at;
    let mut listed: Vec<&str> = list.instances.iter().map(|i| i.instance.as_str()).collect();
    listed.sort_unstable();
    for seen in &list.instances {
        match state.node_of(&seen.instance) {
            Some(node) if seen.ready && node.phase == NodePhase::Booting => {
                events.push(Event::NodeReady { instance: seen.instance.clone() });
            }
            // An open purchase will name its instances itself.
            None if state.purchases.contains_key(&seen.purchase) => {}
            None if seen.purchase.0 < state.counters.next_purchase => {
                let (instance, offering) = (seen.instance.clone(), seen.offering);
                events.push(Event::OrphanSeen { instance, offering });
            }
            _ => {}
        }
    }
    // A cloud does not list what was not bought from it.
    for node in state.bought_nodes() {
        let Some(instance) = &node.instance else {
            continue;
        };
        if settled(node.since) && listed.binary_search(&instance.as_str()).is_err() {
            let why = if node.phase == NodePhase::Terminating { GoneWhy::Terminated } else { GoneWhy::Lost };
            events.push(Event::NodeGone { instance: instance.clone(), why });
        }
    }
    runs(state, list, &mut events);
    events
}

fn runs(state: &State, list: &Listing, events: &mut Vec<Event>) {
    for seen in &list.runs {
        let Some((job, _)) = state.job(seen.job) else {
            continue;
        };
        if job.attempt != seen.attempt || !job.alive() {
            continue;
        }
        let (job, attempt) = (seen.job, seen.attempt);
        let starting = matches!(state.jobs[job].phase, Phase::Starting);
        match seen.status {
            RunStatus::Alive if starting => events.push(Event::RunStarted { job, attempt }),
            RunStatus::Alive => {}
            RunStatus::Completed => events.push(Event::RunCompleted { job, attempt, worker: None }),
            RunStatus::Failed(exit_code) => {
                events.push(Event::RunFailed { job, attempt, exit_code, node_fault: None });
            }
            RunStatus::Dead => events.push(Event::RunStopped { job, attempt, progress: None }),
        }
    }
}

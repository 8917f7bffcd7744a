//! The effects that the rows say are open: released, or to be released, and without an outcome in the journal.
//!
//! ```text
//! purchase without outcome -> Launch      terminating claim -> Terminate      starting, stopping, shrinking run -> Start, Stop, Shrink
//! ```
//!
//! Never: makes an id. An effect has the position of the record that decided it, whenever it is made from the row again.

use crate::effect::{Action, Effect};
use crate::ids::{JobId, NodeId, PurchaseId};
use crate::state::State;
use crate::state::jobs::Phase;
use crate::state::nodes::NodePhase;
use alloc::vec::Vec;

impl State {
    /// Effects whose outcome is not journaled, in the order of their ids: to be released again after a recovery.
    #[must_use]
    pub fn open_effects(&self) -> Vec<Effect> {
        let mut effects: Vec<Effect> = self.purchases.values().map(|p| launch(self, p.id)).collect();
        let terminating = self.nodes.values().filter(|n| n.phase == NodePhase::Terminating);
        effects.extend(terminating.filter_map(|n| terminate(self, n.id)));
        effects.extend(self.index.open_jobs.iter().filter_map(|&job| start_or_stop(self, job)));
        effects.sort_by_key(|e| e.id);
        effects
    }
}

/// The launch of a purchase, as its record froze it.
pub(crate) fn launch(state: &State, id: PurchaseId) -> Effect {
    let p = &state.purchases[&id];
    let (count, at_least) = (p.nodes.len() as u32, p.at_least);
    let action = Action::Launch { purchase: id, offering: p.offering, count, at_least, terms: p.terms };
    Effect { id: p.effect.id, action }
}

/// The termination of a claim, if one is out.
pub(crate) fn terminate(state: &State, id: NodeId) -> Option<Effect> {
    let node = state.nodes.get(&id)?;
    let (effect, instance) = (node.effect?, node.instance.clone()?);
    Some(Effect { id: effect.id, action: Action::Terminate { node: id, instance } })
}

/// The start, stop or shrinking of a job, if one is out.
pub(crate) fn start_or_stop(state: &State, id: JobId) -> Option<Effect> {
    let job = state.jobs.get(id)?;
    let effect = job.effect?;
    let action = match job.phase {
        Phase::Starting => {
            Action::Start { job: id, attempt: job.attempt, workers: job.places.clone(), resume_from: job.resume_from }
        }
        Phase::Stopping { deadline, checkpoint, .. } => {
            Action::Stop { job: id, attempt: job.attempt, checkpoint, deadline }
        }
        Phase::Running => {
            let leaving = job.leaving.clone()?;
            let (leave, deadline) = (leaving.workers, leaving.deadline);
            Action::Shrink { job: id, attempt: job.attempt, leave, deadline }
        }
        _ => return None,
    };
    Some(Effect { id: effect.id, action })
}

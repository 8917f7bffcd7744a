//! Which runs may be stopped, and for whom.
//!
//! Never: weighs what a stop costs. Preemption does that.

use crate::ids::{JobId, TierId};
use crate::policy::{Policy, Tier};
use crate::state::State;

/// Past its protection, which holds minRun, a restart's catching up, and ends at `maxRunWhileOthersWait` at the latest; and nothing
/// is being taken from it already.
pub(crate) fn may_be_stopped(state: &State, id: JobId) -> bool {
    let job = &state.jobs[id];
    job.broken.is_none() && job.leaving.is_none() && job.running_since.is_some() && job.protected_until <= state.now
}

/// A run that has lasted as long as it may while others wait gives way to any higher tier.
pub(crate) fn stoppable_when_overdue(policy: &Policy, tier: &Tier, by: TierId) -> bool {
    let higher = policy.tiers.get(by.index()).is_some_and(|t| t.priority > tier.priority);
    tier.max_run_while_others_wait.is_some() && higher
}

/// Past its protection, and of the gang's tier, a lower one, or one that the gang's may stop.
pub(crate) fn yields_reservation(state: &State, victim: JobId, by: JobId) -> bool {
    let (row, gang) = (&state.jobs[victim], &state.jobs[by]);
    let Some(policy) = state.policy.as_deref() else { return false };
    let priority = |tier: TierId| policy.tiers.get(tier.index()).map_or(0, |t| t.priority);
    let named = policy.tiers.get(row.tier.index()).is_some_and(|t| t.stoppable_by.contains(&gang.tier));
    row.protected_until <= state.now && (named || priority(row.tier) <= priority(gang.tier))
}

/// How many runs are being stopped, or lose workers, for a job.
pub(crate) fn stopping_for(state: &State, job: JobId) -> u32 {
    state.index.ending_for.get(&job).copied().unwrap_or(0)
}

//! What a tier is left with by preemption.
//!
//! preempt.md, "Rank": "By tier, no tier falls below its `minShare` of all GPUs that are held." What its queues have borrowed may be taken back
//! all the same, by quota and by share: such a stop (`QuotaReclaimed`) bounds nothing.
//!
//! ```text
//! stopped or shrunk by tier -> what stays of the victim's tier, of all that was held before   >= minShare
//! ```
//!
//! In favour of the engine: what a batch books counts for the tier and not as held, and what it takes from the tier on other grounds, or unbooks,
//! counts as if it had stayed. When in the batch it was taken is not known.
//!
//! Never: `Index::in_use`. That is what is checked.

use std::collections::{BTreeMap, BTreeSet};

use forebay_kernel::decision::{Decision, StopCause};
use forebay_kernel::ids::{JobId, TierId};
use forebay_kernel::journal::Batch;
use forebay_kernel::state::State;
use forebay_kernel::state::jobs::{Job, Phase};

use super::checks::open_jobs;

/// What jobs held after the last batch, in thousandths of a GPU.
#[derive(Debug, Default)]
pub(super) struct MinShares {
    held: BTreeMap<JobId, u64>,
    pub found: Vec<String>,
}

impl MinShares {
    /// A batch is durable and applied.
    pub fn batch(&mut self, batch: &Batch, state: &State) {
        let held = open_jobs(state).filter(|job| job.share.0 > 0).map(|job| (job.id, job.share.0)).collect();
        let before = std::mem::replace(&mut self.held, held);
        let by_tier: BTreeSet<TierId> = batch.decisions.iter().filter_map(|made| taken_by_tier(made, state)).collect();
        for tier in by_tier {
            self.keeps(tier, batch, &before, state);
        }
    }

    fn keeps(&mut self, tier: TierId, batch: &Batch, before: &BTreeMap<JobId, u64>, state: &State) {
        let Some(rule) = state.policy().and_then(|policy| policy.tiers.get(tier.index())) else { return };
        let booked: BTreeMap<JobId, u64> = batch.decisions.iter().filter_map(booked).collect();
        let old = self.held.iter().filter(|(job, _)| !booked.contains_key(job));
        let all: u64 = old.map(|(_, share)| share).sum();
        let own = open_jobs(state).filter(|job| job.tier == tier).map(staying).sum::<u64>();
        let otherwise = batch.decisions.iter().map(|made| match made {
            Decision::Unbook { job } if is_of(*job, tier, state) => {
                before.get(job).copied().unwrap_or(0).max(booked.get(job).copied().unwrap_or(0))
            }
            Decision::Stop { job, cause, .. } if !by_rank(*cause) && is_of(*job, tier, state) => {
                self.held.get(job).copied().unwrap_or(0)
            }
            Decision::Shrink { job, cause, leave, .. } if !by_rank(*cause) && is_of(*job, tier, state) => {
                state.job(*job).map_or(0, |(row, _)| share_on(row, |number| leave.contains(&number)))
            }
            _ => 0,
        });
        let own = own + otherwise.sum::<u64>();
        if u128::from(own) * 1000 < u128::from(all) * u128::from(rule.min_share) {
            let (at, name, least) = (state.now().0, &rule.name, rule.min_share);
            self.found.push(format!("at {at}: tier `{name}` is left {own} of {all} by tier, minShare is {least}"));
        }
    }
}

/// By tier or by number: not because of quota.
fn by_rank(cause: StopCause) -> bool {
    matches!(cause, StopCause::Preempted { .. })
}

/// The tier of a run from which a decision takes something by tier.
fn taken_by_tier(decision: &Decision, state: &State) -> Option<TierId> {
    match decision {
        Decision::Stop { job, cause, .. } | Decision::Shrink { job, cause, .. } if by_rank(*cause) => {
            state.job(*job).map(|(row, _)| row.tier)
        }
        _ => None,
    }
}

/// What a decision books for whom.
fn booked(decision: &Decision) -> Option<(JobId, u64)> {
    match decision {
        Decision::Book { job, places, .. } => Some((*job, places.iter().map(|place| place.gpu_share().0).sum())),
        _ => None,
    }
}

fn is_of(job: JobId, tier: TierId, state: &State) -> bool {
    state.job(job).is_some_and(|(row, _)| row.tier == tier)
}

/// What a job holds that is neither being stopped nor leaving.
fn staying(job: &Job) -> u64 {
    match job.phase {
        Phase::Stopping { .. } => 0,
        _ if job.leaving().is_empty() => job.share.0,
        _ => share_on(job, |number| !job.leaving().contains(&number)),
    }
}

/// What some of a run's workers hold.
fn share_on(job: &Job, which: impl Fn(u32) -> bool) -> u64 {
    let workers = job.places.iter().zip(&job.numbers).filter(|(_, number)| which(**number));
    workers.map(|(place, _)| place.gpu_share().0).sum()
}

#[cfg(test)]
mod tests {
    use super::super::broken::{Life, job, policy};
    use super::*;
    use forebay_kernel::job::JobSpec;
    use forebay_kernel::policy::Undeclared;
    use forebay_kernel::units::Timestamp;

    /// Two runs of the lower tier and one of the higher, a GPU each; the first is stopped for the third with this cause.
    fn found(min_share: u16, cause: StopCause) -> Vec<String> {
        let high = JobSpec { tier: Some("high".to_owned()), ..job("c") };
        let mut policy = policy();
        if let Undeclared::Under { rule, .. } = &mut policy.undeclared {
            rule.tiers = Some(vec![TierId(0), TierId(1)]);
        }
        let life = Life::running(policy, vec![job("a"), job("b"), high]);
        let mut state = life.state();
        state.policy.as_mut().unwrap().tiers[0].min_share = min_share;
        let victim = JobId(0);
        let (checkpoint, deadline) = (true, Timestamp::NEVER);
        state.jobs[victim].phase = Phase::Stopping { cause, checkpoint, deadline };
        let decisions = vec![Decision::Stop { job: victim, cause, checkpoint, deadline }];
        let batch = &life.steps.last().unwrap().batch;
        let mut shares = MinShares::default();
        shares.batch(&Batch { decisions, events: Vec::new(), ..batch.clone() }, &state);
        shares.found
    }

    #[test]
    fn a_tier_that_is_left_less_than_its_share_is_found() {
        let by = JobId(2);
        for (least, count) in [(0, 0), (333, 0), (334, 1), (1000, 1)] {
            let found = found(least, StopCause::Preempted { by });
            assert_eq!(found.len(), count, "minShare {least}: {found:?}");
        }
    }

    #[test]
    fn what_is_taken_back_for_quota_is_no_part_of_its_share() {
        assert_eq!(found(1000, StopCause::QuotaReclaimed { by: JobId(2) }), [""; 0]);
    }
}

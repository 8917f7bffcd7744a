//! Quotas once the policy has changed: what runs may be above a smaller one, and no booking takes more.
//!
//! POLICY-CHANGES.md, "a smaller quota": what runs goes "on, above it"; DESIGN.md section 7: "no decision that raises quota use [..] above its bound".
//! Until the first change the observer holds the stricter rule, that nothing is ever above.
//!
//! Never: `State::quota`. The recurrence of lending and borrowing is worked out from the policy and the jobs.

use std::collections::BTreeMap;

use forebay_kernel::decision::Decision;
use forebay_kernel::event::Event;
use forebay_kernel::ids::{PoolId, QuotaId};
use forebay_kernel::journal::Batch;
use forebay_kernel::policy::Policy;
use forebay_kernel::state::State;
use forebay_kernel::units::MilliGpu;

use super::checks::open_jobs;
use super::promises::rule;

/// Thousandths of a GPU by node of the quota tree and pool.
type ByQuota = BTreeMap<(QuotaId, PoolId), u64>;

/// What jobs held after the last batch.
#[derive(Debug, Default)]
pub(super) struct Quotas {
    held: ByQuota,
    pub found: Vec<String>,
}

impl Quotas {
    /// A batch is durable and applied.
    pub fn batch(&mut self, batch: &Batch, state: &State) {
        let Some(policy) = state.policy() else { return };
        let before = std::mem::replace(&mut self.held, held(state));
        let another = batch.events.iter().any(|event| matches!(event, Event::Configured(_)));
        let books = batch.decisions.iter().any(|decision| matches!(decision, Decision::Book { .. }));
        if books && !another {
            self.takes_no_more(policy, &before, state.now().0);
        }
    }

    fn takes_no_more(&mut self, policy: &Policy, before: &ByQuota, now: u64) {
        let was = above(policy, before);
        for ((quota, pool), over) in above(policy, &self.held) {
            let was = was.get(&(quota, pool)).copied().unwrap_or(0);
            if over > was {
                let (name, over, was) = (&policy.quotas[quota.index()].name, MilliGpu(over), MilliGpu(was));
                self.found.push(format!("at {now}: {name} is {over} GPUs above its bound in {pool}, it was {was}"));
            }
        }
    }
}

fn held(state: &State) -> ByQuota {
    let mut held = ByQuota::new();
    for job in open_jobs(state) {
        if let (Some(pool), Some(rule)) = (job.pool, rule(state, job)) {
            *held.entry((rule.quota, pool)).or_default() += job.share.0;
        }
    }
    held
}

/// By how much each node is above what it may use. What a node uses beyond what it keeps for itself is its parent's use.
fn above(policy: &Policy, held: &ByQuota) -> ByQuota {
    let mut above = ByQuota::new();
    for pool in (0u16..).map(PoolId).zip(&policy.pools).map(|(pool, _)| pool) {
        let count = policy.quotas.len();
        let (mut used, mut owned, mut bounded) = (vec![0u64; count], vec![0u64; count], vec![false; count]);
        // Children come after their parents.
        for (at, node) in policy.quotas.iter().enumerate().rev() {
            let id = QuotaId(u16::try_from(at).unwrap_or(u16::MAX));
            let limit = node.limits.get(&pool);
            used[at] += held.get(&(id, pool)).copied().unwrap_or(0);
            owned[at] += limit.map_or(0, |limit| limit.nominal.0);
            bounded[at] |= limit.is_some();
            let keeps = limit.and_then(|limit| limit.lend).map_or(0, |lend| owned[at].saturating_sub(lend.0));
            let most = match (node.parent, limit) {
                (None, _) => bounded[at].then_some(owned[at]),
                (Some(_), Some(limit)) => limit.borrow.map(|borrow| owned[at].saturating_add(borrow.0)),
                (Some(_), None) => None,
            };
            if let Some(most) = most.filter(|most| used[at] > *most) {
                above.insert((id, pool), used[at] - most);
            }
            if let Some(parent) = node.parent.map(|parent| parent.index()) {
                used[parent] += used[at].saturating_sub(keeps);
                owned[parent] += owned[at].saturating_sub(keeps);
                bounded[parent] |= bounded[at];
            }
        }
    }
    above
}

#[cfg(test)]
mod tests {
    use super::super::broken::{Life, job, policy};
    use super::*;
    use crate::score::observer::Observer;
    use forebay_kernel::policy::QuotaLimit;

    /// The policy of a state, with so many GPUs for all.
    fn own(state: &mut State, gpus: u64) {
        let limit = QuotaLimit { nominal: MilliGpu::whole(gpus), borrow: Some(MilliGpu(0)), lend: None };
        state.policy.as_mut().unwrap().quotas[0].limits.insert(PoolId(0), limit);
    }

    #[test]
    fn a_booking_above_a_quota_is_found_and_what_was_above_before_is_not() {
        let life = Life::running(policy(), vec![job("a"), job("b")]);
        let found = |gpus: u64, held: Option<u64>| {
            let mut quotas = Quotas::default();
            for step in life.steps.iter().skip(1) {
                let mut state = step.state.clone();
                own(&mut state, gpus);
                held.into_iter().for_each(|held| _ = quotas.held.insert((QuotaId(0), PoolId(0)), held));
                quotas.batch(&step.batch, &state);
            }
            quotas.found.len()
        };
        assert_eq!(found(2, None), 0);
        assert!(found(1, None) > 0);
        assert_eq!(found(1, Some(2000)), 0, "it was above before");
    }

    #[test]
    fn the_observer_finds_ceilings_and_quotas_that_are_passed() {
        let life = Life::running(policy(), vec![job("a")]);
        let found = |change: &dyn Fn(&mut State)| {
            let mut observer = Observer::default();
            for step in &life.steps {
                let mut state = step.state.clone();
                change(&mut state);
                observer.batch(&step.batch, &state);
            }
            (observer.ceilings > 0, observer.quotas > 0)
        };
        assert_eq!(found(&|_| {}), (false, false));
        assert_eq!(found(&|state| state.policy.as_mut().unwrap().limits.nodes = Some(0)), (true, false));
        let of_pool = |state: &mut State| state.policy.as_mut().unwrap().pools[0].ceiling.gpus = Some(0);
        assert_eq!(found(&of_pool), (true, false));
        assert_eq!(found(&|state| own(state, 0)), (false, true));
    }
}

//! What each tenant has open: jobs, bytes of their specifications, undeclared queues. A submission beyond its limits is refused before
//! it reaches the engine, which knows nothing of them: what is journaled replays whatever the limits are now.
//!
//! Never: refuses what is known already, or a report of a run.

use forebay_kernel::ids::JobId;
use forebay_kernel::job::JobSpec;
use forebay_kernel::reason::{Reason, TenantBound};
use forebay_kernel::state::State;
use forebay_kernel::state::retire::FinishedJob;
use std::collections::BTreeMap;

/// What a specification takes beside its texts: its row, its lookups, its place in the journal.
const ROW_BYTES: u64 = 1_024;

/// What one tenant may have open at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TenantLimit {
    /// Jobs that are not over.
    pub open_jobs: u64,
    /// Bytes of their specifications, each with 1 KiB for its row.
    pub bytes: u64,
    /// Queues of these jobs that the policy does not declare.
    pub undeclared_queues: u64,
}

impl Default for TenantLimit {
    /// A million jobs, as many as one process is made for, with 4 KiB each. The policy bounds undeclared queues over all tenants.
    fn default() -> TenantLimit {
        TenantLimit { open_jobs: 1_000_000, bytes: 4 << 30, undeclared_queues: 1_000 }
    }
}

/// The limits of all tenants.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TenantLimits {
    /// Of those that are not named.
    pub each: TenantLimit,
    /// Of those that are.
    pub named: BTreeMap<String, TenantLimit>,
}

/// What tenants have open now.
#[derive(Debug)]
pub(super) struct TenantUse {
    limits: TenantLimits,
    by_tenant: BTreeMap<String, Open>,
    /// Bytes of each open job: its specification may be shorter when it is over.
    bytes: BTreeMap<JobId, u64>,
}

#[derive(Debug, Default)]
struct Open {
    jobs: u64,
    bytes: u64,
    /// Jobs by queue, of queues that the policy did not declare when they came.
    undeclared: BTreeMap<String, u64>,
}

fn bytes(spec: &JobSpec) -> u64 {
    let texts = [spec.subject.len(), spec.queue.len(), spec.run.len(), spec.batch.as_ref().map_or(0, String::len)];
    let models: usize = spec.models.iter().map(String::len).sum();
    ROW_BYTES + (texts.iter().sum::<usize>() + models) as u64
}

fn is_declared(state: &State, queue: &str) -> bool {
    state.policy().is_some_and(|policy| policy.queues.contains_key(queue))
}

impl TenantUse {
    /// As a state has it.
    pub fn of(limits: TenantLimits, state: &State) -> TenantUse {
        let mut open = TenantUse { limits, by_tenant: BTreeMap::new(), bytes: BTreeMap::new() };
        let jobs = state.jobs().filter(|(job, _)| !job.done() && job.service.is_none());
        jobs.for_each(|(job, spec)| open.accepted(state, job.id, spec));
        open
    }

    /// Why a new job is not taken. `None`: it is within its tenant's limits.
    pub fn refusal(&self, state: &State, spec: &JobSpec) -> Option<Reason> {
        let limit = self.limits.named.get(&spec.tenant).unwrap_or(&self.limits.each);
        let none = Open::default();
        let open = self.by_tenant.get(&spec.tenant).unwrap_or(&none);
        let full = |bound, most| Some(Reason::TenantFull { bound, most });
        if open.jobs >= limit.open_jobs {
            return full(TenantBound::OpenJobs, limit.open_jobs);
        }
        if open.bytes + bytes(spec) > limit.bytes {
            return full(TenantBound::Bytes, limit.bytes);
        }
        let new = !open.undeclared.contains_key(&spec.queue) && !is_declared(state, &spec.queue);
        if new && open.undeclared.len() as u64 >= limit.undeclared_queues {
            return full(TenantBound::UndeclaredQueues, limit.undeclared_queues);
        }
        None
    }

    /// A job was accepted.
    pub fn accepted(&mut self, state: &State, job: JobId, spec: &JobSpec) {
        let bytes = bytes(spec);
        let open = self.by_tenant.entry(spec.tenant.clone()).or_default();
        open.jobs += 1;
        open.bytes += bytes;
        if !is_declared(state, &spec.queue) {
            *open.undeclared.entry(spec.queue.clone()).or_default() += 1;
        }
        self.bytes.insert(job, bytes);
    }

    /// Jobs are over.
    pub fn finished(&mut self, finished: &[FinishedJob]) {
        for FinishedJob { job, spec, .. } in finished {
            let (Some(bytes), Some(open)) = (self.bytes.remove(&job.id), self.by_tenant.get_mut(&spec.tenant)) else {
                continue;
            };
            open.jobs = open.jobs.saturating_sub(1);
            open.bytes = open.bytes.saturating_sub(bytes);
            if let Some(jobs) = open.undeclared.get_mut(&spec.queue) {
                *jobs -= 1;
                if *jobs == 0 {
                    open.undeclared.remove(&spec.queue);
                }
            }
            if open.jobs == 0 {
                self.by_tenant.remove(&spec.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(tenant: &str, queue: &str) -> JobSpec {
        JobSpec { tenant: tenant.into(), subject: "s".into(), queue: queue.into(), ..JobSpec::default() }
    }

    fn bound(reason: Option<Reason>) -> Option<TenantBound> {
        reason.map(|reason| match reason {
            Reason::TenantFull { bound, .. } => bound,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn a_tenant_is_refused_at_its_own_limits_and_others_are_not() {
        let each = TenantLimit { open_jobs: 3, bytes: 10 << 10, undeclared_queues: 2 };
        let named = BTreeMap::from([("large".to_owned(), TenantLimit::default())]);
        let state = State::default();
        let mut open = TenantUse::of(TenantLimits { each, named }, &state);
        open.accepted(&state, JobId(1), &spec("a", "x"));
        open.accepted(&state, JobId(2), &spec("a", "y"));
        assert_eq!(bound(open.refusal(&state, &spec("a", "z"))), Some(TenantBound::UndeclaredQueues));
        assert_eq!(bound(open.refusal(&state, &spec("a", "y"))), None, "it has that one");
        let large = JobSpec { run: vec![0; 9 << 10], ..spec("a", "x") };
        assert_eq!(bound(open.refusal(&state, &large)), Some(TenantBound::Bytes));
        assert_eq!(bound(open.refusal(&state, &JobSpec { tenant: "large".into(), ..large })), None);
        open.accepted(&state, JobId(3), &spec("a", "y"));
        assert_eq!(bound(open.refusal(&state, &spec("a", "x"))), Some(TenantBound::OpenJobs));
        assert_eq!(bound(open.refusal(&state, &spec("b", "x"))), None);
    }
}

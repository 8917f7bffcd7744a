//! The reasons that a sweep has to meet: every code that the kernel has, each with the number of seeds within which it comes up.
//!
//! Never: a code that nobody decided about. The match is exhaustive, so a new reason does not compile until it is in it.

use forebay_engine::engine::Engine;
use forebay_kernel::event::LaunchError;
use forebay_kernel::ids::{JobId, NodeId, OfferingId, PoolId, QueueId, QuotaId};
use forebay_kernel::job::Level;
use forebay_kernel::reason::{Bound, Reason, TenantBound};
use forebay_kernel::state::State;
use forebay_kernel::state::jobs::Job;
use forebay_kernel::state::nodes::NodePhase;
use forebay_kernel::units::{MilliGpu, Rate, Span, Timestamp};

use super::budgets::lineage;
use super::promises::rule;

/// One of each.
pub(super) const SAMPLES: [Reason; 59] = [
    Reason::Conflict,
    Reason::UnknownQueue,
    Reason::ForbiddenQueue,
    Reason::Misconfigured,
    Reason::NoMatchingPool,
    Reason::ExceedsMaxQuota { asked: MilliGpu(1), most: MilliGpu(1) },
    Reason::ExceedsCeiling,
    Reason::StartTooLate { within: Span(1) },
    Reason::Budget { until: Timestamp(1) },
    Reason::WaitingForQuota { asked: MilliGpu(1), available: MilliGpu(1) },
    Reason::WaitingForPreemption { victims: 1 },
    Reason::AwaitingNodes { eta: Timestamp(1) },
    Reason::Batched { running: 1, until: None },
    Reason::WaitingByDesign { until: Timestamp(1) },
    Reason::BurstIsNoise { until: Timestamp(1) },
    Reason::TopologyUnsatisfied { level: Level::Node },
    Reason::Reserved { from: Timestamp(1) },
    Reason::ReservationDelayed { until: Timestamp(1) },
    Reason::Ceiling { bound: Bound::Nodes },
    Reason::Stockout { offering: OfferingId(0), until: Timestamp(1) },
    Reason::LaunchRefused { offering: OfferingId(0), error: LaunchError::Auth, until: Timestamp(1) },
    Reason::NothingIdle,
    Reason::BehindInQueue { position: 1 },
    Reason::BackOff { until: Timestamp(1) },
    Reason::Starting,
    Reason::PreemptedBy { queue: QueueId(0) },
    Reason::Reclaimed,
    Reason::Moved,
    Reason::Shrunk { workers: 1 },
    Reason::QuotaReclaimed { queue: QueueId(0) },
    Reason::Overran,
    Reason::Hurried,
    Reason::DeadlineUnreachable { eta: Timestamp(1) },
    Reason::NodeHung,
    Reason::Scaled,
    Reason::NodeLost,
    Reason::StartTimeout,
    Reason::MaxRun { limit: Span(1) },
    Reason::Lingering { idle: Span(1) },
    Reason::ExitCode { code: 1 },
    Reason::Asked,
    Reason::StartFailures { starts: 1 },
    Reason::NoProgress { reclaims: 1 },
    Reason::ForbiddenTier { queue: QueueId(0) },
    Reason::TooManyQueues { most: 1 },
    Reason::BeyondBudget { least: Rate(1), budget: Rate(1), bound: None },
    Reason::DeadlineOnlyCounted,
    Reason::NodeBeyondBudget { least: Rate(1), budget: Rate(1) },
    Reason::AwaitingProbe { offering: OfferingId(0), until: Timestamp(1) },
    Reason::KeptForAnother { job: JobId(0), from: Timestamp(1) },
    Reason::Grows,
    Reason::OwnedNodesFull { pool: PoolId(0), nodes: 1, gpus: 1, foreign: 1 },
    Reason::TenantFull { bound: TenantBound::Bytes, most: 1 },
    Reason::BuyingPaused { until: None },
    Reason::AdmissionPaused { until: None },
    Reason::PreemptionPaused { until: None },
    Reason::QueueHeld { until: None },
    Reason::PoolDraining { pool: PoolId(0), until: None },
    Reason::ClusterQuota { until: Timestamp(1) },
];

/// From so many seeds on a sweep has met it; several times as many as it takes on average. `None`: it has nothing that leads there.
pub(super) fn met_within(reason: &Reason) -> Option<u64> {
    match reason {
        Reason::Conflict
        | Reason::UnknownQueue
        | Reason::NoMatchingPool
        | Reason::ExceedsMaxQuota { .. }
        | Reason::ExceedsCeiling
        | Reason::StartTooLate { .. }
        | Reason::Budget { .. }
        | Reason::WaitingForQuota { .. }
        | Reason::WaitingForPreemption { .. }
        | Reason::AwaitingNodes { .. }
        | Reason::Batched { .. }
        | Reason::WaitingByDesign { .. }
        | Reason::BurstIsNoise { .. }
        | Reason::TopologyUnsatisfied { .. }
        | Reason::Reserved { .. }
        | Reason::ReservationDelayed { .. }
        | Reason::Ceiling { .. }
        | Reason::Stockout { .. }
        | Reason::LaunchRefused { .. }
        | Reason::NothingIdle
        | Reason::BehindInQueue { .. }
        | Reason::BackOff { .. }
        | Reason::Starting
        | Reason::PreemptedBy { .. }
        | Reason::Reclaimed
        | Reason::Moved
        | Reason::QuotaReclaimed { .. }
        | Reason::Overran
        | Reason::Hurried
        | Reason::DeadlineUnreachable { .. }
        | Reason::NodeHung
        | Reason::NodeLost
        | Reason::StartTimeout
        | Reason::MaxRun { .. }
        | Reason::Lingering { .. }
        | Reason::ExitCode { .. }
        | Reason::Asked
        | Reason::ForbiddenTier { .. }
        | Reason::TooManyQueues { .. }
        | Reason::BeyondBudget { .. }
        | Reason::DeadlineOnlyCounted
        | Reason::NodeBeyondBudget { .. }
        | Reason::AwaitingProbe { .. }
        | Reason::KeptForAnother { .. }
        | Reason::Grows
        | Reason::BuyingPaused { .. }
        | Reason::AdmissionPaused { .. }
        | Reason::QueueHeld { .. }
        | Reason::PoolDraining { .. } => Some(1_000),
        Reason::Shrunk { .. } | Reason::PreemptionPaused { .. } | Reason::OwnedNodesFull { .. } => Some(5_000),
        Reason::NoProgress { .. } => Some(5_000),
        // A replica has no statuses, and is not asked for once it is to go: its stop is counted (`scaled`).
        Reason::Scaled => None,
        // Five starts in a row have to fail within a few hours; replicas, which go on for longer, go on trying.
        Reason::StartFailures { .. } => None,
        // No policy of a sweep lists submitters, and no workload contradicts itself: both are refused before anything else happens.
        Reason::ForbiddenQueue | Reason::Misconfigured => None,
        // The simulated cluster has no quotas of its own.
        Reason::ClusterQuota { .. } => None,
        // The controller refuses those; the engine has no such bound.
        Reason::TenantFull { .. } => None,
    }
}

/// Whether a job may wait with this reason long after the last submission, run and fault: its policy or the market never has what it needs. By then
/// nobody is before it whom it could wait for, so that waiting for others, for a stop, a boot or an operator is being forgotten.
///
/// DESIGN.md section 4, "live": who fits and is within its quota starts; REASONS.md says what ends each of these waits.
pub(super) fn may_wait_for_ever(reason: Reason, now: Timestamp) -> bool {
    match reason {
        // Held: the policy in force makes it impossible.
        Reason::UnknownQueue
        | Reason::NoMatchingPool
        | Reason::ExceedsMaxQuota { .. }
        | Reason::ExceedsCeiling
        | Reason::BeyondBudget { .. } => true,
        // Floors fill a ceiling, the market has nothing, the tier buys nothing, the budget pays for nothing that there is.
        Reason::Ceiling { .. }
        | Reason::Stockout { .. }
        | Reason::LaunchRefused { .. }
        | Reason::AwaitingProbe { .. }
        | Reason::NothingIdle
        | Reason::OwnedNodesFull { .. }
        | Reason::TopologyUnsatisfied { .. }
        | Reason::Budget { .. }
        | Reason::NodeBeyondBudget { .. }
        // Others of its queue that ask for the same wait before it, each with a reason of its own that counts.
        | Reason::BehindInQueue { .. } => true,
        // What a budget leaves is kept for one that the next day or month pays for: backfill.md, "Quota and money". What is kept from hour to hour is
        // kept for one that no hour pays for.
        Reason::KeptForAnother { from, .. } => from.since(now) > Span::mins(60),
        _ => false,
    }
}

/// A run or a boot of a workload is over by then.
const LONGEST: Span = Span::mins(120);

/// Whether a job has places: it does not wait.
pub(super) fn holds_places(row: &Job) -> bool {
    !row.places.is_empty()
}

/// Whether anything that began lately still goes on, so that others may wait for it by right: a run, or one that has its nodes booked; or a node that is being
/// given back for somebody.
pub(super) fn goes_on(state: &State) -> bool {
    let leaves = |id: &NodeId| {
        let row = state.nodes.get(id);
        row.is_some_and(|row| matches!(row.phase, NodePhase::Draining { .. } | NodePhase::Terminating))
    };
    if state.reservations().values().any(|kept| !kept.room.is_empty() && kept.nodes.iter().any(leaves)) {
        return true;
    }
    let runs = |id: JobId| {
        let row = state.job(id).map(|(row, _)| row);
        row.is_some_and(|row| row.service.is_none() && state.now().since(row.since) < LONGEST && holds_places(row))
    };
    state.open_job_ids().any(runs)
}

/// Whether a job keeps quota or money that others gave up for it, and waits for what its policy or the market may never have. Whom that keeps from its
/// quota could not go anywhere with it: else it would have been given up.
///
/// In which pools that is, and in which trees of quota, by their roots.
pub(super) fn kept_by_right(engine: &Engine) -> Vec<(PoolId, QuotaId)> {
    let state = engine.state();
    let keeps = |id: JobId| {
        let (row, _) = state.job(id)?;
        let kept = row.kept?;
        let by_right = engine.why(id).is_some_and(|reason| may_wait_for_ever(reason, state.now()));
        root(state, row).filter(|_| by_right).map(|root| (kept.pool, root))
    };
    state.open_job_ids().filter_map(keeps).collect()
}

/// Whether a job waits for quota that is kept by right in one of its queue's pools.
pub(super) fn lacks_what_is_kept(state: &State, id: JobId, kept: &[(PoolId, QuotaId)]) -> bool {
    let Some((row, _)) = state.job(id) else { return false };
    let (rule, root) = (rule(state, row), root(state, row));
    kept.iter().any(|(pool, at)| Some(*at) == root && rule.is_some_and(|rule| rule.pools.contains(pool)))
}

/// The uppermost node of the quota tree above the queue of a job.
fn root(state: &State, row: &Job) -> Option<QuotaId> {
    lineage(row.queue, state.policy()?, state).last()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn there_is_one_of_each() {
        let codes: BTreeSet<&str> = SAMPLES.iter().map(|reason| reason.code()).collect();
        assert_eq!(codes.len(), SAMPLES.len());
        let documented = include_str!("../../../docs/REASONS.md");
        let rows = documented.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
        let documented: BTreeSet<&str> =
            rows.flat_map(|cell| cell.split(['`', ',', ' '])).filter(|word| !word.is_empty()).collect();
        assert_eq!(codes, documented);
    }
}

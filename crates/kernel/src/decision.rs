//! Everything that the stages may decide: one closed enum. A decision is applied as it is made, journaled with its batch,
//! and frees its effect only when that batch is durable.
//!
//! Never: decided again. Recovery applies what is written here, even where a newer version would decide otherwise.

use crate::effect::{Terms, WorkerPlace};
use crate::ids::{ClassId, JobId, NodeId, OfferingId, PoolId, PurchaseId};
use crate::reason::Reason;
use crate::state::Urgency;
use crate::state::allowances::{Allowance, AllowanceReservation};
use crate::state::jobs::Kept;
use crate::state::reservations::Reservation;
use crate::units::{Span, Timestamp};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Everything that may be decided.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Decision {
    /// settle, admit: never to be run.
    Reject {
        /// Which job.
        job: JobId,
        /// Why.
        reason: Reason,
    },
    /// settle: a pause after a failure is over, or what held a job is: it waits in its queue again.
    Resume {
        /// Which job.
        job: JobId,
    },
    /// settle: a run ended before its job was done; the job waits again.
    Requeue {
        /// Which job.
        job: JobId,
        /// Why the run ended.
        reason: Reason,
        /// Not before then.
        not_before: Timestamp,
    },
    /// settle: the job is over.
    Finish {
        /// Which job.
        job: JobId,
        /// How.
        outcome: Outcome,
        /// Why, where it is not completed.
        reason: Option<Reason>,
    },
    /// scale: a service needs one more replica.
    Replicate {
        /// Which service.
        service: JobId,
    },
    /// settle: a run is not known to be dead so long after it was to be killed: it has hung, and its nodes are given up.
    GiveUp {
        /// Whose run.
        job: JobId,
    },
    /// settle: an effect without an outcome is released again under its id.
    Repeat {
        /// Whose effect.
        of: EffectOf,
        /// Not again before then.
        next: Timestamp,
    },
    /// deadline: how urgent a job is from now on, which decides what it may run on.
    Reassess {
        /// Which job.
        job: JobId,
        /// How it stands.
        urgency: Urgency,
        /// Looked at again then, without any other occasion.
        again: Timestamp,
        /// It cannot be met: the job would end then.
        late: Option<Timestamp>,
    },
    /// admit + place: the job holds quota in a pool and these places. It starts when all of them are ready.
    Book {
        /// Which job.
        job: JobId,
        /// Whose quota.
        pool: PoolId,
        /// Where each worker goes.
        places: Vec<WorkerPlace>,
    },
    /// start_target: nothing is bought for a job before this time.
    Defer {
        /// Which job.
        job: JobId,
        /// Looked at again then.
        until: Timestamp,
        /// What it waits for: the places of this run on this node. `None`: for nothing in particular.
        run: Option<(NodeId, JobId)>,
    },
    /// start_target: a job may wait no longer: nodes are bought for it.
    Due {
        /// Which job.
        job: JobId,
    },
    /// start_target: a job has not started by its target: on-demand is bought for it too, whatever its tier prefers.
    Late {
        /// Which job.
        job: JobId,
    },
    /// admit, settle, deadline, backfill: a booked job gives its quota and places back.
    Unbook {
        /// Which job.
        job: JobId,
    },
    /// admit, start: all places are ready: start the gang.
    Start {
        /// Which job.
        job: JobId,
    },
    /// admit, provision: ask the cloud for nodes.
    Buy {
        /// The new purchase.
        purchase: PurchaseId,
        /// Into which pool.
        pool: PoolId,
        /// Of what.
        offering: OfferingId,
        /// How many. Their claims get the next ids.
        count: u32,
        /// Fewer than this are of no use.
        at_least: u32,
        /// How.
        terms: Terms,
    },
    /// preempt, settle: stop a run.
    Stop {
        /// Which job.
        job: JobId,
        /// Why, and so what follows when it has stopped.
        cause: StopCause,
        /// Whether to save a checkpoint first.
        checkpoint: bool,
        /// Killed at the latest then.
        deadline: Timestamp,
    },
    /// preempt, settle: workers leave an elastic gang; the rest goes on.
    Shrink {
        /// Which job.
        job: JobId,
        /// Why.
        cause: StopCause,
        /// Which of its workers, by their numbers.
        leave: Vec<u32>,
        /// Killed at the latest then.
        deadline: Timestamp,
    },
    /// preempt: quota that others give back is kept for a job until it runs.
    Keep {
        /// For which job.
        job: JobId,
        /// How much, where.
        kept: Kept,
    },
    /// preempt: what these nodes free is kept for a job until then.
    Reserve {
        /// For which job.
        job: JobId,
        /// Where.
        nodes: Vec<NodeId>,
        /// At the longest until then.
        until: Timestamp,
    },
    /// settle: what was kept for a job has been kept for long enough.
    Unreserve {
        /// Which job.
        job: JobId,
    },
    /// settle: a reservation is over.
    Release {
        /// Where.
        node: NodeId,
    },
    /// backfill, admit: the reservation of a pool, instead of the one that it had.
    MakeReservation {
        /// Where.
        pool: PoolId,
        /// What, and for which job.
        reservation: Reservation,
    },
    /// backfill, admit: the pool has no reservation any more.
    EndReservation {
        /// Where.
        pool: PoolId,
    },
    /// admit: the job just booked is backfill: it was let in ahead of a reservation.
    Backfill {
        /// Which job.
        job: JobId,
        /// Ahead of which.
        ahead_of: JobId,
    },
    /// consolidate: no new work on this node; it is checked again later.
    Drain {
        /// Which node.
        node: NodeId,
        /// Why it goes.
        why: DrainWhy,
        /// Checked again then.
        check_at: Timestamp,
    },
    /// consolidate: running work was reviewed; the next review is at this time.
    Consolidated {
        /// The next time.
        next: Timestamp,
    },
    /// drain, admit: the node takes work again.
    Undrain {
        /// Which node.
        node: NodeId,
    },
    /// drain, settle: give the instance back.
    Terminate {
        /// Which node.
        node: NodeId,
    },
    /// settle: a run was reported to leave its GPUs idle, and the policy only warns.
    WarnLingering {
        /// Which job.
        job: JobId,
        /// For how long.
        idle: Span,
    },
    /// settle: it is given up before it was ready, and speaks against its offering.
    Suspect {
        /// Which node.
        node: NodeId,
    },
    /// settle: which classes the policy in force makes impossible, and which no longer. Those that are not listed stay as they were.
    Judge {
        /// By class, what is in the way. `None`: nothing any more.
        impossible: Vec<(ClassId, Option<Reason>)>,
    },
    /// settle: the policy in force makes a job impossible that waits: it is held until another policy makes it possible.
    Hold {
        /// Which job.
        job: JobId,
        /// What is in the way.
        reason: Reason,
    },
    /// backfill: what a quota or a budget leaves is kept for a job, instead of what was.
    KeepAllowance {
        /// Of what.
        of: Allowance,
        /// For which job, and from when.
        reservation: AllowanceReservation,
    },
    /// backfill: nothing of it is kept for anybody any more.
    ReleaseAllowance {
        /// Of what.
        of: Allowance,
    },
}

/// How a job is over.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Its completion criterion was met.
    Completed,
    /// It was given up.
    Failed,
    /// It was stopped on request.
    Cancelled,
    /// It was never to be run.
    Rejected,
}

/// Which row an effect belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum EffectOf {
    /// A start, a stop or a shrinking.
    Job(JobId),
    /// A termination.
    Node(NodeId),
    /// A launch.
    Purchase(PurchaseId),
}

/// Why a run is stopped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum StopCause {
    /// For a job of a higher tier: it waits again.
    Preempted {
        /// For which.
        by: JobId,
    },
    /// The cloud takes a node back: it waits again.
    Reclaimed,
    /// Its node costs more than it is worth: it waits again, for cheaper capacity.
    Moved,
    /// A queue within its quota wants back what this one's has borrowed: it waits again.
    QuotaReclaimed {
        /// For which job.
        by: JobId,
    },
    /// It was let in ahead of a reservation and has not ended in time: it waits again.
    Overran {
        /// For which job.
        by: JobId,
    },
    /// Its deadline leaves no time for another reclaim: it waits again, for capacity that stays.
    Hurried,
    /// Another run on its node hung, and the node is given up, or workers of its own that were to leave: it waits again.
    NodeHung,
    /// A service needs fewer replicas: it is completed.
    Scaled,
    /// A node under it is gone: the other workers are stopped, and it waits again.
    NodeLost,
    /// It did not start in time: it waits again.
    StartTimeout,
    /// It failed on one worker; the others are stopped. Counts as its own failure.
    Failed {
        /// The exit code.
        code: i32,
    },
    /// Its completion criterion is met: the other workers are stopped, and it is completed.
    Completed,
    /// On request: it is cancelled.
    Cancelled,
    /// Ran too long: it is failed.
    MaxRun,
    /// Idle for too long: it is failed.
    Lingering {
        /// For how long.
        idle: Span,
    },
    /// There is room for more of its workers: it waits again, and starts at once with them.
    Grows,
}

impl StopCause {
    /// Whether a run is stopped so that another job gets what it has.
    #[must_use]
    pub fn is_for_another(self) -> bool {
        matches!(self, StopCause::Preempted { .. } | StopCause::QuotaReclaimed { .. } | StopCause::Overran { .. })
    }

    /// Whether capacity is taken from a run that would have gone on: its submitter hears `preempting` and `preempted`.
    #[must_use]
    pub fn takes(self) -> bool {
        matches!(
            self,
            StopCause::Preempted { .. }
                | StopCause::QuotaReclaimed { .. }
                | StopCause::Overran { .. }
                | StopCause::Hurried
                | StopCause::NodeHung
                | StopCause::Reclaimed
                | StopCause::Moved
                | StopCause::Grows
        )
    }
}

/// Why a node is drained.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DrainWhy {
    /// Idle for long enough.
    Idle,
    /// Nothing is booked on it and nothing waits that could use it.
    Surplus,
    /// Its work is moved to cheaper capacity.
    Moved,
    /// Too many faults.
    Quarantined,
    /// The cloud takes it back anyway.
    Reclaimed,
    /// It never became ready.
    NeverReady,
    /// It belongs to nobody.
    Orphan,
}

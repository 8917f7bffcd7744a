//! Everything that may leave: one closed enum, each with an id. An effect's request is frozen by the record that decided it.
//!
//! Never: released before its batch is durable (the planner's `Unsaved` keeps them apart by type).

use crate::catalog::CapacityType;
use crate::ids::{Attempt, JobId, NodeId, OfferingId, PurchaseId, Seq};
use crate::reason::Reason;
use crate::units::{MilliGpu, Span, Timestamp};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// A durable effect: released again, under the same id, until its outcome is journaled.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Effect {
    /// Position of the deciding record. With the journal's UUID it is the client token, the Pod's name, the request's id.
    pub id: Seq,
    /// What to do.
    pub action: Action,
}

/// What an effect asks of the world.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Action {
    /// Ask the cloud for instances. Answered by `LaunchOutcome`.
    Launch {
        /// Tags carry it.
        purchase: PurchaseId,
        /// What to ask for.
        offering: OfferingId,
        /// How many.
        count: u32,
        /// Fewer than this: launch nothing.
        at_least: u32,
        /// How.
        terms: Terms,
    },
    /// Give an instance back. Answered by `NodeGone`.
    Terminate {
        /// Which claim.
        node: NodeId,
        /// The cloud's id.
        instance: String,
    },
    /// Start a gang whole. Answered by `RunStarted`, or `RunStopped` or `RunDenied` when it could not be.
    Start {
        /// Which job.
        job: JobId,
        /// Which run of it.
        attempt: Attempt,
        /// Where each worker goes.
        workers: Vec<WorkerPlace>,
        /// Work already done and verified, to resume from.
        resume_from: Span,
    },
    /// Stop a gang. Answered by `RunStopped`.
    Stop {
        /// Which job.
        job: JobId,
        /// Which run of it.
        attempt: Attempt,
        /// Whether to save a checkpoint first.
        checkpoint: bool,
        /// Killed at the latest then.
        deadline: Timestamp,
    },
    /// Take workers out of an elastic gang; the rest goes on. Answered by `RunShrunk`, or `RunStopped` when it could not go on.
    Shrink {
        /// Which job.
        job: JobId,
        /// Which run of it.
        attempt: Attempt,
        /// Which of its workers, by their numbers: their positions in the start.
        leave: Vec<u32>,
        /// Killed at the latest then.
        deadline: Timestamp,
    },
}

/// What a launch asks beyond the offering.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Terms {
    /// All into one placement group.
    pub cluster: bool,
    /// With an Elastic Fabric Adapter each.
    pub efa: bool,
    /// How their GPUs are partitioned: a position in the pool's layouts. `None`: whole.
    pub layout: Option<u8>,
}

/// One worker on one node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WorkerPlace {
    /// Where.
    pub node: NodeId,
    /// Which GPUs there, as a bit mask by index.
    pub gpus: u64,
    /// GPU share held on each of those GPUs, in thousandths.
    pub share: u16,
    /// Which slice of a partitioned GPU: a position in its layout.
    pub slice: Option<u8>,
}

impl WorkerPlace {
    /// GPU share of this worker.
    #[must_use]
    pub fn gpu_share(&self) -> MilliGpu {
        MilliGpu(u64::from(self.gpus.count_ones()) * u64::from(self.share))
    }
}

/// A status message to whoever submitted a job: a stream with no gap and no double, kept until delivered.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Position in the stream, from 1 without a gap.
    pub number: u64,
    /// When it came to be.
    pub at: Timestamp,
    /// Whose job.
    pub tenant: String,
    /// Which.
    pub subject: String,
    /// `None` for a submission that never became a job.
    pub job: Option<JobId>,
    /// Which run of it.
    pub attempt: Attempt,
    /// Position among this job's messages, from 1 without a gap. 0 for a submission that never became a job.
    pub seq: u32,
    /// What happened.
    pub kind: StatusKind,
    /// Why.
    pub reason: Option<Reason>,
    /// What the reason names: [`State::named_by`](crate::state::State::named_by), as it was then.
    #[serde(skip)]
    pub named: Option<Box<str>>,
    /// Where its run is or was. `None`: it has none, or this is not said of one.
    #[serde(skip)]
    pub run: Option<Box<RunFacts>>,
    /// The labels that its job is billed by: [`JobSpec::labels`](crate::job::JobSpec::labels).
    #[serde(skip)]
    pub labels: BTreeMap<String, String>,
}

/// Where a run is or was, and what became of it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RunFacts {
    /// Which run of its job.
    pub attempt: Attempt,
    /// The nodes of its workers, [`MOST_RUN_NODES`] at most.
    pub nodes: Vec<RunNode>,
    /// Further ones.
    pub more: u32,
    /// What it exited with: 0 where all its workers have completed.
    pub exit_code: Option<i32>,
}

/// A node of a run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RunNode {
    /// Our id.
    pub node: NodeId,
    /// The cloud's id, or the name of an owned node. `None`: it is not known yet.
    pub instance: Option<String>,
    /// What it is.
    pub instance_type: String,
    /// How it is paid for.
    pub capacity: CapacityType,
}

/// Nodes that a status names at most: gangs of thousands of nodes say it with one line, too.
pub const MOST_RUN_NODES: usize = 16;

/// The kinds of status.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StatusKind {
    /// Accepted; waits.
    Queued,
    /// Quota and capacity are promised; nodes may still be booting.
    Admitted,
    /// All workers run.
    Started,
    /// Asked to checkpoint and stop.
    Preempting,
    /// Stopped before it was done.
    Preempted,
    /// Progress is durable.
    Checkpointed,
    /// Waits again.
    Requeued,
    /// Done.
    Completed,
    /// Given up.
    Failed,
    /// Stopped for good on request.
    Cancelled,
    /// Never to be run.
    Rejected,
    /// The policy in force makes it impossible: it waits for another policy. `Queued` follows when one makes it possible.
    Held,
}

impl StatusKind {
    /// Whether nothing follows.
    #[must_use]
    pub fn terminal(self) -> bool {
        matches!(self, StatusKind::Completed | StatusKind::Failed | StatusKind::Cancelled | StatusKind::Rejected)
    }

    /// As it is written on the wire, after `status.`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            StatusKind::Queued => "queued",
            StatusKind::Admitted => "admitted",
            StatusKind::Started => "started",
            StatusKind::Preempting => "preempting",
            StatusKind::Preempted => "preempted",
            StatusKind::Checkpointed => "checkpointed",
            StatusKind::Requeued => "requeued",
            StatusKind::Completed => "completed",
            StatusKind::Failed => "failed",
            StatusKind::Cancelled => "cancelled",
            StatusKind::Rejected => "rejected",
            StatusKind::Held => "held",
        }
    }
}

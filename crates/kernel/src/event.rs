//! Everything that may enter: one closed enum. Adapters decode to these; the journal keeps them; `apply` takes them.
//!
//! Never: a payload that was not checked at intake. A new kind of event is one variant here, one arm in `apply`, one test.

use crate::ids::{Attempt, JobId, NodeId, OfferingId, PurchaseId};
use crate::job::JobSpec;
use crate::policy::Policy;
use crate::reason::Reason;
use crate::state::brakes::Brake;
use crate::state::node_reserves::NodeReserve;
use crate::state::owned::OwnedNode;
use crate::units::{Rate, Span, Timestamp};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// The record that opens every batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Tick {
    /// Now. Never earlier than the last tick; an earlier one is taken as the last.
    pub now: Timestamp,
    /// The first tick after down time: idle and linger clocks start again, they count observations.
    pub resumed: bool,
    /// Status messages up to this number have been delivered and may be forgotten.
    pub delivered: u64,
}

/// What the archive knows of an identity whose job has left the state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EarlierJob {
    /// The latest job of the identity.
    pub job: JobId,
    /// The digest of its specification: see [`JobSpec::digest`].
    pub digest: u128,
    /// When it was sent, by its sender.
    pub sent: Option<Timestamp>,
    /// It was a service.
    pub service: bool,
}

/// What an event came to. It is told by `apply`, to whoever has to answer for the event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventOutcome {
    /// A submission became this job.
    Submitted(JobId),
    /// A submission says again what is known: this job has the same specification.
    Known(JobId),
    /// A submission was refused before it became a job.
    Refused(Reason),
    /// Any other event that was applied.
    Applied,
    /// It says nothing new, comes too late, or fits nothing that is known: counted, and nothing else.
    Ignored,
}

/// Everything that may enter.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Event {
    /// A policy is in force from here on.
    Configured(Box<Policy>),
    /// A pipeline wants a job run.
    JobSubmitted(Box<JobSpec>),
    /// A pipeline wants a job stopped for good. One that comes before its job is kept for it: see `state::early`.
    JobCancelled {
        /// Whose job.
        tenant: String,
        /// Which.
        subject: String,
        /// Who asks. `None`: an operator, who always may.
        by: Option<String>,
        /// When it was sent, by its sender: it is for what was asked before that. `None`: for what is there.
        sent: Option<Timestamp>,
    },
    /// The cloud answered a purchase.
    LaunchOutcome {
        /// Which purchase.
        purchase: PurchaseId,
        /// Instances that now exist for it, by the cloud's ids; fewer than asked when partial.
        instances: Vec<String>,
        /// Why there are fewer than asked. `None`: all there.
        error: Option<LaunchError>,
    },
    /// An instance has joined the cluster and can take work.
    NodeReady {
        /// The cloud's id.
        instance: String,
    },
    /// The cloud will take an instance back.
    ReclaimNotice {
        /// The cloud's id.
        instance: String,
        /// When, by its warning.
        at: Timestamp,
    },
    /// An instance is no more, and so is every worker that was on it.
    NodeGone {
        /// The cloud's id.
        instance: String,
        /// Why.
        why: GoneWhy,
    },
    /// A tagged instance exists that no claim knows.
    OrphanSeen {
        /// The cloud's id.
        instance: String,
        /// What it is.
        offering: OfferingId,
    },
    /// All workers of a gang have started.
    RunStarted {
        /// Which job.
        job: JobId,
        /// Which run of it.
        attempt: Attempt,
    },
    /// Progress is durable and its manifest verified.
    RunCheckpointed {
        /// Which job.
        job: JobId,
        /// Which run of it.
        attempt: Attempt,
        /// Work done in all, over all attempts, as run time of the whole gang.
        progress: Span,
    },
    /// A worker finished its work.
    RunCompleted {
        /// Which job.
        job: JobId,
        /// Which run of it.
        attempt: Attempt,
        /// Which worker; `None`: all of them.
        worker: Option<u32>,
    },
    /// A worker failed by its own doing; the gang is dead.
    RunFailed {
        /// Which job.
        job: JobId,
        /// Which run of it.
        attempt: Attempt,
        /// Its exit code.
        exit_code: i32,
        /// The node to blame, if the fault was the node's and not the job's.
        node_fault: Option<NodeId>,
    },
    /// No worker of this run is alive: the proof that a new attempt, or an end, waits for.
    RunStopped {
        /// Which job.
        job: JobId,
        /// Which run of it.
        attempt: Attempt,
        /// The last verified checkpoint, if any was made since the last one reported.
        progress: Option<Span>,
    },
    /// The GPUs of a run have been idle since then though the run is alive.
    RunIdle {
        /// Which job.
        job: JobId,
        /// Which run of it.
        attempt: Attempt,
        /// For how long the idleness has been observed.
        idle: Span,
    },
    /// Workers of an elastic gang are gone, on request or because a node failed under them; the rest goes on.
    RunShrunk {
        /// Which job.
        job: JobId,
        /// Which run of it.
        attempt: Attempt,
        /// All that have left this run so far, by their numbers: said again, it says the same.
        left: Vec<u32>,
        /// The node to blame, if nobody asked them to leave.
        node_fault: Option<NodeId>,
    },
    /// So many requests at once are a service's demand now.
    ServiceDemand {
        /// Whose service.
        tenant: String,
        /// Which.
        subject: String,
        /// Who says so. `None`: an operator, who always may.
        by: Option<String>,
        /// Requests at once: being served and waiting.
        concurrency: u32,
    },
    /// Where an instance stands, as near as the cloud tells.
    NodePlaced {
        /// The cloud's id.
        instance: String,
        /// The rack, by whatever name the cloud has for it.
        rack: String,
    },
    /// A price moved.
    PriceChanged {
        /// Of what.
        offering: OfferingId,
        /// To what.
        price: Rate,
    },
    /// An instance will not get ready: its boot failed, and it may still be there.
    BootFailed {
        /// The cloud's id.
        instance: String,
    },
    /// A pipeline wants a job run whose identity the archive knows: an earlier job of it is over and has left the state.
    JobSubmittedAgain {
        /// What is asked for.
        spec: Box<JobSpec>,
        /// The latest job of that identity.
        earlier: EarlierJob,
    },
    /// A pipeline wants a job stopped that is over and has left the state. With a time, it is kept for a rerun that was sent before it.
    FinishedJobCancelled {
        /// Whose job.
        tenant: String,
        /// Which.
        subject: String,
        /// Who asks. `None`: an operator, who always may.
        by: Option<String>,
        /// When it was sent, by its sender.
        sent: Option<Timestamp>,
    },
    /// A node that nobody bought is there, or is another than it was: all that is known of it, each time.
    OwnedNodeSeen(Box<OwnedNode>),
    /// A node that nobody bought is not there any more, or not for us. That proves nothing of what runs on it.
    OwnedNodeLeft {
        /// Its name.
        name: String,
    },
    /// An operator confirms that workers of a run are dead which nothing else proves. What that means for the run, its cluster says.
    DeathConfirmed {
        /// Which job.
        job: JobId,
        /// Which run of it.
        attempt: Attempt,
        /// The workers, by their numbers.
        workers: Vec<u32>,
        /// Who confirms it.
        by: String,
    },
    /// So much of each node of an instance type is not for work: all that is known of it, each time.
    NodeReserved {
        /// The instance type, as the cloud names it.
        instance_type: String,
        /// What is not for work.
        reserve: NodeReserve,
    },
    /// An operator stops something for a time, or says anew who has stopped it and until when.
    BrakeSet {
        /// What.
        brake: Brake,
        /// Who.
        by: String,
        /// Why. Empty: nobody said.
        why: String,
        /// It ends by itself then. `None`: when it is released.
        until: Option<Timestamp>,
    },
    /// An operator lets it go on.
    BrakeReleased {
        /// What.
        brake: Brake,
        /// Who.
        by: String,
    },
    /// A quota of the cluster's own is full, so a run could not be started: none of its workers is alive.
    RunDenied {
        /// Which job.
        job: JobId,
        /// Which run of it.
        attempt: Attempt,
    },
}

/// Why a launch brought fewer instances than asked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LaunchError {
    /// Out of stock: the only kind that says anything about stock.
    Capacity,
    /// Too many calls: nothing is known of the stock.
    Throttled,
    /// The account's own limit.
    Quota,
    /// Credentials or permissions.
    Auth,
    /// The request itself.
    Config,
    /// The cloud's own fault.
    Server,
    /// Another controller buys under the same name: nothing is bought until one of them stops.
    Contested,
    /// Launched, and over before it was ready. Said of an offering, never of a launch.
    Boot,
}

impl LaunchError {
    /// What it means and what to do about it.
    #[must_use]
    pub fn remedy(self) -> &'static str {
        match self {
            LaunchError::Capacity => "out of stock; it is tried again with growing pauses",
            LaunchError::Throttled => "too many calls; it is tried again, stock is not in question",
            LaunchError::Quota => "the account's limit is reached: ask the cloud to raise it",
            LaunchError::Auth => "credentials or permissions are missing: run `forebay doctor`",
            LaunchError::Config => "the request is not valid there: check instance types, zones and network",
            LaunchError::Server => "the cloud's own fault; it is tried again",
            LaunchError::Boot => {
                "its nodes start and are over before they are ready: look at the image, its start-up script, and what the cloud says of them"
            }
            LaunchError::Contested => {
                "another controller buys under the same name: stop one, or give each a name of its own"
            }
        }
    }
}

/// Why an instance is no more.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GoneWhy {
    /// The cloud took it back.
    Reclaimed,
    /// We asked for it.
    Terminated,
    /// It failed, or somebody else ended it.
    Lost,
    /// It was over before it was ready, and nobody had asked for that.
    NeverReady,
}

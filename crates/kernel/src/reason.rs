//! Why not, and why not yet: stable codes with their figures. A refusal is data, never a line in a log.
//!
//! Never: prose as the only carrier. `Display` words a reason with its remedy for people; `code` is what programs match on.

use crate::event::LaunchError;
use crate::ids::{JobId, OfferingId, PoolId, QueueId};
use crate::job::Level;
use crate::units::{MilliGpu, Rate, Span, Timestamp};
use core::fmt;
use serde::{Deserialize, Serialize};

/// A closed list, in the order in which a job meets them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Reason {
    /// Another specification under the identity of a job that exists.
    Conflict,
    /// The queue is not declared, and the policy rejects such queues or has its fill of them.
    UnknownQueue,
    /// The principal is not among the queue's submitters.
    ForbiddenQueue,
    /// The specification contradicts itself or the pool.
    Misconfigured,
    /// No offering of the queue's pools could ever hold one worker, or the models asked for are not there.
    NoMatchingPool,
    /// More than the quota, with all that could be borrowed, would ever allow.
    ExceedsMaxQuota {
        /// What the job asks.
        asked: MilliGpu,
        /// The most it could get.
        most: MilliGpu,
    },
    /// More than the ceilings would allow if nothing else ran.
    ExceedsCeiling,
    /// It did not start by its queue's target, and the policy rejects such jobs.
    StartTooLate {
        /// The target.
        within: Span,
    },
    /// A budget of its queue or cohort is spent.
    Budget {
        /// The next period begins then.
        until: Timestamp,
    },
    /// The queue's quota is in use.
    WaitingForQuota {
        /// What the job asks.
        asked: MilliGpu,
        /// What is free for its queue.
        available: MilliGpu,
    },
    /// Runs are being stopped for it.
    WaitingForPreemption {
        /// How many.
        victims: u32,
    },
    /// Nodes for it are being bought or are booting.
    AwaitingNodes {
        /// Expected then.
        eta: Timestamp,
    },
    /// Its batch has as many runs as it needs: it follows one of them.
    Batched {
        /// Runs of its batch.
        running: u32,
        /// One more may run then, by the start target of its queue.
        until: Option<Timestamp>,
    },
    /// It may wait, and what it needs is expected to be free by its start target.
    WaitingByDesign {
        /// Bought for then, at the latest.
        until: Timestamp,
    },
    /// It may wait, and a node would not be there before the burst is over.
    BurstIsNoise {
        /// Bought for then, at the latest.
        until: Timestamp,
    },
    /// No place or offering is as close together as it requires.
    TopologyUnsatisfied {
        /// What it requires.
        level: Level,
    },
    /// Places are kept for it; what runs on them is expected to end then.
    Reserved {
        /// Expected then.
        from: Timestamp,
    },
    /// What runs on the places that are kept for it has not ended in time and may not be stopped.
    ReservationDelayed {
        /// Expected then.
        until: Timestamp,
    },
    /// A ceiling leaves no room for it.
    Ceiling {
        /// Which.
        bound: Bound,
    },
    /// No offering that fits is in stock.
    Stockout {
        /// The one that is tried again first.
        offering: OfferingId,
        /// When.
        until: Timestamp,
    },
    /// The cloud refused the launch for a reason that says nothing about stock.
    LaunchRefused {
        /// By which offering's launch.
        offering: OfferingId,
        /// What it said.
        error: LaunchError,
        /// Tried again then.
        until: Timestamp,
    },
    /// Its tier buys nothing: it waits for idle capacity.
    NothingIdle,
    /// Jobs before it in the order take what there is.
    BehindInQueue {
        /// Its position, from 1.
        position: u32,
    },
    /// It failed and pauses before its next attempt.
    BackOff {
        /// Until then.
        until: Timestamp,
    },
    /// Its workers are being started.
    Starting,
    /// Stopped for a job of a higher tier.
    PreemptedBy {
        /// The queue of that job.
        queue: QueueId,
    },
    /// The cloud took back a node under it.
    Reclaimed,
    /// It was moved to cheaper capacity.
    Moved,
    /// It runs on with fewer workers than it started with.
    Shrunk {
        /// So many.
        workers: u32,
    },
    /// Its queue had borrowed, and one that is within its quota, or has less of what is lent than its share, took it.
    QuotaReclaimed {
        /// The queue of the job for which.
        queue: QueueId,
    },
    /// It was let in ahead of a reservation and did not end in time.
    Overran,
    /// Its deadline leaves no time for another reclaim: it goes on with capacity that stays.
    Hurried,
    /// Even if it started now, its deadline could not be met: it gets ordinary capacity.
    DeadlineUnreachable {
        /// When it would end.
        eta: Timestamp,
    },
    /// Another run on its node hung in its clean-up, or workers of its own did that were to leave.
    NodeHung,
    /// Its service needs fewer replicas.
    Scaled,
    /// A node under it failed.
    NodeLost,
    /// It did not start in time.
    StartTimeout,
    /// It ran longer than it may.
    MaxRun {
        /// What it may.
        limit: Span,
    },
    /// Its GPUs were idle for longer than the policy allows.
    Lingering {
        /// For how long.
        idle: Span,
    },
    /// It failed with this exit code, and has no retries left or none after such a code.
    ExitCode {
        /// As reported.
        code: i32,
    },
    /// Its submitter asked for it.
    Asked,
    /// So many starts in a row failed, and it may not fail more of them.
    StartFailures {
        /// How many.
        starts: u32,
    },
    /// The cloud took it back so often in a row that it got nowhere, and its tier buys nothing else, or nothing else is to be had.
    NoProgress {
        /// How often.
        reclaims: u32,
    },
    /// It asks for a tier that its queue may not use.
    ForbiddenTier {
        /// Its queue, whose `tiers` say which.
        queue: QueueId,
    },
    /// As many undeclared queues are in use as the policy allows.
    TooManyQueues {
        /// So many.
        most: u32,
    },
    /// What the ceilings allow costs more in an hour than its budget, as prices are.
    BeyondBudget {
        /// What the cheapest gang costs that the ceilings allow.
        least: Rate,
        /// The budget.
        budget: Rate,
        /// The ceiling that keeps it from what the budget would pay for. `None`: nothing that fits is cheap enough.
        bound: Option<Bound>,
    },
    /// It has a deadline and no expected run: nobody knows when it would have to start.
    DeadlineOnlyCounted,
    /// It could pay its part of a node, but for no node by itself.
    NodeBeyondBudget {
        /// What the nodes for it add to the bill of an hour at the least.
        least: Rate,
        /// The budget.
        budget: Rate,
    },
    /// Whether there is stock again of what costs it least is being tried: the answer is waited for before anything dearer is bought.
    AwaitingProbe {
        /// What is tried.
        offering: OfferingId,
        /// Not waited for longer than until then.
        until: Timestamp,
    },
    /// What the quota or the budget leaves is kept for a job before it, and it would not have ended by then.
    KeptForAnother {
        /// For which.
        job: JobId,
        /// That one is expected to start then.
        from: Timestamp,
    },
    /// There is room for more of its workers: it goes on with them from its checkpoint.
    Grows,
    /// A pool of nodes that nobody bought has no room for it now, and nothing is bought into such a pool.
    OwnedNodesFull {
        /// Which pool.
        pool: PoolId,
        /// Its nodes that take work.
        nodes: u32,
        /// GPUs on them.
        gpus: u32,
        /// GPUs on them that pods hold which are not ours.
        foreign: u32,
    },
    /// Its tenant has as much open as the configuration lets it have.
    TenantFull {
        /// Of what.
        bound: TenantBound,
        /// How much.
        most: u64,
    },
    /// An operator has stopped buying, and it needs a node.
    BuyingPaused {
        /// It ends by itself then. `None`: when an operator resumes it.
        until: Option<Timestamp>,
    },
    /// An operator has stopped admission.
    AdmissionPaused {
        /// It ends by itself then. `None`: when an operator resumes it.
        until: Option<Timestamp>,
    },
    /// Runs would be stopped for it, and an operator has stopped preemption.
    PreemptionPaused {
        /// It ends by itself then. `None`: when an operator resumes it.
        until: Option<Timestamp>,
    },
    /// An operator holds its queue.
    QueueHeld {
        /// It ends by itself then. `None`: when an operator releases it.
        until: Option<Timestamp>,
    },
    /// An operator drains the pool that it needs a node of.
    PoolDraining {
        /// Which pool.
        pool: PoolId,
        /// It ends by itself then. `None`: when an operator releases it.
        until: Option<Timestamp>,
    },
    /// A quota of the cluster's own is full, such as a namespace's.
    ClusterQuota {
        /// Its start is tried again then.
        until: Timestamp,
    },
}

/// What a tenant may have only so much of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TenantBound {
    /// Jobs that are not over.
    OpenJobs,
    /// Bytes of their specifications.
    Bytes,
    /// Queues of theirs that the policy does not declare.
    UndeclaredQueues,
}

impl TenantBound {
    /// As it is written in a configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            TenantBound::OpenJobs => "openJobs",
            TenantBound::Bytes => "bytes",
            TenantBound::UndeclaredQueues => "undeclaredQueues",
        }
    }
}

/// The dimension and place of a ceiling.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// `limits.nodes`.
    Nodes,
    /// `limits.gpus`.
    Gpus,
    /// `limits.spend`.
    Spend,
    /// `pools.*.ceiling.nodes`.
    PoolNodes,
    /// `pools.*.ceiling.onDemandNodes`.
    PoolOnDemandNodes,
    /// `pools.*.ceiling.gpus`.
    PoolGpus,
    /// `pools.*.ceiling.spend`.
    PoolSpend,
    /// `limits.onDemandNodes`.
    OnDemandNodes,
}

impl Bound {
    /// As it is written in a policy.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Bound::Nodes => "limits.nodes",
            Bound::Gpus => "limits.gpus",
            Bound::Spend => "limits.spend",
            Bound::PoolNodes => "ceiling.nodes",
            Bound::OnDemandNodes => "limits.onDemandNodes",
            Bound::PoolOnDemandNodes => "ceiling.onDemandNodes",
            Bound::PoolGpus => "ceiling.gpus",
            Bound::PoolSpend => "ceiling.spend",
        }
    }

    /// Whether it bounds one pool, and not all of them together.
    #[must_use]
    pub fn is_of_pool(self) -> bool {
        match self {
            Bound::PoolNodes | Bound::PoolOnDemandNodes | Bound::PoolGpus | Bound::PoolSpend => true,
            Bound::Nodes | Bound::OnDemandNodes | Bound::Gpus | Bound::Spend => false,
        }
    }
}

impl Reason {
    /// The stable code.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Reason::Conflict => "Conflict",
            Reason::UnknownQueue => "UnknownQueue",
            Reason::ForbiddenQueue => "ForbiddenQueue",
            Reason::Misconfigured => "Misconfigured",
            Reason::NoMatchingPool => "NoMatchingPool",
            Reason::ExceedsMaxQuota { .. } => "ExceedsMaxQuota",
            Reason::ExceedsCeiling => "ExceedsCeiling",
            Reason::StartTooLate { .. } => "StartTooLate",
            Reason::Budget { .. } => "Budget",
            Reason::WaitingForQuota { .. } => "WaitingForQuota",
            Reason::Batched { .. } => "Batched",
            Reason::WaitingByDesign { .. } => "WaitingByDesign",
            Reason::BurstIsNoise { .. } => "BurstIsNoise",
            Reason::TopologyUnsatisfied { .. } => "TopologyUnsatisfied",
            Reason::Reserved { .. } => "Reserved",
            Reason::ReservationDelayed { .. } => "ReservationDelayed",
            Reason::QuotaReclaimed { .. } => "QuotaReclaimed",
            Reason::Overran => "Overran",
            Reason::Hurried => "Hurried",
            Reason::DeadlineUnreachable { .. } => "DeadlineUnreachable",
            Reason::NodeHung => "NodeHung",
            Reason::Scaled => "Scaled",
            Reason::WaitingForPreemption { .. } => "WaitingForPreemption",
            Reason::AwaitingNodes { .. } => "AwaitingNodes",
            Reason::Ceiling { .. } => "Ceiling",
            Reason::Stockout { .. } => "Stockout",
            Reason::LaunchRefused { .. } => "LaunchRefused",
            Reason::NothingIdle => "NothingIdle",
            Reason::BehindInQueue { .. } => "BehindInQueue",
            Reason::BackOff { .. } => "BackOff",
            Reason::Starting => "Starting",
            Reason::PreemptedBy { .. } => "PreemptedBy",
            Reason::Reclaimed => "Reclaimed",
            Reason::Moved => "Moved",
            Reason::Shrunk { .. } => "Shrunk",
            Reason::NodeLost => "NodeLost",
            Reason::StartTimeout => "StartTimeout",
            Reason::MaxRun { .. } => "MaxRun",
            Reason::Lingering { .. } => "Lingering",
            Reason::ExitCode { .. } => "ExitCode",
            Reason::Asked => "Asked",
            Reason::StartFailures { .. } => "StartFailures",
            Reason::NoProgress { .. } => "NoProgress",
            Reason::ForbiddenTier { .. } => "ForbiddenTier",
            Reason::TooManyQueues { .. } => "TooManyQueues",
            Reason::TenantFull { .. } => "TenantFull",
            Reason::BeyondBudget { .. } => "BeyondBudget",
            Reason::NodeBeyondBudget { .. } => "NodeBeyondBudget",
            Reason::DeadlineOnlyCounted => "DeadlineOnlyCounted",
            Reason::AwaitingProbe { .. } => "AwaitingProbe",
            Reason::KeptForAnother { .. } => "KeptForAnother",
            Reason::Grows => "Grows",
            Reason::OwnedNodesFull { .. } => "OwnedNodesFull",
            Reason::BuyingPaused { .. } => "BuyingPaused",
            Reason::AdmissionPaused { .. } => "AdmissionPaused",
            Reason::PreemptionPaused { .. } => "PreemptionPaused",
            Reason::QueueHeld { .. } => "QueueHeld",
            Reason::PoolDraining { .. } => "PoolDraining",
            Reason::ClusterQuota { .. } => "ClusterQuota",
        }
    }

    /// When a job that was told so is to be asked again, though nothing has been given back. Everything that a wait by the clock
    /// depends on must be in here: the state alone says nothing of it.
    #[must_use]
    pub fn ask_again_at(self) -> Option<Timestamp> {
        match self {
            Reason::Budget { until }
            | Reason::WaitingByDesign { until }
            | Reason::BurstIsNoise { until }
            | Reason::ReservationDelayed { until }
            | Reason::AwaitingProbe { until, .. } => Some(until),
            Reason::Batched { until, .. } => until,
            _ => None,
        }
    }

    /// Whether it waits for the answer to a launch that tries whether there is stock: for seconds.
    #[must_use]
    pub fn is_tried(self) -> bool {
        matches!(self, Reason::AwaitingProbe { .. })
    }

    /// Whether it waits because it may: nothing is missing but time.
    #[must_use]
    pub fn by_design(self) -> bool {
        matches!(self, Reason::WaitingByDesign { .. } | Reason::BurstIsNoise { .. })
    }

    /// Which of two pools' refusals says more: that owned nodes are full says less than what keeps a node from being bought.
    #[must_use]
    pub fn or_more(self, other: Reason) -> Reason {
        let owned = |reason: &Reason| matches!(reason, Reason::OwnedNodesFull { .. });
        let never = |reason: &Reason| matches!(reason, Reason::NoMatchingPool | Reason::ExceedsMaxQuota { .. });
        match (owned(&self), owned(&other)) {
            (true, false) if !never(&other) => other,
            (false, true) if !never(&self) => self,
            _ => self.max(other),
        }
    }

    /// When the job is expected to move on, where this reason knows it.
    #[must_use]
    pub fn eta(self) -> Option<Timestamp> {
        match self {
            Reason::AwaitingNodes { eta } | Reason::Reserved { from: eta } | Reason::DeadlineUnreachable { eta } => {
                Some(eta)
            }
            Reason::Budget { until }
            | Reason::WaitingByDesign { until }
            | Reason::BurstIsNoise { until }
            | Reason::ReservationDelayed { until }
            | Reason::Stockout { until, .. }
            | Reason::LaunchRefused { until, .. }
            | Reason::AwaitingProbe { until, .. }
            | Reason::BackOff { until }
            | Reason::ClusterQuota { until } => Some(until),
            Reason::Batched { until, .. } => until,
            Reason::BuyingPaused { until }
            | Reason::AdmissionPaused { until }
            | Reason::PreemptionPaused { until }
            | Reason::QueueHeld { until }
            | Reason::PoolDraining { until, .. } => until,
            _ => None,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Conflict => {
                f.write_str("a job of this tenant and subject exists with another specification: use a new subject")
            }
            Reason::UnknownQueue => {
                f.write_str("the queue is not declared: declare it under `queues`, or send to one that is")
            }
            Reason::ForbiddenQueue => f.write_str(
                "the principal is not among the queue's `submitters`: send to another queue, or have it added there",
            ),
            Reason::Misconfigured => f.write_str("the specification contradicts itself: check gang, share and sharing"),
            Reason::NoMatchingPool => f.write_str(
                "no offering of the queue's pools can hold one worker: ask for less, or add an instance type",
            ),
            Reason::ExceedsMaxQuota { asked, most } => {
                write!(f, "asks {}, its quota with all borrowing is {most}: raise the quota or ask for less", gpus(*asked))
            }
            Reason::ExceedsCeiling => {
                f.write_str("asks more than the ceilings allow with nothing else running: raise them, or ask for less")
            }
            Reason::WaitingForQuota { asked, available } => {
                let asked = gpus(*asked);
                write!(f, "asks {asked}, its queue has {available} free: starts when runs under the same quota end")
            }
            Reason::WaitingForPreemption { victims: 1 } => {
                f.write_str("a run is being stopped for it: starts when that has saved and gone, within its grace")
            }
            Reason::WaitingForPreemption { victims } => write!(
                f,
                "{victims} runs are being stopped for it: starts when they have saved and gone, within their grace"
            ),
            Reason::StartTooLate { within } => {
                write!(f, "it did not start within {within}: raise `start.within`, or let it wait (`whenLate`)")
            }
            Reason::Budget { .. } => {
                f.write_str(
                    "the budget of its queue has no room for it beside what was spent and what runs: starts with the next period, when runs of it end, \
                     or raise it",
                )
            }
            Reason::Batched { running, until } => {
                let runs = if *running == 1 { "run of its batch goes on: it follows it" } else { "runs of its batch go on: it follows one of them" };
                write!(f, "{running} {runs}")?;
                if until.is_some() {
                    f.write_str(", or starts beside when its queue's `start.within` is near")?;
                }
                Ok(())
            }
            Reason::WaitingByDesign { .. } => {
                f.write_str(
                    "it may wait, and what it needs is expected to be free in time: a shorter `start.within` has a node bought sooner",
                )
            }
            Reason::BurstIsNoise { .. } => f.write_str(
                "it may wait, and a node would come after the burst: bought for when its start target is near, sooner with a shorter `start.within`",
            ),
            Reason::TopologyUnsatisfied { level } => {
                write!(f, "nothing holds it within one {}: prefer it instead of requiring it", level.as_str())
            }
            Reason::Reserved { .. } => f.write_str(
                "what it asks for is kept for it until those who have it end: `expectedRun` or `maxRun` of theirs makes that known",
            ),
            Reason::ReservationDelayed { .. } => {
                f.write_str(
                    "those who have what is kept for it have not ended in time and may not be stopped: `maxRun` bounds them, `stoppableBy` of their tier lets them be stopped",
                )
            }
            Reason::QuotaReclaimed { .. } => f.write_str(
                "its queue had borrowed, and another has the better claim to it, by its quota or by its share of what is lent",
            ),
            Reason::Overran => f.write_str("it was let in ahead of a reservation and did not end in time"),
            Reason::Hurried => f.write_str("its deadline is near: it goes on with capacity that stays"),
            Reason::DeadlineUnreachable { .. } => {
                f.write_str("its deadline cannot be met any more: it runs on ordinary capacity")
            }
            Reason::NodeHung => f.write_str("another run on its node hung, or workers of its own that were to leave, and the node is given up: it goes on elsewhere from what it has saved"),
            Reason::Scaled => f.write_str("its service needs fewer replicas"),
            Reason::AwaitingNodes { .. } => f.write_str("nodes for it are being bought or are booting"),
            Reason::Ceiling { bound } => {
                write!(f, "`{}` leaves no room for it: starts when runs end, or raise it", bound.as_str())
            }
            Reason::Stockout { offering, .. } => {
                write!(
                    f,
                    "nothing that fits is in stock; {offering} is tried again first: more instance types or zones widen the choice"
                )
            }
            Reason::Grows => {
                f.write_str("there is room for more of its workers: it goes on with them from its checkpoint")
            }
            Reason::AwaitingProbe { offering, .. } => {
                write!(f, "{offering} was out of stock and is being tried: the answer comes within seconds")
            }
            Reason::LaunchRefused { error, .. } => write!(f, "the cloud refused to launch: {}", error.remedy()),
            Reason::BuyingPaused { .. } => {
                f.write_str("it needs a node and buying is paused: `forebay resume buying` lets it go on")
            }
            Reason::AdmissionPaused { .. } => {
                f.write_str("admission is paused: `forebay resume admission` lets it go on")
            }
            Reason::PreemptionPaused { .. } => f.write_str(
                "runs would be stopped for it and preemption is paused: starts when runs end, or after `forebay resume preemption`",
            ),
            Reason::QueueHeld { .. } => f.write_str(
                "its queue or one above it is held: `forebay release QUEUE` lets it go on, and `forebay brakes` says which",
            ),
            Reason::PoolDraining { .. } => {
                f.write_str(
                    "its pool is drained and takes no work: `forebay undrain POOL` lets it go on, and `forebay brakes` says which",
                )
            }
            Reason::NothingIdle => f.write_str(
                "its tier buys nothing and no idle capacity fits: starts when some is idle, or in a tier that buys (`buys`)",
            ),
            Reason::BehindInQueue { position } => write!(
                f,
                "number {position} of those like it that wait (same queue, same demands): starts in its turn, and a higher `priority` may bring it forward"
            ),
            Reason::BackOff { .. } => f.write_str("it failed and pauses before its next attempt, as `retry.backoff` says"),
            Reason::ClusterQuota { .. } => f.write_str(
                "a quota of the cluster itself is full, such as a namespace's ResourceQuota: it tries again after a pause, or cancel what is not needed there",
            ),
            Reason::Starting => f.write_str("its workers are being started"),
            Reason::PreemptedBy { .. } => f.write_str("stopped for a job of a higher tier or priority, or for a much shorter one of its queue"),
            Reason::Reclaimed => f.write_str("the cloud took back a node under it: it goes on from what it has saved (`spot: false` keeps it off spot)"),
            Reason::Shrunk { workers } => write!(f, "workers were taken from it: it runs on with {workers}"),
            Reason::Moved => f.write_str("moved to cheaper capacity, from its checkpoint on"),
            Reason::NodeLost => f.write_str("a node under it failed: it goes on elsewhere from what it has saved"),
            Reason::StartTimeout => f.write_str("its workers did not start in time: look at its image and nodes, or raise `lifecycle.startTimeout`"),
            Reason::MaxRun { limit } => write!(f, "it ran longer than {limit}: raise `maxRun`"),
            Reason::Lingering { idle } => write!(f, "its GPUs were idle for {idle}: let it end when its work is done, or raise `lifecycle.lingerAfter`"),
            Reason::ExitCode { code } => write!(
                f,
                "exit code {code}, which is not tried again: see its logs; `retry.attempts` says how often it is, and `retry.never` after which codes not"
            ),
            Reason::Asked => f.write_str("its submitter cancelled it"),
            Reason::StartFailures { starts } => write!(
                f,
                "{starts} starts in a row failed: look at its image and what it starts with, or raise `retry.startFailures`"
            ),
            Reason::NoProgress { reclaims } => write!(
                f,
                "taken back {reclaims} times in a row without progress: save more often, or let its tier buy something else"
            ),
            Reason::ForbiddenTier { .. } => f.write_str(
                "its queue may not use the tier that it asks for: ask for one of the queue's `tiers`, or list it there",
            ),
            Reason::DeadlineOnlyCounted => {
                f.write_str("its deadline is counted and nothing is done for it: state `expectedRun` to have it kept")
            }
            Reason::KeptForAnother { job, .. } => write!(
                f,
                "what its queue has left is kept for {job}, which is before it: only work that states `expectedRun` and ends in time goes first"
            ),
            Reason::TooManyQueues { most } => write!(
                f,
                "{most} undeclared queues are in use: declare the queue, raise `undeclaredQueues.atMost`, or wait until one is empty"
            ),
            Reason::TenantFull { bound, most } => write!(
                f,
                "its tenant has as much open as it may, `{}` is {most}: send it again when jobs of the tenant are over, or raise `tenants` in \
                 forebay.yaml",
                bound.as_str()
            ),
            Reason::NodeBeyondBudget { least, budget } => write!(
                f,
                "its budget of {} USD pays its part of a node, and the cheapest node that fits adds {} USD an hour to the bill: starts where \
                 others have bought one, or raise the budget",
                dollars(*budget),
                dollars(*least)
            ),
            Reason::OwnedNodesFull { nodes: 0, .. } => {
                f.write_str("no owned node of its pool takes work: look at their labels, and whether they are ready and not cordoned")
            }
            Reason::OwnedNodesFull { nodes, gpus, foreign, .. } => write!(
                f,
                "the owned nodes of its pool have no room for it, {nodes} with {gpus} GPUs of which {foreign} are held by pods that are not Forebay's: \
                 starts when these or runs end"
            ),
            Reason::BeyondBudget { least, budget, bound } => {
                let (least, budget) = (dollars(*least), dollars(*budget));
                match bound {
                    Some(bound) => write!(
                        f,
                        "the cheapest that `{}` allows costs {least} USD an hour, its budget is {budget} USD: raise one of them",
                        bound.as_str()
                    ),
                    None => write!(
                        f,
                        "the cheapest that fits costs {least} USD an hour, its budget is {budget} USD: raise the budget"
                    ),
                }
            }
        }
    }
}

/// GPUs as they are counted in a sentence.
fn gpus(asked: MilliGpu) -> impl fmt::Display {
    struct Counted(MilliGpu);
    impl fmt::Display for Counted {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{} {}", self.0, if self.0 == MilliGpu::whole(1) { "GPU" } else { "GPUs" })
        }
    }
    Counted(asked)
}

/// Micro-dollars as dollars and cents, rounded up: a cent too much explains a refusal, a cent too little does not.
fn dollars(rate: Rate) -> impl fmt::Display {
    struct Cents(u64);
    impl fmt::Display for Cents {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{}.{:02}", self.0 / 100, self.0 % 100)
        }
    }
    Cents(rate.0.div_ceil(10_000))
}

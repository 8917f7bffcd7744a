//! What is shown of a job, a node, a queue, an offering: the shapes of API answers, tables and the state document.
//!
//! The state document uses the same shapes for what people write by hand: fields that only a running Forebay fills in are optional.
//! Never: logic. They are filled from an engine, and read back into one, elsewhere.

use super::memory::{JobMemory, NodeMemory, PlaceView, RetryView, ServiceMemory, StockMemory, StopView};
use super::reason::ReasonView;
use super::seconds::Seconds;
use super::within::WithinView;
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::decision::Outcome;
use forebay_kernel::job::Completion;
use forebay_kernel::state::jobs::Phase;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Where in its life a job is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum JobPhase {
    /// Just accepted.
    New,
    /// Pauses after a failure of its own.
    BackingOff,
    /// The policy in force makes it impossible: it waits for another policy.
    Held,
    /// Waits for quota and capacity.
    Queued,
    /// Holds quota and places; some nodes are not ready yet.
    Booked,
    /// Its workers are being started.
    Starting,
    /// All workers run.
    Running,
    /// Its workers are being stopped.
    Stopping,
    /// Its run is over; what follows is about to be decided.
    Ended,
    /// A service: its replicas are jobs of their own, with `of`.
    Serving,
    /// Done.
    Completed,
    /// Given up.
    Failed,
    /// Stopped for good on request.
    Cancelled,
    /// Never to be run.
    Rejected,
}

impl JobPhase {
    /// Whether nothing follows.
    #[must_use]
    pub fn terminal(self) -> bool {
        matches!(self, JobPhase::Completed | JobPhase::Failed | JobPhase::Cancelled | JobPhase::Rejected)
    }

    /// Whether it waits for its start.
    #[must_use]
    pub fn waiting(self) -> bool {
        matches!(self, JobPhase::New | JobPhase::BackingOff | JobPhase::Held | JobPhase::Queued | JobPhase::Booked)
    }
}

impl fmt::Display for JobPhase {
    /// As it is written in JSON.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// A job. By hand, `job`, `queue`, `gpus` and `phase` are enough; a running one also names its `nodes`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JobView {
    /// Its name: `job-17` where Forebay wrote it, any text of your own where you do.
    pub job: String,
    /// The submitter's name for it. Default: `job`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Whose namespace the subject lives in. Default: `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Its queue, such as `research/vision`.
    pub queue: String,
    /// Its tier. Default: its queue's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// Within its queue and tier, higher goes first.
    #[serde(default)]
    pub priority: i32,
    /// Where in its life it is. By hand, write `queued`, or `booked` or `running` with the `nodes`, and leave out jobs
    /// that are over.
    pub phase: JobPhase,
    /// GPUs of the whole gang; 0 for CPU-only work.
    pub gpus: u32,
    /// Workers of the gang, each with an equal part of `gpus`. Without it, whole GPUs that may span nodes, fewest nodes first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<u32>,
    /// Most workers that it can use, where it is elastic. Default: `workers`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers_max: Option<u32>,
    /// Workers that it has now, where it is elastic and holds `nodes`. Default: `workers`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers_now: Option<u32>,
    /// Share of each GPU in thousandths. Below 1000 only with one GPU a worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub gpu_milli: Option<u16>,
    /// Memory that it needs on each GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_mem_mib: Option<u64>,
    /// CPU of a worker (of a GPU, for gangs without `workers`) in thousandths of a core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_milli: Option<u64>,
    /// Memory of a worker (of a GPU, for gangs without `workers`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mem_mib: Option<u64>,
    /// GPU models that will do. Empty: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// How close together its workers go, such as `rack`, or `{"prefer": "rack"}`. Default: as they fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<WithinView>,
    /// Jobs of one queue and shape with the same key run one after the other on the same capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_key: Option<String>,
    /// Whether it may run on spot. Default: yes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spot: Option<bool>,
    /// Whether it consents to share a GPU. Default: yes with `gpuMilli` below 1000, else no.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shares: Option<bool>,
    /// How often it saves its progress. Without it, it cannot.
    #[serde(default, rename = "checkpointEvery_s", skip_serializing_if = "Option::is_none")]
    pub checkpoint_every_s: Option<Seconds>,
    /// How long it needs to save when it is told to. Default: the policy's.
    #[serde(default, rename = "grace_s", skip_serializing_if = "Option::is_none")]
    pub grace_s: Option<Seconds>,
    /// Time lost at each start.
    #[serde(default, rename = "restart_s", skip_serializing_if = "Option::is_none")]
    pub restart_s: Option<Seconds>,
    /// What it is expected to run.
    #[serde(default, rename = "expected_s", skip_serializing_if = "Option::is_none")]
    pub expected_s: Option<Seconds>,
    /// Longer than this it fails. Default: the policy's.
    #[serde(default, rename = "maxRun_s", skip_serializing_if = "Option::is_none")]
    pub max_run_s: Option<Seconds>,
    /// What its own failures cost. Default: three attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryView>,
    /// When it counts as done: `all`, `leader` or `any`. Default: `all`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub completion: Option<Completion>,
    /// It is wanted by then.
    #[serde(default, rename = "deadline_s", skip_serializing_if = "Option::is_none")]
    pub deadline_s: Option<Seconds>,
    /// When it was accepted. Default: `now_s`.
    #[serde(default, rename = "submit_s", skip_serializing_if = "Option::is_none")]
    pub submit_s: Option<Seconds>,
    /// Since when it is in this phase. For a running job: since when it runs. Default: `now_s`.
    #[serde(default, rename = "since_s", skip_serializing_if = "Option::is_none")]
    pub since_s: Option<Seconds>,
    /// The nodes under it, each once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// Where each of its workers is, for a gang that is elastic, or that does not stand as it would be placed anew. Default: as its
    /// workers fit on its nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<PlaceView>,
    /// Why it is being stopped. Default, for a job that is `stopping`: for the first job that waits and may stop it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<StopView>,
    /// The pool whose quota it holds. Default: that of its nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// The current or last run, from 1. Written by Forebay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Its own failures. Written by Forebay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failures: Option<u32>,
    /// Runs stopped before it was done, for no fault of its own. Written by Forebay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interruptions: Option<u32>,
    /// Work done and saved. Written by Forebay.
    #[serde(default, rename = "progress_s", skip_serializing_if = "Option::is_none")]
    pub progress_s: Option<Seconds>,
    /// When it first started. Written by Forebay.
    #[serde(default, rename = "firstStart_s", skip_serializing_if = "Option::is_none")]
    pub first_start_s: Option<Seconds>,
    /// When it was over. Written by Forebay.
    #[serde(default, rename = "ended_s", skip_serializing_if = "Option::is_none")]
    pub ended_s: Option<Seconds>,
    /// Why it is where it is. Written by Forebay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<ReasonView>,
    /// What it serves: such a job has the phase `serving`, and `gpus` are those of one replica.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceView>,
    /// The service whose replica it is, by its `job`, which stands before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// Labels that the policy bills by, as they were when it was submitted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// What Forebay remembers of it. Leave it out by hand, and where you edit the job: then it is made from the rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Box<JobMemory>>,
}

/// A service.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServiceView {
    /// Replicas at least.
    pub min: u32,
    /// Replicas at most.
    pub max: u32,
    /// Requests at once that one replica is to have.
    pub target: u32,
    /// No two replicas in one of these while there is another: `node`, `rack` or `zone`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<String>,
    /// Requests at once, as last reported.
    #[serde(default)]
    pub demand: u32,
    /// Replicas that are not over. Written by Forebay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u32>,
    /// Of these, those that are loaded. Written by Forebay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loaded: Option<u32>,
    /// What Forebay remembers of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<ServiceMemory>,
}

/// Where in its life a node is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NodePhaseView {
    /// Decided on; the cloud has not answered yet.
    Requested,
    /// The instance exists.
    Booting,
    /// It can take work.
    Ready,
    /// It takes no new work and is checked again.
    Draining,
    /// It is being given back.
    Terminating,
}

/// How a node is paid for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Capacity {
    /// Paid for already.
    Reserved,
    /// Cheap; may be taken back.
    Spot,
    /// Full price.
    OnDemand,
    /// There without having been bought.
    Owned,
}

/// A node.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeView {
    /// Its name: `node-3` where Forebay wrote it, any text of your own where you do.
    pub node: String,
    /// As the cloud names it.
    pub instance_type: String,
    /// As the cloud names it.
    pub zone: String,
    /// How it is paid for.
    pub capacity_type: Capacity,
    /// Where in its life it is.
    pub phase: NodePhaseView,
    /// Whose ceiling it counts against. Default: the first pool that offers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Since when it is in this phase; for an idle node, since when it is idle. Default: `now_s`.
    #[serde(default, rename = "since_s", skip_serializing_if = "Option::is_none")]
    pub since_s: Option<Seconds>,
    /// The cloud's id. Written by Forebay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Whole GPUs. Written by Forebay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    /// GPU share that nothing holds. Written by Forebay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus_free: Option<f64>,
    /// Jobs booked or running on it. Written by Forebay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs: Option<Vec<String>>,
    /// What it costs. Written by Forebay.
    #[serde(default, rename = "price_usd_per_hour", skip_serializing_if = "Option::is_none")]
    pub price_usd_per_hour: Option<f64>,
    /// The cloud takes it back then. Written by Forebay.
    #[serde(default, rename = "reclaim_s", skip_serializing_if = "Option::is_none")]
    pub reclaim_s: Option<Seconds>,
    /// What it frees is kept for this job. Written by Forebay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved_for: Option<String>,
    /// How its GPUs are partitioned (MIG): a position in the pool's `sharing.mig`, from 0. Default: as it would be bought for the jobs
    /// on it, or for those that wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<u8>,
    /// Where it stands, as near as the cloud tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<String>,
    /// What an owned node has, and what others hold of it. Such a node names its `pool` and has `gpus`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owned: Option<OwnedNodeView>,
    /// Who drains it, or its pool. Absent: nobody. Written by Forebay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drained: Option<BrakeView>,
    /// What Forebay remembers of it. Leave it out by hand, and where you edit the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<NodeMemory>,
}

/// What an owned node has, and what others hold of it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct OwnedNodeView {
    /// GPU model names that it answers to, lower case.
    pub models: Vec<String>,
    /// Memory of each GPU.
    #[serde(rename = "gpuMemory_mib")]
    pub gpu_memory_mib: u64,
    /// CPU that work may use, in thousandths of a core.
    #[serde(rename = "cpu_milli")]
    pub cpu_milli: u64,
    /// Memory that work may use.
    #[serde(rename = "memory_mib")]
    pub memory_mib: u64,
    /// GPUs joined by NVLink, in groups of so many. 0: not known.
    pub nvlink: u16,
    /// Whether it takes new work.
    pub open: bool,
    /// GPUs that pods hold which are not Forebay's.
    pub foreign_gpus: u16,
    /// CPU that these hold, in thousandths of a core.
    #[serde(rename = "foreignCpu_milli")]
    pub foreign_cpu_milli: u64,
    /// Memory that these hold.
    #[serde(rename = "foreignMemory_mib")]
    pub foreign_memory_mib: u64,
    /// The one of them that holds most, as `NAMESPACE/NAME`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub foreign: String,
}

/// A queue: who waits and runs in it, and what it may use.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QueueView {
    /// Its path.
    pub queue: String,
    /// Whether the policy names it.
    pub declared: bool,
    /// Tier of its jobs unless they name another.
    pub tier: Option<String>,
    /// Jobs that wait.
    pub waiting: u64,
    /// Jobs that start, run or stop.
    pub running: u64,
    /// Jobs that are over.
    pub over: u64,
    /// GPUs that its waiting jobs ask for.
    pub gpus_waiting: f64,
    /// Who holds it, or has paused admission. Absent: nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<BrakeView>,
    /// By pool.
    pub quota: Vec<QuotaView>,
}

/// What an operator has stopped for a time.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BrakeView {
    /// What: `buying`, `admission` or `preemption`, or a `queue` that is held, or a `pool` or `node` that is drained.
    pub brake: String,
    /// Which queue, pool or node. Absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Who has stopped it.
    pub by: String,
    /// Why. Empty: nobody said.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// Since when.
    #[serde(rename = "since_s")]
    pub since_s: Seconds,
    /// It ends by itself then. Absent: when an operator lets it go on.
    #[serde(default, rename = "until_s", skip_serializing_if = "Option::is_none")]
    pub until_s: Option<Seconds>,
}

/// A queue's quota in one pool. Queues under one rule share it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QuotaView {
    /// Which pool.
    pub pool: String,
    /// What the policy promises it, with the queues below it. Null: nothing is written for it here.
    pub gpus: Option<f64>,
    /// What is in use, with the queues below it.
    pub used: f64,
    /// Of this, what is above its own quota: it is others'.
    #[serde(default)]
    pub borrowed: f64,
    /// Of its own quota, what it could not take now because others use it.
    #[serde(default)]
    pub lent: f64,
    /// What it could take now. Null: no bound.
    pub available: Option<f64>,
}

/// What can be bought.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OfferingView {
    /// As the cloud names it.
    pub instance_type: String,
    /// As the cloud names it.
    pub zone: String,
    /// How it is paid for.
    pub capacity_type: Capacity,
    /// Whole GPUs.
    pub gpus: u32,
    /// What it costs now.
    #[serde(rename = "price_usd_per_hour")]
    pub price_usd_per_hour: f64,
    /// The on-demand price of the same instance type.
    #[serde(rename = "on_demand_usd_per_hour")]
    pub on_demand_usd_per_hour: f64,
    /// Whether the policy in force names it.
    pub listed: bool,
    /// Out of stock: not asked again before then.
    #[serde(default, rename = "blocked_until_s", skip_serializing_if = "Option::is_none")]
    pub blocked_until_s: Option<Seconds>,
    /// What Forebay remembers of its stock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<StockMemory>,
}

/// The figures that matter, at a glance.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Summary {
    /// The engine's time.
    #[serde(rename = "now_s")]
    pub now_s: Seconds,
    /// The policy in force.
    pub policy: String,
    /// Submissions so far, those included that were refused before they became a job: the sum of the six counts below.
    pub jobs: u64,
    /// Jobs that wait.
    pub queued: u64,
    /// Jobs that start, run or stop.
    pub running: u64,
    /// Over, by outcome.
    pub completed: u64,
    /// Given up.
    pub failed: u64,
    /// Stopped for good on request.
    pub cancelled: u64,
    /// Never to be run, and refused before they became a job.
    pub rejected: u64,
    /// Nodes paid for already.
    pub reserved_nodes: u64,
    /// Spot nodes.
    pub spot_nodes: u64,
    /// On-demand nodes.
    pub on_demand_nodes: u64,
    /// Nodes that are there without having been bought.
    #[serde(default)]
    pub owned_nodes: u64,
    /// Of all nodes, those that are not ready yet.
    pub booting_nodes: u64,
    /// What all nodes cost now.
    #[serde(rename = "spend_usd_per_hour")]
    pub spend_usd_per_hour: f64,
    /// What was spent so far.
    #[serde(rename = "cost_usd")]
    pub cost_usd: f64,
    /// What operators have stopped for a time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub brakes: Vec<BrakeView>,
}

impl From<&Phase> for JobPhase {
    fn from(phase: &Phase) -> JobPhase {
        match phase {
            Phase::New => JobPhase::New,
            Phase::BackingOff { .. } => JobPhase::BackingOff,
            Phase::Held => JobPhase::Held,
            Phase::Queued => JobPhase::Queued,
            Phase::Booked => JobPhase::Booked,
            Phase::Starting => JobPhase::Starting,
            Phase::Running => JobPhase::Running,
            Phase::Stopping { .. } => JobPhase::Stopping,
            Phase::Ended { .. } => JobPhase::Ended,
            Phase::Serving => JobPhase::Serving,
            Phase::Done { outcome: Outcome::Completed } => JobPhase::Completed,
            Phase::Done { outcome: Outcome::Failed } => JobPhase::Failed,
            Phase::Done { outcome: Outcome::Cancelled } => JobPhase::Cancelled,
            Phase::Done { outcome: Outcome::Rejected } => JobPhase::Rejected,
        }
    }
}

impl From<CapacityType> for Capacity {
    fn from(capacity: CapacityType) -> Capacity {
        match capacity {
            CapacityType::Reserved => Capacity::Reserved,
            CapacityType::Spot => Capacity::Spot,
            CapacityType::OnDemand => Capacity::OnDemand,
            CapacityType::Owned => Capacity::Owned,
        }
    }
}

impl From<Capacity> for CapacityType {
    fn from(capacity: Capacity) -> CapacityType {
        match capacity {
            Capacity::Reserved => CapacityType::Reserved,
            Capacity::Spot => CapacityType::Spot,
            Capacity::OnDemand => CapacityType::OnDemand,
            Capacity::Owned => CapacityType::Owned,
        }
    }
}

//! What a state document carries beyond what people write by hand: what Forebay remembers of jobs, nodes, stock and money, so that a state
//! which was exported is planned on as it was, with or without its snapshot.
//!
//! ```text
//! JobView.memory, NodeView.memory, OfferingView.memory      what is remembered of one row
//! StateDocument.memory                                      what belongs to no row: reservations, purchases, money, past use, statistics
//! ```
//!
//! Every field may be left out: what is then assumed follows from the rest of the document. Never: logic.

use super::seconds::Seconds;
use super::views::{BrakeView, Capacity};
use forebay_kernel::decision::DrainWhy;
use forebay_kernel::event::LaunchError;
use forebay_kernel::policy::WhenLate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One worker of a job that has places.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlaceView {
    /// Its number in the run, from 0. Default: its position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<u32>,
    /// The node that it is on, which stands in the job's `nodes` too.
    pub node: String,
    /// Which GPUs of the node, from 0. Empty: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<u8>,
    /// The share that it holds of each of them, in thousandths.
    #[schemars(range(min = 0, max = 1000))]
    pub share_milli: u16,
    /// Which slice of a partitioned GPU (MIG): a position in the node's layout, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice: Option<u8>,
}

/// Why a run is stopped, or workers of it leave.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StopView {
    /// The cause.
    pub cause: StopCauseView,
    /// For which job, by its `job`: with `preempted`, `quota-reclaimed` and `overran`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// With `failed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// With `lingering`: for how long.
    #[serde(default, rename = "idle_s", skip_serializing_if = "Option::is_none")]
    pub idle_s: Option<Seconds>,
    /// Whether it saves a checkpoint first. Default: where it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<bool>,
    /// Killed at the latest then. Default: `now_s` and the grace of its checkpoint.
    #[serde(default, rename = "deadline_s", skip_serializing_if = "Option::is_none")]
    pub deadline_s: Option<Seconds>,
}

/// The causes of a stop.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StopCauseView {
    /// For a job of a higher tier.
    Preempted,
    /// The cloud takes a node back.
    Reclaimed,
    /// Moved to cheaper capacity.
    Moved,
    /// A lender wants its quota back.
    QuotaReclaimed,
    /// It did not end before a reservation.
    Overran,
    /// For its deadline it goes on with capacity that stays.
    Hurried,
    /// Another run on its node hung, or workers of its own that were to leave.
    NodeHung,
    /// A service needs fewer replicas.
    Scaled,
    /// A node under it is gone.
    NodeLost,
    /// It did not start in time.
    StartTimeout,
    /// A worker failed.
    Failed,
    /// Its completion criterion is met.
    Completed,
    /// On request.
    Cancelled,
    /// It ran too long.
    MaxRun,
    /// Idle for too long.
    Lingering,
    /// There is room for more of its workers.
    Grows,
}

/// How a run ended whose job has not been judged since.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EndView {
    /// How.
    pub how: EndHow,
    /// With `failed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// With `stopped`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<StopView>,
}

/// The ways in which a run ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EndHow {
    /// It is done.
    Completed,
    /// By its own failure.
    Failed,
    /// A node failed under it.
    NodeFault,
    /// It was stopped.
    Stopped,
    /// The cluster could not start or keep it.
    Dropped,
    /// A quota of the cluster's own was full, so it was never started.
    Denied,
}

/// Workers that were asked to leave a run which goes on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LeavingView {
    /// Which, by their numbers.
    pub workers: Vec<u32>,
    /// Why, and by when.
    pub stop: StopView,
}

/// What a job's own failures cost.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RetryView {
    /// Starts in all after its own failures.
    pub attempts: u32,
    /// The pause before the first of them; it doubles.
    #[serde(rename = "backoff_s")]
    pub backoff_s: Seconds,
    /// Exit codes that are final.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub never: Vec<i32>,
    /// Starts in a row that may fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_failures: Option<u32>,
}

/// Quota that is kept for a waiting job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KeptView {
    /// In which pool.
    pub pool: String,
    /// How much, in thousandths of a GPU.
    pub gpu_milli: u64,
    /// Whether it is its queue's own, which others had borrowed.
    pub own: bool,
}

/// Runs of a job that were stopped for shorter jobs of its queue.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PutBackView {
    /// The last of them: it stands in the order of its queue as if it had come then.
    #[serde(rename = "at_s")]
    pub at_s: Seconds,
    /// How many. The next is left alone for half an hour, doubled so often.
    pub times: u32,
}

/// What a start target means to a job that has never started.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StartTargetView {
    /// It should have started by then. Left out: no bound.
    #[serde(default, rename = "by_s", skip_serializing_if = "Option::is_none")]
    pub by_s: Option<Seconds>,
    /// What happens then.
    #[schemars(with = "String")]
    pub when_late: WhenLate,
    /// What it waits for: `new` (not judged yet), `noise`, `promised` or `over` (for nothing).
    pub waits_for: WaitView,
    /// With `noise` and `promised`: bought for then.
    #[serde(default, rename = "until_s", skip_serializing_if = "Option::is_none")]
    pub until_s: Option<Seconds>,
    /// With `promised`: the places of this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// With `promised`: on this node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

/// What a job waits for that may wait.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WaitView {
    /// Not judged yet.
    New,
    /// A node would come after the burst.
    Noise,
    /// The places of a run.
    Promised,
    /// For nothing: it is bought for.
    Over,
}

/// A request to the cloud or the cluster without an answer yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RequestView {
    /// Sent again then. Left out: never.
    #[serde(default, rename = "again_s", skip_serializing_if = "Option::is_none")]
    pub again_s: Option<Seconds>,
    /// Times sent.
    pub tries: u32,
}

/// How a deadline bears on what a job may run on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum UrgencyView {
    /// Well ahead of it: spot only.
    Relaxed,
    /// No time for another reclaim.
    Urgent,
    /// Ahead of those in its queue and tier that have more time.
    Dated,
    /// Taken back in a row without progress: anything but that offering.
    Avoids,
    /// Taken back in a row without progress, on one offering after another: nothing that the cloud may take back.
    AvoidsSpot,
}

/// What a job has come to since its last verified progress.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct StreakView {
    /// Starts in a row that failed.
    pub start_failures: u32,
    /// Nodes that its runs blamed, the last one last.
    pub blamed: Vec<BlameView>,
    /// Runs in a row that the cloud ended.
    pub reclaims: u32,
    /// The offering of the last of these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reclaimed_from: Option<OfferingName>,
    /// How many of them in a row were of that offering.
    pub reclaimed_there: u32,
    /// A node of this offering was just taken from its run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taken: Option<OfferingName>,
}

/// Faults that a job blamed on a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BlameView {
    /// Which node.
    pub node: String,
    /// How often.
    pub times: u32,
}

/// What is remembered of a job. A time that is left out is `never`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct JobMemory {
    /// The digest of its submitted specification, in hex: the same again is the same job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Who submitted it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// When it was asked for, by its sender's clock.
    #[serde(rename = "sent_s", skip_serializing_if = "Option::is_none")]
    pub sent_s: Option<Seconds>,
    /// While it pauses after a failure or a denied start, held or not: until then.
    #[serde(rename = "pausesUntil_s", skip_serializing_if = "Option::is_none")]
    pub pauses_until_s: Option<Seconds>,
    /// Starts in a row that a full quota of the cluster's own denied.
    #[serde(skip_serializing_if = "zero")]
    pub denials: u32,
    /// Since when it is in its phase, where that is not `since_s`.
    #[serde(rename = "phaseSince_s", skip_serializing_if = "Option::is_none")]
    pub phase_since_s: Option<Seconds>,
    /// How its run ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<EndView>,
    /// Quota that others gave back for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keeps: Option<KeptView>,
    /// Runs are being stopped for it; what they free is kept until then.
    #[serde(rename = "reservedUntil_s", skip_serializing_if = "Option::is_none")]
    pub reserved_until_s: Option<Seconds>,
    /// What its queue's start target lets it wait for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_target: Option<StartTargetView>,
    /// How its deadline bears on what it may run on. Left out: as its tier says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub urgency: Option<UrgencyView>,
    /// The offering that it avoids.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub avoids: Option<OfferingName>,
    /// What it has come to since its last verified progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streak: Option<StreakView>,
    /// It is late by its start target, and on-demand is bought for it.
    #[serde(skip_serializing_if = "not")]
    pub late: bool,
    /// Its deadline is looked at again then.
    #[serde(rename = "reassess_s", skip_serializing_if = "Option::is_none")]
    pub reassess_s: Option<Seconds>,
    /// A change of policy has put something in the way of its class.
    #[serde(skip_serializing_if = "not")]
    pub impossible: bool,
    /// Its deadline was found to be out of reach.
    #[serde(skip_serializing_if = "not")]
    pub unreachable: bool,
    /// Its submitter knows that the current attempt is admitted.
    #[serde(skip_serializing_if = "not")]
    pub admitted: bool,
    /// Its submitter asked for its end.
    #[serde(skip_serializing_if = "not")]
    pub cancel_asked: bool,
    /// It was let in ahead of the reservation of this job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backfill_for: Option<String>,
    /// Since when its run has run.
    #[serde(rename = "runningSince_s", skip_serializing_if = "Option::is_none")]
    pub running_since_s: Option<Seconds>,
    /// When its run last saved.
    #[serde(rename = "savedAt_s", skip_serializing_if = "Option::is_none")]
    pub saved_at_s: Option<Seconds>,
    /// The progress that its run resumed from.
    #[serde(rename = "resumedFrom_s", skip_serializing_if = "Option::is_none")]
    pub resumed_from_s: Option<Seconds>,
    /// Not stopped for others before then.
    #[serde(rename = "protectedUntil_s", skip_serializing_if = "Option::is_none")]
    pub protected_until_s: Option<Seconds>,
    /// Given up, ended or hung then, by its phase.
    #[serde(rename = "mustEndBy_s", skip_serializing_if = "Option::is_none")]
    pub must_end_by_s: Option<Seconds>,
    /// It may be stopped by any higher tier from then on.
    #[serde(rename = "overdueAt_s", skip_serializing_if = "Option::is_none")]
    pub overdue_at_s: Option<Seconds>,
    /// Its run has had its turn then: where its queue says `preemptWithin: longer-expected`, shorter jobs of it may stop the run from then on.
    #[serde(rename = "turnOverAt_s", skip_serializing_if = "Option::is_none")]
    pub turn_over_at_s: Option<Seconds>,
    /// Shorter jobs of its queue have stopped runs of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub put_back: Option<PutBackView>,
    /// Workers of the current run, those that have left too.
    #[serde(skip_serializing_if = "zero")]
    pub workers: u32,
    /// Of these, those that have finished.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub workers_done: Vec<u32>,
    /// Of these, those that have left while the run went on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub workers_left: Vec<u32>,
    /// Workers that were asked to leave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leaving: Option<LeavingView>,
    /// GPU share that it holds, where that is more than its places come to: it has lost a node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_gpu_milli: Option<u64>,
    /// Idleness that was reported and is not settled yet.
    #[serde(rename = "idleReported_s", skip_serializing_if = "Option::is_none")]
    pub idle_reported_s: Option<Seconds>,
    /// Idleness of the current run so far.
    #[serde(rename = "idleSeen_s", skip_serializing_if = "Option::is_none")]
    pub idle_seen_s: Option<Seconds>,
    /// Why its run has to be stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broken: Option<StopView>,
    /// Its stop has hung.
    #[serde(skip_serializing_if = "not")]
    pub hung: bool,
    /// Its start or stop, where that is not answered yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestView>,
}

/// What is remembered of a service.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ServiceMemory {
    /// Replicas needed, most first, each with the last time that so many were. Without a time: now.
    pub needs: Vec<NeedView>,
    /// Replicas made so far.
    pub made: u32,
    /// Since when nothing has been asked of it. Left out: something is.
    #[serde(rename = "unaskedSince_s", skip_serializing_if = "Option::is_none")]
    pub unasked_since_s: Option<Seconds>,
    /// Loaded time times target, in milliseconds, as a decimal number.
    pub resident: String,
    /// Of this, what demand took up.
    pub busy: String,
    /// Both are counted up to then.
    #[serde(rename = "countedTo_s")]
    pub counted_to_s: Seconds,
}

/// So many replicas were needed until then.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NeedView {
    /// How many.
    pub replicas: u32,
    /// The last time.
    #[serde(default, rename = "last_s", skip_serializing_if = "Option::is_none")]
    pub last_s: Option<Seconds>,
}

/// One slice of each of a node's GPUs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SliceView {
    /// Its part of the GPU in thousandths, as its profile states it.
    pub share_milli: u16,
    /// What a worker on it holds.
    pub held_milli: u16,
    /// Its memory.
    pub mem_mib: u64,
}

/// What a job is promised of a node when its work ends.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeReservationView {
    /// Which job.
    pub job: String,
    /// Until then.
    #[serde(default, rename = "until_s", skip_serializing_if = "Option::is_none")]
    pub until_s: Option<Seconds>,
}

/// What is remembered of a node. A time that is left out is `never`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NodeMemory {
    /// When it was decided on.
    #[serde(rename = "decided_s")]
    pub decided_s: Seconds,
    /// Since when it is in its phase.
    #[serde(rename = "phaseSince_s")]
    pub phase_since_s: Seconds,
    /// Since when it is ready with nothing on it.
    #[serde(rename = "idleSince_s", skip_serializing_if = "Option::is_none")]
    pub idle_since_s: Option<Seconds>,
    /// The purchase that brings it, while the cloud has not answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub purchase: Option<u64>,
    /// The slices of each of its GPUs, where they are partitioned.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<SliceView>,
    /// Bought into one placement group with the others of its purchase.
    #[serde(skip_serializing_if = "not")]
    pub cluster: bool,
    /// What it frees is kept for these jobs, for each until then.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reserved: Vec<NodeReservationView>,
    /// While it boots: given up then. While it is idle: drained then.
    #[serde(rename = "due_s", skip_serializing_if = "Option::is_none")]
    pub due_s: Option<Seconds>,
    /// While it drains: why.
    #[schemars(with = "Option<String>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub draining: Option<DrainWhy>,
    /// While it drains: checked again then.
    #[serde(rename = "checkAt_s", skip_serializing_if = "Option::is_none")]
    pub check_at_s: Option<Seconds>,
    /// To be given back whatever is on it.
    #[serde(skip_serializing_if = "not")]
    pub condemned: bool,
    /// Faults that runs blamed on it.
    #[serde(skip_serializing_if = "zero")]
    pub faults: u32,
    /// What the ceilings count it at, in micro-dollars an hour.
    #[serde(rename = "ceilingPrice_microUsdPerHour")]
    pub ceiling_price: u64,
    /// Its termination, where that is not answered yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestView>,
}

/// What is remembered of an offering's stock.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct StockMemory {
    /// Why nothing is asked of it before `blockedUntil_s`, or was not before.
    #[schemars(with = "Option<String>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked_by: Option<LaunchError>,
    /// Nothing was or is asked of it before then.
    #[serde(rename = "blockedUntil_s")]
    pub blocked_until_s: Seconds,
    /// The smallest request that failed.
    pub refused_size: u32,
    /// Failed windows in a row.
    pub failures: u32,
    /// Nodes that may be in flight at once.
    pub window: u32,
    /// What the ceilings count a node of it at, in micro-dollars an hour.
    #[serde(rename = "ceilingPrice_microUsdPerHour")]
    pub ceiling_price: u64,
}

/// An offering by its name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OfferingName {
    /// As the cloud names it.
    pub instance_type: String,
    /// As the cloud names it.
    pub zone: String,
    /// How it is paid for.
    pub capacity_type: Capacity,
}

/// A request to the cloud for nodes that is not answered yet: its nodes name it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PurchaseView {
    /// Its number.
    pub purchase: u64,
    /// Fewer nodes than this are of no use.
    pub at_least: u32,
    /// With an Elastic Fabric Adapter each.
    #[serde(default, skip_serializing_if = "not")]
    pub efa: bool,
    /// All into one placement group.
    #[serde(default, skip_serializing_if = "not")]
    pub cluster: bool,
    /// How it was sent.
    pub request: RequestView,
}

/// What is kept for one gang in a pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReservationView {
    /// Where.
    pub pool: String,
    /// For which job.
    pub job: String,
    /// From when on. Left out: not known.
    #[serde(default, rename = "from_s", skip_serializing_if = "Option::is_none")]
    pub from_s: Option<Seconds>,
    /// Whether there is an estimate for each of the runs there.
    pub known: bool,
    /// Runs outlasted an earlier time and could not be stopped.
    pub delayed: bool,
    /// The nodes that it goes on; or, with room, that are given back for it.
    pub nodes: Vec<String>,
    /// What is bought for it once these are gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub room: Vec<RoomView>,
}

/// What a quota or a budget leaves, kept for a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AllowanceView {
    /// Of which queue or cohort.
    pub queue: String,
    /// Of what.
    pub of: AllowanceKind,
    /// Where the job is to run.
    pub pool: String,
    /// For which job.
    pub job: String,
    /// From when on.
    #[serde(rename = "from_s")]
    pub from_s: Seconds,
    /// Whether there is an estimate for each of the runs.
    pub known: bool,
    /// Runs outlasted an earlier time and could not be stopped.
    pub delayed: bool,
    /// Runs that are to be gone by then.
    pub runs: Vec<String>,
}

/// What a queue or cohort has a bound of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AllowanceKind {
    /// Its quota in the pool.
    Quota,
    /// Its budget.
    Budget,
}

/// Nodes of one offering that are to be bought.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RoomView {
    /// Of what.
    pub offering: OfferingName,
    /// How many.
    pub nodes: u32,
}

/// What a queue or cohort has spent and used.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UseView {
    /// Its path.
    pub queue: String,
    /// Past use, decayed to now: thousandths of a GPU x milliseconds, as a decimal number.
    #[serde(default, rename = "used_gpuMilliMs", skip_serializing_if = "Option::is_none")]
    pub used: Option<String>,
    /// Spent in this period of its budget: micro-dollars an hour x milliseconds, as a decimal number.
    #[serde(default, rename = "spent_microUsdMsPerHour", skip_serializing_if = "Option::is_none")]
    pub spent: Option<String>,
}

/// How long work of a queue and size lasted, or of a family of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DurationsView {
    /// Of which queue.
    pub queue: String,
    /// Of gangs of this size: 0 without GPUs, then one more for each doubling.
    pub size: u8,
    /// Of this family alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<FamilyView>,
    /// Pairs of a bucket (four for each doubling of seconds) and how many runs were in it.
    pub counts: Vec<(u8, u32)>,
}

/// Work of one tenant, submitter, models asked for and labels that it is billed by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FamilyView {
    /// A digest of these.
    pub digest: u64,
    /// Which completion was the last of it: of too many families the one with the least gives way.
    pub last: u64,
}

/// What was seen of an offering.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OfferingStats {
    /// Of which.
    pub offering: OfferingName,
    /// Its last boots, oldest first.
    #[serde(default, rename = "boots_s", skip_serializing_if = "Vec::is_empty")]
    pub boots_s: Vec<Seconds>,
    /// Time on its spot nodes that are gone.
    #[serde(default, rename = "spotTime_s", skip_serializing_if = "Option::is_none")]
    pub spot_time_s: Option<Seconds>,
    /// Of these, how many the cloud took back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaims: Option<u64>,
}

/// How often work takes a node of a pool that has nothing on it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PoolStats {
    /// Of which pool.
    pub pool: String,
    /// So often so far.
    pub count: u64,
    /// The last time.
    #[serde(rename = "last_s")]
    pub last_s: Seconds,
    /// The usual gap between two of them.
    #[serde(rename = "gap_s")]
    pub gap_s: Seconds,
}

/// How often a kind of work was asked for of late.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KindView {
    /// GPUs that have to be free on one node.
    pub gpus: u16,
    /// Share of each in thousandths.
    pub share_milli: u16,
    /// How often.
    pub count: u32,
}

/// A cancel that is kept for a submission which may still come.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CancelView {
    /// Whose job.
    pub tenant: String,
    /// Which.
    pub subject: String,
    /// Who asked. Left out: an operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Whether it says when it was sent.
    pub timed: bool,
    /// When it was sent.
    #[serde(default, rename = "sent_s", skip_serializing_if = "Option::is_none")]
    pub sent_s: Option<Seconds>,
    /// When it came.
    #[serde(rename = "seen_s")]
    pub seen_s: Seconds,
}

/// What of each node of an instance type is not for work.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeReserveView {
    /// Of which type.
    pub instance_type: String,
    /// CPU that the node's system keeps, in thousandths of a core.
    #[serde(default, rename = "systemCpu_milli")]
    pub system_cpu_milli: u64,
    /// Memory that it keeps.
    #[serde(default, rename = "systemMemory_mib")]
    pub system_memory_mib: u64,
    /// CPU that DaemonSets request, in thousandths of a core.
    #[serde(default, rename = "daemonsCpu_milli")]
    pub daemons_cpu_milli: u64,
    /// Memory that they request.
    #[serde(default, rename = "daemonsMemory_mib")]
    pub daemons_memory_mib: u64,
}

/// What is remembered that belongs to no row.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct StateMemory {
    /// Queues in the order in which they were first named.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<String>,
    /// What is kept for a gang, a pool.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reservations: Vec<ReservationView>,
    /// What is kept of quotas and budgets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allowances: Vec<AllowanceView>,
    /// Purchases without an answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub purchases: Vec<PurchaseView>,
    /// Past use and money spent, by queue and cohort.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub used: Vec<UseView>,
    /// How long work lasted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub durations: Vec<DurationsView>,
    /// How long nodes boot, and how often the cloud takes them back.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub offerings: Vec<OfferingStats>,
    /// How often nodes are needed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<PoolStats>,
    /// What was asked for of late.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mix: Vec<KindView>,
    /// Running work is looked at again then, to move it.
    #[serde(rename = "consolidateAt_s", skip_serializing_if = "Option::is_none")]
    pub consolidate_at_s: Option<Seconds>,
    /// When the controller came back after down time: nothing is judged before the world can have been listed again.
    #[serde(rename = "resumedAt_s", skip_serializing_if = "Option::is_none")]
    pub resumed_at_s: Option<Seconds>,
    /// The policy has changed, and what it makes impossible is not judged yet.
    #[serde(skip_serializing_if = "not")]
    pub unjudged: bool,
    /// Cancels that came before their job.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cancels: Vec<CancelView>,
    /// What of nodes is not for work.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub node_reserves: Vec<NodeReserveView>,
    /// What operators have stopped for a time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub brakes: Vec<BrakeView>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
fn not(value: &bool) -> bool {
    !value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
fn zero(value: &u32) -> bool {
    *value == 0
}

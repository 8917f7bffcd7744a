//! The policy as an SRE writes it. These comments are the user's documentation and the JSON Schema's descriptions.
//!
//! Every field that may be left out is an `Option` here: `defaults` fills them, so that `--explain` can tell which it filled.
//! Never: checks what one field means for another (that is `check`), or resolves a name.

use super::defaults::ancestors;
use super::words::{TimeZone, UndeclaredQueues, Under};
use forebay_quantity::{Factor, GpuBound, GpuCount, Money, PerHour, Percent, Time};
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

mod pool;

pub use pool::{Placement, WrittenNetwork, WrittenOwned, WrittenPool, WrittenSharing};

/// A Forebay policy: who goes first, what each may use, what may be bought, and when it is given back.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[serde(expecting = "a policy: a map that starts with `apiVersion: forebay/v1`")]
#[schemars(title = "Forebay policy")]
pub struct WrittenPolicy {
    /// Always `forebay/v1`.
    pub api_version: ApiVersion,
    /// Always `Policy`.
    pub kind: PolicyKind,
    /// Its name.
    pub metadata: PolicyMetadata,
    /// Hard bounds over all pools together. Required for a real cloud.
    pub limits: Option<WrittenCeiling>,
    /// Who goes first, who may stop whom, what may be bought for it. Default: `critical`, `normal`, `scavenger`.
    pub tiers: Option<IndexMap<String, WrittenTier>>,
    /// Queues by path; `research/vision` is a child of `research`, and a queue with children is a cohort.
    pub queues: Option<IndexMap<String, WrittenQueue>>,
    /// What happens to a job whose queue is not declared. Default: `reject`.
    pub undeclared_queues: Option<UndeclaredQueues>,
    /// Rules that choose a job's queue at intake, first match; without a match the job's own queue stands.
    pub routes: Option<Vec<Route>>,
    /// What can be bought, in order of preference. Default: one pool `default` of any instance type.
    pub pools: Option<IndexMap<String, WrittenPool>>,
    /// What a node costs beside its price, such as what runs on every node. It counts where purchases are compared, and is never billed.
    /// Default: `0 USD/h`.
    pub node_overhead: Option<PerHour>,
    /// When running work is moved to save money.
    pub consolidation: Option<WrittenConsolidation>,
    /// How waiting and past use count in the order. They order free capacity; nothing is stopped for them.
    pub fairness: Option<WrittenFairness>,
    /// When runs are warned, stopped, given up.
    pub lifecycle: Option<WrittenLifecycle>,
    /// What becomes of jobs that wait and that a new policy makes impossible. Default: `hold`.
    pub impossible: Option<WrittenImpossible>,
    /// How what is used is billed: by which labels, and in the days of which time zone.
    pub billing: Option<WrittenBilling>,
}

impl WrittenPolicy {
    /// The declared queue of that path.
    pub fn queue(&self, path: &str) -> Option<&WrittenQueue> {
        self.queues.as_ref()?.get(path)
    }

    /// A declared queue and all below it.
    pub fn family(&self, root: &str) -> impl Iterator<Item = &WrittenQueue> {
        let within = move |path: &str| ancestors(path).any(|above| above == root);
        self.queues.iter().flatten().filter(move |(path, _)| within(path)).map(|(_, queue)| queue)
    }

    /// What may be bought for a queue's jobs.
    pub fn buys(&self, queue: &WrittenQueue) -> Option<WrittenBuys> {
        self.tiers.as_ref()?.get(queue.tier.as_ref()?)?.buys
    }

    /// The rule that undeclared queues share, if they are not rejected.
    pub fn shared(&self) -> Option<&Under> {
        match self.undeclared_queues.as_ref()? {
            UndeclaredQueues::Shared(under) => Some(under),
            UndeclaredQueues::Reject => None,
        }
    }
}

/// How what is used is billed.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[serde(expecting = "how to bill, such as `{labels: [team, costCenter], zone: Europe/Berlin}`")]
#[schemars(rename = "Billing")]
pub struct WrittenBilling {
    /// Labels of jobs by which bills can be asked, at most 8: `forebay cost --by label:team`. They are kept with a job as it was submitted;
    /// jobs from before a label stood here are not labelled. Default: none.
    pub labels: Option<Vec<String>>,
    /// The time zone whose days bills have. Default: `UTC`.
    pub zone: Option<TimeZone>,
}

/// The version of the policy format.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub enum ApiVersion {
    /// The first.
    #[serde(rename = "forebay/v1")]
    V1,
}

/// What kind of document this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Kind")]
pub enum PolicyKind {
    /// A policy.
    Policy,
}

/// What the policy is called.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "a map such as `{name: research}`")]
#[schemars(rename = "Metadata")]
pub struct PolicyMetadata {
    /// Its name in reports, metrics and the journal.
    pub name: String,
    /// A line for people.
    pub description: Option<String>,
}

/// A hard bound: launched and in flight, spot booked at its maximum price. What is left out has no bound.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "bounds such as `{nodes: 120, spend: 2500 USD/h}`")]
#[schemars(rename = "Ceiling")]
pub struct WrittenCeiling {
    /// Nodes of any kind.
    pub nodes: Option<u32>,
    /// On-demand nodes.
    pub on_demand_nodes: Option<u32>,
    /// Whole GPUs on all nodes.
    pub gpus: Option<u32>,
    /// Sum of the nodes' prices, spot at its maximum price.
    pub spend: Option<PerHour>,
}

/// Who goes first, who may stop whom, what may be bought for it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[serde(expecting = "a tier such as `{priority: 500, buys: spot-then-on-demand}`")]
#[schemars(rename = "Tier")]
pub struct WrittenTier {
    /// Higher goes first.
    pub priority: i32,
    /// What may be bought for its jobs. Default: `spot-then-on-demand`.
    pub buys: Option<WrittenBuys>,
    /// Tiers of a higher priority whose jobs may stop this tier's. Default: none.
    pub stoppable_by: Option<Vec<String>>,
    /// No run is stopped for another job before it has lasted this long; `maxRunWhileOthersWait` cannot be shorter. Default: `0s`.
    pub min_run: Option<Time>,
    /// A run that has lasted this long may be stopped by any higher tier while others wait. Default: no such bound.
    pub max_run_while_others_wait: Option<Time>,
    /// The part of all capacity that this tier gets even when higher ones want it all. Default: none.
    pub min_share: Option<Percent>,
}

/// What may be bought for a tier's jobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "Buys")]
pub enum WrittenBuys {
    /// On-demand only: its jobs never run on spot.
    OnDemand,
    /// Spot first; on-demand when no spot that fits is in stock.
    SpotThenOnDemand,
    /// Spot only; its jobs may use idle on-demand nodes that are there already.
    Spot,
    /// Nothing is bought and no node kept: its jobs run on what is idle.
    Nothing,
}

/// A queue, or a cohort when other queues lie below it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[serde(expecting = "a queue such as `{tier: normal, quota: {default: {gpus: 64}}}`")]
#[schemars(rename = "Queue")]
pub struct WrittenQueue {
    /// The tier of its jobs, unless a job names another of its `tiers`. Default: its parent's, else `normal`, or the only tier that there is.
    pub tier: Option<String>,
    /// Tiers that its jobs may ask for, its own among them; a job that asks for another is rejected. Default: its parent's, else its own tier and
    /// all of a lower priority.
    pub tiers: Option<Vec<String>>,
    /// Pools that its jobs may use, in order of preference. Default: its parent's, else all.
    pub pools: Option<Vec<String>>,
    /// By pool, what it is promised. Without a quota for a pool it borrows from its parent; a root without one is unbounded there.
    pub quota: Option<IndexMap<String, WrittenQuota>>,
    /// Its share of what its siblings leave free, against theirs. Default: 1.
    pub weight: Option<Factor>,
    /// Principals that may submit, cancel and read. Default: its parent's, else anyone who may submit at all.
    pub submitters: Option<Vec<String>>,
    /// When its jobs should start. Default: its parent's, else no target.
    pub start: Option<WrittenStart>,
    /// What its jobs may cost.
    pub budget: Option<WrittenBudget>,
    /// What its jobs take back from other queues that have borrowed it (Kueue: `reclaimWithinCohort`). Default: its parent's, else `any`.
    pub reclaim: Option<WrittenReclaim>,
    /// Which runs of its own its jobs may stop (Kueue: `withinClusterQueue`). Default: its parent's, else `lower-tiers`.
    pub preempt_within: Option<WrittenPreemptWithin>,
    /// Which of its jobs of one tier and priority goes first. Default: its parent's, else `arrival`.
    pub order: Option<WrittenOrder>,
}

/// Which jobs of a queue, tier and priority go first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "Order")]
pub enum WrittenOrder {
    /// Who came first.
    Arrival,
    /// Who is expected to be done soonest, by `expectedRun` or else by what work of the queue was seen to last; waiting counts, so that a job goes before all that come later by twenty times that.
    ShortestExpected,
}

/// What a queue's jobs take back from borrowers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "Reclaim")]
pub enum WrittenReclaim {
    /// From runs of any tier. Where both queues have borrowed, a job also stops a run of its own tier whose queue has more of what is lent for its
    /// weight, and still has as much as its own afterwards.
    Any,
    /// From runs of lower tiers only.
    LowerTiers,
    /// Nothing: they wait until the borrowers end, unless a tier lets itself be stopped.
    Never,
}

/// Which runs of a queue its own jobs may stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "PreemptWithin")]
pub enum WrittenPreemptWithin {
    /// Of lower tiers, where `stoppableBy` allows it.
    LowerTiers,
    /// Also of the same tier with a lower priority number; waiting does not count.
    LowerPriority,
    /// Also of the same tier that have run for half an hour and are expected to take four times the GPU time still; after each such stop a run is left alone for twice as long. Only with `order: shortest-expected`.
    LongerExpected,
    /// None.
    Never,
}

/// What becomes of jobs that a new policy makes impossible.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "Impossible")]
pub enum WrittenImpossible {
    /// They are held until a policy makes them possible, and say why.
    Hold,
    /// They are rejected.
    Reject,
}

/// A quota in one pool. Of a cohort: what all of its queues are promised together, theirs included.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[serde(expecting = "a quota such as `{gpus: 64, borrow: 0, lend: all}`")]
#[schemars(rename = "Quota")]
pub struct WrittenQuota {
    /// GPUs that it may always use.
    pub gpus: GpuCount,
    /// How much more it may use while its cohort has it to spare. Default: 0.
    pub borrow: Option<GpuBound>,
    /// How much of what it does not use others may have. Default: `all`.
    pub lend: Option<GpuBound>,
}

/// A start target.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[serde(expecting = "a start target such as `{within: 15m, whenLate: wait}`")]
#[schemars(rename = "Start")]
pub struct WrittenStart {
    /// Jobs should start within this time.
    pub within: Time,
    /// What is done when they cannot. Default: `wait`.
    pub when_late: Option<WrittenWhenLate>,
    /// A job may wait so long for each GPU-hour that it is expected to take (`expectedRun`, else an hour), `within` at most, and only while a place is
    /// expected to be free for it by then: else it is bought for at once. Default: none, `within` is for all of them.
    pub per_gpu_hour: Option<Time>,
}

/// What is done about a late start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "WhenLate")]
pub enum WrittenWhenLate {
    /// On-demand is bought whatever the tier prefers.
    BuyOnDemand,
    /// It waits on.
    Wait,
    /// The job is rejected.
    Reject,
}

/// Money for a queue.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[serde(expecting = "a budget such as `{amount: 60000 USD, per: month}`")]
#[schemars(rename = "Budget")]
pub struct WrittenBudget {
    /// So much.
    pub amount: Money,
    /// In this time.
    pub per: WrittenPeriod,
    /// What is done when it would be overdrawn. Default: `hold`.
    pub when_spent: Option<WrittenWhenSpent>,
}

/// The time that a budget is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "Period")]
pub enum WrittenPeriod {
    /// Each clock hour.
    Hour,
    /// Each calendar day, UTC.
    Day,
    /// Each calendar month, UTC.
    Month,
}

/// What is done when a budget is spent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "WhenSpent")]
pub enum WrittenWhenSpent {
    /// A job starts only while what is left pays for it and for all that runs, for an hour more or until the period ends, whichever is sooner;
    /// else it waits for the next period or for a run to end. No run is stopped for it.
    Hold,
    /// It is reported only.
    Warn,
}

/// A rule that chooses a queue.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[serde(expecting = "a route such as `{when: 'job.labels.kind == \"notebook\"', queue: interactive}`")]
pub struct Route {
    /// A CEL expression over `job`, the submitted event's data. A field that a job lacks makes it no match.
    pub when: String,
    /// The declared queue that a matching job goes to.
    pub queue: String,
}

/// When running work is moved to save money.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "a map such as `{worthIt: 2, movesPerHour: 10 %}`")]
#[schemars(rename = "Consolidation")]
pub struct WrittenConsolidation {
    /// Money saved over the cost of the work disturbed must reach this; 0: nothing is ever moved. Default: 1.
    pub worth_it: Option<Factor>,
    /// The part of a pool's ready nodes that may be emptied in an hour, spread over the looks in it (`every`). At each look each pool may empty
    /// one, however small this is: `worthIt: 0` is what turns moves off. Default: `10 %`.
    pub moves_per_hour: Option<Percent>,
    /// How often moves are considered. Default: `10m`.
    pub every: Option<Time>,
}

/// How waiting and past use count in the order. They order free capacity; nothing is stopped for them.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "a map such as `{halfLife: 7d, ageing: 1h}`")]
#[schemars(rename = "Fairness")]
pub struct WrittenFairness {
    /// After this time past use counts half. Default: `7d`.
    pub half_life: Option<Time>,
    /// Within a queue, waiting for so long counts as one point of priority. Default: never, priority is strict.
    pub ageing: Option<Time>,
}

/// When runs are warned, stopped, given up.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[serde(expecting = "a map such as `{lingerAfter: 15m, onLinger: warn}`")]
#[schemars(rename = "Lifecycle")]
pub struct WrittenLifecycle {
    /// A GPU idle for this long under a run is lingering. Default: `15m`.
    pub linger_after: Option<Time>,
    /// What is done about it. Default: `warn`.
    pub on_linger: Option<WrittenOnLinger>,
    /// A run that lasts longer fails, unless the job has its own bound. Default: `365d`.
    pub max_run: Option<Time>,
    /// A service whose model is loaded this many times longer than it computes is scaled to zero. Default: never.
    pub max_residency_over_compute: Option<Factor>,
    /// A service gives replicas back when it has needed fewer for so long. Default: `5m`.
    pub scale_down_after: Option<Time>,
    /// A run that is not known to be dead so long after it was to be killed has hung: its nodes are given up. Default: `5m`.
    pub hang_after: Option<Time>,
    /// A launch without an outcome is asked about again after this time. Default: `30s`.
    pub launch_retry: Option<Time>,
    /// A node that is not ready after this time is given up. Default: `20m`.
    pub boot_timeout: Option<Time>,
    /// A gang that has not started after this time is stopped and queued again. Default: `10m`.
    pub start_timeout: Option<Time>,
    /// A tainted node waits this long before it is checked again and terminated. Default: `10s`.
    pub drain_settle: Option<Time>,
    /// The time to end of a run that saves nothing, as its job has no `checkpoint` or is over. What saves has the `grace` of its `checkpoint`, 90 s
    /// where that states none. Default: `90s`.
    pub grace: Option<Time>,
    /// A restarted victim is left alone for so long past its restart; for one checkpoint interval, 30 minutes at most, in any case; but no longer
    /// than its tier's `maxRunWhileOthersWait`. Default: `0s`.
    pub protect: Option<Time>,
    /// So many faults on a node quarantine it. Default: 3.
    pub quarantine_after: Option<u32>,
}

/// What is done about lingering work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "OnLinger")]
pub enum WrittenOnLinger {
    /// It is reported.
    Warn,
    /// It is checkpointed and stopped, and its job has failed.
    Stop,
}

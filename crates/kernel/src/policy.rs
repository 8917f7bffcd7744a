//! The compiled policy: resolved, validated, nothing left to look up by name but queues and models, which are interned once.
//!
//! The written form (YAML, defaults, errors with line and column) and its compiler belong to the controller.
//! Never: defaults that depend on anything but the written policy; a policy is journaled whole beside its source.

use crate::catalog::Offering;
use crate::ids::{PoolId, QuotaId, TierId};
use crate::state::owned::OwnedPool;
use crate::units::{Mib, MilliGpu, Rate, Span, Timestamp};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Everything that the engine knows about what is wanted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Policy {
    /// For people.
    pub name: String,
    /// Bounds over all pools together.
    pub limits: Ceiling,
    /// Highest priority first is not required; `TierId` is the position here.
    pub tiers: Vec<Tier>,
    /// The quota tree; parents come before their children.
    pub quotas: Vec<QuotaNode>,
    /// Declared queues by path, such as `research/vision`.
    pub queues: BTreeMap<String, QueueRule>,
    /// What happens to a job whose queue is not declared.
    pub undeclared: Undeclared,
    /// `PoolId` is the position here.
    pub pools: Vec<Pool>,
    /// What can be bought, for all pools. [`Pool::offerings`] are positions here.
    pub offerings: Vec<Offering>,
    /// When runs are warned, stopped, given up.
    pub lifecycle: Lifecycle,
    /// When running work is moved to save money.
    pub consolidation: Consolidation,
    /// How waiting and past use count in the order.
    pub fairness: Fairness,
    /// What a node costs beside its price, such as what runs on every node. No written policy says it yet, and purchases do not count it.
    #[serde(skip)]
    pub node_overhead: Rate,
    /// What becomes of a job that a change of policy makes impossible while it waits.
    #[serde(skip)]
    pub impossible: WhenImpossible,
    /// How it is billed. `None`: by nobody's name, as before there were bills.
    #[serde(skip)]
    pub billing: Option<BillingRule>,
}

/// How what is used is billed.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct BillingRule {
    /// Labels of jobs that bills can be asked by.
    pub labels: Vec<String>,
    /// The time zone whose days bills have, as people name it. Empty: UTC.
    pub zone: String,
    /// Its local time less UTC in seconds, each from its instant on, in order. Empty: UTC.
    pub offsets: Vec<(Timestamp, i32)>,
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            name: String::new(),
            limits: Ceiling::default(),
            tiers: Vec::new(),
            quotas: Vec::new(),
            queues: BTreeMap::new(),
            undeclared: Undeclared::Reject,
            pools: Vec::new(),
            offerings: Vec::new(),
            lifecycle: Lifecycle::default(),
            consolidation: Consolidation::default(),
            fairness: Fairness::default(),
            node_overhead: Rate(0),
            impossible: WhenImpossible::default(),
            billing: None,
        }
    }
}

/// What becomes of a job that a change of policy makes impossible while it waits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhenImpossible {
    /// It is held until another policy makes it possible.
    #[default]
    Hold,
    /// It is rejected.
    Reject,
}

/// How waiting and past use count in the order. They order free capacity only; nothing is ever stopped for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Fairness {
    /// After this time past use counts half.
    pub half_life: Span,
    /// Within a queue, waiting for so long counts as one point of priority. `None`: priority is strict.
    pub ageing: Option<Span>,
    /// A start counts at once as if it had run for so long already, so that a burst of submissions gains nothing.
    pub entry: Span,
}

impl Default for Fairness {
    fn default() -> Self {
        Fairness { half_life: Span::mins(7 * 24 * 60), ageing: None, entry: Span::mins(10) }
    }
}

/// A hard bound. `None` is no bound in that dimension.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Ceiling {
    /// Claims of any capacity type, in flight included.
    pub nodes: Option<u32>,
    /// On-demand claims, in flight included.
    pub on_demand_nodes: Option<u32>,
    /// Whole GPUs on all claims, in flight included.
    pub gpus: Option<u32>,
    /// Sum of the prices of all claims, spot at its maximum price.
    pub spend: Option<Rate>,
}

/// Who goes first, who may stop whom, what may be bought for it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Tier {
    /// As written.
    pub name: String,
    /// Higher goes first.
    pub priority: i32,
    /// What may be bought for its jobs, and what they may run on.
    pub buys: Buys,
    /// Tiers whose jobs may stop this tier's jobs. Each has a higher priority than this one.
    pub stoppable_by: Vec<TierId>,
    /// A run is not stopped for another job before it has lasted this long.
    pub min_run: Span,
    /// A run that has lasted this long may be stopped by any higher tier while others wait, `min_run` or not.
    pub max_run_while_others_wait: Option<Span>,
    /// The part of all GPUs in use that this tier gets even when higher ones want them all, in thousandths. It goes first while it
    /// has less, and no run of it is stopped for capacity if that would leave it less.
    pub min_share: u16,
}

impl Default for Tier {
    fn default() -> Self {
        Tier {
            name: String::new(),
            priority: 0,
            buys: Buys::SpotThenOnDemand,
            stoppable_by: Vec::new(),
            min_run: Span::ZERO,
            max_run_while_others_wait: None,
            min_share: 0,
        }
    }
}

/// The capacity preference of a tier.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Buys {
    /// On-demand only: its jobs never run on spot.
    OnDemand,
    /// Spot first; on-demand when no spot offering that fits is in stock.
    SpotThenOnDemand,
    /// Spot only. Its jobs may run on idle on-demand capacity that is there already.
    Spot,
    /// Nothing is bought for it and no node kept: it runs on what is idle.
    Nothing,
}

/// A node of the quota tree. A leaf is a queue, an inner node a cohort.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct QuotaNode {
    /// The path of the queue or cohort, for people.
    pub name: String,
    /// None for a root.
    pub parent: Option<QuotaId>,
    /// By pool. A pool that is missing here has no nominal quota of its own and may borrow without bound from the parent
    /// (`unlimited` at a root: no quota at all).
    pub limits: BTreeMap<PoolId, QuotaLimit>,
    /// Its share of what its siblings leave free, against theirs, in thousandths.
    pub weight: u32,
    /// What the work of its subtree may cost.
    pub budget: Option<Budget>,
}

impl Default for QuotaNode {
    fn default() -> Self {
        QuotaNode { name: String::new(), parent: None, limits: BTreeMap::new(), weight: 1000, budget: None }
    }
}

/// Money for the work of a queue or cohort.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Budget {
    /// So much, in micro-dollars.
    pub amount: u64,
    /// In this time.
    pub per: Period,
    /// What happens when it is spent.
    pub when_spent: WhenSpent,
}

/// The time that a budget is for, by the calendar in UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Period {
    /// Each clock hour.
    Hour,
    /// Each calendar day.
    Day,
    /// Each calendar month.
    Month,
}

/// What happens when a budget is spent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhenSpent {
    /// No job starts until the next period; what runs goes on.
    Hold,
    /// It is reported only.
    Warn,
}

/// Quota of one node of the tree in one pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct QuotaLimit {
    /// What the node may always use.
    pub nominal: MilliGpu,
    /// How much above its subtree's quota it may use when the parent has it to spare. `None`: without bound.
    pub borrow: Option<MilliGpu>,
    /// How much of its unused quota others may use. `None`: all.
    pub lend: Option<MilliGpu>,
}

/// What a queue means.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct QueueRule {
    /// Where its use counts.
    pub quota: QuotaId,
    /// The tier of its jobs, unless the job names another that [`Policy::may_ask`] allows.
    pub tier: TierId,
    /// Pools that its jobs may use, in order of preference.
    pub pools: Vec<PoolId>,
    /// Principals that may submit, cancel and read. Empty: anyone who may at all. See [`Policy::may_act`].
    pub submitters: Vec<String>,
    /// When its jobs should start. `None`: as soon as may be.
    pub start: Option<StartTarget>,
    /// The tiers that its jobs may ask for besides its own. `None`: all of a lower priority.
    #[serde(skip)]
    pub tiers: Option<Vec<TierId>>,
    /// What its jobs may take from other queues because these have borrowed it.
    #[serde(skip)]
    pub reclaim: Reclaim,
    /// What its jobs may stop in the queue itself.
    #[serde(skip)]
    pub preempt_within: PreemptWithin,
    /// So long may a job wait for each GPU-hour that it is expected to take, within its start target, and only for what is expected to come.
    /// `None`: its start target counts alone.
    #[serde(skip)]
    pub wait_per_gpu_hour: Option<Span>,
    /// Who goes first among its jobs of one tier and priority.
    #[serde(skip)]
    pub order: QueueOrder,
}

/// Who goes first among the jobs of a queue that have the same tier and priority.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueueOrder {
    /// Who came first.
    #[default]
    Arrival,
    /// Who is expected to be done soonest, where the time that a job has waited counts as well.
    ShortestExpected,
}

/// What the jobs of a queue may take from runs of other queues that borrow. What tiers may stop each other stays as it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reclaim {
    /// From runs of any tier.
    #[default]
    Any,
    /// From runs of a lower tier.
    LowerTiers,
    /// Nothing: it waits until they end.
    Never,
}

/// What the jobs of a queue may stop in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PreemptWithin {
    /// Runs of lower tiers, where these allow it.
    #[default]
    LowerTiers,
    /// Also runs of the same tier with a lower priority number. Waiting does not count.
    LowerPriority,
    /// No run.
    Never,
    /// Also runs of the same tier that have had their turn and are expected to take much longer still than the job.
    LongerExpected,
}

/// A start target: jobs may wait so long by design, and are bought for in time to start by then.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StartTarget {
    /// After arrival.
    pub within: Span,
    /// What happens to a job that is late all the same.
    pub when_late: WhenLate,
}

/// What happens to a job that has not started by its target.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhenLate {
    /// It waits on.
    Wait,
    /// On-demand is bought for it, whatever its tier prefers.
    BuyOnDemand,
    /// It is rejected.
    Reject,
}

/// What happens to a job whose queue is not declared.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Undeclared {
    /// Rejected with `UnknownQueue`.
    Reject,
    /// All of them share one rule, at most `at_most` different queues.
    Under {
        /// The rule that they share.
        rule: QueueRule,
        /// How many undeclared queues may have jobs at once.
        at_most: u32,
    },
}

/// A set of offerings with a ceiling, drain and sharing rules.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Pool {
    /// As written.
    pub name: String,
    /// Positions in [`Policy::offerings`].
    pub offerings: Vec<u32>,
    /// This pool's own bounds.
    pub ceiling: Ceiling,
    /// Idle or booting nodes that are kept whatever happens (bought ahead, never drained).
    pub keep_ready: u32,
    /// When an idle node is given back.
    pub drain: Drain,
    /// Nodes that are kept in certain hours; the largest that holds counts, `keep_ready` included.
    pub floors: Vec<Floor>,
    /// Whether, and how finely, GPUs are shared by time slices. `None`: one job a GPU.
    pub sharing: Option<Sharing>,
    /// How its GPUs may be partitioned (MIG), in order of preference. Empty: they are whole. A pool has either this or `sharing`.
    pub layouts: Vec<Layout>,
    /// How its nodes are connected.
    pub network: Network,
    /// Its nodes are not bought: they are there. Such a pool has no offerings, ceiling or floor.
    #[serde(skip)]
    pub owned: Option<OwnedPool>,
    /// How far the nodes to spare may stray from `keep_ready`. `None`: not at all below it, and none that is idle for long above it.
    #[serde(skip)]
    pub watermarks: Option<Watermarks>,
}

impl Default for Pool {
    fn default() -> Self {
        Pool {
            name: String::new(),
            offerings: Vec::new(),
            ceiling: Ceiling::default(),
            keep_ready: 0,
            drain: Drain::Auto,
            floors: Vec::new(),
            sharing: None,
            layouts: Vec::new(),
            network: Network::default(),
            owned: None,
            watermarks: None,
        }
    }
}

/// How far the nodes to spare of a pool may stray from what is kept ready, so that they are bought and given back seldom and many at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Watermarks {
    /// Fewer than this: bought up to `high`.
    pub low: u32,
    /// More than this: those that have been idle for long enough are given back, down to what is kept ready.
    pub high: u32,
}

/// Nodes that are kept in certain hours.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Floor {
    /// So many.
    pub nodes: u32,
    /// On these days: bit 0 is Monday.
    pub days: u8,
    /// From this minute of the day.
    pub from: u16,
    /// Up to this minute of the day; at or before `from`: of the next day.
    pub to: u16,
    /// Local time less UTC in seconds, each from its instant on, in order. Empty: UTC.
    pub offsets: Vec<(Timestamp, i32)>,
}

/// One way to partition a GPU (MIG). It is chosen when a node is bought and stays while the node is there.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Layout {
    /// Its slices, at most 8. Empty: the GPU is in one piece.
    pub slices: Vec<Slice>,
}

/// One slice of a partitioned GPU: isolated, one worker at most.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Slice {
    /// The profile, such as `1g.10gb`.
    pub profile: String,
    /// Compute in thousandths of the GPU, rounded down: a partition never adds up to more than the GPU.
    pub share: u16,
    /// Its memory.
    pub mem: Mib,
}

/// How a pool's nodes are connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Network {
    /// An Elastic Fabric Adapter on each node.
    pub efa: bool,
    /// The nodes of one gang are bought into one placement group.
    pub cluster: bool,
}

/// When an idle node is given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Drain {
    /// After as long as it would take to buy it back: the break-even of renting against buying again.
    Auto,
    /// After this time idle.
    After(Span),
}

/// GPU sharing within a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Sharing {
    /// Jobs a GPU at most.
    pub time_slices: u16,
    /// The smallest share in thousandths of a GPU: smaller asks are rounded up to it.
    pub smallest: u16,
}

/// What happens to work that is done but not gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum OnLinger {
    /// Reported only.
    Warn,
    /// Checkpointed and stopped.
    Stop,
}

/// When running work is moved to cheaper capacity.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Consolidation {
    /// A move must be expected to save so many times what it costs, in thousandths. 0: nothing is ever moved.
    pub worth_it: u32,
    /// Nodes emptied in an hour at most, in thousandths of those that are ready; at least one.
    pub moves_per_hour: u32,
    /// How often it is looked at.
    pub every: Span,
}

impl Default for Consolidation {
    fn default() -> Self {
        Consolidation { worth_it: 1000, moves_per_hour: 100, every: Span::mins(10) }
    }
}

/// Limits and defaults of runs. All are spans of counted time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Lifecycle {
    /// A GPU idle for this long under a run is lingering.
    pub linger_after: Span,
    /// What is done about it.
    pub on_linger: OnLinger,
    /// A run that lasts longer fails with `MaxRun`, unless the job has its own bound.
    pub max_run: Span,
    /// A launch without an outcome is asked about again after this time, then with doubling pauses.
    pub launch_retry: Span,
    /// A node that is not ready after this time is given up and terminated.
    pub boot_timeout: Span,
    /// A gang that has not started after this time is stopped and queued again.
    pub start_timeout: Span,
    /// Tainted nodes wait this long before they are checked again and terminated: longer than the bind latency.
    pub drain_settle: Span,
    /// Checkpoint grace for jobs that state none.
    pub grace: Span,
    /// A restarted victim is left alone for so long past its restart, or until it has saved (30 min at most) if that is longer.
    pub protect: Span,
    /// So many faults on a node within its life quarantine it.
    pub quarantine_after: u32,
    /// A run that is still not known to be dead so long after it was to be killed has hung: its node is given up.
    pub hang_after: Span,
    /// A service whose model is loaded so many times longer than it computes is scaled to zero, in thousandths. `None`: never.
    pub max_residency_over_compute: Option<u32>,
    /// A service gives replicas back when it has needed fewer for so long.
    pub scale_down_after: Span,
}

impl Default for Lifecycle {
    fn default() -> Self {
        Lifecycle {
            linger_after: Span::mins(15),
            on_linger: OnLinger::Warn,
            max_run: Span::mins(60 * 24 * 365),
            launch_retry: Span::secs(30),
            boot_timeout: Span::mins(20),
            start_timeout: Span::mins(10),
            drain_settle: Span::secs(10),
            grace: Span::secs(90),
            protect: Span::ZERO,
            quarantine_after: 3,
            hang_after: Span::mins(5),
            max_residency_over_compute: None,
            scale_down_after: Span::mins(5),
        }
    }
}

impl Policy {
    /// The tier of that name, if there is one.
    #[must_use]
    pub fn tier_named(&self, name: &str) -> Option<TierId> {
        let at = self.tiers.iter().position(|t| t.name == name)?;
        u16::try_from(at).ok().map(TierId)
    }

    /// The rules of all queues, and the one that undeclared queues share.
    pub fn rules(&self) -> impl Iterator<Item = &QueueRule> {
        let shared = match &self.undeclared {
            Undeclared::Under { rule, .. } => Some(rule),
            Undeclared::Reject => None,
        };
        self.queues.values().chain(shared)
    }

    /// Whether a job of a queue may ask for a tier: for the queue's own always, for others where it lists them, for lower ones where it lists
    /// none.
    #[must_use]
    pub fn may_ask(&self, rule: &QueueRule, tier: TierId) -> bool {
        let priority = |tier: TierId| self.tiers.get(tier.index()).map(|t| t.priority);
        let listed = match &rule.tiers {
            Some(listed) => listed.contains(&tier),
            None => priority(tier) < priority(rule.tier),
        };
        tier == rule.tier || listed
    }

    /// Lets the jobs of a record ask for the tiers that they had: of queues that list none, for any. Whoever recorded them let them in.
    pub fn admit_recorded_tiers(&mut self) {
        let all: Vec<TierId> = (0..self.tiers.len()).filter_map(|at| u16::try_from(at).ok()).map(TierId).collect();
        let shared = match &mut self.undeclared {
            Undeclared::Under { rule, .. } => Some(rule),
            Undeclared::Reject => None,
        };
        for rule in self.queues.values_mut().chain(shared) {
            rule.tiers.get_or_insert_with(|| all.clone());
        }
    }

    /// Whether a principal may act on jobs of a queue: submit, cancel and read them, and tell their demand. The queue's own rule says
    /// it, or the one that undeclared queues share; an empty list of `submitters` is anybody. Nobody may where there is no rule.
    #[must_use]
    pub fn may_act(&self, principal: &str, queue: &str) -> bool {
        let shared = match &self.undeclared {
            Undeclared::Under { rule, .. } => Some(rule),
            Undeclared::Reject => None,
        };
        let rule = self.queues.get(queue).or(shared);
        rule.is_some_and(|rule| rule.submitters.is_empty() || rule.submitters.iter().any(|s| s == principal))
    }
}

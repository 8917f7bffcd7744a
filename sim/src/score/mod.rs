//! The scorecard of a simulation: one object whose keys keep their names and meanings, computed from the world's billing, the
//! status stream and an observer of our own, and from the engine's ledger only where nothing else knows (kinds of waste).
//!
//! ```text
//! world's billing   -> bought, cost, reclaims, lost work      checked against the ledger, to the millisecond and micro-dollar
//! status stream   -> completed, waits, ends                 checked for gaps
//! observer        -> violations
//! engine's ledger -> allocated, idle, boot, fragmentation
//! ```
//!
//! Never: a figure as a remainder of others.

pub mod figures;
pub mod money;
pub(crate) mod observer;
pub(crate) mod timeline;

use std::collections::BTreeMap;

use forebay_kernel::catalog::CapacityType;
use forebay_kernel::effect::StatusKind;
use forebay_kernel::policy::Policy;
use forebay_kernel::state::State;
use forebay_kernel::state::ledger::Ledger;
use forebay_kernel::units::{GpuTime, MilliGpu, Span, Spend, Timestamp};
use serde::Serialize;

use crate::trace::TraceJob;
use crate::world::Billing;
use figures::{Distribution, dollars, gpu_hours, hours, per_day, share_of};
use money::{Exact, decimal, rounded_rows};
use observer::Observer;
use timeline::Timeline;

/// GPU-hours that did no work, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Wasted {
    /// On nodes that were not ready yet.
    pub boot: f64,
    /// On ready nodes with nothing on them.
    pub idle: f64,
    /// Held by runs whose GPUs were reported idle.
    pub lingering: f64,
    /// Of runs since their last verified checkpoint, when they ended before their job was done.
    pub lost: f64,
    /// Free GPUs on nodes with something on them.
    pub fragmentation: f64,
    /// Kept for a gang whose other nodes were not ready yet.
    pub booked: f64,
}

/// What became of the jobs of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct QueueScore {
    /// Jobs submitted.
    pub jobs: u64,
    /// Jobs that were done.
    pub completed: u64,
    /// Jobs with a deadline that were not done by then.
    pub deadline_misses: u64,
}

/// Jobs that were rejected for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RejectedJobs {
    /// How many.
    pub jobs: u64,
    /// The first of them.
    pub first: String,
    /// Why, and what would help, in the words that the first of them was given.
    pub message: String,
}

/// What `simulate --json` writes. Times are seconds, money is US dollars.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Scorecard {
    /// The trace's name.
    pub trace: String,
    /// The policy's name.
    pub policy: String,
    /// What the spot market was made of.
    pub market: String,
    /// The world's seed.
    pub seed: u64,
    /// What was assumed where the trace has no value, a sentence each.
    pub assumptions: Vec<String>,
    /// Jobs submitted.
    pub jobs: u64,
    /// Jobs that were done.
    pub completed: u64,
    /// Jobs that were given up.
    pub failed: u64,
    /// Jobs that could never be run, and submissions that were refused.
    pub rejected: u64,
    /// Jobs that their submitters took back: in a simulation those that had not started by their `max_wait_s`.
    pub cancelled: u64,
    /// Jobs accepted, but neither ended nor open.
    pub lost: u64,
    /// Jobs that still waited when nothing moved any more: the policy never gives them what they ask for.
    pub open: u64,
    /// Runs stopped for a job of a higher tier.
    pub preemptions: u64,
    /// Nodes that the cloud took back, or announced to take and were given back first.
    pub reclaims: u64,
    /// Of these, without a warning.
    pub reclaims_without_warning: u64,
    /// Runs that ended because the cloud took a node back.
    pub spot_reclaimed_runs: u64,
    /// GPU-hours of work since the last verified checkpoint, of runs that ended before their job was done.
    pub work_lost_gpu_hours: f64,
    /// Of this, by runs that were on a node when the cloud took it.
    pub work_lost_to_reclaims_gpu_hours: f64,
    /// GPU-hours of all jobs: GPUs x true duration.
    pub gpu_hours_requested: f64,
    /// GPU-hours of all nodes, from launch to gone.
    pub gpu_hours_bought: f64,
    /// Of these, those of owned nodes, which were there without having been bought.
    pub gpu_hours_owned: f64,
    /// GPU-hours held by jobs.
    pub gpu_hours_allocated: f64,
    /// GPU-hours of true activity, where the trace states it.
    pub gpu_hours_busy: Option<f64>,
    /// GPU-hours that did no work, by kind.
    pub gpu_hours_wasted: Wasted,
    /// Busy of allocated GPU-hours.
    pub busy_over_allocated: Option<f64>,
    /// Busy of bought GPU-hours: what people mean by GPU utilization.
    pub utilization: Option<f64>,
    /// Node-hours of ready nodes with nothing on them.
    pub idle_node_hours: f64,
    /// Spot of all bought GPU-hours. `None`: none were bought.
    pub spot_ratio: Option<f64>,
    /// What the cloud bills.
    pub cost_usd: f64,
    /// The same by what nodes did: `worked`, `lost`, `lingering`, `booked`, `boot`, `idle`, `fragmentation`. Null in a live run, where `forebay cost --by kind` says it.
    pub cost_usd_by_kind: Option<BTreeMap<&'static str, f64>>,
    /// The same node-hours at the on-demand price. It is not what the policy `on-demand-only` would have cost, which buys other nodes for other
    /// times: no saving follows from it.
    pub cost_on_demand_only_usd: f64,
    /// The GPU-hours of each job that was done, at the lowest price per GPU that any offering which answers to its models ever had, or an owned
    /// node has: no idle time, no boot, no reclaim, every GPU of every node in use. No schedule of these jobs can cost less.
    pub cost_lower_bound_usd: f64,
    /// Submission to first start, of jobs that started.
    pub wait_s: Distribution,
    /// Submission to completion, of jobs that were done.
    pub jct_s: Distribution,
    /// Waits by queue.
    pub wait_s_by_queue: BTreeMap<String, Distribution>,
    /// What became of jobs, by queue.
    pub jobs_by_queue: BTreeMap<String, QueueScore>,
    /// Jobs that were rejected or refused, by the code of the reason.
    pub rejected_by_code: BTreeMap<String, RejectedJobs>,
    /// First submission to last completion.
    pub makespan_s: f64,
    /// Jobs with a deadline that were not done by then.
    pub deadline_misses: u64,
    /// Times that the last node went.
    pub times_at_zero: u64,
    /// The most nodes at once.
    pub nodes_peak: u64,
    /// Nodes at the end: claims of the engine or instances of the cloud, whichever are more.
    pub nodes_at_end: u64,
    /// Of these, those that pools keep ready (`keepReady`) and that are idle: they stay when nobody works.
    pub nodes_kept_ready: u64,
    /// Purchases after which a ceiling was exceeded.
    pub ceiling_violations: u64,
    /// Bookings after which a quota was exceeded.
    pub quota_violations: u64,
    /// Starts of a gang that was not whole.
    pub gang_violations: u64,
    /// Starts after which the jobs on a GPU needed more memory than it has.
    pub gpu_memory_violations: u64,
    /// Seconds inside the engine.
    pub engine_s: f64,
    /// Events that entered.
    pub events: u64,
    /// Decisions that were made.
    pub decisions: u64,
    /// Batches.
    pub passes: u64,
    /// Nodes launched.
    pub nodes_launched: u64,
    /// Instants at which nodes were launched, a day of `makespan_s`. Null in a live run, and where nothing was done.
    pub wakeups_per_day: Option<f64>,
    /// Nodes that were not there yet for the jobs that held them, counted every ten minutes. Null in a live run.
    pub node_ticks_short: Option<u64>,
}

/// Parts of a bill in whole micro-dollars that add up to it.
fn by_kind(kinds: &BTreeMap<&'static str, Exact>) -> BTreeMap<&'static str, f64> {
    let parts: Vec<Exact> = kinds.values().cloned().collect();
    kinds.keys().copied().zip(rounded_rows(&parts).0.into_iter().map(decimal)).collect()
}

/// What a scorecard is made from.
pub(crate) struct Sources<'a> {
    pub trace: &'a [TraceJob],
    pub state: &'a State,
    pub billing: Billing,
    pub timeline: &'a Timeline,
    pub observer: &'a Observer,
    pub instances_at_end: u64,
}

impl Sources<'_> {
    /// The scorecard, but for what only the driver knows.
    pub fn scorecard(&self) -> Scorecard {
        let (state, billing) = (self.state, &self.billing);
        let ledger = state.ledger_now();
        let (all, bill) = (ledger.total(), billing.all());
        let terminal = self.timeline.terminal();
        let accepted = self.timeline.histories().len() as u64 - self.timeline.refused();
        let counters = state.counters();
        let busy = self.trace.iter().any(|j| j.gpu_util_permille.is_some());
        Scorecard {
            policy: state.policy().map(|p| p.name.clone()).unwrap_or_default(),
            jobs: self.timeline.histories().len() as u64,
            completed: self.timeline.ended(StatusKind::Completed),
            failed: self.timeline.ended(StatusKind::Failed),
            rejected: self.timeline.ended(StatusKind::Rejected) + self.timeline.refused(),
            cancelled: self.timeline.ended(StatusKind::Cancelled),
            lost: accepted.abs_diff(terminal + state.open_jobs() as u64),
            open: state.open_jobs() as u64,
            preemptions: counters.preemptions,
            reclaims: billing.reclaims,
            reclaims_without_warning: billing.unwarned,
            spot_reclaimed_runs: counters.reclaimed_runs,
            work_lost_gpu_hours: gpu_hours(billing.lost),
            work_lost_to_reclaims_gpu_hours: gpu_hours(billing.lost_to_reclaims),
            gpu_hours_requested: gpu_hours(requested(self.trace)),
            gpu_hours_bought: gpu_hours(bill.gpu_time),
            gpu_hours_owned: gpu_hours(billing.of(CapacityType::Owned).gpu_time),
            gpu_hours_allocated: gpu_hours(all.allocated),
            gpu_hours_busy: busy.then(|| gpu_hours(billing.busy)),
            gpu_hours_wasted: Wasted {
                boot: gpu_hours(all.boot),
                idle: gpu_hours(all.idle),
                lingering: gpu_hours(ledger.lingering),
                lost: gpu_hours(ledger.lost),
                fragmentation: gpu_hours(all.fragmentation),
                booked: gpu_hours(all.booked),
            },
            busy_over_allocated: share_of(billing.busy.0, all.allocated.0).filter(|_| busy),
            utilization: share_of(billing.busy.0, bill.gpu_time.0).filter(|_| busy),
            idle_node_hours: hours(all.idle_nodes),
            spot_ratio: share_of(billing.of(CapacityType::Spot).gpu_time.0, billing.bought().0),
            cost_usd: dollars(bill.cost),
            cost_usd_by_kind: Some(by_kind(&self.observer.cost_by_kind(state))),
            cost_on_demand_only_usd: dollars(bill.cost_on_demand),
            cost_lower_bound_usd: dollars(lower_bound(self.completed(), state, billing)),
            nodes_at_end: self.instances_at_end.max(state.bought_nodes().count() as u64),
            nodes_kept_ready: kept_ready(state),
            times_at_zero: billing.times_at_zero,
            nodes_peak: billing.instances_peak,
            nodes_launched: billing.launched,
            ceiling_violations: self.observer.ceilings,
            quota_violations: self.observer.quotas,
            gang_violations: self.observer.gangs,
            gpu_memory_violations: billing.out_of_memory,
            node_ticks_short: Some(self.observer.node_ticks_short),
            ..self.times()
        }
    }

    /// The jobs that were done.
    fn completed(&self) -> impl Iterator<Item = &TraceJob> {
        let jobs = self.timeline.histories().iter().zip(self.trace);
        jobs.filter(|(history, _)| history.ended.is_some_and(|(_, kind)| kind == StatusKind::Completed))
            .map(|(_, job)| job)
    }

    /// Waits, completion times, misses.
    fn times(&self) -> Scorecard {
        let histories = self.timeline.histories();
        let mut by_queue: BTreeMap<String, Vec<Span>> = BTreeMap::new();
        let (mut waits, mut ends) = (Vec::new(), Vec::new());
        let (mut last, mut misses) = (Timestamp(0), 0);
        let mut queues: BTreeMap<String, QueueScore> = BTreeMap::new();
        for (history, row) in histories.iter().zip(self.trace) {
            let score = queues.entry(row.queue.as_deref().unwrap_or("default").to_owned()).or_default();
            score.jobs += 1;
            if let Some(started) = history.started {
                let wait = started.since(history.submitted);
                waits.push(wait);
                let queue = row.queue.as_deref().unwrap_or("default").to_owned();
                by_queue.entry(queue).or_default().push(wait);
            }
            let done = history.ended.filter(|(_, kind)| *kind == StatusKind::Completed);
            if let Some((at, _)) = done {
                ends.push(at.since(history.submitted));
                last = last.max(at);
                score.completed += 1;
            }
            let missed = |by: Timestamp| done.is_none_or(|(at, _)| at > by);
            let missed = u64::from(history.deadline.is_some_and(missed));
            score.deadline_misses += missed;
            misses += missed;
        }
        let first = histories.iter().map(|h| h.submitted).min().unwrap_or_default();
        Scorecard {
            wait_s: Distribution::of(waits),
            jct_s: Distribution::of(ends),
            wait_s_by_queue: by_queue.into_iter().map(|(q, w)| (q, Distribution::of(w))).collect(),
            jobs_by_queue: queues,
            rejected_by_code: self.timeline.rejected().clone(),
            makespan_s: figures::seconds(last.since(first)),
            wakeups_per_day: per_day(self.observer.wake_ups, last.since(first)),
            deadline_misses: misses,
            ..Scorecard::default()
        }
    }
}

impl Scorecard {
    /// Whether the run broke no rule, lost no job and left no node behind but those that pools keep ready.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let broken =
            self.ceiling_violations + self.quota_violations + self.gang_violations + self.gpu_memory_violations;
        broken + self.lost + self.open + self.nodes_left() == 0
    }

    /// Nodes at the end that no pool keeps ready: nobody gave them back.
    #[must_use]
    pub fn nodes_left(&self) -> u64 {
        self.nodes_at_end.saturating_sub(self.nodes_kept_ready)
    }
}

/// Idle nodes that were bought and that pools keep ready, as many as their floors have room for.
#[must_use]
pub fn kept_ready(state: &State) -> u64 {
    let pools = state.policy().into_iter().flat_map(|policy| &policy.pools);
    let kept: u64 = pools.map(|pool| u64::from(pool.emptied_above(state.now()))).sum();
    kept.min(state.index().idle.len() as u64)
}

/// What the engine's ledger and the world's billing do not agree on. Empty is what it should be.
pub(crate) fn disagreements(ledger: &Ledger, billing: &Billing) -> Vec<String> {
    let mut list = Vec::new();
    for capacity in CapacityType::ALL {
        let (account, bill) = (ledger.account(capacity), billing.of(capacity));
        if account.sum_of_kinds() != account.bought {
            let (sum, bought) = (account.sum_of_kinds().0, account.bought.0);
            list.push(format!("{capacity}: kinds add up to {sum}, bought {bought} milli-GPU ms"));
        }
        if account.node_time != bill.node_time {
            let (ours, theirs) = (account.node_time.0, bill.node_time.0);
            list.push(format!("{capacity}: {ours} ms of node time, the cloud has {theirs}"));
        }
        if account.bought != bill.gpu_time {
            let (ours, theirs) = (account.bought.0, bill.gpu_time.0);
            list.push(format!("{capacity}: {ours} milli-GPU ms, the cloud has {theirs}"));
        }
        let money = [(account.cost, bill.cost), (account.cost_on_demand, bill.cost_on_demand)];
        for (ours, theirs) in money.into_iter().filter(|(ours, theirs)| ours != theirs) {
            let (ours, theirs) = (ours.micro_dollars(), theirs.micro_dollars());
            list.push(format!("{capacity}: {ours} micro-dollars, the cloud bills {theirs}"));
        }
    }
    list
}

fn share(job: &TraceJob) -> MilliGpu {
    MilliGpu(u64::from(job.gpus) * u64::from(job.gpu_milli.min(1000)))
}

fn requested(trace: &[TraceJob]) -> GpuTime {
    let mut total = GpuTime(0);
    for job in trace {
        total += share(job).over(Span(job.duration_ms));
    }
    total
}

/// A node's price in micro-dollars an hour, and its GPUs.
type Price = (u64, u16);

/// See [`Scorecard::cost_lower_bound_usd`]. Per job rounded down to the micro-dollar-per-hour millisecond.
fn lower_bound<'a>(jobs: impl Iterator<Item = &'a TraceJob>, state: &State, billing: &Billing) -> Spend {
    let Some(policy) = state.policy() else { return Spend(0) };
    let mut known: BTreeMap<(&[String], u32), Option<Price>> = BTreeMap::new();
    let mut total = Spend(0);
    for job in jobs.filter(|j| j.gpus > 0) {
        let key = (job.gpu_models.as_slice(), job.gpu_mem_mib);
        let best = *known.entry(key).or_insert_with(|| cheapest(policy, state, billing, job));
        let Some((price, gpus)) = best else { continue };
        let time = share(job).over(Span(job.duration_ms));
        total += Spend(time.0 * u128::from(price) / (1000 * u128::from(gpus)));
    }
    total
}

/// Price and GPUs of the offering with the lowest price per GPU that answers to the job's models and has the memory.
fn cheapest(policy: &Policy, state: &State, billing: &Billing, job: &TraceJob) -> Option<Price> {
    let mut best: Option<Price> = None;
    for (at, row) in (0u32..).zip(state.offerings()) {
        let offer = &row.offer;
        let owned = offer.capacity == CapacityType::Owned;
        let listed = owned || policy.offerings.iter().any(|o| o.key() == offer.key());
        let answers = job.gpu_models.is_empty() || offer.models.iter().any(|m| job.gpu_models.contains(m));
        let holds = u64::from(job.gpu_mem_mib) <= offer.gpu_mem.0;
        if !(listed && answers && holds && offer.gpus > 0) {
            continue;
        }
        // What an owned node costs, the policy says.
        let had = if owned { Some(offer.price) } else { billing.cheapest(forebay_kernel::ids::OfferingId(at)) };
        let Some(price) = had else { continue };
        let less = |(p, g): Price| u128::from(price.0) * u128::from(g) < u128::from(p) * u128::from(offer.gpus);
        if best.is_none_or(less) {
            best = Some((price.0, offer.gpus));
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::{SimOptions, simulate};
    use crate::market::Market;
    use crate::policies::spot_first;
    use crate::trace::{Trace, TraceFormat, TraceNode};
    use crate::world::spot_pairs;
    use forebay_kernel::ids::PoolId;
    use forebay_kernel::policy::{Pool, Undeclared};
    use forebay_kernel::state::owned::OwnedPool;
    use forebay_kernel::units::Rate;

    /// A job of one GPU.
    fn job(id: &str, hours: u64, max_wait_ms: Option<u64>) -> TraceJob {
        let duration_ms = hours * 3_600_000;
        TraceJob { id: id.into(), gpus: 1, gpu_milli: 1000, duration_ms, max_wait_ms, ..TraceJob::default() }
    }

    fn scored(policy: Policy, jobs: Vec<TraceJob>, fleet: Option<&[TraceNode]>) -> Scorecard {
        let trace = Trace { name: "made".into(), format: TraceFormat::Normalized, jobs, notes: Vec::new() };
        let mut options = SimOptions::new(3, Market::seeded(3, &spot_pairs(&policy), 20 * 24 * 3_600_000));
        options.nodes = fleet;
        simulate(policy, &trace, options).expect("it ends").scorecard
    }

    #[test]
    fn the_lower_bound_has_no_job_that_was_not_done() {
        // It is taken back while its node boots.
        let card = scored(spot_first(), vec![job("done", 1, None), job("gone", 5_000, Some(1_000))], None);
        assert_eq!((card.completed, card.cancelled), (1, 1));
        assert!(card.cost_lower_bound_usd > 0.0 && card.cost_lower_bound_usd <= card.cost_usd, "{card:?}");
    }

    #[test]
    fn the_lower_bound_has_owned_nodes_at_their_own_price() {
        let mut policy = spot_first();
        let owned = OwnedPool { labels: [("rack".to_owned(), vec!["ours".to_owned()])].into(), price: Rate(1_000) };
        policy.pools.push(Pool { name: "ours".to_owned(), owned: Some(owned), ..Pool::default() });
        let Undeclared::Under { rule, .. } = &mut policy.undeclared else { panic!("anybody may submit") };
        rule.pools.insert(0, PoolId(1));
        let node = TraceNode { id: "n".into(), cpu_milli: 96_000, mem_mib: 393_216, gpus: 8, ..TraceNode::default() };
        let card = scored(policy, vec![job("done", 100, None)], Some(&[node]));
        assert_eq!(card.completed, 1);
        assert!(card.cost_lower_bound_usd > 0.0 && card.cost_lower_bound_usd <= card.cost_usd, "{card:?}");
    }

    #[test]
    fn nodes_beyond_the_floors_are_left_behind_and_those_within_them_are_not() {
        let ended =
            |nodes_at_end, nodes_kept_ready| Scorecard { nodes_at_end, nodes_kept_ready, ..Scorecard::default() };
        for (nodes, kept, left) in [(0, 0, 0), (1, 1, 0), (1, 0, 1), (3, 2, 1)] {
            let card = ended(nodes, kept);
            assert_eq!((card.nodes_left(), card.is_sound()), (left, left == 0), "{nodes} nodes, {kept} kept ready");
        }
    }
}

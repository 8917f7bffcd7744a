//! From rows of a trace to jobs and their truths, and from a node list to a policy's offerings. What a trace does not state is
//! assumed once, here, and every assumption that was used is listed in the result.
//!
//! Never: gives the engine the true duration of a job.

use std::collections::{BTreeMap, BTreeSet};

use forebay_kernel::catalog::{CapacityType, Offering};
use forebay_kernel::ids::TierId;
use forebay_kernel::job::{Checkpointing, Completion, Gang, JobSpec, Retry, WorkerAsk};
use forebay_kernel::policy::{Policy, QueueRule, Undeclared};
use forebay_kernel::state::owned::{ForeignUse, OwnedNode, OwnedShape};
use forebay_kernel::units::{Mib, MilliCpu, Rate, Span, Timestamp};

use crate::trace::{TraceJob, TraceNode};
use crate::world::{JobTruth, Stock};

/// What a trace's jobs are taken to be where the trace has no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assumptions {
    /// Time between checkpoints. `None`: jobs cannot save.
    pub checkpoint_every: Option<Span>,
    /// Time to save on request.
    pub grace: Span,
    /// What each start costs before work goes on.
    pub restart: Span,
}

impl Default for Assumptions {
    fn default() -> Self {
        Assumptions { checkpoint_every: Some(Span::mins(30)), grace: Span::secs(60), restart: Span::secs(60) }
    }
}

/// The tenant of all jobs of a trace.
pub const TENANT: &str = "trace";

/// By queue that lists no tiers, those that its jobs may not ask for. `None`: of undeclared queues.
fn raised(policy: &Policy) -> BTreeMap<Option<String>, BTreeSet<String>> {
    let shared = match &policy.undeclared {
        Undeclared::Under { rule, .. } => Some((None, rule)),
        Undeclared::Reject => None,
    };
    let rules = policy.queues.iter().map(|(path, rule)| (Some(path.clone()), rule)).chain(shared);
    let above = |rule: &QueueRule| {
        let tiers = (0..).map(TierId).zip(&policy.tiers);
        let no = tiers.filter(|(id, _)| rule.tiers.is_none() && !policy.may_ask(rule, *id));
        no.map(|(_, tier)| tier.name.clone()).collect()
    };
    rules.map(|(path, rule)| (path, above(rule))).collect()
}

/// Turns rows into jobs.
#[derive(Clone, Debug)]
pub struct Converter {
    assumptions: Assumptions,
    tiers: BTreeSet<String>,
    /// By queue that lists no tiers, those that its jobs may not ask for. `None`: of undeclared queues.
    raised: BTreeMap<Option<String>, BTreeSet<String>>,
    submitters: BTreeMap<String, String>,
    undeclared_submitter: Option<String>,
    used: BTreeMap<&'static str, u64>,
}

impl Converter {
    /// A converter for jobs that enter under `policy`.
    #[must_use]
    pub fn new(policy: &Policy, assumptions: Assumptions) -> Converter {
        let first = |list: &[String]| list.first().cloned();
        let listed = policy.queues.iter().filter_map(|(path, rule)| Some((path.clone(), first(&rule.submitters)?)));
        let undeclared = match &policy.undeclared {
            Undeclared::Under { rule, .. } => first(&rule.submitters),
            Undeclared::Reject => None,
        };
        Converter {
            assumptions,
            tiers: policy.tiers.iter().map(|t| t.name.clone()).collect(),
            raised: raised(policy),
            submitters: listed.collect(),
            undeclared_submitter: undeclared,
            used: BTreeMap::new(),
        }
    }

    /// The job and the truth of a row.
    pub fn job(&mut self, row: &TraceJob) -> (JobSpec, JobTruth) {
        let queue = row.queue.clone().unwrap_or_else(|| {
            self.note("jobs name no queue: they are in `default`");
            "default".to_owned()
        });
        let stays = row.preemptible == Some(false);
        if stays && row.spot.is_none() && row.saves.is_none() {
            self.note("jobs may not be stopped for others: they never run on spot and do not save");
        }
        let checkpoint = self.checkpoint(row);
        let shares = row.gpus == 1 && row.gpu_milli < 1000;
        let restart = row.restart_ms.map_or(self.assumptions.restart, Span);
        self.note_tier(&queue, row);
        if row.max_wait_ms.is_some() {
            self.note("jobs state max_wait_s: one that has not started by then is taken back by its submitter");
        }
        let spec = JobSpec {
            tenant: TENANT.to_owned(),
            subject: row.id.clone(),
            principal: self.principal(&queue, row),
            tier: row.tier.clone().filter(|t| self.tiers.contains(t)),
            queue,
            priority: self.priority(row),
            gang: self.gang(row),
            models: row.gpu_models.clone(),
            spot: row.spot.unwrap_or(!stays),
            shares,
            checkpoint,
            restart,
            retry: Retry::default(),
            completion: Completion::All,
            expected: row.estimate_ms.map(Span),
            max_run: None,
            deadline: row.deadline_ms.map(Timestamp),
            digest: digest(row),
            ..JobSpec::default()
        };
        let (gpu_util_permille, failures) = (row.gpu_util_permille, row.failures);
        let truth = JobTruth { gpu_util_permille, failures, ..JobTruth::lasting(Span(row.duration_ms)) };
        (spec, truth)
    }

    /// What had to be assumed, with the number of jobs for which.
    #[must_use]
    pub fn assumptions(&self) -> Vec<String> {
        let mut list: Vec<String> = self.used.iter().map(|(what, count)| format!("{count} {what}")).collect();
        let Assumptions { checkpoint_every, grace, restart } = self.assumptions;
        if let Some(every) = checkpoint_every {
            list.push(format!("assumed checkpoints: every {every}, {grace} to save on request, {restart} to restart"));
        }
        list
    }

    fn note_tier(&mut self, queue: &str, row: &TraceJob) {
        let Some(tier) = &row.tier else { return };
        if !self.tiers.contains(tier) {
            return self.note("jobs name a tier that the policy does not have: they get their queue's");
        }
        let own = Some(queue.to_owned());
        let raised = self.raised.get(&own).or_else(|| self.raised.get(&None));
        if raised.is_some_and(|raised| raised.contains(tier)) {
            self.note(
                "jobs name a tier above that of their queue, which lists no `tiers`: they are let in, as whoever recorded them did; live they would be rejected",
            );
        }
    }

    fn note(&mut self, what: &'static str) {
        *self.used.entry(what).or_default() += 1;
    }

    fn checkpoint(&mut self, row: &TraceJob) -> Option<Checkpointing> {
        if !row.saves.unwrap_or(row.preemptible != Some(false)) {
            return None;
        }
        if row.checkpoint_every_ms.is_none() {
            self.note("jobs state no checkpoint_every_s: they save as assumed");
        }
        let every = row.checkpoint_every_ms.map(Span).or(self.assumptions.checkpoint_every)?;
        Some(Checkpointing { every, grace: row.grace_ms.map_or(self.assumptions.grace, Span) })
    }

    fn principal(&mut self, queue: &str, row: &TraceJob) -> String {
        let listed = self.submitters.get(queue).or(self.undeclared_submitter.as_ref()).cloned();
        match listed {
            Some(submitter) => {
                self.note("jobs enter as their queue's first submitter");
                submitter
            }
            None => row.user.clone().unwrap_or_else(|| "trace".to_owned()),
        }
    }

    fn priority(&mut self, row: &TraceJob) -> i32 {
        let Some(text) = row.priority.as_deref() else { return 0 };
        if let Ok(number) = text.trim().parse::<i32>() {
            return number;
        }
        match text.trim().to_lowercase().as_str() {
            "slo" | "ls" | "guaranteed" | "high" | "critical" => 10,
            "best_effort" | "be" | "burstable" | "low" => -10,
            "normal" | "medium" | "" => 0,
            _ => {
                self.note("jobs have a priority in a word that is not known: 0");
                0
            }
        }
    }

    fn gang(&mut self, row: &TraceJob) -> Gang {
        let share = |total: u64, of: u32| total.div_ceil(u64::from(of.max(1)));
        let each = |gpus: u32, of: u32| WorkerAsk {
            gpus: u16::try_from(gpus).unwrap_or(u16::MAX),
            share: u16::try_from(row.gpu_milli.min(1000)).unwrap_or(1000),
            gpu_mem: Mib(u64::from(row.gpu_mem_mib)),
            cpu: MilliCpu(share(row.cpu_milli, of)),
            mem: Mib(share(row.mem_mib, of)),
        };
        match row.workers {
            Some(workers) if workers > 0 => {
                if !row.gpus.is_multiple_of(workers) {
                    self.note("jobs have GPUs that do not divide by their workers: rounded up");
                }
                let most = row.workers_max.unwrap_or(workers).max(workers);
                Gang::Workers { min: workers, max: most, each: each(row.gpus.div_ceil(workers), workers) }
            }
            _ if row.gpus == 0 || row.gpu_milli < 1000 => Gang::Workers { min: 1, max: 1, each: each(row.gpus, 1) },
            _ => Gang::Spanning { gpus: row.gpus, per_gpu: each(1, row.gpus) },
        }
    }
}

/// A digest of everything that a row asks for.
fn digest(row: &TraceJob) -> u128 {
    let asked = TraceJob { duration_ms: 0, submit_ms: 0, line: 0, ..row.clone() };
    let hash = blake3::hash(format!("{asked:?}").as_bytes());
    let mut bytes = [0u8; 16];
    bytes.copy_from_slice(&hash.as_bytes()[..16]);
    u128::from_le_bytes(bytes)
}

/// Replaces what a policy can buy by a fleet that is there already: reserved, free of charge, each kind up to its count.
///
/// Every pool may use every node. Ceilings on nodes and GPUs are lifted: the fleet is the ceiling.
#[must_use]
pub fn fixed_fleet(mut policy: Policy, nodes: &[TraceNode]) -> (Policy, Vec<Stock>) {
    let mut kinds: BTreeMap<NodeKind, u32> = BTreeMap::new();
    for node in nodes {
        *kinds.entry(kind(node)).or_default() += 1;
    }
    let mut stock = Vec::new();
    let mut offerings = Vec::new();
    for (kind, count) in kinds {
        let instance_type = kind_name(&kind);
        let (model, gpus, cpu, mem) = kind;
        offerings.push(Offering {
            instance_type: instance_type.clone(),
            zone: "fleet".to_owned(),
            capacity: CapacityType::Reserved,
            gpus: u16::try_from(gpus.min(64)).unwrap_or(64),
            gpu_mem: gpu_mem(&model, gpus),
            models: models(&model),
            cpu: MilliCpu(cpu),
            mem: Mib(mem),
            price: Rate(0),
            max_price: Rate(0),
            on_demand: Rate(0),
            boot: Span::secs(1),
            nvlink: 0,
            numa: 0,
        });
        stock.push(Stock { instance_type, zone: "fleet".to_owned(), capacity: CapacityType::Reserved, count });
    }
    let all: Vec<u32> = (0..offerings.len()).map(|i| u32::try_from(i).unwrap_or(u32::MAX)).collect();
    policy.offerings = offerings;
    for ceiling in policy.pools.iter_mut().map(|p| &mut p.ceiling).chain([&mut policy.limits]) {
        ceiling.nodes = None;
        ceiling.gpus = None;
    }
    for pool in &mut policy.pools {
        pool.offerings.clone_from(&all);
    }
    (policy, stock)
}

/// A node that no owned pool of a policy takes.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OwnedFault {
    /// It names none, and there are several.
    #[error("line {line}: the policy has several pools of owned nodes; say which in a column `pool`: {}", pools.join(", "))]
    NoPool {
        /// Where.
        line: u64,
        /// Those that there are.
        pools: Vec<String>,
    },
    /// It names one that there is not.
    #[error("line {line}: `{pool}` is no pool of owned nodes in the policy; there are: {}", pools.join(", "))]
    UnknownPool {
        /// Where.
        line: u64,
        /// What it names.
        pool: String,
        /// Those that there are.
        pools: Vec<String>,
    },
    /// It has more GPUs than a node may have.
    #[error("line {line}: {gpus} GPUs on one node; at most 64 are known: write it as several nodes")]
    TooManyGpus {
        /// Where.
        line: u64,
        /// How many.
        gpus: u32,
    },
}

/// The nodes of a list as owned nodes of a policy's pools, for whoever sees them.
///
/// # Errors
/// A node has no pool: see [`OwnedFault`].
pub fn owned_fleet(policy: &Policy, nodes: &[TraceNode]) -> Result<Vec<OwnedNode>, OwnedFault> {
    let pools: Vec<String> =
        policy.pools.iter().filter(|pool| pool.owned.is_some()).map(|pool| pool.name.clone()).collect();
    let of = |node: &TraceNode| {
        let line = node.line;
        let pool = match (&node.pool, &pools[..]) {
            (Some(pool), _) if pools.contains(pool) => pool.clone(),
            (Some(pool), _) => return Err(OwnedFault::UnknownPool { line, pool: pool.clone(), pools: pools.clone() }),
            (None, [pool]) => pool.clone(),
            (None, _) => return Err(OwnedFault::NoPool { line, pools: pools.clone() }),
        };
        let too_many = OwnedFault::TooManyGpus { line, gpus: node.gpus };
        let gpus = u16::try_from(node.gpus).ok().filter(|gpus| *gpus <= 64).ok_or(too_many)?;
        let model = node.gpu_model.clone().unwrap_or_default();
        let shape = OwnedShape {
            instance_type: kind_name(&kind(node)),
            zone: "fleet".to_owned(),
            gpus,
            gpu_mem: gpu_mem(&model, node.gpus),
            models: models(&model),
            cpu: MilliCpu(node.cpu_milli),
            mem: Mib(node.mem_mib),
            nvlink: 0,
        };
        Ok(OwnedNode { name: node.id.clone(), pool, shape, open: true, foreign: ForeignUse::default() })
    };
    nodes.iter().map(of).collect()
}

/// What makes nodes of a list alike: model, GPUs, CPU, memory.
type NodeKind = (String, u32, u64, u64);

fn kind(node: &TraceNode) -> NodeKind {
    (node.gpu_model.clone().unwrap_or_default(), node.gpus, node.cpu_milli, node.mem_mib)
}

fn kind_name((model, gpus, cpu, mem): &NodeKind) -> String {
    let name = if model.is_empty() { "node".to_owned() } else { model.replace(' ', "-") };
    format!("{name}-{gpus}x-{cpu}m-{mem}Mi")
}

fn models(model: &str) -> Vec<String> {
    if model.is_empty() { Vec::new() } else { vec![model.to_owned()] }
}

/// The memory of each GPU of a node by its model, from the built-in catalogue; 16 GiB for one that it does not have. 0 without GPUs.
fn gpu_mem(model: &str, gpus: u32) -> Mib {
    let rows = forebay_catalog::builtin();
    let each = || rows.iter().find(|r| r.answers_to(model)).map_or(16_384, |r| r.gpu_mem_mib);
    Mib(if gpus > 0 { u64::from(each()) } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies;

    fn row() -> TraceJob {
        TraceJob { id: "a".into(), gpus: 1, gpu_milli: 1000, duration_ms: 5000, ..TraceJob::default() }
    }

    fn convert(row: &TraceJob) -> (JobSpec, JobTruth, Vec<String>) {
        let mut converter = Converter::new(&policies::spot_first(), Assumptions::default());
        let (spec, truth) = converter.job(row);
        (spec, truth, converter.assumptions())
    }

    #[test]
    fn a_row_with_the_required_columns_only_becomes_a_job() {
        let (spec, truth, assumed) = convert(&TraceJob { gpus: 12, cpu_milli: 100, ..row() });
        let Gang::Spanning { gpus, per_gpu } = spec.gang else { panic!("it may span nodes") };
        assert_eq!((gpus, per_gpu.gpus, per_gpu.cpu), (12, 1, MilliCpu(9)));
        assert_eq!(spec.checkpoint.map(|c| c.every), Some(Span::mins(30)));
        assert_eq!((spec.queue.as_str(), spec.spot, spec.shares), ("default", true, false));
        assert_eq!((spec.expected, truth.duration), (None, Span::secs(5)));
        assert_eq!(assumed.len(), 3, "{assumed:?}");
    }

    #[test]
    fn shares_workers_and_patience_are_taken_over() {
        let (spec, ..) = convert(&TraceJob { gpu_milli: 250, ..row() });
        assert!(spec.shares);
        assert!(matches!(spec.gang, Gang::Workers { min: 1, max: 1, each } if each.share == 250));
        let (spec, ..) = convert(&TraceJob { gpus: 8, workers: Some(2), mem_mib: 11, ..row() });
        assert!(matches!(spec.gang, Gang::Workers { min: 2, max: 2, each } if each.gpus == 4 && each.mem == Mib(6)));
        let (spec, ..) = convert(&TraceJob { preemptible: Some(false), ..row() });
        assert_eq!((spec.spot, spec.checkpoint), (false, None));
        let (spec, truth, _) =
            convert(&TraceJob { saves: Some(false), workers: Some(1), workers_max: Some(4), failures: 1, ..row() });
        assert_eq!((spec.spot, spec.checkpoint, truth.failures), (true, None, 1));
        assert!(matches!(spec.gang, Gang::Workers { min: 1, max: 4, .. }));
        let (spec, ..) = convert(&TraceJob { spot: Some(false), grace_ms: Some(7000), ..row() });
        assert_eq!((spec.spot, spec.checkpoint.map(|c| c.grace)), (false, Some(Span::secs(7))));
        for (word, priority) in [("slo", 10), ("BE", -10), ("7", 7), ("normal", 0), ("odd", 0)] {
            let (spec, ..) = convert(&TraceJob { priority: Some(word.into()), ..row() });
            assert_eq!(spec.priority, priority, "{word}");
        }
    }

    #[test]
    fn a_digest_knows_what_was_asked_and_not_how_long_it_takes() {
        let asked = digest(&row());
        assert_eq!(asked, digest(&TraceJob { duration_ms: 9, line: 4, ..row() }));
        assert_ne!(asked, digest(&TraceJob { gpus: 2, ..row() }));
    }

    #[test]
    fn a_fleet_is_bought_up_to_its_count_and_costs_nothing() {
        let node = |id: &str, gpus| TraceNode {
            id: id.into(),
            cpu_milli: 8000,
            mem_mib: 100,
            gpus,
            gpu_model: Some("t4".into()),
            ..TraceNode::default()
        };
        let (policy, stock) = fixed_fleet(policies::spot_first(), &[node("a", 2), node("b", 2), node("c", 4)]);
        assert_eq!(stock.iter().map(|s| s.count).collect::<Vec<_>>(), [2, 1]);
        assert!(policy.offerings.iter().all(|o| o.price == Rate(0) && o.gpu_mem == Mib(16_384)));
        assert_eq!(policy.pools[0].offerings, [0, 1]);
    }
}

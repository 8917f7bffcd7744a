//! Virtual clusters with a pool of nodes each, overloaded four times: mean completion of three weeks of Philly.
//!
//! ```text
//! jobs by queue -> the pool of the queue, no duration known -> mean and 99th percentile of completion - submission
//! ```
//!
//! What is approximated: a gang goes on as few nodes as it can when it starts, and may go on more; the published simulations wait for the fewest. A
//! job that is stopped for another has saved its progress and loses 60 s when it goes on.
//!
//! Never: a duration told to the engine before its job is over.

use crate::arguments::Arguments;
use crate::figures::ComparedFigure;
use crate::world::InstantWorld;
use crate::{inputs, made};
use forebay_kernel::ids::{PoolId, QuotaId};
use forebay_kernel::policy::Policy;
use forebay_sim::convert::{Assumptions, Converter};
use forebay_sim::trace::{self, TraceJob};
use std::collections::BTreeMap;
use std::path::Path;

/// The pool, the quota and the queue of the policy that each virtual cluster gets one of.
const TEMPLATE: &str = "virtual-cluster";
const GPUS_A_NODE: u32 = 8;
const RESTART_MS: u64 = 60_000;
const MEAN: [(&str, f64); 3] =
    [("FIFO", 62_942.0), ("SJF, durations known", 20_853.2), ("SRTF, durations known", 16_897.6)];
const P99: [(&str, f64); 3] =
    [("FIFO", 549_569.0), ("SJF, durations known", 353_965.0), ("SRTF, durations known", 252_645.0)];

pub fn run(arguments: &Arguments) -> Result<Vec<ComparedFigure>, String> {
    let (trace, ours) = inputs::given_or(arguments.trace.as_ref(), "philly_2017_dev_oct02_oct22.csv");
    let jobs = match trace {
        Some(path) => trace::read(path, None).map_err(|e| e.to_string())?.jobs,
        None => made::queues(1, 4_000),
    };
    let sizes = arguments
        .nodes
        .clone()
        .or_else(|| inputs::published("expected/philly_dev_oct02_oct22_queue_baselines_quarter.json"));
    let sizes = sizes.map_or_else(|| Ok(BTreeMap::new()), |path| read_sizes(&path))?;
    let ours = ours || arguments.nodes.is_some();
    let times = replay(jobs, &sizes)?;
    let published = |list: &[(&'static str, f64)]| if ours { Vec::new() } else { list.to_vec() };
    let mean = times.iter().sum::<u64>() as f64 / times.len().max(1) as f64 / 1e3;
    let p99 = times.get((times.len() * 99).div_ceil(100).saturating_sub(1)).copied().unwrap_or(0) as f64 / 1e3;
    Ok(vec![
        ComparedFigure { metric: "mean_completion_s".into(), figure: mean, unit: "s", published: published(&MEAN) },
        ComparedFigure { metric: "p99_completion_s".into(), figure: p99, unit: "s", published: published(&P99) },
    ])
}

/// Completion less submission of each job in milliseconds, in rising order.
fn replay(jobs: Vec<TraceJob>, sizes: &BTreeMap<String, usize>) -> Result<Vec<u64>, String> {
    let mut queues: BTreeMap<String, Vec<&TraceJob>> = BTreeMap::new();
    for job in &jobs {
        queues.entry(job.queue.clone().unwrap_or_default()).or_default().push(job);
    }
    let sized: Vec<(String, usize)> = queues
        .iter()
        .map(|(queue, jobs)| (queue.clone(), sizes.get(queue).copied().unwrap_or_else(|| quarter(jobs))))
        .collect();
    let names: Vec<&String> = queues.keys().collect();
    let policy = for_each(inputs::policy("philly-queues")?, &names)?;
    drop(queues);
    let mut converter = Converter::new(&policy, Assumptions::default());
    let mut world = InstantWorld::new(policy, 0)?;
    for (queue, nodes) in &sized {
        world.happen(inputs::equal_nodes(queue, (*nodes, GPUS_A_NODE as u16)))?;
    }
    inputs::play(&mut world, jobs, |world, mut job| {
        job.restart_ms = Some(RESTART_MS);
        let (spec, truth) = converter.job(&job);
        world.submission(spec, Some(truth.duration.0), RESTART_MS)
    })?;
    let took = world.fates().values().map(|fate| fate.ended.map(|at| at - fate.submitted));
    let mut took: Vec<u64> = took.collect::<Option<_>>().ok_or("a job never ended")?;
    took.sort_unstable();
    if std::env::var_os("FOREBAY_SHOW").is_some() {
        println!("{} runs were stopped", world.stops);
    }
    Ok(took)
}

/// The policy with a pool, a quota and a queue for each name, made from its one of each.
fn for_each(mut policy: Policy, names: &[&String]) -> Result<Policy, String> {
    let missing = || format!("the policy has no queue `{TEMPLATE}`");
    let rule = policy.queues.remove(TEMPLATE).ok_or_else(missing)?;
    let pool = policy.pools.first().cloned().ok_or_else(missing)?;
    let quota = policy.quotas.get(rule.quota.index()).cloned().ok_or_else(missing)?;
    (policy.pools, policy.quotas) = (Vec::new(), Vec::new());
    for (at, name) in (0u16..).zip(names) {
        let (pools, quota_id) = (vec![PoolId(at)], QuotaId(at));
        policy
            .queues
            .insert((*name).clone(), forebay_kernel::policy::QueueRule { pools, quota: quota_id, ..rule.clone() });
        policy.quotas.push(forebay_kernel::policy::QuotaNode { name: (*name).clone(), ..quota.clone() });
        policy.pools.push(forebay_kernel::policy::Pool { name: (*name).clone(), ..pool.clone() });
    }
    Ok(policy)
}

/// Nodes of a queue that nothing says a size of: three quarters of what its work needs on average, and enough for its largest gang.
fn quarter(jobs: &[&TraceJob]) -> usize {
    let (first, last) = (jobs.iter().map(|j| j.submit_ms).min(), jobs.iter().map(|j| j.submit_ms).max());
    let span = last.unwrap_or(0).saturating_sub(first.unwrap_or(0)).max(86_400_000);
    let work: u64 = jobs.iter().map(|j| j.duration_ms.saturating_mul(u64::from(j.gpus))).sum();
    let mean = work * 3 / 4 / span / u64::from(GPUS_A_NODE);
    let largest = jobs.iter().map(|j| j.gpus.div_ceil(GPUS_A_NODE)).max().unwrap_or(1);
    usize::try_from(mean).unwrap_or(1).max(largest as usize).max(1)
}

/// Nodes by queue, from a file in the form of the published baselines: `{"fifo": {"<queue>": {"nodes": 8}}}`.
fn read_sizes(path: &Path) -> Result<BTreeMap<String, usize>, String> {
    let fault = |what: String| format!("{}: {what}", path.display());
    let text = std::fs::read_to_string(path).map_err(|e| fault(e.to_string()))?;
    let all: serde_json::Value = serde_json::from_str(&text).map_err(|e| fault(e.to_string()))?;
    let queues = all["fifo"].as_object().ok_or_else(|| fault("it has no object `fifo`".to_owned()))?;
    let nodes = |of: &serde_json::Value| of["nodes"].as_u64().and_then(|n| usize::try_from(n).ok());
    Ok(queues.iter().filter_map(|(queue, of)| Some((queue.clone(), nodes(of)?))).collect())
}

//! What a document that was written by hand leaves out, as it would most likely be: how the GPUs of a node are partitioned, and for whom a
//! run is being stopped.
//!
//! Never: overrules what the document says.

use super::spec;
use super::write::rule_of;
use forebay_kernel::ids::{PoolId, QueueId, TierId};
use forebay_kernel::job::{Gang, JobSpec, WorkerAsk};
use forebay_kernel::layouts;
use forebay_kernel::policy::{Policy, Pool};
use forebay_kernel::state::nodes::Partition;
use forebay_kernel::state::{Shape, Urgency};
use forebay_kernel::units::Mib;
use forebay_wire::document::state::StateDocument;
use forebay_wire::document::views::{JobPhase, JobView, NodeView};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Jobs that wait, first in the order first, by their positions in the document.
#[must_use]
pub fn in_order(document: &StateDocument, policy: &Policy) -> Vec<usize> {
    let waits = |job: &JobView| matches!(job.phase, JobPhase::New | JobPhase::Queued);
    let mut jobs: Vec<usize> = (0..document.jobs.len()).filter(|&at| waits(&document.jobs[at])).collect();
    jobs.sort_by_key(|&at| {
        let job = &document.jobs[at];
        (Reverse(tier_of(job, policy).map_or(0, |t| t.1)), Reverse(job.priority), job.submit_s, at)
    });
    jobs
}

/// The tier of a job, and its priority.
fn tier_of(job: &JobView, policy: &Policy) -> Option<(TierId, i32)> {
    let named = job.tier.as_deref().and_then(|name| policy.tier_named(name));
    let tier = named.or_else(|| rule_of(policy, &job.queue).map(|rule| rule.tier))?;
    Some((tier, policy.tiers.get(tier.index())?.priority))
}

/// For which job a run is most likely being stopped: one of a tier that may stop it, else one of another queue.
#[must_use]
pub fn stopped_for(
    document: &StateDocument,
    policy: &Policy,
    victim: &JobView,
    waiting: &[usize],
) -> Option<(usize, TakenBy)> {
    let stoppable =
        tier_of(victim, policy).and_then(|t| policy.tiers.get(t.0.index())).map(|t| t.stoppable_by.as_slice());
    let may_stop = |at: &&usize| {
        let tier = tier_of(&document.jobs[**at], policy);
        tier.is_some_and(|t| stoppable.is_some_and(|by| by.contains(&t.0)))
    };
    let by_tier = waiting.iter().find(may_stop).map(|at| (*at, TakenBy::Tier));
    let owner = || waiting.iter().find(|at| document.jobs[**at].queue != victim.queue);
    by_tier.or_else(|| owner().map(|at| (*at, TakenBy::Owner)))
}

/// Why a run is taken from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TakenBy {
    /// For a higher tier.
    Tier,
    /// For a queue that wants its quota back.
    Owner,
}

/// Layouts of nodes of which the document does not say how they are partitioned.
pub struct Layouts<'a> {
    document: &'a StateDocument,
    policy: &'a Policy,
    /// Workers on waiting jobs that no node so far is meant for, first in the order first.
    waiting: Vec<(usize, u32)>,
    on: BTreeMap<&'a str, Vec<usize>>,
}

impl<'a> Layouts<'a> {
    /// For a document under a policy.
    #[must_use]
    pub fn new(document: &'a StateDocument, policy: &'a Policy) -> Layouts<'a> {
        let mut on: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (at, job) in document.jobs.iter().enumerate() {
            for node in &job.nodes {
                on.entry(node).or_default().push(at);
            }
        }
        let workers = |at: usize| document.jobs[at].workers.unwrap_or(document.jobs[at].gpus.max(1));
        let waiting = in_order(document, policy).into_iter().map(|at| (at, workers(at))).collect();
        Layouts { document, policy, waiting, on }
    }

    /// How a node is partitioned: for the jobs on it, else for the first that waits and that no node before it is meant for.
    pub fn of(&mut self, node: &NodeView, pool: PoolId, gpus: u16) -> Option<u8> {
        let rules = self.policy.pools.get(pool.index()).filter(|rules| !rules.layouts.is_empty())?;
        let here: Vec<JobSpec> =
            self.on.get(node.node.as_str()).into_iter().flatten().filter_map(|&at| self.spec(at)).collect();
        let with_gpus: Vec<(Shape, WorkerAsk)> = here.iter().map(asked).filter(|a| a.1.gpus > 0).collect();
        let all = |at: &u8| with_gpus.iter().all(|(shape, ask)| holds(rules, *at, shape, ask));
        if let Some((shape, ask)) = with_gpus.first() {
            let own = layouts::layout_for(rules, shape, ask).map(|chosen| chosen.layout);
            let others = (0u8..).take(rules.layouts.len());
            return own.into_iter().chain(others).find(all).or(own);
        }
        for position in 0..self.waiting.len() {
            let (at, left) = self.waiting[position];
            let uses = rule_of(self.policy, &self.document.jobs[at].queue).is_some_and(|r| r.pools.contains(&pool));
            let Some((shape, ask)) = self.spec(at).filter(|_| uses && left > 0).map(|spec| asked(&spec)) else {
                continue;
            };
            let Some(chosen) = layouts::layout_for(rules, &shape, &ask).filter(|_| ask.gpus > 0) else { continue };
            self.meant_for(rules, chosen.layout, gpus);
            return Some(chosen.layout);
        }
        Some(0)
    }

    /// Takes what a node of a layout holds out of what waits.
    fn meant_for(&mut self, rules: &Pool, layout: u8, gpus: u16) {
        let slices = rules.layouts.get(usize::from(layout)).map_or(1, |l| l.slices.len().max(1));
        let mut room = u32::from(gpus) * u32::try_from(slices).unwrap_or(1);
        for position in 0..self.waiting.len() {
            let (at, left) = self.waiting[position];
            let fits = self.spec(at).is_some_and(|spec| {
                let (shape, ask) = asked(&spec);
                layouts::layout_for(rules, &shape, &ask).is_some_and(|c| c.layout == layout)
            });
            if fits {
                let taken = left.min(room);
                self.waiting[position].1 -= taken;
                room -= taken;
            }
        }
    }

    fn spec(&self, at: usize) -> Option<JobSpec> {
        spec::of(at, &self.document.jobs[at], Some(self.policy)).ok()
    }
}

/// Whether a layout has a slice, or a whole GPU, for a worker.
fn holds(rules: &Pool, layout: u8, shape: &Shape, ask: &WorkerAsk) -> bool {
    let Some(cuts) = rules.layouts.get(usize::from(layout)).and_then(|l| Partition::of(layout, l, Mib(u64::MAX)))
    else {
        return true;
    };
    let wanted = layouts::wanted(shape, ask);
    wanted.is_some_and(|(share, mem)| cuts.slices.iter().any(|cut| layouts::holds(cut, share, mem)))
}

/// What one worker of a job asks, and the shape that says whether it shares.
fn asked(spec: &JobSpec) -> (Shape, WorkerAsk) {
    let ask = match &spec.gang {
        Gang::Workers { each, .. } => *each,
        Gang::Spanning { per_gpu, .. } => WorkerAsk { gpus: 1, share: 1000, ..*per_gpu },
    };
    let shape = Shape {
        queue: QueueId(0),
        tier: TierId(0),
        gang: spec.gang.clone(),
        models: Vec::new(),
        spot: spec.spot,
        shares: spec.shares,
        within: None,
        batch: None,
        service: None,
        urgency: Urgency::Ordinary,
        loses: None,
        late: false,
    };
    (shape, ask)
}

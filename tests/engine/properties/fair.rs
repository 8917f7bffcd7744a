//! The order of starts against an oracle: on small random trees with weights, quota, priorities and ageing, everybody waits for one
//! node; when it is free, jobs start in the order that a plain recursion from nothing finds, start by start.
//!
//! ```text
//! best(node) = of its own jobs the first, and of each child its best: whoever has the least
//!              (borrowed with its ask / lendable here / weight; use / weight where nothing is borrowed; past use / weight; rank)
//! ```
//!
//! Never: the engine's tournament, its recurrences or its sums. Use and past use are counted from the decisions alone.

use super::holds;
use super::quota::{MOST, Plain, may_take, owns, policy, stands, trees, uses};
use crate::cluster::{Cluster, Mode};
use crate::making::{self, ask, workers};
use core::cmp::Ordering;
use forebay_kernel::decision::Decision;
use forebay_kernel::event::Event;
use forebay_kernel::ids::{JobId, QuotaId};
use forebay_kernel::job::WorkerAsk;
use forebay_kernel::policy::{Fairness, QuotaNode, Sharing};
use forebay_kernel::state::jobs::Phase;
use forebay_kernel::units::{MilliGpu, Span};
use proptest::prelude::*;

/// A job that waits: at which node, how many GPUs, which priority, since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waits {
    job: JobId,
    at: usize,
    gpus: u64,
    priority: i64,
    arrival: u64,
}

struct Oracle<'a> {
    tree: &'a [Plain],
    weights: &'a [u32],
    ageing: Option<u64>,
    /// GPUs in use by the jobs that stand at each node.
    jobs: Vec<u64>,
    /// GPU x ms that they have used, entries included.
    past: Vec<u128>,
    entry: u64,
    waiting: Vec<Waits>,
}

/// A fraction in lowest terms does not matter: they are only compared.
type Part = (u128, u128);

fn least(a: Part, b: Part) -> Ordering {
    (a.0 * b.1).cmp(&(b.0 * a.1))
}

impl Oracle<'_> {
    fn children(&self, at: usize) -> Vec<usize> {
        (0..self.tree.len()).filter(|c| self.tree[*c].parent == Some(at)).collect()
    }

    fn sum(&self, at: usize, of: &dyn Fn(usize) -> u128) -> u128 {
        of(at) + self.children(at).into_iter().map(|c| self.sum(c, of)).sum::<u128>()
    }

    /// What stands first at the node itself: by effective priority, then arrival.
    fn own(&self, at: usize) -> Option<Waits> {
        let own = self.waiting.iter().filter(|w| w.at == at);
        let rank = |w: &&Waits| match self.ageing {
            None => (-i128::from(w.priority), w.arrival),
            Some(point) => (i128::from(w.arrival) - i128::from(w.priority) * i128::from(point), w.arrival),
        };
        own.min_by_key(rank).copied()
    }

    /// Everything that stands for election at a node: its own first job (`None`), and the best of each child.
    fn best(&self, at: usize) -> Option<Waits> {
        let mut stand: Vec<(Option<usize>, Waits)> = self.own(at).map(|w| (None, w)).into_iter().collect();
        stand.extend(self.children(at).into_iter().filter_map(|c| Some((Some(c), self.best(c)?))));
        self.elect(Some(at), stand)
    }

    fn elect(&self, above: Option<usize>, stand: Vec<(Option<usize>, Waits)>) -> Option<Waits> {
        let by = |a: &(Option<usize>, Waits), b: &(Option<usize>, Waits)| {
            let (x, y) = (self.standing(above, a.0, a.1), self.standing(above, b.0, b.1));
            least(x.0, y.0)
                .then(least(x.1, y.1))
                .then(least(x.2, y.2))
                .then_with(|| self.rank(&a.1).cmp(&self.rank(&b.1)))
        };
        stand.into_iter().min_by(by).map(|s| s.1)
    }

    fn rank(&self, w: &Waits) -> (i128, u64) {
        let point = self.ageing.map_or(0, i128::from);
        let rank = i128::from(w.arrival) - i128::from(w.priority) * point;
        (if self.ageing.is_some() { rank } else { -i128::from(w.priority) }, w.arrival)
    }

    fn standing(&self, above: Option<usize>, child: Option<usize>, w: Waits) -> (Part, Part, Part) {
        let at = child.or(above).expect("a node");
        let mut with = self.jobs.clone();
        with[w.at] += w.gpus;
        let (borrowed, used, past, weight) = match child {
            Some(c) => (
                uses(self.tree, &with, c).saturating_sub(owns(self.tree, c).unwrap_or(0)),
                self.sum(c, &|n| u128::from(self.jobs[n])),
                self.sum(c, &|n| self.past[n]),
                u128::from(self.weights[c]),
            ),
            None => (
                with[at].saturating_sub(self.tree[at].limit.map_or(0, |l| l.0)),
                u128::from(self.jobs[at]),
                self.past[at],
                1000,
            ),
        };
        let lendable = above.map_or(0, |a| may_take(self.tree, &vec![0; self.tree.len()], a, MOST));
        let share = if above.is_none() || borrowed == 0 {
            (0, 1)
        } else {
            (u128::from(borrowed) * 1000, (u128::from(lendable) * 1000).max(1) * weight)
        };
        let used = if share.0 == 0 { (used, weight) } else { (0, 1) };
        (share, used, (past, weight))
    }

    /// Whether a job would borrow: at its queue or a cohort above it, beside the children of its queue, or because its tree has no quota where others have.
    fn borrows(&self, w: &Waits) -> bool {
        let mut with = self.jobs.clone();
        with[w.at] += w.gpus;
        // The jobs of a node that others are below stand beside these: theirs is what it names.
        if !self.children(w.at).is_empty() && with[w.at] > self.tree[w.at].limit.map_or(0, |limit| limit.0) {
            return true;
        }
        let mut at = w.at;
        while let Some(above) = self.tree[at].parent {
            if owns(self.tree, at).is_none_or(|own| uses(self.tree, &with, at) > own) {
                return true;
            }
            at = above;
        }
        owns(self.tree, at).is_none() && self.tree.iter().any(|node| node.limit.is_some())
    }

    /// The first of each queue and size.
    fn heads(&self) -> Vec<Waits> {
        let first = |w: &&Waits| {
            let same = self.waiting.iter().filter(|other| (other.at, other.gpus) == (w.at, w.gpus));
            same.min_by_key(|other| self.rank(other)) == Some(w)
        };
        self.waiting.iter().filter(first).copied().collect()
    }

    /// Who goes next: what a queue owns before what would be borrowed.
    fn next(&mut self) -> Option<Waits> {
        let all = core::mem::take(&mut self.waiting);
        self.waiting.clone_from(&all);
        let (borrowers, owners): (Vec<Waits>, Vec<Waits>) = self.heads().into_iter().partition(|w| self.borrows(w));
        self.waiting = if owners.is_empty() { borrowers } else { owners };
        let roots = (0..self.tree.len()).filter(|at| self.tree[*at].parent.is_none());
        let stand = roots.filter_map(|at| Some((Some(at), self.best(at)?))).collect();
        let next = self.elect(None, stand);
        self.waiting = all;
        next
    }

    /// The starts, in order: whoever is told no by quota leaves with all that ask the same in its queue.
    fn starts(mut self) -> Vec<JobId> {
        let mut starts = Vec::new();
        loop {
            let Some(next) = self.next() else { return starts };
            let mut with = self.jobs.clone();
            with[next.at] += next.gpus;
            if stands(self.tree, &with) {
                starts.push(next.job);
                self.jobs = with;
                self.past[next.at] += u128::from(next.gpus) * u128::from(self.entry);
                self.waiting.retain(|w| *w != next);
            } else {
                self.waiting.retain(|w| (w.at, w.gpus) != (next.at, next.gpus));
            }
        }
    }
}

/// What is a GPU to the oracle: a quarter.
const UNIT: u64 = 250;

/// (which node, GPUs, priority) of jobs.
fn jobs(most: usize) -> impl Strategy<Value = Vec<(prop::sample::Index, u32, i32)>> {
    prop::collection::vec((any::<prop::sample::Index>(), 1u32..4, 0i32..3), 0..most)
}

/// Half-life so long that nothing decays here: past use is a plain sum. Decay has tests of its own.
const NO_DECAY: Span = Span(1 << 60);

#[test]
fn starts_are_in_the_order_of_fair_share() {
    let weights = prop::collection::vec(prop::sample::select(vec![500u32, 1000, 1000, 2500]), 8);
    let ageing = prop::option::of(prop::sample::select(vec![1_000u64, 2_500]));
    let inputs = (trees(), weights, (ageing, 0u64..3), jobs(8), jobs(12));
    holds("starts_are_in_the_order", 600, &inputs, |(tree, weights, (ageing, entry), before, after)| {
        let entry = entry * 7_000;
        let mut policy = policy(&tree);
        policy.offerings[0].gpus = 64;
        policy.limits.nodes = Some(1);
        // Nobody is stopped: this is about what is free.
        policy.tiers.iter_mut().for_each(|tier| tier.min_run = Span::mins(1000));
        // Parts of a GPU, one to each: nobody that asks so little reserves ahead.
        policy.pools[0].sharing = Some(Sharing { time_slices: 1, smallest: 1 });
        for limit in policy.quotas.iter_mut().flat_map(|q| q.limits.values_mut()) {
            for gpus in [Some(&mut limit.nominal), limit.borrow.as_mut(), limit.lend.as_mut()].into_iter().flatten() {
                *gpus = MilliGpu(gpus.0 / 1000 * UNIT);
            }
        }
        policy.fairness = Fairness { half_life: NO_DECAY, ageing: ageing.map(Span), entry: Span(entry) };
        for (node, weight) in policy.quotas.iter_mut().zip(&weights) {
            node.weight = *weight;
        }
        let mut gate = making::rule(1);
        gate.quota = QuotaId(tree.len() as u16);
        policy.quotas.push(QuotaNode { name: "gate".into(), ..QuotaNode::default() });
        policy.queues.insert("gate".into(), gate);
        let mut world = Cluster::new(policy);
        world.mode = Mode::Quick;
        let submit = |world: &mut Cluster, name: String, at: usize, gpus: u32, priority: i32| {
            let each = WorkerAsk { share: gpus as u16 * UNIT as u16, ..ask(1) };
            let mut spec = making::job(&name, workers(1, each));
            spec.shares = true;
            spec.queue = format!("q{at}");
            spec.priority = priority;
            world.submit(spec);
            world.run_until(world.now + 1_000);
        };
        for (n, (at, gpus, priority)) in before.iter().enumerate() {
            submit(&mut world, format!("b{n}"), at.index(tree.len()), *gpus, *priority);
        }
        world.run_until(world.now + 100_000);
        let taken = world.state().jobs().filter(|(job, _)| job.phase == Phase::Running).count();
        let mut spec = making::job("gate", workers(1, ask(64 - taken as u16)));
        spec.queue = "gate".into();
        world.submit(spec);
        world.run_until(world.now + 100_000);
        for (n, (at, gpus, priority)) in after.iter().enumerate() {
            submit(&mut world, format!("a{n}"), at.index(tree.len()), *gpus, *priority);
        }
        let expected = expected(&world, &tree, &weights, ageing, entry).starts();
        let (job, seen) = (world.id("gate").expect("the gate"), world.log.batches.len());
        let attempt = world.alive(job).expect("it runs");
        world.step(vec![Event::RunCompleted { job, attempt, worker: None }], false);
        let why: Vec<_> = world.state().jobs().map(|(job, _)| (job.phase, world.engine.why(job.id))).collect();
        prop_assert_eq!(booked(&world, seen), expected, "{:?}", why);
        Ok(())
    });
}

/// Jobs that got places, in order, from this batch on.
fn booked(world: &Cluster, from: usize) -> Vec<JobId> {
    let decisions = world.log.batches[from..].iter().flat_map(|b| &b.decisions);
    let book = |d: &Decision| if let Decision::Book { job, .. } = d { Some(*job) } else { None };
    decisions.filter_map(book).collect()
}

fn expected<'a>(world: &Cluster, tree: &'a [Plain], weights: &'a [u32], ageing: Option<u64>, entry: u64) -> Oracle<'a> {
    let none = vec![0; tree.len()];
    let mut oracle =
        Oracle { tree, weights, ageing, jobs: none, past: vec![0; tree.len()], entry, waiting: Vec::new() };
    for (job, spec) in world.state().jobs() {
        let Some(at) = spec.queue.strip_prefix('q').and_then(|n| n.parse::<usize>().ok()) else { continue };
        let gpus = spec.gang.gpu_share().0 / UNIT;
        match job.phase {
            Phase::Queued => {
                let (priority, arrival) = (i64::from(job.priority), job.arrival.0);
                oracle.waiting.push(Waits { job: job.id, at, gpus, priority, arrival });
            }
            Phase::Running => {
                let of = |d: &Decision| matches!(d, Decision::Book { job: id, .. } if *id == job.id);
                let batch = world.log.batches.iter().find(|b| b.decisions.iter().any(of)).expect("it was booked");
                oracle.jobs[at] += gpus;
                oracle.past[at] += u128::from(gpus) * u128::from(entry + world.now - batch.tick.now.0);
            }
            _ => {}
        }
    }
    oracle
}

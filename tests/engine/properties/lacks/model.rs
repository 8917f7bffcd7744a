//! The plain model of a state: who runs where, who waits, and the rules that bound them, as numbers in lists.
//!
//! ```text
//! State -> Model   jobs, nodes, tree, ceilings, money as they are; the own jobs of a queue with children are at a leaf more of the tree
//! Gone             what is taken of each run in a trial: a bit for each of its workers
//! starts(Gone)     whether the head could start then: quota, money, places that are free, a purchase under the ceilings
//! ```
//!
//! One pool, whole GPUs, plenty of stock. What is kept for somebody else counts as used.
//!
//! Never: the engine's arithmetic of quota, its placement or its launch options.

use super::super::quota::{Plain, owns, stands, stands_at, uses};
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::ids::{JobId, NodeId};
use forebay_kernel::job::{Gang, JobSpec};
use forebay_kernel::policy::{Buys, Ceiling};
use forebay_kernel::state::State;
use forebay_kernel::state::allowances::Allowance;
use forebay_kernel::state::jobs::{Job, Phase, Wait};
use forebay_kernel::state::nodes::NodePhase;
use forebay_kernel::units::Timestamp;

/// A rule that may decide whether a head starts, and how cheaply. Without it the oracle shows whether it did.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Rule {
    /// Rank by quota, depth by depth.
    Quota,
    /// `stoppableBy`.
    Tier,
    /// The greater share.
    Share,
    MinRun,
    /// `maxRunWhileOthersWait`.
    Overdue,
    MinShare,
    Ceiling,
    Money,
    StartTarget,
    Borrow,
    Lend,
}

pub(super) const RULES: [Rule; 11] = [
    Rule::Quota,
    Rule::Tier,
    Rule::Share,
    Rule::MinRun,
    Rule::Overdue,
    Rule::MinShare,
    Rule::Ceiling,
    Rule::Money,
    Rule::StartTarget,
    Rule::Borrow,
    Rule::Lend,
];

#[derive(Clone, Debug)]
pub(super) struct PlainTier {
    pub priority: i32,
    pub stoppable_by: Vec<usize>,
    pub has_longest: bool,
    pub min_share: u64,
    pub buys: bool,
}

/// A run, or whatever else holds GPUs.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub id: JobId,
    pub quota: usize,
    pub tier: usize,
    /// GPUs of each worker.
    pub each: u64,
    /// The node of each worker, and its number.
    pub workers: Vec<(usize, u32)>,
    pub min: usize,
    pub began: u64,
    /// It may be taken as far as it goes itself.
    pub open: bool,
    /// Within `minRun`, or after a restart.
    pub shielded: bool,
    pub overdue: bool,
    /// Micro-dollars an hour.
    pub rate: u64,
    /// Milliseconds that a stop costs it.
    pub loses: u64,
    /// Milliseconds that it may go on once it is asked to stop.
    pub goes_on: u64,
}

impl Run {
    pub(super) fn whole(&self) -> u32 {
        (1 << self.workers.len()) - 1
    }

    pub(super) fn held(&self, gone: u32) -> u64 {
        (self.workers.len() as u64 - u64::from(gone.count_ones())) * self.each
    }

    /// What may be gone of it: no worker that it cannot do without, or all.
    pub(super) fn parts(&self) -> Vec<u32> {
        let spare = self.workers.len().saturating_sub(self.min) as u32;
        (0..=self.whole()).filter(|gone| gone.count_ones() <= spare || *gone == self.whole()).collect()
    }
}

#[derive(Clone, Debug)]
pub(super) struct Head {
    pub id: JobId,
    pub quota: usize,
    pub tier: usize,
    pub count: u64,
    pub each: u64,
    pub priority: i32,
    pub arrival: u64,
    /// A node that is bought now comes after its start target.
    pub hurried: bool,
}

impl Head {
    /// `quota`: where in the tree its queue's jobs are.
    fn of(row: &Job, spec: &JobSpec, quota: usize, hurried: bool) -> Head {
        let Gang::Workers { min, each, .. } = &spec.gang else { panic!("workers only") };
        Head {
            id: row.id,
            quota,
            tier: row.tier.index(),
            count: u64::from(*min),
            each: u64::from(each.gpus),
            priority: row.priority,
            arrival: row.arrival.0,
            hurried,
        }
    }

    pub(super) fn asked(&self) -> u64 {
        self.count * self.each
    }
}

#[derive(Clone, Debug)]
pub(super) struct PlainNode {
    pub id: NodeId,
    pub kind: usize,
    pub free: u64,
    /// It may take work and be given back.
    pub ready: bool,
    /// Kept for these.
    pub kept_for: Vec<JobId>,
}

#[derive(Clone, Debug)]
pub(super) struct Kind {
    pub gpus: u64,
    pub price: u64,
}

/// A budget as it stands.
#[derive(Clone, Debug)]
pub(super) struct Money {
    pub at: usize,
    /// Micro-dollars a period.
    pub amount: u64,
    /// Micro-dollars an hour x milliseconds.
    pub spent: u128,
    /// Milliseconds of the period that a gang has to be paid for: an hour at most.
    pub left: u64,
    /// What runs now.
    pub running: u64,
}

/// A reservation of places or room in the pool.
#[derive(Clone, Debug)]
pub(super) struct Reserved {
    pub job: JobId,
    pub nodes: Vec<usize>,
    pub room: bool,
}

/// Quota or money that is kept for a job.
#[derive(Clone, Debug)]
pub(super) struct SetAside {
    pub holder: Head,
    pub at: usize,
    pub money: bool,
    /// These are to be gone by then.
    pub gone: Vec<JobId>,
}

#[derive(Clone, Debug)]
pub(super) struct Model {
    pub tiers: Vec<PlainTier>,
    pub tree: Vec<Plain>,
    /// Where in it the jobs of each node of the policy's tree are.
    pub jobs_at: Vec<usize>,
    pub weights: Vec<u64>,
    pub runs: Vec<Run>,
    pub heads: Vec<Head>,
    pub nodes: Vec<PlainNode>,
    pub kinds: Vec<Kind>,
    pub ceilings: Vec<Ceiling>,
    pub money: Vec<Money>,
    /// What is kept of quota: for whom, where in the tree, how much.
    pub kept: Vec<(JobId, usize, u64)>,
    pub reserved: Vec<Reserved>,
    pub set_aside: Vec<SetAside>,
    /// Something is booked, starting or ending: not a state at rest.
    pub moving: bool,
}

/// What is gone of each run, by its position.
pub(super) type Gone = Vec<u32>;

/// The node of the tree that a queue is at.
fn queue_at(queue: &str) -> usize {
    queue.trim_start_matches('q').parse().expect("queues are named by their node")
}

/// The tree with a leaf more below each node that others are below: the jobs of that node's own queue are there, and stand as one more child of it. It owns
/// what the node names, and that node then names nothing. And where the jobs of each node are.
fn with_own_leaves(tree: &[Plain]) -> (Vec<Plain>, Vec<usize>) {
    let mut all = tree.to_vec();
    let mut jobs_at: Vec<usize> = (0..tree.len()).collect();
    for (at, node) in tree.iter().enumerate() {
        if tree.iter().any(|other| other.parent == Some(at)) {
            jobs_at[at] = all.len();
            all[at].limit = node.limit.map(|(_, borrow, lend)| (0, borrow, lend));
            all.push(Plain { parent: Some(at), limit: node.limit.map(|(names, _, _)| (names, None, None)) });
        }
    }
    (all, jobs_at)
}

impl Model {
    /// The state as it is at an instant.
    pub(super) fn at(state: &State, now: u64, tree: &[Plain]) -> Model {
        let policy = state.policy().expect("a policy");
        let tiers = policy.tiers.iter().map(|t| PlainTier {
            priority: t.priority,
            stoppable_by: t.stoppable_by.iter().map(|by| by.index()).collect(),
            has_longest: t.max_run_while_others_wait.is_some(),
            min_share: u64::from(t.min_share),
            buys: t.buys != Buys::Nothing,
        });
        let kinds = policy.offerings.iter().map(|o| Kind { gpus: u64::from(o.gpus), price: o.price.0 });
        let (tree, jobs_at) = with_own_leaves(tree);
        let mut model = Model {
            tiers: tiers.collect(),
            tree,
            jobs_at,
            weights: policy.quotas.iter().map(|q| u64::from(q.weight)).collect(),
            runs: Vec::new(),
            heads: Vec::new(),
            nodes: Vec::new(),
            kinds: kinds.collect(),
            ceilings: vec![policy.limits, policy.pools[0].ceiling],
            money: Vec::new(),
            kept: Vec::new(),
            reserved: Vec::new(),
            set_aside: Vec::new(),
            moving: state.purchases().next().is_some(),
        };
        for node in state.nodes() {
            let ready = node.phase == NodePhase::Ready && node.open();
            model.moving |= !matches!(node.phase, NodePhase::Ready);
            let kept_for = node.reserved.iter().map(|(job, _)| *job).collect();
            let free = u64::from(node.whole_free());
            assert!(state.capacity_of(node) == CapacityType::Spot, "one kind of capacity");
            model.nodes.push(PlainNode { id: node.id, kind: node.offering.index(), free, ready, kept_for });
        }
        for (job, spec) in state.jobs() {
            if let Some(kept) = job.kept {
                let at = model.jobs_of(spec);
                model.kept.push((job.id, at, kept.share.0 / 1000));
            }
            let Gang::Workers { min, each, .. } = &spec.gang else { panic!("workers only") };
            if job.phase == Phase::Queued {
                let hurried = job.start_target.is_some_and(|t| t.by.0 > now && now + BOOT > t.by.0);
                let waits = job.start_target.is_some_and(|t| t.wait != Wait::Over);
                let promised = job.reserved_until.is_some_and(|until| until.0 > now);
                if !waits && !promised {
                    let head = model.head(job, spec, hurried);
                    model.heads.push(head);
                }
            } else if !job.places.is_empty() {
                let run = model.run(job, u64::from(each.gpus), *min as usize, model.jobs_of(spec), now);
                let restart = spec.restart.0;
                model.moving |= !run.open;
                let saves = spec.checkpoint.filter(|_| job.running_since.is_some() && job.broken.is_none());
                let grace = saves.map_or(state.lifecycle().grace, |rule| rule.grace).0;
                let goes_on = if job.phase == Phase::Booked { 0 } else { grace };
                model.runs.push(Run { loses: run.loses + restart, goes_on, ..run });
            }
        }
        model.count_money(state, Timestamp(now));
        for (of, kept) in state.allowances() {
            let money = matches!(of, Allowance::Budget(_));
            let (row, spec) = state.job(kept.job).expect("a holder");
            let holder = model.head(row, spec, false);
            let (at, gone) = (of.node().index(), kept.runs.clone());
            model.set_aside.push(SetAside { holder, at, money, gone });
        }
        for reservation in state.reservations().values() {
            let nodes = reservation.nodes.iter().map(|id| model.node(*id)).collect();
            model.reserved.push(Reserved { job: reservation.job, nodes, room: !reservation.room.is_empty() });
        }
        model
    }

    /// A job that waits.
    pub(super) fn head(&self, row: &Job, spec: &JobSpec, hurried: bool) -> Head {
        Head::of(row, spec, self.jobs_of(spec), hurried)
    }

    /// Where in the tree a job's queue has its jobs.
    fn jobs_of(&self, spec: &JobSpec) -> usize {
        self.jobs_at[queue_at(&spec.queue)]
    }

    /// Whether a leaf is there for the jobs of the node above it.
    pub(super) fn is_own_leaf(&self, at: usize) -> bool {
        at >= self.jobs_at.len()
    }

    fn node(&self, id: NodeId) -> usize {
        self.nodes.iter().position(|node| node.id == id).unwrap_or(usize::MAX)
    }

    fn run(&self, job: &Job, each: u64, min: usize, quota: usize, now: u64) -> Run {
        let places = job.places.iter().enumerate();
        let number = |at: usize| job.numbers.get(at).copied().unwrap_or(at as u32);
        Run {
            id: job.id,
            quota,
            tier: job.tier.index(),
            each,
            workers: places.map(|(at, place)| (self.node(place.node), number(at))).collect(),
            min,
            began: job.running_since.unwrap_or(job.since).0,
            open: job.phase == Phase::Running && job.broken.is_none() && job.leaving.is_none(),
            shielded: job.protected_until.0 > now,
            overdue: job.overdue_at.0 <= now,
            rate: job.rate.0,
            loses: now - job.saved_at.0.min(now),
            goes_on: 0,
        }
    }

    /// Budgets as they stand.
    fn count_money(&mut self, state: &State, now: Timestamp) {
        for (quota, account) in state.budgets.accounts() {
            let spent = account.at(now).spent.0;
            let left = account.budget.per.ends(now).since(now).0.clamp(1, HOUR);
            let running = self.runs.iter().filter(|run| self.is_below(run.quota, quota.index()));
            let running = running.map(|run| run.rate).sum();
            self.money.push(Money { at: quota.index(), amount: account.budget.amount, spent, left, running });
        }
    }

    pub(super) fn is_below(&self, at: usize, above: usize) -> bool {
        self.lineage(at).contains(&above)
    }

    /// From the root down.
    pub(super) fn lineage(&self, at: usize) -> Vec<usize> {
        let mut up: Vec<usize> = core::iter::successors(Some(at), |at| self.tree[*at].parent).collect();
        up.reverse();
        up
    }

    pub(super) fn nothing_gone(&self) -> Gone {
        vec![0; self.runs.len()]
    }

    /// Whether the head comes before another one that something is reserved for: not below it by any measure.
    fn before(&self, head: &Head, owns: bool, other: JobId, state: &dyn Fn(JobId) -> (bool, i32, i32, u64)) -> bool {
        let (theirs, tier, priority, arrival) = state(other);
        let mine = (self.tiers[head.tier].priority, head.priority, core::cmp::Reverse((head.arrival, head.id)));
        owns >= theirs && mine > (tier, priority, core::cmp::Reverse((arrival, other)))
    }

    /// Whether a head has quota and money, and is to leave them to one that does not come behind it. Nobody says here how long it runs.
    pub(super) fn leaves_to_another(&self, head: &Head) -> bool {
        let nothing = self.nothing_gone();
        let affords = (0..self.kinds.len()).any(|kind| self.affords(head, &nothing, kind));
        if !self.quota_lets(head, &nothing) || !affords {
            return false;
        }
        !self.leaves_what_is_kept(head, &nothing)
    }

    /// Whether a head leaves to others what is kept for those that do not come behind it, once these are gone: to each by itself.
    pub(super) fn leaves_what_is_kept(&self, head: &Head, gone: &Gone) -> bool {
        self.kept_from(head).into_iter().all(|kept| self.lets_beside(head, &[kept], gone))
    }

    /// Whether it leaves that to all of them at once.
    pub(super) fn leaves_all_that_is_kept(&self, head: &Head, gone: &Gone) -> bool {
        let kept = self.kept_from(head);
        kept.is_empty() || self.lets_beside(head, &kept, gone)
    }

    /// What is kept for those that do not come behind a head.
    fn kept_from(&self, head: &Head) -> Vec<&SetAside> {
        let bound = |kept: &&SetAside| self.is_below(head.quota, kept.at) && kept.holder.id != head.id;
        self.set_aside.iter().filter(bound).filter(|kept| !self.goes_before(head, kept)).collect()
    }

    /// Whether a head goes before one that something is kept for, which has it when the runs are gone that it waits for.
    fn goes_before(&self, head: &Head, kept: &SetAside) -> bool {
        let holder = &kept.holder;
        if head.quota == holder.quota {
            return self.turn(head) > self.turn(holder);
        }
        let meet = self.meet(head, holder);
        let mine = self.is_within(head, meet, self.used(&self.nothing_gone()));
        let theirs = self.is_within(holder, meet, self.used(&self.without(kept, &self.nothing_gone())));
        let tier = |head: &Head| (self.lags(head.tier), self.tiers[head.tier].priority);
        (mine, tier(head)) > (theirs, tier(holder))
    }

    /// Whether a head goes before one that places or room are kept for: it does not borrow where that one owns, once the runs are gone that are in its way,
    /// and its turn is before.
    fn passes(&self, head: &Head, holder: &Head, reserved: &Reserved) -> bool {
        let in_turn = self.turn(head) > self.turn(holder);
        if head.quota == holder.quota {
            return in_turn;
        }
        if !in_turn {
            return false;
        }
        let leaves = |run: &Run| run.workers.iter().any(|(node, _)| reserved.nodes.contains(node));
        let gone: Gone = self.runs.iter().map(|run| if leaves(run) { run.whole() } else { 0 }).collect();
        let mut used = self.used(&self.nothing_gone());
        for (_, at, share) in self.kept.iter().filter(|(id, _, _)| *id != head.id) {
            used[*at] += share;
        }
        let meet = self.meet(head, holder);
        self.is_within(head, meet, used) || !self.is_within(holder, meet, self.used(&gone))
    }

    /// Whose turn is before: who is of a tier that is below its `minShare`, then by tier, priority and arrival. The greatest goes first.
    fn turn(&self, head: &Head) -> (bool, i32, i32, core::cmp::Reverse<(u64, JobId)>) {
        let last = core::cmp::Reverse((head.arrival, head.id));
        (self.lags(head.tier), self.tiers[head.tier].priority, head.priority, last)
    }

    /// Whether a tier has less than its `minShare` of all that is held, or nothing of it.
    fn lags(&self, tier: usize) -> bool {
        let of = |all: bool| self.runs.iter().filter(|run| all || run.tier == tier).map(|run| run.held(0)).sum::<u64>();
        let least = self.tiers[tier].min_share;
        least > 0 && (of(false) == 0 || of(false) * 1000 < of(true) * least)
    }

    /// How many nodes of the tree two queues have in common, from the root down.
    fn meet(&self, head: &Head, holder: &Head) -> usize {
        let ways = (self.lineage(head.quota), self.lineage(holder.quota));
        ways.0.iter().zip(&ways.1).take_while(|(one, other)| one == other).count()
    }

    /// Whether a head would be within what its queue and all above it own, below so many nodes from the root, beside what is used by node.
    fn is_within(&self, head: &Head, below: usize, mut used: Vec<u64>) -> bool {
        used[head.quota] += head.asked();
        let has_quotas = self.tree.iter().any(|node| node.limit.is_some());
        let within = |at: usize| owns(&self.tree, at).map_or(!has_quotas, |own| uses(&self.tree, &used, at) <= own);
        self.lineage(head.quota)[below..].iter().all(|at| within(*at))
    }

    /// What is gone, and the runs that a holder waits for, by whatever is kept for it.
    fn without(&self, kept: &SetAside, gone: &Gone) -> Gone {
        let own = |other: &&SetAside| other.holder.id == kept.holder.id;
        let waits_for = |run: JobId| self.set_aside.iter().filter(own).any(|other| other.gone.contains(&run));
        let all = self.runs.iter().zip(gone);
        all.map(|(run, part)| if waits_for(run.id) { run.whole() } else { *part }).collect()
    }

    /// Whether quota is left to a head beside those for which it is kept, when these are gone and those that the others wait for. What money is
    /// left over time is not told here.
    fn lets_beside(&self, head: &Head, kept: &[&SetAside], gone: &Gone) -> bool {
        let (mut beside, mut gone) = (self.clone(), gone.clone());
        for kept in kept {
            let holder = &kept.holder;
            if beside.kept.iter().all(|(id, _, _)| *id != holder.id) {
                beside.kept.push((holder.id, holder.quota, holder.asked()));
            }
            // What is enough now is left to it now: it waits for room.
            if !self.quota_lets(holder, &self.nothing_gone()) {
                gone = self.without(kept, &gone);
            }
        }
        let stay = || kept.iter().all(|kept| beside.owners_stay(head, kept, &gone));
        kept.iter().all(|kept| !kept.money) && beside.bounds_stay(head, kept, &gone) && stay()
    }

    /// Whether every bound is enough for a head beside holders. Where nothing is kept for them and they would lack it without the head as well, as
    /// another is its holder, it is not the head's to leave to them (docs/stages/backfill.md).
    fn bounds_stay(&self, head: &Head, kept: &[&SetAside], gone: &Gone) -> bool {
        let used = self.used_and_kept(gone);
        let mut with = used.clone();
        with[head.quota] += head.asked();
        let lacked = |at: usize| kept.iter().all(|kept| kept.at != at) && !stands_at(&self.tree, &used, at);
        (0..self.tree.len()).all(|at| stands_at(&self.tree, &with, at) || lacked(at))
    }

    /// Whether one that is within what it owns where quota is kept for it, and below that, still is with a head beside it. It is counted in.
    fn owners_stay(&self, head: &Head, kept: &SetAside, gone: &Gone) -> bool {
        let mut used = self.used_and_kept(gone);
        let own = |at: usize, used: &[u64]| owns(&self.tree, at).is_none_or(|own| uses(&self.tree, used, at) <= own);
        let way = self.lineage(kept.holder.quota).into_iter().filter(|at| self.is_below(*at, kept.at));
        let way: Vec<usize> = way.filter(|at| self.is_below(head.quota, *at) && own(*at, &used)).collect();
        used[head.quota] += head.asked();
        way.into_iter().all(|at| own(at, &used))
    }

    /// The same state as it is to one head: what is kept for those before it is used, and the rules without which it is looked at.
    pub(super) fn seen_by(&self, head: &Head, owns: &dyn Fn(&Head) -> bool, without: Option<Rule>) -> Model {
        let mut model = self.clone();
        let of = |id: JobId| {
            let other = self.heads.iter().find(|h| h.id == id);
            // One that waits for what it was promised is before everybody.
            other.map_or((true, i32::MAX, 0, 0), |h| (owns(h), self.tiers[h.tier].priority, h.priority, h.arrival))
        };
        let mine = owns(head);
        let stays = |id: JobId| id != head.id && !self.before(head, mine, id, &of);
        // What was taken for somebody goes by rank alone.
        let passes = |reserved: &Reserved| {
            let holder = self.heads.iter().find(|h| h.id == reserved.job);
            let holder = holder.filter(|h| self.kept.iter().all(|(id, _, _)| *id != h.id));
            holder.map_or(!stays(reserved.job), |h| mine >= owns(h) && self.passes(head, h, reserved))
        };
        model.kept.retain(|(id, _, _)| stays(*id));
        model.reserved.retain(|reserved| reserved.job != head.id && !passes(reserved));
        for node in &mut model.nodes {
            node.kept_for.retain(|id| stays(*id));
        }
        for (at, node) in model.nodes.iter_mut().enumerate() {
            if model.reserved.iter().any(|r| r.nodes.contains(&at)) || !node.kept_for.is_empty() {
                node.ready = false;
            }
        }
        match without {
            Some(Rule::Tier) => model.tiers.iter_mut().for_each(|tier| tier.stoppable_by.clear()),
            Some(Rule::MinRun) => model.runs.iter_mut().for_each(|run| run.shielded = false),
            Some(Rule::Overdue) => model.runs.iter_mut().for_each(|run| run.overdue = false),
            Some(Rule::MinShare) => model.tiers.iter_mut().for_each(|tier| tier.min_share = 0),
            Some(Rule::Ceiling) => model.ceilings.clear(),
            Some(Rule::Money) => model.money.clear(),
            Some(Rule::Borrow) => {
                model.tree.iter_mut().filter_map(|node| node.limit.as_mut()).for_each(|limit| limit.1 = None)
            }
            Some(Rule::Lend) => {
                model.tree.iter_mut().filter_map(|node| node.limit.as_mut()).for_each(|limit| limit.2 = None)
            }
            _ => {}
        }
        model
    }

    /// GPUs in use by node of the tree.
    pub(super) fn used(&self, gone: &Gone) -> Vec<u64> {
        let mut used = vec![0; self.tree.len()];
        for (run, gone) in self.runs.iter().zip(gone) {
            used[run.quota] += run.held(*gone);
        }
        used
    }

    /// The same with what is kept of quota.
    fn used_and_kept(&self, gone: &Gone) -> Vec<u64> {
        let mut used = self.used(gone);
        for (_, at, share) in &self.kept {
            used[*at] += share;
        }
        used
    }

    fn quota_lets(&self, head: &Head, gone: &Gone) -> bool {
        let mut used = self.used_and_kept(gone);
        used[head.quota] += head.asked();
        stands(&self.tree, &used)
    }

    /// Whether the money above a head's queue lets it run on this kind of node, its part of them.
    fn affords(&self, head: &Head, gone: &Gone, kind: usize) -> bool {
        let kind = &self.kinds[kind];
        self.pays(head, gone, kind.price.div_ceil(kind.gpus) * head.each * head.count)
    }

    /// Whether so much an hour is left of the money above a head's queue: the amount less what is spent, over an hour or what is left of the
    /// period, and never more than the amount an hour. What is asked to stop costs on until it has.
    fn pays(&self, head: &Head, gone: &Gone, costs: u64) -> bool {
        self.money.iter().filter(|money| self.is_below(head.quota, money.at)).all(|money| {
            let ended = self.runs.iter().zip(gone).filter(|(run, gone)| **gone == run.whole());
            let ended: Vec<&Run> = ended.map(|(run, _)| run).filter(|run| self.is_below(run.quota, money.at)).collect();
            let still = ended.iter().map(|run| u128::from(run.rate) * u128::from(run.goes_on)).sum::<u128>();
            let all = u128::from(money.amount) * u128::from(HOUR);
            let most = all.saturating_sub(money.spent + still) / u128::from(money.left);
            let runs = money.running - ended.iter().map(|run| run.rate).sum::<u64>();
            u128::from(runs + costs) <= most.min(u128::from(money.amount))
        })
    }

    fn under_ceilings(&self, stays: &[bool], kind: usize, count: u64) -> bool {
        let held = self.nodes.iter().zip(stays).filter(|(_, stays)| **stays).map(|(node, _)| &self.kinds[node.kind]);
        let (mut nodes, mut gpus, mut spend) = (count, count * self.kinds[kind].gpus, count * self.kinds[kind].price);
        for kind in held {
            (nodes, gpus, spend) = (nodes + 1, gpus + kind.gpus, spend + kind.price);
        }
        self.ceilings.iter().all(|ceiling| {
            ceiling.nodes.is_none_or(|most| nodes <= u64::from(most))
                && ceiling.gpus.is_none_or(|most| gpus <= u64::from(most))
                && ceiling.spend.is_none_or(|most| spend <= most.0)
        })
    }

    /// How a head could start once these are gone. `None`: it could not.
    pub(super) fn starts(&self, head: &Head, gone: &Gone, without: Option<Rule>) -> Option<How> {
        if !self.quota_lets(head, gone) {
            return None;
        }
        let mut free: Vec<u64> = self.nodes.iter().map(|node| node.free).collect();
        let mut empty: Vec<bool> =
            self.nodes.iter().map(|node| node.ready && node.free == self.kinds[node.kind].gpus).collect();
        for (run, gone) in self.runs.iter().zip(gone) {
            for (at, (node, _)) in run.workers.iter().enumerate().filter(|(at, _)| gone & (1 << at) != 0) {
                let _ = at;
                if let Some(free) = free.get_mut(*node) {
                    *free += run.each;
                }
            }
        }
        for (at, node) in self.nodes.iter().enumerate() {
            empty[at] |= node.ready && free[at] == self.kinds[node.kind].gpus;
        }
        let room = |at: usize, left: u32| {
            let node = &self.nodes[at];
            let there = node.ready && left & (1 << at) == 0 && self.affords(head, gone, node.kind);
            if there { free[at] / head.each } else { 0 }
        };
        let places = |left: u32| (0..self.nodes.len()).map(|at| room(at, left)).sum::<u64>();
        if places(0) >= head.count {
            return Some(How::Places);
        }
        let late = head.hurried && without != Some(Rule::StartTarget);
        if !self.tiers[head.tier].buys || late || self.reserved.iter().any(|r| r.room) {
            return None;
        }
        let empties = (0..1u32 << self.nodes.len())
            .filter(|left| (0..self.nodes.len()).all(|at| left & (1 << at) == 0 || empty[at]));
        let mut lefts: Vec<u32> = empties.collect();
        lefts.sort_by_key(|left| left.count_ones());
        for left in lefts {
            let stays: Vec<bool> = (0..self.nodes.len()).map(|at| left & (1 << at) == 0).collect();
            for (at, kind) in self.kinds.iter().enumerate() {
                let a_node = kind.gpus / head.each;
                if a_node == 0 || !self.affords(head, gone, at) {
                    continue;
                }
                for rest in [head.count, head.count - places(left)] {
                    // A pool has one reservation: while somebody before the head has it, no nodes are given back for the head.
                    let may_leave = left == 0 || self.reserved.is_empty();
                    let nodes = rest.div_ceil(a_node);
                    let paid = self.pays(head, gone, nodes * kind.price);
                    if may_leave && paid && self.under_ceilings(&stays, at, nodes) {
                        return Some(if left == 0 { How::Bought } else { How::Room });
                    }
                }
            }
        }
        None
    }
}

/// How a head starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum How {
    /// On nodes that are there.
    Places,
    /// Nodes are bought for it.
    Bought,
    /// Nodes are given back, and others bought.
    Room,
}

/// A boot of every kind of node here, in milliseconds.
pub(super) const BOOT: u64 = 60_000;
const HOUR: u64 = 3_600_000;

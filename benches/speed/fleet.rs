//! An engine with a cloud and a cluster that answer at once, and what it costs to ask it: CPU time of this thread.
//!
//! Never: a delay of its own. Whatever the engine asks for is there when it is asked the next time.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_engine::engine::{Engine, Released};
use forebay_kernel::catalog::{CapacityType, Offering};
use forebay_kernel::effect::{Action, Effect};
use forebay_kernel::event::{Event, GoneWhy, Tick};
use forebay_kernel::ids::{PoolId, QuotaId, TierId};
use forebay_kernel::job::{Gang, JobSpec, WorkerAsk};
use forebay_kernel::journal::Batch;
use forebay_kernel::policy::{
    Buys, Ceiling, Consolidation, Drain, Policy, Pool, QueueRule, QuotaLimit, QuotaNode, Tier,
};
use forebay_kernel::units::{Mib, MilliCpu, MilliGpu, Rate, Span, Timestamp};
use rustix::time::{ClockId, clock_gettime};

/// CPU time of this thread so far, in ns.
pub fn cpu_nanos() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// The number of the first job that is there only so that nodes are bought.
const FILLER: u64 = 1 << 40;

/// What a batch took, in ns.
#[derive(Clone, Copy, Debug, Default)]
pub struct Took {
    /// `open` and every `handle_event`.
    pub events: u64,
    /// `plan`, `close` and `saved`.
    pub plan: u64,
}

impl Took {
    pub fn all(self) -> u64 {
        self.events + self.plan
    }
}

/// The engine, its clock, and what it has asked for.
#[derive(Debug)]
pub struct Fleet {
    pub engine: Engine,
    pub now: Timestamp,
    /// The batches since they were last asked for, where they are to be kept.
    pub batches: Option<Vec<Arc<Batch>>>,
    effects: Vec<Effect>,
    delivered: u64,
    instances: u64,
}

impl Fleet {
    /// An engine under a policy, with nothing.
    pub fn empty(policy: Policy) -> Fleet {
        let mut fleet = Fleet {
            engine: Engine::keeping_finished(0),
            now: Timestamp(1_000),
            batches: None,
            effects: Vec::new(),
            delivered: 0,
            instances: 0,
        };
        fleet.step(vec![Event::Configured(Box::new(policy))]);
        fleet
    }

    /// The same, with so many nodes of the first offering of the first pool that are ready and stay.
    pub fn ready(policy: Policy, nodes: u32) -> Fleet {
        let mut fleet =
            if policy.offerings[0].gpus > 0 { Fleet::kept(&policy, nodes) } else { Fleet::bought(&policy, nodes) };
        fleet.step(vec![Event::Configured(Box::new(policy))]);
        fleet.answer();
        assert_eq!(fleet.nodes(), nodes as usize, "all nodes are ready");
        fleet
    }

    /// Nodes with GPUs are bought for a floor.
    fn kept(policy: &Policy, nodes: u32) -> Fleet {
        let mut floor = policy.clone();
        floor.pools[0].keep_ready = nodes;
        let mut fleet = Fleet::empty(floor);
        fleet.until(|fleet| fleet.nodes() >= nodes as usize);
        fleet
    }

    /// A floor has none without: these are bought for jobs that take a whole node each, and are over at once.
    fn bought(policy: &Policy, nodes: u32) -> Fleet {
        let queue = policy.queues.keys().next().cloned().unwrap_or_default();
        let of = &policy.offerings[0];
        let whole = ask(of.gpus, of.cpu.0, of.mem.0);
        let mut fleet = Fleet::empty(policy.clone());
        fleet.step(submissions((0..u64::from(nodes)).map(|n| job(FILLER + n, &queue, whole))));
        fleet.until(|fleet| fleet.served() >= nodes as usize);
        let runs = fleet.engine.state().jobs();
        let ended = runs.map(|(job, _)| Event::RunCompleted { job: job.id, attempt: job.attempt, worker: None });
        let ended = ended.collect();
        fleet.step(ended);
        fleet
    }

    fn until(&mut self, enough: impl Fn(&Fleet) -> bool) {
        for _ in 0..1000 {
            self.answer();
            if enough(self) {
                return;
            }
            self.now = self.now + Span::secs(30);
            self.step(Vec::new());
        }
    }

    pub fn nodes(&self) -> usize {
        self.engine.state().nodes().count()
    }

    /// One batch through the public loop.
    pub fn step(&mut self, events: Vec<Event>) -> Took {
        let tick = Tick { now: self.now, resumed: false, delivered: self.delivered };
        let begun = cpu_nanos();
        self.engine.open(tick);
        for event in events {
            self.engine.handle_event(event);
        }
        let taken = cpu_nanos();
        let report = self.engine.plan();
        let unsaved = self.engine.close();
        self.batches.as_mut().into_iter().for_each(|batches| batches.push(unsaved.share()));
        let released = unsaved.saved();
        let took = Took { events: taken - begun, plan: cpu_nanos() - taken };
        drop(report);
        self.keep(released);
        took
    }

    fn keep(&mut self, released: Released) {
        self.delivered = released.statuses.last().map_or(self.delivered, |status| status.number);
        self.effects.extend(released.effects);
    }

    /// Answers all that was asked for, until nothing more is.
    pub fn answer(&mut self) -> Took {
        let mut took = Took::default();
        while !self.effects.is_empty() {
            let events = self.answers();
            self.now = self.now + Span(1);
            let one = self.step(events);
            took = Took { events: took.events + one.events, plan: took.plan + one.plan };
        }
        took
    }

    /// What was asked for and is not answered.
    pub fn asked(&self) -> &[Effect] {
        &self.effects
    }

    /// What the world says of what was asked for.
    pub fn answers(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        for effect in std::mem::take(&mut self.effects) {
            match effect.action {
                Action::Launch { purchase, count, .. } => {
                    let names = self.instances..self.instances + u64::from(count);
                    self.instances = names.end;
                    let instances: Vec<String> = names.map(|at| format!("i-{at:08}")).collect();
                    events.push(Event::LaunchOutcome { purchase, instances: instances.clone(), error: None });
                    events.extend(instances.into_iter().map(|instance| Event::NodeReady { instance }));
                }
                Action::Terminate { instance, .. } => {
                    events.push(Event::NodeGone { instance, why: GoneWhy::Terminated });
                }
                Action::Start { job, attempt, .. } => events.push(Event::RunStarted { job, attempt }),
                Action::Stop { job, attempt, .. } => events.push(Event::RunStopped { job, attempt, progress: None }),
                Action::Shrink { job, attempt, leave, .. } => {
                    events.push(Event::RunShrunk { job, attempt, left: leave, node_fault: None });
                }
            }
        }
        events
    }

    /// Jobs that hold places.
    pub fn served(&self) -> usize {
        self.engine.state().jobs().filter(|(job, _)| !job.places.is_empty()).count()
    }

    /// What all nodes cost.
    pub fn cost_per_hour(&self) -> Rate {
        self.engine.state().nodes().fold(Rate(0), |sum, node| sum + node.price)
    }
}

/// An on-demand offering.
pub fn offering(name: &str, gpus: u16, cpu: u64, mem: u64, price: u64) -> Offering {
    Offering {
        instance_type: name.to_owned(),
        zone: "z1".to_owned(),
        capacity: CapacityType::OnDemand,
        gpus,
        gpu_mem: Mib(if gpus > 0 { 80 * 1024 } else { 0 }),
        models: if gpus > 0 { vec!["h100".to_owned()] } else { Vec::new() },
        cpu: MilliCpu(cpu),
        mem: Mib(mem),
        price: Rate(price),
        max_price: Rate(price),
        on_demand: Rate(price),
        boot: Span::secs(60),
        nvlink: gpus.max(1),
        numa: gpus.max(1),
    }
}

/// A policy with one pool, in which nothing is given back or moved by itself.
pub fn policy(offerings: Vec<Offering>, most: Option<u32>) -> Policy {
    Policy {
        name: "speed".to_owned(),
        tiers: vec![Tier { name: "normal".to_owned(), priority: 500, buys: Buys::OnDemand, ..Tier::default() }],
        pools: vec![Pool {
            name: "main".to_owned(),
            offerings: (0..offerings.len()).map(|at| u32::try_from(at).unwrap_or(0)).collect(),
            ceiling: Ceiling { nodes: most, ..Ceiling::default() },
            drain: Drain::After(Span::mins(60 * 24 * 300)),
            ..Pool::default()
        }],
        offerings,
        consolidation: Consolidation { worth_it: 0, ..Consolidation::default() },
        ..Policy::default()
    }
}

/// Adds a node to the quota tree, with a quota in the pool if it has one.
pub fn quota(policy: &mut Policy, name: &str, parent: Option<QuotaId>, limit: Option<QuotaLimit>) -> QuotaId {
    let limits: BTreeMap<PoolId, QuotaLimit> = limit.into_iter().map(|limit| (PoolId(0), limit)).collect();
    policy.quotas.push(QuotaNode { name: name.to_owned(), parent, limits, ..QuotaNode::default() });
    QuotaId(u16::try_from(policy.quotas.len() - 1).unwrap_or(u16::MAX))
}

/// A quota in whole GPUs. `borrow`: how many more; `None`: as many as there are.
pub fn gpus(nominal: u64, borrow: Option<u64>) -> QuotaLimit {
    QuotaLimit { nominal: MilliGpu::whole(nominal), borrow: borrow.map(MilliGpu::whole), lend: None }
}

/// Adds a queue of a tier at a node of the quota tree.
pub fn queue(policy: &mut Policy, name: &str, quota: QuotaId, tier: TierId) {
    let rule = QueueRule { quota, tier, pools: vec![PoolId(0)], ..QueueRule::default() };
    policy.queues.insert(name.to_owned(), rule);
}

/// A job of one worker, by its number.
pub fn job(number: u64, queue: &str, each: WorkerAsk) -> JobSpec {
    JobSpec {
        tenant: "t".to_owned(),
        subject: format!("j{number}"),
        principal: "p".to_owned(),
        queue: queue.to_owned(),
        gang: Gang::Workers { min: 1, max: 1, each },
        digest: u128::from(number),
        ..JobSpec::default()
    }
}

/// What a worker asks with whole GPUs.
pub fn ask(gpus: u16, cpu: u64, mem: u64) -> WorkerAsk {
    WorkerAsk { gpus, share: 1000, gpu_mem: Mib(0), cpu: MilliCpu(cpu), mem: Mib(mem) }
}

/// The submissions of some jobs.
pub fn submissions(jobs: impl Iterator<Item = JobSpec>) -> Vec<Event> {
    jobs.map(|spec| Event::JobSubmitted(Box::new(spec))).collect()
}

/// A draw that is the same everywhere: SplitMix64.
#[derive(Clone, Copy, Debug)]
pub struct Draws(pub u64);

impl Draws {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound.max(1)
    }
}

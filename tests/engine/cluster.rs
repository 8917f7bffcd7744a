//! A tiny cloud and cluster around one engine: instances boot, gangs start, finish and stop after fixed times.
//!
//! It keeps its own books of what is alive where, and after every batch it checks what must always hold against them:
//!
//! ```text
//! batch -> bytes -> shadow engine replays it      snapshots equal, restored engine equal
//! index = rebuilt index, audit empty, ceilings, status numbers, a second pass decides nothing
//! start  -> gang whole, one model, nodes up, no GPU above 1000/1000, no second attempt alive
//! terminate -> nothing alive there
//! ```
//!
//! Never: asks the engine whether a decision was right.

use alloc::collections::{BTreeMap, BTreeSet};
use forebay_engine::catalog::CapacityType;
use forebay_engine::decision::Decision;
use forebay_engine::effect::{Action, Effect, Status, WorkerPlace};
use forebay_engine::engine::Engine;
use forebay_engine::event::{Event, GoneWhy, LaunchError, Tick};
use forebay_engine::ids::{Attempt, JobId, NodeId, OfferingId, Seq};
use forebay_engine::job::{Gang, JobSpec};
use forebay_engine::journal::Batch;
use forebay_engine::policy::{Ceiling, Policy};
use forebay_engine::state::State;
use forebay_engine::units::{Millis, Rate, Span};

/// How long the world takes, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Delays {
    /// From a launch to its outcome.
    pub launch: u64,
    /// From a start to its report.
    pub start: u64,
    /// From a stop to its report.
    pub stop: u64,
    /// From a termination to its report.
    pub terminate: u64,
}

/// What the cloud does with launches of one offering.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stock {
    /// Instances that there are still. `None`: plenty.
    pub left: Option<u32>,
    /// Every launch is refused with this.
    pub refuses: Option<LaunchError>,
    /// Instances exist but never become ready.
    pub never_ready: bool,
}

/// Effects that the world does not hear, so that they have to be repeated.
#[derive(Clone, Copy, Debug, Default)]
pub struct Deaf {
    /// To launches.
    pub launch: bool,
    /// To starts.
    pub start: bool,
    /// To stops.
    pub stop: bool,
    /// To terminations.
    pub terminate: bool,
}

/// A gang as the cluster has it.
#[derive(Clone, Debug)]
struct Run {
    attempt: Attempt,
    places: Vec<WorkerPlace>,
    gang: Gang,
    alive: bool,
    whole: bool,
    resumed_from: u64,
    since: Option<u64>,
    restart: u64,
}

/// Everything that was seen so far.
#[derive(Debug, Default)]
pub struct Log {
    /// All batches.
    pub batches: Vec<Batch>,
    /// All effects, repeats included.
    pub effects: Vec<Effect>,
    /// All status messages.
    pub statuses: Vec<Status>,
}

/// The world and its engine.
pub struct Cluster {
    /// Under test.
    pub engine: Engine,
    shadow: Engine,
    /// Milliseconds since the start.
    pub now: u64,
    /// How long things take.
    pub delays: Delays,
    /// What the cloud has; absent: plenty.
    pub stock: BTreeMap<OfferingId, Stock>,
    /// What the world does not hear.
    pub deaf: Deaf,
    /// How long the work of a subject takes in all. Absent: until told.
    pub work: BTreeMap<String, u64>,
    /// Seen so far.
    pub log: Log,
    later: BTreeMap<(u64, u64), Event>,
    heard: BTreeSet<Seq>,
    runs: BTreeMap<JobId, Run>,
    instances: BTreeMap<String, bool>,
    launched: u64,
    ordinal: u64,
    seqs: BTreeMap<JobId, u32>,
    /// How the engine lives.
    pub mode: Mode,
}

/// How the engine lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// All checks, those of restored engines and repeated passes included (slow).
    Plain,
    /// All checks but that a second pass has nothing to add.
    Careful,
    /// The cheap checks only.
    Quick,
    /// Nothing is remembered between passes.
    NoMemos,
    /// Dropped and restored before every so many batches.
    Crashes(usize),
}

impl Cluster {
    /// A world under a policy, at time zero.
    pub fn new(policy: Policy) -> Cluster {
        let mut cluster = Cluster {
            engine: Engine::new(),
            shadow: Engine::new(),
            now: 0,
            delays: Delays {
                launch: 2_000,
                start: 5_000,
                stop: 10_000,
                terminate: 3_000,
            },
            stock: BTreeMap::new(),
            deaf: Deaf::default(),
            work: BTreeMap::new(),
            log: Log::default(),
            later: BTreeMap::new(),
            heard: BTreeSet::new(),
            runs: BTreeMap::new(),
            instances: BTreeMap::new(),
            launched: 0,
            ordinal: 0,
            seqs: BTreeMap::new(),
            mode: Mode::Plain,
        };
        cluster.step(vec![Event::Configured(Box::new(policy))], false);
        cluster
    }

    /// What the engine knows.
    pub fn state(&self) -> &State {
        self.engine.state()
    }

    /// The latest job of a subject.
    pub fn id(&self, subject: &str) -> Option<JobId> {
        self.state().job_of("t", subject)
    }

    /// Submits a job.
    pub fn submit(&mut self, spec: JobSpec) {
        self.step(vec![Event::JobSubmitted(Box::new(spec))], false);
    }

    /// Lets time pass up to `until`, with everything that falls due on the way.
    pub fn run_until(&mut self, until: u64) {
        for _ in 0..20_000 {
            let due = self.later.first_key_value().map(|(key, _)| key.0);
            let asked = self.engine.poll_timeout().map(|at| at.0);
            let next = due.into_iter().chain(asked).min();
            let Some(at) = next.filter(|at| *at <= until) else {
                self.now = self.now.max(until);
                return;
            };
            self.now = self.now.max(at);
            let mut events = Vec::new();
            while let Some(entry) = self.later.first_entry() {
                if entry.key().0 > self.now {
                    break;
                }
                let event = entry.remove();
                if self.comes_true(&event) {
                    events.push(event);
                }
            }
            self.step(events, false);
        }
        panic!("never comes to rest: time stands at {} ms", self.now);
    }

    /// Whether anything will still happen by itself.
    pub fn at_rest(&self) -> bool {
        self.later.is_empty() && self.engine.poll_timeout().is_none()
    }

    /// One batch, journaled, replayed, checked, and its effects acted on.
    pub fn step(&mut self, events: Vec<Event>, resumed: bool) {
        for event in &events {
            self.note(event);
        }
        let delivered = self.log.statuses.last().map_or(0, |s| s.number);
        let tick = Tick {
            now: Millis(self.now),
            resumed,
            delivered,
        };
        match self.mode {
            Mode::NoMemos => self.engine.forget_memos(true),
            Mode::Crashes(every) if self.log.batches.len() % every == 0 => {
                let snapshot = self.engine.snapshot();
                self.engine = Engine::restore(&snapshot).expect("a snapshot can be read back");
            }
            _ => {}
        }
        self.engine.open(tick);
        for event in events {
            self.engine.handle_event(event);
        }
        let _ = self.engine.plan();
        let unsaved = self.engine.close();
        let bytes = unsaved.batch().encode();
        let batch = Batch::decode(&bytes).expect("a batch can be read back");
        assert_eq!(&batch, unsaved.batch(), "a batch read back is the same");
        self.shadow.replay(&batch);
        let released = unsaved.saved();
        self.log.batches.push(batch);
        self.check(&released.statuses);
        self.log.statuses.extend(released.statuses);
        self.log.effects.extend(released.effects.iter().cloned());
        for effect in released.effects {
            self.act(effect);
        }
    }

    fn check(&mut self, statuses: &[Status]) {
        let snapshot = self.engine.snapshot();
        assert_eq!(snapshot, self.shadow.snapshot(), "replay gives the same state");
        let index = self.engine.rebuilt_index();
        assert_eq!(self.state().index(), &index, "the index is what the rows say");
        assert_eq!(self.engine.audit(), Vec::<String>::new(), "the audit");
        self.ceilings();
        let mut number = self.log.statuses.last().map_or(0, |s| s.number);
        for status in statuses {
            number += 1;
            assert_eq!(status.number, number, "the stream has no gap and no double");
            if let Some(job) = status.job {
                let seq = self.seqs.entry(job).or_default();
                *seq += 1;
                assert_eq!(status.seq, *seq, "{job}'s messages have no gap and no double");
            }
        }
        if matches!(self.mode, Mode::Plain | Mode::Careful) {
            self.nothing_to_add(&snapshot);
        }
    }

    /// A restored engine decides nothing more, and all that it tried on the way has left no trace.
    fn nothing_to_add(&self, snapshot: &[u8]) {
        let tick = Tick {
            now: Millis(self.now),
            resumed: false,
            delivered: 0,
        };
        let restored = || Engine::restore(snapshot).expect("a snapshot can be read back");
        let (mut idle, mut again) = (restored(), restored());
        assert_eq!(again.snapshot(), snapshot, "a restored state is the same");
        for engine in [&mut idle, &mut again] {
            engine.open(tick);
        }
        let _ = again.plan();
        let _ = idle.close();
        let more = again.close();
        let none: Vec<Decision> = Vec::new();
        if self.mode == Mode::Plain {
            assert_eq!(more.batch().decisions, none, "a recovered engine has nothing to add");
        }
        if more.batch().decisions.is_empty() {
            assert!(again.snapshot() == idle.snapshot(), "tries leave no trace");
        }
    }

    /// Every ceiling, counted from the claims alone.
    fn ceilings(&self) {
        let state = self.state();
        let Some(policy) = state.policy() else { return };
        if state.counters().configured > 1 || state.counters().orphans > 0 {
            return;
        }
        let whole = core::iter::once((None, &policy.limits));
        let pools = policy.pools.iter().enumerate();
        let pools = pools.map(|(at, pool)| (Some(at), &pool.ceiling));
        for (pool, ceiling) in whole.chain(pools) {
            let mut held = (0, 0, 0, Rate(0));
            for node in state.nodes() {
                if pool.is_none_or(|at| node.pool.ix() == at) {
                    let offer = &state.offerings()[node.offering.ix()].offer;
                    held.0 += 1;
                    held.1 += u32::from(offer.capacity == CapacityType::OnDemand);
                    held.2 += u32::from(offer.gpus);
                    held.3 = held.3 + offer.max_price;
                }
            }
            within(ceiling, held);
        }
    }

    fn after(&mut self, delay: u64, event: Event) {
        self.ordinal += 1;
        self.later.insert((self.now + delay, self.ordinal), event);
    }

    /// What the world does about an effect, once: repeats of one that was heard change nothing.
    fn act(&mut self, effect: Effect) {
        let deaf = match effect.action {
            Action::Launch { .. } => self.deaf.launch,
            Action::Terminate { .. } => self.deaf.terminate,
            Action::Start { .. } => self.deaf.start,
            Action::Stop { .. } => self.deaf.stop,
        };
        if deaf || !self.heard.insert(effect.id) {
            return;
        }
        match effect.action {
            Action::Launch {
                purchase,
                offering,
                count,
                at_least,
            } => {
                let stock = self.stock.entry(offering).or_default();
                let had = count.min(stock.left.unwrap_or(u32::MAX));
                let (had, error) = match stock.refuses {
                    Some(error) => (0, Some(error)),
                    None if had < at_least => (0, Some(LaunchError::Capacity)),
                    None if had < count => (had, Some(LaunchError::Capacity)),
                    None => (had, None),
                };
                stock.left = stock.left.map(|left| left - had);
                let never = stock.never_ready;
                let boot = self.state().offerings()[offering.ix()].offer.boot.0;
                let mut instances = Vec::new();
                for _ in 0..had {
                    let instance = format!("i-{}", self.launched);
                    self.launched += 1;
                    self.instances.insert(instance.clone(), false);
                    if !never {
                        let ready = Event::NodeReady {
                            instance: instance.clone(),
                        };
                        self.after(self.delays.launch + boot, ready);
                    }
                    instances.push(instance);
                }
                let outcome = Event::LaunchOutcome {
                    purchase,
                    instances,
                    error,
                };
                self.after(self.delays.launch, outcome);
            }
            Action::Terminate { instance, .. } => {
                for (job, run) in self.runs.iter().filter(|(_, run)| run.alive) {
                    let there = run.places.iter().any(|p| self.on(p) == instance);
                    assert!(!there, "{instance} is terminated under {job}");
                }
                let why = GoneWhy::Terminated;
                self.after(self.delays.terminate, Event::NodeGone { instance, why });
            }
            Action::Start {
                job,
                attempt,
                workers,
                resume_from,
            } => self.start(job, attempt, workers, resume_from.0),
            Action::Stop {
                job,
                attempt,
                checkpoint,
                ..
            } => self.stop(job, attempt, checkpoint),
        }
    }

    fn start(&mut self, job: JobId, attempt: Attempt, places: Vec<WorkerPlace>, from: u64) {
        let alive = self.runs.get(&job).is_some_and(|run| run.alive);
        assert!(!alive, "{job} starts a second attempt beside the first");
        let (_, spec) = self.state().job(job).expect("a job that starts exists");
        let count = places.len() as u32;
        match &spec.gang {
            Gang::Workers { min, max, .. } => assert!((*min..=*max).contains(&count)),
            Gang::Spanning { gpus, .. } => {
                let sum: u32 = places.iter().map(|p| p.gpus.count_ones()).sum();
                assert_eq!(sum, *gpus, "{job} starts whole");
            }
        }
        let run = Run {
            attempt,
            gang: spec.gang.clone(),
            alive: true,
            whole: true,
            resumed_from: from,
            since: None,
            restart: spec.restart.0,
            places,
        };
        let model = |p: &WorkerPlace| {
            let node = self.state().node(p.node).expect("a claim");
            self.state().offerings()[node.offering.ix()].models.first().copied()
        };
        let models: BTreeSet<_> = run.places.iter().map(model).collect();
        assert_eq!(models.len(), 1, "{job} is of one model");
        for place in &run.places {
            let up = self.instances.get(&self.on(place)).copied();
            assert_eq!(up, Some(true), "{job} starts on a node that is up");
        }
        self.runs.insert(job, run);
        self.room();
        self.after(self.delays.start, Event::RunStarted { job, attempt });
    }

    /// No GPU, core or byte is taken twice.
    fn room(&self) {
        let mut gpus: BTreeMap<(NodeId, usize), (u64, u64)> = BTreeMap::new();
        let mut hosts: BTreeMap<NodeId, (u64, u64)> = BTreeMap::new();
        for run in self.runs.values().filter(|run| run.alive) {
            for place in &run.places {
                let (each, n) = match &run.gang {
                    Gang::Workers { each, .. } => (each, 1),
                    Gang::Spanning { per_gpu, .. } => {
                        (per_gpu, u64::from(place.gpus.count_ones()))
                    }
                };
                let host = hosts.entry(place.node).or_default();
                *host = (host.0 + each.cpu.0 * n, host.1 + each.mem.0 * n);
                for at in (0..64).filter(|at| place.gpus & (1 << at) != 0) {
                    let gpu = gpus.entry((place.node, at)).or_default();
                    *gpu = (gpu.0 + u64::from(place.share), gpu.1 + each.gpu_mem.0);
                }
            }
        }
        let offer = |node: NodeId| {
            let node = self.state().node(node)?;
            Some(&self.state().offerings()[node.offering.ix()].offer)
        };
        for ((node, at), (share, mem)) in gpus {
            let Some(offer) = offer(node) else { continue };
            assert!(at < usize::from(offer.gpus), "{node} has no GPU {at}");
            assert!(share <= 1000, "{node} GPU {at} is taken {share}/1000");
            assert!(mem <= offer.gpu_mem.0, "{node} GPU {at} is out of memory");
        }
        for (node, (cpu, mem)) in hosts {
            let Some(offer) = offer(node) else { continue };
            assert!(cpu <= offer.cpu.0 && mem <= offer.mem.0, "{node} is too full");
        }
    }

    fn stop(&mut self, job: JobId, attempt: Attempt, checkpoint: bool) {
        let run = self.runs.get(&job).filter(|run| run.attempt == attempt && run.whole);
        let done = run.and_then(|run| {
            let worked = (self.now + self.delays.stop).saturating_sub(run.since? + run.restart);
            Some(Span(run.resumed_from + worked))
        });
        let progress = done.filter(|_| checkpoint);
        let stopped = Event::RunStopped {
            job,
            attempt,
            progress,
        };
        self.after(self.delays.stop, stopped);
    }

    /// The instance of a place.
    fn on(&self, place: &WorkerPlace) -> String {
        let node = self.state().node(place.node);
        node.and_then(|n| n.instance.clone()).unwrap_or_default()
    }

    /// Whether something planned for now still happens: the dead report nothing.
    fn comes_true(&self, event: &Event) -> bool {
        let lives = |job: &JobId, attempt: &Attempt| {
            let run = self.runs.get(job);
            run.is_some_and(|run| run.alive && run.attempt == *attempt)
        };
        match event {
            Event::NodeReady { instance }
            | Event::NodeGone { instance, .. }
            | Event::ReclaimNotice { instance, .. } => self.instances.contains_key(instance),
            Event::RunStarted { job, attempt } => lives(job, attempt),
            Event::RunCompleted { job, attempt, .. } => {
                lives(job, attempt) && self.runs[job].whole
            }
            _ => true,
        }
    }

    /// Keeps the world's books when something happens in it.
    fn note(&mut self, event: &Event) {
        match event {
            Event::NodeReady { instance } => {
                self.instances.entry(instance.clone()).and_modify(|up| *up = true);
            }
            Event::NodeGone { instance, .. } => self.node_gone(instance),
            Event::RunStarted { job, attempt } => {
                let now = self.now;
                let name = self.state().job(*job).map(|j| j.1.subject.clone());
                let Some(run) = self.runs.get_mut(job).filter(|r| r.attempt == *attempt) else {
                    return;
                };
                run.since = Some(now);
                let (from, restart) = (run.resumed_from, run.restart);
                if let Some(work) = name.and_then(|name| self.work.get(&name).copied()) {
                    let completed = Event::RunCompleted {
                        job: *job,
                        attempt: *attempt,
                        worker: None,
                    };
                    self.after(restart + work.saturating_sub(from), completed);
                }
            }
            Event::RunCompleted {
                job,
                attempt,
                worker: None,
            }
            | Event::RunFailed { job, attempt, .. }
            | Event::RunStopped { job, attempt, .. } => {
                if let Some(run) = self.runs.get_mut(job).filter(|r| r.attempt == *attempt) {
                    run.alive = false;
                }
            }
            _ => {}
        }
    }

    fn node_gone(&mut self, instance: &str) {
        self.instances.remove(instance);
        let Some(node) = self.state().node_of(instance).map(|n| n.id) else {
            return;
        };
        for run in self.runs.values_mut() {
            if run.places.iter().any(|p| p.node == node) {
                run.places.retain(|p| p.node != node);
                run.whole = false;
                run.alive &= !run.places.is_empty();
            }
        }
    }

    /// The cloud's id of a claim.
    pub fn instance(&self, node: NodeId) -> Option<String> {
        self.state().node(node)?.instance.clone()
    }

    /// The run of a job that is alive in the world.
    pub fn alive(&self, job: JobId) -> Option<Attempt> {
        self.runs.get(&job).filter(|r| r.alive).map(|r| r.attempt)
    }

    /// An instance that nobody bought comes up.
    pub fn stray(&mut self, instance: &str, offering: OfferingId) {
        self.instances.insert(instance.into(), true);
        let instance = instance.into();
        self.step(vec![Event::OrphanSeen { instance, offering }], false);
    }

    /// An event now, if it can be true now.
    pub fn happens(&mut self, event: Event) {
        if self.comes_true(&event) {
            self.step(vec![event], false);
        }
    }

    /// Something that happens in a while.
    pub fn soon(&mut self, delay: u64, event: Event) {
        self.after(delay, event);
    }
}

fn within(ceiling: &Ceiling, held: (u32, u32, u32, Rate)) {
    let below = |most: Option<u32>, held: u32| most.is_none_or(|most| held <= most);
    let fits = below(ceiling.nodes, held.0)
        && below(ceiling.on_demand_nodes, held.1)
        && below(ceiling.gpus, held.2)
        && ceiling.spend.is_none_or(|most| held.3 <= most);
    assert!(fits, "{held:?} held under {ceiling:?}");
}

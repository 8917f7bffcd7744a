//! A tiny cloud and cluster around one engine: instances boot, gangs start, finish and stop after fixed times.
//!
//! It keeps its own books of what is alive where, and after every batch it checks what must always hold against them:
//!
//! ```text
//! batch -> bytes -> shadow engine replays it      ceilings, status numbers
//! snapshots equal, index = rebuilt index, audit empty, a second pass decides nothing      (after each batch, or one of four: `Mode`)
//! start  -> gang whole, one model, nodes up, no GPU above 1000/1000, no second attempt alive
//! terminate -> nothing alive there, and never an owned node
//! owned  -> with what others hold, no more is started than there is
//! done   -> a job whose criterion was met is completed, however its run ends, and not started again
//! fails  -> a gang that has lost a node and then fails uses up no retry
//! ```
//!
//! Never: asks the engine whether a decision was right.

mod world;

use alloc::collections::{BTreeMap, BTreeSet};
use forebay_engine::engine::Engine;
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::decision::{Decision, Outcome};
use forebay_kernel::effect::{Effect, Status, WorkerPlace};
use forebay_kernel::event::{Event, GoneWhy, LaunchError, Tick};
use forebay_kernel::ids::{Attempt, JobId, NodeId, OfferingId, Seq};
use forebay_kernel::job::{Gang, JobSpec};
use forebay_kernel::journal::Batch;
use forebay_kernel::policy::{Ceiling, Policy};
use forebay_kernel::reason::Reason;
use forebay_kernel::state::State;
use forebay_kernel::state::freeze::Thaw;
use forebay_kernel::state::jobs::Job;
use forebay_kernel::state::owned::OwnedNode;
use forebay_kernel::units::{Rate, Timestamp};
use forebay_sim::memory::state_bytes;

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
    /// The number of the worker at each place.
    numbers: Vec<u32>,
    left: Vec<u32>,
    /// Workers that have finished, by number.
    finished: BTreeSet<u32>,
    leader: bool,
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
    /// Jobs whose runs never answer a stop.
    pub hangs: BTreeSet<JobId>,
    /// Subjects whose runs never report that they have started.
    pub mute: BTreeSet<String>,
    /// How long the work of a subject takes in all. Absent: until told.
    pub work: BTreeMap<String, u64>,
    /// Seen so far.
    pub log: Log,
    later: BTreeMap<(u64, u64), Event>,
    heard: BTreeSet<Seq>,
    runs: BTreeMap<JobId, Run>,
    instances: BTreeMap<String, bool>,
    /// Nodes that nobody bought, as the engine was last told of them.
    owned: BTreeMap<String, OwnedNode>,
    /// Jobs whose leader, or any worker where any one does, has finished.
    met: BTreeSet<JobId>,
    /// Jobs that failed in this batch for want of a lost node, and how often they had failed by themselves before.
    bereft: BTreeMap<JobId, u32>,
    launched: u64,
    ordinal: u64,
    seqs: BTreeMap<JobId, u32>,
    /// How the engine lives.
    pub mode: Mode,
}

/// How the engine lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// All checks after each batch, those of restored engines and repeated passes included (slow).
    Plain,
    /// All checks but that a second pass has nothing to add; what looks at the whole state, after one batch of [`WHOLE`].
    Careful,
    /// What looks at the whole state after one batch of [`WHOLE`], and never what restores it.
    Quick,
    /// Nothing is remembered between passes.
    NoMemos,
    /// Dropped and restored before every so many batches.
    Crashes(usize),
}

/// What looks at the whole state takes most of the time of a life, and what it finds mostly stays: one batch of so many is enough where
/// lives are many.
const WHOLE: usize = 4;

impl Cluster {
    /// A world under a policy, at time zero.
    pub fn new(policy: Policy) -> Cluster {
        let mut cluster = Cluster {
            engine: Engine::new(),
            shadow: Engine::new(),
            now: 0,
            delays: Delays { launch: 2_000, start: 5_000, stop: 10_000, terminate: 3_000 },
            stock: BTreeMap::new(),
            deaf: Deaf::default(),
            hangs: BTreeSet::new(),
            mute: BTreeSet::new(),
            work: BTreeMap::new(),
            log: Log::default(),
            later: BTreeMap::new(),
            heard: BTreeSet::new(),
            runs: BTreeMap::new(),
            instances: BTreeMap::new(),
            owned: BTreeMap::new(),
            met: BTreeSet::new(),
            bereft: BTreeMap::new(),
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

    /// The latest job of a subject, or the replica of that name.
    pub fn id(&self, subject: &str) -> Option<JobId> {
        let replica = |(job, _): &(&Job, &JobSpec)| job.service.is_some();
        let mut replicas = self.state().jobs().filter(replica).filter(|(_, spec)| spec.subject == subject);
        self.state().job_of("t", subject).or_else(|| Some(replicas.next()?.0.id))
    }

    /// Submits a job.
    pub fn submit(&mut self, spec: JobSpec) {
        self.step(vec![Event::JobSubmitted(Box::new(spec))], false);
    }

    /// All of them in one pass.
    pub fn submit_all(&mut self, specs: Vec<JobSpec>) {
        self.step(specs.into_iter().map(|spec| Event::JobSubmitted(Box::new(spec))).collect(), false);
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

    /// One batch, journaled, replayed, checked, and its effects acted on.
    pub fn step(&mut self, events: Vec<Event>, resumed: bool) {
        for event in &events {
            self.note(event);
        }
        let delivered = self.log.statuses.last().map_or(0, |s| s.number);
        let tick = Tick { now: Timestamp(self.now), resumed, delivered };
        match self.mode {
            Mode::NoMemos => self.engine.disable_memos(),
            Mode::Crashes(every) if self.log.batches.len().is_multiple_of(every) => {
                let snapshot = state_bytes(&self.engine);
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
        let bytes = unsaved.batch().encode().expect("a batch can be encoded");
        let batch = Batch::decode(&bytes).expect("a batch can be read back");
        assert_eq!(&batch, unsaved.batch(), "a batch read back is the same");
        self.shadow.replay(&batch);
        let released = unsaved.saved();
        for decision in &batch.decisions {
            match decision {
                Decision::Start { job } => {
                    assert!(!self.met.contains(job), "{job} is started again, its work is done");
                    self.beside_others(*job);
                }
                Decision::Finish { job, outcome, .. } if self.met.contains(job) => {
                    assert_eq!(*outcome, Outcome::Completed, "{job}'s work is done");
                }
                Decision::Finish { job, reason, .. } if self.bereft.contains_key(job) => {
                    assert!(!matches!(reason, Some(Reason::ExitCode { .. })), "{job} failed for want of a lost node");
                }
                _ => {}
            }
        }
        for (job, before) in core::mem::take(&mut self.bereft) {
            let failures = self.state().job(job).map_or(before, |(row, _)| row.failures);
            assert_eq!(failures, before, "{job} failed for want of a lost node");
        }
        self.log.batches.push(batch);
        self.check(&released.statuses);
        self.log.statuses.extend(released.statuses);
        self.log.effects.extend(released.effects.iter().cloned());
        for effect in released.effects {
            self.act(effect);
        }
    }

    fn check(&mut self, statuses: &[Status]) {
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
        let one_of_four = self.log.batches.len() % WHOLE == 1;
        if self.mode == Mode::Plain || one_of_four {
            self.check_whole(one_of_four);
        }
    }

    /// What looks at the whole state; with `thawed` also whether it can be put together from its chunks.
    fn check_whole(&self, thawed: bool) {
        let snapshot = state_bytes(&self.engine);
        assert_eq!(snapshot, state_bytes(&self.shadow), "replay gives the same state");
        let index = self.engine.rebuilt_index();
        assert_eq!(self.state().index(), &index, "the index is what the rows say");
        assert_eq!(self.engine.audit(), Vec::<String>::new(), "the audit");
        if matches!(self.mode, Mode::Plain | Mode::Careful) {
            self.nothing_to_add(&snapshot);
            if thawed {
                assert!(self.thawed() == snapshot, "a state put together from its chunks is the same");
            }
        }
    }

    /// A restored engine decides nothing more, and all that it tried on the way has left no trace.
    fn nothing_to_add(&self, snapshot: &[u8]) {
        let tick = Tick { now: Timestamp(self.now), resumed: false, delivered: 0 };
        let restored = || Engine::restore(snapshot).expect("a snapshot can be read back");
        let (mut idle, mut again) = (restored(), restored());
        assert_eq!(state_bytes(&again), snapshot, "a restored state is the same");
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
            assert!(state_bytes(&again) == state_bytes(&idle), "tries leave no trace");
        }
    }

    /// The bytes of the state after it was taken apart into chunks and put together again.
    fn thawed(&self) -> Vec<u8> {
        let mut thaw = Thaw::default();
        for chunk in self.state().freeze().into_chunks() {
            let bytes = chunk.content.encode().expect("a chunk can be encoded");
            thaw.take(chunk.id, &bytes).expect("a chunk can be read back");
        }
        thaw.finish().expect("the chunks belong together").encode().expect("a state can be encoded")
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
            for node in state.bought_nodes() {
                if pool.is_none_or(|at| node.pool.index() == at) {
                    let offer = &state.offerings()[node.offering.index()].offer;
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

    /// A node is lost, and a run fails for want of it before anybody hears of either.
    pub fn fails_with(&mut self, instance: String, (job, attempt): (JobId, Attempt)) {
        let failed = Event::RunFailed { job, attempt, exit_code: 1, node_fault: None };
        self.step(vec![Event::NodeGone { instance, why: GoneWhy::Lost }, failed], false);
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

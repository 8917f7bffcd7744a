//! A world that answers at once: whatever is asked for is so a second later, and nothing ends by itself. And numbers out of one seed.
//!
//! Never: checks what the engine decides beyond its own counts.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use forebay_engine::engine::{Engine, Unsaved};
use forebay_kernel::decision::{Decision, StopCause};
use forebay_kernel::effect::Action;
use forebay_kernel::event::{Event, GoneWhy, Tick};
use forebay_kernel::ids::JobId;
use forebay_kernel::policy::{Policy, PreemptWithin, Reclaim};
use forebay_kernel::units::Timestamp;

/// Numbers out of one seed.
pub(in super::super) struct Dice(pub u64);

impl Dice {
    /// Below `bound`.
    pub(in super::super) fn roll(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut n = self.0;
        n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (n ^ (n >> 31)) % bound
    }
}

/// A batch of an engine.
fn passed(engine: &mut Engine, tick: Tick, events: Vec<Event>) -> Unsaved {
    engine.open(tick);
    events.into_iter().for_each(|event| _ = engine.handle_event(event));
    let _ = engine.plan();
    engine.close()
}

/// The shortest way round: whatever is asked for is so a second later, a node after its boot. Nothing ends by itself.
pub(in super::super) struct Loop {
    pub engine: Engine,
    /// The same without memos and without bounds on what is searched: it has to decide the same.
    pub plain: Option<Engine>,
    /// Milliseconds.
    pub now: u64,
    /// How long a node takes from its launch until it is ready.
    pub boot: u64,
    /// Runs take up to so many milliseconds more to stop, each its own time.
    pub slowest_stop: u64,
    later: BTreeMap<(u64, u64), Event>,
    planned: u64,
    launched: u32,
    /// Who took from whom, and in which wait of its own.
    taken: BTreeSet<(JobId, u32, JobId)>,
    /// Runs stopped for others since something was last submitted.
    pub victims: BTreeMap<JobId, u32>,
    /// Stops and shrinkings for others in all.
    pub stops: u32,
    /// What the last step decided.
    pub decided: Vec<Decision>,
}

impl Loop {
    /// Under a policy, at time zero, beside an engine that has neither memos nor bounds.
    pub(in super::super) fn beside_plain(policy: Policy, boot: u64) -> Result<Loop, String> {
        let mut world = Loop::empty(boot);
        let mut plain = Engine::new();
        plain.disable_memos();
        world.plain = Some(plain);
        world.step(Some(Event::Configured(Box::new(policy))))?;
        Ok(world)
    }

    /// Under a policy, at time zero, with nodes that boot so long.
    pub(in super::super) fn new(policy: Policy, boot: u64) -> Result<Loop, String> {
        let mut world = Loop::empty(boot);
        world.step(Some(Event::Configured(Box::new(policy))))?;
        Ok(world)
    }

    fn empty(boot: u64) -> Loop {
        Loop {
            engine: Engine::new(),
            plain: None,
            now: 0,
            boot,
            slowest_stop: 0,
            later: BTreeMap::new(),
            planned: 0,
            launched: 0,
            taken: BTreeSet::new(),
            victims: BTreeMap::new(),
            stops: 0,
            decided: Vec::new(),
        }
    }

    /// One batch: what is due, one event more, a pass.
    pub(in super::super) fn step(&mut self, more: Option<Event>) -> Result<(), String> {
        if more.is_some() {
            // A new job may take what was promised to another, which has to look again.
            self.taken.clear();
            self.victims.clear();
        }
        let shows = std::env::var_os("FOREBAY_SHOW").is_some();
        if let Some(event) = more.as_ref().filter(|_| shows) {
            println!("{} {event:#?}", self.now);
        }
        let mut events = Vec::new();
        while let Some(entry) = self.later.first_entry().filter(|entry| entry.key().0 <= self.now) {
            events.push(entry.remove());
        }
        events.extend(more);
        let tick = Tick { now: Timestamp(self.now), resumed: false, delivered: u64::MAX };
        let plain = self.plain.as_mut().map(|plain| passed(plain, tick, events.clone()).batch().decisions.clone());
        let unsaved = passed(&mut self.engine, tick, events);
        self.decided.clone_from(&unsaved.batch().decisions);
        if let Some(plain) = plain.filter(|plain| *plain != self.decided) {
            return Err(format!("{:?} is decided, and without memos and bounds {plain:?}", self.decided));
        }
        if shows {
            println!("{} {:#?}", self.now, self.decided.iter().map(|one| format!("{one:?}")).collect::<Vec<_>>());
        }
        for decision in &unsaved.batch().decisions {
            let (Decision::Stop { job, cause, .. } | Decision::Shrink { job, cause, .. }) = decision else { continue };
            if let StopCause::Preempted { by } | StopCause::QuotaReclaimed { by } = cause {
                self.stops += 1;
                self.is_allowed(*by, *job)?;
                let waits = self.engine.state().job(*by).map_or(0, |(row, _)| row.interruptions);
                // A gang that gave up a worker may have to give up the rest when a job above the taker got it.
                let stop = matches!(decision, Decision::Stop { .. });
                *self.victims.entry(*job).or_default() += u32::from(stop);
                // Where priority numbers or lengths stop runs, one start in some 50,000 has a run stopped twice for one wait before it rests.
                if stop && !self.taken.insert((*by, waits, *job)) && !self.by_number() {
                    return Err(format!("{by} takes from {job} twice"));
                }
            }
        }
        for effect in unsaved.saved().effects {
            self.answer(effect.action);
        }
        Ok(())
    }

    fn by_number(&self) -> bool {
        let policy = self.engine.state().policy().expect("a policy");
        let by_number = [PreemptWithin::LowerPriority, PreemptWithin::LongerExpected];
        policy.rules().any(|rule| by_number.contains(&rule.preempt_within))
    }

    /// By the rules as they are written, from the rows alone.
    fn is_allowed(&self, by: JobId, job: JobId) -> Result<(), String> {
        let state = self.engine.state();
        let (Some((taker, spec)), Some((run, other))) = (state.job(by), state.job(job)) else { return Ok(()) };
        let policy = state.policy().expect("a policy");
        let rule = &policy.queues[&spec.queue];
        let (high, low) = (&policy.tiers[taker.tier.index()], &policy.tiers[run.tier.index()]);
        let lower = low.priority < high.priority;
        let named = low.stoppable_by.contains(&taker.tier) || (lower && low.max_run_while_others_wait.is_some());
        let good = if spec.queue == other.queue {
            let alike = taker.tier == run.tier && run.priority < taker.priority;
            match rule.preempt_within {
                PreemptWithin::LongerExpected => named || (taker.tier == run.tier && run.priority <= taker.priority),
                PreemptWithin::LowerTiers => named,
                PreemptWithin::LowerPriority => named || alike,
                PreemptWithin::Never => false,
            }
        } else {
            match rule.reclaim {
                Reclaim::Any => true,
                Reclaim::LowerTiers => named || lower,
                Reclaim::Never => named,
            }
        };
        let may = (rule.reclaim, rule.preempt_within);
        if good { Ok(()) } else { Err(format!("{by} takes from {job}, and may take {may:?}")) }
    }

    fn soon(&mut self, event: Event) {
        self.after(1_000, event);
    }

    fn after(&mut self, delay: u64, event: Event) {
        self.planned += 1;
        self.later.insert((self.now + delay, self.planned), event);
    }

    fn answer(&mut self, action: Action) {
        match action {
            Action::Launch { purchase, count, .. } => {
                let instances: Vec<String> = (0..count).map(|n| format!("i{}", self.launched + n)).collect();
                self.launched += count;
                self.soon(Event::LaunchOutcome { purchase, instances: instances.clone(), error: None });
                for instance in instances {
                    self.after(self.boot.max(1_000), Event::NodeReady { instance });
                }
            }
            Action::Terminate { instance, .. } => self.soon(Event::NodeGone { instance, why: GoneWhy::Terminated }),
            Action::Start { job, attempt, .. } => self.soon(Event::RunStarted { job, attempt }),
            Action::Stop { job, attempt, .. } => self.after(
                1_000 + job.0 * 7_919 % self.slowest_stop.max(1) / 1_000 * 1_000,
                Event::RunStopped { job, attempt, progress: None },
            ),
            Action::Shrink { job, attempt, leave, .. } => {
                let row = self.engine.state().job(job).expect("a row").0;
                let left = [row.left.clone(), leave].concat();
                self.soon(Event::RunShrunk { job, attempt, left, node_fault: None });
            }
        }
    }

    /// Goes on until nothing is due before `until`.
    pub(in super::super) fn rest(&mut self, until: u64) -> Result<(), String> {
        for _ in 0..2_000 {
            let due = self.later.keys().next().map(|key| key.0);
            let asked = self.engine.poll_timeout().map(|at| at.0).filter(|at| *at <= until);
            let Some(next) = due.into_iter().chain(asked).min() else { return Ok(()) };
            self.now = next.max(self.now + 1);
            self.step(None)?;
        }
        Err(format!("it does not come to rest; {} stops so far", self.stops))
    }

    /// Whether a second pass in the same instant decides nothing, of this engine and of one that knows only the state.
    pub(in super::super) fn is_whole(&self) -> Result<(), String> {
        let bytes = self.engine.snapshot().map_err(|error| error.to_string())?;
        let mut again = Engine::restore(&bytes).map_err(|error| error.to_string())?;
        again.open(Tick { now: Timestamp(self.now), resumed: false, delivered: u64::MAX });
        let _ = again.plan();
        let more = again.close().batch().decisions.clone();
        if more.is_empty() { Ok(()) } else { Err(format!("a second pass decides {more:?}")) }
    }
}

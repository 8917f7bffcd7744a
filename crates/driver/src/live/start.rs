//! Starting a driver: the engine as its journal has it, the policy, the adapters, then the thread.
//!
//! ```text
//! first start:             Configured -> adapters -> journal (first batch) -> release -> loop
//! restart:                 adapters -> open effects released again -> first tick `resumed` -> loop
//! restart, other policy:   as a restart, then as a first start
//! ```
//!
//! Never: decides on recovery what the journal has decided.

use super::clock::{ClockMode, LoopClock, wall_ms};
use super::error::DriverError;
use super::executor::Executor;
use super::feed::{EventFeed, REPLAY};
use super::figures::ProgressReporter;
use super::handle::{DriverHandle, LiveProgress, QueryContext};
use super::holds::LoopHolds;
use super::input::InputTracker;
use super::live_loop::{LiveLoop, LoopEnd};
use super::mailbox::Mailbox;
use super::output::{RejectionWriter, StatusWriter, or_held_back};
use super::retention::LogReaders;
use super::stream::StatusTail;
use super::tenants::{TenantLimits, TenantUse};
use crate::adapters::{Adapters, EffectOrigin};
use crate::journal::{Journal, JournalId};
use crate::step::{BatchObserver, GroupCommit, PlannedBatch, SideRecords, configure};
use forebay_engine::engine::Engine;
use forebay_engine::plan::PlanReport;
use forebay_kernel::effect::Effect;
use forebay_kernel::event::Tick;
use forebay_kernel::policy::Policy;
use forebay_kernel::state::State;
use forebay_kernel::units::Timestamp;
use forebay_source::DurablePositions;
use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::watch;

/// Whether the journal has been driven before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartKind {
    /// The journal is new.
    First,
    /// The engine was recovered from the journal.
    Restart,
}

/// A policy as it was written, and what it was compiled to.
#[derive(Clone, Debug)]
pub struct PolicySource {
    /// The text.
    pub text: String,
    /// What the engine is configured with.
    pub compiled: Policy,
}

/// What adapters are made from.
#[derive(Clone, Copy, Debug)]
pub struct AdapterStart<'a> {
    /// The engine's state, with the policy in force.
    pub state: &'a State,
    /// When the journal was created: the zero of a simulated market.
    pub created: Timestamp,
    /// Whether adapters have worked for this journal before. On a restart, what they held in this process is gone.
    pub kind: StartKind,
}

/// Makes the adapters, once the policy is in force.
pub type AdapterMaker = Box<dyn FnOnce(AdapterStart<'_>) -> Box<dyn Adapters> + Send>;

/// What a driver is started with.
pub struct LiveSettings<J> {
    /// The data folder, for whoever asks the handle for it.
    pub folder: PathBuf,
    /// The journal.
    pub journal: J,
    /// The engine as the journal has it.
    pub engine: Engine,
    /// Whether the journal has been driven before.
    pub kind: StartKind,
    /// The policy. On a restart it is put in force where its text or its meaning differs from the journaled one; `None` goes on with
    /// that one.
    pub policy: Option<PolicySource>,
    /// Makes the adapters.
    pub adapters: AdapterMaker,
    /// Where statuses go.
    pub statuses: Box<dyn StatusWriter>,
    /// Where messages go that are not taken.
    pub rejected: Box<dyn RejectionWriter>,
    /// How time passes.
    pub clock: ClockMode,
    /// What to replay.
    pub feed: Option<Box<dyn EventFeed>>,
    /// What tenants may have open.
    pub tenants: TenantLimits,
    /// End when the feed is over and nothing is left to do.
    pub exit_when_drained: bool,
    /// Counts what enters batches, and how long they take.
    pub observer: Option<Arc<dyn BatchObserver>>,
    /// Tests: die, as by `kill -9`, after so many batches.
    #[doc(hidden)]
    pub dies_after: Option<u64>,
}

/// A driver that runs.
#[derive(Debug)]
pub struct RunningDriver {
    /// The way to it.
    pub handle: DriverHandle,
    /// Statuses that the journal did not know (its tail was lost) and that were cut from their log.
    pub statuses_cut: u64,
    /// The policy that the start put in force. `None`: it was in force already, and means the same.
    pub new_policy: Option<NewPolicy>,
    thread: JoinHandle<Result<FinishedDriver, DriverError>>,
}

/// A policy that a start put in force.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewPolicy {
    /// The text of the one before, the same where what can be bought has changed. `None`: there was none, or it is damaged.
    pub before: Option<String>,
}

/// A driver that has ended.
#[derive(Debug)]
pub struct FinishedDriver {
    /// Why.
    pub end: LoopEnd,
    /// The engine as it was.
    pub engine: Engine,
    /// The adapters as they were.
    pub adapters: Box<dyn Adapters>,
    /// The last progress.
    pub progress: LiveProgress,
    /// What the audit found. Empty is what it should be.
    pub audit: Vec<String>,
    /// Events of the feed and of sources that were rejected, in all the journal's life.
    pub rejected: u64,
    /// The data folder.
    pub folder: PathBuf,
    /// Which journal it was.
    pub journal: JournalId,
}

impl RunningDriver {
    /// Waits for the end.
    ///
    /// # Errors
    /// What ended the driver before it was asked to end.
    pub fn join(self) -> Result<FinishedDriver, DriverError> {
        self.thread.join().map_err(|_| DriverError::Panicked)?
    }
}

/// Starts a driver. Everything that can be wrong with what it is given is found before this returns.
///
/// # Errors
/// There is no policy, the feed is not the one that the journal was fed from, or something durable cannot be read or written.
pub fn start<J: Journal + 'static>(settings: LiveSettings<J>) -> Result<RunningDriver, DriverError> {
    let (live, new_policy) = assemble(settings)?;
    let (handle, statuses_cut) = (live.handle.clone(), live.statuses.cut());
    let thread = std::thread::Builder::new().name("driver".to_owned()).spawn(move || run(live));
    Ok(RunningDriver { handle, statuses_cut, new_policy, thread: thread.map_err(DriverError::Thread)? })
}

/// Puts the loop together, up to its first turn. With it: the policy that was put in force.
fn assemble<J: Journal>(settings: LiveSettings<J>) -> Result<(LiveLoop<J>, Option<NewPolicy>), DriverError> {
    let LiveSettings { folder, mut journal, mut engine, kind, policy, adapters, mut statuses, mut feed, .. } = settings;
    if let Some(feed) = &mut feed {
        position(feed.as_mut(), &journal, &folder)?;
    }
    let identity = journal.identity();
    let tenants = TenantUse::of(settings.tenants, engine.state());
    let mut input = InputTracker::new(journal.positions().clone(), journal.seen()?, settings.rejected, tenants);
    let (created, last) = (Timestamp(identity.created_ms), engine.state().now());
    let start = if settings.clock == ClockMode::Wall { wall_ms() } else { created };
    let mut clock = LoopClock::begin(settings.clock, last, start);
    let adapters_kind = if engine.state().policy().is_some() { StartKind::Restart } else { StartKind::First };
    let before: BTreeSet<u64> = engine.open_effects().iter().map(|effect| effect.id.0).collect();
    let recovered = kind == StartKind::Restart;
    let policy = policy.filter(|policy| !is_in_force(&journal, &engine, policy));
    let new_policy = policy.is_some().then(|| NewPolicy { before: journal.policy_source().ok().flatten() });
    let configured = policy.map(|PolicySource { text, compiled }| {
        let tick = Tick { now: clock.now(last, None), resumed: recovered, delivered: statuses.delivered() };
        (text, configure(&mut engine, tick, compiled))
    });
    if engine.state().policy().is_none() {
        return Err(DriverError::NoPolicy);
    }
    let adapters = adapters(AdapterStart { state: engine.state(), created, kind: adapters_kind });
    // Only what was decided in an earlier life may have been carried out already.
    let open: Vec<Effect> = engine.open_effects().into_iter().filter(|effect| before.contains(&effect.id.0)).collect();
    let mut frozen = journal.requests()?;
    frozen.retain(|id, _| before.contains(id));
    let mut executor = Executor { adapters, frozen };
    executor.adapters.begin(&identity, engine.state());
    executor.execute(&open, EffectOrigin::Recovered, engine.state());
    let resumed = recovered && configured.is_none();
    if let Some((text, planned)) = configured {
        input.tenants.finished(planned.finished());
        commit_policy(text, planned, &mut journal, &mut executor, &engine)?;
    }
    or_held_back(statuses.write(&mut engine.state().undelivered()))?;
    or_held_back(statuses.sync())?;
    let context = QueryContext {
        journal: identity.id,
        folder: folder.clone(),
        policy_source: journal.policy_source()?.map(Arc::from),
        report: PlanReport::default(),
        wall_clock: settings.clock == ClockMode::Wall,
        now: engine.state().now(),
    };
    let (to, progress) = watch::channel(LiveProgress::default());
    let handle = DriverHandle {
        mailbox: Arc::new(Mailbox::default()),
        progress,
        tail: Arc::new(StatusTail::new(engine.state().counters().statuses)),
        journal: Arc::new(identity),
        folder: Arc::new(folder),
        durable: DurablePositions::default(),
        readers: LogReaders::default(),
        holds: LoopHolds::default(),
        clock: clock.offset(),
    };
    handle.durable.update(journal.positions());
    let live = LiveLoop {
        engine,
        journal,
        executor,
        statuses,
        feed,
        input,
        exit_when_drained: settings.exit_when_drained,
        handle,
        progress: ProgressReporter::new(to),
        context,
        clock,
        arrived: VecDeque::new(),
        resumed,
        compare_at: last.max(start),
        forget_at: last.max(start),
        retain_at: last.max(start),
        active_at: last.max(start),
        commit: GroupCommit::default(),
        observer: settings.observer,
        dies_in: settings.dies_after,
    };
    Ok((live, new_policy))
}

/// Makes the batch of a policy durable, and releases its effects. Its statuses are with the engine until they are written.
fn commit_policy<J: Journal>(
    text: String,
    planned: PlannedBatch,
    journal: &mut J,
    executor: &mut Executor,
    engine: &Engine,
) -> Result<(), DriverError> {
    let requests = executor.freeze(planned.pending_effects(), engine.state());
    let mut commit = GroupCommit::default();
    commit.push(planned, SideRecords { policy: Some(text), requests, ..SideRecords::default() });
    commit.commit(journal)?;
    let effects = commit.take_effects(executor.adapters.lifetime());
    executor.execute(&effects, EffectOrigin::Decided, engine.state());
    Ok(())
}

/// Whether a policy is the one that is in force. A damaged text counts as another one. The same text means something else where what
/// can be bought has changed.
pub(super) fn is_in_force<J: Journal>(journal: &J, engine: &Engine, policy: &PolicySource) -> bool {
    let same = journal.policy_source().is_ok_and(|source| source.as_deref() == Some(policy.text.as_str()));
    same && engine.state().is_in_force(&policy.compiled)
}

/// Brings the feed to where the journal is.
fn position<J: Journal>(feed: &mut dyn EventFeed, journal: &J, folder: &Path) -> Result<(), DriverError> {
    let position = journal.positions().get(REPLAY).copied().unwrap_or(0);
    if position > feed.records() {
        let (file, items) = (feed.name().to_owned(), feed.records());
        return Err(DriverError::OtherFile { file, items, position, folder: folder.to_owned() });
    }
    feed.skip_to(position);
    Ok(())
}

/// The thread.
fn run<J: Journal>(mut live: LiveLoop<J>) -> Result<FinishedDriver, DriverError> {
    let ended = live.run();
    // Whoever waits for an answer that will not come learns it now.
    live.handle.mailbox.close();
    live.handle.tail.end();
    let progress = live.progress.stopped(&live.engine, live.feed.as_deref());
    let end = ended.inspect_err(|e| tracing::error!("the controller ends: {e}"))?;
    let LiveLoop { engine, executor, input, handle, .. } = live;
    Ok(FinishedDriver {
        end,
        audit: engine.audit(),
        adapters: executor.adapters,
        progress,
        rejected: input.log.last(),
        folder: handle.folder.to_path_buf(),
        journal: handle.journal.id,
        engine,
    })
}

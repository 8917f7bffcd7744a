//! Starting a driver: a new journal or one that is there, the engine from it, the world from the engine, then the thread.
//!
//! ```text
//! new:     Configured -> world -> journal (first batch) -> release -> loop
//! resume:  journal -> snapshot + batches -> engine -> world rebuilt -> open effects released again -> first tick `resumed`
//! resume, with another policy: as resume, then as new
//! ```
//!
//! Never: decides on recovery what the journal has decided.

use super::clock::{self, Clock, Time};
use super::cycle::{Cycle, End};
use super::error::DriverError;
use super::executor::Executor;
use super::feed::{Feed, FeedIntake, SOURCE};
use super::figures::Figures;
use super::handle::{Context, Handle, Progress};
use super::hands::Outside;
use super::mailbox::Mailbox;
use super::reception::{REJECTED, Reception};
use super::stream::Tail;
use crate::intake::{Caller, NoRoutes, RejectedFile, Router, rejected};
use crate::journal::{Cut, Entry, Piece, Positions, Recovery, SqliteJournal};
use crate::status::StatusFile;
use forebay_engine::effect::Effect;
use forebay_engine::engine::{Engine, Unsaved};
use forebay_engine::event::{Event, Tick};
use forebay_engine::plan::PlanReport;
use forebay_engine::policy::Policy;
use forebay_engine::units::Millis;
use forebay_sim::world::{World, WorldOptions};
use forebay_source::Durable;
use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::watch;
use uuid::Uuid;

/// Makes the world's options from the policy in force and the instant that is the market's zero.
pub type WorldMaker = Box<dyn FnOnce(&Policy, Millis) -> WorldOptions + Send>;

/// What a driver is started with.
pub struct Settings {
    /// The journal's folder.
    pub folder: PathBuf,
    /// Go on with the journal that is there; else begin one.
    pub resume: bool,
    /// The policy's text and what it was compiled to. On resume: put in force if one of them is another than the journaled one; `None`
    /// goes on with that.
    pub policy: Option<(String, Policy)>,
    /// The policy's routes, for what the feed brings.
    pub routes: Arc<dyn Router>,
    /// How the embedded world behaves.
    pub world: WorldMaker,
    /// What is not embedded: a real cloud, a real cluster.
    pub outside: Outside,
    /// Whose time it is.
    pub clock: Clock,
    /// What to replay.
    pub feed: Option<Feed>,
    /// End when the feed is over and nothing is left to do.
    pub exit_when_drained: bool,
    /// Tests: die, as by `kill -9`, after so many batches.
    #[doc(hidden)]
    pub dies_after: Option<u64>,
}

impl Settings {
    /// A controller in a folder under the wall clock, with nothing to replay.
    #[must_use]
    pub fn new(folder: PathBuf, world: WorldMaker) -> Settings {
        Settings {
            folder,
            resume: false,
            policy: None,
            routes: Arc::new(NoRoutes),
            world,
            outside: Outside::default(),
            clock: Clock::Wall,
            feed: None,
            exit_when_drained: false,
            dies_after: None,
        }
    }
}

/// A driver that runs.
#[derive(Debug)]
pub struct Running {
    /// The way to it.
    pub handle: Handle,
    /// What the journal's recovery found; `None` for a new one.
    pub recovery: Option<Recovery>,
    /// Lines of `status.jsonl` that the journal did not know (its tail was lost) and that were cut.
    pub statuses_cut: u64,
    thread: JoinHandle<Result<Finished, DriverError>>,
}

/// A driver that has ended.
#[derive(Debug)]
pub struct Finished {
    /// Why.
    pub end: End,
    /// The engine as it was.
    pub engine: Engine,
    /// The world as it was.
    pub world: World,
    /// The last figures.
    pub progress: Progress,
    /// What the audit found. Empty is what it should be.
    pub audit: Vec<String>,
    /// Events of the feed and of sources that were rejected, in all the journal's life.
    pub rejected: u64,
    /// The journal's folder and UUID.
    pub folder: PathBuf,
    /// Who the journal is.
    pub journal: Uuid,
}

impl Running {
    /// Waits for the end.
    pub fn join(self) -> Result<Finished, DriverError> {
        self.thread.join().map_err(|_| DriverError::Panicked)?
    }

    /// The torn tail that was cut on recovery, if there was one.
    #[must_use]
    pub fn cut(&self) -> Option<&Cut> {
        self.recovery.as_ref()?.cut.as_ref()
    }
}

/// Starts a driver. Everything that can be wrong with what it is given is found before this returns.
pub fn start(settings: Settings) -> Result<Running, DriverError> {
    let (journal, engine, recovery) = if settings.resume {
        let (journal, engine, recovery) = recover(&settings.folder)?;
        (journal, engine, Some(recovery))
    } else {
        let origin = settings.feed.as_ref().map_or_else(|| clock::wall_ms().0, |f| f.start().0);
        if settings.policy.is_none() {
            return Err(DriverError::NoPolicy);
        }
        (SqliteJournal::create(&settings.folder, origin)?, Engine::new(), None)
    };
    let dies_after = settings.dies_after;
    let (mut cycle, handle) = assemble(settings, journal, engine, recovery.is_some())?;
    cycle.dies_in = dies_after;
    let statuses_cut = cycle.status.ahead();
    let thread = std::thread::Builder::new().name("driver".to_owned()).spawn(move || run(cycle));
    let thread = thread.map_err(DriverError::Thread)?;
    Ok(Running { handle, recovery, statuses_cut, thread })
}

/// The engine as the journal has it.
fn recover(folder: &Path) -> Result<(SqliteJournal, Engine, Recovery), DriverError> {
    let mut engine = Engine::new();
    let mut take = |piece: Piece<'_>| {
        match piece {
            Piece::Start => engine = Engine::new(),
            Piece::Snapshot(state) => {
                engine = Engine::restore(state).map_err(|e| format!("the snapshot cannot be read: {e}"))?
            }
            Piece::Batch(batch) => {
                engine.replay(batch);
                let at = engine.state().counters().next_seq;
                if at != batch.next_seq().0 {
                    return Err(format!("replayed to position #{at} instead of #{}", batch.next_seq().0));
                }
            }
        }
        Ok(())
    };
    let (journal, recovery) = SqliteJournal::open(folder, &mut take)?;
    Ok((journal, engine, recovery))
}

/// Puts the loop together, up to its first turn.
pub(super) fn assemble(
    settings: Settings,
    mut journal: SqliteJournal,
    mut engine: Engine,
    recovered: bool,
) -> Result<(Cycle, Handle), DriverError> {
    let Settings { policy, routes, world, outside, clock, mut feed, exit_when_drained, .. } = settings;
    let (folder, meta) = (journal.folder().to_owned(), journal.meta());
    let intake = feed.as_mut().map(|feed| position(feed, &journal, &folder, routes)).transpose()?;
    let counted = journal.positions().get(REJECTED).copied().unwrap_or(0);
    let io = |source| DriverError::Io { path: folder.join(rejected::FILE), source };
    let rejected = RejectedFile::open(&folder, counted).map_err(io)?;
    let reception = Reception::new(journal.positions().clone(), journal.seen()?, rejected);
    let known = engine.state().counters().statuses;
    let mut status = StatusFile::open(&folder, meta.uuid, known)?;
    let (origin, last) = (Millis(meta.created_ms), engine.state().now());
    let start = if clock == Clock::Wall { clock::wall_ms() } else { origin };
    let mut time = Time::begin(clock, last, start);
    let had_policy = engine.state().policy().is_some();
    let before: BTreeSet<u64> = engine.open_effects().iter().map(|effect| effect.id.0).collect();
    let policy = policy.filter(|(text, compiled)| !in_force(&journal, &engine, text, compiled));
    let configured = policy.map(|(text, policy)| {
        let tick = Tick { now: time.now(last, None), resumed: recovered, delivered: status.delivered() };
        (text, configure(&mut engine, tick, policy))
    });
    let Some(policy) = engine.state().policy() else { return Err(DriverError::NoPolicy) };
    let mut options = world(policy, origin);
    if let Some(feed) = &feed {
        options.market = feed.dry(options.market);
    }
    let mut executor = if had_policy {
        Executor::recovered(options, engine.state(), outside)
    } else {
        Executor::new(options, engine.state(), outside)
    };
    // Only what was decided in an earlier life may have been carried out already.
    let open: Vec<Effect> = engine.open_effects().into_iter().filter(|effect| before.contains(&effect.id.0)).collect();
    let mut frozen = journal.requests()?;
    frozen.retain(|id, _| before.contains(id));
    executor.begin(meta.uuid, frozen, &open, engine.state());
    let resumed = recovered && configured.is_none();
    if let Some((text, unsaved)) = configured {
        let requests = executor.freeze(unsaved.pending(), engine.state());
        let positions = Positions::new();
        let policy = Some(text.as_str());
        journal.append_entry(Entry {
            batch: unsaved.batch(),
            positions: &positions,
            policy,
            seen: &[],
            requests: &requests,
        })?;
        executor.release(&unsaved.saved().effects, engine.state());
    }
    match status.write(engine.state().undelivered()) {
        // They stay in the engine until there is room; the loop says what to do about it.
        Err(e) if e.is_full() => tracing::error!("statuses are held back: {e}"),
        written => written?,
    }
    status.sync()?;
    let context = Context {
        journal: meta.uuid,
        folder: folder.clone(),
        policy_source: journal.policy_source()?.map(Arc::from),
        report: PlanReport::default(),
        wall_clock: clock == Clock::Wall,
    };
    let (to, progress) = watch::channel(Progress::default());
    let tail = Arc::new(Tail::new(engine.state().counters().statuses));
    let durable = Durable::default();
    durable.put(journal.positions());
    let mailbox = Arc::new(Mailbox::default());
    let handle = Handle { mailbox, progress, tail, journal: meta.uuid, folder: Arc::new(folder), durable };
    let cycle = Cycle {
        engine,
        journal,
        executor,
        status,
        feed,
        intake,
        reception,
        durable: handle.durable.clone(),
        exit_when_drained,
        mailbox: Arc::clone(&handle.mailbox),
        tail: Arc::clone(&handle.tail),
        figures: Figures::new(to),
        context,
        time,
        arrived: VecDeque::new(),
        resumed,
        next_beat: last.max(start),
        forget_at: last.max(start),
        active_at: last.max(start),
        unsaved: Vec::new(),
        held: Vec::new(),
        dies_in: None,
    };
    Ok((cycle, handle))
}

/// Whether the policy of this text is the one that is in force. A damaged text is told apart by being another. The same text means
/// something else where what can be bought has changed.
fn in_force(journal: &SqliteJournal, engine: &Engine, text: &str, compiled: &Policy) -> bool {
    let same = journal.policy_source().is_ok_and(|source| source.as_deref() == Some(text));
    same && engine.state().policy() == Some(compiled)
}

/// Finds where in the feed the journal is.
fn position(
    feed: &mut Feed,
    journal: &SqliteJournal,
    folder: &Path,
    routes: Arc<dyn Router>,
) -> Result<FeedIntake, DriverError> {
    let position = journal.positions().get(SOURCE).copied().unwrap_or(0);
    if position > feed.len() {
        let (file, items) = (feed.name().to_owned(), feed.len());
        return Err(DriverError::OtherFile { file, items, position, folder: folder.to_owned() });
    }
    feed.skip_to(position);
    Ok(FeedIntake { caller: Caller::local(), routes })
}

/// A batch of its own puts a policy in force.
fn configure(engine: &mut Engine, tick: Tick, policy: Policy) -> Unsaved {
    engine.open(tick);
    engine.handle_event(Event::Configured(Box::new(policy)));
    let _ = engine.plan();
    engine.close()
}

/// The thread.
pub(super) fn run(mut cycle: Cycle) -> Result<Finished, DriverError> {
    let ended = cycle.run();
    // Whoever waits for an answer that will not come is told so.
    cycle.mailbox.close();
    cycle.tail.end();
    let progress = cycle.figures.stopped(&cycle.engine, cycle.feed.as_ref());
    let end = ended.inspect_err(|e| tracing::error!("the controller ends: {e}"))?;
    let Cycle { engine, journal, executor, reception, .. } = cycle;
    Ok(Finished {
        end,
        audit: engine.audit(),
        world: executor.into_world(),
        progress,
        rejected: reception.rejections(),
        folder: journal.folder().to_owned(),
        journal: journal.meta().uuid,
        engine,
    })
}

//! Starting a driver from a folder: a new journal or one that is there, the logs beside it, then the driver.
//!
//! ```text
//! new:      SqliteJournal::create -> engine that knows nothing
//! resume:   checked and compared with all that lies beside it (see `resume`) -> snapshot + batches -> engine
//! both:     logs, feed, adapters -> forebay_driver::live::start
//! ```
//!
//! Never: decides on recovery what the journal has decided.

use super::feed::Feed;
use super::observed::ObservedJournal;
use super::resume::{AskedOutside, Consent, LogPositions, StartClock, refuse_what_is_left, resume};
use super::retention::Retention;
use super::witness::Witness;
use super::{ClockMode, DriverError, DriverHandle};
use crate::clock::{self, OutsideClock};
use crate::intake::rejected::RejectedLog;
use crate::journal::{ArchiveReader, Journal, RecoveredJournal, Recovery, SqliteJournal, TornTail};
use crate::metrics::commits::CommitCounts;
use crate::status::StatusLog;
use forebay_driver::adapters::{Adapters, EffectExecutor, ExternalAdapters};
use forebay_driver::live::{
    self, AdapterStart, FinishedDriver, LiveSettings, PolicySource, RunningDriver, StartKind, TenantLimits,
};
use forebay_engine::engine::Engine;
use forebay_kernel::policy::Policy;
use forebay_kernel::units::Timestamp;
use forebay_sim::adapters::{RealSide, SimulatedAdapters};
use forebay_sim::world::WorldOptions;
use forebay_wire::intake::{NoRoutes, Router};
use std::path::PathBuf;
use std::sync::Arc;

/// Makes the world's options from the policy in force and the instant that is the market's zero.
pub type WorldMaker = Box<dyn FnOnce(&Policy, Timestamp) -> WorldOptions + Send>;

/// What is real. What is not is simulated.
#[derive(Default)]
pub struct RealAdapters {
    /// Carries out launches and terminations.
    pub cloud: Option<Box<dyn EffectExecutor>>,
    /// Carries out starts, stops and shrinkings.
    pub cluster: Option<Box<dyn EffectExecutor>>,
}

impl RealAdapters {
    /// All adapters of a starting driver. `options` is asked only where something is simulated.
    fn complete(
        self,
        at: AdapterStart<'_>,
        options: impl FnOnce(AdapterStart<'_>) -> WorldOptions,
    ) -> Box<dyn Adapters> {
        let side = match (self.cloud, self.cluster) {
            (Some(cloud), Some(cluster)) => return Box::new(ExternalAdapters { cloud, cluster }),
            (Some(cloud), None) => RealSide::Cloud(cloud),
            (None, Some(cluster)) => RealSide::Cluster(cluster),
            (None, None) => RealSide::Neither,
        };
        let make = match at.kind {
            StartKind::First => SimulatedAdapters::new,
            StartKind::Restart => SimulatedAdapters::rebuilt,
        };
        Box::new(make(options(at), at.state, side))
    }
}

/// What a driver is started with.
pub struct Settings {
    /// The journal's folder.
    pub folder: PathBuf,
    /// Go on with the journal that is there; else begin one.
    pub resume: bool,
    /// The policy's text and what it was compiled to. On resume: put in force if one of them differs from the journaled one; `None`
    /// goes on with that.
    pub policy: Option<(String, Policy)>,
    /// The policy's routes, for what the feed brings.
    pub routes: Arc<dyn Router>,
    /// How the simulated world behaves, where anything is simulated.
    pub world: WorldMaker,
    /// What is real.
    pub real: RealAdapters,
    /// How time passes.
    pub clock: ClockMode,
    /// What to replay.
    pub feed: Option<Feed>,
    /// End when the feed is over and nothing is left to do.
    pub exit_when_drained: bool,
    /// How long what is over is kept.
    pub retention: Retention,
    /// What tenants may have open.
    pub tenants: TenantLimits,
    /// What its owner allows a start that would lose something or take a time that nothing confirms.
    pub consent: Consent,
    /// Clocks outside that can confirm a time.
    pub outside: Vec<OutsideClock>,
    /// What outside can tell how far the journal had gone.
    pub witnesses: Vec<Witness>,
    /// Counts what becomes durable in the journal, what enters batches, and how long they take.
    pub commits: Arc<CommitCounts>,
    /// Tests: die, as by `kill -9`, after so many batches.
    #[doc(hidden)]
    pub dies_after: Option<u64>,
}

impl Settings {
    /// A controller in a folder under the wall clock, with nothing to replay and everything simulated.
    #[must_use]
    pub fn new(folder: PathBuf, world: WorldMaker) -> Settings {
        Settings {
            folder,
            resume: false,
            policy: None,
            routes: Arc::new(NoRoutes),
            world,
            real: RealAdapters::default(),
            clock: ClockMode::Wall,
            feed: None,
            exit_when_drained: false,
            retention: Retention::default(),
            tenants: TenantLimits::default(),
            consent: Consent::default(),
            outside: Vec::new(),
            witnesses: Vec::new(),
            commits: Arc::default(),
            dies_after: None,
        }
    }

    /// What is asked outside. A replay's time is its file's.
    fn asked_outside(&self) -> AskedOutside {
        let now_ms = (self.clock == ClockMode::Wall).then(clock::now_ms);
        AskedOutside { clock: StartClock { now_ms, outside: self.outside.clone() }, witnesses: self.witnesses.clone() }
    }
}

/// A driver that runs.
#[derive(Debug)]
pub struct Running {
    /// The way to it.
    pub handle: DriverHandle,
    /// Finished jobs that have left the state.
    pub archive: Arc<ArchiveReader>,
    /// What has become durable in the journal since this start.
    pub commits: Arc<CommitCounts>,
    /// What the journal's recovery found; `None` for a new one.
    pub recovery: Option<Recovery>,
    /// Statuses in the log that the journal did not know (its tail was lost) and that were cut.
    pub statuses_cut: u64,
    driver: RunningDriver,
}

/// A driver that has ended.
pub type Finished = FinishedDriver;

impl Running {
    /// Waits for the end.
    ///
    /// # Errors
    /// What ended the driver before it was asked to end.
    pub fn join(self) -> Result<Finished, DriverError> {
        self.driver.join()
    }

    /// Whether another policy was in force before, or the same text means something else now.
    #[must_use]
    pub fn policy_is_new(&self) -> bool {
        self.driver.new_policy.is_some()
    }

    /// The text of the policy that was in force before, where the start put another one in force or the same one means something else.
    #[must_use]
    pub fn policy_before(&self) -> Option<&str> {
        self.driver.new_policy.as_ref()?.before.as_deref()
    }

    /// The torn tail that was cut on recovery, if there was one.
    #[must_use]
    pub fn cut(&self) -> Option<&TornTail> {
        self.recovery.as_ref()?.cut.as_ref()
    }
}

/// Starts a driver. Everything that can be wrong with what it is given is found before this returns.
///
/// # Errors
/// The journal or a log cannot be opened, there is no policy, or the feed is not the one that the journal was fed from.
pub fn start(settings: Settings) -> Result<Running, DriverError> {
    let (journal, engine, recovery) = if settings.resume {
        let outside = settings.asked_outside();
        let RecoveredJournal { journal, machine, recovery } = resume(&settings.folder, settings.consent, &outside)?;
        (journal, Engine::recovered(machine), Some(recovery))
    } else {
        let created = settings.feed.as_ref().map_or_else(|| live::wall_ms().0, |f| f.start().0);
        if settings.policy.is_none() {
            return Err(DriverError::NoPolicy);
        }
        refuse_what_is_left(&settings.folder)?;
        (SqliteJournal::create(&settings.folder, created)?, Engine::new(), None)
    };
    let kind = if recovery.is_some() { StartKind::Restart } else { StartKind::First };
    let archive = Arc::new(journal.archive_reader()?);
    let commits = Arc::clone(&settings.commits);
    let driver = drive(settings, journal, engine, kind)?;
    let (handle, statuses_cut) = (driver.handle.clone(), driver.statuses_cut);
    Ok(Running { handle, archive, commits, recovery, statuses_cut, driver })
}

/// Opens what lies beside the journal, and starts the driver.
pub(super) fn drive(
    settings: Settings,
    mut journal: SqliteJournal,
    engine: Engine,
    kind: StartKind,
) -> Result<RunningDriver, DriverError> {
    let Settings {
        policy,
        routes,
        world,
        real,
        clock,
        feed,
        exit_when_drained,
        retention,
        tenants,
        commits,
        dies_after,
        ..
    } = settings;
    journal.keep(retention.journal);
    let folder = journal.folder().to_owned();
    // Before any run can be started with a token.
    crate::key::load_or_create(&folder)?;
    let positions = LogPositions::of(engine.state(), journal.positions());
    let mut rejected = RejectedLog::open(&folder, positions.rejected)?;
    rejected.keep = retention.rejected;
    let mut statuses = StatusLog::open(&folder, journal.meta().id(), positions.statuses)?;
    statuses.keep = retention.statuses;
    if kind == StartKind::Restart {
        commits.resumed(engine.state().now());
    }
    let droughts = feed.as_ref().map(Feed::market_droughts).unwrap_or_default();
    let options = move |at: AdapterStart<'_>| {
        let none = Policy::default();
        let options = world(at.state.policy().unwrap_or(&none), at.created);
        let market = droughts.into_iter().fold(options.market, |market, (from, to)| market.with_drought(from, to));
        WorldOptions { market, ..options }
    };
    live::start(LiveSettings {
        folder,
        journal: ObservedJournal { journal, commits: Arc::clone(&commits) },
        engine,
        kind,
        policy: policy.map(|(text, compiled)| PolicySource { text, compiled }),
        adapters: Box::new(move |at| real.complete(at, options)),
        statuses: Box::new(statuses),
        rejected: Box::new(rejected),
        clock,
        feed: feed.map(|feed| Box::new(feed.routed_by(routes)) as _),
        tenants,
        exit_when_drained,
        observer: Some(commits),
        dies_after,
    })
}

//! The adapters of this binary: a simulated world with at most one real side, or no simulation at all.
//!
//! Never: makes a world where cloud and cluster are both real.

use forebay_driver::adapters::{Adapters, EffectExecutor, EffectRequest, ExternalAdapters};
use forebay_driver::journal::JournalId;
use forebay_driver::live::{AdapterStart, StartKind};
use forebay_driver::step::EffectLifetime;
use forebay_kernel::effect::Effect;
use forebay_kernel::event::Event;
use forebay_kernel::job::JobSpec;
use forebay_kernel::state::State;
use forebay_kernel::units::Timestamp;
use forebay_sim::adapters::{RealSide, SimulatedAdapters};
use forebay_sim::world::{World, WorldOptions};

/// What is real. What is not is simulated.
#[derive(Default)]
pub struct RealAdapters {
    /// Carries out launches and terminations.
    pub cloud: Option<Box<dyn EffectExecutor>>,
    /// Carries out starts, stops and shrinkings.
    pub cluster: Option<Box<dyn EffectExecutor>>,
}

/// The adapters of a driver.
pub enum LiveAdapters {
    /// A simulated world, beside a real cloud or a real cluster or neither.
    Simulated(Box<SimulatedAdapters>),
    /// A real cloud and a real cluster.
    External(ExternalAdapters),
}

impl LiveAdapters {
    /// The adapters of a starting driver. `options` is asked only where something is simulated.
    pub(super) fn start(
        real: RealAdapters,
        at: AdapterStart<'_>,
        options: impl FnOnce(AdapterStart<'_>) -> WorldOptions,
    ) -> LiveAdapters {
        let side = match real {
            RealAdapters { cloud: Some(cloud), cluster: Some(cluster) } => {
                return LiveAdapters::External(ExternalAdapters { cloud, cluster });
            }
            RealAdapters { cloud: Some(cloud), cluster: None } => RealSide::Cloud(cloud),
            RealAdapters { cloud: None, cluster: Some(cluster) } => RealSide::Cluster(cluster),
            RealAdapters { cloud: None, cluster: None } => RealSide::Neither,
        };
        let options = options(at);
        let simulated = match at.kind {
            StartKind::First => SimulatedAdapters::new(options, at.state, side),
            StartKind::Restart => SimulatedAdapters::rebuilt(options, at.state, side),
        };
        LiveAdapters::Simulated(Box::new(simulated))
    }

    /// The simulated world, where there is one.
    #[must_use]
    pub fn world(&self) -> Option<&World> {
        match self {
            LiveAdapters::Simulated(simulated) => Some(simulated.world()),
            LiveAdapters::External(_) => None,
        }
    }

    fn any(&self) -> &dyn Adapters {
        match self {
            LiveAdapters::Simulated(simulated) => simulated.as_ref(),
            LiveAdapters::External(external) => external,
        }
    }

    fn any_mut(&mut self) -> &mut dyn Adapters {
        match self {
            LiveAdapters::Simulated(simulated) => simulated.as_mut(),
            LiveAdapters::External(external) => external,
        }
    }
}

impl std::fmt::Debug for LiveAdapters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            LiveAdapters::Simulated(_) => "Simulated",
            LiveAdapters::External(_) => "External",
        })
    }
}

impl Adapters for LiveAdapters {
    fn begin(&mut self, journal: JournalId, state: &State) {
        self.any_mut().begin(journal, state);
    }

    fn lifetime(&self) -> EffectLifetime {
        self.any().lifetime()
    }

    fn freeze(&mut self, effect: &Effect, state: &State) -> Option<Vec<u8>> {
        self.any_mut().freeze(effect, state)
    }

    fn execute(&mut self, requests: &[EffectRequest<'_>], state: &State) {
        self.any_mut().execute(requests, state);
    }

    fn job_accepted(&mut self, spec: &JobSpec) {
        self.any_mut().job_accepted(spec);
    }

    fn next_event(&self) -> Option<Timestamp> {
        self.any().next_event()
    }

    fn take_events(&mut self, now: Timestamp) -> Vec<Event> {
        self.any_mut().take_events(now)
    }

    fn differences(&self, state: &State) -> Vec<Event> {
        self.any().differences(state)
    }
}

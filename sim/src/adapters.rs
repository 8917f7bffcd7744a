//! The simulated world as the adapters of a live driver: cloud and cluster both simulated, or one of them beside a real one.
//!
//! ```text
//!                       cloud real                          cloud simulated
//! cluster simulated     runs are simulated on real nodes    everything is simulated
//! cluster real          no simulation: `ExternalAdapters`   nodes are simulated, runs are not
//! ```
//!
//! With a real cloud and a simulated cluster the instances are real and what runs on them is not: a way to try out a policy's buying.
//!
//! Never: lets an effect reach an adapter outside this process before it is durable; see [`Adapters::lifetime`].

use std::collections::BTreeSet;

use forebay_driver::adapters::{AdapterSide, Adapters, EffectExecutor, EffectRequest};
use forebay_driver::journal::JournalIdentity;
use forebay_driver::step::EffectLifetime;
use forebay_kernel::effect::{Action, Effect};
use forebay_kernel::event::Event;
use forebay_kernel::ids::{OfferingId, PurchaseId};
use forebay_kernel::job::JobSpec;
use forebay_kernel::reconcile::{self, Listing, SeenInstance};
use forebay_kernel::state::State;
use forebay_kernel::units::Timestamp;

use crate::world::{JobTruth, Truths, World, WorldOptions};

/// The side that is not simulated.
pub enum RealSide {
    /// Neither: cloud and cluster are simulated.
    Neither,
    /// Launches and terminations are real, runs are simulated.
    Cloud(Box<dyn EffectExecutor>),
    /// Runs are real, nodes are simulated.
    Cluster(Box<dyn EffectExecutor>),
}

impl RealSide {
    /// What carries out the effects of a side. `None`: that side is simulated.
    fn executor(&mut self, side: AdapterSide) -> Option<&mut dyn EffectExecutor> {
        match (self, side) {
            (RealSide::Cloud(real), AdapterSide::Cloud) | (RealSide::Cluster(real), AdapterSide::Cluster) => {
                Some(real.as_mut())
            }
            _ => None,
        }
    }
}

/// A simulated world, and the side that is real instead.
pub struct SimulatedAdapters {
    world: World,
    real: RealSide,
    /// Real instances on which the simulated cluster runs jobs.
    hosted: BTreeSet<String>,
}

impl SimulatedAdapters {
    /// A world in which nothing of ours exists yet.
    #[must_use]
    pub fn new(options: WorldOptions, state: &State, real: RealSide) -> SimulatedAdapters {
        SimulatedAdapters { world: World::new(options, state), real, hosted: BTreeSet::new() }
    }

    /// A world that died with its process, put together again from the state. What only it knew of the jobs that are open is in what
    /// their specifications carry.
    #[must_use]
    pub fn rebuilt(options: WorldOptions, state: &State, real: RealSide) -> SimulatedAdapters {
        let open = state.open_job_ids().filter_map(|id| state.job(id)).filter(|(job, _)| job.service.is_none());
        let known = open.filter_map(|(_, spec)| {
            Some(((spec.tenant.clone(), spec.subject.clone()), JobTruth::from_run(&spec.run)?))
        });
        let truths: Truths = known.collect();
        SimulatedAdapters { world: World::rebuild(options, state, truths), real, hosted: BTreeSet::new() }
    }

    /// The world.
    #[must_use]
    pub fn world(&self) -> &World {
        &self.world
    }

    /// The simulated cluster works on the real instances: as many as the engine knows, and no others.
    fn host(&mut self, state: &State) {
        let gone: Vec<String> = self.hosted.iter().filter(|i| state.node_of(i).is_none()).cloned().collect();
        for instance in gone {
            self.hosted.remove(&instance);
            self.world.take_away(state.now(), &instance);
        }
        for node in state.nodes() {
            if let Some(instance) = node.instance.as_ref().filter(|i| !self.hosted.contains(*i)) {
                self.world.host(state.now(), instance, node.purchase, node.offering, state);
                self.hosted.insert(instance.clone());
            }
        }
    }

    fn has_real_cloud(&self) -> bool {
        matches!(self.real, RealSide::Cloud(_))
    }
}

impl Adapters for SimulatedAdapters {
    fn begin(&mut self, journal: &JournalIdentity, state: &State) {
        match &mut self.real {
            RealSide::Neither => {}
            RealSide::Cloud(real) | RealSide::Cluster(real) => real.begin(journal, state),
        }
    }

    fn lifetime(&self) -> EffectLifetime {
        match self.real {
            RealSide::Neither => EffectLifetime::DiesWithProcess,
            RealSide::Cloud(_) | RealSide::Cluster(_) => EffectLifetime::OutlivesProcess,
        }
    }

    fn freeze(&mut self, effect: &Effect, state: &State) -> Option<Vec<u8>> {
        self.real.executor(AdapterSide::of(&effect.action))?.freeze(effect, state)
    }

    fn execute(&mut self, requests: &[EffectRequest<'_>], state: &State) {
        match &mut self.real {
            RealSide::Neither => {}
            RealSide::Cloud(real) | RealSide::Cluster(real) => real.observe(state),
        }
        let real_cloud = self.has_real_cloud();
        if real_cloud {
            self.host(state);
        }
        for request in requests {
            let action = &request.effect.action;
            match self.real.executor(AdapterSide::of(action)) {
                Some(real) => real.execute(*request),
                None => self.world.act(state.now(), request.effect, state),
            }
            if let (Action::Terminate { instance, .. }, true) = (action, real_cloud) {
                self.hosted.remove(instance);
                self.world.take_away(state.now(), instance);
            }
        }
    }

    fn job_accepted(&mut self, spec: &JobSpec) {
        if let Some(truth) = JobTruth::from_run(&spec.run) {
            self.world.learn(&spec.tenant, &spec.subject, truth);
        }
    }

    fn next_event(&self) -> Option<Timestamp> {
        self.world.next_event()
    }

    fn take_events(&mut self, now: Timestamp) -> Vec<Event> {
        let mut events = self.world.take_until(now);
        if self.has_real_cloud() {
            // The simulated cloud knows nothing of real instances.
            events.retain(|event| !is_of_cloud(event));
        }
        events
    }

    fn differences(&self, state: &State) -> Vec<Event> {
        let Listing { seen_at, instances, runs } = self.world.list(state.now());
        let listing = match self.real {
            RealSide::Neither => Listing { seen_at, instances, runs },
            RealSide::Cloud(_) => Listing { seen_at, instances: as_known(state), runs },
            RealSide::Cluster(_) => Listing { seen_at, instances, runs: Vec::new() },
        };
        reconcile::differences(state, &listing)
    }
}

/// Instances as the state has them: no difference.
fn as_known(state: &State) -> Vec<SeenInstance> {
    let seen = |instance: &String, purchase: PurchaseId, offering: OfferingId| SeenInstance {
        instance: instance.clone(),
        purchase,
        offering,
        ready: false,
    };
    state.bought_nodes().filter_map(|n| Some(seen(n.instance.as_ref()?, n.purchase, n.offering))).collect()
}

/// Whether an event is a cloud's.
fn is_of_cloud(event: &Event) -> bool {
    matches!(
        event,
        Event::LaunchOutcome { .. }
            | Event::NodeReady { .. }
            | Event::ReclaimNotice { .. }
            | Event::NodeGone { .. }
            | Event::OrphanSeen { .. }
            | Event::NodePlaced { .. }
            | Event::PriceChanged { .. }
            | Event::BootFailed { .. }
    )
}

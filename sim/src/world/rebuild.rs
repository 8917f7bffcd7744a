//! The world put together again from the engine's state, after a crash took both.
//!
//! Never: knows more than the journal. An instance that no claim names, and a run that was not reported, never were.

use forebay_kernel::effect::WorkerPlace;
use forebay_kernel::event::GoneWhy;
use forebay_kernel::ids::NodeId;
use forebay_kernel::state::State;
use forebay_kernel::state::jobs::Phase;
use forebay_kernel::state::nodes::NodePhase;

use super::cloud::Instance;
use super::run::Run;
use super::{Due, World};

/// Instances that claims name: booting, ready or ending.
pub(super) fn instances(world: &mut World, state: &State) {
    let now = state.now();
    for node in state.nodes() {
        let Some(name) = &node.instance else { continue };
        if node.owned.is_some() {
            world.own(node.since, name, node.offering, state);
            continue;
        }
        let mut instance = Instance::new(name.clone(), node.purchase, node.offering, node.since);
        instance.ready = node.phase != NodePhase::Booting;
        instance.reclaim_at = node.reclaim_at;
        let booting = !instance.ready;
        let ix = world.adopt(instance);
        if let Some(at) = node.reclaim_at {
            world.agenda.at(at.max(now), Due::Gone(ix, GoneWhy::Reclaimed));
        }
        if let Some(boot) = world.boot(name, node.offering).filter(|_| booting) {
            world.agenda.at((node.since + boot).max(now), Due::Ready(ix));
        }
    }
}

/// Runs that were reported to have started. Starts and stops without an outcome are acted on again by the driver.
pub(super) fn runs(world: &mut World, state: &State) {
    for id in state.open_job_ids() {
        let Some((job, spec)) = state.job(id) else { continue };
        // What is saved is in an object store, which outlives both.
        world.remember(id, job.progress);
        let stopping = matches!(job.phase, Phase::Stopping { .. });
        let Some(since) = job.running_since.filter(|_| stopping || job.phase == Phase::Running) else { continue };
        let truth = world.truth(job, spec);
        let nowhere = WorkerPlace { node: NodeId(u64::MAX), gpus: 0, share: 0, slice: None };
        // Every worker keeps its number, those that have left too.
        let places = (0..job.workers).map(|nth| {
            let place = job.numbers.iter().position(|n| *n == nth).and_then(|at| job.places.get(at));
            let instance = place.and_then(|p| state.node(p.node)).and_then(|n| n.instance.as_deref());
            (instance.and_then(|i| world.find(i)), place.unwrap_or(&nowhere))
        });
        let places: Vec<_> = places.collect();
        let key = (id, job.attempt);
        let run = Run::new(key, spec, truth, job.progress, &places);
        // Before the first save the restart counts; after it work went on at once.
        let from = if job.saved_at <= since { since + spec.restart } else { job.saved_at };
        world.resume(run, from);
        if job.hung {
            world.hung(key, job.since);
        }
        world.workers_done(state.now(), key, &job.workers_done);
        if job.hung {
            let dead: Vec<u32> = job.confirmed_dead.iter().copied().collect();
            world.confirm_dead(state.now(), key, &dead);
        }
    }
}

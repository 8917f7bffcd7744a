//! What the engine knows, as far as the adapter needs it: which attempts are alive, and which claims exist.
//!
//! An attempt that is not in a view is over: its outcome is journaled. An instance that is not in a view is gone, by the cloud's word.

use crate::adopted_jobs::{AdoptedJobs, WaitingScope};
use crate::adoption::WorkloadId;
use crate::names::RunId;
use crate::settings::KubeSettings;
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::ids::{Attempt, JobId, NodeId, PoolId};
use forebay_kernel::job::JobSpec;
use forebay_kernel::state::State;
use forebay_kernel::state::jobs::{Job, Phase};
use forebay_kernel::state::node_reserves::{NodeReserve, NodeRoom};
use forebay_kernel::state::nodes::{Node, NodePhase};
use forebay_kernel::state::owned::{OwnedNode, OwnedPool};
use forebay_kernel::units::Span;
use std::collections::{BTreeMap, BTreeSet};

/// What the engine knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineView {
    /// The attempts that are alive.
    pub runs: BTreeMap<RunId, RunView>,
    /// The claims, by the cloud's id of their instance; owned nodes by their names.
    pub claims: BTreeMap<String, ClaimView>,
    /// The labels of the policy's pools of owned nodes, by pool.
    pub owned_pools: BTreeMap<String, OwnedPool>,
    /// What can be bought, by instance type.
    pub node_types: BTreeMap<String, NodeTypeView>,
    /// The jobs of adopted objects, by the uid of their object. Their attempts are here and not among `runs`.
    pub adopted: BTreeMap<String, AdoptedView>,
    /// `lifecycle.startTimeout` of the policy in force. `None`: there is none.
    pub start_timeout: Option<Span>,
}

/// An instance type that can be bought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeTypeView {
    /// What a node of it has, by the catalogue.
    pub room: NodeRoom,
    /// What of that is not for work, as far as the engine knows.
    pub reserve: NodeReserve,
}

/// The job of an adopted object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdoptedView {
    /// Its object.
    pub object: WorkloadId,
    /// The job.
    pub job: JobId,
    /// Whose job it is.
    pub tenant: String,
    /// Whether it is not over.
    pub open: bool,
    /// Its last attempt.
    pub attempt: Attempt,
    /// Why it waits.
    pub waits: Option<AdoptedWait>,
    /// Its attempt that is alive.
    pub run: Option<AdoptedRunView>,
}

/// Why a job waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdoptedWait {
    /// The stable code.
    pub code: &'static str,
    /// The words.
    pub words: String,
}

/// An attempt of an adopted object that is alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdoptedRunView {
    /// Its number.
    pub attempt: Attempt,
    /// Where in its life it is.
    pub stage: RunStage,
    /// The workers that hold places, with the instance of each whose claim is known.
    pub workers: BTreeMap<u32, String>,
    /// The workers of which an operator has confirmed that they are dead.
    pub confirmed_dead: BTreeSet<u32>,
}

impl AdoptedRunView {
    /// Its workers on an instance.
    pub fn workers_on<'a>(&'a self, instance: &'a str) -> impl Iterator<Item = u32> + 'a {
        self.workers.iter().filter(move |(_, on)| *on == instance).map(|(number, _)| *number)
    }

    /// Whether an operator has confirmed that all its workers on an instance are dead. Which pod is which worker is not known.
    #[must_use]
    pub fn is_confirmed_dead_on(&self, instance: &str) -> bool {
        let mut there = self.workers_on(instance).peekable();
        there.peek().is_some() && there.all(|number| self.confirmed_dead.contains(&number))
    }
}

/// An attempt that is alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunView {
    /// Whose job it is.
    pub tenant: String,
    /// The job's name.
    pub subject: String,
    /// The namespace that its queue has now.
    pub namespace: String,
    /// Where in its life it is.
    pub stage: RunStage,
    /// The workers that hold places, with the instance of each. `None`: its claim is not known.
    pub workers: BTreeMap<u32, Option<String>>,
    /// The workers whose completion is journaled.
    pub done: BTreeSet<u32>,
    /// The workers that have left while the others went on.
    pub left: BTreeSet<u32>,
    /// The workers of which an operator has confirmed that they are dead.
    pub confirmed_dead: BTreeSet<u32>,
}

/// Where in its life an attempt is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunStage {
    /// Its start is out.
    Starting,
    /// All its workers have started.
    Running,
    /// Its stop is out.
    Stopping {
        /// Whether all its workers had started.
        from: StoppedFrom,
    },
}

/// What a stop ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoppedFrom {
    /// A start that was not complete.
    Starting,
    /// A run.
    Running,
}

impl RunStage {
    /// Whether its workers are known to have passed the barrier.
    #[must_use]
    pub fn has_started(self) -> bool {
        matches!(self, RunStage::Running | RunStage::Stopping { from: StoppedFrom::Running })
    }
}

/// A claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimView {
    /// The engine's id.
    pub node: NodeId,
    /// Whether it is booting: it is to be reported when it is ready.
    pub phase: ClaimPhase,
    /// What its node has to offer before it is ready, by resource.
    pub offers: BTreeMap<String, u64>,
    /// `None`: it was bought.
    pub owned: Option<OwnedClaim>,
}

/// A node that nobody bought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnedClaim {
    /// It is here, and the engine knows this of it.
    Here(Box<OwnedNode>),
    /// The engine waits until nothing of ours runs there, and forgets it then.
    Leaves,
}

/// Where in its life a claim is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimPhase {
    /// Its node is not ready yet.
    Booting,
    /// Its node can take work.
    Ready,
    /// Its node takes no new work.
    Leaving,
}

impl EngineView {
    /// What a state says.
    #[must_use]
    pub fn of(state: &State, settings: &KubeSettings) -> EngineView {
        let mut view = EngineView::without_adopted(state, settings);
        // Without adoption no job is looked at that is not alive.
        if !settings.adopt.is_empty() {
            let adopted = AdoptedJobs::default().changes(state, WaitingScope::All);
            view.adopted = adopted.into_iter().filter_map(|(uid, known)| Some((uid, known?))).collect();
        }
        view
    }

    /// What a state says of all but adopted objects: of those, [`AdoptedJobs`] says what has changed.
    #[must_use]
    pub fn without_adopted(state: &State, settings: &KubeSettings) -> EngineView {
        let ours = |(_, spec): &(&Job, &JobSpec)| WorkloadId::of_job(&spec.principal, &spec.subject).is_none();
        let runs = state.alive_jobs().filter(ours).map(|(job, spec)| {
            let namespace = settings.namespace_of(&spec.queue).to_owned();
            let names = (spec.tenant.clone(), spec.subject.clone());
            (RunId { job: job.id, attempt: job.attempt }, run_view(state, job, names, namespace))
        });
        let claims = state.nodes().filter_map(|node| {
            let here = || state.owned_node(node).map_or(OwnedClaim::Leaves, |known| OwnedClaim::Here(Box::new(known)));
            let owned = node.owned.as_ref().map(|_| here());
            let claim =
                ClaimView { node: node.id, phase: claim_phase(node), offers: offers(state, node, settings), owned };
            Some((node.instance.clone()?, claim))
        });
        let pools = state.policy().map_or(&[][..], |policy| &policy.pools);
        let owned = pools.iter().filter_map(|pool| Some((pool.name.clone(), pool.owned.clone()?)));
        EngineView {
            runs: runs.collect(),
            claims: claims.collect(),
            owned_pools: owned.collect(),
            node_types: node_types(state),
            adopted: BTreeMap::new(),
            start_timeout: state.policy().map(|policy| policy.lifecycle.start_timeout),
        }
    }

    /// The attempts whose start is out.
    pub(crate) fn starting(&self) -> Vec<RunId> {
        self.runs.iter().filter(|(_, run)| run.stage == RunStage::Starting).map(|(id, _)| *id).collect()
    }

    /// The adopted objects, by their uids, of whose attempt the start is out.
    pub(crate) fn starting_adopted(&self) -> Vec<String> {
        let starts = |known: &AdoptedView| known.run.as_ref().is_some_and(|run| run.stage == RunStage::Starting);
        self.adopted.iter().filter(|(_, known)| starts(known)).map(|(uid, _)| uid.clone()).collect()
    }
}

fn node_types(state: &State) -> BTreeMap<String, NodeTypeView> {
    let mut types: BTreeMap<String, NodeTypeView> = BTreeMap::new();
    for offer in state.offerings().iter().map(|row| &row.offer).filter(|offer| offer.capacity != CapacityType::Owned) {
        if !types.contains_key(&offer.instance_type) {
            let room = NodeRoom { cpu: offer.cpu, mem: offer.mem };
            let reserve = state.node_reserve(&offer.instance_type);
            types.insert(offer.instance_type.clone(), NodeTypeView { room, reserve });
        }
    }
    types
}

pub(crate) fn adopted_view(state: &State, job: &Job, spec: &JobSpec, object: WorkloadId) -> AdoptedView {
    let instance = |node| state.node(node).and_then(|node| node.instance.clone());
    let run = job.alive().then(|| AdoptedRunView {
        attempt: job.attempt,
        stage: stage(job),
        workers: job
            .places
            .iter()
            .zip(&job.numbers)
            .filter_map(|(place, number)| Some((*number, instance(place.node)?)))
            .collect(),
        confirmed_dead: job.confirmed_dead.clone(),
    });
    let waits = job.reason.filter(|_| run.is_none() && !job.done());
    let waits = waits.map(|reason| AdoptedWait { code: reason.code(), words: reason.to_string() });
    let (tenant, open) = (spec.tenant.clone(), !job.done());
    AdoptedView { object, job: job.id, tenant, open, attempt: job.attempt, waits, run }
}

fn stage(job: &Job) -> RunStage {
    let from = if job.running_since.is_some() { StoppedFrom::Running } else { StoppedFrom::Starting };
    match job.phase {
        Phase::Starting => RunStage::Starting,
        Phase::Stopping { .. } => RunStage::Stopping { from },
        _ => RunStage::Running,
    }
}

fn run_view(state: &State, job: &Job, (tenant, subject): (String, String), namespace: String) -> RunView {
    let stage = stage(job);
    let instance = |node| state.node(node).and_then(|node| node.instance.clone());
    let workers = job.places.iter().zip(&job.numbers).map(|(place, number)| (*number, instance(place.node)));
    RunView {
        tenant,
        subject,
        namespace,
        stage,
        workers: workers.collect(),
        done: job.workers_done.iter().copied().collect(),
        left: job.left.iter().copied().collect(),
        confirmed_dead: job.confirmed_dead.clone(),
    }
}

fn claim_phase(node: &Node) -> ClaimPhase {
    match node.phase {
        NodePhase::Requested | NodePhase::Booting => ClaimPhase::Booting,
        NodePhase::Ready => ClaimPhase::Ready,
        NodePhase::Draining { .. } | NodePhase::Terminating => ClaimPhase::Leaving,
    }
}

/// What the node of a claim offers: whole GPUs, the slices of its layout, or the time slices of its pool.
fn offers(state: &State, node: &Node, settings: &KubeSettings) -> BTreeMap<String, u64> {
    let gpus = node.slots.len() as u64;
    if gpus == 0 {
        return BTreeMap::new();
    }
    let mut offers = BTreeMap::new();
    if let Some(partition) = &node.partition {
        for profile in profiles(state, node.pool, partition.layout) {
            *offers.entry(format!("{}{profile}", settings.mig_resource_prefix)).or_insert(0) += gpus;
        }
        return offers;
    }
    let pool = state.policy().and_then(|policy| policy.pools.get(node.pool.index()));
    match pool.and_then(|pool| pool.sharing) {
        Some(sharing) => {
            offers.insert(settings.shared_gpu_resource.clone(), gpus * u64::from(sharing.time_slices.max(1)));
        }
        None => {
            offers.insert(settings.gpu_resource.clone(), gpus);
        }
    }
    offers
}

/// The profiles of a layout, slice by slice.
pub(crate) fn profiles(state: &State, pool: PoolId, layout: u8) -> Vec<String> {
    let pool = state.policy().and_then(|policy| policy.pools.get(pool.index()));
    let layout = pool.and_then(|pool| pool.layouts.get(usize::from(layout)));
    layout.map_or(Vec::new(), |layout| layout.slices.iter().map(|slice| slice.profile.clone()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_kernel::event::{Event, Tick};
    use forebay_kernel::journal::APPLY_VERSION;
    use forebay_kernel::machine::StateMachine;
    use forebay_kernel::policy::{Lifecycle, Policy};
    use forebay_kernel::units::Timestamp;

    #[test]
    fn the_time_to_start_is_that_of_the_policy_in_force() {
        let settings = KubeSettings::new("jobs", "forebay:1");
        let mut machine = StateMachine::default();
        assert_eq!(EngineView::of(&machine, &settings).start_timeout, None);
        for minutes in [30, 3] {
            let lifecycle = Lifecycle { start_timeout: Span::mins(minutes), ..Lifecycle::default() };
            machine.apply_tick(Tick { now: Timestamp(1), resumed: false, delivered: 0 }, APPLY_VERSION);
            let _ = machine.apply_event(&Event::Configured(Box::new(Policy { lifecycle, ..Policy::default() })));
            assert_eq!(EngineView::of(&machine, &settings).start_timeout, Some(Span::mins(minutes)));
        }
    }
}

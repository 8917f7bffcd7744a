//! The executor: carries effects out, into the embedded world or by the hands that reach outside, and brings back what happens in the
//! embedded one.
//!
//! With a real cloud and an embedded cluster the instances are real and what runs on them is not: a way to try out a policy's buying.
//!
//! Never: lets an effect reach anything that outlives this process before it is durable; see [`Executor::outlives_us`].

use super::hands::{Act, Outside};
use forebay_engine::effect::{Action, Effect};
use forebay_engine::event::Event;
use forebay_engine::ids::{OfferingId, PurchaseId, Seq};
use forebay_engine::job::JobSpec;
use forebay_engine::reconcile::{self, Listing, SeenInstance};
use forebay_engine::state::State;
use forebay_engine::units::{Millis, Span};
use forebay_sim::world::{JobTruth, Truths, World, WorldOptions};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// The way to the outside.
#[derive(Debug)]
pub(super) struct Executor {
    world: World,
    outside: Outside,
    /// Requests that are frozen, until their effects are settled.
    frozen: BTreeMap<u64, Vec<u8>>,
    /// Real instances that the embedded cluster has been told of.
    hosted: BTreeSet<String>,
}

impl Executor {
    /// A world in which nothing of ours exists yet.
    pub fn new(options: WorldOptions, state: &State, outside: Outside) -> Executor {
        Executor { world: World::new(options, state), outside, frozen: BTreeMap::new(), hosted: BTreeSet::new() }
    }

    /// The world that died with its process. What only it knew of the jobs is in what their specifications carry.
    pub fn recovered(options: WorldOptions, state: &State, outside: Outside) -> Executor {
        let known = state
            .jobs()
            .filter(|(job, _)| job.of.is_none())
            .filter_map(|(_, spec)| Some(((spec.tenant.clone(), spec.subject.clone()), truth(spec)?)));
        let truths: Truths = known.collect();
        Executor {
            world: World::rebuild(options, state, truths),
            outside,
            frozen: BTreeMap::new(),
            hosted: BTreeSet::new(),
        }
    }

    /// Tells the hands outside who we are, and releases what has no outcome yet.
    pub fn begin(&mut self, journal: Uuid, frozen: BTreeMap<u64, Vec<u8>>, open: &[Effect], state: &State) {
        self.frozen = frozen;
        for hands in [&mut self.outside.cloud, &mut self.outside.cluster].into_iter().flatten() {
            hands.begin(journal, state);
        }
        self.carry_out(open, state, true);
    }

    /// Tells it what there is to run.
    pub fn learn(&mut self, spec: &JobSpec) {
        if let Some(truth) = truth(spec) {
            self.world.learn(&spec.tenant, &spec.subject, truth);
        }
    }

    /// Whether what it has carried out is still there when this process is not: then an effect waits for its batch. The embedded
    /// world is not.
    pub fn outlives_us(&self) -> bool {
        self.outside.cloud.is_some() || self.outside.cluster.is_some()
    }

    /// The requests of effects that are about to be durable, to be journaled with them.
    pub fn freeze<'a>(&mut self, effects: impl Iterator<Item = &'a Effect>, state: &State) -> Vec<(Seq, Vec<u8>)> {
        let mut frozen = Vec::new();
        for effect in effects {
            if self.frozen.contains_key(&effect.id.0) {
                continue;
            }
            let body = self.outside.hands(&effect.action).and_then(|hands| hands.freeze(effect, state));
            if let Some(body) = body {
                self.frozen.insert(effect.id.0, body.clone());
                frozen.push((effect.id, body));
            }
        }
        frozen
    }

    /// Forgets the requests of effects that are settled.
    pub fn forget_requests(&mut self, open: &BTreeSet<u64>) {
        self.frozen.retain(|effect, _| open.contains(effect));
    }

    /// Whether it holds frozen requests.
    pub fn has_requests(&self) -> bool {
        !self.frozen.is_empty()
    }

    /// Carries effects out.
    pub fn release(&mut self, effects: &[Effect], state: &State) {
        self.carry_out(effects, state, false);
    }

    fn carry_out(&mut self, effects: &[Effect], state: &State, recovered: bool) {
        let real_nodes = self.outside.cloud.is_some();
        if real_nodes && self.outside.cluster.is_none() {
            self.host(state);
        }
        for effect in effects {
            let frozen = self.frozen.get(&effect.id.0).cloned();
            match self.outside.hands(&effect.action) {
                Some(hands) => hands.act(Act { effect, frozen: frozen.as_deref(), recovered, state }),
                None => self.world.act(state.now(), effect, state),
            }
            if let (Action::Terminate { instance, .. }, true) = (&effect.action, real_nodes) {
                self.hosted.remove(instance);
                self.world.take_away(state.now(), instance);
            }
        }
    }

    /// The embedded cluster works on the real instances: as many as the engine knows, and no others.
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

    /// When something happens next.
    pub fn next(&self) -> Option<Millis> {
        self.world.next_event()
    }

    /// What has happened.
    pub fn take_until(&mut self, now: Millis) -> Vec<Event> {
        let mut events = self.world.take_until(now);
        if self.outside.cloud.is_some() {
            // The embedded cloud has nothing to say of real instances.
            events.retain(|event| !of_cloud(event));
        }
        events
    }

    /// What the state does not know of what is there. Hands outside find it out by themselves.
    pub fn differences(&self, state: &State) -> Vec<Event> {
        let world = self.world.list(state.now());
        let runs = if self.outside.cluster.is_some() { Vec::new() } else { world.runs };
        let instances = if self.outside.cloud.is_some() { as_known(state) } else { world.instances };
        reconcile::differences(state, &Listing { seen_at: world.seen_at, instances, runs })
    }

    /// The world, at the end.
    pub fn into_world(self) -> World {
        self.world
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
    state.nodes().filter_map(|n| Some(seen(n.instance.as_ref()?, n.purchase, n.offering))).collect()
}

/// Whether an event is a cloud's.
fn of_cloud(event: &Event) -> bool {
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

/// What is to be run, as far as the simulated cluster has to know: `simulation` in what the specification carries.
pub(super) fn truth(spec: &JobSpec) -> Option<JobTruth> {
    // Most carry none, and parsing costs more than looking.
    let name = br#""simulation""#;
    spec.run.windows(name.len()).find(|part| part == name)?;
    let carried: Value = serde_json::from_slice(&spec.run).ok()?;
    let said = carried.get("simulation")?;
    let number = |name: &str| said.get(name).and_then(Value::as_f64).filter(|n| n.is_finite() && *n >= 0.0);
    // Milliseconds as the trace readers count them; below 2^53 the float is exact.
    let span = |name: &str| number(name).map(|s| Span((s * 1000.0).round() as u64));
    let whole = |name: &str| said.get(name).and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok());
    let code = said.get("exitCode").and_then(Value::as_i64).and_then(|n| i32::try_from(n).ok());
    Some(JobTruth {
        failures: whole("failures").unwrap_or(0),
        exit_code: code.unwrap_or(1),
        fails_node: said.get("nodeFault").and_then(Value::as_bool).unwrap_or(false),
        gpu_util_permille: number("gpuUtil").map(|n| (n * 1000.0).round() as u32),
        linger: span("lingerS"),
        ..JobTruth::lasting(span("durationS")?)
    })
}

/// What [`truth`] reads back, for jobs that come from a trace and not from an event.
pub(super) fn carry(truth: &JobTruth) -> Vec<u8> {
    let mut said = serde_json::Map::new();
    let seconds = |span: Span| Value::from(span.0 as f64 / 1000.0);
    said.insert("durationS".to_owned(), seconds(truth.duration));
    if let Some(util) = truth.gpu_util_permille {
        said.insert("gpuUtil".to_owned(), Value::from(f64::from(util) / 1000.0));
    }
    serde_json::json!({ "simulation": said }).to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intake::{Caller, Intake, NoRoutes};

    #[test]
    fn the_world_learns_from_what_a_specification_carries() {
        let event = serde_json::json!({"type": "job.submitted", "subject": "a", "data": {"gang": {"each": {"gpus": 1}},
            "simulation": {"durationS": 12.345, "gpuUtil": 0.35, "failures": 2, "lingerS": 60}}});
        let caller = Caller::local();
        let decoded = Intake { caller: &caller, routes: &NoRoutes, key: None }.decode_value(&event).unwrap();
        let Event::JobSubmitted(spec) = decoded.event else { panic!("a submission") };
        let truth_found = truth(&spec).unwrap();
        let expected = JobTruth {
            failures: 2,
            gpu_util_permille: Some(350),
            linger: Some(Span::secs(60)),
            ..JobTruth::lasting(Span(12_345))
        };
        assert_eq!(truth_found, expected);
        let carried = JobSpec { run: carry(&JobTruth { failures: 0, linger: None, ..expected }), ..(*spec).clone() };
        assert_eq!(truth(&carried).unwrap().duration, Span(12_345));
        assert_eq!(truth(&JobSpec { run: b"{}".to_vec(), ..*spec }), None);
    }
}

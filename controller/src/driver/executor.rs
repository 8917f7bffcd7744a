//! The executor: carries effects out into the embedded world and brings back what happens there.
//!
//! Never: lets an effect reach anything that outlives this process before it is durable; see [`Executor::outlives_us`].

use forebay_engine::effect::Effect;
use forebay_engine::event::Event;
use forebay_engine::job::JobSpec;
use forebay_engine::reconcile;
use forebay_engine::state::State;
use forebay_engine::units::{Millis, Span};
use forebay_sim::world::{JobTruth, Truths, World, WorldOptions};
use serde_json::Value;

/// The way to the outside.
#[derive(Debug)]
pub(super) struct Executor {
    world: World,
}

impl Executor {
    /// A world in which nothing of ours exists yet.
    pub fn new(options: WorldOptions, state: &State) -> Executor {
        Executor { world: World::new(options, state) }
    }

    /// The world that died with its process. What only it knew of the jobs is in what their specifications carry.
    pub fn recovered(options: WorldOptions, state: &State) -> Executor {
        let known = state
            .jobs()
            .filter(|(job, _)| job.of.is_none())
            .filter_map(|(_, spec)| Some(((spec.tenant.clone(), spec.subject.clone()), truth(spec)?)));
        let truths: Truths = known.collect();
        Executor { world: World::rebuild(options, state, truths) }
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
        false
    }

    /// Carries effects out.
    pub fn release(&mut self, effects: &[Effect], state: &State) {
        for effect in effects {
            self.world.act(state.now(), effect, state);
        }
    }

    /// When something happens next.
    pub fn next(&self) -> Option<Millis> {
        self.world.next_event()
    }

    /// What has happened.
    pub fn take_until(&mut self, now: Millis) -> Vec<Event> {
        self.world.take_until(now)
    }

    /// What the state does not know of what is there.
    pub fn differences(&self, state: &State) -> Vec<Event> {
        reconcile::differences(state, &self.world.list(state.now()))
    }

    /// The world, at the end.
    pub fn into_world(self) -> World {
        self.world
    }
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

//! For tests of the checks: a few jobs that run under a small policy, with every batch on the way there and the state after it. A test breaks a copy
//! of what is right, and the check has to find it.
//!
//! Never: a state that no engine has made, but for the one thing that a test changes.

use forebay_driver::journal::NullJournal;
use forebay_driver::step::BatchStep;
use forebay_engine::engine::Engine;
use forebay_kernel::event::{Event, Tick};
use forebay_kernel::ids::{JobId, TierId};
use forebay_kernel::job::{Checkpointing, JobSpec};
use forebay_kernel::journal::Batch;
use forebay_kernel::policy::{BillingRule, Policy, Tier};
use forebay_kernel::state::State;
use forebay_kernel::state::billing::Charge;
use forebay_kernel::state::jobs::Phase;
use forebay_kernel::units::{Span, Timestamp};

use super::workload::TENANT;
use crate::market::Market;
use crate::policies;
use crate::world::{JobTruth, World, WorldOptions, spot_pairs};

/// More batches than a few jobs need until they run.
const MOST_STEPS: usize = 200;

/// A batch, what it charges, and the state after it.
pub(super) struct Step {
    pub batch: Batch,
    pub charges: Vec<Charge>,
    pub state: State,
}

/// What has happened until all jobs ran.
pub(super) struct Life {
    engine: Engine,
    now: Timestamp,
    pub steps: Vec<Step>,
}

impl Life {
    /// Until all of these run.
    pub fn running(policy: Policy, specs: Vec<JobSpec>) -> Life {
        let options = WorldOptions::new(1, Market::calm(&spot_pairs(&policy)));
        let mut life = Life { engine: Engine::new(), now: Timestamp(0), steps: Vec::new() };
        let _ = life.batch(vec![Event::Configured(Box::new(policy))]);
        let mut world = World::new(options, life.engine.state());
        for spec in &specs {
            world.learn(&spec.tenant, &spec.subject, JobTruth::lasting(Span::mins(600)));
        }
        let mut events: Vec<Event> = specs.into_iter().map(|spec| Event::JobSubmitted(Box::new(spec))).collect();
        for _ in 0..MOST_STEPS {
            for effect in life.batch(std::mem::take(&mut events)) {
                world.act(life.now, &effect, life.engine.state());
            }
            let state = life.engine.state();
            let runs = |id: JobId| state.job(id).is_some_and(|(job, _)| job.phase == Phase::Running);
            if state.open_job_ids().all(runs) {
                return life;
            }
            let next = [world.next_event(), life.engine.poll_timeout()].into_iter().flatten().min();
            life.now = next.unwrap_or(life.now).max(life.now);
            events = world.take_until(life.now);
        }
        panic!("they do not all run: {:?}", life.engine.state().jobs().map(|(job, _)| job.phase).collect::<Vec<_>>());
    }

    fn batch(&mut self, events: Vec<Event>) -> Vec<forebay_kernel::effect::Effect> {
        let tick = Tick { now: self.now, resumed: false, delivered: u64::MAX };
        let mut step = BatchStep::open(&mut self.engine, tick);
        events.into_iter().for_each(|event| _ = step.handle_event(event));
        let planned = step.plan();
        let (batch, charges) = (planned.batch().clone(), planned.charges().charges.clone());
        let released = planned.append(&mut NullJournal).expect("a journal that keeps nothing takes everything");
        self.steps.push(Step { batch, charges, state: self.engine.state().clone() });
        released.effects
    }

    /// A copy of the state in which all run.
    pub fn state(&self) -> State {
        self.engine.state().clone()
    }
}

/// One pool, two tiers of which the higher may stop the lower, any queue; billed.
pub(super) fn policy() -> Policy {
    let mut policy = policies::spot_first();
    let low = policy.tiers.remove(0);
    let high = Tier { name: "high".to_owned(), priority: low.priority + 1, stoppable_by: Vec::new(), ..low.clone() };
    policy.tiers = vec![Tier { stoppable_by: vec![TierId(1)], ..low }, high];
    policy.billing = Some(BillingRule::default());
    policy
}

/// A job of one GPU that saves.
pub(super) fn job(subject: &str) -> JobSpec {
    let checkpoint = Some(Checkpointing { every: Span::mins(10), grace: Span::secs(30) });
    JobSpec {
        tenant: TENANT.to_owned(),
        subject: subject.to_owned(),
        principal: "p".to_owned(),
        queue: "q".to_owned(),
        checkpoint,
        ..JobSpec::default()
    }
}

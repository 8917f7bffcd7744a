//! Adapters: what effects are carried out by, and where events of the world come from.
//!
//! ```text
//! decided -> freeze (journaled with the batch) -> durable -> execute -> cloud, cluster
//!                                                events <- take_events, or DriverHandle::submit <- '
//! ```
//!
//! One effect under one id always asks for the same: executors treat a repeated id as the same request.
//!
//! Never: an answer from [`EffectExecutor::execute`]. What becomes of an effect comes back as an event.

use std::any::Any;
use std::fmt;

use forebay_kernel::effect::{Action, Effect};
use forebay_kernel::event::Event;
use forebay_kernel::job::JobSpec;
use forebay_kernel::state::State;
use forebay_kernel::units::Timestamp;

use crate::journal::JournalIdentity;
use crate::step::EffectLifetime;

/// Carries out the effects of one side, the cloud or the cluster, outside this process.
pub trait EffectExecutor: Send {
    /// The driver is about to start: which journal it works for, and what that journal knows. Effects without an outcome follow.
    fn begin(&mut self, journal: &JournalIdentity, state: &State);

    /// The whole request of an effect, to be journaled with the decision, so that a repetition after any change of settings still
    /// asks for the same. `None`: the effect's action is the whole request.
    fn freeze(&mut self, effect: &Effect, state: &State) -> Option<Vec<u8>>;

    /// Carries an effect out. The same effect again asks for the same.
    fn execute(&mut self, request: EffectRequest<'_>);

    /// Looks at the state after each batch, once it is durable and before its effects are carried out: operators may have stopped something.
    fn observe(&mut self, state: &State);
}

/// When an effect was decided, seen from this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EffectOrigin {
    /// By this process: it has not been carried out yet.
    Decided,
    /// Before this process began: it may have been carried out already.
    Recovered,
}

/// An effect that may leave.
#[derive(Clone, Copy, Debug)]
pub struct EffectRequest<'a> {
    /// The effect.
    pub effect: &'a Effect,
    /// The request that was frozen with its decision, as [`EffectExecutor::freeze`] gave it.
    pub frozen: Option<&'a [u8]>,
    /// Whether it may have been carried out already.
    pub origin: EffectOrigin,
    /// What the engine knows now.
    pub state: &'a State,
}

/// All adapters of a driver together: cloud and cluster, real or simulated.
///
/// Adapters outside this process need no more than [`EffectExecutor`]: their events arrive through the driver's mailbox. An adapter
/// that lives under the driver's own clock, as a simulated world does, also has a time at which something happens there next.
pub trait Adapters: Any + Send {
    /// See [`EffectExecutor::begin`].
    fn begin(&mut self, journal: &JournalIdentity, state: &State);

    /// Whether what was carried out is still there when this process is not.
    fn lifetime(&self) -> EffectLifetime;

    /// See [`EffectExecutor::freeze`].
    fn freeze(&mut self, effect: &Effect, state: &State) -> Option<Vec<u8>>;

    /// Carries out the effects of one batch, in order. Called for every batch, with or without effects.
    fn execute(&mut self, requests: &[EffectRequest<'_>], state: &State);

    /// A submission became a job.
    fn job_accepted(&mut self, spec: &JobSpec) {
        let _ = spec;
    }

    /// When [`Adapters::take_events`] has something next. `None`: nothing is due.
    fn next_event(&self) -> Option<Timestamp> {
        None
    }

    /// What has happened until `now`, in order.
    fn take_events(&mut self, now: Timestamp) -> Vec<Event> {
        let _ = now;
        Vec::new()
    }

    /// What is there and the state does not know: asked every five minutes. Adapters outside this process find it out by themselves.
    fn differences(&self, state: &State) -> Vec<Event> {
        let _ = state;
        Vec::new()
    }
}

impl fmt::Debug for dyn Adapters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Adapters")
    }
}

/// A real cloud and a real cluster. Nothing is simulated.
pub struct ExternalAdapters {
    /// Carries out launches and terminations.
    pub cloud: Box<dyn EffectExecutor>,
    /// Carries out starts, stops and shrinkings.
    pub cluster: Box<dyn EffectExecutor>,
}

impl Adapters for ExternalAdapters {
    fn begin(&mut self, journal: &JournalIdentity, state: &State) {
        self.cloud.begin(journal, state);
        self.cluster.begin(journal, state);
    }

    fn lifetime(&self) -> EffectLifetime {
        EffectLifetime::OutlivesProcess
    }

    fn freeze(&mut self, effect: &Effect, state: &State) -> Option<Vec<u8>> {
        self.executor(AdapterSide::of(&effect.action)).freeze(effect, state)
    }

    fn execute(&mut self, requests: &[EffectRequest<'_>], state: &State) {
        self.cloud.observe(state);
        self.cluster.observe(state);
        for request in requests {
            self.executor(AdapterSide::of(&request.effect.action)).execute(*request);
        }
    }
}

impl ExternalAdapters {
    fn executor(&mut self, side: AdapterSide) -> &mut dyn EffectExecutor {
        match side {
            AdapterSide::Cloud => self.cloud.as_mut(),
            AdapterSide::Cluster => self.cluster.as_mut(),
        }
    }
}

/// Which side carries an action out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdapterSide {
    /// Nodes: launches and terminations.
    Cloud,
    /// Runs: starts, stops and shrinkings.
    Cluster,
}

impl AdapterSide {
    /// The side of an action.
    #[must_use]
    pub fn of(action: &Action) -> AdapterSide {
        match action {
            Action::Launch { .. } | Action::Terminate { .. } => AdapterSide::Cloud,
            Action::Start { .. } | Action::Stop { .. } | Action::Shrink { .. } => AdapterSide::Cluster,
        }
    }
}

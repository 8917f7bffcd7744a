//! Hands: what effects are carried out by where that is outside this process, and the ways to it for what runs there.
//!
//! ```text
//! decided -> freeze (journaled with the batch) -> durable -> act -> outside
//!                                             events <- Handle <---'
//! ```
//!
//! Never: an answer. What becomes of an effect comes back as an event, by the driver's handle.

use forebay_engine::effect::{Action, Effect};
use forebay_engine::state::State;
use uuid::Uuid;

/// Something outside that effects are carried out by.
pub trait Hands: Send {
    /// The driver is about to start: who its journal is, and what it knows. Effects without an outcome follow.
    fn begin(&mut self, journal: Uuid, state: &State);

    /// All that an effect's request will say, to be kept in the journal with the decision. `None`: its action says it all.
    fn freeze(&mut self, effect: &Effect, state: &State) -> Option<Vec<u8>> {
        let _ = (effect, state);
        None
    }

    /// Carries an effect out. The same effect again asks for the same.
    fn act(&mut self, act: Act<'_>);
}

/// An effect that may leave.
#[derive(Clone, Copy)]
pub struct Act<'a> {
    /// Which.
    pub effect: &'a Effect,
    /// What was frozen with its decision.
    pub frozen: Option<&'a [u8]>,
    /// It was decided before this process began, and may have been carried out.
    pub recovered: bool,
    /// What is known now.
    pub state: &'a State,
}

/// What is outside. What is not stays in the embedded world.
#[derive(Default)]
pub struct Outside {
    /// Launches and terminations.
    pub cloud: Option<Box<dyn Hands>>,
    /// Starts, stops and shrinkings.
    pub cluster: Option<Box<dyn Hands>>,
}

impl std::fmt::Debug for Outside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outside")
            .field("cloud", &self.cloud.is_some())
            .field("cluster", &self.cluster.is_some())
            .finish()
    }
}

impl Outside {
    /// Whether an effect is carried out here. `None`: by the embedded world.
    pub(super) fn hands(&mut self, action: &Action) -> Option<&mut Box<dyn Hands>> {
        match action {
            Action::Launch { .. } | Action::Terminate { .. } => self.cloud.as_mut(),
            Action::Start { .. } | Action::Stop { .. } | Action::Shrink { .. } => self.cluster.as_mut(),
        }
    }
}

//! What a notice means to the engine.
//!
//! Never: an event for an instance that is not ours, or a second opinion on what the engine ignores by itself (a warning that is
//! repeated, or for a node that it ends already).

use super::{InstanceState, Kind, Notice};
use forebay_engine::event::{Event, GoneWhy};
use forebay_engine::state::State;
use forebay_engine::state::nodes::NodePhase;
use forebay_engine::units::{Millis, Span};

/// A scheduled change that begins later than this is not acted on yet: the node would stand empty for the days that AWS announces it
/// ahead.
pub const SOON: Span = Span::mins(60);

/// How an instance of ours stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is wanted, and not ready yet.
    Booting,
    /// It is wanted.
    Wanted,
    /// It was announced that it will be taken back.
    Warned,
    /// We have asked for its end.
    Ending,
}

impl Standing {
    /// As the engine has it. `None`: it is not ours, or not yet known to be.
    #[must_use]
    pub fn of(state: &State, instance: &str) -> Option<Standing> {
        let node = state.node_of(instance)?;
        Some(match (node.phase, node.reclaim_at) {
            (NodePhase::Terminating, _) => Standing::Ending,
            (_, Some(_)) => Standing::Warned,
            (phase, None) if phase.is_coming() => Standing::Booting,
            (_, None) => Standing::Wanted,
        })
    }
}

/// What is known of instances where notices are read.
pub trait Instances {
    /// How one stands. `None`: it is not ours.
    fn standing(&self, instance: &str) -> Option<Standing>;

    /// Those of ours that run in a reservation.
    fn in_reservation(&self, reservation: &str) -> Vec<String>;
}

/// What a notice means.
///
/// A rebalance recommendation means nothing here, on purpose: most are followed by no interruption, so to act on one would stop work that
/// would have finished, and to call it a reclaim would teach the engine a rate that is not true. The warning proper still comes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// For the engine, in the order of the notice's instances.
    pub events: Vec<Event>,
    /// Instances that are not ours.
    pub foreign: usize,
    /// Scheduled changes that begin later than [`SOON`]: to be logged. When the time comes, [`crate::changes`] has them again.
    pub later: Vec<Later>,
}

/// A scheduled change that is far away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Later {
    /// Of which instance.
    pub instance: String,
    /// When it begins.
    pub at: Millis,
}

/// What a notice means to the engine, given the time and what is known of its instances.
///
/// An instance that a purchase brought a moment ago is not known before its outcome is; what is missed then is found by comparing the
/// cloud with the state.
pub fn events(notice: &Notice, now: Millis, known: &impl Instances) -> Outcome {
    let mut outcome = Outcome::default();
    let members = notice.reservation.as_deref().map(|reservation| known.in_reservation(reservation));
    for instance in members.as_ref().unwrap_or(&notice.instances) {
        let Some(standing) = known.standing(instance) else {
            outcome.foreign += 1;
            continue;
        };
        let instance = instance.clone();
        if notice.kind == Kind::ScheduledChange && notice.at > now + SOON {
            outcome.later.push(Later { instance, at: notice.at });
        } else {
            outcome.events.extend(event(notice, instance, standing));
        }
    }
    outcome
}

fn event(notice: &Notice, instance: String, standing: Standing) -> Option<Event> {
    let at = notice.at;
    match notice.kind {
        // Why a boot failed is what counts, and a message does not say it: it is looked at in a moment.
        Kind::State(_) if standing == Standing::Booting => None,
        Kind::State(InstanceState::Terminated) => {
            let why = match standing {
                Standing::Ending => GoneWhy::Terminated,
                Standing::Warned => GoneWhy::Reclaimed,
                Standing::Booting | Standing::Wanted => GoneWhy::Lost,
            };
            Some(Event::NodeGone { instance, why })
        }
        Kind::Rebalance | Kind::State(InstanceState::Pending | InstanceState::Running) => None,
        // Asked for, or said before.
        _ if matches!(standing, Standing::Warned | Standing::Ending) => None,
        Kind::Spot(_)
        | Kind::Reservation
        | Kind::BlockEnd
        | Kind::ScheduledChange
        | Kind::State(InstanceState::Stopping | InstanceState::Stopped | InstanceState::ShuttingDown) => {
            Some(Event::ReclaimNotice { instance, at })
        }
    }
}

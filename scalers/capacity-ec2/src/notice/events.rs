//! Converts a notice into events for the engine, on the engine's clock. Repeated notices are left to the engine, which ignores them.

use super::{InterruptionNotice, NoticeKind};
use crate::api_call::Ec2InstanceState;
use crate::clock::ClockReading;
use forebay_kernel::event::{Event, GoneWhy};
use forebay_kernel::state::State;
use forebay_kernel::state::nodes::NodePhase;
use forebay_kernel::units::{Span, Timestamp};

/// A scheduled change that begins later than this has no effect yet, because AWS announces it days ahead and the node would be idle until
/// then.
pub const ACT_WITHIN: Span = Span::mins(60);

/// The engine's view of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimStatus {
    /// It is claimed and not ready yet.
    Booting,
    /// It is claimed and ready.
    Ready,
    /// Its reclaim was announced.
    Warned,
    /// The engine has requested its end.
    Ending,
}

impl ClaimStatus {
    /// The status in the state. `None`: the engine does not know the instance, or not yet.
    #[must_use]
    pub fn from_state(state: &State, instance: &str) -> Option<ClaimStatus> {
        let node = state.node_of(instance)?;
        Some(match (node.phase, node.reclaim_at) {
            (NodePhase::Terminating, _) => ClaimStatus::Ending,
            (_, Some(_)) => ClaimStatus::Warned,
            (phase, None) if phase.is_coming() => ClaimStatus::Booting,
            (_, None) => ClaimStatus::Ready,
        })
    }
}

/// The instances that notices are checked against.
pub trait KnownInstances {
    /// The status of an instance. `None`: it is not ours.
    fn claim_status(&self, instance: &str) -> Option<ClaimStatus>;

    /// Our instances in a reservation.
    fn in_reservation(&self, reservation: &str) -> Vec<String>;
}

/// The effect of a notice.
///
/// A rebalance recommendation has none, on purpose. Most are not followed by an interruption, so an event would stop work that would have
/// finished, and would raise the reclaim rate that the engine learns. The interruption warning still comes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NoticeOutcome {
    /// Events for the engine, in the order of the notice's instances.
    pub events: Vec<Event>,
    /// The number of instances that are not ours.
    pub foreign: usize,
    /// Scheduled changes that begin later than [`ACT_WITHIN`], to be logged. [`crate::scheduled_events`] finds them again in time.
    pub later: Vec<FutureChange>,
}

/// A scheduled change that has no effect yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FutureChange {
    /// The id of the instance.
    pub instance: String,
    /// When it begins, on the engine's clock.
    pub at: Timestamp,
}

/// Converts a notice. `clock`: now, by AWS's clock and by the engine's, see [`crate::queue::ReceivedMessage::clock_reading`].
///
/// A new instance is unknown until the outcome of its purchase is. What is missed until then is found by [`crate::reconcile`].
pub fn notice_events(notice: &InterruptionNotice, clock: ClockReading, known: &impl KnownInstances) -> NoticeOutcome {
    let mut outcome = NoticeOutcome::default();
    let at = clock.to_engine(notice.at);
    let members = notice.reservation.as_deref().map(|reservation| known.in_reservation(reservation));
    for instance in members.as_ref().unwrap_or(&notice.instances) {
        let Some(claim_status) = known.claim_status(instance) else {
            outcome.foreign += 1;
            continue;
        };
        let instance = instance.clone();
        if notice.kind == NoticeKind::ScheduledChange && at > clock.engine + ACT_WITHIN {
            outcome.later.push(FutureChange { instance, at });
        } else {
            outcome.events.extend(event(notice.kind, instance, at, claim_status));
        }
    }
    outcome
}

fn event(kind: NoticeKind, instance: String, at: Timestamp, claim_status: ClaimStatus) -> Option<Event> {
    match kind {
        // The reason of a failed boot matters. It is not in the message, and the next listing has it.
        NoticeKind::State(_) if claim_status == ClaimStatus::Booting => None,
        NoticeKind::State(Ec2InstanceState::Terminated) => {
            let why = match claim_status {
                ClaimStatus::Ending => GoneWhy::Terminated,
                ClaimStatus::Warned => GoneWhy::Reclaimed,
                ClaimStatus::Booting | ClaimStatus::Ready => GoneWhy::Lost,
            };
            Some(Event::NodeGone { instance, why })
        }
        NoticeKind::Rebalance | NoticeKind::State(Ec2InstanceState::Pending | Ec2InstanceState::Running) => None,
        // Requested by the engine.
        _ if claim_status == ClaimStatus::Ending => None,
        // Announced before. Another announcement is passed on: its time may be earlier, which the engine compares.
        NoticeKind::State(_) if claim_status == ClaimStatus::Warned => None,
        NoticeKind::Spot(_)
        | NoticeKind::Reservation
        | NoticeKind::BlockEnd
        | NoticeKind::ScheduledChange
        | NoticeKind::State(Ec2InstanceState::Stopping | Ec2InstanceState::Stopped | Ec2InstanceState::ShuttingDown) => {
            Some(Event::ReclaimNotice { instance, at })
        }
    }
}

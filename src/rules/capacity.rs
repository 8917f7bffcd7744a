//! Which types of capacity (reserved, spot, on-demand, owned) a job may go to.
//!
//! Never: looks at stock or prices. That is supply's.

use super::settings;
use crate::catalog::CapacityType;
use crate::ids::{ClassId, OfferingId};
use crate::policy::{Buys, WhenLate};
use crate::state::{Shape, State, Urgency};

/// Whether a tier that buys would buy, or a tier that does not buy would use, capacity of this type.
pub(crate) fn wanted(state: &State, class: ClassId, capacity: CapacityType) -> bool {
    let shape = &state.classes[class].shape;
    (capacity == CapacityType::OnDemand && late(state, shape)) || wanted_by(state, shape, shape.urgency, capacity)
}

/// The same, however its deadline or what was taken from it bears on it, and in time for its queue's target.
pub(crate) fn wanted_ordinarily(state: &State, class: ClassId, capacity: CapacityType) -> bool {
    wanted_by(state, &state.classes[class].shape, Urgency::Ordinary, capacity)
}

fn wanted_by(state: &State, shape: &Shape, urgency: Urgency, capacity: CapacityType) -> bool {
    match (settings::buys(state, shape), capacity) {
        (_, CapacityType::Reserved | CapacityType::Owned) | (Buys::Nothing, _) => true,
        (Buys::OnDemand, c) => c == CapacityType::OnDemand,
        (Buys::SpotThenOnDemand, c) if urgency == Urgency::Relaxed => c == CapacityType::Spot && shape.spot,
        (Buys::SpotThenOnDemand, c) if matches!(urgency, Urgency::Urgent | Urgency::AvoidsSpot) => {
            c == CapacityType::OnDemand
        }
        (Buys::SpotThenOnDemand, c) => c == CapacityType::OnDemand || shape.spot,
        (Buys::Spot, c) => c == CapacityType::Spot && shape.spot,
    }
}

/// Whether a tier that buys this would have a node of this type bought.
pub(crate) fn is_bought(buys: Buys, capacity: CapacityType) -> bool {
    match (buys, capacity) {
        (Buys::Nothing, _) | (_, CapacityType::Owned) => false,
        (_, CapacityType::Reserved) | (Buys::SpotThenOnDemand, _) => true,
        (Buys::OnDemand, c) => c == CapacityType::OnDemand,
        (Buys::Spot, c) => c == CapacityType::Spot,
    }
}

/// Whether an offering is spot.
pub(crate) fn is_spot(state: &State, id: OfferingId) -> bool {
    state.offerings[id.index()].offer.capacity == CapacityType::Spot
}

/// Whether an offering is bought, as spot or as what stays. Owned nodes are not: others may hold them when they are needed.
pub(crate) fn is_bought_as(state: &State, id: OfferingId, spot: bool) -> bool {
    state.offerings[id.index()].offer.capacity != CapacityType::Owned && is_spot(state, id) == spot
}

/// Whether jobs of a shape missed their queue's target, and the queue has on-demand bought for such jobs.
pub(crate) fn late(state: &State, shape: &Shape) -> bool {
    let target = state.queues[shape.queue].rule.as_ref().and_then(|rule| rule.start);
    shape.late && target.is_some_and(|target| target.when_late == WhenLate::BuyOnDemand)
}

//! Reservations: places for one gang, or room under the ceilings, from a time on. One a pool.
//!
//! Never: decides who gets one. The planner does.

use super::undo::Was;
use super::{Held, State};
use crate::catalog::CapacityType;
use crate::ids::{JobId, NodeId, OfferingId, PoolId};
use crate::units::Timestamp;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// What is kept for one gang in a pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Reservation {
    /// The job that it is kept for.
    pub job: JobId,
    /// When the work on its nodes is expected to have ended. No job behind this one is let in for longer.
    pub from: Timestamp,
    /// Whether there is an estimate for each of the runs there.
    pub known: bool,
    /// Runs outlasted an earlier `from` and could not be stopped.
    pub delayed: bool,
    /// The job goes here; or, with room, these are given back for it. Sorted.
    pub nodes: Vec<NodeId>,
    /// Bought for the job once the nodes are gone. Empty: it goes on the nodes.
    pub room: Vec<(OfferingId, u32)>,
}

impl State {
    /// Reservations by pool.
    #[must_use]
    pub fn reservations(&self) -> &BTreeMap<PoolId, Reservation> {
        &self.reservations
    }

    /// Sets the reservation of a pool, or removes it.
    pub(crate) fn set_reservation(&mut self, pool: PoolId, reservation: Option<Reservation>) {
        let was = match reservation {
            Some(reservation) => self.reservations.insert(pool, reservation),
            None => self.reservations.remove(&pool),
        };
        self.undo.note(|| Was::Reservation(pool, was.map(Box::new)));
    }

    /// Ends a job's reservation, if it has one: what was kept is free for all.
    pub(crate) fn end_reservation(&mut self, job: JobId) {
        let Some(pool) = self.reservations.iter().find(|(_, a)| a.job == job).map(|(pool, _)| *pool) else {
            return;
        };
        self.set_reservation(pool, None);
        self.capacity_epoch += 1;
    }

    /// Reservations follow their pool through a change of policy; those of a pool that is gone, or is only kept for
    /// what is left there, end.
    pub(crate) fn carry_reservations(&mut self, map: impl Fn(PoolId) -> Option<PoolId>) {
        let kept = core::mem::take(&mut self.reservations);
        self.reservations =
            kept.into_iter().filter_map(|(pool, reservation)| Some((map(pool)?, reservation))).collect();
    }

    /// What so many nodes of these offerings hold against the ceilings.
    pub fn held_by(&self, lines: &[(OfferingId, u32)]) -> Held {
        let mut held = Held::default();
        for &(id, n) in lines {
            let offer = &self.offerings[id.index()].offer;
            let on_demand = if offer.capacity == CapacityType::OnDemand { n } else { 0 };
            held.nodes = held.nodes.saturating_add(n);
            held.on_demand_nodes = held.on_demand_nodes.saturating_add(on_demand);
            held.gpus = held.gpus.saturating_add(n.saturating_mul(u32::from(offer.gpus)));
            held.spend = held.spend + offer.max_price.times(u64::from(n));
        }
        held
    }

    /// What these nodes hold against the ceilings, as far as they are there.
    pub fn held_on(&self, nodes: &[NodeId]) -> Held {
        let mut held = Held::default();
        for node in nodes.iter().filter_map(|id| self.nodes.get(id)) {
            let offer = &self.offerings[node.offering.index()].offer;
            held.nodes += 1;
            held.on_demand_nodes += u32::from(offer.capacity == CapacityType::OnDemand);
            held.gpus += u32::from(offer.gpus);
            held.spend = held.spend + node.booked_price;
        }
        held
    }
}

impl Held {
    /// This with another's on top, in each dimension.
    pub fn plus(self, other: Held) -> Held {
        Held {
            nodes: self.nodes.saturating_add(other.nodes),
            on_demand_nodes: self.on_demand_nodes.saturating_add(other.on_demand_nodes),
            gpus: self.gpus.saturating_add(other.gpus),
            spend: self.spend + other.spend,
        }
    }

    /// This without another's, at least nothing, in each dimension.
    pub fn less(self, other: Held) -> Held {
        Held {
            nodes: self.nodes.saturating_sub(other.nodes),
            on_demand_nodes: self.on_demand_nodes.saturating_sub(other.on_demand_nodes),
            gpus: self.gpus.saturating_sub(other.gpus),
            spend: self.spend - other.spend,
        }
    }
}

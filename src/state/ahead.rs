//! What is kept ahead of time: one gang's places, or room under the ceilings, from a time on. One a pool.
//!
//! Never: decides who keeps what. That is `stage::ahead`.

use super::undo::Was;
use super::{Held, State};
use crate::catalog::CapacityType;
use crate::ids::{JobId, NodeId, OfferingId, PoolId};
use crate::units::Millis;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// A reservation ahead.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ahead {
    /// For which job.
    pub job: JobId,
    /// What is on these nodes is expected to have ended by then. Nobody behind the job is let in for longer.
    pub from: Millis,
    /// Whether that rests on estimates of all runs there.
    pub known: bool,
    /// Runs outlasted an earlier `from` and could not be stopped.
    pub delayed: bool,
    /// The job goes here; or, with room, these are given back for it. Sorted.
    pub nodes: Vec<NodeId>,
    /// Bought for the job once the nodes are gone. Empty: it goes on the nodes.
    pub room: Vec<(OfferingId, u32)>,
}

impl State {
    /// What is kept ahead of time, by pool.
    #[must_use]
    pub fn ahead(&self) -> &BTreeMap<PoolId, Ahead> {
        &self.ahead
    }

    /// Keeps something in a pool, instead of what was kept there; or nothing.
    pub(crate) fn set_ahead(&mut self, pool: PoolId, ahead: Option<Ahead>) {
        let was = match ahead {
            Some(ahead) => self.ahead.insert(pool, ahead),
            None => self.ahead.remove(&pool),
        };
        self.undo.note(|| Was::Ahead(pool, was.map(Box::new)));
    }

    /// Ends a job's reservation, if it has one: what was kept is free for all.
    pub(crate) fn end_ahead(&mut self, job: JobId) {
        let Some(pool) = self.ahead.iter().find(|(_, a)| a.job == job).map(|(pool, _)| *pool) else {
            return;
        };
        self.set_ahead(pool, None);
        self.freed += 1;
    }

    /// Reservations follow their pool through a change of policy; those of a pool that is gone end.
    pub(crate) fn carry_ahead(&mut self, map: impl Fn(PoolId) -> Option<PoolId>) {
        let kept = core::mem::take(&mut self.ahead);
        self.ahead = kept.into_iter().filter_map(|(pool, ahead)| Some((map(pool)?, ahead))).collect();
    }

    /// What so many nodes of these offerings hold against the ceilings.
    pub(crate) fn held_by(&self, lines: &[(OfferingId, u32)]) -> Held {
        let mut held = Held::default();
        for &(id, n) in lines {
            let offer = &self.offerings[id.ix()].offer;
            let on_demand = if offer.capacity == CapacityType::OnDemand { n } else { 0 };
            held.nodes = held.nodes.saturating_add(n);
            held.on_demand_nodes = held.on_demand_nodes.saturating_add(on_demand);
            held.gpus = held.gpus.saturating_add(n.saturating_mul(u32::from(offer.gpus)));
            held.spend = held.spend + offer.max_price.times(u64::from(n));
        }
        held
    }

    /// What these nodes hold against the ceilings, as far as they are there.
    pub(crate) fn held_on(&self, nodes: &[NodeId]) -> Held {
        let mut held = Held::default();
        for node in nodes.iter().filter_map(|id| self.nodes.get(id)) {
            let offer = &self.offerings[node.offering.ix()].offer;
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
    pub(crate) fn plus(self, other: Held) -> Held {
        Held {
            nodes: self.nodes.saturating_add(other.nodes),
            on_demand_nodes: self.on_demand_nodes.saturating_add(other.on_demand_nodes),
            gpus: self.gpus.saturating_add(other.gpus),
            spend: self.spend + other.spend,
        }
    }

    /// This without another's, at least nothing, in each dimension.
    pub(crate) fn less(self, other: Held) -> Held {
        Held {
            nodes: self.nodes.saturating_sub(other.nodes),
            on_demand_nodes: self.on_demand_nodes.saturating_sub(other.on_demand_nodes),
            gpus: self.gpus.saturating_sub(other.gpus),
            spend: self.spend - other.spend,
        }
    }
}

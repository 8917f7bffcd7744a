//! What of a node that is bought is not for work: what its system keeps, and what pods request that come with every node. It is known by
//! instance type before a node is bought.
//!
//! ```text
//! NodeReserved -> the type's reserve -> offerings: what an empty node takes     rows of nodes: what is left there
//! ```
//!
//! Never: of owned nodes, where what others hold is seen; a run that is ended because a reserve has grown.

use super::State;
use crate::catalog::{CapacityType, Offering};
use crate::ids::{ClassId, NodeId, OfferingId};
use crate::state::nodes::OfferingRow;
use crate::units::{Mib, MilliCpu};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// CPU and memory of a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct NodeRoom {
    /// CPU.
    pub cpu: MilliCpu,
    /// Memory.
    pub mem: Mib,
}

/// What of each node of an instance type is not for work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct NodeReserve {
    /// What the node's system keeps, of what the catalogue says that the type has.
    pub system: NodeRoom,
    /// What pods request that run on every node.
    pub daemons: NodeRoom,
}

impl NodeReserve {
    /// All of it.
    #[must_use]
    pub fn all(&self) -> NodeRoom {
        NodeRoom {
            cpu: MilliCpu(self.system.cpu.0.saturating_add(self.daemons.cpu.0)),
            mem: Mib(self.system.mem.0.saturating_add(self.daemons.mem.0)),
        }
    }
}

impl OfferingRow {
    /// CPU and memory that work may use on a node of it.
    #[must_use]
    pub fn room(&self) -> NodeRoom {
        NodeRoom {
            cpu: MilliCpu(self.offer.cpu.0.saturating_sub(self.reserve.cpu.0)),
            mem: Mib(self.offer.mem.0.saturating_sub(self.reserve.mem.0)),
        }
    }
}

impl State {
    /// What of each node of an instance type is not for work, as far as anybody has said.
    #[must_use]
    pub fn node_reserve(&self, instance_type: &str) -> NodeReserve {
        self.node_reserves.get(instance_type).copied().unwrap_or_default()
    }

    /// What of nodes is not for work, by instance type, as far as anybody has said.
    pub fn node_reserves(&self) -> impl Iterator<Item = (&str, NodeReserve)> {
        self.node_reserves.iter().map(|(of, reserve)| (of.as_str(), *reserve))
    }

    /// What of a node of an offering is not for work.
    pub(super) fn reserve_of(&self, offer: &Offering) -> NodeRoom {
        if offer.capacity == CapacityType::Owned || self.node_reserves.is_empty() {
            return NodeRoom::default();
        }
        self.node_reserve(&offer.instance_type).all()
    }

    /// Takes in what of each node of a type is not for work. Returns the nodes on which more is held than is left for work, or `None` if nothing is
    /// new, or nothing of that type can be bought.
    pub(crate) fn set_node_reserve(&mut self, instance_type: &str, reserve: NodeReserve) -> Option<Vec<NodeId>> {
        let of_type = |row: &OfferingRow| bought_as(&row.offer, instance_type);
        if self.node_reserve(instance_type) == reserve || !self.offerings.iter().any(of_type) {
            return None;
        }
        if reserve == NodeReserve::default() {
            self.node_reserves.remove(instance_type);
        } else {
            self.node_reserves.insert(instance_type.into(), reserve);
        }
        let offerings = (0u32..).zip(&self.offerings).filter(|(_, row)| of_type(row));
        let offerings: Vec<OfferingId> = offerings.map(|(at, _)| OfferingId(at)).collect();
        for id in &offerings {
            self.edit_offering(*id, |row| row.reserve = reserve.all());
        }
        let nodes = self.nodes.values().filter(|node| offerings.contains(&node.offering));
        let nodes: Vec<NodeId> = nodes.map(|node| node.id).collect();
        for id in &nodes {
            self.edit_node(*id, |node| node.reserve = reserve.all());
        }
        let classes: Vec<ClassId> = self.classes.ids().collect();
        for id in classes {
            self.classes[id].fits = self.fits(&self.classes[id].shape);
        }
        // What was impossible may be possible now, and the other way round.
        self.unjudged = true;
        self.capacity_epoch += 1;
        let over = |id: &NodeId| {
            let node = &self.nodes[id];
            node.cpu_free < reserve.all().cpu || node.mem_free < reserve.all().mem
        };
        Some(nodes.into_iter().filter(over).collect())
    }

    /// Takes in what a snapshot says of a type, into rows that were read before.
    pub(crate) fn recall_node_reserve(&mut self, instance_type: &str, reserve: NodeReserve) {
        self.node_reserves.insert(instance_type.into(), reserve);
        for row in self.offerings.iter_mut().filter(|row| bought_as(&row.offer, instance_type)) {
            row.reserve = reserve.all();
        }
        let offerings = &self.offerings;
        let of_type = |node: &&mut super::nodes::Node| {
            offerings.get(node.offering.index()).is_some_and(|row| bought_as(&row.offer, instance_type))
        };
        for node in self.nodes.values_mut().filter(of_type) {
            node.reserve = reserve.all();
        }
    }
}

/// Whether an offering is of an instance type that can be bought.
fn bought_as(offer: &Offering, instance_type: &str) -> bool {
    offer.capacity != CapacityType::Owned && offer.instance_type == instance_type
}

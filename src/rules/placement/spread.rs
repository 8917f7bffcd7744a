//! Where the replicas of a service are, so that the next one goes elsewhere.
//!
//! Never: keeps a replica waiting for a place of its own. Spreading orders what there is.

use crate::ids::{JobId, NodeId, OfferingId, PoolId, RackId};
use crate::job::Level;
use crate::state::State;
use crate::state::nodes::Node;
use alloc::collections::BTreeMap;
use alloc::string::String;

/// Replicas of one service in one pool.
pub(crate) struct ReplicaCounts {
    level: Level,
    nodes: BTreeMap<NodeId, u32>,
    racks: BTreeMap<RackId, u32>,
    zones: BTreeMap<String, u32>,
}

impl ReplicaCounts {
    /// Counted over the nodes that can take work.
    pub(crate) fn of(state: &State, pool: PoolId, service: JobId) -> ReplicaCounts {
        let asked = state.specs.get(service).and_then(|spec| spec.service).and_then(|s| s.spread);
        let level = asked.unwrap_or(Level::Node);
        let mut around =
            ReplicaCounts { level, nodes: BTreeMap::new(), racks: BTreeMap::new(), zones: BTreeMap::new() };
        let of_pool = (pool, OfferingId(0))..=(pool, OfferingId(u32::MAX));
        for ((_, offering), free) in state.index.free.range(of_pool) {
            let zone = &state.offerings[offering.index()].offer.zone;
            for node in free.whole.iter().filter_map(|(_, _, id)| state.nodes.get(id)) {
                let replica = |job: &&JobId| {
                    let class = state.jobs[**job].class;
                    state.classes[class].shape.service == Some(service)
                };
                let count = node.holds.iter().filter(replica).count() as u32;
                if count > 0 {
                    around.nodes.insert(node.id, count);
                    *around.zones.entry(zone.clone()).or_default() += count;
                    if let Some(rack) = node.rack {
                        *around.racks.entry(rack).or_default() += count;
                    }
                }
            }
        }
        around
    }

    /// Replicas in the domain that they are spread over, on the node, in the zone.
    pub(super) fn near(&self, node: &Node, zone: &str) -> (u32, u32, u32) {
        let on_node = self.nodes.get(&node.id).copied().unwrap_or_default();
        let in_zone = self.in_zone(zone);
        let first = match self.level {
            Level::Zone => in_zone,
            Level::Rack => node.rack.map_or(on_node, |rack| self.racks.get(&rack).copied().unwrap_or_default()),
            Level::Numa | Level::Nvlink | Level::Node => on_node,
        };
        (first, on_node, in_zone)
    }

    /// Replicas in a zone.
    pub(crate) fn in_zone(&self, zone: &str) -> u32 {
        self.zones.get(zone).copied().unwrap_or_default()
    }
}

//! Where the replicas of a service are, so that the next one goes elsewhere.
//!
//! Never: keeps a replica waiting for a place of its own. Spreading orders what there is.

use crate::ids::{JobId, PoolId};
use crate::job::Level;
use crate::state::State;
use crate::state::nodes::Node;
use alloc::collections::BTreeMap;

/// Replicas of one service in one pool, on nodes that can take work.
pub(crate) struct ReplicaSpread<'a> {
    state: &'a State,
    pool: PoolId,
    service: JobId,
    level: Level,
    zones: BTreeMap<&'a str, u32>,
}

impl<'a> ReplicaSpread<'a> {
    /// As the nodes hold them now.
    pub(crate) fn of(state: &'a State, pool: PoolId, service: JobId) -> ReplicaSpread<'a> {
        let asked = state.specs.get(service).and_then(|spec| spec.service).and_then(|s| s.spread);
        let mut zones = BTreeMap::new();
        for (offering, count) in state.index.replica_counts.by_offering(pool, service) {
            *zones.entry(state.offerings[offering.index()].offer.zone.as_str()).or_default() += count;
        }
        ReplicaSpread { state, pool, service, level: asked.unwrap_or(Level::Node), zones }
    }

    /// Replicas in the domain that they are spread over, on the node, in the zone.
    pub(super) fn near(&self, node: &Node, zone: &str) -> (u32, u32, u32) {
        let on_node = node.replicas_of(self.service);
        let in_zone = self.in_zone(zone);
        let in_rack = |rack| self.state.index.replica_counts.in_rack(self.pool, self.service, rack);
        let first = match self.level {
            Level::Zone => in_zone,
            Level::Rack => node.rack.map_or(on_node, in_rack),
            Level::Numa | Level::Nvlink | Level::Node => on_node,
        };
        (first, on_node, in_zone)
    }

    /// Replicas in a zone.
    pub(crate) fn in_zone(&self, zone: &str) -> u32 {
        self.zones.get(zone).copied().unwrap_or_default()
    }
}

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
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct ReplicaCounts {
    level: Level,
    nodes: BTreeMap<NodeId, u32>,
    racks: BTreeMap<RackId, u32>,
    zones: BTreeMap<String, u32>,
}

/// Nodes on which the counts are checked against a walk over all of them, where assertions are.
const FEW_NODES: usize = 64;

impl ReplicaCounts {
    /// Counted over the nodes that can take work.
    pub(crate) fn of(state: &State, pool: PoolId, service: JobId) -> ReplicaCounts {
        // In a trial nodes hold what the rows of jobs do not say.
        if state.edits() > 0 {
            return ReplicaCounts::by_nodes(state, pool, service);
        }
        let counts = ReplicaCounts::by_rows(state, pool, service);
        debug_assert!(
            state.nodes.len() > FEW_NODES || counts == ReplicaCounts::by_nodes(state, pool, service),
            "rows and nodes agree on where replicas are"
        );
        counts
    }

    fn none(state: &State, service: JobId) -> ReplicaCounts {
        let asked = state.specs.get(service).and_then(|spec| spec.service).and_then(|s| s.spread);
        let level = asked.unwrap_or(Level::Node);
        ReplicaCounts { level, nodes: BTreeMap::new(), racks: BTreeMap::new(), zones: BTreeMap::new() }
    }

    /// By what the replicas say of themselves.
    fn by_rows(state: &State, pool: PoolId, service: JobId) -> ReplicaCounts {
        let mut around = ReplicaCounts::none(state, service);
        let places = state.replicas(service).flat_map(|id| &state.jobs[id].places);
        for node in places.filter_map(|place| state.nodes.get(&place.node)) {
            if node.pool == pool && node.open() {
                around.add(state, node, 1);
            }
        }
        around
    }

    /// By what the nodes hold.
    fn by_nodes(state: &State, pool: PoolId, service: JobId) -> ReplicaCounts {
        let mut around = ReplicaCounts::none(state, service);
        let of_pool = (pool, OfferingId(0))..=(pool, OfferingId(u32::MAX));
        let open = state.index.free.range(of_pool).flat_map(|(_, free)| &free.whole);
        for node in open.filter_map(|(_, _, id)| state.nodes.get(id)) {
            let replica = |job: &&JobId| {
                let class = state.jobs[**job].class;
                state.classes[class].shape.service == Some(service)
            };
            around.add(state, node, node.holds.iter().filter(replica).count() as u32);
        }
        around
    }

    fn add(&mut self, state: &State, node: &Node, count: u32) {
        if count == 0 {
            return;
        }
        *self.nodes.entry(node.id).or_default() += count;
        let zone = &state.offerings[node.offering.index()].offer.zone;
        match self.zones.get_mut(zone) {
            Some(zone) => *zone += count,
            None => {
                self.zones.insert(zone.clone(), count);
            }
        }
        if let Some(rack) = node.rack {
            *self.racks.entry(rack).or_default() += count;
        }
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

//! How many replicas of each service stand where, kept with the nodes: what spreads the next one asks.
//!
//! Never: says that a node takes work. Nodes that take none are counted for nobody.

use super::State;
use super::index::less;
use super::nodes::Node;
use crate::ids::{JobId, NodeId, OfferingId, PoolId, RackId};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Replicas of one service in one pool, on nodes that can take work.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct InPool {
    offerings: BTreeMap<OfferingId, u32>,
    racks: BTreeMap<RackId, u32>,
}

/// Replicas by pool and service, on nodes that can take work.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReplicaCounts {
    pools: BTreeMap<(PoolId, JobId), InPool>,
}

impl ReplicaCounts {
    /// On nodes of each offering, by offering.
    pub fn by_offering(&self, pool: PoolId, service: JobId) -> impl Iterator<Item = (OfferingId, u32)> + '_ {
        self.pools.get(&(pool, service)).into_iter().flat_map(|all| &all.offerings).map(|(id, count)| (*id, *count))
    }

    /// On nodes of a rack.
    #[must_use]
    pub fn in_rack(&self, pool: PoolId, service: JobId, rack: RackId) -> u32 {
        self.pools.get(&(pool, service)).and_then(|all| all.racks.get(&rack)).copied().unwrap_or_default()
    }

    /// What stands on a node that can take work.
    pub(super) fn node_in(&mut self, node: &Node) {
        for (service, count) in &node.replicas {
            let all = self.pools.entry((node.pool, *service)).or_default();
            *all.offerings.entry(node.offering).or_default() += count;
            if let Some(rack) = node.rack {
                *all.racks.entry(rack).or_default() += count;
            }
        }
    }

    /// Takes out what was put in.
    pub(super) fn node_out(&mut self, node: &Node) {
        for (service, count) in &node.replicas {
            let Some(all) = self.pools.get_mut(&(node.pool, *service)) else { continue };
            less(&mut all.offerings, node.offering, *count);
            if let Some(rack) = node.rack {
                less(&mut all.racks, rack, *count);
            }
            if all.offerings.is_empty() {
                self.pools.remove(&(node.pool, *service));
            }
        }
    }
}

fn counted(replicas: &mut Vec<(JobId, u32)>, service: JobId) {
    match replicas.binary_search_by_key(&service, |(id, _)| *id) {
        Ok(at) => replicas[at].1 += 1,
        Err(at) => replicas.insert(at, (service, 1)),
    }
}

impl Node {
    /// Replicas of a service here.
    #[must_use]
    pub fn replicas_of(&self, service: JobId) -> u32 {
        self.replicas.binary_search_by_key(&service, |(id, _)| *id).map_or(0, |at| self.replicas[at].1)
    }

    /// A worker of a replica takes a place.
    pub(super) fn replica_in(&mut self, service: JobId) {
        counted(&mut self.replicas, service);
    }

    /// A worker of a replica gives its place back.
    pub(super) fn replica_out(&mut self, service: JobId) {
        let Ok(at) = self.replicas.binary_search_by_key(&service, |(id, _)| *id) else { return };
        self.replicas[at].1 -= 1;
        if self.replicas[at].1 == 0 {
            self.replicas.remove(at);
        }
    }
}

impl State {
    /// Replicas of each service on a node, counted anew from what it holds.
    pub(crate) fn replicas_counted(&self, node: &Node) -> Vec<(JobId, u32)> {
        let mut replicas = Vec::new();
        let services = node.holds.iter().filter_map(|job| self.classes[self.jobs.get(*job)?.class].shape.service);
        services.for_each(|service| counted(&mut replicas, service));
        replicas
    }

    /// Makes again what is not part of the bytes.
    pub(crate) fn rebuild_replica_counts(&mut self) {
        let counts: Vec<(NodeId, _)> = self.nodes.values().map(|node| (node.id, self.replicas_counted(node))).collect();
        for (id, replicas) in counts {
            if let Some(node) = self.nodes.get_mut(&id) {
                node.replicas = replicas;
            }
        }
    }
}

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
pub(crate) struct Around {
    level: Level,
    nodes: BTreeMap<NodeId, u32>,
    racks: BTreeMap<RackId, u32>,
    zones: BTreeMap<String, u32>,
}

impl Around {
    /// Counted over the nodes that can take work.
    pub(crate) fn of(state: &State, pool: PoolId, service: JobId) -> Around {
        let asked = state.specs.get(service.ix()).and_then(|spec| spec.service).and_then(|s| s.spread);
        let level = asked.unwrap_or(Level::Node);
        let mut around = Around { level, nodes: BTreeMap::new(), racks: BTreeMap::new(), zones: BTreeMap::new() };
        let of_pool = (pool, OfferingId(0))..=(pool, OfferingId(u32::MAX));
        for ((_, offering), free) in state.ix.free.range(of_pool) {
            let zone = &state.offerings[offering.ix()].offer.zone;
            for node in free.whole.iter().filter_map(|(_, _, id)| state.nodes.get(id)) {
                let replica = |job: &&JobId| {
                    let class = state.jobs[job.ix()].class;
                    state.classes[class.ix()].shape.service == Some(service)
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

#[cfg(test)]
mod tests {
    use crate::catalog::{CapacityType, Offering};
    use crate::decision::Decision;
    use crate::effect::Terms;
    use crate::engine::Engine;
    use crate::event::{Event, Tick};
    use crate::ids::{JobId, NodeId, OfferingId, PoolId, PurchaseId, QuotaId, TierId};
    use crate::job::{JobSpec, Level, Service};
    use crate::policy::{Policy, Pool, QueueRule, QuotaNode, Tier};
    use crate::units::{Mib, MilliCpu, Millis, Rate, Span};
    use alloc::boxed::Box;
    use alloc::format;
    use alloc::string::String;
    use alloc::vec::Vec;

    fn offering(zone: &str) -> Offering {
        Offering {
            instance_type: "pod".into(),
            zone: zone.into(),
            capacity: CapacityType::OnDemand,
            gpus: 4,
            gpu_mem: Mib(40_960),
            models: alloc::vec![String::from("h100")],
            cpu: MilliCpu(64_000),
            mem: Mib(65_536),
            price: Rate(1_000_000),
            max_price: Rate(1_000_000),
            on_demand: Rate(1_000_000),
            boot: Span::mins(1),
            nvlink: 0,
            numa: 0,
        }
    }

    fn policy() -> Policy {
        let rule = QueueRule {
            quota: QuotaId(0),
            tier: TierId(0),
            pools: alloc::vec![PoolId(0)],
            submitters: Vec::new(),
            start: None,
        };
        Policy {
            tiers: alloc::vec![Tier::default()],
            quotas: alloc::vec![QuotaNode::default()],
            queues: [(String::from("serving"), rule)].into(),
            pools: alloc::vec![Pool { offerings: alloc::vec![0, 1], ..Pool::default() }],
            offerings: alloc::vec![offering("a"), offering("b")],
            ..Policy::default()
        }
    }

    /// Two nodes in zone a, one in zone b, and so many replicas placed one after the other.
    fn replicas(spread: Option<Level>, count: u64) -> Vec<NodeId> {
        let mut engine = Engine::new();
        engine.open(Tick { now: Millis(1), resumed: false, delivered: 0 });
        engine.handle_event(Event::Configured(Box::new(policy())));
        for (purchase, count) in [(0u64, 2u32), (1, 1)] {
            let (offering, terms) = (OfferingId(purchase as u32), Terms::default());
            let (purchase, pool) = (PurchaseId(purchase), PoolId(0));
            engine.decide(Decision::Buy { purchase, pool, offering, count, at_least: 1, terms });
            let instances: Vec<String> = (0..count).map(|n| format!("i-{purchase}-{n}")).collect();
            engine.handle_event(Event::LaunchOutcome { purchase, instances: instances.clone(), error: None });
            instances.into_iter().for_each(|instance| engine.handle_event(Event::NodeReady { instance }));
        }
        for n in 0..count {
            let service = Some(Service { min: 1, max: 4, target: 1, spread });
            let (subject, queue) = (format!("r{n}"), "serving".into());
            engine.handle_event(Event::JobSubmitted(Box::new(JobSpec {
                subject,
                queue,
                service,
                ..JobSpec::default()
            })));
            let class = engine.state.jobs[0].class;
            engine.state.classes[class.ix()].shape.service = Some(JobId(0));
            let _ = engine.plan();
        }
        let _ = engine.close();
        engine.state.jobs.iter().map(|job| job.places[0].node).collect()
    }

    #[test]
    fn replicas_go_to_other_nodes_and_then_to_other_zones() {
        let on = |nodes: &[u64]| nodes.iter().map(|n| NodeId(*n)).collect::<Vec<_>>();
        assert_eq!(replicas(None, 4), on(&[0, 2, 1, 2]));
        assert_eq!(replicas(Some(Level::Zone), 5), on(&[0, 2, 1, 2, 0]));
    }
}

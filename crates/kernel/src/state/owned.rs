//! Nodes that nobody bought: pools of them, what is known of each, and their rows.
//!
//! ```text
//! seen, changed -> a row, ready at once; what others hold on it is not free     left, or another policy -> no new work, gone once empty
//! ```
//!
//! Their shapes are offerings like others, of their own capacity type. They count against no ceiling, have no boot and no idle clock.
//!
//! Never: a node that is drained or given back, or a run that is ended because others take more.

use super::State;
use super::nodes::{Node, NodePhase};
use crate::catalog::{CapacityType, Offering};
use crate::effect::Terms;
use crate::ids::{NodeId, OfferingId, PoolId, PurchaseId};
use crate::policy::Policy;
use crate::units::{Mib, MilliCpu, Rate, Span};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// What makes a node one of a pool, and what it costs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct OwnedPool {
    /// Labels that a node has, each with one of these values.
    pub labels: BTreeMap<String, Vec<String>>,
    /// What a node costs as long as it is there.
    pub price: Rate,
}

/// What is known of a node that nobody bought.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct OwnedNode {
    /// As its cluster names it.
    pub name: String,
    /// The pool that names it, by the pool's name.
    pub pool: String,
    /// What it has for work.
    pub shape: OwnedShape,
    /// Whether it takes new work: it is ready and not cordoned.
    pub open: bool,
    /// What others hold of it.
    pub foreign: ForeignUse,
}

/// What a node has for work.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct OwnedShape {
    /// Its kind, as its cluster names it.
    pub instance_type: String,
    /// Where it is, as its cluster names it.
    pub zone: String,
    /// Whole GPUs, at most 64.
    pub gpus: u16,
    /// Memory of each GPU.
    pub gpu_mem: Mib,
    /// GPU model names that it answers to, lower case.
    pub models: Vec<String>,
    /// CPU that work may use.
    pub cpu: MilliCpu,
    /// Memory that work may use.
    pub mem: Mib,
    /// GPUs joined by NVLink, in groups of so many by index. 0: not known.
    pub nvlink: u16,
}

/// What others hold of a node.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ForeignUse {
    /// Whole GPUs.
    pub gpus: u16,
    /// CPU.
    pub cpu: MilliCpu,
    /// Memory.
    pub mem: Mib,
    /// The one that holds most, for people. Empty: nobody holds anything.
    pub by: String,
}

/// What the row of an owned node says beside those of others.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Owned {
    /// What others hold of it.
    pub foreign: ForeignUse,
    /// Whether it takes new work, by its cluster.
    pub open: bool,
    /// It is not there any more, or not for us: its row goes with the last that runs on it.
    pub leaves: bool,
}

/// GPUs that a mask has room for.
const MOST_GPUS: u16 = 64;

impl OwnedShape {
    /// The shape as something that could be bought, which it never is.
    fn offering(&self, price: Rate) -> Offering {
        Offering {
            instance_type: self.instance_type.clone(),
            zone: self.zone.clone(),
            capacity: CapacityType::Owned,
            gpus: self.gpus.min(MOST_GPUS),
            gpu_mem: self.gpu_mem,
            models: self.models.clone(),
            cpu: self.cpu,
            mem: self.mem,
            price,
            max_price: price,
            on_demand: price,
            boot: Span::ZERO,
            nvlink: self.nvlink,
            numa: 0,
        }
    }

    pub(super) fn of(offer: &Offering) -> OwnedShape {
        OwnedShape {
            instance_type: offer.instance_type.clone(),
            zone: offer.zone.clone(),
            gpus: offer.gpus,
            gpu_mem: offer.gpu_mem,
            models: offer.models.clone(),
            cpu: offer.cpu,
            mem: offer.mem,
            nvlink: offer.nvlink,
        }
    }
}

impl Policy {
    /// The pool of owned nodes that has this name.
    fn owned_pool(&self, name: &str) -> Option<(PoolId, &OwnedPool)> {
        let at = self.pools.iter().position(|pool| pool.name == name)?;
        Some((PoolId(u16::try_from(at).ok()?), self.pools[at].owned.as_ref()?))
    }
}

impl State {
    /// What the state knows of an owned node. `None`: it was bought, or its pool is gone.
    #[must_use]
    pub fn owned_node(&self, node: &Node) -> Option<OwnedNode> {
        let owned = node.owned.as_ref().filter(|owned| !owned.leaves)?;
        Some(OwnedNode {
            name: node.instance.clone()?,
            pool: self.policy.as_deref()?.pools.get(node.pool.index())?.name.clone(),
            shape: OwnedShape::of(&self.offerings[node.offering.index()].offer),
            open: owned.open,
            foreign: owned.foreign.clone(),
        })
    }

    /// Takes in what is known of an owned node. Returns whether it says anything.
    pub(crate) fn see_owned(&mut self, seen: &OwnedNode) -> bool {
        let found = self.policy.as_deref().and_then(|policy| policy.owned_pool(&seen.pool));
        let Some((pool, price)) = found.map(|(pool, owned)| (pool, owned.price)) else { return false };
        if seen.name.is_empty() {
            return false;
        }
        let offering = self.owned_offering(&seen.shape.offering(price));
        let Some(known) = self.node_of(&seen.name) else {
            self.add_owned(seen, pool, offering);
            return true;
        };
        let (id, same) = (known.id, known.pool == pool && known.offering == offering);
        if known.owned.is_none() {
            return false;
        }
        if !same && !known.holds.is_empty() {
            // What runs there was placed on what it was. It is seen anew when that has ended.
            return self.leave_owned(id);
        }
        if !same {
            let _ = self.remove_node(id);
            self.add_owned(seen, pool, offering);
            return true;
        }
        let owned = Owned { foreign: seen.foreign.clone(), open: seen.open, leaves: false };
        if known.owned.as_deref() == Some(&owned) {
            return false;
        }
        let before = (known.open(), known.whole_free(), known.cpu_left(), known.mem_left());
        let uncordoned = seen.open && known.owned.as_ref().is_some_and(|was| !was.open);
        self.edit_node(id, |row| {
            row.owned = Some(Box::new(owned));
            // Whoever closed it and opened it again has looked after it.
            if uncordoned {
                (row.condemned, row.faults) = (false, 0);
            }
        });
        let row = &self.nodes[&id];
        let more = (row.open() && !before.0)
            || row.whole_free() > before.1
            || row.cpu_left() > before.2
            || row.mem_left() > before.3;
        self.capacity_epoch += u64::from(row.open() && more);
        true
    }

    /// An owned node is not there any more, or not for us. Returns whether that was not known.
    pub(crate) fn leave_owned(&mut self, id: NodeId) -> bool {
        let Some(row) = self.nodes.get(&id).filter(|row| row.owned.is_some()) else { return false };
        if row.holds.is_empty() {
            return self.remove_node(id).is_some();
        }
        let known = row.owned.as_ref().is_some_and(|owned| owned.leaves);
        self.edit_node(id, |row| row.owned.iter_mut().for_each(|owned| owned.leaves = true));
        !known
    }

    /// Takes the rows of owned nodes out that have left and are empty now.
    pub(crate) fn drop_left_nodes(&mut self) {
        let left: Vec<NodeId> = self.index.left.iter().copied().collect();
        for id in left {
            let _ = self.remove_node(id);
        }
    }

    /// Owned nodes follow the policy in force: those of a pool that it does not have leave, the others cost what it says.
    pub(super) fn carry_owned(&mut self, pools: &[(NodeId, String)]) {
        for (id, pool) in pools {
            let price = self.policy.as_deref().and_then(|policy| policy.owned_pool(pool)).map(|found| found.1.price);
            let Some(price) = price else {
                let _ = self.leave_owned(*id);
                continue;
            };
            let offer = &self.offerings[self.nodes[id].offering.index()].offer;
            let offering = self.owned_offering(&OwnedShape::of(offer).offering(price));
            if self.nodes[id].offering == offering {
                continue;
            }
            self.edit_node(*id, |row| {
                row.offering = offering;
                (row.price, row.booked_price) = (price, price);
            });
        }
    }

    /// The pools of all owned nodes, by their names.
    pub(super) fn pools_of_owned(&self) -> Vec<(NodeId, String)> {
        let pools = self.policy.as_deref().map_or(&[][..], |policy| &policy.pools);
        let owned = self.nodes.values().filter(|node| node.owned.is_some());
        let name = |node: &Node| pools.get(node.pool.index()).map_or(String::new(), |pool| pool.name.clone());
        owned.map(|node| (node.id, name(node))).collect()
    }

    fn add_owned(&mut self, seen: &OwnedNode, pool: PoolId, offering: OfferingId) {
        let id = NodeId(self.counters.next_node);
        self.counters.next_node += 1;
        let mut node = crate::apply::new_node(self, id, PurchaseId(u64::MAX), offering, pool, Terms::default());
        node.phase = NodePhase::Ready;
        node.instance = Some(seen.name.clone());
        node.owned = Some(Box::new(Owned { foreign: seen.foreign.clone(), open: seen.open, leaves: false }));
        self.add_node(node);
        self.capacity_epoch += 1;
    }
}

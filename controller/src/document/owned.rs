//! Owned nodes of a document: what is known of each, as if its cluster had said it.
//!
//! Never: makes a pool of owned nodes. That is the policy's.

use forebay_kernel::state::State;
use forebay_kernel::state::owned::{ForeignUse, OwnedNode, OwnedShape};
use forebay_kernel::units::{Mib, MilliCpu};
use forebay_wire::document::DocumentFault;
use forebay_wire::document::views::{NodePhaseView, NodeView};

/// What a cluster would say of it. Without `owned` it is open, nobody else uses it, and it bounds no CPU or memory.
pub(super) fn seen(view: &NodeView) -> OwnedNode {
    let name = view.instance.clone().unwrap_or_else(|| view.node.clone());
    let gpus = u16::try_from(view.gpus.unwrap_or(0)).unwrap_or(u16::MAX);
    let shape = OwnedShape {
        instance_type: view.instance_type.clone(),
        zone: view.zone.clone(),
        gpus,
        gpu_mem: Mib(UNBOUNDED_MIB),
        models: Vec::new(),
        cpu: MilliCpu(UNBOUNDED_CPU),
        mem: Mib(UNBOUNDED_MIB),
        nvlink: 0,
    };
    let pool = view.pool.clone().unwrap_or_default();
    let open = view.phase == NodePhaseView::Ready;
    let Some(owned) = &view.owned else {
        return OwnedNode { name, pool, shape, open, foreign: ForeignUse::default() };
    };
    let shape = OwnedShape {
        gpu_mem: Mib(owned.gpu_memory_mib),
        models: owned.models.clone(),
        cpu: MilliCpu(owned.cpu_milli),
        mem: Mib(owned.memory_mib),
        nvlink: owned.nvlink,
        ..shape
    };
    let foreign = ForeignUse {
        gpus: owned.foreign_gpus,
        cpu: MilliCpu(owned.foreign_cpu_milli),
        mem: Mib(owned.foreign_memory_mib),
        by: owned.foreign.clone(),
    };
    OwnedNode { name, pool, shape, open: open && owned.open, foreign }
}

/// A thousand cores, as a document leaves them out.
const UNBOUNDED_CPU: u64 = 1_000_000;
/// 16 TiB, as a document leaves it out.
const UNBOUNDED_MIB: u64 = 16 << 20;

/// Why an owned node could not be set up.
pub(super) fn not_set_up(at: usize, view: &NodeView, state: &State) -> DocumentFault {
    let pools = state.policy().map(|policy| policy.pools.as_slice()).unwrap_or_default();
    let owned: Vec<&str> = pools.iter().filter(|pool| pool.owned.is_some()).map(|pool| pool.name.as_str()).collect();
    let message = match &view.pool {
        Some(pool) if owned.contains(&pool.as_str()) => {
            let remedy = "give each node a name of its own in `instance`";
            return DocumentFault::at(format!("nodes[{at}].instance"), "another node has this name", remedy);
        }
        Some(pool) => format!("the policy has no pool `{pool}` of owned nodes"),
        None => "an owned node names its pool".to_owned(),
    };
    let remedy = match owned.as_slice() {
        [] => "declare one in the policy, under `pools`, with `owned`".to_owned(),
        names => format!("write one of: {}", names.join(", ")),
    };
    DocumentFault::at(format!("nodes[{at}].pool"), message, remedy)
}

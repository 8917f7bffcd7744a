//! What of a node is not for work, by instance type, before one is bought: what DaemonSets request, and what the system of the nodes keeps
//! that are there already.
//!
//! ```text
//! DaemonSets, nodes, view of the engine -> what should be known of each type -> an event where the engine knows something else
//! ```
//!
//! Until DaemonSets are listed, and while no node of a type is there, what the engine knows stays.
//! Never: less kept for a DaemonSet because a label is not known; a node's own pods counted.

use super::KubeMachine;
use super::KubeReport;
use super::agenda::PodKey;
use crate::api_call::KubeObject;
use crate::names::LABEL_NODE;
use crate::objects::{FutureNode, KubeDaemonSet, KubeNode, milli};
use crate::view::NodeTypeView;
use forebay_kernel::event::Event;
use forebay_kernel::state::node_reserves::{NodeReserve, NodeRoom};
use forebay_kernel::units::{Mib, MilliCpu, Span, Timestamp};
use std::collections::BTreeMap;

/// What the engine does not show is said again after this time.
const SAY_AGAIN: Span = Span::secs(60);
/// Memory that a system keeps is counted up to so many MiB: nodes of one type differ by a few pages.
const MEMORY_STEP: u64 = 256;
/// The label with a node's instance type.
const LABEL_TYPE: &str = "node.kubernetes.io/instance-type";

/// What has been said of instance types.
#[derive(Debug, Default)]
pub(super) struct Reserves {
    sets: BTreeMap<PodKey, KubeDaemonSet>,
    /// They were listed.
    listed: bool,
    /// What pods may use of each node, by its name, with its instance type.
    nodes: BTreeMap<String, (String, NodeRoom)>,
    /// Something has changed: all types are compared with the next poll.
    changed: bool,
    /// What was said last of each type, and when.
    said: BTreeMap<String, (NodeReserve, Timestamp)>,
    /// Then a type is to be compared again.
    again: Option<Timestamp>,
}

impl KubeMachine {
    /// All DaemonSets.
    pub(super) fn listed_daemon_sets(&mut self, objects: Vec<KubeObject>) {
        self.reserves.sets.clear();
        (self.reserves.listed, self.reserves.changed) = (true, true);
        for object in objects {
            if let KubeObject::DaemonSet(set) = object {
                self.see_daemon_set(*set);
            }
        }
    }

    /// A DaemonSet as it is now.
    pub(super) fn see_daemon_set(&mut self, set: KubeDaemonSet) {
        self.reserves.sets.insert(PodKey::of(&set.metadata), set);
        self.reserves.changed = true;
    }

    /// A DaemonSet is not there any more.
    pub(super) fn forget_daemon_set(&mut self, set: &KubeDaemonSet) {
        self.reserves.changed |= self.reserves.sets.remove(&PodKey::of(&set.metadata)).is_some();
    }

    /// What pods may use of a node. `None`: it is gone, or says nothing yet.
    pub(super) fn measure_node(&mut self, name: &str) {
        let node = self.nodes.get(name).filter(|node| node.is_ready() && node.metadata.label(LABEL_NODE).is_some());
        let room = node.and_then(|node| Some((node.metadata.label(LABEL_TYPE)?.to_owned(), room(node)?)));
        let known = self.reserves.nodes.get(name);
        if known == room.as_ref() {
            return;
        }
        self.reserves.changed = true;
        match room {
            Some(room) => _ = self.reserves.nodes.insert(name.to_owned(), room),
            None => _ = self.reserves.nodes.remove(name),
        }
    }

    /// The engine can buy other types, or knows something else of them.
    pub(super) fn types_known(&mut self) {
        self.reserves.changed = true;
    }

    /// When types are to be compared though nothing happens.
    pub(super) fn reserves_due(&self) -> Timestamp {
        if self.reserves.changed { Timestamp(0) } else { self.reserves.again.unwrap_or(Timestamp::NEVER) }
    }

    /// Reports what the engine does not know.
    pub(super) fn report_reserves(&mut self, now: Timestamp) {
        let due = self.reserves.again.is_some_and(|at| at <= now);
        if !std::mem::take(&mut self.reserves.changed) && !due {
            return;
        }
        self.reserves.again = None;
        let Some(view) = &self.view else { return };
        let mut kept = self.kept_by_systems(&view.node_types);
        let mut said = BTreeMap::new();
        for (of, known) in &view.node_types {
            let system = kept.remove(of.as_str()).unwrap_or(known.reserve.system);
            let daemons = if self.reserves.listed { self.requested_by_daemons(of) } else { known.reserve.daemons };
            let wanted = NodeReserve { system, daemons };
            if wanted == known.reserve {
                continue;
            }
            let last = self.reserves.said.get(of).filter(|(what, _)| *what == wanted).map(|(_, at)| *at);
            let at = last.filter(|at| *at + SAY_AGAIN > now).unwrap_or(now);
            if last != Some(at) {
                let event = Event::NodeReserved { instance_type: of.clone(), reserve: wanted };
                self.reports.push(KubeReport::Event(event));
            }
            said.insert(of.clone(), (wanted, at));
        }
        self.reserves.again = said.values().map(|(_, at)| *at + SAY_AGAIN).min();
        self.reserves.said = said;
    }

    /// What DaemonSets request on each node of a type.
    fn requested_by_daemons(&self, instance_type: &str) -> NodeRoom {
        let node = FutureNode { instance_type, taint: &self.settings.node_taint };
        let mut all = NodeRoom::default();
        for set in self.reserves.sets.values().filter(|set| set.comes_with(node)) {
            all.cpu = MilliCpu(all.cpu.0.saturating_add(set.cpu_milli));
            all.mem = Mib(all.mem.0.saturating_add(set.memory_mib));
        }
        all
    }

    /// What the systems of nodes keep, by type: the most of those that are there.
    fn kept_by_systems<'t>(&self, types: &'t BTreeMap<String, NodeTypeView>) -> BTreeMap<&'t str, NodeRoom> {
        let mut kept: BTreeMap<&str, NodeRoom> = BTreeMap::new();
        for (of, room) in self.reserves.nodes.values() {
            let Some((of, known)) = types.get_key_value(of) else { continue };
            let most = kept.entry(of.as_str()).or_default();
            let mem = known.room.mem.0.saturating_sub(room.mem.0).div_ceil(MEMORY_STEP) * MEMORY_STEP;
            most.cpu = most.cpu.max(MilliCpu(known.room.cpu.0.saturating_sub(room.cpu.0)));
            most.mem = most.mem.max(Mib(mem));
        }
        kept
    }
}

/// What pods may use of a node.
fn room(node: &KubeNode) -> Option<NodeRoom> {
    let of = |resource: &str| Some(milli(node.status.allocatable.get(resource)?).0);
    // Thousandths of a byte in a MiB.
    Some(NodeRoom { cpu: MilliCpu(of("cpu")?), mem: Mib(of("memory")? / (1000 << 20)) })
}

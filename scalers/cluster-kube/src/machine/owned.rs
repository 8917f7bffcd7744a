//! Nodes that nobody bought: which belong to a pool, what they have, and what pods of others hold there.
//!
//! ```text
//! nodes, pods of others, view of the engine -> what should be known -> an event where the engine knows something else
//! ```
//!
//! All of a node is said each time, and again while the engine's state does not show it: an event that was lost, or came before its policy,
//! does no harm.
//!
//! Never: a change to such a node.

use super::KubeMachine;
use super::KubeReport;
use super::agenda::PodKey;
use super::calls::PodScope;
use super::listing::PodList;
use crate::names::LABEL_NODE;
use crate::objects::{KubeNode, KubePod, Taint, milli};
use crate::view::OwnedClaim;
use forebay_kernel::event::Event;
use forebay_kernel::state::owned::{ForeignUse, OwnedNode, OwnedPool, OwnedShape};
use forebay_kernel::units::{Mib, MilliCpu, Span, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// What the engine does not show is said again after this time.
const SAY_AGAIN: Span = Span::secs(60);
/// Where only CPU and memory of others changed, a node is said no more often than this: small pods come and go.
const SAY_LITTLE: Span = Span::secs(2);
/// Memory of a node is counted in so many MiB: nodes of one kind differ by a few pages.
const MEMORY_STEP: u64 = 256;

/// A pod of others that is bound and not over.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ForeignPod {
    version: u64,
    gpus: u64,
    cpu: u64,
    mem: u64,
}

/// Pods of others, by the node that they are bound to.
#[derive(Debug, Default)]
pub(super) struct ForeignPods {
    on: BTreeMap<String, BTreeMap<PodKey, ForeignPod>>,
    node_of: BTreeMap<PodKey, String>,
}

impl ForeignPods {
    fn get(&self, key: &PodKey) -> Option<&ForeignPod> {
        self.on.get(self.node_of.get(key)?)?.get(key)
    }

    fn insert(&mut self, key: PodKey, node: String, pod: ForeignPod) {
        self.node_of.insert(key.clone(), node.clone());
        self.on.entry(node).or_default().insert(key, pod);
    }

    /// The node that it was bound to, if it was known.
    fn remove(&mut self, key: &PodKey) -> Option<String> {
        let node = self.node_of.remove(key)?;
        if let Some(pods) = self.on.get_mut(&node) {
            pods.remove(key);
            if pods.is_empty() {
                self.on.remove(&node);
            }
        }
        Some(node)
    }

    fn iter(&self) -> impl Iterator<Item = (&PodKey, &ForeignPod)> {
        self.on.values().flatten()
    }

    /// What they hold of a node. `None`: none is there.
    fn held(&self, node: &str) -> Option<ForeignUse> {
        let (mut sum, mut most) = (ForeignUse::default(), (0, 0));
        for (key, pod) in self.on.get(node)? {
            sum.gpus = sum.gpus.saturating_add(u16::try_from(pod.gpus).unwrap_or(u16::MAX));
            sum.cpu = MilliCpu(sum.cpu.0.saturating_add(pod.cpu));
            sum.mem = Mib(sum.mem.0.saturating_add(pod.mem));
            if (pod.gpus, pod.cpu) > most || sum.by.is_empty() {
                most = (pod.gpus, pod.cpu);
                sum.by = format!("{}/{}", key.namespace, key.name);
            }
        }
        Some(sum)
    }
}

/// What has been said of owned nodes.
#[derive(Debug, Default)]
pub(super) struct OwnedNodes {
    /// Nodes to be compared with what the engine knows, with the next poll.
    changed: BTreeSet<String>,
    /// What was said last of each, and when. `None`: that it has left.
    said: BTreeMap<String, (Option<OwnedNode>, Timestamp)>,
    /// When which are to be compared again.
    again: BTreeSet<(Timestamp, String)>,
    /// The pools are others.
    pools_changed: bool,
    /// Nodes that workers name by their names. A node that was bought may have the name of its instance.
    named: BTreeSet<String>,
}

impl KubeMachine {
    /// Whether a claim is of an owned node, whose name it has.
    pub(super) fn is_owned_claim(&self, name: &str) -> bool {
        let claim = self.view.as_ref().and_then(|view| view.claims.get(name));
        claim.is_some_and(|claim| claim.owned.is_some())
    }

    /// A node has changed, or what runs there.
    pub(super) fn owned_changed(&mut self, node: &str) {
        self.owned.changed.insert(node.to_owned());
    }

    /// The engine knows something else of these nodes, or has other pools.
    pub(super) fn owned_known(&mut self, nodes: &[String], pools: bool) {
        self.owned.changed.extend(nodes.iter().cloned());
        self.owned.pools_changed |= pools;
    }

    /// Takes a pod of others as it is now.
    pub(super) fn see_foreign(&mut self, pod: &KubePod) {
        if self.owned_pools().next().is_none() {
            return;
        }
        let (key, version) = (PodKey::of(&pod.metadata), pod.metadata.version());
        if self.foreign.get(&key).is_some_and(|known| known.version > version) {
            return;
        }
        self.forget_foreign(&key);
        let Some(node) = pod.spec.node_name.clone().filter(|_| !pod.is_terminal()) else { return };
        let gpus = pod.requested(&self.settings.gpu_resource).div_ceil(1000);
        // Thousandths of a byte in a MiB.
        let mem = pod.requested("memory").div_ceil(1000 << 20);
        self.owned_changed(&node);
        self.foreign.insert(key, node, ForeignPod { version, gpus, cpu: pod.requested("cpu"), mem });
    }

    /// A pod is not there any more.
    pub(super) fn forget_foreign(&mut self, key: &PodKey) {
        if let Some(node) = self.foreign.remove(key) {
            self.owned_changed(&node);
        }
    }

    /// Those that a list does not have are gone.
    pub(super) fn foreign_listed(&mut self, list: &PodList) {
        let known = self.foreign.iter().map(|(key, pod)| (key, pod.version));
        list.gone(known).iter().for_each(|key| self.forget_foreign(key));
    }

    /// When a node is to be compared again though nothing happens.
    pub(super) fn owned_due(&self) -> Timestamp {
        let again = self.owned.again.first().map_or(Timestamp::NEVER, |(at, _)| *at);
        let changed = self.owned.pools_changed || !self.owned.changed.is_empty();
        if changed && self.knows_all() { Timestamp(0) } else { again }
    }

    /// Reports what the engine does not know of owned nodes.
    pub(super) fn report_owned(&mut self, now: Timestamp) {
        if std::mem::take(&mut self.owned.pools_changed) {
            let all = self.owned_pools().next().is_some();
            self.watch_pods(if all { PodScope::All } else { PodScope::Ours }, now);
            self.owned.changed.extend(self.nodes.keys().cloned());
        }
        // What others hold is known only when their pods are listed.
        if !self.knows_all() {
            return;
        }
        while let Some((at, name)) = self.owned.again.first().cloned().filter(|(at, _)| *at <= now) {
            self.owned.again.remove(&(at, name.clone()));
            self.owned.changed.insert(name);
        }
        for name in std::mem::take(&mut self.owned.changed) {
            self.report_node(name, now);
        }
    }

    fn report_node(&mut self, name: String, now: Timestamp) {
        let wanted = self.nodes.get(&name).and_then(|node| self.owned_node(node));
        let known = self.view.as_ref().and_then(|view| view.claims.get(&name)).and_then(|claim| claim.owned.clone());
        self.name_owned(&name, wanted.is_some() || known.is_some());
        let agree = match (&known, &wanted) {
            (Some(OwnedClaim::Here(known)), Some(wanted)) => **known == *wanted,
            (None | Some(OwnedClaim::Leaves), None) => true,
            _ => false,
        };
        if agree {
            self.owned.said.remove(&name);
            return;
        }
        let mut next = Timestamp(0);
        if let Some((said, at)) = self.owned.said.get(&name) {
            let little = said.as_ref().zip(wanted.as_ref()).is_some_and(|(said, wanted)| differ_little(said, wanted));
            next = if *said == wanted {
                *at + SAY_AGAIN
            } else if little {
                *at + SAY_LITTLE
            } else {
                Timestamp(0)
            };
        }
        if next > now {
            self.owned.again.insert((next, name));
            return;
        }
        let event = match &wanted {
            Some(node) => Event::OwnedNodeSeen(Box::new(node.clone())),
            None => Event::OwnedNodeLeft { name: name.clone() },
        };
        self.reports.push(KubeReport::Event(event));
        self.owned.again.insert((now + SAY_AGAIN, name.clone()));
        self.owned.said.insert(name, (wanted, now));
    }

    /// Workers name an owned node as they name an instance.
    fn name_owned(&mut self, name: &str, owned: bool) {
        let here = self.nodes.contains_key(name);
        if owned && here && self.owned.named.insert(name.to_owned()) {
            self.node_of.insert(name.to_owned(), name.to_owned());
            self.instance_changed(name);
        } else if (!owned || !here) && self.owned.named.remove(name) {
            self.node_of.remove(name);
            self.instance_changed(name);
        }
    }

    fn knows_all(&self) -> bool {
        self.listings.complete() && self.listings.knows_pods()
    }

    fn owned_pools(&self) -> impl Iterator<Item = (&String, &OwnedPool)> {
        self.view.iter().flat_map(|view| &view.owned_pools)
    }

    /// What is known of a node that a pool names. `None`: none does, or it was bought.
    fn owned_node(&self, node: &KubeNode) -> Option<OwnedNode> {
        let bought = node.metadata.label(LABEL_NODE).is_some() || node.instance().is_some_and(|i| self.is_bought(i));
        let named = |(_, pool): &(&String, &OwnedPool)| {
            let has = |(key, values): (&String, &Vec<String>)| {
                node.metadata.label(key).is_some_and(|value| values.iter().any(|known| known == value))
            };
            pool.labels.iter().all(has)
        };
        let (pool, _) = self.owned_pools().find(named).filter(|_| !bought)?;
        let (shape, broken) = self.shape(node);
        let mut foreign = self.foreign.held(&node.metadata.name).unwrap_or_default();
        // What is broken is nobody's: it is as good as held.
        foreign.gpus = foreign.gpus.saturating_add(broken).min(shape.gpus);
        let held_back = |taint: &Taint| {
            let not_ready = self.settings.not_ready_taints.iter().any(|key| taint.key.starts_with(key));
            taint.effect == "NoExecute" || (taint.effect == "NoSchedule" && not_ready)
        };
        let open = node.is_ready()
            && !node.spec.unschedulable
            && !node.metadata.is_deleting()
            && !node.spec.taints.iter().any(held_back);
        Some(OwnedNode { name: node.metadata.name.clone(), pool: pool.clone(), shape, open, foreign })
    }

    /// Whether the engine holds a claim for an instance that it has bought.
    fn is_bought(&self, instance: &str) -> bool {
        let claim = self.view.as_ref().and_then(|view| view.claims.get(instance));
        claim.is_some_and(|claim| claim.owned.is_none())
    }

    /// What a node has for work, and how many of its GPUs are broken or not announced yet.
    fn shape(&self, node: &KubeNode) -> (OwnedShape, u16) {
        let label = |key: &str| node.metadata.label(key).unwrap_or_default();
        let resource = &self.settings.gpu_resource;
        let there = node.allocatable(resource);
        let all = label("nvidia.com/gpu.count").parse().unwrap_or(0).max(node.capacity(resource)).max(there);
        let of = |resource: &str| node.status.allocatable.get(resource).map_or(0, |text| milli(text).0);
        let count = |gpus: u64| u16::try_from(gpus).unwrap_or(u16::MAX);
        let shape = OwnedShape {
            instance_type: label("node.kubernetes.io/instance-type").to_owned(),
            zone: label("topology.kubernetes.io/zone").to_owned(),
            gpus: count(all),
            gpu_mem: Mib(label("nvidia.com/gpu.memory").parse().unwrap_or(0)),
            models: models(label("nvidia.com/gpu.product")),
            cpu: MilliCpu(of("cpu")),
            mem: Mib(of("memory") / (1000 << 20) / MEMORY_STEP * MEMORY_STEP),
            nvlink: 0,
        };
        (shape, count(all - there))
    }
}

/// Whether only CPU and memory of others differ.
fn differ_little(one: &OwnedNode, other: &OwnedNode) -> bool {
    let gpus = one.foreign.gpus == other.foreign.gpus && one.open == other.open;
    gpus && one.shape == other.shape && one.pool == other.pool
}

/// The names by which a job may ask for a GPU, of what GPU feature discovery calls it: `NVIDIA-A100-SXM4-80GB` is all of it, `a100`, and
/// `a100-80gb`. All of it comes first, so that no gang is over two kinds.
fn models(product: &str) -> Vec<String> {
    let product = product.to_lowercase();
    let words: Vec<&str> =
        product.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let memory =
        |word: &&str| word.strip_suffix("gb").is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
    let mut models = vec![product.clone()];
    for word in words.iter().filter(|word| !memory(word) && !matches!(**word, "nvidia" | "tesla" | "geforce")) {
        models.push((*word).to_owned());
        models.extend(words.iter().copied().find(|word| memory(word)).map(|memory| format!("{word}-{memory}")));
    }
    models.retain(|model| !model.is_empty());
    let mut seen = BTreeSet::new();
    models.retain(|model| seen.insert(model.clone()));
    models
}

#[cfg(test)]
mod tests {
    use super::models;

    #[test]
    fn a_gpu_answers_to_the_names_that_people_use() {
        assert_eq!(
            models("NVIDIA-A100-SXM4-80GB"),
            ["nvidia-a100-sxm4-80gb", "a100", "a100-80gb", "sxm4", "sxm4-80gb"].map(str::to_owned)
        );
        assert_eq!(models("Tesla-T4"), ["tesla-t4", "t4"].map(str::to_owned));
        assert_eq!(
            models("NVIDIA-H100-80GB-HBM3")[..3],
            ["nvidia-h100-80gb-hbm3", "h100", "h100-80gb"].map(str::to_owned)
        );
        assert_eq!(models(""), Vec::<String>::new());
    }
}

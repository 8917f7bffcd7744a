//! Instances of the loopback EC2 as nodes of a Kubernetes: what a cloud's images do, whose kubelet registers the node when it has booted, and its
//! cloud controller, which deletes the node when the instance is terminated. kwok plays their kubelets.
//!
//! ```text
//! loopback EC2 --/control/instances, every 100 ms--> one `kubectl create` and one `kubectl delete` for all that booted or ended
//! ```
//!
//! Never: a node of an instance that has not booted, a change to a node that it did not make.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::Kubernetes;
use crate::{PartError, RepeatingThread, http};

/// Between two looks at the instances: short beside a boot.
const PAUSE: Duration = Duration::from_millis(100);

/// How nodes are made of instances.
#[derive(Clone, Debug)]
pub struct NodeBridgeOptions {
    /// The port of the loopback EC2 on 127.0.0.1.
    pub ec2_port: u16,
    /// Taints that nodes register with, `NoSchedule`.
    pub taints: Vec<String>,
    /// The resource of whole GPUs.
    pub gpu_resource: String,
}

impl NodeBridgeOptions {
    /// Nodes as docs/KUBERNETES.md wants them to register.
    #[must_use]
    pub fn new(ec2_port: u16) -> Self {
        let taints = ["forebay.dev/node", "forebay.dev/starting"].map(str::to_owned).into();
        Self { ec2_port, taints, gpu_resource: "nvidia.com/gpu".to_owned() }
    }
}

/// Follows the instances until it is dropped.
#[derive(Debug)]
pub struct NodeBridge {
    trouble: Arc<Mutex<Option<String>>>,
    _thread: RepeatingThread,
}

impl NodeBridge {
    /// A node for each instance that runs from now on.
    #[must_use]
    pub fn follow(kubernetes: Arc<Kubernetes>, options: NodeBridgeOptions) -> Self {
        let trouble = Arc::new(Mutex::new(None));
        let (say, mut nodes) = (Arc::clone(&trouble), BTreeSet::new());
        let thread = RepeatingThread::start(PAUSE, move || {
            let error = step(&kubernetes, &options, &mut nodes).err().map(|error| error.to_string());
            *say.lock().unwrap_or_else(PoisonError::into_inner) = error;
        });
        Self { trouble, _thread: thread }
    }

    /// Why its last look changed nothing, where it failed. It looks again all the same: an API server may be away for a while.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn step(kubernetes: &Kubernetes, options: &NodeBridgeOptions, nodes: &mut BTreeSet<String>) -> Result<(), PartError> {
    let listed = http::get(options.ec2_port, "/control/instances").map_err(PartError::process("the loopback EC2"))?;
    let instances: Vec<Instance<'_>> = listed.lines().filter_map(Instance::parse).collect();
    let alive: BTreeSet<&str> = instances.iter().filter(|one| !one.is_ending()).map(|one| one.id).collect();
    let ended: Vec<String> = nodes.iter().filter(|id| !alive.contains(id.as_str())).cloned().collect();
    if !ended.is_empty() {
        let mut arguments = vec!["delete", "node", "--wait=false", "--ignore-not-found"];
        arguments.extend(ended.iter().map(String::as_str));
        kubernetes.kubectl(&arguments, "")?;
        nodes.retain(|id| !ended.contains(id));
    }
    let booted = instances.iter().filter(|one| one.state == "running" && !nodes.contains(one.id));
    let booted: Vec<&Instance<'_>> = booted.collect();
    if !booted.is_empty() {
        let mut yaml = String::new();
        for instance in &booted {
            // Writing to a String does not fail.
            let _ = writeln!(yaml, "---\n{}", instance.node(options));
        }
        // Not created: some of them may be there already, from a call whose answer was lost.
        kubernetes.apply(&yaml)?;
        nodes.extend(booted.iter().map(|one| one.id.to_owned()));
    }
    Ok(())
}

/// A line of the loopback EC2's list.
#[derive(Debug, PartialEq, Eq)]
struct Instance<'l> {
    id: &'l str,
    kind: &'l str,
    gpus: u32,
    zone: &'l str,
    state: &'l str,
}

impl<'l> Instance<'l> {
    /// The columns: id, type, GPUs, zone, capacity type, state, and more.
    fn parse(line: &'l str) -> Option<Self> {
        let mut columns = line.split(' ');
        let (id, kind, gpus, zone) = (columns.next()?, columns.next()?, columns.next()?, columns.next()?);
        let state = columns.nth(1)?;
        Some(Self { id, kind, gpus: gpus.parse().ok()?, zone, state })
    }

    fn is_ending(&self) -> bool {
        matches!(self.state, "shutting-down" | "terminated")
    }

    fn node(&self, options: &NodeBridgeOptions) -> String {
        let Self { id, kind, zone, gpus, .. } = self;
        let resources = format!("{{cpu: '192', memory: 2Ti, pods: '110', {}: '{gpus}'}}", options.gpu_resource);
        let taints: Vec<String> =
            options.taints.iter().map(|key| format!("{{key: {key}, effect: NoSchedule}}")).collect();
        format!(
            "apiVersion: v1\nkind: Node\n\
             metadata: {{name: {id}, labels: {{forebay.dev/node: 'true', topology.kubernetes.io/zone: {zone}, node.kubernetes.io/instance-type: {kind}}}}}\n\
             spec: {{providerID: 'aws:///{zone}/{id}', taints: [{}]}}\n\
             status: {{allocatable: {resources}, capacity: {resources}}}",
            taints.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_list_is_an_instance() {
        let line = "i-1 p5.48xlarge 8 us-east-1a spot running 2026-11-23T00:00:00Z forebay:claim=n-1,a=b c";
        let instance = Instance::parse(line).unwrap();
        assert_eq!(
            instance,
            Instance { id: "i-1", kind: "p5.48xlarge", gpus: 8, zone: "us-east-1a", state: "running" }
        );
        let node = instance.node(&NodeBridgeOptions::new(1));
        assert!(node.contains("providerID: 'aws:///us-east-1a/i-1'") && node.contains("nvidia.com/gpu: '8'"), "{node}");
        assert!(node.contains("{key: forebay.dev/starting, effect: NoSchedule}"), "{node}");
        assert_eq!(Instance::parse("i-1 p5.48xlarge"), None);
    }
}

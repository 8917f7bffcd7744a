//! Instances of the loopback EC2 as nodes of a Kubernetes: what a cloud's images do, whose kubelet registers the node when it has booted, and its
//! cloud controller, which deletes the node when the instance is terminated.
//!
//! Never: a node of an instance that has not booted, a change to a node that it did not make.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_cluster_kube::KubeSettings;
use forebay_loopback_ec2::{InstanceState, Loopback};
use forebay_parts::Kubernetes;

/// Between two looks at the instances: short beside a boot.
const PAUSE: Duration = Duration::from_millis(50);

/// Runs until it is dropped.
pub struct NodeBridge {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl NodeBridge {
    /// A node with the taints of these settings for each instance that runs from now on.
    pub fn follow(ec2: Arc<Loopback>, kubernetes: Arc<Kubernetes>, settings: KubeSettings) -> NodeBridge {
        let ended = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&ended);
        let thread = std::thread::spawn(move || {
            let mut nodes = BTreeSet::new();
            while !end.load(Ordering::Relaxed) {
                step(&ec2, &kubernetes, &settings, &mut nodes);
                std::thread::park_timeout(PAUSE);
            }
        });
        NodeBridge { ended, thread: Some(thread) }
    }
}

impl Drop for NodeBridge {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of it has been printed.
            let _ = thread.join();
        }
    }
}

fn step(ec2: &Loopback, kubernetes: &Kubernetes, settings: &KubeSettings, nodes: &mut BTreeSet<String>) {
    let (mut booted, mut ended) = (Vec::new(), Vec::new());
    {
        let region = ec2.region();
        for instance in region.instances() {
            if instance.state == InstanceState::Running && !nodes.contains(&instance.id) {
                let row = region.options().types.iter().find(|row| row.instance_type == instance.instance_type);
                let gpus = row.map_or(0, |row| row.gpus);
                booted.push((instance.id.clone(), node(instance, gpus, settings)));
            } else if instance.state.is_ending() && nodes.contains(&instance.id) {
                ended.push(instance.id.clone());
            }
        }
    }
    for (id, yaml) in booted {
        kubernetes.apply(&yaml).expect("a node registers");
        nodes.insert(id);
    }
    for id in ended {
        kubernetes.kubectl(&["delete", "node", &id, "--wait=false", "--ignore-not-found"], "").expect("a node goes");
        nodes.remove(&id);
    }
}

fn node(instance: &forebay_loopback_ec2::LoopbackInstance, gpus: u32, settings: &KubeSettings) -> String {
    let (id, zone, kind) = (&instance.id, &instance.zone, &instance.instance_type);
    let resources = format!("{{cpu: '96', memory: 1Ti, pods: '110', {}: '{gpus}'}}", settings.gpu_resource);
    let taints =
        [&settings.node_taint, &settings.startup_taint].map(|key| format!("{{key: {key}, effect: NoSchedule}}"));
    format!(
        "apiVersion: v1
kind: Node
metadata: {{name: {id}, labels: {{topology.kubernetes.io/zone: {zone}, node.kubernetes.io/instance-type: {kind}}}}}
spec: {{providerID: 'aws:///{zone}/{id}', taints: [{}]}}
status: {{allocatable: {resources}, capacity: {resources}}}
",
        taints.join(", ")
    )
}

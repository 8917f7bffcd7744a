//! Nodes that boot: an instance of the loopback EC2 becomes a node of a real API server, loses its start-up taint, and is reported ready; nodes
//! of instances that the engine does not know stay as they are.
//!
//! Never: a kubelet; kwok stands in for it.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a real API server is waited for by the real clock"
)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use forebay_cluster_kube::client::{CredentialSource, KubeClient, MachineCommand, task};
use forebay_cluster_kube::view::{ClaimPhase, ClaimView};
use forebay_cluster_kube::{EngineView, KubeMachine, KubeReport, KubeSettings};
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::event::Event;
use forebay_kernel::ids::NodeId;
use forebay_kernel::units::{Span, Timestamp};
use forebay_loopback_ec2::{Loopback, LoopbackClock, Region, RegionOptions};
use forebay_parts::{Kubernetes, KubernetesOptions, KwokOptions, NodeBridge, NodeBridgeOptions};
use tokio::sync::mpsc;
use tokio::time::timeout;

const LIMIT: Duration = Duration::from_secs(60);
const ZONE: &str = "us-east-1a";

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

#[tokio::test(flavor = "multi_thread")]
async fn real_node_is_ready_once_its_startup_taint_is_gone_and_others_keep_theirs() {
    let kwok = Some(KwokOptions::default());
    // A new node has a taint until the controller manager sees that it is ready.
    let options = KubernetesOptions { kwok, controller_manager: true, ..KubernetesOptions::default() };
    let kubernetes = Arc::new(Kubernetes::start(options).unwrap());
    let options = RegionOptions {
        origin: now(),
        boot_time: Span::secs(1),
        shutdown_time: Span::secs(1),
        ..RegionOptions::default()
    };
    let row = options.types.iter().find(|row| row.gpus == 8).expect("a type with eight GPUs").clone();
    let ec2 = Arc::new(Loopback::start(Region::new(options), LoopbackClock::Wall).unwrap());
    let settings = KubeSettings::new("jobs", "registry.example.com/forebay:1");
    let _bridge = NodeBridge::follow(Arc::clone(&kubernetes), NodeBridgeOptions::new(ec2.port()));
    let launch = || {
        let tags = BTreeMap::new();
        ec2.region()
            .launch_foreign(now(), &row.instance_type, ZONE, CapacityType::OnDemand, tags)
            .expect("a known type")
    };
    let [ours, foreign] = [launch(), launch()];

    let address = CredentialSource::Kubeconfig { path: kubernetes.kubeconfig(), context: None };
    let client = KubeClient::connect(&address).await.unwrap();
    let offers = BTreeMap::from([(settings.gpu_resource.clone(), 8)]);
    let claim = ClaimView { node: NodeId(1), phase: ClaimPhase::Booting, offers, owned: None };
    let view = EngineView { claims: BTreeMap::from([(ours.clone(), claim)]), ..EngineView::default() };
    let (commands, inbox) = mpsc::channel(8);
    let (outbox, mut reports) = mpsc::channel(8);
    tokio::spawn(task::run(KubeMachine::new(settings, "0b4bd4d4"), client, now, inbox, outbox));
    commands.send(MachineCommand::Begin(view)).await.unwrap();

    assert_eq!(timeout(LIMIT, reports.recv()).await.expect("in time"), Some(KubeReport::Listed));
    let report = timeout(LIMIT, reports.recv()).await.expect("in time").expect("the task runs");
    assert_eq!(report, KubeReport::Event(Event::NodeReady { instance: ours.clone() }));
    // Kubernetes' own taints of a new node go when its controllers have seen it, each node's in its time.
    let taints = |node: &str| {
        let keys = ["get", "node", node, "-o", "jsonpath={.spec.taints[*].key}"];
        kubernetes.wait_until(&keys, |keys| !keys.is_empty() && !keys.contains("kubernetes.io/")).unwrap()
    };
    assert_eq!(taints(&ours), "forebay.dev/node");
    assert_eq!(taints(&foreign), "forebay.dev/node forebay.dev/starting", "nobody holds a claim for it");

    assert!(ec2.region().terminate_as_user(now(), &ours));
    let names = ["get", "nodes", "-o", "jsonpath={.items[*].metadata.name}"];
    kubernetes.wait_until(&names, |names| names == foreign).unwrap();
}

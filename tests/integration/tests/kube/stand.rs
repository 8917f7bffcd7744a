//! A folder with a configuration, a Kubernetes, an EC2, and the bridge that makes nodes of instances.

use super::watcher::Watcher;
use forebay_integration::{Server, binary, until};
use forebay_kernel::units::Span;
use forebay_kubelet::{KubeletOptions, KubeletSet};
use forebay_loopback_ec2::{InstanceState, Loopback, LoopbackClock, Region, RegionOptions};
use forebay_parts::{Kubernetes, KubernetesOptions, KwokOptions, NodeBridge, NodeBridgeOptions};
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// Many times what anything here takes on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(300);

/// Where the jobs of the queue `research` run.
pub const NAMESPACE: &str = "research";

/// What the SRE keeps. The pods of the stand-in for kubelets end by themselves after `RUN_FOR`.
const TEMPLATE: &str = "
name: train
queues: [research]
images: [reg/]
env: [RUN_FOR]
secrets:
  wandb: {secret: wandb-key, env: {WANDB_API_KEY: key}}
volumes:
  datasets: {mountPath: /data, source: {persistentVolumeClaim: {claimName: datasets}}}
pod:
  metadata: {labels: {kept-by: sre}}
  spec:
    containers: [{name: worker, env: [{name: RUN_FOR, value: 3s}]}]
";

pub struct Stand {
    pub folder: TempDir,
    pub ec2: Loopback,
    pub kubernetes: Arc<Kubernetes>,
    pub watcher: Watcher,
    bridge: NodeBridge,
    /// What runs the pods, where they are processes.
    kubelets: Option<KubeletSet>,
}

/// How the configuration and the policy of a stand begin.
pub struct StandOptions<'o> {
    pub policy: &'o str,
    /// More of `forebay.yaml`, such as `kafka`.
    pub config: &'o str,
}

impl Stand {
    /// kwok plays the kubelets: pods say that they run.
    pub fn new(options: &StandOptions<'_>) -> Stand {
        Stand::with(options, TEMPLATE, Some(KwokOptions::default()), false)
    }

    /// The same, beside kube-scheduler and the controllers of Jobs and JobSets.
    pub fn with_schedulers(options: &StandOptions<'_>) -> Stand {
        Stand::with(options, TEMPLATE, Some(KwokOptions::default()), true)
    }

    /// The pods of this template are processes of this machine.
    pub fn of_processes(options: &StandOptions<'_>, template: &str) -> Stand {
        let mut stand = Stand::with(options, template, None, false);
        let kubelet = KubeletOptions {
            forebay: Some(binary().to_owned()),
            ..KubeletOptions::new(stand.kubernetes.kubeconfig(), "")
        };
        // Those that the bridge makes of instances have it.
        let label = "node.kubernetes.io/instance-type";
        stand.kubelets = Some(KubeletSet::follow(label, kubelet));
        stand
    }

    fn with(options: &StandOptions<'_>, template: &str, kwok: Option<KwokOptions>, schedulers: bool) -> Stand {
        let kubernetes = Kubernetes::start(KubernetesOptions {
            kwok,
            controller_manager: true,
            scheduler: schedulers,
            jobset_controller: schedulers,
            ..KubernetesOptions::default()
        });
        let kubernetes = Arc::new(kubernetes.expect("a Kubernetes"));
        let region = RegionOptions {
            boot_time: Span::secs(2),
            shutdown_time: Span::secs(1),
            max_staleness: Span::secs(1),
            ..RegionOptions::default()
        };
        let ec2 = Loopback::start(Region::new(region), LoopbackClock::Wall).expect("an EC2");
        let bridge = NodeBridge::follow(Arc::clone(&kubernetes), NodeBridgeOptions::new(ec2.port()));
        furnish(&kubernetes);
        let folder = tempfile::tempdir().expect("a folder");
        write(folder.path(), &kubernetes, &ec2, template, options);
        let watcher = Watcher::start(&kubernetes);
        Stand { folder, ec2, kubernetes, watcher, bridge, kubelets: None }
    }

    pub fn start(&self) -> Server {
        Server::start_with(self.folder.path(), &["--config", "forebay.yaml"], &[("TEST_KEY", "test")])
    }

    /// Waits until so many jobs are completed and no node that was bought is left; then what must hold is checked.
    pub fn all_over(&self, server: &Server, completed: u64, within: Duration) {
        until("all is over", within, || {
            let (_, summary) = server.get("/v1/summary");
            let (_, nodes) = server.get("/v1/nodes");
            let region = self.ec2.region();
            let existing = region.instances().filter(|one| one.state != InstanceState::Terminated).count();
            let bought = |node: &&Value| node["capacityType"] != "owned";
            let claims = nodes["nodes"].as_array().map_or(usize::MAX, |all| all.iter().filter(bought).count());
            if summary["completed"].as_u64() == Some(completed) && existing == 0 && claims == 0 {
                return Ok(());
            }
            let (_, sources) = server.get("/v1/sources");
            let trouble = self.trouble();
            Err(format!("{existing} instances; {nodes}; {summary}; {sources}; {trouble}; {}", tail(&server.log())))
        });
        self.foreign_is_untouched();
    }

    /// The foreign pod and the foreign node are as they were made.
    fn foreign_is_untouched(&self) {
        let pod = self.kubectl(&["get", "pod", "foreign", "-n", NAMESPACE, "-o", "json"]);
        let node = self.kubectl(&["get", "node", "foreign", "-o", "json"]);
        let [pod, node]: [Value; 2] = [pod, node].map(|text| serde_json::from_str(&text).expect("JSON"));
        // Where pods are processes, nobody plays the kubelet of a node that was not bought.
        assert_eq!(pod["status"]["phase"], if self.kubelets.is_some() { "Pending" } else { "Running" });
        for text in [&pod["metadata"], &node["metadata"], &node["spec"]].map(Value::to_string) {
            assert!(!text.contains("forebay"), "{text}");
        }
        assert!(node["spec"]["unschedulable"].is_null());
    }

    pub fn kubectl(&self, arguments: &[&str]) -> String {
        self.kubernetes.kubectl(arguments, "").expect("kubectl")
    }

    /// What is wrong with the stand itself, if anything is.
    pub fn trouble(&self) -> String {
        let kubelets = self.kubelets.as_ref().and_then(KubeletSet::trouble);
        self.bridge.trouble().into_iter().chain(kubelets).collect::<Vec<_>>().join("; ")
    }

    /// The pods of gangs.
    pub fn pods(&self) -> Vec<Value> {
        let listed = self.kubectl(&["get", "pods", "-n", NAMESPACE, "-l", "forebay.dev/journal", "-o", "json"]);
        let listed: Value = serde_json::from_str(&listed).expect("JSON");
        listed["items"].as_array().cloned().unwrap_or_default()
    }
}

fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().rev().take(20).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}

/// The namespace, and things of others that are not ours to touch.
fn furnish(kubernetes: &Kubernetes) {
    let kubectl = |arguments: &[&str]| kubernetes.kubectl(arguments, "").expect("kubectl");
    kubectl(&["create", "namespace", NAMESPACE]);
    kubectl(&["wait", "serviceaccount/default", "-n", NAMESPACE, "--for=create", "--timeout=60s"]);
    let foreign = format!(
        "{{apiVersion: v1, kind: Node, metadata: {{name: foreign}}, spec: {{providerID: 'aws:///us-east-1a/i-foreign'}}}}\n---\n\
         {{apiVersion: v1, kind: Pod, metadata: {{name: foreign, namespace: {NAMESPACE}}}, spec: {{nodeName: foreign, containers: \
         [{{name: a, image: b}}]}}}}\n"
    );
    kubernetes.apply(&foreign).expect("what others have");
}

fn write(folder: &Path, kubernetes: &Kubernetes, ec2: &Loopback, template: &str, options: &StandOptions<'_>) {
    let put = |name: &str, text: &str| std::fs::write(folder.join(name), text).expect("written");
    std::fs::create_dir(folder.join("templates")).expect("a folder");
    put("templates/train.yaml", template);
    put("policy.yaml", options.policy);
    let text = format!(
        "apiVersion: forebay/v1\nkind: Config\npolicy: policy.yaml\ndata: data\nec2:\n  name: kube\n  endpoint: {}\n  region: us-east-1\n  \
         keys: {{id: {{env: TEST_KEY}}, secret: {{env: TEST_KEY}}}}\n  zones: [us-east-1a, us-east-1b]\n  launch: {{template: {}}}\n  \
         interruptions: ['{}']\nkubernetes:\n  kubeconfig: {}\n  namespace: {NAMESPACE}\n  templates: templates\n  gateImage: \
         registry.example.com/forebay:1\n{}",
        ec2.url(),
        forebay_loopback_ec2::DEFAULT_TEMPLATE,
        ec2.queue_url(),
        kubernetes.kubeconfig().display(),
        options.config,
    );
    put("forebay.yaml", &text);
}

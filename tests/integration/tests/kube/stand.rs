//! A folder with a configuration, a Kubernetes, an EC2, and the bridge that makes nodes of instances. The controller has the service account of the
//! chart, with its roles and under its admission policies, and no other credentials.

use super::watcher::Watcher;
use forebay_integration::{Server, binary, root, until};
use forebay_kernel::units::Span;
use forebay_kubelet::{KubeletOptions, KubeletSet};
use forebay_loopback_ec2::{InstanceState, Loopback, LoopbackClock, Region, RegionOptions};
use forebay_parts::{Helm, Kubernetes, KubernetesOptions, KwokOptions, NodeBridge, NodeBridgeOptions};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// Many times what anything here takes on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(300);

/// Where the jobs of the queue `research` run.
pub const NAMESPACE: &str = "research";

/// The namespace of the controller itself, and its user.
pub const RELEASE_NAMESPACE: &str = "forebay-system";
const USER: &str = "system:serviceaccount:forebay-system:forebay";
/// The controller's credentials, in its folder.
pub const KUBECONFIG: &str = "forebay.kubeconfig";

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
            // As many calls as it likes: its own limits are for clusters in which others matter.
            scheduler_flags: vec!["--kube-api-qps=10000".to_owned(), "--kube-api-burst=10000".to_owned()],
            jobset_controller: schedulers,
            audit: true,
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
        let adopted = adopted(options.config);
        for namespace in &adopted {
            create_namespace(&kubernetes, namespace);
        }
        let kubeconfig = account(&kubernetes, &adopted);
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join(KUBECONFIG), kubeconfig).expect("written");
        write(folder.path(), &ec2, template, options);
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
        assert_eq!(self.forbidden(), Vec::<String>::new());
    }

    /// What the API server wrote down of the controller's requests.
    pub fn requests(&self) -> Vec<Value> {
        let audited = self.kubernetes.audited().expect("an audit log");
        let events = audited.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events.filter(|event| event["user"]["username"] == USER).collect()
    }

    /// Those that an admission policy refused, and those of a kind that the roles never let through. An API server that has just started does not
    /// know the roles yet.
    fn forbidden(&self) -> Vec<String> {
        let requests = self.requests();
        let kind = |event: &Value| {
            let object = &event["objectRef"];
            [&event["verb"], &object["apiGroup"], &object["resource"], &object["subresource"], &object["namespace"]]
                .map(Value::to_string)
        };
        let code = |event: &Value| event["responseStatus"]["code"].as_u64().unwrap_or(0);
        let let_through: BTreeSet<_> =
            requests.iter().filter(|event| !matches!(code(event), 0 | 401 | 403)).map(kind).collect();
        let by_role =
            |event: &Value| event["responseStatus"]["message"].as_str().is_some_and(|m| m.contains(" cannot "));
        let refused = |event: &&Value| code(event) == 403 && !(by_role(event) && let_through.contains(&kind(event)));
        let told = |event: &Value| format!("{} {}: {}", event["verb"], event["requestURI"], event["responseStatus"]);
        requests.iter().filter(refused).map(told).collect()
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

/// A test that failed tells what stood still.
impl Drop for Stand {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let pods = ["get", "pods", "-A", "-o", "wide"];
            let pods = self.kubernetes.kubectl(&pods, "").unwrap_or_else(|error| error.to_string());
            eprintln!("pods:\n{pods}\n{}", self.kubernetes.log_tail());
        }
    }
}

fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().rev().take(20).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}

/// The namespace, and things of others that are not ours to touch.
fn furnish(kubernetes: &Kubernetes) {
    create_namespace(kubernetes, NAMESPACE);
    let foreign = format!(
        "{{apiVersion: v1, kind: Node, metadata: {{name: foreign}}, spec: {{providerID: 'aws:///us-east-1a/i-foreign'}}}}\n---\n\
         {{apiVersion: v1, kind: Pod, metadata: {{name: foreign, namespace: {NAMESPACE}}}, spec: {{nodeName: foreign, containers: \
         [{{name: a, image: b}}]}}}}\n"
    );
    kubernetes.apply(&foreign).expect("what others have");
}

fn create_namespace(kubernetes: &Kubernetes, name: &str) {
    kubernetes.kubectl(&["create", "namespace", name], "").expect("kubectl");
    let account = ["wait", "serviceaccount/default", "-n", name, "--for=create", "--timeout=60s"];
    kubernetes.kubectl(&account, "").expect("kubectl");
}

/// The namespaces whose objects a configuration adopts.
fn adopted(config: &str) -> Vec<&str> {
    let listed = config.split_once("adopt: [").and_then(|(_, rest)| Some(rest.split_once(']')?.0));
    listed.into_iter().flat_map(|names| names.split(", ")).collect()
}

/// The chart's roles and admission policies, and a kubeconfig with a token of its service account.
fn account(kubernetes: &Kubernetes, adopt: &[&str]) -> String {
    let values = json!({
        "image": {"repository": "registry.example.com/forebay"},
        "config": {"ec2": {"name": "kube"}},
        "tokens": [{"name": "on-call", "roles": ["operate"], "secretKey": "on-call"}],
        "templates": {"train": TEMPLATE},
        "kubernetes": {"namespace": NAMESPACE, "adopt": adopt},
        "agent": {"enabled": true, "hostNetwork": false},
    });
    create_namespace(kubernetes, RELEASE_NAMESPACE);
    let chart = root().join("deploy/helm/forebay");
    let helm = Helm::install().expect("Helm");
    let rendered = helm.template(&chart, &values.to_string(), "forebay", RELEASE_NAMESPACE).expect("the chart");
    const RIGHTS: [&str; 7] = [
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
        "Role",
        "RoleBinding",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    ];
    let is_right =
        |document: &&str| document.lines().any(|line| RIGHTS.iter().any(|kind| line == format!("kind: {kind}")));
    let rights: Vec<&str> = rendered.split("\n---\n").filter(is_right).collect();
    kubernetes.apply(&rights.join("\n---\n")).expect("the chart's rights");
    let may = |verb: &str, resource: &str, namespace: &str| {
        let ask = ["auth", "can-i", verb, resource, "--as", USER, "-n", namespace];
        kubernetes.wait_until(&ask, |text| text.contains("yes")).expect("a role that counts");
    };
    may("list", "daemonsets.apps", NAMESPACE);
    may("create", "pods/binding", NAMESPACE);
    may("create", "tokenreviews.authentication.k8s.io", NAMESPACE);
    for namespace in adopt {
        may("patch", "jobs.batch", namespace);
    }
    let token = kubernetes.kubectl(&["create", "token", "forebay", "-n", RELEASE_NAMESPACE], "").expect("a token");
    let admin = std::fs::read_to_string(kubernetes.kubeconfig()).expect("a kubeconfig");
    admin.replace(kubernetes.token(), token.trim())
}

fn write(folder: &Path, ec2: &Loopback, template: &str, options: &StandOptions<'_>) {
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
        KUBECONFIG,
        options.config,
    );
    put("forebay.yaml", &text);
}

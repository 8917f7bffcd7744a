//! A real Kubernetes with the chart's roles and admission policies, and a client that has the controller's service account and nothing else.
//!
//! Never: an administrator's credentials in that client.

use std::fs;

use forebay_cluster_kube::client::{CredentialSource, KubeClient};
use forebay_parts::{Kubernetes, KubernetesOptions, KwokOptions};
use tempfile::TempDir;

use crate::rendered::{NAMESPACE, objects, rights, text};

/// The user that the admission policies are about.
pub const USER: &str = "system:serviceaccount:forebay-system:forebay";

/// A cluster into which the chart's rights were installed.
pub struct Installed {
    pub kubernetes: Kubernetes,
    /// Holds the kubeconfig.
    folder: TempDir,
}

impl Installed {
    /// Starts a cluster with nodes `node-1` to `node-N` of Forebay's, `other` of somebody else's, and namespaces with service accounts.
    pub fn new(nodes: u32, namespaces: &[&str], values: &str) -> Installed {
        let installed = Installed::without_rights(nodes, namespaces);
        installed.apply_rights(values);
        for namespace in namespaces {
            installed.may("create", "pods/binding", namespace);
        }
        installed.may("list", "nodes", NAMESPACE);
        installed.may("list", "daemonsets.apps", NAMESPACE);
        installed
    }

    /// The same, before the chart is installed.
    pub fn without_rights(nodes: u32, namespaces: &[&str]) -> Installed {
        let kwok = Some(KwokOptions::default());
        let options = KubernetesOptions { controller_manager: true, kwok, audit: true, ..KubernetesOptions::default() };
        let kubernetes = Kubernetes::start(options).unwrap();
        for namespace in namespaces.iter().chain([&NAMESPACE]) {
            kubernetes.kubectl(&["create", "namespace", namespace], "").unwrap();
            let account = ["wait", "serviceaccount/default", "-n", namespace, "--for=create", "--timeout=60s"];
            kubernetes.kubectl(&account, "").unwrap();
        }
        for node in 1..=nodes {
            let label = "labels: {forebay.dev/node: 'true'}";
            kubernetes.apply(&node_yaml(&format!("node-{node}"), &format!("i-{node}"), label, "")).unwrap();
        }
        kubernetes.apply(&node_yaml("other", "i-other", "labels: {}", "")).unwrap();
        Installed { kubernetes, folder: tempfile::tempdir().unwrap() }
    }

    fn apply_rights(&self, values: &str) {
        self.kubernetes.apply(&rights(&objects(&text(values)))).unwrap();
    }

    /// Waits until a role counts: the API server sees it a moment after it was created.
    fn may(&self, verb: &str, resource: &str, namespace: &str) {
        let ask = ["auth", "can-i", verb, resource, "--as", USER, "-n", namespace];
        self.kubernetes.wait_until(&ask, |text| text.contains("yes")).unwrap();
    }

    /// Waits until all three admission policies count. Each is asked by a change that would change nothing.
    pub fn confined(&self) {
        let pod = "{apiVersion: v1, kind: Pod, metadata: {name: probe, namespace: jobs}, spec: {containers: [{name: a, image: a}]}}";
        self.kubernetes.apply(pod).unwrap();
        let nothing = ["-p", "{}", "--as", USER];
        let node = [&["patch", "node", "other"], &nothing[..]].concat();
        self.kubernetes.wait_until(&node, |text| text.contains("-nodes' with binding")).unwrap();
        let object = [&["patch", "pod", "probe", "-n", "jobs"], &nothing[..]].concat();
        self.kubernetes.wait_until(&object, |text| text.contains("-objects' with binding")).unwrap();
        let binding = r#"{"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "none"}, "target": {"kind": "Node", "name": "n"}}"#;
        let file = self.folder.path().join("binding.json");
        fs::write(&file, binding).unwrap();
        let file = file.to_string_lossy();
        let post = ["create", "--raw", "/api/v1/namespaces/jobs/pods/none/binding", "-f", &file, "--as", USER];
        self.kubernetes.wait_until(&post, |text| text.contains("-bindings' with binding")).unwrap();
        self.kubernetes.kubectl(&["delete", "pod", "probe", "-n", "jobs", "--wait=false"], "").unwrap();
    }

    /// A client with a token of the controller's service account.
    pub async fn client(&self) -> KubeClient {
        self.client_of("forebay").await
    }

    /// A client with a token of a service account.
    pub async fn client_of(&self, account: &str) -> KubeClient {
        let token = self.kubernetes.kubectl(&["create", "token", account, "-n", NAMESPACE], "").unwrap();
        let admin = fs::read_to_string(self.kubernetes.kubeconfig()).unwrap();
        let path = self.folder.path().join("kubeconfig");
        let ours = admin.replace(self.kubernetes.token(), token.trim());
        assert!(!ours.contains(self.kubernetes.token()));
        fs::write(&path, ours).unwrap();
        KubeClient::connect(&CredentialSource::Kubeconfig { path, context: None }).await.unwrap()
    }
}

/// A node of eight GPUs.
pub fn node_yaml(name: &str, instance: &str, labels: &str, taints: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Node, metadata: {{name: {name}, {labels}}}, spec: {{providerID: 'aws:///us-east-1a/{instance}', \
          taints: [{{key: forebay.dev/node, effect: NoSchedule}}{taints}]}}, \
          status: {{allocatable: {{cpu: '96', memory: 1Ti, pods: '110', nvidia.com/gpu: '8'}}}}}}"
    )
}

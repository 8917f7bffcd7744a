//! What `forebay doctor` tries of a cluster: the API server, our rights, the namespaces, each template as the API server would take it, its claims,
//! and whether the device plugin comes with our nodes. Nothing is changed.

use super::{claims, settings, source, templates};
use crate::config::kubernetes::KubernetesConfig;
use forebay_cluster_kube::client::{KubeClient, Permission};
use forebay_cluster_kube::objects::{FutureNode, KubeDaemonSet};
use forebay_cluster_kube::template::{PodTemplate, TemplateSet};
use forebay_cluster_kube::{KubeSettings, TrialPod};
use forebay_source::Diagnostic;
use std::collections::BTreeSet;

/// What the adapter does in each namespace of gangs.
const IN_NAMESPACES: [(&str, &str); 17] = [
    ("list", "events"),
    ("get", "pods"),
    ("get", "pods/log"),
    ("get", "services"),
    ("get", "configmaps"),
    ("create", "pods"),
    ("patch", "pods"),
    ("delete", "pods"),
    ("create", "pods/binding"),
    ("create", "services"),
    ("patch", "services"),
    ("delete", "services"),
    ("create", "configmaps"),
    ("create", "secrets"),
    ("delete", "configmaps"),
    ("list", "services"),
    ("list", "configmaps"),
];

/// What it does in the whole cluster. Pods in all namespaces: what others run on our nodes has to be seen before one is drained.
const IN_CLUSTER: [(&str, &str); 7] = [
    ("list", "pods"),
    ("watch", "pods"),
    ("create", "pods/eviction"),
    ("get", "nodes"),
    ("list", "nodes"),
    ("watch", "nodes"),
    ("patch", "nodes"),
];

/// The same, of other API groups: what comes with every node has to be known before one is bought.
const IN_CLUSTER_GROUPS: [(&str, &str, &str); 2] = [("list", "apps", "daemonsets"), ("watch", "apps", "daemonsets")];

/// The same, where agents are known by their service accounts.
const REVIEWS: [(&str, &str, &str); 1] = [("create", "authentication.k8s.io", "tokenreviews")];

/// What it does in the whole cluster where objects are adopted.
const ADOPTED_IN_CLUSTER: [(&str, &str, &str); 4] = [
    ("list", "batch", "jobs"),
    ("watch", "batch", "jobs"),
    ("list", "jobset.x-k8s.io", "jobsets"),
    ("watch", "jobset.x-k8s.io", "jobsets"),
];

/// What it does in each namespace whose objects are adopted.
const ADOPTED_IN_NAMESPACES: [(&str, &str, &str); 4] = [
    ("patch", "batch", "jobs"),
    ("patch", "batch", "jobs/status"),
    ("patch", "jobset.x-k8s.io", "jobsets"),
    ("create", "events.k8s.io", "events"),
];

/// Tries everything.
pub(in crate::cluster) fn probe(config: &KubernetesConfig, runtime: &tokio::runtime::Handle) -> Vec<Diagnostic> {
    let subject = |part: &str| format!("kubernetes: {part}");
    let templates = match templates(&config.templates) {
        Ok(templates) => templates,
        Err(error) => return vec![Diagnostic::error(subject("templates"), error.to_string())],
    };
    let count = templates.iter().count();
    let mut found = vec![Diagnostic::ok(subject("templates"), format!("{count} in {}", config.templates.display()))];
    runtime.block_on(async {
        let client = match KubeClient::connect(&source(config)).await {
            Ok(client) => client,
            Err(error) => return found.push(Diagnostic::error(subject("connection"), error.to_string())),
        };
        match client.version().await {
            Ok(version) => found.push(Diagnostic::ok(subject("connection"), version)),
            Err(error) => {
                let text = format!("{error}; check the address and the credentials of the kubeconfig");
                return found.push(Diagnostic::error(subject("connection"), text));
            }
        }
        let settings = settings(config);
        let own = settings.namespaces.values().chain([&settings.namespace]);
        let namespaces: BTreeSet<String> = own.cloned().collect();
        let wanted = |verb, group, resource, namespace: Option<&String>| Permission {
            verb,
            resource,
            group,
            namespace: namespace.cloned(),
        };
        let mut all: Vec<Permission> =
            IN_CLUSTER.iter().map(|(verb, resource)| wanted(verb, "", resource, None)).collect();
        all.extend(IN_CLUSTER_GROUPS.iter().map(|(verb, group, resource)| wanted(verb, group, resource, None)));
        if !config.agents.is_empty() {
            all.extend(REVIEWS.iter().map(|(verb, group, resource)| wanted(verb, group, resource, None)));
        }
        if !settings.adopt.is_empty() {
            all.extend(ADOPTED_IN_CLUSTER.iter().map(|(verb, group, resource)| wanted(verb, group, resource, None)));
        }
        found.push(rights(&client, &subject("rights"), all).await);
        for namespace in &namespaces {
            let all = IN_NAMESPACES.iter().map(|(verb, resource)| wanted(verb, "", resource, Some(namespace)));
            found.push(rights(&client, &subject(&format!("rights in {namespace}")), all.collect()).await);
        }
        let mut missing = BTreeSet::new();
        for namespace in &namespaces {
            let (good, found_it) =
                self::namespace(&client, &subject(&format!("namespace {namespace}")), namespace).await;
            found.push(found_it);
            if !good {
                missing.insert(namespace.clone());
            }
        }
        for template in templates.iter() {
            let subject = subject(&format!("template {}", template.name));
            found.extend(trial(&client, subject, &settings, &templates, template, &missing).await);
        }
        found.extend(claims::probe(&client, &settings, &templates, &missing).await);
        found.push(device_plugin(&client, subject("device plugin"), &settings).await);
        for namespace in &settings.adopt {
            let all = ADOPTED_IN_NAMESPACES.iter();
            let all = all.map(|(verb, group, resource)| wanted(verb, group, resource, Some(namespace)));
            let subject = subject(&format!("rights to adopt in {namespace}"));
            found.push(rights(&client, &subject, all.collect()).await);
        }
    });
    found
}

/// Whether a namespace is there.
async fn namespace(client: &KubeClient, subject: &str, name: &str) -> (bool, Diagnostic) {
    match client.has_namespace(name).await {
        Ok(true) => (true, Diagnostic::ok(subject.to_owned(), "is there".to_owned())),
        Ok(false) => {
            let text = format!("it is not there, or is being deleted: kubectl create namespace {name}");
            (false, Diagnostic::error(subject.to_owned(), text))
        }
        Err(error) => (false, Diagnostic::error(subject.to_owned(), error.to_string())),
    }
}

/// Whether the API server would take a pod of a template. `None`: its namespace is not there, which was said.
async fn trial(
    client: &KubeClient,
    subject: String,
    settings: &KubeSettings,
    templates: &TemplateSet,
    template: &PodTemplate,
    missing: &BTreeSet<String>,
) -> Option<Diagnostic> {
    let pod = match TrialPod::of(settings, templates, template) {
        Ok(pod) => pod,
        Err(error) => return Some(Diagnostic::error(subject, error.to_string())),
    };
    if missing.contains(&pod.namespace) {
        return None;
    }
    Some(match client.would_take(&pod).await {
        Ok(()) => Diagnostic::ok(subject, format!("the API server takes a pod of it in {} (a dry run)", pod.namespace)),
        Err(error) => {
            let text = format!(
                "the API server would not take a pod of it in {}: {error}; change the template, or what refuses it",
                pod.namespace
            );
            Diagnostic::error(subject, text)
        }
    })
}

/// Whether something that offers GPUs to pods comes with our nodes.
async fn device_plugin(client: &KubeClient, subject: String, settings: &KubeSettings) -> Diagnostic {
    let sets = match client.daemon_sets().await {
        Ok(sets) => sets,
        Err(error) => return Diagnostic::error(subject, error.to_string()),
    };
    let taint = &settings.node_taint;
    let node = FutureNode { instance_type: "", taint };
    let plugins: Vec<_> = sets.iter().filter(|set| set.metadata.name.contains("device-plugin")).collect();
    let named = |set: &KubeDaemonSet| {
        format!("{}/{}", set.metadata.namespace.as_deref().unwrap_or_default(), set.metadata.name)
    };
    if let Some(set) = plugins.iter().find(|set| set.tolerates(node)) {
        return Diagnostic::ok(subject, format!("{} comes with nodes that are bought", named(set)));
    }
    let text = match plugins.first() {
        Some(set) => format!(
            "{} does not tolerate `{taint}`, so no GPU is offered on nodes that are bought: add the toleration",
            named(set)
        ),
        None => format!(
            "no DaemonSet is called a device plugin: unless the nodes' image has one, install NVIDIA's for nodes with the taint `{taint}`"
        ),
    };
    Diagnostic::warning(subject, text)
}

/// Whether we have these rights; those that are missing are named.
async fn rights(client: &KubeClient, subject: &str, wanted: Vec<Permission>) -> Diagnostic {
    let mut missing = Vec::new();
    for permission in &wanted {
        match client.is_allowed(permission).await {
            Ok(true) => {}
            Ok(false) => missing.push(format!("{} {}", permission.verb, permission.resource)),
            Err(error) => return Diagnostic::error(subject.to_owned(), error.to_string()),
        }
    }
    if missing.is_empty() {
        return Diagnostic::ok(subject.to_owned(), format!("all {} that are needed", wanted.len()));
    }
    let text = format!("missing: {}; grant them to the user or service account of the controller", missing.join(", "));
    Diagnostic::error(subject.to_owned(), text)
}

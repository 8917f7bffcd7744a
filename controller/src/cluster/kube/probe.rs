//! What `forebay doctor` tries of a cluster: the API server, our rights, and each template as the API server would take it. Nothing is changed.

use super::{settings, source, templates};
use crate::config::kubernetes::KubernetesConfig;
use forebay_cluster_kube::client::{KubeClient, Permission};
use forebay_source::Diagnostic;
use std::collections::BTreeSet;

/// What the adapter does in each namespace of gangs.
const IN_NAMESPACES: [(&str, &str); 16] = [
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
        if !settings.adopt.is_empty() {
            all.extend(ADOPTED_IN_CLUSTER.iter().map(|(verb, group, resource)| wanted(verb, group, resource, None)));
        }
        found.push(rights(&client, &subject("rights"), all).await);
        for namespace in &namespaces {
            let all = IN_NAMESPACES.iter().map(|(verb, resource)| wanted(verb, "", resource, Some(namespace)));
            found.push(rights(&client, &subject(&format!("rights in {namespace}")), all.collect()).await);
        }
        for namespace in &settings.adopt {
            let all = ADOPTED_IN_NAMESPACES.iter();
            let all = all.map(|(verb, group, resource)| wanted(verb, group, resource, Some(namespace)));
            let subject = subject(&format!("rights to adopt in {namespace}"));
            found.push(rights(&client, &subject, all.collect()).await);
        }
    });
    found
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

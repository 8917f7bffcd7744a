//! Removes our finalizers from the pods of the configured namespaces. No journal is opened.
//!
//! Never: a pod without our label; a right that removing them does not need.

use super::{settings, source, source_of};
use crate::cluster::{ClusterError, FinalizerRemoval, FoundFinalizers};
use forebay_cluster_kube::client::{FinalizerMode, KubeClient};
use std::collections::BTreeSet;

pub(in crate::cluster) fn remove_finalizers(removal: &FinalizerRemoval<'_>) -> Result<FoundFinalizers, ClusterError> {
    let config = removal.config.and_then(|config| config.kubernetes.as_ref());
    let mut namespaces = removal.namespaces.clone();
    if namespaces.is_empty() {
        let own: BTreeSet<String> = config.map(settings).map_or_else(BTreeSet::new, |settings| {
            settings.namespaces.values().chain([&settings.namespace]).cloned().collect()
        });
        namespaces = own;
    }
    if namespaces.is_empty() {
        let words = "no namespace is named: give --namespace, or --config with a section `kubernetes`";
        return Err(ClusterError::Setting(words.to_owned()));
    }
    let source = config.map_or_else(|| source_of(None, None), source);
    let mode = if removal.dry { FinalizerMode::Find } else { FinalizerMode::Remove };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ClusterError::Thread)?;
    runtime.block_on(async {
        let client = KubeClient::connect(&source).await.map_err(|error| ClusterError::Setting(error.to_string()))?;
        let mut found = FoundFinalizers::default();
        for namespace in &namespaces {
            match client.finalized_pods(namespace, removal.journal.as_deref(), mode).await {
                Ok(pods) => found.pods.extend(pods.into_iter().map(|pod| format!("{namespace}/{pod}"))),
                Err(error) => found.failures.push(format!("{namespace}: {error}")),
            }
        }
        Ok(found)
    })
}

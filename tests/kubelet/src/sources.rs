//! The ConfigMaps and Secrets that a pod names, read before it starts.
//!
//! Never: read again while the pod lives; what changes in one of them does not reach the pod.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::{Api, Client};

/// The contents of ConfigMaps and Secrets, by their names. Those that do not exist are not in it.
#[derive(Clone, Default)]
pub struct PodSources {
    /// ConfigMaps.
    pub config_maps: BTreeMap<String, BTreeMap<String, Vec<u8>>>,
    /// Secrets.
    pub secrets: BTreeMap<String, BTreeMap<String, Vec<u8>>>,
}

/// Reads all that a pod names.
pub(crate) async fn read(client: &Client, namespace: &str, pod: &Pod) -> Result<PodSources, kube::Error> {
    let (config_maps, secrets) = names(pod);
    let mut sources = PodSources::default();
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    for name in config_maps {
        if let Some(found) = api.get_opt(&name).await? {
            let text = found.data.unwrap_or_default().into_iter().map(|(key, text)| (key, text.into_bytes()));
            let binary = found.binary_data.unwrap_or_default().into_iter().map(|(key, bytes)| (key, bytes.0));
            sources.config_maps.insert(name, text.chain(binary).collect());
        }
    }
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    for name in secrets {
        if let Some(found) = api.get_opt(&name).await? {
            let data = found.data.unwrap_or_default().into_iter().map(|(key, bytes)| (key, bytes.0));
            sources.secrets.insert(name, data.collect());
        }
    }
    Ok(sources)
}

/// The names of the ConfigMaps and of the Secrets that a pod names.
fn names(pod: &Pod) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut config_maps, mut secrets) = (BTreeSet::new(), BTreeSet::new());
    let Some(spec) = &pod.spec else { return (config_maps, secrets) };
    for volume in spec.volumes.iter().flatten() {
        config_maps.extend(volume.config_map.as_ref().map(|source| source.name.clone()));
        secrets.extend(volume.secret.as_ref().and_then(|source| source.secret_name.clone()));
    }
    for container in spec.init_containers.iter().flatten().chain(&spec.containers) {
        for from in container.env_from.iter().flatten() {
            config_maps.extend(from.config_map_ref.as_ref().map(|source| source.name.clone()));
            secrets.extend(from.secret_ref.as_ref().map(|source| source.name.clone()));
        }
        for source in container.env.iter().flatten().filter_map(|one| one.value_from.as_ref()) {
            config_maps.extend(source.config_map_key_ref.as_ref().map(|key| key.name.clone()));
            secrets.extend(source.secret_key_ref.as_ref().map(|key| key.name.clone()));
        }
    }
    (config_maps, secrets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_name_of_a_pod_is_found() {
        let spec = json!({
            "volumes": [{"name": "a", "configMap": {"name": "c-1"}}, {"name": "b", "secret": {"secretName": "s-1"}}],
            "containers": [{"name": "w", "envFrom": [{"configMapRef": {"name": "c-2"}}, {"secretRef": {"name": "s-2"}}],
                "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s-3", "key": "k"}}}]}],
        });
        let pod =
            serde_json::from_value(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": spec})).unwrap();
        let (config_maps, secrets) = names(&pod);
        assert_eq!(config_maps, ["c-1", "c-2"].map(str::to_owned).into());
        assert_eq!(secrets, ["s-1", "s-2", "s-3"].map(str::to_owned).into());
    }
}

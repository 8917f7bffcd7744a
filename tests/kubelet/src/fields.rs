//! Fields of a pod that its containers can see: by variables and by files of the downward API.
//!
//! Never: resources of containers; nothing here limits them.

use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeMap;

/// The value of a field, such as `metadata.annotations['a']` or `spec.nodeName`. `None`: it is not one that there is.
#[must_use]
pub fn field(pod: &Pod, path: &str) -> Option<String> {
    let metadata = &pod.metadata;
    let keyed = |map: &str| path.strip_prefix(map)?.strip_prefix("['")?.strip_suffix("']").map(str::to_owned);
    let value = |map: &Option<BTreeMap<String, String>>, key: &str| {
        map.as_ref().and_then(|map| map.get(key)).cloned().unwrap_or_default()
    };
    if let Some(key) = keyed("metadata.annotations") {
        return Some(value(&metadata.annotations, &key));
    }
    if let Some(key) = keyed("metadata.labels") {
        return Some(value(&metadata.labels, &key));
    }
    let spec = pod.spec.as_ref();
    match path {
        "metadata.name" => metadata.name.clone(),
        "metadata.namespace" => metadata.namespace.clone(),
        "metadata.uid" => metadata.uid.clone(),
        "metadata.annotations" => Some(lines(&metadata.annotations)),
        "metadata.labels" => Some(lines(&metadata.labels)),
        "spec.nodeName" => spec.and_then(|spec| spec.node_name.clone()),
        "spec.serviceAccountName" => spec.and_then(|spec| spec.service_account_name.clone()),
        "status.hostIP" | "status.podIP" => Some("127.0.0.1".to_owned()),
        _ => None,
    }
}

/// A whole map: `key="value"`, one a line, as the downward API writes it.
fn lines(map: &Option<BTreeMap<String, String>>) -> String {
    let line = |(key, value): (&String, &String)| format!("{key}={value:?}");
    map.iter().flatten().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_are_those_of_the_pod() {
        let metadata = json!({"name": "p", "namespace": "a", "annotations": {"forebay.dev/barrier": "open", "b": "1"}});
        let pod: Pod = serde_json::from_value(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
            "spec": {"nodeName": "n", "containers": []}}))
        .unwrap();
        for (path, value) in [
            ("metadata.name", Some("p")),
            ("metadata.annotations['forebay.dev/barrier']", Some("open")),
            ("metadata.annotations['none']", Some("")),
            ("metadata.annotations", Some("b=\"1\"\nforebay.dev/barrier=\"open\"")),
            ("metadata.labels['x']", Some("")),
            ("spec.nodeName", Some("n")),
            ("status.podIP", Some("127.0.0.1")),
            ("spec.containers", None),
        ] {
            assert_eq!(field(&pod, path).as_deref(), value, "{path}");
        }
    }
}

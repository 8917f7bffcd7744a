//! The chart as Helm renders it, as text and as JSON.
//!
//! Never: a cluster.

use std::path::PathBuf;

use forebay_parts::Helm;
use serde_json::{Value, json};

/// The release and its namespace, in all of these tests.
pub const RELEASE: &str = "forebay";
pub const NAMESPACE: &str = "forebay-system";

/// What a role or an admission policy is.
const RIGHTS: [&str; 7] = [
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
];

pub fn chart() -> PathBuf {
    root().join("deploy/helm/forebay")
}

pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// One of the chart's examples of values.
pub fn example(name: &str) -> String {
    let path = chart().join("examples").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The chart with these values, as Helm prints it.
pub fn text(values: &str) -> String {
    Helm::install().unwrap().template(&chart(), values, RELEASE, NAMESPACE).unwrap_or_else(|e| panic!("{e}"))
}

/// Helm's words about values that do not fit.
pub fn refusal(values: &str) -> String {
    let helm = Helm::install().unwrap();
    helm.template(&chart(), values, RELEASE, NAMESPACE).expect_err("the values are wrong").to_string()
}

/// The objects of a rendered chart.
pub fn objects(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap()
}

/// The objects of a kind.
pub fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}

/// The roles and admission policies among these objects, as one document for kubectl.
pub fn rights(objects: &[Value]) -> String {
    let rights = objects.iter().filter(|object| RIGHTS.iter().any(|kind| object["kind"] == *kind) && !is_hook(object));
    json!({"apiVersion": "v1", "kind": "List", "items": rights.collect::<Vec<_>>()}).to_string()
}

/// Whether Helm makes an object only when the release is deleted.
pub fn is_hook(object: &Value) -> bool {
    object["metadata"]["annotations"]["helm.sh/hook"].is_string()
}

/// Values with others in their place, by a path of keys.
pub fn with(values: &str, path: &[&str], value: Value) -> String {
    let mut all: Value = serde_saphyr::from_str(values).unwrap();
    let mut at = &mut all;
    for key in path {
        at = &mut at[*key];
    }
    *at = value;
    all.to_string()
}

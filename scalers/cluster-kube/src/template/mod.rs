//! Pod templates: what the operator keeps, so that an event names one and sets only what it allows.
//!
//! ```text
//! file (YAML or JSON) -> PodTemplate::parse -> check -> TemplateSet --render(queue, event's `run`)--> RenderedRun -> the gang's pod
//! ```
//!
//! ```
//! use forebay_cluster_kube::template::{PodTemplate, RunFields, TemplateSet};
//!
//! let template = PodTemplate::parse(r#"
//! name: train
//! queues: [research]
//! images: [registry.example.com/team/]
//! env: [EPOCHS]
//! pod: {spec: {containers: [{name: worker}]}}
//! "#)?;
//! let set = TemplateSet::new([template])?;
//! let event = br#"{"run": {"template": "train", "image": "registry.example.com/team/a:1", "env": {"EPOCHS": "90"}}}"#;
//! let rendered = set.render("research/vision", &RunFields::of(event)?)?;
//! assert_eq!(rendered.container, "worker");
//! # Ok::<(), forebay_cluster_kube::template::TemplateError>(())
//! ```
//!
//! Never: a pod specification or the value of a secret from an event.

mod check;
mod fields;
mod render;
#[cfg(test)]
mod tests;

pub use check::VolumeClaimState;
pub use fields::RunFields;
pub use render::RenderedRun;
pub(crate) use render::{GANG_PATH, TOKEN_PATH, append, container_of, escaped, init_container_of, set_env};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A template as it is written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodTemplate {
    /// The name that an event gives in `run.template`.
    pub name: String,
    /// The queues whose jobs may use it, with all below them.
    pub queues: Vec<String>,
    /// What an event's image begins with: a registry and repository up to a `/`, `:` or `@`, or one whole image. Empty: an event may not set
    /// the image.
    #[serde(default)]
    pub images: Vec<String>,
    /// The environment variables that an event may set.
    #[serde(default)]
    pub env: BTreeSet<String>,
    /// The container that works, which gets image, arguments and environment. Default: the first one.
    #[serde(default)]
    pub container: Option<String>,
    /// Whether the token of the pod's service account is mounted. Default: no.
    #[serde(default)]
    pub service_account_token: bool,
    /// The secrets that an event may name.
    #[serde(default)]
    pub secrets: BTreeMap<String, SecretUse>,
    /// The volumes that an event may name.
    #[serde(default)]
    pub volumes: BTreeMap<String, VolumeUse>,
    /// The pod: `metadata` with labels and annotations, and `spec`.
    pub pod: Value,
}

/// What naming a secret does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SecretUse {
    /// The Secret in the gang's namespace.
    pub secret: String,
    /// Environment variables from its keys: the name of the variable, and the key.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Where its keys are mounted as files, read only.
    #[serde(default)]
    pub mount_path: Option<String>,
}

/// What naming a volume does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VolumeUse {
    /// Where it is mounted.
    pub mount_path: String,
    /// Whether it cannot be written. Default: yes.
    #[serde(default = "read_only")]
    pub read_only: bool,
    /// The source of the volume as a pod has it, such as `{persistentVolumeClaim: {claimName: datasets}}`.
    pub source: Value,
}

fn read_only() -> bool {
    true
}

/// What a template or an event has wrong: where, what, and how to mend it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {what}; {remedy}")]
pub struct TemplateError {
    /// Where, such as `template train: spec.affinity.podAffinity`.
    pub place: String,
    /// What is wrong.
    pub what: String,
    /// How to mend it.
    pub remedy: String,
}

impl TemplateError {
    fn new(place: impl Into<String>, what: impl Into<String>, remedy: impl Into<String>) -> TemplateError {
        TemplateError { place: place.into(), what: what.into(), remedy: remedy.into() }
    }
}

impl PodTemplate {
    /// Reads a template from YAML or JSON and checks it.
    ///
    /// # Errors
    /// It is not a template, or it asks for something that gangs cannot have.
    pub fn parse(text: &str) -> Result<PodTemplate, TemplateError> {
        let options = serde_saphyr::options! { with_snippet: false };
        let parsed: Result<PodTemplate, _> = serde_saphyr::from_str_with_options(text, options);
        let remedy = "write name, queues and pod, as docs/KUBERNETES.md shows";
        let template = parsed.map_err(|error| TemplateError::new("template", error.to_string(), remedy))?;
        template.check()?;
        Ok(template)
    }

    /// The name of the container that works.
    #[must_use]
    pub fn working_container(&self) -> Option<&str> {
        let first = self.pod.pointer("/spec/containers/0/name").and_then(Value::as_str);
        self.container.as_deref().or(first)
    }

    /// Whether jobs of a queue may use it.
    #[must_use]
    pub fn serves(&self, queue: &str) -> bool {
        let below = |of: &String| queue.strip_prefix(of.as_str()).is_some_and(|rest| rest.starts_with('/'));
        self.queues.iter().any(|of| of == queue || below(of))
    }

    /// Whether an event may name an image.
    #[must_use]
    pub fn allows_image(&self, image: &str) -> bool {
        let ends = |c: char| matches!(c, '/' | ':' | '@');
        self.images.iter().any(|prefix| {
            let Some(rest) = image.strip_prefix(prefix.as_str()) else { return false };
            rest.is_empty() || prefix.ends_with(ends) || rest.starts_with(ends)
        })
    }
}

/// All templates of a cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TemplateSet {
    by_name: BTreeMap<String, PodTemplate>,
}

impl TemplateSet {
    /// The templates, each under its name.
    ///
    /// # Errors
    /// Two have one name, or one of them is not valid.
    pub fn new(templates: impl IntoIterator<Item = PodTemplate>) -> Result<TemplateSet, TemplateError> {
        let mut by_name = BTreeMap::new();
        for template in templates {
            template.check()?;
            let place = format!("template {}", template.name);
            if by_name.insert(template.name.clone(), template).is_some() {
                return Err(TemplateError::new(place, "two templates have this name", "give each a name of its own"));
            }
        }
        Ok(TemplateSet { by_name })
    }

    /// The template of that name.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<&PodTemplate> {
        self.by_name.get(name)
    }

    /// All of them, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &PodTemplate> {
        self.by_name.values()
    }
}

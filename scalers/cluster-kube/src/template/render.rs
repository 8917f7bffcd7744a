//! A template with what an event sets: the pod that all workers of a gang share.
//!
//! Never: expands anything of an event. Kubernetes replaces `$(NAME)` in arguments and environment, so each `$` from an event is doubled.

use super::check::forbidden_env;
use super::{PodTemplate, RunFields, TemplateError, TemplateSet};
use crate::names::{ANNOTATION_BARRIER, ANNOTATION_WORKER, GATE_CONTAINER, VOLUME_GANG, VOLUME_TOKEN, VOLUME_WORKER};
use crate::settings::KubeSettings;
use forebay_kernel::units::Span;
use serde_json::{Map, Value, json};

/// Where the gang's hostfile is.
pub(crate) const GANG_PATH: &str = "/etc/forebay/gang";
/// Where the file with the attempt's token is.
pub(crate) const TOKEN_PATH: &str = "/etc/forebay/token";
/// Where the downward-API volume is mounted in the container of the barrier.
const WORKER_PATH: &str = "/etc/forebay/worker";

/// A template with what an event sets.
#[derive(Clone, Debug, PartialEq)]
pub struct RenderedRun {
    /// The name of the container that works.
    pub container: String,
    /// The environment variables of the event, escaped.
    pub env: Vec<(String, String)>,
    pod: Value,
}

impl TemplateSet {
    /// The template that an event names, with what the event sets.
    ///
    /// # Errors
    /// The template does not exist, is not for the queue, or does not allow what the event sets.
    pub fn render(&self, queue: &str, fields: &RunFields) -> Result<RenderedRun, TemplateError> {
        let names: Vec<&str> = self.iter().filter(|t| t.serves(queue)).map(|t| t.name.as_str()).collect();
        let usable = if names.is_empty() { "none yet".to_owned() } else { names.join(", ") };
        let remedy = format!("name one that queue {queue} may use: {usable}");
        let Some(name) = &fields.template else {
            return Err(TemplateError::new("run.template", "the job names no template", remedy));
        };
        let template = self.named(name).filter(|template| template.serves(queue));
        match template {
            Some(template) => template.render(fields),
            None => Err(TemplateError::new("run.template", format!("queue {queue} has no template `{name}`"), remedy)),
        }
    }
}

impl PodTemplate {
    fn render(&self, fields: &RunFields) -> Result<RenderedRun, TemplateError> {
        let mut pod = self.pod.clone();
        let container = self.working_container().unwrap_or_default().to_owned();
        self.render_container(&container, fields, &mut pod)?;
        self.render_volumes(&container, fields, &mut pod)?;
        if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
            spec.insert("automountServiceAccountToken".to_owned(), json!(self.service_account_token));
        }
        let mut env = Vec::new();
        for (name, value) in &fields.env {
            let place = format!("run.env.{name}");
            if let Some(why) = forbidden_env(name) {
                return Err(TemplateError::new(place, format!("`{name}` {why}"), "remove it"));
            }
            if !self.env.contains(name) {
                let what = format!("template {} does not let events set it", self.name);
                return Err(TemplateError::new(
                    place,
                    what,
                    "remove it, or have the operator list it in the template's env",
                ));
            }
            env.push((name.clone(), escaped(value)));
        }
        Ok(RenderedRun { container, env, pod })
    }

    fn render_container(&self, name: &str, fields: &RunFields, pod: &mut Value) -> Result<(), TemplateError> {
        let Some(container) = container_of(pod, name) else {
            return Err(TemplateError::new(format!("template {}", self.name), "has no container", "write one"));
        };
        match &fields.image {
            Some(image) if self.allows_image(image) => {
                container.insert("image".to_owned(), json!(image));
            }
            Some(image) => {
                let what = format!("template {} does not allow `{image}`", self.name);
                let allowed = if self.images.is_empty() { "none".to_owned() } else { self.images.join(", ") };
                return Err(TemplateError::new(
                    "run.image",
                    what,
                    format!("use an image that begins with one of: {allowed}"),
                ));
            }
            None if !container.contains_key("image") => {
                let what = format!("template {} has no image of its own", self.name);
                return Err(TemplateError::new("run.image", what, "name an image"));
            }
            None => {}
        }
        if let Some(args) = &fields.args {
            let args: Vec<String> = args.iter().map(|arg| escaped(arg)).collect();
            container.insert("args".to_owned(), json!(args));
        }
        Ok(())
    }

    fn render_volumes(&self, container: &str, fields: &RunFields, pod: &mut Value) -> Result<(), TemplateError> {
        let unknown = |kind: &str, name: &str, known: Vec<&String>| {
            let what = format!("template {} has no {kind} `{name}`", self.name);
            let known: Vec<&str> = known.into_iter().map(String::as_str).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            TemplateError::new(format!("run.{kind}s"), what, format!("name one of its {kind}s: {known}"))
        };
        for name in &fields.secrets {
            let usage = self.secrets.get(name).ok_or_else(|| unknown("secret", name, self.secrets.keys().collect()))?;
            let env = usage.env.iter().map(|(variable, key)| {
                json!({"name": variable, "valueFrom": {"secretKeyRef": {"name": usage.secret, "key": key}}})
            });
            let env: Vec<Value> = env.collect();
            if let Some(container) = container_of(pod, container) {
                set_env(container, env);
            }
            if let Some(path) = &usage.mount_path {
                let source = json!({"secret": {"secretName": usage.secret}});
                mount(pod, container, &format!("secret-{name}"), source, &json!({"mountPath": path, "readOnly": true}));
            }
        }
        for name in &fields.volumes {
            let volume =
                self.volumes.get(name).ok_or_else(|| unknown("volume", name, self.volumes.keys().collect()))?;
            let at = json!({"mountPath": volume.mount_path, "readOnly": volume.read_only});
            mount(pod, container, &format!("volume-{name}"), volume.source.clone(), &at);
        }
        Ok(())
    }
}

impl RenderedRun {
    /// The pod of every worker of the gang, without what differs between them. `grace` is the time that the job has to save when its pod ends.
    #[must_use]
    pub fn pod(&self, settings: &KubeSettings, grace: Option<Span>) -> Value {
        let mut pod = self.pod.clone();
        let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return pod };
        spec.insert("restartPolicy".to_owned(), json!("Never"));
        spec.insert("schedulerName".to_owned(), json!(settings.scheduler_name));
        spec.insert("enableServiceLinks".to_owned(), json!(false));
        if let Some(grace) = grace {
            spec.insert("terminationGracePeriodSeconds".to_owned(), json!(grace.0.div_ceil(1000).max(1)));
        }
        let tolerations = [&settings.node_taint, &settings.startup_taint];
        append(spec, "tolerations", tolerations.map(|key| json!({"key": key, "operator": "Exists"})));
        // First: nothing of the job runs before the whole gang is bound.
        let own = spec.remove("initContainers");
        append(spec, "initContainers", [gate(settings)]);
        append(spec, "initContainers", own.iter().filter_map(Value::as_array).flatten().cloned());
        append(spec, "volumes", [worker_volume()]);
        let container = self.container.clone();
        for (volume, path) in [(VOLUME_GANG, GANG_PATH), (VOLUME_TOKEN, TOKEN_PATH)] {
            mount_only(&mut pod, &container, volume, &json!({"mountPath": path, "readOnly": true}));
        }
        pod
    }
}

/// Who the pod is and whether its barrier is open, as files: for the start barrier, and for the agent on the node.
fn worker_volume() -> Value {
    let item = |path: &str, field: &str| json!({"path": path, "fieldRef": {"fieldPath": field}});
    let items = json!([
        item("worker", &format!("metadata.annotations['{ANNOTATION_WORKER}']")),
        item("barrier", &format!("metadata.annotations['{ANNOTATION_BARRIER}']")),
        // By these two the agent finds the worker that a DCGM exporter means.
        item("namespace", "metadata.namespace"),
        item("pod", "metadata.name"),
    ]);
    json!({"name": VOLUME_WORKER, "downwardAPI": {"items": items}})
}

/// The container that waits until the barrier is open. What it requests is the worker's own, which begins when it has ended: see `pod_body`.
fn gate(settings: &KubeSettings) -> Value {
    json!({
        "name": GATE_CONTAINER,
        "image": settings.gate_image,
        "command": ["forebay", "gate", "--file", format!("{WORKER_PATH}/barrier")],
        "volumeMounts": [{"name": VOLUME_WORKER, "mountPath": WORKER_PATH, "readOnly": true}],
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
        },
    })
}

/// The container of that name.
pub(crate) fn container_of<'p>(pod: &'p mut Value, name: &str) -> Option<&'p mut Map<String, Value>> {
    named(pod.pointer_mut("/spec/containers")?, name)
}

/// An init container of a pod by its name.
pub(crate) fn init_container_of<'p>(pod: &'p mut Value, name: &str) -> Option<&'p mut Map<String, Value>> {
    named(pod.pointer_mut("/spec/initContainers")?, name)
}

fn named<'p>(containers: &'p mut Value, name: &str) -> Option<&'p mut Map<String, Value>> {
    let containers = containers.as_array_mut()?;
    containers.iter_mut().filter_map(Value::as_object_mut).find(|c| c.get("name").and_then(Value::as_str) == Some(name))
}

/// Sets variables of a container: one that is there already is replaced, so that who reads the pod sees one value.
pub(crate) fn set_env(container: &mut Map<String, Value>, variables: impl IntoIterator<Item = Value>) {
    let variables: Vec<Value> = variables.into_iter().collect();
    if let Some(Value::Array(items)) = container.get_mut("env") {
        items.retain(|item| variables.iter().all(|variable| variable.get("name") != item.get("name")));
    }
    append(container, "env", variables);
}

/// Adds values to the end of an object's list, which is made where there is none.
pub(crate) fn append(object: &mut Map<String, Value>, name: &str, values: impl IntoIterator<Item = Value>) {
    let mut items = match object.remove(name) {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    };
    items.extend(values);
    object.insert(name.to_owned(), Value::Array(items));
}

/// Adds a volume to the pod and mounts it in a container.
fn mount(pod: &mut Value, container: &str, name: &str, source: Value, at: &Value) {
    let name = name.to_ascii_lowercase().replace(['_', '.'], "-");
    let mut volume = source;
    if let (Some(volume), Some(spec)) = (volume.as_object_mut(), pod.get_mut("spec").and_then(Value::as_object_mut)) {
        volume.insert("name".to_owned(), json!(name));
        append(spec, "volumes", [Value::Object(volume.clone())]);
    }
    mount_only(pod, container, &name, at);
}

/// Mounts a volume in a container.
fn mount_only(pod: &mut Value, container: &str, name: &str, at: &Value) {
    let mut at = at.clone();
    if let (Some(at), Some(container)) = (at.as_object_mut(), container_of(pod, container)) {
        at.insert("name".to_owned(), json!(name));
        append(container, "volumeMounts", [Value::Object(at.clone())]);
    }
}

/// A text that Kubernetes leaves as it is: `$$` stands for one `$`.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('$', "$$")
}

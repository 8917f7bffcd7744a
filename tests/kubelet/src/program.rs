//! What a container runs: its command, arguments and environment, from the pod.
//!
//! Never: an image, a shell that reads them, a variable of this process but `PATH` and `HOME`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, Pod};

use crate::expand::expanded;
use crate::fields::field;
use crate::sources::PodSources;
use crate::volumes::Mounts;

/// Where programs are looked for, behind what a pod says itself.
const USUAL_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A process to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// The file.
    pub(crate) path: PathBuf,
    /// Its arguments.
    pub(crate) arguments: Vec<String>,
    /// All its variables.
    pub(crate) env: BTreeMap<String, String>,
}

/// Why a container cannot be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unstartable {
    /// Something is missing that may come: the kubelet waits for it, with these words.
    Waits(String),
    /// It will never start.
    Never(String),
}

impl Program {
    /// What a container runs. `forebay` is what stands for the program of that name, where it is given.
    pub(crate) fn of(
        pod: &Pod,
        container: &Container,
        sources: &PodSources,
        mounts: &Mounts,
        forebay: Option<&Path>,
    ) -> Result<Program, Unstartable> {
        let env = environment(pod, container, sources)?;
        let words = container.command.iter().flatten().chain(container.args.iter().flatten());
        let mut words = words.map(|word| mounts.rewritten(&expanded(word, &env)));
        let Some(program) = words.next() else {
            let why = "the stand-in for kubelets knows no images: the container needs a command";
            return Err(Unstartable::Never(why.to_owned()));
        };
        let arguments = words.collect();
        let mut env: BTreeMap<String, String> =
            env.into_iter().map(|(name, value)| (name, mounts.rewritten(&value))).collect();
        let own = env.get("PATH").cloned();
        let search = match own.or_else(|| std::env::var("PATH").ok()) {
            Some(path) => format!("{path}:{USUAL_PATH}"),
            None => USUAL_PATH.to_owned(),
        };
        let path = resolved(&program, &search, forebay)
            .ok_or_else(|| Unstartable::Never(format!("exec: \"{program}\": executable file not found in $PATH")))?;
        env.insert("PATH".to_owned(), search);
        let host = pod.spec.as_ref().and_then(|spec| spec.hostname.clone()).or_else(|| pod.metadata.name.clone());
        env.entry("HOSTNAME".to_owned()).or_insert_with(|| host.unwrap_or_default());
        Ok(Program { path, arguments, env })
    }
}

fn resolved(program: &str, search: &str, forebay: Option<&Path>) -> Option<PathBuf> {
    let path = Path::new(program);
    if let Some(forebay) = forebay
        && path.file_name().is_some_and(|name| name == "forebay")
    {
        return Some(forebay.to_owned());
    }
    if program.contains('/') {
        return path.is_file().then(|| path.to_owned());
    }
    search
        .split(':')
        .filter(|folder| !folder.is_empty())
        .map(|folder| Path::new(folder).join(program))
        .find(|file| file.is_file())
}

/// The variables of a container, those of `envFrom` first. Each may name those before it.
fn environment(
    pod: &Pod,
    container: &Container,
    sources: &PodSources,
) -> Result<BTreeMap<String, String>, Unstartable> {
    let mut env = BTreeMap::new();
    for from in container.env_from.iter().flatten() {
        let prefix = from.prefix.as_deref().unwrap_or_default();
        let (kind, name, optional, data) = if let Some(source) = &from.config_map_ref {
            ("configmap", &source.name, source.optional, sources.config_maps.get(&source.name))
        } else if let Some(source) = &from.secret_ref {
            ("secret", &source.name, source.optional, sources.secrets.get(&source.name))
        } else {
            continue;
        };
        let data = match data {
            Some(data) => data,
            None if optional == Some(true) => continue,
            None => return Err(Unstartable::Waits(format!("{kind} \"{name}\" not found"))),
        };
        env.extend(data.iter().map(|(key, value)| (format!("{prefix}{key}"), text(value))));
    }
    for variable in container.env.iter().flatten() {
        let value = match &variable.value_from {
            Some(source) => from_source(pod, variable, source, sources)?,
            None => Some(expanded(variable.value.as_deref().unwrap_or_default(), &env)),
        };
        if let Some(value) = value {
            env.insert(variable.name.clone(), value);
        }
    }
    Ok(env)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The value of a variable that comes from elsewhere. `None`: it is optional, and there is none.
fn from_source(
    pod: &Pod,
    variable: &EnvVar,
    source: &EnvVarSource,
    sources: &PodSources,
) -> Result<Option<String>, Unstartable> {
    let (kind, name, key, optional, data) = if let Some(from) = &source.field_ref {
        let unknown = || Unstartable::Never(format!("variable {}: no field `{}`", variable.name, from.field_path));
        return field(pod, &from.field_path).map(Some).ok_or_else(unknown);
    } else if let Some(from) = &source.secret_key_ref {
        ("secret", &from.name, &from.key, from.optional, sources.secrets.get(&from.name))
    } else if let Some(from) = &source.config_map_key_ref {
        ("configmap", &from.name, &from.key, from.optional, sources.config_maps.get(&from.name))
    } else {
        let why =
            format!("variable {}: the stand-in has fieldRef, secretKeyRef and configMapKeyRef only", variable.name);
        return Err(Unstartable::Never(why));
    };
    match data.map(|data| data.get(key)) {
        Some(Some(value)) => Ok(Some(text(value))),
        _ if optional == Some(true) => Ok(None),
        Some(None) => Err(Unstartable::Waits(format!("couldn't find key {key} in {kind} {name}"))),
        None => Err(Unstartable::Waits(format!("{kind} \"{name}\" not found"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(container: Value) -> Pod {
        serde_json::from_value(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "a"},
            "spec": {"hostname": "w0", "containers": [container]}}))
        .unwrap()
    }

    fn program(container: Value, sources: &PodSources) -> Result<Program, Unstartable> {
        let pod = pod(container);
        let container = &pod.spec.as_ref().unwrap().containers[0];
        Program::of(&pod, container, sources, &Mounts::default(), Some(Path::new("/bin/true")))
    }

    #[test]
    fn variables_come_from_fields_secrets_and_those_before_them() {
        let mut sources = PodSources::default();
        sources.secrets.insert("wandb".into(), BTreeMap::from([("key".into(), b"hush".to_vec())]));
        let container = json!({"name": "w", "command": ["sh", "-c"], "args": ["echo $(ALL) $$(ALL)"], "env": [
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "wandb", "key": "key"}}},
            {"name": "MAY", "valueFrom": {"secretKeyRef": {"name": "none", "key": "key", "optional": true}}},
            {"name": "ALL", "value": "$(POD)/$(KEY)/$(LATER)"},
            {"name": "LATER", "value": "1"},
        ]});
        let program = program(container, &sources).unwrap();
        assert_eq!(program.arguments, ["-c", "echo p/hush/$(LATER) $(ALL)"]);
        assert!(program.path.ends_with("sh") && program.path.is_file());
        assert_eq!((program.env["HOSTNAME"].as_str(), program.env.get("MAY")), ("w0", None));
    }

    #[test]
    fn what_is_missing_is_waited_for_and_what_cannot_be_is_said() {
        let none = PodSources::default();
        let ask = |container: Value| program(container, &none).unwrap_err();
        let secret = json!({"name": "w", "command": ["sh"], "env": [{"name": "K", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]});
        assert_eq!(ask(secret), Unstartable::Waits("secret \"s\" not found".to_owned()));
        assert!(matches!(ask(json!({"name": "w"})), Unstartable::Never(why) if why.contains("needs a command")));
        let unknown = json!({"name": "w", "command": ["no-such-program-anywhere"]});
        assert!(matches!(ask(unknown), Unstartable::Never(why) if why.contains("not found in $PATH")));
        let gate = json!({"name": "w", "command": ["forebay", "gate"]});
        assert_eq!(program(gate, &none).unwrap().path, Path::new("/bin/true"));
    }
}

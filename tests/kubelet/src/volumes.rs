//! A pod's volumes as folders, and the paths at which its containers expect them.
//!
//! ```text
//! FOLDER/volumes/NAME          downwardAPI (kept up to date), configMap, secret, emptyDir
//! CLAIMS/NAMESPACE/CLAIM       a persistentVolumeClaim: it stays when the pod goes
//! ```
//!
//! There is no mount namespace: a process sees the machine's own folders. So a mount path in a command, an argument or a variable is replaced by
//! the folder of its volume: `/etc/forebay/worker/barrier` becomes `FOLDER/volumes/forebay-worker/barrier`. A path that a program has in itself is
//! not seen, and finds nothing. `/dev/shm` is left alone.
//! Never: a file outside of the pod's folder and the claims' folder.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, KeyToPath, Pod, Volume};

use crate::fields::field;
use crate::sources::PodSources;

/// Mount paths that every machine has.
const LEFT_ALONE: [&str; 1] = ["/dev/shm"];

/// The folders of a pod's volumes.
#[derive(Debug)]
pub(crate) struct PodVolumes {
    folders: BTreeMap<String, PathBuf>,
}

impl PodVolumes {
    /// Makes all folders and their files. The error says what is missing; it may come later.
    pub(crate) fn prepare(pod: &Pod, folder: &Path, claims: &Path, sources: &PodSources) -> Result<Self, String> {
        let mut folders = BTreeMap::new();
        for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
            let path = prepare(pod, volume, folder, claims, sources)
                .map_err(|why| format!("volume {}: {why}", volume.name))?;
            folders.insert(volume.name.clone(), path);
        }
        let volumes = Self { folders };
        volumes.refresh(pod).map_err(|e| e.to_string())?;
        Ok(volumes)
    }

    /// Writes the files of the downward API again, where they differ.
    pub(crate) fn refresh(&self, pod: &Pod) -> io::Result<()> {
        for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
            let (Some(api), Some(folder)) = (&volume.downward_api, self.folders.get(&volume.name)) else { continue };
            for item in api.items.iter().flatten() {
                let value = item.field_ref.as_ref().and_then(|from| field(pod, &from.field_path)).unwrap_or_default();
                let path = folder.join(within(&item.path).ok_or(io::ErrorKind::InvalidInput)?);
                if fs::read(&path).ok().as_deref() != Some(value.as_bytes()) {
                    write(&path, value.as_bytes())?;
                }
            }
        }
        Ok(())
    }

    /// The folders of a container's mounts, by their mount paths.
    pub(crate) fn mounts(&self, container: &Container) -> Mounts {
        let mut mounts = Vec::new();
        for mount in container.volume_mounts.iter().flatten() {
            let folder = self.folders.get(&mount.name);
            let sub = mount.sub_path.as_deref().map_or(Some(PathBuf::new()), within);
            if let (Some(folder), Some(sub)) = (folder, sub)
                && !LEFT_ALONE.contains(&mount.mount_path.as_str())
            {
                mounts
                    .push((mount.mount_path.trim_end_matches('/').to_owned(), folder.join(sub).display().to_string()));
            }
        }
        // The longest first: one may be within another.
        mounts.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        Mounts(mounts)
    }
}

fn prepare(pod: &Pod, volume: &Volume, folder: &Path, claims: &Path, sources: &PodSources) -> Result<PathBuf, String> {
    let failed = |e: io::Error| e.to_string();
    let own = folder.join("volumes").join(within(&volume.name).ok_or("its name is no folder's")?);
    if let Some(claim) = &volume.persistent_volume_claim {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
        let path = claims
            .join(within(namespace).ok_or("no namespace")?)
            .join(within(&claim.claim_name).ok_or("no claim's name")?);
        fs::create_dir_all(&path).map_err(failed)?;
        return Ok(path);
    }
    fs::create_dir_all(&own).map_err(failed)?;
    let (kind, name, items, optional, data) = if let Some(source) = &volume.config_map {
        ("configmap", &source.name, &source.items, source.optional, sources.config_maps.get(&source.name))
    } else if let Some(source) = &volume.secret {
        let name = source.secret_name.as_ref().ok_or("it names no secret")?;
        ("secret", name, &source.items, source.optional, sources.secrets.get(name))
    } else if volume.empty_dir.is_some() || volume.downward_api.is_some() {
        return Ok(own);
    } else {
        return Err(
            "the stand-in has downwardAPI, configMap, secret, emptyDir and persistentVolumeClaim only".to_owned()
        );
    };
    match data {
        Some(data) => files(&own, data, items.as_deref())?,
        None if optional == Some(true) => {}
        None => return Err(format!("{kind} \"{name}\" not found")),
    }
    Ok(own)
}

/// Writes the keys of a ConfigMap or Secret as files.
fn files(folder: &Path, data: &BTreeMap<String, Vec<u8>>, items: Option<&[KeyToPath]>) -> Result<(), String> {
    let all: Vec<(&str, &str)> = match items {
        Some(items) => items.iter().map(|item| (item.key.as_str(), item.path.as_str())).collect(),
        None => data.keys().map(|key| (key.as_str(), key.as_str())).collect(),
    };
    for (key, path) in all {
        let bytes = data.get(key).ok_or_else(|| format!("references non-existent key: {key}"))?;
        let path = folder.join(within(path).ok_or_else(|| format!("`{path}` leaves the volume"))?);
        write(&path, bytes).map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// A relative path without `..`.
fn within(path: &str) -> Option<PathBuf> {
    let path = Path::new(path);
    path.components().all(|part| matches!(part, Component::Normal(_))).then(|| path.to_owned())
}

/// Writes a file in one step: who reads it sees the old one or the new one.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    fs::write(&name, bytes)?;
    fs::rename(&name, path)
}

/// Mount paths and their folders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mounts(Vec<(String, String)>);

impl Mounts {
    /// The text with the folder in the place of each mount path that stands there as a path of its own.
    pub(crate) fn rewritten(&self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some(next) = rest.chars().next() {
            let found = self
                .0
                .iter()
                .find(|(path, _)| !path.is_empty() && rest.starts_with(path) && is_whole(&out, &rest[path.len()..]));
            match found {
                Some((path, folder)) => {
                    out.push_str(folder);
                    rest = &rest[path.len()..];
                }
                None => {
                    out.push(next);
                    rest = &rest[next.len_utf8()..];
                }
            }
        }
        out
    }
}

/// Whether what stands between these two is a path of its own: not the end of a longer one, nor the beginning of a longer name.
fn is_whole(before: &str, behind: &str) -> bool {
    let of_a_name = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | '~');
    let begins = match before.chars().next_back() {
        // `file://` and an absolute path; never the `//` of another scheme.
        Some('/') => before.ends_with("://"),
        Some(c) => !of_a_name(c),
        None => true,
    };
    begins && !behind.chars().next().is_some_and(of_a_name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(annotation: &str, volumes: Value) -> Pod {
        serde_json::from_value(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "a", "annotations": {"b": annotation}},
            "spec": {"volumes": volumes, "containers": [{"name": "w"}]}}))
        .unwrap()
    }

    #[test]
    fn a_mount_path_is_replaced_where_it_is_a_path_of_its_own() {
        let mounts = Mounts(vec![("/data/deep".into(), "/D".into()), ("/data".into(), "/V".into())]);
        for (text, is) in [
            ("/data", "/V"),
            ("/data/x", "/V/x"),
            ("/data/deep/x", "/D/x"),
            ("--in=/data/x", "--in=/V/x"),
            ("file:///data/x", "file:///V/x"),
            ("/data:/data/deep", "/V:/D"),
            ("s3://data/x", "s3://data/x"),
            ("s3://bucket/data", "s3://bucket/data"),
            ("/var/data", "/var/data"),
            ("/database", "/database"),
            ("/data.old", "/data.old"),
            ("", ""),
        ] {
            assert_eq!(mounts.rewritten(text), is, "{text}");
        }
    }

    #[test]
    fn volumes_are_folders_and_the_downward_api_follows_the_pod() {
        let root = tempfile::tempdir().unwrap();
        let (folder, claims) = (root.path().join("pod"), root.path().join("claims"));
        let volumes = json!([
            {"name": "down", "downwardAPI": {"items": [{"path": "barrier", "fieldRef": {"fieldPath": "metadata.annotations['b']"}}]}},
            {"name": "conf", "configMap": {"name": "c", "items": [{"key": "k", "path": "sub/file"}]}},
            {"name": "hush", "secret": {"secretName": "s"}},
            {"name": "room", "emptyDir": {}},
            {"name": "kept", "persistentVolumeClaim": {"claimName": "datasets"}},
        ]);
        let mut sources = PodSources::default();
        let missing = PodVolumes::prepare(&pod("", volumes.clone()), &folder, &claims, &sources).unwrap_err();
        assert_eq!(missing, "volume conf: configmap \"c\" not found");
        sources.config_maps.insert("c".into(), BTreeMap::from([("k".into(), b"v".to_vec())]));
        sources.secrets.insert("s".into(), BTreeMap::from([("token".into(), b"t".to_vec())]));
        let made = PodVolumes::prepare(&pod("", volumes.clone()), &folder, &claims, &sources).unwrap();
        let read = |path: &str| fs::read_to_string(folder.join("volumes").join(path)).unwrap();
        assert_eq!(
            (read("down/barrier"), read("conf/sub/file"), read("hush/token")),
            (String::new(), "v".into(), "t".into())
        );
        assert!(claims.join("a/datasets").is_dir() && folder.join("volumes/room").is_dir());
        made.refresh(&pod("open", volumes)).unwrap();
        assert_eq!(read("down/barrier"), "open");
    }

    #[test]
    fn nothing_leaves_the_pods_folder() {
        let root = tempfile::tempdir().unwrap();
        let mut sources = PodSources::default();
        sources.config_maps.insert("c".into(), BTreeMap::from([("k".into(), b"v".to_vec())]));
        for path in ["../x", "/x", "a/../../x"] {
            let volumes = json!([{"name": "conf", "configMap": {"name": "c", "items": [{"key": "k", "path": path}]}}]);
            let refused = PodVolumes::prepare(&pod("", volumes), &root.path().join("pod"), root.path(), &sources);
            assert!(refused.is_err(), "{path}");
        }
        let host = json!([{"name": "host", "hostPath": {"path": "/"}}]);
        let refused = PodVolumes::prepare(&pod("", host), &root.path().join("pod"), root.path(), &sources).unwrap_err();
        assert!(refused.contains("only"), "{refused}");
    }
}

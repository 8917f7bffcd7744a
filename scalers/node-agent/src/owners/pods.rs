//! The workers of the node's pods, by the files that the kubelet writes into a downward-API volume by the name of [`WORKER_VOLUME`].
//!
//! Never: asks an API server, or follows a name that is not a pod's UID.

use super::cgroup::is_uid;
use super::{PresentWorkers, read_text};
use crate::worker::{MOST_NAME, WorkerName};
use std::path::{Path, PathBuf};

/// The downward-API volume by which a pod says which worker it is. Whoever makes the pods of gangs gives them these files.
pub const WORKER_VOLUME: &str = "forebay-worker";
/// Its file with the pod's annotation `forebay.dev/worker`.
pub const WORKER_FILE: &str = "worker";
/// Its file with the namespace of the pod, for sources that know a GPU's user by namespace and name.
pub const NAMESPACE_FILE: &str = "namespace";
/// Its file with the name of the pod, for the same.
pub const POD_FILE: &str = "pod";

/// Where the kubelet keeps the volumes of that kind, in the folder of a pod.
const VOLUMES: &str = "volumes/kubernetes.io~downward-api";
/// A kubelet has 110 pods by default, and folders of those that are over for a while.
const MOST_PODS: usize = 4096;
/// The longest name of a namespace or a pod in Kubernetes.
const MOST_OBJECT_NAME: u64 = 253;

/// A pod by its names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct PodName {
    pub namespace: String,
    pub name: String,
}

/// The worker that a pod is.
pub(super) fn worker(kubelet: &Path, uid: &str) -> Option<WorkerName> {
    worker_in(&volume(kubelet, uid))
}

/// The workers of all pods.
pub(super) fn present(kubelet: &Path) -> PresentWorkers {
    let mut present = PresentWorkers::default();
    let entries = std::fs::read_dir(kubelet.join("pods")).into_iter().flatten().flatten().take(MOST_PODS);
    let uids = entries.filter_map(|entry| entry.file_name().into_string().ok()).filter(|name| is_uid(name));
    for folder in uids.map(|uid| volume(kubelet, &uid)) {
        let Some(name) = worker_in(&folder) else { continue };
        present.workers.insert(name);
        if let Some(pod) = pod_in(&folder) {
            present.pods.insert(pod, name);
        }
    }
    present
}

fn volume(kubelet: &Path, uid: &str) -> PathBuf {
    kubelet.join("pods").join(uid).join(VOLUMES).join(WORKER_VOLUME)
}

fn worker_in(volume: &Path) -> Option<WorkerName> {
    // A line end is added by those who write the file by hand.
    read_text(&volume.join(WORKER_FILE), MOST_NAME as u64 + 2)?.trim_end_matches(['\r', '\n']).parse().ok()
}

fn pod_in(volume: &Path) -> Option<PodName> {
    let read = |file: &str| {
        let text = read_text(&volume.join(file), MOST_OBJECT_NAME + 2)?;
        let text = text.trim_end_matches(['\r', '\n']);
        let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'.');
        (!text.is_empty() && text.bytes().all(fits)).then(|| text.to_owned())
    };
    Some(PodName { namespace: read(NAMESPACE_FILE)?, name: read(POD_FILE)? })
}

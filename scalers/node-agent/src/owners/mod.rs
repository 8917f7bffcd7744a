//! Whose process it is. A process in a pod belongs to the worker that the pod's downward-API volume names, and a process outside of
//! all pods to the worker that its environment names.
//!
//! ```text
//! PID -> PROC/PID/cgroup -> pod UID -> KUBELET/pods/UID/volumes/kubernetes.io~downward-api/forebay-worker/worker -> job-12/3/0
//!                     no pod -> PROC/PID/environ: FOREBAY_WORKER=job-12/3/0
//! ```
//!
//! The environment of a process in a pod does not count: whoever made the pod chose it, while the volume shows the annotation that the
//! API server has checked. Files are read and never written.

mod cgroup;
mod environment;
mod pods;

pub(crate) use pods::PodName;
pub use pods::{NAMESPACE_FILE, POD_FILE, WORKER_FILE, WORKER_VOLUME};

use crate::worker::WorkerName;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The most processes that are looked at. A node has some thousands.
const MOST_PROCESSES: usize = 65_536;
/// The longest cgroup file that is read, in bytes: 13 controllers of version 1 with long paths.
const MOST_CGROUP: u64 = 64 * 1024;

/// Where the node's processes and pods are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRoots {
    /// The processes of the node. `/proc`, where the agent is in the node's process namespace.
    pub proc: PathBuf,
    /// The folder of the kubelet. `/var/lib/kubelet`, unless the kubelet was given another one.
    pub kubelet: PathBuf,
}

impl Default for NodeRoots {
    fn default() -> NodeRoots {
        NodeRoots { proc: PathBuf::from("/proc"), kubelet: PathBuf::from("/var/lib/kubelet") }
    }
}

/// Whose process it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ProcessOwner {
    Worker(WorkerName),
    /// A process of the node that belongs to no worker.
    Foreign,
    /// It cannot be looked at: it has ended, is in another process namespace, or is another user's.
    Invisible,
}

/// The workers that the node has, whether or not they use a GPU.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct PresentWorkers {
    pub workers: BTreeSet<WorkerName>,
    /// The pods among them whose volume names the pod too.
    pub pods: BTreeMap<PodName, WorkerName>,
}

impl NodeRoots {
    /// The owner of a process.
    pub(crate) fn owner(&self, pid: u32) -> ProcessOwner {
        let folder = self.proc.join(pid.to_string());
        let Some(text) = read_text(&folder.join("cgroup"), MOST_CGROUP) else {
            return ProcessOwner::Invisible;
        };
        let named = match cgroup::pod_uid(&text) {
            Some(uid) => Ok(pods::worker(&self.kubelet, &uid)),
            None => environment::worker(&folder),
        };
        match named {
            Ok(Some(name)) => ProcessOwner::Worker(name),
            Ok(None) => ProcessOwner::Foreign,
            Err(_) => ProcessOwner::Invisible,
        }
    }

    /// The workers that are there.
    pub(crate) fn present(&self) -> PresentWorkers {
        let mut present = pods::present(&self.kubelet);
        for pid in processes(&self.proc) {
            let folder = self.proc.join(pid.to_string());
            // The environment is compared first: nearly all processes end there.
            let Ok(Some(name)) = environment::worker(&folder) else { continue };
            let outside_pods = |text: String| cgroup::pod_uid(&text).is_none();
            if read_text(&folder.join("cgroup"), MOST_CGROUP).is_some_and(outside_pods) {
                present.workers.insert(name);
            }
        }
        present
    }
}

fn processes(proc: &Path) -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir(proc).into_iter().flatten().flatten().take(MOST_PROCESSES);
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The text of a file, if it is one, is not longer than `most` bytes, and is UTF-8.
fn read_text(path: &Path, most: u64) -> Option<String> {
    let bytes = read_bytes(path, most + 1)?;
    (bytes.len() as u64 <= most).then(|| String::from_utf8(bytes).ok())?
}

/// The first bytes of a file.
fn read_bytes(path: &Path, most: u64) -> Option<Vec<u8>> {
    // A pipe or a device would make the agent wait.
    if !std::fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(most).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0f2b6f5e-8d0c-4c3b-9f7e-1a2b3c4d5e6f";

    fn write(path: PathBuf, text: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn process(roots: &NodeRoots, pid: u32, cgroup: &str, environ: &str) {
        write(roots.proc.join(format!("{pid}/cgroup")), cgroup);
        write(roots.proc.join(format!("{pid}/environ")), environ);
    }

    fn pod_file(roots: &NodeRoots, uid: &str, name: &str, text: &str) {
        let volume = "volumes/kubernetes.io~downward-api/forebay-worker";
        write(roots.kubelet.join(format!("pods/{uid}/{volume}/{name}")), text);
    }

    #[test]
    fn the_volume_names_a_pods_worker_and_the_environment_a_bare_one() {
        let folder = tempfile::tempdir().unwrap();
        let roots = NodeRoots { proc: folder.path().join("proc"), kubelet: folder.path().join("kubelet") };
        let slice = UID.replace('-', "_");
        let in_pod = format!("0::/kubepods.slice/kubepods-pod{slice}.slice/cri-containerd-ab.scope\n");
        let claims = "PATH=/bin\0FOREBAY_WORKER=job-9/1/0\0";
        process(&roots, 10, &in_pod, claims);
        process(&roots, 11, "0::/user.slice/x.scope\n", claims);
        process(&roots, 12, "0::/system.slice/sshd.service\n", "PATH=/bin\0");
        process(&roots, 13, &in_pod.replace("0f2b", "ffff"), claims);
        pod_file(&roots, UID, "worker", "job-12/3/0");
        pod_file(&roots, UID, "namespace", "team-a\n");
        pod_file(&roots, UID, "pod", "train-0");
        pod_file(&roots, "11111111-8d0c-4c3b-9f7e-1a2b3c4d5e6f", "worker", "job-12/3/0 \u{1b}[2J");
        std::fs::write(roots.proc.join("uptime"), "1").unwrap();
        let (ours, bare): (WorkerName, WorkerName) = ("job-12/3/0".parse().unwrap(), "job-9/1/0".parse().unwrap());
        assert_eq!(roots.owner(10), ProcessOwner::Worker(ours), "its environment does not count");
        assert_eq!(roots.owner(11), ProcessOwner::Worker(bare));
        assert_eq!(roots.owner(12), ProcessOwner::Foreign);
        assert_eq!(roots.owner(13), ProcessOwner::Foreign, "a pod without the volume may claim what it likes");
        assert_eq!(roots.owner(14), ProcessOwner::Invisible);
        write(roots.proc.join("15/cgroup"), "0::/user.slice/x.scope\n");
        assert_eq!(roots.owner(15), ProcessOwner::Invisible, "its environment cannot be read");
        let present = roots.present();
        assert_eq!(present.workers, BTreeSet::from([ours, bare]));
        let pod = PodName { namespace: "team-a".to_owned(), name: "train-0".to_owned() };
        assert_eq!(present.pods, BTreeMap::from([(pod, ours)]));
    }

    #[test]
    fn folders_that_are_not_there_have_no_workers() {
        let roots = NodeRoots { proc: PathBuf::from("/nowhere/proc"), kubelet: PathBuf::from("/nowhere/kubelet") };
        assert_eq!((roots.present(), roots.owner(1)), (PresentWorkers::default(), ProcessOwner::Invisible));
    }

    #[test]
    fn a_folder_a_long_file_and_a_pipe_are_not_read() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read_text(folder.path(), 10), None);
        let file = folder.path().join("x");
        std::fs::write(&file, "0123456789a").unwrap();
        assert_eq!((read_text(&file, 10), read_text(&file, 11).map(|t| t.len())), (None, Some(11)));
    }
}

//! Names of everything that is ours in a cluster: labels, annotations, the finalizer, and the names of pods and Services.
//!
//! ```text
//! pod      resnet-0412-3-0-9f86d081      subject (30 characters, made legal), attempt, worker, 8 hex digits of the effect id's hash
//! Service  gang-12-3-9f86d081            job, attempt, the same hash; its ConfigMap has the same name
//! ```

use forebay_kernel::ids::{Attempt, JobId, Seq};
use std::fmt;
use std::str::FromStr;

/// The label with the id of the journal whose engine decides about the object.
pub const LABEL_JOURNAL: &str = "forebay.dev/journal";
/// On nodes that were bought.
pub const LABEL_NODE: &str = "forebay.dev/node";
/// The label with the job, such as `job-12`.
pub const LABEL_JOB: &str = "forebay.dev/job";
/// The label with the attempt, such as `3`.
pub const LABEL_ATTEMPT: &str = "forebay.dev/attempt";
/// The annotation with the worker, such as `job-12/3/0`. The node agent reads it.
pub const ANNOTATION_WORKER: &str = "forebay.dev/worker";
/// The annotation with the whole id of the effect that asked for the object.
pub const ANNOTATION_EFFECT: &str = "forebay.dev/effect";
/// The annotation with the cloud's id of the instance that the pod is for.
pub const ANNOTATION_INSTANCE: &str = "forebay.dev/instance";
/// The annotation with the boot id of the node when the pod was bound to it.
pub const ANNOTATION_BOOT: &str = "forebay.dev/boot-id";
/// The annotation that opens the start barrier. It is on the gang's Service before it is on any of its pods.
pub const ANNOTATION_BARRIER: &str = "forebay.dev/barrier";
/// The annotation with the container that works, which `kubectl logs` and `kubectl exec` take by default.
pub const ANNOTATION_CONTAINER: &str = "kubectl.kubernetes.io/default-container";
/// The value of [`ANNOTATION_BARRIER`] that opens it.
pub const BARRIER_OPEN: &str = "open";
/// The finalizer that keeps a pod until the outcome of its attempt is journaled.
pub const FINALIZER: &str = "forebay.dev/outcome";
/// The downward-API volume with the files `worker`, `barrier`, `namespace` and `pod`. The node agent reads all but the second.
pub const VOLUME_WORKER: &str = "forebay-worker";
/// The volume with the gang's hostfile.
pub const VOLUME_GANG: &str = "forebay-gang";
/// The volume with the attempt's token.
pub const VOLUME_TOKEN: &str = "forebay-token";
/// The container that waits at the barrier.
pub const GATE_CONTAINER: &str = "forebay-gate";

/// The most characters of a subject in a pod's name.
const MOST_SUBJECT: usize = 30;

/// One attempt of a job. As text, the first two parts of [`ANNOTATION_WORKER`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunId {
    /// The job.
    pub job: JobId,
    /// Its attempt.
    pub attempt: Attempt,
}

/// One worker of an attempt. As text, [`ANNOTATION_WORKER`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkerId {
    /// The attempt.
    pub run: RunId,
    /// The number of the worker.
    pub worker: u32,
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.job, self.attempt.0)
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.run, self.worker)
    }
}

/// The text is not the id of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the id of a worker; write JOB/ATTEMPT/WORKER, such as job-12/3/0")]
pub struct NotAWorker;

impl FromStr for WorkerId {
    type Err = NotAWorker;

    fn from_str(text: &str) -> Result<WorkerId, NotAWorker> {
        let mut parts = text.split('/');
        let job = parts.next().and_then(|job| job.strip_prefix("job-")?.parse().ok()).ok_or(NotAWorker)?;
        let attempt = parts.next().and_then(|n| n.parse().ok()).ok_or(NotAWorker)?;
        let worker = parts.next().and_then(|n| n.parse().ok()).ok_or(NotAWorker)?;
        let run = RunId { job: JobId(job), attempt: Attempt(attempt) };
        if parts.next().is_some() { Err(NotAWorker) } else { Ok(WorkerId { run, worker }) }
    }
}

/// The id of an effect: the journal's and the position of the deciding record. At most 57 characters.
#[must_use]
pub fn effect_id(journal: &str, effect: Seq) -> String {
    format!("{journal}-{}", effect.0)
}

/// The value of the journal's label: the same for all its incarnations, which its effects' ids tell apart.
#[must_use]
pub fn journal_label(journal: &str) -> String {
    journal.split_once('.').map_or(journal, |(uuid, _)| uuid).to_owned()
}

/// The label selector of all that one journal's engine decides about.
#[must_use]
pub fn journal_selector(journal: &str) -> String {
    format!("{LABEL_JOURNAL}={journal}")
}

/// The first 8 hex digits of the hash of an effect's id.
#[must_use]
pub fn short_hash(effect: &str) -> String {
    blake3::hash(effect.as_bytes()).to_hex().chars().take(8).collect()
}

/// The name of a worker's pod, at most 62 characters: 30 + 1 + 10 + 1 + 10 + 1 + 8, fewer where numbers are shorter.
#[must_use]
pub fn pod_name(subject: &str, worker: WorkerId, effect: &str) -> String {
    format!("{}-{}-{}-{}", legal(subject), worker.run.attempt.0, worker.worker, short_hash(effect))
}

/// Whether a pod may have this name as that of a worker, where the job's name is not known.
#[must_use]
pub fn is_pod_name(name: &str, worker: WorkerId, effect: &str) -> bool {
    let end = format!("-{}-{}-{}", worker.run.attempt.0, worker.worker, short_hash(effect));
    name.strip_suffix(end.as_str()).is_some_and(|subject| name == pod_name(subject, worker, effect))
}

/// The name of a gang's Service and ConfigMap, at most 45 characters. It begins with a letter, as names of Services must.
#[must_use]
pub fn service_name(run: RunId, effect: &str) -> String {
    format!("gang-{}-{}-{}", run.job.0, run.attempt.0, short_hash(effect))
}

/// The name of a worker in DNS, within its namespace.
#[must_use]
pub fn host_name(worker: u32, service: &str) -> String {
    format!("w{worker}.{service}")
}

/// A subject as part of a name: lower case, digits and single hyphens, at most 30 characters, an alphanumeric one first and last.
fn legal(subject: &str) -> String {
    let mut name = String::new();
    for c in subject.chars().flat_map(char::to_lowercase) {
        match c {
            'a'..='z' | '0'..='9' => name.push(c),
            _ if name.is_empty() || name.ends_with('-') => {}
            _ => name.push('-'),
        }
        if name.len() == MOST_SUBJECT {
            break;
        }
    }
    let name = name.trim_end_matches('-');
    if name.is_empty() { "job".to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_names_are_legal_and_short() {
        let run = RunId { job: JobId(12), attempt: Attempt(3) };
        let worker = WorkerId { run, worker: 0 };
        for (subject, begins) in [
            ("resnet-0412", "resnet-0412-3-0-"),
            ("Team/Vision: \u{e9}tude 7", "team-vision-tude-7-3-0-"),
            ("\u{4e2d}\u{6587}", "job-3-0-"),
            ("---", "job-3-0-"),
            (&"x".repeat(99), &format!("{}-3-0-", "x".repeat(30))),
        ] {
            let name = pod_name(subject, worker, "j-7");
            assert!(name.starts_with(begins) && name.len() == begins.len() + 8, "{name}");
        }
        let last = WorkerId { run: RunId { job: JobId(u64::MAX), attempt: Attempt(u32::MAX) }, worker: u32::MAX };
        assert!(pod_name(&"x".repeat(99), last, "j-7").len() <= 63);
        assert!(service_name(last.run, "j-7").len() <= 63);
        assert_ne!(pod_name("a", worker, "j-7"), pod_name("a", worker, "j-8"));
        let name = pod_name("a", worker, "j-7");
        assert!(is_pod_name(&name, worker, "j-7") && is_pod_name(&format!("debug-{name}"), worker, "j-7"));
        for other in [format!("{name}-copy"), format!("-{name}"), format!("A{name}"), name.replacen("a-3", "a-2", 1)] {
            assert!(!is_pod_name(&other, worker, "j-7"), "{other}");
        }
        assert!(!is_pod_name(&name, worker, "j-8") && !is_pod_name(&name, WorkerId { worker: 1, ..worker }, "j-7"));
    }

    #[test]
    fn a_worker_is_written_as_it_is_read() {
        let worker: WorkerId = "job-12/3/0".parse().unwrap();
        assert_eq!(worker.to_string(), "job-12/3/0");
        for text in ["", "job-12/3", "job-12/3/0/1", "12/3/0", "job-x/3/0"] {
            assert_eq!(text.parse::<WorkerId>(), Err(NotAWorker), "{text}");
        }
    }
}

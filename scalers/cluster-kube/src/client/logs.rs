//! What the workers of an attempt have printed: their pods, and the end of the log of each.
//!
//! ```text
//! worker_pods: pods with the labels of journal, job and attempt -> those with the name that a worker's pod is given -> the oldest for each worker
//!              -> container (annotation), whether it has started or ended
//! log: GET pods/NAME/log?tailLines=N&limitBytes=1 MiB -> its last 64 KiB      fewer lines again, where so many have more bytes
//! ```
//!
//! Kubelets begin at the line that `tailLines` names and end after `limitBytes`: by bytes alone nobody gets the end of a log.
//! Never: a log that is followed, more of it in memory than [`ASKED_BYTES`], a copy that somebody has made of a worker's pod beside it.

use super::{CALL_BUDGET, KubeClient, request, response};
use crate::api_call::{KubeCall, KubeObject, KubeResponse, ObjectSelector, Resource};
use crate::kube_error::KubeError;
use crate::names::{
    ANNOTATION_CONTAINER, ANNOTATION_EFFECT, ANNOTATION_WORKER, LABEL_ATTEMPT, LABEL_JOB, LABEL_JOURNAL, RunId,
    WorkerId, is_pod_name, journal_label,
};
use crate::objects::KubePod;
use kube::client::Body;
use tokio::time::timeout;

/// The most of a log that is kept or shown.
pub const MOST_LOG: usize = 64 << 10;
/// The most lines of a log that are asked for.
pub const MOST_LINES: u32 = 10_000;
/// The most bytes that are asked for at once: the mean line of [`MOST_LINES`] may have a hundred.
const ASKED_BYTES: usize = 1 << 20;
/// So many lines are always less than [`ASKED_BYTES`]: container runtimes break lines at 16 KiB.
const SAFE_LINES: u32 = 32;

/// The pod of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerPod {
    /// Which worker.
    pub worker: WorkerId,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The container that works.
    pub container: String,
    /// Whether that has started.
    pub started: bool,
    /// Whether that has ended: its log grows no more.
    pub ended: bool,
}

/// The end of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogTail {
    /// At most [`MOST_LOG`] bytes. What is no UTF-8 is replaced.
    pub text: String,
    /// Whether there was more before it.
    pub truncated: bool,
}

impl KubeClient {
    /// The pods of an attempt that are in the cluster, by the numbers of their workers: one for each worker. Labels and annotations come along where
    /// somebody copies a pod, so its name has to be one that we give. Of several such pods the oldest is the worker's; where two are equally old, which it
    /// is cannot be told, and neither is returned.
    ///
    /// # Errors
    /// They cannot be listed.
    pub async fn worker_pods(&self, journal: &str, run: RunId) -> Result<Vec<WorkerPod>, KubeError> {
        let labels =
            [(LABEL_JOURNAL, journal), (LABEL_JOB, &run.job.to_string()), (LABEL_ATTEMPT, &run.attempt.0.to_string())]
                .map(|(name, value)| format!("{name}={value}"));
        let selector = ObjectSelector::Labels(labels.join(","));
        let (mut found, mut continue_token) = (Vec::new(), None);
        loop {
            let list = KubeCall::List {
                resource: Resource::Pods,
                namespace: None,
                selector: selector.clone(),
                continue_token,
            };
            let page = match self.execute(&list).await {
                KubeResponse::Page { objects, continue_token, .. } => (objects, continue_token),
                KubeResponse::Refused(error) => return Err(error),
                KubeResponse::Object(_) | KubeResponse::Done => {
                    return Err(KubeError::no_response("a list was expected"));
                }
            };
            found.extend(page.0.into_iter().filter_map(|object| found_pod(object, journal, run)));
            continue_token = page.1;
            if continue_token.is_none() {
                break;
            }
        }
        Ok(oldest_of_each(found))
    }

    /// The last lines of a worker's log, at most [`MOST_LINES`] of them and [`MOST_LOG`] bytes.
    ///
    /// # Errors
    /// It cannot be read: the container has not started, its node does not answer, or the pod is gone.
    pub async fn log(&self, pod: &WorkerPod, lines: u32) -> Result<LogTail, KubeError> {
        let mut asked = lines.clamp(1, MOST_LINES);
        loop {
            let bytes = match timeout(CALL_BUDGET, self.log_bytes(pod, asked)).await {
                Ok(read) => read?,
                Err(_) => {
                    let why = format!("no complete log within {} s", CALL_BUDGET.as_secs());
                    return Err(KubeError::no_response(&why));
                }
            };
            if bytes.len() < ASKED_BYTES || asked <= SAFE_LINES {
                return Ok(tail_of(&bytes, asked));
            }
            asked = (asked / 8).max(SAFE_LINES);
        }
    }

    async fn log_bytes(&self, pod: &WorkerPod, lines: u32) -> Result<Vec<u8>, KubeError> {
        let request = request::of_log(pod, lines, ASKED_BYTES)?;
        let answer = self.client.send(request.map(Body::from)).await.map_err(|e| response::unsent(&e))?;
        if !answer.status().is_success() {
            return Err(response::error(answer).await);
        }
        // One more than was asked for: a kubelet may count otherwise.
        response::bytes(answer.into_body(), 2 * ASKED_BYTES).await
    }
}

/// A pod that may be a worker's.
#[derive(Debug)]
struct FoundPod {
    pod: WorkerPod,
    created: Option<String>,
}

/// `None`: it is not of this attempt, or does not have the name of a worker's pod.
fn found_pod(object: KubeObject, journal: &str, run: RunId) -> Option<FoundPod> {
    let metadata = object.metadata();
    let worker: WorkerId = metadata.annotation(ANNOTATION_WORKER)?.parse().ok()?;
    let effect = metadata.annotation(ANNOTATION_EFFECT)?;
    let (decided_by, _) = effect.rsplit_once('-')?;
    let of_run = worker.run == run && journal_label(decided_by) == journal;
    let ours = of_run && is_pod_name(&metadata.name, worker, effect);
    let created = metadata.creation_timestamp.clone();
    let pod = worker_pod(object).filter(|_| ours)?;
    Some(FoundPod { pod, created })
}

/// Of the pods that may be a worker's the oldest, for each worker: nobody copies a pod before it is there.
fn oldest_of_each(mut found: Vec<FoundPod>) -> Vec<WorkerPod> {
    found.sort_by(|a, b| (a.pod.worker, &a.created).cmp(&(b.pod.worker, &b.created)));
    let of_workers = found.chunk_by(|a, b| a.pod.worker == b.pod.worker);
    let oldest = of_workers.filter_map(|of_worker| match of_worker {
        [first, second, ..] if first.created == second.created => None,
        [first, ..] => Some(first.pod.clone()),
        [] => None,
    });
    oldest.collect()
}

fn worker_pod(object: KubeObject) -> Option<WorkerPod> {
    let KubeObject::Pod(pod) = object else { return None };
    let worker = pod.metadata.annotation(ANNOTATION_WORKER)?.parse().ok()?;
    let container = container_of(&pod)?;
    let status = pod.status.container_statuses.iter().find(|status| status.name == container);
    let state = status.map(|status| &status.state);
    Some(WorkerPod {
        worker,
        ended: state.is_some_and(|state| state.terminated.is_some()),
        started: state.is_some_and(|state| state.terminated.is_some() || state.running.is_some()),
        namespace: pod.metadata.namespace.clone()?,
        name: pod.metadata.name.clone(),
        container,
    })
}

/// The container that works: the one that is annotated, or the first one.
fn container_of(pod: &KubePod) -> Option<String> {
    let mut containers = pod.spec.containers.iter().map(|container| &container.name);
    let named = pod.metadata.annotation(ANNOTATION_CONTAINER);
    named
        .filter(|named| containers.clone().any(|name| name == named))
        .map(str::to_owned)
        .or_else(|| containers.next().cloned())
}

/// The end of what was read, which begins with a whole line where that is possible.
fn tail_of(bytes: &[u8], asked: u32) -> LogTail {
    let text = String::from_utf8_lossy(bytes);
    let all = u32::try_from(text.lines().count()).unwrap_or(u32::MAX);
    if text.len() <= MOST_LOG {
        return LogTail { truncated: all >= asked, text: text.into_owned() };
    }
    let mut at = text.len() - MOST_LOG;
    while !text.is_char_boundary(at) {
        at += 1;
    }
    let end = &text[at..];
    // A line that is longer than all of it has no beginning.
    let whole = end.split_once('\n').map(|(_, rest)| rest).filter(|rest| !rest.is_empty()).unwrap_or(end);
    LogTail { text: whole.to_owned(), truncated: true }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(annotations: Value, statuses: Value) -> KubeObject {
        let json = json!({"metadata": {"name": "p", "namespace": "a", "uid": "u", "annotations": annotations},
            "spec": {"containers": [{"name": "side"}, {"name": "worker"}]}, "status": {"containerStatuses": statuses}});
        KubeObject::of_json(Resource::Pods, json).unwrap()
    }

    #[test]
    fn the_container_that_works_is_the_one_that_is_annotated() {
        let both = json!({"forebay.dev/worker": "job-1/2/3", "kubectl.kubernetes.io/default-container": "worker"});
        let ended = json!([{"name": "side", "state": {"running": {}}}, {"name": "worker", "state": {"terminated": {"exitCode": 1}}}]);
        let found = worker_pod(pod(both, ended.clone())).unwrap();
        assert_eq!(
            (found.container.as_str(), found.worker.worker, found.started, found.ended),
            ("worker", 3, true, true)
        );
        let first = worker_pod(pod(json!({"forebay.dev/worker": "job-1/2/3"}), ended)).unwrap();
        assert_eq!((first.container.as_str(), first.started, first.ended), ("side", true, false));
        let waits = worker_pod(pod(json!({"forebay.dev/worker": "job-1/2/3"}), json!([]))).unwrap();
        assert!(!waits.started && !waits.ended);
        assert_eq!(worker_pod(pod(json!({}), json!([]))), None, "not ours");
    }

    /// A pod with everything that says that it is worker 3, in a namespace.
    fn named(name: &str, namespace: &str, second: u32) -> KubeObject {
        let annotations = json!({"forebay.dev/worker": "job-1/2/3", "forebay.dev/effect": "j-1-7"});
        let metadata = json!({"name": name, "namespace": namespace, "uid": format!("{namespace}-{name}"), "annotations": annotations,
            "creationTimestamp": format!("2026-11-24T11:00:{second:02}Z")});
        let json = json!({"metadata": metadata, "spec": {"containers": [{"name": "worker"}]}});
        KubeObject::of_json(Resource::Pods, json).unwrap()
    }

    #[test]
    fn a_copy_of_a_workers_pod_has_no_log_of_that_worker() {
        let worker: WorkerId = "job-1/2/3".parse().unwrap();
        let given = crate::names::pod_name("resnet", worker, "j-1-7");
        let pods = |objects: Vec<KubeObject>| {
            let found = objects.into_iter().filter_map(|object| found_pod(object, "j-1", worker.run)).collect();
            let pods = oldest_of_each(found).into_iter();
            pods.map(|pod| format!("{}/{}", pod.namespace, pod.name)).collect::<Vec<String>>()
        };
        let own = format!("jobs/{given}");
        let debug = format!("debug-{given}");
        for (name, namespace) in
            [("copy", "jobs"), ("copy", "others"), (debug.as_str(), "jobs"), (given.as_str(), "others")]
        {
            let (first, later) = (named(&given, "jobs", 5), named(name, namespace, 9));
            assert_eq!(pods(vec![later.clone(), first.clone()]), std::slice::from_ref(&own), "{namespace}/{name}");
            assert_eq!(pods(vec![first, later]), std::slice::from_ref(&own), "{namespace}/{name}");
        }
        assert_eq!(pods(vec![named("copy", "jobs", 5)]), Vec::<String>::new(), "the worker's own pod is gone");
        // Which of two it is cannot be told.
        assert_eq!(pods(vec![named(&given, "jobs", 5), named(&given, "others", 5)]), Vec::<String>::new());
        let later: WorkerId = "job-1/9/3".parse().unwrap();
        for (journal, run) in [("j-2", worker.run), ("j-1", later.run)] {
            assert!(found_pod(named(&given, "jobs", 5), journal, run).is_none(), "{journal} {run}");
        }
    }

    #[test]
    fn the_end_of_a_log_is_whole_lines_within_its_bound() {
        let some = tail_of(b"one\ntwo\n", 1000);
        assert_eq!((some.text.as_str(), some.truncated), ("one\ntwo\n", false));
        assert!(tail_of(b"one\ntwo\n", 2).truncated, "there may be more");
        assert_eq!(tail_of(b"", 9), LogTail { text: String::new(), truncated: false });
        let many: String = (0..20_000).map(|i| format!("line {i}\n")).collect();
        let end = tail_of(many.as_bytes(), 30_000);
        assert!(
            end.truncated
                && end.text.len() <= MOST_LOG
                && end.text.starts_with("line ")
                && end.text.ends_with("line 19999\n")
        );
        let long = tail_of("\u{e9}".repeat(MOST_LOG).as_bytes(), 10);
        assert!(long.truncated && long.text.len() <= MOST_LOG && long.text.len() > MOST_LOG - 4);
        let odd = tail_of(&[b'x', 0xff, b'\n'], 10);
        assert_eq!(odd.text, "x\u{fffd}\n");
    }
}

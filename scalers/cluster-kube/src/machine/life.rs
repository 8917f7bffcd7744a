//! What a pod's state proves: whether its containers run, have ended, or may still run.
//!
//! A worker is dead only by the word of its kubelet (every container `terminated`, or the pod refused at admission), by another boot of its
//! node, by the end of its instance, or because it was never bound. What the garbage collector of pods writes, or a deletion by force, proves nothing.

use crate::objects::{ContainerStatus, KubePod};

/// How far a worker's pod is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// There is no pod, and there was none.
    Absent,
    /// It is not bound.
    Unbound,
    /// It is bound, and its work has not started.
    Bound,
    /// Its work has started.
    Working,
    /// Nothing of it runs.
    Dead(Death),
    /// It is said to be over, or is gone, and nothing proves that nothing of it runs.
    Unproven,
}

/// How a worker died, or that it never lived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Death {
    /// All its containers ended with 0.
    Completed,
    /// A container ended with another exit code.
    Exit(i32),
    /// The kubelet refused or evicted the pod, in its own words. It is no fault of the job's.
    Refused(String),
    /// It was never bound to a node.
    NeverBound,
    /// Its instance is gone, by the engine's word.
    InstanceGone,
    /// Its node was started again.
    Rebooted,
    /// An operator has confirmed it.
    Confirmed,
}

/// What kubelets write when they refuse a pod at admission: its containers were never started. `OutOf` is followed by a resource.
const REFUSALS: [&str; 10] = [
    "UnexpectedAdmissionError",
    "TopologyAffinityError",
    "NodeAffinity",
    "NodeShutdown",
    "NodePorts",
    "PodOSNotSupported",
    "PodOSSelectorNodeLabelDoesNotMatch",
    "SysctlForbidden",
    "AppArmor",
    "InvalidNodeInfo",
];

/// The condition of pods that end for a reason outside of them.
const DISRUPTED: &str = "DisruptionTarget";

/// What the kubelet's word about a bound pod proves. `None`: nothing is over by its word.
pub(super) fn death_by_kubelet(pod: &KubePod) -> Option<Death> {
    let (init, work) = (&pod.status.init_container_statuses, &pod.status.container_statuses);
    let any_running = init.iter().chain(work).any(|container| container.state.running.is_some());
    if any_running {
        return None;
    }
    if let Some(reason) = pod.status.reason.as_deref().filter(|r| r.starts_with("OutOf") || REFUSALS.contains(r)) {
        let started = work.iter().any(|container| container.state.terminated.is_some());
        if pod.status.phase == "Failed" && !started {
            return Some(Death::Refused(words(reason, pod.status.message.as_deref())));
        }
    }
    let exit = |container: &ContainerStatus| container.state.terminated.as_ref().map(|end| end.exit_code);
    // A failed init container ends the pod, and the others never start. One that is restarted, a sidecar, does not.
    if pod.is_terminal()
        && let Some(code) = init.iter().filter_map(exit).find(|code| *code != 0)
        && work.iter().all(|container| container.state.terminated.is_some() || container.state.waiting.is_some())
        && !work.is_empty()
    {
        return Some(ended(pod, code));
    }
    let all_ended = !work.is_empty()
        && work.len() >= pod.spec.containers.len()
        && work.iter().all(|container| container.state.terminated.is_some());
    all_ended.then(|| ended(pod, work.iter().filter_map(exit).find(|code| *code != 0).unwrap_or(0)))
}

/// Whether nothing of a pod runs or can run any more, by its kubelet's word, or because it was over before it was bound. A container that has ended is
/// started again unless its pod is over, and the API server binds no pod that is being deleted.
pub(super) fn has_ended(pod: &KubePod) -> bool {
    let over = pod.metadata.is_deleting() || pod.is_terminal();
    over && (pod.spec.node_name.is_none() || death_by_kubelet(pod).is_some())
}

/// How a pod whose containers have ended counts.
fn ended(pod: &KubePod, code: i32) -> Death {
    // Told to end by its kubelet it may end with 0 and not be done: its phase says so.
    if code == 0 && pod.status.phase != "Failed" {
        return Death::Completed;
    }
    let reason = pod.status.reason.as_deref();
    let told = || words(reason.unwrap_or("Failed"), pod.status.message.as_deref());
    if reason == Some("Evicted") {
        return Death::Refused(told());
    }
    match disruption(pod) {
        Some(words) => Death::Refused(words),
        None if code == 0 => Death::Refused(told()),
        None => Death::Exit(code),
    }
}

/// For what reason outside of it a pod is to end, or has ended, in Kubernetes' words: an eviction, a preemption, a taint.
pub(super) fn disruption(pod: &KubePod) -> Option<String> {
    let condition = pod.true_condition(DISRUPTED)?;
    Some(words(condition.reason.as_deref().unwrap_or(DISRUPTED), condition.message.as_deref()))
}

/// Whether the container that works, or any other one beside the init containers, has started.
pub(super) fn has_started(pod: &KubePod) -> bool {
    let started = |c: &ContainerStatus| c.state.running.is_some() || c.state.terminated.is_some();
    !pod.status.container_statuses.is_empty() && pod.status.container_statuses.iter().all(started)
}

/// Whether images are being pulled or the node prepares the pod: the start time-out does not count.
pub(super) fn is_preparing(pod: &KubePod) -> bool {
    const PREPARING: [&str; 5] =
        ["ContainerCreating", "PodInitializing", "ErrImagePull", "ImagePullBackOff", "Pulling"];
    let of = |c: &ContainerStatus| c.state.waiting.as_ref().and_then(|w| w.reason.clone());
    pod.status.container_statuses.is_empty()
        || pod.status.container_statuses.iter().filter_map(of).any(|reason| PREPARING.contains(&reason.as_str()))
}

/// What a pod waits for, in Kubernetes' words. `None`: nothing that needs a word.
pub(super) fn waits_for(pod: &KubePod) -> Option<String> {
    const ORDINARY: [&str; 2] = ["ContainerCreating", "PodInitializing"];
    let containers = pod.status.init_container_statuses.iter().chain(&pod.status.container_statuses);
    let mut waiting = containers.filter_map(|c| c.state.waiting.as_ref());
    let told = waiting.find(|w| w.reason.as_deref().is_some_and(|reason| !ORDINARY.contains(&reason)))?;
    Some(words(told.reason.as_deref().unwrap_or("Waiting"), told.message.as_deref()))
}

/// A reason and its message, at most 500 characters.
pub(super) fn words(reason: &str, message: Option<&str>) -> String {
    let text = message.map_or_else(|| reason.to_owned(), |message| format!("{reason}: {message}"));
    text.chars().take(crate::kube_error::MOST_MESSAGE).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(status: Value) -> KubePod {
        let spec = json!({"nodeName": "n", "containers": [{"name": "w"}, {"name": "s"}]});
        serde_json::from_value(json!({"spec": spec, "status": status})).unwrap()
    }

    fn statuses(states: [Value; 2]) -> Value {
        json!(states.map(|state| json!({"name": "c", "state": state})))
    }

    #[test]
    fn only_the_kubelets_word_proves_an_end() {
        let end = |code: i32| json!({"terminated": {"exitCode": code}});
        let (runs, waits) = (json!({"running": {}}), json!({"waiting": {"reason": "PodInitializing"}}));
        let disrupted = json!([{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}]);
        for (case, status, death) in [
            ("runs", json!({"phase": "Running", "containerStatuses": statuses([runs.clone(), runs.clone()])}), None),
            ("half of it", json!({"phase": "Running", "containerStatuses": statuses([end(0), runs.clone()])}), None),
            (
                "all of it",
                json!({"phase": "Succeeded", "containerStatuses": statuses([end(0), end(0)])}),
                Some(Death::Completed),
            ),
            (
                "a code",
                json!({"phase": "Failed", "containerStatuses": statuses([end(3), end(0)])}),
                Some(Death::Exit(3)),
            ),
            (
                "garbage collected",
                json!({"phase": "Failed", "containerStatuses": statuses([runs.clone(), runs.clone()]),
                "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}]}),
                None,
            ),
            (
                "garbage collected before it started",
                json!({"phase": "Failed", "containerStatuses": statuses([waits.clone(), waits.clone()])}),
                None,
            ),
            ("no word", json!({"phase": "Failed"}), None),
            (
                "one status is missing",
                json!({"phase": "Failed", "containerStatuses": [{"name": "c", "state": end(0)}]}),
                None,
            ),
            (
                "refused",
                json!({"phase": "Failed", "reason": "OutOfcpu", "message": "no"}),
                Some(Death::Refused("OutOfcpu: no".into())),
            ),
            (
                "refused, but it runs",
                json!({"phase": "Failed", "reason": "NodeAffinity", "containerStatuses": statuses([runs.clone(), runs.clone()])}),
                None,
            ),
            ("lost", json!({"phase": "Failed", "reason": "NodeLost"}), None),
            (
                "evicted",
                json!({"phase": "Failed", "conditions": disrupted, "containerStatuses": statuses([end(143), end(0)])}),
                Some(Death::Refused("EvictionByEvictionAPI".into())),
            ),
            (
                "evicted, and it ended with 0",
                json!({"phase": "Failed", "reason": "Evicted", "containerStatuses": statuses([end(0), end(0)])}),
                Some(Death::Refused("Evicted".into())),
            ),
            (
                "its node is shut down, and it ended with 0",
                json!({"phase": "Failed", "reason": "Terminated", "message": "node shutdown", "containerStatuses": statuses([end(0), end(0)])}),
                Some(Death::Refused("Terminated: node shutdown".into())),
            ),
            (
                "an init container failed",
                json!({"phase": "Failed", "initContainerStatuses": [{"name": "i", "state": end(2)}],
                "containerStatuses": statuses([waits.clone(), waits])}),
                Some(Death::Exit(2)),
            ),
        ] {
            assert_eq!(death_by_kubelet(&pod(status)), death, "{case}");
        }
    }

    #[test]
    fn what_a_pod_waits_for_is_in_kubernetes_words() {
        let state = json!({"waiting": {"reason": "ImagePullBackOff", "message": "not found"}});
        let waiting = pod(json!({"phase": "Pending", "containerStatuses": statuses([state.clone(), state])}));
        assert_eq!(waits_for(&waiting).as_deref(), Some("ImagePullBackOff: not found"));
        assert!(is_preparing(&waiting) && !has_started(&waiting));
        assert_eq!(waits_for(&pod(json!({}))), None);
    }
}

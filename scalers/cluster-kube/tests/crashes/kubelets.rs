//! Nodes and their kubelets: what runs in truth, and what is written about it. A kubelet that is cut off writes nothing while its containers run.

use crate::api::{ApiServer, ObjectKey, deleting, text, time};
use crate::dice::Dice;
use forebay_cluster_kube::Resource;
use serde_json::{Value, json};
use std::collections::BTreeMap;

#[derive(Default)]
pub struct Machine {
    pub name: String,
    pub gpus: u64,
    pub boot: u32,
    /// Its kubelet does not reach the API server until then.
    pub cut_off_until: u64,
    /// What runs in truth: by the pod's uid.
    pub alive: BTreeMap<String, Container>,
}

/// A container that works, behind the barrier.
#[derive(Clone)]
pub struct Container {
    pub worker: String,
    pub ends_at: u64,
    pub exit_code: i32,
    pub key: ObjectKey,
}

/// One step of a kubelet with one of its pods. Returns the container that has started to work, if one has.
pub fn step(
    machine: &mut Machine,
    api: &mut ApiServer,
    key: &ObjectKey,
    now: u64,
    dice: &mut Dice,
) -> Option<Container> {
    let pod = api.objects.get(key)?.clone();
    let uid = text(&pod, "/metadata/uid").to_owned();
    let cut_off = machine.cut_off_until > now;
    let over = |machine: &Machine| machine.alive.get(&uid).is_some_and(|c| c.ends_at <= now);
    if cut_off || matches!(text(&pod, "/status/phase"), "Succeeded" | "Failed") && !machine.alive.contains_key(&uid) {
        if !cut_off && deleting(&pod) && pod["ended"] != true {
            api.edit(key, |pod| pod["ended"] = json!(true));
        }
        return None;
    }
    if deleting(&pod) {
        // SIGTERM, and SIGKILL at the end of the grace.
        let killed = pod.get("killAt").and_then(Value::as_u64).is_some_and(|at| at <= now);
        if killed || over(machine) || dice.one_in(3) {
            let own = machine.alive.remove(&uid).filter(|c| c.ends_at <= now).map(|c| c.exit_code);
            let code = own.unwrap_or(if killed { 137 } else { 143 * i32::from(dice.one_in(2)) });
            finish(api, key, code, now);
            api.edit(key, |pod| pod["ended"] = json!(true));
        }
        return None;
    }
    let work = |pod: &Value| pod.pointer("/status/containerStatuses/0/state/running").is_some();
    if machine.alive.contains_key(&uid) {
        if over(machine) {
            let code = machine.alive.remove(&uid).map_or(0, |c| c.exit_code);
            finish(api, key, code, now);
        } else if !work(&pod) {
            status(api, key, "Running", json!({"terminated": {"exitCode": 0}}), json!({"running": {}}));
        }
        return None;
    }
    if pod.pointer("/status/initContainerStatuses").is_none() {
        admit(machine, api, key);
        return None;
    }
    if pod["metadata"]["annotations"]["forebay.dev/barrier"] != "open" {
        return None;
    }
    // Behind the barrier: it works from here on, and its status follows.
    let exit_code = if dice.one_in(12) { 3 } else { 0 };
    let worker = text(&pod, "/metadata/annotations/forebay.dev~1worker").to_owned();
    // Many outlast the next attempt's start, so that what is called dead too early is seen beside it.
    let longest = if dice.one_in(2) { 600_000 } else { 30_000 };
    let ends_at = now + 1000 + dice.below(longest);
    let container = Container { worker, ends_at, exit_code, key: key.clone() };
    machine.alive.insert(uid, container.clone());
    Some(container)
}

/// Admission: GPUs that others hold refuse the pod.
fn admit(machine: &Machine, api: &mut ApiServer, key: &ObjectKey) {
    let on_node = api.objects.iter().filter(|(other, pod)| {
        other.0 == Resource::Pods
            && *other != key
            && text(pod, "/spec/nodeName") == machine.name
            && !matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
            && (pod.pointer("/status/initContainerStatuses").is_some() || pod["foreign"] == true)
    });
    let full = on_node.count() as u64 >= machine.gpus;
    if full {
        api.edit(key, |pod| {
            pod["status"] = json!({"phase": "Failed", "reason": "OutOfnvidia.com/gpu", "message": "not enough"})
        });
    } else {
        status(api, key, "Pending", json!({"running": {}}), json!({"waiting": {"reason": "PodInitializing"}}));
    }
}

fn finish(api: &mut ApiServer, key: &ObjectKey, code: i32, now: u64) {
    let phase = if code == 0 { "Succeeded" } else { "Failed" };
    status(
        api,
        key,
        phase,
        json!({"terminated": {"exitCode": 0}}),
        json!({"terminated": {"exitCode": code, "finishedAt": time(now)}}),
    );
}

fn status(api: &mut ApiServer, key: &ObjectKey, phase: &str, init: Value, work: Value) {
    api.edit(key, |pod| {
        pod["status"]["phase"] = json!(phase);
        pod["status"]["initContainerStatuses"] = json!([{"name": "forebay-gate", "state": init}]);
        pod["status"]["containerStatuses"] = json!([{"name": "worker", "state": work}]);
    });
}

//! The node: registered or taken over, and Ready while the stand-in lives.
//!
//! Never: a label or taint of an existing node changed, what it says of its own resources replaced.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{Context, KubeletError, MOST_PODS, REQUEST_LIMIT};

/// As kubelets say it; after 40 s of silence the node is no longer taken for ready.
const EVERY: Duration = Duration::from_secs(10);

/// A new id for each start: nothing that ran before lives.
const BOOT_ID: &str = "/proc/sys/kernel/random/uuid";

/// Makes the node ready, whose logs are served on this port. Its status.
pub(crate) async fn register(context: &Context, port: u16) -> Result<Value, KubeletError> {
    let name = &context.options.node;
    let failed = |why: String| KubeletError::Node { node: name.clone(), why };
    let api: Api<Node> = Api::all(context.client.clone());
    let late = || failed(format!("no answer within {REQUEST_LIMIT:?}"));
    let known =
        timeout(REQUEST_LIMIT, api.get_opt(name)).await.map_err(|_| late())?.map_err(|e| failed(e.to_string()))?;
    let known = match known {
        Some(known) => known,
        None => {
            let body = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}});
            let node: Node = serde_json::from_value(body).map_err(|e| failed(e.to_string()))?;
            let params = PostParams::default();
            let created = timeout(REQUEST_LIMIT, api.create(&params, &node)).await.map_err(|_| late())?;
            created.map_err(|e| failed(e.to_string()))?
        }
    };
    let boot = std::fs::read_to_string(BOOT_ID).map_err(KubeletError::system(BOOT_ID))?;
    let status = status(&known, context.options.gpus, boot.trim(), port);
    say_ready(context, &status).await.map_err(failed)?;
    Ok(status)
}

/// Says that it is ready, again and again.
pub(crate) async fn stay_ready(context: &Context, status: &Value) {
    loop {
        tokio::time::sleep(EVERY).await;
        if let Err(why) = say_ready(context, status).await {
            eprintln!("the kubelet of {}: its status: {why}", context.options.node);
        }
    }
}

async fn say_ready(context: &Context, status: &Value) -> Result<(), String> {
    let mut status = status.clone();
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    for condition in status["conditions"].as_array_mut().into_iter().flatten() {
        condition["lastHeartbeatTime"] = json!(now);
    }
    let api: Api<Node> = Api::all(context.client.clone());
    let (params, patch) = (PatchParams::default(), Patch::Strategic(json!({ "status": status })));
    let patched = timeout(REQUEST_LIMIT, api.patch_status(&context.options.node, &params, &patch)).await;
    patched.map_err(|_| format!("no answer within {REQUEST_LIMIT:?}"))?.map(drop).map_err(|e| e.to_string())
}

fn status(known: &Node, gpus: u32, boot: &str, port: u16) -> Value {
    let since = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let condition = |kind: &str, status: &str, reason: &str| json!({"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": since});
    let resources =
        json!({"cpu": "96", "memory": "1Ti", "pods": MOST_PODS.to_string(), "nvidia.com/gpu": gpus.to_string()});
    let own = known.status.as_ref().and_then(|status| status.allocatable.as_ref()).filter(|own| !own.is_empty());
    let mut status = json!({
        "conditions": [
            condition("Ready", "True", "KubeletReady"),
            condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
            condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
            condition("PIDPressure", "False", "KubeletHasSufficientPID"),
        ],
        // The API server asks for logs there. A name would come first, and not resolve.
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        "nodeInfo": {
            "architecture": "amd64", "bootID": boot, "containerRuntimeVersion": "process://1", "kernelVersion": "any", "kubeProxyVersion": "",
            "kubeletVersion": "v1.34.4-forebay-stand-in", "machineID": boot, "operatingSystem": "linux", "osImage": "any", "systemUUID": boot,
        },
    });
    if own.is_none() {
        status["allocatable"] = resources.clone();
        status["capacity"] = resources;
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_keeps_its_own_resources() {
        let node = |status: Value| {
            serde_json::from_value(
                json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": status}),
            )
            .unwrap()
        };
        let own = status(&node(json!({"allocatable": {"nvidia.com/gpu": "4"}})), 8, "b", 7);
        assert_eq!(own.get("allocatable"), None);
        let new = status(&node(json!({})), 8, "b", 7);
        assert_eq!((&new["allocatable"]["nvidia.com/gpu"], &new["nodeInfo"]["bootID"]), (&json!("8"), &json!("b")));
        assert_eq!(new["daemonEndpoints"]["kubeletEndpoint"]["Port"], 7);
    }
}

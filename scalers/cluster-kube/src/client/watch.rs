//! A watch: lines of JSON from the API server, until it ends it, it breaks, or it is silent for too long.
//!
//! Never: a line that cannot be read and is skipped; the watch ends instead, and what it would have said comes with the next.

use super::request;
use super::response::{StatusBody, error, unsent};
use crate::api_call::{KubeCall, KubeCallId, KubeObject, Resource, WatchChange, WatchEvent};
use crate::kube_error::{KubeError, KubeErrorClass};
use crate::objects::{KubeNode, KubePod};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;
use tokio::sync::mpsc::Sender;
use tokio::time::timeout;

/// The longest time from the request to the headers of the response.
const OPEN_BUDGET: Duration = Duration::from_secs(30);
/// The API server sends a bookmark about once a minute; after two and a half the connection is taken for dead.
const SILENCE_BUDGET: Duration = Duration::from_secs(150);
/// The most of a line: one object, as in a response.
const LINE_BYTES: usize = 4 << 20;

/// Runs a watch; what ended it.
pub(super) async fn run(client: &Client, id: KubeCallId, call: &KubeCall, events: &Sender<WatchEvent>) -> WatchChange {
    let KubeCall::Watch { resource, .. } = call else {
        return WatchChange::Failed(KubeError::of_status(400, "BadRequest", "not a watch"));
    };
    match open(client, call).await {
        Ok(body) => {
            let mut lines = Lines { body, read: Vec::new() };
            let deliver = deliver(&mut lines, *resource, id, events).await;
            deliver.unwrap_or_else(|failure| failure)
        }
        Err(error) => ended_by(error),
    }
}

async fn open(client: &Client, call: &KubeCall) -> Result<Body, KubeError> {
    let request = request::of(call)?.map(Body::from);
    let response = match timeout(OPEN_BUDGET, client.send(request)).await {
        Ok(response) => response.map_err(|e| unsent(&e))?,
        Err(_) => {
            return Err(KubeError::no_response(&format!("no response within {} s", OPEN_BUDGET.as_secs())));
        }
    };
    if response.status().is_success() {
        return Ok(response.into_body());
    }
    match timeout(OPEN_BUDGET, error(response)).await {
        Ok(error) => Err(error),
        Err(_) => Err(KubeError::no_response("an error without its words")),
    }
}

/// Sends what the lines say until one of them, or the lack of any, is the end.
async fn deliver(
    lines: &mut Lines,
    resource: Resource,
    id: KubeCallId,
    events: &Sender<WatchEvent>,
) -> Result<WatchChange, WatchChange> {
    loop {
        let line = match timeout(SILENCE_BUDGET, lines.next()).await {
            Ok(line) => line.map_err(|e| WatchChange::Failed(KubeError::no_response(&e)))?,
            Err(_) => {
                let why = format!("nothing for {} s, not even a bookmark", SILENCE_BUDGET.as_secs());
                return Err(WatchChange::Failed(KubeError::no_response(&why)));
            }
        };
        let Some(line) = line else { return Ok(WatchChange::Ended) };
        let change = change_of(resource, &line)?;
        if events.send(WatchEvent { watch: id, change }).await.is_err() {
            return Ok(WatchChange::Ended);
        }
    }
}

/// A line of a watch.
#[derive(Deserialize)]
struct Line<T> {
    #[serde(rename = "type")]
    kind: String,
    object: T,
}

impl<T> Line<T> {
    /// What has become of an object. `None`: the line says something else.
    fn change(self, object: impl FnOnce(T) -> KubeObject) -> Option<WatchChange> {
        match self.kind.as_str() {
            "ADDED" | "MODIFIED" => Some(WatchChange::Applied(Box::new(object(self.object)))),
            "DELETED" => Some(WatchChange::Deleted(Box::new(object(self.object)))),
            _ => None,
        }
    }
}

/// What has become of a pod or a node: there are many, and nothing of them comes to memory but what is used. `None`: it is no such line, and is read
/// as every other.
fn change_of_many(resource: Resource, line: &[u8]) -> Option<WatchChange> {
    match resource {
        Resource::Pods => serde_json::from_slice::<Line<KubePod>>(line).ok()?.change(KubeObject::Pod),
        Resource::Nodes => serde_json::from_slice::<Line<KubeNode>>(line).ok()?.change(KubeObject::Node),
        _ => None,
    }
}

/// What a line says. `Err`: that it is the end.
fn change_of(resource: Resource, line: &[u8]) -> Result<WatchChange, WatchChange> {
    if let Some(change) = change_of_many(resource, line) {
        return Ok(change);
    }
    let unreadable = |e: serde_json::Error| {
        WatchChange::Failed(KubeError::no_response(&format!("a line of the watch cannot be read: {e}")))
    };
    let Line::<Value> { kind, object } = serde_json::from_slice(line).map_err(unreadable)?;
    let object_of = |object| KubeObject::of_json(resource, object).map(Box::new).map_err(unreadable);
    match kind.as_str() {
        "ADDED" | "MODIFIED" => Ok(WatchChange::Applied(object_of(object)?)),
        "DELETED" => Ok(WatchChange::Deleted(object_of(object)?)),
        "BOOKMARK" => {
            let version = object.pointer("/metadata/resourceVersion").and_then(Value::as_str);
            let resource_version = version.unwrap_or_default().to_owned();
            if resource_version.is_empty() {
                return Err(WatchChange::Failed(KubeError::no_response("a bookmark without a resource version")));
            }
            Ok(WatchChange::Bookmark { resource_version })
        }
        "ERROR" => {
            let status: StatusBody = serde_json::from_value(object).map_err(unreadable)?;
            Err(ended_by(status.into_error()))
        }
        other => Err(WatchChange::Failed(KubeError::no_response(&format!("a watch knows no `{other}`")))),
    }
}

fn ended_by(error: KubeError) -> WatchChange {
    if error.class == KubeErrorClass::Expired { WatchChange::Expired } else { WatchChange::Failed(error) }
}

/// A body, line by line.
struct Lines {
    body: Body,
    /// What was read and is not a whole line yet.
    read: Vec<u8>,
}

impl Lines {
    /// The next line that has anything. `None`: the end. What stands before the end without a line's end is part of a line that was cut
    /// off; the event comes again with the next watch.
    async fn next(&mut self) -> Result<Option<Vec<u8>>, String> {
        // Up to here there is no line's end.
        let mut searched = 0;
        loop {
            if let Some(at) = self.read[searched..].iter().position(|byte| *byte == b'\n') {
                let rest = self.read.split_off(searched + at + 1);
                let mut line = std::mem::replace(&mut self.read, rest);
                line.truncate(searched + at);
                searched = 0;
                if !line.trim_ascii().is_empty() {
                    return Ok(Some(line));
                }
                continue;
            }
            searched = self.read.len();
            if searched > LINE_BYTES {
                return Err(format!("a line of more than {LINE_BYTES} bytes"));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(e)) => return Err(format!("the watch broke: {e}")),
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.read.extend_from_slice(data);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tokio::sync::mpsc;

    async fn said(text: &str) -> (Vec<WatchChange>, WatchChange) {
        let (sender, mut receiver) = mpsc::channel(16);
        let mut lines = Lines { body: Body::from(text.as_bytes().to_vec()), read: Vec::new() };
        let last = deliver(&mut lines, Resource::Pods, KubeCallId(1), &sender).await.unwrap_or_else(|end| end);
        drop(sender);
        let mut changes = Vec::new();
        while let Some(event) = receiver.recv().await {
            assert_eq!(event.watch, KubeCallId(1));
            changes.push(event.change);
        }
        (changes, last)
    }

    #[tokio::test]
    async fn lines_become_changes_and_the_end_says_why() {
        let text = r#"{"type":"ADDED","object":{"metadata":{"name":"a"}}}

{"type":"DELETED","object":{"metadata":{"name":"a"}}}
{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"12"}}}
{"type":"ADDED","object":{"meta"#;
        let (changes, last) = said(text).await;
        assert!(
            matches!(&changes[..], [WatchChange::Applied(_), WatchChange::Deleted(_), WatchChange::Bookmark { resource_version }] if resource_version == "12")
        );
        assert_eq!(last, WatchChange::Ended, "half a line is what the connection lost");
    }

    #[test]
    fn a_pod_and_a_node_are_read_as_their_whole_json_is() {
        let metadata = json!({"name": "a", "uid": "u", "resourceVersion": "7", "labels": {"l": "v"}, "managedFields": [{"manager": "m"}],
            "annotations": {"k": "\u{e9}\n"}, "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30});
        let spec = json!({"nodeName": "n", "containers": [{"name": "c", "env": [{"name": "E", "value": "1"}],
            "resources": {"requests": {"cpu": "1"}}}], "providerID": "aws:///z/i-1", "taints": [{"key": "k", "effect": "NoSchedule"}]});
        let status = json!({"phase": "Running", "containerStatuses": [{"name": "c", "state": {"running": {"startedAt": "x"}}}],
            "allocatable": {"cpu": "2"}, "conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"bootID": "b"}});
        let object = json!({"kind": "any", "metadata": metadata, "spec": spec, "status": status});
        for resource in [Resource::Pods, Resource::Nodes] {
            let whole = KubeObject::of_json(resource, object.clone()).unwrap();
            assert_eq!(KubeObject::of_slice(resource, object.to_string().as_bytes()).unwrap(), whole);
            for (kind, change) in [
                ("ADDED", WatchChange::Applied(Box::new(whole.clone()))),
                ("MODIFIED", WatchChange::Applied(Box::new(whole.clone()))),
                ("DELETED", WatchChange::Deleted(Box::new(whole.clone()))),
            ] {
                let line = json!({"type": kind, "object": object}).to_string();
                assert_eq!(change_of_many(resource, line.as_bytes()), Some(change), "{resource:?} {kind}");
            }
        }
    }

    #[tokio::test]
    async fn a_version_that_is_too_old_is_expired_and_other_errors_are_failures() {
        let status = |code: u16, reason: &str| {
            format!(
                r#"{{"type":"ERROR","object":{{"kind":"Status","code":{code},"reason":"{reason}","message":"too old"}}}}"#
            ) + "\n"
        };
        assert_eq!(said(&status(410, "Expired")).await.1, WatchChange::Expired);
        assert_eq!(said(&status(410, "Gone")).await.1, WatchChange::Expired);
        assert!(matches!(said(&status(500, "InternalError")).await.1, WatchChange::Failed(e) if e.code == 500));
        for text in ["nothing\n", "{\"type\":\"NEWS\",\"object\":{}}\n", "{\"type\":\"BOOKMARK\",\"object\":{}}\n"] {
            assert!(matches!(said(text).await.1, WatchChange::Failed(_)), "{text}");
        }
    }

    #[tokio::test]
    async fn a_line_without_an_end_is_not_read_for_ever() {
        let (changes, last) = said(&"x".repeat(LINE_BYTES + 1)).await;
        assert!(changes.is_empty() && matches!(last, WatchChange::Failed(e) if e.message.contains("4194304 bytes")));
    }
}

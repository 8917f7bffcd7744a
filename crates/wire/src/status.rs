//! One status as it is sent: what became of a job, as a CloudEvent.
//!
//! Its id is `<journal>-<number>`, where a journal is its UUID and from the first restore on its incarnation, so that a consumer can tell one journal's stream from another's.
//! Never: a file, or a status that is not durable. Whoever writes the stream sees to that.

use crate::document::reason::{Words, figures};
use forebay_kernel::effect::{RunNode, Status};
use forebay_kernel::ids::{JobId, NodeId};
use forebay_kernel::reason::Reason;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt::{Arguments, Display};

/// A status as it is sent: a CloudEvent.
#[derive(Serialize)]
struct StatusEvent<'a> {
    specversion: &'a str,
    #[serde(rename = "type")]
    kind: Text<Arguments<'a>>,
    source: &'a str,
    id: Text<Arguments<'a>>,
    time: Option<Text<jiff::Timestamp>>,
    subject: &'a str,
    dataschema: Text<Arguments<'a>>,
    datacontenttype: &'a str,
    data: StatusData<'a>,
}

#[derive(Serialize)]
struct StatusData<'a> {
    number: u64,
    tenant: &'a str,
    job: Option<Text<JobId>>,
    attempt: u32,
    seq: u32,
    terminal: bool,
    reason: Option<StatusReason<'a>>,
    #[serde(rename = "exitCode", skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    nodes: Vec<StatusNode<'a>>,
    #[serde(rename = "moreNodes", skip_serializing_if = "Option::is_none")]
    more_nodes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<&'a BTreeMap<String, String>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusNode<'a> {
    node: Text<NodeId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<&'a str>,
    instance_type: &'a str,
    capacity_type: &'a str,
}

impl<'a> StatusNode<'a> {
    fn of(node: &'a RunNode) -> StatusNode<'a> {
        StatusNode {
            node: Text(node.node),
            instance: node.instance.as_deref(),
            instance_type: &node.instance_type,
            capacity_type: node.capacity.as_str(),
        }
    }
}

#[derive(Serialize)]
struct StatusReason<'a> {
    code: &'static str,
    text: Text<Words<'a>>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    figures: Map<String, Value>,
}

impl<'a> StatusReason<'a> {
    fn of(reason: Reason, named: Option<&'a str>) -> StatusReason<'a> {
        StatusReason { code: reason.code(), text: Text(Words { reason, named }), figures: figures(reason, named) }
    }
}

/// Text that is put together as it is written.
struct Text<T>(T);

impl<T: Display> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&self.0)
    }
}

/// A status as it is sent, as JSON text. `journal` is the first part of its id.
#[must_use]
pub fn cloud_event(status: &Status, journal: impl Display) -> String {
    let mut out = Vec::new();
    write_event(&mut out, status, journal);
    String::from_utf8(out).unwrap_or_default()
}

/// Writes a status as it is sent, as JSON text without a line break, after what is in `out`. `journal` is the first part of its id.
pub fn write_event(out: &mut Vec<u8>, status: &Status, journal: impl Display) {
    let kind = format_args!("status.{}", status.kind.as_str());
    let id = format_args!("{journal}-{}", status.number);
    let dataschema = format_args!("urn:forebay:status.{}:1", status.kind.as_str());
    let time = i64::try_from(status.at.0).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    let event = StatusEvent {
        specversion: "1.0",
        kind: Text(kind),
        source: "//forebay",
        id: Text(id),
        time: time.map(Text),
        subject: &status.subject,
        dataschema: Text(dataschema),
        datacontenttype: "application/json",
        data: StatusData {
            number: status.number,
            tenant: &status.tenant,
            job: status.job.map(Text),
            attempt: status.attempt.0,
            seq: status.seq,
            terminal: status.kind.terminal(),
            reason: status.reason.map(|reason| StatusReason::of(reason, status.named.as_deref())),
            exit_code: status.run.as_ref().and_then(|run| run.exit_code),
            nodes: status.run.iter().flat_map(|run| &run.nodes).map(StatusNode::of).collect(),
            more_nodes: status.run.as_ref().map(|run| run.more).filter(|more| *more > 0),
            labels: Some(&status.labels).filter(|labels| !labels.is_empty()),
        },
    };
    // Into memory, from texts and numbers: nothing there can fail.
    let _ = serde_json::to_writer(out, &event);
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_kernel::catalog::CapacityType;
    use forebay_kernel::effect::{RunFacts, StatusKind};
    use forebay_kernel::ids::{Attempt, QueueId};
    use forebay_kernel::units::Timestamp;
    use serde_json::json;

    fn status() -> Status {
        let node = RunNode {
            node: NodeId(4),
            instance: Some("i-1".into()),
            instance_type: "p5.48xlarge".into(),
            capacity: CapacityType::Spot,
        };
        Status {
            number: 7,
            at: Timestamp(1_793_000_000_007),
            tenant: "t".into(),
            subject: "job \"7\"\n".into(),
            job: Some(JobId(7)),
            attempt: Attempt(1),
            seq: 3,
            kind: StatusKind::Failed,
            reason: Some(Reason::ExitCode { code: 2 }),
            named: None,
            run: Some(Box::new(RunFacts { attempt: Attempt(1), nodes: vec![node], more: 3, exit_code: Some(2) })),
            labels: [("costCenter".into(), "4711".into()), ("team".into(), "vision \"7\"\n".into())].into(),
        }
    }

    #[test]
    fn a_line_says_everything_and_stays_one_line() {
        let text = cloud_event(&status(), "00000000-0000-0000-0000-000000000000");
        let event: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(event["id"], "00000000-0000-0000-0000-000000000000-7");
        assert_eq!(event["type"], "status.failed");
        assert_eq!(event["time"], "2026-10-26T07:33:20.007Z");
        assert_eq!(
            event["data"]["reason"],
            json!({"code": "ExitCode", "text": "exit code 2, which is not tried again: see its logs; `retry.attempts` says how often it is, and `retry.never` after which codes not", "figures": {"exit_code": 2}})
        );
        assert_eq!((&event["data"]["terminal"], &event["data"]["seq"]), (&json!(true), &json!(3)));
        let node = json!({"node": "node-4", "instance": "i-1", "instanceType": "p5.48xlarge", "capacityType": "spot"});
        let data = &event["data"];
        assert_eq!((&data["nodes"], &data["moreNodes"], &data["exitCode"]), (&json!([node]), &json!(3), &json!(2)));
        assert_eq!(data["labels"], json!({"costCenter": "4711", "team": "vision \"7\"\n"}));
        assert!(!text.contains('\n'));
        let reason = Some(Reason::PreemptedBy { queue: QueueId(3) });
        let named = cloud_event(&Status { reason, named: Some("prod/search".into()), ..status() }, "j");
        let reason = &serde_json::from_str::<Value>(&named).unwrap()["data"]["reason"];
        assert_eq!(reason["figures"], json!({"queue": "prod/search"}));
        assert!(reason["text"].as_str().unwrap().contains("`prod/search`"), "{named}");
        let bare = cloud_event(&Status { run: None, labels: BTreeMap::new(), ..status() }, "j");
        assert!(["nodes", "moreNodes", "exitCode", "labels"].iter().all(|name| !bare.contains(name)), "{bare}");
    }
}

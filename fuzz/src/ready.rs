//! Ready-made inputs to begin from: policies and examples of this repository, and what the cloud, a run and an agent send, as documented.
//!
//! Never: an input that is wrong. Those of `corpus` may be.

/// The ready-made inputs of a target, by its name. Events, batches and lines have other ones.
pub fn inputs(target: &str) -> Vec<String> {
    let own = |texts: &[&str]| -> Vec<String> { texts.iter().map(|text| (*text).to_owned()).collect() };
    match target {
        "policy" => own(&POLICIES),
        "config" => own(&CONFIGURATIONS),
        "state" => own(&STATES),
        "trace" => own(&TRACES).into_iter().chain([day()]).collect(),
        "manifest" => own(&MANIFESTS),
        "metadata" => own(&METADATA),
        "notices" => {
            let plain = NOTICES.iter().map(|(source, kind, detail)| notice(source, kind, detail));
            plain.chain([in_sns()]).collect()
        }
        "agents" => own(&ACTIVITY),
        _ => Vec::new(),
    }
}

const POLICIES: [&str; 9] = [
    include_str!("../../policies/deadline.yaml"),
    include_str!("../../policies/inference.yaml"),
    include_str!("../../policies/mig.yaml"),
    include_str!("../../policies/notebooks.yaml"),
    include_str!("../../policies/on-demand-only.yaml"),
    include_str!("../../policies/spot-first.yaml"),
    include_str!("../../policies/teams.yaml"),
    include_str!("../../crates/policy/tests/data/everything.yaml"),
    "apiVersion: forebay/v1\nkind: Policy\nmetadata: {name: small}\nlimits: {nodes: 8, spend: 10 USD/h}\nqueues: {research: {}}\n\
     pools: {gpus: {instanceTypes: [g5.xlarge]}}\n",
];

const CONFIGURATIONS: [&str; 5] = [
    include_str!("../../examples/forebay.yaml"),
    "apiVersion: forebay/v1\nkind: Config\nlisten: 127.0.0.1:8080\ndata: forebay-data\npolicy: policy.yaml\nstandby: true\n\
     trustedProxies: [10.0.0.7]\n",
    "apiVersion: forebay/v1\nkind: Config\ntokens:\n  - name: airflow\n    tenant: default\n    roles: [submit, read]\n    \
     secret: {file: secrets/airflow.token}\n  - name: nodes\n    roles: [agent]\n    secret: {env: AGENT_TOKEN}\n",
    "apiVersion: forebay/v1\nkind: Config\nkafka:\n  - brokers: [\"kafka-1.example.com:9093\"]\n    topics:\n      - {name: jobs, principal: \
     vision, tenant: vision}\n    status: forebay.status\n    rejected: forebay.rejected\n",
    "apiVersion: forebay/v1\nkind: Config\njournal: {keepFinished: 30d, keepPolicies: 30d}\nstatuses: {keep: 7d, atMost: 4GiB}\n\
     tenants:\n  each: {openJobs: 200000, bytes: 512MiB, undeclaredQueues: 20}\ncheckpoints:\n  files: true\n  readAtMost: 64MiB\n",
];

const STATES: [&str; 3] = [
    r#"{"apiVersion": "forebay/v1", "kind": "State", "now_s": 1000, "jobs": [
        {"job": "gang", "queue": "vision/batch", "gpus": 8, "workers": 2, "phase": "running", "nodes": ["a", "b"], "submit_s": 5,
         "since_s": 100, "progress_s": 60},
        {"job": "big", "queue": "vision/batch", "gpus": 16, "workers": 2, "phase": "queued", "submit_s": 10, "batchKey": "resnet",
         "within": {"prefer": "rack"}, "models": ["h100"], "gpuMilli": 1000, "spot": false},
        {"job": "old", "queue": "vision/batch", "gpus": 1, "phase": "completed"}],
      "nodes": [
        {"node": "a", "instanceType": "g5.12xlarge", "zone": "sim-1a", "capacityType": "spot", "phase": "ready"},
        {"node": "b", "instanceType": "g5.12xlarge", "zone": "sim-1a", "capacityType": "on-demand", "phase": "ready"}]}"#,
    r#"{"apiVersion": "forebay/v1", "kind": "State", "jobs": [{"job": "a", "queue": "q", "gpus": 1, "phase": "queued"}]}"#,
    r#"{"apiVersion": "forebay/v1", "kind": "State", "snapshot": {"applyVersion": 5, "blake3": "00", "bytes": "AAAA"}}"#,
];

const TRACES: [&str; 5] = [
    "job_id,submit_s,duration_s,gpus\na,0,60,1\nb,1.5,3600,8\n",
    "job_id,submit_s,duration_s,gpus,workers,gpu_milli,cpu,mem_mib,user,queue,tier,gpu_model,deadline_s,spot,gpu_util\n\
     a,0,60,1,1,500,4000,8192,ada,vision,normal,A100|H100,900,true,0.75\nb,10,3600,8,2,1000,,,bob,,,,,false,\n",
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n\
     p-0,12000,16384,1,460,,LS,Running,427061,437061,427071\np-3,88000,327680,8,1000,V100M16|V100M32,Burstable,Failed,70,80,70\n",
    "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n\
     1425511,uXBbc,vcJkd,1,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-10 04:55:09,36848,0\n\
     1425514,uzqls,vcpDC,1,1,1,CANCELLED,2020-06-09 18:41:28,None,2020-06-17 14:15:21,,\n",
    "[{\"status\": \"Pass\", \"vc\": \"ee9e8c\", \"jobid\": \"late\", \"submitted_time\": \"2017-10-07 01:11:39\", \"user\": \"u1\", \"attempts\":\n\
     [{\"start_time\": \"2017-10-07 01:12:09\", \"end_time\": \"2017-10-07 01:13:23\", \"detail\": [{\"ip\": \"m47\", \"gpus\": [\"gpu0\"]}]}]}]\n",
];

/// The first events of the example's day.
fn day() -> String {
    include_str!("../../examples/day.jsonl").lines().take(6).flat_map(|line| [line, "\n"]).collect()
}

/// The second one is there: `reports` writes the file that it names.
const MANIFESTS: [&str; 3] = [
    r#"{"version": 1, "job": "job-12", "attempt": 3, "sequence": 7, "progressS": 5400.0, "createdAt": "2026-11-21T09:00:00Z",
        "files": [{"key": "step-000900/model.bin", "size": 123,
                   "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"}]}"#,
    r#"{"version": 1, "job": "job-12", "attempt": 3, "sequence": 7, "progressS": 1.5,
        "files": [{"key": "step/model.bin", "size": 1,
                   "sha256": "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"}]}"#,
    r#"{"version": 1, "job": "job-12", "attempt": 3, "sequence": 7, "progressS": 0,
        "files": [{"key": "a", "size": 1, "checksum": "qUiQTy8PR5uPgZdpSzAYSw0u0cHNKh7A+4XSmaGSpEc=-2"}, {"key": "b/c", "size": 0,
                   "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "mine": {"epoch": 4}}]}"#,
];

const METADATA: [&str; 4] = [
    r#"{"action": "terminate", "time": "2026-11-21T20:30:00Z"}"#,
    r#"{"action": "stop", "time": "2026-11-21T20:30:00Z", "more": [1]}"#,
    r#"{"action": "hibernate"}"#,
    r#"{"noticeTime": "2026-10-27T08:22:00Z"}"#,
];

const NOTICES: [(&str, &str, &str); 7] = [
    (
        "aws.ec2",
        "EC2 Spot Instance Interruption Warning",
        r#"{"instance-id": "i-1234567890abcdef0", "instance-action": "terminate"}"#,
    ),
    ("aws.ec2", "EC2 Instance Rebalance Recommendation", r#"{"instance-id": "i-1234567890abcdef0"}"#),
    (
        "aws.ec2",
        "EC2 Instance State-change Notification",
        r#"{"instance-id": "i-1234567890abcdef0", "state": "terminated"}"#,
    ),
    (
        "aws.ec2",
        "EC2 Capacity Reservation Instance Interruption Warning",
        r#"{"instance-id": "i-1234567890abcdef0", "instance-termination-time": "2026-11-21T20:31:30Z"}"#,
    ),
    (
        "aws.ec2",
        "Capacity Block Expiration Warning",
        r#"{"capacity-reservation-id": "cr-0123456789abcdef0", "end-date": "2026-11-21T21:10:00Z"}"#,
    ),
    (
        "aws.health",
        "AWS Health Event",
        r#"{"service": "EC2", "eventTypeCategory": "scheduledChange", "statusCode": "upcoming", "startTime": "2026-11-21T20:45:00Z",
            "affectedEntities": [{"entityValue": "i-1234567890abcdef0", "status": "PENDING"}, {"entityValue": "vol-1"}]}"#,
    ),
    ("aws.s3", "Object Created", r#"{"bucket": {"name": "b"}}"#),
];

fn notice(source: &str, kind: &str, detail: &str) -> String {
    format!(
        r#"{{"version": "0", "id": "7bf73129-1428-4cd3-a780-95db273d1602", "detail-type": "{kind}", "source": "{source}",
            "account": "123456789012", "time": "2026-11-21T20:30:00Z", "region": "us-east-2", "resources": [], "detail": {detail}}}"#
    )
}

/// As SNS hands it on, unless raw delivery is on.
fn in_sns() -> String {
    let (source, kind, detail) = NOTICES[0];
    serde_json::json!({ "Type": "Notification", "MessageId": "m", "Message": notice(source, kind, detail) }).to_string()
}

const ACTIVITY: [&str; 2] = [
    r#"{"instance": "i-1234567890abcdef0", "start": 1795293000000, "sequence": 2, "since": 1, "source": "nvml", "gpus": 2, "dropped": 0,
        "workers": [
          {"worker": "job-12/3/0", "gpus": 1, "memory_mib": 40000, "observed_ms": 10000, "busy_ms": 0, "resident_ms": 10000,
           "computes": false, "idle_ms": 600000},
          {"worker": "job-12/3/1", "gpus": 1, "observed_ms": 10000, "busy_ms": 10000, "resident_ms": 10000, "computes": true},
          {"worker": "job-7/1/0", "observed_ms": 0, "busy_ms": 0, "resident_ms": 0, "ended": true}]}"#,
    r#"{"instance": "i-1", "start": 1, "sequence": 1, "since": 0, "source": "dcgm", "problem": "no GPU: the driver is not loaded", "workers": []}"#,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::targets::{DecodeOutcome, InputFormat, TARGETS};

    #[test]
    fn what_is_ready_made_is_read_and_each_target_accepts_some_of_it() {
        let own = tempfile::tempdir().unwrap();
        for target in TARGETS.iter().filter(|t| matches!(t.shape, InputFormat::Text | InputFormat::Json)) {
            let mut accepted = 0;
            for text in inputs(target.name) {
                let outcome = (target.check)(text.as_bytes(), own.path());
                let outcome = outcome.unwrap_or_else(|e| panic!("{}: {e}: {text}", target.name));
                accepted += u32::from(outcome == DecodeOutcome::Accepted);
                let unread = matches!(&outcome, DecodeOutcome::Rejected(code, _) if target.first_stage.contains(code));
                assert!(!unread, "{}: {outcome:?}: {text}", target.name);
            }
            assert!(accepted > 0, "{}", target.name);
        }
    }
}

//! A real LocalStack, started, seeded, restarted and ended.
//!
//! Never: our own decoder of its answers; AWS's own client reads them.

mod starter;

use std::net::{Ipv4Addr, TcpListener};
use std::process::Command;

use forebay_parts::{LocalStack, LocalStackOptions, PartError};

/// What AWS's client sees: each queue with its settings, and the buckets.
const LIST: &str = r#"
import boto3
sqs, s3 = (boto3.client(name) for name in ("sqs", "s3"))
for url in sorted(sqs.list_queues().get("QueueUrls", [])):
    has = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    print(url.rsplit("/", 1)[1], has.get("FifoQueue", "false"), has.get("RedrivePolicy", "none"))
    assert url.startswith(sqs.meta.endpoint_url), url
print(*[bucket["Name"] for bucket in s3.list_buckets()["Buckets"]])
"#;

fn list(localstack: &LocalStack) -> String {
    let keys = [("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test"), ("AWS_DEFAULT_REGION", "us-east-1")];
    let mut command = Command::new(localstack.python());
    command.args(["-c", LIST]).env("AWS_ENDPOINT_URL", localstack.endpoint()).env("NO_PROXY", "127.0.0.1").envs(keys);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn real_localstack_is_seeded_twice_and_forgets_over_a_restart() {
    let mut localstack = LocalStack::start(LocalStackOptions::default()).unwrap();
    let endpoint = localstack.endpoint().to_owned();
    assert_eq!(list(&localstack), "\n", "it starts empty");
    let printed = localstack.seed().unwrap();
    assert_eq!(printed.lines().count(), 9, "{printed}");
    assert_eq!(localstack.seed().unwrap(), printed, "a second time changes nothing");
    let redrive = |fifo: &str| {
        let dead = "arn:aws:sqs:us-east-1:000000000000:jobs-dead";
        format!(r#"{{"deadLetterTargetArn": "{dead}{fifo}", "maxReceiveCount": 100}}"#)
    };
    let mut expected = Vec::new();
    for name in ["jobs", "jobs-dead", "jobs-rejected", "jobs-status"] {
        for (suffix, fifo) in [("", "false"), (".fifo", "true")] {
            let redrive = if name == "jobs" { redrive(suffix) } else { "none".to_owned() };
            expected.push(format!("{name}{suffix} {fifo} {redrive}"));
        }
    }
    expected.sort();
    expected.push("checkpoints".to_owned());
    let mut seen: Vec<String> = list(&localstack).lines().map(str::to_owned).collect();
    seen[..8].sort();
    assert_eq!(seen, expected);

    localstack.stop().unwrap();
    assert!(!localstack.is_running());
    assert!(matches!(localstack.seed(), Err(PartError::NotRunning { .. })), "nobody waits for a stopped server");
    localstack.restart().unwrap();
    assert_eq!((localstack.endpoint(), list(&localstack).as_str()), (endpoint.as_str(), "\n"), "nothing is kept");
    localstack.seed().unwrap();
    localstack.kill().unwrap();
    localstack.restart().unwrap();
    assert_eq!((localstack.endpoint(), list(&localstack).as_str()), (endpoint.as_str(), "\n"), "nothing is kept");
}

#[test]
fn real_localstack_dies_with_its_starter() {
    starter::dies_with_it("localstack");
}

#[test]
fn a_port_that_is_taken_is_said_before_anything_starts() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let error = LocalStack::start(LocalStackOptions { port: Some(port) }).unwrap_err();
    assert!(matches!(error, PartError::PortTaken { port: named } if named == port), "{error}");
}

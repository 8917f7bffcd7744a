//! A LocalStack, somebody who writes checkpoints into it, and manifests as workloads write them.

use aws_sdk_s3::Client;
use aws_sdk_s3::types::ChecksumAlgorithm;
use forebay_checkpoint_s3::{
    AccessKey, AwsSettings, CheckError, CheckpointRefusal, CheckpointSettings, CheckpointTimeouts, CheckpointVerifier,
    S3Settings, VerifiedCheckpoint, VerifyRequest,
};
use forebay_parts::LocalStack;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;

pub fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// SHA-256 in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// An entry of a manifest for a file with this content.
pub fn entry(key: &str, bytes: &[u8]) -> Value {
    json!({"key": key, "size": bytes.len(), "sha256": sha256(bytes)})
}

/// A manifest, and its key.
pub fn manifest(job: &str, attempt: u32, sequence: u64, progress_s: f64, files: &[Value]) -> (String, Value) {
    let text = json!({"version": 1, "job": job, "attempt": attempt, "sequence": sequence, "progressS": progress_s,
        "files": files, "createdAt": "2026-11-21T09:00:00Z"});
    (key(attempt, sequence), text)
}

pub fn key(attempt: u32, sequence: u64) -> String {
    format!("manifests/{attempt:010}-{sequence:010}.json")
}

/// Of an S3 at this endpoint, with short limits.
pub fn settings(endpoint: &str) -> CheckpointSettings {
    let keys = AccessKey { access_key_id: "test".into(), secret_access_key: "hush".into(), session_token: None };
    let aws = AwsSettings { region: Some("us-east-1".into()), endpoint: Some(endpoint.into()), access_key: Some(keys) };
    let timeouts = CheckpointTimeouts {
        call: Duration::from_secs(5),
        read: Duration::from_secs(5),
        whole: Duration::from_secs(60),
    };
    CheckpointSettings {
        s3: Some(S3Settings { aws, ..S3Settings::default() }),
        timeouts,
        ..CheckpointSettings::default()
    }
}

/// A bucket, somebody who writes into it, and who looks at it.
pub struct TestBucket {
    pub localstack: Option<Arc<LocalStack>>,
    pub runtime: Runtime,
    pub client: Client,
    pub name: String,
    pub checkpoints: CheckpointVerifier,
}

impl TestBucket {
    /// A new one, in the LocalStack that all tests share.
    pub fn new(name: &str) -> TestBucket {
        let localstack = LocalStack::shared();
        let endpoint = localstack.endpoint().to_owned();
        TestBucket { localstack: Some(localstack), ..TestBucket::at(&endpoint, name) }
    }

    /// A new one somewhere else.
    pub fn at(endpoint: &str, name: &str) -> TestBucket {
        let runtime = runtime();
        let settings = settings(endpoint);
        let location = settings.s3.clone().expect("it is given").aws;
        let connection = runtime.block_on(forebay_aws::load_client_config(&location)).expect("a way");
        let config =
            aws_sdk_s3::config::Builder::from(&connection.sdk).endpoint_url(endpoint).force_path_style(true).build();
        let client = Client::from_conf(config);
        runtime.block_on(client.create_bucket().bucket(name).send()).expect("a bucket");
        let checkpoints = CheckpointVerifier::new(settings).expect("settings that can be");
        TestBucket { localstack: None, runtime, client, name: name.to_owned(), checkpoints }
    }

    /// Its address, with a prefix.
    pub fn uri(&self) -> String {
        format!("s3://{}/runs/a/", self.name)
    }

    /// Writes a file with S3's SHA-256.
    pub fn put(&self, key: &str, bytes: &[u8]) {
        self.put_as(key, bytes, Some(ChecksumAlgorithm::Sha256));
    }

    /// Writes a file with this kind of checksum.
    pub fn put_as(&self, key: &str, bytes: &[u8], kind: Option<ChecksumAlgorithm>) {
        let call = self.client.put_object().bucket(&self.name).key(format!("runs/a/{key}"));
        let sent = call.set_checksum_algorithm(kind).body(bytes.to_vec().into()).send();
        self.runtime.block_on(sent).expect("written");
    }

    /// Writes a manifest.
    pub fn manifest(&self, (key, text): (String, Value)) {
        self.put(&key, text.to_string().as_bytes());
    }

    pub fn delete(&self, key: &str) {
        let call = self.client.delete_object().bucket(&self.name).key(format!("runs/a/{key}"));
        self.runtime.block_on(call.send()).expect("deleted");
    }

    pub fn verify(&self, job: &str, attempt: u32, manifest: &str) -> Result<VerifiedCheckpoint, CheckError> {
        let uri = self.uri();
        self.runtime.block_on(self.checkpoints.verify(&VerifyRequest { uri: &uri, job, attempt }, manifest))
    }

    pub fn latest(&self, job: &str, attempt: u32) -> Result<VerifiedCheckpoint, CheckError> {
        let uri = self.uri();
        self.runtime.block_on(self.checkpoints.latest(&VerifyRequest { uri: &uri, job, attempt }))
    }
}

/// The refusal; unknown would be a failure of the test.
pub fn refused(looked: Result<VerifiedCheckpoint, CheckError>) -> CheckpointRefusal {
    match looked {
        Err(CheckError::Refused(refusal)) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}

/// Why nobody can say.
pub fn unknown(looked: Result<VerifiedCheckpoint, CheckError>) -> String {
    match looked {
        Err(CheckError::Unavailable(unknown)) => unknown.why,
        other => panic!("not unknown: {other:?}"),
    }
}

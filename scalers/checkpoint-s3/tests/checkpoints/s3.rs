//! Against a real LocalStack.

use crate::support::{TestBucket, entry, key, manifest, refused, settings, sha256, unknown};
use aws_sdk_s3::types::{ChecksumAlgorithm, CompletedMultipartUpload, CompletedPart};
use forebay_checkpoint_s3::{
    CheckpointRefusal, CheckpointSettings, CheckpointVerifier, MAX_MANIFEST_BYTES, ManifestName, VerifyRequest, probe,
};
use forebay_parts::{LocalStack, LocalStackOptions};
use forebay_source::Severity;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

const MODEL: &[u8] = b"weights";

/// A bucket with a checkpoint of attempt 3.
fn with_one(name: &str) -> TestBucket {
    let bucket = TestBucket::new(name);
    bucket.put("step-900/model.bin", MODEL);
    bucket.put("step-900/state.json", b"{}");
    let files = [entry("step-900/model.bin", MODEL), entry("step-900/state.json", b"{}")];
    bucket.manifest(manifest("job-12", 3, 7, 5400.5, &files));
    bucket
}

#[test]
fn a_checkpoint_that_is_there_counts() {
    let bucket = with_one("good");
    let found = bucket.verify("job-12", 3, &key(3, 7)).expect("it counts");
    assert_eq!(found.progress, Duration::from_millis(5_400_500));
    assert_eq!((found.files, found.bytes, found.name), (2, 9, ManifestName { attempt: 3, sequence: 7 }));
    assert_eq!(bucket.latest("job-12", 3).expect("it counts"), found);
    assert_eq!(bucket.latest("job-12", 9).expect("it counts for later runs"), found);
}

#[test]
fn what_is_not_as_it_says_is_refused() {
    let bucket = with_one("bad");
    let verify = |attempt, key: &str| refused(bucket.verify("job-12", attempt, key));
    assert!(
        matches!(verify(3, &key(3, 8)), CheckpointRefusal::NotThere { location } if location.ends_with("0000000008.json"))
    );
    assert!(
        matches!(verify(2, &key(3, 7)), CheckpointRefusal::Attempt { attempt: 3, why, .. } if why.contains("attempt 2"))
    );
    assert!(
        matches!(refused(bucket.verify("job-13", 3, &key(3, 7))), CheckpointRefusal::Job { job, .. } if job == "job-12")
    );
    for named in
        ["../b/manifests/0000000003-0000000007.json", "manifests/3-7.json", "", "step-900/model.bin", "manifests/\u{7}"]
    {
        assert!(matches!(verify(3, named), CheckpointRefusal::Unnamed { .. }), "{named}");
    }
    // A manifest under another's name.
    let (_, text) = manifest("job-12", 3, 7, 1.0, &[entry("step-900/model.bin", MODEL)]);
    bucket.put(&key(3, 9), text.to_string().as_bytes());
    assert!(
        matches!(verify(3, &key(3, 9)), CheckpointRefusal::Attempt { why, .. } if why.contains("write the same in both"))
    );

    let one = |sequence: u64, file: Value| {
        bucket.manifest(manifest("job-12", 3, sequence, 9000.0, &[entry("step-900/state.json", b"{}"), file]));
        verify(3, &key(3, sequence))
    };
    let missing = one(20, entry("step-900/other.bin", MODEL));
    assert!(
        matches!(&missing, CheckpointRefusal::Missing { location, .. } if location.ends_with("step-900/other.bin")),
        "{missing}"
    );
    assert!(missing.to_string().contains("write files first and the manifest last"));
    let longer = json!({"key": "step-900/model.bin", "size": 8, "sha256": sha256(MODEL)});
    assert!(matches!(one(21, longer), CheckpointRefusal::Size { found: 7, stated: 8, .. }));
    let other = one(22, entry("step-900/model.bin", b"WEIGHTS"));
    assert!(matches!(other, CheckpointRefusal::Checksum { .. }), "{other}");
    for hostile in ["../../other/model.bin", "/runs/a/step-900/model.bin", "step-900/../step-900/model.bin", "a\u{0}b"]
    {
        let refusal = one(23, entry(hostile, MODEL));
        assert!(matches!(refusal, CheckpointRefusal::Key { .. }), "{hostile}: {refusal}");
    }
    // The older one still counts, and says why the newer ones do not.
    let latest = bucket.latest("job-12", 3).expect("the older one");
    assert_eq!((latest.name.sequence, latest.skipped.len()), (7, 4));
    assert!(matches!(latest.skipped[0], CheckpointRefusal::Key { .. }), "{:?}", latest.skipped);
}

#[test]
fn a_manifest_before_its_files_counts_when_they_are_there() {
    let bucket = TestBucket::new("early");
    assert!(refused(bucket.latest("job-1", 1)).is_nothing_yet());
    bucket.manifest(manifest("job-1", 1, 1, 60.0, &[entry("late.bin", MODEL)]));
    assert!(matches!(refused(bucket.latest("job-1", 1)), CheckpointRefusal::Missing { .. }));
    bucket.put("late.bin", MODEL);
    assert_eq!(bucket.latest("job-1", 1).expect("now").progress, Duration::from_secs(60));
    bucket.delete("late.bin");
    assert!(
        matches!(refused(bucket.latest("job-1", 1)), CheckpointRefusal::Missing { .. }),
        "and not when they are gone"
    );
}

#[test]
fn a_huge_or_broken_manifest_is_refused_without_reading_all_of_it() {
    let bucket = TestBucket::new("huge");
    let room = usize::try_from(MAX_MANIFEST_BYTES).expect("small");
    bucket.put(&key(1, 1), &vec![b' '; room + 1]);
    let huge = refused(bucket.verify("job-1", 1, &key(1, 1)));
    assert!(
        matches!(&huge, CheckpointRefusal::Unreadable { why, .. } if why.contains("more than 1048576 bytes")),
        "{huge}"
    );
    bucket.put(&key(1, 2), b"{\"version\":1,");
    assert!(refused(bucket.verify("job-1", 1, &key(1, 2))).to_string().contains("it is not a manifest"));
    bucket.put(&key(1, 3), &[b"[".repeat(100_000), b"]".repeat(100_000)].concat());
    assert!(refused(bucket.verify("job-1", 1, &key(1, 3))).to_string().contains("it is not a manifest"));
}

#[test]
fn what_s3_has_no_sha256_of_is_read_up_to_a_bound() {
    let bucket = TestBucket::new("plain");
    bucket.put_as("plain.bin", MODEL, Some(ChecksumAlgorithm::Crc32));
    bucket.manifest(manifest("job-1", 1, 1, 60.0, &[entry("plain.bin", MODEL)]));
    assert!(bucket.verify("job-1", 1, &key(1, 1)).is_ok(), "read and hashed");
    bucket.manifest(manifest("job-1", 1, 2, 60.0, &[entry("plain.bin", b"WEIGHTS")]));
    assert!(matches!(refused(bucket.verify("job-1", 1, &key(1, 2))), CheckpointRefusal::Checksum { .. }));
    let only = json!({"key": "plain.bin", "size": 7, "checksum": "x=-2"});
    bucket.manifest(manifest("job-1", 1, 3, 60.0, &[only]));
    assert!(matches!(refused(bucket.verify("job-1", 1, &key(1, 3))), CheckpointRefusal::Unverifiable { .. }));

    bucket.put_as("second.bin", MODEL, Some(ChecksumAlgorithm::Crc32));
    bucket.manifest(manifest("job-1", 1, 4, 60.0, &[entry("plain.bin", MODEL), entry("second.bin", MODEL)]));
    let endpoint = bucket.localstack.as_ref().expect("it runs").endpoint().to_owned();
    let bounded = |read_at_most| {
        CheckpointVerifier::new(CheckpointSettings { read_at_most, ..settings(&endpoint) }).expect("they can be")
    };
    let uri = bucket.uri();
    let request = VerifyRequest { uri: &uri, job: "job-1", attempt: 1 };
    let looked = bucket.runtime.block_on(bounded(13).verify(&request, &key(1, 4)));
    assert!(refused(looked).to_string().contains("checkpoints.readAtMost"));
    assert!(bucket.runtime.block_on(bounded(14).verify(&request, &key(1, 4))).is_ok());
}

#[test]
fn an_upload_in_parts_is_compared_by_the_checksum_of_its_parts() {
    let bucket = TestBucket::new("parts");
    let parts = [vec![b'a'; 5 << 20], vec![b'b'; 100]];
    let (client, name) = (&bucket.client, &bucket.name);
    let check_response = bucket.runtime.block_on(async {
        let key = "runs/a/big.bin";
        let upload =
            client.create_multipart_upload().bucket(name).key(key).checksum_algorithm(ChecksumAlgorithm::Sha256);
        let id = upload.send().await.expect("begun").upload_id.expect("an id");
        let mut done = CompletedMultipartUpload::builder();
        for (number, part) in (1..).zip(&parts) {
            let call = client.upload_part().bucket(name).key(key).upload_id(&id).part_number(number);
            let sent = call
                .checksum_algorithm(ChecksumAlgorithm::Sha256)
                .body(part.clone().into())
                .send()
                .await
                .expect("sent");
            let part = CompletedPart::builder()
                .part_number(number)
                .set_e_tag(sent.e_tag)
                .set_checksum_sha256(sent.checksum_sha256);
            done = done.parts(part.build());
        }
        let call =
            client.complete_multipart_upload().bucket(name).key(key).upload_id(&id).multipart_upload(done.build());
        call.send().await.expect("done").checksum_sha256.expect("a checksum of the parts")
    });
    assert!(check_response.ends_with("-2"), "{check_response}");
    let size = parts.iter().map(Vec::len).sum::<usize>();
    let file = |checksum: &str| json!({"key": "big.bin", "size": size, "checksum": checksum});
    bucket.manifest(manifest("job-1", 1, 1, 60.0, &[file(&check_response)]));
    assert_eq!(bucket.verify("job-1", 1, &key(1, 1)).expect("it counts").bytes, size as u64);
    bucket.manifest(manifest("job-1", 1, 2, 60.0, &[file(&check_response.replace("-2", "-3"))]));
    assert!(matches!(refused(bucket.verify("job-1", 1, &key(1, 2))), CheckpointRefusal::Checksum { .. }));
    // With the hash of the whole alone it is read, where that is little enough.
    bucket.manifest(manifest("job-1", 1, 3, 60.0, &[entry("big.bin", &parts.concat())]));
    assert!(bucket.verify("job-1", 1, &key(1, 3)).is_ok());
}

#[test]
fn the_latest_of_many_is_found_and_later_runs_do_not_count() {
    let bucket = TestBucket::new("many");
    bucket.put("model.bin", MODEL);
    let files = [entry("model.bin", MODEL)];
    // More than one page of a list.
    let write = |attempt: u32, sequence: u64| {
        let (key, text) = manifest("job-1", attempt, sequence, f64::from(attempt) * 1e4 + sequence as f64, &files);
        let call = bucket.client.put_object().bucket(&bucket.name).key(format!("runs/a/{key}"));
        call.body(text.to_string().into_bytes().into()).send()
    };
    bucket.runtime.block_on(async {
        let mut writing = tokio::task::JoinSet::new();
        for sequence in 1..=1100 {
            writing.spawn(write(1 + u32::from(sequence > 1050), sequence));
            if writing.len() >= 16 {
                writing.join_next().await.expect("one").expect("ends").expect("written");
            }
        }
        while let Some(written) = writing.join_next().await {
            written.expect("ends").expect("written");
        }
    });
    bucket.put("manifests/readme.txt", b"not a manifest");
    assert_eq!(bucket.latest("job-1", 2).expect("counts").name, ManifestName { attempt: 2, sequence: 1100 });
    assert_eq!(bucket.latest("job-1", 1).expect("counts").name, ManifestName { attempt: 1, sequence: 1050 });
    // Another job's at the same address: none of this one's.
    assert!(refused(bucket.latest("job-2", 2)).is_nothing_yet());
}

#[test]
fn places_that_are_not_looked_at_are_refused() {
    let bucket = TestBucket::new("places");
    let endpoint = bucket.localstack.as_ref().expect("it runs").endpoint();
    let mut only = settings(endpoint);
    only.s3.as_mut().expect("given").buckets = BTreeSet::from(["places", "not-there", "below/ml"].map(String::from));
    let checkpoints = CheckpointVerifier::new(only.clone()).expect("they can be");
    let latest =
        |uri: &str| bucket.runtime.block_on(checkpoints.latest(&VerifyRequest { uri, job: "job-1", attempt: 1 }));
    assert!(refused(latest("s3://places/a/")).is_nothing_yet());
    assert!(refused(latest("s3://others/a/")).to_string().contains("checkpoints.s3.buckets"));
    assert!(refused(latest("s3://below/a/")).to_string().contains("checkpoints.s3.buckets"));
    assert!(refused(latest("s3://below/ml-2/a/")).to_string().contains("checkpoints.s3.buckets"));
    assert!(matches!(refused(latest("s3://below/ml/a/")), CheckpointRefusal::NoBucket { bucket } if bucket == "below"));
    assert!(refused(latest("gs://places/a/")).to_string().contains("Google Cloud Storage is not supported"));
    assert!(refused(latest("file:///tmp/a/")).to_string().contains("`checkpoints.files` is not configured"));
    assert!(
        matches!(refused(latest("s3://not-there/a/")), CheckpointRefusal::NoBucket { bucket } if bucket == "not-there")
    );

    let diagnostics = probe(&only, bucket.runtime.handle());
    let of = |end: &str| diagnostics.iter().find(|finding| finding.subject.ends_with(end)).expect(end);
    assert_eq!((of("credentials").severity, of("bucket places").severity), (Severity::Ok, Severity::Ok));
    assert!(
        of("bucket not-there").severity == Severity::Error && of("bucket not-there").message.contains("create it"),
        "{diagnostics:?}"
    );
    assert!(of("bucket below/ml/").message.contains("create it"), "{diagnostics:?}");
    let any = probe(&settings(endpoint), bucket.runtime.handle());
    assert!(
        any.iter().any(|f| f.severity == Severity::Warning && f.message.contains("checkpoints.s3.buckets")),
        "{any:?}"
    );
}

#[test]
fn a_store_that_is_gone_is_unknown_and_known_again() {
    let mut own = LocalStack::start(LocalStackOptions::default()).expect("a LocalStack");
    let fill = |bucket: &TestBucket| {
        bucket.put("model.bin", MODEL);
        bucket.manifest(manifest("job-1", 1, 1, 60.0, &[entry("model.bin", MODEL)]));
    };
    let bucket = TestBucket::at(own.endpoint(), "gone");
    fill(&bucket);
    assert!(bucket.latest("job-1", 1).is_ok());
    own.kill().expect("killed");
    for looked in [bucket.latest("job-1", 1), bucket.verify("job-1", 1, &key(1, 1))] {
        let why = unknown(looked);
        assert!(
            why.starts_with("s3://gone/runs/a/manifests/") && why.contains("check the endpoint and the network"),
            "{why}"
        );
    }
    own.restart().expect("it comes back");
    // S3 is loaded at its first request, which may take longer than a call of ours.
    bucket.runtime.block_on(bucket.client.list_buckets().send()).expect("an answer");
    // Empty: the bucket went with it, and that is known.
    assert!(matches!(refused(bucket.latest("job-1", 1)), CheckpointRefusal::NoBucket { .. }));
    bucket.runtime.block_on(bucket.client.create_bucket().bucket("gone").send()).expect("a bucket");
    fill(&bucket);
    assert!(bucket.latest("job-1", 1).is_ok());
}

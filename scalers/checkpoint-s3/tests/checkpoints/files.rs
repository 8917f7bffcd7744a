//! In a folder that the controller and the nodes share.

use crate::support::{entry, key, manifest, refused, runtime, unknown};
use forebay_checkpoint_s3::{
    CheckError, CheckpointRefusal, CheckpointSettings, CheckpointVerifier, VerifiedCheckpoint, VerifyRequest, probe,
};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

const MODEL: &[u8] = b"weights";

struct SharedFolder {
    folder: TempDir,
    checkpoints: CheckpointVerifier,
}

impl SharedFolder {
    fn new(read_at_most: u64) -> SharedFolder {
        let settings = CheckpointSettings { files: true, read_at_most, ..CheckpointSettings::default() };
        let folder = SharedFolder {
            folder: tempfile::tempdir().expect("a folder"),
            checkpoints: CheckpointVerifier::new(settings).expect("they can be"),
        };
        folder.put("other/secret.bin", MODEL);
        folder
    }

    /// The job's own folder.
    fn own(&self) -> std::path::PathBuf {
        self.folder.path().join("job")
    }

    fn put(&self, path: &str, bytes: &[u8]) {
        let path = self.folder.path().join(path);
        fs::create_dir_all(path.parent().expect("it has one")).expect("made");
        fs::write(path, bytes).expect("written");
    }

    fn manifest(&self, sequence: u64, files: &[Value]) -> Result<VerifiedCheckpoint, CheckError> {
        let (key, text) = manifest("job-1", 1, sequence, 60.0, files);
        self.put(&format!("job/{key}"), text.to_string().as_bytes());
        self.verify(&key)
    }

    fn verify(&self, key: &str) -> Result<VerifiedCheckpoint, CheckError> {
        let uri = format!("file://{}/", self.own().display());
        runtime().block_on(self.checkpoints.verify(&VerifyRequest { uri: &uri, job: "job-1", attempt: 1 }, key))
    }

    fn latest(&self, attempt: u32) -> Result<VerifiedCheckpoint, CheckError> {
        let uri = format!("file://{}/", self.own().display());
        runtime().block_on(self.checkpoints.latest(&VerifyRequest { uri: &uri, job: "job-1", attempt }))
    }
}

#[test]
fn a_checkpoint_in_a_folder_counts_and_what_is_not_as_it_says_does_not() {
    let folder = SharedFolder::new(1000);
    assert!(
        unknown(folder.latest(1)).contains("the folder does not exist; mount"),
        "one that is not mounted says nothing"
    );
    folder.put("job/step/model.bin", MODEL);
    assert!(refused(folder.latest(1)).is_nothing_yet());
    let found = folder.manifest(1, &[entry("step/model.bin", MODEL)]).expect("it counts");
    assert_eq!((found.progress, found.bytes), (Duration::from_secs(60), 7));
    assert!(matches!(refused(folder.manifest(2, &[entry("step/no.bin", MODEL)])), CheckpointRefusal::Missing { .. }));
    assert!(matches!(
        refused(folder.manifest(3, &[entry("step/model.bin", b"WEIGHTS")])),
        CheckpointRefusal::Checksum { .. }
    ));
    assert!(matches!(
        refused(folder.manifest(4, &[entry("step/model.bin", b"weight")])),
        CheckpointRefusal::Size { .. }
    ));
    assert!(matches!(
        refused(folder.manifest(5, &[entry("../other/secret.bin", MODEL)])),
        CheckpointRefusal::Key { .. }
    ));
    assert!(matches!(refused(folder.verify(&key(1, 6))), CheckpointRefusal::NotThere { .. }));
    // A name that is being written is none yet.
    folder.put(&format!("job/{}.tmp", key(1, 7)), b"{");
    let latest = folder.latest(4).expect("the first");
    assert_eq!((latest.name.sequence, latest.skipped.len()), (1, 4));
}

#[test]
fn links_pipes_and_folders_are_no_files_of_a_checkpoint() {
    use std::os::unix::fs::symlink;
    let folder = SharedFolder::new(1000);
    folder.put("job/step/model.bin", MODEL);
    symlink(folder.folder.path().join("other/secret.bin"), folder.own().join("link.bin")).expect("linked");
    symlink(folder.folder.path().join("other"), folder.own().join("elsewhere")).expect("linked");
    symlink(Path::new("step/model.bin"), folder.own().join("near.bin")).expect("linked");
    let made = std::process::Command::new("mkfifo").arg(folder.own().join("pipe.bin")).status().expect("mkfifo");
    assert!(made.success());
    for (sequence, (name, why)) in (1..).zip([
        ("link.bin", "leads out"),
        ("elsewhere/secret.bin", "leads out"),
        ("pipe.bin", "not a file"),
        ("step", "not a file"),
    ]) {
        let refusal = refused(folder.manifest(sequence, &[entry(name, MODEL)]));
        assert!(
            matches!(&refusal, CheckpointRefusal::Missing { why: said, .. } if said.contains(why)),
            "{name}: {refusal}"
        );
    }
    assert!(folder.manifest(9, &[entry("near.bin", MODEL)]).is_ok(), "a link within the address is one of its files");
}

#[test]
fn what_is_large_is_not_read() {
    let folder = SharedFolder::new(6);
    folder.put("job/model.bin", MODEL);
    let refusal = refused(folder.manifest(1, &[entry("model.bin", MODEL)]));
    assert!(matches!(&refusal, CheckpointRefusal::Unverifiable { why, .. } if why.contains("readAtMost")), "{refusal}");
}

#[test]
fn a_doctor_says_that_folders_are_looked_at() {
    let settings = CheckpointSettings { files: true, ..CheckpointSettings::default() };
    let diagnostics = probe(&settings, runtime().handle());
    assert!(diagnostics.len() == 1 && diagnostics[0].message.contains("where the controller runs"), "{diagnostics:?}");
}

//! examples/checkpoint/train.py, stopped and killed in its work: what it wrote counts, and it goes on from there.

use crate::support::{TestBucket, runtime};
use forebay_checkpoint_s3::{CheckpointSettings, CheckpointVerifier, VerifiedCheckpoint, VerifyRequest};
use forebay_parts::tools;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Lines};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

/// Steps of a whole run: 20 ms of work each, saved after every fifth.
const STEPS: u32 = 60;
const ARGS: [&str; 6] = ["--work-s", "1.2", "--step-s", "0.02", "--every-s", "0.1"];

struct Train {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Train {
    fn start(python: &PathBuf, uri: &str, attempt: u32, variables: &[(&str, &str)]) -> Train {
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/checkpoint/train.py");
        let mut command = Command::new(python);
        command.arg(script).args(ARGS).env_remove("FOREBAY_URL").envs(variables.iter().copied());
        command
            .env("FOREBAY_CHECKPOINT_URI", uri)
            .env("FOREBAY_JOB", "job-7")
            .env("FOREBAY_ATTEMPT", attempt.to_string());
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        Train { child, lines }
    }

    /// Its next line; it begins so.
    fn says(&mut self, beginning: &str) -> String {
        let line = self.lines.next().expect("it says more").expect("a line");
        assert!(line.starts_with(beginning), "{line}");
        line
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status().expect("kill");
        assert!(sent.success());
    }

    /// What it says until it ends, and its exit code.
    fn ends(mut self) -> (Vec<String>, Option<i32>) {
        let lines = self.lines.map(|line| line.expect("a line")).collect();
        (lines, self.child.wait().expect("it ends").code())
    }
}

/// The number after `step` in a line.
fn step(line: &str) -> u32 {
    let words: Vec<&str> = line.split(' ').collect();
    let at = words.iter().position(|word| *word == "step").expect("a step");
    words[at + 1].parse().expect("a number")
}

/// The model after all steps, if none was lost and none done twice.
fn model() -> String {
    (1..=STEPS).fold(String::new(), |model, step| {
        Sha256::digest(format!("{model}{step}")).iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    })
}

/// Stopped, killed, and let go to its end.
fn interrupted(python: &PathBuf, uri: &str, variables: &[(&str, &str)], latest: impl Fn(u32) -> VerifiedCheckpoint) {
    let steps = |found: &VerifiedCheckpoint| u32::try_from(found.progress.as_millis() / 20).expect("few");

    let mut first = Train::start(python, uri, 1, variables);
    assert_eq!(step(&first.says("begins at step")), 0);
    first.says("saved manifests/0000000001-0000000001.json");
    first.signal("TERM");
    let (said, code) = first.ends();
    assert_eq!((code, said.last().map(String::as_str)), (Some(143), Some("stopped")), "{said:?}");
    let stopped = said.iter().rev().find(|line| line.starts_with("saved")).map_or(5, |line| step(line));
    let found = latest(1);
    assert_eq!(steps(&found), stopped, "nothing is lost at a stop");

    let mut second = Train::start(python, uri, 2, variables);
    assert_eq!(step(&second.says("begins at step")), stopped);
    let saved = step(&second.says("saved manifests/0000000002-"));
    second.signal("KILL");
    let (said, code) = second.ends();
    assert_eq!(code, None, "{said:?}");
    let saved = said.iter().rev().find(|line| line.starts_with("saved")).map_or(saved, |line| step(line));
    let found = latest(2);
    assert!(
        steps(&found) >= saved && found.skipped.is_empty(),
        "at most the work since the last manifest is lost: {found:?}"
    );

    let mut third = Train::start(python, uri, 3, variables);
    assert_eq!(step(&third.says("begins at step")), steps(&found));
    let (said, code) = third.ends();
    assert_eq!(code, Some(0));
    assert_eq!(said.last(), Some(&format!("done {STEPS} {}", model())), "the same as without interruptions");
    assert_eq!(steps(&latest(3)), STEPS);
}

#[test]
fn a_workload_goes_on_from_a_folder_after_a_stop_and_a_kill() {
    let folder = tempfile::tempdir().expect("a folder");
    let uri = format!("file://{}/job/", folder.path().display());
    let checkpoints = CheckpointVerifier::new(CheckpointSettings { files: true, ..CheckpointSettings::default() })
        .expect("they can be");
    let latest = |attempt| {
        let looked = runtime().block_on(checkpoints.latest(&VerifyRequest { uri: &uri, job: "job-7", attempt }));
        looked.expect("it counts")
    };
    interrupted(&tools::python().expect("a Python"), &uri, &[], latest);
}

#[test]
fn a_workload_goes_on_from_s3_after_a_stop_and_a_kill() {
    let bucket = TestBucket::new("train");
    let localstack = bucket.localstack.as_ref().expect("it runs");
    let variables = [
        ("AWS_ENDPOINT_URL", localstack.endpoint()),
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
        ("AWS_REGION", "us-east-1"),
        ("NO_PROXY", "127.0.0.1"),
    ];
    let latest = |attempt| bucket.latest("job-7", attempt).expect("it counts");
    interrupted(&localstack.python().to_owned(), &bucket.uri(), &variables, latest);
}

//! Checkpoints through the whole binary: a report counts as the store has it, a refusal says why, a store that is away is said to be so,
//! and a real workload goes on from where it was killed.
//!
//! Never: a report that is believed.

use forebay_integration::{Server, root, until};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// `printf weights | sha256sum`
const SHA256: &str = "9a129038d9a00aed0cf6a7ea059ca50a813449061ab87848cf1a13eafdf33b2c";

const SOON: Duration = Duration::from_secs(60);

/// A controller whose simulated cluster runs one job, and the folder where that job saves.
struct Bench {
    folder: TempDir,
    server: Server,
    /// Such as `job-1`.
    job: String,
    token: String,
}

impl Bench {
    /// `config`: the rest of its configuration.
    fn start(config: &str) -> Bench {
        let folder = tempfile::tempdir().expect("a folder");
        let uri = format!("file://{}/", folder.path().join("saved").display());
        // Its simulated run never ends by itself, and the simulated cluster saves nothing of it.
        let job = json!({"type": "job.submitted", "subject": "train", "time": "2026-11-02T00:00:00Z", "data": {"queue": "vision/batch",
            "spot": false, "gang": {"each": {"gpus": 1}}, "checkpoint": {"uri": uri, "every": "100d"}, "simulation": {"durationS": 1e8}}});
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("writes");
        write("jobs.jsonl", &format!("{job}\n"));
        write("forebay.yaml", &format!("apiVersion: forebay/v1\nkind: Config\ndata: d\n{config}"));
        std::fs::create_dir(folder.path().join("saved")).expect("a folder");
        let server =
            Server::start(folder.path(), &["--config", "forebay.yaml", "--replay", "jobs.jsonl", "--speed", "600"]);
        until("it runs", SOON, || {
            let (_, job) = server.get("/v1/jobs/train");
            if job["phase"] == "running" { Ok(()) } else { Err(job.to_string()) }
        });
        let job = server.get("/v1/jobs/train").1["job"].as_str().expect("its number").to_owned();
        let token = token(folder.path(), &job);
        Bench { folder, server, job, token }
    }

    fn saved(&self) -> PathBuf {
        self.folder.path().join("saved")
    }

    /// Writes a checkpoint of seven bytes; its manifest's key.
    fn save(&self, sequence: u64, progress_s: f64, content: &str) -> String {
        let key = format!("manifests/0000000001-{sequence:010}.json");
        std::fs::create_dir_all(self.saved().join("manifests")).expect("a folder");
        std::fs::write(self.saved().join(format!("{sequence}.bin")), content).expect("writes");
        let files = [json!({"key": format!("{sequence}.bin"), "size": 7, "sha256": SHA256})];
        let manifest = json!({"version": 1, "job": self.job, "attempt": 1, "sequence": sequence, "progressS": progress_s, "files": files});
        std::fs::write(self.saved().join(&key), manifest.to_string()).expect("writes");
        key
    }

    /// Reports ten days of work.
    fn report(&self, manifest: Option<&str>) -> (u16, Value) {
        let mut data = json!({"job": self.job, "attempt": 1, "token": self.token, "progress": "10d"});
        if let Some(manifest) = manifest {
            data["manifest"] = manifest.into();
        }
        self.server.post(&json!({"type": "run.checkpointed", "data": data}))
    }

    fn progress_s(&self) -> f64 {
        let (_, state) = self.server.get("/v1/state");
        let jobs = state["jobs"].as_array().expect("jobs");
        jobs.iter()
            .find(|job| job["job"] == self.job.as_str())
            .and_then(|job| job["progress_s"].as_f64())
            .unwrap_or(0.0)
    }
}

/// The token of a job's first run, as the controller makes it from its key.
fn token(folder: &Path, job: &str) -> String {
    let text = std::fs::read_to_string(folder.join("d/attempt.key")).expect("a key");
    let digits = text.trim().as_bytes();
    let mut key = [0; 32];
    for (byte, pair) in key.iter_mut().zip(digits.chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).expect("digits"), 16).expect("a byte");
    }
    blake3::keyed_hash(&key, format!("{job}/attempt-1").as_bytes()).to_hex().chars().take(32).collect()
}

#[test]
fn a_report_by_http_counts_as_the_store_has_it() {
    let bench = Bench::start("checkpoints: {files: true}\n");
    let code = |answer: &Value| answer["rejected"][0]["code"].as_str().unwrap_or_default().to_owned();
    let (status, answer) = bench.report(None);
    assert_eq!((status, code(&answer).as_str()), (400, "Unverified"), "nothing is there: {answer}");
    assert_eq!(answer["rejected"][0]["path"], "data.manifest");

    let good = bench.save(1, 7200.0, "weights");
    let (status, answer) = bench.report(Some(&good));
    assert_eq!((status, &answer["accepted"][0]["new"]), (202, &true.into()), "{answer}");
    assert!((bench.progress_s() - 7200.0).abs() < 0.001, "the manifest's, not the report's: {}", bench.progress_s());
    let bad = bench.save(2, 9000.0, "WEIGHTS");
    let (status, answer) = bench.report(Some(&bad));
    assert_eq!((status, code(&answer).as_str()), (400, "Unverified"), "{answer}");
    assert!(answer["error"]["message"].as_str().is_some_and(|m| m.contains("2.bin: its SHA-256 is")), "{answer}");
    let (status, answer) = bench.report(None);
    assert_eq!(
        (status, &answer["accepted"][0]["new"]),
        (202, &false.into()),
        "the latest that counts is known: {answer}"
    );

    // The file system is away: nothing counts, nothing is lost.
    let away = bench.folder.path().join("away");
    std::fs::rename(bench.saved(), &away).expect("renamed");
    let (status, answer) = bench.report(Some(&good));
    assert_eq!((status, &answer["error"]["code"]), (503, &"CheckpointUnknown".into()), "{answer}");
    assert!((bench.progress_s() - 7200.0).abs() < 0.001);
    std::fs::rename(&away, bench.saved()).expect("renamed");
    let better = bench.save(3, 10_000.0, "weights");
    assert_eq!(bench.report(Some(&better)).0, 202);
    assert!((bench.progress_s() - 10_000.0).abs() < 0.001);
}

#[test]
fn without_a_configuration_a_report_is_believed_and_that_is_said() {
    let bench = Bench::start("");
    let (status, answer) = bench.report(None);
    assert_eq!(status, 202, "{answer}");
    assert_eq!(bench.report(None).0, 202);
    assert!((bench.progress_s() - 864_000.0).abs() < 0.001, "{}", bench.progress_s());
    let said = "`checkpoints:` is not configured";
    until("it is said", SOON, || {
        let log = bench.server.log();
        if log.contains(said) { Ok(()) } else { Err(log) }
    });
    let log = bench.server.log();
    assert_eq!(log.matches(said).count(), 1, "{log}");
}

#[test]
fn a_workload_that_was_killed_goes_on_and_completes_its_job() {
    let bench = Bench::start("checkpoints: {files: true}\n");
    let start = || {
        let mut command = Command::new("python3");
        command.arg(root().join("examples/checkpoint/train.py")).args([
            "--work-s",
            "1.2",
            "--step-s",
            "0.02",
            "--every-s",
            "0.2",
        ]);
        command.env("FOREBAY_URL", &bench.server.url).env("FOREBAY_JOB", &bench.job).env("FOREBAY_ATTEMPT", "1");
        command.env("FOREBAY_TOKEN", &bench.token).env_remove("FOREBAY_API_TOKEN_FILE").env("NO_PROXY", "127.0.0.1");
        command.env("FOREBAY_CHECKPOINT_URI", format!("file://{}/", bench.saved().display()));
        command.stdout(Stdio::piped()).spawn().expect("it starts")
    };
    let mut first = start();
    let mut lines = BufReader::new(first.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.starts_with("saved ")), "it saves");
    // Between its report and its end: what it reported counts.
    until("the report counts", SOON, || if bench.progress_s() > 0.0 { Ok(()) } else { Err("no progress".to_owned()) });
    first.kill().expect("killed");
    first.wait().expect("ended");
    let counted = bench.progress_s();

    let second = start().wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&second.stdout).into_owned();
    assert!(second.status.success(), "{said}");
    let begun =
        said.lines().next().and_then(|line| line.split("after ").nth(1)?.split(' ').next()?.parse::<f64>().ok());
    assert!(begun.is_some_and(|begun| begun >= counted), "it goes on from what counts, {counted} s: {said}");
    until("the job is over", SOON, || {
        let (_, job) = bench.server.get("/v1/jobs/train");
        if job["phase"] == "completed" { Ok(()) } else { Err(job.to_string()) }
    });
}

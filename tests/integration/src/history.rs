//! What a history costs: the controller's folder while a year of jobs goes through it, and figures of a process and a folder.
//!
//! Never: a figure from the controller itself, but for the simulated time.

use crate::Server;
use std::path::Path;
use std::time::{Duration, Instant};

/// Days of the simulated year.
pub const DAYS: u64 = 365;

const POLICY: &str = "apiVersion: forebay/v1
kind: Policy
metadata: {name: history}
limits: {nodes: 200, spend: 10000 USD/h}
tiers:
  normal: {priority: 500, buys: on-demand}
queues:
  vision: {tier: normal}
  search: {tier: normal}
pools:
  default: {instanceTypes: [g5.48xlarge]}
";

/// The folder's size at a moment of the simulated time.
#[derive(Clone, Copy, Debug)]
pub struct FolderSize {
    /// Days since the first job.
    pub day: f64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Jobs that are over.
    pub finished: u64,
}

/// Writes the policy of these measurements.
///
/// # Panics
/// When it cannot be written.
pub fn write_policy(folder: &Path) {
    std::fs::write(folder.join("policy.yaml"), POLICY).expect("a policy");
}

/// Replays a year of so many jobs of 1 to 11 minutes, evenly spread, as fast as it goes, with the retention that a controller has by
/// default. The folder's sizes, about every simulated day; the last one when all jobs are over.
///
/// # Panics
/// When the controller ends, or does not get on for ten minutes.
#[must_use]
pub fn year(folder: &Path, jobs: u64) -> Vec<FolderSize> {
    use std::fmt::Write as _;
    write_policy(folder);
    let mut trace = String::from("job_id,submit_s,duration_s,gpus,queue\n");
    for n in 0..jobs {
        let (submit, queue) = (n * DAYS * 86_400 / jobs, ["vision", "search"][(n % 2) as usize]);
        writeln!(trace, "j{n},{submit},{},1,{queue}", 60 + n % 600).expect("text");
    }
    std::fs::write(folder.join("year.csv"), trace).expect("a trace");
    let args = ["--replay", "year.csv", "--trace-format", "normalized", "--policy", "policy.yaml", "--speed", "max"];
    let server = Server::start(folder, &[&args[..], &["--data", "data"]].concat());
    let mut sizes: Vec<FolderSize> = Vec::new();
    let (mut begins, mut advanced) = (None, Instant::now());
    loop {
        let (_, seen) = server.get("/v1/summary");
        let number = |key: &str| seen[key].as_f64().unwrap_or(0.0);
        let finished = (number("completed") + number("failed") + number("rejected")) as u64;
        let now = number("now_s");
        let day = (now - *begins.get_or_insert(now)) / 86_400.0;
        let size = FolderSize { day, bytes: bytes_of(&folder.join("data")), finished };
        if sizes.last().is_none_or(|last| day - last.day >= 1.0 || finished >= jobs) {
            advanced = Instant::now();
            sizes.push(size);
        }
        if finished >= jobs {
            return sizes;
        }
        assert!(advanced.elapsed() < Duration::from_secs(600), "{finished} of {jobs} jobs: {}", server.log());
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// The sizes as bars, a line for each twelfth of a year.
#[must_use]
pub fn plot(sizes: &[FolderSize]) -> String {
    let most = sizes.iter().map(|size| size.bytes).max().unwrap_or(1);
    let mut text = String::from("   day    folder\n");
    for month in 1..=12_u64 {
        let until = (month * DAYS) as f64 / 12.0;
        let Some(size) = sizes.iter().rfind(|size| size.day <= until) else { continue };
        let width = usize::try_from(size.bytes * 50 / most).unwrap_or(0);
        text += &format!("{:>6.0} {:>7.1} MB {}\n", size.day, size.bytes as f64 / 1e6, "█".repeat(width));
    }
    text
}

/// Bytes of all files below a folder.
#[must_use]
pub fn bytes_of(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    // A file may go while it is looked at.
    entries
        .filter_map(|e| Some((e.path(), e.metadata().ok()?)))
        .fold(0, |sum, (path, meta)| sum + if meta.is_dir() { bytes_of(&path) } else { meta.len() })
}

/// Resident memory of a process in MiB. NaN where the system does not tell.
#[must_use]
pub fn resident_mib(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok()).map_or(f64::NAN, |kib| kib / 1024.0)
}

//! What a long history costs: a million jobs over HTTP, a restart after them, and a year of jobs.
//!
//! `cargo xtask bench history [-- JOBS]`: by default 1,000,000. Submissions of some 450 bytes come in requests of 2,000 lines and run for a
//! second each in the simulated world. Then the controller is killed, started again and asked for what it still knows.
//! Never: a figure that the controller says of itself, but for counts of jobs.

use forebay_integration::Server;
use forebay_integration::history::{bytes_of, plot, resident_mib, write_policy, year};
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

/// What must be reached.
const MOST_MIB: f64 = 150.0;
const MOST_RECOVERY: Duration = Duration::from_secs(1);
const MOST_BYTES_A_JOB: u64 = 400;

/// Jobs that are open at once.
const OPEN: u64 = 30_000;
const A_REQUEST: u64 = 2_000;

fn main() {
    let jobs = std::env::args().filter_map(|word| word.parse().ok()).next_back().unwrap_or(1_000_000);
    let folder = tempfile::tempdir().expect("a folder");
    let live = over_http(folder.path(), jobs);
    drop(folder);
    let folder = tempfile::tempdir().expect("a folder");
    let sizes = year(folder.path(), jobs);
    let bytes = bytes_of(&folder.path().join("data")) / jobs;
    println!("a year of {jobs} jobs, with the retention that is the default:\n{}", plot(&sizes));
    println!("{bytes} bytes a finished job, at most {MOST_BYTES_A_JOB} asked for");
    let reached = live && bytes <= MOST_BYTES_A_JOB;
    println!("{}", if reached { "reached" } else { "NOT REACHED" });
    std::process::exit(i32::from(!reached));
}

fn line(n: u64) -> String {
    let queue = ["vision", "search"][(n % 2) as usize];
    format!(
        r#"{{"specversion":"1.0","type":"job.submitted","dataschema":"urn:forebay:job.submitted:1","source":"//airflow/prod","id":"{n:08x}","time":"2026-11-21T09:00:00Z","subject":"train-{n}","data":{{"queue":"{queue}","labels":{{"team":"{queue}","costCenter":"4711"}},"run":{{"template":"train","image":"reg/r@sha256:ab","args":["--epochs","90"]}},"gang":{{"workers":1,"each":{{"gpus":0,"cpu":0.1}}}},"simulation":{{"durationS":1}}}}}}
"#
    )
}

/// Sends lines until they are taken. What the controller answered.
fn send(server: &Server, body: &str) -> Value {
    loop {
        let (status, text) =
            server.send("POST", "/v1/events", &[("content-type", "application/x-ndjson")], body.as_bytes());
        match status {
            202 => return serde_json::from_str(&text).expect("JSON"),
            429 => std::thread::park_timeout(Duration::from_millis(200)),
            _ => panic!("{status}: {text}"),
        }
    }
}

fn over(server: &Server) -> u64 {
    let (_, seen) = server.get("/v1/summary");
    ["completed", "failed", "rejected"].iter().map(|key| seen[*key].as_u64().unwrap_or(0)).sum()
}

fn over_http(folder: &Path, jobs: u64) -> bool {
    write_policy(folder);
    let args = ["--policy", "policy.yaml", "--data", "data"];
    let server = Server::start(folder, &args);
    let (begun, mut sent, mut finished) = (Instant::now(), 0, 0);
    while finished < jobs {
        if sent < jobs && sent < finished + OPEN {
            let until = jobs.min(sent + A_REQUEST);
            let body: String = (sent..until).map(line).collect();
            let answer = send(&server, &body);
            assert!(answer["rejected"].as_array().is_none_or(Vec::is_empty), "{answer}");
            sent = until;
        } else {
            std::thread::park_timeout(Duration::from_millis(100));
        }
        finished = over(&server);
    }
    let (seconds, before) = (begun.elapsed().as_secs_f64(), resident_mib(server.pid()));
    println!(
        "{jobs} jobs over HTTP, submitted and finished in {seconds:.0} s; the controller had {before:.0} MiB then"
    );
    server.kill();
    let bytes = bytes_of(&folder.join("data"));
    println!("its folder, before anything is beyond retention: {:.0} MB", bytes as f64 / 1e6);

    let begun = Instant::now();
    let server = Server::start(folder, &args);
    let recovery = begun.elapsed();
    let resident = resident_mib(server.pid());
    println!("killed and started again: it listens after {:.2} s with {resident:.0} MiB", recovery.as_secs_f64());
    let first = send(&server, &line(0));
    let known = first["accepted"][0]["new"] == false && first["accepted"][0]["job"] == "job-0";
    println!("the first job, submitted again: {}", first["accepted"][0]);
    let why = server.ask(folder, &["why", "train-0"]);
    let all = server.ask(folder, &["jobs", "--all", "--json"]);
    println!("`forebay why train-0`: {}", why.out.trim());
    let listed = all.json()["jobs"].as_array().map_or(0, Vec::len);
    println!("`forebay jobs --all` lists {listed} on its first page");
    known && why.code == 0 && listed > 0 && resident <= MOST_MIB && recovery <= MOST_RECOVERY
}

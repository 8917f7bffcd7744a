//! The workload of examples/checkpoint as the pods' real process: EC2 takes its node back, it gets SIGTERM, saves, and the next attempt goes on from
//! there on another node.

use super::stand::{LIMIT, Stand, StandOptions};
use forebay_integration::{Server, root, until};
use forebay_kernel::units::{Span, Timestamp};
use serde_json::{Value, json};
use std::time::SystemTime;

const POLICY: &str = "
apiVersion: forebay/v1
kind: Policy
metadata: {name: checkpoint}
limits: {nodes: 4}
queues:
  research: {pools: [a10g], submitters: [local]}
pools:
  a10g: {instanceTypes: [g5.xlarge], drain: {after: 1s}}
";

/// Steps of a quarter of a second, a checkpoint each second.
const STEPS: u32 = 80;
const WORK: [&str; 6] = ["--work-s", "20", "--every-s", "1", "--step-s", "0.25"];

fn text(stand: &Stand, server: &Server, attempt: &str) -> Result<String, String> {
    let said = server.ask(stand.folder.path(), &["logs", "train", "--attempt", attempt, "--json"]);
    if said.code != 0 {
        return Err(format!("{said:?}; {}", stand.trouble()));
    }
    Ok(said.json()["workers"][0]["text"].as_str().unwrap_or_default().to_owned())
}

/// The number behind `at step`, in the last line that begins with `line`.
fn step(log: &str, line: &str) -> Option<u32> {
    let last = log.lines().rfind(|one| one.starts_with(line))?;
    last.split_once("at step ")?.1.split(' ').next()?.parse().ok()
}

/// The instance on which the job runs.
fn instance(server: &Server) -> Result<String, String> {
    let (_, nodes) = server.get("/v1/nodes");
    let with_job = |node: &&Value| node["jobs"].as_array().is_some_and(|jobs| !jobs.is_empty());
    let found = nodes["nodes"]
        .as_array()
        .and_then(|nodes| nodes.iter().find(with_job).and_then(|node| node["instance"].as_str()));
    found.map(str::to_owned).ok_or_else(|| nodes.to_string())
}

#[test]
fn a_reclaimed_run_saves_at_sigterm_and_the_next_attempt_goes_on_from_there() {
    let train = root().join("examples/checkpoint/train.py").canonicalize().expect("the example");
    let template = format!(
        "name: train\nqueues: [research]\nimages: [reg/]\npod: {{spec: {{containers: [{{name: worker, command: [python3, '{}']}}]}}}}\n",
        train.display()
    );
    // Nobody tells the pods where to report: what they saved is found in the store when they end.
    let config = "checkpoints: {files: true}\n";
    let stand = Stand::of_processes(&StandOptions { policy: POLICY, config }, &template);
    let server = stand.start();
    let event = json!({"type": "job.submitted", "source": "//test", "id": "train", "subject": "train", "data": {"queue": "research",
        "run": {"template": "train", "image": "reg/r:1", "args": WORK}, "gang": {"each": {"gpus": 1}},
        "checkpoint": {"uri": format!("file://{}/ckpt/", stand.folder.path().display()), "every": "1s", "grace": "20s"}}});
    assert_eq!(server.post(&event).0, 202);
    until("it has saved", LIMIT, || {
        let log = text(&stand, &server, "1")?;
        if step(&log, "saved ").is_some() { Ok(()) } else { Err(log) }
    });
    let instance = instance(&server).expect("its instance");
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_millis() as u64;
    assert!(stand.ec2.region().reclaim(Timestamp(now), &instance, Some(Span::secs(120))));

    let waited = server.ask(stand.folder.path(), &["wait", "train", "--timeout", "300s"]);
    assert_eq!(waited.code, 0, "{waited:?}; {}; {}", stand.trouble(), server.log());
    let first = text(&stand, &server, "1").expect("the log of the first attempt");
    assert!(first.ends_with("stopped\n"), "SIGTERM came, and it ended by itself: {first}");
    let saved = step(&first, "saved ").expect("it saved");
    let second = text(&stand, &server, "2").expect("the log of the second attempt");
    assert_eq!(step(&second, "begins "), Some(saved), "nothing is done twice: {first}\n{second}");
    assert!(saved > 0 && saved < STEPS && second.contains(&format!("done {STEPS} ")), "{second}");
    let events = server.ask(stand.folder.path(), &["events", "--json"]);
    let kinds = events.out.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON")["type"].clone());
    let kinds: Vec<Value> = kinds.collect();
    let nth = |kind: &str| kinds.iter().position(|one| one == kind);
    let (known, waits) = (nth("status.checkpointed"), nth("status.requeued"));
    assert!(known.is_some() && known < waits, "what it saved counts before it waits again: {kinds:?}");
}

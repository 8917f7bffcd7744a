//! `forebay logs`: what workers printed, while their pods are there, after those are gone, and after a restart of the controller.

use super::stand::{LIMIT, NAMESPACE, Stand, StandOptions};
use forebay_integration::{Server, until};
use serde_json::{Value, json};

const POLICY: &str = "
apiVersion: forebay/v1
kind: Policy
metadata: {name: logs}
limits: {nodes: 3, spend: 1000 USD/h}
queues:
  research: {pools: [a100], submitters: [local]}
pools:
  a100: {instanceTypes: [p4d.24xlarge], drain: {after: 1s}}
";

/// The worker is not the first container: its log is the one that is shown.
const TEMPLATE: &str = "
name: train
queues: [research]
images: [reg/]
container: worker
pod:
  spec:
    containers:
      - {name: side, image: reg/side:1, command: [sh, -c], args: [echo of the side]}
      - {name: worker, command: [sh, -c]}
";

/// `$` of an event is never expanded by Kubernetes: the shell gets it.
const SCRIPT: &str = "for n in 1 2 3; do echo \"line $n of $FOREBAY_ATTEMPT/$FOREBAY_WORKER\"; done; printf 'a\\033[31mred\\n'; sleep 20";

fn job(subject: &str, workers: u64, script: &str) -> Value {
    json!({"type": "job.submitted", "source": "//test", "id": subject, "subject": subject, "data": {"queue": "research",
        "run": {"template": "train", "image": "reg/r:1", "args": [script]}, "gang": {"workers": workers, "each": {"gpus": 8}}}})
}

/// The logs of a job as JSON, or what was said instead.
fn logs(stand: &Stand, server: &Server, job: &str) -> Result<Value, String> {
    let said = server.ask(stand.folder.path(), &["logs", job, "--json"]);
    if said.code == 0 { Ok(said.json()) } else { Err(format!("{said:?}; {}", stand.trouble())) }
}

/// Whether both workers have printed all, and where that was read.
fn all_printed(logs: &Value, source: &str) -> Result<(), String> {
    let workers = logs["workers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let whole = |(number, log): (usize, &Value)| {
        let text = log["text"].as_str().unwrap_or_default();
        text.contains(&format!("line 3 of 1/{number}\na\u{1b}[31mred\n"))
            && !text.contains("side")
            && log["source"] == source
    };
    if workers.len() == 2 && workers.iter().enumerate().all(whole) { Ok(()) } else { Err(logs.to_string()) }
}

#[test]
fn what_workers_printed_is_shown_before_and_after_their_pods_are_gone() {
    let stand = Stand::of_processes(&StandOptions { policy: POLICY, config: "" }, TEMPLATE);
    let folder = stand.folder.path();
    let server = stand.start();
    let said = server.ask(folder, &["logs", "nobody"]);
    assert!(said.code != 0 && said.err.contains("there is no job `nobody`"), "{said:?}");
    assert_eq!(server.post(&job("chatty", 2, SCRIPT)).0, 202);

    // While it runs.
    until("both have printed", LIMIT, || all_printed(&logs(&stand, &server, "chatty")?, "live"));
    let said = server.ask(folder, &["logs", "chatty", "--tail", "2"]);
    assert_eq!(
        said.out, "w0 | line 3 of 1/0\nw0 | a\u{1b}[31mred\nw1 | line 3 of 1/1\nw1 | a\u{1b}[31mred\n",
        "{said:?}"
    );
    assert!(said.err.contains("there is more before this"), "{said:?}");
    let one = server.ask(folder, &["logs", "chatty", "--worker", "1", "--tail", "2"]);
    assert_eq!(one.out, "line 3 of 1/1\na\u{1b}[31mred\n", "{one:?}");
    for (arguments, part) in [(["--attempt", "7"], "no log of attempt 7"), (["--worker", "9"], "no log of worker 9")] {
        let said = server.ask(folder, &[&["logs", "chatty"], arguments.as_slice()].concat());
        assert!(said.code != 0 && said.err.contains(part), "{said:?}");
    }

    // It is over, and its logs are kept.
    let followed = server.ask(folder, &["logs", "chatty", "--follow"]);
    assert!(followed.code == 0 && followed.out.matches("line 3 of 1/1").count() == 1, "{followed:?}");
    assert_eq!(server.ask(folder, &["wait", "chatty", "--timeout", "300s"]).code, 0);
    let number = logs(&stand, &server, "chatty").expect("logs")["job"].as_str().expect("a job").to_owned();
    let kept = folder.join("data/logs").join(number).join("1");
    until("both are kept", LIMIT, || {
        let both = ["0", "1"].iter().all(|worker| kept.join(worker).exists());
        if both { Ok(()) } else { Err(format!("{}: {}", kept.display(), server.log())) }
    });
    let pods =
        ["delete", "pods", "-n", NAMESPACE, "-l", "forebay.dev/job", "--force", "--grace-period=0", "--timeout=60s"];
    stand.kubectl(&pods);
    until("the archive has them", LIMIT, || all_printed(&logs(&stand, &server, "chatty")?, "archive"));
    server.kill();
    let server = stand.start();
    until("the archive has them after a restart", LIMIT, || all_printed(&logs(&stand, &server, "chatty")?, "archive"));
}

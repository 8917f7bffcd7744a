//! Those who publish: the client commands with tokens, and the examples under examples/publish, against the real binary, and against
//! a server that says "later" first.

use forebay_integration::{Said, Server, forebay, root, run};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread::JoinHandle;
use tempfile::TempDir;

const TOKEN: &str = "0123456789-publisher";

/// A folder with a configuration for one publisher, and its token.
fn prepared() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let config = "apiVersion: forebay/v1\nkind: Config\ndata: d\ntokens:\n  \
                  - {name: publisher, roles: [submit, read], secret: {file: token}}\n";
    std::fs::write(folder.path().join("token"), format!("{TOKEN}\n")).expect("writes");
    std::fs::write(folder.path().join("wrong"), "9876543210-nobody").expect("writes");
    std::fs::write(folder.path().join("forebay.yaml"), config).expect("writes");
    folder
}

/// A line of a file of jobs.
fn job(subject: &str, duration_s: u32) -> String {
    json!({ "subject": subject, "data": { "queue": "vision/batch", "gang": { "each": { "gpus": 1 } },
        "simulation": { "durationS": duration_s } } })
    .to_string()
}

/// A server whose time goes 600 times as fast.
fn fast(folder: &Path) -> Server {
    let first = json!({ "type": "job.submitted", "subject": "first", "time": "2026-11-02T00:00:00Z",
        "data": { "queue": "vision/batch", "gang": { "each": { "gpus": 1 } }, "simulation": { "durationS": 1 } } });
    std::fs::write(folder.join("first.jsonl"), format!("{first}\n")).expect("writes");
    Server::start(folder, &["--config", "forebay.yaml", "--replay", "first.jsonl", "--speed", "600"])
}

/// An example of examples/publish against a server.
fn example(folder: &Path, name: &str, url: &str, args: &[&str]) -> Said {
    let program = if name.ends_with(".py") { "python3" } else { "bash" };
    let mut command = Command::new(program);
    command.arg(root().canonicalize().expect("the root").join("examples/publish").join(name)).args(args);
    command.current_dir(folder).env("FOREBAY_SERVER", url).env("FOREBAY_TOKEN_FILE", folder.join("token"));
    command.env_remove("FOREBAY_TOKEN").output().unwrap_or_else(|e| panic!("{program}: {e}")).into()
}

fn jobs(server: &Server, folder: &Path) -> Vec<Value> {
    let said = server.ask(folder, &["jobs", "--all", "--json", "--token-file", "token"]);
    assert_eq!(said.code, 0, "{said:?}");
    said.json()["jobs"].as_array().cloned().expect("jobs")
}

#[test]
fn commands_take_their_token_from_a_file_or_the_environment() {
    let folder = prepared();
    let server = fast(folder.path());
    std::fs::write(folder.path().join("job.json"), job("train", 60).replacen('{', "{\"type\":\"job.submitted\",", 1))
        .expect("writes");
    for (args, code, part) in [
        (&["submit", "job.json"][..], 2, "--token-file"),
        (&["jobs", "--token-file", "wrong"], 2, "not known here"),
        (&["jobs", "--token-file", "none"], 2, "none: no such file"),
        (&["state", "export", "--token-file", "token"], 2, "`operate`"),
        (&["why", "nobody", "--token-file", "token"], 2, "there is no job `nobody`"),
    ] {
        let said = server.ask(folder.path(), args);
        assert_eq!((said.code, said.err.contains(part)), (code, true), "{args:?}: {said:?}");
        assert!(!said.err.contains(TOKEN), "{said:?}");
    }
    let waited =
        server.ask(folder.path(), &["submit", "job.json", "--wait", "--timeout", "30s", "--token-file", "token"]);
    assert_eq!((waited.code, waited.out.contains("completed")), (0, true), "{waited:?}");
    let mut command = forebay(folder.path(), &["wait", "train"]);
    let by_variable: Said =
        command.env("FOREBAY_SERVER", &server.url).env("FOREBAY_TOKEN", TOKEN).output().expect("runs").into();
    assert_eq!(by_variable.code, 0, "{by_variable:?}");
    let help = run(folder.path(), &["submit", "--help"]);
    assert!(help.out.contains("--token-file") && !help.out.contains("--token "), "{}", help.out);
}

#[test]
fn several_jobs_are_cancelled_and_waiting_for_them_says_so() {
    let folder = prepared();
    let server = fast(folder.path());
    let lines: Vec<String> =
        ["one", "two"].iter().map(|s| job(s, 30_000_000).replacen('{', "{\"type\":\"job.submitted\",", 1)).collect();
    std::fs::write(folder.path().join("jobs.jsonl"), lines.join("\n")).expect("writes");
    let late =
        server.ask(folder.path(), &["submit", "jobs.jsonl", "--wait", "--timeout", "1s", "--token-file", "token"]);
    assert_eq!((late.code, late.err.contains("not over in time")), (5, true), "{late:?}");
    let cancelled = server.ask(folder.path(), &["cancel", "one", "nobody", "two", "--token-file", "token"]);
    assert_eq!(cancelled.code, 2, "{cancelled:?}");
    assert!(
        cancelled.out.contains("(one)") && cancelled.out.contains("(two)") && cancelled.err.contains("nobody"),
        "{cancelled:?}"
    );
    let waited = server
        .ask(folder.path(), &["submit", "jobs.jsonl", "--wait", "--json", "--timeout", "30s", "--token-file", "token"]);
    assert_eq!(waited.code, 4, "{waited:?}");
    let phases: Vec<Value> =
        waited.json()["jobs"].as_array().expect("jobs").iter().map(|j| j["phase"].clone()).collect();
    assert_eq!(phases, ["cancelled", "cancelled"]);
}

#[test]
fn publish_py_sends_a_file_once_however_often_it_is_run() {
    let folder = prepared();
    let server = fast(folder.path());
    let mut lines: Vec<String> = (0..1_200).map(|n| job(&format!("é {n}"), 1)).collect();
    std::fs::write(folder.path().join("jobs.jsonl"), lines.join("\n")).expect("writes");
    let publish = |args: &[&str]| example(folder.path(), "publish.py", &server.url, args);
    let args = ["--file", "jobs.jsonl", "--token-file", "token"];
    let first = publish(&args);
    assert_eq!((first.code, first.out.trim()), (0, "1200 accepted (0 known already), 0 rejected"), "{first:?}");
    lines.insert(
        700,
        "{\"subject\": \"bad\", \"data\": {\"gang\": {\"workers\": 0, \"each\": {\"gpus\": 1}}}}".to_owned(),
    );
    std::fs::write(folder.path().join("jobs.jsonl"), lines.join("\n")).expect("writes");
    let again = publish(&args);
    assert_eq!((again.code, again.out.trim()), (1, "1200 accepted (1200 known already), 1 rejected"), "{again:?}");
    assert!(again.err.contains("line 701 (bad): BadValue: data.gang.workers"), "{again:?}");
    assert_eq!(jobs(&server, folder.path()).len(), 1_201, "with the one that the server began with");
    let one = publish(&["--subject", "alone", "--queue", "vision/batch", "--gpus", "2", "--token-file", "token"]);
    assert_eq!((one.code, one.out.trim()), (0, "1 accepted (0 known already), 0 rejected"), "{one:?}");
    let refused = publish(&["--subject", "alone", "--token-file", "wrong"]);
    assert_eq!((refused.code, refused.err.contains("401")), (3, true), "{refused:?}");
    std::fs::write(folder.path().join("torn.jsonl"), "{\"subject\":").expect("writes");
    let torn = publish(&["--file", "torn.jsonl"]);
    assert_eq!((torn.code, torn.err.contains("torn.jsonl, line 1")), (2, true), "{torn:?}");
}

#[test]
fn publish_sh_waits_for_its_job() {
    let folder = prepared();
    let server = fast(folder.path());
    let publish = |args: &[&str]| example(folder.path(), "publish.sh", &server.url, args);
    let done = publish(&["nightly/eval-7", "vision/batch", "1", "60"]);
    assert_eq!((done.code, done.out.trim()), (0, "nightly/eval-7 completed"), "{done:?}");
    let again = publish(&["nightly/eval-7", "vision/batch", "1", "60"]);
    assert_eq!((again.code, jobs(&server, folder.path()).len()), (0, 2), "{again:?}");
    let refused = publish(&["x", "vision/batch", "0"]);
    assert_eq!((refused.code, refused.err.contains("not taken (400)")), (2, true), "{refused:?}");
    let too_large = publish(&["huge", "vision/batch", "64", "60"]);
    assert!(matches!(too_large.code, 2 | 3), "{too_large:?}");
    assert_eq!(publish(&["a b", "q", "1"]).code, 2);
}

#[test]
fn the_operator_finds_its_job_again_and_cancels_it_when_killed() {
    let folder = prepared();
    let server = fast(folder.path());
    let task = |id: &str, seconds: u32, more: &[&str]| -> Vec<String> {
        let data = serde_json::from_str::<Value>(&job(id, seconds)).expect("JSON")["data"].to_string();
        let args = ["--task-id", id, "--run-id", "2026-11-21", "--token-file", "token", "--data", &data];
        args.iter().chain(more).map(|a| (*a).to_owned()).collect()
    };
    let operate = |args: &[String]| {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        example(folder.path(), "forebay_operator.py", &server.url, &args)
    };
    let first = operate(&task("train", 60, &[]));
    assert_eq!(first.code, 0, "{first:?}");
    assert!(first.err.contains("status.queued") && first.err.contains("status.completed"), "{first:?}");
    let again = operate(&task("train", 60, &["--try-number", "2"]));
    assert_eq!((again.code, &again.out), (0, &first.out), "the same job: {again:?}");
    // Killed while its job runs: the job is cancelled, and the next try runs it again.
    let long = task("long", 30_000_000, &[]);
    let script = root().canonicalize().expect("the root").join("examples/publish/forebay_operator.py");
    let mut child = Command::new("python3")
        .arg(script)
        .args(&long)
        .current_dir(folder.path())
        .env("FOREBAY_SERVER", &server.url)
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("python3");
    let said = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let mut said = said.map_while(Result::ok);
    assert!(said.any(|line| line.contains("status.started")), "it starts");
    let killed = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().expect("kill");
    assert!(killed.success());
    assert_eq!(child.wait().expect("ends").code(), Some(130));
    let over =
        server.ask(folder.path(), &["wait", "example/long/2026-11-21", "--timeout", "30s", "--token-file", "token"]);
    assert_eq!(over.code, 4, "{over:?}");
    let ended = operate(&long);
    assert_eq!((ended.code, ended.err.contains("status.cancelled")), (1, true), "the first try's job again: {ended:?}");
    let mut retry = task("long", 30_000_000, &["--try-number", "2"]);
    retry.extend(["--server".to_owned(), server.url.clone()]);
    let before = jobs(&server, folder.path()).len();
    let mut child = Command::new("python3")
        .arg(root().canonicalize().expect("the root").join("examples/publish/forebay_operator.py"))
        .args(&retry)
        .current_dir(folder.path())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("python3");
    let mut said = BufReader::new(child.stderr.take().expect("a pipe")).lines().map_while(Result::ok);
    assert!(said.any(|line| line.contains("status.started")), "it runs again");
    assert_eq!(jobs(&server, folder.path()).len(), before + 1, "as a new job");
    child.kill().expect("it can be killed");
    child.wait().expect("ends");
}

/// A server that gives these answers one after the other, and hands back what it was sent.
fn scripted(answers: Vec<Option<String>>) -> (String, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let served = std::thread::spawn(move || {
        answers.into_iter().map(|answer| serve(listener.accept().expect("a connection").0, answer)).collect()
    });
    (url, served)
}

/// Reads one request and answers it, or just hangs up.
fn serve(mut stream: TcpStream, answer: Option<String>) -> String {
    let mut reader = BufReader::new(stream.try_clone().expect("a stream"));
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("a line");
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().expect("a length");
        }
        head.push_str(&line);
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("the body");
    if let Some(answer) = answer {
        stream.write_all(answer.as_bytes()).expect("writes");
    }
    format!("{head}{}", String::from_utf8_lossy(&body))
}

fn answer(status: &str, headers: &str, body: &Value) -> Option<String> {
    let body = body.to_string();
    Some(format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n{headers}\r\n{body}",
        body.len()
    ))
}

fn later(status: &str) -> Option<String> {
    let error = json!({ "error": { "code": "Busy", "message": "the mailbox is full", "remedy": "send it again" } });
    answer(status, "retry-after: 1\r\n", &error)
}

fn taken() -> Option<String> {
    let accepted = json!([{ "job": "job-1", "subject": "x", "new": true }]);
    answer("202 Accepted", "", &json!({ "accepted": accepted, "rejected": [] }))
}

#[test]
fn whoever_publishes_comes_back_when_told_to() {
    let folder = prepared();
    std::fs::write(folder.path().join("job.json"), job("x", 60).replacen('{', "{\"type\":\"job.submitted\",", 1))
        .expect("writes");
    let (url, served) = scripted(vec![later("429 Too Many Requests"), later("503 Service Unavailable"), taken()]);
    let said = run(folder.path(), &["submit", "job.json", "--server", &url, "--token-file", "token"]);
    assert_eq!((said.code, said.out.contains("job-1")), (0, true), "{said:?}");
    assert_eq!(said.err.matches("asking again in").count(), 2, "{said:?}");
    let requests = served.join().expect("served");
    let bodies: Vec<&str> = requests.iter().filter_map(|r| r.split("\r\n\r\n").nth(1)).collect();
    assert!(bodies.len() == 3 && bodies.windows(2).all(|w| w[0] == w[1]), "{requests:?}");
    assert!(requests.iter().all(|r| r.contains(&format!("Bearer {TOKEN}"))), "{requests:?}");
    // An example comes back after a lost connection too.
    let (url, served) = scripted(vec![later("503 Service Unavailable"), None, taken()]);
    let said = example(folder.path(), "publish.py", &url, &["--subject", "x", "--token-file", "token"]);
    assert_eq!((said.code, said.out.trim()), (0, "1 accepted (0 known already), 0 rejected"), "{said:?}");
    let requests = served.join().expect("served");
    let ids: Vec<&str> = requests.iter().filter_map(|r| r.split("\"id\":\"").nth(1)?.split('"').next()).collect();
    assert!(ids.len() == 3 && ids.windows(2).all(|w| w[0] == w[1]), "the same event again: {requests:?}");
}

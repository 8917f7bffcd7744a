//! `forebay doctor` against real servers: what is good, what is missing, what refuses, and how it ends.
//!
//! Never: a part of its table that only a person could check; `--json` says the same.

use forebay_integration::{Said, Server, forebay, run, until};
use forebay_parts::{Kafka, KafkaOptions, LocalStack, LocalStackOptions};
use serde_json::Value;
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const HEAD: &str = "apiVersion: forebay/v1\nkind: Config\nlisten: 127.0.0.1:0\n";

/// Slower than the doctor's own limit on a machine that builds beside it.
const LIMIT: Duration = Duration::from_secs(90);

fn folder(config: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path(), "forebay.yaml", &format!("{HEAD}{config}"));
    folder
}

fn write(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    std::fs::write(&path, text).expect("writes");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("its mode");
    }
}

fn doctor(folder: &TempDir) -> Said {
    let began = Instant::now();
    let said = run(folder.path(), &["doctor", "--config", "forebay.yaml", "--json"]);
    assert!(began.elapsed() < LIMIT, "{:?}", began.elapsed());
    let report = said.json();
    let bad = report["findings"].as_array().expect("findings").iter().filter(|one| one["outcome"] == "bad").count();
    assert_eq!(report["bad"], bad, "{report}");
    said
}

/// The outcome and the words of the first finding about something.
#[track_caller]
fn about(said: &Said, what: &str) -> (String, String) {
    let report = said.json();
    let all = report["findings"].as_array().expect("findings");
    let one = all.iter().find(|one| one["what"].as_str().is_some_and(|text| text.contains(what)));
    let one = one.unwrap_or_else(|| panic!("nothing about {what} in {report:#}"));
    let text = |key: &str| one[key].as_str().unwrap_or_default().to_owned();
    (text("outcome"), text("said"))
}

#[test]
fn without_sources_all_is_well_and_nothing_is_made() {
    let folder = folder("");
    let said = doctor(&folder);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(about(&said, "policy").0, "ok");
    assert!(about(&said, "folder").1.contains("it is made when Forebay starts"), "{said:?}");
    let left: Vec<_> = std::fs::read_dir(folder.path()).expect("reads").flatten().map(|e| e.file_name()).collect();
    assert_eq!(left, ["forebay.yaml"]);
    let table = run(folder.path(), &["doctor", "--config", "forebay.yaml"]);
    assert!(table.out.contains("\ndata\n") && table.out.trim_end().ends_with(" ok"), "{}", table.out);
    assert!(!table.out.contains('\u{1b}'), "no colours in a pipe");
}

#[test]
fn what_is_wrong_in_the_files_is_2_and_what_is_wrong_outside_is_6() {
    let holder = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = format!("listen: {}\n", holder.local_addr().expect("an address"));
    let cases: [(&str, i32, &str, &str); 5] = [
        ("tokens: [{name: a, roles: [read], secret: {file: a.token}}]\n", 2, "secret of token `a`", "no such file"),
        ("policy: none.yaml\n", 2, "policy", "no such file"),
        ("polizy: none.yaml\n", 2, "configuration", "polizy"),
        (
            "kafka: [{brokers: ['127.0.0.1:9'], topics: [{name: 'a b', principal: x}]}]\n",
            2,
            "kafka:127.0.0.1:9",
            "not a name of a topic",
        ),
        (
            "kafka: [{brokers: ['127.0.0.1:9'], topics: [{name: t, principal: x}]}]\n",
            6,
            "kafka 127.0.0.1:9",
            "no response from",
        ),
    ];
    for (config, code, what, part) in cases {
        let said = doctor(&folder(config));
        assert_eq!(said.code, code, "{config}: {said:?}");
        let (outcome, words) = about(&said, what);
        assert!(outcome == "bad" && words.contains(part), "{config}: {outcome} {words}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path(), "forebay.yaml", &format!("apiVersion: forebay/v1\nkind: Config\n{taken}"));
    let said = doctor(&folder);
    assert_eq!((said.code, about(&said, "127.0.0.1:").0.as_str()), (6, "bad"), "{said:?}");
}

#[test]
fn a_controller_that_runs_is_known_and_left_alone() {
    let folder = folder("");
    let server = Server::start(folder.path(), &["--data", "forebay-data"]);
    let address = server.url.trim_start_matches("http://");
    write(
        folder.path(),
        "forebay.yaml",
        &format!("apiVersion: forebay/v1\nkind: Config\nlisten: {address}\ndata: forebay-data\n"),
    );
    let said = doctor(&folder);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(about(&said, address).1.contains("taken by the controller that runs"), "{said:?}");
    assert!(about(&said, "lock").1.contains("held by process"), "{said:?}");
    assert!(about(&said, "journal").1.contains("not opened here"), "{said:?}");
    assert_eq!(server.get("/v1/summary").0, 200, "it runs on");
    let sources = server.ask(folder.path(), &["sources"]);
    assert!(sources.code == 0 && sources.out.contains("no sources"), "{sources:?}");
    write(
        folder.path(),
        "forebay.yaml",
        &format!("apiVersion: forebay/v1\nkind: Config\nlisten: {address}\ndata: other\n"),
    );
    let other = doctor(&folder);
    assert!(other.code == 6 && about(&other, address).1.contains("another `data` folder"), "{other:?}");
}

/// What it says once it says this of that. It gives a broker 5 s for each answer, which one that has just started may not keep.
fn doctor_until(folder: &TempDir, what: &str, outcome: &str, part: &str) -> Said {
    let mut last = doctor(folder);
    until(what, Duration::from_secs(60), || {
        let report = last.json();
        let text = |one: &Value, key: &str| one[key].as_str().unwrap_or_default().to_owned();
        let says = |one: &Value| {
            text(one, "what").contains(what) && text(one, "outcome") == outcome && text(one, "said").contains(part)
        };
        if report["findings"].as_array().is_some_and(|all| all.iter().any(says)) {
            return Ok(());
        }
        last = doctor(folder);
        Err(report.to_string())
    });
    last
}

#[test]
fn kafka_topics_and_a_wrong_port_are_told() {
    let kafka = Kafka::start(KafkaOptions::default()).expect("a broker");
    kafka.create_topic("jobs", 2).expect("a topic");
    let config = |brokers: &str, topics: &str| {
        format!("kafka:\n  - brokers: ['{brokers}']\n    topics: [{topics}]\n    status: gone-status\n")
    };
    let topics = "{name: jobs, principal: a}, {name: gone, principal: b}";
    let said = doctor_until(&folder(&config(kafka.bootstrap(), topics)), "group forebay", "ok", "");
    assert_eq!(said.code, 6, "{said:?}");
    let (outcome, words) = about(&said, "topic jobs");
    assert!(outcome == "ok" && words.contains("2 partitions"), "{words}");
    for missing in ["topic gone", "topic gone-status"] {
        let (outcome, words) = about(&said, missing);
        assert!(outcome == "bad" && words.contains("does not exist: create it"), "{missing}: {outcome} {words}");
    }
    assert!(kafka.topics().expect("topics").iter().all(|topic| !topic.starts_with("gone")), "it creates none");
}

#[test]
fn a_bad_password_is_told_and_a_good_one_does() {
    let kafka = Kafka::start(KafkaOptions { secure: true, ..KafkaOptions::default() }).expect("a broker");
    kafka.create_topic("jobs", 1).expect("a topic");
    let (ca, user) = (kafka.ca_path().expect("a ca"), kafka.username().expect("a user"));
    let config = format!(
        "kafka:\n  - brokers: ['{}']\n    security: {{protocol: sasl-ssl, mechanism: PLAIN, username: '{user}', password: {{file: password}}, ca: \
         '{}'}}\n    topics: [{{name: jobs, principal: a}}]\n",
        kafka.bootstrap(),
        ca.display()
    );
    let folder = folder(&config);
    write(folder.path(), "password", "not-this-one\n");
    let broker = format!("kafka {}", kafka.bootstrap());
    let said = doctor_until(&folder, &broker, "bad", "check the user name, the password");
    assert_eq!(said.code, 6, "{said:?}");
    assert!(!format!("{said:?}").contains("not-this-one"));
    write(folder.path(), "password", kafka.password().expect("a password"));
    let said = doctor_until(&folder, "group forebay", "ok", "");
    assert_eq!((said.code, about(&said, "topic jobs").0.as_str()), (0, "ok"), "{said:?}");
    assert!(!format!("{said:?}").contains(kafka.password().expect("a password")), "a secret is never shown");
}

#[test]
fn a_missing_queue_is_told_beside_one_that_is_there() {
    let localstack = LocalStack::start(LocalStackOptions::default()).expect("a server");
    localstack.seed().expect("its queues");
    let config = format!(
        "sqs:\n  - endpoint: '{}'\n    region: us-east-1\n    keys: {{id: {{env: TEST_ID}}, secret: {{env: TEST_KEY}}}}\n    queues: [{{name: jobs, \
         principal: a}}, {{name: gone, principal: b}}]\n    status: jobs-status\n",
        localstack.endpoint()
    );
    let folder = folder(&config);
    let args = ["doctor", "--config", "forebay.yaml", "--json"];
    let output = forebay(folder.path(), &args).env("TEST_ID", "test").env("TEST_KEY", "test-key").output();
    let said = Said::from(output.expect("it runs"));
    assert_eq!(said.code, 6, "{said:?}");
    assert_eq!(about(&said, "queue jobs").0, "ok", "{said:?}");
    assert_eq!(about(&said, "queue jobs-status").0, "ok", "{said:?}");
    let (outcome, words) = about(&said, "queue gone");
    assert!(outcome == "bad" && words.contains("create the queue"), "{outcome} {words}");
    let without = doctor(&folder);
    assert_eq!(without.code, 2, "a key that is not in the environment is the caller's to mend: {without:?}");
    assert!(about(&without, "sqs `keys.id`").1.contains("TEST_ID"), "{without:?}");
}

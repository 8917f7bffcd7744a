//! A policy whose file changes while the controller runs: taken at once and whole, or refused whole, and the same after a `kill -9`.
//!
//! `FOREBAY_RELOADS=200` reloads so often; `FOREBAY_SEED` plays others. One job runs from the first reload on; with 100 and more, nodes of others
//! have booted meanwhile.

use forebay_integration::dice::Dice;
use forebay_integration::{Server, run, segments, until};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// A text counts at the second read that has it, half a second after the first.
const SOON: Duration = Duration::from_secs(90);

const QUEUES: [&str; 3] = ["vision", "search", "team/a"];

fn policy(tier: &str, nodes: u64, gpus: u64, queues: &[&str]) -> String {
    let queue = |name: &&str| format!("  {name}: {{tier: {tier}, quota: {{big: {{gpus: {gpus}}}}}}}\n");
    let queues: String = queues.iter().map(queue).collect();
    format!(
        "apiVersion: forebay/v1\nkind: Policy\nmetadata: {{name: reload}}\nlimits: {{nodes: {nodes}, spend: 1000 USD/h}}\n\
         tiers:\n  {tier}: {{priority: 500, buys: on-demand}}\nqueues:\n{queues}pools:\n  big: {{instanceTypes: [g5.xlarge]}}\n"
    )
}

fn wide() -> String {
    policy("normal", 20, 64, &QUEUES)
}

/// As an editor does it: the whole file under another name, then that name.
fn replace(folder: &Path, text: &str) {
    std::fs::write(folder.join("policy.next"), text).expect("written");
    std::fs::rename(folder.join("policy.next"), folder.join("policy.yaml")).expect("renamed");
}

fn start(folder: &Path) -> Server {
    Server::start(folder, &["--policy", "policy.yaml", "--data", "data"])
}

fn seen(server: &Server) -> Value {
    let (status, view) = server.get("/v1/policy");
    assert_eq!(status, 200, "{view}");
    view
}

fn is_in_force(server: &Server, text: &str) {
    let hash = blake3::hash(text.as_bytes()).to_hex().to_string();
    until("the policy is in force", SOON, || {
        let view = seen(server);
        if view["hash"] == hash.as_str() { Ok(()) } else { Err(format!("{view}: {}", server.log())) }
    });
}

fn metric(server: &Server, line: &str) {
    let (_, text) = server.send("GET", "/metrics", &[], &[]);
    assert!(text.lines().any(|one| one == line), "{line}: {text}");
}

fn submission(subject: &str, queue: &str) -> Value {
    json!({ "type": "job.submitted", "subject": subject, "data": { "queue": queue, "run": { "template": "train" },
        "gang": { "each": { "gpus": 1 } }, "simulation": { "durationS": 1_000_000 } } })
}

fn submit(server: &Server, subject: &str, queue: &str) -> u16 {
    server.post(&submission(subject, queue)).0
}

/// Begins the journal an hour ago, with a job, under a clock that goes 120 times as fast, until the job runs: a boot takes two minutes, and a
/// second there. The controllers after it have the real clock, and find it running.
fn begun_with_a_run(folder: &Path, subject: &str) {
    let hour_ago = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second() - 3_600).expect("a time");
    let mut job = submission(subject, QUEUES[0]);
    job["time"] = json!(hour_ago.to_string());
    std::fs::write(folder.join("first.jsonl"), format!("{job}\n")).expect("written");
    let replay = ["--policy", "policy.yaml", "--data", "data", "--replay", "first.jsonl", "--speed", "120"];
    let server = Server::start(folder, &replay);
    until("the first job runs", SOON, || match jobs(&server).get(subject) {
        Some((phase, ..)) if phase == "running" => Ok(()),
        other => Err(format!("{other:?}: {}", server.log())),
    });
    server.kill();
    verified(folder);
}

/// What was done by hand of one kind, oldest first.
fn acts(folder: &Path, act: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(folder.join("data/audit.jsonl")).expect("reads");
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    lines.filter(|line| line["act"] == act).collect()
}

fn verified(folder: &Path) {
    let said = run(folder, &["journal", "verify", "data"]);
    assert_eq!(said.code, 0, "{} {}", said.out, said.err);
}

#[test]
fn a_valid_text_is_taken_at_once_and_an_invalid_one_is_refused_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("policy.yaml"), wide()).expect("written");
    let server = start(folder.path());
    assert_eq!(submit(&server, "one", "search"), 202);
    assert_eq!((&seen(&server)["file"], &seen(&server)["standing"]), (&json!("policy.yaml"), &Value::Null));

    // One fault, and much else that is different: nothing of it counts.
    let bad = policy("normal", 1, 1, &["vision"]).replace("priority: 500", "priority: high");
    replace(folder.path(), &bad);
    until("it is refused", SOON, || {
        let view = seen(&server);
        if view["standing"].is_object() { Ok(()) } else { Err(view.to_string()) }
    });
    let view = seen(&server);
    let said = run(folder.path(), &["check", "policy.yaml"]);
    let message = view["standing"]["message"].as_str().expect("a message").trim_end().to_owned();
    assert!(message.contains("policy.yaml:") && said.err.contains(&message), "{message}: {}", said.err);
    assert_eq!((&view["text"], &view["refused"], &view["taken"]), (&json!(wide()), &json!(1), &json!(0)));
    metric(&server, "forebay_policy_refused 1");
    metric(&server, "forebay_policies_offered_total{outcome=\"refused\"} 1");
    assert!(server.log().contains("is refused whole") && server.log().contains(&message), "{}", server.log());
    assert_eq!(submit(&server, "two", "search"), 202);

    // Mended: the queue of both jobs is gone. They are held, and told so.
    let narrow = policy("normal", 1, 1, &["vision"]);
    replace(folder.path(), &narrow);
    is_in_force(&server, &narrow);
    let codes: Vec<Value> =
        ["one", "two"].map(|job| server.get(&format!("/v1/jobs/{job}/why")).1["reason"]["code"].clone()).into();
    assert_eq!(codes, ["UnknownQueue"; 2]);
    // What comes under the new policy is rejected at once where that does not declare its queue.
    assert_eq!((submit(&server, "three", "search"), submit(&server, "four", "vision")), (400, 202));
    metric(&server, "forebay_policy_refused 0");
    metric(&server, "forebay_policies_offered_total{outcome=\"taken\"} 1");
    // What is different is said in words.
    until("the act is written", SOON, || match acts(folder.path(), "policy").len() {
        1 => Ok(()),
        n => Err(format!("{n} acts")),
    });
    let act = acts(folder.path(), "policy").remove(0);
    let changes = act["what"]["changes"].as_str().expect("words").to_owned();
    for expected in
        ["`limits.nodes` is 1, was 20", "queue `search` is gone", "queue `vision`: `quota.big.gpus` is 1, was 64"]
    {
        assert!(changes.contains(expected), "{expected}: {changes}");
    }
    assert!(server.log().contains(&changes), "{}", server.log());
    assert_eq!((&act["what"]["policyFrom"], &act["what"]["policy"]), (&json!("policy.yaml"), &seen(&server)["hash"]));

    // The journal has it as if it had come at a start: a start with the same file finds nothing new.
    server.kill();
    verified(folder.path());
    let server = start(folder.path());
    assert_eq!(seen(&server)["text"], narrow);
    assert_eq!(acts(folder.path(), "start").pop().expect("a start")["what"]["policyIsNew"], false);
    assert_eq!(server.get("/v1/jobs/one").1["phase"], "held");
    replace(folder.path(), &wide());
    is_in_force(&server, &wide());
    assert_ne!(server.get("/v1/jobs/one").1["phase"], "held", "what was impossible goes on");
}

#[test]
fn a_config_map_is_followed_through_its_links_and_a_file_that_is_away_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let mount = folder.path().join("mount");
    let version = |name: &str, text: &str| {
        std::fs::create_dir_all(mount.join(name)).expect("a folder");
        std::fs::write(mount.join(name).join("policy.yaml"), text).expect("written");
        // As the kubelet does it: a link to the new folder takes the place of the one before.
        std::os::unix::fs::symlink(name, mount.join("..data_tmp")).expect("linked");
        std::fs::rename(mount.join("..data_tmp"), mount.join("..data")).expect("renamed");
    };
    version("..1", &wide());
    std::os::unix::fs::symlink("..data/policy.yaml", mount.join("policy.yaml")).expect("linked");
    let server = Server::start(folder.path(), &["--policy", "mount/policy.yaml", "--data", "data"]);
    let narrow = policy("usual", 2, 8, &QUEUES[..2]);
    version("..2", &narrow);
    is_in_force(&server, &narrow);
    std::fs::remove_file(mount.join("policy.yaml")).expect("removed");
    until("it is missed", SOON, || {
        let view = seen(&server);
        let message = view["standing"]["message"].as_str().unwrap_or_default();
        if message.contains("put the policy's file back") { Ok(()) } else { Err(view.to_string()) }
    });
    assert_eq!(seen(&server)["text"], narrow);
    std::os::unix::fs::symlink("..data/policy.yaml", mount.join("policy.yaml")).expect("linked");
    until("nothing stands refused", SOON, || {
        let view = seen(&server);
        if view["standing"].is_null() { Ok(()) } else { Err(view.to_string()) }
    });
    assert_eq!((&seen(&server)["text"], &seen(&server)["taken"]), (&json!(narrow), &json!(1)));
}

/// By subject: phase, tier, attempt.
type Jobs = BTreeMap<String, (String, Value, Value)>;

fn jobs(server: &Server) -> Jobs {
    let (_, seen) = server.get("/v1/jobs?limit=10000");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let of = |job: &Value| (text(&job["subject"]), (text(&job["phase"]), job["tier"].clone(), job["attempt"].clone()));
    seen["jobs"].as_array().expect("jobs").iter().map(of).collect()
}

fn runs(phase: &str) -> bool {
    ["starting", "running"].contains(&phase)
}

#[test]
fn many_reloads_and_kills_stop_nothing_and_lose_nothing() {
    let asked = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let (seed, reloads) = (asked("FOREBAY_SEED").unwrap_or(20_261_125), asked("FOREBAY_RELOADS").unwrap_or(8));
    println!("FOREBAY_SEED={seed} FOREBAY_RELOADS={reloads}");
    let (mut dice, folder) = (Dice(seed), tempfile::tempdir().expect("a folder"));
    std::fs::write(folder.path().join("policy.yaml"), wide()).expect("written");
    begun_with_a_run(folder.path(), "first");
    let mut server = start(folder.path());
    let (mut known, mut kills, mut most) = (Jobs::new(), 0, 0);
    for reload in 0..reloads {
        for n in 0..dice.below(4) {
            let queue = QUEUES[usize::try_from(dice.below(3)).expect("small")];
            // 400: the policy in force does not declare the queue.
            assert!([202, 400].contains(&submit(&server, &format!("j{reload}-{n}"), queue)));
        }
        known.extend(jobs(&server).into_iter().filter(|(_, (phase, ..))| phase != "rejected"));
        let tier = ["normal", "standard", "usual"][usize::try_from(dice.below(3)).expect("small")];
        let mut declared: Vec<&str> = QUEUES.into_iter().filter(|_| dice.below(3) > 0).collect();
        // A policy without any queue is refused.
        if declared.is_empty() {
            declared.push(QUEUES[0]);
        }
        let text = policy(tier, 1 + dice.below(12), 64 >> dice.below(7), &declared);
        replace(folder.path(), &text);
        if dice.below(3) == 0 {
            // While it may be on its way, or just after.
            std::thread::park_timeout(Duration::from_millis(dice.below(1_500)));
            server.kill();
            verified(folder.path());
            (server, kills) = (start(folder.path()), kills + 1);
        }
        is_in_force(&server, &text);
        let now = jobs(&server);
        for (subject, (phase, tier, attempt)) in &known {
            let (phase_now, tier_now, attempt_now) = now.get(subject).unwrap_or_else(|| panic!("{subject} is lost"));
            assert_eq!(tier_now, tier, "{subject}");
            let goes_on = !runs(phase) || runs(phase_now) && attempt_now == attempt;
            assert!(goes_on, "{subject}: {phase}, attempt {attempt}; then {phase_now}, attempt {attempt_now}");
        }
        most = most.max(now.values().filter(|(phase, ..)| runs(phase)).count());
        let first = now.get("first").map(|(phase, ..)| phase.as_str());
        assert_eq!(first, Some("running"), "it has run since before the first reload");
    }
    server.kill();
    verified(folder.path());
    let lines = segments::lines(&folder.path().join("data/status"));
    let kinds = ["status.preempting", "status.preempted", "status.requeued", "status.failed", "status.cancelled"];
    let stopped: Vec<&String> = lines.iter().filter(|line| kinds.iter().any(|kind| line.contains(kind))).collect();
    assert!(stopped.is_empty(), "{stopped:?}");
    println!("{reloads} reloads, {kills} kills, {} jobs, {most} runs at most", known.len());
    assert!(reloads > 0 && most > usize::from(reloads >= 100), "{reloads} reloads, {most} runs at most");
}

#[test]
fn where_no_file_owns_the_policy_operators_change_it_and_take_it_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(folder.path(), &["--data", "data"]);
    let ask = |args: &[&str]| server.ask(folder.path(), args);
    let built_in = seen(&server)["text"].as_str().expect("a text").to_owned();
    for (name, text) in
        [("wide", wide()), ("narrow", policy("normal", 3, 8, &QUEUES)), ("bad", wide().replace("500", "high"))]
    {
        std::fs::write(folder.path().join(format!("{name}.yaml")), text).expect("written");
    }
    let said = ask(&["policy", "diff", "wide.yaml", "narrow.yaml"]);
    assert!(said.code == 0 && said.out.contains("`limits.nodes` is 3, was 20\n"), "{} {}", said.out, said.err);
    for name in ["wide.yaml", "narrow.yaml"] {
        let said = ask(&["policy", "set", name]);
        assert_eq!(said.code, 0, "{} {}", said.out, said.err);
    }
    let said = ask(&["policy", "set", "bad.yaml"]);
    assert!(said.code == 2 && said.err.contains("priority"), "{} {}", said.code, said.err);
    assert_eq!(seen(&server)["text"], policy("normal", 3, 8, &QUEUES));
    let said = ask(&["policy", "rollback"]);
    assert_eq!((said.code, &seen(&server)["text"]), (0, &json!(wide())), "{}", said.err);
    let listed = ask(&["policy", "history", "--json"]).json();
    let told: Vec<(&Value, &Value)> =
        listed["policies"].as_array().expect("policies").iter().map(|p| (&p["from"], &p["changes"])).collect();
    assert_eq!((&listed["owner"], told.len()), (&json!("api"), 4), "{listed}");
    assert_eq!((told[0].0, told[2].0), (&json!("api"), &json!("api")), "{listed}");
    assert!(told[1].1.as_str().is_some_and(|words| words.contains("`limits.nodes` is 3, was 20")), "{listed}");
    let first = listed["policies"][3]["hash"].as_str().expect("a hash");
    assert_eq!(ask(&["policy", "show", &first[..8]]).out.trim_end(), built_in.trim_end());
    assert!(ask(&["policy", "history"]).out.contains("the owner is the API"));

    // It goes on after a crash; a start with a file makes that the owner.
    server.kill();
    verified(folder.path());
    let server = Server::start(folder.path(), &["--data", "data"]);
    assert_eq!(seen(&server)["text"], wide());
    server.kill();
    replace(folder.path(), &wide());
    let server = start(folder.path());
    let said = server.ask(folder.path(), &["policy", "rollback"]);
    assert!(said.code == 2 && said.err.contains("the file policy.yaml owns the policy"), "{} {}", said.code, said.err);
}

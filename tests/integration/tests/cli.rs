//! The command line from outside: bad input ends with exit code 2 and says what, where and how to mend it; `simulate` and `plan`
//! keep their contract; a replay says the same twice.

use forebay_integration::{forebay, root, run};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

const HEADER: &str = "job_id,submit_s,duration_s,gpus\n";

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

fn write(folder: &Path, name: &str, bytes: impl AsRef<[u8]>) {
    std::fs::write(folder.join(name), bytes).expect("writes");
}

fn policy() -> String {
    root().join("policies/spot-first.yaml").display().to_string()
}

/// Bytes that are no text, the same each time.
fn noise() -> Vec<u8> {
    let mut x: u64 = 0x9e37_79b9_7f4a_7c15;
    (0..4096)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            (x >> 32) as u8
        })
        .collect()
}

#[test]
fn bad_traces_are_refused_with_place_and_remedy() {
    let cases: [(&str, Vec<u8>, &[&str]); 9] = [
        ("missing.csv", "job_id,submit_s,gpus\na,0,1\n".into(), &["missing.csv, line 1", "duration_s", "missing"]),
        ("row.csv", format!("{HEADER}a,0,60,1\nb,x,60,1\n").into(), &["row.csv, line 3", "submit_s", "x"]),
        ("short.csv", format!("{HEADER}a,0,60,1\nb,0\n").into(), &["short.csv, line 3"]),
        (
            "twice.csv",
            format!("{HEADER}a,0,60,1\nb,0,60,1\na,5,60,1\n").into(),
            &["twice.csv, line 4", "line 2", "\"a\""],
        ),
        ("unknown.txt", "hello\nworld\n".into(), &["unknown.txt", "openb, philly, helios"]),
        ("empty.csv", Vec::new(), &["empty.csv", "written in full"]),
        ("header.csv", HEADER.into(), &["header.csv"]),
        ("cut.json", "[{\"jobid\": \"a\", \"attempts\": [".into(), &["cut.json"]),
        ("noise.bin", noise(), &["noise.bin"]),
    ];
    let folder = folder();
    for (name, bytes, parts) in cases {
        write(folder.path(), name, &bytes);
        for args in [
            &["simulate", "--policy", &policy(), "--trace", name][..],
            &["run", "--replay", name, "--speed", "max"],
            &["demand", "--trace", name],
        ] {
            let said = run(folder.path(), args);
            assert_eq!(said.code, 2, "{name}: {said:?}");
            for part in parts {
                assert!(said.err.contains(part), "{name}: no `{part}` in: {}", said.err);
            }
            assert!(!said.err.contains("panicked"), "{}", said.err);
        }
    }
    assert!(!folder.path().join("forebay-data").exists(), "a refused replay leaves no journal");
}

#[test]
fn bad_policies_are_refused_with_place_and_remedy() {
    let good = std::fs::read_to_string(root().join("policies/spot-first.yaml")).expect("reads");
    let misspelt = format!("{good}\nlimit: {{nodes: 3}}\n");
    let cases: [(&str, Vec<u8>, &[&str]); 5] = [
        ("misspelt.yaml", misspelt.into(), &["misspelt.yaml:", "limit", "limits"]),
        ("empty.yaml", Vec::new(), &["empty.yaml", "empty"]),
        ("noise.yaml", noise(), &["noise.yaml"]),
        ("list.yaml", "- a\n- b\n".into(), &["list.yaml", "not a policy"]),
        ("cut.yaml", good[..good.len() / 2].replace("metadata", "metadata: {").into(), &["cut.yaml"]),
    ];
    let folder = folder();
    write(folder.path(), "t.csv", format!("{HEADER}a,0,60,1\n"));
    for (name, bytes, parts) in cases {
        write(folder.path(), name, &bytes);
        for args in
            [&["check", name][..], &["simulate", "--policy", name, "--trace", "t.csv"], &["run", "--policy", name]]
        {
            let said = run(folder.path(), args);
            assert_eq!(said.code, 2, "{args:?}: {said:?}");
            for part in parts {
                assert!(said.err.contains(part), "{name}: no `{part}` in: {}", said.err);
            }
        }
    }
    assert!(!folder.path().join("forebay-data").exists(), "a refused run leaves no journal");
}

#[test]
fn misuse_of_the_command_line_is_bad_input() {
    let folder = folder();
    write(folder.path(), "t.csv", format!("{HEADER}a,0,60,1\n"));
    write(folder.path(), "config.yaml", "apiVersion: forebay/v1\nkind: Config\nlisen: 127.0.0.1:1\n");
    let policy = policy();
    let cases: [(&[&str], &str); 12] = [
        (&["demand"], "a trace by --trace, or a data folder by --data"),
        (&["demand", "--trace", "t.csv", "--data", "d"], "cannot be used with"),
        (&["demand", "--data", "nowhere"], "journal.sqlite: there is no journal: name the folder"),
        (&["demand", "--trace", "t.csv", "--boot", "soon"], "90s, 10m or 2h"),
        (&["simulate", "--policy", &policy], "--trace"),
        (&["simulate", "--policy", &policy, "--trace", "nowhere.csv"], "nowhere.csv: no such file"),
        (&["simulate", "--policy", "nowhere.yaml", "--trace", "t.csv"], "nowhere.yaml: no such file"),
        (&["simulate", "--policy", &policy, "--trace", "t.csv", "--trace-format", "csv"], "normalized, openb"),
        (&["simulate", "--policy", &policy, "--trace", "t.csv", "--market", "nowhere.csv"], "nowhere.csv"),
        (&["run", "--config", "config.yaml"], "lisen"),
        (&["run", "--replay", "t.csv", "--resume", "nowhere"], "no journal here"),
        (&["run", "--replay", "t.csv", "--speed", "fast"], "whole factor"),
    ];
    for (args, part) in cases {
        let said = run(folder.path(), args);
        assert_eq!(said.code, 2, "{args:?}: {said:?}");
        assert!(said.err.contains(part), "{args:?}: no `{part}` in: {}", said.err);
    }
    let alone = run(folder.path(), &["jobs", "--server", "http://127.0.0.1:9"]);
    assert_eq!(alone.code, 6, "{alone:?}");
    assert!(alone.err.contains("forebay run"), "{}", alone.err);
}

#[test]
fn a_journal_of_a_newer_version_or_of_noise_is_refused() {
    let folder = folder();
    write(folder.path(), "t.csv", format!("{HEADER}a,0,60,1\n"));
    let first =
        run(folder.path(), &["run", "--replay", "t.csv", "--speed", "max", "--exit-when-drained", "--data", "d"]);
    assert_eq!(first.code, 0, "{first:?}");
    let again = ["run", "--replay", "t.csv", "--speed", "max", "--exit-when-drained", "--data", "d"];
    let here = run(folder.path(), &again);
    assert_eq!((here.code, here.err.contains("--resume d")), (2, true), "{here:?}");
    let resume = ["run", "--replay", "t.csv", "--speed", "max", "--exit-when-drained", "--resume", "d"];
    let resumed = run(folder.path(), &resume);
    assert_eq!(resumed.code, 0, "{resumed:?}");
    assert_eq!(resumed.out, first.out, "going on at the end says the same");
    let other = run(folder.path(), &[&resume[..], &["--seed", "99"]].concat());
    assert_eq!((other.code, other.err.contains("seed 1")), (2, true), "{other:?}");
    let sound = run(folder.path(), &["journal", "verify", "d"]);
    assert_eq!((sound.code, sound.out.contains("sound: ")), (0, true), "{sound:?}");
    let database = rusqlite::Connection::open(folder.path().join("d/journal.sqlite")).expect("opens");
    database.execute("UPDATE meta SET format = 99", []).expect("updates");
    drop(database);
    let newer = run(folder.path(), &resume);
    assert_eq!(newer.code, 2, "{newer:?}");
    assert!(newer.err.contains("version 99") && newer.err.contains("newer"), "{}", newer.err);
    write(&folder.path().join("d"), "journal.sqlite", noise());
    let noise = run(folder.path(), &resume);
    assert_eq!(noise.code, 2, "{noise:?}");
    assert_eq!(run(folder.path(), &["journal", "verify", "d"]).code, 2, "noise is not sound");
    assert!(noise.err.contains("journal.sqlite"), "{}", noise.err);
}

/// What `simulate --json` promises.
const KEYS: [&str; 35] = [
    "jobs",
    "completed",
    "failed",
    "rejected",
    "lost",
    "preemptions",
    "reclaims",
    "work_lost_gpu_hours",
    "gpu_hours_requested",
    "gpu_hours_bought",
    "gpu_hours_allocated",
    "gpu_hours_busy",
    "gpu_hours_wasted",
    "busy_over_allocated",
    "idle_node_hours",
    "spot_ratio",
    "cost_usd",
    "cost_on_demand_only_usd",
    "cost_lower_bound_usd",
    "wait_s",
    "jct_s",
    "wait_s_by_queue",
    "makespan_s",
    "deadline_misses",
    "times_at_zero",
    "nodes_peak",
    "nodes_at_end",
    "nodes_kept_ready",
    "ceiling_violations",
    "quota_violations",
    "gang_violations",
    "engine_s",
    "events",
    "decisions",
    "market",
];

#[test]
fn a_simulation_keeps_its_keys_and_says_the_same_twice() {
    let folder = folder();
    let rows: String = (0..200).map(|i| format!("j{i},{},{},{}\n", i * 30, 300 + i * 7 % 900, 1 << (i % 4))).collect();
    write(folder.path(), "t.csv", format!("{HEADER}{rows}"));
    let simulate = |more: &[&str]| {
        let policy = policy();
        let said =
            run(folder.path(), &[&["simulate", "--policy", &policy, "--trace", "t.csv", "--json"], more].concat());
        assert_eq!(said.code, 0, "{said:?}");
        let mut card = said.json();
        card.as_object_mut().expect("an object").remove("engine_s").expect("engine_s");
        card
    };
    let card = simulate(&[]);
    let missing: Vec<_> = KEYS.iter().filter(|k| **k != "engine_s" && card.get(**k).is_none()).collect();
    assert!(missing.is_empty(), "{missing:?}");
    for (kind, keys) in [
        ("wait_s", ["mean", "p50", "p90", "p95", "p99"]),
        ("gpu_hours_wasted", ["boot", "idle", "lingering", "lost", "fragmentation"]),
    ] {
        assert!(keys.iter().all(|k| card[kind][*k].is_number()), "{kind}: {}", card[kind]);
    }
    assert_eq!((&card["completed"], &card["lost"], &card["nodes_at_end"]), (&json!(200), &json!(0), &json!(0)));
    assert_eq!(simulate(&[]), card);
    assert_eq!(simulate(&["--crash-every", "50"]), card);
    let table = run(folder.path(), &["simulate", "--policy", &policy(), "--trace", "t.csv", "--json", "out.json"]);
    assert!(table.out.contains("market: drawn from seed 1"), "{}", table.out);
    assert_eq!(table.out.lines().last(), Some("drained: 0 nodes, 0 lost"));
    let file: Value =
        serde_json::from_slice(&std::fs::read(folder.path().join("out.json")).expect("written")).expect("JSON");
    assert_eq!(file["cost_usd"], card["cost_usd"]);
}

#[test]
fn the_example_day_replays_the_same_twice() {
    let day = root().join("examples/day.jsonl").display().to_string();
    let folder = folder();
    let replay = || run(folder.path(), &["run", "--replay", &day, "--speed", "max", "--exit-when-drained"]);
    let (first, second) = (replay(), replay());
    assert_eq!((first.code, second.code), (0, 0), "{first:?} {second:?}");
    assert_eq!(first.out, second.out);
    assert_eq!(first.out.lines().last(), Some("drained: 0 nodes, 0 lost"));
    assert!(first.err.contains("forebay-data"), "the journal's folder is printed: {}", first.err);
}

/// What nobody knows has no effect: whoever replays a file is told, once for each.
#[test]
fn a_replay_says_which_fields_nobody_knows() {
    let folder = folder();
    let job = |subject: &str, second: u32, gang: Value| {
        json!({ "specversion": "1.0", "type": "job.submitted", "source": "//t", "id": subject, "subject": subject,
            "time": format!("2026-11-02T00:00:{second:02}Z"), "data": { "queue": "language/batch", "gang": gang,
            "run": { "image": "registry.example/t:1" }, "simulation": { "durationS": 60 } } })
    };
    let each = json!({ "gpus": 1 });
    let events = [
        job("known", 0, json!({ "workers": { "min": 1, "max": 1 }, "each": each })),
        job("first", 1, json!({ "wrokers": { "min": 2, "max": 2 }, "each": each })),
        job("second", 2, json!({ "wrokers": { "min": 2, "max": 2 }, "each": each })),
    ];
    write(folder.path(), "e.jsonl", events.map(|event| event.to_string()).join("\n"));
    let said = run(folder.path(), &["run", "--replay", "e.jsonl", "--speed", "max", "--exit-when-drained"]);
    assert_eq!(said.code, 0, "{said:?}");
    let told: Vec<&str> = said.err.lines().filter(|line| line.contains("WARN")).collect();
    assert_eq!(told.len(), 1, "{}", said.err);
    let parts =
        ["`data.gang.wrokers` is not a field that is known here", "did you mean `workers`?", "subject=\"first\""];
    assert!(parts.iter().all(|part| told[0].contains(part)), "{}", told[0]);
}

#[test]
fn a_plan_on_a_written_state_has_a_reason_for_every_pending_job() {
    let folder = folder();
    let state = json!({ "apiVersion": "forebay/v1", "kind": "State", "now_s": 600,
        "jobs": [
            { "job": "runs", "queue": "a", "gpus": 4, "phase": "running", "nodes": ["n1"] },
            { "job": "waits", "queue": "a", "gpus": 8, "workers": 2, "phase": "queued", "submit_s": 0 },
            { "job": "fits", "queue": "a", "gpus": 1, "phase": "queued" } ],
        "nodes": [
            { "node": "n1", "instanceType": "g5.12xlarge", "zone": "us-east-1a", "capacityType": "spot", "phase": "ready" },
            { "node": "n2", "instanceType": "g5.xlarge", "zone": "us-east-1a", "capacityType": "on-demand", "phase": "ready" } ] });
    write(folder.path(), "s.json", state.to_string());
    let policy = policy();
    let said = run(folder.path(), &["plan", "--policy", &policy, "--state", "s.json", "--json"]);
    assert_eq!(said.code, 0, "{said:?}");
    let plan = said.json();
    let decisions = plan["decisions"].as_array().expect("decisions");
    assert!(
        decisions.iter().any(|d| d["action"] == "start" && d["job"] == "fits" && d["nodes"] == json!(["n2"])),
        "{plan}"
    );
    assert!(decisions.iter().any(|d| d["action"] == "buy" && d["job"].is_null()), "{plan}");
    let pending = plan["pending"].as_array().expect("pending");
    assert_eq!(pending.len(), 1, "{plan}");
    assert_eq!((&pending[0]["job"], &pending[0]["reason"]), (&json!("waits"), &json!("AwaitingNodes")));
    assert!(pending[0]["figures"].is_object() && pending[0]["eta_s"].is_number(), "{plan}");
    write(folder.path(), "marked.json", format!("\u{feff}{state}"));
    let marked = run(folder.path(), &["plan", "--policy", &policy, "--state", "marked.json", "--json"]);
    assert_eq!((marked.code, &marked.out), (0, &said.out), "a byte order mark says nothing: {}", marked.err);
    for (name, text, part) in [
        ("key.json", state.to_string().replace("\"gpus\"", "\"gpu\""), "jobs[0].gpu"),
        ("cut.json", state.to_string()[..200].to_owned(), "cut.json"),
        ("empty.json", String::new(), "empty"),
        ("kind.json", state.to_string().replace("\"State\"", "\"Policy\""), "kind"),
    ] {
        write(folder.path(), name, text);
        let said = run(folder.path(), &["plan", "--policy", &policy, "--state", name]);
        assert_eq!((said.code, said.err.contains(part)), (2, true), "{name}: {said:?}");
    }
}

#[test]
fn the_example_configuration_is_good_and_its_secrets_are_warnings() {
    let example = root().join("examples/forebay.yaml").display().to_string();
    let folder = folder();
    let said = run(folder.path(), &["check", &example]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(said.out.matches("warning: ").count(), 4, "four secrets are not there: {}", said.out);
    assert!(
        said.out.contains("2 topics") && said.out.contains("secret of token `airflow`: cannot be read from"),
        "{}",
        said.out
    );
    let explained = run(folder.path(), &["check", &example, "--explain"]);
    assert_eq!(explained.code, 0, "{explained:?}");
    write(folder.path(), "explained.yaml", &explained.out);
    let again = run(folder.path(), &["check", "explained.yaml", "--explain"]);
    assert_eq!((again.code, &again.out), (0, &explained.out), "an explained configuration is the same configuration");
}

#[test]
fn several_files_are_checked_at_once_for_people_and_for_machines() {
    let folder = folder();
    let head = "apiVersion: forebay/v1\nkind: Policy\nmetadata: {name: t}\nlimits: {nodes: 10, spend: 100 USD/h}\n";
    write(folder.path(), "good.yaml", format!("{head}queues: {{a: {{}}}}\npools: {{p: {{}}}}\n"));
    write(
        folder.path(),
        "unwise.yaml",
        format!("{head}queues: {{a: {{}}}}\npools: {{p: {{ceiling: {{nodes: 50}}}}}}\n"),
    );
    write(folder.path(), "bad.yaml", format!("{head}queues:\n  a: {{tier: norml}}\npools: {{p: {{}}}}\n"));
    let check = |args: &[&str]| run(folder.path(), &[&["check"], args].concat());
    let said = check(&["good.yaml", "unwise.yaml"]);
    assert_eq!((said.code, said.out.matches("is good").count(), said.err.as_str()), (0, 2, ""), "{said:?}");
    assert_eq!(check(&["good.yaml", "--strict"]).code, 0);
    assert_eq!(check(&["good.yaml", "unwise.yaml", "--strict"]).code, 1);
    let said = check(&["good.yaml", "bad.yaml", "unwise.yaml", "nowhere.yaml", "--strict"]);
    assert_eq!(
        (said.code, said.out.matches("is good").count()),
        (2, 2),
        "what is bad keeps no other from its check: {said:?}"
    );
    assert!(said.err.contains("bad.yaml:6:") && said.err.contains("nowhere.yaml: no such file"), "{}", said.err);
    let said = check(&["good.yaml", "bad.yaml", "unwise.yaml", "nowhere.yaml", "--json"]);
    let found = said.json();
    assert_eq!((said.code, &found["apiVersion"], &found["kind"]), (2, &json!("forebay/v1"), &json!("CheckReport")));
    assert_eq!((&found["errors"], &found["warnings"]), (&json!(2), &json!(1)), "{found}");
    let first = |at: usize| &found["files"][at]["findings"][0];
    assert_eq!(found["files"][0], json!({"file": "good.yaml", "kind": "Policy", "findings": [], "more": 0}));
    assert_eq!((&first(1)["level"], &first(1)["line"]), (&json!("error"), &json!(6)), "{found}");
    assert_eq!(first(1)["path"], json!(["queues", "a", "tier"]));
    assert!(first(1)["remedy"].as_str().is_some_and(|remedy| remedy.contains("`normal`")), "{found}");
    assert_eq!((&first(2)["level"], &first(2)["line"]), (&json!("warning"), &json!(6)), "{found}");
    assert_eq!(first(2)["path"], json!(["pools", "p", "ceiling", "nodes"]));
    assert_eq!((&first(3)["line"], &found["files"][3]["kind"]), (&Value::Null, &Value::Null));
    let said = check(&["good.yaml", "unwise.yaml", "--explain"]);
    assert!(said.code == 2 && said.err.contains("name one"), "{said:?}");
}

#[test]
fn bad_configurations_are_refused_with_place_and_remedy() {
    let head = "apiVersion: forebay/v1\nkind: Config\n";
    let topics = |topics: &str| format!("{head}kafka:\n  - brokers: ['h:1']\n    topics: [{topics}]\n");
    let cases: [(&str, String, &[&str]); 8] = [
        ("key.yaml", format!("{head}lisen: 127.0.0.1:1\n"), &["key.yaml:3:1", "`lisen`", "did you mean `listen`?"]),
        ("cut.yaml", format!("{head}kafka: [{{brokers:"), &["--> cut.yaml:", "brackets"]),
        (
            "twice.yaml",
            topics("{name: a, principal: x}, {name: a, principal: y}"),
            &["twice.yaml", "`a` is named twice"],
        ),
        ("name.yaml", topics("{name: 'a b', principal: x}"), &["name.yaml", "`a b` is not a name of a topic"]),
        (
            "user.yaml",
            format!("{head}kafka:\n  - brokers: ['h:1']\n    security: {{protocol: sasl-ssl, username: u}}\n"),
            &["user.yaml", "password", "is required"],
        ),
        (
            "tuned.yaml",
            format!("{head}kafka:\n  - brokers: ['h:1']\n    properties: {{fetch.wait.max.sm: '1'}}\n"),
            &["tuned.yaml", "fetch.wait.max.sm"],
        ),
        (
            "queue.yaml",
            format!("{head}sqs:\n  - queues: [{{name: 'a b', principal: x}}]\n"),
            &["queue.yaml", "`a b` is not a queue"],
        ),
        (
            "roles.yaml",
            format!("{head}tokens: [{{name: a, roles: [], secret: {{env: A}}}}]\n"),
            &["roles.yaml", "token `a`", "no role"],
        ),
    ];
    let folder = folder();
    for (name, text, parts) in cases {
        write(folder.path(), name, text);
        let said = run(folder.path(), &["check", name]);
        assert_eq!(said.code, 2, "{name}: {said:?}");
        for part in parts {
            assert!(said.err.contains(part), "{name}: no `{part}` in: {}", said.err);
        }
    }
}

#[test]
fn schemas_and_explanations_come_out() {
    let folder = folder();
    for of in ["policy", "event", "state", "config"] {
        let said = run(folder.path(), &["schema", of]);
        assert_eq!(said.code, 0, "{said:?}");
        assert!(said.json()["$schema"].is_string(), "{of}");
    }
    let explained = run(folder.path(), &["check", &policy(), "--explain"]);
    assert_eq!(explained.code, 0, "{explained:?}");
    write(folder.path(), "explained.yaml", &explained.out);
    assert_eq!(run(folder.path(), &["check", "explained.yaml"]).code, 0, "an explained policy is a policy");
    let help = run(folder.path(), &["--help"]);
    assert!(help.out.contains("Exit codes:") && help.out.contains("not over in time"), "{}", help.out);
}

/// The folders and files with sentences for people.
fn texts(folder: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let ends = |end: &str| name.to_string_lossy().ends_with(end);
        // A corpus is broken on purpose.
        if path.is_dir() && !ends("target") && !ends("corpus") && !name.to_string_lossy().starts_with('.') {
            texts(&path, found);
        } else if [".md", ".rs", ".yaml", ".toml"].iter().any(|end| ends(end)) {
            found.push(path);
        }
    }
}

/// The word behind each `forebay ` that is a command: one that begins a line, or a piece of code.
fn named_commands(text: &str) -> impl Iterator<Item = &str> {
    let behind = |line: &'_ str| -> Vec<usize> {
        let starts = line.match_indices("`forebay ").map(|(at, _)| at + 1);
        let first = line.len() - line.trim_start().len();
        starts.chain((line[first..].starts_with("forebay ") && line.starts_with("  ")).then_some(first)).collect()
    };
    text.lines().flat_map(move |line| {
        behind(line).into_iter().filter_map(|at| {
            let word = line[at + "forebay ".len()..].split(|c: char| !c.is_ascii_alphanumeric() && c != '-').next()?;
            let named = word.starts_with(|c: char| c.is_ascii_lowercase());
            (named && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'-')).then_some(word)
        })
    })
}

/// It is the first process of its container, which a signal ends only where it is handled: so the code is its own.
#[test]
fn the_gate_ends_with_a_code_when_it_is_asked_to() {
    for signal in ["-TERM", "-INT"] {
        let folder = folder();
        let mut gate = forebay(folder.path(), &["gate", "--file", "barrier"]);
        let mut gate = gate.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut lines = BufReader::new(gate.stderr.take().expect("a pipe")).lines().map_while(Result::ok);
        assert!(lines.any(|line| line.contains("waiting for the rest of the gang")), "it waits");
        let asked = Command::new("kill").args([signal, &gate.id().to_string()]).status().expect("kill");
        assert!(asked.success());
        let why: Vec<String> = lines.collect();
        assert_eq!(gate.wait().expect("it ends").code(), Some(6), "{signal}: {why:?}");
        assert!(why.iter().any(|line| line.contains("asked to end")), "{why:?}");
    }
}

/// A server that is told to end answers whoever waits with the job as it is then.
#[test]
fn a_wait_is_not_over_because_a_server_answers_before_the_time() {
    let folder = folder();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("its address"));
    std::thread::spawn(move || {
        for (phase, terminal) in [("queued", false), ("completed", true)] {
            let (asked, _) = listener.accept().expect("a request");
            let request = BufReader::new(&asked).lines().map_while(Result::ok).take_while(|line| !line.is_empty());
            assert!(request.count() > 0, "it asks");
            let job =
                json!({ "now_s": 1, "terminal": terminal, "job": "job-1", "queue": "q", "phase": phase, "gpus": 1 });
            let body = job.to_string();
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
            (&asked).write_all(format!("{head}{body}").as_bytes()).expect("an answer");
        }
    });
    let said = run(folder.path(), &["wait", "job-1", "--timeout", "40s", "--server", &url]);
    assert_eq!(said.code, 0, "{said:?}");
}

#[test]
fn what_nobody_reads_any_more_is_no_failure() {
    let folder = folder();
    for args in [&["agent", "--once", "--gpus", "none"][..], &["schema", "policy"], &["types"]] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let ended = forebay(folder.path(), args).stdout(writer).stderr(Stdio::piped()).output().expect("it runs");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!((ended.status.code(), said.as_ref()), (Some(0), ""), "{args:?}");
    }
}

#[test]
fn each_command_that_a_text_names_is_there() {
    let help = run(&root(), &["--help"]);
    let known: Vec<&str> =
        help.out.lines().filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next()).collect();
    assert!(known.contains(&"simulate"), "{help:?}");
    assert_eq!(named_commands("see `forebay tops`\n  forebay logs JOB\nforebay is\n`forebay --help`").count(), 2);
    let mut files = Vec::new();
    texts(&root(), &mut files);
    assert!(files.len() > 100, "{files:?}");
    let mut unknown = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(&path).expect("text");
        let wrong = named_commands(&text).filter(|word| !known.contains(word) && *word != "tops");
        unknown.extend(wrong.map(|word| format!("{}: forebay {word}", path.display())));
    }
    assert!(unknown.is_empty(), "{}", unknown.join("\n"));
}

//! What a submitter is told: warnings, names that are nearly right, deadlines that are over, and one job whole.

use forebay_integration::teams::{ask_json, fast, prepared, secret, start, submission, submit};
use forebay_integration::{Said, Server, forebay, run, until};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);

fn ask_as(server: &Server, folder: &Path, name: &str, args: &[&str]) -> Said {
    std::fs::write(folder.join("one.token"), secret(name)).expect("writes");
    server.ask(folder, &[args, &["--token-file", "one.token"]].concat())
}

fn submit_file(server: &Server, folder: &Path, event: &Value) -> Said {
    std::fs::write(folder.join("job.json"), event.to_string()).expect("writes");
    ask_as(server, folder, "team-a", &["submit", "job.json"])
}

fn with(subject: &str, field: &str, value: Value) -> Value {
    let mut event = submission(subject, "open", 60);
    event["data"][field] = value;
    event
}

#[test]
fn names_that_are_nearly_right_are_helped_and_warnings_are_printed() {
    let folder = prepared();
    let server = start(folder.path(), &[]);
    let said = submit_file(&server, folder.path(), &with("a", "queue", json!("opne")));
    assert!(said.code != 0 && said.err.contains("did you mean `open`?"), "{} {}", said.out, said.err);
    // A queue that takes no jobs from the caller is not told.
    let said = submit_file(&server, folder.path(), &with("b", "queue", json!("bb")));
    assert!(said.code != 0 && !said.err.contains("`b`"), "{}", said.err);
    let said = submit_file(&server, folder.path(), &with("c", "tier", json!("norml")));
    assert!(said.code != 0 && said.err.contains("did you mean `normal`?"), "{}", said.err);
    let gang = json!({ "each": { "gpus": 1, "models": ["a1g"] } });
    let said = submit_file(&server, folder.path(), &with("d", "gang", gang));
    assert!(
        said.code != 0
            && said.err.contains("there is no model `a1g`: did you mean one of")
            && said.err.contains("`a10g`"),
        "{} {}",
        said.out,
        said.err
    );
    let said = submit_file(&server, folder.path(), &with("e", "priorty", json!(7)));
    assert!(said.code == 0 && said.err.contains("did you mean `priority`?"), "{} {}", said.out, said.err);
    let mut past = with("f", "deadline", json!("2020-01-01T00:00:00Z"));
    past["data"]["expectedRun"] = json!("10m");
    let said = submit_file(&server, folder.path(), &past);
    assert!(said.code == 0 && said.err.contains("`data.deadline` was over"), "{} {}", said.out, said.err);
    let said = run(folder.path(), &["cost", "--data", "nothing-there"]);
    assert!(
        said.code != 0 && !said.err.contains("--resume") && said.err.contains("there is no journal"),
        "{}",
        said.err
    );
}

#[test]
fn a_field_that_is_given_twice_is_refused_in_a_file_as_in_a_request() {
    let folder = prepared();
    let server = start(folder.path(), &[]);
    let good = submission("good", "open", 60).to_string();
    let twice =
        submission("twice", "open", 60).to_string().replace("\"queue\":\"open\"", "\"queue\":\"a\",\"queue\":\"open\"");
    std::fs::write(folder.path().join("jobs.ndjson"), format!("{good}\n{twice}\n")).expect("writes");
    let said = ask_as(&server, folder.path(), "team-a", &["submit", "jobs.ndjson"]);
    assert_eq!(said.code, 2, "{} {}", said.out, said.err);
    assert!(
        said.err.contains("jobs.ndjson, line 2") && said.err.contains("the field `queue` is given twice"),
        "{}",
        said.err
    );
    assert!(said.out.contains("good") && !said.out.contains("twice"), "{}", said.out);
}

#[test]
fn warnings_and_refusals_of_files_and_stdin_name_file_and_line() {
    let folder = prepared();
    let server = start(folder.path(), &[]);
    let path = |name: &str| folder.path().join(name);
    let lines = [
        submission("one", "open", 60),
        with("two", "priorty", json!(7)),
        with("three", "tier", json!("norml")),
        with("four", "deadline", json!("2020-01-01T00:00:00Z")),
    ];
    let mut lines = lines.map(|event| event.to_string());
    std::fs::write(path("jobs.ndjson"), lines.join("\n\n")).expect("writes");
    let list = format!("[{},\n  {}]\n", with("five", "queue", json!("opne")), with("six", "priorty", json!(7)));
    std::fs::write(path("list.json"), list).expect("writes");
    let said = ask_as(&server, folder.path(), "team-a", &["submit", "jobs.ndjson", "list.json"]);
    assert_eq!(said.code, 2, "{said:?}");
    for (begin, part) in [
        ("warning: jobs.ndjson, line 3 (two): ", "did you mean `priority`?"),
        ("rejected: jobs.ndjson, line 5 (three): ", "did you mean `normal`?"),
        ("warning: jobs.ndjson, line 7 (four): ", "`data.deadline` was over"),
        ("rejected: list.json, line 1, column 2 (five): ", "did you mean `open`?"),
        ("warning: list.json, line 2 (six): ", "did you mean `priority`?"),
        ("note: what was warned of was taken", "`forebay schema event`"),
        ("note: mend what was rejected", "submit all of it again"),
    ] {
        let found = said.err.lines().any(|line| line.starts_with(begin) && line.contains(part));
        assert!(found, "no `{begin}` with `{part}`: {}", said.err);
    }
    // The remedies work: what was taken is known, and what was mended is taken.
    assert!(said.err.contains("is over with that: submit it mended, with `\"rerun\": true` in its `data`"), "{said:?}");
    lines[2] = with("three", "rerun", json!(true)).to_string();
    std::fs::write(path("jobs.ndjson"), lines.join("\n\n")).expect("writes");
    let again = ask_as(&server, folder.path(), "team-a", &["submit", "jobs.ndjson"]);
    assert_eq!((again.code, again.out.matches("(known already)").count()), (0, 3), "{again:?}");
    // Stdin goes by its name, and machines read the same places.
    let list =
        format!("[{},\n  {}]\n", submission("seven", "open", 60), with("eight", "gang", json!({ "workers": 0 })));
    std::fs::write(path("piped.json"), list).expect("writes");
    let piped = std::fs::File::open(path("piped.json")).expect("opens");
    let mut command = forebay(folder.path(), &["submit", "-", "--json", "--token-file", "one.token"]);
    let said: Said = command.env("FOREBAY_SERVER", &server.url).stdin(piped).output().expect("runs").into();
    let (answer, code) = (said.json(), said.code);
    let place = |one: &Value| json!([one["subject"], one["file"], one["line"], one["column"]]);
    assert_eq!(place(&answer["accepted"][0]), json!(["seven", "stdin", 1, 2]), "{answer}");
    assert_eq!(place(&answer["rejected"][0]), json!(["eight", "stdin", 2, null]), "{answer}");
    assert_eq!((code, &answer["rejected"][0]["index"]), (2, &json!(1)), "{answer}");
    // Where one file cannot be read nothing of the others is sent.
    std::fs::write(path("good.json"), submission("good", "open", 60).to_string()).expect("writes");
    std::fs::write(path("torn.ndjson"), "{}\n{\"type\":").expect("writes");
    for (file, part) in [("torn.ndjson", "torn.ndjson, line 2, column "), ("none.json", "none.json: no such file")] {
        let said = ask_as(&server, folder.path(), "team-a", &["submit", "good.json", file]);
        assert!(said.code == 2 && said.out.is_empty() && said.err.contains(part), "{said:?}");
    }
    let (status, _) = ask_json(&server, "team-a", "GET", "/v1/jobs/good", None);
    assert_eq!(status, 404);
}

#[test]
fn an_address_without_its_scheme_is_bad_input_and_the_remedy_works() {
    let folder = prepared();
    let server = start(folder.path(), &[]);
    let bare = server.url.trim_start_matches("http://");
    std::fs::write(folder.path().join("one.token"), secret("team-a")).expect("writes");
    let said = run(folder.path(), &["jobs", "--server", bare, "--token-file", "one.token"]);
    assert_eq!(said.code, 2, "{}", said.err);
    let remedy = said.err.split("write ").nth(1).and_then(|rest| rest.split_whitespace().next()).expect("a remedy");
    let said = run(folder.path(), &["jobs", "--server", remedy, "--token-file", "one.token"]);
    assert_eq!(said.code, 0, "{}", said.err);
}

#[test]
fn a_replica_goes_by_the_name_that_it_is_listed_with() {
    let folder = prepared();
    let server = start(folder.path(), &[]);
    let mut service = with("chat", "service", json!({ "min": 1, "max": 2, "target": 4 }));
    service["data"]["simulation"] = json!({ "durationS": 36_000 });
    submit(&server, "team-a", &service);
    let listed = || {
        let said = ask_as(&server, folder.path(), "team-a", &["jobs", "-o", "subject"]);
        if said.out.contains("chat/0") { Ok(()) } else { Err(format!("{} {}", said.out, said.err)) }
    };
    until("it has a replica", SOON, listed);
    let job = ask_as(&server, folder.path(), "team-a", &["job", "chat/0"]);
    assert!(job.code == 0 && job.out.contains("chat/0"), "{} {}", job.out, job.err);
    // What it holds is charged to its service, and that is whose cost it has.
    let record = ask_as(&server, folder.path(), "team-a", &["job", "chat/0", "--json"]).json();
    assert!(record["job"]["of"].is_string() && record["cost"]["job"] == record["job"]["of"], "{record}");
    let cancel = ask_as(&server, folder.path(), "team-a", &["cancel", "chat/0"]);
    assert!(cancel.code != 0 && cancel.err.contains("is a replica of"), "{} {}", cancel.out, cancel.err);
    let other = ask_as(&server, folder.path(), "team-a", &["job", "chat/7"]);
    assert!(other.err.contains("there is no job"), "{} {}", other.out, other.err);
}

#[test]
fn who_cancels_anothers_job_is_told_whose_it_was() {
    let folder = prepared();
    let server = start(folder.path(), &[]);
    for subject in ["one", "two"] {
        submit(&server, "team-a", &submission(subject, "open", 36_000));
    }
    let own = ask_as(&server, folder.path(), "team-a", &["cancel", "one"]);
    assert!(own.code == 0 && own.out.contains("(one)") && !own.out.contains("submitted by"), "{own:?}");
    let other = ask_as(&server, folder.path(), "night-ops", &["cancel", "two"]);
    assert!(other.code == 0 && other.out.contains("(two), submitted by team-a in tenant default,"), "{other:?}");
    for (name, own) in [("ops", false), ("team-a", true)] {
        let answer = ask_as(&server, folder.path(), name, &["cancel", "two", "--json"]).json();
        let whose = json!({ "tenant": answer["tenant"], "principal": answer["principal"], "own": answer["own"] });
        assert_eq!(whose, json!({ "tenant": "default", "principal": "team-a", "own": own }), "{answer}");
    }
}

#[test]
fn one_job_is_shown_whole_and_its_cost_is_its_row_of_the_bill() {
    let folder = prepared();
    let server = fast(folder.path());
    submit(&server, "team-a", &submission("whole", "open", 600));
    until("it is done", SOON, || {
        let (_, job) = ask_json(&server, "team-a", "GET", "/v1/jobs/whole", None);
        if job["phase"] == "completed" { Ok(()) } else { Err(job.to_string()) }
    });
    let said = ask_as(&server, folder.path(), "team-a", &["job", "whole", "--json"]);
    assert_eq!(said.code, 0, "{}", said.err);
    let record: Value = serde_json::from_str(&said.out).expect("JSON");
    let attempt = &record["attempts"][0];
    assert_eq!((&attempt["attempt"], &attempt["ended"]), (&json!(1), &json!("completed")));
    assert!(attempt["ran_s"].as_f64().is_some_and(|ran| (540.0..900.0).contains(&ran)), "{attempt}");
    assert!(attempt["wait_s"].as_f64().is_some_and(|wait| wait > 0.0), "{attempt}");
    assert!(!attempt["nodes"].as_array().expect("nodes").is_empty(), "{attempt}");
    let cost = record["cost"]["cost_usd"].as_f64().expect("a cost");
    let rows: f64 =
        record["cost"]["rows"].as_array().expect("rows").iter().filter_map(|row| row["cost_usd"].as_f64()).sum();
    assert!(cost > 0.0 && (rows - cost).abs() < 1e-6, "{rows} {cost}");
    let (_, bill) = ask_json(&server, "ops", "GET", "/v1/cost?by=job", None);
    let row =
        bill["rows"].as_array().expect("rows").iter().find(|row| row["key"] == record["job"]["job"]).expect("its row");
    assert!((row["cost_usd"].as_f64().expect("a cost") - cost).abs() < 2e-6, "{row} {cost}");
    let (_, spread) = ask_json(&server, "ops", "GET", "/v1/cost?by=job&spread=true", None);
    let of_jobs = |bill: &Value| {
        bill["rows"]
            .as_array()
            .expect("rows")
            .iter()
            .all(|row| row["key"].as_str().is_some_and(|key| key.starts_with("job-")))
    };
    assert!(of_jobs(&spread) && !of_jobs(&bill), "{spread} {bill}");
    assert_eq!(spread["total_usd"], bill["total_usd"]);
    let (status, refused) = ask_json(&server, "team-a", "GET", "/v1/cost?by=job&spread=true", None);
    assert_eq!(status, 403, "{refused}");
    let (status, refused) = ask_json(&server, "ops", "GET", "/v1/cost?by=pool&spread=true", None);
    assert_eq!(status, 400, "{refused}");
    let said = ask_as(&server, folder.path(), "team-a", &["job", "whole"]);
    assert!(said.out.contains("ATTEMPT") && said.out.contains("completed") && said.out.contains("USD"), "{}", said.out);
    let said = ask_as(&server, folder.path(), "stranger", &["job", "whole"]);
    assert!(said.code != 0 && said.err.contains("there is no job"), "{}", said.err);
    // The folder says the same, with a server on it and without.
    let of_server = ask_as(&server, folder.path(), "ops", &["jobs", "--all", "--json"]);
    let of_server: Value = serde_json::from_str(&of_server.out).expect("JSON");
    let entries = std::fs::read_dir(folder.path()).expect("a folder");
    let mut folders = entries.map(|entry| entry.expect("an entry").path());
    let data = folders.find(|path| path.join("journal.sqlite").exists()).expect("the replay's own folder");
    let data = data.to_str().expect("text");
    let mut running = Some(server);
    for _ in 0..2 {
        let of_folder = |args: &[&str]| -> Value {
            let said = run(folder.path(), &[args, &["--data", data, "--json"]].concat());
            serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {said:?}"))
        };
        let found = of_folder(&["job", "whole"]);
        assert_eq!((&found["attempts"], &found["statuses"]), (&record["attempts"], &record["statuses"]));
        assert_eq!((&found["cost"]["rows"], &found["job"]["job"]), (&record["cost"]["rows"], &record["job"]["job"]));
        assert_eq!(of_folder(&["jobs", "--all"])["jobs"], of_server["jobs"]);
        assert_eq!(of_folder(&["jobs", "--queue", "open"])["jobs"], json!([]));
        running.take().into_iter().for_each(Server::kill);
    }
    let said = run(folder.path(), &["job", "hole", "--data", data]);
    assert!(said.code == 2 && said.err.contains("there is no job `hole`"), "{said:?}");
}

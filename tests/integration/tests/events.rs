//! Events in and statuses out over HTTP, by who has a token: a job's own stream, reports of runs, repeats, and what is refused.

use forebay_integration::teams::{ask, ask_json, fast, prepared, secret, start, submission, submit};
use serde_json::{Value, json};

#[test]
fn a_jobs_own_stream_begins_at_its_first_status_and_ends_with_its_last() {
    let folder = prepared();
    let server = fast(folder.path());
    submit(&server, "team-a", &submission("train", "a", 60));
    let path = "/v1/jobs/train/events";
    // Followed while it runs: the answer ends when the job does.
    let (status, followed) = ask(&server, "team-a", "GET", path, None);
    assert_eq!(status, 200, "{followed}");
    let statuses = |text: &str| -> Vec<Value> {
        let lines = text.lines().filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e} in {line}"))).collect()
    };
    let all = statuses(&followed);
    let kinds: Vec<&str> = all.iter().filter_map(|s| s["type"].as_str()).collect();
    assert_eq!((kinds.first(), kinds.last()), (Some(&"status.queued"), Some(&"status.completed")), "{kinds:?}");
    let seqs: Vec<u64> = all.iter().filter_map(|s| s["data"]["seq"].as_u64()).collect();
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>(), "no gap, no double");
    assert!(all.iter().all(|s| s["subject"] == "train"), "{followed}");
    assert_eq!(statuses(&ask(&server, "team-a", "GET", &format!("{path}?after=2"), None).1), all[2..]);
    let bearer = format!("Bearer {}", secret("team-a"));
    let resumed = [("authorization", bearer.as_str()), ("accept", "text/event-stream"), ("last-event-id", "1")];
    let (_, events) = server.send("GET", path, &resumed, b"");
    assert!(events.starts_with("id: 2\nevent: status.") && events.contains("\n\nid: 3\n"), "{events}");
    assert_eq!(events.matches("\ndata: ").count(), all.len() - 1, "{events}");
    // After a restart nothing is in memory: the same comes from the file.
    drop(server);
    let server = start(folder.path(), &[]);
    assert_eq!(statuses(&ask(&server, "team-a", "GET", path, None).1), all);
    assert_eq!(statuses(&ask(&server, "team-a", "GET", &format!("{path}?after=2"), None).1), all[2..]);
    let last = seqs.len();
    assert_eq!(ask(&server, "team-a", "GET", &format!("{path}?after={last}"), None), (200, String::new()));
    submit(&server, "team-a", &submission("open", "a", 36_000));
    let (_, so_far) = ask(&server, "team-a", "GET", "/v1/jobs/open/events?follow=false", None);
    assert_eq!(statuses(&so_far)[0]["type"], "status.queued", "{so_far}");
}

#[test]
fn reports_of_runs_need_the_token_of_their_attempt() {
    let folder = prepared();
    let server = fast(folder.path());
    let job = submit(&server, "team-a", &submission("train", "a", 3_000_000));
    // Until it runs: the stream is read as it comes.
    let config =
        ureq::Agent::config_builder().timeout_global(Some(std::time::Duration::from_secs(30))).proxy(None).build();
    let stream = ureq::Agent::from(config)
        .get(format!("{}/v1/jobs/{job}/events", server.url))
        .header("authorization", format!("Bearer {}", secret("team-a")))
        .call()
        .expect("a stream");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(stream.into_body().into_reader()));
    let started = lines.find_map(|line| Some(line.expect("a line")).filter(|line| line.contains("status.started")));
    let attempt = serde_json::from_str::<Value>(&started.expect("it starts")).expect("JSON")["data"]["attempt"].clone();
    let report = |token: &str| {
        let data = json!({ "job": job, "attempt": attempt, "token": token });
        ask_json(&server, "team-a", "POST", "/v1/events", Some(&json!({ "type": "run.completed", "data": data })))
    };
    for forged in ["", "0123456789abcdef0123456789abcdef", &secret("team-a")] {
        let (status, answer) = report(forged);
        assert_eq!((status, &answer["error"]["code"]), (400, &json!("Token")), "{answer}");
        assert!(forged.is_empty() || !answer.to_string().contains(forged), "{answer}");
    }
    let text =
        std::fs::read_to_string(folder.path().join("d/attempt.key")).expect("the key is in the journal's folder");
    let key: Vec<u8> = (0..32).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).expect("hex")).collect();
    let key: [u8; 32] = key.try_into().expect("32 bytes");
    let hash = blake3::keyed_hash(&key, format!("{job}/attempt-{attempt}").as_bytes());
    let (status, answer) = report(&hash.to_hex()[..32]);
    assert_eq!((status, &answer["accepted"][0]["new"]), (202, &json!(true)), "{answer}");
    let (_, over) = ask_json(&server, "team-a", "GET", &format!("/v1/jobs/{job}?waitFor=terminal&timeout=30s"), None);
    assert_eq!(over["phase"], "completed", "{over}");
}

#[test]
fn ten_thousand_submissions_again_under_new_ids_are_no_second_job() {
    let folder = prepared();
    let server = start(folder.path(), &[]);
    let post = |round: u32, from: u32| -> Vec<Value> {
        let events: Vec<Value> = (from..from + 1_000)
            .map(|n| {
                let mut event = submission(&format!("j{n}"), "a", 36_000);
                for (name, value) in [("specversion", "1.0"), ("source", "//team-a"), ("id", &format!("{round}-{n}"))] {
                    event[name] = json!(value);
                }
                event
            })
            .collect();
        let (status, taken) = ask_json(&server, "team-a", "POST", "/v1/events", Some(&Value::from(events)));
        assert_eq!((status, &taken["rejected"]), (202, &json!([])), "{status}");
        let taken = taken["accepted"].as_array().cloned().expect("accepted");
        assert!(taken.iter().all(|one| one["new"] == (round == 0)), "round {round}");
        taken.iter().map(|one| one["job"].clone()).collect()
    };
    let first: Vec<Vec<Value>> = (0..10).map(|part| post(0, part * 1_000)).collect();
    let again: Vec<Vec<Value>> = (0..10).map(|part| post(1, part * 1_000)).collect();
    assert_eq!(first, again, "the same jobs");
    let (_, figures) = ask_json(&server, "team-a", "GET", "/v1/summary", None);
    assert_eq!(figures["jobs"], 10_000, "{figures}");
    println!("10000 submissions, 10000 again under new ids, {} jobs", figures["jobs"]);
}

/// An event that is not taken: its name, its JSON, the code and a part of what is said.
type Bad = (&'static str, String, &'static str, &'static str);

fn bad_events() -> Vec<Bad> {
    let with = |edit: &dyn Fn(&mut Value)| {
        let mut event = submission("bad", "a", 60);
        edit(&mut event);
        event.to_string()
    };
    let run = |run: Value| with(&|e| e["data"]["run"] = run.clone());
    let queue = |name: &str| with(&|e| e["data"]["queue"] = json!(name));
    vec![
        ("wrong type", with(&|e| e["type"] = json!("job.exploded")), "UnknownType", "job.submitted"),
        ("a number as type", with(&|e| e["type"] = json!(7)), "BadValue", "not text"),
        ("an array as event", "[]".into(), "Malformed", "object"),
        ("a future version", with(&|e| e["specversion"] = json!("2.0")), "FutureVersion", "specversion 1.0"),
        ("a gang of zero", with(&|e| e["data"]["gang"]["workers"] = json!(0)), "BadValue", "from 1"),
        ("a forbidden queue", queue("b"), "ForbiddenQueue", "submitters"),
        (
            "no checkpoint URI",
            with(&|e| e["data"]["checkpoint"] = json!({"uri": "not a uri", "every": "10m"})),
            "BadValue",
            "uri",
        ),
        (
            "an inline secret",
            run(json!({"template": "t", "env": {"AWS_SECRET_ACCESS_KEY": "x"}, "secrets": [{"value": "x"}]})),
            "Inline",
            "secret",
        ),
        (
            "a forged report",
            json!({"type": "run.completed", "data": {"job": "job-0", "attempt": 1, "token": "forged"}}).to_string(),
            "Token",
            "token",
        ),
        ("a queue with a newline", queue("a\nb"), "BadValue", "cannot be seen"),
        ("a queue with a NUL", queue("a\u{0}"), "BadValue", "cannot be seen"),
        ("a queue of 10 kB", queue(&"q".repeat(10_000)), "BadValue", "bytes"),
        ("a queue with quotes", queue("a\"'`b"), "UnknownQueue", ""),
        ("1.5 MiB", with(&|e| e["data"]["labels"] = json!({"x": "y".repeat(3 << 19)})), "TooLarge", "1048576"),
        (
            "a deep one",
            format!("{{\"type\":\"job.submitted\",\"x\":{}1{}}}", "[".repeat(500), "]".repeat(500)),
            "Malformed",
            "recursion",
        ),
    ]
}

#[test]
fn a_bad_event_has_its_code_and_the_next_one_goes_on() {
    let folder = prepared();
    let server = start(folder.path(), &[]);
    for (n, (what, event, code, part)) in bad_events().into_iter().enumerate() {
        let good = submission(&format!("good-{n}"), "a", 60);
        let bearer = format!("Bearer {}", secret("team-a"));
        for (kind, body) in
            [("application/json", format!("[{event},{good}]")), ("application/x-ndjson", format!("{event}\n{good}\n"))]
        {
            let headers = [("authorization", bearer.as_str()), ("content-type", kind)];
            // Another job each time: a job that was rejected is known the second time.
            let body = body.replace("\"bad\"", &format!("\"bad {n} {kind}\""));
            let (status, text) = server.send("POST", "/v1/events", &headers, body.as_bytes());
            assert_eq!(status, 202, "{what} as {kind}: {text}");
            let answer: Value = serde_json::from_str(&text).expect("JSON");
            let refused = &answer["rejected"][0];
            assert_eq!((&refused["index"], &refused["code"]), (&json!(0), &json!(code)), "{what} as {kind}: {text}");
            assert!(refused["message"].as_str().is_some_and(|m| m.contains(part)), "{what}: {text}");
            assert_eq!(answer["accepted"][0]["subject"], format!("good-{n}"), "{what}: {text}");
            assert!(text.len() < 8_192, "{what}: an answer of {} bytes", text.len());
        }
    }
    let bearer = format!("Bearer {}", secret("team-a"));
    let send = |kind: &str, body: &[u8]| {
        server.send("POST", "/v1/events", &[("authorization", &bearer), ("content-type", kind)], body)
    };
    let (status, text) = send("application/json", &vec![b' '; 10 << 20]);
    assert_eq!((status, text.contains("TooLarge")), (413, true), "{text}");
    for body in [&b"{\"type\":"[..], b"hello", b"{\"type\":\"job.submitted\",\"subject\":\"\xff\xfe\"}"] {
        let (status, text) = send("application/json", body);
        assert_eq!((status, text.contains("Malformed")), (400, true), "{text}");
        let lines = [body, b"\n", submission("after", "a", 60).to_string().as_bytes()].concat();
        let (status, text) = send("application/x-ndjson", &lines);
        assert_eq!((status, text.contains("Malformed"), text.contains("\"after\"")), (202, true, true), "{text}");
    }
    // What is not known is kept, and told; not without end.
    let mut many = submission("odd", "a", 60);
    (0..5_000).for_each(|n| many["data"][format!("field{n}")] = json!(n));
    let (status, answer) = ask_json(&server, "team-a", "POST", "/v1/events", Some(&many));
    let warnings = answer["accepted"][0]["warnings"].as_array().cloned().expect("warnings");
    assert_eq!((status, warnings.len()), (202, 9), "{warnings:?}");
    assert!(warnings[0].as_str().is_some_and(|w| w.contains("carried along")), "{warnings:?}");
    assert!(warnings[8].as_str().is_some_and(|w| w.contains("4992 more fields")), "{:?}", warnings[8]);
    // Each of them is counted: the bad ones twice, the body that is too large, and what is no JSON, alone and among lines.
    let (_, sources) = ask_json(&server, "ops", "GET", "/v1/sources", None);
    let rejected = sources["http"]["rejected"].as_object().expect("by code");
    let all: u64 = rejected.values().filter_map(Value::as_u64).sum();
    assert_eq!(all, 2 * bad_events().len() as u64 + 1 + 3 + 3, "{rejected:?}");
    assert_eq!((&rejected["TooLarge"], &sources["http"]["warnings"]), (&json!(3), &json!(9)), "{sources}");
}

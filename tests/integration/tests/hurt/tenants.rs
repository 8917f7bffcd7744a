//! Tenants and names: a subject is never another's number, what one tenant has open is bounded, and no name hides anything.

use forebay_integration::teams::{ask, ask_json, prepared, start, submission, submit, write};
use serde_json::{Value, json};

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

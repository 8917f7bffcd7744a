//! Expressions of a policy that would take for ever on an event: `check` says so, and such an event is rejected after a stated number of
//! steps, while others are served.

use crate::many;
use crate::wire::timed;
use forebay_integration::run;
use forebay_integration::teams::{ask, ask_json, prepared, start, submission, write};
use serde_json::json;
use std::time::Duration;

/// Routes that compare each argument with each, and with each again.
const SQUARED: &str = "job.run.args.exists(a, job.run.args.exists(b, a + b == 'never'))";
const CUBED: &str = "job.run.args.exists(a, job.run.args.exists(b, job.run.args.exists(c, a + b == c + 'never')))";

fn policy(folder: &std::path::Path, route: &str) {
    let policy = std::fs::read_to_string(folder.join("policy.yaml")).expect("reads");
    let policy = policy.split("\nroutes:").next().unwrap_or_default().trim_end().to_owned();
    write(folder, "policy.yaml", &format!("{policy}\nroutes:\n  - {{when: \"{route}\", queue: open}}\n"));
}

#[test]
fn an_expression_that_takes_for_ever_rejects_its_event_and_others_are_served() {
    for route in [SQUARED, CUBED] {
        let folder = prepared();
        policy(folder.path(), route);
        let checked = run(folder.path(), &["check", "policy.yaml"]);
        assert_eq!(checked.code, 0, "{checked:?}");
        assert!(format!("{}{}", checked.out, checked.err).contains("lists within lists"), "{checked:?}");
        let server = start(folder.path(), &[]);
        let args: Vec<String> = (0..many(4_000, 16_000)).map(|n| format!("--{n}")).collect();
        let heavy = |n: usize| {
            let mut event = submission(&format!("heavy-{n}"), "a", 36_000);
            event["data"]["run"] = json!({ "template": "t", "args": args });
            event
        };
        std::thread::scope(|scope| {
            let asked: Vec<_> = (0..4)
                .map(|n| {
                    let (server, event) = (&server, heavy(n));
                    scope.spawn(move || timed(|| ask_json(server, "team-a", "POST", "/v1/events", Some(&event))))
                })
                .collect();
            for n in 0..10 {
                let (took, (status, text)) = timed(|| server.send("GET", "/healthz", &[], b""));
                assert!(status == 200 && took < Duration::from_secs(5), "{took:?} {text}");
                let small = submission(&format!("small-{n}"), "b", 36_000);
                assert_eq!(ask(&server, "team-b", "POST", "/v1/events", Some(&small)).0, 202);
            }
            for asked in asked {
                let (took, (status, answer)) = asked.join().expect("an answer");
                println!("an event of {} arguments: rejected after {took:?}", args.len());
                assert!(status == 400 && answer["error"]["code"] == "Route", "{status} {answer}");
                assert!(
                    answer["error"]["message"].as_str().is_some_and(|text| text.contains("500000 steps")),
                    "{answer}"
                );
            }
        });
    }
}

#[test]
fn an_expression_that_goes_through_all_once_is_evaluated() {
    let folder = prepared();
    policy(folder.path(), "job.run.args.exists(a, a == '--15999')");
    assert!(!run(folder.path(), &["check", "policy.yaml"]).out.contains("lists within lists"));
    let server = start(folder.path(), &[]);
    let mut event = submission("long", "a", 36_000);
    event["data"]["run"] =
        json!({ "template": "t", "args": (0..16_000).map(|n| format!("--{n}")).collect::<Vec<_>>() });
    let (status, taken) = ask_json(&server, "team-a", "POST", "/v1/events", Some(&event));
    assert_eq!(status, 202, "{taken}");
    assert_eq!(ask_json(&server, "team-a", "GET", "/v1/jobs/long", None).1["queue"], "open", "the route has chosen");
}

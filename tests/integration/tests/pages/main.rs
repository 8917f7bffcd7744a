//! The pages in Chromium: the figures are those of the bill, axe finds nothing in anyone's way in the light, in the dark, on a telephone and on a
//! wall, names from outside are text, and who has no token sees nothing. Screenshots stay in the build folder, `tmp/pages`.
//!
//! Never: a page that is not on loopback.

use forebay_integration::teams::{ask_json, fast, prepared, secret, submission, submit, write};
use forebay_integration::{Server, root, run, until};
use forebay_parts::Chromium;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Some visits of a second or two each, on a machine where each takes a minute.
const LIMIT: Duration = Duration::from_secs(900);

/// A month: at 600 times the speed it lasts longer than any visit.
const LONG_S: u32 = 30 * 24 * 3_600;

/// A place to look at, how wide, in the dark, with scripts, and how often the key Tab is pressed there.
fn visit(name: &str, path: &str, width: u32, dark: bool, script: bool, press: u32) -> Value {
    json!({ "name": name, "path": path, "width": width, "dark": dark, "script": script, "press": press })
}

/// Visits pages in Chromium.
fn see(server: &Server, token: Option<String>, visits: &[Value]) -> Vec<Value> {
    let chromium = Chromium::install().unwrap_or_else(|e| panic!("{e}"));
    let shots = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("pages");
    std::fs::create_dir_all(&shots).expect("a folder for screenshots");
    let script = root().join("tests/integration/tests/pages/visit.cjs");
    let question = json!({ "url": server.url, "token": token, "shots": shots, "visits": visits }).to_string();
    let printed = chromium.run(&script, &question, LIMIT).unwrap_or_else(|e| panic!("{e}"));
    println!("screenshots: {}", shots.display());
    let seen: Vec<Value> = serde_json::from_str(&printed).unwrap_or_else(|e| panic!("{e} in {printed}"));
    assert_eq!(seen.len(), visits.len());
    seen
}

/// Nothing is in anyone's way, nothing is wider than the window, no script complains, and no script of another could write.
fn is_sound(seen: &Value) {
    let name = &seen["name"];
    assert!(seen["wider"].as_i64().is_some_and(|wider| wider <= 0), "{name} scrolls sideways: {}", seen["wider"]);
    if !seen["said"].is_null() {
        assert_eq!(
            (&seen["said"], &seen["barriers"], &seen["writes"]),
            (&json!([]), &json!([]), &json!("refused")),
            "{name}"
        );
        assert!(seen["rules"].as_u64().is_some_and(|rules| rules > 10), "axe looked at {name}: {}", seen["rules"]);
    }
}

/// A figure as a page writes it.
fn figure(text: &str) -> f64 {
    let digits: String = text.chars().filter(|c| c.is_ascii_digit() || matches!(c, '.' | '-')).collect();
    digits.parse().unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// The money of a table's rows by their first cells, the last of which is their sum.
fn money(seen: &Value, caption: &str, column: usize) -> Vec<(String, f64)> {
    let rows = seen["tables"][caption].as_array().unwrap_or_else(|| panic!("{caption}: {}", seen["tables"]));
    let cell = |row: &Value, at: usize| row[at]["text"].as_str().unwrap_or_default().to_owned();
    rows.iter().map(|row| (cell(row, 0), figure(&cell(row, column)))).collect()
}

/// A table's rows are those of a bill in cents, dearest first, and its sum is the bill's.
fn is_bill(seen: &Value, caption: &str, bill: &Value) {
    let mut rows = money(seen, caption, 1);
    let (_, sum) = rows.pop().expect("a sum");
    let total = bill["total_usd"].as_f64().expect("a total");
    assert!((sum - total).abs() <= 0.005_000_1, "{caption}: {sum} USD and {total}");
    let added: f64 = rows.iter().map(|(_, usd)| usd).sum();
    assert!((added - sum).abs() < 1e-6, "{caption}: rows add up to {added}, not to {sum}");
    assert!(rows.windows(2).all(|two| two[0].1 >= two[1].1 || two[1].0.ends_with("others)")), "{caption}: {rows:?}");
    let billed = bill["rows"].as_array().expect("rows");
    assert!(!billed.is_empty() && (rows.len() == billed.len() || rows.len() == 20), "{caption}: {rows:?}");
    for (key, usd) in rows.iter().filter(|(key, _)| !key.ends_with("others)")) {
        let row = billed.iter().find(|row| row["key"] == **key).unwrap_or_else(|| panic!("{caption}: {key} in {bill}"));
        let cost = row["cost_usd"].as_f64().expect("money");
        assert!((usd - cost).abs() < 0.01, "{caption}: {key} is {usd} on the page, and {cost}");
    }
}

/// A day of three teams' work, served afterwards.
fn served_day(folder: &Path) -> Server {
    served_day_under(folder, &[])
}

/// The same, replayed with these arguments too.
fn served_day_under(folder: &Path, more: &[&str]) -> Server {
    let file = root().join("examples/day.jsonl").canonicalize().expect("the example");
    let replay =
        ["run", "--replay", file.to_str().expect("a path"), "--speed", "max", "--exit-when-drained", "--data", "d"];
    let said = run(folder, &[&replay[..], more].concat());
    assert_eq!(said.code, 0, "{said:?}");
    Server::start(folder, &["--data", "d", "--accept-time"])
}

#[test]
fn money_is_the_bill_wherever_it_is_looked_at() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = served_day(folder.path());
    let spot = "/money?from=&of=capacity%3Dspot&split=tenant";
    let seen = see(
        &server,
        None,
        &[
            visit("money", "/money?from=", 1280, false, true, 14),
            visit("money-dark", "/money?from=&split=queue", 1280, true, true, 0),
            visit("money-360", "/money?from=", 360, false, true, 0),
            visit("money-360-dark", "/money?from=&split=kind", 360, true, true, 0),
            visit("money-4k", "/money?from=&split=type", 3840, false, true, 0),
            visit("money-no-script", "/money?from=", 1280, false, false, 0),
            visit("money-spot", spot, 1280, false, true, 0),
            visit("money-empty", "/money", 1280, false, true, 0),
            visit("money-wrong", "/money?from=yesterday", 360, false, true, 0),
        ],
    );
    seen.iter().filter(|seen| seen["name"] != "money-wrong").for_each(is_sound);
    let by = |by: &str| server.get(&format!("/v1/cost?by={by}")).1;
    let total = by("queue")["total_usd"].as_f64().expect("a total");
    assert!(total > 100.0, "a day costs something: {total}");
    assert!((server.get("/v1/summary").1["cost_usd"].as_f64().expect("money") - total).abs() < 1e-6);
    for page in seen.iter().take(6) {
        let tile = figure(page["tiles"]["Spent"].as_str().expect("a tile"));
        assert!((tile - total).abs() <= 0.005_000_1, "{}: {tile} and {total}", page["name"]);
        for (caption, what) in [
            ("By queue", "queue"),
            ("By tenant", "tenant"),
            ("By tier", "tier"),
            ("By capacity", "capacity"),
            ("By type", "type"),
            ("By pool", "pool"),
            ("What it was, and what was wasted", "kind"),
        ] {
            is_bill(page, caption, &by(what));
        }
    }
    // Over time: hours add up to the day, whatever they are split by, and both are drawn.
    let hours = money(&seen[0], "Spend in USD by capacity", 3);
    let (_, all) = hours.last().expect("a sum");
    assert!(hours.len() > 24 && (all - total).abs() <= 0.005_000_1, "{hours:?}");
    assert!(
        seen[0]["drawn"]
            .as_array()
            .is_some_and(|plots| plots.len() == 2 && plots.iter().all(|colours| colours.as_u64() > Some(2)))
    );
    assert_eq!(seen[5]["plots"], json!(0), "without scripts the tables are all there is");
    // By keyboard alone: the pages, the ranges, the form, the tables.
    let focus: Vec<&str> = seen[0]["focus"].as_array().expect("focus").iter().filter_map(Value::as_str).collect();
    for place in ["/", "/money", "from", "to", "split", "Show", "The figures of the plot", "By queue"] {
        assert!(focus.contains(&place), "{place} cannot be reached by keyboard: {focus:?}");
    }
    // "Which team spent what on spot": one page, one command, the same figures.
    let told = server.ask(folder.path(), &["cost", "--by", "tenant", "--of", "capacity=spot", "--json"]);
    assert_eq!(told.code, 0, "{told:?}");
    is_bill(&seen[6], "By tenant", &told.json());
    assert_eq!(told.json(), server.get("/v1/cost?by=tenant&of=capacity%3Dspot").1);
    assert!(seen[6]["tables"].get("By capacity").is_none(), "all of it is spot");
    // Each row leads to what it is made of, down to a job.
    let row = &seen[6]["tables"]["By queue"][0];
    let (queue, link) = (row[0]["text"].as_str().expect("a queue"), row[0]["link"].as_str().expect("a link"));
    let inside = see(&server, None, &[visit("money-queue", link, 1280, false, true, 0)]).remove(0);
    is_sound(&inside);
    assert_eq!(
        figure(inside["tiles"]["Spent"].as_str().expect("a tile")),
        figure(row[1]["text"].as_str().expect("money")),
        "{queue}"
    );
    assert!(
        inside["tables"]["Dearest jobs"][0][0]["text"]
            .as_str()
            .is_some_and(|job| job.starts_with("job-") && job.ends_with(queue))
    );
    // Nothing was spent in the last week; and what cannot be read is told, with the way on.
    assert_eq!(seen[7]["tiles"]["Spent"], json!("0.00 USD"));
    assert_eq!(seen[8]["status"], json!(400));
    assert!(
        seen[8]["alert"].as_str().is_some_and(|alert| alert.contains("write a day such as 2026-11-24")),
        "{}",
        seen[8]["alert"]
    );
    for wrong in
        ["of=spot", "of=colour%3Dred", "split=colour", "colour=red", "by=queue%3D", "of=capacity%3Dspot&spread=true"]
    {
        let path = if wrong.starts_with("split") { "/money" } else { "/v1/cost" };
        let (status, said) = server.send("GET", &format!("{path}?{wrong}"), &[], &[]);
        assert_eq!(status, 400, "{wrong}: {said}");
    }
}

/// The days of a range, as the command takes it and as the page's address has it. The example goes on after it.
const RANGE: [&str; 4] = ["--from", "2026-11-02", "--to", "2026-11-03"];
const RANGE_OF_PAGE: &str = "from=2026-11-02&to=2026-11-03";

/// Kinds that are nobody's and have rows of their own wherever rows are those of jobs.
const NOBODYS: [&str; 3] = ["boot", "idle", "fragmentation"];

/// What a bill has under a name that begins so, in US dollars.
fn beginning(bill: &Value, start: &str) -> f64 {
    let rows = bill["rows"].as_array().expect("rows");
    let of_start = rows.iter().filter(|row| row["key"].as_str().is_some_and(|key| key.starts_with(start)));
    of_start.filter_map(|row| row["cost_usd"].as_f64()).sum()
}

#[test]
fn what_teams_spent_on_spot_in_a_range_and_what_was_wasted_is_one_command_and_one_page() {
    let folder = tempfile::tempdir().expect("a folder");
    let policy = std::fs::read_to_string(root().join("policies/spot-first.yaml")).expect("reads");
    write(folder.path(), "policy.yaml", &format!("{policy}\nbilling: {{labels: [team]}}\n"));
    let server = served_day_under(folder.path(), &["--policy", "policy.yaml"]);
    let cost = |more: &[&str]| {
        let told = server.ask(folder.path(), &[&["cost", "--json"][..], more, &RANGE].concat());
        assert_eq!(told.code, 0, "{told:?}");
        told.json()
    };
    let on_spot = cost(&["--by", "label:team", "--of", "capacity=spot"]);
    let teams: Vec<&str> = on_spot["rows"].as_array().expect("rows").iter().filter_map(|r| r["key"].as_str()).collect();
    let named = teams.iter().filter(|team| !team.starts_with('(')).copied().collect::<Vec<_>>();
    assert!(named.len() >= 3, "{teams:?}");
    let visits = [
        visit("spot", &format!("/money?{RANGE_OF_PAGE}&of=capacity%3Dspot&split=label%3Ateam"), 1280, false, true, 0),
        visit("waste", &format!("/money?{RANGE_OF_PAGE}&split=kind"), 1280, true, true, 0),
        visit("waste-of-team", &format!("/money?{RANGE_OF_PAGE}&of=label%3Ateam%3D{}", named[0]), 360, false, true, 0),
    ];
    let seen = see(&server, None, &visits);
    seen.iter().for_each(is_sound);

    // Which team spent what on spot.
    is_bill(&seen[0], "By label:team", &on_spot);
    let spent = figure(seen[0]["tiles"]["Spent"].as_str().expect("a tile"));
    assert!((spent - on_spot["total_usd"].as_f64().expect("money")).abs() <= 0.005_000_1, "{spent}: {on_spot}");
    let path = format!("/v1/cost?by=label%3Ateam&of=capacity%3Dspot&{RANGE_OF_PAGE}");
    assert_eq!(on_spot, server.get(&path).1);
    let (_, whole) = server.get("/v1/cost?by=label%3Ateam&of=capacity%3Dspot");
    assert!(whole["total_usd"].as_f64() > on_spot["total_usd"].as_f64(), "the range leaves something out: {whole}");

    // What was wasted, and why: by kind, what was nobody's by its cause and pool, and each team's own.
    let kinds = cost(&["--by", "kind"]);
    is_bill(&seen[1], "What it was, and what was wasted", &kinds);
    let waste = kinds["total_usd"].as_f64().expect("money") - beginning(&kinds, "worked");
    let shown = figure(seen[1]["tiles"]["Not work"].as_str().expect("a tile"));
    assert!(waste > 0.0 && (shown - waste).abs() < 0.1, "{shown} USD were no work, by kind {waste}: {kinds}");
    let by_team = cost(&["--by", "label:team"]);
    is_bill(&seen[1], "By label:team", &by_team);
    for kind in NOBODYS {
        let (of_kind, of_cause) = (beginning(&kinds, kind), beginning(&by_team, &format!("({kind}, pool ")));
        assert!(of_kind > 0.0 && (of_kind - of_cause).abs() < 1e-4, "{kind}: {of_kind} and {of_cause}");
    }
    let own: Vec<Value> = by_team["rows"]
        .as_array()
        .expect("rows")
        .iter()
        .filter_map(|row| row["key"].as_str())
        .map(|team| cost(&["--by", "kind", "--of", &format!("label:team={team}")]))
        .collect();
    for kind in ["worked", "lost", "booked"] {
        let of_teams: f64 = own.iter().map(|bill| beginning(bill, kind)).sum();
        let of_kind = beginning(&kinds, kind);
        assert!(of_kind > 0.0 && (of_kind - of_teams).abs() < 1e-4, "{kind}: {of_kind}, of all teams {of_teams}");
    }
    let first = cost(&["--by", "kind", "--of", &format!("label:team={}", named[0])]);
    is_bill(&seen[2], "What it was, and what was wasted", &first);
}

#[test]
fn names_are_text_and_who_has_no_token_sees_nothing() {
    let folder = prepared();
    let server = fast(folder.path());
    let hostile = "<script>document.title='x'</script><img src=x onerror=\"alert(1)\">";
    submit(&server, "team-a", &submission(hostile, "a", LONG_S));
    submit(&server, "team-b", &submission("secret-of-b", "b", LONG_S));
    until("both run and cost something", Duration::from_secs(60), || {
        let (_, summary) = ask_json(&server, "ops", "GET", "/v1/summary", None);
        let runs = summary["running"] == 2 && summary["cost_usd"].as_f64() > Some(0.0);
        if runs { Ok(()) } else { Err(summary.to_string()) }
    });
    let both = |name: &str| {
        [
            visit(&format!("{name}-now"), "/", 1280, false, true, 6),
            visit(&format!("{name}-money"), "/money", 360, true, true, 0),
        ]
    };
    let all = see(&server, Some(secret("ops")), &both("operator"));
    all.iter().for_each(is_sound);
    assert_eq!((&all[0]["title"], &all[1]["title"]), (&json!("Now · Forebay"), &json!("Money · Forebay")));
    let text = all[0]["tables"].to_string() + &all[1]["tables"].to_string();
    assert!(text.contains("<script>document.title=") && text.contains("secret-of-b"), "{text}");
    assert!(
        all[0]["tables"].get("Nodes").is_some() && all[0]["tables"].get("Queues").is_some(),
        "{}",
        all[0]["tables"]
    );
    // A team sees its own jobs and what they cost, and nobody's time is nobody's to see.
    let own = see(&server, Some(secret("team-a")), &both("team"));
    own.iter().for_each(is_sound);
    let text = own[0]["tables"].to_string() + &own[1]["tables"].to_string();
    assert!(text.contains("<script>document.title=") && !text.contains("secret-of-b"), "{text}");
    assert!(!own[1]["tables"]["By queue"].to_string().contains("(boot"), "{}", own[1]["tables"]["By queue"]);
    for path in ["/", "/money", "/money?of=queue%3Da"] {
        let (status, said) = server.send("GET", path, &[], &[]);
        assert!(status == 401 && !said.contains("secret-of-b"), "{path}: {status} {said}");
        let wrong = [("authorization", "Bearer wrong")];
        assert_eq!(server.send("GET", path, &wrong, &[]).0, 401, "{path}");
        assert_eq!(server.send("POST", path, &[], &[]).0, 405, "{path} takes nothing");
    }
    // Styles and scripts are the same for everybody, and nothing else is there.
    for (name, status) in [("page.js", 200), ("uplot.LICENSE", 200), ("..%2f..%2fforebay.yaml", 404), ("x", 404)] {
        assert_eq!(server.send("GET", &format!("/assets/{name}"), &[], &[]).0, status, "{name}");
    }
}

/// A name that would be a picture and a script. It has no `/`, which would part a queue's path, and is short enough to be shown whole.
fn mark(what: &str) -> String {
    format!("<img src=x onerror=alert('{what}')><i>&quot;{what}")
}

/// The teams' folder with queues that nobody has declared, bills by a label with a hostile name, and somebody of a hostile tenant, `mallory`.
fn hostile_folder() -> tempfile::TempDir {
    let folder = prepared();
    let text = |name: &str| std::fs::read_to_string(folder.path().join(name)).expect("reads");
    // As JSON, which is YAML too.
    let [label, tenant] = ["label", "tenant"].map(|what| json!(mark(what)));
    let more = format!("undeclaredQueues: {{under: open}}\nbilling: {{labels: [{label}]}}\n");
    write(folder.path(), "policy.yaml", &(text("policy.yaml") + &more));
    // Tokens are the last that stands there.
    let token = format!("{{name: mallory, tenant: {tenant}, roles: [submit, read], secret: {{file: mallory.token}}}}");
    write(folder.path(), "forebay.yaml", &format!("{}  - {token}\n", text("forebay.yaml")));
    write(folder.path(), "mallory.token", &secret("mallory"));
    folder
}

#[test]
fn hostile_names_of_queues_tenants_labels_and_jobs_are_text_on_both_pages_on_a_telephone_too() {
    let folder = hostile_folder();
    let server = fast(folder.path());
    let mut job = submission(&mark("subject"), &mark("queue"), LONG_S);
    job["data"]["labels"] = json!({ (mark("label")): mark("value") });
    submit(&server, "mallory", &job);
    until("it runs and costs something", Duration::from_secs(60), || {
        let (_, cost) = ask_json(&server, "ops", "GET", "/v1/jobs?open=true&cost=true", None);
        let found = cost["jobs"].as_array().and_then(|jobs| jobs.iter().find(|job| job["queue"] == mark("queue")));
        let job = found.ok_or_else(|| cost.to_string())?;
        if job["phase"] == "running" && job["cost_usd"].as_f64() > Some(0.0) { Ok(()) } else { Err(job.to_string()) }
    });
    let visits = [
        visit("hostile-now", "/", 1280, false, true, 0),
        visit("hostile-now-360", "/", 360, true, true, 0),
        visit("hostile-money", "/money?from=&split=queue", 1280, true, true, 0),
        visit("hostile-money-360", "/money?from=", 360, false, true, 0),
    ];
    for who in ["ops", "mallory"] {
        let seen = see(&server, Some(secret(who)), &visits);
        // No name has become an element: nothing was loaded, no script has spoken, and each page has its own title.
        seen.iter().for_each(is_sound);
        for (page, title) in seen.iter().zip(["Now · Forebay", "Now · Forebay", "Money · Forebay", "Money · Forebay"])
        {
            let (name, all) = (&page["name"], page["tables"].as_object().expect("tables"));
            assert_eq!((&page["title"], &page["pictures"]), (&json!(title), &json!(0)), "{who}: {name}");
            let cells = |caption: &str| {
                let rows = all.get(caption).unwrap_or_else(|| panic!("{who}: {name} has no {caption}: {all:?}"));
                rows.as_array().into_iter().flatten().flat_map(|row| row.as_array().into_iter().flatten())
            };
            let has = |caption: &str, text: String| {
                let found = cells(caption).any(|cell| cell["text"] == text);
                assert!(found, "{who}: {name}, {caption}: no cell is {text}: {:?}", all.get(caption));
            };
            if title.starts_with("Now") {
                has("Queues", mark("queue"));
                let jobs = all.keys().find(|caption| caption.contains(" jobs; ")).expect("a table of jobs");
                has(jobs, mark("queue"));
                has(jobs, mark("subject"));
            } else {
                has("By queue", mark("queue"));
                has("By tenant", mark("tenant"));
                has(&format!("By label:{}", mark("label")), mark("value"));
            }
        }
        // A row's link is the name as it is, and the page behind it has it as text too.
        let rows = seen[2]["tables"]["By queue"].as_array().expect("rows");
        let row = rows.iter().find(|row| row[0]["text"] == mark("queue")).expect("its row");
        let link = row[0]["link"].as_str().expect("a link");
        let inside = see(&server, Some(secret(who)), &[visit("hostile-queue", link, 360, false, true, 0)]).remove(0);
        is_sound(&inside);
        assert_eq!((&inside["status"], &inside["pictures"]), (&json!(200), &json!(0)), "{inside}");
        assert!(inside["tables"]["By tenant"].to_string().contains("onerror"), "{}", inside["tables"]);
    }
}

#[test]
fn a_page_that_is_left_open_goes_on() {
    let folder = prepared();
    let server = fast(folder.path());
    let mut left_open = visit("left-open", "/", 1280, false, true, 0);
    left_open["again"] = json!(true);
    let seen = see(&server, Some(secret("ops")), &[left_open]).remove(0);
    let again = &seen["again"];
    assert_eq!(again["by_itself"], json!(true), "it loads itself again");
    assert_eq!((&again["focus"], &again["clicked"]), (&json!("SECTION"), &json!(true)), "a table was clicked: {again}");
    // Nobody answers for a while: the page stays, says so, and goes on by itself.
    let alert = again["alert"].as_str().unwrap_or_default();
    assert!(alert.starts_with("No answer since ") && alert.ends_with(" UTC, trying again."), "{again}");
    assert_eq!(again["answered"], json!(true), "{again}");
}

//! A past time out of a journal, played again: what the live controller did with a trace is what a simulation of its export comes to. And its bill,
//! as a FOCUS dataset, read by focus-validator.
//!
//! `FOREBAY_PAST_SEEDS` is how many clouds the teams' day meets.

use forebay_integration::{Said, Server, root, run};
use forebay_parts::FocusValidator;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::Path;

fn at_root(path: &str) -> String {
    root().join(path).canonicalize().expect("a file of the repository").display().to_string()
}

/// Three days of 400 jobs with gangs, deadlines, jobs that cannot save and that stay off spot, in two queues.
fn trace() -> String {
    let mut rows =
        "job_id,submit_s,duration_s,gpus,workers,queue,gpu_model,estimate_s,checkpoint_every_s,restart_s,saves,spot,\
                    failures,deadline_s\n"
            .to_owned();
    for n in 0..400u32 {
        let submit = n * 648 + n * n % 311;
        let duration = 600 + n * 7919 % 20_000;
        let workers = [1, 1, 2, 1, 4][n as usize % 5];
        let gpus = workers * [1, 1, 1, 4][n as usize % 4];
        let queue = if n % 3 == 0 { "vision" } else { "speech" };
        let model = if n % 7 == 0 { "t4" } else { "a10g|t4" };
        let (saves, spot, failures) = (n % 11 != 0, n % 13 != 0, u32::from(n % 17 == 0));
        let deadline = if n % 19 == 0 { (submit + 3 * duration + 7200).to_string() } else { String::new() };
        let row =
            format!("{n:03}-job,{submit},{duration},{gpus},{workers},{queue},{model},{duration},900,45,{saves},{spot}");
        writeln!(rows, "{row},{failures},{deadline}").expect("a string");
    }
    rows
}

fn number(card: &Value, pointer: &str) -> f64 {
    card.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{pointer} in {card}"))
}

/// What the cost of a simulation may differ from the live run's by, and the wait that 95 of 100 jobs did not exceed, in thousandths.
const COST_PERMILLE: f64 = 20.0;
const WAIT_PERMILLE: f64 = 100.0;

/// Clouds that the teams' day meets: what reclaims cost in one of them is the luck of some ten jobs.
fn seeds() -> u64 {
    let given = std::env::var("FOREBAY_PAST_SEEDS").ok();
    given.map_or(8, |text| text.parse().unwrap_or_else(|e| panic!("FOREBAY_PAST_SEEDS={text}: {e}")))
}

/// A replay through the live controller: its closing figures.
fn replayed(folder: &Path, policy: &str, file: &str, seed: u64) -> Value {
    let seed = seed.to_string();
    let args = ["--speed", "max", "--exit-when-drained", "--data", "data", "--json", "-", "--seed", &seed];
    let said = run(folder, &[&["run", "--policy", policy, "--replay", file][..], &args].concat());
    assert_eq!(said.code, 0, "{}", said.err);
    said.json()
}

fn exported(folder: &Path, out: &str, more: &[&str]) -> Said {
    run(folder, &[&["journal", "export", "data", "--trace", "--out", out][..], more].concat())
}

fn simulated(folder: &Path, seed: u64) -> Value {
    let seed = seed.to_string();
    let args = ["--policy", "past/policy.yaml", "--trace", "past/trace.csv", "--json", "--seed", &seed];
    let said = run(folder, &[&["simulate"][..], &args].concat());
    assert_eq!(said.code, 0, "{}", said.err);
    said.json()
}

/// The command that an export prints, as it is pasted.
fn pasted(folder: &Path, said: &Said) -> Said {
    let command = said.out.lines().find_map(|line| line.strip_prefix("play it again:  forebay ")).expect("a command");
    run(folder, &command.split(' ').collect::<Vec<_>>())
}

/// The figures that replays and simulations of their exports have to agree on, as means over all pairs of them.
fn agree(pairs: &[(Value, Value)]) {
    for (pointer, permille) in [("/cost_usd", COST_PERMILLE), ("/wait_s/p95", WAIT_PERMILLE)] {
        let pairs: Vec<[f64; 2]> =
            pairs.iter().map(|(live, again)| [live, again].map(|card| number(card, pointer))).collect();
        let [live, again] = [0, 1].map(|at| pairs.iter().map(|pair| pair[at]).sum::<f64>() / pairs.len() as f64);
        println!("{pointer}: live {live}, played again {again}: {pairs:?}");
        assert!(
            (again - live).abs() * 1000.0 <= live * permille,
            "{pointer}: live {live}, played again {again}: {pairs:?}"
        );
    }
}

/// The bill is a FOCUS dataset for the FinOps Foundation's own checker.
fn focus_holds(folder: &Path) {
    let said = run(folder, &["cost", "--focus", "--data", "data"]);
    assert_eq!(said.code, 0, "{}", said.err);
    let file = folder.join("focus.csv");
    std::fs::write(&file, &said.out).expect("writes");
    let output = FocusValidator::install().expect("focus-validator").validate(&file, "1.2").expect("it runs");
    let printed = String::from_utf8_lossy(&output.stdout);
    let with = |outcome: &str| -> Vec<&str> {
        let of = printed.lines().filter_map(|line| line.split_once(": ").filter(|(_, rest)| rest.starts_with(outcome)));
        of.filter_map(|(rule, _)| rule.split(' ').next_back()).collect()
    };
    // It has these two as one rule, of which either may hold: no invoice anywhere, an invoice everywhere.
    let either = ["InvoiceId-C-004-C", "InvoiceId-C-005-C"];
    assert_eq!(with("FAIL"), either[..1], "{printed}");
    let passed = with("PASS");
    assert!(passed.len() >= 130 && passed.contains(&either[1]) && passed.contains(&"InvoiceId-C-003-C"), "{printed}");
}

#[test]
fn a_replay_that_is_exported_and_simulated_costs_and_waits_the_same() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("t.csv"), trace()).expect("writes");
    let live = replayed(folder.path(), &at_root("policies/spot-first.yaml"), "t.csv", 1);
    let said = exported(folder.path(), "past", &[]);
    assert!(said.code == 0 && said.out.contains("400 jobs"), "{} {}", said.out, said.err);
    let again = pasted(folder.path(), &said);
    assert!(again.code == 0 && again.out.contains("drained"), "{again:?}");
    let rows = std::fs::read_to_string(folder.path().join("past/trace.csv")).expect("a trace");
    assert!(rows.lines().any(|row| row.starts_with("000-job,0,600,1,1,,")), "{rows}");
    let again = simulated(folder.path(), 1);
    assert_eq!((&live["completed"], &again["completed"]), (&json!(400), &json!(400)));
    agree(&[(live, again)]);
}

#[test]
fn a_day_of_teams_with_a_drought_of_spot_is_played_again() {
    let mut pairs = Vec::new();
    for seed in 1..=seeds() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let live = replayed(folder.path(), &at_root("policies/teams.yaml"), &at_root("examples/day.jsonl"), seed);
        let said = exported(folder.path(), "past", &[]);
        assert_eq!(said.code, 0, "{}", said.err);
        // Which reclaims come without a warning is drawn anew.
        pairs.push((live, simulated(folder.path(), 100 + seed)));
        // What the trace cannot say is told.
        assert!(said.err.contains("note: "), "{}", said.err);
        if seed == 1 {
            focus_holds(folder.path());
        }
    }
    agree(&pairs);
}

#[test]
fn what_is_not_known_is_counted_beside_a_running_controller() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = Server::start(folder.path(), &["--policy", &at_root("policies/spot-first.yaml"), "--data", "data"]);
    let event = |subject: &str, data: &str| {
        let data =
            format!(r#"{{"queue":"q","gang":{{"each":{{"gpus":1}}}}{data},"simulation":{{"durationS":36000}}}}"#);
        format!(r#"{{"type":"job.submitted","subject":"{subject}","data":{data}}}"#)
    };
    let events = [event("said", r#","expectedRun":"3h""#), event("unsaid", "")];
    std::fs::write(folder.path().join("e.jsonl"), events.join("\n")).expect("writes");
    let said = server.ask(folder.path(), &["submit", "e.jsonl"]);
    assert_eq!(said.code, 0, "{said:?}");
    let said = exported(folder.path(), "past", &[]);
    assert!(said.code == 0 && said.out.contains("1 jobs; time 0 of the files is 20"), "{said:?}");
    assert!(said.err.contains("1 jobs were left out: they are not over, and have no expectedRun"), "{}", said.err);
    assert!(
        said.err.contains("1 jobs were not over, or never started: they last as long as was expected"),
        "{}",
        said.err
    );
    let rows = std::fs::read_to_string(folder.path().join("past/trace.csv")).expect("a trace");
    assert!(rows.lines().count() == 2 && rows.contains(",10800,1,1,") && rows.contains("\nsaid,"), "{rows}");
    let said = exported(folder.path(), "other", &["--from", "2099-01-01"]);
    assert!(said.code == 2 && said.err.contains("no job can be played again"), "{said:?}");
    assert!(said.err.contains("2 jobs were left out: they came before the range"), "{}", said.err);
    let said = exported(folder.path(), "other", &["--from", "yesterday"]);
    assert!(said.code == 2 && said.err.contains("--from yesterday"), "{said:?}");
    let said = exported(folder.path(), "made/other", &["--from", "2099-01-01"]);
    assert_eq!(said.code, 2, "{said:?}");
    let said = run(folder.path(), &["journal", "export", "nowhere", "--trace", "--out", "other"]);
    assert_eq!(said.code, 2, "{said:?}");
    let left = ["other", "made"].map(|name| folder.path().join(name).exists());
    assert_eq!(left, [false, false], "an export that fails leaves no folder behind");
    let said = exported(folder.path(), "past", &[]);
    assert!(said.code == 2 && said.err.contains("trace.csv: is there already"), "nothing is written over: {said:?}");
    let said = exported(folder.path(), "data", &[]);
    assert!(said.code == 2 && said.err.contains("is the folder of a journal"), "{said:?}");
    let said = run(folder.path(), &["journal", "export", "nowhere", "--trace", "--out", "other"]);
    assert!(said.code == 2 && said.err.contains("nowhere") && !said.err.contains("--resume"), "{said:?}");
}

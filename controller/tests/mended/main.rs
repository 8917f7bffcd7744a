//! Broken inputs are told so that they can be mended: seeded slips in the ready-made policies, the example of a configuration, traces and
//! events. Each message names the file and the line (of an event the field), what is wrong, and what to do; a program that does what the
//! messages say, and nothing else, gets the original back.
//!
//! `FOREBAY_SLIPS=4000` takes so many slips of each kind of file instead of 100; `FOREBAY_SEED` takes others.
//!
//! Never: a slip that has more than one inverse counts in the share that is mended; those are told, and that is all.

mod mend;
mod slips;

use forebay::config::Config;
use forebay_catalog::Catalogue;
use forebay_policy::{FileErrors, compile};
use forebay_sim::trace::{self, SplitMix64};
use forebay_wire::intake::{Caller, Intake, NoRoutes};
use mend::Told;
use serde_json::Value;
use slips::{Slip, Words};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Of the slips with one inverse, so many in a hundred are mended by what the messages say.
const MENDED: usize = 95;

/// A kind of file: how it is read, and what may stand in it.
struct FileKind {
    name: &'static str,
    /// Name and text of each good file.
    files: Vec<(PathBuf, String)>,
    words: Words,
    /// What is said of a text. Empty: it is good.
    read: fn(&Path, &str) -> Vec<Told>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn schema(name: &str) -> Value {
    serde_json::from_str(&text(&root().join("policies/schema").join(name))).expect("a schema")
}

fn faults(errors: &FileErrors) -> Vec<Told> {
    let told = errors.faults.iter().map(|(fault, _)| {
        let place = Some((fault.pos.line as usize, fault.pos.column as usize)).filter(|(line, _)| *line > 0);
        Told { place, field: None, message: fault.message.clone(), remedy: fault.remedy.clone() }
    });
    told.collect()
}

fn read_policy(path: &Path, text: &str) -> Vec<Told> {
    let compiled = compile(&path.display().to_string(), text, &Catalogue::builtin());
    compiled.map_or_else(|errors| faults(&errors), |_| Vec::new())
}

fn read_config(path: &Path, text: &str) -> Vec<Told> {
    match Config::parse(path, text) {
        Ok(_) => Vec::new(),
        Err(forebay::config::ConfigError::Written(errors)) => faults(&errors),
        Err(other) => vec![Told::of_line(&other.to_string())],
    }
}

fn read_trace(path: &Path, text: &str) -> Vec<Told> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(path.file_name().expect("a name"));
    std::fs::write(&path, text).expect("written");
    match trace::read(&path, None) {
        Ok(trace) => {
            let unused = trace.notes.iter().filter(|note| note.contains("were not used"));
            // A note is about the header, which is line 1 of these files.
            unused.map(|note| Told { place: Some((1, 1)), ..Told::of_line(note) }).collect()
        }
        Err(error) => vec![Told::of_line(&error.to_string())],
    }
}

fn read_events(_: &Path, text: &str) -> Vec<Told> {
    let caller = Caller::local();
    let intake = Intake { caller: &caller, routes: &NoRoutes, key: None };
    let mut told = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let (said, field) = match intake.decode(line.as_bytes()) {
            Ok(decoded) => (decoded.warnings, None),
            Err(rejected) => (vec![rejected.message.clone()], Some(rejected.path.clone())),
        };
        told.extend(
            said.into_iter().map(|said| Told { place: Some((at + 1, 1)), ..Told::of_event(field.as_deref(), &said) }),
        );
    }
    told
}

fn kinds() -> [FileKind; 4] {
    let policies = ["deadline", "inference", "mig", "notebooks", "on-demand-only", "spot-first", "teams"];
    let policies = policies.map(|name| root().join(format!("policies/{name}.yaml")));
    let config = root().join("examples/forebay.yaml");
    let with_text = |paths: Vec<PathBuf>| -> Vec<(PathBuf, String)> {
        paths.into_iter().map(|path| (path.clone(), text(&path))).collect()
    };
    let jobs = trace::generate_trace(7, 40);
    let csv = trace::as_csv(&jobs);
    let events: Vec<String> = text(&root().join("examples/day.jsonl"))
        .lines()
        .filter(|line| line.contains("\"job.submitted\""))
        .step_by(97)
        .take(12)
        .map(str::to_owned)
        .collect();
    [
        FileKind {
            name: "policies",
            files: with_text(policies.to_vec()),
            words: Words::of_schema(&schema("policy.json")),
            read: read_policy,
        },
        FileKind {
            name: "configurations",
            files: with_text(vec![config]),
            words: Words::of_schema(&schema("config.json")),
            read: read_config,
        },
        FileKind {
            name: "traces",
            files: vec![("trace.csv".into(), csv.clone())],
            words: Words::new(csv.lines().next().unwrap_or_default().split(',')),
            read: read_trace,
        },
        FileKind {
            name: "events",
            files: vec![("events.jsonl".into(), events.join("\n") + "\n")],
            words: Words::of_schema(&schema("event.json")),
            read: read_events,
        },
    ]
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |n| n.parse().unwrap_or_else(|_| panic!("{name}={n}: write a number")))
}

#[test]
fn what_is_said_of_a_slip_mends_it() {
    let (slips, seed) = (setting("FOREBAY_SLIPS", 100), setting("FOREBAY_SEED", 1));
    let mut failed = Vec::new();
    for kind in kinds() {
        for (path, text) in &kind.files {
            let told = (kind.read)(path, text);
            assert!(told.is_empty(), "{} is good: {told:?}", path.display());
        }
        let mut random = SplitMix64::named(seed, kind.name);
        let (mut told, mut silent, mut tried) = (0, 0, 0);
        let mut mended: BTreeMap<Slip, (usize, usize)> = BTreeMap::new();
        while told < slips {
            tried += 1;
            assert!(tried < 20 * slips, "{}: only {told} of {tried} slips break a file", kind.name);
            let (path, good) = &kind.files[random.below(kind.files.len() as u64) as usize];
            let Some((slip, broken)) = slips::broken(good, &kind.words, kind.name, &mut random) else { continue };
            let said = (kind.read)(path, &broken);
            if said.is_empty() {
                // A name of the user's own is as good with a slip in it; a word that Forebay knows is not.
                silent += usize::from(slip == Slip::Key);
                if slip == Slip::Key {
                    failed.push(format!("{}: nothing is said:\n{}", kind.name, mend::difference(good, &broken)));
                }
                continue;
            }
            told += 1;
            for one in &said {
                if let Some(lack) = one.lacks() {
                    failed.push(format!(
                        "{}: {lack} is missing: {one:?}\n{}",
                        kind.name,
                        mend::difference(good, &broken)
                    ));
                }
            }
            if !slip.has_one_inverse() {
                continue;
            }
            let counted = mended.entry(slip).or_default();
            counted.1 += 1;
            if mend::mended(&broken, kind.read, path) == Some(good.clone()) {
                counted.0 += 1;
            } else if std::env::var_os("FOREBAY_SHOW").is_some() {
                println!("not mended: {said:?}\n{}", mend::difference(good, &broken));
            }
        }
        let (good, all) = mended.values().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        println!(
            "{}: seed {seed}, {told} slips told of {tried} tried, {silent} silent; mended {good} of {all}: {mended:?}",
            kind.name
        );
        if good * 100 < all * MENDED {
            failed.push(format!(
                "{}: {good} of {all} are mended, and {MENDED} % should be; FOREBAY_SHOW=1 shows them",
                kind.name
            ));
        }
    }
    assert!(
        failed.is_empty(),
        "{} failures\n{}",
        failed.len(),
        failed.iter().take(12).cloned().collect::<Vec<_>>().join("\n\n")
    );
}

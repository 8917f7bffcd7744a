//! Broken inputs are told so that they can be mended: seeded slips in the ready-made policies, the example of a configuration, traces and
//! events. Each message, as it is printed, names the file and the line (of an event the field), what is wrong, and what to do; a program that does
//! what the messages say, and nothing else, gets the original back. Events are read as `forebay run --replay` reads them.
//!
//! `FOREBAY_SLIPS=4000` takes so many slips of each kind of file instead of 100; `FOREBAY_SEED` takes others.
//!
//! Never: a slip that has more than one inverse counts in the share that is mended; those are told, and that is all.

mod mend;
mod slips;

use forebay::config::Config;
use forebay::driver::load;
use forebay_catalog::Catalogue;
use forebay_driver::live::EventFeed as _;
use forebay_kernel::policy::Policy;
use forebay_kernel::units::Timestamp;
use forebay_policy::compile;
use forebay_sim::trace::{self, SplitMix64, TraceFormat};
use mend::Told;
use serde_json::Value;
use slips::{Slip, Words};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

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

/// What is printed of a policy or a configuration that cannot be used.
fn printed(error: &dyn std::error::Error) -> Vec<Told> {
    let said = error.to_string();
    let faults = Told::of_faults(&said);
    if faults.is_empty() { vec![Told::of_line(&said)] } else { faults }
}

fn read_policy(path: &Path, text: &str) -> Vec<Told> {
    let compiled = compile(&path.display().to_string(), text, &Catalogue::builtin());
    compiled.map_or_else(|errors| printed(&errors), |_| Vec::new())
}

fn read_config(path: &Path, text: &str) -> Vec<Told> {
    Config::parse(path, text).map_or_else(|error| printed(&error), |_| Vec::new())
}

/// A file of this name with this text, in a folder of its own.
fn written(path: &Path, text: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(path.file_name().expect("a name"));
    std::fs::write(&path, text).expect("written");
    (folder, path)
}

fn read_trace(path: &Path, text: &str) -> Vec<Told> {
    let (_folder, path) = written(path, text);
    match trace::read(&path, None) {
        Ok(trace) => {
            let unused = trace.notes.iter().filter(|note| note.contains("were not used"));
            unused.map(|note| Told::of_line(note)).collect()
        }
        Err(error) => vec![Told::of_line(&error.to_string())],
    }
}

fn read_events(path: &Path, text: &str) -> Vec<Told> {
    let (_folder, path) = written(path, text);
    let mut feed = match load(&path, Some(TraceFormat::Events), &Policy::default()) {
        Ok(loaded) => loaded.feed,
        Err(error) => return vec![Told::of_line(&error.to_string())],
    };
    let log = logged(|| while feed.take(Timestamp(u64::MAX), None).is_some() {});
    log.lines().map(Told::of_event).collect()
}

/// Where a log is written to.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What this logs, as `forebay` prints it, but for time and level.
fn logged(work: impl FnOnce()) -> String {
    let log = Log::default();
    let to = log.clone();
    let lines = tracing_subscriber::fmt().with_writer(move || to.clone()).with_target(false).with_ansi(false);
    tracing::subscriber::with_default(lines.with_level(false).without_time().finish(), work);
    let bytes = log.0.lock().expect("no panic").clone();
    String::from_utf8(bytes).expect("text")
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
            let (file, line) = (path.file_name().expect("a name"), mend::first_difference(good, &broken));
            for one in &said {
                // An event is one line: what is wrong with it is told of that line.
                if kind.name == "events" && one.place.is_some_and(|(told, _)| told != line) {
                    failed.push(format!("{}: line {line} is broken, and this is told: {one:?}", kind.name));
                }
                if let Some(lack) = one.lacks(&file.to_string_lossy()) {
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

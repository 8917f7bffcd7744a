//! Sabotages: a rule is spoilt in a copy of the tree, and the property has to catch it within 2,000 states.
//!
//! ```text
//! cargo xtask test engine --full      all of them, after the full run of the others
//! cargo test -p forebay-engine --test engine every_sabotage_is_caught -- --ignored --nocapture
//! FOREBAY_SABOTAGE=minRun   only those whose name has this
//! ```
//!
//! Never: a switch in the code that is shipped.
#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "it builds copies of the tree")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

struct Sabotage {
    name: String,
    file: String,
    stands: String,
    becomes: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn all() -> Vec<Sabotage> {
    let text = fs::read_to_string(root().join("tests/engine/sabotages.txt")).expect("the list of sabotages");
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let read = |line: &str| {
        // `\|` is a bar within the code.
        let line = line.replace("\\|", "\u{1}");
        let mut parts = line.split('|').map(|part| part.trim().replace('\u{1}', "|"));
        let mut next = || parts.next().expect("name | file | what stands there | what is put in its place");
        Sabotage { name: next(), file: next(), stands: next(), becomes: next() }
    };
    lines.map(read).collect()
}

#[test]
fn every_sabotage_has_its_place() {
    let all = all();
    assert!(all.len() >= 10);
    for sabotage in all {
        let text = fs::read_to_string(root().join(&sabotage.file)).expect("a file of the engine");
        assert_eq!(
            text.matches(&sabotage.stands).count(),
            1,
            "{}: {} in {}",
            sabotage.name,
            sabotage.stands,
            sabotage.file
        );
    }
}

/// Copies what git knows of the tree, and what is new in it.
fn copy(to: &Path) {
    let listed = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let listed = Command::new("git").args(listed).current_dir(root()).output().expect("git");
    for name in listed.stdout.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let name = String::from_utf8_lossy(name).into_owned();
        let file = to.join(&name);
        fs::create_dir_all(file.parent().expect("a folder")).expect("a folder in the copy");
        // What is deleted and not committed yet is not there.
        let _ = fs::copy(root().join(&name), file);
    }
}

#[test]
#[ignore = "it builds the engine once for each sabotage: cargo xtask test engine --full"]
fn every_sabotage_is_caught() {
    let only = std::env::var("FOREBAY_SABOTAGE").unwrap_or_default();
    let work: PathBuf = std::env::temp_dir().join(format!("forebay-sabotages-{}", std::process::id()));
    copy(&work);
    let chosen: Vec<Sabotage> = all().into_iter().filter(|sabotage| sabotage.name.contains(&only)).collect();
    assert!(!chosen.is_empty(), "no sabotage has `{only}` in its name");
    let run = |more: &[&str]| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["test", "-p", "forebay-engine", "--test", "engine"]).args(more).current_dir(&work);
        cargo.env("CARGO_TARGET_DIR", work.join("target"));
        cargo.env_remove("FOREBAY_STATES").env_remove("FOREBAY_STATES_FROM");
        // What is caught prints tests that failed: nobody is to count them as ours.
        cargo.output().expect("cargo")
    };
    let said = |output: &Output| {
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    };
    let sound = run(&["lacks_are_served"]);
    assert!(sound.status.success() && said(&sound).contains("1 passed"), "without a sabotage: {}", said(&sound));
    let mut missed = Vec::new();
    for sabotage in chosen {
        let file = work.join(&sabotage.file);
        let sound = fs::read_to_string(&file).expect("a file of the copy");
        fs::write(&file, sound.replace(&sabotage.stands, &sabotage.becomes)).expect("a sabotage");
        let built = run(&["--no-run"]);
        assert!(built.status.success(), "{} does not build: {}", sabotage.name, said(&built));
        let caught = !run(&["lacks_are_served"]).status.success();
        eprintln!("{}: {}", sabotage.name, if caught { "caught" } else { "missed" });
        if !caught {
            missed.push(sabotage.name);
        }
        fs::write(&file, sound).expect("the sound file again");
    }
    let _ = fs::remove_dir_all(&work);
    assert!(missed.is_empty(), "not caught: {missed:?}");
}

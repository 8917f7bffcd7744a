//! The version as `forebay --version` has it: with the commit, where a release is built or `FOREBAY_COMMIT` names it.
//!
//! Never: the commit of a debug build, which each commit would make anew.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=FOREBAY_COMMIT");
    let version = variable("CARGO_PKG_VERSION").unwrap_or_default();
    let released = || variable("PROFILE").filter(|profile| profile == "release").and_then(|_| checked_out());
    let commit = variable("FOREBAY_COMMIT").or_else(released);
    let text = commit.map_or_else(|| version.clone(), |commit| format!("{version} ({commit})"));
    println!("cargo::rustc-env=FOREBAY_VERSION={text}");
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The commit that is checked out, read again when another one is.
fn checked_out() -> Option<String> {
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

/// What git says in one line. `None`: there is no git, or no repository.
fn git(arguments: &[&str]) -> Option<String> {
    let said = Command::new("git").args(arguments).output().ok().filter(|said| said.status.success())?;
    String::from_utf8(said.stdout).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

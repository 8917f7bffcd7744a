//! The rules of the house that neither the compiler nor clippy checks. Each finding says where, what, and how to mend it.
//!
//! Rules read text and nothing else: each is a function from files to findings, so that a test can feed it a file that
//! was never on disk.

mod docs;
mod engine;
mod files;
mod rust;
mod words;

use std::fmt;
use std::path::Path;

use crate::Failure;
use crate::command::{cargo, run as run_command};
use crate::workspace::Workspace;

/// One text file: its path from the root with `/`, and its content.
pub struct File {
    path: String,
    text: String,
}

/// One breach of a rule.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    path: String,
    /// Counted from 1; 0 when it is about the file as a whole.
    line: usize,
    what: String,
}

impl Finding {
    fn new(file: &File, line: usize, what: impl Into<String>) -> Self {
        Self { path: file.path.clone(), line, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, what } = self;
        if *line == 0 { write!(f, "{path}: {what}") } else { write!(f, "{path}:{line}: {what}") }
    }
}

/// Checks every rule and the format. Fails with all findings, not only the first.
pub fn run(workspace: &Workspace) -> Result<(), Failure> {
    let files = files::read_all(workspace.root())?;
    eprintln!("tidy: {} text files", files.len());
    let mut findings = Vec::new();
    for file in &files {
        findings.extend(words::check(file));
        findings.extend(rust::check(file));
        findings.extend(engine::check(file));
    }
    for (path, lines) in rust::long_files(&files) {
        eprintln!("tidy: long, not yet too long: {path}: {lines} lines");
    }
    findings.extend(docs::check(&files));
    findings.extend(engine::check_dependencies(workspace.root(), &files)?);
    for finding in &findings {
        eprintln!("{finding}");
    }
    let formatted = run_command(cargo(workspace.root()).args(["fmt", "--all", "--check"]));
    if !findings.is_empty() {
        return Err(Failure::new(format!("tidy: {}, each with its place above", count(findings.len(), "finding"))));
    }
    formatted.map_err(|e| Failure::new(format!("{}\nmend: cargo fmt --all", e.message)))
}

fn count(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// The file's extension, or nothing.
fn extension(path: &str) -> &str {
    Path::new(path).extension().and_then(|e| e.to_str()).unwrap_or_default()
}

#[cfg(test)]
fn file(path: &str, text: &str) -> File {
    File { path: path.to_owned(), text: text.to_owned() }
}

#[cfg(test)]
fn shown(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(ToString::to_string).collect()
}

//! The rules of the project that neither the compiler nor clippy checks. Each finding has its place, what is wrong, and how to mend it.
//!
//! Rules read text and nothing else: each is a function from files to findings, so that a test can feed it a file that
//! was never on disk. Three ask cargo besides what it resolves (`purity.rs`, `weight.rs`, `libraries.rs`).

mod docs;
mod edges;
mod exports;
mod files;
mod ignored;
mod libraries;
mod metrics;
mod names;
mod purity;
mod rust;
mod sections;
mod surface;
mod weight;
mod words;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use crate::ChoreFailure;
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

impl File {
    fn finding(&self, line: usize, what: impl Into<String>) -> Finding {
        Finding { path: self.path.clone(), line, what: what.into() }
    }

    /// The lines of a committed list with their numbers from 1, without blank ones and comments.
    fn entries(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.text.lines()).filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, what } = self;
        if *line == 0 { write!(f, "{path}: {what}") } else { write!(f, "{path}:{line}: {what}") }
    }
}

/// Checks every rule and the format. Fails with all findings, not only the first.
pub fn run(workspace: &Workspace) -> Result<(), ChoreFailure> {
    let files = files::read_all(workspace.root())?;
    let mut findings = surfaces(workspace, &files);
    eprintln!("tidy: {} text files", files.len());
    for file in &files {
        findings.extend(words::check(file));
        findings.extend(rust::check(file));
        findings.extend(purity::check(file));
    }
    for (path, lines) in rust::long_files(&files) {
        eprintln!("tidy: long, not yet too long: {path}: {lines} lines");
    }
    findings.extend(ignored::check(&files));
    findings.extend(docs::check(&files));
    findings.extend(metrics::check(&files));
    findings.extend(edges::check(workspace.packages(), &files));
    findings.extend(sections::check(workspace.packages()));
    findings.extend(purity::check_dependencies(workspace, &files)?);
    findings.extend(weight::check(workspace, &files)?);
    findings.extend(libraries::check(workspace, &files)?);
    for finding in &findings {
        eprintln!("{finding}");
    }
    let formatted = run_command(cargo(workspace.root()).args(["fmt", "--all", "--check"]));
    if !findings.is_empty() {
        return Err(ChoreFailure::new(format!(
            "tidy: {}, each with its place above",
            count(findings.len(), "finding")
        )));
    }
    formatted.map_err(|e| ChoreFailure::new(format!("{}\nmend: cargo fmt --all", e.message)))
}

/// What every library shows, and what in it breaks a rule or cannot be read.
fn surfaces(workspace: &Workspace, files: &[File]) -> Vec<Finding> {
    let by_path: BTreeMap<&str, &File> = files.iter().map(|file| (file.path.as_str(), file)).collect();
    let (mut findings, mut types) = (Vec::new(), Vec::new());
    for package in workspace.packages() {
        let Some(root) = package.library().or_else(|| package.binary()) else {
            continue;
        };
        match surface::read(root, &by_path) {
            Ok(surface) => {
                types.extend(surface.types);
                // Of a binary only the names count: nobody else calls its functions.
                findings.extend(surface.findings.into_iter().filter(|_| package.library().is_some()));
            }
            Err(finding) => findings.push(finding),
        }
    }
    findings.extend(names::check(&types, &find(files, names::LIST)));
    findings
}

/// The file of that path, or an empty one.
fn find(files: &[File], path: &str) -> File {
    let text = files.iter().find(|file| file.path == path).map_or_else(String::new, |file| file.text.clone());
    File { path: path.to_owned(), text }
}

/// The file of that path, which a rule reads. A rule whose file has moved would find nothing from then on, so that its absence is a finding.
fn needed<'f>(files: &'f [File], path: &str) -> Result<&'f File, Finding> {
    files.iter().find(|file| file.path == path).ok_or_else(|| Finding {
        path: path.to_owned(),
        line: 0,
        what: "is not there, and a rule of tidy reads it; put it back, or name its place in xtask/src/tidy".to_owned(),
    })
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

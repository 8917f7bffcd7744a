//! The rules of the project that neither the compiler nor clippy checks. Each finding has its place, what is wrong, and how to mend it.
//!
//! Rules read text and nothing else: each is a function from files to findings, so that a test can feed it a file that
//! was never on disk. Two ask cargo besides what it resolves (`purity.rs`, `weight.rs`).

mod docs;
mod edges;
mod exports;
mod files;
mod names;
mod purity;
mod ratchet;
mod rust;
mod sections;
mod surface;
mod weight;
mod words;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use self::surface::{Breach, Surface};
use crate::ChoreFailure;
use crate::command::{cargo, run as run_command};
use crate::workspace::Workspace;

/// What `cargo xtask tidy` takes.
#[derive(clap::Args, Default)]
pub struct TidyArgs {
    /// Write the table of exceptions (xtask/rules/ratchet.txt) from what is there, and check nothing
    #[arg(long)]
    write_ratchet: bool,
    /// Print each exception that the table counts, with its place, and check nothing
    #[arg(long, conflicts_with = "write_ratchet")]
    places: bool,
}

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
pub fn run(workspace: &Workspace, args: &TidyArgs) -> Result<(), ChoreFailure> {
    let files = files::read_all(workspace.root())?;
    let (mut findings, breaches) = surfaces(workspace, &files);
    if args.places {
        breaches.iter().for_each(|breach| println!("{}: {}", breach.package, ratchet::place(breach)));
        return Ok(());
    }
    if args.write_ratchet {
        return write_ratchet(workspace, &breaches);
    }
    eprintln!("tidy: {} text files", files.len());
    for file in &files {
        findings.extend(words::check(file));
        findings.extend(rust::check(file));
        findings.extend(purity::check(file));
    }
    for (path, lines) in rust::long_files(&files) {
        eprintln!("tidy: long, not yet too long: {path}: {lines} lines");
    }
    findings.extend(ratchet::check(&breaches, &find(&files, ratchet::TABLE)));
    findings.extend(docs::check(&files));
    findings.extend(edges::check(workspace.packages(), &files, edges::PLANNED));
    findings.extend(sections::check(workspace.packages(), edges::PLANNED));
    findings.extend(purity::check_dependencies(workspace, &files)?);
    findings.extend(weight::check(workspace, &files)?);
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

/// What every library shows: findings about files that cannot be read and about the list of names, and what breaks a rule.
fn surfaces(workspace: &Workspace, files: &[File]) -> (Vec<Finding>, Vec<Breach>) {
    let by_path: BTreeMap<&str, &File> = files.iter().map(|file| (file.path.as_str(), file)).collect();
    let (mut findings, mut all) = (Vec::new(), Surface::default());
    for package in workspace.packages() {
        // Of a binary only the names count: nobody else calls its functions.
        let Some(root) = package.library.as_ref().or(package.binary.as_ref()) else {
            continue;
        };
        match surface::read(&package.name, root, &by_path) {
            Ok(surface) => {
                all.types.extend(surface.types);
                all.breaches.extend(surface.breaches.into_iter().filter(|_| package.library.is_some()));
            }
            Err(finding) => findings.push(finding),
        }
    }
    let (of_list, doubled) = names::check(&all.types, &find(files, names::LIST));
    findings.extend(of_list);
    all.breaches.extend(doubled);
    (findings, all.breaches)
}

fn write_ratchet(workspace: &Workspace, breaches: &[Breach]) -> Result<(), ChoreFailure> {
    let path = workspace.root().join(ratchet::TABLE);
    std::fs::write(&path, ratchet::write(breaches))
        .map_err(|e| ChoreFailure::new(format!("{}: {e}", ratchet::TABLE)))?;
    eprintln!("wrote {}; read the difference: its numbers go down", ratchet::TABLE);
    Ok(())
}

/// The file of that path, or an empty one.
fn find(files: &[File], path: &str) -> File {
    let text = files.iter().find(|file| file.path == path).map_or_else(String::new, |file| file.text.clone());
    File { path: path.to_owned(), text }
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

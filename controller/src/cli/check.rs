//! `forebay check`: a policy's faults with line and column, or what it means; a configuration's in [`super::check_config`].
//!
//! Never: stricter or laxer than `run`: it is the same compiler.

use super::Output;
use super::args::CheckArgs;
use super::check_config;
use super::outcome::{Exit, Failure, print, print_json};
use forebay_catalog::Catalogue;
use forebay_policy::{Advice, Compiled, FileErrors, FileFault, Pos, compile_bytes};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// The policy that is built in.
pub(super) const BUILT_IN: &str = include_str!("../../../policies/teams.yaml");

/// Its name in messages.
pub(super) const BUILT_IN_NAME: &str = "policies/teams.yaml (built in)";

/// How bad a finding is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum FindingLevel {
    /// The file cannot be used.
    Error,
    /// It can, and that is unwise.
    Warning,
}

/// One thing that was found in a file.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Finding {
    pub level: FindingLevel,
    /// Counted from 1. `None`: the file as a whole.
    pub line: Option<u32>,
    pub column: Option<u32>,
    /// Keys and positions of lists, from the file's beginning.
    pub path: Vec<String>,
    pub message: String,
    /// `None`: the message says what to do.
    pub remedy: Option<String>,
}

impl Finding {
    /// Of a place, if it is one.
    fn at(level: FindingLevel, pos: Pos, path: &[String], message: &str) -> Finding {
        let place = (pos.line > 0).then_some(pos);
        let (line, column) = (place.map(|pos| pos.line), place.map(|pos| pos.column));
        Finding { level, line, column, path: path.to_vec(), message: message.to_owned(), remedy: None }
    }

    /// Of a file as a whole.
    pub fn whole(level: FindingLevel, message: &str) -> Finding {
        Finding::at(level, Pos::default(), &[], message)
    }

    fn of_fault(fault: &FileFault) -> Finding {
        let found = Finding::at(FindingLevel::Error, fault.pos, &fault.path, &fault.message);
        Finding { remedy: Some(fault.remedy.clone()), ..found }
    }

    fn of_advice(Advice { pos, path, text }: &Advice) -> Finding {
        Finding::at(FindingLevel::Warning, *pos, path, text)
    }
}

/// What was found in one file.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CheckedFile {
    /// As it was named.
    file: PathBuf,
    /// `Policy` or `Config`; `None`: it cannot be read.
    kind: Option<&'static str>,
    findings: Vec<Finding>,
    /// Errors beyond those that are listed.
    more: usize,
    /// What is printed of a good one.
    #[serde(skip)]
    text: String,
    /// Why it is none.
    #[serde(skip)]
    failure: Option<Failure>,
}

/// What `check --json` writes.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CheckDocument<'a> {
    api_version: &'static str,
    kind: &'static str,
    errors: usize,
    warnings: usize,
    files: &'a [CheckedFile],
}

pub(super) fn run(args: &CheckArgs, out: Output) -> Result<Exit, Failure> {
    let catalogue = args.catalog.read()?;
    if args.explain {
        return explain(args, &catalogue);
    }
    let files: Vec<CheckedFile> = args.files.iter().map(|file| checked(file, &catalogue, out)).collect();
    let count = |level| files.iter().flat_map(|file| &file.findings).filter(|found| found.level == level).count();
    let more: usize = files.iter().map(|file| file.more).sum();
    let (errors, warnings) = (count(FindingLevel::Error) + more, count(FindingLevel::Warning));
    if args.json {
        let (api_version, kind) = ("forebay/v1", "CheckReport");
        print_json(&CheckDocument { api_version, kind, errors, warnings, files: &files })?;
    }
    for file in files.iter().filter(|_| !args.json) {
        match &file.failure {
            Some(failure) => failure.print(out.err),
            None => print(&file.text)?,
        }
    }
    let failed = files.iter().filter_map(|file| Some(file.failure.as_ref()?.exit)).max_by_key(|exit| *exit as u8);
    Ok(match failed {
        Some(exit) => exit,
        None if args.strict && warnings > 0 => Exit::Violations,
        None => Exit::Done,
    })
}

fn explain(args: &CheckArgs, catalogue: &Catalogue) -> Result<Exit, Failure> {
    let [file] = &args.files[..] else {
        return Err(Failure::input("--explain prints one file with its defaults: name one"));
    };
    let bytes = super::outcome::read_bytes(file)?;
    if let Some(text) = check_config::text_of(&bytes) {
        return check_config::explain(file, text);
    }
    let compiled = compile_bytes(&file.display().to_string(), &bytes, catalogue);
    print(&compiled.map_err(Failure::input)?.explain())?;
    Ok(Exit::Done)
}

/// What is found in a file. The catalogue is for policies: a configuration names its own.
fn checked(file: &Path, catalogue: &Catalogue, out: Output) -> CheckedFile {
    let (name, file) = (file.display().to_string(), file.to_owned());
    let found = CheckedFile { file, kind: None, findings: Vec::new(), more: 0, text: String::new(), failure: None };
    let bytes = match super::outcome::read_bytes(&found.file) {
        Ok(bytes) => bytes,
        Err(failure) => return found.failed(failure),
    };
    if let Some(text) = check_config::text_of(&bytes) {
        let found = CheckedFile { kind: Some("Config"), ..found };
        return match check_config::checked(&found.file, text, out) {
            Ok((text, findings)) => CheckedFile { text, findings, ..found },
            Err(check_config::Refused::Written(errors)) => found.refused(&errors),
            Err(check_config::Refused::Whole(failure)) => found.failed(failure),
        };
    }
    let found = CheckedFile { kind: Some("Policy"), ..found };
    match compile_bytes(&name, &bytes, catalogue) {
        Ok(compiled) => CheckedFile {
            findings: compiled.advice.iter().map(Finding::of_advice).collect(),
            text: format!("{}\n", compiled.report(&name).trim_end()),
            ..found
        },
        Err(errors) => found.refused(&errors),
    }
}

impl CheckedFile {
    /// It cannot be used, and nothing says where.
    fn failed(self, failure: Failure) -> CheckedFile {
        let findings = vec![Finding::whole(FindingLevel::Error, &failure.text)];
        CheckedFile { findings, failure: Some(failure), ..self }
    }

    fn refused(self, errors: &FileErrors) -> CheckedFile {
        let findings = errors.faults.iter().map(|(fault, _)| Finding::of_fault(fault)).collect();
        CheckedFile { findings, more: errors.more, failure: Some(Failure::input(errors)), ..self }
    }
}

/// A policy from a file: its text and what it means.
pub(super) fn compile_file(path: &Path, catalogue: &Catalogue) -> Result<(String, Compiled), Failure> {
    let bytes = super::outcome::read_bytes(path)?;
    let compiled = compile_bytes(&path.display().to_string(), &bytes, catalogue).map_err(Failure::input)?;
    Ok((String::from_utf8_lossy(&bytes).into_owned(), compiled))
}

/// A policy from a file, or the built-in one.
pub(super) fn compile_or_built_in(path: Option<&Path>, catalogue: &Catalogue) -> Result<(String, Compiled), Failure> {
    match path {
        Some(path) => compile_file(path, catalogue),
        None => {
            let compiled = forebay_policy::compile(BUILT_IN_NAME, BUILT_IN, catalogue).map_err(Failure::input)?;
            Ok((BUILT_IN.to_owned(), compiled))
        }
    }
}

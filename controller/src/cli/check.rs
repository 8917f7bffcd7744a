//! `forebay check`: a policy's faults with line and column, or what it means; a configuration's in [`super::check_config`].
//!
//! Never: stricter or laxer than `run`: it is the same compiler.

use super::Output;
use super::args::CheckArgs;
use super::check_config;
use super::outcome::{Exit, Failure, print};
use forebay_catalog::Catalogue;
use forebay_policy::{Compiled, compile_bytes};
use std::path::Path;

/// The policy that is built in.
pub(super) const BUILT_IN: &str = include_str!("../../../policies/teams.yaml");

/// Its name in messages.
pub(super) const BUILT_IN_NAME: &str = "policies/teams.yaml (built in)";

pub(super) fn run(args: &CheckArgs, out: Output) -> Result<Exit, Failure> {
    let bytes = super::outcome::read_bytes(&args.file)?;
    if let Some(text) = check_config::text_of(&bytes) {
        return check_config::run(args, text, out);
    }
    let compiled = compile_bytes(&args.file.display().to_string(), &bytes, &Catalogue::builtin());
    let compiled = compiled.map_err(Failure::input)?;
    if args.explain {
        print(&compiled.explain())?;
    } else {
        print(&format!("{}\n", compiled.report(&args.file.display().to_string()).trim_end()))?;
    }
    Ok(Exit::Done)
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

//! The JSON Schemas under policies/schema, written by `forebay schema`, and the page that comes from the policy's; committed for
//! editors and reviewers.
//!
//! Never written by hand. A change to a type changes its schema, and `--check` fails until it is written again.

use std::fs;

use crate::ChoreFailure;
use crate::command::{capture, cargo, run as run_command, shown};
use crate::page;
use crate::workspace::Workspace;

/// Where the schemas live, from the root.
const FOLDER: &str = "policies/schema";

/// What `forebay schema` can write.
const KINDS: [&str; 4] = ["policy", "event", "state", "config"];

/// What `cargo xtask schema` takes.
#[derive(clap::Args)]
pub struct WriteSchemaArgs {
    /// Write nothing; fail where a committed schema differs from the code's
    #[arg(long)]
    pub check: bool,
}

/// Builds `forebay`, asks it for each schema, and writes or compares the files.
pub fn run(workspace: &Workspace, args: &WriteSchemaArgs) -> Result<(), ChoreFailure> {
    run_command(cargo(workspace.root()).args(["build", "-p", "forebay"]))?;
    run_built(workspace, args)
}

/// Asks the `forebay` that is built already.
pub fn run_built(workspace: &Workspace, args: &WriteSchemaArgs) -> Result<(), ChoreFailure> {
    let mut stale = Vec::new();
    for kind in KINDS {
        let mut ask = std::process::Command::new(workspace.debug("forebay"));
        ask.args(["schema", kind]).current_dir(workspace.root());
        eprintln!("$ {}", shown(&ask));
        let fresh = normal(&capture(&mut ask)?, kind)?;
        if kind == "policy" {
            let page = serde_json::from_str(&fresh).ok().and_then(|schema| page::render(&schema));
            let page = page.ok_or_else(|| ChoreFailure::new(format!("{}: the schema has no `$defs`", page::PATH)))?;
            stale.extend(keep(workspace, page::PATH, &page, args.check)?);
        }
        stale.extend(keep(workspace, &format!("{FOLDER}/{kind}.json"), &fresh, args.check)?);
    }
    if stale.is_empty() {
        return Ok(());
    }
    Err(ChoreFailure::new(format!(
        "{}\nmend: cargo xtask schema, then read the difference and commit it",
        stale.join("\n")
    )))
}

/// Writes a file where it differs, or returns how it does.
fn keep(workspace: &Workspace, name: &str, fresh: &str, check: bool) -> Result<Option<String>, ChoreFailure> {
    let path = workspace.root().join(name);
    let committed = fs::read_to_string(&path).ok();
    if committed.as_deref() == Some(fresh) {
        return Ok(None);
    }
    if check {
        return Ok(Some(format!("{name}: {}", difference(committed.as_deref(), fresh))));
    }
    let write = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, fresh));
    write.map_err(|e| ChoreFailure::new(format!("{name}: {e}")))?;
    eprintln!("wrote {name}");
    Ok(None)
}

/// Checks that it is JSON, and ends it with exactly one line end.
fn normal(output: &str, kind: &str) -> Result<String, ChoreFailure> {
    let parsed: Result<serde_json::Value, _> = serde_json::from_str(output);
    parsed.map_err(|e| ChoreFailure::new(format!("forebay schema {kind}: its output is not JSON: {e}")))?;
    Ok(format!("{}\n", output.trim_end()))
}

/// The first line that differs, for a person to start from.
fn difference(committed: Option<&str>, fresh: &str) -> String {
    let Some(committed) = committed else {
        return "missing".to_owned();
    };
    let same = committed.lines().zip(fresh.lines()).take_while(|(old, new)| old == new).count();
    let line = |text: &str| text.lines().nth(same).map_or("end of file", str::trim).to_owned();
    format!("line {}: committed `{}`, the code has `{}`", same + 1, line(committed), line(fresh))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_names_its_first_line() {
        assert_eq!(difference(None, "{}\n"), "missing");
        assert_eq!(
            difference(Some("{\n \"a\": 1\n}\n"), "{\n \"a\": 2\n}\n"),
            "line 2: committed `\"a\": 1`, the code has `\"a\": 2`"
        );
        assert_eq!(difference(Some("{\n"), "{\n}\n"), "line 2: committed `end of file`, the code has `}`");
    }

    #[test]
    fn output_that_is_no_json_is_refused() {
        assert_eq!(normal("{}\n\n", "policy").unwrap(), "{}\n");
        assert!(normal("error: no such kind", "policy").unwrap_err().message.contains("forebay schema policy"));
    }
}

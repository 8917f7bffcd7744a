//! `forebay policy`: the policy of a running Forebay, those before it, another one; and what is different between two files.
//!
//! Never: judges a policy. The compiler does, here and in the server.

use super::Output;
use super::args::{CatalogArgs, ServerArgs};
use super::check::compile_file;
use super::outcome::{Exit, Failure, print, print_json, read_bytes};
use crate::api::policy::{API, PolicyHistory, PolicyView, RefusedView};
use crate::policy::history::PolicyEntry;
use crate::show::lists;
use crate::show::table::terminal_width;
use clap::{Args, Subcommand};
use std::path::{Path, PathBuf};

/// `forebay policy`.
#[derive(Debug, Args)]
pub struct PolicyArgs {
    /// What to do.
    #[command(subcommand)]
    pub what: PolicyCommand,
}

/// What to do with policies.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Print the policy in force as it was written, or an earlier one by its hash.
    #[command(after_help = "Examples:\n  forebay policy show\n  forebay policy show 3f9a > before.yaml")]
    Show {
        /// The first digits of its hash, as `forebay policy history` lists it.
        hash: Option<String>,
        /// Whom to ask.
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Say in words what is different between two policies.
    #[command(
        after_help = "Examples:\n  forebay policy diff policy.yaml next.yaml\n  forebay policy diff old.yaml ours.yaml --catalog ours.csv"
    )]
    Diff {
        /// The policy of before.
        old: PathBuf,
        /// The other one.
        new: PathBuf,
        /// What can be bought.
        #[command(flatten)]
        catalog: CatalogArgs,
    },
    /// List the policies that are and were in force: since when, from where, by whom, and what was different.
    #[command(after_help = "Example:\n  forebay policy history --json | jq -r '.policies[0].changes'")]
    History(ServerArgs),
    /// Put another policy in force, where no file owns it.
    #[command(
        visible_alias = "apply",
        after_help = "Example:\n  forebay policy set next.yaml --token-file on-call.token"
    )]
    Set {
        /// The policy. `-` is stdin.
        file: PathBuf,
        /// Whom to ask.
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Put the policy of before in force again, or an earlier one by its hash, where no file owns it.
    #[command(after_help = "Examples:\n  forebay policy rollback\n  forebay policy rollback 3f9a")]
    Rollback {
        /// The first digits of its hash, as `forebay policy history` lists it.
        hash: Option<String>,
        /// Whom to ask.
        #[command(flatten)]
        server: ServerArgs,
    },
}

pub(super) fn run(args: &PolicyArgs, out: Output) -> Result<Exit, Failure> {
    match &args.what {
        PolicyCommand::Diff { old, new, catalog } => diff(old, new, catalog),
        PolicyCommand::Show { hash: None, server } => {
            let view = server.client()?.policy()?;
            if server.json {
                print_json(&view)?
            } else {
                print(&whole(view.text.as_deref().unwrap_or_default()))?;
                // On stderr: stdout is the text alone, which may go into a file.
                if let Some(refused) = &view.standing {
                    eprintln!("{} {}", out.err.warn("warning:"), why_refused(refused));
                }
            }
            Ok(Exit::Done)
        }
        PolicyCommand::Show { hash: Some(hash), server } => {
            let history = server.client()?.policy_history()?;
            let entry = named(&history, hash)?;
            if server.json {
                print_json(entry)?
            } else {
                print(&whole(&entry.text))?
            }
            Ok(Exit::Done)
        }
        PolicyCommand::History(server) => {
            let history = server.client()?.policy_history()?;
            if server.json {
                print_json(&history)?;
            } else {
                let head = format!("the owner is {}: it alone changes the policy", owner(&history));
                print(&format!("{head}\n\n{}\n", lists::policies(&history.policies, terminal_width(), out.paint)))?;
            }
            Ok(Exit::Done)
        }
        PolicyCommand::Set { file, server } => show(server, &server.client()?.set_policy(&read_bytes(file)?)?),
        PolicyCommand::Rollback { hash, server } => {
            let history = server.client()?.policy_history()?;
            let entry = match hash {
                Some(hash) => named(&history, hash)?,
                None => before(&history)?,
            };
            show(server, &server.client()?.set_policy(entry.text.as_bytes())?)
        }
    }
}

fn diff(old: &Path, new: &Path, catalog: &CatalogArgs) -> Result<Exit, Failure> {
    let catalogue = catalog.read()?;
    let ((_, old), (_, new)) = (compile_file(old, &catalogue)?, compile_file(new, &catalogue)?);
    let changes = forebay_policy::difference(&old, &new);
    if changes.is_empty() {
        print("nothing is different\n")?;
    } else {
        print(&format!("{}\n", changes.join("\n")))?;
    }
    Ok(Exit::Done)
}

/// Why the policy that was offered last is not the one in force.
fn why_refused(refused: &RefusedView) -> String {
    format!("the policy that was offered last is refused, and this one goes on:\n{}", refused.message.trim_end())
}

/// With a line end.
fn whole(text: &str) -> String {
    format!("{}\n", text.trim_end())
}

fn owner(history: &PolicyHistory) -> String {
    if history.owner == API { "the API".to_owned() } else { format!("the file {}", history.owner) }
}

/// The one whose hash begins so.
fn named<'h>(history: &'h PolicyHistory, hash: &str) -> Result<&'h PolicyEntry, Failure> {
    let mut found = history.policies.iter().filter(|entry| entry.hash.starts_with(hash));
    let first = found.next().ok_or_else(|| {
        Failure::input(format_args!(
            "no policy in the journal has a hash that begins with {hash}: `forebay policy history` lists them"
        ))
    })?;
    if found.any(|other| other.hash != first.hash) {
        return Err(Failure::input(format_args!(
            "more than one policy has a hash that begins with {hash}: give more digits of it"
        )));
    }
    Ok(first)
}

/// The last one that is another than the one in force.
fn before(history: &PolicyHistory) -> Result<&PolicyEntry, Failure> {
    let (now, earlier) = history.policies.split_first().unzip();
    let other = earlier.into_iter().flatten().find(|entry| now.is_some_and(|now| now.hash != entry.hash));
    other.ok_or_else(|| Failure::input("the journal has no policy of before: write one and put it in force, by `forebay policy set FILE` or, where a file owns the policy, by that file"))
}

fn show(server: &ServerArgs, view: &PolicyView) -> Result<Exit, Failure> {
    if server.json {
        print_json(view)?;
    } else {
        print(&format!("{} is in force: {}\n", view.name, view.hash.as_deref().unwrap_or_default()))?;
    }
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_comes_with_its_reason() {
        let message = "policy.yaml:4:20: `high` is no number\n".to_owned();
        let text = why_refused(&RefusedView { at_s: Default::default(), message });
        assert!(text.contains("is refused") && text.ends_with("`high` is no number"), "{text}");
    }
}

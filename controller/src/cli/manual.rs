//! `forebay completions` and `forebay man`: what shells and manuals know of the command line, made from its own words.
//!
//! Never: a word of its own.

use super::args::{Cli, CompletionsArgs, ManArgs};
use super::outcome::{Exit, Failure, print};
use clap::CommandFactory;
use std::io::ErrorKind;

pub(super) fn completions(args: &CompletionsArgs) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "forebay", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Done)
}

pub(super) fn man(args: &ManArgs) -> Result<Exit, Failure> {
    let command = Cli::command();
    match &args.out {
        Some(folder) => {
            let written = clap_mangen::generate_to(command, folder);
            written.map_err(|e| match e.kind() {
                ErrorKind::NotFound | ErrorKind::NotADirectory => {
                    Failure::input(format_args!("{}: {e}: name a folder that is there", folder.display()))
                }
                _ => Failure::folder(folder, &e),
            })?;
        }
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(command).render(&mut page).map_err(Failure::outside)?;
            print(&String::from_utf8_lossy(&page))?;
        }
    }
    Ok(Exit::Done)
}

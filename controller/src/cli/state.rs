//! `forebay state export`: the state document of a running Forebay.
//!
//! Never: a half-written file.

use super::args::ExportArgs;
use super::outcome::{Exit, Failure, print, write};
use crate::api::client::Client;

pub(super) fn export(args: &ExportArgs) -> Result<Exit, Failure> {
    let text = Client::new(&args.server.server).state()?;
    match &args.out {
        Some(path) => write(path, &text)?,
        None => print(&format!("{text}\n"))?,
    }
    Ok(Exit::Done)
}

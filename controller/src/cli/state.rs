//! `forebay state export`: the state document of a running Forebay.
//!
//! Never: a half-written file.

use super::args::ExportArgs;
use super::outcome::{Exit, Failure, print, write};
use forebay_wire::document::state::StateDocument;

pub(super) fn export(args: &ExportArgs) -> Result<Exit, Failure> {
    let text = args.server.client()?.state()?;
    let document = StateDocument::parse(&text).map_err(Failure::outside)?;
    let text = serde_json::to_string_pretty(&document).map_err(Failure::outside)?;
    match &args.out {
        Some(path) => write(path, &format!("{text}\n"))?,
        None => print(&format!("{text}\n"))?,
    }
    Ok(Exit::Done)
}

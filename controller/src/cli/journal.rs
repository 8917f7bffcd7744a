//! `forebay journal verify`: reads a whole journal from its first batch on.
//!
//! Never: changes it. What a start would cut off is told, not cut.

use super::args::JournalDo;
use super::outcome::{Exit, Failure, print};
use crate::journal::{JournalError, verify};

pub(super) fn run(what: &JournalDo) -> Result<Exit, Failure> {
    let JournalDo::Verify { folder } = what;
    let found = verify(folder).map_err(failure)?;
    let (batches, end, snapshots) = (found.batches, found.end, found.snapshots.len());
    print(&format!("{}: sound: {batches} batches up to position {end}, {snapshots} snapshots\n", folder.display()))?;
    Ok(Exit::Done)
}

fn failure(error: JournalError) -> Failure {
    if error.exit_code() == 2 { Failure::input(error) } else { Failure::outside(error) }
}

//! Files from outside, read with care: price lists, node lists, recorded work and markets. What is wrong with one is said with its
//! place and a remedy.
//!
//! ```text
//! file -> opened, if it can be text -> CsvTable: rows by name of column, with line numbers | the reader's own format
//! ```
//!
//! Never: the whole of a file in memory, nor more than a short, escaped piece of it in a message.

mod error;
mod file;
mod raw;
mod rows;

use std::path::Path;

pub use error::InputError;
pub use file::{Opened, accept, open};
use forebay_quantity::excerpt::escaped;
pub use rows::{CsvRow, CsvTable, MAX_MS};

/// No two lines of a file may carry the same id.
///
/// # Errors
/// About the first line that repeats one.
pub fn no_repeats<'a>(path: &Path, column: &str, ids: impl Iterator<Item = (&'a str, u64)>) -> Result<(), InputError> {
    let mut by_id: Vec<(&str, u64)> = ids.collect();
    by_id.sort_unstable();
    let repeats = by_id.windows(2).filter_map(|w| match w {
        [(a, first), (b, second)] if a == b => Some((*second, *first, *a)),
        _ => None,
    });
    let Some((line, first_line, id)) = repeats.min() else { return Ok(()) };
    let problem = format!("\"{}\" is on line {first_line} already", escaped(id));
    Err(InputError::column(path, line, column, problem, "give each row an id of its own or remove one of the two"))
}

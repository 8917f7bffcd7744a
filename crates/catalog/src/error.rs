//! Why a price list cannot be used, so that whoever wrote it can mend it: file, line, column, value, remedy.
//!
//! Never: more than a short, escaped piece of what the file holds.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// Why a price list cannot be used. Lines are those that an editor counts, from 1. Every message ends with what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CatalogError {
    /// There is no such file.
    #[error("{}: no such file; check the path (relative paths start at the current folder)", .path.display())]
    NotFound {
        /// The path as given.
        path: PathBuf,
    },
    /// The file is there but cannot be read.
    #[error("{}: cannot be read: {source}; check that it is a file and that you may read it", .path.display())]
    Unreadable {
        /// The path as given.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file holds no instance type.
    #[error("{}: {what}; check that it was written in full", .path.display())]
    Empty {
        /// The path as given.
        path: PathBuf,
        /// Whether it is empty altogether or has a header alone.
        what: &'static str,
    },
    /// A column that is needed is missing.
    #[error("{}, line {line}, column {column}: the column is missing, found {found}; {remedy}", .path.display())]
    MissingColumn {
        /// The path as given.
        path: PathBuf,
        /// The header's line.
        line: u64,
        /// The column that is missing.
        column: String,
        /// The header as it is, escaped and cut.
        found: String,
        /// What to do.
        remedy: String,
    },
    /// The file is not text, or a row has too many or too few fields.
    #[error("{}, line {line}: {problem}; {remedy}", .path.display())]
    BadRow {
        /// The path as given.
        path: PathBuf,
        /// The row's line.
        line: u64,
        /// What is wrong with it.
        problem: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A value cannot be what its column is for.
    #[error("{}, line {line}, column {column}: {problem}, found \"{value}\"; {remedy}", .path.display())]
    BadValue {
        /// The path as given.
        path: PathBuf,
        /// The row's line.
        line: u64,
        /// The column.
        column: &'static str,
        /// The value, escaped and cut.
        value: String,
        /// What is wrong with it.
        problem: Cow<'static, str>,
        /// What to do.
        remedy: Cow<'static, str>,
    },
    /// Two rows have the same instance type.
    #[error(
        "{}, line {line}, column {column}: \"{value}\" is on line {first_line} already; give each row an id of its own or remove one of the two",
        .path.display()
    )]
    Repeated {
        /// The path as given.
        path: PathBuf,
        /// The line of the second.
        line: u64,
        /// The column of the name.
        column: &'static str,
        /// The name, escaped and cut.
        value: String,
        /// The line of the first.
        first_line: u64,
    },
    /// The file ends in the middle of a row.
    #[error("{}, line {line}: {problem}; the file was cut off: copy or download it again", .path.display())]
    Truncated {
        /// The path as given.
        path: PathBuf,
        /// Where the unfinished part begins.
        line: u64,
        /// What is unfinished.
        problem: String,
    },
}

impl CatalogError {
    pub(crate) fn io(path: &Path, source: std::io::Error) -> CatalogError {
        if source.kind() == std::io::ErrorKind::NotFound {
            CatalogError::NotFound { path: path.to_owned() }
        } else {
            CatalogError::Unreadable { path: path.to_owned(), source }
        }
    }
}

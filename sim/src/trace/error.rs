//! What can be wrong with an input file, so that its reader can mend it: file, line, column, value, remedy.
//! It never prints, and never holds more than a short, escaped piece of what the file contained.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

pub use forebay_quantity::excerpt::{ESCAPED_CHARS as SHOWN_CHARS, escaped as shown};

/// Why a trace, a node list, a price list or a market file cannot be used.
///
/// Lines are 1-based lines of the file as an editor counts them. Every message ends with what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
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
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The file holds nothing to work on.
    #[error("{}: {what}; check that it was written in full", .path.display())]
    Empty {
        /// The path as given.
        path: PathBuf,
        /// Whether it is empty altogether or has a header alone.
        what: &'static str,
    },
    /// The file is not UTF-8 text.
    #[error("{}, line {line}: {problem}; {remedy}", .path.display())]
    NotText {
        /// The path as given.
        path: PathBuf,
        /// The line that the first such byte is on.
        line: u64,
        /// What was found instead of text.
        problem: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// The content is of no known format.
    #[error("{}, line 1: not a trace format known here, begins with \"{found}\"; {remedy}", .path.display())]
    UnknownFormat {
        /// The path as given.
        path: PathBuf,
        /// How the file begins, escaped and cut.
        found: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A format was asked for by a name that is none.
    #[error("\"{name}\" is not a trace format; use one of normalized, openb, philly, helios, events, or leave it out")]
    UnknownFormatName {
        /// The name, escaped and cut.
        name: String,
    },
    /// A column (or a JSON key) that the format requires is missing.
    #[error("{}, line {line}, column {column}: the column is missing, found {found}; {remedy}", .path.display())]
    MissingColumn {
        /// The path as given.
        path: PathBuf,
        /// The header's line, or the object's.
        line: u64,
        /// The column that is missing.
        column: String,
        /// What is there instead, escaped and cut.
        found: String,
        /// What to do.
        remedy: Cow<'static, str>,
    },
    /// A value does not fit its column.
    #[error("{}, line {line}, column {column}: {problem}, found \"{value}\"; {remedy}", .path.display())]
    BadValue {
        /// The path as given.
        path: PathBuf,
        /// The row's line.
        line: u64,
        /// The column, or the JSON key path.
        column: Box<str>,
        /// The value, escaped and cut.
        value: Box<str>,
        /// What is wrong with it.
        problem: Cow<'static, str>,
        /// What to do.
        remedy: Cow<'static, str>,
    },
    /// A row has the wrong shape: too many or too few fields, a stray quote, no JSON.
    #[error("{}, line {line}: {problem}; {remedy}", .path.display())]
    BadRow {
        /// The path as given.
        path: PathBuf,
        /// The row's line.
        line: u64,
        /// What is wrong with it.
        problem: String,
        /// What to do.
        remedy: Cow<'static, str>,
    },
    /// Two rows carry the same id.
    #[error(
        "{}, line {line}, column {column}: \"{value}\" is on line {first_line} already; give each row an id of its own or remove one of the two",
        .path.display()
    )]
    Repeated {
        /// The path as given.
        path: PathBuf,
        /// The line of the second.
        line: u64,
        /// The id's column.
        column: String,
        /// The id, escaped and cut.
        value: String,
        /// The line of the first.
        first_line: u64,
    },
    /// The file ends in the middle of something.
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

impl TraceError {
    pub(crate) fn io(path: &Path, source: std::io::Error) -> Self {
        if source.kind() == std::io::ErrorKind::NotFound {
            Self::NotFound { path: path.to_owned() }
        } else {
            Self::Unreadable { path: path.to_owned(), source }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn what_is_shown_is_escaped_and_cut() {
        assert_eq!(shown("a\tb\u{0}"), "a\\tb\\0");
        assert_eq!(shown(&"x".repeat(81)), format!("{}...", "x".repeat(80)));
        assert_eq!(shown(&"x".repeat(80)), "x".repeat(80));
    }
}

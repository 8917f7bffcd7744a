//! What can be wrong with an input file, so that its reader can mend it: file, line, column, value, remedy.
//! It never prints, and never holds more than a short, escaped piece of what the file contained.

use std::borrow::Cow;
use std::path::Path;

use forebay_quantity::excerpt::escaped;

/// A problem, or what to do about it.
type Text = Cow<'static, str>;

/// Why a trace, a node list, a price list or a market file cannot be used.
///
/// Its message names the file, the line (1-based, as an editor counts), the column or JSON key and the value, where the error is about
/// them, and ends with what to do.
#[derive(Debug, thiserror::Error)]
#[error("{place}{problem}; {remedy}")]
pub struct InputError {
    place: String,
    problem: Text,
    remedy: Text,
    source: Option<std::io::Error>,
}

impl InputError {
    /// Something is wrong at a place, which ends with a colon and a blank, or is empty where there is none.
    pub fn new(place: String, problem: impl Into<Text>, remedy: impl Into<Text>) -> Self {
        Self { place, problem: problem.into(), remedy: remedy.into(), source: None }
    }

    /// The file is not there, or cannot be read.
    pub fn io(path: &Path, source: std::io::Error) -> Self {
        let place = format!("{}: ", path.display());
        if source.kind() == std::io::ErrorKind::NotFound {
            return Self::new(place, "no such file", "check the path (relative paths start at the current folder)");
        }
        let problem = format!("cannot be read: {source}");
        Self { source: Some(source), ..Self::new(place, problem, "check that it is a file and that you may read it") }
    }

    /// The file holds nothing to work on: `what` says whether it is empty altogether or has a header alone.
    pub fn empty(path: &Path, what: &'static str) -> Self {
        Self::new(format!("{}: ", path.display()), what, "check that it was written in full")
    }

    /// A line is not text, or has the wrong shape.
    pub fn line(path: &Path, line: u64, problem: impl Into<Text>, remedy: impl Into<Text>) -> Self {
        Self::new(format!("{}, line {line}: ", path.display()), problem, remedy)
    }

    /// The file ends in the middle of something, which begins on `line`.
    pub fn truncated(path: &Path, line: u64, problem: impl Into<Text>) -> Self {
        Self::line(path, line, problem, "the file was cut off: copy or download it again")
    }

    /// A column, or a JSON key, is not as it should be.
    pub fn column(path: &Path, line: u64, column: &str, problem: impl Into<Text>, remedy: impl Into<Text>) -> Self {
        Self::new(format!("{}, line {line}, column {column}: ", path.display()), problem, remedy)
    }

    /// A column, or a JSON key, is missing; `found` is there instead.
    pub fn missing(path: &Path, line: u64, column: &str, found: &str, remedy: impl Into<Text>) -> Self {
        Self::column(path, line, column, format!("the column is missing, found {}", escaped(found)), remedy)
    }
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn what_is_shown_is_escaped_and_cut() {
        assert_eq!(escaped("a\tb\u{0}"), "a\\tb\\0");
        assert_eq!(escaped(&"x".repeat(81)), format!("{}...", "x".repeat(80)));
        assert_eq!(escaped(&"x".repeat(80)), "x".repeat(80));
    }
}

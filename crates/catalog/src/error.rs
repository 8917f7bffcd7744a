//! Why a price list cannot be used, so that whoever wrote it can mend it: file, line, column, value, remedy.
//!
//! Never: more than a short, escaped piece of what the file holds.

use std::fmt::Display;
use std::path::Path;

/// Why a price list cannot be used. Every message ends with what to do.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {problem}; {remedy}")]
pub struct CatalogError {
    /// The path as given, the line that an editor counts from 1, and the column, as far as they are known.
    pub place: String,
    /// What is wrong there, with an escaped piece of what was found.
    pub problem: String,
    /// What to do.
    pub remedy: String,
}

impl CatalogError {
    pub(crate) fn new(place: impl Display, problem: impl Into<String>, remedy: impl Into<String>) -> CatalogError {
        CatalogError { place: place.to_string(), problem: problem.into(), remedy: remedy.into() }
    }

    pub(crate) fn on_line(path: &Path, line: u64, problem: impl Into<String>, remedy: &str) -> CatalogError {
        CatalogError::new(format!("{}, line {line}", path.display()), problem, remedy)
    }

    pub(crate) fn cut_off(path: &Path, line: u64, problem: &str) -> CatalogError {
        CatalogError::on_line(path, line, problem, "the file was cut off: copy or download it again")
    }

    pub(crate) fn empty(path: &Path, problem: &str) -> CatalogError {
        CatalogError::new(path.display(), problem, "check that it was written in full")
    }

    pub(crate) fn io(path: &Path, error: &std::io::Error) -> CatalogError {
        if error.kind() == std::io::ErrorKind::NotFound {
            let remedy = "check the path (relative paths start at the current folder)";
            CatalogError::new(path.display(), "no such file", remedy)
        } else {
            let remedy = "check that it is a file and that you may read it";
            CatalogError::new(path.display(), format!("cannot be read: {error}"), remedy)
        }
    }
}

//! The documents in which people and programs read state: jobs, nodes, queues and offerings, the state document, and the plan of one pass.
//!
//! The state document uses the same views for what people write by hand: fields that only a running Forebay fills in are optional.
//! Never: an engine. What fills these types, and what makes an engine of them, is elsewhere.

pub mod plan;
pub mod reason;
pub mod seconds;
pub mod state;
pub mod views;
pub mod within;

use std::fmt;

/// What is wrong with a document, where in it, and what to do about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DocumentFault {
    /// Where, as a JSON path such as `jobs[3].gpus`. Empty: the document as a whole.
    pub path: String,
    /// What is wrong, lower case.
    pub message: String,
    /// What to do about it.
    pub remedy: String,
}

impl DocumentFault {
    /// A fault at a path.
    pub fn at(path: impl Into<String>, message: impl Into<String>, remedy: impl Into<String>) -> DocumentFault {
        DocumentFault { path: path.into(), message: message.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for DocumentFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        write!(f, "{}: {}", self.message, self.remedy)
    }
}

impl std::error::Error for DocumentFault {}

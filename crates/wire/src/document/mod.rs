//! The documents in which people and programs read state: jobs, nodes, queues and offerings, the state document, and the plan of one pass.
//!
//! The state document uses the same views for what people write by hand: fields that only a running Forebay fills in are optional.
//! Never: an engine. What fills these types, and what makes an engine of them, is elsewhere.

pub mod cost;
pub mod demand;
pub mod memory;
pub mod plan;
pub mod reason;
pub mod seconds;
pub mod state;
pub mod views;
pub mod within;

/// What is wrong with a document, where in it, and what to do about it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}{message}: {remedy}", if .path.is_empty() { String::new() } else { format!("{path}: ") })]
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

//! The state as people and programs read it: views of jobs, nodes, queues and offerings, the state document, and the plan of one pass.
//!
//! ```text
//! Engine -> views -> API answers, tables
//! Engine -> State document -> file -> Engine -> one pass -> Plan document
//! ```
//!
//! Never: changes an engine that runs. A plan is made on an engine of its own.

pub mod event;
mod places;
pub mod plan;
pub mod reason;
pub mod rebuild;
pub mod seconds;
mod spec;
pub mod state;
pub mod views;
pub mod within;
pub mod write;

use std::fmt;

/// What is wrong with a document, where in it, and what to do about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Where, as a JSON path such as `jobs[3].gpus`. Empty: the document as a whole.
    pub path: String,
    /// What is wrong, lower case.
    pub message: String,
    /// What to do about it.
    pub remedy: String,
}

impl Fault {
    /// A fault at a path.
    pub fn at(path: impl Into<String>, message: impl Into<String>, remedy: impl Into<String>) -> Fault {
        Fault { path: path.into(), message: message.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        write!(f, "{}: {}", self.message, self.remedy)
    }
}

impl std::error::Error for Fault {}

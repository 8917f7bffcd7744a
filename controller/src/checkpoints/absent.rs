//! What stands for the store in a binary without it: nothing can be opened.
//!
//! Never: believes a report where the configuration asks for a look.

use super::{CheckpointsError, Report};
use crate::config::checkpoints::CheckpointsConfig;
use forebay_engine::units::Span;
use forebay_source::Finding;

/// There is none.
#[derive(Debug)]
pub(super) enum Store {}

/// What a look would bring.
#[expect(dead_code, reason = "nothing is looked at in this binary")]
pub(super) enum Looked {
    Counts { progress: Span, passed_over: Vec<String> },
    Refused { why: String, nothing_yet: bool },
    Unknown { why: String },
}

impl Store {
    pub fn open(_: &CheckpointsConfig) -> Result<Store, CheckpointsError> {
        Err(CheckpointsError::NotBuilt)
    }

    pub async fn look(&self, _: &str, _: &Report) -> Looked {
        match *self {}
    }
}

/// It cannot work.
///
/// # Errors
/// Always.
pub fn check(_: &CheckpointsConfig) -> Result<(), CheckpointsError> {
    Err(CheckpointsError::NotBuilt)
}

/// Says so.
pub fn probe(_: &CheckpointsConfig, _: &tokio::runtime::Handle) -> Vec<Finding> {
    vec![Finding::bad("checkpoints", CheckpointsError::NotBuilt.to_string())]
}

//! The store in a binary without the adapter: it cannot be opened, so that no report is trusted by accident.

use super::{CheckpointReport, CheckpointsError, StoreVerdict};
use crate::config::checkpoints::CheckpointsConfig;
use forebay_source::Diagnostic;

/// A store that does not exist.
#[derive(Debug)]
pub(super) enum CheckpointStore {}

impl CheckpointStore {
    pub fn open(_: &CheckpointsConfig) -> Result<CheckpointStore, CheckpointsError> {
        Err(CheckpointsError::NotBuilt)
    }

    pub async fn verify(&self, _: &str, _: &CheckpointReport) -> StoreVerdict {
        match *self {}
    }
}

/// Refuses the configuration.
///
/// # Errors
/// Always: this binary was built without the adapter.
pub fn check(_: &CheckpointsConfig) -> Result<(), CheckpointsError> {
    Err(CheckpointsError::NotBuilt)
}

/// Reports that this binary was built without the adapter.
pub fn probe(_: &CheckpointsConfig, _: &tokio::runtime::Handle) -> Vec<Diagnostic> {
    vec![Diagnostic::error("checkpoints", CheckpointsError::NotBuilt.to_string())]
}

//! The configured checkpoint store.

use super::{CheckpointReport, CheckpointsError, StoreVerdict};
use crate::config::checkpoints::CheckpointsConfig;
use crate::sources::adapter::access_key;
use forebay_checkpoint_s3 as adapter;
use forebay_kernel::units::Span;
use forebay_source::Diagnostic;
use std::pin::Pin;

/// The store.
#[derive(Debug)]
pub(super) struct CheckpointStore(adapter::CheckpointVerifier);

impl CheckpointStore {
    pub fn open(config: &CheckpointsConfig) -> Result<CheckpointStore, CheckpointsError> {
        Ok(CheckpointStore(adapter::CheckpointVerifier::new(settings(config)?)?))
    }

    pub async fn verify(&self, uri: &str, report: &CheckpointReport) -> StoreVerdict {
        let job = report.job.to_string();
        let request = adapter::VerifyRequest { uri, job: &job, attempt: report.attempt.0 };
        // Boxed, because the types of the futures below are too deep for the compiler.
        let verification: Pin<Box<dyn Future<Output = _> + Send + '_>> = match &report.manifest {
            Some(manifest) => Box::pin(self.0.verify(&request, manifest)),
            None => Box::pin(self.0.latest(&request)),
        };
        match verification.await {
            Ok(found) => StoreVerdict::Accepted {
                progress: Span(u64::try_from(found.progress.as_millis()).unwrap_or(u64::MAX)),
                skipped: found.skipped.iter().map(ToString::to_string).collect(),
            },
            Err(adapter::CheckError::Refused(why)) => {
                StoreVerdict::Refused { why: why.to_string(), no_manifest: why.is_nothing_yet() }
            }
            Err(adapter::CheckError::Unavailable(unavailable)) => StoreVerdict::Unavailable { why: unavailable.why },
        }
    }
}

/// Checks the configuration, without secrets and without the network.
///
/// # Errors
/// The first invalid setting, with a remedy.
pub fn check(config: &CheckpointsConfig) -> Result<(), CheckpointsError> {
    Ok(settings_with(config, None).check()?)
}

/// Checks the configured stores, without changes. It blocks, so it must not be called from async code.
pub fn probe(config: &CheckpointsConfig, runtime: &tokio::runtime::Handle) -> Vec<Diagnostic> {
    match settings(config) {
        Ok(settings) => adapter::probe(&settings, runtime),
        Err(error) => vec![Diagnostic::error("checkpoints", error.to_string())],
    }
}

fn settings(config: &CheckpointsConfig) -> Result<adapter::CheckpointSettings, CheckpointsError> {
    let keys = config.s3.as_ref().and_then(|s3| s3.keys.as_ref());
    let access_key = keys.map(|keys| access_key(keys, "checkpoints `s3`")).transpose()?;
    Ok(settings_with(config, access_key))
}

fn settings_with(config: &CheckpointsConfig, access_key: Option<adapter::AccessKey>) -> adapter::CheckpointSettings {
    let defaults = adapter::CheckpointSettings::default();
    let s3 = config.s3.as_ref().map(|s3| adapter::S3Settings {
        aws: adapter::AwsSettings { region: s3.region.clone(), endpoint: s3.endpoint.clone(), access_key },
        buckets: s3.buckets.clone(),
    });
    let read_at_most = config.read_at_most.map_or(defaults.read_at_most, |memory| memory.0.0.saturating_mul(1 << 20));
    adapter::CheckpointSettings { s3, files: config.files, read_at_most, ..defaults }
}

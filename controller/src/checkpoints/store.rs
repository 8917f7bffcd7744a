//! The store that the configuration names.
//!
//! Never: a key outside the adapter's settings.

use super::{CheckpointsError, Report};
use crate::config::checkpoints::CheckpointsConfig;
use crate::sources::open::keys;
use forebay_checkpoint_s3 as adapter;
use forebay_engine::units::Span;
use forebay_source::Finding;
use std::pin::Pin;

/// Looks at checkpoints.
#[derive(Debug)]
pub(super) struct Store(adapter::Checkpoints);

/// What a look brought.
pub(super) enum Looked {
    /// So much work is saved. Newer manifests that do not count, and why.
    Counts { progress: Span, passed_over: Vec<String> },
    /// It does not count. `nothing_yet`: there is no manifest at all.
    Refused { why: String, nothing_yet: bool },
    /// Nobody can say.
    Unknown { why: String },
}

impl Store {
    pub fn open(config: &CheckpointsConfig) -> Result<Store, CheckpointsError> {
        Ok(Store(adapter::Checkpoints::new(settings(config)?)?))
    }

    pub async fn look(&self, uri: &str, report: &Report) -> Looked {
        let job = report.job.to_string();
        let ask = adapter::Ask { uri, job: &job, attempt: report.attempt.0 };
        // Boxed: what lies below is deeper than the compiler follows through futures of ours.
        let looking: Pin<Box<dyn Future<Output = _> + Send + '_>> = match &report.manifest {
            Some(manifest) => Box::pin(self.0.verify(&ask, manifest)),
            None => Box::pin(self.0.latest(&ask)),
        };
        match looking.await {
            Ok(found) => Looked::Counts {
                progress: Span(u64::try_from(found.progress.as_millis()).unwrap_or(u64::MAX)),
                passed_over: found.passed_over.iter().map(ToString::to_string).collect(),
            },
            Err(adapter::CheckError::Refused(why)) => {
                Looked::Refused { why: why.to_string(), nothing_yet: why.is_nothing_yet() }
            }
            Err(adapter::CheckError::Unknown(unknown)) => Looked::Unknown { why: unknown.why },
        }
    }
}

/// Whether the configuration can work, as far as that can be told without a secret or a network.
///
/// # Errors
/// The first setting that cannot be, and what to write.
pub fn check(config: &CheckpointsConfig) -> Result<(), CheckpointsError> {
    Ok(settings_with(config, None).check()?)
}

/// Looks at what is named, read-only. Blocks; not for async code.
pub fn probe(config: &CheckpointsConfig, runtime: &tokio::runtime::Handle) -> Vec<Finding> {
    match settings(config) {
        Ok(settings) => adapter::probe(&settings, runtime),
        Err(error) => vec![Finding::bad("checkpoints", error.to_string())],
    }
}

fn settings(config: &CheckpointsConfig) -> Result<adapter::Settings, CheckpointsError> {
    let keys = config.s3.as_ref().and_then(|s3| s3.keys.as_ref()).map(|k| keys(k, "checkpoints `s3`")).transpose()?;
    Ok(settings_with(config, keys))
}

fn settings_with(config: &CheckpointsConfig, keys: Option<adapter::Keys>) -> adapter::Settings {
    let usual = adapter::Settings::default();
    let s3 = config.s3.as_ref().map(|s3| adapter::S3Settings {
        place: adapter::Place { region: s3.region.clone(), endpoint: s3.endpoint.clone(), keys },
        buckets: s3.buckets.clone(),
    });
    let read_at_most = config.read_at_most.map_or(usual.read_at_most, |memory| memory.0.0.saturating_mul(1 << 20));
    adapter::Settings { s3, files: config.files, read_at_most, ..usual }
}

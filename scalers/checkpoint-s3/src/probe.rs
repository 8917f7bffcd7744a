//! What `forebay doctor` wants to know of the place where checkpoints are.
//!
//! Never: changes anything, or reads an object: which ones there are is each job's business.

use crate::settings::Settings;
use crate::verify::Checkpoints;
use forebay_source::Finding;
use tokio::runtime::Handle;

/// Tries what can be tried without a job: credentials, and listing each bucket that is named. Blocks; not to be called from a task of the
/// runtime.
#[must_use]
pub fn probe(settings: &Settings, runtime: &Handle) -> Vec<Finding> {
    runtime.block_on(probe_all(settings))
}

async fn probe_all(settings: &Settings) -> Vec<Finding> {
    let checkpoints = match Checkpoints::new(settings.clone()) {
        Ok(checkpoints) => checkpoints,
        Err(error) => return vec![Finding::bad("checkpoints", error.to_string())],
    };
    let mut findings = Vec::new();
    if settings.files {
        findings.push(Finding::fine("checkpoints: files", "file:/// is looked at where the controller runs"));
    }
    let (Some(s3), Some(given)) = (checkpoints.s3(), &settings.s3) else { return findings };
    let (_, way) = match s3.way().await {
        Ok(way) => way,
        Err(error) => {
            findings.push(Finding::bad("checkpoints: s3", error.to_string()));
            return findings;
        }
    };
    let place = format!("checkpoints: s3 {} ({})", given.place.endpoint.as_deref().unwrap_or("AWS"), way.region);
    match forebay_aws::describe(way).await {
        Ok(said) => findings.push(Finding::fine(format!("{place} credentials"), said)),
        Err(said) => {
            findings.push(Finding::bad(format!("{place} credentials"), said));
            findings.push(Finding::bad(format!("{place} buckets"), "not tried: there are no credentials"));
            return findings;
        }
    }
    if given.buckets.is_empty() {
        let said = "none is named, so that none can be tried, and jobs may name any; list those that jobs may use in `checkpoints.s3.buckets`";
        findings.push(Finding::warning(format!("{place} buckets"), said));
    }
    for bucket in s3.named() {
        let what = format!("{place} bucket {}", bucket.shown());
        findings.push(match bucket.try_list().await {
            Ok(()) => Finding::fine(
                what,
                "can be listed; reading objects is not tried, which there are is each job's business",
            ),
            Err(error) => Finding::bad(what, error.to_string()),
        });
    }
    findings
}

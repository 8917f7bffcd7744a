//! The checks of `forebay doctor` for the stores of checkpoints. They change nothing and read no object, because objects belong to the jobs.

use crate::settings::CheckpointSettings;
use crate::verify::CheckpointVerifier;
use forebay_source::Diagnostic;
use tokio::runtime::Handle;

/// Checks the credentials, and lists each bucket of the settings. Blocks; it must not be called from a task of the runtime.
#[must_use]
pub fn probe(settings: &CheckpointSettings, runtime: &Handle) -> Vec<Diagnostic> {
    runtime.block_on(probe_all(settings))
}

async fn probe_all(settings: &CheckpointSettings) -> Vec<Diagnostic> {
    let checkpoints = match CheckpointVerifier::new(settings.clone()) {
        Ok(checkpoints) => checkpoints,
        Err(error) => return vec![Diagnostic::error("checkpoints", error.to_string())],
    };
    let mut diagnostics = Vec::new();
    if settings.files {
        diagnostics.push(Diagnostic::ok("checkpoints: files", "file:/// is read where the controller runs"));
    }
    let (Some(s3), Some(given)) = (checkpoints.s3(), &settings.s3) else { return diagnostics };
    let (_, connection) = match s3.connection().await {
        Ok(connection) => connection,
        Err(error) => {
            diagnostics.push(Diagnostic::error("checkpoints: s3", error.to_string()));
            return diagnostics;
        }
    };
    let location =
        format!("checkpoints: s3 {} ({})", given.aws.endpoint.as_deref().unwrap_or("AWS"), connection.region);
    match forebay_aws::describe_credentials(connection).await {
        Ok(found) => diagnostics.push(Diagnostic::ok(format!("{location} credentials"), found)),
        Err(why) => {
            diagnostics.push(Diagnostic::error(format!("{location} credentials"), why));
            diagnostics.push(Diagnostic::error(format!("{location} buckets"), "not checked: there are no credentials"));
            return diagnostics;
        }
    }
    if given.buckets.is_empty() {
        let advice = "none is listed, so none can be checked, and jobs may use any; list those that jobs may use in `checkpoints.s3.buckets`";
        diagnostics.push(Diagnostic::warning(format!("{location} buckets"), advice));
    }
    for bucket in s3.named() {
        let what = format!("{location} bucket {}", bucket.name());
        diagnostics.push(match bucket.try_list().await {
            Ok(()) => {
                Diagnostic::ok(what, "can be listed; reading objects is not checked, because they belong to the jobs")
            }
            Err(error) => Diagnostic::error(what, error.to_string()),
        });
    }
    diagnostics
}

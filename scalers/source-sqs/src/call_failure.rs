//! A failed call to SQS, with what helps against it and how long to wait before the next attempt. Messages never contain credentials.

use crate::settings::SqsTimings;
use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};
use forebay_aws::CallError;
pub(crate) use forebay_aws::{FailureKind, RetryDelays};
use std::error::Error;
use std::future::Future;
use std::time::Duration;

/// A failed call.
#[derive(Clone, Debug)]
pub(crate) struct CallFailure {
    /// What helps against it.
    pub kind: FailureKind,
    /// Where and why it failed, and what to do.
    pub why: String,
}

impl CallFailure {
    pub fn new(kind: FailureKind, why: impl Into<String>) -> CallFailure {
        CallFailure { kind, why: why.into() }
    }

    /// Counts the failure, and returns how long to wait before the next attempt.
    pub fn delay(&self, delays: &mut RetryDelays, timings: &SqsTimings) -> Duration {
        let delay = delays.next_delay();
        if self.kind.needs_operator() { timings.operator_delay } else { delay }
    }
}

/// Awaits a call, with a time limit.
pub(crate) async fn with_timeout<T, E>(
    limit: Duration,
    action: &str,
    queue: &str,
    call: impl Future<Output = Result<T, SdkError<E>>>,
) -> Result<T, CallFailure>
where
    E: ProvideErrorMetadata + Error + 'static,
{
    match tokio::time::timeout(limit, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(classify(action, queue, &error)),
        Err(_) => Err(CallFailure::new(
            FailureKind::Transient,
            format!(
                "sqs queue `{queue}`: no response to {action} within {limit:?}; check the endpoint and the network"
            ),
        )),
    }
}

/// Adds to the error of a call what helps against it.
fn classify<E>(action: &str, queue: &str, error: &SdkError<E>) -> CallFailure
where
    E: ProvideErrorMetadata + Error + 'static,
{
    let at = format!("sqs queue `{queue}`: {action}");
    match CallError::from_sdk(error) {
        CallError::Service { code, message, status } => {
            let kind = classify_code(&code, status);
            CallFailure::new(kind, format!("{at}: {code}: {message}; {}", remedy(kind, &code, action)))
        }
        CallError::NoCredentials(why) => {
            let remedy = "no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, a role of the \
                          container or the machine, or the keys in the configuration";
            CallFailure::new(FailureKind::BadCredentials, format!("{at}: {remedy} ({why})"))
        }
        CallError::NoResponse(why) => {
            CallFailure::new(FailureKind::Transient, format!("{at}: {why}; check the endpoint and the network"))
        }
    }
}

/// Classifies an error code. SQS uses old codes (`AWS.SimpleQueueService.NonExistentQueue`) beside new ones.
pub(crate) fn classify_code(code: &str, status: u16) -> FailureKind {
    let bare = code.rsplit(['.', '#']).next().unwrap_or(code);
    match bare {
        "QueueDoesNotExist" | "NonExistentQueue" | "QueueDeletedRecently" | "InvalidAddress" => FailureKind::NotFound,
        "InvalidMessageContents" | "BatchRequestTooLong" | "InvalidAttributeValue" => FailureKind::InvalidRequest,
        // SQS answers with 403 where it throttles a queue and where too many messages are in flight: no permission helps.
        "RequestThrottled" | "ThrottlingException" | "KmsThrottled" | "OverLimit" => FailureKind::Transient,
        _ => forebay_aws::classify_code(code, status),
    }
}

fn remedy(kind: FailureKind, code: &str, action: &str) -> String {
    match kind {
        FailureKind::PermissionDenied if code.to_ascii_lowercase().contains("kms") => {
            "allow kms:Decrypt and kms:GenerateDataKey on the queue's key to these credentials".to_owned()
        }
        FailureKind::PermissionDenied => format!("allow sqs:{} on the queue to these credentials", permission(action)),
        FailureKind::BadCredentials => {
            "the credentials are not accepted: correct the access key, its secret or the role".to_owned()
        }
        FailureKind::NotFound => {
            "create the queue, or correct its name, its region and its account (a queue of another account is named by \
             its URL)"
                .to_owned()
        }
        FailureKind::InvalidRequest => "SQS does not accept what was sent".to_owned(),
        FailureKind::Transient if code.contains("Expired") => {
            "fresh credentials are used as soon as the chain has them; explicit keys have to be renewed in the \
             configuration"
                .to_owned()
        }
        FailureKind::Transient if code.ends_with("OverLimit") => {
            "too many messages of the queue are in flight: look who receives and does not delete them".to_owned()
        }
        FailureKind::Transient => "retried after a delay".to_owned(),
    }
}

/// The permission that a call needs. A batch needs that of the single call.
fn permission(action: &str) -> &str {
    action.strip_suffix("Batch").unwrap_or(action)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_classified_by_what_helps() {
        for (code, status, kind) in [
            ("AccessDenied", 403, FailureKind::PermissionDenied),
            ("AccessDeniedException", 400, FailureKind::PermissionDenied),
            ("KMS.AccessDeniedException", 400, FailureKind::PermissionDenied),
            ("AWS.SimpleQueueService.NonExistentQueue", 400, FailureKind::NotFound),
            ("com.amazonaws.sqs#QueueDoesNotExist", 400, FailureKind::NotFound),
            ("AWS.SimpleQueueService.QueueDeletedRecently", 400, FailureKind::NotFound),
            ("InvalidClientTokenId", 403, FailureKind::BadCredentials),
            ("SignatureDoesNotMatch", 403, FailureKind::BadCredentials),
            ("ExpiredToken", 403, FailureKind::Transient),
            ("RequestThrottled", 400, FailureKind::Transient),
            ("RequestThrottled", 403, FailureKind::Transient),
            ("ThrottlingException", 400, FailureKind::Transient),
            ("AWS.SimpleQueueService.OverLimit", 403, FailureKind::Transient),
            ("KMS.ThrottlingException", 403, FailureKind::Transient),
            ("InternalError", 500, FailureKind::Transient),
            ("NewlyInvented", 403, FailureKind::PermissionDenied),
            ("InvalidMessageContents", 400, FailureKind::InvalidRequest),
        ] {
            assert_eq!(classify_code(code, status), kind, "{code} {status}");
        }
    }

    #[test]
    fn what_an_operator_has_to_fix_is_retried_slowly() {
        let timings = SqsTimings::default();
        let mut delays = timings.delays();
        for (nth, step) in [200, 400, 800, 1_600, 3_200, 6_400, 12_800, 20_000, 20_000].into_iter().enumerate() {
            let delay = CallFailure::new(FailureKind::Transient, "").delay(&mut delays, &timings).as_millis();
            assert!((step / 2..=step).contains(&delay), "delay {nth} is {delay} ms");
        }
        let denied = CallFailure::new(FailureKind::PermissionDenied, "");
        assert_eq!(denied.delay(&mut delays, &timings), timings.operator_delay);
    }

    #[test]
    fn a_batch_needs_the_permission_of_the_single_call() {
        assert_eq!(permission("DeleteMessageBatch"), "DeleteMessage");
        assert_eq!(permission("ReceiveMessage"), "ReceiveMessage");
    }
}

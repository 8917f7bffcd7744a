//! Classifies failed calls to SQS by what fixes them.

use super::QueueTimings;
use aws_sdk_sqs::config::http::HttpResponse;
use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};
use forebay_aws::{CallError, FailureKind, RetryDelays, classify_code};
use std::error::Error;
use std::future::Future;
use std::time::Duration;

/// A failed call.
#[derive(Clone, Debug)]
pub(super) struct QueueFailure {
    /// What fixes it.
    pub kind: FailureKind,
    /// The error with the queue, the action and the remedy.
    pub why: String,
}

/// The delays after failures of one queue.
pub(super) struct QueueDelays {
    delays: RetryDelays,
    operator_delays: RetryDelays,
}

impl QueueDelays {
    pub fn new(timings: &QueueTimings) -> QueueDelays {
        QueueDelays {
            delays: RetryDelays::new(timings.first_delay, timings.longest_delay),
            operator_delays: RetryDelays::new(timings.operator_delay, timings.operator_delay),
        }
    }

    /// The number of failures in a row.
    pub fn failures(&self) -> u32 {
        self.delays.failures()
    }

    pub fn reset(&mut self) {
        self.delays.reset();
    }

    /// Counts a failure and returns the delay after it.
    pub fn next_delay(&mut self, failure: &QueueFailure) -> Duration {
        let delay = self.delays.next_delay();
        if failure.kind.needs_operator() { self.operator_delays.next_delay() } else { delay }
    }
}

/// Awaits a call, at most until the timeout.
pub(super) async fn with_timeout<T, E>(
    timeout: Duration,
    action: &str,
    queue: &str,
    call: impl Future<Output = Result<T, SdkError<E, HttpResponse>>>,
) -> Result<T, QueueFailure>
where
    E: ProvideErrorMetadata + Error + 'static,
{
    match tokio::time::timeout(timeout, call).await {
        Ok(Ok(output)) => Ok(output),
        Ok(Err(error)) => Err(classify(action, queue, CallError::from_sdk(&error))),
        Err(_) => Err(classify(action, queue, CallError::NoResponse(format!("nothing within {timeout:?}")))),
    }
}

/// Adds the kind and the remedy to an error.
pub(super) fn classify(action: &str, queue: &str, error: CallError) -> QueueFailure {
    let (kind, text) = match error {
        CallError::Service { code, message, status } => {
            let bare = code.rsplit(['.', '#']).next().unwrap_or(&code);
            let missing = matches!(bare, "QueueDoesNotExist" | "NonExistentQueue" | "QueueDeletedRecently");
            let kind = if missing { FailureKind::NotFound } else { classify_code(&code, status) };
            (kind, format!("{code}: {message}"))
        }
        CallError::NoCredentials(why) => (FailureKind::BadCredentials, why),
        CallError::NoResponse(why) => (FailureKind::Transient, why),
    };
    let remedy = match kind {
        FailureKind::PermissionDenied => {
            format!("allow sqs:{} on the queue to these credentials", action.trim_end_matches("Batch"))
        }
        FailureKind::BadCredentials => "give credentials, or correct the access key, its secret or the role".to_owned(),
        FailureKind::NotFound => {
            "create the queue (deploy/aws), or correct its name, its region and its account".to_owned()
        }
        FailureKind::InvalidRequest => "SQS does not accept the request".to_owned(),
        FailureKind::Transient => "it is retried; if this continues, check the endpoint and the network".to_owned(),
    };
    let text = forebay_aws::truncate(&text);
    QueueFailure { kind, why: format!("interruption queue `{queue}`: {action}: {text}; {remedy}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_a_remedy() {
        let service = |code: &str, status| CallError::Service { code: code.into(), message: "m".into(), status };
        for (error, kind, part) in [
            (service("AWS.SimpleQueueService.NonExistentQueue", 400), FailureKind::NotFound, "create the queue"),
            (service("AccessDenied", 403), FailureKind::PermissionDenied, "allow sqs:DeleteMessage on"),
            (service("ThrottlingException", 400), FailureKind::Transient, "it is retried"),
            (CallError::NoCredentials("none".into()), FailureKind::BadCredentials, "correct the access key"),
            (CallError::NoResponse("connection refused".into()), FailureKind::Transient, "check the endpoint"),
        ] {
            let failure = classify("DeleteMessageBatch", "q", error);
            assert_eq!((failure.kind, failure.why.contains(part)), (kind, true), "{}", failure.why);
        }
    }

    #[test]
    fn failures_that_an_operator_has_to_fix_are_retried_slowly() {
        let timings = QueueTimings::default();
        let mut delays = QueueDelays::new(&timings);
        let failure = |kind| QueueFailure { kind, why: String::new() };
        assert!(delays.next_delay(&failure(FailureKind::Transient)) <= timings.first_delay);
        assert!(delays.next_delay(&failure(FailureKind::NotFound)) >= Duration::from_secs(15));
    }
}

//! What went wrong with a call, sorted by what helps: waiting, or somebody.
//!
//! Never: a credential in a message, or a pause without an end.

use crate::settings::Pace;
use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};
use forebay_aws::Answer;
pub(crate) use forebay_aws::{Backoff, Kind};
use std::error::Error;
use std::future::Future;
use std::time::Duration;

/// What went wrong.
#[derive(Clone, Debug)]
pub(crate) struct Trouble {
    /// What helps.
    pub kind: Kind,
    /// What and where, and what to do.
    pub why: String,
}

impl Trouble {
    pub fn new(kind: Kind, why: impl Into<String>) -> Trouble {
        Trouble { kind, why: why.into() }
    }

    /// How long to wait after it.
    pub fn pause(&self, backoff: &mut Backoff, pace: &Pace) -> Duration {
        let pause = backoff.next(pace.first_pause, pace.longest_pause);
        if self.kind.needs_somebody() { pace.slow_pause } else { pause }
    }
}

/// Awaits a call for so long.
pub(crate) async fn within<T, E>(
    limit: Duration,
    action: &str,
    queue: &str,
    call: impl Future<Output = Result<T, SdkError<E>>>,
) -> Result<T, Trouble>
where
    E: ProvideErrorMetadata + Error + 'static,
{
    match tokio::time::timeout(limit, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(sorted(action, queue, &error)),
        Err(_) => Err(Trouble::new(
            Kind::Passing,
            format!("sqs queue `{queue}`: no answer to {action} within {limit:?}; check the endpoint and the network"),
        )),
    }
}

/// The failure of a call, sorted.
pub(crate) fn sorted<E>(action: &str, queue: &str, error: &SdkError<E>) -> Trouble
where
    E: ProvideErrorMetadata + Error + 'static,
{
    let at = format!("sqs queue `{queue}`: {action}");
    match Answer::of(error) {
        Answer::Service { code, message, status } => {
            let kind = kind_of(&code, status);
            Trouble::new(kind, format!("{at}: {code}: {message}; {}", remedy(kind, &code, action)))
        }
        Answer::NoCredentials(why) => {
            let remedy = "no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, a role of the \
                          container or the machine, or the keys in the configuration";
            Trouble::new(Kind::Credentials, format!("{at}: {remedy} ({why})"))
        }
        Answer::NoAnswer(why) => {
            Trouble::new(Kind::Passing, format!("{at}: {why}; check the endpoint and the network"))
        }
    }
}

/// What an error code asks for. SQS tells its older codes (`AWS.SimpleQueueService.NonExistentQueue`) and its newer ones.
pub(crate) fn kind_of(code: &str, status: u16) -> Kind {
    let bare = code.rsplit(['.', '#']).next().unwrap_or(code);
    match bare {
        "QueueDoesNotExist" | "NonExistentQueue" | "QueueDeletedRecently" | "InvalidAddress" => Kind::Missing,
        "InvalidMessageContents" | "BatchRequestTooLong" | "InvalidAttributeValue" => Kind::Refused,
        _ => forebay_aws::kind_of(code, status),
    }
}

fn remedy(kind: Kind, code: &str, action: &str) -> String {
    match kind {
        Kind::Denied if code.to_ascii_lowercase().contains("kms") => {
            "allow kms:Decrypt and kms:GenerateDataKey on the queue's key to these credentials".to_owned()
        }
        Kind::Denied => format!("allow sqs:{} on the queue to these credentials", permission(action)),
        Kind::Credentials => "the credentials are not accepted: mend the access key, its secret or the role".to_owned(),
        Kind::Missing => {
            "make the queue, or mend its name, its region and its account (a queue of another account is named \
                          by its URL)"
                .to_owned()
        }
        Kind::Refused => "what was sent is not taken as it is".to_owned(),
        Kind::Passing if code.contains("Expired") => {
            "fresh credentials are taken as soon as the chain has them; explicit \
                                                      keys have to be renewed in the configuration"
                .to_owned()
        }
        Kind::Passing => "tried again after a pause".to_owned(),
    }
}

/// The permission that a call needs: that of a batch is the single call's.
fn permission(action: &str) -> &str {
    action.strip_suffix("Batch").unwrap_or(action)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_sorted_by_what_helps() {
        for (code, status, kind) in [
            ("AccessDenied", 403, Kind::Denied),
            ("AccessDeniedException", 400, Kind::Denied),
            ("KMS.AccessDeniedException", 400, Kind::Denied),
            ("AWS.SimpleQueueService.NonExistentQueue", 400, Kind::Missing),
            ("com.amazonaws.sqs#QueueDoesNotExist", 400, Kind::Missing),
            ("AWS.SimpleQueueService.QueueDeletedRecently", 400, Kind::Missing),
            ("InvalidClientTokenId", 403, Kind::Credentials),
            ("SignatureDoesNotMatch", 403, Kind::Credentials),
            ("ExpiredToken", 403, Kind::Passing),
            ("RequestThrottled", 400, Kind::Passing),
            ("ThrottlingException", 400, Kind::Passing),
            ("InternalError", 500, Kind::Passing),
            ("NewlyInvented", 403, Kind::Denied),
            ("InvalidMessageContents", 400, Kind::Refused),
        ] {
            assert_eq!(kind_of(code, status), kind, "{code} {status}");
        }
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_are_never_the_same() {
        let pace = Pace::default();
        let mut backoff = Backoff::default();
        let pauses: Vec<u128> =
            (0..12).map(|_| backoff.next(pace.first_pause, pace.longest_pause).as_millis()).collect();
        for (at, pause) in pauses.iter().enumerate() {
            let step = (200_u128 << at).min(20_000);
            assert!((step / 2..=step).contains(pause), "pause {at} is {pause} ms");
        }
        backoff.reset();
        assert!(backoff.next(pace.first_pause, pace.longest_pause) <= pace.first_pause);
        let denied = Trouble::new(Kind::Denied, "");
        assert_eq!(denied.pause(&mut backoff, &pace), pace.slow_pause);
    }

    #[test]
    fn a_batch_needs_the_permission_of_the_single_call() {
        assert_eq!(permission("DeleteMessageBatch"), "DeleteMessage");
        assert_eq!(permission("ReceiveMessage"), "ReceiveMessage");
    }
}

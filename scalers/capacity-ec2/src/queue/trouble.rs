//! What went wrong with a call to SQS, sorted by what helps.
//!
//! Never: a credential in a message.

use super::Pace;
use aws_sdk_sqs::config::http::HttpResponse;
use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};
use forebay_aws::{Answer, Backoff, Kind, jittered, kind_of};
use std::error::Error;
use std::future::Future;
use std::time::Duration;

/// What went wrong.
#[derive(Clone, Debug)]
pub(super) struct Trouble {
    /// What helps.
    pub kind: Kind,
    /// What and where, and what to do.
    pub why: String,
}

impl Trouble {
    /// How long to wait after it.
    pub fn pause(&self, backoff: &mut Backoff, pace: &Pace) -> Duration {
        let pause = backoff.next(pace.first_pause, pace.longest_pause);
        if self.kind.needs_somebody() { jittered(pace.slow_pause) } else { pause }
    }
}

/// Awaits a call for so long.
pub(super) async fn within<T, E>(
    limit: Duration,
    action: &str,
    queue: &str,
    call: impl Future<Output = Result<T, SdkError<E, HttpResponse>>>,
) -> Result<T, Trouble>
where
    E: ProvideErrorMetadata + Error + 'static,
{
    match tokio::time::timeout(limit, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(sorted(action, queue, Answer::of(&error))),
        Err(_) => Err(sorted(action, queue, Answer::NoAnswer(format!("nothing within {limit:?}")))),
    }
}

/// An answer, sorted.
pub(super) fn sorted(action: &str, queue: &str, answer: Answer) -> Trouble {
    let (kind, said) = match answer {
        Answer::Service { code, message, status } => {
            let bare = code.rsplit(['.', '#']).next().unwrap_or(&code);
            let missing = matches!(bare, "QueueDoesNotExist" | "NonExistentQueue" | "QueueDeletedRecently");
            let kind = if missing { Kind::Missing } else { kind_of(&code, status) };
            (kind, format!("{code}: {message}"))
        }
        Answer::NoCredentials(why) => (Kind::Credentials, why),
        Answer::NoAnswer(why) => (Kind::Passing, why),
    };
    let remedy = match kind {
        Kind::Denied => format!("allow sqs:{} on the queue to these credentials", action.trim_end_matches("Batch")),
        Kind::Credentials => "give credentials, or mend the access key, its secret or the role".to_owned(),
        Kind::Missing => "make the queue (deploy/aws), or mend its name, its region and its account".to_owned(),
        Kind::Refused => "what was sent is not taken as it is".to_owned(),
        Kind::Passing => "it is tried again; if that goes on, check the endpoint and the network".to_owned(),
    };
    let said = forebay_aws::cut(&said);
    Trouble { kind, why: format!("interruption queue `{queue}`: {action}: {said}; {remedy}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_helps_is_said() {
        let service = |code: &str, status| Answer::Service { code: code.into(), message: "m".into(), status };
        for (answer, kind, part) in [
            (service("AWS.SimpleQueueService.NonExistentQueue", 400), Kind::Missing, "make the queue"),
            (service("AccessDenied", 403), Kind::Denied, "allow sqs:DeleteMessage on"),
            (service("ThrottlingException", 400), Kind::Passing, "tried again"),
            (Answer::NoCredentials("none".into()), Kind::Credentials, "mend the access key"),
            (Answer::NoAnswer("connection refused".into()), Kind::Passing, "check the endpoint"),
        ] {
            let trouble = sorted("DeleteMessageBatch", "q", answer);
            assert_eq!((trouble.kind, trouble.why.contains(part)), (kind, true), "{}", trouble.why);
        }
    }

    #[test]
    fn what_somebody_has_to_mend_is_tried_slowly() {
        let (pace, mut backoff) = (Pace::default(), Backoff::default());
        let trouble = |kind| Trouble { kind, why: String::new() };
        assert!(trouble(Kind::Passing).pause(&mut backoff, &pace) <= pace.first_pause);
        assert!(trouble(Kind::Missing).pause(&mut backoff, &pace) >= Duration::from_secs(15));
    }
}

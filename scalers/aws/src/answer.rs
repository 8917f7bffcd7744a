//! What became of a call that did not succeed, sorted by what helps: waiting, or somebody.
//!
//! Never: a credential in a message, or a service's own codes; each adapter knows those of its service.

use aws_credential_types::provider::error::CredentialsError;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use std::error::Error;

/// What helps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Waiting: network, the service's own failures, throttling.
    Passing,
    /// Somebody who gives a permission.
    Denied,
    /// Somebody who gives credentials.
    Credentials,
    /// Somebody who makes what is not there, or mends its name.
    Missing,
    /// Nothing: what was sent is not taken.
    Refused,
}

impl Kind {
    /// Whether trying soon is in vain.
    #[must_use]
    pub fn needs_somebody(self) -> bool {
        matches!(self, Kind::Denied | Kind::Credentials | Kind::Missing)
    }
}

/// What was said to a call that did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The service said no.
    Service {
        /// Its code, such as `AccessDenied`; `without a code` where it gave none.
        code: String,
        /// Its words; `without a message` where it gave none.
        message: String,
        /// The HTTP status.
        status: u16,
    },
    /// The call was not made: there are no credentials. Why, cut.
    NoCredentials(String),
    /// No answer that can be understood: network, endpoint, time. Why, cut.
    NoAnswer(String),
}

impl Answer {
    /// What an error of any service's client says.
    #[must_use]
    pub fn of<E>(error: &SdkError<E, HttpResponse>) -> Answer
    where
        E: ProvideErrorMetadata + Error + 'static,
    {
        if let SdkError::ServiceError(service) = error {
            return Answer::Service {
                code: service.err().code().unwrap_or("without a code").to_owned(),
                message: service.err().message().unwrap_or("without a message").to_owned(),
                status: service.raw().status().as_u16(),
            };
        }
        let why = cut(&chain(error));
        if caused_by_credentials(error) { Answer::NoCredentials(why) } else { Answer::NoAnswer(why) }
    }
}

/// What an error code asks for, as far as all services share it. `code` may have a prefix: `KMS.AccessDeniedException`,
/// `com.amazonaws.sqs#AccessDenied`.
#[must_use]
pub fn kind_of(code: &str, status: u16) -> Kind {
    let bare = code.rsplit(['.', '#']).next().unwrap_or(code);
    match bare {
        "AccessDenied"
        | "AccessDeniedException"
        | "KmsAccessDenied"
        | "KmsDisabled"
        | "KmsNotFound"
        | "OptInRequired"
        | "KmsOptInRequired"
        | "AuthorizationError"
        | "UnauthorizedOperation" => Kind::Denied,
        "InvalidClientTokenId"
        | "UnrecognizedClientException"
        | "SignatureDoesNotMatch"
        | "InvalidSecurity"
        | "MissingAuthenticationToken"
        | "IncompleteSignature"
        | "InvalidAccessKeyId" => Kind::Credentials,
        "InvalidParameterValue" | "InvalidParameterValueException" | "MissingParameter" | "UnsupportedOperation" => {
            Kind::Refused
        }
        _ if status == 403 && !bare.starts_with("Expired") && !bare.starts_with("RequestTime") => Kind::Denied,
        _ => Kind::Passing,
    }
}

fn caused_by_credentials(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<CredentialsError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// An error and what caused it, in words. Not as Debug, which prints whole answers with their headers.
#[must_use]
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut all = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.to_string();
        // Some repeat the next one in their own words.
        if !all.ends_with(&words) {
            all.push_str(": ");
            all.push_str(&words);
        }
        cause = error.source();
    }
    all
}

/// Enough to mend it by, and no page of it.
#[must_use]
pub fn cut(why: &str) -> String {
    why.chars().take(400).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_that_services_share_are_sorted_by_what_helps() {
        for (code, status, kind) in [
            ("AccessDenied", 403, Kind::Denied),
            ("KMS.AccessDeniedException", 400, Kind::Denied),
            ("UnauthorizedOperation", 403, Kind::Denied),
            ("InvalidClientTokenId", 403, Kind::Credentials),
            ("SignatureDoesNotMatch", 403, Kind::Credentials),
            ("ExpiredToken", 403, Kind::Passing),
            ("RequestTimeTooSkewed", 403, Kind::Passing),
            ("ThrottlingException", 400, Kind::Passing),
            ("InternalError", 500, Kind::Passing),
            ("NewlyInvented", 403, Kind::Denied),
            ("NewlyInvented", 400, Kind::Passing),
            ("InvalidParameterValue", 400, Kind::Refused),
        ] {
            assert_eq!(kind_of(code, status), kind, "{code} {status}");
        }
    }

    #[test]
    fn a_chain_says_each_cause_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("outer: inner")]
        struct Outer(#[source] Inner);
        #[derive(Debug, thiserror::Error)]
        #[error("inner")]
        struct Inner;
        assert_eq!(chain(&Outer(Inner)), "outer: inner");
    }
}

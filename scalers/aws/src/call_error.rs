//! What a failed call means: whether waiting helps, or an operator has to act.
//!
//! Only codes that all services share are known here; each adapter adds those of its service. Messages never contain credentials.

use aws_credential_types::provider::error::CredentialsError;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use std::error::Error;

/// Kinds of failures by what helps against them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// Waiting helps: the network, a failure of the service itself, throttling.
    Transient,
    /// An operator has to grant a permission.
    PermissionDenied,
    /// An operator has to provide or renew the credentials.
    BadCredentials,
    /// An operator has to create what was named, or to correct its name.
    NotFound,
    /// Nothing helps: the service does not accept this request.
    InvalidRequest,
}

impl FailureKind {
    /// Whether an operator has to act first, so that an early retry is useless.
    #[must_use]
    pub fn needs_operator(self) -> bool {
        matches!(self, FailureKind::PermissionDenied | FailureKind::BadCredentials | FailureKind::NotFound)
    }
}

/// How a call failed, without the service's types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    /// The service answered with an error.
    Service {
        /// The error code, such as `AccessDenied`; `without a code` if there was none.
        code: String,
        /// The message; `without a message` if there was none.
        message: String,
        /// The HTTP status.
        status: u16,
    },
    /// The call was not sent because there are no credentials. The text says why, in at most 400 characters.
    NoCredentials(String),
    /// There was no response, or none that could be understood (network, endpoint, time limit). The text says why, in at most 400
    /// characters.
    NoResponse(String),
}

impl CallError {
    /// Converts the error of any service's client.
    #[must_use]
    pub fn from_sdk<E>(error: &SdkError<E, HttpResponse>) -> CallError
    where
        E: ProvideErrorMetadata + Error + 'static,
    {
        if let SdkError::ServiceError(service) = error {
            return CallError::Service {
                code: service.err().code().unwrap_or("without a code").to_owned(),
                message: service.err().message().unwrap_or("without a message").to_owned(),
                status: service.raw().status().as_u16(),
            };
        }
        let why = truncate(&error_chain(error));
        if caused_by_credentials(error) { CallError::NoCredentials(why) } else { CallError::NoResponse(why) }
    }
}

/// Classifies an error code that all services share. The code may have a prefix, as in `KMS.AccessDeniedException` and
/// `com.amazonaws.sqs#AccessDenied`. An unknown code counts as a denied permission if the HTTP status is 403, else as transient.
#[must_use]
pub fn classify_code(code: &str, status: u16) -> FailureKind {
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
        | "UnauthorizedOperation" => FailureKind::PermissionDenied,
        "InvalidClientTokenId"
        | "UnrecognizedClientException"
        | "SignatureDoesNotMatch"
        | "InvalidSecurity"
        | "MissingAuthenticationToken"
        | "IncompleteSignature"
        | "InvalidAccessKeyId" => FailureKind::BadCredentials,
        "InvalidParameterValue" | "InvalidParameterValueException" | "MissingParameter" | "UnsupportedOperation" => {
            FailureKind::InvalidRequest
        }
        _ if status == 403 && !bare.starts_with("Expired") && !bare.starts_with("RequestTime") => {
            FailureKind::PermissionDenied
        }
        _ => FailureKind::Transient,
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

/// An error and its causes in one line. `Debug` output would print whole responses with their headers.
#[must_use]
pub fn error_chain(error: &(dyn Error + 'static)) -> String {
    let mut all = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        // Some errors already contain the text of their cause.
        if !all.ends_with(&text) {
            all.push_str(": ");
            all.push_str(&text);
        }
        cause = error.source();
    }
    all
}

/// The first 400 characters of a text: enough to find the cause, and not a page of HTML.
#[must_use]
pub fn truncate(text: &str) -> String {
    text.chars().take(400).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_that_services_share_are_classified() {
        for (code, status, kind) in [
            ("AccessDenied", 403, FailureKind::PermissionDenied),
            ("KMS.AccessDeniedException", 400, FailureKind::PermissionDenied),
            ("UnauthorizedOperation", 403, FailureKind::PermissionDenied),
            ("InvalidClientTokenId", 403, FailureKind::BadCredentials),
            ("SignatureDoesNotMatch", 403, FailureKind::BadCredentials),
            ("ExpiredToken", 403, FailureKind::Transient),
            ("RequestTimeTooSkewed", 403, FailureKind::Transient),
            ("ThrottlingException", 400, FailureKind::Transient),
            ("InternalError", 500, FailureKind::Transient),
            ("NewlyInvented", 403, FailureKind::PermissionDenied),
            ("NewlyInvented", 400, FailureKind::Transient),
            ("InvalidParameterValue", 400, FailureKind::InvalidRequest),
        ] {
            assert_eq!(classify_code(code, status), kind, "{code} {status}");
        }
    }

    #[test]
    fn a_chain_names_each_cause_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("outer: inner")]
        struct Outer(#[source] Inner);
        #[derive(Debug, thiserror::Error)]
        #[error("inner")]
        struct Inner;
        assert_eq!(error_chain(&Outer(Inner)), "outer: inner");
    }
}

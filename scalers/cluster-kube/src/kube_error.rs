//! Classifies the API server's errors.
//!
//! | class | meaning | reaction |
//! | --- | --- | --- |
//! | throttled | nothing was done | calls wait, at least as long as the API server says |
//! | server, no response | it may have been done | the same call is made again |
//! | exists, conflict | something is there, or has changed | it is read, and the call decided anew |
//! | not found, expired | it is not there any more | what that means depends on the call |
//! | denied | nothing was done, and repeating does not help | the job gets Kubernetes' own words; for want of a role after a minute |

use forebay_kernel::units::Span;

/// The class of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KubeErrorClass {
    /// Too many calls.
    Throttled,
    /// An error in the API server, or in a webhook that it calls. Whether the call took effect is unknown.
    Server,
    /// There was no usable response, so whether the call took effect is unknown.
    NoResponse,
    /// Our credentials are not accepted. They may be renewed.
    Unauthorized,
    /// An object of that name exists already.
    Exists,
    /// The object is not as the call supposed.
    Conflict,
    /// The object does not exist.
    NotFound,
    /// The resource version or the continue token is too old.
    Expired,
    /// Not allowed, not valid, over a quota, or denied by a webhook.
    Denied,
}

impl KubeErrorClass {
    /// Whether the same call may succeed later.
    #[must_use]
    pub fn is_transient(self) -> bool {
        use KubeErrorClass::{NoResponse, Server, Throttled, Unauthorized};
        matches!(self, Throttled | Server | NoResponse | Unauthorized)
    }
}

/// An error response of the API server, or the lack of a usable one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}: {message}")]
pub struct KubeError {
    /// The class of the error.
    pub class: KubeErrorClass,
    /// The HTTP status. 0: there was no response.
    pub code: u16,
    /// The reason of the `Status`, such as `AlreadyExists`.
    pub reason: String,
    /// Kubernetes' message, at most [`MOST_MESSAGE`] characters.
    pub message: String,
    /// The API server asks to wait this long.
    pub retry_after: Option<Span>,
}

/// The most characters that are kept of a message.
pub const MOST_MESSAGE: usize = 500;

impl KubeError {
    /// Classifies a `Status`.
    #[must_use]
    pub fn of_status(code: u16, reason: &str, message: &str) -> KubeError {
        // An API server that has just started does not know its roles yet, and says that it could not look them up.
        let unknown_roles = code == 403 && message.contains("RBAC: ");
        let class = if unknown_roles { KubeErrorClass::Server } else { classify(code, reason) };
        let message = message.chars().take(MOST_MESSAGE).collect();
        KubeError { class, code, reason: reason.to_owned(), message, retry_after: None }
    }

    /// Whether no role that the API server knows allows the call. One that has just started may not have read its roles yet.
    #[must_use]
    pub fn lacks_role(&self) -> bool {
        self.code == 403 && self.message.contains("User \"") && self.message.contains("\" cannot ")
    }

    /// A quota of the namespace is full: what is denied now may be allowed later.
    #[must_use]
    pub fn is_full_quota(&self) -> bool {
        self.class == KubeErrorClass::Denied && self.message.contains("exceeded quota: ")
    }

    /// The same with the `Retry-After` of the response.
    #[must_use]
    pub fn with_retry_after(mut self, wait: Option<Span>) -> KubeError {
        self.retry_after = wait;
        self
    }

    /// There was no usable response. The text says why.
    #[must_use]
    pub fn no_response(why: &str) -> KubeError {
        let message = why.chars().take(MOST_MESSAGE).collect();
        let class = KubeErrorClass::NoResponse;
        KubeError { class, code: 0, reason: "NoResponse".to_owned(), message, retry_after: None }
    }
}

/// The class of a status. The reason decides where the code has several meanings.
fn classify(code: u16, reason: &str) -> KubeErrorClass {
    match (code, reason) {
        (429, _) | (_, "TooManyRequests") => KubeErrorClass::Throttled,
        (_, "AlreadyExists") => KubeErrorClass::Exists,
        (410, _) | (_, "Expired" | "Gone") => KubeErrorClass::Expired,
        (409, _) => KubeErrorClass::Conflict,
        (404, _) => KubeErrorClass::NotFound,
        (401, _) => KubeErrorClass::Unauthorized,
        (500.., _) | (_, "ServerTimeout" | "Timeout") => KubeErrorClass::Server,
        (code, _) if code < 400 => KubeErrorClass::NoResponse,
        _ => KubeErrorClass::Denied,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_has_its_class() {
        for (code, reason, class) in [
            (429, "TooManyRequests", KubeErrorClass::Throttled),
            (500, "InternalError", KubeErrorClass::Server),
            (504, "Timeout", KubeErrorClass::Server),
            (503, "ServiceUnavailable", KubeErrorClass::Server),
            (409, "AlreadyExists", KubeErrorClass::Exists),
            (409, "Conflict", KubeErrorClass::Conflict),
            (410, "Expired", KubeErrorClass::Expired),
            (410, "Gone", KubeErrorClass::Expired),
            (404, "NotFound", KubeErrorClass::NotFound),
            (401, "Unauthorized", KubeErrorClass::Unauthorized),
            (403, "Forbidden", KubeErrorClass::Denied),
            (422, "Invalid", KubeErrorClass::Denied),
            (400, "BadRequest", KubeErrorClass::Denied),
            (200, "", KubeErrorClass::NoResponse),
        ] {
            assert_eq!(KubeError::of_status(code, reason, "m").class, class, "{code} {reason}");
        }
        let starting = "pods is forbidden: User \"a\" cannot list resource: RBAC: clusterrole.rbac.authorization.k8s.io \"b\" not found";
        assert!(KubeError::of_status(403, "Forbidden", starting).class.is_transient());
        assert_eq!(KubeError::of_status(403, "Forbidden", &"x".repeat(900)).message.len(), MOST_MESSAGE);
        assert_eq!(KubeError::of_status(403, "Forbidden", "no").to_string(), "Forbidden: no");
        let no_role = "pods \"p\" is forbidden: User \"a\" cannot patch resource \"pods\" in API group \"\" in the namespace \"n\"";
        assert!(KubeError::of_status(403, "Forbidden", no_role).lacks_role());
        for other in [
            "pods \"p\" is forbidden: exceeded quota: full",
            "admission webhook \"w\" denied the request: it cannot be",
        ] {
            assert!(!KubeError::of_status(403, "Forbidden", other).lacks_role(), "{other}");
        }
        let full = |message: &str| KubeError::of_status(403, "Forbidden", message).is_full_quota();
        assert!(full(
            "pods \"p\" is forbidden: exceeded quota: full, requested: pods=1, used: pods=3, limited: pods=3"
        ));
        assert!(!full("admission webhook \"w\" denied the request: it cannot be") && !full(no_role));
    }
}

//! Errors on the wire: `{"error":{"code","message","remedy"}}`, the same shape for every status.
//!
//! Never: a body that repeats what a stranger sent without bound.

use crate::driver::MailboxError;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// An answer that is not what was asked for.
#[derive(Clone, Debug)]
pub struct ApiError {
    status: StatusCode,
    retry_after_s: Option<u64>,
    authenticate: Option<&'static str>,
    body: ErrorBody,
}

/// What went wrong and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// Stable, for programs.
    pub code: String,
    /// For people.
    pub message: String,
    /// What to do.
    pub remedy: String,
}

/// The code of an error, with its answer.
#[derive(Clone, Debug)]
pub(super) struct ErrorCode(pub String);

impl ApiError {
    /// With an HTTP status.
    pub fn new(status: u16, code: &str, message: impl Into<String>, remedy: impl Into<String>) -> ApiError {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = ErrorBody { code: code.to_owned(), message: message.into(), remedy: remedy.into() };
        ApiError { status, retry_after_s: None, authenticate: None, body }
    }

    /// 400.
    pub fn bad(code: &str, message: impl Into<String>, remedy: impl Into<String>) -> ApiError {
        ApiError::new(400, code, message, remedy)
    }

    /// 404.
    pub fn not_found(code: &str, message: impl Into<String>, remedy: impl Into<String>) -> ApiError {
        ApiError::new(404, code, message, remedy)
    }

    /// Its status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// What it says.
    #[must_use]
    pub fn body(&self) -> &ErrorBody {
        &self.body
    }

    /// Its code.
    #[must_use]
    pub fn code(&self) -> &str {
        &self.body.code
    }

    /// The same, to be tried again after so many seconds.
    #[must_use]
    pub fn retry_after(mut self, seconds: u64) -> ApiError {
        self.retry_after_s = Some(seconds.max(1));
        self
    }

    /// The same, to be tried again by somebody who says who it is in one of these ways.
    #[must_use]
    pub fn authenticate(mut self, ways: &'static str) -> ApiError {
        self.authenticate = Some(ways);
        self
    }

    /// 503: the journal's disk is full.
    #[must_use]
    pub fn disk_full(why: &str) -> ApiError {
        let remedy = "make room on the journal's disk; send it again after the time in Retry-After: what was taken already is known then";
        ApiError::new(503, "DiskFull", format!("nothing is received: {why}"), remedy).retry_after(10)
    }
}

impl From<MailboxError> for ApiError {
    fn from(busy: MailboxError) -> ApiError {
        match &busy {
            MailboxError::Full { retry_after } => {
                ApiError::new(429, "Busy", busy.to_string(), "send it again after the time in Retry-After")
                    .retry_after(retry_after.as_secs())
            }
            MailboxError::TooMany { most, .. } => {
                ApiError::new(413, "TooMany", busy.to_string(), format!("send at most {most} events at once"))
            }
            MailboxError::Stopped(_) => {
                ApiError::new(503, "Stopped", busy.to_string(), "send it again when the controller is back")
                    .retry_after(5)
            }
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let code = self.body.code.clone();
        let mut response = (self.status, axum::Json(json!({ "error": self.body }))).into_response();
        if let Some(seconds) = self.retry_after_s {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        // Bounded where codes are made; nobody else's text.
        response.extensions_mut().insert(ErrorCode(code));
        if let Some(ways) = self.authenticate {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(ways));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_says_when_to_come_back_and_who_is_unknown_how() {
        let full = ApiError::disk_full("no space left").into_response();
        assert_eq!((full.status().as_u16(), &full.headers()[header::RETRY_AFTER]), (503, &HeaderValue::from(10)));
        let busy =
            ApiError::from(MailboxError::Full { retry_after: std::time::Duration::from_millis(20) }).into_response();
        assert_eq!((busy.status().as_u16(), &busy.headers()[header::RETRY_AFTER]), (429, &HeaderValue::from(1)));
        let unknown = ApiError::new(401, "NoToken", "m", "r").authenticate("Bearer").into_response();
        assert_eq!(
            (unknown.status().as_u16(), &unknown.headers()[header::WWW_AUTHENTICATE]),
            (401, &"Bearer".parse().unwrap())
        );
    }
}

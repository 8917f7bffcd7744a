//! A request that changes something comes to its end, although whoever asked for it goes away: a POST has a task of its own.
//!
//! ```text
//! connection -> POST -> task: handler (its room, its turn), audit log -> answer, if anybody is there
//! ```
//!
//! Never: for what is only read; that ends with its connection.

use super::error::ApiError;
use axum::extract::Request;
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

pub(super) async fn posts(request: Request, next: Next) -> Response {
    if request.method() != Method::POST {
        return next.run(request).await;
    }
    let done = tokio::spawn(next.run(request)).await;
    done.unwrap_or_else(|ended| {
        tracing::error!("a request has no answer: {ended}");
        let message = "the request ended by a fault of this program";
        ApiError::new(500, "Fault", message, "see the controller's log for what was done, and report it")
            .into_response()
    })
}

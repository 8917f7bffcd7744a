//! The pages for people: what is going on now, and what it costs. Every figure stands in HTML; a script draws plots of the tables that are
//! there, and loads a page again.
//!
//! ```text
//! now.rs    GET /         queued, running, bought and stopped; queues and why they wait; nodes; jobs
//! money.rs  GET /money    what was spent, over time and by whom; each row leads to what it is made of
//! html.rs   frame, tiles, tables     assets/   style, script, uPlot (MIT)
//! ```
//!
//! Never: a script or style but those served here, a name from outside unescaped, a job that its reader may not see, a write.

mod html;
pub(super) mod money;
pub(super) mod now;

use super::error::ApiError;
use super::find::Name;
use axum::http::header;
use axum::response::{IntoResponse, Response};

/// The pages, by name and path. A link of another site may lead to them.
pub(super) const PAGES: [(&str, &str); 2] = [("Now", "/"), ("Money", "/money")];

/// What a page may load: what is served here. It may send a form here, and be framed nowhere.
const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'; \
     form-action 'self'";

/// A style without rules. A page loads it before it loads itself again: where nobody answers, it stays and says so.
const ALIVE: &str = "alive.css";

/// What pages load, by name.
const ASSETS: [(&str, &str, &str); 6] = [
    (ALIVE, "text/css; charset=utf-8", "/* The controller answers. */\n"),
    ("page.css", "text/css; charset=utf-8", include_str!("assets/page.css")),
    ("page.js", "text/javascript; charset=utf-8", include_str!("assets/page.js")),
    ("uplot.css", "text/css; charset=utf-8", include_str!("assets/uplot.css")),
    ("uplot.js", "text/javascript; charset=utf-8", include_str!("assets/uplot.js")),
    ("uplot.LICENSE", "text/plain; charset=utf-8", include_str!("assets/uplot.LICENSE")),
];

/// A style or a script. They are the same for everybody, and ask for no token.
pub(super) async fn asset(Name(name): Name) -> Result<Response, ApiError> {
    let found = ASSETS.iter().find(|(known, _, _)| *known == name);
    let (_, kind, text) = found.ok_or_else(|| {
        ApiError::not_found("NoSuchPath", "there is no such file", "see docs/API.md for what there is")
    })?;
    // Pages name the others with the version of this program.
    let cached = if name == ALIVE { "no-store" } else { "max-age=3600" };
    let headers =
        [(header::CONTENT_TYPE, *kind), (header::CACHE_CONTROL, cached), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")];
    Ok((headers, *text).into_response())
}

/// The answer with a page.
fn answer(html: String) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, CONTENT_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "same-origin"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (headers, html).into_response()
}

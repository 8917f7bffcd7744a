//! Who may knock: requests that a browser sends for a foreign page are refused.
//!
//! A page from anywhere can make a browser post to 127.0.0.1 (a foreign `Origin`), or point its own name there (a foreign `Host`). The
//! latter is refused where a loopback listener asks for no token; with tokens it may stand behind a proxy of any name.
//! Never: authentication. That is the business of tokens.

use super::error::ApiError;
use axum::extract::Request;
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::{IpAddr, SocketAddr};

pub(super) async fn check(listening: SocketAddr, open: bool, request: Request, next: Next) -> Response {
    match judge(listening, open, request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refused) => refused.into_response(),
    }
}

fn judge(listening: SocketAddr, open: bool, headers: &HeaderMap) -> Result<(), ApiError> {
    let text = |name| headers.get(name).and_then(|v: &axum::http::HeaderValue| v.to_str().ok());
    let host = text(header::HOST);
    if open && listening.ip().is_loopback() && host.is_some_and(|h| !loopback(name(h))) {
        let remedy = "use 127.0.0.1 or localhost, or listen on another address with --listen";
        return Err(ApiError::new(403, "ForeignHost", "this listener answers to loopback names only", remedy));
    }
    let origin = text(header::ORIGIN);
    let same = |origin: &str| origin.split_once("://").map(|(_, authority)| authority) == host;
    match origin {
        Some(origin) if !same(origin) => {
            let remedy = "call the API from a program, or from a page of this server";
            Err(ApiError::new(403, "ForeignOrigin", "pages of other sites may not call this API", remedy))
        }
        _ => Ok(()),
    }
}

/// The host without its port.
fn name(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    }
}

fn loopback(name: &str) -> bool {
    name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(host: &str, origin: Option<&str>) -> bool {
        asked(true, host, origin)
    }

    fn asked(open: bool, host: &str, origin: Option<&str>) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().expect("a header"));
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().expect("a header"));
        }
        judge(SocketAddr::from(([127, 0, 0, 1], 8080)), open, &headers).is_ok()
    }

    #[test]
    fn foreign_pages_are_refused_and_programs_are_not() {
        assert!(ask("127.0.0.1:8080", None));
        assert!(ask("localhost:8080", Some("http://localhost:8080")));
        assert!(ask("[::1]:8080", None));
        assert!(!ask("127.0.0.1:8080", Some("https://evil.example")));
        assert!(!ask("127.0.0.1:8080", Some("null")));
        assert!(!ask("evil.example:8080", Some("http://evil.example:8080")));
        assert!(asked(false, "forebay.example", Some("https://forebay.example")));
        assert!(!asked(false, "forebay.example", Some("https://evil.example")));
    }
}

//! Who may knock: requests that a browser sends for a foreign page are refused, and those that say two things of whom they are for.
//!
//! A page from anywhere can make a browser post to 127.0.0.1 (a foreign `Origin`), get from there (`Sec-Fetch-Site`, which every browser
//! sends by itself), or point its own name there (a foreign `Host`). The latter is refused where a loopback listener asks for no token;
//! with tokens it may stand behind a proxy of any name. A link to a page for people may stand anywhere.
//! Never: authentication. That is the business of tokens.

use super::error::ApiError;
use super::pages::PAGES;
use axum::extract::Request;
use axum::http::{HeaderName, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::{IpAddr, SocketAddr};

/// Bytes of an address at most: a subject of 512 bytes has 1,536 where each is written as three.
const MOST_ADDRESS: usize = 8 * 1024;

pub(super) async fn check(listening: SocketAddr, open: bool, request: Request, next: Next) -> Response {
    match judge(listening, open, &request) {
        Ok(()) => next.run(request).await,
        Err(refused) => refused.into_response(),
    }
}

fn judge<B>(listening: SocketAddr, open: bool, request: &axum::http::Request<B>) -> Result<(), ApiError> {
    let headers = request.headers();
    if request.uri().path_and_query().is_some_and(|path| path.as_str().len() > MOST_ADDRESS) {
        let message = format!("an address has at most {MOST_ADDRESS} bytes");
        return Err(ApiError::new(414, "AddressTooLong", message, "ask for less at once; see docs/API.md"));
    }
    let text = |name| headers.get(name).and_then(|v: &axum::http::HeaderValue| v.to_str().ok());
    let host = host(request)?;
    if open && listening.ip().is_loopback() && host.is_some_and(|h| !loopback(name(h))) {
        let remedy = "use 127.0.0.1 or localhost, or listen on another address with --listen";
        return Err(ApiError::new(403, "ForeignHost", "this listener answers to loopback names only", remedy));
    }
    let fetched = text(HeaderName::from_static("sec-fetch-site"));
    let foreign = fetched.is_some_and(|from| from != "none" && from != "same-origin");
    let is_link = text(HeaderName::from_static("sec-fetch-mode")) == Some("navigate")
        && text(HeaderName::from_static("sec-fetch-dest")) == Some("document")
        && request.method() == Method::GET
        && PAGES.iter().any(|(_, path)| *path == request.uri().path());
    let origin = text(header::ORIGIN);
    if headers.contains_key(header::ORIGIN) && origin.is_none() || foreign && !is_link {
        return Err(foreign_origin());
    }
    let same = |origin: &str| origin.split_once("://").map(|(_, authority)| authority) == host;
    match origin {
        Some(origin) if !same(origin) => Err(foreign_origin()),
        _ => Ok(()),
    }
}

fn foreign_origin() -> ApiError {
    let remedy = "call the API from a program, or from a page of this server";
    ApiError::new(403, "ForeignOrigin", "pages of other sites may not call this API", remedy)
}

/// The one host that a request is for: by its header, and by its address where that has one.
fn host<B>(request: &axum::http::Request<B>) -> Result<Option<&str>, ApiError> {
    let refused = |message: &str| {
        ApiError::bad(
            "BadHost",
            message,
            "send one `Host` header, with the name and port that this server is called by",
        )
    };
    let mut sent = request.headers().get_all(header::HOST).iter();
    let (first, second) = (sent.next(), sent.next());
    if second.is_some() {
        return Err(refused("the request has two `Host` headers"));
    }
    let host = first.map(|host| host.to_str().map_err(|_| refused("the `Host` header is no text"))).transpose()?;
    let address = request.uri().authority().map(axum::http::uri::Authority::as_str);
    match (host, address) {
        (Some(host), Some(address)) if !host.eq_ignore_ascii_case(address) => {
            Err(refused("the request is for one host by its address, and for another by its header"))
        }
        (host, address) => Ok(host.or(address)),
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
        let mut headers = vec![("host", host)];
        headers.extend(origin.map(|origin| ("origin", origin)));
        sent(open, "GET /v1/jobs", &headers)
    }

    /// A request line and headers, at a listener on loopback.
    fn sent(open: bool, line: &str, headers: &[(&str, &str)]) -> bool {
        let (method, address) = line.split_once(' ').expect("a method and an address");
        let mut request = axum::http::Request::builder().method(method).uri(address);
        for (name, value) in headers {
            let value = axum::http::HeaderValue::from_bytes(value.as_bytes()).expect("a value");
            request = request.header(*name, value);
        }
        let request = request.body(()).expect("a request");
        judge(SocketAddr::from(([127, 0, 0, 1], 8080)), open, &request).is_ok()
    }

    #[test]
    fn gets_of_foreign_pages_are_refused_and_a_link_to_the_page_is_not() {
        let host = ("host", "127.0.0.1:8080");
        let from = |site: &'static str, mode: &'static str, dest: &'static str| {
            [host, ("sec-fetch-site", site), ("sec-fetch-mode", mode), ("sec-fetch-dest", dest)]
        };
        for (site, mode, dest, jobs, page) in [
            ("cross-site", "no-cors", "image", false, false),
            ("same-site", "cors", "empty", false, false),
            ("cross-site", "navigate", "document", false, true),
            ("cross-site", "navigate", "iframe", false, false),
            ("same-origin", "cors", "empty", true, true),
            ("none", "navigate", "document", true, true),
        ] {
            let headers = from(site, mode, dest);
            assert_eq!(sent(true, "GET /v1/jobs", &headers), jobs, "{site} {mode} {dest}");
            assert_eq!(sent(false, "GET /", &headers), page, "{site} {mode} {dest}");
        }
    }

    #[test]
    fn a_request_is_for_one_host() {
        let good = ("host", "127.0.0.1:8080");
        assert!(sent(true, "GET /", &[good]));
        assert!(!sent(true, "GET /", &[good, ("host", "evil.example")]), "two");
        assert!(!sent(true, "GET /", &[("host", "\u{e9}vil.example")]), "no ASCII");
        assert!(!sent(true, "GET http://evil.example/", &[good]), "another one by its address");
        assert!(!sent(true, "GET http://evil.example/", &[]), "a foreign one by its address alone");
        assert!(sent(true, "GET http://127.0.0.1:8080/", &[good]));
        assert!(!sent(false, &format!("GET /{}", "a".repeat(9_000)), &[good]), "too long");
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

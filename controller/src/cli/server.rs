//! The server that client commands and the agent ask: its address, and the token for it from a file or the environment.
//!
//! Never: a token as an argument, where everybody on the machine could read it.

use super::args::ServerArgs;
use super::outcome::{Failure, read_bytes};
use crate::api::client::Client;
use std::path::Path;
use ureq::http::Uri;

/// The variable with a token.
const VARIABLE: &str = "FOREBAY_TOKEN";

/// Where a Forebay listens of itself.
pub(super) const HERE: &str = "http://127.0.0.1:8080";

/// The URL of a Forebay. One that is empty is the default: a variable may be set to nothing.
pub(super) fn server_url(text: &str) -> Result<String, String> {
    if text.trim().is_empty() { Ok(HERE.to_owned()) } else { http_url(text) }
}

/// A URL with its scheme.
pub(super) fn http_url(text: &str) -> Result<String, String> {
    let is_url = |text: &str| {
        let uri = text.parse::<Uri>().ok();
        uri.is_some_and(|uri| {
            matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty())
        })
    };
    let with_scheme = format!("http://{text}");
    if is_url(text) {
        Ok(text.to_owned())
    } else if is_url(&with_scheme) && !text.contains("://") {
        Err(format!("the scheme is missing: write {with_scheme}"))
    } else {
        Err(format!("no URL of a Forebay: write one such as {HERE}"))
    }
}

impl ServerArgs {
    /// A client for it.
    pub(super) fn client(&self) -> Result<Client, Failure> {
        let token = token(self.token_file.as_deref())?;
        Ok(Client::new(&self.server, token.as_deref(), |what| eprintln!("{what}")))
    }
}

/// The token in a file, else in the environment.
pub(super) fn token(file: Option<&Path>) -> Result<Option<String>, Failure> {
    let (place, bytes) = match (file, std::env::var_os(VARIABLE)) {
        (Some(path), _) => (path.display().to_string(), read_bytes(path)?),
        (None, Some(text)) if !text.is_empty() => (VARIABLE.to_owned(), text.into_encoded_bytes()),
        (None, _) => return Ok(None),
    };
    let text = String::from_utf8(bytes).unwrap_or_default();
    let token = text.trim_end_matches(['\r', '\n']);
    if token.is_empty() || !token.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(Failure::input(format_args!(
            "{place}: this is no token: it is one line of printable ASCII characters without spaces"
        )));
    }
    Ok(Some(token.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_its_scheme_and_nothing_is_the_default() {
        assert_eq!(server_url("").unwrap(), HERE);
        let whole = "http://10.0.0.7:8080/forebay";
        assert_eq!(server_url(whole).unwrap(), whole);
        let cases = [
            ("10.0.0.7:8080", "write http://10.0.0.7:8080"),
            ("forebay", "write http://forebay"),
            ("[::1]:8080", "write http://[::1]:8080"),
            ("ftp://forebay", "no URL of a Forebay"),
            ("http://", "no URL of a Forebay"),
            ("two words", "no URL of a Forebay"),
        ];
        for (text, part) in cases {
            let error = http_url(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}

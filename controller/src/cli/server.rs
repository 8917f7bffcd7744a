//! The server that client commands and the agent ask: its address, and the token for it from a file or the environment.
//!
//! Never: a token as an argument, where everybody on the machine could read it.

use super::args::ServerArgs;
use super::outcome::{Failure, read_bytes};
use crate::api::client::Client;
use std::path::Path;

/// The variable with a token.
const VARIABLE: &str = "FOREBAY_TOKEN";

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

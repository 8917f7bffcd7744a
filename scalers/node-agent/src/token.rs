//! The agent's token: read anew for each report where it is in a file, because the kubelet replaces projected tokens while the agent runs.
//!
//! Never: a token in a message.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;

/// The most bytes of a token's file: the longest token, and its line end.
const MOST_BYTES: u64 = 4098;

/// What the agent shows the controller.
#[derive(Clone, Default)]
pub enum AgentToken {
    /// The controller asks for none.
    #[default]
    None,
    /// This one, as long as the agent runs.
    Fixed(String),
    /// Whatever is in a file at the time.
    File(PathBuf),
}

/// A token cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AgentTokenError {
    /// The file cannot be read.
    #[error("{}: {why}: name a file with a token that can be read", path.display())]
    Unread {
        /// The file.
        path: PathBuf,
        /// What the system says.
        why: String,
    },
    /// What is in it is none.
    #[error("{}: this is no token: it is one line of printable ASCII characters without spaces, 4096 at most", path.display())]
    NoToken {
        /// The file.
        path: PathBuf,
    },
}

impl AgentToken {
    /// What it is now. `None`: none is needed.
    ///
    /// # Errors
    /// Its file cannot be read, or has no token.
    pub fn text(&self) -> Result<Option<String>, AgentTokenError> {
        let path = match self {
            AgentToken::None => return Ok(None),
            AgentToken::Fixed(token) => return Ok(Some(token.clone())),
            AgentToken::File(path) => path,
        };
        let mut text = String::new();
        let read = File::open(path).and_then(|file| file.take(MOST_BYTES + 1).read_to_string(&mut text));
        read.map_err(|error| AgentTokenError::Unread { path: path.clone(), why: error.to_string() })?;
        let token = text.trim_end_matches(['\r', '\n']);
        let fits = text.len() as u64 <= MOST_BYTES && !token.is_empty() && token.bytes().all(|b| b.is_ascii_graphic());
        if fits { Ok(Some(token.to_owned())) } else { Err(AgentTokenError::NoToken { path: path.clone() }) }
    }
}

impl fmt::Debug for AgentToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AgentToken::None => f.write_str("None"),
            AgentToken::Fixed(_) => f.write_str("Fixed(..)"),
            AgentToken::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_anew_and_what_is_no_token_is_said_without_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let token = AgentToken::File(path.clone());
        assert!(matches!(token.text(), Err(AgentTokenError::Unread { .. })));
        for (written, read) in [("first\n", "first"), ("second", "second"), ("third\r\n", "third")] {
            std::fs::write(&path, written).unwrap();
            assert_eq!(token.text().unwrap().as_deref(), Some(read));
        }
        for none in ["", "\n", "two words", "two\nlines", "secret\u{7}", &"x".repeat(5000)] {
            std::fs::write(&path, none).unwrap();
            let error = token.text().unwrap_err();
            assert_eq!(error, AgentTokenError::NoToken { path: path.clone() }, "{none:?}");
            assert!(!error.to_string().contains("secret"));
        }
        assert_eq!(AgentToken::Fixed("a".into()).text(), Ok(Some("a".into())));
        assert_eq!(AgentToken::None.text(), Ok(None));
        assert_eq!(format!("{:?}", AgentToken::Fixed("secret".into())), "Fixed(..)");
    }
}

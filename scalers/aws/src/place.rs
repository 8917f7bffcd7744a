//! Where AWS is, and as whom it is asked: what a configuration says of it.
//!
//! Never: a secret in a `Debug`, or a look at the network.

use std::fmt;

/// Where AWS is, and as whom it is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The region, such as `eu-central-1`. `None`: of the environment, the profile or the machine.
    pub region: Option<String>,
    /// Another endpoint than that of AWS, `http://` or `https://`. `None`: AWS, or `AWS_ENDPOINT_URL`.
    pub endpoint: Option<String>,
    /// Explicit credentials. `None`: the usual chain (environment, profile, web identity, container, machine).
    pub keys: Option<Keys>,
}

/// Explicit credentials. `Debug` shows neither the secret nor the token.
#[derive(Clone, PartialEq, Eq)]
pub struct Keys {
    /// The access key's id.
    pub access_key_id: String,
    /// The secret access key.
    pub secret_access_key: String,
    /// The token of temporary credentials.
    pub session_token: Option<String>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("access_key_id", &self.access_key_id).finish_non_exhaustive()
    }
}

/// Whether an endpoint can be one: `http://host:port` or `https://host`.
#[must_use]
pub fn is_endpoint(endpoint: &str) -> bool {
    let host = endpoint.strip_prefix("http://").or_else(|| endpoint.strip_prefix("https://"));
    host.is_some_and(|host| !host.is_empty() && !host.chars().any(|c| c.is_whitespace() || c.is_control()))
}

/// What is shown of something that may be hostile: 100 characters, without control characters.
#[must_use]
pub fn shown(text: &str) -> String {
    text.chars().take(100).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_shown() {
        let keys = Keys {
            access_key_id: "AKIAEXAMPLE".into(),
            secret_access_key: "hush".into(),
            session_token: Some("hush".into()),
        };
        let text = format!("{:?}", Place { keys: Some(keys), ..Place::default() });
        assert!(text.contains("AKIAEXAMPLE") && !text.contains("hush"), "{text}");
    }

    #[test]
    fn an_endpoint_is_a_url_with_a_host() {
        for (endpoint, can_be) in [
            ("http://127.0.0.1:4566", true),
            ("https://s3.example.com", true),
            ("localhost:4566", false),
            ("https://", false),
            ("http://a b", false),
            ("http://a\n", false),
        ] {
            assert_eq!(is_endpoint(endpoint), can_be, "{endpoint:?}");
        }
    }
}

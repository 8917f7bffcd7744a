//! Which AWS to talk to and with which credentials, as the configuration says it.
//!
//! No secret appears in `Debug` output, and nothing here uses the network.

use std::fmt;

/// Which AWS to talk to, and with which credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AwsSettings {
    /// The region, such as `eu-central-1`. `None`: that of the environment, the profile or the machine.
    pub region: Option<String>,
    /// An endpoint other than AWS's own, with `http://` or `https://`. `None`: `AWS_ENDPOINT_URL`, or else AWS.
    pub endpoint: Option<String>,
    /// Explicit credentials. `None`: the default chain (environment, profile, web identity, container, machine).
    pub access_key: Option<AccessKey>,
}

/// An access key. Its `Debug` output shows neither the secret nor the session token.
#[derive(Clone, PartialEq, Eq)]
pub struct AccessKey {
    /// The id of the key, which is not secret.
    pub access_key_id: String,
    /// The secret of the key.
    pub secret_access_key: String,
    /// The session token of temporary credentials.
    pub session_token: Option<String>,
}

impl fmt::Debug for AccessKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessKey").field("access_key_id", &self.access_key_id).finish_non_exhaustive()
    }
}

/// Whether a text has the form of an endpoint: `http://host:port` or `https://host`.
#[must_use]
pub fn is_valid_endpoint(endpoint: &str) -> bool {
    let host = endpoint.strip_prefix("http://").or_else(|| endpoint.strip_prefix("https://"));
    host.is_some_and(|host| !host.is_empty() && !host.chars().any(|c| c.is_whitespace() || c.is_control()))
}

/// The first 100 characters of a text that may be hostile, with control characters escaped.
#[must_use]
pub fn printable(text: &str) -> String {
    text.chars().take(100).flat_map(char::escape_debug).collect()
}

/// The name of a queue that is given by name or URL. `None` if it is neither.
#[must_use]
pub fn queue_name(queue: &str) -> Option<&str> {
    let name = match queue.split_once("://") {
        Some(("http" | "https", rest)) => rest.split_once('/')?.1.rsplit('/').next()?,
        Some(_) => return None,
        None => queue,
    };
    let stem = name.strip_suffix(".fifo").unwrap_or(name);
    let fits = (1..=80).contains(&name.len()) && !stem.is_empty();
    let known = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    (fits && stem.chars().all(known)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_shown() {
        let access_key = AccessKey {
            access_key_id: "AKIAEXAMPLE".into(),
            secret_access_key: "hush".into(),
            session_token: Some("hush".into()),
        };
        let text = format!("{:?}", AwsSettings { access_key: Some(access_key), ..AwsSettings::default() });
        assert!(text.contains("AKIAEXAMPLE") && !text.contains("hush"), "{text}");
    }

    #[test]
    fn an_endpoint_is_a_url_with_a_host() {
        for (endpoint, valid) in [
            ("http://127.0.0.1:4566", true),
            ("https://s3.example.com", true),
            ("localhost:4566", false),
            ("https://", false),
            ("http://a b", false),
            ("http://a\n", false),
        ] {
            assert_eq!(is_valid_endpoint(endpoint), valid, "{endpoint:?}");
        }
    }
}

//! A client of the instance metadata service, version 2: it gets a session token first and uses it for every other request.
//!
//! Paths and responses are those of AWS's pages on
//! [IMDSv2](https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-retrieval.html) and on
//! [interruption notices](https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html).
//! Version 1 is not used, because it needs no token and so answers anything that can send a request. Redirects and proxies are not
//! followed.

use crate::controller_client::http_agent;
use crate::report::{AgentReport, printable};
use std::time::Duration;
use ureq::Agent;
use ureq::http::{Request, StatusCode};

/// The lifetime of a token in seconds: six hours, the longest possible.
const TOKEN_TTL_S: &str = "21600";
/// The largest response that is read, in bytes. Notices have less than 100.
const MAX_RESPONSE: u64 = 4096;

/// A client of the instance metadata.
#[derive(Debug)]
pub struct InstanceMetadata {
    agent: Agent,
    base: String,
    token: Option<String>,
}

/// Why the metadata could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetadataError {
    /// There was no response in time.
    #[error(
        "{base}: {path}: {why}; on an EC2 instance, check that its metadata is on, with a hop limit that reaches the agent"
    )]
    NoResponse {
        /// The address of the metadata.
        base: String,
        /// The path.
        path: &'static str,
        /// What failed.
        why: String,
    },
    /// The response is not one of the metadata service.
    #[error("{base}: {path}: {why}; is this the address of an EC2 instance's metadata?")]
    UnexpectedResponse {
        /// The address of the metadata.
        base: String,
        /// The path.
        path: &'static str,
        /// What is unexpected.
        why: String,
    },
}

const TOKEN: &str = "/latest/api/token";
const INSTANCE: &str = "/latest/meta-data/instance-id";
const ACTION: &str = "/latest/meta-data/spot/instance-action";
const REBALANCE: &str = "/latest/meta-data/events/recommendations/rebalance";

/// A notice from its text.
type Notice = fn(&str) -> AgentReport;

/// Where notices are, the most urgent first.
const NOTICES: [(&str, Notice); 2] = [(ACTION, AgentReport::interruption), (REBALANCE, AgentReport::rebalance)];

impl InstanceMetadata {
    /// A client for the metadata at an address, with a time limit for each response.
    #[must_use]
    pub fn new(base: &str, limit: Duration) -> InstanceMetadata {
        InstanceMetadata { agent: http_agent(limit), base: base.to_owned(), token: None }
    }

    /// The id of this instance.
    ///
    /// # Errors
    /// There was no response, or the response is not an id.
    pub fn instance(&mut self) -> Result<String, MetadataError> {
        let text = self.get(INSTANCE)?.unwrap_or_default();
        let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
        if (1..=64).contains(&text.len()) && text.bytes().all(plain) {
            return Ok(text);
        }
        Err(self.unexpected(INSTANCE, format!("`{}` is not the id of an instance", printable(&text))))
    }

    /// The notices for this instance, usually none, and why not all could be read. What was read counts, whatever becomes of the rest.
    pub fn notices(&mut self) -> (Vec<AgentReport>, Option<MetadataError>) {
        let mut notices = Vec::new();
        for (path, notice) in NOTICES {
            match self.get(path) {
                Ok(text) => notices.extend(text.map(|text| notice(&text))),
                // The rest has time until the next poll, which should not wait for another time limit.
                Err(error) => return (notices, Some(error)),
            }
        }
        (notices, None)
    }

    /// The text at a path, `None` if there is none. A token that has expired is replaced once.
    fn get(&mut self, path: &'static str) -> Result<Option<String>, MetadataError> {
        let had_token = self.token.is_some();
        match self.ask(path)? {
            (StatusCode::UNAUTHORIZED, _) if had_token => self.token = None,
            response => return self.read(path, response),
        }
        let response = self.ask(path)?;
        self.read(path, response)
    }

    fn read(&mut self, path: &'static str, response: (StatusCode, String)) -> Result<Option<String>, MetadataError> {
        match response {
            (StatusCode::OK, text) => Ok(Some(text)),
            (StatusCode::NOT_FOUND, _) => Ok(None),
            (status, _) => {
                self.token = None;
                Err(self.unexpected(path, format!("it responded {status}")))
            }
        }
    }

    fn ask(&mut self, path: &'static str) -> Result<(StatusCode, String), MetadataError> {
        let token = match &self.token {
            Some(token) => token.clone(),
            None => self.token.insert(self.new_token()?).clone(),
        };
        let request = Request::get(format!("{}{path}", self.base)).header("X-aws-ec2-metadata-token", token).body(());
        let response = request.map_err(ureq::Error::from).and_then(|request| self.agent.run(request));
        self.text(path, response)
    }

    fn new_token(&self) -> Result<String, MetadataError> {
        let request = Request::put(format!("{}{TOKEN}", self.base));
        let request = request.header("X-aws-ec2-metadata-token-ttl-seconds", TOKEN_TTL_S).body(&b""[..]);
        let response = request.map_err(ureq::Error::from).and_then(|request| self.agent.run(request));
        let (status, text) = self.text(TOKEN, response)?;
        if status != StatusCode::OK {
            return Err(self.unexpected(TOKEN, format!("it responded {status}")));
        }
        if text.is_empty() || text.len() > 1024 || !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(self.unexpected(TOKEN, "this is not a token".to_owned()));
        }
        Ok(text)
    }

    fn text(
        &self,
        path: &'static str,
        response: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<(StatusCode, String), MetadataError> {
        let no_response = |error: ureq::Error| MetadataError::NoResponse {
            base: self.base.clone(),
            path,
            why: printable(&error.to_string()),
        };
        let mut response = response.map_err(no_response)?;
        let text = response.body_mut().with_config().limit(MAX_RESPONSE).read_to_string();
        Ok((response.status(), text.map_err(no_response)?))
    }

    fn unexpected(&self, path: &'static str, why: String) -> MetadataError {
        MetadataError::UnexpectedResponse { base: self.base.clone(), path, why }
    }
}

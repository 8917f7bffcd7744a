//! The instance metadata, version 2: a session's token first, then everything else with it.
//!
//! Paths and answers are those of AWS's pages on
//! [IMDSv2](https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-retrieval.html) and on
//! [interruption notices](https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html).
//! Never: version 1, which needs no token and is open to whatever can make a request, a redirect, a proxy, or a long wait.

use crate::report::{Report, shown};
use std::time::Duration;
use ureq::Agent;
use ureq::http::{Request, StatusCode};

/// How long a token is good for, in seconds: six hours, the most that there is.
const TOKEN_FOR: &str = "21600";
/// The longest answer that is read: notices have less than 100 bytes.
const MOST_BYTES: u64 = 4096;

/// The instance metadata.
#[derive(Debug)]
pub struct Metadata {
    agent: Agent,
    base: String,
    token: Option<String>,
}

/// Why the metadata says nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetadataError {
    /// No answer, or none in time.
    #[error(
        "{base}: {path}: {why}; on an EC2 instance, see that its metadata is on, and with a hop limit that reaches the agent"
    )]
    Silent {
        /// Whom was asked.
        base: String,
        /// For what.
        path: &'static str,
        /// What happened.
        why: String,
    },
    /// An answer that is none of the metadata's.
    #[error("{base}: {path}: {why}; is this the address of an EC2 instance's metadata?")]
    Strange {
        /// Whom was asked.
        base: String,
        /// For what.
        path: &'static str,
        /// What is strange.
        why: String,
    },
}

const TOKEN: &str = "/latest/api/token";
const INSTANCE: &str = "/latest/meta-data/instance-id";
const ACTION: &str = "/latest/meta-data/spot/instance-action";
const REBALANCE: &str = "/latest/meta-data/events/recommendations/rebalance";

impl Metadata {
    /// The metadata at an address, with a limit for each answer.
    #[must_use]
    pub fn new(base: &str, limit: Duration) -> Metadata {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .max_redirects(0)
            .timeout_global(Some(limit))
            .user_agent(concat!("forebay-agent/", env!("CARGO_PKG_VERSION")));
        Metadata { agent: config.build().into(), base: base.to_owned(), token: None }
    }

    /// This instance's id.
    ///
    /// # Errors
    /// There is no answer, or none that is an id.
    pub fn instance(&mut self) -> Result<String, MetadataError> {
        let text = self.get(INSTANCE)?.unwrap_or_default();
        let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
        if (1..=64).contains(&text.len()) && text.bytes().all(plain) {
            return Ok(text);
        }
        Err(self.strange(INSTANCE, format!("`{}` is no instance's id", shown(&text))))
    }

    /// What the cloud is about to do to this instance; nothing, usually.
    ///
    /// # Errors
    /// There is no answer, or a strange one.
    pub fn notices(&mut self) -> Result<Vec<Report>, MetadataError> {
        let taken = self.get(ACTION)?.map(|text| Report::interruption(&text));
        let risk = self.get(REBALANCE)?.map(|text| Report::rebalance(&text));
        Ok(taken.into_iter().chain(risk).collect())
    }

    /// An answer; `None`: there is nothing at this path. A token that is good no more is fetched anew, once.
    fn get(&mut self, path: &'static str) -> Result<Option<String>, MetadataError> {
        let held = self.token.is_some();
        match self.ask(path)? {
            (StatusCode::UNAUTHORIZED, _) if held => self.token = None,
            answer => return self.read(path, answer),
        }
        let answer = self.ask(path)?;
        self.read(path, answer)
    }

    fn read(&mut self, path: &'static str, answer: (StatusCode, String)) -> Result<Option<String>, MetadataError> {
        match answer {
            (StatusCode::OK, text) => Ok(Some(text)),
            (StatusCode::NOT_FOUND, _) => Ok(None),
            (status, _) => {
                self.token = None;
                Err(self.strange(path, format!("it answered {status}")))
            }
        }
    }

    fn ask(&mut self, path: &'static str) -> Result<(StatusCode, String), MetadataError> {
        let token = match &self.token {
            Some(token) => token.clone(),
            None => self.token.insert(self.new_token()?).clone(),
        };
        let request = Request::get(format!("{}{path}", self.base)).header("X-aws-ec2-metadata-token", token).body(());
        let answer = request.map_err(ureq::Error::from).and_then(|request| self.agent.run(request));
        self.text(path, answer)
    }

    fn new_token(&self) -> Result<String, MetadataError> {
        let request = Request::put(format!("{}{TOKEN}", self.base));
        let request = request.header("X-aws-ec2-metadata-token-ttl-seconds", TOKEN_FOR).body(&b""[..]);
        let answer = request.map_err(ureq::Error::from).and_then(|request| self.agent.run(request));
        let (status, text) = self.text(TOKEN, answer)?;
        if status != StatusCode::OK {
            return Err(self.strange(TOKEN, format!("it answered {status}")));
        }
        if text.is_empty() || text.len() > 1024 || !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(self.strange(TOKEN, "this is no token".to_owned()));
        }
        Ok(text)
    }

    fn text(
        &self,
        path: &'static str,
        answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<(StatusCode, String), MetadataError> {
        let silent = |error: ureq::Error| MetadataError::Silent {
            base: self.base.clone(),
            path,
            why: shown(&error.to_string()),
        };
        let mut answer = answer.map_err(silent)?;
        let text = answer.body_mut().with_config().limit(MOST_BYTES).read_to_string();
        Ok((answer.status(), text.map_err(silent)?))
    }

    fn strange(&self, path: &'static str, why: String) -> MetadataError {
        MetadataError::Strange { base: self.base.clone(), path, why }
    }
}

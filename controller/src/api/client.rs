//! The small client of the HTTP API, for the commands that ask a running Forebay.
//!
//! Never: retries what may have been done. Only waiting goes on after a lost connection, because it changes nothing.

use super::error::ErrorBody;
use super::events::Taken;
use super::jobs::{Jobs, OneJob, Why};
use super::reads::{Nodes, Queues};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::io::Read;
use std::time::Duration;
use ureq::http::{Response, StatusCode};
use ureq::{Agent, Body};

/// A controller, by its address.
pub struct Client {
    agent: Agent,
    base: String,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientError {
    /// The server said no.
    Refused {
        /// The HTTP status.
        status: u16,
        /// In its words.
        body: ErrorBody,
    },
    /// It could not be reached, or its answer could not be read.
    Unreachable {
        /// Whom was asked.
        server: String,
        /// What happened.
        why: String,
    },
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::Refused { body, .. } => write!(f, "{}: {}", body.message, body.remedy),
            ClientError::Unreachable { server, why } => {
                write!(f, "no answer from {server} ({why}): start `forebay run` there, or name another with --server")
            }
        }
    }
}

impl std::error::Error for ClientError {}

#[derive(Deserialize)]
struct Refusal {
    error: ErrorBody,
}

/// The most that an answer may have: a million jobs' state in base64 is some 700 MB.
const MOST_ANSWER: u64 = 2 << 30;

impl Client {
    /// A client of the server at `base`, such as `http://127.0.0.1:8080`.
    #[must_use]
    pub fn new(base: &str) -> Client {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .timeout_connect(Some(Duration::from_secs(10)))
            .timeout_recv_response(Some(super::jobs::LONGEST_WAIT + Duration::from_secs(30)))
            .user_agent(concat!("forebay/", env!("CARGO_PKG_VERSION")))
            .build();
        Client { agent: config.into(), base: base.trim_end_matches('/').to_owned() }
    }

    /// Jobs, all pages.
    pub fn jobs(&self, filter: &str) -> Result<Jobs, ClientError> {
        let mut all: Jobs = self.get(&format!("/v1/jobs?limit=5000{filter}"))?;
        while let Some(after) = all.next.take() {
            let page: Jobs = self.get(&format!("/v1/jobs?limit=5000&after={after}{filter}"))?;
            all.jobs.extend(page.jobs);
            all.next = page.next;
        }
        Ok(all)
    }

    /// One job; `wait`: as it is when it is over, or after so long.
    pub fn job(&self, name: &str, wait: Option<Duration>) -> Result<OneJob, ClientError> {
        let wait = wait.map(|w| format!("?waitFor=terminal&timeout={}s", w.as_secs())).unwrap_or_default();
        self.get(&format!("/v1/jobs/{}{wait}", encoded(name)))
    }

    /// Why a job is where it is.
    pub fn why(&self, name: &str) -> Result<Why, ClientError> {
        self.get(&format!("/v1/jobs/{}/why", encoded(name)))
    }

    /// Asks for a job's end.
    pub fn cancel(&self, name: &str) -> Result<OneJob, ClientError> {
        let path = format!("/v1/jobs/{}/cancel", encoded(name));
        let sent = self.agent.post(self.url(&path)).send_empty();
        self.answer(sent)
    }

    /// Queues.
    pub fn queues(&self) -> Result<Queues, ClientError> {
        self.get("/v1/queues")
    }

    /// Nodes.
    pub fn nodes(&self) -> Result<Nodes, ClientError> {
        self.get("/v1/nodes")
    }

    /// The state document, as text.
    pub fn state(&self) -> Result<String, ClientError> {
        let sent = self.agent.get(self.url("/v1/state")).call();
        self.text(sent)
    }

    /// Sends events as they are. An answer that takes none of them is an answer too.
    pub fn events(&self, content_type: &str, body: &[u8]) -> Result<Taken, ClientError> {
        let sent = self.agent.post(self.url("/v1/events")).header("content-type", content_type).send(body);
        let (status, text) = self.read(sent)?;
        let taken = serde_json::from_str::<Taken>(&text);
        match taken {
            Ok(taken) if !taken.rejected.is_empty() => Ok(taken),
            taken => {
                self.success(status, text)?;
                taken.map_err(|e| self.unreachable(format!("an answer of another version: {e}")))
            }
        }
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        let sent = self.agent.get(self.url(path)).call();
        self.answer(sent)
    }

    fn answer<T: DeserializeOwned>(&self, sent: Result<Response<Body>, ureq::Error>) -> Result<T, ClientError> {
        let text = self.text(sent)?;
        serde_json::from_str(&text).map_err(|e| self.unreachable(format!("an answer of another version: {e}")))
    }

    fn text(&self, sent: Result<Response<Body>, ureq::Error>) -> Result<String, ClientError> {
        let (status, text) = self.read(sent)?;
        self.success(status, text)
    }

    fn read(&self, sent: Result<Response<Body>, ureq::Error>) -> Result<(StatusCode, String), ClientError> {
        let response = sent.map_err(|e| self.unreachable(e.to_string()))?;
        let status = response.status();
        let mut text = String::new();
        let read = response.into_body().into_reader().take(MOST_ANSWER).read_to_string(&mut text);
        read.map_err(|e| self.unreachable(e.to_string()))?;
        Ok((status, text))
    }

    fn success(&self, status: StatusCode, text: String) -> Result<String, ClientError> {
        if status.is_success() {
            return Ok(text);
        }
        match serde_json::from_str(&text) {
            Ok(Refusal { error }) => Err(ClientError::Refused { status: status.as_u16(), body: error }),
            Err(_) => Err(self.unreachable(format!("it answered {status}, which is no Forebay's answer"))),
        }
    }

    fn unreachable(&self, why: String) -> ClientError {
        ClientError::Unreachable { server: self.base.clone(), why }
    }
}

/// A path segment: everything but letters, digits and `-._~` as `%XX`.
#[must_use]
pub fn encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_of_any_kind_are_one_segment() {
        assert_eq!(encoded("resnet-0412"), "resnet-0412");
        assert_eq!(encoded("a/b?c=d e"), "a%2Fb%3Fc%3Dd%20e");
    }
}

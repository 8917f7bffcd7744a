//! The small client of the HTTP API, for the commands that ask a running Forebay.
//!
//! Never: retries what may have been done, beyond what is the same when it is done twice. An answer that says "later" (429, 503) is
//! asked again, a few times and with growing pauses; only waiting goes on after a lost connection.

use super::brakes::{BrakeReleaseRequest, BrakeRequest, Brakes};
use super::confirm_dead::DeathConfirmation;
use super::error::ErrorBody;
use super::events::Taken;
use super::jobs::{CancelledJob, OneJob, Why};
use super::listing::Jobs;
use super::logs::JobLogs;
use super::policy::{PolicyHistory, PolicyView};
use super::reads::{Nodes, Queues};
use crate::sources::registry::SourcesView;
use forebay_wire::document::cost::{CostDocument, JobCost};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{BufRead as _, BufReader, Read as _};
use std::time::Duration;
use ureq::http::{Request, Response, StatusCode};
use ureq::{Agent, Body};

/// A controller, by its address.
pub struct Client {
    agent: Agent,
    base: String,
    /// `Bearer TOKEN`.
    authorization: Option<String>,
    /// Says that it waits to ask again.
    on_retry: fn(&str),
}

/// Tries of one request in all: with pauses of 1, 2, 4, 8 and 16 s by the client's own measure, half a minute.
const TRIES: u32 = 6;

/// The longest pause that a server is followed in.
const MOST_PAUSE: Duration = Duration::from_secs(60);

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The server said no.
    #[error("{}: {}", .body.message, .body.remedy)]
    Refused {
        /// The HTTP status.
        status: u16,
        /// When to ask again, where it says so.
        retry_after: Option<Duration>,
        /// In its words.
        body: ErrorBody,
    },
    /// It could not be reached, or its answer could not be read.
    #[error("no answer from {server} ({why}): start `forebay run` there, or name another with --server")]
    Unreachable {
        /// Whom was asked.
        server: String,
        /// What happened.
        why: String,
    },
}

impl ClientError {
    /// Whether the server said "later".
    #[must_use]
    pub fn is_passing(&self) -> bool {
        matches!(self, ClientError::Refused { status: 429 | 503, .. })
    }

    /// When it said to ask again.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            ClientError::Refused { retry_after, .. } => *retry_after,
            ClientError::Unreachable { .. } => None,
        }
    }
}

/// An answer, whatever it says.
struct Answer {
    status: StatusCode,
    retry_after: Option<Duration>,
    text: String,
}

/// Up to a tenth of a pause more, so that those who were turned away together do not come back together.
fn jitter(pause: Duration) -> Duration {
    let nanos = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.subsec_nanos());
    pause * (nanos % 1_000) / 10_000
}

#[derive(Deserialize)]
struct Refusal {
    error: ErrorBody,
}

/// The most that an answer may have: a million jobs' state in base64 is some 700 MB.
const MOST_ANSWER: u64 = 2 << 30;

impl Client {
    /// A client of the server at `base`, such as `http://127.0.0.1:8080`. `on_retry` says when it waits to ask again.
    #[must_use]
    pub fn new(base: &str, token: Option<&str>, on_retry: fn(&str)) -> Client {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .timeout_connect(Some(Duration::from_secs(10)))
            .timeout_recv_response(Some(super::jobs::LONGEST_WAIT + Duration::from_secs(30)))
            .user_agent(concat!("forebay/", env!("CARGO_PKG_VERSION")))
            .build();
        Client {
            agent: config.into(),
            base: base.trim_end_matches('/').to_owned(),
            authorization: token.map(|token| format!("Bearer {token}")),
            on_retry,
        }
    }

    /// Jobs, all pages.
    ///
    /// # Errors
    /// When the server cannot be reached, refuses, or answers in another version's form.
    pub fn jobs(&self, filter: &str) -> Result<Jobs, ClientError> {
        let mut all: Jobs = self.get(&format!("/v1/jobs?limit=5000{filter}"))?;
        while let Some(after) = all.next.take() {
            let page: Jobs = self.get(&format!("/v1/jobs?limit=5000&after={after}{filter}"))?;
            all.jobs.extend(page.jobs);
            all.next = page.next;
        }
        all.cut = None;
        Ok(all)
    }

    /// One job as it is now.
    ///
    /// # Errors
    /// When the server cannot be reached, refuses, or answers in another version's form.
    pub fn job(&self, name: &str) -> Result<OneJob, ClientError> {
        self.get(&format!("/v1/jobs/{}", encoded(name)))
    }

    /// One job as it is when it is over, or after so long. Asks once: whoever waits tries again by itself.
    ///
    /// # Errors
    /// When the server cannot be reached, refuses, or answers in another version's form.
    pub fn job_over(&self, name: &str, wait: Duration) -> Result<OneJob, ClientError> {
        let path = format!("/v1/jobs/{}?waitFor=terminal&timeout={}s", encoded(name), wait.as_secs());
        self.read_json(&self.once("GET", &path)?)
    }

    /// Why a job is where it is.
    ///
    /// # Errors
    /// When the server cannot be reached, refuses, or answers in another version's form.
    pub fn why(&self, name: &str) -> Result<Why, ClientError> {
        self.get(&format!("/v1/jobs/{}/why", encoded(name)))
    }

    /// What a job cost.
    ///
    /// # Errors
    /// When the server cannot be reached, refuses, or answers in another version's form.
    pub fn job_cost(&self, name: &str) -> Result<JobCost, ClientError> {
        self.get(&format!("/v1/jobs/{}/cost", encoded(name)))
    }

    /// The statuses of a job so far, oldest first, as CloudEvents.
    ///
    /// # Errors
    /// When the server cannot be reached, refuses, or answers in another version's form.
    pub fn job_statuses(&self, name: &str) -> Result<Vec<serde_json::Value>, ClientError> {
        let path = format!("/v1/jobs/{}/events?follow=false", encoded(name));
        let text = self.patiently(|| self.once("GET", &path))?;
        let lines = text.lines().filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_str(line).map_err(|e| self.foreign(&e))).collect()
    }

    /// Statuses of all jobs that the caller may see after a number, or from the oldest that is kept, each with its number as a CloudEvent. Ends with
    /// the last that there is, or when `each` says false.
    ///
    /// # Errors
    /// When the server cannot be reached, refuses, or answers in another version's form.
    pub fn statuses(&self, after: Option<u64>, mut each: impl FnMut(u64, &str) -> bool) -> Result<(), ClientError> {
        let after = after.map_or_else(String::new, |after| format!("&after={after}"));
        let path = format!("/v1/status?follow=false{after}");
        let response = self.patiently(|| {
            let response = self.response("GET", &path, Some(("accept", "text/event-stream")), None)?;
            if response.status().is_success() { Ok(response) } else { Err(self.refusal(self.read(response)?)) }
        })?;
        let mut number = 0;
        for line in BufReader::new(response.into_body().into_reader()).lines() {
            let line = line.map_err(|e| self.unreachable(e.to_string()))?;
            if let Some(id) = line.strip_prefix("id: ") {
                number = id.parse().map_err(|_| self.unreachable("a status without a number".to_owned()))?;
            } else if let Some(event) = line.strip_prefix("data: ")
                && !each(number, event)
            {
                break;
            }
        }
        Ok(())
    }

    /// The ends of the logs of a job's workers. The filter is a query, such as `tail=100&worker=0`.
    ///
    /// # Errors
    /// When the server cannot be reached, refuses, or answers in another version's form.
    pub fn logs(&self, name: &str, filter: &str) -> Result<JobLogs, ClientError> {
        self.get(&format!("/v1/jobs/{}/logs?{filter}", encoded(name)))
    }

    /// Asks for a job's end, and says whose it is. Asked twice, it says the same.
    ///
    /// # Errors
    /// When the server cannot be reached, refuses, or answers in another version's form.
    pub fn cancel(&self, name: &str) -> Result<CancelledJob, ClientError> {
        let path = format!("/v1/jobs/{}/cancel", encoded(name));
        self.read_json(&self.patiently(|| self.once("POST", &path))?)
    }

    /// Confirms that workers are dead which nothing else proves.
    ///
    /// # Errors
    /// When the server cannot be reached, refuses, or answers in another version's form.
    pub fn confirm_dead(&self, name: &str, of: &DeathConfirmation) -> Result<OneJob, ClientError> {
        let path = format!("/v1/jobs/{}/confirm-dead", encoded(name));
        self.post(&path, of)
    }

    /// What operators have stopped.
    ///
    /// # Errors
    /// When the server cannot be reached, refuses, or answers in another version's form.
    pub fn brakes(&self) -> Result<Brakes, ClientError> {
        self.get("/v1/brakes")
    }

    /// Stops something.
    ///
    /// # Errors
    /// When the server cannot be reached, refuses, or answers in another version's form.
    pub fn set_brake(&self, asked: &BrakeRequest) -> Result<Brakes, ClientError> {
        self.post("/v1/brakes/set", asked)
    }

    /// Lets something go on.
    ///
    /// # Errors
    /// When the server cannot be reached, refuses, or answers in another version's form.
    pub fn release_brake(&self, asked: &BrakeReleaseRequest) -> Result<Brakes, ClientError> {
        self.post("/v1/brakes/release", asked)
    }

    /// The policy in force.
    ///
    /// # Errors
    /// When the server cannot be reached, refuses, or answers in another version's form.
    pub fn policy(&self) -> Result<PolicyView, ClientError> {
        self.get("/v1/policy")
    }

    /// The policies that are and were in force.
    ///
    /// # Errors
    /// When the server cannot be reached, refuses, or answers in another version's form.
    pub fn policy_history(&self) -> Result<PolicyHistory, ClientError> {
        self.get("/v1/policy/history")
    }

    /// Puts another policy in force.
    ///
    /// # Errors
    /// When the server cannot be reached, refuses, or answers in another version's form.
    pub fn set_policy(&self, text: &[u8]) -> Result<PolicyView, ClientError> {
        let body = Some(("application/yaml", text));
        self.read_json(&self.patiently(|| self.success(self.send("POST", "/v1/policy/set", body)?))?)
    }

    /// Queues.
    ///
    /// # Errors
    /// When the server cannot be reached, refuses, or answers in another version's form.
    pub fn queues(&self) -> Result<Queues, ClientError> {
        self.get("/v1/queues")
    }

    /// The bill.
    ///
    /// # Errors
    /// When the server cannot be reached, refuses, or answers in another version's form.
    pub fn cost(&self, query: &str) -> Result<CostDocument, ClientError> {
        self.get(&format!("/v1/cost?{query}"))
    }

    /// The bill as a FOCUS dataset in CSV.
    ///
    /// # Errors
    /// When the server cannot be reached, or refuses.
    pub fn focus(&self, query: &str) -> Result<String, ClientError> {
        let path = format!("/v1/cost/focus?{query}");
        self.patiently(|| self.once("GET", &path))
    }

    /// Nodes.
    ///
    /// # Errors
    /// When the server cannot be reached, refuses, or answers in another version's form.
    pub fn nodes(&self) -> Result<Nodes, ClientError> {
        let mut all: Nodes = self.get("/v1/nodes")?;
        while let Some(after) = all.next.take() {
            let page: Nodes = self.get(&format!("/v1/nodes?after={after}"))?;
            all.nodes.extend(page.nodes);
            all.next = page.next;
        }
        Ok(all)
    }

    /// Sources and sinks.
    ///
    /// # Errors
    /// When the server cannot be reached, refuses, or answers in another version's form.
    pub fn sources(&self) -> Result<SourcesView, ClientError> {
        self.get("/v1/sources")
    }

    /// The state document, as text.
    ///
    /// # Errors
    /// When the server cannot be reached, refuses, or answers in another version's form.
    pub fn state(&self) -> Result<String, ClientError> {
        self.patiently(|| self.once("GET", "/v1/state"))
    }

    /// Sends events as they are. An answer that takes none of them is an answer too. A job that is sent again is the same job.
    ///
    /// # Errors
    /// When the server cannot be reached, refuses, or answers in another version's form.
    pub fn events(&self, content_type: &str, body: &[u8]) -> Result<Taken, ClientError> {
        self.patiently(|| {
            let answer = self.send("POST", "/v1/events", Some((content_type, body)))?;
            let taken = serde_json::from_str::<Taken>(&answer.text);
            match taken {
                Ok(taken) if !taken.rejected.is_empty() => Ok(taken),
                taken => {
                    self.success(answer)?;
                    taken.map_err(|e| self.foreign(&e))
                }
            }
        })
    }

    fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.read_json(&self.patiently(|| self.once("GET", path))?)
    }

    fn post<T: DeserializeOwned>(&self, path: &str, asked: &impl Serialize) -> Result<T, ClientError> {
        let body = serde_json::to_vec(asked).map_err(|error| self.foreign(&error))?;
        let json = Some(("application/json", body.as_slice()));
        self.read_json(&self.patiently(|| self.success(self.send("POST", path, json)?))?)
    }

    fn read_json<T: DeserializeOwned>(&self, text: &str) -> Result<T, ClientError> {
        serde_json::from_str(text).map_err(|e| self.foreign(&e))
    }

    /// Asks again while the server says "later", at its pace or with growing pauses of its own.
    fn patiently<T>(&self, mut ask: impl FnMut() -> Result<T, ClientError>) -> Result<T, ClientError> {
        let mut tries = 1;
        loop {
            let error = match ask() {
                Err(error) if tries < TRIES && error.is_passing() => error,
                answer => return answer,
            };
            let own = Duration::from_secs(1 << (tries - 1));
            let pause = error.retry_after().map_or(own, |told| told.max(own)).min(MOST_PAUSE);
            (self.on_retry)(&format!("{error}; asking again in {} s ({tries} of {})", pause.as_secs(), TRIES - 1));
            std::thread::sleep(pause + jitter(pause));
            tries += 1;
        }
    }

    fn send(&self, method: &str, path: &str, body: Option<(&str, &[u8])>) -> Result<Answer, ClientError> {
        let header = body.map(|(content_type, _)| ("content-type", content_type));
        self.read(self.response(method, path, header, body.map(|(_, bytes)| bytes))?)
    }

    fn response(
        &self,
        method: &str,
        path: &str,
        header: Option<(&str, &str)>,
        body: Option<&[u8]>,
    ) -> Result<Response<Body>, ClientError> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        if let Some((name, value)) = header {
            request = request.header(name, value);
        }
        let sent = match body {
            Some(bytes) => request.body(bytes).map_err(ureq::Error::from).and_then(|r| self.agent.run(r)),
            None if method == "GET" => request.body(()).map_err(ureq::Error::from).and_then(|r| self.agent.run(r)),
            None => request.body(&b""[..]).map_err(ureq::Error::from).and_then(|r| self.agent.run(r)),
        };
        sent.map_err(|e| self.unreachable(e.to_string()))
    }

    /// A response whole.
    fn read(&self, response: Response<Body>) -> Result<Answer, ClientError> {
        let after = response.headers().get("retry-after").and_then(|v| v.to_str().ok()?.parse().ok());
        let mut answer =
            Answer { status: response.status(), retry_after: after.map(Duration::from_secs), text: String::new() };
        let read = response.into_body().into_reader().take(MOST_ANSWER).read_to_string(&mut answer.text);
        read.map_err(|e| self.unreachable(e.to_string()))?;
        Ok(answer)
    }

    fn success(&self, answer: Answer) -> Result<String, ClientError> {
        if answer.status.is_success() { Ok(answer.text) } else { Err(self.refusal(answer)) }
    }

    fn refusal(&self, answer: Answer) -> ClientError {
        let Answer { status, retry_after, text } = answer;
        match serde_json::from_str(&text) {
            Ok(Refusal { error }) => ClientError::Refused { status: status.as_u16(), retry_after, body: error },
            Err(_) => self.unreachable(format!("it answered {status}, which is no Forebay's answer")),
        }
    }

    fn once(&self, method: &str, path: &str) -> Result<String, ClientError> {
        self.success(self.send(method, path, None)?)
    }

    fn foreign(&self, error: &serde_json::Error) -> ClientError {
        self.unreachable(format!("an answer of another version: {error}"))
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

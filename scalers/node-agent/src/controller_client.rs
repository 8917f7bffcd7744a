//! A client for the controller's three paths for agents. It follows no redirect, uses no proxy, and limits the size of a response. No token
//! appears in a message.

use crate::activity::report::ActivityReport;
use crate::report::{AgentReport, ReportKind, printable};
use crate::token::AgentToken;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use ureq::Agent;
use ureq::http::Request;

/// The largest response that is read, in bytes.
const MAX_RESPONSE: u64 = 64 * 1024;
/// The longest `Retry-After` that is followed.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct ControllerClient {
    agent: Agent,
    base: String,
    token: AgentToken,
}

/// What became of a report.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// The controller has journaled it.
    Accepted,
    /// It was not accepted now, for this reason. The time is the `Retry-After` of the response.
    Later(String, Option<Duration>),
    /// It will never be accepted, for this reason.
    Refused(String),
}

#[derive(Serialize)]
struct Body<'a> {
    instance: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<ReportKind>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<&'a str>,
}

#[derive(Deserialize)]
struct ErrorResponse {
    error: ErrorBody,
}

#[derive(Deserialize)]
struct ErrorBody {
    message: String,
    remedy: String,
}

impl ControllerClient {
    pub fn new(base: &str, token: &AgentToken, limit: Duration) -> ControllerClient {
        ControllerClient { agent: http_agent(limit), base: base.to_owned(), token: token.clone() }
    }

    /// Sends a report.
    pub fn deliver(&self, instance: &str, report: &AgentReport) -> Delivery {
        let hello = report.kind == ReportKind::Hello;
        let path = if hello { "/v1/agent/hello" } else { "/v1/agent/notices" };
        self.post(path, &Body { instance, kind: (!hello).then_some(report.kind), at: report.at.as_deref() })
    }

    /// Sends what was observed of the workers.
    pub fn deliver_activity(&self, report: &ActivityReport) -> Delivery {
        self.post("/v1/agent/activity", report)
    }

    fn post(&self, path: &str, body: &impl Serialize) -> Delivery {
        let mut request = Request::post(format!("{}{path}", self.base)).header("content-type", "application/json");
        match self.token.text() {
            Ok(Some(token)) => request = request.header("authorization", format!("Bearer {token}")),
            Ok(None) => {}
            // It is there again in a moment, or somebody mends it: the report waits.
            Err(error) => return Delivery::Later(error.to_string(), None),
        }
        let body = match serde_json::to_vec(body) {
            Ok(body) => body,
            Err(error) => {
                return Delivery::Refused(format!("a fault of this program: the report is no JSON ({error})"));
            }
        };
        let response = request.body(body).map_err(ureq::Error::from).and_then(|request| self.agent.run(request));
        match response {
            Ok(response) => self.read(response),
            Err(error) => {
                Delivery::Later(format!("no response from {}: {}", self.base, printable(&error.to_string())), None)
            }
        }
    }

    fn read(&self, mut response: ureq::http::Response<ureq::Body>) -> Delivery {
        let status = response.status();
        if status.is_success() {
            return Delivery::Accepted;
        }
        let after = response.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
        let after = after.map(|seconds| Duration::from_secs(seconds).min(MAX_RETRY_AFTER));
        let text = response.body_mut().with_config().limit(MAX_RESPONSE).read_to_string().unwrap_or_default();
        let why = match serde_json::from_str::<ErrorResponse>(&text) {
            Ok(ErrorResponse { error }) => {
                format!("{}: {}: {}", self.base, printable(&error.message), printable(&error.remedy))
            }
            Err(_) => format!("{} responded {status}, which is not a response of Forebay", self.base),
        };
        match status.as_u16() {
            // This controller cannot read the report, so sending it again is useless.
            400 | 413 | 415 => Delivery::Refused(why),
            // Everything else may pass: the token may not be configured yet, or the purchase of the instance not be settled.
            _ => Delivery::Later(why, after),
        }
    }
}

/// Asks as the agent does: statuses are no errors, nothing goes through a proxy or to where it is redirected.
pub(crate) fn http_agent(limit: Duration) -> Agent {
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .proxy(None)
        .max_redirects(0)
        .timeout_global(Some(limit))
        .user_agent(concat!("forebay-agent/", env!("CARGO_PKG_VERSION")));
    config.build().into()
}

//! The controller's two paths for agents.
//!
//! Never: a token in a message, a redirect, a proxy, or an answer without bound.

use crate::report::{Kind, Report, shown};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use ureq::Agent;
use ureq::http::Request;

/// The longest answer that is read.
const MOST_BYTES: u64 = 64 * 1024;
/// The longest pause that the controller is followed in.
const MOST_PAUSE: Duration = Duration::from_secs(60);

/// The controller.
#[derive(Debug)]
pub(crate) struct Controller {
    agent: Agent,
    base: String,
    authorization: Option<String>,
}

/// What became of a report.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It is durable.
    Taken,
    /// Not now: why, and when to come back where that was said.
    Later(String, Option<Duration>),
    /// Not ever: why.
    Refused(String),
}

#[derive(Serialize)]
struct Body<'a> {
    instance: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<Kind>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<&'a str>,
}

#[derive(Deserialize)]
struct Refusal {
    error: Words,
}

#[derive(Deserialize)]
struct Words {
    message: String,
    remedy: String,
}

impl Controller {
    pub fn new(base: &str, token: Option<&str>, limit: Duration) -> Controller {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .max_redirects(0)
            .timeout_global(Some(limit))
            .user_agent(concat!("forebay-agent/", env!("CARGO_PKG_VERSION")));
        let authorization = token.map(|token| format!("Bearer {token}"));
        Controller { agent: config.build().into(), base: base.to_owned(), authorization }
    }

    /// Tells a report.
    pub fn tell(&self, instance: &str, report: &Report) -> Answer {
        let hello = report.kind == Kind::Hello;
        let path = if hello { "/v1/agent/hello" } else { "/v1/agent/notices" };
        let body = Body { instance, kind: (!hello).then_some(report.kind), at: report.at.as_deref() };
        let mut request = Request::post(format!("{}{path}", self.base)).header("content-type", "application/json");
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        let body = serde_json::to_vec(&body).unwrap_or_default();
        let answer = request.body(body).map_err(ureq::Error::from).and_then(|request| self.agent.run(request));
        match answer {
            Ok(answer) => self.read(answer),
            Err(error) => Answer::Later(format!("no answer from {}: {}", self.base, shown(&error.to_string())), None),
        }
    }

    fn read(&self, mut answer: ureq::http::Response<ureq::Body>) -> Answer {
        let status = answer.status();
        if status.is_success() {
            return Answer::Taken;
        }
        let after = answer.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
        let after = after.map(|seconds| Duration::from_secs(seconds).min(MOST_PAUSE));
        let text = answer.body_mut().with_config().limit(MOST_BYTES).read_to_string().unwrap_or_default();
        let why = match serde_json::from_str::<Refusal>(&text) {
            Ok(Refusal { error }) => format!("{}: {}: {}", self.base, shown(&error.message), shown(&error.remedy)),
            Err(_) => format!("{} answered {status}, which is no Forebay's answer", self.base),
        };
        match status.as_u16() {
            // A report that a controller of this version cannot read; another one is no use.
            400 | 413 | 415 => Answer::Refused(why),
            // The rest may pass: a token that somebody has yet to write down, an instance whose purchase is not settled yet.
            _ => Answer::Later(why, after),
        }
    }
}

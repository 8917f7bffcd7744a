//! Who asks: the token of a request, and the role that a path needs. A handler names its role by the extractor that it takes.
//!
//! ```text
//! no tokens configured: everybody is local, an operator (the listener is on loopback then)
//! Authorization: Bearer TOKEN -> who it is -> has it the role? -> handler
//!     none, unknown: 401 WWW-Authenticate      role missing: 403 names it
//! ```
//!
//! Never: a token in an address, a cookie, an answer or a log.

use super::Api;
use super::audit::Known;
use super::error::ApiError;
use super::listen::{PeerAddress, peer};
use crate::cluster::agent_tokens::{AUDIENCE, ReviewRefusal, TokenSender};
use crate::config::tokens::{Role, Who};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use base64::Engine as _;
use std::sync::Arc;

/// May read what it may see.
pub(super) struct Reader(pub Arc<Who>);

/// May send events and cancel.
pub(super) struct Submitter(pub Arc<Who>);

/// May do everything.
pub(super) struct Operator(pub Arc<Who>);

/// May say what the cloud does to a node.
pub(super) struct NodeAgent(pub Arc<Who>);

/// May read figures: all of them with the role for that, else what a reader may see.
pub(super) struct Scraper {
    /// Who it is.
    pub who: Arc<Who>,
    /// Whether it sees all of them.
    pub all: bool,
}

/// May read, and is maybe a browser: that one asks its user for a name and a password, and the password is the token.
pub(super) struct Browser(pub Arc<Who>);

/// How a request is asked for its token.
const BEARER: &str = "Bearer realm=\"forebay\"";

/// How a token may come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Bearer,
    BearerOrBasic,
}

impl FromRequestParts<Api> for Reader {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Reader, ApiError> {
        identify(api, parts, By::Bearer, Role::Read).map(Reader)
    }
}

impl FromRequestParts<Api> for Submitter {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Submitter, ApiError> {
        identify(api, parts, By::Bearer, Role::Submit).map(Submitter)
    }
}

impl FromRequestParts<Api> for Operator {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Operator, ApiError> {
        identify(api, parts, By::Bearer, Role::Operate).map(Operator)
    }
}

impl FromRequestParts<Api> for NodeAgent {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<NodeAgent, ApiError> {
        match by_account(api, parts).await {
            Some(found) => found.map(NodeAgent),
            None => identify(api, parts, By::Bearer, Role::Agent).map(NodeAgent),
        }
    }
}

impl FromRequestParts<Api> for Scraper {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Scraper, ApiError> {
        if let Ok(who) = identify(api, parts, By::Bearer, Role::Metrics) {
            return Ok(Scraper { who, all: true });
        }
        identify(api, parts, By::Bearer, Role::Read).map(|who| Scraper { who, all: false })
    }
}

impl FromRequestParts<Api> for Browser {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Browser, ApiError> {
        identify(api, parts, By::BearerOrBasic, Role::Read).map(Browser)
    }
}

/// Whose the token of a service account is, where agents are known by those. `None`: it is none, or somebody's of the configuration.
async fn by_account(api: &Api, parts: &Parts) -> Option<Result<Arc<Who>, ApiError>> {
    let sent = sent(&parts.headers, By::Bearer)?;
    let agents = api.agents.as_ref().filter(|agents| agents.concerns(&sent))?;
    if api.tokens.is_empty() || api.tokens.find(&sent).is_some() {
        return None;
    }
    Some(agents.find(&sent, sender(api, parts)).await.map_err(|refusal| match refusal {
        ReviewRefusal::Unknown(why) => {
            let message = format!("this service account's token is not known here: {why}");
            let remedy = format!(
                "send the token of a pod of an account that is listed under `kubernetes.agents`, made for the audience `{AUDIENCE}`"
            );
            ApiError::new(401, "UnknownToken", message, remedy).authenticate(BEARER)
        }
        ReviewRefusal::Later(why) => {
            let message = format!("whose this token is cannot be told now: {why}");
            let remedy = "send it again; `forebay doctor` tells whether tokens may be reviewed";
            ApiError::new(503, "ReviewFailed", message, remedy).retry_after(5)
        }
    }))
}

/// Who holds the token that a request has, whatever it asks for. `None`: it has none, or none of the configuration.
pub(super) fn holder(api: &Api, headers: &HeaderMap) -> Option<Arc<Who>> {
    api.tokens.find(&sent(headers, By::BearerOrBasic)?)
}

/// From where a request came, as far as the network tells.
fn sender(api: &Api, parts: &Parts) -> TokenSender {
    let from = parts.extensions.get::<PeerAddress>().map(|from| from.0);
    from.filter(|from| !api.proxies.contains(from)).map_or(TokenSender::Many, |from| TokenSender::Peer(peer(from)))
}

fn identify(api: &Api, parts: &Parts, by: By, role: Role) -> Result<Arc<Who>, ApiError> {
    let who = if api.tokens.is_empty() {
        Arc::clone(&api.local)
    } else {
        let sent = sent(&parts.headers, by).ok_or_else(|| unknown("NoToken", "this needs a token", by))?;
        api.tokens.find(&sent).ok_or_else(|| unknown("UnknownToken", "this token is not known here", by))?
    };
    if let Some(known) = parts.extensions.get::<Known>() {
        known.set(&who);
    }
    if who.may(role) {
        return Ok(who);
    }
    let (name, role) = (crate::show::figures::short(&who.caller.principal, 60), role.as_str());
    let remedy =
        format!("use a token with the role, or give it to this one under `tokens` in forebay.yaml: roles: [{role}]");
    Err(ApiError::new(403, "RoleMissing", format!("the token `{name}` has not the role `{role}`"), remedy))
}

fn unknown(code: &str, message: &str, by: By) -> ApiError {
    let remedy =
        "send `Authorization: Bearer TOKEN`; forebay's commands take it from --token-file FILE or FOREBAY_TOKEN";
    let ways = match by {
        By::Bearer => BEARER,
        By::BearerOrBasic => "Basic realm=\"forebay: the password is a token\", charset=\"UTF-8\"",
    };
    ApiError::new(401, code, message, remedy).authenticate(ways)
}

/// The token of a request.
fn sent(headers: &HeaderMap, by: By) -> Option<String> {
    let (scheme, value) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let value = value.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(value.to_owned());
    }
    if by == By::Bearer || !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let pair = base64::engine::general_purpose::STANDARD.decode(value).ok()?;
    let pair = String::from_utf8(pair).ok()?;
    pair.split_once(':').map(|(_, password)| password.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_comes_as_bearer_and_to_the_page_as_a_password() {
        let cases = [
            ("Bearer abc", By::Bearer, Some("abc")),
            ("bearer  abc ", By::Bearer, Some("abc")),
            ("Bearer", By::Bearer, None),
            ("abc", By::Bearer, None),
            ("Basic dXNlcjphOmI=", By::Bearer, None),
            ("Basic dXNlcjphOmI=", By::BearerOrBasic, Some("a:b")),
            ("basic OmFiYw==", By::BearerOrBasic, Some("abc")),
            ("Basic !!!", By::BearerOrBasic, None),
            ("Digest x", By::BearerOrBasic, None),
        ];
        for (text, by, token) in cases {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, text.parse().unwrap());
            assert_eq!(sent(&headers, by).as_deref(), token, "{text}");
        }
        assert_eq!(sent(&HeaderMap::new(), By::BearerOrBasic), None);
    }
}

//! Which requests go to the audit log: what is done by hand, and who is refused. With whom, from where.
//!
//! ```text
//! request -> who it is (auth) -> handler -> its answer carries an Act, or is 401 or 403 -> audit log
//! ```
//!
//! What is written of an act does not depend on whether whoever asked for it is still there: see whole.rs.
//!
//! Never: what programs do all the time, such as events and reads; a token, or what a refused one says of itself.

use super::Api;
use super::error::ErrorCode;
use super::listen::PeerAddress;
use crate::audit_log::Author;
use crate::config::tokens::Who;
use crate::show::figures::short;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponseParts, Response, ResponseParts};
use serde_json::Value;
use std::convert::Infallible;
use std::sync::{Arc, OnceLock};

/// What an operator or a user has done, with its answer.
#[derive(Clone, Debug)]
pub(super) struct Act {
    /// In a word or two.
    pub name: &'static str,
    /// To what.
    pub what: Value,
}

impl IntoResponseParts for Act {
    type Error = Infallible;

    fn into_response_parts(self, mut parts: ResponseParts) -> Result<ResponseParts, Infallible> {
        parts.extensions_mut().insert(self);
        Ok(parts)
    }
}

/// Who a request is from, as soon as that is known.
#[derive(Clone, Default)]
pub(super) struct Known(Arc<OnceLock<Arc<Who>>>);

impl Known {
    /// It is from somebody who has a token.
    pub fn set(&self, who: &Arc<Who>) {
        let _ = self.0.set(Arc::clone(who));
    }
}

pub(super) async fn watch(State(api): State<Api>, mut request: Request, next: Next) -> Response {
    let Some(log) = api.audit.clone() else { return next.run(request).await };
    let known = Known::default();
    request.extensions_mut().insert(known.clone());
    let peer = request.extensions().get::<PeerAddress>().map(|peer| peer.0);
    let by_proxy = peer.is_some_and(|peer| api.proxies.contains(&peer));
    let forwarded = request.headers().get("x-forwarded-for").filter(|_| by_proxy);
    let forwarded_for = forwarded.map(|text| short(&String::from_utf8_lossy(text.as_bytes()), 100));
    let path = short(request.uri().path(), 100);
    let mut response = next.run(request).await;
    let act = response.extensions_mut().remove::<Act>();
    let refused = matches!(response.status().as_u16(), 401 | 403);
    if act.is_some() || refused {
        let by = known.0.get().map(|who| who.name.to_string());
        let author = Author { by, from: peer.map(|peer| peer.to_string()), forwarded_for };
        match act {
            Some(Act { name, what }) => log.act(name, author, what),
            None => {
                let code = response.extensions().get::<ErrorCode>().map_or("", |code| code.0.as_str());
                log.refused(code, &path, author);
            }
        }
    }
    response
}

//! Whose a connection is that comes through a proxy: of whoever asked on it last. So one caller has a part of all connections, though all of them come
//! from one address.
//!
//! ```text
//! request -> through a proxy? -- no: handler
//!                '-- whose? its token's holder, else the address that the proxy names, else the proxy
//!         -> is the connection its already? -- yes: handler
//!                '-- no: what another had of it is given back -> a part of all connections -> handler
//!                                                                      '-- no: 429 -> closed
//! ```
//!
//! It stays the caller's until it ends, or until somebody else asks on it: while a body is awaited, a job is waited for, a stream is open, an
//! answer is not read yet, and while nothing is asked. Who asks for figures has a part of other connections, so that monitoring is not
//! refused for what else its token is used for.
//!
//! Never: counts health; believes an address that no trusted proxy has written.

use super::Api;
use super::auth;
use super::error::ApiError;
use super::listen::{PeerAddress, peer};
use super::room::Room;
use crate::driver::HeldShare;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

/// What is answered to whoever asks, at once and without a token.
const HEALTH: [&str; 2] = ["/healthz", "/readyz"];

/// Where figures are.
const FIGURES: &str = "/metrics";

/// Each header has the addresses that a request came from, the nearest one last.
const FORWARDED_FOR: &str = "x-forwarded-for";

/// Whose a connection is. With each request on it.
#[derive(Clone, Default)]
pub(super) struct AskedConnection(Arc<Mutex<Option<HeldConnection>>>);

/// A caller's part of all connections, for one of them.
struct HeldConnection {
    by: Arc<str>,
    purpose: Purpose,
    _place: HeldShare,
}

/// What a connection is used for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Figures,
    AllElse,
}

impl AskedConnection {
    /// From now on it is this caller's.
    fn give(&self, by: Arc<str>, purpose: Purpose, room: &Room) -> Result<(), ApiError> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if held.as_ref().is_some_and(|held| held.by == by && held.purpose == purpose) {
            return Ok(());
        }
        *held = None;
        let place = match purpose {
            Purpose::Figures => room.scrape(&by)?,
            Purpose::AllElse => room.connection(&by)?,
        };
        *held = Some(HeldConnection { by, purpose, _place: place });
        Ok(())
    }
}

/// Sees to it that whoever asks has a part of all connections.
pub(super) async fn bounded(State(api): State<Api>, request: Request, next: Next) -> Response {
    let counted = count(&api, &request);
    match counted {
        Ok(()) => next.run(request).await,
        Err(refused) => {
            let mut answer = refused.into_response();
            answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            answer
        }
    }
}

fn count(api: &Api, request: &Request) -> Result<(), ApiError> {
    let path = request.uri().path();
    let Some(connection) = request.extensions().get::<AskedConnection>() else { return Ok(()) };
    // Of who comes without a proxy the address is bounded: many agents may share a token.
    let from = request.extensions().get::<PeerAddress>().map(|from| from.0);
    let Some(proxy) = from.filter(|from| api.proxies.contains(from)) else { return Ok(()) };
    if HEALTH.contains(&path) {
        return Ok(());
    }
    let holder = auth::holder(api, request.headers());
    // Figures are for those who have a token, where tokens are asked for: strangers leave scrapers their connections.
    let purpose = if path == FIGURES && (holder.is_some() || api.tokens.is_empty()) {
        Purpose::Figures
    } else {
        Purpose::AllElse
    };
    let by = match holder {
        Some(who) => Arc::clone(&who.name),
        None => Arc::from(peer(origin(proxy, request.headers(), &api.proxies)).to_string()),
    };
    connection.give(by, purpose, &api.room)
}

/// The address that a request comes from, as far as that can be believed: of what proxies of ours have written, the last that is none of
/// them. Where they name nobody it is theirs.
fn origin(from: IpAddr, headers: &HeaderMap, proxies: &[IpAddr]) -> IpAddr {
    // What is no text names nobody.
    let lines = headers.get_all(FORWARDED_FOR).iter().rev().map(|line| line.to_str().unwrap_or_default());
    let mut hops = lines.flat_map(|line| line.rsplit(','));
    let mut nearest = from;
    while proxies.contains(&nearest) {
        match hops.next().and_then(address) {
            Some(before) => nearest = before,
            None => return from,
        }
    }
    nearest
}

/// An address, with or without a port.
fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    text.parse::<IpAddr>().ok().or_else(with_port).map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn an_address_is_believed_that_a_trusted_proxy_has_written() {
        let proxies = [ip("10.0.0.7"), ip("10.0.0.8")];
        let cases: [(&str, &[&str], &str); 10] = [
            ("192.0.2.1", &["198.51.100.1"], "192.0.2.1"),
            ("10.0.0.7", &["198.51.100.1"], "198.51.100.1"),
            ("10.0.0.7", &["203.0.113.5, 198.51.100.1"], "198.51.100.1"),
            ("10.0.0.7", &["203.0.113.5", "198.51.100.1"], "198.51.100.1"),
            ("10.0.0.7", &["203.0.113.5, 198.51.100.1,10.0.0.8"], "198.51.100.1"),
            ("10.0.0.7", &["198.51.100.1:4711"], "198.51.100.1"),
            ("10.0.0.7", &["[2001:db8::1]:4711"], "2001:db8::1"),
            ("10.0.0.7", &["198.51.100.1, unknown"], "10.0.0.7"),
            ("10.0.0.7", &["10.0.0.8"], "10.0.0.7"),
            ("10.0.0.7", &[], "10.0.0.7"),
        ];
        for (from, lines, expected) in cases {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(FORWARDED_FOR, line.parse().expect("a value"));
            }
            assert_eq!(origin(ip(from), &headers, &proxies), ip(expected), "{from} {lines:?}");
        }
    }

    #[test]
    fn a_connection_is_of_whoever_asked_on_it_last() {
        let (room, a, b) = (Room::with_connections(64), Arc::<str>::from("a"), Arc::<str>::from("b"));
        let give = |connection: &AskedConnection, by: &Arc<str>, purpose| {
            connection.give(Arc::clone(by), purpose, &room).map_err(|refused| refused.code().to_owned())
        };
        let connections: Vec<AskedConnection> = (0..31).map(|_| AskedConnection::default()).collect();
        let (last, of_a) = connections.split_last().expect("some");
        for connection in of_a {
            assert_eq!(give(connection, &a, Purpose::AllElse), Ok(()));
        }
        let refused: Result<(), String> = Err("TooManyConnections".to_owned());
        assert_eq!(give(last, &a, Purpose::AllElse), refused, "it has its part");
        assert_eq!(give(last, &a, Purpose::Figures), Ok(()), "figures have connections of their own");
        let first = of_a.first().expect("one");
        assert_eq!(give(first, &a, Purpose::AllElse), Ok(()), "this one is its already");
        assert_eq!(give(first, &b, Purpose::AllElse), Ok(()));
        assert_eq!(give(last, &a, Purpose::AllElse), refused, "what is free is not more than before");
        drop(connections);
        assert_eq!(give(&AskedConnection::default(), &a, Purpose::AllElse), Ok(()));
    }
}

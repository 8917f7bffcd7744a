//! Connections: who may have how many, how long a head may take, and which protocol they speak: HTTP/1.1, and nothing else.
//!
//! ```text
//! accept -> room for this peer? -> head within its time and size -> router
//!              '-- no: 429 at once, and closed
//! ```
//!
//! One peer may hold as many connections as stay free; one that holds none finds room. A trusted proxy speaks for many: its connections
//! are not one peer's, and its callers are told apart by their tokens.
//! Never: waits for a client before another is accepted.

use super::ended;
use super::outside::Shaped;
use super::room::MOST_STREAMS;
use super::waiters::MOST_WAITERS;
use crate::driver::{HeldShare, Shares};
use axum::Router;
use hyper::server::conn::http1;
use hyper::service::Service as _;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io::Write as _;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

/// Connections at once: whoever waits for a job, and a thousand others. Beyond them one that comes is closed with 429.
const MOST_CONNECTIONS: usize = MOST_WAITERS + 1_024;

/// Of the files that this process may open, those that are not for connections: the journal's, the statuses', those of streams.
const OTHER_FILES: usize = 128 + MOST_STREAMS;

/// A head that is not whole by then ends its connection, and so does one on which nothing is asked for so long. Longer than clients keep
/// connections that they do not use (Forebay's own: 15 s), so that none is closed under a request.
const HEAD: Duration = Duration::from_secs(20);

/// Bytes of a head at most, as usual proxies allow.
const MOST_HEAD: usize = 32 * 1024;

/// Headers at most.
const MOST_HEADERS: usize = 100;

/// The pause after the system refused a connection (it has no file left, most often).
const PAUSE: Duration = Duration::from_millis(100);

/// What one is told for which there is no room.
const FULL: &[u8] = b"HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/json\r\nretry-after: 5\r\nconnection: close\r\n\
    content-length: 142\r\n\r\n{\"error\":{\"code\":\"TooManyConnections\",\"message\":\"this address has too many connections\",\
    \"remedy\":\"close some, or use them for more requests\"}}";

/// Serves until `ending` resolves, and then until what is open has ended.
///
/// # Errors
/// None now; what the system says of single connections is no end.
pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    proxies: &[IpAddr],
    ending: watch::Receiver<bool>,
) -> std::io::Result<()> {
    let places = Shares::new(most_connections());
    // Each connection has a sender; when all have gone, so have the connections.
    let (open, mut closed) = mpsc::channel::<Never>(1);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = ended(ending.clone()) => break,
        };
        match accepted {
            Ok((stream, from)) => match part(&places, from.ip(), 1, proxies) {
                Some(place) => hold(
                    stream,
                    PeerAddress(from.ip().to_canonical()),
                    place,
                    router.clone(),
                    (open.clone(), ending.clone()),
                ),
                None => turn_away(stream),
            },
            Err(error) => {
                tracing::debug!("a connection was not accepted: {error}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    drop((listener, open));
    // Nothing is ever sent.
    let _ = closed.recv().await;
    Ok(())
}

/// Says that there is no room, as far as the system takes it at once.
fn turn_away(stream: TcpStream) {
    // Of a connection that has just been accepted tokio does not know yet that it can be written to; the system does.
    if let Ok(mut stream) = stream.into_std() {
        let _ = stream.write_all(FULL);
    }
}

/// What is sent over a channel of which only the end matters.
enum Never {}

/// Where a connection comes from: with each request on it.
#[derive(Clone, Copy)]
pub(super) struct PeerAddress(pub IpAddr);

/// A part of something for a peer. A proxy stands for many.
pub(super) fn part(of: &Shares, from: IpAddr, amount: usize, proxies: &[IpAddr]) -> Option<HeldShare> {
    let from = from.to_canonical();
    let peer: Arc<str> = Arc::from(peer(from).to_string());
    if proxies.contains(&from) { of.take_any(&peer, amount) } else { of.take(&peer, amount) }
}

/// Who counts as one peer: an address, and of IPv6 the network that one machine has.
pub(super) fn peer(from: IpAddr) -> IpAddr {
    match from {
        IpAddr::V4(_) => from,
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}

/// Serves a connection until it ends; after `ending`, until what was asked on it is answered.
fn hold(
    stream: TcpStream,
    from: PeerAddress,
    place: HeldShare,
    router: Router,
    (open, ending): (mpsc::Sender<Never>, watch::Receiver<bool>),
) {
    // Answers are small and waited for.
    let _ = stream.set_nodelay(true);
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD).max_headers(MOST_HEADERS).max_header_size(MOST_HEAD);
    let io = TokioIo::new(Shaped::new(stream));
    let router = TowerToHyperService::new(router);
    let told = hyper::service::service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(from);
        router.call(request)
    });
    let connection = builder.serve_connection(io, told);
    tokio::spawn(async move {
        let mut connection = std::pin::pin!(connection);
        let served = tokio::select! {
            served = connection.as_mut() => served,
            () = ended(ending) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = served {
            tracing::debug!("a connection ended: {error}");
        }
        drop((place, open));
    });
}

/// Connections at most, by what the system allows this process to open.
fn most_connections() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let files = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let files = files.and_then(|rest| rest.split_whitespace().next()?.parse::<usize>().ok());
    files.map_or(MOST_CONNECTIONS, |files| files.saturating_sub(OTHER_FILES).clamp(64, MOST_CONNECTIONS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_peer_leaves_room_and_a_proxy_is_not_one_peer() {
        let places = Shares::new(1_600);
        let (greedy, proxy): (IpAddr, IpAddr) = ("192.0.2.1".parse().unwrap(), "192.0.2.9".parse().unwrap());
        let held: Vec<HeldShare> = std::iter::from_fn(|| part(&places, greedy, 1, &[proxy])).collect();
        assert_eq!(held.len(), 750);
        let through: Vec<HeldShare> = std::iter::from_fn(|| part(&places, proxy, 1, &[proxy])).collect();
        assert_eq!(through.len(), 750, "all but the reserve");
        assert!(part(&places, "192.0.2.2".parse().unwrap(), 1, &[proxy]).is_some(), "the reserve");
        let network = |text: &str| peer(text.parse().unwrap());
        assert_eq!(network("2001:db8::1:2"), network("2001:db8::ffff"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:1::1"));
    }

    #[test]
    fn who_is_turned_away_gets_a_whole_answer() {
        let text = std::str::from_utf8(FULL).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())), "{}", body.len());
        let error: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(error["error"]["code"], "TooManyConnections");
    }

    #[test]
    fn who_is_turned_away_is_told_over_the_wire() {
        use std::io::Read as _;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let (client, stream) = runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            (client, listener.accept().await.unwrap().0)
        });
        turn_away(stream);
        let (mut client, mut told) = (client, Vec::new());
        client.read_to_end(&mut told).unwrap();
        assert_eq!(told, FULL);
    }
}

//! Connections: who may have how many, how long a head may take, and which protocol they speak: HTTP/1.1, and nothing else.
//!
//! ```text
//! accept -> room for this peer? -> head within its time and size -> router
//!              '-- no: reserve -> head within 2 s -> health, metrics: router -> closed
//!                                    '-- anything else: 429 -> closed
//! ```
//!
//! One peer may hold as many connections as stay free; one that holds none finds room. A trusted proxy speaks for many: its connections
//! are not one peer's. Whose each of them is, its requests tell: callers.rs. The reserve is beyond all of these bounds, so that health and
//! metrics are answered to a prober whose address, or proxy, somebody else uses up; one connection of it is for one request.
//! Never: waits for a client before another is accepted; a connection of the reserve that cannot be replaced.

use super::callers::AskedConnection;
use super::ended;
use super::error::ApiError;
use super::outside::Shaped;
use super::room::{MOST_RESERVED, MOST_STREAMS};
use super::waiters::MOST_WAITERS;
use crate::driver::{HeldShare, Shares};
use axum::Router;
use axum::http::Method;
use axum::response::IntoResponse as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// Connections at once: whoever waits for a job, and a thousand others. Beyond them one that comes is of the reserve.
const MOST_CONNECTIONS: usize = MOST_WAITERS + 1_024;

/// Of the files that this process may open, those that are not for connections: the journal's, the statuses', those of streams; and those
/// of the reserve.
const OTHER_FILES: usize = 128 + MOST_STREAMS + MOST_RESERVED;

/// A head that is not whole by then ends its connection, and so does one on which nothing is asked for so long. Longer than clients keep
/// connections that they do not use (Forebay's own: 15 s), so that none is closed under a request.
const HEAD: Duration = Duration::from_secs(20);

/// The same on a connection of the reserve: a prober sends its request with the connection.
const RESERVED_HEAD: Duration = Duration::from_secs(2);

/// A connection of the reserve ends by then: its head, and 10 s for the answer, which is how long monitoring waits of itself.
const LONGEST_RESERVED: Duration = Duration::from_secs(12);

/// What is answered on a connection of the reserve.
const RESERVED_PATHS: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

/// Bytes of a head at most, as usual proxies allow.
const MOST_HEAD: usize = 32 * 1024;

/// Headers at most.
const MOST_HEADERS: usize = 100;

/// The pause after the system refused a connection (it has no file left, most often).
const PAUSE: Duration = Duration::from_millis(100);

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
    serve_within(&Shares::new(most_connections()), listener, router, proxies, ending).await
}

/// The same, with so many connections beside the reserve.
pub(super) async fn serve_within(
    places: &Shares,
    listener: TcpListener,
    router: Router,
    proxies: &[IpAddr],
    ending: watch::Receiver<bool>,
) -> std::io::Result<()> {
    // Each connection has a sender; when all have gone, so have the connections.
    let (open, mut closed) = mpsc::channel::<Never>(1);
    let server = Server { router, open, ending: ending.clone() };
    let mut reserve = Reserve::default();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = ended(ending.clone()) => break,
        };
        match accepted {
            Ok((stream, from)) => {
                let peer = PeerAddress(from.ip().to_canonical());
                match part(places, from.ip(), 1, proxies) {
                    Some(place) => drop(server.hold(stream, peer, Some(place))),
                    None => reserve.add(|| server.hold(stream, peer, None)),
                }
            }
            Err(error) => {
                tracing::debug!("a connection was not accepted: {error}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    drop((listener, server));
    // Nothing is ever sent.
    let _ = closed.recv().await;
    Ok(())
}

/// What those get who have their part of the connections. On a connection of the reserve: who want anything but health and metrics.
pub(super) fn too_many_connections(whose: &str) -> ApiError {
    let remedy = "close some, or use them for more requests";
    ApiError::new(429, "TooManyConnections", format!("{whose} has too many connections"), remedy).retry_after(5)
}

/// Whether a request may be answered on a connection of the reserve.
fn is_for_the_reserve<B>(request: &hyper::Request<B>) -> bool {
    matches!(*request.method(), Method::GET | Method::HEAD) && RESERVED_PATHS.contains(&request.uri().path())
}

/// A connection that is served.
struct ServedConnection {
    serving: JoinHandle<()>,
    /// Whether a head has come on it.
    asked: Arc<AtomicBool>,
}

/// Connections beyond every bound, for health and metrics alone, the oldest first. Half of them are for those that have not asked yet and half
/// for those that have, so that neither silent peers nor readers that read nothing keep a prober out: each is replaced by the newest.
#[derive(Default)]
struct Reserve {
    connections: VecDeque<ServedConnection>,
}

impl Reserve {
    /// One more, where each half has room for it: its oldest ends first.
    fn add(&mut self, serve: impl FnOnce() -> ServedConnection) {
        self.connections.retain(|connection| !connection.serving.is_finished());
        for has_asked in [false, true] {
            let is_of_half = |of: &ServedConnection| of.asked.load(Ordering::Relaxed) == has_asked;
            let half: Vec<usize> =
                self.connections.iter().enumerate().filter(|(_, of)| is_of_half(of)).map(|(at, _)| at).collect();
            if half.len() >= MOST_RESERVED / 2
                && let Some(replaced) = half.first().and_then(|oldest| self.connections.remove(*oldest))
            {
                replaced.serving.abort();
            }
        }
        self.connections.push_back(serve());
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

/// What all connections are served with.
struct Server {
    router: Router,
    open: mpsc::Sender<Never>,
    ending: watch::Receiver<bool>,
}

impl Server {
    /// Serves a connection until it ends; after `ending`, until what was asked on it is answered. `place`: its part of all connections. `None`:
    /// it is one of the reserve.
    fn hold(&self, stream: TcpStream, from: PeerAddress, place: Option<HeldShare>) -> ServedConnection {
        // Answers are small and waited for.
        let _ = stream.set_nodelay(true);
        let is_reserved = place.is_none();
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(if is_reserved { RESERVED_HEAD } else { HEAD });
        builder.max_headers(MOST_HEADERS).max_header_size(MOST_HEAD).keep_alive(!is_reserved);
        let asked = Arc::new(AtomicBool::new(false));
        let has_asked = Arc::clone(&asked);
        let whose = AskedConnection::default();
        let router = TowerToHyperService::new(self.router.clone());
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            has_asked.store(true, Ordering::Relaxed);
            request.extensions_mut().insert(from);
            request.extensions_mut().insert(whose.clone());
            let is_answered = !is_reserved || is_for_the_reserve(&request);
            let answer = is_answered.then(|| router.call(request));
            async move {
                match answer {
                    Some(answer) => answer.await,
                    None => Ok(too_many_connections("this address").into_response()),
                }
            }
        });
        let connection = builder.serve_connection(TokioIo::new(Shaped::new(stream)), service);
        let (open, ending) = (self.open.clone(), self.ending.clone());
        let serving = tokio::spawn(async move {
            let mut connection = std::pin::pin!(connection);
            let served = tokio::select! {
                served = connection.as_mut() => served,
                () = tokio::time::sleep(LONGEST_RESERVED), if is_reserved => Ok(()),
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
        ServedConnection { serving, asked }
    }
}

/// Connections at most, by what the system allows this process to open.
pub(super) fn most_connections() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let files = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let files = files.and_then(|rest| rest.split_whitespace().next()?.parse::<usize>().ok());
    files.map_or(MOST_CONNECTIONS, |files| files.saturating_sub(OTHER_FILES).clamp(64, MOST_CONNECTIONS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpStream};
    use std::sync::mpsc::{Receiver, channel};
    use std::time::Instant;
    use tokio::runtime::Runtime;
    use tokio::sync::Semaphore;

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

    /// A server of so many connections beside the reserve, with a job list, health and figures that come when the gate is opened.
    struct Small {
        address: SocketAddr,
        begun: Receiver<()>,
        gate: Arc<Semaphore>,
        _ending: watch::Sender<bool>,
        _runtime: Runtime,
    }

    impl Small {
        fn start(most: usize, proxies: Vec<IpAddr>) -> Small {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
            let address = listener.local_addr().unwrap();
            let (begin, begun) = channel();
            let gate = Arc::new(Semaphore::new(0));
            let opens = Arc::clone(&gate);
            let figures = move || {
                let (begin, opens) = (begin.clone(), Arc::clone(&opens));
                async move {
                    begin.send(()).unwrap();
                    let _open = opens.acquire().await.unwrap();
                    "figures\n"
                }
            };
            let router = Router::new()
                .route("/healthz", get(|| async { "ok\n" }))
                .route("/metrics", get(figures))
                .route("/v1/jobs", get(|| async { "[]\n" }));
            let (ending, ended) = watch::channel(false);
            runtime.spawn(async move { serve_within(&Shares::new(most), listener, router, &proxies, ended).await });
            Small { address, begun, gate, _ending: ending, _runtime: runtime }
        }

        /// A connection on which nothing is asked.
        fn connect(&self) -> TcpStream {
            let stream = TcpStream::connect(self.address).unwrap();
            // Longer than anything takes on a busy machine, and than all that the server waits for.
            stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            stream
        }

        /// A connection on which something is asked.
        fn ask(&self, line: &str) -> TcpStream {
            let mut stream = self.connect();
            stream.write_all(format!("{line} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").as_bytes()).unwrap();
            stream
        }
    }

    /// All that comes until the server closes the connection.
    fn answer(mut stream: TcpStream) -> String {
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    /// More connections than the server has, and than its reserve.
    const TOO_MANY: usize = 16 + 2 * MOST_RESERVED;

    #[test]
    fn health_is_answered_beside_silent_connections_that_take_all_others() {
        let local = IpAddr::from([127, 0, 0, 1]);
        for proxies in [vec![], vec![local]] {
            let small = Small::start(16, proxies);
            let silent: Vec<TcpStream> = (0..TOO_MANY).map(|_| small.connect()).collect();
            for line in ["GET /healthz", "HEAD /healthz"] {
                let text = answer(small.ask(line));
                let (head, body) = text.split_once("\r\n\r\n").unwrap();
                assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("connection: close"), "{line}: {text}");
                assert_eq!(body, if line.starts_with("GET") { "ok\n" } else { "" }, "{line}");
            }
            for line in ["GET /v1/jobs", "POST /healthz", "GET /healthz/", "GET /metrics2"] {
                let text = answer(small.ask(line));
                assert!(text.starts_with("HTTP/1.1 429 ") && text.contains("connection: close"), "{line}: {text}");
                assert!(text.contains("retry-after: 5") && text.contains("\"TooManyConnections\""), "{line}: {text}");
            }
            let begun = Instant::now();
            let last = silent.last().unwrap().read(&mut [0; 1]).unwrap_or_default();
            assert!(last == 0 && begun.elapsed() < HEAD, "a head on a connection of the reserve has 2 s");
        }
    }

    #[test]
    fn what_is_being_answered_on_the_reserve_is_replaced_by_no_silent_connection() {
        let small = Small::start(16, vec![]);
        let places: Vec<TcpStream> = (0..16).map(|_| small.connect()).collect();
        let scrape = small.ask("GET /metrics");
        small.begun.recv().unwrap();
        let silent: Vec<TcpStream> = (0..TOO_MANY).map(|_| small.connect()).collect();
        // It was accepted after all of those.
        assert!(answer(small.ask("GET /healthz")).ends_with("ok\n"));
        small.gate.add_permits(1);
        assert!(answer(scrape).ends_with("figures\n"));
        drop((places, silent));
    }

    #[test]
    fn answers_that_never_end_are_replaced_by_newer_ones() {
        let small = Small::start(16, vec![]);
        let places: Vec<TcpStream> = (0..16).map(|_| small.connect()).collect();
        let begun = Instant::now();
        let asked: Vec<TcpStream> = (0..TOO_MANY)
            .map(|_| {
                let stream = small.ask("GET /metrics");
                small.begun.recv().unwrap();
                stream
            })
            .collect();
        let oldest = asked.first().unwrap().read(&mut [0; 1]).unwrap_or_default();
        assert!(oldest == 0 && begun.elapsed() < LONGEST_RESERVED, "the oldest was closed before its time");
        assert!(answer(small.ask("GET /healthz")).ends_with("ok\n"));
        drop(places);
    }
}

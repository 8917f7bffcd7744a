//! A region on a port of 127.0.0.1, in a thread of its own: HTTP/1.1 with keep-alive, and the wall clock or a virtual one.
//!
//! ```text
//! connection -> request -> HttpFrontend::respond under a lock -> response, or the connection is closed without one
//! the clock moves, a test changes the region -> HttpFrontend::advance -> waiting receives are repeated
//! ```

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use forebay_kernel::units::{Span, Timestamp};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};

use crate::http_frontend::{EmptyReceive, HttpFrontend, HttpOutcome, HttpRequest, HttpResponse};
use crate::region::Region;

/// The largest request body. A call with user data and a thousand tags has far less.
const MAX_BODY: usize = 1 << 20;
/// The longest time between two checks of the wall clock.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The clock of a loopback EC2.
#[derive(Clone, Debug)]
pub enum LoopbackClock {
    /// The machine's clock.
    Wall,
    /// A clock that a test sets.
    Virtual(VirtualClock),
}

/// A clock that stands still until it is set. Clones share their time.
#[derive(Clone, Debug)]
pub struct VirtualClock(Arc<watch::Sender<Timestamp>>);

impl VirtualClock {
    /// A clock that stands at `now`.
    #[must_use]
    pub fn new(now: Timestamp) -> VirtualClock {
        VirtualClock(Arc::new(watch::Sender::new(now)))
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        *self.0.borrow()
    }

    /// Sets the time. An earlier time than the present one has no effect.
    pub fn set(&self, now: Timestamp) {
        self.0.send_if_modified(|at| std::mem::replace(at, now.max(*at)) < now);
    }
}

impl LoopbackClock {
    fn now(&self) -> Timestamp {
        match self {
            LoopbackClock::Wall => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
            }
            LoopbackClock::Virtual(clock) => clock.now(),
        }
    }
}

/// Why the loopback EC2 could not start.
#[derive(Debug, thiserror::Error)]
#[error("127.0.0.1:{port}: {source}; choose another port, or 0 for a free one")]
pub struct StartError {
    port: u16,
    source: io::Error,
}

/// The state that the server's thread and its owner share.
struct Shared {
    frontend: Mutex<HttpFrontend>,
    clock: LoopbackClock,
    /// Signals a new message or a change of the clock.
    changed: Notify,
    /// Signals the end of the server.
    stopping: Notify,
}

impl Shared {
    fn frontend(&self) -> MutexGuard<'_, HttpFrontend> {
        // A panic with the lock is one of a test, and leaves the region intact.
        self.frontend.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A region on a port. It stops when it is dropped.
pub struct Loopback {
    shared: Arc<Shared>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl Loopback {
    /// Listens on a free port.
    ///
    /// # Errors
    /// There is no free port.
    pub fn start(region: Region, clock: LoopbackClock) -> Result<Loopback, StartError> {
        Loopback::start_on(region, clock, 0)
    }

    /// Listens on a port. 0 means a free one.
    ///
    /// # Errors
    /// The port is in use.
    pub fn start_on(region: Region, clock: LoopbackClock, port: u16) -> Result<Loopback, StartError> {
        let failed = |source| StartError { port, source };
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let shared = Arc::new(Shared {
            frontend: Mutex::new(HttpFrontend::new(region)),
            clock,
            changed: Notify::new(),
            stopping: Notify::new(),
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let served = Arc::clone(&shared);
        let serve = move || runtime.block_on(serve(listener, served));
        let thread = std::thread::Builder::new().name("loopback-ec2".to_owned()).spawn(serve).map_err(failed)?;
        Ok(Loopback { shared, address, thread: Some(thread) })
    }

    /// `http://127.0.0.1:PORT`, the endpoint of EC2 and SQS. The metadata of an instance are below it, at `/i-ID`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Its port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The URL of the message queue.
    #[must_use]
    pub fn queue_url(&self) -> String {
        format!("{}/000000000000/interruptions", self.url())
    }

    /// Locks the region at the clock's time. No request is handled meanwhile.
    #[must_use]
    pub fn region(&self) -> RegionGuard<'_> {
        let mut frontend = self.shared.frontend();
        frontend.advance(self.shared.clock.now());
        RegionGuard { frontend, shared: &self.shared }
    }

    /// Puts a text into the queue, as EventBridge does.
    pub fn send(&self, body: &str) {
        let now = self.shared.clock.now();
        self.shared.frontend().send(now, body);
        self.shared.changed.notify_waiters();
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        self.shared.stopping.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed already.
            let _ = thread.join();
        }
    }
}

/// The locked region.
pub struct RegionGuard<'a> {
    frontend: MutexGuard<'a, HttpFrontend>,
    shared: &'a Shared,
}

impl Deref for RegionGuard<'_> {
    type Target = Region;

    fn deref(&self) -> &Region {
        self.frontend.region()
    }
}

impl DerefMut for RegionGuard<'_> {
    fn deref_mut(&mut self) -> &mut Region {
        self.frontend.region_mut()
    }
}

impl Drop for RegionGuard<'_> {
    fn drop(&mut self) {
        let now = self.frontend.region().now();
        self.frontend.advance(now);
        self.shared.changed.notify_waiters();
    }
}

/// Accepts connections until the server stops. Open ones are closed with the runtime.
async fn serve(listener: std::net::TcpListener, shared: Arc<Shared>) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    tokio::spawn(advance_with_clock(Arc::clone(&shared)));
    loop {
        tokio::select! {
            () = shared.stopping.notified() => return,
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    tokio::spawn(connection(stream, Arc::clone(&shared)));
                }
            }
        }
    }
}

/// Advances the region when a change is due, so that waiting receives get their messages.
async fn advance_with_clock(shared: Arc<Shared>) {
    let mut clock_changes = match &shared.clock {
        LoopbackClock::Wall => None,
        LoopbackClock::Virtual(clock) => Some(clock.0.subscribe()),
    };
    loop {
        let now = shared.clock.now();
        let (new_messages, next) = {
            let mut frontend = shared.frontend();
            (frontend.advance(now), frontend.region().next_event())
        };
        if new_messages > 0 || clock_changes.is_some() {
            shared.changed.notify_waiters();
        }
        match &mut clock_changes {
            // The sender lives as long as `shared`.
            Some(clock_changes) => {
                let _ = clock_changes.changed().await;
            }
            None => {
                let due = next.map_or(MAX_POLL_INTERVAL, |at| Duration::from_millis(at.since(now).0 + 1));
                tokio::time::sleep(due.min(MAX_POLL_INTERVAL)).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, shared: Arc<Shared>) {
    // Responses are small, so that waiting to fill a packet would take most of the time.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| handle(request, Arc::clone(&shared)));
    // Without a timer, idle connections stay open for the client's pool.
    let served = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    // An error is a client that disconnected, or a response that is to be lost.
    let _ = served.await;
}

/// The connection is closed without a response.
#[derive(Debug, thiserror::Error)]
#[error("the response is lost, as the options of the region say")]
struct Lost;

async fn handle(request: hyper::Request<Incoming>, shared: Arc<Shared>) -> Result<hyper::Response<Full<Bytes>>, Lost> {
    let (head, body) = request.into_parts();
    let Ok(body) = Limited::new(body, MAX_BODY).collect().await else {
        return Ok(to_response(HttpResponse::text(413, "the body is too large or incomplete")));
    };
    let body = body.to_bytes();
    let headers = head
        .headers
        .iter()
        .map(|(name, value)| (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned()));
    let headers: Vec<(String, String)> = headers.collect();
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
    let request = HttpRequest { method: head.method.as_str(), target, headers: &headers, body: &body };
    match respond(&request, &shared).await {
        Some(response) => Ok(to_response(response)),
        None => Err(Lost),
    }
}

/// Waits for the response. `None`: it is lost.
async fn respond(request: &HttpRequest<'_>, shared: &Shared) -> Option<HttpResponse> {
    let started = shared.clock.now();
    let mut waits: Option<(Timestamp, tokio::time::Instant)> = None;
    loop {
        let changed = shared.changed.notified();
        tokio::pin!(changed);
        // From here on no change is missed.
        changed.as_mut().enable();
        let now = shared.clock.now();
        let timed_out = waits.is_some_and(|(until, real)| now >= until || tokio::time::Instant::now() >= real);
        let empty = if timed_out { EmptyReceive::Respond } else { EmptyReceive::Wait };
        let outcome = shared.frontend().respond(now, request, empty);
        let span = match outcome {
            HttpOutcome::Response(response) => return Some(response),
            HttpOutcome::Dropped => return None,
            HttpOutcome::Wait(Span(ms)) => Duration::from_millis(ms),
        };
        // The wait ends by either clock, because a virtual clock may stand still.
        let wait = waits.get_or_insert_with(|| {
            (started + Span(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)), tokio::time::Instant::now() + span)
        });
        tokio::select! {
            () = changed => {}
            () = tokio::time::sleep_until(wait.1) => {}
        }
    }
}

fn to_response(response: HttpResponse) -> hyper::Response<Full<Bytes>> {
    let mut builder = hyper::Response::builder().status(response.status).header("content-type", response.content_type);
    for (name, value) in &response.headers {
        builder = builder.header(*name, value);
    }
    let built = builder.body(Full::new(Bytes::from(response.body)));
    // All statuses and headers are valid.
    built.unwrap_or_else(|_| hyper::Response::new(Full::new(Bytes::new())))
}

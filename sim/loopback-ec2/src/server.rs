//! The region on a port of 127.0.0.1: a thread of its own, HTTP/1.1 with keep-alive, the wall clock or one that a test sets.
//!
//! ```text
//! connection -> request -> Desk::answer under a lock -> response, or the connection closed without one
//! clock moves, a test's hands -> Desk::advance -> receives that wait are asked again
//! ```
//!
//! Never: a port that others than this machine can reach.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use forebay_engine::units::{Millis, Span};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};

use crate::desk::{Desk, Outcome, Request, Response};
use crate::region::Region;

/// The most that a request's body may have: a call with user data and a thousand tags has far less.
const MOST_BODY: usize = 1 << 20;
/// Between two looks at the wall clock while nothing is due.
const LOOK: Duration = Duration::from_secs(1);

/// What time it is.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The machine's.
    Wall,
    /// A test's.
    Virtual(VirtualClock),
}

/// A clock that stands until it is set. Clones show the same time.
#[derive(Clone, Debug)]
pub struct VirtualClock(Arc<watch::Sender<Millis>>);

impl VirtualClock {
    /// A clock that stands at `now`.
    #[must_use]
    pub fn new(now: Millis) -> VirtualClock {
        VirtualClock(Arc::new(watch::Sender::new(now)))
    }

    /// Its time.
    #[must_use]
    pub fn now(&self) -> Millis {
        *self.0.borrow()
    }

    /// Sets it forward; back it does not go.
    pub fn set(&self, now: Millis) {
        self.0.send_if_modified(|at| std::mem::replace(at, now.max(*at)) < now);
    }
}

impl Clock {
    fn now(&self) -> Millis {
        match self {
            Clock::Wall => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
            }
            Clock::Virtual(clock) => clock.now(),
        }
    }
}

/// Why the loopback EC2 does not listen.
#[derive(Debug, thiserror::Error)]
#[error("127.0.0.1:{port}: {source}; choose another port, or 0 for a free one")]
pub struct StartError {
    port: u16,
    source: io::Error,
}

/// What the server's thread and its owner share.
struct Shared {
    desk: Mutex<Desk>,
    clock: Clock,
    /// Something came into the queue, or the clock moved.
    stirred: Notify,
    /// The server ends.
    over: Notify,
}

impl Shared {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        // A panic while it was held is a test's own; the region is as it was.
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A region that listens. It ends when it is dropped.
pub struct Loopback {
    shared: Arc<Shared>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl Loopback {
    /// Listens on a free port.
    ///
    /// # Errors
    /// Where the machine gives no port.
    pub fn start(region: Region, clock: Clock) -> Result<Loopback, StartError> {
        Loopback::start_on(region, clock, 0)
    }

    /// Listens on this port; 0 is a free one.
    ///
    /// # Errors
    /// Where the port is taken.
    pub fn start_on(region: Region, clock: Clock, port: u16) -> Result<Loopback, StartError> {
        let failed = |source| StartError { port, source };
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let shared = Arc::new(Shared {
            desk: Mutex::new(Desk::new(region)),
            clock,
            stirred: Notify::new(),
            over: Notify::new(),
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let served = Arc::clone(&shared);
        let serve = move || runtime.block_on(serve(listener, served));
        let thread = std::thread::Builder::new().name("loopback-ec2".to_owned()).spawn(serve).map_err(failed)?;
        Ok(Loopback { shared, address, thread: Some(thread) })
    }

    /// `http://127.0.0.1:PORT`: the endpoint of EC2 and SQS. An instance's metadata are below it, at `/i-ID`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The queue that messages go to.
    #[must_use]
    pub fn queue_url(&self) -> String {
        format!("{}/000000000000/interruptions", self.url())
    }

    /// The region at the clock's time, for a look or for a test's hands; nothing is answered meanwhile.
    #[must_use]
    pub fn region(&self) -> RegionGuard<'_> {
        let mut desk = self.shared.desk();
        desk.advance(self.shared.clock.now());
        RegionGuard { desk, shared: &self.shared }
    }

    /// Puts any text into the queue, as if EventBridge had.
    pub fn send(&self, body: &str) {
        let now = self.shared.clock.now();
        self.shared.desk().send(now, body);
        self.shared.stirred.notify_waiters();
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        self.shared.over.notify_one();
        if let Some(thread) = self.thread.take() {
            // Its panic has been printed where it happened.
            let _ = thread.join();
        }
    }
}

/// The region, held.
pub struct RegionGuard<'a> {
    desk: MutexGuard<'a, Desk>,
    shared: &'a Shared,
}

impl Deref for RegionGuard<'_> {
    type Target = Region;

    fn deref(&self) -> &Region {
        self.desk.region()
    }
}

impl DerefMut for RegionGuard<'_> {
    fn deref_mut(&mut self) -> &mut Region {
        self.desk.region_mut()
    }
}

impl Drop for RegionGuard<'_> {
    fn drop(&mut self) {
        let now = self.desk.region().now();
        self.desk.advance(now);
        self.shared.stirred.notify_waiters();
    }
}

/// Accepts until it is over; what is open then is closed with the runtime.
async fn serve(listener: std::net::TcpListener, shared: Arc<Shared>) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    tokio::spawn(keep_time(Arc::clone(&shared)));
    loop {
        tokio::select! {
            () = shared.over.notified() => return,
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    tokio::spawn(connection(stream, Arc::clone(&shared)));
                }
            }
        }
    }
}

/// Lets what is due happen when it is, so that a receive that waits hears of it.
async fn keep_time(shared: Arc<Shared>) {
    let mut moves = match &shared.clock {
        Clock::Wall => None,
        Clock::Virtual(clock) => Some(clock.0.subscribe()),
    };
    loop {
        let now = shared.clock.now();
        let (came, next) = {
            let mut desk = shared.desk();
            (desk.advance(now), desk.region().next_event())
        };
        if came > 0 || moves.is_some() {
            shared.stirred.notify_waiters();
        }
        match &mut moves {
            // The sender lives as long as `shared`.
            Some(moves) => {
                let _ = moves.changed().await;
            }
            None => {
                let due = next.map_or(LOOK, |at| Duration::from_millis(at.since(now).0 + 1));
                tokio::time::sleep(due.min(LOOK)).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, shared: Arc<Shared>) {
    // Answers are small, and waiting to fill a packet would cost more than all the rest.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| respond(request, Arc::clone(&shared)));
    // Without a timer no connection is closed for being idle: a client's pool never finds one gone.
    let served = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    // An error is a client that left, or an answer that was to be lost.
    let _ = served.await;
}

/// The connection is closed without an answer.
#[derive(Debug, thiserror::Error)]
#[error("the answer is lost, as the region's options ask for")]
struct Lost;

async fn respond(request: hyper::Request<Incoming>, shared: Arc<Shared>) -> Result<hyper::Response<Full<Bytes>>, Lost> {
    let (head, body) = request.into_parts();
    let Ok(body) = Limited::new(body, MOST_BODY).collect().await else {
        return Ok(written(Response::text(413, "the body is too large, or did not come whole")));
    };
    let body = body.to_bytes();
    let headers = head
        .headers
        .iter()
        .map(|(name, value)| (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned()));
    let headers: Vec<(String, String)> = headers.collect();
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
    let request = Request { method: head.method.as_str(), target, headers: &headers, body: &body };
    match answer(&request, &shared).await {
        Some(response) => Ok(written(response)),
        None => Err(Lost),
    }
}

/// The answer, once there is one: a receive may wait. `None`: none is to be had.
async fn answer(request: &Request<'_>, shared: &Shared) -> Option<Response> {
    let begun = shared.clock.now();
    let mut waits: Option<(Millis, tokio::time::Instant)> = None;
    loop {
        let stirred = shared.stirred.notified();
        tokio::pin!(stirred);
        // From here on nothing that comes is missed.
        stirred.as_mut().enable();
        let now = shared.clock.now();
        let over = waits.is_some_and(|(until, real)| now >= until || tokio::time::Instant::now() >= real);
        let outcome = shared.desk().answer(now, request, !over);
        let span = match outcome {
            Outcome::Answer(response) => return Some(response),
            Outcome::Dropped => return None,
            Outcome::Wait(Span(ms)) => Duration::from_millis(ms),
        };
        // A clock that stands must not hold a client for ever: the wait ends by either clock.
        let wait = waits.get_or_insert_with(|| {
            (begun + Span(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)), tokio::time::Instant::now() + span)
        });
        tokio::select! {
            () = stirred => {}
            () = tokio::time::sleep_until(wait.1) => {}
        }
    }
}

fn written(response: Response) -> hyper::Response<Full<Bytes>> {
    let mut builder = hyper::Response::builder().status(response.status).header("content-type", response.content_type);
    for (name, value) in &response.headers {
        builder = builder.header(*name, value);
    }
    let whole = builder.body(Full::new(Bytes::from(response.body)));
    // Every status and header above is one of ours, and well formed.
    whole.unwrap_or_else(|_| hyper::Response::new(Full::new(Bytes::new())))
}

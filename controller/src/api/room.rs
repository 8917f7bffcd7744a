//! How much is served at once: connections, bytes of bodies, streams. What does not fit is told to come back, or waits to connect.
//!
//! Never: a bound that a client can lift.

use super::MOST_BYTES;
use super::error::ApiError;
use super::waiters::MOST_WAITERS;
use axum::serve::Listener;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Connections at once: whoever waits for a job, and a thousand others. The next one waits in the system's own queue.
const MOST_CONNECTIONS: usize = MOST_WAITERS + 1_024;

/// Of the files that this process may open, those that are not for connections: the journal's, the statuses', those of streams.
const OTHER_FILES: usize = 128 + MOST_STREAMS;

/// Bodies at once, in KiB. As JSON they take up to ten times as much: 640 MiB.
const MOST_BODIES_KIB: usize = 64 * 1024;

/// Streams of statuses at once. Each has a task, a channel of 256 lines and maybe an open file.
const MOST_STREAMS: usize = 256;

/// What is left.
#[derive(Clone)]
pub(super) struct Room {
    bodies: Arc<Semaphore>,
    streams: Arc<Semaphore>,
}

impl Default for Room {
    fn default() -> Room {
        Room { bodies: Arc::new(Semaphore::new(MOST_BODIES_KIB)), streams: Arc::new(Semaphore::new(MOST_STREAMS)) }
    }
}

impl Room {
    /// Room for a body. `said`: its length by its header; without one it counts as the longest.
    ///
    /// # Errors
    /// `Busy` (429) when the bodies of other requests take all of the memory that is set aside.
    pub fn body(&self, said: Option<usize>) -> Result<OwnedSemaphorePermit, ApiError> {
        let kib = said.unwrap_or(MOST_BYTES).min(MOST_BYTES).div_ceil(1024).max(1);
        let kib = u32::try_from(kib).unwrap_or(u32::MAX);
        let taken = Arc::clone(&self.bodies).try_acquire_many_owned(kib);
        taken.map_err(|_| busy("too many requests with bodies at once", 1))
    }

    /// Room for a stream.
    ///
    /// # Errors
    /// `Busy` (429) when the most streams are open already.
    pub fn stream(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        let taken = Arc::clone(&self.streams).try_acquire_owned();
        taken.map_err(|_| busy(&format!("{MOST_STREAMS} streams of statuses are open already"), 5))
    }
}

fn busy(message: &str, seconds: u64) -> ApiError {
    ApiError::new(429, "Busy", message, "send it again after the time in Retry-After").retry_after(seconds)
}

/// Connections at most, by what the system allows this process to open.
fn most_connections() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let files = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let files = files.and_then(|rest| rest.split_whitespace().next()?.parse::<usize>().ok());
    files.map_or(MOST_CONNECTIONS, |files| files.saturating_sub(OTHER_FILES).clamp(64, MOST_CONNECTIONS))
}

/// A listener that holds so many connections at most.
pub(super) struct Bounded {
    listener: TcpListener,
    room: Arc<Semaphore>,
}

impl Bounded {
    pub fn new(listener: TcpListener) -> Bounded {
        Bounded { listener, room: Arc::new(Semaphore::new(most_connections())) }
    }
}

impl Listener for Bounded {
    type Io = Held;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Held, SocketAddr) {
        // It is never closed, so there is always a place in the end.
        let place = Arc::clone(&self.room).acquire_owned().await.ok();
        let (io, from) = Listener::accept(&mut self.listener).await;
        (Held { io, _place: place }, from)
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection and its place.
pub(super) struct Held {
    io: TcpStream,
    _place: Option<OwnedSemaphorePermit>,
}

impl AsyncRead for Held {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, into)
    }
}

impl AsyncWrite for Held {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, from)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, from)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_and_streams_are_bounded_and_make_room_when_they_end() {
        let room = Room::default();
        // Without a length, and with one that is too long, a body counts as the longest.
        let mut bodies: Vec<_> =
            (0..16).map(|n| room.body((n % 2 == 0).then_some(usize::MAX)).expect("room")).collect();
        assert!(room.body(Some(1)).is_err());
        bodies.pop();
        let small: Vec<_> = (0..4096).map(|_| room.body(Some(800)).expect("room")).collect();
        assert!(room.body(Some(0)).is_err());
        drop(small);
        assert!(room.body(None).is_ok());
        let streams: Vec<_> = (0..MOST_STREAMS).map(|_| room.stream().expect("room")).collect();
        assert!(room.stream().is_err());
        drop(streams);
        assert!(room.stream().is_ok());
    }
}

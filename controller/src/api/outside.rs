//! What a connection is to its server: it takes what is written within a while, or is given up. And the shape of errors that no handler
//! answers: a request that cannot be read, or whose head is too long, gets an empty answer of the HTTP library. It leaves here with the
//! same body as every other error.
//!
//! Never: touches an answer of a handler: those with an error have a body and its type.

use super::error::ErrorBody;
use serde_json::json;
use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// A client that takes nothing of its answer for so long is given up.
const PATIENCE: Duration = Duration::from_secs(60);

/// The longest head of such an answer.
const MOST_BARE: usize = 512;

/// A connection.
pub(super) struct Shaped {
    io: TcpStream,
    /// Of an answer in another shape, what is not written yet.
    left: Vec<u8>,
    /// Since nothing could be written: when it is given up.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl Shaped {
    pub fn new(io: TcpStream) -> Shaped {
        Shaped { io, left: Vec::new(), stalled: None }
    }

    /// Writes, and gives up where nothing can be written for too long.
    fn poll_io(&mut self, cx: &mut Context<'_>, from: Option<&[u8]>) -> Poll<std::io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, from.unwrap_or(&self.left));
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(PATIENCE)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(std::io::Error::new(std::io::ErrorKind::TimedOut, "its client does not read")))
    }

    fn poll_left(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        while !self.left.is_empty() {
            let written = ready!(self.poll_io(cx, None))?;
            if written == 0 {
                return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into()));
            }
            self.left.drain(..written);
        }
        Poll::Ready(Ok(()))
    }
}

/// The answer in the shape of all errors, if these bytes are the library's own.
fn shaped(bytes: &[u8]) -> Option<Vec<u8>> {
    let text = (bytes.len() <= MOST_BARE).then(|| std::str::from_utf8(bytes).ok()).flatten()?;
    let (status, rest) =
        text.strip_prefix("HTTP/1.1 ").or_else(|| text.strip_prefix("HTTP/1.0 "))?.split_once("\r\n")?;
    let is_bare =
        rest.contains("content-length: 0\r\n") && !rest.contains("content-type") && rest.ends_with("\r\n\r\n");
    let number: u16 = status.get(..3)?.parse().ok()?;
    if !is_bare || !(400..500).contains(&number) {
        return None;
    }
    let (code, message, remedy) = match number {
        414 => ("AddressTooLong", "the address is too long", "ask for less at once; see docs/API.md"),
        431 => {
            ("HeadTooLong", "the head of the request is too long", "send fewer and shorter headers; see docs/API.md")
        }
        _ => ("Unreadable", "this is no request of HTTP/1.1", "send HTTP/1.1; for TLS, put a proxy before this port"),
    };
    let error = ErrorBody { code: code.to_owned(), message: message.to_owned(), remedy: remedy.to_owned() };
    let body = json!({ "error": error }).to_string();
    let head = rest.replace("content-length: 0\r\n", "");
    let head = head.trim_end_matches("\r\n");
    let head = if head.is_empty() { String::new() } else { format!("{head}\r\n") };
    let length = body.len();
    Some(
        format!("HTTP/1.1 {status}\r\n{head}content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}")
            .into_bytes(),
    )
}

impl AsyncRead for Shaped {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, into)
    }
}

impl AsyncWrite for Shaped {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<std::io::Result<usize>> {
        ready!(self.poll_left(cx))?;
        let Some(text) = shaped(from) else { return self.poll_io(cx, Some(from)) };
        self.left = text;
        // What cannot be written now is written before anything else is.
        if let Poll::Ready(Err(error)) = self.poll_left(cx) {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(from.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        ready!(self.poll_left(cx))?;
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        ready!(self.poll_left(cx))?;
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_refusal_has_a_body_and_others_stay() {
        let bare = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\ndate: x\r\n\r\n";
        let text = String::from_utf8(shaped(bare).unwrap()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(
            head.starts_with("HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ndate: x\r\n"),
            "{head}"
        );
        assert!(head.ends_with(&format!("content-length: {}", body.len())), "{head}");
        let error: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(error["error"]["code"], "HeadTooLong");
        for other in [
            &b"HTTP/1.1 404 Not Found\r\ncontent-type: application/json\r\ncontent-length: 0\r\n\r\n"[..],
            b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\nmore",
            b"\xff",
        ] {
            assert!(shaped(other).is_none());
        }
    }
}

//! Answers on their way to who asked: each holds room for its bytes until it is read, and leaves in pieces.
//!
//! ```text
//! handler -> room for its bytes? -> pieces of 64 KiB, as the connection takes them -> the room is free again
//!                 '-- no: 429
//! ```
//!
//! A handler that makes a large answer takes the room before it begins; all others are counted when they are made, by the address that asked.
//! Never: more of the answers in memory than there is room for, because nobody reads them.

use super::Api;
use super::listen::PeerAddress;
use crate::driver::HeldShare;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hyper::body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// A shorter answer is not counted: there are at most as many as connections.
const SMALL: u64 = 8 * 1024;

/// A piece of an answer.
const PIECE: usize = 64 * 1024;

/// The room that a handler took for its answer. Goes with the answer as an extension.
#[derive(Clone)]
pub(super) struct HeldAnswer {
    _share: Arc<HeldShare>,
}

impl HeldAnswer {
    pub fn new(share: HeldShare) -> HeldAnswer {
        HeldAnswer { _share: Arc::new(share) }
    }
}

/// Sees to it that each answer has room.
pub(super) async fn bounded(State(api): State<Api>, request: Request, next: Next) -> Response {
    let from = request.extensions().get::<PeerAddress>().map(|from| from.0);
    let mut response = next.run(request).await;
    let held = response.extensions_mut().remove::<HeldAnswer>();
    // A stream has no length: it is made as it is read.
    let Some(length) = response.body().size_hint().exact().filter(|length| *length > SMALL) else { return response };
    let held = match (held, from) {
        (Some(held), _) => Some(held),
        (None, Some(from)) => match api.room.answer_to(from, length, &api.proxies) {
            Ok(held) => Some(held),
            Err(refused) => return refused.into_response(),
        },
        (None, None) => None,
    };
    response.map(|inner| Body::new(Pieces { inner, rest: Bytes::new(), held }))
}

/// A body in pieces.
struct Pieces {
    inner: Body,
    rest: Bytes,
    held: Option<HeldAnswer>,
}

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        while self.rest.is_empty() {
            match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                ended => {
                    self.held = None;
                    return Poll::Ready(ended);
                }
            }
        }
        let most = self.rest.len().min(PIECE);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(most)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.len() as u64;
        let inner = self.inner.size_hint();
        match inner.exact() {
            Some(exact) => SizeHint::with_exact(exact + rest),
            None => inner,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Shares;

    #[tokio::test]
    async fn an_answer_leaves_in_pieces_and_gives_its_room_back_at_its_end() {
        let shares = Shares::new(1_600);
        let held = shares.take(&Arc::from("a"), 300).map(HeldAnswer::new);
        let text = vec![b'x'; 2 * PIECE + 10];
        let mut pieces = Pieces { inner: Body::from(text.clone()), rest: Bytes::new(), held };
        assert_eq!(pieces.size_hint().exact(), Some(text.len() as u64));
        let mut lengths = Vec::new();
        while let Some(frame) =
            std::future::poll_fn(|cx| Pin::new(&mut pieces).poll_frame(cx)).await.transpose().expect("no error")
        {
            assert_eq!(shares.held(), 300);
            lengths.push(frame.into_data().map(|data| data.len()).unwrap_or_default());
        }
        assert_eq!(lengths, [PIECE, PIECE, 10]);
        assert!(pieces.is_end_stream());
        assert_eq!(shares.held(), 0);
    }
}

//! `GET /v1/state`: the whole state as a document, written as it is read by whoever asked.
//!
//! ```text
//! driver's thread: freeze (a pointer for each 64 jobs) -> blocking thread: lookups, then text -> 64 KiB at a time, 4 on their way
//! ```
//!
//! Never: more of the text in memory than that; for a reader who does not read, longer than a while.

use super::Api;
use super::auth::Operator;
use super::error::ApiError;
use crate::document::state::StreamedState;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use forebay_engine::engine::Engine;
use forebay_kernel::machine::StateMachine;
use forebay_kernel::state::freeze::FrozenState;
use std::io::{self, Write};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

/// A piece of the text.
const PIECE: usize = 64 * 1024;
/// Pieces on their way to the reader.
const ON_THE_WAY: usize = 4;
/// A reader that takes no piece for so long is given up: others wait for their export.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) async fn state(State(api): State<Api>, Operator(who): Operator) -> Result<Response, ApiError> {
    let turn = api.room.export()?;
    let frozen = api.ask(&who, |engine, _| engine.state().freeze()).await?;
    let (to, pieces) = mpsc::channel(ON_THE_WAY);
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || {
        let mut pieces = Pieces { to, runtime, kept: Vec::with_capacity(PIECE) };
        if let Err(error) = written(frozen, &mut pieces) {
            tracing::warn!("an export of the state ends before its end: {error}");
            // The reader sees that it is cut off.
            let _ = pieces.to.try_send(Err(error));
        }
        drop(turn);
    });
    let body = Body::from_stream(ReceiverStream::new(pieces));
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

fn written(frozen: FrozenState, to: &mut Pieces) -> io::Result<()> {
    let engine = Engine::recovered(StateMachine::from_state(frozen.into_state()));
    serde_json::to_writer(&mut *to, &StreamedState::new(&engine).map_err(io::Error::other)?)?;
    to.flush()
}

/// The way to the reader.
struct Pieces {
    to: mpsc::Sender<io::Result<Bytes>>,
    runtime: Handle,
    kept: Vec<u8>,
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.kept.extend_from_slice(bytes);
        if self.kept.len() >= PIECE {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let piece = Bytes::from(std::mem::replace(&mut self.kept, Vec::with_capacity(PIECE)));
        let sent = self.runtime.block_on(tokio::time::timeout(PATIENCE, self.to.send(Ok(piece))));
        sent.map_err(|_| io::Error::other("its reader does not read"))?
            .map_err(|_| io::Error::other("its reader has gone"))
    }
}

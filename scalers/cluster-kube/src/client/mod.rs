//! The IO half: makes the machine's calls against an API server and turns responses and watches into the machine's inputs.
//!
//! ```text
//! KubeCall -> request -> kube (TLS, credentials) -> API server -> response -> KubeResponse     one call, one budget
//!                                                       '------> lines ----> WatchEvent        until it ends, one budget a silence
//! ```
//!
//! A call is made once: whether it is made again is the machine's decision. Nothing that is secret is logged or is in an error.
//! Never: a cache, a retry, a decision, the client's own types in an answer.

mod claims;
mod connect;
mod finalizers;
mod logs;
mod probe;
mod request;
mod response;
mod review;
mod runner;
pub mod task;
mod watch;

pub use connect::{ConnectError, CredentialSource};
pub use finalizers::FinalizerMode;
pub use logs::{LogTail, MOST_LINES, MOST_LOG, WorkerPod};
pub use probe::Permission;
pub use review::ReviewedToken;
pub use runner::{CallRunner, RunnerEvent};
pub use task::MachineCommand;

use crate::api_call::{KubeCall, KubeCallId, KubeResponse, WatchEvent};
use crate::kube_error::KubeError;
use kube::client::Body;
use std::time::Duration;
use tokio::sync::mpsc::Sender;
use tokio::time::timeout;

/// The longest time that one call takes, from the first byte sent to the last one read. The API server itself ends a request after 60 s;
/// past half of that, waiting for it only keeps others from being made.
const CALL_BUDGET: Duration = Duration::from_secs(30);
/// The same for a page of a list, which is up to 64 MiB.
const LIST_BUDGET: Duration = Duration::from_secs(60);

/// A connection to one cluster. Its copies share it.
#[derive(Clone)]
pub struct KubeClient {
    client: kube::Client,
}

impl KubeClient {
    /// Reads the credentials and prepares a connection. Nothing is sent yet.
    ///
    /// # Errors
    /// There are no credentials, or they cannot be read.
    pub async fn connect(source: &CredentialSource) -> Result<KubeClient, ConnectError> {
        Ok(KubeClient { client: connect::client(source).await? })
    }

    /// Makes one call. An error is a response as well. A watch is opened by [`KubeClient::watch`].
    pub async fn execute(&self, call: &KubeCall) -> KubeResponse {
        let budget = if matches!(call, KubeCall::List { .. }) { LIST_BUDGET } else { CALL_BUDGET };
        match timeout(budget, self.exchange(call)).await {
            Ok(response) => response.unwrap_or_else(KubeResponse::Refused),
            Err(_) => {
                let why = format!("no complete response within {} s", budget.as_secs());
                KubeResponse::Refused(KubeError::no_response(&why))
            }
        }
    }

    /// The `Date` of the API server's answer to a question that everybody may ask. `None`: there is none, or it does not say.
    pub async fn date(&self) -> Option<String> {
        let request = http::Request::get("/version").body(Body::empty()).ok()?;
        let answer = timeout(CALL_BUDGET, self.client.send(request)).await.ok()?.ok()?;
        Some(answer.headers().get(http::header::DATE)?.to_str().ok()?.to_owned())
    }

    async fn exchange(&self, call: &KubeCall) -> Result<KubeResponse, KubeError> {
        let answer = self.client.send(request::of(call)?.map(Body::from)).await.map_err(|e| response::unsent(&e))?;
        response::read(call, answer).await
    }

    /// Opens a watch and sends what it says, in order, with the number of its call, until it ends; how it ended comes last. What is sent waits
    /// where the receiver is slow, and the API server with it. Returns at once when there is no receiver any more.
    pub async fn watch(&self, id: KubeCallId, call: &KubeCall, events: &Sender<WatchEvent>) {
        let last = watch::run(&self.client, id, call, events).await;
        // Without a receiver nobody wants to know.
        let _ = events.send(WatchEvent { watch: id, change: last }).await;
    }
}

impl std::fmt::Debug for KubeClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KubeClient").finish_non_exhaustive()
    }
}

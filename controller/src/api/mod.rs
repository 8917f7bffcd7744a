//! The HTTP API and its small client: events in, jobs, nodes, queues, state, statuses and metrics out, and pages for people.
//!
//! ```text
//! request -> guard (host, origin) -> callers (whose) -> auth (token, role) -> handler -> driver::DriverHandle -> answer
//!                                                                                |          (for events: after they are durable)
//!                                                                 visible: what this caller may act on
//! ```
//!
//! Never: keeps state of its own beyond who waits for which job, answers before a write is durable, or buffers without bound.

mod agent;
mod answers;
mod archive;
mod audit;
mod auth;
mod body;
pub mod brakes;
mod callers;
mod checked;
pub mod client;
pub mod confirm_dead;
mod cost;
pub mod error;
pub mod events;
mod export;
mod find;
mod guard;
pub(crate) mod history;
mod job_events;
pub mod jobs;
mod ledger;
mod listen;
pub mod listing;
pub mod logs;
mod metrics;
mod outside;
mod pages;
pub mod policy;
pub mod reads;
mod room;
pub mod rows;
pub mod starts;
mod status;
#[cfg(test)]
mod tests;
mod visible;
mod waiters;
mod whole;

use crate::activity::ActivityBook;
use crate::audit_log::AuditLog;
use crate::checkpoints::Checkpoints;
use crate::cluster::{AgentTokens, ClusterLogs, ClusterNotes};
use crate::config::tokens::{Tokens, Who};
use crate::cost::SpendAccounts;
use crate::driver::{DriverHandle, QueryContext, Running};
use crate::journal::ArchiveReader;
use crate::metrics::commits::CommitCounts;
use crate::metrics::statuses::StatusCounts;
use crate::policy::PolicyControl;
use crate::sources::registry::SourceRegistry;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use error::ApiError;
use forebay_engine::engine::Engine;
use forebay_wire::intake::Router as Routes;
use forebay_wire::intake::{AttemptKeys, NoRoutes};
use ledger::LedgerLimits;
use room::Room;
use starts::Starts;
use std::net::{IpAddr, SocketAddr};
use std::ops::Deref;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tokio::sync::watch;
use waiters::Waiters;

/// The largest body: some ten thousand submissions of 400 bytes.
pub const MOST_BYTES: usize = 4 * 1024 * 1024;

/// What every handler works on.
#[derive(Clone)]
struct Api {
    options: Arc<ApiOptions>,
    /// Who waits for which job.
    pub waiters: Arc<Waiters>,
    /// Everybody, where nobody needs a token.
    pub local: Arc<Who>,
    /// How much is served at once.
    pub room: Room,
    /// How much one read of the ledger may take.
    pub ledger: LedgerLimits,
    /// What statuses have said, as it is counted.
    pub status_counts: Arc<StatusCounts>,
    /// What was spent by whom, for metrics.
    pub accounts: Arc<Mutex<SpendAccounts>>,
    /// When waiting jobs are expected to start.
    pub starts: Arc<Starts>,
    /// What agents have observed of workers.
    pub activity: Arc<ActivityBook>,
    /// Becomes true when the server is to end, so that open streams and waits end too.
    pub ending: watch::Receiver<bool>,
}

impl Api {
    /// Asks the engine, in the turn of whoever asks.
    async fn ask<R: Send + 'static>(
        &self,
        who: &Who,
        question: impl FnOnce(&Engine, &QueryContext) -> R + Send + 'static,
    ) -> Result<R, ApiError> {
        // It is never closed.
        let _turn = who.questions.acquire().await;
        Ok(self.handle.query_as(&who.name, question).await?)
    }
}

impl Deref for Api {
    type Target = ApiOptions;

    fn deref(&self) -> &ApiOptions {
        &self.options
    }
}

/// What is served.
pub struct ApiOptions {
    /// The driver.
    pub handle: DriverHandle,
    /// The policy's routes.
    pub routes: Arc<dyn Routes>,
    /// The key of attempt tokens. `None`: reports of runs are not taken here.
    pub key: Option<AttemptKeys>,
    /// Who may call. None: everybody, who is local then.
    pub tokens: Tokens,
    /// Proxies that many callers come through: their connections are not counted as one peer's, but as of whoever asks on them.
    pub proxies: Vec<IpAddr>,
    /// Sources and sinks.
    pub sources: SourceRegistry,
    /// Looks at checkpoints that are reported.
    pub checkpoints: Checkpoints,
    /// Finished jobs that have left the state.
    pub archive: Arc<ArchiveReader>,
    /// What has become durable in the journal.
    pub commits: Arc<CommitCounts>,
    /// What the cluster says of jobs.
    pub notes: ClusterNotes,
    /// Logs of workers. `None`: jobs run in the simulated cluster, where nothing prints.
    pub logs: Option<ClusterLogs>,
    /// Agents by their service account. `None`: they are known by the tokens of the configuration alone.
    pub agents: Option<AgentTokens>,
    /// Where acts by hand and refusals are written. `None`: nowhere.
    pub audit: Option<AuditLog>,
    /// Changes the policy. `None`: it stays as it is.
    pub policy: Option<PolicyControl>,
}

impl ApiOptions {
    /// What a running driver has, for callers of this machine, with nothing configured.
    #[must_use]
    pub fn of(running: &Running) -> ApiOptions {
        ApiOptions {
            handle: running.handle.clone(),
            routes: Arc::new(NoRoutes),
            key: None,
            tokens: Tokens::default(),
            proxies: Vec::new(),
            sources: SourceRegistry::default(),
            checkpoints: Checkpoints::trusting(&running.handle),
            archive: Arc::clone(&running.archive),
            commits: Arc::clone(&running.commits),
            notes: ClusterNotes::default(),
            logs: None,
            agents: None,
            audit: None,
            policy: None,
        }
    }
}

/// Serves until `ending` becomes true; open streams end then.
///
/// # Errors
/// When the listener has no address, or accepting connections fails for good.
pub async fn serve(listener: TcpListener, serving: ApiOptions, ending: watch::Receiver<bool>) -> std::io::Result<()> {
    let address = listener.local_addr()?;
    let waiters = Arc::new(Waiters::default());
    let woken = tokio::spawn(waiters::wake(Arc::clone(&waiters), serving.handle.clone()));
    let status_counts = Arc::new(StatusCounts::default());
    let counted = tokio::spawn(Arc::clone(&status_counts).follow(serving.handle.clone()));
    let starts = Arc::new(Starts::default());
    let sampled = tokio::spawn(Arc::clone(&starts).follow(serving.handle.clone()));
    let api = Api {
        options: Arc::new(serving),
        waiters,
        local: Arc::new(Who::local()),
        room: Room::default(),
        ledger: LedgerLimits::default(),
        status_counts,
        accounts: Arc::default(),
        starts,
        activity: Arc::default(),
        ending: ending.clone(),
    };
    let proxies = api.proxies.clone();
    let served = listen::serve(listener, router(api, address), &proxies, ending).await;
    woken.abort();
    counted.abort();
    sampled.abort();
    served
}

async fn ended(mut ending: watch::Receiver<bool>) {
    // A sender that is gone says the same as a sender that says so.
    let _ = ending.wait_for(|end| *end).await;
}

fn router(api: Api, address: SocketAddr) -> Router {
    let open = api.tokens.is_empty();
    Router::new()
        .route("/", get(pages::now::page))
        .route("/money", get(pages::money::page))
        .route("/assets/{name}", get(pages::asset))
        .route("/v1/events", post(events::post))
        .route("/v1/jobs", get(listing::list))
        .route("/v1/jobs/{id}", get(jobs::one))
        .route("/v1/jobs/{id}/cancel", post(jobs::cancel))
        .route("/v1/jobs/{id}/confirm-dead", post(confirm_dead::confirm))
        .route("/v1/jobs/{id}/why", get(jobs::why))
        .route("/v1/jobs/{id}/cost", get(cost::of_job))
        .route("/v1/jobs/{id}/logs", get(logs::logs))
        .route("/v1/jobs/{id}/events", get(job_events::stream))
        .route("/v1/queues", get(reads::queues))
        .route("/v1/nodes", get(reads::nodes))
        .route("/v1/sources", get(reads::sources))
        .route("/v1/cost", get(cost::cost))
        .route("/v1/cost/focus", get(cost::focus))
        .route("/v1/policy", get(policy::policy))
        .route("/v1/policy/history", get(policy::past))
        .route("/v1/policy/set", post(policy::set))
        .route("/v1/brakes", get(brakes::list))
        .route("/v1/brakes/set", post(brakes::set))
        .route("/v1/brakes/release", post(brakes::release))
        .route("/v1/state", get(export::state))
        .route("/v1/summary", get(reads::summary))
        .route("/v1/status", get(status::stream))
        .route("/v1/agent/hello", post(agent::hello))
        .route("/v1/agent/notices", post(agent::notice))
        .route("/v1/agent/activity", post(agent::activity))
        .route("/metrics", get(metrics::metrics))
        .route("/healthz", get(reads::healthz))
        .route("/readyz", get(reads::readyz))
        .fallback(nowhere)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(MOST_BYTES))
        .layer(axum::middleware::from_fn_with_state(api.clone(), answers::bounded))
        .layer(axum::middleware::from_fn_with_state(api.clone(), audit::watch))
        .layer(axum::middleware::from_fn(whole::posts))
        .layer(axum::middleware::from_fn_with_state(api.clone(), callers::bounded))
        .layer(axum::middleware::from_fn(move |request, next| guard::check(address, open, request, next)))
        .with_state(api)
}

async fn nowhere() -> ApiError {
    ApiError::not_found("NoSuchPath", "there is nothing at this path", "see docs/API.md for what there is")
}

async fn wrong_method() -> ApiError {
    ApiError::new(405, "WrongMethod", "this path does not take this method", "see docs/API.md for which it takes")
}

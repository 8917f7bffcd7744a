//! `GET /metrics`: figures for monitoring, as text, asked of the engine with one question.
//!
//! Never, for a mere reader: a queue that takes no jobs from it, a job that it may not see, and what `/v1/sources` and other tenants'
//! counts would tell. The roles `metrics` and `operate` see all.

use super::Api;
use super::auth::Scraper;
use super::cost::TRIES;
use super::error::ApiError;
use super::ledger::LedgerLimits;
use super::{archive, visible};
use crate::config::tokens::Who;
use crate::cost::{AccountsRead, CostBasis};
use crate::driver::QueryContext;
use crate::metrics::family::Family;
use crate::metrics::series::Audience;
use crate::metrics::text::MetricsText;
use crate::metrics::{engine, outside, spend};
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use forebay_engine::engine::Engine;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// How long the ledger is read for one scrape at most.
const MOST_SCRAPE_TIME: Duration = Duration::from_secs(1);

pub(super) async fn metrics(
    State(api): State<Api>,
    Scraper { who, all }: Scraper,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let (statuses, activity) = (Arc::clone(&api.status_counts), Arc::clone(&api.activity));
    let commits = Arc::clone(&api.commits);
    let judge = Arc::clone(&who);
    let ask = move |engine: &Engine, _: &QueryContext| {
        let state = engine.state();
        let mut families = engine::cluster(state);
        if all {
            families.extend(engine::jobs(state));
            families.push(engine::waiting(engine));
            families.push(commits.launches(state));
        }
        let shows = |queue: &str| all || visible::queue_takes(state, &judge, queue);
        families.extend(activity.queue_families(shows));
        families.extend(engine::queues(state, shows));
        families.push(engine::checkpoint_ages(state, shows));
        families.extend(statuses.families(state, shows, |job| all || visible::sees(state, &judge, job)));
        (families, all.then(|| CostBasis::of(state)))
    };
    let paused = api.handle.watch().borrow().paused.clone();
    let mut families = outside::process(paused.as_deref());
    families.push(outside::holds(api.handle.holds()));
    families.push(outside::clock(api.handle.clock_offset_ms()));
    families.extend(outside::start_estimates(api.starts.summary()));
    if let Some(policy) = &api.policy {
        families.extend(outside::policy(&policy.changes()));
    }
    let (asked, basis) = api.ask(&who, ask).await?;
    families.extend(asked);
    if let Some(basis) = basis {
        families.extend(money(&api, &who, basis).await);
        families.extend(api.activity.agent_families());
        families.extend(api.status_counts.overall());
        families.extend(api.commits.families());
        families.extend(outside::sources(api.sources.view(&api.handle)));
    }
    let failed = |e: std::fmt::Error| ApiError::new(500, "MetricsUnwritten", e.to_string(), "report this");
    let exposition = MetricsText::accepted(headers.get(header::ACCEPT).and_then(|types| types.to_str().ok()));
    let audience = if all { Audience::All } else { Audience::Reader(Arc::clone(&who.name)) };
    let body = exposition.text(families, api.status_counts.shown(), &audience).map_err(failed)?;
    let headers = [(header::CONTENT_TYPE, exposition.content_type()), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, body).into_response())
}

/// What the ledger says by whom. Empty where it cannot be read now, or is not read to its end yet, which the log says: a counter that is left out
/// is no zero.
async fn money(api: &Api, who: &Who, first: CostBasis) -> Vec<Family> {
    let mut basis = first;
    for _ in 0..TRIES {
        // Another scrape may wait for this one, and whoever scrapes gives up after 10 s.
        let limits = LedgerLimits { time: api.ledger.time.min(MOST_SCRAPE_TIME), ..api.ledger };
        let (accounts, mut budget) = (Arc::clone(&api.accounts), limits.budget());
        let read = archive::read(api, who, move |archive| {
            let mut accounts = accounts.lock().unwrap_or_else(PoisonError::into_inner);
            accounts.at(&basis, archive, &mut |held| budget.go_on(held))
        });
        match read.await {
            Ok(AccountsRead::Whole(accounts)) => return spend::families(&accounts),
            Ok(AccountsRead::Partial) => {
                tracing::info!("the spending of queues is left out of the metrics until all of the ledger is read");
                return Vec::new();
            }
            // Another scrape, or the sums, are past it.
            Ok(AccountsRead::Passed) => {}
            Err(error) => {
                tracing::warn!(?error, "the spending of queues is left out of the metrics");
                return Vec::new();
            }
        }
        match api.ask(who, |engine, _| CostBasis::of(engine.state())).await {
            Ok(later) => basis = later,
            Err(_) => return Vec::new(),
        }
    }
    Vec::new()
}

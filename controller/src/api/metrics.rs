//! `GET /metrics`: figures for monitoring, as OpenMetrics text, asked of the engine with one question.
//!
//! Never, for a mere reader: a queue that takes no jobs from it, a job that it may not see, and what `/v1/sources` and other tenants'
//! counts would tell. The roles `metrics` and `operate` see all.

use super::Api;
use super::auth::Scraper;
use super::error::ApiError;
use super::visible;
use crate::driver::QueryContext;
use crate::metrics::family::{CONTENT_TYPE, text};
use crate::metrics::{engine, outside};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use forebay_engine::engine::Engine;
use std::sync::Arc;

pub(super) async fn metrics(State(api): State<Api>, Scraper { who, all }: Scraper) -> Result<Response, ApiError> {
    let (preemptions, activity) = (Arc::clone(&api.preemptions), Arc::clone(&api.activity));
    let ask = move |engine: &Engine, _: &QueryContext| {
        let state = engine.state();
        let mut families = engine::cluster(state);
        if all {
            families.extend(engine::jobs(state));
        }
        let shows = |queue: &str| all || visible::queue_takes(state, &who, queue);
        families.extend(activity.queue_families(shows));
        families.extend(preemptions.families(shows, |job| all || visible::sees(state, &who, job)));
        families
    };
    let paused = api.handle.watch().borrow().paused.clone();
    let mut families = outside::process(paused.as_deref());
    families.push(outside::holds(api.handle.holds()));
    if let Some(policy) = &api.policy {
        families.extend(outside::policy(&policy.changes()));
    }
    families.extend(api.handle.query_async(ask).await?);
    if all {
        families.extend(api.activity.agent_families());
        families.extend(outside::sources(api.sources.view(&api.handle)));
    }
    let failed = |e: std::fmt::Error| ApiError::new(500, "MetricsUnwritten", e.to_string(), "report this");
    let body = text(families).map_err(failed)?;
    Ok(([(header::CONTENT_TYPE, CONTENT_TYPE), (header::CACHE_CONTROL, "no-store")], body).into_response())
}

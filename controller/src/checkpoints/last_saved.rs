//! Finds what a run saved last when it ends, so that a checkpoint that it could not report counts all the same. If the store does not respond
//! in time, the known progress stays.

use super::{CheckpointReport, Checkpoints, StoreVerdict};
use forebay_kernel::event::Event;
use forebay_kernel::ids::{Attempt, JobId};
use forebay_wire::intake::checkpoint_uri;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

/// How long the ends of one batch wait for the store.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(10);

impl Checkpoints {
    /// What runs that end by these events saved last, where it is more than is known: events to be submitted before these. Only of attempts that
    /// still run in the driver's state, and not of those whose end says its progress. It takes at most about 10 s.
    pub async fn last_saved(&self, events: impl IntoIterator<Item = &Event>) -> Vec<Event> {
        if self.inner.store.is_none() {
            return Vec::new();
        }
        let mut searches = JoinSet::new();
        for event in events {
            if let Event::RunStopped { job, attempt, progress: None } | Event::RunFailed { job, attempt, .. } = *event {
                let this = self.clone();
                searches.spawn(async move { this.last_saved_of(job, attempt).await });
            }
        }
        let mut saved = Vec::new();
        let end = Instant::now() + SEARCH_TIMEOUT;
        while let Ok(Some(found)) = timeout_at(end, searches.join_next()).await {
            saved.extend(found.ok().flatten());
        }
        if !searches.is_empty() {
            tracing::warn!(
                "{} runs ended, and their last checkpoints were not found within {SEARCH_TIMEOUT:?}: their known progress stays",
                searches.len()
            );
        }
        saved
    }

    /// The last checkpoint of an attempt, if it has saved more than is known.
    async fn last_saved_of(&self, job: JobId, attempt: Attempt) -> Option<Event> {
        let running = self.find_running(job, attempt).await?;
        let uri = checkpoint_uri(&running.run_spec)?;
        match self.verify_at(&uri, &CheckpointReport { job, attempt, manifest: None }).await {
            StoreVerdict::Accepted { progress, .. } => {
                (progress > running.progress).then_some(Event::RunCheckpointed { job, attempt, progress })
            }
            StoreVerdict::Refused { no_manifest: true, .. } => None,
            StoreVerdict::Refused { why, .. } | StoreVerdict::Unavailable { why } => {
                tracing::warn!(%job, "the last checkpoint of its run does not count: {why}");
                None
            }
        }
    }
}

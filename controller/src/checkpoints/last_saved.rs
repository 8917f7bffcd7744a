//! Adds the last saved progress of a run to the event of its end, so that the next run starts from the progress in the store. If the store does
//! not respond in time, the known progress stays.

use super::{CheckpointReport, Checkpoints, StoreVerdict, running_attempt};
use forebay_engine::engine::Engine;
use forebay_kernel::event::Event;
use forebay_kernel::units::Span;
use forebay_wire::intake::checkpoint_uri;
use std::time::Duration;

/// How long the ends of one batch wait for the store.
const COMPLETE_TIMEOUT: Duration = Duration::from_secs(10);

impl Checkpoints {
    /// Fills in the last saved progress of each `Event::RunStopped` with `progress: None` whose attempt still runs in the driver's state. All
    /// other events are returned unchanged, in the same order. It takes at most about 10 s.
    pub async fn fill_in_progress(&self, mut events: Vec<Event>) -> Vec<Event> {
        let without_progress = |event: &Event| matches!(event, Event::RunStopped { progress: None, .. });
        if self.inner.store.is_none() || !events.iter().any(without_progress) {
            return events;
        }
        let mut lookups = tokio::task::JoinSet::new();
        for (at, event) in events.iter().enumerate() {
            if let Event::RunStopped { job, attempt, progress: None } = *event {
                let this = self.clone();
                let report = CheckpointReport { job, attempt, manifest: None };
                lookups.spawn(async move { (at, this.last_saved(report).await) });
            }
        }
        let end = tokio::time::Instant::now() + COMPLETE_TIMEOUT;
        while let Ok(Some(found)) = tokio::time::timeout_at(end, lookups.join_next()).await {
            let Ok((at, Some(last))) = found else { continue };
            if let Some(Event::RunStopped { progress, .. }) = events.get_mut(at) {
                *progress = Some(last);
            }
        }
        if !lookups.is_empty() {
            tracing::warn!(
                "{} runs ended, and their last checkpoints were not found within {COMPLETE_TIMEOUT:?}: their known progress stays",
                lookups.len()
            );
        }
        events
    }

    /// The last saved progress of an attempt, if it is more than is known.
    async fn last_saved(&self, report: CheckpointReport) -> Option<Span> {
        let CheckpointReport { job, attempt, .. } = report;
        let query = move |engine: &Engine, _: &_| running_attempt(engine.state(), job, attempt);
        let running = self.inner.handle.query_async(query).await.ok()??;
        let uri = checkpoint_uri(&running.run_spec)?;
        match self.verify_at(&uri, &report).await {
            StoreVerdict::Accepted { progress, .. } => Some(progress).filter(|progress| *progress > running.progress),
            StoreVerdict::Refused { no_manifest: true, .. } => None,
            StoreVerdict::Refused { why, .. } | StoreVerdict::Unavailable { why } => {
                tracing::warn!(%job, "the last checkpoint of its run does not count: {why}");
                None
            }
        }
    }
}

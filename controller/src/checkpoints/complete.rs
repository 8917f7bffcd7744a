//! What a run saved last, at its end: filled into the proof that it is dead, so that its next run's progress is that of the store.
//!
//! Never: keeps an end waiting for long. A store that does not answer leaves the progress that is known.

use super::store::Looked;
use super::{Checkpoints, Report, standing};
use crate::intake::checkpoint_uri;
use forebay_engine::engine::Engine;
use forebay_engine::event::Event;
use forebay_engine::units::Span;
use std::time::Duration;

/// So long ends wait at most, all that come together.
const COMPLETE_WITHIN: Duration = Duration::from_secs(10);

impl Checkpoints {
    /// Fills in what stopped runs saved last, where their end does not say: `Event::RunStopped` with `progress: None` of a run that is
    /// alive so far. Everything else comes back as it is, in the same order, within some 10 s.
    pub async fn complete(&self, mut events: Vec<Event>) -> Vec<Event> {
        let silent = |event: &Event| matches!(event, Event::RunStopped { progress: None, .. });
        if self.inner.store.is_none() || !events.iter().any(silent) {
            return events;
        }
        let mut looking = tokio::task::JoinSet::new();
        for (at, event) in events.iter().enumerate() {
            if let Event::RunStopped { job, attempt, progress: None } = *event {
                let this = self.clone();
                let report = Report { job, attempt, manifest: None };
                looking.spawn(async move { (at, this.last(report).await) });
            }
        }
        let end = tokio::time::Instant::now() + COMPLETE_WITHIN;
        while let Ok(Some(looked)) = tokio::time::timeout_at(end, looking.join_next()).await {
            let Ok((at, Some(last))) = looked else { continue };
            if let Some(Event::RunStopped { progress, .. }) = events.get_mut(at) {
                *progress = Some(last);
            }
        }
        if !looking.is_empty() {
            tracing::warn!(
                "{} runs ended, and what they saved last was not found within {COMPLETE_WITHIN:?}: what is known of them stays",
                looking.len()
            );
        }
        events
    }

    /// What a run saved last, where it is more than is known.
    async fn last(&self, report: Report) -> Option<Span> {
        let Report { job, attempt, .. } = report;
        let ask = move |engine: &Engine, _: &_| standing(engine.state(), job, attempt);
        let standing = self.inner.handle.query_async(ask).await.ok()??;
        let uri = checkpoint_uri(&standing.carried)?;
        match self.look_at(&uri, &report).await {
            Looked::Counts { progress, .. } => Some(progress).filter(|progress| *progress > standing.progress),
            Looked::Refused { nothing_yet: true, .. } => None,
            Looked::Refused { why, .. } | Looked::Unknown { why } => {
                tracing::warn!(%job, "what its run saved last does not count: {why}");
                None
            }
        }
    }
}

//! Messages that were received and are not deleted yet. They are kept hidden until they are durable and then deleted; if they will never
//! be durable, they are released so that another consumer receives them.
//!
//! ```text
//! wait for the receipt --durable--> delete (retried, still kept hidden)
//!      |  every half of the visibility timeout: extended to a whole one
//!      '--the source stops--> visible at once
//! ```
//!
//! A message is never deleted before its receipt, and never becomes visible only because the receipt takes long.

use crate::call_failure::{CallFailure, FailureKind, classify_code, with_timeout};
use crate::client::SqsConnection;
use crate::context::Context;
use crate::queue::{InFlightCount, MAX_VISIBILITY, Queue};
use aws_sdk_sqs::types::{
    BatchResultErrorEntry, ChangeMessageVisibilityBatchRequestEntry, DeleteMessageBatchRequestEntry,
};
use backon::{ConstantBuilder, Retryable};
use forebay_source::{Condition, Receipt};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

/// Attempts to delete, with delays of 0.2 s to 3.2 s between them, about 6 s in all. After that the messages are received again and
/// dropped by their ids, which costs less than blocking the receiver.
const DELETE_ATTEMPTS: u32 = 6;
/// Attempts to delete while the source stops.
const LAST_DELETE_ATTEMPTS: u32 = 2;
/// The time limit of each attempt to release messages.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);
/// Subtracted from the 12 hours that SQS allows, because its clock started when it handed the message out.
const MARGIN: Duration = Duration::from_secs(30);

/// Which queue messages came from, and over which connection.
#[derive(Clone, Debug)]
pub(crate) struct QueueLocation {
    pub connection: SqsConnection,
    pub queue: Arc<Queue>,
    pub url: Arc<str>,
    /// How long the messages are hidden, from when they were received.
    pub hidden: Duration,
}

/// The messages of one batch.
#[derive(Debug)]
pub(crate) struct InFlightBatch {
    context: Arc<Context>,
    location: QueueLocation,
    /// The task's name among the conditions.
    label: String,
    /// Receipt handles of the messages that are not deleted yet.
    handles: Vec<String>,
    since: Instant,
    /// When the visibility timeout is extended next.
    due: Instant,
    /// Whether the 12 hours are used up, so that nothing can be extended any more.
    expired: bool,
    _count: InFlightCount,
    _guards: BatchGuards,
}

/// What became of a batch.
enum Settlement {
    Durable,
    NeverDurable,
}

/// What is released when a batch is dropped.
#[derive(Debug)]
pub(crate) struct BatchGuards {
    /// The batch's place among those that the receiver may have in flight.
    pub _permit: OwnedSemaphorePermit,
    /// A stopping source waits until all clones of this are dropped.
    pub _alive: mpsc::Sender<Infallible>,
}

impl InFlightBatch {
    pub fn new(
        context: Arc<Context>,
        location: QueueLocation,
        label: &str,
        handles: Vec<String>,
        guards: BatchGuards,
    ) -> InFlightBatch {
        let (since, count) = (Instant::now(), location.queue.count_in_flight(handles.len()));
        let (due, label) = (since + location.hidden / 2, format!("{label} held"));
        InFlightBatch { context, location, label, handles, since, due, expired: false, _count: count, _guards: guards }
    }

    /// Keeps the messages hidden until they are durable and deletes them then, or releases them.
    pub async fn settle(mut self, receipt: oneshot::Receiver<Receipt>) {
        match self.wait(receipt).await {
            Settlement::Durable => self.delete().await,
            Settlement::NeverDurable => self.release().await,
        }
    }

    /// Makes the messages visible at once, so that another consumer receives them. Waits until no poll of this source is running, which
    /// would receive them again. It is tried twice, because the source is stopping; after a failure the messages become visible when
    /// their timeout ends.
    pub async fn release(self) {
        self.context.polls_ended().await;
        let attempt = || change_visibility(&self.location, &self.handles, Duration::ZERO, RELEASE_TIMEOUT);
        let twice = ConstantBuilder::new().with_delay(Duration::ZERO).with_max_times(1);
        // After two failures the timeout makes them visible.
        let _ = attempt.retry(twice).await;
    }

    async fn wait(&mut self, mut receipt: oneshot::Receiver<Receipt>) -> Settlement {
        let context = Arc::clone(&self.context);
        loop {
            tokio::select! {
                biased;
                durable = &mut receipt => {
                    if durable.is_ok() {
                        return Settlement::Durable;
                    }
                    // The controller has stopped: it takes no more messages.
                    context.stop();
                    return Settlement::NeverDurable;
                }
                // The receipt may still come until then.
                () = context.polls_ended() => return Settlement::NeverDurable,
                () = sleep_until(self.due), if !self.expired => self.extend().await,
            }
        }
    }

    /// Hides the messages for another whole timeout. After a failure it is tried again soon.
    async fn extend(&mut self) {
        let Some(hidden) = next_extension(self.location.queue.visibility(), self.since.elapsed()) else {
            self.expired = true;
            let (n, name) = (self.handles.len(), &self.location.queue.name);
            self.context.conditions.add_remark(format!(
                "sqs queue `{name}`: {n} messages waited 12 h to become durable; SQS cannot hide them any longer, so they are received again"
            ));
            return;
        };
        let limit = self.context.settings.timings.response_timeout.min(hidden);
        let changed = change_visibility(&self.location, &self.handles, hidden, limit).await;
        let soon = (self.location.queue.visibility() / 8).clamp(Duration::from_millis(100), Duration::from_secs(5));
        let extended = changed.as_ref().is_ok_and(|failed| failed.iter().all(|f| f.sender_fault));
        self.due = Instant::now() + if extended { hidden / 2 } else { soon };
        let why = match &changed {
            Ok(failed) => failed.first().map(|f| describe(f, "ChangeMessageVisibility")),
            Err(failure) => Some(failure.why.clone()),
        };
        match why {
            None => self.location.queue.outage_reported.store(false, Ordering::Relaxed),
            // Reported once for an outage, not once for each batch.
            Some(why) if !self.location.queue.outage_reported.swap(true, Ordering::Relaxed) => {
                let name = &self.location.queue.name;
                self.context.conditions.add_remark(format!(
                    "sqs queue `{name}`: messages could not be kept hidden and may be received again: {why}"
                ));
            }
            Some(_) => {}
        }
    }

    /// Deletes the messages, which are durable. While an operator has to grant a permission they are kept hidden, so that none of them
    /// goes to the dead-letter queue.
    async fn delete(&mut self) {
        let timings = self.context.settings.timings;
        let mut delays = timings.delays();
        loop {
            let failure = match self.delete_once().await {
                Ok(None) => return self.context.conditions.forget(&self.label),
                Ok(Some(why)) => CallFailure::new(FailureKind::Transient, why),
                Err(failure) => failure,
            };
            let delay = failure.delay(&mut delays, &timings);
            let operator_may_help = failure.kind.needs_operator()
                && failure.kind != FailureKind::NotFound
                && !self.expired
                && !self.context.is_stopping();
            let attempts = if self.context.is_stopping() { LAST_DELETE_ATTEMPTS } else { DELETE_ATTEMPTS };
            if operator_may_help {
                // Not counted: a short outage after a long wait must not exhaust the attempts.
                delays.reset();
                self.context.conditions.set(&self.label, Condition::Failing { why: failure.why.clone() });
            } else if failure.kind == FailureKind::NotFound || delays.failures() >= attempts {
                let (n, name) = (self.handles.len(), &self.location.queue.name);
                self.context.conditions.forget(&self.label);
                return self.context.conditions.add_remark(format!(
                    "sqs queue `{name}`: {n} messages are durable and could not be deleted; they are received again and dropped by their ids: {}",
                    failure.why
                ));
            }
            self.sleep(delay).await;
        }
    }

    /// One attempt. What could not be deleted stays in `handles`, and the text says why.
    async fn delete_once(&mut self) -> Result<Option<String>, CallFailure> {
        let entry = |(at, handle): (usize, &String)| {
            DeleteMessageBatchRequestEntry::builder().id(at.to_string()).receipt_handle(handle).build()
        };
        let entries = self.handles.iter().enumerate().map(entry).collect::<Result<Vec<_>, _>>();
        let entries = entries.map_err(|error| CallFailure::new(FailureKind::InvalidRequest, error.to_string()))?;
        let call = self
            .location
            .connection
            .client
            .delete_message_batch()
            .queue_url(&*self.location.url)
            .set_entries(Some(entries))
            .send();
        let limit = self.context.settings.timings.response_timeout;
        let answer = with_timeout(limit, "DeleteMessageBatch", &self.location.queue.name, call).await?;
        // A handle that has become invalid stays invalid: its message will be received again.
        let (never, again): (Vec<_>, Vec<_>) =
            answer.failed.iter().partition(|failed| failed.sender_fault && !denied(failed));
        if let Some(failed) = never.first() {
            let (n, name) = (never.len(), &self.location.queue.name);
            self.context.conditions.add_remark(format!(
                "sqs queue `{name}`: {n} messages are durable and cannot be deleted; they are received again and dropped by their ids: {}",
                describe(failed, "DeleteMessage")
            ));
        }
        let left: Vec<String> =
            again.iter().filter_map(|failed| self.handles.get(failed.id.parse::<usize>().ok()?).cloned()).collect();
        self.handles = left;
        let first = again.first().map(|failed| describe(failed, "DeleteMessage"));
        match again.iter().find(|failed| denied(failed)) {
            Some(failed) => Err(CallFailure::new(classify_code(&failed.code, 400), describe(failed, "DeleteMessage"))),
            None => Ok(first),
        }
    }

    /// Sleeps and keeps the messages hidden meanwhile, but not longer than until the source begins to stop.
    async fn sleep(&mut self, delay: Duration) {
        let (context, until) = (Arc::clone(&self.context), Instant::now() + delay);
        if context.is_stopping() {
            return sleep_until(until.min(Instant::now() + Duration::from_millis(200))).await;
        }
        loop {
            tokio::select! {
                () = context.stopping() => return,
                () = sleep_until(until) => return,
                () = sleep_until(self.due), if !self.expired => self.extend().await,
            }
        }
    }
}

/// How long to hide messages that were received `age` ago: a whole timeout, or what is left of the 12 hours. `None` if nothing is left.
fn next_extension(visibility: Duration, age: Duration) -> Option<Duration> {
    let left = MAX_VISIBILITY.saturating_sub(age + MARGIN);
    let hidden = visibility.min(left);
    (hidden >= Duration::from_secs(1)).then_some(hidden)
}

async fn change_visibility(
    location: &QueueLocation,
    handles: &[String],
    hidden: Duration,
    limit: Duration,
) -> Result<Vec<BatchResultErrorEntry>, CallFailure> {
    let seconds = i32::try_from(hidden.as_secs()).unwrap_or(i32::MAX);
    let entry = |(at, handle): (usize, &String)| {
        let entry = ChangeMessageVisibilityBatchRequestEntry::builder().id(at.to_string());
        entry.receipt_handle(handle).visibility_timeout(seconds).build()
    };
    let entries = handles.iter().enumerate().map(entry).collect::<Result<Vec<_>, _>>();
    let entries = entries.map_err(|error| CallFailure::new(FailureKind::InvalidRequest, error.to_string()))?;
    let call = location
        .connection
        .client
        .change_message_visibility_batch()
        .queue_url(&*location.url)
        .set_entries(Some(entries))
        .send();
    Ok(with_timeout(limit, "ChangeMessageVisibilityBatch", &location.queue.name, call).await?.failed)
}

fn denied(failed: &BatchResultErrorEntry) -> bool {
    matches!(classify_code(&failed.code, 400), FailureKind::PermissionDenied | FailureKind::BadCredentials)
}

fn describe(failed: &BatchResultErrorEntry, action: &str) -> String {
    format!("{action}: {}: {}", failed.code, failed.message.as_deref().unwrap_or("without a message"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_hidden_beyond_twelve_hours() {
        const H: u64 = 3600;
        for (visibility, age, expected) in [
            (30, 0, Some(30)),
            (30, 11 * H, Some(30)),
            (2 * H, 11 * H, Some(H - 30)),
            (12 * H, 0, Some(12 * H - 30)),
            (30, 12 * H - 40, Some(10)),
            (30, 12 * H - 30, None),
            (30, 13 * H, None),
        ] {
            let extension = next_extension(Duration::from_secs(visibility), Duration::from_secs(age));
            assert_eq!(extension, expected.map(Duration::from_secs), "{visibility} s after {age} s");
        }
    }
}

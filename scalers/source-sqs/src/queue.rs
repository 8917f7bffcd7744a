//! One queue: its URL, its kind, its visibility timeout, and how many of its messages are in flight.
//!
//! An attribute that could not be read is never taken for zero.

use crate::call_failure::{CallFailure, FailureKind, with_timeout};
use crate::client::SqsConnection;
use crate::settings::{SqsSettings, checked_name};
use aws_sdk_sqs::types::QueueAttributeName;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Mutex;

/// The visibility timeout of SQS unless a queue sets another.
const DEFAULT_VISIBILITY: Duration = Duration::from_secs(30);
/// A shorter timeout cannot be extended in time; a queue may be set to 0.
const MIN_VISIBILITY: Duration = Duration::from_secs(2);
/// The longest that SQS hides a message.
pub(crate) const MAX_VISIBILITY: Duration = Duration::from_secs(12 * 60 * 60);

/// A queue of the settings.
#[derive(Debug)]
pub(crate) struct Queue {
    /// The name or URL as configured.
    given: String,
    pub name: String,
    /// The index in the settings.
    pub channel: usize,
    url: Mutex<Option<Arc<str>>>,
    visibility_s: AtomicU64,
    in_flight: AtomicU64,
    /// Whether it was reported that messages could not be kept hidden.
    pub outage_reported: AtomicBool,
}

/// Counts messages as in flight until it is dropped.
#[derive(Debug)]
pub(crate) struct InFlightCount {
    queue: Arc<Queue>,
    messages: u64,
}

impl Drop for InFlightCount {
    fn drop(&mut self) {
        self.queue.in_flight.fetch_sub(self.messages, Ordering::Relaxed);
    }
}

impl Queue {
    /// All queues of the settings, with their checked names.
    pub fn all(settings: &SqsSettings, names: Vec<String>) -> Vec<Arc<Queue>> {
        let each = settings.queues.iter().zip(names).enumerate();
        each.map(|(channel, (given, name))| Arc::new(Queue::new(given.clone(), name, channel))).collect()
    }

    /// A single queue, by name or URL.
    pub fn one(given: &str) -> Result<Queue, crate::SqsError> {
        Ok(Queue::new(given.to_owned(), checked_name(given)?, 0))
    }

    fn new(given: String, name: String, channel: usize) -> Queue {
        Queue {
            given,
            name,
            channel,
            url: Mutex::default(),
            visibility_s: AtomicU64::new(DEFAULT_VISIBILITY.as_secs()),
            in_flight: AtomicU64::new(0),
            outage_reported: AtomicBool::new(false),
        }
    }

    /// Whether it is a FIFO queue, which keeps the order within a message group.
    pub fn is_fifo(&self) -> bool {
        self.name.ends_with(".fifo")
    }

    /// How long a message is hidden that is received or extended now.
    pub fn visibility(&self) -> Duration {
        Duration::from_secs(self.visibility_s.load(Ordering::Relaxed))
    }

    /// Counts received messages as in flight.
    pub fn count_in_flight(self: &Arc<Self>, messages: usize) -> InFlightCount {
        let messages = messages as u64;
        self.in_flight.fetch_add(messages, Ordering::Relaxed);
        InFlightCount { queue: Arc::clone(self), messages }
    }

    /// The number of messages that were received here and are not deleted.
    pub fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// The URL. It is looked up once by the name, and again after [`Queue::forget_url`]. Its visibility timeout is read at the same time;
    /// where that is not allowed, SQS's default is used.
    pub async fn url(&self, connection: &SqsConnection, response_timeout: Duration) -> Result<Arc<str>, CallFailure> {
        let mut known = self.url.lock().await;
        if let Some(url) = known.as_ref() {
            return Ok(Arc::clone(url));
        }
        let url: Arc<str> = if self.given.contains("://") {
            self.given.as_str().into()
        } else {
            let call = connection.client.get_queue_url().queue_name(&self.name).send();
            let answer = with_timeout(response_timeout, "GetQueueUrl", &self.name, call).await?;
            let missing = || {
                CallFailure::new(FailureKind::Transient, format!("sqs queue `{}`: a response without a URL", self.name))
            };
            answer.queue_url.ok_or_else(missing)?.into()
        };
        if let Err(failure) =
            self.attributes(connection, &url, response_timeout, &[QueueAttributeName::VisibilityTimeout]).await
            && failure.kind == FailureKind::NotFound
        {
            return Err(failure);
        }
        *known = Some(Arc::clone(&url));
        Ok(url)
    }

    /// Forgets the URL, after the queue was not found there.
    pub async fn forget_url(&self) {
        *self.url.lock().await = None;
    }

    /// Reads attributes by their names, and remembers the visibility timeout if it is among them.
    pub async fn attributes(
        &self,
        connection: &SqsConnection,
        url: &str,
        response_timeout: Duration,
        names: &[QueueAttributeName],
    ) -> Result<BTreeMap<String, String>, CallFailure> {
        let call =
            connection.client.get_queue_attributes().queue_url(url).set_attribute_names(Some(names.to_vec())).send();
        let answer = with_timeout(response_timeout, "GetQueueAttributes", &self.name, call).await?;
        let pairs = answer.attributes.unwrap_or_default();
        let found: BTreeMap<String, String> =
            pairs.into_iter().map(|(name, value)| (name.as_str().to_owned(), value)).collect();
        if let Some(seconds) = found.get("VisibilityTimeout").and_then(|text| text.parse::<u64>().ok()) {
            let hidden = Duration::from_secs(seconds).clamp(MIN_VISIBILITY, MAX_VISIBILITY);
            self.visibility_s.store(hidden.as_secs(), Ordering::Relaxed);
        }
        Ok(found)
    }
}

//! One queue: where it is, what kind it is, how long its messages stay hidden, and how many of them are here.
//!
//! Never: takes what could not be read for a zero.

use crate::client::Way;
use crate::settings::{Settings, checked_name};
use crate::trouble::{Kind, Trouble, within};
use aws_sdk_sqs::types::QueueAttributeName;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Mutex;

/// What SQS uses where nobody says otherwise.
const VISIBILITY: Duration = Duration::from_secs(30);
/// A shorter hold cannot be extended in time; queues may say 0.
const LEAST_VISIBILITY: Duration = Duration::from_secs(2);
/// No message stays hidden for longer.
pub(crate) const MOST_VISIBILITY: Duration = Duration::from_secs(12 * 60 * 60);

/// One queue of the settings.
#[derive(Debug)]
pub(crate) struct Queue {
    /// As the settings have it: a name or a URL.
    given: String,
    /// Its name.
    pub name: String,
    /// Its index in the settings.
    pub channel: usize,
    url: Mutex<Option<Arc<str>>>,
    visibility_s: AtomicU64,
    held: AtomicU64,
    /// Whether an operator has been told that messages could not be kept hidden.
    pub told: AtomicBool,
}

/// Messages that are here and not deleted. Counted as long as this lives.
#[derive(Debug)]
pub(crate) struct Here {
    queue: Arc<Queue>,
    messages: u64,
}

impl Drop for Here {
    fn drop(&mut self) {
        self.queue.held.fetch_sub(self.messages, Ordering::Relaxed);
    }
}

impl Queue {
    /// The queues of the settings.
    pub fn all(settings: &Settings, names: Vec<String>) -> Vec<Arc<Queue>> {
        let each = settings.queues.iter().zip(names).enumerate();
        each.map(|(channel, (given, name))| Arc::new(Queue::new(given.clone(), name, channel))).collect()
    }

    /// One queue, by name or URL.
    pub fn one(given: &str) -> Result<Queue, crate::SqsError> {
        Ok(Queue::new(given.to_owned(), checked_name(given)?, 0))
    }

    fn new(given: String, name: String, channel: usize) -> Queue {
        Queue {
            given,
            name,
            channel,
            url: Mutex::default(),
            visibility_s: AtomicU64::new(VISIBILITY.as_secs()),
            held: AtomicU64::new(0),
            told: AtomicBool::new(false),
        }
    }

    /// Whether SQS keeps the order within a message group.
    pub fn is_fifo(&self) -> bool {
        self.name.ends_with(".fifo")
    }

    /// How long a message stays hidden that is received or extended now.
    pub fn visibility(&self) -> Duration {
        Duration::from_secs(self.visibility_s.load(Ordering::Relaxed))
    }

    /// Counts messages as here.
    pub fn here(self: &Arc<Self>, messages: usize) -> Here {
        let messages = messages as u64;
        self.held.fetch_add(messages, Ordering::Relaxed);
        Here { queue: Arc::clone(self), messages }
    }

    /// Messages that are here and not deleted.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Its URL: looked up once by its name, and again after [`Queue::lost`]. With the URL its attributes are read; where that is not
    /// allowed, the defaults of SQS are used.
    pub async fn url(&self, way: &Way, patience: Duration) -> Result<Arc<str>, Trouble> {
        let mut known = self.url.lock().await;
        if let Some(url) = known.as_ref() {
            return Ok(Arc::clone(url));
        }
        let url: Arc<str> = if self.given.contains("://") {
            self.given.as_str().into()
        } else {
            let call = way.client.get_queue_url().queue_name(&self.name).send();
            let answer = within(patience, "GetQueueUrl", &self.name, call).await?;
            let missing = || Trouble::new(Kind::Passing, format!("sqs queue `{}`: an answer without a URL", self.name));
            answer.queue_url.ok_or_else(missing)?.into()
        };
        if let Err(trouble) = self.attributes(way, &url, patience, &[QueueAttributeName::VisibilityTimeout]).await
            && trouble.kind == Kind::Missing
        {
            return Err(trouble);
        }
        *known = Some(Arc::clone(&url));
        Ok(url)
    }

    /// It is no more where it was.
    pub async fn lost(&self) {
        *self.url.lock().await = None;
    }

    /// Attributes by name. Takes over the visibility timeout when it is among them.
    pub async fn attributes(
        &self,
        way: &Way,
        url: &str,
        patience: Duration,
        names: &[QueueAttributeName],
    ) -> Result<BTreeMap<String, String>, Trouble> {
        let call = way.client.get_queue_attributes().queue_url(url).set_attribute_names(Some(names.to_vec())).send();
        let answer = within(patience, "GetQueueAttributes", &self.name, call).await?;
        let pairs = answer.attributes.unwrap_or_default();
        let found: BTreeMap<String, String> =
            pairs.into_iter().map(|(name, value)| (name.as_str().to_owned(), value)).collect();
        if let Some(seconds) = found.get("VisibilityTimeout").and_then(|text| text.parse::<u64>().ok()) {
            let hidden = Duration::from_secs(seconds).clamp(LEAST_VISIBILITY, MOST_VISIBILITY);
            self.visibility_s.store(hidden.as_secs(), Ordering::Relaxed);
        }
        Ok(found)
    }
}

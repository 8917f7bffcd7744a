//! Reads EC2's interruption messages from SQS queues: they are handed out in batches, and deleted when their content is durable.
//!
//! ```text
//! free slot -> ReceiveMessage (long poll, at most ten) -> NoticeBatch: each message decoded, with its body
//!                                                           |-- acknowledge() --> DeleteMessageBatch
//!                                                           '-- dropped --------> received again later
//! ```
//!
//! Messages that are no notices are handed out too, so that their bodies can be kept before they are deleted. A message may be received twice,
//! which the engine ignores. Messages are hidden for [`QueueTimings::hidden`] only: an acknowledgement takes milliseconds, and reading stops
//! while acknowledgements are missing, so a slow controller does not fill the dead-letter queue. Each outage is logged once.

mod batch;
mod error;
mod failure;
mod read;

pub use batch::{NoticeBatch, ReceivedMessage};
pub use error::QueueError;
pub(crate) use error::short_name;

use aws_sdk_sqs::Client;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// The most batches that wait to be taken, over all queues. Together with the unacknowledged ones they bound the memory: a batch has ten
/// messages of at most 1 MiB each.
const MAX_WAITING: usize = 4;

/// The most queues of one reader. One per region is usual.
const MAX_QUEUES: usize = 16;

/// How long stopping waits for acknowledgements and deletions.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Delays and timeouts. The defaults are for production; tests shorten them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueTimings {
    /// How long a poll waits for messages; SQS takes at most 20 s. The default makes 260,000 calls per month and queue.
    pub poll_wait: Duration,
    /// The response timeout in addition to the poll wait.
    pub response_timeout: Duration,
    /// How long a received message stays hidden, in whole seconds. Of the two minutes of a warning, most are left for another instance of
    /// the controller that takes over.
    pub hidden: Duration,
    /// The first delay after a failure. Further ones double.
    pub first_delay: Duration,
    /// The longest delay after a failure that may pass by itself. It is short, because a warning comes two minutes ahead.
    pub longest_delay: Duration,
    /// The longest delay after a failure that an operator has to fix, such as a missing permission or queue.
    pub operator_delay: Duration,
}

impl Default for QueueTimings {
    fn default() -> QueueTimings {
        QueueTimings {
            poll_wait: Duration::from_secs(10),
            response_timeout: Duration::from_secs(10),
            hidden: Duration::from_secs(30),
            first_delay: Duration::from_millis(200),
            longest_delay: Duration::from_secs(10),
            operator_delay: Duration::from_secs(30),
        }
    }
}

/// The condition of a queue, and counts since this process started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueStats {
    /// Why it fails now, with a remedy. `None`: it works, or has not been polled yet.
    pub failing: Option<String>,
    /// Successful polls.
    pub polls: u64,
    /// Messages about instances.
    pub notices: u64,
    /// Messages about other things.
    pub foreign: u64,
    /// Messages that could not be decoded.
    pub rejected: u64,
    /// Deleted messages.
    pub deleted: u64,
    /// Outages. Each is logged once when it begins and once when it ends.
    pub outages: u64,
}

/// Reads interruption queues until it is stopped or dropped.
#[derive(Debug)]
pub struct InterruptionReader {
    tasks: JoinSet<()>,
    stopping: watch::Sender<bool>,
    stats: Vec<(String, watch::Receiver<QueueStats>)>,
}

impl InterruptionReader {
    /// Starts to read queues, each given by its URL, or by its name in the account of the credentials. Reading stops when the receiver of
    /// the batches is dropped.
    ///
    /// # Errors
    /// There is no queue, there are too many, or one of them is invalid or listed twice.
    pub fn start(
        client: &Client,
        queues: &[String],
        timings: QueueTimings,
        runtime: &Handle,
    ) -> Result<(InterruptionReader, mpsc::Receiver<NoticeBatch>), QueueError> {
        error::check(queues)?;
        let (batches, receiver) = mpsc::channel(MAX_WAITING);
        let (stopping, _) = watch::channel(false);
        let mut reader = InterruptionReader { tasks: JoinSet::new(), stopping, stats: Vec::new() };
        for queue in queues {
            let (stats, stats_receiver) = watch::channel(QueueStats::default());
            reader.stats.push((queue.clone(), stats_receiver));
            let (batches, stopping) = (batches.clone(), reader.stopping.subscribe());
            let task = read::QueueReader::new(client.clone(), queue, timings, batches, stats, stopping);
            reader.tasks.spawn_on(task.run(), runtime);
        }
        Ok((reader, receiver))
    }

    /// The condition of each queue, by its configured text and in the order of the configuration.
    #[must_use]
    pub fn stats(&self) -> Vec<(String, QueueStats)> {
        self.stats.iter().map(|(queue, stats)| (queue.clone(), stats.borrow().clone())).collect()
    }

    /// Stops reading, and waits up to 5 s for acknowledgements and the deletions after them. Unacknowledged messages are received again, and
    /// so are those of the polls that are dropped here.
    pub async fn stop(mut self) {
        self.stopping.send_replace(true);
        let all = async { while self.tasks.join_next().await.is_some() {} };
        // The remaining tasks are dropped with the reader.
        let _ = tokio::time::timeout(STOP_TIMEOUT, all).await;
    }
}

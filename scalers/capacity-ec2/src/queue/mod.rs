//! SQS queues with what EC2 says of its own accord: read, handed out in batches, and deleted when the engine holds them.
//!
//! ```text
//! room for a batch -> ReceiveMessage (long poll, ten at most) -> Batch: letters, each read as a notice or not, with its bytes
//!                                                                  |-- durable() --> DeleteMessageBatch
//!                                                                  '-- dropped ----> nothing: it comes again after a while
//! ```
//!
//! What is no notice is handed out too, and deleted only when whoever took the batch says so: by then its bytes are kept elsewhere.
//! A message may come twice (SQS promises no less, and a reader that dies before its receipt gets it again); the engine ignores what it
//! knows. Messages are hidden for [`Pace::hidden`] and not longer: a receipt takes milliseconds, while one that does not come holds up
//! the reading itself, so that the dead-letter queue does not fill because the controller is slow.
//!
//! Never: deletes what is not durable, receives without room, decides what a notice means, or says the same trouble twice.

mod batch;
mod error;
mod read;
mod trouble;

pub use batch::{Batch, Letter};
pub use error::QueueError;

use aws_sdk_sqs::Client;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// Batches that wait to be taken, over all queues. With those that wait for their receipts they bound what is in memory: ten messages
/// of at most 1 MiB each.
const MOST_WAITING: usize = 4;

/// Queues that one reader has: one a region is usual.
const MOST_QUEUES: usize = 16;

/// How long the end waits for receipts that are on their way.
const LAST_RECEIPTS: Duration = Duration::from_secs(5);

/// Waits and time limits. The defaults are for production; tests shorten them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// How long a poll waits for messages, at most 20 s by SQS. It answers as soon as there is one. The default makes 260,000 calls
    /// a month for each queue.
    pub wait: Duration,
    /// How long an answer may take beyond that.
    pub patience: Duration,
    /// How long a message stays hidden that was received, in whole seconds. A warning gives two minutes: another instance of the
    /// controller that takes over still has most of them.
    pub hidden: Duration,
    /// The first pause after a failure; it doubles.
    pub first_pause: Duration,
    /// The longest pause after a failure that may pass by itself: short, for a warning gives two minutes.
    pub longest_pause: Duration,
    /// The longest pause after a failure that somebody has to mend: no permission, no queue.
    pub slow_pause: Duration,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace {
            wait: Duration::from_secs(10),
            patience: Duration::from_secs(10),
            hidden: Duration::from_secs(30),
            first_pause: Duration::from_millis(200),
            longest_pause: Duration::from_secs(10),
            slow_pause: Duration::from_secs(30),
        }
    }
}

/// How a queue is, and what came from it since this process started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Why it fails now, and what to do. `None`: it works, or has not been tried yet.
    pub failing: Option<String>,
    /// Polls that were answered.
    pub polls: u64,
    /// Messages about instances.
    pub notices: u64,
    /// Messages about something else.
    pub foreign: u64,
    /// Messages that could not be read.
    pub rejected: u64,
    /// Messages that were deleted.
    pub deleted: u64,
    /// Outages: each is logged once when it begins and once when it ends.
    pub outages: u64,
}

/// Reads queues until it is stopped or dropped.
#[derive(Debug)]
pub struct Reader {
    tasks: JoinSet<()>,
    ending: watch::Sender<bool>,
    seen: Vec<(String, watch::Receiver<Seen>)>,
}

impl Reader {
    /// Starts to read queues, each named by its URL or, in the credentials' own account, by its name. Batches come through the receiver;
    /// nobody reads on when it is dropped.
    ///
    /// # Errors
    /// No queue, too many, or one that cannot be.
    pub fn start(
        client: &Client,
        queues: &[String],
        pace: Pace,
        runtime: &Handle,
    ) -> Result<(Reader, mpsc::Receiver<Batch>), QueueError> {
        error::check(queues)?;
        let (to, from) = mpsc::channel(MOST_WAITING);
        let (ending, _) = watch::channel(false);
        let mut reader = Reader { tasks: JoinSet::new(), ending, seen: Vec::new() };
        for queue in queues {
            let (seen, looks) = watch::channel(Seen::default());
            reader.seen.push((queue.clone(), looks));
            let task = read::Queue::new(client.clone(), queue, pace, to.clone(), seen, reader.ending.subscribe());
            reader.tasks.spawn_on(task.run(), runtime);
        }
        Ok((reader, from))
    }

    /// How each queue is, in the order in which they were named.
    #[must_use]
    pub fn seen(&self) -> Vec<(String, Seen)> {
        self.seen.iter().map(|(queue, seen)| (queue.clone(), seen.borrow().clone())).collect()
    }

    /// Ends the reading, and waits up to 5 s for receipts that are on their way and the deletions after them. What has none comes again,
    /// and so does what SQS hands to the poll that is dropped here.
    pub async fn stop(mut self) {
        self.ending.send_replace(true);
        let all = async { while self.tasks.join_next().await.is_some() {} };
        // What is left is dropped with the reader.
        let _ = tokio::time::timeout(LAST_RECEIPTS, all).await;
    }
}

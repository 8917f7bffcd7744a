//! One queue: room first, then a poll, then a batch handed out. Earlier batches wait for their receipts meanwhile.
//!
//! Never: polls without room, waits for one batch's receipt before the next poll (up to a bound), or ends for a failure.

use super::batch::{Batch, Letter};
use super::error::name_of;
use super::trouble::{Trouble, sorted, within};
use super::{Pace, Seen};
use crate::notice::{Message as Said, read};
use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{DeleteMessageBatchRequestEntry, Message, MessageSystemAttributeName};
use forebay_aws::Backoff;
use forebay_aws::{Answer, Kind};
use forebay_engine::units::Millis;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinSet;

/// Messages that SQS hands out at once.
const AT_ONCE: i32 = 10;
/// Batches of one queue that wait for their receipts.
const IN_FLIGHT: usize = 4;
/// Tries to delete. After that the messages come again and say what is known.
const DELETES: u32 = 5;

/// One queue.
pub(super) struct Queue {
    client: Client,
    given: String,
    name: String,
    url: Option<Arc<str>>,
    pace: Pace,
    to: mpsc::Sender<Batch>,
    seen: Arc<watch::Sender<Seen>>,
    ending: watch::Receiver<bool>,
    flight: Arc<Semaphore>,
}

/// The reading ends.
struct Ending;

impl Queue {
    pub fn new(
        client: Client,
        given: &str,
        pace: Pace,
        to: mpsc::Sender<Batch>,
        seen: watch::Sender<Seen>,
        ending: watch::Receiver<bool>,
    ) -> Queue {
        let (given, name) = (given.to_owned(), name_of(given).to_owned());
        let (seen, flight) = (Arc::new(seen), Arc::new(Semaphore::new(IN_FLIGHT)));
        Queue { client, given, name, url: None, pace, to, seen, ending, flight }
    }

    /// Reads until the end, then waits for what is on its way.
    pub async fn run(mut self) {
        let (mut backoff, mut held) = (Backoff::default(), JoinSet::new());
        while let Ok(outcome) = self.once(&mut held, backoff.tries() > 0).await {
            // What has been seen to is let go of.
            while held.try_join_next().is_some() {}
            let Err(trouble) = outcome else {
                self.well(&mut backoff);
                continue;
            };
            if trouble.kind == Kind::Missing {
                self.url = None;
            }
            let pause = trouble.pause(&mut backoff, &self.pace);
            self.failing(&trouble);
            if or_end(&mut self.ending, tokio::time::sleep(pause)).await.is_err() {
                break;
            }
        }
        while held.join_next().await.is_some() {}
    }

    fn well(&self, backoff: &mut Backoff) {
        if backoff.tries() > 0 {
            tracing::info!(queue = %self.name, tries = backoff.tries(), "the interruption queue is read again");
            backoff.reset();
        }
        self.seen.send_modify(|seen| {
            seen.failing = None;
            seen.polls += 1;
        });
    }

    /// Said once for an outage, whatever comes in the course of it.
    fn failing(&self, trouble: &Trouble) {
        let mut begins = false;
        self.seen.send_modify(|seen| {
            begins = seen.failing.replace(trouble.why.clone()).is_none();
            seen.outages += u64::from(begins);
        });
        if begins {
            tracing::warn!(queue = %self.name, "interruptions are not heard by this queue: {}", trouble.why);
        }
    }

    /// One poll. After a failure it does not wait for messages, so that it is soon known whether all is well.
    async fn once(&mut self, held: &mut JoinSet<()>, failed_before: bool) -> Result<Result<(), Trouble>, Ending> {
        let mut ending = self.ending.clone();
        let permit = Arc::clone(&self.flight).acquire_owned();
        let permit = or_end(&mut ending, permit).await?.map_err(|_| Ending)?;
        let room = or_end(&mut ending, self.to.clone().reserve_owned()).await?.map_err(|_| Ending)?;
        let wait = if failed_before { Duration::ZERO } else { self.pace.wait };
        let (url, messages) = match or_end(&mut ending, self.poll(wait)).await? {
            Ok((_, messages)) if messages.is_empty() => return Ok(Ok(())),
            Ok(found) => found,
            Err(trouble) => return Ok(Err(trouble)),
        };
        let (letters, handles): (Vec<Letter>, Vec<String>) = messages.into_iter().filter_map(letter).unzip();
        if letters.is_empty() {
            return Ok(Ok(()));
        }
        self.count(&letters);
        let (receipt, answered) = oneshot::channel();
        room.send(Batch { queue: self.name.clone(), letters, receipt });
        held.spawn(self.delete_after(answered, url, handles, permit));
        Ok(Ok(()))
    }

    async fn poll(&mut self, wait: Duration) -> Result<(Arc<str>, Vec<Message>), Trouble> {
        let url = self.url().await?;
        let seconds = |time: Duration| i32::try_from(time.as_secs()).unwrap_or(i32::MAX);
        let ask = self.client.receive_message().queue_url(&*url).max_number_of_messages(AT_ONCE);
        let ask = ask.wait_time_seconds(seconds(wait)).visibility_timeout(seconds(self.pace.hidden));
        let ask = ask.message_system_attribute_names(MessageSystemAttributeName::SentTimestamp);
        let answer = within(wait + self.pace.patience, "ReceiveMessage", &self.name, ask.send()).await?;
        Ok((url, answer.messages.unwrap_or_default()))
    }

    /// Its URL, looked up once by its name, and again after it was missing.
    async fn url(&mut self) -> Result<Arc<str>, Trouble> {
        if let Some(url) = &self.url {
            return Ok(Arc::clone(url));
        }
        let url: Arc<str> = if self.given.contains("://") {
            self.given.as_str().into()
        } else {
            let call = self.client.get_queue_url().queue_name(&self.name).send();
            let answer = within(self.pace.patience, "GetQueueUrl", &self.name, call).await?;
            let none = || sorted("GetQueueUrl", &self.name, Answer::NoAnswer("an answer without a URL".to_owned()));
            answer.queue_url.ok_or_else(none)?.into()
        };
        self.url = Some(Arc::clone(&url));
        Ok(url)
    }

    fn count(&self, letters: &[Letter]) {
        let of = |wanted: fn(&Letter) -> bool| letters.iter().filter(|letter| wanted(letter)).count() as u64;
        self.seen.send_modify(|seen| {
            seen.notices += of(|letter| matches!(letter.said, Ok(Said::Notice(_))));
            seen.foreign += of(|letter| matches!(letter.said, Ok(Said::Foreign { .. })));
            seen.rejected += of(|letter| letter.said.is_err());
        });
    }

    /// Waits for the receipt, and deletes. Without one nothing is done: the messages come again.
    fn delete_after(
        &self,
        answered: oneshot::Receiver<()>,
        url: Arc<str>,
        handles: Vec<String>,
        permit: OwnedSemaphorePermit,
    ) -> impl Future<Output = ()> + Send + use<> {
        let (client, name, pace, seen) = (self.client.clone(), self.name.clone(), self.pace, Arc::clone(&self.seen));
        async move {
            let _in_flight = permit;
            if answered.await.is_err() {
                return;
            }
            let (mut left, mut backoff) = (handles, Backoff::default());
            loop {
                let before = left.len();
                let outcome = delete(&client, &url, &name, &mut left, pace.patience).await;
                seen.send_modify(|seen| seen.deleted += (before - left.len()) as u64);
                let Err(trouble) = outcome else {
                    return;
                };
                let pause = trouble.pause(&mut backoff, &pace);
                if trouble.kind.needs_somebody() || backoff.tries() >= DELETES {
                    let (n, why) = (left.len(), trouble.why);
                    tracing::warn!(queue = %name, "{n} messages are durable and could not be deleted; they come again: {why}");
                    return;
                }
                tokio::time::sleep(pause).await;
            }
        }
    }
}

/// One try to delete. What is left stays in `handles`.
async fn delete(
    client: &Client,
    url: &str,
    name: &str,
    handles: &mut Vec<String>,
    patience: Duration,
) -> Result<(), Trouble> {
    let entry = |(at, handle): (usize, &String)| {
        DeleteMessageBatchRequestEntry::builder().id(at.to_string()).receipt_handle(handle).build()
    };
    let entries = handles.iter().enumerate().map(entry).collect::<Result<Vec<_>, _>>();
    let entries = entries.map_err(|error| sorted("DeleteMessage", name, Answer::NoAnswer(error.to_string())))?;
    let call = client.delete_message_batch().queue_url(url).set_entries(Some(entries)).send();
    let answer = within(patience, "DeleteMessageBatch", name, call).await?;
    let Some(first) = answer.failed.first() else {
        handles.clear();
        return Ok(());
    };
    let message = first.message.clone().unwrap_or_default();
    let trouble = sorted("DeleteMessage", name, Answer::Service { code: first.code.clone(), message, status: 400 });
    let failed = answer.failed.iter().filter_map(|failed| failed.id.parse::<usize>().ok());
    *handles = failed.filter_map(|at| handles.get(at).cloned()).collect();
    Err(trouble)
}

/// A message, and its handle. One without a handle is none of SQS's.
fn letter(message: Message) -> Option<(Letter, String)> {
    let handle = message.receipt_handle?;
    let body = message.body.unwrap_or_default();
    let attributes = message.attributes.unwrap_or_default();
    let sent = attributes.get(&MessageSystemAttributeName::SentTimestamp);
    let sent = sent.and_then(|text| text.parse().ok()).map(Millis);
    let said = read(&body, sent.unwrap_or_else(now));
    Some((Letter { id: message.message_id.unwrap_or_default(), sent, said, body }, handle))
}

fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Waits for something, or for the end. A reader that is dropped is one.
async fn or_end<T>(ending: &mut watch::Receiver<bool>, wait: impl Future<Output = T>) -> Result<T, Ending> {
    tokio::select! {
        biased;
        _ = ending.wait_for(|end| *end) => Err(Ending),
        got = wait => Ok(got),
    }
}

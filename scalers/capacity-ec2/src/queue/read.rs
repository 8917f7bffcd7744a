//! Reads one queue: wait for a free slot, poll, hand out a batch. Earlier batches meanwhile wait for their acknowledgements, up to a bound. A
//! failure never ends the reader.

use super::batch::{NoticeBatch, ReceivedMessage};
use super::error::short_name;
use super::failure::{QueueDelays, QueueFailure, classify, with_timeout};
use super::{QueueStats, QueueTimings};
use crate::notice::{QueueMessage, decode_message};
use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{DeleteMessageBatchRequestEntry, Message, MessageSystemAttributeName};
use forebay_aws::{CallError, FailureKind};
use forebay_kernel::units::{Span, Timestamp};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinSet;

/// The most messages of one poll, the maximum of SQS.
const MAX_MESSAGES: i32 = 10;
/// The most unacknowledged batches of one queue.
const MAX_UNACKNOWLEDGED: usize = 4;
/// Attempts to delete. Messages that are left are received again, and ignored as known.
const MAX_DELETE_ATTEMPTS: u32 = 5;
/// What is asked for of each message: by them AWS's clock is known when the message is received.
const ATTRIBUTES: [MessageSystemAttributeName; 3] = [
    MessageSystemAttributeName::SentTimestamp,
    MessageSystemAttributeName::ApproximateFirstReceiveTimestamp,
    MessageSystemAttributeName::ApproximateReceiveCount,
];

/// The reader of one queue.
pub(super) struct QueueReader {
    client: Client,
    configured: String,
    name: String,
    url: Option<Arc<str>>,
    timings: QueueTimings,
    batches: mpsc::Sender<NoticeBatch>,
    stats: Arc<watch::Sender<QueueStats>>,
    stopping: watch::Receiver<bool>,
    unacknowledged: Arc<Semaphore>,
}

/// The reader is stopping.
struct Stopping;

impl QueueReader {
    pub fn new(
        client: Client,
        configured: &str,
        timings: QueueTimings,
        batches: mpsc::Sender<NoticeBatch>,
        stats: watch::Sender<QueueStats>,
        stopping: watch::Receiver<bool>,
    ) -> QueueReader {
        let (configured, name) = (configured.to_owned(), short_name(configured).to_owned());
        let (stats, unacknowledged) = (Arc::new(stats), Arc::new(Semaphore::new(MAX_UNACKNOWLEDGED)));
        QueueReader { client, configured, name, url: None, timings, batches, stats, stopping, unacknowledged }
    }

    /// Reads until it is stopped, then waits for the remaining deletions.
    pub async fn run(mut self) {
        let (mut delays, mut deletions) = (QueueDelays::new(&self.timings), JoinSet::new());
        loop {
            // After a failure the poll does not wait for messages, so that a recovery is noticed soon.
            let poll_wait = if delays.failures() > 0 { Duration::ZERO } else { self.timings.poll_wait };
            let Ok(outcome) = self.read_batch(&mut deletions, poll_wait).await else { break };
            while deletions.try_join_next().is_some() {}
            let Err(failure) = outcome else {
                self.record_success(&mut delays);
                continue;
            };
            if failure.kind == FailureKind::NotFound {
                self.url = None;
            }
            let delay = delays.next_delay(&failure);
            self.record_failure(&failure);
            if unless_stopping(&mut self.stopping, tokio::time::sleep(delay)).await.is_err() {
                break;
            }
        }
        while deletions.join_next().await.is_some() {}
    }

    fn record_success(&self, delays: &mut QueueDelays) {
        if delays.failures() > 0 {
            tracing::info!(queue = %self.name, tries = delays.failures(), "the interruption queue is read again");
            delays.reset();
        }
        self.stats.send_modify(|stats| {
            stats.failing = None;
            stats.polls += 1;
        });
    }

    /// Logs an outage once, whatever other failures it has.
    fn record_failure(&self, failure: &QueueFailure) {
        let mut begins = false;
        self.stats.send_modify(|stats| {
            begins = stats.failing.replace(failure.why.clone()).is_none();
            stats.outages += u64::from(begins);
        });
        if begins {
            tracing::warn!(queue = %self.name, "interruptions are not received from this queue: {}", failure.why);
        }
    }

    /// Polls once and hands out the messages. The inner error is the poll's.
    async fn read_batch(
        &mut self,
        deletions: &mut JoinSet<()>,
        poll_wait: Duration,
    ) -> Result<Result<(), QueueFailure>, Stopping> {
        let mut stopping = self.stopping.clone();
        let permit = Arc::clone(&self.unacknowledged).acquire_owned();
        let permit = unless_stopping(&mut stopping, permit).await?.map_err(|_| Stopping)?;
        let slot = unless_stopping(&mut stopping, self.batches.clone().reserve_owned()).await?.map_err(|_| Stopping)?;
        let (url, messages) = match unless_stopping(&mut stopping, self.poll(poll_wait)).await? {
            Ok((_, messages)) if messages.is_empty() => return Ok(Ok(())),
            Ok(received) => received,
            Err(failure) => return Ok(Err(failure)),
        };
        let decoded = messages.into_iter().filter_map(|message| decode(message, self.timings.hidden));
        let (messages, handles): (Vec<ReceivedMessage>, Vec<String>) = decoded.unzip();
        if messages.is_empty() {
            return Ok(Ok(()));
        }
        self.count(&messages);
        let (acknowledgement, acknowledged) = oneshot::channel();
        slot.send(NoticeBatch { queue: self.name.clone(), messages, acknowledgement });
        deletions.spawn(self.delete_after(acknowledged, url, handles, permit));
        Ok(Ok(()))
    }

    async fn poll(&mut self, poll_wait: Duration) -> Result<(Arc<str>, Vec<Message>), QueueFailure> {
        let url = self.url().await?;
        let seconds = |time: Duration| i32::try_from(time.as_secs()).unwrap_or(i32::MAX);
        let call = self.client.receive_message().queue_url(&*url).max_number_of_messages(MAX_MESSAGES);
        let call = call.wait_time_seconds(seconds(poll_wait)).visibility_timeout(seconds(self.timings.hidden));
        let call = call.set_message_system_attribute_names(Some(ATTRIBUTES.to_vec()));
        let timeout = poll_wait + self.timings.response_timeout;
        let response = with_timeout(timeout, "ReceiveMessage", &self.name, call.send()).await?;
        Ok((url, response.messages.unwrap_or_default()))
    }

    /// The URL. A name is looked up once, and again after the queue was missing.
    async fn url(&mut self) -> Result<Arc<str>, QueueFailure> {
        if let Some(url) = &self.url {
            return Ok(Arc::clone(url));
        }
        let url: Arc<str> = if self.configured.contains("://") {
            self.configured.as_str().into()
        } else {
            let call = self.client.get_queue_url().queue_name(&self.name).send();
            let response = with_timeout(self.timings.response_timeout, "GetQueueUrl", &self.name, call).await?;
            let error = || CallError::NoResponse("a response without a URL".to_owned());
            response.queue_url.ok_or_else(|| classify("GetQueueUrl", &self.name, error()))?.into()
        };
        self.url = Some(Arc::clone(&url));
        Ok(url)
    }

    fn count(&self, messages: &[ReceivedMessage]) {
        let count =
            |wanted: fn(&ReceivedMessage) -> bool| messages.iter().filter(|message| wanted(message)).count() as u64;
        self.stats.send_modify(|stats| {
            stats.notices += count(|message| matches!(message.content, Ok(QueueMessage::Notice(_))));
            stats.foreign += count(|message| matches!(message.content, Ok(QueueMessage::Foreign { .. })));
            stats.rejected += count(|message| message.content.is_err());
        });
    }

    /// Waits for the acknowledgement, and deletes. Without one nothing is done, and the messages are received again.
    fn delete_after(
        &self,
        acknowledged: oneshot::Receiver<()>,
        url: Arc<str>,
        handles: Vec<String>,
        permit: OwnedSemaphorePermit,
    ) -> impl Future<Output = ()> + Send + use<> {
        let (client, name, timings, stats) =
            (self.client.clone(), self.name.clone(), self.timings, Arc::clone(&self.stats));
        async move {
            let _unacknowledged = permit;
            if acknowledged.await.is_err() {
                return;
            }
            let (mut left, mut delays) = (handles, QueueDelays::new(&timings));
            loop {
                let before = left.len();
                let outcome = delete(&client, &url, &name, &mut left, timings.response_timeout).await;
                stats.send_modify(|stats| stats.deleted += (before - left.len()) as u64);
                let Err(failure) = outcome else {
                    return;
                };
                let delay = delays.next_delay(&failure);
                if failure.kind.needs_operator() || delays.failures() >= MAX_DELETE_ATTEMPTS {
                    let (n, why) = (left.len(), failure.why);
                    tracing::warn!(queue = %name, "{n} messages are durable and could not be deleted; they are received again: {why}");
                    return;
                }
                tokio::time::sleep(delay).await;
            }
        }
    }
}

/// Deletes messages once. The handles of those that failed stay in `handles`.
async fn delete(
    client: &Client,
    url: &str,
    name: &str,
    handles: &mut Vec<String>,
    response_timeout: Duration,
) -> Result<(), QueueFailure> {
    let entry = |(at, handle): (usize, &String)| {
        DeleteMessageBatchRequestEntry::builder().id(at.to_string()).receipt_handle(handle).build()
    };
    let entries = handles.iter().enumerate().map(entry).collect::<Result<Vec<_>, _>>();
    let entries = entries.map_err(|error| classify("DeleteMessage", name, CallError::NoResponse(error.to_string())))?;
    let call = client.delete_message_batch().queue_url(url).set_entries(Some(entries)).send();
    let response = with_timeout(response_timeout, "DeleteMessageBatch", name, call).await?;
    let Some(first) = response.failed.first() else {
        handles.clear();
        return Ok(());
    };
    let message = first.message.clone().unwrap_or_default();
    let failure =
        classify("DeleteMessage", name, CallError::Service { code: first.code.clone(), message, status: 400 });
    let failed = response.failed.iter().filter_map(|failed| failed.id.parse::<usize>().ok());
    *handles = failed.filter_map(|at| handles.get(at).cloned()).collect();
    Err(failure)
}

/// The message and its receipt handle, which SQS always sets. `hidden`: for how long a received message stays hidden.
fn decode(message: Message, hidden: Duration) -> Option<(ReceivedMessage, String)> {
    let handle = message.receipt_handle?;
    let body = message.body.unwrap_or_default();
    let attributes = message.attributes.unwrap_or_default();
    let number = |name: MessageSystemAttributeName| attributes.get(&name).and_then(|text| text.parse::<u64>().ok());
    let sent = number(MessageSystemAttributeName::SentTimestamp).map(Timestamp);
    // Of a message that is received again only the first time is known, and that it was hidden after each time.
    let again = number(MessageSystemAttributeName::ApproximateReceiveCount).unwrap_or(1).saturating_sub(1);
    let first = number(MessageSystemAttributeName::ApproximateFirstReceiveTimestamp).map(Timestamp);
    let last = first.map(|at| at + Span::secs(hidden.as_secs()).times(again));
    let received = last.or(sent).unwrap_or_else(now);
    let content = decode_message(&body, sent.unwrap_or(received));
    let id = message.message_id.unwrap_or_default();
    Some((ReceivedMessage { id, sent, received, arrived: Instant::now(), content, body }, handle))
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Waits for something, unless the reader is stopped or dropped.
async fn unless_stopping<T>(
    stopping: &mut watch::Receiver<bool>,
    future: impl Future<Output = T>,
) -> Result<T, Stopping> {
    tokio::select! {
        biased;
        _ = stopping.wait_for(|stopping| *stopping) => Err(Stopping),
        output = future => Ok(output),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notice::{ClaimStatus, KnownInstances, notice_events};
    use forebay_kernel::event::Event;

    const OURS: &str = "i-1234567890abcdef0";
    /// 2026-11-21T20:30:00Z, the time of the event.
    const SENT_MS: u64 = 1_795_293_000_000;

    struct OneInstance;

    impl KnownInstances for OneInstance {
        fn claim_status(&self, _: &str) -> Option<ClaimStatus> {
            Some(ClaimStatus::Ready)
        }

        fn in_reservation(&self, _: &str) -> Vec<String> {
            Vec::new()
        }
    }

    /// How long the engine gives a spot instance whose warning has these attributes, by an engine's clock.
    fn seconds_left(attributes: &[(MessageSystemAttributeName, u64)], engine: Timestamp) -> u64 {
        let body = format!(
            r#"{{"id":"1","source":"aws.ec2","detail-type":"EC2 Spot Instance Interruption Warning","time":"2026-11-21T20:30:00Z",
            "detail":{{"instance-id":"{OURS}","instance-action":"terminate"}}}}"#
        );
        let mut message = Message::builder().receipt_handle("r").message_id("m").body(body);
        for (name, value) in attributes {
            message = message.attributes(name.clone(), value.to_string());
        }
        let (message, _) = decode(message.build(), Duration::from_secs(30)).expect("a message");
        let Ok(QueueMessage::Notice(notice)) = &message.content else { panic!("{message:?}") };
        let events = notice_events(notice, message.clock_reading(engine), &OneInstance).events;
        let [Event::ReclaimNotice { at, .. }] = &events[..] else { panic!("{events:?}") };
        // It has waited here for some milliseconds, which round up again.
        at.since(engine).0.div_ceil(1000)
    }

    #[test]
    fn a_warning_leaves_what_is_left_of_its_two_minutes_whatever_the_clocks_here_say() {
        use MessageSystemAttributeName::{
            ApproximateFirstReceiveTimestamp as First, ApproximateReceiveCount as Count, SentTimestamp as Sent,
        };
        let of = |after_s: u64| SENT_MS + after_s * 1000;
        for (case, attributes, expected) in [
            ("at once", vec![(Sent, of(0)), (First, of(0)), (Count, 1)], 120),
            ("after 40 s in the queue", vec![(Sent, of(1)), (First, of(40)), (Count, 1)], 80),
            ("received for the third time", vec![(Sent, of(1)), (First, of(5)), (Count, 3)], 55),
            ("without a time of reception", vec![(Sent, of(1))], 119),
            ("received before it was sent", vec![(Sent, of(2)), (First, of(0)), (Count, 1)], 118),
            ("long after its time", vec![(Sent, of(1)), (First, of(3000)), (Count, 1)], 0),
        ] {
            // This machine's clock has no part in it, and the engine's may be anywhere.
            for engine in [SENT_MS, SENT_MS - 3_000_000, SENT_MS + 3_000_000] {
                assert_eq!(seconds_left(&attributes, Timestamp(engine)), expected, "{case} at {engine}");
            }
        }
    }
}

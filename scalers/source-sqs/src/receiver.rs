//! One receiver: it reserves memory, polls, and submits a batch, while up to four earlier batches wait for their receipts.
//!
//! It never polls without memory for everything that the poll may bring.

use crate::call_failure::{CallFailure, FailureKind, with_timeout};
use crate::client::SqsConnection;
use crate::context::{Context, Stopping};
use crate::in_flight::{BatchGuards, InFlightBatch, QueueLocation};
use crate::message::to_message;
use crate::queue::Queue;
use aws_sdk_sqs::types::{Message, MessageSystemAttributeName};
use forebay_aws::RetryDelays;
use forebay_source::{Condition, ControllerStopped, MessageBatch, MessagePermit};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;

/// The most messages that one poll brings.
const POLL_SIZE: u32 = 10;
/// The most batches of one receiver that wait for their receipts. Four hide the journal's write behind the polls, and limit what is
/// received again after a crash to 40 messages.
const MAX_IN_FLIGHT: usize = 4;
/// A poll that ends within this time is awaited when the source stops. A poll that is dropped goes on at SQS: messages that it receives
/// there, even those that this source released, stay hidden and count as received.
const LAST_POLL: Duration = Duration::from_secs(5);
/// Added for the response of that poll.
const RESPONSE_MARGIN: Duration = Duration::from_millis(500);

/// One receiver of one queue.
#[derive(Clone, Debug)]
pub(crate) struct Receiver {
    pub context: Arc<Context>,
    pub queue: Arc<Queue>,
    /// The task's name among the conditions: the queue's name and the receiver's number.
    pub label: String,
    /// A stopping source waits until all clones of this are dropped.
    pub alive: mpsc::Sender<Infallible>,
}

impl Receiver {
    /// Receives until the source stops.
    pub async fn run(self) {
        let in_flight = Arc::new(Semaphore::new(MAX_IN_FLIGHT));
        let timings = self.context.settings.timings;
        let mut delays = timings.delays();
        self.context.conditions.set(&self.label, Condition::Starting);
        while let Ok(outcome) = self.poll_once(&in_flight, &mut delays).await {
            let Err(failure) = outcome else {
                continue;
            };
            if failure.kind == FailureKind::NotFound {
                self.queue.forget_url().await;
            }
            let delay = failure.delay(&mut delays, &timings);
            self.context.conditions.set(&self.label, Condition::Failing { why: failure.why });
            if self.context.sleep(delay).await.is_err() {
                return;
            }
        }
    }

    async fn poll_once(
        &self,
        in_flight: &Arc<Semaphore>,
        delays: &mut RetryDelays,
    ) -> Result<Result<(), CallFailure>, Stopping> {
        let context = &self.context;
        let Ok(turn) = context.wait_for_capacity(&self.label, Arc::clone(in_flight).acquire_owned()).await? else {
            return Err(Stopping);
        };
        let Ok(permit) = context.wait_for_capacity(&self.label, context.handle.reserve(POLL_SIZE)).await? else {
            context.stop();
            return Err(Stopping);
        };
        let (connection, url) = match context.unless_stopping(self.connect()).await? {
            Ok(connected) => connected,
            Err(failure) => return Ok(Err(failure)),
        };
        let failed_before = delays.failures() > 0;
        if !failed_before {
            context.conditions.set(&self.label, Condition::Working);
        }
        let location = QueueLocation {
            connection: connection.clone(),
            queue: Arc::clone(&self.queue),
            url,
            hidden: self.queue.visibility(),
        };
        // After a failure the poll does not wait for messages, so that it is soon known whether the queue works again.
        let wait = if failed_before { Duration::ZERO } else { context.settings.timings.poll_wait };
        let messages = match self.poll(&location, wait).await? {
            Ok(messages) => messages,
            Err(failure) => return Ok(Err(failure)),
        };
        if failed_before {
            delays.reset();
            context.conditions.set(&self.label, Condition::Working);
        }
        self.submit(location, messages, permit, turn).map(Ok)
    }

    async fn connect(&self) -> Result<(&SqsConnection, Arc<str>), CallFailure> {
        let connection = self.context.connection().await?;
        let url = self.queue.url(connection, self.context.settings.timings.response_timeout).await?;
        Ok((connection, url))
    }

    /// The messages that are there, after a wait of at most `wait` for the first one.
    async fn poll(
        &self,
        location: &QueueLocation,
        wait: Duration,
    ) -> Result<Result<Vec<Message>, CallFailure>, Stopping> {
        let limit = wait + self.context.settings.timings.response_timeout;
        let seconds = |time: Duration| i32::try_from(time.as_secs()).unwrap_or(i32::MAX);
        let ask = location
            .connection
            .client
            .receive_message()
            .queue_url(&*location.url)
            .max_number_of_messages(POLL_SIZE.cast_signed());
        let ask = ask.wait_time_seconds(seconds(wait)).visibility_timeout(seconds(location.hidden));
        let ask = ask
            .message_attribute_names("All")
            .message_system_attribute_names(MessageSystemAttributeName::SentTimestamp);
        let mut call = std::pin::pin!(with_timeout(limit, "ReceiveMessage", &self.queue.name, ask.send()));
        let began = Instant::now();
        let answer = match self.context.unless_stopping(&mut call).await {
            Ok(answer) => answer,
            // Messages that it still receives are submitted, refused because of the stop, and released.
            Err(Stopping) if began.elapsed() + LAST_POLL >= wait => {
                tokio::time::timeout(LAST_POLL + RESPONSE_MARGIN, call).await.map_err(|_| Stopping)?
            }
            Err(Stopping) => return Err(Stopping),
        };
        Ok(answer.map(|answer| answer.messages.unwrap_or_default()))
    }

    fn submit(
        &self,
        location: QueueLocation,
        messages: Vec<Message>,
        mut permit: MessagePermit,
        turn: OwnedSemaphorePermit,
    ) -> Result<(), Stopping> {
        let pairs = messages.into_iter().filter_map(|message| to_message(&self.queue.name, message));
        let (messages, handles): (Vec<_>, Vec<_>) = pairs.unzip();
        if messages.is_empty() {
            return Ok(());
        }
        permit.shrink_to(messages.len());
        let guards = BatchGuards { _permit: turn, _alive: self.alive.clone() };
        let in_flight = InFlightBatch::new(Arc::clone(&self.context), location, &self.label, handles, guards);
        let batch = MessageBatch { channel: self.queue.channel, stream: None, messages };
        let receipt =
            if self.context.is_stopping() { Err(ControllerStopped) } else { self.context.handle.submit(batch, permit) };
        match receipt {
            Ok(receipt) => {
                tokio::spawn(in_flight.settle(receipt));
                Ok(())
            }
            Err(ControllerStopped) => {
                self.context.stop();
                tokio::spawn(in_flight.release());
                Err(Stopping)
            }
        }
    }
}

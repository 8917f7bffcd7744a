//! One receiver: room first, then a poll, then a parcel on the desk. Earlier parcels wait for their receipts meanwhile.
//!
//! Never: polls without room for all that may come, or waits for one parcel's receipt before the next poll (up to a bound).

use crate::client::Way;
use crate::context::{Context, Ending};
use crate::held::{Held, Hold, Place};
use crate::letters::letter;
use crate::queue::Queue;
use crate::trouble::{Backoff, Kind, Trouble, within};
use aws_sdk_sqs::types::{Message, MessageSystemAttributeName};
use forebay_source::{Closed, Condition, Parcel, Slot};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;

/// Messages that SQS hands out at once.
const AT_ONCE: u32 = 10;
/// Parcels of one receiver that wait for their receipts. Four hide a journal's write behind the polls and keep what a crash hands
/// out again at 40 messages.
const IN_FLIGHT: usize = 4;
/// A poll that ends this soon is awaited when the source ends. One that is dropped goes on at the other side: what it receives there,
/// even what this source gives back, stays hidden and counts as received.
const LAST_POLL: Duration = Duration::from_secs(5);
/// For the way of its answer.
const ON_ITS_WAY: Duration = Duration::from_millis(500);

/// One receiver of one queue.
#[derive(Clone, Debug)]
pub(crate) struct Receiver {
    pub context: Arc<Context>,
    pub queue: Arc<Queue>,
    /// For the board: the queue's name and the receiver's number.
    pub part: String,
    /// The source waits at its end until all of these are gone.
    pub alive: mpsc::Sender<Infallible>,
}

impl Receiver {
    /// Receives until the source ends.
    pub async fn run(self) {
        let flight = Arc::new(Semaphore::new(IN_FLIGHT));
        let mut backoff = Backoff::default();
        self.context.board.is(&self.part, Condition::Starting);
        while let Ok(outcome) = self.once(&flight, &mut backoff).await {
            let Err(trouble) = outcome else {
                continue;
            };
            if trouble.kind == Kind::Missing {
                self.queue.lost().await;
            }
            let pause = trouble.pause(&mut backoff, &self.context.settings.pace);
            self.context.board.is(&self.part, Condition::Failing { why: trouble.why });
            if self.context.pause(pause).await.is_err() {
                return;
            }
        }
    }

    /// One poll.
    async fn once(&self, flight: &Arc<Semaphore>, backoff: &mut Backoff) -> Result<Result<(), Trouble>, Ending> {
        let context = &self.context;
        let Ok(permit) = context.held_back(&self.part, Arc::clone(flight).acquire_owned()).await? else {
            return Err(Ending);
        };
        let Ok(slot) = context.held_back(&self.part, context.desk.room(AT_ONCE)).await? else {
            context.end();
            return Err(Ending);
        };
        let (way, url) = match context.or_end(self.place()).await? {
            Ok(place) => place,
            Err(trouble) => return Ok(Err(trouble)),
        };
        let failed_before = backoff.tries() > 0;
        if !failed_before {
            context.board.is(&self.part, Condition::Working);
        }
        let place = Place { way: way.clone(), queue: Arc::clone(&self.queue), url, hidden: self.queue.visibility() };
        let messages = match self.poll(&place, failed_before).await? {
            Ok(messages) => messages,
            Err(trouble) => return Ok(Err(trouble)),
        };
        if failed_before {
            backoff.reset();
            context.board.is(&self.part, Condition::Working);
        }
        self.hand_in(place, messages, slot, permit).map(Ok)
    }

    async fn place(&self) -> Result<(&Way, Arc<str>), Trouble> {
        let way = self.context.way().await?;
        let url = self.queue.url(way, self.context.settings.pace.patience).await?;
        Ok((way, url))
    }

    /// Messages, none after a while. After a failure it does not wait for messages, so that it is soon known whether all is well.
    async fn poll(&self, place: &Place, failed_before: bool) -> Result<Result<Vec<Message>, Trouble>, Ending> {
        let pace = &self.context.settings.pace;
        let wait = if failed_before { Duration::ZERO } else { pace.wait };
        let seconds = |time: Duration| i32::try_from(time.as_secs()).unwrap_or(i32::MAX);
        let ask =
            place.way.client.receive_message().queue_url(&*place.url).max_number_of_messages(AT_ONCE.cast_signed());
        let ask = ask.wait_time_seconds(seconds(wait)).visibility_timeout(seconds(place.hidden));
        let ask = ask
            .message_attribute_names("All")
            .message_system_attribute_names(MessageSystemAttributeName::SentTimestamp);
        let mut call = std::pin::pin!(within(wait + pace.patience, "ReceiveMessage", &self.queue.name, ask.send()));
        let began = Instant::now();
        let answer = match self.context.or_end(&mut call).await {
            Ok(answer) => answer,
            // What it still receives is handed in, finds the end and is given back.
            Err(Ending) if began.elapsed() + LAST_POLL >= wait => {
                tokio::time::timeout(LAST_POLL + ON_ITS_WAY, call).await.map_err(|_| Ending)?
            }
            Err(Ending) => return Err(Ending),
        };
        Ok(answer.map(|answer| answer.messages.unwrap_or_default()))
    }

    fn hand_in(
        &self,
        place: Place,
        messages: Vec<Message>,
        mut slot: Slot,
        permit: OwnedSemaphorePermit,
    ) -> Result<(), Ending> {
        let pairs = messages.into_iter().filter_map(|message| letter(&self.queue.name, message));
        let (letters, handles): (Vec<_>, Vec<_>) = pairs.unzip();
        if letters.is_empty() {
            return Ok(());
        }
        slot.shrink_to(letters.len());
        let hold = Hold { _permit: permit, _alive: self.alive.clone() };
        let held = Held::new(Arc::clone(&self.context), place, &self.part, handles, hold);
        let parcel = Parcel { channel: self.queue.channel, stream: None, letters };
        let answered = if self.context.ends() { Err(Closed) } else { self.context.desk.hand_in(parcel, slot) };
        match answered {
            Ok(answered) => {
                tokio::spawn(held.see_to(answered));
                Ok(())
            }
            Err(Closed) => {
                self.context.end();
                tokio::spawn(held.give_back());
                Err(Ending)
            }
        }
    }
}

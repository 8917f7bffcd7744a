//! Messages that are handed in and not deleted yet: kept hidden until they are durable, then deleted; given back when they never
//! will be.
//!
//! ```text
//! wait for the receipt --durable--> delete (retried, still kept hidden)
//!      |  every half of the visibility timeout: hidden for a whole one more
//!      '--the source ends--> visible at once
//! ```
//!
//! Never: deletes before the receipt, or lets a message become visible because the receipt takes long.

use crate::client::Way;
use crate::context::Context;
use crate::queue::{Here, MOST_VISIBILITY, Queue};
use crate::trouble::{Backoff, Kind, Trouble, kind_of, within};
use aws_sdk_sqs::types::{
    BatchResultErrorEntry, ChangeMessageVisibilityBatchRequestEntry, DeleteMessageBatchRequestEntry,
};
use forebay_source::{Condition, Receipt};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

/// Tries to delete, with pauses of 0.2 s to 3.2 s between them: some 6 s. After that the messages come again and are dropped by
/// their ids, which costs less than holding up the receiver.
const DELETES: u32 = 6;
/// Tries to delete while the source ends.
const DELETES_AT_END: u32 = 2;
/// For each try to give back.
const RELEASE: Duration = Duration::from_secs(2);
/// Kept from the 12 hours that SQS allows: its clock began when it handed the message out.
const MARGIN: Duration = Duration::from_secs(30);

/// Where messages came from.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub way: Way,
    pub queue: Arc<Queue>,
    pub url: Arc<str>,
    /// How long they stay hidden from when they were received.
    pub hidden: Duration,
}

/// Messages of one parcel.
#[derive(Debug)]
pub(crate) struct Held {
    context: Arc<Context>,
    place: Place,
    /// For the board.
    part: String,
    /// Handles of what is not deleted.
    handles: Vec<String>,
    since: Instant,
    /// When to extend next.
    due: Instant,
    /// Whether nothing can be extended any more.
    spent: bool,
    _here: Here,
    _hold: Hold,
}

/// What became of the parcel.
enum Outcome {
    Durable,
    Never,
}

/// What a parcel holds on to besides its messages: seen by being dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    /// One of the receiver's parcels in flight.
    pub _permit: OwnedSemaphorePermit,
    /// The source waits at its end until all of these are gone.
    pub _alive: mpsc::Sender<Infallible>,
}

impl Held {
    pub fn new(context: Arc<Context>, place: Place, part: &str, handles: Vec<String>, hold: Hold) -> Held {
        let (since, here) = (Instant::now(), place.queue.here(handles.len()));
        let (due, part) = (since + place.hidden / 2, format!("{part} held"));
        Held { context, place, part, handles, since, due, spent: false, _here: here, _hold: hold }
    }

    /// Sees to the messages until they are deleted or given back.
    pub async fn see_to(mut self, answered: oneshot::Receiver<Receipt>) {
        match self.wait(answered).await {
            Outcome::Durable => self.delete().await,
            Outcome::Never => self.give_back().await,
        }
    }

    /// Makes the messages visible at once, so that another takes them: as soon as no poll of this source is left that would. Bounded,
    /// since the source ends; what fails becomes visible by itself when the timeout is over.
    pub async fn give_back(self) {
        self.context.polls_ended().await;
        for _ in 0..2 {
            if change_visibility(&self.place, &self.handles, Duration::ZERO, RELEASE).await.is_ok() {
                return;
            }
        }
    }

    async fn wait(&mut self, mut answered: oneshot::Receiver<Receipt>) -> Outcome {
        let context = Arc::clone(&self.context);
        loop {
            tokio::select! {
                biased;
                answer = &mut answered => {
                    if answer.is_ok() {
                        return Outcome::Durable;
                    }
                    // The controller let go of it: there is nobody to hand anything to.
                    context.end();
                    return Outcome::Never;
                }
                // Until then the receipt may still come.
                () = context.polls_ended() => return Outcome::Never,
                () = sleep_until(self.due), if !self.spent => self.extend().await,
            }
        }
    }

    /// Keeps the messages hidden for a whole timeout more, or tries again soon.
    async fn extend(&mut self) {
        let Some(hidden) = next_hold(self.place.queue.visibility(), self.since.elapsed()) else {
            self.spent = true;
            let (n, name) = (self.handles.len(), &self.place.queue.name);
            self.context.board.remark(format!(
                "sqs queue `{name}`: {n} messages waited 12 h to become durable; SQS hides them no longer, so they come again"
            ));
            return;
        };
        let limit = self.context.settings.pace.patience.min(hidden);
        let asked = change_visibility(&self.place, &self.handles, hidden, limit).await;
        let soon = (self.place.queue.visibility() / 8).clamp(Duration::from_millis(100), Duration::from_secs(5));
        let lasting = asked.as_ref().is_ok_and(|failed| failed.iter().all(|f| f.sender_fault));
        self.due = Instant::now() + if lasting { hidden / 2 } else { soon };
        let why = match &asked {
            Ok(failed) => failed.first().map(|f| said(f, "ChangeMessageVisibility")),
            Err(trouble) => Some(trouble.why.clone()),
        };
        match why {
            None => self.place.queue.told.store(false, Ordering::Relaxed),
            // Once for an outage, not once for each parcel in it.
            Some(why) if !self.place.queue.told.swap(true, Ordering::Relaxed) => {
                let name = &self.place.queue.name;
                self.context.board.remark(format!(
                    "sqs queue `{name}`: messages could not be kept hidden, they may come again: {why}"
                ));
            }
            Some(_) => {}
        }
    }

    /// Deletes what is durable. While somebody has to give a permission the messages are kept hidden, so that none goes to the
    /// dead-letter queue for it.
    async fn delete(&mut self) {
        let mut backoff = Backoff::default();
        loop {
            let trouble = match self.delete_once().await {
                Ok(None) => return self.context.board.forget(&self.part),
                Ok(Some(why)) => Trouble::new(Kind::Passing, why),
                Err(trouble) => trouble,
            };
            let pause = trouble.pause(&mut backoff, &self.context.settings.pace);
            let waits =
                trouble.kind.needs_somebody() && trouble.kind != Kind::Missing && !self.spent && !self.context.ends();
            let most = if self.context.ends() { DELETES_AT_END } else { DELETES };
            if waits {
                // Not one of the tries: a short outage after a long wait must not give up at once.
                backoff.reset();
                self.context.board.is(&self.part, Condition::Failing { why: trouble.why.clone() });
            } else if trouble.kind == Kind::Missing || backoff.tries() >= most {
                let (n, name) = (self.handles.len(), &self.place.queue.name);
                self.context.board.forget(&self.part);
                return self.context.board.remark(format!(
                    "sqs queue `{name}`: {n} messages are durable and could not be deleted; they come again and are dropped by their ids: {}",
                    trouble.why
                ));
            }
            self.pause(pause).await;
        }
    }

    /// One try. What is left stays in `handles`; the text says why.
    async fn delete_once(&mut self) -> Result<Option<String>, Trouble> {
        let entry = |(at, handle): (usize, &String)| {
            DeleteMessageBatchRequestEntry::builder().id(at.to_string()).receipt_handle(handle).build()
        };
        let entries = self.handles.iter().enumerate().map(entry).collect::<Result<Vec<_>, _>>();
        let entries = entries.map_err(|error| Trouble::new(Kind::Refused, error.to_string()))?;
        let call =
            self.place.way.client.delete_message_batch().queue_url(&*self.place.url).set_entries(Some(entries)).send();
        let limit = self.context.settings.pace.patience;
        let answer = within(limit, "DeleteMessageBatch", &self.place.queue.name, call).await?;
        // A handle that is no good any more will not be later: its message comes again.
        let (never, again): (Vec<_>, Vec<_>) =
            answer.failed.iter().partition(|failed| failed.sender_fault && !denied(failed));
        if let Some(failed) = never.first() {
            let (n, name) = (never.len(), &self.place.queue.name);
            self.context.board.remark(format!(
                "sqs queue `{name}`: {n} messages are durable and cannot be deleted; they come again and are dropped by their ids: {}",
                said(failed, "DeleteMessage")
            ));
        }
        let left: Vec<String> =
            again.iter().filter_map(|failed| self.handles.get(failed.id.parse::<usize>().ok()?).cloned()).collect();
        self.handles = left;
        let first = again.first().map(|failed| said(failed, "DeleteMessage"));
        match again.iter().find(|failed| denied(failed)) {
            Some(failed) => Err(Trouble::new(kind_of(&failed.code, 400), said(failed, "DeleteMessage"))),
            None => Ok(first),
        }
    }

    /// Pauses and keeps the messages hidden meanwhile. The end of the source cuts it short.
    async fn pause(&mut self, pause: Duration) {
        let (context, until) = (Arc::clone(&self.context), Instant::now() + pause);
        if context.ends() {
            return sleep_until(until.min(Instant::now() + Duration::from_millis(200))).await;
        }
        loop {
            tokio::select! {
                () = context.ended() => return,
                () = sleep_until(until) => return,
                () = sleep_until(self.due), if !self.spent => self.extend().await,
            }
        }
    }
}

/// How long to hide messages now that were received so long ago: a whole timeout, or what is left of the 12 hours. `None`: nothing is.
fn next_hold(visibility: Duration, age: Duration) -> Option<Duration> {
    let left = MOST_VISIBILITY.saturating_sub(age + MARGIN);
    let hidden = visibility.min(left);
    (hidden >= Duration::from_secs(1)).then_some(hidden)
}

async fn change_visibility(
    place: &Place,
    handles: &[String],
    hidden: Duration,
    limit: Duration,
) -> Result<Vec<BatchResultErrorEntry>, Trouble> {
    let seconds = i32::try_from(hidden.as_secs()).unwrap_or(i32::MAX);
    let entry = |(at, handle): (usize, &String)| {
        let entry = ChangeMessageVisibilityBatchRequestEntry::builder().id(at.to_string());
        entry.receipt_handle(handle).visibility_timeout(seconds).build()
    };
    let entries = handles.iter().enumerate().map(entry).collect::<Result<Vec<_>, _>>();
    let entries = entries.map_err(|error| Trouble::new(Kind::Refused, error.to_string()))?;
    let call =
        place.way.client.change_message_visibility_batch().queue_url(&*place.url).set_entries(Some(entries)).send();
    Ok(within(limit, "ChangeMessageVisibilityBatch", &place.queue.name, call).await?.failed)
}

fn denied(failed: &BatchResultErrorEntry) -> bool {
    matches!(kind_of(&failed.code, 400), Kind::Denied | Kind::Credentials)
}

fn said(failed: &BatchResultErrorEntry, action: &str) -> String {
    format!("{action}: {}: {}", failed.code, failed.message.as_deref().unwrap_or("without a message"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_asked_to_be_hidden_beyond_twelve_hours() {
        const H: u64 = 3600;
        for (visibility, age, hold) in [
            (30, 0, Some(30)),
            (30, 11 * H, Some(30)),
            (2 * H, 11 * H, Some(H - 30)),
            (12 * H, 0, Some(12 * H - 30)),
            (30, 12 * H - 40, Some(10)),
            (30, 12 * H - 30, None),
            (30, 13 * H, None),
        ] {
            let held = next_hold(Duration::from_secs(visibility), Duration::from_secs(age));
            assert_eq!(held, hold.map(Duration::from_secs), "{visibility} s after {age} s");
        }
    }
}

//! Statuses and rejected events, out to a queue.
//!
//! ```text
//! notes -> batch (10, size; FIFO: one of a key) -> SendMessageBatch -> what failed is sent again, before what follows it
//! ```
//!
//! Never: two notes of one key in one batch of a FIFO queue (the second could arrive while the first fails), or a note counted that
//! SQS has not taken. A standard queue may show a note twice and out of order: its id and its `seq` tell.

use crate::client::{self, Way};
use crate::queue::Queue;
use crate::settings::{Settings, SqsError};
use crate::trouble::{Backoff, Kind, Trouble, kind_of, within};
use crate::wire::{deduplication, escaped, group};
use aws_sdk_sqs::types::{MessageAttributeValue, QueueAttributeName, SendMessageBatchRequestEntry};
use forebay_source::{Note, Sink, SinkError};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::Instant;

/// Messages that SQS takes at once.
const AT_ONCE: usize = 10;
/// What a queue takes at least unless somebody lowered it; newer ones take 1 MiB. Used until the queue has told.
const MOST_BYTES: usize = 256 * 1024;
/// For the names, types and values of the attributes (some 100 bytes), which count as well.
const ATTRIBUTES: usize = 512;
/// For one call of [`Sink::send`].
const SEND: Duration = Duration::from_secs(8);
const CONTENT_TYPE: &str = "application/cloudevents+json";

/// One queue to send to.
#[derive(Debug)]
pub struct SqsSink {
    settings: Settings,
    queue: Queue,
    name: String,
    runtime: Handle,
    way: Option<Way>,
    /// The URL and the most bytes of a message and of a batch, once known.
    target: Option<(Arc<str>, usize)>,
    most_bytes: usize,
}

/// One note as it is sent.
struct Letter<'a> {
    note: &'a Note,
    body: String,
    size: usize,
}

impl SqsSink {
    /// Checks the settings. The queue is reached with the first note.
    ///
    /// # Errors
    /// The settings cannot be.
    pub fn new(settings: Settings, queue: &str, runtime: Handle) -> Result<SqsSink, SqsError> {
        settings.check_place()?;
        let queue_there = Queue::one(queue)?;
        let name = format!("sqs:{}", queue_there.name);
        let mut settings = settings;
        // Its URL may name the region.
        settings.queues = vec![queue.to_owned()];
        let most_bytes = MOST_BYTES - ATTRIBUTES;
        Ok(SqsSink { settings, queue: queue_there, name, runtime, way: None, target: None, most_bytes })
    }

    async fn send_all(&mut self, notes: &[Note]) -> Result<(), SinkError> {
        let deadline = Instant::now() + SEND;
        let (way, url, limit) = self.reach(deadline).await.map_err(passing)?;
        let letters = notes.iter().map(|note| letter(note, limit)).collect::<Result<Vec<_>, _>>()?;
        let mut left: Vec<&Letter<'_>> = letters.iter().collect();
        let (mut backoff, mut at_once) = (Backoff::default(), AT_ONCE);
        while !left.is_empty() {
            let (batch, rest) = cut(&left, at_once, limit, self.queue.is_fifo());
            let (failed, trouble) = match self.send_batch(&way, &url, &batch, deadline).await {
                // A batch that is refused as a whole does not say for whom: one by one it shows.
                Err(trouble) if trouble.kind == Kind::Refused && batch.len() > 1 => {
                    at_once = 1;
                    continue;
                }
                Ok((failed, trouble)) => (failed, trouble),
                Err(trouble) => (batch, Some(trouble)),
            };
            // What failed goes first: nothing of its key overtakes it.
            let stuck = failed.first().map(|letter| letter.note.number);
            left = failed;
            left.extend(rest);
            let Some(trouble) = trouble else {
                backoff.reset();
                continue;
            };
            if trouble.kind == Kind::Missing {
                self.target = None;
            }
            if let (Kind::Refused, Some(number)) = (trouble.kind, stuck) {
                return Err(SinkError::Refused { number, why: trouble.why });
            }
            let pause = backoff.next(self.settings.pace.first_pause, self.settings.pace.longest_pause);
            if trouble.kind.needs_somebody() || Instant::now() + pause >= deadline {
                return Err(passing(trouble));
            }
            tokio::time::sleep(pause).await;
        }
        Ok(())
    }

    /// Where the queue is and what it takes.
    async fn reach(&mut self, deadline: Instant) -> Result<(Way, Arc<str>, usize), Trouble> {
        let way = match &self.way {
            Some(way) => way.clone(),
            None => self.way.insert(client::find(&self.settings).await?).clone(),
        };
        if let Some((url, limit)) = &self.target {
            return Ok((way, Arc::clone(url), *limit));
        }
        let patience = self.patience(deadline);
        self.queue.lost().await;
        let url = self.queue.url(&way, patience).await?;
        let asked = self.queue.attributes(&way, &url, patience, &[QueueAttributeName::MaximumMessageSize]).await;
        let limit = match asked {
            Ok(found) => found.get("MaximumMessageSize").and_then(|text| text.parse().ok()).unwrap_or(MOST_BYTES),
            // Sending may be allowed where asking is not.
            Err(trouble) if trouble.kind == Kind::Denied => MOST_BYTES,
            Err(trouble) => return Err(trouble),
        };
        self.most_bytes = limit.saturating_sub(ATTRIBUTES);
        self.target = Some((Arc::clone(&url), limit));
        Ok((way, url, limit))
    }

    fn patience(&self, deadline: Instant) -> Duration {
        self.settings.pace.patience.min(deadline.saturating_duration_since(Instant::now()))
    }

    /// Sends a batch. What failed comes back, with why: the first of it is the one that the trouble is about.
    async fn send_batch<'a, 'n>(
        &self,
        way: &Way,
        url: &str,
        batch: &[&'a Letter<'n>],
        deadline: Instant,
    ) -> Result<(Vec<&'a Letter<'n>>, Option<Trouble>), Trouble> {
        let entries = batch.iter().enumerate().map(|(at, letter)| entry(at, letter, self.queue.is_fifo()));
        let entries = entries.collect::<Result<Vec<_>, _>>().map_err(|e| Trouble::new(Kind::Refused, e.to_string()))?;
        let call = way.client.send_message_batch().queue_url(url).set_entries(Some(entries)).send();
        let answer = within(self.patience(deadline), "SendMessageBatch", &self.queue.name, call).await?;
        let mut failed: Vec<(usize, Trouble)> = Vec::new();
        for one in &answer.failed {
            let kind = if one.sender_fault { kind_of(&one.code, 400) } else { Kind::Passing };
            let text = one.message.as_deref().unwrap_or("without a message");
            let why = format!("sqs queue `{}`: SendMessage: {}: {text}", self.queue.name, one.code);
            if let Ok(at) = one.id.parse() {
                failed.push((at, Trouble::new(kind, why)));
            }
        }
        failed.sort_by_key(|(at, _)| *at);
        // A note that is never taken is told first, else the first that failed.
        let worst = failed.iter().position(|(_, t)| t.kind == Kind::Refused).unwrap_or(0);
        let refused_at = failed.get(worst).filter(|(_, t)| t.kind == Kind::Refused).map(|(at, _)| *at);
        let trouble = failed.get(worst).map(|(_, trouble)| trouble.clone());
        let mut left: Vec<_> = failed.iter().filter_map(|(at, _)| batch.get(*at).copied()).collect();
        if let Some(refused) = refused_at.and_then(|at| batch.get(at).copied()) {
            left = vec![refused];
        }
        Ok((left, trouble))
    }
}

impl Sink for SqsSink {
    fn name(&self) -> &str {
        &self.name
    }

    /// 256 KiB less the attributes until the queue has told its own limit.
    fn most_bytes(&self) -> usize {
        self.most_bytes
    }

    /// Not to be called from a task of the runtime.
    fn send(&mut self, notes: &[Note]) -> Result<(), SinkError> {
        if notes.is_empty() {
            return Ok(());
        }
        let runtime = self.runtime.clone();
        runtime.block_on(self.send_all(notes))
    }
}

fn passing(trouble: Trouble) -> SinkError {
    SinkError::Passing { why: trouble.why }
}

fn letter(note: &Note, limit: usize) -> Result<Letter<'_>, SinkError> {
    let refused = |why: String| SinkError::Refused { number: note.number, why };
    let text = std::str::from_utf8(&note.bytes).map_err(|error| refused(format!("it is not UTF-8: {error}")))?;
    let body = escaped(text).into_owned();
    let attributes = [("content-type", CONTENT_TYPE), ("ce_type", note.kind.as_str())];
    let size =
        body.len() + attributes.iter().map(|(name, value)| name.len() + "String".len() + value.len()).sum::<usize>();
    if size > limit {
        return Err(refused(format!("{size} bytes with its attributes; the queue takes {limit}")));
    }
    if body.is_empty() || note.kind.is_empty() {
        return Err(refused("it has no body or no type; SQS takes neither".to_owned()));
    }
    Ok(Letter { note, body, size })
}

/// The next batch, and what stays, both in order. In a FIFO queue's batch each key stands once.
fn cut<'a, 'n>(
    left: &[&'a Letter<'n>],
    most: usize,
    limit: usize,
    fifo: bool,
) -> (Vec<&'a Letter<'n>>, Vec<&'a Letter<'n>>) {
    let (mut batch, mut rest, mut keys, mut bytes, mut full) = (Vec::new(), Vec::new(), BTreeSet::new(), 0, false);
    for letter in left {
        full = full || batch.len() == most || bytes + letter.size > limit;
        let again = fifo && !full && !keys.insert(letter.note.key.as_str());
        if full || again {
            rest.push(*letter);
        } else {
            bytes += letter.size;
            batch.push(*letter);
        }
    }
    (batch, rest)
}

fn entry(
    at: usize,
    letter: &Letter<'_>,
    fifo: bool,
) -> Result<SendMessageBatchRequestEntry, aws_sdk_sqs::error::BuildError> {
    let text = |value: &str| MessageAttributeValue::builder().data_type("String").string_value(value).build();
    let entry = SendMessageBatchRequestEntry::builder()
        .id(at.to_string())
        .message_body(letter.body.as_str())
        .message_attributes("content-type", text(CONTENT_TYPE)?)
        .message_attributes("ce_type", text(&letter.note.kind)?);
    if !fifo {
        return entry.build();
    }
    let note = letter.note;
    entry.message_group_id(group(&note.key)).message_deduplication_id(deduplication(&note.id)).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(number: u64, key: &str, bytes: usize) -> Note {
        let kind = "status.queued".to_owned();
        Note { number, id: format!("id-{number}"), key: key.to_owned(), kind, bytes: vec![b'1'; bytes] }
    }

    fn numbers(letters: &[&Letter<'_>]) -> Vec<u64> {
        letters.iter().map(|letter| letter.note.number).collect()
    }

    #[test]
    fn a_batch_holds_ten_and_no_more_than_the_limit() {
        let notes: Vec<Note> = (1..=12).map(|n| note(n, "a", 10)).collect();
        let letters: Vec<Letter<'_>> = notes.iter().map(|n| letter(n, 1024).expect("small")).collect();
        let all: Vec<_> = letters.iter().collect();
        let (batch, rest) = cut(&all, AT_ONCE, 100_000, false);
        assert_eq!((numbers(&batch), numbers(&rest)), ((1..=10).collect(), vec![11, 12]));
        let (batch, _) = cut(&all, AT_ONCE, letters[0].size * 3, false);
        assert_eq!(numbers(&batch), [1, 2, 3]);
    }

    #[test]
    fn in_a_fifo_batch_each_key_stands_once_and_nothing_overtakes_its_own() {
        let notes = [note(1, "a", 1), note(2, "a", 1), note(3, "b", 1), note(4, "a", 1), note(5, "c", 1)];
        let letters: Vec<Letter<'_>> = notes.iter().map(|n| letter(n, 1024).expect("small")).collect();
        let (batch, rest) = cut(&letters.iter().collect::<Vec<_>>(), AT_ONCE, 100_000, true);
        assert_eq!((numbers(&batch), numbers(&rest)), (vec![1, 3, 5], vec![2, 4]));
        // A full batch ends there: what did not fit stays before what follows.
        let (batch, rest) = cut(&letters.iter().collect::<Vec<_>>(), AT_ONCE, letters[0].size, true);
        assert_eq!((numbers(&batch), numbers(&rest)), (vec![1], vec![2, 3, 4, 5]));
    }

    #[test]
    fn what_is_too_large_is_told_by_its_number() {
        let most = 256 * 1024 - ATTRIBUTES;
        assert!(letter(&note(7, "a", most), 256 * 1024).is_ok());
        assert!(matches!(letter(&note(7, "a", 256 * 1024), 256 * 1024), Err(SinkError::Refused { number: 7, .. })));
        let odd = Note { bytes: vec![0xff], ..note(8, "a", 1) };
        assert!(matches!(letter(&odd, 1024), Err(SinkError::Refused { number: 8, .. })));
    }
}

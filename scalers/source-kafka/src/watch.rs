//! The watch over a reader, with a client of its own: what waits in each partition, which topics are gone, whether the reader stands still.
//!
//! ```text
//! backlog = end of the log - max(position in the journal, start of the log); no answer: unknown, never 0
//! ```
//!
//! Never: a judgement from silence alone: before a reader is called stalled, this client has seen a message that it should have had.

use crate::client::{Client, Topic};
use crate::error::KafkaError;
use crate::place::Kept;
use crate::settings::{METADATA_MS, Settings};
use crate::shared::{Shared, View, Which};
use crate::wait::now_ms;
use forebay_source::{Backlog, Durable, Health};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A broker has so long for each answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);
/// New partitions are ours after the metadata's refresh and a rebalance; beyond three of them something is wrong.
const DEALT_WITHIN: Duration = Duration::from_millis(3 * METADATA_MS);

/// What a round found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// All is well, or nobody can say.
    Fine,
    /// Messages wait, there is room, and the reader does not read them.
    Stalled(String),
    /// Partitions are nobody's.
    Unread(String),
}

/// The watch.
pub(crate) struct Watch {
    client: Client,
    durable: Durable,
    health: Health,
    topics: Vec<String>,
    group: String,
    stall: Duration,
    /// Topics that were not there at the last look.
    missing: BTreeSet<usize>,
    /// Partitions that were there at the last look.
    seen: BTreeMap<usize, Vec<i32>>,
    /// From the first to the second offset there is nothing to read (markers of transactions, aborted messages).
    empty: BTreeMap<Which, (u64, u64)>,
    /// Since when partitions are there that are not ours.
    unread: Option<Instant>,
    /// Since when brokers answer. A reader is not blamed for the time before.
    reached: Option<Instant>,
}

impl Watch {
    pub(crate) fn new(settings: &Settings, durable: Durable, health: Health) -> Result<Watch, KafkaError> {
        Ok(Watch {
            client: Client::new(settings)?,
            durable,
            health,
            topics: settings.topics.clone(),
            group: settings.group.clone(),
            stall: settings.stall,
            missing: BTreeSet::new(),
            seen: BTreeMap::new(),
            empty: BTreeMap::new(),
            unread: None,
            reached: None,
        })
    }

    /// Looks once.
    pub(crate) fn round(&mut self, shared: &Shared, stop: &AtomicBool) -> Verdict {
        self.client.serve();
        let mut verdict = Verdict::Fine;
        for channel in 0..self.topics.len() {
            if stop.load(Ordering::Acquire) {
                return Verdict::Fine;
            }
            match self.topic(channel, shared, stop) {
                Ok(Verdict::Fine) => {}
                Ok(other) => verdict = other,
                Err(why) => {
                    // One broker that does not answer costs a time limit, not one a topic.
                    self.nobody_knows(&why);
                    self.reached = None;
                    self.unread = None;
                    shared.fails(why, true);
                    return Verdict::Fine;
                }
            }
        }
        shared.reached();
        if verdict == Verdict::Fine { self.dealt(shared) } else { verdict }
    }

    /// Whether the group has a member. `None`: no broker says so in time.
    pub(crate) fn has_member(&self) -> Option<bool> {
        match self.client.members(&self.group, ANSWERS_WITHIN) {
            Ok((_, members)) => Some(!members.is_empty()),
            Err(why) => {
                tracing::debug!(why, "the group's members are not known");
                None
            }
        }
    }

    /// One topic's partitions.
    fn topic(&mut self, channel: usize, shared: &Shared, stop: &AtomicBool) -> Result<Verdict, String> {
        let topic = self.topics[channel].clone();
        let numbers = match self.client.topic(&topic, ANSWERS_WITHIN)? {
            Topic::There(numbers) => numbers,
            Topic::Missing => {
                self.is_missing(channel, &topic);
                return Ok(Verdict::Fine);
            }
        };
        if self.missing.remove(&channel) {
            self.health.forget(&topic);
            self.health.remark(now_ms(), format!("topic {topic} is there again, with {} partitions", numbers.len()));
        }
        for gone in self.seen.get(&channel).into_iter().flatten().filter(|one| !numbers.contains(one)) {
            self.health.forget(&format!("{topic}/{gone}"));
        }
        self.seen.insert(channel, numbers.clone());
        let mut verdict = Verdict::Fine;
        for number in numbers {
            if stop.load(Ordering::Acquire) {
                break;
            }
            let (low, high) = self.client.ends(&topic, number, ANSWERS_WITHIN)?;
            let view = shared.views().get(&(channel, number)).cloned();
            self.tell_backlog(&topic, (channel, number), view.as_ref(), low, high);
            if let Some(view) = view
                && let Some(why) = self.stalled(&topic, (channel, number), &view, high, shared)
            {
                verdict = Verdict::Stalled(why);
            }
        }
        Ok(verdict)
    }

    fn is_missing(&mut self, channel: usize, topic: &str) {
        let why = format!("topic {topic} is not there: create it, or take it out of the settings");
        if self.missing.insert(channel) {
            tracing::warn!("{why}");
            self.health.remark(now_ms(), why.clone());
        }
        for number in self.seen.remove(&channel).unwrap_or_default() {
            self.health.forget(&format!("{topic}/{number}"));
        }
        self.health.backlog(topic, Backlog::Unknown { why });
    }

    fn tell_backlog(&self, topic: &str, which: Which, view: Option<&View>, low: u64, high: u64) {
        let position = match view {
            Some(view) => self.durable.of(&view.key),
            None => Kept::of(&self.durable, topic, which.1).position,
        };
        let from = self.beyond_empty(which, position.unwrap_or(0).max(low));
        self.health.backlog(&format!("{topic}/{}", which.1), Backlog::Known(high.saturating_sub(from)));
    }

    /// The offset, or the end of the stretch without messages that begins there.
    fn beyond_empty(&self, which: Which, from: u64) -> u64 {
        match self.empty.get(&which) {
            Some((start, end)) if from >= *start => from.max(*end),
            _ => from,
        }
    }

    /// Why the reader of this partition is to be made anew, if it is.
    fn stalled(&mut self, topic: &str, which: Which, view: &View, high: u64, shared: &Shared) -> Option<String> {
        let unread = high.saturating_sub(self.beyond_empty(which, view.next));
        let reached = *self.reached.get_or_insert_with(Instant::now);
        let since = shared.excused().map_or(view.moved, |excused| excused.max(view.moved)).max(reached);
        if unread == 0 || since.elapsed() < self.stall {
            return None;
        }
        match self.client.has_message(topic, which.1, view.next, ANSWERS_WITHIN) {
            Some(true) => Some(format!(
                "{topic}/{}: {unread} messages wait from {} on and the consumer has brought none for {} ms: it is made anew",
                which.1,
                view.next,
                since.elapsed().as_millis()
            )),
            Some(false) => {
                self.empty.insert(which, (view.next, high));
                None
            }
            None => None,
        }
    }

    /// Whether every partition is ours; and if not, whose.
    fn dealt(&mut self, shared: &Shared) -> Verdict {
        let all: usize = self.seen.values().map(Vec::len).sum();
        let ours = {
            let views = shared.views();
            let is_ours = |channel: usize, number: &i32| views.contains_key(&(channel, *number));
            self.seen
                .iter()
                .map(|(channel, numbers)| numbers.iter().filter(|n| is_ours(*channel, n)).count())
                .sum::<usize>()
        };
        if ours == all {
            self.unread = None;
            shared.shares(None);
            return Verdict::Fine;
        }
        let since = *self.unread.get_or_insert_with(Instant::now);
        let members = match self.client.members(&self.group, ANSWERS_WITHIN) {
            Ok((_, members)) => members,
            Err(why) => {
                tracing::debug!(why, "the group's members are not known");
                Vec::new()
            }
        };
        if members.len() > 1 {
            let why = format!(
                "another member of group {} holds {} of {all} partitions ({}): every controller needs its own group",
                self.group,
                all - ours,
                members.join(", ")
            );
            if shared.shares(Some(why.clone())) {
                tracing::warn!("{why}");
                self.health.remark(now_ms(), why);
            }
            return Verdict::Fine;
        }
        shared.shares(None);
        if since.elapsed() < DEALT_WITHIN || shared.trouble().is_some() {
            return Verdict::Fine;
        }
        self.unread = None;
        Verdict::Unread(format!(
            "{} of {all} partitions are nobody's in group {}: the consumer joins it anew",
            all - ours,
            self.group
        ))
    }

    /// No broker answers: what was known of any partition is no longer.
    fn nobody_knows(&self, why: &str) {
        for (channel, topic) in self.topics.iter().enumerate() {
            let unknown = || Backlog::Unknown { why: why.to_owned() };
            match self.seen.get(&channel) {
                Some(numbers) => numbers.iter().for_each(|n| self.health.backlog(&format!("{topic}/{n}"), unknown())),
                None => self.health.backlog(topic, unknown()),
            }
        }
    }
}

//! Watches a reader with a client of its own: how many messages wait in each partition, which topics are gone, and whether the reader hangs.
//!
//! ```text
//! backlog = end of the log - max(position in the journal, start of the log); without a response it is unknown, never 0
//! ```
//!
//! A reader is called stalled only after this client has received a message that the reader should have received.

use crate::blocking::now_ms;
use crate::error::KafkaError;
use crate::probe_client::{ProbeClient, TopicState};
use crate::settings::{KafkaSettings, METADATA_MS};
use crate::shared::{ClearedBy, PartitionKey, PartitionProgress, ReaderState};
use crate::start_offset::StoredPosition;
use forebay_source::{Backlog, DurablePositions, Health};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The time limit for each response of a broker.
const RESPONSE_WITHIN: Duration = Duration::from_secs(2);
/// New partitions are assigned after a refresh of the metadata and a rebalance. After three refreshes something is wrong.
const ASSIGNED_WITHIN: Duration = Duration::from_millis(3 * METADATA_MS);

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WatchVerdict {
    /// The reader works, or brokers do not respond.
    Fine,
    /// The reader does not receive messages although they are there and it is not held back.
    Stalled(String),
    /// Partitions are assigned to no member.
    Unassigned(String),
}

pub(crate) struct Watchdog {
    client: ProbeClient,
    positions: DurablePositions,
    health: Health,
    topics: Vec<String>,
    group: String,
    stall_timeout: Duration,
    /// Topics that did not exist at the last check.
    missing: BTreeSet<usize>,
    /// Partitions of each topic that existed at the last check.
    partitions: BTreeMap<usize, Vec<i32>>,
    /// Ranges of offsets without messages: markers of transactions, and aborted messages.
    empty_ranges: BTreeMap<PartitionKey, (u64, u64)>,
    /// Since when there are partitions that are not assigned to this reader.
    unassigned_since: Option<Instant>,
    /// Since when brokers respond. The time before does not count as a stall.
    reachable_since: Option<Instant>,
}

impl Watchdog {
    pub(crate) fn new(
        settings: &KafkaSettings,
        positions: DurablePositions,
        health: Health,
    ) -> Result<Watchdog, KafkaError> {
        Ok(Watchdog {
            client: ProbeClient::new(settings)?,
            positions,
            health,
            topics: settings.topics.clone(),
            group: settings.group.clone(),
            stall_timeout: settings.stall_timeout,
            missing: BTreeSet::new(),
            partitions: BTreeMap::new(),
            empty_ranges: BTreeMap::new(),
            unassigned_since: None,
            reachable_since: None,
        })
    }

    /// Checks all topics once.
    pub(crate) fn check(&mut self, shared: &ReaderState, stop: &AtomicBool) -> WatchVerdict {
        self.client.serve();
        let mut verdict = WatchVerdict::Fine;
        for channel in 0..self.topics.len() {
            if stop.load(Ordering::Acquire) {
                return WatchVerdict::Fine;
            }
            match self.topic(channel, shared, stop) {
                Ok(WatchVerdict::Fine) => {}
                Ok(other) => verdict = other,
                Err(why) => {
                    // A broker that does not respond costs one time limit, not one for each topic.
                    self.backlogs_unknown(&why);
                    self.reachable_since = None;
                    self.unassigned_since = None;
                    shared.set_failure(why, ClearedBy::Response);
                    return WatchVerdict::Fine;
                }
            }
        }
        shared.broker_responded();
        if verdict == WatchVerdict::Fine { self.all_assigned(shared) } else { verdict }
    }

    /// Whether the group has a member. `None` if no broker responds in time.
    pub(crate) fn has_member(&self) -> Option<bool> {
        self.members().map(|members| !members.is_empty())
    }

    /// The members of the group, if they are known.
    fn members(&self) -> Option<Vec<String>> {
        match self.client.members(&self.group, RESPONSE_WITHIN) {
            Ok((_, members)) => Some(members),
            Err(why) => {
                tracing::debug!(why, "the members of the group are unknown");
                None
            }
        }
    }

    /// Checks the partitions of one topic.
    fn topic(&mut self, channel: usize, shared: &ReaderState, stop: &AtomicBool) -> Result<WatchVerdict, String> {
        let topic = self.topics[channel].clone();
        let numbers = match self.client.topic(&topic, RESPONSE_WITHIN)? {
            TopicState::Exists(numbers) => numbers,
            TopicState::Missing => {
                self.topic_missing(channel, &topic);
                return Ok(WatchVerdict::Fine);
            }
        };
        if self.missing.remove(&channel) {
            self.health.remove_backlog(&topic);
            self.health.add_remark(now_ms(), format!("topic {topic} exists again, with {} partitions", numbers.len()));
        }
        for gone in self.partitions.get(&channel).into_iter().flatten().filter(|one| !numbers.contains(one)) {
            self.health.remove_backlog(&format!("{topic}/{gone}"));
        }
        self.partitions.insert(channel, numbers.clone());
        let mut verdict = WatchVerdict::Fine;
        for number in numbers {
            if stop.load(Ordering::Acquire) {
                break;
            }
            let (low, high) = self.client.offsets(&topic, number, RESPONSE_WITHIN)?;
            let progress = shared.progress().get(&(channel, number)).cloned();
            self.report_backlog(&topic, (channel, number), progress.as_ref(), low, high);
            if let Some(progress) = progress
                && let Some(why) = self.stalled(&topic, (channel, number), &progress, high, shared)
            {
                verdict = WatchVerdict::Stalled(why);
            }
        }
        Ok(verdict)
    }

    fn topic_missing(&mut self, channel: usize, topic: &str) {
        let why = format!("topic {topic} does not exist: create it, or remove it from the settings");
        if self.missing.insert(channel) {
            tracing::warn!("{why}");
            self.health.add_remark(now_ms(), why.clone());
        }
        for number in self.partitions.remove(&channel).unwrap_or_default() {
            self.health.remove_backlog(&format!("{topic}/{number}"));
        }
        self.health.set_backlog(topic, Backlog::Unknown { why });
    }

    fn report_backlog(
        &self,
        topic: &str,
        which: PartitionKey,
        progress: Option<&PartitionProgress>,
        low: u64,
        high: u64,
    ) {
        let position = match progress {
            Some(progress) => self.positions.get(&progress.key),
            None => StoredPosition::load(&self.positions, topic, which.1).position,
        };
        let from = self.skip_empty(which, position.unwrap_or(0).max(low));
        self.health.set_backlog(&format!("{topic}/{}", which.1), Backlog::Known(high.saturating_sub(from)));
    }

    /// The offset, or the end of the range without messages that it is in.
    fn skip_empty(&self, which: PartitionKey, from: u64) -> u64 {
        match self.empty_ranges.get(&which) {
            Some((start, end)) if from >= *start => from.max(*end),
            _ => from,
        }
    }

    /// Why the reader has to be restarted because of this partition, if it has to.
    fn stalled(
        &mut self,
        topic: &str,
        which: PartitionKey,
        progress: &PartitionProgress,
        high: u64,
        shared: &ReaderState,
    ) -> Option<String> {
        let unread = high.saturating_sub(self.skip_empty(which, progress.next));
        let reachable_since = *self.reachable_since.get_or_insert_with(Instant::now);
        let since = shared.stall_clock().map_or(progress.moved, |clock| clock.max(progress.moved)).max(reachable_since);
        if unread == 0 || since.elapsed() < self.stall_timeout {
            return None;
        }
        match self.client.has_message(topic, which.1, progress.next, RESPONSE_WITHIN) {
            Some(true) => Some(format!(
                "{topic}/{}: {unread} messages wait from {} on and the consumer has received none for {} ms: it is recreated",
                which.1,
                progress.next,
                since.elapsed().as_millis()
            )),
            Some(false) => {
                self.empty_ranges.insert(which, (progress.next, high));
                None
            }
            None => None,
        }
    }

    /// Checks whether all partitions are assigned to this reader, and if not, to whom.
    fn all_assigned(&mut self, shared: &ReaderState) -> WatchVerdict {
        let all: usize = self.partitions.values().map(Vec::len).sum();
        let known =
            |channel: usize, number: i32| self.partitions.get(&channel).is_some_and(|all| all.contains(&number));
        let assigned = shared.progress().keys().filter(|(channel, number)| known(*channel, *number)).count();
        if assigned == all {
            self.unassigned_since = None;
            shared.set_other_members(None);
            return WatchVerdict::Fine;
        }
        let since = *self.unassigned_since.get_or_insert_with(Instant::now);
        let members = self.members().unwrap_or_default();
        if members.len() > 1 {
            let why = format!(
                "another member of group {} holds {} of {all} partitions ({}): every controller needs its own group",
                self.group,
                all - assigned,
                members.join(", ")
            );
            if shared.set_other_members(Some(why.clone())) {
                tracing::warn!("{why}");
                self.health.add_remark(now_ms(), why);
            }
            return WatchVerdict::Fine;
        }
        shared.set_other_members(None);
        if since.elapsed() < ASSIGNED_WITHIN || shared.failure().is_some() {
            return WatchVerdict::Fine;
        }
        self.unassigned_since = None;
        WatchVerdict::Unassigned(format!(
            "{} of {all} partitions are assigned to nobody in group {}: the consumer joins it again",
            all - assigned,
            self.group
        ))
    }

    /// No broker responds: all backlogs are unknown.
    fn backlogs_unknown(&self, why: &str) {
        for (channel, topic) in self.topics.iter().enumerate() {
            let unknown = || Backlog::Unknown { why: why.to_owned() };
            match self.partitions.get(&channel) {
                Some(numbers) => {
                    numbers.iter().for_each(|n| self.health.set_backlog(&format!("{topic}/{n}"), unknown()))
                }
                None => self.health.set_backlog(topic, unknown()),
            }
        }
    }
}

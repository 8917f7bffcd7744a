//! Watches a reader with a client of its own: how many messages wait in each partition, which topics are gone, and whether the reader hangs.
//!
//! ```text
//! backlog = end of the log - max(position in the journal, start of the log); without a response it is unknown, never 0
//! ```
//!
//! What is refused of one topic, or not answered by one broker, is unknown alone. A broker that does not respond costs one time limit a check.
//!
//! A reader is called stalled only after this client has received a message that the reader should have received.

use crate::blocking::now_ms;
use crate::error::KafkaError;
use crate::probe_client::{LedPartition, ProbeClient, ProbeFailure, TopicState};
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

/// What the partitions of one check have shown, beside the verdict.
#[derive(Debug, Default)]
struct CheckNotes {
    /// The first thing that was not said, and why.
    unanswered: Option<String>,
    /// Brokers that did not respond: nothing more is asked of them.
    away: BTreeMap<i32, String>,
    /// A topic is refused: which partitions there are is not known.
    topic_refused: bool,
    /// The reader's partitions.
    read: Vec<ReadPartition>,
}

/// How far the reader is in a partition.
#[derive(Clone, Copy, Debug)]
struct ReadPartition {
    unread: u64,
    moved: Instant,
}

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
    /// Since when the broker of a partition responds. The time before does not count as a stall.
    reachable_since: BTreeMap<PartitionKey, Instant>,
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
            reachable_since: BTreeMap::new(),
        })
    }

    /// Checks all topics once.
    pub(crate) fn check(&mut self, shared: &ReaderState, stop: &AtomicBool) -> WatchVerdict {
        self.client.serve();
        let (mut verdict, mut notes) = (WatchVerdict::Fine, CheckNotes::default());
        let refused_at = shared.refused_at();
        for channel in 0..self.topics.len() {
            if stop.load(Ordering::Acquire) {
                return WatchVerdict::Fine;
            }
            match self.topic(channel, shared, stop, &mut notes) {
                Ok(WatchVerdict::Fine) => {}
                Ok(other) => verdict = other,
                Err(ProbeFailure::Refused(why)) => self.topic_refused(channel, why, &mut notes),
                Err(ProbeFailure::Unreachable(why)) => {
                    // No broker says which partitions there are: that costs one time limit, not one for each topic.
                    self.backlogs_unknown(&why);
                    self.reachable_since.clear();
                    self.unassigned_since = None;
                    shared.set_unanswered(None);
                    shared.set_failure(why, ClearedBy::Response);
                    return WatchVerdict::Fine;
                }
            }
        }
        shared.broker_responded();
        if let Some(refused_at) = refused_at.filter(|at| !notes.topic_refused && reads_again(&notes.read, *at)) {
            shared.read_since(refused_at);
        }
        shared.set_unanswered(notes.unanswered);
        let complete = verdict == WatchVerdict::Fine && !notes.topic_refused;
        if complete { self.all_assigned(shared) } else { verdict }
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
    fn topic(
        &mut self,
        channel: usize,
        shared: &ReaderState,
        stop: &AtomicBool,
        notes: &mut CheckNotes,
    ) -> Result<WatchVerdict, ProbeFailure> {
        let topic = self.topics[channel].clone();
        let partitions = match self.client.topic(&topic, RESPONSE_WITHIN)? {
            TopicState::Exists(partitions) => partitions,
            TopicState::Missing => {
                self.topic_missing(channel, &topic);
                return Ok(WatchVerdict::Fine);
            }
        };
        let numbers: Vec<i32> = partitions.iter().map(|one| one.number).collect();
        // What was said of the whole topic is over: that it does not exist, or is refused.
        self.health.remove_backlog(&topic);
        if self.missing.remove(&channel) {
            self.health.add_remark(now_ms(), format!("topic {topic} exists again, with {} partitions", numbers.len()));
        }
        for gone in self.partitions.get(&channel).into_iter().flatten().filter(|one| !numbers.contains(one)) {
            self.health.remove_backlog(&format!("{topic}/{gone}"));
        }
        self.partitions.insert(channel, numbers);
        let mut verdict = WatchVerdict::Fine;
        for partition in partitions {
            if stop.load(Ordering::Acquire) {
                break;
            }
            let which = (channel, partition.number);
            let Some((low, high)) = self.offsets(&topic, which, partition, notes) else { continue };
            let progress = shared.progress().get(&which).cloned();
            self.report_backlog(&topic, which, progress.as_ref(), low, high);
            let Some(progress) = progress else { continue };
            let unread = high.saturating_sub(self.skip_empty(which, progress.next));
            notes.read.push(ReadPartition { unread, moved: progress.moved });
            if let Some(why) = self.stalled(&topic, which, &progress, high, shared) {
                verdict = WatchVerdict::Stalled(why);
            }
        }
        Ok(verdict)
    }

    /// The first and last offset of a partition. `None`: its broker does not say them, and its backlog is unknown.
    fn offsets(
        &mut self,
        topic: &str,
        which: PartitionKey,
        partition: LedPartition,
        notes: &mut CheckNotes,
    ) -> Option<(u64, u64)> {
        let LedPartition { number, leader } = partition;
        let failure = match notes.away.get(&leader) {
            Some(why) => ProbeFailure::Unreachable(why.clone()),
            None => match self.client.offsets(topic, number, RESPONSE_WITHIN) {
                Ok(offsets) => return Some(offsets),
                Err(failure) => failure,
            },
        };
        if let ProbeFailure::Unreachable(why) = &failure {
            notes.away.entry(leader).or_insert_with(|| why.clone());
        }
        let why = failure.into_words();
        self.reachable_since.remove(&which);
        self.health.set_backlog(&format!("{topic}/{number}"), Backlog::Unknown { why: why.clone() });
        notes.unanswered.get_or_insert_with(|| format!("{topic}/{number}: {why}"));
        None
    }

    /// A broker does not say which partitions a topic has. Those of other topics are as they are.
    fn topic_refused(&mut self, channel: usize, why: String, notes: &mut CheckNotes) {
        let topic = &self.topics[channel];
        for number in self.partitions.remove(&channel).unwrap_or_default() {
            self.health.remove_backlog(&format!("{topic}/{number}"));
        }
        self.health.set_backlog(topic, Backlog::Unknown { why: why.clone() });
        self.reachable_since.retain(|(of, _), _| *of != channel);
        self.unassigned_since = None;
        notes.topic_refused = true;
        notes.unanswered.get_or_insert_with(|| format!("topic {topic}: {why}"));
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
        let reachable_since = *self.reachable_since.entry(which).or_insert_with(Instant::now);
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

/// Whether the reader reads again since something was refused: each partition that has messages was read since then, and there is one.
fn reads_again(read: &[ReadPartition], refused_at: Instant) -> bool {
    let since = |one: &ReadPartition| one.moved > refused_at;
    read.iter().any(since) && read.iter().all(|one| one.unread == 0 || since(one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_over_when_all_that_has_messages_was_read_since() {
        let refused_at = Instant::now();
        let after = refused_at + Duration::from_secs(1);
        let (unread, read) = (3, 0);
        for (partitions, over) in [
            (vec![], false),
            (vec![(read, refused_at)], false),
            (vec![(read, after), (read, refused_at)], true),
            (vec![(unread, after), (read, refused_at)], true),
            (vec![(read, after), (unread, refused_at)], false),
        ] {
            let all: Vec<ReadPartition> =
                partitions.iter().map(|(unread, moved)| ReadPartition { unread: *unread, moved: *moved }).collect();
            assert_eq!(reads_again(&all, refused_at), over, "{partitions:?}");
        }
    }
}

//! The reader's side towards the controller: it submits the messages of all partitions in batches, within the permits that it gets, and
//! takes the receipts. It does not talk to a broker.

use crate::blocking;
use crate::partition::{LogIdentity, Partition, PartitionState, TakeResult};
use crate::shared::{PartitionKey, ReaderState};
use crate::start_offset::StoredPosition;
use forebay_source::{Condition, ControllerStopped, Health, MessagePermit, SourceHandle};
use rdkafka::Message;
use rdkafka::message::BorrowedMessage;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Being held back for a shorter time is not reported.
const REPORT_AFTER: Duration = Duration::from_millis(100);
/// Receipts do not wake the thread. While nothing else can be done, they are polled at this interval.
const RECEIPT_INTERVAL: Duration = Duration::from_millis(5);

type PermitFuture = Pin<Box<dyn Future<Output = Result<MessagePermit, ControllerStopped>> + Send>>;

/// Messages that cannot be submitted yet.
pub(crate) struct BlockedSubmission {
    pub(crate) since: Instant,
    /// Whether the partitions are paused.
    pub(crate) paused: bool,
    /// Waits fairly for one permit. `None` if receipts are missing, not permits.
    permit: Option<PermitFuture>,
}

/// Submits what a reader has received.
pub(crate) struct Submitter {
    pub(crate) partitions: BTreeMap<PartitionKey, Partition>,
    pub(crate) blocked: Option<BlockedSubmission>,
    pub(crate) shared: Arc<ReaderState>,
    pub(crate) health: Health,
    handle: SourceHandle,
    topics: Vec<String>,
    /// The partition of the last message. The next message is usually from the same one.
    last: PartitionKey,
    /// A permit that was waited for.
    permit: Option<MessagePermit>,
    assigned: bool,
    reported: Option<Condition>,
}

impl Submitter {
    pub(crate) fn new(
        handle: SourceHandle,
        health: Health,
        shared: Arc<ReaderState>,
        topics: Vec<String>,
    ) -> Submitter {
        Submitter {
            partitions: BTreeMap::new(),
            blocked: None,
            shared,
            health,
            handle,
            topics,
            last: (0, 0),
            permit: None,
            assigned: false,
            reported: None,
        }
    }

    /// Replaces all partitions by these. Their positions come from the journal.
    pub(crate) fn assign(&mut self, list: &[(String, i32)]) {
        self.revoke();
        for (topic, number) in list {
            let Some(channel) = self.topics.iter().position(|known| known == topic) else { continue };
            let stored = StoredPosition::load(self.handle.positions(), topic, *number);
            self.partitions.insert((channel, *number), Partition::new(channel, topic, *number, stored));
        }
        tracing::info!(partitions = self.partitions.len(), "the group has assigned partitions");
        self.assigned = true;
        self.shared.clear_failure();
        self.shared.restart_stall_clock();
    }

    /// Drops all partitions. Submitted messages may still become durable; others are read again by the next owner of the partition.
    pub(crate) fn revoke(&mut self) {
        self.partitions.clear();
        self.shared.progress().clear();
        self.blocked = None;
        self.permit = None;
    }

    /// Starts the search for the start offset of some partitions again.
    pub(crate) fn reposition(&mut self, log: LogIdentity, which: impl Fn(&Partition) -> bool) {
        self.partitions.values_mut().filter(|one| which(one)).for_each(|one| one.reposition(log));
    }

    /// Takes a message that was polled.
    pub(crate) fn take(&mut self, message: &BorrowedMessage<'_>) -> TakeResult {
        if self.topics.get(self.last.0).is_none_or(|topic| topic != message.topic()) {
            let Some(channel) = self.topics.iter().position(|known| known == message.topic()) else {
                return TakeResult::Buffered;
            };
            self.last.0 = channel;
        }
        self.last.1 = message.partition();
        let Some(partition) = self.partitions.get_mut(&self.last) else { return TakeResult::Buffered };
        let result = partition.take(message);
        if result == TakeResult::LogRecreated {
            partition.reposition(LogIdentity::Recreated);
        }
        result
    }

    /// Submits the buffered messages as far as there are permits; the rest is held back.
    pub(crate) fn submit(&mut self) -> Result<(), ControllerStopped> {
        let mut missing: Option<Option<PermitFuture>> = None;
        for (key, partition) in &mut self.partitions {
            while missing.is_none() && partition.buffered() > 0 {
                if !partition.may_submit() {
                    missing = Some(None);
                    break;
                }
                let permit = reserve_some(&self.handle, partition.buffered()).or_else(|| self.permit.take());
                let Some(permit) = permit else {
                    let handle = self.handle.clone();
                    missing = Some(Some(Box::pin(async move { handle.reserve(1).await })));
                    break;
                };
                partition.submit(permit, &self.handle)?;
                self.shared.progress().insert(*key, partition.progress());
            }
        }
        self.permit = None;
        self.blocked = missing.map(|permit| {
            let (since, paused) = self.blocked.take().map_or((Instant::now(), false), |old| (old.since, old.paused));
            BlockedSubmission { since, paused, permit }
        });
        if self.handle.is_closed() { Err(ControllerStopped) } else { Ok(()) }
    }

    /// Waits for the missing permit or receipts, for at most `limit`.
    pub(crate) fn wait(&mut self, limit: Duration) -> Result<(), ControllerStopped> {
        let Some(blocked) = self.blocked.as_mut() else { return Ok(()) };
        self.shared.restart_stall_clock();
        let Some(awaited) = blocked.permit.as_mut() else {
            std::thread::park_timeout(RECEIPT_INTERVAL);
            return Ok(());
        };
        if let Some(permit) = blocking::until(awaited.as_mut(), Instant::now() + limit) {
            blocked.permit = None;
            self.permit = Some(permit?);
        }
        Ok(())
    }

    /// Takes the receipts. Offsets that became durable are noted for the next commit.
    pub(crate) fn take_receipts(&mut self) -> Result<(), ControllerStopped> {
        for partition in self.partitions.values_mut() {
            if let Some(next) = partition.take_receipts()? {
                let offset = i64::try_from(next).unwrap_or(i64::MAX);
                self.shared.commits().insert((partition.topic.to_string(), partition.number), offset);
            }
        }
        Ok(())
    }

    /// Reports the condition if it changed.
    pub(crate) fn report_condition(&mut self) {
        let reading = |partition: &Partition| !matches!(partition.state, PartitionState::Unpositioned { .. });
        let condition = if self.blocked.as_ref().is_some_and(|blocked| blocked.since.elapsed() >= REPORT_AFTER) {
            Condition::HeldBack
        } else if let Some(why) = self.shared.failure() {
            Condition::Failing { why }
        } else if self.assigned && self.partitions.values().all(reading) {
            Condition::Working
        } else {
            Condition::Starting
        };
        if self.reported.as_ref() != Some(&condition) {
            match &condition {
                Condition::Failing { why } => tracing::warn!("kafka: {why}"),
                other => tracing::info!("kafka: {other:?}"),
            }
            self.health.set_condition(condition.clone());
            self.reported = Some(condition);
        }
    }
}

/// Reserves permits for this many messages, or for the first half, quarter and so on that is free.
fn reserve_some(handle: &SourceHandle, messages: usize) -> Option<MessagePermit> {
    let mut wanted = u32::try_from(messages).unwrap_or(u32::MAX);
    while wanted > 0 {
        if let Some(permit) = handle.try_reserve(wanted) {
            return Some(permit);
        }
        wanted /= 2;
    }
    None
}

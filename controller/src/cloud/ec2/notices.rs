//! EC2's interruption notices: from the queues to the driver. A message is deleted only when the journal has its events, or the rejected events
//! have its body if it cannot be decoded.

use super::MAILBOX_RETRY;
use super::clock::DriverClock;
use crate::driver::{DriverHandle, ItemContent, MailboxError, Original, SubmittedItem};
use backon::{ConstantBuilder, Retryable};
use forebay_capacity_ec2::notice::{self, ClaimStatus, KnownInstances, QueueMessage};
use forebay_capacity_ec2::queue::{InterruptionReader, NoticeBatch, QueueTimings, ReceivedMessage};
use forebay_capacity_ec2::sdk::SqsClient;
use forebay_kernel::units::Timestamp;
use forebay_source::Health;
use forebay_wire::intake::{RejectCode, Rejected};
use std::collections::{BTreeMap, BTreeSet};
use tokio::sync::mpsc::Receiver;

/// The reader of the queues, if any are configured.
pub(super) struct Notices(Option<(InterruptionReader, Receiver<NoticeBatch>)>);

/// The instances of the driver at one time.
struct Known {
    statuses: BTreeMap<String, ClaimStatus>,
    reservations: BTreeMap<String, BTreeSet<String>>,
}

impl KnownInstances for Known {
    fn claim_status(&self, instance: &str) -> Option<ClaimStatus> {
        self.statuses.get(instance).copied()
    }

    fn in_reservation(&self, reservation: &str) -> Vec<String> {
        self.reservations.get(reservation).into_iter().flatten().cloned().collect()
    }
}

impl Notices {
    /// Starts to read. Without valid queues, nodes are still bought, and reclaims are found in listings.
    pub fn start(client: &SqsClient, queues: &[String], health: &Health) -> Notices {
        if queues.is_empty() {
            tracing::warn!(
                "ec2: no `interruptions` queue: spot warnings are reported by the agents on the nodes, and all else is found when it has happened"
            );
            return Notices(None);
        }
        let started =
            InterruptionReader::start(client, queues, QueueTimings::default(), &tokio::runtime::Handle::current());
        if let Err(e) = &started {
            tracing::error!("ec2: {e}");
            health.add_remark(0, e.to_string());
        }
        Notices(started.ok())
    }

    /// The error of the first queue that fails.
    pub fn failing(&self) -> Option<String> {
        let (reader, _) = self.0.as_ref()?;
        reader.stats().into_iter().find_map(|(_, stats)| stats.failing)
    }

    /// The next messages. Without queues it waits forever.
    pub async fn next(&mut self) -> Option<NoticeBatch> {
        match &mut self.0 {
            Some((_, batches)) => batches.recv().await,
            None => std::future::pending().await,
        }
    }

    /// Submits messages to the driver, and acknowledges them when they are durable. Returns false if the driver has stopped.
    pub async fn submit(
        &mut self,
        batch: Option<NoticeBatch>,
        handle: &DriverHandle,
        reservations: &BTreeMap<String, BTreeSet<String>>,
        clock: DriverClock,
    ) -> bool {
        let Some(batch) = batch else {
            // The tasks of the reader have ended, which is a bug.
            tracing::error!("ec2: the interruption queues are no longer read");
            self.0 = None;
            return true;
        };
        let in_notices: Vec<String> =
            batch.messages.iter().filter_map(notice_of).flat_map(|n| n.instances.clone()).collect();
        let all: BTreeSet<String> = in_notices.into_iter().chain(reservations.values().flatten().cloned()).collect();
        let retries = ConstantBuilder::new().with_delay(MAILBOX_RETRY).without_max_times();
        let is_full = |error: &MailboxError| matches!(error, MailboxError::Full { .. });
        // A batch that is dropped comes again half a minute later, which is too much of two minutes.
        let ask = || statuses(handle, &all);
        let statuses = match ask.retry(retries).when(is_full).await {
            Ok(statuses) => statuses,
            // They are not deleted, and received again.
            Err(MailboxError::Stopped(_)) => return false,
            Err(_) => return true,
        };
        let known = Known { statuses, reservations: reservations.clone() };
        let submit = async || match items(&batch, &known, clock.now()) {
            items if items.is_empty() => Ok(()),
            items => handle.submit_items(items).await.map(drop),
        };
        match submit.retry(retries).when(is_full).await {
            Ok(()) => batch.acknowledge(),
            Err(MailboxError::Full { .. } | MailboxError::TooMany { .. }) => {}
            Err(MailboxError::Stopped(_)) => return false,
        }
        true
    }
}

fn notice_of(message: &ReceivedMessage) -> Option<&notice::InterruptionNotice> {
    match &message.content {
        Ok(QueueMessage::Notice(notice)) => Some(notice),
        _ => None,
    }
}

async fn statuses(
    handle: &DriverHandle,
    instances: &BTreeSet<String>,
) -> Result<BTreeMap<String, ClaimStatus>, MailboxError> {
    let instances = instances.clone();
    handle
        .query_async(move |engine, _| {
            let status =
                |instance: String| Some((instance.clone(), ClaimStatus::from_state(engine.state(), &instance)?));
            instances.into_iter().filter_map(status).collect()
        })
        .await
}

fn items(batch: &NoticeBatch, known: &Known, now: Timestamp) -> Vec<SubmittedItem> {
    let mut items = Vec::new();
    for message in &batch.messages {
        match &message.content {
            Ok(QueueMessage::Notice(notice)) => {
                let outcome = notice::notice_events(notice, message.clock_reading(now), known);
                for later in &outcome.later {
                    // Scheduled events are read repeatedly, see `refresh`.
                    let seconds = later.at.since(now).0 / 1000;
                    tracing::info!("ec2: AWS announces a change of {} in {seconds} s", later.instance);
                }
                items.extend(outcome.events.into_iter().map(SubmittedItem::from));
            }
            Ok(QueueMessage::Foreign { about }) => {
                tracing::debug!("ec2: a message about {about} is not about instances")
            }
            Err(why) => items.push(rejected(batch, message, &why.to_string())),
        }
    }
    items
}

fn rejected(batch: &NoticeBatch, message: &ReceivedMessage, why: &str) -> SubmittedItem {
    let error = Rejected { code: RejectCode::Malformed, path: String::new(), message: why.to_owned() };
    let original = Original {
        source: format!("sqs:{}", batch.queue).into(),
        position: 0,
        message: Some(message.id.clone()),
        attributes: Vec::new(),
        bytes: message.body.clone().into_bytes(),
        sent_ms: message.sent.map(|at| at.0),
    };
    SubmittedItem {
        content: ItemContent::Unreadable(error),
        original: Some(Box::new(original)),
        ..SubmittedItem::default()
    }
}

//! What EC2 says of its own accord: from the queues to the driver, and deleted there only when the journal has it.
//!
//! Never: a message that is lost. One that cannot be read is in `rejected.jsonl` with its bytes before it is deleted.

use crate::driver::{Busy, Content, Handle, Original, PostItem};
use crate::intake::{RejectCode, Rejected};
use forebay_capacity_ec2::notice::{self, Instances, Message, Standing};
use forebay_capacity_ec2::queue::{Batch, Letter, Pace, Reader};
use forebay_capacity_ec2::wire::SqsClient;
use forebay_engine::event::Event;
use forebay_engine::units::Millis;
use forebay_source::Health;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::mpsc::Receiver;

/// The pause before a full mailbox is tried again.
const FULL: Duration = Duration::from_millis(200);

/// The queues, where there are some.
pub(super) struct Notices(Option<(Reader, Receiver<Batch>)>);

/// How the driver's instances stand, taken at one moment.
struct Known {
    standing: BTreeMap<String, Standing>,
    reservations: BTreeMap<String, BTreeSet<String>>,
}

impl Instances for Known {
    fn standing(&self, instance: &str) -> Option<Standing> {
        self.standing.get(instance).copied()
    }

    fn in_reservation(&self, reservation: &str) -> Vec<String> {
        self.reservations.get(reservation).into_iter().flatten().cloned().collect()
    }
}

impl Notices {
    /// Begins to read. A queue that cannot be is told of; nodes are bought all the same, and reclaims found by looks.
    pub fn start(client: &SqsClient, queues: &[String], health: &Health) -> Notices {
        if queues.is_empty() {
            tracing::warn!(
                "ec2: no `interruptions` queue: reclaims are heard of by agents on the nodes, or when they have happened"
            );
            return Notices(None);
        }
        let started = Reader::start(client, queues, Pace::default(), &tokio::runtime::Handle::current());
        if let Err(e) = &started {
            tracing::error!("ec2: {e}");
            health.remark(0, e.to_string());
        }
        Notices(started.ok())
    }

    /// Why a queue cannot be read.
    pub fn failing(&self) -> Option<String> {
        let (reader, _) = self.0.as_ref()?;
        reader.seen().into_iter().find_map(|(_, seen)| seen.failing)
    }

    /// The next messages. Waits for ever where there are no queues.
    pub async fn next(&mut self) -> Option<Batch> {
        match &mut self.0 {
            Some((_, batches)) => batches.recv().await,
            None => std::future::pending().await,
        }
    }

    /// Hands messages to the driver, and lets them be deleted when they are durable. False: the driver has ended.
    pub async fn take(
        &mut self,
        batch: Option<Batch>,
        handle: &Handle,
        reservations: &BTreeMap<String, BTreeSet<String>>,
        now: Millis,
    ) -> bool {
        let Some(batch) = batch else {
            // Its tasks have ended, which they do not do by themselves.
            tracing::error!("ec2: the interruption queues are not read any more");
            self.0 = None;
            return true;
        };
        let named: Vec<String> = batch.letters.iter().filter_map(notice_of).flat_map(|n| n.instances.clone()).collect();
        let all = named.into_iter().chain(reservations.values().flatten().cloned()).collect();
        let standing = match standing(handle, all).await {
            Ok(standing) => standing,
            // Not deleted: they come again.
            Err(Busy::Stopped(_)) => return false,
            Err(_) => return true,
        };
        let known = Known { standing, reservations: reservations.clone() };
        let mut held = true;
        loop {
            let items = items(&batch, &known, now);
            if items.is_empty() {
                break;
            }
            match handle.submit_items(items).await {
                Ok(_) => break,
                Err(Busy::Full { .. }) => tokio::time::sleep(FULL).await,
                Err(Busy::TooMany { .. }) => {
                    held = false;
                    break;
                }
                Err(Busy::Stopped(_)) => return false,
            }
        }
        if held {
            batch.durable();
        }
        true
    }
}

fn notice_of(letter: &Letter) -> Option<&notice::Notice> {
    match &letter.said {
        Ok(Message::Notice(notice)) => Some(notice),
        _ => None,
    }
}

async fn standing(handle: &Handle, instances: BTreeSet<String>) -> Result<BTreeMap<String, Standing>, Busy> {
    handle
        .query_async(move |engine, _| {
            let of = |instance: String| Some((instance.clone(), Standing::of(engine.state(), &instance)?));
            instances.into_iter().filter_map(of).collect()
        })
        .await
}

fn items(batch: &Batch, known: &Known, now: Millis) -> Vec<PostItem> {
    let mut items = Vec::new();
    for letter in &batch.letters {
        match &letter.said {
            Ok(Message::Notice(notice)) => {
                let outcome = notice::events(notice, now, known);
                for later in &outcome.later {
                    // What EC2 has planned is asked for again and again; see `refresh`.
                    let seconds = later.at.since(now).0 / 1000;
                    tracing::info!("ec2: AWS announces a change of {} in {seconds} s", later.instance);
                }
                items.extend(outcome.events.into_iter().map(event));
            }
            Ok(Message::Foreign { about }) => tracing::debug!("ec2: a message about {about} is not about instances"),
            Err(why) => items.push(rejected(batch, letter, &why.to_string())),
        }
    }
    items
}

fn event(event: Event) -> PostItem {
    PostItem { content: Content::Event(event), ..PostItem::default() }
}

fn rejected(batch: &Batch, letter: &Letter, why: &str) -> PostItem {
    let said = Rejected { code: RejectCode::Malformed, path: String::new(), message: why.to_owned() };
    let original = Original {
        source: format!("sqs:{}", batch.queue).into(),
        position: 0,
        message: Some(letter.id.clone()),
        attributes: Vec::new(),
        bytes: letter.body.clone().into_bytes(),
        sent_ms: letter.sent.map(|at| at.0),
    };
    PostItem { content: Content::Unreadable(said), original: Some(Box::new(original)), ..PostItem::default() }
}

//! The loop with a journal in memory and logs that can be full: what it does while statuses find no room, and what it records before it ends.

use super::*;
use crate::adapters::{Adapters, EffectRequest};
use crate::journal::{
    ArchivedIdentity, BatchLog, FrozenRequests, Journal, JournalEntry, JournalIdentity, Positions, StorageFailure,
};
use crate::step::EffectLifetime;
use forebay_engine::engine::Engine;
use forebay_kernel::effect::{Effect, Status};
use forebay_kernel::event::Event;
use forebay_kernel::ids::Seq;
use forebay_kernel::job::JobSpec;
use forebay_kernel::policy::Policy;
use forebay_kernel::state::State;
use forebay_kernel::state::retire::FinishedJob;
use forebay_kernel::units::Timestamp;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("no space left")]
struct NoSpace;

impl StorageFailure for NoSpace {
    fn is_full(&self) -> bool {
        true
    }
}

/// A journal that takes all batches and keeps none.
#[derive(Default)]
struct TakesAll {
    positions: Positions,
    end: Seq,
}

impl BatchLog for TakesAll {
    type Error = NoSpace;

    fn append_many(&mut self, entries: &[JournalEntry<'_>]) -> Result<(), NoSpace> {
        for entry in entries {
            self.positions.extend(entry.positions.clone());
            self.end = entry.batch.first_seq;
        }
        Ok(())
    }
}

impl Journal for TakesAll {
    fn identity(&self) -> JournalIdentity {
        JournalIdentity::default()
    }

    fn end(&self) -> Seq {
        self.end
    }

    fn wants_snapshot(&self) -> bool {
        false
    }

    fn begin_snapshot(&mut self, _: &State) -> Result<(), NoSpace> {
        Ok(())
    }

    fn note_finished(&mut self, _: &[FinishedJob]) {}

    fn archived(&self, _: &str, _: &str) -> Result<Option<ArchivedIdentity>, NoSpace> {
        Ok(None)
    }

    fn positions(&self) -> &Positions {
        &self.positions
    }

    fn seen(&self) -> Result<Vec<u128>, NoSpace> {
        Ok(Vec::new())
    }

    fn requests(&self) -> Result<FrozenRequests, NoSpace> {
        Ok(FrozenRequests::new())
    }

    fn forget_requests(&mut self, _: &BTreeSet<u64>) -> Result<(), NoSpace> {
        Ok(())
    }

    fn policy_source(&self) -> Result<Option<String>, NoSpace> {
        Ok(None)
    }
}

/// A log of statuses whose syncs find no room while `full`, and that reports whether statuses became durable with each.
struct Statuses {
    full: Arc<AtomicBool>,
    synced: Sender<bool>,
    last: u64,
    delivered: u64,
}

impl StatusWriter for Statuses {
    fn write(&mut self, statuses: &mut dyn Iterator<Item = &Status>) -> Result<(), Box<dyn StorageFailure>> {
        self.last = statuses.map(|status| status.number).max().unwrap_or(0).max(self.last);
        Ok(())
    }

    fn sync(&mut self) -> Result<(), Box<dyn StorageFailure>> {
        let pending = self.delivered < self.last;
        if pending && self.full.load(Ordering::SeqCst) {
            let _ = self.synced.send(false);
            return Err(Box::new(NoSpace));
        }
        self.delivered = self.last;
        if pending {
            let _ = self.synced.send(true);
        }
        Ok(())
    }

    fn last(&self) -> u64 {
        self.last
    }

    fn delivered(&self) -> u64 {
        self.delivered
    }

    fn cut(&self) -> u64 {
        0
    }

    fn retain(&mut self, _: Timestamp, _: Option<u64>) -> Result<Option<u64>, Box<dyn StorageFailure>> {
        Ok(None)
    }
}

struct Rejections;

impl RejectionWriter for Rejections {
    fn write(&mut self, _: Timestamp, _: &[Rejection]) -> Result<(), Box<dyn StorageFailure>> {
        Ok(())
    }

    fn sync(&mut self) -> Result<(), Box<dyn StorageFailure>> {
        Ok(())
    }

    fn last(&self) -> u64 {
        0
    }

    fn retain(&mut self, _: Timestamp, _: Option<u64>) -> Result<Option<u64>, Box<dyn StorageFailure>> {
        Ok(None)
    }
}

struct NoWorld;

impl Adapters for NoWorld {
    fn begin(&mut self, _: &JournalIdentity, _: &State) {}

    fn lifetime(&self) -> EffectLifetime {
        EffectLifetime::OutlivesProcess
    }

    fn freeze(&mut self, _: &Effect, _: &State) -> Option<Vec<u8>> {
        None
    }

    fn execute(&mut self, _: &[EffectRequest<'_>], _: &State) {}
}

/// A driver whose disk is full for statuses while the flag says so, and what becomes of their syncs.
fn started() -> (RunningDriver, Arc<AtomicBool>, Receiver<bool>) {
    let (full, (synced, syncs)) = (Arc::new(AtomicBool::new(false)), channel());
    let driver = start(LiveSettings {
        folder: PathBuf::new(),
        journal: TakesAll::default(),
        engine: Engine::new(),
        kind: StartKind::First,
        policy: Some(PolicySource { text: String::new(), compiled: Policy::default() }),
        adapters: Box::new(|_| Box::new(NoWorld)),
        statuses: Box::new(Statuses { full: Arc::clone(&full), synced, last: 0, delivered: 0 }),
        rejected: Box::new(Rejections),
        clock: ClockMode::Max,
        feed: None,
        tenants: TenantLimits::default(),
        exit_when_drained: false,
        observer: None,
        dies_after: None,
    });
    (driver.expect("it starts"), full, syncs)
}

/// A submission to a queue that the policy does not have: it is rejected, with statuses.
fn submission(subject: &str) -> Vec<Event> {
    vec![Event::JobSubmitted(Box::new(JobSpec { tenant: "t".into(), subject: subject.into(), ..JobSpec::default() }))]
}

#[test]
fn a_sync_of_statuses_without_room_ends_nothing() {
    let (driver, full, syncs) = started();
    full.store(true, Ordering::SeqCst);
    driver.handle.submit(submission("a")).expect("its batch is durable");
    assert_eq!(syncs.recv(), Ok(false));
    full.store(false, Ordering::SeqCst);
    driver.handle.submit(submission("b")).expect("it runs on");
    driver.handle.stop();
    let finished = driver.join().expect("it ends as it was asked to");
    assert_eq!(finished.end, LoopEnd::Stopped);
    assert!(syncs.iter().any(|durable| durable), "what was held back is made durable");
}

#[test]
fn who_asks_it_to_end_need_not_wait_for_room_for_statuses() {
    let (driver, full, syncs) = started();
    full.store(true, Ordering::SeqCst);
    driver.handle.submit(submission("a")).expect("its batch is durable");
    assert_eq!(syncs.recv(), Ok(false));
    driver.handle.stop();
    let finished = driver.join().expect("nothing is lost: the next start writes them");
    assert_eq!(finished.end, LoopEnd::Stopped);
    assert!(finished.engine.state().undelivered().next().is_some());
}

#[test]
fn how_far_sinks_have_come_is_durable_before_the_end() {
    let (driver, _, _) = started();
    let (asking, (begun, begins), (go_on, goes_on)) = (driver.handle.clone(), channel(), channel::<()>());
    // While the loop is held, a sink reports and the driver is asked to end: the loop finds both at once.
    let held = std::thread::spawn(move || {
        asking.query(move |_, _| {
            let _ = begun.send(());
            let _ = goes_on.recv();
        })
    });
    begins.recv().expect("the loop is held");
    driver.handle.record_cursor("out:status:kafka", 7);
    driver.handle.stop();
    go_on.send(()).expect("the loop waits for it");
    held.join().expect("no panic").expect("it was answered");
    let handle = driver.handle.clone();
    assert_eq!(driver.join().expect("it ends").end, LoopEnd::Stopped);
    assert_eq!(handle.durable().get("out:status:kafka"), Some(7));
}

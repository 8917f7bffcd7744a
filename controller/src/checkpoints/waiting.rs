//! Reports that wait for an answer of the store: the newest of each job, tried again after pauses that double.
//!
//! Never: more than a bound of them (the store has what they are about; the job's next report or end finds it), or a pause without end.

use super::{AT_ONCE, Checkpoints, Report};
use crate::driver::{Answer, Content, Handle, Original, Post, PostItem, Stopped};
use crate::intake::{EventId, Rejected};
use crate::sources::figures::SourceFigures;
use forebay_engine::event::Event;
use forebay_engine::ids::JobId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;

/// Jobs that may wait: more than run at once on any cluster that one controller holds.
const MOST_JOBS: usize = 65_536;

/// Bytes of their reports, as sent. One has some 500.
const MOST_BYTES: usize = 64 << 20;

/// The first pause, and the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Where a report came from, to tell what became of it.
#[derive(Debug)]
pub struct Letter {
    /// By which it is known when it comes again.
    pub id: Option<EventId>,
    /// By which its transport tells it.
    pub transport_id: Option<EventId>,
    /// As it was sent, for the rejected.
    pub original: Box<Original>,
    /// What is counted of its source.
    pub figures: Arc<SourceFigures>,
}

/// Who wants to know.
#[derive(Debug)]
pub(super) enum Origin {
    /// A run, through a source.
    Source(Box<Letter>),
    /// This process, which has just started.
    Start,
}

impl Origin {
    /// Says what became of a report: to the engine, or among the rejected.
    pub async fn tell(self, handle: &Handle, job: JobId, content: Result<Event, Rejected>) -> Result<(), Stopped> {
        let (item, answer) = match (self, content) {
            (Origin::Source(letter), content) => {
                let content = content.map_or_else(Content::Unreadable, Content::Event);
                let Letter { id, transport_id, original, figures } = *letter;
                let item = PostItem { content, id, transport_id, original: Some(original) };
                (item, Answer::Source(oneshot::channel().0, figures))
            }
            (Origin::Start, Ok(event)) => (
                PostItem { content: Content::Event(event), ..PostItem::default() },
                Answer::Client(oneshot::channel().0),
            ),
            (Origin::Start, Err(why)) => {
                tracing::debug!(%job, "nothing of it counts at this start: {}", why.message);
                return Ok(());
            }
        };
        let (desk, _) = handle.desk();
        let slot = desk.room(1).await.map_err(|_| Stopped)?;
        // Nobody waits for the answer: a source had its own when the letter was kept here.
        handle.post(Post { items: vec![item], stream: None, slot, answer })
    }
}

/// A report that waits.
#[derive(Debug)]
pub(super) struct Entry {
    pub report: Report,
    pub origin: Origin,
    tries: u32,
    at: Instant,
}

impl Entry {
    pub fn new(report: Report, origin: Origin) -> Entry {
        Entry { report, origin, tries: 0, at: Instant::now() }
    }

    fn bytes(&self) -> usize {
        match &self.origin {
            Origin::Source(letter) => letter.original.bytes.len(),
            Origin::Start => 0,
        }
    }

    /// A report of a run says more than the look at a start, and of two runs the later one's does.
    fn gives_way_to(&self, newer: &Entry) -> bool {
        let rank = |entry: &Entry| (entry.report.attempt, matches!(entry.origin, Origin::Source(_)));
        rank(self) <= rank(newer)
    }

    /// It says nothing new any more.
    fn drop_counted(self) {
        if let Origin::Source(letter) = self.origin {
            letter.figures.durable(0, 1);
        }
    }
}

/// The reports that wait.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    table: Mutex<Table>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Table {
    jobs: BTreeMap<JobId, Entry>,
    due: BTreeSet<(Instant, JobId)>,
    bytes: usize,
    full: bool,
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, Table> {
        // Nothing under this lock can panic half way through a change.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn len(&self) -> usize {
        self.lock().jobs.len()
    }

    /// Takes a report, in the place of an older one of its job.
    pub fn keep(&self, entry: Entry) {
        self.lock().insert(entry);
        self.changed.notify_one();
    }

    /// Takes one back that has no answer yet, unless a newer one of its job has come.
    pub fn back(&self, mut entry: Entry) {
        entry.at = Instant::now() + pause(entry.tries, entry.report.job);
        entry.tries = entry.tries.saturating_add(1);
        let mut table = self.lock();
        if table.jobs.contains_key(&entry.report.job) {
            entry.drop_counted();
        } else {
            table.insert(entry);
        }
        drop(table);
        self.changed.notify_one();
    }

    /// Settles what is due, some side by side, until the driver has stopped.
    pub async fn work(&self, checkpoints: &Checkpoints) {
        let mut running = JoinSet::new();
        loop {
            while running.len() < AT_ONCE
                && let Some(entry) = self.lock().take_due(Instant::now())
            {
                running.spawn(checkpoints.clone().settle(entry));
            }
            let next = self.lock().due.first().map(|(at, _)| *at);
            let next_at = tokio::time::Instant::from_std(next.unwrap_or_else(Instant::now));
            tokio::select! {
                ended = running.join_next(), if !running.is_empty() => {
                    if let Some(Ok(None)) = ended {
                        return;
                    }
                }
                () = self.changed.notified() => {}
                () = tokio::time::sleep_until(next_at), if next.is_some() && running.len() < AT_ONCE => {}
            }
        }
    }
}

impl Table {
    fn insert(&mut self, entry: Entry) {
        let job = entry.report.job;
        match self.jobs.get(&job) {
            Some(old) if !old.gives_way_to(&entry) => return entry.drop_counted(),
            Some(_) => self.remove(job).into_iter().for_each(Entry::drop_counted),
            None => {}
        }
        if self.jobs.len() >= MOST_JOBS || self.bytes + entry.bytes() > MOST_BYTES {
            if !std::mem::replace(&mut self.full, true) {
                tracing::warn!(
                    "{} reports of checkpoints wait for the store; further ones are dropped, the jobs' next ones find the same",
                    self.jobs.len()
                );
            }
            return entry.drop_counted();
        }
        self.bytes += entry.bytes();
        self.due.insert((entry.at, job));
        self.jobs.insert(job, entry);
    }

    fn remove(&mut self, job: JobId) -> Option<Entry> {
        let entry = self.jobs.remove(&job)?;
        self.due.remove(&(entry.at, job));
        self.bytes -= entry.bytes();
        self.full &= !self.jobs.is_empty();
        Some(entry)
    }

    fn take_due(&mut self, now: Instant) -> Option<Entry> {
        let (_, job) = self.due.first().filter(|(at, _)| *at <= now)?;
        self.remove(*job)
    }
}

/// How long to wait after so many tries: doubled each time, up to a fifth longer so that jobs do not all ask at once.
fn pause(tries: u32, job: JobId) -> Duration {
    let step = FIRST_PAUSE.saturating_mul(1 << tries.min(16)).min(LONGEST_PAUSE);
    step + step * (job.0 % 64) as u32 / 320
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_engine::ids::Attempt;

    fn entry(job: u64, attempt: u32, bytes: Option<usize>) -> Entry {
        let letter = |bytes| Letter {
            id: None,
            transport_id: None,
            original: Box::new(Original { bytes: vec![0; bytes], ..Original::default() }),
            figures: Arc::default(),
        };
        let origin = bytes.map_or(Origin::Start, |bytes| Origin::Source(Box::new(letter(bytes))));
        Entry::new(Report { job: JobId(job), attempt: Attempt(attempt), manifest: None }, origin)
    }

    #[test]
    fn the_newest_of_each_job_waits_and_bytes_are_bounded() {
        let waiting = Waiting::default();
        waiting.keep(entry(1, 2, Some(10)));
        waiting.keep(entry(1, 2, Some(20)));
        waiting.keep(entry(1, 1, Some(30)));
        waiting.keep(entry(1, 2, None));
        waiting.keep(entry(2, 1, None));
        assert_eq!((waiting.len(), waiting.lock().bytes), (2, 20));
        waiting.keep(entry(3, 1, Some(MOST_BYTES)));
        assert_eq!((waiting.len(), waiting.lock().full), (2, true));
        let taken = waiting.lock().take_due(Instant::now()).expect("one is due");
        assert_eq!((taken.report.job, taken.bytes(), waiting.lock().bytes), (JobId(1), 20, 0));
        // A newer one came while it was looked at.
        waiting.keep(entry(1, 3, Some(5)));
        waiting.back(taken);
        assert_eq!((waiting.len(), waiting.lock().bytes), (2, 5));
        let taken = waiting.lock().take_due(Instant::now()).expect("one is due");
        waiting.back(taken);
        assert_eq!(waiting.len(), 2, "it waits for its pause");
        assert_eq!(waiting.lock().due.len(), 2);
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        for (tries, least) in [(0, 1), (1, 2), (5, 32), (6, 60), (u32::MAX, 60)] {
            for job in [0, 63, 64] {
                let pause = pause(tries, JobId(job)).as_secs_f64();
                assert!((f64::from(least)..=f64::from(least) * 1.2).contains(&pause), "{tries} {job}: {pause}");
            }
        }
    }
}

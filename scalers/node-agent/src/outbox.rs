//! What has to be told and is not acknowledged yet: the newest report of each kind, so three at most.
//!
//! Never: tells the same thing twice because the metadata says it at every look, or keeps a thread that should end.

use crate::report::{Kind, Report};
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What has to be told.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    inside: Mutex<Inside>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Inside {
    ending: bool,
    /// Whose reports these are.
    instance: String,
    /// Not acknowledged yet, with when it was first seen.
    waiting: BTreeMap<Kind, (Report, Instant)>,
    /// The last of each kind that was put in.
    last: BTreeMap<Kind, Report>,
    /// Grows with each that is put in.
    news: u64,
}

/// A report that has to be told.
#[derive(Clone, Debug)]
pub(crate) struct Due {
    pub instance: String,
    pub report: Report,
    pub since: Instant,
    /// For [`Outbox::wait_for_news`].
    pub news: u64,
}

/// The agent ends.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ending;

impl Outbox {
    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whose reports these are.
    pub fn is_of(&self, instance: &str) {
        self.lock().instance = instance.to_owned();
    }

    /// Has to be told, unless it was put in before. Whether it is new.
    pub fn put(&self, report: Report) -> bool {
        let mut inside = self.lock();
        if inside.last.get(&report.kind) == Some(&report) {
            return false;
        }
        inside.last.insert(report.kind, report.clone());
        inside.waiting.insert(report.kind, (report, Instant::now()));
        inside.news += 1;
        drop(inside);
        self.changed.notify_all();
        true
    }

    /// Was told, or is given up. Another one of its kind that came meanwhile stays.
    pub fn done(&self, report: &Report) {
        let mut inside = self.lock();
        if inside.waiting.get(&report.kind).is_some_and(|(waiting, _)| waiting == report) {
            inside.waiting.remove(&report.kind);
        }
    }

    /// Waits for the most urgent report that has to be told.
    pub fn next(&self) -> Result<Due, Ending> {
        let mut inside = self.lock();
        loop {
            if inside.ending {
                return Err(Ending);
            }
            if let Some((report, since)) = inside.waiting.values().next() {
                let (report, since) = (report.clone(), *since);
                return Ok(Due { instance: inside.instance.clone(), report, since, news: inside.news });
            }
            inside = self.changed.wait(inside).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Pauses; something new cuts it short.
    pub fn wait_for_news(&self, known: u64, pause: Duration) -> Result<(), Ending> {
        self.wait(pause, |inside| inside.news == known)
    }

    /// Pauses, whatever comes.
    pub fn pause(&self, pause: Duration) -> Result<(), Ending> {
        self.wait(pause, |_| true)
    }

    fn wait(&self, pause: Duration, goes_on: impl Fn(&Inside) -> bool) -> Result<(), Ending> {
        let waits = |inside: &mut Inside| !inside.ending && goes_on(inside);
        let waited = self.changed.wait_timeout_while(self.lock(), pause, waits);
        let (inside, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if inside.ending { Err(Ending) } else { Ok(()) }
    }

    /// Everybody ends.
    pub fn end(&self) {
        self.lock().ending = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_urgent_goes_first_and_nothing_goes_twice() {
        let outbox = Outbox::default();
        outbox.is_of("i-1");
        let warning = |time: &str| Report::interruption(&format!("{{\"time\":\"{time}\"}}"));
        let (first, second) = (warning("2026-11-21T20:30:00Z"), warning("2026-11-21T20:31:00Z"));
        assert!(outbox.put(Report::hello()) && outbox.put(first.clone()));
        assert!(!outbox.put(first.clone()), "said at every look");
        let due = outbox.next().expect("one");
        assert_eq!((due.instance.as_str(), &due.report), ("i-1", &first));
        assert!(outbox.put(second.clone()));
        outbox.done(&first);
        assert_eq!(outbox.next().expect("one").report, second, "what came meanwhile stays");
        assert_eq!(outbox.wait_for_news(due.news, Duration::from_secs(3600)), Ok(()), "there is news already");
        outbox.done(&second);
        assert_eq!(outbox.next().expect("one").report, Report::hello());
        outbox.done(&Report::hello());
        assert!(!outbox.put(second), "told already");
        outbox.end();
        assert!(outbox.next().is_err() && outbox.pause(Duration::from_secs(3600)).is_err());
    }
}

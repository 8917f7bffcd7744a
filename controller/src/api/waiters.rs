//! Who waits for which job to be over. One task reads the stream of statuses and wakes them; nobody polls.
//!
//! Never: misses an end. Whoever waits registers first and looks at the job then.

use crate::driver::{DriverHandle, StreamEnd};
use forebay_kernel::ids::JobId;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// Waits open at once. Each costs a connection and some 100 bytes here.
pub const MOST_WAITERS: usize = 8_192;

/// Open waits by job.
#[derive(Default)]
pub(super) struct Waiters {
    inside: Mutex<Inside>,
}

#[derive(Default)]
struct Inside {
    by_job: BTreeMap<JobId, Vec<oneshot::Sender<()>>>,
    open: usize,
}

impl Waiters {
    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves when the job is over, or when that may have been missed. `None`: too many wait.
    pub fn register(&self, job: JobId) -> Option<oneshot::Receiver<()>> {
        let mut inside = self.lock();
        if inside.open >= MOST_WAITERS {
            inside.forget_gone();
        }
        if inside.open >= MOST_WAITERS {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        inside.by_job.entry(job).or_default().push(sender);
        inside.open += 1;
        Some(receiver)
    }

    fn wake(&self, job: JobId) {
        let mut inside = self.lock();
        let woken = inside.by_job.remove(&job).unwrap_or_default();
        inside.open -= woken.len();
        drop(inside);
        for sender in woken {
            // Whoever has gone needs no waking.
            let _ = sender.send(());
        }
    }

    /// Everybody looks again: dropping a sender wakes its receiver.
    fn wake_all(&self) {
        let all = std::mem::take(&mut *self.lock());
        drop(all);
    }
}

impl Inside {
    fn forget_gone(&mut self) {
        self.by_job.retain(|_, senders| {
            senders.retain(|s| !s.is_closed());
            !senders.is_empty()
        });
        self.open = self.by_job.values().map(Vec::len).sum();
    }
}

/// Wakes whoever waits, until the driver stops.
pub(super) async fn wake(waiters: Arc<Waiters>, handle: DriverHandle) {
    let mut stream = handle.statuses(handle.watch().borrow().statuses);
    loop {
        match stream.next().await {
            Ok(status) => {
                if let Some(job) = status.job.filter(|_| status.kind.terminal()) {
                    waiters.wake(job);
                }
            }
            Err(StreamEnd::Missed { .. }) => {
                stream = handle.statuses(handle.watch().borrow().statuses);
                waiters.wake_all();
            }
            Err(StreamEnd::Stopped) => {
                waiters.wake_all();
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_is_bounded_and_the_gone_make_room() {
        let waiters = Waiters::default();
        let mut kept: Vec<_> = (0..MOST_WAITERS).filter_map(|n| waiters.register(JobId(n as u64))).collect();
        assert_eq!(kept.len(), MOST_WAITERS);
        assert!(waiters.register(JobId(0)).is_none());
        kept.pop();
        let mut last = waiters.register(JobId(7)).expect("room");
        waiters.wake(JobId(7));
        assert!(last.try_recv().is_ok());
        assert!(kept[7].try_recv().is_ok());
        assert_eq!(waiters.lock().open, MOST_WAITERS - 2);
    }
}

//! Who may write: one thread at a time, batches first. SQLite has one writer; whoever comes second would poll for the lock.
//!
//! ```text
//! driver:      batch() ------ waits for the transaction that is open, at most one ------> writes
//! background:  background() -- waits while a batch is written or waits to be written ---> writes some 256 KiB
//! ```
//!
//! Never: lets the background go before a batch that waits.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The right to write, shared by all connections of this process to one journal.
#[derive(Debug, Default)]
pub struct WriteTurns {
    state: Mutex<TurnState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct TurnState {
    taken: bool,
    batches_waiting: u32,
    longest_wait: Duration,
}

/// The right to write, until it is dropped.
#[derive(Debug)]
pub struct WriteTurn<'a>(&'a WriteTurns);

impl WriteTurns {
    /// For a batch. It waits for one small transaction of the background at most.
    pub fn batch(&self) -> WriteTurn<'_> {
        let mut state = self.lock();
        if state.taken {
            let since = Instant::now();
            state.batches_waiting += 1;
            state = self.changed.wait_while(state, |state| state.taken).unwrap_or_else(PoisonError::into_inner);
            state.batches_waiting -= 1;
            state.longest_wait = state.longest_wait.max(since.elapsed());
        }
        state.taken = true;
        WriteTurn(self)
    }

    /// For what can wait.
    pub fn background(&self) -> WriteTurn<'_> {
        let state = self.lock();
        let busy = |state: &mut TurnState| state.taken || state.batches_waiting > 0;
        let mut state = self.changed.wait_while(state, busy).unwrap_or_else(PoisonError::into_inner);
        state.taken = true;
        WriteTurn(self)
    }

    /// The longest that a batch has waited so far.
    pub fn longest_wait(&self) -> Duration {
        self.lock().longest_wait
    }

    fn lock(&self) -> MutexGuard<'_, TurnState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WriteTurn<'_> {
    fn drop(&mut self) {
        self.0.lock().taken = false;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_batch_that_waits_goes_before_the_background() {
        let turns = WriteTurns::default();
        let first = turns.background();
        let (order, came) = channel();
        std::thread::scope(|threads| {
            let to = order.clone();
            let turns = &turns;
            threads.spawn(move || {
                let turn = turns.batch();
                to.send("batch").unwrap();
                drop(turn);
            });
            while turns.lock().batches_waiting == 0 {
                std::thread::yield_now();
            }
            threads.spawn(move || {
                let turn = turns.background();
                order.send("background").unwrap();
                drop(turn);
            });
            drop(first);
        });
        assert_eq!(came.iter().collect::<Vec<_>>(), ["batch", "background"]);
    }
}

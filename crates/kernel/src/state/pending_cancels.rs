//! Cancels kept for submissions that may still be on their way: one that came before its job, and each one that says when it was sent.
//!
//! ```text
//! cancel of nobody                -> kept -> the submission comes within the horizon -> accepted and cancelled at once
//! cancel with a time, of somebody -> kept -> a rerun comes that was sent before it   -> the same
//! ```
//!
//! Never: without bound, in number or in time. Never: decides whom a cancel is for; `apply` does, when the submission is there.

use super::State;
use crate::units::{Span, Timestamp};
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Cancels kept at most; the oldest goes first. It is four times the most events that one call to the controller brings, so that no
/// call loses its own, and at about 200 bytes each (an identity, a principal, two times, and the identity again in the lookup by age)
/// it is some 13 MiB.
pub const MOST_PENDING_CANCELS: usize = 65_536;

/// For so long, in time of the engine, a cancel is kept: longer than a source takes to send again what was not acknowledged (a few
/// tries with doubling pauses), and shorter than anybody takes to use a job's name for other work.
pub const PENDING_CANCEL_HORIZON: Span = Span::mins(10);

/// Which cancel. One principal's never displaces another's: whose counts is known with the job's queue only.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct PendingCancelKey {
    /// Whose namespace of subjects.
    pub tenant: String,
    /// The job's name.
    pub subject: String,
    /// Who asked; `None` is an operator.
    pub by: Option<String>,
    /// Whether it says when it was sent. One that does not is for the first submission of its identity alone.
    pub timed: bool,
}

/// When a cancel was sent and seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PendingCancel {
    /// The latest time that it was sent, by its sender. `None`: it does not say.
    pub sent: Option<Timestamp>,
    /// When it came, by the engine's clock; time that nobody watched is not counted.
    pub seen: Timestamp,
}

impl State {
    /// Cancels that are kept for submissions which may still come.
    pub fn pending_cancels(&self) -> impl Iterator<Item = (&PendingCancelKey, &PendingCancel)> + '_ {
        self.pending_cancels.iter()
    }

    /// Keeps a cancel. Said again, the one that was sent later counts.
    pub(crate) fn keep_cancel(&mut self, key: PendingCancelKey, sent: Option<Timestamp>) {
        let row = PendingCancel { sent, seen: self.now };
        if let Some(known) = self.pending_cancels.get(&key) {
            if known.sent > sent {
                return;
            }
            self.index.pending_cancels.remove(&(known.seen, key.clone()));
        }
        self.index.pending_cancels.insert((row.seen, key.clone()));
        self.pending_cancels.insert(key, row);
        while self.pending_cancels.len() > MOST_PENDING_CANCELS {
            let Some((_, oldest)) = self.index.pending_cancels.pop_first() else { break };
            self.pending_cancels.remove(&oldest);
        }
    }

    /// The cancels that are kept for an identity, in the order of their keys.
    pub(crate) fn cancels_of(&self, tenant: &str, subject: &str) -> Vec<(PendingCancelKey, Option<Timestamp>)> {
        if self.pending_cancels.is_empty() {
            return Vec::new();
        }
        let first = PendingCancelKey { tenant: tenant.into(), subject: subject.into(), by: None, timed: false };
        let from = self.pending_cancels.range(first..);
        let own = from.take_while(|(key, _)| key.tenant == tenant && key.subject == subject);
        own.map(|(key, row)| (key.clone(), row.sent)).collect()
    }

    pub(crate) fn forget_cancel(&mut self, key: &PendingCancelKey) {
        if let Some(row) = self.pending_cancels.remove(key) {
            self.index.pending_cancels.remove(&(row.seen, key.clone()));
        }
    }

    /// Forgets what is past the horizon.
    pub(crate) fn forget_old_cancels(&mut self) {
        while let Some((seen, _)) = self.index.pending_cancels.first()
            && self.now.since(*seen) > PENDING_CANCEL_HORIZON
        {
            let Some((_, key)) = self.index.pending_cancels.pop_first() else { break };
            self.pending_cancels.remove(&key);
        }
    }

    /// Nobody watched for so long: no submission could have come.
    pub(crate) fn unobserved_cancels(&mut self, gap: Span) {
        self.pending_cancels.values_mut().for_each(|row| row.seen = row.seen + gap);
        self.index.pending_cancels = self.pending_cancels_by_age();
    }

    /// The lookup by age, from nothing.
    pub(super) fn pending_cancels_by_age(&self) -> alloc::collections::BTreeSet<(Timestamp, PendingCancelKey)> {
        self.pending_cancels.iter().map(|(key, row)| (row.seen, key.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: usize) -> PendingCancelKey {
        PendingCancelKey { tenant: "t".into(), subject: alloc::format!("j{n}"), by: None, timed: false }
    }

    #[test]
    fn the_oldest_goes_first() {
        let mut state = State::default();
        for n in 0..=MOST_PENDING_CANCELS {
            state.now = Timestamp(n as u64 / 1000);
            state.keep_cancel(key(n), None);
        }
        assert_eq!(
            (state.pending_cancels().count(), state.index.pending_cancels.len()),
            (MOST_PENDING_CANCELS, MOST_PENDING_CANCELS)
        );
        assert!(state.cancels_of("t", "j0").is_empty());
        assert_eq!(state.cancels_of("t", "j1").len(), 1);
        assert_eq!(state.index.pending_cancels, state.pending_cancels_by_age());
    }

    #[test]
    fn the_later_of_two_counts_and_is_kept_from_then_on() {
        let mut state = State::default();
        let timed = PendingCancelKey { timed: true, ..key(1) };
        for (now, sent) in [(0, 20), (60_000, 30), (120_000, 10)] {
            state.now = Timestamp(now);
            state.keep_cancel(timed.clone(), Some(Timestamp(sent)));
        }
        assert_eq!(state.pending_cancels[&timed], PendingCancel { sent: Some(Timestamp(30)), seen: Timestamp(60_000) });
        state.now = Timestamp(60_000) + PENDING_CANCEL_HORIZON;
        state.forget_old_cancels();
        assert_eq!(state.pending_cancels().count(), 1, "at the horizon it still counts");
        state.now = state.now + Span(1);
        state.forget_old_cancels();
        assert_eq!((state.pending_cancels().count(), state.index.pending_cancels.len()), (0, 0));
    }
}

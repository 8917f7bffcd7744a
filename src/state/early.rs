//! Cancels kept for submissions that may still be on their way: one that came before its job, and each one that says when it was sent.
//!
//! ```text
//! cancel of nobody                -> kept -> the submission comes within the horizon -> accepted and cancelled at once
//! cancel with a time, of somebody -> kept -> a rerun comes that was sent before it   -> the same
//! ```
//!
//! Never: without bound, in number or in time. Never: decides whom a cancel is for; `apply` does, when the submission is there.

use super::State;
use crate::units::{Millis, Span};
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Cancels kept at most; the oldest goes first. It is four times the most events that one call to the controller brings, so that no
/// call loses its own, and at about 200 bytes each (an identity, a principal, two times, and the identity again in the lookup by age)
/// it is some 13 MiB.
pub const MOST_EARLY: usize = 65_536;

/// For so long, in time of the engine, a cancel is kept: longer than a source takes to send again what was not acknowledged (a few
/// tries with doubling pauses), and shorter than anybody takes to use a job's name for other work.
pub const EARLY_HORIZON: Span = Span::mins(10);

/// Which cancel. One principal's never displaces another's: whose counts is known with the job's queue only.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct EarlyKey {
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
pub struct EarlyCancel {
    /// The latest time that it was sent, by its sender. `None`: it does not say.
    pub sent: Option<Millis>,
    /// When it came, by the engine's clock; time that nobody watched is not counted.
    pub seen: Millis,
}

impl State {
    /// Cancels that are kept for submissions which may still come.
    pub fn early_cancels(&self) -> impl Iterator<Item = (&EarlyKey, &EarlyCancel)> + '_ {
        self.early_cancels.iter()
    }

    /// Keeps a cancel. Said again, the one that was sent later counts.
    pub(crate) fn keep_cancel(&mut self, key: EarlyKey, sent: Option<Millis>) {
        let row = EarlyCancel { sent, seen: self.now };
        if let Some(known) = self.early_cancels.get(&key) {
            if known.sent > sent {
                return;
            }
            self.ix.early.remove(&(known.seen, key.clone()));
        }
        self.ix.early.insert((row.seen, key.clone()));
        self.early_cancels.insert(key, row);
        while self.early_cancels.len() > MOST_EARLY {
            let Some((_, oldest)) = self.ix.early.pop_first() else { break };
            self.early_cancels.remove(&oldest);
        }
    }

    /// The cancels that are kept for an identity, in the order of their keys.
    pub(crate) fn cancels_of(&self, tenant: &str, subject: &str) -> Vec<(EarlyKey, Option<Millis>)> {
        if self.early_cancels.is_empty() {
            return Vec::new();
        }
        let first = EarlyKey { tenant: tenant.into(), subject: subject.into(), by: None, timed: false };
        let from = self.early_cancels.range(first..);
        let own = from.take_while(|(key, _)| key.tenant == tenant && key.subject == subject);
        own.map(|(key, row)| (key.clone(), row.sent)).collect()
    }

    pub(crate) fn forget_cancel(&mut self, key: &EarlyKey) {
        if let Some(row) = self.early_cancels.remove(key) {
            self.ix.early.remove(&(row.seen, key.clone()));
        }
    }

    /// Forgets what is past the horizon.
    pub(crate) fn forget_old_cancels(&mut self) {
        while let Some((seen, _)) = self.ix.early.first()
            && self.now.since(*seen) > EARLY_HORIZON
        {
            let Some((_, key)) = self.ix.early.pop_first() else { break };
            self.early_cancels.remove(&key);
        }
    }

    /// Nobody watched for so long: no submission could have come.
    pub(crate) fn unobserved_cancels(&mut self, gap: Span) {
        self.early_cancels.values_mut().for_each(|row| row.seen = row.seen + gap);
        self.ix.early = self.early_by_age();
    }

    /// The lookup by age, from nothing.
    pub(super) fn early_by_age(&self) -> alloc::collections::BTreeSet<(Millis, EarlyKey)> {
        self.early_cancels.iter().map(|(key, row)| (row.seen, key.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: usize) -> EarlyKey {
        EarlyKey { tenant: "t".into(), subject: alloc::format!("j{n}"), by: None, timed: false }
    }

    #[test]
    fn the_oldest_goes_first() {
        let mut state = State::default();
        for n in 0..=MOST_EARLY {
            state.now = Millis(n as u64 / 1000);
            state.keep_cancel(key(n), None);
        }
        assert_eq!((state.early_cancels().count(), state.ix.early.len()), (MOST_EARLY, MOST_EARLY));
        assert!(state.cancels_of("t", "j0").is_empty());
        assert_eq!(state.cancels_of("t", "j1").len(), 1);
        assert_eq!(state.ix.early, state.early_by_age());
    }

    #[test]
    fn the_later_of_two_counts_and_is_kept_from_then_on() {
        let mut state = State::default();
        let timed = EarlyKey { timed: true, ..key(1) };
        for (now, sent) in [(0, 20), (60_000, 30), (120_000, 10)] {
            state.now = Millis(now);
            state.keep_cancel(timed.clone(), Some(Millis(sent)));
        }
        assert_eq!(state.early_cancels[&timed], EarlyCancel { sent: Some(Millis(30)), seen: Millis(60_000) });
        state.now = Millis(60_000) + EARLY_HORIZON;
        state.forget_old_cancels();
        assert_eq!(state.early_cancels().count(), 1, "at the horizon it still counts");
        state.now = state.now + Span(1);
        state.forget_old_cancels();
        assert_eq!((state.early_cancels().count(), state.ix.early.len()), (0, 0));
    }
}

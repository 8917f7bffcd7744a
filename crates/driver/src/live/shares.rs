//! What many share, so that no one can take it from the others: connections, bodies, streams, events in the mailbox, queries.
//!
//! ```text
//! who holds nothing          may take what is free (a large piece leaves the reserve)
//! who holds something        may hold as much as stays free, the reserve not counted
//! one greedy holder: half    two: a third each    n: 1/(n+1) each, and as much stays free for whoever comes
//! ```
//!
//! Nobody has a limit of its own that would be idle while others sleep (Choudhury and Hahne, "Dynamic queue length thresholds", 1998).
//! Never: more than there is, or a name that holds nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Something that is shared by name. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Shares {
    inside: Arc<Mutex<Inside>>,
    all: usize,
    reserve: usize,
}

#[derive(Debug)]
struct Inside {
    free: usize,
    held: BTreeMap<Arc<str>, usize>,
}

/// What somebody holds of it; given back when dropped.
#[derive(Debug)]
pub struct HeldShare {
    of: Arc<Mutex<Inside>>,
    who: Arc<str>,
    amount: usize,
}

fn lock(inside: &Mutex<Inside>) -> MutexGuard<'_, Inside> {
    // Nothing under this lock can panic half way through a change.
    inside.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shares {
    /// So much of it; a sixteenth is the reserve for those who hold nothing and want little.
    #[must_use]
    pub fn new(all: usize) -> Shares {
        let inside = Inside { free: all, held: BTreeMap::new() };
        Shares { inside: Arc::new(Mutex::new(inside)), all, reserve: all / 16 }
    }

    /// A part of it, where that leaves the others theirs.
    #[must_use]
    pub fn take(&self, who: &Arc<str>, amount: usize) -> Option<HeldShare> {
        let mut inside = lock(&self.inside);
        let held = inside.held.get(who).copied().unwrap_or(0);
        let small = held == 0 && amount <= (self.reserve / 16).max(1);
        let free = if small { inside.free } else { inside.free.saturating_sub(self.reserve) };
        let left = free.checked_sub(amount)?;
        if held > 0 && held + amount > left {
            return None;
        }
        inside.free -= amount;
        *inside.held.entry(Arc::clone(who)).or_default() += amount;
        drop(inside);
        Some(HeldShare { of: Arc::clone(&self.inside), who: Arc::clone(who), amount })
    }

    /// A part of what is beside the reserve, for somebody who stands for many: what it holds already does not count.
    #[must_use]
    pub fn take_any(&self, who: &Arc<str>, amount: usize) -> Option<HeldShare> {
        let mut inside = lock(&self.inside);
        inside.free.saturating_sub(self.reserve).checked_sub(amount)?;
        inside.free -= amount;
        *inside.held.entry(Arc::clone(who)).or_default() += amount;
        drop(inside);
        Some(HeldShare { of: Arc::clone(&self.inside), who: Arc::clone(who), amount })
    }

    /// How much there is in all.
    #[must_use]
    pub fn all(&self) -> usize {
        self.all
    }

    /// How much is held now, over everybody.
    #[must_use]
    pub fn held(&self) -> usize {
        self.all - lock(&self.inside).free
    }
}

impl Drop for HeldShare {
    fn drop(&mut self) {
        let mut inside = lock(&self.of);
        inside.free += self.amount;
        if let Some(held) = inside.held.get_mut(&self.who) {
            *held -= self.amount;
            if *held == 0 {
                inside.held.remove(&self.who);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn as_many(shares: &Shares, who: &str) -> Vec<HeldShare> {
        let who = Arc::from(who);
        std::iter::from_fn(|| shares.take(&who, 1)).collect()
    }

    #[test]
    fn greedy_ones_leave_as_much_as_each_of_them_has() {
        let shares = Shares::new(1_600);
        let first = as_many(&shares, "a");
        assert_eq!(first.len(), 750, "half of what is beside the reserve");
        let second = as_many(&shares, "b");
        assert_eq!(second.len(), 375);
        assert!(as_many(&shares, "c").len() > 100);
        drop(first);
        assert!(as_many(&shares, "d").len() > 300, "what is given back is there again");
    }

    #[test]
    fn one_large_piece_may_take_all_but_the_reserve_and_a_newcomer_has_that() {
        let shares = Shares::new(17 * 1_024);
        let (large, small) = (Arc::from("large"), Arc::from("small"));
        let all = shares.take(&large, 16 * 1_024 - 64).expect("nobody holds anything");
        assert!(shares.take(&large, 1).is_none());
        assert!(shares.take(&Arc::from("other"), 2_000).is_none());
        let newcomer = shares.take(&small, 64).expect("the reserve");
        assert!(shares.take(&small, 64).is_none(), "it holds something now");
        drop((all, newcomer));
        assert_eq!(shares.held(), 0);
        assert!(lock(&shares.inside).held.is_empty());
    }
}

//! Shares of what can be borrowed, compared exactly: what two sides of a cohort have borrowed, against what there is and their weights.
//!
//! ```text
//! share = borrowed / lendable / weight, in the pool where that is most        compared at the lowest common ancestor
//! ```
//!
//! Source: dominant resource fairness as in Kueue's preemption. Current use only: neither waiting nor past use counts.
//! Never: rounds. Two shares are compared by the steps of Euclid's algorithm, so that nothing overflows.

use super::State;
use crate::ids::{PoolId, QuotaId};
use crate::units::MilliGpu;
use core::cmp::Ordering;

/// A share: so much of so much. More than nothing of nothing is more than any other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    num: u128,
    den: u128,
}

impl Share {
    const NONE: Share = Share { num: 0, den: 1 };

    /// Whether it is at or below another. More than nothing of nothing never is, or two of these would take from each other in turn.
    pub fn at_most(self, other: Share) -> bool {
        self.den != 0 && self.compare(other) != Ordering::Greater
    }

    /// Which of two is more.
    pub fn compare(self, other: Share) -> Ordering {
        match (self.den, other.den) {
            (0, 0) => Ordering::Equal,
            (0, _) => Ordering::Greater,
            (_, 0) => Ordering::Less,
            _ => fractions(self.num, self.den, other.num, other.den),
        }
    }
}

/// Compares a / b with c / d: their whole parts, then what remains, upside down.
fn fractions(a: u128, b: u128, c: u128, d: u128) -> Ordering {
    let whole = (a / b).cmp(&(c / d));
    match (whole, a % b, c % d) {
        (Ordering::Equal, 0, 0) => Ordering::Equal,
        (Ordering::Equal, 0, _) => Ordering::Less,
        (Ordering::Equal, _, 0) => Ordering::Greater,
        (Ordering::Equal, a, c) => fractions(d, c, b, a),
        _ => whole,
    }
}

/// Where the ways up of two queues meet, and the children of that node on either way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Meeting {
    /// The lowest common ancestor.
    pub at: QuotaId,
    /// Its child on the first one's side.
    pub mine: QuotaId,
    /// Its child on the other's side.
    pub theirs: QuotaId,
}

impl State {
    /// Where two queues meet. Nowhere if they have no common ancestor, or one stands above the other.
    pub fn meeting(&self, mine: QuotaId, theirs: QuotaId) -> Option<Meeting> {
        let mut mine = mine;
        while let Some(at) = self.quota.parent(mine) {
            let mut other = theirs;
            while let Some(above) = self.quota.parent(other) {
                if above == at {
                    return (other != mine).then_some(Meeting { at, mine, theirs: other });
                }
                other = above;
            }
            mine = at;
        }
        None
    }

    /// The share of a child of `at` in one pool, if it uses so much there.
    pub fn share_in(&self, child: QuotaId, at: QuotaId, pool: PoolId, used: MilliGpu) -> Share {
        let weight = self.policy.as_deref().and_then(|p| p.quotas.get(child.index())).map_or(1000, |q| q.weight);
        let borrowed = used - self.quota.subtree(child, pool).unwrap_or(used);
        if borrowed == MilliGpu(0) {
            return Share::NONE;
        }
        let lendable = self.quota.potential(at, pool);
        Share { num: u128::from(borrowed.0), den: u128::from(lendable.0) * u128::from(weight) }
    }

    /// The share of a child of `at` in its most borrowed pool, if it uses `used` in the pool `one`.
    pub fn borrowed_share(&self, child: QuotaId, at: QuotaId, one: PoolId, used: MilliGpu) -> Share {
        let others = (0..self.declared_pools()).map(|at| PoolId(at as u16)).filter(|pool| *pool != one);
        let others = others.map(|pool| self.share_in(child, at, pool, self.quota.usage(child, pool)));
        let more = |a: Share, b: Share| if b.compare(a) == Ordering::Greater { b } else { a };
        others.fold(self.share_in(child, at, one, used), more)
    }

    /// Whether a child of `at` uses no more than its subtree owns, with `used` in a pool.
    pub fn within_own(&self, child: QuotaId, pool: PoolId, used: MilliGpu) -> bool {
        self.quota.subtree(child, pool).is_none_or(|own| used <= own)
    }

    /// Whether every node from a queue up to `top` still uses at least what it owns: only what was borrowed has been taken.
    pub fn owns_all(&self, queue: QuotaId, top: QuotaId, pool: PoolId) -> bool {
        let mut at = queue;
        loop {
            let own = self.quota.subtree(at, pool).unwrap_or_default();
            if self.quota.usage(at, pool) < own {
                return false;
            }
            match self.quota.parent(at) {
                Some(above) if at != top => at = above,
                _ => return true,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_compared_exactly() {
        let share = |num, den| Share { num, den };
        assert_eq!(share(1, 3).compare(share(2, 6)), Ordering::Equal);
        assert_eq!(share(1, 3).compare(share(333_333, 1_000_000)), Ordering::Greater);
        assert_eq!(share(u128::MAX - 1, u128::MAX).compare(share(u128::MAX - 2, u128::MAX - 1)), Ordering::Greater);
        assert_eq!(share(7, 2).compare(share(10, 3)), Ordering::Greater);
        assert_eq!(share(1, 0).compare(share(u128::MAX, 1)), Ordering::Greater);
        for (a, b, c, d) in (0..4096u128).map(|n| (n % 8, n / 8 % 8 + 1, n / 64 % 8, n / 512 + 1)) {
            assert_eq!(share(a, b).compare(share(c, d)), (a * d).cmp(&(c * b)), "{a}/{b} and {c}/{d}");
        }
    }
}

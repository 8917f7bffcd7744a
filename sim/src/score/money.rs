//! Exact sums of money, and rows that are rounded so that they add up.
//!
//! ```text
//! charge = price (micro-dollars an hour) x share x milliseconds / shares of the node / milliseconds an hour
//! sum    = whole micro-dollars + a fraction over each number of shares, exactly
//! rows   = each rounded down, then one more for those with the largest remainders, until they add up to the rounded total
//! ```
//!
//! Never: a float; a rounding before the end.

use forebay_kernel::units::{HOUR_MS, Spend};
use std::cmp::Ordering;
use std::collections::BTreeMap;

const HOUR: i128 = HOUR_MS as i128;

/// A sum of money. By the shares of a node, what is not a whole micro-dollar: 0 up to `shares x HOUR_MS`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Exact {
    whole: i128,
    parts: BTreeMap<u64, i128>,
}

impl Exact {
    /// Adds a price for so much of a node with so many shares.
    pub fn add(&mut self, price: i128, amount: i128, shares: u64) {
        let all = i128::from(shares.max(1)) * HOUR;
        // Price times amount may be more than 128 bits in centuries only: 10^8 x 10^26.
        let sum = price.saturating_mul(amount) + self.parts.get(&shares).copied().unwrap_or(0);
        self.whole += sum.div_euclid(all);
        self.parts.insert(shares, sum.rem_euclid(all));
    }

    /// Adds money of whole nodes.
    pub fn add_spend(&mut self, spend: Spend) {
        self.add(1, i128::try_from(spend.0).unwrap_or(i128::MAX), 1);
    }

    /// Adds another sum.
    pub fn add_sum(&mut self, other: &Exact) {
        self.whole += other.whole;
        for (shares, part) in &other.parts {
            self.add(1, *part, *shares);
        }
    }

    /// Whole micro-dollars, rounded down, and what is left over `common` x [`HOUR_MS`].
    fn split(&self, common: i128) -> (i128, i128) {
        let all = common * HOUR;
        let (mut whole, mut rest) = (self.whole, 0);
        for (shares, part) in &self.parts {
            rest += part * (common / i128::from((*shares).max(1)));
            whole += rest.div_euclid(all);
            rest = rest.rem_euclid(all);
        }
        (whole, rest)
    }

    /// The least common multiple of all numbers of shares. Nodes have 1 to 64 GPUs: below 10^31, so that [`Exact::split`] stays in 128 bits.
    fn common(&self) -> i128 {
        self.parts.keys().fold(1, |common, shares| {
            let shares = i128::from((*shares).max(1));
            common / divisor(common, shares) * shares
        })
    }

    /// In micro-dollars, half up.
    #[must_use]
    pub fn rounded(&self) -> i128 {
        let common = self.common();
        let (whole, rest) = self.split(common);
        whole + i128::from(rest * 2 >= common * HOUR)
    }

    /// Whether it is the same amount.
    #[must_use]
    pub fn same_as(&self, other: &Exact) -> bool {
        let mut both = self.clone();
        both.add_sum(other);
        let common = both.common();
        self.split(common) == other.split(common)
    }
}

fn divisor(a: i128, b: i128) -> i128 {
    if b == 0 { a } else { divisor(b, a % b) }
}

/// Rows in micro-dollars that add up to their rounded total, and that. Of equal remainders the first row gets more.
#[must_use]
pub fn rounded_rows(rows: &[Exact]) -> (Vec<i128>, i128) {
    let mut total = Exact::default();
    rows.iter().for_each(|row| total.add_sum(row));
    let (common, sum) = (total.common(), total.rounded());
    let parts: Vec<(i128, i128)> = rows.iter().map(|row| row.split(common)).collect();
    (largest_remainders(&parts, sum), sum)
}

/// Whole parts, some of them one more, so that they add up to `sum`: those with the largest remainders first.
#[must_use]
pub fn largest_remainders(parts: &[(i128, i128)], sum: i128) -> Vec<i128> {
    let mut out: Vec<i128> = parts.iter().map(|(whole, _)| *whole).collect();
    let missing = usize::try_from(sum - out.iter().sum::<i128>()).unwrap_or(0);
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by(|a, b| match parts[*b].1.cmp(&parts[*a].1) {
        Ordering::Equal => a.cmp(b),
        other => other,
    });
    order.into_iter().take(missing).for_each(|at| out[at] += 1);
    out
}

/// Micro-units as a number with at most six decimals and nothing else: up to a billion it is the nearest to the decimal.
#[must_use]
#[allow(clippy::float_arithmetic)] // Rendering only.
pub fn decimal(micro: i128) -> f64 {
    micro as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(price: i128, amount: i128, shares: u64) -> Exact {
        let mut sum = Exact::default();
        sum.add(price, amount, shares);
        sum
    }

    #[test]
    fn shares_of_a_node_add_up_to_the_node_however_they_are_cut() {
        for (gpus, price) in [(1, 526_000), (3, 1), (7, 32_772_599), (8, 98_320_000)] {
            let mut cut = Exact::default();
            let (all, hours) = (gpus * 1000, 3);
            for ms in 0..1000 {
                let span = hours * HOUR / 1000;
                cut.add(price, 333 * span + ms % 2, u64::try_from(all).unwrap());
                cut.add(price, (all - 333) * span - ms % 2, u64::try_from(all).unwrap());
            }
            let mut whole = Exact::default();
            whole.add_spend(Spend(u128::try_from(price * hours * HOUR).unwrap()));
            assert!(cut.same_as(&whole), "{gpus} GPUs");
            assert_eq!(cut.rounded(), price * hours);
        }
    }

    #[test]
    fn rows_add_up_to_the_total_whatever_their_shares() {
        let rows: Vec<Exact> = [(1, 1000), (5, 1000), (7, 3000), (11, 7000), (13, 8000), (17, 64_000), (19, 1_000_000)]
            .iter()
            .map(|(n, shares)| part(1_234_567 * n, 98_765_432 + 1_000 * n, *shares))
            .collect();
        let (micro, total) = rounded_rows(&rows);
        assert_eq!(micro.iter().sum::<i128>(), total);
        for (row, micro) in rows.iter().zip(&micro) {
            assert!((row.rounded() - micro).abs() <= 1);
        }
    }

    #[test]
    fn three_thirds_are_one() {
        let third = part(1_000_000, HOUR / 3, 1);
        assert_eq!(third.rounded(), 333_333);
        assert_eq!(rounded_rows(&[third.clone(), third.clone(), third]), (vec![333_334, 333_333, 333_333], 1_000_000));
    }

    #[test]
    fn a_number_has_no_noise() {
        let text = |micro| serde_json::to_string(&decimal(micro)).unwrap();
        assert_eq!((text(657_797_476), text(100_000), text(0)), ("657.797476".into(), "0.1".into(), "0.0".into()));
        for micro in (0..2_000_000_000_000_i128).step_by(7_777_777_777) {
            let expected = format!("{}.{:06}", micro / 1_000_000, micro % 1_000_000);
            assert_eq!(text(micro).trim_end_matches('0'), expected.trim_end_matches('0'), "{micro}");
        }
    }
}

//! The simulation's own randomness: SplitMix64, in integers, the same on every machine and in every version.
//! It is never a source of secrets.

use crate::world::hash;

/// Sebastiano Vigna's SplitMix64 (<https://prng.di.unimi.it/splitmix64.c>, public domain): 64 bits of state.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// A stream for this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A stream of its own for a name, so that adding one series never changes another.
    #[must_use]
    pub fn named(seed: u64, name: &str) -> Self {
        // FNV-1a of the name, folded into the seed.
        let hash =
            name.bytes().fold(0xcbf2_9ce4_8422_2325, |h: u64, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
        let mut rng = Self(seed ^ hash);
        rng.next_u64();
        rng
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        let next = hash::finish(self.0);
        self.0 = self.0.wrapping_add(hash::STEP);
        next
    }

    /// A number from 0 to `bound` - 1; 0 where `bound` is 0. The bias is below `bound` / 2^64.
    pub fn below(&mut self, bound: u64) -> u64 {
        hash::below(self.next_u64(), bound)
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low.saturating_add(self.below(high.saturating_sub(low).saturating_add(1)))
    }

    /// True in `permille` of 1000 cases.
    pub fn chance(&mut self, permille: u64) -> bool {
        self.below(1000) < permille
    }

    /// A sample by quantiles: `table` holds evenly spaced ones in rising order, and the sample lies between two neighbours.
    pub fn quantile(&mut self, table: &[u64]) -> u64 {
        let steps = u64::try_from(table.len()).unwrap_or(1).saturating_sub(1).max(1);
        let at = usize::try_from(self.below(steps)).unwrap_or(0);
        let low = table.get(at).copied().unwrap_or(0);
        let high = table.get(at + 1).copied().unwrap_or(low);
        self.between(low, high)
    }
}

#[cfg(test)]
mod tests {
    use super::SplitMix64;

    #[test]
    fn the_stream_is_the_published_one() {
        // First outputs of the reference implementation for seed 1234567.
        let mut rng = SplitMix64::new(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| rng.next_u64()).collect();
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn samples_stay_inside_their_bounds() {
        let mut rng = SplitMix64::new(7);
        for _ in 0..1000 {
            assert!(rng.below(3) < 3);
            assert!((5..=9).contains(&rng.between(5, 9)));
            assert!((10..=1000).contains(&rng.quantile(&[10, 20, 1000])));
        }
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.quantile(&[]), 0);
    }
}

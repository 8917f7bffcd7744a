//! What the world draws: stateless hashes of (seed, kind of draw, of what), so that an outcome depends neither on the order
//! of calls nor on what was drawn before, and a rebuilt world draws the same.
//!
//! Never: a generator with state.

/// What is drawn. The number is part of the hash, so that two kinds never share a draw.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Draw {
    /// How long the cloud takes to answer a launch.
    Answer = 1,
    /// The cloud's id of an instance.
    Instance = 2,
    /// How much longer or shorter a boot takes.
    Boot = 3,
    /// Whether a boot is slow.
    SlowBoot = 4,
    /// Whether a boot ever ends.
    NoBoot = 5,
    /// Which instances are taken back first.
    Reclaim = 6,
    /// Whether a reclaim is announced.
    Warning = 7,
    /// How long a termination takes.
    Termination = 8,
    /// How long the cluster takes to start a gang.
    Start = 9,
    /// Where in its run a job fails.
    FailPoint = 10,
    /// How long a stop takes.
    Stop = 11,
    /// Whether a clean-up hangs.
    Hang = 12,
    /// How far a worker's end is from the first.
    Stagger = 13,
    /// Whether the cloud throttles a launch.
    Throttle = 14,
    /// Whether the cloud fails by its own fault.
    ServerError = 15,
    /// In which rack a purchase stands.
    Rack = 18,
    /// Faults between driver and world.
    Fault = 16,
    /// What random policies and workloads are made of.
    Made = 17,
    /// How old what a describe shows is.
    Stale = 19,
    /// Whether a call is lost before anything is done.
    LostBefore = 20,
    /// Whether an answer is lost.
    LostAfter = 21,
    /// Whether a reclaim comes with a rebalance recommendation.
    Rebalance = 22,
    /// Names that only have to differ: of calls, messages, fleets, launches.
    Id = 23,
    /// Whether the cloud says of a boot that it has failed, and when.
    BootFailed = 24,
}

/// What SplitMix64 adds to its state for each number.
pub(crate) const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// SplitMix64's finaliser: every bit of the input moves about half of the output's.
pub(crate) fn finish(z: u64) -> u64 {
    let z = z.wrapping_add(STEP);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// 64 bits for (seed, kind, a, b).
#[must_use]
pub fn draw(seed: u64, kind: Draw, a: u64, b: u64) -> u64 {
    finish(finish(finish(finish(seed) ^ kind as u64) ^ a) ^ b)
}

/// A number from 0 to `bound` - 1; 0 where `bound` is 0.
#[must_use]
pub fn below(hash: u64, bound: u64) -> u64 {
    let wide = u128::from(hash) * u128::from(bound);
    u64::try_from(wide >> 64).unwrap_or(0)
}

/// True in `permille` of 1000 cases.
#[must_use]
pub fn chance(hash: u64, permille: u16) -> bool {
    below(hash, 1000) < u64::from(permille)
}

/// A name as a number (FNV-1a).
#[must_use]
pub fn name(parts: &[&str]) -> u64 {
    let bytes = parts.iter().flat_map(|p| p.bytes().chain([0xff]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |h: u64, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::{Draw, below, chance, draw, name};

    #[test]
    fn draws_differ_by_each_of_their_parts() {
        let one = draw(1, Draw::Boot, 2, 3);
        assert_eq!(one, draw(1, Draw::Boot, 2, 3));
        for other in [draw(2, Draw::Boot, 2, 3), draw(1, Draw::Start, 2, 3), draw(1, Draw::Boot, 3, 2)] {
            assert_ne!(one, other);
        }
        assert_ne!(name(&["ab", "c"]), name(&["a", "bc"]));
    }

    #[test]
    fn chances_come_out_as_stated() {
        let hits = (0..10_000).filter(|i| chance(draw(7, Draw::Fault, *i, 0), 250)).count();
        assert!((2300..2700).contains(&hits), "{hits} of 10000 at 250 permille");
        assert!((0..1000).all(|i| below(draw(7, Draw::Fault, i, 1), 3) < 3));
        assert_eq!(below(u64::MAX, 0), 0);
    }
}

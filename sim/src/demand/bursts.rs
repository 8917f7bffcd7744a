//! Bursts: stretches in which far more is asked for than usual, and which of them are over before a node could help.
//!
//! ```text
//! usual     = what is asked for in half of the time at most
//! a burst   = asked >= usual x 1.5 and >= usual + 1 GPU    less than a cold start between two stretches: one burst
//! noise     = shorter than the cold start: it is over before a node that is bought for it takes work
//! ```
//!
//! Never: a verdict by height alone.

use super::steps::{DemandSteps, HeldSpell};
use forebay_kernel::units::{GpuTime, MilliGpu, Span, Timestamp};

/// A burst is above the usual by at least this, in thousandths of the usual: below it are the ups and downs of any queue.
const ABOVE_PERMILLE: u64 = 500;
/// And by at least one GPU.
const ABOVE_LEAST: MilliGpu = MilliGpu(1000);

/// The bursts of a window.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BurstProfile {
    /// What is usual.
    pub usual: MilliGpu,
    /// From here on it is a burst.
    pub threshold: MilliGpu,
    /// What is shorter is noise.
    pub boot: Span,
    /// In order of time.
    pub bursts: Vec<DemandBurst>,
}

/// A stretch of more than usual.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DemandBurst {
    /// When it begins.
    pub from: Timestamp,
    /// When it is over, or the window is.
    pub to: Timestamp,
    /// The most at once.
    pub peak: MilliGpu,
    /// GPU time above the usual.
    pub above: GpuTime,
    /// Whether it is over before a node could help. What goes on at the end of the window is not.
    pub noise: bool,
}

impl DemandBurst {
    /// How long it is.
    #[must_use]
    pub fn length(&self) -> Span {
        self.to.since(self.from)
    }

    /// By how much its peak is above the usual.
    #[must_use]
    pub fn height(&self, usual: MilliGpu) -> MilliGpu {
        MilliGpu(self.peak.0.saturating_sub(usual.0))
    }
}

impl BurstProfile {
    /// The bursts of what is asked for.
    #[must_use]
    pub fn of(steps: &DemandSteps, boot: Span) -> BurstProfile {
        let usual = steps.over_time(500);
        let threshold = MilliGpu(usual.0 + (usual.0 * ABOVE_PERMILLE / 1000).max(ABOVE_LEAST.0));
        let mut bursts: Vec<DemandBurst> = Vec::new();
        for step in steps.steps().iter().filter(|step: &&HeldSpell| step.gpus >= threshold) {
            match bursts.last_mut().filter(|last| step.from.since(last.to) < boot || step.from == last.to) {
                Some(last) => (last.to, last.peak) = (step.to, last.peak.max(step.gpus)),
                None => {
                    let (above, noise) = (GpuTime::default(), false);
                    bursts.push(DemandBurst { from: step.from, to: step.to, peak: step.gpus, above, noise });
                }
            }
        }
        let end = steps.window().to;
        let mut at = 0;
        for burst in &mut bursts {
            burst.noise = burst.length() < boot && burst.to < end;
            while steps.steps()[at].to <= burst.from {
                at += 1;
            }
            for step in steps.steps()[at..].iter().take_while(|step| step.from < burst.to) {
                burst.above += MilliGpu(step.gpus.0.saturating_sub(usual.0)).over(step.length());
            }
        }
        BurstProfile { usual, threshold, boot, bursts }
    }

    /// Those that a node can help with.
    pub fn lasting(&self) -> impl Iterator<Item = &DemandBurst> {
        self.bursts.iter().filter(|burst| !burst.noise)
    }

    /// Those that are over before.
    pub fn noise(&self) -> impl Iterator<Item = &DemandBurst> {
        self.bursts.iter().filter(|burst| burst.noise)
    }

    /// The highest peak that a node can help with. `None`: there is no such burst.
    #[must_use]
    pub fn ceiling(&self) -> Option<MilliGpu> {
        self.lasting().map(|burst| burst.peak).max()
    }
}

#[cfg(test)]
mod tests {
    use super::super::DemandWindow;
    use super::*;

    fn spell(from: u64, to: u64, gpus: u64) -> HeldSpell {
        HeldSpell { from: Timestamp(from), to: Timestamp(to), gpus: MilliGpu::whole(gpus) }
    }

    fn bursts(spells: &[HeldSpell]) -> BurstProfile {
        let window = DemandWindow { from: Timestamp(0), to: Timestamp(1000) };
        BurstProfile::of(&DemandSteps::of(spells.iter().copied(), window), Span(50))
    }

    #[test]
    fn a_spike_is_noise_and_spikes_that_follow_each_other_are_one_burst() {
        let spikes =
            [spell(100, 140, 10), spell(300, 330, 6), spell(360, 390, 8), spell(600, 700, 4), spell(800, 900, 3)];
        let found = bursts(&[&[spell(0, 2000, 8)], &spikes[..]].concat());
        assert_eq!((found.usual, found.threshold), (MilliGpu::whole(8), MilliGpu::whole(12)));
        let seen: Vec<_> =
            found.bursts.iter().map(|b| (b.from.0, b.to.0, b.height(found.usual).0 / 1000, b.noise)).collect();
        assert_eq!(seen, [(100, 140, 10, true), (300, 390, 8, false), (600, 700, 4, false)]);
        let above: Vec<u128> = found.bursts.iter().map(|b| b.above.0 / 1000).collect();
        assert_eq!(above, [400, 180 + 240, 400]);
        assert_eq!(found.ceiling(), Some(MilliGpu::whole(16)));
    }

    #[test]
    fn where_nothing_is_usual_one_gpu_is_a_burst_and_what_goes_on_at_the_end_is_no_noise() {
        let found = bursts(&[spell(100, 200, 1), spell(980, 2000, 1)]);
        assert_eq!((found.usual, found.lasting().count(), found.noise().count()), (MilliGpu(0), 2, 0));
        assert_eq!(bursts(&[spell(0, 1000, 5)]).bursts, []);
    }
}

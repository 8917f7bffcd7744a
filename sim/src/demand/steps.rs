//! GPUs over time as steps: exact to the millisecond, whatever the spells that they are the sum of.
//!
//! Never: what lies outside of its window.

use super::DemandWindow;
use forebay_kernel::units::{GpuTime, MilliGpu, Span, Timestamp};

/// So many GPUs from one instant to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeldSpell {
    /// From.
    pub from: Timestamp,
    /// Until.
    pub to: Timestamp,
    /// How many.
    pub gpus: MilliGpu,
}

impl HeldSpell {
    /// How long it is.
    #[must_use]
    pub fn length(&self) -> Span {
        self.to.since(self.from)
    }

    /// GPU time of it.
    #[must_use]
    pub fn gpu_time(&self) -> GpuTime {
        self.gpus.over(self.length())
    }

    /// What of it lies in a window.
    #[must_use]
    pub fn within(&self, window: DemandWindow) -> HeldSpell {
        let clip = |at: Timestamp| at.clamp(window.from, window.to);
        HeldSpell { from: clip(self.from), to: clip(self.to), gpus: self.gpus }
    }
}

/// A sum of spells over a window: stretches of one height each, one after the other, without a gap.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DemandSteps {
    window: DemandWindow,
    steps: Vec<HeldSpell>,
}

/// A part of the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StepBucket {
    /// When it begins.
    pub from: Timestamp,
    /// How long it is.
    pub length: Span,
    /// GPU time in it.
    pub time: GpuTime,
    /// The most at once.
    pub peak: MilliGpu,
}

impl StepBucket {
    /// The mean, rounded down.
    #[must_use]
    pub fn mean(&self) -> MilliGpu {
        per(self.time, self.length)
    }
}

/// GPUs that make so much GPU time in a span, rounded down.
pub(super) fn per(time: GpuTime, span: Span) -> MilliGpu {
    MilliGpu(u64::try_from(time.0 / u128::from(span.0.max(1))).unwrap_or(u64::MAX))
}

impl DemandSteps {
    /// The sum of these spells, in any order.
    #[must_use]
    pub fn of(spells: impl IntoIterator<Item = HeldSpell>, window: DemandWindow) -> DemandSteps {
        let mut changes: Vec<(u64, i64)> = Vec::new();
        for spell in spells.into_iter().map(|spell| spell.within(window)).filter(|spell| spell.length() > Span::ZERO) {
            let gpus = i64::try_from(spell.gpus.0).unwrap_or(i64::MAX);
            changes.extend([(spell.from.0, gpus), (spell.to.0, -gpus)]);
        }
        changes.sort_unstable_by_key(|(at, _)| *at);
        let mut steps: Vec<HeldSpell> = Vec::new();
        let (mut from, mut height) = (window.from, 0_i64);
        let mut changes = changes.into_iter().peekable();
        while from < window.to {
            while let Some((_, by)) = changes.next_if(|(at, _)| *at <= from.0) {
                height = height.saturating_add(by);
            }
            let to = changes.peek().map_or(window.to, |(at, _)| Timestamp(*at).min(window.to));
            let gpus = MilliGpu(u64::try_from(height).unwrap_or(0));
            match steps.last_mut().filter(|last| last.gpus == gpus) {
                Some(last) => last.to = to,
                None => steps.push(HeldSpell { from, to, gpus }),
            }
            from = to;
        }
        DemandSteps { window, steps }
    }

    /// The steps in order of time.
    #[must_use]
    pub fn steps(&self) -> &[HeldSpell] {
        &self.steps
    }

    /// The window.
    #[must_use]
    pub fn window(&self) -> DemandWindow {
        self.window
    }

    /// The least height that is not exceeded in so many thousandths of the time.
    #[must_use]
    pub fn over_time(&self, permille: u64) -> MilliGpu {
        let mut by_height: Vec<&HeldSpell> = self.steps.iter().collect();
        by_height.sort_unstable_by_key(|step| step.gpus);
        let wanted = u128::from(self.window.length().0) * u128::from(permille);
        let mut passed = 0_u128;
        for step in by_height {
            passed += u128::from(step.length().0) * 1000;
            if passed >= wanted {
                return step.gpus;
            }
        }
        MilliGpu(0)
    }

    /// All of it.
    #[must_use]
    pub fn time(&self) -> GpuTime {
        let mut all = GpuTime::default();
        self.steps.iter().for_each(|step| all += step.gpu_time());
        all
    }

    /// The most at once.
    #[must_use]
    pub fn peak(&self) -> MilliGpu {
        self.steps.iter().map(|step| step.gpus).max().unwrap_or(MilliGpu(0))
    }

    /// The window in parts of one length, which begin at multiples of it after `zero`. The first and the last may be shorter.
    #[must_use]
    pub fn buckets(&self, zero: Timestamp, length: Span) -> Vec<StepBucket> {
        let length = length.0.max(1);
        let mut buckets: Vec<StepBucket> = Vec::new();
        let mut steps = self.steps.iter().peekable();
        let mut from = self.window.from;
        while from < self.window.to {
            let next = zero.0 + (from.since(zero).0 / length + 1) * length;
            let part = DemandWindow { from, to: Timestamp(next).min(self.window.to) };
            let mut bucket = StepBucket { from, length: part.length(), time: GpuTime::default(), peak: MilliGpu(0) };
            while let Some(step) = steps.peek().filter(|step| step.from < part.to) {
                bucket.time += step.within(part).gpu_time();
                bucket.peak = bucket.peak.max(step.gpus);
                if step.to > part.to {
                    break;
                }
                steps.next();
            }
            buckets.push(bucket);
            from = part.to;
        }
        buckets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spell(from: u64, to: u64, gpus: u64) -> HeldSpell {
        HeldSpell { from: Timestamp(from), to: Timestamp(to), gpus: MilliGpu::whole(gpus) }
    }

    fn steps() -> DemandSteps {
        let window = DemandWindow { from: Timestamp(10), to: Timestamp(110) };
        DemandSteps::of(
            [spell(0, 60, 2), spell(20, 30, 5), spell(30, 30, 9), spell(30, 40, 5), spell(90, 500, 1)],
            window,
        )
    }

    #[test]
    fn spells_add_up_within_the_window() {
        let expected = [spell(10, 20, 2), spell(20, 40, 7), spell(40, 60, 2), spell(60, 90, 0), spell(90, 110, 1)];
        assert_eq!(steps().steps(), expected);
        assert_eq!(steps().time(), GpuTime(1000 * (20 + 140 + 40 + 20)));
        assert_eq!(steps().peak(), MilliGpu::whole(7));
    }

    #[test]
    fn a_part_of_the_time_is_at_most_that_high() {
        // 30 ms at 0, 20 at 1, 30 at 2, 20 at 7.
        let heights = [0, 300, 301, 500, 501, 800, 801, 1000].map(|permille| steps().over_time(permille).0 / 1000);
        assert_eq!(heights, [0, 0, 1, 1, 2, 2, 7, 7]);
    }

    #[test]
    fn parts_begin_at_multiples_and_miss_nothing() {
        let parts = steps().buckets(Timestamp(0), Span(50));
        let found: Vec<_> = parts.iter().map(|b| (b.from.0, b.length.0, b.time.0 / 1000, b.peak.0 / 1000)).collect();
        assert_eq!(found, [(10, 40, 180, 7), (50, 50, 30, 2), (100, 10, 10, 1)]);
        assert_eq!(parts[0].mean(), MilliGpu(4500));
    }
}

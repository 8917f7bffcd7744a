//! What a placement leaves behind that the typical mix of jobs could not use.
//!
//! ```text
//! F(node) = sum over kinds of the mix:  count x free share of the node that a worker of that kind could not use
//!           whole GPUs: all of it where too few GPUs are free, else what is free on GPUs in part taken
//!           a share:    what is free on GPUs with less than that left
//! the candidate whose F grows least is taken
//! ```
//!
//! Source: FGD (Weng et al., USENIX ATC 2023), here in integers, by what changes alone: parts of the sum that a placement leaves as
//! they were cancel out, so that candidates with as much free are equal. Never: looks at a node.

use crate::state::mix::{Mix, WorkKind};

/// How F grows when `taken` of `free` GPUs with nothing on them are taken whole.
pub(super) fn whole(mix: &Mix, gpus: u16, free: u16, taken: u16) -> i64 {
    let grows = |kind: WorkKind| {
        let (free, taken, asks) = (i64::from(free), i64::from(taken), i64::from(of_node(kind, gpus)));
        if kind.share < 1000 || asks <= free - taken {
            0
        } else if asks <= free {
            (free - taken) * 1000
        } else {
            -taken * 1000
        }
    };
    over(mix, grows)
}

/// How F grows when a share of a GPU in part taken goes, of which `free` is left.
pub(super) fn part(mix: &Mix, free: u16, share: u16) -> i64 {
    let (free, share) = (i64::from(free), i64::from(share));
    over(mix, |kind| if kind.share < 1000 { small(kind, free - share) - small(kind, free) } else { -share })
}

/// How F grows when a share is taken of one of `free` GPUs with nothing on them.
pub(super) fn fresh(mix: &Mix, gpus: u16, free: u16, share: u16) -> i64 {
    let left = 1000 - i64::from(share);
    let grows = |kind: WorkKind| {
        let (free, asks) = (i64::from(free), i64::from(of_node(kind, gpus)));
        if kind.share < 1000 {
            small(kind, left)
        } else if asks < free {
            left
        } else if asks == free {
            (free - 1) * 1000 + left
        } else {
            left - 1000
        }
    };
    over(mix, grows)
}

/// A gang larger than a node takes all of it.
fn of_node(kind: WorkKind, gpus: u16) -> u16 {
    kind.gpus.min(gpus)
}

fn small(kind: WorkKind, free: i64) -> i64 {
    if free < i64::from(kind.share) { free } else { 0 }
}

fn over(mix: &Mix, grows: impl Fn(WorkKind) -> i64) -> i64 {
    mix.kinds().iter().map(|(kind, count)| grows(*kind) * i64::from(*count)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// F by its definition, over the free share of each GPU.
    fn f(mix: &Mix, slots: &[i64]) -> i64 {
        let all: i64 = slots.iter().sum();
        let whole = slots.iter().filter(|s| **s == 1000).count() as i64;
        let one = |kind: &WorkKind| {
            let asks = i64::from(kind.gpus.min(slots.len() as u16));
            if kind.share < 1000 {
                slots.iter().filter(|s| **s < i64::from(kind.share)).sum()
            } else if whole < asks {
                all
            } else {
                all - whole * 1000
            }
        };
        mix.kinds().iter().map(|(kind, count)| one(kind) * i64::from(*count)).sum()
    }

    /// Seeded numbers: the test is the same on any machine.
    struct Dice(u64);

    impl Dice {
        fn roll(&mut self, bound: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % bound
        }
    }

    #[test]
    fn what_changes_is_what_the_definition_says() {
        for seed in 0..2000 {
            let mut dice = Dice(seed);
            let mut mix = Mix::default();
            for _ in 0..dice.roll(60) {
                let kind = match dice.roll(2) {
                    0 => WorkKind { gpus: 1, share: 50 * (1 + dice.roll(19) as u16) },
                    _ => WorkKind { gpus: 1 + dice.roll(16) as u16, share: 1000 },
                };
                mix.add(kind);
            }
            let free = |dice: &mut Dice| if dice.roll(2) == 0 { 1000 } else { 50 * dice.roll(20) as i64 };
            let slots: Vec<i64> = (0..1 + dice.roll(8)).map(|_| free(&mut dice)).collect();
            let (gpus, before) = (slots.len() as u16, f(&mix, &slots));
            let fresh_ones: Vec<usize> = (0..slots.len()).filter(|at| slots[*at] == 1000).collect();
            let count = fresh_ones.len() as u16;
            for taken in 1..=count {
                let mut after = slots.clone();
                fresh_ones.iter().take(usize::from(taken)).for_each(|at| after[*at] = 0);
                assert_eq!(whole(&mix, gpus, count, taken), f(&mix, &after) - before, "seed {seed}: {slots:?} {taken}");
            }
            let share = 50 * (1 + dice.roll(19) as u16);
            for at in 0..slots.len() {
                let mut after = slots.clone();
                after[at] -= i64::from(share);
                let grows = match slots[at] {
                    1000 => fresh(&mix, gpus, count, share),
                    free if after[at] >= 0 => part(&mix, free as u16, share),
                    _ => continue,
                };
                assert_eq!(grows, f(&mix, &after) - before, "seed {seed}: {slots:?} GPU {at} -{share}");
            }
        }
    }
}

//! Faults between the driver and the world: effects and messages that are lost, doubled or late, lists that are stale, clocks that
//! step. What goes wrong inside the world (no stock, throttling, boots that never end) are knobs of the world itself.
//!
//! ```text
//! engine -> effects -> [lost | twice | late] -> world -> events -> [lost | twice | late] -> engine
//! ```
//!
//! Never: makes up a message. Every fault loses, repeats or delays what was there.

use forebay_kernel::units::{Span, Timestamp};

use crate::market::Market;
use crate::world::hash::{Draw, below, chance, draw};
use crate::world::{Agenda, WorldOptions};

/// The longest that a message or effect is late, and a list stale: below [`forebay_kernel::reconcile::SETTLED`].
const LONGEST_LATE: Span = Span::secs(60);

/// How often what goes wrong on the way in one direction, in 1/1000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkFaults {
    /// Never arrives.
    pub lose: u16,
    /// Arrives twice.
    pub double: u16,
    /// Arrives up to a minute late, and so out of order.
    pub late: u16,
}

/// How often what goes wrong, in 1/1000. All zero: nothing does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultPlan {
    /// What happens to effects.
    pub effects: LinkFaults,
    /// What happens to messages.
    pub events: LinkFaults,
    /// Listings that are up to a minute old when they are compared.
    pub stale_list: u16,
    /// Batches at which the process dies.
    pub crash: u16,
    /// Batches at which the wall clock steps.
    pub clock_step: u16,
    /// Nothing goes wrong after this.
    pub until: Timestamp,
}

impl FaultPlan {
    /// Each kind of fault is there in every second plan, at a rate of its own.
    #[must_use]
    pub fn random(seed: u64, until: Timestamp) -> FaultPlan {
        let rate = |nth: u64, most: u64| {
            let hash = draw(seed, Draw::Fault, u64::MAX, nth);
            let on = below(draw(seed, Draw::Fault, u64::MAX - 1, nth), 2) == 1;
            if on { u16::try_from(1 + below(hash, most)).unwrap_or(0) } else { 0 }
        };
        FaultPlan {
            effects: LinkFaults { lose: rate(0, 150), double: rate(1, 150), late: rate(2, 200) },
            events: LinkFaults { lose: rate(3, 120), double: rate(4, 150), late: rate(5, 200) },
            stale_list: rate(6, 500),
            crash: rate(7, 120),
            clock_step: rate(8, 20),
            until,
        }
    }

    /// A world whose own faults go with this seed.
    #[must_use]
    pub fn world(seed: u64, market: Market) -> WorldOptions {
        let number = |nth: u64, most: u64| below(draw(seed, Draw::Fault, u64::MAX - 2, nth), most + 1);
        let rate = |nth: u64, most: u64| match number(nth + 100, 1) {
            0 => 0,
            _ => u16::try_from(number(nth, most)).unwrap_or(0),
        };
        let out = number(20, 4 * 3_600_000);
        let warning = u16::try_from(number(1, 1000)).unwrap_or(0);
        WorldOptions {
            warning_permille: [1000, 0, warning, warning][number(2, 3) as usize],
            depth: (number(3, 1) == 0).then(|| u32::try_from(1 + number(4, 6)).unwrap_or(1)),
            throttle_permille: rate(5, 300),
            server_error_permille: rate(6, 200),
            slow_boot_permille: rate(7, 200),
            no_boot_permille: rate(8, 150),
            hang_permille: rate(9, 500),
            hang_for_ever_permille: rate(11, 200),
            racks: u64::from(rate(12, 4)),
            on_demand_out: match number(10, 2) {
                0 => vec![(Timestamp(out), Timestamp(out + number(21, 2 * 3_600_000)))],
                _ => Vec::new(),
            },
            ..WorldOptions::new(seed, market)
        }
    }
}

/// What went wrong on the way in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkTally {
    /// Lost on the way or in a crash.
    pub lost: u64,
    /// Delivered twice.
    pub doubled: u64,
    /// Delivered late.
    pub late: u64,
}

/// What goes wrong next: the plan, and the draws from it.
#[derive(Clone, Debug)]
pub(crate) struct Faults {
    pub plan: FaultPlan,
    seed: u64,
    nth: u64,
}

impl Faults {
    pub fn new(seed: u64, plan: FaultPlan) -> Faults {
        Faults { plan, seed, nth: 0 }
    }

    /// Whether a fault of this rate happens now.
    pub fn happens(&mut self, now: Timestamp, permille: u16) -> bool {
        now < self.plan.until && permille > 0 && chance(self.hash(), permille)
    }

    /// A number below `bound`.
    pub fn pick(&mut self, bound: u64) -> u64 {
        below(self.hash(), bound)
    }

    fn late(&mut self) -> Span {
        Span(1 + self.pick(LONGEST_LATE.0))
    }

    fn hash(&mut self) -> u64 {
        self.nth += 1;
        draw(self.seed, Draw::Fault, self.nth, 0)
    }
}

/// Effects or messages on their way.
#[derive(Clone, Debug)]
pub(crate) struct Link<T> {
    rates: LinkFaults,
    queue: Agenda<T>,
    pub tally: LinkTally,
}

impl<T: Clone> Link<T> {
    pub fn new(rates: LinkFaults) -> Link<T> {
        Link { rates, queue: Agenda::default(), tally: LinkTally::default() }
    }

    /// Sends something on its way.
    pub fn send(&mut self, now: Timestamp, message: T, faults: &mut Faults) {
        if faults.happens(now, self.rates.lose) {
            self.tally.lost += 1;
            return;
        }
        if faults.happens(now, self.rates.double) {
            self.tally.doubled += 1;
            self.queue.at(now + faults.late(), message.clone());
        }
        let late = faults.happens(now, self.rates.late);
        self.tally.late += u64::from(late);
        let at = if late { now + faults.late() } else { now };
        faults.nth += 1;
        self.queue.at(at, message);
    }

    /// What has arrived by `now`, in order.
    pub fn arrived(&mut self, now: Timestamp) -> Vec<T> {
        std::iter::from_fn(|| self.queue.pop(now)).map(|(_, message)| message).collect()
    }

    /// Nothing of what is on its way arrives.
    pub fn forget(&mut self) {
        self.tally.lost += self.arrived(Timestamp::NEVER).len() as u64;
    }

    /// When the next one arrives.
    pub fn next(&self) -> Option<Timestamp> {
        self.queue.next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_faults_everything_arrives_at_once_in_order() {
        let plan = FaultPlan::default();
        let (mut faults, mut link) = (Faults::new(1, plan), Link::new(plan.events));
        (0..10).for_each(|n| link.send(Timestamp(5), n, &mut faults));
        assert_eq!(link.next(), Some(Timestamp(5)));
        assert_eq!(link.arrived(Timestamp(5)), (0..10).collect::<Vec<_>>());
        assert_eq!(link.next(), None);
    }

    #[test]
    fn faults_lose_double_and_delay_until_they_end() {
        let events = LinkFaults { lose: 300, double: 300, late: 300 };
        let plan = FaultPlan { events, until: Timestamp(100), ..FaultPlan::default() };
        let (mut faults, mut link) = (Faults::new(1, plan), Link::new(plan.events));
        (0..100).for_each(|n| link.send(Timestamp(5), n, &mut faults));
        let at_once = link.arrived(Timestamp(5)).len();
        let late = link.arrived(Timestamp(100_000)).len();
        let tally = link.tally;
        assert!(tally.lost > 10 && tally.doubled > 10 && tally.late > 10);
        assert_eq!(at_once + late, 100 - tally.lost as usize + tally.doubled as usize);
        (0..100).for_each(|n| link.send(Timestamp(100), n, &mut faults));
        assert_eq!(link.arrived(Timestamp(100)).len(), 100);
    }
}

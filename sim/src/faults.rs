//! Faults between the driver and the world: effects and messages that are lost, doubled or late, lists that are stale, clocks that
//! step. What goes wrong inside the world (no stock, throttling, boots that never end) are knobs of the world itself.
//!
//! ```text
//! engine -> effects -> [lost | twice | late] -> world -> events -> [lost | twice | late] -> engine
//! ```
//!
//! Never: makes up a message. Every fault loses, repeats or delays what was there.

use std::collections::BTreeMap;

use forebay_kernel::effect::Effect;
use forebay_kernel::event::Event;
use forebay_kernel::units::{Span, Timestamp};

use crate::market::Market;
use crate::world::WorldOptions;
use crate::world::hash::{Draw, below, chance, draw};

/// The longest that a message or effect is late, and a list stale: below [`forebay_kernel::reconcile::SETTLED`].
const LONGEST_LATE: Span = Span::secs(60);

/// How often what goes wrong, in 1/1000. All zero: nothing does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultPlan {
    /// Effects that never arrive.
    pub lose_effect: u16,
    /// Effects that arrive twice.
    pub double_effect: u16,
    /// Effects that arrive up to a minute late.
    pub late_effect: u16,
    /// Messages that never arrive.
    pub lose_event: u16,
    /// Messages that arrive twice.
    pub double_event: u16,
    /// Messages that arrive up to a minute late, and so out of order.
    pub late_event: u16,
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
            lose_effect: rate(0, 150),
            double_effect: rate(1, 150),
            late_effect: rate(2, 200),
            lose_event: rate(3, 120),
            double_event: rate(4, 150),
            late_event: rate(5, 200),
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

/// What went wrong, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultTally {
    /// Effects that never arrived.
    pub lost_effects: u64,
    /// Effects that arrived twice.
    pub doubled_effects: u64,
    /// Effects that arrived late.
    pub late_effects: u64,
    /// Messages that never arrived.
    pub lost_events: u64,
    /// Messages that arrived twice.
    pub doubled_events: u64,
    /// Messages that arrived late.
    pub late_events: u64,
}

/// The way between driver and world, both directions.
#[derive(Clone, Debug)]
pub(crate) struct Channel {
    plan: FaultPlan,
    seed: u64,
    nth: u64,
    effects: BTreeMap<(Timestamp, u64), Effect>,
    events: BTreeMap<(Timestamp, u64), Event>,
    pub tally: FaultTally,
}

impl Channel {
    pub fn new(seed: u64, plan: FaultPlan) -> Channel {
        let (effects, events) = (BTreeMap::new(), BTreeMap::new());
        Channel { plan, seed, nth: 0, effects, events, tally: FaultTally::default() }
    }

    /// Effects on their way to the world.
    pub fn send(&mut self, now: Timestamp, effect: Effect) {
        let plan = self.plan;
        if self.happens(now, plan.lose_effect) {
            self.tally.lost_effects += 1;
            return;
        }
        if self.happens(now, plan.double_effect) {
            self.tally.doubled_effects += 1;
            let at = now + self.late();
            self.effects.insert((at, self.nth), effect.clone());
        }
        let mut at = now;
        if self.happens(now, plan.late_effect) {
            self.tally.late_effects += 1;
            at = now + self.late();
        }
        self.nth += 1;
        self.effects.insert((at, self.nth), effect);
    }

    /// Messages on their way to the engine.
    pub fn receive(&mut self, now: Timestamp, event: Event) {
        let plan = self.plan;
        if self.happens(now, plan.lose_event) {
            self.tally.lost_events += 1;
            return;
        }
        if self.happens(now, plan.double_event) {
            self.tally.doubled_events += 1;
            let at = now + self.late();
            self.events.insert((at, self.nth), event.clone());
        }
        let mut at = now;
        if self.happens(now, plan.late_event) {
            self.tally.late_events += 1;
            at = now + self.late();
        }
        self.nth += 1;
        self.events.insert((at, self.nth), event);
    }

    /// Effects that arrive by now.
    pub fn arrived_effects(&mut self, now: Timestamp) -> Vec<Effect> {
        let later = self.effects.split_off(&(now + Span(1), 0));
        std::mem::replace(&mut self.effects, later).into_values().collect()
    }

    /// Messages that arrive by now.
    pub fn arrived_events(&mut self, now: Timestamp) -> Vec<Event> {
        let later = self.events.split_off(&(now + Span(1), 0));
        std::mem::replace(&mut self.events, later).into_values().collect()
    }

    /// The process dies: what was on its way to the engine is gone. Effects that left are with the world.
    pub fn forget_events(&mut self) {
        self.tally.lost_events += self.events.len() as u64;
        self.events.clear();
    }

    /// The world dies too: what was on its way there is gone.
    pub fn forget_effects(&mut self) {
        self.tally.lost_effects += self.effects.len() as u64;
        self.effects.clear();
    }

    /// When something arrives next.
    pub fn next(&self) -> Option<Timestamp> {
        let effect = self.effects.keys().next().map(|k| k.0);
        let event = self.events.keys().next().map(|k| k.0);
        effect.into_iter().chain(event).min()
    }

    /// Whether a fault of this rate happens now.
    pub fn happens(&mut self, now: Timestamp, permille: u16) -> bool {
        now < self.plan.until && permille > 0 && chance(self.hash(), permille)
    }

    /// A number below `bound`.
    pub fn pick(&mut self, bound: u64) -> u64 {
        below(self.hash(), bound)
    }

    pub fn plan(&self) -> FaultPlan {
        self.plan
    }

    fn late(&mut self) -> Span {
        Span(1 + self.pick(LONGEST_LATE.0))
    }

    fn hash(&mut self) -> u64 {
        self.nth += 1;
        draw(self.seed, Draw::Fault, self.nth, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beat(n: u64) -> Event {
        Event::NodeReady { instance: format!("i-{n}") }
    }

    #[test]
    fn without_faults_everything_arrives_at_once_in_order() {
        let mut channel = Channel::new(1, FaultPlan::default());
        (0..10).for_each(|n| channel.receive(Timestamp(5), beat(n)));
        assert_eq!(channel.next(), Some(Timestamp(5)));
        assert_eq!(channel.arrived_events(Timestamp(5)), (0..10).map(beat).collect::<Vec<_>>());
        assert_eq!(channel.next(), None);
    }

    #[test]
    fn faults_lose_double_and_delay_until_they_end() {
        let plan = FaultPlan {
            lose_event: 300,
            double_event: 300,
            late_event: 300,
            until: Timestamp(100),
            ..FaultPlan::default()
        };
        let mut channel = Channel::new(1, plan);
        (0..100).for_each(|n| channel.receive(Timestamp(5), beat(n)));
        let at_once = channel.arrived_events(Timestamp(5)).len();
        let late = channel.arrived_events(Timestamp(100_000)).len();
        let tally = channel.tally;
        assert!(tally.lost_events > 10 && tally.doubled_events > 10 && tally.late_events > 10);
        assert_eq!(at_once + late, 100 - tally.lost_events as usize + tally.doubled_events as usize);
        (0..100).for_each(|n| channel.receive(Timestamp(100), beat(n)));
        assert_eq!(channel.arrived_events(Timestamp(100)).len(), 100);
    }
}

//! Floors by the calendar: how many nodes a pool keeps ready at an instant, and when that changes next.
//!
//! ```text
//! keep 2, Mon-Fri 09:00-18:00 Europe/Berlin    offsets: +1 h, from the last Sunday of March on +2 h, ...
//! local time = UTC + the offset in force; a window that ends at or before its start ends the next day
//! ```
//!
//! Never: a time zone's name. Whoever compiled the policy wrote the offsets down, so that every machine reads the same clock.

use crate::policy::{Floor, Policy, Pool, Watermarks};
use crate::state::State;
use crate::units::Timestamp;

const DAY: i64 = 86_400_000;
const MINUTE: i64 = 60_000;
/// Day 0 of the epoch was a Thursday; bit 0 of a floor's days is Monday.
const FIRST_WEEKDAY: i64 = 3;

impl State {
    /// Whether nothing is being bought, and no more bought nodes are left than pools keep ready, all of them idle: these stay when nobody works.
    #[must_use]
    pub fn holds_only_floors(&self) -> bool {
        let pools = self.policy().map_or(&[][..], |policy| &policy.pools);
        let kept: u32 = pools.iter().map(|pool| pool.emptied_above(self.now())).sum();
        let nodes = self.bought_nodes().count();
        self.purchases().next().is_none() && nodes <= kept as usize && self.index().idle.len() == nodes
    }
}

impl Pool {
    /// Nodes that it keeps ready at an instant: the largest floor that holds.
    #[must_use]
    pub fn kept(&self, now: Timestamp) -> u32 {
        let holding = self.floors.iter().filter(|floor| holds(floor, now)).map(|floor| floor.nodes);
        holding.max().unwrap_or(0).max(self.keep_ready)
    }

    /// With fewer nodes to spare than this at an instant they are bought, up to [`Pool::emptied_above`].
    #[must_use]
    pub fn filled_below(&self, now: Timestamp) -> u32 {
        self.mark(now).map_or_else(|| self.kept(now), |marks| marks.low)
    }

    /// With more nodes to spare than this at an instant they are given back down to what it keeps.
    #[must_use]
    pub fn emptied_above(&self, now: Timestamp) -> u32 {
        self.mark(now).map_or_else(|| self.kept(now), |marks| marks.high)
    }

    /// The watermarks, unless the calendar asks for more than what is always kept.
    fn mark(&self, now: Timestamp) -> Option<Watermarks> {
        self.watermarks.filter(|_| self.kept(now) == self.keep_ready)
    }
}

/// When the floor of any pool may change next.
pub fn next_change(policy: &Policy, now: Timestamp) -> Option<Timestamp> {
    let floors = policy.pools.iter().flat_map(|pool| &pool.floors);
    floors.filter_map(|floor| changes(floor, now)).min()
}

fn holds(floor: &Floor, now: Timestamp) -> bool {
    let local = local(floor, now);
    let (day, time) = (local.div_euclid(DAY), local.rem_euclid(DAY));
    let (from, to) = window(floor);
    let today = on(floor, day) && from <= time && time < to;
    let since_yesterday = on(floor, day - 1) && time + DAY < to;
    today || since_yesterday
}

/// The next start, end or change of clocks. Beyond a change of clocks nothing is computed: it is asked again then.
fn changes(floor: &Floor, now: Timestamp) -> Option<Timestamp> {
    let (from, to) = window(floor);
    let utc = millis(now);
    let ahead = local(floor, now) - utc;
    let today = (utc + ahead).div_euclid(DAY);
    let days = (today - 1..=today + 8).filter(|day| on(floor, *day));
    let ends = days.flat_map(|day| [day * DAY + from, day * DAY + to]);
    let next = ends.map(|at| at - ahead).filter(|at| *at > utc).min();
    let next = next.and_then(|at| u64::try_from(at).ok()).map(Timestamp);
    let clocks = floor.offsets.iter().map(|(at, _)| *at).filter(|at| *at > now).min();
    next.into_iter().chain(clocks).min()
}

/// Milliseconds from midnight on; past 24 h: into the next day.
fn window(floor: &Floor) -> (i64, i64) {
    let (from, to) = (i64::from(floor.from) * MINUTE, i64::from(floor.to) * MINUTE);
    (from, if to <= from { to + DAY } else { to })
}

fn on(floor: &Floor, day: i64) -> bool {
    floor.days & (1 << (day + FIRST_WEEKDAY).rem_euclid(7)) != 0
}

fn local(floor: &Floor, now: Timestamp) -> i64 {
    let offset = floor.offsets.iter().take_while(|(at, _)| *at <= now).last().map_or(0, |(_, secs)| *secs);
    millis(now) + i64::from(offset) * 1000
}

/// Saturated a thousand days before the end of 64 bits, so that sums above do not overflow.
fn millis(at: Timestamp) -> i64 {
    i64::try_from(at.0).unwrap_or(i64::MAX).min(i64::MAX - 1000 * DAY)
}

#[cfg(test)]
mod tests {
    use super::{Floor, Pool, Timestamp, Watermarks, changes, holds};
    use alloc::vec;
    use alloc::vec::Vec;

    const HOUR: u64 = 3_600_000;

    fn floor(days: u8, from: u16, to: u16, offsets: Vec<(Timestamp, i32)>) -> Floor {
        Floor { nodes: 2, days, from: from * 60, to: to * 60, offsets }
    }

    /// The changes found by asking for the next one, against those seen when every quarter of an hour is looked at.
    fn agree(floor: &Floor) {
        let (mut seen, mut found) = (Vec::new(), Vec::new());
        let quarter = HOUR / 4;
        let mut before = holds(floor, Timestamp(0));
        for at in (1..24 * 4 * 21).map(|n| Timestamp(n * quarter)) {
            let now = holds(floor, at);
            if now != before {
                seen.push(at);
            }
            before = now;
        }
        let mut at = Timestamp(0);
        while let Some(next) = changes(floor, at).filter(|next| next.0 < 24 * 4 * 21 * quarter) {
            if holds(floor, next) != holds(floor, Timestamp(next.0 - 1)) {
                found.push(next);
            }
            at = next;
        }
        assert_eq!(seen, found, "{floor:?}");
    }

    #[test]
    fn every_change_is_found_at_its_instant() {
        agree(&floor(0b001_1111, 9, 18, vec![]));
        agree(&floor(0b001_1111, 22, 6, vec![(Timestamp(0), 3600)]));
        agree(&floor(0b111_1111, 0, 24, vec![]));
        agree(&floor(0b100_0000, 5, 5, vec![(Timestamp(0), -5 * 3600), (Timestamp(8 * 24 * HOUR), -4 * 3600)]));
        agree(&floor(0b000_0001, 1, 2, vec![(Timestamp(0), 3600), (Timestamp(4 * 24 * HOUR + HOUR), 7200)]));
        agree(&floor(0, 1, 2, vec![]));
    }

    #[test]
    fn the_epoch_began_on_a_thursday() {
        let thursday = floor(0b000_1000, 9, 18, vec![]);
        assert!(!holds(&thursday, Timestamp(9 * HOUR - 1)));
        assert!(holds(&thursday, Timestamp(9 * HOUR)));
        assert!(!holds(&thursday, Timestamp(18 * HOUR)));
        assert!(!holds(&thursday, Timestamp(33 * HOUR)));
        let pool = Pool { keep_ready: 1, floors: vec![thursday], ..Pool::default() };
        assert_eq!((pool.kept(Timestamp(0)), pool.kept(Timestamp(10 * HOUR))), (1, 2));
        let marked = Pool { keep_ready: 4, watermarks: Some(Watermarks { low: 1, high: 6 }), ..pool.clone() };
        let at = |now: u64| (marked.filled_below(Timestamp(now)), marked.emptied_above(Timestamp(now)));
        assert_eq!((at(0), at(10 * HOUR)), ((1, 6), (1, 6)));
        let more = Pool { keep_ready: 1, ..marked };
        let at = |now: u64| (more.filled_below(Timestamp(now)), more.emptied_above(Timestamp(now)));
        assert_eq!((at(0), at(10 * HOUR)), ((1, 6), (2, 2)), "in the hours of a larger floor that one counts");
    }
}

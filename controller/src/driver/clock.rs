//! The driver's time: the wall's, a replay's at a stated speed, or as fast as it goes.
//!
//! ```text
//! Wall       max(last tick, wall) at the start, monotonic from there; a step of the wall clock is only said
//! Scaled(n)  from the last tick or the file's first event, n seconds a second
//! Max        jumps to whatever is due next: no real time enters, so the same file gives the same batches
//! ```
//!
//! Never: goes back.

use forebay_engine::units::{Millis, Span};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Whose time it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The wall's.
    Wall,
    /// This many seconds a second.
    Scaled(u32),
    /// Virtual: the next thing is due now.
    Max,
}

/// A difference between wall and monotonic clock that is worth saying: beyond what NTP slews in a few minutes.
const STEP: Duration = Duration::from_secs(2);

/// A running clock.
#[derive(Debug)]
pub(super) struct Time {
    clock: Clock,
    base: Millis,
    since: Instant,
    /// The wall clock at `since`, as far as its steps are known.
    wall: Duration,
}

impl Time {
    /// Begins at `last`, or at `start` if that is later.
    pub fn begin(clock: Clock, last: Millis, start: Millis) -> Time {
        Time { clock, base: last.max(start), since: Instant::now(), wall: wall() }
    }

    /// Whether time waits for whatever is due.
    pub fn is_virtual(&self) -> bool {
        self.clock == Clock::Max
    }

    /// Now. A virtual clock is where it was, or at `due` if that has been reached for.
    pub fn now(&mut self, last: Millis, due: Option<Millis>) -> Millis {
        let elapsed = self.since.elapsed();
        let real = match self.clock {
            Clock::Wall => self.base + millis(elapsed),
            Clock::Scaled(n) => self.base + Span(millis(elapsed).0.saturating_mul(u64::from(n))),
            Clock::Max => due.unwrap_or(last).max(self.base),
        };
        if self.clock == Clock::Wall {
            self.watch_for_steps(elapsed);
        }
        real.max(last)
    }

    /// How long to wait until `due`. `None`: until something arrives.
    pub fn wait(&self, due: Option<Millis>) -> Option<Duration> {
        let left = |n: u32| {
            let passed = Span(millis(self.since.elapsed()).0.saturating_mul(u64::from(n)));
            due.map(|at| Duration::from_millis(at.since(self.base + passed).0.div_ceil(u64::from(n.max(1)))))
        };
        match self.clock {
            Clock::Wall => left(1),
            Clock::Scaled(n) => left(n),
            Clock::Max => due.map(|_| Duration::ZERO),
        }
    }

    fn watch_for_steps(&mut self, elapsed: Duration) {
        let (expected, found) = (self.wall + elapsed, wall());
        if let Some(by) = step(expected, found) {
            tracing::warn!(
                seconds = by,
                "the wall clock was stepped; time goes on as if it had not been: check the host's NTP"
            );
            self.wall = found.saturating_sub(elapsed);
        }
    }
}

/// The wall clock, since 1970.
pub(super) fn wall() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The wall clock, in ms since 1970.
pub(crate) fn wall_ms() -> Millis {
    Millis(millis(wall()).0)
}

pub(super) fn millis(of: Duration) -> Span {
    Span(u64::try_from(of.as_millis()).unwrap_or(u64::MAX))
}

/// By how many seconds a clock was stepped, if by enough to say so.
fn step(expected: Duration, found: Duration) -> Option<i64> {
    let by = expected.abs_diff(found);
    let seconds = i64::try_from(by.as_secs()).unwrap_or(i64::MAX);
    (by > STEP).then_some(if found > expected { seconds } else { -seconds })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_virtual_clock_jumps_and_never_goes_back() {
        let mut time = Time::begin(Clock::Max, Millis(50), Millis(10));
        assert_eq!(time.now(Millis(50), Some(Millis(700))), Millis(700));
        assert_eq!(time.now(Millis(700), Some(Millis(600))), Millis(700));
        assert_eq!(time.now(Millis(700), None), Millis(700));
        assert_eq!((time.wait(Some(Millis(900))), time.wait(None)), (Some(Duration::ZERO), None));
    }

    #[test]
    fn a_real_clock_begins_at_the_later_of_journal_and_start() {
        let mut time = Time::begin(Clock::Wall, Millis(1 << 60), Millis(5));
        assert!(time.now(Millis(0), None) >= Millis(1 << 60));
        let wait = time.wait(Some(Millis((1 << 60) + 60_000))).unwrap();
        assert!(wait <= Duration::from_secs(60) && wait > Duration::from_secs(30), "{wait:?}");
        let fast = Time::begin(Clock::Scaled(60), Millis(0), Millis(0));
        assert!(fast.wait(Some(Millis(60_000))).unwrap() <= Duration::from_secs(1));
    }

    #[test]
    fn small_drifts_are_no_steps() {
        let at = Duration::from_secs(1000);
        assert_eq!(step(at, at + Duration::from_secs(1)), None);
        assert_eq!(step(at, at + Duration::from_secs(3600)), Some(3600));
        assert_eq!(step(at, at - Duration::from_secs(90)), Some(-90));
    }
}

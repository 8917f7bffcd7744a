//! The driver's time: that of the wall clock, or a replay's, at a stated speed or as fast as it goes.
//!
//! ```text
//! Wall       max(last tick, wall clock) at the start, monotonic after it; a step of the wall clock, and a suspension of the machine, is logged and
//!            changes nothing until the next start
//! Scaled(n)  from the last tick or the file's first event on, n seconds a second
//! Max        jumps to whatever is due next: no real time enters, so that the same file gives the same batches
//! ```
//!
//! Never: goes back.

use forebay_kernel::units::{Span, Timestamp};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How the driver's time passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockMode {
    /// As the wall clock does.
    Wall,
    /// This many seconds in one real second.
    Scaled(u32),
    /// Virtual: the next thing is due at once.
    Max,
}

/// A difference between wall clock and monotonic clock that is logged: more than NTP slews in a few minutes.
const STEP: Duration = Duration::from_secs(2);

/// A running clock.
#[derive(Debug)]
pub(super) struct LoopClock {
    mode: ClockMode,
    base: Timestamp,
    since: Instant,
    /// The wall clock at `since`, as far as its steps are known.
    wall: Duration,
}

/// How far the host's clock is from the driver's time: both are read whenever it is asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockOffset {
    /// The driver's time at `since`. `None`: it does not pass as the host's does.
    base: Option<Timestamp>,
    since: Instant,
}

impl ClockOffset {
    /// By how much the host's clock is ahead now, in ms; below zero where it is behind.
    pub fn now_ms(self) -> Option<i64> {
        let driver = self.base? + millis(self.since.elapsed());
        let signed = |at: Timestamp| i64::try_from(at.0).unwrap_or(i64::MAX);
        Some(signed(wall_ms()).saturating_sub(signed(driver)))
    }
}

impl LoopClock {
    /// How far the host's clock is from this one.
    pub fn offset(&self) -> ClockOffset {
        ClockOffset { base: (self.mode == ClockMode::Wall).then_some(self.base), since: self.since }
    }

    /// Begins at `last`, or at `start` if that is later.
    pub fn begin(mode: ClockMode, last: Timestamp, start: Timestamp) -> LoopClock {
        LoopClock { mode, base: last.max(start), since: Instant::now(), wall: wall() }
    }

    /// Whether no real time enters.
    pub fn is_virtual(&self) -> bool {
        self.rate().is_none()
    }

    /// Its seconds in one real second. `None`: no real time enters.
    fn rate(&self) -> Option<u32> {
        match self.mode {
            ClockMode::Wall => Some(1),
            ClockMode::Scaled(n) => Some(n),
            ClockMode::Max => None,
        }
    }

    /// The time after so much real time.
    fn after(&self, elapsed: Duration, rate: u32) -> Timestamp {
        self.base + Span(millis(elapsed).0.saturating_mul(u64::from(rate)))
    }

    /// The time now, never before `last`. A virtual clock jumps to `due`, and without one stands still.
    pub fn now(&mut self, last: Timestamp, due: Option<Timestamp>) -> Timestamp {
        let elapsed = self.since.elapsed();
        if self.mode == ClockMode::Wall {
            self.watch_for_steps(elapsed);
        }
        let now = self.rate().map_or(due.unwrap_or(last).max(self.base), |rate| self.after(elapsed, rate));
        now.max(last)
    }

    /// How long to wait until `due`, in real time. `None`: until something arrives.
    pub fn wait(&self, due: Option<Timestamp>) -> Option<Duration> {
        let Some(rate) = self.rate() else { return due.map(|_| Duration::ZERO) };
        let left = due?.since(self.after(self.since.elapsed(), rate));
        Some(Duration::from_millis(left.0.div_ceil(u64::from(rate.max(1)))))
    }

    fn watch_for_steps(&mut self, elapsed: Duration) {
        let (expected, found) = (self.wall + elapsed, wall());
        if let Some(by) = step(expected, found) {
            let ahead_ms = self.offset().now_ms().unwrap_or(0);
            tracing::warn!(
                seconds = by,
                "the wall clock was stepped, or this machine was suspended; the controller's time goes on as if it had not been: {}",
                remedy(ahead_ms)
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
#[must_use]
pub fn wall_ms() -> Timestamp {
    Timestamp(millis(wall()).0)
}

pub(super) fn millis(of: Duration) -> Span {
    Span(u64::try_from(of.as_millis()).unwrap_or(u64::MAX))
}

/// What to do where the host's clock is ahead by so much, or behind, below zero. A start takes the later of the host's time and the journal's.
fn remedy(ahead_ms: i64) -> &'static str {
    let apart = Duration::from_millis(ahead_ms.unsigned_abs()) > STEP;
    match (apart, ahead_ms > 0) {
        (false, _) => "the host's clock agrees with it, and nothing is to be done",
        (true, true) => {
            "restart the controller to take the host's time; where that is wrong, set the host's clock first (NTP)"
        }
        (true, false) => "the host's clock is behind it: set that clock (NTP); the controller's time never goes back",
    }
}

/// By how many seconds a clock was stepped, if by enough to log it.
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
        let mut time = LoopClock::begin(ClockMode::Max, Timestamp(50), Timestamp(10));
        assert_eq!(time.now(Timestamp(50), Some(Timestamp(700))), Timestamp(700));
        assert_eq!(time.now(Timestamp(700), Some(Timestamp(600))), Timestamp(700));
        assert_eq!(time.now(Timestamp(700), None), Timestamp(700));
        assert_eq!((time.wait(Some(Timestamp(900))), time.wait(None)), (Some(Duration::ZERO), None));
    }

    #[test]
    fn a_real_clock_begins_at_the_later_of_journal_and_start() {
        let mut time = LoopClock::begin(ClockMode::Wall, Timestamp(1 << 60), Timestamp(5));
        assert!(time.now(Timestamp(0), None) >= Timestamp(1 << 60));
        let wait = time.wait(Some(Timestamp((1 << 60) + 60_000))).unwrap();
        assert!(wait <= Duration::from_secs(60) && wait > Duration::from_secs(30), "{wait:?}");
        let fast = LoopClock::begin(ClockMode::Scaled(60), Timestamp(0), Timestamp(0));
        assert!(fast.wait(Some(Timestamp(60_000))).unwrap() <= Duration::from_secs(1));
    }

    #[test]
    fn the_offset_is_how_far_the_hosts_clock_is_ahead_until_a_start_takes_it() {
        // As after a suspension of an hour: the driver's time stood still.
        let hour = Span::mins(60);
        let behind = LoopClock { base: wall_ms() - hour, ..LoopClock::begin(ClockMode::Wall, Timestamp(0), wall_ms()) };
        let ahead = behind.offset().now_ms().unwrap();
        assert!((3_590_000..3_900_000).contains(&ahead), "{ahead}");
        assert!(remedy(ahead).starts_with("restart the controller to take the host's time"), "{}", remedy(ahead));
        let restarted = LoopClock::begin(ClockMode::Wall, wall_ms() - hour, wall_ms()).offset().now_ms().unwrap();
        assert!(restarted.abs() < 300_000 && remedy(0).contains("agrees"), "{restarted}");
        // A clock that was set back is not followed by a start either.
        let back = LoopClock::begin(ClockMode::Wall, wall_ms() + hour, wall_ms()).offset().now_ms().unwrap();
        assert!((-3_610_000..-3_300_000).contains(&back) && !remedy(back).contains("restart"), "{back}");
        let replayed = LoopClock::begin(ClockMode::Scaled(60), Timestamp(0), Timestamp(0));
        assert_eq!(replayed.offset().now_ms(), None);
    }

    #[test]
    fn small_drifts_are_no_steps() {
        let at = Duration::from_secs(1000);
        assert_eq!(step(at, at + Duration::from_secs(1)), None);
        assert_eq!(step(at, at + Duration::from_secs(3600)), Some(3600));
        assert_eq!(step(at, at - Duration::from_secs(90)), Some(-90));
    }
}

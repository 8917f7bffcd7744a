//! The calendar in UTC: when the hour, day or month of an instant began and when the next one begins. Integers only.
//!
//! Source: H. Hinnant, "chrono-compatible low-level date algorithms" (days since the epoch to year and month and back, over
//! years that begin in March, so that the leap day comes last). The proleptic Gregorian calendar; leap seconds are not counted.
//!
//! Never: a time zone or a clock. The instant comes from the caller.

use crate::policy::Period;
use crate::units::{HOUR_MS, Timestamp};

const DAY_MS: u64 = 24 * HOUR_MS;
/// Days from 0000-03-01 to 1970-01-01.
const TO_EPOCH: u64 = 719_468;
/// Days in 400 years.
const ERA: u64 = 146_097;

impl Period {
    /// When the period of `now` began.
    #[must_use]
    pub fn began(self, now: Timestamp) -> Timestamp {
        match self {
            Period::Hour => Timestamp(now.0 - now.0 % HOUR_MS),
            Period::Day => Timestamp(now.0 - now.0 % DAY_MS),
            Period::Month => {
                let (year, month) = year_and_month(now.0 / DAY_MS);
                Timestamp(days_before(year, month).saturating_mul(DAY_MS))
            }
        }
    }

    /// When the next period begins: always later than `now`.
    #[must_use]
    pub fn ends(self, now: Timestamp) -> Timestamp {
        match self {
            Period::Hour => Timestamp(self.began(now).0.saturating_add(HOUR_MS)),
            Period::Day => Timestamp(self.began(now).0.saturating_add(DAY_MS)),
            Period::Month => {
                let (year, month) = year_and_month(now.0 / DAY_MS);
                let (year, month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
                Timestamp(days_before(year, month).saturating_mul(DAY_MS))
            }
        }
    }
}

/// The year and month (1 to 12) of a day since the epoch.
fn year_and_month(day: u64) -> (u64, u64) {
    let day = day + TO_EPOCH;
    let (era, of_era) = (day / ERA, day % ERA);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    // 153 days are five months from March on; 0 is March.
    let month = (5 * of_year + 2) / 153;
    let year = era * 400 + year;
    if month < 10 { (year, month + 3) } else { (year + 1, month - 9) }
}

/// Days from the epoch to the first of a month.
fn days_before(year: u64, month: u64) -> u64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * month + 2) / 5;
    era * ERA + of_era * 365 + of_era / 4 - of_era / 100 + of_year - TO_EPOCH
}

#[cfg(test)]
mod tests {
    use super::*;

    /// (an instant, its month began, the next one begins), in seconds, as `date -u +%s` has them.
    const MONTHS: [(u64, u64, u64); 9] = [
        // 1970-01-01 00:00:00 and the last second of that month
        (0, 0, 2_678_400),
        (2_678_399, 0, 2_678_400),
        // 1972-02-29, the first leap day
        (68_169_600, 65_750_400, 68_256_000),
        // 1999-12-31 23:59:59 and the second after it
        (946_684_799, 944_006_400, 946_684_800),
        (946_684_800, 946_684_800, 949_363_200),
        // 2000-02-29 12:00: a century that leaps
        (951_825_600, 949_363_200, 951_868_800),
        // 2026-11-21 14:11:28
        (1_795_270_288, 1_793_491_200, 1_796_083_200),
        // 2100-02-28 00:00: a century that does not
        (4_107_456_000, 4_105_123_200, 4_107_542_400),
        // 2100-03-01 00:00
        (4_107_542_400, 4_107_542_400, 4_110_220_800),
    ];

    #[test]
    fn months_are_those_of_the_calendar() {
        for (at, began, ends) in MONTHS {
            let at = Timestamp(at * 1000 + 999);
            assert_eq!(Period::Month.began(at), Timestamp(began * 1000), "{at:?}");
            assert_eq!(Period::Month.ends(at), Timestamp(ends * 1000), "{at:?}");
        }
    }

    #[test]
    fn hours_and_days_begin_on_the_hour_and_at_midnight() {
        let at = Timestamp(1_795_270_288_123);
        assert_eq!(
            (Period::Hour.began(at), Period::Hour.ends(at)),
            (Timestamp(1_795_269_600_000), Timestamp(1_795_273_200_000))
        );
        assert_eq!(
            (Period::Day.began(at), Period::Day.ends(at)),
            (Timestamp(1_795_219_200_000), Timestamp(1_795_305_600_000))
        );
        assert_eq!(Period::Hour.ends(Timestamp(3_600_000)), Timestamp(7_200_000));
    }

    #[test]
    fn months_follow_each_other_without_a_gap_for_eight_centuries() {
        let (mut at, mut lengths) = (Timestamp(0), [0u32; 32]);
        for _ in 0..12 * 800 {
            let ends = Period::Month.ends(at);
            assert_eq!((Period::Month.began(Timestamp(ends.0 - 1)), Period::Month.began(ends)), (at, ends));
            lengths[((ends.0 - at.0) / DAY_MS) as usize] += 1;
            at = ends;
        }
        // 800 years: 7 x 800 long months, 4 x 800 of 30 days, 194 leap years.
        assert_eq!((lengths[31], lengths[30], lengths[29], lengths[28]), (5600, 3200, 194, 606));
    }
}

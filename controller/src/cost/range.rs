//! From when to when a bill goes: days or full hours.
//!
//! Never: a time within a slot. What is used within a slot is not kept apart.

use super::basis::CostBasis;
use forebay_kernel::state::billing::{LedgerSlot, QUARTER_MS};
use forebay_kernel::units::{HOUR_MS, Timestamp};
use jiff::civil::Date;
use serde::Deserialize;

/// As it was asked for.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostRange {
    /// From then on. `None`: from the beginning.
    pub from: Option<String>,
    /// Before then. `None`: up to now.
    pub to: Option<String>,
}

/// A text that is no time at which a bill can begin or end.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{which} {text}: {what}: {remedy}")]
pub struct CostRangeFault {
    which: &'static str,
    text: String,
    what: &'static str,
    remedy: &'static str,
}

const A_TIME: &str = "write a day such as 2026-11-24, or a full hour such as 2026-11-24T09:00:00Z";

/// The slots of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slots {
    /// From this one on.
    pub from: LedgerSlot,
    /// Before this one.
    pub to: LedgerSlot,
}

impl Slots {
    /// All there are.
    pub const ALL: Slots = Slots { from: LedgerSlot(0), to: LedgerSlot(u32::MAX) };

    pub(super) fn take(&self, slot: LedgerSlot) -> bool {
        slot >= self.from && slot < self.to
    }
}

impl CostRange {
    /// Its slots, with days in the billing zone.
    ///
    /// # Errors
    /// From or to is no day and no full hour, or the range ends before it begins.
    pub fn slots(&self, basis: &CostBasis) -> Result<Slots, CostRangeFault> {
        let read = |which, text: &Option<String>, none| match text {
            None => Ok(none),
            Some(text) => slot(basis, which, text),
        };
        let slots =
            Slots { from: read("from", &self.from, Slots::ALL.from)?, to: read("to", &self.to, Slots::ALL.to)? };
        if slots.from >= slots.to {
            let text = self.to.clone().unwrap_or_default();
            return Err(CostRangeFault {
                which: "to",
                text,
                what: "is not after its beginning",
                remedy: "it is not in the range itself: for one day write the day after it",
            });
        }
        Ok(slots)
    }

    /// So many days of the billing zone, the last of them today.
    #[must_use]
    pub fn last_days(basis: &CostBasis, days: u32) -> CostRange {
        let local =
            i64::try_from(basis.now.0 / 1000).unwrap_or(i64::MAX).saturating_add(basis.offset(basis.now).into());
        let first = local.saturating_sub(i64::from(days.saturating_sub(1)) * 86_400).max(0);
        let day = jiff::Timestamp::from_second(first).map(|at| at.strftime("%Y-%m-%d").to_string());
        CostRange { from: day.ok(), to: None }
    }

    /// The latest day of the billing zone, or else the latest full hour, at which a bill from a slot on can end so that it has nothing of another
    /// slot or of later ones. `None`: there is none between the two.
    #[must_use]
    pub fn latest_end(basis: &CostBasis, from: LedgerSlot, before: LedgerSlot) -> Option<String> {
        let at = before.begins();
        let day = local_date(basis, at).map(|day| day.to_string());
        let hour = i64::try_from(at.0 / HOUR_MS * HOUR_MS).ok().map(jiff::Timestamp::from_millisecond);
        let hour = hour.and_then(Result::ok).map(|at| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        let fits = |end: &String| slot(basis, "to", end).is_ok_and(|end| end > from && end <= before);
        [day, hour].into_iter().flatten().find(fits)
    }

    /// Whether it is everything.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.from.is_none() && self.to.is_none()
    }
}

fn slot(basis: &CostBasis, which: &'static str, text: &str) -> Result<LedgerSlot, CostRangeFault> {
    let fault = |what| CostRangeFault { which, text: text.chars().take(80).collect(), what, remedy: A_TIME };
    let at = match text.parse::<Date>() {
        Ok(date) if text.len() <= 10 => midnight(basis, date).ok_or_else(|| fault("cannot be counted from 1970 on"))?,
        _ => {
            let at: jiff::Timestamp = text.parse().map_err(|_| fault("is neither a day nor a time"))?;
            u64::try_from(at.as_millisecond()).map_err(|_| fault("is before 1970"))?
        }
    };
    // The clock of the zone says which part of an hour its slots begin at.
    let aligned = (at % HOUR_MS == 0) || (at % QUARTER_MS == 0 && text.len() <= 10);
    if !aligned {
        return Err(fault("is within an hour"));
    }
    u32::try_from(at / QUARTER_MS).map(LedgerSlot).map_err(|_| fault("is too late"))
}

/// The day of the billing zone that an instant lies in. `None`: it is beyond the calendar.
pub(super) fn local_date(basis: &CostBasis, at: Timestamp) -> Option<Date> {
    let local = i64::try_from(at.0).ok()?.checked_add(i64::from(basis.offset(at)) * 1000)?;
    Some(jiff::Timestamp::from_millisecond(local).ok()?.to_zoned(jiff::tz::TimeZone::UTC).date())
}

/// When a day of the billing zone begins, in ms since 1970.
pub(super) fn midnight(basis: &CostBasis, date: Date) -> Option<u64> {
    first_instant(basis, date.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_millisecond())
}

/// The first instant, in ms since 1970, at which the clock of the billing zone is not before a local time, given as if it were UTC.
pub(super) fn first_instant(basis: &CostBasis, utc: i64) -> Option<u64> {
    // The offset in force then is one of those around it; a time that a clock skips is after the gap.
    let candidates = [-1, 0, 1].map(|days: i64| utc + days * 86_400_000);
    let offsets = candidates.map(|at| basis.offset(Timestamp(u64::try_from(at).unwrap_or(0))));
    let begins = offsets.map(|offset| utc - i64::from(offset) * 1000);
    let begins = begins.into_iter().filter_map(|at| u64::try_from(at).ok());
    let is_then = |at: &u64| {
        let local = |at: u64| i64::try_from(at).unwrap_or(i64::MAX) + i64::from(basis.offset(Timestamp(at))) * 1000;
        local(*at) >= utc && at.checked_sub(1).is_none_or(|before| local(before) < utc)
    };
    begins.filter(is_then).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bill_that_is_too_large_can_end_at_a_midnight_or_else_at_a_full_hour() {
        let basis = |seconds: i32| CostBasis::with_offsets(&[(0, seconds)]);
        let slot = |text: &str| {
            let at = text.parse::<jiff::Timestamp>().unwrap().as_millisecond();
            LedgerSlot(u32::try_from(u64::try_from(at).unwrap() / QUARTER_MS).unwrap())
        };
        let end = |offset: i32, from: &str, before: &str| {
            let basis = basis(offset);
            let end = CostRange::latest_end(&basis, slot(from), slot(before));
            // A bill may end there, and has nothing of what was too much.
            let asked = CostRange { from: None, to: end.clone() };
            assert!(end.is_none() || asked.slots(&basis).is_ok_and(|slots| slots.to <= slot(before)), "{end:?}");
            end
        };
        let of = |text: &str| Some(text.to_owned());
        assert_eq!(end(0, "1970-01-01T00:00:00Z", "2026-11-24T09:00:00Z"), of("2026-11-24"));
        assert_eq!(end(0, "2026-11-24T00:00:00Z", "2026-11-24T09:00:00Z"), of("2026-11-24T09:00:00Z"));
        assert_eq!(end(0, "2026-11-24T09:00:00Z", "2026-11-24T09:00:00Z"), None);
        // In Berlin it was a day later already, in India a day begins within an hour.
        assert_eq!(end(3_600, "2026-11-20T00:00:00Z", "2026-11-23T23:00:00Z"), of("2026-11-24"));
        assert_eq!(end(19_800, "2026-11-20T00:00:00Z", "2026-11-23T18:45:00Z"), of("2026-11-24"));
        assert_eq!(end(19_800, "2026-11-23T18:30:00Z", "2026-11-23T18:45:00Z"), None);
    }
}

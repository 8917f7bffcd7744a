//! The clock of this machine at a start, compared with the journal's last record and with what others say.
//!
//! ```text
//! last record ---- as long as a controller may be stopped ----> taken as it is
//! far later, or earlier ----> a clock outside agrees, or the owner says so; else the start is refused
//! ```
//!
//! Time that has moved on never goes back: deadlines would pass, runs would be over their time, and retention would take what is young.
//!
//! Never: sets a clock, or takes the word of one that is not asked by name.

use crate::driver::{DriverError, TimeConsent};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// So long a controller may have been stopped: a holiday. What is later has to be confirmed.
const MOST_AHEAD_MS: u64 = 7 * 86_400_000;

/// So much earlier than the last record a clock may be. Time waits there for it.
const MOST_BEHIND_MS: u64 = 3_600_000;

/// So far apart two clocks may be that agree: a machine without NTP for a month.
const AGREES_MS: u64 = 300_000;

/// How long a clock outside may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Asks a server for the `Date` of an answer of its. `None`: it did not say.
pub type AskDate = Arc<dyn Fn(Duration) -> Option<String> + Send + Sync>;

/// A clock that can be asked.
#[derive(Clone)]
pub struct OutsideClock {
    /// Whose it is.
    pub name: String,
    /// The way to ask it, with the time that it has.
    pub ask: AskDate,
}

impl OutsideClock {
    /// A server that answers over HTTP, whatever it says.
    #[must_use]
    pub fn over_http(name: String, url: String) -> OutsideClock {
        OutsideClock { name, ask: Arc::new(move |patience| date_of(&url, patience)) }
    }
}

impl std::fmt::Debug for OutsideClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OutsideClock").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What a clock outside says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutsideTime {
    /// Whose it is.
    pub name: String,
    /// Its time, in ms since 1970.
    pub at_ms: u64,
}

/// Judges a start. `Some`: what its owner accepted. `ask`: what clocks outside say, asked only where it matters.
///
/// # Errors
/// The time is far from that of the last record, and neither a clock outside nor the owner confirms it.
pub fn judge(
    last_ms: u64,
    now_ms: u64,
    ask: impl FnOnce() -> Vec<OutsideTime>,
    consent: TimeConsent,
) -> Result<Option<String>, DriverError> {
    let (ahead, behind) = (now_ms.saturating_sub(last_ms), last_ms.saturating_sub(now_ms));
    let near = ahead <= MOST_AHEAD_MS && behind <= MOST_BEHIND_MS;
    if near {
        return Ok(None);
    }
    let outside = ask();
    if outside.iter().any(|other| other.at_ms.abs_diff(now_ms) <= AGREES_MS) {
        return Ok(None);
    }
    let jump =
        format!("this machine's clock says {}, and the journal's last record is of {}", shown(now_ms), shown(last_ms));
    let by = match ahead {
        0 => format!("{} earlier", long(behind)),
        _ => format!("{} later", long(ahead)),
    };
    let others = match outside.as_slice() {
        [] => "no clock outside answered".to_owned(),
        others => {
            let said = others.iter().map(|other| format!("{} says {}", other.name, shown(other.at_ms)));
            said.collect::<Vec<_>>().join(", ")
        }
    };
    match consent {
        TimeConsent::Given => Ok(Some(format!("{jump}, {by}; {others}"))),
        TimeConsent::Ask => Err(DriverError::ClockJump { jump, by, others }),
    }
}

/// Asks a clock. `None`: it did not say.
#[must_use]
pub fn ask(clock: &OutsideClock) -> Option<OutsideTime> {
    let date = (clock.ask)(PATIENCE)?;
    let at = jiff::fmt::rfc2822::parse(&date).ok()?.timestamp().as_millisecond();
    Some(OutsideTime { name: clock.name.clone(), at_ms: u64::try_from(at).ok()? })
}

fn date_of(url: &str, patience: Duration) -> Option<String> {
    let config = ureq::Agent::config_builder().http_status_as_error(false).proxy(None).timeout_global(Some(patience));
    let agent: ureq::Agent = config.build().into();
    let answer = agent.get(url).call().ok()?;
    Some(answer.headers().get("date")?.to_str().ok()?.to_owned())
}

/// The time of this machine, in ms since 1970.
#[must_use]
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// An instant of the calendar, by its ms since 1970. `None`: beyond its end.
#[must_use]
pub fn instant(ms: u64) -> Option<jiff::Timestamp> {
    i64::try_from(ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok())
}

fn shown(ms: u64) -> String {
    instant(ms).map_or_else(|| format!("{ms} ms since 1970"), |at| at.to_string())
}

/// A span in the greatest unit of which it has two.
fn long(ms: u64) -> String {
    match ms / 60_000 {
        minutes @ 0..120 => format!("{minutes} minutes"),
        minutes @ 120..2_880 => format!("{} hours", minutes / 60),
        minutes => format!("{} days", minutes / 1_440),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400_000;
    const LAST: u64 = 1_793_000_000_000;

    #[test]
    fn a_jump_is_taken_where_a_clock_outside_or_the_owner_confirms_it() {
        let year = 365 * DAY;
        let says = |at_ms| OutsideTime { name: "ec2".to_owned(), at_ms };
        for (now, outside, fine, words) in [
            (LAST, vec![], true, ""),
            (LAST + 6 * DAY, vec![], true, ""),
            (LAST - 1_800_000, vec![], true, ""),
            (LAST + 8 * DAY, vec![], false, "8 days later"),
            (LAST + year, vec![], false, "365 days later"),
            (LAST + 10 * year, vec![], false, "3650 days later"),
            (LAST - 3 * 3_600_000, vec![], false, "3 hours earlier"),
            (LAST - 10 * year, vec![], false, "3650 days earlier"),
            (0, vec![], false, "1970-01-01T00:00:00Z"),
            (u64::MAX, vec![], false, "18446744073709551615 ms since 1970"),
            (LAST + year, vec![says(LAST + year + 60_000)], true, ""),
            (LAST + year, vec![says(LAST + 60_000)], false, "ec2 says 2026-10-26T07:34:20Z"),
            (LAST + year, vec![says(LAST), says(LAST + year)], true, ""),
        ] {
            match judge(LAST, now, || outside.clone(), TimeConsent::Ask) {
                Ok(note) => assert!(fine && note.is_none(), "{now}"),
                Err(error) => {
                    let text = error.to_string();
                    assert!(!fine && text.contains(words) && text.contains("--accept-time"), "{text}");
                }
            }
            let accepted = judge(LAST, now, || outside.clone(), TimeConsent::Given).unwrap();
            assert_eq!(accepted.is_none(), fine, "{now}");
        }
    }
}

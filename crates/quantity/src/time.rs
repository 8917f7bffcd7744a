//! Lengths of time: `90s`, `15m`, `1h30m`, `7d`.
//!
//! Never: calendar months or years, whose length depends on the day.

use super::{UnitError, as_text, split_unit, wrong};
use crate::excerpt::one_line as shown;
use forebay_kernel::units::Span;
use std::fmt;
use std::str::FromStr;

/// A length of time: `90s`, `15m`, `1h30m`, `7d`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Time(pub Span);
as_text!(
    Time,
    "Time",
    "string",
    r"^([0-9]+ *(ms|s|m|h|d|w) *)+$",
    "a time with its unit, such as `90s`, `15m`, `8h` or `7d`"
);

/// The longest time that is taken: a thousand years, so that sums never overflow.
const MAX_TIME_MS: u64 = 1000 * 366 * 86_400_000;

impl FromStr for Time {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Time, UnitError> {
        let remedy = "write a time with its unit, such as `90s`, `15m`, `8h` or `7d`";
        let mut rest = text.trim();
        if rest.is_empty() || !rest.is_ascii() {
            return wrong(text, "is not a time", remedy);
        }
        let mut total = 0u64;
        while !rest.is_empty() {
            let (number, tail) = split_unit(rest);
            let Ok(n) = number.parse::<u64>() else {
                return wrong(text, "is not a time", remedy);
            };
            let unit = &tail[..tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len())];
            let ms = match unit {
                "ms" => 1,
                "s" => 1000,
                "m" | "min" => 60_000,
                "h" => 3_600_000,
                "d" => 86_400_000,
                "w" => 7 * 86_400_000,
                "" => {
                    // A number alone is had with each unit. Behind another part its unit is not known, and a colon or a comma says neither.
                    let alone = number == text.trim();
                    let remedy =
                        if alone { format!("write `{0}s`, `{0}m` or `{0}h`", shown(number)) } else { remedy.into() };
                    return wrong(text, "has no unit of time", remedy);
                }
                _ => {
                    return wrong(text, &format!("is not a time: the unit `{}` is not known", shown(unit)), remedy);
                }
            };
            let sum = n.checked_mul(ms).and_then(|part| total.checked_add(part));
            let Some(sum) = sum.filter(|sum| *sum <= MAX_TIME_MS) else {
                return wrong(text, "is more than a thousand years", remedy);
            };
            total = sum;
            rest = tail[unit.len()..].trim_start();
        }
        Ok(Time(Span(total)))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];
        let mut left = self.0.0;
        if left == 0 {
            return f.write_str("0s");
        }
        for (name, ms) in units {
            if left >= ms {
                write!(f, "{}{name}", left / ms)?;
                left %= ms;
            }
        }
        Ok(())
    }
}

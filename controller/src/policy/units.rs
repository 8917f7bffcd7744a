//! Values that carry their unit: `15m`, `2500 USD/h`, `25 %`, `16GiB`, `64` GPUs or `all`. Read, written and described in one place.
//!
//! Never: floats, a bare number where a unit is needed. A fault is "what is wrong; what to write instead".

use super::fault::shown;
use forebay_engine::units::{Mib, MilliGpu, Rate, Span};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// What is wrong with a value, and what to write.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{what}; {remedy}")]
pub struct UnitError {
    /// The value and what is wrong with it.
    pub what: String,
    /// An example of what is right.
    pub remedy: String,
}

fn wrong<T>(what: impl Into<String>, remedy: impl Into<String>) -> Result<T, UnitError> {
    Err(UnitError { what: what.into(), remedy: remedy.into() })
}

/// A whole or decimal number in units of 10^-`places`, as text: exact, `None` when it is not one or has more places.
fn decimal(text: &str, places: u32) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
    let part_len = u32::try_from(part.len()).ok()?;
    if whole.is_empty() || !digits(whole) || !digits(part) || part_len > places || text.ends_with('.') {
        return None;
    }
    let scale = 10u64.checked_pow(places)?;
    let part = if part.is_empty() { 0 } else { part.parse::<u64>().ok()?.checked_mul(10u64.pow(places - part_len))? };
    whole.parse::<u64>().ok()?.checked_mul(scale)?.checked_add(part)
}

/// Number and unit: `15 m` and `15m` are the same.
fn split_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    let at = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    (&text[..at], text[at..].trim_start())
}

/// Writes a number of units of 10^-`places` without trailing zeros.
fn write_decimal(f: &mut fmt::Formatter<'_>, n: u64, places: usize) -> fmt::Result {
    let scale = 10u64.pow(u32::try_from(places).unwrap_or(0));
    let part = format!("{:0places$}", n % scale);
    let part = if places == 0 { "" } else { part.trim_end_matches('0') };
    if part.is_empty() { write!(f, "{}", n / scale) } else { write!(f, "{}.{part}", n / scale) }
}

macro_rules! as_text {
    ($name:ident, $schema:literal, $pattern:literal, $doc:literal $(, $number:literal)?) => {
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                struct Text;
                impl de::Visitor<'_> for Text {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($doc)
                    }
                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$name, E> {
                        text.parse().map_err(E::custom)
                    }
                    fn visit_u64<E: de::Error>(self, n: u64) -> Result<$name, E> {
                        self.visit_str(&n.to_string())
                    }
                }
                d.deserialize_any(Text)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                let text = self.to_string();
                // A whole number needs no quotes.
                match text.parse::<u64>() {
                    Ok(n) => s.serialize_u64(n),
                    Err(_) => s.serialize_str(&text),
                }
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                $schema.into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                let kinds = if false $(|| $number)? { serde_json::json!(["string", "number"]) } else { serde_json::json!("string") };
                json_schema!({"type": kinds, "description": $doc, "pattern": $pattern})
            }
        }
    };
}

/// A length of time: `90s`, `15m`, `1h30m`, `7d`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Time(pub Span);
as_text!(Time, "Time", r"^([0-9]+ *(ms|s|m|h|d|w) *)+$", "a time with its unit, such as `90s`, `15m`, `8h` or `7d`");

/// The longest time that is taken: a thousand years, so that sums never overflow.
const MAX_TIME_MS: u64 = 1000 * 366 * 86_400_000;

impl FromStr for Time {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Time, UnitError> {
        let remedy = "write a time with its unit, such as `90s`, `15m`, `8h` or `7d`";
        let mut rest = text.trim();
        if rest.is_empty() || !rest.is_ascii() {
            return wrong(format!("`{}` is not a time", shown(text)), remedy);
        }
        let mut total = 0u64;
        while !rest.is_empty() {
            let (number, tail) = split_unit(rest);
            let Ok(n) = number.parse::<u64>() else {
                return wrong(format!("`{}` is not a time", shown(text)), remedy);
            };
            let unit = &tail[..tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len())];
            let ms = match unit {
                "ms" => 1,
                "s" => 1000,
                "m" | "min" => 60_000,
                "h" => 3_600_000,
                "d" => 86_400_000,
                "w" => 7 * 86_400_000,
                "" => return wrong(format!("`{}` has no unit of time", shown(text)), format!("write `{number}s`, `{number}m` or `{number}h`")),
                _ => return wrong(format!("`{}` is not a time: the unit `{}` is not known", shown(text), shown(unit)), remedy),
            };
            total = match n.checked_mul(ms).and_then(|part| total.checked_add(part)) {
                Some(sum) if sum <= MAX_TIME_MS => sum,
                _ => return wrong(format!("`{}` is more than a thousand years", shown(text)), remedy),
            };
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

/// Money over time: `2500 USD/h`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PerHour(pub Rate);
as_text!(PerHour, "MoneyPerHour", r"^[0-9]+(\.[0-9]{1,6})? *USD/h$", "money over time, such as `2500 USD/h`");

impl FromStr for PerHour {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<PerHour, UnitError> {
        let (number, unit) = split_unit(text);
        let shown_number = if number.is_empty() { "2500" } else { number };
        let remedy = format!("write `{} USD/h`", shown(shown_number));
        match unit {
            "USD/h" => {}
            "USD" => return wrong(format!("`{}` is an amount of money, but a rate is needed", shown(text)), remedy),
            "" => return wrong(format!("`{}` has no unit", shown(text)), remedy),
            _ => return wrong(format!("`{}` is not money over time", shown(text)), "write it in US dollars an hour, such as `2500 USD/h`"),
        }
        match decimal(number, 6) {
            Some(micros) if micros <= MAX_MICROS => Ok(PerHour(Rate(micros))),
            Some(_) => wrong(format!("`{}` is more than a billion USD/h", shown(text)), "write what the account can bear"),
            None => wrong(format!("`{}` is not money over time", shown(text)), "write it in US dollars an hour, such as `2500 USD/h`"),
        }
    }
}

/// A billion dollars: larger amounts are slips.
const MAX_MICROS: u64 = 1_000_000_000 * 1_000_000;

impl fmt::Display for PerHour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_decimal(f, self.0.0, 6)?;
        f.write_str(" USD/h")
    }
}

/// An amount of money in micro-dollars: `60000 USD`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Money(pub u64);
as_text!(Money, "Money", r"^[0-9]+(\.[0-9]{1,6})? *USD$", "an amount of money, such as `60000 USD`");

impl FromStr for Money {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Money, UnitError> {
        let (number, unit) = split_unit(text);
        let remedy = format!("write `{} USD`", shown(if number.is_empty() { "60000" } else { number }));
        match (unit, decimal(number, 6)) {
            ("USD", Some(micros)) if micros <= MAX_MICROS => Ok(Money(micros)),
            ("USD/h", _) => wrong(format!("`{}` is a rate, but an amount of money is needed", shown(text)), remedy),
            ("", _) => wrong(format!("`{}` has no unit", shown(text)), remedy),
            _ => wrong(format!("`{}` is not an amount of money", shown(text)), "write US dollars, such as `60000 USD`"),
        }
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_decimal(f, self.0, 6)?;
        f.write_str(" USD")
    }
}

/// A share in thousandths: `25 %`, at most 100 %.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Percent(pub u16);
as_text!(Percent, "Percent", r"^[0-9]{1,3}(\.[0-9])? *%$", "a share, such as `25 %`");

impl FromStr for Percent {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Percent, UnitError> {
        let (number, unit) = split_unit(text);
        if unit.is_empty() && !number.is_empty() {
            return wrong(format!("`{}` has no unit", shown(text)), format!("write `{} %`", shown(number)));
        }
        match (unit, decimal(number, 1)) {
            ("%", Some(permille)) if permille <= 1000 => Ok(Percent(permille as u16)),
            ("%", Some(_)) => wrong(format!("`{}` is more than 100 %", shown(text)), "write a share from 0 % to 100 %"),
            _ => wrong(format!("`{}` is not a share", shown(text)), "write a share from 0 % to 100 % with at most one decimal, such as `25 %`"),
        }
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_decimal(f, u64::from(self.0), 1)?;
        f.write_str(" %")
    }
}

/// Memory: `16GiB`, `900 MiB`, `2TiB`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Memory(pub Mib);
as_text!(Memory, "Memory", r"^[0-9]+(\.[0-9]{1,3})? *[MGT]iB$", "memory with its unit, such as `16GiB`");

impl FromStr for Memory {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Memory, UnitError> {
        let (number, unit) = split_unit(text);
        let remedy = "write memory in MiB, GiB or TiB, such as `16GiB`";
        let mib = match unit {
            "MiB" => 1,
            "GiB" => 1024,
            "TiB" => 1024 * 1024,
            "MB" | "GB" | "TB" | "M" | "G" | "T" | "Mi" | "Gi" | "Ti" => {
                return wrong(format!("`{}` is not memory here", shown(text)), format!("write `{}{}iB`", shown(number), &unit[..1]));
            }
            _ => return wrong(format!("`{}` is not memory", shown(text)), remedy),
        };
        match decimal(number, 3).and_then(|n| n.checked_mul(mib)) {
            Some(n) if n.is_multiple_of(1000) => Ok(Memory(Mib(n / 1000))),
            _ => wrong(format!("`{}` is not a whole number of MiB", shown(text)), remedy),
        }
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.0.is_multiple_of(1024) { write!(f, "{}GiB", self.0.0 / 1024) } else { write!(f, "{}MiB", self.0.0) }
    }
}

/// GPUs, shares included: `64`, `0.5`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Gpus(pub MilliGpu);
as_text!(Gpus, "Gpus", r"^[0-9]+(\.[0-9]{1,3})?$", "a number of GPUs, such as `64` or `0.5`", true);

/// A hundred million GPUs: larger numbers are slips.
const MAX_MILLI_GPUS: u64 = 100_000_000_000;

impl FromStr for Gpus {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Gpus, UnitError> {
        match decimal(text.trim(), 3) {
            Some(milli) if milli <= MAX_MILLI_GPUS => Ok(Gpus(MilliGpu(milli))),
            Some(_) => wrong(format!("`{}` is more than a hundred million GPUs", shown(text)), "write a number of GPUs, such as `64`"),
            None => wrong(format!("`{}` is not a number of GPUs", shown(text)), "write a number such as `64`, or `0.5` for half of one"),
        }
    }
}

impl fmt::Display for Gpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_decimal(f, self.0.0, 3)
    }
}

/// A bound on borrowing or lending: a number of GPUs, or `all` for no bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bound {
    /// No bound.
    All,
    /// At most so many.
    Gpus(Gpus),
}
as_text!(Bound, "Bound", r"^(all|[0-9]+(\.[0-9]{1,3})?)$", "a number of GPUs, or `all`", true);

impl FromStr for Bound {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Bound, UnitError> {
        if text.trim() == "all" {
            return Ok(Bound::All);
        }
        text.parse().map(Bound::Gpus).map_err(|e: UnitError| UnitError { remedy: format!("{}, or `all`", e.remedy), ..e })
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bound::All => f.write_str("all"),
            Bound::Gpus(gpus) => gpus.fmt(f),
        }
    }
}

/// A plain factor in thousandths: `2`, `1.5`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Factor(pub u64);
as_text!(Factor, "Factor", r"^[0-9]+(\.[0-9]{1,3})?$", "a number, such as `2` or `1.5`", true);

impl FromStr for Factor {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Factor, UnitError> {
        match decimal(text.trim(), 3) {
            Some(n) if n <= 1_000_000_000 => Ok(Factor(n)),
            _ => wrong(format!("`{}` is not a number from 0 to 1000000", shown(text)), "write a number, such as `2` or `1.5`"),
        }
    }
}

impl fmt::Display for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_decimal(f, self.0, 3)
    }
}

//! Quantities as people write them: `15m`, `2500 USD/h`, `25 %`, `16GiB`, `64` GPUs or `all`, `3g.40gb`. Each is read, written and
//! described in one place, for policies, events, configuration and price lists.
//!
//! ```
//! use forebay_quantity::{Time, UnitError};
//!
//! let time: Time = "1h30m".parse()?;
//! assert_eq!((time.0.0, time.to_string()), (5_400_000, "1h30m".to_owned()));
//! let error = "90".parse::<Time>().expect_err("a unit is needed");
//! assert_eq!(error.to_string(), "`90` has no unit of time; write `90s`, `90m` or `90h`");
//! # Ok::<(), UnitError>(())
//! ```
//!
//! Never: floats, a bare number where a unit is needed. An error is "what is wrong; what to write instead".

mod amounts;
pub mod excerpt;
mod layout;
pub mod mig;
mod money;
pub mod number;
pub mod slip;
mod time;
mod unseen;

pub use amounts::{Factor, GpuBound, GpuCount, Memory, Percent};
pub use layout::GpuLayout;
pub use money::{Money, PerHour};
pub use time::Time;
pub use unseen::is_unseen;

use std::fmt;

/// What is wrong with a value, and what to write.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{what}; {remedy}")]
pub struct UnitError {
    /// The value and what is wrong with it.
    pub what: String,
    /// An example of what is right.
    pub remedy: String,
}

/// Refuses a text: what is said of it, and the remedy.
fn wrong<T>(text: &str, what: &str, remedy: impl Into<String>) -> Result<T, UnitError> {
    Err(UnitError { what: format!("`{}` {what}", excerpt::one_line(text)), remedy: remedy.into() })
}

/// A whole or decimal number in units of 10^-`places`, as text: exact, `None` when it is not one or has more places.
fn decimal(text: &str, places: u8) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |t: &str| !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit());
    let plain = digits(whole) && digits(part) && part.len() <= places.into();
    number::scaled(text, places.into()).ok().filter(|_| plain).map(|(value, _)| value)
}

/// Number and unit: `15 m` and `15m` are the same.
fn split_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    let at = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    (&text[..at], text[at..].trim_start())
}

/// Writes a number of units of 10^-`places` without trailing zeros, then its unit.
fn write_decimal(f: &mut fmt::Formatter<'_>, n: u64, places: u8, unit: &str) -> fmt::Result {
    let (scale, width) = (10u64.pow(places.into()), usize::from(places));
    let number = format!("{}.{:0width$}", n / scale, n % scale);
    write!(f, "{}{unit}", number.trim_end_matches('0').trim_end_matches('.'))
}

/// Reading, writing and the JSON Schema of a type by its `FromStr` and `Display`.
macro_rules! as_text {
    ($name:ident, $schema:literal, $kinds:tt, $pattern:literal, $doc:literal) => {
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                struct Text;
                impl serde::de::Visitor<'_> for Text {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($doc)
                    }
                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$name, E> {
                        text.parse().map_err(E::custom)
                    }
                    fn visit_u64<E: serde::de::Error>(self, n: u64) -> Result<$name, E> {
                        self.visit_str(&n.to_string())
                    }
                    fn visit_i64<E: serde::de::Error>(self, n: i64) -> Result<$name, E> {
                        self.visit_str(&n.to_string())
                    }
                    fn visit_f64<E: serde::de::Error>(self, n: f64) -> Result<$name, E> {
                        self.visit_str(&n.to_string())
                    }
                }
                d.deserialize_any(Text)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                let text = self.to_string();
                // A whole number needs no quotes.
                match text.parse::<u64>() {
                    Ok(n) => s.serialize_u64(n),
                    Err(_) => s.serialize_str(&text),
                }
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                $schema.into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({"type": $kinds, "description": $doc, "pattern": $pattern})
            }
        }
    };
}
use as_text;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::{Debug, Display};
    use std::str::FromStr;

    /// Each good text, and the text that is written for it.
    fn reads<T>(table: &[(&str, &str)])
    where
        T: FromStr<Err = UnitError> + Display + PartialEq + Debug,
    {
        for (text, canonical) in table {
            let value: T = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(value.to_string(), *canonical, "{text}");
            assert_eq!(canonical.parse::<T>().unwrap(), value, "{text}");
        }
    }

    fn refuses<T: FromStr<Err = UnitError> + Debug>(texts: &[&str]) {
        for text in texts {
            let error = text.parse::<T>().expect_err(text);
            assert!(!error.what.is_empty() && !error.remedy.is_empty(), "{text}");
        }
    }

    #[test]
    fn good_values_are_read_and_written_back() {
        reads::<Time>(&[
            ("15m", "15m"),
            ("90s", "1m30s"),
            ("1h 30m", "1h30m"),
            ("7d", "7d"),
            ("1w", "7d"),
            ("0s", "0s"),
            ("1500ms", "1s500ms"),
            ("5 min", "5m"),
        ]);
        reads::<PerHour>(&[
            ("2500 USD/h", "2500 USD/h"),
            ("0.50USD/h", "0.5 USD/h"),
            ("1.000001 USD/h", "1.000001 USD/h"),
        ]);
        reads::<Money>(&[("60000 USD", "60000 USD"), ("0.01 USD", "0.01 USD")]);
        reads::<Percent>(&[("25 %", "25 %"), ("62.5%", "62.5 %"), ("0 %", "0 %"), ("100 %", "100 %")]);
        reads::<Memory>(&[("16GiB", "16GiB"), ("900 MiB", "900MiB"), ("1.5GiB", "1536MiB"), ("2TiB", "2048GiB")]);
        reads::<GpuCount>(&[("64", "64"), ("0.5", "0.5"), ("0.125", "0.125")]);
        reads::<GpuBound>(&[("all", "all"), ("16", "16"), ("0.5", "0.5")]);
        reads::<Factor>(&[("2", "2"), ("1.5", "1.5"), ("0", "0")]);
        reads::<GpuLayout>(&[
            ("7 x 1g.10gb", "7 x 1g.10gb"),
            ("3g.40gb+3g.40gb", "2 x 3g.40gb"),
            ("3g.40gb + 2x2g.20gb", "3g.40gb + 2 x 2g.20gb"),
            (" whole ", "whole"),
        ]);
    }

    #[test]
    fn values_without_their_unit_or_out_of_range_are_refused() {
        for text in ["1h30", "00:10:00", "10,5m"] {
            let remedy = text.parse::<Time>().unwrap_err().remedy;
            assert!(remedy.ends_with("`90s`, `15m`, `8h` or `7d`"), "{text}: {remedy} keeps a part of it alone");
        }
        refuses::<Time>(&["", "15", "m", "-5m", "1.5h", "15x", "15 m 3", "99999999999999999999s", "2000000d", "٣m"]);
        refuses::<PerHour>(&[
            "",
            "2500",
            "2500 USD",
            "2500 EUR/h",
            "-1 USD/h",
            "1.0000001 USD/h",
            "USD/h",
            "99999999999999 USD/h",
        ]);
        refuses::<Money>(&["", "60000", "60000 USD/h", "1e3 USD", "99999999999999 USD"]);
        refuses::<Percent>(&["", "25", "101 %", "0.25 %", "25 pct", "-1 %"]);
        refuses::<Memory>(&["", "16", "16GB", "16Gi", "0.3MiB", "99999999999999999999GiB"]);
        refuses::<GpuCount>(&["", "-1", "0.0005", "1.", ".5", "all", "1e3", "999999999999"]);
        refuses::<GpuBound>(&["none", "-1"]);
        refuses::<Factor>(&["", "-1", "two", "1.23456", "9999999999"]);
        refuses::<GpuLayout>(&[
            "",
            "half",
            "1g",
            "1g.10gb+me",
            "0 x 1g.10gb",
            "9 x 1g.5gb",
            "x 1g.5gb",
            "1g.5gb +",
            "7",
            "1g.5GB",
        ]);
    }
}

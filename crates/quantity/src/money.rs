//! Money in US dollars: an amount (`60000 USD`) or a rate (`2500 USD/h`), never one for the other.
//!
//! Never: another currency, which would need a rate of the day.

use super::{UnitError, as_text, decimal, split_unit, write_decimal, wrong};
use crate::excerpt::one_line as shown;
use forebay_kernel::units::Rate;
use std::fmt;
use std::str::FromStr;

/// Money over time: `2500 USD/h`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PerHour(pub Rate);
as_text!(PerHour, "MoneyPerHour", "string", r"^[0-9]+(\.[0-9]{1,6})? *USD/h$", "money over time, such as `2500 USD/h`");

impl FromStr for PerHour {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<PerHour, UnitError> {
        let (number, unit) = split_unit(text);
        // `.5` is no number here, and `0.5` is what was meant.
        let zero = if number.starts_with('.') { "0" } else { "" };
        let remedy = format!("write `{zero}{} USD/h`", shown(if number.is_empty() { "2500" } else { number }));
        let (what, remedy) = match (unit, decimal(number, 6)) {
            ("USD/h", Some(micros)) if micros <= MAX_MICROS => return Ok(PerHour(Rate(micros))),
            ("USD/h", Some(_)) => ("is more than a billion USD/h", "write what the account can bear".to_owned()),
            ("USD", _) => ("is an amount of money, but a rate is needed", remedy),
            ("", _) => ("has no unit", remedy),
            _ => ("is not money over time", "write it in US dollars an hour, such as `2500 USD/h`".to_owned()),
        };
        wrong(text, what, remedy)
    }
}

/// A billion dollars: larger amounts are slips.
const MAX_MICROS: u64 = 1_000_000_000 * 1_000_000;

impl fmt::Display for PerHour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_decimal(f, self.0.0, 6, " USD/h")
    }
}

/// An amount of money in micro-dollars: `60000 USD`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Money(pub u64);
as_text!(Money, "Money", "string", r"^[0-9]+(\.[0-9]{1,6})? *USD$", "an amount of money, such as `60000 USD`");

impl FromStr for Money {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Money, UnitError> {
        let (number, unit) = split_unit(text);
        let remedy = format!("write `{} USD`", shown(if number.is_empty() { "60000" } else { number }));
        match (unit, decimal(number, 6)) {
            ("USD", Some(micros)) if micros <= MAX_MICROS => Ok(Money(micros)),
            ("USD/h", _) => wrong(text, "is a rate, but an amount of money is needed", remedy),
            ("", _) => wrong(text, "has no unit", remedy),
            _ => wrong(text, "is not an amount of money", "write US dollars, such as `60000 USD`"),
        }
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_decimal(f, self.0, 6, " USD")
    }
}

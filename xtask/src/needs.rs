//! What the tests need beyond cargo and the network: a short table, each row with a probe and how to get it.
//!
//! It names what is missing; it installs nothing.

use crate::Failure;
use crate::command::answers;

struct Need {
    name: &'static str,
    why: &'static str,
    /// Succeeds where the thing is there.
    probe: &'static [&'static str],
    how: &'static str,
}

const NEEDS: [Need; 3] = [
    Need {
        name: "C compiler (cc)",
        why: "the journal builds its own SQLite",
        probe: &["cc", "--version"],
        how: "Debian, Ubuntu: apt-get install gcc libc6-dev; Fedora: dnf install gcc; macOS: xcode-select --install",
    },
    Need {
        name: "rustfmt",
        why: "tidy checks the format",
        probe: &["cargo", "fmt", "--version"],
        how: "rustup component add rustfmt",
    },
    Need {
        name: "clippy",
        why: "it holds the purity rules",
        probe: &["cargo", "clippy", "--version"],
        how: "rustup component add clippy",
    },
];

/// Probes each need. Fails with every one that is missing, why it is needed, and how to get it.
pub fn check() -> Result<(), Failure> {
    let mut missing = String::new();
    for need in &NEEDS {
        let there = answers(need.probe);
        eprintln!("need: {} ({}): {}", need.name, need.probe.join(" "), if there { "there" } else { "missing" });
        if !there {
            missing.push_str(&format!("\n  {}: {}\n    get it: {}", need.name, need.why, need.how));
        }
    }
    if missing.is_empty() { Ok(()) } else { Err(Failure::new(format!("the tests need what is not here:{missing}"))) }
}

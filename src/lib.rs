//! The engine of Forebay: pure and deterministic. Job and node events go in; decisions and effects come out.
//!
//! ```text
//! message / watch -> Event -> batch: tick + events -> apply -> one plan pass -> Decisions
//!     -> ONE journal transaction -> Effects released -> outcome comes back as just another Event
//! ```
//!
//! It knows jobs, queues, quotas, nodes, prices. It does not know Kafka, Kubernetes, a cloud's API, files, threads, clocks,
//! randomness or floats: `no_std` says so, and the same inputs give the same decisions on any machine, byte for byte.
//!
//! The loop, whole:
//!
//! ```
//! use forebay_engine::engine::Engine;
//! use forebay_kernel::{event::Tick, units::Timestamp};
//!
//! let mut engine = Engine::new();
//! engine.open(Tick { now: Timestamp(1_000), resumed: false, delivered: 0 });
//! // engine.handle_event(..) for everything that has arrived
//! let report = engine.plan();
//! assert_eq!(report.started, 0);
//! let unsaved = engine.close();
//! // journal.append(unsaved.batch()) makes it durable, and only then:
//! let released = unsaved.saved();
//! assert!(released.effects.is_empty());
//! ```
#![no_std]
extern crate alloc;

use forebay_kernel::{
    audit, catalog, decision, effect, event, floors, ids, job, journal, layouts, machine, policy, reason, state, units,
};

pub mod engine;
mod memo;
mod moves;
pub mod plan;
mod rules;
mod stages;
mod why;

pub use rules::asked::{least_added, least_rate};
pub use rules::reservations::{KeptRoom, kept_from};

#[cfg(test)]
mod tests {
    extern crate std;

    use alloc::borrow::ToOwned;
    use alloc::format;
    use alloc::string::String;
    use alloc::vec::Vec;
    use std::fs;
    use std::path::Path;

    /// What the code of a layer may not mention: the start of the path below `src/`, the words, and the remedy.
    const LAYERS: [(&str, &[&str], &str); 3] = [
        ("stages/", &["stages::"], "a stage calls rules and moves, never another stage; plan.rs has their order"),
        ("rules/", &["stages", "moves", ".decide("], "a rule answers a question; decisions are made in a stage"),
        ("moves.rs", &["stages"], "a move is made by stages and knows none of them"),
    ];

    /// The lines of a file that break the layers, each with its remedy.
    fn findings(path: &str, text: &str) -> Vec<String> {
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        let mut found = Vec::new();
        for (at, line) in code.lines().enumerate() {
            let line = line.split("//").next().unwrap_or_default();
            for (start, words, remedy) in LAYERS {
                if path.starts_with(start) && words.iter().any(|word| line.contains(word)) {
                    found.push(format!("src/{path}:{}: {}: {remedy}", at + 1, line.trim()));
                }
            }
            if leaves_stage(path, line) {
                found.push(format!("src/{path}:{}: {}: {}", at + 1, line.trim(), LAYERS[0].2));
            }
        }
        found
    }

    /// Whether a relative path leads out of the stage that a file belongs to. The parts of a stage in a folder may use each other.
    fn leaves_stage(path: &str, line: &str) -> bool {
        let Some(inner) = path.strip_prefix("stages/") else { return false };
        let part = inner.contains('/') && !inner.ends_with("/mod.rs");
        line.contains(if part { "super::super" } else { "super::" })
    }

    fn sources(folder: &Path, below: &str, found: &mut Vec<(String, String)>) {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().to_str().unwrap().to_owned();
            if entry.path().is_dir() {
                sources(&entry.path(), &format!("{below}{name}/"), found);
            } else {
                found.push((format!("{below}{name}"), fs::read_to_string(entry.path()).unwrap()));
            }
        }
    }

    #[test]
    fn no_stage_calls_another_and_no_rule_decides() {
        let mut files = Vec::new();
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), "", &mut files);
        assert!(files.iter().any(|(path, _)| path == "stages/preempt/mod.rs"), "the sources were not found");
        let found: Vec<String> = files.iter().flat_map(|(path, text)| findings(path, text)).collect();
        assert!(found.is_empty(), "{}", found.join("\n"));
    }

    #[test]
    fn a_broken_layer_is_found() {
        for (path, code, count) in [
            ("stages/settle.rs", "crate::stages::drain::run(engine, report);", 1),
            ("stages/settle.rs", "use super::drain;", 1),
            ("stages/preempt/search.rs", "use super::super::drain;", 1),
            ("stages/preempt/search.rs", "use super::ceiling;", 0),
            ("rules/quota.rs", "use crate::stages::admit;", 1),
            ("rules/quota.rs", "engine.decide(Decision::Unbook { job });", 1),
            ("rules/quota.rs", "// stages ask this", 0),
            ("moves.rs", "use crate::stages::settle;", 1),
            ("plan.rs", "use crate::stages::settle;", 0),
        ] {
            assert_eq!(findings(path, code).len(), count, "{path}: {code}");
        }
    }
}

//! The inputs written by hand: `fuzz/corpus`, a file an input. What a fuzzer found once is among them.
//!
//! `TARGET--NAME` is an input of that target, `NAME.headers` an event of binary mode (headers, an empty line, the data); all others are
//! structured events.
//! Never: a file that is not named in `fuzz/expected.txt`; a test says so.

use std::path::{Path, PathBuf};

/// An input written by hand.
#[derive(Clone, Debug)]
pub struct Seed {
    /// The file's name.
    pub name: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl Seed {
    /// The target that its name says; `None` where it is an event.
    #[must_use]
    pub fn target(&self) -> Option<&str> {
        self.name.split_once("--").map(|(target, _)| target)
    }
}

/// Where the corpus is: below the folder that a test or a run is started in, or the one above.
#[must_use]
pub fn folder() -> PathBuf {
    // Cargo starts tests in the package's folder, and people start runs at the root.
    ["fuzz/corpus", "corpus"].iter().map(PathBuf::from).find(|p| p.is_dir()).unwrap_or_else(|| "fuzz/corpus".into())
}

/// Reads all of it, by name.
///
/// # Errors
/// When the folder or a file in it cannot be read.
pub fn read(folder: &Path) -> std::io::Result<Vec<Seed>> {
    let mut seeds = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        seeds
            .push(Seed { name: entry.file_name().to_string_lossy().into_owned(), bytes: std::fs::read(entry.path())? });
    }
    seeds.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(seeds)
}

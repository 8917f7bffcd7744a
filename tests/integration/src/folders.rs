//! Folders of journals as bytes: compared, copied, put back.

use std::collections::BTreeMap;
use std::path::Path;

/// Every file of a folder but the lock, whose number is for people, by its path in the folder.
///
/// # Panics
/// When it cannot be read.
#[must_use]
pub fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    while let Some(at) = open.pop() {
        for entry in std::fs::read_dir(&at).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.strip_prefix(folder).expect("in it").display().to_string();
            if path.is_dir() {
                open.push(path);
            } else if name != "forebay.lock" {
                found.insert(name, std::fs::read(&path).expect("a file"));
            }
        }
    }
    found
}

/// Writes files into a folder.
///
/// # Panics
/// When one cannot be written.
pub fn put(files: &BTreeMap<String, Vec<u8>>, folder: &Path) {
    for (name, bytes) in files {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        std::fs::write(path, bytes).expect("a copy");
    }
}

/// A copy of a folder.
///
/// # Panics
/// When it cannot be read or written.
#[must_use]
pub fn copied(from: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir().expect("a folder");
    put(&contents(from), to.path());
    to
}

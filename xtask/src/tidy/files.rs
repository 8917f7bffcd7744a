//! Reads the project's text files: those that git tracks, and new ones that it does not ignore.
//!
//! Binary files are left out: anything that is not UTF-8, or that has a NUL.

use std::path::Path;

use super::File;
use crate::ChoreFailure;
use crate::command::{capture, git};

/// Every text file under the root, in order of path.
pub fn read_all(root: &Path) -> Result<Vec<File>, ChoreFailure> {
    let listed = capture(git(root).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]));
    let listed = listed.map_err(|e| {
        ChoreFailure::new(format!("{}\ntidy asks git which files are the project's: run it in a clone", e.message))
    })?;
    let mut paths: Vec<&str> = listed.split('\0').filter(|path| !path.is_empty()).collect();
    paths.sort_unstable();
    paths.dedup();
    let mut files = Vec::new();
    for path in paths {
        let on_disk = root.join(path);
        // A file that was deleted but not yet staged is still listed; a link is checked where it leads.
        if !on_disk.is_file() || on_disk.is_symlink() {
            continue;
        }
        let bytes = std::fs::read(&on_disk).map_err(|e| ChoreFailure::new(format!("{path}: {e}")))?;
        if let Ok(text) = String::from_utf8(bytes)
            && !text.contains('\0')
        {
            files.push(File { path: path.to_owned(), text });
        }
    }
    Ok(files)
}

//! Files and folders that nobody but their owner may read: what the controller knows is of all tenants.
//!
//! Never: changes the permissions of what is there already; a folder's own are its owner's, who is warned.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Write as _};
use std::path::Path;

/// A file that is made by these options is its owner's alone.
pub(crate) fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}

/// Puts a file in its place whole or not at all, which is its owner's alone: it is written as `draft` first, which does not stay.
pub(crate) fn replace_private(path: &Path, draft: &Path, bytes: &[u8]) -> io::Result<()> {
    // What an earlier one left has its own permissions.
    match std::fs::remove_file(draft) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = private(OpenOptions::new().write(true).create_new(true)).open(draft);
    let written = file.and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()));
    let placed = written.and_then(|()| std::fs::rename(draft, path));
    if placed.is_err() {
        // It may not even be there.
        let _ = std::fs::remove_file(draft);
    }
    placed
}

/// Makes a folder, and those above it, that nobody but its owner may enter.
pub(crate) fn create_private_folder(path: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(path)
}

/// Whether others than its owner may read a folder, and by which mode. `None`: they may not, or the system does not know owners.
pub(crate) fn open_to_others(path: &Path) -> Option<u32> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(path).ok()?.permissions().mode() & 0o777;
        (mode & 0o077 != 0).then_some(mode)
    }
    #[cfg(not(unix))]
    {
        let _ = path;
        None
    }
}

//! The key of attempt tokens: 32 random bytes in the journal's folder, made at the first start and kept for as long as the journal.
//!
//! Never: a second key for one journal. A run that was started with a token may report with it after any number of restarts.

use crate::files::replace_private;
use forebay_driver::journal::StorageFailure;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// The file's name in the journal's folder.
pub const FILE: &str = "attempt.key";

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file system said no.
    #[error("{}: {source}; check the folder, its permissions and the disk under it", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// What is there is no key.
    #[error(
        "{}: is not a key of 64 hexadecimal digits; restore it from a backup, or move it away: a new one is made then, and runs that \
         were started with the old one cannot report any more",
        .path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
    },
}

impl StorageFailure for KeyError {
    fn is_full(&self) -> bool {
        matches!(self, KeyError::Io { source, .. } if crate::journal::is_out_of_room(source))
    }
}

/// Whether a folder has a key, which can be read then.
///
/// # Errors
/// It cannot be read, or what is there is no key.
pub fn is_there(folder: &Path) -> Result<bool, KeyError> {
    let path = folder.join(FILE);
    match File::open(&path) {
        Ok(file) => load(file, &path).map(|_| true),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(KeyError::Io { path, source }),
    }
}

/// The key of a folder, made where there is none.
///
/// # Errors
/// It can be neither read nor made, or what is there is no key.
pub fn load_or_create(folder: &Path) -> Result<[u8; 32], KeyError> {
    let path = folder.join(FILE);
    match File::open(&path) {
        Ok(file) => load(file, &path),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            create(folder, &path).map_err(|source| KeyError::Io { path: path.clone(), source })
        }
        Err(source) => Err(KeyError::Io { path, source }),
    }
}

fn load(file: File, path: &Path) -> Result<[u8; 32], KeyError> {
    let mut text = String::new();
    // One more than fits: what is longer is no key.
    let read = file.take(66).read_to_string(&mut text);
    match read {
        Err(e) if e.kind() != std::io::ErrorKind::InvalidData => Err(KeyError::Io { path: path.to_owned(), source: e }),
        _ => parsed(text.trim_end_matches('\n')).ok_or_else(|| KeyError::Damaged { path: path.to_owned() }),
    }
}

fn parsed(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let mut key = [0; 32];
    for (at, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(key)
}

/// Written beside it first, then put in its place: half a key is never found.
fn create(folder: &Path, path: &Path) -> std::io::Result<[u8; 32]> {
    // Four random UUIDs are 488 bits from the system's source; hashed, they are a key.
    let random: Vec<u8> = (0..4).flat_map(|_| Uuid::new_v4().into_bytes()).collect();
    let key = *blake3::hash(&random).as_bytes();
    let mut text = String::with_capacity(65);
    for byte in key {
        let _ = write!(text, "{byte:02x}");
    }
    text.push('\n');
    replace_private(path, &folder.join(format!("{FILE}.new")), text.as_bytes())?;
    File::open(folder)?.sync_all()?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once_and_kept_for_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let key = load_or_create(folder.path()).unwrap();
        assert_eq!(load_or_create(folder.path()).unwrap(), key);
        assert_ne!(load_or_create(tempfile::tempdir().unwrap().path()).unwrap(), key);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = std::fs::metadata(folder.path().join(FILE)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }

    #[test]
    fn a_damaged_key_is_refused_and_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        let whole = "0f".repeat(32);
        for (text, fine) in [
            (whole.clone(), true),
            (format!("{whole}\n"), true),
            (String::new(), false),
            (whole[1..].to_owned(), false),
            (format!("{whole}00"), false),
            ("g0".repeat(32), false),
            ("+1".repeat(32), false),
        ] {
            std::fs::write(&path, &text).unwrap();
            match load_or_create(folder.path()) {
                Ok(key) => assert!(fine && key == [0x0f; 32], "{text}"),
                Err(e) => assert!(!fine && e.to_string().contains("restore it"), "{text}: {e}"),
            }
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }
}

//! Opens an input file and refuses at once what cannot be text, with what it is instead.
//! It never reads on: rows and objects do, each in its own way.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use super::error::InputError;

/// How much of a file is examined to recognise it, in bytes.
const HEAD_BYTES: usize = 64 << 10;

/// A file that was opened and recognised, but not yet read.
pub struct Opened {
    /// What messages call it.
    pub path: PathBuf,
    /// Its bytes, without a byte order mark.
    pub reader: Box<dyn BufRead>,
    /// The first bytes, still to be read from `reader`; without a byte order mark.
    pub head: Vec<u8>,
}

/// Opens a file and refuses at once what cannot be text.
///
/// # Errors
/// It cannot be read, or is no text: see [`InputError`].
pub fn open(path: &Path) -> Result<Opened, InputError> {
    let file = File::open(path).map_err(|e| InputError::io(path, e))?;
    accept(path, Box::new(BufReader::with_capacity(HEAD_BYTES, file)))
}

/// Refuses at once what cannot be text; `path` is what messages call it.
///
/// # Errors
/// What the bytes are instead of text: see [`InputError`].
pub fn accept(path: &Path, mut reader: Box<dyn BufRead>) -> Result<Opened, InputError> {
    let io = |e| InputError::io(path, e);
    let refused = |problem: &'static str, remedy: &'static str| Err(InputError::line(path, 1, problem, remedy));
    let head = reader.fill_buf().map_err(io)?;
    if head.starts_with(&[0x1f, 0x8b]) {
        return refused("a gzip archive", "unpack it first (gunzip)");
    }
    if head.starts_with(b"PK\x03\x04") {
        return refused("a zip archive", "unpack it first (unzip)");
    }
    if head.starts_with(&[0xff, 0xfe]) || head.starts_with(&[0xfe, 0xff]) {
        return refused("UTF-16 text", "save it as UTF-8");
    }
    if head.starts_with(b"version https://git-lfs") {
        return refused("a Git LFS pointer, not the data", "fetch the data (git lfs pull)");
    }
    if head.starts_with(&[0xef, 0xbb, 0xbf]) {
        reader.consume(3);
    }
    let head = reader.fill_buf().map_err(io)?.to_vec();
    if head.iter().all(u8::is_ascii_whitespace) {
        return Err(InputError::empty(path, "the file is empty"));
    }
    if let Some(at) = head.iter().position(|b| *b == 0) {
        let line = lines_before(&head, at);
        return Err(InputError::line(path, line, "not text (a zero byte)", "give a text file"));
    }
    Ok(Opened { path: path.to_owned(), reader, head })
}

fn lines_before(bytes: &[u8], at: usize) -> u64 {
    bytes.iter().take(at).map(|b| u64::from(*b == b'\n')).sum::<u64>() + 1
}

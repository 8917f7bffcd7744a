//! Random ports, names and passwords from the system's own source.
//!
//! Never: a seed. What these tests run against is real, and no run repeats another.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::PartError;

const SOURCE: &str = "/dev/urandom";

fn bytes<const N: usize>() -> Result<[u8; N], PartError> {
    let mut bytes = [0; N];
    let read = File::open(SOURCE).and_then(|mut source| source.read_exact(&mut bytes));
    read.map_err(PartError::file(Path::new(SOURCE)))?;
    Ok(bytes)
}

/// Any number.
pub(crate) fn number() -> Result<u16, PartError> {
    Ok(u16::from_le_bytes(bytes()?))
}

/// Letters and digits, five bits of chance each.
pub(crate) fn word<const N: usize>() -> Result<String, PartError> {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    Ok(bytes::<N>()?.iter().map(|byte| char::from(ALPHABET[usize::from(byte % 32)])).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_long_and_differ() {
        let (one, other) = (word::<24>().unwrap(), word::<24>().unwrap());
        assert_eq!((one.len(), other.len()), (24, 24));
        assert_ne!(one, other);
    }
}

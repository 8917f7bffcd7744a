//! The checks that each row carries: a CRC over all of it, and a hash chain over all before it.
//!
//! ```text
//! chain(0) = blake3("forebay journal" + uuid)      chain(n) = blake3(chain(n-1) + positions + payload)
//! crc(n)   = crc32c(seq, next_seq, tick, chain(n), positions, payload)
//! ```
//!
//! The CRC finds damage and says which row; the chain finds rows that are sound but not this journal's, or not here.
//! Never: secrecy or proof against a forger.

use uuid::Uuid;

/// A link of the chain.
pub type Chain = [u8; 32];

/// The link before the first batch.
#[must_use]
pub fn first(journal: Uuid) -> Chain {
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"forebay journal").update(journal.as_bytes());
    *hasher.finalize().as_bytes()
}

/// The link of a batch.
#[must_use]
pub fn next(before: &Chain, positions: &[u8], payload: &[u8]) -> Chain {
    let mut hasher = blake3::Hasher::new();
    // The length keeps a byte from moving between the two unseen.
    hasher.update(before).update(&(positions.len() as u64).to_le_bytes()).update(positions).update(payload);
    *hasher.finalize().as_bytes()
}

/// The first half of a hash.
#[must_use]
pub fn short(hash: &blake3::Hash) -> [u8; 16] {
    hash.as_bytes().first_chunk().copied().unwrap_or_default()
}

/// A CRC over numbers, then over bytes.
#[must_use]
pub fn crc(numbers: &[i64], parts: &[&[u8]]) -> u32 {
    let crc = numbers.iter().fold(0, |crc, n| crc32c::crc32c_append(crc, &n.to_le_bytes()));
    parts.iter().fold(crc, |crc, part| crc32c::crc32c_append(crc, part))
}

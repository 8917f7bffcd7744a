//! Small changes to bytes: a bit, a piece, a cut, a splice of two, a repetition, a swap of words.
//!
//! Never: more than `MOST` bytes, so that repetition of repetition ends.

use crate::generate::pick;
use crate::vocabulary::{EDGES, PIECES};
use forebay_sim::trace::SplitMix64;

/// The longest input that is made.
pub const MOST: usize = 2 << 20;

/// Changes `bytes` one to four times. `other` is what is spliced in.
pub fn mutate(rng: &mut SplitMix64, bytes: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..=rng.below(4) {
        let (at, end) = range(rng, bytes.len());
        match rng.below(9) {
            0 => flip(rng, bytes, at),
            1 => drop(bytes.splice(at..at, pick(rng, PIECES).bytes())),
            2 => drop(bytes.drain(at..end)),
            3 => bytes.truncate(at),
            4 => {
                let (from, to) = range(rng, other.len());
                drop(bytes.splice(at..end, other.get(from..to).unwrap_or_default().iter().copied()));
            }
            5 => {
                let piece = bytes.get(at..end).unwrap_or_default().to_vec();
                let times = usize::try_from(rng.below(8)).unwrap_or(0);
                drop(bytes.splice(at..at, piece.repeat(times)));
            }
            6 => swap(rng, bytes),
            7 => edge(rng, bytes),
            _ => {
                let byte = rng.next_u64().to_le_bytes()[0];
                bytes.insert(at, byte);
            }
        }
        bytes.truncate(MOST);
    }
}

/// A place, and one at most 64 bytes after it.
fn range(rng: &mut SplitMix64, len: usize) -> (usize, usize) {
    let at = usize::try_from(rng.below(len as u64 + 1)).unwrap_or(0);
    let size = usize::try_from(rng.below(64)).unwrap_or(0);
    (at, (at + size).min(len))
}

fn flip(rng: &mut SplitMix64, bytes: &mut [u8], at: usize) {
    if let Some(byte) = bytes.get_mut(at) {
        *byte ^= 1 << rng.below(8);
    }
}

/// A word: a run of letters, digits and signs of numbers. `None` where there is none after `from`.
fn word(bytes: &[u8], from: usize) -> Option<(usize, usize)> {
    let inside = |b: &u8| b.is_ascii_alphanumeric() || b"-+._/".contains(b);
    let start = from + bytes.get(from..)?.iter().position(inside)?;
    let len = bytes.get(start..)?.iter().position(|b| !inside(b)).unwrap_or(bytes.len() - start);
    Some((start, start + len))
}

/// Puts one word in the place of another.
fn swap(rng: &mut SplitMix64, bytes: &mut Vec<u8>) {
    let ((a, _), (b, _)) = (range(rng, bytes.len()), range(rng, bytes.len()));
    if let (Some((from, to)), Some((start, end))) = (word(bytes, a), word(bytes, b)) {
        let one = bytes.get(start..end).unwrap_or_default().to_vec();
        drop(bytes.splice(from..to, one));
    }
}

/// Puts a value at an edge in the place of a word, and of the quotes around it.
fn edge(rng: &mut SplitMix64, bytes: &mut Vec<u8>) {
    let (at, _) = range(rng, bytes.len());
    if let Some((mut from, mut to)) = word(bytes, at) {
        if from > 0 && bytes.get(from - 1) == Some(&b'"') && bytes.get(to) == Some(&b'"') {
            (from, to) = (from - 1, to + 1);
        }
        drop(bytes.splice(from..to, pick(rng, EDGES).bytes()));
    }
}

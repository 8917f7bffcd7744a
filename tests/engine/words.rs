//! Reads the words of a story: times, sizes, `key=value` pairs. Anything unknown is an error with its line.
//!
//! Never: guesses. A key that nobody asks for is a mistake in the story.

use alloc::collections::BTreeMap;
use core::str::FromStr;

/// The words of one line after its verb.
pub struct Words<'a> {
    /// Words without `=`, in order.
    pub plain: Vec<&'a str>,
    keys: BTreeMap<&'a str, &'a str>,
}

impl<'a> Words<'a> {
    /// Splits a line.
    pub fn of(line: &'a str) -> Words<'a> {
        let (keyed, plain): (Vec<&str>, Vec<&str>) = line.split_whitespace().partition(|w| w.contains('='));
        let keys = keyed.iter().filter_map(|w| w.split_once('='));
        Words { plain, keys: keys.collect() }
    }

    /// The plain word at a position.
    pub fn at(&self, at: usize) -> &'a str {
        self.plain.get(at).copied().unwrap_or_else(|| panic!("a word is missing"))
    }

    /// Takes a key out, so that [`Words::end`] can find what nobody asked for.
    pub fn take(&mut self, key: &str) -> Option<&'a str> {
        self.keys.remove(key)
    }

    /// A number, if stated.
    pub fn number<T: FromStr>(&mut self, key: &str) -> Option<T> {
        self.take(key).map(number)
    }

    /// A time in milliseconds, if stated.
    pub fn time(&mut self, key: &str) -> Option<u64> {
        self.take(key).map(time)
    }

    /// A list with commas; empty if not stated.
    pub fn list(&mut self, key: &str) -> Vec<&'a str> {
        self.take(key).map_or(Vec::new(), |v| v.split(',').collect())
    }

    /// All keys that are left, in order.
    pub fn rest(&mut self) -> BTreeMap<&'a str, &'a str> {
        core::mem::take(&mut self.keys)
    }

    /// Nothing may be left.
    pub fn end(&self) {
        assert!(self.keys.is_empty(), "nobody knows {:?}", self.keys);
    }
}

/// A number.
pub fn number<T: FromStr>(word: &str) -> T {
    word.parse().unwrap_or_else(|_| panic!("`{word}` is not a number"))
}

/// `500ms`, `10s`, `5m`, `2h` in milliseconds.
pub fn time(word: &str) -> u64 {
    let at = word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len());
    let unit = match &word[at..] {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => panic!("`{word}` is not a time: 500ms, 10s, 5m or 2h"),
    };
    number::<u64>(&word[..at]) * unit
}

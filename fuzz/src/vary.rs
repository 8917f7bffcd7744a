//! Changes that keep the form of what is written: another word, a line less or twice, another value. They reach what lies behind the parser;
//! `mutate` has those that break it.
//!
//! Never: knows what is right. Words come from ready-made inputs, and from those at the edges.

use crate::generate::pick;
use crate::vocabulary::{EDGES, PLAIN};
use forebay_sim::trace::SplitMix64;
use serde_json::Value;
use std::ops::Range;

/// Changes lines and words of a text, three times at most. `other` is what further words are taken from.
pub fn text(rng: &mut SplitMix64, bytes: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..rng.below(4) {
        let at = place(rng, bytes.len());
        match rng.below(10) {
            0 => {
                let line = line(bytes, at);
                drop(bytes.drain(line));
            }
            1 => {
                let line = line(bytes, at);
                let copy = bytes.get(line.clone()).unwrap_or_default().to_vec();
                drop(bytes.splice(line.start..line.start, copy));
            }
            2..5 => {
                let plain = pick(rng, PLAIN);
                replace(bytes, at, plain.as_bytes());
            }
            _ => {
                let from = place(rng, other.len());
                if let Some(found) = word(other, from) {
                    replace(bytes, at, other.get(found).unwrap_or_default());
                }
            }
        }
    }
}

/// Writes a document with other values, other keys, more or fewer items, three changes at most.
pub fn json(rng: &mut SplitMix64, document: &Value, out: &mut Vec<u8>) {
    let mut value = document.clone();
    for _ in 0..rng.below(4) {
        change(rng, &mut value);
    }
    drop(serde_json::to_writer(out, &value));
}

/// Goes down to one value of a document and changes it, or what it passes on the way.
fn change(rng: &mut SplitMix64, value: &mut Value) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            let at = index(rng, fields.len());
            let Some(name) = fields.keys().nth(at).cloned() else { return };
            match rng.below(20) {
                0 => drop(fields.remove(&name)),
                1 => {
                    let moved = fields.remove(&name).unwrap_or_default();
                    fields.insert(format!("{name}x"), moved);
                }
                2 => drop(fields.insert(name, edge(rng))),
                _ => fields.get_mut(&name).into_iter().for_each(|inner| change(rng, inner)),
            }
        }
        Value::Array(items) if !items.is_empty() => {
            let at = index(rng, items.len());
            match rng.below(20) {
                0 => drop(items.remove(at)),
                1 => {
                    let copy = items.get(at).cloned();
                    items.extend(copy);
                }
                _ => items.get_mut(at).into_iter().for_each(|inner| change(rng, inner)),
            }
        }
        single => *single = edge(rng),
    }
}

/// A value at an edge; null where it is one that JSON does not have.
fn edge(rng: &mut SplitMix64) -> Value {
    serde_json::from_str(pick(rng, EDGES)).unwrap_or(Value::Null)
}

fn place(rng: &mut SplitMix64, length: usize) -> usize {
    index(rng, length.saturating_add(1))
}

fn index(rng: &mut SplitMix64, length: usize) -> usize {
    usize::try_from(rng.below((length as u64).max(1))).unwrap_or(0)
}

/// The line at a place, with its line break.
fn line(bytes: &[u8], at: usize) -> Range<usize> {
    let before = bytes.get(..at).unwrap_or_default();
    let start = before.iter().rposition(|b| *b == b'\n').map_or(0, |found| found + 1);
    let rest = bytes.get(at..).unwrap_or_default();
    let end = rest.iter().position(|b| *b == b'\n').map_or(bytes.len(), |found| at + found + 1);
    start..end
}

/// The next word from a place on. It begins with a letter or a digit, so that it is no sign of the format, such as the `-` of a list.
fn word(bytes: &[u8], from: usize) -> Option<Range<usize>> {
    let inside = |b: &u8| b.is_ascii_alphanumeric() || b"-+._/".contains(b);
    let start = from + bytes.get(from..)?.iter().position(u8::is_ascii_alphanumeric)?;
    let length = bytes.get(start..)?.iter().position(|b| !inside(b)).unwrap_or(bytes.len() - start);
    Some(start..start + length)
}

/// Puts something in the place of the next word.
fn replace(bytes: &mut Vec<u8>, at: usize, with: &[u8]) {
    if let Some(found) = word(bytes, at) {
        drop(bytes.splice(found, with.iter().copied()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_document_is_a_document_and_a_changed_text_mostly_has_its_lines() {
        let document: Value = serde_json::from_str(r#"{"a": [{"b": 1}, {"b": "c"}], "d": {}}"#).unwrap();
        let (mut rng, mut same, mut lines) = (SplitMix64::new(3), 0, 0);
        for n in 0..2000 {
            let mut out = Vec::new();
            json(&mut rng, &document, &mut out);
            let changed: Value = serde_json::from_slice(&out).unwrap_or_else(|e| panic!("{n}: {e}"));
            same += u32::from(changed == document);
            let mut bytes = b"a: 1\nb: [c, 2]\n- d\n".to_vec();
            text(&mut rng, &mut bytes, b"x1 -- y");
            lines += bytes.iter().filter(|b| **b == b'\n').count();
        }
        assert!((400..1200).contains(&same), "{same}: a quarter is left as it is, and some changes change nothing");
        assert!((5000..7000).contains(&lines), "{lines}: as many lines go as come");
    }

    #[test]
    fn a_word_begins_with_a_letter_or_a_digit_and_a_line_ends_with_its_break() {
        assert_eq!(word(b"  - g5.xlarge, 2", 0), Some(4..13));
        assert_eq!(word(b"  - ]", 0), None);
        assert_eq!((line(b"a\nbc\nd", 3), line(b"a\nbc\nd", 5), line(b"", 0)), (2..5, 5..6, 0..0));
    }
}

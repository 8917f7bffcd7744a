//! JSON in one form: keys sorted, no spaces. What digests are made of, whatever order a sender writes its fields in.
//!
//! Never: two texts for one value, as far as values differ in JSON (`8` and `8.0` are two).

use serde_json::{Map, Value};

/// The canonical text of an object of these fields.
pub(super) fn text<'a>(fields: impl Iterator<Item = (&'a str, &'a Value)>) -> Vec<u8> {
    let mut out = Vec::new();
    object(fields, &mut out);
    out
}

fn write(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Object(fields) => object(named(fields), out),
        Value::Array(items) => {
            out.push(b'[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                write(item, out);
            }
            out.push(b']');
        }
        Value::String(text) => quoted(text, out),
        // Writing to memory does not fail, and neither do numbers, booleans and null.
        plain => drop(serde_json::to_writer(out, plain)),
    }
}

/// The fields of an object.
pub(super) fn named(fields: &Map<String, Value>) -> impl Iterator<Item = (&str, &Value)> {
    fields.iter().map(|(name, value)| (name.as_str(), value))
}

fn object<'a>(fields: impl Iterator<Item = (&'a str, &'a Value)>, out: &mut Vec<u8>) {
    let mut sorted: Vec<_> = fields.collect();
    // A map of `serde_json` is sorted, unless some crate of the build asks for the order of insertion.
    if !sorted.is_sorted_by(|a, b| a.0 <= b.0) {
        sorted.sort_by_key(|(name, _)| *name);
    }
    out.push(b'{');
    for (at, (name, value)) in sorted.into_iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        quoted(name, out);
        out.push(b':');
        write(value, out);
    }
    out.push(b'}');
}

/// A text as JSON writes it. Most hold nothing that is escaped.
fn quoted(text: &str, out: &mut Vec<u8>) {
    if text.bytes().all(|b| b >= b' ' && b != b'"' && b != b'\\') {
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
    } else {
        // Writing to memory does not fail.
        drop(serde_json::to_writer(out, text));
    }
}

/// The first 16 bytes of the BLAKE3 hash of `data` without the fields in `but`.
pub(super) fn digest(data: &Map<String, Value>, but: &[&str]) -> u128 {
    let hash = blake3::hash(&text(named(data).filter(|(name, _)| !but.contains(name))));
    hash.as_bytes().iter().take(16).fold(0, |n, byte| n << 8 | u128::from(*byte))
}

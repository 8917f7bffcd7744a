//! JSON in one form: keys sorted, no spaces. What digests are made of, whatever order a sender writes its fields in.
//!
//! Never: two texts for one value, as far as values differ in JSON (`8` and `8.0` are two).

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

/// The canonical text of an object of these fields.
pub(super) fn text<'a>(fields: impl Iterator<Item = (&'a str, &'a Value)>) -> Vec<u8> {
    let mut out = Vec::new();
    // Writing to memory does not fail.
    let _ = object(fields, &mut serde_json::Serializer::new(&mut out));
    out
}

/// A value that is written in this form.
struct Canonical<'a>(&'a Value);

impl Serialize for Canonical<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(fields) => object(named(fields), to),
            Value::Array(items) => to.collect_seq(items.iter().map(Canonical)),
            plain => plain.serialize(to),
        }
    }
}

fn object<'a, S: Serializer>(fields: impl Iterator<Item = (&'a str, &'a Value)>, to: S) -> Result<S::Ok, S::Error> {
    let mut sorted: Vec<_> = fields.collect();
    // A map of `serde_json` is sorted, unless some crate of the build asks for the order of insertion.
    sorted.sort_by_key(|(name, _)| *name);
    to.collect_map(sorted.into_iter().map(|(name, value)| (name, Canonical(value))))
}

/// The fields of an object.
pub(super) fn named(fields: &Map<String, Value>) -> impl Iterator<Item = (&str, &Value)> {
    fields.iter().map(|(name, value)| (name.as_str(), value))
}

/// The first 16 bytes of the BLAKE3 hash of `data` without the fields in `but`.
pub(super) fn digest(data: &Map<String, Value>, but: &[&str]) -> u128 {
    let hash = blake3::hash(&text(named(data).filter(|(name, _)| !but.contains(name))));
    hash.as_bytes().iter().take(16).fold(0, |n, byte| n << 8 | u128::from(*byte))
}

//! JSON in one form: keys sorted, no spaces. What digests are made of, whatever order a sender writes its fields in.
//!
//! Never: two texts for one value, as far as JSON tells values apart (`8` and `8.0` are two).

use serde_json::{Map, Value};

/// The canonical text of a value.
pub(super) fn text(value: &Value) -> String {
    let mut out = String::new();
    write(value, &mut out);
    out
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Object(fields) => object(fields, out),
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write(item, out);
            }
            out.push(']');
        }
        plain => out.push_str(&plain.to_string()),
    }
}

fn object(fields: &Map<String, Value>, out: &mut String) {
    let mut sorted: Vec<_> = fields.iter().collect();
    sorted.sort_by_key(|(name, _)| *name);
    out.push('{');
    for (at, (name, value)) in sorted.into_iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        out.push_str(&Value::from(name.as_str()).to_string());
        out.push(':');
        write(value, out);
    }
    out.push('}');
}

/// The first 16 bytes of the BLAKE3 hash of `data` without the fields in `but`.
pub(super) fn digest(data: &Map<String, Value>, but: &[&str]) -> u128 {
    let kept: Map<_, _> =
        data.iter().filter(|(name, _)| !but.contains(&name.as_str())).map(|(n, v)| (n.clone(), v.clone())).collect();
    let hash = blake3::hash(text(&Value::Object(kept)).as_bytes());
    hash.as_bytes().iter().take(16).fold(0, |n, byte| n << 8 | u128::from(*byte))
}

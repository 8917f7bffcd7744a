//! Events of the right shape with wrong values: the schema's fields, each with what it should hold or what it never should.
//!
//! Never: always valid JSON. A generator that knows what is valid finds nothing in the parser.

use crate::vocabulary::{EDGES, FIELDS, TYPES};
use forebay_sim::trace::SplitMix64;

/// One of a list.
pub fn pick<'a>(rng: &mut SplitMix64, of: &[&'a str]) -> &'a str {
    let at = usize::try_from(rng.below(of.len() as u64)).unwrap_or(0);
    of.get(at).copied().unwrap_or("")
}

/// A whole event.
pub fn event(rng: &mut SplitMix64, token: &str, out: &mut Vec<u8>) {
    out.push(b'{');
    if rng.chance(500) {
        field(out, "specversion", if rng.chance(950) { "\"1.0\"" } else { pick(rng, EDGES) });
        field(out, "source", if rng.chance(950) { "\"//airflow/prod\"" } else { pick(rng, EDGES) });
        field(out, "id", if rng.chance(950) { "\"9f1c\"" } else { pick(rng, EDGES) });
    }
    if rng.chance(200) {
        field(out, "dataschema", if rng.chance(600) { "\"urn:forebay:job.submitted:1\"" } else { pick(rng, EDGES) });
    }
    if rng.chance(990) {
        field(out, "type", pick(rng, TYPES));
    }
    if rng.chance(970) {
        edge_or(rng, "subject", "\"resnet-0412\"", 40, out);
    }
    if rng.chance(200) {
        edge_or(rng, "time", "\"2026-11-21T09:00:00Z\"", 200, out);
    }
    name(out, "data");
    data(rng, token, out);
    out.push(b'}');
}

/// The data alone.
pub fn data(rng: &mut SplitMix64, token: &str, out: &mut Vec<u8>) {
    out.push(b'{');
    // A right event four times in ten, so that what lies behind the first checks is reached.
    let wrong = if rng.chance(400) { 0 } else { 150 };
    let start = out.len();
    if rng.chance(800) {
        one(rng, 1, wrong, token, out);
    }
    for _ in 0..rng.below(8) {
        let at = usize::try_from(rng.below(FIELDS.len() as u64)).unwrap_or(0);
        let Some((field, _)) = FIELDS.get(at) else { continue };
        // A field twice is an error of its own: rarely.
        if rng.chance(20) || !holds(out.get(start..).unwrap_or_default(), field) {
            one(rng, at, wrong, token, out);
        }
    }
    if rng.chance(100) {
        name(out, if rng.chance(500) { "colour" } else { "a\\nb\\u202e" });
        value(pick(rng, EDGES), token, out);
    }
    out.push(b'}');
}

/// One field of the table, with something right or something at an edge.
fn one(rng: &mut SplitMix64, at: usize, wrong: u64, token: &str, out: &mut Vec<u8>) {
    let Some((field, right)) = FIELDS.get(at) else { return };
    name(out, field);
    if rng.chance(wrong) {
        value(pick(rng, EDGES), token, out);
    } else if wrong == 0 {
        value(right.first().copied().unwrap_or("null"), token, out);
    } else {
        value(pick(rng, right), token, out);
    }
}

fn holds(text: &[u8], field: &str) -> bool {
    text.windows(field.len() + 1).any(|w| w.starts_with(field.as_bytes()) && w.ends_with(b"\""))
}

fn edge_or(rng: &mut SplitMix64, field: &str, right: &str, permille: u64, out: &mut Vec<u8>) {
    let written = if rng.chance(permille) { pick(rng, EDGES) } else { right };
    name(out, field);
    value(written, "", out);
}

fn field(out: &mut Vec<u8>, field: &str, written: &str) {
    name(out, field);
    value(written, "", out);
}

fn name(out: &mut Vec<u8>, name: &str) {
    if !matches!(out.last(), Some(b'{') | None) {
        out.push(b',');
    }
    out.push(b'"');
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

/// A value as it is, or what its placeholder stands for.
fn value(written: &str, token: &str, out: &mut Vec<u8>) {
    match written {
        "\"$TOKEN\"" => out.extend_from_slice(format!("\"{token}\"").as_bytes()),
        "\"$LONG\"" => {
            out.push(b'"');
            out.extend(std::iter::repeat_n(b'x', 10_000));
            out.push(b'"');
        }
        "\"$ESCAPES\"" => {
            out.push(b'"');
            out.extend_from_slice("\\u0001\u{10ffff}\\n".repeat(100).as_bytes());
            out.push(b'"');
        }
        plain => out.extend_from_slice(plain.as_bytes()),
    }
}

/// An event of binary mode: headers, an empty line, the data.
pub fn headers(rng: &mut SplitMix64, token: &str, out: &mut Vec<u8>) {
    let unquoted = |text: &str| text.trim_matches('"').to_owned();
    for (header, right) in [("ce-specversion", "1.0"), ("ce_source", "//a"), ("CE-ID", "1"), ("ce-subject", "a")] {
        if rng.chance(950) {
            let value = if rng.chance(950) { right.to_owned() } else { unquoted(pick(rng, EDGES)) };
            out.extend_from_slice(format!("{header}: {value}\n").as_bytes());
        }
    }
    out.extend_from_slice(
        format!("ce-type: {}\ncontent-type: application/json\n", unquoted(pick(rng, TYPES))).as_bytes(),
    );
    if rng.chance(100) {
        out.extend_from_slice(
            format!("ce-{}: {}\n", unquoted(pick(rng, EDGES)), unquoted(pick(rng, EDGES))).as_bytes(),
        );
    }
    out.push(b'\n');
    data(rng, token, out);
}

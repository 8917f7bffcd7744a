//! The policy with all of its defaults, as YAML with a comment at each of them. It compiles to the same policy.
//!
//! The text comes from the same types that read it; the comments are put where the source has nothing at that path.
//! Never: prints what has no default (a ceiling that is not given is no bound).

use super::defaults::parent;
use super::tree::{self, Value, YamlNode};
use super::written::WrittenPolicy;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Fields of a queue that come from its nearest ancestor when it does not state them.
const INHERITED: [&str; 4] = ["tier", "pools", "submitters", "start"];

/// The filled policy as YAML, with a comment at each value that `source` does not state.
pub fn explain(filled: &WrittenPolicy, source: &YamlNode) -> String {
    let text = match serde_saphyr::to_string(filled) {
        Ok(text) => text,
        // Writing plain data to a string cannot fail; if it did, saying so beats ending.
        Err(e) => return format!("# the policy cannot be written as YAML: {e}\n"),
    };
    let mut notes = BTreeMap::new();
    if let (Some(tree), _) = tree::parse(&text) {
        annotate(&tree, source, &mut Vec::new(), &mut notes);
    }
    let mut out = String::from("# Values marked `default` are not written in the file; they hold all the same.\n");
    for (at, line) in text.lines().enumerate() {
        // Writing to a string cannot fail.
        let _ = match notes.get(&(at + 1)) {
            Some(note) => writeln!(out, "{line}  # {note}"),
            None => writeln!(out, "{line}"),
        };
    }
    out
}

/// Notes by line: for each scalar or list whose path the source does not have.
fn annotate<'t>(node: &'t YamlNode, source: &YamlNode, path: &mut Vec<&'t str>, notes: &mut BTreeMap<usize, String>) {
    let Value::Map(entries) = &node.value else {
        return;
    };
    for entry in entries {
        path.push(&entry.key);
        match &entry.value.value {
            Value::Map(inner) if !inner.is_empty() => annotate(&entry.value, source, path, notes),
            _ => {
                if !source.has(path) {
                    let line = usize::try_from(entry.key_pos.line).unwrap_or(0);
                    notes.insert(line, note(source, path));
                }
            }
        }
        path.pop();
    }
}

fn note(source: &YamlNode, path: &[&str]) -> String {
    if let ["queues", queue, field, ..] = path
        && INHERITED.contains(field)
    {
        let mut at = parent(queue);
        while let Some(ancestor) = at {
            if source.has(&[&["queues", ancestor], &path[2..]].concat()) {
                return format!("from {ancestor}");
            }
            at = parent(ancestor);
        }
    }
    "default".to_owned()
}

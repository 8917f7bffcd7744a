//! The policy with all of its defaults, as YAML with a comment at each of them. It compiles to the same policy.
//!
//! The text comes from the same types that read it; the comments are put where the source has nothing at that path.
//! Never: prints what has no default (a ceiling that is not given is no bound).

use super::defaults::ancestors;
use super::fault::listed;
use super::tree::{self, Value, YamlEntry, YamlNode};
use super::undeclared::undeclared_rule;
use super::written::WrittenPolicy;

/// Fields of a queue that come from its nearest ancestor when it does not state them.
pub(super) const INHERITED: [&str; 8] =
    ["tier", "tiers", "pools", "submitters", "start", "reclaim", "preemptWithin", "order"];

/// The filled policy as YAML, with a comment at each value that `source` does not state.
pub fn explain(filled: &WrittenPolicy, source: &YamlNode) -> String {
    let text = match serde_saphyr::to_string(filled) {
        Ok(text) => text,
        // Writing plain data to a string cannot fail; if it did, saying so beats ending.
        Err(e) => return format!("# the policy cannot be written as YAML: {e}\n"),
    };
    let mut lines: Vec<Option<String>> = text.lines().map(|line| Some(line.to_owned())).collect();
    if let (Some(tree), _) = tree::parse(&text) {
        leave_out_unset(&tree, &mut lines);
        annotate(&tree, source, &mut Vec::new(), &mut lines);
        explain_undeclared(filled, &tree, &mut lines);
    }
    let head = "# Values marked `default` are not written in the file; they hold all the same.".to_owned();
    [Some(head)].into_iter().chain(lines).flatten().map(|line| line + "\n").collect()
}

/// Adds the rules of undeclared queues to the line of `under`, where the queue that it names is not declared and so stands nowhere else.
fn explain_undeclared(filled: &WrittenPolicy, tree: &YamlNode, lines: &mut [Option<String>]) {
    let Some((shared, rule)) = filled.shared().zip(undeclared_rule(filled)) else { return };
    if rule.stated_by == Some(shared.under.as_str()) {
        return;
    }
    let whose =
        rule.stated_by.map_or_else(|| "of a queue that states nothing".to_owned(), |path| format!("of `{path}`"));
    let pools: Vec<&str> = rule.queue.pools.iter().flatten().map(String::as_str).collect();
    let tier = rule.queue.tier.as_deref().unwrap_or_default();
    let note = format!("  # not declared: it has the rules {whose}: tier `{tier}`, pools {}", listed(&pools));
    let under = tree.child("undeclaredQueues").and_then(|(node, _)| node.child("under")).map(|(_, key)| key.line);
    let at = under.and_then(|line| usize::try_from(line).ok()?.checked_sub(1));
    if let Some(Some(line)) = at.and_then(|at| lines.get_mut(at)) {
        line.push_str(&note);
    }
}

fn line_of<'l>(entry: &YamlEntry, lines: &'l mut [Option<String>]) -> Option<&'l mut Option<String>> {
    lines.get_mut(usize::try_from(entry.key_pos.line).ok()?.checked_sub(1)?)
}

/// Takes out the lines of fields that are neither stated nor have a default; a map of nothing else stays as an empty one.
fn leave_out_unset(node: &YamlNode, lines: &mut [Option<String>]) {
    match &node.value {
        Value::List(items) => items.iter().for_each(|item| leave_out_unset(item, lines)),
        Value::Map(entries) => {
            for entry in entries {
                let Some(line) = line_of(entry, lines) else { continue };
                match &entry.value.value {
                    Value::Null => *line = None,
                    Value::Map(inner) if !inner.is_empty() && inner.iter().all(|e| e.value.value == Value::Null) => {
                        line.iter_mut().for_each(|line| line.push_str(" {}"));
                    }
                    _ => {}
                }
                leave_out_unset(&entry.value, lines);
            }
        }
        Value::Null | Value::Scalar { .. } => {}
    }
}

/// Adds notes to the lines: at each scalar or list whose path the source does not have.
fn annotate<'t>(node: &'t YamlNode, source: &YamlNode, path: &mut Vec<&'t str>, lines: &mut [Option<String>]) {
    let Value::Map(entries) = &node.value else {
        return;
    };
    for entry in entries {
        path.push(&entry.key);
        match &entry.value.value {
            Value::Map(inner) if !inner.is_empty() => annotate(&entry.value, source, path, lines),
            _ if source.has(path) => {}
            _ => {
                let mut note = note(source, path);
                if let (["queues", _, "tiers"], "default") = (&path[..], note.as_str()) {
                    note = "its own and all lower ones: it lists none".to_owned();
                    comment_out(entry, lines);
                }
                if let Some(Some(line)) = line_of(entry, lines) {
                    line.push_str(&format!("  # {note}"));
                }
            }
        }
        path.pop();
    }
}

/// Makes an entry a comment: what a queue does not list follows its tier, and a list would not.
fn comment_out(entry: &YamlEntry, lines: &mut [Option<String>]) {
    let items = match &entry.value.value {
        Value::List(items) => items.as_slice(),
        Value::Null | Value::Scalar { .. } | Value::Map(_) => &[],
    };
    let last = items.last().map_or(entry.key_pos.line, |item| item.pos.line);
    for at in entry.key_pos.line..=last {
        let line = usize::try_from(at).ok().and_then(|at| lines.get_mut(at.checked_sub(1)?)).and_then(Option::as_mut);
        if let Some(line) = line {
            let indent = line.len() - line.trim_start().len();
            line.insert_str(indent, "# ");
        }
    }
}

fn note(source: &YamlNode, path: &[&str]) -> String {
    if let ["queues", queue, field, ..] = path
        && INHERITED.contains(field)
    {
        let states = |ancestor: &&str| source.has(&[&["queues", *ancestor], &path[2..]].concat());
        if let Some(ancestor) = ancestors(queue).skip(1).find(states) {
            return format!("from {ancestor}");
        }
    }
    "default".to_owned()
}

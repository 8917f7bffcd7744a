//! What is different between two policies, in words: a sentence a field, with every default filled in on both sides.
//!
//! Never: the order or the spelling of the text; two texts that mean the same have no difference. Never an inherited field below the queue
//! that states it.

use super::Compiled;
use super::explain::INHERITED;
use super::tree::YamlNode;
use super::written::WrittenPolicy;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Characters of a value in a sentence.
const MOST_VALUE: usize = 120;

/// What is named in a policy: its section, and what one of it is called.
const NAMED: [(&str, &str); 3] = [("tiers", "tier"), ("queues", "queue"), ("pools", "pool")];

/// What is different in `after`, a sentence each: first what all share, then tiers, queues and pools.
#[must_use]
pub fn difference(before: &Compiled, after: &Compiled) -> Vec<String> {
    let mut said = Vec::new();
    let (Ok(old), Ok(new)) = (fields(&before.filled), fields(&after.filled)) else {
        // Writing plain data cannot fail; if it did, saying so beats ending.
        return vec!["the policies cannot be compared".to_owned()];
    };
    let shared = |all: &Map<String, Value>| {
        let named = |key: &str| NAMED.iter().any(|(section, _)| *section == key);
        let rest = all.iter().filter(|(key, _)| !named(key));
        flat(&rest.map(|(key, value)| (key.clone(), value.clone())).collect())
    };
    compare("", &shared(&old), &shared(&new), &mut said);
    for (section, what) in NAMED {
        let one = |all: &Map<String, Value>| all.get(section).and_then(Value::as_object).cloned().unwrap_or_default();
        let states = |name: &str, field: &str| {
            let path = [section, name, field.split('.').next().unwrap_or(field)];
            let stated = |tree: &YamlNode| tree.has(&path);
            section != "queues" || !INHERITED.contains(&path[2]) || stated(&before.tree) || stated(&after.tree)
        };
        entries(what, &one(&old), &one(&new), states, &mut said);
    }
    let order =
        |policy: &WrittenPolicy| policy.pools.iter().flatten().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    let (was, is) = (order(&before.filled), order(&after.filled));
    let both =
        |names: &[String], other: &[String]| names.iter().filter(|n| other.contains(n)).cloned().collect::<Vec<_>>();
    if both(&was, &is) != both(&is, &was) {
        said.push(format!("pools are preferred in the order {}, were in the order {}", is.join(", "), was.join(", ")));
    }
    said
}

fn fields(filled: &WrittenPolicy) -> Result<Map<String, Value>, serde_json::Error> {
    let value = serde_json::to_value(filled)?;
    Ok(value.as_object().cloned().unwrap_or_default())
}

/// Tiers, queues or pools by name. One that goes while one with the same fields comes has another name.
fn entries(
    what: &str,
    old: &Map<String, Value>,
    new: &Map<String, Value>,
    states: impl Fn(&str, &str) -> bool,
    said: &mut Vec<String>,
) {
    let mut come: Vec<&String> = new.keys().filter(|name| !old.contains_key(*name)).collect();
    for (name, value) in old {
        if let Some(now) = new.get(name) {
            let of = |value: &Value| {
                let mut fields = flat(value.as_object().unwrap_or(&Map::new()));
                fields.retain(|field, _| states(name, field));
                fields
            };
            compare(&format!("{what} `{name}`: "), &of(value), &of(now), said);
            continue;
        }
        let renamed = come.iter().position(|other| new.get(*other) == Some(value));
        match renamed.map(|at| come.remove(at)) {
            Some(other) => said.push(format!("{what} `{name}` is gone, and `{other}` is new and says the same")),
            None => said.push(format!("{what} `{name}` is gone")),
        }
    }
    said.extend(come.iter().map(|name| format!("{what} `{name}` is new")));
}

/// The leaves by path: numbers, texts and lists.
fn flat(fields: &Map<String, Value>) -> BTreeMap<String, String> {
    let mut leaves = BTreeMap::new();
    for (key, value) in fields {
        match value {
            Value::Null => {}
            Value::Object(inner) => {
                leaves.extend(flat(inner).into_iter().map(|(path, leaf)| (format!("{key}.{path}"), leaf)));
            }
            leaf => drop(leaves.insert(key.clone(), shown(leaf))),
        }
    }
    leaves
}

fn shown(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Array(items) if items.is_empty() => "none".to_owned(),
        Value::Array(items) => items.iter().map(shown).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    };
    if text.chars().count() <= MOST_VALUE {
        return text;
    }
    text.chars().take(MOST_VALUE).collect::<String>() + ".."
}

fn compare(of: &str, old: &BTreeMap<String, String>, new: &BTreeMap<String, String>, said: &mut Vec<String>) {
    for (path, was) in old {
        match new.get(path) {
            Some(is) if is == was => {}
            Some(is) => said.push(format!("{of}`{path}` is {is}, was {was}")),
            None => said.push(format!("{of}`{path}` is not set any more, was {was}")),
        }
    }
    let added = new.iter().filter(|(path, _)| !old.contains_key(*path));
    said.extend(added.map(|(path, is)| format!("{of}`{path}` is {is}, was not set")));
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_catalog::Catalogue;

    const BEFORE: &str = "apiVersion: forebay/v1
kind: Policy
metadata: {name: t}
limits: {nodes: 10, spend: 1000 USD/h}
tiers:
  normal: {priority: 500, buys: on-demand}
  low: {priority: 100}
queues:
  team: {tier: normal}
  team/vision: {quota: {big: {gpus: 16}}}
  search: {tier: low}
pools:
  big: {instanceTypes: [g5.48xlarge]}
  small: {instanceTypes: [g5.xlarge]}
";

    fn compiled(text: &str) -> Compiled {
        crate::compile("t", text, &Catalogue::builtin()).unwrap_or_else(|e| panic!("{e}"))
    }

    fn said(after: &str) -> Vec<String> {
        difference(&compiled(BEFORE), &compiled(after))
    }

    #[test]
    fn each_change_is_a_sentence() {
        for (from, to, expected) in [
            ("nodes: 10", "nodes: 4", "`limits.nodes` is 4, was 10"),
            ("nodes: 10, spend: 1000 USD/h", "nodes: 10", "`limits.spend` is not set any more, was 1000 USD/h"),
            ("nodes: 10", "nodes: 10, gpus: 8", "`limits.gpus` is 8, was not set"),
            ("gpus: 16", "gpus: 8", "queue `team/vision`: `quota.big.gpus` is 8, was 16"),
            ("team: {tier: normal}", "team: {tier: low}", "queue `team`: `tier` is low, was normal"),
            ("  search: {tier: low}\n", "", "queue `search` is gone"),
            ("  search: {", "  new: {tier: low}\n  search: {", "queue `new` is new"),
            ("  search: {", "  found: {", "queue `search` is gone, and `found` is new and says the same"),
            ("priority: 500", "priority: 501", "tier `normal`: `priority` is 501, was 500"),
        ] {
            assert!(BEFORE.contains(from), "{from}");
            assert_eq!(said(&BEFORE.replacen(from, to, 1)), [expected], "{from} -> {to}");
        }
    }

    #[test]
    fn wording_is_no_difference_and_order_is_one_where_it_means_something() {
        assert!(said(BEFORE).is_empty());
        let reworded = BEFORE
            .replace("limits: {nodes: 10, spend: 1000 USD/h}", "# money\nlimits:\n  spend: 1000 USD/h\n  nodes: 10");
        assert_eq!(said(&reworded), [""; 0]);
        let small = "  small: {instanceTypes: [g5.xlarge]}\n";
        let swapped = BEFORE.replace(small, "").replace("pools:\n", &format!("pools:\n{small}"));
        assert_eq!(said(&swapped), ["pools are preferred in the order small, big, were in the order big, small"]);
    }
}

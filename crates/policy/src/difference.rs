//! What is different between two policies, in words: a sentence a field, with every default filled in on both sides.
//!
//! Values are compared whole; a sentence has of a long one the part around the first difference.
//! Never: the order or the spelling of the text; two texts that mean the same have no difference. Never an inherited field of a queue where
//! the same change is said of a queue above it.

use super::Compiled;
use super::defaults::{ancestors, default_tier};
use super::explain::INHERITED;
use super::fault::listed;
use super::undeclared::undeclared_rule;
use super::written::WrittenPolicy;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Characters of a value in a sentence.
const MOST_VALUE: usize = 120;

/// Characters that two long values have in common and that stand before what is different: enough to know the place.
const MOST_IN_COMMON: usize = 40;

/// Entries of a list that are named as added, and as gone; further ones are counted.
const MOST_ENTRIES: usize = 5;

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
    let shared = |all: &Map<String, Value>| -> Map<String, Value> {
        let named = |key: &str| NAMED.iter().any(|(section, _)| *section == key);
        let rest = all.iter().filter(|(key, _)| !named(key));
        rest.map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    compare("", &flat(&shared(&old)), &flat(&shared(&new)), |_| true, &mut said);
    for (section, what) in NAMED {
        let one = |all: &Map<String, Value>| all.get(section).and_then(Value::as_object).cloned().unwrap_or_default();
        let (old, new) = (one(&old), one(&new));
        let queues = ComparedQueues { before, after, old: &old, new: &new };
        let says = |name: &str, field: &str| section != "queues" || queues.says(name, first_part(field));
        entries(what, &old, &new, says, &mut said);
        if section == "queues" {
            said.extend(queues.default_tier_changed());
            queues.undeclared(&mut said);
        }
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

/// The queues of both policies, and where the fields come from that they inherit.
struct ComparedQueues<'a> {
    before: &'a Compiled,
    after: &'a Compiled,
    old: &'a Map<String, Value>,
    new: &'a Map<String, Value>,
}

impl ComparedQueues<'_> {
    /// Whether a change of a field is to be said of this queue.
    fn says(&self, path: &str, field: &str) -> bool {
        if !INHERITED.contains(&field) {
            return true;
        }
        // All pools, a tier and all below it, the default tier: these changes are said where they are made.
        let Some(stated) = self.stated_at(path, field) else { return false };
        let differs = |at: &str| {
            let was = self.old.get(at).and_then(|queue| queue.get(field));
            was != self.new.get(at).and_then(|queue| queue.get(field))
        };
        // A queue above, at or below the one that states the field, has the same change: of it that is said, or of one above it.
        stated == path || self.declared_above(path).is_none_or(|at| at.len() < stated.len() || !differs(at))
    }

    /// The queue that states a field in one of the policies: the path itself or the nearest above it. `None`: both have the default.
    fn stated_at<'p>(&self, path: &'p str, field: &str) -> Option<&'p str> {
        let trees = [&self.before.tree, &self.after.tree];
        ancestors(path).find(|at| trees.iter().any(|tree| tree.has(&["queues", *at, field])))
    }

    /// The nearest queue above that both policies declare.
    fn declared_above<'p>(&self, path: &'p str) -> Option<&'p str> {
        ancestors(path).skip(1).find(|at| self.old.contains_key(*at) && self.new.contains_key(*at))
    }

    /// The sentence of another default tier: of all queues that have it, those with no queue above them.
    fn default_tier_changed(&self) -> Option<String> {
        let default = |policy: &Compiled| policy.filled.tiers.as_ref().and_then(default_tier);
        let (was, is) = default(self.before).zip(default(self.after)).filter(|(was, is)| was != is)?;
        let both = self.old.keys().map(String::as_str).filter(|name| self.new.contains_key(*name));
        let top = both.filter(|name| self.declared_above(name).is_none());
        let queues: Vec<&str> = top.filter(|name| self.stated_at(name, "tier").is_none()).collect();
        let of = listed(&queues);
        (!queues.is_empty()).then(|| format!("the tier of queues that state none is {is}, was {was}: {of}"))
    }

    /// What is different in the rules of undeclared queues; where both policies declare the queue that they are under, it is said of that.
    fn undeclared(&self, said: &mut Vec<String>) {
        let (Some(was), Some(is)) = (self.before.filled.shared(), self.after.filled.shared()) else { return };
        let under = is.under.as_str();
        let declared = self.old.contains_key(under) && self.new.contains_key(under);
        if was.under != under || declared {
            return;
        }
        let rules = |policy: &Compiled| {
            let rule = undeclared_rule(&policy.filled)?;
            serde_json::to_value(&rule.queue).ok()?.as_object().cloned()
        };
        let (Some(was), Some(is)) = (rules(self.before), rules(self.after)) else { return };
        let says = |path: &str| {
            let field = first_part(path);
            let by_default = field == "tier" && self.stated_at(under, field).is_none();
            INHERITED.contains(&field) && (by_default || self.says(under, field))
        };
        compare("undeclared queues: ", &flat(&was), &flat(&is), says, said);
    }
}

/// `start` of `start.within`.
fn first_part(path: &str) -> &str {
    path.split_once('.').map_or(path, |(first, _)| first)
}

/// Tiers, queues or pools by name. One that goes while one with the same fields comes has another name.
/// `says`: whether a change of a field is said of the one with this name.
fn entries(
    what: &str,
    old: &Map<String, Value>,
    new: &Map<String, Value>,
    says: impl Fn(&str, &str) -> bool,
    said: &mut Vec<String>,
) {
    let mut come: Vec<&String> = new.keys().filter(|name| !old.contains_key(*name)).collect();
    let none = Map::new();
    for (name, value) in old {
        if let Some(now) = new.get(name) {
            let [was, is] = [value, now].map(|value| flat(value.as_object().unwrap_or(&none)));
            compare(&format!("{what} `{name}`: "), &was, &is, |field| says(name, field), said);
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
fn flat(fields: &Map<String, Value>) -> BTreeMap<String, &Value> {
    let mut leaves = BTreeMap::new();
    for (key, value) in fields {
        match value {
            Value::Null => {}
            Value::Object(inner) => {
                leaves.extend(flat(inner).into_iter().map(|(path, leaf)| (format!("{key}.{path}"), leaf)));
            }
            leaf => {
                leaves.insert(key.clone(), leaf);
            }
        }
    }
    leaves
}

/// `says`: whether a change of this path is said.
fn compare(
    of: &str,
    old: &BTreeMap<String, &Value>,
    new: &BTreeMap<String, &Value>,
    says: impl Fn(&str) -> bool,
    said: &mut Vec<String>,
) {
    for (path, was) in old {
        match new.get(path) {
            Some(is) if is == was => {}
            _ if !says(path) => {}
            Some(is) => said.push(format!("{of}{}", changed(path, is, was))),
            None => said.push(format!("{of}`{path}` is not set any more, was {}", part(&shown(was), 0))),
        }
    }
    let added = new.iter().filter(|(path, _)| !old.contains_key(*path) && says(path));
    said.extend(added.map(|(path, is)| format!("{of}`{path}` is {}, was not set", part(&shown(is), 0))));
}

/// What a field is that was something else.
fn changed(path: &str, is: &Value, was: &Value) -> String {
    if let (Some(is), Some(was)) = (entries_of(is), entries_of(was)) {
        let (new, old): (BTreeSet<&String>, BTreeSet<&String>) = (is.iter().collect(), was.iter().collect());
        let added = counted(is.iter().filter(|entry| !old.contains(entry)), "was added", "were added");
        let gone = counted(was.iter().filter(|entry| !new.contains(entry)), "is gone", "are gone");
        let kept = is.iter().filter(|entry| old.contains(entry));
        let moved = !kept.eq(was.iter().filter(|entry| new.contains(entry)));
        let moved = moved.then(|| format!("order changed, is {}", part(&is.join(", "), 0)));
        let parts: Vec<String> = [added, gone, moved].into_iter().flatten().collect();
        return format!("`{path}`: {}", parts.join(", "));
    }
    let (is, was) = (shown(is), shown(was));
    let in_common = is.chars().zip(was.chars()).take_while(|(is, was)| is == was).count();
    let long = [&is, &was].iter().any(|text| text.chars().count() > MOST_VALUE);
    let from = if long { in_common.saturating_sub(MOST_IN_COMMON) } else { 0 };
    format!("`{path}` is {}, was {}", part(&is, from), part(&was, from))
}

/// The entries of a list of plain values, each there once; `None` of any other value.
fn entries_of(value: &Value) -> Option<Vec<String>> {
    let items = value.as_array()?;
    if items.iter().any(|item| item.is_array() || item.is_object()) {
        return None;
    }
    let entries: Vec<String> = items.iter().map(shown).collect();
    let once = entries.iter().collect::<BTreeSet<_>>().len() == entries.len();
    once.then_some(entries)
}

/// The first entries by name and how many more there are, with what became of them; `None` of none.
fn counted<'e>(entries: impl Iterator<Item = &'e String>, one: &str, several: &str) -> Option<String> {
    let entries: Vec<&String> = entries.collect();
    let became = if entries.len() == 1 { one } else { several };
    let named = entries.iter().take(MOST_ENTRIES);
    let mut names: Vec<String> = named.map(|entry| format!("`{}`", part(entry, 0))).collect();
    if entries.len() > MOST_ENTRIES {
        names.push(format!("{} more", entries.len() - MOST_ENTRIES));
    }
    (!entries.is_empty()).then(|| format!("{} {became}", names.join(", ")))
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) if items.is_empty() => "none".to_owned(),
        Value::Array(items) => items.iter().map(shown).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

/// As much of a text as a sentence has, from one of its characters on; dots where it is cut.
fn part(text: &str, from: usize) -> String {
    let mut rest = text.chars().skip(from);
    let middle: String = rest.by_ref().take(MOST_VALUE).collect();
    let (before, after) = (if from > 0 { ".." } else { "" }, if rest.next().is_some() { ".." } else { "" });
    format!("{before}{middle}{after}")
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
            ("[g5.xlarge]", "[g6.xlarge]", "pool `small`: `instanceTypes`: `g6.xlarge` was added, `g5.xlarge` is gone"),
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

    #[test]
    fn a_change_at_the_end_of_a_long_value_is_said() {
        let people: Vec<String> = (10..60).map(|n| format!("person-{n}-of-the-team")).collect();
        let with = |team: &str| BEFORE.replace("team: {tier: normal}", &format!("team: {{tier: normal, {team}}}"));
        let listed = |names: &[String]| compiled(&with(&format!("submitters: [{}]", names.join(", "))));
        let one_more = [&people[..], &["mallory".to_owned()]].concat();
        assert_eq!(
            difference(&listed(&people), &listed(&one_more)),
            ["queue `team`: `submitters`: `mallory` was added"]
        );
        assert_eq!(
            difference(&listed(&people), &listed(&people[..43])),
            ["queue `team`: `submitters`: `person-53-of-the-team`, `person-54-of-the-team`, `person-55-of-the-team`, \
              `person-56-of-the-team`, `person-57-of-the-team`, 2 more are gone"]
        );
        let pools = |pools: &str| compiled(&with(&format!("pools: [{pools}]")));
        assert_eq!(
            difference(&pools("big, small"), &pools("small, big")),
            ["queue `team`: `pools`: order changed, is small, big"]
        );
        let kind = "x".repeat(200);
        let routed = |second: &str| {
            let first = format!("{{when: 'job.labels.kind == \"{kind}\"', queue: team}}");
            let second = format!("{{when: 'job.labels.kind == \"y\"', queue: {second}}}");
            compiled(&format!("{BEFORE}routes:\n  - {first}\n  - {second}\n"))
        };
        let said = difference(&routed("team"), &routed("search"));
        assert_eq!(said.len(), 1, "{said:?}");
        let (is, was) = said[0].split_once(", was ").expect("both");
        assert!(is.starts_with("`routes` is ..") && is.contains("search"), "{is}");
        assert!(was.starts_with("..") && was.contains("team") && !was.contains("search"), "{was}");
    }

    #[test]
    fn what_a_queue_inherits_is_said_of_it_where_no_queue_above_says_it() {
        let parent = "  research: {submitters: [ana], tier: low}\n";
        let child = "  research/vision: {}\n";
        let with = |queues: &str| BEFORE.replacen("queues:\n", &format!("queues:\n{queues}"), 1);
        let both = with(&format!("{parent}{child}"));
        assert_eq!(
            difference(&compiled(&both), &compiled(&with(child))),
            [
                "queue `research` is gone",
                "queue `research/vision`: `submitters` is not set any more, was ana",
                "queue `research/vision`: `tier` is normal, was low",
            ]
        );
        let changed = both.replacen("submitters: [ana]", "submitters: [eve]", 1);
        assert_eq!(
            difference(&compiled(&both), &compiled(&changed)),
            ["queue `research`: `submitters`: `eve` was added, `ana` is gone"]
        );
        let undeclared = |queues: &str| compiled(&format!("{}undeclaredQueues: {{under: research/x}}\n", with(queues)));
        assert_eq!(
            difference(&undeclared(parent), &undeclared("")),
            [
                "queue `research` is gone",
                "undeclared queues: `submitters` is not set any more, was ana",
                "undeclared queues: `tier` is normal, was low",
            ]
        );
    }

    #[test]
    fn another_default_tier_is_said() {
        let text = "apiVersion: forebay/v1
kind: Policy
metadata: {name: t}
limits: {nodes: 10, spend: 1000 USD/h}
tiers: {batch: {priority: 100}}
queues: {a: {}, a/b: {}, c: {tier: batch}}
undeclaredQueues: {under: shared}
pools: {big: {instanceTypes: [g5.xlarge]}}
";
        let more = text.replace("tiers: {", "tiers: {normal: {priority: 500}, ");
        assert_eq!(
            difference(&compiled(text), &compiled(&more)),
            [
                "tier `normal` is new",
                "the tier of queues that state none is normal, was batch: `a`",
                "undeclared queues: `tier` is normal, was batch",
            ]
        );
    }
}

//! One public type name, one type in the whole workspace, but for a committed list with a reason each.
//!
//! A name on the list that is no longer doubled is a finding: the list stays true. Names that are doubled without being listed are
//! exceptions that the ratchet counts.

use std::collections::BTreeMap;

use super::surface::{Breach, PublicType, Rule};
use super::{File, Finding};

/// `Name: why two types have it`, one a line.
pub const LIST: &str = "xtask/rules/names.txt";

/// Compares the public types with each other and with the list: findings about the list, and a breach for each type that has
/// another one's name.
pub fn check(types: &[PublicType], list: &File) -> (Vec<Finding>, Vec<Breach>) {
    let mut by_name: BTreeMap<&str, Vec<&PublicType>> = BTreeMap::new();
    for ty in types {
        by_name.entry(&ty.name).or_default().push(ty);
    }
    by_name.retain(|_, same| same.len() > 1);
    let (mut findings, mut listed) = (Vec::new(), Vec::new());
    for (at, line) in list.text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        let (name, reason) = line.split_once(':').unwrap_or((line, ""));
        if reason.trim().is_empty() {
            findings.push(Finding::new(list, at + 1, format!("`{name}` has no reason; write it behind a colon")));
        }
        if listed.contains(&name) {
            findings.push(Finding::new(list, at + 1, format!("`{name}` has a line already; keep one")));
        }
        if !by_name.contains_key(name) {
            findings.push(Finding::new(list, at + 1, format!("no two types are named `{name}`; remove this line")));
        }
        listed.push(name);
    }
    let doubled = by_name.iter().filter(|(name, _)| !listed.contains(name));
    let breaches = doubled.flat_map(|(_, same)| same.iter().map(|ty| breach(ty, same))).collect();
    (findings, breaches)
}

fn breach(ty: &PublicType, same: &[&PublicType]) -> Breach {
    let others = same.iter().filter(|other| (&other.path, other.line) != (&ty.path, ty.line));
    let others: Vec<String> = others.map(|other| format!("{}:{}", other.path, other.line)).collect();
    let what = format!(
        "the type `{}` has the name of {}; rename one of them, or list the name in {LIST} with a reason",
        ty.name,
        others.join(" and of ")
    );
    Breach { rule: Rule::Names, package: ty.package.clone(), path: ty.path.clone(), line: ty.line, what }
}

#[cfg(test)]
mod tests {
    use super::super::{file, shown};
    use super::*;

    fn public(name: &str, package: &str) -> PublicType {
        PublicType { name: name.into(), package: package.into(), path: format!("{package}/src/lib.rs"), line: 3 }
    }

    #[test]
    fn a_name_is_one_types_or_listed_with_a_reason() {
        let types =
            [public("Held", "a"), public("Held", "b"), public("Error", "a"), public("Error", "b"), public("One", "a")];
        let list = file(LIST, "# why\nError: each library has its own\n");
        let (findings, breaches) = check(&types, &list);
        assert_eq!(findings, []);
        let places: Vec<(&str, &str)> = breaches.iter().map(|b| (b.package.as_str(), b.path.as_str())).collect();
        assert_eq!(places, [("a", "a/src/lib.rs"), ("b", "b/src/lib.rs")]);
        assert!(breaches[0].what.contains("`Held` has the name of b/src/lib.rs:3; rename"), "{}", breaches[0].what);
    }

    #[test]
    fn the_list_stays_true() {
        let list = file(LIST, "One: was two once\nHeld:\nHeld: both hold\n");
        let (findings, _) = check(&[public("Held", "a"), public("Held", "b"), public("One", "a")], &list);
        let expected = [
            "xtask/rules/names.txt:1: no two types are named `One`; remove this line",
            "xtask/rules/names.txt:2: `Held` has no reason; write it behind a colon",
            "xtask/rules/names.txt:3: `Held` has a line already; keep one",
        ];
        assert_eq!(shown(&findings), expected);
    }
}

//! One public type name, one type in the whole workspace, but for a committed list with a reason each.
//!
//! A name on the list that is no longer doubled is a finding too: the list stays true.

use std::collections::BTreeMap;

use super::surface::PublicType;
use super::{File, Finding};

/// `Name: why two types have it`, one a line.
pub const LIST: &str = "xtask/rules/names.txt";

/// Compares the public types with each other and with the list: a finding for each type that has another one's name, and for each line
/// that is not true.
pub fn check(types: &[PublicType], list: &File) -> Vec<Finding> {
    let mut by_name: BTreeMap<&str, Vec<&PublicType>> = BTreeMap::new();
    for ty in types {
        by_name.entry(&ty.name).or_default().push(ty);
    }
    by_name.retain(|_, same| same.len() > 1);
    let (mut findings, mut listed) = (Vec::new(), Vec::new());
    for (at, line) in list.entries() {
        let (name, reason) = line.split_once(':').unwrap_or((line, ""));
        if reason.trim().is_empty() {
            findings.push(list.finding(at, format!("`{name}` has no reason; write it behind a colon")));
        }
        if listed.contains(&name) {
            findings.push(list.finding(at, format!("`{name}` has a line already; keep one")));
        }
        if !by_name.contains_key(name) {
            findings.push(list.finding(at, format!("no two types are named `{name}`; remove this line")));
        }
        listed.push(name);
    }
    let doubled = by_name.iter().filter(|(name, _)| !listed.contains(name));
    findings.extend(doubled.flat_map(|(_, same)| same.iter().map(|ty| double(ty, same))));
    findings
}

fn double(ty: &PublicType, same: &[&PublicType]) -> Finding {
    let others = same.iter().filter(|other| (&other.path, other.line) != (&ty.path, ty.line));
    let others: Vec<String> = others.map(|other| format!("{}:{}", other.path, other.line)).collect();
    let what = format!(
        "the type `{}` has the name of {}; rename one of them, or list the name in {LIST} with a reason",
        ty.name,
        others.join(" and of ")
    );
    Finding { path: ty.path.clone(), line: ty.line, what }
}

#[cfg(test)]
mod tests {
    use super::super::{file, shown};
    use super::*;

    fn public(name: &str, package: &str) -> PublicType {
        PublicType { name: name.into(), path: format!("{package}/src/lib.rs"), line: 3 }
    }

    #[test]
    fn a_name_is_one_types_or_listed_with_a_reason() {
        let types =
            [public("Held", "a"), public("Held", "b"), public("Error", "a"), public("Error", "b"), public("One", "a")];
        let list = file(LIST, "# why\nError: each library has its own\n");
        let findings = check(&types, &list);
        let places: Vec<&str> = findings.iter().map(|found| found.path.as_str()).collect();
        assert_eq!(places, ["a/src/lib.rs", "b/src/lib.rs"]);
        assert!(findings[0].what.contains("`Held` has the name of b/src/lib.rs:3; rename"), "{}", findings[0].what);
    }

    #[test]
    fn the_list_stays_true() {
        let list = file(LIST, "One: was two once\nHeld:\nHeld: both hold\n");
        let findings = check(&[public("Held", "a"), public("Held", "b"), public("One", "a")], &list);
        let expected = [
            "xtask/rules/names.txt:1: no two types are named `One`; remove this line",
            "xtask/rules/names.txt:2: `Held` has no reason; write it behind a colon",
            "xtask/rules/names.txt:3: `Held` has a line already; keep one",
        ];
        assert_eq!(shown(&findings), expected);
    }
}

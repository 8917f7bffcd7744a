//! Each input of the corpus has the outcome that `expected.txt` says, and each has one there.
//!
//! Never: an input whose outcome nobody decided on.

use forebay_fuzz::corpus;
use forebay_fuzz::targets::{DecodeOutcome, named};
use std::collections::BTreeMap;

#[test]
fn each_input_has_its_outcome() {
    let folder = corpus::folder();
    let table = std::fs::read_to_string(folder.with_file_name("expected.txt")).unwrap();
    let mut rows: BTreeMap<&str, (&str, &str, &str)> = BTreeMap::new();
    for line in table.lines().filter(|l| !l.starts_with('#')) {
        let mut words = line.splitn(4, "  ");
        let mut next = || words.next().unwrap_or_else(|| panic!("{line}: four columns, two spaces between"));
        let (name, row) = (next(), (next(), next(), next()));
        assert_eq!(rows.insert(name, row), None, "{name} is there twice");
    }
    let own = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    for seed in corpus::read(&folder).unwrap() {
        let Some((target, outcome, path)) = rows.remove(seed.name.as_str()) else {
            wrong.push(format!("{}: not in expected.txt", seed.name));
            continue;
        };
        let found = (named(target).unwrap_or_else(|| panic!("{target}")).check)(&seed.bytes, own.path());
        let is = match &found {
            Ok(DecodeOutcome::Accepted) => ("accepted", "-"),
            Ok(DecodeOutcome::Rejected(code, path)) => (*code, path.as_str()),
            Err(broken) => ("broken", broken.as_str()),
        };
        if is != (outcome, path) {
            wrong.push(format!("{}: is {is:?}, and expected {:?}", seed.name, (outcome, path)));
        }
    }
    wrong.extend(rows.keys().map(|name| format!("{name}: in expected.txt and not in the corpus")));
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

//! How many exceptions to the rules of `surface.rs` each library still has: a committed table whose numbers only go down.
//!
//! ```text
//! package    names  bools  tuples  errors  example
//! forebay       12      3       0       9        0     more than that fails, and so does fewer: lower the number
//! ```
//!
//! A package without a line has no exception. `cargo xtask tidy --write-ratchet` writes the table; the difference is reviewed.

use std::collections::BTreeMap;

use super::surface::{Breach, Rule};
use super::{File, Finding};

/// The committed table.
pub const TABLE: &str = "xtask/rules/ratchet.txt";

const HEAD: &str = "# How many exceptions each library still has, a rule a column; a package without a line has none. The numbers only go down.
#   names    public types with the name of another public type of the workspace, but for those in names.txt
#   bools    bare `bool` parameters of public functions
#   tuples   tuple parameters of public functions
#   errors   public functions that return a `Result` and have no section `# Errors`
#   example  1 where the front page (lib.rs) has no example
# `cargo xtask tidy --places` prints each of them; `cargo xtask tidy --write-ratchet` writes this file.
";

/// Exceptions by package, one number a rule in the order of [`Rule::ALL`].
type Counts<'a> = BTreeMap<&'a str, [usize; Rule::ALL.len()]>;

/// Line and number of each package and column of the table.
type Allowed<'a> = BTreeMap<(&'a str, usize), (usize, usize)>;

/// Compares the breaches that are there with the table.
pub fn check(breaches: &[Breach], table: &File) -> Vec<Finding> {
    let (allowed, mut findings) = read(table);
    let found = count(breaches);
    let mut packages: Vec<&str> = allowed.keys().map(|(package, _)| *package).chain(found.keys().copied()).collect();
    packages.sort_unstable();
    packages.dedup();
    for package in packages {
        for (column, rule) in Rule::ALL.into_iter().enumerate() {
            let found = found.get(package).map_or(0, |counts| counts[column]);
            let (line, allowed) = allowed.get(&(package, column)).copied().unwrap_or_default();
            let name = rule.column();
            if found < allowed {
                let what = format!(
                    "{package}, {name}: {found} where {allowed} are allowed; lower the number: cargo xtask tidy --write-ratchet"
                );
                findings.push(Finding::new(table, line, what));
            }
            if found > allowed {
                let what =
                    format!("{package}, {name}: {found} where {allowed} are allowed; mend the new one of these:");
                findings.push(Finding::new(table, line, what));
                let places = breaches.iter().filter(|breach| breach.package == package && breach.rule == rule);
                findings.extend(places.map(place));
            }
        }
    }
    findings
}

/// A breach as a finding at its place.
pub fn place(breach: &Breach) -> Finding {
    Finding { path: breach.path.clone(), line: breach.line, what: breach.what.clone() }
}

/// The table for these breaches.
pub fn write(breaches: &[Breach]) -> String {
    let counts = count(breaches);
    let width = counts.keys().map(|package| package.len()).max().unwrap_or_default().max("package".len());
    let row = |first: &str, cells: Vec<String>| {
        let cells: String = cells.iter().map(|cell| format!("{cell:>9}")).collect();
        format!("{first:<width$}{cells}\n")
    };
    let columns = Rule::ALL.map(|rule| rule.column().to_owned()).to_vec();
    let rows = counts.iter().map(|(package, counts)| row(package, counts.iter().map(usize::to_string).collect()));
    format!("{HEAD}{}{}", row("package", columns), rows.collect::<String>())
}

fn count(breaches: &[Breach]) -> Counts<'_> {
    let mut counts = Counts::new();
    for breach in breaches {
        for (column, rule) in Rule::ALL.into_iter().enumerate() {
            if breach.rule == rule {
                counts.entry(&breach.package).or_default()[column] += 1;
            }
        }
    }
    counts
}

/// The table, and what of it cannot be read.
fn read(table: &File) -> (Allowed<'_>, Vec<Finding>) {
    let (mut allowed, mut findings) = (Allowed::new(), Vec::new());
    for (at, line) in table.text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        let package = words.next().unwrap_or_default();
        if package == "package" {
            continue;
        }
        let numbers: Vec<usize> = words.map_while(|word| word.parse().ok()).collect();
        if numbers.len() != Rule::ALL.len() {
            let what = "is no line of the table; write it again: cargo xtask tidy --write-ratchet";
            findings.push(Finding::new(table, at + 1, what));
        }
        for (column, number) in numbers.into_iter().enumerate() {
            allowed.insert((package, column), (at + 1, number));
        }
    }
    (allowed, findings)
}

#[cfg(test)]
mod tests {
    use super::super::{file, shown};
    use super::*;

    fn breach(rule: Rule, package: &str, line: usize) -> Breach {
        Breach { rule, package: package.into(), path: format!("{package}/src/lib.rs"), line, what: "mend it".into() }
    }

    #[test]
    fn what_is_written_passes_and_each_change_of_it_does_not() {
        let mut breaches =
            vec![breach(Rule::Bools, "a", 1), breach(Rule::Bools, "a", 2), breach(Rule::Example, "long-name", 1)];
        let text = write(&breaches);
        assert!(text.ends_with(
            "package      names    bools   tuples   errors  example\n\
             a                0        2        0        0        0\n\
             long-name        0        0        0        0        1\n"
        ));
        let table = file(TABLE, &text);
        assert_eq!(check(&breaches, &table), []);

        let fewer = shown(&check(&breaches[1..], &table));
        assert_eq!(fewer.len(), 1, "{fewer:?}");
        let lower = ": a, bools: 1 where 2 are allowed; lower the number: cargo xtask tidy --write-ratchet";
        assert!(fewer[0].ends_with(lower), "{fewer:?}");
        assert!(shown(&check(&breaches[..2], &table))[0].contains("long-name, example: 0 where 1 are allowed"));

        breaches.push(breach(Rule::Bools, "a", 9));
        breaches.push(breach(Rule::Errors, "new", 4));
        let more = shown(&check(&breaches, &table));
        assert!(more[0].ends_with("a, bools: 3 where 2 are allowed; mend the new one of these:"), "{more:?}");
        assert_eq!(more[1..4], ["a/src/lib.rs:1: mend it", "a/src/lib.rs:2: mend it", "a/src/lib.rs:9: mend it"]);
        assert_eq!(more[4], "xtask/rules/ratchet.txt: new, errors: 1 where 0 are allowed; mend the new one of these:");
        assert_eq!(more[5..], ["new/src/lib.rs:4: mend it"]);
    }

    #[test]
    fn a_line_that_cannot_be_read_is_a_finding() {
        let findings = check(&[], &file(TABLE, "a 0 0 x 0 0\n"));
        let expected =
            "xtask/rules/ratchet.txt:1: is no line of the table; write it again: cargo xtask tidy --write-ratchet";
        assert_eq!(shown(&findings), [expected]);
    }
}

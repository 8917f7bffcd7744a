//! Every package of the workspace has its tests in exactly one section of `cargo xtask test`, and every package of a section is there.
//!
//! Never: whether a package has tests; a section in which none ran fails by itself.

use super::Finding;
use crate::test::sections::SECTIONS;
use crate::workspace::Package;

/// The table of sections.
const TABLE: &str = "xtask/src/test/sections.rs";

/// Compares the table with the workspace.
pub fn check(packages: &[Package]) -> Vec<Finding> {
    let listed: Vec<&str> = SECTIONS.iter().flat_map(|section| section.packages).copied().collect();
    let finding = |what| Finding { path: TABLE.to_owned(), line: 0, what };
    let without = packages.iter().filter(|package| !listed.contains(&package.name.as_str()));
    let without = without.map(|package| {
        finding(format!("`{}` is in no section, so `cargo xtask test` never tests it; add it to one", package.name))
    });
    let gone = listed.iter().filter(|name| !packages.iter().any(|p| p.name == **name));
    let gone = gone.map(|name| finding(format!("`{name}` is no package of the workspace; take it out of its section")));
    without.chain(gone).collect()
}

#[cfg(test)]
mod tests {
    use super::super::shown;
    use super::*;

    #[test]
    fn a_package_without_a_section_is_found_and_a_section_without_its_package_too() {
        let every = || SECTIONS.iter().flat_map(|section| section.packages);
        let package = |name: &str| Package { name: name.to_owned(), ..Package::default() };
        let mut packages: Vec<Package> = every().map(|name| package(name)).collect();
        assert_eq!(check(&packages), []);
        packages.push(package("forebay-new"));
        let new = "xtask/src/test/sections.rs: `forebay-new` is in no section, so `cargo xtask test` never tests it; add it to one";
        assert_eq!(shown(&check(&packages)), [new]);
        packages.pop();
        let last = packages.pop().map(|package| package.name).unwrap();
        let gone =
            format!("xtask/src/test/sections.rs: `{last}` is no package of the workspace; take it out of its section");
        assert_eq!(shown(&check(&packages)), [gone]);
    }
}

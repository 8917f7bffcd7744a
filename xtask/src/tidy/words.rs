//! Slips that may stand in any file: words that belong to one machine, and white space at a line's end.

use super::{File, Finding, extension};

/// What no file may contain, with the reason. Split, so that this list is not its own first finding.
const FORBIDDEN: [(&str, &str); 9] = [
    (concat!("index.crates", ".io"), "a registry's host; name the package, cargo knows where it is"),
    (concat!("static.crates", ".io"), "a registry's host; name the package, cargo knows where it is"),
    (concat!("registry.npmjs", ".org"), "a registry's host; name the package"),
    (concat!("files.pythonhosted", ".org"), "a registry's host; name the package"),
    (concat!("proxy.golang", ".org"), "a registry's host; name the module"),
    (concat!("/ro", "ot/"), "a home of one machine; use a path from the project's root"),
    (concat!("/ho", "me/"), "a home of one machine; use a path from the project's root"),
    (concat!("/Us", "ers/"), "a home of one machine; use a path from the project's root"),
    (concat!("<<<<", "<<<"), "a merge was left unfinished"),
];

/// Where white space at a line's end is always a slip. Elsewhere (expected output) it may be meant.
const WRITTEN_BY_HAND: [&str; 8] = ["rs", "md", "toml", "yaml", "yml", "sh", "html", "css"];

/// Checks one file.
pub fn check(file: &File) -> Vec<Finding> {
    let by_hand = WRITTEN_BY_HAND.contains(&extension(&file.path)) || file.path.starts_with(".ci/");
    let mut findings = Vec::new();
    for (at, line) in file.text.split('\n').enumerate() {
        for (word, why) in FORBIDDEN {
            if line.contains(word) {
                findings.push(file.finding(at + 1, format!("`{word}`: {why}")));
            }
        }
        if by_hand && line.ends_with([' ', '\t', '\r']) {
            findings.push(file.finding(at + 1, "white space at the end of the line; remove it"));
        }
    }
    if by_hand && !file.text.is_empty() && !file.text.ends_with('\n') {
        findings.push(file.finding(0, "no line end after the last line; add one"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::{file, shown};
    use super::*;

    #[test]
    fn each_forbidden_word_is_found_with_its_line() {
        for (word, _) in FORBIDDEN {
            let findings = check(&file("docs/a.txt", &format!("fine\nsee {word}x\n")));
            assert_eq!(findings.len(), 1, "{word}");
            assert_eq!(findings[0].line, 2, "{word}");
        }
    }

    #[test]
    fn white_space_counts_where_people_write() {
        let slips = [
            "docs/a.md:1: white space at the end of the line; remove it",
            "docs/a.md: no line end after the last line; add one",
        ];
        assert_eq!(shown(&check(&file("docs/a.md", "a \nb"))), slips);
        assert_eq!(
            shown(&check(&file(".ci/run", "a\t\n"))),
            [".ci/run:1: white space at the end of the line; remove it"]
        );
        assert_eq!(shown(&check(&file("tests/a.out", "a \nb"))), [""; 0]);
    }
}

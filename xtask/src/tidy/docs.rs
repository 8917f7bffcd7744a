//! What is written is found: every file in docs/ is linked, every link leads somewhere, every policy is introduced, and the page of the
//! policy's fields agrees with the schema.

use std::collections::BTreeSet;

use super::{File, Finding, extension, needed};
use crate::page;

/// Checks the Markdown files and the ready-made policies against each other.
pub fn check(files: &[File]) -> Vec<Finding> {
    let mut findings = pages(files);
    findings.extend(policies_without_introduction(files));
    findings.extend(stale_page(files));
    findings.extend(reasons(files));
    findings
}

/// Links and paths of every page, and pages that nothing links.
fn pages(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut linked = BTreeSet::new();
    let there = |path: &str| files.iter().any(|f| f.path == path || f.path.starts_with(&format!("{path}/")));
    // The folders at the root, which hold what pages name.
    let roots: BTreeSet<&str> = files.iter().filter_map(|f| Some(f.path.split_once('/')?.0)).collect();
    for page in files.iter().filter(|file| extension(&file.path) == "md") {
        for (line, link) in links(&page.text) {
            let Some(target) = resolve(&page.path, link) else {
                continue;
            };
            if !there(&target) {
                findings.push(page.finding(line, format!("links to `{target}`, which is not there; mend the link")));
            }
            if target != page.path {
                linked.insert(target);
            }
        }
        // A page in a crate may mean its own folders.
        let of_root = page.path.starts_with("docs/") || !page.path.contains('/');
        for (line, path) in paths(&page.text, &roots).into_iter().filter(|_| of_root) {
            if !there(path.trim_end_matches('/')) {
                findings.push(page.finding(line, format!("names `{path}`, which is not there; say where it is now")));
            }
        }
    }
    for page in files.iter().filter(|file| file.path.starts_with("docs/") && extension(&file.path) == "md") {
        if !linked.contains(&page.path) {
            findings.push(page.finding(0, "no other page links here; link it from README.md or from a page of docs/"));
        }
    }
    findings
}

/// The codes of the reasons.
const REASONS: &str = "crates/kernel/src/reason.rs";
/// What helps against each.
const REASONS_PAGE: &str = "docs/REASONS.md";
/// What introduces the ready-made policies beside it.
const POLICIES: &str = "policies/README.md";
/// The schema of which the page of the fields is made.
const SCHEMA: &str = "policies/schema/policy.json";

/// The page that tells what helps against each reason, against the codes of the source: neither has one that the other lacks.
fn reasons(files: &[File]) -> Vec<Finding> {
    let (source, page) = match (needed(files, REASONS), needed(files, REASONS_PAGE)) {
        (Ok(source), Ok(page)) => (source, page),
        (source, page) => return [source.err(), page.err()].into_iter().flatten().collect(),
    };
    let word = |code: &&str| code.starts_with(char::is_uppercase) && code.chars().all(char::is_alphanumeric);
    let codes: BTreeSet<&str> = source
        .text
        .lines()
        .filter_map(|line| line.trim().split_once("=> \"")?.1.strip_suffix("\","))
        .filter(word)
        .collect();
    let rows = page
        .text
        .lines()
        .enumerate()
        .filter_map(|(at, line)| Some((at + 1, line.strip_prefix("| `")?.split(" |").next()?)));
    let told: Vec<(usize, &str)> = rows
        .flat_map(|(line, cell)| cell.split('`').step_by(2).filter(|code| word(code)).map(move |code| (line, code)))
        .collect();
    let unknown = told.iter().filter(|(_, code)| !codes.contains(code));
    let mut findings: Vec<Finding> = unknown
        .map(|(line, code)| page.finding(*line, format!("`{code}` is no reason's code; take the line out")))
        .collect();
    if codes.is_empty() {
        findings.push(
            source.finding(0, "has no code that tidy can read; read it in xtask/src/tidy/docs.rs as it is written"),
        );
    }
    for code in codes {
        let times = told.iter().filter(|(_, told)| *told == code).count();
        if times != 1 {
            findings.push(page.finding(0, format!("has {times} lines for `{code}`; give it one that says what helps")));
        }
    }
    findings
}

/// The page of the policy's fields against the committed schema.
fn stale_page(files: &[File]) -> Option<Finding> {
    let schema = match needed(files, SCHEMA) {
        Ok(schema) => schema,
        Err(missing) => return Some(missing),
    };
    let Some(fresh) = serde_json::from_str(&schema.text).ok().and_then(|schema| page::render(&schema)) else {
        return Some(schema.finding(0, "is no schema that a page can be made of; run `cargo xtask schema`"));
    };
    match files.iter().find(|file| file.path == page::PATH) {
        Some(page) if page.text == fresh => None,
        Some(page) => {
            let same = page.text.lines().zip(fresh.lines()).take_while(|(old, new)| old == new).count();
            Some(page.finding(same + 1, "differs from the policy's schema; run `cargo xtask schema`"))
        }
        None => Some(schema.finding(0, format!("has no page {}; run `cargo xtask schema`", page::PATH))),
    }
}

fn policies_without_introduction(files: &[File]) -> Vec<Finding> {
    let readme = match needed(files, POLICIES) {
        Ok(readme) => readme,
        Err(missing) => return vec![missing],
    };
    let beside = files.iter().filter_map(|file| file.path.strip_prefix("policies/")?.strip_suffix(".yaml"));
    let ready_made: Vec<&str> = beside.filter(|name| !name.contains('/')).collect();
    if ready_made.is_empty() {
        return vec![readme.finding(0, "has no policy beside it; name their place in xtask/src/tidy/docs.rs")];
    }
    let unnamed = ready_made.into_iter().filter(|name| !readme.text.contains(&format!("{name}.yaml")));
    unnamed
        .map(|name| readme.finding(0, format!("does not name `{name}.yaml`; say in a line whom it is for")))
        .collect()
}

/// Paths from the root in code spans outside fenced code, with their lines. One with a pattern in it is none.
fn paths<'t>(text: &'t str, roots: &BTreeSet<&str>) -> Vec<(usize, &'t str)> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    let from_root = |span: &str| span.split_once('/').is_some_and(|(root, _)| roots.contains(root));
    let mut found = Vec::new();
    for (line, text) in unfenced(text) {
        let spans = text.split('`').skip(1).step_by(2).filter(|span| from_root(span) && span.chars().all(plain));
        found.extend(spans.map(|span| (line, span)));
    }
    found
}

/// The lines outside fenced code, with their numbers from 1. The lines that open and close a fence are in it or hold nothing else.
fn unfenced(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        fenced ^= line.trim_start().starts_with("```");
        !fenced
    })
}

/// The targets of `[text](target)` outside fenced code, with their lines. Images are `![text](target)` and count as well.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (line, text) in unfenced(text) {
        let targets = text.split("](").skip(1).filter_map(|part| part.split_once(')'));
        found.extend(targets.map(|(target, _)| (line, target)));
    }
    found
}

/// The link's target from the root, or nothing when it leads out of the project (a URL, a folder above the root) or
/// stays on its page.
fn resolve(page: &str, link: &str) -> Option<String> {
    let link = link.split(['#', ' ']).next().unwrap_or_default();
    if link.is_empty() || link.contains(':') {
        return None;
    }
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::super::{file, shown};
    use super::*;

    #[test]
    fn a_page_is_linked_and_a_link_leads_somewhere() {
        let files = [
            file("README.md", "[a](docs/A.md#top) [out](https://example.org/x.md) [top](#top) [gone](docs/C.md)\n"),
            file("docs/A.md", "[up](../README.md) [folder](../policies/)\n```\n[not a link](x.md)\n```\n"),
            file("docs/B.md", "[itself](B.md)\n"),
            file("policies/a.yaml", ""),
        ];
        assert_eq!(
            shown(&pages(&files)),
            [
                "README.md:1: links to `docs/C.md`, which is not there; mend the link",
                "docs/B.md: no other page links here; link it from README.md or from a page of docs/",
            ]
        );
    }

    #[test]
    fn each_reason_has_one_line_that_says_what_helps() {
        let source = "            Reason::A => \"Asked\",\n            Reason::G { .. } => \"Grows\",\n            Reason::M => \"Moved\",\n";
        let page =
            "| code | means |\n| --- | --- |\n| `Asked`, `Grows` | x |\n| `Grows` | y |\n| `Gone` | of `Moved` |\n";
        let files = [file(REASONS, source), file(REASONS_PAGE, page)];
        assert_eq!(
            shown(&reasons(&files)),
            [
                "docs/REASONS.md:5: `Gone` is no reason's code; take the line out",
                "docs/REASONS.md: has 2 lines for `Grows`; give it one that says what helps",
                "docs/REASONS.md: has 0 lines for `Moved`; give it one that says what helps",
            ]
        );
    }

    #[test]
    fn a_path_that_is_named_is_there() {
        let text = "[b](docs/B.md) `src/plan.rs` `src/gone.rs` `src/*.rs` `cargo run src/x`\n```\n`src/y.rs`\n```\n";
        let files = [
            file("README.md", text),
            file("docs/B.md", "`crates/a/` and `crates/b/`\n"),
            file("src/plan.rs", ""),
            file("crates/a/lib.rs", ""),
            file("crates/a/README.md", "`src/of_its_own.rs`\n"),
        ];
        assert_eq!(
            shown(&pages(&files)),
            [
                "README.md:1: names `src/gone.rs`, which is not there; say where it is now",
                "docs/B.md:1: names `crates/b/`, which is not there; say where it is now",
            ]
        );
    }

    #[test]
    fn a_policy_is_introduced() {
        let readme = file("policies/README.md", "`spot-first.yaml` is for batch.\n");
        let files = [
            readme,
            file("policies/spot-first.yaml", ""),
            file("policies/teams.yaml", ""),
            file("policies/schema/x.json", ""),
        ];
        assert_eq!(
            shown(&policies_without_introduction(&files)),
            ["policies/README.md: does not name `teams.yaml`; say in a line whom it is for"]
        );
    }

    #[test]
    fn the_page_of_the_fields_is_the_schemas() {
        let schema = || file("policies/schema/policy.json", r#"{"$defs":{},"description":"d"}"#);
        let page = page::render(&serde_json::from_str(&schema().text).unwrap()).unwrap();
        assert!(stale_page(&[schema(), file(page::PATH, &page)]).is_none());
        let stale = stale_page(&[schema(), file(page::PATH, "# The policy, field by field\nold\n")]).unwrap();
        assert_eq!(stale.to_string(), "docs/POLICY.md:2: differs from the policy's schema; run `cargo xtask schema`");
        assert!(stale_page(&[schema()]).unwrap().to_string().contains("has no page"));
        let unreadable = stale_page(&[file(SCHEMA, "{"), file(page::PATH, &page)]).unwrap().to_string();
        assert!(unreadable.starts_with("policies/schema/policy.json: is no schema"), "{unreadable}");
    }

    #[test]
    fn a_rule_whose_file_has_moved_is_a_finding() {
        let gone = "is not there, and a rule of tidy reads it; put it back, or name its place in xtask/src/tidy";
        let moved = [file("src/reason.rs", ""), file("docs/WHY.md", ""), file("README.md", "[w](docs/WHY.md)\n")];
        let missing = [POLICIES, SCHEMA, REASONS, REASONS_PAGE].map(|path| format!("{path}: {gone}"));
        assert_eq!(shown(&check(&moved)), missing);
        let unread = reasons(&[file(REASONS, "Reason::A => Code::Asked,\n"), file(REASONS_PAGE, "| code |\n")]);
        assert!(shown(&unread)[0].contains("has no code that tidy can read"), "{unread:?}");
        let alone = policies_without_introduction(&[file(POLICIES, "`a.yaml` is for batch.\n")]);
        assert!(shown(&alone)[0].contains("has no policy beside it"), "{alone:?}");
    }
}

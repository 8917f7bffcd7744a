//! Broken policies and exactly what is said about them: `data/broken_policies.txt`, one story a section.
//!
//! A section is `=== title`, the policy (`$HEAD` stands for its three first lines), `>>>`, and the text that must come out:
//! errors, or the report of a policy that compiles. After a wanted change run with `FOREBAY_BLESS=1` and read the difference.

use forebay_catalog::Catalogue;
use forebay_policy::{compile, compile_bytes};
use std::fmt::Write as _;

const HEAD: &str = "apiVersion: forebay/v1\nkind: Policy\nmetadata: {name: t}";

fn outcome(policy: &str) -> String {
    let said = match compile("p.yaml", policy, &Catalogue::builtin()) {
        Ok(compiled) => compiled.report("p.yaml"),
        Err(errors) => errors.to_string(),
    };
    said.trim_end().to_owned()
}

#[test]
fn each_mistake_is_told_with_its_place_and_its_remedy() {
    let path = "tests/data/broken_policies.txt";
    let stories = std::fs::read_to_string(path).unwrap();
    let mut blessed = String::new();
    let mut wrong = Vec::new();
    let mut count = 0;
    for story in stories.split("=== ").skip(1) {
        let (title, rest) = story.split_once('\n').unwrap();
        let (written, expected) = rest.split_once("\n>>>\n").unwrap_or((rest.trim_end(), ""));
        let said = outcome(&written.replace("$HEAD", HEAD));
        let lines: Vec<&str> = said.lines().map(str::trim_end).collect();
        let said = lines.join("\n");
        if said != expected.trim_end() {
            wrong.push(format!("=== {title}\nexpected:\n{}\nsaid:\n{said}\n", expected.trim_end()));
        }
        write!(blessed, "=== {title}\n{written}\n>>>\n{said}\n\n").unwrap();
        count += 1;
    }
    #[expect(clippy::disallowed_methods, reason = "a switch of this test: it writes the expected text again")]
    if std::env::var_os("FOREBAY_BLESS").is_some() {
        std::fs::write(path, blessed.trim_end().to_owned() + "\n").unwrap();
        return;
    }
    assert!(
        wrong.is_empty(),
        "{}\nif this is wanted: FOREBAY_BLESS=1 cargo test -p forebay-policy --test policy_faults",
        wrong.join("\n")
    );
    assert!(count >= 60, "only {count} stories: was the file cut?");
}

#[test]
fn bytes_that_are_not_text_are_told_with_their_place() {
    let error =
        compile_bytes("p.yaml", b"apiVersion: forebay/v1\nkind: \xff\xfe\n", &Catalogue::builtin()).unwrap_err();
    let expected = "error: the file is not text: a byte here is not UTF-8\n --> p.yaml:2:7\n  |\n2 | kind: \n  |       ^\n  = help: save the policy as UTF-8 text";
    let said = error.to_string().lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
    assert_eq!(said, expected.lines().map(str::trim_end).collect::<Vec<_>>().join("\n"));
}

#[test]
fn a_file_that_is_too_large_is_refused_before_it_is_parsed() {
    let error = compile("p.yaml", &"a".repeat(5 << 20), &Catalogue::builtin()).unwrap_err();
    assert!(error.to_string().starts_with("error: the file has 5242880 bytes, more than the 4194304"), "{error}");
}

#[test]
fn aliases_that_multiply_stop_at_the_budget() {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let copies = vec![format!("*a{}", level - 1); 10].join(", ");
        writeln!(bomb, "a{level}: &a{level} [{copies}]").unwrap();
    }
    let error = compile("p.yaml", &bomb, &Catalogue::builtin()).unwrap_err().to_string();
    assert!(error.contains("aliases expanded"), "{error}");
}

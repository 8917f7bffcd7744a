//! Broken policies and exactly what is said about them: `data/broken_policies.txt`, one story a section.
//!
//! A section is `=== title`, the policy (`$HEAD` stands for its three first lines), `>>>`, and the text that must come out:
//! errors, or the report of a policy that compiles. After a wanted change run with `FOREBAY_BLESS=1` and read the difference.

use forebay_catalog::{Catalogue, PriceRow};
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

/// What is said about a policy that buys one type, where the catalogue has that type changed.
fn outcome_of_type(instance_type: &str, change: impl Fn(&mut PriceRow)) -> String {
    let mut catalogue = Catalogue::builtin();
    catalogue.rows.iter_mut().filter(|row| row.instance_type == instance_type).for_each(change);
    let pools = format!(
        "pools: {{p: {{instanceTypes: [{instance_type}, g5.xlarge]}}, q: {{instanceTypes: [{instance_type}]}}}}"
    );
    let policy = format!("{HEAD}\nlimits: {{spend: 900 USD/h}}\nqueues: {{a: {{}}}}\n{pools}\n");
    match compile("p.yaml", &policy, &catalogue) {
        Ok(compiled) => compiled.report("p.yaml"),
        Err(errors) => errors.to_string(),
    }
}

#[test]
fn a_named_type_with_more_gpus_than_a_node_may_have_is_refused() {
    let outcome = |gpus| outcome_of_type("p4d.24xlarge", |row| row.gpus = gpus);
    assert!(outcome(64).starts_with("p.yaml: policy `t` is good"), "{}", outcome(64));
    let refused = outcome(65);
    let what = "error: `p4d.24xlarge` has 65 GPUs, more than the 64 that a node may have\n --> p.yaml:6:";
    assert_eq!(refused.matches(what).count(), 2, "once in each pool: {refused}");
    assert!(refused.contains("= help: remove `p4d.24xlarge`: no such node is ever bought"), "{refused}");
}

#[test]
fn a_pool_that_boots_later_than_the_default_allows_is_refused() {
    let outcome = |minutes: u64| outcome_of_type("p4d.24xlarge", |row| row.boot_ms = minutes * 60_000);
    assert!(outcome(20).starts_with("p.yaml: policy `t` is good"), "{}", outcome(20));
    let refused = outcome(25);
    let what = "error: no instance type of pool `q` boots in less than 25m, and `lifecycle.bootTimeout` is 20m where nothing is written";
    assert!(refused.starts_with(what), "{refused}");
    assert!(refused.contains("= help: write `lifecycle: {bootTimeout: 25m}` or more, or name types"), "{refused}");
    assert!(!refused.contains("pool `p`"), "another type of it boots in time: {refused}");
}

#[test]
fn pools_or_tiers_that_are_all_commented_out_are_refused() {
    for (section, what) in [("pools", "no pool is declared"), ("tiers", "no tier is declared")] {
        let said = outcome(&format!("{HEAD}\nqueues: {{a: {{}}}}\n{section}:\n  # a: {{}}\n"));
        assert!(said.contains(&format!("error: {what}\n --> p.yaml:5:1\n")), "{said}");
    }
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

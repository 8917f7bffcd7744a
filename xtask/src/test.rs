//! The whole test run, section by section, cheapest first; the first failure ends it.
//!
//! ```text
//! needs -> tidy -> clippy -> engine -> sim -> controller -> integration -> schema -> sweep
//!                                                                                     |
//!                           a table of sections with seconds, and `N passed, N failed` <-+
//! ```
//!
//! The last line of its output is always `N passed, N failed`, summed over the tests that ran. A section that fails
//! without a failed test (a lint, a build) counts as one failure.

use std::time::{Duration, Instant};

use clap::ValueEnum;
use forebay_parts::{CfnLint, Kafka, LocalStack};

use crate::command::{cargo, quoted, run as run_command, run_reading};
use crate::needs::{self, Scope};
use crate::workspace::Workspace;
use crate::{Failure, schema, sweep, tidy};

/// Enough seeds to catch a broken recovery within a minute; `cargo xtask sweep --seeds 2000` is the long run.
const SWEEP_SEEDS: u64 = 100;

/// What `cargo xtask test` takes.
#[derive(clap::Args)]
pub struct Args {
    /// Which section to run
    #[arg(value_enum, default_value_t = Which::All)]
    section: Which,
    /// Of integration: one of its files, such as `sources`, with the figures that it prints
    #[arg(requires = "section")]
    part: Option<String>,
    /// Passed to each test binary as it is: a part of a test's name, --nocapture
    #[arg(last = true)]
    extra: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Which {
    All,
    Tidy,
    Clippy,
    Engine,
    Sim,
    Controller,
    Integration,
    Schema,
    Sweep,
}

impl Which {
    /// The order in which they run: what is quick and fails often comes first.
    const ORDER: [Which; 8] = [
        Which::Tidy,
        Which::Clippy,
        Which::Engine,
        Which::Sim,
        Which::Controller,
        Which::Integration,
        Which::Schema,
        Which::Sweep,
    ];

    fn sections(self) -> Vec<Which> {
        if self == Which::All { Self::ORDER.to_vec() } else { vec![self] }
    }

    /// Whether tests run in it; the others are checks.
    fn has_tests(self) -> bool {
        !matches!(self, Which::Clippy | Which::Schema | Which::Sweep)
    }

    /// What it builds and starts.
    fn scope(self) -> Scope {
        match self {
            Which::Tidy | Which::Engine | Which::Sim | Which::Sweep => Scope::Rust,
            Which::Clippy | Which::Controller | Which::Schema => Scope::Controller,
            Which::All | Which::Integration => Scope::Parts,
        }
    }

    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// Runs the section, or all of them in order.
pub fn run(workspace: &Workspace, args: &Args) -> Result<(), Failure> {
    let start = Instant::now();
    if args.part.is_some() && args.section != Which::Integration {
        return Err(Failure::new("only `integration` has parts: cargo xtask test integration sources"));
    }
    if let Err(error) = needs::check(args.section.scope()) {
        eprintln!("\n{}", error.message);
        let tally = Tally { failed: 1, ..Tally::default() };
        let needs = Done { name: "needs".to_owned(), tests: false, tally, took: start.elapsed(), failed: true };
        print!("\n{}", table(&[needs]));
        return Err(Failure::already_said());
    }
    let mut done = Vec::new();
    let mut failure = None;
    for section in args.section.sections() {
        eprintln!("\n== {} ==", section.name());
        let start = Instant::now();
        let mut tally = Tally::default();
        let outcome = run_section(workspace, section, args.part.as_deref(), &args.extra, &mut tally);
        if outcome.is_err() && tally.failed == 0 {
            tally.failed = 1;
        }
        let failed = outcome.is_err();
        done.push(Done { name: section.name(), tests: section.has_tests(), tally, took: start.elapsed(), failed });
        if let Err(error) = outcome {
            failure = Some((section, error));
            break;
        }
    }
    if let Some((section, error)) = &failure {
        eprintln!("\nfailed in {}: {}", section.name(), error.message);
        eprintln!("repeat: {}", repeat(*section, args.part.as_deref(), &args.extra));
    }
    print!("\n{}", table(&done));
    if failure.is_none() { Ok(()) } else { Err(Failure::already_said()) }
}

/// What runs against real servers without the binary. Their tests wait for a broker more than they work.
const ADAPTERS: [&str; 7] = [
    "forebay-capacity-ec2",
    "forebay-checkpoint-s3",
    "forebay-loopback-ec2",
    "forebay-node-agent",
    "forebay-parts",
    "forebay-source-kafka",
    "forebay-source-sqs",
];

/// Those whose tests belong to a part that is asked for by name.
const EC2: [&str; 3] = ["forebay-capacity-ec2", "forebay-checkpoint-s3", "forebay-loopback-ec2"];

/// Tests of an adapter at a time; by themselves they run as many as there are cores.
const WAITING: &str = "8";

/// A part that is asked for by name shows its figures.
fn shown(extra: &[String]) -> Vec<String> {
    extra.iter().cloned().chain(["--nocapture".to_owned()]).collect()
}

fn run_section(
    workspace: &Workspace,
    section: Which,
    part: Option<&str>,
    extra: &[String],
    tally: &mut Tally,
) -> Result<(), Failure> {
    match section {
        Which::All => Ok(()),
        Which::Tidy => {
            tidy::run(workspace)?;
            test_package(workspace, "xtask", &[], tally)
        }
        Which::Clippy => run_command(cargo(workspace.root()).args([
            "clippy",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ])),
        Which::Engine => test_package(workspace, "forebay-engine", extra, tally),
        Which::Sim => test_package(workspace, "forebay-sim", extra, tally),
        Which::Controller => test_packages(workspace, &["forebay", "forebay-fuzz"], &[], extra, tally),
        Which::Integration => {
            run_command(cargo(workspace.root()).args(["build", "--release", "-p", "forebay"]))?;
            // Here, where it is seen: a test's own output is not, and its time would count as the test's.
            let installed = Kafka::install().and_then(|_| LocalStack::install()).and_then(|_| CfnLint::install());
            installed.map_err(|e| Failure::new(e.to_string()))?;
            run_command(cargo(workspace.root()).args(["build", "--release", "-p", "forebay-fuzz"]))?;
            if part == Some("ec2") {
                test_packages(workspace, &EC2, &[], &shown(extra), tally)?;
            }
            if let Some(part) = part {
                return test_packages(workspace, &["forebay-integration"], &["--test", part], &shown(extra), tally);
            }
            test_packages(workspace, &ADAPTERS, &[], extra, tally)?;
            test_package(workspace, "forebay-integration", extra, tally)
        }
        Which::Schema => schema::run(workspace, &schema::Args { check: true }),
        Which::Sweep => sweep::run(workspace, &sweep::Args { seeds: SWEEP_SEEDS, from: 0, jobs: None }),
    }
}

fn test_package(workspace: &Workspace, package: &str, extra: &[String], tally: &mut Tally) -> Result<(), Failure> {
    test_packages(workspace, &[package], &[], extra, tally)
}

fn test_packages(
    workspace: &Workspace,
    packages: &[&str],
    targets: &[&str],
    extra: &[String],
    tally: &mut Tally,
) -> Result<(), Failure> {
    let mut command = cargo(workspace.root());
    command.args(["test", "--no-fail-fast"]);
    command.args(packages.iter().flat_map(|package| ["-p", package]));
    command.args(targets);
    if packages.contains(&"forebay-integration") {
        command.env("FOREBAY_BIN", workspace.forebay_binary());
    }
    if packages == ADAPTERS || packages == EC2 {
        command.env("RUST_TEST_THREADS", WAITING);
    }
    if !extra.is_empty() {
        command.arg("--").args(extra);
    }
    run_reading(&mut command, |line| tally.read(line))
}

fn repeat(section: Which, part: Option<&str>, extra: &[String]) -> String {
    let mut words = vec!["cargo xtask test".to_owned(), section.name()];
    words.extend(part.map(str::to_owned));
    if !extra.is_empty() {
        words.push("--".to_owned());
        words.extend(extra.iter().map(|word| quoted(word)));
    }
    words.join(" ")
}

/// The sum of the `test result:` lines that cargo's test binaries print.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    passed: u64,
    failed: u64,
    ignored: u64,
}

impl Tally {
    fn read(&mut self, line: &str) {
        let Some(result) = line.strip_prefix("test result: ") else {
            return;
        };
        let Some((_, counts)) = result.split_once(". ") else {
            return;
        };
        for count in counts.split("; ") {
            match count.split_once(' ') {
                Some((n, "passed")) => self.passed += n.parse().unwrap_or(0),
                Some((n, "failed")) => self.failed += n.parse().unwrap_or(0),
                Some((n, "ignored")) => self.ignored += n.parse().unwrap_or(0),
                _ => {}
            }
        }
    }

    fn add(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }
}

struct Done {
    name: String,
    /// Whether it should have run some.
    tests: bool,
    tally: Tally,
    took: Duration,
    failed: bool,
}

/// The closing table, and below it the one line that a script may read.
fn table(done: &[Done]) -> String {
    let mut text =
        format!("{:<12} {:>7} {:>7} {:>7} {:>8}  outcome\n", "section", "passed", "failed", "ignored", "seconds");
    let mut sum = Tally::default();
    for row in done {
        let Tally { passed, failed, ignored } = row.tally;
        let outcome = match row {
            Done { failed: true, .. } => "FAILED",
            Done { tests: true, tally: Tally { passed: 0, .. }, .. } => "no test ran",
            _ => "ok",
        };
        let seconds = row.took.as_secs_f64();
        text.push_str(&format!("{:<12} {passed:>7} {failed:>7} {ignored:>7} {seconds:>8.1}  {outcome}\n", row.name));
        sum.add(row.tally);
    }
    text.push_str(&format!("\n{} passed, {} failed\n", sum.passed, sum.failed));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_summed_and_other_lines_are_not() {
        let mut tally = Tally::default();
        tally.read("test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.03s");
        tally.read("test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 7 filtered out; finished in 1.00s");
        tally.read("test tests::a_name ... ok");
        tally.read("99 passed; 99 failed");
        assert_eq!(tally, Tally { passed: 15, failed: 2, ignored: 1 });
    }

    #[test]
    fn the_sum_is_alone_on_the_last_line() {
        let done = [
            Done {
                name: "clippy".into(),
                tests: false,
                tally: Tally::default(),
                took: Duration::from_millis(900),
                failed: false,
            },
            Done { name: "sim".into(), tests: true, tally: Tally::default(), took: Duration::ZERO, failed: false },
            Done {
                name: "engine".into(),
                tests: true,
                tally: Tally { passed: 8, failed: 1, ignored: 0 },
                took: Duration::from_secs(2),
                failed: true,
            },
        ];
        let text = table(&done);
        assert_eq!(text.lines().last(), Some("8 passed, 1 failed"));
        assert!(text.contains("sim                0       0       0      0.0  no test ran"), "{text}");
        assert!(text.contains("engine             8       1       0      2.0  FAILED"), "{text}");
    }

    #[test]
    fn all_is_every_section_once() {
        let mut names: Vec<_> = Which::All.sections().into_iter().map(Which::name).collect();
        names.push("all".to_owned());
        names.sort();
        let mut every: Vec<_> = Which::value_variants().iter().map(|which| which.name()).collect();
        every.sort();
        assert_eq!(names, every);
    }
}

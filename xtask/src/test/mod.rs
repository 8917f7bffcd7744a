//! The whole test run, section by section. A section that fails does not end it: the others run, and the end lists all that failed.
//!
//! ```text
//! needs -> the sections of sections.rs, in order -> what failed, each with what repeats it
//!                                                   seconds of each section, the longest parts
//!                                                   `N passed, N failed`, alone on the last line
//! ```
//!
//! All sections together build every test binary once (built.rs); one section alone builds its packages by `cargo test`. What the tests start
//! is the debug build of `forebay`, which checks for overflow and is built already: nothing is built for release.
//! The exit code is 1 when anything failed. A section that fails without a failed test (a lint, a build) counts as one failure.

pub mod sections;

mod attacks;
mod built;
mod causes;
mod report;
mod tally;

use std::process::Command;
use std::thread::JoinHandle;
use std::time::Instant;

use clap::builder::PossibleValuesParser;
use forebay_parts::{CargoDeny, CfnLint, Chromium, FocusValidator, Helm, Kafka, Kubernetes, LocalStack};

use self::attacks::HURT;
use self::built::{Binary, Built};
use self::report::{SectionRun, TestReport};
use self::sections::{EC2, FROM_OUTSIDE, KUBE, Kind, PEOPLE, SECTIONS, Section};
use self::tally::{Part, TestParts, plain};
use crate::command::{cargo, quoted, run as run_command, run_reading, shown};
use crate::needs::{self, Scope};
use crate::sbom::{self, SbomArgs};
use crate::workspace::Workspace;
use crate::{ChoreFailure, schema, sweep, tidy};

/// Enough seeds to catch a broken recovery within a minute; `cargo xtask sweep --seeds 2000` is the long run.
const SWEEP_SEEDS: u64 = 100;

/// Tests of an adapter at a time: they wait for a broker more than they work. By themselves they run as many as there are cores.
const WAITING: &str = "8";

/// A section whose tests have a full run, which prints its counts.
struct FullRun {
    section: &'static str,
    /// Of integration, the part that has it.
    part: Option<&'static str>,
    /// How many, by package.
    counts: &'static [FullCounts],
    /// The test that takes too long for every run, and is ignored there.
    ignored: Option<LongTest>,
}

/// The variables that say how many the tests of a package are to try.
struct FullCounts {
    package: &'static str,
    variables: &'static [(&'static str, &'static str)],
}

/// A test that is ignored in every run but a full one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LongTest {
    package: &'static str,
    /// The test binary.
    target: &'static str,
    name: &'static str,
}

/// Of engine, random states that brute force looks at, instead of 2,000, streams of jobs, instead of 100, and states in which queues take from
/// each other, instead of 10,000; of sim, pairs of traces, instead of 100, and waits whose start is estimated; of people, slips of each kind of
/// file, instead of 100, reloads, positions at which bills are compared, rows of each trace that is billed, and clouds under which the past is
/// played again; of the attacks, all that docs/THREATS.md says, one at a time (attacks.rs).
const FULL: &[FullRun] = &[
    FullRun {
        section: "engine",
        part: None,
        counts: &[FullCounts {
            package: "forebay-engine",
            variables: &[("FOREBAY_STATES", "100000"), ("FOREBAY_STREAMS", "2000"), ("FOREBAY_STARTS", "100000")],
        }],
        ignored: Some(LongTest { package: "forebay-engine", target: "engine", name: "every_sabotage_is_caught" }),
    },
    FullRun {
        section: "sim",
        part: None,
        counts: &[FullCounts {
            package: "forebay-sim",
            variables: &[("FOREBAY_PAIRS", "2000"), ("FOREBAY_WAITS", "500")],
        }],
        ignored: None,
    },
    FullRun {
        section: "people",
        part: None,
        counts: &[
            FullCounts { package: "forebay-sim", variables: &[("FOREBAY_WAITS", "500")] },
            FullCounts {
                package: "forebay",
                variables: &[
                    ("FOREBAY_SLIPS", "4000"),
                    ("FOREBAY_RELOADS", "200"),
                    ("FOREBAY_BILL_SAMPLES", "1000"),
                    ("FOREBAY_BILL_ROWS", "100000"),
                ],
            },
            FullCounts {
                package: FROM_OUTSIDE,
                variables: &[("FOREBAY_RELOADS", "200"), ("FOREBAY_PAST_SEEDS", "12")],
            },
        ],
        ignored: None,
    },
    FullRun {
        section: "integration",
        part: Some(HURT),
        counts: &[FullCounts { package: FROM_OUTSIDE, variables: &[("FOREBAY_HURT", "full")] }],
        ignored: None,
    },
];

/// Every section.
const ALL: &str = "all";

/// Test binaries print what tests print, also of those that pass.
const NO_CAPTURE: &str = "--nocapture";

/// What `cargo xtask test` takes.
#[derive(clap::Args)]
pub struct TestArgs {
    /// Which section to run
    #[arg(value_parser = names(), default_value = ALL)]
    section: String,
    /// Of integration: one of its files, such as `sources`, or `kube`, with the figures that it prints
    #[arg(requires = "section")]
    part: Option<String>,
    /// Of all sections, those that are left out, such as `integration,deny`
    #[arg(long, value_name = "SECTIONS", value_delimiter = ',', value_parser = names())]
    skip: Vec<String>,
    /// Of engine: 100,000 random states against brute force instead of 2,000, 2,000 streams instead of 100, 100,000 states in which queues
    /// take from each other instead of 10,000, and each sabotage of the rules, which has to be caught; of sim: 2,000 pairs of traces instead of
    /// 100, and 500 waits; of people: 4,000 slips in each kind of file instead of 100, 200 reloads, and these waits. With the counts.
    /// Of `integration hurt`: every attack in its whole form, one at a time, and 1,000 `kill -9`; a run that was broken off goes on
    #[arg(long, requires = "section")]
    full: bool,
    /// Of `integration hurt --full`: forget which attacks have passed
    #[arg(long, requires = "full")]
    from_start: bool,
    /// Passed to each test binary as it is: a part of a test's name, --nocapture
    #[arg(last = true)]
    extra: Vec<String>,
}

fn names() -> PossibleValuesParser {
    [ALL].into_iter().chain(SECTIONS.iter().map(|section| section.name)).collect::<Vec<_>>().into()
}

impl TestArgs {
    /// Whether a section was asked for.
    fn names(&self, section: &Section) -> bool {
        if self.section == ALL {
            section.kind != Kind::People && !self.skip.iter().any(|skipped| skipped == section.name)
        } else {
            self.section == section.name
        }
    }

    /// The command that repeats a section, or one test of it.
    fn repeat(&self, section: &str, test: Option<&str>) -> String {
        let mut words = vec!["cargo xtask test".to_owned(), section.to_owned()];
        words.extend(self.part.clone());
        words.extend(self.full.then(|| "--full".to_owned()));
        let extra: Vec<&str> = match test {
            Some(test) => vec![test],
            None => self.extra.iter().map(String::as_str).collect(),
        };
        if !extra.is_empty() {
            words.push("--".to_owned());
            words.extend(extra.into_iter().map(quoted));
        }
        words.join(" ")
    }

    /// The full run that was asked for.
    fn full_run(&self) -> Option<&'static FullRun> {
        let is_it = |full: &&FullRun| full.section == self.section && full.part == self.part.as_deref();
        FULL.iter().find(is_it).filter(|_| self.full)
    }

    /// The variables of a full run that the tests of this package read.
    fn counts(&self, package: &str) -> &'static [(&'static str, &'static str)] {
        let counts = self.full_run().and_then(|full| full.counts.iter().find(|counts| counts.package == package));
        counts.map(|counts| counts.variables).unwrap_or_default()
    }

    /// The ignored test that a full run has too, unless a filter asks for others.
    fn ignored(&self) -> Option<LongTest> {
        let asked =
            |test: &LongTest| self.filter().is_none_or(|filter| filter.iter().any(|part| test.name.contains(part)));
        self.full_run().and_then(|full| full.ignored).filter(asked)
    }

    /// What was asked for by a part of its name: the words that are no options. `None`: every test.
    fn filter(&self) -> Option<Vec<&str>> {
        let words: Vec<&str> = self.extra.iter().map(String::as_str).filter(|word| !word.starts_with('-')).collect();
        (!words.is_empty()).then_some(words)
    }

    /// Whether tests are run, and not only listed.
    fn runs_tests(&self) -> bool {
        !self.extra.iter().any(|word| word == "--list")
    }

    /// What the test binaries get. A part that is asked for by name and a full run show their figures.
    fn extra(&self) -> Vec<String> {
        // A test binary refuses it twice.
        let asked = self.extra.iter().any(|word| word == NO_CAPTURE);
        let figures = ((self.part.is_some() || self.full) && !asked).then(|| NO_CAPTURE.to_owned());
        self.extra.iter().cloned().chain(figures).collect()
    }
}

/// Runs the section, or all of them in order, whatever fails.
pub fn run(workspace: &Workspace, args: &TestArgs) -> Result<(), ChoreFailure> {
    if args.part.is_some() && args.section != "integration" {
        return Err(ChoreFailure::new("only `integration` has parts: cargo xtask test integration sources"));
    }
    if args.full && args.full_run().is_none() {
        return Err(ChoreFailure::new(
            "only `engine`, `sim`, `people` and `integration hurt` have a full run: cargo xtask test engine --full",
        ));
    }
    if args.from_start && args.part.is_none() {
        return Err(ChoreFailure::new(
            "only `integration hurt` goes on where it was broken off: cargo xtask test integration hurt --full --from-start",
        ));
    }
    let sections: Vec<&Section> = SECTIONS.iter().filter(|section| args.names(section)).collect();
    let scope = sections.iter().map(|section| section.scope).max().unwrap_or(Scope::Rust);
    let missing = needs::check(scope);
    let filtered = args.part.is_some() || !args.extra.is_empty();
    let mut report = TestReport::default();
    // The servers are fetched while the first sections compile: one waits for the network, the other for the processor. Kubernetes is built,
    // but behind them: its compiler is nice.
    let later = sections.len() > 1 && sections.iter().any(|section| section.kind == Kind::Integration);
    let installing = (later && missing.of(Scope::Parts).is_none()).then(|| std::thread::spawn(install_parts));
    let mut suite = Suite { workspace, args, built: None, installing };
    for section in sections {
        eprintln!("\n== {} ==", section.name);
        let begun = Instant::now();
        let mut run = SectionRun::default();
        if let Some(failure) = missing.of(section.scope) {
            eprintln!("{}", failure.message);
            run.failures.push(failure.message);
        } else {
            suite.section(section, &mut run);
        }
        report.add(section, run, begun.elapsed(), filtered);
    }
    if args.runs_tests() {
        report.require_a_test(&args.extra.join(" "));
    }
    print!("{}", report.text(|section, test| args.repeat(section, test)));
    if report.failed() { Err(ChoreFailure::already_printed()) } else { Ok(()) }
}

/// A run of one section or of all.
struct Suite<'a> {
    workspace: &'a Workspace,
    args: &'a TestArgs,
    /// The test binaries, once the section `build` has built them.
    built: Option<Built>,
    /// The installation of the real servers, where it was begun with the run.
    installing: Option<JoinHandle<Result<(), ChoreFailure>>>,
}

impl Suite<'_> {
    fn section(&mut self, section: &Section, run: &mut SectionRun) {
        let workspace = self.workspace;
        let all = section.packages;
        match section.kind {
            Kind::Packages => {
                self.test(all, run);
                self.test_ignored(run);
            }
            Kind::Tidy => {
                step(run, "tidy", || tidy::run(workspace));
                self.test(all, run);
            }
            Kind::Clippy => {
                let mut clippy = cargo(workspace.root());
                clippy.args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]);
                command_step(run, clippy);
            }
            Kind::Build => {
                let begun = Instant::now();
                let (built, outcome) = Built::all(workspace);
                self.built = Some(built);
                run.parts.push(Part { name: "build: every test".to_owned(), took: begun.elapsed() });
                attempt(run, outcome);
            }
            Kind::Examples => {
                let mut examples = cargo(workspace.root());
                examples.args(["test", "--workspace", "--exclude", "xtask", "--doc", "--no-fail-fast"]);
                self.read_tests(examples, None, run);
            }
            Kind::Deny => drop(deny(workspace, run)),
            Kind::Integration => drop(self.integration(all, run)),
            Kind::Schema => {
                let schema = if self.built.is_some() { schema::run_built } else { schema::run };
                step(run, "schema", || schema(workspace, &schema::WriteSchemaArgs { check: true }));
            }
            Kind::Sweep => {
                let seeds = sweep::SweepArgs { seeds: SWEEP_SEEDS, ..sweep::SweepArgs::default() };
                let sweep = if self.built.is_some() { sweep::run_built } else { sweep::run };
                step(run, "sweep", || sweep(workspace, &seeds));
            }
            Kind::People => drop(self.people(run)),
        }
    }

    /// Builds the binary, installs the real servers, and tests the adapters, then the binary from outside. `None`: a step before the tests
    /// failed.
    fn integration(&mut self, all: &[&str], run: &mut SectionRun) -> Option<()> {
        self.programs(run)?;
        // Here, where it is seen: a test's own output is not, and its time would count as the test's.
        let installing = self.installing.take();
        step(run, "install Kafka, LocalStack, cfn-lint, focus-validator, Playwright, Kubernetes and Helm", || {
            match installing {
                Some(thread) => {
                    thread.join().unwrap_or_else(|_| Err(ChoreFailure::new("the installation ended with a panic")))
                }
                None => install_parts(),
            }
        })?;
        if let Some(part) = &self.args.part {
            if part == HURT && self.args.full {
                return self.attacks(run);
            }
            if part == "kube" {
                self.test_packages(KUBE, &[], run);
            }
            if part == "ec2" {
                self.test_packages(EC2, &[], run);
            }
            self.test_packages(&[FROM_OUTSIDE], &["--test", part], run);
            return Some(());
        }
        let adapters: Vec<&str> = all.iter().copied().filter(|package| *package != FROM_OUTSIDE).collect();
        self.test(&adapters, run);
        self.test(&[FROM_OUTSIDE], run);
        Some(())
    }

    /// Builds the programs that tests start, unless the section `build` has. `None`: they were not built.
    fn programs(&self, run: &mut SectionRun) -> Option<()> {
        if self.built.is_some() {
            return Some(());
        }
        let mut build = cargo(self.workspace.root());
        build.args(["build", "-p", "forebay", "-p", "forebay-fuzz", "--bins"]);
        command_step(run, build)
    }

    /// Builds the binary, and tests what people are told. `None`: it was not built.
    fn people(&self, run: &mut SectionRun) -> Option<()> {
        self.programs(run)?;
        for (package, files) in PEOPLE {
            let targets: Vec<&str> = files.iter().flat_map(|file| ["--test", file]).collect();
            self.test_packages(&[package], &targets, run);
        }
        Some(())
    }

    /// Tests these packages, all of their tests whatever fails: with what was built for all sections, else by cargo.
    fn test(&self, packages: &[&str], run: &mut SectionRun) {
        let Some(built) = &self.built else {
            return self.test_packages(packages, &[], run);
        };
        for package in packages.iter().filter_map(|package| self.workspace.package(package)) {
            for binary in built.of(self.workspace, package) {
                let Some(mut command) = attempt(run, binary.command()) else { continue };
                self.set_environment(&mut command, &package.name);
                command.args(self.args.extra());
                self.read_tests(command, Some(&binary), run);
            }
        }
    }

    /// Runs the test that takes too long for every run, where a full one was asked for.
    fn test_ignored(&self, run: &mut SectionRun) {
        let Some(test) = self.args.ignored() else { return };
        let mut command = cargo(self.workspace.root());
        command.args(["test", "-p", test.package, "--test", test.target, "--", "--ignored", test.name, "--nocapture"]);
        self.read_tests(command, None, run);
    }

    /// Builds and tests these packages by one `cargo test`.
    fn test_packages(&self, packages: &[&str], targets: &[&str], run: &mut SectionRun) {
        let mut command = cargo(self.workspace.root());
        command.args(["test", "--no-fail-fast"]);
        command.args(packages.iter().flat_map(|package| ["-p", package]));
        command.args(targets);
        if let Some(first) = packages.first() {
            self.set_environment(&mut command, first);
        }
        let extra = self.args.extra();
        if !extra.is_empty() {
            command.arg("--").args(extra);
        }
        self.read_tests(command, None, run);
    }

    /// What the tests of a package find in their environment. Those of the adapters stand together and have the same.
    fn set_environment(&self, command: &mut Command, package: &str) {
        if package == FROM_OUTSIDE {
            command.env("FOREBAY_BIN", self.workspace.debug("forebay"));
        } else if Section::named("integration").is_some_and(|section| section.packages.contains(&package)) {
            command.env("RUST_TEST_THREADS", WAITING);
        }
        command.envs(self.args.counts(package).iter().copied());
    }

    /// Runs a command that runs tests, and counts them. `binary` is its one test binary; else cargo names several. A test file of which nothing
    /// ran though no filter left anything out is a failure: its tests are gone, or ignored one and all.
    fn read_tests(&self, mut command: Command, binary: Option<&Binary>, run: &mut SectionRun) {
        let begun = Instant::now();
        let mut parts = TestParts::of(&shown(&command), binary);
        let outcome = run_reading(&mut command, |line, at| {
            let line = plain(line);
            run.tally.read(&line);
            run.causes.read(&line);
            parts.read(&line, at);
        });
        let (parts, empty) = parts.end(begun.elapsed());
        run.parts.extend(parts);
        run.failures.extend(empty.into_iter().map(|file| format!("{file}: no test ran in it, and there must be some")));
        attempt(run, outcome);
    }
}

/// Installs the real servers where they are not there yet.
fn install_parts() -> Result<(), ChoreFailure> {
    Kafka::install()?;
    LocalStack::install()?;
    CfnLint::install()?;
    FocusValidator::install()?;
    Chromium::install()?;
    Kubernetes::install()?;
    Helm::install()?;
    Ok(())
}

/// Licences, bans and sources of everything that Cargo.lock names, for every platform, and the bill of materials. After `cargo fetch` it
/// needs no network.
/// `None`: a step failed.
fn deny(workspace: &Workspace, run: &mut SectionRun) -> Option<()> {
    let tool = step(run, "install cargo-deny", || Ok(CargoDeny::install()?))?;
    let mut fetch = cargo(workspace.root());
    fetch.args(["fetch", "--locked"]);
    command_step(run, fetch)?;
    let mut deny = Command::new(tool.program());
    deny.current_dir(workspace.root());
    deny.args(["--offline", "--locked", "--workspace", "check"]);
    // What deny.toml allows and nothing needs is an error too, so that its lists stay true.
    deny.args(["unmatched-skip", "unnecessary-skip", "unused-wrapper"].iter().flat_map(|lint| ["-D", lint]));
    deny.args(["licenses", "bans", "sources"]);
    step(run, "cargo-deny", || run_command(&mut deny))?;
    step(run, "bill of materials", || sbom::run(workspace, &SbomArgs { out: None, target: None }))
}

/// Runs a command as one part of the section.
fn command_step(run: &mut SectionRun, mut command: Command) -> Option<()> {
    let name = shown(&command);
    step(run, &name, || run_command(&mut command))
}

/// Runs one part of the section. Nothing comes of one that fails.
fn step<T>(run: &mut SectionRun, name: &str, work: impl FnOnce() -> Result<T, ChoreFailure>) -> Option<T> {
    let begun = Instant::now();
    let outcome = work();
    run.parts.push(Part { name: name.to_owned(), took: begun.elapsed() });
    attempt(run, outcome)
}

/// Notes why a command failed.
fn attempt<T>(run: &mut SectionRun, outcome: Result<T, ChoreFailure>) -> Option<T> {
    let note = |failure: ChoreFailure| {
        eprintln!("failed: {}", failure.message);
        run.failures.push(failure.message);
    };
    outcome.map_err(note).ok()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: TestArgs,
    }

    fn args(words: &[&str]) -> TestArgs {
        Line::try_parse_from([&["test"], words].concat()).map(|line| line.args).unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn what_repeats_a_section_keeps_its_part_and_its_filter() {
        assert_eq!(args(&[]).repeat("clippy", None), "cargo xtask test clippy");
        let gang = args(&["engine", "--", "gang", "--nocapture"]);
        assert_eq!(gang.repeat("engine", None), "cargo xtask test engine -- gang --nocapture");
        assert_eq!(gang.repeat("engine", Some("stories::gang")), "cargo xtask test engine -- stories::gang");
        assert_eq!(args(&["--skip", "integration,deny"]).skip, ["integration", "deny"]);
        let sources = args(&["integration", "sources"]);
        let again = "cargo xtask test integration sources -- 'src/lib.rs - (line 9)'";
        assert_eq!(sources.repeat("integration", Some("src/lib.rs - (line 9)")), again);
        assert_eq!(sources.extra(), ["--nocapture"]);
        let figures = args(&["integration", "kube", "--", "speed", "--nocapture"]);
        assert_eq!(figures.extra(), ["speed", "--nocapture"]);
        assert_eq!(args(&["engine", "--full"]).repeat("engine", None), "cargo xtask test engine --full");
        let hurt = args(&["integration", "hurt", "--full", "--from-start"]);
        let again = "cargo xtask test integration hurt --full -- clients::waits";
        assert_eq!(hurt.repeat("integration", Some("clients::waits")), again);
    }

    #[test]
    fn a_step_that_fails_is_noted_and_the_next_one_runs() {
        let mut run = SectionRun::default();
        assert_eq!(step::<u8>(&mut run, "one", || Err(ChoreFailure::new("broken"))), None);
        assert_eq!(step(&mut run, "two", || Ok(2)), Some(2));
        assert_eq!(run.failures, ["broken"]);
        let parts: Vec<&str> = run.parts.iter().map(|part| part.name.as_str()).collect();
        assert_eq!(parts, ["one", "two"]);
    }

    #[test]
    fn a_section_that_is_not_there_is_refused() {
        assert!(Line::try_parse_from(["test", "no-such-section"]).is_err());
        assert_eq!(args(&[]).section, ALL);
    }

    #[test]
    fn a_full_run_reaches_every_package_that_reads_its_counts() {
        let people = args(&["people", "--full"]);
        assert!(people.counts(FROM_OUTSIDE).contains(&("FOREBAY_RELOADS", "200")));
        assert!(people.counts("forebay").contains(&("FOREBAY_SLIPS", "4000")));
        assert!(people.counts("forebay-sim").contains(&("FOREBAY_WAITS", "500")));
        assert!(args(&["people"]).counts(FROM_OUTSIDE).is_empty() && people.counts("forebay-engine").is_empty());
        let hurt = args(&["integration", "hurt", "--full"]);
        assert_eq!(hurt.counts(FROM_OUTSIDE), [("FOREBAY_HURT", "full")]);
        assert!(args(&["integration", "hurt"]).counts(FROM_OUTSIDE).is_empty());
        for others in [&["integration", "--full"][..], &["integration", "sources", "--full"], &["deny", "--full"]] {
            assert!(args(others).full_run().is_none(), "{others:?}");
        }
        for full in FULL {
            let section = Section::named(full.section).unwrap_or_else(|| panic!("{} is no section", full.section));
            let runs = |package: &str| match section.kind {
                Kind::People => PEOPLE.iter().any(|(name, _)| *name == package),
                _ => section.packages.contains(&package),
            };
            for counts in full.counts {
                assert!(runs(counts.package), "{} does not run {}", full.section, counts.package);
            }
        }
    }

    #[test]
    fn a_full_run_of_engine_has_the_sabotages_too() {
        let name = |words: &[&str]| args(words).ignored().map(|test| test.name);
        let sabotages = Some("every_sabotage_is_caught");
        assert_eq!(name(&["engine", "--full"]), sabotages);
        assert_eq!(name(&["engine", "--full", "--", "sabotage", "--nocapture"]), sabotages);
        assert_eq!(name(&["engine", "--full", "--", "gang"]), None);
        assert_eq!((name(&["engine"]), name(&["sim", "--full"])), (None, None));
        let source = include_str!("../../../tests/engine/properties/lacks/sabotages.rs");
        assert!(source.contains("fn every_sabotage_is_caught()"), "the test has another name now");
    }

    #[test]
    fn what_is_no_option_is_a_filter() {
        assert_eq!(args(&["engine", "--", "gang", "--nocapture"]).filter(), Some(vec!["gang"]));
        assert_eq!(args(&["engine", "--", "--nocapture"]).filter(), None);
        assert!(args(&["engine", "--", "gang"]).runs_tests() && !args(&["engine", "--", "--list"]).runs_tests());
    }
}

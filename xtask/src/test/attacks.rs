//! `cargo xtask test integration hurt --full`: every attack in its whole form, one at a time, and 1,000 `kill -9`. What has passed is kept in a
//! file, so that a run that was broken off goes on behind it.
//!
//! ```text
//! tests of the file `hurt` + those that kill -> but those that have passed before -> each a process of its own
//!                                                                                      passed: a line in <target>/hurt-full.txt
//! all have passed -> the file goes, and the next run begins from the start
//! ```
//!
//! Never: counts an attack as passed that failed, or of which no test ran.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::built::{Binary, Built};
use super::report::SectionRun;
use super::sections::FROM_OUTSIDE;
use super::{Suite, attempt};
use crate::ChoreFailure;
use crate::command::capture;

/// The part of the section `integration` whose full run this is, and the test file of the same name: all of its tests are attacks.
pub const HURT: &str = "hurt";

/// The test files that have attacks.
const FILES: [&str; 4] = [HURT, "kill9", "sources", "ec2"];

/// The tests that kill, each with its file and with how many of 1,000 kills are its own: over a replay, over HTTP, while Kafka, SQS and a broker
/// bring events, and while nodes are bought from the loopback EC2. What a kill costs, in seconds, grows in this order.
const KILLERS: [(&str, &str, u64); 4] = [
    ("kill9", "a_replay_killed_at_random_moments_completes_every_job_once", 400),
    ("kill9", "a_controller_killed_at_random_moments_keeps_what_it_answered", 300),
    ("sources", "killed::killed_at_random_moments_each_event_is_a_job_once", 150),
    ("ec2", "killed::a_controller_killed_while_it_buys_buys_nothing_twice", 150),
];

/// The file that says what has passed, in the target folder.
const FILE: &str = "hurt-full.txt";

/// One attack: a test, and how often it kills where it does.
#[derive(Clone, Debug)]
struct Attack {
    /// Its test file.
    file: &'static str,
    /// Its name within the file.
    test: String,
    /// How often it kills.
    kills: Option<u64>,
}

impl Attack {
    /// As the file of what has passed names it.
    fn key(&self) -> String {
        format!("{} {}", self.file, self.test)
    }
}

/// Every attack: the tests of the file `hurt`, as its binary lists them, and those that kill.
fn attacks(listed: &str) -> Vec<Attack> {
    let tests = listed.lines().filter_map(|line| line.strip_suffix(": test"));
    let hurt = tests.map(|test| Attack { file: HURT, test: test.to_owned(), kills: None });
    let kill = KILLERS.map(|(file, test, kills)| Attack { file, test: test.to_owned(), kills: Some(kills) });
    hurt.chain(kill).collect()
}

/// The attacks that have passed, and the file that keeps them: `SECONDS FILE TEST`, one a line, with the time since 1970 at which it passed.
struct PassedAttacks {
    path: PathBuf,
    at: BTreeMap<String, Duration>,
}

impl PassedAttacks {
    /// What the file says. None have passed where there is no file.
    fn read(path: PathBuf) -> Result<Self, ChoreFailure> {
        let text = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            read => read.map_err(|e| unusable(&path, &e))?,
        };
        let line = |line: &str| {
            let (seconds, key) = line.split_once(' ')?;
            Some((key.to_owned(), Duration::from_secs(seconds.parse().ok()?)))
        };
        Ok(Self { path, at: text.lines().filter_map(line).collect() })
    }

    /// Forgets all of them.
    fn forget(&mut self) -> Result<(), ChoreFailure> {
        self.at.clear();
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(unusable(&self.path, &error)),
            _ => Ok(()),
        }
    }

    /// Keeps one more.
    fn add(&mut self, attack: &Attack) -> Result<(), ChoreFailure> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let line = format!("{} {}\n", now.as_secs(), attack.key());
        let opened = OpenOptions::new().append(true).create(true).open(&self.path);
        opened.and_then(|mut file| file.write_all(line.as_bytes())).map_err(|e| unusable(&self.path, &e))?;
        self.at.insert(attack.key(), now);
        Ok(())
    }

    fn has(&self, attack: &Attack) -> bool {
        self.at.contains_key(&attack.key())
    }

    /// How many passed before this time since 1970.
    fn before(&self, built: Duration) -> usize {
        self.at.values().filter(|at| **at < built).count()
    }
}

fn unusable(path: &Path, error: &std::io::Error) -> ChoreFailure {
    let remedy = "it keeps which attacks have passed; remove it to begin from the start";
    ChoreFailure::new(format!("{}: {error}: {remedy}", path.display()))
}

impl Suite<'_> {
    /// Builds the attacks, and makes those that have not passed yet. `None`: a step before them failed.
    pub(super) fn attacks(&self, run: &mut SectionRun) -> Option<()> {
        let (built, outcome) = Built::files(self.workspace, FROM_OUTSIDE, &FILES);
        attempt(run, outcome)?;
        let binaries = built.of(self.workspace, self.workspace.package(FROM_OUTSIDE)?);
        let binary = |file: &str| {
            let found = binaries.iter().find(|binary| binary.name.starts_with(&format!("{file} (")));
            found.ok_or_else(|| ChoreFailure::new(format!("{FROM_OUTSIDE} has no test file {file}")))
        };
        let mut list = attempt(run, binary(HURT).and_then(Binary::command))?;
        let all = attacks(&attempt(run, capture(list.args(["--list"])))?);
        let mut passed = attempt(run, PassedAttacks::read(self.workspace.target().join(FILE)))?;
        if self.args.from_start {
            attempt(run, passed.forget())?;
        }
        let chosen = self.chosen(&all, &passed);
        if !self.args.runs_tests() {
            all.iter().for_each(|one| println!("{}{}", one.key(), if passed.has(one) { ": has passed" } else { "" }));
            return Some(());
        }
        self.say_what_has_passed(&all, &passed);
        for (nth, attack) in (1..).zip(&chosen) {
            eprintln!("\n-- attack {nth} of {}: {} --", chosen.len(), attack.key());
            let binary = attempt(run, binary(attack.file))?;
            if self.attack(attack, binary, run).is_some() {
                attempt(run, passed.add(attack))?;
            }
        }
        if all.iter().all(|attack| passed.has(attack)) {
            eprintln!("all {} attacks have passed; the next run begins from the start", all.len());
            attempt(run, passed.forget())?;
        }
        Some(())
    }

    /// Those that were asked for by a part of their names, whether they have passed or not; else those that have not.
    fn chosen(&self, all: &[Attack], passed: &PassedAttacks) -> Vec<Attack> {
        let wanted = |attack: &&Attack| match self.args.filter() {
            Some(parts) => parts.iter().any(|part| attack.test.contains(part)),
            None => !passed.has(attack),
        };
        all.iter().filter(wanted).cloned().collect()
    }

    fn say_what_has_passed(&self, all: &[Attack], passed: &PassedAttacks) {
        let count = all.iter().filter(|attack| passed.has(attack)).count();
        if count == 0 {
            return;
        }
        let built = std::fs::metadata(self.workspace.debug("forebay")).and_then(|file| file.modified());
        let built = built.ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
        let earlier = passed.before(built);
        eprintln!("{count} of {} attacks have passed before: {}", all.len(), passed.path.display());
        if earlier > 0 {
            eprintln!("{earlier} of them with an earlier build of forebay; --from-start makes all of them again");
        }
    }

    /// Makes one attack. `None`: it failed.
    fn attack(&self, attack: &Attack, binary: &Binary, run: &mut SectionRun) -> Option<()> {
        let (passed, failures) = (run.tally.passed, run.failures.len());
        let mut command = attempt(run, binary.command())?;
        self.set_environment(&mut command, FROM_OUTSIDE);
        if let Some(kills) = attack.kills {
            command.env("FOREBAY_KILLS", kills.to_string());
        }
        command.args([attack.test.as_str(), "--exact", "--nocapture", "--test-threads=1"]);
        let mut named = binary.clone();
        named.name = attack.key();
        self.read_tests(command, Some(&named), run);
        if run.failures.len() > failures {
            return None;
        }
        if run.tally.passed == passed {
            run.failures.push(format!("{}: no test of this name ran", attack.key()));
            return None;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_attacks_are_the_listed_tests_and_those_that_kill() {
        let all = attacks("clients::waits: test\nclock::a_year: test\n\n2 tests, 0 benchmarks\n");
        let keys: Vec<String> = all.iter().map(Attack::key).collect();
        assert_eq!(keys[..2], ["hurt clients::waits", "hurt clock::a_year"]);
        assert_eq!(keys.len(), 2 + KILLERS.len());
        assert_eq!(all.iter().filter_map(|attack| attack.kills).sum::<u64>(), 1_000);
        assert!(all.iter().all(|attack| FILES.contains(&attack.file)));
    }

    #[test]
    fn those_that_kill_are_there_and_take_their_number_from_outside() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/integration/tests");
        for (file, test, _) in KILLERS {
            let path = match test.split_once("::") {
                Some((module, _)) => folder.join(file).join(format!("{module}.rs")),
                None => folder.join(format!("{file}.rs")),
            };
            let source = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            let name = test.rsplit("::").next().unwrap_or(test);
            assert!(source.contains(&format!("fn {name}()")), "{} has no test {name}", path.display());
            assert!(source.contains("\"FOREBAY_KILLS\""), "{} kills as often as it likes", path.display());
        }
    }

    #[test]
    fn what_has_passed_is_kept_until_it_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        let read = || PassedAttacks::read(path.clone()).unwrap();
        let all = attacks("a: test\nb: test\n");
        let (first, second) = (&all[0], &all[1]);
        assert!(!read().has(first));
        read().add(first).unwrap();
        std::fs::write(&path, std::fs::read_to_string(&path).unwrap() + "a line that was cut").unwrap();
        assert!(read().has(first) && !read().has(second));
        assert_eq!((read().before(Duration::ZERO), read().before(Duration::from_secs(u64::MAX))), (0, 1));
        read().forget().unwrap();
        read().forget().unwrap();
        assert!(!read().has(first) && !path.exists());
    }
}

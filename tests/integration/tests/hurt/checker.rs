//! The checker of attacks on files. The program itself is started on a hurt copy, as its owner would start it: it is refused as documented, or
//! everything is there that was answered, by the test's own list, as the API says it.
//!
//! ```text
//! refused   exit code 2, no byte changed, and in the words: the file, what is wrong with it, the way out
//! started   each subject that was answered has the job that it was answered with -> the same job sent again is no other one
//!           -> new jobs have new numbers -> asked to end -> no status is lost, changed or there twice -> rejected events are there as they
//!           were -> no sink's cursor went back or ahead
//! ```
//!
//! Never: takes the word of the journal for what was in it.

use super::folder::{HurtFolder, cursors, event, ids, post};
use super::started::{Refusal, Started};
use forebay_integration::folders::contents;
use forebay_integration::{run, segments, send};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// The exit code of a start that what lies there does not allow: bad input.
const REFUSED: i32 = 2;

/// Jobs that are sent to a controller that went on.
const NEW: usize = 3;

/// What became of an attack.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Judged {
    /// It went on, with everything.
    Whole,
    /// It was refused, and says this.
    Refused(String),
}

/// What a refusal has to say when one of these files was hurt, one of each list: the file that shows it, what is wrong, and the way out.
struct Expected {
    of: &'static str,
    files: &'static [&'static str],
    damage: &'static [&'static str],
    way_out: &'static [&'static str],
}

/// Ways out that are commands; `give_up` does what the last one says.
const COMMANDS: &[&str] = &["`forebay journal verify` lists", "`forebay journal restore`", "add `--accept-loss "];

/// By the beginning of a file's name.
const EXPECTED: [Expected; 6] = [
    Expected {
        of: "journal.sqlite",
        files: &["journal.sqlite"],
        damage: &[
            "the journal is damaged at ",
            "is not there",
            "there is no journal.sqlite",
            "was cut, or is not the one of this database",
            "was cut, or is an older copy",
        ],
        way_out: COMMANDS,
    },
    // A mark of which one slot is left is an older one: of what it does not know the log is missed.
    Expected {
        of: "journal.mark",
        files: &["journal.mark", "journal.sqlite-wal"],
        damage: &["is not there", "neither of its two slots is sound"],
        way_out: COMMANDS,
    },
    Expected {
        of: "status",
        files: &["status"],
        damage: &["ends at number ", "has nothing", ": line "],
        way_out: &[
            "add `--accept-loss ",
            "restore the file from a backup, or move it away: the next start says what that loses",
        ],
    },
    Expected {
        of: "rejected",
        files: &["rejected"],
        damage: &["ends at number ", "has nothing", ": line "],
        way_out: &[
            "add `--accept-loss ",
            "restore the file from a backup, or move it away: the next start says what that loses",
        ],
    },
    Expected {
        of: "world.json",
        files: &["world.json"],
        damage: &[" at line ", "is not there", ": not UTF-8 text", "the file is empty"],
        way_out: &[
            "restore it from a backup",
            "put it back, or name its seed by --seed",
            "check that it was written in full",
            "give a text file",
        ],
    },
    Expected {
        of: "attempt.key",
        files: &["attempt.key"],
        damage: &["is not a key of 64 hexadecimal digits"],
        way_out: &["restore it from a backup, or move it away"],
    },
];

impl HurtFolder {
    /// Starts from a hurt copy: all that was answered is there, or the start is refused as documented and changes no byte. `name`: the file
    /// that was hurt.
    pub fn judge(&self, hurt: &Path, name: &str, case: &str) -> Judged {
        let before = contents(hurt);
        match Started::on(hurt) {
            Ok(started) => {
                self.is_whole(hurt, started, case);
                Judged::Whole
            }
            Err(Refusal { code, said }) => {
                assert_eq!(code, REFUSED, "{case}: {said}");
                is_documented(hurt, name, &said, case);
                assert!(contents(hurt) == before, "{case}: a refused start, or a verification, changed a file: {said}");
                Judged::Refused(said)
            }
        }
    }

    /// Everything that was answered is there, once, and goes on.
    fn is_whole(&self, hurt: &Path, started: Started, case: &str) {
        let url = &started.url;
        let is_lost = |(subject, job): &(&String, &String)| {
            let (status, found) = get(url, &format!("/v1/jobs/{subject}"));
            status != 200 || found["job"] != job.as_str()
        };
        let lost: Vec<_> = self.jobs.iter().filter(is_lost).collect();
        assert!(
            lost.is_empty(),
            "{case}: went on without {} of {}, or under other numbers: {lost:?}",
            lost.len(),
            self.jobs.len()
        );
        let again = post(url, &[event("later-0")]);
        assert_eq!(again.get("later-0"), self.jobs.get("later-0"), "{case}: the same job sent again is the same one");
        let new = post(url, &(0..NEW).map(|n| event(&format!("new-{n}"))).collect::<Vec<Value>>());
        let given: BTreeSet<&String> = self.jobs.values().chain(new.values()).collect();
        assert_eq!(given.len(), self.jobs.len() + NEW, "{case}: a number was given out twice: {new:?}");
        let (status, list) = get(url, "/v1/jobs?limit=10000");
        let listed = list["jobs"].as_array().filter(|_| status == 200).unwrap_or_else(|| panic!("{case}: {list}"));
        for what in ["job", "subject"] {
            let once: BTreeSet<&str> = listed.iter().filter_map(|job| job[what].as_str()).collect();
            assert_eq!((once.len(), listed.len()), (given.len(), given.len()), "{case}: each {what} is there once");
        }
        started.stop();
        let statuses = ids(hurt);
        for (id, line) in &self.statuses {
            assert_eq!(statuses.get(id), Some(line), "{case}: a status was lost or changed its meaning");
        }
        let told = |job: &str| statuses.values().any(|line| line.contains(&format!("\"job\":\"{job}\"")));
        assert!(new.values().all(|job| told(job)), "{case}: a new job has no status");
        self.has_what_was_sent(hurt, case);
    }

    /// Rejected events are there byte for byte, and no sink would leave out what it was not sent, or be sent again what it has acknowledged.
    fn has_what_was_sent(&self, hurt: &Path, case: &str) {
        let rejected = segments::lines(&hurt.join("rejected"));
        let (found, known) = (rejected.len(), self.rejected.len());
        assert!(rejected == self.rejected, "{case}: {found} rejected events of {known}, or others");
        let come = cursors(hurt);
        for (sink, known) in &self.cursors {
            let at = come.get(sink).copied().unwrap_or(0);
            assert!(known.contains(&at), "{case}: {sink} is at {at}, and had come to {known:?}");
        }
    }
}

/// The answer to a question, as JSON.
fn get(url: &str, path: &str) -> (u16, Value) {
    let (status, text) = send(url, "GET", path, &[], b"");
    (status, serde_json::from_str(&text).unwrap_or_else(|e| panic!("{path}: {e} in {text}")))
}

/// What is said names the file, what is wrong with it, and the way out.
fn is_documented(hurt: &Path, name: &str, said: &str, case: &str) {
    let expected = EXPECTED.iter().find(|one| name.starts_with(one.of));
    let expected = expected.unwrap_or_else(|| panic!("{case}: no job is in {name}, and it is refused: {said}"));
    let folder = hurt.display();
    let names = |file: &&str| {
        [format!("{folder}/{file}"), format!("{folder}: there is no {file}")].iter().any(|named| said.contains(named))
    };
    assert!(expected.files.iter().any(names), "{case}: names none of {:?}: {said}", expected.files);
    for (what, words) in [("is wrong", expected.damage), ("helps", expected.way_out)] {
        assert!(words.iter().any(|words| said.contains(words)), "{case}: does not say what {what}: {said}");
    }
    if said.contains("`forebay journal verify`") {
        let verified = run(hurt, &["journal", "verify", folder.to_string().as_str()]);
        assert_eq!(verified.code, REFUSED, "{case}: the command that is named finds nothing: {verified:?}");
    }
}

//! A data folder that acknowledged jobs, copies of it to be hurt, and the checker: it knows what was acknowledged from outside, and reads
//! files by itself.
//!
//! Never: asks the journal what should be in it.

use forebay::driver::{Consent, Running, Settings, start};
use forebay::journal::ArchiveQuery;
use forebay_integration::{Server, root, segments};
use forebay_sim::market::Market;
use forebay_sim::world::WorldOptions;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::OnceLock;

/// Runs the whole form, and where its seeds begin.
pub fn cases(small: u64, full: u64) -> std::ops::Range<u64> {
    let from = std::env::var("FOREBAY_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    let most = if std::env::var("FOREBAY_HURT").is_ok_and(|form| form == "full") { full } else { small };
    from..from.max(most)
}

/// A folder and what it acknowledged.
pub struct HurtFolder {
    pub folder: tempfile::TempDir,
    /// Subjects that were answered.
    pub acknowledged: BTreeSet<String>,
    /// The lines of its statuses, by their ids.
    pub statuses: BTreeMap<String, String>,
}

pub fn event(subject: &str) -> Value {
    let data =
        json!({"queue": "research", "gang": {"workers": 1, "each": {"gpus": 1}}, "simulation": {"durationS": 3600}});
    json!({"specversion": "1.0", "type": "job.submitted", "source": "//hurt", "id": subject, "subject": subject, "data": data})
}

/// Sends jobs and returns the subjects that were answered.
pub fn submit(server: &Server, name: &str, count: usize) -> BTreeSet<String> {
    let subjects: Vec<String> = (0..count).map(|n| format!("{name}-{n}")).collect();
    for some in subjects.chunks(10) {
        let events: Vec<Value> = some.iter().map(|subject| event(subject)).collect();
        let (code, answer) = server.post(&Value::Array(events));
        assert_eq!(code, 202, "{answer}");
    }
    subjects.into_iter().collect()
}

/// A controller that was killed, or ended in order, after it had acknowledged jobs.
pub fn acknowledged(jobs: usize, how: End) -> HurtFolder {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(folder.path(), &["--data", "data"]);
    let acknowledged = submit(&server, "job", jobs);
    match how {
        End::Killed => server.kill(),
        End::InOrder => drop(server),
    }
    let statuses = ids(&folder.path().join("data"));
    assert!(statuses.len() >= jobs, "each job has a status: {}", statuses.len());
    HurtFolder { folder, acknowledged, statuses }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum End {
    Killed,
    InOrder,
}

/// The lines of the statuses of a data folder, by their ids.
pub fn ids(data: &Path) -> BTreeMap<String, String> {
    let id = |line: &String| {
        let status: Value = serde_json::from_str(line).expect("JSON");
        status["id"].as_str().expect("an id").to_owned()
    };
    segments::lines(&data.join("status")).into_iter().map(|line| (id(&line), line)).collect()
}

/// Every file of a folder but the lock, whose number is for people.
pub fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    while let Some(at) = open.pop() {
        for entry in std::fs::read_dir(&at).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.strip_prefix(folder).expect("in it").display().to_string();
            if path.is_dir() {
                open.push(path);
            } else if name != "forebay.lock" {
                found.insert(name, std::fs::read(&path).expect("a file"));
            }
        }
    }
    found
}

pub fn copied(from: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir().expect("a folder");
    for (name, bytes) in contents(from) {
        let path = to.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        std::fs::write(path, bytes).expect("a copy");
    }
    to
}

/// The built-in policy, which a start has that names none.
fn policy() -> &'static (String, forebay_kernel::policy::Policy) {
    static POLICY: OnceLock<(String, forebay_kernel::policy::Policy)> = OnceLock::new();
    POLICY.get_or_init(|| {
        let text = std::fs::read_to_string(root().join("policies/teams.yaml")).expect("a policy");
        let catalogue = forebay_catalog::Catalogue::builtin();
        let compiled = forebay_policy::compile("teams.yaml", &text, &catalogue).expect("it compiles");
        (text, compiled.policy)
    })
}

/// Starts in a data folder as `forebay run` does.
pub fn opened(data: &Path, consent: Consent) -> Result<Running, String> {
    let world = Box::new(|_: &_, origin| WorldOptions { origin, ..WorldOptions::new(1, Market::calm(&[])) });
    let policy = Some(policy().clone());
    let settings = Settings { resume: true, policy, consent, ..Settings::new(data.to_owned(), world) };
    start(settings).map_err(|error| error.to_string())
}

/// The subjects that a controller knows: those in its state, and those that are over.
pub fn known(running: &Running) -> BTreeSet<String> {
    let subjects = |engine: &forebay_engine::engine::Engine| {
        engine.state().jobs().map(|(_, spec)| spec.subject.clone()).collect::<BTreeSet<_>>()
    };
    let mut known = running.handle.query(move |engine, _| subjects(engine)).expect("it answers");
    let query = ArchiveQuery { queues: Vec::new(), outcome: None, before: None, limit: 1_000 };
    let over = running.archive.list(&query).expect("the archive is read").jobs;
    known.extend(over.into_iter().map(|job| job.finished.spec.subject.clone()));
    known
}

/// Ends it in order.
pub fn ended(running: Running) {
    running.handle.stop();
    let finished = running.join().expect("it ends in order");
    assert!(finished.audit.is_empty(), "{:?}", finished.audit);
}

/// What became of an attack.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Judged {
    /// It went on, with everything.
    Whole,
    /// It was refused, and says this.
    Refused(String),
}

impl HurtFolder {
    pub fn data(&self) -> std::path::PathBuf {
        self.folder.path().join("data")
    }

    /// Starts from a hurt copy: everything that was acknowledged is there, or the start is refused, changes no byte, and names the file
    /// and the way out.
    pub fn judge(&self, hurt: &Path, case: &str) -> Judged {
        let before = contents(hurt);
        match opened(hurt, Consent::default()) {
            Ok(running) => {
                let known = known(&running);
                let lost: Vec<_> = self.acknowledged.difference(&known).collect();
                assert!(
                    lost.is_empty(),
                    "{case}: went on without {} of {}: {lost:?}",
                    lost.len(),
                    self.acknowledged.len()
                );
                ended(running);
                let statuses = ids(hurt);
                for (id, line) in &self.statuses {
                    assert_eq!(statuses.get(id), Some(line), "{case}: a status was lost or changed its meaning");
                }
                Judged::Whole
            }
            Err(said) => {
                assert!(contents(hurt) == before, "{case}: a refused start changed a file: {said}");
                let file = hurt.display().to_string();
                assert!(said.contains(&file), "{case}: names no file: {said}");
                let way_out = ["backup", "--accept-loss", "journal restore", "move it away"];
                assert!(way_out.iter().any(|way| said.contains(way)), "{case}: says no way out: {said}");
                Judged::Refused(said)
            }
        }
    }

    /// Goes on without what a refusal says is missing: no id means two things afterwards, and the journal keeps what was given up.
    pub fn give_up(&self, hurt: &Path, said: &str, case: &str) {
        let given: u64 = match said.split_once("--accept-loss ").map(|(_, rest)| rest.split('`').next()) {
            Some(Some(number)) => number.parse().expect("a number"),
            _ => return,
        };
        let wrong = Consent { loss: Some(given + 1), ..Consent::default() };
        assert!(opened(hurt, wrong).is_err(), "{case}: another number than was said is not enough");
        let running =
            opened(hurt, Consent { loss: Some(given), ..Consent::default() }).unwrap_or_else(|e| panic!("{case}: {e}"));
        assert!(running.handle.journal().incarnation > 0, "{case}");
        let again = forebay_kernel::event::Event::JobCancelled {
            tenant: "default".into(),
            subject: "job-0".into(),
            by: None,
            sent: None,
        };
        running.handle.submit(vec![again]).expect("it is taken");
        ended(running);
        for (id, line) in ids(hurt) {
            let before = self.statuses.get(&id).unwrap_or(&line);
            assert_eq!(*before, line, "{case}: {id} means two things");
        }
        let verified = forebay::journal::verify(hurt).unwrap_or_else(|e| panic!("{case}: {e}"));
        assert!(verified.acts.iter().any(|act| act.kind == forebay::journal::ActKind::LossAccepted), "{case}");
        ended(opened(hurt, Consent::default()).unwrap_or_else(|e| panic!("{case}: the next start: {e}")));
    }
}

//! A folder with a configuration, a policy of two teams and a journal whose nodes are ready, and what tests look at.
//!
//! A node of the simulated cloud boots as slowly as a real one. So the journal is begun by a short replay some hours ago, which ends
//! with the nodes that the policy keeps ready: jobs start within some two seconds from the first on.
//! Never: waits without a limit.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use forebay_integration::teams::{ask_json, secret, write};
use forebay_integration::{Server, run, segments};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};
use tempfile::TempDir;

/// Many times what anything here takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(90);

/// Queue `b-one` has room for one GPU, so that a second job waits.
const POLICY: &str = "apiVersion: forebay/v1
kind: Policy
metadata: {name: sources}
limits: {nodes: 4, spend: 10000 USD/h}
tiers:
  normal: {priority: 500, buys: on-demand}
queues:
  a: {tier: normal, quota: {default: {gpus: 8}}, submitters: [team-a]}
  b: {tier: normal, quota: {default: {gpus: 8}}, submitters: [team-b]}
  b-one: {tier: normal, quota: {default: {gpus: 1, borrow: 0}}, submitters: [team-b]}
  open: {tier: normal, quota: {default: {gpus: 8}}}
pools:
  default: {instanceTypes: [p5.48xlarge], zones: [sim-1a], keepReady: 4}
";

/// Who has a token: name, tenant, roles.
const TOKENS: [(&str, &str, &str); 3] =
    [("team-a", "default", "[submit, read]"), ("team-b", "default", "[submit, read]"), ("ops", "default", "[operate]")];

/// Something that is read: its name, and whose it is.
pub struct In {
    pub name: String,
    pub principal: &'static str,
    pub tenant: &'static str,
}

impl In {
    pub fn of(name: &str, principal: &'static str) -> In {
        In { name: name.to_owned(), principal, tenant: "default" }
    }
}

/// One of Kafka or SQS, as the configuration names it. Empty: it is left out.
#[derive(Default)]
pub struct Wire {
    pub read: Vec<In>,
    pub status: Option<String>,
    pub rejected: Option<String>,
}

impl Wire {
    fn text(&self, list: &str, more: &str) -> String {
        let read = self
            .read
            .iter()
            .map(|one| format!("{{name: {}, principal: {}, tenant: {}}}", one.name, one.principal, one.tenant));
        let mut text = format!("{more}    {list}: [{}]\n", read.collect::<Vec<_>>().join(", "));
        for (key, name) in [("status", &self.status), ("rejected", &self.rejected)] {
            text.extend(name.iter().map(|name| format!("    {key}: {name}\n")));
        }
        text
    }
}

/// A folder that `forebay run` is started in.
pub struct Stage {
    pub folder: TempDir,
    /// The journal's folder.
    pub data: PathBuf,
    /// The consumer group.
    pub group: String,
}

/// A name that no other test has.
pub fn unique(name: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{name}-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

impl Stage {
    /// With its journal in the same folder.
    pub fn new(kafka: &Wire, sqs: &Wire) -> Stage {
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path().join("d");
        Stage::with_data(folder, data, kafka, sqs)
    }

    /// With its journal elsewhere.
    pub fn with_data(folder: TempDir, data: PathBuf, kafka: &Wire, sqs: &Wire) -> Stage {
        let group = unique("group");
        write(folder.path(), "policy.yaml", POLICY);
        let mut text =
            format!("apiVersion: forebay/v1\nkind: Config\npolicy: policy.yaml\ndata: {}\ntokens:\n", data.display());
        for (name, tenant, roles) in TOKENS {
            write(folder.path(), &format!("{name}.token"), &format!("{}\n", secret(name)));
            text.push_str(&format!(
                "  - {{name: {name}, tenant: {tenant}, roles: {roles}, secret: {{file: {name}.token}}}}\n"
            ));
        }
        if !kafka.read.is_empty() {
            let more = format!("  - brokers: ['{}']\n    group: {group}\n", crate::broker::shared());
            text.push_str(&format!("kafka:\n{}", kafka.text("topics", &more)));
        }
        if !sqs.read.is_empty() {
            let more = format!(
                "  - region: us-east-1\n    endpoint: {}\n    keys: {{id: {{env: SQS_ID}}, secret: {{env: SQS_SECRET}}}}\n",
                crate::queue::shared()
            );
            text.push_str(&format!("sqs:\n{}", sqs.text("queues", &more)));
        }
        write(folder.path(), "forebay.yaml", &text);
        let stage = Stage { folder, data, group };
        stage.begin();
        stage
    }

    /// Begins the journal.
    fn begin(&self) {
        let now = SystemTime::UNIX_EPOCH.elapsed().expect("a clock").as_secs();
        let mut event = job("first", "open");
        event["time"] = json!(rfc3339(now - 6 * 3600));
        write(self.folder.path(), "first.jsonl", &format!("{event}\n"));
        let data = self.data.display().to_string();
        let args = ["run", "--replay", "first.jsonl", "--speed", "max", "--exit-when-drained", "--data", &data];
        let said = run(self.folder.path(), &[&args[..], &["--policy", "policy.yaml"]].concat());
        // 1: nodes are left, which is what this is for.
        assert!(matches!(said.code, 0 | 1) && self.statuses().len() >= 4, "{said:?}");
    }

    /// Starts it. Dropped: ended by `kill -9`.
    pub fn start(&self) -> Server {
        Server::start_with(self.folder.path(), &["--config", "forebay.yaml"], &self.variables())
    }

    /// What its configuration refers to.
    pub fn variables(&self) -> [(&'static str, &'static str); 3] {
        [("SQS_ID", "test"), ("SQS_SECRET", "test"), ("FOREBAY_LOG", "info,forebay=debug")]
    }

    fn lines(&self, name: &str) -> Vec<Value> {
        let lines = segments::lines(&self.data.join(name));
        lines.iter().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
    }

    /// The log of rejected events.
    pub fn rejected(&self) -> Vec<Value> {
        self.lines("rejected")
    }

    /// The log of statuses.
    pub fn statuses(&self) -> Vec<Value> {
        self.lines("status")
    }

    /// Waits until these are over, and that there is no other job.
    pub fn wait_over(&self, subjects: &BTreeSet<String>) {
        wait_until(&format!("the end of {} jobs", subjects.len()), || {
            let over = ended(&self.statuses());
            let open: Vec<&String> = subjects.iter().filter(|s| !over.contains_key(*s)).collect();
            if open.is_empty() { Ok(()) } else { Err(format!("{} open: {:?}", open.len(), &open[..open.len().min(5)])) }
        });
    }
}

/// RFC 3339, from days since 1970 by the civil calendar.
fn rfc3339(s: u64) -> String {
    let (days, rest) = (s / 86_400, s % 86_400);
    let z = days + 719_468;
    let (era, of_era) = (z / 146_097, z % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let part = (5 * of_year + 2) / 153;
    let (day, month) = (of_year - (153 * part + 2) / 5 + 1, if part < 10 { part + 3 } else { part - 9 });
    let year = year + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

/// How each subject's job ended, by (tenant/)subject.
///
/// # Panics
/// When a number or a job's seq is left out or there twice, or a status follows the end.
pub fn ended(statuses: &[Value]) -> BTreeMap<String, String> {
    let (mut seqs, mut ends) = (BTreeMap::<String, u64>::new(), BTreeMap::<String, String>::new());
    let mut over = BTreeSet::new();
    for (n, status) in statuses.iter().enumerate() {
        let data = &status["data"];
        assert_eq!(data["number"].as_u64(), Some(n as u64 + 1), "no gap and no double: {status}");
        let job = data["job"].as_str().unwrap_or_default().to_owned();
        let seq = seqs.entry(job.clone()).or_default();
        *seq += 1;
        assert_eq!(data["seq"].as_u64(), Some(*seq), "{status}");
        assert!(!over.contains(&job), "a status after the end: {status}");
        if data["terminal"] == true {
            over.insert(job);
            let (tenant, subject) = (data["tenant"].as_str(), status["subject"].as_str().unwrap_or_default());
            let name = tenant.filter(|t| *t != "default").map_or_else(String::new, |t| format!("{t}/"));
            let kind = status["type"].as_str().unwrap_or_default().trim_start_matches("status.").to_owned();
            let before = ends.insert(format!("{name}{subject}"), kind);
            assert!(before.is_none(), "two jobs of one subject: {status}");
        }
    }
    ends
}

/// A job that takes some two seconds.
pub fn job(subject: &str, queue: &str) -> Value {
    json!({ "type": "job.submitted", "subject": subject,
        "data": { "queue": queue, "gang": { "each": { "cpu": 0.01 } }, "simulation": { "durationS": 0.05 } } })
}

/// The original bytes in a line of rejected events, or in the data of what is sent of it.
pub fn original(line: &Value) -> Vec<u8> {
    match (line["event"].as_str(), line["eventBase64"].as_str()) {
        (Some(text), None) => text.as_bytes().to_vec(),
        (None, Some(text)) => STANDARD.decode(text).expect("base64"),
        other => panic!("one of both: {other:?} in {line}"),
    }
}

/// `GET /v1/sources`.
pub fn sources(server: &Server) -> Vec<Value> {
    let (status, found) = ask_json(server, "ops", "GET", "/v1/sources", None);
    assert_eq!(status, 200, "{found}");
    found["sources"].as_array().cloned().expect("sources")
}

/// One of them, by its direction and the start of its name.
pub fn source(server: &Server, direction: &str, name: &str) -> Value {
    let all = sources(server);
    let is = |one: &&Value| one["direction"] == direction && one["name"].as_str().is_some_and(|n| n.starts_with(name));
    all.iter().find(is).cloned().unwrap_or_else(|| panic!("no {direction} {name} in {all:?}"))
}

/// Waits for it; what it last said stands in the failure.
///
/// # Panics
/// After 90 s.
pub fn wait_until<T>(what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let end = Instant::now() + LIMIT;
    loop {
        match look() {
            Ok(found) => return found,
            Err(last) => assert!(Instant::now() < end, "waited in vain for {what}: {last}"),
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// The token that a run reports with, as its worker was given it.
pub fn run_token(data: &Path, job: &str, attempt: u64) -> String {
    let key = std::fs::read_to_string(data.join("attempt.key")).expect("the controller's key");
    let key = blake3::Hash::from_hex(key.trim_end()).expect("64 digits");
    let hash = blake3::keyed_hash(key.as_bytes(), format!("{job}/attempt-{attempt}").as_bytes());
    hash.to_hex().chars().take(32).collect()
}

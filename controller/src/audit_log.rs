//! The audit log: who did what by hand, from where, and who was refused. One JSON object a line, in the journal's folder.
//!
//! ```text
//! a start, a handler, a refusal --AuditLog (bounded)--> a thread --> audit.jsonl            what was done; kept
//!                                                             '----> audit-refused.jsonl    refusals, one line a caller and minute; two files of 16 MiB
//! ```
//!
//! The journal has each act too, with its author. This is where people look for it, with the address that it came from.
//!
//! Never: keeps a request waiting for a disk; a token; more than a bounded amount about refusals, whoever sends them.

use crate::clock::{instant, now_ms};
use crate::files::private;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// What was done.
pub const ACTS: &str = "audit.jsonl";
/// Who was refused.
pub const REFUSALS: &str = "audit-refused.jsonl";

/// Entries that wait for the disk. Beyond them they are counted, and the count is written.
const WAITING: usize = 1024;
/// The same refusal of the same caller is written once in so long, with its count.
const REFUSALS_EVERY: Duration = Duration::from_secs(60);
/// Refusals that are told apart in that time.
const MOST_REFUSALS: usize = 1024;
/// The size at which the file of refusals begins anew; the one before is kept.
const MOST_BYTES: u64 = 16 << 20;

/// Who did something, from where.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Author {
    /// The tenant and the name of the token, or the user of the process. Absent: nobody who is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The address that it came from. Absent: it was done on the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Whom a trusted proxy names as the caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forwarded_for: Option<String>,
}

/// One line of what was done.
#[derive(Serialize)]
struct ActLine<'a> {
    at: String,
    act: &'a str,
    #[serde(flatten)]
    author: &'a Author,
    #[serde(skip_serializing_if = "Value::is_null")]
    what: &'a Value,
}

/// One line of refusals.
#[derive(Serialize)]
struct RefusalLine<'a> {
    at: String,
    #[serde(flatten)]
    refusal: &'a Refusal,
    count: u64,
}

/// A refusal, as far as it is told from others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Refusal {
    code: String,
    path: String,
    #[serde(flatten)]
    author: Author,
}

enum Entry {
    Act { act: &'static str, author: Author, what: Value },
    Refused(Refusal),
}

/// Where acts are told. Its copies share it; all is written when the last one is gone and the thread has ended.
#[derive(Clone)]
pub struct AuditLog {
    entries: SyncSender<Entry>,
    dropped: Arc<AtomicU64>,
}

impl Author {
    /// Whoever started this process.
    #[must_use]
    pub fn of_process() -> Author {
        #[cfg(unix)]
        let by = {
            use std::os::unix::fs::MetadataExt as _;
            std::fs::metadata("/proc/self").ok().map(|process| format!("uid {}", process.uid()))
        };
        #[cfg(not(unix))]
        let by = None;
        Author { by, ..Author::default() }
    }
}

impl AuditLog {
    /// Opens the log of a folder.
    ///
    /// # Errors
    /// A file cannot be opened, or there is no thread.
    pub fn open(folder: &Path) -> io::Result<(AuditLog, JoinHandle<()>)> {
        let (entries, receiver) = sync_channel(WAITING);
        let dropped = Arc::new(AtomicU64::new(0));
        let writer = Writer {
            acts: append(&folder.join(ACTS))?,
            refusals_at: folder.join(REFUSALS),
            refusals: BTreeMap::new(),
            dropped: Arc::clone(&dropped),
            failed: false,
        };
        let thread = std::thread::Builder::new().name("audit".to_owned()).spawn(move || writer.run(&receiver))?;
        Ok((AuditLog { entries, dropped }, thread))
    }

    /// Something was done.
    pub fn act(&self, act: &'static str, author: Author, what: Value) {
        self.send(Entry::Act { act, author, what });
    }

    /// Somebody was refused, for this code.
    pub fn refused(&self, code: &str, path: &str, author: Author) {
        self.send(Entry::Refused(Refusal { code: code.to_owned(), path: path.to_owned(), author }));
    }

    fn send(&self, entry: Entry) {
        if self.entries.try_send(entry).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

struct Writer {
    acts: File,
    refusals_at: PathBuf,
    /// Since the last time that they were written.
    refusals: BTreeMap<Refusal, u64>,
    dropped: Arc<AtomicU64>,
    failed: bool,
}

impl Writer {
    fn run(mut self, entries: &Receiver<Entry>) {
        let mut due = std::time::Instant::now() + REFUSALS_EVERY;
        loop {
            let left = due.saturating_duration_since(std::time::Instant::now());
            let entry = entries.recv_timeout(left);
            let ended = matches!(entry, Err(RecvTimeoutError::Disconnected));
            let written = match entry {
                Ok(Entry::Act { act, author, what }) => self.write_act(act, &author, &what),
                Ok(Entry::Refused(refusal)) => self.note(refusal),
                Err(_) => Ok(()),
            };
            let flushed = if ended || left.is_zero() {
                due = std::time::Instant::now() + REFUSALS_EVERY;
                self.flush()
            } else {
                Ok(())
            };
            self.judge(written.and(flushed));
            if ended {
                return;
            }
        }
    }

    fn write_act(&mut self, act: &str, author: &Author, what: &Value) -> io::Result<()> {
        line(&mut self.acts, &ActLine { at: now(), act, author, what })
    }

    /// The first of its kind is written at once, the next ones are counted.
    fn note(&mut self, refusal: Refusal) -> io::Result<()> {
        if let Some(count) = self.refusals.get_mut(&refusal) {
            *count += 1;
            return Ok(());
        }
        if self.refusals.len() >= MOST_REFUSALS {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        let written = self.write_refusals(&[(refusal.clone(), 1)]);
        self.refusals.insert(refusal, 0);
        written
    }

    /// What was counted since is written.
    fn flush(&mut self) -> io::Result<()> {
        let counted: Vec<(Refusal, u64)> =
            std::mem::take(&mut self.refusals).into_iter().filter(|(_, count)| *count > 0).collect();
        let written = if counted.is_empty() { Ok(()) } else { self.write_refusals(&counted) };
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            let what = serde_json::json!({ "entries": dropped });
            self.write_act("not written", &Author::default(), &what)?;
        }
        written
    }

    fn write_refusals(&self, refusals: &[(Refusal, u64)]) -> io::Result<()> {
        if std::fs::metadata(&self.refusals_at).is_ok_and(|file| file.len() >= MOST_BYTES) {
            std::fs::rename(&self.refusals_at, self.refusals_at.with_extension("jsonl.1"))?;
        }
        let mut file = append(&self.refusals_at)?;
        refusals
            .iter()
            .try_for_each(|(refusal, count)| line(&mut file, &RefusalLine { at: now(), refusal, count: *count }))
    }

    /// A log that cannot be written is said once, until it can.
    fn judge(&mut self, written: io::Result<()>) {
        if let Err(error) = &written
            && !self.failed
        {
            tracing::error!(
                "the audit log cannot be written: {error}; what was done by hand is in the journal all the same"
            );
        }
        self.failed = written.is_err();
    }
}

fn append(path: &Path) -> io::Result<File> {
    private(OpenOptions::new().append(true).create(true)).open(path)
}

/// One write a line, so that none is cut by another.
fn line(file: &mut File, value: &impl Serialize) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(value)?;
    bytes.push(b'\n');
    file.write_all(&bytes)
}

fn now() -> String {
    instant(now_ms()).map_or_else(String::new, |at| format!("{at:.3}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn lines(path: &Path) -> Vec<Value> {
        let text = std::fs::read_to_string(path).expect("reads");
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    fn from(address: &str) -> Author {
        Author { by: Some("default/on-call".into()), from: Some(address.into()), forwarded_for: None }
    }

    #[test]
    fn acts_are_lines_and_refusals_are_counted() {
        let folder = tempfile::tempdir().expect("a folder");
        let (log, thread) = AuditLog::open(folder.path()).expect("opened");
        log.act("cancel", from("10.0.0.1"), json!({"job": "job-1"}));
        log.act("start", Author::default(), Value::Null);
        for _ in 0..100 {
            log.refused("UnknownToken", "/v1/jobs", Author { by: None, ..from("10.0.0.9") });
        }
        drop(log);
        thread.join().expect("ended");
        let acts = lines(&folder.path().join(ACTS));
        assert_eq!(
            (&acts[0]["act"], &acts[0]["by"], &acts[0]["from"]),
            (&json!("cancel"), &json!("default/on-call"), &json!("10.0.0.1"))
        );
        assert_eq!((&acts[0]["what"]["job"], acts[1].get("what")), (&json!("job-1"), None));
        let refused = lines(&folder.path().join(REFUSALS));
        let counts: Vec<_> = refused.iter().map(|line| line["count"].as_u64().expect("a count")).collect();
        assert_eq!((counts, &refused[1]["code"]), (vec![1, 99], &json!("UnknownToken")));
    }

    #[test]
    fn whoever_is_refused_fills_no_disk() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(REFUSALS);
        File::create(&path).expect("created").set_len(MOST_BYTES).expect("sized");
        let (log, thread) = AuditLog::open(folder.path()).expect("opened");
        for number in 0..3 * MOST_REFUSALS {
            log.refused("UnknownToken", "/", from(&number.to_string()));
            std::thread::yield_now();
        }
        drop(log);
        thread.join().expect("ended");
        // Those that were not told apart, or for which the disk was too slow, are counted where acts are.
        let acts = lines(&folder.path().join(ACTS));
        assert_eq!(acts[0]["act"], "not written");
        let written = lines(&path).len() as u64;
        assert_eq!(written + acts[0]["what"]["entries"].as_u64().expect("a count"), 3 * MOST_REFUSALS as u64);
        assert!(written <= MOST_REFUSALS as u64, "{written}");
        assert_eq!(std::fs::metadata(path.with_extension("jsonl.1")).expect("kept").len(), MOST_BYTES);
    }
}

//! Logs of workers: from the cluster while their pods are there, from the archive afterwards.
//!
//! ```text
//! API --LogRequest--> the cluster's task (bounded, with a budget) -> pods, their logs
//!  '--> archive, for workers that have no pod any more or whose log cannot be read
//! ```
//!
//! Never: the machine's task waits for a log; more than [`MOST_WORKERS`] logs in one answer.

use super::log_archive::{KeptLog, LogArchive, LogKey};
use super::questions::{Question, Questions};
use forebay_kernel::ids::{Attempt, JobId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::mpsc;

/// Logs in one answer: 4 MiB of text.
pub const MOST_WORKERS: usize = 64;
/// Requests that wait for the cluster.
const WAITING: usize = 64;
/// The longest time that one answer of the cluster takes.
const LIVE_BUDGET: Duration = Duration::from_secs(45);

/// Where a log comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LogSource {
    /// From the pod.
    Live,
    /// From the archive.
    Archive,
}

/// The end of a worker's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerLog {
    /// The number of the worker.
    pub worker: u32,
    /// Where it comes from.
    pub source: LogSource,
    /// The last lines.
    pub text: String,
    /// Whether there was more before them.
    pub truncated: bool,
    /// Why there is no text. Absent where it could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Which logs are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogsWanted {
    /// The job.
    pub job: JobId,
    /// Its attempt.
    pub attempt: Attempt,
    /// One worker alone. `None`: all.
    pub worker: Option<u32>,
    /// The last lines, at most.
    pub lines: u32,
}

/// What there is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogsFound {
    /// By the numbers of the workers.
    pub workers: Vec<WorkerLog>,
    /// Workers that are left out, because there are too many.
    pub omitted: usize,
    /// Why the cluster could not be asked.
    pub why: Option<String>,
}

/// A question of the API for logs.
pub type LogRequest = Question<LogsWanted, LogsFound>;

/// Where logs are asked for. Its copies share it.
#[derive(Clone, Debug)]
pub struct ClusterLogs {
    requests: Questions<LogsWanted, LogsFound>,
    archive: LogArchive,
}

impl ClusterLogs {
    /// With the archive of a journal, and where requests come out.
    #[must_use]
    pub fn new(archive: LogArchive) -> (ClusterLogs, mpsc::Receiver<LogRequest>) {
        let (requests, receiver) = Questions::new(WAITING, LIVE_BUDGET, "too many logs are being read; ask again");
        (ClusterLogs { requests, archive }, receiver)
    }

    /// Reads logs.
    pub async fn read(&self, wanted: LogsWanted) -> LogsFound {
        let (mut found, why) = match self.requests.ask(wanted).await {
            Ok(found) => (found, None),
            Err(why) => (LogsFound::default(), Some(why)),
        };
        found.why = why;
        let have: BTreeSet<u32> = found.workers.iter().filter(|log| log.why.is_none()).map(|log| log.worker).collect();
        let archive = self.archive.clone();
        let kept = tokio::task::spawn_blocking(move || kept(&archive, wanted, &have)).await;
        let kept = match kept {
            Ok(Ok(kept)) => kept,
            Ok(Err(error)) => return LogsFound { why: found.why.or(Some(format!("the archive: {error}"))), ..found },
            Err(_) => return found,
        };
        merged(found, kept)
    }
}

/// What the archive has beside those that are there.
fn kept(archive: &LogArchive, wanted: LogsWanted, have: &BTreeSet<u32>) -> std::io::Result<Vec<(u32, KeptLog)>> {
    let LogsWanted { job, attempt, worker, .. } = wanted;
    let workers = match worker {
        Some(worker) => BTreeSet::from([worker]),
        None => archive.workers(job, attempt)?,
    };
    let mut found = Vec::new();
    for worker in workers.into_iter().filter(|worker| !have.contains(worker)).take(MOST_WORKERS) {
        if let Some(mut log) = archive.read(LogKey { job, attempt, worker })? {
            last_lines(&mut log, wanted.lines);
            found.push((worker, log));
        }
    }
    Ok(found)
}

/// Both, by worker; where the cluster could not read one, the archive's.
fn merged(found: LogsFound, kept: Vec<(u32, KeptLog)>) -> LogsFound {
    let mut all: BTreeMap<u32, WorkerLog> = found.workers.into_iter().map(|log| (log.worker, log)).collect();
    for (worker, KeptLog { text, truncated, why }) in kept {
        if why.is_none() || !all.contains_key(&worker) {
            all.insert(worker, WorkerLog { worker, source: LogSource::Archive, text, truncated, why });
        }
    }
    let omitted = found.omitted + all.len().saturating_sub(MOST_WORKERS);
    LogsFound { workers: all.into_values().take(MOST_WORKERS).collect(), omitted, why: found.why }
}

fn last_lines(log: &mut KeptLog, lines: u32) {
    let body = log.text.strip_suffix('\n').unwrap_or(&log.text);
    let before = (lines as usize).saturating_sub(1);
    if let Some((at, _)) = body.rmatch_indices('\n').nth(before) {
        log.text.drain(..=at);
        log.truncated = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(worker: Option<u32>, lines: u32) -> LogsWanted {
        LogsWanted { job: JobId(1), attempt: Attempt(2), worker, lines }
    }

    fn live(worker: u32, text: &str, why: Option<&str>) -> WorkerLog {
        WorkerLog { worker, source: LogSource::Live, text: text.into(), truncated: false, why: why.map(str::to_owned) }
    }

    fn keep(archive: &LogArchive, worker: u32, text: &str, why: Option<&str>) {
        let log = KeptLog { text: text.into(), truncated: false, why: why.map(str::to_owned) };
        archive.keep(LogKey { job: JobId(1), attempt: Attempt(2), worker }, &log).unwrap();
    }

    /// A cluster that answers once.
    fn cluster(mut requests: mpsc::Receiver<LogRequest>, answer: Result<LogsFound, String>) {
        tokio::spawn(async move {
            if let Some(request) = requests.recv().await {
                let _ = request.answer.send(answer);
            }
        });
    }

    #[tokio::test]
    async fn what_the_cluster_has_comes_first_and_the_archive_fills_in() {
        let folder = tempfile::tempdir().unwrap();
        let archive = LogArchive::new(folder.path());
        keep(&archive, 0, "old\n", None);
        keep(&archive, 1, "kept\n", None);
        keep(&archive, 2, "one\ntwo\nthree\n", None);
        keep(&archive, 3, "", Some("no node"));
        let (logs, requests) = ClusterLogs::new(archive);
        let workers = vec![live(0, "new\n", None), live(1, "", Some("gone")), live(3, "", Some("pod is gone"))];
        cluster(requests, Ok(LogsFound { workers, ..LogsFound::default() }));
        let found = logs.read(wanted(None, 2)).await;
        let texts: Vec<_> = found.workers.iter().map(|log| (log.worker, log.source, log.text.as_str())).collect();
        let (pod, kept) = (LogSource::Live, LogSource::Archive);
        assert_eq!(texts, [(0, pod, "new\n"), (1, kept, "kept\n"), (2, kept, "two\nthree\n"), (3, pod, "")]);
        assert!(found.workers[2].truncated && found.workers[3].why.as_deref() == Some("pod is gone"));
    }

    #[tokio::test]
    async fn without_the_cluster_the_archive_answers_and_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let archive = LogArchive::new(folder.path());
        keep(&archive, 5, "x\n", None);
        let (logs, requests) = ClusterLogs::new(archive);
        drop(requests);
        let found = logs.read(wanted(Some(5), 9)).await;
        assert_eq!((found.workers.len(), found.workers[0].text.as_str(), found.why.is_some()), (1, "x\n", true));
        assert_eq!(logs.read(wanted(Some(6), 9)).await.workers, []);
    }

    #[tokio::test]
    async fn an_answer_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let (logs, requests) = ClusterLogs::new(LogArchive::new(folder.path()));
        let workers = (0..100).map(|worker| live(worker, "x", None)).collect();
        cluster(requests, Ok(LogsFound { workers, omitted: 7, why: None }));
        let found = logs.read(wanted(None, 9)).await;
        assert_eq!((found.workers.len(), found.omitted), (MOST_WORKERS, 43));
    }
}

//! Logs from the cluster: read for whoever asks, and kept when a run ends.
//!
//! ```text
//! LogRequest --8 at a time--> pods of the attempt -> the log of each -> answer
//! a run, or a worker of it, has ended --one attempt at a time--> the logs of its workers that have ended -> archive
//! ```
//!
//! A pod that was deleted keeps its finalizer until the outcome of its attempt is journaled: its log is read in that time, mostly. What cannot be read
//! is kept as the reason.
//! Never: waits with the machine; more than [`MOST_KEPT`] logs of one attempt kept.

use crate::cluster::log_archive::{KeptLog, LogArchive, LogKey};
use crate::cluster::logs::{LogRequest, LogSource, LogsFound, LogsWanted, MOST_WORKERS, WorkerLog};
use crate::cluster::questions;
use forebay_cluster_kube::RunId;
use forebay_cluster_kube::client::{KubeClient, LogTail, MOST_LINES, WorkerPod};
use std::collections::BTreeSet;
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinSet;

/// Requests that are served at a time.
const AT_ONCE: usize = 8;
/// Logs that are read at a time for one answer.
const SIDE_BY_SIDE: usize = 8;
/// Logs that are kept of one attempt: 16 MiB. Gangs are up to 16,384 workers, which mostly say the same.
const MOST_KEPT: usize = 256;

/// Attempts that are taken from the queue at once.
const TOLD: usize = 1024;

/// Whom to ask, and where logs are kept.
#[derive(Clone)]
pub(super) struct LogReader {
    pub client: KubeClient,
    pub journal: String,
    pub archive: LogArchive,
}

impl LogReader {
    /// Serves requests until nobody asks any more.
    pub(super) async fn serve(self, requests: Receiver<LogRequest>) {
        let answer_to = |wanted: LogsWanted| {
            let reader = self.clone();
            async move { reader.find(wanted).await }
        };
        questions::serve(requests, AT_ONCE, answer_to).await;
    }

    async fn find(&self, wanted: LogsWanted) -> Result<LogsFound, String> {
        let run = RunId { job: wanted.job, attempt: wanted.attempt };
        let mut pods = self.client.worker_pods(&self.journal, run).await.map_err(|e| e.to_string())?;
        pods.retain(|pod| wanted.worker.is_none_or(|worker| pod.worker.worker == worker));
        let omitted = pods.len().saturating_sub(MOST_WORKERS);
        pods.truncate(MOST_WORKERS);
        let mut workers = Vec::new();
        for some in pods.chunks(SIDE_BY_SIDE) {
            workers.extend(self.read(some, wanted.lines).await);
        }
        Ok(LogsFound { workers, omitted, why: None })
    }

    /// Some logs, side by side.
    async fn read(&self, pods: &[WorkerPod], lines: u32) -> Vec<WorkerLog> {
        let mut tasks = JoinSet::new();
        for pod in pods.iter().cloned() {
            let client = self.client.clone();
            tasks.spawn(async move {
                let read = log(&client, &pod, lines).await;
                let why = read.as_ref().err().cloned();
                let LogTail { text, truncated } = read.unwrap_or(LogTail { text: String::new(), truncated: false });
                WorkerLog { worker: pod.worker.worker, source: LogSource::Live, text, truncated, why }
            });
        }
        let mut logs = tasks.join_all().await;
        logs.sort_by_key(|log| log.worker);
        logs
    }

    /// Keeps the logs of workers that have ended, until nobody says so any more. An attempt that is said several times meanwhile is looked at once.
    pub(super) async fn keep(self, mut ended: Receiver<RunId>) {
        let (mut some, mut runs) = (Vec::new(), BTreeSet::new());
        while ended.recv_many(&mut some, TOLD).await > 0 {
            runs.extend(some.drain(..));
            while let Some(run) = runs.pop_first() {
                if let Err(why) = self.keep_run(run).await {
                    tracing::warn!("kubernetes: the logs of {run} are not kept: {why}");
                }
            }
        }
    }

    async fn keep_run(&self, run: RunId) -> Result<(), String> {
        let archive = self.archive.clone();
        let kept = tokio::task::spawn_blocking(move || archive.workers(run.job, run.attempt)).await;
        let kept = kept.map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
        let room = MOST_KEPT.saturating_sub(kept.len());
        if room == 0 {
            return Ok(());
        }
        let mut pods = self.client.worker_pods(&self.journal, run).await.map_err(|e| e.to_string())?;
        pods.retain(|pod| pod.ended && !kept.contains(&pod.worker.worker));
        pods.truncate(room);
        for some in pods.chunks(SIDE_BY_SIDE) {
            let logs = self.read(some, MOST_LINES).await;
            let archive = self.archive.clone();
            let written = tokio::task::spawn_blocking(move || {
                logs.into_iter().try_for_each(|WorkerLog { worker, text, truncated, why, .. }| {
                    let key = LogKey { job: run.job, attempt: run.attempt, worker };
                    archive.keep(key, &KeptLog { text, truncated, why })
                })
            });
            written.await.map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
        }
        Ok(())
    }
}

async fn log(client: &KubeClient, pod: &WorkerPod, lines: u32) -> Result<LogTail, String> {
    if !pod.started {
        return Err(format!("its container {} has not started", pod.container));
    }
    client.log(pod, lines).await.map_err(|error| error.to_string())
}

//! Logs from the cluster: read for whoever asks, and kept when a run ends.
//!
//! ```text
//! LogRequest --8 at a time--> pods of the attempt -> the log of each -> answer
//! a run, or a worker of it, has ended --8 attempts at a time--> the logs of its workers that have ended -> archive
//!                                                                                                          '-> the machine: their pods may go
//! ```
//!
//! A pod that was deleted keeps its finalizer until its log was taken, and 30 s at most. What cannot be read is tried again, and then kept as the reason.
//! Never: waits with the machine; more than [`MOST_KEPT`] logs of one attempt kept.

use crate::cluster::log_archive::{KeptLog, LogArchive, LogKey};
use crate::cluster::logs::{LogRequest, LogSource, LogsFound, LogsWanted, MOST_WORKERS, WorkerLog};
use crate::cluster::questions;
use backon::{ConstantBuilder, Retryable as _};
use forebay_cluster_kube::RunId;
use forebay_cluster_kube::client::{KubeClient, LogTail, MOST_LINES, MachineCommand, WorkerPod};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, WeakSender};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Requests that are served at a time, and attempts whose logs are kept.
const AT_ONCE: usize = 8;
/// Logs that are read at a time for one answer.
const SIDE_BY_SIDE: usize = 8;
/// Logs that are kept of one attempt: 16 MiB. Gangs are up to 16,384 workers, which mostly say the same.
const MOST_KEPT: usize = 256;

/// Attempts that wait beside those in the queue.
const MOST_WAITING: usize = 1024;

/// A log that is to be kept is tried again after this, so often, and for this long.
const READ_RETRY: Duration = Duration::from_secs(1);
const READ_RETRIES: usize = 3;
const READ_BUDGET: Duration = Duration::from_secs(20);

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
            workers.extend(self.read(some, wanted.lines, false).await);
        }
        Ok(LogsFound { workers, omitted, why: None })
    }

    /// Some logs, side by side. `again`: what cannot be read is tried again.
    async fn read(&self, pods: &[WorkerPod], lines: u32, again: bool) -> Vec<WorkerLog> {
        let mut tasks = JoinSet::new();
        for pod in pods.iter().cloned() {
            let client = self.client.clone();
            tasks.spawn(async move {
                let read = if again && pod.started {
                    patiently(&client, &pod, lines).await
                } else {
                    log(&client, &pod, lines).await
                };
                let why = read.as_ref().err().cloned();
                let LogTail { text, truncated } = read.unwrap_or(LogTail { text: String::new(), truncated: false });
                WorkerLog { worker: pod.worker.worker, source: LogSource::Live, text, truncated, why }
            });
        }
        let mut logs = tasks.join_all().await;
        logs.sort_by_key(|log| log.worker);
        logs
    }

    /// Keeps the logs of workers that have ended, and tells the machine, until nobody says so any more. An attempt that is said several times meanwhile
    /// is looked at once.
    pub(super) async fn keep(self, mut ended: Receiver<RunId>, machine: WeakSender<MachineCommand>) {
        let (mut waiting, mut busy) = (BTreeSet::new(), BTreeSet::new());
        let (mut tasks, mut open) = (JoinSet::new(), true);
        while open || !waiting.is_empty() || !tasks.is_empty() {
            while tasks.len() < AT_ONCE
                && let Some(run) = waiting.iter().find(|run| !busy.contains(*run)).copied()
            {
                waiting.remove(&run);
                busy.insert(run);
                let (reader, machine) = (self.clone(), machine.clone());
                tasks.spawn(async move {
                    reader.keep_and_tell(run, &machine).await;
                    run
                });
            }
            tokio::select! {
                told = ended.recv(), if open && waiting.len() < MOST_WAITING => match told {
                    Some(run) => {
                        waiting.insert(run);
                    }
                    None => open = false,
                },
                Some(done) = tasks.join_next() => match done {
                    Ok(run) => {
                        busy.remove(&run);
                    }
                    Err(error) => std::panic::resume_unwind(error.into_panic()),
                },
            }
        }
    }

    async fn keep_and_tell(&self, run: RunId, machine: &WeakSender<MachineCommand>) {
        let workers = match (|| self.keep_run(run)).retry(retries()).await {
            Ok(workers) => workers,
            Err(why) => {
                tracing::warn!("kubernetes: the logs of {run} are not kept: {why}");
                None
            }
        };
        if let Some(machine) = machine.upgrade() {
            // It has ended: nothing waits for logs any more.
            let _ = machine.send(MachineCommand::LogsTaken(run, workers)).await;
        }
    }

    /// Keeps the logs of the workers of an attempt that have ended. Returns which those are. `None`: no more of this attempt are kept.
    async fn keep_run(&self, run: RunId) -> Result<Option<BTreeSet<u32>>, String> {
        let archive = self.archive.clone();
        let kept = tokio::task::spawn_blocking(move || archive.workers(run.job, run.attempt)).await;
        let kept = kept.map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
        let room = MOST_KEPT.saturating_sub(kept.len());
        if room == 0 {
            return Ok(None);
        }
        let mut pods = self.client.worker_pods(&self.journal, run).await.map_err(|e| e.to_string())?;
        pods.retain(|pod| pod.ended);
        let ended = pods.iter().map(|pod| pod.worker.worker).collect();
        pods.retain(|pod| !kept.contains(&pod.worker.worker));
        pods.truncate(room);
        for some in pods.chunks(SIDE_BY_SIDE) {
            let logs = self.read(some, MOST_LINES, true).await;
            let archive = self.archive.clone();
            let written = tokio::task::spawn_blocking(move || {
                logs.into_iter().try_for_each(|WorkerLog { worker, text, truncated, why, .. }| {
                    let key = LogKey { job: run.job, attempt: run.attempt, worker };
                    archive.keep(key, &KeptLog { text, truncated, why })
                })
            });
            written.await.map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
        }
        Ok(Some(ended))
    }
}

/// The log of a worker that has ended, tried again for [`READ_BUDGET`].
async fn patiently(client: &KubeClient, pod: &WorkerPod, lines: u32) -> Result<LogTail, String> {
    let mut last = format!("no complete log within {} s", READ_BUDGET.as_secs());
    let read = (|| log(client, pod, lines)).retry(retries()).notify(|why: &String, _| last.clone_from(why));
    let read = timeout(READ_BUDGET, read).await;
    read.unwrap_or(Err(last))
}

fn retries() -> ConstantBuilder {
    ConstantBuilder::new().with_delay(READ_RETRY).with_max_times(READ_RETRIES)
}

async fn log(client: &KubeClient, pod: &WorkerPod, lines: u32) -> Result<LogTail, String> {
    if !pod.started {
        return Err(format!("its container {} has not started", pod.container));
    }
    client.log(pod, lines).await.map_err(|error| error.to_string())
}

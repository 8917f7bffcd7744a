//! Verifies the checkpoints that runs report: each counts once its files are found in the store, with the progress in its manifest.
//!
//! ```text
//! HTTP        -> verify_all: at most 30 s -> the event with the manifest's progress | `Unverified` | 503, to be sent again
//! Kafka, SQS  -> enqueue: the newest report of each job waits -> verify, delay, verify again -> posted to the driver, accepted or rejected
//! a start     -> every running job with an address, once: a report may have been lost with the earlier process
//! a run ended -> last_saved: its latest checkpoint, if the store has more than is known
//! ```
//!
//! Without `checkpoints:` in the configuration, reports are trusted. Those of the embedded cluster never come here. Progress that the store does
//! not have never counts, and a store without a response never means that there is no checkpoint. Other events do not wait for verification.

mod last_saved;
#[cfg(not(feature = "s3"))]
mod not_built;
mod pending;
#[cfg(feature = "s3")]
mod store;
#[cfg(all(test, feature = "s3"))]
mod tests;

#[cfg(not(feature = "s3"))]
use not_built as store;

use crate::config::Config;
use crate::config::secret::SecretError;
use crate::driver::{DriverHandle, DriverStopped, MailboxError};
use forebay_engine::engine::Engine;
use forebay_kernel::event::Event;
use forebay_kernel::ids::{Attempt, JobId};
use forebay_kernel::state::State;
use forebay_kernel::units::Span;
use forebay_wire::intake::{RejectCode, Rejected, checkpoint_uri};
pub use pending::PendingMessage;
use pending::{PendingReport, PendingReports, ReportOrigin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use store::CheckpointStore;
pub use store::{check, probe};
use tokio::sync::Semaphore;

/// The most checkpoints that are verified concurrently. Each checks up to 16 files concurrently.
const MAX_CONCURRENT: usize = 8;

/// How long until the driver is asked again that was asked too much.
const BUSY_DELAY: Duration = Duration::from_secs(1);

/// How often it is asked for a run that has ended: its end waits for that.
const MAX_QUERIES: u32 = 5;

/// How long an HTTP request waits for verification at most.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// Why checkpoints cannot be verified.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointsError {
    /// An access key cannot be read.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// A setting is invalid.
    #[cfg(feature = "s3")]
    #[error(transparent)]
    Settings(#[from] forebay_checkpoint_s3::CheckpointSettingsError),
    /// This binary was built without the adapter.
    #[error("`checkpoints:` is configured, and this binary was built without it: build with `--features s3`")]
    NotBuilt,
}

/// Verifies checkpoints, or trusts reports without a store. It is cheap to clone.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// `None`: reports are trusted.
    store: Option<CheckpointStore>,
    handle: DriverHandle,
    pending: PendingReports,
    at_once: Semaphore,
    warned_unverified: AtomicBool,
    failing: AtomicBool,
}

/// The report of a run about its checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CheckpointReport {
    /// The job.
    pub job: JobId,
    /// The attempt of the job.
    pub attempt: Attempt,
    /// The key of the manifest below the job's `checkpoint.uri`. `None`: the latest one that counts.
    pub manifest: Option<String>,
}

/// The result of verifying a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckpointVerdict {
    /// It counts, with this much saved work.
    Accepted(Span),
    /// It does not count.
    Refused(Rejected),
    /// The store did not respond, with the reason.
    Unavailable(String),
    /// The attempt does not run any more, so the report has no effect.
    NotRunning,
}

/// The store's verdict on a checkpoint.
#[cfg_attr(not(feature = "s3"), expect(dead_code, reason = "nothing is verified in this binary"))]
enum StoreVerdict {
    /// It counts. `skipped` has the refusals of newer manifests.
    Accepted { progress: Span, skipped: Vec<String> },
    /// It does not count. `no_manifest`: there is no manifest yet.
    Refused { why: String, no_manifest: bool },
    /// The store did not respond.
    Unavailable { why: String },
}

/// A running attempt in the driver's state.
struct RunningAttempt {
    /// The `run` part of the job's specification, which has the address.
    run_spec: Vec<u8>,
    progress: Span,
}

/// The attempt, if it is the running one of its job.
fn running_attempt(state: &State, job: JobId, attempt: Attempt) -> Option<RunningAttempt> {
    let (row, spec) = state.job(job)?;
    let run_spec = || if spec.checkpoint.is_some() { spec.run.clone() } else { Vec::new() };
    (row.attempt == attempt && row.alive()).then(|| RunningAttempt { run_spec: run_spec(), progress: row.progress })
}

impl Checkpoints {
    /// Starts to verify with the configured store, first the latest checkpoint of every running job.
    ///
    /// # Errors
    /// A setting is invalid, or a secret cannot be read.
    pub fn start(
        config: &Config,
        handle: &DriverHandle,
        runtime: &tokio::runtime::Handle,
    ) -> Result<Checkpoints, CheckpointsError> {
        let this = Checkpoints::with(config.checkpoints.as_ref().map(CheckpointStore::open).transpose()?, handle);
        if this.inner.store.is_some() {
            runtime.spawn(this.clone().run());
        }
        Ok(this)
    }

    fn with(store: Option<CheckpointStore>, handle: &DriverHandle) -> Checkpoints {
        let inner = Inner {
            store,
            handle: handle.clone(),
            pending: PendingReports::default(),
            at_once: Semaphore::new(MAX_CONCURRENT),
            warned_unverified: AtomicBool::new(false),
            failing: AtomicBool::new(false),
        };
        Checkpoints { inner: Arc::new(inner) }
    }

    /// Trusts all reports, without a store.
    #[must_use]
    pub fn trusting(handle: &DriverHandle) -> Checkpoints {
        Checkpoints::with(None, handle)
    }

    /// Whether reports are verified before they count. If not, the first call logs it.
    #[must_use]
    pub fn verifies(&self) -> bool {
        let verifies = self.inner.store.is_some();
        if !verifies && !self.inner.warned_unverified.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "a run reported a checkpoint and is trusted: `checkpoints:` is not configured, so its files are not verified"
            );
        }
        verifies
    }

    /// Verifies the reports of a request in their order. Those that take too long are unavailable.
    ///
    /// # Errors
    /// The driver has stopped, or its mailbox is full.
    pub async fn verify_all(&self, reports: Vec<CheckpointReport>) -> Result<Vec<CheckpointVerdict>, MailboxError> {
        let mut verdicts = Vec::with_capacity(reports.len());
        let end = tokio::time::Instant::now() + RESPONSE_TIMEOUT;
        for report in reports {
            let late = || CheckpointVerdict::Unavailable(format!("not verified within {RESPONSE_TIMEOUT:?}"));
            let verdict = tokio::time::timeout_at(end, self.verify(&report)).await.unwrap_or_else(|_| Ok(late()))?;
            self.record_outcome(&verdict);
            verdicts.push(verdict);
        }
        Ok(verdicts)
    }

    /// Enqueues the report of a source's message until it is accepted or refused, or its run is over.
    pub fn enqueue(&self, report: CheckpointReport, message: PendingMessage) {
        self.inner.pending.insert(PendingReport::new(report, ReportOrigin::Source(Box::new(message))));
    }

    /// The number of reports that wait for verification.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.inner.pending.len()
    }

    async fn verify(&self, report: &CheckpointReport) -> Result<CheckpointVerdict, MailboxError> {
        let CheckpointReport { job, attempt, .. } = *report;
        let query = move |engine: &Engine, _: &_| running_attempt(engine.state(), job, attempt);
        let Some(running) = self.inner.handle.query_async(query).await? else {
            return Ok(CheckpointVerdict::NotRunning);
        };
        let Some(uri) = checkpoint_uri(&running.run_spec) else {
            let message =
                format!("{job} has no `checkpoint.uri`, so its checkpoints cannot be found; submit it with one");
            return Ok(refused(message));
        };
        Ok(match self.verify_at(&uri, report).await {
            StoreVerdict::Accepted { progress, .. } => CheckpointVerdict::Accepted(progress),
            StoreVerdict::Refused { why, .. } => refused(why),
            StoreVerdict::Unavailable { why } => CheckpointVerdict::Unavailable(why),
        })
    }

    async fn verify_at(&self, uri: &str, report: &CheckpointReport) -> StoreVerdict {
        let Some(store) = &self.inner.store else {
            return StoreVerdict::Unavailable { why: "`checkpoints:` is not configured".to_owned() };
        };
        // The semaphore is never closed.
        let _permit = self.inner.at_once.acquire().await;
        let verdict = store.verify(uri, report).await;
        if let StoreVerdict::Accepted { skipped, .. } = &verdict {
            skipped
                .iter()
                .for_each(|why| tracing::warn!(job = %report.job, "a newer checkpoint does not count: {why}"));
        }
        verdict
    }

    /// Logs when the store stops responding, and when it responds again.
    fn record_outcome(&self, verdict: &CheckpointVerdict) {
        match verdict {
            CheckpointVerdict::Unavailable(why) if !self.inner.failing.swap(true, Ordering::Relaxed) => {
                tracing::warn!("checkpoints cannot be verified: {why}; reports wait, and none is refused");
            }
            CheckpointVerdict::Accepted(_) if self.inner.failing.swap(false, Ordering::Relaxed) => {
                tracing::info!("checkpoints can be verified again");
            }
            _ => {}
        }
    }

    async fn run(self) {
        if self.enqueue_running_jobs().await.is_err() {
            return;
        }
        self.inner.pending.run(&self).await;
    }

    /// Enqueues every running job with an address. A driver that is asked too much is asked again, until it answers or has stopped.
    async fn enqueue_running_jobs(&self) -> Result<(), DriverStopped> {
        let saving = loop {
            let query = |engine: &Engine, _: &_| {
                let state = engine.state();
                let saving = state.open_job_ids().filter_map(|id| state.job(id));
                let saving = saving.filter(|(row, spec)| row.alive() && spec.checkpoint.is_some());
                saving.map(|(row, _)| (row.id, row.attempt)).collect::<Vec<_>>()
            };
            match self.inner.handle.query_async(query).await {
                Ok(saving) => break saving,
                Err(MailboxError::Stopped(stopped)) => return Err(stopped),
                Err(_) => tokio::time::sleep(BUSY_DELAY).await,
            }
        };
        for (job, attempt) in saving {
            let report = CheckpointReport { job, attempt, manifest: None };
            self.inner.pending.insert(PendingReport::new(report, ReportOrigin::Start));
        }
        Ok(())
    }

    /// The attempt, if it is the running one of its job. A driver that is asked too much is asked again a few times.
    async fn find_running(&self, job: JobId, attempt: Attempt) -> Option<RunningAttempt> {
        for _ in 0..MAX_QUERIES {
            let query = move |engine: &Engine, _: &_| running_attempt(engine.state(), job, attempt);
            match self.inner.handle.query_async(query).await {
                Ok(running) => return running,
                Err(MailboxError::Stopped(_)) => return None,
                Err(_) => tokio::time::sleep(BUSY_DELAY).await,
            }
        }
        tracing::warn!(%job, "the last checkpoint of its run is not looked for: the driver is asked too much");
        None
    }

    /// Verifies a pending report and posts the result. `None`: the driver has stopped.
    async fn settle(self, entry: PendingReport) -> Option<()> {
        let verdict = self.verify(&entry.report).await;
        verdict.iter().for_each(|verdict| self.record_outcome(verdict));
        let CheckpointReport { job, attempt, .. } = entry.report;
        let content = match verdict {
            Err(MailboxError::Stopped(DriverStopped)) => return None,
            // The store did not respond, or the driver's mailbox is full.
            Err(_) | Ok(CheckpointVerdict::Unavailable(_)) => {
                self.inner.pending.retry_later(entry);
                return Some(());
            }
            Ok(CheckpointVerdict::Accepted(progress)) => Ok(Event::RunCheckpointed { job, attempt, progress }),
            // The engine ignores it, like every report of a run that is over.
            Ok(CheckpointVerdict::NotRunning) => Ok(Event::RunCheckpointed { job, attempt, progress: Span::ZERO }),
            Ok(CheckpointVerdict::Refused(why)) => Err(why),
        };
        entry.origin.post(&self.inner.handle, job, content).await.ok()
    }
}

fn refused(message: String) -> CheckpointVerdict {
    CheckpointVerdict::Refused(Rejected::new(RejectCode::Unverified, "data.manifest", message))
}

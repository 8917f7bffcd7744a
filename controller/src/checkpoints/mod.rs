//! Checkpoints that runs report: each counts once it has been found in the store, with the progress that its manifest says.
//!
//! ```text
//! HTTP        -> judge: at most 30 s -> the event, with the manifest's progress | `Unverified` | 503, to be sent again
//! Kafka, SQS  -> keep: the newest of each job waits here -> look, pause, look again -> posted to the driver, counted or rejected
//! a new start -> every running job with an address, once: a report may have been lost with the process
//! a run ended -> complete: what it saved last, where its end does not say
//! ```
//!
//! Without `checkpoints:` in the configuration reports are believed. The embedded cluster's own never come through here.
//! Never: lets progress count that the store does not show, takes no answer for no checkpoint, or holds other events up for it.

#[cfg(not(feature = "s3"))]
mod absent;
mod complete;
#[cfg(feature = "s3")]
mod store;
#[cfg(all(test, feature = "s3"))]
mod tests;
mod waiting;

#[cfg(not(feature = "s3"))]
use absent as store;

use crate::config::Config;
use crate::config::secret::SecretError;
use crate::driver::{Busy, Handle, Stopped};
use crate::intake::{RejectCode, Rejected, checkpoint_uri};
use forebay_engine::engine::Engine;
use forebay_engine::event::Event;
use forebay_engine::ids::{Attempt, JobId};
use forebay_engine::state::State;
use forebay_engine::units::Span;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use store::{Looked, Store};
pub use store::{check, probe};
use tokio::sync::Semaphore;
pub use waiting::Letter;
use waiting::{Entry, Origin, Waiting};

/// Checkpoints that are looked at side by side. Each may look at 16 files at once.
const AT_ONCE: usize = 8;

/// So long whoever reports by HTTP waits at most.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// Why checkpoints cannot be looked at.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointsError {
    /// A key.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// Settings that cannot be.
    #[cfg(feature = "s3")]
    #[error(transparent)]
    Settings(#[from] forebay_checkpoint_s3::SettingsError),
    /// This binary was built without it.
    #[error("`checkpoints:` is configured, and this binary was built without it: build with `--features s3`")]
    NotBuilt,
}

/// Looks at checkpoints, or believes what is said of them. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// `None`: reports are believed.
    store: Option<Store>,
    handle: Handle,
    waiting: Waiting,
    at_once: Semaphore,
    said_believed: AtomicBool,
    failing: AtomicBool,
}

/// What a run says it has saved.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Report {
    /// Which job.
    pub job: JobId,
    /// Which run of it.
    pub attempt: Attempt,
    /// The manifest, from the job's `checkpoint.uri` on. `None`: the latest that counts.
    pub manifest: Option<String>,
}

/// What became of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// So much work is saved.
    Counts(Span),
    /// It does not count.
    Refused(Rejected),
    /// The store did not answer; why.
    Unknown(String),
    /// It is not of a run that is alive: there is nothing to count.
    Past,
}

/// What the driver knows of a run that is alive.
struct Standing {
    /// What its job's specification carries: the address is in it.
    carried: Vec<u8>,
    progress: Span,
}

/// A run, if it is the one alive of its job.
fn standing(state: &State, job: JobId, attempt: Attempt) -> Option<Standing> {
    let (row, spec) = state.job(job)?;
    let carried = || if spec.checkpoint.is_some() { spec.run.clone() } else { Vec::new() };
    (row.attempt == attempt && row.alive()).then(|| Standing { carried: carried(), progress: row.progress })
}

impl Checkpoints {
    /// Looks where the configuration says, from now on; first at what every running job has saved.
    ///
    /// # Errors
    /// The configuration cannot be.
    pub fn start(
        config: &Config,
        handle: &Handle,
        runtime: &tokio::runtime::Handle,
    ) -> Result<Checkpoints, CheckpointsError> {
        let this = Checkpoints::with(config.checkpoints.as_ref().map(Store::open).transpose()?, handle);
        if this.inner.store.is_some() {
            runtime.spawn(this.clone().work());
        }
        Ok(this)
    }

    fn with(store: Option<Store>, handle: &Handle) -> Checkpoints {
        let inner = Inner {
            store,
            handle: handle.clone(),
            waiting: Waiting::default(),
            at_once: Semaphore::new(AT_ONCE),
            said_believed: AtomicBool::new(false),
            failing: AtomicBool::new(false),
        };
        Checkpoints { inner: Arc::new(inner) }
    }

    /// Looks nowhere: what runs report is believed.
    #[must_use]
    pub fn believing(handle: &Handle) -> Checkpoints {
        Checkpoints::with(None, handle)
    }

    /// Whether reports are looked at before they count. That they are not is said once, when the first one comes.
    #[must_use]
    pub fn looks(&self) -> bool {
        let looks = self.inner.store.is_some();
        if !looks && !self.inner.said_believed.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "a run reported a checkpoint and is believed: `checkpoints:` is not configured, so that nobody looks whether it is there"
            );
        }
        looks
    }

    /// Looks at reports of one request, in their order. What has no answer in time is unknown.
    ///
    /// # Errors
    /// The driver does not answer.
    pub async fn judge(&self, reports: Vec<Report>) -> Result<Vec<Verdict>, Busy> {
        let mut verdicts = Vec::with_capacity(reports.len());
        let end = tokio::time::Instant::now() + ANSWER_WITHIN;
        for report in reports {
            let late = || Verdict::Unknown(format!("not looked at within {ANSWER_WITHIN:?}"));
            let verdict = tokio::time::timeout_at(end, self.look(&report)).await.unwrap_or_else(|_| Ok(late()))?;
            self.note(&verdict);
            verdicts.push(verdict);
        }
        Ok(verdicts)
    }

    /// Keeps what a source brought until it counts, is refused, or its run is over.
    pub fn keep(&self, report: Report, letter: Letter) {
        self.inner.waiting.keep(Entry::new(report, Origin::Source(Box::new(letter))));
    }

    /// How many reports and looks wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.inner.waiting.len()
    }

    async fn look(&self, report: &Report) -> Result<Verdict, Busy> {
        let Report { job, attempt, .. } = *report;
        let ask = move |engine: &Engine, _: &_| standing(engine.state(), job, attempt);
        let Some(standing) = self.inner.handle.query_async(ask).await? else { return Ok(Verdict::Past) };
        let Some(uri) = checkpoint_uri(&standing.carried) else {
            let message =
                format!("{job} has no `checkpoint.uri`, so that nothing of it can be found; submit it with one");
            return Ok(refused(message));
        };
        Ok(match self.look_at(&uri, report).await {
            Looked::Counts { progress, .. } => Verdict::Counts(progress),
            Looked::Refused { why, .. } => refused(why),
            Looked::Unknown { why } => Verdict::Unknown(why),
        })
    }

    async fn look_at(&self, uri: &str, report: &Report) -> Looked {
        let Some(store) = &self.inner.store else {
            return Looked::Unknown { why: "`checkpoints:` is not configured".to_owned() };
        };
        // The semaphore is never closed.
        let _turn = self.inner.at_once.acquire().await;
        let looked = store.look(uri, report).await;
        if let Looked::Counts { passed_over, .. } = &looked {
            passed_over
                .iter()
                .for_each(|why| tracing::warn!(job = %report.job, "a newer checkpoint does not count: {why}"));
        }
        looked
    }

    /// Says when the store stops answering, and when it does again.
    fn note(&self, verdict: &Verdict) {
        match verdict {
            Verdict::Unknown(why) if !self.inner.failing.swap(true, Ordering::Relaxed) => {
                tracing::warn!(
                    "checkpoints cannot be looked at: {why}; what is reported waits, nothing counts as lost"
                );
            }
            Verdict::Counts(_) if self.inner.failing.swap(false, Ordering::Relaxed) => {
                tracing::info!("checkpoints can be looked at again");
            }
            _ => {}
        }
    }

    async fn work(self) {
        if self.look_at_running_jobs().await.is_err() {
            return;
        }
        self.inner.waiting.work(&self).await;
    }

    /// Every running job with an address, once.
    async fn look_at_running_jobs(&self) -> Result<(), Busy> {
        let ask = |engine: &Engine, _: &_| {
            let state = engine.state();
            let saving = state.open_job_ids().filter_map(|id| state.job(id));
            let saving = saving.filter(|(row, spec)| row.alive() && spec.checkpoint.is_some());
            saving.map(|(row, _)| (row.id, row.attempt)).collect::<Vec<_>>()
        };
        for (job, attempt) in self.inner.handle.query_async(ask).await? {
            let report = Report { job, attempt, manifest: None };
            self.inner.waiting.keep(Entry::new(report, Origin::Start));
        }
        Ok(())
    }

    /// Looks at what waits, and says what became of it. `None`: the driver has stopped.
    async fn settle(self, entry: Entry) -> Option<()> {
        let looked = self.look(&entry.report).await;
        looked.iter().for_each(|verdict| self.note(verdict));
        let Report { job, attempt, .. } = entry.report;
        let content = match looked {
            Err(Busy::Stopped(Stopped)) => return None,
            // No answer, or the driver's mailbox is full.
            Err(_) | Ok(Verdict::Unknown(_)) => {
                self.inner.waiting.back(entry);
                return Some(());
            }
            Ok(Verdict::Counts(progress)) => Ok(Event::RunCheckpointed { job, attempt, progress }),
            // The engine ignores it, as every report of a run that is over.
            Ok(Verdict::Past) => Ok(Event::RunCheckpointed { job, attempt, progress: Span::ZERO }),
            Ok(Verdict::Refused(why)) => Err(why),
        };
        entry.origin.tell(&self.inner.handle, job, content).await.ok()
    }
}

fn refused(message: String) -> Verdict {
    Verdict::Refused(Rejected::new(RejectCode::Unverified, "data.manifest", message))
}

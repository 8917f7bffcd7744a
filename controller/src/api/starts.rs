//! When a waiting job is expected to start: a copy of the engine is taken between two batches and played on beside the loop.
//!
//! ```text
//! a question, or the sampler twice a minute -> copy (at most 50,000 rows) -> `forebay_estimate::start` (a second)     -> answer
//!                                                      the sampler's jobs, when they start -> how far off such estimates are
//! ```
//!
//! Never: more than one copy at once; a copy of a state so large that it would hold the loop.

use crate::driver::{DriverHandle, MailboxError, QueryContext};
use forebay_engine::engine::Engine;
use forebay_estimate::error::{ErrorSummary, StartErrors};
use forebay_estimate::position::position;
use forebay_estimate::start::{self, StartEstimate};
use forebay_kernel::ids::JobId;
use forebay_kernel::state::State;
use forebay_kernel::units::{Span, Timestamp};
use forebay_wire::document::seconds::Seconds;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Open jobs and nodes of a state that is copied. So many hold the loop for some 40 ms.
const MOST_ROWS: usize = 50_000;

/// For so long it is played on.
const PLAYED: Duration = Duration::from_secs(1);

/// For so long a question waits for the estimates before it.
const TURN: Duration = Duration::from_secs(3);

/// From one job that is sampled to the next.
const SAMPLED_EVERY: Duration = Duration::from_secs(30);

/// Samples pick jobs so far apart, in turn.
const STRIDE: u64 = 7919;

/// Where a waiting job stands and when it is expected to start.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct StartView {
    /// Seconds until its workers are expected to run, if all goes as usual and nothing else is submitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_in_s: Option<Seconds>,
    /// Eight of ten jobs of which so long a wait was estimated started not before this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earliest_in_s: Option<Seconds>,
    /// And not after this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest_in_s: Option<Seconds>,
    /// How many starts these two were learned from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starts: Option<usize>,
    /// How late these starts came, as a part of what was estimated, in the middle: 1.5 is half as long again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<f64>,
    /// Not within so many seconds: it was played on no further.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_s: Option<Seconds>,
    /// Why there is no time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
}

/// What a waiting job is told beside its reason.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Outlook {
    pub position: Option<u64>,
    pub start: Option<StartView>,
}

/// Estimates, and how far off they were since this process started.
#[derive(Debug)]
pub(super) struct Starts {
    errors: Mutex<StartErrors>,
    turn: Semaphore,
}

impl Default for Starts {
    fn default() -> Starts {
        Starts { errors: Mutex::default(), turn: Semaphore::new(1) }
    }
}

impl Starts {
    fn errors(&self) -> MutexGuard<'_, StartErrors> {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How far off estimates were on the whole.
    pub fn summary(&self) -> Option<ErrorSummary> {
        self.errors().summary()
    }

    /// Where a job stands and when it starts. Nothing is said of one that does not wait.
    pub async fn outlook(&self, handle: &DriverHandle, sender: &Arc<str>, id: JobId) -> Result<Outlook, MailboxError> {
        let ask = move |engine: &Engine, _: &QueryContext| {
            let state = engine.state();
            let waits = state.job(id).is_some_and(|(row, _)| start::waits(row));
            (waits, position(state, id), rows(state))
        };
        let (waits, position, rows) = handle.query_as(sender, ask).await?;
        if !waits {
            return Ok(Outlook::default());
        }
        if rows > MOST_ROWS {
            let unknown = format!("{rows} open jobs and nodes are more than are played on ({MOST_ROWS})");
            return Ok(Outlook { position, start: Some(StartView::unknown(unknown)) });
        }
        let Ok(Ok(_turn)) = tokio::time::timeout(TURN, self.turn.acquire()).await else {
            let unknown = "other estimates are being made: ask again".to_owned();
            return Ok(Outlook { position, start: Some(StartView::unknown(unknown)) });
        };
        let copied = handle.query_as(sender, move |engine, _| copied(engine, id)).await?;
        let Some((now, code, found)) = played(copied, id).await else { return Ok(Outlook { position, start: None }) };
        let start = match found {
            StartEstimate::At(at) => self.expected(code, at.since(now), now),
            StartEstimate::After(at) if at == now => {
                StartView::unknown("too much waits to be played on in a second".to_owned())
            }
            StartEstimate::After(at) => StartView { after_s: Some(at.since(now).into()), ..StartView::default() },
            StartEstimate::NotByItself => {
                let unknown = "nothing that is under way gives it what it lacks".to_owned();
                StartView::unknown(unknown)
            }
        };
        Ok(Outlook { position, start: Some(start) })
    }

    #[allow(clippy::cast_precision_loss, reason = "a ratio in thousandths, for people")]
    fn expected(&self, code: &str, estimated: Span, now: Timestamp) -> StartView {
        let Some(spread) = self.errors().spread(code, estimated, now) else {
            return StartView { expected_in_s: Some(estimated.into()), ..StartView::default() };
        };
        let interval = spread.interval(estimated);
        StartView {
            expected_in_s: Some(interval.expected.into()),
            earliest_in_s: Some(interval.earliest.into()),
            latest_in_s: Some(interval.latest.into()),
            starts: Some(spread.starts),
            error: Some(spread.median as f64 / 1000.0),
            ..StartView::default()
        }
    }

    /// Estimates a job's start now and then, and looks when it came.
    pub async fn follow(self: Arc<Starts>, handle: DriverHandle) {
        let mut every = tokio::time::interval(SAMPLED_EVERY);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        for nth in 0_u64.. {
            every.tick().await;
            match self.sample(&handle, nth).await {
                Err(MailboxError::Stopped(_)) => return,
                // Who is busy is asked the next time.
                Ok(()) | Err(MailboxError::Full { .. } | MailboxError::TooMany { .. }) => {}
            }
        }
    }

    async fn sample(self: &Arc<Starts>, handle: &DriverHandle, nth: u64) -> Result<(), MailboxError> {
        let Ok(_turn) = self.turn.acquire().await else { return Ok(()) };
        let this = Arc::clone(self);
        let ask = move |engine: &Engine, _: &QueryContext| {
            let mut errors = this.errors();
            errors.settle(engine.state());
            let id = sampled(engine.state(), &errors, nth)?;
            Some((id, copied(engine, id)))
        };
        let Some((id, copied)) = handle.query_async(ask).await? else { return Ok(()) };
        if let Some((now, code, StartEstimate::At(at))) = played(copied, id).await {
            self.errors().ask(id, code, now, at.since(now));
        }
        Ok(())
    }
}

impl StartView {
    fn unknown(why: String) -> StartView {
        StartView { unknown: Some(why), ..StartView::default() }
    }
}

fn rows(state: &State) -> usize {
    state.open_jobs() + state.nodes().count()
}

/// The engine, and what the job waits for.
fn copied(engine: &Engine, id: JobId) -> (Engine, &'static str) {
    (engine.clone(), engine.why(id).map_or("None", |reason| reason.code()))
}

/// A job that waits for its first start.
fn sampled(state: &State, errors: &StartErrors, nth: u64) -> Option<JobId> {
    if rows(state) > MOST_ROWS {
        return None;
    }
    let waiting: Vec<JobId> = start::wait_for_first(state).filter(|id| errors.takes(*id)).collect();
    let at = nth.wrapping_mul(STRIDE) % (waiting.len() as u64).max(1);
    waiting.get(usize::try_from(at).ok()?).copied()
}

/// Plays a copy on, on a thread that may take its time.
async fn played(copied: (Engine, &'static str), id: JobId) -> Option<(Timestamp, &'static str, StartEstimate)> {
    let (engine, code) = copied;
    let now = engine.state().now();
    let play = move || {
        let end = Instant::now() + PLAYED;
        start::of(engine, id, || Instant::now() < end)
    };
    let found = tokio::task::spawn_blocking(play).await.ok()?;
    Some((now, code, found))
}

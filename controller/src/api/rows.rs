//! The rows of all jobs at one instant, gone through beside the driver's loop: what is asked for is looked for here, within a budget.
//!
//! ```text
//! driver's thread: a pointer for each 64 jobs -> blocking thread: rows looked at, one after another -> which jobs
//! driver's thread: what is shown of them, 64 at a time, batches in between
//! ```
//!
//! Never: on the driver's thread for longer than that; more rows than a budget says.

use super::error::ApiError;
use super::{Api, visible};
use crate::config::tokens::Who;
use forebay_kernel::ids::{JobId, QueueId};
use forebay_kernel::job::JobSpec;
use forebay_kernel::state::jobs::Job;
use forebay_kernel::state::table::Table;
use forebay_kernel::state::{SharedSpec, State};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinError;

/// Rows that one read goes through at most: some 10 ms, and 50 pages of the usual length.
pub(super) const MOST_ROWS: usize = 65_536;

/// How long one read goes through rows at most, whatever else the machine does.
const MOST_TIME: Duration = Duration::from_millis(500);

/// So often the time is looked at.
const ROWS_A_LOOK: usize = 1_024;

/// Why an answer ends before all was looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ReadCut {
    /// The most rows were looked at.
    Rows,
    /// It took too long.
    Time,
    /// The answer became too large.
    Memory,
}

/// What one read may still spend.
pub(super) struct ReadBudget {
    rows: usize,
    end: Instant,
}

impl Default for ReadBudget {
    fn default() -> ReadBudget {
        ReadBudget::of(MOST_ROWS, MOST_TIME)
    }
}

impl ReadBudget {
    /// So many rows, and so long from now on.
    pub fn of(rows: usize, time: Duration) -> ReadBudget {
        ReadBudget { rows, end: Instant::now() + time }
    }

    /// Another row is looked at. With the reason if it may not be.
    pub fn spend(&mut self) -> Option<ReadCut> {
        if self.rows == 0 {
            return Some(ReadCut::Rows);
        }
        self.rows -= 1;
        let late = self.rows.is_multiple_of(ROWS_A_LOOK) && Instant::now() >= self.end;
        late.then_some(ReadCut::Time)
    }
}

/// All jobs of the state, as they were.
pub(super) struct JobRows {
    jobs: Table<JobId, Job>,
    specs: Table<JobId, SharedSpec>,
    /// Those that are over, by their numbers.
    pub finished: Vec<JobId>,
    seen: Seen,
}

/// Which jobs somebody may see.
enum Seen {
    All,
    Own { tenant: String, principal: String, queues: BTreeSet<QueueId> },
}

impl Seen {
    fn by(state: &State, who: &Who) -> Seen {
        if who.operates() {
            return Seen::All;
        }
        let takes = |path: &str| visible::queue_takes(state, who, path);
        let queues = state.queues().iter().filter(|(_, queue)| takes(&queue.path)).map(|(id, _)| id).collect();
        Seen::Own { tenant: who.caller.tenant.clone(), principal: who.caller.principal.clone(), queues }
    }
}

impl JobRows {
    /// The jobs as they are now, for somebody.
    pub async fn now(api: &Api, who: &Arc<Who>) -> Result<JobRows, ApiError> {
        let judge = Arc::clone(who);
        api.ask(who, move |engine, _| JobRows::of(engine.state(), &judge)).await
    }

    fn of(state: &State, who: &Who) -> JobRows {
        let mut finished: Vec<JobId> = state.index().finished.iter().map(|(_, id)| *id).collect();
        finished.sort_unstable();
        JobRows { jobs: state.jobs.clone(), specs: state.specs.clone(), finished, seen: Seen::by(state, who) }
    }

    /// A job that is there and may be seen.
    pub fn seen(&self, id: JobId) -> Option<(&Job, &JobSpec)> {
        let job = self.jobs.get(id)?;
        let spec: &JobSpec = self.specs.get(id)?;
        let may = match &self.seen {
            Seen::All => true,
            Seen::Own { tenant, principal, queues } => {
                spec.tenant == *tenant && (spec.principal == *principal || queues.contains(&job.queue))
            }
        };
        may.then_some((job, spec))
    }

    /// Whether a job was there, seen or not.
    pub fn has(&self, id: JobId) -> bool {
        self.jobs.contains(id)
    }

    /// All jobs after one, seen or not, in the order in which they were accepted.
    pub fn after(&self, after: Option<JobId>) -> impl Iterator<Item = JobId> + '_ {
        self.jobs.rows_after(after).map(|job| job.id)
    }
}

/// Goes through rows on a thread that may take its time, in the turn of whoever asks. Few at once do, and of one caller fewer.
pub(super) async fn beside_as<R: Send + 'static>(
    api: &Api,
    who: &Who,
    look: impl FnOnce() -> R + Send + 'static,
) -> Result<R, ApiError> {
    api.room.scan(who).await?.spend(look).await.map_err(not_read)
}

/// A read that ended by a fault of this program.
pub(super) fn not_read(ended: JoinError) -> ApiError {
    ApiError::new(500, "ReadFailed", ended.to_string(), "report this with the controller's log")
}

//! The job table: what is known of each job and its runs. A plain row; changed only by `apply`.
//!
//! Never: decides, or indexes itself. `state::index` derives every lookup from these rows.

use crate::decision::{Outcome, StopCause};
use crate::effect::{RunFacts, WorkerPlace};
use crate::ids::{Attempt, ClassId, JobId, NodeId, PoolId, QueueId, Seq, TierId};
use crate::job::{Completion, Gang, JobSpec};
use crate::policy::WhenLate;
use crate::reason::Reason;
use crate::units::{MilliGpu, Rate, Span, Timestamp};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// A job. Its specification is in `State::specs` at the same position.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Job {
    /// Its position in the table.
    pub id: JobId,
    /// Its equivalence class.
    pub class: ClassId,
    /// Its queue.
    pub queue: QueueId,
    /// Its tier.
    pub tier: TierId,
    /// Within queue and tier.
    pub priority: i32,
    /// When it was accepted. Kept through requeues, so that it keeps its place in the order.
    pub arrival: Timestamp,
    /// Where in its life it is.
    pub phase: Phase,
    /// Since when.
    pub since: Timestamp,
    /// Whose quota it holds, while it holds places.
    pub pool: Option<PoolId>,
    /// Where its workers go or are.
    pub places: Vec<WorkerPlace>,
    /// The current or last run.
    pub attempt: Attempt,
    /// Its own failures so far.
    pub failures: u32,
    /// Work done and verified, over all attempts, as run time of the whole gang.
    pub progress: Span,
    /// When the current run started, if it has.
    pub running_since: Option<Timestamp>,
    /// When the current run's last verified checkpoint was reported, or when it started.
    pub saved_at: Timestamp,
    /// Not stopped for others before then.
    pub protected_until: Timestamp,
    /// What the current run was told to resume from.
    pub resume_from: Span,
    /// Workers of the current run, dead ones too.
    pub workers: u32,
    /// Workers of the current run that have finished.
    pub workers_done: Vec<u32>,
    /// The first start of all.
    pub first_start: Option<Timestamp>,
    /// When it was over.
    pub ended: Option<Timestamp>,
    /// The start or stop without an outcome yet.
    pub effect: Option<OpenEffect>,
    /// Why it is where it is, where that needs a word.
    pub reason: Option<Reason>,
    /// Status messages so far.
    pub status_seq: u32,
    /// Its submitter asked for its end.
    pub cancel_asked: bool,
    /// Idleness reported by the current run, not yet settled.
    pub idle_reported: Option<Span>,
    /// Idleness of the current run that the ledger has counted.
    pub idle_seen: Span,
    /// A run that must be stopped, and why: a worker of it is gone, or its criterion is met. Settle stops it.
    pub broken: Option<StopCause>,
    /// While starting: given up then. While running: its longest run ends then. While stopping: it has hung then.
    pub must_end_by: Timestamp,
    /// GPU share of all its places.
    pub share: MilliGpu,
    /// What its places cost: the price of each node x the part of it that is held.
    pub rate: Rate,
    /// The submitter knows that the current attempt is admitted.
    pub admitted_said: bool,
    /// Runs are being stopped for it: nothing more is stopped for it before then.
    pub reserved_until: Option<Timestamp>,
    /// It is backfill before the reservation of this job: it has to end in time.
    pub backfill_for: Option<JobId>,
    /// Its deadline is looked at again then.
    pub reassess_at: Timestamp,
    /// Its deadline was found to be out of reach.
    pub hopeless: bool,
    /// Runs stopped before the job was done, for whatever reason but its own failure.
    pub interruptions: u32,
    /// The service whose replica it is. Such a row has no identity, sends no messages and is in no count of jobs.
    pub service: Option<JobId>,
    /// Its stop has hung: its nodes are given up.
    pub hung: bool,
    /// What its queue's start target lets it wait for. `None`: no target, or it has started before.
    pub start_target: Option<JobStartTarget>,
    /// The number of the worker at each of `places`, from the start on. Who stays keeps its number.
    pub numbers: Vec<u32>,
    /// Workers that have left the current run while it went on, sorted.
    pub left: Vec<u32>,
    /// Workers that were asked to leave the current run and are not known to be gone.
    pub leaving: Option<Leaving>,
    /// Quota that others gave back for it, until it runs.
    pub kept: Option<Kept>,
    /// While running: it may be stopped by any higher tier from then on.
    pub overdue_at: Timestamp,
    /// While running, where shorter jobs of its queue may stop it: it has had its turn then. `NEVER` elsewhere.
    #[serde(skip, default = "never")]
    pub turn_over_at: Timestamp,
    /// It was stopped for shorter jobs of its queue.
    #[serde(skip)]
    pub put_back: Option<PutBack>,
    /// While held: the end of the pause after its failure, which goes on when it is held no longer. 0: there is none.
    #[serde(skip)]
    pub not_before: Timestamp,
    /// Starts in a row that a full quota of the cluster's own denied.
    #[serde(skip)]
    pub denials: u32,
    /// The latest start that meets its deadline, where that counts in the order. Known from its other fields: see `State::start_by`.
    #[serde(skip, default = "never")]
    pub start_by: Timestamp,
    /// Where its last run was, until that is said for the last time.
    #[serde(skip)]
    pub last_run: Option<Box<RunFacts>>,
    /// Workers of its run of which an operator has confirmed that they are dead.
    #[serde(skip)]
    pub confirmed_dead: BTreeSet<u32>,
}

fn never() -> Timestamp {
    Timestamp::NEVER
}

/// How long a run goes on before shorter jobs of its queue may stop it; twice as long after each time that they did. So it is stopped so but a few
/// times, however long it takes.
pub const TURN: Span = Span::mins(30);

/// What a run has had of its turn counts anew so often: after one turn, two, four, and so on.
const MARKS: u32 = 10;

/// Runs of a job that were stopped for shorter jobs of its queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PutBack {
    /// The last of them: among the jobs of its queue it stands as if it had come then.
    pub at: Timestamp,
    /// How many.
    pub times: u32,
}

/// Workers that were asked to leave an elastic gang.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Leaving {
    /// Which, by their numbers.
    pub workers: Vec<u32>,
    /// Why.
    pub cause: StopCause,
    /// Killed at the latest then.
    pub deadline: Timestamp,
}

/// Quota that is kept for a waiting job: others see it as in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Kept {
    /// In which pool.
    pub pool: PoolId,
    /// How much.
    pub share: MilliGpu,
    /// Whether it is its queue's own, which others had borrowed. If not, those who ask for their own go first.
    pub own: bool,
}

/// What a start target means to a job that has never started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct JobStartTarget {
    /// It should have started by then.
    pub by: Timestamp,
    /// What happens then if it has not. Done once: then this is `Wait`.
    pub when_late: WhenLate,
    /// What it waits for now.
    pub wait: Wait,
}

/// What a job that may wait waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Wait {
    /// Not judged yet.
    New,
    /// A node would come after the burst.
    Noise {
        /// Bought for then.
        until: Timestamp,
    },
    /// The places of a run.
    Promised {
        /// Where.
        node: NodeId,
        /// The run.
        run: JobId,
        /// Expected to end then; bought for then if it has not.
        until: Timestamp,
    },
    /// For nothing: it is bought for.
    Over,
}

impl JobStartTarget {
    /// When it is judged again.
    #[must_use]
    pub fn due(&self) -> Timestamp {
        let late = if self.when_late == WhenLate::Wait { Timestamp::NEVER } else { self.by };
        match self.wait {
            Wait::Noise { until } | Wait::Promised { until, .. } => until.min(late),
            Wait::New | Wait::Over => late,
        }
    }
}

/// A durable effect whose outcome is not journaled yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OpenEffect {
    /// Its id.
    pub id: Seq,
    /// Released again then.
    pub next_try: Timestamp,
    /// Times released.
    pub tries: u32,
}

/// Where in its life a job is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Phase {
    /// Just accepted: settle looks at whether it could ever run.
    New,
    /// Pauses after a failure.
    BackingOff {
        /// Until then.
        until: Timestamp,
    },
    /// Waits for quota and places.
    Queued,
    /// Holds quota and places; some of these are not ready yet.
    Booked,
    /// The start is out.
    Starting,
    /// All workers run.
    Running,
    /// The stop is out.
    Stopping {
        /// Why.
        cause: StopCause,
        /// Whether a checkpoint was asked for.
        checkpoint: bool,
        /// Killed at the latest then.
        deadline: Timestamp,
    },
    /// No worker is alive; settle says what follows.
    Ended {
        /// How the run ended.
        how: Ending,
    },
    /// A service: its replicas hold what it holds.
    Serving,
    /// Over.
    Done {
        /// How.
        outcome: Outcome,
    },
    /// The policy in force makes it impossible: it waits for another policy. [`Job::reason`] says what is in the way.
    Held,
}

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Ending {
    /// Its completion criterion was met and nothing is alive.
    Completed,
    /// It failed by its own doing.
    Failed {
        /// The exit code.
        code: i32,
    },
    /// A node failed under it.
    NodeFault,
    /// It was stopped.
    Stopped {
        /// Why.
        cause: StopCause,
    },
    /// It stopped without being asked, and did not fail: the cluster could not start or keep it.
    Dropped,
    /// A quota of the cluster's own is full: it was never started.
    Denied,
}

impl Ending {
    /// Whether its work is done: it is not run again, unless it is a replica of a service.
    #[must_use]
    pub fn is_done(self) -> bool {
        matches!(self, Ending::Completed | Ending::Stopped { cause: StopCause::Completed })
    }
}

impl Job {
    /// From when on it counts as waiting, among the jobs of its queue.
    #[must_use]
    pub fn stands_from(&self) -> Timestamp {
        self.put_back.map_or(self.arrival, |last| last.at.max(self.arrival))
    }

    /// How long its next run is left alone by shorter jobs of its queue.
    #[must_use]
    pub fn turn(&self) -> Span {
        let times = self.put_back.map_or(0, |last| last.times);
        TURN.times(1u64.checked_shl(times).unwrap_or(u64::MAX))
    }

    /// When what its run has had of its turn counts anew: after one turn, two, four, and so on. Empty where shorter jobs do not stop it.
    pub fn turn_marks(&self) -> impl Iterator<Item = Timestamp> + '_ {
        let since = self.running_since.filter(|_| self.turn_over_at != Timestamp::NEVER);
        let marks = move |since: Timestamp| {
            let turn = self.turn_over_at.since(since);
            (0..MARKS).map(move |at| since + turn.times(1 << at))
        };
        since.into_iter().flat_map(marks)
    }

    /// What its run has had of its turn: as long as to the last of its marks. Once it is being stopped it stays what it was then.
    #[must_use]
    pub fn had(&self, now: Timestamp) -> Span {
        let Some(since) = self.running_since else { return Span::ZERO };
        let until = if self.phase == Phase::Running { now } else { now.min(self.since) };
        self.turn_marks().take_while(|mark| *mark <= until).last().map_or(Span::ZERO, |mark| mark.since(since))
    }

    /// Since when it counts among those that hold quota: who came last is the first to borrow. `None`: it holds no places.
    #[must_use]
    pub fn holds_since(&self) -> Option<Timestamp> {
        (!self.places.is_empty()).then(|| self.running_since.unwrap_or(self.since))
    }

    /// Whether it is over.
    #[must_use]
    pub fn done(&self) -> bool {
        matches!(self.phase, Phase::Done { .. })
    }

    /// Whether workers of it may be alive.
    #[must_use]
    pub fn alive(&self) -> bool {
        matches!(self.phase, Phase::Starting | Phase::Running | Phase::Stopping { .. })
    }

    /// Workers that were asked to leave, by their numbers.
    #[must_use]
    pub fn leaving(&self) -> &[u32] {
        self.leaving.as_ref().map_or(&[], |l| &l.workers)
    }

    /// The numbers of its workers on a node.
    #[must_use]
    pub fn numbers_on(&self, node: NodeId) -> Vec<u32> {
        let workers = self.places.iter().zip(&self.numbers);
        workers.filter(|(place, _)| place.node == node).map(|(_, number)| *number).collect()
    }

    /// Whether a run can go on without these workers, on top of those that were asked to leave: enough are left, and nobody without
    /// whom it could not be completed goes.
    #[must_use]
    pub fn goes_on_without(&self, spec: &JobSpec, gone: &[u32]) -> bool {
        let Gang::Workers { min, .. } = spec.gang else { return false };
        let leading = spec.completion == Completion::Leader && gone.contains(&0);
        let stays = |n: &&u32| !gone.contains(n) && !self.leaving().contains(n);
        let staying = self.numbers.iter().filter(stays).count() as u32;
        self.phase == Phase::Running && self.broken.is_none() && !leading && staying >= min
    }

    /// Whether every worker that is left of the run has finished: nobody is alive.
    #[must_use]
    pub fn all_finished(&self) -> bool {
        self.workers_done.len() + self.left.len() >= self.workers as usize
    }

    /// Work that would be lost if the run died at `now`: run time since the last verified checkpoint.
    #[must_use]
    pub fn unsaved(&self, now: Timestamp) -> Span {
        if self.running_since.is_some() { now.since(self.saved_at) } else { Span::ZERO }
    }
}

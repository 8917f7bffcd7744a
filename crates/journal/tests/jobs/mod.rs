//! A job that is over, for the journal's tests.

use forebay_kernel::decision::Outcome;
use forebay_kernel::ids::{Attempt, ClassId, JobId, QueueId, TierId};
use forebay_kernel::job::JobSpec;
use forebay_kernel::state::SharedSpec;
use forebay_kernel::state::jobs::{Job, Phase};
use forebay_kernel::state::retire::FinishedJob;
use forebay_kernel::units::{MilliGpu, Rate, Span, Timestamp};

/// A job of this specification that ended like this.
pub fn finished(id: JobId, spec: JobSpec, outcome: Outcome, ended: Timestamp) -> FinishedJob {
    let job = Job {
        id,
        class: ClassId(3),
        queue: QueueId(2),
        tier: TierId(1),
        priority: 0,
        arrival: Timestamp(1_793_000_000_000 + id.0),
        phase: Phase::Done { outcome },
        since: ended,
        pool: None,
        places: Vec::new(),
        attempt: Attempt(1),
        failures: 0,
        progress: Span::mins(60),
        running_since: None,
        saved_at: Timestamp(1_793_000_900_000),
        protected_until: Timestamp(1_793_000_900_000),
        resume_from: Span::ZERO,
        workers: 1,
        workers_done: vec![0],
        first_start: Some(Timestamp(1_793_000_300_000)),
        ended: Some(ended),
        effect: None,
        reason: None,
        status_seq: 4,
        cancel_asked: false,
        idle_reported: None,
        idle_seen: Span::ZERO,
        broken: None,
        must_end_by: Timestamp::NEVER,
        share: MilliGpu(0),
        rate: Rate(0),
        admitted_said: true,
        reserved_until: None,
        backfill_for: None,
        reassess_at: Timestamp::NEVER,
        hopeless: false,
        interruptions: 0,
        service: None,
        hung: false,
        start_target: None,
        numbers: Vec::new(),
        left: Vec::new(),
        leaving: None,
        kept: None,
        overdue_at: Timestamp::NEVER,
        turn_over_at: Timestamp::NEVER,
        put_back: None,
        not_before: Timestamp(0),
        denials: 0,
        start_by: Timestamp::NEVER,
        last_run: None,
        confirmed_dead: std::collections::BTreeSet::new(),
    };
    FinishedJob { job, spec: SharedSpec::new(spec), tier: "normal".into() }
}

//! reclaim: quota that is missing because others have borrowed it, whatever can be bought.
//!
//! ```text
//! where the ways up of the two queues meet:
//!   its side stays within what it owns   -> it takes back, from any tier, only what the other side has borrowed
//!   both sides borrow                    -> it takes if its side's share, with it, is at or below the other's without the loss
//! ```
//!
//! What is given back is kept for the job until it runs. Elastic gangs shrink first; then the lowest tier, the side that borrows most,
//! the least work lost.
//!
//! Never: takes what a queue owns; takes more than the job lacks, or anything if it could not run all the same; never twice for one
//! wait of a job. Waiting and past use do not count.

use super::reserve;
use super::victims::{self, Case, Taken};
use crate::decision::{Decision, StopCause};
use crate::engine::Engine;
use crate::ids::{ClassId, JobId, NodeId, PoolId, QuotaId, TierId};
use crate::machine::StateMachine;
use crate::plan::PlanReport;
use crate::rules::placement::{self, NodeScope};
use crate::rules::quota::{self, kept_under, quota_of};
use crate::rules::{protection, settings, supply};
use crate::state::State;
use crate::state::jobs::{Job, Kept};
use crate::state::places::nodes_of;
use crate::state::shares::{Meeting, Share};
use crate::units::{GpuTime, MilliGpu};
use alloc::vec::Vec;

/// Takes quota for a job that waits for it. Returns whether anything was taken.
pub(super) fn run(engine: &mut Engine, job: JobId, class: ClassId, pool: PoolId, report: &mut PlanReport) -> bool {
    let state = &engine.state;
    let asked = quota::share(state, class, pool);
    let Some(quota) = quota_of(state, &state.jobs[job]) else { return false };
    if state.jobs[job].kept.is_some() {
        return false;
    }
    let lack = QuotaCase { job, class, pool, asked, quota, tier: state.jobs[job].tier };
    let runs = candidates(state, &lack);
    if runs.is_empty() || suffices(engine, &lack) {
        return false;
    }
    let Some(found) = victims::find(engine, &runs, &lack) else { return false };
    let own = quota::is_own(&engine.state, class, pool, asked);
    let until = victims::take(engine, &found.losses, StopCause::QuotaReclaimed { by: job }, report);
    engine.decide(Decision::Keep { job, kept: Kept { pool, share: asked, own } });
    reserve(engine, job, found.nodes, until);
    true
}

/// Leaves out the runs of those who own what they use, where the job would borrow: they would take it back, and so on.
pub(super) fn leave_owners(state: &State, job: JobId, pool: PoolId, asked: MilliGpu, runs: &mut Vec<JobId>) {
    let row = &state.jobs[job];
    let Some(quota) = quota_of(state, row) else { return };
    let lack = QuotaCase { job, class: row.class, pool, asked, quota, tier: row.tier };
    runs.retain(|id| {
        let theirs = quota_of(state, &state.jobs[*id]);
        let meeting = theirs.and_then(|theirs| state.meeting(quota, theirs));
        meeting.is_none_or(|m| lack.takes_back(state, &m) || state.quota.borrowed(m.theirs, pool) > MilliGpu(0))
    });
}

/// What a job lacks.
struct QuotaCase {
    job: JobId,
    class: ClassId,
    pool: PoolId,
    asked: MilliGpu,
    quota: QuotaId,
    tier: TierId,
}

impl QuotaCase {
    /// What its side of a meeting would use with it.
    fn mine(&self, state: &State, meeting: &Meeting) -> MilliGpu {
        let kept = kept_under(state, meeting.mine, self.pool, |job| job.id != self.job);
        state.quota.usage_with(self.quota, self.pool, self.asked, meeting.mine) + kept
    }

    /// Whether its side stays within what it owns.
    fn takes_back(&self, state: &State, meeting: &Meeting) -> bool {
        state.within_own(meeting.mine, self.pool, self.mine(state, meeting))
    }

    /// Whether its side, with it, has no greater share than the other has now: over all pools, and in this one.
    fn is_poorer(&self, state: &State, m: &Meeting) -> bool {
        let (mine, theirs) = (self.mine(state, m), state.quota.usage(m.theirs, self.pool));
        let in_all = |child, used| state.borrowed_share(child, m.at, self.pool, used);
        let in_one = |child, used| state.share_in(child, m.at, self.pool, used);
        in_all(m.mine, mine).at_most(in_all(m.theirs, theirs)) && in_one(m.mine, mine).at_most(in_one(m.theirs, theirs))
    }

    fn may_stop(&self, state: &State, victim: &Job) -> bool {
        let tier = settings::tier(state, victim.tier);
        victim.tier == self.tier || tier.is_some_and(|t| t.stoppable_by.contains(&self.tier))
    }
}

impl Case for QuotaCase {
    fn prepare(&self, state: &mut StateMachine) {
        victims::lift_ending(state, self.pool);
    }

    fn allows(&self, state: &State, _: &Taken, victim: JobId) -> bool {
        let row = &state.jobs[victim];
        let Some(quota) = quota_of(state, row) else { return false };
        let Some(meeting) = state.meeting(self.quota, quota) else { return false };
        state.owns_all(quota, meeting.theirs, self.pool)
            && (self.takes_back(state, &meeting) || (self.may_stop(state, row) && self.is_poorer(state, &meeting)))
    }

    fn enough(&self, engine: &mut Engine, _: &Taken) -> Option<Vec<NodeId>> {
        if quota::refusal(&engine.state, self.class, self.pool, self.asked).is_some() {
            return None;
        }
        if let Some(places) = placement::find(engine, self.job, self.pool, NodeScope::Ready, self.asked) {
            return Some(nodes_of(&places));
        }
        let in_flight = placement::find(engine, self.job, self.pool, NodeScope::InFlight, self.asked).is_some();
        (in_flight || supply::can_be_had(engine, self.job, self.pool)).then(Vec::new)
    }

    fn bounded(&self) -> bool {
        true
    }

    fn quota(&self) -> bool {
        true
    }
}

/// Whether what is being stopped or is leaving already will be enough.
fn suffices(engine: &mut Engine, lack: &QuotaCase) -> bool {
    let mark = engine.state.checkpoint();
    lack.prepare(&mut engine.state);
    let enough = lack.enough(engine, &Taken::default()).is_some();
    engine.state.rollback(mark);
    enough
}

/// Runs from which something may be taken, the cheapest first.
fn candidates(state: &State, lack: &QuotaCase) -> Vec<JobId> {
    let mut sides: Vec<(Share, QuotaId, Vec<JobId>)> = Vec::new();
    for (queue, runs) in &state.index.running_in {
        let Some(quota) = state.queues[*queue].rule.as_ref().map(|r| r.quota) else { continue };
        let Some(meeting) = state.meeting(lack.quota, quota) else { continue };
        if state.quota.borrowed(meeting.theirs, lack.pool) == MilliGpu(0) {
            continue;
        }
        let own = lack.takes_back(state, &meeting);
        let may = |id: &&JobId| {
            let job = &state.jobs[**id];
            job.pool == Some(lack.pool) && protection::may_be_stopped(state, **id) && (own || lack.may_stop(state, job))
        };
        let runs: Vec<JobId> = runs.iter().filter(may).copied().collect();
        let used = state.quota.usage(meeting.theirs, lack.pool);
        sides.push((state.borrowed_share(meeting.theirs, meeting.at, lack.pool, used), quota, runs));
    }
    // The greatest share first.
    sides.sort_by(|a, b| b.0.compare(a.0).then(a.1.cmp(&b.1)));
    let priority = |tier: TierId| settings::priority(state, tier);
    let mut found: Vec<(i32, usize, GpuTime, JobId)> = Vec::new();
    for (rank, (_, _, runs)) in sides.iter().enumerate() {
        for id in runs {
            let job = &state.jobs[*id];
            found.push((priority(job.tier), rank, job.share.over(job.unsaved(state.now)), *id));
        }
    }
    found.sort_unstable();
    found.into_iter().map(|f| f.3).collect()
}

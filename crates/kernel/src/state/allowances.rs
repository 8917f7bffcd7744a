//! Allowances: what the quota or the budget of a queue or cohort leaves, kept for one job that waits for it. One holder an allowance.
//!
//! ```text
//! runs    those that are to be gone when it begins; what else is in use there stays
//! from    when the last of them is expected to have ended
//! ```
//!
//! Never: decides who gets one. The planner does.

use super::State;
use super::undo::Was;
use crate::ids::{JobId, PoolId, QuotaId};
use crate::units::Timestamp;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Something that a queue or cohort has a bound of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Allowance {
    /// Its quota in a pool, with what it may borrow.
    Quota(QuotaId, PoolId),
    /// Its budget.
    Budget(QuotaId),
}

impl Allowance {
    /// Whose it is.
    #[must_use]
    pub fn node(self) -> QuotaId {
        match self {
            Allowance::Quota(node, _) | Allowance::Budget(node) => node,
        }
    }
}

/// An allowance that is kept for a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AllowanceReservation {
    /// The job that it is kept for.
    pub job: JobId,
    /// Where that job is to run.
    pub pool: PoolId,
    /// When it is expected to be enough. No job that has to wait for it is let in for longer.
    pub from: Timestamp,
    /// Whether there is an estimate for each of the runs.
    pub known: bool,
    /// Runs outlasted an earlier `from` and could not be stopped.
    pub delayed: bool,
    /// Runs that are to be gone by then.
    pub runs: Vec<JobId>,
}

impl State {
    /// What is kept of quotas and budgets.
    #[must_use]
    pub fn allowances(&self) -> &BTreeMap<Allowance, AllowanceReservation> {
        &self.allowances
    }

    /// Keeps an allowance for a job, or for nobody.
    pub(crate) fn set_allowance(&mut self, of: Allowance, reservation: Option<AllowanceReservation>) {
        let was = match reservation {
            Some(reservation) => self.allowances.insert(of, reservation),
            None => self.allowances.remove(&of),
        };
        self.undo.note(|| Was::Allowance(of, was.map(Box::new)));
    }

    /// Nothing of a quota or a budget is kept for a job any more.
    pub(crate) fn end_allowances(&mut self, job: JobId) {
        let held = self.allowances.iter().filter(|(_, kept)| kept.job == job);
        let held: Vec<Allowance> = held.map(|(of, _)| *of).collect();
        for of in held {
            self.set_allowance(of, None);
            self.capacity_epoch += 1;
        }
    }

    /// A job that was let in ahead of another is to be gone when what is kept for that one begins.
    pub(crate) fn ends_before_allowances(&mut self, job: JobId, of: JobId) {
        let row = &self.jobs[job];
        let (Some(rule), Some(pool)) = (self.queues[row.queue].rule.as_ref(), row.pool) else { return };
        let quota = rule.quota;
        let uses = |of: Allowance| match of {
            Allowance::Quota(node, its) => its == pool && self.quota.is_below(quota, node),
            Allowance::Budget(node) => self.quota.is_below(quota, node),
        };
        let held = self.allowances.iter().filter(|(at, kept)| kept.job == of && uses(**at));
        let held: Vec<(Allowance, AllowanceReservation)> = held.map(|(at, kept)| (*at, kept.clone())).collect();
        for (at, mut kept) in held {
            if !kept.runs.contains(&job) {
                kept.runs.push(job);
                self.set_allowance(at, Some(kept));
            }
        }
    }
}

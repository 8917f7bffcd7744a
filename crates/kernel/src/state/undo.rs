//! The undo log: what a stage changed since its checkpoint, so that a try that does not work out leaves no trace.
//!
//! ```text
//! let mark = state.checkpoint();
//! ... edits ...
//! state.rollback(mark)      what was found is then decided for good, record by record
//! state.commit(mark)        or what was decided in the try stays
//! ```
//!
//! Never: partial. Rows, quota, ledger, totals and counters all come back byte for byte; a property test says so.

use super::allowances::{Allowance, AllowanceReservation};
use super::billing::WorkKey;
use super::budget::Budgets;
use super::fair::DecayedUsage;
use super::index::counts_as;
use super::jobs::Job;
use super::ledger::Ledger;
use super::nodes::{Node, OfferingRow, Purchase};
use super::observed_stats::NeedStats;
use super::reservations::Reservation;
use super::{Counters, State, Totals};
use crate::ids::{NodeId, OfferingId, PoolId, PurchaseId, QuotaId};
use crate::units::MilliGpu;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// What something was before it changed.
#[derive(Clone, Debug)]
pub(crate) enum Was {
    Job(Box<Job>),
    Node(NodeId, Option<Box<Node>>),
    Purchase(PurchaseId, Option<Box<Purchase>>),
    Offering(OfferingId, Box<OfferingRow>),
    QuotaTaken(QuotaId, PoolId, MilliGpu),
    QuotaGiven(QuotaId, PoolId, MilliGpu),
    DecayedUsage(QuotaId, DecayedUsage),
    Reservation(PoolId, Option<Box<Reservation>>),
    Needs(PoolId, Option<NeedStats>),
    Allowance(Allowance, Option<Box<AllowanceReservation>>),
    Work(WorkKey, Option<u64>),
}

/// The small things that change with nearly every edit: kept whole at each checkpoint.
#[derive(Clone, Debug)]
pub(crate) struct Base {
    counters: Counters,
    totals: Totals,
    budgets: Budgets,
    ledger: Ledger,
    statuses: usize,
    charges: usize,
    booked: usize,
    capacity_epoch: u64,
}

/// The log. Empty and inactive outside of a try.
#[derive(Clone, Debug, Default)]
pub(crate) struct Undo {
    log: Vec<Was>,
    bases: Vec<Base>,
}

/// A place in the log to come back to.
#[derive(Debug)]
#[must_use = "a checkpoint is rolled back or committed"]
pub struct Mark {
    log: usize,
    base: usize,
}

impl Undo {
    pub(crate) fn active(&self) -> bool {
        !self.bases.is_empty()
    }

    pub(super) fn note(&mut self, was: impl FnOnce() -> Was) {
        if self.active() {
            self.log.push(was());
        }
    }
}

impl State {
    /// How many edits the tries that are open have made. Within a try the state is the same while this is.
    pub fn edits(&self) -> usize {
        self.undo.log.len()
    }

    /// Opens a try.
    pub(crate) fn checkpoint(&mut self) -> Mark {
        let mark = Mark { log: self.undo.log.len(), base: self.undo.bases.len() };
        self.undo.bases.push(Base {
            counters: self.counters,
            totals: self.totals.clone(),
            budgets: self.budgets.clone(),
            ledger: self.ledger,
            statuses: self.stream.len(),
            charges: self.billing.as_ref().map_or(0, |billing| billing.charges.len()),
            booked: self.billing.as_ref().map_or(0, |billing| billing.booked.len()),
            capacity_epoch: self.capacity_epoch,
        });
        mark
    }

    /// Ends a try and takes back everything it did.
    pub(crate) fn rollback(&mut self, mark: Mark) {
        while self.undo.log.len() > mark.log {
            let Some(was) = self.undo.log.pop() else {
                break;
            };
            self.put_back(was);
        }
        if let Some(base) = self.undo.bases.get(mark.base).cloned() {
            self.counters = base.counters;
            self.totals = base.totals;
            self.budgets = base.budgets;
            self.ledger = base.ledger;
            self.stream.truncate(base.statuses);
            if let Some(billing) = &mut self.billing {
                billing.charges.truncate(base.charges);
                billing.booked.truncate(base.booked);
            }
            self.capacity_epoch = base.capacity_epoch;
        }
        self.undo.bases.truncate(mark.base);
    }

    /// Ends a try and keeps everything it did. Inside of another try it is that one's from then on.
    pub(crate) fn commit(&mut self, mark: Mark) {
        self.undo.bases.truncate(mark.base);
        if self.undo.bases.is_empty() {
            self.undo.log.clear();
        }
    }

    fn put_back(&mut self, was: Was) {
        match was {
            Was::Job(job) => {
                let at = job.id;
                let now = &self.jobs[at];
                self.index.row_out(now, &self.specs[at]);
                self.index.row_in(&job, &self.specs[at]);
                self.index.recount(counts_as(now), counts_as(&job));
                self.jobs[at] = *job;
            }
            Was::Node(id, row) => {
                if let Some(now) = self.nodes.remove(&id) {
                    self.index.node_out(&now);
                    self.index.name_out(&now);
                }
                if let Some(row) = row {
                    self.index.node_in(&row);
                    self.index.name_in(&row);
                    self.nodes.insert(id, *row);
                }
            }
            Was::Purchase(id, row) => {
                if let Some(now) = self.purchases.remove(&id) {
                    self.index.purchase_out(&now);
                }
                if let Some(row) = row {
                    self.index.purchase_in(&row);
                    self.purchases.insert(id, *row);
                }
            }
            Was::Offering(id, row) => self.offerings[id.index()] = *row,
            Was::QuotaTaken(quota, pool, amount) => self.quota.give_back(quota, pool, amount),
            Was::QuotaGiven(quota, pool, amount) => self.quota.take(quota, pool, amount),
            Was::DecayedUsage(quota, past) => self.put_past_back(quota, past),
            Was::Reservation(pool, was) => {
                self.reservations.remove(&pool);
                self.reservations.extend(was.map(|was| (pool, *was)));
            }
            Was::Needs(pool, was) => self.observed.put_needs_back(pool, was),
            Was::Allowance(of, was) => {
                self.allowances.remove(&of);
                self.allowances.extend(was.map(|was| (of, *was)));
            }
            Was::Work(work, was) => {
                if let Some(billing) = &mut self.billing {
                    billing.unsaved.remove(&work);
                    billing.unsaved.extend(was.map(|was| (work, was)));
                }
            }
        }
    }
}

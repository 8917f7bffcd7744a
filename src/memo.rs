//! What a pass remembers to spare the next one work. Transparent: without it the decisions are the same, and the audit shows it.
//!
//! Never: in a snapshot or a journal.

mod parked;

use crate::decision::Decision;
use crate::ids::{ClassId, JobId, PoolId, TierId};
use crate::reason::Reason;
use crate::rules::order::{self, ClassQueue, Head};
use crate::rules::{allowances, batch, budget};
use crate::state::State;
use crate::state::allowances::{Allowance, AllowanceReservation};
use crate::state::reservations::Reservation;
use crate::units::Timestamp;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
pub(crate) use parked::{ParkedClasses, ParkedMark};

/// What a stage remembers between passes to spare itself work. Transparent: without it the decisions are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memo {
    /// Classes of jobs that wait and were told no.
    pub parked: ParkedClasses,
    /// Classes of booked jobs for which no ready places were found.
    pub rebooked: ParkedClasses,
    /// When preemption last found nothing for a class. While that is so, it would find nothing again.
    pub searched: BTreeMap<ClassId, Searched>,
    /// The reservations beside which that was so.
    pub beside: BTreeMap<PoolId, Reservation>,
    /// What was kept of quotas and budgets then.
    pub beside_kept: BTreeMap<Allowance, AllowanceReservation>,
    /// Where the holders of reservations would borrow, when that was noted: whoever would not goes before them.
    pub borrows: BTreeMap<PoolId, HolderNoted>,
    /// Which tiers were below their `minShare`, when that was noted: they go before the holders of reservations that are not of such a tier.
    pub lagging: Option<LaggingNoted>,
    /// `State::capacity_epoch` when no price made a job possible that is held for want of one.
    pub priced: Option<u64>,
    /// Jobs for which runs would be stopped, had an operator not paused preemption.
    pub would_preempt: BTreeSet<JobId>,
    /// Switched off by the audit, to show that it changes nothing, and with it the bounds on what preemption searches.
    pub off: bool,
}

/// Where the holder of a reservation stood.
#[derive(Clone, Debug)]
pub(crate) struct HolderNoted {
    /// `State::capacity_epoch` then.
    epoch: u64,
    job: JobId,
    /// At which nodes above it it would borrow.
    borrows: Vec<bool>,
}

impl HolderNoted {
    fn of(state: &State, job: JobId, pool: PoolId) -> HolderNoted {
        HolderNoted { epoch: state.capacity_epoch, job, borrows: allowances::holder_borrows(state, job, pool) }
    }
}

/// Which tiers were below their `minShare`.
#[derive(Clone, Debug)]
pub(crate) struct LaggingNoted {
    /// `State::capacity_epoch` then.
    epoch: u64,
    tiers: Vec<TierId>,
}

impl LaggingNoted {
    fn of(state: &State) -> LaggingNoted {
        LaggingNoted { epoch: state.capacity_epoch, tiers: order::lagging(state) }
    }
}

/// What a search for what may be taken depends on, besides the class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Searched {
    pub capacity_epoch: u64,
    /// When time alone last let something be taken.
    pub woke_at: Timestamp,
    /// The class's first, where its priority or its turn says what it may take.
    pub first: Option<JobId>,
}

/// A class whose head cannot be served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parked {
    /// The head that was asked for.
    pub head: JobId,
    /// `State::freed` at that time: nothing that could help was given back while it is the same.
    pub capacity_epoch: u64,
    /// When it was tried. Nothing that could help has become possible by time alone since, unless `timing::woke_at` is later.
    pub at: Timestamp,
    /// Why it waits.
    pub reason: Reason,
    /// Whoever asks no less would be told the same.
    pub of_more: bool,
    /// It is tried again then: the time in its reason, or when a budget allows a dearer offering.
    pub until: Option<Timestamp>,
    /// Pools whose quotas and budgets let it start. With fewer of them one that waits by design may lack something.
    pub open_pools: usize,
    /// Jobs of its batch that hold places. With one more there is somebody to be beside.
    pub of_batch: u32,
}

impl Memo {
    /// A decision was made. A node that is given back, or given up, leaves room that was counted on in ways that no epoch tells; and so does a job on a
    /// node that is to be given back for another: what that one was promised is no promise any more.
    pub(crate) fn note(&mut self, decision: &Decision, state: &State) {
        match decision {
            Decision::Terminate { .. } | Decision::GiveUp { .. } => self.forget(),
            Decision::Book { job, pool, places } => {
                if !self.searched.is_empty() {
                    let rooms = state.reservations().values();
                    let mut rooms = rooms.filter(|kept| kept.job != *job && !kept.room.is_empty());
                    if rooms.any(|kept| places.iter().any(|place| kept.nodes.contains(&place.node))) {
                        self.searched.clear();
                    }
                }
                self.note_holder(*pool, state);
                self.note_lagging(state);
            }
            Decision::MakeReservation { pool, .. } => self.note_holder(*pool, state),
            _ => {}
        }
    }

    /// Somebody is to rest: where the holders of reservations stand now is part of why, and so is which tiers go before others.
    pub(crate) fn note_holders(&mut self, state: &State) {
        let epoch = state.capacity_epoch;
        if self.lagging.as_ref().is_none_or(|was| was.epoch != epoch) {
            self.lagging = Some(LaggingNoted::of(state));
        }
        for (pool, kept) in state.reservations().iter().filter(|(pool, _)| state.has_quotas(**pool)) {
            let noted = self.borrows.get(pool).is_some_and(|was| was.epoch == epoch && was.job == kept.job);
            if !noted {
                self.borrows.insert(*pool, HolderNoted::of(state, kept.job, *pool));
            }
        }
    }

    /// Quota is taken, or somebody else holds what is kept: the holder may have come to borrow, and whoever would not goes before it now.
    fn note_holder(&mut self, pool: PoolId, state: &State) {
        let kept = state.reservations().get(&pool).filter(|_| state.has_quotas(pool));
        let Some(job) = kept.map(|kept| kept.job) else {
            self.borrows.remove(&pool);
            return;
        };
        let now = HolderNoted::of(state, job, pool);
        let borrows_more = match self.borrows.get(&pool) {
            // Nobody who was told no since rests on what was before.
            Some(was) if was.epoch != now.epoch => false,
            Some(was) if was.job == job => was.borrows.iter().zip(&now.borrows).any(|(was, is)| *is && !was),
            _ => true,
        };
        if borrows_more {
            self.forget();
        }
        self.borrows.insert(pool, now);
    }

    /// GPUs are taken: a tier may have come to be below its `minShare`, and goes before others now, or is so no more, and others go before it.
    fn note_lagging(&mut self, state: &State) {
        let now = LaggingNoted::of(state);
        // Where something was freed since, nobody who was told no rests on what was before.
        if self.lagging.as_ref().is_some_and(|was| was.epoch == now.epoch && was.tiers != now.tiers) {
            self.forget();
        }
        self.lagging = Some(now);
    }

    /// Nobody rests on what was told or found before.
    fn forget(&mut self) {
        self.parked.forget();
        self.rebooked.forget();
        self.searched.clear();
    }

    /// Whether nothing has happened since the prices were last compared with the budgets of the jobs that are held.
    pub(crate) fn priced_at(&self, state: &State) -> bool {
        !self.off && self.priced == Some(state.capacity_epoch)
    }

    /// Whether a search for a class would find nothing. What a budget leaves for purchases changes with time alone: then it is searched again.
    pub(crate) fn nothing_to_take(&self, state: &State, class: ClassId, now: Searched) -> bool {
        !self.off && state.budgets.none() && self.searched.get(&class) == Some(&now)
    }

    /// Whether this head could not be served and nothing has happened since that could help. Its class queue rests with it.
    pub(crate) fn resting(&self, state: &State, head: &Head, woke_at: Timestamp) -> Option<&Parked> {
        let parked = match head.class_queue {
            ClassQueue::Booked => self.rebooked.get(head.class),
            ClassQueue::Queued => self.parked.get(head.class),
        };
        let rests = |p: &&Parked| {
            let in_time = p.until.is_none_or(|at| at > state.now);
            let same = p.head == head.key.job && p.capacity_epoch == state.capacity_epoch && p.at >= woke_at;
            // One that waits by design holds up nobody of its class who may wait no longer.
            let alone =
                !p.reason.by_design() || state.index.first_bought_for(head.class).is_none_or(|key| key <= head.key);
            // Another may have what is kept for it later than it was to, and there is more time to end before that. What is tried or asked again
            // in seconds may come to be out of reach: then the next offering or pool is asked.
            let left =
                matches!(p.reason, Reason::KeptForAnother { .. } | Reason::LaunchRefused { .. }) || p.reason.is_tried();
            // What was taken for it is all that it is given while others wait, however large the slices are that are free.
            let more = state.jobs[head.key.job].kept.is_some() && !order::others_wait(state, head.class);
            let lacks_as_little = || !p.reason.by_design() || allowances::open_pools(state, p.head) == p.open_pools;
            same && in_time
                && alone
                && !left
                && !more
                && p.of_batch == batch::runs(state, head.class)
                && lacks_as_little()
                && !budget::grows(state, head.class)
        };
        parked.filter(|_| !self.off).filter(rests)
    }

    /// When a class that waits for a time is tried again.
    pub(crate) fn due(&self, state: &State) -> Option<Timestamp> {
        let waits = |(_, class): &(Timestamp, ClassId)| state.index.queued.contains_key(class);
        self.parked.due_after(state.now).find(waits).map(|(at, _)| at)
    }
}

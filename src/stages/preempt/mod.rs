//! preempt: what a head that cannot be served may take from others: what is booked or runs below it, or the room of nodes under a ceiling.
//!
//! ```text
//! all that waits, in the strict order: rank by quota, tier, urgent deadline, priority with ageing, arrival
//!   its places are there, or come, or can be bought     held for it in the trial: nobody behind it is promised the same
//!   it lacks quota, money, room or a ceiling            search.rs, ceiling.rs: the least that is enough, of what rules/rank.rs permits
//! what was found is decided; what frees is kept for the job until it runs
//! ```
//!
//! All heads are tried in one trial on the undo log, in which what is being stopped counts as gone. Why it ends: rules/rank.rs.
//!
//! While an operator has paused preemption, who would be given something is remembered, so that it is told why it waits.
//!
//! Never: for one job twice while what it was promised is on its way; never more than is needed.

mod bound;
mod ceiling;
mod heads;
mod losses;
mod search;
mod spared;

use crate::decision::{Decision, StopCause};
use crate::effect::WorkerPlace;
use crate::engine::Engine;
use crate::ids::{ClassId, JobId, NodeId, OfferingId, PoolId, QuotaId, TierId};
use crate::memo::Searched;
use crate::moves;
use crate::plan::PlanReport;
use crate::policy::{PreemptWithin, Reclaim};
use crate::reason::Reason;
use crate::rules::allowances::Beside;
use crate::rules::forecast::{allowance, expected, soonest_of};
use crate::rules::placement::{self, NodeScope};
use crate::rules::rank::{Borrows, Ground, Ranks, Taker};
use crate::rules::{allowances, budget, demand, order, quota, reservations, settings, start_targets, supply, timing};
use crate::state::brakes::Brake;
use crate::state::index::OrderKey;
use crate::state::jobs::{Job, Kept, Phase};
use crate::state::places::{Hold, nodes_of, share_of};
use crate::state::reservations::Reservation;
use crate::state::{State, Urgency};
use crate::units::{MilliGpu, Rate, Span, Timestamp};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::ops::Bound::{Excluded, Unbounded};
use heads::{
    Heads, anything_to_take, closed, first_that_may, firsts, for_first, heads, may_ever_take, waits_by_choice,
};
use losses::{Candidates, Loss, Taken};

/// What was freed is kept for the job for so long past the victims' grace.
const RESERVE_FOR: Span = Span::mins(5);

/// What a head lacks that others could give it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lack {
    /// Quota or money: with it nodes may be bought.
    Share,
    /// Places, or stock.
    Room,
    /// Room under a ceiling.
    Ceiling,
    /// A node in time: what can be bought or is booked comes after its start target.
    Time,
    /// All of these may be short: nodes that stand empty are given back for what it needs.
    All,
}

/// Where a waiting job stands: the least goes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Turn {
    borrows: Borrows,
    tier: Reverse<i32>,
    calm: bool,
    /// Where it stands among those of other classes.
    place: OrderKey,
    key: OrderKey,
    class: ClassId,
}

/// What was found for a head.
struct Deal {
    taker: Taker,
    losses: Vec<(Loss, Ground)>,
    nodes: Vec<NodeId>,
    /// Bought for it once the nodes are gone. Empty: it goes on the nodes.
    room: Vec<(OfferingId, u32)>,
    /// A part of it goes there, beside what is bought.
    beside: Vec<NodeId>,
    kept: Kept,
    /// When what it was promised is there, if nothing is taken for it.
    ready: Timestamp,
}

/// What a job that waits holds in the trial.
#[derive(Clone)]
struct Held {
    taker: Taker,
    places: Vec<WorkerPlace>,
    /// Instead of places: it is bought for once these nodes are gone.
    room: Option<Reservation>,
    /// It was promised before this pass: a job above it may have it instead.
    promised: bool,
    /// It has its quota and its money and no places: in its turn it looks for them.
    searches: bool,
}

/// What says whether anything may be taken for a head at all: its pool, what it counts for, the rules of its queue, and its number by them.
type Profile = (PoolId, QuotaId, TierId, Reclaim, PreemptWithin, i32);

/// The trial in which all heads are tried.
struct Trial<'a> {
    engine: &'a mut Engine,
    ranks: Ranks,
    candidates: BTreeMap<PoolId, Candidates>,
    taken: Taken,
    /// Nodes that may be given back, once somebody has asked.
    emptiable: Option<Vec<NodeId>>,
    /// What is kept for others from the head that is served now, as it was before anything was taken for it.
    beside: Option<Beside>,
    /// Where heads go only when what is being stopped has ended: elsewhere they are served before that.
    closed: BTreeSet<(JobId, PoolId)>,
    /// Jobs that hold in the trial what they were promised, or what was found for them.
    held: BTreeMap<JobId, Held>,
    /// Jobs that were promised what jobs before them have now.
    broken: BTreeSet<JobId>,
    /// Something was held or kept for a head that it does not have yet: what is found for those behind may be another with time.
    moving: bool,
    /// Takers from whom nobody has anything that they may have, as things stood after so many edits.
    hopeless: (usize, BTreeSet<Profile>),
    /// Classes for which nothing was found.
    in_vain: BTreeSet<ClassId>,
    deals: Vec<Deal>,
}

/// Runs the stage for all that waits. Returns who lost what it was promised.
pub(crate) fn run(engine: &mut Engine, report: &mut PlanReport) -> BTreeSet<JobId> {
    let promised = engine.state.index.keeps_anything();
    // What somebody comes to borrow in this pass is for the next one.
    let looks = || promised || anything_to_take(&engine.state);
    engine.memo.would_preempt.clear();
    if !may_ever_take(&engine.state) || !looks() {
        return BTreeSet::new();
    }
    let woke_at = timing::woke_at(&engine.state);
    let searched = Searched { capacity_epoch: engine.state.capacity_epoch, woke_at, first: None };
    let Engine { state, memo, .. } = &mut *engine;
    if memo.beside != *state.reservations() || memo.beside_kept != *state.allowances() {
        memo.searched.clear();
        memo.beside.clone_from(state.reservations());
        memo.beside_kept.clone_from(state.allowances());
    }
    let Heads { asked: first, left_out } = heads(engine, searched);
    if first.is_empty() && !promised {
        return BTreeSet::new();
    }
    let mut found = tried(engine, &first, !left_out.is_empty());
    if found.moved && !left_out.is_empty() {
        // What was found for a new head may let one have something for which nothing was there before.
        let all: Vec<(ClassId, OrderKey)> = first.into_iter().chain(firsts(&engine.state, &left_out)).collect();
        found = tried(engine, &all, false);
    }
    let Findings { deals, in_vain, broken, .. } = found;
    if engine.state.brake(&Brake::Preemption).is_some() {
        engine
            .memo
            .would_preempt
            .extend(deals.iter().filter(|deal| !deal.losses.is_empty()).map(|deal| deal.taker.job));
        return BTreeSet::new();
    }
    if deals.is_empty() && broken.is_empty() {
        remember(engine, in_vain.into_iter(), searched);
    }
    for job in &broken {
        engine.decide(Decision::Unreserve { job: *job });
    }
    for deal in deals {
        close(engine, deal, report);
    }
    broken
}

/// What one trial of all heads has found.
struct Findings {
    deals: Vec<Deal>,
    in_vain: BTreeSet<ClassId>,
    broken: BTreeSet<JobId>,
    /// Anything was found, held or kept.
    moved: bool,
}

/// Tries these heads, and takes it back. `more`: others are not asked, and may be behind the last of these.
fn tried(engine: &mut Engine, heads: &[(ClassId, OrderKey)], more: bool) -> Findings {
    let mark = engine.state.checkpoint();
    let (ranks, closed) = (Ranks::new(&engine.state), closed(&engine.state, heads));
    let mut trial = Trial {
        engine,
        ranks,
        candidates: BTreeMap::new(),
        taken: Taken::default(),
        emptiable: None,
        beside: None,
        closed,
        held: BTreeMap::new(),
        broken: BTreeSet::new(),
        moving: false,
        hopeless: (0, BTreeSet::new()),
        in_vain: BTreeSet::new(),
        deals: Vec::new(),
    };
    trial.lift_ending();
    trial.serve_all(heads, more);
    let Trial { deals, in_vain, broken, moving, .. } = trial;
    engine.state.rollback(mark);
    let moved = moving || !deals.is_empty() || !broken.is_empty();
    Findings { deals, in_vain, broken, moved }
}

/// Nothing was found for the first of these classes.
fn remember(engine: &mut Engine, classes: impl Iterator<Item = ClassId>, searched: Searched) {
    engine.memo.note_holders(&engine.state);
    for class in classes {
        let searched = for_first(&engine.state, class, searched);
        engine.memo.searched.insert(class, searched);
    }
}

/// Whether a job was promised all that it holds. Else it has its quota, and its places are anybody's yet.
fn is_its_own(state: &State, held: &Held) -> bool {
    let reserved = |place: &WorkerPlace| {
        state.nodes.get(&place.node).is_some_and(|node| node.reserved.iter().any(|(of, _)| *of == held.taker.job))
    };
    held.room.is_some() || !held.places.is_empty() && held.places.iter().all(reserved)
}

impl Trial<'_> {
    fn state(&self) -> &State {
        &self.engine.state
    }

    /// `None`: the policy does not know its queue, or no pool takes it.
    fn turn(&mut self, class: ClassId, key: OrderKey) -> Option<Turn> {
        let state = &self.engine.state;
        let pool = settings::pools(state, class).next()?;
        let taker = Taker::of(state, key.job, pool)?;
        let borrows = self.ranks.of_taker(state, &taker);
        let tier = Reverse(settings::priority(state, taker.tier));
        let calm = state.classes[class].shape.urgency != Urgency::Urgent;
        Some(Turn { borrows, tier, calm, place: order::place(state, key.job), key, class })
    }

    /// What is being stopped or is leaving counts as gone, with its quota and its money.
    fn lift_ending(&mut self) {
        let ending: Vec<JobId> = self.engine.state.ending_jobs();
        for id in ending {
            let job = &self.engine.state.jobs[id];
            let Some(pool) = job.pool else { continue };
            let whole = job.leaving.is_none();
            let (class, queue, rate, all) = (job.class, job.queue, job.rate, job.share);
            let ends = ends_at(&self.engine.state, job);
            let numbers = if whole { job.numbers.clone() } else { job.leaving().to_vec() };
            let places = losses::places(job, &numbers);
            // A run that has lost workers gives the whole of its quota back when it has stopped.
            let share = if whole { all } else { share_of(&places) };
            self.engine.state.release_places(id, class, &places, Hold::Running);
            self.engine.state.give_quota_back(queue, pool, share);
            if whole {
                let still = ends.since(self.engine.state.now);
                self.engine.state.discharge(id, rate, still);
            }
            self.ranks.set(&self.engine.state, id, pool, all - share);
        }
    }

    /// What was promised is held first, in the order of those to whom it was: who is above them may have it in its turn.
    fn hold_all_promised(&mut self) {
        let index = &self.state().index;
        let promised = index.reserved.iter().map(|(job, _)| *job).chain(index.kept.iter().copied());
        let rows = promised.map(|job| &self.state().jobs[job]).filter(|row| row.phase == Phase::Queued);
        let keys: BTreeSet<(ClassId, OrderKey)> =
            rows.map(|row| (row.class, OrderKey::of(row, index.ageing))).collect();
        let turns: BTreeSet<Turn> = keys.into_iter().filter_map(|(class, key)| self.turn(class, key)).collect();
        for Turn { key, class, .. } in turns {
            let places = self.state().jobs[key.job].reserved_until.is_some();
            // A job before it has the places that were kept for it.
            if !self.hold_promised(key.job, class) && places {
                self.broken.insert(key.job);
            }
        }
    }

    /// Whether what was promised to a job is enough: then it is held for it.
    fn hold_promised(&mut self, job: JobId, class: ClassId) -> bool {
        let kept = self.state().jobs[job].kept;
        let pools = settings::pools(self.state(), class);
        let pools: Vec<PoolId> = pools.filter(|pool| kept.is_none_or(|kept| kept.pool == *pool)).collect();
        // It asks for its quota itself; what was taken from others for it stays its own, whatever is kept of quotas and budgets for others.
        self.engine.state.set_kept(job, kept.map(|kept| Kept { share: MilliGpu(0), ..kept }));
        let takers = pools.into_iter().filter_map(|pool| Taker::of(self.state(), job, pool));
        let takers: Vec<Taker> = takers.filter(|taker| !refused(self.state(), taker)).collect();
        if takers.is_empty() {
            self.broken.insert(job);
        }
        let found = takers.into_iter().find_map(|taker| self.promised(taker, kept.is_some()));
        self.engine.state.set_kept(job, None);
        let Some(held) = found else { return false };
        let enough = !held.searches;
        self.moving |= enough && !is_its_own(self.state(), &held);
        self.hold(held);
        enough
    }

    /// What a taker was promised, if it is there.
    fn promised(&mut self, taker: Taker, keeps: bool) -> Option<Held> {
        let Taker { job, pool, .. } = taker;
        let places = placement::find(self.engine, job, pool, NodeScope::InFlight, taker.asked);
        let room = self.state().reservations().get(&pool);
        let made = |room: &&Reservation| keeps && room.job == job && !room.room.is_empty();
        let room = room.filter(made).filter(|_| places.is_none()).cloned();
        // Places beside it that were to come may have been refused, and who runs where nothing was taken for it may be stopped for it.
        let room = room.filter(|room| reservations::holds_gang(self.state(), pool, room) && self.stand_empty(room));
        let enough = places.is_some() || room.is_some() || supply::can_be_had(self.engine, job, pool);
        // Quota and money without places are kept as well: nobody else is promised them, here as where it is decided.
        let keeps = keeps && self.state().jobs[job].reserved_until.is_none();
        let held = Held { taker, places: places.unwrap_or_default(), room, promised: true, searches: !enough };
        (enough || keeps).then_some(held)
    }

    /// Whether nothing is on the nodes that are given back for a gang but what is on its way out.
    fn stand_empty(&self, room: &Reservation) -> bool {
        let mut nodes = room.nodes.iter().filter_map(|id| self.state().nodes.get(id));
        nodes.all(|node| node.holds.is_empty())
    }

    /// A head has these places and its quota, as far as the trial goes.
    fn hold(&mut self, held: Held) {
        let Held { taker, places, room, .. } = &held;
        let queue = self.state().jobs[taker.job].queue;
        let rate = cost(self.state(), taker, places);
        self.engine.state.hold_places(taker.job, taker.class, places, Hold::Booked);
        if !places.is_empty() {
            self.engine.state.forget_reserved(taker.job);
        }
        self.engine.state.end_allowances(taker.job);
        self.engine.state.take_quota(queue, taker.pool, taker.asked);
        if let Some(room) = room {
            // As good as spent by what is kept.
            self.engine.state.set_kept(taker.job, Some(Kept { pool: taker.pool, share: MilliGpu(0), own: false }));
            self.engine.state.set_reservation(taker.pool, Some(room.clone()));
        } else {
            self.engine.state.charge(taker.job, rate, Span::ZERO);
        }
        self.ranks.set(&self.engine.state, taker.job, taker.pool, taker.asked);
        self.held.insert(taker.job, held);
    }

    /// A job gives up what it held in the trial.
    fn give_up(&mut self, job: JobId) -> Option<Held> {
        let held = self.held.remove(&job)?;
        let Held { taker, places, room, .. } = &held;
        let queue = self.state().jobs[job].queue;
        let rate = cost(self.state(), taker, places);
        self.engine.state.release_places(job, taker.class, places, Hold::Booked);
        self.engine.state.give_quota_back(queue, taker.pool, taker.asked);
        if room.is_some() {
            self.engine.state.set_kept(job, None);
            self.engine.state.set_reservation(taker.pool, None);
        } else {
            self.engine.state.discharge(job, rate, Span::ZERO);
        }
        self.ranks.set(&self.engine.state, job, taker.pool, MilliGpu(0));
        Some(held)
    }

    /// Gives a head what was promised to jobs below it, the last of them first, and no more of it than it needs.
    fn take_promises(&mut self, taker: &Taker) -> bool {
        let state = &self.engine.state;
        let priority = |tier| settings::priority(state, tier);
        let may_yield = |held: &&Held| {
            let theirs = &held.taker;
            let lower = priority(theirs.tier) < priority(taker.tier);
            let below = || lower || self.ranks.may_yield(state, taker, theirs.quota, theirs.tier);
            held.promised && theirs.pool == taker.pool && below()
        };
        self.beside = Beside::of(state, taker.job, taker.pool);
        let promised = self.held.values().filter(may_yield);
        let mut promised: Vec<(i32, Reverse<JobId>)> =
            promised.map(|held| (priority(held.taker.tier), Reverse(held.taker.job))).collect();
        promised.sort_unstable();
        let mut given: Vec<Held> = Vec::new();
        let mut found = None;
        for (_, Reverse(job)) in promised {
            let Some(held) = self.yields(taker, job) else { continue };
            given.push(held);
            found = self.places(taker);
            if found.is_some() {
                break;
            }
        }
        // What it does not need stays with whom it was promised to, the highest first.
        let mut lost: Vec<Held> = Vec::new();
        for held in given.into_iter().rev() {
            let job = held.taker.job;
            self.hold(held);
            match self.places(taker) {
                Some(places) => found = Some(places),
                None if found.is_some() => lost.extend(self.give_up(job)),
                None => {}
            }
        }
        let above = lost.iter().all(|held| self.stands_by(taker, held));
        let Some(places) = found.filter(|_| above) else {
            lost.into_iter().for_each(|held| self.hold(held));
            return false;
        };
        self.broken.extend(lost.iter().map(|held| held.taker.job));
        let (kept, nodes) = (self.kept(taker), nodes_of(&places));
        self.hold(Held { taker: *taker, places, room: None, promised: false, searches: false });
        let ready = self.ready(&nodes);
        let (losses, room, beside) = (Vec::new(), Vec::new(), Vec::new());
        self.deals.push(Deal { taker: *taker, losses, nodes, room, beside, kept, ready });
        true
    }

    /// Whether a taker stands no lower than one that has given up what it was promised, each by itself.
    fn stands_by(&mut self, taker: &Taker, given: &Held) -> bool {
        let Taker { job, pool, asked, .. } = given.taker;
        let Trial { engine, ranks, .. } = self;
        let queue = engine.state.jobs[job].queue;
        engine.state.take_quota(queue, pool, asked);
        ranks.set(&engine.state, job, pool, asked);
        let stood = ranks.of_holder(&engine.state, job, pool);
        engine.state.give_quota_back(queue, pool, asked);
        ranks.set(&engine.state, job, pool, MilliGpu(0));
        ranks.stands_by(&engine.state, taker, given.taker.job, stood)
    }

    /// A job gives up what it was promised, if a head is above it by quota or tier, as if it ran.
    fn yields(&mut self, taker: &Taker, job: JobId) -> Option<Held> {
        let stood = self.ranks.of_holder(&self.engine.state, job, taker.pool);
        let held = self.give_up(job)?;
        match self.ranks.ground(&self.engine.state, taker, job, stood) {
            Some(Ground::Quota | Ground::Tier) => Some(held),
            Some(Ground::Share) | None => {
                self.hold(held);
                None
            }
        }
    }

    /// Whether quota and money let a gang of a taker's start, and leave to others what is kept for those before which it does not go.
    fn has_share(&self, taker: &Taker) -> bool {
        let state = &self.engine.state;
        !refused(state, taker) && self.beside.as_ref().is_none_or(|beside| beside.refused(state).is_none())
    }

    /// Where a head would go as things stand in the trial.
    fn places(&mut self, taker: &Taker) -> Option<Vec<WorkerPlace>> {
        if !self.has_share(taker) {
            return None;
        }
        placement::find(self.engine, taker.job, taker.pool, NodeScope::InFlight, taker.asked)
    }

    /// All heads in their order. One that is served is followed by the next of its class; one that is not takes its class with it.
    fn serve_all(&mut self, heads: &[(ClassId, OrderKey)], more: bool) {
        self.hold_all_promised();
        let mut turns: BTreeSet<Turn> = heads.iter().filter_map(|(class, key)| self.turn(*class, *key)).collect();
        while let Some(next) = turns.pop_first() {
            let broken = self.broken.clone();
            if self.serve(next.key.job, next.class, !more && turns.is_empty())
                && let Some(behind) = self.behind(&next)
            {
                turns.insert(behind);
            }
            // Who lost what it was promised looks again.
            let rows = self.broken.difference(&broken).map(|job| &self.state().jobs[*job]);
            let again: Vec<_> = rows.map(|row| (row.class, OrderKey::of(row, self.state().index.ageing))).collect();
            turns.extend(again.into_iter().filter_map(|(class, key)| self.turn(class, key)).collect::<Vec<_>>());
        }
    }

    fn behind(&mut self, last: &Turn) -> Option<Turn> {
        let state = self.state();
        let booked = state.jobs[last.key.job].phase == Phase::Booked;
        let lines = if booked { &state.index.booked } else { &state.index.queued };
        let mut behind = lines.get(&last.class)?.range((Excluded(last.key), Unbounded));
        let key = if booked {
            *behind.find(|key| start_targets::comes_late(state, key.job))?
        } else {
            first_that_may(state, last.class, behind)?
        };
        self.turn(last.class, key)
    }

    /// Whether a head has, or is promised, what it needs: then the next of its class is looked at. `last`: else nobody is.
    fn serve(&mut self, job: JobId, class: ClassId, last: bool) -> bool {
        if self.held.get(&job).is_some_and(|held| !held.searches) {
            return true;
        }
        let kept = self.give_up(job);
        let served = self.seek(job, class, last);
        if let Some(kept) = kept.filter(|_| !served) {
            self.hold(kept);
        }
        served
    }

    fn seek(&mut self, job: JobId, class: ClassId, last: bool) -> bool {
        let state = self.state();
        let row = &state.jobs[job];
        if waits_by_choice(state, job) {
            return false;
        }
        let late = row.phase == Phase::Booked;
        let pools = settings::pools(state, class).filter(|pool| !late || row.pool == Some(*pool));
        let pools: Vec<PoolId> = pools.collect();
        let all: Vec<Taker> = pools.iter().filter_map(|pool| Taker::of(state, job, *pool)).collect();
        let leaves = |taker: &Taker| !late && waits_for_another(state, taker);
        let takers: Vec<Taker> = all.iter().filter(|taker| !leaves(taker)).copied().collect();
        let is_closed = |taker: &&Taker| self.closed.contains(&(taker.job, taker.pool));
        let (after, at_once): (Vec<&Taker>, Vec<&Taker>) = takers.iter().partition(is_closed);
        if !late && at_once.into_iter().chain(after).any(|taker| self.has(taker) || self.take_promises(taker)) {
            self.moving = true;
            return true;
        }
        if late {
            return takers.iter().any(|taker| self.deal_anew(taker));
        }
        // The answer to a launch comes within seconds: nobody is stopped for it.
        let tried = |taker: &Taker| supply::refusal(self.state(), job, taker.pool).is_some_and(Reason::is_tried);
        if takers.iter().any(tried) {
            return false;
        }
        let mut lacks = 0;
        for taker in &takers {
            let Some(lack) = lack(self.state(), taker) else { continue };
            lacks += 1;
            // What is there in time is better than what can be had, once others have ended.
            let late = lack != Lack::Time && bought_late_next(self.state(), taker);
            self.beside = Beside::of(self.state(), job, taker.pool);
            if (late && self.deal(taker, Lack::Time)) || self.deal(taker, lack) {
                return true;
            }
        }
        if !last {
            self.reserve(&takers);
            takers.iter().for_each(|taker| self.keep_allowances(taker));
        }
        // What passes by itself, or with time, is looked at again.
        let state = self.state();
        let timed = self.moving || !state.budgets.none() || state.jobs[job].start_target.is_some();
        if !timed && lacks == all.len() {
            self.in_vain.insert(class);
        }
        false
    }

    /// What a head that gets nothing will be kept, in the pool where that is soonest, is not promised to those behind it.
    fn reserve(&mut self, takers: &[Taker]) {
        let Some(job) = takers.first().map(|taker| taker.job) else { return };
        if reservations::reserved_from(self.state(), job).is_some() {
            return;
        }
        let holder = |pool: PoolId| self.state().reservations().get(&pool).map(|kept| kept.job);
        let pools: Vec<(PoolId, Option<JobId>)> = takers.iter().map(|one| (one.pool, holder(one.pool))).collect();
        if let (_, Some((pool, reservation))) = soonest_of(self.engine, job, &pools) {
            self.engine.state.set_reservation(pool, Some(reservation));
            self.moving = true;
        }
    }

    /// What of quotas and budgets a head that gets nothing will be kept is not promised to those behind it.
    fn keep_allowances(&mut self, taker: &Taker) {
        let Taker { job, pool, .. } = *taker;
        if !reservations::waits_for_others(self.state(), job) {
            return;
        }
        for of in allowances::lacks(self.state(), job, pool) {
            if allowances::is_open(self.state(), of, job, pool)
                && let Some(made) = allowance(self.engine, job, pool, of)
            {
                self.engine.state.set_allowance(of, made);
                self.moving = true;
            }
        }
    }

    /// Whether a head is served as things stand, or will be when what ends has ended: then its places are held for it.
    fn has(&mut self, taker: &Taker) -> bool {
        let state = self.state();
        if refused(state, taker) {
            return false;
        }
        let Some(places) = placement::find(self.engine, taker.job, taker.pool, NodeScope::InFlight, taker.asked) else {
            return supply::can_be_had(self.engine, taker.job, taker.pool) && !bought_late(self.state(), taker);
        };
        self.hold(Held { taker: *taker, places, room: None, promised: false, searches: false });
        true
    }

    /// When what is on its way out of these nodes is gone, and what comes is there.
    fn ready(&self, nodes: &[NodeId]) -> Timestamp {
        let state = self.state();
        let rows = nodes.iter().filter_map(|id| state.nodes.get(id));
        let coming = rows.map(|node| supply::ready_at(state, node)).max();
        let ends = state.index.ending.iter().map(|id| &state.jobs[*id]);
        let on = ends.filter(|job| job.places.iter().any(|p| nodes.contains(&p.node)));
        let gone = on.map(|job| ends_at(state, job));
        coming.into_iter().chain(gone).max().unwrap_or(state.now).max(state.now)
    }

    /// Whether what a job asks is within what its queue and all above it own.
    fn owns(&mut self, taker: &Taker) -> bool {
        self.ranks.of_taker(&self.engine.state, taker) == Borrows::default()
    }

    /// What is kept of its quota for a head: what is taken for it is gone, and it does not hold it yet.
    fn kept(&mut self, taker: &Taker) -> Kept {
        Kept { pool: taker.pool, share: taker.asked, own: self.owns(taker) }
    }

    /// A booked job looks for places that are there in time as if it held nothing.
    fn deal_anew(&mut self, taker: &Taker) -> bool {
        // It has its share.
        self.beside = None;
        if self.taken.any(taker.job) {
            // One before it has its places.
            return self.deal(taker, Lack::Time);
        }
        // What may be taken in its pool is found once, for all heads, and it is among that for those behind it.
        self.find_candidates(taker.pool);
        self.taken.take(&mut self.engine.state, &mut self.ranks, taker.job, &[]);
        self.engine.state.set_phase(taker.job, Phase::Queued);
        let found = self.deal(taker, Lack::Time);
        self.engine.state.set_phase(taker.job, Phase::Booked);
        if !found {
            self.taken.put_back(&mut self.engine.state, &mut self.ranks, taker.job, &[]);
        }
        found
    }

    /// Looks for the least that is enough, and holds it for the head.
    fn deal(&mut self, taker: &Taker, lack: Lack) -> bool {
        if self.is_hopeless(taker) {
            return false;
        }
        let Some(found) = search::find(self, taker, lack) else { return false };
        if lack == Lack::Time && found.losses.is_empty() {
            // What it waits for ends by itself: it goes there then.
            return false;
        }
        let found = ceiling::with_rest(self, taker, found);
        let kept = self.kept(taker);
        // A gang goes where something is taken for it, with what is bought beside it.
        let nodes =
            if found.room.is_empty() && !found.places.is_empty() { nodes_of(&found.places) } else { found.nodes };
        let beside = if found.room.is_empty() { Vec::new() } else { nodes_of(&found.places) };
        let ready = self.ready(&[nodes.as_slice(), &beside].concat());
        let room = (!found.room.is_empty()).then(|| made(taker, ready, &nodes, &found.room));
        self.hold(Held { taker: *taker, places: found.places, room, promised: false, searches: false });
        self.deals.push(Deal { taker: *taker, losses: found.losses, nodes, room: found.room, beside, kept, ready });
        true
    }
}

/// When what is on its way out of a run is gone.
fn ends_at(state: &State, job: &Job) -> Timestamp {
    match job.phase {
        Phase::Stopping { deadline, .. } => deadline,
        _ => job.leaving.as_ref().map_or(state.now, |leaving| leaving.deadline),
    }
}

/// Room for what is bought for a taker once these nodes are gone.
fn made(taker: &Taker, from: Timestamp, nodes: &[NodeId], room: &[(OfferingId, u32)]) -> Reservation {
    Reservation { job: taker.job, from, known: true, delayed: false, nodes: nodes.to_vec(), room: room.to_vec() }
}

/// What a gang costs in its places, or while it has none at the least.
fn cost(state: &State, taker: &Taker, places: &[WorkerPlace]) -> Rate {
    if places.is_empty() { budget::least(state, taker.class, taker.pool) } else { state.cost_of(taker.class, places) }
}

/// Whether quota or budgets let no gang of a taker's start.
fn refused(state: &State, taker: &Taker) -> bool {
    quota::refusal(state, taker.class, taker.pool, taker.asked).is_some()
        || budget::refusal(state, taker.class, taker.pool).is_some()
}

/// Whether what a taker would have is kept for another: it waits for that one, and takes nothing instead.
fn waits_for_another(state: &State, taker: &Taker) -> bool {
    !refused(state, taker) && allowances::refusal(state, taker.job, taker.pool).is_some()
}

/// Whether what could be bought for a taker would be there after its start target only.
fn bought_late(state: &State, taker: &Taker) -> bool {
    let row = &state.jobs[taker.job];
    row.start_target
        .is_some_and(|target| start_targets::bought_by(state, taker.job) < state.now && target.by > state.now)
}

/// The same, if it is not bought in this pass: whoever has to end first takes a while.
fn bought_late_next(state: &State, taker: &Taker) -> bool {
    let row = &state.jobs[taker.job];
    row.start_target
        .is_some_and(|target| start_targets::buys_from(state, taker.job) <= state.now && target.by > state.now)
}

/// What a head lacks. `None`: nothing that others could give it, or not yet.
fn lack(state: &State, taker: &Taker) -> Option<Lack> {
    if refused(state, taker) {
        return Some(Lack::Share);
    }
    match supply::refusal(state, taker.job, taker.pool) {
        None => bought_late(state, taker).then_some(Lack::Time),
        Some(Reason::Ceiling { .. }) => Some(Lack::Ceiling),
        Some(
            Reason::Stockout { .. }
            | Reason::NothingIdle
            | Reason::OwnedNodesFull { .. }
            | Reason::TopologyUnsatisfied { .. }
            | Reason::NodeBeyondBudget { .. },
        ) => Some(Lack::Room),
        // Its part is paid, and no node for it is: places would do, and so would more money.
        Some(Reason::Budget { .. }) => Some(Lack::Share),
        Some(Reason::LaunchRefused { offering, .. }) => {
            // It may go through in a moment: nobody is stopped for it before a boot would have been over. It counts from the first refusal in a
            // row, whoever was refused and however long the taker waited for other things before.
            let since = state.offerings[offering.index()].refused_since().unwrap_or(state.now);
            (since + demand::boot_p90(state, offering) <= state.now).then_some(Lack::Room)
        }
        Some(_) => None,
    }
}

/// Decides what was found for a head.
fn close(engine: &mut Engine, deal: Deal, report: &mut PlanReport) {
    let Deal { taker, losses, nodes, room, beside, kept, ready } = deal;
    let by = taker.job;
    if engine.state.jobs[by].phase == Phase::Booked {
        engine.decide(Decision::Unbook { job: by });
    }
    if engine.state.jobs[by].reserved_until.is_some() {
        // What it was promised went to a job before it.
        engine.decide(Decision::Unreserve { job: by });
    }
    let mut until = ready;
    let mut leave: BTreeMap<JobId, (StopCause, Vec<u32>)> = BTreeMap::new();
    for (loss, ground) in losses {
        let cause = match ground {
            Ground::Quota | Ground::Share => StopCause::QuotaReclaimed { by },
            Ground::Tier => StopCause::Preempted { by },
        };
        match loss.worker {
            Some(number) => leave.entry(loss.job).or_insert((cause, Vec::new())).1.push(number),
            None if engine.state.jobs[loss.job].phase == Phase::Booked => {
                engine.decide(Decision::Unbook { job: loss.job });
                // What was kept for it is the taker's now.
                if engine.state.jobs[loss.job].kept.is_some() {
                    engine.decide(Decision::Unreserve { job: loss.job });
                }
            }
            None => {
                report.stopped += 1;
                moves::stop(engine, loss.job, cause);
                if let Phase::Stopping { deadline, .. } = engine.state.jobs[loss.job].phase {
                    until = until.max(deadline);
                }
            }
        }
    }
    for (job, (cause, mut workers)) in leave {
        workers.sort_unstable();
        until = until.max(moves::shrink(engine, job, cause, workers));
    }
    if engine.state.jobs[by].kept != Some(kept) {
        engine.decide(Decision::Keep { job: by, kept });
    }
    if room.is_empty() && nodes.is_empty() {
        return;
    }
    if room.is_empty() {
        engine.decide(Decision::Reserve { job: by, nodes, until: until + RESERVE_FOR });
    } else {
        // It has one reservation: this one is sooner.
        let others = engine.state.reservations().iter().filter(|(pool, kept)| **pool != taker.pool && kept.job == by);
        let others: Vec<PoolId> = others.map(|(pool, _)| *pool).collect();
        others.into_iter().for_each(|pool| engine.decide(Decision::EndReservation { pool }));
        if !beside.is_empty() {
            engine.decide(Decision::Reserve { job: by, nodes: beside, until: until + RESERVE_FOR });
        }
        let from = until.max(expected(&engine.state, &nodes).0);
        let reservation = made(&taker, from, &nodes, &room);
        engine.decide(Decision::MakeReservation { pool: taker.pool, reservation });
    }
}

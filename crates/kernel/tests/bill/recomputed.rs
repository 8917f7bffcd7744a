//! A bill made again from the rows of nodes and jobs between the records of a journal: who held what of each node, looked up anew for every
//! stretch of time between two ticks.
//!
//! Never: the ledger, its charges, its arithmetic, or what nodes keep of who holds them.

use forebay_kernel::ids::JobId;
use forebay_kernel::job::Gang;
use forebay_kernel::state::State;
use forebay_kernel::state::jobs::{Job, Phase};
use forebay_kernel::state::nodes::{Node, NodePhase};
use forebay_kernel::units::Timestamp;
use std::collections::BTreeMap;

/// An hour in milliseconds.
pub const HOUR: u64 = 3_600_000;

/// A stretch of a node: where and when it was used, at which price.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Stretch {
    /// When its slot began, in ms since 1970.
    pub slot: u64,
    /// Of what.
    pub offering: usize,
    /// Micro-dollars an hour.
    pub price: u64,
    /// By name.
    pub pool: String,
}

/// What a stretch was, and whose.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Use {
    /// Where and when.
    pub stretch: Stretch,
    /// What it was.
    pub kind: &'static str,
    /// For whom.
    pub job: Option<JobId>,
}

/// What is known of a run while it is alive.
#[derive(Default)]
struct Run {
    attempt: u32,
    started: bool,
    progress: u64,
    idle: u64,
    /// What it worked since it last saved.
    since: BTreeMap<Stretch, u128>,
}

/// The bill.
pub struct Recomputed {
    /// Shares x milliseconds.
    pub used: BTreeMap<Use, u128>,
    runs: BTreeMap<JobId, Run>,
    /// How long a slot is.
    slot_ms: u64,
}

impl Recomputed {
    /// A bill of nothing, in slots of so many milliseconds.
    pub fn in_slots_of(slot_ms: u64) -> Recomputed {
        Recomputed { used: BTreeMap::new(), runs: BTreeMap::new(), slot_ms }
    }

    /// Time passes from the state's last tick, and nothing changes meanwhile.
    pub fn pass_time(&mut self, state: &State, until: Timestamp) {
        let (from, until) = (state.now().0, until.0);
        for node in state.nodes().filter(|node| node.phase != NodePhase::Requested) {
            let mut at = from;
            while at < until {
                let end = ((at / self.slot_ms + 1) * self.slot_ms).min(until);
                self.pass(state, node, at, end);
                at = end;
            }
        }
    }

    fn pass(&mut self, state: &State, node: &Node, from: u64, to: u64) {
        let pool = state.policy().unwrap().pools.get(node.pool.index()).map_or(String::new(), |pool| pool.name.clone());
        let (slot, price) = (from / self.slot_ms * self.slot_ms, node.price.0);
        let stretch = Stretch { slot, offering: node.offering.index(), price, pool };
        let ms = u128::from(to - from);
        let all = if node.slots.is_empty() { 1_000_000 } else { 1000 * node.slots.len() as u64 };
        let holders = holders(state, node);
        let (promised, anybody) = (holders.iter().map(|(_, share)| share).sum::<u64>(), !holders.is_empty());
        let (mut sum, mut held) = (0, 0);
        for (job, share) in holders {
            // More than there is is given in proportion, from one whole number to the next.
            sum += share;
            let upto =
                if promised > all { (u128::from(sum) * u128::from(all) / u128::from(promised)) as u64 } else { sum };
            let share = upto - held;
            held = upto;
            let billed = job.service.unwrap_or(job.id);
            let kind = match (job.phase, node.phase) {
                (Phase::Booked, NodePhase::Booting) => "boot",
                (Phase::Booked, _) => "booked",
                _ => "worked",
            };
            if share == 0 {
                continue;
            }
            let whose = (kind != "boot").then_some(billed);
            *self.used.entry(Use { stretch: stretch.clone(), kind, job: whose }).or_default() += u128::from(share) * ms;
            if kind == "worked" && job.service.is_none() {
                let run = self.runs.entry(job.id).or_default();
                *run.since.entry(stretch.clone()).or_default() += u128::from(share) * ms;
            }
        }
        let kind = match (node.phase, anybody) {
            (NodePhase::Booting, _) => "boot",
            (_, false) => "idle",
            (_, true) => "fragmentation",
        };
        let foreign = held_by_others(state, node, all - held);
        for (kind, share) in [("foreign", foreign), (kind, all - held - foreign)] {
            if share > 0 {
                let used = Use { stretch: stretch.clone(), kind, job: None };
                *self.used.entry(used).or_default() += u128::from(share) * ms;
            }
        }
    }

    /// After each record: who has saved, was idle, or has ended.
    pub fn look(&mut self, state: &State) {
        for (job, _) in state.jobs().filter(|(job, _)| !job.places.is_empty()) {
            self.runs.entry(job.id).or_default();
        }
        let ids: Vec<JobId> = self.runs.keys().copied().collect();
        for id in ids {
            let Some((job, _)) = state.job(id) else { continue };
            let run = self.runs.get_mut(&id).unwrap();
            if job.progress.0 > run.progress {
                run.progress = job.progress.0;
                run.since.clear();
            }
            if job.running_since.is_some() && !run.started {
                run.started = true;
                run.since.clear();
            }
            if job.alive() {
                run.attempt = job.attempt.0;
                let idle = job.idle_seen.0;
                // Each run begins with none.
                let more = idle.saturating_sub(run.idle);
                run.idle = idle;
                self.was_idle(state, id, u128::from(more) * u128::from(job.share.0));
            } else if run.attempt > 0 {
                self.ended(job);
            }
        }
    }

    fn ended(&mut self, job: &Job) {
        let run = self.runs.remove(&job.id).unwrap();
        let done = match job.phase {
            Phase::Ended { how } => how.is_done(),
            other => panic!("{} is {other:?} after it ran", job.id),
        };
        for (stretch, amount) in run.since {
            if run.started && !done && job.service.is_none() {
                self.changes(job.id, stretch, amount, "lost");
            }
        }
        self.runs.insert(job.id, Run { progress: run.progress, ..Run::default() });
    }

    fn was_idle(&mut self, state: &State, id: JobId, mut amount: u128) {
        let mut taken = Vec::new();
        let with_gpus = |stretch: &Stretch| state.offerings()[stretch.offering].offer.gpus > 0;
        let since = &mut self.runs.get_mut(&id).unwrap().since;
        for (stretch, worked) in since.iter_mut().rev().filter(|(stretch, _)| with_gpus(stretch)) {
            let part = amount.min(*worked);
            *worked -= part;
            amount -= part;
            taken.push((stretch.clone(), part));
        }
        for (stretch, part) in taken.into_iter().filter(|(_, part)| *part > 0) {
            self.changes(id, stretch, part, "lingering");
        }
    }

    fn changes(&mut self, id: JobId, stretch: Stretch, amount: u128, kind: &'static str) {
        let worked = Use { stretch: stretch.clone(), kind: "worked", job: Some(id) };
        *self.used.get_mut(&worked).unwrap() -= amount;
        *self.used.entry(Use { stretch, kind, job: Some(id) }).or_default() += amount;
    }
}

/// What pods of others hold of an owned node: whole GPUs that no worker of ours is on, or where there are none the larger of their parts of CPU and
/// memory, as far as our workers leave it.
fn held_by_others(state: &State, node: &Node, left: u64) -> u64 {
    let Some(others) = node.owned.as_ref().map(|owned| &owned.foreign) else { return 0 };
    if !node.slots.is_empty() {
        let free = node.slots.iter().filter(|slot| slot.workers == 0).count() as u64;
        return 1000 * free.min(u64::from(others.gpus));
    }
    let offer = &state.offerings()[node.offering.index()].offer;
    let of_cpu = others.cpu.0 * 1_000_000 / offer.cpu.0.max(1);
    let of_memory = others.mem.0 * 1_000_000 / offer.mem.0.max(1);
    left.min(of_cpu.max(of_memory))
}

/// Who holds how much of a node, from the jobs alone, in their order.
fn holders<'a>(state: &'a State, node: &Node) -> Vec<(&'a Job, u64)> {
    let mut found = Vec::new();
    for (job, _) in state.jobs().filter(|(job, _)| job.places.iter().any(|place| place.node == node.id)) {
        let offer = &state.offerings()[node.offering.index()].offer;
        let share = job.places.iter().filter(|place| place.node == node.id).map(|place| {
            if offer.gpus > 0 {
                return u64::from(place.gpus.count_ones()) * u64::from(place.share);
            }
            // Whole GPUs are nothing that a node without any could hold.
            let Gang::Workers { each, .. } = &state.classes()[job.class].shape.gang else { return 0 };
            let part = |of: u64, all: u64| of * 1_000_000 / all.max(1);
            part(each.cpu.0, offer.cpu.0).max(part(each.mem.0, offer.mem.0)).min(1_000_000)
        });
        found.push((job, share.sum()));
    }
    found
}

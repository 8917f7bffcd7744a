//! What operators and the world around do in one seed of five: brakes, other policies, pools that go or have another name, budgets that go and come
//! back, nodes that nobody bought, deaths there that only an operator can confirm, nodes without GPUs, an account that launches nothing for a while,
//! boots of which the cloud says that they failed. Each is drawn apart from everything else, so that the other seeds live as they did.
//!
//! ```text
//! seed % 10 >= 8 -> each of these with a chance of its own -> inputs among the workload's, a policy and a world with more in them
//! ```
//!
//! Never: a brake that is never released, or another policy that stays: at the end the seed's own policy is in force, and everything can end.

mod removals;

use forebay_kernel::catalog::CapacityType;
use forebay_kernel::effect::WorkerPlace;
use forebay_kernel::event::{Event, LaunchError};
use forebay_kernel::ids::{OfferingId, PoolId, TierId};
use forebay_kernel::policy::{Policy, Pool, PreemptWithin, Reclaim, WhenSpent};
use forebay_kernel::state::State;
use forebay_kernel::state::brakes::Brake;
use forebay_kernel::state::jobs::Job;
use forebay_kernel::state::node_reserves::{NodeReserve, NodeRoom};
use forebay_kernel::state::owned::{ForeignUse, OwnedNode, OwnedPool, OwnedShape};
use forebay_kernel::units::{Mib, MilliCpu, MilliGpu, Rate, Span, Timestamp};

use super::checks::open_jobs;
use super::workload::Input;
use crate::policies::{QUEUES, offerings};
use crate::world::WorldOptions;
use crate::world::hash::{Draw, below, draw};
pub(super) use removals::first_name;

/// The pool of nodes that nobody bought.
const OWNED_POOL: &str = "owned";
/// Inputs come within two hours, and brakes end within three: before faults do.
const LATEST: u64 = 7_200_000;

/// What one seed has beside its policy and workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Operators {
    seed: u64,
}

impl Operators {
    /// `None`: nobody intervenes in this seed.
    pub fn of(seed: u64) -> Option<Operators> {
        (seed % 10 >= 8).then_some(Operators { seed })
    }

    fn roll(self, what: Feature, nth: u64, bound: u64) -> u64 {
        below(draw(self.seed, Draw::Made, 50_000 + what as u64, nth), bound)
    }

    /// Whether this seed has it.
    fn has(self, what: Feature) -> bool {
        match what {
            // More than half of those with such nodes.
            Feature::ConfirmedDeaths => self.has(Feature::OwnedNodes) && self.roll(what, 0, 5) < 3,
            _ => self.roll(what, 0, 5) < 2,
        }
    }

    /// What this seed has, by name.
    pub fn named(self) -> impl Iterator<Item = &'static str> {
        Feature::ALL.into_iter().filter(move |(what, _)| self.has(*what)).map(|(_, name)| name)
    }

    /// The policy with nodes that nobody bought, and nodes without GPUs, in it.
    pub fn policy(self, mut policy: Policy) -> Policy {
        if self.has(Feature::CpuNodes) {
            let zone = policy.offerings.first().map_or_else(String::new, |offer| offer.zone.clone());
            let first = policy.offerings.len();
            policy.offerings.extend(offerings(&["c6i.2xlarge"], &[&zone]));
            let more = (first..policy.offerings.len()).filter_map(|at| u32::try_from(at).ok());
            policy.pools[0].offerings.extend(more);
        }
        if self.has(Feature::OwnedNodes) {
            let price = Rate(self.roll(Feature::OwnedNodes, 1, 2) * 300_000);
            let owned = Some(OwnedPool { price, ..OwnedPool::default() });
            let pool = PoolId(u16::try_from(policy.pools.len()).unwrap_or(u16::MAX));
            policy.pools.push(Pool { name: OWNED_POOL.to_owned(), owned, ..Pool::default() });
            let mut rules: Vec<_> = policy.queues.values_mut().collect();
            if let forebay_kernel::policy::Undeclared::Under { rule, .. } = &mut policy.undeclared {
                rules.push(rule);
            }
            for (nth, rule) in (2..).zip(rules) {
                if self.roll(Feature::OwnedNodes, nth, 3) > 0 {
                    rule.pools.push(pool);
                }
            }
        }
        policy
    }

    /// The world with an account that launches nothing for a while, and boots that fail aloud.
    pub fn world(self, mut options: WorldOptions) -> WorldOptions {
        let roll = |nth, bound| self.roll(Feature::AccountRefuses, nth, bound);
        if self.has(Feature::AccountRefuses) {
            for nth in 0..1 + roll(1, 3) {
                let (from, lasts) = (roll(10 * nth + 2, LATEST), 60_000 + roll(10 * nth + 3, 1_800_000));
                let errors = [LaunchError::Quota, LaunchError::Auth, LaunchError::Contested, LaunchError::Config];
                let error = errors[usize::try_from(roll(10 * nth + 4, 4)).unwrap_or(0)];
                options.account_refuses.push((Timestamp(from), Timestamp(from + lasts), error));
            }
        }
        if self.has(Feature::BootsFail) {
            options.boot_failed_permille = 700;
            options.no_boot_permille = options.no_boot_permille.max(100);
        }
        if self.has(Feature::OwnedNodes) {
            // The end of a node proves the end of what hung on it, and these are never ended: an operator's word proves it, or nothing hangs.
            let hangs = self.has(Feature::ConfirmedDeaths);
            options.hang_for_ever_permille = if hangs { options.hang_for_ever_permille.max(200) } else { 0 };
        }
        options
    }

    /// What enters beside the workload, under a policy as [`Operators::policy`] made it.
    pub fn inputs(self, policy: &Policy) -> Vec<Input> {
        let mut inputs = Vec::new();
        if self.has(Feature::Brakes) {
            self.brakes(policy, &mut inputs);
        }
        if self.has(Feature::Policies) {
            self.policies(policy, &mut inputs);
        }
        if self.has(Feature::OwnedNodes) {
            self.owned(policy, &mut inputs);
        }
        if self.has(Feature::Reserves) {
            self.reserves(policy, &mut inputs);
        }
        if self.has(Feature::Pools) {
            self.for_a_while(Feature::Pools, policy, &mut inputs, |first| self.other_pools(policy, first));
        }
        if self.has(Feature::Budgets) {
            let goes = |first: u64, nth: u64| self.roll(Feature::Budgets, first + nth, 3) > 0;
            let without = |first| removals::without_budgets(policy, |nth| goes(first, nth));
            self.for_a_while(Feature::Budgets, policy, &mut inputs, without);
        }
        inputs
    }

    /// What an operator confirms when a listing is compared: that workers of runs which have hung are dead, on nodes that nobody bought. Of some runs
    /// half of them at first, and the others at the next listing.
    pub fn deaths(self, state: &State) -> Vec<Event> {
        if !self.has(Feature::ConfirmedDeaths) {
            return Vec::new();
        }
        open_jobs(state).filter(|job| job.hung).filter_map(|job| self.death(job, state)).collect()
    }

    fn death(self, job: &Job, state: &State) -> Option<Event> {
        let owned = |place: &WorkerPlace| state.node(place.node).is_some_and(|node| node.owned.is_some());
        let there = job.places.iter().zip(&job.numbers).filter(|(place, _)| owned(place)).map(|(_, number)| *number);
        let mut workers: Vec<u32> = there.filter(|number| !job.confirmed_dead.contains(number)).collect();
        if workers.is_empty() {
            return None;
        }
        if job.confirmed_dead.is_empty() && self.roll(Feature::ConfirmedDeaths, 100 + job.id.0, 2) == 0 {
            workers.truncate(workers.len().div_ceil(2));
        }
        Some(Event::DeathConfirmed { job: job.id, attempt: job.attempt, workers, by: "operator".to_owned() })
    }

    fn brakes(self, policy: &Policy, inputs: &mut Vec<Input>) {
        let roll = |nth, bound| self.roll(Feature::Brakes, nth, bound);
        for nth in 0..2 + roll(1, 4) {
            let at = 10 * (nth + 1);
            let pool = &policy.pools[usize::try_from(roll(at, policy.pools.len() as u64)).unwrap_or(0)].name;
            let queue = ["org", QUEUES[0], QUEUES[1], QUEUES[3]][usize::try_from(roll(at + 1, 4)).unwrap_or(0)];
            let brake = match roll(at + 2, 6) {
                0 => Brake::Buying,
                1 => Brake::Admission,
                2 => Brake::Preemption,
                3 => Brake::Pool(pool.clone()),
                _ => Brake::Queue(queue.to_owned()),
            };
            let from = Timestamp(roll(at + 3, LATEST));
            let lasts = Span(60_000 + roll(at + 4, 3_000_000));
            let by = || "operator".to_owned();
            let until = (roll(at + 5, 2) == 0).then_some(from + lasts);
            let set = Event::BrakeSet { brake: brake.clone(), by: by(), why: "a drill".to_owned(), until };
            inputs.push(Input { at: from, event: set });
            // One that ends by itself may be released before that; the others always are.
            if until.is_none() || roll(at + 6, 2) == 0 {
                let release = |brake| Input { at: from + lasts, event: Event::BrakeReleased { brake, by: by() } };
                // A brake goes with its pool, which may have its other name then.
                if let Brake::Pool(pool) = &brake
                    && self.has(Feature::Pools)
                {
                    inputs.push(release(Brake::Pool(removals::other_name(pool))));
                }
                inputs.push(release(brake));
            }
        }
    }

    /// Some other policies, and then this one again.
    fn policies(self, policy: &Policy, inputs: &mut Vec<Input>) {
        let roll = |nth, bound| self.roll(Feature::Policies, nth, bound);
        let count = 1 + roll(1, 3);
        let mut at: Vec<u64> = (0..=count).map(|nth| 300_000 + roll(10 + nth, LATEST)).collect();
        at.sort_unstable();
        for (nth, at) in (0..).zip(at) {
            let edited = if nth < count { self.edited(policy, 100 * (nth + 1)) } else { policy.clone() };
            inputs.push(Input { at: Timestamp(at), event: Event::Configured(Box::new(edited)) });
        }
    }

    /// One or two other policies, each for a while, and then this one again.
    fn for_a_while(
        self,
        what: Feature,
        policy: &Policy,
        inputs: &mut Vec<Input>,
        other: impl Fn(u64) -> Option<Policy>,
    ) {
        for nth in 1..=1 + self.roll(what, 1, 2) {
            let first = 100 * nth;
            let Some(other) = other(first + 10) else { continue };
            let from = Timestamp(300_000 + self.roll(what, first, LATEST));
            let until = from + Span(60_000 + self.roll(what, first + 1, 1_800_000));
            for (at, policy) in [(from, other), (until, policy.clone())] {
                inputs.push(Input { at, event: Event::Configured(Box::new(policy)) });
            }
        }
    }

    /// The policy without one of its pools, or with another name for one.
    fn other_pools(self, policy: &Policy, first: u64) -> Option<Policy> {
        let roll = |nth, bound| self.roll(Feature::Pools, first + nth, bound);
        let without = removals::without_pool(policy, roll(0, 16)).filter(|_| roll(1, 3) > 0);
        without.or_else(|| removals::with_renamed_pool(policy, roll(2, 16)))
    }

    /// The policy with some of its queues, quotas, tiers, pools and budgets changed.
    fn edited(self, policy: &Policy, first: u64) -> Policy {
        let roll = |nth, bound| self.roll(Feature::Policies, first + nth, bound);
        let mut policy = Policy { name: format!("{}-{first}", policy.name), ..policy.clone() };
        if roll(0, 3) == 0 {
            let gone = QUEUES[usize::try_from(roll(1, QUEUES.len() as u64)).unwrap_or(0)];
            policy.queues.remove(gone);
        }
        for (nth, rule) in (2..).zip(policy.queues.values_mut()) {
            match roll(nth, 5) {
                0 => rule.reclaim = [Reclaim::Any, Reclaim::Never][usize::from(rule.reclaim == Reclaim::Any)],
                1 if rule.preempt_within != PreemptWithin::LongerExpected => rule.preempt_within = PreemptWithin::Never,
                2 => rule.start = None,
                3 => rule.pools.rotate_left(1),
                _ => {}
            }
        }
        for (nth, limit) in (10..).zip(policy.quotas.iter_mut().flat_map(|node| node.limits.values_mut())) {
            match roll(nth, 4) {
                0 => limit.nominal = MilliGpu(limit.nominal.0 / 2),
                1 => limit.nominal = MilliGpu(limit.nominal.0 + 4000),
                2 => limit.borrow = [None, Some(MilliGpu(0))][usize::from(limit.borrow.is_none())],
                _ => {}
            }
        }
        for (nth, budget) in (30..).zip(policy.quotas.iter_mut().filter_map(|node| node.budget.as_mut())) {
            match roll(nth, 3) {
                0 => budget.amount /= 2,
                1 => {
                    budget.when_spent =
                        [WhenSpent::Hold, WhenSpent::Warn][usize::from(budget.when_spent == WhenSpent::Hold)]
                }
                _ => {}
            }
        }
        for (nth, tier) in (40..).zip(&mut policy.tiers) {
            match roll(nth, 4) {
                0 => tier.min_run = Span::secs(60 * roll(nth + 10, 10)),
                1 if tier.priority < 1000 => tier.stoppable_by = vec![TierId(0)],
                2 => tier.max_run_while_others_wait = Some(tier.min_run + Span::mins(1 + roll(nth + 10, 30))),
                _ => {}
            }
        }
        for (nth, pool) in (60..).zip(policy.pools.iter_mut().filter(|pool| pool.owned.is_none())) {
            match roll(nth, 3) {
                0 => pool.ceiling.nodes = pool.ceiling.nodes.map(|nodes| 1 + nodes / 2),
                1 => pool.ceiling.nodes = pool.ceiling.nodes.map(|nodes| nodes + 3),
                _ => {}
            }
        }
        policy
    }

    /// A few nodes that come, are used by others for a while, are closed and opened, and leave. In a third of the seeds in which nodes
    /// without GPUs are bought, the second of those that come has none either.
    fn owned(self, policy: &Policy, inputs: &mut Vec<Input>) {
        let roll = |nth, bound| self.roll(Feature::OwnedNodes, nth, bound);
        let mut on_demand = policy.offerings.iter().filter(|offer| offer.capacity == CapacityType::OnDemand);
        let Some(first) = on_demand.next() else { return };
        let also_without = self.has(Feature::CpuNodes) && roll(21, 3) == 0;
        let without_gpus = on_demand.find(|offer| offer.gpus == 0).filter(|_| also_without);
        for nth in 0..1 + roll(20, 3) {
            let like = without_gpus.filter(|_| nth == 1).unwrap_or(first);
            let shape = OwnedShape {
                instance_type: format!("own-{}", like.instance_type),
                zone: like.zone.clone(),
                gpus: like.gpus,
                gpu_mem: like.gpu_mem,
                models: like.models.clone(),
                cpu: like.cpu,
                mem: like.mem,
                nvlink: like.nvlink,
            };
            let at = 100 * (nth + 1);
            let name = format!("own-{nth}");
            let seen = OwnedNode {
                name: name.clone(),
                pool: OWNED_POOL.to_owned(),
                shape: shape.clone(),
                open: true,
                foreign: ForeignUse::default(),
            };
            let from = roll(at, 1_200_000);
            let mut send = |at, event| inputs.push(Input { at: Timestamp(at), event });
            send(from, Event::OwnedNodeSeen(Box::new(seen.clone())));
            for change in 0..roll(at + 1, 4) {
                let nth = at + 10 * (change + 1);
                let begins = from + 60_000 + roll(nth, 5_400_000);
                let gpus = u16::try_from(1 + roll(nth + 1, u64::from(shape.gpus).max(1))).unwrap_or(1).min(shape.gpus);
                let cpu = MilliCpu(roll(nth + 2, shape.cpu.0));
                let foreign = ForeignUse { gpus, cpu, mem: Mib(1000), by: "other/pod".to_owned() };
                let other = match roll(nth + 3, 3) {
                    0 => OwnedNode { open: false, ..seen.clone() },
                    _ => OwnedNode { foreign, ..seen.clone() },
                };
                send(begins, Event::OwnedNodeSeen(Box::new(other)));
                send(begins + 60_000 + roll(nth + 4, 1_800_000), Event::OwnedNodeSeen(Box::new(seen.clone())));
            }
            if roll(at + 2, 2) == 0 {
                send(LATEST + roll(at + 3, 3_600_000), Event::OwnedNodeLeft { name });
            }
        }
    }

    /// What of a type's nodes is not for work becomes known, and more of it later.
    fn reserves(self, policy: &Policy, inputs: &mut Vec<Input>) {
        let roll = |nth, bound| self.roll(Feature::Reserves, nth, bound);
        for (nth, at) in (1..).zip([roll(1, 60_000), 1_800_000 + roll(2, 3_600_000)]) {
            let Some(offer) = policy.offerings.first() else { return };
            let part = |nth, all: u64| all * (1 + roll(nth, 4)) / 40;
            let room =
                |first| NodeRoom { cpu: MilliCpu(part(first, offer.cpu.0)), mem: Mib(part(first + 1, offer.mem.0)) };
            let reserve = NodeReserve { system: room(10 * nth), daemons: room(10 * nth + 5) };
            let event = Event::NodeReserved { instance_type: offer.instance_type.clone(), reserve };
            inputs.push(Input { at: Timestamp(at), event });
        }
    }
}

/// What there may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
enum Feature {
    Brakes,
    Policies,
    OwnedNodes,
    CpuNodes,
    AccountRefuses,
    BootsFail,
    Reserves,
    Pools,
    Budgets,
    ConfirmedDeaths,
}

impl Feature {
    const ALL: [(Feature, &'static str); 10] = [
        (Feature::Brakes, "brakes"),
        (Feature::Policies, "other policies"),
        (Feature::OwnedNodes, "owned nodes"),
        (Feature::CpuNodes, "nodes without GPUs"),
        (Feature::AccountRefuses, "an account that refuses"),
        (Feature::BootsFail, "boots that fail"),
        (Feature::Reserves, "reserves of nodes"),
        (Feature::Pools, "pools that go or are renamed"),
        (Feature::Budgets, "budgets that go and come back"),
        (Feature::ConfirmedDeaths, "deaths to be confirmed"),
    ];
}

/// Whether it is an operator's or the cluster's, who say it again until it is acknowledged.
pub(super) fn is_said_again(event: &Event) -> bool {
    matches!(
        event,
        Event::Configured(_)
            | Event::BrakeSet { .. }
            | Event::BrakeReleased { .. }
            | Event::OwnedNodeSeen(_)
            | Event::OwnedNodeLeft { .. }
            | Event::NodeReserved { .. }
            | Event::DeathConfirmed { .. }
    )
}

/// A policy as it enters: its spot prices are those of its catalogue, and what the market has moved is said once more. As `step::configure` does.
pub(super) fn configured(policy: Box<Policy>, state: &State) -> Vec<Event> {
    let listed =
        |offer: &forebay_kernel::catalog::Offering| policy.offerings.iter().find(|own| own.key() == offer.key());
    let moved = (0u32..).map(OfferingId).zip(state.offerings()).filter_map(|(offering, row)| {
        let price = row.offer.price.min(listed(&row.offer)?.max_price);
        let spot = row.offer.capacity == CapacityType::Spot;
        (spot && price != listed(&row.offer)?.price).then_some(Event::PriceChanged { offering, price })
    });
    let moved: Vec<Event> = moved.collect();
    std::iter::once(Event::Configured(policy)).chain(moved).collect()
}

#[cfg(test)]
mod tests {
    use super::super::broken::{Life, job, policy};
    use super::*;
    use crate::policies;
    use forebay_kernel::ids::JobId;

    #[test]
    fn each_is_in_one_of_five_seeds_that_have_any() {
        let all: Vec<Operators> = (0..2000).filter_map(Operators::of).collect();
        assert_eq!(all.len(), 400);
        for (what, name) in Feature::ALL {
            let count = all.iter().filter(|one| one.has(what)).count();
            assert!(count >= 80, "{name}: {count} of 400");
        }
    }

    #[test]
    fn pools_go_and_are_renamed_and_budgets_come_back() {
        let (mut removed, mut renamed, mut without_budget) = (0, 0, 0);
        for one in (0..2000).filter_map(Operators::of) {
            let policy = one.policy(policies::random(one.seed));
            let budgets = |policy: &Policy| policy.quotas.iter().filter(|node| node.budget.is_some()).count();
            for input in one.inputs(&policy) {
                let Event::Configured(other) = input.event else { continue };
                removed += u32::from(other.pools.len() < policy.pools.len());
                renamed += u32::from(other.pools.iter().any(|pool| first_name(&pool.name) != pool.name));
                without_budget += u32::from(budgets(&other) < budgets(&policy));
            }
        }
        assert!(removed > 20 && renamed > 20 && without_budget > 20, "{removed}, {renamed}, {without_budget}");
    }

    #[test]
    fn an_operator_confirms_deaths_of_what_has_hung_where_nobody_bought_and_of_nothing_else() {
        let one = (0..2000).filter_map(Operators::of).find(|one| one.has(Feature::ConfirmedDeaths)).unwrap();
        let life = Life::running(policy(), vec![job("a")]);
        let mut state = life.state();
        let id = JobId(0);
        state.jobs[id].hung = true;
        assert!(one.deaths(&state).is_empty(), "the end of its node ends it");
        let node = state.job(id).unwrap().0.places[0].node;
        state.nodes.get_mut(&node).unwrap().owned = Some(Box::default());
        let deaths = one.deaths(&state);
        assert!(matches!(&deaths[..], [Event::DeathConfirmed { workers, .. }] if *workers == [0]), "{deaths:?}");
        state.jobs[id].confirmed_dead.insert(0);
        assert!(one.deaths(&state).is_empty(), "it is confirmed");
        state.jobs[id].confirmed_dead.clear();
        state.jobs[id].hung = false;
        assert!(one.deaths(&state).is_empty(), "it may answer still");
    }

    #[test]
    fn brakes_are_released_and_the_first_policy_comes_back() {
        for one in (0..2000).filter_map(Operators::of) {
            let policy = one.policy(policies::random(one.seed));
            let mut inputs = one.inputs(&policy);
            inputs.sort_by_key(|input| input.at);
            assert!(inputs.iter().all(|input| input.at < Timestamp(4 * 3_600_000)));
            let last = inputs.iter().rev().find_map(|input| match &input.event {
                Event::Configured(last) => Some(last),
                _ => None,
            });
            assert!(last.is_none_or(|last| **last == policy), "seed {}", one.seed);
            for input in &inputs {
                let Event::BrakeSet { brake, until: None, .. } = &input.event else { continue };
                let off =
                    |other: &&Input| matches!(&other.event, Event::BrakeReleased { brake: of, .. } if of == brake);
                assert!(inputs.iter().rev().find(off).is_some_and(|off| off.at > input.at), "seed {}", one.seed);
            }
        }
    }
}

//! Single workers against brute force over every node and GPU: the tightest fit, or with a mix that is known the one that leaves
//! the least fragments. Gangs on random topologies and layouts: the world of `cluster` checks each start, here whoever waits is
//! shown to have no domain that holds it.
//!
//! Never: the index. The oracles read the rows.

use super::holds;
use crate::cluster::{Cluster, Mode};
use crate::given::layout;
use crate::making::{self, ask, workers};
use alloc::collections::BTreeSet;
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::decision::{Decision, Outcome};
use forebay_kernel::effect::WorkerPlace;
use forebay_kernel::event::Event;
use forebay_kernel::ids::NodeId;
use forebay_kernel::job::{Gang, JobSpec, Level, TopologyConstraint, WorkerAsk};
use forebay_kernel::journal::Batch;
use forebay_kernel::policy::{Policy, Sharing};
use forebay_kernel::state::State;
use forebay_kernel::state::jobs::Phase;
use forebay_kernel::state::mix::Mix;
use forebay_kernel::state::nodes::{Node, NodePhase};
use forebay_kernel::units::{Mib, MilliCpu, Rate};
use proptest::prelude::*;

const SLICES: u16 = 3;
const SMALLEST: u16 = 150;

fn policy() -> Policy {
    let offerings = vec![
        making::offering("four", CapacityType::Spot, 4, 4),
        making::offering("two", CapacityType::Spot, 2, 3),
        making::offering("eight", CapacityType::OnDemand, 8, 20),
    ];
    let mut policy = making::policy(offerings);
    policy.limits.nodes = Some(6);
    policy.pools[0].sharing = Some(Sharing { time_slices: SLICES, smallest: SMALLEST });
    policy
}

/// GPUs, share, cores, GiB of GPU memory; whether it stays.
type Asks = (u16, u16, u64, u64, bool);

fn asks() -> impl Strategy<Value = Asks> {
    (0u16..5, 1u16..10, 0u64..20, 0u64..50, any::<bool>())
}

fn worker((gpus, share, cpu, gpu_mem, _): Asks) -> WorkerAsk {
    WorkerAsk {
        share: if gpus == 1 { share * 100 + 100 } else { 1000 },
        cpu: MilliCpu(cpu * 1000),
        gpu_mem: Mib(if gpus == 1 { gpu_mem * 1024 } else { 0 }),
        ..ask(gpus)
    }
}

/// (in flight, share left on the GPU or the node, price, node): the least is the best fit.
type Fit = (bool, u64, Rate, NodeId);

fn best(state: &State, ask: &WorkerAsk) -> Option<Fit> {
    let mut found: Option<Fit> = None;
    for node in state.nodes() {
        let offer = &state.offerings()[node.offering.index()].offer;
        let open = matches!(node.phase, NodePhase::Requested | NodePhase::Booting | NodePhase::Ready);
        let reserved = !node.reserved.is_empty() || node.reclaim_at.is_some();
        if !open || reserved || node.cpu_free < ask.cpu || node.mem_free < ask.mem {
            continue;
        }
        if ask.gpus > 0 && ask.gpu_mem > offer.gpu_mem {
            continue;
        }
        let flies = node.phase != NodePhase::Ready;
        let mut fit = |left: u64| {
            let fit = (flies, left, offer.price, node.id);
            found = Some(found.map_or(fit, |best| best.min(fit)));
        };
        let share = ask.share.max(SMALLEST);
        if ask.gpus == 1 && share < 1000 {
            let mem = match ask.gpu_mem.0 {
                0 => offer.gpu_mem.0 * u64::from(share) / 1000,
                stated => stated,
            };
            for slot in node.slots.iter().filter(|s| s.workers > 0) {
                if slot.workers < SLICES && slot.free >= share && slot.mem_free.0 >= mem {
                    fit(u64::from(slot.free - share));
                }
            }
        }
        let free = node.slots.iter().filter(|s| s.workers == 0).count() as u64;
        if free >= u64::from(ask.gpus) {
            // A fresh GPU is a worse fit than any part of one in use.
            fit((free - u64::from(ask.gpus)) * 1000 + 1000);
        }
    }
    found
}

#[test]
fn one_worker_goes_where_it_fits_best() {
    let before = prop::collection::vec(asks(), 0..14);
    holds("one_worker_goes", 1500, &(before, 0u64..100_000, asks()), |(before, wait, last)| {
        let mut world = Cluster::new(policy());
        world.mode = Mode::Quick;
        let (rows, booked) = last_comes(&mut world, (&before, wait, last), worker);
        let wanted = best(&rows, &worker(last));
        let open = |n: &&Node| !matches!(n.phase, NodePhase::Draining { .. } | NodePhase::Terminating);
        let had: BTreeSet<NodeId> = rows.nodes().filter(open).map(|n| n.id).collect();
        let batch = world.log.batches.last().expect("a batch");
        match (wanted, booked) {
            (Some(fit), Some(place)) => prop_assert_eq!(fit.3, place.node, "{:?}", fit),
            (Some(fit), None) => prop_assert!(false, "fits at {fit:?} and is not booked"),
            // What was booked for lower tiers only makes way.
            (None, Some(place)) => prop_assert!(unbooks(batch) || !had.contains(&place.node), "no room at {place:?}"),
            (None, None) => {}
        }
        Ok(())
    });
}

/// Workers of one come, some of them go, and at last one comes that is critical: the state before it, and where it was booked at once.
fn last_comes(
    world: &mut Cluster,
    (before, wait, last): (&[Asks], u64, Asks),
    of: impl Fn(Asks) -> WorkerAsk,
) -> (State, Option<WorkerPlace>) {
    for (n, asks) in before.iter().enumerate() {
        let mut spec = making::job(&format!("j{n}"), workers(1, of(*asks)));
        spec.shares = true;
        world.submit(spec);
    }
    world.run_until(wait);
    for (n, _) in before.iter().enumerate().filter(|(_, asks)| !asks.4) {
        let (tenant, subject) = ("t".into(), format!("j{n}"));
        world.step(vec![Event::JobCancelled { tenant, subject, by: None, sent: None }], false);
    }
    world.run_until(wait + 11_000);
    let rows = world.state().clone();
    let mut spec = making::job("last", workers(1, of(last)));
    spec.shares = true;
    spec.queue = "critical".into();
    world.submit(spec);
    let id = world.id("last").expect("accepted");
    let batch = world.log.batches.last().expect("a batch");
    let booked = batch.decisions.iter().find_map(|d| match d {
        Decision::Book { job, places, .. } if *job == id => Some(places[0].clone()),
        _ => None,
    });
    (rows, booked)
}

fn unbooks(batch: &Batch) -> bool {
    batch.decisions.iter().any(|decision| matches!(decision, Decision::Unbook { .. }))
}

/// Jobs that make the mix known, and are gone at once: GPUs, share, cores.
fn make_known(world: &mut Cluster, kinds: &[(u16, u16, u64)]) {
    for n in 0..40 {
        let (gpus, share, cores) = kinds[n % kinds.len()];
        let share = if gpus == 1 { share * 100 } else { 1000 };
        let each = WorkerAsk { share, cpu: MilliCpu(cores * 1000), ..ask(gpus) };
        let mut spec = making::job(&format!("mix{n}"), workers(1, each));
        spec.shares = true;
        let (tenant, subject) = ("t".into(), spec.subject.clone());
        let cancelled = Event::JobCancelled { tenant, subject, by: None, sent: None };
        world.step(vec![Event::JobSubmitted(Box::new(spec)), cancelled], false);
    }
}

/// What the mix could not use of GPUs with so much free, by the definition.
fn fragments(mix: &Mix, slots: &[i64]) -> i64 {
    let all: i64 = slots.iter().sum();
    let whole = slots.iter().filter(|s| **s == 1000).count();
    let of = |gpus: u16, share: u16| -> i64 {
        if share < 1000 {
            slots.iter().filter(|s| **s < i64::from(share)).sum()
        } else if whole < usize::from(gpus).min(slots.len()) {
            all
        } else {
            slots.iter().filter(|s| **s < 1000).sum()
        }
    };
    mix.kinds().iter().map(|(kind, count)| of(kind.gpus, kind.share) * i64::from(*count)).sum()
}

/// (in flight, fresh GPUs, a node opened, fragments, share left, price, node): the least is best.
type Least = (bool, bool, bool, i64, u64, Rate, NodeId);

fn least(state: &State, mix: &Mix, ask: &WorkerAsk) -> Option<Least> {
    let mut found: Vec<Least> = Vec::new();
    for node in state.nodes() {
        let offer = &state.offerings()[node.offering.index()].offer;
        let flies = node.phase != NodePhase::Ready;
        let open = matches!(node.phase, NodePhase::Requested | NodePhase::Booting | NodePhase::Ready);
        if !open || node.cpu_free < ask.cpu || node.mem_free < ask.mem {
            continue;
        }
        let slots: Vec<i64> = node.slots.iter().map(|s| i64::from(s.free)).collect();
        let free: Vec<usize> = (0..slots.len()).filter(|at| node.slots[*at].workers == 0).collect();
        let share = ask.share.clamp(SMALLEST, 1000);
        let mut fit = |taken: &[usize], fresh: bool, left: u64| {
            let mut after = slots.clone();
            taken.iter().for_each(|at| after[*at] -= if ask.gpus == 1 { i64::from(share) } else { 1000 });
            let grows = if ask.gpus > 0 { fragments(mix, &after) - fragments(mix, &slots) } else { 0 };
            let opens = fresh && ask.gpus > 0 && free.len() == slots.len() && usize::from(ask.gpus) < slots.len();
            found.push((flies, fresh, opens, grows, left, offer.price, node.id));
        };
        if ask.gpus == 1 && share < 1000 {
            let need = offer.gpu_mem.0 * u64::from(share) / 1000;
            for (at, slot) in node.slots.iter().enumerate().filter(|(_, s)| s.workers > 0) {
                if slot.workers < SLICES && slot.free >= share && slot.mem_free.0 >= need {
                    fit(&[at], false, u64::from(slot.free - share));
                }
            }
        }
        if let Some(rest) = free.len().checked_sub(usize::from(ask.gpus)) {
            fit(&free[..usize::from(ask.gpus)], true, rest as u64 * 1000 + 1000);
        }
    }
    found.into_iter().min()
}

#[test]
fn one_worker_leaves_the_least_fragments() {
    let before = prop::collection::vec(asks(), 0..14);
    let kinds = prop::collection::vec((1u16..5, 1u16..10, Just(0)), 1..6);
    let inputs = (before, 0u64..100_000, asks(), kinds);
    holds("one_worker_leaves", 600, &inputs, |(before, wait, last, kinds)| {
        let mut policy = policy();
        // Without large nodes: the last of those is a story of its own.
        policy.pools[0].offerings.truncate(2);
        let mut world = Cluster::new(policy);
        world.mode = Mode::Quick;
        make_known(&mut world, &kinds);
        // No more CPU than nodes have for what is asked of GPUs, so that these alone count; without GPUs any.
        let plain = |asks| {
            let each = worker(asks);
            let most = if each.gpus > 0 { 8 * u64::from(each.gpus) * u64::from(each.share) } else { u64::MAX };
            WorkerAsk { gpu_mem: Mib(0), cpu: MilliCpu(each.cpu.0.min(most)), ..each }
        };
        let (rows, booked) = last_comes(&mut world, (&before, wait, last), plain);
        // The mix counts the last one too.
        let wanted = least(&rows, world.state().mix(), &plain(last));
        let batch = world.log.batches.last().expect("a batch");
        match (wanted, booked) {
            (Some(fit), Some(place)) => prop_assert_eq!(fit.6, place.node, "{:?}", fit),
            (Some(fit), None) => prop_assert!(false, "fits at {fit:?} and is not booked"),
            (None, Some(place)) => {
                let open = |n: &Node| !matches!(n.phase, NodePhase::Draining { .. } | NodePhase::Terminating);
                let empty = !rows.node(place.node).is_some_and(open);
                prop_assert!(unbooks(batch) || empty, "no room at {place:?}");
            }
            (None, None) => {}
        }
        Ok(())
    });
}

/// What jobs of late ask with each worker, and how many of them there are.
fn known_kinds(state: &State) -> Vec<(WorkerAsk, u64)> {
    let mut kinds: Vec<(WorkerAsk, u64)> = Vec::new();
    for (_, spec) in state.jobs().filter(|(job, _)| !matches!(job.phase, Phase::Done { outcome: Outcome::Rejected })) {
        let Gang::Workers { each, .. } = spec.gang else { continue };
        match kinds.iter_mut().find(|kind| kind.0 == each) {
            Some(kind) => kind.1 += 1,
            None => kinds.push((each, 1)),
        }
    }
    kinds.retain(|kind| kind.0.gpus > 0);
    kinds
}

/// Twice the free share that is of no use to workers of a kind, by placing them one after the other.
fn useless(slots: &[i64], (mut cpu, mut mem): (u64, u64), holds: bool, kind: &WorkerAsk) -> i64 {
    let (mut slots, share) = (slots.to_vec(), i64::from(kind.share.max(SMALLEST)));
    let small: i64 = slots.iter().filter(|free| **free < share).sum();
    let mut workers = 0;
    loop {
        let good: Vec<usize> = (0..slots.len()).filter(|at| slots[*at] >= share).collect();
        if !holds || good.len() < usize::from(kind.gpus) || cpu < kind.cpu.0 || mem < kind.mem.0 {
            break;
        }
        good.iter().take(usize::from(kind.gpus)).for_each(|at| slots[*at] -= share);
        (cpu, mem, workers) = (cpu - kind.cpu.0, mem - kind.mem.0, workers + 1);
    }
    let left: i64 = slots.iter().sum();
    if workers == 0 { 2 * left } else { small + left }
}

/// Fragmentation of a node with CPU and memory, by the definition.
fn wasted(state: &State, node: &Node, slots: &[i64], left: (u64, u64), kinds: &[(WorkerAsk, u64)]) -> i64 {
    let offer = &state.offerings()[node.offering.index()].offer;
    let holds = |k: &WorkerAsk| k.gpus <= offer.gpus && k.cpu <= offer.cpu && k.mem <= offer.mem;
    let mut each: Vec<(i64, u64)> = kinds.iter().map(|(k, n)| (useless(slots, left, holds(k), k), *n)).collect();
    each.sort_unstable();
    let suited = kinds.iter().map(|kind| kind.1).sum::<u64>() * 6 / 10;
    let jobs = each.iter().flat_map(|(useless, count)| (0..*count).map(move |_| *useless));
    jobs.take(suited as usize).sum()
}

/// (in flight, growth of fragmentation, price, node): the least is best.
fn least_by_mix(state: &State, kinds: &[(WorkerAsk, u64)], ask: &WorkerAsk) -> Option<(bool, i64, Rate, NodeId)> {
    let mut found = Vec::new();
    for node in state.nodes() {
        let offer = &state.offerings()[node.offering.index()].offer;
        let open = matches!(node.phase, NodePhase::Requested | NodePhase::Booting | NodePhase::Ready);
        if !open || node.cpu_free < ask.cpu || node.mem_free < ask.mem {
            continue;
        }
        let slots: Vec<i64> = node.slots.iter().map(|s| i64::from(s.free)).collect();
        let share = ask.share.clamp(SMALLEST, 1000);
        let mut fit = |taken: &[usize]| {
            let mut after = slots.clone();
            taken.iter().for_each(|at| after[*at] -= i64::from(share));
            let left = (node.cpu_free.0 - ask.cpu.0, node.mem_free.0 - ask.mem.0);
            let before = wasted(state, node, &slots, (node.cpu_free.0, node.mem_free.0), kinds);
            let grows = wasted(state, node, &after, left, kinds) - before;
            found.push((node.phase != NodePhase::Ready, grows, offer.price, node.id));
        };
        if ask.gpus == 1 && share < 1000 {
            let need = offer.gpu_mem.0 * u64::from(share) / 1000;
            for (at, slot) in node.slots.iter().enumerate().filter(|(_, s)| s.workers > 0) {
                if slot.workers < SLICES && slot.free >= share && slot.mem_free.0 >= need {
                    fit(&[at]);
                }
            }
        }
        let free: Vec<usize> = (0..slots.len()).filter(|at| node.slots[*at].workers == 0).collect();
        if free.len() >= usize::from(ask.gpus) {
            fit(&free[..usize::from(ask.gpus)]);
        }
    }
    found.into_iter().min()
}

#[test]
fn one_worker_leaves_what_others_can_use_with_cpu_and_memory() {
    let before = prop::collection::vec(asks(), 0..14);
    let kinds = prop::collection::vec((1u16..5, 1u16..10, 0u64..20), 1..6);
    let inputs = (before, 0u64..100_000, asks(), kinds);
    holds("one_worker_leaves_what", 600, &inputs, |(before, wait, last, mut kinds)| {
        let mut policy = policy();
        policy.pools[0].offerings.truncate(2);
        let mut world = Cluster::new(policy);
        world.mode = Mode::Quick;
        // One of them uses up the CPU of every kind of node before its GPUs.
        kinds.push((1, 10, 12));
        make_known(&mut world, &kinds);
        let plain = |asks| WorkerAsk { gpu_mem: Mib(0), ..worker(asks) };
        let (rows, booked) = last_comes(&mut world, (&before, wait, last), plain);
        let wanted = least_by_mix(&rows, &known_kinds(world.state()), &plain(last));
        match (wanted, booked) {
            (Some(fit), Some(place)) => prop_assert_eq!(fit.3, place.node, "{:?}", fit),
            (Some(fit), None) => prop_assert!(false, "fits at {fit:?} and is not booked"),
            (None, _) => {}
        }
        Ok(())
    });
}

/// Two zones, nodes of eight in groups, nodes of two; five nodes at most.
fn places(groups: (u16, u16), cut: bool) -> Policy {
    let mut offerings = vec![
        making::offering("eight", CapacityType::OnDemand, 8, 9),
        making::offering("two", CapacityType::OnDemand, 2, 3),
        making::offering("other", CapacityType::OnDemand, 8, 9),
    ];
    offerings[2].zone = "b".into();
    for offer in &mut offerings {
        (offer.nvlink, offer.numa) = (groups.0.min(offer.gpus), groups.1.min(offer.gpus));
    }
    let mut policy = making::policy(offerings);
    policy.limits.nodes = Some(5);
    if cut {
        policy.pools[0].layouts = ["7x143:5", "400:20+600:20", "whole"].map(layout).to_vec();
    } else {
        policy.pools[0].sharing = Some(Sharing { time_slices: SLICES, smallest: SMALLEST });
    }
    policy
}

/// Kind, workers, size, level, required or not; whether it ends.
type Gangs = (u8, u32, u16, u8, bool, bool);

fn gang_of(n: usize, (kind, count, size, level, required, _): Gangs) -> JobSpec {
    let gang = match kind % 4 {
        0 => Gang::Spanning { gpus: count * 3, per_gpu: ask(1) },
        1 => workers(count, WorkerAsk { share: size * 100, ..ask(1) }),
        2 => Gang::Workers { min: count, max: count + 2, each: ask(size % 3 + 1) },
        _ => workers(count, ask(size % 4 + 1)),
    };
    let mut spec = making::job(&format!("j{n}"), gang);
    let levels = [Level::Numa, Level::Nvlink, Level::Node, Level::Rack, Level::Zone];
    spec.within = levels.get(usize::from(level)).map(|level| TopologyConstraint { level: *level, required });
    spec.shares = true;
    spec
}

/// Whether the ready nodes hold so many whole GPUs for each of `count` workers within one domain of a level, by brute force.
fn held_by(state: &State, (count, each): (u32, u32), level: Option<Level>) -> bool {
    let offer = |n: &Node| &state.offerings()[n.offering.index()].offer;
    let ready = |n: &&Node| n.phase == NodePhase::Ready && n.open() && n.partition.is_none();
    let nodes: Vec<&Node> = state.nodes().filter(ready).collect();
    let free = |n: &Node| (0..n.slots.len()).filter(|at| n.slots[*at].workers == 0).collect::<Vec<usize>>();
    let most = |nodes: &[&&Node]| nodes.iter().map(|n| free(n).len() as u32 / each).sum::<u32>();
    let within = |same: &dyn Fn(&Node, &Node) -> bool| {
        nodes.iter().any(|a| most(&nodes.iter().filter(|b| same(a, b)).collect::<Vec<_>>()) >= count)
    };
    let grouped = |size: &dyn Fn(&Node) -> u16| {
        let in_group = |n: &Node, group: usize| {
            let own = free(n).into_iter().filter(|at| at.checked_div(usize::from(size(n))) == Some(group));
            own.count() as u32 / each
        };
        let alone = count * each == 1 && nodes.iter().any(|n| !free(n).is_empty());
        alone || nodes.iter().any(|n| (0..64).any(|group| in_group(n, group) >= count))
    };
    match level {
        Some(Level::Numa) => grouped(&|n| offer(n).numa),
        Some(Level::Nvlink) => grouped(&|n| offer(n).nvlink),
        Some(Level::Node) => within(&|a, b| a.id == b.id),
        Some(Level::Rack) => within(&|a, b| {
            let named = a.rack.is_some() && a.rack == b.rack;
            a.id == b.id || named || (a.cluster && b.cluster && a.purchase == b.purchase)
        }),
        Some(Level::Zone) => within(&|a, b| offer(a).zone == offer(b).zone),
        None => within(&|_, _| true),
    }
}

#[test]
fn gangs_stay_within_what_they_require() {
    let gangs = prop::collection::vec((any::<u8>(), 1u32..5, 1u16..10, 0u8..8, any::<bool>(), any::<bool>()), 1..14);
    let inputs = (gangs, (0u16..5, 0u16..5), any::<bool>(), any::<u16>());
    holds("gangs_stay_within", 250, &inputs, |(gangs, groups, cut, racks)| {
        let mut world = Cluster::new(places(groups, cut));
        world.mode = if racks % 4 == 0 { Mode::Plain } else { Mode::Quick };
        for (n, gang) in gangs.iter().enumerate() {
            world.submit(gang_of(n, *gang));
            if n % 4 == 3 {
                world.run_until(world.now + 70_000);
                let up: Vec<_> = world.state().nodes().filter_map(|n| Some((n.id.0, n.instance.clone()?))).collect();
                for (at, instance) in up {
                    let rack = format!("r{}", racks >> (at % 8) & 1);
                    world.step(vec![Event::NodePlaced { instance, rack }], false);
                }
            }
            if gang.5 && n > 2 {
                let (tenant, subject) = ("t".into(), format!("j{}", n - 2));
                world.step(vec![Event::JobCancelled { tenant, subject, by: None, sent: None }], false);
            }
        }
        world.run_until(world.now + 200_000);
        for (job, spec) in world.state().jobs().filter(|(job, _)| job.phase == Phase::Queued) {
            let asks = match &spec.gang {
                Gang::Workers { min, each, .. } if each.share == 1000 => (*min, u32::from(each.gpus)),
                Gang::Spanning { gpus, .. } => (*gpus, 1),
                Gang::Workers { .. } => continue,
            };
            // Room that is kept for a gang that came before is no room.
            if world.state().reservations().values().any(|kept| kept.job != job.id) {
                continue;
            }
            let level = spec.within.filter(|w| w.required).map(|w| w.level);
            let held = held_by(world.state(), asks, level);
            prop_assert!(
                !held,
                "{} waits ({:?}) and there is room for {:?}",
                job.id,
                world.engine.why(job.id),
                spec.gang
            );
        }
        Ok(())
    });
}

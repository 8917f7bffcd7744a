//! Best fit of single workers against brute force over every node and GPU.
//!
//! Never: the index. The oracle reads the rows.

use super::holds;
use crate::cluster::{Cluster, Mode};
use crate::making::{self, ask, workers};
use alloc::collections::BTreeSet;
use forebay_engine::catalog::CapacityType;
use forebay_engine::decision::Decision;
use forebay_engine::event::Event;
use forebay_engine::ids::NodeId;
use forebay_engine::job::WorkerAsk;
use forebay_engine::policy::{Policy, Sharing};
use forebay_engine::state::State;
use forebay_engine::state::nodes::{Node, NodePhase};
use forebay_engine::units::{Mib, MilliCpu, Rate};
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
fn asks() -> impl Strategy<Value = (u16, u16, u64, u64, bool)> {
    (0u16..5, 1u16..10, 0u64..20, 0u64..50, any::<bool>())
}

fn worker((gpus, share, cpu, gpu_mem, _): (u16, u16, u64, u64, bool)) -> WorkerAsk {
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
        let offer = &state.offerings()[node.offering.ix()].offer;
        let open = matches!(node.phase, NodePhase::Requested | NodePhase::Booting | NodePhase::Ready);
        let reserved = node.reserved.is_some() || node.reclaim_at.is_some();
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
        for (n, asks) in before.iter().enumerate() {
            let mut spec = making::job(&format!("j{n}"), workers(1, worker(*asks)));
            spec.shares = true;
            world.submit(spec);
        }
        world.run_until(wait);
        for (n, asks) in before.iter().enumerate() {
            if !asks.4 {
                let (tenant, subject) = ("t".into(), format!("j{n}"));
                world.step(vec![Event::JobCancelled { tenant, subject }], false);
            }
        }
        world.run_until(wait + 11_000);
        let ask = worker(last);
        let wanted = best(world.state(), &ask);
        let open = |n: &&Node| !matches!(n.phase, NodePhase::Draining { .. } | NodePhase::Terminating);
        let had: BTreeSet<NodeId> = world.state().nodes().filter(open).map(|n| n.id).collect();
        let mut spec = making::job("last", workers(1, ask));
        spec.shares = true;
        spec.queue = "critical".into();
        world.submit(spec);
        let id = world.id("last").expect("accepted");
        let batch = world.log.batches.last().expect("a batch");
        let booked = batch.decisions.iter().find_map(|d| match d {
            Decision::Book { job, places, .. } if *job == id => Some(places[0].clone()),
            _ => None,
        });
        match (wanted, booked) {
            (Some(fit), Some(place)) => prop_assert_eq!(fit.3, place.node, "{:?}", fit),
            (Some(fit), None) => prop_assert!(false, "fits at {fit:?} and is not booked"),
            (None, Some(place)) => prop_assert!(!had.contains(&place.node), "no room at {place:?}"),
            (None, None) => {}
        }
        Ok(())
    });
}

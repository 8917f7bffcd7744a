//! The machine against a small API server in memory, with crashes between any two calls: no worker twice, no gang half past the barrier, none
//! lost, no orphan, no finalizer left, nothing of others touched.
//!
//! `FOREBAY_SEED=n cargo test -p forebay-cluster-kube --test crashes` plays one seed again; `FOREBAY_SEEDS=n` plays more than 200.

mod api;
mod dice;
mod engine;
mod kubelets;
mod world;

use world::{Counts, World};

#[allow(clippy::disallowed_methods, reason = "which seeds are played is the tester's to say")]
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn crashes_between_any_two_calls_lose_nothing_and_start_nothing_twice() {
    let seeds = match number("FOREBAY_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("FOREBAY_SEEDS").unwrap_or(200),
    };
    let (mut counts, mut failed) = (Counts::new(), Vec::new());
    for seed in seeds.clone() {
        let world = World::new(seed).play();
        for (what, times) in &world.counts {
            *counts.entry(*what).or_insert(0) += times;
        }
        if let Some(first) = world.violations.first() {
            if seeds.clone().count() == 1 {
                println!("{}", world.story.join("\n"));
            }
            failed.push(format!(
                "seed {seed}: {first}\n  FOREBAY_SEED={seed} cargo test -p forebay-cluster-kube --test crashes"
            ));
        }
    }
    println!("{} seeds: {counts:?}", seeds.clone().count());
    assert!(failed.is_empty(), "{} of {} seeds:\n{}", failed.len(), seeds.count(), failed.join("\n"));
    if seeds.count() >= 200 {
        for what in [
            "crashes",
            "stops",
            "shrinks",
            "reboots",
            "garbage collected",
            "forced deletions",
            "instances gone",
            "workers unproven",
            "completed pods deleted",
            "API server away",
        ] {
            assert!(counts.contains_key(what), "no seed had any {what}: {counts:?}");
        }
    }
}

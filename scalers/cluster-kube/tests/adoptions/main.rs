//! Adopted objects under crashes between any two calls, lost responses, watches that expire, controllers that act late on what they have seen,
//! nodes that vanish, users who suspend, unsuspend and delete, and an operator who confirms deaths in the end. Seeds make each run repeatable.
//!
//! What holds is checked against what really runs, and not against what the machine believes:
//! - an object is unsuspended only for an open start of it, while no container of it runs;
//! - a container runs only on the nodes of its attempt;
//! - an outcome is reported only when no container of the object runs;
//! - a run is called started only when all its containers have;
//! - in the end all are complete or cancelled, and no label is left on a node.

#![allow(clippy::disallowed_methods, reason = "which seed is run is said by a variable")]

#[path = "../crashes/api.rs"]
#[allow(dead_code, reason = "the crashes of gangs use more of it")]
mod api;
mod cluster;
#[path = "../crashes/dice.rs"]
mod dice;
mod world;

use world::World;

const SEEDS: u64 = 200;

#[test]
fn adopted_objects_survive_crashes_between_any_two_calls() {
    let only = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let mut counts = std::collections::BTreeMap::new();
    for seed in only.map_or(0..SEEDS, |seed: u64| seed..seed + 1) {
        let mut world = World::new(seed);
        world.run();
        for (what, count) in world.counts {
            *counts.entry(what).or_insert(0) += count;
        }
    }
    println!("{SEEDS} seeds: {counts:#?}");
    if only.is_none() {
        for what in [
            "crashes",
            "lost responses",
            "watches expired",
            "starts",
            "stops",
            "completed",
            "preempted while running",
            "objects deleted",
            "unsuspended by a user",
            "suspended by a user",
            "nodes lost",
            "start times cleared",
        ] {
            assert!(counts.get(what).is_some_and(|count| *count > 20), "too rare to say anything: {what}: {counts:?}");
        }
    }
}

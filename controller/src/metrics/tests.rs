//! Metrics of a driver that buys, starts and saves: those that only a state with nodes and runs can move.

use super::engine;
use super::family::{Family, text};
use super::statuses::StatusCounts;
use crate::driver::tests::{lasting, teams, two_threads};
use crate::driver::{QueryContext, Running, start};
use forebay_engine::engine::Engine;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(60);

/// The value of a point, by its name and labels as they are written. `None`: it is left out.
fn value(families: Vec<Family>, point: &str) -> Option<f64> {
    let written = text(families).unwrap();
    written.lines().find_map(|line| line.strip_prefix(point)?.strip_prefix(' ')?.parse().ok())
}

fn of_cluster(running: &Running, point: &'static str) -> Option<f64> {
    running.handle.query(move |engine, _| value(engine::cluster(engine.state()), point)).unwrap()
}

fn until(what: &str, mut look: impl FnMut() -> bool) {
    let end = Instant::now() + SOON;
    while !look() {
        assert!(Instant::now() < end, "not within {SOON:?}: {what}");
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

#[test]
fn a_first_start_moves_waits_boots_launches_and_the_age_of_what_is_saved() {
    const BOOT: &str = "forebay_boot_seconds{pool=\"small\",percentile=\"90\"}";
    const OPEN: &str = "forebay_pool_offerings{pool=\"small\",capacity_type=\"on-demand\",state=\"open\"}";
    const AGE: &str = "forebay_checkpoint_age_seconds{queue=\"vision/batch\"}";
    const WAITS: &str = "forebay_start_wait_seconds_count{tier=\"normal\"}";
    const STARTED: &str = "forebay_statuses_by_kind_total{kind=\"started\",reason=\"(none)\"}";
    const COMPLETE: &str = "forebay_launches_total{pool=\"small\",capacity_type=\"on-demand\",outcome=\"complete\"}";
    const BOOTS: &str = "forebay_node_boot_seconds_count{pool=\"small\"}";
    const PASSES: &str = "forebay_plan_pass_seconds_count";
    const COMMITS: &str = "forebay_journal_commit_seconds_count";
    let folder = tempfile::tempdir().unwrap();
    let running = start(teams(folder.path())).unwrap();
    let runtime = two_threads();
    let counts = Arc::new(StatusCounts::default());
    let followed = runtime.spawn(Arc::clone(&counts).follow(running.handle.clone()));
    let age = |shown: bool| running.handle.query(move |engine, _| value(vec![ages(engine, shown)], AGE)).unwrap();
    assert_eq!(of_cluster(&running, BOOT), None, "nothing has booted");
    assert!(of_cluster(&running, OPEN).is_some_and(|offerings| offerings > 0.0));
    assert_eq!((value(counts.overall(), WAITS), age(true)), (None, None), "nothing has started");

    let event = |subject: &str, checkpoint: &Value| vec![lasting(subject, checkpoint)];
    running.handle.submit(event("saves", &json!({"uri": "s3://saved/it/"}))).unwrap();
    until("the start is counted", || value(counts.overall(), WAITS) == Some(1.0));
    assert_eq!(value(counts.overall(), STARTED), Some(1.0));
    assert!(of_cluster(&running, BOOT).is_some_and(|boot| boot > 0.0));
    let commits = Arc::clone(&running.commits);
    let ask = move |engine: &Engine, _: &QueryContext| value(vec![commits.launches(engine.state())], COMPLETE);
    assert!(running.handle.query(ask).unwrap().is_some_and(|launches| launches >= 1.0));
    assert!(value(running.commits.families(), BOOTS).is_some_and(|boots| boots >= 1.0));
    until("its last checkpoint is of some age", || age(true).is_some_and(|age| age > 0.0));
    assert_eq!(age(false), None, "the queue is another's");

    let before = [COMMITS, PASSES].map(|counted| value(running.commits.families(), counted));
    running.handle.submit(event("does-not-save", &Value::Null)).unwrap();
    assert!(value(running.commits.families(), COMMITS) > before[0], "each submission is durable when it is answered");
    assert!(value(running.commits.families(), PASSES) > before[1], "and was planned before");
    until("the second start is counted", || value(counts.overall(), WAITS) == Some(2.0));
    running.handle.stop();
    running.join().unwrap();
    runtime.block_on(followed).unwrap();
}

fn ages(engine: &Engine, shown: bool) -> Family {
    engine::checkpoint_ages(engine.state(), |_| shown)
}

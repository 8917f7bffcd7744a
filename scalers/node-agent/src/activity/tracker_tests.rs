//! The bookkeeping against a simple one that keeps every sample, and a controller that loses and doubles reports.

use super::*;
use proptest::prelude::*;

const SECOND: Duration = Duration::from_secs(1);

fn name(worker: u32) -> WorkerName {
    WorkerName { job: 1, attempt: 1, worker }
}

fn reading(computes: Option<bool>) -> WorkerReading {
    WorkerReading { gpus: 1, memory_mib: Some(10), computes, resident: Some(true) }
}

fn about() -> ActivityReport {
    ActivityReport {
        instance: "i-1".to_owned(),
        start: 1,
        sequence: 0,
        since: 0,
        source: "nvml".to_owned(),
        gpus: Some(1),
        problem: None,
        dropped: 0,
        workers: Vec::new(),
    }
}

/// The tracker after samples of one worker at these seconds.
fn after(samples: &[(u64, Option<bool>)]) -> ActivityTracker {
    let mut tracker = ActivityTracker::new(SECOND);
    for (at, computes) in samples {
        tracker.observe(SECOND * u32::try_from(*at).unwrap(), &BTreeMap::from([(name(0), reading(*computes))]));
    }
    tracker
}

fn figures(samples: &[(u64, Option<bool>)], now: u64) -> (u64, u64, Option<u64>) {
    let mut tracker = after(samples);
    let report = tracker.report(Duration::from_secs(now), about());
    let worker = &report.workers[0];
    (worker.observed_ms, worker.busy_ms, worker.idle_ms)
}

#[test]
fn idleness_counts_between_idle_samples_that_are_near() {
    let (busy, idle) = (Some(true), Some(false));
    for (why, samples, now, wanted) in [
        ("the first sample", &[(0, idle)][..], 0, (0, 0, Some(0))),
        ("two idle ones", &[(0, idle), (1, idle)], 1, (1000, 0, Some(1000))),
        ("a pause in the middle", &[(0, busy), (1, idle), (2, idle), (3, busy)], 3, (3000, 1000, None)),
        ("not known for a moment", &[(0, idle), (1, idle), (2, None), (3, idle), (4, idle)], 4, (3000, 0, Some(1000))),
        ("one read was slow", &[(0, idle), (3, idle)], 3, (3000, 0, Some(3000))),
        ("nobody watched for a while", &[(0, idle), (4, idle), (5, idle)], 5, (1000, 0, Some(1000))),
        ("busy around a gap", &[(0, busy), (60, busy)], 60, (0, 0, None)),
        ("the last sample is old", &[(0, idle), (1, idle)], 60, (1000, 0, None)),
    ] {
        assert_eq!(figures(samples, now), wanted, "{why}");
    }
}

#[test]
fn without_figures_nothing_is_known_and_idleness_begins_again() {
    let mut tracker = after(&[(0, Some(false)), (1, Some(false)), (2, Some(false))]);
    tracker.observe_nothing();
    assert_eq!(tracker.report(3 * SECOND, about()).workers[0].idle_ms, None);
    tracker.observe(4 * SECOND, &BTreeMap::from([(name(0), reading(Some(false)))]));
    assert_eq!(tracker.report(4 * SECOND, about()).workers[0].idle_ms, Some(0));
}

#[test]
fn a_worker_that_has_ended_is_reported_until_that_is_acknowledged() {
    let mut tracker = after(&[(0, Some(true)), (1, Some(true))]);
    tracker.observe(2 * SECOND, &BTreeMap::new());
    let first = tracker.report(2 * SECOND, about());
    assert_eq!((first.workers[0].ended, first.workers[0].busy_ms, first.workers[0].idle_ms), (true, 1000, None));
    let second = tracker.report(3 * SECOND, about());
    assert_eq!(
        (second.sequence, second.since, &second.workers),
        (2, 0, &first.workers),
        "the first was not acknowledged"
    );
    tracker.acknowledge(1);
    assert!(!tracker.is_empty(), "the acknowledgement of a report that another has replaced counts for nothing");
    tracker.acknowledge(2);
    assert!(tracker.is_empty());
    assert_eq!(tracker.report(4 * SECOND, about()).since, 2);
}

#[test]
fn there_are_never_more_workers_than_a_report_takes_and_what_is_dropped_is_counted() {
    let mut tracker = ActivityTracker::new(SECOND);
    for round in 0..10_u32 {
        let readings = (0..400).map(|n| (name(round * 1000 + n), reading(Some(true)))).collect();
        tracker.observe(SECOND * round, &readings);
        let report = tracker.report(SECOND * round, about());
        assert!(report.workers.len() <= MOST_WORKERS_REPORTED, "{}", report.workers.len());
    }
    assert!(tracker.dropped() >= 10 * 144);
}

#[test]
fn a_worker_for_which_there_is_no_room_is_counted_once_however_long_it_is_there() {
    let mut tracker = ActivityTracker::new(SECOND);
    let readings: BTreeMap<_, _> = (0..400).map(|n| (name(n), reading(Some(true)))).collect();
    (0..10).for_each(|second| tracker.observe(SECOND * second, &readings));
    assert_eq!(tracker.dropped(), 144, "256 of 400 have room");
    // One that went and is there again is dropped again.
    let fewer = readings.iter().take(399).map(|(name, reading)| (*name, *reading)).collect();
    tracker.observe(SECOND * 10, &fewer);
    tracker.observe(SECOND * 11, &readings);
    assert_eq!(tracker.dropped(), 145);
}

/// What happens to an agent's reports.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A sample so many milliseconds later.
    Sample(u64, Option<bool>),
    /// No figures.
    Nothing,
    /// A report that is lost, arrives without its acknowledgement, or arrives.
    Lost,
    Unacknowledged,
    Delivered,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (1_u64..5000, prop_oneof![Just(None), Just(Some(true)), Just(Some(false))]).prop_map(|(ms, c)| Step::Sample(ms, c)),
        1 => Just(Step::Nothing),
        1 => Just(Step::Lost),
        1 => Just(Step::Unacknowledged),
        3 => Just(Step::Delivered),
    ]
}

proptest! {
    /// The receiver adds what a report says since the one that it knows; whatever is lost on the way, the sums are those of all samples, and
    /// the idleness is that of the longest run of idle samples at the end.
    #[test]
    fn sums_and_idleness_are_those_of_the_samples_whatever_is_lost(steps in prop::collection::vec(step(), 0..120)) {
        let mut tracker = ActivityTracker::new(SECOND);
        let (mut now, mut last, mut idle) = (0_u64, None::<u64>, None::<u64>);
        let mut truth = ActivityTotals::default();
        let (mut taken, mut at, mut since) = (ActivityTotals::default(), ActivityTotals::default(), 0);
        let mut known = None;
        for step in steps.into_iter().chain([Step::Delivered]) {
            match step {
                Step::Sample(ms, computes) => {
                    now += ms;
                    let near = last.map(|last| now - last).filter(|ms| *ms <= 3000);
                    last = Some(now);
                    // Nothing is counted at the first sight of a worker.
                    if let (Some(ms), Some(_)) = (near, known) {
                        truth.observed += if computes.is_some() { ms } else { 0 };
                        truth.busy += if computes == Some(true) { ms } else { 0 };
                        truth.resident += ms;
                    }
                    idle = (computes == Some(false)).then(|| idle.zip(near).map_or(0, |(idle, ms)| idle + ms));
                    known = Some(computes);
                    tracker.observe(Duration::from_millis(now), &BTreeMap::from([(name(0), reading(computes))]));
                }
                Step::Nothing => {
                    (last, idle) = (None, None);
                    known = known.map(|_| None);
                    tracker.observe_nothing();
                }
                Step::Lost | Step::Unacknowledged | Step::Delivered => {
                    let report = tracker.report(Duration::from_millis(now), about());
                    if matches!(step, Step::Lost) {
                        continue;
                    }
                    // As the controller does: a report with another `since` starts from what was taken by then.
                    if report.since != since {
                        (at, since) = (taken, report.since);
                    }
                    if let Some(worker) = report.workers.first() {
                        taken.observed = at.observed + worker.observed_ms;
                        taken.busy = at.busy + worker.busy_ms;
                        taken.resident = at.resident + worker.resident_ms;
                        prop_assert_eq!((worker.computes, worker.idle_ms), (known.flatten(), idle));
                    }
                    if matches!(step, Step::Delivered) {
                        tracker.acknowledge(report.sequence);
                    }
                }
            }
        }
        prop_assert_eq!(taken, truth);
        prop_assert_eq!(tracker.totals(), truth);
    }
}

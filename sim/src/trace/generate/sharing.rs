//! Months of fractional work: shares of 0.1, 0.2, 0.5 and 1 GPU with their memory and true activity, in three queues.
//! It never knows how the work will be placed: the same trace is run one job a GPU and shared.
//!
//! ```text
//!              00  02  04  06  08  10  12  14  16  18  20  22  24     share   how busy it keeps its share
//! interactive  .   .   .   .   ==================  .   .   .   .      0.2     notebooks: now and then
//! batch        ------------------------------------------------       0.5     features: 20 minutes, hourly, in bursts
//!              .   .   .   .   ======================  --- .   .      1       fine-tuning: hours, all of it
//!              --- .   .   ------================----------------     0.1     evaluation: constant
//!              ------------------================------------------   0.2     embedding: intermittent
//! backfill     ============    .   .   .   .   .   .   ===========    0.5     recomputes at night
//! ```
//!
//! The shape is that of a published report of three months on such a cluster (kinds of work, shares, queues); counts and run times
//! are chosen so that one job a GPU needs about as many GPUs as its bill pays for. Day 0 is a Monday; times are UTC.

use super::{SplitMix64, TraceJob};

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;
const GIB: u64 = 1024;

/// One kind of work.
struct Kind {
    name: &'static str,
    queue: &'static str,
    /// Share of one GPU in 1/1000.
    milli: u32,
    /// GPU memory in MiB, from and to.
    gpu_mem: (u64, u64),
    /// CPU in millicores and main memory in MiB.
    cpu: (u64, u64),
    /// Jobs on a working day, and on a day of the weekend.
    a_day: (u64, u64),
    /// How the day's jobs spread over its hours.
    hours: [u64; 24],
    /// Submitted by a timer, within the first minutes of the hour.
    on_the_hour: bool,
    /// Run times in minutes by quantiles.
    minutes: &'static [u64],
    /// How busy it keeps its share in 1/1000, from and to.
    busy: (u64, u64),
    /// Minutes between checkpoints; `None`: it is not to be stopped.
    saves: Option<u64>,
    restart_s: u64,
}

const ALL_DAY: [u64; 24] = [1; 24];
const OFFICE: [u64; 24] = [0, 0, 0, 0, 0, 0, 0, 1, 6, 10, 9, 7, 4, 8, 9, 8, 5, 2, 0, 0, 0, 0, 0, 0];
const WORKING_DAY: [u64; 24] = [1, 0, 0, 0, 0, 0, 1, 2, 4, 7, 8, 8, 6, 7, 8, 8, 8, 7, 4, 3, 2, 2, 2, 1];
const DAY_AND_EVENING: [u64; 24] = [3, 3, 2, 2, 2, 2, 3, 4, 6, 7, 7, 7, 6, 7, 7, 7, 7, 6, 5, 5, 4, 4, 4, 3];
const NIGHT: [u64; 24] = [8, 8, 7, 6, 4, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 6, 8, 8];

#[rustfmt::skip]
const KINDS: [Kind; 6] = [
    Kind { name: "notebook", queue: "interactive", milli: 200, gpu_mem: (2 * GIB, 4 * GIB), cpu: (500, 2 * GIB), a_day: (110, 8), hours: OFFICE, on_the_hour: false,
           minutes: &[15, 60, 100, 150, 240, 480], busy: (100, 500), saves: None, restart_s: 20 },
    Kind { name: "features", queue: "batch", milli: 500, gpu_mem: (6 * GIB, 10 * GIB), cpu: (1500, 5 * GIB), a_day: (600, 600), hours: ALL_DAY, on_the_hour: true,
           minutes: &[15, 18, 20, 22, 25], busy: (900, 1000), saves: Some(10), restart_s: 20 },
    Kind { name: "finetune", queue: "batch", milli: 1000, gpu_mem: (16 * GIB, 21 * GIB), cpu: (3000, 12 * GIB), a_day: (85, 30), hours: WORKING_DAY, on_the_hour: false,
           minutes: &[45, 120, 240, 360, 480, 600, 840], busy: (930, 1000), saves: Some(30), restart_s: 60 },
    Kind { name: "evaluate", queue: "batch", milli: 100, gpu_mem: (GIB, 2 * GIB), cpu: (250, GIB), a_day: (210, 120), hours: DAY_AND_EVENING, on_the_hour: false,
           minutes: &[20, 90, 150, 200, 260, 420], busy: (950, 1000), saves: Some(60), restart_s: 20 },
    Kind { name: "embed", queue: "batch", milli: 200, gpu_mem: (3 * GIB, 4 * GIB), cpu: (600, 2 * GIB), a_day: (90, 80), hours: DAY_AND_EVENING, on_the_hour: false,
           minutes: &[90, 240, 330, 420, 600], busy: (300, 800), saves: Some(60), restart_s: 30 },
    Kind { name: "recompute", queue: "backfill", milli: 500, gpu_mem: (6 * GIB, 11 * GIB), cpu: (1500, 6 * GIB), a_day: (110, 140), hours: NIGHT, on_the_hour: false,
           minutes: &[30, 60, 90, 120, 180], busy: (900, 1000), saves: Some(15), restart_s: 30 },
];

/// So many days of fractional work, by submission.
///
/// The same seed and days give the same jobs everywhere; more days begin with the fewer.
#[must_use]
pub fn generate_sharing(seed: u64, days: u64) -> Vec<TraceJob> {
    let mut jobs = Vec::new();
    for kind in &KINDS {
        let mut rng = SplitMix64::named(seed, kind.name);
        let mut nth = 0;
        for hour in 0..days * 24 {
            for _ in 0..arrivals(kind, hour, &mut rng) {
                jobs.push(job(kind, hour, nth, &mut rng));
                nth += 1;
            }
        }
    }
    jobs.sort_by_key(|job| job.submit_ms);
    for (line, job) in (2..).zip(&mut jobs) {
        job.line = line;
    }
    jobs
}

/// The hour's part of the day's jobs, a quarter more or less, and one more with the probability that the rest of the division gives.
fn arrivals(kind: &Kind, hour: u64, rng: &mut SplitMix64) -> u64 {
    let weekend = hour / 24 % 7 >= 5;
    let a_day = if weekend { kind.a_day.1 } else { kind.a_day.0 };
    let at = usize::try_from(hour % 24).unwrap_or(0);
    let sum: u64 = kind.hours.iter().sum();
    let mean = a_day * kind.hours[at] * rng.between(750, 1250);
    mean / (sum * 1000) + u64::from(rng.below(sum * 1000) < mean % (sum * 1000))
}

fn job(kind: &Kind, hour: u64, nth: u64, rng: &mut SplitMix64) -> TraceJob {
    let within = if kind.on_the_hour { 3 * MINUTE } else { HOUR };
    let submit_ms = hour * HOUR + rng.below(within);
    let duration_ms = rng.quantile(kind.minutes) * MINUTE + rng.below(MINUTE);
    let between = |rng: &mut SplitMix64, (low, high)| u32::try_from(rng.between(low, high)).unwrap_or(0);
    // What a team expects of its own jobs: 80 to 140 % of the truth, in whole minutes. Nobody knows how long a notebook is open.
    let expected = (duration_ms * rng.between(80, 140) / 100).div_ceil(MINUTE) * MINUTE;
    TraceJob {
        id: format!("{}-{nth:06}", kind.name),
        submit_ms,
        duration_ms,
        gpus: 1,
        workers: Some(1),
        gpu_milli: kind.milli,
        // In steps of 256 MiB, as people ask.
        gpu_mem_mib: between(rng, kind.gpu_mem) / 256 * 256,
        cpu_milli: kind.cpu.0,
        mem_mib: kind.cpu.1,
        user: Some(format!("{}-{:02}", kind.queue, rng.below(12))),
        queue: Some(kind.queue.to_owned()),
        estimate_ms: kind.saves.map(|_| expected),
        checkpoint_every_ms: kind.saves.map(|minutes| minutes * MINUTE),
        restart_ms: Some(kind.restart_s * 1000),
        preemptible: Some(kind.saves.is_some()),
        gpu_util_permille: Some(between(rng, kind.busy)),
        ..TraceJob::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// GPU time that jobs hold, by their share or one GPU each, and that they are truly busy.
    fn gpu_hours(jobs: &[TraceJob], of: impl Fn(&TraceJob) -> u64) -> u64 {
        jobs.iter().map(|j| j.duration_ms * of(j) / 1000).sum::<u64>() / HOUR
    }

    #[test]
    fn the_work_has_the_shape_that_is_told_of_it() {
        let jobs = generate_sharing(5, 28);
        let of_queue = |name: &str| jobs.iter().filter(|j| j.queue.as_deref() == Some(name)).count();
        assert!(of_queue("batch") > of_queue("interactive") && of_queue("batch") > of_queue("backfill"));
        for milli in [100, 200, 500, 1000] {
            assert!(jobs.iter().filter(|j| j.gpu_milli == milli).count() > 1000, "shares of {milli}");
        }
        let at_night = |j: &&TraceJob| !(8..18).contains(&(j.submit_ms / HOUR % 24));
        let notebooks = || jobs.iter().filter(|j| j.queue.as_deref() == Some("interactive"));
        assert!(notebooks().filter(at_night).count() * 20 < notebooks().count(), "people sleep");
        let weekend = notebooks().filter(|j| j.submit_ms / HOUR / 24 % 7 >= 5).count();
        assert!(weekend * 10 < notebooks().count(), "and rest");
        // Alone on its GPU a job keeps about a third of it busy; on what it asks for, four fifths.
        let busy = gpu_hours(&jobs, |j| u64::from(j.gpu_milli) * u64::from(j.gpu_util_permille.unwrap_or(0)) / 1000);
        let (alone, asked) = (gpu_hours(&jobs, |_| 1000), gpu_hours(&jobs, |j| u64::from(j.gpu_milli)));
        assert!((300..380).contains(&(busy * 1000 / alone)), "{} of 1000", busy * 1000 / alone);
        assert!(busy * 1000 / asked > 800, "{} of 1000", busy * 1000 / asked);
    }

    #[test]
    fn it_comes_again_and_more_days_begin_with_the_fewer() {
        let week = generate_sharing(9, 7);
        let longer: Vec<_> = generate_sharing(9, 8).into_iter().filter(|j| j.submit_ms < 7 * 24 * HOUR).collect();
        assert_eq!(week, longer);
        assert_ne!(week, generate_sharing(10, 7));
        assert!(week.windows(2).all(|w| w[0].submit_ms <= w[1].submit_ms));
    }
}

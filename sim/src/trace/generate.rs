//! Work of our own making: a trace shaped like Philly, and months of fractional work, each from a seed alone.
//! It never reads a clock or a file, so that equal seeds give equal bytes everywhere.

mod sharing;

use super::{SplitMix64, TraceJob};

pub use sharing::generate_sharing;

/// Run times in s by tenths, as measured on three weeks of the public Philly log (38,322 jobs) ...
const RUN_S: [u64; 10] = [1, 69, 476, 932, 1480, 1971, 2451, 2785, 4301, 10_443];
/// ... by hundredths from the 90th to the 99th percentile ...
const LONG_S: [u64; 10] = [10_443, 10_997, 12_200, 13_212, 15_416, 21_660, 37_609, 62_728, 92_092, 166_238];
/// ... and by thousandths from there.
const LONGEST_S: [u64; 11] =
    [166_238, 175_145, 186_683, 205_310, 226_156, 262_470, 316_836, 407_063, 510_787, 739_864, 2_750_674];
/// Time between submissions in s by twentieths, likewise.
const GAP_S: [u64; 21] = [0, 0, 0, 1, 1, 2, 2, 3, 4, 4, 6, 7, 8, 10, 13, 16, 21, 32, 99, 366, 9842];
/// Gang sizes in GPUs with their weight in 1/1000. Philly has 963 single GPUs of 1000; gangs are made four times as
/// frequent here, so that small traces have some.
const GANGS: [(u32, u64); 6] = [(1, 850), (2, 58), (4, 46), (8, 40), (16, 4), (32, 2)];
/// Virtual clusters with their weight in 1/1000, likewise.
const QUEUES: [(&str, u64); 6] =
    [("vc-large", 576), ("vc-second", 160), ("vc-third", 113), ("vc-fourth", 99), ("vc-small", 38), ("vc-tiny", 14)];

/// Jobs shaped like Philly: heavy-tailed run times, mostly single GPUs, gangs of up to 32, bursts and pauses.
///
/// The same seed and number give the same jobs everywhere; a longer trace begins with the shorter one.
#[must_use]
pub fn generate_trace(seed: u64, jobs: usize) -> Vec<TraceJob> {
    let mut rng = SplitMix64::named(seed, "philly-like");
    let mut submit_ms = 0u64;
    let mut job = |n: usize| {
        submit_ms = submit_ms.saturating_add(rng.quantile(&GAP_S) * 1000 + rng.below(1000));
        let duration_ms = run_s(&mut rng) * 1000 + rng.below(1000);
        let gpus = weighted(&mut rng, &GANGS);
        let queue = weighted(&mut rng, &QUEUES);
        TraceJob {
            id: format!("made-{n:06}"),
            submit_ms,
            duration_ms,
            gpus,
            gpu_milli: 1000,
            queue: Some(queue.to_owned()),
            user: Some(format!("user-{:02}", rng.below(40))),
            line: u64::try_from(n).unwrap_or(0) + 2,
            ..TraceJob::default()
        }
    };
    (0..jobs).map(&mut job).collect()
}

fn run_s(rng: &mut SplitMix64) -> u64 {
    match rng.below(1000) {
        0..900 => rng.quantile(&RUN_S),
        900..990 => rng.quantile(&LONG_S),
        _ => rng.quantile(&LONGEST_S),
    }
}

/// One of the choices, by weight; the last one takes what is left of it.
fn weighted<T: Copy + Default>(rng: &mut SplitMix64, choices: &[(T, u64)]) -> T {
    let mut left = rng.below(choices.iter().map(|(_, weight)| weight).sum());
    let found = choices.iter().find(|(_, weight)| match left.checked_sub(*weight) {
        Some(less) => {
            left = less;
            false
        }
        None => true,
    });
    found.or(choices.last()).map(|(choice, _)| *choice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::generate_trace;

    #[test]
    fn the_made_trace_is_shaped_like_the_recorded_one() {
        let jobs = generate_trace(3, 20_000);
        let mut runs: Vec<u64> = jobs.iter().map(|j| j.duration_ms / 1000).collect();
        runs.sort_unstable();
        assert!((1700..2300).contains(&runs[10_000]), "p50 {}", runs[10_000]);
        assert!((9_000..12_000).contains(&runs[18_000]), "p90 {}", runs[18_000]);
        assert!((130_000..200_000).contains(&runs[19_800]), "p99 {}", runs[19_800]);
        assert!(jobs.iter().any(|j| j.gpus == 32) && jobs.iter().filter(|j| j.gpus == 1).count() > 16_000);
        assert!(jobs.windows(2).all(|w| w[0].submit_ms <= w[1].submit_ms));
        assert_eq!(generate_trace(3, 100), jobs[..100]);
        assert_ne!(generate_trace(4, 100), jobs[..100]);
    }
}

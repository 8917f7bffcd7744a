//! Inputs of the published shapes, for where the published ones are not: nothing published stands beside their figures.
//!
//! Never: a recorded value.

use forebay_sim::trace::{SplitMix64, TraceJob, TraceNode, generate_trace};

const HOUR_MS: u64 = 3_600_000;
const TICK_MS: u64 = 600_000;

/// Exponential with this mean, by a table of its twentieths.
fn exponential(rng: &mut SplitMix64, mean: u64) -> u64 {
    const PERMILLE: [u64; 21] =
        [0, 51, 105, 163, 223, 288, 357, 431, 511, 598, 693, 799, 916, 1050, 1204, 1386, 1609, 1897, 2303, 2996, 5000];
    mean * rng.quantile(&PERMILLE) / 1000
}

/// Jobs of 1 to 8 GPUs that come 16 an hour and last an hour on average.
pub fn bursting(seed: u64, count: usize) -> Vec<TraceJob> {
    let mut rng = SplitMix64::named(seed, "bursting");
    let mut submit_ms = 0;
    let mut one = |nth: usize| {
        submit_ms += exponential(&mut rng, HOUR_MS / 16);
        let gpus = [1, 1, 1, 1, 1, 1, 1, 2, 4, 8][usize::try_from(rng.below(10)).unwrap_or(0)];
        let duration_ms = 10_000 + exponential(&mut rng, HOUR_MS);
        TraceJob { id: format!("{nth}"), submit_ms, duration_ms, gpus, gpu_milli: 1000, ..TraceJob::default() }
    };
    (0..count).map(&mut one).collect()
}

/// Nodes in use by tick: a level that wanders, more by day, with bursts. And how many nodes there are.
pub fn demand(seed: u64, ticks: usize, total: u32) -> (Vec<u32>, u32) {
    let mut rng = SplitMix64::named(seed, "demand");
    let (mut level, mut burst) = (u64::from(total) * 2 / 3, 0);
    let mut one = |tick: usize| {
        level = (level + rng.between(0, 6)).saturating_sub(3).clamp(u64::from(total) / 2, u64::from(total) * 3 / 4);
        burst = if rng.chance(8) { rng.between(5, 30) } else { burst * 9 / 10 };
        let day = if (48..120).contains(&(tick % 144)) { u64::from(total) / 20 } else { 0 };
        u32::try_from(level + burst + day).unwrap_or(total).min(total)
    };
    ((0..ticks).map(&mut one).collect(), total)
}

/// Jobs of several queues with heavy-tailed durations.
pub fn queues(seed: u64, count: usize) -> Vec<TraceJob> {
    generate_trace(seed, count)
}

/// Pods of shares and whole GPUs, and so many nodes of four kinds for them.
pub fn packing(seed: u64, count: usize) -> (Vec<TraceJob>, Vec<TraceNode>) {
    const KINDS: [(&str, u32, u64, u64); 4] = [
        ("g2", 8, 96_000, 393_216),
        ("t4", 2, 104_000, 524_288),
        ("p100", 2, 16_000, 122_880),
        ("g3", 8, 128_000, 786_432),
    ];
    let mut rng = SplitMix64::named(seed, "packing");
    let mut pick = |below: usize| usize::try_from(rng.below(below as u64)).unwrap_or(0);
    let node = |nth: usize, (model, gpus, cpu_milli, mem_mib): (&str, u32, u64, u64)| TraceNode {
        id: format!("node-{nth:04}"),
        cpu_milli,
        mem_mib,
        gpus,
        gpu_model: Some(model.to_owned()),
        ..TraceNode::default()
    };
    let nodes: Vec<TraceNode> = (0..count).map(|nth| node(nth, KINDS[pick(4)])).collect();
    let gpus: u32 = nodes.iter().map(|n| n.gpus).sum();
    let (mut pods, mut asked) = (Vec::new(), 0);
    while asked < u64::from(gpus) * 1000 {
        let (gpus, gpu_milli) = match pick(100) {
            0..45 => (1, [460, 470, 500, 300, 810][pick(5)]),
            45..85 => (1, 1000),
            85..97 => (0, 1000),
            97 => (8, 1000),
            _ => (2, 1000),
        };
        let cpu_milli = [2_000, 4_000, 6_000, 8_000, 11_900][pick(5)] * u64::from(gpus.max(1));
        asked += u64::from(gpus) * u64::from(gpu_milli);
        let id = format!("pod-{}", pods.len());
        let mem_mib = cpu_milli * [1, 2, 4][pick(3)];
        pods.push(TraceJob { id, duration_ms: 1000, gpus, gpu_milli, cpu_milli, mem_mib, ..TraceJob::default() });
    }
    (pods, nodes)
}

/// When one instance can be had: stretches of hours with pauses between them, eight times 14 days.
pub fn availability(seed: u64) -> Vec<(String, Vec<(u64, bool)>)> {
    let series = (0..8).map(|nth| {
        let name = format!("made-{nth}");
        let mut rng = SplitMix64::named(seed, &name);
        let (up, down) = (2 + nth * 2, 12 - nth);
        let (mut at, mut had, mut changes) = (0, true, Vec::new());
        while at < 14 * 24 * HOUR_MS {
            changes.push((at, had));
            let mean = HOUR_MS * if had { up } else { down };
            at += (exponential(&mut rng, mean) / TICK_MS + 1) * TICK_MS;
            had = !had;
        }
        (name, changes)
    });
    series.collect()
}

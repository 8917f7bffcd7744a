//! The demand model against generators whose seven inputs are known, each recovered within 10 %: of a trace, and of a data folder that a
//! replay has written. What a source cannot tell is not measured, and never zero.
//!
//! The generators share no code with what measures.

use forebay::demand::{document, of_folder, of_trace};
use forebay::driver::{ClockMode, LoopEnd, Settings, WorldMaker, load, start};
use forebay::show::{ColourChoice, Paint, demand};
use forebay_catalog::Catalogue;
use forebay_policy::compile;
use forebay_sim::market::Market;
use forebay_sim::world::{WorldOptions, spot_pairs};
use forebay_wire::document::demand::DemandDocument;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

const HOUR: u64 = 3600;

/// Draws (xorshift).
struct Draws(u64);

impl Draws {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }

    /// One of these, by their parts of 100.
    fn one<T: Copy>(&mut self, of: &[(u64, T)]) -> T {
        let mut left = self.below(100);
        for (part, value) in of {
            if left < *part {
                return *value;
            }
            left -= part;
        }
        panic!("the parts are less than 100")
    }
}

#[track_caller]
fn near(what: &str, seed: u64, found: f64, expected: f64) {
    assert!((found - expected).abs() <= expected * 0.1, "seed {seed}: {what}: found {found}, expected {expected}");
}

fn secs(ms: forebay_wire::document::seconds::Seconds) -> f64 {
    ms.0 as f64 / 1000.0
}

fn measured(path: &Path) -> DemandDocument {
    document(&of_trace(path, None).unwrap()).unwrap()
}

fn missing<'a>(found: &'a DemandDocument, input: &str) -> Option<&'a str> {
    found.not_measured.iter().find(|missing| missing.input == input).map(|missing| missing.why.as_str())
}

/// Two weeks: a floor of GPUs that are always asked for, more from 8 to 17, bursts that last and spikes that do not, at night.
struct Weeks {
    seed: u64,
    floor: u64,
    /// On top, by day.
    by_day: u64,
    /// GPUs and seconds of each burst that lasts, and how many there are.
    burst: (u64, u64, u64),
    /// The same of spikes.
    spike: (u64, u64, u64),
}

const DAYS: u64 = 14;
/// Parts of 100 of the jobs: minutes.
const MINUTES: [(u64, u64); 3] = [(70, 10), (25, 60), (5, 240)];
/// Likewise: seconds that they may wait, where that is stated.
const MAY_WAIT: [(u64, Option<u64>); 4] = [(25, None), (20, Some(30)), (40, Some(600)), (15, Some(4 * HOUR))];
/// Likewise: queue and how busy a job of it keeps its GPUs, in 1/100.
const KINDS: [(u64, (&str, u64)); 3] = [(30, ("ml/inference", 25)), (60, ("ml/training", 80)), (10, ("misc", 50))];

impl Weeks {
    fn of(seed: u64) -> Weeks {
        let mut draws = Draws(0x9e37_79b9_7f4a_7c15 ^ seed << 32);
        let floor = 40 + 4 * draws.below(20);
        Weeks {
            seed,
            floor,
            by_day: floor / 4,
            burst: (floor + draws.below(floor), 1800 + draws.below(3600), 6 + draws.below(5)),
            spike: (floor + draws.below(floor), 30 + draws.below(60), 10 + draws.below(10)),
        }
    }

    fn csv(&self) -> String {
        let mut draws = Draws(self.seed.wrapping_mul(0x2545_f491_4f6c_dd1d) | 1);
        let mut text = "job_id,submit_s,duration_s,gpus,queue,max_wait_s,gpu_util\n".to_owned();
        let mut number = 0;
        let mut job = |draws: &mut Draws, at: u64, lasts: u64, gpus: u64| {
            let (queue, busy) = draws.one(&KINDS);
            let wait = draws.one(&MAY_WAIT).map(|s| s.to_string()).unwrap_or_default();
            writeln!(text, "j{number},{at},{lasts},{gpus},{queue},{wait},0.{busy}").unwrap();
            number += 1;
        };
        // One job after the other on each pair of GPUs.
        for _ in 0..self.floor / 2 {
            let mut at = 0;
            while at <= DAYS * 24 * HOUR {
                let lasts = draws.one(&MINUTES) * 60;
                job(&mut draws, at, lasts, 2);
                at += lasts;
            }
        }
        for day in 0..DAYS {
            for _ in 0..self.by_day {
                let (mut at, ends) = ((day * 24 + 8) * HOUR, (day * 24 + 17) * HOUR);
                while at < ends {
                    let lasts = (draws.one(&MINUTES) * 60).min(ends - at);
                    job(&mut draws, at, lasts, 1);
                    at += lasts;
                }
            }
        }
        let ((burst, lasts, bursts), (spike, flash, spikes)) = (self.burst, self.spike);
        for nth in 0..bursts {
            (0..burst).for_each(|_| job(&mut draws, (nth * 24 + 1) * HOUR, lasts, 1));
        }
        for nth in 0..spikes {
            let (day, hour) = (nth % DAYS, if nth < DAYS { 4 } else { 6 });
            (0..spike).for_each(|_| job(&mut draws, (day * 24 + hour) * HOUR, flash, 1));
        }
        text
    }
}

#[test]
fn a_trace_tells_the_inputs_that_its_generator_was_given() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weeks.csv");
    for seed in 1..=6 {
        let weeks = Weeks::of(seed);
        std::fs::write(&path, weeks.csv()).unwrap();
        let found = measured(&path);
        let (floor, by_day) = (weeks.floor as f64, weeks.by_day as f64);
        let ((burst, lasts, bursts), (spike, flash, spikes)) = (weeks.burst, weeks.spike);

        let asked = &found.concurrency.asked;
        near("floor", seed, asked.floor, floor);
        near("p50", seed, asked.p50, floor);
        near("p90", seed, asked.p90, floor + by_day);
        near("peak", seed, asked.peak, floor + burst.max(spike) as f64);
        let busy = |gpus: u64, lasts: u64, times: u64| (gpus * lasts * times) as f64 / (DAYS * 24 * HOUR) as f64;
        let mean = floor + by_day * 9.0 / 24.0 + busy(burst, lasts, bursts) + busy(spike, flash, spikes);
        near("mean", seed, asked.mean, mean);
        near("at noon", seed, asked.by_hour[12].mean, floor + by_day);
        near("at 22", seed, asked.by_hour[22].mean, floor);

        let profile = &found.bursts;
        assert_eq!((profile.lasting, profile.noise), (bursts, spikes), "seed {seed}: {profile:?}");
        near("usual", seed, profile.usual, floor);
        near("ceiling", seed, profile.ceiling.unwrap(), floor + burst as f64);
        near("cold start", seed, secs(profile.boot_s), 120.0);
        for one in &profile.listed {
            let (height, length) = if one.noise { (spike, flash) } else { (burst, lasts) };
            near("height", seed, one.height, height as f64);
            near("length", seed, secs(one.length_s), length as f64);
            near("above", seed, one.above_gpu_hours, (height * length) as f64 / HOUR as f64);
            let why = if one.noise { "before a node that is bought for it takes work" } else { "works for it for" };
            assert!(one.why.contains(why), "{}", one.why);
        }

        let tolerance = found.latency_tolerance.as_ref().unwrap();
        near("stated", seed, tolerance.stated_share, 0.75);
        let waits = [tolerance.p10_s, tolerance.p50_s, tolerance.p90_s].map(secs);
        assert_eq!(waits, [30.0, 600.0, 14_400.0], "seed {seed}");

        let mix = found.mix.as_ref().unwrap();
        near("inference", seed, mix.inference.unwrap().share, 0.3);
        near("batch", seed, mix.batch.unwrap().share, 0.6);
        near("untold", seed, mix.untold.share, 0.1);

        let residency = found.vram_residency.as_ref().unwrap();
        near("residency", seed, residency.ratio.unwrap(), 1.0 / (0.3 * 0.25 + 0.6 * 0.8 + 0.1 * 0.5));

        let durations = found.durations.as_ref().unwrap();
        for (queue, spans) in std::iter::once(("all", &durations.all))
            .chain(durations.by_queue.iter().map(|row| (row.queue.as_str(), &row.durations)))
        {
            near(&format!("p50 of {queue}"), seed, secs(spans.p50), 600.0);
            near(&format!("p90 of {queue}"), seed, secs(spans.p90), 3600.0);
            near(&format!("p99 of {queue}"), seed, secs(spans.p99), 14_400.0);
        }
        assert_eq!(durations.by_queue.len(), 3);

        assert!(found.queue_depth.is_none() && found.concurrency.held.is_none());
        assert!(missing(&found, "queueDepth").unwrap().contains("a trace has no starts"));
        assert_eq!(found.not_measured.len(), 2, "{:?}", found.not_measured);
    }
}

const POLICY: &str = "apiVersion: forebay/v1
kind: Policy
metadata: {name: demand}
limits: {nodes: 40, spend: 1000 USD/h}
tiers:
  normal: {priority: 500, buys: on-demand}
queues:
  # Shorter than a boot: nothing that waits is left to wait on purpose.
  work: {tier: normal, start: {within: 1m, whenLate: wait}}
  answers: {tier: normal}
pools:
  default: {instanceTypes: [g5.xlarge], ceiling: {nodes: NODES}}
";

fn world() -> WorldMaker {
    Box::new(|policy, origin| WorldOptions { origin, ..WorldOptions::new(7, Market::calm(&spot_pairs(policy))) })
}

fn event(kind: &str, subject: &str, at: u64, data: &str) -> String {
    let (day, hour, minute) = (2 + at / 86_400, at / HOUR % 24, at / 60 % 60);
    let time = format!("2026-11-{day:02}T{hour:02}:{minute:02}:{:02}Z", at % 60);
    format!("{{\"type\":\"{kind}\",\"subject\":\"{subject}\",\"time\":\"{time}\",\"data\":{data}}}\n")
}

/// Replays events into a new data folder, on so many nodes of one GPU; `dies_after` so many batches, or when all is over.
fn replayed(folder: &Path, events: &str, nodes: u64, dies_after: Option<u64>) -> PathBuf {
    let text = POLICY.replace("NODES", &nodes.to_string());
    let policy = compile("demand.yaml", &text, &Catalogue::builtin()).unwrap().policy;
    let file = folder.join("events.jsonl");
    std::fs::write(&file, events).unwrap();
    let data = folder.join("data");
    let settings = Settings {
        feed: Some(load(&file, None, &policy).unwrap().feed),
        policy: Some((text, policy)),
        clock: ClockMode::Max,
        exit_when_drained: true,
        dies_after,
        ..Settings::new(data.clone(), world())
    };
    let end = start(settings).unwrap().join().unwrap().end;
    assert_eq!(end, if dies_after.is_some() { LoopEnd::Died } else { LoopEnd::Drained });
    data
}

/// All jobs come at once, and so many at a time run, one after the other.
#[test]
fn a_folder_tells_what_waited_what_was_held_and_how_long_work_took() {
    for seed in 1..=4 {
        let mut draws = Draws(seed << 40 | 77);
        let (gpus, rounds, hours) = (3 + draws.below(3), 7 + 2 * draws.below(3), 1 + draws.below(3));
        let count = gpus * rounds;
        let data = format!(
            "{{\"queue\":\"work\",\"gang\":{{\"each\":{{\"gpus\":1}}}},\"simulation\":{{\"durationS\":{}}}}}",
            hours * HOUR
        );
        let events: String = (0..count).map(|n| event("job.submitted", &format!("j{n}"), 0, &data)).collect();
        let folder = tempfile::tempdir().unwrap();
        let data = replayed(folder.path(), &events, gpus, None);
        let found = document(&of_folder(&data).unwrap()).unwrap();

        let held = found.concurrency.held.as_ref().unwrap();
        for (what, figure) in [("p50", held.p50), ("peak", held.peak), ("mean", held.mean)] {
            near(&format!("held {what}"), seed, figure, gpus as f64);
        }
        near("asked peak", seed, found.concurrency.asked.peak, count as f64);

        let depth = found.queue_depth.as_ref().unwrap();
        // In each round as many fewer wait as can run.
        let middle = (gpus * (rounds - 1)) as f64 / 2.0;
        near("depth p50", seed, depth.jobs.p50, middle);
        near("depth mean", seed, depth.jobs.mean, middle);
        near("depth peak", seed, depth.jobs.peak, count as f64);
        near("depth in GPUs", seed, depth.gpus.mean, middle);
        let waits: Vec<u64> = (0..count).map(|n| n / gpus * hours * HOUR).collect();
        let rank = |percent: u64| waits[((count * percent).div_ceil(100) - 1) as usize] as f64;
        let wait = depth.wait_s.unwrap();
        near("wait p50", seed, secs(wait.p50), rank(50));
        near("wait p90", seed, secs(wait.p90), rank(90));
        near("wait p99", seed, secs(wait.p99), rank(99));
        assert_eq!((wait.count, depth.waiting, depth.gave_up), (count, 0, 0), "seed {seed}");

        let durations = found.durations.as_ref().unwrap().all;
        for span in [durations.p50, durations.p90, durations.p99] {
            near("duration", seed, secs(span), (hours * HOUR) as f64);
        }
        let tolerance = found.latency_tolerance.as_ref().unwrap();
        assert_eq!((secs(tolerance.p50_s), tolerance.stated_share), (60.0, 1.0), "seed {seed}");
        assert!(found.bursts.boot_from.contains("boots in the journal"), "{}", found.bursts.boot_from);
        let mix = found.mix.unwrap();
        assert_eq!((mix.batch.unwrap().share, mix.inference.unwrap().share), (1.0, 0.0));
        assert!(missing(&found, "vramResidency").unwrap().contains("no agent has reported idle GPUs"));
    }
}

/// A service that is asked for less than it is loaded for, beside runs that stay idle as long as they have worked.
#[test]
fn a_folder_tells_services_from_jobs_and_residency_from_computing() {
    for (seed, asked, lasts, idle) in [(1, 1, 3600, 3600), (2, 2, 5400, 2700), (3, 3, 1800, 5400)] {
        let service =
            "{\"queue\":\"answers\",\"gang\":{\"each\":{\"gpus\":1}},\"service\":{\"min\":1,\"max\":2,\"target\":4}}";
        let mut events = event("job.submitted", "answers", 0, service);
        events += &event("service.demand", "answers", 60, &format!("{{\"concurrency\":{asked}}}"));
        let job = format!(
            "{{\"queue\":\"work\",\"gang\":{{\"each\":{{\"gpus\":1}}}},\"simulation\":{{\"durationS\":{lasts},\"lingerS\":{idle}}}}}"
        );
        let submitted = |n: u64| 60 + n * 1800;
        (0..400).for_each(|n| events += &event("job.submitted", &format!("j{n}"), submitted(n), &job));
        let folder = tempfile::tempdir().unwrap();
        let data = replayed(folder.path(), &events, 20, Some(6000));
        let found = document(&of_folder(&data).unwrap()).unwrap();

        // From the service's submission on.
        let lasted = (found.to_s.0 - 1_793_577_600_000) as f64 / 3_600_000.0;
        assert!(lasted > 24.0, "seed {seed}: {lasted} h");
        let ends = lasted * HOUR as f64;
        let of_job = |n: u64| (ends - submitted(n) as f64).clamp(0.0, (lasts + idle) as f64) / HOUR as f64;
        let batch: f64 = (0..400).map(of_job).sum();
        let mix = found.mix.as_ref().unwrap();
        near("inference", seed, mix.inference.unwrap().share, lasted / (lasted + batch));
        near("batch", seed, mix.batch.unwrap().share, batch / (lasted + batch));

        let rows = &found.vram_residency.as_ref().unwrap().rows;
        let ratio = |source: &str| rows.iter().find(|row| row.source == source).and_then(|row| row.ratio).unwrap();
        near("service", seed, ratio("services"), 4.0 / asked as f64);
        near("reported idle", seed, ratio("reportedIdle"), (lasts + idle) as f64 / lasts as f64);
        let held = found.concurrency.held.as_ref().unwrap();
        near("held", seed, held.mean, (lasted + batch) / lasted);
    }
}

#[test]
fn what_nothing_tells_is_not_measured_and_never_zero() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bare.csv");
    std::fs::write(&path, "job_id,submit_s,duration_s,gpus\na,5,7200,4\n").unwrap();
    let found = measured(&path);
    let json = serde_json::to_value(&found).unwrap();
    for input in ["queueDepth", "latencyTolerance", "mix", "vramResidency"] {
        assert!(json[input].is_null(), "{input}: {}", json[input]);
        assert!(missing(&found, input).is_some_and(|why| why.len() > 20), "{input}");
    }
    assert!(json["concurrency"]["held"].is_null() && missing(&found, "concurrency.held").is_some());
    assert_eq!((json["apiVersion"].as_str(), json["kind"].as_str()), (Some("forebay/v1"), Some("Demand")));
    // One job is what is usual: there is nothing above it.
    let (asked, durations) = (&found.concurrency.asked, found.durations.as_ref().unwrap().all);
    assert_eq!((asked.floor, asked.p50, asked.peak, asked.mean), (4.0, 4.0, 4.0, 4.0));
    assert_eq!((found.bursts.listed.len(), found.bursts.ceiling, secs(durations.p99)), (0, None, 7200.0));
    assert_eq!(serde_json::from_value::<DemandDocument>(json).unwrap(), found);

    // What some are called says nothing of the others: they may be inference.
    std::fs::write(&path, "job_id,submit_s,duration_s,gpus,priority\na,5,7200,4,BE\nb,5,7200,4,normal\n").unwrap();
    let mix = measured(&path).mix.unwrap();
    assert_eq!((mix.batch.unwrap().share, mix.inference, mix.untold.share), (0.5, None, 0.5));

    let refused = |text: &str| {
        std::fs::write(&path, text).unwrap();
        of_trace(&path, None).map(|gathered| document(&gathered)).and_then(|found| found).unwrap_err().to_string()
    };
    let cpu_only = refused("job_id,submit_s,duration_s,gpus\na,5,60,0\n");
    assert!(cpu_only.contains("no job asks for a GPU (1 jobs are CPU-only)"), "{cpu_only}");
    assert!(refused("").contains("the file is empty"));
    assert!(refused("job_id,submit_s,duration_s,gpus\n").contains("no jobs"));
    let broken = refused("job_id,submit_s,duration_s,gpus\na,soon,60,1\n");
    assert!(broken.contains("line 2, column submit_s"), "{broken}");
    let nowhere = of_folder(&folder.path().join("nowhere")).unwrap_err().to_string();
    assert!(nowhere.contains("nowhere"), "{nowhere}");
}

/// What people see: at most 80 columns, names that cannot do anything, and the same without colours.
#[test]
fn the_tables_fit_and_hostile_names_are_text() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weeks.csv");
    let text =
        Weeks::of(3).csv().replace("ml/training", "ml/\u{1b}[31mtraining\u{202e}-with-a-name-that-goes-on-and-on");
    std::fs::write(&path, text).unwrap();
    let found = measured(&path);
    let shown = demand::text(&found, Paint::PLAIN);
    for line in shown.lines() {
        assert!(line.chars().count() <= 80, "{}: {line}", line.chars().count());
        assert!(!line.contains(['\u{1b}', '\u{202e}']), "{line:?}");
    }
    for heading in
        ["1 Concurrency", "2 Queue depth\n  not measured", "3 Bursts", "4 Latency", "5 Batch", "6 VRAM", "7 Job"]
    {
        assert!(shown.contains(heading), "no {heading} in {shown}");
    }
    let coloured = demand::text(&found, ColourChoice::Always.stdout());
    let bare = coloured.split('\u{1b}').enumerate().map(|(at, part)| match at {
        0 => part,
        _ => part.split_once('m').map_or("", |(_, rest)| rest),
    });
    let bare = bare.collect::<String>();
    // A heading without a word has colours all the same, and spaces before them.
    assert_eq!(bare.lines().map(str::trim_end).collect::<Vec<_>>(), shown.lines().collect::<Vec<_>>());
}

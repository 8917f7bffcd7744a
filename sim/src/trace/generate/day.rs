//! The example day: three teams, their interactive, batch and backfill work, an inference service, one burst and one drought.
//! It never asks for more than the built-in catalogue has: each job of the day can run.
//!
//! ```text
//! 00  02  04  06  08  10  12  14  16  18  20  22  24
//! backfill ----------|                        |------    search/backfill, language/backfill
//!             |======= the search service, 1 to 4 workers =======|
//!                 |-- interactive, evaluation, preprocessing --|
//!          4x8 .     .  4x8    .    4x8   2x4 gangs all day
//!                            drought 13:00-15:30   burst 16:40
//! ```

use serde::Serialize;
use serde_json::{Value, json};

use super::SplitMix64;
use super::event::{
    Cancelled, Checkpoint, Drought, Each, Event, Gang, Job, Labels, Market, Retry, Run, Simulation, Workers,
};

/// When the example day begins.
pub const DAY_START: &str = "2026-11-02T00:00:00Z";
/// The seed of the committed `examples/day.jsonl`.
pub const DAY_SEED: u64 = 20_261_102;

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;
/// Spot is gone for this long, in ms after the start.
const DROUGHT: (u64, u64) = (13 * HOUR, 15 * HOUR + 30 * MINUTE);
/// The burst: so many one-minute jobs in 90 s, done before a node that is bought for them could boot (90 to 120 s and more).
const BURST: (u64, u64, u64) = (16 * HOUR + 40 * MINUTE, 30, 90_000);

/// One kind of work: how often, when, how long, how big.
struct Class {
    queue: &'static str,
    name: &'static str,
    template: &'static str,
    jobs: u64,
    /// Submitted within these hours, both ends sampled evenly.
    hours: (u64, u64),
    /// Run time in minutes.
    minutes: (u64, u64),
    workers: u32,
    /// GPUs of each worker in 1/1000.
    milli: u64,
    models: &'static [&'static str],
    cpu: u32,
    gib: u32,
    checkpoint: Option<&'static str>,
    /// Every so many jobs, one has a deadline at three times its run time, at least an hour after it.
    deadline_every: u64,
    /// Every so many jobs, one fails once.
    fail_every: u64,
}

const NONE: Class = Class {
    queue: "",
    name: "",
    template: "train",
    jobs: 0,
    hours: (0, 24),
    minutes: (1, 1),
    workers: 1,
    milli: 1000,
    models: &[],
    cpu: 3,
    gib: 12,
    checkpoint: None,
    deadline_every: u64::MAX,
    fail_every: u64::MAX,
};

#[rustfmt::skip]
const CLASSES: [Class; 13] = [
    Class { queue: "vision/interactive", name: "notebook", template: "notebook", jobs: 60, hours: (8, 18), minutes: (5, 80), milli: 500, cpu: 2, ..NONE },
    Class { queue: "vision/batch", name: "finetune", jobs: 55, hours: (7, 22), minutes: (15, 150), checkpoint: Some("10m"), deadline_every: 18, fail_every: 20, ..NONE },
    Class { queue: "vision/batch", name: "resnet", jobs: 9, hours: (1, 21), minutes: (50, 200), workers: 2, milli: 4000, models: &["A10G", "L4"], cpu: 32, gib: 128, checkpoint: Some("10m"), deadline_every: 4, fail_every: 6, ..NONE },
    Class { queue: "vision/batch", name: "evaluate", template: "evaluate", jobs: 55, hours: (8, 21), minutes: (2, 20), milli: 250, cpu: 1, gib: 4, ..NONE },
    Class { queue: "vision/backfill", name: "resize", template: "preprocess", jobs: 40, hours: (0, 22), minutes: (4, 45), milli: 0, cpu: 8, gib: 16, ..NONE },
    Class { queue: "language/interactive", name: "debug", template: "notebook", jobs: 35, hours: (9, 19), minutes: (5, 60), models: &["A10G", "L4"], ..NONE },
    Class { queue: "language/batch", name: "pretrain", jobs: 4, hours: (3, 18), minutes: (90, 240), workers: 4, milli: 8000, models: &["A100", "H100"], cpu: 88, gib: 900, checkpoint: Some("15m"), deadline_every: 2, ..NONE },
    Class { queue: "language/batch", name: "lora", jobs: 60, hours: (6, 22), minutes: (20, 180), models: &["A10G", "L4", "L40S"], checkpoint: Some("10m"), deadline_every: 20, fail_every: 25, ..NONE },
    Class { queue: "language/batch", name: "tokenize", template: "preprocess", jobs: 25, hours: (5, 20), minutes: (5, 40), milli: 0, cpu: 16, gib: 48, ..NONE },
    Class { queue: "language/backfill", name: "sweep", jobs: 45, hours: (0, 23), minutes: (10, 90), checkpoint: Some("5m"), fail_every: 22, ..NONE },
    Class { queue: "search/interactive", name: "probe", template: "notebook", jobs: 25, hours: (8, 18), minutes: (3, 30), milli: 500, cpu: 2, gib: 8, ..NONE },
    Class { queue: "search/batch", name: "rerank", template: "evaluate", jobs: 40, hours: (7, 22), minutes: (3, 30), milli: 250, cpu: 1, gib: 4, ..NONE },
    Class { queue: "search/backfill", name: "embed", jobs: 50, hours: (0, 23), minutes: (8, 60), checkpoint: Some("5m"), ..NONE },
];

/// A day of events as JSON lines, ready for `forebay run --replay`; the same seed gives the same bytes everywhere.
///
/// The first line is a `simulation.market` event: when the simulated cloud has no spot.
#[must_use]
pub fn generate_day(seed: u64) -> String {
    let mut day = Day { lines: Vec::new(), events: 0 };
    let drought = Drought { from: stamp(DROUGHT.0), to: stamp(DROUGHT.1) };
    day.push(0, "simulation.market", "urn:forebay:simulation.market:1", "simulation", "day", Market { drought });
    for class in &CLASSES {
        let mut rng = SplitMix64::named(seed, &format!("{}/{}", class.queue, class.name));
        for n in 0..class.jobs {
            let at = rng.between(class.hours.0 * HOUR, class.hours.1 * HOUR - 1) / 1000 * 1000;
            let job = day.job(class, &mut rng, n, at);
            day.submit(at, &format!("{}-{n:03}", class.name), job);
        }
    }
    service(&mut day);
    burst(&mut day, seed);
    second_thoughts(&mut day, seed);
    day.finish()
}

/// Inference as one long elastic job, until the day ends.
fn service(day: &mut Day) {
    let at = 6 * HOUR;
    let class = Class {
        queue: "search/interactive",
        name: "search-service",
        template: "serve",
        models: &["A10G", "L4"],
        gib: 14,
        cpu: 3,
        ..NONE
    };
    let mut job = day.job(&class, &mut SplitMix64::new(0), 0, at);
    job.kind = Some("service");
    job.gang.workers = Workers { min: 1, max: 4 };
    job.expected_run = None;
    job.labels.class = "service";
    job.simulation = Simulation { duration_s: (24 * HOUR - at) / 1000, gpu_util: json!(0.55), failures: None };
    day.submit(at, "search-service", job);
}

fn burst(day: &mut Day, seed: u64) {
    let (begin, jobs, within) = BURST;
    let mut rng = SplitMix64::named(seed, "burst");
    let class = Class {
        queue: "search/interactive",
        name: "burst",
        template: "evaluate",
        minutes: (1, 1),
        gib: 8,
        cpu: 2,
        ..NONE
    };
    for n in 0..jobs {
        let at = begin + rng.below(within);
        let job = day.job(&class, &mut rng, n, at);
        day.submit(at, &format!("burst-{n:02}"), job);
    }
}

/// One submission sent twice, and one job cancelled while it waits or runs.
fn second_thoughts(day: &mut Day, seed: u64) {
    let mut rng = SplitMix64::named(seed, "second thoughts");
    let class = Class {
        queue: "language/batch",
        name: "lora-twice",
        minutes: (25, 40),
        models: &["A10G"],
        checkpoint: Some("10m"),
        ..NONE
    };
    let at = 10 * HOUR + 7 * MINUTE;
    let job = day.job(&class, &mut rng, 0, at);
    day.submit(at, "lora-twice", job.clone());
    day.submit(at + 95_000, "lora-twice", job);
    let class = Class {
        queue: "vision/batch",
        name: "finetune-abandoned",
        minutes: (170, 180),
        checkpoint: Some("10m"),
        ..NONE
    };
    let at = 11 * HOUR + 20 * MINUTE;
    let job = day.job(&class, &mut rng, 0, at);
    day.submit(at, "finetune-abandoned", job);
    let reason = Cancelled { reason: "superseded by a newer data set" };
    day.push(at + 31 * MINUTE, "job.cancelled", "urn:forebay:job.cancelled:1", "vision", "finetune-abandoned", reason);
}

struct Day {
    /// (time in ms, line): in the order of making, which breaks ties.
    lines: Vec<(u64, String)>,
    events: u64,
}

impl Day {
    fn job(&self, class: &Class, rng: &mut SplitMix64, n: u64, at: u64) -> Job {
        let seconds = if class.minutes.0 == class.minutes.1 {
            class.minutes.0 * 60
        } else {
            rng.between(class.minutes.0 * 60, class.minutes.1 * 60)
        };
        // What a team expects of its own jobs: 80 to 140 % of the truth, in whole minutes.
        let expected = (seconds * rng.between(80, 140) / 100).div_ceil(60).max(1);
        let busy = [0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95][usize::try_from(rng.below(7)).unwrap_or(0)];
        let hit = |every: u64| every != u64::MAX && n % every == every - 1;
        let (team, subteam) = class.queue.split_once('/').unwrap_or((class.queue, ""));
        Job {
            queue: class.queue.to_owned(),
            kind: None,
            labels: labels(team, subteam),
            run: Run {
                template: class.template,
                image: format!("registry.example/{team}/{}:2026.10", class.template),
                args: vec!["--seed".to_owned(), n.to_string()],
            },
            gang: Gang {
                workers: Workers { min: class.workers, max: class.workers },
                each: Each {
                    gpus: gpus(class.milli),
                    models: class.models.to_vec(),
                    cpu: class.cpu,
                    memory: format!("{}GiB", class.gib),
                },
                within: (class.workers > 1).then_some("zone"),
            },
            sharing: if (1..1000).contains(&class.milli) { "shared" } else { "exclusive" },
            completion: "all",
            retry: hit(class.fail_every).then_some(Retry { attempts: 3, backoff: "30s" }),
            checkpoint: class.checkpoint.map(|every| Checkpoint {
                uri: format!("s3://checkpoints/{}/{}-{n:03}/", class.queue, class.name),
                every,
                grace: "90s",
            }),
            expected_run: Some(format!("{expected}m")),
            deadline: hit(class.deadline_every).then(|| stamp(at + (3 * seconds * 1000).max(seconds * 1000 + HOUR))),
            simulation: Simulation {
                duration_s: seconds,
                gpu_util: if class.milli == 0 { Value::Null } else { json!(busy) },
                failures: hit(class.fail_every).then_some(1),
            },
        }
    }

    fn submit(&mut self, at: u64, subject: &str, job: Job) {
        let team = job.labels.team;
        self.push(at, "job.submitted", "urn:forebay:job.submitted:1", team, subject, job);
    }

    fn push<D: Serialize>(
        &mut self,
        at: u64,
        kind: &'static str,
        dataschema: &'static str,
        from: &str,
        subject: &str,
        data: D,
    ) {
        let (source, id) = (format!("//pipelines/{from}"), format!("day-{:04}", self.events));
        let event = Event {
            specversion: "1.0",
            kind,
            dataschema,
            source,
            id,
            time: stamp(at),
            subject: subject.to_owned(),
            data,
        };
        self.events += 1;
        // Structs of text and numbers have no way to fail; a missing line would fail the example's own test.
        self.lines.extend(serde_json::to_string(&event).ok().map(|line| (at, line)));
    }

    fn finish(mut self) -> String {
        self.lines.sort_by_key(|(at, _)| *at);
        self.lines.into_iter().map(|(_, line)| line + "\n").collect()
    }
}

fn labels(team: &str, class: &str) -> Labels {
    let (team, cost_center) = match team {
        "vision" => ("vision", "4711"),
        "language" => ("language", "4712"),
        _ => ("search", "4713"),
    };
    let class = match class {
        "interactive" => "interactive",
        "backfill" => "backfill",
        _ => "batch",
    };
    Labels { team, class, cost_center }
}

fn gpus(milli: u64) -> Value {
    match milli {
        250 => json!(0.25),
        500 => json!(0.5),
        whole => json!(whole / 1000),
    }
}

/// Milliseconds after the day's start as RFC 3339; days beyond the month's end do not occur.
fn stamp(at: u64) -> String {
    let (day, rest) = (2 + at / (24 * HOUR), at % (24 * HOUR));
    let (hour, minute, second, ms) = (rest / HOUR, rest / MINUTE % 60, rest / 1000 % 60, rest % 1000);
    let fraction = if ms == 0 { String::new() } else { format!(".{ms:03}") };
    format!("2026-11-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z")
}

#[cfg(test)]
mod tests {
    use super::{DAY_START, HOUR, stamp};

    #[test]
    fn stamps_count_from_the_days_start() {
        assert_eq!(stamp(0), DAY_START);
        assert_eq!(stamp(25 * HOUR + 61_005), "2026-11-03T01:01:01.005Z");
    }
}

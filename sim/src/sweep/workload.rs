//! A small random workload: jobs of every shape that the engine knows, some of which fail, linger, are cancelled or submitted twice.
//!
//! Never: a job that some policy could not reject; what becomes of it is the engine's business.

pub(super) mod features;

use forebay_kernel::event::Event;
use forebay_kernel::job::{Checkpointing, Completion, Gang, JobSpec, Retry, WorkerAsk};
use forebay_kernel::units::{Mib, MilliCpu, Span, Timestamp};

use crate::policies::QUEUES;
use crate::world::JobTruth;
use crate::world::hash::{Draw, below, draw};

/// Something that a pipeline sends, and when.
#[derive(Clone, Debug)]
pub(super) struct Input {
    pub at: Timestamp,
    pub event: Event,
}

/// A workload.
#[derive(Clone, Debug)]
pub(super) struct Workload {
    /// In order of time.
    pub inputs: Vec<Input>,
    /// The truth of each job, by subject.
    pub truths: Vec<(String, JobTruth)>,
}

impl Workload {
    /// What is submitted.
    pub fn specs(&self) -> impl Iterator<Item = &JobSpec> {
        self.inputs.iter().filter_map(|input| match &input.event {
            Event::JobSubmitted(spec) => Some(&**spec),
            _ => None,
        })
    }
}

/// The tenant of all jobs.
pub(super) const TENANT: &str = "t";

struct Dice {
    seed: u64,
    job: u64,
}

impl Dice {
    fn roll(&self, nth: u64, bound: u64) -> u64 {
        below(draw(self.seed, Draw::Made, 1000 + self.job, nth), bound)
    }

    fn one_in(&self, nth: u64, n: u64) -> bool {
        self.roll(nth, n) == 0
    }
}

/// Makes a workload of 3 to 26 jobs, or one time in four of up to 90, within an hour and a half.
pub(super) fn random(seed: u64) -> Workload {
    let most = if below(draw(seed, Draw::Made, 2, 1), 4) == 0 { 88 } else { 24 };
    let count = 3 + below(draw(seed, Draw::Made, 2, 0), most);
    let mut workload = Workload { inputs: Vec::new(), truths: Vec::new() };
    for job in 0..count {
        one(&Dice { seed, job }, &mut workload);
    }
    workload.inputs.sort_by_key(|i| i.at);
    workload
}

/// Makes a workload of 60 to 240 jobs of which hardly two ask for the same CPU and memory: many classes wait side by side, most of them in one line.
pub(super) fn crowd(seed: u64) -> Workload {
    let count = 60 + below(draw(seed, Draw::Made, 2, 2), 181);
    let mut workload = Workload { inputs: Vec::new(), truths: Vec::new() };
    for job in 0..count {
        one_of(&Dice { seed, job }, &mut workload, |dice, spec| {
            let (cpu, mem) = (MilliCpu(100 * dice.roll(70, 36)), Mib(250 * dice.roll(71, 48)));
            let (Gang::Workers { each, .. } | Gang::Spanning { per_gpu: each, .. }) = &mut spec.gang;
            // Some ask for nothing of it, or for what others ask.
            (each.cpu, each.mem) = if dice.one_in(72, 6) { (each.cpu, each.mem) } else { (cpu, mem) };
        });
    }
    workload.inputs.sort_by_key(|i| i.at);
    workload
}

fn one(dice: &Dice, workload: &mut Workload) {
    one_of(dice, workload, |_, _| {});
}

fn one_of(dice: &Dice, workload: &mut Workload, change: impl Fn(&Dice, &mut JobSpec)) {
    let burst = dice.one_in(0, 3);
    let at = Timestamp(if burst { 1_800_000 + dice.roll(1, 5000) } else { dice.roll(1, 5_400_000) });
    let (mut spec, mut truth) = (spec(dice), truth(dice));
    change(dice, &mut spec);
    spec.sent = dice.one_in(93, 2).then_some(at);
    features::add(dice, at, &mut spec, &mut truth);
    workload.truths.push((spec.subject.clone(), truth));
    features::demand(dice, at, &spec, &mut |input| workload.inputs.push(input));
    let mut send = |at, event| workload.inputs.push(Input { at, event });
    if dice.one_in(2, 20) {
        let again = at + Span(dice.roll(3, 1_200_000));
        send(again, Event::JobSubmitted(Box::new(spec.clone())));
    }
    if dice.one_in(4, 30) {
        let other = JobSpec { digest: spec.digest + 1, priority: 7, ..spec.clone() };
        send(at + Span(1 + dice.roll(5, 1_200_000)), Event::JobSubmitted(Box::new(other)));
    }
    let cancelled = |sent: Option<Timestamp>| {
        let (tenant, subject) = (TENANT.to_owned(), spec.subject.clone());
        Event::JobCancelled { tenant, subject, by: None, sent }
    };
    if dice.one_in(6, 12) {
        let then = at + Span(dice.roll(7, 2_400_000));
        send(then, cancelled(dice.one_in(8, 2).then_some(then)));
    }
    if dice.one_in(9, 40) {
        // It overtakes its job, by less than it is kept for or by more.
        let ahead = Span(dice.roll(91, 900_000));
        send(at - ahead, cancelled(dice.one_in(92, 2).then_some(at + Span(1))));
    }
    send(at, Event::JobSubmitted(Box::new(spec)));
}

fn spec(dice: &Dice) -> JobSpec {
    let queue = match dice.roll(10, 12) {
        0 => format!("stray/{}", dice.roll(11, 2)),
        n => QUEUES[(n % QUEUES.len() as u64) as usize].to_owned(),
    };
    let tier = match dice.roll(12, 24) {
        0 | 3 | 4 => Some("critical"),
        1 | 5 => Some("low"),
        2 => Some("no such tier"),
        _ => None,
    };
    let (gang, shares) = gang(dice);
    let models = match dice.roll(13, 6) {
        0 => vec!["t4".to_owned()],
        1 => vec!["a10g".to_owned(), "t4".to_owned()],
        _ => Vec::new(),
    };
    let save = Checkpointing { every: Span::secs(60 + dice.roll(14, 600)), grace: Span::secs(10 + dice.roll(15, 110)) };
    JobSpec {
        tenant: TENANT.into(),
        subject: format!("job-{}", dice.job),
        principal: "p".into(),
        queue,
        tier: tier.map(str::to_owned),
        priority: i32::try_from(dice.roll(16, 5)).unwrap_or(0) - 2,
        completion: match (&gang, dice.roll(17, 3)) {
            (Gang::Workers { max: 2.., .. }, 0) => Completion::Leader,
            (Gang::Workers { max: 2.., .. }, 1) => Completion::Any,
            _ => Completion::All,
        },
        gang,
        models,
        spot: !dice.one_in(18, 5),
        shares,
        checkpoint: (dice.roll(19, 10) < 7).then_some(save),
        restart: Span::secs(dice.roll(20, 90)),
        retry: Retry {
            attempts: 1 + u32::try_from(dice.roll(21, 3)).unwrap_or(0),
            backoff: Span::secs(5 + dice.roll(22, 60)),
            never: if dice.one_in(23, 4) { vec![42] } else { Vec::new() },
            ..Retry::default()
        },
        expected: dice.one_in(24, 2).then(|| Span::secs(60 + dice.roll(25, 1800))),
        max_run: dice.one_in(26, 15).then(|| Span::secs(120 + dice.roll(27, 900))),
        deadline: dice.one_in(28, 6).then(|| Timestamp(dice.roll(29, 10_800_000))),
        digest: u128::from(dice.job) * 10,
        rerun: false,
        run: vec![1, 2, 3],
        ..JobSpec::default()
    }
}

fn gang(dice: &Dice) -> (Gang, bool) {
    let small = |nth, bound| u32::try_from(dice.roll(nth, bound)).unwrap_or(0);
    let ask = |gpus: u32, share: u16| WorkerAsk {
        gpus: u16::try_from(gpus).unwrap_or(0),
        share,
        gpu_mem: Mib(if dice.one_in(40, 5) { 2000 } else { 0 }),
        cpu: MilliCpu(dice.roll(41, 3) * 500),
        mem: Mib(dice.roll(42, 3) * 1000),
    };
    match dice.roll(43, 10) {
        0..4 => (Gang::Workers { min: 1, max: 1, each: ask(1, 1000) }, false),
        4 => {
            let share = [100, 250, 500][small(44, 3) as usize];
            (Gang::Workers { min: 1, max: 1, each: ask(1, share) }, true)
        }
        6 | 7 => (Gang::Spanning { gpus: 1 + small(45, 10), per_gpu: ask(1, 1000) }, false),
        5 | 8 => {
            let min = 1 + small(46, 3);
            let each = ask(1 + small(47, 3), 1000);
            (Gang::Workers { min, max: min + small(48, 5), each }, false)
        }
        _ => (Gang::Workers { min: 1, max: 1, each: ask(0, 1000) }, false),
    }
}

fn truth(dice: &Dice) -> JobTruth {
    let duration = match dice.roll(60, 6) {
        0 => dice.roll(61, 20_000),
        1 => 0,
        _ => dice.roll(61, 2_400_000),
    };
    JobTruth {
        duration: Span(duration),
        failures: if dice.one_in(62, 4) { 1 + u32::try_from(dice.roll(63, 2)).unwrap_or(0) } else { 0 },
        exit_code: [1, 42][dice.roll(64, 2) as usize],
        fails_node: dice.one_in(65, 4),
        gpu_util_permille: None,
        linger: dice.one_in(66, 10).then(|| Span::secs(60 + dice.roll(67, 1800))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_feature_is_in_one_workload_of_ten_at_least() {
        let workloads: Vec<Workload> = (0..200).map(random).collect();
        for (name, named) in features::NAMED {
            let names = |workload: &&Workload| workload.specs().any(named);
            let count = workloads.iter().filter(names).count();
            assert!(count >= 20, "{name}: {count} of 200");
        }
    }

    #[test]
    fn workloads_are_in_order_and_come_again() {
        for seed in 0..50 {
            let workload = random(seed);
            assert!(workload.inputs.windows(2).all(|w| w[0].at <= w[1].at));
            assert!(workload.truths.len() >= 3 && workload.inputs.len() >= workload.truths.len());
            assert_eq!(format!("{workload:?}"), format!("{:?}", random(seed)));
        }
    }
}

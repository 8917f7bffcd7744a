//! A cluster that is paid for with a cloud beside it: Starburst (ATC 2024), table 4.
//!
//! ```text
//! jobs with known durations -> 32 owned GPUs, else the cloud at 2.5 USD per GPU and hour -> cloud cost, mean wait
//! ```
//!
//! What is approximated: cloud nodes are of 1, 2, 4 and 8 GPUs, there at once and billed from launch to gone, where the published simulation bills
//! the time of the jobs.
//!
//! Never: a hint of which job goes where.

use crate::arguments::Arguments;
use crate::figures::ComparedFigure;
use crate::world::InstantWorld;
use crate::{inputs, made};
use forebay_sim::convert::{Assumptions, Converter};
use forebay_sim::trace;

/// The fleet: nodes, and GPUs of each.
const FLEET: (usize, u16) = (4, 8);
const COST: [(&str, f64); 5] = [
    ("no-wait", 760.68),
    ("constant-wait", 705.55),
    ("star-wait", 662.11),
    ("compute-wait", 584.00),
    ("offline bound", 524.48),
];
const WAIT: [(&str, f64); 4] =
    [("no-wait", 0.0), ("constant-wait", 0.0516), ("star-wait", 0.0512), ("compute-wait", 0.0512)];

pub fn run(arguments: &Arguments) -> Result<Vec<ComparedFigure>, String> {
    let (trace, ours) = inputs::given_or(arguments.trace.as_ref(), "starburst_tab4_load1.csv");
    let jobs = match trace {
        Some(path) => trace::read(path, None).map_err(|e| e.to_string())?.jobs,
        None => made::bursting(1, 500),
    };
    let policy = inputs::policy("starburst")?;
    let mut converter = Converter::new(&policy, Assumptions { checkpoint_every: None, ..Assumptions::default() });
    let mut world = InstantWorld::new(policy, 0)?;
    world.happen(inputs::fleet(arguments, "cluster", FLEET)?)?;
    inputs::play(&mut world, jobs, |world, mut job| {
        // One kind of GPU, and durations are known.
        job.gpu_models.clear();
        job.estimate_ms = Some(job.duration_ms);
        job.restart_ms = Some(0);
        let (spec, _) = converter.job(&job);
        world.submission(spec, Some(job.duration_ms), 0)
    })?;
    let waits = world.fates().values().map(|fate| fate.started.map(|at| at - fate.submitted));
    let waits: Vec<u64> = waits.collect::<Option<_>>().ok_or("a job never started")?;
    let mean_h = waits.iter().sum::<u64>() as f64 / waits.len().max(1) as f64 / 3.6e6;
    let published = |list: &[(&'static str, f64)]| if ours { Vec::new() } else { list.to_vec() };
    Ok(vec![
        ComparedFigure {
            metric: "cloud_cost_usd".into(),
            figure: world.spent_usd(),
            unit: "USD",
            published: published(&COST),
        },
        ComparedFigure { metric: "mean_wait_h".into(), figure: mean_h, unit: "h", published: published(&WAIT) },
    ])
}

//! Nodes in use, every ten minutes, and how many may be off: Helios' CES (SC 2021) on the nodes of Philly.
//!
//! ```text
//! demand of each tick -> one job of a whole node for each node in use -> nodes off, wake-ups, node-ticks short
//! ```
//!
//! All nodes are on before the first tick. A node short at a tick is one that was not ready when its job came; a boot takes five minutes, so nodes
//! that a tick asks for are there at the next one. What is approximated: which node a falling demand leaves is not recorded; the jobs that began
//! first end first.
//!
//! Never: a look at the demand to come.

use crate::arguments::Arguments;
use crate::figures::ComparedFigure;
use crate::world::InstantWorld;
use crate::{inputs, made};
use forebay_catalog::input::{CsvTable, open};
use forebay_kernel::job::{Gang, JobSpec, WorkerAsk};
use forebay_kernel::state::nodes::NodePhase;
use std::collections::VecDeque;
use std::path::Path;

const TICK_MS: u64 = 600_000;
const BOOT_MS: u64 = 300_000;
const TICKS_A_DAY: f64 = 144.0;
/// The published fortnight in the published series.
const FROM_S: u64 = 3_873_000;
const TICKS: usize = 2016;
/// Time before the first tick, in which all nodes come up.
const BEFORE_MS: u64 = 2 * BOOT_MS;

pub fn run(arguments: &Arguments) -> Result<Vec<ComparedFigure>, String> {
    let (trace, ours) = inputs::given_or(arguments.trace.as_ref(), "philly_node_demand_10min.csv");
    let (demand, total) = match trace {
        Some(path) => read_demand(&path, !ours)?,
        None => made::demand(1, TICKS, 420),
    };
    let figures = replay(&demand, total)?;
    let published = |figure: f64| if ours { Vec::new() } else { vec![("CES", figure)] };
    let row = |metric: &str, figure, unit, theirs| ComparedFigure {
        metric: metric.to_owned(),
        figure,
        unit,
        published: published(theirs),
    };
    Ok(vec![
        row("nodes_off", figures.off, "nodes", 94.19),
        row("wakeups_per_day", figures.wakeups, "a day", 0.43),
        row("node_ticks_short", figures.short, "", 36.0),
    ])
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Figures {
    off: f64,
    wakeups: f64,
    short: f64,
}

fn replay(demand: &[u32], total: u32) -> Result<Figures, String> {
    let mut world = InstantWorld::new(inputs::policy("ces")?, BOOT_MS)?;
    let mut load = Load::default();
    load.becomes(&mut world, total)?;
    let (mut off, mut short) = (0u64, 0u64);
    for (wanted, at) in demand.iter().zip((BEFORE_MS..).step_by(TICK_MS as usize)) {
        world.until(at)?;
        let ready = world.state().bought_nodes().filter(|node| node.phase == NodePhase::Ready).count() as u64;
        // What the tick before had asked for is there by now: this is what its demand rose by beyond what was on.
        short += u64::from(*wanted).saturating_sub(ready);
        load.becomes(&mut world, *wanted)?;
        let on = world.state().bought_nodes().count() as u64;
        off += u64::from(total).saturating_sub(on);
        if std::env::var_os("FOREBAY_SHOW").is_some() {
            println!("{at} {wanted} {on} {ready} {}", world.runs().len());
        }
    }
    let ticks = demand.len().max(1) as f64;
    // However many launches a tick leads to, it is one wake-up.
    let mut woken: Vec<u64> =
        world.launches.iter().filter(|(at, _)| *at >= BEFORE_MS).map(|(at, _)| (at - BEFORE_MS) / TICK_MS).collect();
    woken.dedup();
    Ok(Figures { off: off as f64 / ticks, wakeups: woken.len() as f64 / (ticks / TICKS_A_DAY), short: short as f64 })
}

/// Jobs of one node each, as many as nodes are in use.
#[derive(Default)]
struct Load {
    open: VecDeque<String>,
    made: u64,
}

impl Load {
    fn becomes(&mut self, world: &mut InstantWorld, wanted: u32) -> Result<(), String> {
        let mut events = Vec::new();
        while self.open.len() > wanted as usize {
            let name = self.open.pop_front().unwrap_or_default();
            let job = world.state().job_of("quality", &name).ok_or_else(|| format!("{name} is not known"))?;
            events.push(world.completion(job).ok_or_else(|| format!("{name} does not run"))?);
        }
        while self.open.len() < wanted as usize {
            self.made += 1;
            let subject = format!("node-{:07}", self.made);
            self.open.push_back(subject.clone());
            let each = WorkerAsk { gpus: 1, share: 1000, ..WorkerAsk::default() };
            let spec = JobSpec {
                tenant: "quality".into(),
                subject,
                queue: "work".into(),
                gang: Gang::Workers { min: 1, max: 1, each },
                ..JobSpec::default()
            };
            events.push(world.submission(spec, None, 0));
        }
        world.happen(events)
    }
}

/// Demand by tick, and the nodes that there are. Ticks follow each other, whatever the file leaves out between them.
fn read_demand(path: &Path, fortnight: bool) -> Result<(Vec<u32>, u32), String> {
    let fault = |e: forebay_catalog::input::InputError| e.to_string();
    let mut table = CsvTable::new(open(path).map_err(fault)?).map_err(fault)?;
    table.require(&["t_s", "active", "total"]).map_err(fault)?;
    let (mut demand, mut total) = (Vec::new(), 0);
    while let Some(row) = table.next_row().map_err(fault)? {
        let at = row.ms("t_s").map_err(fault)? / 1000;
        if !fortnight || (at >= FROM_S && demand.len() < TICKS) {
            total = total.max(row.small("total", 1_000_000).map_err(fault)?);
            demand.push(row.small("active", 1_000_000).map_err(fault)?);
        }
    }
    Ok((demand, total))
}

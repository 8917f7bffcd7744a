//! Where the inputs of the experiments are, and how a policy of benches/quality is read.
//!
//! Never: an input of its own making.

use crate::arguments::Arguments;
use crate::world::{InstantWorld, owned};
use forebay_catalog::Catalogue;
use forebay_catalog::read;
use forebay_kernel::event::Event;
use forebay_kernel::policy::Policy;
use forebay_policy::compile;
use forebay_sim::trace::{TraceJob, TraceNode, read_nodes};
use std::path::{Path, PathBuf};

/// The folder of the project.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A file of the published inputs, where they are beside the project.
pub fn published(name: &str) -> Option<PathBuf> {
    let path = root().join("../shared/traces").join(name);
    path.is_file().then_some(path)
}

/// A policy of benches/quality, compiled with the prices beside it.
pub fn policy(name: &str) -> Result<Policy, String> {
    let folder = root().join("benches/quality");
    let path = folder.join(format!("{name}.yaml"));
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let rows = read(folder.join("catalogue.csv")).map_err(|e| e.to_string())?;
    let catalogue = Catalogue { rows, ..Catalogue::builtin() };
    Ok(compile(&path.display().to_string(), &text, &catalogue).map_err(|e| e.to_string())?.policy)
}

/// What was given, else the published file where it is here, and whether it is another input than the published one. Neither: one is made.
pub fn given_or(given: Option<&PathBuf>, name: &str) -> (Option<PathBuf>, bool) {
    match (given, published(name)) {
        (Some(given), _) => (Some(given.clone()), true),
        (None, Some(found)) => (Some(found), false),
        (None, None) => {
            eprintln!("{name} is not here: an input of the same shape is made, for which nothing was published");
            (None, true)
        }
    }
}

/// The nodes of a pool that are there: those of `--nodes`, else so many of so many GPUs.
pub fn fleet(arguments: &Arguments, pool: &str, usual: (usize, u16)) -> Result<Vec<Event>, String> {
    let Some(path) = &arguments.nodes else { return Ok(equal_nodes(pool, usual)) };
    let nodes = read_nodes(path).map_err(|e| e.to_string())?;
    Ok(listed_nodes(&nodes, pool))
}

/// The nodes of a list, as nodes of a pool of owned nodes.
pub fn listed_nodes(nodes: &[TraceNode], pool: &str) -> Vec<Event> {
    let seen = nodes.iter().map(|node| {
        let room = (u16::try_from(node.gpus).unwrap_or(64), node.cpu_milli, node.mem_mib);
        owned(node.id.clone(), pool, room, node.gpu_model.as_deref())
    });
    seen.collect()
}

/// So many equal nodes of a pool of owned nodes.
pub fn equal_nodes(pool: &str, (count, gpus): (usize, u16)) -> Vec<Event> {
    let room = (gpus, 8_000 * u64::from(gpus), 65_536 * u64::from(gpus));
    (0..count).map(|nth| owned(format!("{pool}-{nth:04}"), pool, room, None)).collect()
}

/// Submits jobs when they come, those of one instant together, and lets time go on until all are over. `submission`: what is submitted of one.
pub fn play(
    world: &mut InstantWorld,
    mut jobs: Vec<TraceJob>,
    mut submission: impl FnMut(&mut InstantWorld, TraceJob) -> Event,
) -> Result<(), String> {
    jobs.sort_by_key(|job| job.submit_ms);
    let mut jobs = jobs.into_iter().peekable();
    while let Some(first) = jobs.peek().map(|job| job.submit_ms) {
        world.until(first)?;
        let mut events = Vec::new();
        while let Some(job) = jobs.next_if(|job| job.submit_ms <= first) {
            events.push(submission(world, job));
        }
        world.happen(events)?;
    }
    run_out(world)
}

/// Lets time go on until all jobs are over and what was bought is given back.
fn run_out(world: &mut InstantWorld) -> Result<(), String> {
    while world.state().open_jobs() > 0 || world.state().bought_nodes().next().is_some() {
        let next = world.next().ok_or_else(|| {
            let open = world.state().open_jobs();
            format!("{open} jobs wait, and nothing is due")
        })?;
        world.until(next)?;
    }
    Ok(())
}

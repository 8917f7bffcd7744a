//! Decisions beside published ones, on the published inputs: `cargo xtask bench quality [NAME]`.
//!
//! ```text
//! input (recorded, or made in its shape) -> the engine under a policy of benches/quality, in the simulated world
//!                                        -> our figure beside every published one; a list as JSON
//! ```
//!
//! Never: a figure of the machine. The same input and seed give the same table everywhere. No experiment reaches into the engine: what each
//! asks for stands in its policy and its jobs.

mod arguments;
mod cant_be_late;
mod ces;
mod fgd;
mod figures;
mod inputs;
mod made;
mod philly_queues;
mod starburst;
mod world;

use arguments::Arguments;
use figures::{ComparedFigure, NamedFigure, as_json, table};
use std::process::ExitCode;

/// What an experiment is run with, and gives.
type Experiment = fn(&Arguments) -> Result<Vec<ComparedFigure>, String>;

const EXPERIMENTS: [(&str, Experiment); 5] = [
    ("starburst", starburst::run),
    ("fgd", fgd::run),
    ("cant-be-late", cant_be_late::run),
    ("philly-queues", philly_queues::run),
    ("ces", ces::run),
];

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<(), String> {
    let names: Vec<&str> = EXPERIMENTS.iter().map(|(name, _)| *name).collect();
    let arguments = Arguments::read(std::env::args().skip(1), &names)?;
    let mut figures: Vec<NamedFigure> = Vec::new();
    for (name, experiment) in EXPERIMENTS {
        if arguments.name.as_deref().is_some_and(|only| only != name) {
            continue;
        }
        let rows = experiment(&arguments).map_err(|why| format!("{name}: {why}"))?;
        println!("{}", table(name, &rows));
        figures.extend(rows.into_iter().map(|row| NamedFigure { name, row }));
    }
    let Some(path) = &arguments.json else { return Ok(()) };
    std::fs::write(path, as_json(&figures)).map_err(|e| format!("{}: {e}", path.display()))
}

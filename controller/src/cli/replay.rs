//! `forebay run --replay`: a file fed through the whole controller, with its journal in a folder that is printed, and a closing table.
//!
//! Never: a wall time in the table; the same file, policy and seed give the same one.

use super::Output;
use super::args::{RunArgs, Speed};
use super::live::{self, Live, Signals};
use super::outcome::{Exit, Failure, print, write};
use super::run::configured;
use super::world::WorldFile;
use crate::config::Config;
use crate::driver::{
    ClockMode, Finished, LiveProgress, LoopEnd, Settings, load, new_folder, refuse_what_is_left, start,
};
use crate::intake::PolicyRoutes;
use crate::pasted::shell_path;
use crate::show::closing::Closing;
use crate::show::progress::{Bar, Moment};
use crate::show::scorecard;
use forebay_catalog::Catalogue;
use forebay_sim::market::find_beside;
use forebay_sim::trace::TraceFormat;
use std::path::Path;
use std::sync::Arc;

pub(super) fn run(args: &RunArgs, file: &Path, out: Output) -> Result<Exit, Failure> {
    let config = configured(args)?;
    let signals = Signals::kept()?;
    let tokens = live::tokens(&config, out)?;
    let resume = args.resume.is_some();
    let folder = match args.resume.clone().or_else(|| config.data.clone()) {
        Some(folder) => folder,
        None => new_folder(Path::new("")),
    };
    if !resume && live::has_journal(&folder) {
        return Err(Failure::input(format_args!(
            "{}: a journal is here already: go on with it by --resume {}, or give another --data",
            folder.display(),
            shell_path(&folder)
        )));
    }
    if resume && !live::has_journal(&folder) {
        return Err(Failure::input(format_args!(
            "{}: there is no journal here: check the folder, or leave --resume out",
            folder.display()
        )));
    }
    let (text, compiled) =
        live::policy(config.policy.as_deref(), resume.then_some(folder.as_path()), &Catalogue::builtin())?;
    let format = args.trace_format.as_deref().map(str::parse::<TraceFormat>).transpose().map_err(Failure::input)?;
    let loaded = load(file, format, &compiled.policy).map_err(Failure::input)?;
    let listener =
        config.listen.filter(|_| args.listen.is_some()).map(|at| live::listen_for(at, &tokens)).transpose()?;
    let world = WorldFile::settle(&folder, resume, args.seed, find_beside(file))?;
    world.check(&compiled.policy)?;
    if !resume {
        refuse_what_is_left(&folder)?;
        world.save(&folder)?;
    }
    let routes = Arc::new(PolicyRoutes::new(compiled.routes));
    let begin = loaded.feed.start();
    let running = start(Settings {
        resume,
        consent: args.consent(),
        policy: Some((text, compiled.policy)),
        routes: Arc::clone(&routes) as _,
        clock: match args.speed {
            None => ClockMode::Scaled(1),
            Some(Speed::Times(n)) => ClockMode::Scaled(n),
            Some(Speed::Max) => ClockMode::Max,
        },
        exit_when_drained: args.exit_when_drained,
        feed: Some(loaded.feed),
        ..Settings::new(folder, world.maker())
    })?;
    world.save(running.handle.folder())?;
    live::say_recovery(&running, out);
    eprintln!("journal   {}", running.handle.folder().display());
    if let Some(listener) = &listener {
        eprintln!("listening http://{}", listener.local_addr().map_err(Failure::outside)?);
    }
    let to_stdout = args.json.as_deref() == Some(Path::new("-"));
    let bar = if to_stdout { Bar::none() } else { Bar::on_terminal() };
    // A replay has one source: its file. What is reported to it beside counts as anywhere.
    let config = Config { checkpoints: config.checkpoints, ..Config::default() };
    let live =
        Live { running, routes, listener, tokens, config, cloud: None, cluster: None, audit: None, policy: None };
    let finished = live.until_stopped(signals, |p| bar.show(&moment(p, begin.0)));
    bar.finish();
    close(args, file, &finished?, &loaded.notes, (&world, to_stdout), out)
}

fn moment(p: &LiveProgress, begin: u64) -> Moment {
    Moment {
        elapsed_ms: p.now.0.saturating_sub(begin),
        queued: p.queued as u64,
        running: p.running as u64,
        nodes: p.nodes.map(|n| n as u64),
        spend_micro: p.spend_micro,
        done: p.done,
        total: p.total,
    }
}

/// The table, the JSON and the exit code.
fn close(
    args: &RunArgs,
    file: &Path,
    finished: &Finished,
    notes: &[String],
    (world, to_stdout): (&WorldFile, bool),
    out: Output,
) -> Result<Exit, Failure> {
    let mut card =
        scorecard::of(&finished.engine, finished.rejected, &finished.folder).map_err(super::backup::failure)?;
    card.trace = file.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
    card.market = world.words();
    card.seed = world.seed();
    card.assumptions = notes.to_vec();
    let summary = crate::document::write::summary(finished.engine.state());
    let closing =
        Closing { open: summary.queued + summary.running, card: &card, violations: finished.audit.len() as u64 };
    for finding in &finished.audit {
        eprintln!("{} {finding}", out.err.bad("violation:"));
    }
    if let Some(path) = &args.json {
        let value = scorecard::json(&closing, &finished.audit).map_err(Failure::outside)?;
        let text = serde_json::to_string_pretty(&value).map_err(Failure::outside)?;
        write(path, &format!("{text}\n"))?;
    }
    if !to_stdout {
        let notes: Vec<String> = std::iter::once(format!("market: {}", world.words()))
            .chain(notes.iter().map(|n| format!("note: {n}")))
            .map(|n| out.paint.faint(&n))
            .collect();
        print(&format!("{}\n\n{}\n\n{}\n", closing.table(out.paint), notes.join("\n"), closing.line(out.paint)))?;
    }
    // Nodes that are left are a fault only where everything was to be over.
    let left =
        args.exit_when_drained && (card.nodes_left() > 0 || closing.open > 0) && finished.end == LoopEnd::Drained;
    Ok(if closing.bad() || left { Exit::Violations } else { Exit::Done })
}

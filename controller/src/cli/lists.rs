//! `jobs`, `nodes`, `queues`, `sources`, `brakes`: lists of a running Forebay, and jobs of a data folder, once or, with `--watch`, again and again.
//!
//! Never: computes what the server should say, or ends a list that is watched because a connection was lost.

use super::args::{ColumnArgs, JobsArgs, ListArgs};
use super::connection::Connection;
use super::folder::Among;
use super::outcome::{Exit, Failure, is_read, print, print_json};
use super::{Output, folder};
use crate::api::client::{Client, encoded};
use crate::api::listing::Jobs;
use crate::cost::{BillScope, CostBy, CostRange};
use crate::show::lists;
use crate::show::table::{ShownColumns, UnknownColumn, terminal_width};
use forebay_wire::document::views::{JobPhase, JobView};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::path::Path;

/// Moves to the upper left corner and clears what is there.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

pub(super) fn jobs(args: &JobsArgs, out: Output) -> Result<Exit, Failure> {
    let phase = args.phase.as_deref().map(known_phase).transpose()?;
    let none = if args.all || phase.is_some() { "no jobs" } else { "no open jobs; --all shows those that are over" };
    let table = |found: &Jobs, columns: &ShownColumns| {
        if found.jobs.is_empty() {
            Ok(none.to_owned())
        } else {
            lists::jobs(&found.jobs, found.now_s, columns, out.paint)
        }
    };
    let Some(folder) = &args.data else {
        let filter = filter(args, phase);
        return show(&args.list, out, |client| client.jobs(&filter), table);
    };
    let among = if phase.map_or(args.all, JobPhase::terminal) { Among::All } else { Among::State };
    let wanted = |view: &JobView| {
        phase.map_or(args.all || !view.phase.terminal(), |phase| phase == view.phase)
            && args.queue.as_ref().is_none_or(|queue| *queue == view.queue)
    };
    let mut found = folder::jobs(folder, among, wanted)?;
    if asks_for_cost(args) {
        add_cost(&mut found, folder)?;
    }
    if args.list.server.json {
        print_json(&found)?;
    } else {
        print(&format!("{}\n", shown(&args.list, &found, table)?))?;
    }
    Ok(Exit::Done)
}

fn known_phase(phase: &str) -> Result<JobPhase, Failure> {
    serde_json::from_value(phase.to_lowercase().into()).map_err(|_| {
        Failure::input(format_args!(
            "--phase {phase}: no such phase: write new, backing-off, held, queued, booked, starting, running, serving, stopping, ended, completed, \
             failed, cancelled or rejected"
        ))
    })
}

fn filter(args: &JobsArgs, phase: Option<JobPhase>) -> String {
    let mut filter = String::new();
    if let Some(phase) = phase {
        filter.push_str(&format!("&phase={phase}"));
    } else if !args.all {
        filter.push_str("&open=true");
    }
    if let Some(queue) = &args.queue {
        filter.push_str(&format!("&queue={}", encoded(queue)));
    }
    // The server reads its ledger for it.
    if asks_for_cost(args) {
        filter.push_str("&cost=true");
    }
    filter
}

/// Whether the column is named.
fn asks_for_cost(args: &JobsArgs) -> bool {
    args.list.columns.columns.iter().any(|name| name.trim().eq_ignore_ascii_case("cost"))
}

/// What jobs of a folder have cost, as its bill by job says. Where something was spent before the ledger knew by whom, that is not known.
fn add_cost(found: &mut Jobs, folder: &Path) -> Result<(), Failure> {
    let bill = crate::cost::of_folder(folder, &CostBy::Job, &CostRange::default(), &BillScope::All);
    let bill = bill.map_err(super::cost::failure)?;
    if bill.rows.iter().any(|row| row.key.starts_with("(before ")) {
        return Ok(());
    }
    let costs: BTreeMap<&str, f64> = bill.rows.iter().map(|row| (row.key.as_str(), row.cost_usd)).collect();
    // What a replica holds is charged to its service.
    for job in found.jobs.iter_mut().filter(|job| job.of.is_none()) {
        job.cost_usd = Some(costs.get(job.job.as_str()).copied().unwrap_or_default());
    }
    Ok(())
}

pub(super) fn nodes(args: &ListArgs, out: Output) -> Result<Exit, Failure> {
    show(args, out, Client::nodes, |found, columns| {
        if found.nodes.is_empty() {
            return Ok("no nodes".to_owned());
        }
        lists::nodes(&found.nodes, found.now_s, columns, out.paint)
    })
}

pub(super) fn queues(args: &ListArgs, out: Output) -> Result<Exit, Failure> {
    show(args, out, Client::queues, |found, columns| {
        if found.queues.is_empty() {
            return Ok("no queues yet; the policy declares none and no job has come".to_owned());
        }
        lists::queues(&found.queues, columns, out.paint)
    })
}

pub(super) fn brakes(args: &ListArgs, out: Output) -> Result<Exit, Failure> {
    show(args, out, Client::brakes, |found, columns| lists::brakes(found, columns, out.paint))
}

pub(super) fn sources(args: &ListArgs, out: Output) -> Result<Exit, Failure> {
    let none = "no sources; events come by HTTP alone (forebay.yaml names others, see docs/SOURCES.md)";
    show(args, out, Client::sources, |found, columns| {
        let text = if found.sources.is_empty() {
            none.to_owned()
        } else {
            crate::show::sources::table(found, columns, out.paint)?
        };
        let rejected: u64 = found.http.rejected.values().sum();
        let line = format!("http: {} taken, {} seen before, {rejected} rejected", found.http.taken, found.http.seen);
        Ok(format!("{text}\n{}", out.paint.faint(&line)))
    })
}

impl ColumnArgs {
    /// What is asked for, in the terminal that there is.
    pub(super) fn shown(&self) -> ShownColumns {
        ShownColumns { named: self.columns.clone(), width: terminal_width() }
    }
}

/// A list as JSON or as a table; watched, again and again.
fn show<T: Serialize>(
    args: &ListArgs,
    out: Output,
    ask: impl Fn(&Client) -> Result<T, crate::api::client::ClientError>,
    table: impl Fn(&T, &ShownColumns) -> Result<String, UnknownColumn>,
) -> Result<Exit, Failure> {
    let client = args.server.client()?;
    if args.server.json {
        print_json(&ask(&client)?)?;
        return Ok(Exit::Done);
    }
    let text = |found: &T| shown(args, found, &table);
    let Some(every) = args.watch else {
        print(&format!("{}\n", text(&ask(&client)?)?))?;
        return Ok(Exit::Done);
    };
    let terminal = std::io::stdout().is_terminal();
    let mut connection = Connection::new(out);
    loop {
        let Some(found) = connection.answer(ask(&client))? else { continue };
        let found = text(&found)?;
        let head = format!("every {} s; Ctrl-C ends it; {:.0}", every.as_secs(), jiff::Timestamp::now());
        let (before, after) = if terminal { (CLEAR, "") } else { ("", "\n") };
        if !is_read(&format!("{before}{}\n{found}\n{after}", out.paint.faint(&head)))? {
            return Ok(Exit::Done);
        }
        std::thread::sleep(every);
    }
}

/// A list as a table.
fn shown<T>(
    args: &ListArgs,
    found: &T,
    table: impl Fn(&T, &ShownColumns) -> Result<String, UnknownColumn>,
) -> Result<String, Failure> {
    table(found, &args.columns.shown()).map_err(|e| Failure::input(format_args!("-o: {e}")))
}

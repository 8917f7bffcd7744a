//! `jobs`, `nodes`, `queues`, `sources`, `why`, `cancel`: ask a running Forebay and show its answer.
//!
//! Never: computes what the server should say.

use super::Output;
use super::args::{CancelArgs, ConfirmDeadArgs, JobArgs, JobsArgs, ServerArgs};
use super::outcome::{Exit, Failure, print, print_json};
use crate::api::client::encoded;
use crate::api::confirm_dead::DeathConfirmation;
use crate::api::jobs::OneJob;
use crate::show::lists;
use forebay_wire::document::views::JobPhase;

/// An answer as JSON where that is asked for, or as text.
fn show<T: serde::Serialize>(server: &ServerArgs, found: &T, text: String) -> Result<Exit, Failure> {
    if server.json {
        print_json(found)?
    } else {
        print(&(text + "\n"))?
    }
    Ok(Exit::Done)
}

pub(super) fn jobs(args: &JobsArgs, out: Output) -> Result<Exit, Failure> {
    let mut filter = String::new();
    if let Some(phase) = &args.phase {
        let known: Result<JobPhase, _> = serde_json::from_value(phase.to_lowercase().into());
        let phase = known.map_err(|_| {
            Failure::input(format_args!(
                "--phase {phase}: no such phase: write new, backing-off, held, queued, booked, starting, running, stopping, ended, \
                 completed, failed, cancelled or rejected"
            ))
        })?;
        filter.push_str(&format!("&phase={phase}"));
    } else if !args.all {
        filter.push_str("&open=true");
    }
    if let Some(queue) = &args.queue {
        filter.push_str(&format!("&queue={}", encoded(queue)));
    }
    let found = args.server.client()?.jobs(&filter)?;
    let none =
        if args.all || args.phase.is_some() { "no jobs" } else { "no open jobs; --all shows those that are over" };
    let table = || lists::jobs(&found.jobs, found.now_s, out.paint);
    show(&args.server, &found, if found.jobs.is_empty() { none.to_owned() } else { table() })
}

pub(super) fn nodes(args: &ServerArgs, out: Output) -> Result<Exit, Failure> {
    let found = args.client()?.nodes()?;
    let table = || lists::nodes(&found.nodes, found.now_s, out.paint);
    show(args, &found, if found.nodes.is_empty() { "no nodes".to_owned() } else { table() })
}

pub(super) fn queues(args: &ServerArgs, out: Output) -> Result<Exit, Failure> {
    let found = args.client()?.queues()?;
    let none = "no queues yet; the policy declares none and no job has come";
    let table = || lists::queues(&found.queues, out.paint);
    show(args, &found, if found.queues.is_empty() { none.to_owned() } else { table() })
}

pub(super) fn sources(args: &ServerArgs, out: Output) -> Result<Exit, Failure> {
    let found = args.client()?.sources()?;
    let none = "no sources; events come by HTTP alone (forebay.yaml names others, see docs/SOURCES.md)";
    let table = || crate::show::sources::table(&found, crate::show::table::terminal_width(), out.paint);
    let text = if found.sources.is_empty() { none.to_owned() } else { table() };
    let rejected: u64 = found.http.rejected.values().sum();
    let line = format!("http: {} taken, {} seen before, {rejected} rejected", found.http.taken, found.http.seen);
    show(args, &found, format!("{text}\n{}", out.paint.faint(&line)))
}

pub(super) fn why(args: &JobArgs, out: Output) -> Result<Exit, Failure> {
    let client = args.server.client()?;
    if args.server.json {
        print_json(&client.why(&args.job)?)?;
    } else {
        let found = client.job(&args.job)?;
        let notes: String = found
            .kubernetes
            .iter()
            .map(|note| format!("  kubernetes: {}\n", crate::show::figures::short(note, 400)))
            .collect();
        print(&format!("{}\n{notes}", lists::why(&found.job, found.now_s, out.paint)))?;
    }
    Ok(Exit::Done)
}

/// Asks for the end of each. One that cannot be cancelled does not keep the others running.
pub(super) fn cancel(args: &CancelArgs, out: Output) -> Result<Exit, Failure> {
    let client = args.server.client()?;
    let (mut cancelled, mut last) = (Vec::new(), None);
    for job in &args.jobs {
        match client.cancel(job) {
            Ok(found) => {
                if !args.server.json {
                    print(&cancelled_line(&found, out))?;
                }
                cancelled.push(found);
            }
            Err(error) => {
                // The last one is said by whoever ends the command.
                if let Some(before) = last.replace(Failure::from(error)) {
                    before.print(out.err);
                }
            }
        }
    }
    match (args.server.json, cancelled.as_slice()) {
        (true, [one]) if args.jobs.len() == 1 => print_json(one)?,
        (true, all) if args.jobs.len() > 1 => print_json(&all)?,
        _ => {}
    }
    last.map_or(Ok(Exit::Done), Err)
}

/// Confirms deaths, and says what is held now.
pub(super) fn confirm_dead(args: &ConfirmDeadArgs, out: Output) -> Result<Exit, Failure> {
    let confirmation = DeathConfirmation { attempt: args.attempt, workers: args.workers.clone() };
    let found = args.server.client()?.confirm_dead(&args.job, &confirmation)?;
    let workers: Vec<String> = args.workers.iter().map(u32::to_string).collect();
    let noun = if workers.len() == 1 { "worker" } else { "workers" };
    let text = format!(
        "{noun} {} of attempt {} of {} confirmed dead; `forebay why {}` says what is held still",
        workers.join(", "),
        args.attempt,
        out.paint.strong(&found.job.job),
        found.job.job,
    );
    show(&args.server, &found, text)
}

fn cancelled_line(found: &OneJob, out: Output) -> String {
    let word = if found.job.phase == JobPhase::Cancelled { "cancelled" } else { "is being cancelled" };
    let subject = found.job.subject.as_deref().unwrap_or("-");
    format!("{} ({}) {word}\n", out.paint.strong(&found.job.job), crate::show::figures::short(subject, 60))
}
